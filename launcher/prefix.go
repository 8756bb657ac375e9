package launcher

import (
	"bytes"
	"io"
	"sync"
)

// Merge writes the lines of several sources to one place, each with the name of
// its source in front, and never a part of a line between two others.
type Merge struct {
	mu sync.Mutex
	to io.Writer
}

// NewMerge merges into to.
func NewMerge(to io.Writer) *Merge { return &Merge{to: to} }

// maxHeldLine is how much of a line without an end is held back.
const maxHeldLine = 64 << 10

// Source returns a writer whose lines begin with the prefix. Close writes what
// is left of a last line without an end.
func (m *Merge) Source(prefix string) io.WriteCloser {
	return &mergeSource{m: m, prefix: []byte(prefix)}
}

type mergeSource struct {
	m      *Merge
	prefix []byte
	held   []byte
}

func (s *mergeSource) Write(p []byte) (int, error) {
	s.held = append(s.held, p...)
	end := bytes.LastIndexByte(s.held, '\n') + 1
	if end == 0 && len(s.held) < maxHeldLine {
		return len(p), nil
	}
	if end == 0 {
		end = len(s.held)
	}
	err := s.put(s.held[:end])
	s.held = append(s.held[:0], s.held[end:]...)
	return len(p), err
}

func (s *mergeSource) Close() error {
	if len(s.held) == 0 {
		return nil
	}
	err := s.put(append(s.held, '\n'))
	s.held = nil
	return err
}

func (s *mergeSource) put(text []byte) error {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		out.Write(s.prefix)
		out.Write(line)
	}
	if out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
		out.WriteByte('\n')
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	_, err := s.m.to.Write(out.Bytes())
	return err
}
