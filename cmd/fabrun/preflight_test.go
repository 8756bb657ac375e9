package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/plan"
	"fabrun/topology/finding"
)

// TestPreflightGate: under --strict a job does not start when RDMA cannot carry
// it; what only makes it slow is no reason.
func TestPreflightGate(t *testing.T) {
	for _, tc := range []struct {
		id     string
		sev    finding.Severity
		strict bool
		stops  bool
	}{
		{"port.state", finding.Error, true, true},
		{"port.state", finding.Error, false, false},
		{"port.state", finding.Warning, true, false},
		{"pair.node", finding.Error, true, true},
		{"pair.port", finding.Warning, true, false},
		{"limits.memlock", finding.Error, true, true},
		{"gate.openmpi-no-ucx", finding.Error, true, true},
		{"qos.pfc", finding.Error, true, false},
		{"pcie.link", finding.Error, true, false},
	} {
		err := preflightGate(runOptions{jobOptions: jobOptions{strict: tc.strict}}, plan.Plan{Findings: []finding.Finding{{ID: tc.id, Severity: tc.sev, Host: "n1", Subject: "mlx5_0 port 1", Seen: "DOWN", Hint: "look"}}})
		var e *exitError
		if got := errors.As(err, &e); got != tc.stops || got && (e.Code != 122 || !strings.Contains(e.Error(), "n1: mlx5_0 port 1: DOWN")) {
			t.Errorf("%s %s, strict %v: %v", tc.sev, tc.id, tc.strict, err)
		}
	}
}

// TestProgress: a bar never leaves a rest on the terminal, and elsewhere only
// finished parts are lines.
func TestProgress(t *testing.T) {
	var plain bytes.Buffer
	p := &progress{w: &plain, now: time.Now}
	p.step("round 1 of 2", 3, 8)
	p.say("round 1 of 2: 8 tests, 1 slow or failing")
	p.clear()
	if got, want := plain.String(), "fabrun: round 1 of 2: 8 tests, 1 slow or failing\n"; got != want {
		t.Errorf("plain: got %q, want %q", got, want)
	}
	var tty bytes.Buffer
	now := time.Unix(1e9, 0)
	p = &progress{w: &tty, now: func() time.Time { return now }, width: func() int { return 60 }}
	p.step("round 1 of 2, 16 hosts", 0, 8)
	p.step("round 1 of 2, 16 hosts", 1, 8) // too soon to draw again
	now = now.Add(time.Second)
	p.step("round 1 of 2, 16 hosts", 4, 8)
	p.say("done")
	want := "\r\x1b[Kfabrun: round 1 of 2, 16 hosts [                   ] 0 of 8" +
		"\r\x1b[Kfabrun: round 1 of 2, 16 hosts [#########          ] 4 of 8" +
		"\r\x1b[Kfabrun: done\n"
	if got := tty.String(); got != want {
		t.Errorf("terminal: got\n%q, want\n%q", got, want)
	}
	for width := range 120 {
		if line := bar("looking at hosts", 7, 64, width); len([]rune(line)) >= max(width, 1) {
			t.Errorf("width %d: %q is %d wide", width, line, len([]rune(line)))
		}
	}
	var none *progress
	none.step("x", 1, 2)
	none.say("x")
	none.clear()
}
