package report

import (
	"bytes"
	"io"
	"testing"
)

func TestOwnLines(t *testing.T) {
	var b bytes.Buffer
	o := &ownLines{w: &b}
	for _, text := range []string{"one\n  two\n", "fabrun: three\n", "", "fo", "ur\n\n"} {
		if n, err := io.WriteString(o, text); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := b.String(), "fabrun: one\nfabrun:   two\nfabrun: three\nfabrun: four\nfabrun: \n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlainText(t *testing.T) {
	const text = "a → b … ≥ 2 × µ “c” ü"
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, text},
		{[]string{"LANG=C.UTF-8"}, text},
		{[]string{"LANG=en_US.UTF-8", "LC_ALL=C"}, `a -> b ... >= 2 x u "c" ?`},
		{[]string{"LC_ALL=", "LANG=POSIX"}, `a -> b ... >= 2 x u "c" ?`},
		{[]string{"LC_ALL=de_DE.UTF-8", "LANG=C"}, text},
	} {
		var b bytes.Buffer
		w := PlainText(&b, c.env)
		for i := range len(text) { // one byte at a time
			if _, err := io.WriteString(w, text[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != c.want {
			t.Errorf("%v: %q, want %q", c.env, b.String(), c.want)
		}
	}
}
