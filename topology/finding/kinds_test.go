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

// A fault and what the other hosts see of it are one; another fault of the port, or
// the same one of another port, is not.
func TestOnce(t *testing.T) {
	down := Finding{ID: "hca.port-down", Severity: Error, Host: "n3", Subject: "mlx5_3 port 1", Seen: "DOWN"}
	shadow := Finding{ID: "across.state", Severity: Error, Host: "n3", Subject: "mlx5_3 port 1", Seen: "DOWN"}
	change := func(f Finding, c func(f *Finding)) Finding { c(&f); return f }
	for _, tt := range []struct {
		name string
		in   []Finding
		want int
	}{
		{"a port and its shadow", []Finding{shadow, down}, 1},
		{"without a majority", []Finding{down, change(shadow, func(f *Finding) { f.Host, f.Seen = "", "ACTIVE on 1; DOWN on 1" })}, 1},
		{"as the plan names ports", []Finding{change(down, func(f *Finding) { f.Subject = "mlx5_3:1" }), shadow}, 1},
		{"with its interface", []Finding{{ID: "mtu.netdev", Severity: Error, Host: "n3", Subject: "mlx5_3 port 1 (eth3)"}, {ID: "across.mtu", Severity: Error, Host: "n3", Subject: "mlx5_3 port 1"}}, 1},
		{"the right one called odd by two wrong ones", []Finding{{ID: "qos.trust", Severity: Error, Host: "n1", Subject: "mlx5_3 port 1 (eth3)"}, {ID: "across.trust", Severity: Error, Host: "n3", Subject: "mlx5_3 port 1"}}, 1},
		{"another port", []Finding{down, change(shadow, func(f *Finding) { f.Subject = "mlx5_4 port 1" })}, 2},
		{"another fault", []Finding{down, {ID: "across.firmware", Severity: Warning, Host: "n3", Subject: "mlx5_3 port 1"}}, 2},
		{"a note about a port that is not the job's", []Finding{change(down, func(f *Finding) { f.Severity = Note }), shadow}, 2},
		{"a shadow alone", []Finding{shadow}, 1},
	} {
		if got := Once(tt.in); len(got) != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
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
