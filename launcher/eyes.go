package launcher

import (
	"context"
	"sync"
	"time"

	"fabrun/launcher/watch"
)

// EyesConfig is what the eyes of one node look at.
type EyesConfig struct {
	Host    string
	Follow  Following
	Meter   *Meter // nil: no counters
	OnEvent func(watch.Event)
	// OnSample is called for the first, the last and every sampled look.
	OnSample func(watch.Sample)
	Pairs    bool              // keep what carries the channels of each pair of ranks
	Relay    func(line string) // what the user would have seen without fabrun
	// Poll and Sample are the pauses between looks at files and counters; zero
	// means the defaults.
	Poll, Sample time.Duration
}

// Default pauses: a line of a private file is seen after at most pollEvery; a
// look at the counters costs milliseconds.
const (
	pollEvery   = 100 * time.Millisecond
	sampleEvery = 10 * time.Second
)

// Eyes watch the job on one node: its private logs and this node's counters.
type Eyes struct {
	cfg         EyesConfig
	watcher     *watch.Watcher
	follower    *Follower
	mu          sync.Mutex
	first, last *watch.Sample
	grown       time.Time // when a log last grew
}

// NewEyes takes the first look at the counters: what comes later is compared
// with it.
func NewEyes(cfg EyesConfig) *Eyes {
	if cfg.Poll == 0 {
		cfg.Poll = pollEvery
	}
	if cfg.Sample == 0 {
		cfg.Sample = sampleEvery
	}
	e := &Eyes{cfg: cfg, grown: time.Now()}
	e.watcher = watch.New(watch.Options{OnEvent: cfg.OnEvent, Relay: cfg.Relay, Pairs: cfg.Pairs, Now: time.Now, Host: cfg.Host})
	e.follower = NewFollower(e.watcher, cfg.Follow)
	e.sample()
	return e
}

// Watcher is what the streams of the job are written to where they are read.
func (e *Eyes) Watcher() *watch.Watcher { return e.watcher }

func (e *Eyes) sample() {
	if e.cfg.Meter == nil {
		return
	}
	s := e.cfg.Meter.Look(time.Now())
	e.mu.Lock()
	if e.first == nil {
		e.first = &s
	}
	e.last = &s
	e.mu.Unlock()
	if e.cfg.OnSample != nil {
		e.cfg.OnSample(s)
	}
}

// Run looks until ctx ends, and then once more.
func (e *Eyes) Run(ctx context.Context) {
	poll := time.NewTicker(e.cfg.Poll)
	defer poll.Stop()
	sample := time.NewTicker(e.cfg.Sample)
	defer sample.Stop()
	for {
		select {
		case <-ctx.Done():
			e.follower.Close()
			e.sample()
			return
		case now := <-poll.C:
			if e.follower.Poll() > 0 {
				e.mu.Lock()
				e.grown = now
				e.mu.Unlock()
			}
		case <-sample.C:
			e.sample()
		}
	}
}

// Samples returns the first and the last look at the counters; nil where there
// are no counters.
func (e *Eyes) Samples() (first, last *watch.Sample) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first, e.last
}

// Quiet returns for how long no log has grown.
func (e *Eyes) Quiet(now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Sub(e.grown)
}
