package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStall(t *testing.T) {
	const begin = `n1:10:10 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
n1:10:10 [0] NCCL INFO NCCL version 2.27.7+cuda12.8
n1:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
n1:10:11 [0] NCCL INFO Using network IB
n1:10:11 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START
n2:20:20 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.2<0>
n2:20:20 [0] NCCL INFO NCCL version 2.26.2+cuda12.2
`
	for _, c := range []struct{ name, log, suspect string }{
		{
			"a rank waits for an address", begin + "n2:20:21 [0] NCCL INFO socketPollConnect: connect to 10.0.0.1<4711> returned Connection timed out, retrying (3/34) after sleep for 100 msec\n",
			"n2 process 20 waits for 10.0.0.1<4711> of n1",
		},
		{"versions differ", begin, "Library versions differ: 2.26.2 on n2; 2.27.7 on n1."},
		{"ranks are missing", strings.ReplaceAll(begin, "2.26.2", "2.27.7"), "Nothing was seen of rank 1-3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Options{})
			s := w.Source("")
			_, _ = s.Write([]byte(c.log))
			stall := StallOf(w.Standings())
			if stall == nil {
				t.Fatal("no stall")
			}
			if !strings.HasPrefix(stall.Suspect, c.suspect) {
				t.Errorf("suspect %q, want %q", stall.Suspect, c.suspect)
			}
			if !cmp.Equal(stall.Missing, []int{1, 2, 3}) {
				t.Errorf("missing %v, want 1 2 3", stall.Missing)
			}
			block := stall.Block()
			for _, want := range []string{"set-up of 4 ranks has stopped", "waiting for the other ranks", "n1: ranks 0", "not seen"} {
				if !strings.Contains(block, want) {
					t.Errorf("block lacks %q:\n%s", want, block)
				}
			}
			if e := stall.Event(60); e.ID != "stall" || !strings.Contains(e.Text, "for 60 s") || e.Block != block {
				t.Errorf("event %+v", e)
			}
		})
	}
	w := New(Options{})
	_, _ = w.Source("").Write([]byte(twoNodeLog))
	if s := StallOf(w.Standings()); s != nil {
		t.Errorf("a job that is set up has stalled: %+v", s)
	}
}

