package eyes

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fabrun/launcher/watch"
)

// TestEyesTellSilence: a node says once that its logs have fallen silent, and when
// they go on.
func TestEyesTellSilence(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "nccl.n1.7.log")
	synctest.Test(t, func(t *testing.T) {
		var told []int // processes; -1: they go on
		e := NewNode(Config{Host: "n1", Follow: Following{Dir: dir}, Stall: time.Minute, OnQuiet: func(procs []watch.Standing) {
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

// TestEyesWaitForNoCounters: a driver that hangs holds up neither the start nor
// the end of a job; once it answers, its counters are read again.
func TestEyesWaitForNoCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		stuck, samples := 0, 0
		meter := &Meter{host: "n1", sys: hangingFS{answer}, proc: t.TempDir()}
		began := time.Now()
		e := NewNode(Config{Host: "n1", Follow: Following{Dir: t.TempDir()}, Meter: meter, OnSample: func(watch.Sample) { samples++ }, OnStuck: func() { stuck++ }})
		if took := time.Since(began); took != StuckAfter {
			t.Errorf("the start waited %v, want %v", took, StuckAfter)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e.Run(ctx)
		if took := time.Since(began); took > StuckAfter+time.Minute || stuck != 1 || samples != 0 {
			t.Errorf("after %v: said %d times, %d samples", took, stuck, samples)
		}
		close(answer)
		synctest.Wait()
		e.sample(true)
		if samples != 2 {
			t.Errorf("%d samples once it answers, want the late one and the last", samples)
		}
	})
}

// hangingFS answers nothing before its channel is closed.
type hangingFS struct{ answer chan struct{} }

func (h hangingFS) Open(name string) (fs.File, error) {
	<-h.answer
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
