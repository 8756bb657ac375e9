package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// Exit statuses of a child that could not be started, as shells give them.
const (
	StatusNotExecutable = 126
	StatusNotFound      = 127
	statusSignalBase    = 128
)

// Spec is one child to be run.
type Spec struct {
	Path string   // the file to execute
	Argv []string // argv[0] as the user typed it
	Env  []string
	// WorkDir is where it starts; "" here.
	WorkDir string
	// Stdin, Stdout and Stderr are inherited by the child as they are; nothing
	// is pumped.
	Stdin, Stdout, Stderr *os.File
	// Terminal says when the child gets the terminal.
	Terminal TerminalUse
	// Ranks: the child is a launcher. Signals go to it alone, since it passes
	// them on, and what it leaves behind is ended with it. Otherwise the child
	// is a script or a program: signals that a terminal would send go to its
	// whole group, and what it started in the background on purpose stays.
	Ranks bool
	// Grace is how long processes have between TERM and KILL.
	Grace time.Duration
	// Within is how long the child has to end after it was first told to by a
	// signal; 0 as long as it takes.
	Within time.Duration
	// Signals come beside those that this process gets; nil none.
	Signals <-chan syscall.Signal
	// Mark is what the job's processes are known by, on every host; "" a new one.
	Mark string
	// Dir is the run's private directory, which the guard removes when this process
	// is killed outright; "" none.
	Dir string
	// Started is called once the child runs; may be nil.
	Started func(pid int)
	// Guard: this program calls Guard when it is started as GuardName, and is to
	// be started so, to end the job when this process is killed outright.
	Guard bool
	// Note gets one line for people when fabrun acts on its own; may be nil.
	Note func(string)
	// Detail gets what only those want to know who asked for more; may be nil.
	Detail func(string)
}

// Status is how a child ended.
type Status struct {
	Code   int            // what fabrun leaves with: the child's own, or 128+n
	Signal syscall.Signal // the signal that ended it; 0 none
	Usage  syscall.Rusage // of the child and what it waited for
	Told   syscall.Signal // the last of INT, TERM and HUP that was handed on to it; 0 none
	Killed int            // processes that had to be ended after the child
}

// forwarded are the signals that are handed to the child, each once.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH,
}

// Run starts the child and stays with it to its end: signals forwarded, the
// terminal handed over and taken back, orphans found and ended. The child finds
// a variable FABRUN_JOB in its environment, which marks what is of this job. When ctx ends
// first, the child and everything below it get TERM, and KILL after Grace; the
// status is then still the child's. The error is about starting only, and
// StartStatus says which exit status it stands for.
func Run(ctx context.Context, s Spec) (Status, error) {
	if s.Grace == 0 {
		s.Grace = 2 * time.Second
	}
	if s.Mark == "" {
		s.Mark = NewMark()
	}
	// Without a guard there is the parent-death signal. It is sent when the
	// *thread* that started the child ends (prctl(2)), so that thread is kept for
	// as long as the child lives.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 64)
	for _, sig := range forwarded {
		// What the caller has ignored (nohup) stays ignored, here and in the child.
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)

	if err := becomeSubreaper(); err != nil && s.Note != nil {
		s.Note(fmt.Sprintf("orphans of the job cannot be found: %v", err))
	}
	c := &child{spec: s, tty: openTerminal(s.Stdin, s.Terminal), mark: s.Mark, parent: os.Getppid()}
	defer c.tty.close()
	if s.Guard {
		var err error
		if c.guard, err = startGuard(s, c.mark, c.tty != nil); err != nil {
			c.detail(fmt.Sprintf("no guard for the job, should fabrun be killed: %v", err))
		}
		defer c.guard.dismiss()
	}
	c.before = adopted()
	err := c.start()
	// Taking the terminal back from the background would stop this process.
	// Only from here on: a child inherits what is ignored.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	if err != nil {
		c.tty.takeBack()
		return Status{}, err
	}
	if s.Started != nil {
		s.Started(c.pid)
	}
	done := make(chan waited, 8)
	go c.wait(done)
	st := c.attend(ctx, signals, done)
	st.Told = c.told
	return st, nil
}

