package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Progress says on standard error how far a check is: a line that is redrawn
// on a terminal, a plain line per finished part elsewhere. A nil Progress says
// nothing.
type Progress struct {
	w     io.Writer
	now   func() time.Time
	width func() int // columns of the terminal; nil: it is none

	mu    sync.Mutex
	drawn bool
	last  time.Time
}

// NewProgress says it on w; width are the columns of the terminal that w is, nil
// where it is none.
func NewProgress(w io.Writer, width func() int) *Progress {
	return &Progress{w: w, now: time.Now, width: width}
}

// redraws a second: enough for the eye, little for a slow terminal.
const redrawEvery = 100 * time.Millisecond

// Step redraws the bar: "looking at hosts [####    ] 12 of 64". Elsewhere than
// on a terminal it says nothing.
func (p *Progress) Step(what string, done, total int) {
	if p == nil || p.width == nil || total <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if done < total && p.drawn && now.Sub(p.last) < redrawEvery {
		return
	}
	p.last, p.drawn = now, true
	fmt.Fprintf(p.w, "\r\x1b[K%s", drawBar(what, done, total, p.width()))
}

// drawBar fits one line of width columns, so that redrawing never leaves a rest.
func drawBar(what string, done, total, width int) string {
	count := fmt.Sprintf("%d of %d", done, total)
	room := width - 1 - len("fabrun: ") - utf8.RuneCountInString(what) - len(" [] ") - len(count)
	if room < 4 {
		line := []rune("fabrun: " + what + " " + count)
		return string(line[:max(0, min(len(line), width-1))])
	}
	room = min(room, 30)
	full := room * min(done, total) / total
	return fmt.Sprintf("fabrun: %s [%s%s] %s", what, strings.Repeat("#", full), strings.Repeat(" ", room-full), count)
}

// Say writes a finished part as a line of its own.
func (p *Progress) Say(format string, args ...any) {
	if p == nil {
		return
	}
	p.Clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "fabrun: %s\n", Printable(fmt.Sprintf(format, args...)))
}

// Clear takes the bar away, before something else is printed.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
