package envgen

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// port is one port of one HCA with what was decided about it.
type port struct {
	node     *node
	hca      *topology.HCA
	p        *topology.Port
	netdev   *topology.Netdev // nil: none visible
	family   topology.Family
	gid      *topology.GID
	gidNot   []Alternative
	subnet   netip.Prefix // of the chosen GID's address; invalid unknown
	rejectID string       // rule that rejected it; "" chosen
	reject   string
	signals  []signal // what was seen of it beside its siblings

	text     string   // "mlx5_0:1"
	evidence []string // files and values; made when first asked for
}

func (p *port) name() string { return p.text }

func (p *port) roce() bool { return p.p.LinkLayer == "Ethernet" }

func (p *port) infiniband() bool { return p.p.LinkLayer == "InfiniBand" }

// rate is the wire's rate in Gb/s; 0 unknown.
func (p *port) rate() float64 {
	if p.p.RateGbps != nil && p.p.RateTrusted {
		return *p.p.RateGbps
	}
	if p.p.Speed != nil {
		return *p.p.Speed
	}
	return 0
}

// file is the path of one of the port's files, as evidence names it.
func (p *port) file(name string) string {
	if p.family == topology.CXI { // its link is told by its interface
		return "sys/class/net/" + p.p.Netdev + "/operstate"
	}
	return "sys/class/infiniband/" + p.hca.Name + "/ports/" + strconv.Itoa(p.p.Number) + "/" + name
}

// mtu is the RDMA active MTU in bytes; 0 unknown. For RoCE without a verbs
// fact it follows from the netdev: the largest of 256…4096 that fits beside 96
// bytes of headers (GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4:
// iboe_get_mtu in include/rdma/ib_addr.h).
func (p *port) mtu() int {
	if p.p.ActiveMTU != nil {
		return *p.p.ActiveMTU
	}
	if !p.roce() || p.netdev == nil || p.netdev.MTU == nil {
		return 0
	}
	for _, m := range []int{4096, 2048, 1024, 512, 256} {
		if *p.netdev.MTU-96 >= m {
			return m
		}
	}
	return 0
}

// node is one host with its ports and versions.
type node struct {
	h     *topology.Host
	v     Versions
	ports []*port
	use   []*port // chosen, in HCA order
	left  []Var   // left unset on purpose
}

// leave notes a variable that a rule leaves unset on purpose.
func (n *node) leave(v Var) { n.left = append(n.left, v) }

func (n *node) netdev(name string) *topology.Netdev {
	for i := range n.h.Netdevs {
		if n.h.Netdevs[i].Name == name {
			return &n.h.Netdevs[i]
		}
	}
	return nil
}

// portRule rejects a port with a reason; "" lets it pass.
type portRule struct {
	id    string // why a port is left out
	judge func(s *state, p *port) string
}

// portRules is every reason for which a port carries no data of the job, in
// the order in which they are asked.
func portRules() []portRule {
	return []portRule{
		{"hca.excluded", portExcluded},
		{"hca.driver", portDriver},
		{"hca.family", portFamily},
		{"hca.device-node", portNode},
		{"hca.memlock", portMemlock},
		{"hca.port-down", portDown},
		{"hca.link-layer", portLinkLayer},
		{"hca.network", portNetwork},
		{"hca.gid", portGID},
	}
}

func portExcluded(s *state, p *port) string {
	for _, pattern := range s.in.Profile.Fabric.ExcludeHCAs {
		if ok, err := path.Match(pattern, p.hca.Name); ok && err == nil || pattern == p.hca.Name {
			return fmt.Sprintf("profile %s excludes %q", s.in.Profile.Name, pattern)
		}
	}
	return ""
}

func portDriver(s *state, p *port) string {
	if d := s.in.Profile.Fabric.Driver; d != "" && p.hca.Driver != "" && p.hca.Driver != d {
		return fmt.Sprintf("driver is %s, profile %s is for %s", p.hca.Driver, s.in.Profile.Name, d)
	}
	return ""
}

