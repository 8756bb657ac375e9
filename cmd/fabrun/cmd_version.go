package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"fabrun/launcher/report"
)

// version is the one link-time override (-X main.version=…); otherwise the
// build information speaks.
var version string

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

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print fabrun's version",
		Long:    "Print fabrun's version and what it was built with.\n\nExit status: 0.",
		Example: "  fabrun version --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runVersion(a) },
	}
}

func runVersion(a *app) error {
	if a.JSON {
		return report.VersionJSON(a.Stdout, report.Version{Version: buildVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH})
	}
	_, err := fmt.Fprintf(a.Stdout, "fabrun %s (%s %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
