package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/watch"
	"fabrun/topology/finding"
)

//go:embed recorded.html
var recordedPage string

const (
	maxMatrixRanks = 64
	maxBarHosts    = 64
	plotWidth      = 980
	plotHeight     = 190
)

// troubles are the counters that do not move on a healthy fabric.
var troubles = []watch.Counter{
	watch.OutOfSeq, watch.Retransmits, watch.Timeouts, watch.NotReady, watch.Discards, watch.LinkDowned, watch.RetryFailed, watch.SymbolErrors,
}

type pageFact struct{ Name, Value string }

type pageRail struct{ Host, Port, Sent, Received, Rest, Trouble string }

type pageEvent struct{ At, Severity, Where, Text, Line string }

type pageCell struct{ Class, Mark, Title string }

type pageRow struct {
	Rank  int
	Cells []pageCell
}

// page is what the template shows.
type page struct {
	Title, Command, Sentence, Mood, Version string
	Facts                                   []pageFact
	Compared                                *Comparison
	Timeline, Bars                          template.HTML
	Rails                                   []pageRail
	MatrixHead                              []int
	Matrix                                  []pageRow
	Events                                  []pageEvent
	Findings                                []finding.Finding
	Vars                                    []RecordedVar
	Truncated                               bool
}

// RecordedHTML writes a recorded job as one page that asks the network for
// nothing. against may be nil.
func RecordedHTML(w io.Writer, rec Record, against *Comparison) error {
	t, err := template.New("record").Parse(recordedPage)
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	p := page{
		Title: "fabrun: " + ShellWords(rec.Start.Command), Command: ShellWords(rec.Start.Command), Sentence: rec.Sentence(),
		Version: rec.Start.Version, Compared: against, Findings: rec.Findings, Truncated: rec.Truncated,
	}
	switch {
	case strings.HasPrefix(p.Sentence, "No fallback"):
		p.Mood = "good"
	case strings.HasPrefix(p.Sentence, "FALLBACK"), strings.HasPrefix(p.Sentence, "Failed"):
		p.Mood = "bad"
	}
	fact := func(name, value string) {
		if value != "" {
			p.Facts = append(p.Facts, pageFact{name, value})
		}
	}
	fact("began", rec.Began.Format("2006-01-02 15:04:05 MST"))
	fact("ended", rec.endWord())
	fact("hosts", listWords(rec.Start.Hosts, 32))
	if rec.Plan != nil && rec.Plan.Contract != nil {
		fact("plan", *rec.Plan.Contract)
	}
	if v := rec.Verdict; v != nil {
		fact("library", strings.TrimSpace(v.Library+" "+v.Version))
		fact("network", strings.Join(v.Networks, ", "))
		fact("between nodes", strings.Join(v.InterNodeTransports, ", "))
		fact("devices", strings.Join(v.Devices, ", "))
		fact("GPUDirect", gdrWord(*v))
		fact("ranks", ranksWord(*v))
		p.MatrixHead, p.Matrix = matrix(v.Pairs)
	}
	traffic := rec.Traffic()
	for _, h := range traffic {
		for _, port := range h.Ports {
			rest, trouble := maps.Clone(port.Delta), map[watch.Counter]uint64{}
			delete(rest, watch.TxBytes)
			delete(rest, watch.RxBytes)
			for _, c := range troubles {
				if n := rest[c]; n > 0 {
					trouble[c] = n
				}
				delete(rest, c)
			}
			p.Rails = append(p.Rails, pageRail{
				h.Host, fmt.Sprintf("%s:%d", port.HCA, port.Port),
				counterBytes(port.Delta, watch.TxBytes), counterBytes(port.Delta, watch.RxBytes), counterWords(rest), counterWords(trouble),
			})
		}
	}
	p.Bars = bars(traffic)
	p.Timeline = timeline(rec)
	for _, e := range rec.Events {
		where := e.Host
		if e.Rank != nil {
			where = strings.TrimSpace(fmt.Sprintf("%s rank %d", where, *e.Rank))
		}
		p.Events = append(p.Events, pageEvent{"+" + since(rec.Began, e.Time), e.Severity, where, e.Text, e.Line})
	}
	if rec.Plan != nil {
		p.Vars = slices.Concat(rec.Plan.Env, rec.Plan.Kept)
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func counterBytes(delta map[watch.Counter]uint64, c watch.Counter) string {
	n, ok := delta[c]
	if !ok {
		return "unknown"
	}
	return watch.Bytes(n)
}

// matrix shows what carries each pair of ranks; nil where there are none, or too
// many to look at.
func matrix(pairs []watch.Pair) ([]int, []pageRow) {
	n := 0
	via := map[[2]int][]string{}
	for _, p := range pairs {
		n = max(n, p.From+1, p.To+1)
		key := [2]int{p.From, p.To}
		via[key] = append(via[key], p.Via)
	}
	if n == 0 || n > maxMatrixRanks {
		return nil, nil
	}
	head := make([]int, n)
	rows := make([]pageRow, n)
	for from := range rows {
		head[from] = from
		rows[from] = pageRow{Rank: from, Cells: make([]pageCell, n)}
		for to := range n {
			vs := via[[2]int{from, to}]
			if len(vs) == 0 {
				continue
			}
			rows[from].Cells[to] = cellOf(from, to, vs)
		}
	}
	return head, rows
}

func cellOf(from, to int, vs []string) pageCell {
	c := pageCell{Title: fmt.Sprintf("%d to %d: %s", from, to, strings.Join(vs, ", "))}
	has := func(match func(string) bool) bool { return slices.ContainsFunc(vs, match) }
	switch {
	case has(func(s string) bool { return s == "NET/Socket" }):
		c.Class, c.Mark = "m-tcp", "T"
	case has(func(s string) bool { return strings.HasPrefix(s, "NET/") && !strings.HasSuffix(s, "/GDRDMA") }):
		c.Class, c.Mark = "m-net", "N"
	case has(func(s string) bool { return strings.HasPrefix(s, "NET/") }):
		c.Class, c.Mark = "m-gdr", "G"
	default:
		c.Class, c.Mark = "m-intra", "·"
	}
	return c
}

// bars draws what each host moved.
func bars(traffic []watch.HostTraffic) template.HTML {
	traffic = traffic[:min(len(traffic), maxBarHosts)]
	most := uint64(1)
	value := func(p *uint64) uint64 {
		if p == nil {
			return 0
		}
		return *p
	}
	for _, h := range traffic {
		most = max(most, value(h.RDMABytes), value(h.TCPBytes), value(h.OtherTCP))
	}
	if len(traffic) == 0 {
		return ""
	}
	const left, barsWidth, rowHeight = 150, 620, 62
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="100%%" role="img" aria-label="bytes by host">`, plotWidth, rowHeight*len(traffic))
	for i, h := range traffic {
		y := i * rowHeight
		fmt.Fprintf(&b, `<text x="0" y="%d">%s</text>`, y+29, template.HTMLEscapeString(h.Host))
		for k, bar := range []struct {
			class, word string
			n           *uint64
		}{{"frdma", rdmaWord(h), h.RDMABytes}, {"ftcp", bytesWord(h.TCPBytes), h.TCPBytes}, {"fother", bytesWord(h.OtherTCP), h.OtherTCP}} {
			width := float64(value(bar.n)) / float64(most) * barsWidth
			if value(bar.n) > 0 {
				width = max(width, 2)
			}
			yy := y + 6 + k*17
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="13" rx="2"/>`, bar.class, left, yy, width)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, left+width+6, yy+11, template.HTMLEscapeString(bar.word))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped names
}

