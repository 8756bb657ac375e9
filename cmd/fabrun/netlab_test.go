package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fabrun/testdata/wait"
)

// netLab is a cluster of hosts on this machine: each has namespaces of its own
// for processes, mounts, names and networks, an sshd with a key of its own, a
// home of its own, and two networks that all share. fabrun lies on the first
// only. What else they share is the directory share.
type netLab struct {
	t     *testing.T
	dir   string
	nodes []*netNode
}

type netNode struct {
	name string
	init int // the first process of its namespaces, as seen from here
	base []int
}

// netLabNode is the life of one host; $1 the lab's directory, $2 its name.
const netLabNode = `set -eu
lab=$1 name=$2
hostname "$name"
mount --make-rprivate /
ip link set lo up
echo up
read line # the network is there
mount --bind "$lab/$name" /root
mount --bind "$lab/hosts" /etc/hosts
for d in /tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $d; done
if [ -e "$lab/$name/noexec" ]; then for d in /root /dev/shm; do mount -o remount,bind,noexec "$d" 2>/dev/null || mount -o remount,noexec "$d"; done; fi
[ "$name" = node01 ] || mount -t tmpfs tmpfs "$lab/head"
mkdir -p /run/sshd
/usr/sbin/sshd -f "$lab/$name/sshd_config" -E "$lab/$name/sshd.log"
echo ready
while :; do wait; sleep 0.2 || :; done`

// netLabAddress is a node's address on network 0 or 1.
func netLabAddress(network, node int) string { return fmt.Sprintf("10.%d.0.%d", 77+network, node) }

// startNetLab brings up n hosts, or skips with the reason. Everything ends with
// the test. noexec names hosts where home and /dev/shm take no programs.
func startNetLab(t *testing.T, n int, noexec ...string) *netLab {
	t.Helper()
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("starts hosts of its own: make test-real does it (FABRUN_REAL=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces want root")
	}
	for _, prog := range []string{"unshare", "nsenter", "ip", "sshd", "ssh-keygen", "ssh"} {
		if realProgram(prog) == "" {
			t.Skipf("no hosts of its own: no %s (apt-get install iproute2 openssh-server openssh-client util-linux)", prog)
		}
	}
	// Not t.TempDir: the hosts have a /tmp of their own.
	dir, err := os.MkdirTemp("/run", "fabrun-lab-")
	if err != nil {
		t.Skipf("no place for hosts of its own: %v", err)
	}
	l := &netLab{t: t, dir: dir}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"head", "share", "switch"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", l.fabrun(), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is shipped: the hosts may lack what it links
	l.must(build)
	l.must(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/key"))
	key, err := os.ReadFile(dir + "/key.pub")
	if err != nil {
		t.Fatal(err)
	}
	hosts, known := "127.0.0.1 localhost\n", ""
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("node%02d", i)
		home := filepath.Join(dir, name)
		hosts += fmt.Sprintf("%s %s\n", netLabAddress(0, i), name)
		if err := os.MkdirAll(home+"/.ssh", 0o700); err != nil {
			t.Fatal(err)
		}
		l.write(name+"/.ssh/authorized_keys", string(key))
		l.must(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home+"/host_key"))
		public, err := os.ReadFile(home + "/host_key.pub")
		if err != nil {
			t.Fatal(err)
		}
		known += name + "," + netLabAddress(0, i) + " " + string(public)
		l.write(name+"/sshd_config", "HostKey "+home+"/host_key\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 50\n")
		if slices.Contains(noexec, name) {
			l.write(name+"/noexec", "")
		}
	}
	l.write("hosts", hosts)
	l.write("known_hosts", known)

	network := l.namespace("switch", `ip link set lo up; for b in 0 1; do ip link add br$b type bridge; ip link set br$b up; done; echo up; read line; exec sleep 3600`)
	var ready []*netStarting
	for i := 1; i <= n; i++ {
		s := l.namespace(fmt.Sprintf("node%02d", i), netLabNode)
		for b := range 2 {
			port := fmt.Sprintf("p%d-%d", b, i)
			l.must(exec.Command("ip", "link", "add", "name", port, "netns", strconv.Itoa(network.init), "type", "veth", "peer", "name", fmt.Sprintf("eth%d", b), "netns", strconv.Itoa(s.init)))
			l.must(inNet(network.init, "ip", "link", "set", port, "master", fmt.Sprintf("br%d", b), "up"))
			l.must(inNet(s.init, "ip", "addr", "add", netLabAddress(b, i)+"/24", "dev", fmt.Sprintf("eth%d", b)))
			l.must(inNet(s.init, "ip", "link", "set", fmt.Sprintf("eth%d", b), "up"))
		}
		ready = append(ready, s)
	}
	for i, s := range ready {
		s.next("the network is there\n", "ready\n")
		node := &netNode{name: fmt.Sprintf("node%02d", i+1), init: s.init}
		l.until("sshd of "+node.name, func() bool {
			return inNet(node.init, "bash", "-c", "exec 3<>/dev/tcp/"+netLabAddress(0, i+1)+"/22").Run() == nil
		})
		l.nodes = append(l.nodes, node)
	}
	l.until("quiet hosts", func() bool { // no connection of the question above
		quiet := true
		for _, n := range l.nodes {
			n.base = n.processes()
			quiet = quiet && len(n.base) <= 3
		}
		return quiet
	})
	return l
}

