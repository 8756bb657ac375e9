package profiles

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestBugs holds the file's own rules: each entry says what happens, what to do and
// where it is told, and names nothing that no host could ever match.
func TestBugs(t *testing.T) {
	bugs, err := Bugs()
	if err != nil {
		t.Fatal(err)
	}
	if len(bugs) < 20 {
		t.Errorf("%d entries", len(bugs))
	}
	var ids []string
	for _, b := range bugs {
		if slices.Contains(ids, b.ID) || b.ID == "" || strings.ContainsAny(b.ID, " \t") {
			t.Errorf("the ID %q", b.ID)
		}
		ids = append(ids, b.ID)
		if !slices.Contains([]string{"nccl", "rccl", "ucx", "openmpi", "aws-ofi-nccl"}, b.Library) {
			t.Errorf("%s: library %q", b.ID, b.Library)
		}
		if b.Effect == "" || b.Advice == "" {
			t.Errorf("%s says neither what happens nor what to do", b.ID)
		}
		if u, err := url.Parse(b.Source); err != nil || u.Scheme != "https" || u.Path == "" {
			t.Errorf("%s: source %q", b.ID, b.Source)
		}
		if b.From == "" && b.FixedIn == "" && b.Last == "" {
			t.Errorf("%s is of every version", b.ID)
		}
		if b.FixedIn != "" && b.Last != "" {
			t.Errorf("%s has an end and a last", b.ID)
		}
		if !slices.Contains([]string{"", "ethernet", "infiniband"}, b.When.LinkLayer) {
			t.Errorf("%s: link layer %q", b.ID, b.When.LinkLayer)
		}
	}
}
