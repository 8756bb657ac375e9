package discover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/topology"
)

// Facts that are not files of the kernel's trees are carried by text sections
// under fabrun/, written by package live (and by the fabrun-nvml helper) and
// read here, so that the live machine, a snapshot and a fixture are one path.
//
// All sections are lines of words; a blank line and a line that begins with #
// are skipped; "-" stands for unknown. A section that could not be taken is an
// unreadable entry ("fabrun/dcb/eth0 ! EOPNOTSUPP"), which is a fact too. A
// line that cannot be read leaves an Unreadable entry on the Host and the rest
// of the section counts. Unknown first words are skipped, so that an older
// fabrun reads a newer snapshot.
//
//	-- fabrun/limits --             of the process that looked
//	memlock 65536 unlimited         soft, hard: bytes
//	ipc-lock no                     whether CAP_IPC_LOCK lifts that limit
//	nofile 1024 1048576             soft, hard
//	shm 67108864 67104768           size and free bytes of dev/shm
//	pids-max 4915                   of the cgroup; "max" is unlimited
//
//	-- fabrun/affinity --
//	0-31,64-95                      CPUs this process may use
//
//	-- fabrun/env --                allow-listed names only
//	NCCL_DEBUG=WARN                 value to the end of the line; a value with
//	NCCL_X="a\nb"                   control characters, or beginning with ", is a Go string
//
//	-- fabrun/addrs --
//	eth0 192.0.2.2/24
//	eth0 fe80::fc:ff:fe00:1/64
//
//	-- fabrun/routes --             destination, then pairs in any order
//	0.0.0.0/0 dev eth0 via 192.0.2.1 table 254 metric 100 src 192.0.2.2
//	10.1.0.0/16 dev ens1 table 101
//
//	-- fabrun/rules --              policy routing, by priority
//	priority 32765 from 10.1.0.5/32 table 101
//
//	-- fabrun/rdma-netns --
//	shared                          or exclusive (rdma system show)
//
//	-- fabrun/devices --            device nodes of interest, and whether they open
//	dev/infiniband/uverbs0 rw
//	dev/infiniband/rdma_cm EACCES   the reason why not
//	dev/nvidia-caps-imex-channels/channel0 -
//	dev/nvidia0 -                   there, not tried
//
//	-- fabrun/container --
//	docker .dockerenv               kind, evidence to the end of the line; empty: none seen
//
//	-- fabrun/modules --            loaded (or built in) kernel modules that matter here
//	mlx5_core 24.10-0.7.0
//	rdma_cm -
//
//	-- fabrun/iommu --
//	groups 64
//	passthrough yes
//	cmdline intel_iommu=on iommu=pt
//	acs 0000:3a:00.0                a port whose ACS redirects peer traffic
//
//	-- fabrun/peermem --            yes, no; absent line: unknown
//	nvidia-peermem yes module nvidia_peermem
//	dma-buf no
//	gdrcopy no
//	open-module yes
//	kfd no
//	amd-peer no
//
//	-- fabrun/software --           separated by tabs: kind, version, path, detail, hash
//	nccl	2.21.5	usr/lib/x86_64-linux-gnu/libnccl.so.2	-	-
//	openmpi	4.1.4	usr/bin/mpirun.openmpi	UCX component present	-
//
//	-- fabrun/launchers --          separated by tabs: name, path, quoted answer to --version
//	mpirun	/usr/bin/orterun	"mpirun (Open MPI) 4.1.4\n"
//
//	-- fabrun/user --               numeric user of the process that looked
//	uid 1000
//
//	-- fabrun/config/nccl/etc/nccl.conf --     kind, then the file's path; its text
//	NCCL_IB_TC=106
//
//	-- fabrun/dcb/ens1f0np0 --
//	trust dscp                      dscp or pcp
//	pfc 3                           lossless priorities; "pfc" alone: none
//	dscp 26 3                       one line an entry of the DSCP→priority map
//	prio-tc 1 0 2 3 4 5 6 7
//	tc-bw 0 0 0 50 0 0 50 0         percent
//	tc-tsa vendor vendor vendor ets vendor vendor strict vendor
//	willing off
//	dcbx host ieee                  the flags
//	prio-buffer 0 0 0 1 0 0 0 0
//	buffer-size 130944 130944 0 0 0 0 0 0      bytes
//
//	-- fabrun/ethtool/ens1f0np0 --
//	driver mlx5_core                value to the end of the line, as in the next three
//	version 24.10-0.7.0
//	firmware 20.31.1014 (MT_0000000223)
//	bus 0000:3b:00.0
//	pause off                       802.3x global pause, rx or tx: on, off
//	stat rx_prio3_pause 12
//
//	-- fabrun/counters --
//	time 2026-01-02T03:04:05.678Z
//	mlx5_0:1 port_xmit_data 123456  device (with port) or netdev, counter, value
//
//	-- fabrun/nvml --               from fabrun-nvml; keyed by PCI address
//	driver 570.86.15
//	cuda 12.8
//	gpu 0000:1b:00.0 name NVIDIA H100 80GB HBM3
//	gpu 0000:1b:00.0 uuid GPU-6a3b…
//	gpu 0000:1b:00.0 memory 85520809984
//	gpu 0000:1b:00.0 capability 9.0
//	gpu 0000:1b:00.0 numa 0
//	gpu 0000:1b:00.0 minor 0
//	gpu 0000:1b:00.0 mig MIG-1f… 1g.10gb
//	gpu 0000:1b:00.0 link nvlink 0000:05:00.0 4 0x068000   kind, target ("-" unknown), links, class of the target
//	gpu 0000:1b:00.0 no-p2p 0000:43:00.0                   reads between the two are not possible
//	gpu-error 3 the GPU has fallen off the bus             a GPU that NVML counts and cannot open: Host.Unreadable
//
//	-- fabrun/opinions --           second opinions (ghw, rdmamap); tabs: source, subject, attribute, value
//	rdmamap	mlx5_0	netdev	ens1f0np0
//	ghw	0000:3b:00.0	name	Mellanox Technologies MT28908 Family [ConnectX-6]
//
//	-- fabrun/places --             what a job needs at the same path; tabs: role, path, state, content, file system, detail
//	program	/home/u/solver	ok	build-id:6a3b…	nfs4 nas:/home	-
//	library	/usr/lib/libmpi.so.40	ok	build-id:17c2…	-	libmpi.so.40
//	directory	/home/u/case	ENOENT	-	-	-
//
//	-- fabrun/clock --
//	time 2026-01-02T03:04:05.678Z
//	synchronised yes
//	source 10.0.0.1                 a time server's address, or "dev ens1f0" for ptp4l
//
//	-- fabrun/cpufreq --
//	driver acpi-cpufreq
//	governor schedutil 64           how many frequency policies
//
//	-- fabrun/irqs --               of RDMA devices: function, how many, the CPUs that serve them
//	0000:3b:00.0 64 0-31
//
//	-- fabrun/pcie --               of their device control register; root only
//	0000:3b:00.0 relaxed-ordering on max-payload 256 max-read-request 512
//
//	-- fabrun/kernel-log --         lines of NIC and GPU drivers: seconds since boot, text
//	uptime 86400
//	at 12 mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged
//
//	-- fabrun/session --
//	ssh 10.0.0.5                    this host's address of the ssh connection
const (
	SectionLimits    = "fabrun/limits"
	SectionAffinity  = "fabrun/affinity"
	SectionEnv       = "fabrun/env"
	SectionAddrs     = "fabrun/addrs"
	SectionRoutes    = "fabrun/routes"
	SectionRules     = "fabrun/rules"
	SectionRDMANetns = "fabrun/rdma-netns"
	SectionDevices   = "fabrun/devices"
	SectionContainer = "fabrun/container"
	SectionModules   = "fabrun/modules"
	SectionIOMMU     = "fabrun/iommu"
	SectionPeerMem   = "fabrun/peermem"
	SectionSoftware  = "fabrun/software"
	SectionLaunchers = "fabrun/launchers"
	SectionUser      = "fabrun/user"
	SectionConfig    = "fabrun/config"  // a directory: fabrun/config/<kind>/<path>
	SectionDCB       = "fabrun/dcb"     // a directory: fabrun/dcb/<netdev>
	SectionEthtool   = "fabrun/ethtool" // a directory: fabrun/ethtool/<netdev>
	SectionCounters  = "fabrun/counters"
	SectionNVML      = "fabrun/nvml"
	SectionOpinions  = "fabrun/opinions"
	SectionPlaces    = "fabrun/places"
	SectionClock     = "fabrun/clock"
	SectionSession   = "fabrun/session"
	SectionCPUFreq   = "fabrun/cpufreq"
	SectionIRQs      = "fabrun/irqs"
	SectionPCIe      = "fabrun/pcie"
	SectionKernelLog = "fabrun/kernel-log"
)

