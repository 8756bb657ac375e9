package watch

import (
	"fmt"
	"time"
)

// useWindow is over how long the use of GPUs and CPUs is averaged: longer than a
// checkpoint or an evaluation usually takes.
const useWindow = 2 * time.Minute

// What has to change between two windows before it is told.
const (
	useGPUFall = 0.3  // of all GPUs of the node
	useCPURise = 0.15 // of all CPUs
	useLooks   = 6    // in a window
)

// UseWatch notices nodes whose GPUs are used less and whose CPUs more than
// before: what went from device to GPU goes through the host then. It is used by
// one goroutine at a time. The zero value has seen nothing.
type UseWatch struct{ hosts map[string]*useOf }

type useOf struct {
	looks []useLook // of the last useWindow
	best  useLook   // the window in which the GPUs were used most; zero time: none yet
	told  bool
}

type useLook struct {
	at       time.Time
	gpu, cpu float64
}

// Add takes a look at one host; it returns what there is to tell, once a host.
func (u *UseWatch) Add(s Sample) (Event, bool) {
	if s.GPUUse == nil || s.CPUUse == nil {
		return Event{}, false
	}
	if u.hosts == nil {
		u.hosts = map[string]*useOf{}
	}
	h := u.hosts[s.Host]
	if h == nil {
		if len(u.hosts) >= maxProcs {
			return Event{}, false
		}
		h = &useOf{}
		u.hosts[s.Host] = h
	}
	if n := len(h.looks); h.told || n > 0 && s.Time.Sub(h.looks[n-1].at) < time.Second {
		return Event{}, false
	}
	h.looks = append(h.looks, useLook{s.Time, *s.GPUUse, *s.CPUUse})
	old := 0
	for s.Time.Sub(h.looks[old].at) > useWindow {
		old++
	}
	whole := old > 0 // the window is full
	h.looks = append(h.looks[:0], h.looks[old:]...)
	if !whole || len(h.looks) < useLooks {
		return Event{}, false
	}
	now := useLook{at: s.Time}
	for _, l := range h.looks {
		now.gpu += l.gpu / float64(len(h.looks))
		now.cpu += l.cpu / float64(len(h.looks))
	}
	if h.best.at.IsZero() || now.gpu > h.best.gpu {
		h.best = now
		return Event{}, false
	}
	if h.best.gpu-now.gpu < useGPUFall || now.cpu-h.best.cpu < useCPURise {
		return Event{}, false
	}
	h.told = true
	pct := func(f float64) int { return int(100*f + 0.5) }
	return Event{
		Time: s.Time, ID: "gpu-starved", Severity: SeverityWarning, Host: s.Host,
		Text: fmt.Sprintf("The GPUs are used %d %% instead of %d %%, and the CPUs %d %% instead of %d %%: data goes through the host (GPUDirect lost, a fallback), or the program waits for its input.",
			pct(now.gpu), pct(h.best.gpu), pct(now.cpu), pct(h.best.cpu)),
	}, true
}
