package cmdline

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fabrun/envgen"
	"fabrun/envgen/vars"
)

// Command is a user's command line, understood: which launcher, its options,
// its applications. The words themselves are never changed.
type Command struct {
	Launcher Launcher
	Argv     []string
	// Opaque is the option that makes the launcher take its applications from
	// a file ("--app"): nothing may be added beside it. "" none.
	Opaque string
	Apps   []App
}

// Parse reads a command line in the dialect of its launcher. It never fails:
// what it cannot read is kept as it is and named by Doubts.
func Parse(l Launcher, argv []string) Command {
	c := Command{Launcher: l, Argv: argv}
	g := grammarOf(l.Dialect)
	if g == nil || l.Words > len(argv) {
		at := 0
		if l.Dialect == Unknown {
			at = len(argv)
		}
		c.Apps = []App{{From: 0, To: len(argv), Program: at, Dashes: -1}}
		return c
	}
	from := l.Words
	for from <= len(argv) {
		to := len(argv)
		if g.colon {
			if n := slices.Index(argv[from:], ":"); n >= 0 {
				to = from + n
			}
		}
		ctx := g.split(g, argv[:to], from)
		for _, name := range g.opaque {
			if o := ctx.Last(name); o != nil {
				c.Opaque = argv[o.At]
			}
		}
		c.Apps = append(c.Apps, ctx)
		if to == len(argv) {
			break
		}
		from = to + 1
	}
	return c
}

// Doubts says why the place of a program in the command line is not certain,
// once per reason.
func (c Command) Doubts() []string {
	var out []string
	for _, ctx := range c.Apps {
		if ctx.Doubt != "" && !slices.Contains(out, ctx.Doubt) {
			out = append(out, ctx.Doubt)
		}
	}
	return out
}

// Programs returns every application's program with its arguments.
func (c Command) Programs() [][]string {
	var out [][]string
	for _, ctx := range c.Apps {
		if ctx.Program < ctx.To {
			out = append(out, c.Argv[ctx.Program:ctx.To])
		}
	}
	return out
}

