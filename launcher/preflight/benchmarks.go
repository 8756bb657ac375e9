package preflight

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// NCCLTestRow is one line of an nccl-tests (rccl-tests) table.
type NCCLTestRow struct {
	Bytes   int64
	Type    string
	OutUsec *float64
	OutAlg  *float64 // GB/s
	OutBus  *float64
	InUsec  *float64
	InAlg   *float64
	InBus   *float64
	Wrong   int64 // wrong results of both halves
	WrongNA bool  // not checked
}

// NCCLTests is the output of all_reduce_perf and its kin.
type NCCLTests struct {
	Collective string // "all_reduce_perf"; "" not said
	Ranks      int    // lines "# Rank"; 0 not said
	Hosts      []string
	Rows       []NCCLTestRow
	AvgBus     *float64 // the tool's own "# Avg bus bandwidth"
	OutOfBound *string  // "0 OK", "3 FAILED"
	Error      string   // the first line that says a failure
}

var (
	ncclRank  = lazy(`^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device`)
	ncclAvg   = lazy(`^#\s*Avg bus bandwidth\s*:\s*([0-9.]+)`)
	ncclBound = lazy(`^#\s*Out of bounds values\s*:\s*(\d+ \w+)`)
	ncclName  = lazy(`\b((?:all_reduce|all_gather|alltoall|broadcast|gather|reduce_scatter|reduce|scatter|sendrecv|hypercube)_perf)\b`)
	ncclType  = lazy(`^(u?int(8|32|64)|half|float|double|bfloat16|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2|fp16|char|none)$`)
	ncclFail  = lazy(`(?i)Test (NCCL )?failure|NCCL (WARN|error)|unhandled (system|cuda) error|Test CUDA failure`)
	rankTag   = lazy(`^(?:\[[^\]]*\]\s*(?:<std\w+>:?)?|\d+:)\s*`)
)

// ReadNCCLTests reads what an nccl-tests program printed. The columns after the
// reduction's name and root are time, algbw, busbw, wrong, twice; old versions
// print "error" as a number instead of #wrong.
func ReadNCCLTests(text string) (NCCLTests, error) {
	if len(text) > maxPasted {
		return NCCLTests{}, fmt.Errorf("over %d bytes: not one program's output", maxPasted)
	}
	var n NCCLTests
	seen := map[string]bool{}
	known := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") {
			line = strings.TrimSpace(rankTag().ReplaceAllString(line, ""))
		}
		if n.Collective == "" {
			if m := ncclName().FindString(line); m != "" {
				n.Collective, known = m, true
			}
		}
		if m := ncclRank().FindStringSubmatch(line); m != nil {
			n.Ranks++
			known = true
			if !seen[m[2]] && len(n.Hosts) < 65536 {
				seen[m[2]] = true
				n.Hosts = append(n.Hosts, m[2])
			}
			continue
		}
		if m := ncclAvg().FindStringSubmatch(line); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			if err == nil {
				n.AvgBus, known = &v, true
			}
			continue
		}
		if m := ncclBound().FindStringSubmatch(line); m != nil {
			n.OutOfBound = &m[1]
			continue
		}
		if ncclFail().MatchString(line) && n.Error == "" {
			n.Error, known = line, true
			continue
		}
		if row, ok := ncclRow(line); ok {
			n.Rows = append(n.Rows, row)
			known = true
		}
	}
	if !known {
		return n, fmt.Errorf("no line of nccl-tests in it")
	}
	return n, nil
}

func ncclRow(line string) (NCCLTestRow, bool) {
	f := strings.Fields(line)
	if len(f) < 6 || !ncclType().MatchString(f[2]) {
		return NCCLTestRow{}, false
	}
	size, err1 := strconv.ParseInt(f[0], 10, 64)
	_, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil || size < 0 {
		return NCCLTestRow{}, false
	}
	r := NCCLTestRow{Bytes: size, Type: f[2]}
	// The words of reduction and root vary by collective and version: the
	// figures are the last eight (time algbw busbw wrong, out of place and in
	// place) or the last four.
	rest := f[3:]
	for len(rest) > 0 && !isFigure(rest[0]) {
		rest = rest[1:]
	}
	if len(rest) > 8 {
		rest = rest[len(rest)-8:] // the root column is a number too
	} else if len(rest) == 5 {
		rest = rest[1:]
	}
	fill := func(w []string) (usec, alg, bus *float64) {
		v := [3]*float64{}
		for i := range v {
			if x, err := strconv.ParseFloat(w[i], 64); err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
				v[i] = &x
			}
		}
		if x, err := strconv.ParseFloat(w[3], 64); err == nil && !strings.ContainsAny(w[3], ".eE") && x >= 0 && x < 1e15 {
			r.Wrong += int64(x)
		} else if w[3] == "N/A" {
			r.WrongNA = true
		}
		return v[0], v[1], v[2]
	}
	switch len(rest) {
	case 8:
		r.OutUsec, r.OutAlg, r.OutBus = fill(rest[:4])
		r.InUsec, r.InAlg, r.InBus = fill(rest[4:])
	case 4:
		r.OutUsec, r.OutAlg, r.OutBus = fill(rest)
	default:
		return r, false
	}
	return r, r.OutBus != nil || r.InBus != nil
}

