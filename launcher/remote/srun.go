package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SrunOptions configure srun inside an allocation.
type SrunOptions struct {
	Program string   // "" srun
	Env     []string // the environment srun is started with; nil this process's
	Overlap bool     // srun knows --overlap (Slurm 20.11 and later)
	// Components are the hosts of each part of a heterogeneous job: a step runs in
	// one of them.
	Components [][]string
}

// srun runs commands as job steps of the allocation this process is in: one
// step for a command that is the same on many hosts, since each step costs the
// controller, else one step a host.
type srun struct {
	*execTransport
	o SrunOptions
}

// NewSrun runs commands as job steps of the allocation this process is in.
func NewSrun(o SrunOptions) Transport {
	t := &srun{o: o}
	t.execTransport = &execTransport{name: "srun", env: o.Env, classify: srunFailure, argv: func(host string, cmd Command) ([]string, error) {
		argv, err := shellArgv(cmd)
		if err != nil {
			return nil, err
		}
		// Unbuffered: what streams back line by line must not wait in slurmstepd.
		step := t.step([]string{host}, "--unbuffered")
		if cmd.Ranks {
			step = slices.DeleteFunc(step, func(w string) bool { return w == "--gres=none" })
		}
		return append(step, argv...), nil
	}}
	return t
}

// step is srun's own part of the argument vector.
func (t *srun) step(hosts []string, more ...string) []string {
	program := t.o.Program
	if program == "" {
		program = "srun"
	}
	n := strconv.Itoa(len(hosts))
	args := []string{
		program, "--quiet", "--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1", "--nodelist=" + strings.Join(hosts, ","),
		"--mpi=none", "--mem=0", "--gres=none", "--kill-on-bad-exit=0", "--wait=0",
	}
	if t.o.Overlap {
		args = append(args, "--overlap")
	}
	if len(t.o.Components) > 0 {
		args = append(args, "--het-group="+strconv.Itoa(t.component(hosts[0])))
	}
	return append(args, more...)
}

// component is the part of a heterogeneous job that a host is in.
func (t *srun) component(host string) int {
	return max(0, slices.IndexFunc(t.o.Components, func(c []string) bool { return slices.Contains(c, host) }))
}

// labelledScript says which node it is and wraps what the command prints so
// that no line is long: srun --label breaks lines at its own buffer's size
// (src/common/write_labelled_message.c; messages of 1024 bytes). $1 is a nonce.
const labelledScript = `n=$1; shift; echo "$n host $SLURMD_NODENAME"; { "$@" </dev/null; printf '\n%s end %d\n' "$n" $?; } | base64`

// runSame is one step for all hosts, or, of a heterogeneous job, one for those of
// each component.
func (t *srun) runSame(ctx context.Context, hosts []string, cmd Command, o Options) []*Result {
	parts := map[int][]int{} // indices of hosts
	for i, h := range hosts {
		c := t.component(h)
		parts[c] = append(parts[c], i)
	}
	out := make([]*Result, len(hosts))
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(func() {
			var names []string
			for _, i := range part {
				names = append(names, hosts[i])
			}
			for j, r := range t.runStep(ctx, names, cmd, o) {
				out[part[j]] = r
			}
		})
	}
	all.Wait()
	return out
}

