package topology

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Host is one machine. Slices are sorted (PCI by address, HCAs and netdevs by
// natural name order, GPUs by PCI address), so equal machines are equal values.
type Host struct {
	Name    string // proc/sys/kernel/hostname; "" unknown
	Kernel  string // proc/sys/kernel/osrelease
	OS      string // PRETTY_NAME of etc/os-release
	Product Product
	CPU     CPU

	NUMA    []NUMANode
	PCI     []PCIDevice
	GPUs    []GPU
	HCAs    []HCA
	Netdevs []Netdev
	Routes  []Route
	Rules   []RouteRule // policy routing, by priority
	Limits  Limits
	Modules []Module // loaded kernel modules that matter here; nil unknown

	Container   Container
	RDMANetns   string // "shared", "exclusive"; "" unknown (rdma system, sys/module)
	IOMMU       IOMMU
	PeerMemory  PeerMemory
	DeviceNodes *DeviceNodes // nil: dev/infiniband could not be looked at
	IMEX        *int         // channels in dev/nvidia-caps-imex-channels, by which machines share GPU memory; nil unknown
	Software    []Software
	Launchers   []Launcher   // what the launchers in PATH answered to --version; nil not asked
	UID         *int         // of the process that looked; nil unknown
	Env         []EnvVar     // allow-listed variables of the environment, in name order
	ConfigFiles []ConfigFile // nccl.conf, ucx.conf, MCA files, with their text
	Counters    []CounterSample
	Opinions    []Opinion // what ghw and rdmamap say, where they were asked
	Places      []Place   // what the job needs at the same path everywhere, where that was asked
	Clock       Clock
	KernelLog   *KernelLog // nil: not asked, or not readable
	ReachedBy   netip.Addr // own address of the ssh connection by which it was looked at; invalid: none

	Source     string       // "live", "snapshot", "root", "nccl-xml"
	Hidden     string       // why the PCI topology cannot be trusted ("flat tree of a virtual machine"); "" trusted
	Unreadable []Unreadable // paths that exist but could not be read, with the reason
	XML        bool         // the host came from an NCCL topology XML
}

// Product is what DMI says (sys/class/dmi/id); every field "" when unknown.
type Product struct {
	Vendor  string // sys_vendor
	Name    string // product_name
	Version string // product_version
	Chassis string // chassis_asset_tag: cloud marks
	BIOS    string // bios_vendor
}

// CPU is what all CPUs of the host share.
type CPU struct {
	Arch    string // "x86_64", "arm64", "ppc64"; "" unknown
	Vendor  string // "GenuineIntel", "AuthenticAMD", "ARM" …
	Model   string // model name
	Family  *int   // cpu family
	ModelID *int   // model
	Online  []int  // online logical CPUs (sys/devices/system/cpu/online)
	Allowed []int  // the CPUs this process may use (proc/self/status Cpus_allowed_list); nil unknown
	Cores   []Core // physical cores with their logical CPUs; nil unknown
	// MemoryChannels is per NUMA node, from EDAC; nil unknown.
	MemoryChannels map[int]int
	Hypervisor     bool // the hypervisor flag of proc/cpuinfo: a guest (x86 only)
	// Governors counts the CPU frequency policies by governor; nil unknown, or the machine has none.
	Governors map[string]int
}

// Core is one physical core.
type Core struct {
	Package int   // physical_package_id
	CPUs    []int // thread_siblings_list
}

// NUMANode is one directory of sys/devices/system/node.
type NUMANode struct {
	ID          int
	CPUs        []int  // cpulist; empty for memory-only nodes
	Distances   []int  // distance, in node order; 10 is local
	MemoryBytes *int64 // MemTotal of meminfo
	Package     *int   // physical package of its CPUs; nil unknown or mixed
}

// PCIDevice is one directory of sys/bus/pci/devices.
type PCIDevice struct {
	Address    string // "0000:3b:00.0", lower case
	Parent     string // address of the port above; "" for a device on a root complex
	RootBus    string // "pci0000:3a": the root complex, from the sysfs path
	Class      *uint32
	Vendor     *uint16
	Device     *uint16
	SubVendor  *uint16
	SubDevice  *uint16
	NUMA       *int  // numa_node; nil for -1 or a missing file
	Link       Link  // current
	LinkMax    Link  // at most
	LocalCPUs  []int // local_cpulist; nil unknown
	Driver     string
	PhysFn     string   // PF of a VF, "" for none
	VirtFns    []string // VFs of a PF
	IOMMUGroup string
	// SwitchPeers are Broadcom PEX virtual switch links (sys/kernel/pci_switch_link).
	SwitchPeers []string
	Name        string // vendor and product as a PCI ID database has them; "" unknown
	Port        string // PCIe port type where known: "root", "upstream", "downstream", "endpoint"; "" unknown
	// Of the device control register, which only root can read; nil unknown.
	RelaxedOrdering *bool
	MaxReadRequest  *int  // bytes
	MaxPayload      *int  // bytes
	IRQs            *int  // interrupts of the function; nil unknown
	IRQCPUs         []int // the CPUs that serve them
}

// Link is one PCIe link; nil is unknown.
type Link struct {
	SpeedMTps *int // mega-transfers per second a lane: 16000 for "16.0 GT/s PCIe"
	Width     *int // lanes
}

// GPU is a display controller of a vendor whose GPUs compute.
type GPU struct {
	Index  int    // position in PCI order, which is NVML's order
	PCI    string // address; "" only for a GPU that no bus shows
	NUMA   *int
	Vendor string // "nvidia", "amd", "intel"
	Name   string // from NVML or ghw; "" unknown
	UUID   string // "GPU-…", from NVML; "" unknown
	Memory *int64 // bytes
	// BARBytes is the largest 64-bit prefetchable BAR: the window that a
	// passthrough guest has to map; nil unknown.
	BARBytes *int64
	Visible  *bool // whether the job's processes can use it (CUDA_VISIBLE_DEVICES, device nodes); nil unknown
	MIG      []MIG // instances, when MIG mode is on
	Links    []GPULink
	// CUDAVersion and Capability come from NVML; "" unknown.
	Driver     string
	Capability string // "9.0"
	DeviceNode *bool  // dev/nvidia<minor> there
	Minor      *int   // the <minor> of its device node, from NVML; nil unknown
	// NoP2P lists the PCI addresses of the GPUs that it cannot read directly.
	NoP2P []string
	// Domain is the NVLink domain of several machines; nil: none, or not told.
	Domain *NVLinkDomain
}

// NoGPUDirect says why no NIC can read the memory of this host's GPUs, whatever is
// loaded; "" nothing says so. GB10 (DGX Spark) has one memory for CPU and GPU, and
// NVIDIA says that neither nvidia_peermem nor DMA-BUF works there; GeForce and
// TITAN cards never had it (Mellanox/nv_peer_memory, NVIDIA/gdrcopy issue 211).
func (h *Host) NoGPUDirect() string {
	for _, g := range h.GPUs {
		if g.Vendor != "nvidia" {
			return ""
		}
		dev := slices.IndexFunc(h.PCI, func(d PCIDevice) bool { return d.Address == g.PCI && g.PCI != "" })
		switch {
		case strings.Contains(g.Name, "GB10"), dev >= 0 && h.PCI[dev].Device != nil && *h.PCI[dev].Device == 0x2e12:
			return "GB10 shares its memory with the CPU and has no GPUDirect RDMA"
		case strings.Contains(g.Name, "GeForce"), strings.Contains(g.Name, "TITAN"):
			return strings.TrimPrefix(g.Name, "NVIDIA ") + " has no GPUDirect RDMA: NVIDIA keeps it to its data centre and workstation GPUs"
		}
	}
	return ""
}

// NVLinkDomain is where a GPU stands in an NVLink domain of several machines
// (GB200 NVL72 and its like): GPUs of one cluster and one clique reach each other.
type NVLinkDomain struct {
	Cluster string // the fabric's UUID, in hexadecimal; zeros: none given
	Clique  int
	State   string // "completed", "in-progress", "not-started"
	Status  int    // NVML's, 0 is well
}

// MIG is one MIG instance.
type MIG struct {
	UUID    string
	Profile string
}

// GPULink is an NVLink, C2C or xGMI connection.
type GPULink struct {
	Kind   string  // "nvlink", "c2c", "xgmi"
	Target string  // PCI address of the peer GPU or NVSwitch; "" unknown; "cpu" for C2C
	Count  int     // links in parallel
	Class  *uint32 // PCI class of the target where known: 0x068000 is an NVSwitch
}

// HCA is one RDMA device (sys/class/infiniband/<name>).
type HCA struct {
	Name         string
	PCI          string // address of its function; "" for software devices
	NUMA         *int
	Driver       string // "mlx5", "bnxt_re", "irdma", "ionic", "rxe", "siw", "hfi1", "qib", "efa", "cxi", …; "" unknown
	NodeType     string // "CA", "RNIC", …
	NodeGUID     string
	SysImageGUID string
	NodeDesc     string
	Firmware     string // fw_ver
	BoardID      string // PSID on mlx5
	HCAType      string // hca_type: part name
	VF           bool   // has a physfn link, or its driver says so
	PF           string // name of the HCA of its PF when visible here
	Bond         bool   // RoCE LAG
	Parent       string // netdev a software device sits on (rxe's parent file)
	DataDirect   string // PCI address of the ConnectX-8 data direct function; "" none
	Ports        []Port
	// Class is "infiniband", "cxi" (sys/class/cxi), or, from an NCCL XML only:
	// "net", a network interface that NCCL uses over sockets, and "pci", a NIC
	// of which nothing but its PCI address is known.
	Class      string
	CharDevice string // "uverbs0"; "" unknown
}

// Port is one port of an HCA.
type Port struct {
	Number    int
	State     string   // "ACTIVE", "DOWN", "INIT", "ARMED"; "" unknown
	PhysState string   // "LinkUp", "Polling", "Disabled", …
	LinkLayer string   // "InfiniBand", "Ethernet"; "" unknown
	RateGbps  *float64 // from rate; software devices report a fixed number (see RateTrusted)
	// RateTrusted is false where the driver's rate says nothing about the wire (rxe: always 2.5).
	RateTrusted    bool
	RateText       string // the file's text: "100 Gb/sec (4X EDR)"
	LID            *uint32
	SMLID          *uint32
	SMSL           *int
	CapMask        *uint32
	ActiveMTU      *int   // RDMA active MTU in bytes, from verbs facts, else derived from the netdev
	Netdev         string // netdev of the port; "" none or not visible here
	GIDs           []GID  // non-zero entries, by index
	GIDZero        int    // how many entries are all zero
	GIDUnreadable  string // why the table could not be read; "" it could
	PKeys          []uint16
	GlobalTClass   *int     // "Global tclass=N" of tc/<port>/traffic_class (OFED); nil unset or absent
	CNPs           *CNP     // CNP settings where readable
	ECN            []ECN    // roce_np / roce_rp enable per priority (OFED)
	DefaultRoCE    string   // configfs default_roce_mode: "RoCE v2"; "" unknown
	DefaultTOS     *int     // configfs default_roce_tos
	Speed          *float64 // Gb/s of the netdev, for comparison with RateGbps
	PhysicalPortID string   // phys_port_id or phys_switch_id+name: twins on one physical port share it
}

// CNP is how congestion notification packets are sent.
type CNP struct {
	DSCP     *int
	Priority *int
}

// ECN is the RoCE congestion control switch of one priority.
type ECN struct {
	Priority    int
	NotifyPoint *bool
	ReactPoint  *bool
}

// GIDKind classifies the address of a GID.
type GIDKind string

// The kinds of GID.
const (
	GIDIPv4      GIDKind = "ipv4"       // ::ffff:a.b.c.d
	GIDIPv6      GIDKind = "ipv6"       // global or unique local
	GIDLinkLocal GIDKind = "link-local" // fe80::/64
	GIDIB        GIDKind = "ib"         // InfiniBand: subnet prefix and GUID
)

// GID is one entry of a port's GID table.
type GID struct {
	Index  int
	Addr   netip.Addr // 16 bytes; IPv4-mapped stays mapped
	Type   string     // "RoCE v2", "IB/RoCE v1", "IB"; "" unreadable
	Kind   GIDKind
	Netdev string // gid_attrs/ndevs; "" none or in another network namespace
	// NdevUnreadable says why ndevs could not be read; "" it could, or there is none.
	NdevUnreadable string
}

// Netdev is one network interface.
type Netdev struct {
	Name       string
	Index      *int
	OperState  string // "up", "down", "unknown", …
	Carrier    *bool
	MTU        *int
	SpeedMbps  *int   // nil when down or unknown
	MAC        string // address
	Type       *int   // ARPHRD: 1 Ethernet, 32 InfiniBand, 772 loopback
	PCI        string // address of the function below; "" virtual
	Driver     string
	Master     string   // bond or bridge above
	Slaves     []string // bond members
	BondMode   string
	LACPPorts  *int // bonding/ad_num_ports
	VLAN       *int // VLAN id
	Lower      string
	Kind       string // "bond", "vlan", "bridge", "veth", "macvlan", "tun", "loopback", "physical", "virtual"
	Addrs      []netip.Prefix
	DCB        *DCB // nil: could not be asked; see DCBError
	DCBError   string
	Ethtool    *Ethtool
	PhysPort   string // phys_port_name
	SwitchID   string // phys_switch_id
	DevPort    *int
	PhysPortID string // phys_port_id
}

// DCB is what dcbnl says of a netdev.
type DCB struct {
	Trust          string      // "dscp", "pcp"; "" unknown
	PFC            []int       // lossless priorities
	DSCPToPriority map[int]int // as read; empty under PCP trust
	PrioToTC       []int       // 8 entries; nil unknown
	TCBandwidth    []int       // percent, 8 entries; nil unknown
	TCAlgorithm    []string    // "strict", "ets", …; nil unknown
	DCBX           string      // "host", "firmware", …; "" unknown
	Willing        *bool
	PrioToBuffer   []int
	BufferBytes    []int
}

// LosslessDSCPs are the code points that reach a lossless priority, ascending;
// nil where that cannot be told.
func (d *DCB) LosslessDSCPs() []int {
	if d.Trust != "dscp" || d.DSCPToPriority == nil || d.PFC == nil {
		return nil
	}
	out := []int{}
	for dscp := range 64 {
		if prio, ok := d.DSCPToPriority[dscp]; ok && slices.Contains(d.PFC, prio) {
			out = append(out, dscp)
		}
	}
	return out
}

// Ethtool is the part of ethtool's answers that rules and checks use.
type Ethtool struct {
	GlobalPause *bool            // rx or tx 802.3x pause on
	Stats       map[string]int64 // only the names that a check reads
}

// Route is one line of the routing table.
type Route struct {
	Dst    netip.Prefix // 0.0.0.0/0 for the default route
	Via    netip.Addr   // invalid: directly connected
	Netdev string
	Metric int
	Table  int // 254 is main
	Src    netip.Addr
}

// RouteRule is one policy routing rule (ip rule): it chooses a table.
type RouteRule struct {
	Priority int
	From     netip.Prefix // invalid: any
	To       netip.Prefix // invalid: any
	In       string       // iif; "" any
	Out      string       // oif; "" any
	Table    int
}

// Limits are the limits of the process that looked (proc/self/limits) and of the machine.
type Limits struct {
	MemlockSoft *uint64 // bytes; ^uint64(0) unlimited
	MemlockHard *uint64
	IPCLock     *bool // CAP_IPC_LOCK, which lifts that limit; nil unknown
	NofileSoft  *uint64
	NofileHard  *uint64
	ShmBytes    *int64 // size of dev/shm
	RmemMax     *int64 // net.core.rmem_max
	WmemMax     *int64
	HugePages   *int64 // free 2 MiB pages
	HugeTotal   *int64 // reserved 2 MiB pages
	TCPRmem     *int64 // largest of net.ipv4.tcp_rmem
	TCPWmem     *int64
	IPForward   *int // net.ipv4.ip_forward
	NUMABalance *int // kernel.numa_balancing: 0 off
	ARPIgnore   *int // net.ipv4.conf.all.arp_ignore
	ARPAnnounce *int
	MemTotal    *int64
	EphemeralLo *int // ip_local_port_range
	EphemeralHi *int
}

// Unlimited is the value of a limit that is not limited.
const Unlimited = ^uint64(0)

// Lockable is how many bytes a process may pin under a limit of it; nil unknown.
func (l Limits) Lockable(limit *uint64) *uint64 {
	if l.IPCLock != nil && *l.IPCLock {
		return new(Unlimited)
	}
	return limit
}

// RaiseMemlock is how the limit of locked memory is raised for jobs on a host.
func (h *Host) RaiseMemlock() string {
	if h.Container.Kind != "" {
		return h.Container.Give(NeedMemlock)
	}
	return "ulimit -l unlimited; limits.conf: * - memlock unlimited; systemd: LimitMEMLOCK=infinity; Slurm: PropagateResourceLimitsExcept=MEMLOCK"
}

// Module is a loaded (or built in) kernel module.
type Module struct {
	Name    string
	Version string
}

// IOMMU is how DMA addresses are translated.
type IOMMU struct {
	Groups      *int  // number of iommu groups; 0 means off
	Passthrough *bool // iommu=pt or type identity
	ACSRedirect []string
	CommandLine string // the iommu-related words of proc/cmdline
}

// PeerMemory is what lets a NIC read GPU memory.
type PeerMemory struct {
	NvidiaPeermem *bool // module or memory_peers entry there
	DMABuf        *bool // kernel, driver and NIC can
	GDRCopy       *bool // dev/gdrdrv there
	AMDKFD        *bool // dev/kfd there: AMD's driver
	// AMDPeer: the kernel takes AMD's driver as a client of peer memory, as OFED's
	// ib_core does and the kernel's own does not.
	AMDPeer *bool
}

// DeviceNodes is dev/infiniband.
type DeviceNodes struct {
	Names    []string // "uverbs0", "rdma_cm", "umad0", …
	Openable []string // those that this process may open for reading and writing; nil when not tried
}

// Software is a library or launcher found on the host.
type Software struct {
	Kind    string // "nccl", "rccl", "ucx", "openmpi", "mpich", "intelmpi", "mvapich", "libfabric", "nvshmem", "cuda", "ofed", "hpcx", "hcoll", "nccl-plugin", "slurm", "torchrun", "perftest"
	Version string // "" unknown
	Path    string
	Hash    string // content hash, short; "" not taken
	Detail  string // "UCX component present", "built with CUDA", …
}

// Launcher is a launcher in PATH and what it said of itself.
type Launcher struct {
	Name    string // as typed: "mpirun"
	Path    string // after all links
	Version string // the text of --version; "" it did not answer
}

// EnvVar is one environment variable.
type EnvVar struct {
	Name  string
	Value string
}

// ConfigFile is a configuration file that a library reads by itself.
type ConfigFile struct {
	Path string // without leading slash
	Kind string // "nccl", "rccl", "ucx", "mca-openmpi", "mca-prte", "mca-pmix"
	Text string
}

// CounterSample is a set of counters of one device at one time.
type CounterSample struct {
	Device string    // "mlx5_0:1" or a netdev name
	At     time.Time // when they were read; zero unknown
	Values map[string]int64
}

// Roles of a Place.
const (
	RoleProgram   = "program"
	RoleLibrary   = "library"
	RoleDirectory = "directory"
)

// OnlyByLibraryPath is the Missing of a library that is found by the
// LD_LIBRARY_PATH of the machine where the job is started, and by nothing here.
const OnlyByLibraryPath = "LD_LIBRARY_PATH"

// Place is a path that a job needs to find on every host.
type Place struct {
	Role    string
	Path    string // where it is; as asked for when it is nowhere
	Missing string // why it cannot be used: "ENOENT", "EACCES", OnlyByLibraryPath …; "" it can
	ID      string // of the content: "build-id:…", "sha256:…"; "" unknown
	Mount   string // file system: type, and source of one that hosts may share ("nfs4 nas:/home")
	Detail  string // of a library its soname, of a script its interpreter
}

// Shared reports whether the file system of a place is one that hosts share.
func (p Place) Shared() bool {
	kind, _, _ := strings.Cut(p.Mount, " ")
	return SharedFileSystem(kind)
}

// SharedFileSystem reports whether a file system type is that of a network or
// cluster file system.
func SharedFileSystem(kind string) bool {
	for _, k := range []string{"nfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.glusterfs", "cifs", "smb3", "panfs", "pvfs2", "orangefs", "wekafs", "fuse.juicefs", "fuse.sshfs", "9p", "virtiofs", "gfs2", "ocfs2", "afs", "quobyte", "fuse.quobyte", "vast"} {
		if kind == k || k == "nfs" && kind == "nfs4" {
			return true
		}
	}
	return false
}

// Clock is what the host's clock said when it was looked at.
type Clock struct {
	At      time.Time // zero unknown
	Synced  *bool     // something keeps it right (adjtimex)
	Sources []string  // time servers given as addresses; "dev NAME" for an interface that ptp4l uses
}

// KernelLog is what the drivers of NICs and GPUs have said.
type KernelLog struct {
	Uptime int64 // seconds since boot when it was read; 0 unknown
	Lines  []KernelLine
}

// KernelLine is one line of it.
type KernelLine struct {
	At   int64 // seconds since boot
	Text string
}

// Opinion is what another library says of a device: never a source of a plan,
// but a name for people and a check of what the file tree says.
type Opinion struct {
	Source    string // "ghw", "rdmamap"
	Subject   string // PCI address, HCA or netdev name
	Attribute string // "name", "numa", "driver", "netdev", "chardevs", "pci"
	Value     string
}

// Unreadable is a path that is there but could not be read: a fact, not a gap.
type Unreadable struct {
	Path   string
	Reason string // "EACCES", "EINVAL", …
}

// PathType is how far two devices are from each other.
type PathType string

// Path types. NCCL's order is LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS;
// NODE is only in nvidia-smi's.
const (
	LOC  PathType = "LOC"
	NVL  PathType = "NVL"
	NVB  PathType = "NVB"
	C2C  PathType = "C2C"
	PIX  PathType = "PIX"
	PXB  PathType = "PXB"
	P2C  PathType = "P2C"
	PXN  PathType = "PXN"
	PHB  PathType = "PHB"
	NODE PathType = "NODE"
	SYS  PathType = "SYS"
	DIS  PathType = "DIS"
)

// Path is the way between two devices of one host.
type Path struct {
	From, To string   // PCI address, or HCA name for devices without PCI
	HCA      string   // name of the HCA at To; "" between GPUs
	NCCL     PathType // as NCCL names it; "" unknown (hidden topology)
	SMI      PathType // as nvidia-smi topo -m names it; "" unknown
	Chain    []string // the addresses (and "cpu0" …) on the way, both ends included
	// GBps is the narrowest link on the way, gigabytes per second, current width and speed; nil unknown.
	GBps     *float64
	Narrow   string // the address of that narrowest link
	Degraded string // a link on the way below its maximum; "" none
	NVLinks  int    // direct NVLink or xGMI connections between two GPUs
	LinkKind string // what these are: "nvlink", "xgmi"
}

// PFCMask is a set of priorities as mlnx_qos takes it: "0,0,0,1,0,0,0,0".
func PFCMask(priorities []int) string {
	bits := []byte("0,0,0,0,0,0,0,0")
	for _, p := range priorities {
		if p >= 0 && p < 8 {
			bits[2*p] = '1'
		}
	}
	return string(bits)
}

// Netdev is the network device of that name; nil where there is none.
func (h *Host) Netdev(name string) *Netdev {
	for i := range h.Netdevs {
		if name != "" && h.Netdevs[i].Name == name {
			return &h.Netdevs[i]
		}
	}
	return nil
}

// DCBNetdev is the interface that carries the DCB settings of the named one: itself,
// or what lies below a VLAN or bond; nil where the named one is not there.
func (h *Host) DCBNetdev(name string) *Netdev {
	n := h.Netdev(name)
	for range 4 {
		if n == nil || n.DCB != nil {
			return n
		}
		below := n.Lower
		if below == "" && len(n.Slaves) > 0 {
			below = n.Slaves[0]
		}
		m := h.Netdev(below)
		if m == nil {
			return n
		}
		n = m
	}
	return n
}
