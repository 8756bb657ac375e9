package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// hosts of the tables below are built from few parts.

func lid(h topology.Host) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Ports[0].LID = ptr(uint32(i + 1))
	}
	return h
}

// addRoCE adds a RoCE device with a netdev of its own.
func addRoCE(h topology.Host, name, pci, part, dev, prefix string, gbps float64) topology.Host {
	addr, _, _ := strings.Cut(prefix, "/")
	h.HCAs = append(h.HCAs, topology.HCA{Name: name, Class: "infiniband", PCI: pci, Driver: "mlx5", HCAType: part, Ports: []topology.Port{ethPort(dev, addr, gbps)}})
	h.Netdevs = append(h.Netdevs, netdev(dev, prefix))
	return h
}

func defaultRoute(h topology.Host, dev string) topology.Host {
	h.Routes = append([]topology.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.9.0.254"), Netdev: dev, Table: 254}}, slices.DeleteFunc(h.Routes, func(r topology.Route) bool { return r.Dst.IsValid() && r.Dst.Bits() == 0 })...)
	return h
}

func change(h topology.Host, f func(h *topology.Host)) topology.Host {
	f(&h)
	return h
}

func dev(h *topology.Host, name string) *topology.Netdev {
	for i := range h.Netdevs {
		if h.Netdevs[i].Name == name {
			return &h.Netdevs[i]
		}
	}
	return nil
}

func uverbs(h topology.Host, nodes ...string) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Class, h.HCAs[i].CharDevice = "infiniband", fmt.Sprintf("uverbs%d", i)
	}
	h.DeviceNodes = &topology.DeviceNodes{Names: nodes}
	return h
}

// pods sees the host's four PFs, whose netdevs are in another network
// namespace, and has a VF of the first.
func pod() topology.Host {
	h := manyHCAs("p1", 4)
	h.Container.Kind = "kubernetes"
	for i := range h.HCAs {
		p := &h.HCAs[i].Ports[0]
		for j := range p.GIDs {
			p.GIDs[j].Netdev, p.GIDs[j].NdevUnreadable = "", "EINVAL"
		}
		p.Netdev, p.ActiveMTU = "", nil
	}
	h.Netdevs = nil
	h = addRoCE(h, "mlx5_9", "0000:10:00.2", "MT4130", "net1", "10.10.0.7/24", 400)
	h.HCAs[4].VF, h.HCAs[4].PF = true, "mlx5_0"
	return h
}

// dualStorage adds two ports of one card of another board.
func dualStorage(h topology.Host, linkLayer string) topology.Host {
	for i := range 2 {
		c := topology.HCA{Name: fmt.Sprintf("mlx5_2%d", i), PCI: fmt.Sprintf("0000:e0:00.%d", i), Driver: "mlx5", HCAType: "MT4131"}
		if linkLayer == "InfiniBand" {
			c.Ports = []topology.Port{infiniband("x", 1).HCAs[0].Ports[0]}
			c.Ports[0].LID = ptr(uint32(90 + i))
		} else {
			c.Ports = []topology.Port{ethPort(fmt.Sprintf("stor%d", i), fmt.Sprintf("10.50.%d.1", i), 400)}
			h.Netdevs = append(h.Netdevs, netdev(fmt.Sprintf("stor%d", i), fmt.Sprintf("10.50.%d.1/24", i)))
		}
		h.HCAs = append(h.HCAs, c)
	}
	return h
}

