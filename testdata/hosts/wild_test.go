package hosts

import (
	"fmt"
	"strings"
)

// This file describes the machines that turn up in the wild, one function a case.

var (
	iceLake = cpu{
		vendor: "GenuineIntel", model: "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz", family: 6, modelID: 106,
		sockets: 2, cores: 8, threads: 1, nodes: 2, memGiB: 128,
	}
	milan = cpu{
		vendor: "AuthenticAMD", model: "AMD EPYC 7763 64-Core Processor", family: 25, modelID: 1,
		sockets: 2, cores: 16, threads: 1, nodes: 2, memGiB: 256,
	}
	grace = cpu{sockets: 2, cores: 12, threads: 1, nodes: 2, memGiB: 240, arm: true}
	guest = cpu{
		vendor: "GenuineIntel", model: "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", family: 6, modelID: 106,
		sockets: 1, cores: 16, threads: 1, nodes: 1, memGiB: 256, flags: " hypervisor",
	}
)

func server(name string, c cpu) *machine {
	m := newMachine(name, "6.8.0-41-generic", "Ubuntu 24.04.1 LTS", "Supermicro", "SYS-420GP-TNR")
	m.cpus(c)
	m.loopback()
	return m
}

// cx adds a ConnectX function with its netdev and HCA, up on RoCE.
type cx struct {
	parent, addr  string
	id            string
	numa          int
	name, netdev  string
	ipv4          string
	mbps          int
	rate          string
	speed         string
	width         int
	mtu           int
	driver        string
	fw, typ, psid string
}

func (m *machine) roce(c cx) string {
	if c.driver == "" {
		c.driver = "mlx5_core"
	}
	if c.id == "" {
		c.id = "15b3:101d"
		c.fw, c.typ, c.psid = "22.39.2048", "MT4125", "MT_0000000359"
	}
	if c.speed == "" {
		c.speed, c.width = "16.0", 16
	}
	if c.mbps == 0 {
		c.mbps, c.rate = 100000, "100 Gb/sec (4X EDR)"
	}
	if c.mtu == 0 {
		c.mtu = 9000
	}
	dir := m.pci(c.parent, fn{addr: c.addr, class: classEth, id: c.id, sub: "15b3:0001", numa: c.numa, driver: c.driver, speed: c.speed, width: c.width})
	ll := fmt.Sprintf("fe80::ba3f:d2ff:fe%02x:%x", len(m.dirs), m.index+1)
	var addrs []string
	if c.ipv4 != "" {
		addrs = []string{c.ipv4 + "/24", ll + "/64"}
	}
	m.netdev(nic{name: c.netdev, pci: c.addr, mtu: c.mtu, mbps: c.mbps, addrs: addrs})
	m.hca(hca{name: c.name, pci: c.addr, fw: c.fw, typ: c.typ, board: c.psid, desc: c.name, ports: []port{{
		state: active, phys: linkUp, rate: c.rate, layer: "Ethernet", gids: roceGIDs(c.netdev, ll, c.ipv4), zero: 252,
	}}})
	return dir
}

func (m *machine) gpuAt(parent, addr string, numa int) string {
	return m.pci(parent, fn{addr: addr, class: class3D, id: "10de:20b5", sub: "10de:1533", numa: numa, driver: "nvidia", speed: "16.0", width: 16})
}

// numaOff is a two-socket machine started with numa=off: −1 everywhere.
func numaOff() *machine {
	c := iceLake
	c.nodes = 1
	c.memGiB = 256
	m := server("numaoff", c)
	for i, root := range []string{"pci0000:17", "pci0000:b1"} {
		rp := m.rootPort(root, "02.0", -1, "16.0")
		bus := 0x18 + i*0x9a
		ds := m.pcieSwitch(rp, "0000", bus, -1, "16.0", 2)
		m.gpuAt(ds[0], fmt.Sprintf("0000:%02x:00.0", bus+2), -1)
		m.roce(cx{parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.0", bus+3), numa: -1, name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ens%df0np0", i+1), ipv4: fmt.Sprintf("10.10.%d.5", i)})
	}
	return m
}

