package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

type runOptions struct {
	jobOptions
	record string
}

func newRunCmd(a *app) *cobra.Command {
	var o runOptions
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
	o.addFlags(c.Flags())
	return c
}

func (o *runOptions) addFlags(f *pflag.FlagSet) {
	o.jobOptions.addFlags(f)
	f.StringVar(&o.record, "record", "", "record plan, events and counters in this `file` (see 'fabrun report'), and keep the libraries' logs in FILE.logs")
}

func runRun(ctx context.Context, a *app, o runOptions, args []string) error {
	outliveReaders()
	a.sayStrays()
	a.reached = &reached{}
	defer a.reached.close()
	if node, ok := ordinaryStep(a.env); ok && node > 0 {
		a.follower = true // one fabrun per node: node 0 speaks
	}
	a.progress = a.newProgress()
	todo, err := a.planJob(ctx, o.jobOptions, args)
	if told := exit.Interrupted(ctx); told != nil {
		return told
	}
	if err != nil {
		return runFailure(err)
	}
	err = a.preflightPairs(ctx, o, &todo.Plan)
	if told := exit.Interrupted(ctx); told != nil {
		return told
	}
	if err != nil {
		return runFailure(err)
	}
	a.progress.Clear()
	p := todo.Plan
	a.sayPlan(p)
	if err := a.preflightGate(o, p); err != nil {
		return err
	}
	job, err := a.prepare(p)
	if err != nil {
		var e *exit.Error
		if errors.As(err, &e) {
			return e
		}
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	defer job.close()
	jobCtx, endJob := context.WithCancel(context.WithoutCancel(ctx))
	defer endJob()
	job.sessions, job.spec.Within = todo.torch != nil, o.spread.grace
	seen, err := a.watchJob(p, &job, o, endJob)
	if err != nil {
		return err
	}
	seen.Open(ctx, a.reached.nodes(), p, job.dir)
	if told := exit.Interrupted(ctx); told != nil {
		seen.Finish(launcher.Status{}, func(eyes.Result) {})
		return told
	}
	// From here on signals are the child's: it ends the job, and its status counts.
	// One that came before anybody took over ends the job here.
	told, started := ctx, job.spec.Started
	job.spec.Started = func(pid int) {
		if started != nil {
			started(pid)
		}
		if told.Err() != nil {
			endJob()
		}
	}
	ctx = jobCtx
	childTakesSignals(ctx, true)
	astray := lookAstray(p, &job, endJob)
	var st launcher.Status
	if todo.torch != nil {
		st, err = a.runNodes(ctx, todo.torch, job, o.jobOptions, seen)
	} else {
		var alias *launcher.RunDir
		if job.spec.Env, alias, err = a.rankAlias(job.spec.Env); err == nil {
			st, err = launcher.Run(ctx, job.spec)
			alias.Remove()
		}
	}
	childTakesSignals(ctx, false)
	broken := ""
	seen.Finish(st, func(r eyes.Result) {
		if broken = r.Broken; err == nil {
			a.sayResult(p, st, r)
		}
	})
	if broken != "" {
		return &exit.Error{Code: exit.Contract, Err: fmt.Errorf("--strict ended the job: %s", broken)}
	}
	if lost := astray.err(); lost != nil {
		return lost
	}
	if err != nil && todo.torch != nil {
		if e := (*exit.Error)(nil); errors.As(err, &e) {
			return e
		}
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	if err != nil {
		return startError(args[0], err)
	}
	if st.Code == 0 {
		return nil
	}
	return &exit.Error{Code: st.Code}
}

// outliveReaders keeps fabrun alive where nobody reads its standard error any
// more: by itself the runtime ends a program then, with a status that is not the
// job's. The job gets the signal as without fabrun. What the caller ignores stays
// ignored, here and in the job.
func outliveReaders() {
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
}

// runFailure gives a failure before the start run's own status: what is the
// machine's or the site's fault is "no plan possible".
func runFailure(err error) error {
	var e *exit.Error
	if !errors.As(err, &e) {
		return &exit.Error{Code: exit.NoPlan, Err: err}
	}
	if e.Code == exit.Findings {
		return &exit.Error{Code: exit.NoPlan, Err: e.Err, Hint: e.Hint}
	}
	return err
}

// sayPlan says on stderr what will be done: one line, and what is wrong.
func (a *app) sayPlan(p plan.Plan) {
	if a.json {
		return // it is part of the result
	}
	own := a.own()
	var err error
	switch {
	case a.verbose && !a.quiet:
		err = report.Plan(own, p, false)
	default:
		if !a.quiet && !a.follower && !nothingToSay(p) {
			fmt.Fprintf(own, "%s\n", report.PlanSentence(p))
		}
		err = report.Findings(own, slices.DeleteFunc(slices.Clone(p.Findings), func(f finding.Finding) bool {
			return f.Severity == finding.Note || f.Severity != finding.Error && (a.quiet || a.follower)
		}))
	}
	//nolint:errcheck // a closed stderr is no reason not to run the job
	_ = err
}

// nothingToSay reports whether a job is none of fabrun's affair, as far as is
// known: a serial program, or ranks of one host, for which nothing was set.
func nothingToSay(p plan.Plan) bool {
	if rdma := p.HasRDMA(); rdma == nil || *rdma || len(p.Env) > 0 || len(p.Hosts.Hosts) > 1 || p.Hosts.Manager != "" || p.OneOf() > 0 {
		return false
	}
	return p.Dialect.Alone || len(p.Hosts.Hosts) == 1 && p.Dialect.Reads()
}

// sayEnd says how a job failed; the verdict follows.
func (a *app) sayEnd(p plan.Plan, st launcher.Status) {
	if a.json || st.Code == 0 {
		return
	}
	name, own := filepath.Base(p.Words()[0]), a.own()
	switch by := exit.SignalName(st.Told); {
	case st.Told != 0 && st.Told == st.Signal:
		fmt.Fprintf(own, "%s was ended by %s: status %d\n", name, by, st.Code)
	case st.Told != 0:
		fmt.Fprintf(own, "%s was told to end by %s, and left with status %d\n", name, by, st.Code)
	case st.Signal != 0:
		fmt.Fprintf(own, "%s was ended by %s: status %d\n", name, exit.SignalName(st.Signal), st.Code)
	default:
		fmt.Fprintf(own, "%s failed with status %d\n", name, st.Code)
	}
}

// sayVerdict says the last line of a run. Of a serial program that is done, and of
// a failure on one host, there is nothing to tell that its user could use.
func (a *app) sayVerdict(sentence string, p plan.Plan) {
	bad := strings.HasPrefix(sentence, "FALLBACK")
	none := nothingToSay(p) && !a.verbose
	switch {
	case a.quiet && !bad, none && strings.HasPrefix(sentence, "Not judged: "):
	case none && p.Dialect.Alone && strings.HasPrefix(sentence, "Done: "):
		fmt.Fprintf(a.own(), "Done.\n")
	default:
		fmt.Fprintf(a.own(), "%s\n", sentence)
	}
}

// sayResult says at the end of a run what it has shown. For programs that is one
// line of JSON, the last on standard error, since standard output is the job's.
func (a *app) sayResult(p plan.Plan, st launcher.Status, r eyes.Result) {
	a.sayEnd(p, st)
	// A fabrun around this one says the verdict of the whole job.
	outer := a.follower || cmdline.ParseMarker(a.env).Planned() && r.Verdict.Library == ""
	switch {
	case outer && !strings.HasPrefix(r.Sentence, "FALLBACK"):
	case a.json:
		//nolint:errcheck // a closed stderr is no reason to change the job's status
		_ = report.RunJSON(a.stderr, report.RunResult{Status: st.Code, Signal: int(st.Signal), WallS: r.WallS, Sentence: r.Sentence, Verdict: r.Verdict, Counters: r.Counters, Plan: p})
	default:
		a.sayVerdict(r.Sentence, p)
	}
}

// watchJob prepares the eyes for a job that is about to start.
func (a *app) watchJob(p plan.Plan, job *preparedJob, o runOptions, end context.CancelFunc) (*eyes.Job, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	return eyes.WatchJob(eyes.JobConfig{
		Plan: p, Mark: job.spec.Mark, Env: job.spec.Env, Dir: job.dir, WorkDir: dir, Stdout: a.stdout, Stderr: a.stderr, Sessions: job.sessions,
		Record: o.record, Version: buildVersion(), GPUs: a.nvmlHelper(), Say: a.own(), Quiet: a.quiet, Verbose: a.verbose, End: end, Strict: o.strict,
	}, &job.spec)
}

// preparedJob is a plan with everything in place that it needs.
type preparedJob struct {
	spec    launcher.Spec
	dir     string // private run directory; "" not needed
	private *launcher.RunDir
	// sessions: the job's streams come from sessions on its nodes.
	sessions bool
}

func (j preparedJob) close() { j.private.Remove() }

// prepare makes the run directory, where the plan needs one, and the child's
// argv and environment.
func (a *app) prepare(p plan.Plan) (preparedJob, error) {
	var j preparedJob
	words := p.Words()
	mark := launcher.NewMark()
	launcher.SweepRunDirs(a.runDirBases())
	if needsRunDir(p) {
		var err error
		if j.private, err = launcher.MakeRunDir(a.runDirBases(), mark); err != nil {
			return j, err
		}
		dir := j.private.Path
		j.dir = dir
		for _, f := range p.Files {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Name)), []byte(strings.ReplaceAll(f.Content, plan.RunDir, dir)), 0o600); err != nil {
				j.close()
				return j, fmt.Errorf("writing the plan's files: %w", err)
			}
		}
	}
	if len(p.Shims) > 0 {
		if err := makeShims(filepath.Join(j.dir, "bin"), p.Shims, a.self()); err != nil {
			j.close()
			return preparedJob{}, err
		}
	}
	for i := range p.Argv {
		if p.Argv[i].Origin != envgen.FromUser {
			words[i] = strings.ReplaceAll(words[i], plan.RunDir, j.dir)
		}
	}
	env := slices.DeleteFunc(slices.Clone(a.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		// A fabrun that the job itself starts must not write into this one's record.
		return name == flagVariable("record") || slices.Contains(p.Unset, name) || slices.ContainsFunc(p.Env, func(v envgen.Var) bool { return v.Name == name })
	})
	for _, v := range p.Env {
		env = append(env, v.Name+"="+strings.ReplaceAll(v.Value, plan.RunDir, j.dir))
	}
	path, _ := a.getenv("PATH")
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	file, err := launcher.LookPath(words[0], path, dir)
	if err != nil {
		j.close()
		return j, startError(words[0], err)
	}
	j.spec = launcher.Spec{
		Path: file, Argv: words, Env: env, Stdin: asFile(a.stdin), Stdout: asFile(a.stdout), Stderr: asFile(a.stderr),
		Terminal: terminalUse(a.stdout),
		Ranks:    !p.Dialect.Alone,
		Guard:    true,
		Mark:     mark,
		Dir:      j.dir,
		Note:     func(text string) { fmt.Fprintf(a.own(), "%s\n", text) },
	}
	if a.verbose {
		j.spec.Detail = j.spec.Note
	}
	return j, nil
}

