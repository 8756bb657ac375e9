package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

func state(l *look) {
	others := slices.ContainsFunc(l.ports, l.active)
	for _, p := range l.ports {
		u := l.up(p)
		if u == nil || *u {
			continue
		}
		if p.ib() && (p.State == "INIT" || p.State == "ARMED") {
			continue // ib.subnet-manager says why
		}
		sev := finding.Error
		if !l.e.Chosen && others { // an unused port is common, a machine without any is not
			sev = finding.Warning
		}
		hint := "check cable, transceiver and switch port; 'mlxlink -d " + p.hca.Name + "' says more"
		switch {
		case p.State == "INIT", p.State == "ARMED":
			hint = "the driver has not finished: look at 'dmesg' for " + p.hca.Name
		case p.PhysState == "Disabled" && p.ib():
			hint = "the port is switched off: ibportstate -C " + p.hca.Name + " -D 0 1 enable (as root), or ask for the switch's port" + finding.OnPurpose
		case p.PhysState == "Disabled":
			hint = "the port is switched off: ip link set " + orText(p.Netdev, p.hca.Name) + " up (as root)" + finding.OnPurpose
		}
		seen := p.StateText()
		if p.State == "" && !p.Down() {
			seen = "its netdev " + p.Netdev + " is down"
		}
		l.say(sev, p.String(), seen, "ACTIVE, LinkUp", "this rail carries nothing", hint)
	}
}

// untold: an InfiniBand port can be active while its IPoIB netdev is down.
func untold(l *look) {
	var silent []string
	for _, p := range l.ports {
		if n := l.h.Netdev(p.Netdev); p.State == "" && p.ib() && n != nil && n.OperState == "down" {
			silent = append(silent, p.hca.Name)
		}
	}
	if len(silent) > 0 {
		l.say(finding.Note, strings.Join(silent, ", "), "the IPoIB netdev is down; the port's own state is not known", "state ACTIVE",
			"an InfiniBand port can be active while its IPoIB netdev is down", "ibstat "+silent[0])
	}
}

// rate: what a port came up at. Without a profile's word the job's ports are
// held to what most of them have, and ports of which nobody knows whose they
// are to the fastest of their kind.
func rate(l *look) {
	type kind struct{ layer string }
	count, top := map[float64]int{}, map[kind]float64{}
	for _, p := range l.ports {
		if l.active(p) && p.RateTrusted && p.RateGbps != nil {
			count[*p.RateGbps]++
			top[kind{p.LinkLayer}] = max(top[kind{p.LinkLayer}], *p.RateGbps)
		}
	}
	most, n := 0.0, 0
	for v, k := range count {
		if k > n || k == n && v > most {
			most, n = v, k
		}
	}
	for _, p := range l.ports {
		if !l.active(p) || !p.RateTrusted || p.RateGbps == nil {
			continue
		}
		want, by := most, "what its siblings have"
		sev, why, hint := l.amiss(), "every rank on this rail waits for it", "a port that came up slower: reseat cable and transceiver, check the switch port's speed"
		switch {
		case l.e.RateGbps != nil:
			want, by, sev = *l.e.RateGbps, "the profile's rate", finding.Error
		case !l.e.Chosen:
			want, by = top[kind{p.LinkLayer}], "as its fastest sibling"
			why, hint = "a rail is as fast as its slowest port; or this port is for another purpose", "leave it out of the job's HCAs, or check cable and switch port"
		case n < 2:
			continue
		}
		if *p.RateGbps >= want*0.99 {
			continue
		}
		l.say(sev, p.String(), orText(p.RateText, fmt.Sprintf("%g Gb/s", *p.RateGbps)), fmt.Sprintf("%g Gb/s, %s", want, by), why, hint)
	}
}

func linkLayer(l *look) {
	if l.e.LinkLayer == "" {
		return
	}
	for _, p := range l.ports {
		if p.LinkLayer == "" || strings.EqualFold(p.LinkLayer, l.e.LinkLayer) {
			continue
		}
		l.say(finding.Error, p.String(), p.LinkLayer, l.e.LinkLayer, "the profile does not mean this port",
			"another --profile ('fabrun profile list'); or, where this port is meant to be the other kind, mlxconfig -d "+orText(p.hca.PCI, p.hca.Name)+" set LINK_TYPE_P1=…"+finding.InCard)
	}
}

// A second subnet manager of another configuration takes a fabric over.
const noSubnetManager = "'sminfo' asks for it: see to the one of the switch or of the management node; opensm on one node only where the fabric is to have none other"

