package main

import (
	"bytes"
	"context"
	"io/fs"

	"github.com/spf13/cobra"

	"fabrun/launcher/files"
	"fabrun/launcher/look"
	"fabrun/launcher/report"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/live"
)

type snapshotOptions struct {
	output      string
	quick       bool
	counters    bool
	programs    []string
	directories []string
	libraryPath string
}

func newSnapshotCmd(a *app) *cobra.Command {
	var o snapshotOptions
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Write this host as one text file that replays anywhere",
		Long: `Write everything that fabrun reads of this host as one text file: for bug
reports, for tests, and to plan for a machine without sitting on it. Every verb
takes it with --from, and a plan from it is the plan on this host.

It holds hardware, network addresses and limits, the variables of NCCL, UCX and
the MPI libraries, and their configuration files. It holds no other variables,
and no secrets, told by their names or by their form (tokens, passwords in URLs).

Exit status: 0 written; 1 could not be taken or written; 2 usage.`,
		Example: `  fabrun snapshot > $(hostname).snap
  fabrun snapshot --program ./solver --directory "$PWD" > node1.snap
  fabrun plan --from node1.snap -- mpirun -np 64 ./solver`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSnapshot(cmd.Context(), a, o) },
	}
	cmd.Flags().BoolVar(&o.quick, "quick", false, "only what a plan needs: start nothing, read no counters")
	cmd.Flags().BoolVar(&o.counters, "counters", false, "with --quick: the counters of ports and network interfaces all the same")
	cmd.Flags().StringArrayVar(&o.programs, "program", nil, "also say what this `program` and the libraries it loads are here")
	cmd.Flags().StringArrayVar(&o.directories, "directory", nil, "also say whether this `directory` is here, and on what file system")
	cmd.Flags().StringVar(&o.libraryPath, "library-path", "", "with --program: `directories` to search last, as LD_LIBRARY_PATH has them")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "write to this `file` instead of standard output")
	return cmd
}

func runSnapshot(ctx context.Context, a *app, o snapshotOptions) error {
	opts := live.Everything(a.Env, a.Helper())
	opts.Launchers = func() []topology.Launcher { return a.LaunchersHere(ctx) }
	if o.quick {
		opts = live.Options{Env: a.Env, Counters: o.counters}
	}
	for _, p := range o.programs {
		opts.Places = append(opts.Places, live.Asked{Role: topology.RoleProgram, Path: p})
	}
	for _, p := range o.directories {
		opts.Places = append(opts.Places, live.Asked{Role: topology.RoleDirectory, Path: p})
	}
	opts.LibraryPath = o.libraryPath
	b, err := look.Patiently(ctx, &a.Machines, opts, func(fsys fs.FS, _ string) (bytes.Buffer, error) {
		var b bytes.Buffer
		err := discover.Capture(fsys, &b)
		return b, err
	})
	if err != nil {
		return err
	}
	if a.JSON {
		return report.SnapshotJSON(a.Stdout, b.String())
	}
	if o.output == "" {
		_, err := a.Stdout.Write(b.Bytes())
		return err
	}
	return files.Write(o.output, b.Bytes(), files.Shared)
}
