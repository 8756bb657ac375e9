package discover

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Limits of NCCL's own reader (src/graph/xml.h) and of ours.
const (
	xmlMaxAttrs    = 16
	xmlMaxValue    = 255
	xmlMaxChildren = 640
	xmlMaxDepth    = 64
	xmlMaxNodes    = 1 << 16
	maxXML         = 16 << 20
)

// xmlNode is one element of an NCCL topology XML.
type xmlNode struct {
	name     string
	attrs    map[string]string
	children []*xmlNode
	line     int
}

func (n *xmlNode) attr(name string) (string, bool) {
	v, ok := n.attrs[name]
	return v, ok
}

// IsXML reports whether text begins as XML does.
func IsXML(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(text, "\ufeff"), " \t\r\n"), "<")
}

// ReadXML reads an NCCL topology XML: what NCCL_TOPO_DUMP_FILE wrote, or what
// is given to NCCL_TOPO_FILE. The error is for a text that is no such XML at
// all; findings say what NCCL's own reader would not take, or would trip over.
func ReadXML(r io.Reader) (topology.Host, []finding.Finding, error) {
	h := topology.Host{Source: "nccl-xml"}
	root, err := parseXML(r)
	if err != nil {
		return h, nil, err
	}
	x := &xmlReader{h: &h, seen: map[string]int{}, missing: map[string]*missingAttr{}}
	x.read(root)
	finding.Sort(x.found)
	return h, x.found, nil
}

func parseXML(r io.Reader) (*xmlNode, error) {
	lr := &io.LimitedReader{R: r, N: maxXML + 1}
	dec := xml.NewDecoder(lr)
	// Every encoding that NCCL can read is ASCII; a declared other one is not its.
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var root *xmlNode
	var stack []*xmlNode
	nodes := 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			var se *xml.SyntaxError
			if errors.As(err, &se) {
				return nil, fmt.Errorf("topology XML line %d: %s", se.Line, se.Msg)
			}
			return nil, fmt.Errorf("topology XML: %w", err)
		}
		line, _ := dec.InputPos()
		switch t := tok.(type) {
		case xml.StartElement:
			if nodes++; nodes > xmlMaxNodes || len(stack) >= xmlMaxDepth {
				return nil, fmt.Errorf("topology XML line %d: more than %d elements, or %d inside each other", line, xmlMaxNodes, xmlMaxDepth)
			}
			n := &xmlNode{name: t.Name.Local, attrs: make(map[string]string, len(t.Attr)), line: line}
			for _, a := range t.Attr {
				n.attrs[a.Name.Local] = a.Value
			}
			switch {
			case len(stack) > 0:
				up := stack[len(stack)-1]
				up.children = append(up.children, n)
			case root != nil:
				return nil, fmt.Errorf("topology XML line %d: a second root element <%s>", line, n.name)
			default:
				root = n
			}
			stack = append(stack, n)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
	if lr.N <= 0 {
		return nil, fmt.Errorf("topology XML is larger than %d MiB", maxXML>>20)
	}
	if root == nil {
		return nil, errors.New("topology XML has no element")
	}
	if root.name != "system" {
		return nil, fmt.Errorf("topology XML line %d: want <system>, got <%s>", root.line, root.name)
	}
	return root, nil
}

// xmlReader turns elements into a Host.
type xmlReader struct {
	h       *topology.Host
	found   []finding.Finding
	seen    map[string]int // busid → line
	missing map[string]*missingAttr
	dump    bool // has <gpu> or <net>: written by NCCL, not for NCCL to complete
	amd     bool
	gpuTags bool
	netTags bool
}

type missingAttr struct {
	element, attr string
	lines         []int
	has           int
}

