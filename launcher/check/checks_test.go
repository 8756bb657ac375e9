package check

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// healthy is a host on which nothing is wrong: two RoCE rails and two GPUs.
func ptr[T any](v T) *T { return &v }

func healthy(name string) topology.Host {
	h := topology.Host{
		Name: name, Kernel: "6.1.0", CPU: topology.CPU{Online: []int{0, 1, 2, 3}},
		NUMA:        []topology.NUMANode{{ID: 0}, {ID: 1}},
		GPUs:        []topology.GPU{{Index: 0, Vendor: "nvidia", PCI: "0000:10:00.0"}, {Index: 1, Vendor: "nvidia", PCI: "0000:90:00.0"}},
		Limits:      topology.Limits{MemlockSoft: ptr(topology.Unlimited), NofileSoft: ptr(uint64(65536)), ShmBytes: ptr(int64(64 << 30)), RmemMax: ptr(int64(268435456)), WmemMax: ptr(int64(268435456))},
		Modules:     []topology.Module{{Name: "ib_uverbs"}, {Name: "rdma_ucm"}, {Name: "mlx5_core", Version: "5.8"}},
		DeviceNodes: &topology.DeviceNodes{Names: []string{"uverbs0", "uverbs1", "rdma_cm"}},
		PeerMemory:  topology.PeerMemory{NvidiaPeermem: ptr(true)},
		Software:    []topology.Software{{Kind: "nccl", Version: "2.21.5"}},
	}
	for i := range 2 {
		dev, nd, pci := fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("eth%d", i), fmt.Sprintf("0000:%d0:00.0", 3+i)
		h.PCI = append(h.PCI, topology.PCIDevice{Address: pci, Link: topology.Link{SpeedMTps: ptr(16000), Width: ptr(16)}, LinkMax: topology.Link{SpeedMTps: ptr(16000), Width: ptr(16)}})
		h.HCAs = append(h.HCAs, topology.HCA{
			Name: dev, PCI: pci, NUMA: ptr(i), Driver: "mlx5", Firmware: "20.31", BoardID: "MT_1", CharDevice: fmt.Sprintf("uverbs%d", i), Class: "infiniband",
			Ports: []topology.Port{{
				Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: ptr(200.0), RateTrusted: true, ActiveMTU: ptr(4096), Netdev: nd,
				DefaultRoCE: "RoCE v2", CNPs: &topology.CNP{DSCP: ptr(48), Priority: ptr(6)}, ECN: []topology.ECN{{Priority: 3, NotifyPoint: ptr(true), ReactPoint: ptr(true)}},
				GIDs: []topology.GID{{Index: 3, Type: "RoCE v2", Kind: topology.GIDIPv4, Netdev: nd}},
			}},
		})
		h.Netdevs = append(h.Netdevs, topology.Netdev{
			Name: nd, MTU: ptr(9000), Kind: "physical", PCI: pci, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.1/24", i))},
			DCB: &topology.DCB{Trust: "dscp", PFC: []int{3}, DSCPToPriority: map[int]int{26: 3}}, Ethtool: &topology.Ethtool{GlobalPause: ptr(false)},
		})
	}
	h.Netdevs = append(h.Netdevs, topology.Netdev{Name: "mgmt", MTU: ptr(1500), Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.0.1/24")}})
	h.Routes = []topology.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Netdev: "mgmt", Table: 254}}
	return h
}

func plan26() profiles.Profile {
	return profiles.Profile{Name: "p", Fabric: profiles.Fabric{LinkLayer: "ethernet", RateGbps: ptr(200.0), MinMTUBytes: ptr(4200), QoS: &profiles.QoS{
		Trust: "dscp", PFC: []int{3},
		RDMA: profiles.Class{DSCP: 26, ECN: 2, Priority: ptr(3)}, CNP: &profiles.Class{DSCP: 48, Priority: ptr(6)},
	}}}
}

// sixteen makes CPUs of two sockets, the first NIC near the first.
func sixteen(h *topology.Host) {
	h.CPU.Online = nil
	for i := range 16 {
		h.CPU.Online = append(h.CPU.Online, i)
	}
	h.PCI[0].LocalCPUs = h.CPU.Online[:8]
}

// kernel puts lines into the kernel's log, so many seconds before it was read.
func kernel(ago int64, lines ...string) func(*topology.Host) {
	return func(h *topology.Host) {
		h.KernelLog = &topology.KernelLog{Uptime: 1000000}
		for _, l := range lines {
			h.KernelLog.Lines = append(h.KernelLog.Lines, topology.KernelLine{At: 1000000 - ago, Text: l})
		}
	}
}

// bridge adds a bridge with a container on it.
func bridge(mtu int) func(*topology.Host) {
	return func(h *topology.Host) {
		h.Netdevs = append(h.Netdevs, topology.Netdev{Name: "docker0", Kind: "bridge", MTU: ptr(mtu)}, topology.Netdev{Name: "veth1", Kind: "veth", Master: "docker0"})
	}
}

