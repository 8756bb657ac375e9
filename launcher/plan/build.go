package plan

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// SSH is how fabrun itself reached the other hosts; zero values were not given.
type SSH struct {
	User       string
	Port       int
	Identity   string
	KnownHosts string
	Config     string
	Insecure   bool // host keys are not checked
}

// Request is everything Build looks at.
type Request struct {
	Command cmdline.Command
	Env     []string // the environment fabrun was started with
	Result  envgen.Result
	Look    Look
	Hosts   hosts.Allocation
	// HostsGiven: the hosts were named to fabrun (--hosts, --hostfile), or come
	// from something the launcher does not know by itself; it has to be told.
	HostsGiven bool
	// Local: every rank runs on this machine, as a descendant of this process.
	Local    bool
	SSH      *SSH
	Self     string // the path under which every node of the job finds fabrun; "" none
	Workload *profiles.Workload
	Root     bool             // effective user 0
	Table    *RankTable       // places and per-rank variables; nil: nothing differs per rank
	Program  ProgramFacts     // what was seen of the program
	Flags    []string         // what fabrun was told, for shims in a script's PATH
	Shims    []string         // of cmdline.ShimNames, those that are installed here
	Place    hosts.Allocation // Hosts with the slots of this job; zero value: Hosts
	NP       *int             // ranks to ask for, where the command line does not say; nil the launcher counts
	Ordered  bool             // Hosts are in another order than their resource manager has them
}

// ProgramFacts is what was seen of the program that the ranks run.
type ProgramFacts struct {
	MPIKind string // the MPI it is linked with: "openmpi", "mpich", "intelmpi"; "" unknown or none
	Source  string // where that was seen: "DT_NEEDED libmpi.so.40"
	SrunMPI string // Slurm's MpiDefault, where srun's command line leaves it open; "" unknown
	Python  string // the interpreter that torchrun would start; "" unknown
}

// builder gathers a plan: insertions by index of the user's words, so that
// those are never changed and stay in order.
type builder struct {
	Request
	plan     Plan
	options  map[int][]Arg // words before the user's word of that index: the launcher's options
	front    map[int][]Arg // likewise, after those: in front of the program
	given    []envgen.Setting
	prefixes []string
	byArgv   bool // the launcher forwards nothing: variables travel in argv
	rank     bool // fabrun rank stands in front of the program
}

// Build decides what is started. It is pure: the same request gives the same
// plan, and plan prints what run does.
func Build(r Request) Plan {
	r.Env = cmdline.EnvAt(r.Command.Argv, r.Env)
	b := &builder{Request: r, options: map[int][]Arg{}, front: map[int][]Arg{}, given: r.Command.Given()}
	l := r.Command.Launcher
	b.plan = Plan{
		Dialect: l.Dialect, Version: l.Version, Launcher: strings.TrimSpace(l.Family + " " + l.Version),
		Command: r.Command, Hosts: r.Hosts, Program: r.Command.Program(), Look: r.Look, RDMA: r.Result.RDMA, Rails: r.Result.Rails, Contract: r.Result.Contract, Promise: r.Result.Promise,
		Findings: slices.Clone(r.Result.Findings),
	}
	if r.Look.Blind() {
		b.plan.Promise = envgen.Promise{}
		b.plan.Contract = r.Look.Text() + ": nothing set, nothing judged"
	} else if !r.Result.RDMA && r.Look.Assumed != "" {
		b.plan.Contract = r.Look.Text() + " and this machine has no usable RDMA device: nothing set, nothing judged"
	}
	b.launcherFindings()
	b.variables()
	b.workload()
	b.hostfile()
	if !b.order() {
		b.spread()
	}
	b.ssh()
	b.container()
	b.rankWrapper()
	b.carried()
	b.forwarding()
	b.shims()
	b.marker()
	b.assemble()
	return b.plan
}

// Unchanged is the plan that starts the user's words as they are, for a reason.
func Unchanged(l cmdline.Launcher, argv []string, why string) Plan {
	p := Plan{Dialect: l.Dialect, Version: l.Version, Launcher: strings.TrimSpace(l.Family + " " + l.Version), RDMA: true, Contract: why, Command: cmdline.Parse(l, argv)}
	for _, w := range argv {
		p.Argv = append(p.Argv, Arg{Text: w, Origin: envgen.FromUser})
	}
	return p
}

func (b *builder) find(f finding.Finding) { b.plan.Findings = append(b.plan.Findings, f) }

func (b *builder) note(format string, args ...any) {
	b.plan.Notes = append(b.plan.Notes, fmt.Sprintf(format, args...))
}

func insert(into map[int][]Arg, at int, why string, words []string) {
	for i, w := range words {
		a := Arg{Text: w, Origin: envgen.FromPlan}
		if i == 0 {
			a.Why = why
		}
		into[at] = append(into[at], a)
	}
}

// option adds a launcher's option, with its values.
func (b *builder) option(at int, why string, words ...string) { insert(b.options, at, why, words) }

// wrap puts words directly in front of a program.
func (b *builder) wrap(at int, why string, words ...string) { insert(b.front, at, why, words) }

// set adds a variable to the child's environment, unless somebody has set it.
func (b *builder) set(v envgen.Var) bool {
	if slices.ContainsFunc(b.given, func(s envgen.Setting) bool { return s.Name == v.Name }) {
		return false
	}
	if _, ok := cmdline.Lookup(b.Env, v.Name); ok && !cmdline.ParseMarker(b.Env).Owns(v.Name, cmdline.Value(b.Env, v.Name)) {
		return false
	}
	b.plan.Env = append(b.plan.Env, v)
	return true
}

