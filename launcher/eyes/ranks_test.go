package eyes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/hang"
	"fabrun/testdata/wait"
)

// aRank starts a process with a job's mark and these variables.
func aRank(t *testing.T, mark, script string, env ...string) *os.Process {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Env = append([]string{"PATH=/usr/bin:/bin", "FABRUN_JOB=" + mark}, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		//nolint:errcheck // it may have ended
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	})
	return c.Process
}

// TestRanksLook: what ranks of this machine do, read from its own /proc.
func TestRanksLook(t *testing.T) {
	mark := launcher.NewMark()
	agent := []string{"SLURM_PROCID=0", "PMI_RANK=0"}
	torch := func(rank int) []string {
		return append(slices.Clone(agent), fmt.Sprint("RANK=", rank), "LOCAL_WORLD_SIZE=4")
	}
	aRank(t, mark, "exec sleep 1000", agent...) // in torchrun's place
	dozes := aRank(t, mark, "exec sleep 1000", torch(0)...)
	wrapped := aRank(t, mark, "sleep 1000; true", torch(1)...)
	stops := aRank(t, mark, "exec sleep 1000", torch(2)...)
	spins := aRank(t, mark, "while :; do :; done", torch(3)...)
	aRank(t, launcher.NewMark(), "exec sleep 1000", "RANK=7", "LOCAL_WORLD_SIZE=8") // of another job
	send := func(p *os.Process, sig syscall.Signal) {
		t.Helper()
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	send(stops, syscall.SIGSTOP)
	r := NewRanks("node01", mark, nil, false, nil)
	var by map[int]hang.Rank
	see := func(what string, is func() bool) {
		t.Helper()
		wait.For(t, what, func() bool {
			r.anew = true
			by = map[int]hang.Rank{}
			for _, k := range r.Look(time.Now()).Ranks {
				if k.Rank == nil {
					t.Fatalf("no rank: %+v", k)
				}
				by[*k.Rank] = k
			}
			return len(by) == 4 && is()
		})
	}
	// The state of each: one that has just started may still be on its way.
	see("all as they are meant to be", func() bool {
		return by[0].State == "S" && by[1].State == "S" && by[2].State == "T" && by[3].CPU > 0.2 && by[1].Wait == by[0].Wait && by[0].TCP != nil
	})
	for n, p := range map[int]*os.Process{0: dozes, 1: wrapped, 2: stops, 3: spins} {
		if by[n].PID != p.Pid {
			t.Errorf("rank %d is process %d, want %d", n, by[n].PID, p.Pid)
		}
	}
	if w := by[0].Wait; w != "" && !strings.Contains(w, "nanosleep") && !strings.Contains(w, "nsleep") {
		t.Errorf("a sleep waits in %q", w)
	}
	// What a rank has started is of the rank.
	send(stops, syscall.SIGCONT)
	see("it goes on", func() bool { return by[2].State == "S" })
	below := launcher.Children(wrapped.Pid)
	if len(below) != 1 {
		t.Fatalf("%d children", len(below))
	}
	if err := syscall.Kill(below[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	see("the child is stopped", func() bool { return by[1].State == "T" })
	send(dozes, syscall.SIGKILL)
	wait.For(t, "one is gone", func() bool { return len(r.Look(time.Now()).Ranks) < 4 })
}

// TestRanksBeforeThereAreAny: what is to start them is looked at, and what is
// stopped beside them.
func TestRanksBeforeThereAreAny(t *testing.T) {
	mark := launcher.NewMark()
	starter := aRank(t, mark, "exec sleep 1000")
	r := NewRanks("node01", mark, nil, false, nil)
	wait.For(t, "the starter", func() bool {
		ranks := r.Look(time.Now()).Ranks
		return len(ranks) == 1 && ranks[0].PID == starter.Pid && ranks[0].Rank == nil
	})
	aRank(t, mark, "exec sleep 1000", "OMPI_COMM_WORLD_RANK=5")
	wait.For(t, "a rank", func() bool {
		ranks := r.Look(time.Now()).Ranks
		return len(ranks) == 1 && ranks[0].Rank != nil && *ranks[0].Rank == 5
	})
	if err := starter.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the starter is stopped", func() bool {
		r.anew = true
		ranks := r.Look(time.Now()).Ranks
		return len(ranks) == 2 && slices.ContainsFunc(ranks, func(k hang.Rank) bool { return k.PID == starter.Pid && k.Rank == nil && k.State == "T" })
	})
}

func TestRankOf(t *testing.T) {
	for _, c := range []struct {
		env      string
		rank, by int
	}{
		{"RANK=3 LOCAL_WORLD_SIZE=8 SLURM_PROCID=0 PMI_RANK=0", 3, 0},
		{"RANK=3 OMPI_COMM_WORLD_RANK=1", 1, 1}, // of a script of the user's own
		{"PMIX_RANK=2 SLURM_PROCID=2", 2, 2},
		{"PMI_RANK=2 SLURM_PROCID=2", 2, 3},
		{"SLURM_PROCID=4", 4, 7},
		{"SLURM_PROCID=x", -1, -1},
		{"RANK=3", -1, -1},
		{"", -1, -1},
	} {
		if rank, by := rankOf(strings.Fields(c.env)); rank != c.rank || by != c.by {
			t.Errorf("%s: %d, %d, want %d, %d", c.env, rank, by, c.rank, c.by)
		}
	}
}

func TestPortBytes(t *testing.T) {
	sys := fstest.MapFS{}
	put := func(dev, file, text string) {
		sys["class/infiniband/"+dev+"/ports/1/"+file] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	put("mlx5_0", "state", "4: ACTIVE")
	put("mlx5_0", "counters/port_xmit_data", "100")
	put("mlx5_0", "counters/port_rcv_data", "50")
	put("mlx5_0", "counters/port_xmit_packets", "7")
	put("mlx5_0", "hw_counters/out_of_sequence", "9")
	put("mlx5_1", "state", "1: DOWN")
	put("mlx5_1", "counters/port_xmit_data", "1000")
	put("rxe_0", "state", "4: ACTIVE")
	put("rxe_0", "hw_counters/sent_pkts", "2")
	put("rxe_0", "hw_counters/rcvd_pkts", "1")
	put("siw0", "state", "4: ACTIVE") // counts nothing
	for only, want := range map[string]uint64{"": 600 + 3<<10, "mlx5_0:1": 600, "rxe_0:1": 3 << 10} {
		got, n := portBytes(sys, strings.Fields(only))
		if got == nil || *got != want || n != map[bool]int{true: 2, false: 1}[only == ""] {
			t.Errorf("%q: %v of %d ports, want %d", only, got, n, want)
		}
	}
	if got, n := portBytes(sys, []string{"siw0:1"}); got != nil || n != 0 {
		t.Errorf("a port that counts nothing: %v of %d", got, n)
	}
	if got, n := portBytes(fstest.MapFS{}, nil); got != nil || n != 0 {
		t.Errorf("no RDMA: %v of %d", got, n)
	}
}

// rasServer stands in for a RAS thread: it hears the commands of one client after
// the other, and gives each the answer.
func rasServer(t *testing.T, answer string) (address string, heard chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	heard = make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all := ""
			for b := make([]byte, 256); !strings.Contains(all, "STATUS\n"); {
				n, err := c.Read(b)
				if all += string(b[:n]); err != nil {
					break
				}
			}
			heard <- all
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}()
	return l.Addr().String(), heard
}

// rasText is an answer in the form of NCCL's documentation.
func rasText(counts ...int) string {
	var ranks []string
	for r, n := range counts {
		ranks = append(ranks, fmt.Sprintf(`{"rank": %d, "host": "10.0.0.1", "pid": %d, "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": %d}}`, r, 100+r, n))
	}
	return fmt.Sprintf("OK\nOK\n"+`{"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [{"hash": "0x1", "secondary_hash": "0x2:0x3", "size": %d, "ranks": [%s], "missing_ranks": []}]}`+"\n", len(counts), strings.Join(ranks, ","))
}

// TestAskRAS: a stand-in for NCCL's RAS that is healthy, that tells of a lag, and
// that is of a version without JSON.
func TestAskRAS(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		behind int
		bad    string
	}{
		"healthy": {rasText(7, 7), 0, ""},
		"lagging": {rasText(7, 6), 1, ""},
		"old":     {"OK\nERROR: Unknown command SET FORMAT json\nNCCL version 2.24.3 compiled with CUDA 12.4\n\nJob summary\n", 0, "before NCCL 2.28.7"},
		"closed":  {"", 0, "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			address, heard := rasServer(t, c.answer)
			r, err := askRAS(t.Context(), address)
			if c.bad != "" {
				if err == nil || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("%v, want an error with %q", err, c.bad)
				}
				return
			}
			if err != nil || len(r.Comms) != 1 || r.Comms[0].BehindN != c.behind {
				t.Errorf("%+v, %v", r, err)
			}
			if got := <-heard; got != "TIMEOUT 3\nSET FORMAT json\nVERBOSE STATUS\n" {
				t.Errorf("asked %q", got)
			}
		})
	}
}