func portFamily(_ *state, p *port) string {
	if p.family == topology.IWARP && topology.DriverNamed(p.hca.Driver).TwoModes {
		return p.hca.Driver + " in iWARP mode, which neither NCCL nor UCX uses"
	}
	if p.family == topology.IWARP {
		return "iWARP: neither NCCL nor UCX uses it"
	}
	return ""
}

// portNode: libraries find devices in sysfs and open them in /dev/infiniband.
func portNode(_ *state, p *port) string { return p.node.h.Unopenable(p.hca) }

// portMemlock: what RDMA sends is pinned. Below this not even the queues of one
// connection can be (UCX's and NCCL's completion queues alone take as much), so
// the old default of 64 KiB ends every RDMA job at its start. The hard limit
// counts, which the launchers' daemons and 'fabrun rank' may raise the soft one to;
// what is above may still be too little, and is for the check to say.
func portMemlock(_ *state, p *port) string {
	const queues = 256 << 10
	l := p.node.h.Limits
	hard := l.Lockable(l.MemlockHard)
	if hard == nil || *hard >= queues || !topology.DriverNamed(p.hca.Driver).Uverbs {
		return ""
	}
	return fmt.Sprintf("only %d KiB may be locked (RLIMIT_MEMLOCK), and RDMA pins more than that for its queues alone", *hard>>10)
}

func portDown(_ *state, p *port) string {
	if p.infiniband() && (p.p.State == "INIT" || p.p.State == "ARMED") {
		return "state " + p.p.State + ": the link is up, and no subnet manager has made it ACTIVE"
	}
	switch {
	case !p.p.Down():
		return ""
	case p.p.State == "", p.p.State == "ACTIVE":
		return "phys_state " + p.p.PhysState
	}
	return strings.TrimSuffix(fmt.Sprintf("state %s, phys_state %s", p.p.State, p.p.PhysState), ", phys_state ")
}

func portLinkLayer(s *state, p *port) string {
	want := s.in.Profile.Fabric.LinkLayer
	if p.family != topology.Verbs && p.family != topology.PSM || p.p.LinkLayer == "" {
		return ""
	}
	switch {
	case want == "ethernet" && p.infiniband(), want == "infiniband" && p.roce():
		return fmt.Sprintf("link layer %s; profile %s is %s", p.p.LinkLayer, s.in.Profile.Name, want)
	case !p.infiniband() && !p.roce():
		return fmt.Sprintf("link layer %q is neither InfiniBand nor Ethernet", p.p.LinkLayer)
	}
	return ""
}

// portNetwork: a port that has addresses, none of them in the fabric's subnets,
// is in another network. One without any address says nothing so.
func portNetwork(s *state, p *port) string {
	if p.family != topology.Verbs || !p.roce() || len(s.want.subnets) == 0 {
		return ""
	}
	everywhere := s.want
	everywhere.subnets = nil
	anyGID, _ := everywhere.pickGID(p)
	if in, _ := s.want.pickGID(p); in != nil || anyGID == nil {
		return ""
	}
	return fmt.Sprintf("%s is outside the profile's subnets %s", anyGID.Addr.Unmap(), joinPrefixes(s.want.subnets))
}

func portGID(s *state, p *port) string {
	if p.family != topology.Verbs || !p.roce() {
		return ""
	}
	if len(p.p.GIDs) == 0 {
		switch {
		case p.p.GIDUnreadable != "":
			return "GID table cannot be read: " + p.p.GIDUnreadable
		case p.node.h.XML:
			return "" // a topology file knows no GIDs
		default:
			return "no GID at all: its netdev is down, without address, or in another network namespace"
		}
	}
	p.gid, p.gidNot = s.want.pickGID(p)
	if p.gid == nil {
		return fmt.Sprintf("no usable GID: %s", joinAlternatives(p.gidNot, 3))
	}
	p.findSubnet()
	return ""
}

