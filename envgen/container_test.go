package envgen

import (
	"strings"
	"testing"

	"fabrun/topology"
)

// TestContainerWithoutDevices: the devices that sysfs shows and the container was
// not given are told once, with what to give it.
func TestContainerWithoutDevices(t *testing.T) {
	h := manyHCAs("n1", 8)
	h.DeviceNodes = &topology.DeviceNodes{Names: []string{}}
	for i := range h.HCAs {
		h.HCAs[i].CharDevice = "uverbs" + string(rune('0'+i))
		h.HCAs[i].Class = "infiniband"
	}
	for kind, hint := range map[string]string{"": "", "docker": "--device=/dev/infiniband", "kubernetes": "device plugin"} {
		h.Container.Kind = kind
		res := Compute(Input{Hosts: []topology.Host{h}})
		n := 0
		for _, f := range res.Findings {
			if f.ID != "hca.none" {
				continue
			}
			n++
			if strings.Count(f.Seen, "/dev/infiniband") != 1 || !strings.Contains(f.Seen, "and 7 more ports") || !strings.Contains(f.Hint, hint) || (hint == "") != (f.Hint == "") {
				t.Errorf("%q: %q, hint %q", kind, f.Seen, f.Hint)
			}
		}
		if n != 1 || res.RDMA {
			t.Errorf("%q: %d findings, RDMA %v", kind, n, res.RDMA)
		}
	}
}

// TestContainerThatShowsNoDevice: whether its host has any is not known from within,
// so what to give it is said with that condition; outside of a container nothing is.
func TestContainerThatShowsNoDevice(t *testing.T) {
	for kind, want := range map[string]string{
		"":       "",
		"podman": "this is a container; where its host has RDMA, it is given: podman run --device=/dev/infiniband",
	} {
		h := topology.Host{Name: "n1"}
		h.Container.Kind = kind
		found := false
		for _, f := range Compute(Input{Hosts: []topology.Host{h}}).Findings {
			if f.ID == "hca.none" {
				found = true
				if !strings.HasPrefix(f.Hint, want) || (want == "") != (f.Hint == "") {
					t.Errorf("%q: hint %q", kind, f.Hint)
				}
			}
		}
		if !found {
			t.Errorf("%q: no hca.none", kind)
		}
	}
}
