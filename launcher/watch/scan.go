package watch

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strconv"
	"sync"
)

const (
	// bufferBytes is how much is read at once (measured: below 64 KB the
	// system calls show, above 256 KB the second cache level does).
	bufferBytes = 128 << 10
	// maxLineBytes bounds what is kept of a line whose end has not come. NCCL
	// cuts its lines at 1023 bytes (2.28 and older), UCX at a few thousand.
	maxLineBytes = 32 << 10
	// excerptBytes is how far a file is searched for marks of left-out lines.
	excerptBytes = 1 << 20
)

// An anchor is a word that makes a line worth reading: a line that holds none of
// them cannot matter. at is where four bytes in a row begin by which it is found;
// where the word is longer, they are those that other text has least.
type anchor struct {
	text string
	at   int
}

// streamAnchors is the explicit list for what goes to standard output, and
// wholeAnchors what else is in whole logs: banners, headers, and what goes to
// standard error.
var (
	streamAnchors = []anchor{
		{"NCCL", 0},
		{"NET/", 0},
		{"No components were", 4},
		{"UCX ", 0},
		{"Using network", 6},
		{"Using tcp btl", 6},
		{"MPI ", 0},
		{"MPI_", 0},
		{"MPI)", 0},
		{"PML ", 0},
		{"MVAPICH", 1},
		{"[btl_tcp", 1},
		{"opal_common_ucx", 11},
		{"pml_ucx", 3},
		{"mpi_rank_", 0},
		{"ib_mlx5_log", 4},
		{"rc_verbs_iface", 6},
	}
	wholeAnchors = []anchor{
		{"RCCL", 0},
		{"<warn>", 0},
		{"<info>", 0},
		{"#  Rank ", 0},
		{"#   Rank ", 0},
		{"out-of-place", 2},
		// UCX's tables, what it prints without its name, and settings.
		{"cfg#", 0},
		{"mlx5/", 1},
		{"verbs/", 2},
		{"tcp/", 0},
		{"Caught signal ", 0},
		{"UCX_", 0},
		// Open MPI's choices at higher verbosity, its help texts, its daemons.
		{"select: ", 2},
		{"bml: Using", 0},
		{"mtl:ofi:provider", 5},
		{"common_ucx.c", 6},
		{"selected pml ", 9},
		{"-mca ", 0},
		{"OpenFabrics", 3},
		{"ib) BTL", 3},
		{"infiniband ports", 4},
		{"requested component", 1},
		{"ORTE ", 0},
		{"PRTE ", 0},
		{"PMIX ERROR", 0},
		{" PID ", 1},
		// What says what openib's help text is about.
		{"Local host:", 6},
		{"Local adapter:", 9},
		{"Local device:", 9},
		// Other MPI libraries, and libfabric.
		{"libfabric provider: ", 2},
		{"TMI provider", 0},
		{"TERMINATION OF ONE", 1},
		{"No active HCAs", 10},
		{"internal_Init_thread", 8},
		{"FI_PROVIDER", 0},
		{"libibverbs: Warning", 7},
		// What torch quotes of NCCL.
		{"Call to ibv_", 8},
		{"socketProgress", 4},
		{"socketStartConnect", 6},
		{"socketPollConnect", 6},
		{"socketFinalize", 4},
		{"Net : Connect", 0},
		{"Error: network", 2},
		{"Last error:", 0},
		{"(may be unrelated) '", 3},
		{"unhandled system error", 9},
		{"unhandled cuda error", 9},
		{"remote process exited or", 12},
		{"ncclSystemError: ", 3},
		{"ncclInternalError: ", 3},
		{"ncclRemoteError: ", 3},
		{"ncclUnhandledCudaError: ", 3},
		{"ncclInvalidUsage: ", 3},
		{"ncclInvalidArgument: ", 3},
		// NCCL 2.2 and older, which do not name themselves.
		{"] INFO Using ", 0},
		{"] INFO NET", 4},
		{"] INFO Net/IB", 4},
		{"] INFO comm ", 0},
		{"] INFO rank ", 0},
		{"] INFO Ring ", 0},
		{"socket.h:", 5},
		{"ibvwrap.", 2},
		{"net_ib.", 2},
		{"net_socket.", 2},
		{"bootstrap.cu", 7},
	}
)

var (
	ofStreams   = sync.OnceValue(func() *anchorSet { return newAnchorSet(streamAnchors) })
	ofWholeLogs = sync.OnceValue(func() *anchorSet {
		return newAnchorSet(slices.Concat(streamAnchors, wholeAnchors, phraseAnchors(barePhrases)))
	})
)

