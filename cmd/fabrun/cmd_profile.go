package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fabrun/launcher/exit"
	"fabrun/launcher/report"
	"fabrun/profiles"
)

func newProfileCmd(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "profile",
		Short: "List, show and check fabric and workload profiles",
		Long: `A fabric profile says what no machine can see: the QoS plan, which networks are
the fabric, what a healthy port shows. A workload profile says how a kind of
program is run. Built-ins come first; files in /etc/fabrun/profiles and in
~/.config/fabrun/profiles are merged over them, key by key; a file named on the
command line comes last. Workload profiles lie in workloads/ below each.

Exit status: 0 fine; 1 a file is wrong or cannot be read; 2 usage.`,
		Example: `  fabrun profile list
  fabrun profile show roce-dscp26 > mine.toml
  fabrun profile check mine.toml`,
	}
	c.AddCommand(newProfileListCmd(a), newProfileShowCmd(a), newProfileCheckCmd(a))
	return c
}

func newProfileListCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the profiles that can be named",
		Long:    "List every fabric and workload profile with what it is for and where it comes\nfrom. Files that are wrong are listed with their error.\n\nExit status: 0 fine; 1 a file is wrong; 2 usage.",
		Example: "  fabrun profile list\n  fabrun profile list --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runProfileList(a) },
	}
}

func runProfileList(a *app) error {
	fabrics, workloads := profiles.List(a.ProfileDirs()), profiles.ListWorkloads(a.ProfileDirs())
	write := report.Profiles
	if a.JSON {
		write = report.ProfilesJSON
	}
	if err := write(a.Stdout, fabrics, workloads); err != nil {
		return err
	}
	for _, i := range append(fabrics, workloads...) {
		if i.Err != nil {
			return exit.ErrFindings
		}
	}
	return nil
}

func newProfileShowCmd(a *app) *cobra.Command {
	var qos qosForm
	c := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Print a profile as it is after merging",
		Long: `Print a fabric or workload profile as TOML, after all layers were merged: what
fabrun goes by, and a start for a profile of your own. With --host or --switch
it prints the QoS plan alone, as the commands of a host or the configuration of
a switch or ESXi host; it changes nothing anywhere.

Exit status: 0 fine; 1 a file is wrong or cannot be read; 2 no such profile.`,
		Example: `  fabrun profile show roce-dscp26
  fabrun profile show openfoam --json
  fabrun profile show roce-dscp26 --host --interface ens1f0np0:mlx5_0
  fabrun profile show roce-dscp26 --switch onyx --ports 1/1-1/32`,
		Args: takes(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if qos.asked() {
				return runProfileQoS(a, args[0], qos)
			}
			return runProfileShow(a, args[0])
		},
	}
	qos.addFlags(c.Flags())
	return c
}

func runProfileShow(a *app, name string) error {
	p, w, err := profiles.LoadAny(a.ProfileDirs(), name)
	switch {
	case err != nil:
		return profileError(err)
	case w != nil && a.JSON:
		return report.WorkloadJSON(a.Stdout, *w)
	case w != nil:
		return report.Workload(a.Stdout, *w)
	case a.JSON:
		return report.ProfileJSON(a.Stdout, *p)
	default:
		return report.Profile(a.Stdout, *p)
	}
}

func newProfileCheckCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a profile file: keys, values, what they add up to",
		Long:    "Read a profile file as --profile or --workload would, and say what is wrong with\nfile and line.\n\nExit status: 0 fine; 1 the file is wrong or cannot be read; 2 usage.",
		Example: "  fabrun profile check mine.toml",
		Args:    takes(1, 1),
		RunE:    func(_ *cobra.Command, args []string) error { return runProfileCheck(a, args[0]) },
	}
}

func runProfileCheck(a *app, file string) error {
	p, w, err := profiles.CheckFile(a.ProfileDirs(), file)
	if err != nil {
		return exit.WithHint(err, "'fabrun profile show roce-dscp26' prints one that is right")
	}
	kind, name, about := "fabric profile", "", ""
	if w != nil {
		kind, name, about = "workload profile", w.Name, w.About
	} else {
		name, about = p.Name, p.About
	}
	if a.JSON {
		return report.ProfileCheckJSON(a.Stdout, file, kind, name)
	}
	if about != "" {
		about = " (" + about + ")"
	}
	_, err = fmt.Fprintf(a.Stdout, "%s: fine: %s %s%s\n", file, kind, name, about)
	return err
}
