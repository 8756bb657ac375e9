package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

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

// ofNode reports whether the verb shows one node of a running job.
func (o watchOptions) ofNode() bool { return o.follow != "" || o.counters || len(o.patterns) > 0 }

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

With --follow, --pattern or --counters it shows one node of a running job:
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
	c.Flags().StringVar(&opts.follow, "follow", "", "show this node of a running job: follow the files in this `directory`")
	c.Flags().BoolVar(&opts.counters, "counters", false, "show this node of a running job: read its counters")
	c.Flags().StringArrayVar(&opts.patterns, "pattern", nil, "show this node of a running job: follow the files of this NCCL_DEBUG_FILE or UCX_LOG_FILE `pattern` that come or grow")
	c.Flags().BoolVar(&opts.shared, "shared", false, "with --pattern: also where several nodes see the same files and their names hold no host (%h)")
	c.Flags().StringVar(&opts.job, "job", "", "of a running job: at the word \"end\" on standard input end what is left here of the job with this `mark`")
	c.Flags().DurationVar(&opts.ranks, "ranks", 0, "of a running job: look every so often at what the ranks of the job with the --job mark do")
	c.Flags().BoolVar(&opts.ras, "ras", false, "with --ranks: ask NCCL's RAS as well, when they seem to stand still")
	c.Flags().BoolVar(&opts.keep, "keep", false, "with --follow: leave what was read in the files, and write it out at the end")
	c.Flags().BoolVar(&opts.mkdir, "make", false, "with --follow: make the directory, and remove it at the end")
	return c
}

func runWatch(ctx context.Context, a *app, opts watchOptions, files []string) error {
	if opts.ofNode() {
		return streamNode(ctx, a, opts, files)
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

// streamNode is the verb where it shows one node of a running job.
func streamNode(ctx context.Context, a *app, o watchOptions, files []string) error {
	if o.follow == "" && (o.keep || o.mkdir) {
		return exit.UsageError(errors.New("--keep and --make belong to --follow"), "")
	}
	if len(files) > 0 {
		return exit.UsageError(errors.New("--follow, --pattern and --counters read no other files"), "")
	}
	for _, p := range o.patterns {
		if !filepath.IsAbs(p) {
			return exit.UsageError(fmt.Errorf("--pattern %q is no absolute path", p), "")
		}
	}
	return eyes.Stream(ctx, eyes.StreamConfig{
		Dir: o.follow, Keep: o.keep, Make: o.mkdir, Patterns: o.patterns, Shared: o.shared, Counters: o.counters, Pairs: o.pairs, Job: o.job,
		Promise: o.promise(), Devices: o.devices, Ranks: o.ranks, RAS: o.ras,
		GPUs: a.Helper(), Temp: cmdline.Value(a.Env, "TMPDIR"), Version: buildVersion(), Say: a.Own(),
	}, a.Stdin, a.Stdout)
}