func (x *xmlReader) say(id string, sev finding.Severity, line int, seen, wanted, why, hint string) {
	subject := "topology XML"
	if line > 0 {
		subject = fmt.Sprintf("topology XML line %d", line)
	}
	x.found = append(x.found, finding.Finding{ID: id, Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

// filled are attributes that NCCL takes from the machine where the file lacks
// them; on a machine without that device its init fails instead.
var filled = map[string][]string{
	"cpu": {"arch", "vendor", "familyid", "modelid"},
	"pci": {"class", "link_speed", "link_width"},
}

// required are attributes without which NCCL's reader fails.
var required = map[string][]string{
	"cpu":     {"numaid"},
	"pci":     {"busid"},
	"gpu":     {"dev", "sm", "rank", "gdr"},
	"net":     {"name", "dev"},
	"nvlink":  {"target", "count", "tclass"},
	"xgmi":    {"target", "count", "tclass"},
	"c2c":     {"bw", "count"},
	"pcilink": {"target"},
}

// numeric are attributes that NCCL reads as numbers; what is none counts as 0.
var numeric = map[string][]string{
	"cpu":    {"numaid", "familyid", "modelid"},
	"pci":    {"link_width"},
	"gpu":    {"dev", "sm", "rank", "gdr"},
	"net":    {"dev", "speed", "port", "maxconn", "gdr"},
	"nvlink": {"count"},
	"xgmi":   {"count"},
	"c2c":    {"bw", "count"},
}

func (x *xmlReader) read(root *xmlNode) {
	x.h.XML = true
	x.survey(root)
	switch v, ok := root.attr("version"); {
	case !ok:
		x.say("xml.version", finding.Error, root.line, "<system> without version", `version="1"`, "NCCL refuses the file and its init fails", `write <system version="1">`)
	case v == "2" && x.amd:
		x.say("xml.version", finding.Note, root.line, "version 2", `version="1" for NCCL`, "RCCL writes and reads version 2; NCCL would refuse it", "")
	case v != "1":
		x.say("xml.version", finding.Error, root.line, fmt.Sprintf("version %q", v), `version="1"`, "NCCL refuses the file and its init fails", "")
	}
	hosts := map[string]bool{}
	for _, n := range root.children {
		if n.name != "cpu" {
			x.say("xml.element", finding.Warning, n.line, fmt.Sprintf("<%s> in <system>", n.name), "<cpu>", "NCCL does not look at it", "")
			continue
		}
		hosts[n.attrs["host_hash"]] = true
		if len(hosts) > 1 {
			continue // other hosts of one NVLink domain
		}
		x.cpu(n)
	}
	if len(hosts) > 1 {
		x.say("xml.several-hosts", finding.Note, root.line, fmt.Sprintf("%d hosts (host_hash)", len(hosts)), "one", "only the first host is looked at", "")
	}
	x.reportMissing()
	slices.SortFunc(x.h.NUMA, func(a, b topology.NUMANode) int { return a.ID - b.ID })
	slices.SortFunc(x.h.PCI, func(a, b topology.PCIDevice) int { return topology.ComparePCI(a.Address, b.Address) })
	slices.SortStableFunc(x.h.GPUs, func(a, b topology.GPU) int { return topology.ComparePCI(a.PCI, b.PCI) })
	slices.SortStableFunc(x.h.HCAs, func(a, b topology.HCA) int { return topology.CompareNatural(a.Name, b.Name) })
	for i := range x.h.GPUs {
		x.h.GPUs[i].Index = i
	}
	if len(x.h.GPUs)+len(x.h.HCAs) == 0 {
		x.say("xml.no-devices", finding.Warning, root.line, "no GPU and no NIC", "<gpu> and <net>, or <pci> with class 0x03… and 0x02…",
			"the file gives NUMA nodes to PCI addresses only: what they are must come from the machine", "")
	}
}

// survey looks at every element once: limits, attributes, and which kind of file this is.
func (x *xmlReader) survey(n *xmlNode) {
	switch n.name {
	case "gpu":
		x.gpuTags, x.dump = true, true
	case "net":
		x.netTags, x.dump = true, true
	case "xgmi":
		x.amd = true
	case "pci":
		x.amd = x.amd || n.attrs["vendor"] == "0x1002"
	}
	if len(n.attrs) > xmlMaxAttrs {
		x.say("xml.limits", finding.Error, n.line, fmt.Sprintf("<%s> has %d attributes", n.name, len(n.attrs)), fmt.Sprintf("at most %d", xmlMaxAttrs), "NCCL's reader fails", "")
	}
	if len(n.children) > xmlMaxChildren {
		x.say("xml.limits", finding.Error, n.line, fmt.Sprintf("<%s> has %d elements inside", n.name, len(n.children)), fmt.Sprintf("at most %d", xmlMaxChildren), "NCCL's reader fails", "")
	}
	for _, name := range []string{"busid", "class", "name", "affinity", "target", "link_speed"} {
		if v := n.attrs[name]; len(v) > xmlMaxValue {
			x.say("xml.limits", finding.Error, n.line, fmt.Sprintf("%s of <%s> has %d characters", name, n.name, len(v)), fmt.Sprintf("at most %d", xmlMaxValue), "NCCL's reader cuts it", "")
		}
	}
	for _, name := range required[n.name] {
		if _, ok := n.attr(name); !ok {
			x.say("xml.missing-attribute", finding.Error, n.line, fmt.Sprintf("<%s> without %s", n.name, name), fmt.Sprintf(`%s="…"`, name), "NCCL's init fails on this file", "")
		}
	}
	for _, name := range filled[n.name] {
		m := x.missing[n.name+" "+name]
		if m == nil {
			m = &missingAttr{element: n.name, attr: name}
			x.missing[n.name+" "+name] = m
		}
		if _, ok := n.attr(name); ok {
			m.has++
		} else if !(n.name == "cpu" && name != "arch" && n.attrs["arch"] != "" && n.attrs["arch"] != "x86_64") {
			// Vendor, family and model are asked of x86 only.
			m.lines = append(m.lines, n.line)
		}
	}
	for _, name := range numeric[n.name] {
		if v, ok := n.attr(name); ok {
			if _, err := strconv.ParseInt(strings.TrimSpace(v), 0, 64); err != nil {
				x.say("xml.not-a-number", finding.Error, n.line, fmt.Sprintf("%s=%q in <%s>", name, v, n.name), "a number", "NCCL reads it as 0 or what its digits begin with", "")
			}
		}
	}
	for _, c := range n.children {
		x.survey(c)
	}
}

// reportMissing judges attributes that NCCL can take from the machine: missing
// everywhere in a file written for NCCL_TOPO_FILE is on purpose.
func (x *xmlReader) reportMissing() {
	for _, kind := range []string{"cpu", "pci"} {
		for _, name := range filled[kind] {
			m := x.missing[kind+" "+name]
			if m == nil || len(m.lines) == 0 {
				continue
			}
			sev := finding.Error
			switch {
			case !x.dump && m.has == 0:
				sev = finding.Note
			case !x.dump:
				sev = finding.Warning
			}
			x.say("xml.missing-attribute", sev, m.lines[0], fmt.Sprintf("%d of %d <%s> without %s", len(m.lines), len(m.lines)+m.has, kind, name),
				fmt.Sprintf(`%s="…"`, name), "NCCL takes it from the machine if the device is there, else its init fails", "")
		}
	}
}

func (x *xmlReader) cpu(n *xmlNode) {
	var numa *int
	if v, err := strconv.Atoi(n.attrs["numaid"]); err == nil && v >= 0 {
		numa = &v
		node := topology.NUMANode{ID: v}
		if mask, ok := n.attr("affinity"); ok {
			cpus, err := parseMask(mask)
			if err != nil {
				x.say("xml.affinity", finding.Warning, n.line, fmt.Sprintf("affinity %.60q", mask), "a CPU mask like ffff,ffffffff", "NCCL would bind threads to the wrong CPUs", "")
			}
			node.CPUs = cpus
		}
		if slices.ContainsFunc(x.h.NUMA, func(o topology.NUMANode) bool { return o.ID == v }) {
			x.say("xml.numa-twice", finding.Error, n.line, fmt.Sprintf("two <cpu> with numaid %d", v), "one", "NCCL takes the first for both", "")
		} else {
			x.h.NUMA = append(x.h.NUMA, node)
		}
	}
	c := &x.h.CPU
	if c.Arch == "" {
		c.Arch = n.attrs["arch"]
		c.Vendor = n.attrs["vendor"]
		if v, err := strconv.Atoi(n.attrs["familyid"]); err == nil {
			c.Family = &v
		}
		if v, err := strconv.Atoi(n.attrs["modelid"]); err == nil {
			c.ModelID = &v
		}
	}
	x.below(n, nil, numa)
}

func (x *xmlReader) below(n *xmlNode, up *topology.PCIDevice, numa *int) {
	for _, c := range n.children {
		switch c.name {
		case "pci":
			x.pciNode(c, up, numa)
		case "nic":
			for _, net := range c.children {
				if net.name == "net" {
					x.net(net, up, numa)
				}
			}
		case "gpu":
			if up == nil && n.name == "pci" {
				continue // its busid was complained about
			}
			x.gpu(c, up, numa)
		}
	}
}

// normalBDF brings a busid into sysfs's form; NCCL writes lower case, NVML
// domains of eight digits.
func normalBDF(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	if domain, rest, ok := strings.Cut(s, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		s = domain[4:] + ":" + rest
	}
	return s, isBDF(s)
}

func (x *xmlReader) pciNode(n *xmlNode, up *topology.PCIDevice, numa *int) {
	busid, given := n.attr("busid")
	addr, ok := normalBDF(busid)
	if !ok {
		if given {
			x.say("xml.busid", finding.Error, n.line, fmt.Sprintf("busid %.40q", busid), "a PCI address like 0000:3b:00.0", "NCCL cannot find the device", "")
		}
		x.below(n, up, numa)
		return
	}
	if first, twice := x.seen[addr]; twice {
		class, _ := parseHex(n.attrs["class"], 24)
		seen := fmt.Sprintf("busid %s again (first in line %d)", addr, first)
		if class>>8 != subclassBridge {
			x.say("xml.busid-twice", finding.Error, n.line, seen, "each device once", "NCCL takes the first", "")
			return
		}
		// NCCL makes a switch of its own from every element.
		x.say("xml.busid-twice", finding.Note, n.line, seen, "each switch once", "NCCL takes it for another switch", "")
		for i := 2; twice; i++ {
			numbered := fmt.Sprintf("%s#%d", addr, i)
			if _, twice = x.seen[numbered]; !twice {
				addr = numbered
			}
		}
	}
	x.seen[addr] = n.line
	d := topology.PCIDevice{Address: addr, NUMA: numa}
	if up != nil {
		d.Parent = up.Address
	}
	if v, ok := n.attr("class"); ok {
		d.Class = hexPtr[uint32](v, 24)
	}
	d.Vendor, d.Device = hexPtr[uint16](n.attrs["vendor"], 16), hexPtr[uint16](n.attrs["device"], 16)
	d.SubVendor, d.SubDevice = hexPtr[uint16](n.attrs["subsystem_vendor"], 16), hexPtr[uint16](n.attrs["subsystem_device"], 16)
	if speed, err := parsePCISpeed(n.attrs["link_speed"]); err == nil {
		d.Link.SpeedMTps = speed
	} else {
		x.say("xml.link-speed", finding.Warning, n.line, fmt.Sprintf("link_speed %q", n.attrs["link_speed"]), "a speed like 16.0 GT/s PCIe", "NCCL takes it for 8 GT/s", "")
	}
	if v, ok := n.attr("link_width"); ok {
		d.Link.Width, _ = parsePCIWidth(v)
	}
	for _, c := range n.children {
		if c.name == "pcilink" {
			if peer, ok := normalBDF(c.attrs["target"]); ok {
				d.SwitchPeers = append(d.SwitchPeers, peer)
			}
		}
	}
	x.h.PCI = append(x.h.PCI, d)
	vendor := gpuVendor(d.Vendor)
	if base := baseClass(d.Class); !x.gpuTags && (base == classDisplay || base == classProcessing && vendor == "amd") {
		x.h.GPUs = append(x.h.GPUs, topology.GPU{PCI: addr, NUMA: numa, Vendor: vendor})
	}
	if !x.netTags && baseClass(d.Class) == classNetwork {
		x.h.HCAs = append(x.h.HCAs, topology.HCA{Name: addr, Class: "pci", PCI: addr, NUMA: numa})
	}
	x.below(n, &d, numa)
}

func gpuVendor(id *uint16) string {
	if id == nil {
		return ""
	}
	return map[uint16]string{vendorNVIDIA: "nvidia", vendorAMD: "amd", vendorIntel: "intel"}[*id]
}

func (x *xmlReader) gpu(n *xmlNode, up *topology.PCIDevice, numa *int) {
	if up == nil {
		x.say("xml.element", finding.Error, n.line, "<gpu> outside of <pci>", "<pci busid=…><gpu …>", "NCCL finds no PCI address for it", "")
		return
	}
	g := topology.GPU{PCI: up.Address, NUMA: numa, Vendor: gpuVendor(up.Vendor)}
	if g.Vendor == "" && n.attrs["gcn"] != "" {
		g.Vendor = "amd"
	}
	if sm, err := strconv.Atoi(n.attrs["sm"]); err == nil && sm >= 10 && sm < 1000 && g.Vendor != "amd" {
		g.Capability = fmt.Sprintf("%d.%d", sm/10, sm%10)
	}
	for _, l := range n.children {
		link := topology.GPULink{Kind: l.name}
		switch l.name {
		case "nvlink", "xgmi":
			link.Target, _ = normalBDF(l.attrs["target"])
			link.Class = hexPtr[uint32](l.attrs["tclass"], 24)
			if link.Target == unseenTarget {
				link.Target = ""
				if link.Class == nil {
					link.Class = new(uint32(0x068000)) // as NCCL fills it in
				}
			}
		case "c2c":
			link.Target = "cpu"
		default:
			continue
		}
		if count, err := strconv.Atoi(l.attrs["count"]); err == nil && count > 0 && count < 1000 {
			link.Count = count
		}
		g.Links = append(g.Links, link)
	}
	x.h.GPUs = append(x.h.GPUs, g)
}

func (x *xmlReader) net(n *xmlNode, up *topology.PCIDevice, numa *int) {
	name := n.attrs["name"]
	if name == "" {
		return
	}
	c := topology.HCA{Name: name, Class: "infiniband", NUMA: numa}
	if up != nil {
		c.PCI = up.Address
	}
	number := func(attr string) (int, bool) {
		v, err := strconv.Atoi(strings.TrimSpace(n.attrs[attr]))
		return v, err == nil && v >= 0
	}
	gdr, _ := number("gdr")
	portNum, _ := number("port")
	guid, guidErr := parseHex(n.attrs["guid"], 64)
	switch {
	case strings.HasPrefix(name, "cxi"):
		c.Class, c.Driver = "cxi", "cxi"
	case gdr == 0 && portNum == 0 && (guidErr != nil || guid == 0):
		// How NCCL writes the interfaces of its socket transport.
		c.Class = "net"
	default:
		c.Driver = topology.DriverOf(&c, up, false)
		c.VF = up != nil && onlyVirtual(up)
	}
	if guidErr == nil && guid != 0 {
		c.SysImageGUID = fmt.Sprintf("%04x:%04x:%04x:%04x", guid>>48, guid>>32&0xffff, guid>>16&0xffff, guid&0xffff)
	}
	// NCCL lists active ports only.
	p := topology.Port{Number: max(portNum, 1), State: "ACTIVE"}
	if speed, ok := number("speed"); ok && speed > 0 {
		p.RateGbps = new(float64(speed) / 1000)
		p.RateTrusted = speed < 10_000_000
	}
	for i := range x.h.HCAs {
		if o := &x.h.HCAs[i]; o.Name == name && o.PCI == c.PCI {
			if slices.ContainsFunc(o.Ports, func(q topology.Port) bool { return q.Number == p.Number }) {
				x.say("xml.net-twice", finding.Warning, n.line, fmt.Sprintf("net %s port %d again", name, p.Number), "each port once", "", "")
				return
			}
			o.Ports = append(o.Ports, p)
			return
		}
	}
	c.Ports = []topology.Port{p}
	x.h.HCAs = append(x.h.HCAs, c)
}
