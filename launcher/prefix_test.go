package launcher

import (
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	var out strings.Builder
	m := NewMerge(&out)
	a, b := m.Source("a: "), m.Source("b: ")
	for _, w := range []struct {
		to   interface{ Write([]byte) (int, error) }
		text string
	}{{a, "one\ntw"}, {b, "x\n\ny"}, {a, "o\nthree"}} {
		if _, err := w.to.Write([]byte(w.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want := "a: one\nb: x\nb: \na: two\na: three\nb: y\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
