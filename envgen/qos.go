package envgen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// dcbOf is the DCB state of the netdev of a port: its own, or that of the
// first bond member or lower device that has one.
func (n *node) dcbOf(p *port) (*topology.DCB, string) {
	names := []string{p.p.Netdev}
	if p.netdev != nil {
		names = append(names, p.netdev.Lower)
		names = append(names, p.netdev.Slaves...)
	}
	for _, name := range names {
		if d := n.netdev(name); d != nil && d.DCB != nil {
			return d.DCB, d.Name
		}
	}
	return nil, ""
}

// judgeClassOn compares a traffic class with what the host's ports do with it.
func (s *state) judgeClassOn(n *node, what string, tc int) {
	dscp := tc >> 2
	for _, p := range n.use {
		if p.family != topology.Verbs || !p.roce() {
			continue
		}
		dcb, dev := n.dcbOf(p)
		if dcb == nil {
			continue
		}
		f := finding.Finding{Severity: finding.Warning, Host: n.h.Name, Subject: dev}
		switch prio, mapped := dcb.DSCPToPriority[dscp]; {
		case dcb.Trust == "pcp":
			f.ID, f.Seen, f.Wanted = "qos.trust", what+" marks DSCP "+strconv.Itoa(dscp)+", and "+dev+" trusts pcp", "trust dscp"
			f.Why = "the port does not look at the DSCP: unmarked frames go to priority 0, which may drop"
			f.Hint = "mlnx_qos -i " + dev + " --trust=dscp" + finding.ForPort
		case mapped && !slices.Contains(dcb.PFC, prio):
			f.ID, f.Seen = "qos.not-lossless", fmt.Sprintf("%s: DSCP %d is priority %d on %s, and PFC is on for %s", what, dscp, prio, dev, listOr(dcb.PFC, "none"))
			f.Wanted, f.Why = "a DSCP whose priority is lossless: "+losslessText(dcb), "the traffic can be dropped under load: retries and timeouts"
			f.Hint = "mlnx_qos -i " + dev + " --pfc " + topology.PFCMask(append(slices.Clone(dcb.PFC), prio)) + finding.ForPort + ", or another profile"
		default:
			continue
		}
		s.add(f)
	}
}

func listOr(xs []int, none string) string {
	if len(xs) == 0 {
		return none
	}
	var out []string
	for _, x := range xs {
		out = append(out, strconv.Itoa(x))
	}
	return strings.Join(out, ", ")
}

func losslessText(dcb *topology.DCB) string {
	var out []string
	for d := range 64 {
		if prio, ok := dcb.DSCPToPriority[d]; ok && slices.Contains(dcb.PFC, prio) {
			out = append(out, strconv.Itoa(d))
		}
	}
	if len(out) == 0 {
		return "none here"
	}
	return "DSCP " + strings.Join(out, ", ")
}

// qosFindings compares the plan with what the hosts' ports do.
func (s *state) qosFindings() {
	q := s.in.Profile.Fabric.QoS
	for _, n := range s.usedNodes() {
		if !n.anyRoCE() {
			continue
		}
		if q == nil {
			s.unmarked(n)
			continue
		}
		what := "profile " + s.in.Profile.Name
		// what the user set instead is judged with the user's settings
		if s.isSet(n, "UCX_IB_TRAFFIC_CLASS") && (s.isSet(n, "NCCL_IB_TC") || !s.usesNCCL()) {
			continue
		}
		tc := q.RDMA.TC()
		s.judgeClassOn(n, what, tc)
		for _, p := range n.use {
			if p.family != topology.Verbs || !p.roce() {
				continue
			}
			if g := p.p.GlobalTClass; g != nil && *g>>2 != q.RDMA.DSCP {
				s.add(finding.Finding{
					ID: "qos.global-tclass", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
					Seen:   fmt.Sprintf("Global tclass=%d (DSCP %d) in sys/class/infiniband/%s/tc/%d/traffic_class", *g, *g>>2, p.hca.Name, p.p.Number),
					Wanted: fmt.Sprintf("%d (DSCP %d), as %s says, or none", tc, q.RDMA.DSCP, what),
					Why:    "the driver replaces the class of every queue pair by the port's: the variables do nothing",
					Hint:   fmt.Sprintf("another profile, or echo -1 > /sys/class/infiniband/%s/tc/%d/traffic_class", p.hca.Name, p.p.Number) + finding.ForRDMA,
				})
			}
			dcb, dev := n.dcbOf(p)
			if dcb == nil || q.RDMA.Priority == nil {
				continue
			}
			if prio, ok := dcb.DSCPToPriority[q.RDMA.DSCP]; ok && prio != *q.RDMA.Priority {
				s.add(finding.Finding{
					ID: "qos.dscp-map", Severity: finding.Warning, Host: n.h.Name, Subject: dev,
					Seen: fmt.Sprintf("DSCP %d is priority %d", q.RDMA.DSCP, prio), Wanted: fmt.Sprintf("priority %d, as %s says", *q.RDMA.Priority, what),
					Why: "host and fabric disagree on the class", Hint: fmt.Sprintf("another profile, or mlnx_qos -i %s --dscp2prio set,%d,%d", dev, q.RDMA.DSCP, *q.RDMA.Priority) + finding.ForPort,
				})
			}
		}
	}
}

// unmarked says what the libraries' own defaults mean where no plan is given:
// NCCL marks nothing and UCX marks DSCP 26.
func (s *state) unmarked(n *node) {
	if s.in.Profile.Fabric.SetNothing || !s.usesNCCL() || s.isSet(n, "NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS") {
		return
	}
	hint := "name the fabric's plan: --profile roce-dscp26 (fabrun profile list)"
	for _, p := range n.use {
		if p.p.GlobalTClass != nil {
			return // the port marks everything alike
		}
		if dcb, dev := n.dcbOf(p); dcb != nil && len(dcb.PFC) > 0 {
			hint = fmt.Sprintf("%s is lossless on priority %s (%s): --profile with that DSCP", dev, listOr(dcb.PFC, ""), losslessText(dcb))
			break
		}
	}
	s.add(finding.Finding{
		ID: "qos.defaults-differ", Severity: finding.Warning, Host: n.h.Name, Subject: "traffic class",
		Seen: "no QoS plan: NCCL marks DSCP 0 and UCX DSCP 26 by default", Wanted: "one DSCP, the fabric's, for both",
		Why: "NCCL's traffic is not in the class that a lossless RoCE fabric keeps for RDMA", Hint: hint,
	})
}
