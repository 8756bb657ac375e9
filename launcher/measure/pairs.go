package measure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fabrun/topology"

	"fabrun/topology/pasted"
)

// Exec runs argv on a host, writes what it prints to out and returns its exit
// status; 127 says that the program is not there. When ctx ends, so does the program.
type Exec func(ctx context.Context, host string, argv []string, out io.Writer) (status int, err error)

// TestPort is one end of the pair tests.
type TestPort struct {
	Host     string // by which Exec reaches it, and the others do
	HCA      string
	Number   int
	GID      *int // RoCE: the index of the plan; nil InfiniBand, or none found
	RateGbps *float64
	CPUs     []int  // of the NIC's NUMA node; nil: no pinning
	NUMA     *int   // of the NIC
	Address  string // of the GID, for what connects by rdma_cm; "" none
	Netdev   string // whose counters see the port's bytes; "" none
	Emulated bool   // a software device (rxe, siw): its speed is the CPU's, so it is only held against its like
	GPU      *GPUMemory
}

// GPUMemory says how perftest is told to use the memory of the GPU near a port.
type GPUMemory struct {
	Index  int
	AMD    bool // --use_rocm
	DMABuf bool // the driver has no peer memory client: by DMA-BUF
}

func (g GPUMemory) args() []string {
	kind := "cuda"
	if g.AMD {
		kind = "rocm"
	}
	out := []string{fmt.Sprintf("--use_%s=%d", kind, g.Index)}
	if g.DMABuf {
		out = append(out, "--use_"+kind+"_dmabuf")
	}
	return out
}

// PairOptions are how the tests are run. The zero value is gentle: two seconds
// a direction.
type PairOptions struct {
	TC       *int // traffic class of the plan
	SL       *int
	GPU      bool // GPU memory (--use_cuda), and host memory beside it
	Latency  bool // also ib_send_lat
	Seconds  int
	Expect   Expect
	BasePort int           // TCP ports from here on; 0: 18515
	Deadline time.Duration // of one direction; 0: 30 s
}

// PairRunner measures pairs with perftest.
type PairRunner struct {
	Exec    Exec
	Ports   [][]*TestPort // by host, then rail; nil: that host has no such rail
	Options PairOptions
	OnTest  func(round, done, tests int) // a test has ended; called from many goroutines
	OnRound func(round, tests, bad int)

	rounds int
	best   float64 // Gb/s of the fastest software device so far
	mu     sync.Mutex
	unpin  map[string]bool // hosts without taskset
	noCUDA map[string]bool // hosts whose perftest was built without it
	lacks  map[string]bool // hosts without perftest
}

// Probe runs one round: its tests at the same time, the two directions of each
// one after the other. Tests of ports that are not there are left out.
func (r *PairRunner) Probe(ctx context.Context, ps []Probe) []Measured {
	r.rounds++
	out := make([]*Measured, len(ps))
	round, tests := r.rounds, 0
	for _, p := range ps {
		if r.Ports[p.A][p.Rail] != nil && r.Ports[p.B][p.Rail] != nil {
			tests++
		}
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	// A bound on what one head keeps open at a time: two sessions a test.
	sem := make(chan struct{}, 512)
	for i, p := range ps {
		a, b := r.Ports[p.A][p.Rail], r.Ports[p.B][p.Rail]
		if a == nil || b == nil {
			continue
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			// Ports are unique per host in a round: one test per port of a host.
			tcp := r.basePort() + (round*64+p.Rail)%4096*2
			m := Measured{Probe: p, There: r.direction(ctx, a, b, tcp)}
			m.Back = r.direction(ctx, b, a, tcp+1)
			out[i] = &m
			n := int(done.Add(1))
			if r.OnTest != nil {
				r.OnTest(round, n, tests)
			}
		})
	}
	wg.Wait()
	r.judgeEmulated(out)
	var ms []Measured
	bad := 0
	for _, m := range out {
		if m == nil {
			continue
		}
		ms = append(ms, *m)
		if m.There.Bad() || m.Back.Bad() {
			bad++
		}
	}
	if r.OnRound != nil {
		r.OnRound(r.rounds, len(ms), bad)
	}
	return ms
}

