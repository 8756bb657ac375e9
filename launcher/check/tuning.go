package check

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// functions calls f once for each PCI function with a port of the job.
func (l *look) functions(f func(hca topology.HCA, d *topology.PCIDevice)) {
	seen := map[string]bool{}
	for _, r := range l.ports {
		if d := l.pci(r.hca.PCI); r.mine && d != nil && !seen[d.Address] {
			seen[d.Address] = true
			f(r.hca, d)
		}
	}
}

// guest says whether this is a virtual machine, whose PCI registers are the
// hypervisor's.
func (l *look) guest() bool { return l.h.CPU.Hypervisor || l.h.Hidden != "" }

func checkGovernor(l *look) {
	g := l.h.CPU.Governors
	if len(g) == 0 || len(g) == 1 && g["performance"] > 0 {
		return
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		parts = append(parts, fmt.Sprintf("%s on %d", name, g[name]))
	}
	l.say(finding.Note, "CPU frequency", strings.Join(parts, ", "), "performance", "a CPU that clocks down adds microseconds to small messages", "cpupower frequency-set -g performance"+finding.ForHost)
}

func checkNUMABalancing(l *look) {
	if b := l.h.Limits.NUMABalance; b != nil && *b != 0 && len(l.h.NUMA) > 1 && l.anyMine() {
		l.say(finding.Note, "kernel.numa_balancing", fmt.Sprint(*b), "0", "the kernel unmaps pages to see who uses them: jitter, and registered memory cannot follow", "sysctl -w kernel.numa_balancing=0"+finding.ForHost)
	}
}

func (l *look) anyMine() bool {
	return slices.ContainsFunc(l.ports, func(r portRef) bool { return r.mine })
}

func checkRelaxedOrdering(l *look) {
	if l.guest() {
		return
	}
	l.functions(func(hca topology.HCA, d *topology.PCIDevice) {
		if d.RelaxedOrdering == nil || *d.RelaxedOrdering {
			return
		}
		// Root ports of some Intel generations do better without, and the kernel
		// turns it off there (drivers/pci/quirks.c).
		sev := finding.Note
		if l.h.CPU.Vendor == "AuthenticAMD" && l.gpus() {
			sev = finding.Warning
		}
		l.say(sev, hca.Name+" ("+d.Address+")", "PCIe relaxed ordering off", "on", "the NIC's writes wait for each other: on AMD hosts up to half of the bandwidth to GPU memory", "BIOS: PCIe relaxed ordering; to try it, with no job on the node and until the next boot: setpci -s "+d.Address+" CAP_EXP+8.w=0010:0010 (as root)")
	})
}

func checkReadRequest(l *look) {
	if l.guest() {
		return
	}
	l.functions(func(hca topology.HCA, d *topology.PCIDevice) {
		if d.MaxReadRequest == nil || *d.MaxReadRequest >= 512 {
			return
		}
		l.say(finding.Note, hca.Name+" ("+d.Address+")", fmt.Sprintf("PCIe read requests of %d bytes", *d.MaxReadRequest), "512 or more (4096 is the vendors' advice)", "more requests for the same bytes: what is sent is read slower", "with no job on the node, until the next boot: setpci -s "+d.Address+" CAP_EXP+8.w=5000:7000 (as root)")
	})
}

func checkIRQs(l *look) {
	if len(l.h.CPU.Online) <= 4 {
		return
	}
	l.functions(func(hca topology.HCA, d *topology.PCIDevice) {
		if d.IRQs == nil || *d.IRQs < 4 || len(d.IRQCPUs) == 0 {
			return
		}
		hint := "the vendor's set_irq_affinity script with the NIC's NUMA node, or systemctl enable --now irqbalance" + finding.ForHost
		switch {
		case len(d.IRQCPUs) == 1:
			l.say(finding.Note, hca.Name+" ("+d.Address+")", fmt.Sprintf("all %d interrupts on CPU %d", *d.IRQs, d.IRQCPUs[0]), "spread over the CPUs of its NUMA node", "one CPU is busy for all queues; what waits for interrupts waits for it", hint)
		case len(l.h.NUMA) > 1 && len(d.LocalCPUs) > 0 && len(d.LocalCPUs) < len(l.h.CPU.Online) && !slices.ContainsFunc(d.IRQCPUs, func(c int) bool { return slices.Contains(d.LocalCPUs, c) }):
			l.say(finding.Note, hca.Name+" ("+d.Address+")", "its interrupts go to CPUs of another NUMA node only", "to its own node's", "every completion that is waited for crosses the sockets", hint)
		}
	})
}

