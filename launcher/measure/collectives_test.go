package measure

import (
	"fmt"
	"strings"
	"testing"

	"fabrun/topology"
	"fabrun/topology/pasted"
)

// ncclRun is a run whose largest row has this bus bandwidth, GB/s.
func ncclRun(t *testing.T, nodes int, bus float64, network string) CollectiveRun {
	t.Helper()
	var b strings.Builder
	b.WriteString("# nThread 1 nGpus 1 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n")
	for i := range nodes {
		fmt.Fprintf(&b, "#  Rank %2d Group  0 Pid  41%02d on     gpu%02d device  0 [0x1b] NVIDIA H100 80GB HBM3\n", i, i, i)
	}
	b.WriteString("#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n")
	fmt.Fprintf(&b, "           8             2     float     sum      -1    21.50    0.00    0.00      0    21.30    0.00    0.00      0\n")
	fmt.Fprintf(&b, "  4294967296    1073741824     float     sum      -1    90000   47.70   %.2f      0    90010   47.70   %.2f      0\n", bus, bus)
	fmt.Fprintf(&b, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : %.4f\n#\n", bus/2)
	n, err := pasted.ReadNCCLTests("# all_reduce_perf\n" + b.String())
	if err != nil {
		t.Fatal(err)
	}
	return CollectiveRun{Benchmark: Benchmarks()[0], Nodes: nodes, Ranks: nodes, Network: network, NCCL: &n}
}

func osuRun(t *testing.T, which, nodes int, network, text string) CollectiveRun {
	t.Helper()
	o, err := pasted.ReadOSU(text)
	if err != nil {
		t.Fatal(err)
	}
	return CollectiveRun{Benchmark: Benchmarks()[which], Nodes: nodes, Ranks: 4 * nodes, Network: network, OSU: &o}
}

const mbwMR = "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 4 ] [ window size: 64 ]\n# Size                  MB/s        Messages/s\n1                       12.40       12399812.21\n4194304              BEST          5871.10\n"

const alltoall = "# OSU MPI All-to-All Personalized Exchange Latency Test v7.4\n# Size       Avg Latency(us)\n1                       8.12\n2                       8.20\n65536                 120.41\n131072                BIG\n"

func TestJudgeCollectives(t *testing.T) {
	h100 := topology.Host{GPUs: make([]topology.GPU, 8)}
	h100.GPUs[0].Name = "NVIDIA H100 80GB HBM3"
	for _, tc := range []struct {
		name string
		runs func(*testing.T) []CollectiveRun
		want string // findings, then verdicts
	}{
		{
			"good", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{ncclRun(t, 1, 230, OverRDMA), ncclRun(t, 2, 46, OverRDMA), ncclRun(t, 4, 45, OverRDMA)}
			}, "note collective.floor; note collective.floor | good good good",
		},
		{
			"sockets from one node to two", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{ncclRun(t, 1, 230, OverRDMA), ncclRun(t, 2, 3, OverRDMA)}
			}, "error nccl-tests.bandwidth-low; error nccl-tests.node-drop; note collective.floor | good broken",
		},
		{
			"one rail of two", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{ncclRun(t, 1, 100, OverRDMA), ncclRun(t, 2, 24, OverRDMA)}
			}, "warning nccl-tests.bandwidth-low; note collective.floor | good degraded",
		},
		{
			"many times TCP", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{ncclRun(t, 2, 46, OverRDMA), ncclRun(t, 2, 2.5, OverTCP)}
			}, "note collective.floor | good unknown",
		},
		{
			"as fast as TCP", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{ncclRun(t, 2, 41, OverRDMA), ncclRun(t, 2, 40, OverTCP)}
			}, "warning compare.no-gain; note collective.floor | good unknown",
		},
		{
			"slower than TCP", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{osuRun(t, 2, 2, OverRDMA, strings.Replace(alltoall, "BIG", "300", 1)), osuRun(t, 2, 2, OverTCP, strings.Replace(alltoall, "BIG", "200", 1))}
			}, "error compare.no-gain | unknown unknown",
		},
		{
			"failed", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{{Benchmark: Benchmarks()[0], Nodes: 2, Network: OverRDMA, Failed: "status 1, and no table: it printed nothing"}}
			}, "error collective.failed | broken",
		},
		{
			"the watcher saw a fallback", func(t *testing.T) []CollectiveRun {
				r := ncclRun(t, 2, 46, OverRDMA)
				r.Fallback = "FALLBACK to TCP: NCCL finds no active RDMA device"
				return []CollectiveRun{r}
			}, "error collective.fallback; note collective.floor | broken",
		},
		{
			"OSU fills both rails", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{osuRun(t, 1, 2, OverRDMA, strings.Replace(mbwMR, "BEST", "48500.0", 1)), osuRun(t, 1, 4, OverRDMA, strings.Replace(mbwMR, "BEST", "97000.0", 1))}
			}, " | good good",
		},
		{
			"OSU on one rail of two", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{osuRun(t, 1, 2, OverRDMA, strings.Replace(mbwMR, "BEST", "24300.0", 1))}
			}, "error osu.bandwidth-low | broken",
		},
		{
			"loss", func(t *testing.T) []CollectiveRun {
				return []CollectiveRun{osuRun(t, 2, 4, OverRDMA, strings.Replace(alltoall, "BIG", "9800.5", 1))}
			}, "error fabric.loss-signature | broken",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs := tc.runs(t)
			fs := JudgeCollectives(runs, ptr(400.0), DefaultExpect(), []topology.Host{h100})
			var got, verdicts []string
			for _, f := range fs {
				got = append(got, string(f.Severity)+" "+f.ID)
				if f.Subject == "" {
					t.Errorf("%s is about nothing", f.ID)
				}
			}
			for _, r := range runs {
				verdicts = append(verdicts, string(r.Verdict))
			}
			if s := strings.Join(got, "; ") + " | " + strings.Join(verdicts, " "); s != tc.want {
				t.Errorf("got  %s\nwant %s\n%+v", s, tc.want, fs)
			}
		})
	}
	if fs := JudgeCollectives([]CollectiveRun{ncclRun(t, 2, 3, OverRDMA)}, nil, DefaultExpect(), nil); len(fs) != 0 {
		t.Errorf("without a known rate nothing is low: %+v", fs)
	}
}
