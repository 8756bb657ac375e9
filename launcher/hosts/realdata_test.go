package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/testdata/realdata"
)

// rows reads a tab-separated table without its heading.
func rows(t *testing.T, path string, columns int) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if i == 0 {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) < columns {
			t.Fatalf("%s:%d: %d columns, want %d", path, i+1, len(f), columns)
		}
		out = append(out, f)
	}
	return out
}

func TestRealdataNodelists(t *testing.T) {
	dir := realdata.Dir(t, "nodelists")
	tally := &realdata.Tally{Set: "nodelists: expressions"}
	for _, r := range rows(t, filepath.Join(dir, "slurm-nodelists.tsv"), 5) {
		expr, expansion := r[0], r[4]
		got, err := Expand(expr)
		ok := err == nil && strconv.Itoa(len(got)) == r[1] && got[0] == r[2] && got[len(got)-1] == r[3]
		if ok && !strings.HasPrefix(expansion, "(") {
			ok = strings.Join(got, ",") == expansion
		}
		if ok {
			back, err := Expand(Compress(got))
			ok = err == nil && cmp.Equal(got, back)
		}
		tally.Count(ok, expr, fmt.Sprintf("got %d names, %v", len(got), err))
	}
	tally.Print(t)

	tally = &realdata.Tally{Set: "nodelists: refused"}
	for _, r := range rows(t, filepath.Join(dir, "invalid.tsv"), 2) {
		got, err := Expand(r[0])
		tally.Count(err != nil && strings.Contains(err.Error(), "character "), r[0], fmt.Sprintf("got %d names, %v", len(got), err))
	}
	tally.Print(t)

	tally = &realdata.Tally{Set: "nodelists: tasks per node"}
	for _, r := range rows(t, filepath.Join(dir, "tasks-per-node.tsv"), 4) {
		got, err := ParseRunLengths(r[0])
		total, text := 0, make([]string, len(got))
		for i, n := range got {
			total += n
			text[i] = strconv.Itoa(n)
		}
		tally.Count(err == nil && strconv.Itoa(len(got)) == r[1] && strconv.Itoa(total) == r[2] && strings.Join(text, " ") == r[3],
			r[0], fmt.Sprintf("got %v, %v", got, err))
	}
	tally.Print(t)
}

func TestRealdataEnvironments(t *testing.T) {
	dir := realdata.Dir(t, "env")
	files, err := filepath.Glob(filepath.Join(dir, "*.env"))
	if err != nil {
		t.Fatal(err)
	}
	tally := &realdata.Tally{Set: "env: allocations"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		vars := map[string]string{}
		for line := range bytes.Lines(text) {
			if k, v, ok := strings.Cut(strings.TrimRight(string(line), "\n"), "="); ok {
				vars[k] = v
			}
		}
		truthText, err := os.ReadFile(strings.TrimSuffix(file, ".env") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var truth struct {
			Scheduler string  `json:"scheduler"`
			Hosts     [][]any `json:"hosts"`
		}
		if err := json.Unmarshal(truthText, &truth); err != nil {
			t.Fatal(err)
		}
		a, err := FromEnv(lookup(vars), func(p string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, p)) })
		want := make([]string, 0, len(truth.Hosts))
		for _, h := range truth.Hosts {
			want = append(want, fmt.Sprintf("%v:%v", h[0], h[1]))
		}
		diff := cmp.Diff(want, spell(a.Hosts))
		tally.Count(err == nil && a.Manager == truth.Scheduler && diff == "", filepath.Base(file), fmt.Sprintf("%s %v %s", a.Manager, err, diff))
	}
	tally.Print(t)
}

// lookup makes an environment of a map.
func lookup(vars map[string]string) LookupEnv {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// spell writes hosts as name:slots, name:? where the slots are unknown.
func spell(hosts []Host) []string {
	out := make([]string, len(hosts))
	for i, h := range hosts {
		slots := "?"
		if h.Slots != nil {
			slots = strconv.Itoa(*h.Slots)
		}
		out[i] = h.Name + ":" + slots
	}
	return out
}
