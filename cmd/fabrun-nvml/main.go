package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"fabrun/topology/live/opinions"
)

func main() {
	if slices.Equal(os.Args[1:], []string{"opinions"}) {
		os.Exit(writeOpinions(os.Stdout))
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// writeOpinions prints what ghw and rdmamap say of this machine.
func writeOpinions(w io.Writer) int {
	if _, err := io.WriteString(w, "-- fabrun/opinions --\n"+opinions.Text()); err != nil {
		fmt.Fprintf(os.Stderr, "fabrun-nvml: %v\n", err)
		return 1
	}
	return 0
}
