package remote

import (
	"errors"
	"fmt"
	"strings"
)

// lifeline runs "$@" with an empty standard input and ends it, and everything
// in its process group, when the connection's standard input ends. sshd and
// slurmstepd start every command in a session of its own, so the group is
// ours alone. Without it a cancelled command would run on: sshd sends no signal
// when a session without a terminal goes away (OpenSSH PROTOCOL, session.c).
const lifeline = `exec 3<&0; "$@" </dev/null 3<&- & c=$!; ` +
	`(trap "" TERM; while read -r x <&3; do :; done; kill -TERM 0; sleep 1; kill -KILL 0) >/dev/null 2>&1 & w=$!; ` +
	`exec 3<&-; wait $c; s=$?; kill -KILL $w 2>/dev/null; exit $s`

// passthrough is for commands that read the connection's standard input.
const passthrough = `exec "$@"`

// shellArgv is the argument vector that runs cmd under /bin/sh.
func shellArgv(cmd Command) ([]string, error) {
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, kv := range cmd.Env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s; ", name, shQuote(value))
	}
	if cmd.Dir != "" {
		fmt.Fprintf(&b, "cd -- %s || exit 126; ", shQuote(cmd.Dir))
	}
	if cmd.Stdin != nil {
		b.WriteString(passthrough)
	} else {
		b.WriteString(lifeline)
	}
	return append([]string{"/bin/sh", "-c", b.String(), "fabrun"}, cmd.Argv...), nil
}

// shellLine is one line for the remote login shell, whichever that is: sh, csh
// and fish agree on what a single-quoted string is only where it holds no
// quote, backslash, exclamation mark or line break. Text with one of these
// travels as octal escapes, which sh's own printf undoes.
func shellLine(cmd Command) (string, error) {
	argv, err := shellArgv(cmd)
	if err != nil {
		return "", err
	}
	plain := true
	for _, a := range argv {
		plain = plain && quotesAlike(a)
	}
	if plain {
		words := make([]string, len(argv))
		for i, a := range argv {
			words[i] = a
			if !bare(a) {
				words[i] = "'" + a + "'"
			}
		}
		return "exec " + strings.Join(words, " "), nil
	}
	var script strings.Builder
	script.WriteString("set --")
	for _, a := range argv[4:] {
		script.WriteString(" " + shQuote(a))
	}
	script.WriteString("\n" + argv[2])
	var enc strings.Builder
	for _, c := range []byte(script.String()) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(" -_./=:,;&<>$@|(){}[]*?~#^+", c) >= 0:
			enc.WriteByte(c)
		default:
			fmt.Fprintf(&enc, `\0%03o`, c)
		}
	}
	return `exec /bin/sh -c 'eval "$(printf %b "$1")"' fabrun '` + enc.String() + `'`, nil
}

// checkCommand refuses what no shell can carry.
func checkCommand(cmd Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return errors.New("no program given")
	}
	if strings.HasPrefix(cmd.Argv[0], "-") {
		return fmt.Errorf("program %q looks like an option", cmd.Argv[0])
	}
	for _, a := range append([]string{cmd.Dir}, cmd.Argv...) {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("argument %q holds a NUL byte", a)
		}
	}
	for _, kv := range cmd.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !envName(name) || strings.IndexByte(kv, 0) >= 0 {
			return fmt.Errorf("variable %q is not NAME=value", kv)
		}
	}
	return nil
}

func envName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// shQuote quotes s for a POSIX shell.
func shQuote(s string) string {
	if bare(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// bare says whether every shell takes s as it stands.
func bare(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("_-./:,+@%", c) < 0 {
			return false
		}
	}
	return s != ""
}

// quotesAlike says whether sh, csh and fish read 's' alike.
func quotesAlike(s string) bool {
	return !strings.ContainsAny(s, "'\\!\n\r")
}

// checkHost refuses names that could be read as an option or by a shell. Names
// come from schedulers and files.
func checkHost(host string) error {
	_, name := splitUser(host)
	if name == "" || len(host) > 255 {
		return errors.New("empty or over 255 bytes")
	}
	for _, part := range []string{host, name} {
		if part[0] == '-' {
			return errors.New("begins with '-'")
		}
	}
	for _, c := range []byte(host) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._-:@%", c) < 0 {
			return fmt.Errorf("holds %q", c)
		}
	}
	return nil
}

// splitUser splits "user@host"; the user is "" when not given.
func splitUser(host string) (user, name string) {
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		return host[:i], host[i+1:]
	}
	return "", host
}