// kernelPattern is a line of a driver that says that something is wrong.
type kernelPattern struct {
	re       *regexp.Regexp
	severity finding.Severity // where it is recent
	what     string
	why      string
	hint     string
}

// kernelPatterns: what mlx5 (drivers/net/ethernet/mellanox/mlx5/core/{events,health,cmd}.c),
// nvidia-peermem and the NVIDIA driver print. Many a line of theirs is normal;
// one that is not here means nothing.
var kernelPatterns = sync.OnceValue(func() []kernelPattern {
	return []kernelPattern{
		{regexp.MustCompile(`Port module event\[error\].*High Temperature`), finding.Warning, "a transceiver is too hot", "the driver switches the port off to protect it", "look at the air flow and the cage; 'ethtool -m NETDEV' shows temperatures"},
		{regexp.MustCompile(`Port module event\[error\]`), finding.Warning, "a cable or transceiver is refused", "the port does not come up, or not at its rate", "reseat or replace it; 'mlxlink -d DEVICE -m' says more"},
		{regexp.MustCompile(`High temperature on sensors`), finding.Warning, "the adapter is too hot", "it slows down, then switches off", "look at the air flow; 'mget_temp -d DEVICE'"},
		{regexp.MustCompile(`device's health compromised|health_care|Fatal error \d+ detected`), finding.Warning, "the adapter's firmware has stopped answering", "connections over it break", "drain the node, then reset or reboot it; update the firmware; then the vendor"},
		{regexp.MustCompile(`timeout\. Will cause a leak of a command resource`), finding.Warning, "the adapter did not answer a command", "its driver is not to be trusted until the next start", "drain the node, then reload the driver or reboot; update the firmware"},
		{regexp.MustCompile(`nvidia[_-]peermem: .*(?:Unknown symbol|disagrees about version)`), finding.Warning, "nvidia_peermem does not fit the RDMA drivers", "GPU memory cannot be registered with it: data is copied through host memory", "install the NVIDIA driver again after OFED, or use DMA-BUF (open kernel modules)"},
		{regexp.MustCompile(`NVRM: Xid .*: (?:48|63|64|74|79|92|94|95|119|120|140),`), finding.Warning, "a GPU has failed (Xid)", "a rank on it hangs or dies", "nvidia-smi -q; look the Xid up in NVIDIA's list; drain the node, then reset or replace the GPU"},
		{regexp.MustCompile(`detected invalid context, skipping further processing`), finding.Note, "nvidia_peermem met memory that was freed before", "harmless when a job was killed; many of them hint at a fault between GPUs", "look again after the next job"},
		{regexp.MustCompile(`Detected insufficient power on the PCIe slot`), finding.Note, "the slot advertises too little power for the adapter", "harmless on many machines; some adapters cap their rate", "hold the pair test's rate against the port's; the server's manual on slot power"},
	}
})

// recent is what counts as now: a day.
const recent = 24 * 3600

// flapsADay is how many times a link may go down in a day (Azure's node health
// checks fail a node at this number).
const flapsADay = 5

var linkDown = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`mlx5_core (\S+?)(?: (\S+?))?: Link down$`) })

func checkKernelLog(l *look) {
	log := l.h.KernelLog
	if log == nil {
		return
	}
	type seen struct {
		n, fresh int
		last     string
	}
	patterns := kernelPatterns()
	found := map[int]*seen{}
	down := map[string]int{}
	for _, line := range log.Lines {
		fresh := log.Uptime > 0 && log.Uptime-line.At <= recent
		for i, p := range patterns {
			if p.re.MatchString(line.Text) {
				if found[i] == nil {
					found[i] = &seen{}
				}
				found[i].n++
				found[i].last = line.Text
				if fresh {
					found[i].fresh++
				}
				break
			}
		}
		if m := linkDown().FindStringSubmatch(line.Text); m != nil && fresh {
			down[strings.TrimSpace(m[1]+" "+m[2])]++
		}
	}
	for i, p := range patterns {
		s := found[i]
		if s == nil {
			continue
		}
		sev, when := p.severity, "in the last day"
		if s.fresh == 0 {
			sev, when = finding.Note, "more than a day ago"
		}
		l.say(sev, "kernel log", fmt.Sprintf("%s (%d, %s): %s", p.what, s.n, when, s.last), "none", p.why, p.hint)
	}
	for _, dev := range slices.Sorted(maps.Keys(down)) {
		if n := down[dev]; n >= flapsADay {
			l.say(finding.Warning, "kernel log", fmt.Sprintf("%s: link down %d times in the last day", dev, n), "a link that stays up", "every time, jobs on it stall or die", "reseat or replace cable and transceiver, on the switch's side too")
		}
	}
}

