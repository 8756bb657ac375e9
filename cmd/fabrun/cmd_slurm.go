package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/hosts"
	"fabrun/launcher/job"
	"fabrun/launcher/preflight"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

type slurmOptions struct {
	state    string
	node     string
	ports    int
	cache    time.Duration
	deadline time.Duration
	scontrol string
	syslog   string
}

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

// Defaults of the doors. Slurm gives a prolog MessageTimeout (10 s) in good
// manners, and kills a health check after 60 s.
const (
	slurmState    = "/var/lib/fabrun"
	slurmProfiles = "/etc/fabrun/profiles"
	slurmDeadline = 5 * time.Second
	slurmCache    = time.Minute
)

// slurmDoor makes a command of Slurm's: whatever goes wrong inside fabrun,
// wrong flags included, is said on standard error and leaves with 0, since
// every other status drains a node or cancels a task.
func slurmDoor(a *app, c *cobra.Command, o *slurmOptions, run func(ctx context.Context) error) *cobra.Command {
	c.Args = func(*cobra.Command, []string) error { return nil }
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		defer a.slurmLog(c, *o)()
		a.slurmOwnFault(err)
		return nil
	})
	c.Flags().DurationVar(&o.deadline, "deadline", slurmDeadline, "give up after this `time`, with exit status 0")
	c.Flags().StringVar(&o.syslog, "syslog", syslogSocket, "say everything to this syslog `socket` too; '' to none")
	c.RunE = func(c *cobra.Command, _ []string) error {
		defer a.slurmLog(c, *o)()
		ctx, cancel := context.WithTimeout(c.Context(), o.deadline)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					done <- fmt.Errorf("internal error: %v", p)
				}
			}()
			done <- run(ctx)
		}()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			err = fmt.Errorf("gave up after %v", o.deadline)
		}
		if errors.Is(err, errNodeFault) {
			return exit.ErrFindings
		}
		if err != nil {
			a.slurmOwnFault(err)
		}
		return nil
	}
	return c
}

// slurmLog lets everything that is said on standard error be said in the
// system's log too, until the function that it returns is called.
func (a *app) slurmLog(c *cobra.Command, o slurmOptions) func() {
	about := "slurm " + c.Name()
	if job := a.slurmJob(); job != "" {
		about += ": job " + job
	}
	stderr, log := a.Stderr, openSystemLog(o.syslog, about)
	a.Stderr = both{stderr, log}
	return func() {
		a.Stderr = stderr
		log.close()
	}
}

// errNodeFault says that the node, and not fabrun, is at fault. What there was
// to say has been said.
var errNodeFault = errors.New("fault of the node")

func (a *app) slurmOwnFault(err error) {
	fmt.Fprintf(a.Stderr, "fabrun: %v\n        this is fabrun's own trouble, not the node's: exit status 0\n", err)
}

// nodeFlags are the flags of what looks at a node as root. Of the environment it
// takes Slurm's words and the language: every other name may be a job's, and
// lead to files of its user's.
func nodeFlags(a *app, c *cobra.Command, o *slurmOptions) {
	c.PreRun = func(*cobra.Command, []string) {
		a.Env = slices.DeleteFunc(slices.Clone(a.Env), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return !strings.HasPrefix(name, "SLURM") && !strings.HasPrefix(name, "LC_") && name != "LANG"
		})
	}
	f := c.Flags()
	f.StringVar(&o.state, "state", slurmState, "keep records and the baseline in this `directory`, which only root can write")
	f.StringVar(&o.node, "node", "", "the node's `name` (otherwise SLURMD_NODENAME, or the host's)")
	f.IntVar(&o.ports, "ports", 0, "how `many` active fabric ports the node has when it is healthy")
}

func newSlurmPrologCmd(a *app) *cobra.Command {
	var o slurmOptions
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
	nodeFlags(a, c, &o)
	c.Flags().DurationVar(&o.cache, "cache", slurmCache, "reuse a good result that is younger than this `time`")
	return slurmDoor(a, c, &o, func(ctx context.Context) error { return runSlurmProlog(ctx, a, o) })
}

