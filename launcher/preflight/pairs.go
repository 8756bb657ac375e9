package preflight

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"fabrun/topology"
	"fabrun/topology/finding"
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
	CPUs     []int // of the NIC's NUMA node; nil: no pinning
	GPU      *int  // with PairOptions.GPU: the device near the port
}

// PairOptions are how the tests are run. The zero value is gentle: two seconds
// a direction.
type PairOptions struct {
	TC       *int // traffic class of the plan
	SL       *int
	GPU      bool // GPU memory (--use_cuda)
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
	OnRound func(round, tests, bad int)

	rounds int
}

// Probe runs one round: its tests at the same time, the two directions of each
// one after the other. Tests of ports that are not there are left out.
func (r *PairRunner) Probe(ctx context.Context, ps []Probe) []Measured {
	r.rounds++
	out := make([]*Measured, len(ps))
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
			tcp := r.basePort() + (r.rounds*64+p.Rail)%4096*2
			m := Measured{Probe: p, There: r.direction(ctx, a, b, tcp)}
			m.Back = r.direction(ctx, b, a, tcp+1)
			out[i] = &m
		})
	}
	wg.Wait()
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

func (r *PairRunner) basePort() int {
	if r.Options.BasePort > 0 {
		return r.Options.BasePort
	}
	return 18515
}

func (r *PairRunner) direction(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	o := r.bandwidth(ctx, from, to, tcp)
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

// pin puts a program on the CPUs of the NIC's NUMA node.
func pin(p *TestPort, argv []string) []string {
	if len(p.CPUs) == 0 {
		return argv
	}
	return append([]string{"taskset", "-c", cpuList(p.CPUs)}, argv...)
}

func cpuList(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", cpus[j])
		}
		i = j + 1
	}
	return b.String()
}

func (r *PairRunner) bandwidth(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	seconds := max(r.Options.Seconds, 0)
	if seconds == 0 {
		seconds = 2
	}
	argv := func(p *TestPort) []string {
		a := append([]string{"ib_write_bw"}, r.common(p, tcp)...)
		a = append(a, "--report_gbits", "-s", "1048576", "-D", strconv.Itoa(seconds))
		// One queue pair does not fill a fast port.
		if rate := from.RateGbps; rate != nil && *rate >= 200 {
			a = append(a, "-q", "4")
		} else {
			a = append(a, "-q", "2")
		}
		if r.Options.GPU && p.GPU != nil {
			a = append(a, fmt.Sprintf("--use_cuda=%d", *p.GPU))
		}
		return pin(p, a)
	}
	text, missing, err := r.both(ctx, from, to, argv)
	if missing {
		return r.reach(ctx, from, to, tcp)
	}
	if err != "" {
		return Outcome{Error: err, Verdict: Broken}
	}
	p, perr := ReadPerftest(text)
	switch {
	case perr != nil:
		return Outcome{Error: "perftest.no-result", Verdict: Broken}
	case p.Error != nil:
		return Outcome{Error: p.Error.ID, Verdict: Broken}
	}
	row := p.Largest()
	if row == nil || row.AvgGbps == nil {
		return Outcome{Error: "perftest.no-result", Verdict: Broken}
	}
	e := r.Options.Expect
	if e.RateGbps == nil {
		// The slower end sets what can be had.
		e.RateGbps = slower(from.RateGbps, to.RateGbps)
	}
	return Outcome{Gbps: row.AvgGbps, Verdict: e.JudgeBandwidth(*row.AvgGbps)}
}

func slower(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return ptr(min(*a, *b))
}

func (r *PairRunner) latency(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	text, _, err := r.both(ctx, from, to, func(p *TestPort) []string {
		return pin(p, append(append([]string{"ib_send_lat"}, r.common(p, tcp)...), "-s", "2", "-n", "1000"))
	})
	if err != "" {
		return Outcome{Error: err}
	}
	p, perr := ReadPerftest(text)
	if perr != nil || p.Error != nil || p.Smallest() == nil || p.Smallest().TypUsec == nil {
		return Outcome{}
	}
	v, _ := JudgePerftest(p, r.Options.Expect)
	return Outcome{Usec: p.Smallest().TypUsec, Verdict: v}
}

