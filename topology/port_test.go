package topology

import "testing"

func TestPortState(t *testing.T) {
	for _, tc := range []struct {
		state, phys string
		up, down    bool
		text        string
	}{
		{"ACTIVE", "LinkUp", true, false, "ACTIVE, LinkUp"},
		{"ACTIVE", "", true, false, "ACTIVE"},
		{"ACTIVE_DEFER", "LinkUp", true, false, "ACTIVE_DEFER, LinkUp"},
		{"ACTIVE", "a word of some driver", true, false, "ACTIVE, a word of some driver"},
		{"ACTIVE", "LinkErrorRecovery", false, true, "ACTIVE, LinkErrorRecovery"},
		{"INIT", "LinkUp", false, true, "INIT, LinkUp"},
		{"DOWN", "Disabled", false, true, "DOWN, Disabled"},
		{"", "Polling", false, true, "Polling"},
		{"", "LinkUp", false, false, "LinkUp"},
		{"", "", false, false, ""},
	} {
		p := Port{State: tc.state, PhysState: tc.phys}
		if p.Up() != tc.up || p.Down() != tc.down || p.StateText() != tc.text {
			t.Errorf("%q %q: up %v, down %v, %q", tc.state, tc.phys, p.Up(), p.Down(), p.StateText())
		}
	}
}
