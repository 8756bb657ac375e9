package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/files"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/topology"
)

// watching is the eyes of a running job: its logs, its counters, its record.
type watching struct {
	a         *app
	p         plan.Plan
	mark      string // of the job's processes, on every host
	eyes      *eyes.Node
	pumps     []*launcher.Pump
	sources   []*watch.Source
	record    *report.Recorder
	file      *os.File
	began     time.Time
	eyesThere []*eye             // of the other nodes
	cancel    context.CancelFunc // ends the eyes
	done      chan struct{}
	stop      context.CancelFunc // ends the job
	endJob    context.CancelFunc // the same, where --strict asks for it
	asking    context.Context    // ends with the eyes of the other nodes
	unasked   context.CancelFunc
	asked     string // the setting by which the user asked for TCP; "" none
	nodes     int    // over how many nodes the job runs, at least; 0 unknown
	ncclTells bool   // NCCL would write a log if it were started
	peers     map[string]bool
	patterns  []string        // of the user's own log files
	kept      *keptLogs       // with --record
	dir       string          // of this run; "" none
	taps      map[string]bool // which streams of the job's sessions are read
	told      *queue          // what the job's own streams gave rise to

	mu       sync.Mutex
	looks    map[string][2]watch.Sample // host -> first and last look at its counters
	remote   []watch.Verdict            // of the other nodes' eyes
	speaks   bool                       // a library's log was read on another node
	said     map[string]bool            // what was said of all nodes: once per cause
	stall    stalls
	use      watch.UseWatch
	broken   string                                      // the sentence for which --strict ended the job
	knock    func(ctx context.Context, addr string) bool // something answers there
	accused  bool
	counters watch.CounterVerdict
}

