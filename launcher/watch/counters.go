package watch

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Counter is a name under which counters of all drivers are kept.
type Counter string

// The counters that are judged. A counter that a device does not have is absent
// from its Sample, never zero.
const (
	TxBytes      Counter = "tx_bytes"
	RxBytes      Counter = "rx_bytes"
	TxPackets    Counter = "tx_packets"
	RxPackets    Counter = "rx_packets"
	OutOfSeq     Counter = "out_of_sequence"
	Retransmits  Counter = "retransmits"
	Timeouts     Counter = "ack_timeouts"
	NotReady     Counter = "receiver_not_ready"
	CNPSent      Counter = "cnp_sent"
	CNPHandled   Counter = "cnp_handled"
	ECNMarked    Counter = "ecn_marked"
	Discards     Counter = "discards"
	LinkDowned   Counter = "link_downed"
	PauseRx      Counter = "pfc_pause_rx"
	PauseTx      Counter = "pfc_pause_tx"
	RetryFailed  Counter = "retries_exceeded"
	SymbolErrors Counter = "symbol_errors"
	// Of the netdev's ethtool statistics. The two pause counters also come by
	// priority: "pfc_pause_rx_prio3".
	PauseRxUsec Counter = "pfc_pause_rx_usec"
	PauseTxUsec Counter = "pfc_pause_tx_usec"
	PauseStorm  Counter = "pause_storms"
	GlobalPause Counter = "global_pause"
	CRCErrors   Counter = "crc_errors"
)

// PortSample is one port of an RDMA device.
type PortSample struct {
	HCA       string             `json:"hca"`
	Port      int                `json:"port"`
	Netdev    string             `json:"netdev,omitempty"` // that it shares a wire with
	Active    bool               `json:"active"`
	State     string             `json:"state,omitempty"` // where it is not active: "DOWN", "INIT", "ARMED"
	RateGbps  float64            `json:"rate_gbps,omitempty"`
	Counters  map[Counter]uint64 `json:"counters"`
	Emulated  bool               `json:"emulated,omitempty"`    // Soft-RoCE: its bytes are in the netdev's too
	QueuePair *int               `json:"queue_pairs,omitempty"` // of the job's processes; nil: the kernel does not tell
	GIDs      []GID              `json:"gids"`                  // those that are not empty; nil: not read in this look
}

// GID is one entry of a port's table.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`            // as an IPv6 address
	Type   string `json:"type,omitempty"` // "RoCE v2", "IB/RoCE v1"
	Netdev string `json:"netdev,omitempty"`
}

// NetdevSample is one network interface.
type NetdevSample struct {
	Name     string             `json:"name"`
	Counters map[Counter]uint64 `json:"counters"`
}

// PeerBytes is what TCP connections of this host moved to and from one address
// since they were first seen.
type PeerBytes struct {
	Peer string `json:"peer"` // address
	Tx   uint64 `json:"tx_bytes"`
	Rx   uint64 `json:"rx_bytes"`
	// Fabric is how much of both went through a netdev that shares its wire with
	// an RDMA port.
	Fabric uint64 `json:"fabric_bytes,omitempty"`
}

// Sample is what the counters of one host said at one time.
type Sample struct {
	Time    time.Time      `json:"time"`
	Host    string         `json:"host"`
	Ports   []PortSample   `json:"ports"`
	Netdevs []NetdevSample `json:"netdevs"`
	// TCP is nil where the kernel does not tell.
	TCP []PeerBytes `json:"tcp"`
	// Addresses are this host's own.
	Addresses []string `json:"addresses,omitempty"`
	GPUUse    *float64 `json:"gpu_use,omitempty"` // 0 to 1, mean of the node's GPUs; nil unknown
	CPUUse    *float64 `json:"cpu_use,omitempty"` // 0 to 1, of all CPUs
}

