package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"fabrun/envgen"
	"fabrun/envgen/lint"
	"fabrun/launcher/preflight"
	"fabrun/launcher/watch"
)

// rulesPage is docs/rules.md: every ID that fabrun prints and what it is about,
// from the lists that do the work.
func rulesPage() string {
	var b strings.Builder
	b.WriteString("# Rules, checks and causes\n\nGenerated from the program's own lists ('make docs'). IDs are stable.\n")
	table := func(title, about string, rows [][2]string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| ID | about |\n|---|---|\n", title, about)
		for _, r := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r[0], strings.ReplaceAll(r[1], "|", "\\|"))
		}
	}
	table("Rules", "Which ports carry the job, which variables follow, and what is wrong with what was set (`fabrun env --explain`).", envgen.Rules())
	var checks [][2]string
	for _, c := range preflight.Checks() {
		checks = append(checks, [2]string{c.ID, c.About})
	}
	table("Checks", "What `fabrun check` looks at on each host.", checks)
	table("Across hosts", "In what the hosts of one job are held against each other (`fabrun check --hosts`, `fabrun run`; two of them with `fabrun diff`).", preflight.AcrossChecks())
	table("Measurements", "What `fabrun check --pairs`, `--collectives`, `--compare` and the pasted outputs of perftest, nccl-tests and OSU may show.", preflight.Measures())
	var stages [][2]string
	for _, st := range preflight.Stages() {
		stages = append(stages, [2]string{st.ID, st.About})
	}
	table("Bring-up", "The stages of `fabrun check --bringup`, in their order.", stages)
	table("Job scripts", "What `fabrun lint` finds beside the rules above.", lint.Rules())
	table("Causes", "Why a job went over TCP (`fabrun run`, `fabrun watch`).", watch.Causes())
	return b.String()
}

// TestRulesDocs holds docs/rules.md against the lists; 'make docs' writes it.
func TestRulesDocs(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "rules.md")
	want := rulesPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run make docs", err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/rules.md is not what the lists say (run make docs; -lists +file):\n%s", diff)
	}
}

// TestDocs holds docs/cli against the commands themselves; 'make docs' writes it.
func TestDocs(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "cli")
	want := map[string][]byte{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		c.DisableAutoGenTag = true
		var b bytes.Buffer
		if err := doc.GenMarkdown(c, &b); err != nil {
			t.Fatal(err)
		}
		want[strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"] = b.Bytes()
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := (&app{}).rootCmd()
	root.CompletionOptions.DisableDefaultCmd = true
	walk(root)
	if *update {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range have {
		if _, ok := want[e.Name()]; !ok {
			if *update {
				if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
					t.Fatal(err)
				}
				continue
			}
			t.Errorf("docs/cli/%s describes no verb; run make docs", e.Name())
		}
	}
	for name, text := range want {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v; run make docs", err)
			continue
		}
		if diff := cmp.Diff(string(text), string(got)); diff != "" {
			t.Errorf("%s is not what the command says (run make docs; -command +file):\n%s", path, diff)
		}
	}
}