// watchJob prepares the eyes for a job that is about to start. It changes the
// job's streams only where one of them has to be read.
func (a *app) watchJob(p plan.Plan, job *preparedJob, o runOptions, endJob context.CancelFunc) (*watching, error) {
	set := p.Command.RankEnv(job.spec.Env)
	w := &watching{a: a, p: p, mark: job.spec.Mark, began: time.Now(), stop: endJob, endJob: endJob, asked: watch.AsksForTCP(userSettings(p, set)), nodes: jobNodes(p, job.spec.Env), done: make(chan struct{}), looks: map[string][2]watch.Sample{}, said: map[string]bool{}, stall: newStalls(), knock: knock}
	w.asking, w.unasked = context.WithCancel(context.Background())
	if !o.strict {
		w.endJob = nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if o.record != "" {
		f, err := files.OpenRecord(o.record)
		if err != nil {
			return nil, &exit.Error{Code: exit.RunUsage, Err: fmt.Errorf("--record: %w", err)}
		}
		w.file, w.kept = f, newKeptLogs(o.record)
		start := report.RecordStart{Command: userWords(p), Host: host, Version: buildVersion(), Hosts: []string{}}
		for _, h := range p.Hosts.Hosts {
			start.Hosts = append(start.Hosts, h.Name)
		}
		w.record = report.NewRecorder(f, time.Now, start)
		var text bytes.Buffer
		if err := report.PlanJSON(&text, p); err == nil {
			w.record.Plan(text.Bytes())
		}
	}
	follow, readOut, readErr := eyes.LogPlaces(set, job.dir, workDir(p.Command))
	follow.Keep = o.record != ""
	w.dir = job.dir
	follow.Census()
	w.patterns = follow.Patterns
	// The job's streams must not wait for whoever reads stderr, or for the file
	// of the record.
	w.told = newQueue()
	cfg := eyes.Config{
		Host: host, Follow: follow, OnSample: w.sample, Pairs: o.record != "",
		OnEvent: func(e watch.Event) { w.told.put(func() { w.event(e) }) },
		Relay:   func(line string) { w.told.put(func() { w.relay(line) }) },
		OnQuiet: func(procs []watch.Standing) { w.quiet("", procs) },
		OnStuck: func() {
			w.told.put(func() { fmt.Fprintln(a.own(), "the counters of this node give no answer: they are not read") })
		},
		Known: watch.Known{OneNode: w.nodes == 1, RDMA: p.RDMA, Env: userSettings(p, set), Promise: promiseOf(p)},
	}
	w.ncclTells = strings.EqualFold(set["NCCL_DEBUG"], "INFO") || strings.EqualFold(set["NCCL_DEBUG"], "TRACE")
	if p.Dialect != cmdline.Plain && (len(p.Hosts.Hosts) > 1 || o.record != "") {
		w.peers = hostAddresses(p)
		// A login node or launcher pod is none of the job's hosts: what it has and
		// moves says nothing.
		if runsHere(p, w.peers) {
			cfg.Meter = eyes.NewMeter(host).WithGPUs(a.nvmlHelper())
		}
	}
	w.eyes = eyes.NewNode(cfg)
	if job.sessions {
		w.taps = map[string]bool{"stdout": readOut, "stderr": readErr}
		readOut, readErr = false, false
	}
	for _, s := range []struct {
		read bool
		file **os.File
		to   io.Writer
		name string
	}{{readOut, &job.spec.Stdout, a.stdout, "stdout"}, {readErr, &job.spec.Stderr, a.stderr, "stderr"}} {
		if !s.read {
			continue
		}
		src := w.streamSource(s.name)
		pump, err := launcher.NewPump(s.to, src)
		if err != nil {
			return nil, &exit.Error{Code: exit.Internal, Err: fmt.Errorf("reading the job's %s: %w", s.name, err)}
		}
		*s.file = pump.Child()
		w.pumps, w.sources = append(w.pumps, pump), append(w.sources, src)
	}
	started := job.spec.Started
	job.spec.Started = func(pid int) {
		if started != nil {
			started(pid)
		}
		for _, p := range w.pumps {
			p.Start()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() {
		defer close(w.done)
		w.eyes.Run(ctx)
	}()
	return w, nil
}

// streamSource reads one of the job's streams.
func (w *watching) streamSource(stream string) *watch.Source {
	if stream == "stdout" {
		return w.eyes.Watcher().Stream(stream)
	}
	return w.eyes.Watcher().Source(stream)
}

// tap is where a stream of a session goes: to its place, and where it has to be
// read, it is read after that.
func (w *watching) tap(stream string, to io.WriteCloser) io.WriteCloser {
	if !w.taps[stream] {
		return to
	}
	return &tapped{to, w.streamSource(stream)}
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

// userWords are the command line as the user typed it.
func userWords(p plan.Plan) []string {
	var out []string
	for _, w := range p.Argv {
		if w.Origin == envgen.FromUser {
			out = append(out, w.Text)
		}
	}
	return out
}

// workDir is the directory in which the ranks start, as far as the command line
// tells; "" where this machine does not know its own.
func workDir(c cmdline.Command) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	if said := c.WorkDir(); filepath.IsAbs(said) {
		return said
	} else if said != "" {
		return filepath.Join(dir, said)
	}
	return dir
}

// userSettings are the settings of the job's user and its site: what the ranks see,
// and what is kept of the site's files.
func userSettings(p plan.Plan, ranks map[string]string) map[string]string {
	set := map[string]string{}
	for _, v := range p.Kept {
		set[v.Name] = v.Value
	}
	maps.Copy(set, ranks)
	return set
}

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

// jobNodes is over how many nodes the job runs, at least; 0 unknown. Of a torchrun
// that is started by hand on each node, the allocation knows only this one.
func jobNodes(p plan.Plan, env []string) int {
	n := max(len(p.Hosts.Hosts), p.Hosts.Nodes, p.Command.TorchNodes(env))
	for _, name := range []string{"NNODES", "SLURM_NNODES", "SLURM_STEP_NUM_NODES"} {
		if k, err := strconv.Atoi(cmdline.Value(env, name)); err == nil && p.Dialect == cmdline.Plain {
			n = max(n, k)
		}
	}
	if n == 1 && (p.Command.TorchNodesMost(env) > 1 || p.Hosts.Source == "pytorchjob" && p.Hosts.Nodes == 0) {
		return 0 // from one node on
	}
	world, err := strconv.Atoi(cmdline.Value(env, "WORLD_SIZE"))
	local, lerr := strconv.Atoi(cmdline.Value(env, "LOCAL_WORLD_SIZE"))
	switch {
	case err == nil && lerr == nil && local > 0 && world > local:
		n = max(n, 2)
	case n == 1 && p.Dialect == cmdline.Plain:
		return 0 // what a program makes of itself is not known
	}
	return n
}

// hostAddresses are the addresses by which the job's hosts know each other: what
// their names stand for, and what these hosts are then called on this machine's
// other networks.
func hostAddresses(p plan.Plan) map[string]bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all := p.Hosts.Hosts[:min(len(p.Hosts.Hosts), 4096)]
	found := make([][]string, len(all))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 32) // a name that nobody knows must not cost the others their time
	for i, h := range all {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if addrs, err := net.DefaultResolver.LookupHost(ctx, h.Name); err == nil {
				found[i] = addrs
			}
			if h.Address != "" {
				found[i] = append(found[i], h.Address)
			}
		})
	}
	wg.Wait()
	out := map[string]bool{}
	var known []netip.Addr
	for _, text := range slices.Concat(found...) {
		out[text] = true
		if a, err := netip.ParseAddr(text); err == nil {
			out[a.Unmap().String()] = true
			known = append(known, a.Unmap())
		}
	}
	for _, a := range watch.SamePlace(ownNetworks(), known) {
		out[a.String()] = true
	}
	return out
}

