package measure

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"fabrun/topology/finding"
	"fabrun/topology/health"
	"fabrun/topology/pasted"
)

// Verdict is what a measurement says.
type Verdict = health.Verdict

// The verdicts.
const (
	Good     = health.Good
	Degraded = health.Degraded
	Broken   = health.Broken
	Unknown  = health.Unknown
)

// Expect holds the thresholds of a judgement.
type Expect struct {
	RateGbps      *float64 // of the port; nil not known
	WarnFraction  float64
	ErrorFraction float64
	LatencyUsec   float64
}

// DefaultExpect is what a healthy fabric gives: over 95 % of the rate with
// large messages, and under 5 µs for a small one.
func DefaultExpect() Expect { return Expect{WarnFraction: 0.95, ErrorFraction: 0.8, LatencyUsec: 5} }

// portRates are the rates that ports have, Gb/s.
var portRates = []float64{10, 25, 40, 50, 56, 100, 200, 400, 800}

// JudgeBandwidth judges a large-message average against the port's rate.
func (e Expect) JudgeBandwidth(gbps float64) Verdict {
	if e.RateGbps == nil || *e.RateGbps <= 0 {
		return Unknown
	}
	switch f := gbps / *e.RateGbps; {
	case f >= e.WarnFraction:
		return Good
	case f >= e.ErrorFraction:
		return Degraded
	default:
		return Broken
	}
}

// JudgePerftest says what the figures mean. Without a rate the verdict on a
// bandwidth is a guess that is said to be one, or unknown.
func JudgePerftest(p pasted.Perftest, e Expect) (Verdict, []finding.Finding) {
	v, fs := judgePerftest(p, e)
	return withUnread(v, fs, "perftest", p.Unread)
}

// withUnread adds the rows that could not be read: without them nothing is
// known to be good.
func withUnread(v Verdict, fs []finding.Finding, subject string, rows []string) (Verdict, []finding.Finding) {
	if len(rows) > 0 && v == Good {
		v = Unknown
	}
	return v, append(fs, pasted.UnreadRows(subject, rows)...)
}

