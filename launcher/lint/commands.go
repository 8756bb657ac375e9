package lint

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"fabrun/envgen/vars"
	"fabrun/launcher/cmdline"
)

var name = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// call reads a simple command with its here-documents.
func (r *reader) call(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			if a.Name != nil {
				r.assign(a, Assigned, -1)
			}
		}
		return
	}
	words := r.words(c.Args)
	launch := -1
	if n := r.command(words); n >= 0 {
		launch = n
	}
	for _, a := range c.Assigns {
		if a.Name == nil || a.Array != nil {
			continue
		}
		w := r.assign(a, Prefixed, launch)
		r.setFor(launch, a.Name.Value, w)
	}
	for _, rd := range redirs {
		if rd.Hdoc != nil {
			r.heredoc(words, rd, redirs)
		}
	}
}

func (r *reader) setFor(launch int, name string, w Word) {
	for i := launch; i >= 0 && i < len(r.s.Launches); i++ {
		r.s.Launches[i].Set[name] = w.Text
	}
}

// base is the program's name without its folder.
func base(w Word) string {
	b := path.Base(w.Text)
	if w.Static {
		return b
	}
	// "$MPIRUN", "${MPI_HOME}/bin/mpirun"
	b = strings.ToLower(strings.Trim(b, "${}\"'"))
	for _, known := range []string{"mpirun", "mpiexec", "torchrun", "srun"} {
		if strings.HasPrefix(b, known) {
			return known
		}
	}
	return b
}

// command reads one command line. It returns the index of the first launch it
// makes, or -1.
func (r *reader) command(words []Word) int {
	for range 16 { // wrappers within wrappers
		if len(words) == 0 {
			return -1
		}
		r.typography(words)
		prog := base(words[0])
		rest := words[1:]
		switch prog {
		case "exec", "time", "nohup", "command", "nice", "ionice", "stdbuf", "setsid", "sudo", "eval":
			words = skipFlags(rest, "-n", "-c", "-u")
		case "timeout":
			words = skipFlags(rest, "-k", "-s")
			if len(words) > 0 {
				words = words[1:]
			}
		case "numactl", "taskset", "catchsegv":
			words = skipFlags(rest)
			if prog == "taskset" && len(words) > 0 {
				words = words[1:]
			}
		case "env":
			words = r.env(rest)
		case "fabrun":
			words = afterDashes(rest)
		case "set":
			for _, w := range rest {
				if strings.HasPrefix(w.Text, "-") && strings.Contains(w.Text, "a") || w.Text == "allexport" {
					r.all = true
				}
				if strings.HasPrefix(w.Text, "+") && strings.Contains(w.Text, "a") {
					r.all = false
				}
			}
			return -1
		case "ulimit":
			r.ulimit(rest)
			return -1
		case "module", "ml", "spack":
			for _, w := range rest {
				r.s.modules = append(r.s.modules, w.Text)
			}
			return -1
		case "bash", "sh", "zsh", "dash", "ksh":
			r.shell(rest)
			return -1
		case "ssh":
			r.ssh(rest)
			return -1
		case "unset":
			for _, w := range rest {
				r.s.unset[w.Text] = true
				delete(r.vars, w.Text)
				delete(r.export, w.Text)
				r.s.Settings = slices.DeleteFunc(r.s.Settings, func(s Setting) bool { return s.Name == w.Text && s.Launch < 0 && len(r.s.Launches) == 0 })
			}
			return -1
		case "docker", "podman", "nerdctl", "apptainer", "singularity", "enroot":
			r.container(rest)
			return -1
		default:
			if kind := launcher(prog, rest); kind != "" {
				return r.launch(kind, words)
			}
			r.spaced(words)
			return -1
		}
	}
	return -1
}

