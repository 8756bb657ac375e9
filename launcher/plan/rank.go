package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/topology"
)

// localNames are where launchers and resource managers tell a rank its number on
// its node, in the order in which they are believed: a launcher inside another one
// inherits the outer one's variables, so the launchers come before the managers (an
// mpirun inside an srun step leaves SLURM_LOCALID=0 to every rank), and first those
// that say by a variable of their own that it is they.
func localNames() []hosts.LocalNames {
	var launchers, managers []hosts.LocalNames
	for _, d := range cmdline.Dialects {
		launchers = append(launchers, d.Local...)
	}
	for _, s := range hosts.Schedulers {
		managers = append(managers, s.Local...)
	}
	sure := func(n hosts.LocalNames) int {
		switch {
		case n.When != "":
			return 0
		case n.Last:
			return 2
		}
		return 1
	}
	for _, list := range [][]hosts.LocalNames{launchers, managers} {
		slices.SortStableFunc(list, func(a, b hosts.LocalNames) int { return sure(a) - sure(b) })
	}
	return append(launchers, managers...)
}

// LocalRank returns a rank's number on its node and how many ranks the node
// has, from what its launcher has set; -1 and 0 where it did not say.
func LocalRank(env []string) (rank, size int) {
	lookup := func(name string) (string, bool) { return cmdline.Lookup(env, name) }
	for _, n := range localNames() {
		if n.When != "" {
			if _, ok := lookup(n.When); !ok {
				continue
			}
		}
		r, ok := number(env, n.Rank)
		if !ok {
			continue
		}
		if n.SizeOf != nil {
			size = n.SizeOf(lookup)
		} else if n.Size != "" {
			size, _ = number(env, n.Size)
		}
		if size <= r {
			size = 0
		}
		return r, size
	}
	return -1, 0
}

