package check

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

// Two hosts with the same rails under other names differ in the names alone, and
// what is sick is found on its own rail.
func TestDiffByRail(t *testing.T) {
	other := func(change func(*topology.Host)) topology.Host {
		h := healthy("n2")
		h.HCAs[0].Name, h.HCAs[1].Name = "rocep2", "rocep1"
		if change != nil {
			change(&h)
		}
		return h
	}
	ids := func(a, b topology.Host) string {
		var out []string
		for _, d := range Diff(a, b) {
			out = append(out, d.ID+" "+d.Subject+": "+d.A+" | "+d.B)
		}
		return strings.Join(out, "\n")
	}
	swapped := healthy("n2") // the same names, found in another order
	swapped.HCAs[0].Name, swapped.HCAs[1].Name = swapped.HCAs[1].Name, swapped.HCAs[0].Name
	for _, tt := range []struct {
		name string
		b    topology.Host
		want string
	}{
		{"alike", healthy("n2"), ""},
		{"other names", other(nil), "diff.hca-set RDMA devices: mlx5_0 mlx5_1 | rocep2 rocep1"},
		{"a slow rail under another name", other(func(h *topology.Host) { h.HCAs[1].Ports[0].RateGbps = ptr(100.0) }), "diff.hca-set RDMA devices: mlx5_0 mlx5_1 | rocep2 rocep1\ndiff.rate mlx5_1 / rocep1 port 1: 200 Gb/s | 100 Gb/s"},
		{"names the other way round", swapped, "diff.hca-set RDMA devices: mlx5_0 mlx5_1 | mlx5_1 mlx5_0"},
		{"other slots, the same subnets", other(func(h *topology.Host) { h.HCAs[0].PCI, h.HCAs[1].PCI = "0000:a0:00.0", "0000:b0:00.0" }), "diff.hca-set RDMA devices: mlx5_0 mlx5_1 | rocep2 rocep1"},
	} {
		if got := ids(healthy("n1"), tt.b); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}
