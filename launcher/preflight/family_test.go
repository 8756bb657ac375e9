package preflight

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
)

func lines(h topology.Host, p profiles.Profile, j Job) []string {
	var out []string
	for _, f := range HostFindings(h, p, j) {
		out = append(out, fmt.Sprintf("%s %s %s: %s; %s", f.Severity, f.ID, f.Subject, f.Seen, f.Hint))
	}
	return out
}

// What verbs programs need is wanted where verbs devices are used, and nowhere else.
func TestNeedsByFamily(t *testing.T) {
	for _, tc := range []struct {
		driver, class string
		plugin        bool
		want          []string // IDs that must be there
		not           []string
	}{
		{"mlx5", "infiniband", false, []string{"device.modules", "software.verbs"}, []string{"software.gpu-plugin"}},
		{"erdma", "infiniband", false, []string{"device.modules", "software.verbs"}, []string{"software.gpu-plugin"}},
		{"mana_ib", "infiniband", false, []string{"device.modules"}, []string{"software.gpu-plugin"}},
		{"efa", "infiniband", false, []string{"device.modules", "software.gpu-plugin"}, []string{"hca.gid", "mtu.netdev"}},
		{"efa", "infiniband", true, []string{"device.modules"}, []string{"software.gpu-plugin"}},
		{"cxi", "cxi", false, []string{"software.gpu-plugin"}, []string{"device.modules", "device.nodes", "software.verbs", "hca.gid", "mtu.netdev"}},
		{"cxi", "cxi", true, nil, []string{"software.gpu-plugin", "device.modules", "device.nodes", "software.verbs"}},
		{"hfi1", "infiniband", false, nil, []string{"device.modules", "device.nodes", "software.verbs", "software.gpu-plugin"}},
		{"qib", "infiniband", false, nil, []string{"device.modules", "device.nodes", "software.verbs"}},
	} {
		h := healthy("n1")
		h.Modules, h.DeviceNodes = []topology.Module{}, &topology.DeviceNodes{Names: []string{}}
		h.Software = append(h.Software, topology.Software{Kind: "verbs"}) // looked for, and not there
		if tc.plugin {
			h.Software = append(h.Software, topology.Software{Kind: "nccl-plugin", Detail: "AWS Libfabric"})
		}
		for i := range h.HCAs {
			h.HCAs[i].Driver, h.HCAs[i].Class, h.HCAs[i].CharDevice = tc.driver, tc.class, ""
			h.HCAs[i].Ports[0].GIDs, h.HCAs[i].Ports[0].GIDZero = []topology.GID{}, 256
		}
		got := lines(h, profiles.Profile{}, Job{})
		has := func(id string) bool {
			return slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, " "+id+" ") })
		}
		for _, id := range tc.want {
			if !has(id) {
				t.Errorf("%s (plugin %v): no %s in\n%s", tc.driver, tc.plugin, id, strings.Join(got, "\n"))
			}
		}
		for _, id := range tc.not {
			if has(id) {
				t.Errorf("%s (plugin %v): %s in\n%s", tc.driver, tc.plugin, id, strings.Join(got, "\n"))
			}
		}
	}
}

// Of a port that the job does not use nothing is wanted: it may have the MTU,
// the trust mode and the addresses of another network, or be switched off.
func TestOtherPortsAreNotJudged(t *testing.T) {
	sick := func() topology.Host {
		h := healthy("n1")
		p := &h.HCAs[1].Ports[0]
		p.GIDs, p.GIDZero, p.ActiveMTU, p.DefaultRoCE, p.GlobalTClass = []topology.GID{}, 256, ptr(1024), "IB/RoCE v1", ptr(96)
		h.HCAs[1].NUMA, h.PCI[1].Link.Width = nil, ptr(8)
		d := &h.Netdevs[1]
		d.MTU, d.DCB, d.Ethtool.GlobalPause = ptr(1500), &topology.DCB{Trust: "pcp", PFC: []int{}}, ptr(true)
		h.DeviceNodes.Names = []string{"uverbs0", "rdma_cm"}
		return h
	}
	about := func(h topology.Host, ports []string) []string {
		return slices.DeleteFunc(lines(h, plan26(), Job{Ports: ports}), func(l string) bool { return !strings.Contains(l, "mlx5_1") && !strings.Contains(l, "eth1") })
	}
	if got := about(sick(), []string{"mlx5_0:1"}); len(got) > 0 {
		t.Errorf("mlx5_1 is another network's:\n%s", strings.Join(got, "\n"))
	}
	if got := about(sick(), []string{"mlx5_0:1", "mlx5_1:1"}); len(got) < 6 {
		t.Errorf("mlx5_1 is the job's:\n%s", strings.Join(got, "\n"))
	}
	h := sick()
	h.HCAs[1].Ports[0].State = "DOWN"
	if got := about(h, []string{"mlx5_0:1"}); len(got) > 0 {
		t.Errorf("a port that is down and another network's:\n%s", strings.Join(got, "\n"))
	}
}

// Hosts in different InfiniBand partitions cannot talk, whatever else is right.
func TestAcrossPartitions(t *testing.T) {
	host := func(name string, keys ...uint16) topology.Host {
		return topology.Host{Name: name, HCAs: []topology.HCA{{Name: "mlx5_0", Driver: "mlx5", Ports: []topology.Port{{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand", PKeys: keys}}}}}
	}
	for _, tt := range []struct {
		name  string
		hosts []topology.Host
		want  string // host and severity of across.pkey; "" none
		diff  string // severity of the first two hosts' difference; "" none
	}{
		{"one partition", []topology.Host{host("a", 0x8012), host("b", 0x8012)}, "", ""},
		{"two partitions", []topology.Host{host("a", 0x8012), host("b", 0x8013)}, "error ", "error"},
		{"one of three", []topology.Host{host("a", 0x8012), host("b", 0x8012), host("c", 0x8013)}, "error c", ""},
		{"other tables, one partition in common", []topology.Host{host("a", 0x7fff, 0x8012), host("b", 0x8012)}, "", "note"},
		{"limited members only", []topology.Host{host("a", 0x7fff), host("b", 0x7fff)}, "error ", ""},
		{"not known", []topology.Host{host("a", 0x8012), host("b")}, "", ""},
	} {
		got := ""
		for _, f := range Across(tt.hosts, nil) {
			if f.ID == "across.pkey" {
				got += string(f.Severity) + " " + f.Host
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		diff := ""
		for _, d := range Diff(tt.hosts[0], tt.hosts[1]) {
			if d.ID == "diff.pkey" {
				diff = string(d.Severity)
			}
		}
		if diff != tt.diff {
			t.Errorf("%s: difference %q, want %q", tt.name, diff, tt.diff)
		}
	}
}
