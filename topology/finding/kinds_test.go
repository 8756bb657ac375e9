package finding

import (
	"slices"
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	byID := func(a, b Kind) int { return strings.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(kinds, byID) {
		t.Error("kinds is not in the order of its IDs")
	}
	for i, k := range kinds {
		if k.About == "" || i > 0 && kinds[i-1].ID == k.ID {
			t.Errorf("%s: no words, or twice", k.ID)
		}
		for _, other := range k.Supersedes {
			if got, ok := KindOf(other); !ok || other == k.ID || slices.Contains(got.Supersedes, k.ID) {
				t.Errorf("%s supersedes %s, which has no row or supersedes it", k.ID, other)
			}
		}
	}
	for _, topics := range [][]Topic{rules, events} {
		if !slices.IsSortedFunc(topics, func(a, b Topic) int { return strings.Compare(a.ID, b.ID) }) {
			t.Error("the topics are not in the order of their IDs")
		}
		for i, x := range topics {
			if x.About == "" || i > 0 && topics[i-1].ID == x.ID {
				t.Errorf("%s: no words, or twice", x.ID)
			}
		}
	}
}

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		id, want string
	}{
		{"hca.port-down", "hca.port-down"},
		{"perftest.completion-12", "perftest.completion-*"},
		{"perftest.completion", ""},
		{"port.stat", ""},
		{"", ""},
	} {
		if k, ok := KindOf(c.id); k.ID != c.want || ok != (c.want != "") {
			t.Errorf("KindOf(%q) = %q, %v; want %q", c.id, k.ID, ok, c.want)
		}
	}
	if !Supersedes("hca.port-down", "hca.port-down") || !Supersedes("hca.port-down", "across.state") || Supersedes("across.state", "hca.port-down") || Supersedes("no.such", "hca.port-down") {
		t.Error("Supersedes does not read the table")
	}
}