// own reports whether fabrun brings this variable in, as opposed to somebody
// who set it before.
func own(v envgen.Var) bool {
	switch v.Origin {
	case envgen.FromUser, envgen.FromSite, envgen.FromImage:
		return false
	}
	return true
}

// variables sorts what envgen chose: the same everywhere → the child's
// environment; different per host → fabrun rank.
func (b *builder) variables() {
	if len(b.Result.Hosts) == 0 {
		return
	}
	for _, v := range b.Result.Hosts[0].Vars {
		switch {
		case !own(v):
			b.plan.Kept = append(b.plan.Kept, v)
		case b.Result.RDMA && b.serves(v) && everywhere(b.Result, v):
			// A value per rank has the node's as its default: fabrun rank narrows it.
			b.set(v)
		}
	}
	if !b.Result.RDMA {
		if b.plan.HasRDMA() != nil {
			b.note("no host of this job has a usable RDMA device: the job runs unchanged")
		}
		return
	}
	if b.plan.Dialect.Alone {
		// One process, here; a launcher that it starts is planned for by itself.
		return
	}
	for _, h := range b.Result.Hosts {
		var differ []envgen.Var
		for _, v := range h.Vars {
			if own(v) && b.serves(v) && !everywhere(b.Result, v) {
				differ = append(differ, v)
			}
		}
		if len(differ) > 0 {
			b.plan.PerHost = append(b.plan.PerHost, envgen.HostEnv{Host: h.Host, Vars: differ})
		}
	}
}

// serves reports whether a variable means anything to the ranks of this
// launcher: another MPI than Open MPI reads no MCA parameters.
func (b *builder) serves(v envgen.Var) bool {
	l := b.Command.Launcher
	return !strings.HasPrefix(v.Name, "OMPI_MCA_") || l.MPIKind == "openmpi" || l.MPIKind == "" && !l.Dialect.NoMPI && !l.OwnMPI
}

// ranks is how many ranks the job has: the user's number, else the case's.
func (b *builder) ranks() *int { return cmp.Or(b.Command.Ranks(), b.NP) }

// workload adds the launcher's options that the workload profile names, and the
// number of ranks that the case wants. What the user gave is not given twice.
func (b *builder) workload() {
	c := b.Command
	if b.NP != nil && c.TakesNP() {
		b.option(c.Launcher.Words, "the parts that the case is decomposed in", c.Launcher.Dialect.NP, fmt.Sprint(*b.NP))
	}
	if b.Workload == nil || c.Launcher.MPIKind == "" || !c.Launcher.Dialect.Reads() || len(c.Apps) == 0 || c.Opaque != "" {
		return
	}
	why := "workload " + b.Workload.Name
	if b.Workload.Binding == "core" && c.UserMaps(b.Env) == "" && c.Launcher.Dialect.BindCore != nil {
		b.option(c.Launcher.Words, why+": a core for each rank", c.Launcher.Dialect.BindCore...)
	}
	words := append(slices.Clone(b.Workload.MPIOptions), "PROGRAM")
	read := c.Launcher.Dialect.Options(words)
	if read.Doubt != "" || read.Program != len(words)-1 {
		b.find(finding.Finding{
			ID: "workload.mpi-options", Severity: finding.Warning, Subject: strings.Join(b.Workload.MPIOptions, " "),
			Seen: cmp.Or(read.Doubt, "words that are no options"), Wanted: "options of " + c.Launcher.Family, Why: "they are not given to the launcher",
			Hint: "mpi_options in the workload profile " + b.Workload.Name,
		})
		return
	}
	for _, o := range read.Options {
		if o.Name == "mca" && len(o.Values) == 2 && b.userMCA(o.Values[0]) {
			continue
		}
		if first := c.Apps[0].Last(o.Name); first != nil && (o.Name != "mca" && o.Name != "x" && o.Name != "genv") {
			continue
		}
		b.option(c.Launcher.Words, why, words[o.At:o.At+o.Words]...)
	}
}

// hostfile tells the launcher where to run, where the user has told fabrun and
// not the launcher.
func (b *builder) hostfile() {
	l := b.Command.Launcher
	src := b.Command.HostSource(b.Env)
	switch {
	case src != nil:
		if b.HostsGiven {
			b.find(finding.Finding{
				ID: "launcher.hosts-twice", Severity: finding.Warning, Subject: src.Option,
				Seen: "hosts in the launcher's own " + src.Option + " and given to fabrun (" + b.Hosts.Source + ")", Wanted: "one of the two",
				Why: "the launcher's own option decides where the job runs", Hint: "leave out one of them",
			})
		}
		return
	case !b.HostsGiven, b.Command.Opaque != "" && l.Dialect.HostOption != "":
		return
	}
	if l.Dialect.HostOption != "" && len(b.Command.Apps) > 1 {
		b.find(finding.Finding{
			ID: "srun.components", Severity: finding.Warning, Subject: "--hosts", Seen: "several components, and one list of hosts", Wanted: "hosts for each component",
			Why: "each component has nodes of its own", Hint: "srun -w LIST … : -w LIST …, instead of --hosts",
		})
		return
	}
	why := "the hosts given to fabrun"
	if b.Hosts.Source != "" && !strings.HasPrefix(b.Hosts.Source, "--") {
		why = "the hosts of " + b.Hosts.Source
	}
	b.tellHosts(why)
}

