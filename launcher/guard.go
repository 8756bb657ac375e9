package launcher

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// GuardName is what this program is called when it is the guard of a job. It
// says nothing of fabrun: 'pkill -9 fabrun' must leave the guard alive.
const GuardName = "job-guard"

// markNames are the variables that a job's processes carry; their value is the
// run's own. With it a process is found whose parents have gone. Hydra and srun
// send the whole environment to other hosts, Open MPI all that begins with OMPI_
// (orte/mca/schizo/ompi/schizo_ompi.c).
var markNames = []string{"FABRUN_JOB", "OMPI_FABRUN_JOB"}

// guard is the process that ends the job when this one is killed outright. A
// parent-death signal cannot do it: the kernel sends one for each thread of a
// dying parent in turn (prctl(2), PR_SET_PDEATHSIG), and at the second TERM
// within five seconds Open MPI's mpirun leaves at once, without its ranks.
//
// Where there is a terminal it is also a listener: it joins the child's group, and
// tells of the keys that the terminal turns into signals for that group.
type guard struct {
	process  *os.Process
	line     *os.File            // what closes when this process ends, however it ends
	listener chan syscall.Signal // nil: no listener
}

// listenerAnswer is a listener's answer to a question: a signal that it sends itself and
// tells of, like those it got before.
const listenerAnswer = syscall.SIGUSR1

// listenerSignals are what a listener tells of. The kernel and the runtime hand out
// pending signals by their numbers, so the answer comes last.
var listenerSignals = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, listenerAnswer}

// askedWithin bounds how long the listener's answer is waited for.
const askedWithin = time.Second

// ask calls f for everything that the listener has heard until now.
func (g *guard) ask(f func(syscall.Signal)) {
	if g == nil || g.listener == nil {
		return
	}
	if _, err := g.line.Write([]byte("?")); err != nil {
		return
	}
	late := time.After(askedWithin)
	for {
		select {
		case sig := <-g.listener:
			if sig == listenerAnswer {
				return
			}
			f(sig)
		case <-late:
			return
		}
	}
}

// heard is where the listener tells; nil, which never does, where there is none.
func (g *guard) heard() <-chan syscall.Signal {
	if g == nil {
		return nil
	}
	return g.listener
}

// NewMark returns a value for Spec.Mark.
func NewMark() string {
	b := make([]byte, 8)
	//nolint:errcheck // crypto/rand never fails (its documentation)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// withMark replaces the mark of an outer run.
func withMark(env []string, mark string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(markNames, name)
	})
	for _, name := range markNames {
		env = append(env, name+"="+mark)
	}
	return env
}

// startGuard starts this program once more, as a guard, with nothing open but
// its end of the line. It is in a session of its own; a listener stays in this one.
func startGuard(s Spec, mark string, listener bool) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer closeQuietly(r)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		closeQuietly(w)
		return nil, err
	}
	defer closeQuietly(null)
	out, told := null, (*os.File)(nil)
	if listener {
		if told, out, err = os.Pipe(); err != nil {
			closeQuietly(w)
			return nil, err
		}
		defer closeQuietly(out)
	}
	whom := "group"
	if s.Ranks {
		whom = "launcher"
	}
	p, err := os.StartProcess("/proc/self/exe", []string{GuardName, mark, whom, s.Grace.String(), s.Dir}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{r, out, null}, Sys: &syscall.SysProcAttr{Setsid: !listener, Setpgid: listener},
	})
	if err != nil {
		closeQuietly(w)
		if told != nil {
			closeQuietly(told)
		}
		return nil, err
	}
	g := &guard{process: p, line: w}
	if listener {
		g.listener = make(chan syscall.Signal, 8)
		go g.listen(told)
	}
	return g, nil
}

// listen ends with the guard.
func (g *guard) listen(from *os.File) {
	defer closeQuietly(from)
	b := make([]byte, 1)
	for {
		if n, err := from.Read(b); n != 1 || err != nil {
			return
		}
		g.listener <- syscall.Signal(b[0])
	}
}

func closeQuietly(f *os.File) {
	//nolint:errcheck // nothing was written that could be lost
	_ = f.Close()
}

// watch names the child to the guard.
func (g *guard) watch(pid int) {
	p, ok := readProcess(pid)
	if g == nil || !ok {
		return
	}
	//nolint:errcheck // a guard that has gone guards nothing
	_, _ = fmt.Fprintf(g.line, "%d %d\n", p.pid, p.start)
}

// dismiss ends the guard, before it can see the line close.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	//nolint:errcheck // it has gone already
	_ = g.process.Kill()
	//nolint:errcheck // likewise
	_, _ = g.process.Wait()
	closeQuietly(g.line)
}

