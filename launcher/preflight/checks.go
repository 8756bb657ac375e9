package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
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
	return []check{
		{"port.none", checkAny},
		{"port.state", checkState},
		{"port.rate", checkRate},
		{"port.link-layer", checkLinkLayer},
		{"ib.subnet-manager", checkSM},
		{"ib.pkey", checkPKey},
		{"mtu.netdev", checkMTU},
		{"gid.usable", checkGID},
		{"qos.trust", checkTrust},
		{"qos.pfc", checkPFC},
		{"qos.dscp-map", checkDSCPMap},
		{"qos.tclass", checkTClass},
		{"qos.ecn", checkECN},
		{"qos.cnp", checkCNP},
		{"qos.pause", checkPause},
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
	}
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

func (r portRef) roce() bool   { return r.port.LinkLayer == "Ethernet" && r.hca.SpeaksRoCE() }
func (r portRef) ib() bool     { return r.port.LinkLayer == "InfiniBand" }
func (r portRef) active() bool { return r.port.State == "ACTIVE" }

func (l *look) netdev(name string) *topology.Netdev {
	for i := range l.h.Netdevs {
		if l.h.Netdevs[i].Name == name {
			return &l.h.Netdevs[i]
		}
	}
	return nil
}

// nic is the netdev of a port that carries DCB settings: below a VLAN or bond.
func (l *look) nic(r portRef) *topology.Netdev {
	n := l.netdev(r.port.Netdev)
	for range 4 {
		if n == nil || n.DCB != nil {
			return n
		}
		next := n.Lower
		if next == "" && len(n.Slaves) > 0 {
			next = n.Slaves[0]
		}
		m := l.netdev(next)
		if m == nil {
			return n
		}
		n = m
	}
	return n
}

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
		l.say(sev, "RDMA devices", "none in /sys/class/infiniband", "at least one", "this host can only talk over sockets", "is the driver loaded? in a container: pass /dev/infiniband and the host's network")
		return
	}
	l.say(sev, "RDMA devices", fmt.Sprintf("%d, none that the profile means", len(l.h.HCAs)), orText(l.p.Fabric.LinkLayer, "a usable port"), "the job has no port here", "check link_layer and exclude_hcas of the profile")
}

// downStates are the physical states without a link (InfiniBand specification,
// PortPhysicalState). Drivers have printed others for links that are up.
var downStates = []string{"Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkErrorRecovery", "Phy Test"}

func checkState(l *look) {
	for _, r := range l.jobs() {
		if r.port.State == "" || r.active() && !slices.Contains(downStates, r.port.PhysState) {
			continue
		}
		if r.ib() && r.port.State == "INIT" && r.port.SMLID != nil && *r.port.SMLID == 0 {
			continue // ib.subnet-manager says why
		}
		hint := "check cable, transceiver and switch port; 'mlxlink -d " + r.hca.Name + "' says more"
		switch {
		case r.port.State == "INIT":
			hint = "the cable is fine, no subnet manager answers: " + noSubnetManager
		case r.port.State == "ARMED":
			hint = "the subnet manager has not finished: wait, then look at its log"
		case r.port.PhysState == "Disabled" && r.ib():
			hint = "the port is switched off: ibportstate -C " + r.hca.Name + " -D 0 1 enable (as root), or ask for the switch's port" + finding.OnPurpose
		case r.port.PhysState == "Disabled":
			hint = "the port is switched off: ip link set " + orText(r.port.Netdev, r.hca.Name) + " up (as root)" + finding.OnPurpose
		}
		seen := r.port.State
		if r.port.PhysState != "" {
			seen += ", " + r.port.PhysState
		}
		l.say(finding.Error, r.String(), seen, "ACTIVE, LinkUp", "this rail carries nothing", hint)
	}
}