func (l *netLab) fabrun() string { return filepath.Join(l.dir, "head", "fabrun") }

func (l *netLab) must(cmd *exec.Cmd) {
	l.t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%q: %v: %s", cmd.Args, err, out)
	}
}

func (l *netLab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// netStarting is a host that waits for its network.
type netStarting struct {
	t    *testing.T
	init int
	in   *os.File
	out  *os.File
}

func (s *netStarting) next(say, want string) {
	s.t.Helper()
	if _, err := s.in.WriteString(say); err != nil {
		s.t.Fatal(err)
	}
	s.expect(want)
}

func (s *netStarting) expect(want string) {
	s.t.Helper()
	if err := s.out.SetReadDeadline(time.Now().Add(wait.Left(s.t))); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	text := ""
	for !strings.HasSuffix(text, want) {
		n, err := s.out.Read(buf)
		if text += string(buf[:n]); err != nil {
			s.t.Fatalf("wanted %q, got %q, %v", want, text, err)
		}
	}
}

// namespace starts a shell as the first process of new namespaces.
func (l *netLab) namespace(name, script string) *netStarting {
	l.t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net", "--uts", "--ipc", "--kill-child=KILL", "sh", "-c", script, "sh", l.dir, name)
	cmd.Env = []string{"PATH=" + systemPath}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, outW
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	_, _ = inR.Close(), outW.Close()
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_, _ = inW.Close(), outR.Close()
	})
	s := &netStarting{t: l.t, in: inW, out: outR}
	s.expect("up\n")
	below := childPIDs(cmd.Process.Pid)
	if len(below) != 1 {
		l.t.Fatalf("unshare has the children %v", below)
	}
	s.init = below[0]
	return s
}

// childPIDs asks /proc/PID/task/PID/children (proc(5)).
func childPIDs(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, w := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(w); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func inNet(init int, argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(init), "--net"}, argv...)...)
}

// processes are the living processes of a host.
func (n *netNode) processes() []int {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", n.init))
	if err != nil {
		return nil // the host is gone
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil
	}
	var out []int
	for _, path := range all {
		if ns, err := os.Readlink(path); err != nil || ns != own {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			continue
		}
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(text), ") Z ") {
			continue
		}
		out = append(out, pid)
	}
	return out
}

func commandLine(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(text)
}

// left are the processes of all hosts that were not there before a job.
func (l *netLab) left() []string {
	var out []string
	for _, n := range l.nodes {
		for _, pid := range n.processes() {
			if !slices.Contains(n.base, pid) && commandLine(pid) != "sleep\x000.2\x00" {
				out = append(out, fmt.Sprintf("%s: %d %s", n.name, pid, strings.ReplaceAll(commandLine(pid), "\x00", " ")))
			}
		}
	}
	return out
}