// findSubnet takes the subnet of the chosen GID's address from its netdev.
func (p *port) findSubnet() {
	p.subnet = netip.Prefix{}
	d := p.node.netdev(cmpOr(p.gid.Netdev, p.p.Netdev))
	if d == nil {
		return
	}
	for _, a := range d.Addrs {
		if a.Addr().Unmap() == p.gid.Addr.Unmap() {
			p.subnet = a.Masked()
		}
	}
}

// oneFamily gives every port an IPv6 GID where not every port has an IPv4 one
// and all have an IPv6 one: addresses of two families cannot connect.
func (s *state) oneFamily() {
	ps := s.rocePorts()
	v4 := 0
	for _, p := range ps {
		if p.gid.Kind == topology.GIDIPv4 {
			v4++
		}
	}
	if s.want.family != "any" || v4 == 0 || v4 == len(ps) {
		return
	}
	want := s.want
	want.family = "ipv6"
	picks := make([]*topology.GID, len(ps))
	for i, p := range ps {
		if picks[i], _ = want.pickGID(p); picks[i] == nil {
			return
		}
	}
	for i, p := range ps {
		if p.gid.Kind == topology.GIDIPv4 {
			p.gidNot = append(p.gidNot, Alternative{Value: fmt.Sprintf("index %d (%s)", p.gid.Index, gidText(*p.gid)), Why: "another port of the job has no IPv4 address"})
		}
		p.gid = picks[i]
		p.findSubnet()
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func joinAlternatives(as []Alternative, most int) string {
	var parts []string
	for i, a := range as {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(as)-most))
			break
		}
		parts = append(parts, a.Value+" "+a.Why)
	}
	return strings.Join(parts, "; ")
}

// choosePorts judges every port of every host, then the set of each host.
func (s *state) choosePorts() {
	for _, n := range s.nodes {
		for i := range n.h.HCAs {
			hca := &n.h.HCAs[i]
			for j := range hca.Ports {
				p := &port{node: n, hca: hca, p: &hca.Ports[j], family: hca.Family()}
				p.text = hca.Name + ":" + strconv.Itoa(p.p.Number)
				p.netdev = n.netdev(p.p.Netdev)
				for _, r := range s.portRules {
					if why := r.judge(s, p); why != "" {
						p.rejectID, p.reject = r.id, why
						break
					}
				}
				n.ports = append(n.ports, p)
			}
		}
		for _, r := range setRules() {
			r.judge(s, n)
		}
		for _, p := range n.ports {
			if p.rejectID == "" {
				n.use = append(n.use, p)
			}
		}
	}
}

func samePart(a, b *port) bool {
	if a.hca.BoardID != "" && b.hca.BoardID != "" {
		return a.hca.BoardID == b.hca.BoardID
	}
	if a.hca.HCAType != "" && b.hca.HCAType != "" {
		return a.hca.HCAType == b.hca.HCAType
	}
	da, db := pciDevice(a.node.h, a.hca.PCI), pciDevice(b.node.h, b.hca.PCI)
	if da != nil && db != nil && da.Device != nil && db.Device != nil {
		return *da.Device == *db.Device
	}
	return a.hca.PCI == "" && b.hca.PCI == "" || a.hca.PCI != "" && b.hca.PCI != "" && a.hca.PCI[:len(a.hca.PCI)-1] == b.hca.PCI[:len(b.hca.PCI)-1]
}

func pciDevice(h *topology.Host, address string) *topology.PCIDevice {
	i, ok := slices.BinarySearchFunc(h.PCI, address, func(d topology.PCIDevice, a string) int { return strings.Compare(d.Address, a) })
	if !ok || address == "" {
		return nil
	}
	return &h.PCI[i]
}

