package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
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
	if a.json {
		return json.NewEncoder(a.stdout).Encode(map[string]string{
			"schema": "fabrun/version/v1", "version": buildVersion(), "go": runtime.Version(),
			"os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintf(a.stdout, "fabrun %s (%s %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
