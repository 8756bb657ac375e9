package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/look"
	"fabrun/launcher/measure"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// collectiveTimeout bounds one benchmark: 4 GiB over a slow fabric takes minutes.
const collectiveTimeout = 10 * time.Minute

// maxBenchmarkOutput is more than any table has.
const maxBenchmarkOutput = 4 << 20

// foundBenchmark is a benchmark and where it lies on the job's hosts.
type foundBenchmark struct {
	measure.Benchmark
	path string
	mpi  bool // linked with an MPI: can run on several nodes
}

// findBenchmarks looks for the benchmarks on the first host, and whether the
// others have them at the same place. The text that a shell gets is fixed;
// folders and paths are its arguments.
func (s Trial) findBenchmarks(ctx context.Context, extra string) ([]foundBenchmark, []finding.Finding) {
	dirs := measure.BenchmarkDirs()
	if hpcx := cmdline.Value(s.Env, "HPCX_OSU_DIR"); filepath.IsAbs(hpcx) {
		dirs = append([]string{hpcx}, dirs...)
	}
	if extra != "" {
		dirs = append([]string{extra, path.Join(extra, "build"), path.Join(extra, "mpi/pt2pt"), path.Join(extra, "mpi/collective")}, dirs...)
	}
	const search = `name=$1; shift
for f in "$(command -v "$name")" "$@"; do
  if [ -f "$f" ] && [ -x "$f" ]; then echo "path $f"; ldd "$f" 2>/dev/null | grep -q 'libmpi' && echo mpi; exit 0; fi
done; exit 0`
	var out []foundBenchmark
	var fs []finding.Finding
	w := s.way()
	for _, b := range measure.Benchmarks() {
		var places []string
		for _, d := range dirs {
			places = append(places, path.Join(d, b.Name))
		}
		r := remote.Run(ctx, w, s.Reach[0], remote.Command{Argv: append([]string{"sh", "-c", search, "sh", b.Name}, places...)}, remote.Options{Deadline: look.Deadline})
		found := foundBenchmark{Benchmark: b}
		for line := range strings.Lines(string(r.Stdout)) {
			if p, ok := strings.CutPrefix(strings.TrimSpace(line), "path "); ok && path.IsAbs(p) {
				found.path = p
			}
			found.mpi = found.mpi || strings.TrimSpace(line) == "mpi"
		}
		if found.path == "" {
			continue
		}
		if b.Suite == "osu" {
			found.mpi = true // there is no other OSU benchmark of these names
		}
		var without []string
		for _, r := range remote.RunAll(ctx, w, s.Reach[1:], func(string) remote.Command {
			return remote.Command{Argv: []string{"test", "-x", found.path}}
		}, remote.Options{Deadline: look.Deadline}) {
			if r.Err != nil || r.Status != 0 {
				without = append(without, r.Host)
			}
		}
		if len(without) > 0 {
			fs = append(fs, finding.Finding{
				ID: "collective.missing", Severity: finding.Warning, Subject: b.Name, Seen: fmt.Sprintf("%s is not on %s", found.path, strings.Join(without[:min(len(without), 6)], ", ")),
				Wanted: "the same path on every host", Why: "it cannot be run on them", Hint: "put it on a shared file system, or install it everywhere",
			})
			if len(s.Reach)-len(without) < 2 {
				found.mpi = false
			}
		}
		out = append(out, found)
	}
	return out, fs
}

