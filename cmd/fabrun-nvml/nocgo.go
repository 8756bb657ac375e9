//go:build !cgo

package main

import (
	"fmt"
	"io"
)

// run without cgo has no way to the driver's library; the answer is the same
// as on a machine without one.
func run(_ []string, stdout, _ io.Writer) int {
	fmt.Fprintln(stdout, "fabrun/nvml ! this fabrun-nvml was built without cgo")
	return 0
}
