package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
	"fabrun/topology/finding"
)

// Recorded writes a recorded job for a person: the verdict, then what the job
// was, what it moved, what happened.
func Recorded(w io.Writer, rec Record) error {
	var b strings.Builder
	b.WriteString(rec.Sentence() + "\n\n")
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, value)
		}
	}
	row("command", ShellWords(rec.Start.Command))
	row("hosts", listWords(rec.Start.Hosts, 8))
	row("began", rec.Began.Local().Format("2006-01-02 15:04:05"))
	row("ended", rec.endWord())
	if rec.Plan != nil && rec.Plan.Contract != nil {
		row("plan", *rec.Plan.Contract)
	}
	if rec.Kept != nil {
		for _, f := range keptFacts(*rec.Kept) {
			row(f.Name, f.Value)
		}
	}
	if v := rec.Verdict; v != nil {
		row("library", strings.TrimSpace(v.Library+" "+v.Version))
		row("network", strings.Join(v.Networks, ", "))
		row("between", strings.Join(v.InterNodeTransports, ", "))
		row("devices", strings.Join(v.Devices, " "))
		row("GPUDirect", gdrWord(*v))
		row("ranks", ranksWord(*v))
	}
	rec.trafficTable(&b)
	if loud := loudFindings(rec.Findings); len(loud) > 0 {
		b.WriteString("\nfindings\n")
		for _, f := range loud {
			fmt.Fprintf(&b, "  %s %s %s: %s\n", f.Severity, f.ID, strings.TrimSpace(f.Host+" "+f.Subject), f.Why)
			if f.Hint != "" {
				fmt.Fprintf(&b, "    %s\n", f.Hint)
			}
		}
	}
	if len(rec.Events) > 0 {
		b.WriteString("\nevents\n")
		names := rec.shortNames(rec.Traffic())
		for _, e := range rec.Events {
			e.Host = cmp.Or(names[e.Host], e.Host)
			fmt.Fprintf(&b, "  %8s %s\n", "+"+since(rec.Began, e.Time), EventLine(e))
		}
	}
	if rec.Plan != nil && len(rec.Plan.Env) > 0 {
		b.WriteString("\nvariables\n")
		for _, v := range ofLibraries(rec.Plan.Env) {
			fmt.Fprintf(&b, "  %s=%s\n    %s\n", v.Name, v.Value, v.Why)
		}
	}
	if rec.LeftOut > 0 {
		fmt.Fprintf(&b, "\n%d more %s of the record %s left out.\n", rec.LeftOut, plural(rec.LeftOut, "line"), map[bool]string{true: "is", false: "are"}[rec.LeftOut == 1])
	}
	if rec.Truncated {
		b.WriteString("\nThe record is cut off in its last line.\n")
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}

// keptFacts say what became of the rails that were promised, and what a figure of the
// price rests on.
func keptFacts(k contract.Kept) []pageFact {
	if k.Promised == 0 {
		return nil
	}
	rails := fmt.Sprintf("%d promised, %d at the end", k.Promised, k.Kept)
	switch n := len(k.Losses); n {
	case 0:
	case 1:
		rails += ", lost or slower once"
	default:
		rails += fmt.Sprintf(", lost or slower %d times", n)
	}
	out := []pageFact{{"rails", rails}}
	if k.Price != nil {
		out = append(out, pageFact{"price by", strings.Join(k.Price.Basis, "; ")})
	}
	return out
}

