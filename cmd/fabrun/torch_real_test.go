package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// witnessScript is a rank that writes down what it sees: its environment, the
// signals that reach it, and a checkpoint that takes its time.
const witnessScript = `import os, signal, sys, time
rank = os.environ["RANK"]
def note(name, text):
    with open(name + "." + rank, "ab") as f:
        f.write(text)
with open("/proc/self/environ", "rb") as f:
    note("env", f.read())
def got(n, _):
    note("signals", b"%d\n" % n)
    if n != signal.SIGUSR2:
        time.sleep(float(sys.argv[1]))
        note("checkpoint", b"whole\n")
        sys.exit(0)
for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
    signal.signal(n, got)
note("ready", b"")
sys.stdout.write("NCCL INFO is not what this says\n")
sys.stdout.flush()
while True:
    time.sleep(0.1)
`

// seen are the files NAME.RANK of one kind that ranks have written, by rank.
func (l *netLab) seen(name string) map[string]string {
	l.t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(l.dir, "share", name+".*"))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			l.t.Fatal(err)
		}
		out[strings.TrimPrefix(filepath.Ext(f), ".")] = string(text)
	}
	return out
}

// forget removes what earlier ranks have written.
func (l *netLab) forget() {
	l.t.Helper()
	for _, name := range []string{"env", "signals", "checkpoint", "ready"} {
		for rank := range l.seen(name) {
			if err := os.Remove(filepath.Join(l.dir, "share", name+"."+rank)); err != nil {
				l.t.Fatal(err)
			}
		}
	}
}

// witness starts the witnesses over all hosts, and waits until they look.
func (l *netLab) witness(env []string, seconds string, flags ...string) *netJob {
	l.t.Helper()
	l.forget()
	argv := slices.Concat(l.fabrunOn(fmt.Sprintf("node[01-%02d]", len(l.nodes))), flags, []string{"torchrun"}, torchFlags, []string{"witness.py", seconds})
	j := l.start(env, argv...)
	l.until("all ranks", func() bool {
		if len(j.done) > 0 {
			l.t.Fatalf("ended at once\n%s", j.text())
		}
		return len(l.seen("ready")) == len(l.nodes)
	})
	return j
}

// TestRealTorchrunAsWithout: torchrun over three hosts is the job that the user
// wrote: its signals, its environment, its output.
func TestRealTorchrunAsWithout(t *testing.T) {
	needTorch(t)
	l := startNetLab(t, 3)
	for _, c := range []struct {
		name string
		test func(*testing.T, *netLab)
	}{{"signals", torchrunSignals}, {"environment", torchrunEnvironment}, {"output", torchrunOutput}, {"failure", torchrunFailure}, {"checkpoint", torchrunCheckpoint}, {"standstill", torchrunStandstill}} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			c.test(t, l)
		})
	}
}

// torchrunSignals: a signal reaches each rank once, and the ranks have the time
// that torchrun gives them.
func torchrunSignals(t *testing.T, l *netLab) {
	l.write("share/witness.py", witnessScript)
	all := func(text string) map[string]string { return map[string]string{"0": text, "1": text, "2": text} }
	for _, c := range []struct {
		name    string
		flags   []string
		hit     func(*netJob)
		signals string // of each rank
		saved   string
		status  int
	}{
		{"TERM", nil, func(j *netJob) { kill(syscall.SIGTERM, j.pid()) }, "15\n", "whole\n", 1},
		{"Ctrl-C, by the system's ssh", []string{"--remote", "ssh"}, func(j *netJob) { kill(syscall.SIGINT, j.pid()) }, "2\n", "whole\n", 1},
		{"TERM with a grace that is too short", []string{"--grace", "1s"}, func(j *netJob) { kill(syscall.SIGTERM, j.pid()) }, "15\n", "", 137},
		{"Ctrl-C twice", nil, func(j *netJob) {
			kill(syscall.SIGINT, j.pid())
			l.until("the first reaches all", func() bool { return len(l.seen("signals")) == 3 })
			kill(syscall.SIGINT, j.pid())
		}, "2\n", "", 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			j := l.witness(sshConfig(l), "5", c.flags...)
			c.hit(j)
			if got := j.status(); got != c.status {
				t.Errorf("status %d, want %d\n%s", got, c.status, j.text())
			}
			for rank, got := range l.seen("signals") {
				// A rank that is ended before its time gets TERM, at most.
				if c.saved == "" {
					got = strings.TrimSuffix(got, "15\n")
					got = c.signals + strings.TrimPrefix(got, c.signals)
				}
				if got != c.signals {
					t.Errorf("rank %s got the signals %q, want %q\n%s", rank, got, c.signals, j.text())
				}
			}
			saved := l.seen("checkpoint")
			if want := all(c.saved); c.saved != "" && !maps.Equal(saved, want) || c.saved == "" && len(saved) > 0 {
				t.Errorf("checkpoints %q, want %q\n%s", saved, c.saved, j.text())
			}
			l.empty()
		})
	}
}

