package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fabrun/topology"
	"fabrun/topology/discover"
	"fabrun/topology/finding"
)

// cluster is the one pair of nodes that all tests share: starting it costs
// more than most of them. A test leaves it as it found it.
var cluster struct {
	*lab
	fabrun string // the binary under test, on this machine too
	skip   string
	err    error
}

func TestMain(m *testing.M) {
	os.Exit(withCluster(m))
}

func withCluster(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cluster.fabrun = filepath.Join(dir, "fabrun")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", cluster.fabrun, "fabrun/cmd/fabrun")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build fabrun: %v\n%s", err, out)
		return 1
	}
	var why cannot
	cluster.lab, cluster.err = startLab(ctx, filepath.Join(dir, "lab"), 2, cluster.fabrun, os.Stderr)
	if errors.As(cluster.err, &why) {
		cluster.skip = why.Error()
	}
	code := m.Run()
	if cluster.lab != nil {
		if err := cluster.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// nodes gives the test the cluster, or skips it with the reason. Where the lab
// must be there (CI), not having one is a failure.
func nodes(t *testing.T) *lab {
	t.Helper()
	if cluster.skip != "" && os.Getenv("FABRUN_LAB_REQUIRED") == "" {
		t.Skip(cluster.skip)
	}
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	for _, g := range cluster.guests {
		if g.off() { // a test has switched it off
			if err := errors.Join(cluster.startGuest(g), cluster.await(t.Context(), g)); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	t.Cleanup(func() { t.Logf("took %.0f s", time.Since(begin).Seconds()) })
	for _, name := range segmentNames() {
		cluster.segments[name].take()
	}
	return cluster.lab
}

// on runs a command on a node with a deadline and returns its result whatever
// its exit status.
func on(t *testing.T, l *lab, node int, command string, deadline time.Duration) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline*patience)
	defer cancel()
	res, err := l.run(ctx, node, command)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// patience multiplies every deadline, for machines that do much else besides
// (FABRUN_LAB_PATIENCE=4); without it they fail fast.
var patience = time.Duration(max(1, number(os.Getenv("FABRUN_LAB_PATIENCE"))))

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// must is on for a command that has to succeed.
func must(t *testing.T, l *lab, node int, command string, deadline time.Duration) result {
	t.Helper()
	res := on(t, l, node, command, deadline)
	if res.code != 0 {
		t.Fatalf("node%d: %s\n%s", node, command, res)
	}
	return res
}

const (
	hosts  = "--hosts node1,node2"
	soft   = "--profile soft-roce " + hosts
	jobMax = 3 * time.Minute // an MPI job over emulated CPUs takes 15 to 45 s
)

// passed sums what a segment carried, by a condition.
func passed(seen map[flow]int, is func(flow) bool) int {
	n := 0
	for f, count := range seen {
		if is(f) {
			n += count
		}
	}
	return n
}

func roce(from, to int) func(flow) bool {
	return func(f flow) bool { return f.Proto == "roce" && f.From == from && f.To == to }
}

func show(t *testing.T, name string, seen map[flow]int) {
	t.Helper()
	var b bytes.Buffer
	histogram(&b, name, seen)
	t.Logf("on the wire:\n%s", b.String())
}

// snapshotOf reads a node's snapshot as any other machine would.
func snapshotOf(t *testing.T, l *lab, node int) (string, topology.Host) {
	t.Helper()
	text := must(t, l, node, "fabrun snapshot", time.Minute).stdout
	snap, err := discover.ReadSnapshot(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	h, err := discover.Read(snap)
	if err != nil {
		t.Fatal(err)
	}
	return text, h
}

// TestDiscoveryFindsTheMachineThatQEMUWasTold: PCIe paths, NUMA nodes, rails.
func TestDiscoveryFindsTheMachineThatQEMUWasTold(t *testing.T) {
	l := nodes(t)
	_, h := snapshotOf(t, l, 1)
	if h.Name != "node1" || len(h.NUMA) != 2 {
		t.Errorf("host %q with %d NUMA nodes, QEMU was told node1 with 2", h.Name, len(h.NUMA))
	}
	if len(h.HCAs) != rails {
		t.Fatalf("%d HCAs, the node made %d", len(h.HCAs), rails)
	}
	for r := range rails {
		hca := h.HCAs[r]
		netdev := fmt.Sprintf("rail%d", r)
		if hca.Name != fmt.Sprintf("rxe_%d", r) || hca.Driver != "rxe" || len(hca.Ports) != 1 || hca.Ports[0].Netdev != netdev {
			t.Errorf("HCA %d is %s (%s) on %+v, the node put rxe_%d on %s", r, hca.Name, hca.Driver, hca.Ports, r, netdev)
			continue
		}
		if mtu := hca.Ports[0].ActiveMTU; mtu == nil || *mtu != 4096 {
			t.Errorf("%s: active MTU %v, a netdev of 4200 gives 4096", hca.Name, mtu)
		}
		if len(hca.Ports[0].GIDs) != 3 {
			t.Errorf("%s: GIDs %v, wanted link-local, IPv4, IPv6", hca.Name, hca.Ports[0].GIDs)
		}
		// The card sits below a switch below a root port of the pxb of its NUMA node.
		bus := fmt.Sprintf("0000:%02x:", 0x40*(r+1)+3)
		i := slices.IndexFunc(h.Netdevs, func(d topology.Netdev) bool { return d.Name == netdev })
		if i < 0 || !strings.HasPrefix(h.Netdevs[i].PCI, bus) {
			t.Errorf("%s: %+v, QEMU put it on bus %s", netdev, h.Netdevs, bus)
			continue
		}
		if n := numaOf(h, h.Netdevs[i].PCI); n == nil || *n != r {
			t.Errorf("%s: NUMA node %v, QEMU put it on %d", netdev, n, r)
		}
	}
}

func numaOf(h topology.Host, address string) *int {
	for _, d := range h.PCI {
		if d.Address == address {
			return d.NUMA
		}
	}
	return nil
}

// TestSnapshotReplaysOutsideToTheSamePlan: what a node plans, this machine
// plans from the node's snapshot, byte for byte.
func TestSnapshotReplaysOutsideToTheSamePlan(t *testing.T) {
	l := nodes(t)
	text, _ := snapshotOf(t, l, 1)
	const args = "env --json --profile soft-roce"
	inside := must(t, l, 1, "fabrun "+args, time.Minute).stdout
	file := filepath.Join(t.TempDir(), "node1.snap")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(cluster.fabrun, append(strings.Fields(args), "--from", file)...)
	c.Env = []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
	outside, err := c.Output()
	if err != nil {
		t.Fatalf("fabrun %s --from: %v", args, err)
	}
	if string(outside) != inside {
		t.Errorf("inside:\n%s\noutside:\n%s", inside, outside)
	}
}

// TestJobRunsOverRDMAOnBothRailsWithDSCPOnEveryPacket: no variable given by
// hand; the switch between the nodes has seen the packets.
func TestJobRunsOverRDMAOnBothRailsWithDSCPOnEveryPacket(t *testing.T) {
	l := nodes(t)
	before := packets(t, l)
	res := must(t, l, 1, "fabrun "+soft+" --record /tmp/job.record mpirun -np 2 labmpi 8 1000000", jobMax)
	if !strings.Contains(res.stdout, "labmpi: done, 0 wrong bytes") || !strings.Contains(res.stderr, "No fallback") || !strings.Contains(res.stderr, "rc_verbs") || strings.Contains(res.stderr, "FALLBACK") {
		t.Errorf("wanted a whole job and a verdict that names rc_verbs:\n%s", res)
	}
	t.Log(res.stderr)
	after := packets(t, l)
	if len(after) != 2*2*rails {
		t.Fatalf("counters of %d ports and directions, wanted %d: %v", len(after), 2*2*rails, after)
	}
	for name, n := range after {
		if moved := n - before[name]; moved < 100 {
			t.Errorf("%s: %d packets moved", name, moved)
		}
	}
	wantClass(t, l, 26, 2)
	page := must(t, l, 1, "fabrun report /tmp/job.record --html /tmp/job.html && cat /tmp/job.html", time.Minute).stdout
	if !strings.Contains(strings.ToLower(page), "<!doctype html>") || !strings.Contains(page, "rc_verbs") {
		t.Errorf("no report page of the job: %.2000s", page)
	}
}

// packets are rxe's own counters on both nodes, "node1 rxe_0 sent_pkts".
func packets(t *testing.T, l *lab) map[string]int {
	t.Helper()
	out := map[string]int{}
	for node := 1; node <= 2; node++ {
		for line := range strings.Lines(must(t, l, node, `cd /sys/class/infiniband && for f in rxe_*/ports/1/hw_counters/*_pkts; do echo "${f%%/*} ${f##*/} $(cat $f)"; done`, time.Minute).stdout) {
			f := strings.Fields(line)
			if len(f) == 3 && (f[1] == "sent_pkts" || f[1] == "rcvd_pkts") {
				out[fmt.Sprintf("node%d %s %s", node, f[0], f[1])] = number(f[2])
			}
		}
	}
	return out
}

// wantClass holds every RoCE packet of both rails and directions against one
// DSCP and ECN, and sees that the rails carried the job and not TCP.
func wantClass(t *testing.T, l *lab, dscp, ecn int) {
	t.Helper()
	for r := range rails {
		name := fmt.Sprintf("rail%d", r)
		seen := l.segments[name].take()
		show(t, name, seen)
		for _, way := range [][2]int{{1, 2}, {2, 1}} {
			all := passed(seen, roce(way[0], way[1]))
			right := passed(seen, func(f flow) bool { return roce(way[0], way[1])(f) && f.DSCP == dscp && f.ECN == ecn })
			if all < 100 || right != all {
				t.Errorf("%s node%d to node%d: %d of %d RoCE packets carry DSCP %d ECN %d", name, way[0], way[1], right, all, dscp, ecn)
			}
			if tcp := passed(seen, func(f flow) bool { return f.Proto == "tcp" && f.From == way[0] }); tcp > all/10 {
				t.Errorf("%s node%d: %d TCP frames beside %d of RoCE", name, way[0], tcp, all)
			}
		}
	}
}

// TestAnotherProfileChangesThePackets: the DSCP is the profile's, not a default.
func TestAnotherProfileChangesThePackets(t *testing.T) {
	l := nodes(t)
	must(t, l, 1, `fabrun profile show soft-roce | sed 's/^name = .*/name = "lab10"/; s/dscp = 26/dscp = 10/; s/ecn = 2/ecn = 1/' > /tmp/lab10.toml && fabrun profile check /tmp/lab10.toml`, time.Minute)
	res := must(t, l, 1, "fabrun --profile /tmp/lab10.toml "+hosts+" mpirun -np 2 labmpi 8 1000000", jobMax)
	if !strings.Contains(res.stderr, "DSCP 10") {
		t.Errorf("the contract does not say DSCP 10:\n%s", res)
	}
	wantClass(t, l, 10, 1)
}

// TestWorkingGIDIsChosenAndTheWrongPinCalledOut: in this lab UCX hangs on the
// IPv4 GID and works on the IPv6 one.
func TestWorkingGIDIsChosenAndTheWrongPinCalledOut(t *testing.T) {
	l := nodes(t)
	p := planned(t, l, "", soft)
	if v, why := p.value("UCX_IB_GID_INDEX"); v != "2" || !strings.Contains(why, "IPv6") {
		t.Errorf("UCX_IB_GID_INDEX=%s (%s), wanted 2 for being IPv6", v, why)
	}
	p = planned(t, l, "UCX_IB_GID_INDEX=1 ", soft)
	if f := p.finding("gid.pinned"); f == nil || f.Severity != finding.Error || !strings.Contains(f.Seen, "rxe_0") {
		t.Errorf("the pin of the IPv4 GID is not called out: %+v", p.Findings)
	}
	hang := on(t, l, 1, "timeout "+strconv.Itoa(45*int(patience))+" mpirun --host node1:1,node2:1 --mca pml ucx --mca opal_common_ucx_devices any -x UCX_NET_DEVICES=rxe_0:1 -x UCX_IB_GID_INDEX=1 -x UCX_TLS=rc_v,ud_v,self,sm labmpi 2 64", 2*time.Minute)
	if hang.code == 0 {
		t.Errorf("UCX works on the IPv4 GID here: the rule is not needed any more\n%s", hang)
	}
}

// plan is what 'fabrun plan --json' says.
type plan struct {
	Env      []struct{ Name, Value, Why string }
	Findings []finding.Finding
	text     string
}

func (p plan) value(name string) (value, why string) {
	for _, v := range p.Env {
		if v.Name == name {
			return v.Value, v.Why
		}
	}
	return "", ""
}

func (p plan) finding(id string) *finding.Finding {
	for i := range p.Findings {
		if p.Findings[i].ID == id {
			return &p.Findings[i]
		}
	}
	return nil
}

// planned plans the tests' job on node1 over both nodes.
func planned(t *testing.T, l *lab, before, flags string) plan {
	t.Helper()
	res := on(t, l, 1, before+"fabrun plan --json "+flags+" -- mpirun -np 2 labmpi", 2*time.Minute)
	p := plan{text: res.String()}
	if err := json.Unmarshal([]byte(res.stdout), &p); err != nil {
		t.Fatalf("fabrun plan --json: %v\n%s", err, res)
	}
	return p
}

// TestSilentFallbackIsSeenByCounters: nothing is set, Open MPI takes TCP
// without a word, and the verdict says so.
func TestSilentFallbackIsSeenByCounters(t *testing.T) {
	l := nodes(t)
	res := on(t, l, 1, "fabrun run --profile none "+hosts+" -- mpirun -np 2 labmpi 12 1000000", jobMax)
	for r := range rails {
		name := fmt.Sprintf("rail%d", r)
		seen := l.segments[name].take()
		show(t, name, seen)
		if n := passed(seen, func(f flow) bool { return f.Proto == "roce" }); n > 0 {
			t.Errorf("%s carried %d RoCE packets: this is no fallback", name, n)
		}
	}
	if res.code != 0 || !strings.Contains(res.stdout, "done, 0 wrong bytes") || !strings.Contains(strings.ToUpper(res.stderr), "FALLBACK") || strings.Contains(res.stderr, "No fallback") {
		t.Errorf("wanted the job unchanged and the fallback named:\n%s", res)
	}
}

// TestStrictEndsAFallenJobAndLeavesNothing: exit 121, on neither node a process.
// Debian's own Open MPI configuration forbids UCX, which is seen, and refused,
// before the start; OMPI_MCA_pml=^cm takes its place. Open MPI then could take
// UCX, does not, and says nothing.
func TestStrictEndsAFallenJobAndLeavesNothing(t *testing.T) {
	l := nodes(t)
	res := on(t, l, 1, "fabrun run --strict --profile none "+hosts+" -- mpirun -np 2 true", jobMax)
	if res.code != 122 || !strings.Contains(res.stderr, "gate.tcp-chosen") || !strings.Contains(res.stderr, "openmpi-mca-params.conf") {
		t.Errorf("wanted exit 122 and the file that forbids UCX:\n%s", res)
	}
	res = on(t, l, 1, "OMPI_MCA_pml=^cm fabrun run --strict --profile none "+hosts+" -- mpirun -np 2 labmpi 0 1000000 90", jobMax)
	if res.code != 121 || !strings.Contains(res.stderr, "FALLBACK to TCP (counter-fallback)") {
		t.Errorf("wanted exit 121:\n%s", res)
	}
	nothingLeft(t, l, 1, 2)
}

// nothingLeft waits shortly for the job's processes to be gone from nodes.
func nothingLeft(t *testing.T, l *lab, on ...int) {
	t.Helper()
	for _, node := range on {
		res := must(t, l, node, `for i in 1 2 3 4 5 6 7 8 9 10; do p=$(pgrep -a '^(labmpi|prted|prterun|mpirun|fabrun)'; true); [ -z "$p" ] && exit 0; sleep 1; done; echo "$p"`, time.Minute)
		if res.stdout != "" {
			t.Errorf("left behind on node%d:\n%s", node, res.stdout)
		}
	}
}

// TestForcedTCPIsNamedFromTheLog: the user's own UCX_TLS is kept and called out
// before the start; what UCX then says names TCP. (UCX left alone would also try
// mgmt0, which leads nowhere.)
func TestForcedTCPIsNamedFromTheLog(t *testing.T) {
	l := nodes(t)
	res := on(t, l, 1, "UCX_TLS=tcp,self,sm UCX_NET_DEVICES=rail0 fabrun "+soft+" mpirun --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any -np 2 labmpi 8 1000000", jobMax)
	if res.code != 0 || !strings.Contains(res.stdout, "done, 0 wrong bytes") {
		t.Errorf("the user's choice was not kept:\n%s", res)
	}
	for _, want := range []string{"gate.tcp-chosen", "UCX_TLS", "FALLBACK to TCP (ucx-tcp)"} {
		if !strings.Contains(res.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, res)
		}
	}
	if n := passed(l.segments["rail0"].take(), func(f flow) bool { return f.Proto == "roce" }); n > 0 {
		t.Errorf("%d RoCE packets: this is no TCP", n)
	}
}

// TestAbsentDeviceIsNamedBeforeStartAndFromTheLog: a device list made for
// another machine.
func TestAbsentDeviceIsNamedBeforeStartAndFromTheLog(t *testing.T) {
	l := nodes(t)
	p := planned(t, l, "UCX_NET_DEVICES=mlx5_0:1 ", soft)
	if f := p.finding("hca.ucx-absent"); f == nil || f.Severity != finding.Error || !strings.Contains(f.Seen, "mlx5_0") {
		t.Errorf("an absent device is not called out:\n%s", p.text)
	}
	res := on(t, l, 1, "mpirun --host node1:1,node2:1 --mca pml ucx --mca opal_common_ucx_devices any -x UCX_NET_DEVICES=mlx5_0:1 labmpi 2 64 2>&1 | fabrun watch", jobMax)
	for _, want := range []string{"Failed: Open MPI could not open", "does not have network device mlx5_0:1"} {
		if !strings.Contains(res.stdout, want) {
			t.Errorf("fabrun watch does not say %q:\n%s", want, res)
		}
	}
}

// TestOpenMPI5TakesWhatItsDialectSays: forwarded variables, slots of the
// hostfile, and the key with which fabrun itself logged in.
func TestOpenMPI5TakesWhatItsDialectSays(t *testing.T) {
	l := nodes(t)
	must(t, l, 1, "mv /root/.ssh/id_ed25519 /tmp/other_key", time.Minute)
	t.Cleanup(func() { must(t, l, 1, "mv /tmp/other_key /root/.ssh/id_ed25519", time.Minute) })
	res := must(t, l, 1, `fabrun --ssh-key /tmp/other_key `+soft+` mpirun -np 4 -x LABWORD=mine sh -c 'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname): $LABWORD $UCX_IB_GID_INDEX $UCX_IB_TRAFFIC_CLASS $UCX_NET_DEVICES"'`, jobMax)
	got := strings.Split(strings.TrimSpace(res.stdout), "\n")
	slices.Sort(got)
	var want []string
	for rank := range 4 {
		want = append(want, fmt.Sprintf("rank %d on node%d: mine 2 106 rxe_0:1,rxe_1:1", rank, 1+rank/2))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q\n%s", got, want, res)
	}
}

// TestFaultsAreNamedBeforeStart: each fault of one node is found by looking,
// with node and port.
func TestFaultsAreNamedBeforeStart(t *testing.T) {
	l := nodes(t)
	for _, f := range []struct {
		name         string
		cause, mend  func() error
		host, device string
		ids          []string // one of them
		look         func(*testing.T, *lab) []finding.Finding
	}{
		{
			name:  "a cable pulled out of node2's second rail",
			cause: func() error { return l.guests[1].cable("rail1", false) }, mend: func() error { return l.guests[1].cable("rail1", true) },
			host: "node2", device: "rxe_1", ids: []string{"hca.port-down", "hca.rail-missing"},
		},
		{
			name:  "a cable pulled out of node2's first rail, by check",
			cause: func() error { return l.guests[1].cable("rail0", false) }, mend: func() error { return l.guests[1].cable("rail0", true) },
			host: "node2", device: "rxe_0", ids: []string{"hca.port-down"}, look: checked,
		},
		{
			name: "a small MTU on node2's first rail", cause: shell1(l, 2, "ip link set rail0 mtu 1500"), mend: shell1(l, 2, "ip link set rail0 mtu 4200"),
			host: "node2", device: "rxe_0", ids: []string{"hca.mtu-differs"},
		},
		{
			name: "a device node removed", cause: shell1(l, 2, "mv /dev/infiniband/uverbs0 /tmp/uverbs0"), mend: shell1(l, 2, "mv /tmp/uverbs0 /dev/infiniband/uverbs0"),
			host: "node2", device: "rxe_0", ids: []string{"device.nodes"}, look: checked,
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			if err := f.cause(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := f.mend(); err != nil {
					t.Error(err)
				}
			})
			look := f.look
			if look == nil {
				look = func(t *testing.T, l *lab) []finding.Finding { return planned(t, l, "", soft).Findings }
			}
			all := look(t, l)
			for _, got := range all {
				for _, id := range f.ids {
					if got.ID == id && strings.Contains(got.Host+got.Subject+got.Seen, f.host) && strings.Contains(got.Subject+got.Seen, f.device) && got.Severity != finding.Note {
						return
					}
				}
			}
			t.Errorf("not named: %+v", all)
		})
	}
}

