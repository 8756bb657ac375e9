package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"fabrun/testdata/wait"
)

// screen is a shell with job control on a terminal of its own, and what is
// written there.
type screen struct {
	t    *testing.T
	tty  *os.File // the other side of the terminal
	cmd  *exec.Cmd
	self string // the test program, which runs a child when LAUNCHER_TEST=run

	mu   sync.Mutex
	more *sync.Cond
	text []byte
	at   int // what has been looked at
	gone bool
}

const prompt = "PROMPT> "

// onTerminal starts bash, whose job control is what people have.
func onTerminal(t *testing.T, env ...string) *screen {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("no shell with job control: %v", err)
	}
	s := newScreen(t, env, bash, "--noediting", "--norc", "--noprofile", "-i")
	s.typed("stty -echo; PS1='PROMPT> '\n")
	s.want(prompt)
	return s
}

func newScreen(t *testing.T, env []string, argv ...string) *screen {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, self: self, cmd: exec.Command(argv[0], argv[1:]...)}
	s.more = sync.NewCond(&s.mu)
	s.cmd.Env = append(os.Environ(), append([]string{"PS1=", "SELF=" + self, "RUN=env LAUNCHER_TEST=run " + self, "TERM=dumb", "GORACE=atexit_sleep_ms=0"}, env...)...)
	tty, err := pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	// Non-blocking, so that closing it ends a read: only then it hangs up.
	fd, err := syscall.Dup(int(tty.Fd()))
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	s.tty = os.NewFile(uintptr(fd), "terminal")
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.tty.Read(buf)
			s.mu.Lock()
			s.text = append(s.text, buf[:n]...)
			s.gone = err != nil
			s.more.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.tty.Close()
		session := s.cmd.Process.Pid
		for _, p := range processes() {
			if p.session == session {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		_ = s.cmd.Wait()
	})
	return s
}

// typed is what a person does.
func (s *screen) typed(keys string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// want waits until the text appears behind what was wanted before.
func (s *screen) want(text string) { s.t.Helper(); s.find(regexp.QuoteMeta(text)) }

func (s *screen) find(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.AfterFunc(wait.Left(s.t), func() { s.mu.Lock(); s.gone = true; s.more.Broadcast(); s.mu.Unlock() })
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if m := re.FindSubmatchIndex(s.text[s.at:]); m != nil {
			var out []string
			for i := 0; i < len(m); i += 2 {
				out = append(out, string(s.text[s.at+m[i]:s.at+m[i+1]]))
			}
			s.at += m[1]
			return out
		}
		if s.gone {
			s.t.Fatalf("no %q on the screen; there is\n%s", pattern, s.text)
		}
		s.more.Wait()
	}
}

// status wants the prompt, and the exit status of the last command.
func (s *screen) status(want int) {
	s.t.Helper()
	s.typed("echo status=$?.\n")
	if got := s.find(`status=(\d+)\.`)[1]; got != strconv.Itoa(want) {
		s.t.Errorf("status %s, want %d; the screen:\n%s", got, want, s.text)
	}
	s.want(prompt)
}

const counter = "env LAUNCHER_TEST=count $SELF"

// The child has the terminal while it runs, all three streams of it, and the
// shell has it again.
func TestTerminalHandedOverAndBack(t *testing.T) {
	s := onTerminal(t)
	s.typed("$RUN env LAUNCHER_TEST=terminal $SELF\n")
	for _, stream := range []string{"0", "1", "2"} {
		s.want("terminal " + stream + " true")
	}
	s.want(prompt)
	s.typed("$RUN sh -c 'read x; echo got $x'\nmoin\n")
	s.want("got moin")
	s.status(0)
}

