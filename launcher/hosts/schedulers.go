package hosts

import (
	"slices"
	"strconv"
)

// Scheduler is one place that tells of a job's hosts: a resource manager, or what
// starts pods. A field that is empty is something that it does not have.
type Scheduler struct {
	Name    string // of an allocation's Source
	Title   string // for people; "" it goes by its name
	Manager bool   // it owns the hosts, and launchers may read them from it by themselves

	// from reads the allocation; false where this source says nothing.
	from        func(environment, *Scheduler) (Allocation, bool, error)
	file        string   // the variable that names its file of hosts
	fileOfNodes bool     // which has a line per node, and not per slot
	JobID       []string // variables with the job's number

	// PerNode: each node or pod is started by itself and told of itself.
	PerNode bool
	// Transport is the launcher of its own with which a program is run on the job's
	// nodes; "" ssh.
	Transport string
	// Directive is the word behind '#' of its lines in job scripts.
	Directive string

	NodeName  string   // the variable with the name that it has for a node
	NodeCount []string // variables with the number of nodes of what it started
	TaskVars  string   // variables of a node or a task, as words; "NAME*" is every name that begins so
	Step      *Step
	Local     []LocalNames
}

// Step is how a manager tells the tasks that it starts itself.
type Step struct {
	ID     string // the variable that says that it is one
	Prefix string // of the variables that are as the manager sets them for it
	Nodes  string // how many nodes it has
	Node   string // which of them this is
	// Special is the lowest number of those that are no ordinary steps.
	Special uint64
}

// OwnStep reports that this process is a task of an ordinary step of several nodes:
// on which of them, and a text that all its tasks share and no other step has.
func OwnStep(env LookupEnv) (node int, name string, ok bool) {
	e := environment{lookup: env}
	for _, s := range Schedulers {
		if s.Step == nil || !e.ordinary(s.Step) {
			continue
		}
		nodes, mine := e.number(s.Step.Nodes), e.number(s.Step.Node)
		if nodes != nil && mine != nil && *nodes > 1 {
			return *mine, e.value(s.JobID...) + "." + e.value(s.Step.ID), true
		}
	}
	return 0, "", false
}

// ordinary reports whether this is a step, and none of a batch script, an
// interactive shell or the like.
func (e environment) ordinary(s *Step) bool {
	id, err := strconv.ParseUint(e.value(s.ID), 10, 64)
	return err == nil && id < s.Special
}

// LocalNames are where ranks find their number on their node, and how many there
// are.
type LocalNames struct {
	When string // only where this variable is set; "" always
	Last bool   // believed after all others: it is inherited by what is no rank of it
	Rank string
	Size string // "" not said
	// SizeOf counts them in another way; nil: by Size.
	SizeOf func(LookupEnv) int
}

// Schedulers are asked in this order, and the first that speaks is taken: what the
// user said, then the batch systems, then what a pod was told, then the hints
// that name no hosts. A new system is a value here and its way to read hosts.
var Schedulers = []*Scheduler{
	{Name: "FABRUN_HOSTS", from: fromOwn},
	{
		Name: "slurm", Title: "Slurm", Manager: true, from: fromSlurm, JobID: []string{"SLURM_JOB_ID", "SLURM_JOBID"},
		Transport: "srun", Directive: "SBATCH", NodeName: "SLURMD_NODENAME", NodeCount: []string{"SLURM_NNODES", "SLURM_STEP_NUM_NODES"},
		// Source: srun(1), OUTPUT ENVIRONMENT VARIABLES.
		TaskVars: "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_TASK_PID SLURM_STEP* SLURM_CPUS_ON_NODE SLURM_CPU_BIND* SLURM_MEM_BIND* SLURM_TOPOLOGY_ADDR* SLURM_LAUNCH_NODE_IPADDR SLURM_SRUN_COMM_* SLURM_JOB_GPUS SLURMD_NODENAME SLURM_PTY_*",
		Step:     &Step{ID: "SLURM_STEP_ID", Prefix: "SLURM", Nodes: "SLURM_STEP_NUM_NODES", Node: "SLURM_NODEID", Special: slurmFirstSpecialStep},
		Local:    []LocalNames{{When: "SLURM_STEP_ID", Rank: "SLURM_LOCALID", SizeOf: slurmLocalSize}, {Last: true, Rank: "SLURM_LOCALID", SizeOf: slurmLocalSize}},
	},
	{
		Name: "pbs", Title: "PBS", Manager: true, from: fromNodeFile, file: "PBS_NODEFILE", JobID: []string{"PBS_JOBID"},
		Directive: "PBS", TaskVars: "PBS_NODENUM PBS_TASKNUM PBS_VNODENUM", // pbs_environment
	},
	{Name: "oar", Title: "OAR", Manager: true, from: fromNodeFile, file: "OAR_NODEFILE", JobID: []string{"OAR_JOB_ID"}},
	{Name: "cobalt", Title: "Cobalt", Manager: true, from: fromNodeFile, file: "COBALT_NODEFILE", fileOfNodes: true, JobID: []string{"COBALT_JOBID"}, Directive: "COBALT"},
	{
		Name: "lsf", Title: "LSF", Manager: true, from: fromLSF, JobID: []string{"LSB_JOBID"}, Directive: "BSUB",
		// jsrun's, as PyTorch Lightning and DeepSpeed read them.
		Local: []LocalNames{{Rank: "JSM_NAMESPACE_LOCAL_RANK", Size: "JSM_NAMESPACE_LOCAL_SIZE"}},
	},
	{Name: "sge", Title: "SGE", Manager: true, from: fromSGE, file: "PE_HOSTFILE", JobID: []string{"JOB_ID"}, Directive: "$"},
	{Name: "mpi-operator", Title: "the MPI operator's hostfile", from: fromHostfileVariable},
	{
		Name: "pytorchjob", Title: "the training operator", from: fromTorch, PerNode: true, NodeCount: []string{"NNODES"},
		Local: []LocalNames{{Rank: "LOCAL_RANK", Size: "LOCAL_WORLD_SIZE"}},
	},
	{
		Name: "flux", Title: "Flux", Manager: true, from: fromFlux, JobID: []string{"FLUX_JOB_ID"}, NodeName: "FLUX_HOSTNAME", Directive: "FLUX:",
		Local: []LocalNames{{Rank: "FLUX_TASK_LOCAL_ID"}}, // flux-environment(7)
	},
	{Name: "aws-batch", Title: "AWS Batch", from: fromAWSBatch, JobID: []string{"AWS_BATCH_JOB_ID"}},
}

// SchedulerNamed is that of an allocation's source or manager; where there is none,
// as of hosts that the user named, one that has nothing but the name.
func SchedulerNamed(name string) *Scheduler {
	if i := slices.IndexFunc(Schedulers, func(s *Scheduler) bool { return s.Name == name }); i >= 0 {
		return Schedulers[i]
	}
	return &Scheduler{Name: name}
}

// allocation is one of this scheduler, without its hosts.
func (s *Scheduler) allocation(e environment) Allocation {
	a := Allocation{Source: s.Name, JobID: e.value(s.JobID...)}
	if s.Manager {
		a.Manager = s.Name
	}
	return a
}

// slurmLocalSize reads this node's part of SLURM_STEP_TASKS_PER_NODE.
func slurmLocalSize(env LookupEnv) int {
	e := environment{lookup: env}
	node := e.number("SLURM_NODEID")
	counts, err := ParseRunLengths(e.value("SLURM_STEP_TASKS_PER_NODE"))
	if err != nil || node == nil || *node >= len(counts) {
		return 0
	}
	return counts[*node]
}
