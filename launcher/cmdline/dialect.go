package cmdline

import (
	"path"
	"slices"
	"strings"

	"fabrun/topology"
)

// The dialects: how a launcher reads its command line.
const (
	OpenMPI4   = "openmpi4"
	OpenMPI5   = "openmpi5"
	MPICH      = "mpich"
	IntelMPI   = "intelmpi"
	Srun       = "srun"
	Torchrun   = "torchrun"
	Horovodrun = "horovodrun"
	Unknown    = "unknown" // a launcher whose command line fabrun does not read
	Plain      = "plain"   // no launcher: a program or a script
)

// Launcher is which launcher a command line starts, as far as its name and its
// version text tell.
type Launcher struct {
	Dialect string
	Family  string // "Open MPI", "HPC-X", "MPICH", "MVAPICH", "Intel MPI", "Slurm", "PyTorch", …; "" for a plain program
	MPIKind string // as in envgen.Versions: "openmpi", "mpich", "intelmpi", "mvapich"; "" none
	Version string // "4.1.4"; "" unknown
	// Words is how many words of the command line lead to and name the launcher:
	// 1, or more for "python -m torch.distributed.run" and "nohup mpirun".
	Words int
	// OwnMPI: a program that brings the MPI and the libraries of its ranks with
	// it (a vendor's solver): what is installed on the hosts says nothing of them.
	OwnMPI bool
	// Managers are the resource managers that it was built to read; nil not known.
	Managers []string
	// Note says why the dialect is not certain; "" when it is.
	Note string
}

// grammar is how the words between launcher and program are read.
type grammar struct {
	split  func(g *grammar, words []string, from int) App
	args   map[string]int // canonical option name → number of values; optional marks one that only '=' gives
	alias  map[string]string
	short  map[byte]string   // one-letter options
	dashed map[string]string // whole words with one dash, as typed → canonical option name
	colon  bool              // a word ":" separates applications
	// opaque options make the launcher take its applications from a file:
	// nothing may be added beside them.
	opaque []string
}

// optional is the arity of an option whose value is only ever joined to it;
// perhaps of one that may take the next word, in a way that is not documented.
const (
	optional = -1
	perhaps  = -2
)

// grammars is the explicit list of dialects whose command line is read.
// Sources: ompi v4.1.8 orte/mca/schizo/ompi/schizo_ompi.c and
// opal/util/cmd_line.c; prrte 3.0.12 src/mca/schizo/ompi/schizo_ompi.c; mpich
// v4.3.0 src/pm/hydra; slurm src/common/slurm_opt.c; torch/distributed/run.py;
// horovod/runner/launch.py; Intel MPI developer reference 2021.15.
var grammars = []struct {
	dialect string
	make    func() *grammar
}{
	{OpenMPI4, openmpi4Grammar},
	{OpenMPI5, openmpi5Grammar},
	{MPICH, mpichGrammar},
	{IntelMPI, intelGrammar},
	{Srun, srunGrammar},
	{Torchrun, torchrunGrammar},
	{Horovodrun, horovodGrammar},
}

// grammarOf makes the grammar of one dialect; nil where there is none.
func grammarOf(dialect string) *grammar {
	for _, g := range grammars {
		if g.dialect == dialect {
			return g.make()
		}
	}
	return nil
}

// Options reads words as the options of a launcher's dialect, up to the first
// that is none; known is false for a dialect whose command line is not read.
func Options(dialect string, words []string) (app App, known bool) {
	g := grammarOf(dialect)
	if g == nil {
		return App{}, false
	}
	return g.split(g, words, 0), true
}

// MakesSense reports whether words make sense to a launcher of this dialect: options
// that it has, all of them, and a program.
func MakesSense(dialect string, words []string) bool {
	app, known := Options(dialect, words)
	if !known || app.Doubt != "" || len(app.Options) == 0 || app.Program >= app.To {
		return false
	}
	g := grammarOf(dialect)
	return !slices.ContainsFunc(app.Options, func(o Option) bool {
		_, there := g.args[o.Name]
		return !there
	})
}

