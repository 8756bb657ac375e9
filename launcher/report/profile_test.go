package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/profiles"
)

// What profile show prints reads back as the same profile.
func TestProfilesReadBack(t *testing.T) {
	dir := t.TempDir()
	for _, i := range profiles.List(nil) {
		p, err := profiles.Load(nil, i.Name)
		if err != nil {
			t.Fatal(err)
		}
		p.Name = "copy-of-" + p.Name // under its own name it would be merged over the built-in
		var b bytes.Buffer
		if err := Profile(&b, p); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, p.Name+".toml")
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := profiles.Load(nil, file)
		if err != nil {
			t.Errorf("%s: %v\n%s", i.Name, err, b.String())
			continue
		}
		got.Source = p.Source
		if d := cmp.Diff(p, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", i.Name, d)
		}
		var js bytes.Buffer
		if err := ProfileJSON(&js, p); err != nil || !json.Valid(js.Bytes()) {
			t.Errorf("%s: JSON: %v", i.Name, err)
		}
	}
	for _, i := range profiles.ListWorkloads(nil) {
		w, err := profiles.LoadWorkload(nil, i.Name)
		if err != nil {
			t.Fatal(err)
		}
		w.Name = "copy-of-" + w.Name
		var b bytes.Buffer
		if err := Workload(&b, w); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, w.Name+".toml")
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := profiles.LoadWorkload(nil, file)
		if err != nil {
			t.Errorf("%s: %v", i.Name, err)
			continue
		}
		got.Source = w.Source
		if d := cmp.Diff(w, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", i.Name, d)
		}
	}
}

func TestProfileStringsReadBack(t *testing.T) {
	p := profiles.Profile{Name: "x", About: "a \"quoted\" back\\slash\ttab ü", Hints: []string{"line\nbreak", "bell\a"}, Env: []profiles.Setting{{Name: "A", Value: `"\$HOME" 'x'`, Why: "w"}}}
	var b bytes.Buffer
	if err := Profile(&b, p); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x.toml")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := profiles.Load(nil, file)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	got.Source = ""
	if d := cmp.Diff(p, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
