package qosconf

import (
	"fmt"
	"slices"

	"fabrun/profiles"
)

// Plan is a profile's QoS plan with what follows from it worked out.
type Plan struct {
	Profile  string
	Trust    string // "dscp" or "pcp"
	RDMA     profiles.Class
	Priority *int // of RDMA packets; nil where neither rdma.priority nor a single PFC priority says it
	CNP      *profiles.Class
	PFC      []int // ascending, each 0 to 7
	ECNMinKB *int
	ECNMaxKB *int
	Pool     *int // percent
	ETS      []int
	Watchdog *bool
	MTUBytes *int     // of the hosts' netdevs
	RateGbps *float64 // what a healthy port shows
}

// NoPlanError says why a profile has no QoS plan to write down.
type NoPlanError struct {
	Profile string
	Why     string
}

func (e *NoPlanError) Error() string {
	return fmt.Sprintf("profile %q has no QoS plan to show: %s", e.Profile, e.Why)
}

// FromProfile works out the plan of p. It fails with *NoPlanError on an
// InfiniBand profile and on one that says nothing of QoS, and with another
// error on numbers that no packet can carry.
func FromProfile(p profiles.Profile) (Plan, error) {
	f := p.Fabric
	if f.LinkLayer == "infiniband" {
		return Plan{}, &NoPlanError{p.Name, "on InfiniBand the subnet manager's SL to VL table decides, not DSCP and PFC"}
	}
	if f.QoS == nil {
		return Plan{}, &NoPlanError{p.Name, "it has no [fabric.qos]"}
	}
	q := f.QoS
	plan := Plan{
		Profile: p.Name, Trust: q.Trust, RDMA: q.RDMA, CNP: q.CNP, PFC: slices.Clone(q.PFC),
		Priority: q.RDMA.Priority, ECNMinKB: q.ECNMinKB, ECNMaxKB: q.ECNMaxKB, Pool: q.Pool,
		ETS: q.ETS, Watchdog: q.Watchdog, MTUBytes: f.MinMTUBytes, RateGbps: f.RateGbps,
	}
	slices.Sort(plan.PFC)
	plan.PFC = slices.Compact(plan.PFC)
	if plan.Trust == "" {
		// A plan that is written as a DSCP means something only where the DSCP is trusted.
		plan.Trust = "dscp"
	}
	if plan.Priority == nil && len(plan.PFC) == 1 {
		plan.Priority = &plan.PFC[0]
	}
	if plan.Trust != "dscp" && plan.Trust != "pcp" {
		return Plan{}, fmt.Errorf("profile %q: trust %q is neither dscp nor pcp", p.Name, plan.Trust)
	}
	for _, prio := range plan.PFC {
		if prio < 0 || prio > 7 {
			return Plan{}, fmt.Errorf("profile %q: pfc priority %d is not within 0 to 7", p.Name, prio)
		}
	}
	for _, c := range []*profiles.Class{&plan.RDMA, plan.CNP} {
		if c == nil {
			continue
		}
		if c.DSCP < 0 || c.DSCP > 63 || c.ECN < 0 || c.ECN > 3 {
			return Plan{}, fmt.Errorf("profile %q: DSCP %d with ECN %d does not fit into a traffic class byte", p.Name, c.DSCP, c.ECN)
		}
		if c.Priority != nil && (*c.Priority < 0 || *c.Priority > 7) {
			return Plan{}, fmt.Errorf("profile %q: priority %d is not within 0 to 7", p.Name, *c.Priority)
		}
	}
	return plan, nil
}

// Lossless reports whether the plan makes the RDMA priority lossless.
func (p Plan) Lossless() bool {
	return p.Priority != nil && slices.Contains(p.PFC, *p.Priority)
}

// pfcMask is the bit mask of the lossless priorities: bit n is priority n.
func (p Plan) pfcMask() int {
	mask := 0
	for _, prio := range p.PFC {
		mask |= 1 << prio
	}
	return mask
}

// summary is the plan in one line for the head of a listing.
func (p Plan) summary() string {
	s := fmt.Sprintf("trust %s, RDMA on DSCP %d (TC %d)", p.Trust, p.RDMA.DSCP, p.RDMA.TC())
	if p.Priority != nil {
		s += fmt.Sprintf(", priority %d", *p.Priority)
	}
	switch {
	case p.Lossless():
		s += ", lossless"
	case len(p.PFC) == 0:
		s += ", lossy (no PFC)"
	}
	if p.CNP != nil {
		s += fmt.Sprintf(", CNP on DSCP %d", p.CNP.DSCP)
		if p.CNP.Priority != nil {
			s += fmt.Sprintf(" priority %d", *p.CNP.Priority)
		}
	}
	return s
}