// counterNames is how drivers call what is judged (file names under counters/
// and hw_counters/ of a port; kernel drivers/infiniband/core/sysfs.c, hw/mlx5/counters.c,
// hw/bnxt_re/hw_counters.c, hw/irdma/verbs.c, hw/ionic, hw/efa, sw/rxe/rxe_hw_counters.c).
var counterNames = map[string]struct {
	to     Counter
	factor uint64
}{
	"port_xmit_data": {TxBytes, 4}, "port_rcv_data": {RxBytes, 4}, // 4-byte words
	"port_xmit_packets": {TxPackets, 1}, "port_rcv_packets": {RxPackets, 1},
	"port_xmit_discards": {Discards, 1}, "link_downed": {LinkDowned, 1}, "symbol_error": {SymbolErrors, 1},

	"out_of_sequence": {OutOfSeq, 1}, "packet_seq_err": {Retransmits, 1}, "local_ack_timeout_err": {Timeouts, 1},
	"implied_nak_seq_err": {Retransmits, 1}, "roce_adp_retrans": {Retransmits, 1}, "roce_adp_retrans_to": {Timeouts, 1},
	"rnr_nak_retry_err": {NotReady, 1}, "np_cnp_sent": {CNPSent, 1}, "rp_cnp_handled": {CNPHandled, 1},
	"np_ecn_marked_roce_packets": {ECNMarked, 1}, "req_transport_retries_exceeded": {RetryFailed, 1},

	"sent_pkts": {TxPackets, 1}, "rcvd_pkts": {RxPackets, 1}, "out_of_seq_request": {OutOfSeq, 1},
	"completer_retry_err": {Retransmits, 1}, "rcvd_rnr_err": {NotReady, 1}, "retry_exceeded_err": {RetryFailed, 1},

	"tx_roce_only_bytes": {TxBytes, 1}, "rx_roce_only_bytes": {RxBytes, 1}, "tx_roce_only_pkts": {TxPackets, 1}, "rx_roce_only_pkts": {RxPackets, 1},
	"to_retransmits": {Timeouts, 1}, "seq_err_naks_rcvd": {Retransmits, 1}, "rnr_naks_rcvd": {NotReady, 1}, "max_retry_exceeded": {RetryFailed, 1},
	"tx_cnp_pkts": {CNPSent, 1}, "rx_cnp_pkts": {CNPHandled, 1}, "rx_ecn_marked_pkts": {ECNMarked, 1}, "rx_roce_discards": {Discards, 1},

	"cnpSent": {CNPSent, 1}, "cnpHandled": {CNPHandled, 1}, "RxECNMrkd": {ECNMarked, 1},
	"ip4InOctets": {RxBytes, 1}, "ip6InOctets": {RxBytes, 1}, "ip4OutOctets": {TxBytes, 1}, "ip6OutOctets": {TxBytes, 1},
	"ip4InPkts": {RxPackets, 1}, "ip6InPkts": {RxPackets, 1}, "ip4OutPkts": {TxPackets, 1}, "ip6OutPkts": {TxPackets, 1},
	"ip4InDiscards": {Discards, 1}, "ip6InDiscards": {Discards, 1},
	"RetransSegs": {Retransmits, 1}, "tcpRetransSegs": {Retransmits, 1}, "Nak Sequence Error": {Retransmits, 1},
	"RTO": {Timeouts, 1}, "Rcvd Out of order packets": {OutOfSeq, 1}, "RNR received": {NotReady, 1},

	"tx_rdma_ucast_bytes": {TxBytes, 1}, "rx_rdma_ucast_bytes": {RxBytes, 1}, "tx_rdma_ucast_pkts": {TxPackets, 1}, "rx_rdma_ucast_pkts": {RxPackets, 1},
	"tx_rdma_cnp_pkts": {CNPSent, 1}, "rx_rdma_cnp_pkts": {CNPHandled, 1}, "rx_rdma_ecn_pkts": {ECNMarked, 1},
	"req_rx_pkt_seq_err": {Retransmits, 1}, "tx_rdma_ack_timeout": {Timeouts, 1}, "req_tx_retry_excd_err": {RetryFailed, 1},

	"tx_bytes": {TxBytes, 1}, "rx_bytes": {RxBytes, 1}, "tx_pkts": {TxPackets, 1}, "rx_pkts": {RxPackets, 1},
	"retrans_pkts": {Retransmits, 1}, "rx_drops": {Discards, 1},
}

