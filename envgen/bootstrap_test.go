package envgen

import (
	"net/netip"
	"testing"

	"fabrun/topology"
)

// The interface that answered by the name that was given is the one by which the
// hosts know each other: it takes no default route and no warning on every job.
func TestBootstrapAnswered(t *testing.T) {
	two := func(name, n string) topology.Host {
		h := manyHCAs(name, 1)
		h.Routes = nil
		h.Netdevs = append(h.Netdevs, netdev("mgmt0", "192.168.7."+n+"/24"))
		return h
	}
	reached := func(h topology.Host, a string) topology.Host {
		h.ReachedBy = netip.MustParseAddr(a)
		return h
	}
	for _, tt := range []struct {
		name  string
		hosts []topology.Host
		want  string
		warns bool
	}{
		{"both answered", []topology.Host{reached(two("n1", "1"), "192.168.7.1"), reached(two("n2", "2"), "192.168.7.2")}, "=mgmt0", false},
		{"this machine, which was not asked, and another", []topology.Host{two("n1", "1"), reached(two("n2", "2"), "192.168.7.2")}, "=mgmt0", false},
		{"they answered on the fabric", []topology.Host{reached(two("n1", "1"), "10.10.0.1")}, "=rdma0", false},
		{"nobody was asked", []topology.Host{two("n1", "1"), two("n2", "2")}, "", true},
		{"over a tunnel, which no interface tells", []topology.Host{reached(two("n1", "1"), "127.0.0.1")}, "", true},
	} {
		res := Compute(Input{Hosts: tt.hosts, Profile: load(t, "roce-dscp26"), Job: Job{UsesGPU: ptr(true)}})
		if v, _ := valueOf(res, 0, "NCCL_SOCKET_IFNAME"); v != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, v, tt.want)
		}
		if warns := findingIDs(res)["bootstrap.interface"] != ""; warns != tt.warns {
			t.Errorf("%s: warns %v, want %v", tt.name, warns, tt.warns)
		}
	}
}
