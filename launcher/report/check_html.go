package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"fabrun/launcher/check"
	"fabrun/launcher/measure"
	"fabrun/topology/finding"
)

//go:embed check.html
var checkPage string

// checkTemplate is parsed when the page is written, not at start-up.
func checkTemplate() (*template.Template, error) { return template.New("check").Parse(checkPage) }

type checkView struct {
	Verdict  measure.Verdict
	Hosts    int
	Failing  []string
	Coverage string
	Findings []finding.Finding
	Notes    []finding.Finding
	Maps     []heatMap
	Bars     template.HTML
	Stages   []check.StageResult
	Runs     []collectiveRow
}

type heatMap struct {
	Rail  int
	Line  string
	Image template.HTML
}

// maxCells bounds the cells of all heat maps of a page: browsers draw so many
// without a wait. Beyond, a cell stands for a block of hosts and shows its worst.
const maxCells = 40_000

// CheckHTML writes the result as one page that needs nothing from outside: what
// is wrong, a heat map per rail (from × to), and how the rates are distributed.
func CheckHTML(w io.Writer, c Checked) error {
	v := checkView{Verdict: c.Verdict(), Hosts: len(c.Hosts), Failing: c.Failing(), Coverage: c.Coverage}
	for _, f := range foldFindings(c.Findings) {
		if f.Severity == finding.Note {
			v.Notes = append(v.Notes, f)
		} else {
			v.Findings = append(v.Findings, f)
		}
	}
	rates := railRates(c.Pairs)
	for _, r := range rates {
		line := fmt.Sprintf("%s Gb/s at worst, %s median, %s at best", measure.RateText(r.at(0)), measure.RateText(r.at(0.5)), measure.RateText(r.at(1)))
		if r.failed > 0 {
			line += fmt.Sprintf("; %d without a result", r.failed)
		}
		v.Maps = append(v.Maps, heatMap{r.rail, line, heat(c, r.rail, len(rates))})
	}
	v.Bars, v.Stages, v.Runs = distribution(c.Pairs), c.Stages, collectiveRows(c.Collectives)
	t, err := checkTemplate()
	if err != nil {
		return err
	}
	return t.Execute(w, v)
}

