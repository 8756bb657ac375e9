package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Paths returns the way from every GPU to every HCA, GPU by GPU, and then the
// way between every two GPUs. On a host whose PCI tree cannot be trusted
// (Hidden) the types are unknown.
func Paths(h Host) []Path {
	t := newTree(&h)
	paths := t.toHCAs()
	for i := range h.GPUs {
		for j := i + 1; j < len(h.GPUs); j++ {
			paths = append(paths, t.toGPU(&h.GPUs[i], &h.GPUs[j]))
		}
	}
	return paths
}

// PathsToHCAs is the first part of Paths: GPUs to HCAs alone.
func PathsToHCAs(h Host) []Path { return newTree(&h).toHCAs() }

// NearestHCAs returns the way from one GPU to every HCA, nearest first: by
// NCCL's type, then nvidia-smi's, then bandwidth, then hops, then name.
func NearestHCAs(h Host, gpu GPU) []Path {
	t := newTree(&h)
	var paths []Path
	for j := range h.HCAs {
		paths = append(paths, t.toHCA(&gpu, &h.HCAs[j]))
	}
	t.markP2C(paths)
	slices.SortStableFunc(paths, func(a, b Path) int {
		return cmp.Or(CompareDistance(a, b), CompareNatural(a.HCA, b.HCA))
	})
	return paths
}

// CompareDistance orders paths nearest first; unknown is farthest.
func CompareDistance(a, b Path) int {
	gbps := func(p Path) float64 {
		if p.GBps == nil {
			return 0
		}
		return *p.GBps
	}
	return cmp.Or(
		cmp.Compare(a.NCCL.rank(), b.NCCL.rank()),
		cmp.Compare(a.SMI.rank(), b.SMI.rank()),
		cmp.Compare(gbps(b), gbps(a)),
		cmp.Compare(len(a.Chain), len(b.Chain)),
	)
}

// order is NCCL's since 2.27, with nvidia-smi's NODE where it belongs.
var order = []PathType{LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, NODE, SYS, DIS}

func (p PathType) rank() int {
	if i := slices.Index(order, p); i >= 0 {
		return i
	}
	return len(order)
}

// Closer reports whether p is a shorter way than q; unknown is never closer.
func (p PathType) Closer(q PathType) bool { return p.rank() < q.rank() }

// tree is a Host's PCI tree seen upwards.
type tree struct {
	h    *Host
	dev  map[string]*PCIDevice
	flat bool // every parent is a node of NCCL's: the tree came from an XML
	ups  map[string]ways
	// firstCPU is where NCCL puts NICs that are no PCI devices.
	firstCPU int
}

func newTree(h *Host) *tree {
	t := &tree{h: h, dev: make(map[string]*PCIDevice, len(h.PCI)), flat: h.XML, ups: map[string]ways{}}
	for i := range h.PCI {
		t.dev[h.PCI[i].Address] = &h.PCI[i]
	}
	t.firstCPU = noNUMA
	if len(h.GPUs) > 0 {
		t.firstCPU = t.numa(h.GPUs[0].PCI, h.GPUs[0].NUMA)
	}
	return t
}

// ways are the ports and the switches above a device: they are asked for once a pair.
type ways struct{ ports, switches []string }

// noNUMA is the CPU that NCCL makes for devices without a NUMA node (numaid −1).
const noNUMA = -1

func (t *tree) numa(addr string, own *int) int {
	if d := t.dev[addr]; d != nil && d.NUMA != nil {
		return *d.NUMA
	}
	if own != nil {
		return *own
	}
	return noNUMA
}

// maxDepth bounds walks up: bus numbers are bytes.
const maxDepth = 256

// above is up and switches of addr.
func (t *tree) above(addr string) ways {
	w, known := t.ups[addr]
	if !known {
		w.ports = t.up(addr)
		w.switches = t.switches(w.ports)
		t.ups[addr] = w
	}
	return w
}

// up is every port above addr, nearest first.
func (t *tree) up(addr string) []string {
	var ports []string
	for d := t.dev[addr]; d != nil && d.Parent != "" && len(ports) < maxDepth; d = t.dev[d.Parent] {
		ports = append(ports, d.Parent)
	}
	return ports
}

