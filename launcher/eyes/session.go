package eyes

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/hang"
	"fabrun/launcher/look"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/topology"
)

// Nodes are the job's other nodes that answered when they were looked at, and the
// way to them.
type Nodes struct {
	Transport remote.Transport
	Names     []string
	Hosts     []topology.Host // in step
	Fabrun    string          // its path on all of them; "" not one path
}

// A session runs fabrun on another node, and that one streams what the node shows.
type session struct {
	host   string
	via    remote.Transport
	broke  bool // it ended with an error
	named  bool // and its node was said to be lost
	stream *remote.Session
	stdin  *io.PipeWriter // its life: fabrun there ends when this is closed
	ready  chan struct{}
	done   chan struct{}
}

// JobEnded is the last word to the fabrun of a session: the job has ended. A session
// that merely breaks says nothing, and the job may live on.
const JobEnded = "end\n"

// How long the sessions on other nodes may take to open and to say their last word.
// A node that does not answer costs that once, for all nodes together.
const (
	sessionOpens  = 10 * time.Second
	sessionCloses = 5 * time.Second
	sessionSends  = 30 * time.Second // with the logs that are kept
)

// sessions are those on the job's other nodes.
type sessions struct {
	all      []*session
	gone     int                                         // nodes without which the job goes on
	patterns []string                                    // of the user's own log files
	answers  func(ctx context.Context, addr string) bool // something answers there
	asking   context.Context                             // ends with the sessions
	unasked  context.CancelFunc
}

func newSessions() sessions {
	s := sessions{answers: answersAt}
	s.asking, s.unasked = context.WithCancel(context.Background())
	return s
}

// Open opens a session on each of the other nodes that answered, over the
// transport that is already there; dir is the run directory, which each
// session makes on its node before the ranks start, "" for counters alone.
func (w *Job) Open(ctx context.Context, by Nodes, p plan.Plan, dir string) {
	w.know(by.Hosts)
	if by.Transport == nil || by.Fabrun == "" {
		return
	}
	there, self := look.Others(p.Hosts)
	others := slices.DeleteFunc(there, func(host string) bool { return !slices.Contains(by.Names, host) })
	if len(others) == 0 {
		return
	}
	argv := w.sessionArgv(by, p, dir)
	promise := promiseOf(p)
	t := by.Transport
	w.mu.Lock()
	w.hang.hosts += len(others)
	for _, host := range others {
		w.stall.open[host] = true
	}
	w.mu.Unlock()
	for i, host := range others {
		argv := slices.Clone(argv)
		if i == 0 && len(w.sessions.patterns) > 0 {
			argv = append(argv, "--shared")
		}
		if i == 0 && w.cfg.Hang.RAS {
			argv = append(argv, "--ras") // one answer tells of all nodes
		}
		if devs := promise.Devices[host]; len(devs) > 0 {
			argv = append(argv, "--expect-devices", strings.Join(devs, ","))
		}
		r, in := io.Pipe()
		e := &session{host: host, via: t, stdin: in, ready: make(chan struct{}), done: make(chan struct{})}
		e.stream = remote.Stream(context.Background(), t, host, remote.Command{Argv: argv, Stdin: io.MultiReader(r, strings.NewReader(JobEnded))})
		w.sessions.all = append(w.sessions.all, e)
		go func() {
			//nolint:errcheck // what it says on stderr is not the job's
			_, _ = io.Copy(io.Discard, e.stream.Stderr)
		}()
		go w.read(e, others, len(self) > 0)
	}
	limit := time.After(sessionOpens)
	for _, e := range w.sessions.all {
		select {
		case <-e.ready:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sessionArgv is what a session runs, but for what differs per node.
func (w *Job) sessionArgv(by Nodes, p plan.Plan, dir string) []string {
	argv := []string{by.Fabrun, "watch", "--counters", "--job", w.cfg.Mark}
	if dir != "" {
		argv = append(argv, "--follow", dir, "--make")
		if w.cfg.Record != "" {
			argv = append(argv, "--keep", "--pairs")
		}
	}
	for _, p := range w.sessions.patterns {
		// What this machine sees on a shared file system it reads itself.
		if shared, known := launcher.SharedLogs(p); !shared || !known {
			argv = append(argv, "--pattern", p)
		}
	}
	argv = append(argv, w.cfg.Hang.argv()...)
	if promiseOf(p).GPUDirect {
		argv = append(argv, "--expect-gpudirect")
	}
	return argv
}

// read takes in what a session says, to its end. others are the nodes of all
// sessions; here says that this machine is one of the job's, too.
func (w *Job) read(e *session, others []string, here bool) {
	defer close(e.done)
	var once sync.Once
	there := called{byUser: e.host}
	err := report.ReadStream(e.stream.Stdout, report.StreamHandler{
		Start: func(itself string) {
			there.itself = itself
			once.Do(func() { close(e.ready) })
		},
		Event: func(ev watch.Event) { w.elsewhere(there.event(ev)) },
		Sample: func(s watch.Sample) {
			s.Host = e.host
			w.sample(s)
		},
		Relay: w.relay, Verdict: w.heard,
		Quiet: func(procs []watch.Standing) { w.quiet(e.host, there.standings(procs)) },
		Look: func(l hang.Look) {
			l.Host = e.host
			w.look(l)
		},
		Log: func(name string, text []byte) { w.keep(e.host, name, text) },
	})
	once.Do(func() { close(e.ready) })
	w.blind(e.host)
	if err == nil {
		_, err = e.stream.Wait()
	}
	if err != nil && w.cfg.Verbose {
		fmt.Fprintf(w.cfg.Say, "%s cannot be watched: %v\n", e.host, err)
	}
	e.broke = err != nil
	if e.broke && w.sessions.asking.Err() == nil {
		w.lost(e, others, here)
	}
}

// elsewhere is called for what the log of another node says.
func (w *Job) elsewhere(e watch.Event) {
	w.mu.Lock()
	w.speaks = true
	w.mu.Unlock()
	w.event(e)
}

func (w *Job) heard(v watch.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts = append(w.verdicts, v)
}

// close hears the last word of each node, and returns the sessions that had none.
// sends: with it come the logs that are kept.
func (s *sessions) close(sends bool) (silent []*session) {
	s.unasked()
	for _, e := range s.all {
		//nolint:errcheck // closing a pipe never fails
		_ = e.stdin.Close()
	}
	closes := sessionCloses
	if sends {
		closes = sessionSends
	}
	limit := time.After(closes)
	for _, e := range s.all {
		select {
		case <-e.done:
		case <-limit:
			limit = time.After(0)
			go e.stream.Close()
			silent = append(silent, e)
			continue
		}
		if e.broke && !e.named {
			silent = append(silent, e)
		}
		//nolint:errcheck // it has ended
		_ = e.stream.Close()
	}
	return silent
}
