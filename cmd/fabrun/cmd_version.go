package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"fabrun/launcher/report"
)

// What the build stamps (-X main.version=…). The build information cannot: with
// -buildvcs it wants git and a checkout of one's own.
var version, commit, commitDate string

func buildVersion() string {
	if version != "" {
		return version
	}
	bi, ok := debug.ReadBuildInfo()
	if !ok || bi.Main.Version == "" || bi.Main.Version == "(devel)" {
		return "devel"
	}
	return bi.Main.Version
}

// buildOf is what the build said; what it did not say is nil.
func buildOf() report.Version {
	b := report.Version{Version: buildVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Modules: []report.Module{}}
	if commit != "" {
		b.Commit = &commit
	}
	if commitDate != "" {
		b.CommitDate = &commitDate
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range bi.Deps {
			b.Modules = append(b.Modules, report.Module{Path: m.Path, Version: m.Version})
		}
	}
	return b
}

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print fabrun's version",
		Long: `Print fabrun's version, the commit it was built from, and what it was built with;
with -v the versions of the modules in it, too.

Exit status: 0.`,
		Example: "  fabrun version --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runVersion(a) },
	}
}

func runVersion(a *app) error {
	b := buildOf()
	if a.JSON {
		return report.VersionJSON(a.Stdout, b)
	}
	from := "unknown"
	if b.Commit != nil {
		from = *b.Commit
		if b.CommitDate != nil {
			from += " of " + *b.CommitDate
		}
	}
	if _, err := fmt.Fprintf(a.Stdout, "fabrun %s (%s %s/%s)\ncommit %s\n", b.Version, b.Go, b.OS, b.Arch, from); err != nil || !a.Verbose {
		return err
	}
	for _, m := range b.Modules {
		if _, err := fmt.Fprintf(a.Stdout, "%s %s\n", m.Path, m.Version); err != nil {
			return err
		}
	}
	return nil
}
