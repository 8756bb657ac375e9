package eyes

import (
	"maps"
	"slices"
	"time"

	"fabrun/launcher/look"
	"fabrun/launcher/watch"
)

// stalls puts together what the eyes say of a job whose logs have fallen silent.
type stalls struct {
	open   map[string]bool             // the eyes that look, by node; "" is this one
	silent map[string][]watch.Standing // those whose logs have fallen silent
	said   bool                        // since the last time that one of them went on
	wait   *time.Timer                 // for the eyes that have not
}

func newStalls() stalls {
	return stalls{open: map[string]bool{"": true}, silent: map[string][]watch.Standing{}}
}

// quiet is called when the logs of a node fall silent, and with nil when they go
// on. The job has stalled when all are silent; a node that goes on for as long
// again while others wait does not hold the word back.
func (w *Job) quiet(node string, procs []watch.Standing) {
	w.mu.Lock()
	s := &w.stall
	if procs == nil {
		delete(s.silent, node)
		s.said = false
		w.mu.Unlock()
		return
	}
	s.silent[node] = procs
	all := len(s.silent) >= len(s.open)
	if !all && s.wait == nil {
		s.wait = time.AfterFunc(StallAfter, func() { w.stalled(2 * StallAfter) })
	}
	w.mu.Unlock()
	if all {
		w.stalled(StallAfter)
	}
}

// blind notes that nobody looks at a node any more.
func (w *Job) blind(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stall.open, node)
	delete(w.stall.silent, node)
	if w.hang.judge != nil {
		w.hang.judge.Lost(node)
	}
}

// stalled says where the processes of all nodes stand, once for each time that
// they stop.
func (w *Job) stalled(after time.Duration) {
	w.mu.Lock()
	s := &w.stall
	if s.wait != nil {
		s.wait.Stop()
		s.wait = nil
	}
	var all []watch.Standing
	for _, node := range slices.Sorted(maps.Keys(s.silent)) {
		all = append(all, s.silent[node]...)
	}
	stall := watch.StallOf(all)
	if s.said || stall == nil {
		w.mu.Unlock()
		return
	}
	s.said = true
	others, _ := look.Others(w.cfg.Plan.Hosts)
	stall.NotLookedAt(slices.DeleteFunc(others, func(host string) bool { return s.open[host] }))
	w.mu.Unlock()
	e := stall.Event(int(after.Seconds()))
	e.Time = time.Now()
	w.told.put(func() { w.event(e) })
}
