package launcher

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"fabrun/launcher/plan"
	"fabrun/topology"
)

// Mask returns the CPUs that the calling thread may run on.
func Mask() ([]int, error) {
	buf := make([]uint64, 1024) // 65,536 CPUs
	n, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(buf)*8), uintptr(unsafe.Pointer(&buf[0])))
	if errno != 0 {
		return nil, os.NewSyscallError("sched_getaffinity", errno)
	}
	var out []int
	for i, word := range buf[:int(n)/8] {
		for w := word; w != 0; w &= w - 1 {
			out = append(out, i*64+bits.TrailingZeros64(w))
		}
	}
	return out, nil
}

// EffectiveCPUs returns the CPUs that this process's control group allows; nil
// where no file says so. Files: cgroup v2 cpuset.cpus.effective, v1
// cpuset.effective_cpus; else the online CPUs.
func EffectiveCPUs() []int {
	for line := range strings.Lines(readSmall("/proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !filepath.IsAbs(f[2]) {
			continue
		}
		path := ""
		switch {
		case f[1] == "":
			path = filepath.Join("/sys/fs/cgroup", f[2], "cpuset.cpus.effective")
		case slices.Contains(strings.Split(f[1], ","), "cpuset"):
			path = filepath.Join("/sys/fs/cgroup/cpuset", f[2], "cpuset.effective_cpus")
		default:
			continue
		}
		if cpus, err := topology.ParseCPUs(readSmall(path)); err == nil && len(cpus) > 0 {
			return cpus
		}
	}
	if cpus, err := topology.ParseCPUs(readSmall("/sys/devices/system/cpu/online")); err == nil && len(cpus) > 0 {
		return cpus
	}
	return nil
}

// GPUUUIDs returns the UUIDs of this host's NVIDIA GPUs in PCI order, as the
// driver's proc directory names them; nil where there is none.
func GPUUUIDs(proc string) []string {
	entries, err := os.ReadDir(filepath.Join(proc, "driver/nvidia/gpus"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries { // sorted: PCI addresses are of one width
		uuid := ""
		for line := range strings.Lines(readSmall(filepath.Join(proc, "driver/nvidia/gpus", e.Name(), "information"))) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "GPU UUID" {
				uuid = strings.TrimSpace(value)
			}
		}
		out = append(out, uuid)
	}
	return out
}

// readSmall reads a kernel file; one that cannot be read is empty.
func readSmall(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

// Become applies a rank's decision and replaces this process by the program:
// no process stays between the launcher and it. It returns only on failure to
// start; what could not be bound is said through note, and the program runs.
func Become(d plan.RankDecision, path string, argv, env []string, note func(string)) error {
	// Affinity and memory policy belong to the thread, and exec keeps those of
	// the calling one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := raiseMemlock(); err != nil {
		note(fmt.Sprintf("the memlock limit stays as it is: %v", err))
	}
	if len(d.CPUs) > 0 {
		if err := setMask(d.CPUs); err != nil {
			note(fmt.Sprintf("not bound: %v", err))
		}
	}
	if d.MemNode >= 0 {
		// A kernel without NUMA has no such call; the binding alone then does it.
		if err := preferNode(d.MemNode); err != nil && err != syscall.ENOSYS {
			note(fmt.Sprintf("memory is not preferred on node %d: %v", d.MemNode, err))
		}
	}
	return &os.PathError{Op: "start", Path: path, Err: syscall.Exec(path, argv, env)}
}

// raiseMemlock raises the soft limit to the hard one: RDMA pins what it sends.
func raiseMemlock() error {
	const rlimitMemlock = 8 // asm-generic/resource.h
	var l syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &l); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if l.Cur >= l.Max {
		return nil
	}
	l.Cur = l.Max
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(rlimitMemlock, &l))
}

func setMask(cpus []int) error {
	buf := make([]uint64, slices.Max(cpus)/64+1)
	for _, c := range cpus {
		buf[c/64] |= 1 << (c % 64)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, uintptr(len(buf)*8), uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return os.NewSyscallError("sched_setaffinity", errno)
	}
	return nil
}

// preferNode makes memory come from one NUMA node where there is room, and
// from the others where there is none (set_mempolicy(2), MPOL_PREFERRED).
func preferNode(node int) error {
	const mpolPreferred = 1
	buf := make([]uint64, node/64+1)
	buf[node/64] = 1 << (node % 64)
	if _, _, errno := syscall.RawSyscall(sysSetMempolicy, mpolPreferred, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)*64+1)); errno != 0 {
		return errno
	}
	return nil
}
