package cmdline

import (
	"slices"
	"strings"
	"testing"
)

// TestComponents: on which parts of a heterogeneous allocation a step runs.
func TestComponents(t *testing.T) {
	for words, want := range map[string][]int{
		"srun ./a.out":                                 {0},
		"srun --het-group=1 ./a.out":                   {1},
		"srun --het-group 0,2-3 ./a.out":               {0, 2, 3},
		"srun --pack-group=1 ./a.out":                  {1},
		"srun ./a.out : ./b.out":                       {0, 1},
		"srun --het-group=1 ./a.out : -n2 ./b.out":     {1, 1},
		"srun --het-group=one ./a.out":                 nil,
		"srun --het-group=3-1 ./a.out":                 nil,
		"srun --het-group=0-999999999 ./a.out":         nil,
		"mpirun -np 2 ./a.out --het-group=1":           nil,
		"srun -n2 ./a.out --het-group=1 (the program)": {0},
	} {
		argv := strings.Fields(words)
		d := OpenMPI4
		if argv[0] == "srun" {
			d = Srun
		}
		if got := Parse(Launcher{Dialect: d, Words: 1}, argv).Components(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", words, got, want)
		}
	}
}
