package eyes

import (
	"os"
	"path/filepath"
	"testing"

	"fabrun/testdata/wait"
)

func TestParseUse(t *testing.T) {
	for _, c := range []struct {
		line string
		want float64
		ok   bool
	}{
		{"use 0.873 8", 0.873, true},
		{"use 0 1", 0, true},
		{"use 1.5 8", 0, false},
		{"use NaN 8", 0, false},
		{"use 0.5 0", 0, false},
		{"use 0.5", 0, false},
		{"0.5 8", 0, false},
		{"", 0, false},
		{"use -0.1 8", 0, false},
	} {
		if got, ok := parseUse(c.line); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %v %v, want %v %v", c.line, got, ok, c.want, c.ok)
		}
	}
}

// TestGPUMeter asks a helper that answers as fabrun-nvml does.
func TestGPUMeter(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "fabrun-nvml")
	if err := os.WriteFile(helper, []byte("#!/bin/sh\ntest \"$1\" = use || exit 2\nwhile read -r _; do echo use 0.25 8; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := startGPUMeter(helper)
	if g == nil {
		t.Fatal("no helper")
	}
	defer g.close()
	if got := g.look(); got != nil {
		t.Errorf("use %v before anything was asked", *got)
	}
	wait.For(t, "the helper's answer", func() bool {
		got := g.look()
		if got != nil && *got != 0.25 {
			t.Errorf("use %v", *got)
		}
		return got != nil
	})
	var none *gpuMeter
	if none.look() != nil {
		t.Error("no helper, and an answer")
	}
	none.close()
	if startGPUMeter(filepath.Join(t.TempDir(), "nothing")) != nil {
		t.Error("a helper that is not there")
	}
}
