package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// crossing says whether a rail reaches the other rails.
type crossing struct {
	reach answer
	why   string
	// routed: through a gateway, between Ethernet subnets.
	routed bool
}

// planRails matches the chosen ports of all hosts: by subnet where the
// subnets tell rails apart, else by position. Names play no part.
func (s *state) planRails() {
	hosts := s.usedNodes()
	if len(hosts) == 0 {
		return
	}
	if keys := s.subnetKeys(hosts); keys != nil {
		s.railsBySubnet(hosts, keys)
	} else {
		s.railsByPosition(hosts)
	}
	s.cross = s.crossing(hosts)
}

func (s *state) usedNodes() []*node {
	var out []*node
	for _, n := range s.nodes {
		if len(n.use) > 0 {
			out = append(out, n)
		}
	}
	return out
}

// subnetKeys returns the subnets that are rails, in the order of the first
// host that has each, or nil where subnets do not tell rails apart: not known,
// several ports of a host in one, or none shared by the hosts (every link its
// own subnet).
func (s *state) subnetKeys(hosts []*node) []netip.Prefix {
	var order []netip.Prefix
	count := map[netip.Prefix]int{}
	ports := 0
	for _, n := range hosts {
		seen := map[netip.Prefix]bool{}
		for _, p := range n.use {
			if !p.subnet.IsValid() || seen[p.subnet] {
				return nil
			}
			seen[p.subnet] = true
			if count[p.subnet] == 0 {
				order = append(order, p.subnet)
			}
			count[p.subnet]++
			ports++
		}
	}
	if len(hosts) == 1 {
		return order
	}
	shared := 0
	var rails []netip.Prefix
	for _, k := range order {
		if 2*count[k] > len(hosts) || count[k] > 1 {
			shared += count[k]
			rails = append(rails, k)
		}
	}
	if 2*shared <= ports {
		return nil
	}
	return rails
}

func newRail(i int, why string) Rail {
	return Rail{Index: i, Name: fmt.Sprintf("rail %d", i), Ports: map[string]string{}, GIDs: map[string]int{}, Why: why}
}

// put makes a port the host's end of a rail, with the GID that the job uses
// there: a user's own index before the chosen one.
func (s *state) put(r Rail, n *node, p *port) {
	r.Ports[n.h.Name] = p.name()
	if p.infiniband() {
		return
	}
	if p.gid != nil {
		r.GIDs[n.h.Name] = p.gid.Index
	}
	for _, name := range []string{"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX"} {
		for _, set := range s.settings(n) {
			idx, err := strconv.Atoi(set.Value)
			if set.Name == name && err == nil && slices.ContainsFunc(p.p.GIDs, func(g topology.GID) bool { return g.Index == idx }) {
				r.GIDs[n.h.Name] = idx
				return
			}
		}
	}
}

func (s *state) railsBySubnet(hosts []*node, keys []netip.Prefix) {
	for i, k := range keys {
		r := newRail(i, "subnet "+k.String())
		for _, n := range hosts {
			if j := slices.IndexFunc(n.use, func(p *port) bool { return p.subnet == k }); j >= 0 {
				s.put(r, n, n.use[j])
			} else {
				s.missingRail(n, r)
			}
		}
		s.rails = append(s.rails, r)
	}
	for _, n := range hosts {
		for _, p := range n.use {
			if slices.Contains(keys, p.subnet) {
				continue
			}
			s.add(finding.Finding{
				ID: "hca.rail-subnet", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
				Seen: fmt.Sprintf("address %s in %s", p.gid.Addr.Unmap(), p.subnet), Wanted: "an address in a subnet of the rails: " + joinPrefixes(keys),
				Why: "no other host has this subnet, so this port reaches nobody", Hint: "correct the address of " + cmpOr(p.p.Netdev, p.name()) + " on " + n.h.Name,
			})
		}
	}
}

// maxJoined is how many subnets are written out.
const maxJoined = 16