// TestRASOnlyOnLoopback: no other machine is asked, and no job that has turned it off.
func TestRASOnlyOnLoopback(t *testing.T) {
	one := 1
	for env, want := range map[string]string{
		"": rasAddress, "NCCL_RAS_ADDR=127.0.0.1:4711": "127.0.0.1:4711", "NCCL_RAS_ADDR=[::1]:4711": "[::1]:4711",
		"NCCL_RAS_ADDR=10.1.0.1:28028": "", "NCCL_RAS_ADDR=gpu01:28028": "", "NCCL_RAS_ADDR=4711": "", "NCCL_RAS_ENABLE=0": "",
	} {
		got, ok := rasOf([]root{{rank: &one, env: strings.Fields(env)}})
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v, want %q", env, got, ok, want)
		}
	}
	if _, ok := rasOf([]root{{pid: 1}}); ok {
		t.Error("asked of a job without ranks")
	}
}

// TestRASIsAskedOnce: while an answer is outstanding nobody waits, and nobody asks
// again.
func TestRASIsAskedOnce(t *testing.T) {
	asked, answer := make(chan string, 8), make(chan hang.RAS)
	a := newRASAsker()
	a.ask = func(_ context.Context, address string) (hang.RAS, error) {
		asked <- address
		return <-answer, nil
	}
	rank := 0
	ranks := []root{{rank: &rank}}
	for range 3 {
		if came := a.look(ranks); came != nil {
			t.Errorf("an answer before there was one: %+v", came)
		}
	}
	<-asked
	answer <- hang.RAS{Version: "2.29.1"}
	wait.For(t, "the answer", func() bool {
		came := a.look(ranks)
		return came != nil && came.Version == "2.29.1"
	})
	if n := len(asked); n > 1 {
		t.Errorf("asked %d times more", n)
	}
	close(answer)
	if (*rasAsker)(nil).look(ranks) != nil {
		t.Error("an answer although nothing is asked")
	}
}

