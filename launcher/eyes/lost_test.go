package eyes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

// saidByMany is a stderr that several nodes' eyes write to.
type saidByMany struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *saidByMany) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *saidByMany) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// cutOff is a transport whose sessions break after a minute; what a node then
// says to a new connection is up to answer.
type cutOff struct{ answer func(host string) error }

func (c cutOff) Exec(ctx context.Context, host string, cmd remote.Command, s remote.Streams) (int, error) {
	if cmd.Argv[0] == "true" {
		if err := c.answer(host); err != nil {
			return -1, err
		}
		return 0, nil
	}
	if _, err := io.WriteString(s.Stdout, `{"start":{"host":"`+host+`"}}`+"\n"); err != nil {
		return -1, err
	}
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	return -1, &remote.HostError{Host: host, Cause: remote.Dropped, Err: errors.New("the connection ended before the command did")}
}

func (cutOff) Name() string { return "cut off" }
func (cutOff) Close() error { return nil }

// TestNodeThatAnswersNoMoreIsNamedAndTheJobEnded: a node that answers in no way
// any more ends the job and is named; one that only takes no login does not.
func TestNodeThatAnswersNoMoreIsNamedAndTheJobEnded(t *testing.T) {
	fail := func(c remote.Cause) func(string) error {
		return func(host string) error { return &remote.HostError{Host: host, Cause: c, Err: errors.New("so")} }
	}
	one := func(which string) func(string) error {
		return func(host string) error {
			if host == which {
				return fail(remote.Timeout)(host)
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		hosts  []string
		answer func(string) error
		ends   bool
		says   string
		open   string // the address that answers
		argv   string // of the job; "" mpirun
	}{
		{"the login hangs", []string{"localhost", "n2"}, fail(remote.Timeout), false, "warning: n2: it takes no login any more (n2: timeout: so; asked 3 times)", "10.1.4.2", ""},
		{"what answers is on every host", []string{"localhost", "n2"}, fail(remote.Timeout), true, "error: n2: it answers no more", "172.17.0.1", ""},
		{"switched off", []string{"localhost", "n2"}, fail(remote.Timeout), true, "error: n2: it answers no more (n2: timeout: so; asked 3 times)", "", ""},
		{"no route", []string{"localhost", "n2"}, fail(remote.Unreachable), true, "error: n2: it answers no more", "", ""},
		{"one of two", []string{"n1", "n2"}, func(host string) error {
			if host == "n2" {
				return fail(remote.Timeout)(host)
			}
			return nil
		}, true, "error: n2: it answers no more", "", ""},
		{"only the session broke", []string{"localhost", "n2"}, func(string) error { return nil }, false, "", "", ""},
		{"sshd was stopped", []string{"localhost", "n2"}, fail(remote.Refused), false, "", "", ""},
		{"the login was taken away", []string{"localhost", "n2"}, fail(remote.Auth), false, "", "", ""},
		{"this machine is cut off from the job", []string{"n1", "n2"}, fail(remote.Timeout), false, "it may be this machine that is cut off", "", ""},
		{"this machine is cut off from the one node", []string{"n2"}, fail(remote.Timeout), false, "it may be this machine that is cut off", "", ""},
		{"an elastic job", []string{"localhost", "n1", "n2"}, one("n2"), false, "error: n2: it answers no more (n2: timeout: so; asked 3 times): switched off, crashed, or cut off from the network. torchrun can go on with the other nodes", "", "torchrun --nnodes 2:3 --rdzv-backend c10d train.py"},
		{"an elastic job with too few left", []string{"localhost", "n2"}, one("n2"), true, "is ended", "", "torchrun --nnodes 2:3 --rdzv-backend c10d train.py"},
		{"an elastic job that cannot meet again", []string{"localhost", "n1", "n2"}, one("n2"), true, "is ended", "", "torchrun --nnodes 2:3 train.py"},
		{"an elastic job loses where it meets", []string{"n2", "n1", "localhost"}, one("n2"), true, "is ended", "", "torchrun --nnodes 2:3 --rdzv-backend c10d train.py"},
		{"torchrun of three nodes", []string{"localhost", "n1", "n2"}, one("n2"), true, "is ended", "", "torchrun --nnodes 3 --rdzv-backend c10d train.py"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errs saidByMany
				p := plan.Plan{Dialect: cmdline.OpenMPI5}
				if c.argv != "" {
					argv := strings.Fields(c.argv)
					id := cmdline.Identify(argv, "", "")
					p.Dialect, p.Command = id.Dialect, cmdline.Parse(id, argv)
				}
				for _, h := range c.hosts {
					p.Hosts.Hosts = append(p.Hosts.Hosts, hosts.Host{Name: h})
				}
				ended := false
				cfg := JobConfig{Plan: plan.Plan{Dialect: cmdline.OpenMPI5}, Dir: t.TempDir(), Stderr: &errs, Say: report.Own(&errs, nil), End: func() { ended = true }}
				w, err := WatchJob(cfg, &launcher.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				w.sessions.answers = func(_ context.Context, addr string) bool { return addr == c.open }
				w.cfg.Plan = p // whose names nobody looks up
				for host, own := range map[string]string{"n1": "10.1.4.1", "n2": "10.1.4.2"} {
					w.sample(watch.Sample{Host: host, Addresses: []string{own, "172.17.0.1"}})
				}
				w.Open(context.Background(), Nodes{Transport: cutOff{c.answer}, Names: c.hosts, Fabrun: "fabrun"}, p, cfg.Dir)
				time.Sleep(2 * time.Minute) // of the bubble's own clock
				synctest.Wait()
				w.Finish(launcher.Status{}, func(Result) {})
				if ended != c.ends || !strings.Contains(errs.String(), c.says) || c.says == "" && strings.Contains(errs.String(), "answers no more") {
					t.Errorf("ended %v, want %v; said:\n%s", ended, c.ends, errs.String())
				}
			})
		})
	}
}

// TestFailedJobNamesTheNodeThatAnswersNoMore: the launcher may notice first, and
// says so in many words; the session's own connection has not even broken yet.
func TestFailedJobNamesTheNodeThatAnswersNoMore(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		cause  remote.Cause
		want   bool
	}{{"switched off", 255, remote.Timeout, true}, {"the job ended well", 0, remote.Timeout, false}, {"it answers", 1, remote.Refused, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errs saidByMany
				p := plan.Plan{Dialect: cmdline.OpenMPI5}
				p.Hosts.Hosts = []hosts.Host{{Name: "localhost"}, {Name: "n2"}}
				cfg := JobConfig{Plan: plan.Plan{Dialect: cmdline.OpenMPI5, Argv: []plan.Arg{{Text: "mpirun"}}}, Dir: t.TempDir(), Stderr: &errs, Say: report.Own(&errs, nil), End: func() {}}
				w, err := WatchJob(cfg, &launcher.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				tr := cutOff{func(host string) error { return &remote.HostError{Host: host, Cause: c.cause, Err: errors.New("so")} }}
				w.Open(context.Background(), Nodes{Transport: tr, Names: []string{"n2"}, Fabrun: "fabrun"}, p, cfg.Dir)
				time.Sleep(20 * time.Second) // of the bubble's own clock: the session has not broken
				w.Finish(launcher.Status{Code: c.status}, func(Result) {})
				time.Sleep(time.Minute) // what was left behind ends
				if got := strings.Contains(errs.String(), "error: n2: it answers no more (n2: timeout: so)"); got != c.want {
					t.Errorf("named: %v, want %v\n%s", got, c.want, errs.String())
				}
			})
		})
	}
}