func checkRate(l *look) {
	want := l.p.Fabric.RateGbps
	wanted := "the profile's rate"
	if want == nil {
		// What most of the job's ports have here.
		count := map[float64]int{}
		for _, r := range l.jobs() {
			if r.active() && r.port.RateTrusted && r.port.RateGbps != nil {
				count[*r.port.RateGbps]++
			}
		}
		best, n := 0.0, 0
		for v, k := range count {
			if k > n || k == n && v > best {
				best, n = v, k
			}
		}
		if n < 2 {
			return
		}
		want, wanted = &best, "what its siblings have"
	}
	for _, r := range l.jobs() {
		if !r.active() || !r.port.RateTrusted || r.port.RateGbps == nil || *r.port.RateGbps >= *want*0.99 {
			continue
		}
		seen := fmt.Sprintf("%g Gb/s", *r.port.RateGbps)
		if r.port.RateText != "" {
			seen = r.port.RateText
		}
		l.say(finding.Error, r.String(), seen, fmt.Sprintf("%g Gb/s, %s", *want, wanted), "every rank on this rail waits for it", "a port that came up slower: reseat cable and transceiver, check the switch port's speed")
	}
}

func checkLinkLayer(l *look) {
	want := l.p.Fabric.LinkLayer
	if want == "" {
		return
	}
	for _, r := range l.jobs() {
		if r.port.LinkLayer == "" || strings.EqualFold(r.port.LinkLayer, want) {
			continue
		}
		l.say(finding.Error, r.String(), r.port.LinkLayer, want, "the profile does not mean this port", "another --profile ('fabrun profile list'); or, where this port is meant to be the other kind, mlxconfig -d "+orText(r.hca.PCI, r.hca.Name)+" set LINK_TYPE_P1=…"+finding.InCard)
	}
}

// A second subnet manager of another configuration takes a fabric over.
const noSubnetManager = "'sminfo' asks for it: see to the one of the switch or of the management node; opensm on one node only where the fabric is to have none other"

func checkSM(l *look) {
	for _, r := range l.jobs() {
		if !r.ib() || !r.active() && r.port.State != "INIT" {
			continue
		}
		if r.port.SMLID != nil && *r.port.SMLID == 0 || r.port.LID != nil && *r.port.LID == 0 {
			l.say(finding.Error, r.String(), "LID or SM LID 0", "both set", "no subnet manager has seen this port", noSubnetManager)
		}
	}
}

func checkPKey(l *look) {
	for _, r := range l.jobs() {
		if !r.ib() || r.port.PKeys == nil {
			continue
		}
		full := slices.ContainsFunc(r.port.PKeys, func(k uint16) bool { return k&0x8000 != 0 && k != 0 })
		if !full {
			l.say(finding.Error, r.String(), fmt.Sprintf("partition keys %#04x", r.port.PKeys), "one with the full-member bit 0x8000", "limited members cannot talk to each other", "ask for full membership in partitions.conf of the subnet manager")
		}
	}
}

func checkMTU(l *look) {
	min := 4200
	if l.p.Fabric.MinMTUBytes != nil {
		min = *l.p.Fabric.MinMTUBytes
	}
	for _, r := range l.jobs() {
		if !r.active() {
			continue
		}
		if n := l.netdev(r.port.Netdev); r.roce() && n != nil && n.MTU != nil && *n.MTU < min {
			// A profile that asks for it makes it an error of the plan; by rule it costs speed only.
			sev := finding.Warning
			if l.p.Fabric.MinMTUBytes != nil {
				sev = finding.Error
			}
			l.say(sev, r.String()+" ("+n.Name+")", fmt.Sprintf("MTU %d", *n.MTU), fmt.Sprintf("%d or more", min), "RDMA packets shrink to a quarter, and nodes that differ hang", fmt.Sprintf("the switches first, then on every node: ip link set %s mtu 9000", n.Name)+finding.ForPort)
			continue
		}
		if m := r.port.ActiveMTU; m != nil && *m < 4096 && (r.ib() || min >= 4200) {
			l.say(finding.Warning, r.String(), fmt.Sprintf("RDMA MTU %d", *m), "4096", "every packet carries less than it could", "raise the netdev's MTU, or the subnet manager's partition MTU")
		}
	}
}

