package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// RunDir is the private directory of one run on one host. Its name carries the
// run's mark, which every process of the job has in its environment, and whoever
// needs it holds a lock on it: without either, its run is dead.
type RunDir struct {
	Path string
	lock *os.File
}

const runDirPrefix = "fabrun-"

// markDigits is the length of a mark: NewMark's eight bytes.
const markDigits = 16

// RunDirBases are where the private directory of a run may lie: in memory where
// there is room, else where temporary files go, which is tmp where that is set.
func RunDirBases(tmp string) []string {
	out := []string{"/dev/shm"}
	for _, base := range []string{tmp, "/tmp"} {
		if base = filepath.Clean(base); filepath.IsAbs(base) && !slices.Contains(out, base) {
			out = append(out, base)
		}
	}
	return out
}

// MakeRunDir makes the directory of the run with this mark in the first of bases
// that takes one.
func MakeRunDir(bases []string, mark string) (*RunDir, error) {
	var first error
	for _, base := range bases {
		if !filepath.IsAbs(base) {
			continue
		}
		d, err := OpenRunDir(filepath.Join(base, runDirPrefix+mark))
		if err == nil {
			return d, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("no place for a private directory: %w", first)
}

// OpenRunDir makes a run's directory under the name that another host has for it.
// The error is fs.ErrExist where it is there already.
func OpenRunDir(path string) (*RunDir, error) {
	for try := 0; ; try++ {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
		d, err := os.Open(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && try < 3 {
				continue
			}
			return nil, err
		}
		// A sweep that saw it in between may have it: then it is made again. Where a
		// file system knows no locks, it does not sweep there either.
		lockErr := flock(d, syscall.LOCK_SH)
		if _, err := os.Lstat(path); lockErr == nil && errors.Is(err, fs.ErrNotExist) && try < 3 {
			closeQuietly(d)
			continue
		}
		return &RunDir{Path: path, lock: d}, nil
	}
}

// Remove removes the directory and what is in it.
func (d *RunDir) Remove() {
	if d == nil {
		return
	}
	//nolint:errcheck // a leftover private directory in a temporary place: the next run sweeps it
	_ = os.RemoveAll(d.Path)
	closeQuietly(d.lock)
}

func flock(f *os.File, how int) error {
	_, err := again(func() (int, error) { return 0, syscall.Flock(int(f.Fd()), how) })
	return err
}

// SweepRunDirs removes what runs of this user that are dead have left in bases:
// directories of ours, whose lock nobody holds, and whose mark no living process
// carries. A file system that other hosts share is left alone: their processes
// are not seen here.
func SweepRunDirs(bases []string) {
	for _, base := range bases {
		if shared, known := SharedLogs(filepath.Join(base, "x")); shared || !known || !filepath.IsAbs(base) {
			continue
		}
		entries, err := os.ReadDir(base)
		if err != nil {
			continue
		}
		for _, e := range entries {
			mark, ok := strings.CutPrefix(e.Name(), runDirPrefix)
			if ok && e.IsDir() && len(mark) == markDigits && strings.Trim(mark, "0123456789abcdef") == "" {
				sweep(filepath.Join(base, e.Name()), mark)
			}
		}
	}
}

func sweep(path, mark string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	d := os.NewFile(uintptr(fd), path)
	defer closeQuietly(d)
	info, err := d.Stat()
	if err != nil || !OwnFile(info) || flock(d, syscall.LOCK_EX|syscall.LOCK_NB) != nil || carried(mark) {
		return
	}
	//nolint:errcheck // the next one tries again
	_ = os.RemoveAll(path)
}

// carried reports whether a living process has the mark in its environment.
func carried(mark string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte(mark)) {
			return true
		}
	}
	return false
}
