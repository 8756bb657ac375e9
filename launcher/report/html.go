package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
	"fabrun/topology/finding"
)

//go:embed recorded.html
var recordedPage string

const (
	maxMatrixRanks = 64
	maxBarHosts    = 128
	maxFullBars    = 12 // more hosts get a row of less height
	maxRailHosts   = 256
	maxListedPorts = 256
	maxNumbered    = 40 // events that the timeline numbers
	plotWidth      = 980
	plotHeight     = 190
	staleHeight    = 9
)

type pageFact struct{ Name, Value string }

// pageRail is one port in the list; pageRailRow a host in the table of rails.
type pageRail struct{ Host, Port, Sent, Received, Rest, Trouble string }

type pageRailRow struct {
	Host, Title string
	Cells       []pageCell
}

// pageEvent has a number where the timeline shows it.
type pageEvent struct {
	N                               int
	At, Severity, Where, Text, Line string
}

type pageCell struct{ Class, Mark, Title string }

type pageRow struct {
	Rank  int
	Cells []pageCell
}

// page is what the template shows.
type page struct {
	Title, Command, Sentence, Mood, Version string
	Kept                                    string // of the sentence, what became of the rails
	Facts                                   []pageFact
	Compared                                *Comparison
	Timeline, Bars                          template.HTML
	Lost, Stale                             bool   // the timeline shows rails that were lost, GIDs that were others
	NoTimeline                              string // why there is none
	BarsLeft                                string
	BarsOther                               bool // the bars show other TCP
	RailHead                                []string
	RailRows                                []pageRailRow
	Rails                                   []pageRail
	RailsLeft                               string // what the list of ports leaves out
	MatrixHead                              []int
	Matrix                                  []pageRow
	Events                                  []pageEvent
	Findings                                []finding.Finding
	Vars                                    []RecordedVar
	Truncated                               bool
	LeftOut                                 int
}

