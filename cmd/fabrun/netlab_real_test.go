package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/launcher/exit"
)

// netLaunchers are the MPIs that the lab's hosts run.
var netLaunchers = []struct {
	name, launcher, compiler string
	daemon                   string // what it starts on other hosts
	interrupted              []int  // its own statuses when it is told to end
	// deaf: it waits for ever for a daemon of its own that was killed, and takes
	// an interrupt only to say so (seen with Hydra 4.0.2): the second one ends it.
	deaf bool
	// clings: with the right answer in every rank, they may wait for each other in
	// MPI_Finalize for ever (seen now and then with Debian's 4.0.2, ch4:ucx over
	// tcp, on a busy machine).
	clings bool
}{
	{"Open MPI", "mpirun.openmpi", "mpicc.openmpi", "orted", []int{1}, false, false},
	{"MPICH", "mpiexec.mpich", "mpicc.mpich", "hydra_pmi_proxy", []int{0, 2, 15, 130, 143}, true, true},
}

// tooLong is the status of timeout(1) for a program that it had to end.
const tooLong = 124

// TestRealHosts starts real launchers over hosts with a real sshd each, and a
// fabrun that the other hosts lack.
func TestRealHosts(t *testing.T) {
	l := startNetLab(t, 3)
	for _, m := range netLaunchers {
		t.Run(m.name, func(t *testing.T) {
			l.t = t
			if realProgram(m.launcher) == "" || realProgram(m.compiler) == "" {
				t.Skipf("no %s (apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev)", m.name)
			}
			ring := filepath.Join(l.dir, "share", m.launcher+"-ring")
			if out, err := exec.Command(realProgram(m.compiler), "-o", ring, "../../testdata/demo/ring.c").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			j := l.start([]string{"NCCL_IB_TC=7"}, l.fabrunOn("node[01-03]:1", m.launcher, "-np", "3", "sh", "-c", `echo "on $(hostname): $NCCL_IB_TC"; exec timeout 30 `+ring)...)
			if got := j.status(); got != 0 && (got != tooLong || !m.clings) {
				t.Errorf("status %d\n%s", got, j.text())
			}
			for _, want := range []string{"on node01: 7", "on node02: 7", "on node03: 7"} {
				if !strings.Contains(j.out.String(), want) {
					t.Errorf("no %q in\n%s", want, j.text())
				}
			}
			if n := strings.Count(j.out.String(), "correct"); n != 3 {
				t.Errorf("%d ranks are correct\n%s", n, j.text())
			}
			l.empty()
		})
	}
}

// startHold starts a job of one rank on each host that does not end by itself,
// and waits for all of them.
func (l *netLab) startHold(launcher string) *netJob {
	l.t.Helper()
	j := l.start(nil, l.fabrunOn(fmt.Sprintf("node[01-%02d]:1", len(l.nodes)), launcher, "-np", fmt.Sprint(len(l.nodes)), l.hold(), "600")...)
	l.until("a rank on each host", func() bool {
		return !slices.ContainsFunc(l.nodes, func(n *netNode) bool { return len(n.ranks(l.hold())) == 0 })
	})
	return j
}

// hold is a program that nothing else runs.
func (l *netLab) hold() string {
	path := filepath.Join(l.dir, "share", "hold")
	if _, err := os.Lstat(path); err != nil {
		if err := os.Symlink(realProgram("sleep"), path); err != nil {
			l.t.Fatal(err)
		}
	}
	return path
}

// ranks are the processes that are the program itself.
func (n *netNode) ranks(program string) []int {
	return slices.DeleteFunc(n.processes(), func(pid int) bool { return !strings.HasPrefix(commandLine(pid), program+"\x00") })
}

// named are the processes whose program has this name.
func (n *netNode) named(name string) []int {
	return slices.DeleteFunc(n.processes(), func(pid int) bool {
		first, _, _ := strings.Cut(commandLine(pid), "\x00")
		return filepath.Base(first) != name
	})
}