// runsHere reports whether this machine is one of the job's hosts, or none is
// known; addrs are theirs.
func runsHere(p plan.Plan, addrs map[string]bool) bool {
	others, self := otherNodes(p.Hosts)
	if len(self) > 0 || len(others) == 0 {
		return true
	}
	return slices.ContainsFunc(ownNetworks(), func(own netip.Prefix) bool { return addrs[own.Addr().String()] })
}

// ownNetworks are this machine's addresses with their networks.
func ownNetworks() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
		}
	}
	return out
}

// know adds the addresses of the hosts that were looked at before the start:
// their eyes may not open.
func (w *watching) know(seen []topology.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peers == nil {
		return
	}
	for _, h := range seen {
		for _, d := range h.Netdevs {
			for _, a := range d.Addrs {
				if !a.Addr().IsLoopback() && !a.Addr().IsLinkLocalUnicast() {
					w.peers[a.Addr().Unmap().String()] = true
				}
			}
		}
	}
}

// event is called for everything that the logs of any node say; a cause is said
// once for the whole job.
func (w *watching) event(e watch.Event) {
	if e.ID == "fallback" && e.Severity == watch.SeverityError && w.asked != "" {
		e.Severity = watch.SeverityWarning // the log does not show it, the job's settings do
	}
	w.record.Event(e)
	w.mu.Lock()
	key := e.ID + " " + e.Cause
	said := w.said[key] && e.ID == "fallback"
	w.said[key] = true
	w.mu.Unlock()
	if !said {
		w.say(e)
	}
	if e.ID == "fallback" && e.Severity == watch.SeverityError || e.BreaksPlan() {
		w.breaks(e)
	}
}

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
func (w *watching) quiet(node string, procs []watch.Standing) {
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
		s.wait = time.AfterFunc(eyes.StallAfter, func() { w.stalled(2 * eyes.StallAfter) })
	}
	w.mu.Unlock()
	if all {
		w.stalled(eyes.StallAfter)
	}
}

// blind notes that nobody looks at a node any more.
func (w *watching) blind(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stall.open, node)
	delete(w.stall.silent, node)
}

// stalled says where the processes of all nodes stand, once for each time that
// they stop.
func (w *watching) stalled(after time.Duration) {
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
	others, _ := otherNodes(w.p.Hosts)
	stall.NotLookedAt(slices.DeleteFunc(others, func(host string) bool { return s.open[host] }))
	w.mu.Unlock()
	e := stall.Event(int(after.Seconds()))
	e.Time = time.Now()
	w.told.put(func() { w.event(e) })
}

// An eye is a session on another node that streams what that node shows.
type eye struct {
	host    string
	via     remote.Transport
	broke   bool // it ended with an error
	named   bool // and its node was said to be lost
	session *remote.Session
	stdin   *io.PipeWriter // its life: the eye ends when this is closed
	ready   chan struct{}
	done    chan struct{}
}

// eyeEnd is the last word to an eye: the job has ended. A session that merely
// breaks says nothing, and the job may live on.
const eyeEnd = "end\n"

// How long the eyes of other nodes may take to open and to say their last word.
// A node that does not answer costs that once, for all nodes together.
const (
	eyeOpens  = 10 * time.Second
	eyeCloses = 5 * time.Second
	eyeSends  = 30 * time.Second // with the logs that are kept
)

