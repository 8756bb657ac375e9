// Package files reads files that somebody else wrote, as far as they may be large,
// and writes those that a user asked for: whole or not at all, with the mode that
// what is in them wants.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// What a file gets that was not there; the umask takes its part.
const (
	Shared  fs.FileMode = 0o666
	Private fs.FileMode = 0o600 // what a job or a person has said
)

// Write writes what the user has asked for: a file that is there completely
// or not at all. One that was there keeps its mode and its owner; what is no
// regular file (a device, a pipe, a link) is written through.
func Write(name string, data []byte, mode fs.FileMode) error {
	was, err := os.Lstat(name)
	switch {
	case err != nil:
		return Replace(name, data, mode, nil)
	case was.Mode().IsRegular() && ownedByUs(was):
		keep := was.Mode().Perm()
		return Replace(name, data, mode, &keep)
	}
	return writeThrough(name, data, mode)
}

// Replace puts a new file in the place of whatever is there. Errors name the
// file that was wanted, not the one beside it that becomes it.
func Replace(name string, data []byte, mode fs.FileMode, keep *fs.FileMode) error {
	beside := filepath.Join(filepath.Dir(name), ".fabrun-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	f, err := os.OpenFile(beside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return writeError(name, err)
	}
	_, err = f.Write(data)
	if err == nil && keep != nil {
		err = f.Chmod(*keep)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		return writeError(name, errors.Join(err, os.Remove(beside)))
	}
	return nil
}

// ownedByUs says whether a file that takes this one's place would be the same
// user's and group's.
func ownedByUs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid()
}

func writeThrough(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return writeError(name, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return writeError(name, err)
	}
	return nil
}

// OpenRecord opens a file that one run alone writes, line by line. A second run
// is refused before it has changed anything of the first one's.
func OpenRecord(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, Private)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%q: another run records into it", name)
		} else if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
			err = nil // a file system without locks
		}
		if err == nil {
			err = f.Truncate(0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func writeError(name string, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		err = pathErr.Err
	case errors.As(err, &linkErr):
		err = linkErr.Err
	}
	return fmt.Errorf("write %q: %w", name, err)
}

// WritePrivate writes a small file of the user's own, and its directory.
func WritePrivate(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return Replace(path, []byte(text), Private, nil)
}