func kill(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// interruptUntilEnd presses Ctrl-C as often as it takes, which is twice.
func (j *netJob) interruptUntilEnd() {
	j.t.Helper()
	for range 2 {
		kill(syscall.SIGINT, j.pid())
		select {
		case err := <-j.done:
			j.done <- err
			return
		case <-time.After(time.Second): // between two keys
		}
	}
}

// TestRealHostsChaos kills each part of a job over several hosts. Five seconds
// later nothing of it is left on any of them, and the status is the launcher's.
func TestRealHostsChaos(t *testing.T) {
	l := startNetLab(t, 2)
	for _, m := range netLaunchers {
		if realProgram(m.launcher) == "" {
			t.Logf("no %s (apt-get install openmpi-bin mpich)", m.name)
			continue
		}
		head, other := l.nodes[0], l.nodes[1]
		for _, c := range []struct {
			name string
			hit  func(*netJob)
			want func(status int) bool
		}{
			{"Ctrl-C", func(j *netJob) { kill(syscall.SIGINT, j.pid()) }, func(s int) bool { return slices.Contains(m.interrupted, s) }},
			{"TERM", func(j *netJob) { kill(syscall.SIGTERM, j.pid()) }, func(s int) bool { return slices.Contains(m.interrupted, s) }},
			{"kill -9 of fabrun", func(j *netJob) { kill(syscall.SIGKILL, j.pid()) }, func(s int) bool { return s == 137 }},
			{"kill -9 of the launcher", func(*netJob) { kill(syscall.SIGKILL, head.named(m.launcher)...) }, func(s int) bool { return s == 137 }},
			{"kill -9 of fabrun and the launcher", func(j *netJob) {
				kill(syscall.SIGKILL, append(head.named(m.launcher), j.pid())...)
			}, func(s int) bool { return s == 137 }},
			{"kill -9 of one rank", func(*netJob) { kill(syscall.SIGKILL, other.ranks(l.hold())...) }, func(s int) bool { return s != 0 }},
			{"kill -9 of the daemon on the other host", func(j *netJob) {
				kill(syscall.SIGKILL, other.named(m.daemon)...)
				if m.deaf {
					j.interruptUntilEnd()
				}
			}, func(s int) bool { return s != 0 || m.deaf }},
			{"kill -9 of all there, sshd's sessions too", func(j *netJob) {
				kill(syscall.SIGKILL, slices.DeleteFunc(other.processes(), func(pid int) bool { return slices.Contains(other.base, pid) })...)
				if m.deaf {
					j.interruptUntilEnd()
				}
			}, func(s int) bool { return s != 0 || m.deaf }},
		} {
			t.Run(m.name+": "+c.name, func(t *testing.T) {
				l.t = t
				j := l.startHold(m.launcher)
				c.hit(j)
				got := j.status()
				if !c.want(got) {
					t.Errorf("status %d\n%s", got, j.text())
				}
				l.empty()
			})
		}
	}
}

// TestRealHostsInterruptAtEveryStage interrupts runs at moments spread over all
// of a run: looking at the hosts, staging, opening the eyes, starting, running,
// ending. Nothing is left, and the status is a documented one.
func TestRealHostsInterruptAtEveryStage(t *testing.T) {
	l := startNetLab(t, 2)
	m := netLaunchers[0]
	if realProgram(m.launcher) == "" {
		t.Skipf("no %s (apt-get install openmpi-bin)", m.name)
	}
	argv := l.fabrunOn("node[01-02]:1", m.launcher, "-np", "2", realProgram("sleep"), "0.5")
	l.run(nil, argv...) // stages
	begun := time.Now()
	l.run(nil, argv...)
	whole := time.Since(begun)
	seen := map[int]int{}
	const steps = 10
	for i := range steps {
		if i == 1 { // once more without a staged copy
			if err := os.RemoveAll(filepath.Join(l.dir, "node02", ".cache")); err != nil {
				t.Fatal(err)
			}
		}
		j := l.start(nil, argv...)
		l.until("fabrun is there", func() bool { return j.pid() != 0 || len(j.done) > 0 })
		pid := j.pid()
		timer := time.NewTimer(whole * time.Duration(2*i) / steps)
		select {
		case <-timer.C:
			kill(syscall.SIGINT, pid)
		case err := <-j.done:
			j.done <- err
		}
		got := j.status()
		if !slices.Contains([]int{0, 1, 130}, got) {
			t.Errorf("at %d/%d: status %d\n%s", i, steps, got, j.text())
		}
		seen[got]++
		l.empty()
	}
	t.Logf("of %v: statuses %v", whole.Round(time.Millisecond), seen)
	if seen[130] == 0 || len(seen) == 1 {
		t.Errorf("the interrupts came all at one stage: %v", seen)
	}
}

// torchScript says where it is and adds up over all ranks with Gloo; then it
// does what its argument says.
const torchScript = `import os, socket, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("rank %d of %d on %s: sum %d, master %s %s" % (dist.get_rank(), dist.get_world_size(), socket.gethostname(), int(x), os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]), flush=True)
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "fail" and dist.get_rank() == 1:
    sys.exit(3)
if what in ("fail", "hold"):
    time.sleep(600)
`

// needTorch skips where there is no torchrun with Gloo.
func needTorch(t *testing.T) {
	t.Helper()
	if realProgram("torchrun") == "" {
		t.Skip("no torchrun (apt-get install python3-torch)")
	}
	python := exec.Command(realProgram("python3"), "-c", `import torch, torch.distributed as d
assert d.is_gloo_available(), "no Gloo"
assert not torch.__version__.startswith("2.6"), "Debian 13 built it without libuv, which its torchrun wants"`)
	if out, err := python.CombinedOutput(); err != nil {
		t.Skipf("no torch with Gloo: %v: %s", err, out)
	}
}

// torchFlags: without them torchrun of torch 1.13 fails under Python 3.11
// (AttributeError in to_map), which is what Debian 12 has.
var torchFlags = []string{"--nproc_per_node", "1", "-r", "1", "-t", "1"}

// TestRealHostsTorchrun starts torchrun on two hosts with one command.
func TestRealHostsTorchrun(t *testing.T) {
	needTorch(t)
	l := startNetLab(t, 2)
	l.write("share/train.py", torchScript)
	run := func(launcher []string, what ...string) []string {
		return l.fabrunOn("node[01-02]", slices.Concat(launcher, torchFlags, []string{"train.py"}, what)...)
	}
	torchrun, module := []string{"torchrun"}, []string{"python3", "-m", "torch.distributed.run"}
	ranks := func(t *testing.T, j *netJob) {
		t.Helper()
		for i := range 2 {
			line := regexp.MustCompile(fmt.Sprintf(`(?m)^(?:node0%d: )?.*rank %d of 2 on node0%[1]d: sum 3, master 10\.77\.0\.1 (2\d{4})$`, i+1, i))
			if !line.MatchString(j.out.String()) {
				t.Errorf("no line %q in\n%s", line, j.text())
			}
		}
	}
	for _, c := range []struct {
		name string
		argv []string
	}{{"torchrun", torchrun}, {"python -m torch.distributed.run", module}} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			ranks(t, l.run(nil, run(c.argv)...))
			l.empty()
		})
	}
	t.Run("one node fails", func(t *testing.T) {
		l.t = t
		j := l.start(nil, run(torchrun, "fail")...)
		if got := j.status(); got != 1 { // torchrun's own for a worker that failed
			t.Errorf("status %d, want 1\n%s", got, j.text())
		}
		ranks(t, j)
		if want := "a worker on node02 failed; ending the other nodes"; !strings.Contains(j.stderr.String(), want) {
			t.Errorf("no %q in\n%s", want, j.text())
		}
		l.empty()
	})
	for _, c := range []struct {
		name string
		hit  func(*netJob)
		want []int
	}{
		{"Ctrl-C", func(j *netJob) { kill(syscall.SIGINT, j.pid()) }, []int{1}}, // torchrun's own
		{"kill -9 of fabrun", func(j *netJob) { kill(syscall.SIGKILL, j.pid()) }, []int{137}},
		{"kill -9 of torchrun on one node", func(*netJob) {
			kill(syscall.SIGKILL, slices.DeleteFunc(l.nodes[1].processes(), func(pid int) bool { return !strings.Contains(commandLine(pid), "/torchrun\x00") })...)
		}, []int{137}},
		{"kill -9 of sshd's sessions on one node", func(*netJob) { kill(syscall.SIGKILL, l.nodes[1].sessions()...) }, []int{exit.Internal}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			j := l.start(nil, run(torchrun, "hold")...)
			l.until("both workers", func() bool {
				return !slices.ContainsFunc(l.nodes, func(n *netNode) bool { return len(n.workers()) == 0 })
			})
			c.hit(j)
			if got := j.status(); !slices.Contains(c.want, got) {
				t.Errorf("status %d, want one of %d\n%s", got, c.want, j.text())
			}
			l.empty()
		})
	}
}