// phraseAnchors are the first marks of phrases, each found by its rarest bytes.
func phraseAnchors(list []phrase) []anchor {
	var out []anchor
	for _, p := range list {
		if len(p.marks) == 0 || slices.ContainsFunc(out, func(a anchor) bool { return a.text == p.marks[0] }) {
			continue
		}
		a := anchor{text: p.marks[0]}
		best := -1
		for at := 0; at+anchorStride < len(a.text); at++ {
			rare := 0
			for _, c := range []byte(a.text[at : at+anchorStride+1]) {
				switch {
				case c >= 'A' && c <= 'Z', isDigit(c), c == '_':
					rare += 3
				case c < 'a' && c != ' ', bytes.IndexByte([]byte("bfgjkqvwxyz"), c) >= 0:
					rare++
				}
			}
			if rare > best {
				best, a.at = rare, at
			}
		}
		out = append(out, a)
	}
	return out
}

// An anchorSet finds anchors. Of every three pairs of neighbouring bytes it
// looks at one: four bytes in a row hold three pairs, so that one of the three
// is looked at wherever they stand. That one is in pairs, and hardly any other
// text's is. All other ways that were measured are slower on lines that are rich
// in capitals and underscores: searching for one rare byte after the other (the
// vector instruction starts anew for each of them), or skipping by what was read
// (each step waits for the one before).
type anchorSet struct {
	pairs [1 << 16]uint8    // such a pair, first byte low, may be of an anchor
	byOne [256][]anchorPair // by the pair's first byte
}

// anchorPair is one pair of an anchor.
type anchorPair struct {
	second byte
	text   string
	at     int // where the pair stands in text
}

const anchorStride = 3

func newAnchorSet(anchors []anchor) *anchorSet {
	s := &anchorSet{}
	for _, a := range anchors {
		for at := a.at; at < a.at+anchorStride; at++ {
			one, two := a.text[at], a.text[at+1]
			s.pairs[uint(one)|uint(two)<<8] = 1
			s.byOne[one] = append(s.byOne[one], anchorPair{two, a.text, at})
		}
	}
	return s
}

// find returns a place in the first anchor of p at or after from; len(p) where
// there is none.
func (s *anchorSet) find(p []byte, from int) int {
	i := from
	// Two loads hold six of the pairs.
	for i+17 <= len(p) {
		v, w := binary.LittleEndian.Uint64(p[i:]), binary.LittleEndian.Uint64(p[i+9:])
		if s.pairs[uint16(v)]|s.pairs[uint16(v>>24)]|s.pairs[v>>48]|s.pairs[uint16(w)]|s.pairs[uint16(w>>24)]|s.pairs[w>>48] != 0 {
			for k := i; k < i+6*anchorStride; k += anchorStride {
				if s.at(p, from, k) {
					return k
				}
			}
		}
		i += 6 * anchorStride
	}
	for ; i+2 <= len(p); i += anchorStride {
		if s.at(p, from, i) {
			return i
		}
	}
	return len(p)
}

// at reports whether the pair at i belongs to an anchor that begins at or after
// from.
func (s *anchorSet) at(p []byte, from, i int) bool {
	for k := range s.byOne[p[i]] {
		a := &s.byOne[p[i]][k]
		if a.second != p[i+1] {
			continue
		}
		b := i - a.at
		if b >= from && b+len(a.text) <= len(p) && string(p[b:b+len(a.text)]) == a.text {
			return true
		}
	}
	return false
}

// Source is one stream or file of a job. Lines may come in any pieces. A
// Source is used by one goroutine at a time; the Sources of a Watcher may be
// used at once.
type Source struct {
	w     *Watcher
	name  string
	carry []byte // the unfinished line
	strip []byte // scratch for lines with escapes in them
	run   int    // in which it is; see runs

	awaits int    // lines in which what stands behind "Last error:" may come
	before []byte // what stood before that

	anchors *anchorSet
}

// Source returns a new stream of the job; name is for diagnostics.
func (w *Watcher) Source(name string) *Source {
	return &Source{w: w, name: name, anchors: ofWholeLogs()}
}

// Stream is a Source for a job's standard output, through which a great deal
// may go that is not for us: it looks for less.
func (w *Watcher) Stream(name string) *Source {
	return &Source{w: w, name: name, anchors: ofStreams()}
}

// Write takes the next bytes. It never fails and never keeps p.
func (s *Source) Write(p []byte) (int, error) {
	n := len(p)
	if len(s.carry) > 0 {
		end := lineEnd(p)
		if end < 0 {
			s.keep(p)
			return n, nil
		}
		s.carry = append(s.carry, p[:end]...)
		s.scan(s.carry)
		s.carry = s.carry[:0]
		p = p[end+1:]
	}
	last := lastLineEnd(p)
	if last >= 0 {
		s.scan(p[:last])
		p = p[last+1:]
	}
	s.keep(p)
	return n, nil
}

