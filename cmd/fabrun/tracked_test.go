package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxTracked is the size in bytes above which a tracked file is no source.
const maxTracked = 1_000_000

// executables begin with these bytes: ELF, Mach-O (32 and 64 bit, both byte
// orders, fat), PE, and an ar archive of objects.
var executables = []string{"\x7fELF", "\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "MZ\x90\x00", "!<arch>\n"}

// refusedFiles names the files that git tracks below dir and that no source
// tree should hold, each with its reason.
func refusedFiles(dir string) ([]string, error) {
	list := exec.Command("git", "-C", dir, "ls-files", "-z", "--full-name", ".")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %q: %w", dir, err)
	}
	var refused []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted in the work tree, or a link: its target is judged
		}
		if info.Size() > maxTracked {
			refused = append(refused, fmt.Sprintf("%s: %d bytes", name, info.Size()))
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, magic := range executables {
			if bytes.HasPrefix(text, []byte(magic)) {
				refused = append(refused, name+": an executable")
			}
		}
	}
	return refused, nil
}

// TestTrackedFiles keeps built programs and bulk out of the repository.
func TestTrackedFiles(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("no git checkout: nothing is tracked")
	}
	refused, err := refusedFiles("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range refused {
		t.Errorf("%s is tracked (git rm --cached it, and see .gitignore)", file)
	}
}

func TestTrackedFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("built", "\x7fELF\x02\x01\x01")
	write("mac", "\xcf\xfa\xed\xfe\x07")
	write("bulk.log", strings.Repeat("x", maxTracked+1))
	// Near misses: none of these is a program or too large.
	write("script", "#!/bin/sh\n")
	write("elf.txt", "ELF files begin with \x7fELF")
	write("limit.log", strings.Repeat("x", maxTracked))
	write("untracked", "\x7fELF")
	for _, args := range [][]string{{"init", "-q"}, {"add", "built", "mac", "bulk.log", "script", "elf.txt", "limit.log"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	refused, err := refusedFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(refused, "; "), "built: an executable; bulk.log: 1000001 bytes; mac: an executable"; got != want {
		t.Errorf("refused %s; want %s", got, want)
	}
}
