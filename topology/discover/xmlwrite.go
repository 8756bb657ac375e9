package discover

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// WriteXML writes the host as NCCL's detection would describe it: a switch is
// its upstream port, root ports do not show, all functions of one NIC are one.
// NCCL takes the file through NCCL_TOPO_FILE and completes it. <gpu> elements
// are written only where the compute capability of every GPU is known, because
// NCCL does not accept one without.
func WriteXML(w io.Writer, h topology.Host) error {
	x := &xmlWriter{h: &h, dev: map[string]*topology.PCIDevice{}, children: map[string][]string{}, top: map[int][]string{}, placed: map[string]bool{}}
	for i := range h.PCI {
		x.dev[h.PCI[i].Address] = &h.PCI[i]
	}
	x.sm = make([]int, len(h.GPUs))
	x.gpuTags = len(h.GPUs) > 0
	for i, g := range h.GPUs {
		major, minor, ok := strings.Cut(g.Capability, ".")
		a, err1 := strconv.Atoi(major)
		b, err2 := strconv.Atoi(minor)
		if !ok || err1 != nil || err2 != nil || b > 9 {
			x.gpuTags = false
			continue
		}
		x.sm[i] = a*10 + b
	}
	x.collect()
	x.printf(0, `<system version="1">`)
	for _, numa := range x.cpus() {
		x.cpu(numa)
	}
	x.printf(0, `</system>`)
	_, err := w.Write(x.b.Bytes())
	return err
}

type xmlWriter struct {
	h        *topology.Host
	b        bytes.Buffer
	dev      map[string]*topology.PCIDevice
	children map[string][]string // node → nodes below
	top      map[int][]string    // NUMA node (−1 unknown) → nodes below
	placed   map[string]bool
	nets     map[string][]*topology.HCA // node → its NICs
	sm       []int
	gpuTags  bool
}

func (x *xmlWriter) printf(depth int, format string, args ...any) {
	x.b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&x.b, format, args...)
	x.b.WriteByte('\n')
}

func numaOr(numa *int) int {
	if numa == nil {
		return -1
	}
	return *numa
}

// nicNode is where NCCL puts an HCA: at function 0 of its card.
func (x *xmlWriter) nicNode(c *topology.HCA) string {
	if c.PCI == "" || x.h.XML {
		return c.PCI
	}
	if zero := c.PCI[:len(c.PCI)-1] + "0"; x.dev[zero] != nil {
		return zero
	}
	return c.PCI
}

func (x *xmlWriter) collect() {
	x.nets = map[string][]*topology.HCA{}
	for i := range x.h.GPUs {
		x.place(x.h.GPUs[i].PCI)
	}
	for i := range x.h.HCAs {
		c := &x.h.HCAs[i]
		node := x.nicNode(c)
		x.nets[node] = append(x.nets[node], c)
		if node != "" {
			x.place(node)
		}
	}
}

// place adds a device and the switches above it.
func (x *xmlWriter) place(addr string) {
	numa := -1
	if d := x.dev[addr]; d != nil {
		numa = numaOr(d.NUMA)
	}
	for addr != "" && !x.placed[addr] {
		x.placed[addr] = true
		up := x.above(addr)
		if up == "" {
			x.top[numa] = append(x.top[numa], addr)
			return
		}
		x.children[up] = append(x.children[up], addr)
		addr = up
	}
}

// above is the node that NCCL sees above addr: two components up, unless that
// passes the root.
func (x *xmlWriter) above(addr string) string {
	d := x.dev[addr]
	if d == nil {
		return ""
	}
	if x.h.XML {
		return d.Parent
	}
	if up := x.dev[d.Parent]; up != nil {
		return up.Parent
	}
	return ""
}

func (x *xmlWriter) cpus() []int {
	var ids []int
	for id := range x.top {
		ids = append(ids, id)
	}
	for _, n := range x.h.NUMA {
		if !slices.Contains(ids, n.ID) && len(n.CPUs) > 0 {
			ids = append(ids, n.ID)
		}
	}
	for _, c := range x.nets[""] {
		if !slices.Contains(ids, numaOr(c.NUMA)) {
			ids = append(ids, numaOr(c.NUMA))
		}
	}
	slices.Sort(ids)
	return ids
}

