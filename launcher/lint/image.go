package lint

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"fabrun/topology/finding"
)

// instruction is one of a Dockerfile: its keyword in upper case, and what stands
// behind it with the lines that go on joined.
type instruction struct {
	line  int
	name  string
	words string
}

// instructions reads a Dockerfile as its reference says (docs.docker.com,
// Dockerfile reference: Format, Parser directives, Here-Documents): comments go
// within continued lines too, and a here-document belongs to its instruction.
// BuildKit's own parser would do as well and brings its protocol buffers with it.
func instructions(lines []string) []instruction {
	escape := `\`
	var out []instruction
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if m := escapeDirective().FindStringSubmatch(line); m != nil && len(out) == 0 {
			escape = m[1]
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := i
		var text strings.Builder
		for {
			rest, more := strings.CutSuffix(strings.TrimRight(line, " \t"), escape)
			text.WriteString(rest)
			if !more {
				break
			}
			for i++; i < len(lines) && (strings.TrimSpace(lines[i]) == "" || strings.HasPrefix(strings.TrimSpace(lines[i]), "#")); i++ {
			}
			if i >= len(lines) {
				break
			}
			text.WriteByte(' ')
			line = lines[i]
		}
		name, words, _ := strings.Cut(strings.TrimSpace(text.String()), " ")
		in := instruction{at + 1, strings.ToUpper(name), strings.TrimSpace(words)}
		if in.name == "RUN" || in.name == "COPY" || in.name == "ADD" {
			var body []string
			for _, m := range hereDoc().FindAllStringSubmatch(in.words, -1) {
				for i++; i < len(lines) && strings.TrimSpace(lines[i]) != m[1]; i++ {
					body = append(body, lines[i])
				}
			}
			if in.name == "RUN" && body != nil {
				in.words = strings.Join(body, "\n")
			}
		}
		out = append(out, in)
	}
	return out
}

var (
	escapeDirective = lazy("(?i)^#\\s*escape\\s*=\\s*([`\\\\])\\s*$")
	hereDoc         = lazy(`<<-?["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)
	fromLine        = lazy(`(?i)^FROM\s+\S`)
)

// isDockerfile tells by its name, or by its first instruction: a shell has no FROM.
func isDockerfile(name string, lines []string) bool {
	base := path.Base(name)
	for _, n := range []string{"Dockerfile", "Containerfile"} {
		if base == n || strings.HasPrefix(base, n+".") || strings.HasSuffix(strings.ToLower(base), "."+strings.ToLower(n)) {
			return true
		}
	}
	for _, in := range instructions(lines[:min(len(lines), 200)]) {
		switch {
		case in.name == "ARG":
			continue
		case in.name == "FROM":
			return fromLine().MatchString("FROM " + in.words)
		}
		return false
	}
	return false
}

// stage is what one FROM makes.
type stage struct {
	script     *Script
	entrypoint *instruction
	command    *instruction
	runs       []instruction
}

// dockerfile reads each stage as a script of its own; one that begins with an
// earlier one has what that sets.
func (s *Script) dockerfile() {
	stages := map[string]*stage{}
	var all []*stage
	var now *stage
	for _, in := range instructions(s.lines) {
		if in.name == "FROM" {
			now = &stage{script: &Script{Name: s.Name, lines: s.lines, unset: map[string]bool{}}}
			words := slices.DeleteFunc(strings.Fields(in.words), func(w string) bool { return strings.HasPrefix(w, "--") })
			if len(words) > 0 {
				if base := stages[strings.ToLower(words[0])]; base != nil {
					now.script.Settings = slices.Clone(base.script.Settings)
				}
			}
			if len(words) > 2 && strings.EqualFold(words[1], "AS") {
				stages[strings.ToLower(words[2])] = now
			}
			all = append(all, now)
			continue
		}
		if now == nil {
			continue // ARG before the first FROM
		}
		switch in.name {
		case "ENV":
			now.env(in)
		case "ENTRYPOINT":
			now.entrypoint, now.command = &in, nil
		case "CMD":
			now.command = &in
		case "RUN":
			now.runs = append(now.runs, in)
		}
	}
	for _, st := range all {
		st.script.image = st
		st.start()
		s.parts = append(s.parts, st.script)
	}
}

// env reads ENV NAME=value …, and the old ENV NAME value.
func (st *stage) env(in instruction) {
	set := func(name, value string, static bool) {
		st.script.Settings = slices.DeleteFunc(st.script.Settings, func(old Setting) bool { return old.Name == name })
		st.script.Settings = append(st.script.Settings, Setting{Name: name, Value: Word{Text: value, Static: static, Line: in.line}, Line: in.line, How: Image, Launch: -1})
	}
	first, rest, _ := strings.Cut(in.words, " ")
	if !strings.Contains(first, "=") {
		set(first, strings.Trim(strings.TrimSpace(rest), `"'`), !strings.Contains(rest, "$"))
		return
	}
	// The words are the shell's, without its commands.
	sub := &Script{unset: map[string]bool{}}
	sub.shell("export "+in.words, 1)
	if len(sub.Unread) > 0 {
		st.script.Unread = append(st.script.Unread, Unread{in.line, "this ENV: " + sub.Unread[0].Why})
		return
	}
	for _, got := range sub.Settings {
		set(got.Name, got.Value.Text, got.Value.Static)
	}
}

