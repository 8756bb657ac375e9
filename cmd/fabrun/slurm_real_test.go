package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/slurm"
	"fabrun/testdata/hosts"
	"fabrun/testdata/wait"
)

// slurmLab is a Slurm of three nodes on this machine: munged, slurmctld and
// three slurmd, in a directory and on ports of their own.
type slurmLab struct {
	t      *testing.T
	dir    string
	conf   string
	fabrun string
}

// systemPath leaves out the fake launchers that TestMain puts on PATH.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/opt/slurm/sbin"

// realProgram finds a program of the system; "" where it is missing.
func realProgram(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range filepath.SplitList(systemPath) {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// startSlurm brings it up, or skips with the reason. Everything ends with the test.
func startSlurm(t *testing.T, extra string) *slurmLab {
	t.Helper()
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("starts a whole Slurm: make test-real does it (FABRUN_REAL=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("slurmd wants root")
	}
	for _, prog := range []string{"munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scontrol"} {
		if realProgram(prog) == "" {
			t.Skipf("no real Slurm: no %s in %s (apt-get install slurm-wlm munge)", prog, systemPath)
		}
	}
	// Not t.TempDir: munge's socket has a path of at most 107 bytes.
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	lab := &slurmLab{t: t, dir: dir, conf: filepath.Join(dir, "slurm.conf"), fabrun: filepath.Join(dir, "fabrun")}
	if out, err := exec.Command("go", "build", "-o", lab.fabrun, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	for _, d := range []string{"state", "munge", "spool/node01", "spool/node02", "spool/node03"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 4)
	conf := fmt.Sprintf(`ClusterName=lab
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge/s
SlurmctldPort=%[3]d
SlurmctldPidFile=%[2]s/ctld.pid
SlurmdPidFile=%[2]s/d-%%n.pid
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool/%%n
SlurmctldLogFile=%[2]s/ctld.log
SlurmdLogFile=%[2]s/d-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
PrologFlags=Alloc
MpiDefault=none
SchedulerParameters=bf_interval=1,sched_min_interval=0
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
%[4]s
`, host, dir, ports[0], strings.ReplaceAll(extra, "DIR", dir))
	for i, p := range ports[1:] {
		conf += fmt.Sprintf("NodeName=node%02d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=2\n", i+1, host, p)
	}
	lab.write("slurm.conf", conf, 0o644)
	lab.write("munge/key", strings.Repeat("not a secret: one test, one key.", 4), 0o400)
	lab.daemon("munged", "--foreground", "--force", "--key-file="+dir+"/munge/key", "--socket="+dir+"/munge/s", "--pid-file="+dir+"/munge/pid", "--seed-file="+dir+"/munge/seed", "--log-file="+dir+"/munge/log")
	lab.until("munged answers", func() bool { _, err := os.Stat(dir + "/munge/s"); return err == nil })
	lab.daemon("slurmctld", "-D", "-c", "-f", lab.conf)
	for i := range 3 {
		lab.daemon("slurmd", "-D", "-f", lab.conf, "-N", fmt.Sprintf("node%02d", i+1))
	}
	lab.idle()
	return lab
}

// demo is the embedded machine as a tree for --root: a node for the doors.
func (l *slurmLab) demo() string {
	l.t.Helper()
	dir := filepath.Join(l.dir, "machine")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := snapshotTree(hosts.Demo, dir); err != nil {
		l.t.Fatal(err)
	}
	return dir
}

// freePorts returns ports that nobody has now.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	out := make([]int, n)
	for i := range out {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		//nolint:errcheck // it only held the number
		defer l.Close()
		out[i] = l.Addr().(*net.TCPAddr).Port
	}
	return out
}

func (l *slurmLab) write(name, text string, mode os.FileMode) string {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// daemon starts a program in its own group, which ends with the test.
func (l *slurmLab) daemon(name string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(realProgram(name), args...)
	cmd.Env = []string{"PATH=" + systemPath, "SLURM_CONF=" + l.conf}
	cmd.Dir = l.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	l.t.Cleanup(func() {
		//nolint:errcheck // it may have ended by itself
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			//nolint:errcheck // likewise
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
		}
		if l.t.Failed() {
			l.t.Logf("%s: %s", name, out.String())
		}
	})
}

func (l *slurmLab) until(what string, ok func() bool) {
	l.t.Helper()
	defer func() {
		if l.t.Failed() {
			for _, name := range []string{"ctld.log", "d-node01.log"} {
				text, err := os.ReadFile(filepath.Join(l.dir, name))
				l.t.Logf("%s: %s %v", name, text, err)
			}
		}
	}()
	wait.For(l.t, what, ok)
}

func (l *slurmLab) idle() {
	l.t.Helper()
	l.until("three idle nodes", func() bool {
		out, err := l.command("sinfo", "-h", "-N", "-o", "%T").Output()
		return err == nil && string(out) == "idle\nidle\nidle\n"
	})
}

func (l *slurmLab) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Left(l.t))
	l.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, realProgram(name), args...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + systemPath, "HOME=" + l.dir, "SLURM_CONF=" + l.conf}
	return cmd
}