// sshConfig gives the system's ssh of the first host what the lab's hosts want.
func sshConfig(l *netLab) []string {
	l.write("node01/.ssh/config", fmt.Sprintf("Host node*\n  IdentityFile %s/key\n  UserKnownHostsFile %[1]s/known_hosts\n", l.dir))
	return nil
}

// torchrunEnvironment: what ranks on other hosts see is the user's
// environment, but for what names a machine, and it is on no command line.
func torchrunEnvironment(t *testing.T, l *netLab) {
	l.write("share/witness.py", witnessScript)
	long := strings.Repeat("0123456789", 12_000) // the kernel's limit for one string is 128 KiB
	user := []string{
		"HF_TOKEN=secret-in-the-environment", "WANDB_MODE=offline", "CUDA_VISIBLE_DEVICES=0,1", "BATCH_SIZE=64", "EMPTY=", "NCCL_DEBUG=INFO", "UCX_LOG_LEVEL=info",
		"LINES_OF=a\nb\n", "QUOTES=it's \"$HOME\" \\ `x`", "NOT_UTF8=\xff\xfe", "BASH_FUNC_greet%%=() {  echo hi;\n}", "OMP_NUM_THREADS=1",
		"DISPLAY=:7", "TMUX=/tmp/x,1,0", "SSH_AUTH_SOCK=/tmp/agent", "KEPT_THERE=here", "KERNEL=" + long,
	}
	for i := range 7 {
		user = append(user, fmt.Sprintf("BIG%d=%s", i, long))
	}
	j := l.witness(user, "0", "--env", "TMUX", "--no-env", "KEPT_THERE", "--record", "job.record")
	for _, n := range l.nodes {
		for _, pid := range n.processes() {
			if strings.Contains(commandLine(pid), "secret-in-the-environment") {
				t.Errorf("%s: a secret on the command line %q", n.name, commandLine(pid))
			}
		}
	}
	kill(syscall.SIGTERM, j.pid())
	j.status()
	if strings.Contains(j.text(), "secret-in-the-environment") {
		t.Errorf("a secret is printed\n%s", j.text())
	}
	if text, err := os.ReadFile(filepath.Join(l.dir, "share", "job.record")); err != nil || bytes.Contains(text, []byte("secret-in-the-environment")) {
		t.Errorf("the record: %v, %d bytes", err, len(text))
	}
	ranks := l.seen("env")
	env := func(rank string) map[string]string {
		out := map[string]string{}
		for kv := range strings.SplitSeq(strings.TrimSuffix(ranks[rank], "\x00"), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			out[name] = value
		}
		return out
	}
	// What the user has set, as a program started here sees it.
	before := l.run(user, "env", "-0")
	want := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimSuffix(before.out.String(), "\x00"), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		want[name] = value
	}
	// torchrun's own (torch/distributed/elastic/agent/server/local_elastic_agent.py),
	// Python's (PEP 538), and fabrun's.
	own := regexp.MustCompile(`^(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|ROLE_NAME|LOCAL_WORLD_SIZE|WORLD_SIZE|GROUP_WORLD_SIZE|ROLE_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_.*|NCCL_ASYNC_ERROR_HANDLING|LC_CTYPE|FABRUN_.*|OMPI_FABRUN_JOB|PYTHONUNBUFFERED)$`)
	for rank, host := range map[string]string{"0": "node01", "1": "node02", "2": "node03"} {
		got := env(rank)
		var diff []string
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if w, ok := want[name]; (!ok || w != got[name]) && !own.MatchString(name) {
				diff = append(diff, "+"+name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if _, ok := got[name]; !ok {
				diff = append(diff, "-"+name)
			}
		}
		wanted := ""
		if rank != "0" {
			wanted = "+SSH_CLIENT +SSH_CONNECTION -DISPLAY -KEPT_THERE -SSH_AUTH_SOCK"
		}
		if d := strings.Join(diff, " "); d != wanted {
			t.Errorf("on %s the environment differs by %q, want %q", host, d, wanted)
		}
	}
	plan := l.run(user, append([]string{l.fabrun(), "plan"}, l.fabrunOn("node[01-02]", "--env", "TMUX", "--", "torchrun", "witness.py")[1:]...)...)
	if !strings.Contains(plan.out.String(), "not handed to the other nodes, which keep their own\n  DISPLAY SSH_AUTH_SOCK\n") {
		t.Errorf("the plan does not say what stays\n%s", plan.text())
	}
}