// factParser reads one section into a Host. It returns what it could not read,
// one reason a line.
type factParser struct {
	path  string
	parse func(text []byte, h *topology.Host) []string
}

// factParsers is every single-file section, in the order they are read.
var factParsers = []factParser{
	{SectionLimits, parseLimits},
	{SectionAffinity, parseAffinity},
	{SectionEnv, parseEnv},
	{SectionAddrs, parseAddrs},
	{SectionRoutes, parseRoutes},
	{SectionRules, parseRules},
	{SectionRDMANetns, parseRDMANetns},
	{SectionContainer, parseContainer},
	{SectionModules, parseModules},
	{SectionIOMMU, parseIOMMU},
	{SectionPeerMem, parsePeerMem},
	{SectionSoftware, parseSoftware},
	{SectionLaunchers, parseLaunchers},
	{SectionUser, parseUser},
	{SectionCounters, parseCounters},
	{SectionNVML, parseNVML},
	{SectionDevices, parseDevices}, // after modules and NVML: it looks for each GPU's node
	{SectionOpinions, parseOpinions},
	{SectionPlaces, parsePlaces},
	{SectionClock, parseClock},
	{SectionSession, parseSession},
	{SectionCPUFreq, parseCPUFreq},
	{SectionIRQs, parseIRQs},
	{SectionPCIe, parsePCIe},
	{SectionKernelLog, parseKernelLog},
}

