package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/testdata/wait"
)

// TestMain lets the test program be the process that runs a child: signals,
// subreaper and process groups belong to a whole process.
func TestMain(m *testing.M) {
	if os.Args[0] == GuardName {
		Guard(os.Args, os.Stdin, os.Stdout)
		os.Exit(0)
	}
	switch os.Getenv("LAUNCHER_TEST") {
	case "":
		os.Exit(m.Run())
	case "run":
		if os.Getenv("LAUNCHER_TEST_SHIM") != "" {
			EndWithParent()
		}
		ctx := context.Background()
		if d := os.Getenv("LAUNCHER_TEST_CANCEL"); d != "" {
			var stop context.CancelFunc
			ctx, stop = context.WithCancel(ctx)
			defer stop()
			go func() { // cancelled by a word on file descriptor 3
				_, _ = os.NewFile(3, "cancel").Read(make([]byte, 1))
				stop()
			}()
		}
		path, err := LookPath(os.Args[1], os.Getenv("PATH"), ".")
		if err == nil {
			var st Status
			st, err = Run(ctx, Spec{
				Path: path, Argv: os.Args[1:], Env: os.Environ(), Ranks: os.Getenv("LAUNCHER_TEST_RANKS") != "",
				Guard:    os.Getenv("LAUNCHER_TEST_UNGUARDED") == "",
				Terminal: map[bool]TerminalUse{true: TerminalOnDemand}[os.Getenv("LAUNCHER_TEST_LAZY") != ""],
				Grace:    300 * time.Millisecond, Note: func(s string) { fmt.Fprintln(os.Stderr, "note:", s) },
				Detail: func(s string) { fmt.Fprintln(os.Stderr, "detail:", s) },
			})
			if err == nil {
				os.Exit(st.Code)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(StartStatus(err))
	case "terminal": // says what it sees of the terminal
		for f := range 3 {
			fmt.Println("terminal", f, foregroundGroup(uintptr(f)) == syscall.Getpgrp())
		}
	case "raw": // leaves the terminal without echo and kills itself
		m := terminalModes(0)
		m.Lflag &^= syscall.ECHO | syscall.ICANON
		(&terminal{file: os.Stdin, modes: m}).restore()
		fmt.Println("silent", terminalModes(0).Lflag&syscall.ECHO == 0)
		send(os.Getpid(), syscall.SIGKILL)
	case "count": // counts a signal's arrivals until TERM
		got := make(chan os.Signal, 16)
		signal.Notify(got, syscall.SIGUSR1, syscall.SIGINT, syscall.SIGTERM, syscall.SIGWINCH, syscall.SIGCONT)
		fmt.Println("ready", os.Getpid())
		for sig := range got {
			fmt.Println(sig)
			if sig == syscall.SIGTERM {
				os.Exit(0)
			}
		}
	}
}

// running is a process that runs a child, with its output line by line.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, ranks bool, env []string, argv ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, argv...)
	cmd.Env = append(os.Environ(), "LAUNCHER_TEST=run")
	if ranks {
		cmd.Env = append(cmd.Env, "LAUNCHER_TEST_RANKS=1")
	}
	cmd.Env = append(cmd.Env, env...)
	// A group of its own, as a shell gives a job, and not the tests' terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = r.Close()
	})
	return &running{t, cmd, bufio.NewScanner(r)}
}

// line waits for a line that begins so, and returns the rest.
func (r *running) line(prefix string) string {
	r.t.Helper()
	for r.lines.Scan() {
		if rest, ok := strings.CutPrefix(r.lines.Text(), prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	r.t.Fatalf("no line %q", prefix)
	return ""
}

func (r *running) pid(prefix string) int {
	r.t.Helper()
	n, err := strconv.Atoi(r.line(prefix))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// status waits for the end.
func (r *running) status() int {
	r.t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	wait.For(r.t, "the end of "+r.cmd.String(), func() bool { return len(done) > 0 })
	var ee *exec.ExitError
	if errors.As(<-done, &ee) {
		if ws := ee.Sys().(syscall.WaitStatus); ws.Signaled() {
			return -int(ws.Signal())
		}
		return ee.ExitCode()
	}
	return 0
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("the end of process %d", pid), func() bool {
		p, ok := readProcess(pid)
		return !ok || p.zombie
	})
}

func TestStatus(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	noexec := filepath.Join(dir, "binary")
	if err := os.WriteFile(noexec, []byte{0x7f, 'E', 'L', 'F', 9, 9}, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		argv []string
		want int
	}{
		{"success", []string{"true"}, 0},
		{"the child's own", []string{"sh", "-c", "exit 7"}, 7},
		{"255", []string{"sh", "-c", "exit 255"}, 255},
		{"by a signal", []string{"sh", "-c", "kill -9 $$"}, 137},
		{"by TERM", []string{"sh", "-c", "kill -15 $$"}, 143},
		{"not there", []string{"no-such-program"}, 127},
		{"not executable", []string{text}, 126},
		{"a directory", []string{dir}, 126},
		{"no binary of this machine", []string{noexec}, 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := start(t, false, nil, c.argv...).status(); got != c.want {
				t.Errorf("%q: status %d, want %d", c.argv, got, c.want)
			}
		})
	}
}

// A signal reaches the child once: a launcher alone, a script with its group.
func TestSignalsArriveOnce(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []bool{false, true} {
		t.Run(fmt.Sprintf("launcher=%v", ranks), func(t *testing.T) {
			r := start(t, ranks, nil, "env", "LAUNCHER_TEST=count", self)
			r.line("ready")
			for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGTERM} {
				if err := r.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if !r.lines.Scan() || r.lines.Text() != sig.String() {
					t.Fatalf("the child got %q, want %q once", r.lines.Text(), sig)
				}
			}
			if r.lines.Scan() {
				t.Errorf("one more: %q", r.lines.Text())
			}
			if got := r.status(); got != 0 {
				t.Errorf("status %d", got)
			}
		})
	}
}

