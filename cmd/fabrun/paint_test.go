package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestPainter(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"error    a.b  n1\n         error inside\n", red + "error" + plain + "    a.b  n1\n         error inside\n"},
		{"good: 1 host\nwarning  x\nnote     y\n", green + "good" + plain + ": 1 host\n" + yellow + "warning" + plain + "  x\nnote     y\n"},
		{"errors are many\ngoodness\n", "errors are many\ngoodness\n"},
		{"j.sh:3: error: A=1: x [id]\n", "j.sh:3: " + red + "error" + plain + ": A=1: x [id]\n"},
		{"FALLBACK to TCP", red + "FALLBACK" + plain + " to TCP"},
		{"No fallback\n\n", green + "No fallback" + plain + "\n\n"},
		{"", ""},
	} {
		for _, step := range []int{1, 3, 1 << 10} {
			var b bytes.Buffer
			p := &painter{w: &b}
			for rest := c.in; rest != ""; {
				n := min(step, len(rest))
				if _, err := p.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := p.flush(); err != nil {
				t.Fatal(err)
			}
			if b.String() != c.want {
				t.Errorf("%q in pieces of %d: %q, want %q", c.in, step, b.String(), c.want)
			}
		}
	}
}

func TestColorFlag(t *testing.T) {
	snap := "../../testdata/hosts/ib-no-sm.snap"
	for _, c := range []struct {
		args   []string
		colour bool
		status int
	}{
		{[]string{"check", "--from", snap, "--color", "always"}, true, 1},
		{[]string{"check", "--from", snap, "--color", "always", "--json"}, false, 1},
		{[]string{"check", "--from", snap}, false, 1}, // no terminal
		{[]string{"check", "--from", snap, "--color", "never"}, false, 1},
		{[]string{"check", "--from", snap, "--color", "purple"}, false, 2},
		{[]string{"version", "--color", "purple"}, false, 2},
		{[]string{"env", "--from", snap, "--color", "always"}, false, 0},
	} {
		var out, errs bytes.Buffer
		status := run(context.Background(), append([]string{"fabrun"}, c.args...), []string{"TERM=xterm"}, strings.NewReader(""), &out, &errs)
		if status != c.status || strings.Contains(out.String(), "\x1b[") != c.colour {
			t.Errorf("fabrun %q: status %d, stderr %q, stdout:\n%s", c.args, status, errs.String(), out.String())
		}
	}
}