func runSlurmProlog(ctx context.Context, a *app, o slurmOptions) error {
	store, err := a.openNodeStore(o.state)
	if err != nil {
		// Without a place to remember, the node can still be looked at.
		a.slurmOwnFault(err)
	}
	job := a.slurmJob()
	if job != "" {
		defer store.saveJob(job, report.NodeJob{Job: job, Started: time.Now(), First: eyes.NewMeter(a.slurmNode(o)).Look(time.Now(), true)}, a.Stderr)
	}
	key := fmt.Sprintf("%s %s %d", buildVersion(), a.Profile, o.ports)
	if store.cachedGood(key, o.cache, time.Now()) {
		return nil
	}
	look, err := a.lookAtNode(ctx, o, store)
	if err != nil {
		return err
	}
	for _, f := range look.notes {
		fmt.Fprintf(a.Stderr, "fabrun: %s: %s %s: %s\n", f.Severity, f.ID, f.Subject, f.Seen)
	}
	if len(look.faults) == 0 {
		store.saveCache(key, time.Now(), a.Stderr)
		store.forget(faultFile)
		return nil
	}
	store.saveFault(faultReason(look.faults), a.Stderr)
	fmt.Fprintf(a.Stderr, "fabrun: %s: %s\n", a.slurmNode(o), faultReason(look.faults))
	for _, f := range look.faults {
		fmt.Fprintf(a.Stderr, "fabrun: %s: %s: %s, wanted %s\n        %s\n", f.ID, f.Subject, f.Seen, f.Wanted, f.Hint)
	}
	return errNodeFault
}

func newSlurmEpilogCmd(a *app) *cobra.Command {
	var o slurmOptions
	c := &cobra.Command{
		Use:   "epilog",
		Short: "At job end: what did this node's ports do for the job?",
		Long: `Called by Slurm's Epilog on each node: compare the ports' counters with those that
the prolog took, and leave the difference as a record in the state directory
(jobs/ID.json; the last 500 are kept).

Exit status: 0, always.`,
		Example: "  fabrun slurm epilog",
	}
	nodeFlags(a, c, &o)
	return slurmDoor(a, c, &o, func(ctx context.Context) error { return runSlurmEpilog(ctx, a, o) })
}

func runSlurmEpilog(_ context.Context, a *app, o slurmOptions) error {
	job := a.slurmJob()
	if job == "" {
		return errors.New("SLURM_JOB_ID names no job")
	}
	store, err := openNodeStore(o.state)
	if err != nil {
		return err
	}
	rec, err := store.loadJob(job)
	if err != nil {
		return fmt.Errorf("what the prolog noted of job %s: %w", job, err)
	}
	now := time.Now()
	last := eyes.NewMeter(a.slurmNode(o)).Look(now, true)
	traffic := watch.Traffic(rec.First, last, nil)
	verdict := watch.JudgeCounters(watch.CounterJob{Hosts: []string{last.Host}}, []watch.HostTraffic{traffic})
	rec.Ended, rec.Traffic, rec.Events = &now, &traffic, verdict.Events
	for _, e := range rec.Events {
		fmt.Fprintf(a.Stderr, "fabrun: job %s: %s: %s\n", job, e.Severity, e.Text)
	}
	store.saveJob(job, rec, a.Stderr)
	return nil
}

func newSlurmHealthCmd(a *app) *cobra.Command {
	var o slurmOptions
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
	nodeFlags(a, c, &o)
	c.Flags().StringVar(&o.scontrol, "scontrol", "", "the scontrol `program` (otherwise where Slurm's packages put it)")
	return slurmDoor(a, c, &o, func(ctx context.Context) error { return runSlurmHealth(ctx, a, o) })
}

