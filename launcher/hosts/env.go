package hosts

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// LookupEnv returns a variable's value and whether it is set, as os.LookupEnv does.
type LookupEnv func(name string) (string, bool)

// ReadFile returns a file's text, as os.ReadFile does; callers bound its size.
type ReadFile func(path string) ([]byte, error)

// FromEnv returns the allocation that the environment tells of. Where it tells
// of none, Source is "" and there are no hosts: the job runs on this machine.
// A source that is there but cannot be read is an error that names the
// variable or the file.
func FromEnv(env LookupEnv, readFile ReadFile) (Allocation, error) {
	e := environment{env, readFile}
	for _, s := range Schedulers {
		a, ok, err := s.from(e, s)
		if err != nil {
			return Allocation{}, err
		}
		if ok {
			return a, nil
		}
	}
	return Allocation{}, nil
}

// environment reads variables as the sources need them.
type environment struct {
	lookup   LookupEnv
	readFile ReadFile
}

// get returns a variable that is set and not empty.
func (e environment) get(names ...string) (value, name string, ok bool) {
	for _, n := range names {
		if v, ok := e.lookup(n); ok && strings.TrimSpace(v) != "" {
			return v, n, true
		}
	}
	return "", "", false
}

func (e environment) value(names ...string) string {
	v, _, _ := e.get(names...)
	return v
}

// number returns a variable that holds a count; nil where it is absent or holds
// something else.
func (e environment) number(names ...string) *int {
	v, _, ok := e.get(names...)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

func (e environment) file(variable, path string) ([]byte, error) {
	text, err := e.readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", variable, quote(path), err)
	}
	return text, nil
}

// fromOwn is fabrun's own pair of variables, for images and scripts that cannot
// give a flag.
func fromOwn(e environment, _ *Scheduler) (Allocation, bool, error) {
	if v, name, ok := e.get("FABRUN_HOSTS"); ok {
		a, err := ParseList(v)
		if err != nil {
			return a, false, fmt.Errorf("%s: %w", name, err)
		}
		a.Source = name
		return a, true, nil
	}
	if v, name, ok := e.get("FABRUN_HOSTFILE"); ok {
		text, err := e.file(name, v)
		if err != nil {
			return Allocation{}, false, err
		}
		a, err := ParseHostfile(text, AnySyntax)
		if err != nil {
			return a, false, fmt.Errorf("%s=%s: %w", name, quote(v), err)
		}
		a.Source = name
		return a, true, nil
	}
	return Allocation{}, false, nil
}

// slurmFirstSpecialStep is the lowest of the step numbers that are no ordinary
// steps: batch script, interactive step, extern and so on count down from
// 0xffffffff (slurm.h, SLURM_MAX_NORMAL_STEP_ID).
const slurmFirstSpecialStep = 0xfffffff0

// fromSlurm reads an allocation as salloc, sbatch and srun leave it. Inside an
// ordinary step the step's nodes count, otherwise the job's; the components of
// a heterogeneous job follow each other.
func fromSlurm(e environment, s *Scheduler) (Allocation, bool, error) {
	jobID, _, ok := e.get(s.JobID...)
	if !ok {
		return Allocation{}, false, nil
	}
	a := s.allocation(e)
	job, err := e.slurmComponents()
	if err != nil {
		return a, false, err
	}
	if len(job) == 0 {
		// A job number alone tells nothing: a prolog, or what is left of an
		// environment in a container.
		return a, false, nil
	}
	for _, c := range job {
		a.Hosts = append(a.Hosts, c...)
		if len(job) > 1 {
			a.Components = append(a.Components, Allocation{Hosts: c}.Names())
		}
	}
	if step, ok, err := e.slurmStep(); err != nil {
		return a, false, err
	} else if ok {
		if foreign := notIn(step, a.Hosts); len(foreign) == 0 {
			keepCPUs(step, a.Hosts)
			a.Hosts = step
			a.Self = e.number("SLURM_NODEID")
		} else {
			a.Findings = append(a.Findings, finding.Finding{
				ID: "hosts.slurm-leftover", Severity: finding.Warning, Subject: "SLURM_STEP_NODELIST",
				Seen:   "the step's nodes are not in the job's: " + Compress(foreign),
				Wanted: "a step of job " + jobID,
				Why:    "variables of another job's step are left in the environment; the job's own nodes are taken",
				Hint:   "unset the SLURM_STEP_* variables, or start the job from a clean shell (sbatch --export=NONE)",
			})
		}
	}
	a.Hosts, _ = merge(a.Hosts)
	if a.Self != nil && *a.Self >= len(a.Hosts) {
		a.Self = nil
	}
	if n := e.number("SLURM_GPUS_PER_NODE"); n != nil {
		setGPUs(a.Hosts, *n)
	} else if n, ok := gresCount(e.value("SLURM_GPUS_PER_NODE")); ok {
		setGPUs(a.Hosts, n)
	} else if n := e.number("SLURM_GPUS_ON_NODE"); n != nil && (len(a.Hosts) == 1 || e.value("SLURM_GPUS") == "") {
		// --gres and --gpus-per-node are per node; only --gpus (SLURM_GPUS) may spread unevenly.
		setGPUs(a.Hosts, *n)
	}
	return a, true, nil
}