// ReadsCommandLine reports whether a dialect is one whose command line fabrun
// plans for.
func ReadsCommandLine(dialect string) bool {
	for _, g := range grammars {
		if g.dialect == dialect {
			return true
		}
	}
	return false
}

// mpiNames are the programs that must be asked for their version, because
// every MPI installs one of that name.
var mpiNames = []string{
	"mpirun", "mpiexec", "orterun", "prterun", "oshrun", "shmemrun",
	"mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun.hydra",
}

// otherLaunchers are known to start ranks, and their command lines are not read.
var otherLaunchers = []string{
	"mpirun_rsh", "mpiexec_mpt", "mpiexec.slurm", "deepspeed", "accelerate", "flux", "jsrun", "aprun", "ibrun", "prun", "charmrun", "ccmrun", "lrun", "colossalai",
}

// solvers are vendors' programs that start their ranks with an MPI of their
// own. A name that ends in '*' is a beginning that a version follows.
var solvers = []struct{ name, family string }{
	{"fluent", "Ansys Fluent"},
	{"cfx5solve", "Ansys CFX"},
	{"ansys*", "Ansys Mechanical"},
	{"mapdl", "Ansys Mechanical"},
	{"lsdyna*", "LS-DYNA"},
	{"ls-dyna*", "LS-DYNA"},
	{"lsrun", "LS-DYNA"},
	{"starccm+", "STAR-CCM+"},
	{"abaqus", "Abaqus"},
	{"abq*", "Abaqus"},
	{"comsol", "COMSOL"},
	{"nastran", "Nastran"},
	{"optistruct", "Altair OptiStruct"},
	{"radioss", "Altair Radioss"},
	{"exaqsub", "PowerFLOW"},
}

// solverFamily is the vendor's program of that name; "" where it is none.
func solverFamily(base string) string {
	for _, s := range solvers {
		stem, version := strings.CutSuffix(s.name, "*")
		rest, ok := strings.CutPrefix(base, stem)
		if ok && (rest == "" || version && strings.Trim(rest, "0123456789._-") == "") {
			return s.family
		}
	}
	return ""
}

// startsRanks reports whether a command line begins with a launcher's name.
func startsRanks(argv []string) bool {
	base := path.Base(argv[0])
	return slices.Contains(mpiNames, base) || slices.Contains([]string{"srun", "torchrun", "torchrun-script.py", "horovodrun"}, base) ||
		strings.HasPrefix(base, "python") && torchModule(argv) > 0 || slices.Contains(otherLaunchers, base) || solverFamily(base) != ""
}

// daemons are what launchers start on the nodes of a job, through srun for
// example: no ranks, and nothing to plan for.
var daemons = []string{"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy", "mpispawn"}

// StartsDaemon reports whether a launcher was itself started by a launcher, to
// bring its daemons to the nodes: Open MPI's mpirun runs "srun … orted".
func (c Command) StartsDaemon() bool {
	words := c.Program()
	return len(words) > 0 && slices.Contains(daemons, path.Base(words[0]))
}

// Launchers are the names that AsksVersion asks.
func Launchers() []string { return append(slices.Clone(mpiNames), "srun") }

// AsksVersion reports whether the launcher in a command line has to be asked
// for its version before Identify can tell what it is.
func AsksVersion(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	base := path.Base(argv[LauncherAt(argv)])
	return slices.Contains(mpiNames, base) || base == "srun"
}

// Identify says which launcher a command line starts. versionText is what it
// printed when asked for its version ("" when it was not asked or did not
// answer), resolved is the file that the name leads to after all links ("" when
// unknown). The forms of the text: launchers' sources as in grammars, and
// horovod/runner/mpi_run.py for their order.
func Identify(argv []string, versionText, resolved string) Launcher {
	if len(argv) == 0 {
		return Launcher{Dialect: Plain}
	}
	at := LauncherAt(argv)
	l := identify(argv[at:], versionText, resolved)
	if l.Words > 0 {
		l.Words += at
	}
	return l
}

