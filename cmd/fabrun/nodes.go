package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fabrun/launcher/exit"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/plan"
	"fabrun/launcher/preflight"
	"fabrun/launcher/remote"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// nodeOptions are the flags that say how other hosts are reached.
type nodeOptions struct {
	transport  string
	sshUser    string
	sshPort    int
	sshKey     string
	sshConfig  string
	knownHosts string
	insecure   bool
}

func (o *nodeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.transport, "remote", "auto", "how other hosts are reached: auto, native (own ssh), ssh, srun, none")
	f.StringVar(&o.sshUser, "ssh-user", "", "log in as this `user`")
	f.IntVar(&o.sshPort, "ssh-port", 0, "ssh `port` of the hosts")
	f.StringVar(&o.sshKey, "ssh-key", "", "private key `file`")
	f.StringVar(&o.sshConfig, "ssh-config", "", "ssh configuration `file` instead of the usual ones")
	f.StringVar(&o.knownHosts, "known-hosts", "", "known_hosts `file` instead of the usual ones")
	f.BoolVar(&o.insecure, "insecure-host-keys", false, "do not check host keys")
}

// launcherSSH is what the launcher is told, so that it reaches the hosts in the
// same way; nil where nothing was said.
func (o nodeOptions) launcherSSH() *plan.SSH {
	s := plan.SSH{User: o.sshUser, Port: o.sshPort, Identity: o.sshKey, KnownHosts: o.knownHosts, Config: o.sshConfig, Insecure: o.insecure}
	if s == (plan.SSH{}) {
		return nil
	}
	return &s
}

// systemSSH is how the system's ssh is told the same.
func (o nodeOptions) systemSSH() remote.SSHOptions {
	return remote.SSHOptions{
		User: o.sshUser, Port: o.sshPort, IdentityFiles: oneOrNone(o.sshKey), ConfigFile: o.sshConfig,
		KnownHosts: oneOrNone(o.knownHosts), Insecure: o.insecure,
	}
}

