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
	if !l.Dialect.Reads() || l.Words > len(argv) {
		at := len(argv)
		if l.Dialect.Alone {
			at = 0
		}
		c.Apps = []App{{From: 0, To: len(argv), Program: at, Dashes: -1}}
		return c
	}
	g := l.Dialect.grammar()
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
	d := c.Launcher.Dialect
	if d.ranksOf != nil {
		if n := d.ranksOf(c); n != nil {
			return n
		}
	}
	if d.ranks == nil {
		return nil
	}
	sum := 0
	for _, ctx := range c.Apps {
		o := ctx.Last(d.ranks...)
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
		for _, h := range c.Launcher.Dialect.hosts {
			o := ctx.Last(h.name)
			if o == nil {
				continue
			}
			s := HostSource{Option: c.Argv[o.At]}
			if len(o.Values) > 0 {
				switch v := o.Values[0]; {
				case h.kind == hostsFile, h.kind == hostsEither && strings.Contains(v, "/"):
					s.File = v
				case h.kind != hostsElse:
					s.List = v
				}
			}
			out = append(out, s)
			break
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, twin := range c.Launcher.Dialect.hostTwins {
		if v, ok := Lookup(env, twin.name); ok && v != "" && v != "none" {
			if twin.list {
				return []HostSource{{Option: twin.name, List: v}}
			}
			return []HostSource{{Option: twin.name, File: v}}
		}
	}
	return nil
}

// HostVariable is the variable by which a launcher is told a hostfile; "" where
// it has none.
func (l Launcher) HostVariable() string {
	if all := l.Dialect.hostTwins; len(all) > 0 {
		return all[0].name
	}
	return ""
}

// ReadsManager reports whether a launcher finds the hosts of this source of an
// allocation by itself.
func (l Launcher) ReadsManager(source string) bool {
	if l.Managers != nil {
		return slices.Contains(l.Managers, source)
	}
	return slices.Contains(l.Dialect.Managers, source)
}

// Nodes is how many nodes an srun step asks for; nil where it does not say, or
// other launchers.
func (c Command) Nodes() *int {
	if c.Launcher.Dialect.nodes == "" {
		return nil
	}
	sum := 0
	for _, ctx := range c.Apps {
		o := ctx.Last(c.Launcher.Dialect.nodes)
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

// Components are the parts of a heterogeneous allocation on which the step runs:
// those that it names, else the first for the first application, and so on
// (srun(1), --het-group). nil where a name is no number, and for other launchers.
func (c Command) Components() []int {
	by := c.Launcher.Dialect.components
	if by == nil {
		return nil
	}
	var out []int
	for i, ctx := range c.Apps {
		o := ctx.Last(by...)
		if o == nil || len(o.Values) == 0 {
			out = append(out, i)
			continue
		}
		for part := range strings.SplitSeq(o.Values[0], ",") {
			low, high, isRange := strings.Cut(part, "-")
			first, err := strconv.Atoi(low)
			last := first
			if isRange && err == nil {
				last, err = strconv.Atoi(high)
			}
			if err != nil || first < 0 || last < first || last > maxComponents {
				return nil
			}
			for n := first; n <= last; n++ {
				out = append(out, n)
			}
		}
	}
	return out
}

// maxComponents is more than Slurm lets a job have (MAX_HET_JOB_COMPS, 128).
const maxComponents = 1024

// TakesNP reports whether a number of ranks could be added to the command line:
// one application of an MPI, without an option that counts in another way.
func (c Command) TakesNP() bool {
	if c.Launcher.Dialect.NP == "" {
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
	by := c.Launcher.Dialect.MPIType
	return by != (MPIType{}) && (Value(env, by.Variable) != "" || slices.ContainsFunc(c.Apps, func(ctx App) bool { return ctx.Last(by.Option) != nil }))
}

// MPIType is what srun is told of that; "" nothing.
func (c Command) MPIType(env []string) string {
	by := c.Launcher.Dialect.MPIType
	if by == (MPIType{}) {
		return ""
	}
	for _, ctx := range c.Apps {
		if o := ctx.Last(by.Option); o != nil && len(o.Values) > 0 {
			return o.Values[0]
		}
	}
	return Value(env, by.Variable)
}

// UserMaps returns the option or variable by which the user has placed or
// bound ranks; "" where the choice is free.
func (c Command) UserMaps(env []string) string {
	for _, ctx := range c.Apps {
		for _, o := range ctx.Options {
			if slices.Contains(c.Launcher.Dialect.mapping, o.Name) {
				return c.Argv[o.At]
			}
		}
	}
	for _, name := range c.Launcher.Dialect.mapTwins {
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

// Settings is what the environment alone sets for communication libraries, as
// Command.Settings says it.
func Settings(env []string) []envgen.Setting {
	return Command{Launcher: Launcher{Dialect: Plain}}.Settings(env)
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
	if len(c.Argv) == 0 || l.Dialect.Reads() || l.Words < 1 || l.Words > len(c.Argv) || !slices.Contains(mpiNames, path.Base(c.Argv[l.Words-1])) {
		return c
	}
	for _, d := range Dialects {
		if d.MPI == "" {
			continue
		}
		l.Dialect = d
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
			c.Launcher.Dialect.Sets(o, c.Argv[o.At], put)
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
		for _, by := range c.Launcher.Dialect.containers {
			if ctx.Last(by.option) != nil {
				return by.runtime
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