// TestLittleLockedMemoryIsNamedWhereItBinds: the kernel asks who holds
// CAP_IPC_LOCK for no limit (ib_umem_get), so root's ranks register what they want.
func TestLittleLockedMemoryIsNamedWhereItBinds(t *testing.T) {
	l := nodes(t)
	for _, c := range []struct {
		name, as string
		named    bool
	}{
		{name: "root", as: "", named: false},
		{name: "root without the capability", as: "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock ", named: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := foundBy(t, l, 2, "prlimit --memlock=65536:65536 "+c.as+"fabrun check --profile none --json")
			named := slices.ContainsFunc(all, func(f finding.Finding) bool { return f.ID == "limits.memlock" && f.Severity != finding.Note })
			if named != c.named {
				t.Errorf("limits.memlock named: %t, want %t: %+v", named, c.named, all)
			}
		})
	}
}

// checked is what preflight finds on the two nodes.
func checked(t *testing.T, l *lab) []finding.Finding {
	t.Helper()
	return foundBy(t, l, 1, "fabrun check --json "+soft)
}

// foundBy is what a check that is run on one node finds.
func foundBy(t *testing.T, l *lab, node int, command string) []finding.Finding {
	t.Helper()
	res := on(t, l, node, command, 2*time.Minute)
	var c struct {
		Hosts []struct{ Findings []finding.Finding }
	}
	if err := json.Unmarshal([]byte(res.stdout), &c); err != nil {
		t.Fatalf("fabrun check --json: %v\n%s", err, res)
	}
	var out []finding.Finding
	for _, h := range c.Hosts {
		out = append(out, h.Findings...)
	}
	return out
}