// trafficTable writes what each host moved, and its ports: each, or of a large
// job those to look at.
func (rec Record) trafficTable(b *strings.Builder) {
	traffic := rec.Traffic()
	if len(traffic) == 0 {
		return
	}
	names := rec.shortNames(traffic)
	width := 16
	for _, h := range traffic {
		width = max(width, len(names[h.Host]))
	}
	ports, _ := railPorts(traffic)
	all, left := len(ports) <= maxAllPorts, 0
	fmt.Fprintf(b, "\n%-*s %-11s %-11s %s\n", width+2, "traffic", "RDMA", "TCP in job", "TCP other")
	for _, h := range traffic {
		fmt.Fprintf(b, "  %-*s %-11s %-11s %s\n", width, names[h.Host], rdmaWord(h), bytesWord(h.TCPBytes), bytesWord(h.OtherTCP))
		for _, p := range ports {
			switch {
			case p.host != h.Host || !portMoved(p) && !p.low:
			case all || p.toLookAt():
				words := counterWords(p.delta)
				if p.low {
					words = strings.TrimPrefix(words+", less than half of the others", ", ")
				}
				fmt.Fprintf(b, "    %-*s %s\n", width-2, p.name, words)
			default:
				left++
			}
		}
	}
	if left > 0 {
		fmt.Fprintf(b, "  %d more ports have nothing to look at\n", left)
	}
}

// Sentence is the verdict of a recorded job.
func (rec Record) Sentence() string {
	var v watch.Verdict
	var c watch.CounterVerdict
	if rec.Verdict != nil {
		v = *rec.Verdict
	}
	if rec.Counters != nil {
		c = *rec.Counters
	}
	if rec.Verdict == nil && rec.Counters == nil {
		for _, e := range rec.Events {
			if e.ID == "fallback" {
				return "FALLBACK to TCP: " + e.Text
			}
		}
		return "The record has no verdict: it stops before the job ended."
	}
	end := JobEnd{Hosts: len(rec.Start.Hosts), Failed: rec.Exit != nil && rec.Exit.Code != 0}
	if rec.Kept != nil {
		end.Kept = rec.Kept.Text
	}
	if rec.Plan != nil {
		end.Dialect, end.RDMA, end.Look = cmdline.Named(rec.Plan.Dialect), rec.Plan.RDMA, rec.Plan.Looked.value()
	}
	return JobSentence(v, c, end)
}

func (rec Record) endWord() string {
	if rec.Exit == nil || rec.Ended == nil {
		return "not in the record"
	}
	s := fmt.Sprintf("%s, after %s, status %d", rec.Ended.Local().Format("15:04:05"), duration(rec.Exit.WallS), rec.Exit.Code)
	if rec.Exit.Signal != 0 {
		s += fmt.Sprintf(" (signal %d)", rec.Exit.Signal)
	}
	return s
}

// Traffic is what each host moved, by its first and last look at the counters.
func (rec Record) Traffic() []watch.HostTraffic {
	first, last := map[string]watch.Sample{}, map[string]watch.Sample{}
	var hosts []string
	for _, s := range rec.Samples {
		if _, ok := first[s.Host]; !ok {
			first[s.Host] = s
			hosts = append(hosts, s.Host)
		}
		last[s.Host] = s
	}
	if len(hosts) == 0 {
		if rec.Counters != nil {
			return rec.Counters.Hosts
		}
		return nil
	}
	if rec.Counters != nil && len(rec.Counters.Hosts) == len(hosts) {
		return rec.Counters.Hosts
	}
	var all []watch.Sample
	for _, h := range hosts {
		all = append(all, last[h])
	}
	peers := watch.PeerSet(all)
	out := make([]watch.HostTraffic, 0, len(hosts))
	for _, h := range hosts {
		out = append(out, watch.Traffic(first[h], last[h], peers))
	}
	return out
}

func loudFindings(fs []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(fs), func(f finding.Finding) bool { return f.Severity == finding.Note })
}

func portMoved(p railPort) bool {
	for _, n := range p.delta {
		if n > 0 {
			return true
		}
	}
	return false
}

func rdmaWord(h watch.HostTraffic) string {
	switch {
	case h.RDMABytes != nil:
		return watch.Bytes(*h.RDMABytes)
	case h.RDMAPackets != nil:
		return fmt.Sprintf("%d packets", *h.RDMAPackets)
	}
	return "unknown"
}

func bytesWord(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return watch.Bytes(*n)
}

func counterWords(delta map[watch.Counter]uint64) string {
	var out []string
	for _, c := range watch.CounterNames(delta) {
		if n := delta[c]; n > 0 {
			if c == watch.TxBytes || c == watch.RxBytes {
				out = append(out, fmt.Sprintf("%s %s", strings.TrimSuffix(string(c), "_bytes"), watch.Bytes(n)))
			} else {
				out = append(out, fmt.Sprintf("%s %d", c, n))
			}
		}
	}
	return strings.Join(out, ", ")
}

