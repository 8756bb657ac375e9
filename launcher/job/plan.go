// Package job takes one job from its command line to its end: it looks, has the plan
// decided, checks it, starts what it says on one node or on all, has it watched, and
// says what it has shown.
package job

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fabrun/envgen"
	"fabrun/envgen/vars"
	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/eyes"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// Call is one call of fabrun for a job: the machines that it is about, and what of
// its process and of its flags the whole of it needs.
type Call struct {
	look.Machines
	Args     []string // as the process was called
	Stdout   io.Writer
	Profile  string // fabric profile, name or file; "" none
	Workload string // likewise
	WithEnv  bool   // with From: what is set in this shell counts too
	JSON     bool
	Quiet    bool
	Follower bool   // one of several on as many nodes, and not the one that speaks
	Version  string // of fabrun
	Ending   string // what a run or a check came to, for the pod that it ends; "" nothing

	reached *reached // run: the way to the other nodes stays open
}

// Options are what run and plan are told of a job.
type Options struct {
	Hosts    string
	Hostfile string
	Topology string // file that says which hosts hang at one switch; "" their own order
	Strict   bool
	NCCL     string // version the ranks will load; "" what is found on the hosts
	UCX      string
	Ways     look.Ways
	Spread   Spread
	Hang     eyes.HangConfig

	Preflight PreflightMode
	Exclude   string // file or list
}

// Planned is a plan, and what run needs beside it.
type Planned struct {
	plan.Plan
	torch *torchJob // torchrun on every node; nil: one child, here
}

// Plan is the one path by which run and plan decide: it looks (launcher's
// version, hosts, machines), and everything after looking is pure.
func (a *Call) Plan(ctx context.Context, o Options, argv []string) (Planned, error) {
	if len(argv) == 0 {
		return Planned{}, exit.UsageError(errors.New("no program to run"), "fabrun mpirun -np 2 ./a.out")
	}
	if err := o.Spread.check(); err != nil {
		return Planned{}, err
	}
	argv, foamNote, err := a.foamArgv(argv)
	if err != nil {
		return Planned{}, err
	}
	probed, err := a.probeLauncher(ctx, argv)
	if err != nil {
		return Planned{}, err
	}
	if a.From == "" && cmdline.ParseMarker(a.Env).Planned() {
		p := plan.Unchanged(cmdline.Identify(argv, probed.version, probed.resolved), argv, "a fabrun around this one has planned the job")
		return Planned{Plan: p}, nil
	}
	here, err := a.Host(ctx)
	if stalled, ok := errors.AsType[*live.StalledError](err); ok {
		here, err, a.Stalled = topology.Host{}, nil, stalled // the job starts, and nothing is known
	}
	if err != nil {
		return Planned{}, err
	}
	l := a.identify(argv, &probed, here)
	where := []string{filepath.Dir(filepath.Join("/", probed.path)), filepath.Dir(filepath.Join("/", probed.resolved))}
	job := Sight{cmd: cmdline.Parse(l, argv), launcher: where, hosts: []topology.Host{here}, self: a.Self(), root: here.UID != nil && *here.UID == 0}
	if foamNote != "" {
		job.notes = append(job.notes, foamNote)
	}
	if job.cmd.StartsDaemon() {
		return Planned{Plan: plan.Unchanged(l, argv, "a launcher brings its daemons to the nodes")}, nil
	}
	view := *a
	if a.From != "" {
		// What the snapshot's host had set, and by which name fabrun goes there.
		var left string
		if view.Env, left = a.ReplayEnv(here); left != "" {
			job.notes = append(job.notes, left)
		}
		job.self = "fabrun"
	}
	view.Env = cmdline.EnvAt(argv, view.Env)
	job.shims = view.shimsFor(here)
	if err := view.findHosts(ctx, &job, o, probed); err != nil {
		return Planned{}, err
	}
	if err := view.chooseHosts(&job, o, here); err != nil {
		return Planned{}, err
	}
	job.program = view.programFacts(ctx, job.cmd, probed)
	if _, w, err := view.Profiles(job); err == nil && w != nil && w.Name == foamWorkload && a.From == "" {
		finds, np := view.judgeFoam(job.cmd, here)
		job.finds, job.np = append(job.finds, finds...), np
	}
	if err := view.lookAtJob(ctx, &job, o); err != nil {
		return Planned{}, err
	}
	p, err := view.decide(job, o)
	if err != nil {
		return Planned{}, err
	}
	torch, err := view.spreadTorch(job, &p, o.Spread)
	return Planned{Plan: p, torch: torch}, err
}