// shell1 is a command on a node as a step of a test.
func shell1(l *lab, node int, command string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute*patience)
		defer cancel()
		res, err := l.run(ctx, node, command)
		if err == nil && res.code != 0 {
			err = fmt.Errorf("node%d: %s: %s", node, command, res)
		}
		return err
	}
}

// TestBothSSHTransportsLookAtTheOtherNode: fabrun's own client and the
// system's ssh give the same plan.
func TestBothSSHTransportsLookAtTheOtherNode(t *testing.T) {
	l := nodes(t)
	var plans []string
	for _, kind := range []string{"native", "ssh"} {
		res := on(t, l, 1, "fabrun plan --remote "+kind+" "+soft+" -- mpirun -np 2 labmpi", 2*time.Minute)
		if res.code != 0 || strings.Contains(res.stdout, "assumed to be like") {
			t.Errorf("--remote %s did not look at node2:\n%s", kind, res)
		}
		plans = append(plans, res.stdout)
	}
	if plans[0] != plans[1] {
		t.Errorf("native:\n%s\nssh:\n%s", plans[0], plans[1])
	}
}

// TestOpenFOAMCavityRunsOverRoCE: a real solver, decomposed over both nodes.
func TestOpenFOAMCavityRunsOverRoCE(t *testing.T) {
	l := nodes(t)
	const prepare = `set -e
case=$(dirname "$(find /usr/share/doc/openfoam-examples /usr/share/openfoam* -path '*icoFoam*cavity/cavity/system' 2>/dev/null | head -n 1)")
[ -d "$case/system" ] || { echo "no cavity case in the image" >&2; exit 9; }
rm -rf /root/cavity; cp -rL "$case" /root/cavity; cd /root/cavity
find . -name '*.gz' -exec gunzip -f {} +
. /usr/share/openfoam/etc/bashrc || true
printf 'FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\nnumberOfSubdomains 2;\nmethod simple;\nsimpleCoeffs { n (2 1 1); delta 0.001; }\n' > system/decomposeParDict
sed -i 's/^endTime .*/endTime 0.025;/' system/controlDict
blockMesh > log.blockMesh; decomposePar -force > log.decomposePar
ssh node2 rm -rf /root/cavity; scp -qr /root/cavity node2:/root/`
	if res := on(t, l, 1, prepare, 3*time.Minute); res.code == 9 {
		t.Skip(res.stderr)
	} else if res.code != 0 {
		t.Fatalf("prepare the case:\n%s", res)
	}
	res := on(t, l, 1, `cd /root/cavity && . /usr/share/openfoam/etc/bashrc; fabrun `+soft+` --workload openfoam mpirun -np 2 icoFoam -parallel`, 4*time.Minute)
	if res.code != 0 || !strings.Contains(res.stdout, "End") || !strings.Contains(res.stderr, "No fallback") {
		t.Errorf("%s", res)
	}
	seen := l.segments["rail0"].take()
	show(t, "rail0", seen)
	if passed(seen, roce(1, 2)) < 100 {
		t.Error("the solver's data did not go over RoCE")
	}
}

