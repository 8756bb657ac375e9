package launcher

import (
	"os"
	"syscall"
	"testing"
)

// blocks is how much room a file takes, in 512-byte blocks.
func blocks(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks
}

// dup is what a child inherits: a descriptor of its own.
func dup(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
