package launcher

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"time"
)

// Prefixing says when lines carry the name of their source in front.
type Prefixing int

// The choices: from the moment on when a second source speaks, always, never.
const (
	PrefixMany Prefixing = iota
	PrefixAlways
	PrefixNever
)

// Merge writes what several sources write to one place, each in its own order. A
// source that speaks alone is passed on byte for byte. Where several do, none gets
// into another's line, unless that one stands still in it.
type Merge struct {
	// Broken, where set before the first write, is called once when nothing can
	// be written any more; what comes later is dropped.
	Broken func(error)

	mode Prefixing

	mu      sync.Mutex
	to      *sink
	err     error
	speaker *mergeSource   // the only one that has written until now; nil none, or many
	many    bool           // several have
	open    *mergeSource   // whose unfinished line is the last that was written; nil none
	waiting []*mergeSource // have something to write, in the order in which they came
}

// NewMerge merges into to.
func NewMerge(to io.Writer, mode Prefixing) *Merge {
	return &Merge{to: newSink(to), mode: mode}
}

// holdMost is how long text waits for the end of its own line, or of another
// source's that it would break: what a person does not notice.
const holdMost = 200 * time.Millisecond

// maxHeldLine is how much text waits for that.
const maxHeldLine = 1 << 20

// Source returns a writer whose lines begin with the prefix, where lines do. Its
// Write never fails. Close writes what is left of a last line.
func (m *Merge) Source(prefix string) io.WriteCloser {
	return &mergeSource{m: m, prefix: []byte(prefix), start: true}
}

type mergeSource struct {
	m      *Merge
	prefix []byte
	held   []byte
	start  bool // the next byte begins a line
	cr     bool // the last byte was a carriage return: it begins one, but for a line feed
	armed  bool // the timer runs
	timer  *time.Timer
	closed bool
}

func (s *mergeSource) Write(p []byte) (int, error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p) == 0 || m.err != nil {
		return len(p), nil
	}
	if !m.many && m.speaker != s {
		m.many, m.speaker = m.speaker != nil, s
	}
	s.held = append(s.held, p...)
	m.drain(s, len(s.held) > maxHeldLine)
	return len(p), nil
}

func (s *mergeSource) Close() error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	s.closed = true
	m.drain(s, true)
	return nil
}

// drain writes what s may write now; due: it has waited long enough.
func (m *Merge) drain(s *mergeSource, due bool) {
	alone := !m.many && m.mode != PrefixAlways
	if other := m.open; other != nil && other != s && len(s.held) > 0 {
		if !due && !other.closed {
			m.wait(s)
			return
		}
		if m.mode != PrefixNever {
			m.write([]byte{'\n'})
		}
		other.start, other.cr, m.open = true, false, nil
	}
	n := bytes.LastIndexByte(s.held, '\n') + 1
	if due || alone || m.open == s {
		n = len(s.held)
	}
	if n > 0 {
		m.put(s, s.held[:n])
		s.held = append(s.held[:0], s.held[n:]...)
		m.open = nil
		if !s.start {
			m.open = s
		}
	}
	if len(s.held) > 0 {
		m.wait(s)
	} else {
		m.forget(s)
	}
	for m.open == nil {
		i := slices.IndexFunc(m.waiting, func(o *mergeSource) bool { return bytes.IndexByte(o.held, '\n') >= 0 })
		if i < 0 {
			return
		}
		m.drain(m.waiting[i], false)
	}
}

// wait has s drained when its time is over.
func (m *Merge) wait(s *mergeSource) {
	if s.armed {
		return
	}
	s.armed = true
	m.waiting = append(m.waiting, s)
	s.timer = time.AfterFunc(holdMost, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.armed {
			m.forget(s)
			m.drain(s, true)
		}
	})
}

func (m *Merge) forget(s *mergeSource) {
	if s.armed {
		s.armed = false
		s.timer.Stop()
		m.waiting = slices.DeleteFunc(m.waiting, func(o *mergeSource) bool { return o == s })
	}
}

// put writes text of s, with the prefix where a line begins: behind a carriage
// return too, since what follows it stands in the place of the line.
func (m *Merge) put(s *mergeSource, text []byte) {
	prefix := s.prefix
	if m.mode == PrefixNever || m.mode == PrefixMany && !m.many {
		prefix = nil
	}
	var out bytes.Buffer
	out.Grow(len(text) + len(prefix))
	for len(text) > 0 {
		if s.start || s.cr && text[0] != '\n' {
			out.Write(prefix)
		}
		n := bytes.IndexAny(text, "\r\n") + 1
		if n == 0 {
			n = len(text)
		}
		out.Write(text[:n])
		s.start, s.cr = text[n-1] == '\n', text[n-1] == '\r'
		text = text[n:]
	}
	m.write(out.Bytes())
}

func (m *Merge) write(b []byte) {
	if m.err != nil {
		return
	}
	if m.err = m.to.write(b); m.err != nil && m.Broken != nil {
		m.Broken(m.err)
	}
}
