package hang

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// standing is how a job stands after a look.
type standing struct {
	kind     kind
	culprits []*proc // who holds it up; empty where nobody stands out
	since    time.Duration
	witness
}

type kind int

const (
	goesOn    kind = iota
	unknown        // it may stand still: not all that has to be known is
	oneStops       // ranks are stopped, and data still moves
	suspended      // all of them are stopped
	holdsUp        // ranks are stopped, or stuck in the kernel, and nothing moves
	allWait        // no rank does anything, and nothing moves
	lags           // NCCL says that ranks lag, and nothing moves
)

// proven reports whether a job may be ended for it.
func (s standing) proven() bool {
	return s.kind >= holdsUp && !(s.kind == allWait && len(s.unheard) > 0)
}

// witness is what speaks for and against.
type witness struct {
	ports     int           // RDMA ports whose counters are known
	portHosts int           // on so many hosts
	quietFor  time.Duration // for how long nothing has moved, at least
	tcp       int           // ranks whose connections are known
	moving    bool          // something moves
	nodes     []*node       // that are heard
	unheard   []string
	ras       rasWord
	rasComms  []Comm // of the last answer
}

// Hangs is for how long the job has certainly stood still.
func (j *Judge) Hangs() time.Duration {
	if !j.now.proven() {
		return 0
	}
	return j.now.since
}

// judge looks at all nodes.
func (j *Judge) judge() standing {
	var s standing
	s.unheard = slices.Clone(j.lost)
	var all []*proc
	blind := false // a host shows no rank, or one is not heard
	still, quiet := true, true
	for _, name := range j.names {
		n := j.hosts[name]
		if n.missed > maxSilent*max(1, len(j.hosts)-1) {
			s.unheard = append(s.unheard, name)
			continue
		}
		s.nodes = append(s.nodes, n)
		if len(n.procs) == 0 {
			blind = true
		}
		now := n.last.Time
		if n.last.Ports != nil {
			s.ports += n.last.NPorts
			s.portHosts++
			still = still && n.still.lasts(now, j.after/2)
			s.quietFor = least(s.quietFor, now.Sub(n.still.since))
		}
		for _, pid := range slices.Sorted(maps.Keys(n.procs)) {
			p := n.procs[pid]
			all = append(all, p)
			if !p.noTCP {
				s.tcp++
				quiet = quiet && p.quiet.lasts(now, j.after/2)
				s.quietFor = least(s.quietFor, now.Sub(p.quiet.since))
			}
		}
	}
	slices.Sort(s.unheard)
	if len(all) == 0 {
		return s
	}
	s.ras, s.rasComms = j.rasSays()
	s.moving = !still || !quiet
	now := func(p *proc) time.Time { return j.hosts[p.host].last.Time }
	// Those whose turn comes a moment later than the first one's belong to it.
	pick := func(of func(*proc) span) (out []*proc, longest time.Duration) {
		for _, p := range all {
			if sp := of(p); sp.looks >= minLooks {
				out = append(out, p)
				longest = max(longest, now(p).Sub(sp.since))
			}
		}
		if longest < j.after-j.after/20 {
			return nil, 0
		}
		return out, longest
	}
	stopping := 0 // as of the last look
	for _, p := range all {
		if p.stopped.looks > 0 {
			stopping++
		}
	}
	stopped, since := pick(func(p *proc) span { return p.stopped })
	switch {
	case stopping == len(all) && len(all) > 1:
		if len(stopped) > 0 {
			s.kind, s.culprits, s.since = suspended, all, since
		}
		return s
	case len(stopped) > 0 && s.moving:
		// What the others have begun goes on for a while.
		if since >= 2*j.after-j.after/20 {
			s.kind, s.culprits, s.since = oneStops, stopped, since
		}
		return s
	case len(stopped) > 0:
		s.kind, s.culprits, s.since = holdsUp, stopped, since
		return s
	case stopping > 0:
		return s
	}
	if s.moving || s.ports == 0 && s.tcp == 0 {
		return s
	}
	if stuck, since := pick(func(p *proc) span { return p.stuck }); len(stuck) > 0 {
		s.kind, s.culprits, s.since = holdsUp, stuck, since
		return s
	}
	if s.ras == rasLags {
		if s.quietFor >= j.after-j.after/20 {
			s.kind, s.since, s.culprits = lags, s.quietFor, j.named(s.rasComms)
		}
		return s
	}
	var idle, doze []*proc
	for _, p := range all {
		switch {
		case p.dozes.lasts(now(p), j.after):
			doze = append(doze, p)
		case p.waits.lasts(now(p), j.after):
			idle = append(idle, p)
		default:
			return s // it works, or may
		}
	}
	if len(idle) == 0 || len(all) < 2 && len(s.unheard) == 0 {
		return s // they sleep of their own accord, or one rank waits for whatever it likes
	}
	s.kind = allWait
	if blind || j.part || s.ras == rasMoves {
		s.kind = unknown
		return s
	}
	for _, p := range idle {
		s.since = least(s.since, now(p).Sub(p.waits.since))
	}
	if len(doze) > 0 && len(doze) < len(idle) {
		s.culprits = doze
	} else if len(doze) == 0 {
		s.culprits = oddOnes(idle)
	}
	return s
}

// least is the smaller of two times of which the first may not be known yet (0).
func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// oddOnes are the ranks that wait elsewhere than most; nobody where no place has
// most of them.
func oddOnes(all []*proc) []*proc {
	at := map[string][]*proc{}
	for _, p := range all {
		at[waitWord(p.Wait)] = append(at[waitWord(p.Wait)], p)
	}
	if len(at) < 2 {
		return nil
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(at)), func(a, b string) int { return cmp.Compare(len(at[a]), len(at[b])) })
	if 2*len(at[most]) <= len(all) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *proc) bool { return waitWord(p.Wait) == most })
}

// named are the processes of the job that NCCL says lag.
func (j *Judge) named(comms []Comm) []*proc {
	var out []*proc
	for _, c := range comms {
		for _, r := range slices.Concat(c.Silent, c.Behind) {
			if p := j.byPID(r.PID); p != nil && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// byPID finds the one rank of the job with a process number; nil where there is
// none, or two hosts have one. NCCL names hosts by an address that may be any.
func (j *Judge) byPID(pid int) *proc {
	var found *proc
	for _, n := range j.hosts {
		if p := n.procs[pid]; p != nil {
			if found != nil {
				return nil
			}
			found = p
		}
	}
	return found
}