// Collectives runs what there is of nccl-tests and OSU on 1, 2, 4 and 8
// nodes, each through a fabrun of its own, which plans and watches it like any
// job. skipped says why nothing was run.
func (s Trial) Collectives(ctx context.Context, o Options, res *report.Checked) (skipped string, err error) {
	found, fs := s.findBenchmarks(ctx, o.Dir)
	res.Findings = append(res.Findings, fs...)
	if len(found) == 0 {
		return "no all_reduce_perf, osu_mbw_mr or osu_alltoall on " + s.Reach[0] + " (in PATH, or --collectives=DIR)", nil
	}
	launch, err := s.mpiLauncher()
	if err != nil {
		skipped = err.Error()
	}
	var runs []measure.CollectiveRun
	for _, b := range found {
		for _, nodes := range b.Nodes {
			if nodes > len(s.Hosts) || b.GPUs && s.gpus(nodes) == 0 {
				continue
			}
			if nodes > 1 && (!b.mpi || launch == "") {
				why := skipped
				if launch != "" {
					why = "built without MPI"
				}
				res.Findings = append(res.Findings, finding.Finding{
					ID: "collective.one-node", Severity: finding.Warning, Subject: b.Name, Seen: why, Wanted: "a program built with MPI, and a launcher",
					Why: "only one node could be measured", Hint: "make MPI=1 MPI_HOME=… in nccl-tests; a module of an MPI for the launcher",
				})
				break
			}
			for _, network := range []string{measure.OverRDMA, measure.OverTCP} {
				if network == measure.OverTCP && (o.Compare != "tcp" || nodes == 1) {
					continue
				}
				r := s.runCollective(ctx, b, launch, nodes, network)
				if ctx.Err() != nil {
					return "", ctx.Err()
				}
				runs = append(runs, r)
				s.Progress.Say("%s: %s", r.Title(), collectiveWords(r))
			}
		}
	}
	if len(runs) == 0 {
		return "the benchmarks found need GPUs, or more nodes than there are", nil
	}
	e := measure.ExpectOf(&s.Profile)
	res.Findings = append(res.Findings, measure.JudgeCollectives(runs, s.railsGbps(), e, s.Hosts)...)
	res.Collectives = append(res.Collectives, runs...)
	return "", nil
}

func collectiveWords(r measure.CollectiveRun) string {
	switch b, u := r.Best(), r.BigUsec(); {
	case r.Failed != "":
		return "failed: " + r.Failed
	case b != nil && r.NCCL != nil:
		return fmt.Sprintf("%.1f GB/s bus bandwidth", *b/8)
	case b != nil:
		return fmt.Sprintf("%.1f Gb/s a pair of nodes", *b)
	case u != nil:
		return fmt.Sprintf("%.0f µs for the largest message", *u)
	}
	return "no figure"
}

// mpiLauncher is what starts ranks on several nodes here.
func (s Trial) mpiLauncher() (string, error) {
	names := []string{"mpirun", "mpiexec"}
	if s.Transport != nil && s.Transport.Name() == "srun" {
		names = []string{"mpirun", "srun"}
	}
	p := cmdline.Value(s.Env, "PATH")
	for _, name := range names {
		if _, err := launcher.LookPath(name, p, "."); err == nil {
			return name, nil
		}
	}
	return "", errors.New("no mpirun or mpiexec in PATH")
}

// gpus is how many GPUs each of the first nodes has at least.
func (s Site) gpus(nodes int) int {
	n := len(s.Hosts[0].GPUs)
	for _, h := range s.Hosts[:nodes] {
		n = min(n, len(h.GPUs))
	}
	return n
}

// railsGbps is the sum of a node's rails, the smallest of all nodes; nil where
// a rate is not known or says nothing (rxe).
func (s Site) railsGbps() *float64 {
	var least *float64
	for _, row := range s.Ports() {
		sum := 0.0
		for _, p := range row {
			if p == nil {
				continue
			}
			if p.RateGbps == nil || p.Emulated {
				return nil
			}
			sum += *p.RateGbps
		}
		if sum > 0 && (least == nil || sum < *least) {
			least = &sum
		}
	}
	return least
}

// ranks are a node's: one a GPU, else as many as fill the rails, which one rank
// alone does not at high rates.
func (s Site) ranks(b foundBenchmark, nodes int) int {
	if b.GPUs {
		return s.gpus(nodes)
	}
	cores := len(s.Hosts[0].CPU.Cores)
	for _, h := range s.Hosts[:nodes] {
		cores = min(cores, len(h.CPU.Cores))
	}
	return max(1, min(max(4, len(s.Rails)), cores))
}

// overTCP are the settings that send a job over TCP whatever library it uses:
// NCCL's sockets, UCX's and Open MPI's own without what speaks RDMA.
var overTCP = [][2]string{
	{"NCCL_NET", "Socket"},
	{"NCCL_IB_DISABLE", "1"},
	{"UCX_TLS", "tcp,self,sm,cuda_copy,cuda_ipc"},
	{"OMPI_MCA_pml", "ob1"},
	{"OMPI_MCA_btl", "^openib,uct,ofi,usnic"},
	{"FI_PROVIDER", "tcp"},
}

