package measure

import (
	"fmt"
	"net/netip"
	"slices"

	"fabrun/profiles"
	"fabrun/topology/finding"
	"fabrun/topology/health"
	"fabrun/topology/pasted"
)

// JudgePcap compares how packets are marked with the profile's plan, by direction.
// Without a plan, or without a RoCE packet, nothing was compared.
func JudgePcap(c pasted.Capture, q *profiles.QoS) (Verdict, []finding.Finding) {
	fs := judgePcap(c, q)
	return health.Sum(fs, c.RoCE > 0 && q != nil), fs
}

func judgePcap(c pasted.Capture, q *profiles.QoS) []finding.Finding {
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, subject, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
	}
	if c.RoCE == 0 {
		add("qos.wire-none", finding.Warning, "capture", fmt.Sprintf("no packet to UDP port %d among %d", pasted.RoCEPort, c.Packets), "RoCEv2 packets",
			"nothing can be said of their marking; a NIC's RDMA traffic is seen by tcpdump only on the RDMA device", "capture with 'tcpdump -i mlx5_0', or on a mirror port of the switch")
		return fs
	}
	if c.Truncated {
		add("qos.wire-truncated", finding.Note, "capture", "the file ends inside a packet", "a whole file", "what came before is counted", "")
	}
	reverse := map[[2]netip.Addr]bool{}
	for _, f := range c.Flows {
		reverse[[2]netip.Addr{f.To, f.From}] = true
	}
	for _, f := range c.Flows {
		subject := f.From.String() + " -> " + f.To.String()
		if ce := f.ECN[3]; ce > 0 {
			add("qos.wire-congestion", finding.Note, subject, fmt.Sprintf("%d of %d packets marked congestion experienced", ce, f.Packets), "few", "a queue on the way fills", "")
		}
		if !reverse[[2]netip.Addr{f.From, f.To}] {
			add("qos.wire-one-way", finding.Note, subject, "no packet comes back", "acknowledgements", "the capture saw one direction only, or the other goes another way", "capture on both ends")
		}
		if q == nil {
			continue
		}
		allowed := map[int]bool{q.RDMA.DSCP: true}
		wanted := fmt.Sprintf("DSCP %d", q.RDMA.DSCP)
		if q.Control != nil {
			allowed[q.Control.DSCP] = true
			wanted += fmt.Sprintf(" (control %d)", q.Control.DSCP)
		}
		wrong, data := 0, 0
		for d, n := range f.DSCP {
			data += n
			if !allowed[d] {
				wrong += n
			}
		}
		if wrong > 0 {
			add("qos.wire", finding.Error, subject, fmt.Sprintf("%d of %d packets with %s", wrong, data, histogram("DSCP", f.DSCP)), wanted,
				"these packets ride in another priority, without PFC and ECN of the plan", fmt.Sprintf("set NCCL_IB_TC and UCX_IB_TRAFFIC_CLASS to %d ('fabrun env')", q.RDMA.TC()))
		}
		if n := f.ECN[0]; n > 0 && q.RDMA.ECN != 0 {
			add("qos.wire-ecn", finding.Warning, subject, fmt.Sprintf("%d of %d packets not ECN capable", n, data), fmt.Sprintf("ECN bits %d", q.RDMA.ECN),
				"switches drop them where they would mark others", fmt.Sprintf("the traffic class is DSCP<<2 | ECN: %d", q.RDMA.TC()))
		}
		if q.CNP != nil && f.CNPs > 0 {
			for d := range f.CNPDSCP {
				if d != q.CNP.DSCP {
					add("qos.wire-cnp", finding.Warning, subject, fmt.Sprintf("congestion notifications with %s", histogram("DSCP", f.CNPDSCP)), fmt.Sprintf("DSCP %d", q.CNP.DSCP),
						"notifications that queue with the data come too late", "set cnp_dscp of the device (ecn/roce_np/cnp_dscp)")
					break
				}
			}
		}
		if q.RDMA.Priority != nil {
			for prio, n := range f.PCP {
				if prio != *q.RDMA.Priority && q.Trust == "pcp" {
					add("qos.wire-pcp", finding.Error, subject, fmt.Sprintf("%d packets with 802.1Q priority %d", n, prio), fmt.Sprintf("priority %d", *q.RDMA.Priority),
						"switches that trust the tag put them in another queue", "map the socket priority on the VLAN: egress-qos-map")
				}
			}
		}
	}
	finding.Sort(fs)
	return fs
}

func histogram(name string, m map[int]int) string {
	var keys []int
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b int) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return a - b
	})
	s := ""
	for i, k := range keys {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s %d (%d)", name, k, m[k])
	}
	return s
}
