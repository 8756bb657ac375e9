package cmdline

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestStartDir(t *testing.T) {
	const here = "/home/me"
	for line, want := range map[string]string{
		"mpirun ./a.out": here, "mpirun ./a.out -wdir /scratch": here, "srun ./a.out -D /scratch": here, "mpirun -wdir /scratch/job ./a.out": "/scratch/job", "srun --chdir=/scratch ./a.out": "/scratch",
		"mpirun --wdir sub ./a.out": filepath.Join(here, "sub"), "mpirun -wdir": here,
	} {
		argv := strings.Fields(line)
		if got := Parse(Identify(argv, "Open MPI 4.1.4", ""), argv).StartDir(here); got != want {
			t.Errorf("%s: %s, want %s", argv, got, want)
		}
	}
}