// switches is NCCL's view of up: components are consumed in pairs (downstream
// port, upstream port) and the upstream port stands for the switch; a root port
// is no node. Broadcom's PEX chips that show as two levels are one.
func (t *tree) switches(ports []string) []string {
	if t.flat {
		return t.flatten(ports)
	}
	var nodes []string
	for i := 1; i < len(ports); i += 2 {
		nodes = append(nodes, ports[i])
	}
	return t.flatten(nodes)
}

// flatten merges a PEX child switch into the parent right above it.
func (t *tree) flatten(nodes []string) []string {
	out := make([]string, 0, len(nodes))
	for i, n := range nodes {
		if i+1 < len(nodes) {
			gen := pexGeneration(t.dev[nodes[i+1]], 0)
			if gen != 0 && gen == pexGeneration(t.dev[n], 1) {
				continue
			}
		}
		out = append(out, n)
	}
	return out
}

// pexGeneration recognises a Broadcom PEX switch by vendor, device and
// subsystem, as NCCL does; level is 0 for the parent, 1 for the child.
func pexGeneration(d *PCIDevice, level uint64) int {
	if d == nil || d.Vendor == nil || d.Device == nil || d.SubVendor == nil || d.SubDevice == nil {
		return 0
	}
	id := uint64(*d.Vendor)<<48 | uint64(*d.Device)<<32 | uint64(*d.SubVendor)<<16 | uint64(*d.SubDevice)
	switch id &^ 0xfff {
	case 0x1000c0101000a000:
		return 4
	case 0x1000c03010000000 | level*0x1000:
		return 5
	}
	return 0
}

// ncclType is the distance between two PCI devices by NCCL's rules.
func (t *tree) ncclType(a, b string, numaA, numaB int) PathType {
	if a == b {
		return LOC
	}
	sa, sb := t.above(a).switches, t.above(b).switches
	for i, s := range sa {
		j := slices.Index(sb, s)
		if j < 0 {
			continue
		}
		if i == 0 && j == 0 {
			return PIX
		}
		return PXB
	}
	// In an XML a device can hang below another's node.
	if slices.Contains(sa, b) || slices.Contains(sb, a) {
		return PIX
	}
	if numaA == numaB {
		return PHB
	}
	return SYS
}

// smiType is what nvidia-smi topo -m shows: it counts bridges, tells host
// bridges of one NUMA node apart, and knows nothing of NCCL's pairs.
func (t *tree) smiType(a, b string, numaA, numaB int) PathType {
	ua, ub := t.above(a).ports, t.above(b).ports
	for i, s := range ua {
		j := slices.Index(ub, s)
		if j < 0 {
			continue
		}
		// Two ports (down, up) are one switch: deeper on either side is a second.
		if i <= 1 && j <= 1 {
			return PIX
		}
		return PXB
	}
	da, db := t.dev[a], t.dev[b]
	if da != nil && db != nil && da.RootBus != "" && da.RootBus == db.RootBus {
		return PHB
	}
	switch {
	case numaA != numaB && numaA != noNUMA && numaB != noNUMA:
		return SYS
	case t.flat:
		return "" // an XML does not say which root complex
	case numaA == numaB && numaA != noNUMA, len(t.h.NUMA) <= 1:
		return NODE
	default:
		return SYS
	}
}

func (t *tree) toHCAs() []Path {
	paths := make([]Path, 0, len(t.h.GPUs)*(len(t.h.HCAs)+len(t.h.GPUs)/2))
	for i := range t.h.GPUs {
		for j := range t.h.HCAs {
			paths = append(paths, t.toHCA(&t.h.GPUs[i], &t.h.HCAs[j]))
		}
	}
	t.markP2C(paths)
	return paths
}

