package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestOpinions asks the real libraries about the machine of the test: they may
// have nothing to say, but what they say has the form of the section.
func TestOpinions(t *testing.T) {
	var b bytes.Buffer
	if status := writeOpinions(&b); status != 0 {
		t.Fatalf("status %d", status)
	}
	text, ok := strings.CutPrefix(b.String(), "-- fabrun/opinions --\n")
	if !ok {
		t.Fatalf("no section: %q", b.String())
	}
	for line := range strings.Lines(text) {
		if words := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(words) != 4 || words[0] != "ghw" && words[0] != "rdmamap" {
			t.Errorf("line %q: want source, subject, attribute and value", line)
		}
	}
}
