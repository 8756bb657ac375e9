package remote

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sshFile is one ssh_config file as read. What of it applies to a host is
// decided per host, since Match looks at what earlier lines have set.
type sshFile struct {
	name  string
	lines []sshLine
}

type sshLine struct {
	key      string // lower case
	args     []string
	included []sshFile // of Include
}

// maxInclude is how deep files may include each other (readconf.c).
const maxInclude = 16

// maxConfig bounds one file of it.
const maxConfig = 1 << 20

// readSSHConfig reads one file and what it includes; one that is not there is
// no error. base is where relative names of Include are looked for.
func readSSHConfig(name, home, base string, depth int) (sshFile, []string) {
	f := sshFile{name: name}
	text, err := os.ReadFile(name)
	switch {
	case os.IsNotExist(err):
		return f, nil
	case err != nil:
		return f, []string{err.Error()}
	case len(text) > maxConfig:
		return f, []string{fmt.Sprintf("%s: larger than %d bytes, not read", name, maxConfig)}
	}
	var notes []string
	f.lines = parseSSHConfig(text)
	for i := range f.lines {
		l := &f.lines[i]
		if l.key != "include" {
			continue
		}
		if depth >= maxInclude {
			notes = append(notes, fmt.Sprintf("%s: Include nested deeper than %d, passed over", name, maxInclude))
			continue
		}
		for _, pattern := range l.args {
			switch {
			case strings.HasPrefix(pattern, "~/"):
				pattern = home + pattern[1:]
			case !filepath.IsAbs(pattern):
				pattern = filepath.Join(base, pattern)
			}
			names, _ := filepath.Glob(pattern) // in order of name, as glob(3)
			for _, n := range names {
				in, more := readSSHConfig(n, home, base, depth+1)
				l.included, notes = append(l.included, in), append(notes, more...)
			}
		}
	}
	return f, notes
}

// parseSSHConfig takes lines apart into keyword and arguments.
func parseSSHConfig(text []byte) []sshLine {
	var out []sshLine
	for raw := range bytes.Lines(text) {
		line := strings.Trim(string(raw), " \t\r\n\f")
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.IndexAny(line, " \t=")
		if end < 0 {
			end = len(line)
		}
		key, rest := strings.ToLower(line[:end]), strings.TrimLeft(line[end:], " \t")
		rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
		out = append(out, sshLine{key: key, args: sshWords(rest)})
	}
	return out
}

// sshWords splits arguments as OpenSSH's argv_split does: single and double
// quotes, a backslash before a quote, a backslash or, outside quotes, a blank;
// a word that begins with # ends the line.
func sshWords(s string) []string {
	var out []string
	for i := 0; i < len(s); {
		if s[i] == ' ' || s[i] == '\t' {
			i++
			continue
		}
		if s[i] == '#' {
			break
		}
		var word []byte
		quote := byte(0)
		for ; i < len(s); i++ {
			c := s[i]
			if c == '\\' && i+1 < len(s) && (s[i+1] == '\'' || s[i+1] == '"' || s[i+1] == '\\' || quote == 0 && s[i+1] == ' ') {
				i++
				word = append(word, s[i])
				continue
			}
			switch {
			case quote == 0 && (c == ' ' || c == '\t'):
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
				continue
			case quote != 0 && c == quote:
				quote = 0
				continue
			default:
				word = append(word, c)
				continue
			}
			break
		}
		out = append(out, string(word))
	}
	return out
}

// sshSettings is what a configuration says for one host: the first value of
// each keyword, and all of those that add up.
type sshSettings struct {
	first map[string][]string
	all   map[string][]string // identityfile, certificatefile
	// proxy is which of "proxyjump" and "proxycommand" counts; "" neither was set.
	proxy string
}

