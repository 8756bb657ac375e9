package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fabrun/topology"
)

func ptr[T any](v T) *T { return &v }

// ethPort is an active RoCE port with the four GIDs that mlx5 makes of a
// link-local and an IPv4 address.
func ethPort(netdev, ip string, gbps float64) topology.Port {
	v4 := netip.MustParseAddr("::ffff:" + ip)
	ll := netip.MustParseAddr("fe80::ac0:ebff:fe3d:ca54")
	return topology.Port{
		Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: ptr(gbps), RateTrusted: true,
		RateText: fmt.Sprintf("%g Gb/sec", gbps), ActiveMTU: ptr(4096), Netdev: netdev,
		GIDs: []topology.GID{
			{Index: 0, Addr: ll, Type: roceV1, Kind: topology.GIDLinkLocal, Netdev: netdev},
			{Index: 1, Addr: ll, Type: roceV2, Kind: topology.GIDLinkLocal, Netdev: netdev},
			{Index: 2, Addr: v4, Type: roceV1, Kind: topology.GIDIPv4, Netdev: netdev},
			{Index: 3, Addr: v4, Type: roceV2, Kind: topology.GIDIPv4, Netdev: netdev},
		},
		GIDZero: 252,
	}
}

func downPort(netdev string) topology.Port {
	return topology.Port{Number: 1, State: "DOWN", PhysState: "Disabled", LinkLayer: "Ethernet", RateGbps: ptr(40.0), RateTrusted: true, Netdev: netdev}
}

func netdev(name, prefix string) topology.Netdev {
	d := topology.Netdev{Name: name, OperState: "up", Carrier: ptr(true), MTU: ptr(9000), Type: ptr(1), Kind: "physical"}
	if prefix != "" {
		d.Addrs = []netip.Prefix{netip.MustParsePrefix(prefix)}
	}
	return d
}

// cx4lx is one node of a small CFD cluster: a dual-port ConnectX-4 Lx, one
// port used, both for management and for RoCE.
func cx4lx(name, ip string) topology.Host {
	up := ethPort("ens1f0", ip, 25)
	up.ActiveMTU = ptr(1024)
	dev := netdev("ens1f0", ip+"/24")
	dev.MTU = ptr(1500)
	off := netdev("ens1f1", "")
	off.OperState, off.Carrier = "down", ptr(false)
	return topology.Host{
		Name: name,
		HCAs: []topology.HCA{
			{Name: "mlx5_0", PCI: "0000:5e:00.0", NUMA: ptr(0), Driver: "mlx5", HCAType: "MT4117", Ports: []topology.Port{up}},
			{Name: "mlx5_1", PCI: "0000:5e:00.1", NUMA: ptr(0), Driver: "mlx5", HCAType: "MT4117", Ports: []topology.Port{downPort("ens1f1")}},
		},
		Netdevs: []topology.Netdev{dev, off},
	}
}

// manyHCAs is a host with n RoCE devices, each in a subnet of its own.
func manyHCAs(name string, n int) topology.Host {
	h := topology.Host{Name: name}
	for i := range n {
		dev := fmt.Sprintf("rdma%d", i)
		ip := fmt.Sprintf("10.10.%d.1", i)
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i), Driver: "mlx5", HCAType: "MT4129", Ports: []topology.Port{ethPort(dev, ip, 400)}})
		h.Netdevs = append(h.Netdevs, netdev(dev, ip+"/24"))
	}
	return h
}

func globalTClass(name string, tc int) topology.Host {
	h := cx4lx(name, "10.1.4.1")
	h.HCAs[0].Ports[0].GlobalTClass = &tc
	return h
}

func withDocker(h topology.Host) topology.Host {
	d := netdev("docker0", "172.17.0.1/16")
	d.Kind = "bridge"
	h.Netdevs = append([]topology.Netdev{d}, h.Netdevs...)
	return h
}

// withDCB gives every netdev the NIC's default DSCP map (priority = DSCP/8).
func withDCB(h topology.Host, trust string, pfc []int) topology.Host {
	for i := range h.Netdevs {
		dcb := &topology.DCB{Trust: trust, PFC: pfc}
		if trust == "dscp" {
			dcb.DSCPToPriority = map[int]int{}
			for d := range 64 {
				dcb.DSCPToPriority[d] = d / 8
			}
		}
		h.Netdevs[i].DCB = dcb
	}
	return h
}

func pciAt(address, parent, root string, numa int, class uint32) topology.PCIDevice {
	return topology.PCIDevice{Address: address, Parent: parent, RootBus: root, Class: &class, NUMA: &numa}
}

