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
	start           uint64 // clock ticks after boot; 0 not said
	zombie          bool
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

// parseStat reads pid, state, ppid, pgrp and start time (field 22) of
// /proc/PID/stat; the name in parentheses may hold anything, so the last
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
	if len(f) > 19 {
		var err error
		if p.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
			return process{}, false
		}
	}
	p.zombie = f[0] == "Z" || f[0] == "X"
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

// terminal is the controlling terminal, when the child may need it.
type terminal struct {
	file  *os.File
	given bool
	lazy  bool // given only when the child asks for it
}

// openTerminal returns the terminal of standard input. In a pipeline the
// terminal stays with the pipeline, until the child asks for it.
func openTerminal(stdin, stdout *os.File) *terminal {
	if stdin == nil || foregroundGroup(stdin) < 0 {
		return nil
	}
	t := &terminal{file: stdin}
	if stdout != nil {
		if info, err := stdout.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			t.lazy = true
		}
	}
	return t
}

// ours reports whether this process's group has the terminal.
func (t *terminal) ours() bool {
	return t != nil && foregroundGroup(t.file) == syscall.Getpgrp()
}

// give hands the terminal to a process group, where it is ours to give.
func (t *terminal) give(group int) bool {
	if !t.ours() {
		return false
	}
	t.given = setForegroundGroup(t.file, group) == nil
	return t.given
}

func (t *terminal) takeBack() {
	if t == nil || !t.given {
		return
	}
	t.given = false
	//nolint:errcheck // the terminal may be gone
	_ = setForegroundGroup(t.file, syscall.Getpgrp())
}

// foregroundGroup is -1 where the file is no terminal of ours.
func foregroundGroup(f *os.File) int {
	var group int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))); errno != 0 {
		return -1
	}
	return int(group)
}

func setForegroundGroup(f *os.File, group int) error {
	g := int32(group)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return errno
	}
	return nil
}
