package envgen

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// signal is one thing that is seen of a port and speaks for its being one of
// the job's, or against it.
type signal struct {
	weight int // above 0 for, below 0 against
	text   string
	manage bool // it says that the port is the management network's
}

// The weights. A port is another network's from apart on: the default route or
// another class of speed is enough by itself, everything else needs a second
// witness, so that one thing set up wrongly on a rail stays a fault to report.
const (
	apart          = -3
	weighsRoute    = -3 // the way to the rest of the world
	weighsSpeed    = -3 // half as fast or twice as fast, and another part
	weighsNamed    = -3 // the profile says that this is the management interface
	weighsKnownBy  = -2 // the hosts know each other by an address of it
	weighsPart     = -2 // another card than most
	weighsDual     = -2 // a card of several ports among cards of one
	weighsNoGPU    = -2 // no GPU beside it, while siblings have one
	weighsMTU      = -1 // 1500 beside jumbo frames
	weighsTrust    = -1 // pcp beside dscp
	weighsPrefix   = -1 // another InfiniBand subnet
	weighsTwin     = +1 // the same card as a port that is the job's, set up alike
	weighsSameNet  = +3 // one subnet with a port that is the job's
	weighsGPU      = +3 // a GPU on the same PCIe switch
	jumboFromBytes = 4200
)

// setRule looks at the ports of a host that are left, and rejects some in
// favour of others; never all.
type setRule struct {
	id    string // why a port is left out
	judge func(s *state, n *node)
}

// setRules is every reason for which a port that could be used is left out for
// the sake of others, in the order in which they are asked: what of a device is
// real, then what is wired to the GPUs, then which kind of fabric, then whose
// network a port is by the weight of all that is seen of it.
func setRules() []setRule {
	return []setRule{
		{"hca.virtual", rejectVirtual},
		{"hca.beside-gpu", rejectFarFromGPUs},
		{"hca.fabric", rejectOtherKind},
		{"hca.role", rejectOtherRoles},
	}
}

// remaining are the ports of a host that no rule has rejected so far.
func (n *node) remaining() []*port {
	return slices.DeleteFunc(slices.Clone(n.ports), func(p *port) bool { return p.rejectID != "" })
}

func (p *port) see(weight int, format string, args ...any) {
	p.signals = append(p.signals, signal{weight: weight, text: fmt.Sprintf(format, args...)})
}

func (p *port) weight() int {
	sum := 0
	for _, s := range p.signals {
		sum += s.weight
	}
	return sum
}

// said are the signals in words, each with its weight.
func (p *port) said() string {
	var out []string
	for _, s := range p.signals {
		if s.weight == 0 {
			out = append(out, s.text)
		} else {
			out = append(out, fmt.Sprintf("%s (%+d)", s.text, s.weight))
		}
	}
	return strings.Join(out, "; ")
}

// rejectVirtual keeps a PF and its own VFs from being used together: they
// share one wire. The PF wins where it is usable.
func rejectVirtual(_ *state, n *node) {
	for _, p := range n.remaining() {
		if p.hca.PF == "" {
			continue
		}
		if slices.ContainsFunc(n.remaining(), func(q *port) bool { return q.hca.Name == p.hca.PF }) {
			p.rejectID, p.reject = "hca.virtual", fmt.Sprintf("a virtual function of %s, which is used itself", p.hca.PF)
		}
	}
}

// beside is a port's GPUs: those on its PCIe switch, or chip.
type beside struct {
	gpus []string // PCI addresses
	text string
}

// besideGPU finds the ports that share a PCIe switch, or a chip, with a GPU.
// known is false where the tree does not tell. served counts the GPUs with a
// port of any state beside them: one that is down today is wired all the same.
func besideGPU(n *node) (near map[*port]*beside, served int, known bool) {
	near = map[*port]*beside{}
	if n.h.Hidden != "" || len(n.h.GPUs) == 0 || len(n.h.PCI) == 0 {
		return near, 0, false
	}
	has := map[string]bool{}
	for _, path := range topology.PathsToHCAs(*n.h) {
		if path.NCCL != topology.PIX && path.NCCL != topology.PXB && path.NCCL != topology.P2C {
			continue
		}
		for _, p := range n.ports {
			if p.hca.Name != path.HCA || p.rejectID == "hca.family" {
				continue
			}
			has[path.From] = true
			if near[p] == nil {
				i := slices.IndexFunc(n.h.GPUs, func(g topology.GPU) bool { return g.PCI == path.From })
				near[p] = &beside{text: fmt.Sprintf("beside GPU %d (%s)", n.h.GPUs[i].Index, path.NCCL)}
			}
			near[p].gpus = append(near[p].gpus, path.From)
		}
	}
	return near, len(has), true
}

