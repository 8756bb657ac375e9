package plan

import (
	"maps"
	"strconv"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/topology/finding"
)

// File is a file that has to exist before the child starts. In Argv and Vars
// its place is written as {run}/Name and replaced by the private run directory.
type File struct {
	Name    string
	Content string
	Why     string
}

// RunDir is the placeholder of the private run directory in argv and values.
const RunDir = "{run}"

// Arg is one word of the command line and who put it there.
type Arg struct {
	Text   string
	Origin envgen.Origin // user or plan
	Why    string        // "" for the user's own
}

// Plan is everything run would do, as a value.
type Plan struct {
	Dialect  *cmdline.Dialect
	Launcher string // "Open MPI 4.1.4"; "" for a plain program
	Version  string // of the launcher; "" unknown
	Argv     []Arg
	Command  cmdline.Command  // the user's own words, read
	Env      []envgen.Var     // for the child's own environment
	Kept     []envgen.Var     // what the user or the site has set, and stays as it is
	PerHost  []envgen.HostEnv // what differs per host, delivered by fabrun rank
	Table    *RankTable       // what fabrun rank is told; nil where it is not needed
	Unset    []string
	Withheld []Withheld // of the user's environment, what does not go to the other nodes
	Files    []File
	Shims    []string // programs of these names in {run}/bin go through fabrun
	Hosts    hosts.Allocation
	Rails    []envgen.Rail // the ports that the job uses, by the names that hosts have for themselves
	Program  []string      // the program and its arguments, as found in the command line
	Look     Look          // on which of the job's hosts all this rests
	RDMA     bool          // at least one of them has usable RDMA
	Contract string
	Promise  envgen.Promise // the same as values
	Findings []finding.Finding
	Notes    []string
}

// HasRDMA says whether a host of the job has usable RDMA; nil where one that
// might have it was not looked at.
func (p Plan) HasRDMA() *bool {
	if !p.RDMA && !p.Look.Whole() {
		return nil
	}
	return &p.RDMA
}

// OneOf is of how many nodes this plan's host is one, where each has a fabrun of
// its own; 0 where the plan is for all of them.
func (p Plan) OneOf() int {
	if p.Hosts.Manager != "" || len(p.Hosts.Hosts) != 1 || p.Hosts.Nodes < 2 {
		return 0
	}
	return p.Hosts.Nodes
}

// Words is the command line as it is started.
func (p Plan) Words() []string {
	out := make([]string, len(p.Argv))
	for i, a := range p.Argv {
		out[i] = a.Text
	}
	return out
}

// UserWords are the command line as the user typed it.
func (p Plan) UserWords() []string {
	var out []string
	for _, w := range p.Argv {
		if w.Origin == envgen.FromUser {
			out = append(out, w.Text)
		}
	}
	return out
}

// Settings are the settings of the job's user and its site, for ranks that are
// started in env: what they see, and what is kept of the site's files.
func (p Plan) Settings(env []string) map[string]string {
	set := map[string]string{}
	for _, v := range p.Kept {
		set[v.Name] = v.Value
	}
	maps.Copy(set, p.Command.RankEnv(env))
	return set
}

// Nodes is over how many nodes a job that is started in env runs, at least; 0
// unknown. Of a torchrun that is started by hand on each node, the allocation knows
// only this one.
func (p Plan) Nodes(env []string) int {
	n := max(len(p.Hosts.Hosts), p.Hosts.Nodes, p.Command.TorchNodes(env))
	for _, s := range hosts.Schedulers {
		for _, name := range s.NodeCount {
			if k, err := strconv.Atoi(cmdline.Value(env, name)); err == nil && p.Dialect.Alone {
				n = max(n, k)
			}
		}
	}
	if n == 1 && (p.Command.TorchNodesMost(env) > 1 || hosts.SchedulerNamed(p.Hosts.Source).PerNode && p.Hosts.Nodes == 0) {
		return 0 // from one node on
	}
	world, err := strconv.Atoi(cmdline.Value(env, "WORLD_SIZE"))
	local, lerr := strconv.Atoi(cmdline.Value(env, "LOCAL_WORLD_SIZE"))
	switch {
	case err == nil && lerr == nil && local > 0 && world > local:
		n = max(n, 2)
	case n == 1 && p.Dialect.Alone:
		return 0 // what a program makes of itself is not known
	}
	return n
}
