package eyes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// JobConfig is the job that is watched.
type JobConfig struct {
	Plan    plan.Plan
	Mark    string   // of the job's processes, on every host
	Env     []string // of the job's processes
	Dir     string   // the run's private directory; "" none
	WorkDir string   // where the launcher is started; "" not known
	// Stdout and Stderr are where the job's streams go.
	Stdout, Stderr io.Writer
	// Sessions: the job's streams come from sessions on its nodes.
	Sessions bool
	Record   string // with --record: the file; "" none
	Metrics  string // with --metrics: the file; "" none
	Version  string // of fabrun
	GPUs     string // the helper that knows how much the GPUs are used; "" none

	Say     io.Writer // fabrun's own lines
	Quiet   bool
	Verbose bool
	// End ends the job; Strict: as soon as it does not have what the plan promised.
	End    context.CancelFunc
	Strict bool
	Hang   HangConfig
}

// Job is the eyes of a running job: what its logs, counters and nodes show, put
// together, said where it matters, and recorded.
type Job struct {
	cfg    JobConfig
	began  time.Time
	asked  string // the setting by which the user asked for TCP; "" none
	nodes  int    // over how many nodes the job runs, at least; 0 unknown
	here   *Node  // this machine's eyes
	close  context.CancelFunc
	closed chan struct{}

	streams  streams
	record   recording
	sessions sessions
	told     *queue // what the job's own streams gave rise to

	mu       sync.Mutex
	said     map[string]bool // what was said of all nodes: once per cause
	verdicts []watch.Verdict // of the other nodes
	speaks   bool            // a library's log was read on another node
	broken   string          // why --strict ended the job
	stall    stalls
	hang     standstill
	traffic  traffic
	contract *contract.Judge
	metrics  metrics
}