// timeline draws bytes per second by RDMA and TCP over time, and the events.
func timeline(rec Record) template.HTML {
	end := rec.Began
	if rec.Ended != nil {
		end = *rec.Ended
	}
	for _, s := range rec.Samples {
		end = later(end, s.Time)
	}
	for _, e := range rec.Events {
		end = later(end, e.Time)
	}
	span := end.Sub(rec.Began).Seconds()
	if span <= 0 || len(rec.Samples) < 2 && len(rec.Events) == 0 {
		return ""
	}
	lines := rates(rec)
	most := 1.0
	for _, l := range lines {
		for _, p := range l.points {
			most = max(most, p.v)
		}
	}
	const left, right, top, bottom = 74, 10, 12, 26
	x := func(t float64) float64 { return left + t/span*(plotWidth-left-right) }
	y := func(v float64) float64 { return top + (1-v/most)*(plotHeight-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="100%%" role="img" aria-label="traffic over time">`, plotWidth, plotHeight)
	for i := range 3 {
		v := most * float64(i) / 2
		fmt.Fprintf(&b, `<line class="axis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, plotWidth-right, y(v), y(v))
		if len(lines) > 0 {
			fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%s/s</text>`, left-6, y(v)+4, watch.Bytes(uint64(v)))
		}
	}
	for i := range 5 {
		t := span * float64(i) / 4
		anchor := "middle"
		if i == 4 {
			anchor = "end"
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="%s">%s</text>`, x(t), plotHeight-6, anchor, duration(t))
	}
	for _, l := range lines {
		fmt.Fprintf(&b, `<polyline class="%s" points="`, l.class)
		for _, p := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(p.t), y(p.v))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, template.HTMLEscapeString(l.host))
	}
	for _, e := range rec.Events {
		at := x(max(min(e.Time.Sub(rec.Began).Seconds(), span), 0))
		sev := "note"
		if e.Severity == watch.SeverityError || e.Severity == watch.SeverityWarning {
			sev = e.Severity
		}
		fmt.Fprintf(&b, `<line class="event %s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>%s</title></line>`, sev, at, at, top, plotHeight-bottom, template.HTMLEscapeString(e.Text))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped texts
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

type point struct{ t, v float64 }

// rateLine is one host's bytes per second by one way.
type rateLine struct {
	host, class string
	points      []point
}

// rates are bytes per second between one look at the counters and the next.
func rates(rec Record) []rateLine {
	peers := watch.PeerSet(rec.Samples)
	was := map[string]watch.Sample{}
	lines := map[[2]string]*rateLine{}
	var order []*rateLine
	for _, s := range rec.Samples {
		prev, ok := was[s.Host]
		was[s.Host] = s
		dt := s.Time.Sub(prev.Time).Seconds()
		if !ok || dt <= 0 {
			continue
		}
		t := watch.Traffic(prev, s, peers)
		begin, end := prev.Time.Sub(rec.Began).Seconds(), s.Time.Sub(rec.Began).Seconds()
		for class, n := range map[string]*uint64{"rdma": t.RDMABytes, "tcp": t.TCPBytes} {
			if n == nil {
				continue
			}
			key := [2]string{s.Host, class}
			l := lines[key]
			if l == nil {
				l = &rateLine{host: s.Host, class: class}
				lines[key] = l
				order = append(order, l)
			}
			v := float64(*n) / dt
			l.points = append(l.points, point{begin, v}, point{end, v})
		}
	}
	out := make([]rateLine, 0, len(order))
	for _, l := range order {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b rateLine) int { return strings.Compare(a.class+a.host, b.class+b.host) })
	return out
}
