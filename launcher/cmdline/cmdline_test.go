package cmdline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/cmdline"
)

const (
	ompi4 = "mpirun (Open MPI) 4.1.4"
	ompi5 = "mpirun (Open MPI) 5.0.7"
	hydra = "HYDRA build details:\n    Version: 4.0.2"
	intel = "Intel(R) MPI Library for Linux* OS, Version 2021.15"
)

func parse(line, version string) cmdline.Command {
	argv := strings.Fields(line)
	return cmdline.Parse(cmdline.Identify(argv, version, ""), argv)
}

// TestGiven: what is set for the ranks stands in front of the program, in each
// launcher's own words; the same words behind it are the program's.
func TestGiven(t *testing.T) {
	for _, c := range []struct {
		line, version string
		want          []string
	}{
		{"mpirun -np 2 -x UCX_TLS=tcp,self ./a.out", ompi4, []string{"UCX_TLS=tcp,self"}},
		{"mpirun -np 2 ./a.out -x UCX_TLS=tcp,self", ompi4, nil},
		{"mpirun -np 2 ./a.out -x UCX_TLS=tcp,self", ompi5, nil},
		{"mpirun -np 2 -- ./a.out --mca btl tcp,self", ompi4, nil},
		{"mpirun -np 1 ./a -x A=1 : -x UCX_TLS=tcp -np 1 ./b -x B=1", ompi4, []string{"UCX_TLS=tcp"}},
		{"mpirun --mca mca_base_env_list UCX_TLS=tcp;A=1 ./a.out", ompi4, []string{"UCX_TLS=tcp", "A=1"}},
		{"mpiexec -genv FI_PROVIDER tcp -n 2 ./a.out", hydra, []string{"FI_PROVIDER=tcp"}},
		{"mpiexec -n 2 ./a.out -genv FI_PROVIDER tcp", hydra, nil},
		{"mpiexec -n 1 ./a : -env UCX_TLS tcp -n 1 ./b -env A 1", hydra, []string{"UCX_TLS=tcp"}},
		{"mpiexec -genv I_MPI_FABRICS=shm:tcp -n 2 ./a.out", intel, []string{"I_MPI_FABRICS=shm:tcp"}},
		{"srun --export=ALL,UCX_TLS=tcp ./a.out", "", []string{"UCX_TLS=tcp"}},
		{"srun -n 2 ./a.out --export=ALL,UCX_TLS=tcp", "", nil},
		{"torchrun --nproc-per-node 2 train.py -x UCX_TLS=tcp", "", nil},
		{"python -m torch.distributed.run train.py --mca btl tcp", "", nil},
		{"./a.out -x UCX_TLS=tcp --mca btl tcp,self", "", nil},
		{"mpirun -np 2 env UCX_TLS=tcp ./a.out UCX_NET_DEVICES=eth0", ompi4, []string{"UCX_TLS=tcp"}},
		{"mpirun -np 2 numactl -N 0 ./a.out -x UCX_TLS=tcp", ompi4, nil},
		{"mpirun -np 2 docker run --rm -it -e UCX_TLS=tcp img ./a.out", ompi4, []string{"UCX_TLS=tcp"}},
		{"mpirun -np 2 docker run -itv /a:/b -eUCX_TLS=tcp --gpus all img ./a.out", ompi4, []string{"UCX_TLS=tcp"}},
		{"mpirun -np 2 docker run --rm --gpus all img ./a.out -e UCX_TLS=tcp", ompi4, nil},
		{"mpirun -np 2 podman run --privileged img ./a.out --env UCX_TLS=tcp", ompi4, nil},
		{"mpirun -np 2 apptainer exec --nv --env UCX_TLS=tcp,A=1 img.sif ./a.out", ompi4, []string{"UCX_TLS=tcp"}},
		{"mpirun -np 2 apptainer exec --nv -B /scratch img.sif ./a.out --env UCX_TLS=tcp", ompi4, nil},
		{"mpirun -np 2 enroot start --rw -m /a:/b img ./a.out -e UCX_TLS=tcp", ompi4, nil},
		// An mpirun that does not say whose it is.
		{"mpirun -np 2 -x UCX_TLS=tcp ./a.out", "", []string{"UCX_TLS=tcp"}},
		{"mpirun -np 2 ./a.out -x UCX_TLS=tcp", "", nil},
		{"mpiexec -genv UCX_TLS tcp -n 2 ./a.out", "", []string{"UCX_TLS=tcp"}},
	} {
		var got []string
		for _, s := range parse(c.line, c.version).Given() {
			got = append(got, s.Name+"="+s.Value)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (%s):\n%s", c.line, c.version, diff)
		}
	}
}

// TestRankEnv: the command line wins over the environment, and "env" in front of
// the launcher is the launcher's environment.
func TestRankEnv(t *testing.T) {
	c := parse("env UCX_TLS=rc mpirun -np 2 -x NCCL_IB_TC=3 ./a.out -x UCX_TLS=tcp", ompi4)
	got := c.RankEnv([]string{"UCX_TLS=ud", "NCCL_IB_TC=106", "HOME=/h"})
	if diff := cmp.Diff(map[string]string{"UCX_TLS": "rc", "NCCL_IB_TC": "3", "HOME": "/h"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestGuess: whose mpirun it is, by the options that nobody else has.
func TestGuess(t *testing.T) {
	for line, want := range map[string]string{
		"mpirun -np 4 ./a":                                "",
		"mpirun -np 4 -x A=1 ./a":                         "openmpi",
		"mpirun -np 4 ./a -x A=1":                         "",
		"mpirun --map-by node -np 4 ./a":                  "openmpi",
		"mpirun -map-by node -np 4 ./a":                   "",
		"mpirun -H a,b --mca btl tcp ./a":                 "openmpi",
		"mpiexec -genv A 1 -n 4 ./a":                      "mpich",
		"mpiexec -n 4 -ppn 2 ./a":                         "mpich",
		"mpirun -x A --no-such-option -np 2 ./a":          "openmpi",
		"mpiexec -bootstrap slurm -genv A=1 -perhost 2 a": "intelmpi",
	} {
		if _, got := cmdline.Guess(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// FuzzCommandLine: whatever the words, they are not changed, and nothing behind
// a program is read as the launcher's.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{"mpirun -np 2 -x A=1 ./a.out -x B=1 : ./b", "srun -n2 --export=ALL,A=1 ./a", "mpiexec -genv A=1 ./a", "torchrun --nnodes=2 t.py", "mpirun docker run -it -e A=1 img b"} {
		for _, v := range []string{ompi4, ompi5, hydra, intel, ""} {
			f.Add(line, v)
		}
	}
	f.Fuzz(func(t *testing.T, line, version string) {
		argv := strings.Fields(line)
		before := slices.Clone(argv)
		c := cmdline.Parse(cmdline.Identify(argv, version, ""), argv)
		c.RankEnv([]string{"A=b"})
		cmdline.Guess(argv)
		c.HostSources(nil)
		c.Container()
		c.Executables()
		if !slices.Equal(before, argv) {
			t.Fatalf("%q was changed to %q", before, argv)
		}
		for _, app := range c.Apps {
			if app.Program < app.From || app.Program > app.To {
				t.Fatalf("%q: program %d outside [%d, %d]", argv, app.Program, app.From, app.To)
			}
			for _, o := range app.Options {
				if o.At >= app.Program || o.At+o.Words > app.Program && app.Program < app.To {
					t.Fatalf("%q: option %q at %d, the program is at %d", argv, o.Name, o.At, app.Program)
				}
			}
		}
	})
}