func identify(argv []string, versionText, resolved string) Launcher {
	base := path.Base(argv[0])
	switch {
	case slices.Contains(mpiNames, base):
		return identifyMPI(base, versionText, resolved)
	case base == "srun":
		return Launcher{Dialect: Srun, Family: "Slurm", Version: wordAfter(versionText, "slurm-wlm ", "slurm "), Words: 1}
	case base == "torchrun" || base == "torchrun-script.py":
		return Launcher{Dialect: Torchrun, Family: "PyTorch", Words: 1}
	case base == "horovodrun":
		return Launcher{Dialect: Horovodrun, Family: "Horovod", Words: 1}
	case strings.HasPrefix(base, "python"):
		if n := torchModule(argv); n > 0 {
			return Launcher{Dialect: Torchrun, Family: "PyTorch", Words: n}
		}
	case slices.Contains(otherLaunchers, base):
		return Launcher{Dialect: Unknown, Family: base, Words: 1, Note: "fabrun does not read the command line of " + base}
	}
	if family := solverFamily(base); family != "" {
		return Launcher{Dialect: Unknown, Family: family, Words: 1, OwnMPI: true, Note: family + " starts its ranks with an MPI of its own, which fabrun does not see"}
	}
	return Launcher{Dialect: Plain}
}

func identifyMPI(base, text, resolved string) Launcher {
	hpcx := strings.Contains(resolved, "hpcx") || strings.Contains(resolved, "/hpc-x") || strings.Contains(text, "HPC-X")
	openmpi := func(version string) Launcher {
		l := Launcher{Dialect: OpenMPI4, Family: "Open MPI", MPIKind: "openmpi", Version: version, Words: 1}
		if hpcx {
			l.Family = "HPC-X"
		}
		if major(version) >= 5 {
			l.Dialect = OpenMPI5
		}
		return l
	}
	switch {
	// 4.1 says "Open MPI" only under the name mpirun, and "OpenRTE" under any other.
	case strings.Contains(text, "(Open MPI)"), strings.Contains(text, "(OpenRTE)"), strings.Contains(text, "Open MPI "):
		return openmpi(wordAfter(text, "(Open MPI) ", "(OpenRTE) ", "Open MPI "))
	case strings.Contains(text, "(PRRTE)"), strings.Contains(text, "(PRTE)"), strings.Contains(text, "prterun "):
		l := openmpi("")
		l.Dialect, l.Family = OpenMPI5, "PRRTE"
		return l
	case strings.Contains(text, "IBM Spectrum MPI"):
		return Launcher{Dialect: Unknown, Family: "IBM Spectrum MPI", MPIKind: "openmpi", Words: 1, Note: "fabrun does not read the command line of IBM Spectrum MPI"}
	case strings.Contains(text, "HYDRA build details"), strings.Contains(text, "MPICH"):
		l := Launcher{Dialect: MPICH, Family: "MPICH", MPIKind: "mpich", Version: wordAfter(text, "Version:"), Words: 1}
		if strings.Contains(strings.ToLower(text), "mvapich") {
			l.Family, l.MPIKind = "MVAPICH", "mvapich"
		}
		return l
	case strings.Contains(text, "Intel(R) MPI"):
		return Launcher{Dialect: IntelMPI, Family: "Intel MPI", MPIKind: "intelmpi", Version: wordAfter(text, "Version "), Words: 1}
	}
	// No text, or none that is known: the file's name is the next best.
	file := path.Base(resolved)
	why := "it did not say its version; taken for what its file name says"
	switch {
	case strings.HasSuffix(base, ".openmpi"), file == "orterun", base == "orterun":
		return withNote(openmpi("4"), why)
	case file == "prterun", base == "prterun":
		return withNote(openmpi("5"), why)
	case strings.HasSuffix(base, ".mpich"), strings.HasSuffix(base, ".hydra"), file == "mpiexec.hydra":
		return Launcher{Dialect: MPICH, Family: "MPICH", MPIKind: "mpich", Words: 1, Note: why}
	}
	return Launcher{Dialect: Unknown, Words: 1, Note: "it did not say which MPI it belongs to"}
}

