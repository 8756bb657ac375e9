package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Priorities is how many bytes a netdev has sent and received in each of the
// eight 802.1p priorities. Known is false where the driver counts none.
type Priorities struct {
	Sent, Received [8]int64
	Known          bool
}

// PriorityBytes reads the per-priority byte counters of a netdev: mlx5's
// tx_prio3_bytes (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst)
// and bnxt_en's tx_bytes_pri3.
func PriorityBytes(h topology.Host, netdev string) Priorities {
	var p Priorities
	n := h.Netdev(netdev)
	if n == nil || n.Ethtool == nil {
		return p
	}
	for name, v := range n.Ethtool.Stats {
		dir, rest, _ := strings.Cut(name, "_")
		num, ok := strings.CutPrefix(rest, "prio")
		if ok {
			num, ok = strings.CutSuffix(num, "_bytes")
		} else {
			num, ok = strings.CutPrefix(rest, "bytes_pri")
		}
		i, err := strconv.Atoi(num)
		if !ok || err != nil || i < 0 || i > 7 || dir != "tx" && dir != "rx" {
			continue
		}
		p.Known = true
		if dir == "tx" {
			p.Sent[i] = v
		} else {
			p.Received[i] = v
		}
	}
	return p
}

// Since returns what was counted between before and p. It is not known where
// one of them is not, or a counter went back (a driver that was loaded anew).
func (p Priorities) Since(before Priorities) Priorities {
	d := Priorities{Known: p.Known && before.Known}
	for i := range 8 {
		d.Sent[i], d.Received[i] = p.Sent[i]-before.Sent[i], p.Received[i]-before.Received[i]
		if d.Sent[i] < 0 || d.Received[i] < 0 {
			d.Known = false
		}
	}
	return d
}

// minWireBytes is what has to go over a port before its counters are believed.
const minWireBytes = 10 << 20

// rightShare is how much of a test's bytes has to be in the plan's priority:
// the rest is what else the host sends.
const rightShare = 0.9

// PortDelta is what one port's netdev counted during the tests of that port.
type PortDelta struct {
	Host   string
	Port   string // "mlx5_0 port 1"
	Netdev string
	Delta  Priorities
}

// WireFindings judges from the counters in which priority the test's bytes
// left each port and in which they arrived (qos.wire). Right on both ends is
// a note that says so; nothing is said where the plan names no priority.
func WireFindings(ports []PortDelta, q *profiles.QoS) []finding.Finding {
	if q == nil || q.RDMA.Priority == nil || len(ports) == 0 {
		return nil
	}
	want := *q.RDMA.Priority
	var out []finding.Finding
	right, unknown := 0, 0
	sentWrong := false
	for _, p := range ports {
		if p.Delta.Known && wrongShare(p.Delta.Sent, want) {
			sentWrong = true
		}
	}
	for _, p := range ports {
		if !p.Delta.Known || sum(p.Delta.Sent)+sum(p.Delta.Received) < minWireBytes {
			unknown++
			continue
		}
		f := finding.Finding{
			ID: "qos.wire", Severity: finding.Error, Host: p.Host, Subject: fmt.Sprintf("%s (%s)", p.Port, p.Netdev),
			Wanted: fmt.Sprintf("priority %d, sending and receiving", want),
		}
		tx, rx := wrongShare(p.Delta.Sent, want), wrongShare(p.Delta.Received, want)
		switch {
		case tx:
			f.Seen = "sent in " + shares(p.Delta.Sent)
			f.Why = fmt.Sprintf("the test was marked with DSCP %d, and the NIC put it elsewhere: without PFC its packets are dropped when a switch is full", q.RDMA.DSCP)
			f.Hint = fmt.Sprintf("trust mode, DSCP map or a port-wide traffic class: mlnx_qos -i %s", p.Netdev)
			if rx {
				f.Seen += "; received in " + shares(p.Delta.Received)
			}
		case rx:
			f.Seen = fmt.Sprintf("sent in priority %d, received in %s", want, shares(p.Delta.Received))
			f.Why = "the marks do not arrive: a switch on the way rewrites them, or this NIC does not trust them"
			f.Hint = fmt.Sprintf("'fabrun check --switch-output' on what the switches print; trust mode here: mlnx_qos -i %s", p.Netdev)
			if sentWrong {
				f.Why = "it arrives as somebody sent it: see the ports that send in another priority"
			}
		default:
			right++
			continue
		}
		out = append(out, f)
	}
	if right > 0 {
		out = append(out, finding.Finding{
			ID: "qos.wire", Severity: finding.Note, Subject: fmt.Sprintf("%d of %d ports", right, len(ports)),
			Seen: fmt.Sprintf("the test's bytes were sent and received in priority %d", want), Wanted: fmt.Sprintf("priority %d", want),
			Why: "counted by the NICs before and after: marked right, both directions",
		})
	}
	if unknown > 0 {
		out = append(out, finding.Finding{
			ID: "qos.wire", Severity: finding.Note, Subject: fmt.Sprintf("%d of %d ports", unknown, len(ports)),
			Seen: "no counters by priority that moved", Wanted: "tx_prioN_bytes and rx_prioN_bytes (ethtool -S)",
			Why:  "in which priority RDMA went cannot be told here: virtual functions and some drivers do not count it",
			Hint: "a capture tells: tcpdump -i mlx5_0 -w FILE udp port 4791; fabrun check --pcap FILE",
		})
	}
	return out
}

func sum(v [8]int64) int64 {
	var s int64
	for _, x := range v {
		s += x
	}
	return s
}

// wrongShare says whether too much of the bytes is in another priority. Too few bytes say nothing.
func wrongShare(v [8]int64, want int) bool {
	all := sum(v)
	return all >= minWireBytes && float64(v[want]) < rightShare*float64(all)
}

// shares writes "priority 0 (97 %), priority 3 (3 %)", the largest first.
func shares(v [8]int64) string {
	order := []int{0, 1, 2, 3, 4, 5, 6, 7}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(v[b]-v[a], -1), 1)) })
	var s []string
	for _, i := range order {
		if pct := 100 * float64(v[i]) / float64(sum(v)); pct >= 1 {
			s = append(s, fmt.Sprintf("priority %d (%.0f %%)", i, pct))
		}
	}
	return strings.Join(s, ", ")
}
