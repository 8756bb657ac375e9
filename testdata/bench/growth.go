package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fabrun/launcher/measure"
	"fabrun/testdata/bench/lines"
)

// curve is how one thing grows with its size.
type curve struct {
	name  string
	unit  string // of the sizes
	sizes []int
	prep  func(dir string, n int) error
	lane  func(n int) lane
	n     int // runs of each size
}

func curves(all bool) []curve {
	gigabytes := []int{100, 1000}
	if all {
		gigabytes = append(gigabytes, 10_000)
	}
	shell := func(n int, text string) lane {
		return lane{argv: []string{"sh", "-c", fmt.Sprintf(text, n)}}
	}
	return []curve{
		{name: "plan: GPUs of the job, 8 a host", unit: "GPUs", sizes: []int{8, 16, 32, 64, 512, 4096}, n: 7, lane: func(n int) lane {
			return lane{argv: []string{"{fabrun}", "plan", "--from", eightGPUs, "--profile", "roce-dscp26", "--hosts", fmt.Sprintf("n[1-%d]", n/8), "--", "torchrun", "train.py"}}
		}},
		{name: "hosts --list: names of an expression", unit: "hosts", sizes: []int{1, 100, 10_000, 100_000}, n: 7, lane: func(n int) lane {
			return lane{argv: []string{"{fabrun}", "hosts", "--list", fmt.Sprintf("node[1-%d]", n)}}
		}},
		{name: "check: snapshots of hosts that should be alike", unit: "files", sizes: []int{10, 100, 1000}, n: 1, prep: manySnapshots, lane: func(n int) lane {
			return shell(n, "{fabrun} check --profile roce-dscp26 {dir}/snaps%d/*.snap >/dev/null; [ $? -le 1 ]")
		}},
		{name: "watch: a log from a pipe", unit: "MB", sizes: gigabytes, n: 1, prep: func(dir string, _ int) error {
			to := filepath.Join(dir, "piece")
			if _, err := os.Stat(to); err == nil {
				return nil
			}
			return fill(to, 100_000_000, lines.NCCL)
		}, lane: func(n int) lane {
			l := shell(n/100, "i=0; while [ $i -lt %d ]; do cat {dir}/piece; i=$((i+1)); done | {fabrun} watch >/dev/null")
			l.bytes = int64(n) * 1_000_000
			return l
		}},
		{name: "watch: hosts in a log", unit: "hosts", sizes: []int{200, 2000, 20_000}, n: 3, prep: manyHostsLog, lane: func(n int) lane {
			return shell(n, "{fabrun} watch {dir}/hosts%d.log >/dev/null; [ $? -le 1 ]")
		}},
	}
}

// manySnapshots writes the 8-GPU host n times under other names.
func manySnapshots(dir string, n int) error {
	text, err := os.ReadFile(eightGPUs)
	if err != nil {
		return err
	}
	const name = "-- proc/sys/kernel/hostname --\n"
	before, after, ok := bytes.Cut(text, []byte(name))
	if !ok {
		return fmt.Errorf("%s has no host name", eightGPUs)
	}
	_, after, _ = bytes.Cut(after, []byte("\n"))
	to := filepath.Join(dir, fmt.Sprintf("snaps%d", n))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for i := range n {
		one := fmt.Sprintf("%s%sgpu%04d\n%s", before, name, i, after)
		if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("gpu%04d.snap", i)), []byte(one), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// manyHostsLog writes what NCCL says of itself on n hosts, eight ranks each.
func manyHostsLog(dir string, n int) error {
	var b bytes.Buffer
	for h := range n {
		for gpu := range 8 {
			pre := fmt.Sprintf("node%05d:%d:%d [%d] NCCL INFO ", h, 1000+gpu, 2000+gpu, gpu)
			b.WriteString(pre + "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n" + pre + "Using network IB\n")
			fmt.Fprintf(&b, "%scomm 0x7f00 rank %d nranks %d cudaDev %d nvmlDev %d busId 1b000 commId 0xabc - Init COMPLETE\n", pre, h*8+gpu, n*8, gpu, gpu)
		}
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("hosts%d.log", n)), b.Bytes(), 0o600)
}

