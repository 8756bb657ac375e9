package discover

import (
	"maps"
	"path"
	"slices"
	"strings"

	"fabrun/topology"
)

// classes of PCI devices (pci_ids.h), as the upper bytes of a class code.
const (
	classNetwork     = 0x02
	classDisplay     = 0x03
	classBridge      = 0x06
	classProcessing  = 0x12
	classCoprocessor = 0x0b
	subclassBridge   = 0x0604
	subclassDMA      = 0x0801 // what a ConnectX-8 data direct function is
)

func baseClass(c *uint32) uint32 {
	if c == nil {
		return 0
	}
	return *c >> 16
}

func subClass(c *uint32) uint32 {
	if c == nil {
		return 0
	}
	return *c >> 8
}

// pciDevices reads sys/bus/pci/devices. Link speeds are read only where a path
// between GPU and HCA can run: a server has hundreds of devices that are
// performance counters.
func (r *reader) pciDevices() {
	const bus = "sys/bus/pci/devices"
	where := map[string]string{}
	for _, name := range r.names(bus) {
		if !isBDF(name) {
			continue
		}
		at := r.link(bus + "/" + name)
		if at == "" {
			at = bus + "/" + name
		}
		where[name] = at
		// A copy may list the ends of a path only; the ports above follow from it.
		for up := path.Dir(at); isBDF(path.Base(up)); up = path.Dir(up) {
			if _, known := where[path.Base(up)]; !known {
				where[path.Base(up)] = up
			}
		}
	}
	if len(where) == 0 {
		for _, name := range r.names("sys/devices") {
			if isRootBus(name) {
				r.pciBelow("sys/devices/"+name, where, 0)
			}
		}
	}
	r.dirs = where
	r.h.PCI = make([]topology.PCIDevice, len(where))
	for i, addr := range slices.SortedFunc(maps.Keys(where), topology.ComparePCI) {
		r.h.PCI[i] = r.pciDevice(addr, where[addr])
		r.pci[addr] = i
	}
	for i := range r.h.PCI {
		r.h.PCI[i].Port = r.portType(&r.h.PCI[i])
	}
	r.switchPeers()
}

// pciBelow finds devices where the bus directory is missing, as in a copy of
// sys/devices alone.
func (r *reader) pciBelow(dir string, where map[string]string, depth int) {
	// A bus number is a byte, so no chain of bridges is longer.
	if depth > 256 {
		return
	}
	for _, name := range r.names(dir) {
		at := dir + "/" + name
		switch {
		case isBDF(name):
			where[name] = at
			r.pciBelow(at, where, depth+1)
		case isRootBus(name):
			r.pciBelow(at, where, depth+1)
		}
	}
}