func checkGID(l *look) {
	for _, r := range l.jobs() {
		if !r.roce() || !r.active() {
			continue
		}
		if r.port.GIDUnreadable != "" {
			l.say(finding.Error, r.String(), "GID table: "+r.port.GIDUnreadable, "readable", "no connection can be addressed", "in a container: use the host's network (--network host), or move the interface in")
			continue
		}
		if r.port.GIDs == nil && r.port.GIDZero == 0 {
			continue // not looked at
		}
		v2, v1, away := false, false, false
		for _, g := range r.port.GIDs {
			routable := g.Kind == topology.GIDIPv4 || g.Kind == topology.GIDIPv6
			family := l.p.Fabric.GIDFamily
			if !routable || family == "ipv4" && g.Kind != topology.GIDIPv4 || family == "ipv6" && g.Kind != topology.GIDIPv6 {
				continue
			}
			switch {
			case g.NdevUnreadable != "":
				away = true
			case strings.Contains(g.Type, "v2"):
				v2 = true
			default:
				v1 = true
			}
		}
		switch {
		case v2:
		case away:
			l.say(finding.Error, r.String(), "its addresses belong to a netdev in another network namespace", "the netdev here", "the device is seen, its GIDs cannot be used", "run with the host's network, or give the netdev to this namespace")
		case v1:
			l.say(finding.Error, r.String(), "RoCE v1 GIDs only", "RoCE v2", "RoCE v1 is not routed and carries no DSCP", "the driver's RoCE mode: mlxconfig … ROCE_MODE"+finding.InCard)
		default:
			l.say(finding.Error, r.String()+" ("+r.port.Netdev+")", "no routable GID", orText(l.p.Fabric.GIDFamily, "an address")+" on the netdev", "the port is up and has no address: connections fail or take link-local", "give "+orText(r.port.Netdev, "its netdev")+" an address of the fabric in this host's network configuration; or leave the HCA out (exclude_hcas in the profile)")
		}
	}
}

// qosPorts calls f for each RoCE port of the job where the profile has a plan.
func (l *look) qosPorts(f func(r portRef, n *topology.Netdev, q *profiles.QoS)) {
	if l.p.Fabric.QoS == nil {
		return
	}
	for _, r := range l.jobs() {
		if r.roce() && r.active() {
			if n := l.nic(r); n != nil {
				f(r, n, l.p.Fabric.QoS)
			}
		}
	}
}

func checkTrust(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if n.DCB == nil && n.DCBError != "" {
			// Of a VF the kernel tells nothing: the settings are the PF's.
			l.say(finding.Note, r.String()+" ("+n.Name+")", "trust and PFC cannot be read: "+n.DCBError, "trust "+orText(q.Trust, "as planned"), "whether RDMA is lossless here is not known", "mlnx_qos -i on the host's own port (the PF), or the switch's side")
			return
		}
		if n.DCB == nil || q.Trust == "" || n.DCB.Trust == "" || n.DCB.Trust == q.Trust {
			return
		}
		l.say(finding.Error, r.String()+" ("+n.Name+")", "trust "+n.DCB.Trust, "trust "+q.Trust, "the NIC puts RDMA packets into priority 0, without PFC", "mlnx_qos -i "+n.Name+" --trust="+q.Trust+finding.ForPort)
	})
}

func checkPFC(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if n.DCB == nil || n.DCB.PFC == nil || len(q.PFC) == 0 {
			return
		}
		var missing, extra []int
		for _, p := range q.PFC {
			if !slices.Contains(n.DCB.PFC, p) {
				missing = append(missing, p)
			}
		}
		for _, p := range n.DCB.PFC {
			if !slices.Contains(q.PFC, p) {
				extra = append(extra, p)
			}
		}
		// The mask is set as a whole: what is on beside the plan stays on with the
		// first hint, since something else may count on it.
		hint := func(on []int) string {
			return "mlnx_qos -i " + n.Name + " --pfc=" + topology.PFCMask(on) + finding.ForPort
		}
		if missing != nil {
			l.say(finding.Error, r.String()+" ("+n.Name+")", fmt.Sprintf("PFC on %v", n.DCB.PFC), fmt.Sprintf("on %v", q.PFC), "packets of the RDMA priority are dropped when a buffer is full", hint(slices.Concat(n.DCB.PFC, missing)))
		} else if extra != nil {
			l.say(finding.Warning, r.String()+" ("+n.Name+")", fmt.Sprintf("PFC also on %v", extra), fmt.Sprintf("on %v only", q.PFC), "other traffic can pause the wire", "a profile that has them, where they are meant (storage often has one of its own); else "+hint(q.PFC))
		}
	})
}

