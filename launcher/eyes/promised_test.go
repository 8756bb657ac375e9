package eyes

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// twoRails is a plan of two nodes with two rails, of which the user's list of devices
// leaves one out.
func twoRails() plan.Plan {
	rate := 400.0
	p := plan.Plan{
		Dialect: cmdline.Named("openmpi5"),
		Hosts:   hosts.Allocation{Hosts: []hosts.Host{{Name: "n1"}, {Name: "n2"}}},
		Promise: envgen.Promise{RateGbps: &rate},
		Rails: []envgen.Rail{
			{Ports: map[string]string{"n1": "mlx5_0:1", "n2": "mlx5_4:1"}, GIDs: map[string]int{"n1": 3, "n2": 5}},
			{Ports: map[string]string{"n1": "mlx5_1:1", "n2": "mlx5_5:1"}, Out: "UCX_NET_DEVICES=mlx5_0:1"},
		},
		Kept:    []envgen.Var{{Name: "UCX_IB_GID_INDEX", Value: "3"}, {Name: "MV2_DEFAULT_GID_INDEX", Value: "auto"}},
		PerHost: []envgen.HostEnv{{Host: "n2", Vars: []envgen.Var{{Name: "NVSHMEM_IB_GID_INDEX", Value: "5"}, {Name: "UCX_IB_GID_INDEX", Value: "5"}}}},
	}
	return p
}

func TestRailsPromised(t *testing.T) {
	three, five := 3, 5
	want := contract.Promise{
		RateGbps: 400,
		Rails:    []contract.Rail{{Ports: map[string]contract.Port{"n1": {Name: "mlx5_0:1", GID: &three}, "n2": {Name: "mlx5_4:1", GID: &five}}}},
		Pins:     []contract.Pin{{Name: "UCX_IB_GID_INDEX", Index: 3}, {Name: "NVSHMEM_IB_GID_INDEX", Index: 5, Host: "n2"}},
	}
	if d := cmp.Diff(want, railsPromised(twoRails(), []string{"NCCL_IB_GID_INDEX=-1"})); d != "" {
		t.Error(d)
	}
	one := twoRails()
	one.Hosts.Hosts = one.Hosts.Hosts[:1]
	if d := cmp.Diff(contract.Promise{}, railsPromised(one, nil)); d != "" {
		t.Errorf("of a job on one node nothing is promised: %s", d)
	}
}

// TestRailLostAndBackAreSaid: at once, each once, and a link that is down for a moment
// does not break a strict job.
func TestRailLostAndBackAreSaid(t *testing.T) {
	var said bytes.Buffer
	ended := 0
	p := twoRails()
	p.Rails[1].Out = ""
	w := &Job{
		cfg:      JobConfig{Plan: p, Say: report.Own(&said, nil), Strict: true, End: func() { ended++ }},
		contract: contract.New(railsPromised(p, nil)), said: map[string]bool{}, traffic: newTraffic(),
	}
	w.here = NewNode(Config{Host: "n1", Follow: Following{Dir: t.TempDir()}})
	at := time.Date(2026, 11, 3, 22, 30, 0, 0, time.Local)
	look := func(after time.Duration, up bool) {
		w.sample(watch.Sample{Time: at.Add(after), Host: "n2", Ports: []watch.PortSample{
			{HCA: "mlx5_4", Port: 1, Active: up, RateGbps: 400}, {HCA: "mlx5_5", Port: 1, Active: true, RateGbps: 400},
		}})
	}
	look(0, true)
	look(5*time.Second, false)
	look(9*time.Second, true)
	const lost = "warning: n2: 2 rails promised, 1 since 22:30:05 (mlx5_4:1 on n2: link down), 50 GB/s fewer."
	const back = "note: n2: mlx5_4:1 is back after 4.0 s: 2 rails promised, all there."
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], lost) || !strings.HasSuffix(lines[1], back) {
		t.Errorf("said\n%s\nwant\n%s\n%s", said.String(), lost, back)
	}
	if ended != 0 {
		t.Error("a link that was down for 4 s ended the job")
	}
	look(20*time.Second, false)
	look(25*time.Second, false)
	if ended != 0 {
		t.Error("a link that was down for 5 s ended the job")
	}
	look(31*time.Second, false)
	if ended != 1 || !strings.HasPrefix(w.broken, "--strict ended the job: 2 rails promised, 1 since 22:30:20") {
		t.Errorf("ended %d times: %s", ended, w.broken)
	}
}

// TestRateFallsInSysfs: a port whose rate falls under a running job, as its files tell
// it: an mlx5 says so itself, Soft-RoCE by its netdev.
func TestRateFallsInSysfs(t *testing.T) {
	for _, c := range []struct{ name, device, before, after, want string }{
		{"mlx5", "mlx5_0", "400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)", "mlx5_0:1 on n1: 100 instead of 400 Gb/s), 37.5 GB/s fewer."},
		{"rxe", "rxe_0", "10000", "1000", "rxe_0:1 on n1: 1 instead of 10 Gb/s), 1.125 GB/s fewer."},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			port := filepath.Join(root, "class/infiniband", c.device, "ports/1")
			rate := filepath.Join(port, "rate")
			put := func(name, text string) {
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(filepath.Join(port, "state"), "4: ACTIVE")
			if c.name == "rxe" {
				put(rate, "2.5 Gb/sec (1X SDR)")
				put(filepath.Join(root, "class/infiniband", c.device, "parent"), "rail0")
				rate = filepath.Join(root, "class/net/rail0/speed")
			}
			put(rate, c.before)
			meter := &Meter{host: "n1", sys: os.DirFS(root), proc: t.TempDir()}
			judge := contract.New(contract.Promise{Rails: []contract.Rail{{Ports: map[string]contract.Port{"n1": {Name: c.device + ":1"}}}}})
			now := time.Now()
			if said := judge.Sample(meter.Look(now, false)); len(said) > 0 {
				t.Fatalf("said %+v", said)
			}
			put(rate, c.after)
			said := judge.Sample(meter.Look(now.Add(10*time.Second), false))
			if len(said) != 1 || said[0].ID != contract.EventRailLost || !strings.HasPrefix(said[0].Text, "1 rail promised, 1 slower since ") || !strings.HasSuffix(said[0].Text, c.want) {
				t.Errorf("said %+v, want %s", said, c.want)
			}
			put(rate, c.before)
			if said := judge.Sample(meter.Look(now.Add(20*time.Second), false)); len(said) != 1 || said[0].ID != contract.EventRailBack {
				t.Errorf("said %+v", said)
			}
		})
	}
}