// identify says which launcher starts the job. A replay asks nothing of this
// machine: the snapshot's launchers count.
func (a *Call) identify(argv []string, p *probed, here topology.Host) cmdline.Launcher {
	if a.From == "" {
		return cmdline.Identify(argv, p.version, p.resolved)
	}
	name := argv[cmdline.LauncherAt(argv)]
	if i := slices.IndexFunc(here.Launchers, func(l topology.Launcher) bool { return l.Name == name }); i >= 0 {
		p.resolved = here.Launchers[i].Path
		return cmdline.Identify(argv, here.Launchers[i].Version, here.Launchers[i].Path)
	}
	return cmdline.IdentifyFrom(argv, here.Software)
}

// chooseHosts puts the hosts that were found in order, leaves out what is to be left
// out, and says whether this machine is all there is.
func (a *Call) chooseHosts(job *Sight, o Options, here topology.Host) error {
	if o.Topology != "" {
		before := job.alloc.Names()
		alloc, err := OrderByTopology(job.alloc, o.Topology)
		if err != nil {
			return err
		}
		job.alloc = alloc
		job.ordered = !slices.Equal(before, job.alloc.Names())
	}
	if err := o.leaveOut(job, a.Env); err != nil {
		return err
	}
	job.local = job.own || a.local(job.alloc)
	if (job.own || job.alloc.Source == "localhost") && here.Name != "" {
		job.alloc.Hosts[0].Name = here.Name
	}
	return nil
}

// Sight is what was seen of a job before anything is decided.
type Sight struct {
	cmd       cmdline.Command
	launcher  []string // directories that the launcher was found in
	alloc     hosts.Allocation
	given     bool // the hosts were named to fabrun
	tellHosts bool // the launcher does not know the hosts' source: it has to be told them all
	ordered   bool // the hosts are in another order than their source has them
	local     bool // every rank runs on this machine
	own       bool // of several nodes, each with a fabrun of its own, this is one
	hosts     []topology.Host
	names     []string // what the launcher calls the hosts, in step; nil: one host stands for all
	assumed   int      // how many hosts the one stands for
	program   plan.ProgramFacts
	self      string   // fabrun's path on every node; "" unknown
	np        *int     // ranks that the case wants, where the command line does not say; nil none
	root      bool     // the launcher runs as root
	shims     []string // launchers that are there for a script to call
	notes     []string
	finds     []finding.Finding
	look      plan.Look

	unreached string // why the hosts cannot be looked at yet; "" they can
}

