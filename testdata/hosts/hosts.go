// Package hosts embeds the machine that shows fabrun where there is no cluster:
// two sockets, eight GPUs, eight RoCE rails. The other machines beside it are
// snapshots for tests, written by this package's test from short descriptions:
//
//	go test ./testdata/hosts -update
package hosts

import _ "embed" // for Demo

// DemoName is what --from calls the embedded machine.
const DemoName = "demo"

// Demo is the snapshot of the embedded machine.
//
//go:embed dgx-roce-8x8.snap
var Demo string
