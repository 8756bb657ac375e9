package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

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
