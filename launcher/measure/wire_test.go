package measure

import (
	"fmt"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

func counted(t *testing.T, text string) Priorities {
	t.Helper()
	stats := map[string]int64{}
	for line := range strings.Lines(text) {
		var name string
		var v int64
		if _, err := fmt.Sscan(line, &name, &v); err != nil {
			t.Fatal(err)
		}
		stats[name] = v
	}
	return PriorityBytes(topology.Host{Netdevs: []topology.Netdev{{Name: "ens1", Ethtool: &topology.Ethtool{Stats: stats}}}}, "ens1")
}

func TestWireFindings(t *testing.T) {
	const gb = 1 << 30
	q := &profiles.QoS{RDMA: profiles.Class{DSCP: 26, Priority: ptr(3)}}
	in := func(prio int) (v [8]int64) { v[prio] = 40 * gb; v[0] += 1 << 20; return v }
	for dead, begins := range map[bool]string{true: "its cables", false: "compare its CPU governor"} {
		f := CulpritFindings([]Culprit{{Kind: "node", Hosts: []int{0}, Direction: Both, Dead: dead, Worst: Outcome{Verdict: Broken}}}, Naming{Hosts: []string{"n1"}}, DefaultExpect())[0]
		if !strings.Contains(f.Hint, "then "+begins) {
			t.Errorf("a node, dead %v: hint %q, want %q first", dead, f.Hint, begins)
		}
	}
	for _, tc := range []struct {
		name         string
		sent, got    [8]int64
		known        bool
		want, saying string
	}{
		{"right", in(3), in(3), true, "note qos.wire", "sent and received in priority 3"},
		{"unmarked", in(0), in(3), true, "error qos.wire", "sent in priority 0 (100 %)"},
		{"rewritten on the way", in(3), in(0), true, "error qos.wire", "sent in priority 3, received in priority 0"},
		{"another lossless one", in(4), in(4), true, "error qos.wire", "sent in priority 4 (100 %); received in priority 4 (100 %)"},
		{"a virtual function counts nothing", [8]int64{}, [8]int64{}, false, "note qos.wire", "no counters by priority"},
		{"counters stand still", [8]int64{}, [8]int64{}, true, "note qos.wire", "no counters by priority"},
		{"only its acknowledgements are elsewhere", in(3), [8]int64{0: 1 << 20}, true, "note qos.wire", "sent and received"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := WireFindings([]PortDelta{{Host: "n1", Port: "mlx5_0 port 1", Netdev: "ens1", Delta: Priorities{tc.sent, tc.got, tc.known}}}, q)
			if len(fs) != 1 || string(fs[0].Severity)+" "+fs[0].ID != tc.want || !strings.Contains(fs[0].Seen, tc.saying) {
				t.Errorf("got %+v", fs)
			}
		})
	}
	if fs := WireFindings([]PortDelta{{Delta: Priorities{in(0), in(0), true}}}, &profiles.QoS{RDMA: profiles.Class{DSCP: 26}}); fs != nil {
		t.Errorf("a plan without a priority is held against one: %+v", fs)
	}
}

func TestPriorityBytes(t *testing.T) {
	for _, tc := range []struct{ name, before, after string }{
		{"mlx5", "tx_prio3_bytes 100\nrx_prio3_bytes 7\ntx_prio3_pause 9\nrx_prio0_bytes 1\n", "tx_prio3_bytes 1100\nrx_prio3_bytes 57\ntx_prio3_pause 99\nrx_prio0_bytes 1\n"},
		{"bnxt_en", "tx_bytes_pri3 100\nrx_bytes_pri3 7\nrx_bytes_pri0 1\n", "tx_bytes_pri3 1100\nrx_bytes_pri3 57\nrx_bytes_pri0 1\n"},
	} {
		d := counted(t, tc.after).Since(counted(t, tc.before))
		if !d.Known || d.Sent != [8]int64{3: 1000} || d.Received != [8]int64{3: 50} {
			t.Errorf("%s: %+v", tc.name, d)
		}
		if back := counted(t, tc.before).Since(counted(t, tc.after)); back.Known {
			t.Errorf("%s: counters that went back are believed: %+v", tc.name, back)
		}
	}
	if p := PriorityBytes(topology.Host{}, "ens1"); p.Known {
		t.Error("counters of a netdev that is not there")
	}
}