func judgePerftest(p pasted.Perftest, e Expect) (Verdict, []finding.Finding) {
	subject := p.Device
	if subject == "" {
		subject = "perftest"
	}
	if p.Error != nil {
		return Broken, []finding.Finding{{
			ID: p.Error.ID, Severity: finding.Error, Subject: subject, Seen: p.Error.Line, Wanted: "a result table",
			Why: p.Error.What, Hint: p.Error.Hint,
		}}
	}
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
	}
	for _, n := range p.Notes {
		add("perftest.cpu-frequency", finding.Note, n, "the performance governor", "latency and small messages suffer", "cpupower frequency-set -g performance"+finding.ForHost)
	}
	if p.LinkType == "Ethernet" && p.MTU != nil && *p.MTU < 4096 {
		add("perftest.mtu-small", finding.Warning, fmt.Sprintf("RDMA MTU %d", *p.MTU), "4096",
			"every packet carries a quarter of what it could", "set the netdev's MTU to 4200 or more (usually 9000) on hosts and switches")
	}
	verdict := Unknown
	switch {
	case p.MaxGbps() != nil:
		big := p.Largest()
		gbps := *p.MaxGbps()
		if big != nil && big.AvgGbps != nil {
			gbps = *big.AvgGbps
		}
		guessed := e.RateGbps == nil
		if guessed {
			for _, r := range portRates {
				if gbps <= r && gbps >= e.ErrorFraction*r {
					e.RateGbps = ptr(r)
					break
				}
			}
		}
		if e.RateGbps == nil {
			add("perftest.rate-unknown", finding.Note, fmt.Sprintf("%.2f Gb/s", gbps), "the port's rate", "the figure fits no rate that ports have: a slower port, or a degraded faster one",
				"name a profile with rate_gbps, and compare with 'ibstat'")
			return Unknown, fs
		}
		verdict = e.JudgeBandwidth(gbps)
		rate := fmt.Sprintf("at least %.0f of %.0f Gb/s", e.WarnFraction**e.RateGbps, *e.RateGbps)
		if guessed {
			rate += " (the rate is guessed from the result)"
		}
		if big != nil && big.Bytes < 4096 && verdict != Good {
			add("perftest.small-messages", finding.Note, fmt.Sprintf("largest message %d bytes", big.Bytes), "64 KiB or more", "small messages do not fill a link", "run with -s 1048576")
			return Unknown, fs
		}
		if guessed && verdict == Good {
			add("perftest.rate-guessed", finding.Note, fmt.Sprintf("%.2f Gb/s", gbps), fmt.Sprintf("the port's rate; the result fits one of %.0f Gb/s", *e.RateGbps),
				"a faster port that came up slower would look like this", "name a profile with rate_gbps, or compare with 'ibstat'")
		}
		if verdict != Good {
			sev := finding.Warning
			if verdict == Broken {
				sev = finding.Error
			}
			why, hint := suspicion(p)
			add("perftest.bandwidth-low", sev, fmt.Sprintf("%.2f Gb/s with %d-byte messages", gbps, big.Bytes), rate, why, hint)
		}
		if big != nil && big.AvgGbps != nil && *p.MaxGbps() > 1.1**big.AvgGbps {
			add("perftest.large-drop", finding.Warning, fmt.Sprintf("%.2f Gb/s at best, %.2f with the largest message", *p.MaxGbps(), *big.AvgGbps), "no drop with size",
				"larger messages are slower: reads from memory or GPU fall behind, or the fabric drops packets", "compare host with GPU memory, and look at out_of_sequence and rx_discards")
		}
	case p.Smallest() != nil:
		small := p.Smallest()
		usec := small.TypUsec
		if usec == nil {
			usec = small.AvgUsec
		}
		if usec == nil {
			return Unknown, fs
		}
		limit := e.LatencyUsec
		// Reads and atomics are a round trip; send and write report half of one.
		if roundTrip(p.Tool) {
			limit *= 2
		}
		verdict = Good
		if small.Bytes > 256 {
			return Unknown, fs
		}
		if *usec > limit {
			verdict = Broken
			add("perftest.latency-high", finding.Error, fmt.Sprintf("%.2f µs for %d bytes", *usec, small.Bytes), fmt.Sprintf("under %.0f µs", limit),
				"one switch takes 1 to 3 µs: the path is longer, the CPU slow, or packets wait", "pin to the NIC's NUMA node, use the performance governor, and count the switches between")
		}
	default:
		add("perftest.no-result", finding.Warning, "no row of results", "a result table", "the test did not come to its end, or the table was not pasted", "paste the whole output of the client")
	}
	return verdict, fs
}

func roundTrip(tool string) bool {
	t := strings.ToLower(tool)
	return strings.Contains(t, "read") || strings.Contains(t, "atomic") || strings.Contains(t, "fetch") || strings.Contains(t, "swap")
}

// suspicion orders what may be wrong, by what the output itself answers.
func suspicion(p pasted.Perftest) (why, hint string) {
	switch {
	case p.LinkType == "Ethernet" && p.MTU != nil && *p.MTU < 4096:
		return fmt.Sprintf("first suspect: the RDMA MTU is %d", *p.MTU), "raise the netdev's MTU; then PFC, cable, PCIe width, NUMA node"
	case p.CUDA != nil && *p.CUDA:
		return "first suspect: the way from GPU to NIC (another socket, ACS or IOMMU in between); compare with host memory", "run it without --use_cuda; 'fabrun topo' shows the path"
	case p.QPs != nil && *p.QPs == 1:
		return "one queue pair may not fill a fast port; then PFC, cable, PCIe width, NUMA node", "run with -q 4, pinned: numactl -N <the NIC's node>"
	default:
		return "MTU is fine; suspects in order: PFC, cable, PCIe width, NUMA node", "look at rx_discards_phy and pause counters, 'mlxlink -m', current_link_width, numa_node"
	}
}

func ptr[T any](v T) *T { return &v }

// lazy compiles expr when it is first used: most runs need none of a
// package's expressions, and all of them together cost more than a plan.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
