// Package hosts says where a job's hosts come from and how a launcher wants to
// be told: allocations in (Slurm, PBS, LSF, SGE, Kubernetes, hostfiles,
// expressions on the command line), hostfiles out, and how many ranks each host
// gets. It is pure: environment and files come in as values, and what it knows
// of a machine are plain counts.
//
//	names, err := hosts.Expand("node[01-12],login1")        // Slurm's node list grammar
//	alloc, err := hosts.ParseList("10.1.4.[1-12]:8")        // what --hosts takes
//	alloc, err := hosts.FromEnv(env, readFile)              // the resource manager's word
//	text, err := hosts.Format(alloc, hosts.OpenMPI)         // a hostfile for its launcher
package hosts