// besideMost are the ports of the card that most GPUs have beside them; nil where
// two cards have as many, as where a CPU's links put all its cards beside its GPUs.
func besideMost(near map[*port]*beside, ports []*port) []*port {
	var most []*port
	best, as := 0, 0
	for _, p := range ports {
		if near[p] == nil || slices.ContainsFunc(most, func(q *port) bool { return samePart(p, q) }) {
			continue
		}
		var group []*port
		gpus := map[string]bool{}
		for _, q := range ports {
			if near[q] != nil && samePart(p, q) {
				group = append(group, q)
				for _, g := range near[q].gpus {
					gpus[g] = true
				}
			}
		}
		if slices.Index(group, p) > 0 {
			continue // counted already
		}
		switch k := len(gpus); {
		case k > best:
			most, best, as = group, k, 1
		case k == best:
			as++
		}
	}
	if as > 1 {
		return nil
	}
	return most
}

// rejectFarFromGPUs: a machine that was built with a port for each of its GPUs
// was built with the others for something else (NVIDIA's DGX and HGX, AMD's and
// the clouds' machines of that shape). One GPU is no such pattern, nor is a
// machine where a GPU has no port of its own. A card beside some GPUs, all of
// which have the card that most GPUs have, is one of the others: storage is often
// plugged into the GPUs' own switches.
func rejectFarFromGPUs(s *state, n *node) {
	near, served, known := besideGPU(n)
	if !known {
		return
	}
	left := n.remaining()
	some := slices.ContainsFunc(left, func(p *port) bool { return near[p] != nil })
	if !some {
		return
	}
	most := besideMost(near, left)
	has := map[string]bool{}
	for _, p := range most {
		for _, g := range near[p].gpus {
			has[g] = true
		}
	}
	second := func(p *port) bool {
		return len(most) > 0 && near[p] != nil && !samePart(p, most[0]) && !slices.ContainsFunc(near[p].gpus, func(g string) bool { return !has[g] })
	}
	all := len(n.h.GPUs) >= 2 && served == len(n.h.GPUs)
	for _, p := range left {
		switch {
		case second(p):
			p.see(0, "%s, as is %s, which more GPUs have", near[p].text, most[0].name())
		case near[p] != nil && len(most) > 0:
			p.see(weighsGPU, "%s", near[p].text)
		case near[p] != nil:
			p.see(0, "%s, as are other cards", near[p].text)
		}
		if s.byProfile() || near[p] != nil && !second(p) {
			continue
		}
		if !all {
			p.see(weighsNoGPU, "no GPU beside it alone, while other ports have one")
			continue
		}
		p.rejectID = "hca.beside-gpu"
		p.reject = fmt.Sprintf("no GPU is on its PCIe switch, and each of the %d GPUs has a port of its own: storage or management", len(n.h.GPUs))
		if second(p) {
			p.reject = fmt.Sprintf("another card than %s, beside GPUs that have one of those: storage or management", most[0].name())
		} else {
			p.see(0, "no GPU beside it")
		}
	}
}

// byProfile says whether the profile itself says which ports are the job's: then
// nothing that is seen of them undoes it.
func (s *state) byProfile() bool { return len(s.in.Profile.Fabric.Subnets) > 0 }

