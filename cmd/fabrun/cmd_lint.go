package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"fabrun/envgen"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/lint"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

type lintOptions struct {
	versions envgen.Versions
}

func newLintCmd(a *app) *cobra.Command {
	var opts lintOptions
	c := &cobra.Command{
		Use:   "lint FILE…",
		Short: "Find known mistakes in job scripts, Dockerfiles and manifests",
		Long: `Read job scripts (sbatch and plain shell) without running anything, and name the
mistakes that cost RDMA jobs their fabric: variables that no rank sees, values
that do not mean what they seem to, lists that srun cuts at a comma, one HCA per
rank, a rendezvous on localhost, ports that collide. Each with its line, and the
line mended where one line is enough. '-' reads standard input.

Of a Dockerfile it reads what the image sets and starts; of a Kubernetes manifest
every container of every pod template, whatever kind it is in: variables,
resources, securityContext, network and /dev/shm. What is none of these is said
to be no job script.

With --profile the traffic class and service level are held against that plan;
with library versions names are held against what these versions know.

Exit status: 0 nothing, or warnings only; 1 mistakes that change how the job
runs, or a file that cannot be read; 2 wrong usage.`,
		Example: `  fabrun lint job.sbatch
  fabrun lint --profile roce-dscp26 --nccl-version 2.21.5 *.sh
  fabrun lint Dockerfile job.yaml
  fabrun lint --json - < job.sbatch`,
		Args: takes(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error { return runLint(a, opts, args) },
	}
	c.Flags().StringVar(&opts.versions.NCCL, "nccl-version", "", "the NCCL `version` that the ranks will load")
	c.Flags().StringVar(&opts.versions.UCX, "ucx-version", "", "the UCX `version` that the ranks will load")
	return c
}

func runLint(a *app, opts lintOptions, files []string) error {
	profile, err := a.FabricProfile()
	if err != nil {
		return err
	}
	var problems []lint.Problem
	for _, name := range files {
		text, err := a.readText(name)
		if err != nil {
			return exit.WithHint(err, "give the job scripts to read")
		}
		problems = append(problems, lint.Judge(lint.Read(name, text), profile, opts.versions)...)
	}
	if a.JSON {
		err = report.LintJSON(a.Stdout, files, problems)
	} else {
		err = report.Lint(a.Stdout, files, problems)
	}
	if err != nil {
		return err
	}
	for _, p := range problems {
		if p.Severity == finding.Error {
			return exit.ErrFindings
		}
	}
	return nil
}

// readText reads a file that somebody hands over, or standard input for "-".
func (a *app) readText(name string) ([]byte, error) {
	if name != "-" {
		text, err := files.Read(name)
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		return text, nil
	}
	text, err := files.ReadAll(a.Stdin, files.MaxRead)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return []byte(text), nil
}
