package pasted

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Matrix is what a pasted "nvidia-smi topo -m" (or rocm-smi --showtopo) says.
type Matrix struct {
	Host     string
	GPUs     []MatrixGPU
	HCAs     []string // device names; "NIC0" where the legend is missing
	Paths    []MatrixPath
	Links    []MatrixLink // GPU to GPU, each pair once
	Best     []MatrixBest // in GPU order
	Findings []finding.Finding
}

// MatrixGPU is one GPU and its affinity columns.
type MatrixGPU struct {
	Name        string // "GPU0"
	CPUAffinity string // "0-31,64-95"; "" not said
	NUMA        string // "0", "0-3"; "" not said
}

// MatrixPath is the cell of a GPU and an HCA.
type MatrixPath struct {
	GPU, HCA string
	SMI      topology.PathType
}

// MatrixLink is the cell of two GPUs: "NV18", "PIX", "XGMI", ….
type MatrixLink struct {
	A, B string
	Type string
}

// MatrixBest are the HCAs nearest to a GPU.
type MatrixBest struct {
	GPU   string
	Level topology.PathType // "" where there is no HCA
	HCAs  []string
	// Usable are those of HCAs that the same paste does not show to be down;
	// nil where it shows no port states.
	Usable []string
}

// Levels of nvidia-smi, nearest first. SOC is what drivers before 390 called
// SYS, PSB their on-board switch.
var smiLevels = []topology.PathType{topology.PIX, topology.PXB, topology.PHB, topology.NODE, topology.SYS}

var (
	gpuLabel   = lazy(`^GPU\d+$`)
	nicLabel   = lazy(`^NIC\d+$`)
	hcaLabel   = lazy(`^[A-Za-z][A-Za-z0-9_.-]*\d[A-Za-z0-9_.-]*$`)
	nvCell     = lazy(`^NV\d+$`)
	legendLine = lazy(`^(NIC\d+)\s*[:=]\s*([A-Za-z]\S*)$`)
	// An entry of the legend of path types: "  SYS  = Connection …".
	typeLegend = lazy(`^(?:X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|PSB|C2C|QPI)\s*=\s`)
	affinityRE = lazy(`^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$`)
)

// cell reads one cell of the matrix: its type, and whether it is one.
func cell(s string) (string, bool) {
	switch s {
	case "X", "SYS", "NODE", "PHB", "PXB", "PIX", "C2C", "XGMI", "PCIE", "N/A":
		return s, true
	case "SOC":
		return "SYS", true
	case "PSB":
		return "PIX", true
	}
	if nvCell().MatchString(s) {
		return s, true
	}
	return s, false
}

// affinityWords are the words of the last columns' headings, alone and as they
// look when the tabs between them were lost.
func isAffinityWord(s string) bool {
	return slices.Contains([]string{"CPU", "Affinity", "NUMA", "GPU", "ID", "Node", "AffinityNUMA", "AffinityGPU", "Affinities", "CPU-Affinity", "NUMA-Affinity"}, s)
}

type matrixReader struct {
	m       *Matrix
	un      *unread
	columns []string // labels of the header, in order
	glued   bool     // the last columns' headings run into each other
	before  bool     // the affinity columns stand before the label (a markdown table)
	rows    map[string][]string
	tails   map[string][]string
	legend  map[string]string
	open    string // the row that a wrapped line would continue
	inBody  bool
	second  int // the line where another matrix begins
	amd     bool
}

// words makes cells of a line: a markdown table has bars.
func (r *matrixReader) words(l line) []string {
	s := l.text
	if strings.Count(s, "|") >= 2 {
		s = strings.NewReplacer("|", " ", "`", " ", "**", " ").Replace(s)
	}
	return strings.Fields(s)
}

// ReadMatrix reads the matrix and, in the same paste, the NIC legend and any
// port listing that says which HCAs are down.
func ReadMatrix(text string) Matrix {
	lines, host := split(text)
	m := Matrix{Host: host}
	r := &matrixReader{m: &m, un: &unread{host: host}, rows: map[string][]string{}, tails: map[string][]string{}, legend: map[string]string{}}
	for _, l := range lines {
		r.line(l)
	}
	r.build()
	m.judge(r, ReadPorts(text).Ports)
	m.Findings = append(m.Findings, r.un.findings("nvidia-smi topo -m")...)
	return m
}