// StartStatus is the exit status that an error of Run stands for.
func StartStatus(err error) int {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return StatusNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return StatusNotExecutable
	}
	return StatusNotExecutable
}

// child is a running child and what has been done about it.
type child struct {
	spec       Spec
	pid        int
	tty        *terminal
	mark       string // the value of FABRUN_JOB
	guard      *guard // nil: none
	before     []int  // this program's other children, which are not of the job
	interrupts int
	told       syscall.Signal   // as Status has it
	parent     int              // of this process, at the start
	asked      time.Time        // when the child was last told to end
	terminated bool             // by TERM or HUP
	grouped    time.Time        // when its group was last sent a signal by this process
	suspend    bool             // a stop was asked of this process
	within     <-chan time.Time // when the child has had its time
	ending     <-chan time.Time // when KILL follows TERM
	ended      bool
}

func (c *child) start() error {
	s := c.spec
	attr := &syscall.ProcAttr{
		Dir:   s.WorkDir,
		Env:   withMark(s.Env, c.mark),
		Files: []uintptr{fd(s.Stdin, 0), fd(s.Stdout, 1), fd(s.Stderr, 2)},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if c.guard == nil {
		attr.Sys.Pdeathsig = syscall.SIGTERM
	}
	if c.tty.ours() && !c.tty.lazy {
		attr.Sys.Foreground, attr.Sys.Ctty = true, int(c.tty.file.Fd())
		c.tty.given, c.tty.keep = true, true
	}
	pid, err := syscall.ForkExec(s.Path, s.Argv, attr)
	if err != nil {
		return &os.PathError{Op: "start", Path: s.Path, Err: err}
	}
	c.pid = pid
	c.guard.watch(pid)
	return nil
}

func fd(f *os.File, standard uintptr) uintptr {
	if f == nil {
		return standard
	}
	return f.Fd()
}

// waited is one change of state of the child.
type waited struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	err    error
}

// wait reports every stop and, last, the end of the child. It waits for this
// one process only: others may be waited for elsewhere in this program.
func (c *child) wait(done chan<- waited) {
	for {
		var w waited
		_, w.err = syscall.Wait4(c.pid, &w.status, syscall.WUNTRACED, &w.usage)
		if errors.Is(w.err, syscall.EINTR) {
			continue
		}
		done <- w
		if w.err != nil || w.status.Exited() || w.status.Signaled() {
			return
		}
	}
}

// attend is the life of the child.
func (c *child) attend(ctx context.Context, signals <-chan os.Signal, done <-chan waited) Status {
	cancelled := ctx.Done()
	reap := time.NewTicker(time.Second)
	defer reap.Stop()
	old := map[int]bool{}
	for {
		select {
		case sig := <-signals:
			c.forward(sig.(syscall.Signal))
		case sig := <-c.spec.Signals:
			c.forward(sig)
		case sig := <-c.guard.heard():
			c.overheard(sig)
		case <-cancelled:
			cancelled = nil
			c.end()
		case <-c.within:
			c.within = nil
			c.note(fmt.Sprintf("%v are over: ending the job", c.spec.Within))
			c.end()
		case <-c.ending:
			c.ending = nil
			c.killAll(syscall.SIGKILL)
		case <-reap.C:
			// As subreaper, or as process 1, orphans come to us: those that have
			// ended and that nobody else has waited for within a turn are ours.
			old = reapOrphans(c.pid, old)
		case w := <-done:
			if w.err == nil && w.status.Stopped() {
				c.stopped(w.status.StopSignal())
				continue
			}
			if c.tty != nil && c.tty.given {
				c.guard.ask(c.overheard)
			}
			c.tty.takeBack()
			st := status(w)
			st.Killed = c.sweep()
			if st.Signal != 0 || st.Killed > 0 || c.ended {
				c.tty.restore()
			}
			return st
		}
	}
}

