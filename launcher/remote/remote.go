package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Command is what to run on a host: an argument vector, never a shell line.
type Command struct {
	Argv []string
	Env  []string // "NAME=value", set for this command only
	Dir  string   // working directory; "" the login's
	// Stdin is sent to the command. Without one the command gets an empty
	// standard input, and the connection's own becomes its life-line: when the
	// connection ends, the command and its children are ended.
	Stdin io.Reader
	// Ranks: the command is the job itself, and gets what a resource manager gave
	// the job on that host. Others leave all of it to the job.
	Ranks bool
}

// Streams is where a command's output goes, as it comes. nil discards.
type Streams struct {
	Stdout io.Writer
	Stderr io.Writer
}

// Transport runs commands on hosts. There are four: NewNative, NewSSH, NewSrun
// and NewLocal. A Transport may be used from many goroutines.
type Transport interface {
	// Exec runs cmd on host and returns its exit status (128+n on signal n).
	// The error is a *HostError: the command could not be run, or its end was
	// not seen. When ctx ends, the remote command is ended too.
	Exec(ctx context.Context, host string, cmd Command, s Streams) (int, error)
	// Name is "native", "ssh", "srun" or "local".
	Name() string
	Close() error
}

// Result is what one host answered.
type Result struct {
	Host      string
	Stdout    []byte
	Stderr    []byte
	Truncated bool // more was printed than Options.MaxOutput
	Status    int  // exit status; -1 when it was not seen
	Err       error
	Began     time.Time // of this machine's clock
	Took      time.Duration
}

// Options bound a run over many hosts. The zero value is usable.
type Options struct {
	Concurrency int           // hosts at a time; 0: 128
	Deadline    time.Duration // per host, from its own start; 0: 20 s
	MaxOutput   int           // bytes kept of each stream of each host; 0: 16 MiB
	// OnDone is called once per host as it ends, one call at a time.
	OnDone func(done, total int, r Result)
}

// Defaults of Options.
const (
	DefaultConcurrency = 128
	DefaultDeadline    = 20 * time.Second
	DefaultMaxOutput   = 16 << 20
)

// Run runs cmd on one host to its end and keeps what it prints. An exit status
// that says the program was not there (127) or cannot be executed (126) is an
// error that says so; other statuses are for the caller to judge.
func Run(ctx context.Context, t Transport, host string, cmd Command, o Options) Result {
	deadline, limit := o.bounds()
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var over atomic.Bool
	full := func() {
		over.Store(true)
		cancel()
	}
	out, errw := &limited{left: limit, full: full}, &limited{left: limit, full: full}
	status, err := t.Exec(ctx, host, cmd, Streams{Stdout: out, Stderr: errw})
	r := Result{Host: host, Status: status, Err: err, Began: start, Took: time.Since(start), Truncated: over.Load()}
	r.Stdout, r.Stderr = out.bytes(), errw.bytes()
	switch {
	case r.Truncated:
		r.Err = &HostError{Host: host, Cause: OutputLimit, Err: fmt.Errorf("printed more than %d bytes", limit)}
	case err != nil:
		var he *HostError
		if errors.As(err, &he) && he.Cause == Timeout && he.Err == context.DeadlineExceeded {
			r.Err = &HostError{Host: host, Cause: Timeout, Err: fmt.Errorf("no answer within %v", deadline)}
		}
	default:
		r.Err = statusError(host, cmd.Argv, status, r.Stderr)
	}
	return r
}

func (o Options) bounds() (deadline time.Duration, maxOutput int) {
	deadline, maxOutput = o.Deadline, o.MaxOutput
	if deadline <= 0 {
		deadline = DefaultDeadline
	}
	if maxOutput <= 0 {
		maxOutput = DefaultMaxOutput
	}
	return deadline, maxOutput
}

// statusError reads the statuses by which a shell says that there was nothing
// to run.
func statusError(host string, argv []string, status int, stderr []byte) error {
	switch status {
	case 127:
		return &HostError{Host: host, Cause: NoSuchFile, Err: fmt.Errorf("%q: %s", first(argv), lastLine(stderr, "no such file"))}
	case 126:
		return &HostError{Host: host, Cause: NotExecutable, Err: fmt.Errorf("%q: %s", first(argv), lastLine(stderr, "cannot be executed"))}
	}
	return nil
}

