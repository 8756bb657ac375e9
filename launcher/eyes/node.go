// Package eyes sees a running job: on each node its logs as they grow, its
// counters and connections, and on the node that started it what all of them say
// together.
package eyes

import (
	"context"
	"time"

	"fabrun/launcher/hang"
	"fabrun/launcher/watch"
)

// Config is what the eyes of one node look at.
type Config struct {
	Host    string
	Follow  Following
	Meter   *Meter // nil: no counters
	OnEvent func(watch.Event)
	// OnSample is called for the first, the last and every sampled look.
	OnSample func(watch.Sample)
	Known    watch.Known       // of the job, beside its logs
	Pairs    bool              // keep what carries the channels of each pair of ranks
	Relay    func(line string) // what the user would have seen without fabrun
	// OnQuiet is called when no line was read for the time Stall, with how far
	// each process has come, and with nil when lines come again: whether the job
	// has stalled, only all nodes together tell. It may be nil; Stall 0 means
	// StallAfter.
	OnQuiet func([]watch.Standing)
	Stall   time.Duration
	// OnStuck is called once when the counters give no answer for the time Stuck
	// (0: StuckAfter): they are not read then, and nothing waits for them. It may
	// be nil.
	OnStuck func()
	Stuck   time.Duration
	// Sample is the longest pause between looks at the counters; zero means the
	// default.
	Sample time.Duration
	// Ranks looks at the job's ranks Every so often, for OnLook; nil does not.
	Ranks  *Ranks
	Every  time.Duration
	OnLook func(hang.Look)
}

// Default pauses. A look at the counters costs milliseconds, and one at the files
// of a thousand ranks two: while they set up it is worth it, later the cores are
// the job's.
const (
	pollFirst   = 100 * time.Millisecond
	pollEvery   = time.Second
	sampleFirst = 100 * time.Millisecond
	sampleEvery = 10 * time.Second
)

// After a change of a link or an address the GIDs follow a moment later (kernel
// drivers/infiniband/core/roce_gid_mgmt.c), and what a link negotiates later still.
const (
	changeFirst = 100 * time.Millisecond
	changeAgain = time.Second
)

// StallAfter is for how long a set-up may make no progress before it is said:
// NCCL's own waits between attempts add up to that.
const StallAfter = 60 * time.Second

// StuckAfter is how long a look at the counters may take: a driver that hangs
// answers never.
const StuckAfter = 3 * time.Second

// pollPause is how long to wait for the next look at the files when nothing was
// written for the time quiet: a line is seen after a tenth of a second, after a
// long silence after a second.
func pollPause(quiet time.Duration) time.Duration {
	return min(max(quiet/50, pollFirst), pollEvery)
}

// samplePause is how long to wait for the next look at the counters. What a
// connection moved is lost when it closes unseen, so the pauses are a tenth of
// the job's age: a short job loses no more of its end than a long one.
func samplePause(age, most time.Duration) time.Duration {
	return min(max(age/10, sampleFirst), most)
}

// Node watch the job on one node: its private logs and this node's counters.
type Node struct {
	cfg      Config
	watcher  *watch.Watcher
	follower *Follower
	progress uint64            // lines that were read
	grown    time.Time         // when one last was
	quiet    bool              // and that it was said since
	looking  chan watch.Sample // a look at the counters that has not ended; nil none
	stuck    bool              // and it was said
	net      *netChanges       // nil: the kernel does not tell
}

// NewNode takes the first look at the counters: what comes later is compared
// with it.
func NewNode(cfg Config) *Node {
	if cfg.Sample == 0 {
		cfg.Sample = sampleEvery
	}
	if cfg.Stall == 0 {
		cfg.Stall = StallAfter
	}
	if cfg.Stuck == 0 {
		cfg.Stuck = StuckAfter
	}
	e := &Node{cfg: cfg, grown: time.Now()}
	e.watcher = watch.New(watch.Options{OnEvent: cfg.OnEvent, Relay: cfg.Relay, Pairs: cfg.Pairs, Now: time.Now, Host: cfg.Host, Known: cfg.Known})
	e.follower = NewFollower(e.watcher, cfg.Follow)
	if cfg.Meter != nil && cfg.Meter.listen != nil {
		// Before the first look: what changes after it is told. Where the kernel does
		// not tell, the looks that are taken anyway see links, and the last one GIDs.
		if n, err := cfg.Meter.listen(); err == nil {
			e.net = n
		}
	}
	e.sample(false)
	return e
}

// Watcher is what the streams of the job are written to where they are read.
func (e *Node) Watcher() *watch.Watcher { return e.watcher }

func (e *Node) sample(last bool) {
	if e.cfg.Meter == nil {
		return
	}
	wait := e.cfg.Stuck
	left := e.looking != nil // by an earlier look, which has had its time
	if left {
		wait = 0
	} else {
		looking, meter := make(chan watch.Sample, 1), e.cfg.Meter
		e.looking = looking
		go func() { looking <- meter.Look(time.Now(), last) }()
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	var s watch.Sample
	select {
	case s = <-e.looking:
	default:
		select {
		case s = <-e.looking:
		case <-late.C:
			if !e.stuck && e.cfg.OnStuck != nil {
				e.cfg.OnStuck()
			}
			e.stuck = true
			return
		}
	}
	e.looking = nil
	if e.cfg.OnSample != nil {
		e.cfg.OnSample(s)
	}
	if left && last {
		e.sample(true)
	}
}

// Run looks until ctx ends, and then once more.
func (e *Node) Run(ctx context.Context) {
	poll := time.NewTimer(pollFirst)
	defer poll.Stop()
	if e.cfg.Ranks != nil {
		go e.cfg.Ranks.Run(ctx, e.cfg.Every, e.cfg.OnLook)
	}
	began := time.Now()
	sample := time.NewTimer(sampleFirst)
	defer sample.Stop()
	changes := make(chan struct{}, 1)
	if e.net != nil {
		go func() {
			//nolint:errcheck // the looks that are taken anyway go on
			_ = e.net.each(ctx, e.cfg.Meter.Rail, func() {
				select {
				case changes <- struct{}{}:
				default:
				}
			})
		}()
	}
	var change <-chan time.Time
	again := false
	for {
		select {
		case <-ctx.Done():
			e.follower.Close()
			e.sample(true)
			if e.cfg.Meter != nil && e.looking == nil {
				e.cfg.Meter.Close()
			}
			return
		case now := <-poll.C:
			e.follower.Poll()
			e.progressed(now)
			poll.Reset(pollPause(now.Sub(e.grown)))
		case now := <-sample.C:
			e.sample(false)
			sample.Reset(samplePause(now.Sub(began), e.cfg.Sample))
		case <-changes:
			if again = true; change == nil {
				change = time.After(changeFirst)
			}
		case <-change:
			e.cfg.Meter.changed.Store(true)
			e.sample(false)
			if change = nil; again {
				again, change = false, time.After(changeAgain)
			}
		}
	}
}

// progressed tells when the logs fall silent, and when they go on.
func (e *Node) progressed(now time.Time) {
	n := e.watcher.Progress()
	silence := now.Sub(e.grown)
	switch {
	case n != e.progress:
		e.progress, e.grown = n, now
		if e.quiet && e.cfg.OnQuiet != nil {
			e.cfg.OnQuiet(nil)
		}
		e.quiet = false
	case silence > e.cfg.Stall && !e.quiet:
		e.quiet = true
		if e.cfg.OnQuiet != nil {
			e.cfg.OnQuiet(e.watcher.Standings())
		}
	}
}