// ownFabric says whether a port is of a fabric that serves nothing but jobs, and
// why: its network is never a site's ordinary Ethernet.
func (p *port) ownFabric() (string, bool) {
	switch p.family {
	case topology.CXI:
		return "Slingshot", true
	case topology.EFA:
		return "EFA", true
	case topology.PSM:
		return "Omni-Path", true
	}
	if !p.infiniband() {
		return "", false
	}
	if p.p.LID != nil && *p.p.LID == 0 {
		return "InfiniBand without a LID", false
	}
	if p.p.LID != nil {
		return fmt.Sprintf("InfiniBand with LID %d", *p.p.LID), true
	}
	return "InfiniBand", true
}

// rejectOtherKind keeps one kind of fabric where a host has several and neither
// the profile nor the GPUs said which: the summed rate of Ethernet ports does
// not outvote an InfiniBand port that a subnet manager has set up.
func rejectOtherKind(s *state, n *node) {
	if s.in.Profile.Fabric.LinkLayer != "" {
		return
	}
	var own, other []*port
	kind := ""
	for _, p := range n.remaining() {
		word, ok := p.ownFabric()
		switch {
		case ok:
			p.see(0, "%s", word)
			own = append(own, p)
			kind = cmp.Or(kind, word)
		case p.roce() || p.infiniband():
			other = append(other, p)
		}
	}
	if len(own) == 0 {
		rejectUnmanaged(other)
		return
	}
	if len(other) == 0 {
		return
	}
	what := "Ethernet"
	for _, p := range other {
		if p.infiniband() {
			p.rejectID, p.reject = "hca.fabric", "InfiniBand that no subnet manager has given a LID"
			continue
		}
		p.rejectID, p.reject = "hca.fabric", "Ethernet beside "+own[0].name()+" ("+kind+")"
	}
	s.add(finding.Finding{
		ID: "hca.two-fabrics", Severity: finding.Note, Host: n.h.Name, Subject: strings.Join(portNames(own), ", "),
		Seen: kind + "; and " + what + ": " + strings.Join(portNames(other), ", "), Wanted: "",
		Why: "a job runs on one fabric: " + strings.Fields(kind)[0] + " is taken, which serves nothing else", Hint: `link_layer = "ethernet" in the profile takes the other`,
	})
}

// rejectUnmanaged leaves out InfiniBand ports without a LID where Ethernet is there.
func rejectUnmanaged(ports []*port) {
	if !slices.ContainsFunc(ports, (*port).roce) {
		return
	}
	for _, p := range ports {
		if p.infiniband() {
			p.rejectID, p.reject = "hca.fabric", "InfiniBand that no subnet manager has given a LID"
		}
	}
}

// above are the interfaces over a netdev: its VLANs, its bond, its bridge, and
// theirs. Addresses may live on any of them.
func (n *node) above(name string) []string {
	out := []string{}
	for todo := []string{name}; len(todo) > 0 && len(out) < 64; todo = todo[1:] {
		for _, d := range n.h.Netdevs {
			over := d.Lower == todo[0] && d.Lower != ""
			if below := n.netdev(todo[0]); below != nil && below.Master != "" && below.Master == d.Name {
				over = true
			}
			if over && d.Name != name && !slices.Contains(out, d.Name) {
				out, todo = append(out, d.Name), append(todo, d.Name)
			}
		}
	}
	return out
}

