package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/health"
)

// Job is what the checks have to know of the job. The zero value is a job that
// uses every RDMA port and may use GPUs.
type Job struct {
	Ports   []string // "mlx5_0:1": what the plan chose on this host; nil: every port that could be
	UsesGPU *bool    // nil unknown
	RDMACM  bool     // connections are made through rdma_cm
}

// check is one thing that is looked at on one host.
type check struct {
	id  string // of its findings
	run func(*look)
}

// checks is the explicit list, in the order in which a person would look.
func checks() []check {
	all := []check{{"port.none", checkAny}}
	for _, c := range health.Checks() {
		all = append(all, check{c.ID, func(l *look) {
			e := Expectations(*l.p)
			e.Chosen = true
			l.out = append(l.out, c.Ports(l.h, l.mine, e)...)
		}})
	}
	return append(all, []check{
		{"hca.firmware", checkFirmware},
		{"pcie.link", checkPCIe},
		{"pcie.acs", checkACS},
		{"pcie.relaxed-ordering", checkRelaxedOrdering},
		{"pcie.read-request", checkReadRequest},
		{"pcie.iommu", checkIOMMU},
		{"numa.placement", checkNUMA},
		{"numa.balancing", checkNUMABalancing},
		{"cpu.governor", checkGovernor},
		{"irq.affinity", checkIRQs},
		{"gdr.peer-memory", checkPeer},
		{"nvlink.domain", checkDomain},
		{"limits.memlock", checkMemlock},
		{"limits.nofile", checkNofile},
		{"limits.shm", checkShm},
		{"limits.buffers", checkBuffers},
		{"limits.hugepages", checkHuge},
		{"device.nodes", checkNodes},
		{"device.modules", checkModules},
		{"container.hidden", checkHidden},
		{"cm.roce-mode", checkCMMode},
		{"net.subnet", checkSubnet},
		{"net.default-route", checkDefaultRoute},
		{"net.management", checkManagement},
		{"net.bridge", checkBridge},
		{"counter.errors", checkCounters},
		{"kernel.log", checkKernelLog},
		{"clock.sync", checkClock},
		{"software.verbs", checkVerbs},
		{"software.gpu-plugin", checkPlugin},
		{"place.program", checkProgram},
		{"place.libraries", checkLibraries},
		{"place.directory", checkDirectory},
	}...)
}

// OfProcess says whether a finding is about the process that looked (its limits, its
// libraries, what its container was given) and not about the machine.
func OfProcess(f finding.Finding) bool {
	group, _, _ := strings.Cut(f.ID, ".")
	return slices.Contains([]string{"limits", "software", "place", "container"}, group) || f.ID == "device.nodes"
}

// HostFindings runs every check on one host.
func HostFindings(h topology.Host, p profiles.Profile, j Job) []finding.Finding {
	j.RDMACM = j.RDMACM || usesRDMACM(h.Env)
	l := &look{h: &h, p: &p, j: j}
	for _, hca := range h.HCAs {
		for i := range hca.Ports {
			l.ports = append(l.ports, portRef{hca: hca, port: hca.Ports[i], mine: l.mine(hca, hca.Ports[i])})
		}
	}
	for _, c := range checks() {
		l.id = c.id
		c.run(l)
	}
	finding.Sort(l.out)
	return l.out
}

// portRef is a port and whether the job uses it.
type portRef struct {
	hca  topology.HCA
	port topology.Port
	mine bool
}

func (r portRef) String() string { return fmt.Sprintf("%s port %d", r.hca.Name, r.port.Number) }

type look struct {
	h     *topology.Host
	p     *profiles.Profile
	j     Job
	ports []portRef
	id    string
	out   []finding.Finding
}

// mine says whether the job uses a port: the plan's choice, or by the profile.
func (l *look) mine(hca topology.HCA, p topology.Port) bool {
	if l.j.Ports != nil {
		return slices.Contains(l.j.Ports, fmt.Sprintf("%s:%d", hca.Name, p.Number)) || slices.Contains(l.j.Ports, hca.Name)
	}
	if slices.Contains(l.p.Fabric.ExcludeHCAs, hca.Name) || hca.Class == "net" || hca.Class == "pci" {
		return false
	}
	if l.p.Fabric.Driver != "" && hca.Driver != l.p.Fabric.Driver {
		return false
	}
	want := l.p.Fabric.LinkLayer
	return want == "" || p.LinkLayer == "" || strings.EqualFold(want, p.LinkLayer)
}