// keepCPUs gives a step's hosts the CPUs that the job has on them: no variable
// tells a step's own.
func keepCPUs(step, job []Host) {
	cpus := make(map[string]*int, len(job))
	for _, h := range job {
		cpus[h.Name] = h.CPUs
	}
	for i := range step {
		step[i].CPUs = cpus[step[i].Name]
	}
}

func setGPUs(hosts []Host, n int) {
	for i := range hosts {
		hosts[i].GPUs = &n
	}
}

// gresCount reads "a100:4" and "h100:2,a100:2": the GPUs of one node.
func gresCount(s string) (int, bool) {
	sum := 0
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(part[strings.LastIndexByte(part, ':')+1:])
		if err != nil || n < 0 {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// slurmComponents returns the hosts of a job, one list per component: one
// unless the job is heterogeneous (SLURM_HET_SIZE; SLURM_PACK_SIZE before 20.02).
func (e environment) slurmComponents() ([][]Host, error) {
	size, suffix := e.number("SLURM_HET_SIZE"), "_HET_GROUP_"
	if size == nil {
		size, suffix = e.number("SLURM_PACK_SIZE"), "_PACK_GROUP_"
	}
	if size != nil && *size > 1 && *size <= 1024 {
		var all [][]Host
		for i := range *size {
			end := suffix + strconv.Itoa(i)
			hosts, ok, err := e.slurmNodes(
				[]string{"SLURM_JOB_NODELIST" + end, "SLURM_NODELIST" + end},
				[]string{"SLURM_TASKS_PER_NODE" + end},
				[]string{"SLURM_JOB_CPUS_PER_NODE" + end},
				"SLURM_CPUS_PER_TASK"+end)
			if err != nil {
				return nil, err
			}
			if ok {
				all = append(all, hosts)
			}
		}
		if len(all) == *size {
			return all, nil
		}
	}
	hosts, ok, err := e.slurmNodes(
		[]string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"},
		[]string{"SLURM_TASKS_PER_NODE"}, []string{"SLURM_JOB_CPUS_PER_NODE"}, "SLURM_CPUS_PER_TASK")
	if err != nil || !ok {
		return nil, err
	}
	return [][]Host{hosts}, nil
}

// slurmStep returns the hosts of the ordinary step this process is in.
func (e environment) slurmStep() ([]Host, bool, error) {
	id, err := strconv.ParseUint(e.value("SLURM_STEP_ID", "SLURM_STEPID"), 10, 64)
	if err != nil || id >= slurmFirstSpecialStep {
		return nil, false, nil
	}
	return e.slurmNodes([]string{"SLURM_STEP_NODELIST"},
		[]string{"SLURM_STEP_TASKS_PER_NODE"}, nil, "SLURM_CPUS_PER_TASK")
}

// slurmNodes joins a node list with its counts. Counts that do not fit the list
// belong to another job or step: they are left out, so that nothing is placed
// by them.
func (e environment) slurmNodes(lists, tasks, cpus []string, cpusPerTask string) ([]Host, bool, error) {
	list, name, ok := e.get(lists...)
	if !ok {
		return nil, false, nil
	}
	names, err := Expand(list)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	hosts := make([]Host, len(names))
	for i, n := range names {
		hosts[i].Name = n
	}
	counts := func(vars []string) ([]int, error) {
		v, name, ok := e.get(vars...)
		if !ok {
			return nil, nil
		}
		c, err := ParseRunLengths(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(c) != len(names) {
			return nil, nil
		}
		return c, nil
	}
	t, err := counts(tasks)
	if err != nil {
		return nil, false, err
	}
	c, err := counts(cpus)
	if err != nil {
		return nil, false, err
	}
	perTask := 1
	if n := e.number(cpusPerTask); n != nil && *n > 0 {
		perTask = *n
	}
	for i := range hosts {
		if c != nil {
			hosts[i].CPUs = &c[i]
		}
		switch {
		case t != nil:
			hosts[i].Slots = &t[i]
		case c != nil && c[i] >= perTask:
			n := c[i] / perTask
			hosts[i].Slots = &n
		}
	}
	return hosts, true, nil
}

// notIn returns the names of hosts that are not in all.
func notIn(hosts, all []Host) []string {
	known := make(map[string]bool, len(all))
	for _, h := range all {
		known[h.Name] = true
	}
	var out []string
	for _, h := range hosts {
		if !known[h.Name] {
			out = append(out, h.Name)
		}
	}
	return out
}

// fromNodeFile reads the family of PBS: a file with one line per slot, or per node.
func fromNodeFile(e environment, s *Scheduler) (Allocation, bool, error) {
	file, variable, ok := e.get(s.file)
	if !ok {
		return Allocation{}, false, nil
	}
	text, err := e.file(variable, file)
	if err != nil {
		return Allocation{}, false, err
	}
	var all []Host
	one := 1
	err = eachLine(text, func(n int, line string) error {
		name := strings.TrimSpace(line)
		if name == "" {
			return nil
		}
		if !validName(name) {
			return fmt.Errorf("line %d: %s is not a host name", n, quote(name))
		}
		h := Host{Name: name}
		if !s.fileOfNodes {
			h.Slots = &one
		}
		all = append(all, h)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = ErrNoHosts
	}
	if err != nil {
		return Allocation{}, false, fmt.Errorf("%s=%s: %w", variable, quote(file), err)
	}
	a := s.allocation(e)
	a.Hosts, _ = merge(all)
	return a, true, nil
}

// fromLSF reads LSB_MCPU_HOSTS ("h1 n1 h2 n2"), else LSB_DJOB_HOSTFILE (a line
// per slot), else LSB_HOSTS (a word per slot; empty in large jobs).
func fromLSF(e environment, s *Scheduler) (Allocation, bool, error) {
	a := s.allocation(e)
	var words []string
	if v, name, ok := e.get("LSB_MCPU_HOSTS"); ok {
		words = strings.Fields(v)
		if len(words)%2 != 0 {
			return a, false, fmt.Errorf("%s: wanted pairs of host and slots, read %s", name, quote(v))
		}
		for i := 0; i < len(words); i += 2 {
			n, err := parseSlots(words[i+1])
			if err != nil {
				return a, false, fmt.Errorf("%s: slots of %s: %w", name, quote(words[i]), err)
			}
			if !validName(words[i]) {
				return a, false, fmt.Errorf("%s: %s is not a host name", name, quote(words[i]))
			}
			a.Hosts = append(a.Hosts, Host{Name: words[i], Slots: &n})
		}
	} else if file, name, ok := e.get("LSB_DJOB_HOSTFILE"); ok {
		text, err := e.file(name, file)
		if err != nil {
			return a, false, err
		}
		words = strings.Fields(string(text))
		if err := a.addPerSlot(words); err != nil {
			return a, false, fmt.Errorf("%s=%s: %w", name, quote(file), err)
		}
	} else if v, name, ok := e.get("LSB_HOSTS"); ok {
		if err := a.addPerSlot(strings.Fields(v)); err != nil {
			return a, false, fmt.Errorf("%s: %w", name, err)
		}
	} else {
		return a, false, nil
	}
	a.Hosts, _ = merge(a.Hosts)
	dropLaunchNode(&a)
	return a, true, nil
}

// addPerSlot adds hosts named once per slot.
func (a *Allocation) addPerSlot(words []string) error {
	if len(words) == 0 {
		return ErrNoHosts
	}
	one := 1
	for _, w := range words {
		if !validName(w) {
			return fmt.Errorf("%s is not a host name", quote(w))
		}
		a.Hosts = append(a.Hosts, Host{Name: w, Slots: &one})
	}
	return nil
}

// dropLaunchNode leaves out the launch node that LSF lists first on systems
// whose jobs start from a node of their own (jsrun systems): one slot, named by
// another scheme than the compute nodes, all of which have more.
func dropLaunchNode(a *Allocation) {
	if len(a.Hosts) < 2 || *a.Hosts[0].Slots != 1 {
		return
	}
	stem := func(s string) string { return strings.ToLower(s[:strings.IndexAny(s+"0", "0123456789.-_")]) }
	first := a.Hosts[0]
	for _, h := range a.Hosts[1:] {
		if *h.Slots == 1 || stem(h.Name) == stem(first.Name) {
			return
		}
	}
	a.Hosts = a.Hosts[1:]
	a.Findings = append(a.Findings, finding.Finding{
		ID: "hosts.launch-node", Severity: finding.Note, Host: first.Name, Subject: "LSF's host list",
		Seen:   first.Name + " comes first with one slot and is named unlike the others",
		Wanted: "compute nodes only",
		Why:    "it is the node the job is launched from; no ranks are placed there",
		Hint:   "name it in --hosts to use it all the same",
	})
}

// fromSGE reads PE_HOSTFILE: "host slots queue processors" per line; a host in
// two queues has two lines.
func fromSGE(e environment, s *Scheduler) (Allocation, bool, error) {
	file, name, ok := e.get(s.file)
	if !ok {
		return Allocation{}, false, nil
	}
	a := s.allocation(e)
	text, err := e.file(name, file)
	if err != nil {
		return a, false, err
	}
	err = eachLine(text, func(n int, line string) error {
		f := strings.Fields(line)
		if len(f) == 0 {
			return nil
		}
		if len(f) < 2 {
			return fmt.Errorf("line %d: wanted \"host slots queue processors\", read %s", n, quote(line))
		}
		slots, err := parseSlots(f[1])
		if err != nil {
			return fmt.Errorf("line %d: slots of %s: %w", n, quote(f[0]), err)
		}
		if !validName(f[0]) {
			return fmt.Errorf("line %d: %s is not a host name", n, quote(f[0]))
		}
		a.Hosts = append(a.Hosts, Host{Name: f[0], Slots: &slots})
		return nil
	})
	if err == nil && len(a.Hosts) == 0 {
		err = ErrNoHosts
	}
	if err != nil {
		return a, false, fmt.Errorf("%s=%s: %w", name, quote(file), err)
	}
	a.Hosts, _ = merge(a.Hosts)
	return a, true, nil
}

// operatorHostfile is where the MPI operator mounts its hostfile
// (kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go).
const operatorHostfile = "/etc/mpi/hostfile"

// fromHostfileVariable reads the MPI operator's hostfile, or the one that the
// user's environment names for the MPI.
func fromHostfileVariable(e environment, s *Scheduler) (Allocation, bool, error) {
	role, _, operator := e.get("K_MPI_JOB_ROLE")
	file, syntax, variable := "", AnySyntax, ""
	for _, v := range hostfileVariables {
		if f, name, ok := e.get(v.name); ok && f != "none" {
			file, syntax, variable = f, v.syntax, name
			break
		}
	}
	if file == "" {
		if !operator || role != "launcher" {
			return Allocation{}, false, nil
		}
		file, variable = operatorHostfile, "K_MPI_JOB_ROLE=launcher, hostfile"
	}
	source := variable
	if operator || path.Clean(file) == operatorHostfile {
		source, syntax = s.Name, AnySyntax
	}
	text, err := e.file(variable, file)
	if err != nil {
		return Allocation{}, false, err
	}
	a, err := ParseHostfile(text, syntax)
	if err != nil {
		return a, false, fmt.Errorf("%s=%s: %w", variable, quote(file), err)
	}
	a.Source = source
	return a, true, nil
}

// fromTorch reads what Kubeflow's training operators tell each pod: TrainJob
// the PET_* names of torchrun, PyTorchJob MASTER_ADDR, WORLD_SIZE and RANK,
// which count pods. Only the master is named.
func fromTorch(e environment, s *Scheduler) (Allocation, bool, error) {
	a := s.allocation(e)
	nodes := e.number("PET_NNODES")
	if nodes == nil {
		// An elastic job says MIN:MAX; MAX is what can come.
		_, most, _ := strings.Cut(e.value("PET_NNODES"), ":")
		if n, err := strconv.Atoi(most); err == nil {
			nodes = &n
		}
	}
	if nodes != nil {
		a.Self = e.number("PET_NODE_RANK")
		a.Master, a.MasterPort = e.value("PET_MASTER_ADDR"), e.number("PET_MASTER_PORT")
		if a.Master == "" {
			a.Master, a.MasterPort = splitEndpoint(e.value("PET_RDZV_ENDPOINT"))
		}
	} else if _, _, worker := e.get("LOCAL_RANK", "TORCHELASTIC_RUN_ID"); !worker && e.value("MASTER_ADDR") != "" {
		// With LOCAL_RANK this is one worker of a torchrun, whose world is ranks and not hosts.
		nodes, a.Self = e.number("WORLD_SIZE"), e.number("RANK")
		a.Master, a.MasterPort = e.value("MASTER_ADDR"), e.number("MASTER_PORT")
	}
	if nodes == nil || *nodes < 1 || *nodes > maxNames {
		return Allocation{}, false, nil
	}
	a.Nodes = *nodes
	if a.Master == "" || isLoopbackName(a.Master) {
		return a, true, nil
	}
	if !validName(a.Master) {
		return Allocation{}, false, fmt.Errorf("master address %s is not a host name", quote(a.Master))
	}
	a.Hosts = []Host{{Name: a.Master, Slots: e.number("PET_NPROC_PER_NODE")}}
	return a, true, nil
}

// splitEndpoint reads HOST:PORT, HOST and [IPV6]:PORT.
func splitEndpoint(s string) (string, *int) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		addr, port, _ := strings.Cut(rest, "]")
		return addr, portNumber(strings.TrimPrefix(port, ":"))
	}
	if strings.Count(s, ":") != 1 {
		return s, nil
	}
	host, port, _ := strings.Cut(s, ":")
	return host, portNumber(port)
}

func portNumber(s string) *int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return nil
	}
	p := int(n)
	return &p
}

