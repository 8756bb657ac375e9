package hosts

import (
	"errors"

	"fabrun/topology/finding"
)

// ErrNoHosts is in the chain of every error that says that a list, a file or a
// variable named no host at all.
var ErrNoHosts = errors.New("no hosts")

// Host is one host of the job.
type Host struct {
	Name     string // as the source spells it: the name its resource manager knows
	Slots    *int   // ranks the source has room for; nil: it did not say
	MaxSlots *int   // Open MPI's max_slots; nil: not said
	CPUs     *int   // CPUs the resource manager gave on this host; nil: not said
	GPUs     *int   // GPUs it gave; nil: not said
	Address  string // "" when the source gave only a name
	User     string // another user's account there, from a hostfile; "" ours
	Port     *int   // ssh port, from a hostfile; nil the usual one
}

// Allocation is the job's hosts, in the order in which ranks are placed. Every
// host is in it once.
type Allocation struct {
	Source  string // "--hosts", "--hostfile FILE", "slurm", "pbs", "lsf", "mpi-operator", "pytorchjob", "localhost"
	Manager string // the resource manager that started us: "slurm", "pbs", "lsf", "sge", "flux"; "" none
	JobID   string // the manager's; "" none
	Hosts   []Host

	// Nodes is how many hosts the job has where the source counts more than it
	// names (PyTorchJob, Flux, AWS Batch); 0: the Hosts are all.
	Nodes int
	// Self is the position of this process's own host; nil: the source did not say.
	Self *int
	// Components are the hosts of each part of a heterogeneous job of Slurm; nil:
	// the job is of one piece. A step runs on the first unless it says otherwise.
	Components [][]string
	// Master is where the source says that node 0 listens (MASTER_ADDR); "" not said.
	Master     string
	MasterPort *int

	Exclude  []string // ^host lines of an Open MPI hostfile
	Relative []string // +n0, +e:2 of an Open MPI hostfile: positions in the manager's allocation

	Findings []finding.Finding // what is odd about the source, though it could be read
}

// Names returns the hosts' names in order.
func (a Allocation) Names() []string {
	names := make([]string, len(a.Hosts))
	for i, h := range a.Hosts {
		names[i] = h.Name
	}
	return names
}

// merge folds repeated hosts into the first mention. Each further mention adds
// its slots, and one without a number counts as one, as in every MPI's lists
// and in PBS node files. In a list that repeats hosts without numbers, mentions
// are slots for all of it.
func merge(in []Host) (out []Host, repeated []string) {
	at := make(map[string]int, len(in))
	for i := range in {
		at[in[i].Name] = -1
	}
	if len(at) == len(in) {
		return in, nil
	}
	out = make([]Host, 0, len(at))
	mentions := false
	for _, h := range in {
		i := at[h.Name]
		if i < 0 {
			at[h.Name] = len(out)
			out = append(out, h)
			continue
		}
		first := &out[i]
		mentions = mentions || h.Slots == nil
		first.Slots = addCounts(first.Slots, h.Slots, 1)
		first.CPUs = addKnown(first.CPUs, h.CPUs)
		first.GPUs = addKnown(first.GPUs, h.GPUs)
		if len(repeated) == 0 || repeated[len(repeated)-1] != h.Name {
			repeated = append(repeated, h.Name)
		}
	}
	if mentions {
		one := 1
		for i := range out {
			if out[i].Slots == nil {
				out[i].Slots = &one
			}
		}
	}
	return out, repeated
}

func addCounts(a, b *int, missing int) *int {
	sum := 0
	for _, p := range []*int{a, b} {
		if p == nil {
			sum += missing
		} else {
			sum += *p
		}
	}
	return &sum
}

func addKnown(a, b *int) *int {
	if a == nil || b == nil {
		return nil
	}
	return addCounts(a, b, 0)
}