// WatchJob prepares the eyes for a job that is about to start as spec says. It
// changes the job's streams only where one of them has to be read.
func WatchJob(cfg JobConfig, spec *launcher.Spec) (*Job, error) {
	p, set := cfg.Plan, cfg.Plan.Settings(cfg.Env)
	w := &Job{
		cfg: cfg, began: time.Now(), asked: watch.AsksForTCP(set), nodes: p.Nodes(cfg.Env), closed: make(chan struct{}),
		said: map[string]bool{}, stall: newStalls(), hang: newStandstill(cfg.Hang), traffic: newTraffic(), sessions: newSessions(),
		contract: contract.New(railsPromised(p, cfg.Env)),
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if err := w.record.open(cfg, host); err != nil {
		return nil, err
	}
	if err := w.metrics.open(w); err != nil {
		return nil, err
	}
	here := calledHere(p.Hosts, host)
	ranks := p.Command.RankEnv(cfg.Env)
	follow, readOut, readErr := LogPlaces(ranks, cfg.Dir, p.Command.StartDir(cfg.WorkDir))
	follow.Keep = cfg.Record != ""
	follow.Census()
	w.sessions.patterns = follow.Patterns
	// The job's streams must not wait for whoever reads stderr, or for the file
	// of the record.
	w.told = newQueue()
	node := Config{
		Host: host, Follow: follow, OnSample: w.sample, Pairs: cfg.Record != "",
		OnEvent: func(e watch.Event) { w.told.put(func() { w.event(here.event(e)) }) },
		Relay:   func(line string) { w.told.put(func() { w.relay(line) }) },
		OnQuiet: func(procs []watch.Standing) { w.quiet("", here.standings(procs)) },
		OnStuck: func() {
			w.told.put(func() { fmt.Fprintln(cfg.Say, "the counters of this node give no answer: they are not read") })
		},
		Known: watch.Known{OneNode: w.nodes == 1, RDMA: p.RDMA, Env: set, Promise: promiseOf(p)},
	}
	w.traffic.ncclTells = strings.EqualFold(ranks["NCCL_DEBUG"], "INFO") || strings.EqualFold(ranks["NCCL_DEBUG"], "TRACE")
	if !p.Dialect.Alone && (len(p.Hosts.Hosts) > 1 || cfg.Record != "" || cfg.Metrics != "") {
		w.traffic.peers = hostAddresses(p)
		w.contract.Peers(w.traffic.peers)
		// A login node or launcher pod is none of the job's hosts: what it has and
		// moves says nothing.
		if runsHere(p, w.traffic.peers) {
			node.Meter = NewMeter(here.byUser).WithGPUs(cfg.GPUs)
		}
	}
	w.lookHere(&node, here.byUser)
	w.here = NewNode(node)
	if cfg.Sessions {
		w.streams.ofSessions = map[string]bool{"stdout": readOut, "stderr": readErr}
		readOut, readErr = false, false
	}
	if err := w.streams.pump(w.here.Watcher(), cfg, spec, readOut, readErr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.close = cancel
	go func() {
		defer close(w.closed)
		w.here.Run(ctx)
	}()
	return w, nil
}

// streams are those of the job's own streams that are read.
type streams struct {
	pumps      []*launcher.Pump
	sources    []*watch.Source
	ofSessions map[string]bool // which streams of the job's sessions are read
}

// pump puts a pump into each stream of spec that is read.
func (s *streams) pump(w *watch.Watcher, cfg JobConfig, spec *launcher.Spec, readOut, readErr bool) error {
	for _, st := range []struct {
		read bool
		file **os.File
		to   io.Writer
		name string
	}{{readOut, &spec.Stdout, cfg.Stdout, "stdout"}, {readErr, &spec.Stderr, cfg.Stderr, "stderr"}} {
		if !st.read {
			continue
		}
		src := streamSource(w, st.name)
		pump, err := launcher.NewPump(st.to, src)
		if err != nil {
			return &exit.Error{Code: exit.Internal, Err: fmt.Errorf("reading the job's %s: %w", st.name, err)}
		}
		*st.file = pump.Child()
		s.pumps, s.sources = append(s.pumps, pump), append(s.sources, src)
	}
	started := spec.Started
	spec.Started = func(pid int) {
		if started != nil {
			started(pid)
		}
		for _, p := range s.pumps {
			p.Start()
		}
	}
	return nil
}

// stop waits for what is still in the pumps.
func (s *streams) stop() []error {
	var errs []error
	for i, p := range s.pumps {
		if err := p.Stop(2 * time.Second); err == nil {
			errs = append(errs, s.sources[i].Close())
		}
	}
	return errs
}

// streamSource reads one of the job's streams.
func streamSource(w *watch.Watcher, stream string) *watch.Source {
	if stream == "stdout" {
		return w.Stream(stream)
	}
	return w.Source(stream)
}

// Tap is where a stream of a session goes: to its place, and where it has to be
// read, it is read after that.
func (w *Job) Tap(stream string, to io.WriteCloser) io.WriteCloser {
	if !w.streams.ofSessions[stream] {
		return to
	}
	return &tapped{to, streamSource(w.here.Watcher(), stream)}
}

type tapped struct {
	to  io.WriteCloser
	src *watch.Source
}

func (t *tapped) Write(p []byte) (int, error) {
	n, err := t.to.Write(p)
	//nolint:errcheck // never fails
	_, _ = t.src.Write(p)
	return n, err
}

func (t *tapped) Close() error { return errors.Join(t.to.Close(), t.src.Close()) }

// promiseOf is what the plan promises of NCCL's data. Devices that the user pins are
// his.
func promiseOf(p plan.Plan) watch.Promise {
	out := watch.Promise{GPUDirect: p.Promise.GPUDirect != nil && *p.Promise.GPUDirect}
	if slices.ContainsFunc(p.Kept, func(v envgen.Var) bool { return v.Name == "NCCL_IB_HCA" }) {
		return out
	}
	out.Devices = map[string][]string{}
	for _, r := range p.Rails {
		for host, port := range r.Ports {
			out.Devices[host] = append(out.Devices[host], port)
		}
	}
	return out
}

// event is called for everything that the logs of any node say; a cause is said
// once for the whole job.
func (w *Job) event(e watch.Event) {
	if e.ID == "fallback" && e.Severity == watch.SeverityError && w.asked != "" {
		e.Severity = watch.SeverityWarning // the log does not show it, the job's settings do
	}
	w.record.to.Event(e)
	w.mu.Lock()
	key := e.ID + " " + e.Cause
	said := w.said[key] && e.ID == "fallback"
	w.said[key] = true
	rails := w.contract.Event(e)
	w.metrics.count(e)
	w.mu.Unlock()
	if !said {
		w.say(e)
	}
	w.tell(rails)
	if e.ID == "fallback" && e.Severity == watch.SeverityError || e.BreaksPlan() {
		w.breaks(e)
	}
}

func (w *Job) say(e watch.Event) {
	if w.cfg.Quiet && e.Severity != watch.SeverityError || e.Severity == watch.SeverityNote && !w.cfg.Verbose {
		return
	}
	w.write(e)
}

func (w *Job) write(e watch.Event) {
	fmt.Fprintf(w.cfg.Say, "%s\n", report.EventLine(e))
	for line := range strings.Lines(e.Block) {
		fmt.Fprintf(w.cfg.Say, "        %s", line)
	}
}

// breaks ends the job under --strict: it does not have what the plan promised.
func (w *Job) breaks(e watch.Event) {
	if !w.cfg.Strict {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "" {
		w.broken = "--strict ended the job: " + e.Text
		w.cfg.End()
	}
}

func (w *Job) relay(line string) { fmt.Fprintln(w.cfg.Stderr, report.Printable(line)) }

// Result is what a job has shown, when it is over.
type Result struct {
	Sentence string // the verdict, in one
	Verdict  watch.Verdict
	Counters watch.CounterVerdict
	Kept     contract.Kept
	WallS    float64
	Broken   string // why --strict or --strict-hang ended the job; "" neither did
}

// Finish reads what is left, calls show with what the job has shown, and closes the
// record.
func (w *Job) Finish(st launcher.Status, show func(Result)) {
	errs := w.streams.stop()
	stands := w.stands()
	if silent := w.sessions.close(w.record.kept != nil); st.Code != 0 {
		w.nameSilent(silent)
	}
	w.close()
	<-w.closed
	w.told.close()
	errs = append(errs, w.keepLogs())
	w.judge() // with what the other nodes said last
	w.mu.Lock()
	r := Result{Counters: w.traffic.verdict, Broken: w.broken, WallS: time.Since(w.began).Seconds()}
	r.Verdict = watch.Merge(append([]watch.Verdict{w.here.Watcher().Verdict()}, w.verdicts...)).AsAsked(w.asked)
	w.mu.Unlock()
	w.record.to.Verdict(r.Verdict)
	w.record.to.Counters(r.Counters)
	for _, e := range r.Counters.Events {
		if e.ID != "fallback" {
			w.event(e)
		}
	}
	r.Kept = w.kept(r.Verdict, r.Counters)
	w.record.to.Kept(r.Kept)
	p := w.cfg.Plan
	r.Sentence = report.JobSentence(r.Verdict, r.Counters, report.JobEnd{Hosts: len(p.Hosts.Hosts), Nodes: w.nodes, Dialect: p.Dialect, RDMA: p.HasRDMA(), Look: p.Look, Failed: st.Code != 0, Kept: r.Kept.Text}) + stands
	w.metrics.end(w, r, st.Code)
	show(r)
	errs = append(errs, w.record.close(st, r.WallS))
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(w.cfg.Say, "%v\n", err)
	}
}
