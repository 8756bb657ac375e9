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

// TestBugsOf: what is looked at before an entry is parsed is what is in it.
func TestBugsOf(t *testing.T) {
	var heads []Bug
	all, err := BugsOf(func(b Bug) bool { heads = append(heads, b); return true })
	if err != nil || len(all) != len(heads) || len(all) < 20 {
		t.Fatalf("%d bugs of %d entries, %v", len(all), len(heads), err)
	}
	for i, b := range all {
		if want := (Bug{Library: b.Library, From: b.From, Last: b.Last, FixedIn: b.FixedIn}); heads[i] != want {
			t.Errorf("%s: looked at %+v; parsed %+v", b.ID, heads[i], want)
		}
	}
	none, err := BugsOf(func(b Bug) bool { return b.Library == "no library" })
	if err != nil || len(none) != 0 {
		t.Errorf("%d bugs of no library, %v", len(none), err)
	}
}