// readFacts fills h from the fabrun/ sections of fsys. It is called last, when
// netdevs, GPUs and HCAs of h are there to be completed by name or address.
//
// It fills Limits (the process's: memlock, nofile, shm, pids), CPU.Allowed,
// Env, Places, Clock, ReachedBy, KernelLog, CPU.Governors, PCI[].{RelaxedOrdering,MaxReadRequest,MaxPayload,IRQs,IRQCPUs}, Netdevs[].{Addrs,DCB,DCBError,Ethtool}, Routes, Rules, RDMANetns,
// DeviceNodes, GPUs[].{Name,UUID,Memory,Capability,Driver,MIG,Links,NoP2P,DeviceNode},
// Container, Modules, IOMMU, PeerMemory, Software, ConfigFiles, Counters and
// Opinions. Everything else of a Host comes from the kernel's files.
func readFacts(fsys fs.FS, h *topology.Host) {
	for _, p := range factParsers {
		text, err := fs.ReadFile(fsys, p.path)
		if err != nil {
			noteUnreadable(h, p.path, err)
			continue
		}
		for _, why := range p.parse(text, h) {
			h.Unreadable = append(h.Unreadable, topology.Unreadable{Path: p.path, Reason: why})
		}
	}
	readConfigFiles(fsys, h)
	for i := range h.Netdevs {
		readNetdevFacts(fsys, h, &h.Netdevs[i])
	}
}

// noteUnreadable records a path that is there and cannot be read. A path that
// is not there is no fact.
func noteUnreadable(h *topology.Host, path string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	h.Unreadable = append(h.Unreadable, topology.Unreadable{Path: path, Reason: Reason(err)})
}

