package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fabrun/launcher/check"
	"fabrun/launcher/measure"
	"fabrun/topology/finding"
)

// CheckedPair is one direction of one pair.
type CheckedPair struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	HCAFrom string   `json:"hca_from"`
	HCATo   string   `json:"hca_to"`
	Rail    int      `json:"rail"`
	Gbps    *float64 `json:"gbps"`
	// HostGbps is the same between host memories, where Gbps is between those of GPUs.
	HostGbps *float64        `json:"host_memory_gbps"`
	Usec     *float64        `json:"usec"`
	Error    *string         `json:"error"`
	Verdict  measure.Verdict `json:"verdict"`
}

// Checked is the result of check.
type Checked struct {
	Hosts    []string // in the order of the job, also those that did not answer
	Findings []finding.Finding
	Pairs    []CheckedPair
	Coverage string // what the pair test has shown; "" none was run
	Rounds   int    // that naming the culprits took
	// Collectives are the benchmarks that were run on all nodes together.
	Collectives []measure.CollectiveRun
	Stages      []check.StageResult // of a bring-up, in order
}

// Verdict is the worst of everything.
func (c Checked) Verdict() measure.Verdict {
	if len(c.Hosts) == 0 {
		return measure.Unknown
	}
	switch w, _ := finding.Worst(c.Findings); w {
	case finding.Error:
		return measure.Broken
	case finding.Warning:
		return measure.Degraded
	}
	return measure.Good
}

// Failing are the hosts that have an error.
func (c Checked) Failing() []string {
	var out []string
	for _, h := range c.Hosts {
		if slices.ContainsFunc(c.Findings, func(f finding.Finding) bool { return f.Host == h && f.Severity == finding.Error }) {
			out = append(out, h)
		}
	}
	return out
}

// foldFindings makes one of the same finding on many hosts.
func foldFindings(fs []finding.Finding) []finding.Finding {
	type key struct{ id, subject, seen, wanted string }
	at := map[key]int{}
	hosts := map[key][]string{}
	var out []finding.Finding
	for _, f := range sorted(fs) {
		k := key{f.ID, f.Subject, f.Seen, f.Wanted}
		if f.Host != "" {
			hosts[k] = append(hosts[k], f.Host)
		}
		if _, ok := at[k]; !ok {
			at[k] = len(out)
			out = append(out, f)
		}
	}
	for k, i := range at {
		if n := len(hosts[k]); n > 1 {
			out[i].Host = strings.Join(hosts[k][:min(n, 4)], ", ")
			if n > 4 {
				out[i].Host += fmt.Sprintf(" and %d more", n-4)
			}
		}
	}
	return out
}

// Check writes the result for people: the verdict, what is wrong, then the
// rates; notes only when asked for.
func Check(w io.Writer, c Checked, notes bool) error {
	t := &text{w: w}
	count := map[finding.Severity]int{}
	var shown []finding.Finding
	for _, f := range foldFindings(c.Findings) {
		count[f.Severity]++
		if notes || f.Severity != finding.Note {
			shown = append(shown, f)
		}
	}
	t.printf("%s: %d %s", c.Verdict(), len(c.Hosts), plural(len(c.Hosts), "host"))
	for _, s := range []finding.Severity{finding.Error, finding.Warning, finding.Note} {
		if n := count[s]; n > 0 {
			t.printf(", %d %s", n, plural(n, string(s)))
		}
	}
	if bad := len(c.Failing()); bad > 0 {
		t.printf("; %d %s an error", bad, map[bool]string{true: "host has", false: "hosts have"}[bad == 1])
	}
	t.printf("\n")
	t.stages(c.Stages)
	if t.err == nil {
		t.err = Findings(w, shown)
	}
	if n := count[finding.Note]; n > 0 && !notes {
		t.printf("(%d %s; -v shows %s)\n", n, plural(n, "note"), map[bool]string{true: "it", false: "them"}[n == 1])
	}
	if c.Coverage != "" {
		t.printf("tested: %s\n", c.Coverage)
		for _, r := range railRates(c.Pairs) {
			t.printf("rail %d: %d directions, %s Gb/s at worst, %s median, %s at best", r.rail, len(r.rates)+r.failed, measure.RateText(r.at(0)), measure.RateText(r.at(0.5)), measure.RateText(r.at(1)))
			if r.failed > 0 {
				t.printf("; %d without a result", r.failed)
			}
			t.printf("\n")
		}
		bad := slices.DeleteFunc(slices.Clone(c.Pairs), func(p CheckedPair) bool {
			return p.Verdict != measure.Broken && p.Verdict != measure.Degraded
		})
		for i, p := range bad {
			if i == 20 && !notes {
				t.printf("… and %d more slow or failing directions; -v or --json has all\n", len(bad)-20)
				break
			}
			figure := ""
			if p.Gbps != nil {
				figure = measure.RateText(*p.Gbps) + " Gb/s"
			} else if p.Error != nil {
				figure = *p.Error
			}
			t.printf("  %-8s  %s %s -> %s %s  %s\n", p.Verdict, p.From, p.HCAFrom, p.To, p.HCATo, figure)
		}
	}
	t.collectives(c.Collectives)
	return t.err
}