// lookThrough opens an eye on each of the other nodes that answered, over the
// transport that is already there; dir is the run directory, which each eye
// makes on its node before the ranks start, "" for counters alone.
func (w *watching) lookThrough(ctx context.Context, by *reached, p plan.Plan, dir string) {
	if by == nil {
		return
	}
	w.know(by.hosts)
	if by.transport == nil || by.fabrun == "" {
		return
	}
	there, self := otherNodes(p.Hosts)
	others := slices.DeleteFunc(there, func(host string) bool { return !slices.Contains(by.names, host) })
	if len(others) == 0 {
		return
	}
	argv := []string{by.fabrun, "watch", "--counters", "--job", w.mark}
	if dir != "" {
		argv = append(argv, "--follow", dir, "--make")
		if w.record != nil {
			argv = append(argv, "--keep", "--pairs")
		}
	}
	for _, p := range w.patterns {
		// What this machine sees on a shared file system it reads itself.
		if shared, known := launcher.SharedLogs(p); !shared || !known {
			argv = append(argv, "--pattern", p)
		}
	}
	promise := promiseOf(p)
	if promise.GPUDirect {
		argv = append(argv, "--expect-gpudirect")
	}
	t := by.transport
	w.mu.Lock()
	for _, host := range others {
		w.stall.open[host] = true
	}
	w.mu.Unlock()
	for i, host := range others {
		argv := slices.Clone(argv)
		if i == 0 && len(w.patterns) > 0 {
			argv = append(argv, "--shared")
		}
		if devs := promise.Devices[host]; len(devs) > 0 {
			argv = append(argv, "--expect-devices", strings.Join(devs, ","))
		}
		r, in := io.Pipe()
		e := &eye{host: host, via: t, stdin: in, ready: make(chan struct{}), done: make(chan struct{})}
		e.session = remote.Stream(context.Background(), t, host, remote.Command{Argv: argv, Stdin: io.MultiReader(r, strings.NewReader(eyeEnd))})
		w.eyesThere = append(w.eyesThere, e)
		go func() {
			//nolint:errcheck // what it says on stderr is not the job's
			_, _ = io.Copy(io.Discard, e.session.Stderr)
		}()
		go func() {
			defer close(e.done)
			var once sync.Once
			err := report.ReadEye(e.session.Stdout, report.EyeHandler{
				Start: func(string) { once.Do(func() { close(e.ready) }) },
				Event: w.elsewhere, Sample: w.sample, Relay: w.relay, Verdict: w.heard,
				Quiet: func(procs []watch.Standing) { w.quiet(host, procs) },
				Log:   func(name string, text []byte) { w.keep(host, name, text) },
			})
			once.Do(func() { close(e.ready) })
			w.blind(host)
			if err == nil {
				_, err = e.session.Wait()
			}
			if err != nil && w.a.verbose {
				fmt.Fprintf(w.a.own(), "%s cannot be watched: %v\n", host, err)
			}
			e.broke = err != nil
			if e.broke && w.asking.Err() == nil {
				w.eyeLost(e, others, len(self) > 0)
			}
		}()
	}
	limit := time.After(eyeOpens)
	for _, e := range w.eyesThere {
		select {
		case <-e.ready:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// elsewhere is called for what the log of another node says.
func (w *watching) elsewhere(e watch.Event) {
	w.mu.Lock()
	w.speaks = true
	w.mu.Unlock()
	w.event(e)
}

// keep takes a piece of another node's log.
func (w *watching) keep(node, name string, text []byte) {
	if w.kept != nil {
		w.kept.add(node, name, text)
	}
}

// keepLogs keeps this node's logs, and says where all of them are.
func (w *watching) keepLogs() error {
	if w.kept == nil {
		return nil
	}
	var err error
	if w.dir != "" {
		err = eachLog(w.dir, func(name string, text []byte) { w.kept.add("", name, text) })
	}
	dir, kerr := w.kept.close()
	if dir != "" && !w.a.quiet {
		fmt.Fprintf(w.a.own(), "the libraries' logs are in %s\n", dir)
	}
	return errors.Join(err, kerr)
}

func (w *watching) heard(v watch.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remote = append(w.remote, v)
}

// closeEyes hears the last word of each node, and returns the eyes that had none.
func (w *watching) closeEyes() (silent []*eye) {
	w.unasked()
	for _, e := range w.eyesThere {
		//nolint:errcheck // closing a pipe never fails
		_ = e.stdin.Close()
	}
	closes := eyeCloses
	if w.kept != nil {
		closes = eyeSends
	}
	limit := time.After(closes)
	for _, e := range w.eyesThere {
		select {
		case <-e.done:
		case <-limit:
			limit = time.After(0)
			go e.session.Close()
			silent = append(silent, e)
			continue
		}
		if e.broke && !e.named {
			silent = append(silent, e)
		}
		//nolint:errcheck // it has ended
		_ = e.session.Close()
	}
	return silent
}

func (w *watching) say(e watch.Event) {
	if w.a.quiet && e.Severity != watch.SeverityError || e.Severity == watch.SeverityNote && !w.a.verbose {
		return
	}
	own := w.a.own()
	fmt.Fprintf(own, "%s\n", report.EventLine(e))
	for line := range strings.Lines(e.Block) {
		fmt.Fprintf(own, "        %s", line)
	}
}

// breaks ends the job under --strict: it does not have what the plan promised.
func (w *watching) breaks(e watch.Event) {
	if w.endJob == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "" {
		w.broken = e.Text
		w.endJob()
	}
}

// queue does things one after the other, and whoever puts one in never waits. It
// needs no bound: a Watcher bounds its events and the lines that it relays.
type queue struct {
	mu   sync.Mutex
	todo []func()
	over bool
	wake chan struct{} // capacity 1
	done chan struct{}
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for range q.wake {
			for _, f := range q.take() {
				f()
			}
		}
		for _, f := range q.take() {
			f()
		}
	}()
	return q
}

func (q *queue) put(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return // a process that the job left behind still writes
	}
	q.todo = append(q.todo, f)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	todo := q.todo
	q.todo = nil
	return todo
}

// close waits until everything is done; what is put in after it is not.
func (q *queue) close() {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	close(q.wake)
	<-q.done
}

func (w *watching) relay(line string) { fmt.Fprintln(w.a.stderr, report.Printable(line)) }

// sample is called for each look at the counters of any node.
func (w *watching) sample(s watch.Sample) {
	w.record.Sample(s)
	w.mu.Lock()
	l, ok := w.looks[s.Host]
	if !ok {
		l[0] = s
	} else {
		s.Ports = keepQueues(s.Ports, l[1].Ports)
	}
	l[1] = s
	w.looks[s.Host] = l
	starved, told := w.use.Add(s)
	w.mu.Unlock()
	if told {
		w.event(starved)
	}
	if ok {
		w.judge()
	}
}

// keepQueues carries the most queue pairs that a port had from look to look: the
// last look is taken when the ranks, and their queues with them, are gone.
func keepQueues(now, was []watch.PortSample) []watch.PortSample {
	now = slices.Clone(now) // the record has the look as it was
	for i := range now {
		for _, p := range was {
			if p.HCA != now[i].HCA || p.Port != now[i].Port || p.QueuePair == nil {
				continue
			}
			if n := now[i].QueuePair; n == nil || *n < *p.QueuePair {
				now[i].QueuePair = p.QueuePair
			}
		}
	}
	return now
}

// judge compares the first and the last look of every node, and says a
// fallback once.
func (w *watching) judge() {
	could := w.couldRDMA()
	w.mu.Lock()
	if len(w.looks) == 0 {
		w.mu.Unlock()
		return
	}
	var last []watch.Sample
	seen := map[string]bool{}
	for name, l := range w.looks {
		last = append(last, l[1])
		short, _, _ := strings.Cut(name, ".")
		seen[name], seen[short] = true, true
		for _, a := range l[1].Addresses {
			seen[a] = true
		}
	}
	peers := watch.PeerSet(last)
	for a := range w.peers {
		peers[a] = true
	}
	job := watch.CounterJob{Hosts: w.hostNames(), CouldRDMA: could, WantsTCP: w.asked != ""}
	job.GlooOnly = !could && w.p.Dialect == cmdline.Torchrun && w.ncclTells
	job.Unseen = w.unseen(seen)
	var hosts []watch.HostTraffic
	without := 0
	for _, name := range slices.Sorted(maps.Keys(w.looks)) {
		l := w.looks[name]
		hosts = append(hosts, watch.Traffic(l[0], l[1], peers))
		if !slices.ContainsFunc(l[1].Ports, func(p watch.PortSample) bool { return p.Active }) {
			without++
		}
	}
	// Hosts that nobody looks at are judged by what the others moved to them.
	job.RDMAHosts = max(len(job.Hosts)-without, 0)
	if without == len(hosts) {
		job.RDMAHosts = 0
	}
	v := watch.JudgeCounters(job, hosts)
	w.counters = v
	w.mu.Unlock()
	if v.Fallback == nil || !*v.Fallback {
		return
	}
	for _, e := range v.Events {
		if e.ID == "fallback" && !w.wasAccused() {
			e.Time = time.Now()
			w.event(e)
		}
	}
}

// unseen are the job's hosts whose counters nobody reads; seen are the names and
// addresses of the others.
func (w *watching) unseen(seen map[string]bool) []string {
	if len(w.looks) >= len(w.p.Hosts.Hosts) {
		return nil
	}
	var out []string
	for _, h := range w.p.Hosts.Hosts {
		short, _, _ := strings.Cut(h.Name, ".")
		if !seen[h.Name] && !seen[short] && !seen[h.Address] && h.Name != "localhost" {
			out = append(out, h.Name)
		}
	}
	return out
}

func (w *watching) wasAccused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.accused
	w.accused = true
	return was
}

