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
		if p.family != verbs || !p.roce() {
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
			f.Hint = "mlnx_qos -i " + dev + " --trust=dscp (as root)"
		case mapped && !slices.Contains(dcb.PFC, prio):
			f.ID, f.Seen = "qos.not-lossless", fmt.Sprintf("%s: DSCP %d is priority %d on %s, and PFC is on for %s", what, dscp, prio, dev, listOr(dcb.PFC, "none"))
			f.Wanted, f.Why = "a DSCP whose priority is lossless: "+losslessText(dcb), "the traffic can be dropped under load: retries and timeouts"
			f.Hint = "mlnx_qos -i " + dev + " --pfc " + pfcMask(prio) + " (as root, on every host and the switch alike), or another profile"
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

func pfcMask(prio int) string {
	var bits [8]string
	for i := range bits {
		bits[i] = "0"
	}
	if prio >= 0 && prio < 8 {
		bits[prio] = "1"
	}
	return strings.Join(bits[:], ",")
}