// emulatedBad: software devices have no rate, they are as fast as the CPUs let
// them. Two of one kind differ by a factor of five with what else those CPUs do;
// a path that loses a fifth of its packets costs a factor of thirty and more,
// for each loss makes the sender begin again (rxe: go-back-N).
const emulatedBad = 0.1

// judgeEmulated holds software devices against the fastest of them. That one is
// slower than others accuses; that none is says nothing of their speed.
func (r *PairRunner) judgeEmulated(ms []*Measured) {
	var all []*Outcome
	for _, m := range ms {
		if m == nil || !r.Ports[m.A][m.Rail].Emulated || !r.Ports[m.B][m.Rail].Emulated {
			continue
		}
		for _, o := range []*Outcome{&m.There, &m.Back} {
			if o.Gbps != nil && !o.OfGPU {
				r.best = max(r.best, *o.Gbps)
				all = append(all, o)
			}
		}
	}
	for _, o := range all {
		if *o.Gbps < emulatedBad*r.best {
			o.Verdict, o.Others = Broken, ptr(r.best)
		}
	}
}

func (r *PairRunner) basePort() int {
	if r.Options.BasePort > 0 {
		return r.Options.BasePort
	}
	return 18515
}

func (r *PairRunner) direction(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	gpu := r.Options.GPU && from.GPU != nil && to.GPU != nil && !r.lacksCUDA(from.Host) && !r.lacksCUDA(to.Host)
	o := r.bandwidth(ctx, from, to, tcp, gpu)
	switch {
	case gpu && o.Error == "perftest.option":
		// Built without CUDA, as distributions do: host memory is what can be tested.
		r.mu.Lock()
		if r.noCUDA == nil {
			r.noCUDA = map[string]bool{}
		}
		r.noCUDA[from.Host] = true
		r.mu.Unlock()
		o = r.bandwidth(ctx, from, to, tcp, false)
	case gpu && o.Gbps != nil:
		o.OfGPU = true
		o.HostGbps = r.bandwidth(ctx, from, to, tcp, false).Gbps
	}
	if r.Options.Latency && o.Error == "" && o.Gbps != nil {
		if l := r.latency(ctx, from, to, tcp); l.Usec != nil {
			o.Usec = l.Usec
			if l.Verdict == Broken && o.Verdict == Good {
				o.Verdict = Degraded
			}
		}
	}
	return o
}

func (r *PairRunner) lacksCUDA(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noCUDA[host]
}

// WithoutPerftest are the hosts on which it was not found, sorted. A host whose
// partner had none either may have been asked for nothing.
func (r *PairRunner) WithoutPerftest() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.lacks))
}

// WithoutCUDA are the hosts whose perftest does not know --use_cuda, sorted.
func (r *PairRunner) WithoutCUDA() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.noCUDA))
}

// common are the options that both ends of a perftest program must share.
func (r *PairRunner) common(p *TestPort, tcp int) []string {
	args := []string{"-d", p.HCA, "-i", strconv.Itoa(p.Number), "-p", strconv.Itoa(tcp), "-F"}
	if p.GID != nil {
		args = append(args, "-x", strconv.Itoa(*p.GID))
		if r.Options.TC != nil {
			args = append(args, fmt.Sprintf("--tclass=%d", *r.Options.TC))
		}
	}
	if r.Options.SL != nil {
		args = append(args, "-S", strconv.Itoa(*r.Options.SL))
	}
	return args
}

// run starts a program on the CPUs of the NIC's NUMA node; where there is no
// taskset, on any.
func (r *PairRunner) run(ctx context.Context, p *TestPort, argv []string) ended {
	r.mu.Lock()
	pinned := len(p.CPUs) > 0 && !r.unpin[p.Host]
	r.mu.Unlock()
	var out bounded
	if !pinned {
		st, err := r.Exec(ctx, p.Host, argv, &out)
		return ended{st, err, out.String()}
	}
	st, err := r.Exec(ctx, p.Host, append([]string{"taskset", "-c", topology.FormatCPUs(p.CPUs)}, argv...), &out)
	// taskset itself ends with 127 when the program is not there, and says that
	// it could not execute it; a shell that finds no taskset does not.
	if err != nil || st != 127 || strings.Contains(out.String(), "execute") {
		return ended{st, err, out.String()}
	}
	r.mu.Lock()
	if r.unpin == nil {
		r.unpin = map[string]bool{}
	}
	r.unpin[p.Host] = true
	r.mu.Unlock()
	return r.run(ctx, p, argv)
}