// TestPairsAreMeasuredOnBothRailsAndTheLossyDirectionIsNamed: real perftest in
// both directions; then a rail loses packets in one of them (tc netem).
func TestPairsAreMeasuredOnBothRailsAndTheLossyDirectionIsNamed(t *testing.T) {
	l := nodes(t)
	c := pairs(t, l)
	if len(c.Pairs) != 2*rails {
		t.Fatalf("%d directions measured, wanted %d: %+v", len(c.Pairs), 2*rails, c)
	}
	for _, p := range c.Pairs {
		if p.Error == "" && (p.Gbps == nil || *p.Gbps <= 0) || p.Verdict == "broken" {
			t.Errorf("healthy, and %+v", p)
		}
	}
	for r := range rails {
		seen := l.segments[fmt.Sprintf("rail%d", r)].take()
		show(t, fmt.Sprintf("rail%d", r), seen)
		for _, way := range [][2]int{{1, 2}, {2, 1}} {
			if n := passed(seen, func(f flow) bool { return roce(way[0], way[1])(f) && f.DSCP == 26 && f.ECN == 2 }); n < 100 {
				t.Errorf("rail%d: %d packets from node%d to node%d in the plan's class", r, n, way[0], way[1])
			}
		}
	}
	if err := shell1(l, 2, "tc qdisc replace dev rail1 root netem loss 20% limit 20000")(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shell1(l, 2, "tc qdisc del dev rail1 root")(); err != nil {
			t.Error(err)
		}
	})
	c = pairs(t, l)
	const want = "from node2 (rxe_1 port 1) to node1 (rxe_1 port 1), fine the other way"
	if len(c.Findings) != 1 || c.Findings[0].ID != "pair.pair" || c.Findings[0].Severity != finding.Error || !strings.Contains(c.Findings[0].Seen, want) {
		t.Errorf("wanted %q and nothing else: %+v", want, c)
	}
}

