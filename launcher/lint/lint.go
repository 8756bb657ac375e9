package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fabrun/envgen"
	"fabrun/profiles"
	"fabrun/topology/finding"
)

// Problem is one mistake with its place and, where a line can be mended by
// itself, the line as it should be.
type Problem struct {
	finding.Finding
	File  string `json:"file"`
	Line  int    `json:"line"`
	Text  string `json:"text"`  // the line as it stands
	Fixed string `json:"fixed"` // the line mended; "" where that takes more than one line
}

// rule looks at a whole script for one mistake.
type rule struct {
	id   string
	find func(*Script) []Problem
}

// rules is every mistake of scripts that is looked for; those of values alone
// are envgen's.
func rules() []rule {
	return []rule{
		{"script.unreadable", unreadable},
		{"script.typography", typography},
		{"script.not-exported", notExported},
		{"script.too-late", tooLate},
		{"script.not-forwarded", notForwarded},
		{"script.x-value", forwardValue},
		{"script.export-without-all", exportWithoutAll},
		{"script.export-comma", exportComma},
		{"script.export-loses", exportLoses},
		{"script.export-none", exportNone},
		{"script.expanded-early", expandedEarly},
		{"script.rendezvous-localhost", rendezvousLocal},
		{"script.port-ephemeral", ports},
		{"hca.per-rank", perRank},
		{"script.memlock", memlock},
		{"image.shell-entrypoint", shellEntrypoint},
		{"image.run-export", runExport},
		{"pod.ipc-lock", podLocks},
		{"pod.rdma-device", podDevices},
		{"pod.shm", podShm},
		{"pod.host-dns", podNames},
		{"pod.limits", podLimits},
		{"pod.env-string", podStrings},
	}
}

// Judge returns what is wrong with a script, by line. A profile and versions
// sharpen it where they are known.
func Judge(s *Script, profile *profiles.Profile, versions envgen.Versions) []Problem {
	var out []Problem
	for _, part := range append([]*Script{s}, s.parts...) {
		for _, r := range rules() {
			for _, p := range r.find(part) {
				if p.ID == "" {
					p.ID = r.id
				}
				out = append(out, p)
			}
		}
		out = append(out, judgeValues(part, profile, versions)...)
	}
	seen := map[string]bool{}
	var kept []Problem
	for _, p := range out {
		key := fmt.Sprintf("%d %s %s", p.Line, p.ID, p.Subject)
		if seen[key] || len(kept) >= maxProblem {
			continue
		}
		seen[key] = true
		p.File = s.Name
		p.Text = s.at(p.Line)
		if p.Fixed == p.Text {
			p.Fixed = ""
		}
		p.Subject = fmt.Sprintf("%s:%d", s.Name, p.Line)
		kept = append(kept, p)
	}
	slices.SortStableFunc(kept, func(a, b Problem) int { return a.Line - b.Line })
	return kept
}

// at is a line of the script without its indentation; "" beyond its end.
func (s *Script) at(line int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	return strings.TrimSpace(s.lines[line-1])
}

// inForce reports whether a setting reaches a program at all.
func (s *Script) inForce(set Setting) bool {
	return set.How != Assigned || slices.ContainsFunc(s.Launches, func(l Launch) bool { return slices.Contains(l.Forward, set.Name) })
}

// judgeValues holds every setting against what envgen knows, alone, and those
// of one launch together.
func judgeValues(s *Script, profile *profiles.Profile, versions envgen.Versions) []Problem {
	var out []Problem
	one := func(set Setting) envgen.Setting {
		return envgen.Setting{Name: set.Name, Value: set.Value.Text, Origin: envgen.FromUser}
	}
	add := func(f finding.Finding, set Setting) {
		out = append(out, Problem{Finding: f, Line: set.Line, Fixed: fixed(s.at(set.Line), set, f.Hint)})
	}
	for _, set := range s.Settings {
		if !s.inForce(set) {
			continue
		}
		for _, f := range envgen.Judge([]envgen.Setting{one(set)}, nil, profile, versions) {
			add(f, set)
		}
	}
	for n := range max(len(s.Launches), 1) {
		last := map[string]Setting{}
		var names []string
		for _, set := range s.Settings {
			if s.inForce(set) && (set.Launch < 0 || set.Launch == n) && set.Before <= n {
				if _, ok := last[set.Name]; !ok {
					names = append(names, set.Name)
				}
				last[set.Name] = set
			}
		}
		var all []envgen.Setting
		for _, name := range names {
			all = append(all, one(last[name]))
		}
		for _, f := range envgen.Judge(all, nil, profile, versions) {
			if set, ok := last[f.Subject]; ok {
				add(f, set)
			}
		}
	}
	return out
}

var meant = lazy(`^(?:perhaps meant: )?([A-Za-z_][A-Za-z0-9_]*)=('[^']*'|"[^"]*"|[^\s'"]*)$`)

// fixed mends the line that sets a variable as a hint says, where the hint is
// an assignment and the line makes it in a form that can be told for certain.
func fixed(line string, set Setting, hint string) string {
	m := meant().FindStringSubmatch(hint)
	if m == nil {
		return ""
	}
	value := m[2]
	if strings.ContainsAny(value, " \t;&|<>()$`") && value[0] != '\'' && value[0] != '"' {
		value = "'" + value + "'"
	}
	old := regexp.QuoteMeta(set.Name)
	if set.How == SrunList {
		return "" // commas and quotes decide there
	}
	assign := regexp.MustCompile(`(^|[\s'";])` + old + `=('[^']*'|"[^"]*"|[^\s;|&)'"]*)`)
	if loc := assign.FindStringSubmatchIndex(line); loc != nil {
		return line[:loc[3]] + m[1] + "=" + value + line[loc[1]:]
	}
	mca, isMCA := strings.CutPrefix(set.Name, "OMPI_MCA_")
	newMCA, stays := strings.CutPrefix(m[1], "OMPI_MCA_")
	if isMCA && stays {
		pair := regexp.MustCompile(`(mca\s+)` + regexp.QuoteMeta(mca) + `(\s+)('[^']*'|"[^"]*"|\S+)`)
		if loc := pair.FindStringSubmatchIndex(line); loc != nil {
			return line[:loc[3]] + newMCA + line[loc[4]:loc[5]] + value + line[loc[1]:]
		}
	}
	pair := regexp.MustCompile(`(env\s+)` + old + `(\s+)('[^']*'|"[^"]*"|\S+)`)
	if loc := pair.FindStringSubmatchIndex(line); loc != nil {
		return line[:loc[3]] + m[1] + line[loc[4]:loc[5]] + value + line[loc[1]:]
	}
	return ""
}

// lazy compiles expr when it is first used: most runs need none of a
// package's expressions, and all of them together cost more than a plan.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
