package cmdline

import (
	"slices"
	"strings"

	"fabrun/launcher/hosts"
	"fabrun/topology"
)

// Dialect is the language of one launcher: how its command line is read, and how
// it is told hosts, ranks and variables. A field that is empty is something that
// this launcher does not have, or that fabrun leaves to it. The values are in
// dialects.go; nothing else in fabrun asks which dialect it is.
type Dialect struct {
	Name string // in plans, records and FABRUN_SET

	// Alone: no launcher at all, a program or a script.
	Alone bool
	// MPI is the MPI that it belongs to, as in envgen.Versions.MPIKind; "" none.
	MPI string
	// NoMPI: its ranks are no MPI's, and may carry data by Gloo, which knows no RDMA.
	NoMPI bool
	// Python: what its ranks run is Python's, which finds it in its own way.
	Python bool
	// PerNode: it is started once on each node of the job, and makes the ranks there.
	PerNode bool
	// Manager is the resource manager whose own launcher it is: it gets its hosts
	// from there and nowhere else; "" none.
	Manager string

	// Workers: it starts its ranks where fabrun cannot stand in front of one of
	// them; nil: fabrun can, or it is not known.
	Workers *Workers

	// How it is recognised.
	family    string                             // what it calls itself, where its command line is not read
	programs  []string                           // names that say it for certain
	asked     bool                               // which are asked for their version
	scripted  bool                               // which scripts call by name
	modules   []string                           // of "python -m"
	says      func(text string) (Launcher, bool) // what an mpirun, which every MPI has, answers when asked for its version
	files     []string                           // what an mpirun that does not answer is called; ".mpich" is an ending
	installed func(topology.Software) (Launcher, bool)
	usual     string // the name to be put in front of words that make sense to it only; "" not offered

	// How its command line is read.
	grammar    func() *grammar // nil: it is not read
	ranks      []string        // options for the number of ranks of an application
	ranksOf    func(Command) *int
	nodes      string   // the option for the number of nodes
	components []string // options that name parts of a heterogeneous allocation
	hosts      []hostOption
	hostTwins  []hostTwin                                                        // variables that say the same
	mapping    []string                                                          // options by which the user places or binds ranks
	mapTwins   []string                                                          // variables that say the same
	gives      func(o Option, typed string, put func(name, value, where string)) // what an option sets for the ranks
	containers []containerOption                                                 // with which it starts the ranks in a container itself

	// Managers are the resource managers whose allocation it reads by itself.
	// Sources: orte/mca/ras of v4.1 and prrte 3.0's src/mca/ras (both may be built
	// with fewer), hydra's tools/bootstrap and rmk, horovod/runner/launch.py.
	Managers []string
	BuiltFor *BuiltFor
	// HostList reads what its options for hosts hold; nil: a list expression.
	HostList func(list string) (hosts.Allocation, error)
	// Local is where its ranks find their number on their node.
	Local []hosts.LocalNames

	// How it is told.
	NP          string   // the option for the number of ranks; "": none can be added
	BindCore    []string // options for a core for each rank
	Hostfile    Hostfile
	HostOption  string               // "--nodelist=", joined to a list of names
	Even        func(n int) []string // options for n ranks on each node
	Uneven      Uneven               // where nodes get different numbers of them
	Sequence    *Sequence            // ranks in an order of hosts that is not the manager's
	SSH         *SSHVariable         // how it reaches hosts
	Forward     *Forward             // how variables reach the ranks of other hosts; nil: all do, or not by its doing
	Export      *Export              // the list that narrows them
	Own         []string             // beginnings of variables that it reads itself and no rank needs
	Elastic     string               // the option with which hosts come and go during the job
	NoPython    string               // the option that makes it start a program, and no Python script
	MPIType     MPIType              // how its tasks find each other
	RefusesRoot *Refusal             // it does not run as root, unless it is told to
	OwnPML      string               // the options of Open MPI's data path that it gives mpirun itself
}

// Workers is what becomes of an environment in a launcher that starts its ranks by
// itself.
type Workers struct {
	Reach   string   // how a variable gets to them
	Carries []string // beginnings of the variables that go to other hosts by themselves; nil: all do, or none
	More    string   // the variable that names further beginnings; "" none
	Other   string   // what brings the rest there, where no variable does
}

type hostOption struct {
	name string
	kind hostKind
}

type hostKind int

const (
	hostsElse   hostKind = iota // what it names is not read
	hostsFile                   // a hostfile
	hostsList                   // the hosts
	hostsEither                 // a list, or with a '/' a file's name
)

type hostTwin struct {
	name string
	list bool // it holds the hosts, and no file's name
}

type containerOption struct {
	option, runtime string
}

// BuiltFor is how to learn which resource managers a launcher was built for: what
// a program beside it prints.
type BuiltFor struct {
	Program string
	Args    []string
	Always  string                     // the manager that needs no asking
	Read    func(text string) []string // nil where the text does not say
}