// portFindings says what is wrong with single ports: down or slower than
// their peers, small MTU.
func (s *state) portFindings() {
	for _, n := range s.nodes {
		for _, p := range n.ports {
			switch {
			case p.rejectID == "hca.port-down" && s.peerUses(p):
				s.add(finding.Finding{
					ID: "hca.port-down", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
					Seen: p.reject, Wanted: "ACTIVE and LinkUp, as on the other hosts",
					Why:  "this rail carries nothing on " + n.h.Name + ", so the job's hosts do not agree",
					Hint: "check cable and switch port; or leave the host out, or drop the rail everywhere with exclude_hcas in the profile",
				})
			case p.rejectID == "hca.port-down" && p.alike():
				s.add(finding.Finding{
					ID: "hca.port-down", Severity: finding.Note, Host: n.h.Name, Subject: p.name(),
					Seen: p.reject, Wanted: "ACTIVE and LinkUp", Why: "not used; it carries nothing", Hint: "nothing to do where no cable is meant to be in it",
				})
			case p.rejectID == "hca.gid" && (p.alike() || s.peerUses(p)):
				sev := finding.Warning
				if s.peerUses(p) {
					sev = finding.Error // the other hosts have this rail
				}
				s.add(finding.Finding{
					ID: "hca.gid", Severity: sev, Host: n.h.Name, Subject: p.name(),
					Seen: p.reject, Wanted: s.want.text(), Why: "the port is up but cannot be used for RoCE",
					Hint: "give " + cmpOr(p.p.Netdev, "its netdev") + " an address of the fabric, in this network namespace",
				})
			case p.rejectID == "hca.device-node" && s.peerUses(p):
				s.add(finding.Finding{
					ID: "hca.device-node", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
					Seen: p.reject, Wanted: "a device node that opens, as on the other hosts",
					Why:  "this rail carries nothing on " + n.h.Name + ", so the job's hosts do not agree",
					Hint: "modprobe ib_uverbs, or the permissions of /dev/infiniband (udev), as root; a container: give it the device; or leave the host out",
				})
			case p.rejectID == "hca.device-node" && p.alike():
				f := finding.Finding{
					ID: "hca.device-node", Severity: finding.Warning, Host: n.h.Name, Subject: p.name(),
					Seen: p.reject, Wanted: "a device node, as the ports in use have", Why: "libraries see the device and cannot use it", Hint: "modprobe ib_uverbs, or the permissions of /dev/infiniband (udev), as root",
				}
				if n.h.Container.Kind != "" { // what the container was given is somebody's decision
					f.Severity, f.Hint = finding.Note, "nothing to do where the container was meant to have a part of the host's devices"
				}
				s.add(f)
			}
		}
		s.slowPorts(n)
		s.smallMTU(n)
		s.twoNetworks(n)
	}
}

// iwarpMode names the ports whose driver could speak RoCE, and does not.
func (s *state) iwarpMode() {
	for _, n := range s.nodes {
		for _, p := range n.ports {
			if p.rejectID != "hca.family" || !topology.DriverNamed(p.hca.Driver).TwoModes || p.p.State != "ACTIVE" {
				continue
			}
			sev := finding.Note
			if len(n.use) == 0 {
				sev = finding.Warning
			}
			s.add(finding.Finding{
				ID: "hca.iwarp-mode", Severity: sev, Host: n.h.Name, Subject: p.name(), Seen: p.reject, Wanted: "RoCE mode",
				Why:  "the card speaks RoCE v2 too, which NCCL and UCX use",
				Hint: "devlink dev param set pci/" + cmpOr(p.hca.PCI, "ADDRESS") + " name enable_roce value true cmode runtime, or irdma's roce_ena=1 (as root; iWARP programs lose the device)",
			})
		}
	}
}

// twoNetworks says where a port carries two networks, one on its interface and
// one on a VLAN or bridge over it, and nothing but the default route told which
// is the job's.
func (s *state) twoNetworks(n *node) {
	if s.byProfile() {
		return
	}
	out := n.defaultDev(anyDev)
	for _, p := range n.use {
		if p.gid == nil || !p.roce() || p.gid.Netdev == "" {
			continue
		}
		for i := range p.p.GIDs {
			g := &p.p.GIDs[i]
			if g.Netdev == p.gid.Netdev || s.want.judgeGID(*g, p) != "" || g.Kind != p.gid.Kind {
				continue
			}
			why, sev := "the port's own interface is taken", finding.Note
			if g.Netdev == out { // a management base: which of the two is meant is less sure
				why, sev = "the one without the default route is taken", finding.Warning
			}
			s.add(finding.Finding{
				ID: "gid.two-networks", Severity: sev, Host: n.h.Name, Subject: p.name(),
				Seen:   fmt.Sprintf("%s on %s and %s on %s", p.gid.Addr.Unmap(), p.gid.Netdev, g.Addr.Unmap(), g.Netdev),
				Wanted: "one network for the job", Why: why + ": hosts that take the other cannot connect", Hint: `subnets = ["…"] in the profile says which it is`,
			})
			break
		}
	}
}