func (x *xmlWriter) cpu(numa int) {
	cpus := x.h.CPU.Online
	for _, n := range x.h.NUMA {
		if n.ID == numa {
			cpus = n.CPUs
		}
	}
	c := x.h.CPU
	attrs := fmt.Sprintf(`numaid="%d" affinity="%s"`, numa, formatMask(cpus))
	if c.Arch != "" {
		attrs += fmt.Sprintf(` arch="%s"`, escape(c.Arch))
		if c.Vendor != "" && c.Arch == "x86_64" {
			attrs += fmt.Sprintf(` vendor="%s"`, escape(c.Vendor))
		}
		if c.Family != nil && c.ModelID != nil {
			attrs += fmt.Sprintf(` familyid="%d" modelid="%d"`, *c.Family, *c.ModelID)
		}
	}
	x.printf(1, `<cpu %s>`, attrs)
	for _, addr := range slices.SortedFunc(slices.Values(x.top[numa]), topology.ComparePCI) {
		x.pciNode(addr, 2)
	}
	var bare []*topology.HCA
	for _, c := range x.nets[""] {
		if numaOr(c.NUMA) == numa {
			bare = append(bare, c)
		}
	}
	x.nic(bare, 2)
	x.printf(1, `</cpu>`)
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}

func formatMask(cpus []int) string {
	if len(cpus) == 0 {
		return "0"
	}
	words := make([]uint32, slices.Max(cpus)/32+1)
	for _, c := range cpus {
		words[c/32] |= 1 << (c % 32)
	}
	var parts []string
	for _, w := range slices.Backward(words) {
		parts = append(parts, fmt.Sprintf("%08x", w))
	}
	return strings.Join(parts, ",")
}

func (x *xmlWriter) pciNode(addr string, depth int) {
	d := x.dev[addr]
	if d == nil {
		d = &topology.PCIDevice{Address: addr}
	}
	busid, _, _ := strings.Cut(addr, "#")
	attrs := fmt.Sprintf(`busid="%s"`, busid)
	if d.Class != nil {
		attrs += fmt.Sprintf(` class="0x%06x"`, *d.Class)
	}
	for _, f := range []struct {
		name string
		id   *uint16
	}{{"vendor", d.Vendor}, {"device", d.Device}, {"subsystem_vendor", d.SubVendor}, {"subsystem_device", d.SubDevice}} {
		if f.id != nil {
			attrs += fmt.Sprintf(` %s="0x%04x"`, f.name, *f.id)
		}
	}
	speed, width := x.link(d)
	attrs += fmt.Sprintf(` link_speed="%s" link_width="%d"`, speed, width)
	gpu := slices.IndexFunc(x.h.GPUs, func(g topology.GPU) bool { return g.PCI == addr })
	nics := x.nets[addr]
	below := x.children[addr]
	if len(below) == 0 && !hasNames(nics) && (gpu < 0 || !x.gpuTags) {
		x.printf(depth, `<pci %s/>`, attrs)
		return
	}
	x.printf(depth, `<pci %s>`, attrs)
	if gpu >= 0 && x.gpuTags {
		x.gpu(gpu, depth+1)
	}
	x.nic(nics, depth+1)
	for _, c := range slices.SortedFunc(slices.Values(below), topology.ComparePCI) {
		x.pciNode(c, depth+1)
	}
	x.printf(depth, `</pci>`)
}

// link is what NCCL reads from sysfs: the smaller of what both ends can do.
// An empty speed and width 0 are its words for unknown.
func (x *xmlWriter) link(d *topology.PCIDevice) (string, int) {
	l := d.LinkMax
	if l.SpeedMTps == nil && l.Width == nil {
		l = d.Link
	}
	if up := x.dev[d.Parent]; up != nil && !x.h.XML {
		if up.LinkMax.SpeedMTps != nil && l.SpeedMTps != nil && *up.LinkMax.SpeedMTps < *l.SpeedMTps {
			l.SpeedMTps = up.LinkMax.SpeedMTps
		}
		if up.LinkMax.Width != nil && l.Width != nil && *up.LinkMax.Width < *l.Width {
			l.Width = up.LinkMax.Width
		}
	}
	speed, width := "", 0
	if l.SpeedMTps != nil {
		speed = fmt.Sprintf("%.1f GT/s PCIe", float64(*l.SpeedMTps)/1000)
	}
	if l.Width != nil {
		width = *l.Width
	}
	return speed, width
}