func (l *look) say(sev finding.Severity, subject, seen, wanted, why, hint string) {
	l.out = append(l.out, finding.Finding{ID: l.id, Severity: sev, Host: l.h.Name, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

// jobs are the ports that the job uses: of others nothing is wanted, whatever
// their MTU, trust mode or addresses are.
func (l *look) jobs() []portRef {
	return slices.DeleteFunc(slices.Clone(l.ports), func(r portRef) bool { return !r.mine })
}

func (l *look) usesHCA(name string) bool {
	return slices.ContainsFunc(l.ports, func(r portRef) bool { return r.hca.Name == name && r.mine })
}

func (r portRef) roce() bool { return r.port.LinkLayer == "Ethernet" && r.hca.SpeaksRoCE() }
func (r portRef) ib() bool   { return r.port.LinkLayer == "InfiniBand" }

func (l *look) pci(addr string) *topology.PCIDevice {
	for i := range l.h.PCI {
		if addr != "" && l.h.PCI[i].Address == addr {
			return &l.h.PCI[i]
		}
	}
	return nil
}

func (l *look) gpus() bool { return len(l.h.GPUs) > 0 && (l.j.UsesGPU == nil || *l.j.UsesGPU) }

func checkAny(l *look) {
	for _, r := range l.ports {
		if r.mine {
			return
		}
	}
	sev := finding.Error
	if l.p.Fabric.SetNothing {
		sev = finding.Note
	}
	if len(l.h.HCAs) == 0 {
		var cards []string
		for _, d := range l.h.PCI {
			// Class 0x0207 is InfiniBand; every Ethernet function of NVIDIA's (15b3) has RDMA.
			if d.Class != nil && (*d.Class>>8 == 0x0207 || *d.Class>>8 == 0x0200 && d.Vendor != nil && *d.Vendor == 0x15b3) {
				cards = append(cards, d.Address)
			}
		}
		if cards != nil && l.h.Container.Kind == "" {
			l.say(sev, "RDMA devices", "none in /sys/class/infiniband, but adapters at "+few(cards, 4), "one for each adapter", "this host can only talk over sockets", "'lspci -k' shows what is bound; modprobe mlx5_ib (as root, or the adapter's own driver)")
			return
		}
		hint := "is the driver loaded? ('lspci -k' shows what is bound)"
		switch inside := l.h.Container.Give(topology.NeedSys, topology.NeedDevices); {
		case inside != "" && (cards != nil || len(l.h.PCI) == 0): // or the container hides all of /sys
			hint = inside
		case inside != "":
			hint = "the PCI bus shows no RDMA adapter either: the host has none, so no option of the container brings one"
		}
		l.say(sev, "RDMA devices", "none in /sys/class/infiniband", "at least one", "this host can only talk over sockets", hint)
		return
	}
	l.say(sev, "RDMA devices", fmt.Sprintf("%d, none that the profile means", len(l.h.HCAs)), cmp.Or(l.p.Fabric.LinkLayer, "a usable port"), "the job has no port here", "check link_layer and exclude_hcas of the profile")
}

// Expectations is what a profile wants of a port.
func Expectations(p profiles.Profile) health.Expect {
	e := health.Expect{LinkLayer: p.Fabric.LinkLayer, RateGbps: p.Fabric.RateGbps, MinMTU: p.Fabric.MinMTUBytes, GIDFamily: p.Fabric.GIDFamily}
	if q := p.Fabric.QoS; q != nil {
		e.QoS = &health.QoS{Trust: q.Trust, DSCP: q.RDMA.DSCP, TC: q.RDMA.TC(), Priority: q.RDMA.Priority, PFC: q.PFC}
		if q.CNP != nil {
			e.QoS.CNP = &topology.CNP{DSCP: &q.CNP.DSCP, Priority: q.CNP.Priority}
		}
	}
	return e
}

func checkPCIe(l *look) {
	const sev = finding.Warning
	one := func(addr, what string) {
		d := l.pci(addr)
		if d == nil {
			return
		}
		if d.Link.Width != nil && d.LinkMax.Width != nil && *d.Link.Width > 0 && *d.Link.Width < *d.LinkMax.Width {
			l.say(sev, what, fmt.Sprintf("PCIe x%d", *d.Link.Width), fmt.Sprintf("x%d", *d.LinkMax.Width), "its bandwidth is cut in proportion", "reseat the card or riser; a slot may have fewer lanes")
		}
		// GPUs lower their link's speed when idle: no finding.
		if strings.HasPrefix(what, "GPU") {
			return
		}
		if d.Link.SpeedMTps != nil && d.LinkMax.SpeedMTps != nil && *d.Link.SpeedMTps > 0 && *d.Link.SpeedMTps < *d.LinkMax.SpeedMTps {
			l.say(sev, what, fmt.Sprintf("PCIe %g GT/s", float64(*d.Link.SpeedMTps)/1000), fmt.Sprintf("%g GT/s", float64(*d.LinkMax.SpeedMTps)/1000), "half the bandwidth or less", "BIOS: PCIe link speed; or the slot is of an older generation"+finding.Reboots)
		}
	}
	for _, hca := range l.h.HCAs {
		if !hca.VF && l.usesHCA(hca.Name) {
			one(hca.PCI, hca.Name+" ("+hca.PCI+")")
		}
	}
	if !l.gpus() {
		return
	}
	for _, g := range l.h.GPUs {
		one(g.PCI, fmt.Sprintf("GPU %d (%s)", g.Index, g.PCI))
	}
}

func checkACS(l *look) {
	if l.gpus() && len(l.h.IOMMU.ACSRedirect) > 0 && l.h.Product.Vendor != "QEMU" {
		l.say(finding.Warning, "PCIe", fmt.Sprintf("ACS redirects at %s", strings.Join(l.h.IOMMU.ACSRedirect[:min(4, len(l.h.IOMMU.ACSRedirect))], ", ")), "off on the way between GPU and NIC",
			"GPUDirect goes up to the root complex and loses half or more", "where no virtual machine is given devices of this host, which ACS keeps apart: setpci -s BRIDGE ECAP_ACS+6.w=0000 (as root, until the next boot), or the BIOS switch; in a guest ask the provider")
	}
}

func checkIOMMU(l *look) {
	i := l.h.IOMMU
	if i.Groups != nil && *i.Groups > 0 && i.Passthrough != nil && !*i.Passthrough && l.gpus() {
		l.say(finding.Warning, "IOMMU", cmp.Or(i.CommandLine, "translating"), "iommu=pt", "every DMA between GPU and NIC is translated", "add iommu=pt to the kernel's command line"+finding.Reboots)
	}
}

func checkNUMA(l *look) {
	if len(l.h.NUMA) < 2 || l.h.Hidden != "" {
		return
	}
	for _, hca := range l.h.HCAs {
		if hca.NUMA == nil && hca.PCI != "" && !hca.VF && l.usesHCA(hca.Name) {
			l.say(finding.Note, hca.Name, "NUMA node unknown (-1)", "a node", "ranks cannot be put near it", "BIOS: enable NUMA (ACPI SRAT / _PXM)"+finding.Reboots)
		}
	}
}

func checkPeer(l *look) {
	if !l.gpus() || l.h.XML || l.h.NoGPUDirect() != "" {
		return
	}
	nvidia := slices.ContainsFunc(l.h.GPUs, func(g topology.GPU) bool { return g.Vendor == "nvidia" })
	m := l.h.PeerMemory
	if nvidia && m.NvidiaPeermem != nil && !*m.NvidiaPeermem && (m.DMABuf == nil || !*m.DMABuf) {
		l.say(finding.Warning, "GPUDirect RDMA", "nvidia_peermem is not loaded, no DMA-BUF", "one of them", "GPU data is copied through host memory: a factor of 3 to 5", "modprobe nvidia_peermem (as root; comes with the driver; OFED must be there when it is built)")
	}
}

// checkDomain: GPUs whose NVLink goes beyond this machine (GB200 NVL72 and its
// like) share memory over IMEX channels; without one NCCL takes the network
// between machines, or stops where NCCL_MNNVL_ENABLE=1.
func checkDomain(l *look) {
	if !l.gpus() {
		return
	}
	joined, apart := 0, ""
	for _, g := range l.h.GPUs {
		switch d := g.Domain; {
		case d == nil || strings.Trim(d.Cluster, "0") == "":
		case d.State == "completed" && d.Status == 0:
			joined++
		default:
			apart = cmp.Or(apart, fmt.Sprintf("GPU %d: %s, status %d", g.Index, d.State, d.Status))
		}
	}
	if apart != "" {
		l.say(finding.Warning, "NVLink domain", apart, "completed", "this GPU does not reach the other machines' by NVLink", "nvidia-smi -q (Fabric); the fabric manager's log")
	}
	if joined > 0 && l.h.IMEX != nil && *l.h.IMEX == 0 {
		l.say(finding.Warning, "NVLink domain", "no channel in /dev/nvidia-caps-imex-channels", "one", "GPU memory cannot be shared between machines: NCCL goes over the network instead of NVLink",
			"a container needs the device /dev/nvidia-caps-imex-channels/channel0; a machine the IMEX service and the driver's NVreg_CreateImexChannel0=1 (as root)")
	}
}

// checkFirmware: what the site has tried, a VF's is that of its card.
func checkFirmware(l *look) {
	for _, hca := range l.h.HCAs {
		if !l.usesHCA(hca.Name) || hca.Firmware == "" {
			continue
		}
		for _, card := range []string{hca.BoardID, hca.HCAType, hca.Driver} {
			least, ok := l.p.Fabric.MinFirmware[card]
			if !ok || card == "" {
				continue
			}
			if profiles.OlderFirmware(hca.Firmware, least) {
				l.say(finding.Warning, hca.Name, card+": firmware "+hca.Firmware, least+" or later ("+l.p.Name+")", "the site asks for it: older ones have faults that it has met", "mlxfwmanager or the vendor's tool, at a time without jobs"+finding.ForHost)
			}
			break // the closest name decides
		}
	}
}

func checkMemlock(l *look) {
	m := l.h.Limits.Lockable(l.h.Limits.MemlockSoft)
	if m == nil || *m == topology.Unlimited {
		return
	}
	if l.h.Limits.MemTotal != nil && *l.h.Limits.MemTotal > 0 && *m >= uint64(*l.h.Limits.MemTotal) {
		return
	}
	sev := finding.Error
	if *m >= 1<<30 {
		sev = finding.Warning
	}
	l.say(sev, "locked memory", bytesText(*m), "unlimited", "memory registration fails: 'Cannot allocate memory'", l.h.RaiseMemlock())
}

func checkNofile(l *look) {
	if n := l.h.Limits.NofileSoft; n != nil && *n < 4096 {
		l.say(finding.Note, "open files", fmt.Sprint(*n), "65536", "many ranks and connections need more", "ulimit -n 65536")
	}
}

func checkShm(l *look) {
	n := l.h.Limits.ShmBytes
	if n == nil {
		return
	}
	if *n < 1<<30 {
		sev := finding.Warning
		if *n <= 64<<20 && l.gpus() {
			sev = finding.Error
		}
		l.say(sev, "/dev/shm", bytesText(uint64(max(*n, 0))), "several GB", "NCCL and MPI put their buffers there", cmp.Or(l.h.Container.Give(topology.NeedShm), "mount -o remount,size=50% /dev/shm"+finding.ForHost))
	}
}

// bufferBytes is what NVIDIA's and the VM guides set.
const bufferBytes = 268435456

func checkBuffers(l *look) {
	var small, set []string
	for _, b := range []struct {
		name, value string
		v           *int64
	}{
		{"net.core.rmem_max", "%d", l.h.Limits.RmemMax},
		{"net.core.wmem_max", "%d", l.h.Limits.WmemMax},
		{"net.ipv4.tcp_rmem", "'4096 87380 %d'", l.h.Limits.TCPRmem},
		{"net.ipv4.tcp_wmem", "'4096 65536 %d'", l.h.Limits.TCPWmem},
	} {
		if b.v != nil && *b.v < bufferBytes {
			small = append(small, fmt.Sprintf("%s %d", strings.TrimPrefix(b.name, "net."), *b.v))
			set = append(set, fmt.Sprintf("%s="+b.value, b.name, bufferBytes))
		}
	}
	if small != nil {
		l.say(finding.Note, "TCP buffers", strings.Join(small, ", "), fmt.Sprintf("up to %d each", bufferBytes), "only what goes over TCP is slower: storage, start-up, a fallback", "sysctl -w "+strings.Join(set, " ")+finding.ForHost)
	}
}

func checkHuge(l *look) {
	free, total, mem := l.h.Limits.HugePages, l.h.Limits.HugeTotal, l.h.Limits.MemTotal
	if total != nil && mem != nil && *mem > 0 && *total > *mem/hugePage/2 {
		l.say(finding.Warning, "huge pages", fmt.Sprintf("%s of %s reserved", bytesText(uint64(*total)*hugePage), bytesText(uint64(*mem))), "less than half", "what is reserved no ordinary allocation gets: the job runs out of memory early", "where nothing on this host asks for them (databases, DPDK and virtual machines do): sysctl -w vm.nr_hugepages=…"+finding.ForHost)
	}
	if free != nil && *free == 0 && slices.ContainsFunc(l.ports, func(r portRef) bool { return r.mine && r.hca.Driver == "efa" }) {
		l.say(finding.Note, "huge pages", "none free", "some", "libfabric's EFA provider would use them for its buffers", "FI_EFA_USE_HUGE_PAGE=0; or sysctl -w vm.nr_hugepages=1024, which takes 2 GB from everything else"+finding.ForHost)
	}
}

// hugePage is the size of the huge pages that are counted.
const hugePage = 2 << 20

func checkNodes(l *look) {
	if l.h.DeviceNodes == nil {
		return
	}
	any := false
	// What the container, or a module, leaves out is one thing for all devices.
	var missing, shut, missingNodes, shutNodes []string
	none := !slices.ContainsFunc(l.h.DeviceNodes.Names, func(n string) bool { return strings.HasPrefix(n, "uverbs") })
	for _, hca := range l.h.HCAs {
		mine := topology.DriverNamed(hca.Driver).Uverbs && l.usesHCA(hca.Name)
		any = any || mine
		switch {
		case !mine:
			continue
		case hca.CharDevice == "" && none && (l.h.Modules == nil || hasModule(l.h, "ib_uverbs")):
			// Without the module checkModules has said it.
			missing, missingNodes = append(missing, hca.Name), []string{"uverbs…"}
			continue
		case hca.CharDevice == "":
			continue
		}
		if !slices.Contains(l.h.DeviceNodes.Names, hca.CharDevice) {
			missing, missingNodes = append(missing, hca.Name), append(missingNodes, hca.CharDevice)
		} else if l.h.DeviceNodes.Openable != nil && !slices.Contains(l.h.DeviceNodes.Openable, hca.CharDevice) {
			shut, shutNodes = append(shut, hca.Name), append(shutNodes, hca.CharDevice)
		}
	}
	give := l.h.Container.Give(topology.NeedDevices)
	if missing != nil {
		l.say(finding.Error, few(missing, 4), "no /dev/infiniband/"+few(missingNodes, 4), "the device node of each", "libraries see the device and cannot open it", cmp.Or(give, "modprobe ib_uverbs (as root)"))
	}
	if shut != nil {
		l.say(finding.Error, few(shut, 4), "/dev/infiniband/"+few(shutNodes, 4)+" may not be opened", "read and write", "libraries see the device and cannot open it", cmp.Or(give, "the udev rule of rdma-core (MODE 0666 for uverbs)"))
	}
	if any && l.j.RDMACM && !slices.Contains(l.h.DeviceNodes.Names, "rdma_cm") {
		l.say(finding.Error, "rdma_cm", "no /dev/infiniband/rdma_cm", "the device node", "connections through rdma_cm fail", cmp.Or(l.h.Container.Give(topology.NeedDevices), "modprobe rdma_ucm (as root)"))
	}
}

func hasModule(h *topology.Host, name string) bool {
	return slices.ContainsFunc(h.Modules, func(m topology.Module) bool { return m.Name == name })
}

func checkModules(l *look) {
	// Slingshot, Omni-Path and True Scale have device nodes of their own.
	verbs := slices.ContainsFunc(l.ports, func(r portRef) bool { return r.mine && topology.DriverNamed(r.hca.Driver).Uverbs })
	if l.h.Modules == nil || !verbs {
		return
	}
	has := func(n string) bool { return hasModule(l.h, n) }
	// A device node is there only with the module, or with it built in.
	if !has("ib_uverbs") && !slices.ContainsFunc(l.h.HCAs, func(c topology.HCA) bool { return c.CharDevice != "" }) &&
		(l.h.DeviceNodes == nil || !slices.ContainsFunc(l.h.DeviceNodes.Names, func(n string) bool { return strings.HasPrefix(n, "uverbs") })) {
		l.say(finding.Error, "ib_uverbs", "not loaded", "loaded", "no user program can use RDMA", "modprobe ib_uverbs (as root)")
	}
	if !has("rdma_ucm") {
		sev := finding.Note
		if l.j.RDMACM {
			sev = finding.Error
		}
		l.say(sev, "rdma_ucm", "not loaded", "loaded", "programs that connect through rdma_cm fail", "modprobe rdma_ucm (as root)")
	}
}

func checkHidden(l *look) {
	if l.h.Hidden != "" {
		l.say(finding.Note, "PCI topology", l.h.Hidden, "the real tree", "distances between GPU and NIC are unknown", "give NCCL_TOPO_FILE, where the provider has one")
	}
	if l.h.Container.Kind == "" {
		return
	}
	if len(l.h.HCAs) == 0 && slices.ContainsFunc(l.h.PCI, func(d topology.PCIDevice) bool { return d.Class != nil && (*d.Class>>8 == 0x0207) }) {
		l.say(finding.Error, "container", "PCI shows InfiniBand adapters, /sys/class/infiniband none", "both", "the RDMA devices are in another namespace", l.h.Container.Give(topology.NeedSys, topology.NeedDevices)+" ('rdma system show' on the host tells shared or exclusive)")
	}
}

func checkCMMode(l *look) {
	for _, r := range l.jobs() {
		if r.roce() && r.port.DefaultRoCE != "" && !strings.Contains(r.port.DefaultRoCE, "v2") {
			sev := finding.Note
			if l.j.RDMACM {
				sev = finding.Error
			}
			l.say(sev, r.String(), r.port.DefaultRoCE, "RoCE v2", "rdma_cm connections are RoCE v1: not routed, no DSCP", fmt.Sprintf("cma_roce_mode -d %s -p %d -m 2", r.hca.Name, r.port.Number)+finding.ForRDMA)
		}
	}
}

func checkSubnet(l *look) {
	// Rails that answer for themselves only: arp_ignore 1 or 2 and arp_announce 2.
	strictARP := l.h.Limits.ARPIgnore != nil && *l.h.Limits.ARPIgnore > 0 && l.h.Limits.ARPAnnounce != nil && *l.h.Limits.ARPAnnounce == 2
	const hint = "a subnet for each rail; or routes by source and sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2" + finding.ForHost
	type group struct {
		names []string
		roce  bool
	}
	rails := map[netip.Prefix]*group{}
	var order []netip.Prefix
	for _, r := range l.ports {
		n := l.h.Netdev(r.port.Netdev)
		if n == nil || !r.mine {
			continue
		}
		for _, a := range n.Addrs {
			var with []string
			for _, other := range l.h.Netdevs {
				if other.Name == n.Name || other.Kind == "loopback" || other.Lower == n.Name || n.Lower == other.Name || other.Master == n.Name || n.Master == other.Name {
					continue
				}
				if !slices.ContainsFunc(other.Addrs, func(b netip.Prefix) bool { return sameSubnet(a, b) }) {
					continue
				}
				if l.isJobs(other.Name) {
					with = append(with, other.Name)
					continue
				}
				sev := finding.Warning
				if r.ib() || strictARP || slices.ContainsFunc(l.ports, func(p portRef) bool { return p.port.Netdev == other.Name }) {
					// InfiniBand connects by LID; with strict ARP each answers for
					// itself; functions of one card are made like this.
					sev = finding.Note
				}
				l.say(sev, n.Name+" and "+other.Name, fmt.Sprintf("both in %s", a.Masked()), "one subnet each", "the kernel answers for one with the other (ARP flux): connections go the wrong way", hint)
			}
			if with == nil {
				continue
			}
			g := rails[a.Masked()]
			if g == nil {
				g = &group{}
				rails[a.Masked()], order = g, append(order, a.Masked())
			}
			g.roce = g.roce || r.roce() // Slingshot's are in one subnet by design
			for _, name := range append(with, n.Name) {
				if !slices.Contains(g.names, name) {
					g.names = append(g.names, name)
				}
			}
		}
	}
	for _, subnet := range order {
		if g := rails[subnet]; g.roce && !strictARP {
			slices.Sort(g.names)
			l.say(finding.Note, few(g.names, 4), fmt.Sprintf("all in %s", subnet), "one subnet each, or strict ARP", "the kernel answers for one rail with another's address", hint)
		}
	}
}

func sameSubnet(a, b netip.Prefix) bool {
	if a.Addr().IsLinkLocalUnicast() || b.Addr().IsLinkLocalUnicast() || a.IsSingleIP() || b.IsSingleIP() {
		return false
	}
	return a.Addr().Is4() == b.Addr().Is4() && (a.Contains(b.Addr()) || b.Contains(a.Addr()))
}

func checkDefaultRoute(l *look) {
	if l.p.Fabric.Bootstrap == "fabric" || !l.otherNetwork() {
		return
	}
	for _, r := range l.h.Routes {
		if r.Dst.Bits() == 0 && (r.Table == 0 || r.Table == 254) && r.Dst.Addr().Is4() && l.isJobs(r.Netdev) {
			l.say(finding.Note, r.Netdev, "the default route goes over it", "the management network", "what is not the job's shares the RDMA port", "ip route replace default via GATEWAY dev MANAGEMENT")
		}
	}
}

// checkBridge looks at bridges with containers on them: whether what they send
// fits the way out, and whether it is passed on at all.
func checkBridge(l *look) {
	var out *topology.Netdev
	for _, r := range l.h.Routes {
		if r.Dst.Bits() == 0 && (r.Table == 0 || r.Table == 254) {
			out = l.h.Netdev(r.Netdev)
		}
	}
	for _, n := range l.h.Netdevs {
		if n.Kind != "bridge" || !slices.ContainsFunc(l.h.Netdevs, func(m topology.Netdev) bool { return m.Master == n.Name && m.Kind == "veth" }) {
			continue
		}
		if out != nil && out.Name != n.Name && out.MTU != nil && n.MTU != nil && *n.MTU > *out.MTU {
			l.say(finding.Warning, n.Name, fmt.Sprintf("MTU %d over %s with %d", *n.MTU, out.Name, *out.MTU), "no more than the way out", "large packets of containers on it vanish", `docker: "mtu" in daemon.json; podman: network create --opt mtu=`)
		}
		if f := l.h.Limits.IPForward; f != nil && *f == 0 {
			l.say(finding.Warning, n.Name, "net.ipv4.ip_forward 0", "1", "containers on it reach no other host", "run the job with the host's network; or sysctl -w net.ipv4.ip_forward=1, which makes a router of this host"+finding.ForHost)
		}
	}
}

// flapCounters are what should stay 0 on a healthy link.
var flapCounters = []struct{ name, what string }{
	{"link_downed", "the link has gone down"},
	{"link_error_recovery", "the link has recovered from errors"},
	{"symbol_error", "symbol errors"},
	{"local_link_integrity_errors", "link integrity errors"},
	{"port_rcv_errors", "damaged packets received"},
	{"excessive_buffer_overrun_errors", "buffer overruns"},
}

func checkCounters(l *look) {
	for _, s := range l.h.Counters {
		mine := slices.ContainsFunc(l.ports, func(r portRef) bool {
			return r.mine && (s.Device == fmt.Sprintf("%s:%d", r.hca.Name, r.port.Number) || s.Device == r.hca.Name)
		})
		if !mine {
			continue
		}
		for _, c := range flapCounters {
			if v := s.Values[c.name]; v > 0 {
				l.say(finding.Note, s.Device, fmt.Sprintf("%s %d", c.name, v), "0 since the driver was loaded", c.what+"; only a rise during a job matters", "look again after the job: 'fabrun diff BEFORE AFTER'")
			}
		}
	}
}

func checkPlugin(l *look) {
	if !l.gpus() || l.h.Software == nil || slices.ContainsFunc(l.h.Software, func(s topology.Software) bool { return s.Kind == "nccl-plugin" }) {
		return
	}
	for _, r := range l.jobs() {
		if plugin := topology.DriverNamed(r.hca.Driver).NCCLPlugin; plugin != "" {
			l.say(finding.Error, "NCCL", "no net plugin found", plugin, "NCCL cannot use "+r.hca.Driver+" devices by itself and takes sockets", "install aws-ofi-nccl (libnccl-net.so) on the library path")
			return
		}
	}
}

func bytesText(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
	}
}

// JobPorts says which ports the job means on each host, in step with hosts:
// those of the rails, the ports that are rails by the same name on other hosts,
// and ports that are down on cards like the chosen ones. Of two hosts one alone
// makes no rail: ports that are down, or cannot be opened, while their namesake of
// another host is up on a card like the chosen ones there, are the job's too. The second port of a chosen card that is down is taken for
// unused. nil where there are no rails.
func JobPorts(hosts []topology.Host, rails []map[string]string) [][]string {
	if len(rails) == 0 {
		return make([][]string, len(hosts))
	}
	named := map[string]bool{}
	for _, r := range rails {
		for _, p := range r {
			named[p] = true
		}
	}
	type kind struct{ driver, board string }
	up := map[string]bool{} // ports by name, up on a host whose job takes cards of their kind
	for _, h := range hosts {
		chosen := map[kind]bool{}
		for _, c := range h.HCAs {
			for _, p := range c.Ports {
				if named[fmt.Sprintf("%s:%d", c.Name, p.Number)] {
					chosen[kind{c.Driver, c.BoardID}] = true
				}
			}
		}
		for _, c := range h.HCAs {
			for _, p := range c.Ports {
				if chosen[kind{c.Driver, c.BoardID}] && p.Up() && h.Unopenable(&c) == "" && (p.LinkLayer == "InfiniBand" || slices.ContainsFunc(p.GIDs, routedRoCE2)) {
					up[fmt.Sprintf("%s:%d", c.Name, p.Number)] = true
				}
			}
		}
	}
	out := make([][]string, len(hosts))
	for i, h := range hosts {
		mine := map[string]bool{}
		for _, r := range rails {
			if p, ok := r[h.Name]; ok {
				mine[p] = true
			}
		}
		boards, slots := map[string]bool{}, map[string]bool{}
		for _, c := range h.HCAs {
			for _, p := range c.Ports {
				if mine[fmt.Sprintf("%s:%d", c.Name, p.Number)] {
					boards[c.BoardID], slots[slotOf(c.PCI)] = true, true
				}
			}
		}
		out[i] = []string{}
		for _, c := range h.HCAs {
			for _, p := range c.Ports {
				name := fmt.Sprintf("%s:%d", c.Name, p.Number)
				downTwin := p.Down() && c.BoardID != "" && boards[c.BoardID] && !slots[slotOf(c.PCI)]
				namesake := up[name] && (p.Down() || h.Unopenable(&c) != "")
				if mine[name] || named[name] || downTwin || namesake {
					out[i] = append(out[i], name)
				}
			}
		}
	}
	return out
}

// routedRoCE2 reports whether a GID is one of RoCE v2 by which another host can
// be reached.
func routedRoCE2(g topology.GID) bool {
	return strings.Contains(g.Type, "v2") && g.NdevUnreadable == "" && (g.Kind == topology.GIDIPv4 || g.Kind == topology.GIDIPv6)
}

// slotOf is a PCI address without its function.
func slotOf(addr string) string {
	slot, _, _ := strings.Cut(addr, ".")
	return slot
}
