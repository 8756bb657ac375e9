package watch

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ranksOf is a job of two ranks for each host, each on a GPU of its own.
type ranksOf struct {
	hosts        []string
	pid          int // of the first rank
	comm         string
	net, version string
	oneName      int  // 1: its machines go by one name
	bus          int  // of the first GPU of a host
	addr         bool // it says by which address it is reached
	old          bool // a release without Init START and commId
	fails        bool // before the set-up ends
}

// lines are those of each process, in its order.
func (j ranksOf) lines() [][]string {
	var out [][]string
	n := 2 * len(j.hosts)
	for r := range n {
		p := fmt.Sprintf("%s:%d:%d [%d] NCCL INFO ", j.hosts[r/2], j.pid+r, j.pid+100+r, r%2)
		id := fmt.Sprintf("comm 0x%x rank %d nranks %d cudaDev %d busId %x", 4096+r, r, n, r%2, (j.bus+r%2)*4096)
		via := "NET/" + j.net + "/0"
		l := []string{}
		if j.addr {
			l = append(l, p+fmt.Sprintf("Bootstrap : Using eth0:10.0.%d.%d<0>", j.hosts[r/2][len(j.hosts[r/2])-1], 1+r/2*j.oneName))
		}
		l = append(l, p+"cudaDriverVersion 12040", p+"NCCL version "+j.version+"+cuda12.4", p+"Using network "+j.net)
		if !j.old {
			l = append(l, p+"ncclCommInitRank "+id+" commId "+j.comm+" - Init START")
		}
		if j.fails {
			l = append(l, fmt.Sprintf("%s:%d:%d [%d] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", j.hosts[r/2], j.pid+r, j.pid+100+r, r%2))
			out = append(out, l)
			continue
		}
		l = append(l, p+fmt.Sprintf("Channel 00/0 : %d[%d] -> %d[%d] [send] via ", r, r%2, (r+1)%n, (r+1)%2)+via, p+"Connected all rings")
		if j.old {
			l = append(l, p+id+" - Init COMPLETE")
		} else {
			l = append(l, p+"ncclCommInitRank "+id+" commId "+j.comm+" - Init COMPLETE")
		}
		out = append(out, l)
	}
	return out
}

// mixed writes the lines of several processes as they may come: each in its own
// order.
func mixed(r *rand.Rand, procs [][]string) string {
	procs = slices.Clone(procs)
	var b strings.Builder
	for len(procs) > 0 {
		i := r.IntN(len(procs))
		b.WriteString(procs[i][0] + "\n")
		if procs[i] = procs[i][1:]; len(procs[i]) == 0 {
			procs = slices.Delete(procs, i, i+1)
		}
	}
	return b.String()
}

// runDigest is what is said of each run.
func runDigest(v Verdict) string {
	runs := v.Runs
	if len(runs) == 0 {
		runs = []Verdict{v}
	}
	var out []string
	for _, r := range runs {
		skew := slices.ContainsFunc(r.Events, func(e Event) bool { return e.ID == "version-skew" })
		out = append(out, fmt.Sprintf("%s %v fb=%s %s of %s skew=%v fatal=%v", r.Version, sorted(r.Networks), show(r.Fallback), show(r.RanksSeen), show(r.NRanks), skew, r.FatalErrors))
	}
	return strings.Join(out, "; ")
}

