package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// alikeScript is a rank of any launcher that writes down what it sees.
const alikeScript = `import os, signal, sys, time
rank = next(os.environ[n] for n in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if n in os.environ)
def note(name, text):
    with open(name + "." + rank, "ab") as f:
        f.write(text)
with open("/proc/self/environ", "rb") as f:
    note("env", f.read())
def got(n, _):
    note("signals", b"%d\n" % n)
    os._exit(7)
for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(n, got)
if rank == "0":
    sys.stdout.buffer.write(b"10%\r20%\r\n\xff\x00\n" + b"x" * 100000 + b"\n")
    sys.stdout.flush()
note("ready", b"")
while True:
    time.sleep(0.1)
`

// alikeRun is what there is to see of one run.
type alikeRun struct {
	status       int
	out          string
	files        []string
	signals, env map[string]string
}

// perRun are variables with another value in each run of the same command.
var perRun = regexp.MustCompile(`^(OMPI_|PMIX_|PMI_|HYD|MPI|SLURM|SRUN_|SSH_|TORCHELASTIC_|MASTER_PORT)`)

// TestRealAsWithout: the same job with and without fabrun. Status, output, files,
// the signals that the ranks see and their environment are the same, but for the
// mark by which fabrun knows the job's processes.
func TestRealAsWithout(t *testing.T) {
	l := startNetLab(t, 2)
	sshConfig(l)
	l.write("share/alike.py", alikeScript)
	for _, c := range []struct {
		name, program string
		argv          []string
		// more is what differs beside the mark on the second rank's host: Open MPI
		// leaves the user's environment behind there, and fabrun hands on a part.
		more   string
		signal syscall.Signal
		setUp  func() []string
	}{
		{"Open MPI", "mpirun.openmpi", strings.Fields("mpirun.openmpi -H node01:1,node02:1 -np 2 python3 alike.py"), "+HF_TOKEN +NCCL_DEBUG +OMPI_FABRUN_JOB +OMP_NUM_THREADS ~PATH", syscall.SIGTERM, nil},
		{"MPICH", "mpiexec.mpich", strings.Fields("mpiexec.mpich -hosts node01,node02 -n 2 python3 alike.py"), "", syscall.SIGTERM, nil},
		{"torchrun", "torchrun", strings.Fields("torchrun --nproc_per_node 2 -r 2 -t 2 alike.py"), "", syscall.SIGTERM, nil},
		{"srun", "srun", strings.Fields("srun -N2 -n2 python3 alike.py"), "", syscall.SIGUSR1, func() []string { // TERM ends it before its tasks
			l.slurm()
			return []string{"SLURM_CONF=" + filepath.Join(l.dir, "share", "slurm", "slurm.conf")}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			if realProgram(c.program) == "" {
				t.Skipf("no %s (apt-get install openmpi-bin mpich slurm-wlm munge python3-torch)", c.program)
			}
			if c.program == "torchrun" {
				needTorch(t)
			}
			env := []string{"NCCL_DEBUG=INFO", "HF_TOKEN=secret", "OMP_NUM_THREADS=1", "LC_ALL=C.UTF-8"}
			if c.setUp != nil {
				env = append(env, c.setUp()...)
			}
			run := func(argv ...string) alikeRun {
				t.Helper()
				l.forget()
				j := l.start(env, argv...)
				l.until("both ranks", func() bool {
					if len(j.done) > 0 {
						t.Fatalf("ended at once\n%s", j.text())
					}
					return len(l.seen("ready")) == 2 && strings.Count(j.out.String(), "\n") == 3
				})
				kill(c.signal, j.pid())
				r := alikeRun{status: j.status(), out: j.out.String(), signals: l.seen("signals"), env: l.seen("env")}
				files, err := os.ReadDir(filepath.Join(l.dir, "share"))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					r.files = append(r.files, f.Name())
				}
				t.Logf("%s: status %d, signals %q", argv[0], r.status, r.signals)
				return r
			}
			bare := run(c.argv...)
			with := run(append([]string{l.fabrun()}, c.argv...)...)
			if c.program == "mpiexec.mpich" && slices.Contains([]int{0, 7}, bare.status) && slices.Contains([]int{0, 7}, with.status) {
				with.status = bare.status // Hydra leaves with the rank's or with none, as it comes
			}
			if bare.status != with.status || bare.out != with.out {
				t.Errorf("status %d and %d bytes %.60q, without fabrun %d and %d bytes %.60q", with.status, len(with.out), with.out, bare.status, len(bare.out), bare.out)
			}
			if !slices.Equal(bare.files, with.files) || !maps.Equal(bare.signals, with.signals) {
				t.Errorf("files %q and signals %q, without fabrun %q and %q", with.files, with.signals, bare.files, bare.signals)
			}
			for _, rank := range []string{"0", "1"} {
				want := "+FABRUN_JOB +OMPI_FABRUN_JOB"
				if rank == "1" && c.more != "" {
					want = c.more
				}
				if d := differences(bare.env[rank], with.env[rank]); d != want {
					t.Errorf("rank %s: the environment differs by %q", rank, d)
				}
			}
			l.empty()
		})
	}
}

// differences names what is added, gone and changed between two environments.
func differences(before, after string) string {
	read := func(text string) map[string]string {
		out := map[string]string{}
		for kv := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			if perRun.MatchString(name) {
				value = ""
			}
			out[name] = value
		}
		return out
	}
	a, b := read(before), read(after)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(b)) {
		switch v, ok := a[name]; {
		case !ok:
			out = append(out, "+"+name)
		case v != b[name]:
			out = append(out, "~"+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			out = append(out, "-"+name)
		}
	}
	return strings.Join(out, " ")
}