// IdentifyFrom is Identify where the launcher cannot be asked, since the host
// is a snapshot: the MPI that is installed there counts.
func IdentifyFrom(argv []string, installed []topology.Software) Launcher {
	l := Identify(argv, "", "")
	if len(argv) == 0 || !slices.Contains(mpiNames, path.Base(argv[LauncherAt(argv)])) {
		return l
	}
	l = identifyInstalled(l, installed)
	l.Words = LauncherAt(argv) + 1
	return l
}

func identifyInstalled(l Launcher, installed []topology.Software) Launcher {
	var found []topology.Software
	for _, s := range installed {
		switch s.Kind {
		case "openmpi", "hpcx", "mpich", "mvapich", "intelmpi":
			if !slices.ContainsFunc(found, func(f topology.Software) bool { return f.Kind == s.Kind }) {
				found = append(found, s)
			}
		}
	}
	switch {
	case len(found) == 0 && l.Dialect != Unknown:
		return l
	case len(found) == 1:
		s := found[0]
		switch s.Kind {
		case "mpich":
			return Launcher{Dialect: MPICH, Family: "MPICH", MPIKind: "mpich", Version: s.Version, Words: 1}
		case "mvapich":
			return Launcher{Dialect: MPICH, Family: "MVAPICH", MPIKind: "mvapich", Version: s.Version, Words: 1}
		case "intelmpi":
			return Launcher{Dialect: IntelMPI, Family: "Intel MPI", MPIKind: "intelmpi", Version: s.Version, Words: 1}
		}
		o := Launcher{Dialect: OpenMPI4, Family: "Open MPI", MPIKind: "openmpi", Version: s.Version, Words: 1}
		if s.Kind == "hpcx" {
			o.Family, o.Version = "HPC-X", ""
		}
		if major(o.Version) >= 5 {
			o.Dialect = OpenMPI5
		}
		return o
	}
	return Launcher{Dialect: OpenMPI4, Family: "Open MPI", MPIKind: "openmpi", Words: 1, Note: "which MPI it belongs to is not in the snapshot; read as Open MPI 4"}
}

func withNote(l Launcher, note string) Launcher {
	l.Note, l.Version = note, ""
	return l
}

// torchModule returns how many words "python … -m torch.distributed.run" takes
// at the front of argv, or 0.
func torchModule(argv []string) int {
	for i := 1; i < len(argv); i++ {
		switch w := argv[i]; {
		case w == "-m":
			if i+1 < len(argv) && (argv[i+1] == "torch.distributed.run" || argv[i+1] == "torch.distributed.launch") {
				return i + 2
			}
			return 0
		case w == "-W" || w == "-X" || w == "--check-hash-based-pycs":
			i++
		case w == "-c" || w == "-" || !strings.HasPrefix(w, "-"):
			return 0
		}
	}
	return 0
}

// wordAfter returns the first blank-separated word after the first of the
// marks that occurs, without trailing punctuation.
func wordAfter(text string, marks ...string) string {
	for _, mark := range marks {
		if _, rest, ok := strings.Cut(text, mark); ok {
			if line, _, _ := strings.Cut(rest, "\n"); len(strings.Fields(line)) > 0 {
				return strings.TrimRight(strings.Fields(line)[0], ",;.")
			}
		}
	}
	return ""
}

// major returns the number before the first dot; 0 when there is none.
func major(version string) int {
	n := 0
	for i := 0; i < len(version) && version[i] >= '0' && version[i] <= '9' && n < 1e6; i++ {
		n = n*10 + int(version[i]-'0')
	}
	return n
}