// RecordedHTML writes a recorded job as one page that asks the network for
// nothing. against may be nil.
func RecordedHTML(w io.Writer, rec Record, against *Comparison) error {
	rec.Events = slices.Clone(rec.Events)
	for i := range rec.Events {
		e := &rec.Events[i]
		e.Host, e.Text, e.Line = Printable(e.Host), Printable(e.Text), Printable(e.Line)
	}
	t, err := template.New("record").Parse(recordedPage)
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	p := page{
		Title: "fabrun: " + ShellWords(rec.Start.Command), Command: ShellWords(rec.Start.Command), Sentence: rec.Sentence(),
		Version: rec.Start.Version, Compared: against, Findings: rec.Findings, Truncated: rec.Truncated, LeftOut: rec.LeftOut,
	}
	switch {
	case strings.HasPrefix(p.Sentence, "No fallback") && rec.Kept != nil && rec.Kept.Kept < rec.Kept.Promised:
		p.Mood = "warn"
	case strings.HasPrefix(p.Sentence, "No fallback"):
		p.Mood = "good"
	case strings.HasPrefix(p.Sentence, "FALLBACK"), strings.HasPrefix(p.Sentence, "Failed"):
		p.Mood = "bad"
	}
	if rec.Kept != nil {
		p.kept(*rec.Kept)
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
	if rec.Kept != nil {
		for _, f := range keptFacts(*rec.Kept) {
			fact(f.Name, f.Value)
		}
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
	names := rec.shortNames(traffic)
	p.rails(traffic, names)
	p.Bars, p.BarsOther = bars(traffic, names), len(traffic) <= maxFullBars
	if len(traffic) > maxBarHosts {
		p.BarsLeft = fmt.Sprintf("The first %d of %d hosts.", maxBarHosts, len(traffic))
	}
	if p.Timeline = timeline(rec); p.Timeline == "" {
		p.NoTimeline = "Nothing to draw: the counters were looked at fewer than twice, and nothing happened."
	}
	numbers := eventNumbers(rec.Events)
	for i, e := range rec.Events {
		where := cmp.Or(names[e.Host], e.Host)
		if e.Rank != nil {
			where = strings.TrimSpace(fmt.Sprintf("%s rank %d", where, *e.Rank))
		}
		p.Events = append(p.Events, pageEvent{numbers[i], "+" + since(rec.Began, e.Time), e.Severity, where, e.Text, e.Line})
	}
	if rec.Plan != nil {
		p.Vars = ofLibraries(slices.Concat(rec.Plan.Env, rec.Plan.Kept))
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// kept takes what became of the rails out of the sentence, and says what the timeline
// shows of it.
func (p *page) kept(k contract.Kept) {
	if s, ok := strings.CutSuffix(p.Sentence, k.Text); ok {
		p.Sentence, p.Kept = strings.TrimSpace(s), k.Text
	}
	p.Lost, p.Stale = len(k.Losses) > 0, len(k.GIDs) > 0
}

func counterBytes(delta map[watch.Counter]uint64, c watch.Counter) string {
	n, ok := delta[c]
	if !ok {
		return "unknown"
	}
	return watch.Bytes(n)
}

// rails fills the table of rails, and the list of ports: each, or those to look
// at.
func (p *page) rails(traffic []watch.HostTraffic, names map[string]string) {
	ports, rails := railPorts(traffic)
	if len(ports) == 0 {
		return
	}
	if len(rails) > 1 && len(rails) <= maxMatrixRanks && len(traffic) <= maxRailHosts {
		p.RailHead = rails
		for _, h := range traffic {
			row := pageRailRow{Host: names[h.Host], Title: h.Host, Cells: make([]pageCell, len(rails))}
			for _, port := range ports {
				if port.host == h.Host {
					row.Cells[slices.Index(rails, port.name)] = railCell(port)
				}
			}
			p.RailRows = append(p.RailRows, row)
		}
	}
	all := len(ports) <= maxAllPorts
	left := 0
	for _, port := range ports {
		nothing := p.RailRows != nil && !portMoved(port) && !port.low // the table of rails says it
		if nothing || !all && !port.toLookAt() || len(p.Rails) >= maxListedPorts {
			left++
			continue
		}
		p.Rails = append(p.Rails, pageRail{
			names[port.host], port.name, counterBytes(port.delta, watch.TxBytes), counterBytes(port.delta, watch.RxBytes),
			counterWords(port.rest()), counterWords(port.trouble),
		})
	}
	if left > 0 && len(p.Rails) > 0 {
		p.RailsLeft = fmt.Sprintf("%d more ports have nothing to look at.", left)
	}
}

// railCell shades a port by its share of what the ports moved in the middle.
func railCell(port railPort) pageCell {
	c := pageCell{Mark: port.movedWord(), Title: fmt.Sprintf("%s %s: %s", port.host, port.name, counterWords(port.delta))}
	switch {
	case port.moved == nil:
		c.Class = "r-none"
	case port.share >= 0.9:
		c.Class = "r-4"
	case port.share >= 0.7:
		c.Class = "r-3"
	case port.share >= lowShare:
		c.Class = "r-2"
	case *port.moved > 0:
		c.Class = "r-1"
	default:
		c.Class = "r-0"
	}
	if len(port.trouble) > 0 {
		c.Class += " r-trouble"
		c.Mark += " !"
	}
	return c
}

// eventNumbers numbers the warnings and errors that the timeline shows; 0 for the
// others.
func eventNumbers(events []watch.Event) []int {
	out := make([]int, len(events))
	n := 0
	for i, e := range events {
		if e.Severity != watch.SeverityNote && n < maxNumbered {
			n++
			out[i] = n
		}
	}
	return out
}

// shortNames are the names of the job's hosts as the page shows them.
func (rec Record) shortNames(traffic []watch.HostTraffic) map[string]string {
	hosts := slices.Clone(rec.Start.Hosts)
	for _, h := range traffic {
		if !slices.Contains(hosts, h.Host) {
			hosts = append(hosts, h.Host)
		}
	}
	var others []string // what events call a host of the job by its whole name, or by less of it
	for _, e := range rec.Events {
		if e.Host != "" && !slices.Contains(hosts, e.Host) && !slices.Contains(others, e.Host) {
			others = append(others, e.Host)
		}
	}
	as := map[string]string{}
	for _, o := range others {
		same := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return !sameHost(h, o) })
		if len(same) == 1 {
			as[o] = same[0]
		} else {
			hosts = append(hosts, o)
		}
	}
	out := shortNames(hosts)
	for o, h := range as {
		out[o] = out[h]
	}
	return out
}

// sameHost says whether two names are one host's, of which one has its domain.
func sameHost(a, b string) bool {
	if _, err := netip.ParseAddr(a); err == nil {
		return a == b
	}
	return strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

// ofLibraries leaves out what fabrun tells itself.
func ofLibraries(vs []RecordedVar) []RecordedVar {
	return slices.DeleteFunc(slices.Clone(vs), func(v RecordedVar) bool { return strings.HasPrefix(v.Name, "FABRUN_") })
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

// bar is one bar of a host: its class, the number in words, and as bytes.
type bar struct {
	class, word string
	n           *uint64
}

// bars draws what each host moved.
func bars(traffic []watch.HostTraffic, names map[string]string) template.HTML {
	left := 60
	traffic = traffic[:min(len(traffic), maxBarHosts)]
	most := uint64(1)
	value := func(p *uint64) uint64 {
		if p == nil {
			return 0
		}
		return *p
	}
	for _, h := range traffic {
		most = max(most, value(h.RDMABytes), value(h.TCPBytes))
		if len(traffic) <= maxFullBars {
			most = max(most, value(h.OtherTCP))
		}
	}
	if len(traffic) == 0 {
		return ""
	}
	for _, h := range traffic {
		left = max(left, 14+7*len(cutName(names[h.Host])))
	}
	rowHeight, barHeight, gap := 62, 13, 17
	compact := len(traffic) > maxFullBars
	if compact {
		rowHeight, barHeight, gap = 22, 7, 8 // no room for other TCP and a number each
	}
	barsWidth := float64(plotWidth - left - 100) // and room for the number behind it
	if compact {
		barsWidth -= 120
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="100%%" role="img" aria-label="bytes by host">`, plotWidth, rowHeight*len(traffic))
	for i, h := range traffic {
		y := i * rowHeight
		fmt.Fprintf(&b, `<text x="0" y="%d">%s<title>%s</title></text>`, y+rowHeight/2, template.HTMLEscapeString(cutName(names[h.Host])), template.HTMLEscapeString(h.Host))
		all := []bar{{"frdma", rdmaWord(h), h.RDMABytes}, {"ftcp", bytesWord(h.TCPBytes), h.TCPBytes}, {"fother", bytesWord(h.OtherTCP), h.OtherTCP}}
		if compact {
			all = all[:2]
		}
		longest := 0.0
		for k, bar := range all {
			width := float64(value(bar.n)) / float64(most) * barsWidth
			if value(bar.n) > 0 {
				width = max(width, 2)
			}
			longest = max(longest, width)
			yy := y + 2 + k*gap
			if !compact {
				yy += 4
			}
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, bar.class, left, yy, width, barHeight)
			if !compact {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, float64(left)+width+6, yy+11, template.HTMLEscapeString(bar.word))
			}
		}
		if compact {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s · TCP %s</text>`, float64(left)+longest+6, y+rowHeight/2+2, template.HTMLEscapeString(all[0].word), template.HTMLEscapeString(all[1].word))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped names
}

// cutName shortens a host's name to what fits before the bars.
func cutName(name string) string {
	if r := []rune(name); len(r) > 32 {
		return string(r[:31]) + "…"
	}
	return name
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
	const left, right, top, bottom = 74, 10, 18, 26
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
	for _, t := range lessThanPromised(rec, end) {
		from, to := max(t.from.Sub(rec.Began).Seconds(), 0), min(t.to.Sub(rec.Began).Seconds(), span)
		height := plotHeight - top - bottom
		if t.class == "stale" { // the data may flow all the same
			height = staleHeight
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`,
			t.class, x(from), plotHeight-bottom-height, max(x(to)-x(from), 2), height, template.HTMLEscapeString(t.title))
	}
	for _, l := range lines {
		fmt.Fprintf(&b, `<polyline class="%s" points="`, l.class)
		for _, p := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(p.t), y(p.v))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, template.HTMLEscapeString(l.host))
	}
	numbers := eventNumbers(rec.Events)
	labelled := -100.0
	for i, e := range rec.Events {
		at := x(max(min(e.Time.Sub(rec.Began).Seconds(), span), 0))
		sev := "note"
		if e.Severity == watch.SeverityError || e.Severity == watch.SeverityWarning {
			sev = e.Severity
		}
		fmt.Fprintf(&b, `<line class="event %s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>%s</title></line>`, sev, at, at, top, plotHeight-bottom, template.HTMLEscapeString(e.Text))
		if n := numbers[i]; n > 0 && at-labelled > 14 {
			// Of events at one place only the first has its number shown.
			labelled = at
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, at, top-4, n)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped texts
}

// trouble is a time in which a job had less than was promised.
type trouble struct {
	class    string
	from, to time.Time
	title    string
}

const maxTroubles = 200

// lessThanPromised are the times in which rails were lost, or GIDs that the job relies
// on were others.
func lessThanPromised(rec Record, end time.Time) []trouble {
	if rec.Kept == nil {
		return nil
	}
	until := func(t *time.Time) time.Time {
		if t == nil {
			return end
		}
		return *t
	}
	var out []trouble
	for _, l := range rec.Kept.Losses {
		out = append(out, trouble{"lost", l.From, until(l.Until), fmt.Sprintf("%s on %s: %s", l.Port, l.Host, l.Why)})
	}
	for _, g := range rec.Kept.GIDs {
		out = append(out, trouble{"stale", g.From, until(g.Until), fmt.Sprintf("GID index %d of %s on %s was %s", g.Index, g.Port, g.Host, g.Was)})
	}
	return out[:min(len(out), maxTroubles)]
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
