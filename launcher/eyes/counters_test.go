package eyes

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/watch"
)

func TestRDMAPorts(t *testing.T) {
	sys := fstest.MapFS{}
	for name, text := range map[string]string{
		"class/infiniband/mlx5_0/ports/1/state":                                 "4: ACTIVE",
		"class/infiniband/mlx5_0/ports/1/rate":                                  "400 Gb/sec (4X NDR)",
		"class/infiniband/mlx5_0/ports/1/counters/port_xmit_data":               "250",
		"class/infiniband/mlx5_0/ports/1/counters/port_rcv_data":                "N/A (no PMA)",
		"class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence":           "3",
		"class/infiniband/mlx5_0/ports/1/hw_counters/lifespan":                  "10",
		"class/infiniband/mlx5_0/device/net/ens2f0/dev_port":                    "0",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0":                     "ens2f0.100",
		"class/infiniband/rxe_0/parent":                                         "ens1",
		"class/net/ens1/speed":                                                  "-1",
		"class/infiniband/rxe_0/ports/1/state":                                  "4: ACTIVE",
		"class/infiniband/rxe_0/ports/1/rate":                                   "2.5 Gb/sec (1X SDR)",
		"class/infiniband/rxe_0/ports/1/hw_counters/sent_pkts":                  "4256",
		"class/infiniband/rxe_0/ports/1/hw_counters/rcvd_pkts":                  "4255",
		"class/infiniband/rxe_0/ports/1/hw_counters/out_of_seq_request":         "0",
		"class/infiniband/rxe_0/ports/not-a-number/hw_counters/ignored_by_name": "1",
	} {
		sys[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	want := []watch.PortSample{
		{HCA: "mlx5_0", Port: 1, Netdev: "ens2f0", Active: true, RateGbps: 400, Counters: map[watch.Counter]uint64{watch.TxBytes: 1000, watch.OutOfSeq: 3}},
		{
			HCA: "rxe_0", Port: 1, Netdev: "ens1", Active: true, Emulated: true,
			Counters: map[watch.Counter]uint64{watch.TxPackets: 4256, watch.RxPackets: 4255, watch.OutOfSeq: 0},
		},
	}
	if d := cmp.Diff(want, rdmaPorts(sys)); d != "" {
		t.Errorf("ports (-want +got):\n%s", d)
	}
}

// TestTCPBytesByPeer moves a megabyte over loopback and finds it in what the
// kernel says of the connection.
func TestTCPBytesByPeer(t *testing.T) {
	if _, err := tcpSockets(); err != nil {
		t.Skipf("the kernel does not tell TCP sockets: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback: %v", err)
	}
	defer l.Close()
	got := make(chan int64, 1)
	hold := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer c.Close()
		n, _ := io.CopyN(io.Discard, c, 1<<20)
		got <- n
		<-hold
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != 1<<20 {
		t.Fatalf("received %d", n)
	}
	socks, err := tcpSockets()
	if err != nil {
		t.Fatal(err)
	}
	local := c.LocalAddr().(*net.TCPAddr).Port
	var m peerMeter
	mine := func(s tcpSocket) bool { return int(s.local.Port()) != local && int(s.peer.Port()) != local }
	sum := m.look(socks, mine)
	if len(sum) != 1 || sum[0].Peer != "127.0.0.1" || sum[0].Rx+sum[0].Tx < 2<<20 {
		t.Errorf("peers %+v, want 127.0.0.1 with 2 MB seen from both ends", sum)
	}
	close(hold)
	// A connection that is gone keeps its last count.
	if again := m.look(nil, mine); !cmp.Equal(sum, again) {
		t.Errorf("after the end %+v, want %+v", again, sum)
	}
}

func attr(kind uint16, value []byte) []byte {
	b := make([]byte, 4, 4+len(value)+3)
	binary.NativeEndian.PutUint16(b[0:], uint16(4+len(value)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func TestQueuePairOwners(t *testing.T) {
	u32 := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	user := attr(20|0x8000, append(attr(21, u32(17)), attr(nldevAttrResPid, u32(4711))...))
	kernel := attr(20|0x8000, append(attr(21, u32(1)), attr(29, []byte("ib_core\x00"))...))
	msg := append(attr(nldevAttrDevIndex, u32(0)), attr(nldevAttrResQP|0x8000, append(user, kernel...))...)
	if got := qpPids(msg); !cmp.Equal(got, []int{4711}) {
		t.Errorf("pids %v, want 4711 alone", got)
	}
}

func FuzzNetlinkMessages(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(20))
	f.Fuzz(func(t *testing.T, b []byte, want uint16) {
		_, _ = netlinkMessages(b, want, func(p []byte) error {
			_, _ = parseInetDiag(p)
			_ = qpPids(p)
			return nil
		})
	})
}

func TestFollowerReadsGrowingFiles(t *testing.T) {
	dir := t.TempDir()
	w := watch.New(watch.Options{})
	f := NewFollower(w, Following{Dir: dir})
	name := filepath.Join(dir, "nccl.n1.10.log")
	add := func(text string) {
		t.Helper()
		h, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add("n1:10:10 [0] NCCL INFO NET/IB : No device found.\nn1:10:10 [0] NCCL INFO Using netw")
	f.Poll()
	add("ork Socket\nn1:10:10 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
	f.Close()
	v := w.Verdict()
	if v.Fallback == nil || !*v.Fallback || v.Cause == nil || *v.Cause != watch.CauseNoDevice {
		t.Errorf("verdict %+v, want the fallback no-device", v)
	}
}

// TestFollowerGivesMemoryBack: what was read of a private file takes no room.
func TestFollowerGivesMemoryBack(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "nccl.log")
	line := strings.Repeat("n1:10:10 [0] NCCL INFO something that says nothing\n", 100_000)
	if err := os.WriteFile(name, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	before := blocks(t, name)
	f := NewFollower(watch.New(watch.Options{}), Following{Dir: dir})
	for f.Poll() > 0 {
	}
	after := blocks(t, name)
	if after*4 > before {
		t.Skipf("this file system keeps holes: %d of %d blocks", after, before)
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() != int64(len(line)) {
		t.Errorf("size changed to %d: %v", info.Size(), err)
	}
}

func TestSamplePause(t *testing.T) {
	for _, c := range []struct{ age, want time.Duration }{
		{0, 100 * time.Millisecond}, {time.Second, 100 * time.Millisecond}, {4 * time.Second, 400 * time.Millisecond}, {20 * time.Second, 2 * time.Second}, {time.Hour, 10 * time.Second},
	} {
		if got := samplePause(c.age, sampleEvery); got != c.want {
			t.Errorf("after %v: %v, want %v", c.age, got, c.want)
		}
	}
}

func TestPollPause(t *testing.T) {
	for _, c := range []struct{ quiet, want time.Duration }{
		{0, 100 * time.Millisecond}, {5 * time.Second, 100 * time.Millisecond}, {20 * time.Second, 400 * time.Millisecond}, {time.Hour, time.Second},
	} {
		if got := pollPause(c.quiet); got != c.want {
			t.Errorf("after %v: %v, want %v", c.quiet, got, c.want)
		}
	}
}

// TestMeterReadsStatistics: the netdev's statistics are the port's, and are not
// read at every look.
func TestMeterReadsStatistics(t *testing.T) {
	sys := fstest.MapFS{}
	for name, text := range map[string]string{
		"class/infiniband/mlx5_0/ports/1/state":             "4: ACTIVE",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": "bond0",
	} {
		sys[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	reads := 0
	m := &Meter{host: "n1", sys: sys, proc: t.TempDir(), stats: func(netdev string) map[string]uint64 {
		reads++
		if netdev != "bond0" {
			t.Errorf("statistics of %q", netdev)
		}
		return map[string]uint64{"rx_prio3_pause": uint64(100 * reads), "rx_packets": 7}
	}}
	began := time.Unix(1000, 0)
	for i, c := range []struct {
		after time.Duration
		last  bool
		want  uint64
	}{{0, false, 100}, {time.Second, false, 100}, {sampleEvery, false, 200}, {sampleEvery + time.Second, true, 300}} {
		s := m.Look(began.Add(c.after), c.last)
		if got := s.Ports[0].Counters[watch.PauseRx]; got != c.want || len(s.Ports[0].Counters) != 2 {
			t.Errorf("look %d: %v, want %d pauses", i, s.Ports[0].Counters, c.want)
		}
	}
}

func TestOnFabric(t *testing.T) {
	sys := fstest.MapFS{}
	for _, name := range []string{"ens1/mtu", "ens1.100/lower_ens1/mtu", "bond0/lower_ens2/mtu", "eth0/device/mtu", "ib0/device/infiniband/mlx5_1/fw_ver", "docker0/mtu"} {
		sys["class/net/"+name] = &fstest.MapFile{}
	}
	ports := []watch.PortSample{{HCA: "mlx5_0", Netdev: "ens1"}, {HCA: "mlx5_1"}}
	for name, want := range map[string]bool{"ens1": true, "ens1.100": true, "bond0": false, "eth0": false, "ib0": true, "docker0": false, "gone0": false} {
		if got := onFabric(sys, name, ports); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// blocks is how much room a file takes, in 512-byte blocks.
func blocks(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks
}