// ended is a program's end.
type ended struct {
	status int
	err    error
	text   string
}

func (e ended) missing() bool { return e.err == nil && e.status == 127 }

func (r *PairRunner) bandwidth(ctx context.Context, from, to *TestPort, tcp int, gpu bool) Outcome {
	seconds := max(r.Options.Seconds, 0)
	if seconds == 0 {
		seconds = 2
	}
	argv := func(p *TestPort, tcp int) []string {
		a := append([]string{"ib_write_bw"}, r.common(p, tcp)...)
		a = append(a, "--report_gbits")
		if p.Emulated {
			// A few megabytes, not seconds: of what is in flight at such speeds too
			// little would end within them.
			a = append(a, "-s", "65536", "-n", "60", "-t", "16", "-Q", "1")
		} else {
			a = append(a, "-s", "1048576", "-D", strconv.Itoa(seconds))
		}
		// One queue pair does not fill a fast port.
		if rate := from.RateGbps; rate != nil && *rate >= 200 {
			a = append(a, "-q", "4")
		} else {
			a = append(a, "-q", "2")
		}
		if gpu {
			a = append(a, p.GPU.args()...)
		}
		return a
	}
	text, missing, failed := r.perftest(ctx, from, to, tcp, argv)
	if missing {
		return r.reach(ctx, from, to, tcp)
	}
	if failed != nil {
		return *failed
	}
	p, _ := pasted.ReadPerftest(text)
	row := p.Largest()
	if row == nil || row.AvgGbps == nil {
		return Outcome{Error: "perftest.no-result", Verdict: Broken}
	}
	if *row.AvgGbps == 0 && row.Iterations > 0 { // it ran to its end, but its clock did not
		return Outcome{Error: "perftest.clock", Verdict: Unknown}
	}
	o := Outcome{Gbps: row.AvgGbps, MTU: p.MTU, Verdict: Unknown}
	if from.Emulated || to.Emulated {
		return o
	}
	e := r.Options.Expect
	if e.RateGbps == nil {
		// The slower end sets what can be had.
		e.RateGbps = slower(from.RateGbps, to.RateGbps)
	}
	o.Verdict = e.JudgeBandwidth(*row.AvgGbps)
	return o
}

func slower(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return ptr(min(*a, *b))
}

func (r *PairRunner) latency(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	text, _, failed := r.perftest(ctx, from, to, tcp, func(p *TestPort, tcp int) []string {
		return append(append([]string{"ib_send_lat"}, r.common(p, tcp)...), "-s", "2", "-n", "1000")
	})
	if failed != nil {
		return *failed
	}
	p, err := pasted.ReadPerftest(text)
	if err != nil || p.Smallest() == nil || p.Smallest().TypUsec == nil {
		return Outcome{}
	}
	o := Outcome{Usec: p.Smallest().TypUsec, Verdict: Unknown}
	if !from.Emulated && !to.Emulated {
		o.Verdict, _ = JudgePerftest(p, r.Options.Expect)
	}
	return o
}