// launcher names what kind of launcher a program is: "mpirun" of whichever MPI,
// "srun", "sbatch" or "salloc" of Slurm, and "torchrun" for all others; "" none.
func launcher(prog string, rest []Word) string {
	if prog == "sbatch" || prog == "salloc" {
		return prog
	}
	l := cmdline.Identify(append([]string{prog}, texts(rest)...), "", "")
	switch {
	case l.Dialect.Alone, l.OwnMPI, prog == "accelerate" && (len(rest) == 0 || rest[0].Text != "launch"):
		return ""
	case prog == "mpirun_rsh", l.Dialect.MPI != "", !l.Dialect.Reads() && cmdline.AsksVersion([]string{prog}):
		return "mpirun"
	case l.Dialect.Manager != "":
		return l.Dialect.Name
	}
	return "torchrun"
}

func skipFlags(words []Word, valued ...string) []Word {
	for len(words) > 0 && strings.HasPrefix(words[0].Text, "-") {
		if slices.Contains(valued, words[0].Text) && len(words) > 1 {
			words = words[1:]
		}
		words = words[1:]
	}
	return words
}

func afterDashes(words []Word) []Word {
	if i := slices.IndexFunc(words, func(w Word) bool { return w.Text == "--" }); i >= 0 {
		return words[i+1:]
	}
	if len(words) > 0 && words[0].Text == "run" {
		words = words[1:]
	}
	for i, w := range words {
		if launcher(base(w), words[i+1:]) != "" {
			return words[i:]
		}
	}
	return nil
}

// env reads "env [-i] [-u NAME] A=B … command".
func (r *reader) env(words []Word) []Word {
	for len(words) > 0 {
		w := words[0]
		if w.Text == "-u" && len(words) > 1 {
			words = words[2:]
			continue
		}
		if strings.HasPrefix(w.Text, "-") {
			words = words[1:]
			continue
		}
		k, v, ok := strings.Cut(w.Text, "=")
		if !ok || !name().MatchString(k) {
			return words
		}
		value := w
		value.Text = v
		r.set(Setting{Name: k, Value: value, Line: w.Line, How: Prefixed, Launch: len(r.s.Launches)})
		words = words[1:]
	}
	return nil
}

func (r *reader) ulimit(words []Word) {
	for i, w := range words {
		if strings.HasPrefix(w.Text, "-") && strings.Contains(w.Text, "l") && i+1 < len(words) {
			r.s.ulimits = append(r.s.ulimits, words[i+1])
		}
	}
}

// shell reads "bash -c 'script'": the string is a script of its own.
func (r *reader) shell(words []Word) {
	for i, w := range words {
		if strings.HasPrefix(w.Text, "-") && strings.HasSuffix(w.Text, "c") && i+1 < len(words) {
			r.nested(words[i+1])
			return
		}
		if !strings.HasPrefix(w.Text, "-") {
			return
		}
	}
}

// ssh reads "ssh [options] host command…".
func (r *reader) ssh(words []Word) {
	valued := []string{"-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-b", "-c", "-E", "-e", "-m", "-O", "-Q", "-S", "-W", "-w", "-B", "-I"}
	words = skipFlags(words, valued...)
	if len(words) < 2 {
		return
	}
	var text []string
	for _, w := range words[1:] {
		text = append(text, w.Text)
	}
	r.nested(Word{Text: strings.Join(text, " "), Line: words[1].Line})
}

// nested reads a string that another shell will run. Its variables start from
// what is exported here.
func (r *reader) nested(w Word) {
	sub := &reader{s: r.s, vars: map[string][]Word{}, export: map[string]bool{}, under: r.under, depth: r.depth, pos: r.pos}
	for k, v := range r.vars {
		if r.export[k] {
			sub.vars[k], sub.export[k] = v, true
		}
	}
	before := len(r.s.Unread)
	sub.parse([]byte(w.Text), w.Line-1)
	r.s.Unread = r.s.Unread[:before] // half a script after an expansion is no mistake of the user's
	r.pos = sub.pos
}

