package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/mod/module"
)

// goFiles calls f for every Go file of the project, with its path from the root.
func goFiles(t *testing.T, f func(path string, file *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(strings.TrimPrefix(path, "../../")), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryPackageHasOneDoc holds the habit of one idea, one paragraph.
func TestEveryPackageHasOneDoc(t *testing.T) {
	docs := map[string][]string{}
	goFiles(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.Dir(path)
		if _, ok := docs[dir]; !ok {
			docs[dir] = nil
		}
		if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
			docs[dir] = append(docs[dir], path)
		}
	})
	for dir, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments (%s), want one", dir, len(files), strings.Join(files, ", "))
		}
	}
}

// TestProcessIsAParameter keeps exit, environment and standard streams of the
// process out of everything but the commands' main.
func TestProcessIsAParameter(t *testing.T) {
	forbidden := map[string][]string{
		"os":  {"Exit", "Getenv", "LookupEnv", "Environ", "Setenv", "Unsetenv", "ExpandEnv", "Stdout", "Stderr", "Stdin", "Args"},
		"fmt": {"Print", "Println", "Printf"},
	}
	goFiles(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "/main.go") || strings.HasPrefix(path, "testdata/") || strings.HasPrefix(path, "launcher/remote/remotetest/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(forbidden[id.Name], sel.Sel.Name) {
				t.Errorf("%s uses %s.%s: it comes in as a value from main", path, id.Name, sel.Sel.Name)
			}
			return true
		})
	})
}

// clocked are the tests that look at the machine's clock, and why that judges nothing.
var clocked = map[string]string{
	"cmd/fabrun/slurm_doors_test.go": "reads what already lies in a socket",
	"cmd/fabrun/netlab_real_test.go": "spreads interrupts over a run that it has measured",
	"cmd/fabrun/slurm_real_test.go":  "kills what does not end by itself when the test is over",
}

// TestHabitsNoClock: a machine that is ten times slower passes. Time is the
// bubble's (testing/synctest) or a value, other programs are waited for with
// package wait, and work is counted.
func TestHabitsNoClock(t *testing.T) {
	judges := map[string][]string{"time": {"Since", "After", "Tick"}, "context": {"WithTimeout", "WithDeadline"}}
	goFiles(t, func(path string, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "testdata/lab/") || clocked[path] != "" || slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := sel.X.(*ast.Ident)
			deadline := strings.HasPrefix(sel.Sel.Name, "Set") && strings.HasSuffix(sel.Sel.Name, "Deadline")
			if !deadline && (pkg == nil || !slices.Contains(judges[pkg.Name], sel.Sel.Name)) {
				return true
			}
			for _, arg := range call.Args {
				waits := false
				ast.Inspect(arg, func(n ast.Node) bool {
					id, ok := n.(*ast.Ident)
					waits = waits || ok && id.Name == "wait"
					return true
				})
				if waits {
					return true
				}
			}
			t.Errorf("%s uses %s: a slow machine fails it; use testing/synctest, count work, or wait with fabrun/testdata/wait", path, sel.Sel.Name)
			return true
		})
	})
}

// kept are the types of which everything that can be asked is a field or a method:
// one file has the values, and nobody else asks which of them it is.
var kept = []struct{ home, typ string }{
	{"launcher/cmdline/dialects.go", "Dialect"},
	{"launcher/hosts/syntaxes.go", "Syntax"},
}

// TestHabitsAskNoNames: what differs between the values of a table is in the table,
// and no switch, comparison or map elsewhere goes by which of them it is.
func TestHabitsAskNoNames(t *testing.T) {
	for _, k := range kept {
		dir := filepath.Dir(k.home)
		values := map[string]bool{}
		goFiles(t, func(path string, file *ast.File) {
			if path == k.home {
				values = valuesOf(file, k.typ)
			}
		})
		if len(values) < 4 {
			t.Fatalf("%s has %d values of %s: are they made in another way now?", k.home, len(values), k.typ)
		}
		goFiles(t, func(path string, file *ast.File) {
			if path == k.home || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "testdata/") {
				return
			}
			for _, e := range goneBy(file) {
				ast.Inspect(e, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						pkg, _ := n.X.(*ast.Ident)
						if pkg != nil && pkg.Name == filepath.Base(dir) && values[n.Sel.Name] {
							t.Errorf("%s asks whether it is %s.%s: a field of the values in %s says what it wants to know", path, pkg.Name, n.Sel.Name, k.home)
						}
						return pkg == nil
					case *ast.Ident:
						if filepath.Dir(path) == dir && values[n.Name] {
							t.Errorf("%s asks whether it is %s: a field of the values in %s says what it wants to know", path, n.Name, k.home)
						}
					}
					return true
				})
			}
		})
	}
}

