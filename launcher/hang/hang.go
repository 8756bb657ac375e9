// Package hang judges whether a running job stands still, and which of its ranks
// holds it up, by up to three witnesses: what moves on its ports and connections,
// what its processes do, and what NCCL and torch say of their collectives. It is
// pure: looks in, events out, and the only time is that of the looks.
package hang

import (
	"slices"
	"time"

	"fabrun/launcher/watch"
)

// Look is what one node showed of the job's processes at one time.
type Look struct {
	Time time.Time `json:"time"`
	Host string    `json:"host"`
	// Ranks are the job's ranks here, and other processes of the job that are
	// stopped. Before there is a rank: what is to start them.
	Ranks []Rank `json:"ranks"`
	// Ports is what all RDMA ports of the node together have sent and received,
	// in bytes, or packets of 1 KiB; nil where none counts.
	Ports  *uint64  `json:"ports"`
	NPorts int      `json:"nports,omitempty"`
	GPUUse *float64 `json:"gpu_use,omitempty"` // 0 to 1, mean of the node's GPUs; nil unknown
	RAS    *RAS     `json:"ras,omitempty"`     // an answer since the look before
	Dumps  []Dump   `json:"dumps,omitempty"`   // that came since the look before
}

// Rank is one process that the launcher has started, with all below it.
type Rank struct {
	Rank  *int   `json:"rank"` // nil: not a rank, or not told
	PID   int    `json:"pid"`
	Name  string `json:"name"`
	State string `json:"state"` // of its main thread, as in proc(5); "T" or "t" where any process below is stopped
	// Wait is the system call, or the function of the kernel, in which its main
	// thread waits; "" unknown.
	Wait  string   `json:"wait,omitempty"`
	Stack []string `json:"stack,omitempty"` // the kernel's, innermost first; empty where it may not be read
	CPU   float64  `json:"cpu_s"`           // seconds that it and those below have used
	Turns uint64   `json:"turns"`           // how often its main thread has gone to sleep
	Bytes uint64   `json:"io_bytes"`        // read and written by it and those below
	TCP   *uint64  `json:"tcp,omitempty"`   // sent and received on its connections; nil not looked at
	GPU   bool     `json:"gpu,omitempty"`   // it holds a GPU
}

// The thresholds of one comparison of two looks.
const (
	busyCPU   = 0.1     // of one core: more is work
	busyTurns = 1.0     // a second: a main thread that wakes that often gets on with something
	trickle   = 4 << 10 // bytes a second: less is keepalives
	busyGPU   = 0.05
	// maxGap between two looks: over a longer one nothing is known.
	maxGap = 30 * time.Second
	// minLooks is how many comparisons in a row a judgement takes: one after a
	// pause of the whole machine is none.
	minLooks = 3
	// maxSilent looks of one node while another gives none: that one is not heard.
	maxSilent = 4
	// maxNamed bounds what a line names one by one.
	maxNamed = 6
)

// DefaultAfter is how long a job stands still before it is said: with looks every
// five seconds that is within thirty seconds.
const DefaultAfter = 20 * time.Second

// Every is how often to look, for a job that may stand still for so long.
func Every(after time.Duration) time.Duration {
	return min(max(after/4, time.Second), 5*time.Second)
}

// span is for how long something has held, look by look.
type span struct {
	since time.Time
	looks int
}

func (s *span) hold(is bool, from time.Time) {
	switch {
	case !is:
		*s = span{}
	case s.looks == 0:
		*s = span{from, 1}
	default:
		s.looks++
	}
}

func (s span) lasts(now time.Time, after time.Duration) bool {
	return s.looks >= minLooks && now.Sub(s.since) >= after-after/20 // a look may come a moment early
}

// proc is what is known of one rank over the looks.
type proc struct {
	Rank
	host    string
	stopped span // state T or t
	stuck   span // state D, and gets nowhere
	waits   span // asleep, and gets nowhere
	dozes   span // asleep by a clock of its own
	quiet   span // its connections move nothing
	noTCP   bool // they were not looked at
}

// idle reports whether it does nothing at all.
func (p *proc) idle(now time.Time, after time.Duration) bool {
	return p.stopped.lasts(now, after) || p.stuck.lasts(now, after) || p.waits.lasts(now, after) || p.dozes.lasts(now, after)
}

// node is what is known of one host.
type node struct {
	last   Look
	procs  map[int]*proc
	gone   []Rank // ranks that have ended while others went on
	still  span   // its ports move nothing
	missed int    // looks of other hosts since its last
	ras    []RAS  // answers since its ports and ranks stand still: the first and the last
	dumps  map[int]Dump
	fresh  int // looks since the last dump came
}

// Judge puts the looks of all nodes together. It is used by one goroutine at a time.
type Judge struct {
	after time.Duration
	hosts map[string]*node
	names []string // of hosts, in order of their first look
	lost  []string // hosts at which nobody looks any more
	part  bool     // there are others at which nobody ever has
	// said is what was told of this standstill: the ranks that hold it up.
	said   map[string]bool
	told   kind
	lasts  time.Duration // how long it had lasted when it was last seen
	times  int           // how often a standstill was told
	dumped int           // how many dumps of torch were told of
	now    standing
}

