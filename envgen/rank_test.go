package envgen

import (
	"fmt"
	"strings"
	"testing"

	"fabrun/topology"
)

// twoSockets is a host of n ports, the first half on NUMA node 0, in one subnet.
func twoSockets(n int) topology.Host {
	h := topology.Host{Name: "n1", NUMA: []topology.NUMANode{
		{ID: 0, CPUs: []int{0, 1, 2, 3}, Distances: []int{10, 21}}, {ID: 1, CPUs: []int{4, 5, 6, 7}, Distances: []int{21, 10}},
	}}
	for i := range n {
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), NUMA: ptr(2 * i / n)})
	}
	return h
}

func rankEnv(n int) HostEnv {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("mlx5_%d:1", i))
	}
	return HostEnv{Host: "n1", Vars: []Var{{Name: "UCX_NET_DEVICES", Value: strings.Join(names, ","), Scope: RankScope, Origin: FromPlan}}}
}

func devicesOf(h topology.Host, env HostEnv, r Rank) string {
	vars := RankVars(&h, env, r)
	if len(vars) == 0 {
		return ""
	}
	return vars[0].Value
}

func TestRankDevices(t *testing.T) {
	for _, tt := range []struct {
		ports int
		size  int
		want  string // per rank, blank between
	}{
		{2, 1, "mlx5_0:1,mlx5_1:1"},
		{2, 2, "mlx5_0:1 mlx5_1:1"},
		{2, 4, "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1"},
		{4, 2, "mlx5_0:1,mlx5_1:1 mlx5_2:1,mlx5_3:1"},
		{4, 4, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{4, 8, "mlx5_0:1 mlx5_1:1 mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_2:1 mlx5_3:1"},
		{8, 4, "mlx5_0:1,mlx5_2:1 mlx5_1:1,mlx5_3:1 mlx5_4:1,mlx5_6:1 mlx5_5:1,mlx5_7:1"},
		{4, 3, "mlx5_0:1 mlx5_1:1 mlx5_2:1,mlx5_3:1"},
	} {
		t.Run(fmt.Sprintf("%d ports, %d ranks", tt.ports, tt.size), func(t *testing.T) {
			var got []string
			for r := range tt.size {
				got = append(got, devicesOf(twoSockets(tt.ports), rankEnv(tt.ports), Rank{Local: r, Size: tt.size}))
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got  %s\nwant %s", g, tt.want)
			}
		})
	}
}

// Dealt out in turn (rank 0 on node 0, rank 1 on node 1, …) the nodes'
// devices must still all be used.
func TestRankDevicesBoundInTurn(t *testing.T) {
	h := twoSockets(4)
	got := map[string]int{}
	for r := range 8 {
		got[devicesOf(h, rankEnv(4), Rank{Local: r, Size: 8, NUMA: ptr(r % 2), InTurn: true})]++
	}
	for i := range 4 {
		if d := fmt.Sprintf("mlx5_%d:1", i); got[d] != 2 {
			t.Errorf("%s has %d ranks, want 2: %v", d, got[d], got)
		}
	}
}

// TestRankDevicesAreSpread: on any machine with as many ports per socket, no
// device has two ranks more than another of the same socket, and every rank
// has one.
func TestRankDevicesAreSpread(t *testing.T) {
	for ports := 2; ports <= 16; ports += 2 {
		for size := 1; size <= 64; size++ {
			h, env := twoSockets(ports), rankEnv(ports)
			count := map[string]int{}
			for r := range size {
				ds := devicesOf(h, env, Rank{Local: r, Size: size})
				if ds == "" {
					t.Fatalf("%d ports, %d ranks: rank %d has none", ports, size, r)
				}
				if again := devicesOf(h, env, Rank{Local: r, Size: size}); again != ds {
					t.Fatalf("not the same twice: %s, %s", ds, again)
				}
				for d := range strings.SplitSeq(ds, ",") {
					count[d]++
				}
			}
			for socket := range 2 {
				lo, hi := 1<<30, 0
				for i := socket * ports / 2; i < (socket+1)*ports/2; i++ {
					c := count[fmt.Sprintf("mlx5_%d:1", i)]
					lo, hi = min(lo, c), max(hi, c)
				}
				if hi-lo > 1 {
					t.Errorf("%d ports, %d ranks: socket %d is used unevenly: %v", ports, size, socket, count)
				}
			}
		}
	}
}

func TestRankVarsLeaveOthersAlone(t *testing.T) {
	h := twoSockets(4)
	env := rankEnv(4)
	env.Vars[0].Scope = JobScope
	if got := RankVars(&h, env, Rank{Local: 0, Size: 4}); got != nil {
		t.Errorf("all rails for every rank: %v", got)
	}
	if got := RankVars(&h, rankEnv(4), Rank{Local: 4, Size: 4}); got != nil {
		t.Errorf("a rank that is not there: %v", got)
	}
}

// On a GPU server whose rails reach each other each rank gets the NIC beside
// its GPU; with more ranks than GPUs they share it, and with one visible GPU a
// rank gets that GPU's.
func TestRankDevicesByGPU(t *testing.T) {
	h := gpuServer("g1", 1)
	for _, tt := range []struct {
		name    string
		size    int
		visible int // -1 all
		want    string
	}{
		{"one rank per GPU", 4, -1, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{"two ranks per GPU", 8, -1, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{"two ranks, four GPUs", 2, -1, "mlx5_0:1 mlx5_1:1"},
		{"only GPU 2 visible", 4, 2, "mlx5_2:1 mlx5_2:1 mlx5_2:1 mlx5_2:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range h.GPUs {
				h.GPUs[i].Visible = nil
				if tt.visible >= 0 {
					h.GPUs[i].Visible = ptr(i == tt.visible)
				}
			}
			var got []string
			for r := range tt.size {
				got = append(got, devicesOf(h, rankEnv(4), Rank{Local: r, Size: tt.size}))
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got  %s\nwant %s", g, tt.want)
			}
		})
	}
}

// GPUs without a switch share the NIC of their socket, or the only one.
func TestRankDevicesSharedByGPUs(t *testing.T) {
	h := rootPorts("r1") // two GPUs and one NIC per socket, through the root complex
	got := []string{}
	for r := range 4 {
		got = append(got, devicesOf(h, rankEnv(2), Rank{Local: r, Size: 4}))
	}
	if g := strings.Join(got, " "); g != "mlx5_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:1" {
		t.Errorf("got %s", g)
	}
	h = otherSocket("r1") // one NIC for all
	for r := range 4 {
		if g := devicesOf(h, rankEnv(1), Rank{Local: r, Size: 4}); g != "mlx5_0:1" {
			t.Errorf("rank %d: %s", r, g)
		}
	}
}