// manyHosts is a Transport that can run one command on many hosts at once, for
// less than one Exec each costs. It returns results in the order of hosts, and
// nil for a host that it did not get to: that one is asked alone.
type manyHosts interface {
	runSame(ctx context.Context, hosts []string, cmd Command, o Options) []*Result
}

// RunSame is RunAll for the same command on every host, which some transports
// (srun: one step for all) do better. The command gets no standard input.
func RunSame(ctx context.Context, t Transport, hosts []string, cmd Command, o Options) []Result {
	all := func(string) Command { return cmd }
	many, ok := t.(manyHosts)
	if !ok || len(hosts) < 2 || cmd.Stdin != nil {
		return RunAll(ctx, t, hosts, all, o)
	}
	results := make([]Result, len(hosts))
	var alone []string
	at := map[string]int{}
	for i, r := range many.runSame(ctx, hosts, cmd, o) {
		at[hosts[i]] = i
		if r == nil {
			alone = append(alone, hosts[i])
			continue
		}
		results[i] = *r
		if o.OnDone != nil {
			o.OnDone(i+1-len(alone), len(hosts), *r)
		}
	}
	for _, r := range RunAll(ctx, t, alone, all, o) {
		results[at[r.Host]] = r
	}
	return results
}

// RunAll runs cmd(host) on every host and returns the results in the order of
// hosts. It returns when all have answered or used up their own deadline; a
// bad host costs nobody else anything.
func RunAll(ctx context.Context, t Transport, hosts []string, cmd func(host string) Command, o Options) []Result {
	n := o.Concurrency
	if n <= 0 {
		n = DefaultConcurrency
	}
	results := make([]Result, len(hosts))
	sem := make(chan struct{}, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for i, host := range hosts {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			r := Run(ctx, t, host, cmd(host), o)
			mu.Lock()
			defer mu.Unlock()
			results[i] = r
			done++
			if o.OnDone != nil {
				o.OnDone(done, len(hosts), r)
			}
		})
	}
	wg.Wait()
	return results
}

// Session is a command that is still running.
type Session struct {
	Host   string
	Stdout io.Reader // ends when the command ends
	Stderr io.Reader
	cancel context.CancelFunc
	done   chan struct{}
	status int
	err    error
}

// Stream starts cmd on host and returns at once; what it prints is read from
// the session. Both streams must be read, or Close called.
func Stream(ctx context.Context, t Transport, host string, cmd Command) *Session {
	ctx, cancel := context.WithCancel(ctx)
	or, ow := io.Pipe()
	er, ew := io.Pipe()
	s := &Session{Host: host, Stdout: or, Stderr: er, cancel: cancel, done: make(chan struct{})}
	// A reader that went away must not block the transport.
	context.AfterFunc(ctx, func() {
		_ = or.Close()
		_ = er.Close()
	})
	go func() {
		s.status, s.err = t.Exec(ctx, host, cmd, Streams{Stdout: ow, Stderr: ew})
		_ = ow.Close()
		_ = ew.Close()
		close(s.done)
	}()
	return s
}

// Wait returns the exit status once the command has ended.
func (s *Session) Wait() (int, error) {
	<-s.done
	return s.status, s.err
}

// Close ends the remote command and waits for that.
func (s *Session) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// limited keeps the first bytes of a stream and calls full when there are more.
type limited struct {
	mu   sync.Mutex
	buf  []byte
	left int
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := min(l.left, len(p))
	l.buf = append(l.buf, p[:k]...)
	l.left -= k
	if k < len(p) {
		l.full()
	}
	return len(p), nil
}

func (l *limited) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// lastLine is the last non-empty line of text, cut to a bounded length.
func lastLine(text []byte, otherwise string) string {
	s := strings.TrimSpace(string(text))
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = strings.TrimSpace(s[i+1:])
	}
	if s == "" {
		return otherwise
	}
	if len(s) > 300 {
		s = s[:300]
	}
	return strings.ToValidUTF8(s, "?")
}
