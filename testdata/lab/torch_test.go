package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const torchScript = `import os, signal, sys, time
import torch.distributed as dist, torch
def got(n, _):
    open("/tmp/signals", "a").write("%d\n" % n)
    time.sleep(3)
    open("/tmp/saved", "w").write("whole\n")
    os._exit(0)
signal.signal(signal.SIGTERM, got)
dist.init_process_group("gloo")
t, step = torch.ones(1000), 0
open("/tmp/env", "w").write("%s %s %s\n" % (os.environ.get("BATCH_SIZE"), os.environ.get("NCCL_DEBUG"), os.environ["RANK"]))
while True:
    dist.all_reduce(t); t.fill_(1); step += 1
    if step == 5:
        open("/tmp/ready", "w").close()
        if dist.get_rank() == 0:
            print("step 5", flush=True)
    time.sleep(0.1)
`

// TestTorchrunOverTheLabsNodes: real torchrun with Gloo, started by fabrun on both
// nodes, with NCCL_DEBUG set: its environment, its output, one that is stopped, and
// the one signal that each rank gets. It needs the image with torch.
func TestTorchrunOverTheLabsNodes(t *testing.T) {
	if os.Getenv("FABRUN_LAB_TORCH") == "" {
		t.Skip("FABRUN_LAB_TORCH=1 builds an image with torch and runs this")
	}
	l := nodes(t)
	for node := 1; node <= 2; node++ {
		must(t, l, node, "cat > /tmp/train.py <<'E'\n"+torchScript+"E\nrm -f /tmp/ready /tmp/signals /tmp/saved", time.Minute)
	}
	var res result
	var err error
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute*patience)
	defer cancel()
	wg.Go(func() {
		res, err = l.run(ctx, 1, "cd /tmp; NCCL_DEBUG=INFO BATCH_SIZE=64 fabrun "+soft+" torchrun --nproc_per_node 1 -r 2 -t 2 train.py > /tmp/out 2> /tmp/err; code=$?; cat /tmp/out; cat /tmp/err >&2; exit $code")
	})
	wait := func(node int, what string) string {
		t.Helper()
		return on(t, l, node, "for i in $(seq 200); do "+what+" && break; sleep 1; done; date +%s", 4*time.Minute).stdout
	}
	for node := 1; node <= 2; node++ {
		wait(node, "[ -e /tmp/ready ]")
	}
	began := on(t, l, 2, "pkill -STOP -f 'python3.* -u .*train.py'; date +%s", time.Minute).stdout
	named := wait(1, "grep -q 'it is stopped' /tmp/err")
	on(t, l, 2, "pkill -CONT -f 'python3.* -u .*train.py'", time.Minute)
	wait(1, "grep -q 'The job goes on' /tmp/err")
	on(t, l, 1, "pkill -TERM -x fabrun", time.Minute)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped at %s, named at %s\n%s", began, named, res)
	for _, want := range []string{"warning: node2 rank 1: it is stopped (SIGSTOP) for ", "The job goes on"} {
		if !strings.Contains(res.stderr, want) {
			t.Errorf("no %q", want)
		}
	}
	if res.code != 1 || res.stdout != "step 5\n" {
		t.Errorf("status %d and output %q, want torchrun's 1 and the one line", res.code, res.stdout)
	}
	for node, want := range map[int]string{1: "64 INFO 0\n15\nwhole\n", 2: "64 INFO 1\n15\nwhole\n"} {
		if got := must(t, l, node, "cat /tmp/env /tmp/signals /tmp/saved", time.Minute).stdout; got != want {
			t.Errorf("node%d: %q, want %q", node, got, want)
		}
	}
}
