package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
)

// NormalPCI returns a PCI address the way sysfs writes it ("0000:3b:00.0").
// NVML and nvidia-smi write eight digits of domain and upper case
// ("00000000:3B:00.0"); a missing domain is 0. "" when s is no PCI address.
func NormalPCI(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return ""
	}
	dev, fn, ok := strings.Cut(parts[2], ".")
	if !ok {
		fn = "0"
	}
	domain, err1 := strconv.ParseUint(parts[0], 16, 32)
	bus, err2 := strconv.ParseUint(parts[1], 16, 8)
	device, err3 := strconv.ParseUint(dev, 16, 5)
	function, err4 := strconv.ParseUint(fn, 16, 3)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// parseNVML reads fabrun/nvml into the GPUs of h; a GPU that the PCI tree does
// not show is added at the end of the list.
func parseNVML(text []byte, h *topology.Host) []string {
	driver := ""
	bad := eachLine(text, func(w []string, line string) error {
		switch w[0] {
		case "driver":
			driver = known(after(line, 1))
			return nil
		case "cuda":
			// The highest CUDA version the driver can run, not a toolkit that is installed.
			h.Software = append(h.Software, topology.Software{Kind: "cuda-driver", Version: known(after(line, 1))})
			return nil
		case "gpu-error":
			h.Unreadable = append(h.Unreadable, topology.Unreadable{Path: SectionNVML, Reason: "GPU " + after(line, 1)})
			return nil
		case "gpu":
		default:
			return nil
		}
		if len(w) < 4 {
			return fmt.Errorf("gpu wants address, key and value")
		}
		addr := NormalPCI(w[1])
		if addr == "" {
			return fmt.Errorf("want a PCI address, got %q", w[1])
		}
		g := findGPU(h, addr)
		return parseNVMLGPU(g, w[2], w[3:], after(line, 3))
	})
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Vendor == "nvidia" && g.Driver == "" {
			g.Driver = driver
		}
	}
	return bad
}

func findGPU(h *topology.Host, addr string) *topology.GPU {
	for i := range h.GPUs {
		if h.GPUs[i].PCI == addr {
			return &h.GPUs[i]
		}
	}
	h.GPUs = append(h.GPUs, topology.GPU{Index: len(h.GPUs), PCI: addr, Vendor: "nvidia"})
	return &h.GPUs[len(h.GPUs)-1]
}

func parseNVMLGPU(g *topology.GPU, key string, w []string, rest string) error {
	switch key {
	case "name":
		g.Name = known(rest)
	case "uuid":
		g.UUID = known(w[0])
	case "memory":
		v, err := parseSize(w[0])
		if err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		g.Memory = v
	case "capability":
		g.Capability = known(w[0])
	case "minor", "numa":
		v, err := strconv.Atoi(w[0])
		if err != nil || v < 0 {
			return fmt.Errorf("%s: cannot read %q", key, w[0])
		}
		if key == "minor" {
			g.Minor = &v
		} else if g.NUMA == nil {
			// The kernel's numa_node is the first source; this one answers where it says -1.
			g.NUMA = &v
		}
	case "mig":
		m := topology.MIG{UUID: known(w[0])}
		if len(w) > 1 {
			m.Profile = known(w[1])
		}
		g.MIG = append(g.MIG, m)
	case "no-p2p":
		addr := NormalPCI(w[0])
		if addr == "" {
			return fmt.Errorf("no-p2p: want a PCI address, got %q", w[0])
		}
		if !slices.Contains(g.NoP2P, addr) {
			g.NoP2P = append(g.NoP2P, addr)
		}
	case "fabric":
		return parseDomain(g, w)
	case "link":
		return parseNVMLLink(g, w)
	}
	return nil
}

func parseNVMLLink(g *topology.GPU, w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("link wants kind, target and count")
	}
	l := topology.GPULink{Kind: w[0], Target: known(w[1])}
	if l.Target != "" && l.Target != "cpu" {
		if l.Target = NormalPCI(w[1]); l.Target == "" {
			return fmt.Errorf("link: want a PCI address, got %q", w[1])
		}
	}
	n, err := strconv.Atoi(w[2])
	if err != nil || n < 1 || n > 1024 {
		return fmt.Errorf("link: cannot read count %q", w[2])
	}
	l.Count = n
	if len(w) > 3 && w[3] != "-" {
		c, err := strconv.ParseUint(w[3], 0, 32)
		if err != nil {
			return fmt.Errorf("link: cannot read class %q", w[3])
		}
		l.Class = new(uint32(c))
	}
	g.Links = append(g.Links, l)
	return nil
}

func parseDomain(g *topology.GPU, w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("fabric wants cluster, clique and state")
	}
	d := topology.NVLinkDomain{Cluster: w[0], State: w[2]}
	n, err := strconv.ParseUint(w[1], 10, 32)
	if err != nil {
		return fmt.Errorf("fabric: cannot read clique %q", w[1])
	}
	d.Clique = int(n)
	if len(w) > 3 {
		if d.Status, err = strconv.Atoi(w[3]); err != nil {
			return fmt.Errorf("fabric: cannot read status %q", w[3])
		}
	}
	g.Domain = &d
	return nil
}
