package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"mvdan.cc/sh/v3/syntax"
)

// example is one command of a page and what it prints there.
type example struct {
	line    int
	command string
	output  []string
}

// page is a page of examples:
//
//	<!-- machine: testdata/hosts/NAME.snap -->   what stands for the reader's machine
//	```console                                   commands after "$ " are run as they stand,
//	$ fabrun …                                   from the root of the tree, and print this;
//	output                                       a line "…" is any number of lines, "…" at
//	                                             its end the rest of a line
//	```
//	```sh                                        commands for the reader's site: what would
//	fabrun mpirun …                              run a job is planned for the machine, of the
//	```                                          others flags and arguments are read
type page struct {
	machine string
	console []example
	shell   []example
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p page
	block, indented := "", false
	for i, line := range strings.Split(string(text), "\n") {
		if m, ok := strings.CutPrefix(line, "<!-- machine: "); ok {
			p.machine = strings.TrimSuffix(m, " -->")
		}
		if kind, ok := strings.CutPrefix(line, "```"); ok {
			block = kind
			if kind == "sh" {
				p.shell = append(p.shell, example{line: i + 2})
			}
			continue
		}
		// The README shows its sessions indented.
		if rest, ok := strings.CutPrefix(line, "    "); ok && block == "" {
			line, indented = rest, indented || strings.HasPrefix(rest, "$ ")
		} else if line != "" {
			indented = false
		}
		session := block == "console" || block == "" && indented
		switch {
		case session && strings.HasPrefix(line, "$ "):
			p.console = append(p.console, example{line: i + 1, command: line[2:]})
		case session && len(p.console) > 0:
			last := &p.console[len(p.console)-1]
			if open(last.command) && len(last.output) == 0 {
				last.command += "\n" + line
			} else {
				last.output = append(last.output, line)
			}
		case block == "sh":
			last := &p.shell[len(p.shell)-1]
			last.command += line + "\n"
		}
	}
	return p
}

// open reports that a command goes on in the next line.
func open(command string) bool {
	if strings.HasSuffix(command, "\\") {
		return true
	}
	_, end, ok := strings.Cut(command, "<<'")
	if !ok {
		return false
	}
	word, _, _ := strings.Cut(end, "'")
	return !strings.HasSuffix(command, "\n"+word)
}

// pages are the README and every page of docs that people write.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/examples/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) < 4 {
			t.Fatalf("%s: %v, %v", pattern, more, err)
		}
		names = append(names, more...)
	}
	return names
}

// TestExamples runs what the pages show, and compares.
func TestExamples(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"fabrun", "mpirun", "torchrun", "srun"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range pages(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			work := t.TempDir()
			for _, e := range readPage(t, path).console {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", e.command)
				cmd.Dir = "../.."
				cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + work, "TMPDIR=" + work, "W=" + work}
				out, err := cmd.CombinedOutput()
				var status *exec.ExitError
				if err != nil && !asStatus(err, &status) {
					t.Fatalf("%s:%d: %v", path, e.line, err)
				}
				got := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
				want := strings.Split(strings.TrimRight(strings.Join(e.output, "\n"), "\n"), "\n")
				if !matchLines(want, got) {
					t.Errorf("%s:%d: $ %s\n%s\n--- the page has\n%s", path, e.line, e.command, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestPageLinks: what a page links to is there, and so is the heading.
func TestPageLinks(t *testing.T) {
	for _, path := range append(pages(t), "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			target, err := os.ReadFile(to)
			if err != nil {
				if st, err := os.Stat(to); err != nil || !st.IsDir() {
					t.Errorf("%s links to %s: %v", path, m[1], err)
				}
				continue
			}
			if heading != "" && !slices.Contains(headings(string(target)), heading) {
				t.Errorf("%s links to %s: no such heading", path, m[1])
			}
		}
	}
}

// headings are the anchors of a page, as forges make them.
func headings(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			out = append(out, strings.Map(func(r rune) rune {
				switch {
				case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
					return unicode.ToLower(r)
				case r == ' ':
					return '-'
				}
				return -1
			}, strings.TrimSpace(title)))
		}
	}
	return out
}

func asStatus(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*to = e
	return ok && e.ExitCode() >= 0
}

// matchLines compares lines; "…" in want is any number of lines, and at the end
// of a line the rest of it.
func matchLines(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "…" {
		for i := range len(got) + 1 {
			if matchLines(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	if len(got) == 0 {
		return false
	}
	line := strings.TrimRight(got[0], " ")
	if begin, open := strings.CutSuffix(want[0], "…"); open && strings.HasPrefix(line, begin) {
		line = want[0]
	}
	return line == strings.TrimRight(want[0], " ") && matchLines(want[1:], got[1:])
}

// TestExampleCommands plans or reads what the pages tell the reader to run.
func TestExampleCommands(t *testing.T) {
	for _, path := range pages(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			p := readPage(t, path)
			for _, e := range p.shell {
				f, err := syntax.NewParser().Parse(strings.NewReader(e.command), path)
				if err != nil {
					t.Errorf("%s:%d: %v", path, e.line, err)
					continue
				}
				syntax.Walk(f, func(n syntax.Node) bool {
					if c, ok := n.(*syntax.CallExpr); ok {
						if i := slices.IndexFunc(c.Args, func(w *syntax.Word) bool { return w.Lit() == "fabrun" }); i >= 0 {
							where := fmt.Sprintf("%s:%d", path, e.line+int(c.Pos().Line())-1)
							tryCommand(t, where, p.machine, literals(c.Args[i+1:]))
						}
					}
					return true
				})
			}
		})
	}
}

// literals are words without their quotes; what a shell would compute stays as it is written.
func literals(words []*syntax.Word) []string {
	var out []string
	for _, w := range words {
		var b bytes.Buffer
		if err := syntax.NewPrinter().Print(&b, w); err == nil {
			out = append(out, strings.Trim(b.String(), `"'`))
		}
	}
	return out
}

func tryCommand(t *testing.T, where, machine string, argv []string) {
	t.Helper()
	full, isRun := insertRun(argv)
	isPlan := len(full) > 0 && full[0] == "plan"
	if (isRun || isPlan) && slices.Contains(full, "--") {
		at := slices.Index(full, "--")
		flags := slices.Clone(full[1:at])
		if i := slices.Index(flags, "--record"); i >= 0 {
			flags = slices.Delete(flags, i, i+2)
		}
		if !slices.Contains(flags, "--from") {
			flags = append(flags, "--from", filepath.Join("../..", machine))
		}
		argv = slices.Concat([]string{"fabrun", "plan"}, flags, full[at:])
		var errs bytes.Buffer
		if status := run(t.Context(), argv, nil, strings.NewReader(""), io.Discard, &errs); status > 1 {
			t.Errorf("%s: %q: status %d: %s", where, argv, status, errs.String())
		}
		return
	}
	root := (&app{}).rootCmd()
	c, rest, err := root.Find(full)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil || c == root && !slices.ContainsFunc(full, func(w string) bool { return w == "help" || w == "completion" }) {
		t.Errorf("%s: fabrun %q: %v", where, full, err)
	}
}
