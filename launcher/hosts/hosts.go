package hosts

// Host is one host of the job.
type Host struct {
	Name    string
	Slots   *int   // nil: the source did not say
	Address string // "" when the source gave only a name
}

// Allocation is the job's hosts, in the order in which ranks are placed.
type Allocation struct {
	Source  string // "--hosts", "--hostfile FILE", "slurm", "pbs", "lsf", "mpi-operator", "pytorchjob", "localhost"
	Manager string // the resource manager that started us: "slurm", "pbs", "lsf"; "" none
	Hosts   []Host
}