func readConfigFiles(fsys fs.FS, h *topology.Host) {
	err := fs.WalkDir(fsys, SectionConfig, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			noteUnreadable(h, path, err)
			return nil
		}
		if d.IsDir() {
			return nil
		}
		kind, file, ok := strings.Cut(strings.TrimPrefix(path, SectionConfig+"/"), "/")
		if !ok {
			return nil
		}
		text, err := fs.ReadFile(fsys, path)
		if err != nil {
			noteUnreadable(h, path, err)
			return nil
		}
		h.ConfigFiles = append(h.ConfigFiles, topology.ConfigFile{Kind: kind, Path: file, Text: string(text)})
		return nil
	})
	if err != nil {
		noteUnreadable(h, SectionConfig, err)
	}
	slices.SortStableFunc(h.ConfigFiles, func(a, b topology.ConfigFile) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
	})
}

func readNetdevFacts(fsys fs.FS, h *topology.Host, nd *topology.Netdev) {
	path := SectionDCB + "/" + nd.Name
	if !fs.ValidPath(path) {
		return
	}
	switch text, err := fs.ReadFile(fsys, path); {
	case err == nil:
		dcb, bad := parseDCB(text)
		nd.DCB = dcb
		noteLines(h, path, bad)
	case !errors.Is(err, fs.ErrNotExist):
		// "Not supported" is an answer about the device, not a gap of the snapshot.
		nd.DCBError = Reason(err)
	}
	path = SectionEthtool + "/" + nd.Name
	switch text, err := fs.ReadFile(fsys, path); {
	case err == nil:
		et, bad := parseEthtool(text)
		nd.Ethtool = et
		noteLines(h, path, bad)
	case Reason(err) != "EOPNOTSUPP":
		noteUnreadable(h, path, err)
	}
}

func noteLines(h *topology.Host, path string, bad []string) {
	for _, why := range bad {
		h.Unreadable = append(h.Unreadable, topology.Unreadable{Path: path, Reason: why})
	}
}

// Reason is how an unreadable entry names why: the symbolic name of a system
// error ("EACCES"), else the error's text on one line.
func Reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if name, ok := errnoNames[errno]; ok {
			return name
		}
		return "errno " + strconv.Itoa(int(errno))
	}
	// The operation and the path are known to whoever reads the entry.
	var pathErr *fs.PathError
	for errors.As(err, &pathErr) && pathErr.Err != nil {
		err, pathErr = pathErr.Err, nil
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

var errnoNames = map[syscall.Errno]string{
	syscall.EACCES: "EACCES", syscall.EAFNOSUPPORT: "EAFNOSUPPORT", syscall.EAGAIN: "EAGAIN",
	syscall.EBUSY: "EBUSY", syscall.EFAULT: "EFAULT", syscall.EFBIG: "EFBIG", syscall.EINTR: "EINTR",
	syscall.EINVAL: "EINVAL", syscall.EIO: "EIO", syscall.EISDIR: "EISDIR", syscall.ELOOP: "ELOOP",
	syscall.EMFILE: "EMFILE", syscall.ENODATA: "ENODATA", syscall.ENODEV: "ENODEV", syscall.ENOENT: "ENOENT",
	syscall.ENOMEM: "ENOMEM", syscall.ENOSYS: "ENOSYS", syscall.ENOTCONN: "ENOTCONN", syscall.ENOTDIR: "ENOTDIR",
	syscall.ENXIO: "ENXIO", syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.EPERM: "EPERM",
	syscall.EPROTONOSUPPORT: "EPROTONOSUPPORT", syscall.ESRCH: "ESRCH", syscall.ETIMEDOUT: "ETIMEDOUT",
}

// eachLine calls f with the words of every line that says something. An error
// of f is kept with its line number.
func eachLine(text []byte, f func(words []string, line string) error) []string {
	var bad []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := f(words, line); err != nil {
			bad = append(bad, fmt.Sprintf("line %d: %v", n, err))
		}
	}
	return bad
}

// after returns what follows the first n words of line, trimmed.
func after(line string, n int) string {
	for range n {
		line = strings.TrimLeft(line, " \t")
		i := strings.IndexAny(line, " \t")
		if i < 0 {
			return ""
		}
		line = line[i:]
	}
	return strings.TrimSpace(line)
}

