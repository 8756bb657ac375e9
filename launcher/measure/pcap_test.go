package measure

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"fabrun/profiles"

	"fabrun/topology/pasted"
)

// Link types (tcpdump.org/linktypes.html).
const (
	linkEthernet = 1
	linkRaw      = 101
	linkSLL      = 113
	linkSLL2     = 276
)

// rocePacket is an Ethernet frame with a RoCEv2 packet.
func rocePacket(v6 bool, vlan int, tos, opcode byte) []byte {
	bth := append([]byte{opcode}, make([]byte, 15)...)
	udp := binary.BigEndian.AppendUint16(nil, 0xc000)
	udp = binary.BigEndian.AppendUint16(udp, pasted.RoCEPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(bth)))
	udp = append(append(udp, 0, 0), bth...)
	frame := make([]byte, 12)
	if vlan >= 0 {
		frame = append(frame, 0x81, 0x00, byte(vlan<<5), 10)
	}
	if v6 {
		ip := []byte{0x60 | tos>>4, tos << 4, 0, 0, 0, byte(len(udp)), 17, 64}
		a, b := make([]byte, 16), make([]byte, 16)
		a[0], b[0], a[15], b[15] = 0xfd, 0xfd, 1, 2
		return append(append(append(append(append(frame, 0x86, 0xdd), ip...), a...), b...), udp...)
	}
	ip := []byte{0x45, tos, 0, byte(20 + len(udp)), 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	return append(append(append(frame, 8, 0), ip...), udp...)
}

func classicFile(order binary.AppendByteOrder, link uint32, packets ...[]byte) []byte {
	f := order.AppendUint32(nil, 0xa1b2c3d4)
	f = order.AppendUint16(order.AppendUint16(f, 2), 4)
	f = order.AppendUint32(order.AppendUint32(order.AppendUint32(order.AppendUint32(f, 0), 0), 65535), link)
	for _, p := range packets {
		f = order.AppendUint32(order.AppendUint32(f, 1), 2)
		f = order.AppendUint32(order.AppendUint32(f, uint32(len(p))), uint32(len(p)))
		f = append(f, p...)
	}
	return f
}

func ngFile(order binary.AppendByteOrder, link uint16, packets ...[]byte) []byte {
	block := func(kind uint32, body []byte) []byte {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		n := uint32(len(body) + 12)
		return order.AppendUint32(append(order.AppendUint32(order.AppendUint32(nil, kind), n), body...), n)
	}
	f := block(0x0a0d0d0a, append(order.AppendUint32(nil, 0x1a2b3c4d), 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255))
	f = append(f, block(1, order.AppendUint32(order.AppendUint16(order.AppendUint16(nil, link), 0), 65535))...)
	for _, p := range packets {
		b := make([]byte, 12)
		b = order.AppendUint32(order.AppendUint32(b, uint32(len(p))), uint32(len(p)))
		f = append(f, block(6, append(b, p...))...)
	}
	return f
}

func TestReadPcap(t *testing.T) {
	good := rocePacket(false, -1, 26<<2|2, 4)
	sll := append(append(make([]byte, 14), 8, 0), good[14:]...)
	sll2 := append(append([]byte{8, 0}, make([]byte, 18)...), good[14:]...)
	for _, tc := range []struct {
		name string
		file []byte
		roce int
		dscp int
	}{
		{"classic little", classicFile(binary.LittleEndian, linkEthernet, good, good), 2, 26},
		{"classic big", classicFile(binary.BigEndian, linkEthernet, good), 1, 26},
		{"vlan", classicFile(binary.LittleEndian, linkEthernet, rocePacket(false, 3, 26<<2, 4)), 1, 26},
		{"ipv6", classicFile(binary.LittleEndian, linkEthernet, rocePacket(true, -1, 0x6a, 4)), 1, 26},
		{"ipv6 vlan", ngFile(binary.LittleEndian, linkEthernet, rocePacket(true, 5, 0x7c, 4)), 1, 31},
		{"ng little", ngFile(binary.LittleEndian, linkEthernet, good), 1, 26},
		{"ng big", ngFile(binary.BigEndian, linkEthernet, good), 1, 26},
		{"cooked", classicFile(binary.LittleEndian, linkSLL, sll), 1, 26},
		{"cooked 2", ngFile(binary.LittleEndian, linkSLL2, sll2), 1, 26},
		{"raw", classicFile(binary.LittleEndian, linkRaw, good[14:]), 1, 26},
		{"other port", classicFile(binary.LittleEndian, linkEthernet, bytes.Replace(good, []byte{0x12, 0xb7}, []byte{0x12, 0xb8}, 1)), 0, 0},
		{"cut", classicFile(binary.LittleEndian, linkEthernet, good, good)[:24+16+len(good)+20], 1, 26},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := pasted.ReadPcap(bytes.NewReader(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if c.RoCE != tc.roce || tc.roce > 0 && c.Flows[0].DSCP[tc.dscp] != tc.roce {
				t.Errorf("got %+v", c)
			}
			if c.Truncated != (tc.name == "cut") {
				t.Errorf("truncated: %v", c.Truncated)
			}
		})
	}
	for _, junk := range []string{"", "abc", strings.Repeat("x", 100)} {
		if _, err := pasted.ReadPcap(strings.NewReader(junk)); err == nil {
			t.Errorf("%q was taken for a capture", junk)
		}
	}
}

