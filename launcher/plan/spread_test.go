package plan_test

import (
	"slices"
	"strings"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/topology/finding"
)

// TestSpreadInsideAManager holds design rule slots.*: a user's -np reaches all
// hosts of a manager's allocation, by the launcher's own options.
func TestSpreadInsideAManager(t *testing.T) {
	alloc := func(slots ...int) hosts.Allocation {
		a := hosts.Allocation{Source: "slurm", Manager: "slurm"}
		for i, n := range slots {
			a.Hosts = append(a.Hosts, hosts.Host{Name: "n" + string(rune('1'+i)), Slots: &n})
		}
		return a
	}
	for _, tc := range []struct {
		name, version, argv string
		alloc               hosts.Allocation
		want                string
	}{
		{"open mpi 4", "mpirun (Open MPI) 4.1.4", "mpirun -np 2 ./a.out", alloc(4, 4), "--map-by ppr:1:node"},
		{"open mpi 5", "mpirun (Open MPI) 5.0.7", "mpirun -np 4 ./a.out", alloc(4, 4), "--map-by ppr:2:node"},
		{"uneven", "mpirun (Open MPI) 5.0.7", "mpirun -np 3 ./a.out", alloc(4, 4), "--map-by node"},
		{"uneven, open mpi 4", "mpirun (Open MPI) 4.1.4", "mpirun -np 3 ./a.out", alloc(4, 4), "n1 slots=2\nn2 slots=1\n"},
		{"uneven, hydra", "HYDRA build details:\n    Version: 4.0.2", "mpiexec -n 7 ./a.out", alloc(4, 4, 2), "n1:3\nn2:3\nn3:1\n"},
		{"uneven, intel", "Intel(R) MPI Library, Version 2021.15", "mpirun -n 5 ./a.out", alloc(8, 8), "n1:3\nn2:2\n"},
		{"every slot of hosts that differ", "mpirun (Open MPI) 4.1.4", "mpirun -np 10 ./a.out", alloc(4, 4, 2), ""},
		{"hydra", "HYDRA build details:\n    Version: 4.0.2", "mpiexec -n 2 ./a.out", alloc(4, 4), "-ppn 1"},
		{"all slots are used anyway", "mpirun (Open MPI) 5.0.7", "mpirun -np 8 ./a.out", alloc(4, 4), ""},
		{"the user has mapped", "mpirun (Open MPI) 5.0.7", "mpirun --map-by core -np 2 ./a.out", alloc(4, 4), ""},
		{"the user has named hosts", "mpirun (Open MPI) 5.0.7", "mpirun --host n1 -np 2 ./a.out", alloc(4, 4), ""},
		{"no -np", "mpirun (Open MPI) 5.0.7", "mpirun ./a.out", alloc(4, 4), ""},
		{"several programs", "mpirun (Open MPI) 5.0.7", "mpirun -np 1 ./a.out : -np 1 ./b.out", alloc(4, 4), ""},
		{"one host", "mpirun (Open MPI) 5.0.7", "mpirun -np 2 ./a.out", alloc(4), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			argv := strings.Fields(tc.argv)
			cmd := cmdline.Parse(cmdline.Identify(argv, tc.version, ""), argv)
			placed, err := hosts.Place(tc.alloc, hosts.Job{NP: cmd.Ranks()})
			if err != nil {
				t.Fatal(err)
			}
			place := tc.alloc
			place.Hosts = placed.Hosts
			p := plan.Build(plan.Request{Command: cmd, Env: []string{"PATH=/bin"}, Hosts: tc.alloc, Place: place})
			var words []string
			for _, a := range p.Argv {
				words = append(words, a.Text)
			}
			i := slices.IndexFunc(words, func(w string) bool { return w == "--map-by" || w == "-ppn" })
			got := ""
			if i >= 0 && !slices.Contains(argv, words[i]) {
				got = strings.Join(words[i:i+2], " ")
			}
			if len(p.Files) > 0 {
				got = p.Files[0].Content
			}
			if got != tc.want {
				t.Errorf("got %q, want %q in %q", got, tc.want, words)
			}
		})
	}
}

// TestOrderInsideAManager: the order of a topology file reaches the ranks where
// the launcher can be made to keep to it, and is said to be lost where not.
func TestOrderInsideAManager(t *testing.T) {
	two := 2
	alloc := hosts.Allocation{Source: "slurm", Manager: "slurm", Hosts: []hosts.Host{{Name: "n3", Slots: &two}, {Name: "n1", Slots: &two}}}
	const ompi4, ompi5 = "mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 5.0.7"
	for _, tc := range []struct {
		version, argv, want, file string
		lost                      bool
	}{
		{ompi4, "mpirun -np 4 ./a.out", "--map-by seq", "n3\nn3\nn1\nn1\n", false},
		{"slurm 23.11.4", "srun -n 4 ./a.out", "--distribution=arbitrary", "n3\nn3\nn1\nn1\n", false},
		{ompi4, "mpirun ./a.out", "", "", true},
		{ompi4, "mpirun --map-by core -np 4 ./a.out", "", "", true},
		{ompi4, "mpirun -np 2 ./a.out : -np 2 ./b.out", "", "", true},
		{ompi5, "mpirun -np 4 ./a.out", "", "", true},
		{"HYDRA build details:\n    Version: 4.0.2", "mpiexec -n 4 ./a.out", "", "", true},
	} {
		argv := strings.Fields(tc.argv)
		cmd := cmdline.Parse(cmdline.Identify(argv, tc.version, ""), argv)
		p := plan.Build(plan.Request{Command: cmd, Env: []string{"PATH=/bin"}, Hosts: alloc, Place: alloc, Ordered: true})
		var own []string
		for _, a := range p.Argv {
			if a.Origin == envgen.FromPlan {
				own = append(own, a.Text)
			}
		}
		file := ""
		for _, f := range p.Files {
			file = f.Content
		}
		lost := slices.ContainsFunc(p.Findings, func(f finding.Finding) bool { return f.ID == "launcher.order" })
		if !strings.Contains(strings.Join(own, " "), tc.want) || file != tc.file || lost != tc.lost {
			t.Errorf("%s: %q, file %q, said to be lost %v", tc.argv, own, file, lost)
		}
	}
}
