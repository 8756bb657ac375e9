package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"fabrun/launcher/report"
)

// progress says on standard error how far a check is: a line that is redrawn
// on a terminal, a plain line per finished part elsewhere. A nil progress says
// nothing.
type progress struct {
	w     io.Writer
	now   func() time.Time
	width func() int // columns of the terminal; nil: it is none

	mu    sync.Mutex
	drawn bool
	last  time.Time
}

// newProgress is for a verb that may take long; nil under --quiet.
func (a *app) newProgress() *progress {
	if a.quiet {
		return nil
	}
	p := &progress{w: a.plainText(a.stderr), now: time.Now}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if kind, _ := a.getenv("TERM"); kind != "dumb" {
			p.width = func() int {
				if w, _, err := term.GetSize(int(f.Fd())); err == nil {
					return w
				}
				return 80
			}
		}
	}
	return p
}

// redraws a second: enough for the eye, little for a slow terminal.
const redrawEvery = 100 * time.Millisecond

// step redraws the bar: "looking at hosts [####    ] 12 of 64". Elsewhere than
// on a terminal it says nothing.
func (p *progress) step(what string, done, total int) {
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
	fmt.Fprintf(p.w, "\r\x1b[K%s", bar(what, done, total, p.width()))
}

// bar fits one line of width columns, so that redrawing never leaves a rest.
func bar(what string, done, total, width int) string {
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

// say writes a finished part as a line of its own.
func (p *progress) say(format string, args ...any) {
	if p == nil {
		return
	}
	p.clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "fabrun: %s\n", report.Printable(fmt.Sprintf(format, args...)))
}

// clear takes the bar away, before something else is printed.
func (p *progress) clear() {
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
