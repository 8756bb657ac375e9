package profiles

import "slices"

// Profile is one fabric profile. Zero values mean "not said": every number
// that may be absent is a pointer.
type Profile struct {
	Name   string
	About  string
	Source string // "built-in", or the path it was read from; merged: the last one
	Match  Match
	Fabric Fabric
	Env    []Setting // in the order of the files
	Hints  []string  // what a machine cannot see of itself (BIOS, hypervisor, switch) and should be looked at
}

// Match proposes a profile from what is seen; it never chooses silently.
type Match struct {
	DMI     []string // substrings of sys_vendor, product_name, chassis_asset_tag
	PCI     []string // "15b3:1017"
	HCAs    []string // device name globs
	Netdevs []string // netdev name globs
	Files   []string // paths that exist, without leading slash
}

// Fabric is what the profile says of the network.
type Fabric struct {
	LinkLayer     string // "ethernet", "infiniband"; "" either
	RoCEVersion   int    // 2, 1; 0 not said
	RateGbps      *float64
	MinMTUBytes   *int
	Subnets       []string // CIDR
	Bootstrap     string   // "management", "fabric", or an interface name; "" management
	GIDFamily     string   // "ipv4", "ipv6", "any"; "" any
	ExcludeHCAs   []string
	MinFirmware   map[string]string // by board ID, part (MT4129) or driver: the oldest firmware that may be
	RailOnly      *bool             // true: rails do not reach each other
	AdaptiveRoute *bool
	QoS           *QoS // nil: no QoS plan
	Expect        Expect
	SetNothing    bool   // the "none" profile: look and watch, set nothing
	Driver        string // "rxe": only devices of this driver; "" any
}

// Class is how one kind of packet is marked.
type Class struct {
	DSCP     int
	ECN      int
	Priority *int
	SL       *int
}

// TC is the traffic class byte: DSCP<<2 | ECN.
func (c Class) TC() int { return c.DSCP<<2 | c.ECN }

// QoS is the one plan from which every library's variables follow.
type QoS struct {
	Trust    string // "dscp", "pcp"; "" not said
	RDMA     Class
	Control  *Class // NCCL_IB_FIFO_TC where the fabric separates it
	CNP      *Class
	PFC      []int
	ECNMinKB *int // switch thresholds
	ECNMaxKB *int
	Pool     *int  // percent of the buffer for the lossless pool
	ETS      []int // percent per priority
	Watchdog *bool
}

// Expect holds the thresholds of the pair test.
type Expect struct {
	WarnFraction  *float64
	ErrorFraction *float64
	LatencyUsec   *float64
}

// Setting is one more variable with its reason.
type Setting struct {
	Name  string
	Value string
	Why   string
	ByPCI []PCIValue // other values for machines with a PCI device, in its order
}

// PCIValue is the value of a setting on machines with a PCI device.
type PCIValue struct{ ID, Value string }

// On is the value on a machine with these PCI devices ("10de:2901").
func (s Setting) On(pci []string) string {
	for _, v := range s.ByPCI {
		if slices.Contains(pci, v.ID) {
			return v.Value
		}
	}
	return s.Value
}

// Workload is one workload profile: how a kind of program is run, never what
// the fabric is.
type Workload struct {
	Name         string
	About        string
	Source       string
	Slots        string // "cores", "gpus", "numa", "node" (one), "channels:3"; "" not said
	ReserveCores int
	// MemoryChannels of a host, for channels:N where the machine does not tell
	// them (EDAC); nil not said.
	MemoryChannels *int
	Binding        string // "numa", "core", "none"; "" not said
	MPIOptions     []string
	Env            []Setting
	Forward        []string // names or prefixes of variables every rank needs: "FOAM_*", "WM_*"
	Programs       []string // program names that suggest this workload
}
