package job

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

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

// RunOptions are what run is told of a job.
type RunOptions struct {
	Options
	Record string // the file of the record; "" none
	// Metrics is the file of the metrics; "" none.
	Metrics string
}

// recordVariable is the variable that stands for --record.
const recordVariable = "FABRUN_RECORD"

// Run is the whole pipeline for one job: look, decide, check, start, watch, report.
func (a *Call) Run(ctx context.Context, o RunOptions, args []string) error {
	a.reached = &reached{}
	defer a.reached.close()
	if node, _, ok := hosts.OwnStep(a.Getenv); ok && node > 0 {
		a.Follower = true // one fabrun per node: node 0 speaks
	}
	todo, err := a.ready(ctx, o, args)
	if err != nil {
		return err
	}
	p := todo.Plan
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
	job.sessions, job.spec.Within = todo.torch != nil, o.Spread.Grace
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
	exit.ChildTakesSignals(ctx, true)
	astray := lookAstray(p, &job, endJob)
	var st launcher.Status
	if todo.torch != nil {
		st, err = a.runNodes(ctx, todo.torch, job, o.Options, seen)
	} else {
		var alias *launcher.RunDir
		if job.spec.Env, alias, err = a.rankAlias(job.spec.Env); err == nil {
			st, err = launcher.Run(ctx, job.spec)
			alias.Remove()
		}
	}
	exit.ChildTakesSignals(ctx, false)
	broken := ""
	seen.Finish(st, func(r eyes.Result) {
		if broken = r.Broken; err == nil {
			a.sayResult(p, st, r)
		}
	})
	if broken != "" {
		return &exit.Error{Code: exit.Contract, Err: errors.New(broken)}
	}
	if lost := astray.err(); lost != nil {
		return lost
	}
	return ended(st, err, todo, args[0])
}

// ready is what comes before the start: the plan, what is measured, and what
// --strict asks of both.
func (a *Call) ready(ctx context.Context, o RunOptions, args []string) (Planned, error) {
	todo, err := a.Plan(ctx, o.Options, args)
	if told := exit.Interrupted(ctx); told != nil {
		return todo, told
	}
	if err != nil {
		return todo, runFailure(err)
	}
	err = a.preflightPairs(ctx, o, &todo.Plan)
	if told := exit.Interrupted(ctx); told != nil {
		return todo, told
	}
	if err != nil {
		return todo, runFailure(err)
	}
	a.Progress.Clear()
	a.sayPlan(todo.Plan)
	return todo, a.preflightGate(o, todo.Plan)
}

// ended is a run's error: the status of its child, or why there was none.
func ended(st launcher.Status, err error, todo Planned, name string) error {
	if err != nil && todo.torch != nil {
		if e := (*exit.Error)(nil); errors.As(err, &e) {
			return e
		}
		return &exit.Error{Code: exit.Internal, Err: err}
	}
	if err != nil {
		return StartError(name, err)
	}
	if st.Code == 0 {
		return nil
	}
	return &exit.Error{Code: st.Code}
}