// tellHosts gives the launcher the hosts with the ranks of each, in its own syntax.
func (b *builder) tellHosts(why string) {
	l := b.Command.Launcher
	place := b.Place
	if len(place.Hosts) == 0 {
		place = b.Hosts
	}
	option, syntax := l.Dialect.Hostfile.Option, l.Dialect.Hostfile.Syntax
	switch {
	case l.Dialect.HostOption != "":
		b.option(l.Words, why, l.Dialect.HostOption+hosts.Compress(place.Names()))
		return
	case option == "":
		return
	}
	text, err := hosts.Format(place, syntax)
	if err != nil {
		b.find(finding.Finding{
			ID: "launcher.hostfile", Severity: finding.Error, Subject: place.Source, Seen: err.Error(), Wanted: "hosts that " + l.Family + " can be told",
			Why: "the launcher is not told where to run", Hint: "give names and slots that fit: --hosts 'n[1-4]:8'",
		})
		return
	}
	b.plan.Findings = append(b.plan.Findings, hosts.Check(place, syntax)...)
	b.plan.Files = append(b.plan.Files, File{Name: "hostfile", Content: text, Why: why})
	if b.Command.Opaque != "" {
		// Beside it no option counts; the variable does (seen with Open MPI 4.1.4 and MPICH 4.0.2).
		b.set(envgen.Var{
			Name: l.HostVariable(), Value: RunDir + "/hostfile", Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.hostfile",
			Why: why + "; no option can stand beside " + b.Command.Opaque,
		})
		return
	}
	b.option(l.Words, why, option, RunDir+"/hostfile")
}

// ssh hands the launcher the same ssh settings that fabrun used, through the
// variables that every version reads.
func (b *builder) ssh() {
	if b.SSH == nil || b.Local || b.Hosts.Manager != "" || *b.SSH == (SSH{}) {
		return
	}
	args := b.SSH.words()
	for _, w := range args {
		if strings.ContainsAny(w, " \t\"'") {
			b.find(finding.Finding{
				ID: "launcher.ssh-words", Severity: finding.Warning, Subject: w,
				Seen: "an ssh setting with a blank in it", Wanted: "none",
				Why: "the launcher splits its ssh command at blanks", Hint: "put the setting into ~/.ssh/config",
			})
			return
		}
	}
	by := b.plan.Dialect.SSH
	if by == nil || b.userMCA(by.Params...) {
		return
	}
	if by.Whole {
		args = append([]string{"ssh"}, args...)
	}
	b.set(envgen.Var{
		Name: by.Name, Value: strings.Join(args, " "), Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.ssh",
		Why: "the launcher reaches the hosts the way fabrun did",
	})
}

