package envgen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/topology"
	"fabrun/topology/discover"
)

func snapshot(tb testing.TB, file string) topology.Host {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	snap, err := discover.ReadSnapshot(f)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := discover.Read(snap)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// TestDecisionsOnSnapshots: every machine of testdata/hosts, under a RoCE
// profile and under none, for an Open MPI job and for a GPU job.
func TestDecisionsOnSnapshots(t *testing.T) {
	files, err := filepath.Glob("../testdata/hosts/*.snap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	var b strings.Builder
	for _, file := range files {
		h := snapshot(t, file)
		for _, d := range []decision{
			{profile: "roce-dscp26", job: Job{Versions: &Versions{MPIKind: "openmpi", MPI: "openmpi 5.0.7", OpenMPIHasUCX: ptr(true)}}},
			{job: Job{NoMPI: true, Gloo: true, UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}},
		} {
			d.hosts = []topology.Host{h}
			what := "no profile, torchrun, NCCL 2.27"
			if d.profile != "" {
				what = d.profile + ", Open MPI"
			}
			fmt.Fprintf(&b, "== %s, %s\n%s\n", filepath.Base(file), what, dump(Compute(d.input(t))))
		}
	}
	golden(t, "../testdata/golden/decisions-snapshots.txt", b.String())
}
