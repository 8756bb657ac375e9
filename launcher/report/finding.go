package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"fabrun/launcher/hosts"
	"fabrun/topology/finding"
)

// Findings writes findings for people, worst first: what and where, then what
// was seen, what it means, and what to do.
func Findings(w io.Writer, fs []finding.Finding) error {
	t := &text{w: w}
	for _, f := range alike(sorted(fs)) {
		where := f.Subject
		if f.Host != "" {
			where = strings.TrimSpace(f.Host + ": " + f.Subject)
		}
		t.printf("%-7s  %s  %s\n", f.Severity, f.ID, where)
		if f.Seen != "" {
			seen := f.Seen
			if f.Wanted != "" {
				seen += "; wanted " + f.Wanted
			}
			t.wrap("         ", seen)
		}
		if f.Why != "" {
			t.wrap("         ", f.Why)
		}
		if f.Hint != "" {
			t.wrap("         → ", f.Hint)
		}
	}
	return t.err
}

// alike makes one finding of those that differ in their host only, in the place
// of the first.
func alike(fs []finding.Finding) []finding.Finding {
	var out []finding.Finding
	type group struct {
		at    int // in out
		names []string
	}
	groups := map[finding.Finding]*group{}
	for _, f := range fs {
		key := f
		key.Host, key.Hint = "", withoutHost(f.Hint, f.Host)
		g, ok := groups[key]
		if !ok || f.Host == "" {
			if f.Host != "" {
				groups[key] = &group{len(out), []string{f.Host}}
			}
			out = append(out, f)
			continue
		}
		g.names = append(g.names, f.Host)
		out[g.at].Host, out[g.at].Hint = hosts.Compress(g.names), key.Hint
	}
	return out
}

// withoutHost writes HOST for a host's name where it is a word of a hint.
func withoutHost(hint, host string) string {
	if host == "" || !strings.Contains(hint, host) {
		return hint
	}
	words := strings.Split(hint, " ")
	for i, w := range words {
		if bare := strings.Trim(w, "'\",.;"); bare == host {
			words[i] = strings.Replace(w, host, "HOST", 1)
		}
	}
	return strings.Join(words, " ")
}

func sorted(fs []finding.Finding) []finding.Finding {
	out := append([]finding.Finding(nil), fs...)
	finding.Sort(out)
	return out
}

// text writes lines and keeps the first error, so that a renderer reads as the
// page it makes.
type text struct {
	w   io.Writer
	err error
}

func (t *text) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = io.WriteString(t.w, Printable(fmt.Sprintf(format, args...)))
	}
}

// Printable is a text for a person's terminal: what comes from other machines,
// snapshots, records and logs moves no cursor and rewrites no title. Lines and
// tabs stay.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

// width is what a line should fit in.
const width = 80

// wrap writes s in lines of at most width, each after the indent; a single
// long word stays whole, so that it can be pasted.
func (t *text) wrap(indent, s string) {
	line := indent
	rest := strings.Repeat(" ", len([]rune(indent)))
	empty := true
	for _, word := range strings.Fields(s) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			t.printf("%s\n", line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	if !empty {
		t.printf("%s\n", line)
	}
}
