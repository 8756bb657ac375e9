package watch

import (
	"bytes"
	"io"
)

const (
	// bufferBytes is how much is read at once (measured: below 64 KB the
	// system calls show, above 256 KB the second cache level does).
	bufferBytes = 128 << 10
	// maxLineBytes bounds what is kept of a line whose end has not come. NCCL
	// cuts its lines at 1023 bytes (2.28 and older), UCX at a few thousand.
	maxLineBytes = 32 << 10
	// maxPrefixBytes is more than launchers put before a message.
	maxPrefixBytes = 256
	// excerptBytes is how far a file is searched for marks of left-out lines.
	excerptBytes = 1 << 20
)

// An anchorClass is one rare byte and the words it stands in. A line that
// holds none of the words cannot matter; looking for the byte costs one pass
// of a vector instruction over the buffer, and a hit two or three compares.
type anchorClass struct {
	rare  byte
	words []anchorWord
}

type anchorWord struct {
	text string
	at   int // offset of the rare byte in text
}

// anchorClasses is the explicit list of words that make a line worth reading;
// the first streamClasses of them are what standard output is searched for.
var anchorClasses = [...]anchorClass{
	{'N', []anchorWord{{"NCCL", 0}, {"NET/", 0}, {"No components were", 0}}},
	{'U', []anchorWord{{"UCX ", 0}, {"Using network", 0}, {"Using tcp btl", 0}}},
	{'M', []anchorWord{{"MPI", 0}, {"PML ", 1}, {"MVAPICH", 0}}},
	{'_', []anchorWord{{"[btl_tcp_", 4}, {"opal_common_ucx", 4}, {"pml_ucx", 3}, {"mpi_rank_", 3}}},
	// Only in whole logs: banners, headers, and what goes to standard error.
	{'L', []anchorWord{{"RCCL", 3}}},
	{'<', []anchorWord{{"<warn>", 0}, {"<info>", 0}}},
	{'#', []anchorWord{{"#  Rank ", 0}, {"#   Rank ", 0}}},
}

const streamClasses = 4

// Source is one stream or file of a job. Lines may come in any pieces. A
// Source is used by one goroutine at a time; the Sources of a Watcher may be
// used at once.
type Source struct {
	w     *Watcher
	name  string
	carry []byte // the unfinished line
	strip []byte // scratch for lines with escapes in them

	classes []anchorClass
}

// Source returns a new stream of the job; name is for diagnostics.
func (w *Watcher) Source(name string) *Source {
	return &Source{w: w, name: name, classes: anchorClasses[:]}
}

// Stream is a Source for a job's standard output, through which a great deal
// may go that is not for us: it looks for less, at twice the speed.
func (w *Watcher) Stream(name string) *Source {
	return &Source{w: w, name: name, classes: anchorClasses[:streamClasses]}
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
	return nil
}

// ReadFrom reads r to its end.
func (s *Source) ReadFrom(r io.Reader) (int64, error) {
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
	var room [len(anchorClasses)]int
	next := room[:len(s.classes)]
	for i := range next {
		next[i] = -1
	}
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
	crowd := false // the line before was one of NCCL
	for pos := 0; pos < len(p); {
		if crowd {
			// Lines of NCCL come in crowds: as long as the next one is one too,
			// it needs no search for the other words.
			line := p[pos:]
			line = line[:lineLen(line)]
			if at := bytes.Index(line, ncclMark); at >= 0 {
				s.line(line, at, tagged)
				pos += len(line) + 1
				continue
			}
		}
		hit := len(p)
		for i := range next {
			if next[i] < pos {
				next[i] = findAnchor(p, pos, &s.classes[i])
			}
			hit = min(hit, next[i])
			if i == 0 && hit < min(len(p), pos+maxPrefixBytes) && lastLineEnd(p[pos:hit]) < 0 {
				break // it is in the very next line: no other word can be in an earlier one
			}
		}
		if hit == len(p) {
			break
		}
		if !known {
			// What is rare is looked for once in the whole, not in every line.
			known = true
			returns = bytes.IndexByte(p, '\r') >= 0
			tagged = bytes.IndexByte(p, 0x1b) >= 0 || bytes.Contains(p, []byte("<std"))
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
		}
		if i := lastLineEnd(p[pos:hit]); i >= 0 {
			pos += i + 1
		}
		line := p[pos:]
		line = line[:hit-pos+lineLen(line[hit-pos:])]
		s.line(line, -1, tagged)
		pos += len(line) + 1
		crowd = bytes.Contains(line, ncclMark)
	}
}

// findAnchor returns where the next word of the class begins at or after from,
// or len(p).
func findAnchor(p []byte, from int, c *anchorClass) int {
	for i := from; i < len(p); {
		j := bytes.IndexByte(p[i:], c.rare)
		if j < 0 {
			break
		}
		at := i + j
		for k := range c.words {
			word := &c.words[k]
			b := at - word.at
			if b >= from && b+len(word.text) <= len(p) && string(p[b:b+len(word.text)]) == word.text {
				return b
			}
		}
		i = at + 1
	}
	return len(p)
}

// line cleans one line that may matter and hands it to the state; at is where
// "NCCL " stands in it, or -1 where nobody looked.
func (s *Source) line(b []byte, at int, tagged bool) {
	if tagged && (bytes.IndexByte(b, 0x1b) >= 0 || bytes.Contains(b, []byte("<std"))) {
		s.strip = cleanLine(s.strip[:0], b)
		b, at = s.strip, -1
	}
	s.w.st.line(b, at)
}

// cleanLine appends b to dst without terminal escapes and without the tags
// that Open MPI puts before each write, which may fall in the middle of a line:
// [1,0]<stdout>:partial[1,0]<stdout>:done (--tag-output), and in version 5
// [prterun-node1-123@1,3]<stdout>: .
func cleanLine(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch {
		case b[i] == 0x1b:
			i = escapeEnd(b, i)
		case b[i] == '[':
			if n := tagLen(b[i:]); n > 0 {
				i += n
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