func (r *matrixReader) line(l line) {
	t := strings.TrimSpace(l.text)
	if g := legendLine().FindStringSubmatch(t); g != nil {
		if _, there := r.legend[g[1]]; !there {
			r.legend[g[1]] = g[2]
		}
		r.inBody = false
		return
	}
	if strings.Contains(t, "Link Type between two GPUs") { // rocm-smi prints weight and hops in the same form first
		r.amd, r.columns, r.rows, r.inBody = true, nil, map[string][]string{}, false
		r.un.list = nil
		return
	}
	w := r.words(l)
	switch {
	case len(w) == 0 || typeLegend().MatchString(t) || t == "Legend:" || t == "NIC Legend:":
		if len(w) > 0 {
			r.inBody = false
		}
		return
	case r.header(l, w):
		return
	case r.columns == nil:
		return // before the matrix: whatever else was pasted
	case r.row(l, w):
		return
	case r.inBody && !isNoise(l.text):
		r.un.add(l, "not a row of the matrix")
	case r.inBody:
		r.inBody = false
	}
}

// header recognises the line of labels, or the rest of one that was wrapped.
func (r *matrixReader) header(l line, w []string) bool {
	var labels []string
	gpus := 0
	affinityFirst := false
	for i, s := range w {
		switch {
		case isAffinityWord(s):
			if i == 0 && len(w) > 1 {
				affinityFirst = true
			}
		case gpuLabel().MatchString(s):
			gpus++
			labels = append(labels, s)
		case nicLabel().MatchString(s):
			labels = append(labels, s)
		default:
			if _, isCell := cell(s); isCell || !hcaLabel().MatchString(s) {
				return false
			}
			labels = append(labels, s)
		}
	}
	tailOnly := len(labels) == 0 && len(w) > 0
	switch {
	case r.columns == nil || len(r.rows) > 0 && gpus > 0 && labels[0] == "GPU0" && r.legendSeen():
		if gpus == 0 || labels[0] != "GPU0" && !affinityFirst && len(labels) < 2 {
			return false
		}
		if r.columns != nil { // a second matrix
			if r.second == 0 {
				r.second = l.n
			}
			r.inBody = false
			return true
		}
		r.columns, r.inBody, r.before = labels, true, affinityFirst
	case len(r.rows) == 0 && r.inBody && (tailOnly || !slices.Contains(r.columns, labels[0])):
		r.columns = append(r.columns, labels...) // the header was wrapped
	default:
		return false
	}
	r.glued = r.glued || strings.Contains(l.text, "AffinityNUMA")
	return true
}

// legendSeen says that the first matrix is over: every label has its row.
func (r *matrixReader) legendSeen() bool { return !r.inBody || len(r.rows) >= len(r.columns) }

// row reads a row, or the rest of one that was wrapped.
func (r *matrixReader) row(l line, w []string) bool {
	at := slices.IndexFunc(w, func(s string) bool { return slices.Contains(r.columns, s) })
	if r.before && at > 0 || at == 0 {
		label := w[at]
		cells, rest := r.cells(w[at+1:], len(r.columns))
		if len(cells) == 0 {
			return false
		}
		if r.second > 0 {
			return true
		}
		if _, again := r.rows[label]; again {
			r.un.add(l, "a second row for %s", label)
			return true
		}
		r.rows[label], r.tails[label] = cells, rest
		if at > 0 {
			r.tails[label] = w[:at]
		}
		r.open, r.inBody = label, true
		return true
	}
	if r.open == "" || r.second > 0 || !r.inBody {
		return r.second > 0
	}
	have := len(r.rows[r.open])
	if have >= len(r.columns) {
		// The affinity columns on a line of their own.
		if len(r.tails[r.open]) == 0 && affinityRE().MatchString(w[0]) {
			r.tails[r.open] = w
			return true
		}
		return false
	}
	cells, rest := r.cells(w, len(r.columns)-have)
	if len(cells) == 0 {
		return false
	}
	r.rows[r.open] = append(r.rows[r.open], cells...)
	r.tails[r.open] = append(r.tails[r.open], rest...)
	return true
}

