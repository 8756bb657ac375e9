package health

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Routable says that packets to a can leave the link: no link-local, loopback,
// multicast or empty address.
func Routable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// GIDIndex is the index that a RoCE job would use on a port, and why; nil where
// none is right: RoCE v2 and routable, IPv4 before global IPv6, on the port's
// own netdev before a VLAN's, the lowest.
func GIDIndex(p topology.Port) (index *int, why string) {
	own, lowest := "", -1
	roce, v2, untyped, hidden := false, false, false, false
	for _, g := range p.GIDs {
		// The port's own netdev has the first entries of the table.
		if g.Netdev != "" && (lowest < 0 || g.Index < lowest) {
			own, lowest = g.Netdev, g.Index
		}
		isV2 := strings.Contains(g.Type, "v2")
		roce = roce || g.Netdev != "" || isV2
		v2 = v2 || isV2
		untyped = untyped || g.Type == ""
		hidden = hidden || isV2 && g.Kind == ""
	}
	best, bestRank := -1, 0
	for i, g := range p.GIDs {
		if !strings.Contains(g.Type, "v2") || !Routable(g.Addr) {
			continue
		}
		rank := 1
		if g.Kind == topology.GIDIPv4 {
			rank += 4
		}
		if g.Netdev != "" && g.Netdev == own {
			rank += 2
		}
		if best < 0 || rank > bestRank || rank == bestRank && g.Index < p.GIDs[best].Index {
			best, bestRank = i, rank
		}
	}
	if best >= 0 {
		g := p.GIDs[best]
		kind := "routable IPv4 " + g.Addr.Unmap().String()
		if g.Kind != topology.GIDIPv4 {
			kind = "global IPv6 " + g.Addr.String() + ", no IPv4 one is there"
		}
		why = "RoCE v2, " + kind
		if g.Netdev != "" {
			why += " on " + g.Netdev
		}
		return new(g.Index), why
	}
	switch {
	case untyped && !hidden && !v2:
		return nil, "the table does not say which entries are RoCE v2"
	case !roce:
		return nil, "InfiniBand, or no netdev: no RoCE v2 entry"
	case hidden:
		return nil, "the RoCE v2 addresses are hidden in this text"
	case v2:
		return nil, "only link-local RoCE v2 entries: " + orText(own, "the netdev") + " has no routable IP address"
	}
	return nil, "RoCE v1 entries only, which no router forwards"
}

// commonIndex: of ports that are not chosen yet nobody has planned the GIDs.
func commonIndex(l *look) {
	picks := map[int][]string{}
	for _, p := range l.ports {
		if index, _ := GIDIndex(p.Port); index != nil {
			picks[*index] = append(picks[*index], p.hca.Name)
		}
	}
	if l.e.Chosen || len(picks) < 2 {
		return
	}
	var seen []string
	for _, i := range slices.Sorted(maps.Keys(picks)) {
		seen = append(seen, fmt.Sprintf("%d on %s", i, strings.Join(picks[i], ", ")))
	}
	l.say(finding.Warning, "GID index", strings.Join(seen, "; "), "the same index on every HCA", "one NCCL_IB_GID_INDEX or UCX_IB_GID_INDEX would be wrong on some of them",
		"leave the index unset: NCCL from 2.21 on and UCX choose for each device")
}