func (s SSH) words() []string {
	var out []string
	if s.Port != 0 {
		out = append(out, "-p", fmt.Sprint(s.Port))
	}
	if s.User != "" {
		out = append(out, "-l", s.User)
	}
	if s.Identity != "" {
		out = append(out, "-i", s.Identity)
	}
	if s.Config != "" {
		out = append(out, "-F", s.Config)
	}
	switch {
	case s.Insecure:
		out = append(out, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
	case s.KnownHosts != "":
		out = append(out, "-o", "UserKnownHostsFile="+s.KnownHosts)
	}
	return out
}

// userMCA reports whether the user has set one of these MCA parameters, on the
// command line or in the environment.
func (b *builder) userMCA(params ...string) bool {
	for _, ctx := range b.Command.Apps {
		for _, o := range ctx.Options {
			if strings.HasSuffix(o.Name, "mca") && len(o.Values) > 0 && slices.Contains(params, o.Values[0]) {
				return true
			}
		}
	}
	for _, p := range params {
		for _, prefix := range []string{"OMPI_MCA_", "PRTE_MCA_"} {
			if _, ok := cmdline.Lookup(b.Env, prefix+p); ok {
				return true
			}
		}
	}
	return false
}

// container makes the environment reach inside the container that the program
// runs in.
func (b *builder) container() {
	for _, ctx := range b.Command.Apps {
		if ctx.Program < ctx.To {
			b.notGiven(b.Command.Wrapped(ctx))
		}
	}
	if len(b.plan.Env) == 0 && len(b.plan.PerHost) == 0 {
		return
	}
	for _, ctx := range b.Command.Apps {
		if ctx.Program >= ctx.To {
			continue
		}
		w := b.Command.Wrapped(ctx)
		switch w.Container {
		case "apptainer":
			b.prefixes = []string{"APPTAINERENV_"}
		case "singularity":
			b.prefixes = []string{"SINGULARITYENV_"}
		case "docker", "podman", "nerdctl", "enroot":
			flag := "-e"
			if w.Container == "enroot" {
				flag = "--env"
			}
			// The user's own go in too: without them the kept values would be lost
			// inside. What the user gave the runtime stands behind and wins there.
			for _, name := range slices.Concat(b.ownNames(), b.usersLibraryVars(w.Inside), []string{cmdline.MarkerName}) {
				b.option(ctx.Program+w.Insert, w.Container+" passes only the variables it is told", flag, name)
			}
		}
	}
	switch b.Command.Container() {
	case "pyxis":
		if b.Command.Apps[0].Last("container-env") == nil {
			b.note("pyxis lets the image's own variables win over the job's; --container-env=NAME makes the job's win")
		}
	case "shifter", "sarus", "oci":
		b.note("whether %s hands the environment on to the program is not known to fabrun", b.Command.Container())
	}
	for _, prefix := range b.prefixes {
		for _, v := range slices.Clone(b.plan.Env) {
			v.Name, v.Why = prefix+v.Name, "the same inside the container, whatever the image sets"
			b.set(v)
		}
	}
}

// notGiven says what the container that is about to start lacks of what the plan
// promises.
func (b *builder) notGiven(w cmdline.Wrapped) {
	missing := w.Missing()
	if !b.Result.RDMA || len(missing) == 0 {
		return
	}
	words := map[topology.Need]string{
		topology.NeedDevices: "/dev/infiniband", topology.NeedMemlock: "unlimited locked memory",
		topology.NeedNetwork: "the host's network", topology.NeedShm: "a large /dev/shm",
	}
	var seen []string
	for _, n := range missing {
		seen = append(seen, words[n])
	}
	kind := w.Container
	switch kind {
	case "nerdctl":
		kind = "docker" // it reads docker's options
	case "singularity":
		kind = "apptainer"
	}
	b.find(finding.Finding{
		ID: "container.not-given", Severity: finding.Warning, Subject: w.Container, Seen: "a container that is not given " + strings.Join(seen, ", "),
		Wanted: "what RDMA needs, inside", Why: "the hosts have what the plan promises, the container has not: the job would fail, or run over TCP",
		Hint: topology.Container{Kind: kind}.Give(missing...),
	})
}

// usersLibraryVars are the names of what the user has set for communication
// libraries in the environment, without those that the container is told anyway.
func (b *builder) usersLibraryVars(inside []string) []string {
	var out []string
	for _, kv := range b.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !cmdline.IsLibraryVar(name) || launcherOnly(name) || slices.Contains(out, name) || slices.Contains(b.ownNames(), name) ||
			slices.ContainsFunc(inside, func(set string) bool { return strings.HasPrefix(set, name+"=") }) {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// ownNames are the names of everything that fabrun sets for the ranks.
func (b *builder) ownNames() []string {
	var out []string
	add := func(v envgen.Var) {
		if !slices.Contains(out, v.Name) && !launcherOnly(v.Name) {
			out = append(out, v.Name)
		}
	}
	for _, v := range b.plan.Env {
		add(v)
	}
	for _, h := range b.plan.PerHost {
		for _, v := range h.Vars {
			add(v)
		}
	}
	return out
}

// launcherOnly are variables that the launcher itself reads and no rank needs.
func launcherOnly(name string) bool {
	return name == cmdline.MarkerName || slices.ContainsFunc(cmdline.Dialects, func(d *cmdline.Dialect) bool {
		return slices.ContainsFunc(d.Own, func(stem string) bool { return strings.HasPrefix(name, stem) })
	})
}

// rankWrapper puts fabrun rank in front of every program where values differ
// per node or rank, or where ranks have to be bound.
func (b *builder) rankWrapper() {
	var t RankTable
	if b.Table != nil {
		t = *b.Table
		t.Hosts, t.Classes = maps.Clone(t.Hosts), slices.Clone(t.Classes)
	}
	b.checkForwarding()
	if b.byArgv {
		for _, v := range b.plan.Env {
			if !launcherOnly(v.Name) {
				t.Vars = append(t.Vars, v.Name+"="+v.Value)
			}
		}
	}
	t.Prefixes = b.prefixes
	if b.plan.Dialect.Alone {
		return
	}
	if !b.Result.RDMA && !t.Bind {
		return
	}
	if len(t.Classes) == 0 && len(t.Vars) == 0 && t.Dir == "" {
		if len(b.plan.PerHost) > 0 {
			b.cannotRank("nothing is known of what differs")
		}
		return
	}
	dialect := b.plan.Dialect
	switch {
	case b.Self == "":
		b.cannotRank("fabrun itself is not found on the job's nodes")
		return
	case b.Command.Opaque != "":
		b.cannotRank("the applications are in the file named by " + b.Command.Opaque)
		return
	case len(b.Command.Doubts()) > 0:
		b.cannotRank(b.Command.Doubts()[0] + ", so where the program begins is not certain")
		return
	case dialect.Elastic != "" && b.Command.Apps[0].Last(dialect.Elastic) != nil:
		b.cannotRank("the hosts of an elastic job come and go")
		return
	case dialect.Workers != nil:
		b.cannotRank("it starts its workers itself")
		return
	case !dialect.Reads():
		b.cannotRank("the place of the program in this command line is not known to fabrun")
		return
	case dialect.StartsContainers() && b.Command.Container() != "":
		b.cannotRank("fabrun is not inside the container image")
		return
	}
	text, err := t.Encode()
	if err != nil {
		b.cannotRank(err.Error())
		return
	}
	const why = "sets what differs per node and rank, binds the rank, then becomes the program"
	words := []string{b.Self, "rank", "--"}
	if b.byArgv {
		words = []string{b.Self, "rank", "--table", text, "--"}
	}
	for _, ctx := range b.Command.Apps {
		if ctx.Program >= ctx.To {
			continue
		}
		if dialect.NoPython != "" {
			if !b.torchProgram(ctx, why, words) {
				return
			}
			continue
		}
		b.wrap(ctx.Program, why, words...)
	}
	b.rank, b.plan.Table = true, &t
	if !b.byArgv {
		b.set(envgen.Var{Name: TableName, Value: text, Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.rank", Why: "what fabrun rank sets on each node"})
	}
}

// torchProgram makes torchrun start fabrun rank: --no-python, and the
// interpreter that torchrun itself would have started.
func (b *builder) torchProgram(ctx cmdline.App, why string, words []string) bool {
	noPython, module := ctx.Last("no-python") != nil, ctx.Last("module") != nil
	switch {
	case ctx.Last("run-path") != nil:
		b.cannotRank("torchrun --run-path starts the script inside its own process")
		return false
	case !noPython && ctx.Last("use-env") == nil && slices.Contains(b.Command.Argv[:b.Command.Launcher.Words], "torch.distributed.launch"):
		// It refuses --no_python without --use_env, which changes the script's arguments.
		b.cannotRank("torch.distributed.launch without --use_env starts Python scripts only: torchrun does the same")
		return false
	case !noPython && b.Program.Python == "":
		b.cannotRank("which Python torchrun starts is not known")
		return false
	case module:
		// -m would have to be taken away from torchrun: the user's words stay.
		b.cannotRank("torchrun -m takes a module, not a program")
		return false
	}
	if !noPython {
		b.option(b.Command.Launcher.Words, why, b.plan.Dialect.NoPython)
		script := path.Base(b.Command.Argv[ctx.Program])
		// The report of a failure names what torchrun has started
		// (torch/distributed/launcher/api.py, _get_entrypoint_name).
		if strings.HasSuffix(script, ".py") && b.set(envgen.Var{
			Name: AsName, Value: script, Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.rank", Why: "torchrun finds fabrun rank under the script's name",
		}) {
			words = []string{script}
		}
		words = append(slices.Clone(words), b.Program.Python, "-u")
	}
	b.wrap(ctx.Program, why, words...)
	return true
}

// cannotRank says what is lost without fabrun rank.
func (b *builder) cannotRank(why string) {
	if b.Table != nil && b.Table.Dir != "" {
		// Without the private directory NCCL and UCX would write into the job's
		// own output.
		n := len(b.plan.Env)
		b.plan.Env = slices.DeleteFunc(b.plan.Env, func(v envgen.Var) bool { return strings.HasPrefix(v.Rule, "log.") })
		if len(b.plan.Env) < n {
			b.note("the libraries' logs are not read: %s", why)
		}
	}
	if b.byArgv && len(b.plan.Env) > 0 {
		b.find(finding.Finding{
			ID: "launcher.rank-impossible", Severity: finding.Warning, Subject: strings.Join(b.ownNames(), " "),
			Seen: why, Wanted: "fabrun rank in front of the program",
			Why: "the launcher drops what it is not told to hand on, so these variables do not reach the ranks", Hint: "--export=ALL",
		})
		return
	}
	if len(b.plan.PerHost) == 0 && (b.Table == nil || !b.Table.Bind) {
		return
	}
	if len(b.plan.PerHost) == 0 && b.plan.Dialect.Workers != nil {
		return // said already
	}
	if len(b.plan.PerHost) == 0 {
		b.note("ranks are not bound by fabrun: %s", why)
		return
	}
	var lost []string
	for _, h := range b.plan.PerHost {
		for _, v := range h.Vars {
			if !slices.Contains(lost, v.Name) {
				lost = append(lost, v.Name)
			}
		}
	}
	hint := "start the program as 'fabrun rank -- PROGRAM'"
	if b.plan.Dialect.Workers != nil && b.plan.Dialect.NoMPI {
		hint = "put fabrun in front of it on each node"
	}
	if b.Command.Launcher.OwnMPI {
		hint = "name the HCAs alike on all nodes, or leave out those that differ"
	}
	b.find(finding.Finding{
		ID: "launcher.rank-impossible", Severity: finding.Warning, Subject: strings.Join(lost, " "),
		Seen: why, Wanted: "fabrun rank in front of the program",
		Why: "these variables differ per node or rank and are not set", Hint: hint,
	})
}

// checkForwarding finds out whether the launcher hands the environment on.
func (b *builder) checkForwarding() {
	by := b.plan.Dialect.Export
	if by == nil {
		return
	}
	for _, ctx := range b.Command.Apps {
		value, where := cmdline.Value(b.Env, by.Variable), by.Variable
		if o := ctx.Last(by.Option); o != nil && len(o.Values) == 1 {
			value, where = o.Values[0], "--"+by.Option
		}
		if value == "" {
			continue
		}
		items := cmdline.SplitExport(value)
		for _, item := range items {
			if item == "ALL" || item == "NONE" || item == "NIL" || item == "" || strings.Contains(item, "=") || !strings.Contains(value, "=") {
				continue
			}
			if _, ok := cmdline.Lookup(b.Env, item); !ok {
				b.find(finding.Finding{
					ID: "srun.export-comma", Severity: finding.Warning, Subject: where,
					Seen: where + "=" + value + ": " + item + " is no variable of this environment", Wanted: "a value with commas in single quotes inside the list",
					Why: "srun splits the list at every comma, so the value before it is cut short", Hint: "export the variable instead and use --export=ALL",
				})
			}
		}
		if slices.Contains(items, "ALL") {
			continue
		}
		if b.byArgv = true; b.Self == "" {
			continue // rankWrapper says what is lost
		}
		b.find(finding.Finding{
			ID: "srun.export", Severity: finding.Note, Subject: where, Seen: where + "=" + value, Wanted: "ALL in the list",
			Why: "srun drops every variable that is not listed", Hint: "fabrun's own variables travel with 'fabrun rank' instead",
		})
	}
}

// forwardNames are variables beside the libraries' that ranks on other hosts
// need when the user has set them: threads and the loader's path.
var forwardNames = []string{"LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_STACKSIZE", "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "CUDA_DEVICE_ORDER", "PYTHONPATH", "OPAL_PREFIX"}

// forwarding makes every variable that fabrun or the user needs reach the
// ranks on the other hosts.
func (b *builder) forwarding() {
	switch by := b.plan.Dialect.Forward; {
	case b.Local || by == nil:
	case by.Option != "":
		b.forwardNamed(by)
	default:
		b.forwardNarrowed(by)
	}
}

// wanted is what the ranks need: fabrun's own, the user's library variables,
// the loader's path, and what the workload says.
func (b *builder) wanted() []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) && !launcherOnly(name) {
			out = append(out, name)
		}
	}
	for _, v := range b.plan.Env {
		add(v.Name)
	}
	var users []string
	for _, kv := range b.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if cmdline.IsLibraryVar(name) || slices.Contains(forwardNames, name) || b.Workload != nil && slices.ContainsFunc(b.Workload.Forward, func(p string) bool {
			ok, err := path.Match(p, name)
			return err == nil && ok
		}) {
			users = append(users, name)
		}
	}
	slices.Sort(users)
	for _, name := range users {
		add(name)
	}
	return out
}

// forwardNamed names to the launcher, for every application, each variable that
// does not go by itself.
func (b *builder) forwardNamed(by *cmdline.Forward) {
	if b.Command.Opaque != "" {
		b.find(finding.Finding{
			ID: "launcher.opaque", Severity: finding.Warning, Subject: b.Command.Opaque,
			Seen: "applications in a file, named by " + b.Command.Opaque, Wanted: "applications on the command line",
			Why:  "mpirun ignores options beside it, so -x cannot be added: ranks on other hosts may miss variables",
			Hint: "add -x NAME to each line of the file",
		})
		return
	}
	if cmdline.Value(b.Env, by.Refuses) != "" {
		b.find(finding.Finding{
			ID: "openmpi.env-list", Severity: finding.Warning, Subject: by.Refuses,
			Seen: "mca_base_env_list is set", Wanted: "-x on the command line",
			Why: "mpirun refuses -x beside it, so fabrun's variables do not reach other hosts", Hint: "unset " + by.Refuses,
		})
		return
	}
	for _, ctx := range b.Command.Apps {
		given := map[string]bool{}
		patterns := []string{}
		for _, o := range ctx.All(strings.TrimLeft(by.Option, "-")) {
			for _, v := range o.Values {
				name, _, set := strings.Cut(v, "=")
				given[name] = true
				if strings.HasSuffix(name, "*") {
					patterns = append(patterns, strings.TrimSuffix(name, "*"))
				}
				b.checkX(by, name, set)
			}
		}
		for _, name := range b.wanted() {
			begins := func(stem string) bool { return strings.HasPrefix(name, stem) }
			if given[name] || slices.ContainsFunc(by.Auto, begins) || by.Star && slices.ContainsFunc(patterns, begins) {
				continue
			}
			b.option(max(ctx.From, b.Command.Launcher.Words), "ranks on other hosts get only what is forwarded", by.Option, name)
		}
	}
}

// checkX judges a user's -x NAME as mpirun will.
func (b *builder) checkX(by *cmdline.Forward, name string, set bool) {
	star := strings.HasSuffix(name, "*")
	_, there := cmdline.Lookup(b.Env, name)
	switch {
	case star && !by.Star:
		b.find(finding.Finding{
			ID: "openmpi.x-star", Severity: finding.Warning, Subject: "-x " + name,
			Seen: "-x " + name + " under Open MPI 4", Wanted: "full names",
			Why: "only Open MPI 5 and later knows the star: 4.1 forwards nothing for it", Hint: "name each variable",
		})
	case !set && !star && !there && !slices.ContainsFunc(b.plan.Env, func(v envgen.Var) bool { return v.Name == name }):
		sev, why := finding.Warning, "mpirun only warns and forwards nothing"
		if by.Strict {
			sev, why = finding.Error, "Open MPI 5 refuses to start"
		}
		b.find(finding.Finding{
			ID: "openmpi.x-unset", Severity: sev, Subject: "-x " + name,
			Seen: "-x " + name + ", and " + name + " is not set", Wanted: "a variable that is set", Why: why, Hint: "leave out -x " + name + ", or give it a value",
		})
	}
}

// forwardNarrowed gives the launcher each variable with its value, where the user
// has switched off that the whole environment is sent.
func (b *builder) forwardNarrowed(by *cmdline.Forward) {
	if len(b.Command.Apps) == 0 || b.Command.Opaque != "" {
		return
	}
	ctx := b.Command.Apps[0]
	off := ctx.Last(by.Narrows...) != nil
	if v := cmdline.Value(b.Env, by.NarrowBy); v != "" && v != "all" {
		off = true
	}
	if !off {
		return
	}
	given := map[string]bool{}
	for _, o := range ctx.All("genv", "env") {
		if len(o.Values) > 0 {
			given[o.Values[0]] = true
		}
	}
	for _, v := range b.plan.Env {
		if !given[v.Name] && !launcherOnly(v.Name) {
			b.option(b.Command.Launcher.Words, "the command line sends only part of the environment", by.Set, v.Name, v.Value)
		}
	}
}

// shims make a script's own mpirun go through fabrun: a private directory first
// in PATH. A script is what is left when the program is no launcher.
func (b *builder) shims() {
	if n := len(b.Hosts.Hosts); b.plan.Dialect.Alone && b.HostsGiven && n > 1 {
		b.note("the %d hosts reach a torchrun or mpirun that %s calls by its name; a torchrun that it finds in another way would run here alone, and so is ended", n, b.Command.Name())
	}
	if !b.plan.Dialect.Alone || b.Self == "" || len(b.Shims) == 0 || b.Command.Container() != "" || !b.Result.RDMA && !b.HostsGiven {
		return
	}
	v := envgen.Var{Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.shims"}
	path := v
	path.Name, path.Value = "PATH", RunDir+"/bin:"+cmdline.Value(b.Env, "PATH")
	path.Why = "a script's own " + strings.Join(b.Shims, ", ") + " go through fabrun"
	v.Name, v.Value, v.Why = cmdline.ShimName, cmdline.ShimValue(RunDir+"/bin", b.Flags), "what those are told"
	b.plan.Shims = b.Shims
	b.plan.Env = append(b.plan.Env, path, v)
}

// marker tells a fabrun inside this job what was set here.
func (b *builder) marker() {
	if len(b.plan.Env) == 0 {
		return
	}
	m := cmdline.Marker{Dialect: b.plan.Dialect.Name}
	for _, v := range b.plan.Env {
		if v.Name != TableName && v.Name != AsName && v.Rule != "launcher.shims" {
			m.Vars = append(m.Vars, v.Name+"="+v.Value)
		}
	}
	b.plan.Env = append(b.plan.Env, envgen.Var{
		Name: cmdline.MarkerName, Value: m.String(), Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.marker",
		Why: "a fabrun inside this job knows these values as fabrun's own",
	})
}

// assemble joins the user's words and the insertions.
func (b *builder) assemble() {
	for i := 0; i <= len(b.Command.Argv); i++ {
		b.plan.Argv = append(b.plan.Argv, b.options[i]...)
		b.plan.Argv = append(b.plan.Argv, b.front[i]...)
		if i < len(b.Command.Argv) {
			b.plan.Argv = append(b.plan.Argv, Arg{Text: b.Command.Argv[i], Origin: envgen.FromUser})
		}
	}
}

// ownWorkers says what ranks that somebody else starts get, and what they miss.
func (b *builder) ownWorkers(who, reach string) {
	severity := finding.Note
	if b.HostsGiven {
		severity = finding.Warning // the headline says how many
		reach = "the hosts given to fabrun are not handed to it; " + reach
	}
	b.find(finding.Finding{
		ID: "launcher.own-workers", Severity: severity, Subject: b.Command.Name(), Seen: who + " starts its workers itself", Wanted: "",
		Why: "they get what holds for the whole node; a choice for each (the NIC nearest to its GPU for UCX, its cores and memory) is missing", Hint: reach,
	})
}

// carried sees to it that variables reach workers on other hosts, where their
// launcher carries some by name only.
func (b *builder) carried() {
	w := b.plan.Dialect.Workers
	if w == nil || w.Carries == nil {
		return
	}
	var names, stems []string
	for _, name := range b.ownNames() {
		if slices.ContainsFunc(w.Carries, func(stem string) bool { return strings.HasPrefix(name, stem) }) {
			continue
		}
		names = append(names, name)
		if stem, _, _ := strings.Cut(name, "_"); !slices.Contains(stems, stem+"_") {
			stems = append(stems, stem+"_")
		}
	}
	switch {
	case len(names) == 0:
	case w.More != "":
		b.set(envgen.Var{
			Name: w.More, Value: strings.Join(stems, ","), Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.carried",
			Why: "it carries to workers on other hosts what begins with " + strings.Join(w.Carries, ", ") + ", and with these",
		})
	default:
		b.note("to workers on other hosts go only variables that begin with %s; %s by %s", strings.Join(w.Carries, ", "), strings.Join(names, ", "), w.Other)
	}
}

// launcherFindings are about the launcher itself.
func (b *builder) launcherFindings() {
	l := b.Command.Launcher
	switch {
	case l.Dialect.Workers != nil:
		b.ownWorkers(l.Family, l.Dialect.Workers.Reach)
	case l.Dialect.Alone && b.Command.InContainer() != "":
		b.ownWorkers(b.Command.InContainer()+" in "+b.Command.Container(), "fabrun is not in the image: 'srun … fabrun', or fabrun in front of it on each node, plans for each node")
	case !l.Dialect.Alone && !l.Dialect.Reads():
		hint, severity := "", finding.Note
		if b.HostsGiven {
			severity = finding.Warning // the headline says how many
			hint = "the hosts given to fabrun are not handed to it: use its own option for them"
		}
		b.find(finding.Finding{
			ID: "launcher.unknown", Severity: severity, Subject: b.Command.Name(),
			Seen: l.Note, Wanted: "a launcher whose command line fabrun reads",
			Why: "it gets the environment, and its command line is left as it is; whether the variables reach other hosts is its own affair", Hint: hint,
		})
	case l.Note != "":
		b.note("%s: %s", b.Command.Name(), l.Note)
	}
	if name := cmdline.ClearsEnvironment(b.Command.Argv); l.Dialect.Alone && name != "" {
		b.find(finding.Finding{
			ID: "launcher.env-cleared", Severity: finding.Warning, Subject: "env -i",
			Seen: "env -i in front of " + name, Wanted: "an environment that reaches the launcher",
			Why: "nothing of what fabrun sets arrives, so the launcher is left alone", Hint: "env -i NAME=VALUE … fabrun " + name + " …, in this order",
		})
	}
	if l.Dialect.Alone && len(b.Command.Argv) > 1 && slices.Contains([]string{"sudo", "doas", "su", "runuser", "ssh"}, path.Base(b.Command.Argv[0])) {
		name := path.Base(b.Command.Argv[0])
		b.find(finding.Finding{
			ID: "launcher.other-environment", Severity: finding.Warning, Subject: name,
			Seen: name + " in front of the program", Wanted: "fabrun behind it",
			Why: name + " starts the program with another environment and PATH: what fabrun sets does not arrive", Hint: name + " … fabrun PROGRAM, in this order",
		})
	}
	if want := b.Program.MPIKind; want != "" && l.MPIKind != "" && want != l.MPIKind && !abiTwins(want, l.MPIKind) {
		b.find(finding.Finding{
			ID: "launcher.mismatch", Severity: finding.Error, Subject: path.Base(first(b.plan.Program)),
			Seen: "the program is linked with " + want + " (" + b.Program.Source + ") and started by " + l.Family, Wanted: "launcher and program of one MPI",
			Why: "every rank would take itself for rank 0 of 1", Hint: "use the mpirun of " + want + ", or rebuild the program",
		})
	}
	if kind := cmp.Or(b.Command.MPIType(b.Env), b.Program.SrunMPI); l.Dialect.MPIType.Option != "" && b.Program.MPIKind != "" && kind == "none" {
		why, hint := "every rank would take itself for rank 0 of 1", "srun --mpi=pmi2, or pmix: 'srun --mpi=list' says what there is"
		if b.Program.MPIKind == "openmpi" {
			why = "MPI_Init ends the job, or every rank takes itself for rank 0 of 1"
			hint = "srun --mpi=pmix ('srun --mpi=list' says whether it is there), or mpirun inside the allocation"
		}
		b.find(finding.Finding{
			ID: "srun.mpi-none", Severity: finding.Error, Subject: path.Base(b.Command.Executable()),
			Seen: "srun --mpi=none, and the program is linked with " + b.Program.MPIKind + " (" + b.Program.Source + ")", Wanted: "a way for the tasks to find each other",
			Why: why, Hint: hint,
		})
	}
	if by := l.Dialect.RefusesRoot; by != nil && b.Root && !b.allowed(by) {
		b.find(finding.Finding{
			ID: "openmpi.root", Severity: finding.Warning, Subject: "user root",
			Seen: "this runs as root", Wanted: "another user",
			Why: "mpirun refuses to run as root unless it is told to; fabrun never tells it", Hint: "set " + strings.Join(by.Variables, "=1 and ") + "=1 if you mean it",
		})
	}
	if l.MPIKind == "openmpi" {
		_, job := cmdline.Lookup(b.Env, "SLURM_JOBID")
		_, list := cmdline.Lookup(b.Env, "SLURM_NODELIST")
		_, tasks := cmdline.Lookup(b.Env, "SLURM_TASKS_PER_NODE")
		if job && list && !tasks {
			b.find(finding.Finding{
				ID: "slurm.leftover", Severity: finding.Error, Subject: "SLURM_TASKS_PER_NODE",
				Seen: "SLURM_JOBID and SLURM_NODELIST are set, SLURM_TASKS_PER_NODE is not", Wanted: "all of them, or none",
				Why: "mpirun takes this for a Slurm allocation and stops", Hint: "unset SLURM_JOBID SLURM_NODELIST if this is no Slurm job",
			})
		}
	}
	if pml := l.Dialect.OwnPML; pml != "" {
		b.find(finding.Finding{
			ID: "horovod.pml", Severity: finding.Note, Subject: "horovodrun", Seen: "horovodrun gives mpirun '" + pml + "' itself",
			Wanted: "pml ucx for MPI traffic", Why: "its own options win over fabrun's pml; NCCL is not touched by it", Hint: `--mpi-args="--mca pml ucx" where MPI itself carries data`,
		})
	}
	for _, d := range b.Command.Doubts() {
		b.note("%s: where the program begins is not certain", d)
	}
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// abiTwins are MPIs whose launchers and libraries go together: the MPICH ABI.
func abiTwins(a, b string) bool {
	abi := []string{"mpich", "intelmpi", "mvapich"}
	return slices.Contains(abi, a) && slices.Contains(abi, b)
}

// allowed reports whether the user has told the launcher to do it.
func (b *builder) allowed(r *cmdline.Refusal) bool {
	return !slices.ContainsFunc(r.Variables, func(name string) bool { return cmdline.Value(b.Env, name) != "1" }) ||
		slices.ContainsFunc(b.Command.Apps, func(c cmdline.App) bool { return c.Last(r.Option) != nil })
}
