package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

type watchOptions struct {
	strict bool
}

func newWatchCmd(a *app) *cobra.Command {
	var opts watchOptions
	c := &cobra.Command{
		Use:   "watch [FILE...]",
		Short: "Read logs of a job and say what carried its data",
		Long: `Read what NCCL, UCX and MPI printed, from files or standard input, and say what
carried the job's data: which network and devices, GPUDirect or not, a fallback
to TCP and its cause. Lines of launchers, other ranks and the program itself may
stand in between. Several files are logs of one job.

What a log does not show is unknown (null in --json), never guessed.

Exit status: 0; with --strict 1 for a fallback that nobody asked for, or a fatal
error; 1 also when a file cannot be read; 2 for a wrong call.`,
		Example: `  fabrun watch slurm-4711.out
  fabrun watch --json /dev/shm/nccl.*.log
  mpirun -np 8 ./a.out 2>&1 | fabrun watch --strict`,
		RunE: func(c *cobra.Command, args []string) error { return runWatch(c.Context(), a, opts, args) },
	}
	c.Flags().BoolVar(&opts.strict, "strict", false, "exit 1 for a fallback that nobody asked for, or a fatal error")
	return c
}

func runWatch(ctx context.Context, a *app, opts watchOptions, files []string) error {
	w := watch.New(watch.Options{})
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if err := readLog(ctx, a, w, name); err != nil {
			return withHint(err, "give a log file, or pipe the job's output into 'fabrun watch'")
		}
	}
	v := w.Verdict()
	if err := writeVerdict(a, v); err != nil {
		return err
	}
	if opts.strict && (v.Fallback != nil && *v.Fallback && !v.Intentional || len(v.FatalErrors) > 0) {
		return errFindings
	}
	return nil
}

func writeVerdict(a *app, v watch.Verdict) error {
	if !a.json {
		return report.Watch(a.stdout, v)
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
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
		_, err := w.Source(name).ReadFrom(a.stdin)
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
