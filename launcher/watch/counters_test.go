package watch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func u(n uint64) *uint64 { return &n }
func n(i int) *int       { return &i }

func TestJudgeCounters(t *testing.T) {
	two := []string{"n1", "n2"}
	host := func(name string, rdma, tcp *uint64) HostTraffic {
		return HostTraffic{Host: name, RDMABytes: rdma, TCPBytes: tcp}
	}
	for _, c := range []struct {
		name        string
		job         CounterJob
		hosts       []HostTraffic
		fallback    string // "true", "false", "null"
		intentional bool
	}{
		{
			"all by tcp",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", u(0), u(50<<20))},
			"true", false,
		},
		{
			"all by tcp, as asked",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true, WantsTCP: true},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", u(0), u(50<<20))},
			"true", true,
		},
		{
			"all by rdma",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(9<<30), u(2<<20)), host("n2", u(9<<30), u(2<<20))},
			"false", false,
		},
		{
			"rdma, and much storage by tcp to a host of the job",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(2<<30), u(4<<30)), host("n2", u(2<<30), u(4<<30))},
			"false", false,
		},
		{
			"one host",
			CounterJob{Hosts: two[:1], RDMAHosts: 1, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), u(50<<20))},
			"false", false,
		},
		{
			"hosts without rdma",
			CounterJob{Hosts: two, CouldRDMA: true},
			[]HostTraffic{host("n1", nil, u(50<<20)), host("n2", nil, u(50<<20))},
			"null", false,
		},
		{
			"one of two hosts without rdma",
			CounterJob{Hosts: two, RDMAHosts: 1, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", nil, u(50<<20))},
			"null", false,
		},
		{
			"gloo",
			CounterJob{Hosts: two, RDMAHosts: 2, GlooOnly: true},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", u(0), u(50<<20))},
			"null", false,
		},
		{
			"a program that knows no rdma",
			CounterJob{Hosts: two, RDMAHosts: 2},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", u(0), u(50<<20))},
			"null", false,
		},
		{
			"hardly any data",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), u(50<<10)), host("n2", u(0), u(50<<10))},
			"null", false,
		},
		{
			"kernel does not tell tcp",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), nil), host("n2", u(0), nil)},
			"null", false,
		},
		{
			"the kernel of one host tells, and its peer is the other",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), nil), host("n2", u(0), u(50<<20))},
			"true", false,
		},
		{
			"one of two hosts could not be looked at",
			CounterJob{Hosts: two, Unseen: two[1:], RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(0), u(24<<20))},
			"true", false,
		},
		{
			"devices without counters",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", nil, u(50<<20)), host("n2", nil, u(50<<20))},
			"null", false,
		},
		{
			"devices without counters, but no queue pair of the job",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", TCPBytes: u(50 << 20), QueuePairs: n(0)}, {Host: "n2", TCPBytes: u(50 << 20), QueuePairs: n(0)}},
			"true", false,
		},
		{
			"a neighbour's rdma does not excuse",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMABytes: u(9 << 30), TCPBytes: u(50 << 20), QueuePairs: n(0)}, {Host: "n2", RDMABytes: u(9 << 30), TCPBytes: u(50 << 20), QueuePairs: n(0)}},
			"true", false,
		},
		{
			"some ranks by tcp",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(100<<20), u(50<<30)), host("n2", u(100<<20), u(50<<30))},
			"null", false,
		},
		{
			"rdma only tried",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{host("n1", u(100<<10), u(50<<30)), host("n2", u(100<<10), u(50<<30))},
			"true", false,
		},
		{
			"storage over rdma does not excuse where the kernel tells whose it is",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMABytes: u(90 << 30), TCPBytes: u(50 << 30), QueuePairs: n(0)}, {Host: "n2", RDMABytes: u(90 << 30), TCPBytes: u(50 << 30), QueuePairs: n(0)}},
			"true", false,
		},
		{
			"storage by tcp to others",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMABytes: u(0), TCPBytes: u(0), OtherTCP: u(50 << 30)}, {Host: "n2", RDMABytes: u(0), TCPBytes: u(0), OtherTCP: u(50 << 30)}},
			"null", false,
		},
		{
			"soft-roce's own bytes on its netdev are no tcp",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMAPackets: u(90000), TCPBytes: u(10 << 10), Netdev: "rail0", NetdevBytes: u(90 << 20)}, {Host: "n2", RDMAPackets: u(90000), TCPBytes: u(10 << 10), Netdev: "rail0", NetdevBytes: u(90 << 20)}},
			"false", false,
		},
		{
			"gloo, although tcp was asked for",
			CounterJob{Hosts: two, RDMAHosts: 2, GlooOnly: true, WantsTCP: true},
			[]HostTraffic{host("n1", u(0), u(50<<20)), host("n2", u(0), u(50<<20))},
			"null", false,
		},
		{
			"tcp asked for on hosts without rdma",
			CounterJob{Hosts: two, WantsTCP: true, CouldRDMA: true},
			[]HostTraffic{host("n1", nil, u(50<<20)), host("n2", nil, u(50<<20))},
			"null", false,
		},
		{
			"a short job between two looks",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMABytes: u(0), TCPBytes: u(0), NetdevBytes: u(9 << 20)}, {Host: "n2", RDMABytes: u(0), TCPBytes: u(0), NetdevBytes: u(9 << 20)}},
			"null", false,
		},
		{
			"nobody was looked at",
			CounterJob{Hosts: two, Unseen: two, RDMAHosts: 2, CouldRDMA: true},
			nil, "null", false,
		},
		{
			"soft-roce counts packets only",
			CounterJob{Hosts: two, RDMAHosts: 2, CouldRDMA: true},
			[]HostTraffic{{Host: "n1", RDMAPackets: u(40000), TCPBytes: u(2 << 20)}, {Host: "n2", RDMAPackets: u(40000), TCPBytes: u(2 << 20)}},
			"false", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgeCounters(c.job, c.hosts)
			got := "null"
			if v.Fallback != nil {
				got = map[bool]string{true: "true", false: "false"}[*v.Fallback]
			}
			if got != c.fallback || v.Intentional != c.intentional {
				t.Errorf("fallback %s intentional %v, want %s %v (%s)", got, v.Intentional, c.fallback, c.intentional, v.Text)
			}
			accused := slices.ContainsFunc(v.Events, func(e Event) bool { return e.ID == "fallback" })
			if accused != (c.fallback == "true") {
				t.Errorf("event fallback %v for verdict %s", accused, got)
			}
			if v.Text == "" {
				t.Error("no sentence")
			}
			if len(c.job.Unseen) > 0 && !strings.Contains(v.Text, "n2 could not be looked at") {
				t.Errorf("does not name the host that was not seen: %s", v.Text)
			}
		})
	}
}