// CounterOf returns what a driver's counter stands for, and the factor of its unit.
func CounterOf(name string) (Counter, uint64, bool) {
	c, ok := counterNames[name]
	return c.to, c.factor, ok
}

// StatOf returns what an ethtool statistic of a netdev stands for; priority is -1
// where it is none of one (mlx5 core/en_stats.c, bnxt/bnxt_ethtool.c,
// ice/ice_ethtool.c, i40e/i40e_ethtool.c). The frames of a pause that ends (xon)
// do not count.
func StatOf(name string) (c Counter, priority int, ok bool) {
	switch name {
	case "tx_pause_storm_error_events", "tx_pause_storm_warning_events":
		return PauseStorm, -1, true
	case "rx_global_pause", "tx_global_pause":
		return GlobalPause, -1, true
	case "rx_discards_phy":
		return Discards, -1, true
	case "rx_crc_errors_phy", "rx_fcs_err_frames":
		return CRCErrors, -1, true
	case "link_down_events_phy":
		return LinkDowned, -1, true
	}
	name = strings.TrimPrefix(name, "port.")
	way, rest, ok := strings.Cut(name, "_")
	if !ok || way != "rx" && way != "tx" {
		return "", -1, false
	}
	for _, lead := range []string{"priority_", "prio", "pfc_ena_frames_pri"} {
		tail, found := strings.CutPrefix(rest, lead)
		if !found || tail == "" || tail[0] < '0' || tail[0] > '7' {
			continue
		}
		priority = int(tail[0] - '0')
		frames, usec := PauseRx, PauseRxUsec
		if way == "tx" {
			frames, usec = PauseTx, PauseTxUsec
		}
		switch lead + tail[1:] {
		case "prio_pause", "pfc_ena_frames_pri", "priority__xoff", "priority__xoff.nic", "priority__xoff_rx", "priority__xoff_tx":
			return frames, priority, true
		case "prio_pause_duration":
			return usec, priority, true
		}
		return "", -1, false
	}
	return "", -1, false
}

// AddStat adds an ethtool statistic to the counters of a port.
func AddStat(to map[Counter]uint64, name string, value uint64) {
	c, priority, ok := StatOf(name)
	if !ok {
		return
	}
	if c == LinkDowned {
		// The device may count the same event itself.
		to[c] = max(to[c], value)
		return
	}
	to[c] += value
	if priority >= 0 && (c == PauseRx || c == PauseTx) {
		to[c.of(priority)] += value
	}
}

// of is the counter of one priority.
func (c Counter) of(priority int) Counter { return c + "_prio" + Counter(rune('0'+priority)) }

// CounterJob is what has to be known of a job to judge its counters.
type CounterJob struct {
	Hosts      []string
	Unseen     []string // those of Hosts at whose counters nobody could look
	RDMAHosts  int      // hosts with a usable RDMA port
	CouldRDMA  bool     // its libraries can (MPI, UCX, NCCL; not Gloo)
	WantsTCP   bool     // the user asked for TCP
	GlooOnly   bool
	LogVerdict *bool // what the logs say of a fallback; nil nothing
}

// HostTraffic is what one host moved while the job ran.
type HostTraffic struct {
	Host        string        `json:"host"`
	RDMABytes   *uint64       `json:"rdma_bytes"`       // sent and received; nil: the devices do not count bytes
	RDMAPackets *uint64       `json:"rdma_packets"`     // nil: no counters
	TCPBytes    *uint64       `json:"tcp_bytes"`        // to and from hosts of the job; nil: the kernel does not tell
	TCPFabric   *uint64       `json:"tcp_fabric_bytes"` // of TCPBytes, through netdevs that share a wire with an RDMA port
	OtherTCP    *uint64       `json:"other_tcp_bytes"`
	QueuePairs  *int          `json:"queue_pairs"`
	Seconds     float64       `json:"seconds"` // between the two looks
	Netdev      string        `json:"busiest_netdev,omitempty"`
	NetdevBytes *uint64       `json:"busiest_netdev_bytes"` // sent and received, by whomever
	Ports       []PortTraffic `json:"ports"`
}