func sortPCI(h *topology.Host) {
	slices.SortFunc(h.PCI, func(a, b topology.PCIDevice) int { return topology.ComparePCI(a.Address, b.Address) })
}

// gpuServer has two sockets with two PCIe switches each; under each switch a
// GPU and a NIC. n makes its addresses.
func gpuServer(name string, n int) topology.Host {
	h := topology.Host{Name: name, Routes: []topology.Route{}, PeerMemory: topology.PeerMemory{NvidiaPeermem: ptr(true)}}
	h.NUMA = []topology.NUMANode{{ID: 0, CPUs: []int{0, 1, 2, 3}, Distances: []int{10, 21}}, {ID: 1, CPUs: []int{4, 5, 6, 7}, Distances: []int{21, 10}}}
	for i := range 4 {
		numa, bus := i/2, 0x10+0x20*i
		root := fmt.Sprintf("pci0000:%02x", bus)
		at := func(n int) string { return fmt.Sprintf("0000:%02x:00.0", bus+n) }
		// root port, switch upstream, two downstream ports, GPU and NIC
		h.PCI = append(h.PCI,
			pciAt(at(0), "", root, numa, 0x060400), pciAt(at(1), at(0), root, numa, 0x060400),
			pciAt(at(2), at(1), root, numa, 0x060400), pciAt(at(3), at(2), root, numa, 0x030200),
			pciAt(at(4), at(1), root, numa, 0x060400), pciAt(at(5), at(4), root, numa, 0x020000))
		h.GPUs = append(h.GPUs, topology.GPU{Index: i, PCI: at(3), NUMA: &numa, Vendor: "nvidia"})
		dev, ip := fmt.Sprintf("rdma%d", i), fmt.Sprintf("10.10.%d.%d", i, n)
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), PCI: at(5), NUMA: &numa, Driver: "mlx5", HCAType: "MT4129", Ports: []topology.Port{ethPort(dev, ip, 400)}})
		h.Netdevs = append(h.Netdevs, netdev(dev, ip+"/24"))
	}
	h.Netdevs = append(h.Netdevs, netdev("eth0", fmt.Sprintf("10.0.0.%d/24", n)))
	h.Routes = []topology.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.254"), Netdev: "eth0", Table: 254}}
	sortPCI(&h)
	return h
}

// rootPorts has two GPUs and two NICs per socket, each under a root port of its own.
func rootPorts(name string) topology.Host {
	h := topology.Host{Name: name, Routes: []topology.Route{}, PeerMemory: topology.PeerMemory{NvidiaPeermem: ptr(true)}}
	for i := range 4 {
		numa := i / 2
		root := fmt.Sprintf("pci0000:%02x", 0x40*(numa+1))
		port := fmt.Sprintf("0000:%02x:%02x.0", 0x40*(numa+1), 1+i%2)
		gpu := fmt.Sprintf("0000:%02x:00.0", 0x40*(numa+1)+1+i%2)
		h.PCI = append(h.PCI, pciAt(port, "", root, numa, 0x060400), pciAt(gpu, port, root, numa, 0x030200))
		h.GPUs = append(h.GPUs, topology.GPU{Index: i, PCI: gpu, NUMA: ptr(numa), Vendor: "nvidia"})
	}
	for i := range 2 {
		numa := i
		root := fmt.Sprintf("pci0000:%02x", 0x40*(numa+1))
		port := fmt.Sprintf("0000:%02x:08.0", 0x40*(numa+1))
		nic := fmt.Sprintf("0000:%02x:00.0", 0x40*(numa+1)+8)
		h.PCI = append(h.PCI, pciAt(port, "", root, numa, 0x060400), pciAt(nic, port, root, numa, 0x020000))
		dev, ip := fmt.Sprintf("rdma%d", i), fmt.Sprintf("10.10.%d.1", i)
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), PCI: nic, NUMA: &numa, Driver: "mlx5", HCAType: "MT4123", Ports: []topology.Port{ethPort(dev, ip, 200)}})
		h.Netdevs = append(h.Netdevs, netdev(dev, ip+"/24"))
	}
	sortPCI(&h)
	return h
}

// otherSocket has its only NIC on socket 0 and GPUs on socket 1 too.
func otherSocket(name string) topology.Host {
	h := rootPorts(name)
	h.HCAs, h.Netdevs = h.HCAs[:1], h.Netdevs[:1]
	return h
}

func translating(h topology.Host) topology.Host {
	h.IOMMU = topology.IOMMU{Groups: ptr(40), Passthrough: ptr(false)}
	return h
}

func hidden(h topology.Host) topology.Host {
	h.Hidden = "flat tree of a virtual machine"
	return h
}