func TestTrafficByPeer(t *testing.T) {
	first := Sample{
		Host: "n1", Addresses: []string{"10.0.0.1"}, TCP: []PeerBytes{{Peer: "10.0.0.2", Tx: 100, Rx: 100, Fabric: 50}},
		Ports: []PortSample{{HCA: "mlx5_0", Port: 1, Counters: map[Counter]uint64{TxBytes: 1000, RxBytes: 0}}},
	}
	last := Sample{
		Host: "n1", Addresses: []string{"10.0.0.1"},
		TCP: []PeerBytes{{Peer: "10.0.0.1", Tx: 7, Rx: 7}, {Peer: "10.0.0.2", Tx: 1100, Rx: 600, Fabric: 850}, {Peer: "10.9.9.9", Tx: 5000, Fabric: 5000}},
		Ports: []PortSample{
			{HCA: "mlx5_0", Port: 1, Counters: map[Counter]uint64{TxBytes: 4000, RxBytes: 500}},
			{HCA: "mlx5_1", Port: 1, Counters: map[Counter]uint64{TxBytes: 10}},
		},
	}
	got := Traffic(first, last, map[string]bool{"10.0.0.1": true, "10.0.0.2": true})
	if *got.TCPBytes != 1500 || *got.OtherTCP != 5000 || *got.RDMABytes != 3510 || *got.TCPFabric != 800 {
		t.Errorf("tcp %d other %d rdma %d, want 1500 5000 3510", *got.TCPBytes, *got.OtherTCP, *got.RDMABytes)
	}
}