// keep holds on to the beginning of a line. A "line" that grows beyond all
// measure (binary output, a progress bar without an end) is read as it stands.
func (s *Source) keep(p []byte) {
	for len(s.carry)+len(p) > maxLineBytes {
		room := max(maxLineBytes-len(s.carry), 0)
		s.carry = append(s.carry, p[:min(room, len(p))]...)
		p = p[min(room, len(p)):]
		cut := len(s.carry) - 2048 // longer than any line NCCL prints
		s.scan(s.carry[:cut])
		s.carry = append(s.carry[:0], s.carry[cut:]...)
	}
	s.carry = append(s.carry, p...)
}

// Close reads what is left of an unfinished last line.
func (s *Source) Close() error {
	if len(s.carry) > 0 {
		s.scan(s.carry)
		s.carry = nil
	}
	s.w.mu.Lock()
	s.w.at(&s.run)
	s.w.runs.settleAll()
	s.w.mu.Unlock()
	return nil
}

// ReadFrom reads r to its end, also in UTF-16.
func (s *Source) ReadFrom(r io.Reader) (int64, error) {
	r = &utf8Reader{r: r}
	buf := make([]byte, bufferBytes)
	var total int64
	for {
		n, err := r.Read(buf)
		if total < excerptBytes && bytes.Contains(buf[:n], []byte("\n...\n")) {
			s.w.elide()
		}
		total += int64(n)
		//nolint:errcheck // Write never fails
		_, _ = s.Write(buf[:n])
		if err == io.EOF {
			return total, s.Close()
		}
		if err != nil {
			return total, err
		}
	}
}

func lineEnd(p []byte) int {
	nl := bytes.IndexByte(p, '\n')
	head := p
	if nl >= 0 {
		head = p[:nl]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		return cr
	}
	return nl
}

func lastLineEnd(p []byte) int {
	nl := bytes.LastIndexByte(p, '\n')
	if cr := bytes.LastIndexByte(p[nl+1:], '\r'); cr >= 0 {
		return nl + 1 + cr
	}
	return nl
}

// scan finds the lines of p that hold an anchor, in order, each once.
func (s *Source) scan(p []byte) {
	var known, returns, tagged bool
	lineLen := func(b []byte) int {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			end = len(b)
		}
		if returns {
			if cr := bytes.IndexByte(b[:end], '\r'); cr >= 0 {
				end = cr
			}
		}
		return end
	}
	look := func() {
		if !known {
			// What is rare is looked for once in the whole, not in every line.
			known = true
			returns = bytes.IndexByte(p, '\r') >= 0
			tagged = isTagged(p)
			s.w.mu.Lock()
		}
	}
	defer func() {
		if known {
			s.w.mu.Unlock()
		}
	}()
	crowd := false // the line before was one of NCCL
	for pos := 0; pos < len(p); {
		if s.awaits > 0 {
			look()
			line := p[pos:]
			line = line[:lineLen(line)]
			if s.lastError(line, tagged) {
				pos += len(line) + 1
				crowd = false
				continue
			}
			// Another rank's line came between: it is read like any other.
			hit := s.anchors.find(line, 0)
			if hit < len(line) {
				s.line(line, ncclAt(line), tagged)
			}
			pos += len(line) + 1
			continue
		}
		if crowd {
			// Lines of NCCL come in crowds: as long as the next one is one too,
			// it needs no search for the other words.
			line := p[pos:]
			line = line[:lineLen(line)]
			if at := ncclAt(line); at >= 0 {
				s.line(line, at, tagged)
				pos += len(line) + 1
				continue
			}
		}
		hit := s.anchors.find(p, pos)
		if hit == len(p) {
			break
		}
		look()
		if i := lastLineEnd(p[pos:hit]); i >= 0 {
			pos += i + 1
		}
		line := p[pos:]
		line = line[:hit-pos+lineLen(line[hit-pos:])]
		at := ncclAt(line)
		s.line(line, at, tagged)
		pos += len(line) + 1
		crowd = at >= 0
	}
}

// line cleans one line that may matter and hands it to the state; at is where
// "NCCL " stands in it, or -1 where nobody looked.
func (s *Source) line(b []byte, at int, tagged bool) {
	if tagged && isTagged(b) {
		s.strip = cleanLine(s.strip[:0], b)
		b, at = s.strip, -1
	}
	s.w.at(&s.run).line(b, at)
	if at >= 0 {
		return // NCCL itself, not torch
	}
	if i := bytes.Index(b, lastErrorMark); i >= 0 && len(bytes.TrimSpace(b[i+len(lastErrorMark):])) == 0 {
		s.awaits = maxAwaited
		s.before = append(s.before[:0], b[:i]...)
	}
}