func known(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func parseYesNo(s string) (*bool, error) {
	switch s {
	case "yes", "on":
		return new(true), nil
	case "no", "off":
		return new(false), nil
	case "-":
		return nil, nil
	}
	return nil, fmt.Errorf("want yes or no, got %q", s)
}

func parseLimit(s string) (*uint64, error) {
	switch s {
	case "unlimited", "max":
		return new(topology.Unlimited), nil
	case "-":
		return nil, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("want a number or unlimited, got %q", s)
	}
	return &v, nil
}

func parseSize(s string) (*int64, error) {
	if s == "-" {
		return nil, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 {
		return nil, fmt.Errorf("want a number of bytes, got %q", s)
	}
	return &v, nil
}

func parseLimits(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		want := map[string]int{"memlock": 3, "nofile": 3, "shm": 3, "pids-max": 2, "ipc-lock": 2}[w[0]]
		if want == 0 {
			return nil
		}
		if len(w) != want {
			return fmt.Errorf("%s wants %d values, got %d", w[0], want-1, len(w)-1)
		}
		var err error
		pair := func(soft, hard **uint64) error {
			if *soft, err = parseLimit(w[1]); err != nil {
				return err
			}
			*hard, err = parseLimit(w[2])
			return err
		}
		switch w[0] {
		case "memlock":
			return pair(&h.Limits.MemlockSoft, &h.Limits.MemlockHard)
		case "ipc-lock":
			h.Limits.IPCLock, err = parseYesNo(w[1])
			return err
		case "nofile":
			return pair(&h.Limits.NofileSoft, &h.Limits.NofileHard)
		case "shm":
			if h.Limits.ShmBytes, err = parseSize(w[1]); err != nil {
				return err
			}
			_, err = parseSize(w[2]) // free: for people
			return err
		default: // pids-max
			if w[1] == "max" || w[1] == "unlimited" {
				return nil
			}
			_, err = parseSize(w[1])
			return err
		}
	})
}

func parseAffinity(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		cpus, err := topology.ParseCPUs(w[0])
		if err == nil {
			h.CPU.Allowed = cpus
		}
		return err
	})
}

func parseEnv(text []byte, h *topology.Host) []string {
	bad := eachLine(text, func(_ []string, line string) error {
		name, value, ok := strings.Cut(strings.TrimLeft(line, " \t"), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return fmt.Errorf("want NAME=value, got %q", line)
		}
		if strings.HasPrefix(value, `"`) {
			v, err := strconv.Unquote(value)
			if err != nil {
				return fmt.Errorf("%s: not a quoted string: %s", name, value)
			}
			value = v
		}
		h.Env = append(h.Env, topology.EnvVar{Name: name, Value: value})
		return nil
	})
	slices.SortStableFunc(h.Env, func(a, b topology.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return bad
}

func findNetdev(h *topology.Host, name string) *topology.Netdev {
	for i := range h.Netdevs {
		if h.Netdevs[i].Name == name {
			return &h.Netdevs[i]
		}
	}
	return nil
}

func parseAddrs(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		if len(w) < 2 {
			return fmt.Errorf("want netdev and address, got %q", w[0])
		}
		p, err := netip.ParsePrefix(w[1])
		if err != nil {
			return fmt.Errorf("want address/length, got %q", w[1])
		}
		// An address of a netdev that sysfs does not show belongs to nobody.
		if nd := findNetdev(h, w[0]); nd != nil {
			nd.Addrs = append(nd.Addrs, p)
		}
		return nil
	})
}

func parseRoutes(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		r := topology.Route{Table: 254}
		var err error
		if r.Dst, err = netip.ParsePrefix(w[0]); err != nil {
			return fmt.Errorf("want destination/length, got %q", w[0])
		}
		for i := 1; i+1 < len(w); i += 2 {
			key, val := w[i], w[i+1]
			switch key {
			case "dev":
				r.Netdev = val
			case "via":
				r.Via, err = netip.ParseAddr(val)
			case "src":
				r.Src, err = netip.ParseAddr(val)
			case "table":
				r.Table, err = strconv.Atoi(val)
			case "metric":
				r.Metric, err = strconv.Atoi(val)
			}
			if err != nil {
				return fmt.Errorf("%s: cannot read %q", key, val)
			}
		}
		h.Routes = append(h.Routes, r)
		return nil
	})
}