// stages writes how far a bring-up came, and what to do where it stopped.
func (t *text) stages(stages []check.StageResult) {
	for i, s := range stages {
		note := s.Why
		if note == "" {
			count := map[finding.Severity]int{}
			for _, f := range s.Findings {
				count[f.Severity]++
			}
			var parts []string
			for _, sev := range []finding.Severity{finding.Error, finding.Warning} {
				if n := count[sev]; n > 0 {
					parts = append(parts, fmt.Sprintf("%d %s", n, plural(n, string(sev))))
				}
			}
			note = strings.Join(parts, ", ")
		}
		if note != "" {
			note = ": " + note
		}
		t.printf("  %d  %-11s  %s%s\n", i+1, s.Status, s.Stage.About, printable(note))
		if s.Status == check.StageFailed {
			t.wrap("                  → ", s.Stage.Do)
		}
	}
}

// collectives writes a table, RDMA and TCP of one benchmark side by side.
func (t *text) collectives(runs []measure.CollectiveRun) {
	for _, r := range collectiveRows(runs) {
		t.printf("  %-8s  %s: %s\n", r.Verdict, r.Title, r.Figure)
	}
}

// collectiveRow is one benchmark on some nodes, with TCP beside it.
type collectiveRow struct {
	Verdict measure.Verdict
	Title   string // "all_reduce_perf on 2 nodes, 16 ranks"
	Figure  string // "45.1 GB/s bus bandwidth; 2.3 over TCP: 19.6 times"
}

func collectiveRows(runs []measure.CollectiveRun) []collectiveRow {
	var out []collectiveRow
	for i, r := range runs {
		if r.Network == measure.OverTCP {
			continue
		}
		row := collectiveRow{r.Verdict, fmt.Sprintf("%s, %d %s", r.Title(), r.Ranks, plural(r.Ranks, "rank")), collectiveFigure(r)}
		if i+1 < len(runs) && runs[i+1].Network == measure.OverTCP {
			tcp := runs[i+1]
			row.Figure += "; over TCP " + collectiveFigure(tcp)
			if g := measure.Gain(r, tcp); g != nil {
				row.Figure += fmt.Sprintf(": %.1f times as fast", *g)
			}
		}
		out = append(out, row)
	}
	return out
}

func collectiveFigure(r measure.CollectiveRun) string {
	switch b, u := r.Best(), r.BigUsec(); {
	case r.Failed != "":
		return "no result"
	case b != nil && r.NCCL != nil:
		return fmt.Sprintf("%.1f GB/s bus bandwidth", *b/8)
	case b != nil:
		return fmt.Sprintf("%.1f Gb/s between two nodes", *b)
	case u != nil:
		return fmt.Sprintf("%.0f µs for the largest message", *u)
	}
	return "no figure"
}

type railRate struct {
	rail   int
	rates  []float64
	failed int
}

func (r railRate) at(q float64) float64 {
	if len(r.rates) == 0 {
		return 0
	}
	return r.rates[int(q*float64(len(r.rates)-1))]
}

func railRates(ps []CheckedPair) []railRate {
	var out []railRate
	for _, p := range ps {
		i := slices.IndexFunc(out, func(r railRate) bool { return r.rail == p.Rail })
		if i < 0 {
			i = len(out)
			out = append(out, railRate{rail: p.Rail})
		}
		if p.Gbps == nil {
			out[i].failed++
			continue
		}
		out[i].rates = append(out[i].rates, *p.Gbps)
	}
	slices.SortFunc(out, func(a, b railRate) int { return a.rail - b.rail })
	for _, r := range out {
		slices.Sort(r.rates)
	}
	return out
}

