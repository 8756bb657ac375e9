package report

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"fabrun/launcher/cmdline"
)

// Own is where fabrun's own lines go: standard error, which is the job's too, so
// that each line says whose it is. env says what the terminal can show.
func Own(stderr io.Writer, env []string) io.Writer { return &ownLines{w: PlainText(stderr, env)} }

// mark begins every line of fabrun's own.
const mark = "fabrun: "

// ownLines puts the mark before every line that has none.
type ownLines struct {
	w    io.Writer
	mu   sync.Mutex
	open bool // a line has begun and not ended
}

func (o *ownLines) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []byte
	for line := range bytes.Lines(b) {
		if !o.open && !bytes.HasPrefix(line, []byte(mark)) {
			out = append(out, mark...)
		}
		out = append(out, Printable(string(line))...) // remote text among them
		o.open = line[len(line)-1] != '\n'
	}
	if _, err := o.w.Write(out); err != nil { // one write: the job writes there too
		return 0, err
	}
	return len(b), nil
}

// PlainText folds text to ASCII where the locale knows nothing else (LC_ALL=C).
// Where none is set nothing is known, and nothing folded.
func PlainText(w io.Writer, env []string) io.Writer {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := cmdline.Value(env, name); v != "" {
			if v == "C" || v == "POSIX" {
				return &asciiText{w: w}
			}
			return w
		}
	}
	return w
}

// asciiForms are what fabrun's texts hold beside ASCII.
var asciiForms = strings.NewReplacer("→", "->", "…", "...", "−", "-", "–", "-", "—", "-", "×", "x", "µ", "u", "≥", ">=", "≤", "<=", "·", "-", "“", `"`, "”", `"`, "’", "'")

type asciiText struct {
	w    io.Writer
	held []byte // the beginning of a character
}

func (t *asciiText) Write(b []byte) (int, error) {
	t.held = append(t.held, b...)
	whole := len(t.held)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(t.held[i]) && !utf8.FullRune(t.held[i:]) {
			whole = i
		}
	}
	out := strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, asciiForms.Replace(string(t.held[:whole])))
	t.held = append([]byte(nil), t.held[whole:]...)
	if _, err := io.WriteString(t.w, out); err != nil {
		return 0, err
	}
	return len(b), nil
}
