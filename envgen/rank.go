package envgen

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/topology"
)

// Rank is one process of a node, as its launcher numbers them.
type Rank struct {
	Local  int  // 0 … Size-1
	Size   int  // ranks on this node
	NUMA   *int // the NUMA node it is bound to; nil: as placed, see InTurn
	InTurn bool // placed on the NUMA nodes in turn (0, 1, 0, 1, …), not in blocks
	CPU    bool // it uses no GPU, whatever the node has
}

// RankVars are the variables of one rank: of those that Compute left to the
// rank, the devices nearest to its GPU or its NUMA node. Devices at the same
// distance are spread evenly over the ranks that share it. The same arguments
// give the same answer on every rank. Where the rails do not reach each other
// Compute leaves nothing to the rank, and all rails are every rank's.
func RankVars(h *topology.Host, env HostEnv, r Rank) []Var {
	i := indexVar(env.Vars, "UCX_NET_DEVICES")
	if i < 0 || env.Vars[i].Scope != RankScope || r.Size < 1 || r.Local < 0 || r.Local >= r.Size {
		return nil
	}
	v := env.Vars[i]
	all := strings.Split(v.Value, ",")
	mine, why := rankDevices(h, all, r)
	var not []Alternative
	for _, d := range all {
		if !slices.Contains(mine, d) {
			not = append(not, Alternative{Value: d, Why: "farther away, or another rank's"})
		}
	}
	v.Value, v.Why, v.Rejected = strings.Join(mine, ","), why, append(not, v.Rejected...)
	v.Evidence = append([]string{fmt.Sprintf("local rank %d of %d", r.Local, r.Size)}, v.Evidence...)
	return []Var{v}
}

func rankDevices(h *topology.Host, all []string, r Rank) (mine []string, why string) {
	if r.Size == 1 {
		return all, "the only rank of the node: all its ports"
	}
	if !r.CPU {
		if mine, why, ok := byGPU(h, all, r); ok {
			return mine, why
		}
	}
	return byNUMA(h, all, r)
}

// byGPU gives a rank the devices nearest to its GPU.
func byGPU(h *topology.Host, all []string, r Rank) ([]string, string, bool) {
	var visible []int
	for i, g := range h.GPUs {
		if g.Visible == nil || *g.Visible {
			visible = append(visible, i)
		}
	}
	if len(visible) == 0 {
		return nil, "", false
	}
	at := visible[r.Local%len(visible)]
	near, kind := nearest(h, at, all)
	if len(near) == 0 {
		return nil, "", false
	}
	// the GPUs that share these devices, whether this rank sees them or not
	share, turn := 0, 0
	for i := range h.GPUs {
		if other, _ := nearest(h, i, all); slices.Equal(other, near) {
			if i == at {
				turn = share
			}
			share++
		}
	}
	mine := spread(near, turn, share)
	return mine, fmt.Sprintf("nearest to GPU %d (%s)%s", h.GPUs[at].Index, kind, shared(len(near), share, "GPUs")), true
}

// nearest are the devices of the list at the smallest distance from a GPU.
func nearest(h *topology.Host, gpu int, all []string) ([]string, topology.PathType) {
	var out []string
	var best topology.Path
	for _, p := range topology.NearestHCAs(*h, h.GPUs[gpu]) {
		if p.NCCL == "" && p.SMI == "" {
			continue
		}
		for _, d := range all {
			if name, _, _ := strings.Cut(d, ":"); name != p.HCA {
				continue
			}
			if len(out) == 0 {
				best = p
			}
			if p.NCCL == best.NCCL && p.SMI == best.SMI {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, topology.CompareNatural)
	return out, best.NCCL
}

// byNUMA gives a rank the devices of its NUMA node, or the nearest to it.
func byNUMA(h *topology.Host, all []string, r Rank) ([]string, string) {
	nodes := memoryNodes(h)
	if len(nodes) == 0 {
		mine := spread(all, r.Local, r.Size)
		return mine, "NUMA nodes not known: spread over the ranks"
	}
	own, turn, share := placeOf(nodes, r)
	near := nearNodes(h, own, all)
	var ids []string
	for _, n := range own {
		ids = append(ids, fmt.Sprint(n.ID))
	}
	return spread(near, turn, share), "nearest to NUMA node " + strings.Join(ids, ", ") + shared(len(near), share, "ranks")
}

// placeOf says which NUMA nodes are a rank's, and which number it has among
// the ranks that share them.
func placeOf(nodes []topology.NUMANode, r Rank) (own []topology.NUMANode, turn, share int) {
	n := len(nodes)
	if r.Size < n && r.NUMA == nil { // fewer ranks than nodes: some have several
		return nodes[r.Local*n/r.Size : (r.Local+1)*n/r.Size], 0, 1
	}
	at := func(rank int) int {
		if r.InTurn {
			return rank % n
		}
		return rank * n / r.Size
	}
	mine := at(r.Local)
	if r.NUMA != nil {
		if i := slices.IndexFunc(nodes, func(x topology.NUMANode) bool { return x.ID == *r.NUMA }); i >= 0 && i != mine {
			// bound elsewhere than it was placed: how many do so is not known
			return nodes[i : i+1], r.Local, max(r.Size, 1)
		}
	}
	for rank := range r.Size {
		if at(rank) == mine {
			if rank < r.Local {
				turn++
			}
			share++
		}
	}
	return nodes[mine : mine+1], turn, share
}

// memoryNodes are the NUMA nodes with CPUs.
func memoryNodes(h *topology.Host) []topology.NUMANode {
	var out []topology.NUMANode
	for _, n := range h.NUMA {
		if len(n.CPUs) > 0 {
			out = append(out, n)
		}
	}
	return out
}

// nearNodes are the devices at the smallest NUMA distance from any of own.
func nearNodes(h *topology.Host, own []topology.NUMANode, all []string) []string {
	best := -1
	var out []string
	for _, d := range all {
		dist := deviceDistance(h, own, d)
		switch {
		case best < 0 || dist < best:
			best, out = dist, []string{d}
		case dist == best:
			out = append(out, d)
		}
	}
	return out
}

// farDistance is for devices whose node is not known: behind every other.
const farDistance = 1 << 20

func deviceDistance(h *topology.Host, own []topology.NUMANode, device string) int {
	name, _, _ := strings.Cut(device, ":")
	i := slices.IndexFunc(h.HCAs, func(c topology.HCA) bool { return c.Name == name })
	if i < 0 || h.HCAs[i].NUMA == nil {
		return farDistance
	}
	numa := *h.HCAs[i].NUMA
	at := slices.IndexFunc(h.NUMA, func(n topology.NUMANode) bool { return n.ID == numa })
	best := farDistance
	for _, n := range own {
		switch {
		case n.ID == numa:
			return 0
		case at >= 0 && at < len(n.Distances):
			best = min(best, n.Distances[at])
		default:
			best = min(best, farDistance-1)
		}
	}
	return best
}

// spread gives number turn of share its part of the devices: several where
// there are more devices than sharers, else one.
func spread(devices []string, turn, share int) []string {
	if share <= 1 {
		return devices
	}
	turn %= share
	if share >= len(devices) {
		return devices[turn%len(devices) : turn%len(devices)+1]
	}
	var out []string
	for i, d := range devices {
		if i%share == turn {
			out = append(out, d)
		}
	}
	return out
}

func shared(devices, share int, who string) string {
	if devices < 2 || share < 2 {
		return ""
	}
	return fmt.Sprintf("; %d ports at that distance, spread over %d %s", devices, share, who)
}