func TestUnexplainedData(t *testing.T) {
	job := CounterJob{Hosts: []string{"n1", "n2"}, Unseen: []string{"n2"}, RDMAHosts: 2, CouldRDMA: true}
	for name, c := range map[string]struct {
		host HostTraffic
		want string
	}{
		"unknown peers": {HostTraffic{Host: "n1", RDMABytes: u(0), TCPBytes: u(0), OtherTCP: u(24_000_000)}, "n1 moved 24.0 MB by TCP to addresses that are not known to be the job's, and nothing by RDMA."},
		"unseen sockets": {
			HostTraffic{Host: "n1", RDMABytes: u(0), TCPBytes: u(0), OtherTCP: u(0), Netdev: "rail0", NetdevBytes: u(24_000_000)},
			"Interface rail0 of n1 moved 24.0 MB in that time, by whom is not known.",
		},
		"nothing": {HostTraffic{Host: "n1", RDMABytes: u(0), TCPBytes: u(0), OtherTCP: u(0), NetdevBytes: u(100)}, "judge (TCP 0 B). (n2 could not be looked at.)"},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeCounters(job, []HostTraffic{c.host})
			if v.Fallback != nil || !strings.Contains(v.Text, c.want) {
				t.Errorf("fallback %v, %q lacks %q", v.Fallback, v.Text, c.want)
			}
		})
	}
}

func TestSamePlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		own   []string
		peers []string
		want  []string
	}{
		{"rails numbered alike", []string{"10.1.0.1/24", "10.1.4.1/24", "10.1.5.1/24"}, []string{"10.1.0.2", "10.1.0.1"}, []string{"10.1.4.2", "10.1.5.2"}},
		{"one rail numbered otherwise", []string{"10.1.0.1/24", "10.1.4.77/24"}, []string{"10.1.0.2"}, nil},
		{"networks of two sizes", []string{"10.1.0.1/24", "10.4.0.1/16"}, []string{"10.1.0.2"}, nil},
		{"a peer on no network of ours", []string{"10.1.0.1/24", "10.1.4.1/24"}, []string{"192.0.2.7"}, nil},
		{"prefix inside a byte", []string{"10.1.0.5/22", "10.9.4.5/22"}, []string{"10.1.3.9"}, []string{"10.9.7.9"}},
		{"ipv6", []string{"fd00:4::1/64", "fd00:5::1/64"}, []string{"fd00:4::2"}, []string{"fd00:5::2"}},
		{"families do not mix", []string{"10.1.0.1/24", "fd00:5::1/24"}, []string{"10.1.0.2", "::ffff:10.1.0.2"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var own []netip.Prefix
			for _, o := range c.own {
				own = append(own, netip.MustParsePrefix(o))
			}
			var peers []netip.Addr
			for _, p := range c.peers {
				peers = append(peers, netip.MustParseAddr(p))
			}
			var got []string
			for _, a := range SamePlace(own, peers) {
				got = append(got, a.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestPortEvents(t *testing.T) {
	h := HostTraffic{Host: "n1"}
	for i, tx := range []uint64{10 << 30, 11 << 30, 1 << 30, 0} {
		h.Ports = append(h.Ports, PortTraffic{
			HCA: "mlx5_" + string(rune('0'+i)), Port: 1, RateGbps: 400,
			Delta: map[Counter]uint64{TxBytes: tx, RxBytes: 0, TxPackets: tx / 4096},
		})
	}
	h.Ports[0].Delta[OutOfSeq] = 100000
	h.Ports[1].Delta[LinkDowned] = 2
	var ids []string
	for _, e := range portEvents(h) {
		ids = append(ids, e.ID)
		if e.ID == "rail-imbalance" && !strings.Contains(e.Text, "mlx5_2:1") {
			t.Errorf("imbalance names the wrong rail: %s", e.Text)
		}
	}
	if want := []string{"loss", "link-flap", "rail-imbalance"}; !slices.Equal(ids, want) {
		t.Errorf("events %v, want %v", ids, want)
	}
}

func TestStatOf(t *testing.T) {
	for _, c := range []struct {
		name     string
		want     Counter // "": not judged
		priority int
	}{
		{"rx_prio3_pause", PauseRx, 3},
		{"tx_prio0_pause", PauseTx, 0},
		{"rx_prio3_pause_duration", PauseRxUsec, 3},
		{"tx_prio7_pause_duration", PauseTxUsec, 7},
		{"rx_prio3_pause_transition", "", -1},
		{"rx_prio3_bytes", "", -1},
		{"rx_prio9_pause", "", -1},
		{"rx_pfc_ena_frames_pri3", PauseRx, 3},
		{"tx_pfc_ena_frames_pri5", PauseTx, 5},
		{"rx_pfc_frames", "", -1},
		{"rx_priority_3_xoff.nic", PauseRx, 3},
		{"rx_priority_3_xon.nic", "", -1},
		{"port.tx_priority_2_xoff", PauseTx, 2},
		{"port.rx_priority_2_xoff_rx", PauseRx, 2},
		{"port.rx_priority_2_xon_2_xoff", "", -1},
		{"rx_global_pause", GlobalPause, -1},
		{"tx_pause_storm_error_events", PauseStorm, -1},
		{"rx_discards_phy", Discards, -1},
		{"link_down_events_phy", LinkDowned, -1},
		{"rx_", "", -1},
		{"rx_prio", "", -1},
		{"", "", -1},
		{"rx_packets", "", -1},
	} {
		got, priority, ok := StatOf(c.name)
		if got != c.want || ok != (c.want != "") || priority != c.priority {
			t.Errorf("%s: %q %d %v, want %q %d", c.name, got, priority, ok, c.want, c.priority)
		}
	}
	sum := map[Counter]uint64{LinkDowned: 2}
	for name, v := range map[string]uint64{"rx_prio3_pause": 5, "rx_prio4_pause": 7, "link_down_events_phy": 2, "whatever": 9} {
		AddStat(sum, name, v)
	}
	want := map[Counter]uint64{LinkDowned: 2, PauseRx: 12, "pfc_pause_rx_prio3": 5, "pfc_pause_rx_prio4": 7}
	if d := cmp.Diff(want, sum); d != "" {
		t.Errorf("added up (-want +got):\n%s", d)
	}
}

func FuzzStatOf(f *testing.F) {
	f.Add("rx_prio3_pause")
	f.Add("port.tx_priority_2_xoff")
	f.Fuzz(func(t *testing.T, name string) {
		if c, priority, ok := StatOf(name); ok == (c == "") || priority > 7 {
			t.Errorf("%q: %q %d %v", name, c, priority, ok)
		}
	})
}

// TestWhatPortsComplainAbout: every counter of the list that is gathered is judged.
func TestWhatPortsComplainAbout(t *testing.T) {
	const packets = 10_000_000
	for _, c := range []struct {
		name  string
		delta map[Counter]uint64
		want  string // ID and severity; "": nothing
		text  string
	}{
		{"healthy", map[Counter]uint64{OutOfSeq: 0, LinkDowned: 0, CNPSent: 20, ECNMarked: 30}, "", ""},
		{"link fell", map[Counter]uint64{LinkDowned: 3}, "link-flap warning", "3 times"},
		{"link fell once", map[Counter]uint64{LinkDowned: 1}, "link-flap warning", "link once during"},
		{"a peer was given up", map[Counter]uint64{RetryFailed: 1}, "retries-exceeded warning", "gave up on a peer"},
		{"out of sequence", map[Counter]uint64{OutOfSeq: 500}, "loss warning", "500 out of sequence"},
		{"retransmits", map[Counter]uint64{Retransmits: 500}, "loss warning", "500 sequence errors"},
		{"time-outs", map[Counter]uint64{Timeouts: 50}, "loss warning", "50 time-outs"},
		{"one packet in ten millions", map[Counter]uint64{OutOfSeq: 1}, "", ""},
		{"discards", map[Counter]uint64{Discards: 9}, "discards warning", "discarded 9 packets"},
		{"marked", map[Counter]uint64{ECNMarked: 900_000, CNPSent: 800_000}, "congestion warning", "900000 packets came marked"},
		{"slowed down by CNPs", map[Counter]uint64{CNPHandled: 90_000}, "congestion warning", "90000 handled"},
		{"marked, and no CNP", map[Counter]uint64{ECNMarked: 900_000, CNPSent: 0}, "ecn-without-cnp warning", "congestion control is off"},
		{"marked, and CNPs are not counted", map[Counter]uint64{ECNMarked: 900_000}, "congestion warning", ""},
		{"paused now and then", map[Counter]uint64{PauseRx: 12, "pfc_pause_rx_prio3": 12, PauseRxUsec: 100}, "pfc-pause note", "priority 3"},
		{"paused for long", map[Counter]uint64{PauseRx: 12000, "pfc_pause_rx_prio3": 12000, PauseRxUsec: 30_000_000}, "pfc-pause warning", "for 30 % of the time"},
		{"pauses the switch for long", map[Counter]uint64{PauseTx: 12000, "pfc_pause_tx_prio3": 12000, PauseTxUsec: 30_000_000}, "pfc-pause-sent warning", "slows down others"},
		{"pause storm", map[Counter]uint64{PauseStorm: 1}, "pause-storm warning", ""},
		{"global pause", map[Counter]uint64{GlobalPause: 8}, "global-pause warning", "PFC is not on"},
		{"receiver not ready", map[Counter]uint64{NotReady: 50_000}, "receiver-not-ready warning", ""},
		{"damaged", map[Counter]uint64{CRCErrors: 4}, "link-errors warning", "cable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.delta[TxPackets] = packets
			events := portEvents(HostTraffic{Host: "n1", Seconds: 100, Ports: []PortTraffic{{HCA: "mlx5_0", Port: 1, Delta: c.delta}}})
			var got []string
			for _, e := range events {
				got = append(got, e.ID+" "+e.Severity)
				if !strings.Contains(e.Text, c.text) || !strings.Contains(e.Text, "mlx5_0:1") || e.Host != "n1" {
					t.Errorf("%+v lacks %q or its port", e, c.text)
				}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("events %q, want %q", got, c.want)
			}
		})
	}
}

// TestLinkOfTheNetdev: where the RDMA port does not count the falls of its link,
// its netdev does.
func TestLinkOfTheNetdev(t *testing.T) {
	at := func(port, netdev uint64) Sample {
		return Sample{
			Host: "n1", Ports: []PortSample{{HCA: "mlx5_0", Port: 1, Netdev: "ens1", Counters: map[Counter]uint64{LinkDowned: port}}},
			Netdevs: []NetdevSample{{Name: "ens1", Counters: map[Counter]uint64{LinkDowned: netdev}}, {Name: "eth0", Counters: map[Counter]uint64{LinkDowned: 40 * netdev}}},
		}
	}
	for _, c := range []struct {
		first, last Sample
		want        uint64
	}{{at(0, 1), at(0, 3), 2}, {at(1, 1), at(3, 3), 2}, {at(0, 5), at(0, 5), 0}} {
		if got := Traffic(c.first, c.last, nil).Ports[0].Delta[LinkDowned]; got != c.want {
			t.Errorf("%d falls, want %d", got, c.want)
		}
	}
}