// peerUses says whether the same device is in use on another host.
func (s *state) peerUses(p *port) bool {
	for _, n := range s.nodes {
		if n == p.node {
			continue
		}
		for _, q := range n.use {
			if q.name() == p.name() || p.hca.PCI != "" && q.hca.PCI == p.hca.PCI && q.p.Number == p.p.Number {
				return true
			}
		}
	}
	return false
}

func (s *state) slowPorts(n *node) {
	want := 0.0
	if r := s.in.Profile.Fabric.RateGbps; r != nil {
		want = *r
	} else {
		want = s.commonRate()
	}
	for _, p := range n.use {
		if r := p.rate(); r != 0 && want != 0 && r < want {
			s.add(finding.Finding{
				ID: "hca.port-slow", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
				Seen: fmt.Sprintf("%g Gb/s", r), Wanted: fmt.Sprintf("%g Gb/s, as the other ports", want),
				Why:  "collectives run at the pace of the slowest rail",
				Hint: "check cable, transceiver and the switch port's speed; or leave the host out",
			})
		}
	}
}

// commonRate is the rate that most chosen ports of the job have; 0 unknown.
func (s *state) commonRate() float64 {
	count := map[float64]int{}
	best := 0.0
	for _, n := range s.nodes {
		for _, p := range n.use {
			r := p.rate()
			if r == 0 {
				continue
			}
			count[r]++
			if count[r] > count[best] || count[r] == count[best] && r > best {
				best = r
			}
		}
	}
	return best
}

// commonMTU is the active MTU that most chosen ports of the job have; 0 unknown.
func (s *state) commonMTU() int {
	count := map[int]int{}
	best := 0
	for _, n := range s.nodes {
		for _, p := range n.use {
			m := p.mtu()
			if m == 0 {
				continue
			}
			count[m]++
			if count[m] > count[best] || count[m] == count[best] && m > best {
				best = m
			}
		}
	}
	return best
}

func (s *state) smallMTU(n *node) {
	common := s.commonMTU()
	for _, p := range n.use {
		m := p.mtu()
		if m != 0 && m < common {
			// Both ends of a connection have to agree on the MTU: what the larger
			// one sends does not arrive, or every connection pays for one port.
			s.add(finding.Finding{
				ID: "hca.mtu-differs", Severity: finding.Error, Host: n.h.Name, Subject: p.name(),
				Seen: fmt.Sprintf("active MTU %d", m), Wanted: fmt.Sprintf("%d, as the job's other ports", common),
				Why:  "packets of the others' size do not pass, or all connections to it run with small ones",
				Hint: fmt.Sprintf("set the MTU of %s as on the other hosts, and look at the switch port", cmpOr(p.p.Netdev, p.hca.Name)),
			})
			continue
		}
		if m == 0 || !p.roce() || p.hca.Driver == "rxe" {
			continue
		}
		if m < 4096 {
			s.add(finding.Finding{
				ID: "hca.active-mtu", Severity: finding.Warning, Host: n.h.Name, Subject: p.name(),
				Seen: fmt.Sprintf("active MTU %d", m), Wanted: "active MTU 4096 (netdev MTU 4200 or more)",
				Why:  "four times the packets and headers for the same data",
				Hint: fmt.Sprintf("the switches first, then on every host: ip link set %s mtu 9000", cmpOr(p.p.Netdev, "NETDEV")) + finding.ForPort,
			})
		}
	}
}
