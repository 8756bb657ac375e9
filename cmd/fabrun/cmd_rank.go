package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/hosts"
	"fabrun/launcher/job"
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
	job.OutliveReaders()
	if o.stay {
		return a.Stay()
	}
	if len(args) == 0 {
		return &exit.Error{Code: exit.RunUsage, Err: errors.New("no program to become"), Hint: "fabrun rank -- ./a.out"}
	}
	note := func(text string) { fmt.Fprintf(a.Own(), "rank: %s\n", text) }
	text := o.table
	if text == "" {
		text, _ = a.Getenv(plan.TableName)
	}
	var t plan.RankTable
	if text != "" {
		var err error
		if t, err = plan.DecodeRankTable(text); err != nil {
			// The job is worth more than what this would have set.
			note(err.Error())
		}
	}
	f := plan.RankFacts{Env: a.Env, HostNames: a.hostNames()}
	if len(t.Classes) > 0 {
		if mask, err := launcher.Mask(); err == nil {
			f.Mask, f.Effective = mask, launcher.EffectiveCPUs()
		}
		if visible, _ := a.Getenv("CUDA_VISIBLE_DEVICES"); strings.Contains(visible, "GPU-") {
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
	env := slices.DeleteFunc(slices.Clone(a.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == plan.TableName || slices.ContainsFunc(d.Vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	env = append(env, d.Vars...)
	path, _ := a.Getenv("PATH")
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	file, err := launcher.LookPath(args[0], path, dir)
	if err != nil {
		return job.StartError(args[0], err)
	}
	return job.StartError(args[0], launcher.Become(d, file, args, env, note))
}

// hostNames is what this host may be called in a plan.
func (a *app) hostNames() []string {
	var out []string
	for _, s := range hosts.Schedulers {
		if v, ok := a.Getenv(s.NodeName); s.NodeName != "" && ok && v != "" {
			out = append(out, v)
		}
	}
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}
	return out
}
