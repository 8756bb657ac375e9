package live

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// sysTree is the root of this machine's files. A snapshot reads thousands of
// small ones below /sys (a port of Soft-RoCE alone has 1,024 GIDs), each of
// which os.ReadFile would first make known to the runtime's poller: on a slow
// machine that is most of the time.
type sysTree struct{ fs.FS }

// thisMachine is the root directory.
func thisMachine() fs.FS { return sysTree{os.DirFS("/")} }

// ReadFile implements fs.ReadFileFS.
func (t sysTree) ReadFile(name string) ([]byte, error) {
	if !strings.HasPrefix(name, "sys/") || !fs.ValidPath(name) {
		return fs.ReadFile(t.FS, name)
	}
	text, err := readPlain("/" + name)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return text, nil
}

// readPlain reads a file that never blocks.
func readPlain(path string) ([]byte, error) {
	fd, err := again(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // read only
	defer syscall.Close(fd)
	text := make([]byte, 0, 512)
	for {
		n, err := again(func() (int, error) { return syscall.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// ReadDir implements fs.ReadDirFS.
func (t sysTree) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(t.FS, name) }

// Stat implements fs.StatFS.
func (t sysTree) Stat(name string) (fs.FileInfo, error) { return fs.Stat(t.FS, name) }

// Lstat implements fs.ReadLinkFS.
func (t sysTree) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(t.FS, name) }

// ReadLink implements fs.ReadLinkFS.
func (t sysTree) ReadLink(name string) (string, error) { return fs.ReadLink(t.FS, name) }