// TestRuns: what belongs to different runs is judged apart, and what belongs to one
// run together, in whatever order the ranks of a run speak.
func TestRuns(t *testing.T) {
	two := []string{"n1", "n2"}
	first := ranksOf{hosts: two, pid: 1000, comm: "0xaaa", net: "Socket", version: "2.21.5", bus: 1, addr: true}
	second := ranksOf{hosts: two, pid: 2000, comm: "0xbbb", net: "IB", version: "2.27.7", bus: 1, addr: true}
	third := ranksOf{hosts: []string{"n2", "n3"}, pid: 3000, comm: "0xccc", net: "IB", version: "2.27.7", bus: 1, addr: true, fails: true}
	oldFirst, oldSecond := first, second
	oldFirst.old, oldSecond.old = true, true
	oldFirst.version, oldSecond.version = "2.8.4", "2.10.3"
	otherGroup := second
	otherGroup.bus, otherGroup.version = 5, "2.21.5"
	oneName := first
	oneName.hosts, oneName.oneName = []string{"localhost", "localhost"}, 1
	const (
		ofFirst  = "2.21.5 [Socket] fb=true 4 of 4 skew=false fatal=[]"
		ofSecond = "2.27.7 [IB] fb=false 4 of 4 skew=false fatal=[]"
	)
	for _, c := range []struct {
		name string
		runs [][]ranksOf // what starts together
		want string
	}{
		{"one run", [][]ranksOf{{first}}, ofFirst},
		{"two runs", [][]ranksOf{{first}, {second}}, ofFirst + "; " + ofSecond},
		{"the other way round", [][]ranksOf{{second}, {first}}, ofSecond + "; " + ofFirst},
		{"a restart that fails, on partly other nodes", [][]ranksOf{{first}, {third}, {second}}, ofFirst + "; 2.27.7 [IB] fb=false 4 of 4 skew=false fatal=[ib-completion-error-12]; " + ofSecond},
		{"releases without commId", [][]ranksOf{{oldFirst}, {oldSecond}}, "2.8.4 [Socket] fb=true 4 of 4 skew=false fatal=[]; 2.10.3 [IB] fb=false 4 of 4 skew=false fatal=[]"},
		{"two groups of one run", [][]ranksOf{{first, otherGroup}}, "2.21.5 [IB Socket] fb=true 4 of 4 skew=false fatal=[]"},
		{"a group that comes later", [][]ranksOf{{first}, {otherGroup}}, "2.21.5 [IB Socket] fb=true 4 of 4 skew=false fatal=[]"},
		{"machines of one name", [][]ranksOf{{oneName}}, ofFirst},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 1))
				var log strings.Builder
				for _, together := range c.runs {
					var procs [][]string
					for _, j := range together {
						procs = append(procs, j.lines()...)
					}
					log.WriteString(mixed(r, procs))
				}
				if got := runDigest(mustScan(t, log.String())); got != c.want {
					t.Fatalf("seed %d\ngot  %s\nwant %s\n%s", seed, got, c.want, log.String())
				}
			}
		})
	}
}

