package measure

import (
	"cmp"
	"fmt"
	"strings"

	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// JudgeNCCLTests compares bus bandwidth with what the rails of one node allow.
// railsGbps is the sum of a node's rails, 0 unknown; single is the bus
// bandwidth of one node alone, when known.
func JudgeNCCLTests(n pasted.NCCLTests, railsGbps float64, single *float64) (Verdict, []finding.Finding) {
	v, fs := judgeNCCLTests(n, railsGbps, single)
	return withUnread(v, fs, cmp.Or(n.Collective, "nccl-tests"), n.Unread)
}

func judgeNCCLTests(n pasted.NCCLTests, railsGbps float64, single *float64) (Verdict, []finding.Finding) {
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: cmp.Or(n.Collective, "nccl-tests"), Seen: seen, Wanted: wanted, Why: why, Hint: hint})
	}
	if n.Error != "" {
		add("nccl-tests.failed", finding.Error, n.Error, "a table of results", "the test did not run to its end", "run it with NCCL_DEBUG=INFO under 'fabrun', which names the cause")
		return Broken, fs
	}
	var wrong int64
	for _, r := range n.Rows {
		wrong += r.Wrong
	}
	if wrong > 0 || n.OutOfBound != nil && strings.HasSuffix(*n.OutOfBound, "FAILED") {
		add("nccl-tests.wrong", finding.Error, fmt.Sprintf("%d wrong values", wrong), "0", "data arrives damaged: a GPU, its memory or a link is at fault", "test each node alone, then pairs")
		return Broken, fs
	}
	best := n.BestBus()
	if best == nil {
		add("nccl-tests.no-result", finding.Warning, "no row of results", "a table", "nothing can be judged", "paste the whole output")
		return Unknown, fs
	}
	lossFindings(sizesOf(n), add)
	verdict := Unknown
	across := len(n.Hosts) != 1
	if railsGbps > 0 && across {
		// A ring's bus bandwidth between nodes cannot exceed the node's rails;
		// protocol and headers leave about nine tenths of it.
		could := railsGbps / 8
		verdict = Good
		switch f := *best / could; {
		case f < 0.4:
			verdict = Broken
			add("nccl-tests.bandwidth-low", finding.Error, fmt.Sprintf("%.1f GB/s bus bandwidth", *best), fmt.Sprintf("about %.0f GB/s of %.0f", 0.9*could, could),
				"far less than the rails carry: sockets, one rail of several, or staging through host memory", "'fabrun watch' on the NCCL_DEBUG=INFO log says which network and whether GPUDirect")
		case f < 0.75:
			verdict = Degraded
			add("nccl-tests.bandwidth-low", finding.Warning, fmt.Sprintf("%.1f GB/s bus bandwidth", *best), fmt.Sprintf("about %.0f GB/s of %.0f", 0.9*could, could),
				"a rail missing, a slow pair, or messages too small", "'fabrun check --pairs quick' names the port; test with -e 8G")
		}
	}
	// NVLink inside a node may well be five times its rails: a drop to what
	// they carry is no fault.
	if single != nil && across && verdict != Good && *best > 0 && *single / *best >= 5 {
		verdict = Broken
		add("nccl-tests.node-drop", finding.Error, fmt.Sprintf("%.1f GB/s on one node, %.1f on %d", *single, *best, max(2, len(n.Hosts))), "less than a factor of 5",
			"the signature of a fallback to sockets or of a missing GPUDirect", "'fabrun watch' on the NCCL_DEBUG=INFO log")
	}
	return verdict, fs
}

// sizeTime is one size and how long it took.
type sizeTime struct {
	bytes int64
	usec  float64
}

func sizesOf(n pasted.NCCLTests) []sizeTime {
	var out []sizeTime
	for _, r := range n.Rows {
		if r.OutUsec != nil {
			out = append(out, sizeTime{r.Bytes, *r.OutUsec})
		}
	}
	return out
}