// isLoopbackName reports whether a name means every machine itself.
func isLoopbackName(s string) bool {
	return s == "localhost" || strings.HasPrefix(s, "127.") || s == "::1" || strings.HasPrefix(s, "localhost.")
}

// fromFlux reads what Flux tells its tasks: how many nodes, not which.
func fromFlux(e environment, s *Scheduler) (Allocation, bool, error) {
	_, _, ok := e.get(s.JobID...)
	nodes := e.number("FLUX_JOB_NNODES")
	if !ok || nodes == nil || *nodes < 1 {
		return Allocation{}, false, nil
	}
	a := s.allocation(e)
	a.Nodes = *nodes
	a.Findings = []finding.Finding{{
		ID: "hosts.names-unknown", Severity: finding.Warning, Subject: "FLUX_JOB_NNODES",
		Seen:   fmt.Sprintf("%d nodes, no names", *nodes),
		Wanted: "the names of the job's hosts",
		Why:    "Flux puts no host names into the environment; other hosts cannot be looked at",
		Hint:   `fabrun --hosts "$(flux hostlist local)" …`,
	}}
	return a, true, nil
}

// fromAWSBatch reads a multi-node parallel job. The main node's address is
// absent on the main node itself; the other nodes are never named.
func fromAWSBatch(e environment, s *Scheduler) (Allocation, bool, error) {
	nodes := e.number("AWS_BATCH_JOB_NUM_NODES")
	if nodes == nil || *nodes < 1 {
		return Allocation{}, false, nil
	}
	a := s.allocation(e)
	a.Nodes, a.Self, a.Master = *nodes, e.number("AWS_BATCH_JOB_NODE_INDEX"), e.value("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS")
	if a.Master != "" {
		if !validName(a.Master) {
			return Allocation{}, false, fmt.Errorf("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS: %s is not an address", quote(a.Master))
		}
		a.Hosts = []Host{{Name: a.Master, Address: a.Master}}
	}
	return a, true, nil
}
