package eyes

import (
	"slices"
	"strconv"

	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// gidPins are the variables that fix a GID index on every port of a library.
var gidPins = []string{"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "MV2_DEFAULT_GID_INDEX"}

// railsPromised is what the plan promises of the ports of a job that is started in
// env: the rails that nobody's list of devices leaves out, and the GIDs that variables
// name. Of a job on one node nothing is promised: nothing of it has to leave the node.
func railsPromised(p plan.Plan, env []string) contract.Promise {
	var out contract.Promise
	if p.Nodes(env) == 1 {
		return out
	}
	if p.Promise.RateGbps != nil {
		out.RateGbps = *p.Promise.RateGbps
	}
	for _, r := range p.Rails {
		if r.Out != "" {
			continue
		}
		rail := contract.Rail{Ports: map[string]contract.Port{}}
		for host, name := range r.Ports {
			port := contract.Port{Name: name}
			if gid, ok := r.GIDs[host]; ok {
				port.GID = &gid
			}
			rail.Ports[host] = port
		}
		out.Rails = append(out.Rails, rail)
	}
	pin := func(name, value, host string) {
		if index, err := strconv.Atoi(value); err == nil && index >= 0 && slices.Contains(gidPins, name) {
			out.Pins = append(out.Pins, contract.Pin{Name: name, Index: index, Host: host})
		}
	}
	set := p.Settings(env)
	for _, name := range gidPins {
		pin(name, set[name], "")
	}
	for _, h := range p.PerHost {
		for _, v := range h.Vars {
			if set[v.Name] == "" {
				pin(v.Name, v.Value, h.Host)
			}
		}
	}
	return out
}

// hold holds a look at a node to the promise.
func (w *Job) hold(s watch.Sample) {
	w.mu.Lock()
	said := w.contract.Sample(s)
	broken, lasts := w.contract.Broken(s.Time)
	w.mu.Unlock()
	w.tell(said)
	w.metrics.update(w, len(said) > 0)
	if lasts {
		w.breaks(watch.Event{Text: broken})
	}
}

// tell says what the judge of the promise has to say: who was told that a rail is lost
// is also told that it is back.
func (w *Job) tell(events []watch.Event) {
	for _, e := range events {
		w.event(e)
		if e.Severity == watch.SeverityNote && !w.cfg.Verbose && !w.cfg.Quiet {
			w.write(e)
		}
	}
}

// kept is what became of the promise, with the verdicts on how the data went.
func (w *Job) kept(v watch.Verdict, c watch.CounterVerdict) contract.Kept {
	fell := v.Fallback != nil && *v.Fallback && !v.Intentional || c.Fallback != nil && *c.Fallback && !c.Intentional
	gpus := 0
	if v.NRanks != nil && (v.Library == "nccl" || v.Library == "rccl") {
		gpus = *v.NRanks // one for each rank
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contract.Kept(fell, gpus)
}