func joinPrefixes(ps []netip.Prefix) string {
	var out []string
	for i, p := range ps {
		if i == maxJoined {
			out = append(out, "…")
			break
		}
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

func (s *state) railsByPosition(hosts []*node) {
	most := 0
	for _, n := range hosts {
		most = max(most, len(n.use))
	}
	for i := range most {
		r := newRail(i, "position")
		for _, n := range hosts {
			if i < len(n.use) {
				s.put(r, n, n.use[i])
			}
		}
		s.rails = append(s.rails, r)
	}
	for _, n := range hosts {
		if len(n.use) == most {
			continue
		}
		// by position a gap moves every later port, so only the number is sure
		s.add(finding.Finding{
			ID: "hca.rail-count", Severity: finding.Error, Host: n.h.Name, Subject: "rails",
			Seen: fmt.Sprintf("%d usable ports: %s", len(n.use), strings.Join(portNames(n.use), ", ")), Wanted: fmt.Sprintf("%d, as on the other hosts", most),
			Why:  "the hosts do not have the same rails: NCCL uses the fewest, and MPI ranks may find no common path",
			Hint: "leave " + n.h.Name + " out, repair it, or drop the rail everywhere with exclude_hcas in the profile",
		})
	}
}

func (s *state) missingRail(n *node, r Rail) {
	s.add(finding.Finding{
		ID: "hca.rail-missing", Severity: finding.Error, Host: n.h.Name, Subject: r.Name,
		Seen: "no usable port in " + strings.TrimPrefix(r.Why, "subnet "), Wanted: "one, as on the other hosts",
		Why:  "the hosts do not have the same rails",
		Hint: "leave " + n.h.Name + " out, repair it, or drop the rail everywhere with exclude_hcas in the profile",
	})
}

func portNames(ps []*port) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.name())
	}
	return out
}

// crossing decides whether rails reach each other: the profile says so, or
// they share a subnet, or every host has a route from each rail to the others.
// InfiniBand is not routed: another subnet prefix is another fabric.
func (s *state) crossing(hosts []*node) crossing {
	routed := s.etherSubnets(hosts) > 1
	if r := s.in.Profile.Fabric.RailOnly; r != nil {
		if *r {
			return crossing{reach: no, why: "profile " + s.in.Profile.Name + " says rail_only = true"}
		}
		return crossing{reach: yes, why: "profile " + s.in.Profile.Name + " says rail_only = false", routed: routed}
	}
	if len(s.rails) < 2 {
		return crossing{reach: yes, why: "one rail"}
	}
	var ib []*port
	for _, n := range hosts {
		for _, p := range n.use {
			switch {
			case p.infiniband():
				ib = append(ib, p)
			case !p.subnet.IsValid():
				return crossing{reach: unknown, why: "the subnets of the rails are not known"}
			}
		}
	}
	for _, p := range ib {
		a, okA := ib[0].prefix()
		if b, okB := p.prefix(); okA && okB && a != b {
			return crossing{reach: no, why: fmt.Sprintf("%s: two InfiniBand fabrics: %s is in subnet %s, %s in %s", p.node.h.Name, ib[0].name(), a.Masked().Addr(), p.name(), b.Masked().Addr())}
		}
		if share, known := topology.SharePartition(*ib[0].p, *p.p); known && !share {
			return crossing{reach: no, why: fmt.Sprintf("%s and %s share no partition", ib[0].name(), p.name())}
		}
	}
	switch {
	case len(ib) > 0 && routed, len(ib) > 0 && s.etherSubnets(hosts) > 0:
		return crossing{reach: no, why: "InfiniBand and Ethernet rails"}
	case !routed:
		return crossing{reach: yes, why: "all rails are in one subnet"}
	}
	for _, n := range hosts {
		if n.h.Routes == nil {
			return crossing{reach: unknown, why: "rails in different subnets; routes not known"}
		}
		for _, p := range n.use {
			for _, q := range n.use {
				if p != q && p.subnet != q.subnet && !n.routes(p, q.subnet) {
					return crossing{reach: no, why: fmt.Sprintf("%s: no route from %s (%s) to %s", n.h.Name, p.name(), cmpOr(p.p.Netdev, "?"), q.subnet)}
				}
			}
		}
	}
	return crossing{reach: yes, why: "every rail has a route to the subnets of the others", routed: true}
}

