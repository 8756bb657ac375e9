package envgen

import (
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

func knownBugs(t *testing.T, h topology.Host, job Job) []string {
	t.Helper()
	res := Compute(Input{Hosts: []topology.Host{h}, Profile: load(t, "roce-dscp26"), Job: job})
	bugs, err := profiles.Bugs()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range res.Findings {
		if f.ID != "version.known-bug" {
			continue
		}
		if f.Severity != finding.Note {
			t.Errorf("%s is a %s", f.Seen, f.Severity)
		}
		i := slices.IndexFunc(bugs, func(b profiles.Bug) bool {
			return b.Effect == f.Seen && strings.HasPrefix(f.Subject, libraryNames[b.Library]+" ")
		})
		if !strings.Contains(f.Why, "https://") {
			t.Errorf("no source: %q", f.Why)
		}
		ids = append(ids, bugs[i].ID)
	}
	return ids
}

// TestKnownBugs: a bug is told where version, host and environment are such that it
// can bite, and nowhere else.
func TestKnownBugs(t *testing.T) {
	rails := manyHCAs("n1", 2)
	arm := manyHCAs("n1", 1)
	arm.CPU.Arch = "arm64"
	gpu := manyHCAs("n1", 1)
	gpu.GPUs = []topology.GPU{{PCI: "0000:01:00.0"}}
	set := func(nccl, name, value string) Job {
		return Job{Versions: &Versions{NCCL: nccl}, Settings: []Setting{{Name: name, Value: value, Origin: FromUser}}}
	}
	yes := true
	for _, c := range []struct {
		name string
		host topology.Host
		job  Job
		id   string
		want bool
	}{
		{"the version and the architecture", arm, nccl("2.29.2"), "nccl-2.29.2-arm-hang", true},
		{"fixed", arm, nccl("2.29.3"), "nccl-2.29.2-arm-hang", false},
		{"before", arm, nccl("2.29.1"), "nccl-2.29.2-arm-hang", false},
		{"another architecture", manyHCAs("n1", 1), nccl("2.29.2"), "nccl-2.29.2-arm-hang", false},
		{"version unknown", arm, nccl(""), "nccl-2.29.2-arm-hang", false},
		{"half a version", arm, nccl("2"), "nccl-2.29.2-arm-hang", false},
		{"two rails", rails, nccl("2.30.7"), "nccl-roce-receiver-deadlock", true},
		{"one rail", manyHCAs("n1", 1), nccl("2.30.7"), "nccl-roce-receiver-deadlock", false},
		{"later than reported", rails, nccl("2.31.2"), "nccl-roce-receiver-deadlock", false},
		{"the variable", gpu, set("2.11.4", "NCCL_IB_QPS_PER_CONNECTION", "2"), "nccl-qps-per-connection", true},
		{"another variable", gpu, set("2.11.4", "NCCL_IB_TIMEOUT", "22"), "nccl-qps-per-connection", false},
		{"the variable's value", gpu, set("2.30.7", "NCCL_IGNORE_NET_MISMATCH", "1"), "nccl-net-mismatch-hang", true},
		{"another value", gpu, set("2.30.7", "NCCL_IGNORE_NET_MISMATCH", "0"), "nccl-net-mismatch-hang", false},
		{"GPUs", gpu, nccl("2.18.1"), "nccl-2.18.1-ll128-corruption", true},
		{"UCX on rails", rails, Job{Versions: &Versions{UCX: "1.20.1", MPIKind: "openmpi", MPI: "openmpi 4.1.6", OpenMPIHasUCX: &yes}}, "ucx-second-rail-by-route", true},
		{"UCX without MPI", rails, Job{Versions: &Versions{UCX: "1.20.1"}, NoMPI: true, Gloo: true}, "ucx-second-rail-by-route", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := knownBugs(t, c.host, c.job); slices.Contains(got, c.id) != c.want {
				t.Errorf("told %v; %s there: want %v", got, c.id, c.want)
			}
		})
	}
}
