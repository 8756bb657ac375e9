package eyes

import (
	"fmt"
	"strings"
	"time"

	"fabrun/launcher/hang"
)

// HangConfig is when a job that stands still is told of, and ended.
type HangConfig struct {
	After time.Duration // 0: it is not looked for
	End   time.Duration // end a job that certainly stands still for so long; 0 never
	RAS   bool          // ask NCCL's RAS as well
}

// LeastHang is a time in which a few looks fit.
const LeastHang = 4 * time.Second

// Flags are they as flags of run, where they are not the default.
func (c HangConfig) Flags() []string {
	var out []string
	switch c.After {
	case hang.DefaultAfter:
	case 0:
		out = append(out, "--hang-after=off")
	default:
		out = append(out, "--hang-after="+c.After.String())
	}
	if c.End > 0 {
		out = append(out, "--strict-hang="+c.End.String())
	}
	if c.RAS {
		out = append(out, "--ras")
	}
	return out
}

// after is the first of the two times.
func (c HangConfig) after() time.Duration {
	if c.End > 0 && (c.After == 0 || c.End < c.After) {
		return c.End
	}
	return c.After
}

// argv are the flags for the session on another node.
func (c HangConfig) argv() []string {
	if c.after() == 0 {
		return nil
	}
	return []string{"--ranks", hang.Every(c.after()).String()}
}

// standstill puts together what the ranks of all nodes do.
type standstill struct {
	judge *hang.Judge // nil: it is not looked for
	hosts int         // at which somebody looks
	ended bool        // the job, for it
}

func newStandstill(c HangConfig) standstill {
	if c.after() == 0 {
		return standstill{}
	}
	return standstill{judge: hang.New(c.after())}
}

// lookHere lets this machine's eyes look at the ranks, where it is of the job's hosts.
// Of one program that is started here, nothing is known that would be a hang.
func (w *Job) lookHere(node *Config, host string) {
	p := w.cfg.Plan
	if p.Dialect.Alone {
		w.hang.judge = nil
	}
	if w.hang.judge == nil || len(p.Hosts.Hosts) > 1 && !runsHere(p, w.traffic.peers) {
		return
	}
	w.hang.hosts++
	var gpus func() *float64
	if node.Meter != nil {
		gpus = node.Meter.GPUUse
	}
	node.Ranks = NewRanks(host, w.cfg.Mark, promiseOf(p).Devices[host], w.cfg.Hang.RAS, gpus)
	node.Every, node.OnLook = hang.Every(w.cfg.Hang.after()), w.look
}

// look is called for each look at the ranks of any node.
func (w *Job) look(l hang.Look) {
	w.mu.Lock()
	s := &w.hang
	if s.judge == nil {
		w.mu.Unlock()
		return
	}
	s.judge.Partial(s.hosts != w.nodes)
	events := s.judge.Add(l)
	end := w.cfg.Hang.End
	if ended := end > 0 && s.judge.Hangs() >= end && !s.ended; ended && w.broken == "" {
		s.ended = true
		w.broken = fmt.Sprintf("--strict-hang %v ended the job: %s", end, lower(s.judge.Now()))
		defer w.cfg.End()
	}
	w.mu.Unlock()
	for _, e := range events {
		w.told.put(func() { w.event(e) })
	}
}

func lower(s string) string {
	if s == "" {
		return "it stands still"
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// stands is what the last word says of a job that stood still when it ended.
func (w *Job) stands() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hang.judge == nil || w.hang.judge.Now() == "" {
		return ""
	}
	return " When it ended it stood still: " + lower(w.hang.judge.Now())
}
