package watch

import (
	"fmt"
	"slices"
	"strings"
)

// Promise is what a plan promises of the data of the job, in NCCL's words. The zero
// value promises nothing.
type Promise struct {
	Devices   map[string][]string // by host, "mlx5_0:1"; of "" on every host
	GPUDirect bool                // for every GPU
}

// IDs of what a plan promised and the job does not have.
const (
	EventFewerDevices = "fewer-devices"
	EventNoGPUDirect  = "no-gpudirect"
)

// BreaksPlan reports whether an event says that the job has less than its plan promised.
func (e Event) BreaksPlan() bool { return e.ID == EventFewerDevices || e.ID == EventNoGPUDirect }

// of returns what is promised of a host, by whichever of its names.
func (p Promise) of(host string) []string {
	if d, ok := p.Devices[host]; ok {
		return d
	}
	for name, d := range p.Devices {
		if shortName(name) == shortName(host) {
			return d
		}
	}
	return p.Devices[""]
}

// kept compares what a rank has when its set-up is over with what was promised: its
// list of devices, which NCCL prints whole, and what its connections between nodes
// are. Before that, and in a job of one node, nothing is known.
func (st *state) kept(m *message) {
	p := m.proc
	if p == nil || p.phase < phaseConnected || p.phase == phaseFirst || p.phase == phaseAgain {
		return
	}
	if want := st.opt.Known.Promise.of(p.host); len(want) > 0 && p.devs != "" && p.allDevs {
		have := strings.Fields(p.devs)
		for i, d := range have {
			have[i], _, _ = strings.Cut(d, "/")
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(d string) bool { return slices.Contains(have, d) })
		if key := EventFewerDevices + ":" + p.host; len(missing) > 0 && !st.once[key] && st.multiNode() {
			st.warned(key, fmt.Sprintf("The plan promises %s on %s (%s), NCCL uses %d (%s): without %s.",
				devicesWord(len(want)), p.host, strings.Join(want, " "), len(have), strings.Join(have, " "), strings.Join(missing, " ")), m)
		}
	}
	if !st.opt.Known.Promise.GPUDirect {
		return
	}
	for _, g := range p.gpus {
		key := EventNoGPUDirect + ":" + p.host
		if g.direct > 0 || g.staged == 0 || st.once[key] || !st.multiNode() {
			continue
		}
		st.warned(key, fmt.Sprintf("The plan promises GPUDirect, and all %d connections of a GPU of %s to other nodes go through the host's memory.", g.staged, p.host), m)
		return
	}
}

func devicesWord(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// broken are the words on what the job has less of than its plan promised.
func (v *Verdict) broken() string {
	var out []string
	for _, e := range v.Events {
		if e.BreaksPlan() && len(out) < 4 {
			out = append(out, e.Text)
		}
	}
	return strings.Join(out, " ")
}