func (r *reader) pciDevice(addr, dir string) topology.PCIDevice {
	d := topology.PCIDevice{Address: addr}
	elems := strings.Split(path.Dir(dir), "/")
	for _, e := range slices.Backward(elems) {
		if isRootBus(e) {
			d.RootBus = e
			break
		}
		if !isBDF(e) {
			break
		}
		if d.Parent == "" {
			d.Parent = e
		}
	}
	if text, ok := r.text(dir + "/uevent"); ok {
		parseUevent(text, func(name, val string) {
			switch name {
			case "DRIVER":
				d.Driver = val
			case "PCI_CLASS":
				d.Class = hexPtr[uint32](val, 24)
			case "PCI_ID", "PCI_SUBSYS_ID":
				vendor, device, ok := strings.Cut(val, ":")
				if !ok {
					return
				}
				v, dev := hexPtr[uint16](vendor, 16), hexPtr[uint16](device, 16)
				if name == "PCI_ID" {
					d.Vendor, d.Device = v, dev
				} else {
					d.SubVendor, d.SubDevice = v, dev
				}
			}
		})
	}
	id := func(to **uint16, file string) {
		if *to == nil {
			*to, _ = value(r, dir+"/"+file, parseID)
		}
	}
	if d.Class == nil {
		d.Class, _ = value(r, dir+"/class", parseClass)
	}
	id(&d.Vendor, "vendor")
	id(&d.Device, "device")
	id(&d.SubVendor, "subsystem_vendor")
	id(&d.SubDevice, "subsystem_device")
	d.NUMA, _ = value(r, dir+"/numa_node", parseNUMA)
	switch baseClass(d.Class) {
	case classNetwork, classDisplay, classProcessing, classCoprocessor:
		if d.Driver == "" {
			d.Driver = r.linkBase(dir + "/driver")
		}
		d.IOMMUGroup = r.linkBase(dir + "/iommu_group")
		if fn := r.linkBase(dir + "/physfn"); isBDF(fn) {
			d.PhysFn = fn
		}
		if n, ok := r.text(dir + "/sriov_numvfs"); ok && n != "0" {
			for i := 0; ; i++ {
				fn := r.linkBase(dir + "/virtfn" + itoa(i))
				if !isBDF(fn) {
					break
				}
				d.VirtFns = append(d.VirtFns, fn)
			}
		}
		if d.NUMA == nil {
			if cpus, ok := value(r, dir+"/local_cpulist", topology.ParseCPUs); ok {
				d.LocalCPUs = cpus
			} else if cpus, ok := value(r, dir+"/local_cpus", parseMask); ok {
				d.LocalCPUs = cpus
			}
		}
	default:
		if sub := subClass(d.Class); sub != subclassBridge && sub != subclassDMA && d.Class != nil {
			return d
		}
	}
	d.Link.SpeedMTps, _ = value(r, dir+"/current_link_speed", parsePCISpeed)
	d.Link.Width, _ = value(r, dir+"/current_link_width", parsePCIWidth)
	d.LinkMax.SpeedMTps, _ = value(r, dir+"/max_link_speed", parsePCISpeed)
	d.LinkMax.Width, _ = value(r, dir+"/max_link_width", parsePCIWidth)
	return d
}

func parseClass(s string) (*uint32, error) {
	v, err := parseHex(s, 24)
	return new(uint32(v)), err
}

func parseID(s string) (*uint16, error) {
	v, err := parseHex(s, 16)
	return new(uint16(v)), err
}

func hexPtr[T uint16 | uint32](s string, bits int) *T {
	v, err := parseHex(s, bits)
	if err != nil {
		return nil
	}
	return new(T(v))
}

// portType follows from the place in the tree: below a root port come, in
// turns, the upstream and the downstream ports of switches.
func (r *reader) portType(d *topology.PCIDevice) string {
	if subClass(d.Class) != subclassBridge {
		if d.Class == nil {
			return ""
		}
		return "endpoint"
	}
	depth := 0
	for at := d.Parent; at != ""; depth++ {
		i, ok := r.pci[at]
		if !ok || depth > len(r.h.PCI) {
			return ""
		}
		at = r.h.PCI[i].Parent
	}
	switch {
	case depth == 0:
		return "root"
	case depth%2 == 1:
		return "upstream"
	default:
		return "downstream"
	}
}

func (r *reader) switchPeers() {
	const base = "sys/kernel/pci_switch_link/virtual_switch_links"
	for _, name := range r.names(base) {
		i, ok := r.pci[name]
		if !ok {
			continue
		}
		for _, peer := range r.names(base + "/" + name) {
			if isBDF(peer) {
				r.link(base + "/" + name + "/" + peer)
				r.h.PCI[i].SwitchPeers = append(r.h.PCI[i].SwitchPeers, peer)
			}
		}
	}
}

const (
	vendorNVIDIA   = 0x10de
	vendorAMD      = 0x1002
	vendorIntel    = 0x8086
	vendorMellanox = 0x15b3
)