// checkedPairs is what 'fabrun check --pairs --json' says of pairs.
type checkedPairs struct {
	Pairs []struct {
		From, To string
		HCAFrom  string `json:"hca_from"`
		Rail     int
		Gbps     *float64
		Error    string
		Verdict  string
	}
	Findings []finding.Finding
}

func pairs(t *testing.T, l *lab) checkedPairs {
	t.Helper()
	res := on(t, l, 1, "fabrun check --pairs quick --json "+soft, jobMax)
	var c checkedPairs
	if err := json.Unmarshal([]byte(res.stdout), &c); err != nil {
		t.Fatalf("fabrun check --pairs --json: %v\n%s", err, res)
	}
	c.Findings = slices.DeleteFunc(c.Findings, func(f finding.Finding) bool { return f.Severity == finding.Note })
	for _, p := range c.Pairs {
		gbps := 0.0
		if p.Gbps != nil {
			gbps = *p.Gbps
		}
		t.Logf("rail %d %s to %s: %.4f Gb/s %s %s", p.Rail, p.From, p.To, gbps, p.Verdict, p.Error)
	}
	return c
}

// TestSegmentForwardsByAddressAndCountsByClass needs no nodes.
func TestSegmentForwardsByAddressAndCountsByClass(t *testing.T) {
	frame := func(dst byte, tos byte, port uint16) []byte {
		eth := append([]byte{0x52, 0x54, 0, 0xfa, 1, dst, 0x52, 0x54, 0, 0xfa, 1, 1, 8, 0}, make([]byte, 28)...)
		eth[14], eth[15], eth[23] = 0x45, tos, 17
		eth[36], eth[37] = byte(port>>8), byte(port)
		return append([]byte{0, 0, 0, byte(len(eth))}, eth...)
	}
	s := newSegment("rail0")
	for node := 1; node <= 3; node++ {
		s.ports[node] = &segPort{node: node, queue: make(chan []byte, 8)}
	}
	s.forward(1, frame(2, 106, 4791))
	s.forward(1, frame(2, 0, 53))
	s.setLoss(1, 3, 1)
	s.forward(1, frame(3, 106, 4791))
	got := s.take()
	for f, n := range map[flow]int{{1, 2, "roce", 26, 2}: 1, {1, 2, "other", 0, 0}: 1, {1, 3, "roce", 26, 2}: 1} {
		if got[f] != n {
			t.Errorf("%+v: %d, want %d (%v)", f, got[f], n, got)
		}
	}
	if len(s.ports[2].queue) != 2 || len(s.ports[3].queue) != 0 {
		t.Errorf("delivered %d to node 2 and %d to node 3, want 2 and 0", len(s.ports[2].queue), len(s.ports[3].queue))
	}
	var b bytes.Buffer
	histogram(io.Writer(&b), "rail0", got)
	if !strings.Contains(b.String(), "node1 -> node2  roce  DSCP 26 ECN 2       1 frames") {
		t.Error(b.String())
	}
}