func (t *tree) toHCA(g *GPU, c *HCA) Path {
	p := Path{From: g.PCI, To: c.PCI, HCA: c.Name}
	gn := t.numa(g.PCI, g.NUMA)
	if c.PCI == "" {
		p.To = c.Name
		p.NCCL = SYS
		if cpu := t.nicCPU(c); cpu == gn {
			p.NCCL = PHB
		}
		if t.h.Hidden != "" {
			p.NCCL = ""
		}
		return p
	}
	t.fill(&p, g.PCI, c.PCI, gn, t.numa(c.PCI, c.NUMA))
	if c.DataDirect != "" {
		// The NIC reaches GPU memory through this second function.
		q := Path{From: g.PCI, To: c.PCI, HCA: c.Name}
		t.fill(&q, g.PCI, c.DataDirect, gn, t.numa(c.DataDirect, nil))
		if q.NCCL.Closer(p.NCCL) {
			p = q
		}
	}
	return p
}

// nicCPU is the CPU of a NIC without a PCI device: where an XML puts it, else
// NCCL's first CPU.
func (t *tree) nicCPU(c *HCA) int {
	if c.NUMA != nil {
		return *c.NUMA
	}
	return t.firstCPU
}

func (t *tree) toGPU(a, b *GPU) Path {
	p := Path{From: a.PCI, To: b.PCI}
	t.fill(&p, a.PCI, b.PCI, t.numa(a.PCI, a.NUMA), t.numa(b.PCI, b.NUMA))
	n, viaSwitch := gpuLinks(a, b)
	switch {
	case t.h.Hidden != "" && n+viaSwitch == 0:
	case n > 0:
		p.NCCL, p.SMI, p.NVLinks = NVL, NVL, n
	case viaSwitch > 0:
		p.NCCL, p.SMI, p.NVLinks = NVL, NVL, viaSwitch
	case t.throughGPU(a, b):
		p.NCCL = NVB
	}
	if p.NCCL == NVL {
		p.LinkKind = slices.Concat(a.Links, b.Links)[0].Kind
		p.GBps, p.Narrow, p.Degraded = nil, "", ""
		p.Chain = []string{a.PCI, b.PCI}
	}
	return p
}

// gpuLinks counts the direct connections of two GPUs, and those through an
// NVSwitch, which reaches every GPU on it.
func gpuLinks(a, b *GPU) (direct, viaSwitch int) {
	toSwitch := func(g *GPU) int {
		n := 0
		for _, l := range g.Links {
			if l.Kind == "nvlink" && l.Class != nil && *l.Class>>8 == 0x0680 && *l.Class != classCPUBridge {
				n += l.Count
			}
		}
		return n
	}
	count := func(from *GPU, to string) int {
		n := 0
		for _, l := range from.Links {
			if l.Target == to && l.Kind != "c2c" {
				n += l.Count
			}
		}
		return n
	}
	direct = max(count(a, b.PCI), count(b, a.PCI))
	return direct, min(toSwitch(a), toSwitch(b))
}

// classCPUBridge is the class by which POWER's NVLink to the CPU shows.
const classCPUBridge = 0x068001

// throughGPU reports that one GPU between them has links to both.
func (t *tree) throughGPU(a, b *GPU) bool {
	for i := range t.h.GPUs {
		m := &t.h.GPUs[i]
		if m.PCI == a.PCI || m.PCI == b.PCI {
			continue
		}
		na, _ := gpuLinks(a, m)
		nb, _ := gpuLinks(m, b)
		if na > 0 && nb > 0 {
			return true
		}
	}
	return false
}

// markP2C: a GPU on the coherent link of its CPU reaches the NICs of that CPU
// over it, which NCCL ranks between PXB and PXN.
func (t *tree) markP2C(paths []Path) {
	for i := range paths {
		if paths[i].NCCL != PHB {
			continue
		}
		for _, g := range t.h.GPUs {
			if g.PCI == paths[i].From && slices.ContainsFunc(g.Links, func(l GPULink) bool { return l.Kind == "c2c" }) {
				paths[i].NCCL = P2C
			}
		}
	}
}

