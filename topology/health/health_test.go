package health

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fabrun/topology"
	"fabrun/topology/finding"
)

func rocePort(name, netdev string, change func(*topology.HCA, *topology.Port, *topology.Netdev)) func(*topology.Host) {
	return func(h *topology.Host) {
		c := topology.HCA{Name: name, Driver: "mlx5"}
		p := topology.Port{
			Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: new(200.0), RateTrusted: true, ActiveMTU: new(4096), Netdev: netdev,
			GIDs: []topology.GID{{Index: 3, Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Kind: topology.GIDIPv4, Type: "RoCE v2", Netdev: netdev}},
		}
		n := topology.Netdev{Name: netdev, OperState: "up", MTU: new(9000), DCB: &topology.DCB{Trust: "dscp", PFC: []int{3}, DSCPToPriority: map[int]int{26: 3, 0: 0}}}
		if change != nil {
			change(&c, &p, &n)
		}
		c.Ports = []topology.Port{p}
		h.HCAs, h.Netdevs = append(h.HCAs, c), append(h.Netdevs, n)
	}
}

func ibPort(name string, change func(*topology.Port)) func(*topology.Host) {
	return func(h *topology.Host) {
		p := topology.Port{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", RateGbps: new(400.0), RateTrusted: true, ActiveMTU: new(4096), LID: new(uint32(7)), SMLID: new(uint32(1)), PKeys: []uint16{0xffff}}
		change(&p)
		h.HCAs = append(h.HCAs, topology.HCA{Name: name, Ports: []topology.Port{p}})
	}
}

var plan26 = &QoS{Trust: "dscp", DSCP: 26, TC: 106, Priority: new(3), PFC: []int{3}, CNP: &topology.CNP{DSCP: new(48), Priority: new(6)}}

// TestPorts: each fault is one finding with one ID; what is not known is none.
func TestPorts(t *testing.T) {
	type (
		h = topology.Host
		c = topology.HCA
		p = topology.Port
		n = topology.Netdev
	)
	healthy := rocePort("mlx5_0", "ens1", nil)
	job := Expect{Chosen: true, QoS: plan26}
	for _, tc := range []struct {
		name  string
		e     Expect
		ports []func(*h)
		want  string
	}{
		{"healthy", job, []func(*h){healthy}, ""},
		{"down, the job's", job, []func(*h){healthy, rocePort("mlx5_1", "ens2", func(_ *c, p *p, n *n) { p.State, p.PhysState = "DOWN", "Polling" })}, "error hca.port-down mlx5_1 port 1"},
		{"down, of a list", Expect{}, []func(*h){healthy, rocePort("mlx5_1", "ens2", func(_ *c, p *p, _ *n) { p.State = "DOWN" })}, "warning hca.port-down mlx5_1 port 1"},
		{"down, the only one", Expect{}, []func(*h){rocePort("mlx5_1", "ens2", func(_ *c, p *p, _ *n) { p.State = "DOWN" })}, "error hca.port-down mlx5_1 port 1"},
		{"only the netdev's state is known", Expect{}, []func(*h){healthy, rocePort("mlx5_1", "ens2", func(_ *c, p *p, n *n) { p.State, p.PhysState, n.OperState = "", "", "down" })}, "warning hca.port-down mlx5_1 port 1"},
		{"no state is known", job, []func(*h){rocePort("mlx5_1", "ens2", func(_ *c, p *p, n *n) { p.State, p.PhysState, n.OperState = "", "", "" })}, ""},
		{"an IPoIB netdev that is down", Expect{}, []func(*h){ibPort("mlx5_0", func(p *p) { p.State, p.PhysState, p.Netdev = "", "", "ib0" }), func(h *h) { h.Netdevs = append(h.Netdevs, n{Name: "ib0", OperState: "down"}) }}, "note hca.state-unknown mlx5_0"},
		{"no subnet manager", job, []func(*h){ibPort("mlx5_0", func(p *p) { p.State, p.SMLID, p.LID = "INIT", new(uint32(0)), new(uint32(0xffff)) })}, "error ib.subnet-manager mlx5_0 port 1"},
		{"INIT, LIDs not known", Expect{}, []func(*h){ibPort("mlx5_0", func(p *p) { p.State, p.SMLID, p.LID = "INIT", nil, nil })}, "error ib.subnet-manager mlx5_0 port 1"},
		{"a limited member", job, []func(*h){ibPort("mlx5_0", func(p *p) { p.PKeys = []uint16{0x7fff} })}, "error ib.pkey mlx5_0 port 1"},
		{"100 of 200 Gb/s of the profile", Expect{RateGbps: new(200.0)}, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) { p.RateGbps = new(100.0) })}, "error hca.port-slow mlx5_0 port 1"},
		{"slower than most", job, []func(*h){healthy, rocePort("mlx5_1", "ens2", nil), rocePort("mlx5_2", "ens3", func(_ *c, p *p, _ *n) { p.RateGbps = new(100.0) })}, "error hca.port-slow mlx5_2 port 1"},
		{"two of the job that differ: neither is the rule", job, []func(*h){healthy, rocePort("mlx5_1", "ens2", func(_ *c, p *p, _ *n) { p.RateGbps = new(100.0) })}, ""},
		{"a rate that says nothing of the wire", Expect{Chosen: true, RateGbps: new(200.0)}, []func(*h){rocePort("rxe0", "eth0", func(_ *c, p *p, _ *n) { p.RateGbps, p.RateTrusted = new(2.5), false })}, ""},
		{"the other link layer", Expect{LinkLayer: "infiniband"}, []func(*h){healthy}, "error port.link-layer mlx5_0 port 1"},
		{"a small MTU", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, n *n) { n.MTU, p.ActiveMTU = new(1500), new(1024) })}, "warning mtu.netdev mlx5_0 port 1 (ens1)"},
		{"a small RDMA MTU below an unknown one", Expect{}, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, n *n) { n.MTU, p.ActiveMTU = nil, new(1024) })}, "warning hca.active-mtu mlx5_0 port 1"},
		{"no GID that is routed", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) {
			p.GIDs[0].Kind, p.GIDs[0].Addr = topology.GIDLinkLocal, netip.MustParseAddr("fe80::1")
		})}, "error hca.gid mlx5_0 port 1 (ens1)"},
		{"RoCE v1 alone", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) { p.GIDs[0].Type = "IB/RoCE v1" })}, "error hca.gid mlx5_0 port 1"},
		{"a hidden address proves nothing", Expect{}, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) { p.GIDs[0].Kind, p.GIDs[0].Addr = "", netip.Addr{} })}, ""},
		{"trust", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.Trust = "pcp" })}, "error qos.trust mlx5_0 port 1 (ens1)"},
		{"trust without a plan is nobody's fault", Expect{Chosen: true}, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.Trust = "pcp" })}, ""},
		{"trust without a plan, asked for", Expect{AnyQoS: true}, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.Trust = "pcp" })}, "warning qos.trust mlx5_0 port 1 (ens1)"},
		{"PFC", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.PFC = []int{} })}, "error qos.pfc mlx5_0 port 1 (ens1)"},
		{"PFC that was not read", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.PFC = nil })}, ""},
		{"the DSCP in another priority", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.DSCPToPriority[26] = 0 })}, "error qos.dscp-map mlx5_0 port 1 (ens1)"},
		{"the DSCP in no row", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { delete(n.DCB.DSCPToPriority, 26) })}, "error qos.dscp-map mlx5_0 port 1 (ens1)"},
		{"a map that was not read", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, _ *p, n *n) { n.DCB.DSCPToPriority = nil })}, ""},
		{"a port-wide class", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) { p.GlobalTClass = new(96) })}, "error qos.global-tclass mlx5_0 port 1"},
		{"CNPs", job, []func(*h){rocePort("mlx5_0", "ens1", func(_ *c, p *p, _ *n) { p.CNPs = &topology.CNP{DSCP: new(46)} })}, "warning qos.cnp mlx5_0 port 1 (ens1)"},
		{"a device that speaks no RoCE", job, []func(*h){rocePort("efa_0", "ens1", func(c *c, p *p, n *n) { c.Driver, p.GIDs, p.GIDZero, n.DCB.Trust = "efa", []topology.GID{}, 1, "pcp" })}, ""},
		{"a fragment without an HCA", Expect{QoS: plan26}, []func(*h){rocePort("", "ens1", func(c *c, p *p, n *n) {
			*c, *p = topology.HCA{}, topology.Port{Number: 1, LinkLayer: "Ethernet", Netdev: "ens1"}
			n.DCB.Trust = "pcp"
		})}, "error qos.trust ens1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			host := topology.Host{Name: "n1"}
			for _, add := range tc.ports {
				add(&host)
			}
			var got []string
			for _, f := range Ports(&host, nil, tc.e) {
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.ID, f.Subject))
			}
			if s := strings.Join(got, "; "); s != tc.want {
				t.Errorf("got %q, want %q", s, tc.want)
			}
		})
	}
}

// A port that is not meant is not judged.
func TestOthersAreNotJudged(t *testing.T) {
	host := topology.Host{}
	rocePort("mlx5_0", "ens1", func(_ *topology.HCA, p *topology.Port, _ *topology.Netdev) { p.State = "DOWN" })(&host)
	if fs := Ports(&host, func(topology.HCA, topology.Port) bool { return false }, Expect{Chosen: true}); len(fs) > 0 {
		t.Error(fs)
	}
}

func TestSum(t *testing.T) {
	bad := func(s finding.Severity) []finding.Finding { return []finding.Finding{{Severity: s}} }
	for _, tc := range []struct {
		fs   []finding.Finding
		told bool
		want Verdict
	}{
		{nil, true, Good},
		{nil, false, Unknown},
		{bad(finding.Note), true, Good},
		{bad(finding.Note), false, Unknown},
		{bad(finding.Warning), false, Degraded},
		{bad(finding.Error), true, Broken},
	} {
		if got := Sum(tc.fs, tc.told); got != tc.want {
			t.Errorf("Sum(%v, %v) = %s, want %s", tc.fs, tc.told, got, tc.want)
		}
	}
}