// TestRailsAndGIDsAreKeptUnderARunningJob: a cable is pulled and put back, an address
// that a variable names goes and comes back; each is said once, and the job lives on.
// The ranks poll, and leave the one CPU of a node to those who log in.
func TestRailsAndGIDsAreKeptUnderARunningJob(t *testing.T) {
	l := nodes(t)
	var res result
	var err error
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), jobMax*patience)
	defer cancel()
	wg.Add(1)
	go func() {
		defer wg.Done()
		res, err = l.run(ctx, 1, "NCCL_IB_GID_INDEX=1 fabrun "+soft+" --record /tmp/rails.record --metrics /tmp/rails.prom mpirun -np 2 nice -n 19 labmpi 0 16384 "+strconv.Itoa(30*int(patience)))
	}()
	for n, i := 0, 0; n < 20 && i < 90*int(patience); i++ {
		time.Sleep(time.Second)
		n += passed(l.segments["rail0"].take(), roce(1, 2)) // small messages take the first rail
	}
	steps := []func() error{
		func() error { return l.guests[1].cable("rail1", false) },
		func() error { time.Sleep(3 * time.Second); return l.guests[1].cable("rail1", true) },
		shell1(l, 2, "sleep 2; a=$(ip -4 -o addr show rail0 | awk '{print $4}'); ip addr del $a dev rail0; sleep 2; ip addr add $a dev rail0"),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(res.stderr)
	if res.code != 0 || !strings.Contains(res.stdout, "done, 0 wrong bytes") {
		t.Errorf("the job did not live on:\n%s", res)
	}
	for _, want := range []string{
		"warning: node2: 2 rails promised, 1 since ", "(rxe_1:1 on node2: link down).",
		"note: node2: rxe_1:1 is back after ", "all there at the end; rxe_1:1 on node2: link down from ",
		"warning: node2: GID index 1 of rxe_0:1 was 10.1.4.2 (RoCE v2) and is empty now: NCCL_IB_GID_INDEX=1 is wrong on this node",
		"note: node2: rxe_0:1 has 10.1.4.2 back",
	} {
		if n := strings.Count(res.stderr, want); n != 1 {
			t.Errorf("said %d times, wanted once: %s\n%s", n, want, res.stderr)
		}
	}
	page := must(t, l, 1, "cat /tmp/rails.prom; fabrun report /tmp/rails.record --json", time.Minute).stdout
	for _, want := range []string{"fabrun_rail_losses_total{", "fabrun_rails_kept{", "# EOF", `"rail-back"`, `"gid-stale"`} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics and record lack %s", want)
		}
	}
}