var lastErrorMark = []byte("Last error:")

// maxAwaited is how many lines of other ranks may come between "Last error:" and what
// it announces.
const maxAwaited = 16

// lastError reads the line behind torch's "Last error:", of the same rank where lines
// tell theirs; false where b is not that line.
func (s *Source) lastError(b []byte, tagged bool) bool {
	s.awaits--
	if tagged && isTagged(b) {
		s.strip = cleanLine(s.strip[:0], b)
		b = s.strip
	}
	tag := s.before[:len(s.before)-len(afterRankTag(s.before))]
	switch {
	case len(s.before) > 0 && bytes.HasPrefix(b, s.before):
		b = b[len(s.before):]
	case len(tag) > 0 && !bytes.HasPrefix(b, bytes.TrimRight(tag, " ")):
		return false
	}
	if ncclAt(b) >= 0 || len(bytes.TrimSpace(b)) == 0 {
		return false
	}
	s.awaits = 0
	s.w.at(&s.run).quoted(b)
	return true
}

// isTagged reports whether there is something for cleanLine to take off.
func isTagged(b []byte) bool {
	return bytes.IndexByte(b, 0x1b) >= 0 || bytes.Contains(b, []byte("<std")) || bytes.Contains(b, escapedByte)
}

// escapedByte begins what JSON puts in place of a byte: \u003e is >.
var escapedByte = []byte(`\u00`)

// cleanLine appends b to dst without terminal escapes and JSON's, and without the tags
// that Open MPI puts before each write, which may fall in the middle of a line:
// [1,0]<stdout>:partial[1,0]<stdout>:done (--tag-output), and in version 5
// [prterun-node1-123@1,3]<stdout>: .
func cleanLine(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch {
		case b[i] == 0x1b:
			i = escapeEnd(b, i)
		case b[i] == '\\' && bytes.HasPrefix(b[i:], escapedByte):
			c, err := strconv.ParseUint(string(b[min(i+4, len(b)):min(i+6, len(b))]), 16, 8)
			switch {
			case err != nil || c < ' ' && c != 0x1b:
				dst = append(dst, b[i])
				i++
			case c == 0x1b:
				i = escapeEnd(b, i+5)
			default:
				dst = append(bytes.TrimRight(dst, `\`), byte(c)) // nested JSON escapes the escape
				i += 6
			}
		case b[i] == '[':
			if n := tagLen(b[i:]); n > 0 {
				i += n
				if isTimeStamp(dst) {
					dst = dst[:0] // --timestamp-output puts it before the tag
				}
				// Open MPI 5 writes a space after the tag.
				if len(dst) == 0 && i < len(b) && b[i] == ' ' {
					i++
				}
				continue
			}
			dst = append(dst, b[i])
			i++
		default:
			dst = append(dst, b[i])
			i++
		}
	}
	return dst
}

// isTimeStamp reports whether b is the time that a launcher puts before a line:
// 'Sat Nov 21 07:11:11 2026', '2026-11-21 07:11:11'.
func isTimeStamp(b []byte) bool {
	if len(b) < 15 || len(b) > 40 || bytes.Count(b, []byte(":")) != 2 {
		return false
	}
	last := bytes.TrimRight(b, " ")
	return len(last) > 0 && last[len(last)-1] >= '0' && last[len(last)-1] <= '9' && bytes.IndexByte(b, '[') < 0
}

// escapeEnd returns the index after the escape sequence that starts at i: CSI
// ends at a byte from @ to ~, OSC at BEL or ESC \ (ECMA-48).
func escapeEnd(b []byte, i int) int {
	i++
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '[':
		for i++; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
		}
		return i
	case ']':
		for i++; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b {
				return min(i+2, len(b))
			}
		}
		return i
	default:
		return i + 1
	}
}

// tagLen returns the length of an Open MPI output tag at the start of b, or 0.
func tagLen(b []byte) int {
	limit := min(len(b), 300)
	closing := bytes.IndexByte(b[:limit], ']')
	if closing < 2 {
		return 0
	}
	comma := bytes.LastIndexByte(b[:closing], ',')
	if comma < 0 || !allDigits(b[comma+1:closing]) {
		return 0
	}
	rest := b[closing+1:]
	for _, tag := range []string{"<stdout>:", "<stderr>:", "<stddiag>:"} {
		if len(rest) >= len(tag) && string(rest[:len(tag)]) == tag {
			return closing + 1 + len(tag)
		}
	}
	return 0
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// Scan reads a finished log to its end and returns its verdict.
func Scan(r io.Reader) (Verdict, error) {
	w := New(Options{})
	if _, err := w.Source("").ReadFrom(r); err != nil {
		return Verdict{}, err
	}
	return w.Verdict(), nil
}
