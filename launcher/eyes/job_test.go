package eyes

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
	"fabrun/topology"
)

// TestOneNodeCannotBeLookedAt: what this node's own counters say counts, also
// for addresses that only the look before the start, or nobody, has told.
func TestOneNodeCannotBeLookedAt(t *testing.T) {
	var errs bytes.Buffer
	two := plan.Plan{Dialect: cmdline.OpenMPI5, RDMA: true}
	two.Hosts.Hosts = []hosts.Host{{Name: "n1"}, {Name: "n2"}}
	look := func(second int, tcp uint64, queues, packets int) watch.Sample {
		return watch.Sample{
			Time: time.Unix(int64(second), 0), Host: "n1", Addresses: []string{"10.1.0.1", "10.1.4.1"},
			TCP: []watch.PeerBytes{{Peer: "10.1.4.2", Tx: tcp}},
			Ports: []watch.PortSample{{
				HCA: "rxe0", Port: 1, Active: true, QueuePair: &queues,
				Counters: map[watch.Counter]uint64{watch.TxPackets: uint64(packets)},
			}},
		}
	}
	for _, c := range []struct {
		name  string
		seen  []topology.Host
		looks []watch.Sample
		want  string // of the verdict
	}{
		{
			"addresses from the look before the start",
			[]topology.Host{{Name: "n2", Netdevs: []topology.Netdev{{Name: "rail0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.4.2/24")}}}}},
			[]watch.Sample{look(0, 0, 0, 0), look(1, 24_000_000, 0, 0), look(2, 24_000_000, 0, 0)},
			"24.0 MB went over TCP between the job's own hosts and nothing over RDMA",
		},
		{
			"nobody knows the address", nil,
			[]watch.Sample{look(0, 0, 0, 0), look(1, 24_000_000, 0, 0)},
			"n1 moved 24.0 MB by TCP to addresses that are not known to be the job's, and nothing by RDMA. (n2 could not be looked at.)",
		},
		{
			"the ranks' queues are gone at the last look",
			[]topology.Host{{Name: "n2", Netdevs: []topology.Netdev{{Name: "rail0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.4.2/24")}}}}},
			[]watch.Sample{look(0, 0, 0, 0), look(1, 2_000_000, 4, 80_000), look(2, 2_000_000, 0, 90_000)},
			"RDMA carried 92.2 MB",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &Job{contract: contract.New(contract.Promise{}), cfg: JobConfig{Plan: two, Say: report.Own(&errs, nil)}, said: map[string]bool{}, traffic: newTraffic()}
			w.traffic.peers = map[string]bool{}
			w.Open(t.Context(), Nodes{Hosts: c.seen}, two, "")
			for _, s := range c.looks {
				w.sample(s)
			}
			if !strings.Contains(w.traffic.verdict.Text, c.want) || !strings.Contains(w.traffic.verdict.Text, "n2 could not be looked at") {
				t.Errorf("%q lacks %q", w.traffic.verdict.Text, c.want)
			}
		})
	}
}

// slowWriter takes nothing until it is let.
type slowWriter struct {
	let  chan struct{}
	text bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.let
	return w.text.Write(p)
}

// TestStreamsDoNotWaitForStderr: a fallback that is read from the job's standard
// output is told on standard error, and if nobody reads that one, the output
// goes on all the same.
func TestStreamsDoNotWaitForStderr(t *testing.T) {
	errs := &slowWriter{let: make(chan struct{})}
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := launcher.Spec{Argv: []string{"./a.out"}}
	w, err := WatchJob(JobConfig{Plan: plan.Plan{Dialect: cmdline.Plain}, Env: []string{"NCCL_DEBUG=INFO"}, Dir: t.TempDir(), Stdout: out, Stderr: errs, Say: report.Own(errs, nil)}, &spec)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(spec.Stdout.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), "child")
	for _, p := range w.streams.pumps {
		p.Start()
	}
	text := []byte("n1:1:1 [0] NCCL INFO NET/IB : No device found.\nn1:1:1 [0] NCCL INFO Using network Socket\nn1:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n")
	text = append(text, bytes.Repeat([]byte("a line of the program\n"), 1<<16)...)
	go func() {
		_, _ = child.Write(text)
		_ = child.Close()
	}()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the output does not arrive while stderr is not read: %v", err)
	}
	close(errs.let)
	w.Finish(launcher.Status{}, func(Result) {})
	if !strings.Contains(errs.text.String(), "FALLBACK to TCP (no-device)") {
		t.Errorf("stderr has no fallback:\n%s", &errs.text)
	}
}

// TestStallOfTheJob: the word is said when all nodes have fallen silent, once, and
// with the ranks of all of them.
func TestStallOfTheJob(t *testing.T) {
	var errs bytes.Buffer
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}, {Name: "n3"}, {Name: "n4"}}
	standing := func(host string, rank int) []watch.Standing {
		w := watch.New(watch.Options{})
		log := "H:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nH:7:7 [0] NCCL INFO comm 0x1 rank R nranks 3 cudaDev 0 nvmlDev 0 busId 1 commId 0x2 - Init START\n"
		log = strings.NewReplacer("H", host, "R", strconv.Itoa(rank)).Replace(log)
		_, _ = w.Source("").Write([]byte(log))
		return w.Standings()
	}
	w := &Job{contract: contract.New(contract.Promise{}), cfg: JobConfig{Plan: p, Say: report.Own(&errs, nil)}, said: map[string]bool{}, stall: newStalls(), told: newQueue()}
	w.stall.open["n2"], w.stall.open["n3"] = true, true
	w.quiet("n2", standing("n2", 0))
	w.quiet("n3", standing("n3", 1))
	w.quiet("n3", nil) // a line came
	w.quiet("", []watch.Standing{})
	if w.stall.said {
		t.Error("a stall is told although one node goes on")
	}
	w.quiet("n3", standing("n3", 1))
	w.quiet("n3", standing("n3", 1))
	w.told.close()
	out := errs.String()
	for _, want := range []string{"No progress in the set-up for 60 s", "Nothing was seen of rank 2", "n4 could not be looked at", "n2: ranks 0", "n3: ranks 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("stderr lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "set-up of 3 ranks has stopped"); n != 1 {
		t.Errorf("told %d times:\n%s", n, out)
	}
}