// TestSuspects: the causes of a slow port are answered in their order, and
// what nobody can say is said to be unknown.
func TestSuspects(t *testing.T) {
	h := topology.Host{
		Name: "n1", NUMA: []topology.NUMANode{{ID: 0}, {ID: 1}},
		PCI:     []topology.PCIDevice{{Address: "0000:3b:00.0", Class: ptr(uint32(0x020000)), Link: topology.Link{Width: ptr(8), SpeedMTps: ptr(16000)}, LinkMax: topology.Link{Width: ptr(16), SpeedMTps: ptr(16000)}}},
		Netdevs: []topology.Netdev{{Name: "ens1", MTU: ptr(9000), DCB: &topology.DCB{Trust: "dscp", PFC: []int{3}, DSCPToPriority: map[int]int{26: 3}}}},
		HCAs: []topology.HCA{{Name: "mlx5_0", PCI: "0000:3b:00.0", NUMA: ptr(1), Driver: "mlx5", Ports: []topology.Port{{
			Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", Netdev: "ens1", RateGbps: ptr(200.0), RateTrusted: true, ActiveMTU: ptr(4096),
		}}}},
	}
	p := profiles.Profile{Fabric: profiles.Fabric{QoS: &profiles.QoS{Trust: "dscp", RDMA: profiles.Class{DSCP: 26, Priority: ptr(3)}, PFC: []int{3}}}}
	port := &TestPort{Host: "n1", HCA: "mlx5_0", Number: 1, NUMA: ptr(1), CPUs: []int{8, 9}, Netdev: "ens1"}
	got := Suspects(h, port, p, Outcome{Gbps: ptr(100.0), MTU: ptr(4096)})
	if want := "first suspect: PCIe (PCIe x8); ruled out: MTU (4096), PFC (on [3]), NUMA (pinned to node 1); not known: cable"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	h.Netdevs[0].DCB.PFC = []int{}
	got = Suspects(h, port, p, Outcome{Gbps: ptr(100.0), MTU: ptr(1024)})
	if !strings.HasPrefix(got, "first suspect: MTU (the connection's RDMA MTU is 1024), then PFC (") {
		t.Errorf("got %s", got)
	}
	if fs := CulpritFindings([]Culprit{{Kind: "port", Hosts: []int{0}, Direction: Both, Worst: Outcome{Gbps: ptr(100.0), Verdict: Broken}}}, Naming{
		Hosts: []string{"n1"}, Port: func(int, int) string { return "mlx5_0 port 1" }, Suspects: func(int, int, Outcome) string { return "first suspect: cable" },
	}, DefaultExpect()); fs[0].Severity != finding.Error || !strings.HasSuffix(fs[0].Why, "first suspect: cable") {
		t.Errorf("got %+v", fs)
	}
}

// TestCulpritWords: a failure is told in its own words, not by its ID.
func TestCulpritWords(t *testing.T) {
	for _, tc := range []struct {
		worst              Outcome
		id, seen, inTheEnd string
	}{
		{Outcome{Error: "perftest.completion-12", Said: "Failed status 12: wr_id 0 syndrom 0x81", Verdict: Broken}, "pair.port", "nothing came back", "GID, VLAN and MTU"},
		{Outcome{Error: "perftest.connect", Said: "Couldn't connect to n2:18515", Verdict: Broken}, "pair.port", "no server answered", "firewall"},
		{Outcome{Error: "perftest.memlock", Said: "Couldn't allocate MR", Verdict: Broken}, "pair.port", "Couldn't allocate MR", "memlock"},
		{Outcome{Error: "timeout", Verdict: Broken}, "pair.port", "no end within the deadline", ""},
		{Outcome{Gbps: ptr(20.0), HostGbps: ptr(190.0), OfGPU: true, Verdict: Broken}, "pair.gpu-staging", "20.0 Gb/s between GPU memories, 190.0", "peermem"},
	} {
		f := CulpritFindings([]Culprit{{Kind: "port", Hosts: []int{0}, Direction: Both, Worst: tc.worst}}, Naming{Hosts: []string{"n1"}, Port: func(int, int) string { return "mlx5_0 port 1" }}, DefaultExpect())[0]
		if f.ID != tc.id || !strings.Contains(f.Seen, tc.seen) || !strings.Contains(f.Hint, tc.inTheEnd) {
			t.Errorf("%+v:\n%+v", tc.worst, f)
		}
	}
}
