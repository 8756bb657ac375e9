package discover

import (
	"strings"

	"fabrun/topology"
)

// finish judges the Host as a whole, when facts are in.
func finish(h *topology.Host) {
	for i := range h.GPUs {
		h.GPUs[i].Index = i
	}
	topology.MarkVisible(h)
	dataDirect(h)
	h.Hidden = hidden(h)
}

// PCI IDs of a ConnectX-8 and of its data direct function, which sits beside
// the GPU and lets the NIC reach GPU memory without the CPU.
const (
	deviceCX8        = 0x1023
	deviceDataDirect = 0x2100
)

// dataDirect finds the data direct function of each ConnectX-8. What ties the
// two together is in the firmware (VUID) and in no file, so only a pair that is
// alone on its NUMA node is told.
func dataDirect(h *topology.Host) {
	type pair struct {
		hcas      []*topology.HCA
		functions []string
	}
	byNode := map[int]*pair{}
	at := func(numa *int) *pair {
		n := -1
		if numa != nil {
			n = *numa
		}
		if byNode[n] == nil {
			byNode[n] = &pair{}
		}
		return byNode[n]
	}
	device := map[string]uint16{}
	for _, d := range h.PCI {
		if d.Vendor == nil || d.Device == nil || *d.Vendor != vendorMellanox {
			continue
		}
		device[d.Address] = *d.Device
		if *d.Device == deviceDataDirect && subClass(d.Class) == subclassDMA {
			p := at(d.NUMA)
			p.functions = append(p.functions, d.Address)
		}
	}
	for i := range h.HCAs {
		if c := &h.HCAs[i]; device[c.PCI] == deviceCX8 && c.PCI != "" {
			p := at(c.NUMA)
			p.hcas = append(p.hcas, c)
		}
	}
	for _, p := range byNode {
		if len(p.hcas) == 1 && len(p.functions) == 1 {
			p.hcas[0].DataDirect = p.functions[0]
		}
	}
}

// virtualProducts are marks that a hypervisor leaves in DMI.
var virtualProducts = []string{
	"KVM", "QEMU", "Standard PC", "Virtual Machine", "VMware", "VirtualBox", "HVM domU", "Google Compute Engine",
	"OpenStack", "Alibaba Cloud ECS", "BHYVE", "Amazon EC2", "CVM",
}

// isVM reports whether the host is a guest.
func isVM(h *topology.Host) bool {
	if h.CPU.Hypervisor {
		return true
	}
	// Bare-metal instances carry the cloud's vendor name and say so in the product.
	if strings.Contains(h.Product.Name, ".metal") || strings.HasPrefix(h.Product.Name, "BM.") || strings.Contains(h.Product.Name, "ebm") {
		return false
	}
	words := h.Product.Vendor + " " + h.Product.Name
	for _, mark := range virtualProducts {
		if strings.Contains(words, mark) {
			return true
		}
	}
	return false
}

// hidden says why the PCI tree cannot be trusted: in a guest whose devices all
// hang off the root, or off one root port each, the real switches do not show.
func hidden(h *topology.Host) string {
	if !isVM(h) {
		return ""
	}
	byAddr := map[string]*topology.PCIDevice{}
	for i := range h.PCI {
		byAddr[h.PCI[i].Address] = &h.PCI[i]
	}
	devices := 0
	for _, addr := range fabricDevices(h) {
		d := byAddr[addr]
		if d == nil {
			continue
		}
		devices++
		if d.Parent == "" {
			continue
		}
		if up := byAddr[d.Parent]; up != nil && up.Parent != "" {
			return "" // behind a switch: this guest shows a tree
		}
	}
	if devices < 2 {
		return ""
	}
	return "flat PCI tree of a virtual machine: the switches between GPUs and HCAs do not show"
}

// fabricDevices are the PCI functions whose distance matters.
func fabricDevices(h *topology.Host) []string {
	var addrs []string
	for _, g := range h.GPUs {
		addrs = append(addrs, g.PCI)
	}
	for _, c := range h.HCAs {
		if c.PCI != "" {
			addrs = append(addrs, c.PCI)
		}
	}
	return addrs
}