// workers are torchrun's: it starts the script by 'python -u'.
func (n *netNode) workers() []int {
	return slices.DeleteFunc(n.processes(), func(pid int) bool { return !strings.Contains(commandLine(pid), "\x00-u\x00train.py\x00") })
}

// sessions are sshd's processes for one connection each.
func (n *netNode) sessions() []int {
	return slices.DeleteFunc(n.processes(), func(pid int) bool { return !strings.HasPrefix(commandLine(pid), "sshd: root@") })
}

// TestRealSlurmTorchrun starts torchrun in Slurm, over hosts of their own: one
// fabrun for all nodes, and one on each; without scontrol.
func TestRealSlurmTorchrun(t *testing.T) {
	needTorch(t)
	l := startNetLab(t, 2)
	l.slurm()
	l.write("share/train.py", torchScript)
	share := filepath.Join(l.dir, "share")
	l.must(exec.Command("cp", l.fabrun(), share+"/fabrun"))
	// What is in PATH there: everything but scontrol and its kin.
	if err := os.Mkdir(share+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, prog := range []string{"torchrun", "python3", "sh", "srun", "env", "uname", "sha256sum", "cut", "id", "mkdir", "chmod", "rm", "cat", "mv"} {
		if err := os.Symlink(realProgram(prog), share+"/bin/"+prog); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"SLURM_CONF=" + share + "/slurm/slurm.conf", "PATH=" + share + "/bin"}
	for _, c := range []struct {
		name   string
		argv   []string
		prefix string
	}{
		{"one fabrun for all nodes", []string{realProgram("salloc"), "-Q", "-N2", share + "/fabrun"}, `(?:node0%d: )?`},
		{"one fabrun on each node", []string{realProgram("srun"), "-Q", "-N2", "-n2", share + "/fabrun"}, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			j := l.run(env, slices.Concat(c.argv, []string{"torchrun"}, torchFlags, []string{"train.py"})...)
			for i := range 2 {
				prefix := c.prefix
				if prefix != "" {
					prefix = fmt.Sprintf(prefix, i+1)
				}
				line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s.*rank %d of 2 on node0%d: sum 3, master (10\.77\.0\.1|node01) (2\d{4})$`, prefix, i, i+1))
				if !line.MatchString(j.out.String()) {
					t.Errorf("no line %q in\n%s", line, j.text())
				}
			}
			if n := strings.Count(j.stderr.String(), "fabrun: Done"); n != 1 {
				t.Errorf("%d verdicts, want one, of node 0\n%s", n, j.text())
			}
		})
	}
}