func number(env []string, name string) (int, bool) {
	v, ok := cmdline.Lookup(env, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(v)
	return n, err == nil && n >= 0 && n < 1<<20
}

// RankFacts is what a rank sees of itself.
type RankFacts struct {
	Env       []string
	HostNames []string // what this host is called, by itself and by its launcher
	Mask      []int    // CPUs it may run on; nil unknown
	Effective []int    // CPUs that its control group allows; nil unknown
	GPUs      []string // UUIDs of this host's GPUs in PCI order; nil not asked
}

// RankDecision is what fabrun rank does before it becomes the program.
type RankDecision struct {
	Vars     []string // NAME=VALUE, over what is set
	CPUs     []int    // the new mask; nil: leave it
	MemNode  int      // NUMA node to prefer; -1: leave it
	Stranger bool     // the table does not know this host
}

// Decide turns the table into what this rank does. A mask that the launcher
// has already narrowed is left alone, and then says where the rank runs.
func (t RankTable) Decide(f RankFacts) RankDecision {
	d := RankDecision{MemNode: -1, Vars: slices.Clone(t.Vars)}
	class := t.Class(f.HostNames...)
	if class == nil {
		d.Stranger = len(t.Classes) > 0
		d.repeat(t.Prefixes)
		return d
	}
	d.Vars = append(d.Vars, class.Vars...)
	rank, size := LocalRank(f.Env)
	if size == 0 {
		size = t.Local
	}
	sets := make([][]int, len(class.Slots))
	for i, s := range class.Slots {
		if cpus, err := topology.ParseCPUs(s.CPUs); err == nil { // of a table that fabrun wrote
			sets[i] = cpus
		}
	}
	wide := len(f.Mask) > 0 && (f.Effective == nil && coversAll(f.Mask, sets) || f.Effective != nil && covers(f.Mask, f.Effective))
	var bound []int // the slots that the launcher has bound the rank to
	open := overlapping(f.Mask, sets)
	switch {
	case !wide:
		bound = open
	case len(open) == 0: // the mask is not known, or not of this host
		open = make([]int, len(sets))
		for i := range open {
			open[i] = i
		}
	}
	where := class.place(f, rank, size, bound, open)
	d.Vars = append(d.Vars, where.vars...)
	if t.Bind && wide {
		var want []int
		for _, s := range where.slots {
			want = append(want, sets[s]...)
		}
		if cpus := intersect(f.Mask, want); len(cpus) > 0 {
			if len(cpus) < len(f.Mask) {
				d.CPUs = cpus
			}
			if len(where.slots) == 1 && len(class.Slots) > 1 {
				d.MemNode = class.Slots[where.slots[0]].Node
			}
		}
	}
	d.repeat(t.Prefixes)
	return d
}

func (d *RankDecision) repeat(prefixes []string) {
	for _, kv := range slices.Clone(d.Vars) {
		for _, p := range prefixes {
			d.Vars = append(d.Vars, p+kv)
		}
	}
}

// place is where a rank is: its slots, and the variables that follow.
type place struct {
	slots []int // nil: not known
	vars  []string
}

// place finds a rank's slots: the NUMA node of its GPU, else the one that its
// launcher bound it to, else its share of those that are open to the job, in
// blocks, as MPI launchers fill them. Devices near a slot are spread over its
// ranks, in step with envgen.RankVars. The only rank of a node keeps everything.
func (c RankClass) place(f RankFacts, rank, size int, bound, open []int) place {
	n := len(open)
	if rank < 0 || size == 1 {
		return place{}
	}
	if len(c.GPUs) > 0 {
		i := ownGPU(f, rank, len(c.GPUs))
		if i < 0 || i >= len(c.GPUs) {
			return place{}
		}
		p := place{vars: c.GPUs[i].Vars}
		if s := c.GPUs[i].Slot; s >= 0 && s < len(c.Slots) {
			p.slots = []int{s}
		}
		return p
	}
	if n == 0 || size <= rank && len(bound) == 0 {
		return place{}
	}
	p := place{}
	turn, share := 0, 1
	switch {
	case len(bound) == 1 && size <= rank:
		p.slots, turn, share = bound, rank, rank+1
	case len(bound) == 1:
		p.slots = bound
		turn, share = turnOf(rank, size, len(c.Slots), bound[0])
	case size <= rank:
		return place{}
	case size < n:
		p.slots = open[rank*n/size : (rank+1)*n/size]
	default:
		s := rank * n / size
		p.slots = open[s : s+1]
		turn, share = turnOf(rank, size, n, s)
	}
	p.vars = c.near(p.slots, turn, share)
	return p
}

// turnOf counts the ranks of one slot: which of them this rank is, and how many
// there are. A launcher fills slots in blocks, or deals ranks out in turn.
func turnOf(rank, size, n, slot int) (turn, share int) {
	of := func(r int) int { return r * n / size }
	if of(rank) != slot {
		if of = func(r int) int { return r % n }; of(rank) != slot {
			return rank, size
		}
	}
	for r := range size {
		if of(r) == slot {
			share++
			if r < rank {
				turn++
			}
		}
	}
	return turn, share
}

// near gives number turn of share its part of the devices near the slots:
// several where there are more devices than sharers, else one.
func (c RankClass) near(slots []int, turn, share int) []string {
	lists := map[string][]string{}
	for _, s := range slots {
		for name, devices := range c.Slots[s].Near {
			for _, d := range devices {
				if !slices.Contains(lists[name], d) {
					lists[name] = append(lists[name], d)
				}
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		all := lists[name]
		var mine []string
		for i, d := range all {
			if share <= 1 || i%share == turn%share {
				mine = append(mine, d)
			}
		}
		if share > 1 && share >= len(all) {
			mine = all[turn%len(all) : turn%len(all)+1]
		}
		out = append(out, name+"="+strings.Join(mine, ","))
	}
	return out
}

// gpuFilters are the variables by which a process is shown a part of the GPUs,
// each an index into what the one before it left. HIP's programs honour CUDA's
// name where theirs is not set (hip_runtime's documentation).
var gpuFilters = [][]string{{"ROCR_VISIBLE_DEVICES"}, {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}}

// ownGPU is the index, on the whole host, of the GPU that a rank will use: its
// turn among the visible ones. -1 where that cannot be told.
func ownGPU(f RankFacts, rank, gpus int) int {
	list := make([]int, gpus)
	for i := range list {
		list[i] = i
	}
	for _, names := range gpuFilters {
		for _, name := range names {
			text, ok := cmdline.Lookup(f.Env, name)
			if !ok {
				continue
			}
			if list = visibleGPUs(f, text, list); list == nil {
				return -1
			}
			break
		}
	}
	return list[rank%len(list)]
}

// visibleGPUs picks from the host's GPUs what a filter names; nil where it names
// them in a way that does not tell which they are.
func visibleGPUs(f RankFacts, text string, all []int) []int {
	items := strings.Split(text, ",")
	// Inside a Slurm step with constrained devices indices start again at 0;
	// SLURM_STEP_GPUS holds the host's own, of all tasks of the step.
	if global, ok := cmdline.Lookup(f.Env, "SLURM_STEP_GPUS"); ok {
		switch g := strings.Split(global, ","); {
		case len(g) == len(items):
			items = g
		case countsUp(items):
			return nil
		}
	}
	var out []int
	for _, item := range items {
		n, err := strconv.Atoi(item)
		if strings.HasPrefix(item, "GPU-") {
			n = slices.IndexFunc(f.GPUs, func(uuid string) bool { return strings.HasPrefix(uuid, item) })
			err = nil
		}
		if err != nil || n < 0 || n >= len(all) {
			return nil
		}
		out = append(out, all[n])
	}
	return out
}

// countsUp reports whether a list is 0, 1, 2, …: numbers of a container or a
// control group rather than of the host.
func countsUp(items []string) bool {
	for i, item := range items {
		if item != strconv.Itoa(i) {
			return false
		}
	}
	return true
}

// intersect expects sorted lists.
func intersect(a, b []int) []int {
	b = slices.Sorted(slices.Values(b))
	var out []int
	for _, c := range a {
		if _, ok := slices.BinarySearch(b, c); ok {
			out = append(out, c)
		}
	}
	return out
}

func covers(a, b []int) bool { return len(b) > 0 && len(intersect(b, a)) == len(b) }

func coversAll(mask []int, sets [][]int) bool {
	for _, s := range sets {
		if !covers(mask, s) {
			return false
		}
	}
	return len(sets) > 0
}

func overlapping(mask []int, sets [][]int) []int {
	var out []int
	for i, s := range sets {
		if len(intersect(mask, s)) > 0 {
			out = append(out, i)
		}
	}
	return out
}