// until polls: nobody tells of other programs' processes.
func (l *netLab) until(what string, ok func() bool) {
	l.t.Helper()
	for !ok() {
		if wait.Left(l.t) < 0 {
			l.t.Fatalf("go test's own time is up, and not reached: %s; there are\n%s", what, strings.Join(l.left(), "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// empty wants that nothing of a job is left on any host.
func (l *netLab) empty() {
	l.t.Helper()
	l.until("no process of the job on any host", func() bool { return len(l.left()) == 0 })
}

// output is what a command that may still run has written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// netJob is a command on the first host.
type netJob struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    output
	stderr output
	done   chan error
}

// start starts a command on the first host, where the key is the user's.
func (l *netLab) start(env []string, argv ...string) *netJob {
	l.t.Helper()
	head := l.nodes[0]
	words := []string{
		"-t", strconv.Itoa(head.init), "--all", "env", "-C", filepath.Join(l.dir, "share"), "-i", "HOME=/root", "USER=root", "PATH=" + systemPath,
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait.Left(l.t))
	l.t.Cleanup(cancel)
	j := &netJob{t: l.t, cmd: exec.CommandContext(ctx, "nsenter", slices.Concat(words, env, argv)...), done: make(chan error, 1)}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.stderr
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.WaitDelay = time.Second
	if err := j.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() { j.done <- j.cmd.Wait() }()
	l.t.Cleanup(func() { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) })
	return j
}

// fabrunOn is fabrun with what it needs to reach the lab's hosts.
func (l *netLab) fabrunOn(hosts string, argv ...string) []string {
	return append([]string{l.fabrun(), "--hosts", hosts, "--ssh-key", l.dir + "/key", "--known-hosts", l.dir + "/known_hosts"}, argv...)
}

// status waits for the end; nsenter hands the status on.
func (j *netJob) status() int {
	j.t.Helper()
	err := <-j.done
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		j.t.Fatal(err)
	}
	if ws := j.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return j.cmd.ProcessState.ExitCode()
}

// pid is the command's own process: nsenter starts it in the host's namespace.
func (j *netJob) pid() int {
	if below := childPIDs(j.cmd.Process.Pid); len(below) == 1 {
		return below[0]
	}
	return 0
}

func (j *netJob) text() string {
	return "stdout:\n" + j.out.String() + "stderr:\n" + j.stderr.String()
}

func (l *netLab) run(env []string, argv ...string) *netJob {
	l.t.Helper()
	j := l.start(env, argv...)
	if got := j.status(); got != 0 {
		l.t.Errorf("status %d\n%s", got, j.text())
	}
	return j
}

// slurm runs a Slurm over the lab's hosts: munged and slurmctld on the first,
// a slurmd on each.
func (l *netLab) slurm() {
	l.t.Helper()
	for _, prog := range []string{"munged", "slurmctld", "slurmd", "srun", "salloc"} {
		if realProgram(prog) == "" {
			l.t.Skipf("no real Slurm: no %s (apt-get install slurm-wlm munge)", prog)
		}
	}
	dir := filepath.Join(l.dir, "share", "slurm")
	conf := fmt.Sprintf(`ClusterName=lab
SlurmctldHost=node01(%[2]s)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge/s
SlurmctldPidFile=%[1]s/ctld.pid
SlurmdPidFile=%[1]s/d-%%n.pid
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool/%%n
SlurmctldLogFile=%[1]s/ctld.log
SlurmdLogFile=%[1]s/d-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
`, dir, netLabAddress(0, 1))
	for i, n := range l.nodes {
		conf += fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=2\n", n.name, netLabAddress(0, i+1))
		if err := os.MkdirAll(filepath.Join(dir, "spool", n.name), 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, d := range []string{"state", "munge"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	l.write("share/slurm/slurm.conf", conf)
	l.write("share/slurm/munge/key", strings.Repeat("not a secret: one test, one key.", 4))
	daemon := func(n *netNode, name string, args ...string) {
		l.t.Helper()
		words := []string{"-t", strconv.Itoa(n.init), "--all", "env", "-i", "PATH=" + systemPath, "SLURM_CONF=" + dir + "/slurm.conf", realProgram(name)}
		cmd := exec.Command("nsenter", append(words, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
		if err := cmd.Start(); err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { // its host ends it; this only waits
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	m := dir + "/munge"
	daemon(l.nodes[0], "munged", "--foreground", "--force", "--key-file="+m+"/key", "--socket="+m+"/s", "--pid-file="+m+"/pid", "--seed-file="+m+"/seed", "--log-file="+m+"/log")
	l.until("munged answers", func() bool { _, err := os.Stat(m + "/s"); return err == nil })
	daemon(l.nodes[0], "slurmctld", "-D", "-c")
	for _, n := range l.nodes {
		daemon(n, "slurmd", "-D", "-N", n.name)
	}
	l.until("idle nodes", func() bool {
		j := l.start([]string{"SLURM_CONF=" + dir + "/slurm.conf"}, "sinfo", "-h", "-N", "-o", "%T")
		return j.status() == 0 && j.out.String() == strings.Repeat("idle\n", len(l.nodes))
	})
	for _, n := range l.nodes {
		n.base = n.processes()
	}
}
