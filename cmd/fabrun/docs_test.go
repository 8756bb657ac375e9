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

	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
	"fabrun/profiles"
	"fabrun/topology/finding"
)

// rulesPage is docs/rules.md: every ID that fabrun prints and what it is about,
// from the tables that the program itself uses.
func rulesPage() string {
	var b strings.Builder
	b.WriteString("# Findings, rules, events and causes\n\nEvery ID that fabrun prints. Generated from the program's own tables ('make docs'). IDs are stable.\n")
	table := func(title, about string, head []string, rows [][]string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| %s |\n|%s\n", title, about, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, r := range rows {
			for i, cell := range r {
				r[i] = strings.ReplaceAll(cell, "|", "\\|")
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", r[0], strings.Join(r[1:], " | "))
		}
	}
	var rows [][]string
	for _, k := range finding.Kinds() {
		strict := ""
		if k.BlocksRDMA {
			strict = "yes"
		}
		rows = append(rows, []string{k.ID, k.About, string(k.Stage), strict, strings.Join(k.Supersedes, ", ")})
	}
	table("Findings", "What `fabrun check`, `plan`, `env`, `run`, `topo`, `lint` and their kind find. A `*` stands for a number. "+
		"*Stage* is the stage of `fabrun check --bringup`; *blocks* says that RDMA cannot carry the whole job while it is an error (`--strict` does not start it); "+
		"*instead of* names findings that are not said of a host beside it.",
		[]string{"ID", "about", "stage", "blocks", "instead of"}, rows)
	rows = nil
	for _, st := range check.Stages() {
		rows = append(rows, []string{string(st.ID), st.About, st.Do})
	}
	table("Bring-up", "The stages of `fabrun check --bringup`, in their order.", []string{"stage", "about", "when it fails"}, rows)
	topics := func(ts []finding.Topic) (rows [][]string) {
		for _, x := range ts {
			rows = append(rows, []string{x.ID, x.About})
		}
		return rows
	}
	table("Rules", "Why a variable has its value, and why a port is left out (`fabrun env --explain`, `fabrun plan`).", []string{"ID", "about"}, topics(finding.Rules()))
	table("Events", "What the log and the counters of a job tell (`fabrun run`, `fabrun watch`).", []string{"ID", "about"}, topics(finding.Events()))
	rows = nil
	for _, k := range plan.NodeKeeps() {
		rows = append(rows, []string{k[0], k[1]})
	}
	table("Kept by each node", "torchrun that fabrun starts on several nodes gets the whole of the user's environment there, but for these names: each node has its own. "+
		"`--env NAME` hands one over all the same, `--no-env NAME` keeps another one. Added are `FABRUN_JOB`, `OMPI_FABRUN_JOB`, what `fabrun plan` prints, "+
		"and `PYTHONUNBUFFERED=1` where torchrun is told to `--tee`.", []string{"names", "what they name"}, rows)
	rows = nil
	for _, c := range watch.Causes() {
		rows = append(rows, []string{c[0], c[1]})
	}
	table("Causes", "Why a job went over TCP (`fabrun run`, `fabrun watch`).", []string{"ID", "what is said"}, rows)
	bugs, err := profiles.Bugs()
	if err != nil {
		panic(err)
	}
	rows = nil
	for _, b := range bugs {
		until := ""
		switch {
		case b.FixedIn != "":
			until = "before " + b.FixedIn
		case b.Last != "":
			until = "to " + b.Last
		}
		rows = append(rows, []string{b.ID, b.Library, strings.TrimSpace(b.From + " " + until), b.Effect, b.Source})
	}
	table("Known bugs", "What `fabrun plan` and `fabrun watch` note of the versions they see, where the hosts are such that it can bite (profiles/bugs.toml).",
		[]string{"ID", "library", "versions", "what happens", "told at"}, rows)
	return b.String()
}

// TestRulesDocs holds docs/rules.md against the lists; 'make docs' writes it.
func TestRulesDocs(t *testing.T) { holdDocs(t, "rules.md", rulesPage()) }

// exitPage is docs/exit-status.md: the numbers of launcher/exit, then what each verb
// says of itself.
func exitPage() string {
	var b strings.Builder
	b.WriteString(`# Exit status

` + "`fabrun run`" + ` (also without the word) ends with the job's own status, so that scripts,
schedulers and job arrays see what they would see without fabrun. What fabrun says
of itself there are numbers that launchers do not use.

| status of run | when |
|---|---|
`)
	for _, row := range []struct {
		status, when string
	}{
		{"the job's", "it was started; fabrun never makes a success a failure, but for 121"},
		{fmt.Sprintf("%d+n", exit.SignalsBase), fmt.Sprintf("signal n ended it, or fabrun before the job was started: %d after Ctrl-C, %d after TERM", exit.SignalsBase+2, exit.SignalsBase+15)},
		{fmt.Sprint(exit.Internal), "an internal failure of fabrun's: please report it, with `fabrun snapshot`"},
		{fmt.Sprint(exit.Contract), "only with --strict: it was proved that the job does not run as planned (TCP between nodes, fewer rails, no GPUDirect), and it was ended"},
		{fmt.Sprint(exit.Preflight), "only with --strict: the job was not started, since it could not run as planned, or hosts could not be looked at"},
		{fmt.Sprint(exit.NoPlan), "no plan is possible: the command line, a host list or a profile contradicts itself"},
		{fmt.Sprint(exit.RunUsage), "a wrong call of fabrun"},
		{fmt.Sprint(exit.NotExec), "the program is not executable"},
		{fmt.Sprint(exit.NotFound), "the program is not there"},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.status, row.when)
	}
	fmt.Fprintf(&b, `
`+"```console"+`
$ fabrun sh -c 'exit 7' 2>/dev/null; echo $?
7
$ fabrun sh -c 'kill -9 $$' 2>/dev/null; echo $?
%d
$ fabrun --no-such-flag mpirun -np 2 ./a.out 2>/dev/null; echo $?
%d
$ fabrun run -- no-such-program 2>/dev/null; echo $?
%d
`+"```"+`

The other verbs end with %d when all is well, %d for findings of severity error or when
they could not do it, %d for a wrong call; 128+n when signal n ended them. Each says it
of itself:

| verb | exit status |
|---|---|
`, exit.SignalsBase+9, exit.RunUsage, exit.NotFound, exit.OK, exit.Findings, exit.Usage)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if _, says, ok := strings.Cut(c.Long, "Exit status: "); ok && c.HasParent() && !c.HasSubCommands() {
			says, _, _ = strings.Cut(says, "\n\n")
			path := c.CommandPath()
			fmt.Fprintf(&b, "| [%s](cli/%s.md) | %s |\n", strings.TrimPrefix(path, "fabrun "), strings.ReplaceAll(path, " ", "_"), strings.Join(strings.Fields(says), " "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := (&app{}).rootCmd()
	root.CompletionOptions.DisableDefaultCmd = true
	walk(root)
	return b.String()
}

// TestExitStatusDocs holds docs/exit-status.md; 'make docs' writes it.
func TestExitStatusDocs(t *testing.T) { holdDocs(t, "exit-status.md", exitPage()) }

// holdDocs compares a generated page with the one of docs, or writes it.
func holdDocs(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
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
		t.Errorf("docs/%s is not what the program says (run make docs; -program +file):\n%s", name, diff)
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
