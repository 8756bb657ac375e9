package main

import (
	"os"

	"golang.org/x/term"

	"fabrun/launcher/report"
)

// newProgress is for a verb that may take long; nil under --quiet.
func (a *app) newProgress() *report.Progress {
	if a.Quiet {
		return nil
	}
	var width func() int
	if f, ok := a.Stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if kind, _ := a.Getenv("TERM"); kind != "dumb" {
			width = func() int {
				if w, _, err := term.GetSize(int(f.Fd())); err == nil {
					return w
				}
				return 80
			}
		}
	}
	return report.NewProgress(report.PlainText(a.Stderr, a.Env), width)
}
