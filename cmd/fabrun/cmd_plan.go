package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/launcher/exit"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

func newPlanCmd(a *app) *cobra.Command {
	var o job.Options
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
	jobFlags(c.Flags(), &o)
	a.withEnvFlag(c.Flags())
	return c
}

// withEnvFlag is for verbs that replay a decision.
func (a *app) withEnvFlag(f *pflag.FlagSet) {
	f.BoolVar(&a.WithEnv, "with-env", false, "with --from: what is set for NCCL, UCX and MPI in this shell counts too, before the snapshot's own")
}

func runPlan(ctx context.Context, a *app, o job.Options, args []string) error {
	todo, err := a.Plan(ctx, o, args)
	if err != nil {
		return err
	}
	p := todo.Plan
	if a.JSON {
		err = report.PlanJSON(a.Stdout, p)
	} else {
		err = report.Plan(a.Stdout, p, a.Verbose)
	}
	if worst, ok := finding.Worst(p.Findings); err == nil && ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return err
}
