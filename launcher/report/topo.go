package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Topo writes a host for people: the verdict, the tree, who reaches whom, and
// what is not as it should be. It fits 80 columns on eight GPUs and ten HCAs.
func Topo(w io.Writer, h topology.Host, paths []topology.Path, found []finding.Finding) error {
	t := &text{w: w}
	t.wrap("", TopoSentence(h, paths))
	t.printf("\n")
	topoTree(t, h, paths)
	topoMatrix(t, h, paths)
	topoGPUs(t, h, paths)
	topoMMIO(t, h)
	if t.err == nil && len(found) > 0 {
		t.printf("\n")
		t.err = Findings(w, found)
	}
	return t.err
}

// TopoSentence is the verdict on a host in one sentence.
func TopoSentence(h topology.Host, paths []topology.Path) string {
	name := h.Name
	if name == "" {
		name = "this host"
	}
	gpus, rails := len(h.GPUs), 0
	for _, c := range h.HCAs {
		if c.Class != "net" {
			rails++
		}
	}
	switch {
	case gpus == 0 && rails == 0:
		return name + ": no GPU and no RDMA device"
	case rails == 0:
		return fmt.Sprintf("%s: %s and no RDMA device", name, count(gpus, "GPU"))
	case gpus == 0:
		return fmt.Sprintf("%s: no GPU, %s", name, count(rails, "HCA"))
	}
	head := fmt.Sprintf("%s: %s, %s: ", name, count(gpus, "GPU"), count(rails, "HCA"))
	if h.Hidden != "" {
		return head + "topology hidden (" + h.Hidden + ")"
	}
	byType := map[topology.PathType]int{}
	otherNode := 0
	shared := map[string]int{}
	none := 0
	for _, near := range topology.Nearest(h, paths) {
		if len(near) == 0 {
			none++
			continue
		}
		if near[0].NCCL == topology.SYS && topology.SameSocket(h, near[0]) {
			otherNode++
			continue
		}
		byType[near[0].NCCL]++
		if len(near) == 1 {
			shared[near[0].HCA]++
		}
	}
	if none == gpus {
		return head + "no HCA has a port that is up"
	}
	sharing := 0
	for _, n := range shared {
		if n > 1 {
			sharing++
		}
	}
	switch {
	case byType[topology.PIX] == gpus && sharing == 0:
		return head + "good, every GPU has an HCA on its own PCIe switch"
	case byType[topology.PIX]+byType[topology.PXB]+byType[topology.P2C] == gpus:
		return head + "good, every GPU reaches an HCA without passing a CPU"
	case byType[topology.SYS] == 0 && otherNode > 0:
		return head + fmt.Sprintf("%d of %d GPUs reach an HCA only on another NUMA node of their socket (SYS)", otherNode, gpus)
	case byType[topology.SYS] == 0 && byType[topology.PHB] > 0:
		return head + fmt.Sprintf("%d of %d GPUs reach their HCA through the CPU's root complex (PHB)", byType[topology.PHB], gpus)
	case byType[topology.SYS] > 0:
		return head + fmt.Sprintf("%d of %d GPUs reach an HCA only over the socket link (SYS)", byType[topology.SYS], gpus)
	}
	return head + "the nearest HCA of every GPU is in the matrix"
}

// treeItem is one GPU or HCA in the tree.
type treeItem struct {
	pci   string
	label string
	words string
}