// defaultDev is the interface of the main table's best default route among
// those that will do; "" none known.
func (n *node) defaultDev(will func(*topology.Netdev) bool) string {
	var best *topology.Route
	for i := range n.h.Routes {
		r := &n.h.Routes[i]
		if r.Dst.IsValid() && r.Dst.Bits() == 0 && (r.Table == 0 || r.Table == 254) && will(n.netdev(r.Netdev)) &&
			(best == nil || r.Metric < best.Metric || r.Metric == best.Metric && r.Dst.Addr().Is4() && best.Dst.Addr().Is6()) {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	return best.Netdev
}

func anyDev(d *topology.Netdev) bool { return true }

// shape is a card: how many ports it shows, PFs alone.
func (n *node) shape(p *port) int {
	if p.hca.VF || p.hca.PCI == "" || p.hca.Bond {
		return 1
	}
	count := 0
	for i := range n.h.HCAs {
		if c := &n.h.HCAs[i]; !c.VF && slot(c.PCI) == slot(p.hca.PCI) {
			count += len(c.Ports)
		}
	}
	return count
}

func slot(pci string) string {
	s, _, _ := strings.Cut(pci, ".")
	return s
}

func (p *port) trust() string {
	if d, _ := p.node.dcbOf(p); d != nil {
		return d.Trust
	}
	return ""
}

func (p *port) lossless() bool {
	d, _ := p.node.dcbOf(p)
	return d != nil && d.Trust == "dscp" && len(d.PFC) > 0
}

// netMTU is the netdev's MTU; 0 unknown.
func (p *port) netMTU() int {
	if p.netdev == nil || p.netdev.MTU == nil || !p.roce() {
		return 0
	}
	return *p.netdev.MTU
}

// prefix is the upper half of an InfiniBand port's GID 0: its subnet.
func (p *port) prefix() (netip.Prefix, bool) {
	if !p.infiniband() || len(p.p.GIDs) == 0 || p.p.GIDs[0].Index != 0 {
		return netip.Prefix{}, false
	}
	pre, err := p.p.GIDs[0].Addr.Prefix(64)
	return pre, err == nil
}

// likely are the ports of the card that is most probably the fabric's: beside
// GPUs, set up lossless, not the way out, the most bandwidth together, cards of
// one port.
func likely(s *state, n *node, ports []*port) []*port {
	var groups [][]*port
	for _, p := range ports {
		i := slices.IndexFunc(groups, func(g []*port) bool { return samePart(g[0], p) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], p)
	}
	count := func(g []*port, has func(*port) bool) int {
		k := 0
		for _, p := range g {
			if has(p) {
				k++
			}
		}
		return k
	}
	some := func(g []*port, has func(*port) bool) int { return min(1, count(g, has)) }
	rate := func(g []*port) float64 {
		sum := 0.0
		for _, p := range g {
			sum += p.rate()
		}
		return sum
	}
	gpu := func(p *port) bool { return p.weight() > 0 }
	out, known := s.wayOut(n)
	inside := func(p *port) bool { return !n.carries(p, out) && !n.carries(p, known) }
	return slices.MaxFunc(groups, func(a, b []*port) int {
		return cmp.Or(
			some(a, gpu)-some(b, gpu),
			some(a, (*port).lossless)-some(b, (*port).lossless),
			some(a, inside)-some(b, inside),
			cmp.Compare(rate(a), rate(b)),
			n.shape(b[0])-n.shape(a[0]),
			cmp.Compare(a[0].rate(), b[0].rate()),
		)
	})
}

// carries says whether an interface is a port's own, or over it.
func (n *node) carries(p *port, dev string) bool {
	return dev != "" && (p.p.Netdev == dev || slices.Contains(n.above(p.p.Netdev), dev))
}

// wayOut are the interfaces of the default route and of the address by which the
// hosts know each other, where the profile does not say that this is the fabric.
func (s *state) wayOut(n *node) (out, known string) {
	if s.in.Profile.Fabric.Bootstrap == "fabric" {
		return "", ""
	}
	if d, _ := s.knownBy(n); d != nil {
		known = d.Name
	}
	return n.defaultDev(anyDev), known
}

// rejectOtherRoles weighs what is seen of each port against its siblings.
func rejectOtherRoles(s *state, n *node) {
	ports := n.remaining()
	if len(ports) < 2 {
		return
	}
	most := likely(s, n, ports)
	if !s.byProfile() {
		s.weighNetworks(n, ports)
	}
	for _, p := range ports {
		var others []*port
		for _, q := range most {
			if q != p {
				others = append(others, q)
			}
		}
		weighCard(n, p, most[0], s.byProfile())
		if s.byProfile() {
			continue
		}
		for _, q := range others {
			if pm, qm := p.netMTU(), q.netMTU(); pm > 0 && pm <= 1500 && qm >= jumboFromBytes {
				p.see(weighsMTU, "MTU %d beside %s's %d", pm, q.name(), qm)
				break
			}
		}
		for _, q := range others {
			if p.trust() == "pcp" && q.trust() == "dscp" {
				p.see(weighsTrust, "trusts pcp, and %s dscp", q.name())
				break
			}
		}
		if pre, ok := p.prefix(); ok && len(others) > 0 {
			if other, ok := others[0].prefix(); ok && other != pre {
				p.see(weighsPrefix, "InfiniBand subnet %s, and %s is in %s", pre, others[0].name(), other)
			}
		}
	}
	best := slices.MaxFunc(ports, func(a, b *port) int { return cmp.Compare(a.weight(), b.weight()) })
	for _, p := range ports {
		if p.weight() <= apart && p.weight() < best.weight() {
			p.rejectID, p.reject = "hca.role", p.role()+": "+p.said()
		}
	}
}

// weighNetworks looks at whose network a port is in. An InfiniBand port's
// addresses are not how it connects.
func (s *state) weighNetworks(n *node, ports []*port) {
	out, known := s.wayOut(n)
	for _, p := range ports {
		if !p.roce() {
			continue
		}
		switch name := s.in.Profile.Fabric.Bootstrap; {
		case n.carries(p, out):
			p.see(weighsRoute, "the default route goes over %s", out)
		case name != "" && n.carries(p, name):
			p.see(weighsNamed, "%s is the profile's bootstrap interface", name)
		case n.carries(p, known):
			p.see(weighsKnownBy, "the job's hosts know this one by %s", known)
		default:
			continue
		}
		p.signals[len(p.signals)-1].manage = true
		for _, q := range ports {
			switch {
			case q == p || !q.roce():
				continue
			case p.subnet.IsValid() && p.subnet == q.subnet:
				p.see(weighsSameNet, "%s is in the same subnet %s", q.name(), q.subnet)
			case slot(q.hca.PCI) == slot(p.hca.PCI) && p.hca.PCI != "" && p.netMTU() == q.netMTU() && p.trust() == q.trust():
				p.see(weighsTwin, "on one card with %s, and set up alike", q.name())
			default:
				continue
			}
			break
		}
	}
}

// weighCard holds a port's card against the fabric's. Half as fast or twice as
// fast is another class only with another part: the same part at half its rate is
// a sick link, which is reported and not hidden.
func weighCard(n *node, p, ref *port, rateOnly bool) {
	if samePart(p, ref) {
		return
	}
	if topology.DriverNamed(p.hca.Driver).Software && !topology.DriverNamed(ref.hca.Driver).Software {
		p.see(weighsSpeed, "%s is software beside real cards", p.hca.Driver)
		return
	}
	if p.rate() > 0 && ref.rate() > 0 && (p.rate() <= ref.rate()/2 || p.rate() >= ref.rate()*2) {
		p.see(weighsSpeed, "%g Gb/s beside %s with %g Gb/s, and another part", p.rate(), ref.name(), ref.rate())
		return
	}
	if rateOnly {
		return
	}
	p.see(weighsPart, "another card than %s", ref.name())
	if k := n.shape(p); k > 1 && n.shape(ref) == 1 {
		p.see(weighsDual, "a card of %d ports among cards of one", k)
	}
}

// role names what a port that is not the job's is for.
func (p *port) role() string {
	if slices.ContainsFunc(p.signals, func(s signal) bool { return s.manage }) {
		return "management"
	}
	return "storage or management"
}

// alike says whether a port that cannot be used is made like those in use here,
// so that it was probably meant to be one of them. Of any other port nothing is
// known that would make it the job's, and nothing is asked of it.
func (p *port) alike() bool {
	if p.netdev != nil && p.netdev.Master != "" {
		return false // its addresses live on the bond or bridge above
	}
	if p.elsewhere() {
		return false
	}
	return slices.ContainsFunc(p.node.use, func(q *port) bool {
		return samePart(p, q) && p.p.LinkLayer == q.p.LinkLayer && p.hca.VF == q.hca.VF &&
			(p.rate() == 0 || q.rate() == 0 || p.rate() == q.rate() || p.p.State != "ACTIVE")
	})
}

// elsewhere says whether a port's addresses belong to another network namespace:
// the host's own ports, seen from a container that was given others.
func (p *port) elsewhere() bool {
	return slices.ContainsFunc(p.p.GIDs, func(g topology.GID) bool { return g.NdevUnreadable != "" }) || p.p.GIDUnreadable != ""
}