func TestJudgePcap(t *testing.T) {
	prio := 3
	q := &profiles.QoS{RDMA: profiles.Class{DSCP: 26, ECN: 2, Priority: &prio}, CNP: &profiles.Class{DSCP: 48}}
	for _, tc := range []struct {
		name    string
		packets [][]byte
		want    string
	}{
		{"as planned", [][]byte{rocePacket(false, -1, 26<<2|2, 4), rocePacket(false, -1, 48<<2, 0x81)}, "qos.wire-one-way"},
		{"unmarked", [][]byte{rocePacket(false, -1, 0, 4)}, "qos.wire qos.wire-ecn qos.wire-one-way"},
		{"not ecn capable", [][]byte{rocePacket(false, -1, 26<<2, 4)}, "qos.wire-ecn qos.wire-one-way"},
		{"cnp with the data", [][]byte{rocePacket(false, -1, 26<<2|2, 4), rocePacket(false, -1, 26<<2, 0x81)}, "qos.wire-cnp qos.wire-one-way"},
		{"nothing", nil, "qos.wire-none"},
	} {
		c, err := pasted.ReadPcap(bytes.NewReader(classicFile(binary.LittleEndian, linkEthernet, tc.packets...)))
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		_, fs := JudgePcap(c, q)
		for _, f := range fs {
			ids = append(ids, f.ID)
		}
		if got := strings.Join(ids, " "); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func FuzzReadPcap(f *testing.F) {
	f.Add(classicFile(binary.LittleEndian, linkEthernet, rocePacket(true, 3, 1, 4)))
	f.Add(ngFile(binary.BigEndian, linkSLL2, rocePacket(false, -1, 1, 4)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := pasted.ReadPcap(bytes.NewReader(b)); err == nil {
			JudgePcap(c, &profiles.QoS{})
		}
	})
}

func TestNCCLTests(t *testing.T) {
	const head = `# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
# Using devices
#  Rank  0 Group  0 Pid 100 on n1 device  0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid 101 on n2 device  0 [0x07] NVIDIA H100
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
`
	const tail = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 180.5\n"
	rate := func(bus string) string {
		return head + "   134217728      33554432     float     sum      -1   1000.0  134.2   " + bus + "      0   1000.0  134.2   " + bus + "      0\n" + tail
	}
	single := 400.0
	for _, tc := range []struct {
		name, text string
		rails      float64
		single     *float64
		want       Verdict
		id         string
	}{
		{"good", rate("350.0"), 3200, nil, Good, ""},
		{"one rail of eight", rate("48.0"), 3200, nil, Broken, "nccl-tests.bandwidth-low"},
		{"low", rate("250.0"), 3200, nil, Degraded, "nccl-tests.bandwidth-low"},
		{"drop", rate("40.0"), 0, &single, Broken, "nccl-tests.node-drop"},
		{"wrong", strings.Replace(rate("350.0"), "      0\n", "      7\n", 1), 3200, nil, Broken, "nccl-tests.wrong"},
		{"loss", head + " 1024 256 float sum -1 20.0 1 1 0 20 1 1 0\n 2048 512 float sum -1 4100.0 1 1 0 20 1 1 0\n", 0, nil, Unknown, "fabric.loss-signature"},
		{"failed", head + "n1: Test NCCL failure common.cu:958 'unhandled system error'\n", 0, nil, Broken, "nccl-tests.failed"},
		{"no root, old columns", "# nThread 1\n 1048576 262144 float sum 50.0 20.0 35.0 1e-06 50.0 20.0 35.0 1e-06\n# Avg bus bandwidth : 35\n", 40 * 8, nil, Good, ""},
	} {
		n, err := pasted.ReadNCCLTests(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		v, fs := JudgeNCCLTests(n, tc.rails, tc.single)
		if v != tc.want || (tc.id == "") != (len(fs) == 0) || tc.id != "" && fs[0].ID != tc.id {
			t.Errorf("%s: got %s %v, want %s %s", tc.name, v, fs, tc.want, tc.id)
		}
	}
}

func TestOSU(t *testing.T) {
	rate := 100.0
	for _, tc := range []struct {
		name, text string
		want       Verdict
		id         string
	}{
		{"latency", "# OSU MPI Latency Test v5.6.2\n# Size          Latency (us)\n0 1.20\n1 1.25\n2 1.3\n", Good, ""},
		{"sockets", "# OSU MPI Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n1                      31.25\n2 32\n", Broken, "osu.latency-high"},
		{"bandwidth", "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1 5.0\n4194304 12100.2\n", Good, ""},
		{"half", "# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n4194304 6100.2\n", Broken, "osu.bandwidth-low"},
		{"rate", "# OSU MPI Multiple Bandwidth / Message Rate Test v5.9\n# [ pairs: 4 ] [ window size: 64 ]\n# Size                  MB/s        Messages/s\n1 20.0 2000000\n4194304 12100.2 3000\n", Good, ""},
		{"loss", "# OSU MPI All-to-All Personalized Exchange Latency Test v5.9\n# Size       Avg Latency(us)\n1024 50\n2048 60\n4096 4000\n", Broken, "fabric.loss-signature"},
	} {
		o, err := pasted.ReadOSU(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		e := DefaultExpect()
		e.RateGbps = &rate
		v, fs := JudgeOSU(o, e)
		if v != tc.want || (tc.id == "") != (len(fs) == 0) || tc.id != "" && fs[0].ID != tc.id {
			t.Errorf("%s: got %s %v, want %s %s (%+v)", tc.name, v, fs, tc.want, tc.id, o)
		}
	}
}

func FuzzReadBenchmarks(f *testing.F) {
	f.Add("1024 256 float sum -1 20.0 1 1 0 20 1 1 0\n")
	f.Add("# OSU MPI Latency Test\n# Size Latency (us)\n1 2\n")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := pasted.ReadNCCLTests(s); err == nil {
			JudgeNCCLTests(n, 100, ptr(1.0))
		}
		if o, err := pasted.ReadOSU(s); err == nil {
			JudgeOSU(o, DefaultExpect())
		}
	})
}