// Hostfile is how a launcher takes a file of hosts.
type Hostfile struct {
	Option string // "" it takes none
	Syntax *hosts.Syntax
}

// Uneven is how a launcher inside an allocation is told of numbers of ranks that
// differ between nodes.
type Uneven struct {
	ByHostfile bool     // it keeps to the slots of one
	InTurn     []string // options for one rank each in turn, for numbers that differ by one
}

// Sequence is how ranks are put in an order: a file with a host's name for each.
type Sequence struct {
	Variable string   // which names the file; "" its hostfile option does
	Options  []string // beside it
	Of       string   // what it calls a rank
}

// SSHVariable is the variable that holds ssh's options for a launcher.
type SSHVariable struct {
	Name   string
	Whole  bool     // the value is the whole command
	Params []string // MCA parameters with which the user says it himself
}

// Forward is how a launcher hands variables on.
type Forward struct {
	Option  string   // "-x NAME", for each that does not go by itself
	Auto    []string // beginnings of names that go by themselves
	Star    bool     // "NAME*" names all that begin so
	Strict  bool     // a name that is not set ends the start
	Refuses string   // the variable beside which the option is refused

	Set      string   // "-genv NAME VALUE", where only a part of the environment is sent
	Narrows  []string // options that say so
	NarrowBy string   // the variable that says so, unless it is "all"
}

// Export is the option, and the variable, that lists what reaches the ranks.
type Export struct {
	Option, Variable string
}

// MPIType is the option, and the variable, that says how tasks find each other.
type MPIType struct {
	Option, Variable string
}

// Refusal is what a launcher wants to be told before it does something.
type Refusal struct {
	Option    string
	Variables []string // all of them
}

// Reads reports whether a dialect's command line is read, and so planned for.
func (d *Dialect) Reads() bool { return d.grammar != nil }

// StartsContainers reports whether it starts its ranks in containers itself.
func (d *Dialect) StartsContainers() bool { return d.containers != nil }

// Options reads words as the launcher's options, up to the first that is none.
func (d *Dialect) Options(words []string) App {
	g := d.grammar()
	return g.split(g, words, 0)
}

// Sets calls put for what an option sets for the ranks.
func (d *Dialect) Sets(o Option, typed string, put func(name, value, where string)) {
	if d.gives != nil {
		d.gives(o, typed, put)
	}
}

// Forwards reports whether a word is the option that names a variable to be handed on.
func (d *Dialect) Forwards(word string) bool {
	return d.Forward != nil && d.Forward.Option != "" && strings.TrimLeft(word, "-") == strings.TrimLeft(d.Forward.Option, "-") && strings.HasPrefix(word, "-")
}

// Guess is the dialect of an mpirun that nobody can ask, by its words: the one with
// the fewest options that it does not have, and the most that it has; and the MPI
// where that is one MPI's. "--map-by" and "--report-bindings", which Hydra's users
// write with one dash, are Open MPI's.
func Guess(argv []string) (d *Dialect, mpi string) {
	best := 0
	for _, one := range Dialects {
		if one.MPI == "" {
			continue
		}
		g, score := one.grammar(), 0
		for _, app := range Parse(Launcher{Dialect: one, Words: 1}, argv).Apps {
			for _, o := range app.Options {
				_, there := g.args[o.Name]
				dashes := argv[o.At] == "--report-bindings" || strings.HasPrefix(argv[o.At], "--map-by")
				if !there || dashes && one.Forward.Option == "" {
					score -= 1000
				}
				score++
			}
		}
		switch {
		case d == nil || score > best:
			d, mpi, best = one, one.MPI, score
		case score == best && d.Forward.Option != one.Forward.Option:
			mpi = ""
		}
	}
	return d, mpi
}

// makesSense reports whether words make sense to it: options that it has, all of
// them, and a program.
func (d *Dialect) makesSense(words []string) bool {
	g := d.grammar()
	app := g.split(g, words, 0)
	if app.Doubt != "" || len(app.Options) == 0 || app.Program >= app.To {
		return false
	}
	return !slices.ContainsFunc(app.Options, func(o Option) bool {
		_, there := g.args[o.Name]
		return !there
	})
}

// MakesSenseTo is the launcher whose options words begin with, where somebody has
// left out its name; "" none.
func MakesSenseTo(words []string) string {
	for _, d := range Dialects {
		if d.usual != "" && d.makesSense(words) {
			return d.usual
		}
	}
	return ""
}

// Named is the dialect of a record or a marker; nil where there is none.
func Named(name string) *Dialect {
	if i := slices.IndexFunc(Dialects, func(d *Dialect) bool { return d.Name == name }); i >= 0 {
		return Dialects[i]
	}
	return nil
}
