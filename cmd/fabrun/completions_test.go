package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"fabrun/testdata/wait"
)

// completed is what the shell is offered after these words.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(context.Background(), slices.Concat([]string{"fabrun", "__completeNoDesc"}, words), nil, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("%q: status %d: %s", words, status, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last is the directive
}

func TestCompletions(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{""}, "plan"},
		{[]string{"slurm", ""}, "task-prolog"},
		{[]string{"plan", "--profile", ""}, "roce-dscp26"},
		{[]string{"--profile", ""}, "roce-dscp26"},
		{[]string{"--workload", ""}, "openfoam"},
		{[]string{"profile", "show", ""}, "roce-dscp26"},
		{[]string{"topo", "--color", ""}, "never"},
	} {
		if got := completed(t, c.words...); !slices.Contains(got, c.want) {
			t.Errorf("%q completes to %q, without %q", c.words, got, c.want)
		}
	}
	// Words that are offered are words that the flag's own text lists.
	root := (&app{}).rootCmd()
	for _, path := range []string{"env --format", "env --mpi", "hosts --format", "hosts --dialect", "check --pairs", "check --remote", "run --preflight", "run --remote", "profile show --switch"} {
		words := strings.Fields(path)
		c, _, err := root.Find(words[:len(words)-1])
		if err != nil {
			t.Fatal(err)
		}
		usage := c.Flags().Lookup(strings.TrimPrefix(words[len(words)-1], "--")).Usage
		got := completed(t, append(words, "")...)
		if len(got) < 3 {
			t.Errorf("%s completes to %q only", path, got)
		}
		for _, w := range got {
			if !strings.Contains(usage, w) {
				t.Errorf("%s completes to %q, which its text does not have: %s", path, w, usage)
			}
		}
	}
}

// shellHome is a directory in which "fabrun" is this program, with a profile of
// the user's own, and the environment of a shell there.
func shellHome(t *testing.T) (string, []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	profiles := filepath.Join(home, ".config/fabrun/profiles")
	if err := errors.Join(os.Symlink(self, filepath.Join(home, "fabrun")), os.MkdirAll(profiles, 0o755),
		os.Mkdir(filepath.Join(home, ".ssh"), 0o700),
		os.WriteFile(filepath.Join(home, ".ssh/config"), []byte("Host gpu01 gpu-* !gpu09\n  HostName 10.0.0.1\nhost login\n"), 0o600),
		os.WriteFile(filepath.Join(home, ".ssh/known_hosts"), []byte("gpu02,10.0.0.2 ssh-ed25519 AAAA\n|1|abc=|def= ssh-ed25519 AAAA\n@revoked gpu03 ssh-ed25519 AAAA\n[gpu04]:2222 ssh-ed25519 AAAA\n"), 0o600),
		os.WriteFile(filepath.Join(profiles, "zz-ours.toml"), []byte("name = \"zz-ours\"\nabout = \"ours\"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return home, []string{"PATH=" + home + ":/usr/bin:/bin", "HOME=" + home, "TERM=dumb", "LC_ALL=C.UTF-8"}
}

// shellCases are a line that is typed, and what the shell makes of its end: a
// verb, a verb's verb, a profile, one's own profile, a value.
var shellCases = [][2]string{
	{"fabrun snap", "snapshot"},
	{"fabrun slurm task", "task-prolog"},
	{"fabrun profile show roce-dscp2", "roce-dscp26"},
	{"fabrun plan --profile zz", "zz-ours"},
	{"fabrun env --format do", "dotenv docker"},
	{"fabrun check --hosts gp", "gpu01 gpu02"},
	{"fabrun --hosts lo", "login"},
}

// TestCompletionOfBash types into a real bash.
func TestCompletionOfBash(t *testing.T) {
	const helpers = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(helpers); err != nil {
		t.Skip("no bash-completion here: its helpers are what bash's completions stand on")
	}
	typeInto(t, []string{"bash", "--norc", "-i"}, "bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'; source "+helpers+"; source <(fabrun completion bash)")
}

// TestCompletionOfZsh types into a real zsh.
func TestCompletionOfZsh(t *testing.T) {
	typeInto(t, []string{"zsh", "-f", "-i"}, "unsetopt zle_bracketed_paste list_ambiguous; autoload -U compinit && compinit -D -u && source <(fabrun completion zsh)")
}

// TestCompletionOfFish asks a real fish.
func TestCompletionOfFish(t *testing.T) {
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("no fish here")
	}
	home, env := shellHome(t)
	for _, c := range shellCases {
		cmd := exec.Command(fish, "--no-config", "-c", "fabrun completion fish | source; complete -C $argv[1]", c[0])
		cmd.Env, cmd.Dir = env, home
		out, err := cmd.CombinedOutput()
		var got []string
		for line := range strings.Lines(string(out)) {
			got = append(got, strings.Fields(line)[0])
		}
		slices.Sort(got)
		want := strings.Fields(c[1])
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: fish completes to %q, %v; want %q", c[0], out, err, c[1])
		}
	}
}

// TestCompletionOfHosts: inside a job the hosts are the job's.
func TestCompletionOfHosts(t *testing.T) {
	var out, errs bytes.Buffer
	env := []string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_TASKS_PER_NODE=1(x3)", "HOME=/nonexistent"}
	if status := run(context.Background(), []string{"fabrun", "__completeNoDesc", "check", "--hosts", "n1,"}, env, strings.NewReader(""), &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if got, want := out.String(), "n1,n1\nn1,n2\nn1,n3\n:4\n"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// typeInto types the beginnings of lines and the tab key into a shell that has a
// terminal, after a line that sets it up.
func typeInto(t *testing.T, shell []string, setUp string) {
	t.Helper()
	if _, err := exec.LookPath(shell[0]); err != nil {
		t.Skipf("no %s here", shell[0])
	}
	home, env := shellHome(t)
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Env, cmd.Dir = append(env, "PS1=> "), home
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer tty.Close()
	defer cmd.Process.Kill() //nolint:errcheck // it may have ended
	screen := &screenText{}
	go io.Copy(screen, tty) //nolint:errcheck // ends with the terminal
	say := func(text string, until ...string) {
		t.Helper()
		screen.clear()
		if _, err := io.WriteString(tty, text); err != nil {
			t.Fatalf("%v: %s", err, screen.text())
		}
		wait.For(t, fmt.Sprintf("%q after %q", until, text), func() bool {
			return !slices.ContainsFunc(until, func(w string) bool { return !strings.Contains(screen.text(), w) })
		})
	}
	say(setUp+" && echo rea''dy\n", "ready")
	for _, c := range shellCases {
		say(c[0]+"\t", strings.Fields(c[1])...)
		say("\x15echo ne''xt\n", "next") // the line goes, whatever it is by now
	}
}

// screenText is what a terminal showed.
type screenText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screenText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screenText) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screenText) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}