func subnetManager(l *look) {
	for _, p := range l.ports {
		if !p.ib() {
			continue
		}
		zero := p.SMLID != nil && *p.SMLID == 0 || p.LID != nil && *p.LID == 0
		switch {
		case p.State == "INIT" && zero:
			l.say(finding.Error, p.String(), "state INIT, LID or SM LID 0", "ACTIVE, both set", "the cable is in order, and no subnet manager has seen this port", noSubnetManager)
		case p.State == "INIT":
			l.say(finding.Error, p.String(), "state "+p.StateText(), "ACTIVE", "the cable is in order, but no subnet manager has configured the port: no RDMA traffic", noSubnetManager)
		case p.State == "ARMED":
			l.say(finding.Error, p.String(), "state "+p.StateText(), "ACTIVE", "the subnet manager has begun with this port and not ended", "wait, then look at the subnet manager's log")
		case p.State == "ACTIVE" && zero:
			l.say(finding.Error, p.String(), "LID or SM LID 0", "both set", "no subnet manager has seen this port", noSubnetManager)
		}
	}
}

func partition(l *look) {
	for _, p := range l.ports {
		if !p.ib() || p.PKeys == nil {
			continue
		}
		if !slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k&0x8000 != 0 && k != 0 }) {
			l.say(finding.Error, p.String(), fmt.Sprintf("partition keys %#04x", p.PKeys), "one with the full-member bit 0x8000", "limited members cannot talk to each other", "ask for full membership in partitions.conf of the subnet manager")
		}
	}
}

func (l *look) minMTU() int {
	if l.e.MinMTU != nil {
		return *l.e.MinMTU
	}
	return 4200
}

// small is the netdev of a RoCE port where its MTU is below what is wanted.
func (l *look) small(p port) *topology.Netdev {
	if n := l.h.Netdev(p.Netdev); p.roce() && n != nil && n.MTU != nil && *n.MTU < l.minMTU() {
		return n
	}
	return nil
}

func mtu(l *look) {
	for _, p := range l.ports {
		n := l.small(p)
		if n == nil || !l.active(p) {
			continue
		}
		// A profile that asks for it makes it an error of the plan; by rule it costs speed only.
		sev := finding.Warning
		if l.e.MinMTU != nil {
			sev = finding.Error
		}
		l.say(sev, on(p, n.Name), fmt.Sprintf("MTU %d", *n.MTU), fmt.Sprintf("%d or more", l.minMTU()), "RDMA packets shrink to a quarter, and nodes that differ hang", fmt.Sprintf("the switches first, then on every node: ip link set %s mtu 9000", n.Name)+finding.ForPort)
	}
}

func activeMTU(l *look) {
	for _, p := range l.ports {
		if m := p.ActiveMTU; m != nil && *m < 4096 && l.active(p) && l.small(p) == nil && (p.ib() || l.minMTU() >= 4200) {
			l.say(finding.Warning, p.String(), fmt.Sprintf("active MTU %d", *m), "4096", "more packets for the same data", "raise the netdev's MTU to 4200 or more (9000), the switches first; or the subnet manager's partition MTU")
		}
	}
}

func gids(l *look) {
	sev := finding.Error
	if !l.e.Chosen && slices.ContainsFunc(l.ports, func(p port) bool { index, _ := GIDIndex(p.Port); return index != nil }) {
		sev = finding.Warning // others of them can be used
	}
	for _, p := range l.ports {
		if !p.roce() || p.State != "" && !l.active(p) {
			continue
		}
		if p.GIDUnreadable != "" {
			l.say(finding.Error, p.String(), "GID table: "+p.GIDUnreadable, "readable", "no connection can be addressed", cmp.Or(l.h.Container.Give(topology.NeedNetwork), "in a container: "+topology.GiveNetwork))
			continue
		}
		if p.GIDs == nil && p.GIDZero == 0 {
			continue // not looked at
		}
		v2, v1, away, untold := false, false, false, false
		for _, g := range p.GIDs {
			routable := (g.Kind == topology.GIDIPv4 || g.Kind == topology.GIDIPv6) && (!g.Addr.IsValid() || Routable(g.Addr))
			untold = untold || g.Kind == "" || routable && g.Type == ""
			if !routable || l.e.GIDFamily == "ipv4" && g.Kind != topology.GIDIPv4 || l.e.GIDFamily == "ipv6" && g.Kind != topology.GIDIPv6 {
				continue
			}
			switch {
			case g.NdevUnreadable != "":
				away = true
			case strings.Contains(g.Type, "v2"):
				v2 = true
			case g.Type != "":
				v1 = true
			}
		}
		subject := p.String()
		if p.Netdev != "" {
			subject = on(p, p.Netdev)
		}
		switch {
		case v2, untold: // a text that hides addresses or versions proves nothing
		case away:
			l.say(finding.Error, p.String(), "its addresses belong to a netdev in another network namespace", "the netdev here", "the device is seen, its GIDs cannot be used", "run with the host's network, or give the netdev to this namespace")
		case v1:
			l.say(sev, p.String(), "RoCE v1 GIDs only", "RoCE v2", "RoCE v1 is not routed and carries no DSCP", "the driver's RoCE mode: mlxconfig … ROCE_MODE"+finding.InCard)
		default:
			l.say(sev, subject, "no routable GID", orText(l.e.GIDFamily, "an address")+" on the netdev", "the port has no address: connections fail or take link-local", "give "+orText(p.Netdev, "its netdev")+" an address of the fabric in this host's network configuration; or leave the HCA out (exclude_hcas in the profile)")
		}
	}
}
