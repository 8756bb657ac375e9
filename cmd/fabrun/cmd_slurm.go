package main

import (
	"context"
	"slices"
	"strings"

	"fabrun/launcher/slurm"

	"github.com/spf13/cobra"
)

func newSlurmCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "slurm",
		Short: "What Slurm's prolog, epilog, task prolog and health check call",
		Long: `The doors through which Slurm calls fabrun on a compute node. prolog, epilog and
health run as root: they read /etc/fabrun only, never the user's environment or
files, and keep what they know under /var/lib/fabrun. A mistake of fabrun's own
is never a reason to drain a node: it is said on standard error and in the system's
log (/dev/log: syslog or the journal, tag "fabrun"), and the exit status is 0.
selftest tries profile, directory, log and scontrol, and what slurm.conf calls.

Exit status: 0, but for prolog, which exits 1 for a certain fault of the node.`,
		Example: `  Prolog=/etc/slurm/prolog.sh                # fabrun slurm prolog --profile NAME; [ $? -ne 1 ]
  TaskProlog=/etc/slurm/task-prolog.sh       # fabrun slurm task-prolog; exit 0
  HealthCheckProgram=/etc/slurm/health.sh    # fabrun slurm health; exit 0
  fabrun slurm selftest --profile NAME`,
	}
	c.AddCommand(newSlurmPrologCmd(a), newSlurmEpilogCmd(a), newSlurmTaskPrologCmd(a), newSlurmHealthCmd(a), newSlurmSelftestCmd(a))
	return c
}

// slurmDoor makes a command of Slurm's, which leaves with 0 whatever goes wrong
// inside fabrun, wrong flags included.
func slurmDoor(a *app, c *cobra.Command, n *slurm.Node, work func(n slurm.Node, ctx context.Context) error) *cobra.Command {
	n.Call = &a.Call
	c.Args = func(*cobra.Command, []string) error { return nil }
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		n.WrongCall(c.Name(), err)
		return nil
	})
	c.Flags().DurationVar(&n.Deadline, "deadline", slurm.Deadline, "give up after this `time`, with exit status 0")
	c.Flags().StringVar(&n.Syslog, "syslog", slurm.SyslogSocket, "say everything to this syslog `socket` too; '' to none")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return n.Door(c.Context(), c.Name(), func(ctx context.Context) error { return work(*n, ctx) })
	}
	return c
}

// nodeFlags are the flags of what looks at a node as root. Of the environment it
// takes Slurm's words and the language: every other name may be a job's, and
// lead to files of its user's.
func nodeFlags(a *app, c *cobra.Command, n *slurm.Node) {
	c.PreRun = func(*cobra.Command, []string) {
		a.Env = slices.DeleteFunc(slices.Clone(a.Env), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return !strings.HasPrefix(name, "SLURM") && !strings.HasPrefix(name, "LC_") && name != "LANG"
		})
	}
	f := c.Flags()
	f.StringVar(&n.State, "state", slurm.State, "keep records and the baseline in this `directory`, which only root can write")
	f.StringVar(&n.Name, "node", "", "the node's `name` (otherwise SLURMD_NODENAME, or the host's)")
	f.IntVar(&n.Ports, "ports", 0, "how `many` active fabric ports the node has when it is healthy")
}

func newSlurmPrologCmd(a *app) *cobra.Command {
	var n slurm.Node
	c := &cobra.Command{
		Use:   "prolog",
		Short: "At job start: is this node's fabric as it was?",
		Long: `Called by Slurm's Prolog on each node: look at this node alone, within a bounded
time. Certain faults are a port that carried the fabric before and is down or
slower now, fewer ports than --ports, and missing device nodes; what else the
rules find is reported and fails nothing. The first good look is remembered as
the baseline (baseline.json in the state directory: remove it after a planned
change). A good result is reused for --cache.

Slurm drains a node whose Prolog fails, with the reason "Prolog error", and holds
the job, unless slurm.conf has SchedulerParameters=nohold_on_prolog_fail: then it
runs elsewhere at once. scontrol is not called here, as Slurm's manual asks; the
fault is noted, and 'fabrun slurm health' gives the node its real reason.

Exit status: 0; 1 for a certain fault of the node; 0 for any trouble of fabrun's own.`,
		Example: "  fabrun slurm prolog --profile roce-dscp26 --ports 8",
	}
	nodeFlags(a, c, &n)
	c.Flags().DurationVar(&n.Cache, "cache", slurm.Cache, "reuse a good result that is younger than this `time`")
	return slurmDoor(a, c, &n, slurm.Node.Prolog)
}