var pingpong = lazy(`\d+ bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec`)

// reach is the fallback where perftest is missing: it shows only that packets
// get through, for ibv_rc_pingpong has no traffic class and one small buffer.
func (r *PairRunner) reach(ctx context.Context, from, to *TestPort, tcp int) Outcome {
	text, missing, err := r.both(ctx, from, to, func(p *TestPort) []string {
		a := []string{"ibv_rc_pingpong", "-d", p.HCA, "-i", strconv.Itoa(p.Number), "-p", strconv.Itoa(tcp), "-n", "100"}
		if p.GID != nil {
			a = append(a, "-g", strconv.Itoa(*p.GID))
		}
		return pin(p, a)
	})
	switch {
	case missing:
		return Outcome{Error: "perftest.missing", Verdict: Unknown}
	case err != "" || !pingpong().MatchString(text):
		return Outcome{Error: orText(err, "pingpong.failed"), Verdict: Broken}
	}
	return Outcome{Verdict: Unknown}
}

// both runs the server on to and the client on from, and ends both. It returns
// what the client printed, or what went wrong.
func (r *PairRunner) both(ctx context.Context, from, to *TestPort, argv func(*TestPort) []string) (text string, missing bool, failed string) {
	deadline := r.Options.Deadline
	if deadline <= 0 {
		deadline = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	type end struct {
		status int
		err    error
		text   string
	}
	serverCtx, stopServer := context.WithCancel(ctx)
	server := make(chan end, 1)
	go func() {
		var out bounded
		st, err := r.Exec(serverCtx, to.Host, argv(to), &out)
		server <- end{st, err, out.String()}
	}()
	defer stopServer()
	var c end
	for try := range 20 {
		// The server says that it waits only when its output is no pipe: the
		// client asks until somebody answers.
		select {
		case s := <-server:
			switch {
			case s.status == 127 && s.err == nil:
				return "", true, ""
			case s.err != nil && ctx.Err() == nil:
				return "", false, to.Host + ": " + s.err.Error()
			case ctx.Err() != nil:
				return "", false, "timeout"
			}
			if p, err := ReadPerftest(s.text); err == nil && p.Error != nil {
				return "", false, p.Error.ID
			}
			return "", false, fmt.Sprintf("%s: the server ended with status %d", to.Host, s.status)
		case <-ctx.Done():
			return "", false, "timeout"
		case <-time.After(time.Duration(min(50*(try+1), 500)) * time.Millisecond):
		}
		var out bounded
		st, err := r.Exec(ctx, from.Host, append(argv(from), to.Host), &out)
		c = end{st, err, out.String()}
		if ctx.Err() != nil {
			return "", false, "timeout"
		}
		if err == nil && st != 0 && st != 127 {
			if p, perr := ReadPerftest(c.text); perr == nil && p.Error != nil && p.Error.ID == "perftest.connect" || strings.Contains(c.text, "Couldn't connect to") {
				continue // not up yet
			}
		}
		break
	}
	switch {
	case c.err != nil:
		return "", false, from.Host + ": " + c.err.Error()
	case c.status == 127:
		return "", true, ""
	}
	stopServer()
	<-server
	return c.text, false, ""
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

// Port looks up "mlx5_0:1" on a host and how it is tested. family is the
// profile's GID family. nil when there is no such port.
func Port(h topology.Host, reach, name, family string) *TestPort {
	dev, num, _ := strings.Cut(name, ":")
	for _, c := range h.HCAs {
		if c.Name != dev {
			continue
		}
		for _, p := range c.Ports {
			if num != "" && strconv.Itoa(p.Number) != num {
				continue
			}
			t := &TestPort{Host: reach, HCA: dev, Number: p.Number, GID: pickGID(p, family)}
			if p.RateTrusted {
				t.RateGbps = p.RateGbps
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
						near, t.GPU = path.NCCL, ptr(g.Index)
					}
				}
			}
			return t
		}
	}
	return nil
}