// OutliveReaders keeps fabrun alive where nobody reads its standard error any
// more: by itself the runtime ends a program then, with a status that is not the
// job's. The job gets the signal as without fabrun. What the caller ignores stays
// ignored, here and in the job.
func OutliveReaders() {
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
func (a *Call) sayPlan(p plan.Plan) {
	if a.JSON {
		return // it is part of the result
	}
	own := a.Own()
	var err error
	switch {
	case a.Verbose && !a.Quiet:
		err = report.Plan(own, p, false)
	default:
		if !a.Quiet && !a.Follower && !nothingToSay(p) {
			fmt.Fprintf(own, "%s\n", report.PlanSentence(p))
		}
		err = report.Findings(own, slices.DeleteFunc(slices.Clone(p.Findings), func(f finding.Finding) bool {
			return f.Severity == finding.Note || f.Severity != finding.Error && (a.Quiet || a.Follower)
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
func (a *Call) sayEnd(p plan.Plan, st launcher.Status) {
	if a.JSON || st.Code == 0 {
		return
	}
	fmt.Fprintf(a.Own(), "%s\n", endOf(p, st))
}

// endOf is how a job that failed ended.
func endOf(p plan.Plan, st launcher.Status) string {
	name := filepath.Base(p.Words()[0])
	switch by := exit.SignalName(st.Told); {
	case st.Told != 0 && st.Told == st.Signal:
		return fmt.Sprintf("%s was ended by %s: status %d", name, by, st.Code)
	case st.Told != 0:
		return fmt.Sprintf("%s was told to end by %s, and left with status %d", name, by, st.Code)
	case st.Signal != 0:
		return fmt.Sprintf("%s was ended by %s: status %d", name, exit.SignalName(st.Signal), st.Code)
	}
	return fmt.Sprintf("%s failed with status %d", name, st.Code)
}

// sayVerdict says the last line of a run. Of a serial program that is done, and of
// a failure on one host, there is nothing to tell that its user could use.
func (a *Call) sayVerdict(sentence string, p plan.Plan) {
	bad := strings.HasPrefix(sentence, "FALLBACK")
	none := nothingToSay(p) && !a.Verbose
	switch {
	case a.Quiet && !bad, none && strings.HasPrefix(sentence, "Not judged: "):
	case none && p.Dialect.Alone && strings.HasPrefix(sentence, "Done: "):
		fmt.Fprintf(a.Own(), "Done.\n")
	default:
		fmt.Fprintf(a.Own(), "%s\n", sentence)
	}
}

// sayResult says at the end of a run what it has shown. For programs that is one
// line of JSON, the last on standard error, since standard output is the job's.
func (a *Call) sayResult(p plan.Plan, st launcher.Status, r eyes.Result) {
	a.sayEnd(p, st)
	// A fabrun around this one says the verdict of the whole job.
	outer := a.Follower || cmdline.ParseMarker(a.Env).Planned() && r.Verdict.Library == ""
	switch {
	case outer && !strings.HasPrefix(r.Sentence, "FALLBACK"):
	case a.JSON:
		//nolint:errcheck // a closed stderr is no reason to change the job's status
		_ = report.RunJSON(a.Stderr, report.RunResult{Status: st.Code, Signal: int(st.Signal), WallS: r.WallS, Sentence: r.Sentence, Verdict: r.Verdict, Counters: r.Counters, Kept: r.Kept, Plan: p})
	default:
		a.sayVerdict(r.Sentence, p)
	}
	if !outer && (st.Code != 0 || !nothingToSay(p)) {
		a.Ending = r.Sentence
		if st.Code != 0 {
			a.Ending = endOf(p, st) + ". " + r.Sentence
		}
	}
}

// watchJob prepares the eyes for a job that is about to start.
func (a *Call) watchJob(p plan.Plan, job *preparedJob, o RunOptions, end context.CancelFunc) (*eyes.Job, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	return eyes.WatchJob(eyes.JobConfig{
		Plan: p, Mark: job.spec.Mark, Env: job.spec.Env, Dir: job.dir, WorkDir: dir, Stdout: a.Stdout, Stderr: a.Stderr, Sessions: job.sessions,
		Record: o.Record, Metrics: o.Metrics, Version: a.Version, GPUs: a.Helper(), Say: a.Own(), Quiet: a.Quiet, Verbose: a.Verbose, End: end, Strict: o.Strict,
		Hang: o.Hang,
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
func (a *Call) prepare(p plan.Plan) (preparedJob, error) {
	var j preparedJob
	words := p.Words()
	mark := launcher.NewMark()
	launcher.SweepRunDirs(launcher.RunDirBases(cmdline.Value(a.Env, "TMPDIR")))
	if needsRunDir(p) {
		var err error
		if j.private, err = launcher.MakeRunDir(launcher.RunDirBases(cmdline.Value(a.Env, "TMPDIR")), mark); err != nil {
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
		if err := makeShims(filepath.Join(j.dir, "bin"), p.Shims, a.Self()); err != nil {
			j.close()
			return preparedJob{}, err
		}
	}
	for i := range p.Argv {
		if p.Argv[i].Origin != envgen.FromUser {
			words[i] = strings.ReplaceAll(words[i], plan.RunDir, j.dir)
		}
	}
	env := slices.DeleteFunc(slices.Clone(a.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		// A fabrun that the job itself starts must not write into this one's record.
		return name == recordVariable || slices.Contains(p.Unset, name) || slices.ContainsFunc(p.Env, func(v envgen.Var) bool { return v.Name == name })
	})
	for _, v := range p.Env {
		env = append(env, v.Name+"="+strings.ReplaceAll(v.Value, plan.RunDir, j.dir))
	}
	path, _ := a.Getenv("PATH")
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	file, err := launcher.LookPath(words[0], path, dir)
	if err != nil {
		j.close()
		return j, StartError(words[0], err)
	}
	j.spec = launcher.Spec{
		Path: file, Argv: words, Env: env, Stdin: asFile(a.Stdin), Stdout: asFile(a.Stdout), Stderr: asFile(a.Stderr),
		Terminal: terminalUse(a.Stdout),
		Ranks:    !p.Dialect.Alone,
		Guard:    true,
		Mark:     mark,
		Dir:      j.dir,
		Note:     func(text string) { fmt.Fprintf(a.Own(), "%s\n", text) },
	}
	if a.Verbose {
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

// asFile returns the file behind a stream, which the child then inherits; nil
// stands for the process's own.
func asFile(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	return f
}
