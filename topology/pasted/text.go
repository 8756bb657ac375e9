package pasted

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxBytes bounds a paste: the output of these tools on the largest machine or
// switch is well below it.
const MaxBytes = 4 << 20

// Check says why raw cannot be a paste at all: empty, binary, or longer than
// most bytes. A reader that took its first part would judge by half of it.
func Check(raw []byte, most int) error {
	switch text := utf8Text(string(raw)); {
	case len(raw) > most:
		return fmt.Errorf("%.1f MB, where the longest output of this kind has less than %d", float64(len(raw))/(1<<20), most>>20)
	case strings.TrimSpace(text) == "":
		return errors.New("it is empty")
	case isBinary(text):
		return errors.New("it is no text: binary data")
	}
	return nil
}

// isBinary reports more control and broken characters than a terminal leaves.
func isBinary(text string) bool {
	bad, n := 0, 0
	for _, r := range text {
		if n++; n > 1<<16 {
			break
		}
		if r == utf8.RuneError || r < ' ' && !strings.ContainsRune("\t\n\r\b\a\f\v\x1b", r) {
			bad++
		}
	}
	return bad*20 > n
}

var (
	// A terminal's control sequences, and what is left of them where the
	// escape character was lost on the way.
	ansi = lazy(`\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>]|\[[0-9]{1,2}(?:;[0-9]{1,3})*m|\[m`)
	// What pagers leave: --More--, ---(more 45%)---, lines 1-24/80 (END).
	pager = lazy(`(?i)-{2,3}\s*\(?more(?:\s+\d+%)?\)?\s*-{2,3}|\blines \d+-\d+(?:/\d+)?(?: \(END\)| \d+%)?|^\(END\)$|<--- More --->`)
	odd   = strings.NewReplacer("\u00a0", " ", "\u200b", "", "\ufeff", "", "\x00", "", "\a", "")
)

// Plain is the text of a paste without what terminals, pagers and editors add
// to it: UTF-8 with line feeds; no colours, no pager's prompts, overstrikes
// and progress bars as they were last seen. The number of lines stays.
func Plain(text string) string {
	text = strings.ReplaceAll(utf8Text(text), "\r\n", "\n")
	lines := strings.Split(text, "\n")
	for i, s := range lines {
		lines[i] = plainLine(s)
	}
	return strings.Join(lines, "\n")
}

func plainLine(s string) string {
	if strings.IndexByte(s, 0x1b) >= 0 || strings.IndexByte(s, '[') >= 0 {
		s = ansi().ReplaceAllString(s, "")
	}
	if strings.Contains(s, "--") || strings.Contains(s, "lines ") || strings.Contains(s, "(END)") {
		s = pager().ReplaceAllString(s, "")
	}
	s = strings.TrimRight(s, "\r")
	// A carriage return inside a line is a progress bar, or a pager that wipes
	// its prompt: what came last is what was seen.
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	if strings.IndexByte(s, '\b') >= 0 {
		s = overstruck(s)
	}
	return strings.TrimRight(odd.Replace(s), " \t")
}

// overstruck is a line after its backspaces.
func overstruck(s string) string {
	var out []rune
	at := 0
	for _, r := range s {
		switch {
		case r == '\b':
			at = max(at-1, 0)
		case at < len(out):
			out[at] = r
			at++
		default:
			out = append(out, r)
			at++
		}
	}
	return string(out)
}

// utf8Text is s as UTF-8, where a redirect of PowerShell made UTF-16 of it.
func utf8Text(s string) string {
	big := false
	switch {
	case strings.HasPrefix(s, "\xff\xfe"):
		s = s[2:]
	case strings.HasPrefix(s, "\xfe\xff"):
		s, big = s[2:], true
	case len(s) >= 4 && s[1] == 0 && s[3] == 0 && s[0] != 0:
	case len(s) >= 4 && s[0] == 0 && s[2] == 0 && s[1] != 0:
		big = true
	default:
		return strings.TrimPrefix(s, "\ufeff")
	}
	units := make([]uint16, 0, len(s)/2)
	for i := 0; i+1 < len(s); i += 2 {
		lo, hi := uint16(s[i]), uint16(s[i+1])
		if big {
			lo, hi = hi, lo
		}
		units = append(units, hi<<8|lo)
	}
	return string(utf16.Decode(units))
}
