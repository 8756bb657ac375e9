package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed is what the shell is offered after these words.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(context.Background(), slices.Concat([]string{"fabrun", "__completeNoDesc"}, words), nil, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("%q: status %d: %s", words, status, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last is the directive
}

func TestCompletions(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{""}, "plan"},
		{[]string{"slurm", ""}, "task-prolog"},
		{[]string{"plan", "--profile", ""}, "roce-dscp26"},
		{[]string{"--profile", ""}, "roce-dscp26"},
		{[]string{"--workload", ""}, "openfoam"},
		{[]string{"profile", "show", ""}, "roce-dscp26"},
		{[]string{"topo", "--color", ""}, "never"},
	} {
		if got := completed(t, c.words...); !slices.Contains(got, c.want) {
			t.Errorf("%q completes to %q, without %q", c.words, got, c.want)
		}
	}
	// Words that are offered are words that the flag's own text lists.
	root := (&app{}).rootCmd()
	for _, path := range []string{"env --format", "env --mpi", "hosts --format", "hosts --dialect", "check --pairs", "check --remote", "run --preflight", "run --remote", "profile show --switch"} {
		words := strings.Fields(path)
		c, _, err := root.Find(words[:len(words)-1])
		if err != nil {
			t.Fatal(err)
		}
		usage := c.Flags().Lookup(strings.TrimPrefix(words[len(words)-1], "--")).Usage
		got := completed(t, append(words, "")...)
		if len(got) < 3 {
			t.Errorf("%s completes to %q only", path, got)
		}
		for _, w := range got {
			if !strings.Contains(usage, w) {
				t.Errorf("%s completes to %q, which its text does not have: %s", path, w, usage)
			}
		}
	}
}

// TestCompletionOfBash asks a real bash.
func TestCompletionOfBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	const helpers = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(helpers); err != nil {
		t.Skip("no bash-completion here: its helpers are what bash's completions stand on")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "fabrun")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, "--norc", "-c", "source "+helpers+`; source <(fabrun completion bash)
COMP_LINE='fabrun profile show roce-dscp2' COMP_POINT=30 COMP_WORDS=(fabrun profile show roce-dscp2) COMP_CWORD=3 COMP_TYPE=9
__start_fabrun
echo "${COMPREPLY[@]}"`)
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "roce-dscp26" {
		t.Errorf("bash completes to %q, %v", out, err)
	}
}
