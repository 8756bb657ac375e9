package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/topology"
)

const (
	roceV2 = "RoCE v2"
	roceV1 = "IB/RoCE v1"
)

// gidWant is what a right GID is for this job.
type gidWant struct {
	version string         // roceV2 or roceV1
	family  string         // "ipv4", "ipv6", "any"
	subnets []netip.Prefix // nil: any
}

// judgeGID says why a GID of a RoCE port is not usable for the job; "" it is.
func (w gidWant) judgeGID(g topology.GID, p *port) string {
	switch {
	case g.NdevUnreadable != "":
		return fmt.Sprintf("its netdev cannot be read (%s): it belongs to another network namespace", g.NdevUnreadable)
	case g.Type == "":
		return "its type cannot be read"
	case g.Type != w.version:
		return "is " + g.Type
	case g.Kind == topology.GIDLinkLocal:
		return "is link-local: not routable, the same on every link"
	case g.Kind == topology.GIDIB:
		return "is no IP address"
	case w.family == "ipv4" && g.Kind != topology.GIDIPv4:
		return "is IPv6; the profile wants IPv4"
	case w.family == "ipv6" && g.Kind != topology.GIDIPv6:
		return "is IPv4; the profile wants IPv6"
	}
	if own := p.p.Netdev; g.Netdev != "" && own != "" && g.Netdev != own && !slices.Contains(p.node.above(own), g.Netdev) {
		return fmt.Sprintf("is on %s, not on the port's %s", g.Netdev, own)
	}
	if len(w.subnets) > 0 && !inAny(g.Addr.Unmap(), w.subnets) {
		return "is outside the fabric's subnets"
	}
	return ""
}

func inAny(a netip.Addr, subnets []netip.Prefix) bool {
	for _, s := range subnets {
		if s.Contains(a) {
			return true
		}
	}
	return false
}

// gidRank orders usable GIDs: IPv4 before IPv6, an interface that is not the way
// out before the default route's, the port's own netdev before a VLAN on it, then
// the lower index.
func gidRank(g topology.GID, p *port) int {
	r := g.Index
	if g.Kind != topology.GIDIPv4 {
		r += 1 << 20
	}
	if g.Netdev != "" && g.Netdev == p.node.defaultDev(anyDev) {
		r += 1 << 18
	}
	if g.Netdev != "" && g.Netdev != p.p.Netdev {
		r += 1 << 16
	}
	return r
}

// pickGID returns the GID that the job should use on a RoCE port, nil when
// none is usable, and what was rejected.
func (w gidWant) pickGID(p *port) (*topology.GID, []Alternative) {
	var best *topology.GID
	var rejected []Alternative
	for i := range p.p.GIDs {
		g := &p.p.GIDs[i]
		if why := w.judgeGID(*g, p); why != "" {
			rejected = append(rejected, Alternative{Value: fmt.Sprintf("index %d (%s)", g.Index, gidText(*g)), Why: why})
			continue
		}
		if best == nil || gidRank(*g, p) < gidRank(*best, p) {
			if best != nil {
				rejected = append(rejected, Alternative{Value: fmt.Sprintf("index %d (%s)", best.Index, gidText(*best)), Why: "usable, but another comes first"})
			}
			best = g
		} else {
			rejected = append(rejected, Alternative{Value: fmt.Sprintf("index %d (%s)", g.Index, gidText(*g)), Why: "usable, but another comes first"})
		}
	}
	return best, rejected
}

func gidText(g topology.GID) string {
	t := "unknown type"
	if g.Type != "" {
		t = strings.TrimPrefix(g.Type, "IB/")
	}
	return g.Addr.Unmap().String() + ", " + t
}

// tableLen is the length of a port's GID table: what is not zero and what is.
func tableLen(p *topology.Port) int {
	n := len(p.GIDs) + p.GIDZero
	for _, g := range p.GIDs {
		n = max(n, g.Index+1)
	}
	return n
}

// ncclChoice is a model of how NCCL 2.21 and later pick a RoCE GID by
// themselves (ncclIbGetGidIndex and ncclUpdateGidIndex in
// src/transport/net_ib/connect.cc). Its rules are kept as they are, faults
// included: an entry of the wanted family is taken over one of another family
// without looking at its version.
func ncclChoice(p *topology.Port, wantV6 bool, within netip.Prefix, version int) int {
	entries := make([]*topology.GID, tableLen(p))
	for i := range p.GIDs {
		if idx := p.GIDs[i].Index; idx >= 0 && idx < len(entries) {
			entries[idx] = &p.GIDs[i]
		}
	}
	isV6 := func(i int) bool { return entries[i] == nil || entries[i].Kind != topology.GIDIPv4 }
	valid := func(i int) bool {
		return entries[i] != nil && entries[i].Kind != topology.GIDLinkLocal
	}
	inRange := func(i int) bool {
		if !within.IsValid() {
			return true
		}
		a := netip.IPv6Unspecified()
		if entries[i] != nil {
			a = entries[i].Addr
		}
		return within.Contains(a) || within.Contains(a.Unmap())
	}
	ver := func(i int) int {
		if entries[i] == nil {
			return 0
		}
		switch entries[i].Type {
		case roceV2:
			return 2
		case roceV1:
			return 1
		}
		return 0
	}
	cur := 0
	for i := 1; i < len(entries); i++ {
		switch {
		case isV6(i) != isV6(cur) && isV6(i) == wantV6 && inRange(i):
			cur = i
		case isV6(i) == wantV6 && valid(i) && inRange(i):
			if (ver(cur) != ver(i) || !valid(cur)) && ver(i) == version {
				cur = i
			}
		}
	}
	return cur
}

// ucxChoice is a model of UCX's automatic RoCE GID
// (src/uct/ib/base/ib_device.c): the first class of the list that has an
// entry, and in it the lowest index; -1 when the table holds none of them,
// which makes UCX take index 0 silently.
func ucxChoice(p *topology.Port, within []netip.Prefix) int {
	classes := []struct {
		version string
		kind    topology.GIDKind
	}{
		{roceV2, topology.GIDIPv4},
		{roceV2, topology.GIDIPv6},
		{roceV2, topology.GIDLinkLocal},
		{roceV1, topology.GIDIPv4},
		{roceV1, topology.GIDIPv6},
		{roceV1, topology.GIDLinkLocal},
	}
	for _, c := range classes {
		best := -1
		for _, g := range p.GIDs {
			if g.Type != c.version || g.Kind != c.kind || g.NdevUnreadable != "" {
				continue
			}
			if len(within) > 0 && !inAny(g.Addr.Unmap(), within) {
				continue
			}
			if best < 0 || g.Index < best {
				best = g.Index
			}
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}