// lookAtJob looks at the job's other hosts, where there are any.
func (a *Call) lookAtJob(ctx context.Context, job *Sight, o Options) error {
	n := max(len(job.alloc.Hosts), job.alloc.Nodes)
	if job.local {
		job.look = plan.Look{Hosts: 1, Seen: 1}
		if a.Stalled != nil {
			job.look.Seen, job.hosts = 0, nil
			job.look.Miss(job.alloc.Hosts[0].Name, a.Stalled.Error())
		}
		return nil
	}
	assume := func(why string) {
		job.assumed = max(n, 1)
		who := fmt.Sprintf("%d hosts are", n)
		switch n {
		case 0:
			who = "the job's hosts are"
		case 1:
			who = "1 host is"
		}
		job.notes = append(job.notes, fmt.Sprintf("%s assumed to be like %s: %s", who, a.Called(), why))
	}
	if a.From != "" {
		assume("a snapshot stands for all")
		job.look = plan.Look{Hosts: n, Seen: n}
		return nil
	}
	if len(job.alloc.Hosts) == 0 || job.unreached != "" {
		if job.look.Hosts = n; job.look.Whole() {
			job.look.Miss("", cmp.Or(job.unreached, "their names are not known"))
		}
		job.hosts, job.self = nil, "" // whether fabrun is there, at which path, nobody knows
		return nil
	}
	t, err := a.Transport(o.Ways, job.alloc.Manager)
	if err != nil {
		return err
	}
	if t == nil {
		assume("--remote none")
		job.look = plan.Look{Hosts: n, Assumed: "--remote none"}
		return nil
	}
	if a.reached != nil {
		a.reached.transport = t
	} else {
		//nolint:errcheck // connections that are no longer needed
		defer t.Close()
	}
	var want look.Want
	var wanted []wantedFile
	if o.Preflight != PreflightOff {
		wanted = a.wantedFiles(job.cmd)
		want.Places = a.jobPlaces(job.cmd, wanted)
	}
	seen, err := a.Nodes(ctx, t, job.alloc, job.hosts[0], want)
	if err != nil {
		return err
	}
	job.finds, job.self = append(job.finds, seen.Finds...), seen.Path
	job.finds = append(job.finds, missingOnNodes(seen.Hosts, seen.Names, wanted)...)
	// Hosts of a file that could not be read are missed too.
	seen.Look.Unseen = append(job.look.Unseen, seen.Look.Unseen...)
	job.look = seen.Look
	job.hosts, job.names = seen.Hosts, seen.Names
	if a.reached != nil {
		a.reached.names, a.reached.hosts, a.reached.fabrun, a.reached.paths = seen.Names, seen.Hosts, seen.Path, seen.Paths
	}
	return nil
}

// reached is the way to the job's other nodes, kept open for as long as the
// job runs.
type reached struct {
	transport remote.Transport
	names     []string // of the hosts that answered
	hosts     []topology.Host
	fabrun    string            // its path on all of them; "" not one path
	paths     map[string]string // its path, by name
}

func (r *reached) nodes() eyes.Nodes {
	return eyes.Nodes{Transport: r.transport, Names: r.names, Hosts: r.hosts, Fabrun: r.fabrun}
}

func (r *reached) close() {
	if r.transport != nil {
		//nolint:errcheck // connections that are no longer needed
		_ = r.transport.Close()
	}
}

