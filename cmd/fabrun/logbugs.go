package main

import (
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/watch"
	"fabrun/profiles"
)

// bugsOfLog are notes on known bugs of the library whose log was read. A log shows
// its version and devices; bugs that ask for more are not told.
func bugsOfLog(v watch.Verdict) []watch.Event {
	layers := map[string]int{}
	for _, d := range v.Devices {
		switch {
		case strings.HasSuffix(d, "/RoCE"):
			layers["ethernet"]++
		case strings.HasSuffix(d, "/IB"):
			layers["infiniband"]++
		}
	}
	if v.Version == "" {
		return nil
	}
	bugs, err := profiles.BugsOf(func(b profiles.Bug) bool { return b.Library == v.Library && envgen.HasBug(b, v.Version) })
	if err != nil {
		return nil // the test of the file says so
	}
	var out []watch.Event
	for _, b := range bugs {
		w := b.When
		if w.LinkLayer != "" && layers[w.LinkLayer] == 0 || len(v.Devices) < w.MinRails ||
			w.Driver != "" || w.Arch != "" || w.KernelFrom != "" || w.Set != "" || w.Bond || w.Container {
			continue
		}
		out = append(out, watch.Event{
			ID: watch.EventKnownBug, Severity: watch.SeverityNote,
			Text: "A known bug of version " + v.Version + ": " + b.Effect + ". " + strings.ToUpper(b.Advice[:1]) + b.Advice[1:] + " (" + b.Source + ").",
		})
	}
	return out
}
