package pasted

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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
	Unread     []string // rows of the table that are cut or mangled
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
	if len(text) > maxMeasured {
		return NCCLTests{}, fmt.Errorf("over %d bytes: not one program's output", maxMeasured)
	}
	var n NCCLTests
	seen := map[string]bool{}
	known := false
	for line := range strings.Lines(Plain(text)) {
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
		} else if f := strings.Fields(line); len(f) >= 2 && known && number().MatchString(f[0]) && number().MatchString(f[1]) {
			n.Unread = unreadRow(n.Unread, line)
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
	// Unread are rows of the table that are cut or mangled.
	Unread []string
}

var (
	osuTitle = lazy(`^#\s*(OSU .*?(?:Test|Benchmark).*?|OSU .*?)(?:\s+v?[0-9][0-9.]*)?$`)
	osuHead  = lazy(`^#\s*(?:\[ pairs|Size\b|.*\bSize\s)`)
)

// ReadOSU reads what an osu_* program printed; a title line and a header line
// begin with #.
func ReadOSU(text string) (OSU, error) {
	if len(text) > maxMeasured {
		return OSU{}, fmt.Errorf("over %d bytes: not one program's output", maxMeasured)
	}
	var o OSU
	rate := false
	for line := range strings.Lines(Plain(text)) {
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
		if o.Kind == "" || len(f) == 0 {
			continue
		}
		if len(f) < 2 {
			if number().MatchString(f[0]) {
				o.Unread = unreadRow(o.Unread, line)
			}
			continue
		}
		size, err := strconv.ParseInt(f[0], 10, 64)
		v, err2 := strconv.ParseFloat(f[1], 64)
		if err != nil || err2 != nil || size < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			if number().MatchString(f[0]) {
				o.Unread = unreadRow(o.Unread, line)
			}
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
