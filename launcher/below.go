package launcher

import (
	"fmt"
	"os"
	"strings"
)

// Process is a running process of a job.
type Process struct {
	PID  int
	Argv []string // as it shows itself
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
			out = append(out, Process{at, strings.Split(text, "\x00")})
		}
		todo = append(todo, below[at]...)
	}
	return out
}
