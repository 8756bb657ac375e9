package eyes

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/hang"
	"fabrun/launcher/watch"
)

// rankNames are the variables by which launchers number ranks, the innermost
// first: torchrun's workers have what srun gave torchrun, too.
var rankNames = [][]string{
	{"RANK", "LOCAL_WORLD_SIZE"}, // with both, as torchrun sets them
	{"OMPI_COMM_WORLD_RANK"}, {"PMIX_RANK"}, {"PMI_RANK"}, {"MV2_COMM_WORLD_RANK"}, {"FLUX_TASK_RANK"}, {"PALS_RANKID"}, {"SLURM_PROCID"},
}

// rankOf returns a process's number and which of rankNames told it; -1, -1 none.
func rankOf(env []string) (rank, by int) {
	get := func(name string) string {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
	for i, names := range rankNames {
		n, err := strconv.Atoi(get(names[0]))
		if err == nil && n >= 0 && get(names[len(names)-1]) != "" {
			return n, i
		}
	}
	return -1, -1
}

// scanEvery is how often all processes are looked through for the job's: in between
// those that are known are looked at.
const scanEvery = 30 * time.Second

// maxTree bounds the processes of one rank that are looked at.
const maxTree = 256

// A Ranks reads again and again what the job's ranks on this node do.
type Ranks struct {
	host, mark string
	sys        fs.FS           // /sys
	rails      []string        // "mlx5_0:1": of the job; empty all
	gpus       func() *float64 // how much the GPUs are used
	found      time.Time       // when the processes were last looked through
	anew       bool            // they have to be, at the next look
	roots      []root
	was        map[int]float64 // CPU seconds of the look before, by root
	at         time.Time       // when that was
	ports      *uint64         // of the look before
	quiet      int             // looks in which nothing has moved
	ras        *rasAsker
	dumps      dumpReader
}

// root is where a rank begins.
type root struct {
	pid  int
	rank *int
	name string
	env  []string
	gpu  bool
}

// NewRanks reads of the job with that mark. rails are the ports that the plan gives
// it; none: all count. ras: NCCL's RAS is asked, too.
func NewRanks(host, mark string, rails []string, ras bool, gpus func() *float64) *Ranks {
	r := &Ranks{host: host, mark: mark, anew: true, sys: os.DirFS("/sys"), rails: rails, gpus: gpus, was: map[int]float64{}, dumps: newDumpReader(time.Now())}
	if ras {
		r.ras = newRASAsker()
	}
	return r
}

// Run looks every so often until ctx ends. A look reads files of /proc, which a
// process that is stuck in its own memory can hold up for ever, so nothing waits
// for Run to end.
func (r *Ranks) Run(ctx context.Context, every time.Duration, tell func(hang.Look)) {
	next := time.NewTicker(every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			if l := r.Look(time.Now()); ctx.Err() == nil {
				tell(l)
			}
		}
	}
}

// Look reads everything once.
func (r *Ranks) Look(now time.Time) hang.Look {
	l := hang.Look{Time: now, Host: r.host, Ranks: []hang.Rank{}}
	l.Ports, l.NPorts = portBytes(r.sys, r.rails)
	if r.gpus != nil {
		l.GPUUse = r.gpus()
	}
	if r.anew || now.Sub(r.found) >= scanEvery {
		r.scan(now)
	}
	var socks map[uint32]uint64
	cpu := map[int]float64{}
	r.anew = !slices.ContainsFunc(r.roots, func(o root) bool { return o.rank != nil }) // they are still to come
	for i := range r.roots {
		o := &r.roots[i]
		k, tree, ok := o.look()
		if !ok {
			r.anew = true
			continue
		}
		cpu[k.PID] = k.CPU
		// Whose connections are many and whose CPU is busy is not asked for them.
		before, seen := r.was[k.PID]
		if sec := now.Sub(r.at).Seconds(); seen && sec > 0 && (k.CPU-before)/sec < 0.5 {
			if socks == nil {
				socks = socketBytes()
			}
			o.files(tree, socks, &k)
		}
		k.GPU = o.gpu
		l.Ranks = append(l.Ranks, k)
	}
	still := l.Ports != nil && !hang.Moved(l.Ports, r.ports, now.Sub(r.at))
	if l.Ports == nil {
		still = !slices.ContainsFunc(l.Ranks, func(k hang.Rank) bool { return k.TCP == nil }) // all were idle enough to be asked
	}
	r.quiet++
	if !still {
		r.quiet = 0
	}
	r.was, r.at, r.ports = cpu, now, l.Ports
	if r.quiet >= 2 {
		l.RAS = r.ras.look(r.roots)
	}
	l.Dumps = r.dumps.look(r.roots)
	return l
}

// scan looks for the job's processes. What is known of a rank stays.
func (r *Ranks) scan(now time.Time) {
	found := roots(launcher.Marked(r.mark))
	for i := range found {
		found[i].gpu = slices.ContainsFunc(r.roots, func(o root) bool { return o.pid == found[i].pid && o.gpu })
	}
	r.roots, r.found = found, now
}

