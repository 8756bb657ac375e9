package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGPUUUIDs(t *testing.T) {
	proc := t.TempDir()
	for pci, text := range map[string]string{
		"0000:3b:00.0": "Model: \t\t GPU\nGPU UUID: \t GPU-bb22\nIRQ: 1\n",
		"0000:19:00.0": "Model: \t\t GPU\nGPU UUID: \t GPU-aa11\n",
		"0000:5e:00.0": "Model: \t\t GPU\n",
	} {
		dir := filepath.Join(proc, "driver/nvidia/gpus", pci)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := GPUUUIDs(proc), []string{"GPU-aa11", "GPU-bb22", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := GPUUUIDs(t.TempDir()); got != nil {
		t.Errorf("without a driver: %q", got)
	}
}
