package slurm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

func rate(v float64) *float64 { return &v }

// nodeWith is a host with one device of a driver, and what /dev/infiniband has.
func nodeWith(driver, device string, nodes ...string) topology.Host {
	return topology.Host{HCAs: []topology.HCA{{Name: device, Driver: driver}}, DeviceNodes: &topology.DeviceNodes{Names: nodes}}
}

func TestNodeFaults(t *testing.T) {
	up := portState{Port: "mlx5_0:1", Active: true, State: "ACTIVE, LinkUp", RateGbps: rate(400)}
	for _, tc := range []struct {
		name      string
		base, now []portState
		host      topology.Host
		profile   profiles.Profile
		ports     int
		want      string
	}{
		{name: "first look", now: []portState{up}},
		{name: "as before", base: []portState{up}, now: []portState{up}, ports: 1},
		{name: "down", base: []portState{up}, now: []portState{{Port: "mlx5_0:1", State: "DOWN, Polling"}}, want: "slurm.port-down mlx5_0:1 DOWN, Polling"},
		{name: "gone", base: []portState{up}, want: "slurm.port-gone mlx5_0:1 no such port"},
		{name: "slower", base: []portState{up}, now: []portState{{Port: "mlx5_0:1", Active: true, RateGbps: rate(100)}}, want: "slurm.port-slow mlx5_0:1 100 Gb/s"},
		{name: "rate unknown is not slow", base: []portState{up}, now: []portState{{Port: "mlx5_0:1", Active: true}}},
		{name: "a port that never was up", now: []portState{up, {Port: "mlx5_0:2", State: "DOWN, Polling"}}, base: []portState{up}},
		{name: "below the profile", now: []portState{up}, profile: profiles.Profile{Name: "p", Fabric: profiles.Fabric{RateGbps: rate(800)}}, want: "slurm.port-slow mlx5_0:1 400 Gb/s"},
		{name: "fewer than said", now: []portState{up}, ports: 8, want: "slurm.ports-missing fabric ports 1 active"},
		{name: "no device nodes", now: []portState{up}, host: nodeWith("mlx5", "mlx5_0", "rdma_cm"), want: "slurm.no-uverbs /dev/infiniband no uverbs device"},
		{name: "device nodes", now: []portState{up}, host: nodeWith("mlx5", "mlx5_0", "uverbs0")},
		{name: "no HCA and none wanted"},
		{name: "Slingshot has no uverbs", now: []portState{{Port: "cxi0:1", Active: true}}, host: nodeWith("cxi", "cxi0")},
		{name: "Omni-Path needs none", now: []portState{{Port: "hfi1_0:1", Active: true}}, host: nodeWith("hfi1", "hfi1_0")},
		{name: "EFA does", now: []portState{{Port: "efa_0:1", Active: true}}, host: nodeWith("efa", "efa_0"), want: "slurm.no-uverbs /dev/infiniband no uverbs device"},
		{name: "EFA with one", now: []portState{{Port: "efa_0:1", Active: true}}, host: nodeWith("efa", "efa_0", "uverbs0")},
		{name: "eRDMA with one", now: []portState{{Port: "erdma_0:1", Active: true}}, host: nodeWith("erdma", "erdma_0", "uverbs0")},
		{name: "eRDMA without", now: []portState{{Port: "erdma_0:1", Active: true}}, host: nodeWith("erdma", "erdma_0"), want: "slurm.no-uverbs /dev/infiniband no uverbs device"},
		{name: "Slingshot, and a verbs port that is down", now: []portState{{Port: "cxi0:1", Active: true}, {Port: "mlx5_0:1", State: "DOWN"}}, host: nodeWith("mlx5", "mlx5_0")},
		{name: "Slingshot went down", base: []portState{{Port: "cxi0:1"}}, now: []portState{{Port: "cxi0:1", State: "DOWN"}}, host: nodeWith("cxi", "cxi0"), want: "slurm.port-down cxi0:1 DOWN"},
		{name: "state unknown is not down", base: []portState{up}, now: []portState{{Port: "mlx5_0:1"}}},
		{name: "up, and not the job's any more", base: []portState{up}, now: []portState{{Port: "mlx5_0:1", State: "ACTIVE, LinkUp"}}},
		{name: "udev renamed it", base: []portState{up}, now: []portState{{Port: "roce0:1", Active: true, State: "ACTIVE, LinkUp", RateGbps: rate(400)}}},
		{name: "renamed, and one is gone", base: []portState{up, {Port: "mlx5_1:1"}}, now: []portState{{Port: "roce0:1", Active: true}}, want: "slurm.port-gone mlx5_0:1 no such port\nslurm.port-gone mlx5_1:1 no such port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range nodeFaults(tc.base, tc.now, tc.host, tc.profile, tc.ports) {
				got = append(got, f.ID+" "+f.Subject+" "+f.Seen)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFaultReason(t *testing.T) {
	f := finding.Finding{ID: "slurm.port-down", Subject: "mlx5_0:1\n\"x\"", Seen: "DOWN\x1b[31m"}
	if got, want := faultReason([]finding.Finding{f}), "fabrun: mlx5_0:1x DOWN[31m (slurm.port-down)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := faultReason([]finding.Finding{f, f, f, f, f, f, f, f}); len(got) != maxReason || !strings.HasSuffix(got, "...") {
		t.Errorf("%d characters: %q", len(got), got)
	}
}

func TestDecideHealth(t *testing.T) {
	faults := []finding.Finding{{ID: "slurm.port-down"}}
	node := func(state, reason string) string {
		text := "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 State=" + state + " ThreadsPerCore=1 BootTime=2026-01-01T00:00:00"
		if reason != "" {
			text += " Reason=" + reason + " [root@2026-01-01T00:00:00]"
		}
		return text + "\n"
	}
	for _, tc := range []struct {
		name   string
		node   string
		noted  string
		faults []finding.Finding
		good   int
		want   healthAction
	}{
		{"healthy", node("IDLE", ""), "", nil, 5, healthNothing},
		{"fault", node("IDLE", ""), "", faults, 0, healthDrain},
		{"fault while a job runs", node("ALLOCATED", ""), "", faults, 0, healthDrain},
		{"already drained by us", node("IDLE+DRAIN", "fabrun: mlx5_0:1 down"), "", faults, 0, healthNothing},
		{"already drained by somebody", node("DRAINED", "bad disk"), "", faults, 0, healthNothing},
		{"ours, good once", node("IDLE+DRAIN", "fabrun: mlx5_0:1 down"), "", nil, 1, healthNothing},
		{"ours, good twice", node("IDLE+DRAIN", "fabrun: mlx5_0:1 down"), "", nil, 2, healthResume},
		{"ours, still draining", node("MIXED+DRAIN", "fabrun: mlx5_0:1 down"), "", nil, 2, healthResume},
		{"somebody's", node("IDLE+DRAIN", "bad disk"), "", nil, 9, healthNothing},
		{"a prolog's, and not ours", node("IDLE+DRAIN", "Prolog error"), "", nil, 9, healthNothing},
		{"our prolog's, which Slurm wrote", node("IDLE+DRAIN", "Prolog error"), "fabrun: mlx5_0:1 DOWN", faults, 0, healthDrain},
		{"our prolog's, mended since", node("IDLE+DRAIN", "Prolog error"), "fabrun: mlx5_0:1 DOWN", nil, 9, healthDrain},
		{"our prolog failed, and somebody wrote a reason", node("IDLE+DRAIN", "bad disk"), "fabrun: mlx5_0:1 DOWN", nil, 9, healthNothing},
		{"our prolog failed, and the node was resumed", node("IDLE", ""), "fabrun: mlx5_0:1 DOWN", nil, 9, healthNothing},
		{"somebody mentions fabrun", node("IDLE+DRAIN", "see fabrun: port"), "", nil, 9, healthNothing},
		{"nothing readable", "", "fabrun: mlx5_0:1 DOWN", nil, 9, healthNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideHealth(ParseNodeState(tc.node), tc.noted, tc.faults, tc.good); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTaskPrintIsOneLine(t *testing.T) {
	if got := taskPrint("a\nexport X=1"); got != "print a export X=1\n" {
		t.Errorf("taskPrint lets a line through: %q", got)
	}
}

func TestNodeStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s, err := openNodeStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	up := portState{Port: "mlx5_0:1", Active: true, RateGbps: rate(200)}
	s.saveBaseline(nil, []portState{up, {Port: "mlx5_0:2"}}, &log)
	slower := portState{Port: "mlx5_0:1", Active: true, RateGbps: rate(100)}
	s.saveBaseline(s.baseline(), []portState{slower}, &log)
	if diff := cmp.Diff([]portState{up}, s.baseline()); diff != "" {
		t.Error(diff)
	}

	now := time.Now()
	if s.cachedGood("k", time.Minute, now) {
		t.Error("an empty store has a good look")
	}
	s.saveCache("k", now, &log)
	if !s.cachedGood("k", time.Minute, now.Add(time.Second)) || s.cachedGood("k", time.Minute, now.Add(time.Hour)) || s.cachedGood("other", time.Minute, now) {
		t.Error("the cache does not keep its time or its key")
	}

	for i, want := range []int{1, 2, 0, 1} {
		if got := s.countGood(want != 0, &log); got != want {
			t.Errorf("look %d: %d good looks, want %d", i, got, want)
		}
	}
	for i := range keptJobs + 5 {
		s.saveJob(fmt.Sprint(i), report.NodeJob{Job: fmt.Sprint(i)}, &log)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "jobs"))
	if err != nil || len(entries) != keptJobs {
		t.Errorf("%d records are kept, %v", len(entries), err)
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := openNodeStore(dir); err == nil {
		t.Error("a directory that everybody can write is taken")
	}
}

// TestPlainNode: a node's name from the environment is handed to scontrol only
// where it can be nothing else.
func TestPlainNode(t *testing.T) {
	for name, want := range map[string]bool{
		"n1": true, "gpu-01.cluster_a": true,
		"": false, "-n1": false, "n1 State=RESUME": false, "n[1-9]": false, "n1,n2": false, "n1;id": false, "n1\n": false, "ALL\x00": false, strings.Repeat("n", 65): false,
	} {
		if plainNode(name) != want {
			t.Errorf("%q: %v, want %v", name, !want, want)
		}
	}
}