// start reads what the image starts as if it stood in a shell.
func (st *stage) start() {
	line, words := 0, []string{}
	for _, in := range []*instruction{st.entrypoint, st.command} {
		if in == nil {
			continue
		}
		if line == 0 {
			line = in.line
		}
		list, isList := in.list()
		if !isList {
			if len(words) == 0 {
				st.script.shell(in.words, in.line)
			}
			return // /bin/sh -c takes no further words
		}
		words = append(words, list...)
	}
	st.script.command(words, line)
}

// command reads the words of one command line.
func (s *Script) command(words []string, line int) {
	var quoted []string
	for _, w := range words {
		q, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			return // a NUL: no program gets it either
		}
		quoted = append(quoted, q)
	}
	s.shell(strings.Join(quoted, " "), line)
}

// shell reads text for a shell that stands on a line of the file.
func (s *Script) shell(text string, line int) {
	r := &reader{s: s, vars: map[string][]Word{}, export: map[string]bool{}}
	r.parse([]byte(text), line-1)
}

// list is the JSON form of an instruction.
func (in instruction) list() ([]string, bool) {
	var out []string
	if !strings.HasPrefix(in.words, "[") || json.Unmarshal([]byte(in.words), &out) != nil {
		return nil, false
	}
	return out, true
}

// shellEntrypoint: /bin/sh is PID 1 then. It hands no signal on, and words behind
// the image's name are nobody's.
func shellEntrypoint(s *Script) []Problem {
	if s.image == nil || s.image.entrypoint == nil {
		return nil
	}
	in := s.image.entrypoint
	if _, ok := in.list(); ok || in.words == "" {
		return nil
	}
	fixed := ""
	if words := strings.Fields(in.words); !strings.ContainsAny(in.words, "$`\"'\\|&;<>(){}*?[]~#=") {
		if words[0] == "exec" {
			words = words[1:]
		}
		if text, err := json.Marshal(words); err == nil && len(words) > 0 {
			fixed = "ENTRYPOINT " + strings.ReplaceAll(string(text), `","`, `", "`)
		}
	}
	why := "CMD and the words behind the image's name reach nobody, and /bin/sh as PID 1 hands no signal on: SIGTERM does not reach the job"
	if strings.HasPrefix(in.words, "exec ") {
		why = "CMD and the words behind the image's name reach nobody"
	}
	return []Problem{problem(in.line, "ENTRYPOINT", finding.Warning, "ENTRYPOINT "+strconv.Quote(in.words)+" is started by /bin/sh -c", "the form of a list", why, "ENTRYPOINT [\"program\", \"option\"]", fixed)}
}

// runExport: a RUN's shell ends with it, and what it exported with the shell.
func runExport(s *Script) []Problem {
	if s.image == nil {
		return nil
	}
	var out []Problem
	for _, in := range s.image.runs {
		sub := &Script{unset: map[string]bool{}}
		sub.shell(in.words, 1)
		for _, set := range sub.Settings {
			if set.How != Exported || !isOurs(set.Name) {
				continue
			}
			fix := ""
			if alone := regexp.MustCompile(`^export\s+` + regexp.QuoteMeta(set.Name) + `=\S+$`); alone.MatchString(in.words) {
				fix = "ENV " + strings.TrimSpace(strings.TrimPrefix(in.words, "export"))
			}
			out = append(out, problem(in.line, set.Name, finding.Error, set.Name+" is exported in a RUN", "ENV", "it ends with that RUN: no process of the image's containers has it", "ENV "+set.Name+"=…", fix))
		}
	}
	return out
}
