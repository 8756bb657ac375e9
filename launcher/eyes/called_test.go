package eyes

import (
	"testing"

	"fabrun/launcher/watch"
)

// TestCalled: one host has one name in all that is told of a job, the user's.
func TestCalled(t *testing.T) {
	for _, c := range []struct{ itself, byUser, host, want string }{
		{"gpu01.cluster", "10.1.4.1", "gpu01.cluster", "10.1.4.1"},
		{"gpu01.cluster", "10.1.4.1", "gpu01", "10.1.4.1"}, // as NCCL writes it
		{"gpu01", "gpu01.cluster", "gpu01", "gpu01.cluster"},
		{"gpu01", "gpu01", "gpu01", "gpu01"},
		{"gpu01", "10.1.4.1", "gpu02", "gpu02"}, // of another machine
		{"gpu01", "10.1.4.1", "gpu01b", "gpu01b"},
		{"gpu01", "10.1.4.1", "", ""},
		{"", "10.1.4.1", "", ""}, // before it has told its name
		{"gpu01", "", "gpu01", "gpu01"},
	} {
		as := called{c.itself, c.byUser}
		if got := as.event(watch.Event{Host: c.host}).Host; got != c.want {
			t.Errorf("%+v: %q is called %q, want %q", as, c.host, got, c.want)
		}
		if got := as.standings([]watch.Standing{{Host: c.host}})[0].Host; got != c.want {
			t.Errorf("%+v: %q waits as %q, want %q", as, c.host, got, c.want)
		}
	}
	if (called{}).standings(nil) != nil {
		t.Error("logs that go on are taken for silent ones")
	}
}
