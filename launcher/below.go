package launcher

import (
	"fmt"
	"os"
	"strings"
)

// Process is a running process of a job.
type Process struct {
	PID    int
	Parent int
	Argv   []string // as it shows itself
	State  string   // of its main thread, as in proc(5)
	CPU    float64  // seconds, of it and the children that it has waited for
}

// ticksPerSecond is what /proc counts CPU time in, whatever the kernel's own HZ is
// (linux/asm-generic/param.h, USER_HZ).
const ticksPerSecond = 100

func (p process) public() Process {
	return Process{PID: p.pid, Parent: p.ppid, State: p.state, CPU: float64(p.ticks) / ticksPerSecond}
}

// See returns what a living process does now; without its command line.
func See(pid int) (Process, bool) {
	p, ok := readProcess(pid)
	return p.public(), ok && !p.zombie
}

// Marked returns the living processes that carry the mark of a job, and all below
// them, without their command lines.
func Marked(mark string) []Process {
	j := job{mark: mark, known: map[int]uint64{}}
	var out []Process
	for _, pid := range j.processes() {
		if p, ok := See(pid); ok {
			out = append(out, p)
		}
	}
	return out
}

// Children returns the living children of a process.
func Children(pid int) []Process {
	var out []Process
	for _, c := range childrenOf(pid) {
		if p, ok := See(c); ok {
			out = append(out, p)
		}
	}
	return out
}

// Env is what the process was started with; nil where it cannot be read.
func (p Process) Env() []string { return environment(p.PID) }

// Below returns the living processes from pid down, without those that another
// run of this program has started.
func Below(pid int) []Process {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	below := map[int][]int{}
	for _, p := range processes() {
		if !p.zombie {
			below[p.ppid] = append(below[p.ppid], p.pid)
		}
	}
	var out []Process
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", at)); err != nil || exe == self {
			continue // another user's, gone, or a fabrun
		}
		if text := strings.TrimSuffix(readSmall(fmt.Sprintf("/proc/%d/cmdline", at)), "\x00"); text != "" {
			out = append(out, Process{PID: at, Argv: strings.Split(text, "\x00")})
		}
		todo = append(todo, below[at]...)
	}
	return out
}