// Guard is the life of a guard: main calls it when argv[0] is GuardName. It
// waits until the other end of line closes, and then ends the job: first the
// launcher alone, or a script's group, as if the user had ended it; after the
// grace whatever is left, with TERM, and a second later with KILL. Meanwhile it
// writes one byte to listener for each signal that the child's group gets.
func Guard(argv []string, line io.Reader, listener io.Writer) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, listenerSignals...)
	go func() {
		for sig := range heard {
			//nolint:errcheck // nobody listens any more
			_, _ = listener.Write([]byte{byte(sig.(syscall.Signal))})
		}
	}()
	//nolint:errcheck // only a name
	_ = os.WriteFile("/proc/self/comm", []byte(GuardName), 0)
	if len(argv) != 5 {
		return
	}
	if dir := argv[4]; dir != "" {
		//nolint:errcheck // a leftover private directory in a temporary place: the next run sweeps it
		defer os.RemoveAll(dir)
	}
	grace, err := time.ParseDuration(argv[3])
	if err != nil {
		return
	}
	j := job{mark: argv[1], known: map[int]uint64{}}
	if self, ok := readProcess(os.Getpid()); ok {
		j.since = self.start
	}
	var root process
	// Without an answer the child had not been started, or has only its mark.
	if n, err := fmt.Fscanln(line, &root.pid, &root.start); n == 2 && err == nil {
		j.known[root.pid] = root.start
		//nolint:errcheck // a guard of another session stays alone
		_ = syscall.Setpgid(0, root.pid)
	}
	for question := make([]byte, 1); ; {
		if n, err := line.Read(question); n == 0 || err != nil {
			break
		}
		send(os.Getpid(), listenerAnswer)
	}
	left := j.processes()
	switch {
	case !slices.Contains(left, root.pid):
	case argv[2] == "launcher":
		send(root.pid, syscall.SIGTERM)
		send(-root.pid, syscall.SIGCONT)
	default:
		send(-root.pid, syscall.SIGTERM)
		send(-root.pid, syscall.SIGCONT)
	}
	if left = j.await(grace); len(left) == 0 {
		return
	}
	j.finish(left)
}

// EndMarked ends what is left on this machine of a job that has ended: what a
// launcher's daemon that was killed has left behind on its host.
func EndMarked(mark string) {
	j := job{mark: mark, known: map[int]uint64{}}
	if left := j.await(ownEnd); len(left) > 0 {
		j.finish(left)
	}
}

// finish ends processes with TERM, and a second later with KILL.
func (j *job) finish(left []int) {
	for _, pid := range left {
		send(pid, syscall.SIGTERM)
		send(pid, syscall.SIGCONT)
	}
	left = j.await(time.Second)
	for deadline := time.Now().Add(2 * time.Second); len(left) > 0 && time.Now().Before(deadline); {
		for _, pid := range left {
			send(pid, syscall.SIGKILL)
		}
		left = j.await(50 * time.Millisecond)
	}
}

// send sends a signal; a process that has gone meanwhile is no error.
func send(pid int, sig syscall.Signal) {
	//nolint:errcheck // ESRCH is the only answer, and it means that there is nothing left to do
	_ = syscall.Kill(pid, sig)
}

// job is a job as it looks from outside its parents.
type job struct {
	mark  string
	since uint64         // what started before is not of the job
	known map[int]uint64 // start times of processes that were seen to be of the job
}

// processes returns the living processes of the job: the known ones, those
// with its mark, and all below them.
func (j *job) processes() []int {
	self := os.Getpid()
	below := map[int][]process{}
	var todo []process
	for _, p := range processes() {
		if p.pid == self || p.zombie || p.start < j.since {
			continue
		}
		below[p.ppid] = append(below[p.ppid], p)
		if start, ok := j.known[p.pid]; ok && start == p.start || marked(p.pid, j.mark) {
			todo = append(todo, p)
		}
	}
	now := map[int]uint64{}
	for ; len(todo) > 0; todo = todo[1:] {
		p := todo[0]
		if _, seen := now[p.pid]; !seen {
			now[p.pid] = p.start
			todo = append(todo, below[p.pid]...)
		}
	}
	maps.Copy(j.known, now)
	return slices.Collect(maps.Keys(now))
}

// await gives the job time to end, and returns what is left.
func (j *job) await(most time.Duration) []int {
	deadline := time.Now().Add(most)
	for {
		left := j.processes()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// marked reports whether a process was started with the mark of a job.
func marked(pid int, mark string) bool { return hasMark(environment(pid), mark) }

func hasMark(env []string, mark string) bool {
	return slices.ContainsFunc(markNames, func(name string) bool { return slices.Contains(env, name+"="+mark) })
}

// environment is what a process was started with; nil where it cannot be read,
// or where the process has written something else there.
func environment(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	text = bytes.Trim(text, "\x00")
	if len(text) == 0 {
		return nil
	}
	return strings.Split(string(text), "\x00")
}

// ownHelper reports whether a child of this program is a helper that it has
// started itself (an ssh to another node), and no orphan of the job: it lacks
// the job's mark and has this program's environment. An ssh that has become a
// connection's master wrote its title over that, and is meant to stay.
func ownHelper(pid int, mark string) bool {
	env := environment(pid)
	if hasMark(env, mark) {
		return false
	}
	if comm := readSmall(fmt.Sprintf("/proc/%d/comm", pid)); comm == "ssh\n" {
		return true
	}
	for _, kv := range environment(os.Getpid()) {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "_", "PWD", "OLDPWD", "SHLVL": // a shell in between has its own
		default:
			if !slices.Contains(env, kv) {
				return false
			}
		}
	}
	return true
}
