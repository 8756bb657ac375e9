package openfoam

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// Decomposition is what decomposeParDict says.
type Decomposition struct {
	Subdomains  *int   // numberOfSubdomains; nil: absent or not known
	Why         string // why it is not known; "" known or absent
	Method      string // scotch, hierarchical, …; "" not said
	N           []int  // the n vector of simple and hierarchical; nil none
	Distributed bool   // the parts lie in other directories (distributed yes)
	Includes    []string
	Line        int // of numberOfSubdomains
}

// ReadDecomposition reads system/decomposeParDict.
func ReadDecomposition(text []byte) (Decomposition, error) {
	d, err := Parse(text)
	if err != nil {
		return Decomposition{}, err
	}
	out := Decomposition{Method: d.WordOf("method"), Includes: includes(d)}
	if out.Method == "" {
		// OpenFOAM Foundation, version 9 on, names decomposer and distributor apart.
		out.Method = d.WordOf("decomposer")
	}
	if e := d.Lookup("numberOfSubdomains"); e != nil {
		out.Line = e.Line
	}
	n, why, ok := d.Int("numberOfSubdomains")
	switch {
	case ok && n >= 1:
		out.Subdomains = &n
	case ok:
		out.Why = fmt.Sprintf("numberOfSubdomains is %d", n)
	case why != "":
		out.Why = why
	case len(out.Includes) > 0:
		out.Why = "it may come from " + strings.Join(out.Includes, ", ") + ", which is not read"
	}
	switch d.WordOf("distributed") {
	case "yes", "true", "on", "y", "t":
		out.Distributed = true
	}
	for _, name := range []string{out.Method + "Coeffs", "coeffs"} {
		if n, ok := d.Sub(name).Ints("n"); ok && (out.Method == "simple" || out.Method == "hierarchical") {
			out.N = n
			break
		}
	}
	return out, nil
}

// includes returns the files that a dictionary reads besides itself.
func includes(d *Dict) []string {
	var out []string
	for _, dir := range d.Directives {
		if strings.Contains(strings.ToLower(dir.Name), "include") {
			out = append(out, "#"+dir.Name+" "+dir.Args)
		}
	}
	return out
}

// Control is what controlDict says.
type Control struct {
	Application string // "" not said
}

// ReadControl reads system/controlDict.
func ReadControl(text []byte) (Control, error) {
	d, err := Parse(text)
	if err != nil {
		return Control{}, err
	}
	return Control{Application: d.WordOf("application")}, nil
}

// Case is what was found of a case on disk.
type Case struct {
	Dir           string         // as the user would write it; "." for here
	DictPath      string         // of decomposeParDict, for messages
	Decomposition *Decomposition // nil: there is no decomposeParDict
	Control       *Control       // nil: there is no controlDict
	Processors    *Processors    // nil: the directory could not be looked at
}

// Processors are the parts that lie in a case directory.
type Processors struct {
	Count    int  // parts there; 0 none
	Collated bool // processorsN holds them all
	Gap      int  // with one directory each: the first that is missing though a later one is there; -1 none
	// Times is a time directory with results in one of them, "processor0/0.35": what
	// decomposing anew deletes; "" none was seen.
	Times string
}

// Results returns the name of the last time directory of a run in the names of a
// processor directory; "" where there is none. "0" and its kind are a start.
func Results(names []string) string {
	last, at := "", 0.0
	for _, name := range names {
		if t, err := strconv.ParseFloat(name, 64); err == nil && t > at && strings.Trim(name, "0123456789.e+-") == "" {
			last, at = name, t
		}
	}
	return last
}

// CountProcessors finds processor0, processor1, … and the collated forms
// processorsN and processorsN_first-last in the names of a directory.
func CountProcessors(names []string) Processors {
	p := Processors{Gap: -1}
	seen := map[int]bool{}
	high := -1
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "processors"); ok {
			rest, _, _ = strings.Cut(rest, "_")
			if n, err := strconv.Atoi(rest); err == nil && n > 0 {
				p.Count, p.Collated = n, true
			}
			continue
		}
		rest, ok := strings.CutPrefix(name, "processor")
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(rest); err == nil && n >= 0 && strconv.Itoa(n) == rest {
			seen[n] = true
			high = max(high, n)
		}
	}
	if p.Collated {
		return p
	}
	p.Count = len(seen)
	if p.Count != high+1 {
		for i := 0; ; i++ {
			if !seen[i] {
				p.Gap = i
				break
			}
		}
	}
	return p
}