func (s Trial) runCollective(ctx context.Context, b foundBenchmark, launch string, nodes int, network string) measure.CollectiveRun {
	per := s.ranks(b, nodes)
	run := measure.CollectiveRun{Benchmark: b.Benchmark, Nodes: nodes, Ranks: nodes * per, Network: network, Verdict: measure.Unknown}
	ctx, cancel := context.WithTimeout(ctx, collectiveTimeout)
	defer cancel()
	var text, errText string
	var status int
	if nodes == 1 && !b.mpi {
		// One process drives all GPUs of a node.
		args := slices.Clone(b.Args)
		if i := slices.Index(args, "-g"); i >= 0 {
			args[i+1] = fmt.Sprint(per)
		}
		r := remote.Run(ctx, s.way(), s.Reach[0], remote.Command{Argv: append([]string{b.path}, args...)}, remote.Options{Deadline: collectiveTimeout, MaxOutput: maxBenchmarkOutput})
		text, errText, status = string(r.Stdout), string(r.Stderr), r.Status
		if r.Err != nil {
			run.Failed = r.Err.Error()
			return run
		}
	} else {
		dir, err := launcher.MakeRunDir(launcher.RunDirBases(cmdline.Value(s.Env, "TMPDIR")), launcher.NewMark())
		if err != nil {
			run.Failed = err.Error()
			return run
		}
		defer dir.Remove()
		record := filepath.Join(dir.Path, "record")
		var list []string
		for _, h := range s.Reach[:nodes] {
			list = append(list, fmt.Sprintf("%s:%d", hostWord(h), per))
		}
		argv := slices.Concat([]string{"run"}, s.Again(strings.Join(list, ",")), []string{"--record=" + record, "--", launch, launchCount(launch), fmt.Sprint(run.Ranks)})
		env := slices.Clone(s.Env)
		if network == measure.OverTCP {
			for _, v := range overTCP {
				env = append(env, v[0]+"="+v[1])
				if launch == "mpirun" && !strings.HasPrefix(v[0], "OMPI_") { // those Open MPI sends along by itself
					argv = append(argv, "-x", v[0]+"="+v[1])
				}
			}
		}
		argv = append(append(argv, b.path), b.Args...)
		c := exec.CommandContext(ctx, s.Self, argv...)
		c.Args[0], c.Env = "fabrun", env
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = 10 * time.Second
		var out, errw keepFirst
		c.Stdout, c.Stderr = &out, &errw
		err = c.Run()
		text, errText, status = out.String(), errw.String(), c.ProcessState.ExitCode()
		if err != nil && status < 0 {
			run.Failed = err.Error()
		}
		run.Fallback = fallbackOf(record, network)
	}
	switch {
	case ctx.Err() != nil:
		run.Failed = fmt.Sprintf("no end within %v", collectiveTimeout)
		return run
	case b.Suite == "nccl-tests":
		if n, err := pasted.ReadNCCLTests(text + "\n" + errText); err == nil && (len(n.Rows) > 0 || n.Error != "") {
			run.NCCL = &n
		}
	default:
		if t, err := pasted.ReadOSU(text); err == nil && len(t.Rows) > 0 {
			run.OSU = &t
		}
	}
	if run.NCCL == nil && run.OSU == nil && run.Failed == "" {
		run.Failed = fmt.Sprintf("status %d, and no table: %s", status, lastWords(errText))
	}
	return run
}

// launchCount is the option that takes the number of ranks.
func launchCount(launch string) string {
	if launch == "srun" {
		return "--ntasks"
	}
	return "-np"
}

// hostWord is a host as a list with slots names it: an IPv6 address in brackets.
func hostWord(name string) string {
	if strings.Count(name, ":") > 1 && !strings.HasPrefix(name, "[") {
		return "[" + name + "]"
	}
	return name
}

// fallbackOf reads in a record whether the watcher saw a fallback that nobody asked for.
func fallbackOf(file, network string) string {
	if network == measure.OverTCP {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	rec, err := report.ReadRecord(f)
	if err != nil || rec.Verdict == nil || rec.Verdict.Fallback == nil || !*rec.Verdict.Fallback || rec.Verdict.Intentional {
		return ""
	}
	return rec.Verdict.Sentence
}

// lastWords are the last lines of a failing program, enough for one finding;
// fabrun's own only where there are no others.
func lastWords(text string) string {
	var lines, own []string
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "fabrun: "):
			own = append(own, line)
		case strings.Trim(line, "-=* ") != "":
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = own
	}
	words := strings.Join(lines[max(0, len(lines)-3):], "; ")
	if words == "" {
		return "it printed nothing"
	}
	return words[:min(len(words), 400)]
}

// keepFirst keeps the first maxBenchmarkOutput bytes.
type keepFirst struct{ bytes.Buffer }

func (k *keepFirst) Write(p []byte) (int, error) {
	if room := maxBenchmarkOutput - k.Len(); room > 0 {
		k.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
