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
