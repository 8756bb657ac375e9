package envgen

import (
	"math/rand/v2"
	"testing"

	"fabrun/topology"
)

// shuffled is the same host with its maps built anew in another order.
func shuffled(h topology.Host, r *rand.Rand) topology.Host {
	netdevs := append([]topology.Netdev(nil), h.Netdevs...)
	for i := range netdevs {
		if netdevs[i].DCB == nil {
			continue
		}
		dcb := *netdevs[i].DCB
		keys := make([]int, 0, len(dcb.DSCPToPriority))
		for k := range dcb.DSCPToPriority {
			keys = append(keys, k)
		}
		r.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
		m := map[int]int{}
		for _, k := range keys {
			m[k] = dcb.DSCPToPriority[k]
		}
		dcb.DSCPToPriority = m
		netdevs[i].DCB = &dcb
	}
	h.Netdevs = netdevs
	return h
}

// TestSameInputsSameBytes: the whole decision table, again and again, with the
// maps of the hosts in other orders.
func TestSameInputsSameBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	table := decisions()
	want := make([]string, len(table))
	runs := 1000
	for run := range runs {
		at := run % len(table)
		if run < len(table) {
			want[at] = dump(Compute(table[at].input(t)))
		}
		in := table[at].input(t)
		for i := range in.Hosts {
			in.Hosts[i] = shuffled(in.Hosts[i], r)
		}
		if got := dump(Compute(in)); got != want[at] {
			t.Fatalf("run %d, %s: not the same\n%s\nbefore\n%s", run, table[at].name, got, want[at])
		}
	}
	hosts := []topology.Host{withDCB(gpuServer("g1", 1), "dscp", []int{5}), broken(renamed(withDCB(gpuServer("g2", 2), "pcp", nil)), 1), moved(gpuServer("g3", 3), 2)}
	in := Input{Hosts: hosts, Profile: load(t, "roce-dscp26"), Job: Job{Settings: []Setting{{Name: "NCCL_IB_HCA", Value: "mlx5_1", Origin: FromUser}, {Name: "NCCL_IB_TC", Value: "26", Origin: FromUser}}}}
	first := dump(Compute(in))
	for range 1000 {
		for i := range hosts {
			hosts[i] = shuffled(hosts[i], r)
		}
		if got := dump(Compute(in)); got != first {
			t.Fatalf("not the same:\n%s\nbefore\n%s", got, first)
		}
	}
}

// TestComputeChangesNothing: the inputs are values, and stay as they are.
func TestComputeChangesNothing(t *testing.T) {
	settings := make([]Setting, 1, 8)
	settings[0] = Setting{Name: "NCCL_IB_TC", Value: "106", Origin: FromUser}
	h := withConf(gpuServer("g1", 1), "NCCL_IB_SL=3\n")
	before := dump(Compute(Input{Hosts: []topology.Host{h}, Job: Job{Settings: settings}}))
	if extra := settings[:2][1]; extra != (Setting{}) {
		t.Errorf("the caller's settings were written to: %+v", extra)
	}
	if after := dump(Compute(Input{Hosts: []topology.Host{h}, Job: Job{Settings: settings}})); after != before {
		t.Errorf("a second look differs:\n%s\n%s", before, after)
	}
}

func BenchmarkCompute8GPU10HCA(b *testing.B) {
	in := Input{Hosts: []topology.Host{snapshot(b, "../testdata/hosts/dgx-roce-8x8.snap")}, Profile: load(b, "roce-dscp26"), Job: Job{LogDir: "/tmp/x"}}
	b.ReportAllocs()
	for b.Loop() {
		Compute(in)
	}
}

func BenchmarkCompute64Hosts(b *testing.B) {
	var hosts []topology.Host
	for i := range 64 {
		hosts = append(hosts, gpuServer("g", i+1))
	}
	in := Input{Hosts: hosts, Profile: load(b, "roce-dscp26")}
	for b.Loop() {
		Compute(in)
	}
}
