package pasted

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fabrun/topology/finding"
)

// maxLineFindings bounds how many unread places are named one by one.
const maxLineFindings = 20

// line is one line of a paste: its number, from 1, and its text without line
// end, colours, quoting and the prefix that every line shares.
type line struct {
	n    int
	text string
}

func (l line) words() []string { return strings.Fields(l.text) }
func (l line) blank() bool     { return strings.TrimSpace(l.text) == "" }

func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

var (
	// "node01: " of pdsh and clush, "[1,0]<stdout>:" of mpirun, "0: " of srun -l.
	prefix = lazy(`^(?:\[\d+,\d+\](?:<std\w+>)?:?|[A-Za-z0-9][\w.-]*:) ?`)
	// "$ cmd", "# cmd", "user@host:~$ cmd", "[root@host ~]# cmd", "(env) user@host % cmd", "+ cmd" of set -x, "root@host:/# cmd".
	prompt = lazy(`^\s*(?:\([\w.-]+\)\s*)*(?:PS [A-Za-z]:[^>]*>|[\w.-]+@[\w.-]+[^$#%>]*[$#%>]|\[[^\]]*@[^\]]*\]\s*[$#%]|[$#%>+]|[\w.-]+[$#>])\s+(?:sudo\s+)?\S+`)
)

// split makes lines of a paste. It reports the host when every line is
// prefixed with one name.
func split(text string) (lines []line, host string) {
	n := 0
	for s := range strings.SplitSeq(Plain(text[:min(len(text), MaxBytes)]), "\n") {
		n++
		for strings.HasPrefix(s, "> ") || s == ">" {
			s = strings.TrimPrefix(strings.TrimPrefix(s, ">"), " ")
		}
		lines = append(lines, line{n: n, text: strings.TrimRight(s, " \t")})
	}
	host = sharedPrefix(lines)
	if host != "" {
		for i := range lines {
			lines[i].text = strings.TrimPrefix(strings.TrimPrefix(lines[i].text, host), " ")
		}
		host = strings.TrimSuffix(host, ":")
		if strings.HasPrefix(host, "[") {
			host = ""
		}
	}
	return lines, host
}

// Lines are the lines of a paste as their program printed them: plain, without
// the quoting of a mail and the prefix of a parallel shell.
func Lines(text string) []string {
	lines, _ := split(text)
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.text
	}
	return out
}

// sharedPrefix is the prefix that a parallel shell put before every line, ""
// where not every line that says something has the same.
func sharedPrefix(lines []line) string {
	shared, count := "", 0
	for _, l := range lines {
		if l.blank() {
			continue
		}
		p := strings.TrimRight(prefix().FindString(l.text), " ")
		if p == "" || shared != "" && p != shared {
			return ""
		}
		shared = p
		count++
	}
	if slices.Contains([]string{"prio:", "tc:", "link:", "port:", "hca_id:"}, shared) { // a column of the tools themselves
		return ""
	}
	if count < 3 { // two lines that begin alike are no parallel shell
		return ""
	}
	return shared
}

// isNoise says that a line is none of a tool's output but plainly belongs to
// how a paste is made: a prompt, a fence, a rule, a warning of sudo.
func isNoise(s string) bool {
	t := strings.TrimSpace(s)
	switch {
	case t == "" || strings.HasPrefix(t, "```") || strings.HasPrefix(t, "~~~"):
		return true
	case strings.Trim(t, "-=*_#~ |+:\t") == "":
		return true
	case strings.HasPrefix(t, "==") && strings.HasSuffix(t, "=="), strings.HasPrefix(t, "## "), strings.HasPrefix(t, "### "):
		return true
	case strings.HasPrefix(t, "sudo: ") || strings.HasPrefix(t, "[sudo] ") || strings.HasPrefix(t, "logout") || strings.HasPrefix(t, "Last login"):
		return true
	}
	return prompt().MatchString(s)
}

// unread collects the lines that could not be read.
type unread struct {
	host string
	list []struct {
		line
		why string
	}
}

func (u *unread) add(l line, why string, args ...any) {
	u.list = append(u.list, struct {
		line
		why string
	}{l, fmt.Sprintf(why, args...)})
}

// findings says line by line what was not read; lines that follow each other
// with the same reason are one.
func (u *unread) findings(tool string) []finding.Finding {
	var out []finding.Finding
	for i := 0; i < len(u.list); {
		j := i + 1
		for j < len(u.list) && u.list[j].n == u.list[j-1].n+1 && u.list[j].why == u.list[i].why {
			j++
		}
		if len(out) == maxLineFindings {
			out = append(out, finding.Finding{
				ID: "paste.unread", Severity: finding.Note, Host: u.host, Subject: fmt.Sprintf("line %d and later", u.list[i].n),
				Seen: fmt.Sprintf("%d more lines that were not read", len(u.list)-i), Wanted: "output of " + tool, Why: "nothing is guessed from them",
			})
			break
		}
		where := fmt.Sprintf("line %d", u.list[i].n)
		if j > i+1 {
			where = fmt.Sprintf("lines %d to %d", u.list[i].n, u.list[j-1].n)
		}
		out = append(out, finding.Finding{
			ID: "paste.unread", Severity: finding.Note, Host: u.host, Subject: where,
			Seen: quote(u.list[i].text), Wanted: "a line of " + tool, Why: u.list[i].why + "; nothing is guessed from it",
		})
		i = j
	}
	return out
}

// quote shows a piece of a paste in a message.
func quote(s string) string {
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > 60 {
		s = string(r[:57]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
