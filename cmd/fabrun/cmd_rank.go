package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
)

type rankOptions struct {
	table string
	stay  bool
}

func newRankCmd(a *app) *cobra.Command {
	var o rankOptions
	c := &cobra.Command{
		Use:   "rank [--] CMD…",
		Short: "Set what differs per node and rank, bind, and become the program",
		Long: `Started once per rank by the launcher, where the plan says so: set the variables
that differ per node or rank, raise the memlock limit to the hard one, bind to
the NUMA node of the rank's GPU or slot where the launcher left the rank unbound,
prefer memory there, and become CMD. No process stays between launcher and
program.

With --stay it is what fabrun starts on a node itself: standard input says what
to run and which signals to hand on; it stays beside that program, and ends
whatever that has left on the node, on every way out.

Exit status: CMD's own; 126 it is not executable; 127 it is not there; 125 usage.`,
		Example: "  mpirun -np 8 fabrun rank -- ./a.out",
		RunE:    func(_ *cobra.Command, args []string) error { return runRank(a, o, args) },
	}
	c.Flags().SetInterspersed(false)
	c.Flags().BoolVar(&o.stay, "stay", false, "run the job of one node, as standard input says")
	c.Flags().StringVar(&o.table, "table", "", "what differs, as the plan wrote it (otherwise from "+plan.TableName+")")
	return c
}

func runRank(a *app, o rankOptions, args []string) error {
	outliveReaders()
	if o.stay {
		return a.stay()
	}
	if len(args) == 0 {
		return &exit.Error{Code: exit.RunUsage, Err: errors.New("no program to become"), Hint: "fabrun rank -- ./a.out"}
	}
	outliveReaders()
	note := func(text string) { fmt.Fprintf(a.own(), "rank: %s\n", text) }
	text := o.table
	if text == "" {
		text, _ = a.getenv(plan.TableName)
	}
	var t plan.RankTable
	if text != "" {
		var err error
		if t, err = plan.DecodeRankTable(text); err != nil {
			// The job is worth more than what this would have set.
			note(err.Error())
		}
	}
	f := plan.RankFacts{Env: a.env, HostNames: a.hostNames()}
	if len(t.Classes) > 0 {
		if mask, err := launcher.Mask(); err == nil {
			f.Mask, f.Effective = mask, launcher.EffectiveCPUs()
		}
		if visible, _ := a.getenv("CUDA_VISIBLE_DEVICES"); strings.Contains(visible, "GPU-") {
			f.GPUs = launcher.GPUUUIDs("/proc")
		}
	}
	d := t.Decide(f)
	if d.Stranger {
		note(fmt.Sprintf("this host (%s) is not in the plan: what differs per node is not set", strings.Join(f.HostNames, ", ")))
	}
	if t.Dir != "" {
		if err := os.MkdirAll(t.Dir, 0o700); err != nil {
			note(fmt.Sprintf("no private log here: %v", err))
		}
	}
	env := slices.DeleteFunc(slices.Clone(a.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == plan.TableName || slices.ContainsFunc(d.Vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	env = append(env, d.Vars...)
	path, _ := a.getenv("PATH")
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	file, err := launcher.LookPath(args[0], path, dir)
	if err != nil {
		return startError(args[0], err)
	}
	return startError(args[0], launcher.Become(d, file, args, env, note))
}

// stay runs the job of one node to its end, as standard input says, and hands on
// the signals that come there. When that ends, so does the job.
func (a *app) stay() error {
	in := bufio.NewReader(a.stdin)
	job, err := launcher.ReadNodeJob(in)
	if err != nil {
		return &exit.Error{Code: exit.RunUsage, Err: err, Hint: "fabrun itself starts 'fabrun rank --stay', on each node"}
	}
	env := job.Carry.OnNode(job.Env, a.env, isDirectory)
	path, _ := lookupEnv(env, "PATH")
	if job.Dir != "" && !isDirectory(job.Dir) {
		return &exit.Error{Code: launcher.StatusNotExecutable, Err: fmt.Errorf("%s: no such directory on this node", job.Dir), Hint: "have it on a file system that all nodes share"}
	}
	file, err := launcher.LookPath(job.Argv[0], path, job.Dir)
	if err != nil {
		return startError(job.Argv[0], err)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(job.Dir, file)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	//nolint:errcheck // opened for reading
	defer null.Close()
	env, alias, err := a.rankAlias(env)
	if err != nil {
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	defer alias.Remove()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	signals := make(chan syscall.Signal)
	go func() {
		launcher.Orders(in, func(sig syscall.Signal) {
			select {
			case signals <- sig:
			case <-ctx.Done():
			}
		})
		end()
	}()
	st, err := launcher.Run(ctx, launcher.Spec{
		Path: file, Argv: job.Argv, Env: env, WorkDir: job.Dir, Stdin: null, Stdout: asFile(a.stdout), Stderr: asFile(a.stderr),
		Ranks: true, Guard: true, Mark: job.Mark, Signals: signals,
	})
	if err != nil {
		return startError(job.Argv[0], err)
	}
	if st.Code == 0 {
		return nil
	}
	return &exit.Error{Code: st.Code}
}

// rankAlias puts this program first in PATH under the name that torchrun calls.
func (a *app) rankAlias(env []string) ([]string, *launcher.RunDir, error) {
	name, ok := lookupEnv(env, plan.AsName)
	if !ok || filepath.Base(name) != name {
		return env, nil, nil
	}
	d, err := launcher.MakeRunDir(a.runDirBases(), launcher.NewMark())
	if err != nil {
		return nil, nil, err
	}
	if err := os.Symlink(a.self(), filepath.Join(d.Path, name)); err != nil {
		d.Remove()
		return nil, nil, fmt.Errorf("giving fabrun rank the script's name: %w", err)
	}
	path, _ := lookupEnv(env, "PATH")
	return withPath(env, d.Path+":"+path), d, nil
}

// withPath is the environment with another PATH.
func withPath(env []string, path string) []string {
	return append(slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }), "PATH="+path)
}

// asRank turns a call under the name that torchrun calls into fabrun rank, and
// takes back what that name took.
func (a *app) asRank() ([]string, bool) {
	name, ok := a.getenv(plan.AsName)
	if !ok || len(a.args) == 0 || name == "" || filepath.Base(a.args[0]) != name {
		return nil, false
	}
	path, _ := a.getenv("PATH")
	if first, rest, ok := strings.Cut(path, ":"); ok {
		if to, err := os.Readlink(filepath.Join(first, name)); err == nil && to == a.self() {
			path = rest
		}
	}
	env := slices.DeleteFunc(slices.Clone(a.env), func(kv string) bool { return strings.HasPrefix(kv, plan.AsName+"=") })
	a.env = withPath(env, path)
	return slices.Concat([]string{"rank", "--"}, a.args[1:]), true
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// hostNames is what this host may be called in a plan.
func (a *app) hostNames() []string {
	var out []string
	for _, name := range []string{"SLURMD_NODENAME", "FLUX_HOSTNAME"} {
		if v, ok := a.getenv(name); ok && v != "" {
			out = append(out, v)
		}
	}
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}
	return out
}