func noPeerMemory(h topology.Host) topology.Host {
	h.PeerMemory = topology.PeerMemory{NvidiaPeermem: ptr(false), DMABuf: ptr(false)}
	return h
}

func withEth0(h topology.Host) topology.Host {
	h.Netdevs = append([]topology.Netdev{netdev("eth0", "10.0.0.1/24")}, h.Netdevs...)
	h.Routes = append([]topology.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.254"), Netdev: "eth0", Table: 254}}, h.Routes...)
	return h
}

// withRoutes gives every rail a gateway to all rails.
func withRoutes(h topology.Host) topology.Host {
	for _, d := range h.Netdevs {
		if d.Name == "eth0" {
			continue
		}
		h.Routes = append(h.Routes, topology.Route{Dst: netip.MustParsePrefix("10.10.0.0/16"), Via: d.Addrs[0].Masked().Addr().Next(), Netdev: d.Name, Table: 254})
	}
	return h
}

// renamed has the same ports under other names, in another order of names.
func renamed(h topology.Host) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Name = fmt.Sprintf("mlx5_%d", len(h.HCAs)-1-i+10)
	}
	slices.SortFunc(h.HCAs, func(a, b topology.HCA) int { return topology.CompareNatural(a.Name, b.Name) })
	return h
}

func broken(h topology.Host, i int) topology.Host {
	p := &h.HCAs[i].Ports[0]
	p.State, p.PhysState, p.GIDs = "DOWN", "Polling", nil
	return h
}

func slow(h topology.Host, i int) topology.Host {
	h.HCAs[i].Ports[0].RateGbps = ptr(100.0)
	return h
}

// moved has rail i's address in a subnet that no other host has.
func moved(h topology.Host, i int) topology.Host {
	dev := h.HCAs[i].Ports[0].Netdev
	h.HCAs[i].Ports[0] = ethPort(dev, "10.77.0.3", 400)
	for j := range h.Netdevs {
		if h.Netdevs[j].Name == dev {
			h.Netdevs[j] = netdev(dev, "10.77.0.3/24")
		}
	}
	return h
}

// linkSubnets gives every link a /31 of its own, as routed fabrics do.
func linkSubnets(h topology.Host, n int) topology.Host {
	for i := range h.HCAs {
		dev, ip := h.HCAs[i].Ports[0].Netdev, fmt.Sprintf("10.20.%d.%d", n, 2*i)
		h.HCAs[i].Ports[0] = ethPort(dev, ip, 400)
		h.Netdevs[i] = netdev(dev, ip+"/31")
		h.Routes = append(h.Routes, topology.Route{Dst: netip.MustParsePrefix("10.20.0.0/16"), Via: netip.MustParseAddr(fmt.Sprintf("10.20.%d.%d", n, 2*i+1)), Netdev: dev, Table: 254})
	}
	return h
}

// withSlowNIC adds a RoCE port of another part at a quarter of the rate.
func withSlowNIC(h topology.Host) topology.Host {
	h.HCAs = append(h.HCAs, topology.HCA{Name: "mlx5_9", PCI: "0000:f0:00.0", Driver: "mlx5", HCAType: "MT4117", Ports: []topology.Port{ethPort("eno1", "10.0.0.9", 25)}})
	h.Netdevs = append(h.Netdevs, netdev("eno1", "10.0.0.9/24"))
	return h
}

func infiniband(name string, n int) topology.Host {
	h := topology.Host{Name: name, PeerMemory: topology.PeerMemory{NvidiaPeermem: ptr(true)}}
	for i := range n {
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", i), PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i), Driver: "mlx5", HCAType: "MT4129", Ports: []topology.Port{{
			Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", RateGbps: ptr(400.0), RateTrusted: true, RateText: "400 Gb/sec (4X NDR)",
			GIDs: []topology.GID{{Index: 0, Addr: netip.MustParseAddr(fmt.Sprintf("fe80::a088:c203:0:%x", i+1)), Type: "IB/RoCE v1", Kind: topology.GIDIB}},
		}}})
		h.GPUs = append(h.GPUs, topology.GPU{Index: i, PCI: fmt.Sprintf("0000:%02x:00.0", 0x80+i), Vendor: "nvidia"})
	}
	return h
}

func prefixed(h topology.Host, prefix string) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Name = fmt.Sprintf("%s%d", prefix, i)
	}
	return h
}

func driver(h topology.Host, driver, name string) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Driver = driver
		if len(h.HCAs) > 2 {
			h.HCAs[i].Name = fmt.Sprintf("%s%ds0", name, 20+i)
		} else {
			h.HCAs[i].Name = strings.TrimSuffix(name, "0") + fmt.Sprint(i)
		}
	}
	return h
}

