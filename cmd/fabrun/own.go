package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"fabrun/launcher/report"
)

// own is where fabrun's own lines go.
func (a *app) own() io.Writer { return report.Own(a.stderr, a.env) }

// newProgress is for a verb that may take long; nil under --quiet.
func (a *app) newProgress() *report.Progress {
	if a.quiet {
		return nil
	}
	var width func() int
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if kind, _ := a.getenv("TERM"); kind != "dumb" {
			width = func() int {
				if w, _, err := term.GetSize(int(f.Fd())); err == nil {
					return w
				}
				return 80
			}
		}
	}
	return report.NewProgress(report.PlainText(a.stderr, a.env), width)
}