// cells takes at most n cells from the front of w; what follows is the rest.
func (r *matrixReader) cells(w []string, n int) (cells, rest []string) {
	for i, s := range w {
		c, ok := cell(s)
		if r.amd && s == "0" {
			c, ok = "X", true
		}
		if !ok || len(cells) == n {
			return cells, w[i:]
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// affinity reads the columns after the cells. Where the headings run into each
// other the values did too: "0-23,48-710" is CPUs 0-23,48-71 and NUMA node 0.
func (r *matrixReader) affinity(w []string) (cpus, numa string) {
	if len(w) == 0 || !affinityRE().MatchString(w[0]) {
		return "", ""
	}
	cpus = w[0]
	if len(w) > 1 && affinityRE().MatchString(w[1]) {
		return cpus, w[1]
	}
	if !r.glued || len(cpus) < 2 {
		return cpus, ""
	}
	head, last := cpus[:len(cpus)-1], cpus[len(cpus)-1:]
	if !affinityRE().MatchString(head) || !rising(head) {
		return cpus, ""
	}
	return head, last
}

// rising says that every range of a CPU list goes up.
func rising(list string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if lo, hi, ok := strings.Cut(part, "-"); ok {
			a, err1 := strconv.Atoi(lo)
			b, err2 := strconv.Atoi(hi)
			if err1 != nil || err2 != nil || b < a {
				return false
			}
		}
	}
	return true
}

func (r *matrixReader) build() {
	m := r.m
	name := func(label string) string {
		if n, ok := r.legend[label]; ok {
			return n
		}
		return label
	}
	var hcas []string
	for _, c := range r.columns {
		if gpuLabel().MatchString(c) {
			g := MatrixGPU{Name: c}
			g.CPUAffinity, g.NUMA = r.affinity(r.tails[c])
			m.GPUs = append(m.GPUs, g)
		} else {
			hcas = append(hcas, c)
			m.HCAs = append(m.HCAs, name(c))
		}
	}
	column := func(row, col string) string {
		i := slices.Index(r.columns, col)
		if cells := r.rows[row]; i >= 0 && i < len(cells) {
			return cells[i]
		}
		return ""
	}
	for gi, g := range m.GPUs {
		for _, h := range hcas {
			// Either half of a symmetric matrix will do.
			c := column(g.Name, h)
			if c == "" {
				c = column(h, g.Name)
			}
			if level := topology.PathType(c); slices.Contains(smiLevels, level) {
				m.Paths = append(m.Paths, MatrixPath{GPU: g.Name, HCA: name(h), SMI: level})
			}
		}
		for _, other := range m.GPUs[gi+1:] {
			c := column(g.Name, other.Name)
			if c == "" {
				c = column(other.Name, g.Name)
			}
			if c != "" && c != "X" && c != "N/A" {
				m.Links = append(m.Links, MatrixLink{A: g.Name, B: other.Name, Type: c})
			}
		}
	}
	for _, g := range m.GPUs {
		b := MatrixBest{GPU: g.Name}
		for _, level := range smiLevels {
			for _, p := range m.Paths {
				if p.GPU == g.Name && p.SMI == level {
					b.Level = level
					b.HCAs = append(b.HCAs, p.HCA)
				}
			}
			if b.Level != "" {
				break
			}
		}
		m.Best = append(m.Best, b)
	}
	// A row with too few cells was cut, and so is the matrix when rows are missing.
	for _, label := range r.columns {
		cells, there := r.rows[label]
		asym := false
		for i, c := range cells {
			if i < len(r.columns) {
				if back := column(r.columns[i], label); back != "" && back != c {
					asym = true
				}
			}
		}
		switch {
		case !there:
			m.add(finding.Finding{
				ID: "paste.cut", Severity: finding.Warning, Subject: label, Seen: "no row", Wanted: "one row for each column",
				Why: "its paths are read from the other rows only", Hint: "paste the whole output",
			})
		case len(cells) < len(r.columns):
			m.add(finding.Finding{
				ID: "paste.cut", Severity: finding.Warning, Subject: label, Seen: fmt.Sprintf("%d cells", len(cells)), Wanted: fmt.Sprintf("%d, one a column", len(r.columns)),
				Why: "the row was cut; what is missing is read from the other rows", Hint: "paste the whole output",
			})
		case asym && !r.amd:
			m.add(finding.Finding{
				ID: "paste.asymmetric", Severity: finding.Warning, Subject: label, Seen: "row and column differ", Wanted: "the same path in both directions",
				Why: "the text was changed by hand or mangled", Hint: "paste the output as it is",
			})
		}
	}
}

func (m *Matrix) add(f finding.Finding) {
	f.Host = m.Host
	m.Findings = append(m.Findings, f)
}

func (m *Matrix) judge(r *matrixReader, ports []Port) {
	if len(m.GPUs) == 0 {
		m.add(finding.Finding{
			ID: "paste.not-this", Severity: finding.Error, Subject: "topology matrix", Seen: "no line with GPU0 …", Wanted: "the output of 'nvidia-smi topo -m'",
			Why: "nothing can be said", Hint: "paste the whole output, header and legend included",
		})
		return
	}
	if r.second > 0 {
		m.add(finding.Finding{
			ID: "paste.second", Severity: finding.Warning, Subject: fmt.Sprintf("line %d", r.second), Seen: "another matrix", Wanted: "one matrix",
			Why: "only the first is read", Hint: "give each host's output by itself",
		})
	}
	if slices.ContainsFunc(m.HCAs, func(h string) bool { return nicLabel().MatchString(h) }) {
		m.add(finding.Finding{
			ID: "paste.no-legend", Severity: finding.Warning, Subject: "NIC legend", Seen: "NIC0 … without their names", Wanted: "the lines 'NIC0: mlx5_0' at the end",
			Why: "which HCA is meant cannot be told", Hint: "paste the output with its NIC legend",
		})
	}
	m.usable(ports)
	var far, none []string
	for _, b := range m.Best {
		switch {
		case b.Level == topology.SYS:
			far = append(far, b.GPU)
		case b.Level == "" && len(m.HCAs) > 0:
			none = append(none, b.GPU)
		}
	}
	if len(far) > 0 {
		m.add(finding.Finding{
			ID: "gdr.far-gpu", Severity: finding.Warning, Subject: strings.Join(far, ", "), Seen: "every HCA is SYS away", Wanted: "an HCA on the GPU's own socket",
			Why: "its traffic crosses the link between the sockets; GPUDirect is slow there or off", Hint: "NCCL relays through a GPU with NVLink and a near HCA where there is one (PXN); else host staging is the better way",
		})
	}
	if len(none) > 0 {
		m.add(finding.Finding{
			ID: "paste.cut", Severity: finding.Warning, Subject: strings.Join(none, ", "), Seen: "no path to any HCA could be read", Wanted: "one cell a GPU and HCA",
			Why: "nothing can be said of these GPUs", Hint: "paste the whole output",
		})
	}
}

// usable leaves out the HCAs that a port listing of the same paste shows down.
func (m *Matrix) usable(ports []Port) {
	down, known := map[string]bool{}, map[string]bool{}
	for i := range ports {
		if u := ports[i].Up(); u != nil {
			known[ports[i].HCA] = true
			down[ports[i].HCA] = !*u
		}
	}
	if len(known) == 0 {
		return
	}
	for i := range m.Best {
		b := &m.Best[i]
		b.Usable = []string{}
		var dead []string
		for _, h := range b.HCAs {
			if known[h] && down[h] {
				dead = append(dead, h)
			} else {
				b.Usable = append(b.Usable, h)
			}
		}
		if len(dead) == 0 {
			continue
		}
		sev, why := finding.Warning, "of the nearest HCAs only "+strings.Join(b.Usable, ", ")+" can be used"
		if len(b.Usable) == 0 {
			sev, why = finding.Error, "none of its nearest HCAs can be used"
		}
		m.add(finding.Finding{
			ID: "hca.port-down", Severity: sev, Subject: b.GPU, Seen: strings.Join(dead, ", ") + " down", Wanted: "ACTIVE and LinkUp", Why: why,
			Hint: "check cable and switch port of " + strings.Join(dead, ", "),
		})
	}
}
