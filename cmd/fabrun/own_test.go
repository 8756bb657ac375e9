package main

import (
	"testing"
)

func TestLauncherFirst(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"-np", "2", "icoFoam"}, "-np is mpirun's: mpirun first, as in 'fabrun mpirun -np 2 icoFoam'"},
		{[]string{"run", "--strict", "-n", "4", "./a.out"}, "-n is mpirun's: mpirun first, as in 'fabrun run --strict mpirun -n 4 ./a.out'"},
		{[]string{"-N2", "-n4", "./a.out"}, "-N2 is srun's: srun first, as in 'fabrun srun -N2 -n4 ./a.out'"},
		{[]string{"--profile", "roce-dscp26", "--nnodes=2", "train.py"}, "--nnodes=2 is torchrun's: torchrun first, as in 'fabrun --profile roce-dscp26 torchrun --nnodes=2 train.py'"},
		{[]string{"--no-such-flag", "./a.out"}, ""},
		{[]string{"-np"}, ""},
		{nil, ""},
	} {
		if got := launcherFirst(c.words); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}