// TestDumps: what torch writes is read when it is whole, once, and nothing older.
func TestDumps(t *testing.T) {
	dir := t.TempDir()
	rank := 1
	roots := []root{{pid: os.Getpid(), rank: &rank, env: []string{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + dir + "/trace_"}}}
	name := filepath.Join(dir, "trace_1")
	put := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	d := newDumpReader(began)
	put(`{"pg_status": {}}`, began.Add(-time.Hour))
	for range 3 {
		if got := d.look(roots); len(got) > 0 {
			t.Fatalf("an older job's: %+v", got)
		}
	}
	put(`{"pg_st`, began.Add(time.Second))
	if got := d.look(roots); len(got) > 0 {
		t.Fatalf("read while it is written: %+v", got)
	}
	put(`{"pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1]"}}}`, began.Add(2*time.Second))
	if got := d.look(roots); len(got) > 0 {
		t.Fatalf("read while it is written: %+v", got)
	}
	got := d.look(roots)
	if len(got) != 1 || got[0].Rank != 1 || got[0].File != name || len(got[0].Groups) != 1 || got[0].Why != "" {
		t.Fatalf("%+v", got)
	}
	if again := d.look(roots); len(again) > 0 {
		t.Errorf("read twice: %+v", again)
	}
	rank = 2
	name = filepath.Join(dir, "trace_2")
	put("\x80\x02cposix\nsystem\n.", began.Add(time.Second))
	d.look(roots)
	if got = d.look(roots); len(got) != 1 || !strings.Contains(got[0].Why, "none of plain values") {
		t.Errorf("%+v", got)
	}
}

func TestDumpPlaces(t *testing.T) {
	for env, want := range map[string][]string{
		"TORCH_FR_DUMP_TEMP_FILE=/a TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/b HOME=/h": {"/a"},
		"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=b HOME=/h":                             {"b"},
		"HOME=/h":                   {"/tmp/nccl_trace_rank_", "/h/.cache/torch/comm_lib_trace_rank_", "/h/.cache/torch/nccl_trace_rank_"},
		"HOME=/h XDG_CACHE_HOME=/c": {"/tmp/nccl_trace_rank_", "/c/torch/comm_lib_trace_rank_", "/c/torch/nccl_trace_rank_"},
		"":                          {"/tmp/nccl_trace_rank_"},
	} {
		if got := dumpPlaces(strings.Fields(env)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", env, got, want)
		}
	}
}

func TestFilesOfGPUs(t *testing.T) {
	got := map[string]bool{}
	want := map[string]bool{"/dev/nvidia0": true, "/dev/nvidia15": true, "/dev/kfd": true, "/dev/nvidiactl": false, "/dev/nvidia-uvm": false, "/dev/null": false, "/dev/nvidia": false}
	for f := range want {
		got[f] = isGPU(f)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
