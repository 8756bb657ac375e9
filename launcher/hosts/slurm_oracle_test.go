package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExpandAsSlurm compares 10,000 random lists with Slurm's own scontrol show
// hostnames. Items are joined by markers, so that one call answers for many.
//
// Two things are not compared: text behind a bracket, which Slurm refuses
// before 23.11, and the order of items with three brackets and more, where
// 22.05 varies the last bracket fastest and then the first (n0_0_0 n0_0_1
// n1_0_0), later ones as one counts.
func TestExpandAsSlurm(t *testing.T) {
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skipf("no Slurm: %v (apt-get install slurm-wlm)", err)
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	const all, batch = 10000, 250
	for done := 0; done < all; done += batch {
		items := make([]string, batch)
		var list strings.Builder
		for i := range items {
			items[i] = randomItem(r, false)
			for range r.IntN(3) {
				items[i] += "," + randomItem(r, false)
			}
			fmt.Fprintf(&list, "%s,zzmark%d-,", items[i], i)
		}
		cmd := exec.Command(scontrol, "show", "hostnames", list.String())
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("scontrol does not answer here: %v: %s", err, out)
		}
		rest := strings.Fields(string(out))
		for i, item := range items {
			end := slices.Index(rest, fmt.Sprintf("zzmark%d-", i))
			if end < 0 {
				t.Fatalf("scontrol lost the mark behind %q", item)
			}
			want := rest[:end]
			rest = rest[end+1:]
			got, err := Expand(item)
			if err != nil {
				t.Fatalf("Expand(%q): %v", item, err)
			}
			if deepItem(item) {
				got, want = slices.Clone(got), slices.Clone(want)
				slices.Sort(got)
				slices.Sort(want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q: scontrol and Expand differ: %s", item, diff)
			}
		}
	}
	t.Logf("%d lists agree", all)
}

// deepItem reports whether an item of a list has three brackets or more.
func deepItem(list string) bool {
	words, err := splitList(list)
	return err != nil || slices.ContainsFunc(words, func(w word) bool { return strings.Count(w.text, "[") > 2 })
}
