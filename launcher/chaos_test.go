package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fabrun/testdata/wait"
)

// chaosJob is a running job with what names its processes: a link to sleep of
// a name that nothing else has.
type chaosJob struct {
	*running
	t     *testing.T
	sleep string
}

// withName returns the living processes that run the job's program, whatever
// has become of their parents: what the tests hold fabrun's own search against.
func withName(sleep string) []int {
	var out []int
	for _, p := range processes() {
		argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cmdline"))
		if err == nil && !p.zombie && slices.Contains(strings.Split(string(argv), "\x00"), sleep) {
			out = append(out, p.pid)
		}
	}
	return out
}

// ranks are those of them that are the program itself.
func (j *chaosJob) ranks() []int {
	return slices.DeleteFunc(withName(j.sleep), func(pid int) bool {
		argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		return err != nil || !strings.HasPrefix(string(argv), j.sleep+"\x00")
	})
}

// child is the one that fabrun has started for the job, or else its guard.
func (j *chaosJob) child(guard bool) int {
	for _, pid := range childrenOf(j.cmd.Process.Pid) {
		comm := readSmall(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		if (comm == GuardName+"\n") == guard {
			return pid
		}
	}
	return 0
}

// startChaos starts a job of two ranks and waits for both.
func startChaos(t *testing.T, ranks bool, argv ...string) *chaosJob {
	t.Helper()
	real, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	j := &chaosJob{t: t, sleep: filepath.Join(t.TempDir(), "ranksleep")}
	if err := os.Symlink(real, j.sleep); err != nil {
		t.Fatal(err)
	}
	for i, word := range argv {
		argv[i] = strings.ReplaceAll(word, "SLEEP", j.sleep)
	}
	j.running = start(t, ranks, []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, argv...)
	t.Cleanup(func() {
		for _, pid := range withName(j.sleep) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	wait.For(t, "two ranks", func() bool { return len(j.ranks()) == 2 })
	wait.For(t, "a guard", func() bool { return j.child(true) != 0 })
	return j
}

// TestRealChaos kills each part of a job. Whatever is killed, in the
// end no process of the job is there, and no guard.
func TestRealChaos(t *testing.T) {
	const script = `SLEEP 600 & SLEEP 600`
	for _, l := range []struct {
		name  string
		ranks bool
		argv  []string
		// The statuses are the launcher's own. MPICH leaves with 0 when its proxy
		// ends before it has told of the ranks' signal.
		term, interrupt, launcherKilled, rankKilled []int
	}{
		{"Open MPI", true, []string{"mpirun.openmpi", "--oversubscribe", "-np", "2", "SLEEP", "600"}, []int{1}, []int{1}, []int{137}, []int{137}},
		{"MPICH", true, []string{"mpiexec.mpich", "-np", "2", "SLEEP", "600"}, []int{15, 0}, []int{2, 0}, []int{137}, []int{9}},
		{"a script", false, []string{"sh", "-c", script}, []int{143}, []int{130}, []int{137}, []int{137}},
	} {
		t.Run(l.name, func(t *testing.T) {
			if _, err := exec.LookPath(l.argv[0]); err != nil {
				t.Skipf("no %s: %v (apt-get install openmpi-bin mpich)", l.name, err)
			}
			for _, c := range []struct {
				name string
				hit  func(*chaosJob)
				want []int
			}{
				{"kill -9 of fabrun", func(j *chaosJob) { send(j.cmd.Process.Pid, syscall.SIGKILL) }, []int{-9}},
				{"kill -9 of fabrun and the launcher", func(j *chaosJob) {
					child := j.child(false)
					send(j.cmd.Process.Pid, syscall.SIGKILL)
					send(child, syscall.SIGKILL)
				}, []int{-9}},
				{"kill -9 of the launcher", func(j *chaosJob) { send(j.child(false), syscall.SIGKILL) }, l.launcherKilled},
				{"kill -9 of one rank", func(j *chaosJob) { send(slices.Max(j.ranks()), syscall.SIGKILL) }, l.rankKilled},
				{"TERM to fabrun", func(j *chaosJob) { send(j.cmd.Process.Pid, syscall.SIGTERM) }, l.term},
				{"INT to fabrun", func(j *chaosJob) { send(j.cmd.Process.Pid, syscall.SIGINT) }, l.interrupt},
			} {
				t.Run(c.name, func(t *testing.T) {
					j := startChaos(t, l.ranks, slices.Clone(l.argv)...)
					guard := j.child(true)
					c.hit(j)
					if got := j.status(); !slices.Contains(c.want, got) {
						t.Errorf("status %d, want one of %d", got, c.want)
					}
					if !l.ranks && (c.want[0] == 137 || c.want[0] == 130) {
						return // a script's background jobs stay, and ignore INT (POSIX, 2.11)
					}
					wait.For(t, "no process of the job", func() bool { return len(withName(j.sleep)) == 0 })
					gone(t, guard)
				})
			}
		})
	}
}

// The guard outlives what is meant for fabrun by name, and ends what ignores
// TERM and what has left the launcher's sight, but not what was there before.
func TestGuardFindsAll(t *testing.T) {
	r := start(t, true, nil, "sh", "-c", `
		sh -c 'trap "" TERM; echo stubborn $$; while :; do sleep 0.05; done' &
		sh -c 'setsid sh -c "echo away \$\$; exec sleep 600" & exit 0'
		env -i sh -c 'echo bare $$; exec sleep 600' &
		wait`)
	pids := []int{}
	for range 3 {
		r.lines.Scan()
		f := strings.Fields(r.lines.Text())
		if len(f) != 2 {
			t.Fatalf("got %q", r.lines.Text())
		}
		pid, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.status()
	for _, pid := range pids {
		gone(t, pid)
	}
}

// What ends by itself a moment after the launcher is not accused, and neither
// is what had to be told: only what had to be killed is worth a word.
func TestLeftoversAreAccusedLast(t *testing.T) {
	for _, c := range []struct{ name, left, want string }{
		{"ends by itself", `(setsid sleep 0.3; exit 0) &`, ""},
		{"ends when told", `setsid sleep 60 >/dev/null & sleep 0.1;`, "detail: ended 1 process(es) that the launcher had left behind"},
		{"has to be killed", `setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' & sleep 0.2;`, "note: killed "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, true, nil, "sh", "-c", c.left+" exit 0")
			if got := r.status(); got != 0 {
				t.Errorf("status %d", got)
			}
			said := ""
			if r.lines.Scan() {
				said = r.lines.Text()
			}
			if c.want == "" && said != "" || !strings.HasPrefix(said, c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// A helper that this program started itself is no orphan of its job.
func TestOwnHelper(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		want bool
	}{
		{"this program's environment", os.Environ(), true},
		{"the job's mark", withMark(os.Environ(), "abc"), false},
		{"no environment", []string{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "60")
			cmd.Env = c.env
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for len(c.env) > 0 && environment(cmd.Process.Pid) == nil {
				runtime.Gosched() // exec has begun, and its environment is not there yet
			}
			if got := ownHelper(cmd.Process.Pid, "abc"); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}
