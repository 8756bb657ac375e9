package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"fabrun/launcher/hosts"
)

// Bounds on what is read: a job script is text by hand.
const (
	maxScript  = 4 << 20
	maxDepth   = 4 // shells within strings and here-documents
	maxEvents  = 20000
	maxProblem = 500
)

// Script is what a job script says, in the order of its lines.
type Script struct {
	Name     string
	Settings []Setting
	Launches []Launch
	Batch    string // the resource manager whose directives are there, as in hosts.Schedulers; "" none
	Options  []Word // of the #SBATCH lines
	Unread   []Unread
	lines    []string
	rendez   []Word // "|| echo localhost" and the like
	odd      []Word // words that look typed by a word processor, assignments with blanks
	ulimits  []Word // arguments of "ulimit -l"
	modules  []string
	parts    []*Script // stages of an image, containers of a manifest: each is judged alone
	image    *stage    // of a part that is one
	pod      *pod
	unset    map[string]bool
}

// Unread is a place that is no shell, or not yet.
type Unread struct {
	Line int
	Why  string
}

// How says by what means a setting is made.
type How string

// The means.
const (
	Assigned  How = "assignment"    // NAME=value
	Exported  How = "export"        // export NAME=value, declare -x
	Prefixed  How = "prefix"        // NAME=value command, env NAME=value command
	Forwarded How = "-x"            // mpirun -x NAME=value, -genv NAME value
	SrunList  How = "--export"      // srun or sbatch --export=…,NAME=value
	MCA       How = "--mca"         // --mca name value
	Container How = "container"     // docker run -e, apptainer --env
	Image     How = "ENV"           // of a Dockerfile
	PodEnv    How = "env"           // of a container in a manifest
	ConfFile  How = "configuration" // here-document into nccl.conf, ucx.conf, an env file
)

// Setting is one place that sets a variable.
type Setting struct {
	Name   string
	Value  Word
	Line   int
	How    How
	Launch int // index of the launch it belongs to; -1 all that follow
	Before int // launches that stand before it
	// Under is what the branches around it depend on ("LOCAL_RANK").
	Under      []string
	InFunction bool
}

// Launch is one command line that starts ranks.
type Launch struct {
	Kind    string // "mpirun", "srun", "sbatch", "torchrun", …
	MPI     string // of mpirun: "openmpi", "mpich", "intelmpi"; "" not told
	Line    int
	Words   []Word   // the whole command line, expanded where it is known
	Forward []string // names it passes on by itself (-x NAME), without value
	Export  *Word    // value of srun's --export
	Hosts   bool     // names hosts itself (--hostfile, -H)
	Set     map[string]string
	Depth   int // 1 in the script itself, more in a shell within it

	InFunction bool
	Swallowed  Word // what stands for the program after "-x NAME" and is a value
}

// Word is one word of a command line or a value, expanded as far as it is
// known without running anything.
type Word struct {
	Text   string
	Static bool     // nothing in it depends on the run
	Refs   []string // variables it depends on, through others too
	Line   int
	Source string   // as written
	Early  []string // variables that the shell expands here, before anything is started
	Number bool     // it is a number within Lo and Hi on every run
	Lo, Hi int64
}

type reader struct {
	s      *Script
	src    []byte
	offset int // lines before src in the file
	depth  int
	vars   map[string][]Word // arrays: their elements; scalars: one
	export map[string]bool
	under  []string
	pos    int // events so far
	inFunc bool
	all    bool // set -a: every assignment is exported
}

// Read takes a script apart.
func Read(name string, text []byte) *Script {
	s := &Script{Name: name, unset: map[string]bool{}}
	if len(text) > maxScript {
		s.Unread = append(s.Unread, Unread{1, "longer than 4 MB"})
		return s
	}
	s.lines = strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	switch why := notShell(name, s.lines); {
	case isDockerfile(name, s.lines):
		s.dockerfile()
		return s
	case isManifest(s.lines):
		s.manifest()
		return s
	case why != "":
		s.Unread = append(s.Unread, Unread{1, "not a job script: " + why})
		return s
	}
	r := &reader{s: s, vars: map[string][]Word{}, export: map[string]bool{}}
	if strings.Contains(string(text), "\r\n") {
		s.odd = append(s.odd, Word{Text: "\r", Line: 1, Source: "CR LF line ends"})
	}
	r.parse([]byte(strings.Join(s.lines, "\n")), 0)
	return s
}

// languages are what files by these names are.
var languages = map[string]string{
	".py": "Python", ".pl": "Perl", ".rb": "Ruby", ".jl": "Julia", ".lua": "Lua", ".r": "R", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".cu": "CUDA",
	".f90": "Fortran", ".go": "Go", ".rs": "Rust", ".js": "JavaScript", ".md": "Markdown", ".html": "HTML", ".json": "JSON that is no Kubernetes manifest",
	".yaml": "YAML that is no Kubernetes manifest", ".yml": "YAML that is no Kubernetes manifest", ".toml": "TOML", ".ini": "INI", ".xml": "XML", ".csv": "CSV", ".fish": "fish", ".csh": "csh", ".tcsh": "csh",
}