func checkDSCPMap(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if n.DCB == nil || n.DCB.Trust != "dscp" || q.RDMA.Priority == nil || len(n.DCB.DSCPToPriority) == 0 {
			return
		}
		got, ok := n.DCB.DSCPToPriority[q.RDMA.DSCP]
		if ok && got != *q.RDMA.Priority {
			l.say(finding.Error, r.String()+" ("+n.Name+")", fmt.Sprintf("DSCP %d goes to priority %d", q.RDMA.DSCP, got), fmt.Sprintf("priority %d", *q.RDMA.Priority),
				"the plan's packets ride in a priority without PFC", fmt.Sprintf("mlnx_qos -i %s --dscp2prio set,%d,%d", n.Name, q.RDMA.DSCP, *q.RDMA.Priority)+finding.ForPort)
		}
	})
}

func checkTClass(l *look) {
	if l.p.Fabric.QoS == nil {
		return
	}
	want := l.p.Fabric.QoS.RDMA.TC()
	for _, r := range l.jobs() {
		if t := r.port.GlobalTClass; t != nil && *t != want {
			l.say(finding.Error, r.String(), fmt.Sprintf("port-wide traffic class %d", *t), fmt.Sprintf("%d, or none", want),
				"it overrides what every library sets", fmt.Sprintf("echo %d > /sys/class/infiniband/%s/tc/%d/traffic_class", want, r.hca.Name, r.port.Number)+finding.ForRDMA)
		}
	}
}

func checkECN(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if q.RDMA.Priority == nil {
			return
		}
		for _, e := range r.port.ECN {
			if e.Priority != *q.RDMA.Priority {
				continue
			}
			for _, s := range []struct {
				on   *bool
				name string
			}{{e.NotifyPoint, "roce_np"}, {e.ReactPoint, "roce_rp"}} {
				if s.on != nil && !*s.on {
					l.say(finding.Warning, r.String()+" ("+n.Name+")", fmt.Sprintf("%s off on priority %d", s.name, e.Priority), "on", "senders do not slow down: PFC pauses the fabric instead", fmt.Sprintf("echo 1 > /sys/class/net/%s/ecn/%s/enable/%d", n.Name, s.name, e.Priority)+finding.ForPort)
				}
			}
		}
	})
}

func checkCNP(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if q.CNP == nil || r.port.CNPs == nil {
			return
		}
		if d := r.port.CNPs.DSCP; d != nil && *d != q.CNP.DSCP {
			l.say(finding.Warning, r.String()+" ("+n.Name+")", fmt.Sprintf("CNP DSCP %d", *d), fmt.Sprint(q.CNP.DSCP), "notifications wait behind the data", fmt.Sprintf("echo %d > /sys/class/net/%s/ecn/roce_np/cnp_dscp", q.CNP.DSCP, n.Name)+finding.ForPort)
		}
		if p := r.port.CNPs.Priority; p != nil && q.CNP.Priority != nil && *p != *q.CNP.Priority {
			l.say(finding.Warning, r.String()+" ("+n.Name+")", fmt.Sprintf("CNP priority %d", *p), fmt.Sprint(*q.CNP.Priority), "notifications wait behind the data", fmt.Sprintf("echo %d > /sys/class/net/%s/ecn/roce_np/cnp_802p_prio", *q.CNP.Priority, n.Name)+finding.ForPort)
		}
	})
}

func checkPause(l *look) {
	l.qosPorts(func(r portRef, n *topology.Netdev, q *profiles.QoS) {
		if n.Ethtool != nil && n.Ethtool.GlobalPause != nil && *n.Ethtool.GlobalPause && len(q.PFC) > 0 {
			l.say(finding.Warning, r.String()+" ("+n.Name+")", "global pause on", "off", "global pause and PFC exclude each other: the whole wire stops", "with PFC on at both ends: ethtool -A "+n.Name+" rx off tx off"+finding.ForPort)
		}
	})
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
		l.say(finding.Warning, "IOMMU", orText(i.CommandLine, "translating"), "iommu=pt", "every DMA between GPU and NIC is translated", "add iommu=pt to the kernel's command line"+finding.Reboots)
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
	if !l.gpus() || l.h.XML != nil {
		return
	}
	nvidia := slices.ContainsFunc(l.h.GPUs, func(g topology.GPU) bool { return g.Vendor == "nvidia" })
	m := l.h.PeerMemory
	if nvidia && m.NvidiaPeermem != nil && !*m.NvidiaPeermem && (m.DMABuf == nil || !*m.DMABuf) {
		l.say(finding.Warning, "GPUDirect RDMA", "nvidia_peermem is not loaded, no DMA-BUF", "one of them", "GPU data is copied through host memory: a factor of 3 to 5", "modprobe nvidia_peermem (as root; comes with the driver; OFED must be there when it is built)")
	}
}

