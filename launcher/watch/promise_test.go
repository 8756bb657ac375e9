package watch

import (
	"strings"
	"testing"
)

// TestLessThanPlanned: fewer devices or no GPUDirect are told when a rank's set-up is
// over, with what was promised and what is there, and not before.
func TestLessThanPlanned(t *testing.T) {
	const (
		using   = p1 + "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
		network = p1 + "Using network IB\n" + two
		staged  = p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n" + p1 + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
		direct  = p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n" + p1 + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
		relayed = p1 + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1(1)/GDRDMA\n" + p1 + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
		rings   = p1 + "Connected all rings\n" + p1 + "Connected all trees\n"
		done    = p1 + "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init COMPLETE\n"
	)
	four := []string{"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}
	const fewer = "The plan promises 4 devices on n1 (mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1), NCCL uses 2 (mlx5_0:1 mlx5_1:1): without mlx5_2:1 mlx5_3:1."
	const off = "The plan promises GPUDirect, and all 2 connections of a GPU of n1 to other nodes go through the host's memory."
	for _, c := range []struct {
		name, log string
		promise   Promise
		want      string // events of broken promises
	}{
		{"both", using + network + staged + rings + done, Promise{map[string][]string{"n1": four}, true}, fewer + " " + off},
		{"nothing promised", using + network + staged + rings + done, Promise{}, ""},
		{"another host", using + network + staged + rings + done, Promise{map[string][]string{"n2": four}, false}, ""},
		{"the host by its long name", using + network + done, Promise{map[string][]string{"n1.cluster": four}, false}, fewer},
		{"every host", using + network + done, Promise{map[string][]string{"": four}, false}, fewer},
		{"what was promised, and more", using + network + direct + rings + done, Promise{map[string][]string{"n1": four[:1]}, true}, ""},
		{"the set-up is not over", using + network + staged, Promise{map[string][]string{"n1": four}, true}, ""},
		{"the list is cut off", strings.Replace(using, " [RO]; OOB eth0:10.0.0.1<0>", "", 1) + network + done, Promise{map[string][]string{"n1": four}, false}, ""},
		{"one node", using + strings.Replace(network, "nNodes 2", "nNodes 1", 1) + done, Promise{map[string][]string{"n1": four}, true}, ""},
		{"reads are off", using + network + direct + rings + done, Promise{nil, true}, ""},
		{"by way of another GPU", using + network + relayed + rings + done, Promise{nil, true}, ""},
		{"connected for the first collective", using + network + done + staged + rings, Promise{nil, true}, off},
		{"and not yet", using + network + done + staged, Promise{nil, true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New(Options{Known: Known{Promise: c.promise}})
			if _, err := w.Source("").ReadFrom(strings.NewReader(c.log)); err != nil {
				t.Fatal(err)
			}
			v := w.Verdict()
			if got := v.broken(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if c.want != "" && !strings.HasSuffix(v.Sentence, "Less than planned: "+c.want) {
				t.Errorf("sentence %q", v.Sentence)
			}
		})
	}
}
