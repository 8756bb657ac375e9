package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// bootstrapDev is the interface by which the job's hosts know each other, with
// the reason; nil when none can be told.
func (s *state) bootstrapDev(n *node) (*topology.Netdev, string) {
	want := s.in.Profile.Fabric.Bootstrap
	usable := func(d *topology.Netdev) bool {
		return d != nil && d.OperState != "down" && len(d.Addrs) > 0 && !virtualDev(d)
	}
	switch want {
	case "", "management":
	case "fabric":
		for _, p := range n.use {
			if usable(p.netdev) {
				return p.netdev, "the profile says bootstrap = fabric: the first rail's interface"
			}
		}
		for i := range n.h.Netdevs {
			if d := &n.h.Netdevs[i]; d.Type != nil && *d.Type == 32 && usable(d) {
				return d, "the profile says bootstrap = fabric: IP over InfiniBand"
			}
		}
		return nil, "the profile says bootstrap = fabric, and no rail has an interface with an address"
	default:
		if d := n.netdev(want); d != nil {
			return d, "the profile names it"
		}
		return nil, "the profile names " + want + ", which is not on this host"
	}
	if d, a := s.knownBy(n); d != nil && usable(d) {
		return d, fmt.Sprintf("it has %s, by which the job's hosts know this one", a)
	}
	// One snapshot may stand for all: then the interface whose subnet holds them.
	if all := s.addresses(); len(all) > 0 {
		for i := range n.h.Netdevs {
			d := &n.h.Netdevs[i]
			for _, a := range d.Addrs {
				if usable(d) && holdsAll(a, all) {
					return d, fmt.Sprintf("its subnet %s holds the addresses of the job's hosts", a.Masked())
				}
			}
		}
	}
	if name := n.defaultDev(usable); name != "" {
		return n.netdev(name), "it has the default route"
	}
	// Without routes: the only real interface with an address.
	var only *topology.Netdev
	for i := range n.h.Netdevs {
		d := &n.h.Netdevs[i]
		if !usable(d) || linkLocalOnly(d) || d.Master != "" {
			continue
		}
		if only != nil {
			return nil, "several interfaces have addresses, and neither the hosts' addresses nor a default route tells them apart"
		}
		only = d
	}
	if only != nil {
		return only, "the only interface with an address"
	}
	return nil, "no interface with an address is known"
}

// addresses are those by which the job's hosts know each other: what their names
// lead to, and what answered when they were looked at by these names.
func (s *state) addresses() []netip.Addr {
	out := slices.Clone(s.in.Job.Addresses)
	for _, n := range s.nodes {
		if a := n.h.ReachedBy; a.IsValid() && !a.IsLoopback() {
			out = append(out, a)
		}
	}
	return out
}

// knownBy is the interface with the address by which the job's hosts know this one.
func (s *state) knownBy(n *node) (*topology.Netdev, netip.Addr) {
	for i := range n.h.Netdevs {
		d := &n.h.Netdevs[i]
		for _, a := range d.Addrs {
			for _, known := range s.addresses() {
				if a.Addr().Unmap() == known.Unmap() && !known.IsLoopback() {
					return d, known
				}
			}
		}
	}
	return nil, netip.Addr{}
}

func holdsAll(p netip.Prefix, addrs []netip.Addr) bool {
	for _, a := range addrs {
		if !p.Contains(a.Unmap()) {
			return false
		}
	}
	return true
}

func linkLocalOnly(d *topology.Netdev) bool {
	for _, a := range d.Addrs {
		if !a.Addr().IsLinkLocalUnicast() {
			return false
		}
	}
	return true
}

func bootstrapVars(s *state, n *node) []Var {
	gloo := s.usesGloo(n)
	if !s.usesNCCL() && !gloo {
		return nil
	}
	d, why := s.bootstrapDev(n)
	if d == nil {
		if len(n.h.Netdevs) > 0 && !s.isSet(n, "NCCL_SOCKET_IFNAME") {
			s.add(finding.Finding{
				ID: "bootstrap.interface", Severity: finding.Warning, Host: n.h.Name, Subject: "NCCL_SOCKET_IFNAME", Seen: why,
				Wanted: "the one interface that the job's hosts share", Why: "NCCL chooses by itself, and may take an interface that reaches nobody",
				Hint: "name it in the profile: bootstrap = \"eth0\"",
			})
		}
		return nil
	}
	var addrs []string
	for _, a := range d.Addrs {
		addrs = append(addrs, a.String())
	}
	var not []Alternative
	for i := range n.h.Netdevs {
		if o := &n.h.Netdevs[i]; o != d && virtualDev(o) && o.Name != "lo" {
			not = append(not, Alternative{Value: o.Name, Why: "a virtual interface of this host"})
		}
	}
	v := Var{
		Name: "NCCL_SOCKET_IFNAME", Value: "=" + d.Name, Why: why, Evidence: []string{d.Name + ": " + strings.Join(addrs, ", ")}, Rejected: not,
		IfWrong: "the job hangs or stops at its start",
	}
	var out []Var
	if s.usesNCCL() {
		out = append(out, v)
	}
	if gloo {
		v.Name, v.Value = "GLOO_SOCKET_IFNAME", d.Name
		out = append(out, v)
	}
	return out
}

// usesGloo says whether processes may be PyTorch's: Gloo carries its control.
func (s *state) usesGloo(n *node) bool {
	if s.in.Job.Gloo || hasSoftware(n.h, "torchrun") {
		return true
	}
	w := s.in.Workload
	return w != nil && (w.Name == "pytorch" || w.Name == "horovod")
}