func hasNames(nics []*topology.HCA) bool {
	return slices.ContainsFunc(nics, func(c *topology.HCA) bool { return c.Class != "pci" })
}

// unseenTarget is what NCCL writes for an NVSwitch that this machine does not
// see: that of a guest, and those of NVLink domains and of Blackwell's boards.
const unseenTarget = "fffffff:ffff:ff"

func (x *xmlWriter) gpu(i, depth int) {
	g := x.h.GPUs[i]
	attrs := fmt.Sprintf(`dev="%d" sm="%d" rank="%d" gdr="%d"`, i, x.sm[i], i, x.gdr())
	if len(g.Links) == 0 {
		x.printf(depth, `<gpu %s/>`, attrs)
		return
	}
	x.printf(depth, `<gpu %s>`, attrs)
	for _, l := range g.Links {
		switch {
		case l.Kind == "c2c":
			// NCCL multiplies bw (MB/s of one link) by count; NVLink-C2C of Grace has 10 links of 45 GB/s each way.
			x.printf(depth+1, `<c2c bw="44712" count="%d"/>`, max(l.Count, 1))
		case l.Target != "" || l.Class != nil:
			class := uint32(0x030200)
			if l.Class != nil {
				class = *l.Class
			}
			x.printf(depth+1, `<%s target="%s" count="%d" tclass="0x%06x"/>`, l.Kind, cmp.Or(l.Target, unseenTarget), max(l.Count, 1), class)
		}
	}
	x.printf(depth, `</gpu>`)
}

func (x *xmlWriter) gdr() int {
	p := x.h.PeerMemory
	if p.NvidiaPeermem != nil && *p.NvidiaPeermem || p.DMABuf != nil && *p.DMABuf {
		return 1
	}
	return 0
}

func (x *xmlWriter) nic(nics []*topology.HCA, depth int) {
	if !hasNames(nics) {
		return
	}
	x.printf(depth, `<nic>`)
	index := 0
	for _, c := range nics {
		if c.Class == "pci" {
			continue
		}
		dev := slices.IndexFunc(x.h.HCAs, func(o topology.HCA) bool { return o.Name == c.Name })
		for _, p := range c.Ports {
			speed := 0
			if p.RateGbps != nil {
				speed = int(*p.RateGbps * 1000)
			}
			guid := strings.ReplaceAll(c.SysImageGUID, ":", "")
			if _, err := parseHex(guid, 64); err != nil {
				guid = "0"
			}
			gdr := x.gdr()
			port := p.Number + index
			if c.Class == "net" {
				gdr, port = 0, 0
			}
			x.printf(depth+1, `<net name="%s" dev="%d" latency="0.000000" speed="%d" port="%d" guid="0x%s" maxconn="131072" gdr="%d"/>`,
				escape(c.Name), dev, speed, port, guid, gdr)
		}
		if !x.h.XML {
			index++
		}
	}
	x.printf(depth, `</nic>`)
}

// ValidateXML compares a file meant for NCCL_TOPO_FILE with the machine: GPUs,
// NICs and NUMA nodes. A finding of severity error means that the file is not
// this machine's.
func ValidateXML(h, x topology.Host) []finding.Finding {
	v := &validator{host: h.Name}
	v.devices("gpu", gpuAddresses(h), gpuAddresses(x), "NCCL would place this GPU by its own detection, or fail")
	v.devices("nic", nicAddresses(h), nicAddresses(x), "NCCL would place this NIC by its own detection, or not at all")
	v.names(h, x)
	v.numa(h, x)
	finding.Sort(v.found)
	return v.found
}

type validator struct {
	host  string
	found []finding.Finding
}

func (v *validator) say(id string, sev finding.Severity, subject, seen, wanted, why string) {
	v.found = append(v.found, finding.Finding{
		ID: id, Severity: sev, Host: v.host, Subject: subject, Seen: seen, Wanted: wanted, Why: why,
		Hint: "'fabrun topo --nccl-xml' writes a file of this machine",
	})
}

