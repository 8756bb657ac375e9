package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/launcher/remote/remotetest"
)

// fakeFault is what one host or port of the fake cluster does to a test.
type fakeFault struct {
	Kind string // "slow", "sends badly", "receives badly", "dead", "memlock", "mtu", "gid", "port down", "hangs", "no cuda", "staged"
	Host int
	Rail int // -1: every rail
}

// fakeFabric is what the fake perftest programs go by, as a file.
type fakeFabric struct {
	RateGbps float64
	Faults   []fakeFault
}

// fakePerftest stands for ib_write_bw, ib_send_lat and ibv_rc_pingpong: a
// server waits on the TCP port, a client connects to it, both agree who they
// are, and print in the form of perftest 6.x what the fabric file says of them.
func fakePerftest() {
	name := filepath.Base(os.Args[0])
	arg := func(flag string) string {
		if i := slices.Index(os.Args, flag); i > 0 && i+1 < len(os.Args) {
			return os.Args[i+1]
		}
		return ""
	}
	fail := func(text string) {
		fmt.Println(text)
		os.Exit(1)
	}
	var fabric fakeFabric
	text, err := os.ReadFile(os.Getenv("FAKE_FABRIC"))
	if err == nil {
		err = json.Unmarshal(text, &fabric)
	}
	me, err2 := strconv.Atoi(os.Getenv("FAKE_HOST"))
	if err := errors.Join(err, err2); err != nil {
		fail(err.Error())
	}
	rail, _ := strconv.Atoi(strings.TrimPrefix(arg("-d"), "mlx5_"))
	has := func(kind string, host int) bool {
		return slices.ContainsFunc(fabric.Faults, func(f fakeFault) bool { return f.Kind == kind && f.Host == host && (f.Rail < 0 || f.Rail == rail) })
	}
	if log := os.Getenv("FAKE_LOG"); log != "" {
		f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintln(f, me, strings.Join(os.Args, " "))
			_ = f.Close()
		}
	}
	cuda := slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "--use_cuda") })
	switch {
	case cuda && has("no cuda", me):
		fail(name + ": unrecognized option '--use_cuda=0'\n Invalid Command line. Please check command rerun ")
	case has("port down", me):
		fail(" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device")
	case has("memlock", me):
		fail("Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources")
	case has("hangs", me):
		select {}
	}
	last := os.Args[len(os.Args)-1]
	var c net.Conn
	server := strings.HasPrefix(last, "-") || slices.Contains(os.Args[:len(os.Args)-1], "-q") && os.Args[len(os.Args)-2] == "-q" || !strings.Contains(last, ".")
	if server {
		l, err := net.Listen("tcp", ":"+arg("-p"))
		if err != nil {
			fail("Couldn't listen to port " + arg("-p"))
		}
		fmt.Println("\n************************************\n* Waiting for client to connect... *\n************************************")
		if c, err = l.Accept(); err != nil {
			os.Exit(1)
		}
	} else if c, err = net.DialTimeout("tcp", net.JoinHostPort(last, arg("-p")), 5*time.Second); err != nil {
		fail("Couldn't connect to " + last + ":" + arg("-p") + "\n Unable to open file descriptor for socket connection Unable to init the socket connection")
	}
	fmt.Fprintln(c, me, strings.Join(os.Args[1:], " "))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		fail(" Failed to exchange data between server and clients")
	}
	theirs, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	other, _ := strconv.Atoi(theirs)
	defer c.Close()
	from, to := me, other
	if server {
		from, to = other, me
	}
	either := func(kind string) bool { return has(kind, from) || has(kind, to) }
	if a, b := strings.Join(os.Args[1:], " "), rest; !server {
		// The real programs refuse ends that were started differently.
		if strings.TrimSuffix(a, " "+last) != b {
			fail(" Failed to exchange data between server and clients\n (" + a + " is not " + b + ")")
		}
	}
	fmt.Print(strings.NewReplacer("DEV", arg("-d"), "QPS", arg("-q"), "MTU", map[bool]string{true: "1024", false: "4096"}[either("mtu")], "GID", arg("-x"), "TOOL", map[bool]string{true: "RDMA_Write BW Test", false: "Send Latency Test"}[name == "ib_write_bw"]).Replace(
		`---------------------------------------------------------------------------------------
                    TOOL
 Dual-port       : OFF		Device         : DEV
 Number of qps   : QPS		Transport type : IB
 Connection type : RC		Using SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : MTU[B]
 Link type       : Ethernet
 GID index       : GID
 Max inline data : 0[B]
 rdma_cm QPs	 : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x00a8 PSN 0x51a2c1 RKey 0x1812bb VAddr 0x007f3e5a600000
 remote address: LID 0000 QPN 0x00a8 PSN 0x8b0d22 RKey 0x1812bb VAddr 0x007f8d11a00000
---------------------------------------------------------------------------------------
`))
	switch {
	case either("gid"):
		fail(" Unable to Connect the HCA's through the link\n Failed to modify QP 168 to RTR\n Unable to Connect the HCA's through the link")
	case either("dead"):
		if server {
			_, _ = io.Copy(io.Discard, c)
			os.Exit(1)
		}
		fail(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n Failed to complete run_iter_bw function successfully")
	case name == "ib_send_lat":
		fmt.Print(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n 2       1000          1.52           9.11         1.61     	       1.63        	0.12   		1.91    		9.11   \n")
		return
	case name == "ibv_rc_pingpong":
		fmt.Print("8192000 bytes in 0.01 seconds = 6553.60 Mbit/sec\n100 iters in 0.01 seconds = 100.00 usec/iter\n")
		return
	}
	share := 0.975
	switch {
	case either("slow"), either("mtu"):
		share = 0.55
	case has("sends badly", from), has("receives badly", to):
		share = 0.1
	case cuda && either("staged"):
		share = 0.15
	}
	fmt.Printf(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 1048576    46500            0.00               %.2f   		     0.023000\n---------------------------------------------------------------------------------------\n", fabric.RateGbps*share)
}

// fakeCluster is hosts on this machine that differ as real ones do: each has a
// network namespace of its own, its own /sys, and its own sshd.
type fakeCluster struct {
	t      *testing.T
	dir    string
	head   int // pid in whose network namespace fabrun runs
	hosts  int
	rails  int
	fabrun string
	ssh    []string // flags
	log    string
	env    []string // more of fabrun's environment
}

// startCluster skips where namespaces cannot be made. Everything ends with the test.
func startCluster(t *testing.T, hosts, rails int) *fakeCluster {
	t.Helper()
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("starts an sshd per host in namespaces: make test-real does it (FABRUN_REAL=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("namespaces and sshd want root")
	}
	sshd := realProgram("sshd")
	for _, prog := range []string{"unshare", "nsenter", "ip", "taskset"} {
		if realProgram(prog) == "" {
			t.Skipf("no %s in %s", prog, systemPath)
		}
	}
	if sshd == "" {
		t.Skip("no sshd on this machine (apt-get install openssh-server)")
	}
	if out, err := exec.Command("unshare", "-n", "-m", "-u", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v: %s", err, out)
	}
	// sshd refuses keys below folders that others may write.
	dir, err := os.MkdirTemp("/run", "fabrun-pairs-")
	if err != nil {
		t.Skipf("sshd needs a folder that only root writes: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.MkdirAll("/run/sshd", 0o755)
	c := &fakeCluster{t: t, dir: dir, hosts: hosts, rails: rails, fabrun: filepath.Join(dir, "fabrun"), log: filepath.Join(dir, "log")}
	if out, err := exec.Command("go", "build", "-o", c.fabrun, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	remotetest.NewKeyFile(t, filepath.Join(dir, "hostkey"))
	remotetest.NewKeyFile(t, filepath.Join(dir, "id"))
	c.write("authorized_keys", c.read("id.pub"))
	c.write("known_hosts", append([]byte("* "), c.read("hostkey.pub")...))
	c.head, _ = c.start("unshare", "-n", "sh", "-c", "echo ready; exec sleep infinity")
	c.in(c.head, "ip", "link", "set", "lo", "up")
	c.in(c.head, "ip", "link", "add", "br0", "type", "bridge")
	c.in(c.head, "ip", "addr", "add", "10.77.0.254/24", "dev", "br0")
	c.in(c.head, "ip", "link", "set", "br0", "up")
	for r := range rails {
		c.in(c.head, "ip", "link", "add", fmt.Sprintf("rail%d", r), "type", "bridge")
		c.in(c.head, "ip", "link", "set", fmt.Sprintf("rail%d", r), "up")
	}
	for i := range hosts {
		bin := filepath.Join(dir, fmt.Sprintf("bin%d", i))
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"} {
			if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		c.sysfs(i)
		conf := fmt.Sprintf("Port 22\nHostKey %[1]s/hostkey\nPidFile none\nAuthorizedKeysFile %[1]s/authorized_keys\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nMaxSessions 64\nLogLevel QUIET\nSetEnv PATH=%[1]s/bin%[2]d:/usr/bin:/bin FAKE_HOST=%[2]d FAKE_FABRIC=%[1]s/fabric FAKE_LOG=%[1]s/log\n", dir, i)
		c.write(fmt.Sprintf("sshd%d", i), []byte(conf))
		// The shell waits until its network is there.
		pid, stdin := c.start("unshare", "-n", "-m", "-u", "sh", "-c", `hostname "$4" && mount --bind "$1" /sys && `+uverbsHere+` && echo ready && read go && exec "$2" -D -e -f "$3"`, "sh", filepath.Join(dir, fmt.Sprintf("sys%d", i)), sshd, filepath.Join(dir, fmt.Sprintf("sshd%d", i)), fmt.Sprintf("node%d", i+1))
		c.in(c.head, "ip", "link", "add", fmt.Sprintf("v%d", i), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid))
		c.in(c.head, "ip", "link", "set", fmt.Sprintf("v%d", i), "master", "br0", "up")
		c.in(pid, "ip", "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "eth0")
		c.in(pid, "ip", "link", "set", "eth0", "up")
		c.in(pid, "ip", "link", "set", "lo", "up")
		for r := range rails {
			c.in(c.head, "ip", "link", "add", fmt.Sprintf("r%dv%d", r, i), "mtu", "9000", "type", "veth", "peer", "name", fmt.Sprintf("rail%d", r), "mtu", "9000", "netns", strconv.Itoa(pid))
			c.in(c.head, "ip", "link", "set", fmt.Sprintf("r%dv%d", r, i), "master", fmt.Sprintf("rail%d", r), "up")
			c.in(pid, "ip", "addr", "add", fmt.Sprintf("10.78.%d.%d/24", r, i+1), "dev", fmt.Sprintf("rail%d", r))
			c.in(pid, "ip", "link", "set", fmt.Sprintf("rail%d", r), "up")
		}
		fmt.Fprintln(stdin, "go")
	}
	c.ssh = []string{"--ssh-user", "root", "--ssh-key", filepath.Join(dir, "id"), "--known-hosts", filepath.Join(dir, "known_hosts"), "--ssh-config", "/dev/null"}
	for i := range hosts {
		for {
			out, err := exec.Command("nsenter", "-t", strconv.Itoa(c.head), "-n", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/10.77.0.%d/22", i+1)).CombinedOutput()
			if err == nil {
				break
			}
			if t.Context().Err() != nil {
				t.Fatalf("sshd of host %d does not answer: %s", i, out)
			}
		}
	}
	return c
}

// uverbsHere gives a mount namespace a /dev of its own, in which the HCAs have
// device nodes that can be opened (those of /dev/null: there is no driver).
const uverbsHere = `mount -t tmpfs dev /mnt && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt/ &&
mkdir -p /mnt/infiniband /mnt/pts /mnt/shm && mount --rbind /dev/pts /mnt/pts && ln -s pts/ptmx /mnt/ptmx && ln -s /proc/self/fd /mnt/fd &&
for d in /sys/class/infiniband_verbs/*; do mknod -m 666 /mnt/infiniband/${d##*/} c 1 3; done && mount --move /mnt /dev`

// start starts a program that says "ready", and ends it with the test.
func (c *fakeCluster) start(name string, args ...string) (pid int, stdin io.Writer) {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		c.t.Fatalf("%s: %q %v", name, line, err)
	}
	return cmd.Process.Pid, in
}

// in runs a program in a process's network namespace.
func (c *fakeCluster) in(pid int, argv ...string) {
	c.t.Helper()
	if out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n"}, argv...)...).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func (c *fakeCluster) read(name string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func (c *fakeCluster) write(name string, text []byte) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

// sysfs is a host with two NUMA nodes, one HCA a rail, and a GPU beside the first.
func (c *fakeCluster) sysfs(host int) {
	root := fmt.Sprintf("sys%d/", host)
	put := func(path, text string) { c.write(root+path, []byte(text+"\n")) }
	link := func(path, to string) {
		c.t.Helper()
		full := filepath.Join(c.dir, root+path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.Symlink(to, full)); err != nil {
			c.t.Fatal(err)
		}
	}
	put("devices/system/node/online", "0-1")
	put("devices/system/node/node0/cpulist", "0")
	put("devices/system/node/node1/cpulist", "1")
	put("devices/system/cpu/online", "0-1")
	device := func(bus int, files map[string]string) string {
		dir := fmt.Sprintf("devices/pci0000:%02x/0000:%02x:00.0", bus, bus+1)
		for k, v := range files {
			put(dir+"/"+k, v)
		}
		link(fmt.Sprintf("bus/pci/devices/0000:%02x:00.0", bus+1), "../../../"+dir)
		return dir
	}
	for r := range c.rails {
		dir := device(0x3a+0x10*r, map[string]string{
			"class": "0x020000", "vendor": "0x15b3", "device": "0x1021", "numa_node": strconv.Itoa(r % 2), "local_cpulist": strconv.Itoa(r % 2),
			"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe", "current_link_width": "16", "max_link_width": "16",
		})
		hca, nd := fmt.Sprintf("mlx5_%d", r), fmt.Sprintf("rail%d", r)
		ib := dir + "/infiniband/" + hca
		put(ib+"/node_type", "1: CA")
		put(fmt.Sprintf("class/infiniband_verbs/uverbs%d/ibdev", r), hca)
		put(ib+"/fw_ver", "28.39.1002")
		port := ib + "/ports/1/"
		for k, v := range map[string]string{"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)"} {
			put(port+k, v)
		}
		put(port+"gids/3", fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a4e:%02x%02x", r, host+1))
		put(port+"gid_attrs/types/3", "RoCE v2")
		put(port+"gid_attrs/ndevs/3", nd)
		link("class/infiniband/"+hca, "../../"+ib)
		link(ib+"/device", "../../../"+filepath.Base(dir))
		link(dir+"/driver", "../../../bus/pci/drivers/mlx5_core")
		put("bus/pci/drivers/mlx5_core/new_id", "")
		for k, v := range map[string]string{"mtu": "9000", "operstate": "up", "carrier": "1", "type": "1", "speed": "200000"} {
			put(dir+"/net/"+nd+"/"+k, v)
		}
		link(dir+"/net/"+nd+"/device", "../../../"+filepath.Base(dir))
		link("class/net/"+nd, "../../"+dir+"/net/"+nd)
	}
	device(0x70, map[string]string{"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "0", "local_cpulist": "0"})
}

type checkFinding struct{ ID, Severity, Host, Subject, Seen, Wanted, Why, Hint string }

// checkResult is what the tests read of check --json.
type checkResult struct {
	Verdict  string
	Coverage string
	Findings []checkFinding
	Hosts    []struct {
		Host     string
		Findings []checkFinding
	}
	Collectives []struct {
		Program, Network, Verdict string
		Nodes, Ranks              int
		Gbps                      *float64
		Error                     *string
	}
	Stages []struct{ ID, Status, Why string }
	Pairs  []struct {
		From, To, Verdict string
		Rail              int
		Gbps              *float64
	}
}

func (c *fakeCluster) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), "nsenter", append([]string{"-t", strconv.Itoa(c.head), "-n", c.fabrun}, args...)...)
	cmd.Env = append([]string{"PATH=" + systemPath, "HOME=" + c.dir, "USER=root"}, c.env...)
	return cmd
}

// check measures the pairs of all hosts under faults.
func (c *fakeCluster) check(faults []fakeFault, args ...string) (r checkResult, stderr string) {
	c.t.Helper()
	text, err := json.Marshal(fakeFabric{RateGbps: 200, Faults: faults})
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("fabric", text)
	cmd := c.command(slices.Concat([]string{"check", "--json", "--hosts", fmt.Sprintf("10.77.0.[1-%d]", c.hosts), "--profile", "roce-dscp26", "--pairs", "quick"}, c.ssh, args)...)
	var errw strings.Builder
	cmd.Stderr = &errw
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		c.t.Fatalf("%v: %s\n%s", err, out, errw.String())
	}
	return r, errw.String()
}

// pairFindings are the findings of the pair test: "severity id host: subject".
func (r checkResult) pairFindings() []string {
	var out []string
	all := r.Findings
	for _, h := range r.Hosts {
		all = append(all, h.Findings...)
	}
	for _, f := range all {
		if strings.HasPrefix(f.ID, "pair.") {
			out = append(out, fmt.Sprintf("%s %s %s: %s", f.Severity, f.ID, f.Host, f.Subject))
		}
	}
	slices.Sort(out)
	return out
}

// TestRealPairs drives the whole machinery: real sshd, real processes on both
// ends with real TCP between them, six hosts of two rails that print what
// perftest prints in each known case.
func TestRealPairs(t *testing.T) {
	c := startCluster(t, 6, 2)
	for _, tc := range []struct {
		name   string
		faults []fakeFault
		args   []string
		want   []string
	}{
		{"good", nil, nil, nil},
		{"slow port", []fakeFault{{"slow", 2, 1}}, nil, []string{"error pair.port 10.77.0.3: mlx5_1 port 1 (rail 1)"}},
		{"one way out", []fakeFault{{"sends badly", 5, 0}}, nil, []string{"error pair.port 10.77.0.6: mlx5_0 port 1 (rail 0)"}},
		{"one way in", []fakeFault{{"receives badly", 0, 0}}, nil, []string{"error pair.port 10.77.0.1: mlx5_0 port 1 (rail 0)"}},
		{"two at once", []fakeFault{{"slow", 1, 0}, {"dead", 4, -1}}, nil, []string{"error pair.node 10.77.0.5: node", "error pair.port 10.77.0.2: mlx5_0 port 1 (rail 0)"}},
		{"locked memory", []fakeFault{{"memlock", 3, -1}}, nil, []string{"error pair.node 10.77.0.4: node"}},
		{"wrong GID", []fakeFault{{"gid", 2, 0}}, nil, []string{"error pair.port 10.77.0.3: mlx5_0 port 1 (rail 0)"}},
		{"port down", []fakeFault{{"port down", 2, 0}}, nil, []string{"error pair.port 10.77.0.3: mlx5_0 port 1 (rail 0)"}},
		{"small MTU", []fakeFault{{"mtu", 1, 1}}, nil, []string{"error pair.port 10.77.0.2: mlx5_1 port 1 (rail 1)"}},
		{"GPU memory is staged", []fakeFault{{"staged", 4, 0}}, []string{"--gpu"}, []string{"error pair.gpu-staging 10.77.0.5: mlx5_0 port 1 (rail 0)"}},
		{"no CUDA in perftest", []fakeFault{{"no cuda", 0, -1}}, []string{"--gpu"}, []string{"warning pair.no-cuda : pairs"}},
		{"all of it", nil, []string{"--latency", "--pairs", "full"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			r, stderr := c.check(tc.faults, tc.args...)
			if got := r.pairFindings(); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q\n%+v\n%s", got, tc.want, r.Pairs, stderr)
			}
			if want := "round 1 of "; !strings.Contains(stderr, want) {
				t.Errorf("no progress in %q", stderr)
			}
		})
	}
	t.Run("the real perftest, and no device behind the files", func(t *testing.T) {
		if realProgram("ib_write_bw") == "" {
			t.Skip("no perftest on this machine (apt-get install perftest)")
		}
		c.t = t
		for i := range c.hosts {
			for _, name := range []string{"ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"} {
				if err := os.Remove(filepath.Join(c.dir, fmt.Sprintf("bin%d", i), name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		r, stderr := c.check(nil)
		if got, want := r.pairFindings(), []string{"error pair.rail : rail 0, 6 hosts: ", "error pair.rail : rail 1, 6 hosts: "}; len(got) != 2 || !strings.HasPrefix(got[0], want[0]) || !strings.HasPrefix(got[1], want[1]) {
			t.Fatalf("got %q\n%s", got, stderr)
		}
		for _, f := range r.Findings {
			if f.ID == "pair.rail" && !strings.Contains(f.Seen, "there is no such RDMA device here") {
				t.Errorf("got %+v", f)
			}
		}
	})
	log := string(c.read("log"))
	for _, want := range []string{"-x 3 --tclass=106 -S 3 --report_gbits", "--use_cuda=0", "ib_send_lat"} {
		if !strings.Contains(log, want) {
			t.Errorf("no program was started with %s", want)
		}
	}
}

// TestRealPreflight: run measures before the start, under --strict a bad node is
// no job (122), and the lists of check --out take it out of the next one.
func TestRealPreflight(t *testing.T) {
	c := startCluster(t, 4, 1)
	bin := filepath.Join(c.dir, "launchers")
	self, err := os.Executable()
	if err := errors.Join(err, os.Mkdir(bin, 0o755), os.Symlink(self, filepath.Join(bin, "mpirun"))); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := c.command(slices.Concat([]string{"run", "--hosts", "10.77.0.[1-4]:1", "--profile", "roce-dscp26"}, c.ssh, args, []string{"mpirun", "-np", "3", "./a.out"})...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+systemPath, "FAKE_HOSTFILE=1")
		var out, errw strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errw
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return out.String(), errw.String(), cmd.ProcessState.ExitCode()
	}
	r, _ := c.check([]fakeFault{{"dead", 2, -1}}, "--out", filepath.Join(c.dir, "lists"))
	if got := r.pairFindings(); !slices.Equal(got, []string{"error pair.port 10.77.0.3: mlx5_0 port 1 (rail 0)"}) {
		t.Fatalf("got %q", got)
	}
	// Where this machine itself limits locked memory, every host has that error too.
	if got := strings.Fields(string(c.read("lists/hosts.fail"))); !slices.Contains(got, "10.77.0.3") || len(got) != 1 && len(got) != 4 {
		t.Errorf("hosts.fail holds %q", got)
	}
	c.write("bad", []byte("10.77.0.3\n"))
	if _, stderr, status := run("--preflight", "quick", "--strict"); status != 122 || !strings.Contains(stderr, "--strict: not started: 10.77.0.") {
		t.Errorf("status %d: %s", status, stderr)
	}
	stdout, stderr, status := run("--preflight", "quick")
	if status != 0 || !strings.Contains(stderr, "error    pair.port  10.77.0.3: mlx5_0 port 1 (rail 0)") || !strings.Contains(stdout, "mpirun: argv") {
		t.Errorf("without --strict the job runs: status %d: %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = run("--preflight", "full", "--exclude", filepath.Join(c.dir, "bad"))
	if status != 0 || strings.Contains(stdout, "\n10.77.0.3 ") || !strings.Contains(stdout, "\n10.77.0.4 ") || strings.Contains(stderr, "pair.") {
		t.Errorf("with --exclude: status %d: %s%s", status, stdout, stderr)
	}
}

// fakeBenchmarks is an MPI program that prints the tables of nccl-tests and OSU
// by the name it is called by: what a healthy or a fallen-back fabric of one
// 200 Gb/s rail would give, and over TCP when it is told to.
const fakeBenchmarks = `#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
  int rank, size, nodes = 0, n;
  char name[MPI_MAX_PROCESSOR_NAME] = {0}, *all;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(name, &n);
  all = calloc(size, sizeof name);
  MPI_Gather(name, sizeof name, MPI_CHAR, all, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (int i = 0; i < size; i++) {
      int seen = 0;
      for (int j = 0; j < i; j++) seen |= !strcmp(all + i * sizeof name, all + j * sizeof name);
      nodes += !seen;
    }
    const char *net = getenv("NCCL_NET"), *how = getenv("FAKE_BENCH");
    int tcp = net && !strcmp(net, "Socket") || how && !strcmp(how, "fallback");
    if (strstr(argv[0], "all_reduce_perf")) {
      double bus = nodes == 1 ? 210 : tcp ? 2.1 : 23.4;
      printf("# nThread 1 nGpus 1 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n");
      for (int i = 0; i < size; i++) printf("#  Rank %2d Group  0 Pid %6d on %10s device  0 [0x70] NVIDIA H100 80GB HBM3\n", i, 1000 + i, all + i * sizeof name);
      printf("#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n");
      printf("           8             2     float     sum      -1    21.50    0.00    0.00      0    21.30    0.00    0.00      0\n");
      printf("  4294967296    1073741824     float     sum      -1   181000   23.70  %6.2f      0   181010   23.70  %6.2f      0\n", bus, bus);
      printf("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : %.4f \n#\n", bus / 2);
    } else if (strstr(argv[0], "osu_mbw_mr")) {
      printf("# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: %d ] [ window size: 64 ]\n# Size                  MB/s        Messages/s\n1                       12.40       12399812.21\n4194304              %8.2f          5871.10\n", size / 2, (tcp ? 1900. : 24100.) * (nodes / 2));
    } else {
      printf("# OSU MPI All-to-All Personalized Exchange Latency Test v7.4\n# Size       Avg Latency(us)\n1                       8.12\n65536                 %.2f\n131072                %.2f\n", tcp ? 1900. : 120.4, tcp ? 3800. : 240.9);
    }
  }
  MPI_Finalize();
  return 0;
}
`

// TestRealCollectives: real Open MPI starts the benchmarks on the hosts, as the
// plan says, by ssh; over TCP beside it; and one of the hosts falls back.
func TestRealCollectives(t *testing.T) {
	mpicc := realProgram("mpicc.openmpi")
	if mpicc == "" || realProgram("mpirun.openmpi") == "" {
		t.Skip("no real Open MPI (apt-get install openmpi-bin libopenmpi-dev)")
	}
	c := startCluster(t, 2, 1)
	c.write("bench.c", []byte(fakeBenchmarks))
	bench := filepath.Join(c.dir, "bench")
	if err := os.Mkdir(bench, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mpicc, "-o", filepath.Join(bench, "all_reduce_perf"), filepath.Join(c.dir, "bench.c")).CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v: %s", err, out)
	}
	for _, name := range []string{"osu_mbw_mr", "osu_alltoall"} {
		if err := os.Link(filepath.Join(bench, "all_reduce_perf"), filepath.Join(bench, name)); err != nil {
			t.Fatal(err)
		}
	}
	// The ports are files only: the plan's pml=ucx would find no device behind them.
	c.env = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_pml=ob1"}
	for _, tc := range []struct {
		name string
		env  string
		args []string
		want []string
	}{
		{"healthy", "", []string{"--compare", "tcp"}, []string{
			"all_reduce_perf 1 rdma good", "all_reduce_perf 2 rdma good", "all_reduce_perf 2 tcp unknown",
			"osu_mbw_mr 2 rdma good", "osu_mbw_mr 2 tcp unknown", "osu_alltoall 2 rdma unknown", "osu_alltoall 2 tcp unknown",
		}},
		{"sockets", "FAKE_BENCH=fallback", nil, []string{
			"all_reduce_perf 1 rdma good", "all_reduce_perf 2 rdma broken", "osu_mbw_mr 2 rdma broken", "osu_alltoall 2 rdma unknown",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			was := c.env
			defer func() { c.env = was }()
			args := append([]string{"--pairs", "off", "--collectives=" + bench}, tc.args...)
			if tc.env != "" {
				c.env = append(slices.Clone(was), tc.env, "OMPI_MCA_mca_base_env_list=FAKE_BENCH")
			}
			r, stderr := c.check(nil, args...)
			var got []string
			for _, run := range r.Collectives {
				got = append(got, fmt.Sprintf("%s %d %s %s", run.Program, run.Nodes, run.Network, run.Verdict))
				if run.Error != nil {
					t.Errorf("%s on %d nodes: %s", run.Program, run.Nodes, *run.Error)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q\n%s", got, tc.want, stderr)
			}
			drop := slices.ContainsFunc(r.Findings, func(f checkFinding) bool { return f.ID == "nccl-tests.node-drop" })
			if drop != (tc.env != "") {
				t.Errorf("findings %+v", r.Findings)
			}
		})
	}
}

// TestRealBringup: the stages in their order, to the first that fails.
func TestRealBringup(t *testing.T) {
	c := startCluster(t, 4, 1)
	status := func(r checkResult) string {
		var s []string
		for _, st := range r.Stages {
			s = append(s, st.ID+" "+st.Status)
		}
		return strings.Join(s, ", ")
	}
	// Where this machine limits locked memory, no cluster on it is fit for RDMA.
	if r, _ := c.check(nil, "--pairs", "off", "--bringup"); strings.Contains(status(r), "driver failed") {
		if want := "link passed, driver failed, pairs not reached"; !strings.HasPrefix(status(r), want) {
			t.Errorf("got %s", status(r))
		}
		t.Skip("locked memory is limited on this machine: the stages behind the driver's were not tried")
	}
	r, stderr := c.check([]fakeFault{{"slow", 1, 0}}, "--bringup")
	if want := "link passed, driver passed, pairs failed, gpudirect not reached, qos not reached, collectives not reached, separation not reached"; status(r) != want {
		t.Errorf("got %s\n%s", status(r), stderr)
	}
	r, stderr = c.check(nil, "--bringup")
	if want := "link passed, driver passed, pairs passed, gpudirect passed, qos passed, collectives skipped, separation passed"; status(r) != want {
		t.Errorf("got %s\n%s", status(r), stderr)
	}
}