// grow measures the curves and the schedule of pairs.
func grow(w io.Writer, dir, fabrun string, all bool) {
	for _, c := range curves(all) {
		fmt.Fprintf(w, "%s\n", c.name)
		for _, size := range c.sizes {
			if c.prep != nil {
				if err := c.prep(dir, size); err != nil {
					fmt.Fprintf(w, "  not run: %v\n", err)
					break
				}
			}
			l := c.lane(size)
			var best used
			var err error
			for i := range c.n {
				var u used
				if u, err = once(l, dir, fabrun); err != nil {
					break
				}
				if i == 0 || u.wall < best.wall {
					best = u
				}
			}
			if err != nil {
				fmt.Fprintf(w, "  %7d %-6s failed: %v\n", size, c.unit, err)
				continue
			}
			fmt.Fprintf(w, "  %7d %-6s %9.1f ms  cpu %9.1f ms  rss %4d MB", size, c.unit, ms(best.wall), ms(best.cpu), best.rss>>10)
			if l.bytes > 0 {
				fmt.Fprintf(w, "  %5.0f MB/s", float64(l.bytes)/1e6/best.wall.Seconds())
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w, "check --pairs full: the schedule of all pairs, inside")
	for _, n := range []int{1, 16, 256, 1024, 4096} {
		best := time.Hour
		rounds := 0
		for range 3 {
			start := time.Now()
			rounds = len(measure.Schedule(n, measure.Full))
			best = min(best, time.Since(start))
		}
		fmt.Fprintf(w, "  %7d hosts  %9.1f ms  %d rounds\n", n, ms(best), rounds)
	}
}

// pageOf is docs/performance.md: where it was measured, and what was.
func pageOf(measured, growth string, facts []string) string {
	return strings.Join([]string{
		"# Performance", "",
		"Written by `make bench PAGE=docs/performance.md`, which measures fabrun and the programs it is compared with in turn, in one run on",
		"one machine. Judge by the ratios: they are of the same minutes. Times are from start to exit; *cpu* is what all processes of a line",
		"used together, *rss* the largest one's memory. What the design promises stands behind each name.", "",
		"| | |", "|---|---|", strings.Join(facts, "\n"), "",
		"## Beside its peers", "", "```text", strings.TrimRight(measured, "\n"), "```", "",
		"## How it grows", "", "Best of several runs; of one run where a run takes seconds. A log of 10 GB is measured where `bin/bench -all` has the minutes for it.", "", "```text", strings.TrimRight(growth, "\n"), "```", "",
	}, "\n")
}

// factsOf says which machine this is, how busy it is, and whose versions these are.
func factsOf(fabrun string) []string {
	row := func(name, value string) string {
		return "| " + name + " | " + strings.ReplaceAll(strings.TrimSpace(value), "\n", "; ") + " |"
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			return "unknown"
		}
		return string(text)
	}
	cpus := strings.Count(read("/proc/cpuinfo"), "processor\t")
	model := "unknown"
	if _, after, ok := strings.Cut(read("/proc/cpuinfo"), "model name\t: "); ok {
		model, _, _ = strings.Cut(after, "\n")
	}
	rows := []string{
		row("date", time.Now().UTC().Format("2006-01-02 15:04 MST")),
		row("processor", fmt.Sprintf("%d × %s", cpus, model)),
		row("kernel", read("/proc/sys/kernel/osrelease")),
		row("load before it (1, 5, 15 minutes), and running of all", read("/proc/loadavg")),
		row("niceness", firstLines(1, "nice")),
		row("fabrun", firstLines(2, fabrun, "version")),
	}
	for _, p := range [][]string{{"lstopo", "--version"}, {"mpirun", "--version"}, {"pdsh", "-V"}, {"clush", "--version"}, {"hwloc-bind", "--version"}, {"grep", "--version"}, {"cat", "--version"}} {
		rows = append(rows, row(p[0], firstLines(1, p[0], p[1:]...)))
	}
	return rows
}
