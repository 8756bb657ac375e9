package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
)

// TopoSVG draws a host: one column a NUMA node, in it one box a PCIe switch
// with its GPUs and HCAs, and below the matrix. Colours have a dark variant. used
// names the HCAs that a job takes, and the others are grey; nil is not known.
func TopoSVG(w io.Writer, h topology.Host, paths []topology.Path, used []string) error {
	s := &svg{h: &h, paths: paths, used: used}
	return s.draw(w)
}

type svg struct {
	h     *topology.Host
	paths []topology.Path
	used  []string
	body  strings.Builder
}

// Sizes in user units; text is 13 units high.
const (
	svgMargin = 20
	svgRow    = 26
	svgPad    = 10
	svgColumn = 430
	svgCell   = 62
)

const svgStyle = `
  text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1b1f24}
  .title{font-size:16px;font-weight:600}
  .dim{fill:#57606a}
  .bg{fill:#ffffff}
  .numa{fill:#f6f8fa;stroke:#8c959f}
  .sw{fill:#ffffff;stroke:#8c959f}
  .gpu{fill:#d8f0dc;stroke:#2c7a3f}
  .hca{fill:#d6e6fb;stroke:#1f5fb0}
  .down{fill:#fbdcdc;stroke:#b42323}
  .unused{fill:#eaeef2;stroke:#8c959f}
  .near{fill:#b9e6c3}.mid{fill:#fdf0c3}.far{fill:#f9cfcf}.none{fill:#eaeef2}
  @media (prefers-color-scheme: dark){
  text{fill:#e6edf3}
  .dim{fill:#9aa5b1}
  .bg{fill:#0d1117}
  .numa{fill:#161b22;stroke:#6e7681}
  .sw{fill:#0d1117;stroke:#6e7681}
  .gpu{fill:#14381f;stroke:#4fbf6b}
  .hca{fill:#12294a;stroke:#5b9bf0}
  .down{fill:#4a1616;stroke:#f07070}
  .unused{fill:#21262d;stroke:#6e7681}
  .near{fill:#1d5a2e}.mid{fill:#5e4c10}.far{fill:#6b1f1f}.none{fill:#21262d}
  }
`

func (s *svg) text(x, y int, class, str string) {
	var esc strings.Builder
	if err := xml.EscapeText(&esc, []byte(str)); err != nil {
		return
	}
	if class != "" {
		class = fmt.Sprintf(` class="%s"`, class)
	}
	fmt.Fprintf(&s.body, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, class, esc.String())
}

func (s *svg) box(x, y, w, h int, class string) {
	fmt.Fprintf(&s.body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" class=\"%s\"/>\n", x, y, w, h, class)
}

// svgItem is one GPU or HCA.
type svgItem struct {
	class, label string
	pci          string
}