// decide is everything between looking and doing; it touches nothing.
func (a *Call) decide(job Sight, o Options) (plan.Plan, error) {
	profile, workload, err := a.Profiles(job)
	if err != nil {
		return plan.Plan{}, err
	}
	placement, err := place(job, workload)
	if err != nil {
		return plan.Plan{}, &exit.Error{Code: exit.NoPlan, Err: err}
	}
	ranksPerNode := 0
	if placement.NP > 0 && len(placement.Hosts) > 0 {
		ranksPerNode = (placement.NP + len(placement.Hosts) - 1) / len(placement.Hosts)
	}
	container := job.cmd.Container()
	// Private logs lie in the run directory, which exists on this machine only
	// unless fabrun rank makes it on the others.
	logs := plan.RunDir
	// A container has a /dev/shm of its own, unless it is apptainer's.
	inside := job.cmd.Launcher.OwnMPI || container != "" && container != "apptainer" && container != "singularity"
	if inside || !job.local && (job.self == "" || job.cmd.Launcher.Dialect.Alone) {
		logs = ""
	}
	var res envgen.Result
	if in := (envgen.Input{
		Hosts: job.hosts, Assumed: job.assumed, Profile: profile, Workload: workload,
		Job: envgen.Job{
			Settings: job.cmd.Settings(a.Env), InContainer: container != "" || job.cmd.Launcher.OwnMPI, RanksPerNode: ranksPerNode, Strict: o.Strict,
			NoMPI: job.cmd.Launcher.Dialect.NoMPI, Gloo: job.cmd.Launcher.Dialect.Python, Versions: jobVersions(job, o), LogDir: logs,
			Addresses: addressesOf(job.alloc),
		},
	}); len(job.hosts) > 0 {
		res = envgen.Compute(in)
	}
	place := job.alloc
	place.Hosts = placement.Hosts
	bind := res.RDMA && len(job.hosts) > 0 && len(job.hosts[0].GPUs) > 0
	if workload != nil && workload.Binding != "" {
		bind = workload.Binding == "numa"
	}
	table := plan.MakeTable(job.names, job.hosts, res, bind && job.cmd.UserMaps(a.Env) == "")
	if !job.local && logs != "" {
		if table == nil {
			table = &plan.RankTable{}
		}
		table.Dir = logs
	}
	p := plan.Build(plan.Request{
		Command: job.cmd, Env: a.Env, Look: job.look, Hosts: job.alloc, Place: place,
		HostsGiven: job.given && placement.Hostfile || job.tellHosts, Local: job.local, Result: res, Self: job.self, Workload: workload, SSH: o.Ways.LauncherSSH(), Flags: a.FlagsAgain(o),
		Root: job.root, Program: job.program, Shims: job.shims, Ordered: job.ordered, NP: job.np,
		Table: table,
	})
	if job.given || len(job.alloc.Hosts) > 1 {
		p.Findings = append(p.Findings, placement.Findings...)
	}
	p.Findings = append(p.Findings, job.alloc.Findings...)
	p.Findings = append(p.Findings, job.finds...)
	if o.Preflight != PreflightOff {
		p.Findings = append(p.Findings, lookFindings(job, profile, res)...)
	}
	if a.Profile == "" && res.RDMA {
		// From the Host alone: a replay proposes what the machine itself did.
		p.Findings = append(p.Findings, a.Proposals(&job.hosts[0], false)...)
	}
	finding.Sort(p.Findings)
	p.Notes = append(p.Notes, job.notes...)
	return p, nil
}

// addressesOf are the addresses by which the job's hosts were named.
func addressesOf(alloc hosts.Allocation) []netip.Addr {
	var out []netip.Addr
	for _, h := range alloc.Hosts {
		for _, text := range []string{h.Address, h.Name} {
			if addr, err := netip.ParseAddr(text); err == nil { // a name tells no address
				out = append(out, addr)
				break
			}
		}
	}
	return out
}

// place says how many ranks each host gets.
func place(job Sight, w *profiles.Workload) (hosts.Placement, error) {
	alloc := job.alloc
	if len(alloc.Hosts) == 0 {
		return hosts.Placement{}, nil
	}
	if n := job.cmd.Nodes(); n != nil && *n < len(alloc.Hosts) {
		// A step on a part of the allocation; srun begins at its first node.
		alloc.Hosts = alloc.Hosts[:*n]
	}
	return hosts.Place(alloc, placeJob(job, w))
}

// placeJob is what placing ranks needs to know.
func placeJob(job Sight, w *profiles.Workload) hosts.Job {
	j := hosts.Job{NP: cmp.Or(job.cmd.Ranks(), job.np), Counts: map[string]hosts.Counts{}, Oversubscribe: job.cmd.Oversubscribes(), Threads: job.cmd.CountsThreads()}
	if w != nil {
		if policy, err := hosts.ParsePolicy(w.Slots); err == nil {
			j.Policy, j.ReserveCores, j.Channels = policy, w.ReserveCores, w.MemoryChannels
		}
	}
	for _, h := range job.alloc.Hosts {
		at := 0
		if job.names != nil || len(job.hosts) == 0 {
			at = slices.Index(job.names, h.Name)
		}
		if at >= 0 {
			// What a login over ssh or this process may use, its ranks may use. In
			// a manager's job the manager says that, and a step's look may see less.
			j.Counts[h.Name] = countsOf(job.hosts[at], job.alloc.Manager == "")
		}
	}
	return j
}