func listWords(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, … (%d)", strings.Join(names[:most], ", "), len(names))
}

func since(from, t time.Time) string {
	d := t.Sub(from)
	if d < 0 {
		d = 0
	}
	return duration(d.Seconds())
}

// duration writes seconds for a person: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min".
func duration(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 7200:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	}
	return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)%3600/60)
}

type reportJSON struct {
	Schema   string `json:"schema"`
	Sentence string `json:"sentence"` // the verdict
	Record
	Compared *Comparison `json:"compared"` // null: with nothing
}

// RecordedJSON writes a record as fabrun/report/v1, with its comparison to an earlier one.
func RecordedJSON(w io.Writer, rec Record, cmp *Comparison) error {
	return writeJSON(w, reportJSON{"fabrun/report/v1", rec.Sentence(), rec, cmp})
}

// Change is one difference between two records of one command.
type Change struct {
	What   string `json:"what"`
	Before string `json:"before"`
	Now    string `json:"now"`
	Worse  bool   `json:"worse"`
}

// Comparison is a record beside an earlier one.
type Comparison struct {
	Schema    string   `json:"schema"`
	Same      bool     `json:"same_command"`
	Tolerance float64  `json:"tolerance"`
	Worse     bool     `json:"worse"`
	Changes   []Change `json:"changes"`
}

// Compare says what is different from before, and whether it is worse: time or
// the rate over RDMA by more than the tolerance (a fraction), a fallback, GPUDirect
// or rails lost, counters of trouble that stood still before.
func Compare(before, now Record, tolerance float64) Comparison {
	c := Comparison{Schema: "fabrun/compare/v1", Same: slices.Equal(before.Start.Command, now.Start.Command), Tolerance: tolerance, Changes: []Change{}}
	add := func(what, was, is string, worse bool) {
		if was != is {
			c.Changes = append(c.Changes, Change{what, was, is, worse})
			c.Worse = c.Worse || worse
		}
	}
	if before.Exit != nil && now.Exit != nil {
		add("status", fmt.Sprint(before.Exit.Code), fmt.Sprint(now.Exit.Code), now.Exit.Code != 0)
		if before.Exit.WallS > 0 {
			share := now.Exit.WallS/before.Exit.WallS - 1
			if math.Abs(share) > tolerance {
				add("time", duration(before.Exit.WallS), fmt.Sprintf("%s (%+.0f %%)", duration(now.Exit.WallS), share*100), share > tolerance)
			}
		}
	}
	if was, is := rdmaRate(before), rdmaRate(now); was > 0 && is >= 0 {
		if share := is/was - 1; math.Abs(share) > tolerance {
			add("RDMA rate", watch.Bytes(uint64(was))+"/s a host", fmt.Sprintf("%s/s a host (%+.0f %%)", watch.Bytes(uint64(is)), share*100), share < -tolerance)
		}
	}
	var b, n watch.Verdict
	if before.Verdict != nil {
		b = *before.Verdict
	}
	if now.Verdict != nil {
		n = *now.Verdict
	}
	add("fallback", boolWord(fallbackOf(before)), boolWord(fallbackOf(now)), isTrue(fallbackOf(now)))
	add("library", strings.TrimSpace(b.Library+" "+b.Version), strings.TrimSpace(n.Library+" "+n.Version), false)
	add("networks", joined(b.Networks), joined(n.Networks), false)
	add("transports", joined(b.InterNodeTransports), joined(n.InterNodeTransports), false)
	add("devices", joined(b.Devices), joined(n.Devices), len(n.Devices) < len(b.Devices))
	add("GPUDirect", gdrKindWord(b), gdrKindWord(n), isTrue(b.GDR) && (!isTrue(n.GDR) || n.GDRPartial && !b.GDRPartial))
	add("errors", joined(b.FatalErrors), joined(n.FatalErrors), len(n.FatalErrors) > 0)
	for _, ch := range troubleChanges(before, now) {
		add(ch.What, ch.Before, ch.Now, ch.Worse)
	}
	add("hosts", listWords(before.Start.Hosts, 8), listWords(now.Start.Hosts, 8), false)
	add("fabrun", before.Start.Version, now.Start.Version, false)
	was, is := recordedVars(before), recordedVars(now)
	for _, name := range slices.Sorted(mapsKeys(was, is)) {
		add(name, orNone(was[name]), orNone(is[name]), false)
	}
	for _, id := range slices.Sorted(mapsKeys(warnings(now), nil)) {
		if _, old := warnings(before)[id]; !old {
			add("event "+id, "none", warnings(now)[id], true)
		}
	}
	return c
}

