package report

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"fabrun/topology/finding"
)

// OneLine is the result of a check in one line: its verdict and what is the worst,
// the worst first.
func OneLine(c Checked) string {
	worst, any := finding.Worst(c.Findings)
	if !any || worst == finding.Note {
		return fmt.Sprintf("%s: %d %s", c.Verdict(), len(c.Hosts), plural(len(c.Hosts), "host"))
	}
	var parts []string
	for _, f := range foldFindings(c.Findings) {
		if f.Severity != worst {
			continue
		}
		part := strings.TrimSpace(f.Subject + " " + f.Seen)
		if len(c.Hosts) > 1 && f.Host != "" {
			part = f.Host + " " + part
		}
		parts = append(parts, part+" ("+f.ID+")")
	}
	return string(c.Verdict()) + ": " + strings.Join(parts, "; ")
}

// Cut shortens a line to so many bytes, at the end of a character.
func Cut(s string, most int) string {
	const dots = "..."
	if len(s) <= most {
		return s
	}
	s = s[:most-len(dots)]
	for s != "" {
		if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s + dots
}