// topoTree prints NUMA nodes, the switches that matter, and what hangs there.
func topoTree(t *text, h topology.Host, paths []topology.Path) {
	dev := map[string]*topology.PCIDevice{}
	for i := range h.PCI {
		dev[h.PCI[i].Address] = &h.PCI[i]
	}
	groups := map[int]map[string][]treeItem{} // NUMA → top switch → items
	add := func(numa *int, pci string, it treeItem) {
		n := -1
		if numa != nil {
			n = *numa
		}
		if groups[n] == nil {
			groups[n] = map[string][]treeItem{}
		}
		it.pci = pci
		sw := topSwitch(dev, pci, h.XML)
		groups[n][sw] = append(groups[n][sw], it)
	}
	for _, g := range h.GPUs {
		add(g.NUMA, g.PCI, treeItem{label: "GPU" + strconv.Itoa(g.Index), words: gpuWords(g, dev[g.PCI])})
	}
	for i := range h.HCAs {
		c := &h.HCAs[i]
		add(c.NUMA, c.PCI, treeItem{label: c.Name, words: hcaWords(c, h)})
	}
	var nodes []int
	for n := range groups {
		nodes = append(nodes, n)
	}
	for _, n := range h.NUMA {
		if !slices.Contains(nodes, n.ID) && len(n.CPUs) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	slices.Sort(nodes)
	longest := 0
	for _, g := range groups {
		for _, items := range g {
			for _, it := range items {
				longest = max(longest, len(it.label))
			}
		}
	}
	longest = min(longest, 16)
	for _, n := range nodes {
		t.printf("%s\n", clip(numaWords(h, n), width))
		switches := make([]string, 0, len(groups[n]))
		for sw := range groups[n] {
			switches = append(switches, sw)
		}
		slices.SortFunc(switches, func(a, b string) int {
			// Devices right below the CPU come last.
			if (a == "") != (b == "") {
				return len(b) - len(a)
			}
			return topology.ComparePCI(a, b)
		})
		for _, sw := range switches {
			indent := "  "
			if sw != "" {
				t.printf("  switch %s\n", sw)
				indent = "    "
			}
			items := groups[n][sw]
			slices.SortStableFunc(items, func(a, b treeItem) int { return topology.ComparePCI(a.pci, b.pci) })
			for _, it := range items {
				pci := it.pci
				if pci == "" {
					pci = "no PCI"
				}
				t.printf("%s\n", clip(fmt.Sprintf("%s%-*s  %-12s  %s", indent, longest, it.label, pci, it.words), width))
			}
		}
	}
}

func clip(s string, most int) string {
	s = strings.TrimRight(s, " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// topSwitch is the highest switch above a device, as NCCL names switches; "" none.
func topSwitch(dev map[string]*topology.PCIDevice, addr string, flat bool) string {
	var ups []string
	for d := dev[addr]; d != nil && d.Parent != "" && len(ups) < 256; d = dev[d.Parent] {
		ups = append(ups, d.Parent)
	}
	if flat {
		if len(ups) == 0 {
			return ""
		}
		return ups[len(ups)-1]
	}
	if len(ups) < 2 {
		return ""
	}
	// Ports come in pairs, (downstream, upstream), up to the root port.
	return ups[len(ups)/2*2-1]
}

func numaWords(h topology.Host, id int) string {
	if id < 0 {
		return "no NUMA node known"
	}
	s := fmt.Sprintf("NUMA node %d", id)
	for _, n := range h.NUMA {
		if n.ID != id {
			continue
		}
		if len(n.CPUs) > 0 {
			s += ": CPUs " + ranges(n.CPUs)
		}
		if n.MemoryBytes != nil {
			s += fmt.Sprintf(", %.0f GiB", float64(*n.MemoryBytes)/(1<<30))
		}
	}
	return s
}

func gpuWords(g topology.GPU, d *topology.PCIDevice) string {
	name := g.Name
	if name == "" {
		name = strings.TrimSpace(map[string]string{"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}[g.Vendor] + " GPU")
	}
	if d != nil && (d.Link.SpeedMTps != nil || d.Link.Width != nil) {
		name += ", " + d.Link.String()
	}
	if g.Visible != nil && !*g.Visible {
		name += ", hidden"
	}
	return name
}

func hcaWords(c *topology.HCA, h topology.Host) string {
	var parts []string
	switch {
	case c.Class == "net":
		parts = append(parts, "sockets only")
	case c.Class == "cxi":
		parts = append(parts, "Slingshot")
	case c.VF:
		parts = append(parts, "VF")
	case c.Bond:
		parts = append(parts, "bond")
	}
	for _, p := range c.Ports {
		var w []string
		if len(c.Ports) > 1 {
			w = append(w, fmt.Sprintf("port %d", p.Number))
		}
		// A port that is down shows the rate that it once had, or any.
		if p.RateGbps != nil && p.RateTrusted && p.State != "DOWN" {
			w = append(w, fmt.Sprintf("%gG", *p.RateGbps))
		}
		if p.LinkLayer != "" {
			w = append(w, p.LinkLayer)
		}
		if p.Down() {
			w = append(w, strings.TrimSpace(p.State+" "+p.PhysState))
		}
		if p.Netdev != "" {
			w = append(w, p.Netdev)
			for _, nd := range h.Netdevs {
				if nd.Name != p.Netdev {
					continue
				}
				for _, a := range nd.Addrs {
					if a.Addr().Is4() {
						w = append(w, a.Addr().String())
						break
					}
				}
			}
		}
		if len(w) > 0 {
			parts = append(parts, strings.Join(w, " "))
		}
	}
	return strings.Join(parts, "; ")
}

// typeWord is a path type for a cell; unknown is a question mark.
func typeWord(p topology.Path) string {
	switch {
	case p.LinkKind == "xgmi":
		return "XGMI"
	case p.NVLinks > 0:
		return "NV" + strconv.Itoa(p.NVLinks)
	case p.NCCL == "" && p.SMI == "":
		return "?"
	case p.NCCL == "":
		return string(p.SMI)
	case p.NCCL == topology.PHB && p.SMI == topology.NODE:
		// Both are right: NCCL has no NODE.
		return "NODE"
	}
	return string(p.NCCL)
}

// topoMatrix prints GPU × HCA. Long or many names become numbers with a legend.
func topoMatrix(t *text, h topology.Host, paths []topology.Path) {
	if len(h.GPUs) == 0 || len(h.HCAs) == 0 {
		return
	}
	var names, legend []string
	wide := 6
	for i, c := range h.HCAs {
		names = append(names, c.Name)
		legend = append(legend, fmt.Sprintf("N%d %s", i, c.Name))
		wide = max(wide, len(c.Name)+1)
	}
	if 6+wide*len(names) > width {
		wide = 6
		for i := range names {
			names[i] = "N" + strconv.Itoa(i)
		}
	} else {
		legend = nil
	}
	t.printf("\n")
	perLine := max((width-6)/wide, 1)
	for from := 0; from < len(names); from += perLine {
		to := min(from+perLine, len(names))
		head := fmt.Sprintf("%-6s", "")
		for _, n := range names[from:to] {
			head += fmt.Sprintf("%-*s", wide, n)
		}
		t.printf("%s\n", strings.TrimRight(head, " "))
		for _, g := range h.GPUs {
			line := fmt.Sprintf("%-6s", "GPU"+strconv.Itoa(g.Index))
			for _, c := range h.HCAs[from:to] {
				i := slices.IndexFunc(paths, func(p topology.Path) bool { return p.From == g.PCI && p.HCA == c.Name })
				line += fmt.Sprintf("%-*s", wide, typeWord(paths[i]))
			}
			t.printf("%s\n", strings.TrimRight(line, " "))
		}
	}
	if legend != nil {
		t.wrap("  ", strings.Join(legend, ", "))
	}
	used := map[string]bool{}
	for _, p := range paths {
		used[typeWord(p)] = true
	}
	var words []string
	for _, l := range typeLegend {
		if used[l.word] {
			words = append(words, l.word+" "+l.means)
		}
	}
	t.wrap("  ", strings.Join(words, "; "))
}

var typeLegend = []struct{ word, means string }{
	{"PIX", "one PCIe switch"},
	{"PXB", "several PCIe switches"},
	{"P2C", "CPU's coherent link (C2C)"},
	{"PHB", "through the CPU's root complex"},
	{"NODE", "between root complexes of a NUMA node (PHB to NCCL)"},
	{"SYS", "across sockets, or NUMA nodes"},
	{"?", "hidden"},
}

// topoGPUs says how GPUs reach each other: one line where all are alike.
func topoGPUs(t *text, h topology.Host, paths []topology.Path) {
	if len(h.GPUs) < 2 {
		return
	}
	word := map[[2]string]string{}
	distinct := map[string]bool{}
	for _, p := range paths {
		if p.HCA == "" {
			w := typeWord(p)
			word[[2]string{p.From, p.To}], word[[2]string{p.To, p.From}] = w, w
			distinct[w] = true
		}
	}
	t.printf("\n")
	if len(distinct) == 1 {
		for w := range distinct {
			t.printf("GPU to GPU: %s between all\n", w)
		}
		return
	}
	const wide = 6
	perLine := (width - 6) / wide
	for from := 0; from < len(h.GPUs); from += perLine {
		to := min(from+perLine, len(h.GPUs))
		line := "      "
		for _, g := range h.GPUs[from:to] {
			line += fmt.Sprintf("%-*s", wide, "GPU"+strconv.Itoa(g.Index))
		}
		t.printf("%s\n", strings.TrimRight(line, " "))
		for _, a := range h.GPUs {
			line := fmt.Sprintf("%-6s", "GPU"+strconv.Itoa(a.Index))
			for _, b := range h.GPUs[from:to] {
				w := "X"
				if a.PCI != b.PCI {
					w = word[[2]string{a.PCI, b.PCI}]
				}
				line += fmt.Sprintf("%-*s", wide, w)
			}
			t.printf("%s\n", strings.TrimRight(line, " "))
		}
	}
}

// MMIO is what a virtual machine needs of 64-bit MMIO space to be given GPUs.
type MMIO struct {
	GPUs        int   `json:"gpus"`
	MemoryBytes int64 `json:"memory_bytes"` // of one GPU: its memory, else its largest BAR
	NeedBytes   int64 `json:"need_bytes"`   // next power of two above the sum
}

// MMIONeed is the table for 1, 2, 4, … GPUs; nil where GPU memory is unknown.
func MMIONeed(h topology.Host) []MMIO {
	var each int64
	for _, g := range h.GPUs {
		switch {
		case g.Memory != nil:
			each = max(each, *g.Memory)
		case g.BARBytes != nil:
			each = max(each, *g.BARBytes)
		}
	}
	if each <= 0 || each > 1<<50 {
		return nil
	}
	var rows []MMIO
	for n := 1; ; n = min(n*2, len(h.GPUs)) {
		need := int64(1)
		for need <= each*int64(n) {
			need <<= 1
		}
		rows = append(rows, MMIO{n, each, need})
		if n == len(h.GPUs) {
			return rows
		}
	}
}

func topoMMIO(t *text, h topology.Host) {
	rows := MMIONeed(h)
	if rows == nil {
		return
	}
	var parts []string
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%s %d GiB", count(r.GPUs, "GPU"), r.NeedBytes>>30))
	}
	t.printf("\n")
	t.wrap("", "64-bit MMIO that a virtual machine needs to be given: "+strings.Join(parts, ", ")+".")
	all := rows[len(rows)-1]
	t.wrap("", fmt.Sprintf("For all %d, with EFI firmware: VMware pciPassthru.use64bitMMIO=TRUE and pciPassthru.64bitMMIOSizeGB=%d; QEMU with OVMF -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=%d; Hyper-V Set-VM -HighMemoryMappedIoSpace %dGB.",
		all.GPUs, all.NeedBytes>>30, all.NeedBytes>>20, all.NeedBytes>>30))
}

type topoJSON struct {
	Schema   string            `json:"schema"`
	Host     *string           `json:"host"`
	Source   string            `json:"source"`
	Hidden   *string           `json:"hidden"` // why GPUs or HCAs cannot be seen in full
	NUMA     []numaJSON        `json:"numa"`
	GPUs     []gpuJSON         `json:"gpus"`
	HCAs     []hcaJSON         `json:"hcas"`
	Paths    []pathJSON        `json:"paths"`
	GPUPaths []gpuPathJSON     `json:"gpu_paths"`
	MMIO     []MMIO            `json:"mmio_need"` // address space that the devices need
	Verdict  string            `json:"verdict"`
	Findings []finding.Finding `json:"findings"`
}

type numaJSON struct {
	Node        int    `json:"node"`
	CPUs        []int  `json:"cpus"`
	Distances   []int  `json:"distances"`
	MemoryBytes *int64 `json:"memory_bytes"`
}

type gpuJSON struct {
	Index       int      `json:"index"`
	PCI         *string  `json:"pci"`
	NUMA        *int     `json:"numa"`
	Name        *string  `json:"name"`
	UUID        *string  `json:"uuid"`
	Vendor      *string  `json:"vendor"`
	MemoryBytes *int64   `json:"memory_bytes"`
	Visible     *bool    `json:"visible"`
	Link        linkJSON `json:"link"`
}

type linkJSON struct {
	SpeedGTps    *float64 `json:"speed_gtps"`
	Width        *int     `json:"width"`
	MaxSpeedGTps *float64 `json:"max_speed_gtps"`
	MaxWidth     *int     `json:"max_width"`
}

type hcaJSON struct {
	Name   string         `json:"name"`
	PCI    *string        `json:"pci"`
	NUMA   *int           `json:"numa"`
	Driver *string        `json:"driver"`
	Class  string         `json:"class"` // "infiniband" for verbs devices, "cxi", or of an NCCL XML "net"
	VF     bool           `json:"vf"`    // is it a virtual function?
	Bond   bool           `json:"bond"`  // is it a bond of several ports?
	Link   linkJSON       `json:"link"`
	Ports  []topoPortJSON `json:"ports"`
}

type topoPortJSON struct {
	Port           int       `json:"port"`
	State          *string   `json:"state"`
	PhysState      *string   `json:"phys_state"`
	LinkLayer      *string   `json:"link_layer"`
	RateGbps       *float64  `json:"rate_gbps"`
	Netdev         *string   `json:"netdev"`
	MTUBytes       *int      `json:"mtu_bytes"`        // of the netdev
	ActiveMTUBytes *int      `json:"active_mtu_bytes"` // of RDMA
	GIDs           []gidJSON `json:"gids"`
}

type gidJSON struct {
	Index  int     `json:"index"`
	GID    string  `json:"gid"`
	Type   *string `json:"type"`
	Kind   string  `json:"kind"`
	Netdev *string `json:"netdev"`
}

type wayJSON struct {
	NCCL     *string  `json:"nccl"`         // as NCCL names it: LOC, NVL, C2C, PIX, PXB, PHB, SYS
	SMI      *string  `json:"smi"`          // as `nvidia-smi topo -m` names it: X, NV18, PIX, PXB, PHB, NODE, SYS
	Chain    []string `json:"chain"`        // the PCI addresses on the way
	GBps     *float64 `json:"gbytes_per_s"` // what its narrowest link carries
	Narrow   *string  `json:"narrowest"`    // that link
	Degraded *string  `json:"degraded"`     // why it carries less than it could
}

type pathJSON struct {
	GPUPCI string  `json:"gpu_pci"` // from this GPU
	HCA    string  `json:"hca"`     // to this HCA
	HCAPCI *string `json:"hca_pci"`
	wayJSON
}

type gpuPathJSON struct {
	GPUPCI  string `json:"gpu_pci"`
	PeerPCI string `json:"peer_pci"`
	NVLinks int    `json:"nvlinks"`
	wayJSON
}

// TopoJSON writes a host as schema fabrun/topo/v1.
func TopoJSON(w io.Writer, h topology.Host, paths []topology.Path, found []finding.Finding) error {
	out := topoJSON{
		Schema: "fabrun/topo/v1", Host: known(h.Name), Source: h.Source, Hidden: known(h.Hidden),
		NUMA: []numaJSON{}, GPUs: []gpuJSON{}, HCAs: []hcaJSON{}, Paths: []pathJSON{}, GPUPaths: []gpuPathJSON{},
		MMIO: list(MMIONeed(h)), Verdict: TopoSentence(h, paths), Findings: list(sorted(found)),
	}
	links := map[string]linkJSON{}
	for _, d := range h.PCI {
		links[d.Address] = linkJSON{gtps(d.Link.SpeedMTps), d.Link.Width, gtps(d.LinkMax.SpeedMTps), d.LinkMax.Width}
	}
	for _, n := range h.NUMA {
		out.NUMA = append(out.NUMA, numaJSON{n.ID, list(n.CPUs), list(n.Distances), n.MemoryBytes})
	}
	for _, g := range h.GPUs {
		out.GPUs = append(out.GPUs, gpuJSON{g.Index, known(g.PCI), g.NUMA, known(g.Name), known(g.UUID), known(g.Vendor), g.Memory, g.Visible, links[g.PCI]})
	}
	pciOf := map[string]string{}
	for i := range h.HCAs {
		c := &h.HCAs[i]
		pciOf[c.Name] = c.PCI
		j := hcaJSON{c.Name, known(c.PCI), c.NUMA, known(c.Driver), c.Class, c.VF, c.Bond, links[c.PCI], []topoPortJSON{}}
		for _, p := range c.Ports {
			j.Ports = append(j.Ports, portOf(h, p))
		}
		out.HCAs = append(out.HCAs, j)
	}
	for _, p := range paths {
		way := wayJSON{known(string(p.NCCL)), known(string(p.SMI)), list(p.Chain), p.GBps, known(p.Narrow), known(p.Degraded)}
		if p.HCA != "" {
			out.Paths = append(out.Paths, pathJSON{p.From, p.HCA, known(pciOf[p.HCA]), way})
		} else {
			out.GPUPaths = append(out.GPUPaths, gpuPathJSON{p.From, p.To, p.NVLinks, way})
		}
	}
	return writeJSON(w, out)
}

func gtps(mt *int) *float64 {
	if mt == nil {
		return nil
	}
	v := float64(*mt) / 1000
	return &v
}

func portOf(h topology.Host, p topology.Port) topoPortJSON {
	j := topoPortJSON{
		Port: p.Number, State: known(p.State), PhysState: known(p.PhysState), LinkLayer: known(p.LinkLayer),
		Netdev: known(p.Netdev), ActiveMTUBytes: p.ActiveMTU, GIDs: []gidJSON{},
	}
	if p.RateTrusted {
		j.RateGbps = p.RateGbps
	}
	for _, nd := range h.Netdevs {
		if nd.Name == p.Netdev {
			j.MTUBytes = nd.MTU
		}
	}
	for _, g := range p.GIDs {
		j.GIDs = append(j.GIDs, gidJSON{g.Index, g.Addr.String(), known(g.Type), string(g.Kind), known(g.Netdev)})
	}
	return j
}