// outputScript prints as argv says, on the rank that argv says.
const outputScript = `import os, sys, time
rank = int(os.environ["RANK"])
what = sys.argv[1]
out = sys.stdout.buffer
def put(text, wait=0):
    out.write(text)
    out.flush()
    time.sleep(wait)
if what == "zero" and rank == 0:
    put(b"step 1\r", 0.05); put(b"step 2\r", 0.05); put(b"\n\xff\x00bytes\r\n"); put(b"x" * 300000 + b"\n"); put(b"no end")
if what == "all":
    for i in range(200):
        put(b"%d:%d:" % (rank, i)); put(b"%c" % (97 + rank) * 2000 + b"\n")
if what == "wait":
    put(b"\r%d" % rank, 600)
`

// torchrunOutput: one rank that prints is passed on byte for byte, several
// in whole lines with the node in front, and nothing waits for a line's end.
func torchrunOutput(t *testing.T, l *netLab) {
	l.write("share/out.py", outputScript)
	// torch 1.13 under Python 3.11 wants one of its streams copied: stderr, and stdout is the ranks' own.
	job := func(env []string, flags []string, what string) *netJob {
		l.t.Helper()
		argv := slices.Concat(l.fabrunOn("node[01-02]"), flags, []string{"torchrun", "--nproc_per_node", "1", "-r", "2", "-t", "2", "out.py", what})
		return l.start(env, argv...)
	}
	run := func(env []string, flags []string, what string) string {
		l.t.Helper()
		j := job(env, flags, what)
		if got := j.status(); got != 0 {
			l.t.Errorf("status %d\n%s", got, j.stderr.String())
		}
		return j.out.String()
	}
	zero := "step 1\rstep 2\r\n\xff\x00bytes\r\n" + strings.Repeat("x", 300000) + "\nno end"
	if got := run([]string{"NCCL_DEBUG=INFO", "UCX_LOG_LEVEL=info"}, nil, "zero"); got != zero {
		t.Errorf("alone: %d bytes %.80q…, want %d", len(got), got, len(zero))
	}
	line := regexp.MustCompile(`^(?:node0([12]): )?([01]):(\d+):(a+|b+)$`)
	next, prefixed := map[string]int{}, false
	for text := range strings.Lines(run([]string{"NCCL_DEBUG=WARN"}, nil, "all")) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil || len(m[4]) != 2000 {
			t.Fatalf("%.80q… is no line of one rank", text)
		}
		if fmt.Sprint(next[m[2]]) != m[3] {
			t.Fatalf("rank %s: line %s where %d should come", m[2], m[3], next[m[2]])
		}
		next[m[2]]++
		if prefixed = prefixed || m[1] != ""; prefixed && (m[1] == "" || string(m[1][0]-1) != m[2]) || len(next) == 2 && !prefixed {
			t.Fatalf("%.30q…", text)
		}
	}
	if next["0"] != 200 || next["1"] != 200 {
		t.Errorf("%v lines, want 200 each", next)
	}
	j := job(nil, nil, "wait")
	l.until("both bars", func() bool {
		text := j.out.String()
		return strings.Contains(text, "\r0") && strings.Contains(text, "\r1") || strings.Contains(text, "\rnode01: 0") && strings.Contains(text, "\r1") || strings.Contains(text, "\r0") && strings.Contains(text, "\rnode02: 1")
	})
	kill(syscall.SIGINT, j.pid())
	j.status()
	l.empty()
}

