package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"fabrun/envgen"
	"fabrun/launcher/exit"
	"fabrun/launcher/report"
)

func newDSCPCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "dscp N|NAME",
		Short: "Convert a DSCP to traffic class, ToS, priority and variables",
		Long: `Print what a DSCP (0 to 63, or a name: af31, cs3, ef) is as the traffic class
byte that libraries and tools want, with each value of the two ECN bits, which
priority network cards map it to by default, and the variable of each library.

Exit status: 0; 2 not a DSCP.`,
		Example: "  fabrun dscp 26\n  fabrun dscp af31 --json",
		Args:    takes(1, 1),
		RunE:    func(_ *cobra.Command, args []string) error { return runDSCP(a, args[0]) },
	}
}

func runDSCP(a *app, word string) error {
	m, err := envgen.ParseDSCP(word)
	if err != nil {
		hint := "a DSCP is 0 to 63, or a name: af31, cs3, ef"
		if n, nerr := strconv.Atoi(word); nerr == nil && n > 63 && n < 256 {
			hint = fmt.Sprintf("as a traffic class %d is DSCP %d: 'fabrun dscp %d'", n, n>>2, n>>2)
		}
		return exit.UsageError(err, hint)
	}
	if a.JSON {
		return report.DSCPJSON(a.Stdout, m)
	}
	return report.DSCP(a.Stdout, m)
}