func status(w waited) Status {
	switch {
	case w.err != nil:
		return Status{Code: statusSignalBase - 1}
	case w.status.Signaled():
		return Status{Code: statusSignalBase + int(w.status.Signal()), Signal: w.status.Signal(), Usage: w.usage}
	}
	return Status{Code: w.status.ExitStatus(), Usage: w.usage}
}

// launcherPatience is how long a launcher takes a second signal for "at once":
// Open MPI's mpirun then leaves without its ranks (orterun.c, abort_signal_callback).
const launcherPatience = 5 * time.Second

// forward hands one signal on, once. A launcher passes it to its ranks itself;
// a second copy to its group would reach them twice.
func (c *child) forward(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT:
		if c.interrupted() {
			return
		}
	case syscall.SIGTSTP:
		c.suspend = true
	case syscall.SIGCONT:
		c.suspend = false
		c.resume()
		return
	case syscall.SIGTERM, syscall.SIGHUP:
		// A script's fabrun hears of one end from several sides: its group, its
		// parent's death, the terminal.
		again := c.terminated || os.Getppid() != c.parent
		if c.ended || c.spec.Ranks && again && time.Since(c.asked) < launcherPatience {
			return
		}
		c.asked, c.terminated, c.told = time.Now(), true, sig
		c.limit()
	}
	if c.spec.Ranks || sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
		send(c.pid, sig)
		return
	}
	c.grouped = time.Now()
	send(-c.pid, sig)
}

// interrupted counts an interrupt, and reports whether it was the one that ends
// the job.
func (c *child) interrupted() bool {
	c.interrupts++
	c.asked, c.told = time.Now(), syscall.SIGINT
	c.limit()
	if c.interrupts != 2 {
		return false
	}
	c.note("interrupted again: ending the job")
	c.end()
	return true
}

// limit lets the child's time begin, once.
func (c *child) limit() {
	if c.spec.Within > 0 && c.within == nil && !c.ended {
		c.within = time.After(c.spec.Within)
	}
}

// echo is how long after a signal of this process's own the guard may hear it.
const echo = 200 * time.Millisecond

// overheard is what the terminal sent to the child's group. Had the child not
// been given the terminal, whoever shares this process's group (the script that
// called fabrun) would have got it too. A launcher's second interrupt ends the
// job; a program may use the key for something else (a debugger).
func (c *child) overheard(sig syscall.Signal) {
	if sig == listenerAnswer || time.Since(c.grouped) < echo {
		return
	}
	others, _ := ownGroup()
	for _, pid := range others {
		send(pid, sig)
	}
	if sig == syscall.SIGINT && c.spec.Ranks {
		c.interrupted()
	}
}

func (c *child) note(text string) {
	if c.spec.Note != nil {
		c.spec.Note(text)
	}
}

func (c *child) detail(text string) {
	if c.spec.Detail != nil {
		c.spec.Detail(text)
	}
}

// end asks everything to end, and sees to it after the grace.
func (c *child) end() {
	if c.ended {
		return
	}
	c.ended = true
	send(c.pid, syscall.SIGTERM)
	if !c.spec.Ranks {
		c.killAll(syscall.SIGTERM)
	}
	send(-c.pid, syscall.SIGCONT)
	c.ending = time.After(c.spec.Grace)
}

func (c *child) killAll(sig syscall.Signal) {
	for _, pid := range descendants(c.pid) {
		send(pid, sig)
	}
	send(-c.pid, sig)
	send(c.pid, sig)
}

