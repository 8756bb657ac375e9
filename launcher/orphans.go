package launcher

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const prSetChildSubreaper = 36 // linux/prctl.h

// becomeSubreaper makes orphans of this process's descendants its own
// children (prctl(2), PR_SET_CHILD_SUBREAPER).
func becomeSubreaper() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// EndWithParent asks the kernel to end this process with TERM when its parent
// ends: for a fabrun that a script of an outer fabrun has started.
func EndWithParent() {
	const prSetPdeathsig = 1
	//nolint:errcheck // without it only the clean-up after a kill -9 is slower
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetPdeathsig, uintptr(syscall.SIGTERM), 0, 0, 0, 0)
}

// process is what /proc/PID/stat says of one process.
type process struct {
	pid, ppid, pgrp int
	session         int    // 0 not said
	start           uint64 // clock ticks after boot; 0 not said
	zombie          bool
	state           string
	ticks           uint64 // of CPU time, of it and the children that it has waited for; 0 not said
}

// processes reads every process's parent. A process that ends meanwhile is
// left out.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			out = append(out, p)
		}
	}
	return out
}

func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	return parseStat(string(text))
}

// parseStat reads pid, state, ppid, pgrp, session, CPU times (fields 14 to 17) and
// start time (field 22) of /proc/PID/stat; the name in parentheses may hold anything, so the last
// parenthesis counts (proc(5)).
func parseStat(text string) (process, bool) {
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 1 || shut < open {
		return process{}, false
	}
	f := strings.Fields(text[shut+1:])
	if len(f) < 3 {
		return process{}, false
	}
	var p process
	var err1, err2, err3 error
	p.pid, err1 = strconv.Atoi(strings.TrimSpace(text[:open]))
	p.ppid, err2 = strconv.Atoi(f[1])
	p.pgrp, err3 = strconv.Atoi(f[2])
	if len(f) > 3 {
		var err error
		if p.session, err = strconv.Atoi(f[3]); err != nil {
			return process{}, false
		}
	}
	if len(f) > 14 {
		for _, w := range f[11:15] {
			n, err := strconv.ParseUint(w, 10, 64)
			if err != nil {
				return process{}, false
			}
			p.ticks += n
		}
	}
	if len(f) > 19 {
		var err error
		if p.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
			return process{}, false
		}
	}
	p.state, p.zombie = f[0], f[0] == "Z" || f[0] == "X"
	return p, err1 == nil && err2 == nil && err3 == nil
}

// descendants returns every living process below pid.
func descendants(pid int) []int {
	below := map[int][]int{}
	for _, p := range processes() {
		if !p.zombie {
			below[p.ppid] = append(below[p.ppid], p.pid)
		}
	}
	var out []int
	seen := map[int]bool{pid: true}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range below[todo[0]] {
			if !seen[p] {
				seen[p] = true
				out, todo = append(out, p), append(todo, p)
			}
		}
	}
	return out
}

// adopted returns this process's living children that came to it as orphans.
// A child that this program started itself is in this program's process group
// or has just been started by os/exec; an orphan of a job is in a group of the
// job.
func adopted() []int {
	self := os.Getpid()
	group := syscall.Getpgrp()
	var out []int
	for _, p := range processes() {
		if p.ppid == self && !p.zombie && p.pgrp != group {
			out = append(out, p.pid)
		}
	}
	return out
}

// reapOrphans waits for orphans that have ended and that were already there a
// turn before: whoever started a process here has waited for it by then.
func reapOrphans(child int, seen map[int]bool) map[int]bool {
	self := os.Getpid()
	zombies := map[int]bool{}
	for _, pid := range childrenOf(self) {
		if p, ok := readProcess(pid); !ok || !p.zombie || pid == child {
			continue
		}
		if seen[pid] {
			reapThese([]int{pid})
			continue
		}
		zombies[pid] = true
	}
	return zombies
}

func reapThese(pids []int) {
	for _, pid := range pids {
		var ws syscall.WaitStatus
		//nolint:errcheck // not ours, or not ended yet
		_, _ = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	}
}

