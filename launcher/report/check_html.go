package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"fabrun/launcher/preflight"
	"fabrun/topology/finding"
)

//go:embed check.html
var checkPage string

// checkTemplate is parsed when the page is written, not at start-up.
func checkTemplate() (*template.Template, error) { return template.New("check").Parse(checkPage) }

type checkView struct {
	Verdict  preflight.Verdict
	Hosts    int
	Failing  []string
	Coverage string
	Findings []finding.Finding
	Notes    []finding.Finding
	Maps     []heatMap
	Bars     template.HTML
}

type heatMap struct {
	Rail  int
	Line  string
	Image template.HTML
}

// maxHeat is how many hosts a heat map shows: beyond, a cell is no pixel.
const maxHeat = 512

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
	for _, r := range railRates(c.Pairs) {
		line := fmt.Sprintf("%s Gb/s at worst, %s median, %s at best", preflight.RateText(r.at(0)), preflight.RateText(r.at(0.5)), preflight.RateText(r.at(1)))
		if r.failed > 0 {
			line += fmt.Sprintf("; %d without a result", r.failed)
		}
		v.Maps = append(v.Maps, heatMap{r.rail, line, heat(c, r.rail)})
	}
	v.Bars = distribution(c.Pairs)
	t, err := checkTemplate()
	if err != nil {
		return err
	}
	return t.Execute(w, v)
}

// heat draws from (rows) × to (columns). Classes carry the colours, so that
// both colour schemes have their own; every cell says its figure.
func heat(c Checked, rail int) template.HTML {
	at := map[string]int{}
	for i, h := range c.Hosts {
		at[h] = i
	}
	n := min(len(c.Hosts), maxHeat)
	cell := max(2, min(22, 620/max(1, n)))
	label := 0
	if cell >= 11 {
		for _, h := range c.Hosts {
			label = max(label, len([]rune(h)))
		}
		label = min(label, 24)*7 + 8
	}
	size := n*cell + label
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="rail %d: rate from row to column">`, size, size, size, size, rail)
	fmt.Fprintf(&b, `<rect class="none" x="%d" y="%d" width="%d" height="%d"/>`, label, label, n*cell, n*cell)
	esc := template.HTMLEscapeString
	if label > 0 {
		for i, h := range c.Hosts[:n] {
			y := label + i*cell + cell/2 + 4
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><text transform="translate(%d,%d) rotate(-90)">%s</text>`, label-5, y, esc(clip(h, 24)), y, label-5, esc(clip(h, 24)))
		}
	}
	for _, p := range c.Pairs {
		from, ok1 := at[p.From]
		to, ok2 := at[p.To]
		if p.Rail != rail || !ok1 || !ok2 || from >= n || to >= n {
			continue
		}
		figure := "no result"
		if p.Gbps != nil {
			figure = preflight.RateText(*p.Gbps) + " Gb/s"
		}
		if p.Error != nil {
			figure += ": " + *p.Error
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"><title>%s → %s: %s</title></rect>`,
			esc(string(p.Verdict)), label+to*cell, label+from*cell, max(cell-1, 1), max(cell-1, 1), esc(p.From), esc(p.To), esc(figure))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // every text in it is escaped
}

// distribution draws how many directions had which rate, in twenty steps.
func distribution(ps []CheckedPair) template.HTML {
	var rates []float64
	for _, p := range ps {
		if p.Gbps != nil {
			rates = append(rates, *p.Gbps)
		}
	}
	if len(rates) < 2 {
		return ""
	}
	top := slices.Max(rates)
	const steps = 20
	var count [steps]int
	for _, r := range rates {
		count[min(steps-1, int(r/max(top, 1e-9)*steps))]++
	}
	most := slices.Max(count[:])
	var b strings.Builder
	b.WriteString(`<svg viewBox="0 0 640 150" width="640" height="150" role="img" aria-label="distribution of rates">`)
	for i, n := range count {
		h := 110 * n / most
		if n > 0 {
			h = max(h, 2)
		}
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%d" width="28" height="%d"><title>%.0f to %.0f Gb/s: %d</title></rect>`, i*32, 120-h, h, top*float64(i)/steps, top*float64(i+1)/steps, n)
	}
	fmt.Fprintf(&b, `<text x="0" y="142">0</text><text x="638" y="142" text-anchor="end">%.0f Gb/s</text></svg>`, top)
	return template.HTML(b.String()) //nolint:gosec // figures only
}