func withVFs(h topology.Host) topology.Host {
	for i := range 2 {
		dev, ip := fmt.Sprintf("ens1f0v%d", i), fmt.Sprintf("10.1.4.%d", 101+i)
		h.HCAs = append(h.HCAs, topology.HCA{Name: fmt.Sprintf("mlx5_%d", 2+i), PCI: fmt.Sprintf("0000:5e:00.%d", 2+i), Driver: "mlx5", HCAType: "MT4118", VF: true, PF: "mlx5_0", Ports: []topology.Port{ethPort(dev, ip, 25)}})
		h.Netdevs = append(h.Netdevs, netdev(dev, ip+"/24"))
	}
	return h
}

func bonded(name string) topology.Host {
	d := netdev("bond0", "10.1.4.1/24")
	d.Kind, d.Slaves, d.BondMode, d.LACPPorts = "bond", []string{"ens1f0", "ens1f1"}, "802.3ad", ptr(2)
	s0, s1 := netdev("ens1f0", ""), netdev("ens1f1", "")
	s0.Master, s1.Master = "bond0", "bond0"
	return topology.Host{
		Name: name, HCAs: []topology.HCA{{Name: "mlx5_bond_0", PCI: "0000:5e:00.0", Driver: "mlx5", Bond: true, Ports: []topology.Port{ethPort("bond0", "10.1.4.1", 200)}}},
		Netdevs: []topology.Netdev{d, s0, s1},
	}
}

func addGIDs(h topology.Host, dev, ip string) topology.Host {
	p := &h.HCAs[0].Ports[0]
	a := netip.MustParseAddr("::ffff:" + ip)
	for _, typ := range []string{roceV1, roceV2} {
		p.GIDs = append(p.GIDs, topology.GID{Index: len(p.GIDs), Addr: a, Type: typ, Kind: topology.GIDIPv4, Netdev: dev})
	}
	return h
}

func withVLAN(h topology.Host) topology.Host {
	d := netdev("ens1f0.99", "10.99.0.1/24")
	d.Kind, d.VLAN, d.Lower = "vlan", ptr(99), "ens1f0"
	h.Netdevs = append(h.Netdevs, d)
	return addGIDs(h, "ens1f0.99", "10.99.0.1")
}

func secondAddress(h topology.Host) topology.Host {
	h.Netdevs[0].Addrs = append(h.Netdevs[0].Addrs, netip.MustParsePrefix("10.99.0.1/24"))
	return addGIDs(h, "ens1f0", "10.99.0.1")
}

func otherNamespace(h topology.Host) topology.Host {
	p := &h.HCAs[0].Ports[0]
	for i := range p.GIDs {
		p.GIDs[i].Netdev, p.GIDs[i].NdevUnreadable = "", "EINVAL"
	}
	p.Netdev, h.Netdevs = "", nil
	return h
}

func ipv6Only(name string) topology.Host {
	h := cx4lx(name, "10.1.4.1")
	h.Netdevs[0].Addrs = []netip.Prefix{netip.MustParsePrefix("fd02::1/64")}
	p := &h.HCAs[0].Ports[0]
	for i := 2; i < 4; i++ {
		p.GIDs[i].Addr, p.GIDs[i].Kind = netip.MustParseAddr("fd02::1"), topology.GIDIPv6
	}
	return h
}

func rxe(name string, v6 bool) topology.Host {
	p := topology.Port{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: ptr(2.5), Netdev: "ens1", ActiveMTU: ptr(1024), GIDs: []topology.GID{
		{Index: 0, Addr: netip.MustParseAddr("fe80::1"), Type: roceV2, Kind: topology.GIDLinkLocal, Netdev: "ens1"},
		{Index: 1, Addr: netip.MustParseAddr("::ffff:10.1.4.1"), Type: roceV2, Kind: topology.GIDIPv4, Netdev: "ens1"},
	}}
	d := netdev("ens1", "10.1.4.1/24")
	if v6 {
		p.GIDs = append(p.GIDs, topology.GID{Index: 2, Addr: netip.MustParseAddr("fd00:4::1"), Type: roceV2, Kind: topology.GIDIPv6, Netdev: "ens1"})
		d.Addrs = append(d.Addrs, netip.MustParsePrefix("fd00:4::1/64"))
	}
	return topology.Host{Name: name, HCAs: []topology.HCA{{Name: "rxe_0", Driver: "rxe", Parent: "ens1", Ports: []topology.Port{p}}}, Netdevs: []topology.Netdev{d}}
}

