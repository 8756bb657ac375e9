package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/report"
	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
)

func newDiffCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A.snap B.snap",
		Short: "Say what differs between two hosts that should be alike",
		Long: `Compare two snapshots: devices, firmware, drivers, rates, MTU, GID tables, QoS,
limits, modules and library versions. Names, addresses and serial numbers are
not compared, and what one snapshot does not know is no difference.

Exit status: 0 alike or only notes; 1 a difference that matters, or a file
could not be read; 2 wrong usage.`,
		Example: `  fabrun diff node01.snap node02.snap
  fabrun diff before.snap after.snap --json`,
		Args: takes(2, 2),
		RunE: func(c *cobra.Command, args []string) error { return runDiff(c.Context(), a, args[0], args[1]) },
	}
}

func runDiff(_ context.Context, a *app, fileA, fileB string) error {
	one, err := a.readSnapshot(fileA)
	if err != nil {
		return err
	}
	two, err := a.readSnapshot(fileB)
	if err != nil {
		return err
	}
	ds := check.Diff(one, two)
	nameA, nameB := one.Name, two.Name
	if nameA == nameB || nameA == "" || nameB == "" {
		nameA, nameB = fileA, fileB
	}
	if a.JSON {
		err = report.DiffJSON(a.Stdout, nameA, nameB, ds)
	} else {
		err = report.Diff(a.Stdout, nameA, nameB, ds)
	}
	if err != nil {
		return err
	}
	for _, d := range ds {
		if d.Severity != finding.Note {
			return exit.ErrFindings
		}
	}
	return nil
}

// readSnapshot reads one host from a snapshot file.
func (a *app) readSnapshot(file string) (topology.Host, error) {
	text, err := a.readText(file)
	if err != nil {
		return topology.Host{}, exit.WithHint(err, "'fabrun snapshot > FILE' writes one")
	}
	if !discover.IsSnapshot(string(text)) {
		return topology.Host{}, exit.WithHint(fmt.Errorf("%q is no fabrun snapshot", file), "'fabrun snapshot > FILE' on the machine writes one")
	}
	snap, err := discover.ParseSnapshot(string(text))
	if err != nil {
		return topology.Host{}, fmt.Errorf("read %q: %w", file, err)
	}
	h, err := discover.Read(snap)
	if err != nil {
		return h, fmt.Errorf("read %q: %w", file, err)
	}
	h.Source = "snapshot"
	return h, nil
}
