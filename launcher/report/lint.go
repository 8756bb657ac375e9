package report

import (
	"fmt"
	"io"

	"fabrun/launcher/lint"
	"fabrun/topology/finding"
)

// Lint writes the mistakes of job scripts for people, as compilers do: place
// first, then what is wrong, then the line and the line mended.
func Lint(w io.Writer, files []string, problems []lint.Problem) error {
	t := &text{w: w}
	bad := map[string]bool{}
	for _, p := range problems {
		bad[p.File] = true
		t.printf("%s:%d: %s: %s [%s]\n", p.File, p.Line, p.Severity, p.Seen, p.ID)
		if p.Wanted != "" {
			t.wrap("    wanted: ", p.Wanted)
		}
		t.wrap("    why: ", p.Why)
		switch {
		case p.Fixed != "":
			t.printf("    - %s\n    + %s\n", p.Text, p.Fixed)
		case p.Hint != "":
			t.wrap("    → ", p.Hint)
		}
	}
	t.printf("%s\n", lintVerdict(len(files), len(bad), problems))
	return t.err
}

func lintVerdict(files, bad int, problems []lint.Problem) string {
	if len(problems) == 0 {
		return fmt.Sprintf("no known mistake in %s", count(files, "script"))
	}
	errs := 0
	for _, p := range problems {
		if p.Severity == finding.Error {
			errs++
		}
	}
	return fmt.Sprintf("%s in %d of %s, %s", count(len(problems), "finding"), bad, count(files, "script"), count(errs, "error"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type lintJSON struct {
	Schema   string         `json:"schema"`
	Files    []string       `json:"files"`
	Findings []lint.Problem `json:"findings"`
}

// LintJSON writes the same as an object.
func LintJSON(w io.Writer, files []string, problems []lint.Problem) error {
	if problems == nil {
		problems = []lint.Problem{}
	}
	return writeJSON(w, lintJSON{"fabrun/lint/v1", files, problems})
}