// A fabrun in a script hears of one end twice, from its group and by its
// parent's death: its launcher is told once, since twice means "at once" to it.
func TestOneEndFromManySides(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The launcher takes a moment to end, as one with ranks does.
	const mpirun = `trap "echo term; ended=1" TERM; echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.05; [ -z "$ended" ] || i=$((i+1)); done`
	r := start(t, false, nil, "sh", "-c", `trap "sleep 0.3; exit 9" TERM; env LAUNCHER_TEST_SHIM=1 LAUNCHER_TEST_RANKS=1 "$0" sh -c "$1" & wait`, self, mpirun)
	r.line("ready")
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	got := 0
	for r.lines.Scan() {
		if r.lines.Text() == "term" {
			got++
		}
	}
	if got != 1 {
		t.Errorf("the launcher was told %d times, want once", got)
	}
	if got := r.status(); got != 9 {
		t.Errorf("status %d, want 9", got)
	}
}

// The second interrupt ends a child that does not care for the first.
func TestSecondInterruptEnds(t *testing.T) {
	r := start(t, true, nil, "sh", "-c", `trap 'echo int' INT; trap '' TERM; echo pid $$; while :; do sleep 0.05; done`)
	pid := r.pid("pid")
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	r.line("int")
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	r.line("note: interrupted again")
	if got := r.status(); got != 137 {
		t.Errorf("status %d, want 137", got)
	}
	gone(t, pid)
}

// Whoever cancels ends everything, and the status is still the child's.
func TestCancelEndsTheJob(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "sh", "-c", "sleep 60 & echo pid $!; wait")
	cmd.Env = append(os.Environ(), "LAUNCHER_TEST=run", "LAUNCHER_TEST_CANCEL=1", "LAUNCHER_TEST_RANKS=1")
	cmd.ExtraFiles = []*os.File{pr}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{t, cmd, bufio.NewScanner(out)}
	pid := r.pid("pid")
	pw.Close()
	if got := r.status(); got != 143 {
		t.Errorf("status %d, want 143", got)
	}
	gone(t, pid)
}

// What a launcher leaves behind is ended, on every path; what a script starts
// in the background on purpose stays.
func TestOrphans(t *testing.T) {
	const leave = `sh -c 'setsid sleep 60 & echo pid $!; exec setsid true' `
	t.Run("launcher ends well", func(t *testing.T) {
		r := start(t, true, nil, "sh", "-c", leave)
		pid := r.pid("pid")
		if got := r.status(); got != 0 {
			t.Errorf("status %d", got)
		}
		gone(t, pid)
	})
	t.Run("launcher is killed", func(t *testing.T) {
		r := start(t, true, nil, "sh", "-c", `sleep 60 & echo pid $!; kill -9 $$`)
		pid := r.pid("pid")
		if got := r.status(); got != 137 {
			t.Errorf("status %d", got)
		}
		gone(t, pid)
	})
	t.Run("one that ignores TERM", func(t *testing.T) {
		r := start(t, true, nil, "sh", "-c", `sh -c 'trap "" TERM; echo pid $$; while :; do sleep 0.05; done' & sleep 0.2; exit 3`)
		pid := r.pid("pid")
		if got := r.status(); got != 3 {
			t.Errorf("status %d", got)
		}
		gone(t, pid)
	})
	t.Run("a script's background job", func(t *testing.T) {
		r := start(t, false, nil, "sh", "-c", `sleep 60 >/dev/null 2>&1 & echo pid $!`)
		pid := r.pid("pid")
		if got := r.status(); got != 0 {
			t.Errorf("status %d", got)
		}
		if p, ok := readProcess(pid); !ok || p.zombie {
			t.Error("it was ended")
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	})
}

// When fabrun itself is killed, its guard ends the child; where no guard could
// be started, the kernel tells the child.
func TestKilledItself(t *testing.T) {
	for _, env := range [][]string{nil, {"LAUNCHER_TEST_UNGUARDED=1"}} {
		t.Run(strings.Join(env, ""), func(t *testing.T) {
			r := start(t, true, env, "sh", "-c", `echo pid $$; exec sleep 60`)
			pid := r.pid("pid")
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if got := r.status(); got != -9 {
				t.Errorf("status %d", got)
			}
			gone(t, pid)
		})
	}
}

// What the caller ignores (nohup) stays ignored in the child.
func TestIgnoredStaysIgnored(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `trap '' HUP; exec "$0" sh -c 'echo pid $$; kill -HUP $$; echo lives'`, self)
	cmd.Env = append(os.Environ(), "LAUNCHER_TEST=run")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "lives") {
		t.Errorf("got %q, %v", out, err)
	}
}