// nps4 is a two-socket EPYC with four NUMA nodes a socket.
func nps4() *machine {
	c := milan
	c.nodes, c.memGiB = 8, 64
	m := server("nps4", c)
	for i, numa := range []int{3, 1, 7, 5} {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", 0x20*(i+1)), "01.1", numa, "16.0")
		m.gpuAt(rp, fmt.Sprintf("0000:%02x:00.0", 0x20*(i+1)+1), numa)
	}
	for i, numa := range []int{3, 6} {
		root := fmt.Sprintf("pci0000:%02x", 0x10+0x80*i)
		rp := m.rootPort(root, "03.1", numa, "16.0")
		m.roce(cx{parent: rp, addr: fmt.Sprintf("0000:%02x:00.0", 0x11+0x80*i), numa: numa, name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("enp%ds0np0", 0x11+0x80*i), ipv4: fmt.Sprintf("10.10.%d.6", i)})
	}
	return m
}

// domains has a PCI domain for each socket, and a VMD domain of 32 bits.
func domains() *machine {
	m := server("domains", iceLake)
	for d := range 2 {
		root := fmt.Sprintf("pci%04x:00", d)
		rp := m.rootPort(root, "02.0", d, "16.0")
		dom := fmt.Sprintf("%04x", d)
		ds := m.pcieSwitch(rp, dom, 1, d, "16.0", 2)
		m.gpuAt(ds[0], dom+":03:00.0", d)
		m.roce(cx{parent: ds[1], addr: dom + ":04:00.0", numa: d, name: fmt.Sprintf("mlx5_%d", d), netdev: fmt.Sprintf("enP%dp4s0np0", d), ipv4: fmt.Sprintf("10.10.%d.7", d)})
	}
	m.pci("pci10000:00", fn{addr: "10000:00:02.0", class: classBridge, id: "8086:2030", numa: 0, driver: "pcieport", speed: "8.0", width: 4})
	m.pci("10000:00:02.0", fn{addr: "10000:01:00.0", class: classNVMe, id: "8086:0a54", numa: 0, driver: "nvme", speed: "8.0", width: 4})
	return m
}