// perftest runs one of its programs on both ends. When the TCP port is taken
// by somebody else's it goes on to another one.
func (r *PairRunner) perftest(ctx context.Context, from, to *TestPort, tcp int, argv func(*TestPort, int) []string) (text string, missing bool, failed *Outcome) {
	for try := range 5 {
		tcp := tcp + try*2*4096 // the last try's server may not have gone yet
		c, s, err := r.both(ctx, from, to, argv(to, tcp), append(argv(from, tcp), to.Host), func(c ended) bool {
			return strings.Contains(c.text, "Couldn't connect to")
		})
		if err != "" {
			return "", false, &Outcome{Error: err, Verdict: Broken}
		}
		if c.missing() || s.missing() {
			r.mu.Lock()
			if r.lacks == nil {
				r.lacks = map[string]bool{}
			}
			for host, missing := range map[string]bool{from.Host: c.missing(), to.Host: s.missing()} {
				if missing {
					r.lacks[host] = true
				}
			}
			r.mu.Unlock()
			return "", true, nil
		}
		text = c.text
		// Either end may know better why it failed: the reader takes the most
		// telling line of both.
		p, perr := pasted.ReadPerftest(c.text)
		if perr == nil && p.Error == nil && len(p.Rows) > 0 {
			return text, false, nil
		}
		p, perr = pasted.ReadPerftest(c.text + "\n" + s.text)
		switch {
		case perr == nil && p.Error != nil && p.Error.ID == "perftest.port-in-use" && try < 2:
			continue
		case perr == nil && p.Error != nil && p.Error.ID == "perftest.clock":
			if try < 4 {
				continue
			}
			return "", false, &Outcome{Error: p.Error.ID, Said: p.Error.Line, Verdict: Unknown}
		case perr == nil && p.Error != nil:
			return "", false, &Outcome{Error: p.Error.ID, Said: p.Error.Line, Verdict: Broken}
		}
		return "", false, &Outcome{Error: "perftest.no-result", Said: firstLine(c.text + "\n" + s.text), Verdict: Broken}
	}
	return text, false, &Outcome{Error: "perftest.port-in-use", Verdict: Unknown}
}

// firstLine is the first line with something on it, cut to what fits a finding.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line[:min(len(line), 200)]
		}
	}
	return ""
}

var (
	pingpong = lazy(`\d+ bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec`)
	rpingEnd = lazy(`(?m)^(client|server) DISCONNECT EVENT|ping data: rdma-ping`)
)

// reach is the fallback where perftest is missing: it shows only that packets
// get through, for ibv_rc_pingpong and rping have no traffic class and move
// little data.
func (r *PairRunner) reach(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	argv := func(p *TestPort) []string {
		a := []string{"ibv_rc_pingpong", "-d", p.HCA, "-i", strconv.Itoa(p.Number), "-p", strconv.Itoa(tcp), "-n", "100"}
		if p.GID != nil {
			a = append(a, "-g", strconv.Itoa(*p.GID))
		}
		if r.Options.SL != nil {
			a = append(a, "-l", strconv.Itoa(*r.Options.SL))
		}
		return a
	}
	c, s, err := r.both(ctx, from, to, argv(to), append(argv(from), to.Host), func(c ended) bool {
		return strings.Contains(c.text, "Couldn't connect to")
	})
	switch {
	case err != "":
		return Outcome{Error: err, Verdict: Broken}
	case c.missing() || s.missing():
		return r.rping(ctx, from, to, tcp)
	case !pingpong().MatchString(c.text):
		return Outcome{Error: "pingpong.failed", Said: firstLine(c.text + "\n" + s.text), Verdict: Broken}
	}
	return Outcome{Tool: "ibv_rc_pingpong", Verdict: Unknown}
}

// rping connects by rdma_cm to the address of the other port; the route, not
// an option, chooses the port from which it leaves.
func (r *PairRunner) rping(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	if to.Address == "" {
		return Outcome{Error: "perftest.missing", Verdict: Unknown}
	}
	argv := func(end string) []string {
		return []string{"rping", end, "-a", to.Address, "-p", strconv.Itoa(tcp), "-C", "10", "-v", "-V"}
	}
	c, s, err := r.both(ctx, from, to, argv("-s"), argv("-c"), func(c ended) bool {
		return strings.Contains(c.text, "RDMA_CM_EVENT_REJECTED")
	})
	switch {
	case err != "":
		return Outcome{Error: err, Verdict: Broken}
	case c.missing() || s.missing():
		return Outcome{Error: "perftest.missing", Verdict: Unknown}
	case c.status != 0 || !rpingEnd().MatchString(c.text):
		return Outcome{Error: "rping.failed", Said: firstLine(c.text + "\n" + s.text), Verdict: Broken}
	}
	return Outcome{Tool: "rping", Verdict: Unknown}
}

// serverGrace is how long a server may take to end by itself, once its client
// has: what it says last is often the reason.
const serverGrace = time.Second

