package pasted

import (
	"strings"
	"testing"
	"unicode/utf16"
)

func utf16Text(s string, big, mark bool) string {
	var b strings.Builder
	if mark {
		s = "\ufeff" + s
	}
	for _, u := range utf16.Encode([]rune(s)) {
		if big {
			b.WriteByte(byte(u >> 8))
			b.WriteByte(byte(u))
		} else {
			b.WriteByte(byte(u))
			b.WriteByte(byte(u >> 8))
		}
	}
	return b.String()
}

// Plain takes away what terminals and pagers add, and nothing of the text.
func TestPlain(t *testing.T) {
	const text = "Port  Status\nEt1   up  µ\n"
	for _, tc := range []struct{ name, in, want string }{
		{"as it is", text, text},
		{"Windows line ends", strings.ReplaceAll(text, "\n", "\r\n"), text},
		{"UTF-8 with a mark", "\ufeff" + text, text},
		{"UTF-16 little-endian", utf16Text(text, false, true), text},
		{"UTF-16 big-endian", utf16Text(text, true, true), text},
		{"UTF-16 without a mark", utf16Text(text, false, false), text},
		{"colours", "\x1b[1mPort\x1b[0m  Status\n\x1b[32mEt1\x1b[m   up  µ\x1b[K\n", text},
		{"a pager of a switch, wiped", "Port  Status\n --More-- \r          \rEt1   up  µ\n", text},
		{"a pager of Junos", "Port  Status\n---(more 45%)---\rEt1   up  µ\n", text},
		{"a pager wiped with backspaces", "Port  Status\n--More--\b\b\b\b\b\b\b\b        \b\b\b\b\b\b\b\bEt1   up  µ\n", text},
		{"an overstrike", "P\bPort  Status\nEt1   up  µ\n", text},
		{"less", "Port  Status\nEt1   up  µ\nlines 1-2/2 (END)", text},
		{"a ruler is no pager", "---- more or less ----\n-----  ----\n", "---- more or less ----\n-----  ----\n"},
		{"a progress bar", "10 %\r99 %\rdone\n", "done\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Plain(tc.in); got != tc.want {
				t.Errorf("Plain(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"text", "Et1 up\n", ""},
		{"colours and UTF-16 are text", utf16Text("\x1b[1mEt1\x1b[0m up\n", false, true), ""},
		{"empty", "", "it is empty"},
		{"blank", " \r\n\t\n", "it is empty"},
		{"binary", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\xff\xfe\x03", "it is no text: binary data"},
		{"too long", strings.Repeat("x", MaxBytes+1), "4.0 MB, where the longest output of this kind has less than 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := Check([]byte(tc.in), MaxBytes); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\b\bb\rc\x1b[31m--More--\nlines 1-2\n")
	f.Add(utf16Text("abc", true, true))
	f.Fuzz(func(t *testing.T, text string) {
		once := Plain(text)
		if strings.ContainsRune(once, '\r') && !strings.ContainsRune(text, '\r') && !strings.HasPrefix(text, "\xff\xfe") {
			t.Errorf("%q became %q", text, once)
		}
	})
}