func isFigure(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || s == "N/A"
}

// BestBus is the highest bus bandwidth of any row, GB/s; nil without rows.
func (n NCCLTests) BestBus() *float64 {
	var best *float64
	for _, r := range n.Rows {
		for _, b := range []*float64{r.OutBus, r.InBus} {
			if b != nil && (best == nil || *b > *best) {
				best = b
			}
		}
	}
	return best
}

// JudgeNCCLTests compares bus bandwidth with what the rails of one node allow.
// railsGbps is the sum of a node's rails, 0 unknown; single is the bus
// bandwidth of one node alone, when known.
func JudgeNCCLTests(n NCCLTests, railsGbps float64, single *float64) (Verdict, []finding.Finding) {
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: orText(n.Collective, "nccl-tests"), Seen: seen, Wanted: wanted, Why: why, Hint: hint})
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

func sizesOf(n NCCLTests) []sizeTime {
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

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// OSURow is one line of an OSU table.
type OSURow struct {
	Bytes  int64
	Usec   *float64
	MBps   *float64 // 10^6 bytes a second, as OSU prints
	MsgsPS *float64
}

// OSU is the output of an OSU micro-benchmark.
type OSU struct {
	Test string // "MPI Bandwidth Test"
	Kind string // "latency", "bandwidth"
	Rows []OSURow
}

var (
	osuTitle = lazy(`^#\s*(OSU .*?(?:Test|Benchmark).*?|OSU .*?)(?:\s+v?[0-9][0-9.]*)?$`)
	osuHead  = lazy(`^#\s*(?:\[ pairs|Size\b|.*\bSize\s)`)
)

// ReadOSU reads what an osu_* program printed; a title line and a header line
// begin with #.
func ReadOSU(text string) (OSU, error) {
	if len(text) > maxPasted {
		return OSU{}, fmt.Errorf("over %d bytes: not one program's output", maxPasted)
	}
	var o OSU
	rate := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") {
			line = strings.TrimSpace(rankTag().ReplaceAllString(line, ""))
		}
		if strings.HasPrefix(line, "#") {
			lower := strings.ToLower(line)
			if m := osuTitle().FindStringSubmatch(line); m != nil && o.Test == "" {
				o.Test = m[1]
			}
			if osuHead().MatchString(line) {
				switch {
				case strings.Contains(lower, "latency"):
					o.Kind = "latency"
				case strings.Contains(lower, "bandwidth"), strings.Contains(lower, "mb/s"):
					o.Kind = "bandwidth"
				}
				rate = strings.Contains(lower, "messages/s")
			}
			continue
		}
		f := strings.Fields(line)
		if o.Kind == "" || len(f) < 2 {
			continue
		}
		size, err := strconv.ParseInt(f[0], 10, 64)
		v, err2 := strconv.ParseFloat(f[1], 64)
		if err != nil || err2 != nil || size < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		r := OSURow{Bytes: size}
		if o.Kind == "latency" {
			r.Usec = &v
		} else {
			r.MBps = &v
			if rate && len(f) > 2 {
				if m, err := strconv.ParseFloat(f[2], 64); err == nil {
					r.MsgsPS = &m
				}
			}
		}
		o.Rows = append(o.Rows, r)
	}
	if o.Test == "" && o.Kind == "" {
		return o, fmt.Errorf("no line of an OSU benchmark in it")
	}
	return o, nil
}

// JudgeOSU judges small-message latency (point to point only), bandwidth
// against the rails, and the loss signature.
func JudgeOSU(o OSU, e Expect) (Verdict, []finding.Finding) {
	var fs []finding.Finding
	add := func(id string, sev finding.Severity, seen, wanted, why, hint string) {
		fs = append(fs, finding.Finding{ID: id, Severity: sev, Subject: orText(o.Test, "osu"), Seen: seen, Wanted: wanted, Why: why, Hint: hint})
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