// TestRunsInFilesOfRanks: a file for each rank, each with two runs, read one after the
// other.
func TestRunsInFilesOfRanks(t *testing.T) {
	first := ranksOf{hosts: []string{"n1", "n2"}, pid: 1000, comm: "0xaaa", net: "Socket", version: "2.21.5", bus: 1, addr: true}
	second := ranksOf{hosts: []string{"n1", "n2"}, pid: 2000, comm: "0xbbb", net: "IB", version: "2.27.7", bus: 1, addr: true}
	for _, old := range []bool{false, true} {
		first.old, second.old = old, old
		w := New(Options{})
		a, b := first.lines(), second.lines()
		for r := range a {
			if _, err := w.Source("").ReadFrom(strings.NewReader(strings.Join(append(a[r], b[r]...), "\n") + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		const want = "2.21.5 [Socket] fb=true 4 of 4 skew=false fatal=[]; 2.27.7 [IB] fb=false 4 of 4 skew=false fatal=[]"
		if got := runDigest(w.Verdict()); got != want {
			t.Errorf("old=%v\ngot  %s\nwant %s", old, got, want)
		}
	}
}

// TestOneRunOfManyProcesses: 64 processes that speak at once, and what they split
// their communicator into, are one run.
func TestOneRunOfManyProcesses(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var procs [][]string
	for rank := range 64 {
		host := fmt.Sprintf("n%d", rank/8)
		p := fmt.Sprintf("%s:%d:%d [%d] NCCL INFO ", host, 100+rank%8, 200+rank%8, rank%8)
		comm := func(fn string, id, r, n int) string {
			return p + fmt.Sprintf("%s comm 0x%x rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%x - Init ", fn, id, r, n, rank%8, rank%8, 4096*(1+rank%8), id)
		}
		l := []string{p + "cudaDriverVersion 12040", p + "Using network IB"}
		// The groups of a node come first, then all, then halves of them.
		for _, c := range []string{comm("ncclCommInitRank", 16+rank/8, rank%8, 8), comm("ncclCommInitRank", 1, rank, 64), comm("ncclCommSplit", 2+rank%2, rank/2, 32)} {
			l = append(l, c+"START", c+"COMPLETE")
		}
		procs = append(procs, l)
	}
	if got, want := runDigest(mustScan(t, mixed(r, procs))), " [IB] fb=false 64 of 64 skew=false fatal=[]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRunsOfOtherKinds: what a benchmark in a loop, Intel MPI and a container that is
// started again print a second time.
func TestRunsOfOtherKinds(t *testing.T) {
	tests := func(host string) string {
		return "#  Rank  0 Group  0 Pid    880 on n1 device  0 [0xa4] NVIDIA A100\n#  Rank  1 Group  0 Pid    881 on " + host + " device  0 [0xa9] NVIDIA A100\n#\n#       out-of-place                       in-place\n"
	}
	intel := func(provider, host string) string {
		return "[0] MPI startup(): Intel(R) MPI Library, Version 2021.6\n[0] MPI startup(): libfabric provider: " + provider + "\n[0] MPI startup(): 0       12345    n1    {0,1}\n[0] MPI startup(): 1       12346    " + host + "    {0,1}\n[0] MPI startup(): I_MPI_ROOT=/opt\n"
	}
	again := ranksOf{hosts: []string{"pod-0"}, pid: 50, comm: "0xaaa", net: "IB", version: "2.21.5", bus: 1, fails: true}
	healthy := again
	healthy.fails, healthy.comm, healthy.version = false, "0xbbb", "2.27.7"
	join := func(j ranksOf) string { return mixed(rand.New(rand.NewPCG(1, 1)), j.lines()) }
	for _, c := range []struct{ name, log, want string }{
		{"nccl-tests", tests("n1") + tests("n2"), " [] fb=false 2 of 2 skew=false fatal=[];  [] fb=null 2 of 2 skew=false fatal=[]"},
		{"Intel MPI", intel("tcp", "n2") + intel("mlx", "n2"), "2021.6 [tcp] fb=true 2 of 2 skew=false fatal=[]; 2021.6 [mlx] fb=false 2 of 2 skew=false fatal=[]"},
		{"the same process numbers after a failure", join(again) + join(healthy), "2.21.5 [IB] fb=false 2 of 2 skew=false fatal=[ib-completion-error-12]; 2.27.7 [IB] fb=false 2 of 2 skew=false fatal=[]"},
	} {
		if got := runDigest(mustScan(t, c.log)); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

var (
	pidOf  = regexp.MustCompile(`:(\d+):(\d+) \[`)
	commOf = regexp.MustCompile(`commId 0x`)
)

// TestRealLogTwice: a real log, and behind it the same run again with other process
// numbers, are two runs with the same verdict; the log alone is one. How many ranks of
// each are seen hangs on processes of which parts of logs do not say whose they are.
func TestRealLogTwice(t *testing.T) {
	tried := 0
	for name, text := range allLogs(t) {
		once := mustScan(t, string(text))
		if len(once.Runs) > 0 {
			// Its manifest tells of a second start of the program.
			if !strings.HasPrefix(name, "logs/13-") || len(once.Runs) != 2 {
				t.Errorf("%s is %d runs", name, len(once.Runs))
			}
			continue
		}
		// Only where each process says its communicator, and hosts are spelt as they are.
		if !bytes.Contains(text, []byte(" busId ")) || !bytes.Contains(text, []byte("commId 0x")) || strings.Contains(name, "mangled") || once.RanksSeen == nil {
			continue
		}
		tried++
		other := pidOf.ReplaceAllFunc(text, func(b []byte) []byte {
			m := pidOf.FindSubmatch(b)
			pid, _ := strconv.Atoi(string(m[1]))
			return fmt.Appendf(nil, ":%d:%s [", pid+1_000_000, m[2])
		})
		other = commOf.ReplaceAll(other, []byte("commId 0xf"))
		w := New(Options{})
		_, _ = w.Source("").ReadFrom(io.MultiReader(bytes.NewReader(text), strings.NewReader("\n"), bytes.NewReader(other)))
		v := w.Verdict()
		if len(v.Runs) != 2 {
			t.Errorf("%s twice is %d runs", name, len(v.Runs))
			continue
		}
		for i, run := range v.Runs {
			if d := cmp.Diff([]string{fmt.Sprint(once.Networks, once.InterNodeTransports, show(once.Fallback), show(once.NRanks), show(once.GDR))},
				[]string{fmt.Sprint(run.Networks, run.InterNodeTransports, show(run.Fallback), show(run.NRanks), show(run.GDR))}); d != "" {
				t.Errorf("%s, run %d (-alone +here):\n%s", name, i+1, d)
			}
		}
	}
	t.Logf("%d logs", tried)
}