// countsOf counts what ranks are placed by; allowed leaves out what this process
// may not use.
func countsOf(h topology.Host, allowed bool) hosts.Counts {
	var c hosts.Counts
	usable := func(cpus []int) bool {
		return !allowed || h.CPU.Allowed == nil || slices.ContainsFunc(cpus, func(cpu int) bool { return slices.Contains(h.CPU.Allowed, cpu) })
	}
	cores := 0
	for _, core := range h.CPU.Cores {
		if usable(core.CPUs) {
			cores++
		}
	}
	if cores > 0 {
		c.Cores = &cores
	}
	if n := len(h.GPUs); n > 0 {
		c.GPUs = &n
	}
	nodes := 0
	for _, n := range h.NUMA {
		if len(n.CPUs) > 0 && usable(n.CPUs) {
			nodes++
		}
	}
	if nodes > 0 {
		c.NUMANodes = &nodes
	}
	if h.CPU.MemoryChannels != nil {
		sum := 0
		for _, n := range h.NUMA {
			if usable(n.CPUs) {
				sum += h.CPU.MemoryChannels[n.ID]
			}
		}
		if sum > 0 {
			c.MemoryChannels = &sum
		}
	}
	return c
}

// jobProfiles loads the fabric and workload profiles. Without --workload the
// program's name may suggest one: then only the variables that every rank needs
// are taken from it.
func (a *Call) Profiles(job Sight) (profiles.Profile, *profiles.Workload, error) {
	var profile profiles.Profile
	p, err := a.FabricProfile()
	if err != nil {
		return profile, nil, err
	}
	if p != nil {
		profile = *p
	}
	if a.Workload != "" {
		w, err := profiles.LoadWorkload(a.ProfileDirs(), a.Workload)
		if err != nil {
			return profile, nil, exit.UsageError(err, "'fabrun profile list' names those there are")
		}
		return profile, &w, nil
	}
	return profile, a.suggestedWorkload(job), nil
}

func (a *Call) suggestedWorkload(job Sight) *profiles.Workload {
	for _, program := range job.cmd.Programs() {
		name := filepath.Base(program[0])
		if w, ok := profiles.WorkloadFor(a.ProfileDirs(), name); ok {
			return &profiles.Workload{Name: w.Name, About: w.About, Source: w.Source, Forward: w.Forward}
		}
	}
	return nil
}

// replayEnv is the environment that a snapshot carries: a replay uses that, and
// what is set for libraries in this shell only with --with-env. left says what of
// that is left out; "" nothing.
func (a *Call) ReplayEnv(h topology.Host) (env []string, left string) {
	for _, v := range h.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	var names []string
	for _, s := range cmdline.Settings(a.Env) {
		if a.WithEnv {
			env = append(env, s.Name+"="+s.Value) // the last of a name counts
		} else if v := cmdline.Value(env, s.Name); v != s.Value && v != vars.Redact(s.Value) { // a snapshot has no secrets
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return env, ""
	}
	return env, fmt.Sprintf("of this shell, %s: left out of the replay; --with-env takes what is set here", strings.Join(names, ", "))
}

// linkedMPI says which MPI a program is linked with, from the libraries that it
// names itself: every MPI has another soname. Both "" where it names none, or
// one that several MPIs share.
func linkedMPI(path string) (kind, source string) {
	f, err := elf.Open(path)
	if err != nil {
		return "", ""
	}
	//nolint:errcheck // opened for reading
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		return "", ""
	}
	for _, lib := range libs {
		for _, m := range []struct{ prefix, kind string }{
			{"libmpi.so.40", "openmpi"},
			{"libmpi.so.20", "openmpi"},
			{"libmpi.so.80", "openmpi"},
			{"libmpi_mpifh.so", "openmpi"},
			{"libmpi_cxx.so", "openmpi"},
			// libmpi.so.12 is the MPICH ABI: MPICH, Intel MPI and MVAPICH share it.
			{"libmpich.so", "mpich"},
			{"libmpi.so.12", "mpich"},
			{"libmpifort.so.12", "mpich"},
			{"libmpicxx.so.12", "mpich"},
		} {
			if strings.HasPrefix(lib, m.prefix) {
				return m.kind, "it names " + lib
			}
		}
	}
	return "", ""
}

// maxShebang is where the kernel stops reading a script's first line.
const maxShebang = 256