func oneOrNone(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// transportTo opens the way to the other hosts; nil where they are not to be
// reached (--remote none).
func (a *app) transportTo(o nodeOptions, manager string) (remote.Transport, error) {
	kind := o.transport
	if kind == "" || kind == "auto" {
		kind = "native"
		if manager == "slurm" {
			kind = "srun"
		}
	}
	home, _ := a.getenv("HOME")
	login, _ := a.getenv("USER")
	if login == "" {
		// A service or a container may have no USER.
		if u, err := user.Current(); err == nil {
			login = u.Username
		}
	}
	agent, _ := a.getenv("SSH_AUTH_SOCK")
	switch kind {
	case "none":
		return nil, nil
	case "native":
		t, notes := remote.NewNative(remote.NativeOptions{
			Home: home, LocalUser: login, AgentSocket: agent, ConfigFiles: oneOrNone(o.sshConfig), User: o.sshUser, Port: o.sshPort,
			IdentityFiles: oneOrNone(o.sshKey), KnownHosts: oneOrNone(o.knownHosts), Insecure: o.insecure,
		})
		if a.verbose {
			for _, n := range notes {
				fmt.Fprintf(a.own(), "%s\n", n)
			}
		}
		return t, nil
	case "ssh":
		return remote.NewSSH(o.systemSSH()), nil
	case "srun":
		return remote.NewSrun(remote.SrunOptions{Env: a.env, Overlap: true}), nil
	}
	return nil, exit.UsageError(fmt.Errorf("--remote %q: there is no such way", o.transport), "auto, native, ssh, srun or none")
}

// lookDeadline bounds how long one host may take to be looked at.
const lookDeadline = 20 * time.Second

// nodes is what was found on the way to the job's other hosts.
type nodes struct {
	hosts []topology.Host // in the order of names
	names []string
	path  string            // of fabrun on all of them; "" where that is not one path
	paths map[string]string // of fabrun, by name
	look  plan.Look
	finds []finding.Finding
}

// lookFor says what to look at on the job's hosts.
type lookFor struct {
	full   bool         // all that can be learnt, not only what a plan needs
	places []live.Asked // what the job needs at the same path everywhere
}

// snapshotArgs are the arguments with which another host looks at itself.
func (a *app) snapshotArgs(want lookFor) []string {
	args := []string{"snapshot"}
	if !want.full {
		args = append(args, "--quick")
	}
	for _, p := range want.places {
		args = append(args, "--"+p.Role+"="+p.Path)
	}
	if v, _ := a.getenv("LD_LIBRARY_PATH"); v != "" && len(want.places) > 0 {
		args = append(args, "--library-path="+v)
	}
	return args
}

// lookAtNodes looks at every host of the job, in one round trip where fabrun is
// there already; to the others it is brought. A host that does not answer costs
// its deadline once and is named.
func (a *app) lookAtNodes(ctx context.Context, t remote.Transport, alloc hosts.Allocation, here topology.Host, want lookFor) (nodes, error) {
	n := nodes{path: a.self(), look: plan.Look{Hosts: max(len(alloc.Hosts), alloc.Nodes)}}
	others, self := look.Others(alloc)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le"}[runtime.GOARCH]
	program, err := remote.ReadProgram(a.self(), arch)
	if err != nil {
		return n, fmt.Errorf("reading fabrun itself: %w", err)
	}
	opts := remote.Options{Deadline: lookDeadline}
	opts.OnDone = func(done, total int, _ remote.Result) { a.progress.Step("looking at hosts", done, total) }
	defer a.progress.Clear()
	results, paths := remote.RunProgram(ctx, t, others, program, a.snapshotArgs(want), opts)
	found, errs := map[string]topology.Host{}, map[string]error{}
	now := time.Now()
	clocks := []preflight.ClockReading{{Remote: now, Sent: now, Received: now}}
	var ready []string
	for _, r := range results {
		h, err := readNode(r)
		if err != nil {
			errs[r.Host] = err
			continue
		}
		ready = append(ready, r.Host)
		found[r.Host] = h
		clocks = append(clocks, preflight.ClockReading{Host: r.Host, Remote: h.Clock.At, Sent: r.Began, Received: r.Began.Add(r.Took)})
	}
	n.finds = append(n.finds, preflight.ClockSkew(clocks)...)
	if len(self) > 0 && len(want.places) > 0 {
		libraryPath, _ := a.getenv("LD_LIBRARY_PATH")
		here.Places = live.Places(os.DirFS("/"), a.env, want.places, libraryPath)
	}
	for _, h := range alloc.Hosts {
		seen, ok := found[h.Name]
		if self[h.Name] {
			seen, ok = here, a.stalled == nil
			if !ok {
				errs[h.Name] = a.stalled
			}
			paths[h.Name] = a.self()
		}
		if !ok {
			f := unreachable(h.Name, errs[h.Name])
			n.finds = append(n.finds, f)
			why := f.Seen
			if he, ok := errors.AsType[*remote.HostError](errs[h.Name]); ok {
				why = he.Why()
			}
			n.look.Miss(h.Name, why)
			continue
		}
		n.look.Seen++
		n.hosts, n.names = append(n.hosts, seen), append(n.names, h.Name)
	}
	if n.look.Seen > 0 {
		for i := range n.finds {
			if n.finds[i].ID == unreachableID {
				n.finds[i].Why += "; what is set for the job is assumed to be right there"
			}
		}
	}
	n.paths = paths
	where := map[string]bool{}
	for _, h := range ready {
		where[paths[h]] = true
	}
	switch {
	case len(where) == 1 && (len(self) == 0 || where[a.self()]):
		n.path = paths[ready[0]]
	case len(where) > 0:
		// A copy lies in another place than here. The launcher knows one path
		// for all, and a copy in this machine's own cache makes it one.
		n.path = a.commonPath(paths, ready, len(self) > 0)
	case len(others) > 0:
		n.path = ""
	}
	return n, nil
}

// commonPath is a path that leads to fabrun on every host; "" where there is
// none. A staged copy is named by its content, so the same name here is the
// same program.
func (a *app) commonPath(paths map[string]string, ready []string, here bool) string {
	first := paths[ready[0]]
	for _, h := range ready {
		if paths[h] != first {
			return ""
		}
	}
	if !here {
		return first
	}
	if _, err := os.Stat(first); err == nil {
		return first
	}
	text, err := os.ReadFile(a.self())
	if err != nil || writePrivate(first, string(text)) != nil || os.Chmod(first, 0o700) != nil {
		return ""
	}
	return first
}

func readNode(r remote.Result) (topology.Host, error) {
	if r.Err != nil {
		return topology.Host{}, r.Err
	}
	if r.Status != 0 {
		return topology.Host{}, fmt.Errorf("'fabrun snapshot' ended with status %d there: %s", r.Status, strings.TrimSpace(string(r.Stderr[:min(len(r.Stderr), 300)])))
	}
	// A login script may have printed something before.
	text := r.Stdout
	if at := bytes.Index(text, []byte("fabrun-snapshot ")); at > 0 {
		text = text[at:]
	}
	snap, err := discover.ParseSnapshot(string(text))
	if err != nil {
		return topology.Host{}, fmt.Errorf("what it sent cannot be read: %w", err)
	}
	return discover.Read(snap)
}

const unreachableID = "node.unreachable"

func unreachable(host string, err error) finding.Finding {
	f := finding.Finding{
		ID: unreachableID, Severity: finding.Error, Host: host, Subject: "node", Seen: "no answer", Wanted: "a look at the host",
		Why: "nothing is known of this host",
	}
	if err == nil {
		return f
	}
	var he *remote.HostError
	f.Seen = strings.TrimPrefix(err.Error(), host+": ")
	if errors.As(err, &he) {
		f.Seen, f.Hint = fmt.Sprintf("%s: %s", he.Cause, he.Why()), he.Hint
	}
	return f
}