// runStep is one step for hosts. It says nothing of hosts that a failed
// step did not reach; one that began and did not end has used its deadline up.
func (t *srun) runStep(ctx context.Context, hosts []string, cmd Command, o Options) []*Result {
	out := make([]*Result, len(hosts))
	for _, h := range hosts {
		if checkHost(h) != nil || strings.ContainsAny(h, "@,") {
			return out // the one is told alone why
		}
	}
	deadline, limit := o.bounds()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	mark := nonce()
	cmd.Argv = append([]string{"/bin/sh", "-c", labelledScript, "fabrun", mark}, cmd.Argv...)
	step := *t.execTransport
	step.classify = func(string, int, string) *HostError { return nil }
	step.argv = func(_ string, cmd Command) ([]string, error) {
		argv, err := shellArgv(cmd)
		if err != nil {
			return nil, err
		}
		return append(t.step(hosts, "--label"), argv...), nil
	}
	start := time.Now()
	d := newDemux(mark, limit, len(hosts))
	_, err := step.Exec(ctx, hosts[0], cmd, Streams{Stdout: &d.stdout, Stderr: &d.stderr})
	if CauseOf(err) == LocalTransport || CauseOf(err) == Canceled {
		for i, h := range hosts {
			var he *HostError
			errors.As(err, &he)
			out[i] = &Result{Host: h, Status: -1, Began: start, Took: time.Since(start), Err: &HostError{Host: h, Cause: he.Cause, Err: he.Err, Hint: he.Hint}}
		}
		return out
	}
	tasks := d.tasks()
	for i, h := range hosts {
		r := &Result{Host: h, Status: -1, Began: start, Took: time.Since(start)}
		task, began := tasks[h]
		switch {
		case began && task.truncated:
			r.Err, r.Truncated = &HostError{Host: h, Cause: OutputLimit, Err: fmt.Errorf("printed more than %d bytes", limit)}, true
		case began && task.ended:
			r.Stdout, r.Stderr, r.Status = task.stdout, task.stderr, task.status
			r.Err = statusError(h, cmd.Argv[5:], r.Status, r.Stderr)
		case CauseOf(err) == Timeout && (began || len(tasks) > 0):
			r.Err = &HostError{Host: h, Cause: Timeout, Err: fmt.Errorf("no answer within %v", deadline)}
		case began:
			r.Err = &HostError{Host: h, Cause: Dropped, Err: errors.New("the step ended before the command did: " + lastLine(d.srunLines(), "no reason given"))}
		default:
			continue
		}
		out[i] = r
	}
	return out
}

// demux takes apart what srun --label prints: "NN: text" a line.
type demux struct {
	mark           string
	stdout, stderr labelled
}

type labelled struct {
	left    int // bytes over all tasks
	per     int // bytes of one task
	partial []byte
	lines   map[int][]byte
	plain   []byte // srun's own lines
	over    map[int]bool
}

func newDemux(mark string, limit, tasks int) *demux {
	// base64 makes four bytes of three, and a line feed after 76.
	per := limit/3*4 + limit/50 + 4096
	mk := func(per int) labelled {
		return labelled{left: per * tasks, per: per, lines: map[int][]byte{}, over: map[int]bool{}}
	}
	return &demux{mark, mk(per), mk(limit)}
}

func (l *labelled) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, found := bytes.Cut(p, []byte{'\n'})
		l.partial = append(l.partial, line...)
		if !found {
			return n, nil
		}
		l.line(l.partial)
		l.partial, p = l.partial[:0], rest
	}
}

func (l *labelled) line(line []byte) {
	head, text, ok := bytes.Cut(line, []byte(": "))
	if !ok { // an empty line may have lost its blank
		head, ok = bytes.CutSuffix(line, []byte(":"))
	}
	task, err := strconv.Atoi(strings.TrimSpace(string(head)))
	if !ok || err != nil || task < 0 {
		if len(l.plain) < 64<<10 {
			l.plain = append(append(l.plain, line...), '\n')
		}
		return
	}
	if len(l.lines[task])+len(text) > l.per || l.left < len(text) {
		l.over[task] = true
		return
	}
	l.left -= len(text)
	l.lines[task] = append(append(l.lines[task], text...), '\n')
}

func (d *demux) srunLines() []byte { return d.stderr.plain }

type task struct {
	stdout, stderr   []byte
	status           int
	ended, truncated bool
}

// tasks are the tasks that said their node, by node.
func (d *demux) tasks() map[string]task {
	out := map[string]task{}
	for id, text := range d.stdout.lines {
		head, body, _ := bytes.Cut(text, []byte{'\n'})
		host, ok := strings.CutPrefix(string(head), d.mark+" host ")
		if !ok || host == "" {
			continue
		}
		t := task{stderr: d.stderr.lines[id], truncated: d.stdout.over[id]}
		raw := make([]byte, base64.StdEncoding.DecodedLen(len(body)))
		n, err := base64.StdEncoding.Decode(raw, body) // it skips line feeds
		// "…output\nNONCE end STATUS\n"
		if at := bytes.LastIndex(raw[:n], []byte("\n"+d.mark+" end ")); err == nil && at >= 0 {
			if s, err := strconv.Atoi(strings.TrimSpace(string(raw[at+len(d.mark)+6 : n]))); err == nil {
				t.stdout, t.status, t.ended = raw[:at], s, true
			}
		}
		out[host] = t
	}
	return out
}