func runSlurmHealth(ctx context.Context, a *app, o slurmOptions) error {
	store, err := a.openNodeStore(o.state)
	if err != nil {
		return err
	}
	look, err := a.lookAtNode(ctx, o, store)
	if err != nil {
		return err
	}
	if a.From != "" {
		if len(look.faults) > 0 {
			fmt.Fprintf(a.Stderr, "fabrun: %s: %s\n        it is a snapshot: this node is left as it is\n", a.From, faultReason(look.faults))
		}
		return nil
	}
	scontrol, err := findScontrol(o.scontrol)
	if err != nil {
		return err
	}
	node := a.slurmNode(o)
	if !plainNode(node) {
		return fmt.Errorf("%q is no node name", node)
	}
	out, err := exec.CommandContext(ctx, scontrol, "--oneliner", "show", "node", node).Output()
	if err != nil {
		return fmt.Errorf("%s show node %s: %w", scontrol, node, err)
	}
	good := store.countGood(len(look.faults) == 0, a.Stderr)
	state, noted := parseNodeState(string(out)), store.fault()
	var args []string
	action := decideHealth(state, noted, look.faults, good)
	switch action {
	case healthDrain:
		args = []string{"update", "NodeName=" + node, "State=DRAIN", "Reason=" + cmp.Or(faultReason(look.faults), noted)}
	case healthResume:
		args = []string{"update", "NodeName=" + node, "State=RESUME"}
	default:
		return nil
	}
	fmt.Fprintf(a.Stderr, "fabrun: scontrol %s\n", strings.Join(args, " "))
	if text, err := exec.CommandContext(ctx, scontrol, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", scontrol, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	store.forget(faultFile)
	return nil
}

// scontrolPlaces is where packages put it: a health check has no PATH.
var scontrolPlaces = []string{"/usr/bin/scontrol", "/usr/local/bin/scontrol", "/opt/slurm/bin/scontrol", "/usr/local/slurm/bin/scontrol", "/cm/shared/apps/slurm/current/bin/scontrol"}

func findScontrol(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	for _, p := range scontrolPlaces {
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("no scontrol in %s; name it by --scontrol", strings.Join(scontrolPlaces, ", "))
}

// slurmJob is the job's number, "" where there is none that can name a file.
func (a *app) slurmJob() string {
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		if v, ok := a.Getenv(name); ok && v != "" && len(v) < 20 && strings.Trim(v, "0123456789") == "" {
			return v
		}
	}
	return ""
}

func (a *app) slurmNode(o slurmOptions) string {
	if o.node != "" {
		return o.node
	}
	if v, ok := a.Getenv("SLURMD_NODENAME"); ok && plainNode(v) {
		return v
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// plainNode reports whether a name can be handed to scontrol.
func plainNode(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// nodeLook is what one look at this node says.
type nodeLook struct {
	faults []finding.Finding // certain: reasons to take the node out
	notes  []finding.Finding // everything else of severity warning or error
	ports  int               // active on the fabric
}

// lookAtNode judges this node by /etc/fabrun alone and remembers its ports.
func (a *app) lookAtNode(ctx context.Context, o slurmOptions, store *nodeStore) (nodeLook, error) {
	var p profiles.Profile
	if a.Profile != "" {
		var err error
		if p, err = profiles.Load(profiles.Dirs{slurmProfiles}, a.Profile); err != nil {
			return nodeLook{}, err
		}
	}
	h, err := a.Host(ctx)
	if err != nil {
		return nodeLook{}, err
	}
	res := envgen.Compute(envgen.Input{Hosts: []topology.Host{h}, Profile: p})
	now := fabricPorts(h, res)
	base := store.baseline()
	look := nodeLook{faults: nodeFaults(base, now, h, p, o.ports)}
	var ports []string
	for _, s := range now {
		if s.Active {
			ports = append(ports, s.Port)
		}
	}
	look.ports = len(ports)
	for _, f := range preflight.HostFindings(h, p, preflight.Job{Ports: ports}) {
		// The limits are this daemon's, not a job's.
		if f.Severity != finding.Note && !strings.HasPrefix(f.ID, "limits.") {
			look.notes = append(look.notes, f)
		}
	}
	if len(look.faults) == 0 {
		store.saveBaseline(base, now, a.Stderr)
	}
	return look, nil
}

func newSlurmTaskPrologCmd(a *app) *cobra.Command {
	var o slurmOptions
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
	return slurmDoor(a, c, &o, func(ctx context.Context) error { return runSlurmTaskProlog(ctx, a) })
}

func runSlurmTaskProlog(ctx context.Context, a *app) error {
	var out bytes.Buffer
	p, w, err := a.Profiles(job.Sight{})
	if err != nil {
		return err
	}
	h, err := a.Host(ctx)
	if err != nil {
		return err
	}
	// The settings are the task's own, also when the node is looked at through --from.
	settings := cmdline.Settings(a.Env)
	res := envgen.Compute(envgen.Input{Hosts: []topology.Host{h}, Profile: p, Workload: w, Job: envgen.Job{Settings: settings}})
	if len(res.Hosts) == 0 {
		return nil
	}
	vars := slices.Clone(res.Hosts[0].Vars)
	if local, size := a.envNumber("SLURM_LOCALID"), a.tasksHere(); local != nil && size != nil {
		for _, mine := range envgen.RankVars(&h, res.Hosts[0], envgen.Rank{Local: *local, Size: *size}) {
			if i := slices.IndexFunc(vars, func(v envgen.Var) bool { return v.Name == mine.Name }); i >= 0 {
				vars[i] = mine
			}
		}
	}
	marker := cmdline.ParseMarker(a.Env)
	var set []string
	for _, v := range vars {
		// What the job has set stays, whoever set it but an outer fabrun.
		if old, ok := a.Getenv(v.Name); ok && !slices.Contains(marker.Vars, v.Name+"="+old) {
			continue
		}
		if v.Origin == envgen.FromSite || v.Origin == envgen.FromImage || hardGate(v) {
			continue
		}
		// One at a time: a value that the protocol cannot carry must not cost the others.
		if err := report.Env(&out, []envgen.Var{v}, "slurm"); err != nil {
			out.WriteString(taskPrint("fabrun: " + err.Error()))
			continue
		}
		set = append(set, v.Name+"="+v.Value)
	}
	if len(set) > 0 {
		m := envgen.Var{Name: cmdline.MarkerName, Value: cmdline.Marker{Dialect: "slurm", Vars: set}.String()}
		if err := report.Env(&out, []envgen.Var{m}, "slurm"); err != nil {
			return err
		}
	}
	if local := a.envNumber("SLURM_LOCALID"); local == nil || *local == 0 {
		for _, f := range res.Findings {
			if f.Severity == finding.Error {
				out.WriteString(taskPrint(fmt.Sprintf("fabrun: %s: %s %s. %s", a.slurmNode(slurmOptions{}), f.Subject, f.Seen, f.Hint)))
			}
		}
	}
	_, err = io.Copy(a.Stdout, &out)
	return err
}

// hardGate reports whether a variable would break a program that works without
// it: one whose MPI has no UCX component, whose UCX has no verbs, whose libfabric
// lacks the provider. A task prolog has not seen the program. What a profile's
// [env] says is the site's own word.
func hardGate(v envgen.Var) bool {
	return v.Origin == envgen.FromPlan && (strings.HasPrefix(v.Rule, "gate.") || v.Rule == "hca.ucx-devices")
}

// tasksHere is how many tasks of the step this node runs; nil unknown.
func (a *app) tasksHere() *int {
	text, _ := a.Getenv("SLURM_STEP_TASKS_PER_NODE")
	counts, err := hosts.ParseRunLengths(text)
	node := a.envNumber("SLURM_NODEID")
	if err != nil || node == nil || *node >= len(counts) {
		return nil
	}
	return &counts[*node]
}

func (a *app) envNumber(name string) *int {
	v, ok := a.Getenv(name)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}
