package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

type watchOptions struct {
	strict   bool
	follow   string
	counters bool
	keep     bool
	mkdir    bool
	pairs    bool
	patterns []string
	shared   bool
	job      string
	devices  []string
	direct   bool
	ranks    time.Duration
	ras      bool
}

// promise is what the caller says that the job should have.
func (o watchOptions) promise() watch.Promise {
	p := watch.Promise{GPUDirect: o.direct}
	if len(o.devices) > 0 {
		p.Devices = map[string][]string{"": o.devices}
	}
	return p
}

// isEye reports whether the verb is the eye of a node.
func (o watchOptions) isEye() bool { return o.follow != "" || o.counters || len(o.patterns) > 0 }

func newWatchCmd(a *app) *cobra.Command {
	var opts watchOptions
	c := &cobra.Command{
		Use:   "watch [FILE...]",
		Short: "Read logs of a job and say what carried its data",
		Long: `Read what NCCL, UCX and MPI printed, from files or standard input, and say what
carried the job's data: which network and devices, GPUDirect or not, a fallback
to TCP and its cause. Lines of launchers, other ranks and the program itself may
stand in between. Several files are logs of one job.

Of standard input, warnings and errors are said on stderr as they come; the verdict
comes at its end.

What a log does not show is unknown (null in --json), never guessed. Of several runs
in one log (a restart, a benchmark in a loop) each has its verdict ("runs" in --json);
that of the document, and the exit status, is the last one's.

With --follow, --pattern or --counters it is the eye of one node of a running job:
it reads the log files of a directory or pattern as they grow, and the node's RDMA and network
counters, and writes what it sees as JSON lines until its standard input ends.

Exit status: 0; with --strict 1 for a fallback that nobody asked for, a fatal
error, or less than --expect-devices and --expect-gpudirect name; 1 also when a file cannot be read; 2 for a wrong call.`,
		Example: `  fabrun watch slurm-4711.out
  fabrun watch --json /dev/shm/nccl.*.log
  mpirun -np 8 ./a.out 2>&1 | fabrun watch --strict`,
		RunE: func(c *cobra.Command, args []string) error { return runWatch(c.Context(), a, opts, args) },
	}
	c.Flags().BoolVar(&opts.strict, "strict", false, "exit 1 for a fallback that nobody asked for, or a fatal error")
	c.Flags().BoolVar(&opts.pairs, "pairs", false, "with --json: also what carries each pair of ranks")
	c.Flags().StringSliceVar(&opts.devices, "expect-devices", nil, "warn where NCCL uses fewer than these `devices` (mlx5_0:1,mlx5_1:1)")
	c.Flags().BoolVar(&opts.direct, "expect-gpudirect", false, "warn where a GPU's data goes through the host's memory")
	c.Flags().StringVar(&opts.follow, "follow", "", "be the eye of this node: follow the files in this `directory`")
	c.Flags().BoolVar(&opts.counters, "counters", false, "be the eye of this node: read its counters")
	c.Flags().StringArrayVar(&opts.patterns, "pattern", nil, "be the eye of this node: follow the files of this NCCL_DEBUG_FILE or UCX_LOG_FILE `pattern` that come or grow")
	c.Flags().BoolVar(&opts.shared, "shared", false, "with --pattern: also where several nodes see the same files and their names hold no host (%h)")
	c.Flags().StringVar(&opts.job, "job", "", "as the eye: at the word \"end\" on standard input end what is left here of the job with this `mark`")
	c.Flags().DurationVar(&opts.ranks, "ranks", 0, "as the eye: look every so often at what the ranks of the job with the --job mark do")
	c.Flags().BoolVar(&opts.ras, "ras", false, "with --ranks: ask NCCL's RAS as well, when they seem to stand still")
	c.Flags().BoolVar(&opts.keep, "keep", false, "with --follow: leave what was read in the files, and write it out at the end")
	c.Flags().BoolVar(&opts.mkdir, "make", false, "with --follow: make the directory, and remove it at the end")
	return c
}

func runWatch(ctx context.Context, a *app, opts watchOptions, files []string) error {
	if opts.isEye() {
		return runEye(ctx, a, opts, files)
	}
	if opts.keep || opts.mkdir || opts.job != "" || opts.ranks != 0 || opts.ras {
		return exit.UsageError(errors.New("--keep, --make, --job, --ranks and --ras belong to --follow and --counters"), "")
	}
	if opts.shared {
		return exit.UsageError(errors.New("--shared belongs to --pattern"), "")
	}
	if len(files) == 0 {
		files = []string{"-"}
	}
	cfg := watch.Options{Pairs: opts.pairs, Known: watch.Known{Promise: opts.promise()}}
	if slices.Contains(files, "-") {
		cfg.OnEvent = a.asItHappens // a pipe may have no end for days
	}
	w := watch.New(cfg)
	for _, name := range files {
		if err := readLog(ctx, a, w, name); err != nil {
			return exit.WithHint(err, "give a log file, or pipe the job's output into 'fabrun watch'")
		}
	}
	v := w.Verdict()
	v.Events = append(v.Events, bugsOfLog(v)...)
	if err := writeVerdict(a, v); err != nil {
		return err
	}
	less := slices.ContainsFunc(v.Events, watch.Event.BreaksPlan)
	if opts.strict && (v.Fallback != nil && *v.Fallback && !v.Intentional || len(v.FatalErrors) > 0 || less) {
		return exit.ErrFindings
	}
	return nil
}