// heat draws from (rows) × to (columns). Classes carry the colours, so that
// both colour schemes have their own; every cell says its figure.
func heat(c Checked, rail, rails int) template.HTML {
	at := map[string]int{}
	for i, h := range c.Hosts {
		at[h] = i
	}
	var pairs []CheckedPair
	for _, p := range c.Pairs {
		_, ok1 := at[p.From]
		_, ok2 := at[p.To]
		if p.Rail == rail && ok1 && ok2 {
			pairs = append(pairs, p)
		}
	}
	block := 1
	for len(pairs)*rails/(block*block) > maxCells || len(c.Hosts)/block > 310 {
		block++
	}
	n := (len(c.Hosts) + block - 1) / block
	cell := max(2, min(22, 620/max(1, n)))
	if n <= 12 {
		cell = 46 // the figure fits in
	}
	gap := 1
	if cell < 8 {
		gap = 0 // or it would be a pattern of dots
	}
	name := func(i int) string {
		if block == 1 {
			return c.Hosts[i]
		}
		return c.Hosts[i*block] + " …"
	}
	// As many names as there is room for, at least 14 pixels apart.
	every := (13 + cell) / cell
	label := 0
	for i := 0; i < n; i += every {
		label = max(label, len([]rune(name(i))))
	}
	label = min(label, 24)*7 + 8
	size := n*cell + label
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="rail %d: rate from row to column">`, size, size, size, size, rail)
	fmt.Fprintf(&b, `<rect class="none" x="%d" y="%d" width="%d" height="%d"/>`, label, label, n*cell, n*cell)
	esc := template.HTMLEscapeString
	for i := 0; i < n; i += every {
		at := label + i*cell + min(cell, 22)/2 + 4
		if cell > 22 {
			at = label + i*cell + cell/2 + 4
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><text transform="translate(%d,%d) rotate(-90)">%s</text>`, label-5, at, esc(clip(name(i), 24)), at, label-5, esc(clip(name(i), 24)))
	}
	type spot struct{ from, to int }
	worst := map[spot]CheckedPair{}
	var order []spot
	for _, p := range pairs {
		k := spot{at[p.From] / block, at[p.To] / block}
		was, ok := worst[k]
		if !ok {
			order = append(order, k)
		}
		// Of two tests of one pair the later one counts: suspects are tested again.
		if !ok || block == 1 || badness(p) > badness(was) || badness(p) == badness(was) && p.Gbps != nil && was.Gbps != nil && *p.Gbps < *was.Gbps {
			worst[k] = p
		}
	}
	for _, k := range order {
		p := worst[k]
		figure := "no result"
		if p.Gbps != nil {
			figure = fmt.Sprintf("%.1f Gb/s", *p.Gbps)
		}
		if p.Error != nil {
			figure += ": " + *p.Error
		}
		x, y := label+k.to*cell, label+k.from*cell
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"><title>%s → %s: %s</title></rect>`,
			esc(string(p.Verdict)), x, y, cell-gap, cell-gap, esc(p.From), esc(p.To), esc(figure))
		if n <= 12 {
			inside := "none"
			if p.Gbps != nil {
				inside = fmt.Sprintf("%.0f", *p.Gbps)
			}
			fmt.Fprintf(&b, `<text class="in %s" x="%d" y="%d" text-anchor="middle">%s</text>`, esc(string(p.Verdict)), x+cell/2, y+cell/2+4, inside)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// badness orders verdicts.
func badness(p CheckedPair) int {
	return slices.Index([]measure.Verdict{measure.Good, measure.Unknown, measure.Degraded, measure.Broken}, p.Verdict)
}

// distribution draws how many directions had which rate, in forty steps, each
// in the colours of its verdicts.
func distribution(ps []CheckedPair) template.HTML {
	top, n := 0.0, 0
	for _, p := range ps {
		if p.Gbps != nil {
			top, n = max(top, *p.Gbps), n+1
		}
	}
	if n < 2 || top <= 0 {
		return ""
	}
	const steps, high = 40, 110
	var count [steps][4]int
	most := 0
	for _, p := range ps {
		if p.Gbps == nil {
			continue
		}
		bin := &count[min(steps-1, max(0, int(*p.Gbps/top*steps)))]
		bin[max(0, badness(p))]++
		most = max(most, bin[0]+bin[1]+bin[2]+bin[3])
	}
	var b strings.Builder
	b.WriteString(`<svg viewBox="0 0 640 162" width="640" height="162" role="img" aria-label="distribution of rates">`)
	fmt.Fprintf(&b, `<text x="0" y="12">%d</text><path d="M0 16.5H640M0 126.5H640"/>`, most)
	for i, bin := range count {
		y := 126
		for k, v := range []measure.Verdict{measure.Good, measure.Unknown, measure.Degraded, measure.Broken} {
			if bin[k] == 0 {
				continue
			}
			h := max(2, high*bin[k]/most)
			y -= h
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="14" height="%d"><title>%.0f to %.0f Gb/s: %d %s</title></rect>`, v, i*16, y, h, top*float64(i)/steps, top*float64(i+1)/steps, bin[k], v)
		}
	}
	for i := 0; i <= 4; i++ {
		anchor := map[int]string{0: "start", 4: "end"}[i]
		if anchor == "" {
			anchor = "middle"
		}
		unit := ""
		if i == 4 {
			unit = " Gb/s"
		}
		fmt.Fprintf(&b, `<text x="%d" y="144" text-anchor="%s">%.0f%s</text>`, i*160, anchor, top*float64(i)/4, unit)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // figures only
}
