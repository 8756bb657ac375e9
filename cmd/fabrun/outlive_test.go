package main

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var runDirOf = regexp.MustCompile(`(/\S*/fabrun-[0-9a-f]{16})/hostfile`)

// jobUnderFabrun is a job of the fake mpirun with everything that a run leaves
// behind: a run directory and a record.
func jobUnderFabrun(t *testing.T, record string, env ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("fabrun", "--preflight", "off", "--remote", "none", "--record", record, "--hosts", "n1:1,n2:1", "mpirun", "-np", "2", "./a.out")
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), env...)
	return c
}

// TestReaderLeaves: the status is the job's, the record has its end and nothing is
// left where whoever reads fabrun's standard error has gone, or has no room.
func TestReaderLeaves(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	for _, c := range []struct {
		name string
		exit string
		want int
	}{{"a good job", "0", 0}, {"a bad one", "3", 3}} {
		for _, to := range []string{"nobody", "a full disk"} {
			t.Run(c.name+" to "+to, func(t *testing.T) {
				record := filepath.Join(t.TempDir(), "record")
				cmd := jobUnderFabrun(t, record, "FAKE_EXIT="+c.exit)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, full
				if to == "nobody" {
					r, w, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					_ = r.Close()
					defer w.Close()
					cmd.Stderr = w
				}
				err := cmd.Run()
				if got := cmd.ProcessState.ExitCode(); got != c.want {
					t.Errorf("status %d (%v), want %d", got, err, c.want)
				}
				text, err := os.ReadFile(record)
				if err != nil || !strings.Contains(string(text), `"exit"`) {
					t.Errorf("the record has no end: %v\n%s", err, text)
				}
				m := runDirOf.FindStringSubmatch(out.String())
				if m == nil {
					t.Fatalf("no hostfile in\n%s", out.String())
				}
				if _, err := os.Stat(m[1]); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", m[1], err)
				}
			})
		}
	}
}

// TestNothingIsLeftOfAKilledRun: the guard removes the run's directory with the
// job.
func TestNothingIsLeftOfAKilledRun(t *testing.T) {
	cmd := jobUnderFabrun(t, filepath.Join(t.TempDir(), "record"), "FAKE_WAIT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	dir := ""
	for in := bufio.NewScanner(out); in.Scan(); {
		if m := runDirOf.FindStringSubmatch(in.Text()); m != nil {
			dir = m[1]
		}
		if strings.Contains(in.Text(), "waiting") {
			break
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("no run directory: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for late := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s is left", dir)
		}
	}
}
