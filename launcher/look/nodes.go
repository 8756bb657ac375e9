package look

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

	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// Ways is how other hosts are reached.
type Ways struct {
	Transport  string // auto, native, ssh, srun or none; "" auto
	SSHUser    string
	SSHPort    int
	SSHKey     string
	SSHConfig  string
	KnownHosts string
	Insecure   bool // host keys are not checked
}

// LauncherSSH is what the launcher is told, so that it reaches the hosts in the
// same way; nil where nothing was said.
func (o Ways) LauncherSSH() *plan.SSH {
	s := plan.SSH{User: o.SSHUser, Port: o.SSHPort, Identity: o.SSHKey, KnownHosts: o.KnownHosts, Config: o.SSHConfig, Insecure: o.Insecure}
	if s == (plan.SSH{}) {
		return nil
	}
	return &s
}

// SystemSSH is how the system's ssh is told the same.
func (o Ways) SystemSSH() remote.SSHOptions {
	return remote.SSHOptions{
		User: o.SSHUser, Port: o.SSHPort, IdentityFiles: oneOrNone(o.SSHKey), ConfigFile: o.SSHConfig,
		KnownHosts: oneOrNone(o.KnownHosts), Insecure: o.Insecure,
	}
}

func oneOrNone(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// Transport opens the way to the other hosts; nil where they are not to be
// reached (--remote none).
func (a *Machines) Transport(o Ways, manager string) (remote.Transport, error) {
	kind := o.Transport
	if kind == "" || kind == "auto" {
		kind = "native"
		if own := hosts.SchedulerNamed(manager).Transport; own != "" {
			kind = own
		}
	}
	home, _ := a.Getenv("HOME")
	login, _ := a.Getenv("USER")
	if login == "" {
		// A service or a container may have no USER.
		if u, err := user.Current(); err == nil {
			login = u.Username
		}
	}
	agent, _ := a.Getenv("SSH_AUTH_SOCK")
	switch kind {
	case "none":
		return nil, nil
	case "native":
		t, notes := remote.NewNative(remote.NativeOptions{
			Home: home, LocalUser: login, AgentSocket: agent, ConfigFiles: oneOrNone(o.SSHConfig), User: o.SSHUser, Port: o.SSHPort,
			IdentityFiles: oneOrNone(o.SSHKey), KnownHosts: oneOrNone(o.KnownHosts), Insecure: o.Insecure,
		})
		if a.Verbose {
			for _, n := range notes {
				fmt.Fprintf(a.Own(), "%s\n", n)
			}
		}
		return t, nil
	case "ssh":
		return remote.NewSSH(o.SystemSSH()), nil
	case "srun":
		alloc, err := hosts.FromEnv(a.Getenv, files.Read)
		if err != nil {
			return nil, fmt.Errorf("hosts of the job: %w", err)
		}
		return remote.NewSrun(remote.SrunOptions{Env: a.Env, Overlap: true, Components: alloc.Components}), nil
	}
	return nil, exit.UsageError(fmt.Errorf("--remote %q: there is no such way", o.Transport), "auto, native, ssh, srun or none")
}

// Deadline bounds how long one host may take to be looked at.
const Deadline = 20 * time.Second

// Seen is what was found on the way to the job's other hosts.
type Seen struct {
	Hosts []topology.Host // in the order of Names
	Names []string
	Path  string            // of fabrun on all of them; "" where that is not one path
	Paths map[string]string // of fabrun, by name
	Look  plan.Look
	Finds []finding.Finding
}

// Want says what to look at on the job's hosts.
type Want struct {
	Full   bool         // all that can be learnt, not only what a plan needs
	Places []live.Asked // what the job needs at the same path everywhere
}

// snapshotArgs are the arguments with which another host looks at itself.
func (a *Machines) snapshotArgs(want Want) []string {
	args := []string{"snapshot"}
	if !want.Full {
		args = append(args, "--quick")
	}
	for _, p := range want.Places {
		args = append(args, "--"+p.Role+"="+p.Path)
	}
	if v, _ := a.Getenv("LD_LIBRARY_PATH"); v != "" && len(want.Places) > 0 {
		args = append(args, "--library-path="+v)
	}
	return args
}

// Nodes looks at every host of the job, in one round trip where fabrun is
// there already; to the others it is brought. A host that does not answer costs
// its deadline once and is named.
func (a *Machines) Nodes(ctx context.Context, t remote.Transport, alloc hosts.Allocation, here topology.Host, want Want) (Seen, error) {
	n := Seen{Path: a.Self(), Look: plan.Look{Hosts: max(len(alloc.Hosts), alloc.Nodes)}}
	others, self := Others(alloc)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le"}[runtime.GOARCH]
	program, err := remote.ReadProgram(a.Self(), arch)
	if err != nil {
		return n, fmt.Errorf("reading fabrun itself: %w", err)
	}
	opts := remote.Options{Deadline: Deadline}
	opts.OnDone = func(done, total int, _ remote.Result) { a.Progress.Step("looking at hosts", done, total) }
	defer a.Progress.Clear()
	results, paths := remote.RunProgram(ctx, t, others, program, a.snapshotArgs(want), opts)
	found, errs := map[string]topology.Host{}, map[string]error{}
	now := time.Now()
	clocks := []check.ClockReading{{Remote: now, Sent: now, Received: now}}
	var ready []string
	for _, r := range results {
		h, err := ReadNode(r)
		if err != nil {
			errs[r.Host] = err
			continue
		}
		ready = append(ready, r.Host)
		found[r.Host] = h
		clocks = append(clocks, check.ClockReading{Host: r.Host, Remote: h.Clock.At, Sent: r.Began, Received: r.Began.Add(r.Took)})
	}
	n.Finds = append(n.Finds, check.ClockSkew(clocks)...)
	if len(self) > 0 && len(want.Places) > 0 {
		libraryPath, _ := a.Getenv("LD_LIBRARY_PATH")
		here.Places = live.Places(os.DirFS("/"), a.Env, want.Places, libraryPath)
	}
	for _, h := range alloc.Hosts {
		seen, ok := found[h.Name]
		if self[h.Name] {
			seen, ok = here, a.Stalled == nil
			if !ok {
				errs[h.Name] = a.Stalled
			}
			paths[h.Name] = a.Self()
		}
		if !ok {
			f := unreachable(h.Name, errs[h.Name])
			n.Finds = append(n.Finds, f)
			why := f.Seen
			if he, ok := errors.AsType[*remote.HostError](errs[h.Name]); ok {
				why = he.Why()
			}
			n.Look.Miss(h.Name, why)
			continue
		}
		n.Look.Seen++
		n.Hosts, n.Names = append(n.Hosts, seen), append(n.Names, h.Name)
	}
	if n.Look.Seen > 0 {
		for i := range n.Finds {
			if n.Finds[i].ID == unreachableID {
				n.Finds[i].Why += "; what is set for the job is assumed to be right there"
			}
		}
	}
	n.Paths = paths
	where := map[string]bool{}
	for _, h := range ready {
		where[paths[h]] = true
	}
	switch {
	case len(where) == 1 && (len(self) == 0 || where[a.Self()]):
		n.Path = paths[ready[0]]
	case len(where) > 0:
		// A copy lies in another place than here. The launcher knows one path
		// for all, and a copy in this machine's own cache makes it one.
		n.Path = a.commonPath(paths, ready, len(self) > 0)
	case len(others) > 0:
		n.Path = ""
	}
	return n, nil
}

// commonPath is a path that leads to fabrun on every host; "" where there is
// none. A staged copy is named by its content, so the same name here is the
// same program.
func (a *Machines) commonPath(paths map[string]string, ready []string, here bool) string {
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
	text, err := os.ReadFile(a.Self())
	if err != nil || files.WritePrivate(first, string(text)) != nil || os.Chmod(first, 0o700) != nil {
		return ""
	}
	return first
}

func ReadNode(r remote.Result) (topology.Host, error) {
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
