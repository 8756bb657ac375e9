package plan

import (
	"fabrun/envgen"
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
	Dialect  string // "openmpi5", "openmpi4", "mpich", "intelmpi", "srun", "torchrun", "horovodrun", "plain"
	Version  string // of the launcher; "" unknown
	Argv     []Arg
	Env      []envgen.Var     // for the child's own environment
	PerHost  []envgen.HostEnv // what differs per host, delivered by fabrun rank
	Unset    []string
	Files    []File
	Hosts    hosts.Allocation
	Program  []string // the program and its arguments, as found in the command line
	Contract string
	Findings []finding.Finding
	Notes    []string
}