// Which ports are the job's, and by which rule the others are not. Every rule
// that leaves a port out stands beside a host on which it must not.
func TestPortRoles(t *testing.T) {
	two := func() topology.Host { return manyHCAs("n1", 2) }
	far := func(h topology.Host, part string) topology.Host {
		h.PCI = append(h.PCI, pciAt("0000:f0:00.0", "", "pci0000:f0", 0, 0x060400), pciAt("0000:f1:00.0", "0000:f0:00.0", "pci0000:f0", 0, 0x020000))
		h = addRoCE(h, "mlx5_7", "0000:f1:00.0", part, "far0", "10.60.0.1/24", 400)
		sortPCI(&h)
		return h
	}
	for _, tt := range []struct {
		name    string
		host    topology.Host
		profile func(*profiles.Fabric)
		job     Job
		want    string            // the ports
		why     map[string]string // port: rule and a part of its reason
	}{
		{
			name: "a fast storage card on a machine with a NIC for each GPU", host: far(gpuServer("g1", 1), "MT4129"),
			want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1", why: map[string]string{"mlx5_7:1": "hca.beside-gpu each of the 4 GPUs"},
		},
		{
			name: "the same card where a GPU has no NIC of its own", host: change(far(gpuServer("g1", 1), "MT4129"), func(h *topology.Host) { h.HCAs = slices.Delete(h.HCAs, 3, 4) }),
			want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_7:1",
		},
		{
			name: "one GPU is no pattern", host: change(far(gpuServer("g1", 1), "MT4129"), func(h *topology.Host) { h.GPUs, h.HCAs = h.GPUs[:1], append(h.HCAs[:1:1], h.HCAs[4]) }),
			want: "mlx5_0:1 mlx5_7:1",
		},
		{
			name: "a rail that is down is wired all the same", host: broken(far(gpuServer("g1", 1), "MT4129"), 3),
			want: "mlx5_0:1 mlx5_1:1 mlx5_2:1", why: map[string]string{"mlx5_7:1": "hca.beside-gpu"},
		},
		{name: "a guest's tree tells nothing", host: hidden(far(gpuServer("g1", 1), "MT4129")), want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_7:1"},

		{
			name: "a dual-port storage card of another board, InfiniBand", host: dualStorage(lid(infiniband("i1", 4)), "InfiniBand"),
			want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1", why: map[string]string{"mlx5_20:1": "hca.role a card of 2 ports among cards of one", "mlx5_21:1": "hca.role another card"},
		},
		{name: "two boards of one port at one rate", host: change(two(), func(h *topology.Host) { h.HCAs[1].HCAType = "MT4131" }), want: "mlx5_0:1 mlx5_1:1"},
		{name: "all cards have two ports", host: change(manyHCAs("n1", 4), func(h *topology.Host) {
			h.HCAs[1].PCI, h.HCAs[3].PCI = "0000:10:00.1", "0000:12:00.1"
		}), want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{
			name: "storage carries more together, and is not lossless", host: change(dualStorage(manyHCAs("n1", 1), "Ethernet"), func(h *topology.Host) {
				dev(h, "rdma0").DCB = &topology.DCB{Trust: "dscp", PFC: []int{3}}
			}),
			want: "mlx5_0:1", why: map[string]string{"mlx5_20:1": "hca.role another card than mlx5_0:1"},
		},

		{
			name: "a storage card on the switch of one of the GPUs", host: change(addRoCE(gpuServer("g1", 1), "mlx5_7", "0000:23:00.0", "MT4131", "stor0", "10.60.0.1/24", 400), func(h *topology.Host) {
				h.PCI = append(h.PCI, pciAt("0000:23:00.0", gpuSwitch(h, 0), "pci0000:20", 0, 0x020000))
				sortPCI(h)
			}),
			want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1", why: map[string]string{"mlx5_7:1": "hca.beside-gpu another card than mlx5_0:1"},
		},
		{name: "a rail's card replaced by one of another board", host: change(gpuServer("g1", 1), func(h *topology.Host) {
			for i := range h.HCAs {
				h.HCAs[i].HCAType = "MT4129"
			}
			h.HCAs[2].HCAType = "MT4131"
		}), want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{
			name: "a management port of the same model", host: defaultRoute(two(), "rdma0"),
			want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.role management: the default route goes over rdma0"},
		},
		{name: "the default route goes over a rail's own subnet", host: defaultRoute(change(two(), func(h *topology.Host) {
			h.HCAs[1].Ports[0] = ethPort("rdma1", "10.10.0.2", 400)
			h.Netdevs[1] = netdev("rdma1", "10.10.0.2/24")
		}), "rdma0"), want: "mlx5_0:1 mlx5_1:1"},
		{name: "the default route goes over one of two ports of a card, set up alike", host: defaultRoute(change(two(), func(h *topology.Host) { h.HCAs[1].PCI = "0000:10:00.1" }), "rdma0"), want: "mlx5_0:1 mlx5_1:1"},
		{
			name: "two ports of a card, and the one with the default route is not set up for RDMA", host: defaultRoute(change(withDCB(two(), "dscp", []int{3}), func(h *topology.Host) {
				h.HCAs[1].PCI = "0000:10:00.1"
				dev(h, "rdma0").MTU, dev(h, "rdma0").DCB = ptr(1500), &topology.DCB{Trust: "pcp"}
			}), "rdma0"), want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.role MTU 1500 beside mlx5_1:1's 9000 (-1)"},
		},
		{name: "the profile says that hosts know each other by the fabric", host: defaultRoute(two(), "rdma0"), profile: func(f *profiles.Fabric) { f.Bootstrap = "fabric" }, want: "mlx5_0:1 mlx5_1:1"},
		{
			name: "the profile names the management interface", host: two(), profile: func(f *profiles.Fabric) { f.Bootstrap = "rdma1" },
			want: "mlx5_0:1", why: map[string]string{"mlx5_1:1": "hca.role management: rdma1 is the profile's bootstrap interface"},
		},
		{name: "the default route goes over the only port", host: defaultRoute(manyHCAs("n1", 1), "rdma0"), want: "mlx5_0:1"},
		{name: "the default route goes over no port", host: defaultRoute(withEth0(two()), "eth0"), want: "mlx5_0:1 mlx5_1:1"},
		{
			name: "the default route is on a bridge over the port", host: defaultRoute(change(two(), func(h *topology.Host) {
				h.Netdevs = append(h.Netdevs, topology.Netdev{Name: "br-ex", Kind: "bridge", OperState: "up"})
				dev(h, "rdma0").Master = "br-ex"
			}), "br-ex"), want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.role management"},
		},
		{name: "hosts are known by the address of a rail", host: two(), job: Job{Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.1")}}, want: "mlx5_0:1 mlx5_1:1"},
		{
			name: "hosts are known by the address of another card, without jumbo frames", host: change(two(), func(h *topology.Host) { h.HCAs[0].HCAType, dev(h, "rdma0").MTU = "MT4117", ptr(1500) }),
			job: Job{Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.1")}}, want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.role management"},
		},
		{name: "a rail with a small MTU and the wrong trust mode is a fault, not another network", host: change(withDCB(manyHCAs("n1", 4), "dscp", []int{3}), func(h *topology.Host) {
			h.Netdevs[2].MTU, h.Netdevs[2].DCB = ptr(1500), &topology.DCB{Trust: "pcp"}
		}), want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1"},
		{
			name: "half as fast, and another part", host: change(two(), func(h *topology.Host) { h.HCAs[0].HCAType, h.HCAs[0].Ports[0].RateGbps = "MT4117", ptr(25.0) }),
			want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.role 25 Gb/s beside mlx5_1:1 with 400 Gb/s"},
		},
		{name: "Soft-RoCE beside a card", host: joined(manyHCAs("n1", 1), rxe("n1", true)), want: "mlx5_0:1", why: map[string]string{"rxe_0:1": "hca.role software"}},
		{name: "Soft-RoCE alone", host: rxe("n1", true), want: "rxe_0:1"},

		{
			name: "InfiniBand beside more Ethernet", host: dualStorage(lid(infiniband("i1", 1)), "Ethernet"),
			want: "mlx5_0:1", why: map[string]string{"mlx5_20:1": "hca.fabric Ethernet beside mlx5_0:1 (InfiniBand with LID 1)"},
		},
		{name: "the profile says Ethernet", host: dualStorage(lid(infiniband("i1", 1)), "Ethernet"), profile: func(f *profiles.Fabric) { f.LinkLayer = "ethernet" }, want: "mlx5_20:1 mlx5_21:1", why: map[string]string{"mlx5_0:1": "hca.link-layer"}},
		{name: "InfiniBand that nobody manages", host: change(dualStorage(lid(infiniband("i1", 1)), "Ethernet"), func(h *topology.Host) { h.HCAs[0].Ports[0].LID = ptr(uint32(0)) }), want: "mlx5_20:1 mlx5_21:1", why: map[string]string{"mlx5_0:1": "hca.fabric no subnet manager"}},
		{name: "Slingshot beside a management card", host: joined(special("c1", "cxi", "cxi0"), manyHCAs("c1", 1)), want: "cxi0:1", why: map[string]string{"mlx5_0:1": "hca.fabric Ethernet beside cxi0:1"}},
		{
			name: "InfiniBand storage beside GPUs with RoCE", host: change(joined(gpuServer("g1", 1), lid(infiniband("i1", 1))), func(h *topology.Host) {
				h.HCAs[4].Name, h.HCAs[4].PCI = "mlx5_7", "0000:f1:00.0"
				h.PCI = append(h.PCI, pciAt("0000:f0:00.0", "", "pci0000:f0", 0, 0x060400), pciAt("0000:f1:00.0", "0000:f0:00.0", "pci0000:f0", 0, 0x020700))
				sortPCI(h)
			}), want: "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1", why: map[string]string{"mlx5_7:1": "hca.beside-gpu"},
		},

		{name: "a container with two of four devices", host: uverbs(manyHCAs("n1", 4), "uverbs1", "uverbs3"), want: "mlx5_1:1 mlx5_3:1", why: map[string]string{"mlx5_0:1": "hca.device-node no /dev/infiniband/uverbs0"}},
		{name: "devices that may not be opened", host: change(uverbs(two(), "uverbs0", "uverbs1"), func(h *topology.Host) { h.DeviceNodes.Openable = []string{"uverbs1"} }), want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.device-node may not be opened"}},
		{name: "device nodes that nobody looked at", host: change(uverbs(two()), func(h *topology.Host) { h.DeviceNodes = nil }), want: "mlx5_0:1 mlx5_1:1"},
		{name: "a process that may lock 64 KiB", host: locks(two(), 64<<10, 64<<10, nil), want: "", why: map[string]string{"mlx5_0:1": "hca.memlock only 64 KiB"}},
		{name: "and whose hard limit is none", host: locks(two(), 64<<10, topology.Unlimited, nil), want: "mlx5_0:1 mlx5_1:1"},
		{name: "and which holds CAP_IPC_LOCK", host: locks(two(), 64<<10, 64<<10, ptr(true)), want: "mlx5_0:1 mlx5_1:1"},
		{name: "and which does not hold it", host: locks(two(), 64<<10, 64<<10, ptr(false)), want: "", why: map[string]string{"mlx5_0:1": "hca.memlock"}},
		{name: "a process that may lock 8 MiB, which is for the check to say", host: locks(two(), 8<<20, 8<<20, ptr(false)), want: "mlx5_0:1 mlx5_1:1"},
		{name: "Slingshot under a limit of locked memory", host: locks(special("c1", "cxi", "cxi0"), 64<<10, 64<<10, nil), want: "cxi0:1"},
		{name: "Slingshot needs no uverbs", host: change(special("c1", "cxi", "cxi0"), func(h *topology.Host) { h.DeviceNodes = &topology.DeviceNodes{Names: []string{}} }), want: "cxi0:1"},
		{name: "a pod with its own VF", host: pod(), want: "mlx5_9:1", why: map[string]string{"mlx5_0:1": "hca.gid another network namespace"}},
		{name: "a PF and its VFs", host: withVFs(cx4lx("n1", "10.1.4.1")), want: "mlx5_0:1", why: map[string]string{"mlx5_2:1": "hca.virtual"}},
		{
			name: "the profile's subnets", host: two(), profile: func(f *profiles.Fabric) { f.Subnets = []string{"10.10.1.0/24"} },
			want: "mlx5_1:1", why: map[string]string{"mlx5_0:1": "hca.network 10.10.0.1 is outside the profile's subnets 10.10.1.0/24"},
		},
		{name: "the profile's subnets go before the default route", host: defaultRoute(two(), "rdma0"), profile: func(f *profiles.Fabric) { f.Subnets = []string{"10.10.0.0/16"} }, want: "mlx5_0:1 mlx5_1:1"},
		{name: "the address is on a bridge over a bond", host: onBridge("br-ex"), want: "mlx5_bond_0:1"},
		{name: "the address is on an interface that is not over the port", host: onBridge("other0"), want: "", why: map[string]string{"mlx5_bond_0:1": "hca.gid"}},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Job: tt.job}
		if tt.profile != nil {
			tt.profile(&in.Profile.Fabric)
		}
		s := &state{in: in, portRules: portRules(), want: wantOf(&in.Profile), nodes: []*node{{h: &in.Hosts[0]}}}
		s.choosePorts()
		n := s.nodes[0]
		if got := strings.Join(portNames(n.use), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			for _, p := range n.ports {
				t.Logf("  %s: %s %s; %s", p.name(), p.rejectID, p.reject, p.said())
			}
		}
		for name, why := range tt.why {
			rule, part, _ := strings.Cut(why, " ")
			i := slices.IndexFunc(n.ports, func(p *port) bool { return p.name() == name })
			if p := n.ports[i]; p.rejectID != rule || !strings.Contains(p.reject, part) {
				t.Errorf("%s: %s is out by %q: %q, want %q: %q", tt.name, name, p.rejectID, p.reject, rule, part)
			}
		}
	}
}

// gpuSwitch is the port of the PCIe switch above a GPU.
func gpuSwitch(h *topology.Host, i int) string {
	for _, d := range h.PCI {
		if d.Address == h.GPUs[i].PCI {
			return d.Parent
		}
	}
	return ""
}

// locks is a host whose processes may lock so much memory.
func locks(h topology.Host, soft, hard uint64, capability *bool) topology.Host {
	h.Limits.MemlockSoft, h.Limits.MemlockHard, h.Limits.IPCLock = &soft, &hard, capability
	return h
}

// A host where next to nothing can be locked is named as the one that cannot take
// part, and alone it is no RDMA job, with the way out.
func TestMemlockInThePlan(t *testing.T) {
	good, bad := manyHCAs("n1", 2), locks(manyHCAs("n2", 2), 64<<10, 64<<10, nil)
	find := func(id string, hosts ...topology.Host) finding.Finding {
		res := Compute(Input{Hosts: hosts, Profile: load(t, "roce-dscp26")})
		for _, f := range res.Findings {
			if f.ID == id {
				return f
			}
		}
		return finding.Finding{}
	}
	if f := find("hca.none-on-host", good, bad); f.Host != "n2" || !strings.Contains(f.Seen, "64 KiB") {
		t.Errorf("one of two: %+v", f)
	}
	if f := find("hca.none", bad); !strings.Contains(f.Seen, "64 KiB") || !strings.Contains(f.Hint, "ulimit -l unlimited") {
		t.Errorf("alone: %+v", f)
	}
	if f := find("hca.none-on-host", good, locks(manyHCAs("n2", 2), 64<<10, 64<<10, ptr(true))); f.ID != "" {
		t.Errorf("with CAP_IPC_LOCK: %+v", f)
	}
}

// onBridge has its address on an interface that is a bridge over the port's
// bond, or one that is not over it.
func onBridge(name string) topology.Host {
	h := bonded("n1")
	for i := range h.HCAs[0].Ports[0].GIDs {
		h.HCAs[0].Ports[0].GIDs[i].Netdev = name
	}
	dev(&h, "bond0").Addrs = nil
	if name == "br-ex" {
		dev(&h, "bond0").Master = "br-ex"
	}
	d := netdev(name, "10.1.4.1/24")
	d.Kind = "bridge"
	h.Netdevs = append(h.Netdevs, d)
	return h
}

// Nothing is said of ports that are not the job's: no address, MTU or trust
// mode is asked of them.
func TestOtherPortsAreNotJudged(t *testing.T) {
	sick := func(h topology.Host, i int) topology.Host {
		h.HCAs[i].Ports[0].GIDs = h.HCAs[i].Ports[0].GIDs[:2]
		h.Netdevs[i].Addrs, h.Netdevs[i].MTU, h.HCAs[i].Ports[0].ActiveMTU = nil, ptr(1500), ptr(1024)
		h.Netdevs[i].DCB = &topology.DCB{Trust: "pcp"}
		return h
	}
	accelNet := change(lid(infiniband("i1", 4)), func(h *topology.Host) {
		*h = sick(addRoCE(change(*h, func(h *topology.Host) { h.Netdevs = make([]topology.Netdev, 4) }), "mlx5_an0", "7870:00:02.0", "MT4120", "enP1s1", "10.0.0.4/24", 100), 4)
		dev(h, "enP1s1").Master = "eth0"
	})
	for _, tt := range []struct {
		name  string
		host  topology.Host
		about string // must not occur
		says  bool   // or must
	}{
		{"an AccelNet VF beside InfiniBand", accelNet, "enP1s1", false},
		{"a pod's host PFs", pod(), "mlx5_0", false},
		{"a card of another kind without an address", change(sick(manyHCAs("n1", 3), 2), func(h *topology.Host) { h.HCAs[2].HCAType = "MT4117" }), "rdma2", false},
		{"a bridge's port", change(sick(manyHCAs("n1", 3), 2), func(h *topology.Host) { h.Netdevs[2].Master = "br0" }), "rdma2", false},
		{"a management port", change(defaultRoute(manyHCAs("n1", 2), "rdma0"), func(h *topology.Host) {
			h.Netdevs[0].MTU, h.HCAs[0].Ports[0].ActiveMTU, h.Netdevs[0].DCB = ptr(1500), ptr(1024), &topology.DCB{Trust: "pcp"}
		}), "rdma0", false},
		{"a rail that lost its address", sick(manyHCAs("n1", 3), 2), "give rdma2 an address", true},
	} {
		res := Compute(Input{Hosts: []topology.Host{tt.host}, Profile: load(t, "none"), Job: Job{UsesGPU: ptr(true)}})
		qos := Compute(Input{Hosts: []topology.Host{tt.host}, Profile: profiles.Profile{Fabric: profiles.Fabric{QoS: load(t, "roce-dscp26").Fabric.QoS}}})
		said := ""
		for _, f := range append(res.Findings, qos.Findings...) {
			if f.ID != "hca.two-fabrics" {
				said += fmt.Sprintf("%s %s %s %s %s\n", f.ID, f.Subject, f.Seen, f.Wanted, f.Hint)
			}
		}
		if strings.Contains(said, tt.about) != tt.says {
			t.Errorf("%s: %q is said: %v, want %v\n%s", tt.name, tt.about, !tt.says, tt.says, said)
		}
	}
}

// Two networks on one port are said where the default route is one of them; the
// other is then taken.
func TestTwoNetworksOnAPort(t *testing.T) {
	for _, tt := range []struct {
		name     string
		host     topology.Host
		subnets  []string
		severity string
		index    string
	}{
		{"a VLAN over the management interface", defaultRoute(withVLAN(cx4lx("n1", "10.1.4.1")), "ens1f0"), nil, "warning", "5"},
		{"a VLAN over an interface of the fabric", withVLAN(cx4lx("n1", "10.1.4.1")), nil, "note", "3"},
		{"the profile says which", defaultRoute(withVLAN(cx4lx("n1", "10.1.4.1")), "ens1f0"), []string{"10.1.4.0/24"}, "", "3"},
		{"one network", defaultRoute(cx4lx("n1", "10.1.4.1"), "ens1f0"), nil, "", "3"},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Profile: profiles.Profile{Fabric: profiles.Fabric{Subnets: tt.subnets}}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.18.3"}}}
		res := Compute(in)
		if got := findingIDs(res)["gid.two-networks"]; got != tt.severity {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.severity)
		}
		if v, _ := valueOf(res, 0, "NCCL_IB_GID_INDEX"); v != tt.index {
			t.Errorf("%s: index %s, want %s", tt.name, v, tt.index)
		}
	}
}

// A card in iWARP mode is told of its RoCE mode, one that has none is not.
func TestIWARPMode(t *testing.T) {
	mode := func(driver, node string) topology.Host {
		h := manyHCAs("n1", 1)
		h.HCAs[0].Driver, h.HCAs[0].NodeType = driver, node
		return h
	}
	for _, tt := range []struct {
		name string
		host topology.Host
		want string
	}{
		{"irdma in iWARP mode", mode("irdma", "RNIC"), "warning"},
		{"irdma in RoCE mode", mode("irdma", "CA"), ""},
		{"Chelsio, which has no other", mode("iw_cxgb4", "RNIC"), ""},
		{"eRDMA, which NCCL uses", mode("erdma", "RNIC"), ""},
		{"irdma in iWARP mode beside InfiniBand", joined(lid(noGPUs(infiniband("n1", 1))), change(mode("irdma", "RNIC"), func(h *topology.Host) { h.HCAs[0].Name = "iwp24s0f0" })), "note"},
	} {
		if got := findingIDs(Compute(Input{Hosts: []topology.Host{tt.host}}))["hca.iwarp-mode"]; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Tables that differ are an error for an NCCL that takes one index, nothing for
// one that chooses per port, and a warning with both ways out where it is not known.
func TestUnknownNCCLWithDifferentTables(t *testing.T) {
	for version, want := range map[string]string{"2.18.3": "gid.no-common error", "2.23.4": "", "": "gid.version-unknown warning"} {
		found := findingIDs(Compute(Input{Hosts: []topology.Host{twoVendors("n1")}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: version}}}))
		got := ""
		for _, id := range []string{"gid.no-common", "gid.version-unknown"} {
			if found[id] != "" {
				got += id + " " + found[id]
			}
		}
		if got != want {
			t.Errorf("NCCL %q: %q, want %q", version, got, want)
		}
	}
}

// A device that one host cannot open takes a rail from the job: an error. On a
// host by itself it may be what a container was meant to have.
func TestNodeMissingOnOneHost(t *testing.T) {
	all := []string{"uverbs0", "uverbs1", "uverbs2", "uverbs3"}
	whole, other := uverbs(manyHCAs("n1", 4), all...), uverbs(manyHCAs("n2", 4), all...)
	part := uverbs(manyHCAs("n3", 4), "uverbs0", "uverbs1", "uverbs3")
	severity := func(hosts ...topology.Host) string {
		for _, f := range Compute(Input{Hosts: hosts, Profile: load(t, "roce-dscp26")}).Findings {
			if f.ID == "hca.device-node" {
				return string(f.Severity) + " " + f.Host
			}
		}
		return ""
	}
	for want, hosts := range map[string][]topology.Host{"error n3": {whole, other, part}, "warning n3": {part}, "": {whole, other}} {
		if got := severity(hosts...); got != want {
			t.Errorf("%d hosts: %q, want %q", len(hosts), got, want)
		}
	}
}