// heredoc reads a body that goes to a shell, or into a script or a
// configuration file.
func (r *reader) heredoc(words []Word, rd *syntax.Redirect, redirs []*syntax.Redirect) {
	body := r.source(rd.Hdoc)
	first := int(rd.Hdoc.Pos().Line()) + r.offset
	target := ""
	for _, other := range redirs {
		if other.Word != nil && (other.Op == syntax.RdrOut || other.Op == syntax.AppOut || other.Op == syntax.RdrAll) {
			target = r.word(other.Word).Text
		}
	}
	prog := base(words[0])
	if prog == "tee" {
		for _, w := range words[1:] {
			if !strings.HasPrefix(w.Text, "-") {
				target = w.Text
			}
		}
	}
	switch {
	case slices.Contains([]string{"bash", "sh", "zsh", "ssh", "sbatch", "srun", "qsub", "bsub"}, prog),
		strings.HasPrefix(body, "#!") && notShell("", strings.SplitN(body, "\n", 2)) == "",
		strings.HasSuffix(target, ".sh"), strings.HasSuffix(target, ".sbatch"), strings.HasSuffix(target, ".slurm"):
		sub := &reader{s: r.s, vars: map[string][]Word{}, export: map[string]bool{}, depth: r.depth, pos: r.pos}
		before := len(r.s.Unread)
		sub.parse([]byte(body), first-1)
		r.s.Unread = r.s.Unread[:before]
		r.pos = sub.pos
	case strings.HasSuffix(target, "nccl.conf"), strings.HasSuffix(target, "ucx.conf"), strings.HasSuffix(target, ".env"), strings.HasSuffix(target, ".deepspeed_env"):
		for i, line := range strings.Split(body, "\n") {
			k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && name().MatchString(k) {
				r.set(Setting{Name: k, Value: Word{Text: v, Static: !strings.Contains(v, "$"), Line: first + i, Source: line}, Line: first + i, How: ConfFile, Launch: -1})
			}
		}
	}
}

// container reads "-e A=B", "--env A=B", "--env=A=B".
func (r *reader) container(words []Word) {
	list := func(w Word, text string) {
		k, v, ok := strings.Cut(text, "=")
		if ok && name().MatchString(k) {
			value := w
			value.Text = v
			r.set(Setting{Name: k, Value: value, Line: w.Line, How: Container, Launch: -1})
		}
	}
	for i, w := range words {
		switch {
		case (w.Text == "-e" || w.Text == "--env") && i+1 < len(words):
			list(words[i+1], words[i+1].Text)
		case strings.HasPrefix(w.Text, "--env="):
			list(w, strings.TrimPrefix(w.Text, "--env="))
		}
		if launcher(base(w), words[i+1:]) != "" && i > 0 {
			r.command(words[i:])
			return
		}
	}
}

// rendezvous notes "… || echo localhost" in a command substitution.
func (r *reader) rendezvous(cs *syntax.CmdSubst) {
	for _, st := range cs.Stmts {
		b, ok := st.Cmd.(*syntax.BinaryCmd)
		if !ok || b.Op != syntax.OrStmt || b.Y == nil {
			continue
		}
		c, ok := b.Y.Cmd.(*syntax.CallExpr)
		if !ok || len(c.Args) < 2 || c.Args[0].Lit() != "echo" && c.Args[0].Lit() != "printf" {
			continue
		}
		w := r.word(c.Args[len(c.Args)-1])
		if isLocal(w.Text) {
			w.Line, w.Source = r.line(b.Y), r.source(cs)
			r.s.rendez = append(r.s.rendez, w)
		}
	}
}

func isLocal(s string) bool {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "tcp://"), ":")
	return s == "localhost" || strings.HasPrefix(s, "127.") || s == "::1"
}

// typography notes what a word processor or a web page makes of a command line.
func (r *reader) typography(words []Word) {
	for _, w := range words {
		if strings.HasPrefix(w.Text, "–") || strings.HasPrefix(w.Text, "—") || strings.ContainsAny(w.Text, "“”‘’\u00a0") {
			r.s.odd = append(r.s.odd, w)
		}
	}
}

// spaced notes "NAME = value": a command called NAME, not an assignment.
func (r *reader) spaced(words []Word) {
	if len(words) >= 2 && isOurs(words[0].Text) && (words[1].Text == "=" || strings.HasPrefix(words[1].Text, "=")) {
		w := words[0]
		w.Source = "="
		r.s.odd = append(r.s.odd, w)
	}
}

// isOurs says whether a name is one of the variables that decide how a job uses
// its fabric.
func isOurs(s string) bool {
	return vars.Library(s) && name().MatchString(s)
}
