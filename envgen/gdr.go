package envgen

import (
	"fmt"
	"slices"
	"strings"

	vartable "fabrun/envgen/vars"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// reach is the nearest chosen device of one GPU.
type reach struct {
	gpu  *topology.GPU
	path topology.Path
}

// reaches are the nearest chosen devices of a node's visible GPUs.
func (n *node) reaches() []reach {
	all := topology.PathsToHCAs(*n.h)
	var out []reach
	for i := range n.h.GPUs {
		g := &n.h.GPUs[i]
		if g.Visible != nil && !*g.Visible {
			continue
		}
		var best *topology.Path
		for j := range all {
			p := &all[j]
			if p.HCA == "" || p.From != g.PCI || best != nil && topology.CompareDistance(*p, *best) >= 0 {
				continue
			}
			if slices.ContainsFunc(n.use, func(u *port) bool { return u.hca.Name == p.HCA }) {
				best = p
			}
		}
		if best != nil {
			out = append(out, reach{g, *best})
		}
	}
	return out
}

// gdrPossible says whether NICs can read the GPUs' memory: by a client of peer
// memory in the kernel, or by DMA-BUF, which a library may have turned off.
func (s *state) gdrPossible(n *node) answer {
	if len(n.h.GPUs) == 0 || n.h.NoGPUDirect() != "" {
		return no
	}
	m := n.h.PeerMemory
	client := m.NvidiaPeermem
	if n.rccl() {
		client = m.AMDPeer
		if client == nil && m.AMDKFD != nil && *m.AMDKFD {
			client = m.AMDKFD // an older snapshot: the driver is there, and what else is not told
		}
	}
	switch {
	case client != nil && *client:
		return yes
	case m.DMABuf != nil && *m.DMABuf:
		return s.dmaBuf(n)
	case client != nil && m.DMABuf != nil:
		return no
	}
	return unknown
}

// dmaBuf says whether the library registers GPU memory by DMA-BUF where the
// kernel can: NCCL from 2.13 on unless told otherwise; RCCL, whose default is off
// until late releases, because the plan tells it to.
func (s *state) dmaBuf(n *node) answer {
	if set, ok := s.inForce(n, "NCCL_DMABUF_ENABLE"); ok {
		if v, exact := ncclInt(set.Value); exact && v == 0 {
			return no
		}
		return yes
	}
	if atLeast(n.v.NCCL, "2.13") == no {
		return no
	}
	return yes
}

// inForce is what somebody else than the plan says for a name on a node.
func (s *state) inForce(n *node, name string) (Setting, bool) {
	for _, set := range s.settings(n) {
		if set.Name == name {
			return set, true
		}
	}
	for _, e := range s.in.Profile.Env {
		if e.Name == name {
			return Setting{Name: name, Value: e.On(SeenOn(n.h).PCI), Origin: FromProfile, Where: "profile " + s.in.Profile.Name}, true
		}
	}
	return Setting{}, false
}

// rcclDMABuf turns DMA-BUF on for RCCL on a kernel that has no client of peer
// memory: it is off by default until late releases ("Dmabuf feature disabled
// without NCCL_DMABUF_ENABLE=1", src/misc/rocmwrap.cc of ROCm/rccl), and without
// both every byte goes through the host. With a client AMD's recipes for Pollara
// turn it off (ROCm/cvs env_file/rccl ainic, AMD-AGI/Primus 03_enable_ainic.sh), also
// where a snapshot does not tell; for other NICs it is left to RCCL.
func rcclDMABuf(s *state, n *node) []Var {
	m := n.h.PeerMemory
	if !s.usesNCCL() || !n.rccl() || len(n.verbsPorts(true)) == 0 {
		return nil
	}
	if m.AMDPeer == nil || *m.AMDPeer {
		if !n.pollara() {
			return nil
		}
		return []Var{{
			Name: "NCCL_DMABUF_ENABLE", Value: "0", Evidence: []string{"driver ionic"}, Why: "AMD's setting for this NIC, which registers GPU memory by the kernel's client of peer memory",
			IfWrong: "RCCL registers GPU memory another way than the NIC's maker tests",
		}}
	}
	if m.DMABuf == nil || !*m.DMABuf {
		return nil
	}
	return []Var{{
		Name: "NCCL_DMABUF_ENABLE", Value: "1", Evidence: []string{"no ib_register_peer_memory_client in this kernel; DMA-BUF with move_notify and peer-to-peer DMA"},
		Why:      "the kernel takes no client of peer memory, so DMA-BUF is the only way to GPUDirect, and RCCL uses it only when told so",
		Rejected: []Alternative{{Value: "unset", Why: "RCCL's default for long: off"}}, IfWrong: "every byte between GPUs of different nodes goes through host memory",
	}}
}

// noPeerMemory says what is missing for NICs to read GPU memory.
func (n *node) noPeerMemory() (seen, wanted, hint string) {
	m := n.h.PeerMemory
	switch {
	case n.h.NoGPUDirect() != "":
		return n.h.NoGPUDirect(), "another GPU", "unset the level"
	case m.DMABuf != nil && *m.DMABuf:
		return "DMA-BUF is possible and turned off (NCCL_DMABUF_ENABLE=0, or a library before 2.13), and the kernel has no client of peer memory",
			"DMA-BUF", "unset NCCL_DMABUF_ENABLE, or NCCL_DMABUF_ENABLE=1"
	case n.rccl():
		return "neither a client of peer memory nor DMA-BUF in this kernel", "one of them",
			"a kernel with CONFIG_DMABUF_MOVE_NOTIFY and CONFIG_PCI_P2PDMA, or the NIC vendor's ib_core with peer memory (as root)"
	}
	return "neither nvidia_peermem nor DMA-BUF", "one of them", "load nvidia_peermem (as root), or use the open GPU kernel modules with DMA-BUF"
}

// platformBars says why a NIC cannot be trusted to read GPU memory directly
// through this host's PCI tree; "" nothing is known against it.
func platformBars(h *topology.Host) (id, why, hint string) {
	switch {
	case h.Hidden != "":
		return "gdr.hidden-topology", "the PCI tree is not the real one: " + h.Hidden, "a topology file of the provider (NCCL_TOPO_FILE) tells NCCL the truth"
	case h.IOMMU.Groups != nil && *h.IOMMU.Groups > 0 && h.IOMMU.Passthrough != nil && !*h.IOMMU.Passthrough:
		return "gdr.iommu", "the IOMMU translates every DMA address", "boot with iommu=pt" + finding.Reboots
	case len(h.IOMMU.ACSRedirect) > 0:
		return "gdr.acs", "ACS sends peer-to-peer traffic up to the root complex: " + strings.Join(h.IOMMU.ACSRedirect[:min(4, len(h.IOMMU.ACSRedirect))], ", "), "where no virtual machine is given devices of this host: ACS redirection off on the PCIe switches (setpci, as root, or in the BIOS)"
	}
	return "", "", ""
}

// ncclGDR widens NCCL's GPUDirect level where its default would leave a GPU
// without the NIC of its own socket and no neighbour relays it; never beyond PHB.
func ncclGDR(s *state, n *node) []Var {
	if !s.usesNCCL() || len(n.h.GPUs) == 0 || len(n.verbsPorts(false)) == 0 {
		return nil
	}
	switch s.gdrPossible(n) {
	case no:
		if why := n.h.NoGPUDirect(); why != "" {
			s.add(finding.Finding{
				ID: "gdr.no-peer-memory", Severity: finding.Note, Host: n.h.Name, Subject: "GPUDirect RDMA", Seen: why,
				Wanted: "", Why: "data goes through host memory, which is as it should be here", Hint: "nothing to do",
			})
			return nil
		}
		seen, wanted, hint := n.noPeerMemory()
		s.add(finding.Finding{
			ID: "gdr.no-peer-memory", Severity: finding.Warning, Host: n.h.Name, Subject: "GPUDirect RDMA",
			Seen: seen, Wanted: wanted, Why: "every byte between GPUs of different nodes goes through host memory", Hint: hint,
		})
		return nil
	case unknown: // never a level for what is perhaps not there
		n.leave(Var{Name: "NCCL_NET_GDR_LEVEL", Why: "whether NICs can read GPU memory here is not known"})
		return nil
	}
	if id, why, hint := platformBars(n.h); id != "" {
		s.add(finding.Finding{
			ID: id, Severity: finding.Warning, Host: n.h.Name, Subject: "NCCL_NET_GDR_LEVEL", Seen: why,
			Wanted: "a PCI tree through which NICs reach GPUs directly", Why: "the level is left to NCCL", Hint: hint,
		})
		n.leave(Var{Name: "NCCL_NET_GDR_LEVEL", Why: why})
		return nil
	}
	if len(n.h.PCI) == 0 {
		return nil // no PCI tree was seen: no distance is known
	}
	level := defaultLevel(n)
	var evidence, far, through []string
	for _, w := range s.ways(n) {
		if w.kind == "" {
			return nil
		}
		evidence = append(evidence, w.text())
		switch {
		case !level.Closer(w.kind):
		case w.relay != "":
		case w.kind == topology.PHB:
			through = append(through, fmt.Sprintf("GPU %d", w.gpu.Index))
		default:
			far = append(far, fmt.Sprintf("GPU %d", w.gpu.Index))
		}
	}
	if len(far) > 0 {
		s.add(finding.Finding{
			ID: "gdr.far-gpu", Severity: finding.Note, Host: n.h.Name, Subject: strings.Join(far, ", "), Seen: "the nearest NIC is on the other socket",
			Wanted: "a NIC on each socket", Why: "these GPUs go through host memory, which is faster than GPUDirect across the socket link", Hint: "nothing to do for this job",
		})
	}
	if len(through) == 0 {
		n.leave(Var{
			Name: "NCCL_NET_GDR_LEVEL", Why: "NCCL's default " + string(level) + " serves every GPU whose NIC is worth reaching, by itself or by a neighbour's NIC (PXN)", Evidence: evidence,
			Rejected: []Alternative{{Value: "PHB", Why: "not needed: no GPU depends on a NIC behind the root complex"}},
		})
		return nil
	}
	return []Var{{
		Name: "NCCL_NET_GDR_LEVEL", Value: string(topology.PHB), Evidence: evidence,
		Why: "GPUs that reach their nearest NIC only through the CPU, and that no neighbour relays: " + strings.Join(through, ", ") + "; NCCL's default " + string(level) + " would send them through host memory",
		Rejected: []Alternative{
			{Value: string(level), Why: "NCCL's default: no GPUDirect between these GPUs and the NIC of their own socket"},
			{Value: "SYS", Why: "across the socket link GPUDirect is slower than a neighbour's NIC or host memory"},
		},
		IfWrong: "narrower: no GPUDirect for these GPUs; wider: GPUDirect across the socket link",
	}}
}

// defaultLevel is how far NCCL uses GPUDirect by itself: PXB from 2.6 on; on
// Grace, whose NICs a GPU reaches over C2C, P2C since 2.27 (graph/paths.cc).
func defaultLevel(n *node) topology.PathType {
	if !n.rccl() && atLeast(n.v.NCCL, "2.27") == yes {
		return topology.P2C
	}
	return topology.PXB
}

// way is how a GPU gets to its nearest chosen NIC in NCCL's eyes.
type way struct {
	reach
	kind  topology.PathType // as this version of NCCL counts it; "" unknown
	relay string            // the GPU over whose NIC it goes (PXN); "" none
}

func (w way) text() string {
	t := fmt.Sprintf("GPU %d (%s) to %s: %s", w.gpu.Index, w.gpu.PCI, w.path.HCA, w.kind)
	if w.relay != "" {
		t += ", relayed by " + w.relay
	}
	return t
}

// ways are those of a node's visible GPUs. A GPU with an NVLink neighbour that is
// beside a NIC is relayed by it (PXN, 2.12 on; RCCL's is off unless asked for).
func (s *state) ways(n *node) []way {
	var out []way
	for _, r := range n.reaches() {
		w := way{reach: r, kind: r.path.NCCL}
		// Until 2.26 C2C did not count: the way is one through the CPU. For a
		// version that is not known the same holds, which is right for both.
		if w.kind == topology.P2C && defaultLevel(n) != topology.P2C {
			w.kind = topology.PHB
		}
		out = append(out, w)
	}
	if !s.relays(n) || !slices.ContainsFunc(out, func(w way) bool { return topology.PXB.Closer(w.kind) }) {
		return out
	}
	links := topology.Paths(*n.h)
	linked := func(a, b string) bool {
		return slices.ContainsFunc(links, func(p topology.Path) bool {
			return p.HCA == "" && p.NCCL == topology.NVL && (p.From == a && p.To == b || p.From == b && p.To == a)
		})
	}
	for i := range out {
		if !topology.PXB.Closer(out[i].kind) {
			continue
		}
		for _, near := range out {
			if near.kind != "" && !topology.PXB.Closer(near.kind) && linked(out[i].gpu.PCI, near.gpu.PCI) {
				out[i].relay = fmt.Sprintf("GPU %d", near.gpu.Index)
				break
			}
		}
	}
	return out
}

// relays says whether the library relays through a neighbour's NIC.
func (s *state) relays(n *node) bool {
	for _, set := range s.settings(n) {
		if v, ok := ncclInt(set.Value); set.Name == "NCCL_PXN_DISABLE" && ok {
			return v == 0
		}
	}
	if n.rccl() {
		return s.cross.reach == no // then it is told to
	}
	return atLeast(n.v.NCCL, "2.12") != no
}

// gdrServed counts the GPUs that GPUDirect serves at a level, of those whose way
// is known.
func (s *state) gdrServed(n *node, level topology.PathType) (served, of int) {
	for _, w := range s.ways(n) {
		if w.kind == "" {
			continue
		}
		of++
		if !level.Closer(w.kind) || w.relay != "" && !level.Closer(topology.PXB) {
			served++
		}
	}
	return served, of
}

// gdrPromise is what the contract promises of GPUDirect, in words ("" nothing) and
// as a value. vars are those in force on the node.
func (s *state) gdrPromise(n *node, vars []Var) (string, *bool) {
	on, off := true, false
	if !s.usesNCCL() || len(n.h.GPUs) == 0 {
		return "", nil
	}
	switch s.gdrPossible(n) {
	case no:
		return ", GPUDirect off", &off
	case unknown:
		return "", nil
	}
	if bar, _, _ := platformBars(n.h); bar != "" {
		return "", nil
	}
	if len(n.verbsPorts(true)) == 0 {
		if n.v.NetPlugin == "" {
			return "", nil // NCCL goes over sockets
		}
		return ", GPUDirect on", &on
	}
	if len(n.h.PCI) == 0 {
		return ", GPUDirect on", &on
	}
	level := defaultLevel(n)
	if i := indexVar(vars, "NCCL_NET_GDR_LEVEL"); i >= 0 && slices.Contains(vartable.Levels, vars[i].Value) {
		level = topology.PathType(vars[i].Value)
	}
	switch served, of := s.gdrServed(n, level); {
	case of == 0:
		return "", nil
	case served == of:
		return ", GPUDirect on", &on
	case served == 0:
		return ", GPUDirect off at level " + string(level), &off
	default:
		return fmt.Sprintf(", GPUDirect for %d of %d GPUs", served, of), nil
	}
}