// childrenOf lists the children of a process from its tasks (proc(5),
// CONFIG_PROC_CHILDREN), and by a walk where the kernel has no such file.
func childrenOf(pid int) []int {
	tasks := filepath.Join("/proc", strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(tasks, e.Name(), "children"))
		if err != nil {
			if os.IsNotExist(err) {
				return childrenByWalk(pid)
			}
			continue
		}
		for _, w := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(w); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

func childrenByWalk(pid int) []int {
	var out []int
	for _, p := range processes() {
		if p.ppid == pid {
			out = append(out, p.pid)
		}
	}
	return out
}

// ownGroup returns the other members of this process's group, and whether the
// group is orphaned: no shell of its session could continue it once it stops
// (setpgid(2)).
func ownGroup() (others []int, orphaned bool) {
	self := os.Getpid()
	all := map[int]process{}
	for _, p := range processes() {
		all[p.pid] = p
	}
	own := all[self]
	orphaned = true
	for _, p := range all {
		if p.pgrp != own.pgrp || p.zombie {
			continue
		}
		if p.pid != self {
			others = append(others, p.pid)
		}
		if parent, ok := all[p.ppid]; ok && parent.pgrp != own.pgrp && parent.session == own.session {
			orphaned = false
		}
	}
	return others, orphaned
}

// TerminalUse says when the child is given the terminal.
type TerminalUse int

const (
	// TerminalAtOnce: from the start, as a shell does with a job.
	TerminalAtOnce TerminalUse = iota
	// TerminalOnDemand: when it reads from it. Others of a pipeline may use it
	// (a pager reads its keys from there).
	TerminalOnDemand
)

// terminal is the controlling terminal, when the child may need it.
type terminal struct {
	file  *os.File
	given bool // the child's group has it
	keep  bool // it had it before it was stopped
	lazy  bool // given only when the child asks for it
	modes *syscall.Termios
}

// openTerminal returns the controlling terminal; nil where there is none. It is
// given to the child at once only where it is also its standard input.
func openTerminal(stdin *os.File, use TerminalUse) *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	if foregroundGroup(file.Fd()) < 0 {
		closeQuietly(file)
		return nil
	}
	t := &terminal{file: file, lazy: use == TerminalOnDemand || foregroundGroup(fd(stdin, 0)) < 0}
	t.modes = terminalModes(file.Fd())
	return t
}

func (t *terminal) close() {
	if t != nil {
		closeQuietly(t.file)
	}
}

// ours reports whether this process's group has the terminal.
func (t *terminal) ours() bool {
	return t != nil && foregroundGroup(t.file.Fd()) == syscall.Getpgrp()
}

// give hands the terminal to a process group, where it is ours to give.
func (t *terminal) give(group int) bool {
	if !t.ours() {
		return false
	}
	t.given = setForegroundGroup(t.file.Fd(), group) == nil
	t.keep = t.given
	return t.given
}

func (t *terminal) takeBack() {
	if t == nil || !t.given {
		return
	}
	t.given = false
	//nolint:errcheck // the terminal may be gone
	_ = setForegroundGroup(t.file.Fd(), syscall.Getpgrp())
}

// restore undoes what a program that was killed has left of the terminal's
// modes (no echo, raw input). A shell does so for a job that a signal has ended,
// and cannot see it behind fabrun's exit status.
func (t *terminal) restore() {
	if !t.ours() || t.modes == nil {
		return
	}
	//nolint:errcheck // the terminal may be gone
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TCSETS, uintptr(unsafe.Pointer(t.modes)))
}

func terminalModes(fd uintptr) *syscall.Termios {
	var m syscall.Termios
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&m))); errno != 0 {
		return nil
	}
	return &m
}

// foregroundGroup is -1 where the file is no terminal of ours.
func foregroundGroup(fd uintptr) int {
	var group int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))); errno != 0 {
		return -1
	}
	return int(group)
}

func setForegroundGroup(fd uintptr, group int) error {
	g := int32(group)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return errno
	}
	return nil
}