func parseRules(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		var r topology.RouteRule
		var err error
		for i := 0; i+1 < len(w); i += 2 {
			key, val := w[i], w[i+1]
			switch key {
			case "priority":
				r.Priority, err = strconv.Atoi(val)
			case "from":
				r.From, err = netip.ParsePrefix(val)
			case "to":
				r.To, err = netip.ParsePrefix(val)
			case "iif":
				r.In = val
			case "oif":
				r.Out = val
			case "table":
				r.Table, err = strconv.Atoi(val)
			}
			if err != nil {
				return fmt.Errorf("%s: cannot read %q", key, val)
			}
		}
		h.Rules = append(h.Rules, r)
		return nil
	})
}

func parseRDMANetns(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		if w[0] != "shared" && w[0] != "exclusive" {
			return fmt.Errorf("want shared or exclusive, got %q", w[0])
		}
		h.RDMANetns = w[0]
		return nil
	})
}

func parseDevices(text []byte, h *topology.Host) []string {
	nodes := &topology.DeviceNodes{}
	tried := false
	there := map[string]bool{}
	bad := eachLine(text, func(w []string, _ string) error {
		if len(w) < 2 {
			return fmt.Errorf("want node and rw, - or a reason, got %q", w[0])
		}
		there[w[0]] = true
		name, ok := strings.CutPrefix(w[0], "dev/infiniband/")
		if !ok {
			return nil
		}
		nodes.Names = append(nodes.Names, name)
		if w[1] != "-" {
			tried = true
		}
		if w[1] == "rw" {
			nodes.Openable = append(nodes.Openable, name)
		}
		return nil
	})
	if tried && nodes.Openable == nil {
		nodes.Openable = []string{}
	}
	h.DeviceNodes = nodes
	channels := 0
	for name := range there {
		if strings.HasPrefix(name, "dev/nvidia-caps-imex-channels/channel") {
			channels++
		}
	}
	// A snapshot from before channels were listed has none, and tells no domain.
	if channels > 0 || slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return g.Domain != nil }) {
		h.IMEX = &channels
	}
	nvidia := there["dev/nvidiactl"]
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Vendor != "nvidia" || g.DeviceNode != nil {
			continue
		}
		// Without any NVIDIA node the driver may just not be there: then the
		// GPU is not hidden from this container, it is unusable on the host.
		if nvidia || slices.ContainsFunc(h.Modules, func(m topology.Module) bool { return m.Name == "nvidia" }) {
			minor := g.Index
			if g.Minor != nil {
				minor = *g.Minor
			}
			g.DeviceNode = new(there["dev/nvidia"+strconv.Itoa(minor)])
		}
	}
	if h.PeerMemory.GDRCopy == nil {
		h.PeerMemory.GDRCopy = new(there["dev/gdrdrv"])
	}
	return bad
}

func parseContainer(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		h.Container = topology.Container{Kind: w[0], Why: after(line, 1)}
		return nil
	})
}

func parseModules(text []byte, h *topology.Host) []string {
	h.Modules = []topology.Module{}
	bad := eachLine(text, func(w []string, line string) error {
		h.Modules = append(h.Modules, topology.Module{Name: w[0], Version: known(after(line, 1))})
		return nil
	})
	slices.SortStableFunc(h.Modules, func(a, b topology.Module) int { return cmp.Compare(a.Name, b.Name) })
	return bad
}

func parseIOMMU(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		if len(w) < 2 {
			return fmt.Errorf("%s wants a value", w[0])
		}
		switch w[0] {
		case "groups":
			n, err := strconv.Atoi(w[1])
			if err != nil || n < 0 {
				return fmt.Errorf("groups: cannot read %q", w[1])
			}
			h.IOMMU.Groups = &n
		case "passthrough":
			v, err := parseYesNo(w[1])
			if err != nil {
				return err
			}
			h.IOMMU.Passthrough = v
		case "cmdline":
			h.IOMMU.CommandLine = after(line, 1)
		case "acs":
			h.IOMMU.ACSRedirect = append(h.IOMMU.ACSRedirect, strings.ToLower(w[1]))
		}
		return nil
	})
}