func TestHostFindings(t *testing.T) {
	type H = topology.Host
	port := func(f func(*topology.Port)) func(*H) { return func(h *H) { f(&h.HCAs[1].Ports[0]) } }
	for _, tc := range []struct {
		name string
		make func(*H)
		want string // "severity id", "" none
	}{
		{"healthy", func(*H) {}, ""},
		{"no device", func(h *H) { h.HCAs = nil }, "error port.none"},
		{"a card without its driver", func(h *H) { h.HCAs = nil; h.PCI[0].Class = ptr(uint32(0x020700)) }, "error port.none"},
		{"port down", port(func(p *topology.Port) { p.State, p.PhysState = "DOWN", "Polling" }), "error hca.port-down"},
		{"active while its link recovers", port(func(p *topology.Port) { p.PhysState = "LinkErrorRecovery" }), "error hca.port-down"},
		{"active, in the words of an old driver", port(func(p *topology.Port) { p.PhysState = "ACTIVE" }), ""},
		{"200G came up at 100", port(func(p *topology.Port) { p.RateGbps = ptr(100.0) }), "error hca.port-slow"},
		{"small mtu", func(h *H) { h.Netdevs[0].MTU = ptr(1500) }, "error mtu.netdev"},
		{"no gid", port(func(p *topology.Port) { p.GIDs = []topology.GID{}; p.GIDZero = 256 }), "error hca.gid"},
		{"v1 only", port(func(p *topology.Port) { p.GIDs[0].Type = "IB/RoCE v1" }), "error hca.gid"},
		{"other namespace", port(func(p *topology.Port) { p.GIDs[0].NdevUnreadable = "EINVAL" }), "error hca.gid"},
		{"gids unreadable", port(func(p *topology.Port) { p.GIDUnreadable = "EINVAL" }), "error hca.gid"},
		{"pcp trust", func(h *H) { h.Netdevs[0].DCB.Trust = "pcp" }, "error qos.trust"},
		{"a VF, whose settings cannot be read", func(h *H) { h.Netdevs[0].DCB, h.Netdevs[0].DCBError = nil, "EOPNOTSUPP" }, "note qos.trust"},
		{"no pfc", func(h *H) { h.Netdevs[0].DCB.PFC = []int{} }, "error qos.pfc"},
		{"pfc everywhere", func(h *H) { h.Netdevs[0].DCB.PFC = []int{0, 3} }, "warning qos.pfc"},
		{"dscp elsewhere", func(h *H) { h.Netdevs[0].DCB.DSCPToPriority = map[int]int{26: 0} }, "error qos.dscp-map"},
		{"global tclass", port(func(p *topology.Port) { p.GlobalTClass = ptr(96) }), "error qos.global-tclass"},
		{"ecn off", port(func(p *topology.Port) { p.ECN[0].ReactPoint = ptr(false) }), "warning qos.ecn"},
		{"cnp", port(func(p *topology.Port) { p.CNPs.DSCP = ptr(0) }), "warning qos.cnp"},
		{"pause", func(h *H) { h.Netdevs[0].Ethtool.GlobalPause = ptr(true) }, "warning qos.pause"},
		{"x8", func(h *H) { h.PCI[0].Link.Width = ptr(8) }, "warning pcie.link"},
		{"gen3", func(h *H) { h.PCI[0].Link.SpeedMTps = ptr(8000) }, "warning pcie.link"},
		{"acs", func(h *H) { h.IOMMU.ACSRedirect = []string{"0000:01:00.0"} }, "warning pcie.acs"},
		{"iommu", func(h *H) { h.IOMMU.Groups, h.IOMMU.Passthrough = ptr(20), ptr(false) }, "warning pcie.iommu"},
		{"numa", func(h *H) { h.HCAs[0].NUMA = nil }, "note numa.placement"},
		{"peermem", func(h *H) { h.PeerMemory = topology.PeerMemory{NvidiaPeermem: ptr(false)} }, "warning gdr.peer-memory"},
		{"memlock 64k under CAP_IPC_LOCK", func(h *H) { h.Limits.MemlockSoft, h.Limits.IPCLock = ptr(uint64(65536)), ptr(true) }, ""},
		{"memlock 64k", func(h *H) { h.Limits.MemlockSoft = ptr(uint64(65536)) }, "error limits.memlock"},
		{"shm 64M", func(h *H) { h.Limits.ShmBytes = ptr(int64(64 << 20)) }, "error limits.shm"},
		{"nofile", func(h *H) { h.Limits.NofileSoft = ptr(uint64(1024)) }, "note limits.nofile"},
		{"buffers", func(h *H) { h.Limits.RmemMax = ptr(int64(212992)) }, "note limits.buffers"},
		{"no node", func(h *H) { h.DeviceNodes.Names = []string{"uverbs0"} }, "error device.nodes"},
		{"not openable", func(h *H) { h.DeviceNodes.Openable = []string{"uverbs0"} }, "error device.nodes"},
		{"modules", func(h *H) {
			h.Modules, h.HCAs[0].CharDevice, h.HCAs[1].CharDevice = h.Modules[1:], "", ""
			h.DeviceNodes.Names = []string{"rdma_cm"}
		}, "error device.modules"},
		{"roce v1 for rdma_cm", port(func(p *topology.Port) { p.DefaultRoCE = "IB/RoCE v1" }), "note cm.roce-mode"},
		{"same subnet", func(h *H) { h.Netdevs[2].Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")} }, "warning net.subnet"},
		{"default route", func(h *H) { h.Routes[0].Netdev = "eth0" }, "note net.default-route"},
		{"relaxed ordering off", func(h *H) { h.PCI[1].RelaxedOrdering = ptr(false) }, "note pcie.relaxed-ordering"},
		{"relaxed ordering off on AMD", func(h *H) { h.CPU.Vendor = "AuthenticAMD"; h.PCI[1].RelaxedOrdering = ptr(false) }, "warning pcie.relaxed-ordering"},
		{"relaxed ordering as the hypervisor shows it", func(h *H) { h.CPU.Hypervisor = true; h.PCI[1].RelaxedOrdering = ptr(false) }, ""},
		{"small read requests", func(h *H) { h.PCI[0].MaxReadRequest = ptr(128) }, "note pcie.read-request"},
		{"usual read requests", func(h *H) { h.PCI[0].MaxReadRequest = ptr(512) }, ""},
		{"governor", func(h *H) { h.CPU.Governors = map[string]int{"powersave": 4} }, "note cpu.governor"},
		{"performance", func(h *H) { h.CPU.Governors = map[string]int{"performance": 4} }, ""},
		{"numa balancing", func(h *H) { h.Limits.NUMABalance = ptr(1) }, "note numa.balancing"},
		{"all interrupts on one CPU", func(h *H) { sixteen(h); h.PCI[0].IRQs, h.PCI[0].IRQCPUs = ptr(64), []int{0} }, "note irq.affinity"},
		{"interrupts on the other socket", func(h *H) { sixteen(h); h.PCI[0].IRQs, h.PCI[0].IRQCPUs = ptr(64), []int{8, 9, 10} }, "note irq.affinity"},
		{"interrupts near and far", func(h *H) { sixteen(h); h.PCI[0].IRQs, h.PCI[0].IRQCPUs = ptr(64), []int{7, 8, 9, 10} }, ""},
		{"hot transceiver", kernel(100, "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"), "warning kernel.log"},
		{"hot, last week", kernel(600000, "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"), "note kernel.log"},
		{"cable plugged is no fault", kernel(100, "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged"), ""},
		{"peermem", kernel(100, "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)"), "warning kernel.log"},
		{"peermem, harmless", kernel(100, "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"), "note kernel.log"},
		{"slot power", kernel(100, "mlx5_core 0000:12:00.0: mlx5_pcie_event:299:(pid 0): Detected insufficient power on the PCIe slot (27W)."), "note kernel.log"},
		{"firmware", kernel(100, "mlx5_core 0000:41:00.0: poll_health:471:(pid 0): device's health compromised - reached miss count"), "warning kernel.log"},
		{"a command", kernel(100, "mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource"), "warning kernel.log"},
		{"a GPU off the bus", kernel(100, "NVRM: Xid (PCI:0000:9c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."), "warning kernel.log"},
		{"a program's own fault", kernel(100, "NVRM: Xid (PCI:0000:cb:00): 13, pid=7, name=python, Graphics SM Warp Exception"), ""},
		{"four link downs", kernel(100, strings.Split(strings.Repeat("mlx5_core 0000:12:00.0 ens1np0: Link down\n", 4), "\n")...), ""},
		{"five link downs", kernel(100, strings.Split(strings.Repeat("mlx5_core 0000:12:00.0 ens1np0: Link down\n", 5), "\n")...), "warning kernel.log"},
		{"no libibverbs", func(h *H) { h.Software = append(h.Software, topology.Software{Kind: "verbs", Detail: "absent"}) }, "warning software.verbs"},
		{"no libibverbs in the container", func(h *H) {
			h.Container.Kind = "docker"
			h.Software = append(h.Software, topology.Software{Kind: "verbs", Detail: "absent"})
		}, "error software.verbs"},
		{"clock", func(h *H) { h.Clock.Synced = ptr(false) }, "note clock.sync"},
		{"ssh over a rail", func(h *H) { h.ReachedBy = netip.MustParseAddr("10.1.0.1") }, "note net.management"},
		{"ssh beside", func(h *H) { h.ReachedBy = netip.MustParseAddr("192.168.0.1") }, ""},
		{"time over a rail", func(h *H) {
			h.Clock.Sources = []string{"10.0.0.9"}
			h.Routes = append(h.Routes, topology.Route{Dst: netip.MustParsePrefix("10.0.0.0/24"), Netdev: "eth0", Table: 254})
		}, "note net.management"},
		{"ptp on a rail", func(h *H) { h.Clock.Sources = []string{"dev eth1"} }, "note net.management"},
		{"time by the default route", func(h *H) { h.Clock.Sources = []string{"172.16.0.1"} }, ""},
		{"one network only", func(h *H) {
			h.Netdevs = h.Netdevs[:2]
			h.Routes[0].Netdev = "eth0"
			h.ReachedBy = netip.MustParseAddr("10.1.0.1")
		}, ""},
		{"half of memory in huge pages", func(h *H) { h.Limits.MemTotal, h.Limits.HugeTotal = ptr(int64(64<<30)), ptr(int64(20000)) }, "warning limits.hugepages"},
		{"some huge pages", func(h *H) { h.Limits.MemTotal, h.Limits.HugeTotal = ptr(int64(64<<30)), ptr(int64(1024)) }, ""},
		{"small buffers: one note", func(h *H) {
			h.Limits.RmemMax, h.Limits.WmemMax, h.Limits.TCPRmem = ptr(int64(212992)), ptr(int64(212992)), ptr(int64(6291456))
		}, "note limits.buffers"},
		{"a bridge larger than the way out", bridge(9000), "warning net.bridge"},
		{"a bridge that fits", bridge(1500), ""},
		{"a bridge that goes nowhere", func(h *H) { bridge(1500)(h); h.Limits.IPForward = ptr(0) }, "warning net.bridge"},
		{"a bridge without containers", func(h *H) { bridge(9000)(h); h.Netdevs = h.Netdevs[:len(h.Netdevs)-1] }, ""},
		{"rdma_cm in RoCE v1 by FI_PROVIDER", func(h *H) {
			h.Env = []topology.EnvVar{{Name: "FI_PROVIDER", Value: "verbs;ofi_rxm"}}
			h.HCAs[0].Ports[0].DefaultRoCE = "IB/RoCE v1"
		}, "error cm.roce-mode"},
		{"rdma_cm in RoCE v1", func(h *H) { h.HCAs[0].Ports[0].DefaultRoCE = "IB/RoCE v1" }, "note cm.roce-mode"},
		{"management in a rail's subnet", func(h *H) { h.Netdevs[2].Addrs = []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24")} }, "warning net.subnet"},
		{"the same, with strict ARP", func(h *H) {
			h.Netdevs[2].Addrs = []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24")}
			h.Limits.ARPIgnore, h.Limits.ARPAnnounce = ptr(1), ptr(2)
		}, "note net.subnet"},
		{"rails in one subnet", func(h *H) { h.Netdevs[1].Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")} }, "note net.subnet"},
		{"EFA, and nobody looked for plugins", func(h *H) { h.HCAs[0].Driver, h.Software = "efa", nil }, ""},
		{"flaps", func(h *H) {
			h.Counters = []topology.CounterSample{{Device: "mlx5_0:1", Values: map[string]int64{"link_downed": 3}}}
		}, "note counter.errors"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := healthy("n1")
			tc.make(&h)
			fs := HostFindings(h, plan26(), Job{})
			got := ""
			if len(fs) > 0 {
				got = string(fs[0].Severity) + " " + fs[0].ID
			}
			if got != tc.want || tc.want != "" && len(fs) > 1 && fs[1].ID != fs[0].ID {
				t.Errorf("got %v, want %q alone", fs, tc.want)
			}
			for _, f := range fs {
				if f.Host != "n1" || f.Subject == "" || f.Seen == "" || f.Wanted == "" || f.Why == "" || f.Hint == "" {
					t.Errorf("not said fully: %+v", f)
				}
			}
		})
	}
	ids := map[string]bool{}
	for _, c := range checks() {
		if ids[c.id] {
			t.Errorf("check %q twice", c.id)
		}
		ids[c.id] = true
	}
}

func TestOnlyTheJobsPortsAreErrors(t *testing.T) {
	h := healthy("n1")
	h.HCAs[1].Ports[0].State = "DOWN"
	for _, f := range HostFindings(h, plan26(), Job{Ports: []string{"mlx5_0:1"}}) {
		if f.Severity == finding.Error {
			t.Errorf("a port that the job does not use: %+v", f)
		}
	}
}

func TestAcross(t *testing.T) {
	var hosts []topology.Host
	for i := range 5 {
		hosts = append(hosts, healthy(fmt.Sprintf("n%d", i)))
	}
	if fs := Across(hosts, nil); len(fs) != 0 {
		t.Errorf("alike: %v", fs)
	}
	hosts[3].HCAs[1].Ports[0].RateGbps = ptr(100.0)
	hosts[2].Software[0].Version = "2.19.3"
	hosts[4].Netdevs[0].MTU = ptr(1500)
	hosts[1].Software = append(hosts[1].Software, topology.Software{Kind: "nccl-plugin", Version: "1.9"})
	hosts[0].HCAs[0].Firmware = "" // unknown is no difference
	hosts[0].HCAs[0].BoardID = ""
	var got []string
	for _, f := range Across(hosts, nil) {
		got = append(got, f.Host+" "+f.ID+" "+f.Subject)
	}
	slices.Sort(got)
	want := "n1 across.software nccl-plugin|n2 across.software nccl|n3 across.rate mlx5_1 port 1|n4 across.mtu mlx5_0 port 1"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	d := Diff(hosts[2], hosts[3])
	if len(d) != 2 || d[0].ID != "diff.rate" || d[0].A != "200 Gb/s" || d[0].B != "100 Gb/s" {
		t.Errorf("diff: %+v", d)
	}
	even := []topology.Host{healthy("a"), healthy("b")}
	even[1].Kernel = "5.15"
	if fs := Across(even, nil); len(fs) != 1 || fs[0].Host != "" || fs[0].ID != "across.kernel" {
		t.Errorf("no majority: %v", fs)
	}
}

// Hosts are compared rail by rail: names, which follow the order in which a
// kernel finds cards or udev's rules, may differ.
func TestAcrossByRail(t *testing.T) {
	named := func(host string, names ...string) topology.Host {
		h := healthy(host)
		for i, n := range names {
			h.HCAs[i].Name = n
		}
		return h
	}
	slow := named("n3", "rocep1s0", "rocep2s0")
	slow.HCAs[1].Ports[0].RateGbps = ptr(100.0)
	lost := named("n3", "rocep1s0")
	lost.HCAs = lost.HCAs[:1]
	extra := healthy("n3")
	extra.HCAs = append(extra.HCAs[:2:2], topology.HCA{Name: "mlx5_9", PCI: "0000:f1:00.0", Driver: "mlx5", BoardID: "MT_9", Ports: []topology.Port{{Number: 1, State: "ACTIVE"}}})
	old := named("n3", "rocep1s0", "rocep2s0")
	for i := range old.HCAs {
		old.HCAs[i].Firmware = "1.2.3"
	}
	software := func(host, dev string) topology.Host { // no slot tells its rail, its network does
		h := topology.Host{Name: host, HCAs: []topology.HCA{{Name: dev, Driver: "rxe", Ports: []topology.Port{{Number: 1, State: "ACTIVE", Netdev: "eth1"}}}}}
		h.Netdevs = []topology.Netdev{{Name: "eth1", Addrs: []netip.Prefix{netip.MustParsePrefix("10.4.0.7/24")}}}
		return h
	}
	cut := healthy("n3") // with its link went the addresses of its table
	cut.HCAs[1].Ports[0].State, cut.HCAs[1].Ports[0].PhysState, cut.HCAs[1].Ports[0].GIDs = "DOWN", "Polling", []topology.GID{}
	bare := healthy("n3")
	bare.HCAs[1].Ports[0].GIDs = append(slices.Clone(bare.HCAs[1].Ports[0].GIDs), topology.GID{Index: 9, Type: "RoCE v2", Kind: topology.GIDIPv6})
	job := []string{"mlx5_0:1", "mlx5_1:1"}
	for _, tt := range []struct {
		name  string
		third topology.Host
		ports [][]string
		want  string
	}{
		{"a port that is down does not also have another table", cut, nil, "n3 error across.state mlx5_1 port 1"},
		{"a port that is up and has another table", bare, nil, "n3 warning across.gid-shape mlx5_1 port 1"},
		{"named otherwise", named("n3", "rocep1s0", "rocep2s0"), nil, ""},
		{"the two names exchanged", named("n3", "mlx5_1", "mlx5_0"), nil, ""},
		{"named otherwise, and one is slow", slow, nil, "n3 error across.rate rocep2s0 port 1"},
		{"named otherwise, and one is missing", lost, nil, "n3 warning across.hca-set RDMA devices"},
		{"a card more", extra, nil, "n3 warning across.hca-set RDMA devices"},
		{"a card more, which is not the job's", extra, [][]string{job, job, job}, "n3 note across.hca-set RDMA devices"},
		{"another firmware on all", old, nil, "n3 warning across.firmware 2 devices: rocep1s0, rocep2s0"},
		{"slow, and not the job's", slow, [][]string{{"mlx5_0:1"}, {"mlx5_0:1"}, {"rocep1s0:1"}}, "n3 note across.rate rocep2s0 port 1"},
		{"slow, and the job's", slow, [][]string{job, job, {"rocep1s0:1", "rocep2s0:1"}}, "n3 error across.rate rocep2s0 port 1"},
	} {
		var got []string
		for _, f := range finding.Fold(Across([]topology.Host{healthy("n1"), healthy("n2"), tt.third}, tt.ports)) {
			got = append(got, fmt.Sprint(f.Host, " ", f.Severity, " ", f.ID, " ", f.Subject))
		}
		if s := strings.Join(got, "|"); s != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, s, tt.want)
		}
	}
	if fs := Across([]topology.Host{software("a", "rxe_eth1"), software("b", "rxe0"), software("c", "rxe_0")}, nil); len(fs) != 0 {
		t.Errorf("software devices of one network: %+v", fs)
	}
}

func TestPlaces(t *testing.T) {
	with := func(name string, places ...topology.Place) topology.Host {
		h := healthy(name)
		h.Places = places
		return h
	}
	program := topology.Place{Role: topology.RoleProgram, Path: "/opt/solver", ID: "build-id:aa"}
	nfs := topology.Place{Role: topology.RoleDirectory, Path: "/work", Mount: "nfs4 nas:/work"}
	local := topology.Place{Role: topology.RoleDirectory, Path: "/work", Mount: "ext4"}
	mpi := topology.Place{Role: topology.RoleLibrary, Path: "/usr/lib/libmpi.so.40", ID: "build-id:bb", Detail: "libmpi.so.40"}
	mpi2, program2 := mpi, program
	mpi2.ID, program2.ID = "build-id:cc", "build-id:dd"
	lost := func(p topology.Place, why string) topology.Place {
		p.Missing, p.ID, p.Mount = why, "", ""
		return p
	}
	for _, tc := range []struct {
		name  string
		hosts []topology.Host
		want  string
	}{
		{"alike", []topology.Host{with("a", program, nfs, mpi), with("b", program, nfs, mpi)}, ""},
		{"no program", []topology.Host{with("a", program), with("b", lost(program, "ENOENT"))}, "b error place.program"},
		{"may not be executed", []topology.Host{with("a", lost(program, "EACCES"))}, "a error place.program"},
		{"no directory", []topology.Host{with("a", nfs), with("b", lost(nfs, "ENOENT"))}, "b error place.directory"},
		{"no library", []topology.Host{with("a", mpi), with("b", lost(mpi, "ENOENT"))}, "b error place.libraries"},
		{"a library by the head's path", []topology.Host{with("a", mpi), with("b", lost(mpi, topology.OnlyByLibraryPath))}, "b note place.libraries"},
		{"another build", []topology.Host{with("a", program), with("b", program), with("c", program2)}, "c error across.program"},
		{"another MPI", []topology.Host{with("a", mpi), with("b", mpi), with("c", mpi2)}, "c warning across.library"},
		{"one has no share", []topology.Host{with("a", nfs), with("b", nfs), with("c", local)}, "c warning across.directory"},
		{"local everywhere", []topology.Host{with("a", local), with("b", local)}, " note across.directory"},
	} {
		var got []string
		for _, h := range tc.hosts {
			for _, f := range HostFindings(h, plan26(), Job{}) {
				got = append(got, fmt.Sprint(f.Host, " ", f.Severity, " ", f.ID))
			}
		}
		for _, f := range Across(tc.hosts, nil) {
			got = append(got, fmt.Sprint(f.Host, " ", f.Severity, " ", f.ID))
		}
		if s := strings.Join(got, "|"); s != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, s, tc.want)
		}
	}
}

func TestClockSkew(t *testing.T) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(host string, off, took time.Duration) ClockReading {
		return ClockReading{Host: host, Remote: t0.Add(off + took/2), Sent: t0, Received: t0.Add(took)}
	}
	const s = time.Second
	for _, tc := range []struct {
		name     string
		readings []ClockReading
		want     string
	}{
		{"alike", []ClockReading{at("", 0, 0), at("a", s/10, s/2), at("b", -s/10, s/2)}, ""},
		{"one behind", []ClockReading{at("", 0, 0), at("a", 0, s), at("b", -3*s, s)}, "b note 2.5s or more behind"},
		{"one far ahead", []ClockReading{at("", 0, 0), at("a", 0, s), at("b", 100*s, s)}, "b warning 1m39s or more ahead"},
		{"slow answers excuse", []ClockReading{at("", 0, 0), at("a", 0, s), at("b", -3*s, 8*s)}, ""},
		{"this machine is the odd one", []ClockReading{at("", 0, 0), at("a", 60*s, 0), at("b", 60*s, 0)}, " warning 1m0s or more behind"},
		{"two hosts, who knows: ours", []ClockReading{at("", 0, 0), at("a", 60*s, 0)}, "a warning 1m0s or more ahead"},
		{"a host that sends no time", []ClockReading{at("", 0, 0), {Host: "a", Sent: t0, Received: t0}}, ""},
	} {
		var got []string
		for _, f := range ClockSkew(tc.readings) {
			got = append(got, fmt.Sprint(f.Host, " ", f.Severity, " ", f.Seen))
		}
		if s := strings.Join(got, "|"); s != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, s, tc.want)
		}
	}
}