func (s *svg) draw(w io.Writer) error {
	dev := map[string]*topology.PCIDevice{}
	for i := range s.h.PCI {
		dev[s.h.PCI[i].Address] = &s.h.PCI[i]
	}
	groups := map[int]map[string][]svgItem{}
	add := func(numa *int, it svgItem) {
		n := -1
		if numa != nil {
			n = *numa
		}
		if groups[n] == nil {
			groups[n] = map[string][]svgItem{}
		}
		sw := topSwitch(dev, it.pci, s.h.XML)
		groups[n][sw] = append(groups[n][sw], it)
	}
	for _, g := range s.h.GPUs {
		add(g.NUMA, svgItem{"gpu", fmt.Sprintf("GPU%d %s", g.Index, gpuWords(g, dev[g.PCI])), g.PCI})
	}
	for i := range s.h.HCAs {
		c := &s.h.HCAs[i]
		class := "hca"
		if len(c.Ports) > 0 && !slices.ContainsFunc(c.Ports, func(p topology.Port) bool { return !p.Down() }) {
			class = "down"
		} else if s.unused(c.Name) {
			class = "unused"
		}
		add(c.NUMA, svgItem{class, c.Name + " " + hcaWords(c, *s.h), c.PCI})
	}
	var nodes []int
	for n := range groups {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	y := svgMargin + 16
	for _, line := range wrapped(TopoSentence(*s.h, s.paths), 96) {
		s.text(svgMargin, y, "title", line)
		y += 22
	}
	top := y
	bottom := top
	// Two NUMA nodes side by side; more go below.
	for row := 0; row < len(nodes); row += 2 {
		tallest := 0
		for i, n := range nodes[row:min(row+2, len(nodes))] {
			tallest = max(tallest, s.numa(svgMargin+i*(svgColumn+svgMargin), top, n, groups[n]))
		}
		top += tallest + svgMargin
		bottom = top
	}
	bottom = s.matrix(bottom + 4)
	wide := 2*svgColumn + 3*svgMargin
	wide = max(wide, 2*svgMargin+70+svgCell*len(s.columns())+s.headHeight())
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", wide, bottom+svgMargin, wide, bottom+svgMargin)
	fmt.Fprintf(&out, "<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" class=\"bg\"/>\n", svgStyle)
	out.WriteString(s.body.String())
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// wrapped cuts a sentence into lines of at most n characters.
func wrapped(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > n {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// numa draws one NUMA node and returns its height.
func (s *svg) numa(x, y, id int, groups map[string][]svgItem) int {
	switches := make([]string, 0, len(groups))
	height := 2*svgPad + 18
	for sw, items := range groups {
		switches = append(switches, sw)
		height += len(items)*svgRow + svgPad
		if sw != "" {
			height += 22
		}
	}
	slices.SortFunc(switches, func(a, b string) int {
		if (a == "") != (b == "") {
			return len(b) - len(a)
		}
		return topology.ComparePCI(a, b)
	})
	s.box(x, y, svgColumn, height, "numa")
	s.text(x+svgPad, y+svgPad+10, "", clip(numaWords(*s.h, id), 52))
	at := y + 2*svgPad + 14
	for _, sw := range switches {
		items := groups[sw]
		slices.SortStableFunc(items, func(a, b svgItem) int { return topology.ComparePCI(a.pci, b.pci) })
		left := x + svgPad
		inner := svgColumn - 2*svgPad
		if sw != "" {
			s.box(left, at, inner, len(items)*svgRow+20, "sw")
			s.text(left+svgPad, at+14, "dim", "switch "+sw)
			at += 18
			left += svgPad
			inner -= 2 * svgPad
		}
		for _, it := range items {
			s.box(left, at+2, inner, svgRow-4, it.class)
			s.text(left+8, at+17, "", clip(it.label, (inner-16)/8))
			at += svgRow
		}
		at += svgPad
		if sw != "" {
			at += 2
		}
	}
	return height
}

// unused says whether the job leaves an HCA out.
func (s *svg) unused(name string) bool { return s.used != nil && !slices.Contains(s.used, name) }

// svgColumnOf is a column of the matrix: a GPU, where GPUs have links of their
// own, or an HCA.
type svgColumnOf struct {
	head string
	dim  bool
	is   func(topology.Path, topology.GPU) bool
	self string // the PCI address of a GPU
}

func (s *svg) columns() []svgColumnOf {
	var out []svgColumnOf
	if slices.ContainsFunc(s.paths, func(p topology.Path) bool { return p.NVLinks > 0 || p.LinkKind == "xgmi" }) {
		for _, to := range s.h.GPUs {
			out = append(out, svgColumnOf{"GPU" + strconv.Itoa(to.Index), false, func(p topology.Path, from topology.GPU) bool {
				return p.HCA == "" && (p.From == from.PCI && p.To == to.PCI || p.From == to.PCI && p.To == from.PCI)
			}, to.PCI})
		}
	}
	for _, c := range s.h.HCAs {
		out = append(out, svgColumnOf{c.Name, s.unused(c.Name), func(p topology.Path, from topology.GPU) bool { return p.From == from.PCI && p.HCA == c.Name }, ""})
	}
	return out
}

// headHeight is what turned heads need beyond a line; 0 where all names fit.
func (s *svg) headHeight() int {
	longest := 0
	for _, c := range s.h.HCAs {
		longest = max(longest, len([]rune(c.Name)))
	}
	if longest <= 7 {
		return 0
	}
	return min(longest, 20) * 6
}

// matrix draws GPU × GPU, where they have links, and GPU × HCA with a colour for
// how near.
func (s *svg) matrix(y int) int {
	if len(s.h.GPUs) == 0 || len(s.h.HCAs) == 0 {
		return y
	}
	x0 := svgMargin + 64
	columns := s.columns()
	turned := s.headHeight()
	y += turned
	for i, c := range columns {
		class := ""
		if c.dim {
			class = "dim"
		}
		x := x0 + i*svgCell + 4
		if turned == 0 {
			s.text(x, y+14, class, c.head)
			continue
		}
		fmt.Fprintf(&s.body, "<g transform=\"translate(%d %d) rotate(-40)\">", x+10, y+14)
		s.text(0, 0, class, clip(c.head, 20))
		s.body.WriteString("</g>\n")
	}
	y += 20
	for _, g := range s.h.GPUs {
		s.text(svgMargin, y+17, "", "GPU"+strconv.Itoa(g.Index))
		for i, c := range columns {
			word, class := "", "none"
			if k := slices.IndexFunc(s.paths, func(p topology.Path) bool { return c.is(p, g) }); k >= 0 && c.self != g.PCI {
				word = typeWord(s.paths[k])
				class = pathClass(word)
			}
			if c.dim {
				class = "none"
			}
			s.box(x0+i*svgCell, y+1, svgCell-4, svgRow-4, class)
			s.text(x0+i*svgCell+12, y+17, map[bool]string{true: "dim"}[c.dim], word)
		}
		y += svgRow
	}
	var words []string
	for _, l := range typeLegend {
		if slices.ContainsFunc(s.paths, func(p topology.Path) bool { return p.HCA != "" && typeWord(p) == l.word }) {
			words = append(words, l.word+" "+l.means)
		}
	}
	if len(columns) > len(s.h.HCAs) {
		words = append(words, "NVn n NVLinks between two GPUs")
	}
	if s.used != nil && slices.ContainsFunc(columns, func(c svgColumnOf) bool { return c.dim }) {
		words = append(words, "grey: a job leaves it out")
	}
	for _, line := range wrapped(strings.Join(words, "; "), 110) {
		s.text(svgMargin, y+18, "dim", line)
		y += 18
	}
	return y + 6
}

// pathClass is the colour of a path.
func pathClass(word string) string {
	switch {
	case word == "PIX" || word == "PXB" || word == "P2C" || word == "XGMI" || strings.HasPrefix(word, "NV"):
		return "near"
	case word == "PHB" || word == "NODE":
		return "mid"
	case word == "SYS":
		return "far"
	}
	return "none"
}
