package main

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/launcher/watch"
	"fabrun/topology"
)

// sameProcess is a transport that runs fabrun itself, in this process, for each
// host; before it says its first word, the node's ranks write their log.
type sameProcess struct {
	mu   sync.Mutex
	dirs map[string]string
}

func (s *sameProcess) Exec(ctx context.Context, host string, cmd remote.Command, st remote.Streams) (int, error) {
	argv := append([]string(nil), cmd.Argv...)
	for i, w := range argv {
		if w == "--pattern" {
			argv[i+1] = filepath.Join(filepath.Dir(argv[i+1]), host, filepath.Base(argv[i+1]))
		}
		if w == "--follow" {
			argv[i+1] += "-" + host // every node has a file system of its own
			s.mu.Lock()
			s.dirs[host] = argv[i+1]
			s.mu.Unlock()
		}
	}
	return run(ctx, argv, nil, cmd.Stdin, st.Stdout, st.Stderr), nil
}

func (s *sameProcess) Name() string { return "same process" }
func (s *sameProcess) Close() error { return nil }

// TestEyesOfOtherNodes: what one node's private log says is an event here, and
// part of the verdict of the whole job.
func TestEyesOfOtherNodes(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	job := preparedJob{dir: t.TempDir(), spec: launcher.Spec{Argv: []string{"mpirun"}}}
	w, err := a.watchJob(p, &job, runOptions{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	tr := &sameProcess{dirs: map[string]string{}}
	dir := filepath.Join(t.TempDir(), "run")
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}, {Name: "n3"}, {Name: "n4-does-not-answer"}}
	w.lookThrough(context.Background(), &reached{transport: tr, names: []string{"n2", "n3"}, fabrun: "fabrun"}, p, dir)
	for host, log := range map[string]string{
		"n2": "n2:20:20 [0] NCCL INFO Using network IB\nn2:20:20 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n",
		"n3": "n3:30:30 [0] NCCL INFO NET/IB : No device found.\nn3:30:30 [0] NCCL INFO Using network Socket\nn3:30:30 [0] NCCL INFO comm 0x1 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n",
	} {
		tr.mu.Lock()
		d := tr.dirs[host]
		tr.mu.Unlock()
		if err := os.WriteFile(filepath.Join(d, "nccl.log"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finish(launcher.Status{}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"n3 rank 1: FALLBACK to TCP (no-device)", "fabrun: FALLBACK to TCP: Some ranks use RDMA and others sockets"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, errs.String())
		}
	}
	for host, d := range tr.dirs {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s keeps its directory: %v", host, err)
		}
	}
}