func (l *slurmLab) output(name string, args ...string) string {
	l.t.Helper()
	cmd := l.command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s %q: %v: %s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}

// spellHosts reads 'fabrun hosts --json' as "name:slots …".
func spellHosts(t *testing.T, text string) string {
	t.Helper()
	var v struct {
		Source string
		Self   *int
		Hosts  []struct {
			Name  string
			Slots *int
		}
		Findings []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	words := []string{v.Source}
	for _, h := range v.Hosts {
		slots := "?"
		if h.Slots != nil {
			slots = fmt.Sprint(*h.Slots)
		}
		words = append(words, h.Name+":"+slots)
	}
	if v.Self != nil {
		words = append(words, fmt.Sprintf("self=%d", *v.Self))
	}
	for _, f := range v.Findings {
		words = append(words, f.ID)
	}
	return strings.Join(words, " ")
}

// TestRealSlurmAllocations reads the allocation as Slurm's own commands leave it.
func TestRealSlurmAllocations(t *testing.T) {
	lab := startSlurm(t, "")
	hosts := []string{lab.fabrun, "hosts", "--json"}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"salloc", []string{"salloc", "-Q", "-N2"}, "slurm node01:1 node02:1"},
		{"salloc with tasks", []string{"salloc", "-Q", "-N2", "-n3"}, "slurm node01:2 node02:1"},
		{"salloc with cores per task", []string{"salloc", "-Q", "-N3", "-c2"}, "slurm node01:1 node02:1 node03:1"},
		{"srun", []string{"srun", "-Q", "-N1", "-n2"}, "slurm node01:2 self=0"},
		{"a step on a part of the job", []string{"salloc", "-Q", "-N3", "/usr/bin/env", "srun", "-Q", "-N1", "-n1"}, "slurm node01:1 self=0"},
		{"heterogeneous", []string{"salloc", "-Q", "-N1", "-n1", ":", "-N2", "-n4"}, "slurm node01:1 node02:2 node03:2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := lab.output(tc.args[0], append(tc.args[1:], hosts...)...)
			// Of several tasks the first one's answer is enough.
			first, _, _ := strings.Cut(out, "\n}\n")
			if diff := cmp.Diff(tc.want, spellHosts(t, first+"\n}\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("sbatch", func(t *testing.T) {
		lab.output("sbatch", "-Q", "-W", "-N2", "-n3", "-o", "batch.out", "--wrap", strings.Join(hosts, " "))
		out, err := os.ReadFile(filepath.Join(lab.dir, "batch.out"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("slurm node01:2 node02:1", spellHosts(t, string(out))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("every node of a step", func(t *testing.T) {
		out := lab.output("srun", "-Q", "-N3", "-n3", "--label", lab.fabrun, "hosts")
		for _, want := range []string{"0: 3 hosts from Slurm job", "2: 3 hosts from Slurm job"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	})
}

// TestRealSlurmDoors starts jobs through fabrun's prolog, task prolog and
// epilog, and lets the health check drain and resume a node.
func TestRealSlurmDoors(t *testing.T) {
	lab := startSlurm(t, "Prolog=DIR/prolog\nEpilog=DIR/epilog\nTaskProlog=DIR/task-prolog\n")
	script := func(name, flags string) string {
		return lab.write(name, "#!/bin/sh\nexec "+lab.fabrun+" slurm "+name+" "+flags+"\n", 0o755)
	}
	state := "--state " + lab.dir + "/fabrun-$SLURMD_NODENAME"
	script("prolog", "--root "+lab.demo()+" --ports 8 --cache 0s "+state)
	script("epilog", state)
	script("task-prolog", "--from demo --profile roce-dscp26")

	t.Run("variables reach the tasks", func(t *testing.T) {
		cmd := lab.command("srun", "-Q", "-N2", "-n2", "/usr/bin/env")
		cmd.Env = append(cmd.Env, "NCCL_IB_SL=5")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"NCCL_IB_HCA==mlx5_0:1,", "NCCL_IB_TC=106\n", "NCCL_IB_SL=5\n", "UCX_IB_TRAFFIC_CLASS=106\n"} {
			if n := strings.Count("\n"+string(out), "\n"+want); n != 2 {
				t.Errorf("%q is there %d times, want one in each task:\n%s", want, n, out)
			}
		}
		if strings.Contains(string(out), "NCCL_IB_SL=3") {
			t.Error("the job's own NCCL_IB_SL was overridden")
		}
	})
	t.Run("prolog and epilog leave a record", func(t *testing.T) {
		lab.idle()
		records, err := filepath.Glob(filepath.Join(lab.dir, "fabrun-node0[12]", "jobs", "*.json"))
		if err != nil || len(records) != 2 {
			t.Fatalf("records %q, %v", records, err)
		}
		lab.until("the epilog's part", func() bool {
			text, err := os.ReadFile(records[0])
			return err == nil && strings.Contains(string(text), `"ended": "2`)
		})
	})
	t.Run("trouble of fabrun's own cancels no task and drains no node", func(t *testing.T) {
		script("task-prolog", "--no-such-flag")
		socket, said := listenSyslog(t)
		typo := lab.write("typo.toml", "name = \"typo\"\n[fabric]\nlink_layers = \"ethernet\"\n", 0o644)
		script("prolog", "--profile "+typo+" --root "+lab.demo()+" --cache 0s --syslog "+socket+" "+state)
		if out := lab.output("srun", "-Q", "-N1", "-n1", "/bin/echo", "ran"); out != "ran\n" {
			t.Errorf("got %q", out)
		}
		if log := said(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "typo.toml") || !strings.Contains(log, "link_layers") {
			t.Errorf("a typo in the profile is %q in the log, want one line that names it", log)
		}
		lab.idle()
	})
	t.Run("a fabrun that is missing, crashes or is misled drains nothing", func(t *testing.T) {
		args := map[string]string{"prolog": "--root " + lab.demo() + " --ports 8 --cache 0s " + state, "epilog": state, "task-prolog": "--from demo --profile roce-dscp26"}
		for name, fabrun := range map[string]string{
			"missing": "/no/such/fabrun",
			"crashes": lab.write("crashes", "#!/bin/sh\nkill -SEGV $$\n", 0o755),
			"panics":  lab.write("panics", "#!/bin/sh\necho 'export HOME=/nowhere' | tr e e\nexit 2\n", 0o755),
			"hangs":   lab.write("hangs", "#!/bin/sh\nexec sleep 1000\n", 0o755),
			"works":   lab.fabrun,
		} {
			for door, text := range slurmWrappers(t, fabrun, args) {
				lab.write(door, waitLess.ReplaceAllString(text, "timeout -s KILL 1 "), 0o755)
			}
			cmd := lab.command("srun", "-Q", "-N3", "-n3", "/bin/echo", "ran")
			cmd.Env = append(cmd.Env, wildEnvironments...)
			if out, err := cmd.Output(); err != nil || string(out) != "ran\nran\nran\n" {
				t.Errorf("%s: %q, %v", name, out, err)
			}
			lab.idle()
		}
	})
	script("prolog", "--root "+lab.demo()+" --cache 0s "+state)
	script("epilog", state)
	script("task-prolog", "--from demo --profile roce-dscp26")
	node := func() string { return lab.output("scontrol", "--oneliner", "show", "node", "node02") }
	health := func(ports string) {
		t.Helper()
		cmd := lab.command(lab.fabrun, "slurm", "health", "--root", lab.demo(), "--ports", ports, "--node", "node02", "--state", lab.dir+"/health-state", "--deadline", "30s")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Run("health drains with its reason and resumes after two good looks", func(t *testing.T) {
		health("9")
		if s := slurm.ParseNodeState(node()); !s.Drained || !strings.HasPrefix(s.Reason, "fabrun: fabric ports ") {
			t.Fatalf("after a fault: %+v", s)
		}
		health("8")
		if s := slurm.ParseNodeState(node()); !s.Drained {
			t.Fatalf("one good look resumed it: %+v", s)
		}
		health("8")
		if s := slurm.ParseNodeState(node()); s.Drained {
			t.Fatalf("two good looks did not resume it: %+v", s)
		}
	})
	t.Run("health leaves other people's reasons alone", func(t *testing.T) {
		lab.output("scontrol", "update", "NodeName=node02", "State=DRAIN", "Reason=bad disk")
		for range 3 {
			health("8")
		}
		if s := slurm.ParseNodeState(node()); !s.Drained || s.Reason != "bad disk" {
			t.Fatalf("%+v", s)
		}
		lab.output("scontrol", "update", "NodeName=node02", "State=RESUME")
	})
	t.Run("a failing prolog drains the node", func(t *testing.T) {
		lab.idle()
		file := filepath.Join(lab.demo(), "sys/class/infiniband/mlx5_3/ports/1/state")
		port := func(state string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(state+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		port("1: DOWN")
		cmd := lab.command("srun", "-Q", "-w", "node03", "--immediate=10", "/bin/true")
		//nolint:errcheck // whether srun waits or fails is Slurm's
		_ = cmd.Start()
		t.Cleanup(func() {
			//nolint:errcheck // it waits for a node that never comes
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		lab.until("node03 is drained", func() bool {
			return slurm.ParseNodeState(lab.output("scontrol", "--oneliner", "show", "node", "node03")).Drained
		})
		text := func() slurm.NodeState {
			return slurm.ParseNodeState(lab.output("scontrol", "--oneliner", "show", "node", "node03"))
		}
		look := func() {
			t.Helper()
			out, err := lab.command(lab.fabrun, "slurm", "health", "--root", lab.demo(), "--node", "node03", "--state", lab.dir+"/fabrun-node03", "--deadline", "30s").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		if s := text(); !strings.EqualFold(s.Reason, slurm.PrologReason) {
			t.Errorf("Slurm's reason is %q, want %q", s.Reason, slurm.PrologReason)
		}
		look()
		if s := text(); !s.Drained || s.Reason != "fabrun: mlx5_3:1 DOWN, LinkUp (slurm.port-down)" {
			t.Errorf("health gave it %+v", s)
		}
		port("4: ACTIVE")
		look()
		look()
		if s := text(); s.Drained {
			t.Errorf("mended, and not resumed: %+v", s)
		}
	})
}

// TestRealSlurmPlacement starts ranks inside Slurm by every launcher that is
// there, and counts where they ran: -np reaches every node of the allocation.
func TestRealSlurmPlacement(t *testing.T) {
	lab := startSlurm(t, "")
	who := lab.write("who", "#!/bin/sh\necho $SLURMD_NODENAME ${OMPI_COMM_WORLD_RANK}${PMI_RANK}\n", 0o755)
	count := func(out string) string {
		n := map[string]int{}
		for line := range strings.Lines(out) {
			if node, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(node, "node") {
				n[node]++
			}
		}
		return fmt.Sprint(n)
	}
	for _, tc := range []struct {
		name, launcher string
		args           []string
		want           string
	}{
		{"even, Open MPI", "mpirun.openmpi", []string{"-np", "3"}, "map[node01:1 node02:1 node03:1]"},
		{"uneven, Open MPI", "mpirun.openmpi", []string{"-np", "4"}, "map[node01:2 node02:1 node03:1]"},
		{"even, MPICH", "mpiexec.mpich", []string{"-n", "3"}, "map[node01:1 node02:1 node03:1]"},
		{"uneven, MPICH", "mpiexec.mpich", []string{"-n", "5"}, "map[node01:2 node02:2 node03:1]"},
		{"the user's own mapping", "mpirun.openmpi", []string{"--map-by", "slot", "-np", "3"}, "map[node01:2 node02:1]"},
		{"srun", "srun", nil, "map[node01:2 node02:2 node03:2]"},
		{"a part of the allocation", "srun", []string{"-N1", "-n2"}, "map[node01:2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if realProgram(tc.launcher) == "" {
				t.Skipf("no %s", tc.launcher)
			}
			job := append([]string{lab.fabrun, "--quiet", tc.launcher}, append(tc.args, who)...)
			cmd := lab.command("salloc", append([]string{"-Q", "-N3", "-n6"}, job...)...)
			cmd.Env = append(cmd.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := count(string(out)); got != tc.want {
				t.Errorf("ran on %s, want %s:\n%s", got, tc.want, out)
			}
		})
	}
	lab.write("topology.conf", "SwitchName=a Nodes=node03\nSwitchName=b Nodes=node[01-02]\nSwitchName=top Switches=a,b\n", 0o644)
	for _, launcher := range []string{"mpirun.openmpi", "srun"} {
		t.Run("in the order of the switches, "+launcher, func(t *testing.T) {
			cmd := lab.command("salloc", "-Q", "-N3", "-n6", lab.fabrun, "--quiet", "--topology", lab.dir+"/topology.conf",
				launcher, "-n", "6", "sh", "-c", "echo $SLURMD_NODENAME $SLURM_LOCALID ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}")
			cmd.Env = append(cmd.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range []string{"node03 \\d 0\n", "node03 \\d 1\n", "node01 \\d 2\n", "node02 \\d 5\n"} {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
	t.Run("a batch script's own launchers", func(t *testing.T) {
		script := lab.write("job", "#!/bin/sh\n#SBATCH -N3 -n6\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"+
			lab.fabrun+" --quiet --hosts 'node[01-03]' sh -c 'mpirun.openmpi -np 4 "+who+"; srun -N2 -n2 "+who+"'\n", 0o755)
		lab.output("sbatch", "-Q", "-W", "-o", lab.dir+"/job.out", script)
		out, err := os.ReadFile(filepath.Join(lab.dir, "job.out"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := count(string(out)), "map[node01:3 node02:2 node03:1]"; got != want {
			t.Errorf("ran on %s, want %s:\n%s", got, want, out)
		}
	})
	t.Run("tasks that cannot find each other", func(t *testing.T) {
		cc := realProgram("mpicc.mpich")
		if cc == "" {
			t.Skip("no mpicc.mpich (apt-get install libmpich-dev)")
		}
		src := lab.write("hello.c", "#include <mpi.h>\n#include <stdio.h>\nint main(int c,char**v){int n;MPI_Init(&c,&v);MPI_Comm_size(MPI_COMM_WORLD,&n);printf(\"size %d\\n\",n);return MPI_Finalize();}\n", 0o644)
		if out, err := exec.Command(cc, "-o", filepath.Join(lab.dir, "hello"), src).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		for mpi, want := range map[string]string{"none": "size 1", "pmi2": "size 2"} {
			out, err := lab.command("salloc", "-Q", "-N2", "-n2", lab.fabrun, "srun", "--mpi="+mpi, "./hello").CombinedOutput()
			if err != nil || strings.Count(string(out), want+"\n") != 2 || strings.Contains(string(out), "srun.mpi-none") != (mpi == "none") {
				t.Errorf("--mpi=%s: %v\n%s", mpi, err, out)
			}
		}
		// Slurm's default is none here, and nobody has said otherwise.
		out, err := lab.command("salloc", "-Q", "-N2", "-n2", lab.fabrun, "srun", "./hello").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "srun.mpi-none") {
			t.Errorf("MpiDefault=none: %v\n%s", err, out)
		}
	})
}
