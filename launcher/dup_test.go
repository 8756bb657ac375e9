package launcher

import (
	"os"
	"syscall"
)

// dup is what a child inherits: a descriptor of its own.
func dup(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
