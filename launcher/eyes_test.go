package launcher

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fabrun/launcher/watch"
)

// TestEyesTellSilence: an eye says once that its logs have fallen silent, and when
// they go on.
func TestEyesTellSilence(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "nccl.n1.7.log")
	synctest.Test(t, func(t *testing.T) {
		var told []int // processes; -1: they go on
		e := NewEyes(EyesConfig{Host: "n1", Follow: Following{Dir: dir}, Stall: time.Minute, OnQuiet: func(procs []watch.Standing) {
			if procs == nil {
				told = append(told, -1)
				return
			}
			told = append(told, len(procs))
		}})
		write(t, log, "n1:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n")
		look := func() {
			e.follower.Poll()
			e.progressed(time.Now())
		}
		look()
		for range 130 {
			time.Sleep(time.Second)
			look()
		}
		h, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteString("n1:7:7 [0] NCCL INFO Using network IB\n"); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		look()
		if len(told) != 2 || told[0] != 1 || told[1] != -1 {
			t.Errorf("told %v, want 1 process silent, then that it goes on", told)
		}
	})
}
