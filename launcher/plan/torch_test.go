package plan_test

import (
	"strings"
	"testing"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
)

func TestTorchNodes(t *testing.T) {
	for _, c := range []struct {
		name, argv, env string
		n               int
		want            string // node 1's command; "" not spread
		why             string // a part of the reason against it
	}{
		{"plain", "torchrun --nproc-per-node 8 train.py --lr 1", "", 2, "torchrun --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=20001 --nproc-per-node 8 train.py --lr 1", ""},
		{"as a module", "python3 -m torch.distributed.run train.py", "", 2, "python3 -m torch.distributed.run --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=20001 train.py", ""},
		{"nnodes said", "torchrun --nnodes=2 train.py", "", 2, "torchrun --node_rank=1 --master_addr=10.0.0.1 --master_port=20001 --nnodes=2 train.py", ""},
		{"elastic", "torchrun --nnodes=1:4 --rdzv-backend=c10d train.py", "", 2, "torchrun --rdzv_endpoint=10.0.0.1:20001 --rdzv_id=fabrun-20001 --rdzv_conf=is_host=0 --nnodes=1:4 --rdzv-backend=c10d train.py", ""},
		{"one host", "torchrun train.py", "", 1, "", ""},
		{"another number", "torchrun --nnodes 3 train.py", "", 2, "", "--nnodes 3 does not fit"},
		{"one node wanted", "torchrun --nnodes=1 train.py", "", 2, "", "--nnodes 1"},
		{"standalone", "torchrun --standalone train.py", "", 2, "", "--standalone is given"},
		{"own rendezvous", "torchrun --rdzv_endpoint=a:1 train.py", "", 2, "", "--rdzv_endpoint=a:1 is given"},
		{"own, by prefix", "torchrun --master_a a train.py", "", 2, "", "--master_a is given"},
		{"own, in the environment", "torchrun train.py", "PET_MASTER_ADDR=x", 2, "", "PET_MASTER_ADDR is set"},
		{"no torchrun", "./a.out", "", 2, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := strings.Fields(c.argv)
			cmd := cmdline.Parse(cmdline.Identify(argv, "", ""), argv)
			spread, why := cmd.TorchSpread(strings.Fields(c.env), c.n)
			if spread != (c.want != "") || c.why != "" && !strings.Contains(why, c.why) || c.why == "" && why != "" {
				t.Fatalf("spread %v, why %q", spread, why)
			}
			if !spread {
				return
			}
			p := plan.TorchNode(plan.Build(plan.Request{Command: cmd}), cmd, 1, c.n, "10.0.0.1", 20001)
			checkWords(t, p, argv)
			if got := strings.Join(p.Words(), " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	argv := []string{"torchrun", "t.py"}
	cmd := cmdline.Parse(cmdline.Identify(argv, "", ""), argv)
	p := plan.TorchNode(plan.Build(plan.Request{Command: cmd}), cmd, 0, 2, "fd00::1", 20001)
	if got := strings.Join(p.Words(), " "); !strings.Contains(got, "--master_addr=[fd00::1]") {
		t.Errorf("IPv6 wants brackets: %s", got)
	}
}