// TestNodeSwitchedOffInMidJobEndsItAndIsNamed: a power failure. Open MPI's own
// ssh is told to send no keepalives, as is its default: nobody but fabrun sees it.
func TestNodeSwitchedOffInMidJobEndsItAndIsNamed(t *testing.T) {
	l := nodes(t)
	var res result
	var err error
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute*patience)
	defer cancel()
	wg.Add(1)
	go func() {
		defer wg.Done()
		res, err = l.run(ctx, 1, "PRTE_MCA_plm_ssh_agent='ssh -o ServerAliveInterval=0' fabrun "+soft+" mpirun -np 2 labmpi 0 65536 600 > /tmp/off.out 2> /tmp/off.err; code=$?; cat /tmp/off.out; cat /tmp/off.err >&2; exit $code")
	}()
	started := false
	for range 90 * patience {
		time.Sleep(time.Second)
		if n := passed(l.segments["rail0"].take(), roce(1, 2)); n > 50 {
			started = true
			break
		}
	}
	off := time.Now()
	l.guests[1].powerOff()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !started {
		t.Fatalf("the job did not start:\n%s", res)
	}
	t.Logf("ended %.0f s after the node was switched off:\n%s", time.Since(off).Seconds(), res)
	if res.code == 0 || !strings.Contains(res.stderr, "node2: it answers no more") {
		t.Errorf("wanted a failure that names node2:\n%s", res)
	}
	if left := must(t, l, 1, "ls -d /dev/shm/fabrun-* 2>/dev/null; true", time.Minute).stdout; left != "" {
		t.Errorf("left in /dev/shm: %s", left)
	}
	nothingLeft(t, l, 1)
}
