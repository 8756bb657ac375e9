package report

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress: a bar never leaves a rest on the terminal, and elsewhere only
// finished parts are lines.
func TestProgress(t *testing.T) {
	var plain bytes.Buffer
	p := &Progress{w: &plain, now: time.Now}
	p.Step("round 1 of 2", 3, 8)
	p.Say("round 1 of 2: 8 tests, 1 slow or failing")
	p.Clear()
	if got, want := plain.String(), "fabrun: round 1 of 2: 8 tests, 1 slow or failing\n"; got != want {
		t.Errorf("plain: got %q, want %q", got, want)
	}
	var tty bytes.Buffer
	now := time.Unix(1e9, 0)
	p = &Progress{w: &tty, now: func() time.Time { return now }, width: func() int { return 60 }}
	p.Step("round 1 of 2, 16 hosts", 0, 8)
	p.Step("round 1 of 2, 16 hosts", 1, 8) // too soon to draw again
	now = now.Add(time.Second)
	p.Step("round 1 of 2, 16 hosts", 4, 8)
	p.Say("done")
	want := "\r\x1b[Kfabrun: round 1 of 2, 16 hosts [                   ] 0 of 8" +
		"\r\x1b[Kfabrun: round 1 of 2, 16 hosts [#########          ] 4 of 8" +
		"\r\x1b[Kfabrun: done\n"
	if got := tty.String(); got != want {
		t.Errorf("terminal: got\n%q, want\n%q", got, want)
	}
	for width := range 120 {
		if line := drawBar("looking at hosts", 7, 64, width); len([]rune(line)) >= max(width, 1) {
			t.Errorf("width %d: %q is %d wide", width, line, len([]rune(line)))
		}
	}
	var none *Progress
	none.Step("x", 1, 2)
	none.Say("x")
	none.Clear()
}