func pickGID(p topology.Port, family string) *int {
	if p.LinkLayer != "Ethernet" {
		return nil
	}
	var best *int
	for _, g := range p.GIDs {
		if !strings.Contains(g.Type, "v2") || g.NdevUnreadable != "" || g.Kind != topology.GIDIPv4 && g.Kind != topology.GIDIPv6 {
			continue
		}
		if g.Kind == topology.GIDIPv4 && family != "ipv6" {
			return ptr(g.Index)
		}
		if best == nil && family != "ipv4" {
			best = ptr(g.Index)
		}
	}
	return best
}

// CulpritFindings says who is to blame, with names.
func CulpritFindings(cs []Culprit, hosts []string, railPort func(host, rail int) string, e Expect) []finding.Finding {
	var out []finding.Finding
	for _, c := range cs {
		f := finding.Finding{ID: "pair." + c.Kind, Severity: finding.Error, Wanted: fmt.Sprintf("at least %.0f %% of the rate, both ways", 100*e.WarnFraction)}
		if c.Worst.Verdict == Degraded {
			f.Severity = finding.Warning
		}
		switch {
		case c.Worst.Gbps != nil:
			f.Seen = fmt.Sprintf("%.1f Gb/s", *c.Worst.Gbps)
		default:
			f.Seen = orText(c.Worst.Error, "slow")
		}
		way := map[Direction]string{Sending: " when it sends, fine when it receives", Receiving: " when it receives, fine when it sends", Both: " both ways"}[c.Direction]
		rail := "every rail"
		if c.Rail >= 0 {
			rail = fmt.Sprintf("rail %d", c.Rail)
		}
		h := hosts[c.Hosts[0]]
		switch c.Kind {
		case "port":
			f.Host, f.Subject = h, railPort(c.Hosts[0], c.Rail)+" ("+rail+")"
			f.Seen += way
			f.Why = "it is slow with every partner that is good with others: the port, its cable or its switch port"
			f.Hint = "look at the link: mlxlink -m -c -e; then PCIe width and NUMA node of the card"
			if c.Direction != Both {
				f.Hint = "one direction only: a dirty or bent fibre, or PFC on one side; mlxlink -m -c -e on both ends of the cable"
			}
		case "node":
			f.Host, f.Subject = h, "node"
			f.Seen += " on every rail" + way
			f.Why, f.Hint = "all of its rails are slow: the host, not a cable", "CPU governor, BIOS, PCIe, IOMMU; leave it out: --exclude "+h
			if c.Dead {
				f.Why = "nothing gets through on any rail"
			}
		case "group":
			f.Subject = fmt.Sprintf("%d hosts on %s: %s", len(c.Hosts), rail, listHosts(c.Hosts, hosts))
			f.Why, f.Hint = "they reach each other well and nobody else: what they share, a switch or its uplinks", "compare the MTU, PFC and uplinks of their switch with the others"
		case "rail":
			f.Subject = fmt.Sprintf("%s, %d hosts: %s", rail, len(c.Hosts), listHosts(c.Hosts, hosts))
			f.Why, f.Hint = "no pair of these is good: the rail's switches, or its configuration on all hosts", "one wrong MTU, PFC or routing setting for the whole rail"
		case "path":
			f.Subject = fmt.Sprintf("%s and %s, %s", h, hosts[c.Hosts[1]], rail)
			f.Why, f.Hint = "both are good with others: something on the way between these two", "a switch link on their way (ECMP): error counters of the uplinks"
		default:
			f.Subject = fmt.Sprintf("%s or %s, %s", h, hosts[c.Hosts[1]], rail)
			f.Why, f.Hint = "there is no third host that is good to tell which end", "test each with one more host"
		}
		out = append(out, f)
	}
	finding.Sort(out)
	return out
}

func listHosts(idx []int, hosts []string) string {
	var s []string
	for _, i := range idx[:min(len(idx), 6)] {
		s = append(s, hosts[i])
	}
	if len(idx) > 6 {
		s = append(s, fmt.Sprintf("… %s", hosts[idx[len(idx)-1]]))
	}
	return strings.Join(s, ", ")
}
