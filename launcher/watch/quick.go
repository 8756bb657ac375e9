package watch

import (
	"bytes"
	"encoding/binary"
)

// A job prints the same few beginnings and endings of lines again and again: a
// process says 'node1:4711:4712 [3] NCCL INFO ' thousands of times, and what
// carries a channel is one of a handful of words. What was worked out of one of
// them is kept and looked up by its bytes, so that the second line of its kind
// costs a third of the first. The tables are of fixed size: a newcomer takes the
// place of an older one, which is then worked out again.

const (
	headSlots = 1 << 12 // in pairs: of two that meet, both stay
	maxHead   = 56      // bytes of a prefix that is kept
	tailSlots = 1 << 8
	maxTail   = 48
)

// head is a prefix at the beginning of a line, and who it names.
type head struct {
	proc *proc
	dev  int16
	len  uint8
	text [maxHead]byte
}

// tail is what stands behind ' via ', where all that another one means is one
// more channel.
type tail struct {
	count *int // nil: not even that
	kind  gdrKind
	len   uint8
	text  [maxTail]byte
}

func (h *head) is(b []byte) bool { return int(h.len) == len(b) && string(h.text[:h.len]) == string(b) }

func (t *tail) is(b []byte) bool { return int(t.len) == len(b) && string(t.text[:t.len]) == string(b) }

// mix spreads a text of at least 8 bytes over 32 bits by its first and its last
// eight bytes and its length: where two texts that differ elsewhere meet, one
// of them is worked out again.
func mix(b []byte) uint32 {
	first := binary.LittleEndian.Uint64(b)
	last := binary.LittleEndian.Uint64(b[len(b)-8:])
	h := (first ^ uint64(len(b))) * 0x9e3779b97f4a7c15
	if len(b) >= 16 {
		h ^= binary.LittleEndian.Uint64(b[len(b)-16:]) * 0xc2b2ae3d27d4eb4f
	}
	h = (h ^ h>>29 ^ last) * 0xbf58476d1ce4e5b9
	return uint32(h >> 32)
}

// quick reads a line that is one NCCL INFO message behind a prefix at its
// beginning; at is where "NCCL " stands. false: it is no such line, or not for
// sure, and nothing has been done.
func (st *state) quick(b []byte, at int) bool {
	text := b[at+len(ncclMark):]
	if len(text) < 5 || string(text[:5]) != "INFO " || at < 8 || at > maxHead {
		return false
	}
	text = text[5:]
	if ncclAt(text) >= 0 {
		return false // two lines ran over each other, or the version
	}
	p, dev := st.procAt(b[:at])
	if p == nil {
		return false
	}
	p.lines++
	if p.home == nil {
		st.runs.keep(p, b)
		return true
	}
	p.last, p.home.last = st.runs.lines, st.runs.lines
	p.home.library("nccl")
	m := &st.msg
	m.proc, m.rank, m.dev, m.warn, m.nccl, m.clean, m.text, m.raw = p, -1, dev, false, true, true, trimEnd(text), b
	p.home.message(m)
	return true
}

// procAt returns the process that the beginning of a line names, and the device;
// nil where it names none, or one too many.
func (st *state) procAt(b []byte) (*proc, int) {
	if st.runs.heads == nil {
		st.runs.heads = make([]head, headSlots)
	}
	i := mix(b) % headSlots &^ 1
	pair := st.runs.heads[i : i+2]
	for k := range pair {
		if pair[k].is(b) {
			return pair[k].proc, int(pair[k].dev)
		}
	}
	s := segment{start: len(b)}
	s.prefix(b, 0, len(b))
	if !s.hasPrefix || s.start != 0 {
		return nil, -1
	}
	s.clean = true
	p := st.procOf(&s)
	if p == nil {
		return nil, -1
	}
	p.lines-- // procOf has counted a line, and so will the caller
	pair[1] = pair[0]
	pair[0] = head{proc: p, dev: int16(s.dev), len: uint8(len(b))}
	copy(pair[0].text[:], b)
	return p, s.dev
}

// trimEnd takes spaces and tabs off the end.
func trimEnd(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// knownVia counts a channel whose ending was met before; nil where it was not.
func (st *state) knownVia(via []byte) *tail {
	if len(via) < 8 || len(via) > maxTail {
		return nil
	}
	t := &st.tails[mix(via)%tailSlots]
	if !t.is(via) {
		return nil
	}
	if t.count != nil {
		*t.count++
	}
	return t
}

// keepVia remembers that all that another such ending means is one more of count,
// of a kind.
func (st *state) keepVia(via []byte, count *int, kind gdrKind) {
	if len(via) < 8 || len(via) > maxTail {
		return
	}
	t := &st.tails[mix(via)%tailSlots]
	t.count, t.kind, t.len = count, kind, uint8(copy(t.text[:], via))
}

// ncclAt returns where "NCCL " begins in b, or -1. Of its bytes the L is the
// rarest in what NCCL prints.
func ncclAt(b []byte) int {
	for from := 3; from < len(b); {
		i := bytes.IndexByte(b[from:], 'L')
		if i < 0 {
			break
		}
		i += from
		if i+1 < len(b) && b[i+1] == ' ' && string(b[i-3:i]) == "NCC" {
			return i - 3
		}
		from = i + 1
	}
	return -1
}

// viaAt returns where " via " begins in t, or -1.
func viaAt(t []byte) int {
	for from := 1; from < len(t); {
		i := bytes.IndexByte(t[from:], 'v')
		if i < 0 {
			break
		}
		i += from
		if t[i-1] == ' ' && i+4 <= len(t) && string(t[i:i+4]) == "via " {
			return i - 1
		}
		from = i + 1
	}
	return -1
}

// bits is a set of small numbers.
type bits struct {
	words []uint64
	n     int
}

// add puts i into the set; what is not in [0, most) is left out.
func (s *bits) add(i, most int) {
	if i < 0 || i >= most {
		return
	}
	for i/64 >= len(s.words) {
		s.words = append(s.words, make([]uint64, max(16, len(s.words)))...)
	}
	if w := &s.words[i/64]; *w>>(i%64)&1 == 0 {
		*w |= 1 << (i % 64)
		s.n++
	}
}
