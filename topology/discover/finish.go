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
	h.Hidden = hidden(h)
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