func (w *watching) hostNames() []string {
	var out []string
	for _, h := range w.p.Hosts.Hosts {
		out = append(out, h.Name)
	}
	return out
}

// couldRDMA reports whether the job's library knows RDMA: MPI does; torch's
// Gloo does not, and only a log of NCCL tells them apart.
func (w *watching) couldRDMA() bool {
	if w.p.Dialect != cmdline.Torchrun && w.p.Dialect != cmdline.Plain {
		return true
	}
	w.mu.Lock()
	elsewhere := w.speaks || slices.ContainsFunc(w.remote, func(v watch.Verdict) bool { return v.Library != "" })
	w.mu.Unlock()
	return elsewhere || w.eyes != nil && w.eyes.Watcher().Verdict().Library != ""
}

// finish reads what is left, says the verdict and closes the record. It
// returns the failure that --strict makes of a broken contract.
func (w *watching) finish(st launcher.Status, failed bool) error {
	var errs []error
	for i, p := range w.pumps {
		if err := p.Stop(2 * time.Second); err == nil {
			errs = append(errs, w.sources[i].Close())
		}
	}
	if silent := w.closeEyes(); st.Code != 0 {
		w.nameSilent(silent)
	}
	w.cancel()
	<-w.done
	w.told.close()
	errs = append(errs, w.keepLogs())
	w.judge() // with what the other nodes said last
	w.mu.Lock()
	counters, broken := w.counters, w.broken
	v := watch.Merge(append([]watch.Verdict{w.eyes.Watcher().Verdict()}, w.remote...)).AsAsked(w.asked)
	w.mu.Unlock()
	w.record.Verdict(v)
	w.record.Counters(counters)
	for _, e := range counters.Events {
		if e.ID != "fallback" {
			w.event(e)
		}
	}
	s := report.JobSentence(v, counters, report.JobEnd{Hosts: len(w.p.Hosts.Hosts), Nodes: w.nodes, Dialect: w.p.Dialect, RDMA: w.p.HasRDMA(), Look: w.p.Look, Failed: st.Code != 0})
	if !failed {
		w.a.sayEnd(w.p, st)
		// A fabrun around this one says the verdict of the whole job.
		outer := w.a.follower || cmdline.ReadsCommandLine(cmdline.ParseMarker(w.a.env).Dialect) && v.Library == ""
		switch {
		case outer && !strings.HasPrefix(s, "FALLBACK"):
		case w.a.json:
			w.a.sayResult(report.RunResult{Status: st.Code, Signal: int(st.Signal), WallS: time.Since(w.began).Seconds(), Sentence: s, Verdict: v, Counters: counters, Plan: w.p})
		default:
			w.a.sayVerdict(s, w.p)
		}
	}
	if err := w.record.Exit(report.RecordExit{Code: st.Code, Signal: int(st.Signal), WallS: time.Since(w.began).Seconds()}); err != nil {
		errs = append(errs, fmt.Errorf("--record: %w", err))
	}
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(w.a.own(), "%v\n", err)
	}
	if broken != "" {
		return &exit.Error{Code: exit.Contract, Err: fmt.Errorf("--strict ended the job: %s", broken)}
	}
	return nil
}