func (s *sshSettings) get(key string) string {
	if v := s.first[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (s *sshSettings) set(l sshLine) {
	if len(l.args) == 0 {
		return
	}
	switch l.key {
	case "identityfile", "certificatefile":
		if v := l.args[0]; !slices.Contains(s.all[l.key], v) {
			s.all[l.key] = append(s.all[l.key], v)
		}
		return
	// Of the two the first counts; 'ProxyJump none' leaves room for a command.
	case "proxycommand":
		if jump := s.get("proxyjump"); jump != "" && !strings.EqualFold(jump, "none") {
			return
		}
		l.args = []string{strings.Join(l.args, " ")}
		s.proxy = l.key
	case "proxyjump":
		if s.get("proxycommand") != "" {
			return
		}
		if s.proxy == "" {
			s.proxy = l.key
		}
	}
	if _, ok := s.first[l.key]; !ok {
		s.first[l.key] = l.args
	}
}

// sshAsk is what Match can look at.
type sshAsk struct {
	host      string // as typed
	user      string // given with it; "" not
	localUser string
	final     bool // the second reading
	sawFinal  bool
}

// settingsFor evaluates the files in their order (ssh_config(5): for each
// parameter, the first obtained value is used).
func settingsFor(files []sshFile, q sshAsk) sshSettings {
	s := sshSettings{first: map[string][]string{}, all: map[string][]string{}}
	for _, f := range files {
		f.apply(&s, &q, true)
	}
	if q.sawFinal {
		// The name is settled before the second reading (ssh.c).
		name := q.host
		if h := s.get("hostname"); h != "" {
			name = expandHostName(h, q.host)
		}
		s.first["hostname"] = []string{strings.ReplaceAll(name, "%", "%%")}
		q.final = true
		for _, f := range files {
			f.apply(&s, &q, true)
		}
	}
	return s
}

// apply goes through one file; active says whether the block that includes it applies.
func (f sshFile) apply(s *sshSettings, q *sshAsk, outer bool) {
	active := outer
	for _, l := range f.lines {
		switch l.key {
		case "host":
			active = outer && hostApplies(l.args, q.host)
		case "match":
			applies, known := matchApplies(l.args, s, q)
			active = outer && applies && known
		case "include":
			for _, in := range l.included {
				in.apply(s, q, active)
			}
		default:
			if active {
				s.set(l)
			}
		}
	}
}

// hostApplies: any pattern, and none of those with '!'.
func hostApplies(patterns []string, host string) bool {
	found := false
	for _, p := range patterns {
		if p, not := strings.CutPrefix(p, "!"); not {
			if wildcard(p, host) {
				return false
			}
		} else if wildcard(p, host) {
			found = true
		}
	}
	return found
}

// matchApplies judges the criteria of a Match line; known is false where one
// needs a command to be run, or is newer than this program.
func matchApplies(args []string, s *sshSettings, q *sshAsk) (applies, known bool) {
	applies, known = len(args) > 0, true
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		word, not := strings.CutPrefix(word, "!")
		attr, value, joined := strings.Cut(word, "=")
		attr = strings.ToLower(attr)
		switch attr {
		case "all":
			applies = applies && !not
			continue
		case "canonical": // names are never made canonical here
			applies = applies && not
			continue
		case "final":
			q.sawFinal = true
			applies = applies && q.final != not
			continue
		}
		if !joined {
			if len(args) == 0 {
				return false, false
			}
			value, args = args[0], args[1:]
		}
		var is string
		switch attr {
		case "host":
			is = q.host
			if h := s.get("hostname"); h != "" {
				is = expandHostName(h, q.host)
			}
		case "originalhost":
			is = q.host
		case "user":
			is = q.user
			if is == "" {
				is = s.get("user")
			}
			if is == "" {
				is = q.localUser
			}
		case "localuser":
			is = q.localUser
		default:
			known = false
			continue
		}
		applies = applies && hostApplies(strings.Split(value, ","), is) != not
	}
	return applies, known
}

func expandHostName(v, name string) string {
	return strings.NewReplacer("%h", name, "%n", name, "%%", "%").Replace(v)
}