type checkJSON struct {
	Schema   string            `json:"schema"`
	Hosts    []checkedHost     `json:"hosts"`
	Pairs    []CheckedPair     `json:"pairs"`       // where they were measured
	Findings []finding.Finding `json:"findings"`    // about no single host
	Coverage *string           `json:"coverage"`    // how many pairs of all were measured, in words
	Runs     []checkedRun      `json:"collectives"` // where they were run
	Stages   []checkedStage    `json:"stages"`      // of --bringup
	Verdict  measure.Verdict   `json:"verdict"`
}

type checkedHost struct {
	Host     string            `json:"host"`
	Findings []finding.Finding `json:"findings"`
}

// CheckJSON writes the result as fabrun/check/v1.
func CheckJSON(w io.Writer, c Checked) error {
	hosts := []checkedHost{}
	for _, h := range c.Hosts {
		one := checkedHost{h, []finding.Finding{}}
		for _, f := range sorted(c.Findings) {
			if f.Host == h {
				one.Findings = append(one.Findings, f)
			}
		}
		hosts = append(hosts, one)
	}
	job := []finding.Finding{}
	for _, f := range sorted(c.Findings) {
		if !slices.Contains(c.Hosts, f.Host) {
			job = append(job, f)
		}
	}
	return writeJSON(w, checkJSON{"fabrun/check/v1", hosts, orEmpty(c.Pairs), job, orNull(c.Coverage), checkedRuns(c.Collectives), checkedStages(c.Stages), c.Verdict()})
}

type checkedRun struct {
	Program string          `json:"program"`
	Nodes   int             `json:"nodes"`
	Ranks   int             `json:"ranks"`
	Network string          `json:"network"`
	Gbps    *float64        `json:"gbps"` // nccl-tests: 8 times the bus bandwidth
	Usec    *float64        `json:"usec_largest"`
	Error   *string         `json:"error"`
	Verdict measure.Verdict `json:"verdict"`
}

func checkedRuns(runs []measure.CollectiveRun) []checkedRun {
	out := []checkedRun{}
	for _, r := range runs {
		out = append(out, checkedRun{r.Benchmark.Name, r.Nodes, r.Ranks, r.Network, r.Best(), r.BigUsec(), orNull(r.Failed), r.Verdict})
	}
	return out
}

type checkedStage struct {
	ID     string   `json:"id"`
	About  string   `json:"about"`
	Status string   `json:"status"`
	Why    *string  `json:"why"`
	Do     string   `json:"do"`
	Found  []string `json:"findings"` // IDs
}

func checkedStages(stages []check.StageResult) []checkedStage {
	out := []checkedStage{}
	for _, s := range stages {
		one := checkedStage{string(s.Stage.ID), s.Stage.About, s.Status, orNull(s.Why), s.Stage.Do, []string{}}
		for _, f := range s.Findings {
			if !slices.Contains(one.Found, f.ID) {
				one.Found = append(one.Found, f.ID)
			}
		}
		out = append(out, one)
	}
	return out
}

// Diff writes what differs between two hosts.
func Diff(w io.Writer, a, b string, ds []check.Difference) error {
	t := &text{w: w}
	if len(ds) == 0 {
		t.printf("%s and %s are alike\n", printable(a), printable(b))
		return t.err
	}
	t.printf("%d %s between %s and %s\n", len(ds), plural(len(ds), "difference"), printable(a), printable(b))
	for _, d := range ds {
		t.printf("%-7s  %s  %s\n", d.Severity, d.ID, printable(d.Subject))
		t.printf("         %s: %s\n         %s: %s\n", printable(a), printable(d.A), printable(b), printable(d.B))
		t.wrap("         ", d.Why)
	}
	return t.err
}

type diffJSON struct {
	Schema      string             `json:"schema"`
	A           string             `json:"a"`
	B           string             `json:"b"`
	Differences []check.Difference `json:"differences"`
}

// DiffJSON writes the same as fabrun/diff/v1.
func DiffJSON(w io.Writer, a, b string, ds []check.Difference) error {
	return writeJSON(w, diffJSON{"fabrun/diff/v1", a, b, orEmpty(ds)})
}
