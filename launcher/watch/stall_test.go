package watch

import (
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
			"n2 waits for 10.0.0.1<4711>",
		},
		{"versions differ", begin, "Library version differ: 2.26.2 on n2; 2.27.7 on n1."},
		{"ranks are missing", strings.ReplaceAll(begin, "2.26.2", "2.27.7"), "Nothing was seen of rank 1-3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Options{})
			s := w.Source("")
			_, _ = s.Write([]byte(c.log))
			stall := w.Stalled()
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
			if !w.ReportStall(60) {
				t.Error("not reported")
			}
		})
	}
	w := New(Options{})
	_, _ = w.Source("").Write([]byte(twoNodeLog))
	if s := w.Stalled(); s != nil {
		t.Errorf("a job that is set up has stalled: %+v", s)
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
		argv string
		env  map[string]string
		want bool
	}{
		{"mpirun -np 2 ./a.out", nil, false},
		{"mpirun --mca btl tcp,self -np 2 ./a.out", nil, true},
		{"mpirun --mca btl ^tcp -np 2 ./a.out", nil, false},
		{"mpirun --mca pml ob1 --mca btl openib,self ./a.out", nil, false},
		{"mpirun --mca pml ob1 ./a.out", nil, true},
		{"mpirun -x NCCL_NET=Socket ./a.out", nil, true},
		{"mpirun ./a.out", map[string]string{"NCCL_IB_DISABLE": "1"}, true},
		{"mpirun ./a.out", map[string]string{"NCCL_IB_DISABLE": "0"}, false},
		{"mpiexec -genv FI_PROVIDER tcp ./a.out", nil, true},
		{"mpiexec ./a.out", map[string]string{"FI_PROVIDER": "verbs;ofi_rxm"}, false},
		{"mpirun ./a.out", map[string]string{"UCX_TLS": "tcp,self,sm"}, true},
		{"mpirun ./a.out", map[string]string{"UCX_TLS": "rc,tcp,self"}, false},
		{"mpirun ./a.out", map[string]string{"UCX_TLS": "^tcp"}, false},
		{"mpirun ./a.out", map[string]string{"UCX_NET_DEVICES": "eth0,eth1"}, true},
		{"mpirun -x UCX_NET_DEVICES=mlx5_0:1,eth0 ./a.out", nil, false},
		{"mpirun ./a.out", map[string]string{"UCX_NET_DEVICES": "all"}, false},
		{"mpirun ./a.out", map[string]string{"UCX_NET_DEVICES": "^mlx5_0:1"}, false},
		{"mpiexec -genv I_MPI_FABRICS shm:tcp ./a.out", nil, true},
		{"mpiexec -genv I_MPI_FABRICS shm:ofi ./a.out", nil, false},
	} {
		if got := AsksForTCP(strings.Fields(c.argv), c.env); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.argv, c.env, got, c.want)
		}
	}
}
