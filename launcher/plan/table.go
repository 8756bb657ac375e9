package plan

import (
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/topology"
)

// MakeTable says what fabrun rank must know of the job's hosts; nil where
// nothing differs, neither per node nor per rank, and nothing is to be bound.
// Hosts that are alike share a class. names are what the launcher calls the
// hosts, in step with hs; one host that stands for all has no name.
func MakeTable(names []string, hs []topology.Host, res envgen.Result, bind bool) *RankTable {
	t := RankTable{Bind: bind}
	keys := map[string]int{}
	useful := false
	for i := range hs {
		if i >= len(res.Hosts) {
			break
		}
		c := classOf(&hs[i], res.Hosts[i], res)
		enc, err := RankTable{Classes: []RankClass{c}}.Encode()
		if err != nil {
			return nil
		}
		class, known := keys[enc]
		if !known {
			class = len(t.Classes)
			keys[enc] = class
			t.Classes = append(t.Classes, c)
			useful = useful || c.useful() || bind && len(c.Slots) > 1
		}
		if i < len(names) {
			if t.Hosts == nil {
				t.Hosts = map[string]int{}
			}
			t.Hosts[names[i]] = class
		}
	}
	if !useful {
		return nil
	}
	if len(t.Classes) == 1 {
		t.Hosts = nil
	}
	return &t
}

// useful reports whether the class changes any variable.
func (c RankClass) useful() bool {
	return len(c.Vars) > 0 || slices.ContainsFunc(c.GPUs, func(g RankGPU) bool { return len(g.Vars) > 0 }) ||
		slices.ContainsFunc(c.Slots, func(s RankSlot) bool { return len(s.Near) > 0 })
}

func classOf(h *topology.Host, env envgen.HostEnv, res envgen.Result) RankClass {
	var c RankClass
	for _, v := range env.Vars {
		if own(v) && !everywhere(res, v) {
			c.Vars = append(c.Vars, v.Name+"="+v.Value)
		}
	}
	var nodes []topology.NUMANode
	for _, n := range h.NUMA {
		if len(n.CPUs) > 0 {
			nodes = append(nodes, n)
		}
	}
	for i, n := range nodes {
		s := RankSlot{Node: n.ID, CPUs: topology.FormatCPUs(n.CPUs)}
		if len(nodes) > 1 {
			// One rank per node: what is near this one, undivided.
			for _, v := range envgen.RankVars(h, env, envgen.Rank{Local: i, Size: len(nodes), CPU: true}) {
				if s.Near == nil {
					s.Near = map[string][]string{}
				}
				s.Near[v.Name] = strings.Split(v.Value, ",")
			}
		}
		c.Slots = append(c.Slots, s)
	}
	if len(nodes) == 1 {
		for _, v := range env.Vars {
			if v.Scope == envgen.RankScope && own(v) {
				c.Slots[0].Near = map[string][]string{v.Name: strings.Split(v.Value, ",")}
			}
		}
	}
	// By its number on the whole host: which GPUs a rank sees is asked there.
	all := *h
	all.GPUs = slices.Clone(h.GPUs)
	for i := range all.GPUs {
		all.GPUs[i].Visible = nil
	}
	for i, g := range all.GPUs {
		gpu := RankGPU{Slot: -1}
		if g.NUMA != nil {
			gpu.Slot = nearestSlot(h.NUMA, nodes, *g.NUMA)
		}
		for _, v := range envgen.RankVars(&all, env, envgen.Rank{Local: i, Size: max(2, len(h.GPUs))}) {
			gpu.Vars = append(gpu.Vars, v.Name+"="+v.Value)
		}
		c.GPUs = append(c.GPUs, gpu)
	}
	return c
}

// nearestSlot is the place in nodes of a NUMA node, or of the nearest to it where
// that one has no CPUs (a GPU's own memory, a part of a socket that is off); -1
// where no distance tells.
func nearestSlot(all, nodes []topology.NUMANode, id int) int {
	if i := slices.IndexFunc(nodes, func(n topology.NUMANode) bool { return n.ID == id }); i >= 0 {
		return i
	}
	at := slices.IndexFunc(all, func(n topology.NUMANode) bool { return n.ID == id })
	best, slot := 0, -1
	for i, n := range nodes {
		if at < 0 || at >= len(n.Distances) {
			continue
		}
		if d := n.Distances[at]; slot < 0 || d < best {
			best, slot = d, i
		}
	}
	return slot
}

// everywhere reports whether every host has this variable with this value.
func everywhere(res envgen.Result, v envgen.Var) bool {
	for _, h := range res.Hosts {
		if !slices.ContainsFunc(h.Vars, func(o envgen.Var) bool { return o.Name == v.Name && o.Value == v.Value }) {
			return false
		}
	}
	return true
}