// Arguments is what a solver's own arguments say.
type Arguments struct {
	Parallel bool
	Case     string // -case DIR; "" the working directory
	Dict     string // -decomposeParDict FILE; "" system/decomposeParDict
	Region   string // -region NAME; "" the default one
}

// ReadArguments reads the arguments of an OpenFOAM program, which is args[0].
// foamExec and its kind, which only set up the environment, are passed over.
func ReadArguments(args []string) Arguments {
	var a Arguments
	next := func(i int) string {
		if i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	for i, w := range args {
		switch w {
		case "-parallel":
			a.Parallel = true
		case "-case":
			a.Case = next(i)
		case "-decomposeParDict":
			a.Dict = next(i)
		case "-region":
			a.Region = next(i)
		}
	}
	return a
}

// Program returns the name of the OpenFOAM program in a command: the first word
// that is not foamExec or an option of it.
func Program(args []string) string {
	for i := 0; i < len(args); i++ {
		name := path.Base(args[i])
		switch {
		case name == "foamExec":
		case strings.HasPrefix(args[i], "-"):
			// foamExec takes -prefix DIR and -version VER.
			if args[i] == "-prefix" || args[i] == "-version" {
				i++
			}
		default:
			return name
		}
	}
	return ""
}

// serial programs never run with several ranks.
var serial = []string{"decomposePar", "reconstructPar", "reconstructParMesh", "blockMesh"}

// Run is what is known of the launch.
type Run struct {
	Program  []string // the program and its arguments, as the launcher starts it
	NP       int      // ranks; 0 not said
	Launcher string   // "openmpi", "mpich", "intelmpi", "mvapich"; "" unknown or none
	Env      map[string]string
	UCX      string // version that the ranks load; "" unknown
	Hcoll    *bool  // whether Open MPI's hcoll component is there; nil unknown
}

// Result is what a launch needs of a case.
type Result struct {
	NP       *int     // ranks that fit the case: the subdomains; nil not known
	Forward  []string // variables of the environment that every host needs, sorted
	Findings []finding.Finding
}

// check is one rule. It appends what it finds.
type check struct {
	id    string
	judge func(Case, Run, *Result)
}

// checks are all rules, in the order of the report.
var checks = []check{
	{"openfoam.environment", checkEnvironment},
	{"openfoam.family", checkFamily},
	{"openfoam.parallel", checkParallel},
	{"openfoam.subdomains", checkSubdomains},
	{"openfoam.vector", checkVector},
	{"openfoam.processors", checkProcessors},
	{"openfoam.combination", checkCombinations},
}

// Examine says whether a case, a launch and their environment fit.
func Examine(c Case, r Run) Result {
	res := Result{Forward: Forward(r.Env)}
	if c.Decomposition != nil {
		res.NP = c.Decomposition.Subdomains
	}
	for _, ch := range checks {
		ch.judge(c, r, &res)
	}
	return res
}

func (r *Result) add(f finding.Finding) { r.Findings = append(r.Findings, f) }

// forwardPrefixes and forwardNames are what a solver on another host needs of
// the environment when its shell there does not source OpenFOAM's bashrc
// (OpenFOAM-dev, bin/foamJob and etc/config.sh).
var (
	forwardPrefixes = []string{"WM_", "FOAM_"}
	forwardNames    = []string{"LD_LIBRARY_PATH", "PATH", "MPI_BUFFER_SIZE", "MPI_ARCH_PATH"}
)

// Forward returns the names of env that every host needs, sorted.
func Forward(env map[string]string) []string {
	var out []string
	for name := range env {
		if slices.Contains(forwardNames, name) || slices.ContainsFunc(forwardPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = append(out, name)
		}
	}
	// A third-party Open MPI is found through it; a system one must not see it.
	if _, ok := env["OPAL_PREFIX"]; ok && env["WM_MPLIB"] == "OPENMPI" {
		out = append(out, "OPAL_PREFIX")
	}
	slices.Sort(out)
	return out
}

func checkEnvironment(_ Case, r Run, res *Result) {
	if r.Env["WM_PROJECT_DIR"] == "" {
		res.add(finding.Finding{
			ID: "openfoam.environment", Severity: finding.Warning, Subject: "WM_PROJECT_DIR",
			Seen: "not set", Wanted: "OpenFOAM's environment",
			Why:  "programs and libraries are found through it, here and on the other hosts",
			Hint: "source the etc/bashrc of your OpenFOAM first",
		})
	}
	if r.Env["FOAM_MPI"] == "dummy" {
		res.add(finding.Finding{
			ID: "openfoam.environment", Severity: finding.Error, Subject: "FOAM_MPI",
			Seen: "dummy", Wanted: "the MPI that OpenFOAM was built with",
			Why:  "the dummy Pstream library cannot run in parallel",
			Hint: "set WM_MPLIB in etc/bashrc and build src/Pstream",
		})
	}
	if r.Env["WM_MPLIB"] == "SYSTEMOPENMPI" && r.Env["OPAL_PREFIX"] != "" {
		res.add(finding.Finding{
			ID: "openfoam.environment", Severity: finding.Warning, Subject: "OPAL_PREFIX",
			Seen: r.Env["OPAL_PREFIX"], Wanted: "not set with WM_MPLIB=SYSTEMOPENMPI",
			Why:  "a system Open MPI looks for its own files in the wrong place",
			Hint: "unset OPAL_PREFIX",
		})
	}
}

// Family returns the kind of MPI that OpenFOAM's settings name: "openmpi",
// "mpich", "intelmpi", "mvapich"; "" where they do not tell (SYSTEMMPI).
func Family(env map[string]string) string {
	for _, v := range []string{env["FOAM_MPI"], env["WM_MPLIB"]} {
		v = strings.ToLower(v)
		switch {
		case strings.Contains(v, "openmpi"):
			return "openmpi"
		case strings.Contains(v, "mvapich"):
			return "mvapich"
		case strings.Contains(v, "intelmpi"), strings.Contains(v, "impi"):
			return "intelmpi"
		case strings.Contains(v, "mpich"):
			return "mpich"
		}
	}
	return ""
}

func checkFamily(_ Case, r Run, res *Result) {
	built := Family(r.Env)
	if built == "" || r.Launcher == "" || built == r.Launcher {
		return
	}
	f := finding.Finding{
		ID: "openfoam.family", Severity: finding.Error, Subject: "FOAM_MPI",
		Seen:   fmt.Sprintf("FOAM_MPI=%s WM_MPLIB=%s, started by the mpirun of %s", r.Env["FOAM_MPI"], r.Env["WM_MPLIB"], r.Launcher),
		Wanted: "the launcher of " + built,
		Why:    "every rank would think it is rank 0 of 1 and run the whole case",
		Hint:   "put the " + built + " that OpenFOAM was built with first in PATH",
	}
	if built != "openmpi" && r.Launcher != "openmpi" {
		// Hydra's children: one process manager protocol, often one ABI.
		f.Severity, f.Why = finding.Warning, "they speak the same protocol, but versions may not fit"
	}
	res.add(f)
}

func checkParallel(_ Case, r Run, res *Result) {
	args, name := ReadArguments(r.Program), Program(r.Program)
	switch {
	case slices.Contains(serial, name) && (r.NP > 1 || args.Parallel):
		seen := name + " -parallel"
		if r.NP > 0 {
			seen = name + " with " + ranks(r.NP)
		}
		res.add(finding.Finding{
			ID: "openfoam.parallel", Severity: finding.Error, Subject: name, Seen: seen, Wanted: "one process",
			Why: name + " does not run in parallel", Hint: "start it without mpirun",
		})
	case r.NP > 1 && !args.Parallel:
		res.add(finding.Finding{
			ID: "openfoam.parallel", Severity: finding.Error, Subject: name,
			Seen: fmt.Sprintf("%s and no -parallel", ranks(r.NP)), Wanted: "-parallel behind the solver's name",
			Why:  "every rank would run the whole case, and all write over each other",
			Hint: strings.Join(append(slices.Clone(r.Program), "-parallel"), " "),
		})
	case args.Parallel && r.NP == 1:
		res.add(finding.Finding{
			ID: "openfoam.parallel", Severity: finding.Error, Subject: name,
			Seen: "-parallel with one rank", Wanted: "at least two ranks",
			Why: "OpenFOAM refuses to run in parallel on one process", Hint: "leave -parallel out, or start more ranks",
		})
	}
}

// creates reports whether the program makes the parts itself.
func creates(r Run) bool {
	return Program(r.Program) == "redistributePar"
}

func checkSubdomains(c Case, r Run, res *Result) {
	if !ReadArguments(r.Program).Parallel {
		return
	}
	d := c.Decomposition
	if d == nil {
		if c.Control != nil && (c.Processors == nil || c.Processors.Count == 0) {
			res.add(finding.Finding{
				ID: "openfoam.subdomains", Severity: finding.Warning, Subject: c.DictPath,
				Seen: "no such file", Wanted: "numberOfSubdomains",
				Why: "the case cannot be decomposed", Hint: "write it: numberOfSubdomains and a method, scotch for example",
			})
		}
		return
	}
	if d.Subdomains == nil {
		why := d.Why
		if why == "" {
			why = "there is no numberOfSubdomains"
		}
		res.add(finding.Finding{
			ID: "openfoam.subdomains", Severity: finding.Warning, Subject: c.DictPath,
			Seen: why, Wanted: "a number", Why: "it cannot be compared with the ranks", Hint: "see that it equals -np",
		})
		return
	}
	if r.NP <= 1 || r.NP == *d.Subdomains { // one rank is checkParallel's
		return
	}
	// The number that fits costs nothing; another decomposition costs what lies in
	// the parts.
	set := fmt.Sprintf("foamDictionary -entry numberOfSubdomains -set %d %s", r.NP, c.DictPath)
	fix := fmt.Sprintf("-np %d; or, for %s, %s, then %s", *d.Subdomains, ranks(r.NP), set, decomposeAnew(c, r))
	if p := c.Processors; p != nil && p.Gap < 0 && p.Count == r.NP {
		fix = set + ": the parts that are there fit"
	}
	res.add(finding.Finding{
		ID: "openfoam.subdomains", Severity: finding.Error, Subject: fmt.Sprintf("%s:%d", c.DictPath, d.Line),
		Seen:   fmt.Sprintf("numberOfSubdomains %d, and %s", *d.Subdomains, ranks(r.NP)),
		Wanted: "the same number", Why: "OpenFOAM stops at once when ranks and parts differ", Hint: fix,
	})
}

// decomposeAnew is how a case gets other parts, and what that deletes.
func decomposeAnew(c Case, r Run) string {
	switch p := c.Processors; {
	case p == nil || p.Count == 0:
		return "decomposePar" + caseOption(r)
	case p.Times != "":
		return "reconstructPar" + caseOption(r) + ", which saves the results in the parts (" + p.Times + "), and decomposePar -force" + caseOption(r) + ", which deletes them"
	default:
		return "decomposePar -force" + caseOption(r) + ", which deletes the parts that are there"
	}
}

func ranks(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return strconv.Itoa(n) + " ranks"
}

func caseOption(r Run) string {
	if dir := ReadArguments(r.Program).Case; dir != "" {
		return " -case " + dir
	}
	return ""
}

func checkVector(c Case, _ Run, res *Result) {
	d := c.Decomposition
	if d == nil || d.N == nil || d.Subdomains == nil {
		return
	}
	product := 1
	for _, n := range d.N {
		if n < 1 || n > 1<<20 || product > 1<<20 {
			product = 0
			break
		}
		product *= n
	}
	if len(d.N) == 3 && product == *d.Subdomains {
		return
	}
	res.add(finding.Finding{
		ID: "openfoam.vector", Severity: finding.Error, Subject: c.DictPath,
		Seen:   fmt.Sprintf("n (%s) with numberOfSubdomains %d", strings.Trim(fmt.Sprint(d.N), "[]"), *d.Subdomains),
		Wanted: fmt.Sprintf("three numbers whose product is %d", *d.Subdomains),
		Why:    "decomposePar refuses it", Hint: "change n, or use method scotch, which needs none",
	})
}

func checkProcessors(c Case, r Run, res *Result) {
	if !ReadArguments(r.Program).Parallel || c.Processors == nil || creates(r) ||
		c.Decomposition != nil && c.Decomposition.Distributed {
		return
	}
	want := r.NP
	if want == 0 && c.Decomposition != nil && c.Decomposition.Subdomains != nil {
		want = *c.Decomposition.Subdomains
	}
	f := finding.Finding{ID: "openfoam.processors", Severity: finding.Error, Subject: c.Dir}
	switch p := c.Processors; {
	case p.Count == 0 && c.Decomposition == nil && c.Control == nil:
		f.Seen, f.Wanted = "neither system/controlDict nor processor directories", "an OpenFOAM case"
		f.Why, f.Hint = "there is no case here", "run from the case directory, or give -case DIR"
	case p.Count == 0:
		f.Seen, f.Wanted = "no processor directories", "one for each rank"
		f.Why, f.Hint = "the case is not decomposed", "decomposePar"+caseOption(r)
	case p.Gap >= 0:
		f.Seen, f.Wanted = fmt.Sprintf("processor%d is missing, and later ones are there", p.Gap), "processor0 to the last"
		f.Why = "a part of the case is not there: moved, deleted, or on a file system that is not mounted"
		f.Hint = fmt.Sprintf("bring processor%d back; without it, from the whole case: %s", p.Gap, decomposeAnew(c, r))
	case want == 1: // checkParallel's
		return
	case want > 0 && p.Count != want:
		if d := c.Decomposition; d != nil && d.Subdomains != nil && *d.Subdomains == p.Count {
			return // checkSubdomains has said it
		}
		f.Seen, f.Wanted = fmt.Sprintf("%d processor directories", p.Count), strconv.Itoa(want)
		f.Why = "OpenFOAM stops at once when ranks and parts differ"
		f.Hint = fmt.Sprintf("-np %d; or, for %s, numberOfSubdomains %d in %s, then %s", p.Count, ranks(want), want, c.DictPath, decomposeAnew(c, r))
	default:
		return
	}
	res.add(f)
}

// combination is a pair of versions known not to work together.
type combination struct {
	name   string
	match  func(Run) bool
	seen   string
	why    string
	hint   string
	source string
}

// combinations are the known ones, each with where it is reported.
var combinations = []combination{
	{
		name: "hcoll multicast with old UCX",
		match: func(r Run) bool {
			return r.Launcher == "openmpi" && r.Hcoll != nil && *r.Hcoll && olderThan(r.UCX, 1, 12) &&
				r.Env["HCOLL_ENABLE_MCAST"] != "0" && r.Env["HCOLL_ENABLE_MCAST_ALL"] != "0" && r.Env["OMPI_MCA_coll_hcoll_enable"] != "0" &&
				!strings.Contains(r.Env["OMPI_MCA_coll"], "^hcoll")
		},
		seen:   "Open MPI's hcoll with UCX older than 1.12",
		why:    "OpenFOAM crashes in hcoll's multicast broadcast (vmc_bcast_multiroot), seen with HPC-X 2.9",
		hint:   "OMPI_MCA_coll_hcoll_enable=0, or HPC-X 2.10 and later",
		source: "github.com/open-mpi/ompi/issues/9624, /9761; github.com/openucx/ucx/issues/7391",
	},
}

func checkCombinations(_ Case, r Run, res *Result) {
	for _, c := range combinations {
		if !c.match(r) {
			continue
		}
		res.add(finding.Finding{
			ID: "openfoam.combination", Severity: finding.Warning, Subject: c.name,
			Seen: c.seen + " (" + r.UCX + ")", Wanted: "a pair that is known to work", Why: c.why, Hint: c.hint + " (" + c.source + ")",
		})
	}
}

// olderThan compares "1.11.0" with major.minor; unknown versions are not older.
func olderThan(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil {
		return false
	}
	return x < major || x == major && y < minor
}