// flagsAgain are the flags of this call for a fabrun that a script of it starts.
func (a *Call) FlagsAgain(o Options) []string {
	var out []string
	put := func(name, value string) {
		if value != "" {
			out = append(out, "--"+name+"="+value)
		}
	}
	absolute := func(name, value string) {
		// The script may change its directory.
		if strings.Contains(value, "/") || name == "hostfile" || name == "topology" || name == "root" || name == "ssh-key" {
			if abs, err := filepath.Abs(value); err == nil && value != "" {
				value = abs
			}
		}
		put(name, value)
	}
	absolute("root", a.Root)
	absolute("profile", a.Profile)
	absolute("workload", a.Workload)
	put("hosts", o.Hosts)
	absolute("hostfile", o.Hostfile)
	absolute("topology", o.Topology)
	put("nccl-version", o.NCCL)
	put("ucx-version", o.UCX)
	if o.Preflight != PreflightLook {
		put("preflight", string(o.Preflight))
	}
	if abs, err := filepath.Abs(o.Exclude); err == nil && o.Exclude != "" && fileThere(abs) {
		put("exclude", abs)
	} else {
		put("exclude", o.Exclude)
	}
	if o.Strict {
		out = append(out, "--strict")
	}
	if a.Quiet {
		out = append(out, "--quiet")
	}
	if a.Verbose {
		out = append(out, "--verbose")
	}
	if o.Ways.Transport != "auto" {
		put("remote", o.Ways.Transport)
	}
	put("ssh-user", o.Ways.SSHUser)
	if o.Ways.SSHPort != 0 {
		put("ssh-port", fmt.Sprint(o.Ways.SSHPort))
	}
	absolute("ssh-key", o.Ways.SSHKey)
	absolute("ssh-config", o.Ways.SSHConfig)
	absolute("known-hosts", o.Ways.KnownHosts)
	if o.Ways.Insecure {
		out = append(out, "--insecure-host-keys")
	}
	return append(append(out, o.Spread.again()...), o.Hang.Flags()...)
}

// asShim turns a call under a launcher's name, from a script of an outer fabrun,
// into a run of the launcher of that name behind the shims in PATH.
func (a *Call) AsShim() ([]string, bool) {
	if len(a.Args) == 0 || !slices.Contains(cmdline.ShimNames(), filepath.Base(a.Args[0])) {
		return nil, false
	}
	dir, flags, ok := cmdline.ParseShim(a.Env)
	if !ok {
		return nil, false
	}
	env := slices.Clone(a.Env)
	for i, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs := slices.DeleteFunc(strings.Split(path, ":"), func(d string) bool { return d == dir })
			env[i] = "PATH=" + strings.Join(dirs, ":")
		}
	}
	a.Env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, cmdline.ShimName+"=") })
	words := slices.Concat([]string{filepath.Base(a.Args[0])}, a.Args[1:])
	if startsNothing(words) {
		// Only on failure does this return; then run says what is wrong.
		a.becomeProgram(words)
	}
	launcher.EndWithParent()
	return slices.Concat([]string{"run"}, flags, []string{"--"}, words), true
}

// startsNothing reports whether a launcher's command line starts no ranks: it
// asks something ("mpirun --version"), or brings another launcher's daemons to
// the nodes ("srun … orted").
func startsNothing(words []string) bool {
	if len(words) < 2 || len(words) == 2 && strings.HasPrefix(words[1], "-") {
		return true
	}
	return cmdline.Parse(cmdline.Identify(words, "", ""), words).StartsDaemon()
}

// becomeProgram replaces this process by a program of the environment's PATH.
func (a *Call) becomeProgram(words []string) {
	path, _ := a.Getenv("PATH")
	if file, err := launcher.LookPath(words[0], path, "."); err == nil {
		//nolint:errcheck // the caller goes on where it cannot be started
		_ = syscall.Exec(file, words, a.Env)
	}
}

