package launcher

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSweep: what a dead run has left goes; what somebody needs, and what is not a
// run's, stays.
func TestSweep(t *testing.T) {
	base := t.TempDir()
	place := func(name string) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "nccl.1.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dead := place("fabrun-0123456789abcdef")
	staged := place("fabrun-1000")
	other := place("fabrun-0123456789ABCDEF")
	elsewhere := place("elsewhere")
	link := filepath.Join(base, "fabrun-fedcba9876543210")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	held, err := MakeRunDir([]string{"relative", base}, NewMark())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	carried := place("fabrun-" + mark)
	rank := exec.Command("sleep", "600")
	in, err := rank.StdinPipe() // nothing is read: it only has to live
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	rank.Env = withMark(os.Environ(), mark)
	if err := rank.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rank.Process.Kill(); _ = rank.Wait() }()

	there := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	SweepRunDirs([]string{base, filepath.Join(base, "none"), "relative"})
	if there(dead) {
		t.Error("what a dead run left is still there")
	}
	for _, path := range []string{staged, other, link, filepath.Join(elsewhere, "nccl.1.log"), held.Path, carried} {
		if !there(path) {
			t.Errorf("%s was swept", path)
		}
	}
	_ = rank.Process.Kill()
	_ = rank.Wait()
	held.Remove()
	if there(held.Path) {
		t.Error("the run's own directory was not removed")
	}
	SweepRunDirs([]string{base})
	if there(carried) {
		t.Error("the run has ended, and its directory is still there")
	}
}

func TestOpenRunDirTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fabrun-0123456789abcdef")
	d, err := OpenRunDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v, want a directory of the user's alone", st.Mode(), err)
	}
	if _, err := OpenRunDir(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v, want that it is there", err)
	}
	d.Remove()
	if _, err := MakeRunDir([]string{filepath.Join(path, "none")}, "x"); err == nil {
		t.Error("a directory was made where there is no place")
	}
}
