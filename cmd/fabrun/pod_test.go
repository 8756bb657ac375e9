package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// TestWriteTermination: one line into an empty regular file, and nothing anywhere else.
func TestWriteTermination(t *testing.T) {
	dir := t.TempDir()
	empty, said := filepath.Join(dir, "empty"), filepath.Join(dir, "said")
	for name, text := range map[string]string{empty: "", said: "the program's own words\n", filepath.Join(dir, "other"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, text, want string // "" is left as it is
	}{
		{empty, "mpirun failed with status 4.\nFALLBACK: TCP", "mpirun failed with status 4. FALLBACK: TCP\n"},
		{empty, "a second time", ""},
		{said, "verdict", ""},
		{filepath.Join(dir, "link"), "verdict", ""},
		{filepath.Join(dir, "pipe"), "verdict", ""},
		{filepath.Join(dir, "missing"), "verdict", ""},
		{dir, "verdict", ""},
	} {
		before, _ := os.ReadFile(empty)
		err := writeTermination(tc.name, tc.text)
		if (err == nil) != (tc.want != "") {
			t.Errorf("%s: %v, want it written: %v", tc.name, err, tc.want != "")
		}
		if tc.want == "" {
			if after, _ := os.ReadFile(empty); tc.name == empty && !bytes.Equal(before, after) {
				t.Errorf("%s: changed to %q", tc.name, after)
			}
			continue
		}
		if got, err := os.ReadFile(tc.name); err != nil || string(got) != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "missing")); err == nil {
		t.Error("a file was made that was not there")
	}
	if text, err := os.ReadFile(filepath.Join(dir, "other")); err != nil || len(text) > 0 {
		t.Errorf("written through a link: %q, %v", text, err)
	}
	if err := os.Truncate(empty, 0); err != nil {
		t.Fatal(err)
	}
	if err := writeTermination(empty, strings.Repeat("é ", 4000)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(empty); err != nil || len(got) > maxTermination+1 || !utf8.Valid(got) {
		t.Errorf("%d bytes, %v, valid %v", len(got), err, utf8.Valid(got))
	}
}

// TestNodeCondition: what node-problem-detector reads, which is a status and one line
// of as many bytes as it takes.
func TestNodeCondition(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want int
		line string // its beginning; "" nothing on standard output
	}{
		{"healthy", []string{"--from", "../../testdata/hosts/dgx-roce-8x8.snap", "--profile", "roce-dscp26"}, 0, "good: "},
		{"no subnet manager", []string{"--from", "../../testdata/hosts/ib-no-sm.snap"}, 1, "broken: mlx5_0 port 1 state INIT"},
		{"no adapter", []string{"--from", "../../testdata/hosts/no-hca.snap"}, 1, "broken: RDMA devices none"},
		{"a pod that was given little on a healthy node", []string{"--from", "../../testdata/hosts/pod-bare.snap"}, 0, "good: "},
		{"could not be looked at", []string{"--from", "nosuch.snap"}, 2, ""},
		{"no such profile", []string{"--profile", "nosuch"}, 2, ""},
		{"other hosts", []string{"--hosts", "n[1-4]"}, 2, ""},
		{"an unknown flag", []string{"--nosuch"}, 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(context.Background(), append([]string{"fabrun", "check", "--npd"}, tc.args...), []string{"PATH=/bin"}, strings.NewReader(""), &out, &errs)
			line, rest, ended := strings.Cut(out.String(), "\n")
			if code != tc.want || !strings.HasPrefix(line, tc.line) || len(line) > npdLength || rest != "" || ended != (tc.line != "") || !utf8.ValidString(line) {
				t.Errorf("status %d, want %d; %d bytes %q, want one line %q…\n%s", code, tc.want, len(line), out.String(), tc.line, errs.String())
			}
		})
	}
}