// terminalUse leaves the terminal to the others of a pipeline.
func terminalUse(stdout any) launcher.TerminalUse {
	if f := asFile(stdout); f != nil {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			return launcher.TerminalOnDemand
		}
	}
	return launcher.TerminalAtOnce
}

// makeShims makes links to this program under other programs' names.
func makeShims(dir string, names []string, self string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the launchers' shims: %w", err)
	}
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("making the launchers' shims: %w", err)
		}
	}
	return nil
}

func needsRunDir(p plan.Plan) bool {
	return len(p.Files) > 0 ||
		slices.ContainsFunc(p.Env, func(v envgen.Var) bool { return strings.Contains(v.Value, plan.RunDir) }) ||
		slices.ContainsFunc(p.Argv, func(w plan.Arg) bool { return w.Origin != envgen.FromUser && strings.Contains(w.Text, plan.RunDir) })
}

// runDirBases are where the private directory of a run may lie: in memory where
// there is room, else where temporary files go.
func (a *app) runDirBases() []string {
	tmp, _ := a.getenv("TMPDIR")
	out := []string{"/dev/shm"}
	for _, base := range []string{tmp, "/tmp"} {
		if base = filepath.Clean(base); filepath.IsAbs(base) && !slices.Contains(out, base) {
			out = append(out, base)
		}
	}
	return out
}

// asFile returns the file behind a stream, which the child then inherits; nil
// stands for the process's own.
func asFile(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	return f
}