// PortTraffic is what one port did while the job ran.
type PortTraffic struct {
	HCA      string             `json:"hca"`
	Port     int                `json:"port"`
	RateGbps float64            `json:"rate_gbps,omitempty"`
	Delta    map[Counter]uint64 `json:"delta"`
}

// CounterVerdict is what the counters say.
type CounterVerdict struct {
	Fallback    *bool         `json:"fallback"` // nil: they cannot tell
	Intentional bool          `json:"intentional"`
	Cause       string        `json:"cause,omitempty"`
	Text        string        `json:"text"`
	Hosts       []HostTraffic `json:"hosts"`
	Events      []Event       `json:"events"`
}

// What the judgement goes by.
const (
	// minTCPBytes is more than start-up, and too little to matter.
	minTCPBytes = 1 << 20
	// rdmaShare of the TCP bytes over RDMA means that RDMA is in use: what goes
	// over TCP then is something else.
	rdmaShare = 0.1
	// someRDMA is more than a library moves to find out whether it likes a device.
	someRDMA = 16 << 20
	// packetBytes stands for a packet of a device that counts no bytes.
	packetBytes = 1024
)

// Traffic compares the first and the last sample of one host. peers are the
// addresses of the job's hosts.
func Traffic(first, last Sample, peers map[string]bool) HostTraffic {
	t := HostTraffic{Host: last.Host, Ports: []PortTraffic{}, Seconds: max(0, last.Time.Sub(first.Time).Seconds())}
	idle := map[string]NetdevSample{}
	for _, d := range first.Netdevs {
		idle[d.Name] = d
	}
	before := map[string]PortSample{}
	for _, p := range first.Ports {
		before[fmt.Sprintf("%s:%d", p.HCA, p.Port)] = p
	}
	for _, p := range last.Ports {
		b := before[fmt.Sprintf("%s:%d", p.HCA, p.Port)]
		delta := map[Counter]uint64{}
		for c, v := range p.Counters {
			// A device that came during the job counts from 0; one that was
			// reset too.
			if was := b.Counters[c]; was <= v {
				delta[c] = v - was
			} else {
				delta[c] = v
			}
		}
		// Many RoCE ports do not count their own link's falls; the netdev does.
		for _, d := range last.Netdevs {
			if b, ok := idle[d.Name]; ok && d.Name == p.Netdev {
				if n := sub(d.Counters[LinkDowned], b.Counters[LinkDowned]); n > delta[LinkDowned] {
					delta[LinkDowned] = n
				}
			}
		}
		t.Ports = append(t.Ports, PortTraffic{HCA: p.HCA, Port: p.Port, RateGbps: p.RateGbps, Delta: delta})
		add(&t.RDMABytes, delta, TxBytes, RxBytes)
		add(&t.RDMAPackets, delta, TxPackets, RxPackets)
		if p.QueuePair != nil {
			n := *p.QueuePair
			if t.QueuePairs != nil {
				n += *t.QueuePairs
			}
			t.QueuePairs = &n
		}
	}
	for _, d := range last.Netdevs {
		b, ok := idle[d.Name]
		if !ok {
			continue
		}
		n := sub(d.Counters[TxBytes], b.Counters[TxBytes]) + sub(d.Counters[RxBytes], b.Counters[RxBytes])
		if t.NetdevBytes == nil || n > *t.NetdevBytes {
			t.Netdev, t.NetdevBytes = d.Name, &n
		}
	}
	if last.TCP != nil {
		was := map[string]PeerBytes{}
		for _, p := range first.TCP {
			was[p.Peer] = p
		}
		own := map[string]bool{}
		for _, a := range last.Addresses {
			own[a] = true
		}
		var job, fabric, other uint64
		for _, p := range last.TCP {
			w := was[p.Peer]
			n := sub(p.Tx, w.Tx) + sub(p.Rx, w.Rx)
			switch {
			case own[p.Peer]:
			case peers[p.Peer]:
				job += n
				fabric += sub(p.Fabric, w.Fabric)
			default:
				other += n
			}
		}
		t.TCPBytes, t.TCPFabric, t.OtherTCP = &job, &fabric, &other
	}
	return t
}

