package report

import (
	"fmt"
	"io"
	"strings"

	"fabrun/launcher/measure"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// Perftest writes the judgement of a pasted perftest output for people.
func Perftest(w io.Writer, p pasted.Perftest, v measure.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	t.printf("%s", v)
	big, small := p.Largest(), p.Smallest()
	switch {
	case p.Error != nil:
		t.printf(": %s\n", p.Error.What)
	case big != nil && big.AvgGbps != nil:
		t.printf(": %.2f Gb/s with %d-byte messages", *big.AvgGbps, big.Bytes)
		if m := p.MaxGbps(); m != nil && *m > *big.AvgGbps*1.005 {
			t.printf(", %.2f at best", *m)
		}
		t.printf("\n")
	case small != nil && small.TypUsec != nil:
		t.printf(": %.2f µs typical for %d bytes\n", *small.TypUsec, small.Bytes)
	case small != nil && small.AvgUsec != nil:
		t.printf(": %.2f µs average for %d bytes\n", *small.AvgUsec, small.Bytes)
	default:
		t.printf(": no result in it\n")
	}
	var facts []string
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, name+value)
		}
	}
	add("", printable(p.Tool))
	add("", printable(p.Device))
	add("", printable(p.LinkType))
	add("MTU ", intText(p.MTU))
	add("GID index ", intText(p.GIDIndex))
	add("queue pairs ", intText(p.QPs))
	if p.CUDA != nil && *p.CUDA {
		memory := "GPU memory"
		if p.DMABuf != nil && *p.DMABuf {
			memory += " (DMA-BUF)"
		}
		facts = append(facts, memory)
	}
	if len(facts) > 0 {
		t.printf("%s\n", strings.Join(facts, ", "))
	}
	if t.err != nil {
		return t.err
	}
	return Findings(w, fs)
}

