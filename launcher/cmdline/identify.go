package cmdline

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"fabrun/topology"
)

// Launcher is which launcher a command line starts, as far as its name and its
// version text tell.
type Launcher struct {
	Dialect *Dialect
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

// mpiNames are the programs that must be asked for their version, because
// every MPI installs one of that name.
var mpiNames = []string{
	"mpirun", "mpiexec", "orterun", "prterun", "oshrun", "shmemrun",
	"mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun.hydra",
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
	l := identify(argv, "", "")
	return !l.Dialect.Alone
}

// named is the dialect of which a program's name, or Python's words, say for
// certain that it is; words is how many of them do. nil where none does.
func named(argv []string) (d *Dialect, words int) {
	base := path.Base(argv[0])
	module, n := "", 0
	if strings.HasPrefix(base, "python") {
		module, n = pythonModule(argv)
	}
	for _, d := range Dialects {
		switch {
		case slices.Contains(d.programs, base):
			return d, 1
		case module != "" && slices.Contains(d.modules, module):
			return d, n
		}
	}
	return nil, 0
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
func Launchers() []string {
	out := slices.Clone(mpiNames)
	for _, d := range Dialects {
		if d.asked {
			out = append(out, d.programs...)
		}
	}
	return out
}

// AsksVersion reports whether the launcher in a command line has to be asked
// for its version before Identify can tell what it is.
func AsksVersion(argv []string) bool {
	return len(argv) > 0 && slices.Contains(Launchers(), path.Base(argv[LauncherAt(argv)]))
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
	if slices.Contains(mpiNames, base) {
		return identifyMPI(base, versionText, resolved)
	}
	if d, words := named(argv); d != nil {
		l := Launcher{Dialect: Unknown, Family: cmp.Or(d.family, base), Note: "fabrun does not read the command line of " + base}
		if d.Reads() {
			l, _ = d.says(versionText)
		}
		l.Dialect, l.Words = d, words
		return l
	}
	if family := solverFamily(base); family != "" {
		return Launcher{Dialect: Unknown, Family: family, Words: 1, OwnMPI: true, Note: family + " starts its ranks with an MPI of its own, which fabrun does not see"}
	}
	return Launcher{Dialect: Plain}
}

// ofMPI completes what a dialect says of an mpirun.
func ofMPI(d *Dialect, l Launcher, hpcx bool) Launcher {
	l.Dialect, l.Words, l.MPIKind = d, 1, cmp.Or(l.MPIKind, d.MPI)
	if hpcx && l.Family == "Open MPI" {
		l.Family = "HPC-X"
	}
	return l
}

func identifyMPI(base, text, resolved string) Launcher {
	hpcx := strings.Contains(resolved, "hpcx") || strings.Contains(resolved, "/hpc-x") || strings.Contains(text, "HPC-X")
	for _, d := range Dialects {
		if d.says == nil || len(d.programs) > 0 && d.Reads() {
			continue
		}
		if l, ok := d.says(text); ok {
			return ofMPI(d, l, hpcx)
		}
	}
	// No text, or none that is known: the file's name is the next best.
	file := path.Base(resolved)
	for _, d := range Dialects {
		for _, name := range d.files {
			if base == name || file == name || name[0] == '.' && strings.HasSuffix(base, name) {
				l, _ := d.says("")
				l = ofMPI(d, l, hpcx)
				l.Note = "it did not say its version; taken for what its file name says"
				return l
			}
		}
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
	var found []Launcher
	var kinds []string
	for _, s := range installed {
		if slices.Contains(kinds, s.Kind) {
			continue
		}
		for _, d := range Dialects {
			if d.installed == nil {
				continue
			}
			if one, ok := d.installed(s); ok {
				found, kinds = append(found, ofMPI(d, one, false)), append(kinds, s.Kind)
			}
		}
	}
	switch {
	case len(found) == 0 && l.Dialect.Reads():
		return l
	case len(found) == 1:
		return found[0]
	}
	l, _ = OpenMPI4.says("")
	l = ofMPI(OpenMPI4, l, false)
	l.Note = "which MPI it belongs to is not in the snapshot; read as Open MPI 4"
	return l
}

// pythonModule is the module that "python … -m NAME" runs, and how many words
// that takes at the front of argv; "" where it runs none.
func pythonModule(argv []string) (string, int) {
	for i := 1; i < len(argv); i++ {
		switch w := argv[i]; {
		case w == "-m":
			if i+1 < len(argv) {
				return argv[i+1], i + 2
			}
			return "", 0
		case w == "-W" || w == "-X" || w == "--check-hash-based-pycs":
			i++
		case w == "-c" || w == "-" || !strings.HasPrefix(w, "-"):
			return "", 0
		}
	}
	return "", 0
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