// New returns a Judge to which a job stands still after that time.
func New(after time.Duration) *Judge {
	return &Judge{after: after, hosts: map[string]*node{}, said: map[string]bool{}}
}

// Lost notes that nobody looks at a host any more.
func (j *Judge) Lost(host string) {
	if _, ok := j.hosts[host]; ok {
		delete(j.hosts, host)
		j.names = slices.DeleteFunc(j.names, func(n string) bool { return n == host })
	}
	if !slices.Contains(j.lost, host) {
		j.lost = append(j.lost, host)
	}
}

// Partial notes whether the job has hosts at which nobody looks: whether all of its
// ranks wait is not known then.
func (j *Judge) Partial(is bool) { j.part = is }

// Add takes a look, and returns what there is to tell.
func (j *Judge) Add(l Look) []watch.Event {
	n := j.hosts[l.Host]
	if n == nil {
		n = &node{procs: map[int]*proc{}, dumps: map[int]Dump{}}
		j.hosts[l.Host] = n
		j.names = append(j.names, l.Host)
		slices.Sort(j.names)
	}
	for name, other := range j.hosts {
		if name != l.Host {
			other.missed++
		}
	}
	n.add(l)
	var out []watch.Event
	if e, ok := j.torchSays(); ok {
		e.Time = l.Time
		out = append(out, e)
	}
	j.now = j.judge()
	if e, ok := j.tell(); ok {
		e.Time = l.Time
		out = append(out, e)
	}
	return out
}

// add compares a look with the one before.
func (n *node) add(l Look) {
	was, gap := n.last, l.Time.Sub(n.last.Time)
	known := !was.Time.IsZero() && gap > 0 && gap <= maxGap
	n.last, n.missed = l, 0
	moved := func(now, before *uint64) bool { return Moved(now, before, gap) }
	n.still.hold(known && l.Ports != nil && was.Ports != nil && !moved(l.Ports, was.Ports), was.Time)
	idleGPU := l.GPUUse != nil && *l.GPUUse < busyGPU
	procs := map[int]*proc{}
	n.gone = slices.DeleteFunc(n.gone, func(r Rank) bool {
		return slices.ContainsFunc(l.Ranks, func(now Rank) bool { return sameRank(now, r) })
	})
	for _, r := range l.Ranks {
		p, old := n.procs[r.PID]
		if !old {
			p = &proc{host: l.Host}
		}
		b := p.Rank
		p.Rank = r
		both := func(states string) bool {
			return old && known && isState(r.State, states) && isState(b.State, states)
		}
		sec := gap.Seconds()
		rests := r.CPU-b.CPU <= busyCPU*sec && r.Bytes-min(b.Bytes, r.Bytes) <= uint64(trickle*sec) && !moved(r.TCP, b.TCP)
		asleep := both("SDTtI") && rests && (!r.GPU || idleGPU)
		clock := ownClock(r.Wait)
		p.stopped.hold(both("Tt"), was.Time)
		p.stuck.hold(both("D") && rests, was.Time)
		p.dozes.hold(asleep && !both("Tt") && !both("D") && clock && ownClock(b.Wait), was.Time)
		p.waits.hold(asleep && !both("Tt") && !both("D") && !clock && float64(r.Turns-min(b.Turns, r.Turns)) < busyTurns*sec, was.Time)
		p.noTCP = r.TCP == nil || b.TCP == nil
		p.quiet.hold(old && known && !p.noTCP && !moved(r.TCP, b.TCP), was.Time)
		procs[r.PID] = p
	}
	for pid, p := range n.procs {
		if procs[pid] == nil && p.Rank.Rank != nil && len(n.gone) < maxNamed {
			n.gone = append(n.gone, p.Rank)
		}
	}
	if len(procs) == 0 {
		n.gone = nil // the job has ended here
	}
	n.procs = procs
	if l.RAS != nil {
		if len(n.ras) < 2 {
			n.ras = append(n.ras, *l.RAS)
		} else {
			n.ras[1] = *l.RAS
		}
	}
	if !n.rests(l.Time) {
		n.ras = nil
	}
	n.fresh++
	for _, d := range l.Dumps {
		n.dumps[d.Rank], n.fresh = d, 0
	}
}

// Moved reports whether more than keepalives went by in a time, by a count at its
// begin and its end.
func Moved(now, before *uint64, in time.Duration) bool {
	return now != nil && before != nil && float64(*now-min(*before, *now)) > trickle*in.Seconds()
}

// rests reports whether a node may be part of a standstill: its ports are still, or
// one of its ranks does nothing.
func (n *node) rests(now time.Time) bool {
	if n.still.looks > 0 {
		return true
	}
	for _, p := range n.procs {
		if p.idle(now, 0) {
			return true
		}
	}
	return n.last.Ports == nil
}

func sameRank(a, b Rank) bool { return a.Rank != nil && b.Rank != nil && *a.Rank == *b.Rank }

func isState(state, of string) bool {
	return len(state) == 1 && slices.Contains([]byte(of), state[0])
}
