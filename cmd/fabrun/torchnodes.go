package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/topology"
)

// torchJob is a torchrun that fabrun starts on every node of the job.
type torchJob struct {
	cmd    cmdline.Command
	base   plan.Plan // without what differs per node
	nodes  []string
	master string
	port   int
	alloc  hosts.Allocation
}

// ports for the rendezvous: below every usual range of ephemeral ports.
const (
	firstPort = 20000
	portCount = 9000
)

// spreadTorch says whether torchrun is to be started on all nodes, and where
// they meet; nil where it runs here only.
func (a *app) spreadTorch(job jobLook, p *plan.Plan) (*torchJob, error) {
	n := len(job.alloc.Hosts)
	if self, ok := ordinaryStep(a.env); ok && n > 1 {
		// srun has started one fabrun per node: each starts its own torchrun.
		if spread, _ := job.cmd.TorchSpread(a.env, n); spread && self < n {
			master, err := masterAddress(job, *p, a.from != "")
			if err != nil {
				return nil, err
			}
			id, _ := a.getenv("SLURM_JOB_ID")
			step, _ := a.getenv("SLURM_STEP_ID")
			*p = plan.TorchNode(*p, job.cmd, self, n, master, agreedPort(id+"."+step))
		}
		return nil, nil
	}
	spread, why := job.cmd.TorchSpread(a.env, n)
	if !spread {
		if why != "" {
			p.Notes = append(p.Notes, why)
		}
		return nil, nil
	}
	t := &torchJob{cmd: job.cmd, base: *p, nodes: job.alloc.Names(), alloc: job.alloc, port: a.freePort(p.Words())}
	var err error
	if t.master, err = masterAddress(job, *p, a.from != ""); err != nil {
		return nil, err
	}
	p.Notes = append(p.Notes, fmt.Sprintf("fabrun starts torchrun on all %d nodes, with --node-rank 0 to %d; their lines are prefixed with the node", n, n-1))
	*p = plan.TorchNode(*p, job.cmd, 0, n, t.master, t.port)
	return t, nil
}

// ordinaryStep reports whether this process is a task of an ordinary srun step
// with one task on several nodes, and which node's.
func ordinaryStep(env []string) (node int, ok bool) {
	get := func(name string) (int, bool) {
		for _, kv := range slices.Backward(env) {
			if v, found := strings.CutPrefix(kv, name+"="); found {
				n, err := strconv.Atoi(v)
				return n, err == nil
			}
		}
		return 0, false
	}
	step, ok1 := get("SLURM_STEP_ID")
	nodes, ok2 := get("SLURM_STEP_NUM_NODES")
	node, ok3 := get("SLURM_NODEID")
	// Batch script, interactive and extern steps count down from 0xffffffff.
	return node, ok1 && ok2 && ok3 && step >= 0 && step < 0x7ffffff0 && nodes > 1
}

// agreedPort is a port that every node derives from the same text.
func agreedPort(text string) int {
	h := uint32(2166136261) // FNV-1a
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	return firstPort + int(h%portCount)
}

// freePort is a random port outside the ephemeral range that nothing here
// listens on. A plan from a snapshot takes the same one every time.
func (a *app) freePort(words []string) int {
	if a.from != "" {
		return agreedPort(strings.Join(words, " "))
	}
	for range 20 {
		var b [4]byte
		//nolint:errcheck // crypto/rand does not fail
		_, _ = rand.Read(b[:])
		port := firstPort + int(binary.LittleEndian.Uint32(b[:])%portCount)
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if l.Close() == nil {
			return port
		}
	}
	return firstPort
}

// masterAddress is where the nodes meet: node 0's address on the interface that
// the plan bootstraps over, else the one its name stands for. Never loopback.
func masterAddress(job jobLook, p plan.Plan, replay bool) (string, error) {
	first := job.alloc.Hosts[0]
	if h := hostOf(job, first.Name); h != nil {
		for _, v := range p.Env {
			if v.Name != "GLOO_SOCKET_IFNAME" {
				continue
			}
			for _, d := range h.Netdevs {
				if d.Name == v.Value {
					if addr := globalAddress(d.Addrs); addr != "" {
						return addr, nil
					}
				}
			}
		}
	}
	for _, s := range []string{first.Address, first.Name} {
		if ip, err := netip.ParseAddr(s); err == nil && (!ip.IsLoopback() || len(job.alloc.Hosts) > 0 && allLoopback(job.alloc)) {
			return ip.String(), nil
		}
	}
	if replay {
		return first.Name, nil // what names mean there, this machine cannot know
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", first.Name); err == nil {
		for _, ip := range addrs {
			if ip = ip.Unmap(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				return ip.String(), nil
			}
		}
	}
	if h := hostOf(job, first.Name); h != nil {
		for _, d := range h.Netdevs {
			if addr := globalAddress(d.Addrs); addr != "" {
				return addr, nil
			}
		}
	}
	if job.alloc.Manager != "" {
		return first.Name, nil // the manager's own name: its nodes know it
	}
	return "", &exitError{
		Code: exitNoPlan, Err: fmt.Errorf("no address is known by which the other nodes reach %s", first.Name),
		Hint: "give addresses: --hosts '10.1.4.[1-4]'",
	}
}

// allLoopback is a job of several loopback addresses: a test on one machine.
func allLoopback(a hosts.Allocation) bool {
	return !slices.ContainsFunc(a.Hosts, func(h hosts.Host) bool {
		ip, err := netip.ParseAddr(h.Name)
		return err != nil || !ip.IsLoopback()
	})
}

func hostOf(job jobLook, name string) *topology.Host {
	if len(job.names) == 0 {
		return nil
	}
	if i := slices.Index(job.names, name); i >= 0 {
		return &job.hosts[i]
	}
	return nil
}

