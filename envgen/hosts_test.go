package envgen

import (
	"fmt"
	"net/netip"

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