func (t *tree) fill(p *Path, a, b string, numaA, numaB int) {
	ua, ub := t.above(a).ports, t.above(b).ports
	// meet is the index of the first common port, on both sides.
	meetA, meetB := len(ua), len(ub)
	for i, s := range ua {
		if j := slices.Index(ub, s); j >= 0 {
			meetA, meetB = i, j
			break
		}
	}
	p.Chain = make([]string, 0, meetA+meetB+4)
	p.Chain = append(p.Chain, a)
	p.Chain = append(p.Chain, ua[:meetA]...)
	if meetA < len(ua) {
		p.Chain = append(p.Chain, ua[meetA])
	} else {
		p.Chain = append(p.Chain, cpuName(numaA))
		if numaB != numaA {
			p.Chain = append(p.Chain, cpuName(numaB))
		}
	}
	for _, s := range slices.Backward(ub[:meetB]) {
		p.Chain = append(p.Chain, s)
	}
	p.Chain = append(p.Chain, b)
	if t.h.Hidden != "" {
		return
	}
	p.NCCL = t.ncclType(a, b, numaA, numaB)
	p.SMI = t.smiType(a, b, numaA, numaB)
	t.narrow(p, a)
	for _, addr := range ua[:meetA] {
		t.narrow(p, addr)
	}
	t.narrow(p, b)
	for _, addr := range ub[:meetB] {
		t.narrow(p, addr)
	}
	if t.gbps(a) == nil || t.gbps(b) == nil {
		p.GBps, p.Narrow = nil, ""
	}
}

func cpuName(numa int) string {
	if numa == noNUMA {
		return "cpu?"
	}
	return fmt.Sprintf("cpu%d", numa)
}

// narrow looks at one link of the path. A link shows at both its ends; the
// lower one is asked, so downstream and root ports are left out.
func (t *tree) narrow(p *Path, addr string) {
	d := t.dev[addr]
	if d == nil || d.Port == "root" || d.Port == "downstream" {
		return
	}
	if bw := d.Link.GBps(); bw != nil && (p.GBps == nil || *bw < *p.GBps) {
		p.GBps, p.Narrow = bw, addr
	}
	if p.Degraded == "" && t.degraded(d) {
		p.Degraded = addr
	}
}

func (t *tree) gbps(addr string) *float64 {
	if d := t.dev[addr]; d != nil {
		return d.Link.GBps()
	}
	return nil
}

// DegradedLinks are the devices whose link is below what both its ends can do.
func DegradedLinks(h Host) []string {
	t := newTree(&h)
	var out []string
	for i := range h.PCI {
		if d := &h.PCI[i]; d.Port != "root" && d.Port != "downstream" && t.degraded(d) {
			out = append(out, d.Address)
		}
	}
	return out
}

// degraded reports a link below what its two ends allow. Idle GPUs lower their
// link speed to save power, so for them only the width counts.
func (t *tree) degraded(d *PCIDevice) bool {
	most := d.LinkMax
	if up := t.dev[d.Parent]; up != nil {
		most.SpeedMTps = minKnown(most.SpeedMTps, up.LinkMax.SpeedMTps)
		most.Width = minKnown(most.Width, up.LinkMax.Width)
	}
	if d.Link.Width != nil && most.Width != nil && *d.Link.Width < *most.Width {
		return true
	}
	if slices.ContainsFunc(t.h.GPUs, func(g GPU) bool { return g.PCI == d.Address }) {
		return false
	}
	return d.Link.SpeedMTps != nil && most.SpeedMTps != nil && *d.Link.SpeedMTps < *most.SpeedMTps
}

func minKnown(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// laneGBps is what one lane carries after encoding and protocol, in NCCL's
// table, in units of 0.0125 GB/s (100 Mb/s as it counts them).
var laneGBps = map[int]float64{2500: 15, 5000: 30, 8000: 60, 16000: 120, 32000: 240, 64000: 480, 128000: 960}

// GBps is the bandwidth of a link as NCCL counts it, gigabytes per second; nil unknown.
func (l Link) GBps() *float64 {
	if l.SpeedMTps == nil || l.Width == nil {
		return nil
	}
	lane, ok := laneGBps[*l.SpeedMTps]
	if !ok {
		return nil
	}
	bw := float64(*l.Width) * lane / 80
	return &bw
}