func globalAddress(addrs []netip.Prefix) string {
	for _, want4 := range []bool{true, false} {
		for _, p := range addrs {
			if ip := p.Addr().Unmap(); ip.Is4() == want4 && ip.IsGlobalUnicast() && !ip.IsLinkLocalUnicast() {
				return ip.String()
			}
		}
	}
	return ""
}

// torchFailed is torchrun's status for a worker that failed.
const torchFailed = 1

// failureReader passes on what torchrun prints, and tells once of the line that
// says that a worker failed (torch/distributed/elastic/multiprocessing/api.py).
// torchrun itself then waits up to five minutes for the agents of the other
// nodes, whose workers wait for the one that failed (api.py, _exit_barrier).
type failureReader struct {
	to     io.Writer
	failed func() // nil once it was called
	held   []byte // the end of what was read, up to a line's length
}

func (r *failureReader) Write(p []byte) (int, error) {
	if r.failed != nil {
		r.held = append(r.held, p...)
		for line := range bytes.Lines(r.held) {
			if bytes.Contains(line, []byte("failed (exitcode: ")) && bytes.Contains(line, []byte(" local_rank: ")) {
				r.failed()
				r.failed, r.held = nil, nil
				break
			}
		}
		if at := bytes.LastIndexByte(r.held, '\n') + 1; at > 0 || len(r.held) > maxFailureLine {
			r.held = append(r.held[:0], r.held[max(at, len(r.held)-maxFailureLine):]...)
		}
	}
	return r.to.Write(p)
}

// maxFailureLine is more than that line is long.
const maxFailureLine = 4096

// nodeGrace is how long the other nodes have after one has failed: with the second
// that processes then have to leave, the job is gone within five.
const nodeGrace = 2 * time.Second

// runNodes starts torchrun on every node and stays to the end: output merged,
// everything ended when one node fails or the user interrupts, one status.
func (a *app) runNodes(ctx context.Context, t *torchJob, job preparedJob, o nodeOptions) (launcher.Status, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	caught := make(chan os.Signal, 4)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(caught)

	reach, err := a.transportTo(o, t.alloc.Manager)
	if err != nil {
		return launcher.Status{}, err
	}
	if reach == nil {
		return launcher.Status{}, errors.New("--remote none: torchrun cannot be started on the other nodes")
	}
	//nolint:errcheck // connections that are no longer needed
	defer reach.Close()
	_, self := otherNodes(t.alloc)
	dir, err := os.Getwd()
	if err != nil {
		return launcher.Status{}, err
	}
	var stdout, stderr io.Writer = a.stdout, a.stderr
	if job.spec.Stdout != nil {
		stdout = job.spec.Stdout
	}
	if job.spec.Stderr != nil {
		stderr = job.spec.Stderr
	}
	if job.spec.Started != nil {
		job.spec.Started(0)
	}
	out, errs := launcher.NewMerge(stdout), launcher.NewMerge(stderr)
	env := plan.NodeEnv(t.base, a.env)
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], plan.RunDir, job.dir)
	}
	if _, set := a.getenv("PYTHONUNBUFFERED"); !set {
		// torchrun hands on what it tees without flushing: into a pipe that would
		// come at its end.
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	restarts := t.cmd.TorchRestarts(a.env)
	workerFailed := make(chan string, len(t.nodes))
	type ended struct {
		node   string
		status int
		err    error
	}
	done := make(chan ended)
	var wg sync.WaitGroup
	for i, node := range t.nodes {
		words := plan.TorchNode(t.base, t.cmd, i, len(t.nodes), t.master, t.port).Words()
		via, there := reach, a.reached.paths[node]
		if self[node] {
			via, there = remote.NewLocal(), a.self()
		}
		if there != "" {
			// torchrun leaves its workers when it is killed, and they may be in
			// sessions of their own: somebody on the node has to see to them.
			words = slices.Concat([]string{there, "rank", "--stay", "--"}, words)
		}
		wg.Go(func() {
			so, se := out.Source(node+": "), errs.Source(node+": ")
			var failures io.Writer = se
			if !restarts {
				failures = &failureReader{to: se, failed: func() { workerFailed <- node }}
			}
			st, err := via.Exec(ctx, node, remote.Command{Argv: words, Env: env, Dir: dir}, remote.Streams{Stdout: so, Stderr: failures})
			//nolint:errcheck // the place of the output is gone
			_ = errors.Join(so.Close(), se.Close())
			done <- ended{node, st, err}
		})
	}
	go func() { wg.Wait(); close(done) }()

	var st launcher.Status
	failed := false
	var grace <-chan time.Time
	fail := func(code int, sig syscall.Signal, why string) {
		if failed {
			return
		}
		failed = true
		st.Code, st.Signal = code, sig
		fmt.Fprintf(a.stderr, "fabrun: %s; ending the other nodes\n", why)
	}
	for {
		select {
		case sig := <-caught:
			n := sig.(syscall.Signal)
			fail(exitSignalsBase+int(n), n, "got "+n.String())
			cancel()
		case node := <-workerFailed:
			if !failed {
				grace = time.After(nodeGrace)
			}
			fail(torchFailed, 0, "a worker on "+node+" failed")
		case <-grace:
			grace = nil
			cancel()
		case e, ok := <-done:
			switch {
			case !ok:
				return st, nil
			case e.err != nil && !failed:
				fail(exitInternal, 0, e.err.Error())
				cancel()
			case e.status != 0 && !failed:
				fail(e.status, 0, fmt.Sprintf("torchrun on %s ended with status %d", e.node, e.status))
				grace = time.After(nodeGrace)
			}
		}
	}
}
