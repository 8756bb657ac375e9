package envgen

import (
	"fmt"
	"slices"
	"strings"

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
// without the NIC of its own socket; never beyond PHB.
func ncclGDR(s *state, n *node) []Var {
	if !s.usesNCCL() || len(n.h.GPUs) == 0 || len(n.verbsPorts(false)) == 0 {
		return nil
	}
	switch gdrPossible(n.h) {
	case no:
		s.add(finding.Finding{
			ID: "gdr.no-peer-memory", Severity: finding.Warning, Host: n.h.Name, Subject: "GPUDirect RDMA",
			Seen: "neither nvidia_peermem nor DMA-BUF", Wanted: "one of them", Why: "every byte between GPUs of different nodes goes through host memory",
			Hint: "load nvidia_peermem (as root), or use the open GPU kernel modules with DMA-BUF",
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
	defaultLevel := topology.PXB
	if atLeast(n.v.NCCL, "2.28") == yes {
		defaultLevel = topology.P2C
	}
	var evidence, far []string
	needed := topology.PathType("")
	for _, r := range n.reaches() {
		if r.path.NCCL == "" {
			return nil
		}
		evidence = append(evidence, fmt.Sprintf("GPU %d (%s) to %s: %s", r.gpu.Index, r.gpu.PCI, r.path.HCA, r.path.NCCL))
		switch {
		case topology.PHB.Closer(r.path.NCCL):
			far = append(far, fmt.Sprintf("GPU %d", r.gpu.Index))
		case needed == "" || needed.Closer(r.path.NCCL):
			needed = r.path.NCCL
		}
	}
	if len(far) > 0 {
		s.add(finding.Finding{
			ID: "gdr.far-gpu", Severity: finding.Note, Host: n.h.Name, Subject: strings.Join(far, ", "), Seen: "the nearest NIC is on the other socket",
			Wanted: "a NIC on each socket", Why: "these GPUs go through a neighbour's NIC (PXN) or host memory, which is faster than GPUDirect across the socket link", Hint: "nothing to do for this job",
		})
	}
	if needed != topology.PHB || !defaultLevel.Closer(needed) {
		n.leave(Var{
			Name: "NCCL_NET_GDR_LEVEL", Why: "NCCL's default " + string(defaultLevel) + " reaches every GPU's nearest NIC that is worth reaching", Evidence: evidence,
			Rejected: []Alternative{{Value: "PHB", Why: "not needed: no GPU has its NIC behind the root complex"}},
		})
		return nil
	}
	return []Var{{
		Name: "NCCL_NET_GDR_LEVEL", Value: string(topology.PHB), Evidence: evidence,
		Why: "a GPU reaches its nearest NIC only through the CPU's root complex; NCCL's default " + string(defaultLevel) + " would send it through host memory",
		Rejected: []Alternative{
			{Value: string(defaultLevel), Why: "NCCL's default: no GPUDirect between a GPU and the NIC of its own socket"},
			{Value: "SYS", Why: "across the socket link GPUDirect is slower than a neighbour's NIC or host memory"},
		},
		IfWrong: "narrower: no GPUDirect for these GPUs; wider: GPUDirect across the socket link",
	}}
}
