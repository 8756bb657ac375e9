package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWriteWhole: what was there stays what it was, but for its text.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("private"), []byte("old"), 0o600))
	must(os.WriteFile(at("target"), []byte("old"), 0o640))
	must(os.Symlink("target", at("link")))
	must(os.Symlink("absent", at("dangling")))
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	pipe, err := os.OpenFile(at("pipe"), os.O_RDWR, 0)
	must(err)
	defer pipe.Close()
	for _, c := range []struct {
		name string
		mode fs.FileMode // wanted of a new one
		want fs.FileMode // type and permissions, after
	}{
		{"new", Shared, 0o640},
		{"page", Private, 0o600},
		{"private", Shared, 0o600},
		{"link", Shared, fs.ModeSymlink | 0o777},
		{"dangling", Shared, fs.ModeSymlink | 0o777},
		{"pipe", Shared, fs.ModeNamedPipe | 0o600},
	} {
		must(Write(at(c.name), []byte("text"), c.mode))
		if info, err := os.Lstat(at(c.name)); err != nil || info.Mode() != c.want {
			t.Errorf("%s is %v, want %v", c.name, info.Mode(), c.want)
		}
		if c.name != "pipe" {
			if text, err := os.ReadFile(at(c.name)); err != nil || string(text) != "text" {
				t.Errorf("%s has %q, %v", c.name, text, err)
			}
		}
	}
	if os.Geteuid() == 0 {
		must(os.WriteFile(at("others"), []byte("old"), 0o600))
		must(os.Chown(at("others"), 65534, 65534))
		must(syscall.Mknod(at("null"), syscall.S_IFCHR|0o600, 1<<8|3))
		for _, name := range []string{"others", "null"} {
			before, err := os.Lstat(at(name))
			must(err)
			if err := Write(at(name), []byte("text"), Shared); err != nil && name != "null" { // a file system without devices
				t.Errorf("%s: %v", name, err)
			}
			after, err := os.Lstat(at(name))
			must(err)
			was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
			if was.Uid != is.Uid || was.Mode != is.Mode || was.Rdev != is.Rdev {
				t.Errorf("%s was %v of %d and is %v of %d", name, before.Mode(), was.Uid, after.Mode(), is.Uid)
			}
		}
	}
	left, err := filepath.Glob(at(".fabrun-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestOneRunARecord: the second run into a record is refused, and has changed nothing.
func TestOneRunARecord(t *testing.T) {
	name := filepath.Join(t.TempDir(), "job.rec")
	first, err := OpenRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.WriteString("first"); err != nil {
		t.Fatal(err)
	}
	if second, err := OpenRecord(name); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("%v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	third, err := OpenRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if info, err := third.Stat(); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}
