package topology

import (
	"slices"
	"strconv"
	"strings"
)

// MarkVisible sets GPU.Visible from what hides GPUs from a process: device
// nodes that are missing (a container), CUDA_VISIBLE_DEVICES, and
// ROCR_/HIP_VISIBLE_DEVICES. It leaves nil where nothing says.
func MarkVisible(h *Host) {
	env := map[string]string{}
	for _, v := range h.Env {
		env[v.Name] = v.Value
	}
	nodes := false
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.DeviceNode != nil {
			nodes = true
			g.Visible = new(*g.DeviceNode)
		}
	}
	for vendor, names := range map[string][]string{
		"nvidia": {"CUDA_VISIBLE_DEVICES"},
		// ROCR hides first; HIP (CUDA_VISIBLE_DEVICES is its second name) counts what is left.
		"amd": {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"},
	} {
		for _, name := range names {
			if list, ok := env[name]; ok {
				narrow(h, vendor, list, nodes)
			}
		}
	}
}

// narrow keeps visible what list names of the GPUs of vendor that still are.
func narrow(h *Host, vendor, list string, nodes bool) {
	var candidates []*GPU
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Vendor == vendor && (g.Visible == nil && !nodes || g.Visible != nil && *g.Visible) {
			candidates = append(candidates, g)
		}
	}
	chosen, known := chooseVisible(candidates, list)
	if !known {
		return
	}
	for i, g := range candidates {
		g.Visible = new(slices.Contains(chosen, i))
	}
}

// chooseVisible reads a list of indices, GPU UUIDs (or unique beginnings of
// them) and MIG UUIDs. As in CUDA, the first entry that names nothing ends it.
// known is false where UUIDs are listed and those of the GPUs are not known.
func chooseVisible(gpus []*GPU, list string) (chosen []int, known bool) {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		i := -1
		if n, err := strconv.Atoi(item); err == nil {
			if n >= 0 && n < len(gpus) {
				i = n
			}
		} else if item != "" {
			if slices.ContainsFunc(gpus, func(g *GPU) bool { return g.UUID == "" }) {
				return nil, false
			}
			i = byUUID(gpus, item)
		}
		if i < 0 {
			break
		}
		chosen = append(chosen, i)
	}
	return chosen, true
}

func byUUID(gpus []*GPU, item string) int {
	found := -1
	for i, g := range gpus {
		match := g.UUID != "" && strings.HasPrefix(item, "GPU-") && strings.HasPrefix(g.UUID, item)
		for _, m := range g.MIG {
			match = match || m.UUID != "" && m.UUID == item
		}
		// The older form MIG-GPU-<uuid>/<gi>/<ci> names the GPU it is cut from.
		if rest, ok := strings.CutPrefix(item, "MIG-"); ok && strings.HasPrefix(rest, "GPU-") && g.UUID != "" {
			uuid, _, _ := strings.Cut(rest, "/")
			match = match || uuid == g.UUID
		}
		if match {
			if found >= 0 {
				return -1 // a beginning that two share names none
			}
			found = i
		}
	}
	return found
}
