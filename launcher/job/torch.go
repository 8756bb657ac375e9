package job

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
	"syscall"
	"time"

	"fabrun/envgen"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
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
	carry  plan.Carry
}

// Spread is how a torchrun is started on several nodes.
type Spread struct {
	Carry    plan.Carry
	Prefix   bool          // every line has its node in front
	NoPrefix bool          // none has
	Grace    time.Duration // after a signal; 0 waits for the launcher
}

// again are these flags for a fabrun that a script starts.
func (o Spread) again() []string {
	var out []string
	for _, name := range o.Carry.Take {
		out = append(out, "--env="+name)
	}
	for _, name := range o.Carry.Leave {
		out = append(out, "--no-env="+name)
	}
	if o.Prefix {
		out = append(out, "--prefix")
	}
	if o.NoPrefix {
		out = append(out, "--no-prefix")
	}
	if o.Grace != 0 {
		out = append(out, "--grace="+o.Grace.String())
	}
	return out
}

func (o Spread) check() error {
	switch name, bad := o.Carry.Bad(); {
	case bad:
		return exit.UsageError(fmt.Errorf("--env, --no-env %q: no name of a variable", name), "a name, or a beginning like 'SSH_*'; its value is the environment's: NAME=value fabrun …")
	case o.Prefix && o.NoPrefix:
		return exit.UsageError(errors.New("--prefix and --no-prefix together"), "one of the two")
	case o.Grace < 0:
		return exit.UsageError(fmt.Errorf("--grace %v: a time cannot be negative", o.Grace), "--grace 90s")
	}
	return nil
}

func (o Spread) prefixing() launcher.Prefixing {
	switch {
	case o.Prefix:
		return launcher.PrefixAlways
	case o.NoPrefix:
		return launcher.PrefixNever
	}
	return launcher.PrefixMany
}

// ports for the rendezvous: below every usual range of ephemeral ports.
const (
	firstPort = 20000
	portCount = 9000
)

