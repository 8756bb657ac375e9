package watch

import (
	"bytes"
	"fmt"
	"testing"
)

// manyHosts is the log of a job of one rank for each of n hosts.
type manyHosts struct {
	name  string
	nets  []string // of the ranks in turn
	nodes bool     // releases that say on how many nodes the job runs, and the communicator
	bad   string   // a line of each rank
}

func (j manyHosts) log(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		p := fmt.Sprintf("node%05d:53:54 [0] NCCL INFO ", i) // in pods all have one number
		fmt.Fprintf(&b, "%sBootstrap : Using eth0:10.%d.%d.1<0>\n%sNET/IB : No device found.\n%sNET/Socket : Using [0]eth0:10.%d.%d.1<0>\n", p, i/250, i%250, p, p, i/250, i%250)
		fmt.Fprintf(&b, "%sUsing network %s\n", p, j.nets[i%len(j.nets)])
		if j.nodes {
			fmt.Fprintf(&b, "%sncclCommInitRank comm 0x1 rank %d nranks %d cudaDev 0 busId 1000 commId 0xa - Init START\n", p, i, n)
			fmt.Fprintf(&b, "%scomm 0x1 rank %d nRanks %d nNodes %d localRanks 1 localRank 0 MNNVL 0\n", p, i, n, n)
		}
	}
	for i := range n {
		p := fmt.Sprintf("node%05d:53:54 [0] NCCL INFO ", i)
		fmt.Fprintf(&b, "%sChannel 00/0 : %d[0] -> %d[0] [send] via NET/%s/0\n%sConnected all rings, use ring PXN 0 GDR 0\n", p, i, (i+1)%n, j.nets[i%len(j.nets)], p)
		fmt.Fprintf(&b, "%sncclCommInitRank comm 0x1 rank %d nranks %d cudaDev 0 busId 1000 - Init COMPLETE\n", p, i, n)
		if j.bad != "" {
			fmt.Fprintf(&b, j.bad+"\n", i)
		}
	}
	return b.Bytes()
}

// TestManyHosts: reading goes through all hosts no more often when there are more of
// them, so that its cost grows with the length of the log alone.
func TestManyHosts(t *testing.T) {
	for _, j := range []manyHosts{
		{"sockets", []string{"Socket"}, true, ""},
		{"sockets, before 2.12", []string{"Socket"}, false, ""},
		{"RDMA", []string{"IB"}, true, ""},
		{"RDMA, before 2.12", []string{"IB"}, false, ""},
		{"both", []string{"IB", "Socket"}, true, ""},
		{"both, before 2.12", []string{"IB", "Socket"}, false, ""},
		{"UCX over TCP", []string{"IB"}, true, "[1.5] [node%05d:99:0] ucp_worker.c:1855 UCX  INFO    ep_cfg[1]: tag(tcp/eth0)"},
		{"each reports an error", []string{"IB"}, false, "node%05d:53:54 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"},
	} {
		surveys := func(n int) int {
			w := New(Options{Known: Known{Promise: Promise{Devices: map[string][]string{"": {"mlx5_9:1"}}, GPUDirect: true}}})
			_, _ = w.Source("").Write(j.log(n))
			if v := w.Verdict(); v.RanksSeen == nil || *v.RanksSeen != n {
				t.Errorf("%s: %s of %d ranks seen", j.name, show(v.RanksSeen), n)
			}
			return w.runs.latest().surveys
		}
		few, many := surveys(200), surveys(800)
		if many > few+8 {
			t.Errorf("%s: hosts are gone through %d times where they are 200, %d times where they are 800", j.name, few, many)
		}
		t.Logf("%s: %d and %d", j.name, few, many)
	}
}

func BenchmarkManyHosts(b *testing.B) {
	log := manyHosts{"", []string{"Socket"}, true, ""}.log(20000)
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		w := New(Options{})
		_, _ = w.Source("").Write(log)
		w.Verdict()
	}
}