func newSlurmEpilogCmd(a *app) *cobra.Command {
	var n slurm.Node
	c := &cobra.Command{
		Use:   "epilog",
		Short: "At job end: what did this node's ports do for the job?",
		Long: `Called by Slurm's Epilog on each node: compare the ports' counters with those that
the prolog took, and leave the difference as a record in the state directory
(jobs/ID.json; the last 500 are kept).

Exit status: 0, always.`,
		Example: "  fabrun slurm epilog",
	}
	nodeFlags(a, c, &n)
	return slurmDoor(a, c, &n, slurm.Node.Epilog)
}

func newSlurmHealthCmd(a *app) *cobra.Command {
	var n slurm.Node
	c := &cobra.Command{
		Use:   "health",
		Short: "Between jobs: drain this node for a fault, resume it after",
		Long: `Called as Slurm's HealthCheckProgram: drain this node for a certain fault (see
'fabrun slurm prolog'), with a reason that begins with "fabrun:", and resume it
after two good looks. A node that Slurm drained because 'fabrun slurm prolog'
failed ("Prolog error") is given the fault as its reason, and resumed likewise.
A node that somebody else drained, or whose reason somebody else wrote, is left
alone.

Exit status: 0, always.`,
		Example: "  fabrun slurm health --profile roce-dscp26 --ports 8",
	}
	nodeFlags(a, c, &n)
	c.Flags().StringVar(&n.Scontrol, "scontrol", "", "the scontrol `program` (otherwise where Slurm's packages put it)")
	return slurmDoor(a, c, &n, slurm.Node.Health)
}

func newSlurmTaskPrologCmd(a *app) *cobra.Command {
	var n slurm.Node
	c := &cobra.Command{
		Use:   "task-prolog",
		Short: "For each task: its node's variables, as Slurm's TaskProlog wants them",
		Long: `Called by Slurm's TaskProlog (or srun --task-prolog), as the user: print this
node's and this task's variables as lines "export NAME=value", bare and without
quotes, and what the user has to know as "print TEXT" once per node. Variables
that the job has set are left alone. The program is not known here: what a
program without UCX or without the right libfabric provider would fail with
(OMPI_MCA_pml, UCX_NET_DEVICES, FI_PROVIDER) is left to 'fabrun run', or to the
profile's [env].

Exit status: 0, always: any other cancels the task.`,
		Example: "  fabrun slurm task-prolog --profile roce-dscp26",
	}
	return slurmDoor(a, c, &n, slurm.Node.TaskProlog)
}

func newSlurmSelftestCmd(a *app) *cobra.Command {
	var n slurm.Node
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Do profile, paths and logs work on this node?",
		Long: `Try what prolog, epilog, health and task-prolog need on this node, as root: the
profile, the state directory, the system's log, scontrol, what slurm.conf calls,
and one look at this node. Nothing is changed but one line in the log.

Exit status: 0 when all of it works, 1 when something does not, 2 usage.`,
		Example: "  fabrun slurm selftest --profile roce-dscp26 --ports 8",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n.Call = &a.Call
			return n.Selftest(c.Context())
		},
	}
	nodeFlags(a, c, &n)
	c.Flags().StringVar(&n.Scontrol, "scontrol", "", "the scontrol `program` (otherwise where Slurm's packages put it)")
	c.Flags().StringVar(&n.Syslog, "syslog", slurm.SyslogSocket, "the syslog `socket`")
	c.Flags().DurationVar(&n.Deadline, "deadline", slurm.Deadline, "the doors' deadline, within which a look has to end")
	return c
}