func checkVerbs(l *look) {
	i := slices.IndexFunc(l.h.Software, func(s topology.Software) bool { return s.Kind == "verbs" })
	if i < 0 || l.h.Software[i].Path != "" {
		return // there, or not looked for
	}
	for _, r := range l.ports {
		if !r.mine || r.hca.Driver == "" || !topology.DriverNamed(r.hca.Driver).Uverbs {
			continue
		}
		sev := finding.Warning // the job may run in an image that has it
		if l.h.Container.Kind != "" {
			sev = finding.Error
		}
		l.say(sev, "libibverbs", "not installed", "libibverbs.so.1 and its providers", "NCCL, UCX and libfabric load it at run time, and take TCP without a word when it is missing", "apt-get install libibverbs1 ibverbs-providers; dnf install libibverbs")
		return
	}
}

func checkClock(l *look) {
	if s := l.h.Clock.Synced; s != nil && !*s {
		l.say(finding.Note, "clock", "nothing keeps it right", "chrony, ntpd or systemd-timesyncd", "logs of several hosts cannot be put in order; munge and Kerberos fail when it drifts", "systemctl enable --now chronyd"+finding.ForHost)
	}
}

// checkManagement: ssh and time that go over a port of the job.
func checkManagement(l *look) {
	if l.p.Fabric.Bootstrap == "fabric" || !l.otherNetwork() {
		return
	}
	if a := l.h.ReachedBy; a.IsValid() {
		if nd := l.addressOf(a); l.isJobs(nd) {
			l.say(finding.Note, nd, "ssh came in over it", "the management network", "a job that fills the port, or a fault of it, cuts off the way to the host", "name the hosts by their management addresses")
		}
	}
	for _, s := range l.h.Clock.Sources {
		nd, isDev := strings.CutPrefix(s, "dev ")
		if !isDev {
			a, err := netip.ParseAddr(s)
			if err != nil {
				continue
			}
			if nd = l.routeTo(a); !l.isJobs(nd) {
				continue
			}
		}
		if l.isJobs(nd) {
			l.say(finding.Note, nd, "the clock is set over it ("+s+")", "the management network", "time packets wait behind the job's data, or in its lossless queue", "another time server, or another interface for ptp4l")
		}
	}
}

// isJobs says whether a netdev is that of a port of the job.
func (l *look) isJobs(netdev string) bool {
	return netdev != "" && slices.ContainsFunc(l.ports, func(r portRef) bool { return r.mine && r.port.Netdev == netdev })
}

// otherNetwork says whether there is an addressed interface that is not the
// job's: without one there is no management network to move to.
func (l *look) otherNetwork() bool {
	return slices.ContainsFunc(l.h.Netdevs, func(n topology.Netdev) bool {
		return n.Kind != "loopback" && n.Kind != "bridge" && n.Kind != "veth" && !l.isJobs(n.Name) && slices.ContainsFunc(n.Addrs, func(a netip.Prefix) bool { return !a.Addr().IsLinkLocalUnicast() })
	})
}

func (l *look) addressOf(a netip.Addr) string {
	for _, n := range l.h.Netdevs {
		if slices.ContainsFunc(n.Addrs, func(p netip.Prefix) bool { return p.Addr() == a.Unmap() }) {
			return n.Name
		}
	}
	return ""
}

// routeTo is the netdev by which the main table sends to a; "" unknown.
func (l *look) routeTo(a netip.Addr) string {
	best, nd := -1, ""
	for _, r := range l.h.Routes {
		if (r.Table == 0 || r.Table == 254) && r.Dst.Contains(a) && r.Dst.Bits() > best {
			best, nd = r.Dst.Bits(), r.Netdev
		}
	}
	return nd
}

// usesRDMACM says whether the environment asks for a library that connects
// through rdma_cm: libfabric's verbs provider (fi_verbs(7)), MVAPICH2's switch.
func usesRDMACM(env []topology.EnvVar) bool {
	return slices.ContainsFunc(env, func(v topology.EnvVar) bool {
		switch v.Name {
		case "FI_PROVIDER":
			return strings.Contains(v.Value, "verbs") && !strings.HasPrefix(v.Value, "^")
		case "MV2_USE_RDMA_CM":
			return v.Value == "1"
		}
		return false
	})
}