// otherwise tells what a text is by how its first line of code begins.
var otherwise = []struct{ begins, what string }{
	{"#include", "C"},
	{"import ", "Python"},
	{"from ", "Python"},
	{"<?xml", "XML"},
	{"<!DOCTYPE", "HTML"},
	{"<html", "HTML"},
	{"package ", "Go"},
	{"%PDF", "PDF"},
	{"fabrun-snapshot ", "a snapshot ('fabrun check FILE' reads it)"},
}

// notShell says why a file is not for a shell parser.
func notShell(name string, lines []string) string {
	for _, line := range lines {
		if strings.Contains(line, "\x00") {
			return "a binary file"
		}
	}
	first, ok := strings.CutPrefix(lines[0], "#!")
	if !ok {
		if what := languages[strings.ToLower(path.Ext(name))]; what != "" {
			return what
		}
		code := ""
		for _, line := range lines {
			if code = strings.TrimSpace(line); code != "" && (!strings.HasPrefix(code, "#") || strings.HasPrefix(code, "#include")) {
				break
			}
		}
		for _, o := range otherwise {
			// "import" of ImageMagick and "from" of mailers are programs, too; no job begins with them.
			if strings.HasPrefix(code, o.begins) {
				return o.what
			}
		}
		if (strings.HasPrefix(code, "{\"") || code == "{") && json.Valid([]byte(strings.Join(lines, "\n"))) {
			return "JSON that is no Kubernetes manifest"
		}
		return ""
	}
	for _, other := range []string{"python", "perl", "ruby", "csh", "fish", "lua", "Rscript", "julia", "awk"} {
		if strings.Contains(first, other) {
			return "a script of " + strings.TrimSpace(first) + ", not of a POSIX-like shell"
		}
	}
	return ""
}

func (r *reader) parse(src []byte, offset int) {
	if r.depth >= maxDepth {
		return
	}
	saved, savedOffset := r.src, r.offset
	r.src, r.offset = src, offset
	r.depth++
	defer func() { r.src, r.offset = saved, savedOffset; r.depth-- }()
	if line, deep := tooDeep(src); deep {
		r.s.Unread = append(r.s.Unread, Unread{line + offset, fmt.Sprintf("commands nested more than %d deep", maxNesting)})
		return
	}
	parse := func(recovered int) (*syntax.File, error) {
		return syntax.NewParser(syntax.KeepComments(true), syntax.Variant(syntax.LangBash), syntax.RecoverErrors(recovered)).Parse(strings.NewReader(string(src)), "")
	}
	file, err := parse(0)
	if err != nil {
		// Say it, and judge what can be read all the same.
		if again, _ := parse(10); again != nil {
			file = again
		}
	}
	if err != nil {
		line, why := 1, err.Error()
		var pe syntax.ParseError
		var le syntax.LangError
		switch {
		case errors.As(err, &pe):
			line, why = int(pe.Pos.Line()), pe.Text
		case errors.As(err, &le):
			line, why = int(le.Pos.Line()), "not bash"
		}
		r.s.Unread = append(r.s.Unread, Unread{line + offset, why})
	}
	if file == nil {
		return
	}
	r.directives(src)
	r.stmts(file.Stmts)
}

var directive = sync.OnceValue(func() *regexp.Regexp {
	var words []string
	for _, b := range hosts.Schedulers {
		if b.Directive != "" {
			words = append(words, regexp.QuoteMeta(b.Directive))
		}
	}
	return regexp.MustCompile(`^#(` + strings.Join(words, "|") + `)\s+(.*)$`)
})

// directives reads the options of a resource manager from the head.
func (r *reader) directives(src []byte) {
	n := 0
	for line := range strings.SplitSeq(string(src), "\n") {
		n++
		m := directive().FindStringSubmatch(line)
		if m == nil {
			// Slurm stops at the first command, so does everybody who reads the script.
			if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "#") {
				return
			}
			continue
		}
		for _, b := range hosts.Schedulers {
			if b.Directive == m[1] {
				r.s.Batch = b.Name
			}
		}
		for _, w := range strings.Fields(m[2]) {
			if strings.HasPrefix(w, "#") {
				break
			}
			r.s.Options = append(r.s.Options, Word{Text: strings.Trim(w, `"'`), Static: true, Line: n + r.offset, Source: line})
		}
	}
}

func (r *reader) line(n syntax.Node) int { return int(n.Pos().Line()) + r.offset }

func (r *reader) source(n syntax.Node) string {
	a, b := int(n.Pos().Offset()), int(n.End().Offset())
	if a < 0 || b > len(r.src) || a > b {
		return ""
	}
	return string(r.src[a:b])
}

func (r *reader) stmts(list []*syntax.Stmt) {
	for _, st := range list {
		r.stmt(st)
	}
}