func parsePeerMem(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		if len(w) < 2 {
			return fmt.Errorf("%s wants yes or no", w[0])
		}
		v, err := parseYesNo(w[1])
		if err != nil {
			return err
		}
		switch w[0] {
		case "nvidia-peermem":
			h.PeerMemory.NvidiaPeermem = v
		case "dma-buf":
			h.PeerMemory.DMABuf = v
		case "gdrcopy":
			h.PeerMemory.GDRCopy = v
		case "open-module": // for people
		case "kfd":
			h.PeerMemory.AMDKFD = v
		case "amd-peer":
			h.PeerMemory.AMDPeer = v
		}
		return nil
	})
}

func parseSoftware(text []byte, h *topology.Host) []string {
	return eachLine(text, func(_ []string, line string) error {
		f := strings.Split(line, "\t")
		if len(f) < 3 || f[0] == "" {
			return fmt.Errorf("want kind, version and path separated by tabs, got %q", line)
		}
		for len(f) < 5 {
			f = append(f, "-")
		}
		h.Software = append(h.Software, topology.Software{
			Kind: f[0], Version: known(f[1]), Path: known(f[2]), Detail: known(f[3]), Hash: known(f[4]),
		})
		return nil
	})
}

func parseLaunchers(text []byte, h *topology.Host) []string {
	return eachLine(text, func(_ []string, line string) error {
		f := strings.Split(line, "\t")
		if len(f) != 3 || f[0] == "" {
			return fmt.Errorf("want name, path and quoted version separated by tabs, got %q", line)
		}
		version, err := strconv.Unquote(f[2])
		if err != nil {
			return fmt.Errorf("version of %s: want a quoted text, got %q", f[0], f[2])
		}
		h.Launchers = append(h.Launchers, topology.Launcher{Name: f[0], Path: known(f[1]), Version: version})
		return nil
	})
}

func parseUser(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		if len(w) != 2 || w[0] != "uid" {
			return fmt.Errorf("want uid and a number, got %q", line)
		}
		n, err := strconv.Atoi(w[1])
		if err != nil || n < 0 {
			return fmt.Errorf("uid: want a number, got %q", w[1])
		}
		h.UID = &n
		return nil
	})
}

func parseCounters(text []byte, h *topology.Host) []string {
	var at time.Time
	index := map[string]int{}
	bad := eachLine(text, func(w []string, _ string) error {
		if w[0] == "time" && len(w) == 2 {
			t, err := time.Parse(time.RFC3339Nano, w[1])
			if err != nil {
				return fmt.Errorf("time: want RFC 3339, got %q", w[1])
			}
			at = t
			return nil
		}
		if len(w) != 3 {
			return fmt.Errorf("want device, counter and value, got %d words", len(w))
		}
		v, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%s %s: cannot read %q", w[0], w[1], w[2])
		}
		i, ok := index[w[0]]
		if !ok {
			i = len(h.Counters)
			index[w[0]] = i
			h.Counters = append(h.Counters, topology.CounterSample{Device: w[0], Values: map[string]int64{}})
		}
		h.Counters[i].Values[w[1]] = v
		return nil
	})
	for i := range h.Counters {
		h.Counters[i].At = at
	}
	return bad
}

func parseOpinions(text []byte, h *topology.Host) []string {
	return eachLine(text, func(_ []string, line string) error {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			return fmt.Errorf("want source, subject, attribute and value separated by tabs, got %q", line)
		}
		o := topology.Opinion{Source: f[0], Subject: f[1], Attribute: f[2], Value: f[3]}
		h.Opinions = append(h.Opinions, o)
		if o.Attribute == "name" {
			nameDevice(h, o)
		}
		return nil
	})
}

// nameDevice gives a device the name a PCI ID database has for it, where
// nothing better is known.
func nameDevice(h *topology.Host, o topology.Opinion) {
	for i := range h.PCI {
		if h.PCI[i].Address == o.Subject && h.PCI[i].Name == "" {
			h.PCI[i].Name = o.Value
		}
	}
	for i := range h.GPUs {
		if h.GPUs[i].PCI == o.Subject && h.GPUs[i].Name == "" {
			h.GPUs[i].Name = o.Value
		}
	}
}
