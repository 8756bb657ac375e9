package topology

import "testing"

func TestDCBNetdev(t *testing.T) {
	dcb := &DCB{}
	h := Host{Netdevs: []Netdev{
		{Name: "eth0", DCB: dcb},
		{Name: "eth0.100", Lower: "eth0"},
		{Name: "bond0", Slaves: []string{"eth0", "eth1"}},
		{Name: "eth1"},
		{Name: "lost.5", Lower: "lost"},
		{Name: "a", Lower: "b"},
		{Name: "b", Lower: "a"},
	}}
	for name, want := range map[string]string{
		"eth0": "eth0", "eth0.100": "eth0", "bond0": "eth0",
		"eth1": "eth1", "lost.5": "lost.5", // nothing below is known: its own settings are unknown
		"a": "a", // links in a circle end
	} {
		if got := h.DCBNetdev(name); got == nil || got.Name != want {
			t.Errorf("DCBNetdev(%q) = %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"", "absent"} {
		if got := h.DCBNetdev(name); got != nil {
			t.Errorf("DCBNetdev(%q) = %v, want nil", name, got)
		}
	}
}