// stopped mirrors a stopped job to the shell that started fabrun, as a job of
// one group would look; when the shell continues fabrun, the child goes on.
func (c *child) stopped(sig syscall.Signal) {
	wantsTerminal := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if wantsTerminal && c.tty.give(c.pid) {
		// It was ours to give.
		send(-c.pid, syscall.SIGCONT)
		return
	}
	if c.tty == nil && !c.suspend {
		return // stopped from elsewhere, and nobody waits to see it here
	}
	c.tty.takeBack()
	others, orphaned := ownGroup()
	switch {
	case !orphaned:
		for _, pid := range others {
			send(pid, syscall.SIGTSTP)
		}
		send(os.Getpid(), syscall.SIGSTOP) // until the shell's SIGCONT, which is forwarded
	case wantsTerminal:
		// Nobody could bring this job to the foreground: a terminal that is gone
		// for good (setpgid(2): the kernel does so for a new orphan).
		send(-c.pid, syscall.SIGHUP)
		send(-c.pid, syscall.SIGCONT)
	default:
		c.resume()
	}
}

// resume lets a stopped child go on, with the terminal if it had it.
func (c *child) resume() {
	if c.tty != nil && (c.tty.keep || !c.tty.lazy) {
		c.tty.give(c.pid)
	}
	send(-c.pid, syscall.SIGCONT)
}

// ownEnd is how long what a launcher leaves behind has to end by itself: its
// ssh or its daemon is often a moment later than the launcher.
const ownEnd = time.Second

// sweep ends what a launcher has left behind, on whatever path it ended, and
// returns how many processes had to be told.
func (c *child) sweep() int {
	if !c.spec.Ranks && !c.ended {
		return 0
	}
	left := c.leftWithin(ownEnd)
	if len(left) == 0 {
		return 0
	}
	count := len(left)
	for _, pid := range left {
		send(pid, syscall.SIGTERM)
		send(pid, syscall.SIGCONT)
	}
	left = c.leftWithin(c.spec.Grace)
	killed := len(left)
	for range 50 {
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			send(pid, syscall.SIGKILL)
		}
		left = c.leftWithin(10 * time.Millisecond)
	}
	if killed > 0 {
		c.note(fmt.Sprintf("killed %d process(es) of the job that did not end when told to", killed))
	} else {
		c.detail(fmt.Sprintf("ended %d process(es) that the launcher had left behind", count))
	}
	return count
}

// leftWithin waits for the job's orphans to end, and returns those that have not.
func (c *child) leftWithin(most time.Duration) []int {
	deadline := time.Now().Add(most)
	for {
		left := c.orphans()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(10 * time.Millisecond)
		reapThese(left)
	}
}

// orphans returns the living processes of the job that have outlived their
// parents, and what is below them.
func (c *child) orphans() []int {
	var out []int
	for _, pid := range adopted() {
		if !slices.Contains(c.before, pid) && !ownHelper(pid, c.mark) {
			out = append(out, pid)
			out = append(out, descendants(pid)...)
		}
	}
	return out
}

// LookPath finds a program as a shell would, in this PATH. Its error is
// fs.ErrNotExist or fs.ErrPermission underneath.
func LookPath(name, path, dir string) (string, error) {
	if slices.Contains([]byte(name), '/') {
		return name, executable(name)
	}
	denied := ""
	for _, d := range splitPath(path) {
		if d == "" {
			d = dir
		}
		full := d + "/" + name
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if errors.Is(err, fs.ErrPermission) && denied == "" {
			denied = full
		}
	}
	if denied != "" {
		return "", &os.PathError{Op: "start", Path: denied, Err: fs.ErrPermission}
	}
	return "", &os.PathError{Op: "start", Path: name, Err: fs.ErrNotExist}
}

func splitPath(path string) []string {
	var out []string
	for from, i := 0, 0; i <= len(path); i++ {
		if i == len(path) || path[i] == ':' {
			out = append(out, path[from:i])
			from = i + 1
		}
	}
	return out
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &os.PathError{Op: "start", Path: file, Err: syscall.EISDIR}
	}
	if info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "start", Path: file, Err: fs.ErrPermission}
	}
	return nil
}