func sub(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return a - b
}

func add(to **uint64, delta map[Counter]uint64, cs ...Counter) {
	for _, c := range cs {
		if v, ok := delta[c]; ok {
			n := v
			if *to != nil {
				n += **to
			}
			*to = &n
		}
	}
}

// JudgeCounters says whether a job's data went over TCP although it could have
// gone over RDMA. It accuses only where every exception is excluded: one host,
// hosts without RDMA, a library that knows no RDMA, storage and other traffic,
// too little data, RDMA in use.
func JudgeCounters(job CounterJob, hosts []HostTraffic) CounterVerdict {
	v := CounterVerdict{Hosts: hosts, Events: []Event{}}
	if v.Hosts == nil {
		v.Hosts = []HostTraffic{}
	}
	for _, h := range hosts {
		v.Events = append(v.Events, portEvents(h)...)
	}
	yes, no := true, false
	var tcp, onFabric, rdma uint64
	tcpKnown, rdmaKnown := false, len(hosts) > 0
	noQueues := len(hosts) > 0 // every host tells, and no process of the job has a queue
	for _, h := range hosts {
		// Each connection between two hosts is on both: one that tells is enough.
		if h.TCPBytes != nil {
			tcpKnown = true
			tcp += *h.TCPBytes
			if h.TCPFabric != nil {
				onFabric += *h.TCPFabric
			}
		}
		switch {
		case h.RDMABytes != nil:
			rdma += *h.RDMABytes
		case h.RDMAPackets != nil:
			rdma += *h.RDMAPackets * packetBytes
		default:
			rdmaKnown = false
		}
		if h.QueuePairs == nil || *h.QueuePairs > 0 {
			noQueues = false
		}
	}
	unseen := unseenText(job.Unseen)
	note := func(text string) CounterVerdict {
		v.Text = text + unseen
		return v
	}
	switch {
	case len(job.Hosts) < 2:
		v.Fallback = &no
		return note("The job ran on one host.")
	case job.GlooOnly:
		return note("NCCL was never started, so the job talks by Gloo, which knows TCP only.")
	case job.RDMAHosts < len(job.Hosts):
		if job.RDMAHosts == 0 {
			return note("No host of the job has a usable RDMA port.")
		}
		return note(fmt.Sprintf("Only %d of %d hosts have a usable RDMA port.", job.RDMAHosts, len(job.Hosts)))
	case !tcpKnown:
		return note("The kernel does not tell TCP bytes by peer, so counters cannot judge.")
	case rdmaKnown && rdma > 0 && float64(rdma) >= rdmaShare*float64(tcp) && !noQueues:
		v.Fallback = &no
		return note(fmt.Sprintf("RDMA carried %s, TCP between the job's hosts %s.", Bytes(rdma), Bytes(tcp)))
	case tcp < minTCPBytes:
		return note(fmt.Sprintf("Too little data went between the job's hosts to judge (TCP %s).", Bytes(tcp)) + unexplained(hosts, rdma))
	case rdmaKnown && rdma >= someRDMA && !noQueues:
		text := fmt.Sprintf("Most data between the job's hosts went over TCP (%s%s; %s over RDMA): some ranks do not take the RDMA devices, or these hosts serve files to each other.", Bytes(tcp), whereText(tcp, onFabric), Bytes(rdma))
		v.Events = append(v.Events, Event{ID: "mostly-tcp", Severity: SeverityWarning, Text: text})
		return note(text)
	case !rdmaKnown && !noQueues:
		return note(fmt.Sprintf("TCP carried %s between the job's hosts; the RDMA devices have no counters, so counters cannot judge.", Bytes(tcp)))
	case !job.CouldRDMA && !job.WantsTCP:
		return note(fmt.Sprintf("TCP carried %s between the job's hosts; nothing shows that the program can use RDMA.", Bytes(tcp)))
	}
	v.Fallback, v.Cause, v.Intentional = &yes, CauseCounter, job.WantsTCP
	if noQueues {
		rdma = 0
	}
	v.Text = fmt.Sprintf("%s went over TCP between the job's own hosts%s and %s over RDMA: the library did not take the RDMA devices (Open MPI: pml=ucx; UCX: UCX_NET_DEVICES; NCCL: see its log).", Bytes(tcp), whereText(tcp, onFabric), nothingOr(rdma))
	if job.WantsTCP {
		v.Text = fmt.Sprintf("%s went over TCP between the job's own hosts, as was asked for.", Bytes(tcp))
	}
	v.Text += unseen
	sev := SeverityError
	if v.Intentional {
		sev = SeverityWarning
	}
	v.Events = append(v.Events, Event{ID: "fallback", Severity: sev, Cause: CauseCounter, Text: v.Text})
	return v
}

