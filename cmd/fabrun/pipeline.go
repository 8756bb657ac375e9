package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
)

// jobOptions are the flags that run and plan share.
type jobOptions struct {
	hosts    string
	hostfile string
	strict   bool
}

// planJob is the one path by which run and plan decide: it looks (launcher's
// version, hosts, machines), and everything after looking is pure.
func (a *app) planJob(ctx context.Context, o jobOptions, argv []string) (plan.Plan, error) {
	if len(argv) == 0 {
		return plan.Plan{}, usageError(errors.New("no program to run"), "fabrun mpirun -np 2 ./a.out")
	}
	probed, err := a.probeLauncher(ctx, argv)
	if err != nil {
		return plan.Plan{}, err
	}
	cmd := plan.Parse(plan.Identify(argv, probed.version, probed.resolved), argv)
	alloc, given, err := a.jobHosts(cmd, o)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Build(plan.Request{
		Command: cmd, Env: a.env, Hosts: alloc, HostsGiven: given, Local: a.local(alloc),
		Result: envgen.Result{}, Self: a.self(), Root: a.from == "" && os.Geteuid() == 0,
	}), nil
}

// self is the path under which this program can be started again; "" unknown.
func (a *app) self() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// jobHosts says where the job runs, and whether the launcher has to be told.
// What was named to fabrun comes first, then the launcher's own options, then
// what a resource manager says, then this machine.
func (a *app) jobHosts(cmd plan.Command, o jobOptions) (alloc hosts.Allocation, given bool, err error) {
	if o.hosts != "" || o.hostfile != "" {
		alloc, err = a.allocation(o.hosts, o.hostfile)
		return alloc, err == nil, err
	}
	if src := cmd.HostSource(a.env); src != nil {
		if src.File != "" {
			alloc, err = readJobHosts(src.File, hostfileDialect(cmd.Launcher.Dialect))
		} else if src.List != "" {
			alloc, err = hosts.ParseList(src.List)
		}
		alloc.Source = src.Option
		if err != nil {
			// The launcher reads its own option by its own rules: what fabrun
			// cannot read is said and not fatal.
			return hosts.Allocation{Source: src.Option}, false, nil
		}
		return alloc, false, nil
	}
	alloc, err = a.allocation("", "")
	return alloc, false, err
}

func hostfileDialect(launcherDialect string) hosts.Dialect {
	switch launcherDialect {
	case plan.MPICH:
		return hosts.MPICH
	case plan.IntelMPI:
		return hosts.Intel
	}
	return hosts.OpenMPI
}

// maxInput bounds every file that somebody else wrote.
const maxInput = 16 << 20

func readInput(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("reading %q: larger than %d bytes", path, maxInput)
	}
	return text, err
}

func readJobHosts(path string, d hosts.Dialect) (hosts.Allocation, error) {
	text, err := readInput(path)
	if err != nil {
		return hosts.Allocation{}, err
	}
	alloc, err := hosts.ParseHostfile(text, d)
	if err != nil {
		return alloc, fmt.Errorf("read %q: %w", path, err)
	}
	return alloc, nil
}

// local reports whether every rank runs on this machine.
func (a *app) local(alloc hosts.Allocation) bool {
	if len(alloc.Hosts) != 1 || alloc.Manager != "" {
		return false
	}
	name := alloc.Hosts[0].Name
	if name == "localhost" || name == "127.0.0.1" || name == "::1" || alloc.Source == "localhost" {
		return true
	}
	self, err := os.Hostname()
	if err != nil {
		return false
	}
	short, _, _ := strings.Cut(self, ".")
	return name == self || name == short
}

// probed is what a launcher says of itself.
type probed struct {
	path     string // where PATH leads
	resolved string // after all links
	version  string // its version text; "" it did not answer
}

// probeTimeout bounds a launcher's answer to --version.
const probeTimeout = 5 * time.Second

// maxVersionText is more than any launcher prints for --version: Hydra's
// answer lists its configure line.
const maxVersionText = 64 << 10

// probeLauncher finds the program and asks a launcher for its version, once
// per file: the answer is kept by path, size and time.
func (a *app) probeLauncher(ctx context.Context, argv []string) (probed, error) {
	if a.from != "" {
		return probed{}, nil
	}
	path, _ := a.getenv("PATH")
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	file, err := launcher.LookPath(argv[0], path, dir)
	if err != nil {
		return probed{}, startError(argv[0], err)
	}
	p := probed{path: file, resolved: file}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		p.resolved = real
	}
	if !plan.AsksVersion(argv) {
		return p, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return p, startError(argv[0], err)
	}
	cached := a.probeCache(fmt.Sprintf("%s %s %d %d", file, p.resolved, info.Size(), info.ModTime().UnixNano()))
	if cached != "" {
		if text, err := os.ReadFile(cached); err == nil {
			p.version = string(text)
			return p, nil
		}
	}
	p.version = askVersion(ctx, file, argv[0], a.env)
	if cached != "" && p.version != "" {
		// A cache that cannot be written costs the question again.
		//nolint:errcheck // as said
		_ = writeAtomic(cached, p.version)
	}
	return p, nil
}

// askVersion runs "LAUNCHER --version". It tolerates every failure: srun
// without a configuration prints an error, and a launcher that hangs is left.
func askVersion(ctx context.Context, file, name string, env []string) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, file, "--version")
	c.Args[0], c.Env = name, env
	c.WaitDelay = time.Second
	var out limited
	c.Stdout, c.Stderr = &out, &out
	//nolint:errcheck // the text decides, whatever the status
	_ = c.Run()
	return string(out)
}

// limited keeps the first maxVersionText bytes.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	if room := maxVersionText - len(*l); room > 0 {
		*l = append(*l, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// probeCache is the file that keeps a launcher's answer; "" where there is no
// place for it.
func (a *app) probeCache(key string) string {
	base, _ := a.getenv("XDG_CACHE_HOME")
	if base == "" {
		home, _ := a.getenv("HOME")
		if home == "" {
			return ""
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(base, "fabrun", "launcher-"+hex.EncodeToString(sum[:12]))
}

// writeAtomic writes a small file of the user's own so that nobody sees half of it.
func writeAtomic(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, werr := f.WriteString(text)
	if err := errors.Join(werr, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// startError is a program that cannot be started, with the status that a shell
// would give.
func startError(name string, err error) error {
	code := launcher.StatusNotExecutable
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = launcher.StatusNotFound
		if plan.AsksVersion([]string{name}) {
			hint = "install an MPI, or load its module (module avail, module load openmpi), so that " + name + " is in PATH"
		}
		err = fmt.Errorf("%s: not found in PATH", name)
		if strings.Contains(name, "/") {
			err = fmt.Errorf("%s: no such file", name)
		}
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%s: not executable", name)
		hint = "chmod +x " + name
	}
	return &exitError{Code: code, Err: err, Hint: hint}
}