// Program is the first application's program with its arguments; nil where the
// command line has none.
func (c Command) Program() []string {
	if all := c.Programs(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Ranks is how many ranks the user asked for over all applications; nil where
// one of them does not say.
func (c Command) Ranks() *int {
	names := []string{"np"}
	switch c.Launcher.Dialect {
	case Srun:
		names = []string{"ntasks"}
		if n := c.stepTasks(); n != nil {
			return n
		}
	case Horovodrun:
		names = []string{"num-proc"}
	case Torchrun, Plain, Unknown:
		return nil
	}
	sum := 0
	for _, ctx := range c.Apps {
		o := ctx.Last(names...)
		if o == nil || len(o.Values) == 0 {
			return nil
		}
		n, err := strconv.Atoi(o.Values[0])
		if err != nil || n < 0 || n > 1<<24 {
			return nil
		}
		sum += n
	}
	return &sum
}

// stepTasks is an srun step's number of tasks where it is given per node.
func (c Command) stepTasks() *int {
	nodes := c.Nodes()
	if nodes == nil || len(c.Apps) != 1 || c.Apps[0].Last("ntasks") != nil {
		return nil
	}
	o := c.Apps[0].Last("ntasks-per-node")
	if o == nil || len(o.Values) == 0 {
		return nil
	}
	per, err := strconv.Atoi(o.Values[0])
	if err != nil || per < 1 || per > 1<<16 {
		return nil
	}
	n := *nodes * per
	return &n
}

// hostOptions are the options by which a user says where a job runs.
var hostOptions = map[string][]string{
	OpenMPI4:   {"hostfile", "host", "default-hostfile", "rankfile"},
	OpenMPI5:   {"hostfile", "host", "default-hostfile", "rankfile"},
	MPICH:      {"hostfile", "hosts", "host", "rankmap"},
	IntelMPI:   {"hostfile", "hosts", "host", "hosts-group", "rankmap"},
	Srun:       {"nodelist", "nodefile"},
	Horovodrun: {"hosts", "hostfile", "host-discovery-script"},
}

// hostTwins are the variables that say the same as hostOptions.
var hostTwins = map[string][]string{
	OpenMPI4: {"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_rankfile"},
	// Open MPI 5 does not read the orte_ names that the Kubeflow operator still sets.
	OpenMPI5:   {"PRTE_MCA_prte_default_hostfile", "OMPI_MCA_prte_default_hostfile"},
	MPICH:      {"HYDRA_HOST_FILE", "HYDRA_CONFIG_FILE"},
	IntelMPI:   {"I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_HOSTS_GROUP", "HYDRA_HOST_FILE", "I_MPI_HYDRA_MACHINE_FILE"},
	Srun:       {"SLURM_HOSTFILE"},
	Horovodrun: nil,
}

// HostSource is where the user's own command line or environment says that the
// job runs.
type HostSource struct {
	Option string // as typed: "--hostfile", "-H"; or the variable's name
	File   string // a hostfile to read; "" when List holds the hosts
	List   string // "n1:4,n2"
}

// HostSource returns the first of the user's own choices of hosts; nil where
// there is none.
func (c Command) HostSource(env []string) *HostSource {
	if all := c.HostSources(env); len(all) > 0 {
		return &all[0]
	}
	return nil
}

// HostSources returns the user's own choice of hosts, one for each application
// that has its own.
func (c Command) HostSources(env []string) []HostSource {
	var out []HostSource
	for _, ctx := range c.Apps {
		for _, name := range hostOptions[c.Launcher.Dialect] {
			o := ctx.Last(name)
			if o == nil {
				continue
			}
			s := HostSource{Option: c.Argv[o.At]}
			if len(o.Values) > 0 {
				switch name {
				case "hostfile", "default-hostfile", "nodefile":
					s.File = o.Values[0]
				case "host", "hosts", "nodelist", "hosts-group":
					s.List = o.Values[0]
				}
			}
			if c.Launcher.Dialect == Srun && strings.Contains(s.List, "/") {
				// srun -w takes a file's name as well as a list (srun(1)).
				s.File, s.List = s.List, ""
			}
			out = append(out, s)
			break
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, name := range hostTwins[c.Launcher.Dialect] {
		if v, ok := Lookup(env, name); ok && v != "" && v != "none" {
			s := HostSource{Option: name, File: v}
			if name == "I_MPI_HYDRA_HOSTS_GROUP" {
				s.File, s.List = "", v
			}
			return []HostSource{s}
		}
	}
	return nil
}

// HostVariable is the variable by which a launcher is told a hostfile; "" where
// it has none.
func (l Launcher) HostVariable() string {
	if all := hostTwins[l.Dialect]; len(all) > 0 {
		return all[0]
	}
	return ""
}

// managersRead are the resource managers whose allocation a launcher reads by
// itself. Sources: orte/mca/ras of v4.1 and prrte 3.0's src/mca/ras (both may be
// built with fewer), hydra's tools/bootstrap and rmk, horovod/runner/launch.py.
var managersRead = map[string][]string{
	OpenMPI4:   {"slurm", "pbs", "lsf", "sge"},
	OpenMPI5:   {"slurm", "pbs", "lsf", "sge", "flux"},
	MPICH:      {"slurm", "pbs", "lsf", "sge", "cobalt"},
	IntelMPI:   {"slurm", "pbs", "lsf", "sge"},
	Srun:       {"slurm"},
	Horovodrun: {"lsf"},
}

// ReadsManager reports whether a launcher finds the hosts of this source of an
// allocation by itself.
func (l Launcher) ReadsManager(source string) bool {
	if l.Managers != nil {
		return slices.Contains(l.Managers, source)
	}
	return slices.Contains(managersRead[l.Dialect], source)
}

// OpenMPIManagers reads which resource managers an Open MPI 4 was built for
// from "ompi_info --parsable"; nil where the text does not say.
func OpenMPIManagers(text string) []string {
	var out []string
	for component, manager := range map[string]string{"slurm": "slurm", "tm": "pbs", "lsf": "lsf", "gridengine": "sge"} {
		if strings.Contains(text, "mca:ras:"+component+":") {
			out = append(out, manager)
		}
	}
	slices.Sort(out)
	return out
}

// Nodes is how many nodes an srun step asks for; nil where it does not say, or
// other launchers.
func (c Command) Nodes() *int {
	if c.Launcher.Dialect != Srun {
		return nil
	}
	sum := 0
	for _, ctx := range c.Apps {
		o := ctx.Last("nodes")
		if o == nil || len(o.Values) == 0 {
			return nil
		}
		low, _, _ := strings.Cut(o.Values[0], "-") // MIN[-MAX]
		n, err := strconv.Atoi(low)
		if err != nil || n < 1 || n > 1<<20 {
			return nil
		}
		sum += n
	}
	return &sum
}

// TakesNP reports whether a number of ranks could be added to the command line:
// one application of an MPI, without an option that counts in another way.
func (c Command) TakesNP() bool {
	switch c.Launcher.Dialect {
	case OpenMPI4, OpenMPI5, MPICH, IntelMPI:
	default:
		return false
	}
	return len(c.Apps) == 1 && c.Opaque == "" && len(c.Doubts()) == 0 && c.Program() != nil &&
		c.Apps[0].Last("npernode", "pernode", "npersocket", "N", "ppr", "map-by", "np", "ppn", "rankfile", "soft") == nil
}

// Oversubscribes reports whether the user allows more ranks than slots.
func (c Command) Oversubscribes() bool {
	return slices.ContainsFunc(c.Apps, func(ctx App) bool {
		o := ctx.Last("map-by")
		return ctx.Last("oversubscribe", "overcommit") != nil ||
			o != nil && len(o.Values) > 0 && strings.Contains(strings.ToLower(o.Values[0]), "oversubscribe")
	})
}

// CountsThreads reports whether the user has hardware threads counted as slots.
func (c Command) CountsThreads() bool {
	return slices.ContainsFunc(c.Apps, func(ctx App) bool {
		o := ctx.Last("map-by", "bind-to")
		return ctx.Last("use-hwthread-cpus") != nil || o != nil && len(o.Values) > 0 && strings.Contains(strings.ToLower(o.Values[0]), "hwt")
	})
}

// SaysMPIType reports whether the user told srun how its tasks find each other.
func (c Command) SaysMPIType(env []string) bool {
	return Value(env, "SLURM_MPI_TYPE") != "" || slices.ContainsFunc(c.Apps, func(ctx App) bool { return ctx.Last("mpi") != nil })
}

// MPIType is what srun is told of that; "" nothing.
func (c Command) MPIType(env []string) string {
	for _, ctx := range c.Apps {
		if o := ctx.Last("mpi"); o != nil && len(o.Values) > 0 {
			return o.Values[0]
		}
	}
	return Value(env, "SLURM_MPI_TYPE")
}

// mappingOptions say that the user has placed or bound the ranks himself.
// Source: schizo_ompi.c, hydra's and srun's help.
var mappingOptions = map[string][]string{
	OpenMPI4: strings.Fields("map-by rank-by bind-to bind-to-core bind-to-socket bycore bynode byslot npernode pernode npersocket N ppr rankfile cpu-set cpu-list cpus-per-proc use-hwthread-cpus"),
	OpenMPI5: strings.Fields("map-by rank-by bind-to bind-to-core bind-to-socket bycore bynode byslot npernode pernode npersocket N ppr rankfile cpu-set cpu-list cpus-per-proc use-hwthread-cpus"),
	MPICH:    strings.Fields("bind-to map-by membind rankmap ppn order-nodes"),
	IntelMPI: strings.Fields("bind-to map-by membind rankmap ppn order-nodes rr"),
	Srun:     strings.Fields("cpu-bind distribution gpu-bind mem-bind ntasks-per-node"),
	Torchrun: {"numa-binding"},
}

// mappingTwins are the variables that say the same as mappingOptions.
var mappingTwins = map[string][]string{
	OpenMPI4: {"OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"},
	OpenMPI5: {"PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"},
	MPICH:    {"HYDRA_BINDING", "HYDRA_MAPPING", "HYDRA_MEMBIND"},
	IntelMPI: {"I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PERHOST"},
	Srun:     {"SLURM_CPU_BIND", "SLURM_DISTRIBUTION"},
}

// UserMaps returns the option or variable by which the user has placed or
// bound ranks; "" where the choice is free.
func (c Command) UserMaps(env []string) string {
	for _, ctx := range c.Apps {
		for _, o := range ctx.Options {
			if slices.Contains(mappingOptions[c.Launcher.Dialect], o.Name) {
				return c.Argv[o.At]
			}
		}
	}
	for _, name := range mappingTwins[c.Launcher.Dialect] {
		if v, ok := Lookup(env, name); ok && v != "" {
			return name
		}
	}
	for _, p := range append([][]string{c.Argv}, c.Programs()...) {
		if f := readFront(p); f.Binder != "" {
			return f.Binder
		}
	}
	return ""
}

// IsLibraryVar reports whether a communication library reads a variable.
func IsLibraryVar(name string) bool {
	return vars.Library(name)
}

// Settings returns what the user has set for communication libraries, in the
// environment and on the command line, in a stable order; a variable that is
// set in both places is there once, with the value that the ranks will see.
// Variables that an outer fabrun set are not the user's.
func (c Command) Settings(env []string) []envgen.Setting {
	env = EnvAt(c.Argv, env)
	marker := ParseMarker(env)
	var out []envgen.Setting
	put := func(s envgen.Setting) {
		s.Origin = envgen.FromUser
		if i := slices.IndexFunc(out, func(o envgen.Setting) bool { return o.Name == s.Name }); i >= 0 {
			out[i] = s
			return
		}
		out = append(out, s)
	}
	names := map[string]bool{}
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || names[name] || !IsLibraryVar(name) {
			continue
		}
		names[name] = true
		value, _ := Lookup(env, name)
		if marker.Owns(name, value) {
			continue
		}
		put(envgen.Setting{Name: name, Value: value, Where: "environment"})
	}
	slices.SortFunc(out, func(a, b envgen.Setting) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range c.Given() {
		put(s)
	}
	return out
}

// RankEnv are the variables that the job's ranks see, by name, as far as the
// command line and the environment that the launcher is started with tell.
func (c Command) RankEnv(env []string) map[string]string {
	set := map[string]string{}
	for _, kv := range EnvAt(c.Argv, env) {
		if name, v, ok := strings.Cut(kv, "="); ok {
			set[name] = v
		}
	}
	for _, s := range c.Given() {
		set[s.Name] = s.Value
	}
	return set
}

// readable is the command line in a dialect whose options are read. An mpirun
// that did not say whose it is is read as the MPI to which its words make sense.
func (c Command) readable() Command {
	l := c.Launcher
	if l.Dialect != Unknown || l.Words < 1 || l.Words > len(c.Argv) || !slices.Contains(mpiNames, path.Base(c.Argv[l.Words-1])) {
		return c
	}
	for _, l.Dialect = range []string{OpenMPI5, OpenMPI4, MPICH, IntelMPI} {
		if read := Parse(l, c.Argv); len(read.Doubts()) == 0 {
			return read
		}
	}
	return c
}

// Given is what the command line itself sets for the ranks: what stands behind
// the program is the program's.
func (c Command) Given() []envgen.Setting {
	c = c.readable()
	var out []envgen.Setting
	put := func(name, value, where string) {
		out = append(out, envgen.Setting{Name: name, Value: value, Origin: envgen.FromUser, Where: where + " on the command line"})
	}
	for _, ctx := range c.Apps {
		for _, o := range ctx.Options {
			typed := c.Argv[o.At]
			switch c.Launcher.Dialect {
			case OpenMPI4, OpenMPI5:
				switch {
				case o.Name == "x" && len(o.Values) == 1:
					if name, value, ok := strings.Cut(o.Values[0], "="); ok {
						put(name, value, typed)
					}
				case len(o.Values) == 2 && o.Values[0] == "mca_base_env_list":
					for item := range strings.SplitSeq(o.Values[1], ";") {
						if name, value, ok := strings.Cut(item, "="); ok {
							put(name, value, o.Values[0])
						}
					}
				case len(o.Values) == 2 && mcaPrefix[o.Name] != "":
					put(mcaPrefix[o.Name]+o.Values[0], o.Values[1], typed)
				}
			case MPICH, IntelMPI:
				if (o.Name == "genv" || o.Name == "env") && len(o.Values) == 2 {
					put(o.Values[0], o.Values[1], typed)
				}
			case Srun:
				if o.Name == "export" && len(o.Values) == 1 {
					for _, item := range SplitExport(o.Values[0]) {
						if name, value, ok := strings.Cut(item, "="); ok {
							put(name, value, "--export")
						}
					}
				}
			}
		}
		if ctx.Program < ctx.To {
			w := walk(c.Argv[ctx.Program:ctx.To])
			for _, kv := range w.Env {
				name, value, _ := strings.Cut(kv, "=")
				put(name, value, "env")
			}
			for _, kv := range w.Inside {
				name, value, _ := strings.Cut(kv, "=")
				put(name, value, w.Container)
			}
		}
	}
	return out
}

var mcaPrefix = map[string]string{
	"mca": "OMPI_MCA_", "gmca": "OMPI_MCA_", "omca": "OMPI_MCA_", "gomca": "OMPI_MCA_",
	"prtemca": "PRTE_MCA_", "gprtemca": "PRTE_MCA_", "pmixmca": "PMIX_MCA_", "gpmixmca": "PMIX_MCA_",
}

// SplitExport splits srun's --export list at its commas, except inside single
// or double quotes. Source: slurm src/common/env.c, find_quote_token.
func SplitExport(list string) []string {
	var out []string
	quote, from := byte(0), 0
	for i := 0; i < len(list); i++ {
		switch ch := list[i]; {
		case quote != 0:
			if ch == quote {
				quote = 0
			}
		case ch == '\'' || ch == '"':
			quote = ch
		case ch == ',':
			out = append(out, strings.Trim(list[from:i], `'"`))
			from = i + 1
		}
	}
	return append(out, strings.Trim(list[from:], `'"`))
}

// Lookup returns the last value of name in an environment.
func Lookup(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// Value is what a name has in an environment; "" also where it is not there.
func Value(env []string, name string) string {
	v, _ := Lookup(env, name)
	return v
}

// StartDir is the directory in which the ranks start, as far as the command line
// tells, where the launcher is started in here.
func (c Command) StartDir(here string) string {
	if said := c.WorkDir(); filepath.IsAbs(said) {
		return said
	} else if said != "" {
		return filepath.Join(here, said)
	}
	return here
}

// Name is how the user called the launcher.
func (c Command) Name() string { return c.Argv[LauncherAt(c.Argv)] }

// Executable is the first of Executables; "" where there is none.
func (c Command) Executable() string {
	if all := c.Executables(); len(all) > 0 {
		return all[0]
	}
	return ""
}

// Executables are the files that the ranks of each application run in the end,
// behind numactl and its kind, as far as that is certain and not in a container.
func (c Command) Executables() []string {
	var out []string
	for _, words := range c.Programs() {
		if w := walk(words); w.Doubt == "" && w.Container == "" && w.Runner == "" && w.At < len(words) {
			out = append(out, words[w.At])
		}
	}
	return out
}

// WorkDir is where the user said that ranks start; "" where they start here.
func (c Command) WorkDir() string {
	for _, ctx := range c.Apps {
		if o := ctx.Last("wdir", "chdir"); o != nil && len(o.Values) > 0 {
			return o.Values[0]
		}
	}
	return ""
}

// Preloads reports whether the launcher brings the program to the nodes itself.
func (c Command) Preloads() bool {
	return slices.ContainsFunc(c.Apps, func(ctx App) bool {
		return ctx.Last("preload-binary", "preload-files", "bcast") != nil
	})
}

// Container names the container runtime that the program runs in; "" none, as
// far as the command line tells.
func (c Command) Container() string {
	for _, ctx := range c.Apps {
		if c.Launcher.Dialect == Srun {
			if ctx.Last("container-image", "container-name") != nil {
				return "pyxis"
			}
			if ctx.Last("container") != nil {
				return "oci"
			}
		}
		if ctx.Program < ctx.To {
			if w := walk(c.Argv[ctx.Program:ctx.To]); w.Container != "" {
				return w.Container
			}
		}
	}
	return ""
}
