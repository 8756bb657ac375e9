package topology

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/topology/finding"
)

// Judge says what is not as it should be in how GPUs, HCAs and NUMA nodes hang
// together. paths is what Paths gives for h.
func Judge(h Host, paths []Path) []finding.Finding {
	j := &judge{h: &h, paths: paths}
	j.hidden()
	j.numa()
	j.reach()
	j.degraded()
	j.visible()
	j.outside()
	finding.Sort(j.found)
	return j.found
}

type judge struct {
	h     *Host
	paths []Path
	found []finding.Finding
}

func (j *judge) say(id string, sev finding.Severity, subject, seen, wanted, why, hint string) {
	j.found = append(j.found, finding.Finding{ID: id, Severity: sev, Host: j.h.Name, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

func (j *judge) hidden() {
	if j.h.Hidden == "" {
		return
	}
	j.say("topo.hidden", finding.Warning, "PCI topology", j.h.Hidden, "the real tree, or a topology file of it",
		"no distance between GPU and HCA can be told here, and NCCL's own guess is wrong too",
		"give NCCL the provider's file with NCCL_TOPO_FILE, and fabrun with --from FILE.xml")
}

func (j *judge) numa() {
	packages := map[int]bool{}
	for _, c := range j.h.CPU.Cores {
		packages[c.Package] = true
	}
	if j.h.Hidden == "" && len(packages) > 1 && len(j.h.NUMA) <= 1 {
		j.say("topo.numa-off", finding.Warning, "NUMA", fmt.Sprintf("%d sockets, %d NUMA node", len(packages), len(j.h.NUMA)), "one NUMA node a socket, or more",
			"nobody can tell which GPU and HCA share a socket, and memory is interleaved over both", "node interleaving off in the BIOS, and no numa=off on the kernel's command line"+finding.Reboots)
		return
	}
	var lost []string
	for _, g := range j.h.GPUs {
		if g.NUMA == nil {
			lost = append(lost, fmt.Sprintf("GPU %d", g.Index))
		}
	}
	for _, c := range j.h.HCAs {
		if c.PCI != "" && c.NUMA == nil {
			lost = append(lost, c.Name)
		}
	}
	if len(lost) > 0 && len(j.h.NUMA) > 1 {
		j.say("topo.numa-unknown", finding.Warning, shorten(lost, 6), "numa_node −1", "a NUMA node",
			"the distance to them is a guess", "the BIOS does not say (ACPI _PXM): a firmware update often helps"+finding.Reboots)
	}
}

// rail reports whether an HCA can carry a job: an RDMA device with a port that is up.
func rail(c *HCA) bool {
	if c.Class == "net" {
		return false
	}
	return len(c.Ports) == 0 || slices.ContainsFunc(c.Ports, func(p Port) bool { return !p.Down() })
}

func shorten(names []string, most int) string {
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Nearest returns, for each GPU in order, its nearest HCAs that are up: those
// of the best type. Nil where there is none.
func Nearest(h Host, paths []Path) [][]Path {
	up := map[string]bool{}
	for i := range h.HCAs {
		up[h.HCAs[i].Name] = rail(&h.HCAs[i])
	}
	out := make([][]Path, len(h.GPUs))
	for i, g := range h.GPUs {
		var own []Path
		for _, p := range paths {
			if p.From == g.PCI && p.HCA != "" && up[p.HCA] && p.NCCL != "" {
				own = append(own, p)
			}
		}
		slices.SortStableFunc(own, CompareDistance)
		for _, p := range own {
			if p.NCCL == own[0].NCCL && p.SMI == own[0].SMI {
				out[i] = append(out[i], p)
			}
		}
	}
	return out
}

// SameSocket reports whether both ends of a path are known to be on one socket.
func SameSocket(h Host, p Path) bool {
	pkg := func(addr string) *int {
		for _, d := range h.PCI {
			if d.Address != addr || d.NUMA == nil {
				continue
			}
			for _, n := range h.NUMA {
				if n.ID == *d.NUMA {
					return n.Package
				}
			}
		}
		return nil
	}
	a, b := pkg(p.From), pkg(p.To)
	return a != nil && b != nil && *a == *b
}

func (j *judge) reach() {
	if len(j.h.GPUs) == 0 || len(j.h.HCAs) == 0 || j.h.Hidden != "" {
		return
	}
	var far, cpu, node []string
	for i, near := range Nearest(*j.h, j.paths) {
		if len(near) == 0 {
			continue
		}
		what := fmt.Sprintf("GPU %d", j.h.GPUs[i].Index)
		switch near[0].NCCL {
		case SYS:
			if SameSocket(*j.h, near[0]) {
				node = append(node, what)
				continue
			}
			far = append(far, what+" reaches "+near[0].HCA+" over SYS")
		case PHB:
			cpu = append(cpu, what)
		}
	}
	if len(far) > 0 {
		rails := "one rail crosses"
		if len(far) > 1 {
			rails = fmt.Sprintf("%d rails cross", len(far))
		}
		j.say("topo.gpu-far", finding.Warning, "GPU and HCA", shorten(far, 4), "an HCA on the GPU's own socket",
			rails+" the socket link: slower than a rail, and GPUDirect RDMA is off by default there",
			"move a NIC to the other socket; until then NVLink to a GPU near an HCA (PXN) or host memory carries the data")
	}
	if len(node) > 0 {
		j.say("topo.gpu-other-numa", finding.Note, shorten(node, 8), "nearest HCA on another NUMA node of the same socket (SYS to NCCL)", "an HCA on the GPU's own NUMA node",
			"GPUDirect RDMA is off by default there, as if it were another socket", "NCCL_NET_GDR_LEVEL=SYS is worth a measurement here, or fewer NUMA nodes a socket (NPS1)")
	}
	if len(cpu) > 0 {
		j.say("topo.gpu-through-cpu", finding.Note, shorten(cpu, 8), "nearest HCA over PHB: through the CPU's root complex", "PIX or PXB: behind the same PCIe switch",
			"GPUDirect RDMA past the root complex is off by default in NCCL, and slow on some CPUs", "")
	}
}

func (j *judge) degraded() {
	t := newTree(j.h)
	for _, addr := range DegradedLinks(*j.h) {
		if !j.onAWay(addr) {
			continue
		}
		d := t.dev[addr]
		most := d.LinkMax
		if up := t.dev[d.Parent]; up != nil {
			most.SpeedMTps = minKnown(most.SpeedMTps, up.LinkMax.SpeedMTps)
			most.Width = minKnown(most.Width, up.LinkMax.Width)
		}
		j.say("topo.link-degraded", finding.Warning, strings.TrimSpace(j.nameOf(addr)+" "+addr), d.Link.String(), most.String(),
			"all that passes this PCIe link is slower than it could be", "reseat the card or the riser; look at 'lspci -vvs "+addr+"' (LnkSta)")
	}
}

// onAWay reports whether a link lies between a GPU and an HCA, or is one's own.
func (j *judge) onAWay(addr string) bool {
	if j.nameOf(addr) != "" {
		return true
	}
	return slices.ContainsFunc(j.paths, func(p Path) bool {
		return (p.NCCL == PIX || p.NCCL == PXB) && slices.Contains(p.Chain, addr)
	})
}

func (j *judge) nameOf(addr string) string {
	for _, c := range j.h.HCAs {
		if c.PCI == addr {
			return c.Name
		}
	}
	for _, g := range j.h.GPUs {
		if g.PCI == addr {
			return fmt.Sprintf("GPU %d", g.Index)
		}
	}
	return ""
}

// String is a link as people write it: "16 GT/s x8".
func (l Link) String() string {
	var parts []string
	if l.SpeedMTps != nil {
		parts = append(parts, fmt.Sprintf("%g GT/s", float64(*l.SpeedMTps)/1000))
	}
	if l.Width != nil {
		parts = append(parts, fmt.Sprintf("x%d", *l.Width))
	}
	if parts == nil {
		return "unknown"
	}
	return strings.Join(parts, " ")
}

func (j *judge) visible() {
	hidden, noNode := 0, 0
	for _, g := range j.h.GPUs {
		if g.Visible != nil && !*g.Visible {
			hidden++
			if g.DeviceNode != nil && !*g.DeviceNode {
				noNode++
			}
		}
	}
	if hidden == 0 {
		return
	}
	why := "a *_VISIBLE_DEVICES variable leaves them out"
	if noNode == hidden {
		why = "their device nodes are not there: a container or a cgroup hides them"
	}
	j.say("topo.gpus-hidden", finding.Note, "GPUs", fmt.Sprintf("this process can use %d of %d GPUs", len(j.h.GPUs)-hidden, len(j.h.GPUs)), "", why, "")
}

// outside: --root reads through os.Root, which does not follow links that leave it.
func (j *judge) outside() {
	for _, u := range j.h.Unreadable {
		if strings.Contains(u.Reason, "escapes") {
			j.say("topo.link-outside", finding.Warning, u.Path, u.Reason, "a link within the root directory", "what lies behind it is unknown", "")
		}
	}
}

// Unopenable says why the device of an HCA cannot be opened here, where libraries
// that found it in sysfs open /dev/infiniband/uverbsN: a container, or a control
// group, shows a part of them. "" it can be, or nothing is known of it.
func (h *Host) Unopenable(c *HCA) string {
	d := h.DeviceNodes
	if d == nil || !DriverNamed(c.Driver).Uverbs || c.Class != "infiniband" {
		return ""
	}
	switch {
	case c.CharDevice == "" && slices.ContainsFunc(d.Names, func(n string) bool { return strings.HasPrefix(n, "uverbs") }):
		return "" // which one is its is not known
	case c.CharDevice == "":
		return "no /dev/infiniband/uverbs… is here: it cannot be opened"
	case !slices.Contains(d.Names, c.CharDevice):
		return "no /dev/infiniband/" + c.CharDevice + " is here: it cannot be opened"
	case d.Openable != nil && !slices.Contains(d.Openable, c.CharDevice):
		return "/dev/infiniband/" + c.CharDevice + " may not be opened"
	}
	return ""
}