func isStopped(state string) bool { return state == "T" || state == "t" }

// roots picks the processes in which ranks begin: those with a number whose parents
// have none of that kind. Where there are none yet, it is what is to start them.
func roots(all []launcher.Process) []root {
	type seen struct {
		launcher.Process
		env      []string
		rank, by int
		name     string
	}
	procs := map[int]seen{}
	best := len(rankNames)
	for _, p := range all {
		s := seen{Process: p, env: p.Env(), name: comm(p.PID)}
		s.rank, s.by = rankOf(s.env)
		if slices.Contains(runtimePrograms, s.name) {
			s.by = -1
		}
		if s.by >= 0 {
			best = min(best, s.by)
		}
		procs[p.PID] = s
	}
	var out []root
	covered := map[int]bool{}
	for _, s := range procs {
		above, inside := procs[s.Parent]
		switch {
		case best == len(rankNames):
			if !inside && !slices.Contains(runtimePrograms, s.name) {
				out = append(out, root{pid: s.PID, name: s.name, env: s.env})
			}
		case s.by == best && !(inside && above.by == best && above.rank == s.rank):
			out = append(out, root{pid: s.PID, rank: &s.rank, name: s.name, env: s.env})
		}
	}
	for _, o := range out {
		covered[o.pid] = true
	}
	// Of the others only who is stopped matters.
	for _, s := range procs {
		at, ok := s, true
		for ok && !covered[at.PID] {
			at, ok = procs[at.Parent]
		}
		if !ok && isStopped(s.State) && s.name != "fabrun" {
			out = append(out, root{pid: s.PID, name: s.name, env: s.env})
		}
	}
	slices.SortFunc(out, func(a, b root) int { return cmp.Compare(a.pid, b.pid) })
	return out
}

func comm(pid int) string {
	return strings.TrimSpace(procText(pid, "comm"))
}

// procText reads a small file of a process; "" where that is not possible.
func procText(pid int, name string) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		return ""
	}
	return string(text)
}

// look reads a rank and all below it. Of a wrapper that waits for its child, the
// child is what the rank does.
func (o *root) look() (hang.Rank, []int, bool) {
	main, ok := launcher.See(o.pid)
	if !ok {
		return hang.Rank{}, nil, false
	}
	k := hang.Rank{Rank: o.rank, PID: o.pid, Name: o.name}
	tree := []int{}
	stopped := ""
	for todo := []launcher.Process{main}; len(todo) > 0 && len(tree) < maxTree; todo = todo[1:] {
		p := todo[0]
		tree = append(tree, p.PID)
		k.CPU += p.CPU
		k.Bytes += ioBytes(procText(p.PID, "io"))
		if isStopped(p.State) {
			stopped = p.State
		}
		below := launcher.Children(p.PID)
		todo = append(todo, below...)
		if p.PID == main.PID && len(below) > 0 && strings.HasPrefix(waitsIn(p), "wait") {
			main = slices.MaxFunc(below, func(a, b launcher.Process) int { return cmp.Compare(a.CPU, b.CPU) })
		}
	}
	k.State, k.Wait = cmp.Or(stopped, main.State), waitsIn(main)
	k.Turns = fieldOf(procText(main.PID, "status"), "voluntary_ctxt_switches:")
	if k.State != "R" {
		k.Stack = stackOf(procText(main.PID, "stack"))
	}
	return k, tree, true
}

// files reads which files the processes of a rank hold: connections, GPUs.
func (o *root) files(tree []int, socks map[uint32]uint64, k *hang.Rank) {
	sum, told := uint64(0), false
	counted := map[uint32]bool{}
	for _, pid := range tree {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		told = told || pid == o.pid
		for _, e := range entries {
			link, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			if num, ok := strings.CutPrefix(link, "socket:["); ok {
				n, err := strconv.ParseUint(strings.TrimSuffix(num, "]"), 10, 32)
				if err == nil && !counted[uint32(n)] {
					counted[uint32(n)] = true
					sum += socks[uint32(n)]
				}
			}
			if isGPU(link) {
				o.gpu = true
			}
		}
	}
	if told && socks != nil {
		k.TCP = &sum
	}
}

// isGPU reports whether a device node is that of a GPU: NVIDIA's, or AMD's.
func isGPU(file string) bool {
	n, ok := strings.CutPrefix(file, "/dev/nvidia")
	return ok && n != "" && n[0] >= '0' && n[0] <= '9' || file == "/dev/kfd"
}

// socketBytes is what each TCP connection of this node has moved, by its inode; nil
// where the kernel does not tell.
func socketBytes() map[uint32]uint64 {
	all, err := tcpSockets()
	if err != nil {
		return nil
	}
	out := make(map[uint32]uint64, len(all))
	for _, s := range all {
		out[s.inode] = s.acked + s.recvd
	}
	return out
}

