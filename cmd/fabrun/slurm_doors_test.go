package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// slurmWrappers are the scripts of docs/examples/slurm.md, by the door that
// they call, with fabrun at another place and other arguments behind the door.
func slurmWrappers(t *testing.T, fabrun string, args map[string]string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/examples/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i, block := range strings.Split(string(text), "```sh\n") {
		block, _, _ = strings.Cut(block, "```")
		if i == 0 || !strings.HasPrefix(block, "#!/bin/sh\n") {
			continue
		}
		lines := strings.Split(block, "\n")
		for i, line := range lines {
			at, rest, ok := strings.Cut(line, "/usr/local/bin/fabrun slurm ")
			if !ok {
				continue
			}
			door := strings.Fields(rest)[0]
			if more, ok := args[door]; ok {
				rest = door + " " + more
			}
			lines[i] = at + fabrun + " slurm " + rest
			out[door] = strings.Join(lines, "\n")
		}
	}
	if len(out) != 4 {
		t.Fatalf("%d wrappers in the page, want four", len(out))
	}
	return out
}

// wildEnvironments are what a user's environment can tell a Go program.
var wildEnvironments = []string{"GOMEMLIMIT=nonsense", "GOMEMLIMIT=1", "GOGC=nonsense", "GODEBUG=madvdontneed=x,gctrace=nonsense", "GOTRACEBACK=crash", "GOMAXPROCS=-7"}

// waitLess is how long a wrapper waits for fabrun.
var waitLess = regexp.MustCompile(`timeout -s KILL \d+ `)

// TestSlurmWrappers runs the documented wrappers around a fabrun that is not
// there, cannot be run, crashes or hangs: only its own status 1 is passed on.
func TestSlurmWrappers(t *testing.T) {
	real, err := exec.LookPath("fabrun")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fake := func(name, body string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(body), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	state := "--syslog= --state " + filepath.Join(dir, "state")
	args := map[string]string{
		"prolog": "--from demo --ports 8 " + state, "epilog": state, "health": "--from demo " + state, "task-prolog": "--syslog= --from demo --profile roce-dscp26",
	}
	for _, tc := range []struct {
		name, fabrun string
		env          []string
		prolog       int
		exports      bool
	}{
		{"missing", filepath.Join(dir, "nowhere"), nil, 0, false},
		{"not executable", fake("plain", "x", 0o644), nil, 0, false},
		{"another machine's", fake("foreign", "\x7fELF\x02\x01", 0o755), nil, 0, false},
		{"a panic", fake("panics", "#!/bin/sh\nexit 2\n", 0o755), nil, 0, false},
		{"a crash", fake("crashes", "#!/bin/sh\nkill -SEGV $$\n", 0o755), nil, 0, false},
		{"out of memory", fake("killed", "#!/bin/sh\nkill -KILL $$\n", 0o755), nil, 0, false},
		{"it hangs", fake("hangs", "#!/bin/sh\nexec sleep 1000\n", 0o755), nil, 0, false},
		{"its own word", fake("fault", "#!/bin/sh\nexit 1\n", 0o755), nil, 1, false},
		{"it works", real, nil, 0, true},
		{"it works, whatever the environment says", real, wildEnvironments, 0, true},
	} {
		for door, script := range slurmWrappers(t, tc.fabrun, args) {
			if tc.name == "it hangs" {
				script = waitLess.ReplaceAllString(script, "timeout -s KILL 1 ")
			}
			t.Run(tc.name+"/"+door, func(t *testing.T) {
				for _, extra := range append([]string{""}, tc.env...) {
					cmd := exec.Command(fake("wrapper", script, 0o755))
					cmd.Env = append(os.Environ(), extra)
					out, err := cmd.Output()
					status := 0
					var exit *exec.ExitError
					if errors.As(err, &exit) {
						status = exit.ExitCode()
					} else if err != nil {
						t.Fatal(err)
					}
					want := 0
					if door == "prolog" {
						want = tc.prolog
					}
					if status != want {
						t.Errorf("%s: status %d, want %d: %v", extra, status, want, err)
					}
					if got := strings.Contains(string(out), "export NCCL_IB_HCA="); door == "task-prolog" && got != tc.exports {
						t.Errorf("%s: variables are there: %t, want %t", extra, got, tc.exports)
					}
				}
			})
		}
	}
}

// listenSyslog is a syslog socket, and what has arrived there.
func listenSyslog(t *testing.T) (socket string, lines func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "log") // not t.TempDir: at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = filepath.Join(dir, "log")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return socket, func() string {
		var out strings.Builder
		buf := make([]byte, 64<<10)
		for {
			// What was sent lies in the socket's queue.
			if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(buf)
			if err != nil {
				return out.String()
			}
			fmt.Fprintf(&out, "%s\n", buf[:n])
		}
	}
}

// TestSlurmDoorsSpeakInTheLog: slurmd keeps nothing of a prolog's output.
func TestSlurmDoorsSpeakInTheLog(t *testing.T) {
	socket, lines := listenSyslog(t)
	dir := t.TempDir()
	var stdout, stderr strings.Builder
	for _, tc := range []struct {
		args string
		env  []string
		code int
		want []string
	}{
		{"prolog --from demo --ports 9 --state " + dir + "/s", []string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1"}, 1, []string{": slurm prolog: job 7: n1: fabrun: fabric ports 8 active (slurm.ports-missing)"}},
		{"prolog --profile no-such --state " + dir + "/s", nil, 0, []string{`: slurm prolog: no fabric profile named "no-such"`, ": fabrun's own trouble, not the node's: exit status 0"}},
		{"prolog --no-such-flag", nil, 0, nil}, // the flag that names the socket was not read
		{"epilog --state " + dir + "/s", []string{"SLURM_JOB_ID=8"}, 0, []string{": slurm epilog: job 8: what the prolog noted of job 8"}},
		{"task-prolog --profile no-such", []string{"SLURM_JOB_ID=9"}, 0, []string{`: slurm task-prolog: job 9: no fabric profile named "no-such"`}},
		{"prolog --from demo --ports 8 --state " + dir + "/s", nil, 0, nil},
	} {
		args := append([]string{"fabrun", "slurm"}, strings.Fields(tc.args)...)
		args = append(args[:3:3], append([]string{"--syslog=" + socket}, args[3:]...)...)
		if code := run(t.Context(), args, tc.env, strings.NewReader(""), &stdout, &stderr); code != tc.code {
			t.Errorf("%s: status %d, want %d: %s", tc.args, code, tc.code, stderr.String())
		}
		got := lines()
		if strings.Contains(got, "own trouble") && strings.Count(got, "\n") != 1 {
			t.Errorf("%s: more than one line:\n%s", tc.args, got)
		}
		for _, want := range tc.want {
			if !strings.Contains(got, want) || !strings.HasPrefix(got, "<28>") {
				t.Errorf("%s: no %q in\n%s", tc.args, want, got)
			}
		}
	}
}
