package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// healthy is a host on which nothing is wrong: two RoCE rails and two GPUs.
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
		{"port down", port(func(p *topology.Port) { p.State, p.PhysState = "DOWN", "Polling" }), "error port.state"},
		{"200G came up at 100", port(func(p *topology.Port) { p.RateGbps = ptr(100.0) }), "error port.rate"},
		{"small mtu", func(h *H) { h.Netdevs[0].MTU = ptr(1500) }, "error mtu.netdev"},
		{"no gid", port(func(p *topology.Port) { p.GIDs = []topology.GID{}; p.GIDZero = 256 }), "error gid.usable"},
		{"v1 only", port(func(p *topology.Port) { p.GIDs[0].Type = "IB/RoCE v1" }), "error gid.usable"},
		{"other namespace", port(func(p *topology.Port) { p.GIDs[0].NdevUnreadable = "EINVAL" }), "error gid.usable"},
		{"gids unreadable", port(func(p *topology.Port) { p.GIDUnreadable = "EINVAL" }), "error gid.usable"},
		{"pcp trust", func(h *H) { h.Netdevs[0].DCB.Trust = "pcp" }, "error qos.trust"},
		{"no pfc", func(h *H) { h.Netdevs[0].DCB.PFC = []int{} }, "error qos.pfc"},
		{"pfc everywhere", func(h *H) { h.Netdevs[0].DCB.PFC = []int{0, 3} }, "warning qos.pfc"},
		{"dscp elsewhere", func(h *H) { h.Netdevs[0].DCB.DSCPToPriority = map[int]int{26: 0} }, "error qos.dscp-map"},
		{"global tclass", port(func(p *topology.Port) { p.GlobalTClass = ptr(96) }), "error qos.tclass"},
		{"ecn off", port(func(p *topology.Port) { p.ECN[0].ReactPoint = ptr(false) }), "warning qos.ecn"},
		{"cnp", port(func(p *topology.Port) { p.CNPs.DSCP = ptr(0) }), "warning qos.cnp"},
		{"pause", func(h *H) { h.Netdevs[0].Ethtool.GlobalPause = ptr(true) }, "warning qos.pause"},
		{"x8", func(h *H) { h.PCI[0].Link.Width = ptr(8) }, "warning pcie.link"},
		{"gen3", func(h *H) { h.PCI[0].Link.SpeedMTps = ptr(8000) }, "warning pcie.link"},
		{"acs", func(h *H) { h.IOMMU.ACSRedirect = []string{"0000:01:00.0"} }, "warning pcie.acs"},
		{"iommu", func(h *H) { h.IOMMU.Groups, h.IOMMU.Passthrough = ptr(20), ptr(false) }, "warning pcie.iommu"},
		{"numa", func(h *H) { h.HCAs[0].NUMA = nil }, "note numa.placement"},
		{"peermem", func(h *H) { h.PeerMemory = topology.PeerMemory{NvidiaPeermem: ptr(false)} }, "warning gdr.peer-memory"},
		{"memlock 64k", func(h *H) { h.Limits.MemlockSoft = ptr(uint64(65536)) }, "error limits.memlock"},
		{"shm 64M", func(h *H) { h.Limits.ShmBytes = ptr(int64(64 << 20)) }, "error limits.shm"},
		{"nofile", func(h *H) { h.Limits.NofileSoft = ptr(uint64(1024)) }, "note limits.nofile"},
		{"buffers", func(h *H) { h.Limits.RmemMax = ptr(int64(212992)) }, "note limits.buffers"},
		{"no node", func(h *H) { h.DeviceNodes.Names = []string{"uverbs0"} }, "error device.nodes"},
		{"not openable", func(h *H) { h.DeviceNodes.Openable = []string{"uverbs0"} }, "error device.nodes"},
		{"modules", func(h *H) { h.Modules, h.HCAs[0].CharDevice, h.HCAs[1].CharDevice = h.Modules[1:], "", "" }, "error device.modules"},
		{"roce v1 for rdma_cm", port(func(p *topology.Port) { p.DefaultRoCE = "IB/RoCE v1" }), "note cm.roce-mode"},
		{"same subnet", func(h *H) { h.Netdevs[2].Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")} }, "warning net.subnet"},
		{"default route", func(h *H) { h.Routes[0].Netdev = "eth0" }, "note net.default-route"},
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
	for _, c := range Checks() {
		if ids[c.ID] || c.About == "" {
			t.Errorf("check %q twice, or says nothing", c.ID)
		}
		ids[c.ID] = true
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
