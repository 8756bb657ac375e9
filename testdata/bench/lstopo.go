package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fabrun/topology"
	"fabrun/topology/discover"
)

// hwlocXML writes the host of a snapshot as hwloc's XML (version 2), so that
// lstopo loads the machine that fabrun plans for: packages, NUMA nodes, cores,
// PCI functions by their root complex, network and RDMA devices.
func hwlocXML(snapshot, to string) error {
	text, err := os.ReadFile(snapshot)
	if err != nil {
		return err
	}
	fsys, err := discover.ParseSnapshot(string(text))
	if err != nil {
		return err
	}
	h, err := discover.Read(fsys)
	if err != nil {
		return err
	}
	var b strings.Builder
	var all []int
	for _, n := range h.NUMA {
		all = append(all, n.CPUs...)
	}
	nodes := ids(len(h.NUMA))
	sets := func(cpus, nodes []int) string {
		return fmt.Sprintf(`cpuset="%s" complete_cpuset="%[1]s" nodeset="%s" complete_nodeset="%[2]s"`, bitmap(cpus), bitmap(nodes))
	}
	id := 0
	gp := func() int { id++; return id }
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0"><object type="Machine" os_index="0" %s allowed_cpuset="%s" allowed_nodeset="%s" gp_index="%d">`,
		sets(all, nodes), bitmap(all), bitmap(nodes), gp())
	for i, n := range h.NUMA {
		memory := int64(1)
		if n.MemoryBytes != nil {
			memory = *n.MemoryBytes
		}
		own := sets(n.CPUs, []int{i})
		fmt.Fprintf(&b, `<object type="Package" os_index="%d" %s gp_index="%d"><object type="NUMANode" os_index="%[1]d" %[2]s gp_index="%d" local_memory="%d"/>`, i, own, gp(), gp(), memory)
		for _, cpu := range n.CPUs {
			one := sets([]int{cpu}, []int{i})
			fmt.Fprintf(&b, `<object type="Core" os_index="%d" %s gp_index="%d"><object type="PU" os_index="%[1]d" %[2]s gp_index="%d"/></object>`, cpu, one, gp(), gp())
		}
		for _, d := range h.PCI {
			if d.NUMA == nil || *d.NUMA != n.ID || d.Class == nil || d.Vendor == nil || d.Device == nil || *d.Class>>16 == 6 {
				continue
			}
			// Each on a host bridge of its own: so deep are most.
			bus := d.Address[5:7]
			fmt.Fprintf(&b, `<object type="Bridge" gp_index="%d" bridge_type="0-1" depth="0" bridge_pci="%s:[%s-%s]"><object type="PCIDev" gp_index="%d" pci_busid="%s" pci_type="%04x [%04x:%04x] [0000:0000] 00" pci_link_speed="31.5">`,
				gp(), d.Address[:4], bus, bus, gp(), d.Address, *d.Class>>8, *d.Vendor, *d.Device)
			for _, name := range osDevices(h, d.Address) {
				fmt.Fprintf(&b, `<object type="OSDev" gp_index="%d" name="%s" osdev_type="%d"/>`, gp(), name[1:], name[0]-'0')
			}
			b.WriteString(`</object></object>`)
		}
		b.WriteString(`</object>`)
	}
	b.WriteString("</object></topology>\n")
	return os.WriteFile(to, []byte(b.String()), 0o600)
}

// osDevices are the names of what a PCI function shows, each behind the digit of
// its kind: 2 network, 3 RDMA, 5 GPU.
func osDevices(h topology.Host, address string) (names []string) {
	for _, c := range h.HCAs {
		if c.PCI == address {
			names = append(names, "3"+c.Name)
		}
	}
	for _, d := range h.Netdevs {
		if d.PCI == address {
			names = append(names, "2"+d.Name)
		}
	}
	for _, g := range h.GPUs {
		if g.PCI == address {
			names = append(names, fmt.Sprintf("5nvml%d", g.Index))
		}
	}
	return names
}

func ids(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// bitmap is a set as hwloc writes it: words of 32 bits, the highest first.
func bitmap(set []int) string {
	words := []uint32{0}
	for _, i := range set {
		for len(words) <= i/32 {
			words = append(words, 0)
		}
		words[i/32] |= 1 << (i % 32)
	}
	var out []string
	for i := len(words) - 1; i >= 0; i-- {
		out = append(out, fmt.Sprintf("0x%08x", words[i]))
	}
	return strings.Join(out, ",")
}

// eightGPUs is the host of the plan, for both.
const eightGPUs = "testdata/hosts/dgx-roce-8x8.snap"

func eightGPUsXML(dir, _ string) error {
	return hwlocXML(eightGPUs, filepath.Join(dir, "lstopo.xml"))
}