func TestSlots(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for _, tc := range []struct {
		slots []int
		want  string
	}{
		{[]int{8, 8, 8, 8}, ""},
		{[]int{0, 0, 0, 0}, ""},
		{[]int{8, 8, 4, 0}, "c 4 8, as on 2 of 3 hosts"},
		{[]int{8, 4, 8, 4}, "b 4 8, as on 2 of 4 hosts|d 4 8, as on 2 of 4 hosts"},
	} {
		var got []string
		for _, f := range Slots(names, tc.slots) {
			got = append(got, f.Host+" "+f.Seen+" "+f.Wanted)
		}
		if s := strings.Join(got, "|"); s != tc.want {
			t.Errorf("%v: got %q, want %q", tc.slots, s, tc.want)
		}
	}
}

func TestLogins(t *testing.T) {
	fs := Logins([]Login{{From: "a", To: "b"}, {From: "b", To: "c", Failed: "Permission denied (publickey)."}, {From: "c", To: "a", Unknown: "no ssh client there"}})
	if len(fs) != 2 || fs[0].Host != "b" || fs[0].Severity != finding.Warning || fs[1].Host != "c" || fs[1].Severity != finding.Note {
		t.Errorf("got %+v", fs)
	}
}

// TestJobPortsOfTwoHostsWithOneRailDown: the rail that only one of two hosts has
// is no rail, yet its port that is down is the job's; a second port that is down
// on all hosts is nobody's. Software devices have no board by which to tell.
func TestJobPortsOfTwoHostsWithOneRailDown(t *testing.T) {
	gids := []topology.GID{{Index: 1, Kind: topology.GIDIPv4, Type: "RoCE v2"}}
	host := func(name, second, third string) topology.Host {
		h := topology.Host{Name: name}
		for i, state := range []string{"ACTIVE", second, third} {
			p := topology.Port{Number: 1, State: state, LinkLayer: "Ethernet"}
			if state == "ACTIVE" {
				p.GIDs = gids
			}
			h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("rxe_%d", i), Driver: "rxe", Ports: []topology.Port{p}})
		}
		return h
	}
	got := JobPorts([]topology.Host{host("n1", "ACTIVE", "DOWN"), host("n2", "DOWN", "DOWN")}, []map[string]string{{"n1": "rxe_0:1", "n2": "rxe_0:1"}})
	want := [][]string{{"rxe_0:1"}, {"rxe_0:1", "rxe_1:1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A device node that one host lacks takes a rail from both of two hosts: it is
// still the job's, and is said. One that neither has is no rail of theirs.
func TestJobPortsOfTwoHostsWithOneNodeMissing(t *testing.T) {
	host := func(name string, nodes ...string) topology.Host {
		h := topology.Host{Name: name, DeviceNodes: &topology.DeviceNodes{Names: nodes}}
		for i := range 3 {
			h.HCAs = append(h.HCAs, topology.HCA{
				Name: fmt.Sprintf("rxe_%d", i), Class: "infiniband", Driver: "rxe", CharDevice: fmt.Sprintf("uverbs%d", i),
				Ports: []topology.Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", GIDs: []topology.GID{{Index: 1, Kind: topology.GIDIPv4, Type: "RoCE v2"}}}},
			})
		}
		return h
	}
	hosts := []topology.Host{host("n1", "uverbs0", "uverbs1"), host("n2", "uverbs1")}
	got := JobPorts(hosts, []map[string]string{{"n1": "rxe_1:1", "n2": "rxe_1:1"}})
	want := [][]string{{"rxe_1:1"}, {"rxe_0:1", "rxe_1:1"}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	var found []string
	for _, f := range HostFindings(hosts[1], profiles.Profile{}, Job{Ports: got[1]}) {
		if f.ID == "device.nodes" {
			found = append(found, f.Subject)
		}
	}
	if !slices.Equal(found, []string{"rxe_0"}) {
		t.Errorf("said of %q, want rxe_0", found)
	}
}

// TestStrictByDriver: what is asked of verbs devices is asked of verbs devices
// only. A healthy host of each kind has nothing with which --strict refuses it.
func TestStrictByDriver(t *testing.T) {
	bare := func(h *topology.Host) {
		h.Modules, h.DeviceNodes = []topology.Module{{Name: "ext4"}}, &topology.DeviceNodes{Names: []string{}}
		for i := range h.HCAs {
			h.HCAs[i].CharDevice = ""
		}
	}
	device := func(class, driver, name, link string) func(*topology.Host) {
		return func(h *topology.Host) {
			for i := range h.HCAs {
				c := &h.HCAs[i]
				c.Class, c.Driver, c.Name = class, driver, fmt.Sprintf("%s%d", name, i)
				if link != "" {
					c.Ports[0].LinkLayer = link
				}
			}
		}
	}
	noGIDs := func(h *topology.Host) {
		for i := range h.HCAs {
			h.HCAs[i].Ports[0].GIDs, h.HCAs[i].Ports[0].GIDZero = []topology.GID{}, 256
		}
	}
	unused := func(h *topology.Host) {
		h.HCAs = append(h.HCAs, topology.HCA{Name: "mlx5_9", Driver: "mlx5", Class: "infiniband", Ports: []topology.Port{{Number: 1, State: "DOWN", LinkLayer: "Ethernet"}}})
	}
	for _, tc := range []struct {
		name string
		make []func(*topology.Host)
		job  Job
		want string // IDs with which --strict refuses
	}{
		{"mlx5", nil, Job{}, ""},
		{"mlx5 without uverbs", []func(*topology.Host){bare}, Job{}, "device.modules"},
		{"Slingshot without uverbs", []func(*topology.Host){device("cxi", "cxi", "cxi", ""), bare, noGIDs, func(h *topology.Host) { h.Software = nil }}, Job{}, ""},
		{"Slingshot beside a verbs device that the job does not use", []func(*topology.Host){device("cxi", "cxi", "cxi", ""), unused, bare, noGIDs, func(h *topology.Host) { h.Software = nil }}, Job{Ports: []string{"cxi0:1", "cxi1:1"}}, ""},
		{"Omni-Path without uverbs", []func(*topology.Host){device("infiniband", "hfi1", "hfi1_", "InfiniBand"), bare, noGIDs}, Job{}, ""},
		{"EFA", []func(*topology.Host){device("infiniband", "efa", "rdmap", "Unspecified"), noGIDs, func(h *topology.Host) { h.Software = nil }}, Job{}, ""},
		{"EFA without uverbs", []func(*topology.Host){device("infiniband", "efa", "rdmap", "Unspecified"), bare, noGIDs, func(h *topology.Host) { h.Software = nil }}, Job{}, "device.modules"},
		{"eRDMA", []func(*topology.Host){device("infiniband", "erdma", "erdma_", "")}, Job{}, ""},
		{"eRDMA without uverbs", []func(*topology.Host){device("infiniband", "erdma", "erdma_", ""), bare}, Job{}, "device.modules"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := healthy("n1")
			for _, f := range tc.make {
				f(&h)
			}
			var got []string
			for _, f := range HostFindings(h, profiles.Profile{}, tc.job) {
				if Impossible(f) {
					got = append(got, f.ID)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestMissingNodesAreOne: what a container was not given is one finding for all
// devices, with what to give this kind of container; a host is told of its module.
func TestMissingNodesAreOne(t *testing.T) {
	h := topology.Host{Name: "n1", DeviceNodes: &topology.DeviceNodes{Names: []string{"rdma_cm"}}}
	for i := range 8 {
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), Driver: "mlx5", CharDevice: fmt.Sprintf("uverbs%d", i), Ports: []topology.Port{{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand"}}})
	}
	for kind, want := range map[string]string{
		"": "modprobe ib_uverbs", "docker": "docker run --device=/dev/infiniband", "podman": "podman run --device=/dev/infiniband", "pyxis": "srun --container",
		"kubernetes": "RDMA device plugin", "apptainer": "--contain", "enroot": "--mount", "unknown": "--device=/dev/infiniband",
	} {
		h.Container.Kind = kind
		var found []finding.Finding
		for _, f := range HostFindings(h, profiles.Profile{}, Job{}) {
			if f.ID == "device.nodes" || f.ID == "hca.device-node" {
				found = append(found, f)
			}
		}
		if len(found) != 1 || !strings.Contains(found[0].Hint, want) || !strings.Contains(found[0].Subject, "mlx5_0") || !strings.Contains(found[0].Subject, "4 more") {
			t.Errorf("%q: %+v, want one of all devices with %q", kind, found, want)
		}
	}
}

// TestNoNodeWhoseNumberIsKnown: where nothing says which uverbs is a device's, no
// node at all is still one too few; some, or a module that is not loaded and said
// so by its own check, are not.
func TestNoNodeWhoseNumberIsKnown(t *testing.T) {
	for _, tc := range []struct {
		name    string
		nodes   []string
		modules []topology.Module
		want    string
	}{
		{"none, modules unknown", nil, nil, "device.nodes"},
		{"none beside the module: a container", nil, []topology.Module{{Name: "ib_uverbs"}, {Name: "rdma_ucm"}}, "device.nodes"},
		{"none and no module", nil, []topology.Module{{Name: "mlx5_core"}, {Name: "rdma_ucm"}}, "device.modules"},
		{"one, of whichever device", []string{"uverbs3"}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := topology.Host{Name: "n1", DeviceNodes: &topology.DeviceNodes{Names: tc.nodes}, Modules: tc.modules, HCAs: []topology.HCA{
				{Name: "mlx5_0", Driver: "mlx5", Ports: []topology.Port{{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand"}}},
			}}
			var found []string
			for _, f := range HostFindings(h, profiles.Profile{}, Job{}) {
				if f.Severity == finding.Error {
					found = append(found, f.ID)
				}
			}
			if got := strings.Join(found, " "); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestLockedMemoryByRuntime: too low a limit names the runtime's own option.
func TestLockedMemoryByRuntime(t *testing.T) {
	for _, tc := range []struct {
		kind string
		lock *bool
		want string // in the hint; "" no finding
	}{
		{"", nil, "limits.conf"},
		{"docker", nil, "docker run --ulimit memlock=-1"},
		{"podman", new(false), "hard limit"},
		{"kubernetes", new(false), "IPC_LOCK"},
		{"kubernetes", new(true), ""},
		{"apptainer", new(false), "PropagateResourceLimitsExcept"},
	} {
		h := topology.Host{Name: "n1", Container: topology.Container{Kind: tc.kind}, Limits: topology.Limits{MemlockSoft: new(uint64(8 << 20)), IPCLock: tc.lock}}
		got := ""
		for _, f := range HostFindings(h, profiles.Profile{}, Job{}) {
			if f.ID == "limits.memlock" {
				got = f.Hint
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%q, capability %v: hint %q, want %q", tc.kind, tc.lock, got, tc.want)
		}
	}
}

// TestNoDeviceInContainer: options are named where they may bring a device, and
// not where the host has none.
func TestNoDeviceInContainer(t *testing.T) {
	card := []topology.PCIDevice{{Address: "0000:3b:00.0", Class: new(uint32(0x020700)), Vendor: new(uint16(0x15b3))}}
	other := []topology.PCIDevice{{Address: "0000:02:00.0", Class: new(uint32(0x020000)), Vendor: new(uint16(0x8086))}}
	for _, tc := range []struct {
		kind string
		pci  []topology.PCIDevice
		want string
	}{
		{"podman", card, "podman run --network=host"},
		{"podman", nil, "podman run --network=host"},
		{"podman", other, "no option of the container"},
		{"", other, "driver loaded"},
	} {
		h := topology.Host{Name: "n1", Container: topology.Container{Kind: tc.kind}, PCI: tc.pci}
		got := ""
		for _, f := range HostFindings(h, profiles.Profile{}, Job{}) {
			if f.ID == "port.none" {
				got = f.Hint
			}
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%q, %d PCI devices: hint %q, want %q", tc.kind, len(tc.pci), got, tc.want)
		}
	}
}

// TestFirmware: an older firmware than the profile wants, by the closest name of the
// card; a newer one, another card, one that the job does not use and one whose
// firmware is not known are no fault.
func TestFirmware(t *testing.T) {
	hca := func(firmware string) topology.HCA {
		return topology.HCA{Name: "mlx5_0", Driver: "mlx5", HCAType: "MT4129", BoardID: "MT_0000000838", Firmware: firmware, Ports: []topology.Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet"}}}
	}
	for _, tc := range []struct {
		name  string
		least map[string]string
		hca   topology.HCA
		job   Job
		want  string // in what was seen; "" no finding
	}{
		{"older", map[string]string{"MT4129": "28.39.1002"}, hca("28.38.1002"), Job{}, "MT4129: firmware 28.38.1002"},
		{"as wanted", map[string]string{"MT4129": "28.39.1002"}, hca("28.39.1002"), Job{}, ""},
		{"the board decides before the part", map[string]string{"MT4129": "28.39.1002", "MT_0000000838": "28.36.0"}, hca("28.38.1002"), Job{}, ""},
		{"by driver", map[string]string{"mlx5": "28.39"}, hca("28.38.1002"), Job{}, "mlx5: firmware"},
		{"another card", map[string]string{"MT4125": "22.39.1002"}, hca("28.38.1002"), Job{}, ""},
		{"not the job's", map[string]string{"MT4129": "28.39.1002"}, hca("28.38.1002"), Job{Ports: []string{"mlx5_9:1"}}, ""},
		{"not known", map[string]string{"MT4129": "28.39.1002"}, hca(""), Job{}, ""},
		{"nothing wanted", nil, hca("1.0"), Job{}, ""},
	} {
		got := ""
		for _, f := range HostFindings(topology.Host{Name: "n1", HCAs: []topology.HCA{tc.hca}}, profiles.Profile{Name: "site", Fabric: profiles.Fabric{MinFirmware: tc.least}}, tc.job) {
			if f.ID == "hca.firmware" {
				got = f.Seen
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