// The child has the streams themselves: nothing is pumped.
func TestStreamsAreInherited(t *testing.T) {
	r := start(t, true, nil, "sh", "-c", `readlink /proc/$$/fd/1; readlink /proc/$PPID/fd/1`)
	r.lines.Scan()
	child := r.lines.Text()
	r.lines.Scan()
	if child != r.lines.Text() || child == "" {
		t.Errorf("child has %q, fabrun has %q", child, r.lines.Text())
	}
	r.status()
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a/prog": 0o644, "b/prog": 0o755, "a/only": 0o644} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	path := dir + "/a:" + dir + "/b"
	if got, err := LookPath("prog", path, dir); got != dir+"/b/prog" || err != nil {
		t.Errorf("prog: %q, %v", got, err)
	}
	if _, err := LookPath("only", path, dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("only: %v", err)
	}
	if _, err := LookPath("none", path, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		text string
		want process
		ok   bool
	}{
		{"12 (sh) S 1 12 11 0", process{pid: 12, ppid: 1, pgrp: 12, session: 11, state: "S"}, true},
		{"12 (sh) S 1 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 654", process{pid: 12, ppid: 1, pgrp: 12, session: 12, start: 987, state: "S", ticks: 26}, true},
		{"12 (sh) S 1 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 x 654", process{}, false},
		{"12 (a) b) (c) Z 3 4 5", process{pid: 12, ppid: 3, pgrp: 4, session: 5, zombie: true, state: "Z"}, true},
		{"", process{}, false},
		{")(", process{}, false},
		{"1 (x)", process{}, false},
		{"x (y) S 1 2", process{}, false},
	} {
		if got, ok := parseStat(c.text); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v, %v", c.text, got, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (sh) S 1 12 12 0")
	f.Fuzz(func(_ *testing.T, s string) { parseStat(s) })
}

// As process 1 of a container: orphans are reaped, signals forwarded, the
// status is the child's, and nothing is left.
func TestProcessOne(t *testing.T) {
	unshare := []string{"unshare", "--fork", "--pid", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespace of processes here: %v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inside := func(t *testing.T, env []string, script string) *running {
		t.Helper()
		argv := append(slices.Clone(unshare[1:]), "env", "LAUNCHER_TEST=run", self, "sh", "-c", script)
		cmd := exec.Command(unshare[0], argv...)
		cmd.Env = append(os.Environ(), append([]string{"GORACE=atexit_sleep_ms=0"}, env...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		return &running{t, cmd, bufio.NewScanner(out)}
	}
	for _, c := range []struct {
		name   string
		script string
		want   int
	}{
		{"its own status", "exit 7", 7},
		{"a signal's", "kill -9 $$", 137},
		{"parent is process 1", `test $PPID = 1`, 0},
		{"reaps", `(sleep 0.1 &); sleep 0.2; for i in $(seq 80); do grep -q "^State:.Z" /proc/[0-9]*/status 2>/dev/null || exit 0; sleep 0.05; done; grep -H State: /proc/[0-9]*/status; exit 1`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ranks := range []string{"LAUNCHER_TEST_RANKS=", "LAUNCHER_TEST_RANKS=1"} {
				r := inside(t, []string{ranks}, c.script)
				for r.lines.Scan() {
					t.Log(r.lines.Text())
				}
				if got := r.status(); got != c.want {
					t.Errorf("status %d, want %d", got, c.want)
				}
			}
		})
	}
	t.Run("signals", func(t *testing.T) {
		r := inside(t, nil, `exec env LAUNCHER_TEST=count "`+self+`"`)
		r.line("ready")
		one := childrenOf(r.cmd.Process.Pid)
		if len(one) != 1 {
			t.Fatalf("children %v", one)
		}
		for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGTERM} {
			send(one[0], sig)
			if r.lines.Scan(); r.lines.Text() != sig.String() {
				t.Fatalf("the child got %q, want %q", r.lines.Text(), sig)
			}
		}
		if got := r.status(); got != 0 {
			t.Errorf("status %d", got)
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		r := inside(t, nil, `setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' & sleep 0.1; exit 3`)
		if got := r.status(); got != 3 {
			t.Errorf("status %d", got)
		}
	})
}