// spreadTorch says whether torchrun is to be started on all nodes, and where
// they meet; nil where it runs here only.
func (a *Call) spreadTorch(job Sight, p *plan.Plan, o Spread) (*torchJob, error) {
	n := len(job.alloc.Hosts)
	if self, step, ok := hosts.OwnStep(a.Getenv); ok && n > 1 {
		// srun has started one fabrun per node: each starts its own torchrun.
		if spread, _ := job.cmd.TorchSpread(a.Env, n); spread && self < n {
			master, err := masterAddress(job, *p, a.From != "")
			if err != nil {
				return nil, err
			}
			*p = plan.TorchNode(*p, job.cmd, self, n, master, agreedPort(step))
		}
		return nil, nil
	}
	spread, why := job.cmd.TorchSpread(a.Env, n)
	if !spread {
		if why != "" {
			p.Notes = append(p.Notes, why)
		}
		return nil, nil
	}
	t := &torchJob{cmd: job.cmd, base: *p, nodes: job.alloc.Names(), alloc: job.alloc, port: a.freePort(p.Words()), carry: o.Carry}
	var err error
	if t.master, err = masterAddress(job, *p, a.From != ""); err != nil {
		return nil, err
	}
	p.Notes = append(p.Notes, fmt.Sprintf("fabrun starts torchrun on all %d nodes, with --node-rank 0 to %d; where several print, their lines begin with the node", n, n-1))
	_, p.Withheld = o.Carry.HandOver(a.Env)
	*p = plan.TorchNode(*p, job.cmd, 0, n, t.master, t.port)
	return t, nil
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
func (a *Call) freePort(words []string) int {
	if a.From != "" {
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
func masterAddress(job Sight, p plan.Plan, replay bool) (string, error) {
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
	return "", &exit.Error{
		Code: exit.NoPlan, Err: fmt.Errorf("no address is known by which the other nodes reach %s", first.Name),
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

func hostOf(job Sight, name string) *topology.Host {
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

// runNodes starts torchrun on every node and stays to the end: output merged,
// signals handed on, everything ended when one node fails, one status.
func (a *Call) runNodes(ctx context.Context, t *torchJob, job preparedJob, o Options, seen *eyes.Job) (launcher.Status, error) {
	caught := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(sig) { // nohup
			signal.Notify(caught, sig)
		}
	}
	defer signal.Stop(caught)

	dir, err := os.Getwd()
	if err != nil {
		return launcher.Status{}, err
	}
	// The sessions end by themselves, or when they are cut.
	sessions, cut := context.WithCancel(context.Background())
	defer cut()
	nodes := make([]*node, len(t.nodes))
	others, self := look.Others(t.alloc)
	if len(others) > 0 && a.reached.transport == nil {
		return launcher.Status{}, errors.New("--remote none: torchrun cannot be started on the other nodes")
	}
	sent, _ := t.carry.HandOver(t.environment(job.spec.Env))
	var lacking []string
	for i, name := range t.nodes {
		n := &node{name: name, via: a.reached.transport, fabrun: a.reached.paths[name]}
		if self[name] {
			n.via, n.fabrun = remote.NewLocal(), a.Self()
		}
		if n.fabrun == "" {
			lacking = append(lacking, name)
		}
		p := plan.TorchNode(t.base, t.cmd, i, len(t.nodes), t.master, t.port)
		n.job = launcher.NodeJob{Argv: inRunDir(p, job.dir), Env: sent, Dir: dir, Mark: job.spec.Mark, Carry: t.carry}
		nodes[i] = n
	}
	if len(lacking) > 0 {
		return launcher.Status{}, &exit.Error{
			Code: exit.NoPlan, Err: fmt.Errorf("torchrun cannot be started on %s: fabrun is not there and could not be brought there", hosts.Compress(lacking)),
			Hint: fmt.Sprintf("'fabrun check --hosts %s' says why; or install fabrun there at %s", hosts.Compress(lacking), a.Self()),
		}
	}
	broken := make(chan error, 2)
	out, errs := launcher.NewMerge(a.Stdout, o.Spread.prefixing()), launcher.NewMerge(a.Stderr, o.Spread.prefixing())
	out.Broken = func(err error) { broken <- err }
	restarts := t.cmd.TorchRestarts(a.Env)
	c := &nodesRun{a: a, nodes: nodes, grace: o.Spread.Grace, least: t.cmd.TorchLeast(a.Env), failed: make(chan string, len(nodes)), ended: make(chan nodeEnd), cut: cut}
	if job.spec.Started != nil {
		job.spec.Started(0)
	}
	for _, n := range nodes {
		so, se := out.Source(n.name+": "), errs.Source(n.name+": ")
		stdout, stderr := seen.Tap("stdout", so), seen.Tap("stderr", se)
		var failures io.Writer = stderr
		if !restarts {
			failures = &failureReader{to: stderr, failed: func() { c.failed <- n.name }}
		}
		if err := n.open(); err != nil {
			return launcher.Status{}, err
		}
		c.running++
		go func() {
			st, err := n.run(sessions, remote.Streams{Stdout: stdout, Stderr: failures})
			//nolint:errcheck // a Merge and a Source never fail
			_ = errors.Join(stdout.Close(), stderr.Close())
			c.ended <- nodeEnd{n, st, err}
		}()
	}
	return c.attend(ctx, caught, broken), nil
}

// inRunDir is a plan's command line with its private directory in place.
func inRunDir(p plan.Plan, dir string) []string {
	words := p.Words()
	for i, w := range p.Argv {
		if w.Origin != envgen.FromUser {
			words[i] = strings.ReplaceAll(words[i], plan.RunDir, dir)
		}
	}
	return words
}

// environment adds what torchrun itself needs: it hands on what it tees without
// flushing, so into a pipe that would come at its end.
func (t *torchJob) environment(env []string) []string {
	if _, set := cmdline.Lookup(env, "PYTHONUNBUFFERED"); set || !t.cmd.TorchTees(env) {
		return env
	}
	return append(slices.Clone(env), "PYTHONUNBUFFERED=1")
}

// node is torchrun on one node: a fabrun there that runs it, told by its standard
// input what, and which signals to hand on.
type node struct {
	name   string
	via    remote.Transport
	fabrun string // its path there
	job    launcher.NodeJob

	in, orders *os.File // what the session reads, and where that is written
	signals    chan syscall.Signal
	over       bool
}

func (n *node) open() error {
	var err error
	n.in, n.orders, err = os.Pipe()
	n.signals = make(chan syscall.Signal, 16)
	return err
}

// run is the life of a session. Writing has a goroutine of its own: a node that
// hangs reads nothing.
func (n *node) run(ctx context.Context, s remote.Streams) (int, error) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, err := n.job.WriteTo(n.orders)
		for sig := range n.signals {
			if err == nil {
				err = launcher.SendSignal(n.orders, sig)
			}
		}
		//nolint:errcheck // its end is all that it says
		_ = n.orders.Close()
	}()
	st, err := n.via.Exec(ctx, n.name, remote.Command{Argv: []string{n.fabrun, "rank", "--stay"}, Stdin: n.in, Ranks: true}, s)
	//nolint:errcheck // nothing reads it any more
	_ = n.in.Close()
	return st, err
}

// tell hands a signal on; a node that has sixteen unread gets no more.
func (n *node) tell(sig syscall.Signal) {
	if n.over {
		return
	}
	select {
	case n.signals <- sig:
	default:
	}
}

// end lets the node's fabrun end what it runs, at once.
func (n *node) end() {
	if !n.over {
		n.over = true
		close(n.signals)
	}
}

type nodeEnd struct {
	node   *node
	status int
	err    error
}

// nodesRun attends to the sessions of a job.
type nodesRun struct {
	a     *Call
	nodes []*node
	grace time.Duration
	least int    // with how many nodes torchrun goes on when it loses one; 0 it does not
	cut   func() // breaks the sessions off

	failed  chan string // a worker there has failed
	ended   chan nodeEnd
	running int

	st         launcher.Status
	decided    bool // why the job ends is known: st is its status, or the ranks' own
	told       bool // by a signal
	interrupts int
	next       <-chan time.Time // when step is due
	step       func()           // the next towards the end
}

// How long the nodes have: the others for their own end after one has failed,
// and a fabrun on a node to end what it runs (its TERM, and KILL two seconds
// later) and to say so.
const (
	nodeGrace = 2 * time.Second
	nodeEnds  = 5 * time.Second
	// torchGrace is a little more than torchrun gives its workers
	// (torch/distributed/elastic/multiprocessing/api.py, close).
	torchGrace = 32 * time.Second
)

func (c *nodesRun) say(format string, args ...any) {
	fmt.Fprintf(c.a.Own(), format+"\n", args...)
}

func (c *nodesRun) fail(code int, why string) bool {
	if c.decided {
		return false
	}
	c.decided, c.st.Code = true, code
	c.say("%s; ending the other nodes", why)
	return true
}

func (c *nodesRun) tell(sig syscall.Signal) {
	for _, n := range c.nodes {
		n.tell(sig)
	}
}

// after makes a step towards the end; what was meant to come is replaced.
func (c *nodesRun) after(wait time.Duration, step func()) { c.next, c.step = time.After(wait), step }

// endAll ends what runs, and breaks off what does not answer.
func (c *nodesRun) endAll() {
	for _, n := range c.nodes {
		n.end()
	}
	c.after(nodeEnds, c.cut)
}

func (c *nodesRun) attend(ctx context.Context, caught <-chan os.Signal, broken <-chan error) launcher.Status {
	stop := ctx.Done()
	codes := map[*node]int{}
	for c.running > 0 {
		select {
		case sig := <-caught:
			c.signalled(sig.(syscall.Signal))
		case <-stop: // --strict, or a node that is lost
			stop = nil
			c.endAll()
		case err := <-broken:
			if !c.decided {
				c.decided, c.st.Code = true, exit.SignalsBase+int(syscall.SIGPIPE)
				c.say("the job's output cannot be written any more (%v); ending the job", err)
				c.endAll()
			}
		case <-c.next:
			c.next = nil
			c.step()
		case name := <-c.failed:
			if c.fail(torchFailed, "a worker on "+name+" failed") {
				c.endOthers()
			}
		case e := <-c.ended:
			c.running--
			e.node.end()
			codes[e.node] = e.status
			if e.err != nil && c.goesOnWithout(e.node) {
				codes[e.node] = 0
				continue
			}
			switch {
			case e.err != nil && c.fail(exit.Internal, e.err.Error()):
				c.endAll()
			case e.err == nil && e.status != 0 && !c.told && c.fail(e.status, fmt.Sprintf("torchrun on %s ended with status %d", e.node.name, e.status)):
				c.endOthers()
			}
		}
	}
	if !c.decided {
		for _, n := range c.nodes {
			if codes[n] != 0 {
				c.st.Code = codes[n]
				break
			}
		}
	}
	return c.st
}

// goesOnWithout reports whether torchrun goes on without a node whose session broke:
// an elastic job, as long as enough are left. They meet at the first one.
func (c *nodesRun) goesOnWithout(n *node) bool {
	if c.decided || c.told || c.least == 0 || n == c.nodes[0] || c.running < c.least {
		return false
	}
	c.say("the session on %s has ended; torchrun can go on with the other %d nodes", n.name, c.running)
	return true
}

// endOthers ends a job of which a node has failed: the others may see it by
// themselves, then they are told, with torchrun's own time for their workers.
func (c *nodesRun) endOthers() {
	c.after(nodeGrace, func() {
		c.tell(syscall.SIGTERM)
		wait := torchGrace
		if c.grace > 0 {
			wait = c.grace
		}
		c.after(wait, c.endAll)
	})
}

// signalled hands a signal to torchrun on every node, and waits: what the ranks
// still do (save a checkpoint) is theirs. A second interrupt ends the job.
func (c *nodesRun) signalled(sig syscall.Signal) {
	c.tell(sig)
	switch sig {
	case syscall.SIGINT:
		if c.interrupts++; c.interrupts == 2 {
			c.say("interrupted again: ending the job")
			c.endAll()
			return
		}
	case syscall.SIGTERM, syscall.SIGHUP:
	default:
		return
	}
	if !c.told && !c.decided {
		c.told = true
		if !c.a.Quiet {
			c.say("%v: handed to the ranks on %d nodes, which have their own time to end", sig, c.running)
		}
		if c.grace > 0 {
			c.after(c.grace, func() {
				c.say("%v are over: ending the job", c.grace)
				c.endAll()
			})
		}
	}
}
