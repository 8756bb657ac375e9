package check

import (
	"net/netip"
	"slices"

	"fabrun/topology"
)

// sameRails pairs the devices of two hosts: those in the same slot with the same
// part, then those of one name, then those in one subnet, then those of one part
// in their order. Names follow the order
// in which a kernel finds cards, or udev's rules: two hosts with the same rails
// may call them differently.
func sameRails(a, b topology.Host) map[string]string {
	out := map[string]string{} // b's name: a's
	taken := map[string]bool{}
	pair := func(same func(x, y *topology.HCA) bool) {
		for i := range b.HCAs {
			y := &b.HCAs[i]
			if out[y.Name] != "" {
				continue
			}
			j := slices.IndexFunc(a.HCAs, func(x topology.HCA) bool { return !taken[x.Name] && same(&x, y) })
			if j >= 0 {
				out[y.Name], taken[a.HCAs[j].Name] = a.HCAs[j].Name, true
			}
		}
	}
	pair(func(x, y *topology.HCA) bool {
		return x.PCI != "" && x.PCI == y.PCI && x.Driver == y.Driver && x.HCAType == y.HCAType
	})
	pair(func(x, y *topology.HCA) bool { return x.Name == y.Name })
	pair(func(x, y *topology.HCA) bool {
		return slices.ContainsFunc(subnetsOf(a, x), func(s netip.Prefix) bool { return slices.Contains(subnetsOf(b, y), s) })
	})
	pair(func(x, y *topology.HCA) bool {
		return x.PCI != "" && y.PCI != "" && x.BoardID != "" && x.Driver == y.Driver && x.BoardID == y.BoardID
	})
	return out
}

func subnetsOf(h topology.Host, c *topology.HCA) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.Ports {
		if n := h.Netdev(p.Netdev); n != nil {
			for _, a := range n.Addrs {
				if !a.Addr().IsLinkLocalUnicast() {
					out = append(out, a.Masked())
				}
			}
		}
	}
	return out
}

// renamed is b with its devices under the names that a has for the same rails,
// and what each was called, where that differs.
func renamed(a, b topology.Host) (topology.Host, map[string]string) {
	pairs := sameRails(a, b)
	was := map[string]string{}
	used := map[string]bool{}
	for _, name := range pairs {
		used[name] = true
	}
	b.HCAs = slices.Clone(b.HCAs)
	for i := range b.HCAs {
		c := &b.HCAs[i]
		name, ok := pairs[c.Name]
		switch {
		case ok && name != c.Name:
			was[name] = c.Name
			c.Name = name
		case !ok && used[c.Name]: // a card of its own that another rail's name is taken by
			c.Name += "'"
		}
	}
	return b, was
}