func checkMemlock(l *look) {
	m := l.h.Limits.MemlockSoft
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
	hint := "ulimit -l unlimited; limits.conf: * - memlock unlimited; systemd: LimitMEMLOCK=infinity; Slurm: PropagateResourceLimitsExcept=MEMLOCK"
	if l.h.Container.Kind != "" {
		hint = "docker run --ulimit memlock=-1 --cap-add IPC_LOCK"
	}
	l.say(sev, "locked memory", bytesText(*m), "unlimited", "memory registration fails: 'Cannot allocate memory'", hint)
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
		l.say(sev, "/dev/shm", bytesText(uint64(max(*n, 0))), "several GB", "NCCL and MPI put their buffers there", "docker run --shm-size=16g or --ipc=host; mount -o remount,size=50% /dev/shm"+finding.ForHost)
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
	for _, hca := range l.h.HCAs {
		mine := topology.DriverNamed(hca.Driver).Uverbs && l.usesHCA(hca.Name)
		any = any || mine
		if hca.CharDevice == "" || !mine {
			continue
		}
		if !slices.Contains(l.h.DeviceNodes.Names, hca.CharDevice) {
			l.say(finding.Error, hca.Name, "no /dev/infiniband/"+hca.CharDevice, "the device node", "libraries see the device and cannot open it", "docker run --device=/dev/infiniband; Kubernetes: an RDMA device plugin; bare: modprobe ib_uverbs (as root)")
		} else if l.h.DeviceNodes.Openable != nil && !slices.Contains(l.h.DeviceNodes.Openable, hca.CharDevice) {
			l.say(finding.Error, hca.Name, "/dev/infiniband/"+hca.CharDevice+" may not be opened", "read and write", "libraries see the device and cannot open it", "the udev rule of rdma-core (MODE 0666 for uverbs), or the container's device permissions")
		}
	}
	if any && l.j.RDMACM && !slices.Contains(l.h.DeviceNodes.Names, "rdma_cm") {
		l.say(finding.Error, "rdma_cm", "no /dev/infiniband/rdma_cm", "the device node", "connections through rdma_cm fail", "modprobe rdma_ucm (as root); docker run --device=/dev/infiniband/rdma_cm")
	}
}

func checkModules(l *look) {
	// Slingshot, Omni-Path and True Scale have device nodes of their own.
	verbs := slices.ContainsFunc(l.ports, func(r portRef) bool { return r.mine && topology.DriverNamed(r.hca.Driver).Uverbs })
	if l.h.Modules == nil || !verbs {
		return
	}
	has := func(n string) bool {
		return slices.ContainsFunc(l.h.Modules, func(m topology.Module) bool { return m.Name == n })
	}
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
		l.say(finding.Error, "container", "PCI shows InfiniBand adapters, /sys/class/infiniband none", "both", "the RDMA devices are in another namespace", "docker run --network host --device=/dev/infiniband ('rdma system show' tells shared or exclusive)")
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
		n := l.netdev(r.port.Netdev)
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
			out = l.netdev(r.Netdev)
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
// and ports that are down on cards like the chosen ones, or while their namesake
// of another host is up on a card like the chosen ones there: of two hosts one
// alone makes no rail. The second port of a chosen card that is down is taken for
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
				if chosen[kind{c.Driver, c.BoardID}] && p.State == "ACTIVE" && (p.LinkLayer == "InfiniBand" || slices.ContainsFunc(p.GIDs, routedRoCE2)) {
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
				downTwin := p.State != "" && p.State != "ACTIVE" && c.BoardID != "" && boards[c.BoardID] && !slots[slotOf(c.PCI)]
				downNamesake := p.State != "" && p.State != "ACTIVE" && up[name]
				if mine[name] || named[name] || downTwin || downNamesake {
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