// shimsFor are the launchers that a script of this job could call by name. One
// that is not installed gets no shim: a script may ask whether it is there.
func (a *Call) shimsFor(here topology.Host) []string {
	path, _ := a.Getenv("PATH")
	return slices.DeleteFunc(cmdline.ShimNames(), func(name string) bool {
		if a.From != "" {
			return !slices.ContainsFunc(here.Launchers, func(l topology.Launcher) bool { return l.Name == name })
		}
		_, err := launcher.LookPath(name, path, ".")
		return err != nil
	})
}

// programFacts is what can be seen of the program without starting it.
func (a *Call) programFacts(ctx context.Context, cmd cmdline.Command, p probed) plan.ProgramFacts {
	var f plan.ProgramFacts
	if name := cmd.Executable(); name != "" && (cmd.Launcher.MPIKind != "" || cmd.Launcher.Dialect.MPIType.Option != "") && a.From == "" {
		path, _ := a.Getenv("PATH")
		if file, err := launcher.LookPath(name, path, "."); err == nil {
			f.MPIKind, f.Source = linkedMPI(file)
		}
		if cmd.Launcher.Dialect.MPIType.Option != "" && f.MPIKind != "" && !cmd.SaysMPIType(a.Env) {
			f.SrunMPI = a.srunMPI(ctx)
		}
	}
	if cmd.Launcher.Dialect.NoPython != "" {
		switch {
		case cmdline.RunnerAt(cmd.Argv) != "": // of an environment that is made when it starts
		case strings.HasPrefix(filepath.Base(cmd.Name()), "python"): // python -m torch.distributed.run
			f.Python = p.path
		case p.resolved != "":
			f.Python = shebang(p.resolved)
		}
	}
	return f
}

// shebang returns the interpreter of a script when its first line is nothing
// but an absolute path: that is how pip writes torchrun.
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, maxShebang)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	line, ok := strings.CutPrefix(line, "#!")
	if line = strings.TrimSpace(line); !ok || !filepath.IsAbs(line) || strings.ContainsAny(line, " \t") {
		return ""
	}
	return line
}

// jobVersions says which of the installed MPIs is started, and which library
// versions the user says the ranks load (in an image nobody else can know).
func jobVersions(job Sight, o Options) *envgen.Versions {
	l := job.cmd.Launcher
	v := &envgen.Versions{NCCL: o.NCCL, UCX: o.UCX, OpenMPIHasUCX: launcherHasUCX(job)}
	if l.MPIKind != "" {
		v.MPIKind, v.MPI = l.MPIKind, strings.TrimSpace(l.MPIKind+" "+l.Version)
	}
	return v
}

// launcherHasUCX says whether the Open MPI that is started has a UCX component,
// where several are installed; nil where the look did not tell. In a container
// the ranks load another one.
func launcherHasUCX(job Sight) *bool {
	if job.cmd.Launcher.MPIKind != "openmpi" || job.cmd.Container() != "" || len(job.hosts) == 0 {
		return nil
	}
	for _, s := range job.hosts[0].Software {
		if s.Kind != "openmpi" || !slices.Contains(job.launcher, filepath.Dir("/"+s.Path)) {
			continue
		}
		has := strings.Contains(s.Detail, "UCX component present")
		if has || strings.Contains(s.Detail, "UCX component absent") {
			return &has
		}
	}
	return nil
}

// ReadHosts reads a hostfile as the dialect d is written.
func ReadHosts(path string, d *hosts.Syntax) (hosts.Allocation, error) {
	text, err := files.Read(path)
	if err != nil {
		return hosts.Allocation{}, err
	}
	alloc, err := hosts.ParseHostfile(text, d)
	if err != nil {
		return alloc, fmt.Errorf("read %q: %w", path, err)
	}
	return alloc, nil
}

// local reports whether every rank runs on this machine.
func (a *Call) local(alloc hosts.Allocation) bool {
	return alloc.Source == "localhost" || alloc.Manager == "" && a.From == "" && look.IsHere(alloc)
}

// probed is what a launcher says of itself.
type probed struct {
	path     string // where PATH leads
	resolved string // after all links
	version  string // its version text; "" it did not answer
}