// Ctrl-C reaches the job once, whoever is between the shell and it.
func TestTerminalInterrupt(t *testing.T) {
	for _, c := range []struct{ name, line string }{
		{"a program", "$RUN " + counter},
		{"a launcher", "LAUNCHER_TEST_RANKS=1 $RUN " + counter},
		{"a pipeline", "LAUNCHER_TEST_LAZY=1 $RUN " + counter + " | { trap '' INT; cat; }"},
		{"a script", `sh -c "$RUN ` + counter + `"`},
		{"nested", "$RUN $RUN " + counter},
		{"nested by a script", `$RUN sh -c "$RUN ` + counter + `; true"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := onTerminal(t)
			s.typed(c.line + "\n")
			pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
			if err != nil {
				t.Fatal(err)
			}
			s.listening(pid)
			s.typed("\x03")
			s.want("interrupt")
			send(pid, syscall.SIGUSR1) // whatever else was on its way has arrived
			s.find(`\A\s*user defined signal 1`)
			send(pid, syscall.SIGTERM)
			s.want(prompt)
		})
	}
}

// listening waits until the listener is in the group of the job.
func (s *screen) listening(pid int) {
	s.t.Helper()
	job, ok := readProcess(pid)
	if !ok {
		s.t.Fatalf("process %d is gone", pid)
	}
	wait.For(s.t, fmt.Sprintf("a guard in group %d", job.pgrp), func() bool {
		return slices.ContainsFunc(processes(), func(p process) bool {
			return p.pgrp == job.pgrp && readSmall(filepath.Join("/proc", strconv.Itoa(p.pid), "comm")) == GuardName+"\n"
		})
	})
}

// A script that calls fabrun is interrupted with it, as it would be without.
func TestTerminalInterruptsTheScriptToo(t *testing.T) {
	s := onTerminal(t)
	s.typed(`sh -c "LAUNCHER_TEST_RANKS=1 $RUN sh -c 'trap \"echo ended; exit 1\" INT; echo ready \$\$; while :; do sleep 0.05; done'; echo next"` + "\n")
	pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	s.listening(pid)
	s.typed("\x03")
	s.want(prompt)
	s.status(130)
	if strings.Contains(string(s.text), "\nnext") {
		t.Errorf("the script went on:\n%s", s.text)
	}
}

// The second Ctrl-C ends a launcher that ignores the first, and the group that
// ignores TERM.
func TestTerminalSecondInterrupt(t *testing.T) {
	s := onTerminal(t, "LAUNCHER_TEST_RANKS=1")
	s.typed(`$RUN sh -c 'trap "echo one" INT; trap "" TERM; echo ready $$; while :; do sleep 0.05; done'` + "\n")
	pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	s.listening(pid)
	// Two that come before the listener has run are one to it, as to any process. The
	// key also makes the terminal drop what it has not shown yet (termios(3),
	// NOFLSH), fabrun's own line too: then the prompt is what comes next.
	next := "one"
	for next == "one" {
		s.typed("\x03")
		next = s.find(`one|interrupted again: ending the job|` + prompt)[0]
	}
	if next != prompt {
		s.want(prompt)
	}
	s.status(137)
	gone(t, pid)
}

// Ctrl-Z stops the job and gives the prompt back; fg and bg continue it.
func TestTerminalStopAndContinue(t *testing.T) {
	const reader = `sh -c 'echo ready $$; read x; echo got $x'`
	for _, c := range []struct{ name, line string }{
		{"a program", "$RUN " + reader},
		{"a launcher", "LAUNCHER_TEST_RANKS=1 $RUN " + reader},
		{"a script", `sh -c "$RUN $READER"`},
		{"nested", "$RUN $RUN " + reader},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := onTerminal(t, "READER="+reader)
			s.typed(c.line + "\n")
			pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
			if err != nil {
				t.Fatal(err)
			}
			s.typed("\x1a")
			s.want("Stopped")
			s.want(prompt)
			if state := stateOf(t, pid); state != "T" {
				t.Errorf("the job is in state %s, want T", state)
			}
			s.typed("fg\n")
			s.typed("more\n")
			s.want("got more")
			s.status(0)
		})
	}
	t.Run("in the background", func(t *testing.T) {
		s := onTerminal(t)
		s.typed("$RUN " + counter + "\n")
		pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
		if err != nil {
			t.Fatal(err)
		}
		s.typed("\x1a")
		s.want("Stopped")
		s.typed("bg\n")
		s.want("continued")
		s.typed("kill -TERM %1; wait %1\n")
		s.want("terminated")
		gone(t, pid)
	})
	t.Run("one that wants to read in the background", func(t *testing.T) {
		s := onTerminal(t)
		s.typed("set -b; $RUN " + reader + " &\n") // -b: say at once what has become of it
		s.want("ready")
		s.want("Stopped")
		s.typed("fg\n")
		s.typed("late\n")
		s.want("got late")
		s.status(0)
	})
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	_, rest, ok := strings.Cut(readSmall(filepath.Join("/proc", strconv.Itoa(pid), "stat")), ") ")
	if !ok {
		t.Fatalf("process %d is gone", pid)
	}
	return rest[:1]
}

// In a pipeline the terminal stays with the others, until the child reads.
func TestTerminalInPipeline(t *testing.T) {
	s := onTerminal(t, "LAUNCHER_TEST_LAZY=1")
	s.typed("$RUN env LAUNCHER_TEST=terminal $SELF | cat\n")
	s.want("terminal 0 false")
	s.want(prompt)
	s.typed("$RUN sh -c 'echo ready; read x; echo got $x' | cat\n")
	s.want("ready")
	s.typed("piped\n")
	s.want("got piped")
	s.status(0)
}

// The terminal is there for who asks on it (a passphrase), wherever standard
// input comes from.
func TestTerminalAskedForDirectly(t *testing.T) {
	s := onTerminal(t)
	s.typed("echo in | $RUN sh -c 'read a; echo passphrase; read b </dev/tty; echo got $a $b'\n")
	s.want("passphrase")
	s.typed("secret\n")
	s.want("got in secret")
	s.status(0)
}

// A new window size is told once.
func TestTerminalWindowSize(t *testing.T) {
	for _, lazy := range []string{"", "1"} {
		s := onTerminal(t, "LAUNCHER_TEST_LAZY="+lazy)
		s.typed("$RUN " + counter + "\n")
		pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 50, Cols: 132}); err != nil {
			t.Fatal(err)
		}
		s.want("window changed")
		send(pid, syscall.SIGUSR1)
		s.find(`\A\s*user defined signal 1`)
		send(pid, syscall.SIGTERM)
		s.want(prompt)
	}
}

// A program that cannot be started leaves neither this process stopped nor the
// terminal astray.
func TestTerminalNothingStarted(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte{0x7f, 'E', 'L', 'F', 9, 9}, 0o755); err != nil {
		t.Fatal(err)
	}
	s := onTerminal(t)
	s.typed("$RUN " + bad + "\n")
	s.want("exec format error")
	s.status(126)
}

// What a killed program has done to the terminal is undone.
func TestTerminalModesRestored(t *testing.T) {
	s := onTerminal(t)
	s.typed("stty echo; $RUN env LAUNCHER_TEST=raw $SELF\n")
	s.want("silent true")
	s.typed("stty -a\n")
	s.find(`[^-]icanon`)
	s.find(`[^-]echo `)
}

// Without a shell nobody could continue a stopped job: it goes on. And when
// the terminal goes, the job goes.
func TestTerminalWithoutShell(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newScreen(t, []string{"LAUNCHER_TEST=run"}, self, "sh", "-c", `echo ready $$; read x; echo got $x; read y`)
	pid, err := strconv.Atoi(s.find(`ready (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	s.typed("\x1a")
	s.typed("on\n")
	s.want("got on")
	if err := s.tty.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	gone(t, s.cmd.Process.Pid)
}
