package measure

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// Benchmark is a program that measures all nodes of a job together.
type Benchmark struct {
	Name  string
	Suite string // "nccl-tests", "osu"
	Args  []string
	Nodes []int // on how many it is run, where there are so many
	GPUs  bool  // one rank a GPU; else a few a node
}

// Benchmarks is the explicit list, in the order in which they are run. The
// sizes begin small, for loss shows there, and end where a link is full.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{"all_reduce_perf", "nccl-tests", []string{"-b", "8", "-e", "4G", "-f", "2", "-g", "1"}, []int{1, 2, 4, 8}, true},
		{"osu_mbw_mr", "osu", nil, []int{2, 4, 8}, false},
		{"osu_alltoall", "osu", nil, []int{2, 4, 8}, false},
	}
}

// BenchmarkDirs are the folders in which sites keep the programs, beside PATH:
// the images of Azure (azhpc-images), HPC-X, and what 'make install' of either
// suite does.
func BenchmarkDirs() []string {
	return []string{
		"/opt/nccl-tests/build", "/usr/local/nccl-tests/build", "/opt/nccl_tests/build",
		"/usr/local/libexec/osu-micro-benchmarks/mpi/pt2pt", "/usr/local/libexec/osu-micro-benchmarks/mpi/collective",
		"/usr/libexec/osu-micro-benchmarks/mpi/pt2pt", "/usr/libexec/osu-micro-benchmarks/mpi/collective",
		"/opt/osu-micro-benchmarks/mpi/pt2pt", "/opt/osu-micro-benchmarks/mpi/collective",
	}
}

// The networks of a CollectiveRun.
const (
	OverRDMA = "rdma" // as planned
	OverTCP  = "tcp"  // the same over TCP, for comparison
)

// CollectiveRun is one benchmark that was run on some nodes.
type CollectiveRun struct {
	Benchmark Benchmark
	Nodes     int
	Ranks     int
	Network   string
	NCCL      *pasted.NCCLTests
	OSU       *pasted.OSU
	Failed    string // why there is no result; "" there is one
	Fallback  string // what the watcher said of a fallback; "" none seen
	Verdict   Verdict
}

// Best is the best bandwidth in Gb/s: the bus bandwidth of nccl-tests, OSU's
// bandwidth per pair of nodes; nil without one.
func (r CollectiveRun) Best() *float64 {
	switch {
	case r.NCCL != nil && r.NCCL.BestBus() != nil:
		return ptr(*r.NCCL.BestBus() * 8)
	case r.OSU != nil && r.OSU.Kind == "bandwidth":
		best := 0.0
		for _, row := range r.OSU.Rows {
			if row.MBps != nil {
				best = max(best, *row.MBps)
			}
		}
		if best > 0 {
			return ptr(best * 8 / 1000 / float64(max(1, r.Nodes/2)))
		}
	}
	return nil
}

// BigUsec is the time of the largest message of a latency test; nil for others.
func (r CollectiveRun) BigUsec() *float64 {
	if r.OSU == nil || r.OSU.Kind != "latency" || len(r.OSU.Rows) == 0 {
		return nil
	}
	return r.OSU.Rows[len(r.OSU.Rows)-1].Usec
}

// Title names a run: "all_reduce_perf on 2 nodes".
func (r CollectiveRun) Title() string {
	s := fmt.Sprintf("%s on %d nodes", r.Benchmark.Name, r.Nodes)
	if r.Nodes == 1 {
		s = r.Benchmark.Name + " on 1 node"
	}
	if r.Network == OverTCP {
		s += " over TCP"
	}
	return s
}

// noGain is the factor below which RDMA is not told from TCP: kernels reach a
// third to a half of a 100 Gb/s port with many streams, and far less of what is
// faster.
const noGain = 1.5

