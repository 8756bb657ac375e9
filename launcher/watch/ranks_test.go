package watch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGDRByRank: what each GPU's connections to other nodes are, also where one
// process drives several, and where the relay of another GPU is used.
func TestGDRByRank(t *testing.T) {
	const log = `n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 6 nNodes 2 localRanks 3 localRank 0 MNNVL 0
n1:10:12 [1] NCCL INFO comm 0x2 rank 1 nRanks 6 nNodes 2 localRanks 3 localRank 1 MNNVL 0
n1:20:20 [2] NCCL INFO comm 0x3 rank 2 nRanks 6 nNodes 2 localRanks 3 localRank 2 MNNVL 0
n2:30:30 [0] NCCL INFO ncclCommInitRank comm 0x4 rank 3 nranks 6 cudaDev 0 nvmlDev 4 busId 1000 - Init START
n1:10:11 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 3[0] [send] via NET/IB/0/GDRDMA
n1:10:12 [1] NCCL INFO Channel 00/0 : 4[0] -> 1[1] [receive] via NET/IB/0/GDRDMA
n1:10:12 [1] NCCL INFO Channel 00/0 : 1[1] -> 4[0] [send] via NET/IB/0
n1:20:20 [2] NCCL INFO Channel 00/0 : 5[0] -> 2[2] [receive] via NET/IB/1
n2:30:30 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [send] via NET/IB/4(1)/GDRDMA
n2:30:30 [0] NCCL INFO Channel 00/0 : 3[0] -> 4[1] via P2P/IPC
n2:31:31 [1] NCCL INFO Channel 00/0 : 4[1] -> 5[2] via P2P/IPC
`
	v, err := Scan(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := &GDRRanks{Yes: []int{0, 3}, Partly: []int{1}, No: []int{2}}
	if d := cmp.Diff(want, v.GDRRanks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if v.GDR == nil || !*v.GDR || !v.GDRPartial {
		t.Errorf("gdr=%s partial=%v", show(v.GDR), v.GDRPartial)
	}
}

func TestMergedGDRRanksAreInOrder(t *testing.T) {
	yes := true
	v := Merge([]Verdict{
		{Library: "nccl", GDR: &yes, GDRRanks: &GDRRanks{Yes: []int{2, 3}}},
		{Library: "nccl", GDR: &yes, GDRRanks: &GDRRanks{Yes: []int{0, 1}, No: []int{4}}},
	})
	if d := cmp.Diff(&GDRRanks{Yes: []int{0, 1, 2, 3}, Partly: []int{}, No: []int{4}}, v.GDRRanks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNodes: over how many nodes a job runs is told by names, by addresses where
// names are alike, and not at all where ranks are missing.
func TestNodes(t *testing.T) {
	for _, c := range []struct {
		name, log string
		want      string
	}{
		{
			"two machines of one name", `ubuntu:10:10 [0] NCCL INFO Bootstrap : Using ens4:10.0.0.1<0>
ubuntu:20:20 [0] NCCL INFO Bootstrap : Using ens4:10.0.0.2<0>
ubuntu:10:11 [0] NCCL INFO NET/Socket : Using [0]ens4:10.0.0.1<0>
ubuntu:10:11 [0] NCCL INFO Using network Socket
ubuntu:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
ubuntu:20:21 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE`, "fb=true cause=unknown nodes=2",
		},
		{
			"one machine, two processes", `ubuntu:10:10 [0] NCCL INFO Bootstrap : Using ens4:10.0.0.1<0>
ubuntu:20:20 [1] NCCL INFO Bootstrap : Using ens4:10.0.0.1<0>
ubuntu:10:11 [0] NCCL INFO Using network Socket
ubuntu:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
ubuntu:20:21 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2000 - Init COMPLETE`, "fb=false cause=null nodes=1",
		},
		{
			"one machine, an interface of each rank", `ubuntu:10:10 [0] NCCL INFO Bootstrap : Using ens4:10.0.0.1<0>
ubuntu:20:20 [1] NCCL INFO Bootstrap : Using ens5:10.0.1.1<0>
ubuntu:10:11 [0] NCCL INFO Using network Socket
ubuntu:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
ubuntu:20:21 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2000 - Init COMPLETE`, "fb=false cause=null nodes=1",
		},
		{
			"two names, ranks missing", `n1:10:11 [0] NCCL INFO NET/IB : No device found.
n1:10:11 [0] NCCL INFO Using network Socket
n2:20:21 [0] NCCL INFO Using network Socket
n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE`, "fb=true cause=no-device nodes=null",
		},
		{
			"ring of two on one machine", `box:10:10 [0] NCCL INFO Using network Socket
box:20:20 [1] NCCL INFO Using network Socket
box:10:11 [0] NCCL INFO Channel 00/02 :    0   1`, "fb=false cause=null nodes=1",
		},
		{
			"one process with two GPUs", `box:10:10 [0] NCCL INFO Using network IB
box:10:11 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/direct pointer
box:10:12 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via P2P/direct pointer`, "fb=false cause=null nodes=null",
		},
	} {
		v := mustScan(t, c.log+"\n")
		got := "fb=" + show(v.Fallback) + " cause=" + show(v.Cause) + " nodes=" + show(v.NNodes)
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRanksSeen: GPUs of one process are ranks of their own, and RCCL names the
// size of the communicator in every channel.
func TestRanksSeen(t *testing.T) {
	for _, c := range []struct {
		name, log, ranks, nranks string
	}{
		{"a thread for each GPU", `n1:10:11 [7] NCCL INFO Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer
n1:10:12 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3
n1:10:13 [4] NCCL INFO Channel 03/0 : 13[5] -> 4[4] [receive] via NET/IB/3`, "3", "null"},
		{"RCCL", `n1:10:11 [0] NCCL INFO Channel 00/0 : 8[c1000] -> 0[c1000] [receive] via NET/IB/0/GDRDMA comm 0x7f1a2c000c40 nRanks 16
n1:12:13 [1] NCCL INFO Channel 00/0 : 0[c1000] -> 1[c2000] via P2P/IPC comm 0x7f1a2c000c50 nRanks 16`, "2", "16"},
	} {
		v := mustScan(t, c.log+"\n")
		if show(v.RanksSeen) != c.ranks || show(v.NRanks) != c.nranks {
			t.Errorf("%s: ranks %s of %s, want %s of %s", c.name, show(v.RanksSeen), show(v.NRanks), c.ranks, c.nranks)
		}
	}
}