func (r *reader) stmt(st *syntax.Stmt) {
	if st == nil || r.pos > maxEvents {
		return
	}
	r.pos++
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		r.call(c, st.Redirs)
		return
	case *syntax.DeclClause:
		r.decl(c)
	case *syntax.BinaryCmd:
		r.binary(c)
	case *syntax.Block:
		r.stmts(c.Stmts)
	case *syntax.Subshell:
		r.stmts(c.Stmts)
	case *syntax.IfClause:
		r.ifClause(c)
	case *syntax.WhileClause:
		r.stmts(c.Cond)
		r.stmts(c.Do)
	case *syntax.ForClause:
		if w, ok := c.Loop.(*syntax.WordIter); ok {
			// The first item stands for all of them: enough to judge a flag.
			delete(r.vars, w.Name.Value)
		}
		r.stmts(c.Do)
	case *syntax.CaseClause:
		w := r.word(c.Word)
		r.within(w.Refs, func() {
			for _, item := range c.Items {
				r.stmts(item.Stmts)
			}
		})
	case *syntax.FuncDecl:
		saved := r.inFunc
		r.inFunc = true
		r.stmt(c.Body)
		r.inFunc = saved
	case *syntax.TimeClause:
		r.stmt(c.Stmt)
	case *syntax.CoprocClause:
		r.stmt(c.Stmt)
	}
}

// within records that what f reads depends on refs.
func (r *reader) within(refs []string, f func()) {
	n := len(r.under)
	r.under = append(r.under, refs...)
	f()
	r.under = r.under[:n]
}

func (r *reader) ifClause(c *syntax.IfClause) {
	if c == nil {
		return
	}
	var refs []string
	for _, st := range c.Cond {
		refs = append(refs, r.refsIn(st)...)
	}
	r.stmts(c.Cond)
	r.within(refs, func() {
		r.stmts(c.Then)
		r.ifClause(c.Else)
	})
}

// refsIn lists the variables that a piece of script looks at.
func (r *reader) refsIn(n syntax.Node) []string {
	var out []string
	syntax.Walk(n, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ParamExp); ok && p.Param != nil {
			out = append(out, p.Param.Value)
			for _, v := range r.vars[p.Param.Value] {
				out = append(out, v.Refs...)
			}
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *reader) binary(c *syntax.BinaryCmd) {
	r.stmt(c.X)
	r.stmt(c.Y)
}

func (r *reader) decl(c *syntax.DeclClause) {
	if c.Variant == nil {
		return
	}
	exports := c.Variant.Value == "export"
	for _, a := range c.Args {
		if a.Name == nil && a.Value != nil {
			w := r.word(a.Value)
			if strings.HasPrefix(w.Text, "-") && strings.Contains(w.Text, "x") {
				exports = true
			}
			if strings.HasPrefix(w.Text, "-") && strings.Contains(w.Text, "n") && c.Variant.Value == "export" {
				exports = false
			}
			continue
		}
		if a.Name == nil {
			continue
		}
		if a.Naked {
			if exports {
				r.exportName(a.Name.Value, r.line(a))
			}
			continue
		}
		how := Assigned
		if exports {
			how = Exported
			r.export[a.Name.Value] = true
		}
		r.assign(a, how, -1)
	}
}

// exportName turns earlier plain assignments of a name into exported ones.
func (r *reader) exportName(name string, line int) {
	r.export[name] = true
	for i := range r.s.Settings {
		if r.s.Settings[i].Name == name && r.s.Settings[i].How == Assigned {
			r.s.Settings[i].How = Exported
		}
	}
}

// assign records NAME=value and returns the value.
func (r *reader) assign(a *syntax.Assign, how How, launch int) Word {
	name := a.Name.Value
	if a.Array != nil {
		var elems []Word
		for _, e := range a.Array.Elems {
			if e.Value != nil {
				elems = append(elems, r.words([]*syntax.Word{e.Value})...)
			}
		}
		if a.Append {
			elems = append(slices.Clone(r.vars[name]), elems...)
		}
		r.vars[name] = elems
		return Word{}
	}
	w := Word{Static: true, Line: r.line(a)}
	if a.Value != nil {
		w = r.word(a.Value)
	}
	w.Source = r.source(a)
	if a.Append {
		if old := r.vars[name]; len(old) == 1 {
			w.Text, w.Static = old[0].Text+w.Text, w.Static && old[0].Static
			w.Refs = append(slices.Clone(old[0].Refs), w.Refs...)
		} else {
			w.Static = false
		}
	}
	if a.Index == nil && how != Prefixed {
		r.vars[name] = []Word{w}
	}
	if how == Assigned && (r.export[name] || r.all) {
		how = Exported
	}
	r.set(Setting{Name: name, Value: w, Line: r.line(a), How: how, Launch: launch})
	return w
}

func (r *reader) set(s Setting) {
	s.Under, s.InFunction = slices.Clone(r.under), r.inFunc
	s.Before = len(r.s.Launches)
	if s.Launch >= 0 {
		s.Before = s.Launch
	}
	if len(r.s.Settings) < maxEvents {
		r.s.Settings = append(r.s.Settings, s)
	}
}