// probeTimeout bounds a launcher's answer to --version.
const probeTimeout = 5 * time.Second

// maxVersionText is more than any launcher prints for --version: Hydra's
// answer lists its configure line.
const maxVersionText = 64 << 10

// launchersHere asks every launcher in PATH for its version, as a plan would.
func (a *Call) LaunchersHere(ctx context.Context) []topology.Launcher {
	var out []topology.Launcher
	for _, name := range cmdline.Launchers() {
		p, err := a.probeLauncher(ctx, []string{name})
		if err == nil {
			out = append(out, topology.Launcher{Name: name, Path: p.resolved, Version: p.version})
		}
	}
	return out
}

// probeLauncher finds the program and asks a launcher for its version, once
// per file: the answer is kept by path, size and time.
func (a *Call) probeLauncher(ctx context.Context, argv []string) (probed, error) {
	if a.From != "" {
		return probed{}, nil
	}
	env, name := cmdline.EnvAt(argv, a.Env), argv[cmdline.LauncherAt(argv)]
	runner := cmdline.RunnerAt(argv) != ""
	if runner {
		name = argv[0] // which launcher it finds, only it knows
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	path, _ := cmdline.Lookup(env, "PATH")
	file, err := launcher.LookPath(name, path, dir)
	if err != nil {
		return probed{}, StartError(name, err)
	}
	p := probed{path: file, resolved: file}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		p.resolved = real
	}
	if runner || !cmdline.AsksVersion(argv) {
		return p, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return p, StartError(name, err)
	}
	p.version = a.cachedAnswer(fmt.Sprintf("%s %s %d %d", file, p.resolved, info.Size(), info.ModTime().UnixNano()), func() string {
		return ask(ctx, file, name, env, "--version")
	})
	return p, nil
}

// cachedAnswer is what a program said once, kept under a key that changes with
// its file. What could not be asked is asked again the next time.
func (a *Call) cachedAnswer(key string, ask func() string) string {
	cached := a.probeCache(key)
	if cached != "" {
		if text, err := os.ReadFile(cached); err == nil {
			return string(text)
		}
	}
	text := ask()
	if cached != "" && text != "" {
		// A cache that cannot be written costs the question again.
		//nolint:errcheck // as said
		_ = files.WritePrivate(cached, text)
	}
	return text
}

// ask runs a program that says something of itself, "LAUNCHER --version". It
// tolerates every failure: srun without a configuration prints an error, and a
// launcher that hangs is left.
func ask(ctx context.Context, file, name string, env []string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, file, args...)
	c.Args[0], c.Env = name, env
	c.WaitDelay = time.Second
	var out limited
	c.Stdout, c.Stderr = &out, &out
	//nolint:errcheck // the text decides, whatever the status
	_ = c.Run()
	return string(out)
}

// limited keeps the first maxVersionText bytes.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	if room := maxVersionText - len(*l); room > 0 {
		*l = append(*l, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// probeCache is the file that keeps a launcher's answer; "" where there is no
// place for it.
func (a *Call) probeCache(key string) string {
	base, _ := a.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, _ := a.Getenv("HOME")
		// A service's home (Debian's /nonexistent) is not made for a cache.
		if info, err := os.Stat(home); err != nil || !info.IsDir() {
			return ""
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(base, "fabrun", "launcher-"+hex.EncodeToString(sum[:12]))
}

// StartError is a program that cannot be started, with the status that a shell
// would give.
func StartError(name string, err error) error {
	code := launcher.StatusNotExecutable
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = launcher.StatusNotFound
		if cmdline.AsksVersion([]string{name}) {
			hint = "install an MPI, or load its module (module avail, module load openmpi), so that " + name + " is in PATH"
		}
		err = fmt.Errorf("%s: not found in PATH", name)
		if strings.Contains(name, "/") {
			err = fmt.Errorf("%s: no such file", name)
		}
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%s: not executable", name)
		hint = "chmod +x " + name
	}
	return &exit.Error{Code: code, Err: err, Hint: hint}
}