// lossFindings looks for the signature of packet loss: the next size takes 30
// times as long or more, where doubling the size would explain a factor of 2.
func lossFindings(s []sizeTime, add func(id string, sev finding.Severity, seen, wanted, why, hint string)) {
	for i := 1; i < len(s); i++ {
		if s[i].bytes <= s[i-1].bytes || s[i-1].usec <= 0 || s[i-1].bytes <= 0 {
			continue
		}
		growth := float64(s[i].bytes) / float64(s[i-1].bytes)
		if s[i].usec/s[i-1].usec >= 30 && growth <= 4 {
			add("fabric.loss-signature", finding.Error, fmt.Sprintf("%.0f µs for %d bytes, %.0f µs for %d", s[i-1].usec, s[i-1].bytes, s[i].usec, s[i].bytes), "growth like the size's",
				"packets are lost and wait for a time-out: the lossless class does not cover them", "check PFC on hosts and switches, and the traffic class: 'fabrun check', 'fabrun profile show'")
			return
		}
	}
}

// JudgeOSU judges small-message latency (point to point only), bandwidth
// against the rails, and the loss signature.
func JudgeOSU(o pasted.OSU, e Expect) (Verdict, []finding.Finding) {
	v, fs := judgeOSU(o, e)
	return withUnread(v, fs, cmp.Or(o.Test, "osu"), o.Unread)
}

func judgeOSU(o pasted.OSU, e Expect) (Verdict, []finding.Finding) {
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: cmp.Or(o.Test, "osu"), Seen: seen, Wanted: wanted, Why: why, Hint: hint})
	}
	if len(o.Rows) == 0 {
		add("osu.no-result", finding.Warning, "no row of results", "a table", "nothing can be judged", "paste the whole output")
		return Unknown, fs
	}
	verdict := Unknown
	if o.Kind == "latency" {
		var s []sizeTime
		for _, r := range o.Rows {
			if r.Usec != nil {
				s = append(s, sizeTime{r.Bytes, *r.Usec})
			}
		}
		lossFindings(s, add)
		if len(fs) > 0 {
			verdict = Broken
		}
		title := strings.ToLower(o.Test)
		collective := strings.Contains(title, "all") || strings.Contains(title, "barrier") || strings.Contains(title, "bcast") || strings.Contains(title, "reduce") || strings.Contains(title, "gather")
		if small := s[0]; !collective && small.bytes <= 8 && verdict == Unknown {
			verdict = Good
			if small.usec > 2*e.LatencyUsec {
				verdict = Broken
				add("osu.latency-high", finding.Error, fmt.Sprintf("%.1f µs for %d bytes", small.usec, small.bytes), fmt.Sprintf("under %.0f µs", e.LatencyUsec),
					"RDMA takes 1 to 5 µs, sockets 15 to 60: this looks like sockets", "'fabrun watch' on the log says which transport")
			} else if small.usec > e.LatencyUsec {
				verdict = Degraded
				add("osu.latency-high", finding.Warning, fmt.Sprintf("%.1f µs for %d bytes", small.usec, small.bytes), fmt.Sprintf("under %.0f µs", e.LatencyUsec),
					"RDMA over one switch takes 1 to 3 µs", "bind ranks to the NIC's NUMA node")
			}
		}
		return verdict, fs
	}
	best := 0.0
	for _, r := range o.Rows {
		if r.MBps != nil {
			best = max(best, *r.MBps)
		}
	}
	gbps := best * 8 / 1000
	if e.RateGbps != nil {
		rate := *e.RateGbps
		if strings.Contains(strings.ToLower(o.Test), "bi-directional") {
			rate *= 2
		}
		e.RateGbps = &rate
		// MPI's headers and rendezvous cost a little more than perftest's.
		e.WarnFraction -= 0.05
		if verdict = e.JudgeBandwidth(gbps); verdict != Good {
			sev := finding.Warning
			if verdict == Broken {
				sev = finding.Error
			}
			add("osu.bandwidth-low", sev, fmt.Sprintf("%.1f Gb/s", gbps), fmt.Sprintf("at least %.0f of %.0f Gb/s", e.WarnFraction*rate, rate), "less than the rail carries", "'fabrun check --pairs quick' tells fabric from MPI")
		}
	}
	return verdict, fs
}