// JudgeCollectives judges each run against what the rails of a node allow (the
// sum of their rates, nil not known), one node against two, and RDMA against
// TCP where both were run. It sets each run's Verdict.
func JudgeCollectives(runs []CollectiveRun, railsGbps *float64, e Expect, hosts []topology.Host) []finding.Finding {
	var out []finding.Finding
	var single *float64
	for i := range runs {
		r := &runs[i]
		add := func(fs ...finding.Finding) {
			for _, f := range fs {
				f.Subject = r.Title()
				out = append(out, f)
			}
		}
		r.Verdict = Unknown
		switch {
		case r.Failed != "":
			r.Verdict = Broken
			add(finding.Finding{
				ID: "collective.failed", Severity: finding.Error, Seen: r.Failed, Wanted: "a table of results", Why: "the job did not run to its end",
				Hint: "run it by hand: fabrun -v mpirun …, which names the cause",
			})
			continue
		case r.Network == OverTCP:
			continue // what TCP can do is not judged
		case r.NCCL != nil:
			sum := 0.0
			if railsGbps != nil {
				sum = *railsGbps
			}
			n := *r.NCCL
			if len(n.Hosts) == 0 && r.Nodes == 1 {
				n.Hosts = []string{"one"}
			}
			var before *float64
			if r.Nodes == 2 {
				before = single
			}
			v, fs := JudgeNCCLTests(n, sum, before)
			r.Verdict = v
			add(fs...)
			if r.Nodes == 1 && v != Broken {
				single = n.BestBus()
				r.Verdict = Good
			}
			if r.Nodes > 1 {
				add(floorNotes(n, hosts)...)
			}
		case r.OSU != nil:
			ex := e
			ex.RateGbps = nil
			if railsGbps != nil {
				ex.RateGbps = ptr(*railsGbps * float64(max(1, r.Nodes/2)))
			}
			v, fs := JudgeOSU(*r.OSU, ex)
			r.Verdict = v
			add(fs...)
		}
		if r.Fallback != "" {
			r.Verdict = Broken
			add(finding.Finding{
				ID: "collective.fallback", Severity: finding.Error, Seen: r.Fallback, Wanted: "RDMA, as planned", Why: "the watcher saw the data go over TCP",
				Hint: "fabrun -v run on the same command says more",
			})
		}
	}
	for _, r := range runs {
		if r.Network != OverTCP || r.Failed != "" {
			continue
		}
		i := slices.IndexFunc(runs, func(o CollectiveRun) bool {
			return o.Network == OverRDMA && o.Failed == "" && o.Nodes == r.Nodes && o.Benchmark.Name == r.Benchmark.Name
		})
		if i < 0 {
			continue
		}
		gain := Gain(runs[i], r)
		if gain == nil || *gain >= noGain {
			continue
		}
		f := finding.Finding{
			ID: "compare.no-gain", Severity: finding.Warning, Subject: runs[i].Title(), Seen: fmt.Sprintf("%.1f times as fast as over TCP", *gain),
			Wanted: "several times", Why: "RDMA that is no faster than sockets is usually sockets, or a fast fabric held up elsewhere",
			Hint: "'fabrun watch' on the NCCL_DEBUG=INFO log says which network carried the data",
		}
		if *gain < 1 {
			f.Severity = finding.Error
		}
		out = append(out, f)
	}
	finding.Sort(out)
	return out
}

// Gain says how many times as fast RDMA was as TCP; nil where the two runs
// have no figure in common.
func Gain(rdma, tcp CollectiveRun) *float64 {
	if a, b := rdma.Best(), tcp.Best(); a != nil && b != nil && *b > 0 {
		return ptr(*a / *b)
	}
	if a, b := rdma.BigUsec(), tcp.BigUsec(); a != nil && b != nil && *a > 0 {
		return ptr(*b / *a)
	}
	return nil
}

// floors are the bus bandwidths, GB/s, below which public health checks of
// 8-GPU nodes fail a node: Oracle's oci-hpc roles and Azure's
// azurehpc-health-checks. They are of those clouds' fabrics: notes.
var floors = []struct {
	gpu  string
	gbps float64
	who  string
}{
	{"A100", 185, "Oracle"},
	{"H100", 440, "Oracle (Azure: 460)"},
	{"H200", 440, "Oracle"},
	{"B200", 440, "Oracle"},
	{"B300", 800, "Oracle"},
	{"MI300X", 350, "Oracle"},
}

func floorNotes(n pasted.NCCLTests, hosts []topology.Host) []finding.Finding {
	best := n.BestBus()
	if best == nil || len(hosts) == 0 || len(hosts[0].GPUs) != 8 || n.Collective != "all_reduce_perf" {
		return nil
	}
	for _, f := range floors {
		if strings.Contains(hosts[0].GPUs[0].Name, f.gpu) {
			return []finding.Finding{{
				ID: "collective.floor", Severity: finding.Note, Seen: fmt.Sprintf("%.0f GB/s bus bandwidth", *best), Wanted: fmt.Sprintf("%.0f GB/s on 8 %s, says %s", f.gbps, f.gpu, f.who),
				Why: "what a cloud's health check takes for healthy on its own fabric",
			}}
		}
	}
	return nil
}
