// Package trial measures RDMA between hosts that were looked at: pairs, collectives,
// and the stages of a bring-up, each run where preflight says and judged by it.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/exit"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/measure"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Site is what is measured: the hosts that answered, the way to them, and the
// plan's rails.
type Site struct {
	Hosts []topology.Host   // those that answered
	Reach []string          // by which name each of Hosts is reached, in step
	Paths map[string]string // of fabrun, by the name a host is reached by

	Transport remote.Transport // nil: one host, or snapshots
	Profile   profiles.Profile
	Rails     []envgen.Rail
	TC        *int // traffic class of the job; nil: the profile's
}

// Options say what to measure.
type Options struct {
	Pairs   measure.Mode // "off": none
	GPU     bool         // GPU memory instead of host memory
	Latency bool         // of small messages too
	Compare string       // the network beside which collectives run; "" none
	Dir     string       // where benchmarks lie, beside PATH and the usual folders; "" nowhere else
}

// Trial measures a site for a call of fabrun.
type Trial struct {
	Site
	Env      []string
	Progress *report.Progress // nil says nothing
	Self     string           // fabrun's path
	// Again are the flags of the call for a fabrun that runs a benchmark on hosts.
	Again func(hosts string) []string
}

// way is the transport to the hosts of a site, on which this machine is not
// asked by ssh.
type way struct {
	remote.Transport
	local remote.Transport
	self  map[string]bool
}

func (w way) Exec(ctx context.Context, host string, cmd remote.Command, s remote.Streams) (int, error) {
	if w.self[host] {
		return w.local.Exec(ctx, host, cmd, s)
	}
	return w.Transport.Exec(ctx, host, cmd, s)
}

func (s Site) way() way {
	_, self := look.Others(hosts.Allocation{Hosts: look.HostList(s.Reach)})
	return way{s.Transport, remote.NewLocal(), self}
}

// Ports are the ends of the tests, by host and rail; nil: that host has no such rail.
func (s Site) Ports() [][]*measure.TestPort {
	var out [][]*measure.TestPort
	for i, h := range s.Hosts {
		row := make([]*measure.TestPort, len(s.Rails))
		for k, rail := range s.Rails {
			if name, ok := rail.Ports[h.Name]; ok {
				var gid *int
				if index, ok := rail.GIDs[h.Name]; ok {
					gid = &index
				}
				row[k] = measure.Port(h, s.Reach[i], name, gid)
			}
		}
		out = append(out, row)
	}
	return out
}