// ioBytes sums what /proc/PID/io tells of: calls, and what they make the disk do.
func ioBytes(text string) uint64 {
	sum := uint64(0)
	for _, name := range []string{"rchar:", "wchar:", "read_bytes:", "write_bytes:"} {
		sum += fieldOf(text, name)
	}
	return sum
}

// fieldOf reads 'name value' of a file of lines.
func fieldOf(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// stackOf are the innermost functions of /proc/PID/stack, which only root may read.
func stackOf(text string) []string {
	const most = 5
	var out []string
	for line := range strings.Lines(text) {
		// [<0>] futex_do_wait+0x46/0x90
		_, name, ok := strings.Cut(strings.TrimSpace(line), "] ")
		if name, _, _ = strings.Cut(name, "+"); ok && name != "" && len(out) < most {
			out = append(out, name)
		}
	}
	return out
}

// waitsIn is where a process's main thread waits: the system call; for one that is
// stuck in the kernel, the function there. "" where the kernel does not tell (the
// call only to who may trace the process, the function not in every kernel).
func waitsIn(p launcher.Process) string {
	if p.State == "R" {
		return ""
	}
	function := procText(p.PID, "wchan")
	if function == "0" {
		function = ""
		if s := stackOf(procText(p.PID, "stack")); len(s) > 0 {
			function = s[0]
		}
	}
	if p.State == "D" && function != "" {
		return function
	}
	// 202 0x7f… …; "running"; -1 outside of a call
	number, _, _ := strings.Cut(procText(p.PID, "syscall"), " ")
	if n, err := strconv.Atoi(number); err == nil {
		if name := cmp.Or(callNames[n], olderCalls[n]); name != "" {
			return name
		}
	}
	return function
}

// callNames are the system calls in which programs wait.
var callNames = map[int]string{
	syscall.SYS_NANOSLEEP: "nanosleep", syscall.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", syscall.SYS_FUTEX: "futex",
	syscall.SYS_PPOLL: "ppoll", syscall.SYS_PSELECT6: "pselect", syscall.SYS_EPOLL_PWAIT: "epoll_pwait", sysEpollPwait2: "epoll_pwait2",
	syscall.SYS_RECVFROM: "recvfrom", syscall.SYS_RECVMSG: "recvmsg", syscall.SYS_SENDTO: "sendto", syscall.SYS_SENDMSG: "sendmsg",
	syscall.SYS_ACCEPT: "accept", syscall.SYS_ACCEPT4: "accept4", syscall.SYS_CONNECT: "connect",
	syscall.SYS_WAIT4: "wait4", syscall.SYS_WAITID: "waitid", syscall.SYS_READ: "read", syscall.SYS_READV: "readv", syscall.SYS_WRITE: "write",
}

// sysEpollPwait2 has one number everywhere (include/uapi/asm-generic/unistd.h).
const sysEpollPwait2 = 441

// portBytes is what the active RDMA ports of a /sys tree have moved: bytes, or of a
// device that counts none, packets of 1 KiB. Only these files are read: others ask
// the firmware. only names ports ("mlx5_0:1"); none: all.
func portBytes(sys fs.FS, only []string) (*uint64, int) {
	devs, err := fs.ReadDir(sys, "class/infiniband")
	if err != nil {
		return nil, 0
	}
	sum, known := uint64(0), 0
	for _, d := range devs {
		ports, err := fs.ReadDir(sys, path.Join("class/infiniband", d.Name(), "ports"))
		if err != nil {
			continue
		}
		for _, p := range ports {
			dir := path.Join("class/infiniband", d.Name(), "ports", p.Name())
			if len(only) > 0 && !slices.Contains(only, d.Name()+":"+p.Name()) || !strings.HasPrefix(sysText(sys, path.Join(dir, "state")), "4:") {
				continue
			}
			c := map[watch.Counter]uint64{}
			for _, kind := range []string{"counters", "hw_counters"} {
				files, err := fs.ReadDir(sys, path.Join(dir, kind))
				if err != nil {
					continue
				}
				for _, f := range files {
					name, factor, ok := watch.CounterOf(f.Name())
					if !ok || name != watch.TxBytes && name != watch.RxBytes && name != watch.TxPackets && name != watch.RxPackets {
						continue
					}
					if v, err := strconv.ParseUint(sysText(sys, path.Join(dir, kind, f.Name())), 10, 64); err == nil {
						c[name] += v * factor
					}
				}
			}
			_, tx := c[watch.TxBytes]
			_, rx := c[watch.RxBytes]
			_, txp := c[watch.TxPackets]
			_, rxp := c[watch.RxPackets]
			switch {
			case tx || rx:
				sum += c[watch.TxBytes] + c[watch.RxBytes]
			case txp || rxp:
				sum += (c[watch.TxPackets] + c[watch.RxPackets]) << 10
			default:
				continue
			}
			known++
		}
	}
	if known == 0 {
		return nil, 0
	}
	return &sum, known
}