// whereText says that TCP went over the fabric itself, where it did.
func whereText(tcp, onFabric uint64) string {
	switch s := share(onFabric, tcp); {
	case s > 0.9:
		return " (through the RDMA ports' own interfaces)"
	case onFabric == 0:
		return ""
	default:
		return fmt.Sprintf(" (%s of it through the RDMA ports' own interfaces)", Bytes(onFabric))
	}
}

// unseenText names the hosts at which nobody could look.
func unseenText(hosts []string) string {
	switch n := len(hosts); {
	case n == 0:
		return ""
	case n <= 3:
		return fmt.Sprintf(" (%s could not be looked at.)", strings.Join(hosts, ", "))
	default:
		return fmt.Sprintf(" (%s and %d more hosts could not be looked at.)", hosts[0], n-1)
	}
}

// unexplained tells of data that no connection between known hosts accounts
// for: TCP to addresses that may or may not be the job's, or else what an
// interface moved while connections came and went unseen.
func unexplained(hosts []HostTraffic, rdma uint64) string {
	var other, dev *HostTraffic
	for i, h := range hosts {
		if h.OtherTCP != nil && *h.OtherTCP >= minTCPBytes && (other == nil || *h.OtherTCP > *other.OtherTCP) {
			other = &hosts[i]
		}
		if h.NetdevBytes != nil && *h.NetdevBytes >= minTCPBytes && (dev == nil || *h.NetdevBytes > *dev.NetdevBytes) {
			dev = &hosts[i]
		}
	}
	switch {
	case rdma > 0:
		return ""
	case other != nil:
		return fmt.Sprintf(" %s moved %s by TCP to addresses that are not known to be the job's, and nothing by RDMA.", other.Host, Bytes(*other.OtherTCP))
	case dev != nil:
		return fmt.Sprintf(" Interface %s of %s moved %s in that time, by whom is not known.", dev.Netdev, dev.Host, Bytes(*dev.NetdevBytes))
	}
	return ""
}

func nothingOr(n uint64) string {
	if n == 0 {
		return "nothing"
	}
	return "only " + Bytes(n)
}

