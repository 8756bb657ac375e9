package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/launcher/exit"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

func (o *jobOptions) addFlags(f *pflag.FlagSet) {
	f.Var((*named)(&o.hosts), "hosts", "the job's hosts: a `list` like 'node[01-12]', 'n1:8,n2:8', addresses")
	f.Var((*named)(&o.hostfile), "hostfile", "read the job's hosts from this `file`")
	f.Var((*named)(&o.topology), "topology", "order the hosts by switch or block as this `file` says (topology.conf, topology.yaml, topograph)")
	f.BoolVar(&o.strict, "strict", false, "RDMA or nothing: refuse to start, or end the job, when the plan does not hold")
	f.StringVar(&o.nccl, "nccl-version", "", "NCCL's `version` in the job, where it is not the one found on the hosts")
	f.StringVar(&o.ucx, "ucx-version", "", "UCX's `version` in the job, likewise")
	o.preflightFlags(f)
	o.nodes.addFlags(f)
	o.spread.addFlags(f)
}

func newPlanCmd(a *app) *cobra.Command {
	var o jobOptions
	c := &cobra.Command{
		Use:   "plan [flags] [--] CMD…",
		Short: "Print exactly what run would do",
		Long: `Print exactly what run would do, and do nothing: the command line, every
variable with its reason, the hostfile, what differs per node, and findings.

Exit status: 0 a plan; 1 a plan with errors among its findings, or no plan
could be made; 2 wrong usage; 126 the program is not executable; 127 it is not
there.`,
		Example: `  fabrun plan -- mpirun -np 96 simpleFoam -parallel
  fabrun plan --from host.snap --hosts 'n[1-12]' -- mpirun -np 12 hostname`,
		RunE: func(c *cobra.Command, args []string) error { return runPlan(c.Context(), a, o, args) },
	}
	c.Flags().SetInterspersed(false)
	o.addFlags(c.Flags())
	a.withEnvFlag(c.Flags())
	return c
}

// withEnvFlag is for verbs that replay a decision.
func (a *app) withEnvFlag(f *pflag.FlagSet) {
	f.BoolVar(&a.withEnv, "with-env", false, "with --from: what is set for NCCL, UCX and MPI in this shell counts too, before the snapshot's own")
}

func runPlan(ctx context.Context, a *app, o jobOptions, args []string) error {
	todo, err := a.planJob(ctx, o, args)
	if err != nil {
		return err
	}
	p := todo.Plan
	if a.json {
		err = report.PlanJSON(a.stdout, p)
	} else {
		err = report.Plan(a.stdout, p, a.verbose)
	}
	if worst, ok := finding.Worst(p.Findings); err == nil && ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return err
}