// vfBesidePF is a host with SR-IOV: a PF and two VFs.
func vfBesidePF() *machine {
	m := server("sriov", iceLake)
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	pf := m.roce(cx{parent: rp, addr: "0000:18:00.0", name: "mlx5_0", netdev: "ens1np0", ipv4: "10.10.0.8"})
	m.file(pf+"/sriov_numvfs", "2")
	for i := 1; i <= 2; i++ {
		addr := fmt.Sprintf("0000:18:00.%d", i)
		dir := m.roce(cx{parent: rp, addr: addr, id: "15b3:101e", fw: "22.39.2048", typ: "MT4126", psid: "MT_0000000359", name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ens1v%d", i-1), ipv4: fmt.Sprintf("10.10.0.%d", 8+i)})
		m.links[dir+"/physfn"] = "../0000:18:00.0"
		m.links[fmt.Sprintf("%s/virtfn%d", pf, i-1)] = "../" + addr
	}
	return m
}

// vfInVM is a guest that was given one VF and one GPU: no PF, no switches.
func vfInVM() *machine {
	m := newMachine("vm-vf", "6.8.0-41-generic", "Ubuntu 24.04.1 LTS", "QEMU", "Standard PC (Q35 + ICH9, 2009)")
	m.cpus(guest)
	m.loopback()
	m.pci("pci0000:00", fn{addr: "0000:00:02.0", class: classBridge, id: "1b36:000c", numa: -1, driver: "pcieport", speed: "16.0", width: 32})
	m.roce(cx{parent: "0000:00:02.0", addr: "0000:01:00.0", id: "15b3:101e", fw: "28.39.2048", typ: "MT4126", psid: "MT_0000000834", numa: -1, name: "mlx5_0", netdev: "enp1s0v0", ipv4: "10.10.0.20", mtu: 4200})
	m.pci("pci0000:00", fn{addr: "0000:00:03.0", class: classBridge, id: "1b36:000c", numa: -1, driver: "pcieport", speed: "16.0", width: 32})
	m.gpuAt("0000:00:03.0", "0000:02:00.0", -1)
	return m
}

// flatVM is a cloud's guest: eight GPUs and eight VFs, each alone in its domain.
func flatVM() *machine {
	m := newMachine("vm-flat", "6.5.0-1025-azure", "Ubuntu 22.04.4 LTS", "Microsoft Corporation", "Virtual Machine")
	c := guest
	c.cores, c.nodes, c.sockets, c.memGiB = 12, 2, 2, 450
	m.cpus(c)
	m.loopback()
	for i := range 8 {
		d := fmt.Sprintf("%04x", i+1)
		m.gpuAt("pci"+d+":00", d+":00:00.0", i/4)
		nd := fmt.Sprintf("%04x", 0x101+i)
		m.pci("pci"+nd+":00", fn{addr: nd + ":00:00.0", class: classIB, id: "15b3:101e", sub: "15b3:0001", numa: i / 4, driver: "mlx5_core", speed: "32.0", width: 16})
		m.netdev(nic{name: fmt.Sprintf("ib%d", i), pci: nd + ":00:00.0", mtu: 2044, mbps: 400000, typ: 32, addrs: []string{fmt.Sprintf("172.16.1.%d/16", i+1)}})
		m.hca(hca{name: fmt.Sprintf("mlx5_ib%d", i), pci: nd + ":00:00.0", fw: "28.41.1000", typ: "MT4126", board: "MT_0000000838", desc: "vm-flat", ports: []port{{
			state: active, phys: linkUp, rate: "400 Gb/sec (4X NDR)", layer: "InfiniBand", lid: fmt.Sprintf("0x%x", 0x200+i), smlid: "0x1",
			gids: []gid{{addr: fmt.Sprintf("fe80::15:5dff:fd33:ff%02x", i)}}, zero: 7,
		}}})
	}
	m.netdev(nic{name: "eth0", mtu: 1500, mbps: 80000, addrs: []string{"10.0.0.4/24"}})
	return m
}

// bonds has RoCE LAG, and VLANs on top of it.
func bonds() *machine {
	m := server("bonds", iceLake)
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	for f := range 2 {
		addr := fmt.Sprintf("0000:18:00.%d", f)
		m.pci(rp, fn{addr: addr, class: classEth, id: "15b3:101d", sub: "15b3:0083", driver: "mlx5_core", speed: "16.0", width: 16})
		dir := m.netdev(nic{name: fmt.Sprintf("ens1f%dnp%d", f, f), pci: addr, mtu: 9000, mbps: 100000, phys: fmt.Sprintf("p%d", f)})
		m.links[dir+"/master"] = "../../../../../virtual/net/bond0"
	}
	dir := m.netdev(nic{name: "bond0", mtu: 9000, mbps: 200000, kind: "bond", addrs: []string{"10.10.0.9/24", "fe80::ba3f:d2ff:fe99:1/64"}})
	m.file(dir+"/bonding/slaves", "ens1f0np0 ens1f1np1")
	m.file(dir+"/bonding/mode", "802.3ad 4")
	m.file(dir+"/bonding/ad_num_ports", "2")
	m.netdev(nic{name: "bond0.100", mtu: 9000, mbps: 200000, kind: "vlan", addrs: []string{"10.100.0.9/24"}})
	m.links["sys/devices/virtual/net/bond0.100/lower_bond0"] = "../bond0"
	m.file("proc/net/vlan/config", "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\nbond0.100      | 100  | bond0")
	gids := append(roceGIDs("bond0", "fe80::ba3f:d2ff:fe99:1", "10.10.0.9"), roceGIDs("bond0.100", "fe80::ba3f:d2ff:fe99:1", "10.100.0.9")...)
	m.hca(hca{name: "mlx5_bond_0", pci: "0000:18:00.0", fw: "22.39.2048", typ: "MT4125", board: "MT_0000000359", desc: "bonds", ports: []port{{
		state: active, phys: linkUp, rate: "100 Gb/sec (4X EDR)", layer: "Ethernet", gids: gids, zero: 248,
	}}})
	return m
}

// names has every kind of RDMA device that a Linux host shows, under the names
// that drivers and udev give.
func names() *machine {
	m := server("names", iceLake)
	devs := []struct {
		name, netdev, id, driver, fw, typ, rate string
		mbps                                    int
	}{
		{"rocep24s0f0", "enp24s0f0np0", "15b3:1017", "mlx5_core", "16.35.2000", "MT4119", "100 Gb/sec (4X EDR)", 100000},
		{"bnxt_re0", "enp25s0f0np0", "14e4:1750", "bnxt_en", "218.0.219.13", "", "100 Gb/sec (4X EDR)", 100000},
		{"irdma0", "enp26s0f0", "8086:1592", "ice", "1.60", "", "100 Gb/sec (4X EDR)", 100000},
		{"rdma0", "enp27s0f0", "1dd8:1002", "ionic", "1.117.1-a-45", "", "400 Gb/sec (4X NDR)", 400000},
	}
	for i, d := range devs {
		rp := m.rootPort("pci0000:17", fmt.Sprintf("0%d.0", i+1), 0, "16.0")
		c := cx{parent: rp, addr: fmt.Sprintf("0000:%02x:00.0", 0x18+i), id: d.id, driver: d.driver, fw: d.fw, typ: d.typ, name: d.name, netdev: d.netdev, mbps: d.mbps, rate: d.rate, ipv4: fmt.Sprintf("10.10.%d.10", i)}
		if d.typ != "" {
			c.psid = "MT_0000000012"
		}
		m.roce(c)
	}
	rp := m.rootPort("pci0000:30", "01.0", 1, "16.0")
	m.pci(rp, fn{addr: "0000:31:00.0", class: classIB, id: "15b3:101b", sub: "15b3:0001", numa: 1, driver: "mlx5_core", speed: "16.0", width: 16})
	m.netdev(nic{name: "ibp49s0", pci: "0000:31:00.0", mtu: 2044, mbps: 200000, typ: 32})
	m.hca(hca{name: "ibp49s0", pci: "0000:31:00.0", fw: "20.39.2048", typ: "MT4123", board: "MT_0000000223", desc: "names", ports: []port{{
		state: active, phys: linkUp, rate: "200 Gb/sec (4X HDR)", layer: "InfiniBand", lid: "0x11", smlid: "0x1", gids: []gid{{addr: "fe80::b83f:d203:1:2"}},
	}}})
	m.pci("pci0000:60", fn{addr: "0000:60:1b.0", class: classEth, id: "1d0f:efa1", sub: "1d0f:efa1", numa: 1, driver: "efa"})
	m.hca(hca{name: "efa_0", pci: "0000:60:1b.0", fw: "0.0.0.0", node: "8: unspecified", desc: "efa", ports: []port{{
		state: active, phys: linkUp, rate: "100 Gb/sec (4X EDR)", layer: "Unspecified", gids: []gid{{addr: "fe80::c5c:ff:fe7e:5c1f"}},
	}}})
	m.pci("pci0000:60", fn{addr: "0000:60:05.0", class: classEth, id: "1d0f:ec20", sub: "1d0f:ec20", numa: 1, driver: "ena"})
	m.netdev(nic{name: "eno1", pci: "0000:60:05.0", mtu: 1500, mbps: 25000, addrs: []string{"10.1.4.10/24", "fe80::ba3f:d2ff:fe77:1/64"}})
	m.hca(hca{name: "rxe_0", node: "1: CA", desc: "rxe", parent: "eno1", ports: []port{{
		state: active, phys: linkUp, rate: "2.5 Gb/sec (1X SDR)", layer: "Ethernet", gids: roceGIDs("eno1", "fe80::ba3f:d2ff:fe77:1", "10.1.4.10"), zero: 1020,
	}}})
	return m
}

// dataDirect is a ConnectX-8 whose second PCI function sits beside the GPU.
func dataDirect() *machine {
	m := server("cx8", sapphireRapids2())
	rp := m.rootPort("pci0000:15", "01.0", 0, "64.0")
	m.roce(cx{parent: rp, addr: "0000:16:00.0", id: "15b3:1023", fw: "40.45.1020", typ: "MT4131", psid: "MT_0000001222", name: "mlx5_0", netdev: "ens1np0", ipv4: "10.10.0.11", speed: "64.0", width: 16, mbps: 800000, rate: "800 Gb/sec (4X XDR)"})
	gp := m.rootPort("pci0000:3a", "01.0", 0, "64.0")
	ds := m.pcieSwitch(gp, "0000", 0x3b, 0, "64.0", 2)
	m.pci(ds[0], fn{addr: "0000:3d:00.0", class: class3D, id: "10de:3182", sub: "10de:0001", numa: 0, driver: "nvidia", speed: "64.0", width: 16})
	m.pci(ds[1], fn{addr: "0000:3e:00.0", class: classDMA, id: "15b3:2100", sub: "15b3:0001", numa: 0, driver: "mlx5_data_direct", speed: "64.0", width: 16})
	return m
}

func sapphireRapids2() cpu {
	c := sapphireRapids
	c.cores, c.threads = 8, 1
	return c
}

// gpusHidden is a container that was given two of eight GPUs.
func gpusHidden() *machine {
	m := server("gpu02", sapphireRapids2())
	var nvml strings.Builder
	nvml.WriteString("driver 550.90.07\n")
	for i := range 8 {
		root := fmt.Sprintf("pci0000:%02x", 0x10+i*0x1c)
		bus := 0x11 + i*0x1c
		rp := m.rootPort(root, "01.0", i/4, "32.0")
		ds := m.pcieSwitch(rp, "0000", bus, i/4, "32.0", 2)
		gpu := fmt.Sprintf("0000:%02x:00.0", bus+2)
		m.gpuAt(ds[0], gpu, i/4)
		m.file("proc/driver/nvidia/gpus/"+gpu+"/information", fmt.Sprintf("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 100\nGPU UUID: \t GPU-0a0b0c0d-0000-4000-8000-00000000000%d\nDevice Minor: \t %d", i, i))
		m.roce(cx{parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.0", bus+3), numa: i / 4, name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("eth%d", i+1), ipv4: fmt.Sprintf("10.10.%d.12", i)})
	}
	m.facts["fabrun/container"] = &strings.Builder{}
	m.fact("fabrun/container", "docker .dockerenv")
	m.fact("fabrun/devices", "dev/nvidiactl rw\ndev/nvidia4 rw\ndev/nvidia5 rw\ndev/infiniband/uverbs4 rw\ndev/infiniband/rdma_cm rw")
	m.fact("fabrun/modules", "mlx5_core -\nmlx5_ib -\nnvidia 550.90.07")
	m.fact("fabrun/env", "CUDA_VISIBLE_DEVICES=GPU-0a0b0c0d-0000-4000-8000-000000000005")
	return m
}

// graceHopper has GPUs on the coherent link of their CPU.
func graceHopper() *machine {
	m := newMachine("gh01", "6.8.0-1013-nvidia-64k", "Ubuntu 24.04.1 LTS", "Supermicro", "ARS-121L-DNR")
	m.cpus(grace)
	m.loopback()
	var nvml strings.Builder
	nvml.WriteString("driver 560.35.03")
	for i := range 2 {
		gd := fmt.Sprintf("%04x", 9+i*0x10)
		rp := m.rootPort("pci"+gd+":00", "00.0", i, "32.0")
		m.pci(rp, fn{addr: gd + ":01:00.0", class: class3D, id: "10de:2342", sub: "10de:16eb", numa: i, driver: "nvidia", speed: "32.0", width: 16})
		nd := fmt.Sprintf("%04x", i*0x10)
		np := m.rootPort("pci"+nd+":00", "00.0", i, "32.0")
		m.roce(cx{parent: np, addr: nd + ":01:00.0", id: "15b3:1021", fw: "28.41.1000", typ: "MT4129", psid: "MT_0000000838", numa: i, name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("enP%dp1s0np0", i*16), ipv4: fmt.Sprintf("10.10.%d.13", i), speed: "32.0", mbps: 400000, rate: "400 Gb/sec (4X NDR)", width: 16})
		fmt.Fprintf(&nvml, "\ngpu %s:01:00.0 name NVIDIA GH200 480GB\ngpu %s:01:00.0 link c2c cpu 10 -", gd, gd)
	}
	m.fact("fabrun/nvml", nvml.String())
	return m
}

// amdXGMI has four MI300X in a ring of xGMI, with two of them hidden by ROCR.
func amdXGMI() *machine {
	m := server("mi300", milan)
	for i := range 4 {
		numa := i / 2
		bus := 0x05 + i*0x40
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", bus-1), "01.1", numa, "32.0")
		ds := m.pcieSwitch(rp, "0000", bus, numa, "32.0", 2)
		m.pci(ds[0], fn{addr: fmt.Sprintf("0000:%02x:00.0", bus+2), class: classAccel, id: "1002:74a1", sub: "1002:74a1", numa: numa, driver: "amdgpu", speed: "32.0", width: 16})
		m.roce(cx{parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.0", bus+3), numa: numa, id: "14e4:1760", driver: "bnxt_en", fw: "231.2.63.0", name: fmt.Sprintf("bnxt_re%d", i), netdev: fmt.Sprintf("benic%dp1", i+1), ipv4: fmt.Sprintf("10.10.%d.14", i), mbps: 400000, rate: "400 Gb/sec (4X NDR)", speed: "32.0", width: 16})
		node := fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d", i+2)
		m.file(node+"/properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nlocation_id %d\ndomain 0\nunique_id %d", (bus+2)<<8, i+1))
		k := 0
		for j := range 4 {
			if j != i {
				m.file(fmt.Sprintf("%s/io_links/%d/properties", node, k), fmt.Sprintf("type 11\nnode_from %d\nnode_to %d\nweight 15", i+2, j+2))
				k++
			}
		}
	}
	m.file("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 16\nsimd_count 0\nlocation_id 0\ndomain 0")
	m.fact("fabrun/env", "HIP_VISIBLE_DEVICES=1\nROCR_VISIBLE_DEVICES=2,3")
	return m
}

// slingshot is an HPE Cray EX node.
func slingshot() *machine {
	m := newMachine("nid001000", "5.14.21-150500.55.49_13.0.56-cray_shasta_c", "SUSE Linux Enterprise Server 15 SP5", "HPE", "HPE_CRAY_EX235A")
	m.cpus(milan)
	m.loopback()
	for i := range 2 {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", 0xc0+i*0x10), "01.1", i, "16.0")
		addr := fmt.Sprintf("0000:%02x:00.0", 0xc1+i*0x10)
		dir := m.pci(rp, fn{addr: addr, class: classEth, id: "17db:0501", sub: "17db:0501", numa: i, driver: "cxi_ss1", speed: "16.0", width: 16})
		m.netdev(nic{name: fmt.Sprintf("hsn%d", i), pci: addr, mtu: 9000, mbps: 200000, addrs: []string{fmt.Sprintf("10.253.0.%d/16", i+1)}})
		m.links[fmt.Sprintf("sys/class/cxi/cxi%d", i)] = "../../" + strings.TrimPrefix(dir, "sys/") + fmt.Sprintf("/cxi/cxi%d", i)
		m.links[dir+fmt.Sprintf("/cxi/cxi%d/device", i)] = "../../../" + addr
	}
	return m
}

// noGPU, noHCA and neither are what their names say.
func noGPU() *machine {
	m := server("cpu01", iceLake)
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	m.roce(cx{parent: rp, addr: "0000:18:00.0", name: "mlx5_0", netdev: "ens1np0", ipv4: "10.10.0.15"})
	m.pci("pci0000:00", fn{addr: "0000:00:1f.0", class: classVGA, id: "1a03:2000", numa: 0, driver: "ast"})
	return m
}

func noHCA() *machine {
	m := server("gpuonly", iceLake)
	for i := range 2 {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", 0x17+i*0x9a), "02.0", i, "16.0")
		m.gpuAt(rp, fmt.Sprintf("0000:%02x:00.0", 0x18+i*0x9a), i)
	}
	rp := m.rootPort("pci0000:00", "1c.0", 0, "5.0")
	m.pci(rp, fn{addr: "0000:02:00.0", class: classEth, id: "8086:1521", sub: "15d9:1521", driver: "igb", speed: "5.0", width: 4})
	m.netdev(nic{name: "eno1", pci: "0000:02:00.0", mtu: 1500, mbps: 1000, addrs: []string{"192.168.4.16/24"}})
	return m
}

func neither() *machine {
	m := server("plain", iceLake)
	m.netdev(nic{name: "docker0", mtu: 1500, kind: "bridge", noCarrier: true, addrs: []string{"172.17.0.1/16"}})
	m.netdev(nic{name: "eth0", mtu: 1500, mbps: 10000, addrs: []string{"192.168.4.17/24"}})
	return m
}

// infiniband is an ordinary IB host; initNoSM has no subnet manager.
// podBare is a pod on a healthy host that was given a GPU and nothing of RDMA:
// sysfs shows the HCA, /dev/infiniband is not there, and the limits are the node's.
func podBare() *machine {
	m := server("trainer-0", iceLake)
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	ds := m.pcieSwitch(rp, "0000", 0x18, 0, "16.0", 2)
	m.gpuAt(ds[0], "0000:1a:00.0", 0)
	m.roce(cx{parent: ds[1], addr: "0000:1b:00.0", name: "mlx5_0", netdev: "ens1np0", ipv4: "10.10.0.16"})
	delete(m.facts, "fabrun/container")
	m.fact("fabrun/container", "kubernetes /var/run/secrets/kubernetes.io is there")
	delete(m.facts, "fabrun/limits")
	m.fact("fabrun/limits", "memlock 8388608 8388608\nnofile 1048576 1048576\nshm 67108864 67108864\npids-max max")
	m.fact("fabrun/devices", "dev/nvidiactl rw\ndev/nvidia0 rw")
	m.fact("fabrun/modules", "ib_uverbs -\nmlx5_core -\nmlx5_ib -\nnvidia 550.90.07\nrdma_ucm -")
	return m
}

func infiniband() *machine { return ibHost("ib01", active, "0x1") }

func initNoSM() *machine { return ibHost("ib02", initState, "0x0") }

func ibHost(name, state, sm string) *machine {
	m := server(name, iceLake)
	for i := range 2 {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", 0x17+i*0x9a), "02.0", i, "16.0")
		addr := fmt.Sprintf("0000:%02x:00.0", 0x18+i*0x9a)
		m.pci(rp, fn{addr: addr, class: classIB, id: "15b3:101b", sub: "15b3:0001", numa: i, driver: "mlx5_core", speed: "16.0", width: 16})
		m.netdev(nic{name: fmt.Sprintf("ib%d", i), pci: addr, mtu: 2044, mbps: 200000, typ: 32, addrs: []string{fmt.Sprintf("10.3.0.%d/24", i+1)}})
		lid := "0x0"
		if sm != "0x0" {
			lid = fmt.Sprintf("0x%x", 0x21+i)
		}
		m.hca(hca{name: fmt.Sprintf("mlx5_%d", i), pci: addr, fw: "20.39.2048", typ: "MT4123", board: "MT_0000000223", desc: name, ports: []port{{
			state: state, phys: linkUp, rate: "200 Gb/sec (4X HDR)", layer: "InfiniBand", lid: lid, smlid: sm,
			gids: []gid{{addr: fmt.Sprintf("fe80::b83f:d203:0:%d", i+1)}},
		}}})
	}
	return m
}

// farRails has four GPUs on one socket and the rails on the other; one rail's
// card came up at half its width.
func farRails() *machine {
	m := server("far", iceLake)
	rp := m.rootPort("pci0000:b1", "02.0", 1, "16.0")
	ds := m.pcieSwitch(rp, "0000", 0xb2, 1, "16.0", 4)
	for i := range 4 {
		m.gpuAt(ds[i], fmt.Sprintf("0000:%02x:00.0", 0xb4+i), 1)
	}
	for i := range 2 {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", 0x17+i*0x10), "02.0", 0, "16.0")
		addr := fmt.Sprintf("0000:%02x:00.0", 0x18+i*0x10)
		dir := m.roce(cx{parent: rp, addr: addr, numa: 0, name: fmt.Sprintf("mlx5_%d", i), netdev: fmt.Sprintf("ens%dnp0", i+1), ipv4: fmt.Sprintf("10.10.%d.18", i)})
		if i == 1 {
			m.file(dir+"/current_link_width", "8")
		}
	}
	return m
}

// pexSwitch is a Broadcom PEX chip that shows as two levels of switch.
func pexSwitch() *machine {
	m := server("pex", milan)
	rp := m.rootPort("pci0000:20", "01.1", 0, "16.0")
	pex := func(parent, addr string) string {
		m.pci(parent, fn{addr: addr, class: classBridge, id: "1000:c010", sub: "1000:a032", numa: 0, driver: "pcieport", speed: "16.0", width: 16})
		return addr
	}
	top := pex(rp, "0000:21:00.0")
	for i := range 2 {
		down := pex(top, fmt.Sprintf("0000:22:%02x.0", i))
		bus := 0x23 + i*8
		child := pex(down, fmt.Sprintf("0000:%02x:00.0", bus))
		leaf := pex(child, fmt.Sprintf("0000:%02x:00.0", bus+1))
		if i == 0 {
			m.gpuAt(leaf, fmt.Sprintf("0000:%02x:00.0", bus+2), 0)
		} else {
			m.roce(cx{parent: leaf, addr: fmt.Sprintf("0000:%02x:00.0", bus+2), numa: 0, name: "mlx5_0", netdev: "ens1np0", ipv4: "10.10.0.19"})
		}
	}
	return m
}
