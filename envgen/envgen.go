package envgen

import (
	"net/netip"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// Scope says where a variable has one value.
type Scope string

// The scopes.
const (
	JobScope  Scope = "job"  // the same everywhere
	NodeScope Scope = "node" // may differ per node
	RankScope Scope = "rank" // differs per rank of a node
)

// Origin says who chose a value.
type Origin string

// The origins.
const (
	FromPlan     Origin = "plan"
	FromProfile  Origin = "profile"
	FromWorkload Origin = "workload"
	FromSite     Origin = "site"  // /etc/nccl.conf, ucx.conf, MCA files
	FromImage    Origin = "image" // a container's ENV
	FromUser     Origin = "user"
)

// Alternative is what else could have been chosen and why it was not.
type Alternative struct {
	Value string `json:"value"`
	Why   string `json:"why"`
}

// Var is one environment variable with everything that --explain prints.
type Var struct {
	Name     string        `json:"name"`
	Value    string        `json:"value"`
	Scope    Scope         `json:"scope"`
	Origin   Origin        `json:"origin"`
	Rule     string        `json:"rule"` // "hca.nccl-set"
	Why      string        `json:"why"`
	Evidence []string      `json:"evidence"` // "sys/class/infiniband/mlx5_0/ports/1/state: 4: ACTIVE"
	Rejected []Alternative `json:"rejected,omitempty"`
	Overrode string        `json:"overrode,omitempty"` // who would have said otherwise, and what
	IfWrong  string        `json:"if_wrong,omitempty"` // what breaks if it is changed
}

// Setting is a variable that somebody set before fabrun.
type Setting struct {
	Name   string
	Value  string
	Origin Origin
	Where  string // "environment", "-x on the command line", "/etc/nccl.conf:3"
	Host   string // "" all hosts
}

// Versions are the library versions the ranks will load; "" unknown, and
// Present says whether the library is there at all (nil unknown).
type Versions struct {
	NCCL    string
	UCX     string
	MPI     string // "openmpi 5.0.7"
	MPIKind string // "openmpi", "mpich", "intelmpi", "mvapich"; "" none
	// OpenMPIHasUCX is nil when unknown.
	OpenMPIHasUCX *bool
	NetPlugin     string // NCCL net plugin found: "AWS Libfabric", "IBext_v11"; "" none
}

// Job is what is known of the job apart from its hosts.
type Job struct {
	Settings     []Setting // what is already set
	Versions     *Versions // given by flags; nil: read from each Host's Software
	InContainer  bool      // the program runs in an image whose libraries are not known
	RanksPerNode int       // 0 unknown
	Strict       bool
	UsesGPU      *bool  // nil unknown
	NoMPI        bool   // its ranks are known to be no MPI's
	Gloo         bool   // its ranks may meet by Gloo
	LogDir       string // where private logs go; "" none asked for
	// Addresses are those by which the job's hosts know each other (their
	// names resolved by the caller); nil unknown.
	Addresses []netip.Addr
}

// Input is everything Compute looks at.
type Input struct {
	Hosts    []topology.Host
	Assumed  int // how many hosts one snapshot stands for; 0 or 1: itself
	Profile  profiles.Profile
	Workload *profiles.Workload
	Job      Job
}

// HostEnv is the environment of one host.
type HostEnv struct {
	Host string
	Vars []Var
	Left []Var // what a rule looked at and left unset on purpose; Value is ""
}

// Rail is the i-th HCA port of every host that reach each other.
type Rail struct {
	Index int
	Name  string            // "rail 0"
	Ports map[string]string // host → "mlx5_0:1"
	GIDs  map[string]int    // host → index of the GID that the job uses there; a host is absent where none is (InfiniBand)
	Why   string            // "subnet 10.10.0.0/24", "position"
	Out   string            // the list of devices by which the job leaves it out; "" it is the job's
}

// Promise is what the contract says in words, as values. nil is unknown, or not
// promised; it is never zero.
type Promise struct {
	Rails     *int     // rails that are left to the job; nil too where a user's list takes other ports
	RateGbps  *float64 // of most of their ports
	GPUDirect *bool    // for every GPU, or for none; nil too where it serves some only
	DSCP      *int
	Priority  *int
}

// Result is what Compute chose.
type Result struct {
	Hosts    []HostEnv
	Rails    []Rail
	Contract string // "8 rails of RoCE v2 (400 Gb/s), GPUDirect on, DSCP 26, priority 3"
	Promise  Promise
	Networks []string // what the job should run on: "ib", "roce", "rdma" (one of these two), "efa", "cxi", "psm", "socket"
	RDMA     bool     // at least one host of the job has usable RDMA
	Findings []finding.Finding
}
