package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/exit"
	"fabrun/testdata/realdata"
	"fabrun/topology/finding"
)

// expertTruth is what a specialist expects of one host.
type expertTruth struct {
	Expect      map[string]*string `json:"expect"`        // null: not set
	MustFind    []string           `json:"must_find"`     // regular expressions over lines of findings
	MustNotFind []string           `json:"must_not_find"` // likewise
	Args        []string           `json:"args"`          // of the verbs
	Pair        string             `json:"pair"`          // the host with which it cannot work
	ScopeNot    map[string]string  `json:"scope_not"`     // variable: the scope that it must not have
	Weight      string             `json:"weight"`        // "firm", "debatable"
	Why         string             `json:"why,omitempty"` // for people
	Source      string             `json:"source,omitempty"`
}

// asked is what one verb answered.
type asked struct {
	Vars []struct {
		Name  string
		Value string
		Scope string
	}
	Findings []finding.Finding
	Hosts    []struct {
		Findings []finding.Finding
	}
}

func (a asked) lines() []string {
	all := slices.Clone(a.Findings)
	for _, h := range a.Hosts {
		all = append(all, h.Findings...)
	}
	var out []string
	for _, f := range all {
		out = append(out, strings.Join([]string{string(f.Severity), f.ID, f.Subject, f.Seen, f.Wanted, f.Why, f.Hint}, " "))
	}
	return out
}

// askVerb runs a verb as a person would, in this process, without an environment.
func askVerb(t *testing.T, args ...string) asked {
	t.Helper()
	var out, said bytes.Buffer
	code := run(t.Context(), append([]string{"fabrun", "--json"}, args...), []string{"HOME=" + t.TempDir(), "PATH=/nonexistent"}, strings.NewReader(""), &out, &said)
	if code != 0 && code != exit.Findings {
		t.Fatalf("fabrun %s: status %d: %s", strings.Join(args, " "), code, said.String())
	}
	var a asked
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("fabrun %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return a
}

// profileArgs are those of the arguments that every verb takes.
func profileArgs(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case (args[i] == "--profile" || args[i] == "--workload") && i+1 < len(args):
			out = append(out, args[i], args[i+1])
			i++
		case strings.HasPrefix(args[i], "--profile=") || strings.HasPrefix(args[i], "--workload="):
			out = append(out, args[i])
		}
	}
	return out
}

// missed says in what the verbs do not do what the specialist would.
func (want expertTruth) missed(t *testing.T, snap string) []string {
	t.Helper()
	env := askVerb(t, slices.Concat([]string{"env", "--from", snap}, want.Args)...)
	checks := askVerb(t, slices.Concat([]string{"check", "--from", snap}, profileArgs(want.Args))...)
	var out []string
	miss := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, v := range slices.Sorted(maps.Keys(want.Expect)) {
		value := want.Expect[v]
		i := slices.IndexFunc(env.Vars, func(x struct{ Name, Value, Scope string }) bool { return x.Name == v })
		switch {
		case i < 0 && value != nil:
			miss("%s is not set, want %s", v, *value)
		case i >= 0 && value == nil:
			miss("%s=%s, want it left alone", v, env.Vars[i].Value)
		case i >= 0 && env.Vars[i].Value != *value:
			miss("%s=%s, want %s", v, env.Vars[i].Value, *value)
		}
	}
	for _, v := range env.Vars {
		if s, ok := want.ScopeNot[v.Name]; ok && v.Scope == s {
			miss("%s is one value per %s", v.Name, s)
		}
	}
	lines := append(env.lines(), checks.lines()...)
	if want.Pair != "" {
		both := askVerb(t, slices.Concat([]string{"check"}, profileArgs(want.Args), []string{filepath.Join(filepath.Dir(snap), want.Pair+".snap"), snap})...).lines()
		if !slices.ContainsFunc(both, func(l string) bool { return strings.HasPrefix(l, "error across.") }) {
			miss("nothing keeps it from working with %s", want.Pair)
		}
		lines = append(lines, both...)
	}
	for _, pattern := range want.MustFind {
		if re := regexp.MustCompile(pattern); !slices.ContainsFunc(lines, re.MatchString) {
			miss("nothing found that says %q", pattern)
		}
	}
	for _, pattern := range want.MustNotFind {
		re := regexp.MustCompile(pattern)
		if i := slices.IndexFunc(lines, re.MatchString); i >= 0 {
			miss("found what must not be found (%q): %s", pattern, lines[i])
		}
	}
	return out
}

// What a specialist would set on each of these hosts, and what he would say.
// Firm cases have one right answer; the debatable ones are decided by the rules
// and counted apart.
func TestRealdataExpertHosts(t *testing.T) {
	dir := realdata.Dir(t, "experthosts")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	tallies := map[string]*realdata.Tally{"firm": {Set: "experthosts: firm"}, "debatable": {Set: "experthosts: debatable"}}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want expertTruth
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		tally, ok := tallies[want.Weight]
		if !ok {
			t.Fatalf("%s: weight %q", file, want.Weight)
		}
		missed := want.missed(t, strings.TrimSuffix(file, ".json")+".snap")
		tally.Count(len(missed) == 0, name, strings.Join(missed, "; "))
	}
	tallies["firm"].Print(t)
	tallies["debatable"].Log(t)
}
