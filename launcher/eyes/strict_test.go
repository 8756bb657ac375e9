package eyes

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
)

// socketRank is what one rank of a job without RDMA says when it starts.
func socketRank(host string, pid, rank, nranks int) string {
	p := fmt.Sprintf("%s:%d:%d [%d] NCCL INFO ", host, pid, pid+1, rank)
	return p + "Bootstrap : Using eth0:10.0.0.1<0>\n" + p + "NET/IB : No device found.\n" + p + "NET/Socket : Using [0]eth0:10.0.0.1<0>\n" +
		p + "Using network Socket\n" + p + fmt.Sprintf("ncclCommInitRank comm 0x1 rank %d nranks %d cudaDev %d busId 1000 - Init START\n", rank, nranks, rank)
}

// TestStrictEndsOnProofOnly: --strict ends a job for TCP between nodes once the
// nodes are there, and never because a rank has not been seen yet.
func TestStrictEndsOnProofOnly(t *testing.T) {
	late := socketRank("n1", 10, 0, 4) + socketRank("n1", 20, 1, 4) + socketRank("n1", 30, 2, 4)
	inside := "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"
	onHosts := func(names ...string) plan.Plan {
		p := plan.Plan{Dialect: cmdline.OpenMPI5}
		for _, n := range names {
			p.Hosts.Hosts = append(p.Hosts.Hosts, hosts.Host{Name: n})
		}
		return p
	}
	torch := func(argv ...string) plan.Plan {
		p := onHosts("n1")
		p.Dialect = cmdline.Torchrun
		p.Command = cmdline.Parse(cmdline.Launcher{Dialect: cmdline.Torchrun, Words: 1}, argv)
		return p
	}
	promising := onHosts("n1", "n2")
	for i := range 4 {
		port := fmt.Sprintf("mlx5_%d:1", i)
		promising.Rails = append(promising.Rails, envgen.Rail{Ports: map[string]string{"n1": port, "n2": port}})
	}
	pinned := promising
	pinned.Kept = []envgen.Var{{Name: "NCCL_IB_HCA", Value: "mlx5_0"}}
	less := "n1:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\nn1:10:11 [0] NCCL INFO Using network IB\n" +
		"n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n" +
		"n1:10:11 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init COMPLETE\n"
	for _, c := range []struct {
		name  string
		p     plan.Plan
		env   []string
		log   string
		ended bool
		says  string // the last line
	}{
		{"the last rank of one host is late", onHosts(), nil, late, false, "Unknown whether data leaves the node"},
		{"it came", onHosts(), nil, late + socketRank("n1", 40, 3, 4), false, "No fallback"},
		{"it came, on another host", onHosts(), nil, late + socketRank("n2", 40, 3, 4), true, "FALLBACK to TCP: NCCL finds no active RDMA device"},
		{"nNodes tells", onHosts(), nil, late + "n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 3 localRank 0 MNNVL 0\n", true, "FALLBACK to TCP"},
		{"nNodes tells of one", onHosts(), nil, late + "n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n" + inside, false, "No fallback"},
		{"the network inside the plan's one node", onHosts("n1"), nil, late + inside, false, "No fallback"},
		{"the same, and nobody knows the nodes", onHosts(), nil, late + inside, false, "Unknown whether data leaves the node"},
		{"to a rank that is not there", onHosts(), nil, late + strings.Replace(inside, "1[1]", "3[3]", 1), true, "FALLBACK to TCP"},
		{"the user asked for it", onHosts("n1", "n2"), []string{"NCCL_NET=Socket"}, late + socketRank("n2", 40, 3, 4), false, "TCP, as was asked for"},
		{"fewer rails and no GPUDirect than planned", promising, nil, less, true, "The plan promises 4 devices on n1 (mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1), NCCL uses 1 (mlx5_0:1)"},
		{"the set-up is not over", promising, nil, strings.Replace(less, "COMPLETE", "START", 1), false, "No fallback in what was seen"},
		{"the user's own devices", pinned, nil, less, false, "No fallback in what was seen"},
		{"torchrun by hand on two nodes", torch("torchrun", "--nnodes", "2", "--node-rank", "0", "train.py"), nil, "", false, "the job has nodes that were not started here"},
		{"torchrun by hand, and a rank says so", torch("torchrun", "--nnodes", "2", "--node-rank", "0", "train.py"), nil, late + strings.Replace(inside, "1[1]", "3[3]", 1), true, "FALLBACK to TCP"},
		{"torchrun on one node", torch("torchrun", "train.py"), nil, "", false, "one host, so nothing had to cross the fabric"},
		{"PET_NNODES", torch("torchrun", "train.py"), []string{"PET_NNODES=2:4"}, "", false, "the job has nodes that were not started here"},
		{"a worker of a larger world", onHosts("n1"), []string{"WORLD_SIZE=16", "LOCAL_WORLD_SIZE=8"}, "", false, "the job has nodes that were not started here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var errs bytes.Buffer
			ended := false
			cfg := JobConfig{Plan: c.p, Env: c.env, Dir: t.TempDir(), Stderr: &errs, Say: &errs, End: func() { ended = true }, Strict: true}
			w, err := WatchJob(cfg, &launcher.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			src := w.here.Watcher().Source("stdout")
			for line := range strings.Lines(c.log) {
				_, _ = io.WriteString(src, line)
			}
			var r Result
			w.Finish(launcher.Status{}, func(shown Result) { r = shown })
			if ended != c.ended || (r.Broken != "") != c.ended {
				t.Errorf("ended=%v, %q, want %v", ended, r.Broken, c.ended)
			}
			if !strings.Contains(errs.String()+r.Sentence, c.says) {
				t.Errorf("lacks %q:\n%s%s", c.says, errs.String(), r.Sentence)
			}
		})
	}
}