// asItHappens says an event on stderr.
func (a *app) asItHappens(e watch.Event) {
	if e.Severity != watch.SeverityNote && (!a.Quiet || e.Severity == watch.SeverityError) {
		fmt.Fprintf(a.Own(), "%s\n", report.EventLine(e))
	}
}

func writeVerdict(a *app, v watch.Verdict) error {
	if !a.JSON {
		return report.Watch(a.Stdout, v)
	}
	return report.WatchJSON(a.Stdout, v)
}

// readLog reads one file, or standard input for "-", to its end. An interrupt
// ends standard input: what was read so far is judged.
func readLog(ctx context.Context, a *app, w *watch.Watcher, name string) error {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		//nolint:errcheck // opened for reading
		defer f.Close()
		if _, err := w.Source(name).ReadFrom(f); err != nil {
			return fmt.Errorf("read log %q: %w", name, err)
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.Source(name).ReadFrom(a.Stdin)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read standard input: %w", err)
		}
	case <-ctx.Done():
	}
	return nil
}

// runEye streams what this node shows of a running job, as the lines of a
// record, until standard input ends: the session that started it is its life.
func runEye(ctx context.Context, a *app, opts watchOptions, files []string) error {
	if opts.follow == "" && (opts.keep || opts.mkdir) {
		return exit.UsageError(errors.New("--keep and --make belong to --follow"), "")
	}
	if len(files) > 0 {
		return exit.UsageError(errors.New("--follow, --pattern and --counters read no other files"), "")
	}
	if opts.mkdir {
		launcher.SweepRunDirs(append(launcher.RunDirBases(cmdline.Value(a.Env, "TMPDIR")), filepath.Dir(opts.follow)))
		switch d, err := launcher.OpenRunDir(opts.follow); {
		case err == nil:
			defer d.Remove()
		case errors.Is(err, fs.ErrExist):
			// The nodes share this file system: the head has made it, reads it
			// and removes it.
			opts.follow, opts.keep = "", false
		default:
			return fmt.Errorf("--make: %w", err)
		}
		opts.mkdir = false
	}
	if info, err := os.Stat(opts.follow); opts.follow != "" && (err != nil || !info.IsDir()) {
		return exit.WithHint(fmt.Errorf("--follow %q is no directory", opts.follow), "the run directory is made by 'fabrun run'")
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	follow := eyes.Following{Dir: opts.follow, Keep: opts.keep}
	for _, p := range opts.patterns {
		if !filepath.IsAbs(p) {
			return exit.UsageError(fmt.Errorf("--pattern %q is no absolute path", p), "")
		}
		// On a shared file system each node reads its own processes' files.
		if shared, _ := launcher.SharedLogs(p); shared {
			if !strings.Contains(p, "%h") && !opts.shared {
				continue
			}
			p = eyes.ForHost(p, host)
		}
		follow.Patterns = append(follow.Patterns, p)
	}
	follow.Census() // before it is said that this eye is open: then the ranks start
	rec := report.NewRecorder(a.Stdout, time.Now, report.RecordStart{Host: host, Version: buildVersion(), Command: []string{}, Hosts: []string{host}})
	cfg := eyes.Config{
		Host: host, Follow: follow, Pairs: opts.pairs, Known: watch.Known{Promise: opts.promise()},
		OnEvent: rec.Event, OnSample: rec.Sample, Relay: rec.Relay, OnQuiet: rec.Quiet,
	}
	if opts.counters {
		cfg.Meter = eyes.NewMeter(host).WithGPUs(a.Helper())
	}
	if opts.ranks > 0 && opts.job != "" {
		var gpus func() *float64
		if cfg.Meter != nil {
			gpus = cfg.Meter.GPUUse
		}
		cfg.Ranks, cfg.Every, cfg.OnLook = eyes.NewRanks(host, opts.job, opts.devices, opts.ras, gpus), opts.ranks, rec.Look
	}
	node := eyes.NewNode(cfg)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan bool, 1) // whether the job has
	go func() {
		defer cancel()
		last := ""
		in := bufio.NewScanner(a.Stdin) // any end of the input is the end
		for in.Scan() {
			last = in.Text() + "\n"
		}
		ended <- last == eyes.JobEnded
	}()
	node.Run(ctx)
	rec.Verdict(node.Watcher().Verdict())
	err = rec.Exit(report.RecordExit{})
	select {
	case over := <-ended:
		if over && opts.job != "" {
			launcher.EndMarked(opts.job)
		}
	default: // told to end by a signal
	}
	// After that: nobody writes to them any more.
	if opts.keep && opts.follow != "" {
		if err := eyes.EachLog(opts.follow, rec.Log); err != nil {
			fmt.Fprintf(a.Own(), "keeping the logs of %s: %v\n", host, err)
		}
	}
	if err != nil {
		return fmt.Errorf("writing what was seen: %w", err)
	}
	return nil
}