func intText(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

type perftestRow struct {
	Bytes      int64    `json:"bytes"`
	Iterations int64    `json:"iterations"`
	Peak       *float64 `json:"gbps_peak"`
	Average    *float64 `json:"gbps_average"`
	Typical    *float64 `json:"usec_typical"`
	UsecAvg    *float64 `json:"usec_average"`
}

type perftestJSON struct {
	Schema    string            `json:"schema"`
	Tool      *string           `json:"tool"`
	Device    *string           `json:"device"`
	LinkType  *string           `json:"link_type"`
	MTU       *int              `json:"mtu"`
	GIDIndex  *int              `json:"gid_index"`
	QPs       *int              `json:"qps"`
	CUDA      *bool             `json:"cuda"`
	DMABuf    *bool             `json:"dmabuf"`
	Average   *float64          `json:"gbps_average"`
	Max       *float64          `json:"gbps_max"`
	Typical   *float64          `json:"usec_typical"`
	UsecAvg   *float64          `json:"usec_average"`
	Largest   *int64            `json:"largest_bytes"`
	Smallest  *int64            `json:"smallest_bytes"`
	Rows      []perftestRow     `json:"rows"`
	Error     *string           `json:"error"` // its ID; null: it ended well
	ErrorLine *string           `json:"error_line"`
	Verdict   measure.Verdict   `json:"verdict"`
	Findings  []finding.Finding `json:"findings"`
}

// PerftestJSON writes the judgement as fabrun/perftest/v1.
func PerftestJSON(w io.Writer, p pasted.Perftest, v measure.Verdict, fs []finding.Finding) error {
	var id, line *string
	if p.Error != nil {
		id, line = &p.Error.ID, &p.Error.Line
	}
	rows := []perftestRow{}
	for _, r := range p.Rows {
		rows = append(rows, perftestRow{r.Bytes, r.Iterations, r.PeakGbps, r.AvgGbps, r.TypUsec, r.AvgUsec})
	}
	out := perftestJSON{
		"fabrun/perftest/v1", orNull(p.Tool), orNull(p.Device), orNull(p.LinkType), p.MTU, p.GIDIndex, p.QPs, p.CUDA, p.DMABuf,
		nil, p.MaxGbps(), nil, nil, nil, nil, rows, id, line, v, orEmpty(sorted(fs)),
	}
	if b := p.Largest(); b != nil {
		out.Average, out.Largest = b.AvgGbps, &b.Bytes
	}
	if s := p.Smallest(); s != nil {
		out.Typical, out.UsecAvg, out.Smallest = s.TypUsec, s.AvgUsec, &s.Bytes
	}
	return writeJSON(w, out)
}

// NCCLTests writes the judgement of a pasted nccl-tests output.
func NCCLTests(w io.Writer, n pasted.NCCLTests, v measure.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	t.printf("%s", v)
	if b := n.BestBus(); b != nil {
		t.printf(": %.2f GB/s bus bandwidth at best", *b)
	}
	if n.Collective != "" {
		t.printf(", %s", n.Collective)
	}
	if n.Ranks > 0 {
		t.printf(", %d %s on %d %s", n.Ranks, plural(n.Ranks, "rank"), len(n.Hosts), plural(len(n.Hosts), "host"))
	}
	t.printf("\n")
	if t.err != nil {
		return t.err
	}
	return Findings(w, fs)
}

type ncclTestsRow struct {
	Bytes  int64    `json:"bytes"`
	Type   string   `json:"type"`
	OutUs  *float64 `json:"out_of_place_usec"`
	OutBus *float64 `json:"out_of_place_busbw_gbytes_per_s"`
	InUs   *float64 `json:"in_place_usec"`
	InBus  *float64 `json:"in_place_busbw_gbytes_per_s"`
	Wrong  *int64   `json:"wrong"`
}

type ncclTestsJSON struct {
	Schema     string            `json:"schema"`
	Collective *string           `json:"collective"`
	Ranks      *int              `json:"ranks"`
	Hosts      []string          `json:"hosts"`
	BusMax     *float64          `json:"busbw_max_gbytes_per_s"`
	BusAverage *float64          `json:"busbw_average_gbytes_per_s"`
	OutOfBound *string           `json:"out_of_bounds"`
	Error      *string           `json:"error"`
	Rows       []ncclTestsRow    `json:"rows"`
	Verdict    measure.Verdict   `json:"verdict"`
	Findings   []finding.Finding `json:"findings"`
}

// NCCLTestsJSON writes the judgement as fabrun/nccl-tests/v1.
func NCCLTestsJSON(w io.Writer, n pasted.NCCLTests, v measure.Verdict, fs []finding.Finding) error {
	rows := []ncclTestsRow{}
	for _, r := range n.Rows {
		wrong := &r.Wrong
		if r.WrongNA {
			wrong = nil
		}
		rows = append(rows, ncclTestsRow{r.Bytes, r.Type, r.OutUsec, r.OutBus, r.InUsec, r.InBus, wrong})
	}
	var ranks *int
	if n.Ranks > 0 {
		ranks = &n.Ranks
	}
	return writeJSON(w, ncclTestsJSON{
		"fabrun/nccl-tests/v1", orNull(n.Collective), ranks, orEmpty(n.Hosts), n.BestBus(), n.AvgBus, n.OutOfBound, orNull(n.Error), rows, v, orEmpty(sorted(fs)),
	})
}

// OSU writes the judgement of a pasted OSU output.
func OSU(w io.Writer, o pasted.OSU, v measure.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	t.printf("%s: %s, %d %s\n", v, printable(o.Test), len(o.Rows), plural(len(o.Rows), "size"))
	if t.err != nil {
		return t.err
	}
	return Findings(w, fs)
}

type osuRow struct {
	Bytes int64    `json:"bytes"`
	Usec  *float64 `json:"usec"`
	MBps  *float64 `json:"mbytes_per_s"`
	Msgs  *float64 `json:"messages_per_s"`
}

type osuJSON struct {
	Schema   string            `json:"schema"`
	Test     *string           `json:"test"`
	Kind     *string           `json:"kind"`
	Rows     []osuRow          `json:"rows"`
	Verdict  measure.Verdict   `json:"verdict"`
	Findings []finding.Finding `json:"findings"`
}

// OSUJSON writes the judgement as fabrun/osu/v1.
func OSUJSON(w io.Writer, o pasted.OSU, v measure.Verdict, fs []finding.Finding) error {
	rows := []osuRow{}
	for _, r := range o.Rows {
		rows = append(rows, osuRow{r.Bytes, r.Usec, r.MBps, r.MsgsPS})
	}
	return writeJSON(w, osuJSON{"fabrun/osu/v1", orNull(o.Test), orNull(o.Kind), rows, v, orEmpty(sorted(fs))})
}

// Capture writes how the RoCEv2 packets of a capture are marked, by direction.
func Capture(w io.Writer, c pasted.Capture, v measure.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	t.printf("%s: %d RoCEv2 packets of %d\n", v, c.RoCE, c.Packets)
	for _, f := range c.Flows {
		t.printf("%s -> %s: %d packets, DSCP%s, ECN%s", f.From, f.To, f.Packets, counts(f.DSCP), counts(f.ECN))
		if f.CNPs > 0 {
			t.printf(", %d CNP with DSCP%s", f.CNPs, counts(f.CNPDSCP))
		}
		if len(f.PCP) > 0 {
			t.printf(", 802.1Q priority%s", counts(f.PCP))
		}
		t.printf("\n")
	}
	if t.err != nil {
		return t.err
	}
	return Findings(w, fs)
}

func counts(m map[int]int) string {
	s := ""
	for v := range 256 {
		if n := m[v]; n > 0 {
			s += fmt.Sprintf(" %d×%d", v, n)
		}
	}
	return s
}

type flowJSON struct {
	From    string      `json:"from"`
	To      string      `json:"to"`
	Packets int         `json:"packets"`
	Bytes   int64       `json:"bytes"`
	DSCP    map[int]int `json:"dscp"`
	ECN     map[int]int `json:"ecn"`
	PCP     map[int]int `json:"priority_8021q"`
	CNPs    int         `json:"cnps"`
	CNPDSCP map[int]int `json:"cnp_dscp"`
}

type captureJSON struct {
	Schema    string            `json:"schema"`
	Packets   int               `json:"packets"`
	RoCE      int               `json:"roce_packets"`
	Skipped   int               `json:"skipped"`
	Truncated bool              `json:"truncated"`
	Verdict   measure.Verdict   `json:"verdict"`
	Flows     []flowJSON        `json:"flows"`
	Findings  []finding.Finding `json:"findings"`
}

// CaptureJSON writes the same as fabrun/pcap/v1.
func CaptureJSON(w io.Writer, c pasted.Capture, v measure.Verdict, fs []finding.Finding) error {
	flows := []flowJSON{}
	for _, f := range c.Flows {
		flows = append(flows, flowJSON{f.From.String(), f.To.String(), f.Packets, f.Bytes, f.DSCP, f.ECN, f.PCP, f.CNPs, f.CNPDSCP})
	}
	return writeJSON(w, captureJSON{"fabrun/pcap/v1", c.Packets, c.RoCE, c.Skipped, c.Truncated, v, flows, orEmpty(sorted(fs))})
}
