package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"fabrun/launcher/report"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	green  = "\x1b[1;32m"
	plain  = "\x1b[0m"
)

// paints are the words that say how bad it is, where a line begins with them.
var paints = []struct{ word, colour string }{
	{"error", red},
	{"warning", yellow},
	{"broken", red},
	{"degraded", yellow},
	{"good", green},
	{"FALLBACK", red},
	{"No fallback", green},
}

// paintedVerbs are those whose text begins lines with such words. run is not
// one of them: its streams are the job's.
var paintedVerbs = []string{"check", "diff", "lint", "plan", "report", "topo", "watch"}

// when is the value of --color.
type when string

func (w *when) String() string { return string(*w) }
func (w *when) Type() string   { return "when" }

func (w *when) Set(s string) error {
	if !slices.Contains([]string{"auto", "always", "never"}, s) {
		return errors.New("want auto, always or never")
	}
	*w = when(s)
	return nil
}

// paint puts colour into a verb's text where --color and the terminal want it.
func (a *app) paint(c *cobra.Command) {
	on := a.color == "always"
	if a.color == "auto" {
		f, ok := a.Stdout.(*os.File)
		kind, _ := a.Getenv("TERM")
		no, _ := a.Getenv("NO_COLOR") // https://no-color.org: any value but none
		on = ok && kind != "" && kind != "dumb" && no == "" && term.IsTerminal(int(f.Fd()))
	}
	if a.JSON || !slices.Contains(paintedVerbs, c.Name()) {
		return
	}
	if c.Name() != "watch" { // which passes a job's output on
		a.Stdout = report.PlainText(a.Stdout, a.Env)
	}
	if on {
		a.Stdout = &painter{w: a.Stdout}
	}
}

// painter colours the first word of lines that say how bad something is.
type painter struct {
	w    io.Writer
	held []byte // the beginning of a line
}

func (p *painter) Write(b []byte) (int, error) {
	p.held = append(p.held, b...)
	last := bytes.LastIndexByte(p.held, '\n') + 1
	if last == 0 {
		return len(b), nil
	}
	var out []byte
	for line := range bytes.Lines(p.held[:last]) {
		out = appendPainted(out, string(line))
	}
	p.held = append([]byte(nil), p.held[last:]...)
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flush writes a last line that has no end.
func (p *painter) flush() error {
	_, err := p.w.Write(appendPainted(nil, string(p.held)))
	p.held = nil
	return err
}

func appendPainted(out []byte, line string) []byte {
	for _, c := range paints {
		if rest, ok := strings.CutPrefix(line, c.word); ok && rest != "" && strings.ContainsRune(" :\n", rune(rest[0])) {
			return append(out, c.colour+c.word+plain+rest...)
		}
		// "job.sbatch:3: error: …", as compilers write it.
		if before, rest, ok := strings.Cut(line, ": "+c.word+": "); ok && line[0] != ' ' {
			return append(out, before+": "+c.colour+c.word+plain+": "+rest...)
		}
	}
	return append(out, line...)
}
