package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/launcher/exit"
	"fabrun/testdata/hosts"
	"fabrun/topology/live"
)

// hangingTree is the embedded machine with files that never answer: a FIFO that
// nobody writes blocks its reader as a driver that hangs does.
func hangingTree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := snapshotTree(hosts.Demo, dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f)
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(real); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(real, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// Whoever was left behind reads an end now.
		for _, f := range files {
			if w, err := os.OpenFile(filepath.Join(dir, f), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = w.Close()
			}
		}
	})
	return dir
}

// TestAFileThatNeverAnswers: it is named and left out, and the rest is known.
func TestAFileThatNeverAnswers(t *testing.T) {
	const link = "sys/class/infiniband/mlx5_1/ports/1/rate"
	dir := hangingTree(t, link)
	real, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.Dir(link)))
	if err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Rel(dir, filepath.Join(real, "rate"))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"env", "topo", "check", "snapshot", "plan -- true", "run -- true", "slurm prolog --syslog= --deadline=60s --state=" + t.TempDir()} {
		t.Run(verb, func(t *testing.T) {
			var stdout, stderr strings.Builder
			args := append([]string{"fabrun"}, strings.Fields(verb)...)
			args = append(args[:2:2], append([]string{"--root", dir}, args[2:]...)...)
			a := &app{}
			a.Patience = live.Patience{Stall: 200 * time.Millisecond, Total: time.Minute}
			code := a.run(t.Context(), args, []string{"PATH=/usr/bin:/bin"}, strings.NewReader(""), &stdout, &stderr)
			if want := "no answer from " + file + ": left out, and unknown"; !strings.Contains(stderr.String(), want) {
				t.Errorf("status %d; no %q in\n%s", code, want, stderr.String())
			}
			if verb == "snapshot" && !strings.Contains(stdout.String(), file+" ! ETIMEDOUT") {
				t.Error("the snapshot does not say what gave no answer")
			}
			if strings.HasSuffix(verb, "true") && code != 0 {
				t.Errorf("status %d: %s", code, stderr.String())
			}
		})
	}
}

// TestNothingAnswers: the job starts, nothing is set and nothing judged; and
// whoever waits can be told to end.
func TestNothingAnswers(t *testing.T) {
	dir := hangingTree(t, "sys/class/infiniband/mlx5_1/ports/1/rate")
	call := func(ctx context.Context, total time.Duration, args ...string) (int, string) {
		var out strings.Builder
		a := &app{}
		a.Patience = live.Patience{Stall: time.Hour, Total: total}
		code := a.run(ctx, append([]string{"fabrun"}, args...), []string{"PATH=/usr/bin:/bin"}, strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	code, out := call(t.Context(), 200*time.Millisecond, "run", "--root", dir, "--", "true")
	if code != 0 || !strings.Contains(out, "could not look at 1 of 1 hosts (no answer within 200ms from sys/") || !strings.Contains(out, "nothing set, nothing judged") {
		t.Errorf("status %d: %s", code, out)
	}
	if code, out := call(t.Context(), 200*time.Millisecond, "run", "--strict", "--root", dir, "--", "true"); code != exit.Preflight {
		t.Errorf("--strict: status %d: %s", code, out)
	}
	if code, out := call(t.Context(), 200*time.Millisecond, "env", "--root", dir); code != exit.Findings || !strings.Contains(out, "no answer within 200ms") {
		t.Errorf("env: status %d: %s", code, out)
	}
	for _, verb := range []string{"env", "topo", "check", "snapshot"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(exit.SignalCause(syscall.SIGTERM)) })
		if code, out := call(ctx, time.Hour, verb, "--root", dir); code != 128+15 {
			t.Errorf("%s told to end: status %d: %s", verb, code, out)
		}
	}
}