// Pairs measures, and names who is to blame for what is slow.
func (s Trial) Pairs(ctx context.Context, o Options, res *report.Checked) error {
	if s.Transport == nil || len(s.Hosts) < 2 {
		return exit.UsageError(errors.New("--pairs needs two hosts or more that answer"), "name them with --hosts")
	}
	if len(s.Rails) == 0 {
		res.Findings = append(res.Findings, finding.Finding{
			ID: "pair.no-rail", Severity: finding.Error, Subject: "pairs", Seen: "no port that two hosts could use", Wanted: "a rail",
			Why: "nothing can be measured", Hint: "see the other findings; check link_layer of the profile",
		})
		return nil
	}
	rounds := measure.Schedule(len(s.Hosts), o.Pairs)
	r := s.runner(o, len(rounds))
	before := s.priorityBytes(ctx, r.Ports)
	var all []measure.Measured
	for _, round := range rounds {
		var ps []measure.Probe
		for _, p := range round {
			for k := range s.Rails {
				ps = append(ps, measure.Probe{Pair: p, Rail: k})
			}
		}
		all = append(all, r.Probe(ctx, ps)...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if before != nil {
		res.Findings = append(res.Findings, measure.WireFindings(wireDeltas(s.Site, r.Ports, all, before, s.priorityBytes(ctx, r.Ports)), s.Profile.Fabric.QoS)...)
	}
	culprits, n := measure.Locate(all, func(ps []measure.Probe) []measure.Measured {
		ms := r.Probe(ctx, ps)
		all = append(all, ms...)
		return ms
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	res.Rounds, res.Coverage = n, s.coverage(o.Pairs, all, r.Ports)
	res.Findings = append(res.Findings, measure.CulpritFindings(culprits, measure.Naming{
		Hosts: s.Reach, Port: func(host, rail int) string { return portName(r.Ports[host][rail]) },
		Suspects: func(host, rail int, o measure.Outcome) string {
			return measure.Suspects(s.Hosts[host], r.Ports[host][rail], s.Profile, o)
		},
	}, r.Options.Expect)...)
	res.Pairs = append(res.Pairs, s.measured(all, r.Ports)...)
	res.Findings = append(res.Findings, measure.LimitsOfPairs(all, r)...)
	return nil
}

// runner runs the tests of this many scheduled rounds, and says how far they are.
func (s Trial) runner(o Options, rounds int) *measure.PairRunner {
	to := s.way()
	r := &measure.PairRunner{
		Exec: func(ctx context.Context, host string, argv []string, out io.Writer) (int, error) {
			return to.Exec(ctx, host, remote.Command{Argv: argv}, remote.Streams{Stdout: out, Stderr: out})
		},
		Ports:   s.Ports(),
		Options: measure.PairOptions{GPU: o.GPU, Latency: o.Latency, Expect: measure.ExpectOf(&s.Profile)},
	}
	if q := s.Profile.Fabric.QoS; q != nil {
		tc := q.RDMA.TC()
		r.Options.TC, r.Options.SL = &tc, q.RDMA.SL
	}
	if s.TC != nil {
		r.Options.TC = s.TC
	}
	what := func(round int) string {
		if round > rounds {
			return fmt.Sprintf("round %d, suspects with good partners", round)
		}
		return fmt.Sprintf("round %d of %d", round, rounds)
	}
	r.OnTest = func(round, done, tests int) { s.Progress.Step(what(round)+", "+hostCount(len(s.Hosts)), done, tests) }
	r.OnRound = func(round, tests, bad int) {
		s.Progress.Say("%s: %d tests, %d slow or failing", what(round), tests, bad)
	}
	return r
}

func portName(p *measure.TestPort) string {
	if p == nil {
		return "no port"
	}
	return fmt.Sprintf("%s port %d", p.HCA, p.Number)
}

// coverage says how much of the hosts and rails was tested, and of what nothing is
// shown.
func (s Trial) coverage(mode measure.Mode, all []measure.Measured, ports [][]*measure.TestPort) string {
	text := measure.Coverage(len(s.Hosts), len(s.Rails), mode)
	left := measure.Untested(all, len(s.Hosts), len(s.Rails), func(h, k int) bool { return ports[h][k] != nil })
	if len(left) == 0 {
		return text
	}
	var names []string
	for _, p := range left[:min(len(left), 6)] {
		names = append(names, s.Reach[p[0]]+" "+portName(ports[p[0]][p[1]]))
	}
	if len(left) > 6 {
		names = append(names, "…")
	}
	return fmt.Sprintf("%s; nothing is shown of %d of them: %s", text, len(left), strings.Join(names, ", "))
}

// measured are the results of both directions of all tests.
func (s Trial) measured(all []measure.Measured, ports [][]*measure.TestPort) []report.CheckedPair {
	var out []report.CheckedPair
	for _, m := range all {
		for _, d := range []struct {
			from, to int
			o        measure.Outcome
		}{{m.A, m.B, m.There}, {m.B, m.A, m.Back}} {
			p := report.CheckedPair{
				From: s.Reach[d.from], To: s.Reach[d.to], HCAFrom: ports[d.from][m.Rail].HCA, HCATo: ports[d.to][m.Rail].HCA, Rail: m.Rail,
				Gbps: d.o.Gbps, HostGbps: d.o.HostGbps, Usec: d.o.Usec, Verdict: d.o.Verdict,
			}
			if d.o.Error != "" {
				p.Error = &d.o.Error
			}
			out = append(out, p)
		}
	}
	return out
}

func hostCount(n int) string {
	if n == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}

// priorityBytes reads how many bytes every tested netdev has sent and received
// by priority; nil where the plan names no priority to look for, or nothing but
// emulated devices is tested. A host that does not answer is absent.
func (s Trial) priorityBytes(ctx context.Context, ports [][]*measure.TestPort) map[string]topology.Host {
	if q := s.Profile.Fabric.QoS; q == nil || q.RDMA.Priority == nil {
		return nil
	}
	real := func(p *measure.TestPort) bool { return p != nil && !p.Emulated && p.Netdev != "" }
	if !slices.ContainsFunc(ports, func(row []*measure.TestPort) bool { return slices.ContainsFunc(row, real) }) {
		return nil
	}
	out := map[string]topology.Host{}
	for _, r := range remote.RunAll(ctx, s.way(), s.Reach, func(h string) remote.Command {
		return remote.Command{Argv: []string{s.Paths[h], "snapshot", "--quick", "--counters"}}
	}, remote.Options{Deadline: look.Deadline}) {
		if h, err := look.ReadNode(r); err == nil {
			out[r.Host] = h
		}
	}
	return out
}

// wireDeltas are the counters of the ports that carried a test with a result.
func wireDeltas(s Site, ports [][]*measure.TestPort, all []measure.Measured, before, after map[string]topology.Host) []measure.PortDelta {
	var out []measure.PortDelta
	seen := map[*measure.TestPort]bool{}
	for _, m := range all {
		for _, host := range []int{m.A, m.B} {
			p := ports[host][m.Rail]
			if seen[p] || p.Emulated || m.There.Gbps == nil && m.Back.Gbps == nil {
				continue
			}
			seen[p] = true
			name := s.Reach[host]
			d := measure.PriorityBytes(after[name], p.Netdev).Since(measure.PriorityBytes(before[name], p.Netdev))
			out = append(out, measure.PortDelta{Host: name, Port: fmt.Sprintf("%s port %d", p.HCA, p.Number), Netdev: p.Netdev, Delta: d})
		}
	}
	slices.SortStableFunc(out, func(x, y measure.PortDelta) int { return strings.Compare(x.Host+" "+x.Port, y.Host+" "+y.Port) })
	return out
}
