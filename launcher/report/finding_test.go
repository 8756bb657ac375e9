package report

import (
	"strings"
	"testing"

	"fabrun/topology/finding"
)

// TestFindingsOfManyHosts: what is the same on many hosts is one line; what
// differs in more than the host, and its name in the hint, is not.
func TestFindingsOfManyHosts(t *testing.T) {
	refused := func(host, seen string) finding.Finding {
		return finding.Finding{ID: "node.unreachable", Severity: finding.Error, Host: host, Subject: "node", Seen: seen, Wanted: "a look", Why: "why", Hint: "connect once by hand: ssh " + host + " true"}
	}
	for _, tc := range []struct {
		name string
		in   []finding.Finding
		want []string
	}{
		{"alike", []finding.Finding{refused("n1", "refused"), refused("n2", "refused"), refused("n3", "refused")}, []string{"n[1-3]: node", "ssh HOST true"}},
		{"one", []finding.Finding{refused("n1", "refused")}, []string{"n1: node", "ssh n1 true"}},
		{"another reason", []finding.Finding{refused("n1", "refused"), refused("n2", "timeout")}, []string{"n1: node", "ssh n1 true", "n2: node", "ssh n2 true"}},
		{"a name that is a part of a word", []finding.Finding{refused("a", "refused"), refused("s", "refused")}, []string{"a,s: node", "connect once by hand: ssh HOST true"}},
		{"of no host", []finding.Finding{{ID: "x", Severity: finding.Note, Subject: "s"}, {ID: "x", Severity: finding.Note, Subject: "s"}}, []string{"x  s\n", "x  s\n"}},
	} {
		var b strings.Builder
		if err := Findings(&b, tc.in); err != nil {
			t.Fatal(err)
		}
		rest := b.String()
		for _, want := range tc.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: no %q in\n%s", tc.name, want, b.String())
			}
			rest = after
		}
		if n := strings.Count(b.String(), "wanted a look"); n > 2 || tc.name == "alike" && n != 1 {
			t.Errorf("%s: %d findings\n%s", tc.name, n, b.String())
		}
	}
}