// gpus are the display controllers and accelerators of vendors whose GPUs
// compute. Virtual functions of a GPU (vGPU on the hypervisor) are no GPUs of
// this host, and a processor's own graphics (Intel's on bus 0) never computes
// for a cluster job.
func (r *reader) gpus() {
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		if d.Vendor == nil || d.PhysFn != "" {
			continue
		}
		vendor := ""
		switch base := baseClass(d.Class); {
		case *d.Vendor == vendorNVIDIA && base == classDisplay:
			vendor = "nvidia"
		case *d.Vendor == vendorAMD && (base == classDisplay || base == classProcessing):
			vendor = "amd"
		case *d.Vendor == vendorIntel && base == classDisplay && d.Parent != "":
			vendor = "intel"
		}
		if vendor == "" {
			continue
		}
		g := topology.GPU{Index: len(r.h.GPUs), PCI: d.Address, NUMA: d.NUMA, Vendor: vendor}
		r.nvidiaProc(&g)
		if text, ok := r.text(r.dirs[d.Address] + "/resource"); ok {
			g.BARBytes = parseResource(text)
		}
		r.h.GPUs = append(r.h.GPUs, g)
	}
	r.xgmi()
}

// nvidiaProc reads what NVIDIA's driver says of a GPU without NVML.
func (r *reader) nvidiaProc(g *topology.GPU) {
	if g.Vendor != "nvidia" {
		return
	}
	text, ok := r.text("proc/driver/nvidia/gpus/" + g.PCI + "/information")
	if !ok {
		return
	}
	for line := range strings.Lines(text) {
		key, val, _ := strings.Cut(line, ":")
		val = strings.TrimSpace(val)
		switch strings.TrimSpace(key) {
		case "Model":
			g.Name = val
		case "GPU UUID":
			// Question marks stand for a GPU that was not initialised yet.
			if !strings.Contains(val, "?") {
				g.UUID = val
			}
		case "Device Minor":
			if n, err := parseInt(val); err == nil && n >= 0 {
				g.Minor = &n
			}
		}
	}
}

// parseResource returns the size of the largest 64-bit prefetchable BAR, in
// bytes, from sysfs resource lines "start end flags".
func parseResource(s string) *int64 {
	const (
		memory   = 0x200
		prefetch = 0x2000
		mem64    = 0x100000
	)
	var largest uint64
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		start, err1 := parseHex(f[0], 64)
		end, err2 := parseHex(f[1], 64)
		flags, err3 := parseHex(f[2], 64)
		if err1 != nil || err2 != nil || err3 != nil || end <= start || flags&memory == 0 || flags&prefetch == 0 || flags&mem64 == 0 {
			continue
		}
		if size := end - start + 1; size > largest && size < 1<<60 {
			largest = size
		}
	}
	if largest == 0 {
		return nil
	}
	return new(int64(largest))
}

// xgmi reads the links between AMD GPUs from the amdkfd topology.
func (r *reader) xgmi() {
	const base = "sys/class/kfd/kfd/topology/nodes"
	if !slices.ContainsFunc(r.h.GPUs, func(g topology.GPU) bool { return g.Vendor == "amd" }) {
		return
	}
	gpuOf := map[string]string{} // kfd node → PCI address
	nodes := r.names(base)
	for _, node := range nodes {
		text, ok := r.text(base + "/" + node + "/properties")
		if !ok {
			continue
		}
		props := kfdProperties(text)
		loc, domain := props["location_id"], props["domain"]
		if props["simd_count"] == 0 {
			continue
		}
		addr := kfdAddress(domain, loc)
		gpuOf[node] = addr
	}
	for i := range r.h.GPUs {
		g := &r.h.GPUs[i]
		for _, node := range nodes {
			if gpuOf[node] != g.PCI {
				continue
			}
			for _, l := range r.names(base + "/" + node + "/io_links") {
				text, ok := r.text(base + "/" + node + "/io_links/" + l + "/properties")
				if !ok {
					continue
				}
				p := kfdProperties(text)
				const typeXGMI = 11 // HSA_IOLINKTYPE_XGMI
				to, isGPU := gpuOf[utoa(p["node_to"])]
				if p["type"] == typeXGMI && isGPU {
					g.Links = append(g.Links, topology.GPULink{Kind: "xgmi", Target: to, Count: 1})
				}
			}
		}
	}
}
