package live

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSysTreeReadsWhatTheSystemDoes: every kind of file below /sys, and its
// failures, as os.ReadFile has them.
func TestSysTreeReadsWhatTheSystemDoes(t *testing.T) {
	system := os.DirFS("/")
	n := 0
	for _, pattern := range []string{"sys/class/net/lo/*", "sys/kernel/*", "sys/devices/system/cpu/cpu0/topology/*", "sys/no/such/file"} {
		names, err := fs.Glob(system, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(names, pattern) {
			want, wantErr := fs.ReadFile(system, name)
			got, err := fs.ReadFile(thisMachine(), name)
			if !bytes.Equal(got, want) && !strings.Contains(name, "uevent_seqnum") || (err == nil) != (wantErr == nil) || errors.Is(err, fs.ErrNotExist) != errors.Is(wantErr, fs.ErrNotExist) {
				t.Errorf("%s: %q, %v; the system says %q, %v", name, got, err, want, wantErr)
			}
			if err == nil {
				n++
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d files could be read", n)
	}
	if _, err := fs.ReadFile(thisMachine(), "sys/../etc/passwd"); err == nil {
		t.Error("a path that is none was read")
	}
	long := filepath.Join(t.TempDir(), "long")
	want := bytes.Repeat([]byte("0123456789"), 5000)
	if err := os.WriteFile(long, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readPlain(long); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}