// Bytes writes a number of bytes for a person: "1.2 GB".
func Bytes(n uint64) string {
	f := float64(n)
	for _, u := range []string{"B", "kB", "MB", "GB", "TB"} {
		if f < 1000 || u == "TB" {
			if u == "B" {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.1f %s", f, u)
		}
		f /= 1000
	}
	return ""
}

// portEvents tells what the ports of a host complain about.
func portEvents(h HostTraffic) []Event {
	var out []Event
	warn := func(id, format string, args ...any) {
		out = append(out, Event{ID: id, Severity: SeverityWarning, Host: h.Host, Text: fmt.Sprintf(format, args...)})
	}
	for _, p := range h.Ports {
		name := fmt.Sprintf("%s:%d", p.HCA, p.Port)
		packets := p.Delta[TxPackets] + p.Delta[RxPackets]
		rate := func(n uint64) string {
			if packets == 0 {
				return ""
			}
			return fmt.Sprintf(", %.2g of its packets", float64(n)/float64(packets))
		}
		if n := p.Delta[LinkDowned]; n > 0 {
			warn("link-flap", "%s lost its link %s during the job: look at cable and transceiver.", name, times(n))
		}
		if n := p.Delta[RetryFailed]; n > 0 {
			warn("retries-exceeded", "%s gave up on a peer %s: the peer was gone or packets were lost.", name, times(n))
		}
		if n := p.Delta[OutOfSeq] + p.Delta[Retransmits] + p.Delta[Timeouts]; n > 0 && (packets == 0 || float64(n) > 1e-6*float64(packets)) {
			warn("loss", "%s saw packets lost or out of order (%d out of sequence, %d sequence errors, %d time-outs%s): check PFC, ECN and buffers on the way.", name, p.Delta[OutOfSeq], p.Delta[Retransmits], p.Delta[Timeouts], rate(n))
		}
		if n := p.Delta[Discards]; n > 0 {
			warn("discards", "%s discarded %d packets%s: the priority is not lossless, or the receiver is too slow.", name, n, rate(n))
		}
		marked, handled := p.Delta[ECNMarked], p.Delta[CNPHandled]
		sent, tellsSent := p.Delta[CNPSent]
		switch {
		case marked > 1000 && tellsSent && sent == 0:
			warn("ecn-without-cnp", "%s received %d packets marked for congestion and sent no CNP: its congestion control is off, so senders do not slow down and PFC has to stop them.", name, marked)
		case packets > 0 && (share(marked, packets) > 0.01 || share(handled, packets) > 0.001):
			warn("congestion", "%s was slowed down by congestion: %d packets came marked%s, %d CNPs were sent, %d handled: look at other jobs on the fabric, incast and ECMP hashing.", name, marked, rate(marked), sent, handled)
		}
		out = append(out, pauseEvents(h, name, p.Delta)...)
		if n := p.Delta[NotReady]; n > 0 && share(n, packets) > 1e-4 {
			warn("receiver-not-ready", "The peers of %s were not ready to receive %d times%s: their ranks are late, or short of receive buffers.", name, n, rate(n))
		}
		if n := p.Delta[SymbolErrors] + p.Delta[CRCErrors]; n > 0 {
			warn("link-errors", "%s received %d damaged packets or symbols: look at cable, transceiver and FEC.", name, n)
		}
	}
	if ev, ok := balance(h); ok {
		out = append(out, ev)
	}
	return out
}

func share(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// pausedShare of the time is what a sender notices.
const pausedShare = 0.02

// pauseEvents tells of flow control: it is what a lossless fabric is made of, and
// a problem only where it stops the port for long, or is of the wrong kind.
func pauseEvents(h HostTraffic, name string, delta map[Counter]uint64) []Event {
	var out []Event
	say := func(id, severity, format string, args ...any) {
		out = append(out, Event{ID: id, Severity: severity, Host: h.Host, Text: fmt.Sprintf(format, args...)})
	}
	for _, way := range []struct {
		frames, usec Counter
		id, verb     string
		advice       string
	}{
		{PauseRx, PauseRxUsec, "pfc-pause", "was paused by the switch", "the fabric is congested behind it"},
		{PauseTx, PauseTxUsec, "pfc-pause-sent", "paused the switch", "this host takes data slower than it comes (PCIe, memory, IOMMU), and slows down others"},
	} {
		n := delta[way.frames]
		if n == 0 {
			continue
		}
		var prios []string
		for p := range 8 {
			if delta[way.frames.of(p)] > 0 {
				prios = append(prios, fmt.Sprint(p))
			}
		}
		on := ""
		if len(prios) > 0 {
			on = " on priority " + strings.Join(prios, ", ")
		}
		usec, timed := delta[way.usec]
		if timed && h.Seconds > 0 && float64(usec)/1e6 > pausedShare*h.Seconds {
			say(way.id, SeverityWarning, "%s %s %d times (PFC%s), for %.0f %% of the time: %s.", name, way.verb, n, on, min(100, float64(usec)/1e4/h.Seconds), way.advice)
		} else {
			say(way.id, SeverityNote, "%s %s %d times (PFC%s).", name, way.verb, n, on)
		}
	}
	if n := delta[PauseStorm]; n > 0 {
		say("pause-storm", SeverityWarning, "%s saw %d pause storms: a device holds its link up for so long that the NIC gave up on lossless delivery; look for a hung host.", name, n)
	}
	if n := delta[GlobalPause]; n > 0 && delta[PauseRx]+delta[PauseTx] == 0 {
		say("global-pause", SeverityWarning, "%s saw %d pause frames for the whole link instead of one priority: PFC is not on, so RDMA and all other traffic stop together.", name, n)
	}
	return out
}

// balance notices a rail that carries far less than the others of its host.
func balance(h HostTraffic) (Event, bool) {
	type rail struct {
		name string
		load float64 // bytes per Gb/s of its rate
		n    uint64
	}
	var rails []rail
	var total uint64
	for _, p := range h.Ports {
		_, tx := p.Delta[TxBytes]
		_, rx := p.Delta[RxBytes]
		if !tx && !rx {
			continue
		}
		n := p.Delta[TxBytes] + p.Delta[RxBytes]
		total += n
		rate := p.RateGbps
		if rate <= 0 {
			rate = 1
		}
		rails = append(rails, rail{fmt.Sprintf("%s:%d", p.HCA, p.Port), float64(n) / rate, n})
	}
	// A management or storage NIC that carries nothing is no rail of the job.
	rails = slices.DeleteFunc(rails, func(r rail) bool { return r.n < total/1000 })
	if len(rails) < 2 || total < 1<<30 {
		return Event{}, false
	}
	slices.SortFunc(rails, func(a, b rail) int { return cmp.Compare(a.load, b.load) })
	low, mid := rails[0], rails[len(rails)/2]
	if low.load*2 > mid.load {
		return Event{}, false
	}
	return Event{
		ID: "rail-imbalance", Severity: SeverityWarning, Host: h.Host,
		Text: fmt.Sprintf("%s carried %s, less than half of the other rails: check which ranks are near it and that all peers have that rail.", low.name, Bytes(low.n)),
	}, true
}

// PeerSet joins the addresses of all hosts.
func PeerSet(samples []Sample) map[string]bool {
	out := map[string]bool{}
	for _, s := range samples {
		for _, a := range s.Addresses {
			if !strings.HasPrefix(a, "127.") && a != "::1" {
				out[a] = true
			}
		}
	}
	return out
}

// SamePlace deduces the addresses that hosts have on this host's other
// networks: a site numbers its rails alike, so a host that is 10.1.0.2 where
// this one is 10.1.0.1 is 10.1.4.2 where this one is 10.1.4.1. Nothing is
// deduced from a network on which this host has another number. own are this
// host's addresses with their networks, peers what is known of the others.
func SamePlace(own []netip.Prefix, peers []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, from := range own {
		for _, to := range own {
			if from == to || from.Bits() != to.Bits() || from.Addr().BitLen() != to.Addr().BitLen() ||
				from.Masked() == to.Masked() || hostPart(from) != hostPart(to) {
				continue
			}
			for _, p := range peers {
				p = p.Unmap()
				if p == from.Addr() || !from.Contains(p) {
					continue
				}
				if a := graft(to, p); !slices.Contains(out, a) && len(out) < 1<<16 {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

func hostPart(p netip.Prefix) netip.Addr {
	return graft(netip.PrefixFrom(zero(p.Addr()), p.Bits()), p.Addr())
}

func zero(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// graft is the address in net that has the number of host; both are of one family.
func graft(net netip.Prefix, host netip.Addr) netip.Addr {
	n, h := net.Addr().AsSlice(), host.AsSlice()
	for i := range n {
		keep := max(0, min(8, net.Bits()-8*i))
		mask := byte(0xff << (8 - keep))
		n[i] = n[i]&mask | h[i]&^mask
	}
	a, _ := netip.AddrFromSlice(n)
	return a
}

// CounterNames lists the names of a port's delta in a fixed order.
func CounterNames(delta map[Counter]uint64) []Counter { return slices.Sorted(maps.Keys(delta)) }

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