// torchrunFailure: where ranks go through fabrun rank, torch's report of a failure
// names the user's script, and the ranks see no trace of how they were started.
func torchrunFailure(t *testing.T, l *netLab) {
	l.write("share/fail.py", "import os, sys\nprint('argv', sys.argv[0], os.environ['PATH'], [n for n in os.environ if n.startswith('FABRUN_RANK')], flush=True)\nsys.exit(3)\n")
	// The words that a plan has where hosts differ; these here have no RDMA.
	argv := l.fabrunOn("node[01-02]", "torchrun", "--no_python", "--nproc_per_node", "1", "-r", "2", "-t", "2", "fail.py", "/usr/bin/python3", "-u", "fail.py")
	j := l.start([]string{"FABRUN_RANK_AS=fail.py"}, argv...)
	if got := j.status(); got != 1 {
		t.Errorf("status %d, want 1\n%s", got, j.text())
	}
	if !regexp.MustCompile(`(?m)^(node0\d: )?fail\.py FAILED$`).MatchString(j.stderr.String()) || strings.Contains(j.stderr.String(), "fabrun FAILED") {
		t.Errorf("the report does not name the script\n%s", j.text())
	}
	if want := "argv fail.py " + systemPath + " []\n"; !strings.Contains(j.out.String(), want) {
		t.Errorf("no %q\n%s", want, j.text())
	}
	l.empty()
}

// trainScript is a DDP training that saves where it stands when it is told to
// end, and goes on from there.
const trainScript = `import os, signal, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(7)
model = DDP(torch.nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
step, last = 0, int(sys.argv[1])
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    model.load_state_dict(saved["model"]); step = saved["step"]
    if dist.get_rank() == 0:
        print("resumed at", step, flush=True)
told = torch.zeros(1)
def tell(*_):
    told[0] += 1
signal.signal(signal.SIGTERM, tell)
while step < last:
    torch.manual_seed(step * 100 + dist.get_rank())
    loss = model(torch.rand(16, 8)).sub(1).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step(); step += 1
    stop = told.clone()
    dist.all_reduce(stop)
    if len(sys.argv) > 2:
        time.sleep(0.05)
        if step == 10 and dist.get_rank() == 0:
            open("ready.0", "w").close()
    if stop.item() > 0:
        if dist.get_rank() == 0:
            time.sleep(6) # a large one takes its time
            torch.save({"model": model.state_dict(), "step": step}, "checkpoint.pt")
            print("saved at", step, flush=True)
        dist.barrier()
        sys.exit(0)
if dist.get_rank() == 0:
    print("weights", " ".join("%.6f" % w for w in model.module.weight.flatten().tolist()), flush=True)
`