// valuesOf are the names of a file's variables that are made as &TYPE{…}.
func valuesOf(file *ast.File, typ string) map[string]bool {
	out := map[string]bool{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for i, e := range v.Values {
				if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
					if lit, ok := u.X.(*ast.CompositeLit); ok {
						if id, ok := lit.Type.(*ast.Ident); ok && id.Name == typ {
							out[v.Names[i].Name] = true
						}
					}
				}
			}
		}
	}
	return out
}

// goneBy are the expressions of a file that something goes by: compared, a case, a
// map's key.
func goneBy(file *ast.File) []ast.Expr {
	var out []ast.Expr
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				out = append(out, n.X, n.Y)
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				if _, ok := e.(*ast.BinaryExpr); !ok { // which is looked at by itself
					out = append(out, e)
				}
			}
		case *ast.IndexExpr:
			out = append(out, n.Index)
		case *ast.CompositeLit:
			if _, ok := n.Type.(*ast.MapType); !ok {
				break
			}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					out = append(out, kv.Key)
				}
			}
		}
		return true
	})
	return out
}

// longFunctions have more than 80 lines, and may have no more than these. A switch
// whose cases are the words of a format stays one: its parts have no names but the
// words. The others wait to be taken apart.
var longFunctions = map[string]int{
	"judge":            120,
	"step":             114, // the opcodes of a pickle
	"ParseDump":        95,
	"packet":           111, // the headers of a packet, in their order
	"nvueTree":         98,  // words of NVUE
	"nvueSet":          97,  // the same in its other form
	"line":             97,  // words of NX-OS
	"merge":            107,
	"verdict":          95,
	"judgePerftest":    97,
	"build":            92,
	"culpritFinding":   90,
	"JudgeCollectives": 90,
	"Suspects":         89,
	"heat":             88,
	"pciDevice":        85,
	"ReadPerftest":     83,
	"launcherFindings": 84,
	"JudgeCounters":    81,
}

// TestHabitsFunctionsAreShort: what has more than 80 lines has parts, and those have
// names. What became short is taken from the list, so that it stays so.
func TestHabitsFunctionsAreShort(t *testing.T) {
	const most = 80
	fset := token.NewFileSet()
	seen := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			if n <= most {
				continue
			}
			seen[f.Name.Name] = true
			if allowed := max(most, longFunctions[f.Name.Name]); n > allowed {
				t.Errorf("%s: %s has %d lines, wanted at most %d: take it apart", path, f.Name.Name, n, allowed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range longFunctions {
		if !seen[name] {
			t.Errorf("%s has no more than %d lines now: take it from the list", name, most)
		}
	}
}

// TestNoRegistration keeps lists explicit: no init functions.
func TestNoRegistration(t *testing.T) {
	goFiles(t, func(path string, file *ast.File) {
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function", path)
			}
		}
	})
}

// TestCommandsExplainThemselves: every verb has its words, an example and its
// exit status.
func TestCommandsExplainThemselves(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() == "help" || sub.Name() == "completion" || sub.Hidden {
				continue
			}
			walk(sub)
			if sub.Short == "" || sub.Example == "" {
				t.Errorf("%s: wants Short and Example", sub.CommandPath())
			}
			if !strings.Contains(sub.Long, "Exit status") {
				t.Errorf("%s: Long wants a paragraph 'Exit status: …'", sub.CommandPath())
			}
			if len(sub.Short) > 70 {
				t.Errorf("%s: Short is longer than a line of the list of verbs", sub.CommandPath())
			}
		}
	}
	walk((&app{}).rootCmd())
}

// TestOneVerb: a call with a verb in front makes that verb alone, under the
// name by which the list has it.
func TestOneVerb(t *testing.T) {
	for _, v := range verbs {
		cmds := (&app{}).rootCmd(v.name, "--help").Commands()
		if len(cmds) != 1 || cmds[0].Name() != v.name {
			t.Errorf("fabrun %s makes %v", v.name, cmds)
		}
	}
	for _, argv := range [][]string{nil, {"help"}, {"--json", "plan"}, {"mpirun"}} {
		if got := len((&app{}).rootCmd(argv...).Commands()); got < len(verbs) {
			t.Errorf("fabrun %q makes %d of %d verbs", argv, got, len(verbs))
		}
	}
}

// TestTreeFitsAModuleZip: go install module@version wants plain files with
// plain names.
func TestTreeFitsAModuleZip(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		rel := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
		if d.IsDir() || rel == ".git" {
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			t.Errorf("%s is a symbolic link", rel)
		}
		if err := module.CheckFilePath(rel); err != nil {
			t.Errorf("%s: %v", rel, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