// nodeLog is what the ranks of one node of a job on two say, up to a point.
func nodeLog(node int, upTo ...string) string {
	var b strings.Builder
	for r := 2 * node; r < 2*node+2; r++ {
		p := fmt.Sprintf("n%d:%d:%d [%d] NCCL INFO ", node, 100+r, 100+r, r%2)
		for _, what := range upTo {
			b.WriteString(p)
			switch what {
			case "bootstrap":
				fmt.Fprintf(&b, "Bootstrap: Using eth0:10.0.0.%d<0>", node+1)
			case "version":
				b.WriteString("NCCL version 2.27.7+cuda12.8")
			case "network":
				b.WriteString("Using network IB")
			case "devices":
				b.WriteString("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")
			case "one device":
				b.WriteString("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")
			case "start":
				fmt.Fprintf(&b, "ncclCommInitRank comm 0x1 rank %d nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START", r)
			case "done":
				fmt.Fprintf(&b, "ncclCommInitRank comm 0x1 rank %d nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE", r)
			case "channels":
				fmt.Fprintf(&b, "Channel 00/0 : %d[0] -> %d[0] [send] via NET/IB/0/GDRDMA", r, (r+1)%4)
			case "sendrecv":
				fmt.Fprintf(&b, "Channel 00/1 : %d[0] -> %d[0] [send] via NET/IB/0/GDRDMA", r, (r+1)%4)
			case "rings":
				b.WriteString("Connected all rings, use ring PXN 0 GDR 1")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestStallOfAllNodes: what each node's session saw, put together.
func TestStallOfAllNodes(t *testing.T) {
	up := []string{"bootstrap", "version", "devices", "network", "start"}
	full := append(slices.Clone(up), "channels", "rings", "done")
	lazy := append(slices.Clone(up), "done")
	for _, c := range []struct {
		name    string
		nodes   [][]string
		suspect string // "": no stall
		lines   []string
	}{
		{"all is well", [][]string{full, full}, "", nil},
		{"well, and connecting later", [][]string{lazy, lazy}, "", nil},
		{"sends and receives tell no end", [][]string{append(slices.Clone(lazy), "sendrecv"), append(slices.Clone(lazy), "sendrecv")}, "", nil},
		{"a further communicator came up", [][]string{append(slices.Clone(full), "start", "done"), append(slices.Clone(full), "start", "done")}, "", nil},
		{
			"a node never came",
			[][]string{up, nil},
			"Nothing was seen of rank 2-3",
			[]string{"waiting for the other ranks  n0: ranks 0-1", "not seen                     ranks 2-3"},
		},
		{
			"a node is behind",
			[][]string{up, {"bootstrap"}},
			"Nothing was seen of rank 2-3",
			[]string{"bootstrap                    n1: 2 processes"},
		},
		{
			"devices differ",
			[][]string{up, {"bootstrap", "version", "one device", "network", "start"}},
			"RDMA devices differ: mlx5_0:1/RoCE on n1; mlx5_0:1/RoCE mlx5_1:1/RoCE on n0.",
			nil,
		},
		{
			"a pair does not connect",
			[][]string{append(slices.Clone(up), "channels"), append(slices.Clone(up), "channels")},
			"From rank 0 (n0) to rank 1 (n0) is the last",
			[]string{"connecting channels          n0: ranks 0-1", "connecting channels          n1: ranks 2-3"},
		},
		{
			"the first collective",
			[][]string{append(slices.Clone(lazy), "channels"), append(slices.Clone(lazy), "channels", "rings")},
			"From rank 0 (n0) to rank 1 (n0) is the last",
			[]string{"first collective: connecting n0: ranks 0-1", "set up                       n1: ranks 2-3"},
		},
		{
			"a further communicator",
			[][]string{append(slices.Clone(full), "start"), full},
			"All ranks wait in the same place",
			[]string{"further communicator: waiting n0: ranks 0-1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []Standing
			for i, upTo := range c.nodes {
				w := New(Options{})
				_, _ = w.Source("").Write([]byte(nodeLog(i, upTo...)))
				all = append(all, w.Standings()...)
			}
			s := StallOf(all)
			if (s != nil) != (c.suspect != "") {
				t.Fatalf("stall %+v, want one: %v", s, c.suspect != "")
			}
			if s == nil {
				return
			}
			if !strings.HasPrefix(s.Suspect, c.suspect) {
				t.Errorf("suspect %q, want %q", s.Suspect, c.suspect)
			}
			for _, want := range c.lines {
				if !strings.Contains(s.Block(), want) {
					t.Errorf("block lacks %q:\n%s", want, s.Block())
				}
			}
		})
	}
}

// TestStallOfManyNodes: the block of a thousand ranks fits on a screen.
func TestStallOfManyNodes(t *testing.T) {
	var all []Standing
	for r := range 1000 {
		if r == 717 {
			continue
		}
		all = append(all, Standing{Host: fmt.Sprintf("gpu%03d", r/8), PID: uint32(1000 + r), Phase: int(phaseInitStart), Ranks: []int{r}, NRanks: 1000, Version: "2.27.7"})
	}
	s := StallOf(all)
	if s == nil || !strings.HasPrefix(s.Suspect, "Nothing was seen of rank 717") {
		t.Fatalf("%+v", s)
	}
	block := s.Block()
	if n := strings.Count(block, "\n"); n > 6 || len(block) > 1000 {
		t.Errorf("%d lines:\n%s", n, block)
	}
	if want := "gpu005 and 119 more: ranks 0-716,718-999"; !strings.Contains(block, want) {
		t.Errorf("block lacks %q:\n%s", want, block)
	}
}

func TestMerge(t *testing.T) {
	verdict := func(log string) Verdict {
		v, err := Scan(strings.NewReader(log))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	ib := verdict(twoNodeLog)
	socket := verdict(`n3:30:30 [0] NCCL INFO NET/IB : No device found.
n3:30:30 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.3<0>
n3:30:30 [0] NCCL INFO Using network Socket
n3:30:30 [0] NCCL INFO comm 0x1 rank 2 nRanks 3 nNodes 3 localRanks 1 localRank 0 MNNVL 0
`)
	nothing := verdict("hello\n")

	if got := Merge([]Verdict{ib, nothing}); got.Fallback == nil || *got.Fallback || !strings.HasPrefix(got.Sentence, "No fallback") {
		t.Errorf("a node that says nothing changes the verdict: %+v", got)
	}
	if got := Merge([]Verdict{ib, socket}); got.Fallback == nil || !*got.Fallback || *got.Cause != CauseMixed {
		t.Errorf("RDMA here and sockets there: %+v, want mixed-networks", got)
	}
	if got := Merge([]Verdict{socket, socket}); *got.Cause != CauseNoDevice || *got.RanksSeen != 2 {
		t.Errorf("sockets everywhere: cause %v ranks %v", *got.Cause, *got.RanksSeen)
	}
	if got := Merge([]Verdict{nothing, nothing}); got.Fallback != nil || got.Sentence == "" {
		t.Errorf("nothing anywhere: %+v, want unknown", got)
	}
}

func TestAsksForTCP(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{"OMPI_MCA_btl": "tcp,self"}, "OMPI_MCA_btl=tcp,self"},
		{map[string]string{"OMPI_MCA_btl": "^tcp"}, ""},
		{map[string]string{"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "openib,self"}, ""},
		{map[string]string{"OMPI_MCA_pml": "ob1"}, "OMPI_MCA_pml=ob1"},
		{map[string]string{"NCCL_NET": "Socket"}, "NCCL_NET=Socket"},
		{map[string]string{"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1"},
		{map[string]string{"NCCL_IB_DISABLE": "0"}, ""},
		{map[string]string{"FI_PROVIDER": "tcp"}, "FI_PROVIDER=tcp"},
		{map[string]string{"FI_PROVIDER": "verbs;ofi_rxm"}, ""},
		{map[string]string{"UCX_TLS": "tcp,self,sm"}, "UCX_TLS=tcp,self,sm"},
		{map[string]string{"UCX_TLS": "rc,tcp,self"}, ""},
		{map[string]string{"UCX_TLS": "^tcp"}, ""},
		{map[string]string{"UCX_NET_DEVICES": "eth0,eth1"}, "UCX_NET_DEVICES=eth0,eth1"},
		{map[string]string{"UCX_NET_DEVICES": "mlx5_0:1,eth0"}, ""},
		{map[string]string{"UCX_NET_DEVICES": "all"}, ""},
		{map[string]string{"UCX_NET_DEVICES": "^mlx5_0:1"}, ""},
		{map[string]string{"I_MPI_FABRICS": "shm:tcp"}, "I_MPI_FABRICS=shm:tcp"},
		{map[string]string{"I_MPI_FABRICS": "shm:ofi"}, ""},
	} {
		if got := AsksForTCP(c.set); got != c.want {
			t.Errorf("%v: %q, want %q", c.set, got, c.want)
		}
	}
}

// TestNetworkInsideANode: with NVLink, two ranks of one node should not need the
// network.
func TestNetworkInsideANode(t *testing.T) {
	const nvlink = "n0:100:100 [0] NCCL INFO                 + NVL[123.6] - GPU/0-26000\n"
	for _, c := range []struct {
		name, log string
		want      bool
	}{
		{"inside", nvlink + nodeLog(0, "start") + nodeLog(0, "channels", "rings", "done"), true},
		{"without NVLink", nodeLog(0, "start") + nodeLog(0, "channels", "rings", "done"), false},
		{"to another node", nvlink + nodeLog(0, "start") + strings.ReplaceAll(nodeLog(0, "channels", "rings", "done"), ": 0[0] -> 1[0]", ": 0[0] -> 2[0]"), false},
		{"in a second communicator, whose ranks are others", nvlink + nodeLog(0, "start", "done") + nodeLog(0, "start") + nodeLog(0, "channels", "rings", "done"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Options{})
			_, _ = w.Source("").Write([]byte(c.log))
			got := slices.ContainsFunc(w.Events(), func(e Event) bool { return e.ID == "nvlink-unused" })
			if got != c.want {
				t.Errorf("warned %v, want %v: %+v", got, c.want, w.Events())
			}
		})
	}
}