// rdmaRate is what a host moved over RDMA in a second, in the mean; -1 where the
// record has no bytes.
func rdmaRate(r Record) float64 {
	sum, n := 0.0, 0
	for _, h := range r.Traffic() {
		if h.RDMABytes != nil && h.Seconds > 0 {
			sum += float64(*h.RDMABytes) / h.Seconds
			n++
		}
	}
	if n == 0 {
		return -1
	}
	return sum / float64(n)
}

// troubleChanges compares the counters that stand still on a healthy fabric: worse
// is what moved now and not before, or ten times as much.
func troubleChanges(before, now Record) []Change {
	sum := func(r Record) map[watch.Counter]uint64 {
		out := map[watch.Counter]uint64{}
		ports, _ := railPorts(r.Traffic())
		for _, p := range ports {
			for c, n := range p.trouble {
				out[c] += n
			}
		}
		return out
	}
	if len(before.Traffic()) == 0 || len(now.Traffic()) == 0 {
		return nil
	}
	was, is := sum(before), sum(now)
	var out []Change
	for _, c := range troubles {
		if is[c] > 0 && is[c]/10 >= was[c] || was[c] > 0 && was[c]/10 >= is[c] {
			out = append(out, Change{string(c), fmt.Sprint(was[c]), fmt.Sprint(is[c]), is[c] > was[c]})
		}
	}
	return out
}

func gdrKindWord(v watch.Verdict) string {
	if isTrue(v.GDR) && v.GDRPartial {
		return "partly"
	}
	return boolWord(v.GDR)
}

func fallbackOf(r Record) *bool {
	if r.Verdict != nil && r.Verdict.Fallback != nil {
		return r.Verdict.Fallback
	}
	if r.Counters != nil {
		return r.Counters.Fallback
	}
	return nil
}

func isTrue(p *bool) bool { return p != nil && *p }

func boolWord(p *bool) string {
	switch {
	case p == nil:
		return "unknown"
	case *p:
		return "yes"
	}
	return "no"
}

func orNone(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

func joined(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

func recordedVars(r Record) map[string]string {
	out := map[string]string{}
	if r.Plan != nil {
		for _, v := range ofLibraries(slices.Concat(r.Plan.Kept, r.Plan.Env)) {
			out[v.Name] = v.Value
		}
	}
	return out
}

func warnings(r Record) map[string]string {
	out := map[string]string{}
	for _, e := range r.Events {
		if e.Severity != watch.SeverityNote {
			out[e.ID] = e.Text
		}
	}
	return out
}

func mapsKeys(a, b map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, both := a[k]; !both && !yield(k) {
				return
			}
		}
	}
}

// Compared writes a comparison for a person.
func Compared(w io.Writer, c Comparison) error {
	var b strings.Builder
	switch {
	case len(c.Changes) == 0:
		fmt.Fprintf(&b, "As before (times within %.0f %%).\n", c.Tolerance*100)
	case c.Worse:
		b.WriteString("Worse than before:\n")
	default:
		b.WriteString("Different, not worse:\n")
	}
	if !c.Same {
		b.WriteString("  the two records are of different commands\n")
	}
	for _, ch := range c.Changes {
		mark := " "
		if ch.Worse {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s %-12s %s -> %s\n", mark, ch.What, ch.Before, ch.Now)
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}