// both runs the server on to and the client on from, and ends both. early says
// whether a client's failure means that the server was not up yet. The error is
// a timeout or a transport's; how the programs ended is for the caller to judge.
func (r *PairRunner) both(ctx context.Context, from, to *TestPort, server, client []string, early func(ended) bool) (c, s ended, failed string) {
	deadline := r.Options.Deadline
	if deadline <= 0 {
		deadline = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	serverCtx, stopServer := context.WithCancel(ctx)
	serverEnd := make(chan ended, 1)
	go func() { serverEnd <- r.run(serverCtx, to, server) }()
	defer stopServer()
	for try := range 20 {
		// The server says that it waits only when its output is no pipe: the
		// client asks until somebody answers.
		select {
		case s = <-serverEnd:
			switch {
			case ctx.Err() != nil:
				return c, s, "timeout"
			case s.err != nil:
				return c, s, to.Host + ": " + s.err.Error()
			}
			return c, s, ""
		case <-ctx.Done():
			stopServer()
			<-serverEnd
			return c, s, "timeout"
		case <-time.After(time.Duration(min(50*(try+1), 500)) * time.Millisecond):
		}
		c = r.run(ctx, from, client)
		if c.err == nil && c.status != 0 && c.status != 127 && ctx.Err() == nil && early(c) {
			continue
		}
		break
	}
	if c.err == nil && ctx.Err() == nil {
		select {
		case s = <-serverEnd:
		case <-time.After(serverGrace):
			stopServer()
			s = <-serverEnd
			s.err = nil // it was ended by us
		}
	} else {
		stopServer()
		s = <-serverEnd
	}
	switch {
	case ctx.Err() != nil:
		return c, s, "timeout"
	case c.err != nil:
		return c, s, from.Host + ": " + c.err.Error()
	}
	return c, s, ""
}

// bounded keeps the first part of an output.
type bounded struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *bounded) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := 256<<10 - w.b.Len(); room > 0 {
		w.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (w *bounded) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// Port looks up "mlx5_0:1" on a host and how it is tested. gid is the index
// that the plan chose there; nil none (InfiniBand). nil when there is no such port.
func Port(h topology.Host, reach, name string, gid *int) *TestPort {
	dev, num, _ := strings.Cut(name, ":")
	for _, c := range h.HCAs {
		if c.Name != dev {
			continue
		}
		for _, p := range c.Ports {
			if num != "" && strconv.Itoa(p.Number) != num {
				continue
			}
			t := &TestPort{Host: reach, HCA: dev, Number: p.Number, GID: gid}
			if p.RateTrusted {
				t.RateGbps = p.RateGbps
			}
			t.NUMA, t.Emulated, t.Netdev = c.NUMA, topology.DriverNamed(c.Driver).Software, countedNetdev(h, p.Netdev)
			for _, g := range p.GIDs {
				if t.GID != nil && g.Index == *t.GID {
					t.Address = g.Addr.Unmap().String()
				}
			}
			for _, n := range h.NUMA {
				if c.NUMA != nil && n.ID == *c.NUMA && len(h.NUMA) > 1 {
					t.CPUs = n.CPUs
				}
			}
			near := topology.PathType("")
			for _, g := range h.GPUs {
				for _, path := range topology.NearestHCAs(h, g) {
					if path.HCA == dev && (near == "" || path.NCCL.Closer(near)) {
						near, t.GPU = path.NCCL, &GPUMemory{Index: g.Index, AMD: g.Vendor == "amd", DMABuf: byDMABuf(h.PeerMemory)}
					}
				}
			}
			return t
		}
	}
	return nil
}

// byDMABuf: without a peer memory client in the kernel, perftest reaches GPU
// memory only when it is told to go by DMA-BUF.
func byDMABuf(m topology.PeerMemory) bool {
	return m.NvidiaPeermem != nil && !*m.NvidiaPeermem && m.DMABuf != nil && *m.DMABuf
}

// countedNetdev is the netdev whose driver counts the bytes of a port: the NIC
// below a VLAN; a bond's are counted by its slaves, of which none stands for it.
func countedNetdev(h topology.Host, name string) string {
	for range 4 {
		n := h.Netdev(name)
		if n == nil || n.Lower == "" {
			break
		}
		name = n.Lower
	}
	return name
}
