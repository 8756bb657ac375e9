package check

import (
	"strings"
	"testing"

	"fabrun/topology"
)

// Machines of one NVLink domain need IMEX channels, and one clique.
func TestNVLinkDomain(t *testing.T) {
	gpus := func(name, cluster string, clique int, state string, channels *int) topology.Host {
		h := healthy(name)
		for i := range h.GPUs {
			h.GPUs[i].Domain = &topology.NVLinkDomain{Cluster: cluster, Clique: clique, State: state}
		}
		h.IMEX = channels
		return h
	}
	const cluster = "abcd0000000000000000000000000001"
	for _, tt := range []struct {
		name string
		host topology.Host
		want string // part of what was seen; "" nothing said
	}{
		{"joined, with a channel", gpus("n1", cluster, 1, "completed", ptr(1)), ""},
		{"joined, no channel", gpus("n1", cluster, 1, "completed", ptr(0)), "no channel"},
		{"joined, channels not looked at", gpus("n1", cluster, 1, "completed", nil), ""},
		{"still joining", gpus("n1", cluster, 1, "in-progress", ptr(1)), "in-progress"},
		{"no domain of several machines", gpus("n1", strings.Repeat("0", 32), 0, "completed", ptr(0)), ""},
		{"a GPU that tells none", healthy("n1"), ""},
	} {
		got := ""
		for _, f := range HostFindings(tt.host, plan26(), Job{}) {
			if f.ID == "nvlink.domain" {
				got += f.Seen
			}
		}
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	differ := func(a, b topology.Host) bool {
		for _, f := range Across([]topology.Host{a, b}, nil) {
			if f.ID == "across.nvlink-domain" {
				return true
			}
		}
		return false
	}
	one := gpus("n1", cluster, 1, "completed", ptr(1))
	if differ(one, gpus("n2", cluster, 1, "completed", ptr(1))) || !differ(one, gpus("n2", cluster, 2, "completed", ptr(1))) || differ(one, healthy("n2")) {
		t.Error("cliques are not compared")
	}
}