func gpuAddresses(h topology.Host) []string {
	var out []string
	for _, g := range h.GPUs {
		out = append(out, g.PCI)
	}
	return out
}

// nicAddresses are those of cards: NCCL writes all functions as function 0.
func nicAddresses(h topology.Host) []string {
	var out []string
	for _, c := range h.HCAs {
		if c.PCI != "" && c.Class != "net" {
			card := c.PCI[:len(c.PCI)-1] + "0"
			if !slices.Contains(out, card) {
				out = append(out, card)
			}
		}
	}
	return out
}

func (v *validator) devices(kind string, machine, file []string, why string) {
	if len(file) == 0 && len(machine) > 0 {
		v.say("xml.no-"+kind, finding.Warning, "topology XML", fmt.Sprintf("no %s in the file", strings.ToUpper(kind)), fmt.Sprintf("%d", len(machine)), why)
		return
	}
	for _, addr := range machine {
		if !slices.Contains(file, addr) {
			v.say("xml."+kind+"-not-in-file", finding.Error, addr, "on this machine, not in the file", "in both", why)
		}
	}
	for _, addr := range file {
		if !slices.Contains(machine, addr) {
			v.say("xml."+kind+"-not-on-machine", finding.Error, addr, "in the file, not on this machine", "in both", "the file is another machine's, or describes devices that are hidden here")
		}
	}
}

// names: the same address with another HCA name means another order of cards.
func (v *validator) names(h, x topology.Host) {
	for _, c := range x.HCAs {
		if c.Class != "infiniband" || c.PCI == "" {
			continue
		}
		for _, m := range h.HCAs {
			if m.Name == c.Name && m.PCI != "" && m.PCI[:len(m.PCI)-1] != c.PCI[:len(c.PCI)-1] {
				v.say("xml.nic-moved", finding.Error, c.Name, "at "+c.PCI+" in the file", "at "+m.PCI+" as on this machine", "NCCL would take one NIC's place for another's")
			}
		}
	}
}

func (v *validator) numa(h, x topology.Host) {
	nodes := map[int]*topology.NUMANode{}
	for i := range h.NUMA {
		nodes[h.NUMA[i].ID] = &h.NUMA[i]
	}
	if len(nodes) == 0 {
		return
	}
	for _, n := range x.NUMA {
		m := nodes[n.ID]
		if m == nil {
			v.say("xml.numa-not-on-machine", finding.Error, fmt.Sprintf("NUMA node %d", n.ID), "in the file, not on this machine", "a NUMA node of this machine", "NCCL's init fails where it looks for the node's CPUs")
			continue
		}
		if len(n.CPUs) > 0 && !slices.Equal(n.CPUs, m.CPUs) {
			sev := finding.Warning
			if !slices.ContainsFunc(n.CPUs, func(c int) bool { return slices.Contains(m.CPUs, c) }) {
				sev = finding.Error
			}
			v.say("xml.numa-cpus", sev, fmt.Sprintf("NUMA node %d", n.ID), "CPUs "+topology.FormatCPUs(n.CPUs)+" in the file", cmp.Or(topology.FormatCPUs(m.CPUs), "none"), "NCCL would bind its threads to other CPUs")
		}
	}
	where := map[string]*int{}
	for _, d := range h.PCI {
		where[d.Address] = d.NUMA
	}
	for _, addr := range slices.Concat(gpuAddresses(x), nicAddresses(x)) {
		m, ok := where[addr]
		if !ok || m == nil {
			continue
		}
		i := slices.IndexFunc(x.PCI, func(d topology.PCIDevice) bool { return d.Address == addr })
		if i >= 0 && x.PCI[i].NUMA != nil && *x.PCI[i].NUMA != *m {
			v.say("xml.numa-differs", finding.Error, addr, fmt.Sprintf("NUMA node %d in the file", *x.PCI[i].NUMA), fmt.Sprintf("NUMA node %d as on this machine", *m), "NCCL would choose a NIC across the socket link for a near one")
		}
	}
}
