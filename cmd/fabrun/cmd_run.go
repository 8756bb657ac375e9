package main

import (
	"context"

	"fabrun/launcher/job"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newRunCmd(a *app) *cobra.Command {
	var o job.RunOptions
	c := &cobra.Command{
		Use:   "run [flags] [--] CMD…",
		Short: "Run a job on the fabric, and say what it really used",
		Long: `Look at the machines, choose what makes the job use the RDMA fabric, start it,
watch it, and say at the end what really happened. 'fabrun mpirun …' is short
for 'fabrun run -- mpirun …'. The job's own output is never edited. The last line
on stderr is the verdict in one sentence, unless --quiet is given: "No fallback",
"FALLBACK to TCP", or why there is nothing to judge. Where the job failed, the
line before it says with which status. With --json that last line is the result
as one JSON object (fabrun/run/v1): standard output stays the job's. Every line
of fabrun's own on stderr begins with "fabrun:".

INT and TERM go to the child, and its status counts, as without fabrun: Open MPI
leaves with 1, MPICH with the signal's number. torchrun on several nodes gets them
on each, once, and its workers have torchrun's own time to save what they do. When fabrun is killed outright
(kill -9), its guard ends the job on this host within five seconds.

A job that stands still is named within thirty seconds: which rank on which host
is stopped, stuck in the kernel, or waits elsewhere than the others, by what moves
on its ports and connections, by what its processes do, and with --ras by what
NCCL says (2.28.7 or newer); what torch's flight recorder writes is read, too. A
job that computes without communicating is none. --hang-after sets the time;
nothing is ended for it unless --strict-hang asks.

Each flag can be given as a variable, which counts where the flag is not given,
for run, plan and env:

` + variableList() + `.

In an image with ENTRYPOINT ["fabrun", "run", "--"] flags may stand before the
program all the same: 'podman run IMAGE --strict torchrun …'.

Exit status: the child's own; 128+n when signal n ended it, or fabrun before the
child was started; 126 not executable; 127 not found. fabrun's own: 120 internal failure, 121 the plan did not hold
(--strict), 122 preflight failed (--strict), 123 no plan possible, 125 usage.`,
		Example: `  fabrun run -- mpirun -np 96 simpleFoam -parallel
  fabrun --hosts 'gpu[01-04]' torchrun --nproc-per-node 8 train.py`,
		RunE: func(c *cobra.Command, args []string) error { return runRun(c.Context(), a, o, args) },
	}
	c.Flags().SetInterspersed(false)
	runFlags(c.Flags(), &o)
	return c
}

func runFlags(f *pflag.FlagSet, o *job.RunOptions) {
	jobFlags(f, &o.Options)
	f.StringVar(&o.Record, "record", "", "record plan, events and counters in this `file` (see 'fabrun report'), and keep the libraries' logs in FILE.logs")
	f.StringVar(&o.Metrics, "metrics", "", "write transport, rails, bytes, pauses and events to this `file` in the text format of OpenMetrics, while the job runs and at its end")
}

func runRun(ctx context.Context, a *app, o job.RunOptions, args []string) error {
	job.OutliveReaders()
	a.sayStrays()
	a.Progress = a.newProgress()
	return a.Run(ctx, o, args)
}