// torchrunCheckpoint: a DDP training over three hosts is told to end,
// saves, is started again, and ends where one that was never told does.
func torchrunCheckpoint(t *testing.T, l *netLab) {
	l.write("share/train.py", trainScript)
	l.forget()
	job := func(args ...string) []string {
		return l.fabrunOn("node[01-03]", slices.Concat([]string{"torchrun"}, torchFlags, []string{"train.py"}, args)...)
	}
	weights := func(j *netJob) string {
		l.t.Helper()
		_, text, ok := strings.Cut(j.out.String(), "weights ")
		if !ok {
			l.t.Fatalf("no weights\n%s", j.text())
		}
		return strings.TrimSpace(text)
	}
	whole := weights(l.run(nil, job("40")...))
	j := l.start(nil, job("100000", "slow")...)
	l.until("ten steps", func() bool { return len(l.seen("ready")) == 1 || len(j.done) > 0 })
	kill(syscall.SIGTERM, j.pid())
	if got := j.status(); got != 1 { // torchrun's own for a signal
		t.Errorf("status %d, want 1\n%s", got, j.text())
	}
	saved := regexp.MustCompile(`saved at (\d+)`).FindStringSubmatch(j.out.String())
	if saved == nil {
		t.Fatalf("nothing was saved\n%s", j.text())
	}
	l.empty()
	at := 0
	if _, err := fmt.Sscan(saved[1], &at); err != nil || at < 10 {
		t.Fatalf("saved at %q", saved[1])
	}
	resumed := l.run(nil, job(fmt.Sprint(max(at, 40)))...)
	if !strings.Contains(resumed.out.String(), "resumed at "+saved[1]) {
		t.Errorf("it was not resumed\n%s", resumed.text())
	}
	if at <= 40 && weights(resumed) != whole {
		t.Errorf("other weights than of a job in one piece: %s, want %s", weights(resumed), whole)
	}
}

// standScript trains with Gloo, but for the rank that argv names, which never joins.
const standScript = `import os, sys, time
import torch, torch.distributed as dist
if os.environ["RANK"] == sys.argv[1]:
    open("ready." + os.environ["RANK"], "w").close()
    time.sleep(1000)
if sys.argv[1] != "nobody":
    open("ready." + os.environ["RANK"], "w").close()
dist.init_process_group("gloo")
t, step = torch.ones(1000), 0
while True:
    dist.all_reduce(t); t.fill_(1); step += 1
    if step == 10:
        open("ready." + os.environ["RANK"], "w").close()
    time.sleep(0.02)
`

// torchrunStandstill: of a job that stands still, fabrun says which rank on which
// host holds it up, and that it goes on; of a rank that never joins, too.
func torchrunStandstill(t *testing.T, l *netLab) {
	l.write("share/stand.py", standScript)
	start := func(args ...string) *netJob {
		l.t.Helper()
		l.forget()
		j := l.start(nil, slices.Concat(l.fabrunOn("node[01-03]"), []string{"--hang-after", "6s", "torchrun"}, torchFlags, []string{"stand.py"}, args)...)
		l.until("all ranks", func() bool { return len(l.seen("ready")) == 3 || len(j.done) > 0 })
		return j
	}
	says := func(j *netJob, want string) {
		l.t.Helper()
		is := regexp.MustCompile(want)
		l.until(want, func() bool {
			if len(j.done) > 0 {
				l.t.Fatalf("ended\n%s", j.text())
			}
			return is.MatchString(j.stderr.String())
		})
	}
	end := func(j *netJob) {
		l.t.Helper()
		kill(syscall.SIGINT, j.pid())
		kill(syscall.SIGINT, j.pid())
		j.status()
		l.empty()
	}
	j := start("nobody")
	var rank int
	for _, pid := range l.nodes[1].processes() {
		if line := commandLine(pid); strings.Contains(line, "stand.py") && !strings.Contains(line, "torchrun") {
			rank = pid
		}
	}
	if rank == 0 {
		t.Fatal("no rank on node02")
	}
	kill(syscall.SIGSTOP, rank)
	says(j, `warning: node02 rank 1: it is stopped \(SIGSTOP\) for \d+ s, and nothing moves on the ranks' connections: the job hangs\.`)
	kill(syscall.SIGCONT, rank)
	says(j, `The job goes on, after a standstill of at least \d+ s\.`)
	end(j)
	j = start("2")
	says(j, `The job stands still for \d+ s: no rank computes, and nothing moves on the ranks' connections\. Rank 2 on node03 sleeps of its own accord while the others wait`)
	end(j)
}
