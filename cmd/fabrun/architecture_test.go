package main

import (
	"fmt"
	"go/doc"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// room is a package of the picture.
type room struct {
	name  string
	idea  string   // first sentence of its documentation
	uses  []string // its own packages that it imports
	level int      // 0 imports none of ours
}

// rooms are the packages of the program, and what they really import.
func rooms(t *testing.T) []room {
	t.Helper()
	var out []room
	for _, p := range goList(t) {
		name := strings.TrimPrefix(p.ImportPath, "fabrun/")
		if strings.HasPrefix(name, "testdata/") || strings.HasSuffix(name, "test") {
			continue
		}
		var pkg doc.Package
		r := room{name: name, idea: strings.TrimSuffix(pkg.Synopsis(p.Doc), ".")}
		if _, idea, ok := strings.Cut(r.idea, " "); ok && strings.HasPrefix(r.idea, "Package ") {
			_, r.idea, _ = strings.Cut(idea, " ")
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, "fabrun/"); ok && !strings.HasPrefix(own, "testdata/") {
				r.uses = append(r.uses, own)
			}
		}
		out = append(out, r)
	}
	for changed := true; changed; { // imports have no cycles: this ends
		changed = false
		for i := range out {
			for _, use := range out[i].uses {
				if j := slices.IndexFunc(out, func(r room) bool { return r.name == use }); j >= 0 && out[i].level <= out[j].level {
					out[i].level, changed = out[j].level+1, true
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b room) int { return b.level - a.level })
	return out
}

// direct is what of r's imports is reached through no other of them: the lines
// that a picture needs.
func direct(all []room, r room) []string {
	below := map[string]bool{}
	var walk func(string)
	walk = func(name string) {
		i := slices.IndexFunc(all, func(r room) bool { return r.name == name })
		if i < 0 {
			return
		}
		for _, use := range all[i].uses {
			if !below[use] {
				below[use] = true
				walk(use)
			}
		}
	}
	for _, use := range r.uses {
		walk(use)
	}
	return slices.DeleteFunc(slices.Clone(r.uses), func(use string) bool { return below[use] })
}

// drawRooms is the picture: every package on its floor, and a line to each that
// it uses and reaches through no other. Nothing has a line upwards.
func drawRooms(all []room) string {
	const boxH, gapX, gapY, margin, charW = 26, 14, 44, 16, 7
	type place struct{ x, y, w int }
	at := map[string]place{}
	floors := map[int][]room{}
	top := 0
	for _, r := range all {
		floors[r.level] = append(floors[r.level], r)
		top = max(top, r.level)
	}
	width := 0
	lengths := map[int]int{}
	for level, rs := range floors {
		for _, r := range rs {
			lengths[level] += len(r.name)*charW + 16 + gapX
		}
		width = max(width, lengths[level])
	}
	width += 2 * margin
	for level, rs := range floors {
		x := (width - lengths[level] + gapX) / 2
		for _, r := range rs {
			w := len(r.name)*charW + 16
			at[r.name] = place{x, margin + (top-level)*(boxH+gapY), w}
			x += w + gapX
		}
	}
	height := 2*margin + (top+1)*boxH + top*gapY
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"packages and what they import\">\n", width, height, width, height)
	b.WriteString("<style>text{font:12px monospace;fill:#111}.b{fill:#eef3fb;stroke:#4a6fa5}.c{fill:#f7efe2;stroke:#a5784a}path{fill:none;stroke:#9aa7b8;stroke-width:1}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n")
	for _, r := range all {
		from := at[r.name]
		for _, use := range direct(all, r) {
			to := at[use]
			x1, y1, x2, y2 := from.x+from.w/2, from.y+boxH, to.x+to.w/2, to.y
			fmt.Fprintf(&b, "<path d=\"M%d %d C%d %d %d %d %d %d\"/>\n", x1, y1, x1, y1+gapY/2, x2, y2-gapY/2, x2, y2)
		}
	}
	for _, r := range all {
		p, class := at[r.name], "b"
		if strings.HasPrefix(r.name, "cmd/") {
			class = "c"
		}
		fmt.Fprintf(&b, "<g><title>%s</title><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></g>\n",
			html.EscapeString(r.idea), class, p.x, p.y, p.w, boxH, p.x+p.w/2, p.y+17, r.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// architecturePage is docs/architecture.md.
func architecturePage(all []room) string {
	var b strings.Builder
	b.WriteString(`# How fabrun is built

Drawn from the code ('make docs'): this page and its picture cannot go stale.

## The way of the data

    discover → plan → preflight → launch → watch → report

A machine is read once into a value (` + "`topology.Host`" + `), from a file tree: this
machine's, another's over ssh, or a snapshot's. What is decided from it is pure:
the same hosts, profile and command line give the same plan, byte for byte. What
is done with a plan is apart from it. What happened is read from logs and
counters into events and a verdict, and shown by one package. CONTRIBUTING.md
says which package each stage is, and where one more of each kind goes.

## The picture

Every package on its floor; a line goes to what it uses and reaches through no
other. Imports only go down.

![packages and what they import](architecture.svg)

## The packages

`)
	b.WriteString("| package | one idea | may import | because |\n|---|---|---|---|\n")
	for _, r := range all {
		may, why := "all below", "verbs, flags, order of calls, exit codes"
		if i := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == r.name }); i >= 0 {
			may, why = "nothing of ours", layers[i].why
			if len(layers[i].may) > 0 {
				may = "`" + strings.Join(layers[i].may, "`, `") + "`"
			}
		} else if r.name != "cmd/fabrun" {
			why = "a program of its own"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, strings.ReplaceAll(r.idea, "|", "\\|"), may, why)
	}
	b.WriteString("\n## Where other people's code lives\n\n| module | home |\n|---|---|\n")
	var modules []string
	for m := range homes {
		modules = append(modules, m)
	}
	slices.Sort(modules)
	for _, m := range modules {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", m, homes[m])
	}
	return b.String()
}

// TestArchitectureDocs holds the page and the picture against the code.
func TestArchitectureDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command")
	}
	all := rooms(t)
	for name, want := range map[string]string{"architecture.md": architecturePage(all), "architecture.svg": drawRooms(all)} {
		path := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v; run make docs", err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("docs/%s is not what the code is (run make docs; -code +file):\n%s", name, diff)
		}
	}
}

// TestContributingDocs: every place that CONTRIBUTING names in a table is there,
// and every list has its name in that package.
func TestContributingDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the program")
	}
	f, err := ownFlow()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	span := regexp.MustCompile("`([^`]+)`")
	places, lists := 0, 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		pkg := ""
		for _, m := range span.FindAllStringSubmatch(cells[2], -1) {
			name := m[1]
			if _, err := os.Stat("../../" + name); err == nil {
				pkg = name
				if strings.HasSuffix(name, ".go") {
					pkg = filepath.Dir(name)
				}
				places++
				continue
			}
			if strings.Contains(name, "/") && !strings.Contains(name, "NAME") {
				t.Errorf("CONTRIBUTING names %s, which is not there", name)
			} else if p := f.pkgs["fabrun/"+pkg]; p != nil && regexp.MustCompile(`^\w+$`).MatchString(name) {
				if lists++; p.Scope().Lookup(name) == nil {
					t.Errorf("CONTRIBUTING names %s of %s, which is not there", name, pkg)
				}
			}
		}
	}
	if places < 15 || lists < 12 {
		t.Errorf("only %d places and %d lists: has the table another shape now?", places, lists)
	}
}
