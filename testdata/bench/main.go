// Command bench times fabrun beside the programs it is compared with, in the
// same run on the same machine, and prints medians and ratios. It judges
// nothing: whoever reads it does.
//
//	go run ./testdata/bench -fabrun bin/fabrun [-n 20] [name…]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fabrun/testdata/bench/lines"
)

// race is one comparison: ours first, then the peers.
type race struct {
	name  string
	bar   string // what the design promises
	prep  func(dir, fabrun string) error
	lanes []lane
	n     int  // runs a lane; 0 is the flag's
	times bool // the first lane is the measure of the others
	// special is a measurement of its own instead of lanes.
	special func(w io.Writer, dir, fabrun string) error
}

// lane is one contestant. {dir} and {fabrun} are replaced in its argv; a lane
// whose program is missing is said to be so.
type lane struct {
	name  string
	argv  []string
	env   []string
	bytes int64 // when the rate counts
}

const mib = 1 << 20

func races() []race {
	return []race{
		{
			name: "plan", bar: "≤ 5 ms or 5 times an empty program; under lstopo on the same 8-GPU host",
			prep: eightGPUsXML,
			lanes: []lane{
				{name: "fabrun plan --from 8x10 snapshot", argv: []string{"{fabrun}", "plan", "--from", "testdata/hosts/dgx-roce-8x8.snap", "--profile", "roce-dscp26", "--", "torchrun", "train.py"}},
				{name: "lstopo -i the same host's XML", argv: []string{"lstopo", "-i", "{dir}/lstopo.xml", "--of", "console"}},
				{name: "an empty Go program", argv: []string{"{dir}/empty"}},
			},
		},
		{
			name: "live", bar: "under lstopo on this machine",
			lanes: []lane{
				{name: "fabrun env", argv: []string{"{fabrun}", "env"}},
				{name: "lstopo", argv: []string{"lstopo", "--of", "console"}},
				{name: "fabrun topo", argv: []string{"{fabrun}", "topo"}},
			},
		},
		{name: "start", bar: "below 2.5 times an empty Go program, for every verb", lanes: starts(), times: true},
		{
			name: "launch", bar: "≤ 10 ms over bare mpirun, and not growing with ranks",
			lanes: []lane{
				{name: "fabrun mpirun -np 2 true", argv: []string{"{fabrun}", "mpirun", "-np", "2", "true"}, env: asRoot},
				{name: "mpirun -np 2 true", argv: []string{"mpirun", "-np", "2", "true"}, env: asRoot},
				{name: "fabrun mpirun -np 16 true", argv: []string{"{fabrun}", "mpirun", "-np", "16", "true"}, env: asRoot},
				{name: "mpirun -np 16 true", argv: []string{"mpirun", "-np", "16", "true"}, env: asRoot},
			},
		},
		{
			name: "rank", bar: "≤ 4 ms over bare true",
			lanes: []lane{
				{name: "fabrun rank -- true", argv: []string{"{fabrun}", "rank", "--", "true"}, env: []string{"OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
				{name: "hwloc-bind core:0 -- true", argv: []string{"hwloc-bind", "core:0", "--", "true"}},
				{name: "true", argv: []string{"true"}},
			},
		},
		{
			name: "hosts", bar: "100,000 names ≤ 10 ms inside; nodeset took 239",
			lanes: []lane{
				{name: "fabrun hosts --list", argv: []string{"{fabrun}", "hosts", "--list", "node[000001-100000]"}},
				{name: "nodeset -e", argv: []string{"nodeset", "-e", "node[000001-100000]"}},
				{name: "scontrol show hostnames", argv: []string{"scontrol", "show", "hostnames", "node[000001-060000]"}},
			},
		},
		{
			name: "look", bar: "64 hosts over loopback ssh: under pdsh and clush for the same command", n: 2, // a round takes about a minute
			prep: startSSHD,
			lanes: []lane{
				{name: "fabrun plan, which looks at 64", argv: []string{"{fabrun}", "plan", "--preflight", "off", "--ssh-config", "{dir}/ssh_config", "--hosts", "h[01-64]", "--", "true"}},
				{name: "pdsh fabrun snapshot --quick", argv: []string{"pdsh", "-R", "ssh", "-f", "64", "-w", "h[01-64]", "{fabrun} snapshot --quick"}, env: []string{"PDSH_SSH_ARGS_APPEND=-F {dir}/ssh_config"}},
				{name: "clush fabrun snapshot --quick", argv: []string{"clush", "-q", "-f", "64", "-w", "h[01-64]", "-o", "-F {dir}/ssh_config", "{fabrun} snapshot --quick"}},
				{name: "pdsh true", argv: []string{"pdsh", "-R", "ssh", "-f", "64", "-w", "h[01-64]", "true"}, env: []string{"PDSH_SSH_ARGS_APPEND=-F {dir}/ssh_config"}},
				{name: "clush true", argv: []string{"clush", "-q", "-f", "64", "-w", "h[01-64]", "-o", "-F {dir}/ssh_config", "true"}},
			},
		},
		{
			// Through one more pipe beside cat | cat | cat, and to /dev/null beside
			// the readers: each lane stands for the one with as many pipes.
			name: "watch-ordinary", bar: "≥ 0.8 of cat|cat|cat; > /dev/null above tee and grep -c; flat memory", n: 7,
			prep: func(dir, _ string) error { return fill(filepath.Join(dir, "ordinary"), 1000*mib, lines.Ordinary) },
			lanes: []lane{
				{name: "fabrun run -- cat FILE | cat", argv: []string{"sh", "-c", "{fabrun} run --profile none -- cat {dir}/ordinary | cat >/dev/null"}, env: []string{"NCCL_DEBUG=INFO"}, bytes: 1000 * mib},
				{name: "cat FILE | cat | cat", argv: []string{"sh", "-c", "cat {dir}/ordinary | cat | cat >/dev/null"}, bytes: 1000 * mib},
				{name: "cat FILE | cat", argv: []string{"sh", "-c", "cat {dir}/ordinary | cat >/dev/null"}, bytes: 1000 * mib},
				{name: "fabrun run -- cat FILE > null", argv: []string{"sh", "-c", "{fabrun} run --profile none -- cat {dir}/ordinary >/dev/null"}, env: []string{"NCCL_DEBUG=INFO"}, bytes: 1000 * mib},
				{name: "cat FILE | tee null > null", argv: []string{"sh", "-c", "cat {dir}/ordinary | tee /dev/null >/dev/null"}, bytes: 1000 * mib},
				{name: "cat FILE | grep -c", argv: []string{"sh", "-c", "cat {dir}/ordinary | grep -c 'NCCL INFO'; true"}, bytes: 1000 * mib},
				{name: "nothing to read: inherited", argv: []string{"sh", "-c", "{fabrun} run --profile none -- cat {dir}/ordinary | cat >/dev/null"}, env: []string{"NCCL_DEBUG="}, bytes: 1000 * mib},
			},
		},
		{
			name: "watch-nccl", bar: "≥ 300 MB/s of pure NCCL INFO; flat memory", n: 7,
			prep: func(dir, _ string) error { return fill(filepath.Join(dir, "nccl"), 300*mib, lines.NCCL) },
			lanes: []lane{
				{name: "fabrun run -- cat FILE | cat", argv: []string{"sh", "-c", "{fabrun} run --profile none -- cat {dir}/nccl | cat >/dev/null"}, env: []string{"NCCL_DEBUG=INFO"}, bytes: 300 * mib},
				{name: "cat FILE | cat | cat", argv: []string{"sh", "-c", "cat {dir}/nccl | cat | cat >/dev/null"}, bytes: 300 * mib},
				{name: "cat FILE | grep -c", argv: []string{"sh", "-c", "cat {dir}/nccl | grep -c 'NCCL INFO'; true"}, bytes: 300 * mib},
				{name: "fabrun watch FILE", argv: []string{"{fabrun}", "watch", "{dir}/nccl"}, bytes: 300 * mib},
			},
		},
		{name: "watch-latency", bar: "a line is through in under 10 ms", special: latency},
		{name: "watch-logs", bar: "1,000 ranks' private logs: bounded memory and files", special: manyLogs},
	}
}

// asRoot lets Open MPI run where this does, and more ranks than there are cores.
var asRoot = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none"}

// starts are an empty program and each verb's start: to its help, which is all of
// it but the work.
func starts() []lane {
	lanes := []lane{{name: "an empty Go program", argv: []string{"{dir}/empty"}}}
	for _, verb := range []string{"version", "run", "plan", "rank", "watch", "report", "check", "diff", "hosts", "topo", "slurm", "snapshot", "lint", "env", "profile", "dscp"} {
		lanes = append(lanes, lane{name: "fabrun " + verb + " --help", argv: []string{"{fabrun}", verb, "--help"}})
	}
	return lanes
}

// emptyProgram builds what a Go program costs that does nothing.
func emptyProgram(dir string) error {
	source := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "empty"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of an empty program: %w: %s", err, out)
	}
	return nil
}

// firstLines are the first lines that a program prints, on either stream.
func firstLines(n int, name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return "not here"
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(all[:min(n, len(all))], "\n")
}

// fill writes about size bytes made of pieces(i).
func fill(path string, size int, piece func(b *bytes.Buffer, i int)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for i := 0; size > 0; i++ {
		piece(&b, i)
		if b.Len() > mib {
			size -= b.Len()
			if _, err := b.WriteTo(f); err != nil {
				return err
			}
		}
	}
	return f.Close()
}

func main() {
	fabrun := flag.String("fabrun", "bin/fabrun", "the static `binary`")
	n := flag.Int("n", 20, "runs of each contestant")
	page := flag.String("page", "", "write this Markdown `file`, with the growth curves")
	all := flag.Bool("all", false, "with -page: the curves' largest sizes, too (a log of 10 GB)")
	tick := flag.Int("tick", 0, "be the job of watch-latency: print so many lines with the time")
	flag.Parse()
	if *tick > 0 {
		ticker(*tick)
		return
	}
	if err := work(*fabrun, *n, flag.Args(), *page, *all); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// work runs the races, and for a page the growth curves behind them.
func work(fabrun string, n int, only []string, page string, all bool) error {
	fabrun, err := filepath.Abs(fabrun)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fabrun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := emptyProgram(dir); err != nil {
		return err
	}
	var measured, growth bytes.Buffer
	facts := factsOf(fabrun)
	if err := bench(io.MultiWriter(os.Stdout, &measured), dir, fabrun, n, only); err != nil || page == "" {
		return err
	}
	grow(io.MultiWriter(os.Stdout, &growth), dir, fabrun, all)
	return os.WriteFile(page, []byte(pageOf(measured.String(), growth.String(), facts)), 0o644)
}

func bench(w io.Writer, dir, fabrun string, n int, only []string) error {
	for _, r := range races() {
		if len(only) > 0 && !slices.Contains(only, r.name) {
			continue
		}
		fmt.Fprintf(w, "%s (%s)\n", r.name, r.bar)
		if r.prep != nil {
			if err := r.prep(dir, fabrun); err != nil {
				fmt.Fprintf(w, "  not run: %v\n", err)
				continue
			}
		}
		if r.special != nil {
			if err := r.special(w, dir, fabrun); err != nil {
				fmt.Fprintf(w, "  not run: %v\n", err)
			}
			continue
		}
		runs := n
		if r.n > 0 {
			runs = min(n, r.n)
		}
		times := make([][]time.Duration, len(r.lanes))
		cpus := make([][]time.Duration, len(r.lanes))
		memory := make([]int64, len(r.lanes))
		fails := make([]error, len(r.lanes))
		// Interleaved, so that whatever else the machine does hits all alike.
		for range runs + 1 {
			for i, l := range r.lanes {
				u, err := once(l, dir, fabrun)
				if err != nil {
					fails[i] = err
				}
				times[i], cpus[i], memory[i] = append(times[i], u.wall), append(cpus[i], u.cpu), max(memory[i], u.rss)
			}
		}
		var first, firstCPU time.Duration
		for i, l := range r.lanes {
			if fails[i] != nil {
				fmt.Fprintf(w, "  %-34s failed: %v\n", l.name, fails[i])
				continue
			}
			ts := times[i][1:] // the first warms the caches
			slices.Sort(ts)
			slices.Sort(cpus[i])
			med, cpu := ts[len(ts)/2], cpus[i][len(cpus[i])/2]
			if i == 0 {
				first, firstCPU = med, cpu
			}
			fmt.Fprintf(w, "  %-34s median %8.2f ms  min %8.2f  max %8.2f", l.name, ms(med), ms(ts[0]), ms(ts[len(ts)-1]))
			if l.bytes > 0 {
				fmt.Fprintf(w, "  %7.0f MB/s", float64(l.bytes)/1e6/med.Seconds())
			}
			// The processor time of all its processes says more than the clock
			// where others use the machine too.
			fmt.Fprintf(w, "  cpu %8.2f ms  rss %3d MB", ms(cpu), memory[i]>>10)
			switch {
			case i == 0 || first == 0 || cpu == 0:
			case r.times:
				fmt.Fprintf(w, "  (%.2f times the first, %.2f of its cpu)", float64(med)/float64(first), float64(cpu)/float64(firstCPU))
			default:
				fmt.Fprintf(w, "  (ours takes %.2f of it, %.2f of its cpu)", float64(first)/float64(med), float64(firstCPU)/float64(cpu))
			}
			fmt.Fprintln(w)
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// used is what one run of a lane took; cpu and rss are of all its processes, and
// of the largest.
type used struct {
	wall, cpu time.Duration
	rss       int64 // KB
}

func once(l lane, dir, fabrun string) (used, error) {
	argv := make([]string, len(l.argv))
	for i, a := range l.argv {
		argv[i] = strings.NewReplacer("{dir}", dir, "{fabrun}", fabrun).Replace(a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	for _, kv := range l.env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(kv, "{dir}", dir))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return used{}, fmt.Errorf("%w %s", err, why)
	}
	u := used{wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.rss = r.Maxrss
	}
	return u, nil
}