// special is a host whose fabric is neither InfiniBand nor RoCE.
func special(name, driver, hca string) topology.Host {
	c := topology.HCA{Name: hca, Driver: driver, PCI: "0000:10:00.0", Ports: []topology.Port{{Number: 1, State: "ACTIVE", PhysState: "LinkUp", RateGbps: ptr(100.0), RateTrusted: true}}}
	switch driver {
	case "hfi1":
		c.Ports[0].LinkLayer = "InfiniBand"
	case "iw_cxgb4":
		c.NodeType, c.Ports[0].LinkLayer = "RNIC", "Ethernet"
	case "cxi":
		c.Class = "cxi"
	}
	return topology.Host{Name: name, HCAs: []topology.HCA{c}, GPUs: []topology.GPU{{PCI: "0000:20:00.0", Vendor: "nvidia"}}, PeerMemory: topology.PeerMemory{NvidiaPeermem: ptr(true)}}
}

func withSoftware(h topology.Host, kind, what string) topology.Host {
	s := topology.Software{Kind: kind, Version: what, Path: "/usr/lib/" + kind}
	if kind == "nccl-plugin" {
		s.Version, s.Detail = "", what
	}
	h.Software = append(h.Software, s)
	return h
}

func withConf(h topology.Host, text string) topology.Host {
	h.ConfigFiles = append(h.ConfigFiles, topology.ConfigFile{Path: "etc/nccl.conf", Kind: "nccl", Text: text})
	return h
}

func vmwareVF(name string) topology.Host {
	h := cx4lx(name, "192.168.10.2")
	h.Hidden = "flat tree of a virtual machine"
	h.HCAs = h.HCAs[:1]
	h.HCAs[0].VF, h.HCAs[0].Ports[0].ActiveMTU = true, ptr(4096)
	h.Netdevs = h.Netdevs[:1]
	h.Netdevs[0].MTU, h.Netdevs[0].DCBError = ptr(9000), "EOPNOTSUPP"
	h.Product = topology.Product{Vendor: "VMware, Inc.", Name: "VMware7,1"}
	return h
}

// twoLinkLocal has a stable-privacy link-local address beside the usual one.
func twoLinkLocal(h topology.Host) topology.Host {
	p := &h.HCAs[0].Ports[0]
	ll := netip.MustParseAddr("fe80::1186:a6b1:3f0b:c4aa")
	p.GIDs = slices.Insert(p.GIDs, 2, topology.GID{Addr: ll, Type: roceV1, Kind: topology.GIDLinkLocal, Netdev: p.Netdev}, topology.GID{Addr: ll, Type: roceV2, Kind: topology.GIDLinkLocal, Netdev: p.Netdev})
	for i := range p.GIDs {
		p.GIDs[i].Index = i
	}
	return h
}

// twoVendors has one card with RoCE v1 rows in its table and one without.
func twoVendors(name string) topology.Host {
	h := manyHCAs(name, 2)
	p := &h.HCAs[0].Ports[0]
	p.GIDs = []topology.GID{p.GIDs[1], p.GIDs[3]}
	p.GIDs[0].Index, p.GIDs[1].Index = 0, 1
	h.HCAs[0].Driver, h.HCAs[0].Name = "hns_roce", "hns_0"
	return h
}

func mixedFamilies(name string) topology.Host {
	h := manyHCAs(name, 2)
	for i := range h.HCAs {
		p := &h.HCAs[i].Ports[0]
		a := netip.MustParseAddr(fmt.Sprintf("fd02::%d:1", i))
		if i == 1 {
			p.GIDs, h.Netdevs[i].Addrs = p.GIDs[:2], nil
		}
		for _, typ := range []string{roceV1, roceV2} {
			p.GIDs = append(p.GIDs, topology.GID{Index: len(p.GIDs), Addr: a, Type: typ, Kind: topology.GIDIPv6, Netdev: p.Netdev})
		}
		h.Netdevs[i].Addrs = append(h.Netdevs[i].Addrs, netip.PrefixFrom(a, 112))
	}
	return h
}

func remapped(h topology.Host, dscp, prio int) topology.Host {
	for i := range h.Netdevs {
		h.Netdevs[i].DCB.DSCPToPriority[dscp] = prio
	}
	return h
}

// joined is a with the devices of b.
func joined(a, b topology.Host) topology.Host {
	a.HCAs = append(a.HCAs, b.HCAs...)
	a.Netdevs = append(a.Netdevs, b.Netdevs...)
	return a
}

func noAddress(h topology.Host) topology.Host {
	p := &h.HCAs[1].Ports[0]
	p.GIDs, h.Netdevs[1].Addrs = p.GIDs[:2], nil
	return h
}