// TestOneNodeCannotBeLookedAt: what this node's own counters say counts, also
// for addresses that only the look before the start, or nobody, has told.
func TestOneNodeCannotBeLookedAt(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
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
			w := &watching{a: a, p: two, looks: map[string][2]watch.Sample{}, said: map[string]bool{}, peers: map[string]bool{}}
			w.lookThrough(context.Background(), &reached{hosts: c.seen}, two, "")
			for _, s := range c.looks {
				w.sample(s)
			}
			if !strings.Contains(w.counters.Text, c.want) || !strings.Contains(w.counters.Text, "n2 could not be looked at") {
				t.Errorf("%q lacks %q", w.counters.Text, c.want)
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
	a := &app{args: []string{"fabrun"}, stdout: out, stderr: errs, stdin: strings.NewReader("")}
	job := preparedJob{dir: t.TempDir(), spec: launcher.Spec{Argv: []string{"./a.out"}, Env: []string{"NCCL_DEBUG=INFO"}}}
	w, err := a.watchJob(plan.Plan{Dialect: cmdline.Plain}, &job, runOptions{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(job.spec.Stdout.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), "child")
	for _, p := range w.pumps {
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
	if err := w.finish(launcher.Status{}, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errs.text.String(), "FALLBACK to TCP (no-device)") {
		t.Errorf("stderr has no fallback:\n%s", &errs.text)
	}
}

// TestUserLogsOnOtherNodes: what the user set as NCCL_DEBUG_FILE is read on the
// node where it is written, and stays.
func TestUserLogsOnOtherNodes(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
	dir := t.TempDir()
	old := filepath.Join(dir, "n2", "nccl.n2.1.log")
	mine := filepath.Join(dir, "n2", "nccl.n2.20.log")
	if err := os.Mkdir(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("n2:1:1 [0] NCCL INFO NET/IB : No IP interface found.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{"mpirun", "-x", "NCCL_DEBUG_FILE=" + filepath.Join(dir, "nccl.%h.%p.log"), "./a.out"}
	job := preparedJob{spec: launcher.Spec{Argv: argv, Env: []string{"NCCL_DEBUG=INFO"}}}
	p := plan.Plan{Dialect: cmdline.OpenMPI5, Command: cmdline.Parse(cmdline.Launcher{Dialect: cmdline.OpenMPI5, Words: 1}, argv)}
	w, err := a.watchJob(p, &job, runOptions{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if job.spec.Stdout != nil || len(w.pumps) > 0 {
		t.Error("the job's streams are read although its logs go to files")
	}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}}
	w.lookThrough(context.Background(), &reached{transport: &sameProcess{dirs: map[string]string{}}, names: []string{"n2"}, fabrun: "fabrun"}, p, "")
	text := "n2:20:20 [0] NCCL INFO NET/IB : No device found.\nn2:20:20 [0] NCCL INFO Using network Socket\nn2:20:20 [0] NCCL INFO comm 0x1 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
	if err := os.WriteFile(mine, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.finish(launcher.Status{}, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "n2 rank 1: FALLBACK to TCP (no-device)") || strings.Contains(errs.String(), "no-oob-interface") {
		t.Errorf("stderr:\n%s", errs.String())
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != text {
		t.Errorf("the user's log was changed: %v", err)
	}
}

func TestWorkDir(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"mpirun ./a.out": here, "mpirun ./a.out -wdir /scratch": here, "srun ./a.out -D /scratch": here, "mpirun -wdir /scratch/job ./a.out": "/scratch/job", "srun --chdir=/scratch ./a.out": "/scratch",
		"mpirun --wdir sub ./a.out": filepath.Join(here, "sub"), "mpirun -wdir": here,
	} {
		argv := strings.Fields(line)
		if got := workDir(cmdline.Parse(cmdline.Identify(argv, "Open MPI 4.1.4", ""), argv)); got != want {
			t.Errorf("%s: %s, want %s", argv, got, want)
		}
	}
}

// TestStallOfTheJob: the word is said when all nodes have fallen silent, once, and
// with the ranks of all of them.
func TestStallOfTheJob(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}, {Name: "n3"}, {Name: "n4"}}
	standing := func(host string, rank int) []watch.Standing {
		w := watch.New(watch.Options{})
		log := "H:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nH:7:7 [0] NCCL INFO comm 0x1 rank R nranks 3 cudaDev 0 nvmlDev 0 busId 1 commId 0x2 - Init START\n"
		log = strings.NewReplacer("H", host, "R", strconv.Itoa(rank)).Replace(log)
		_, _ = w.Source("").Write([]byte(log))
		return w.Standings()
	}
	w := &watching{a: a, p: p, said: map[string]bool{}, stall: newStalls(), told: newQueue()}
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

// TestRecordKeepsLogs: with --record the private logs of all nodes lie beside the
// record when the run directories are gone.
func TestRecordKeepsLogs(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	dir := t.TempDir()
	rec := filepath.Join(dir, "job.rec")
	job := preparedJob{dir: filepath.Join(dir, "run"), spec: launcher.Spec{Argv: []string{"mpirun"}}}
	if err := os.Mkdir(job.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := a.watchJob(p, &job, runOptions{record: rec}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	tr := &sameProcess{dirs: map[string]string{}}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}}
	w.lookThrough(context.Background(), &reached{transport: tr, names: []string{"n2"}, fabrun: "fabrun"}, p, filepath.Join(dir, "there"))
	tr.mu.Lock()
	there := tr.dirs["n2"]
	tr.mu.Unlock()
	logs := map[string]string{job.dir: "nccl.n1.10.log", there: "nccl.n2.20.log"}
	for d, name := range logs {
		if err := os.WriteFile(filepath.Join(d, name), []byte("h:1:1 [0] NCCL INFO Using network IB\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(job.dir, "hostfile"), []byte("n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.finish(launcher.Status{}, false); err != nil {
		t.Fatal(err)
	}
	job.close()
	for _, name := range []string{"nccl.n1.10.log", "node-n2/nccl.n2.20.log"} {
		if text, err := os.ReadFile(filepath.Join(rec+".logs", name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(rec+".logs", "hostfile")); err == nil {
		t.Error("what is no log was kept")
	}
	if _, err := os.Stat(there); !os.IsNotExist(err) {
		t.Errorf("the node keeps its directory: %v", err)
	}
	if !strings.Contains(errs.String(), "logs are in "+rec+".logs") {
		t.Errorf("stderr:\n%s", errs.String())
	}
}