// etherSubnets counts the subnets of the chosen Ethernet ports.
func (s *state) etherSubnets(hosts []*node) int {
	seen := map[netip.Prefix]bool{}
	for _, n := range hosts {
		for _, p := range n.use {
			if p.subnet.IsValid() {
				seen[p.subnet] = true
			}
		}
	}
	return len(seen)
}

// ucxSplits says whether UCX's ranks may have one rail each: any two of them must
// reach each other by what UCX itself believes, which differs by version. Before
// 1.19 it believes that every RoCE device reaches every other, and right it is
// where rails are routed; 1.19 and 1.20.0 ask for a route; from 1.20.1 on a
// device reaches an address only over the best route of the host, and that of
// another rail's subnet is the host's own port there (ucs_netlink_is_best_route in
// src/uct/ib/base/ib_iface.c).
func (s *state) ucxSplits() (bool, string) {
	switch {
	case s.cross.reach != yes:
		return false, s.cross.why
	case !s.cross.routed:
		return true, s.cross.why
	}
	switch s.ucxAtLeast("1.20.1") {
	case no:
		return true, s.cross.why
	case yes:
		return false, "rails in different subnets, and UCX from 1.20.1 on reaches a peer only over the best route, which is that of this host's own port there; UCX_IB_ROCE_REACHABILITY_MODE=all would allow one rail a rank"
	}
	return false, "rails in different subnets, UCX's version is not known, and from 1.20.1 on it reaches a peer only over the best route"
}

// onLink says whether the peers of a rail are in its own subnet: not where every
// link is one of its own (/31, /30), whose peers are all behind a router.
func (s *state) onLink() bool {
	for _, p := range s.rocePorts() {
		if !p.subnet.IsValid() || p.subnet.Addr().BitLen()-p.subnet.Bits() <= 2 {
			return false
		}
	}
	return !slices.ContainsFunc(s.rails, func(r Rail) bool { return r.Why == "position" })
}

// ucxReach keeps UCX's lanes inside a rail where rails do not reach each other
// and UCX believes that they do: before 1.19, which asks for routes. The length of
// the subnet comes from the netdev since 1.13.
func ucxReach(s *state, n *node) []Var {
	if s.cross.reach != no || !s.onLink() || len(n.verbsPorts(false)) < 2 || !n.anyRoCE() || s.choseUCXTCP(n) || s.ucxGID.hangs ||
		s.ucxAtLeast("1.13") != yes || s.ucxAtLeast("1.19") != no {
		return nil
	}
	return []Var{{
		Name: "UCX_IB_ROCE_LOCAL_SUBNET", Value: "y", Why: "rails do not reach each other (" + s.cross.why + "), and UCX " + n.v.UCX + " believes that every RoCE device reaches every other",
		Evidence: []string{s.cross.why}, Rejected: []Alternative{{Value: "n", Why: "UCX's default: a lane between two rails times out"}},
		IfWrong: "connections between rails time out; with y, peers behind a router are not reached",
	}}
}

// routes says whether packets that leave by port p reach dst through a gateway.
func (n *node) routes(p *port, dst netip.Prefix) bool {
	dev := p.p.Netdev
	if p.gid != nil && p.gid.Netdev != "" {
		dev = p.gid.Netdev
	}
	for _, r := range n.h.Routes {
		if r.Netdev == dev && r.Via.IsValid() && r.Dst.IsValid() && r.Dst.Bits() <= dst.Bits() && r.Dst.Contains(dst.Addr()) {
			return true
		}
	}
	return false
}
