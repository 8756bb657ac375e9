package hosts

import (
	"fmt"
	"net/netip"
	"strings"
)

// This file describes kinds of machines that whole clusters are made of, with
// the cards in the slots where their makers put them or where others did.

// part is a kind of network card.
type part struct {
	id, typ, psid, driver string
	gbps                  int
}

var (
	cx4lx25   = part{"15b3:1015", "MT4117", "MT_2420110034", "mlx5_core", 25}
	cx6hdr    = part{"15b3:101b", "MT4123", "MT_0000000223", "mlx5_core", 200}
	cx6vpi    = part{"15b3:101b", "MT4123", "MT_0000000594", "mlx5_core", 200}
	cx6dx     = part{"15b3:101d", "MT4125", "MT_0000000359", "mlx5_core", 100}
	cx7ndr    = part{"15b3:1021", "MT4129", "MT_0000000838", "mlx5_core", 400}
	cx7dual   = part{"15b3:1021", "MT4129", "MT_0000000891", "mlx5_core", 200}
	cx7spark  = part{"15b3:1021", "MT4129", "NVD0000000087", "mlx5_core", 200}
	cx8       = part{"15b3:1023", "MT4131", "MT_0000001222", "mlx5_core", 800}
	bf3       = part{"15b3:a2dc", "MT41692", "MT_0000000884", "mlx5_core", 400}
	bf3small  = part{"15b3:a2dc", "MT41692", "MT_0000001011", "mlx5_core", 200}
	thor2     = part{"14e4:1760", "", "", "bnxt_en", 400}
	pollara   = part{"1dd8:1002", "", "", "ionic", 400}
	accelNet  = part{"15b3:1016", "MT4118", "MSF0010110035", "mlx5_core", 50}
	rateWords = map[int]string{25: "25 Gb/sec (1X EDR)", 50: "50 Gb/sec (1X HDR)", 100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}
)

// card is one function of a card in a slot.
type card struct {
	part
	parent, addr string
	numa         int
	name, netdev string
	ip           string // with its length: "10.10.0.1/24"; "" none
	mtu          int    // 0: 9000
	ib           bool
	lid          int
	prefix       string // of the InfiniBand subnet; "": the default one
	down         bool
	gateway      bool // it has the default route
}

// put plugs a card in, with its netdev and its device.
func (m *machine) put(c card) string {
	class, speed := classEth, map[bool]string{true: "32.0", false: "16.0"}[c.gbps >= 400]
	if c.ib {
		class = classIB
	}
	dir := m.pci(c.parent, fn{addr: c.addr, class: class, id: c.id, sub: "15b3:0001", numa: c.numa, driver: c.driver, speed: speed, width: 16})
	if c.mtu == 0 {
		c.mtu = 9000
	}
	ll := fmt.Sprintf("fe80::5aa2:e1ff:fe%02x:%x", len(m.dirs)&0xff, m.index+1)
	n := nic{name: c.netdev, pci: c.addr, mtu: c.mtu, mbps: c.gbps * 1000, noCarrier: c.down}
	p := port{state: active, phys: linkUp, rate: rateWords[c.gbps], layer: "Ethernet"}
	if c.down {
		n.mbps, p.state, p.phys, p.rate = 0, down, polling, "40 Gb/sec (4X QDR)"
	}
	if c.ip != "" {
		n.addrs = []string{c.ip}
	}
	ip, _, _ := strings.Cut(c.ip, "/")
	if c.ib {
		n.typ, n.mtu, p.layer = 32, 2044, "InfiniBand"
		prefix := "fe80::"
		if c.prefix != "" {
			prefix = c.prefix
		}
		p.gids = []gid{{addr: fmt.Sprintf("%s5aa2:e103:%x:%x", prefix, len(m.dirs), m.index+1)}}
		if c.lid > 0 {
			p.lid, p.smlid = fmt.Sprintf("0x%x", c.lid), "0x1"
		}
	} else {
		if !c.down {
			n.addrs = append(n.addrs, ll+"/64")
		}
		p.gids, p.zero = roceGIDs(c.netdev, ll, ip), 252
		if c.down {
			p.gids, p.zero = nil, 256
		}
	}
	m.netdev(n)
	if c.gateway {
		pre := netip.MustParsePrefix(c.ip)
		m.fact("fabrun/routes", fmt.Sprintf("0.0.0.0/0 dev %s via %s table 254 metric 100 src %s", c.netdev, pre.Masked().Addr().Next(), ip))
	}
	fw := map[string]string{"mlx5_core": "28.41.1000", "bnxt_en": "231.2.63.0", "ionic": "1.117.1-a-45"}[c.driver]
	m.hca(hca{name: c.name, pci: c.addr, fw: fw, typ: c.typ, board: c.psid, desc: c.name, ports: []port{p}})
	return dir
}

// onboard is a management interface that is no RDMA device.
func (m *machine) onboard(name, addr string) {
	m.netdev(nic{name: name, mtu: 1500, mbps: 10000, addrs: []string{addr}})
	pre := netip.MustParsePrefix(addr)
	m.fact("fabrun/routes", fmt.Sprintf("0.0.0.0/0 dev %s via %s table 254 metric 100", name, pre.Masked().Addr().Next()))
}

// gpus says what NVML says of GPUs that all hang on NVSwitches.
func (m *machine) gpus(name, capability string, addrs ...string) {
	m.fact("fabrun/nvml", "driver 570.124.06\ncuda 12.8")
	for _, a := range addrs {
		m.fact("fabrun/nvml", fmt.Sprintf("gpu %s name %s\ngpu %s capability %s\ngpu %s link nvlink - 18 0x068000", a, name, a, capability, a))
	}
	m.fact("fabrun/peermem", "nvidia-peermem yes module nvidia_peermem\ngdrcopy no\nkfd no")
	m.fact("fabrun/iommu", "groups 0\ncmdline iommu=off")
}

func (m *machine) libraries(lines ...string) {
	for _, l := range lines {
		m.fact("fabrun/software", strings.ReplaceAll(l, " ", "\t")+"\t-\t-")
	}
}

func fleet(name string, c cpu, vendor, product string) *machine {
	m := newMachine(name, "6.8.0-60-generic", "Ubuntu 24.04.2 LTS", vendor, product)
	m.cpus(c)
	m.loopback()
	return m
}

// leaves makes a root port with a switch below it and returns the slots.
func (m *machine) leaves(root int, numa, n int) []string {
	rp := m.rootPort(fmt.Sprintf("pci0000:%02x", root), "01.0", numa, "32.0")
	return m.pcieSwitch(rp, "0000", root+1, numa, "32.0", n)
}

// dgxA100: four switches with two GPUs and two HDR cards each; a dual-port card
// of the same chip for storage on a root port of its own, both ports InfiniBand.
func dgxA100() *machine {
	c := milan
	c.nodes, c.memGiB = 8, 128
	m := fleet("dgxa100", c, "NVIDIA", "DGXA100 920-23687-2530-000")
	var gpus []string
	rail := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9"}
	for s, numa := range []int{3, 1, 7, 5} {
		root := 0x40 * (s + 0)
		if s == 0 {
			root = 0x08
		}
		ds := m.leaves(root, numa, 4)
		for k := range 2 {
			gpu := fmt.Sprintf("0000:%02x:00.0", root+3+k)
			m.pci(ds[k], fn{addr: gpu, class: class3D, id: "10de:20b2", sub: "10de:1463", numa: numa, driver: "nvidia", speed: "16.0", width: 16})
			gpus = append(gpus, gpu)
			i := 2*s + k
			m.put(card{part: cx6hdr, parent: ds[2+k], addr: fmt.Sprintf("0000:%02x:00.0", root+5+k), numa: numa, name: rail[i], netdev: fmt.Sprintf("ib%d", i), ib: true, lid: 0x30 + i, ip: fmt.Sprintf("172.16.%d.1/24", i)})
		}
	}
	rp := m.rootPort("pci0000:60", "03.1", 2, "16.0")
	for f := range 2 {
		m.put(card{part: cx6vpi, parent: rp, addr: fmt.Sprintf("0000:61:00.%d", f), numa: 2, name: fmt.Sprintf("mlx5_%d", 4+f), netdev: fmt.Sprintf("ibs%d", f), ib: true, lid: 0x70 + f, ip: fmt.Sprintf("172.18.%d.1/24", f)})
	}
	m.onboard("enp226s0", "10.2.0.11/22")
	m.gpus("NVIDIA A100-SXM4-80GB", "8.0", gpus...)
	m.libraries("nccl 2.20.5 usr/lib/x86_64-linux-gnu/libnccl.so.2", "openmpi 4.1.5 opt/hpcx/ompi/bin/mpirun", "ucx 1.16.0 opt/hpcx/ucx/lib/libucp.so.0")
	return m
}

// dgxB200: eight NDR ports under the names that udev gives, beside a GPU each; two
// BlueField-3 of the same rate for storage, one of whose ports has the default
// route.
func dgxB200() *machine {
	m := fleet("dgxb200", sapphireRapids2(), "NVIDIA", "DGXB200")
	var gpus []string
	for i, root := range []int{0x15, 0x2a, 0x3a, 0x4b, 0x85, 0x97, 0xb5, 0xc8} {
		ds := m.leaves(root, i/4, 2)
		gpu := fmt.Sprintf("0000:%02x:00.0", root+4)
		m.pci(ds[1], fn{addr: gpu, class: class3D, id: "10de:2901", sub: "10de:1999", numa: i / 4, driver: "nvidia", speed: "32.0", width: 16})
		gpus = append(gpus, gpu)
		m.put(card{part: cx7ndr, parent: ds[0], addr: fmt.Sprintf("0000:%02x:00.0", root+3), numa: i / 4, name: fmt.Sprintf("ibp%ds0", root+3), netdev: fmt.Sprintf("ibp%ds0", root+3), ib: true, lid: 0x100 + i})
	}
	for k, root := range []int{0x70, 0xe0} {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", root), "01.0", k, "32.0")
		for f := range 2 {
			m.put(card{part: bf3, parent: rp, addr: fmt.Sprintf("0000:%02x:00.%d", root+1, f), numa: k, name: fmt.Sprintf("rocep%ds0f%d", root+1, f), netdev: fmt.Sprintf("enp%ds0f%dnp%d", root+1, f, f), ip: fmt.Sprintf("10.%d.0.21/16", 20+2*k+f), gateway: k == 0 && f == 0})
		}
	}
	m.gpus("NVIDIA B200", "10.0", gpus...)
	m.libraries("nccl 2.26.2 usr/lib/x86_64-linux-gnu/libnccl.so.2", "ucx 1.19.0 opt/hpcx/ucx/lib/libucp.so.0")
	return m
}

// hgxSharedSwitch: each of four switches has two GPUs with a 400G rail each, and
// the first two have a dual-port storage card as well.
func hgxSharedSwitch() *machine {
	m := fleet("hgx-shared", sapphireRapids2(), "Supermicro", "SYS-821GE-TNHR")
	var gpus []string
	for s, root := range []int{0x10, 0x40, 0x90, 0xc0} {
		ds := m.leaves(root, s/2, 5)
		for k := range 2 {
			gpu := fmt.Sprintf("0000:%02x:00.0", root+3+k)
			m.pci(ds[k], fn{addr: gpu, class: class3D, id: "10de:2330", sub: "10de:16c1", numa: s / 2, driver: "nvidia", speed: "32.0", width: 16})
			gpus = append(gpus, gpu)
			m.put(card{part: cx7ndr, parent: ds[2+k], addr: fmt.Sprintf("0000:%02x:00.0", root+5+k), numa: s / 2, name: fmt.Sprintf("mlx5_%d", 2*s+k), netdev: fmt.Sprintf("gpu%d", 2*s+k), ip: fmt.Sprintf("10.30.%d.7/24", 2*s+k)})
		}
		if s < 2 {
			for f := range 2 {
				m.put(card{part: cx7dual, parent: ds[4], addr: fmt.Sprintf("0000:%02x:00.%d", root+7, f), numa: 0, name: fmt.Sprintf("mlx5_%d", 8+2*s+f), netdev: fmt.Sprintf("stor%d", 2*s+f), ip: fmt.Sprintf("10.60.%d.7/24", 2*s+f)})
			}
		}
	}
	m.onboard("eno1np0", "10.1.0.7/24")
	m.gpus("NVIDIA H100 80GB HBM3", "9.0", gpus...)
	m.libraries("nccl 2.23.4 usr/lib/x86_64-linux-gnu/libnccl.so.2", "ucx 1.18.0 usr/lib/libucp.so.0")
	return m
}

// hgxTwinStorage: eight 400G rails beside GPUs and two more of the same card, for
// storage, on root ports; a management port of another.
func hgxTwinStorage() *machine {
	m := fleet("hgx-twin", sapphireRapids2(), "Dell Inc.", "PowerEdge XE9680")
	var gpus []string
	for i, root := range []int{0x10, 0x20, 0x30, 0x40, 0x90, 0xa0, 0xb0, 0xc0} {
		ds := m.leaves(root, i/4, 2)
		gpu := fmt.Sprintf("0000:%02x:00.0", root+3)
		m.pci(ds[0], fn{addr: gpu, class: class3D, id: "10de:2335", sub: "10de:18be", numa: i / 4, driver: "nvidia", speed: "32.0", width: 16})
		gpus = append(gpus, gpu)
		m.put(card{part: bf3, parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.0", root+4), numa: i / 4, name: fmt.Sprintf("rocep%ds0", root+4), netdev: fmt.Sprintf("ens%dnp0", 11+i), ip: fmt.Sprintf("10.%d.1.9/24", 100+i)})
	}
	for k, root := range []int{0x70, 0xe0} {
		rp := m.rootPort(fmt.Sprintf("pci0000:%02x", root), "01.0", k, "32.0")
		m.put(card{part: bf3, parent: rp, addr: fmt.Sprintf("0000:%02x:00.0", root+1), numa: k, name: fmt.Sprintf("rocep%ds0", root+1), netdev: fmt.Sprintf("ens%dnp0", 3+k), ip: fmt.Sprintf("10.9.%d.9/24", k)})
	}
	rp := m.rootPort("pci0000:80", "01.0", 1, "8.0")
	m.put(card{part: cx6dx, parent: rp, addr: "0000:81:00.0", numa: 1, name: "rocep129s0f0", netdev: "eno12399np0", ip: "10.1.0.9/24", mtu: 1500, gateway: true})
	m.put(card{part: cx6dx, parent: rp, addr: "0000:81:00.1", numa: 1, name: "rocep129s0f1", netdev: "eno12409np1", down: true})
	m.gpus("NVIDIA H200", "9.0", gpus...)
	m.libraries("nccl 2.27.5 usr/lib/x86_64-linux-gnu/libnccl.so.2", "ucx 1.20.1 usr/lib/libucp.so.0")
	return m
}

// azureHB is a CPU guest: one InfiniBand VF, and accelerated networking below
// eth0, whose VF is an RDMA device too.
func azureHB() *machine {
	m := fleet("azure-hb", milan, "Microsoft Corporation", "Virtual Machine")
	m.file("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77")
	m.put(card{part: part{"15b3:101e", "MT4126", "MT_0000000838", "mlx5_core", 400}, parent: "pci0101:00", addr: "0101:00:00.0", numa: 0, name: "mlx5_ib0", netdev: "ib0", ib: true, lid: 0x4a1, ip: "172.16.1.35/16"})
	dir := m.put(card{part: accelNet, parent: "pci9d2b:00", addr: "9d2b:00:02.0", numa: 0, name: "mlx5_an0", netdev: "enP40235s1", mtu: 1500})
	m.links[dir+"/net/enP40235s1/master"] = "../../../../../virtual/net/eth0"
	m.onboard("eth0", "10.0.0.4/24")
	m.libraries("openmpi 5.0.2 opt/openmpi/bin/mpirun", "ucx 1.15.0 opt/hpcx/ucx/lib/libucp.so.0")
	return m
}

// gb200 is a compute tray: four GPUs on two Grace CPUs, an InfiniBand card and a
// BlueField-3 a CPU on root ports: C2C makes all of them near.
func gb200() *machine { return graceTray("gb200", "10de:2941", "NVIDIA GB200", cx7ndr, true, bf3) }

// gb300 is one on Ethernet: ConnectX-8, and BlueField-3 for storage and the way out.
func gb300() *machine { return graceTray("gb300", "10de:31c2", "NVIDIA GB300", cx8, false, bf3) }

func graceTray(name, id, gpu string, rail part, ib bool, storage part) *machine {
	c := grace
	c.cores, c.memGiB = 16, 480
	m := fleet(name, c, "NVIDIA", "GB200 NVL")
	m.fact("fabrun/nvml", "driver 580.65.06\ncuda 13.0")
	for i := range 4 {
		numa := i / 2
		dom := fmt.Sprintf("%04x", 8+i)
		rp := m.rootPort("pci"+dom+":00", "00.0", numa, "32.0")
		addr := dom + ":01:00.0"
		m.pci(rp, fn{addr: addr, class: class3D, id: id, sub: "10de:2046", numa: numa, driver: "nvidia", speed: "32.0", width: 16})
		m.fact("fabrun/nvml", fmt.Sprintf("gpu %s name %s\ngpu %s capability 10.0\ngpu %s link c2c cpu 10 -\ngpu %s link nvlink - 18 0x068000", addr, gpu, addr, addr, addr))
		nd := fmt.Sprintf("%04x", 0x10*numa+i%2*2)
		np := m.rootPort("pci"+nd+":00", "00.0", numa, "32.0")
		m.put(card{part: rail, parent: np, addr: nd + ":01:00.0", numa: numa, name: fmt.Sprintf("mlx5_%d", i+i/2), netdev: fmt.Sprintf("rail%d", i), ib: ib, lid: 0x200 + i, ip: map[bool]string{false: fmt.Sprintf("10.224.%d.3/24", i), true: ""}[ib]})
	}
	for k := range 2 {
		nd := fmt.Sprintf("%04x", 0x10*k+6)
		np := m.rootPort("pci"+nd+":00", "00.0", k, "32.0")
		for f := range 2 {
			m.put(card{part: storage, parent: np, addr: fmt.Sprintf("%s:01:00.%d", nd, f), numa: k, name: fmt.Sprintf("mlx5_%d", 20+2*k+f), netdev: fmt.Sprintf("bf%d%d", k, f), ip: fmt.Sprintf("10.%d.0.3/16", 40+2*k+f), gateway: k == 0 && f == 0})
		}
	}
	m.fact("fabrun/peermem", "nvidia-peermem no\nopen-module yes\ndma-buf yes\ngdrcopy no\nkfd no")
	m.fact("fabrun/iommu", "groups 40\npassthrough yes")
	m.libraries("nccl 2.27.3 usr/lib/aarch64-linux-gnu/libnccl.so.2", "ucx 1.19.0 usr/lib/libucp.so.0")
	return m
}

// spark is a DGX Spark: one chip, one memory; the two QSFP ports of its ConnectX-7
// show as two functions in each of two PCI domains, and the one cable is in the
// first port: two devices of one cable are up. Management is another card.
func spark() *machine {
	c := grace
	c.sockets, c.cores, c.nodes, c.memGiB = 1, 20, 1, 119
	m := fleet("spark-1", c, "NVIDIA", "NVIDIA_DGX_Spark")
	gp := m.rootPort("pci000f:00", "00.0", 0, "32.0")
	m.pci(gp, fn{addr: "000f:01:00.0", class: classVGA, id: "10de:2e12", sub: "10de:21ec", numa: 0, driver: "nvidia", speed: "2.5", width: 1})
	for d, dom := range []string{"0000", "0002"} {
		rp := m.rootPort("pci"+dom+":00", "00.0", 0, "32.0")
		for f := range 2 {
			name := fmt.Sprintf("p1s0f%d", f)
			if d == 1 {
				name = fmt.Sprintf("P2p1s0f%d", f)
			}
			c := card{part: cx7spark, parent: rp, addr: fmt.Sprintf("%s:01:00.%d", dom, f), numa: 0, name: "roce" + name, netdev: fmt.Sprintf("en%snp%d", name, f), down: f == 1}
			if f == 0 {
				c.ip, c.mtu = fmt.Sprintf("192.168.%d.10/24", 177+d), 1500
			}
			dir := m.put(c)
			m.file(dir+"/infiniband/"+c.name+"/sys_image_guid", "fc4c:ea03:00f9:4230")
		}
	}
	m.onboard("enP7s7", "192.168.1.77/24")
	m.fact("fabrun/nvml", "driver 580.95.05\ncuda 13.0\ngpu 000f:01:00.0 name NVIDIA GB10\ngpu 000f:01:00.0 capability 12.1")
	m.fact("fabrun/peermem", "nvidia-peermem no\nopen-module yes\ndma-buf yes\ngdrcopy no\nkfd no")
	m.libraries("nccl 2.28.3 usr/lib/aarch64-linux-gnu/libnccl.so.2", "torchrun 2.9.0 usr/local/bin/torchrun")
	return m
}

// mi300x has eight rails of one maker's card beside GPUs, and the frontend and
// storage on two more of the same chip at half the rate.
func mi300x(name string, rail, front part) *machine {
	c := milan
	c.nodes, c.memGiB = 8, 192
	m := fleet(name, c, "Supermicro", "AS-8125GS-TNMR2")
	for i, root := range []int{0x05, 0x25, 0x45, 0x65, 0x85, 0xa5, 0xc5, 0xe5} {
		ds := m.leaves(root, i, 2)
		gpu := fmt.Sprintf("0000:%02x:00.0", root+3)
		m.pci(ds[0], fn{addr: gpu, class: classAccel, id: "1002:74a1", sub: "1002:74a1", numa: i, driver: "amdgpu", speed: "32.0", width: 16})
		dev := fmt.Sprintf("bnxt_re%d", i)
		if rail.driver == "ionic" {
			dev = fmt.Sprintf("ionic_%d", i)
		}
		m.put(card{part: rail, parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.0", root+4), numa: i, name: dev, netdev: fmt.Sprintf("benic%dp1", i+1), ip: fmt.Sprintf("192.168.%d.31/31", 10*i)})
		m.file(fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/properties", i+2), fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nlocation_id %d\ndomain 0\nunique_id %d", (root+3)<<8, i+1))
	}
	rp := m.rootPort("pci0000:70", "01.1", 3, "16.0")
	for f := range 2 {
		dev := fmt.Sprintf("bnxt_re%d", 8+f)
		m.put(card{part: front, parent: rp, addr: fmt.Sprintf("0000:71:00.%d", f), numa: 3, name: dev, netdev: fmt.Sprintf("fenic%dp1", f), ip: fmt.Sprintf("10.%d.0.31/24", 1+f), mtu: 1500, gateway: f == 0})
	}
	m.fact("fabrun/peermem", "nvidia-peermem no\ngdrcopy no\nkfd yes\namd-peer no\ndma-buf yes")
	m.libraries("rccl 2.22.3 opt/rocm/lib/librccl.so.1", "ucx 1.17.0 opt/ucx/lib/libucp.so.0")
	return m
}

func mi300xThor2() *machine {
	return mi300x("mi300x-thor2", thor2, part{"14e4:1760", "", "", "bnxt_en", 200})
}

func mi355xPollara() *machine {
	m := mi300x("mi355x-pollara", pollara, part{"14e4:1750", "", "", "bnxt_en", 100})
	m.libraries("nccl-plugin - opt/rocm/lib/librccl-anp.so")
	return m
}

// podVFs is a pod with a VF of each of four rails, which sees the host's PFs.
func podVFs() *machine {
	m := fleet("trainer-1", sapphireRapids2(), "Supermicro", "SYS-821GE-TNHR")
	var gpus []string
	devices := "dev/infiniband/rdma_cm rw"
	uverbs := func(hca string) string {
		name := "uverbs" + strings.TrimPrefix(hca, "mlx5_")
		m.file("sys/class/infiniband_verbs/"+name+"/ibdev", hca)
		return name
	}
	for i, root := range []int{0x10, 0x40, 0x90, 0xc0} {
		ds := m.leaves(root, i/2, 2)
		gpu := fmt.Sprintf("0000:%02x:00.0", root+3)
		m.pci(ds[0], fn{addr: gpu, class: class3D, id: "10de:2330", sub: "10de:16c1", numa: i / 2, driver: "nvidia", speed: "32.0", width: 16})
		gpus = append(gpus, gpu)
		pf := m.pci(ds[1], fn{addr: fmt.Sprintf("0000:%02x:00.0", root+4), class: classEth, id: cx7ndr.id, sub: "15b3:0041", numa: i / 2, driver: "mlx5_core", speed: "32.0", width: 16})
		name := fmt.Sprintf("mlx5_%d", i)
		uverbs(name)
		m.hca(hca{name: name, pci: fmt.Sprintf("0000:%02x:00.0", root+4), fw: "28.41.1000", typ: cx7ndr.typ, board: cx7ndr.psid, desc: name, ports: []port{{
			state: active, phys: linkUp, rate: rateWords[400], layer: "Ethernet", gids: []gid{{addr: "fe80::5aa2:e1ff:fe01:1"}, {addr: "fe80::5aa2:e1ff:fe01:1", v2: true}, {addr: "::ffff:10.30.0.9"}, {addr: "::ffff:10.30.0.9", v2: true}}, zero: 252,
		}}})
		vf := part{"15b3:101e", "MT4126", "MT_0000000838", "mlx5_core", 400}
		dir := m.put(card{part: vf, parent: ds[1], addr: fmt.Sprintf("0000:%02x:00.2", root+4), numa: i / 2, name: fmt.Sprintf("mlx5_%d", 8+i), netdev: fmt.Sprintf("net%d", i+1), ip: fmt.Sprintf("10.30.%d.77/24", i)})
		m.links[dir+"/physfn"] = "../" + fmt.Sprintf("0000:%02x:00.0", root+4)
		m.links[pf+"/virtfn0"] = "../" + fmt.Sprintf("0000:%02x:00.2", root+4)
		devices += fmt.Sprintf("\ndev/nvidia%d rw\ndev/infiniband/%s rw", i, uverbs(fmt.Sprintf("mlx5_%d", 8+i)))
	}
	m.onboard("eth0", "10.244.3.9/24")
	delete(m.facts, "fabrun/container")
	m.fact("fabrun/container", "kubernetes a service account or KUBERNETES_SERVICE_HOST is there")
	m.fact("fabrun/devices", devices)
	m.gpus("NVIDIA H100 80GB HBM3", "9.0", gpus...)
	m.libraries("nccl 2.23.4 usr/lib/x86_64-linux-gnu/libnccl.so.2")
	return m
}

// cfdNode is a CPU node with one NDR port, Lustre over an older card in the same
// subnet, and management on a third card that speaks RoCE.
func cfdNode() *machine {
	m := fleet("cfd01", milan, "HPE", "ProLiant XL225n Gen10 Plus")
	rp := m.rootPort("pci0000:40", "01.1", 0, "32.0")
	m.put(card{part: cx7ndr, parent: rp, addr: "0000:41:00.0", numa: 0, name: "mlx5_0", netdev: "ib0", ib: true, lid: 0x51, ip: "10.8.0.1/16"})
	rp = m.rootPort("pci0000:c0", "01.1", 1, "16.0")
	m.put(card{part: part{"15b3:1017", "MT4119", "MT_0000000008", "mlx5_core", 100}, parent: rp, addr: "0000:c1:00.0", numa: 1, name: "mlx5_1", netdev: "ib1", ib: true, lid: 0x52, ip: "10.9.0.1/16"})
	rp = m.rootPort("pci0000:80", "03.1", 1, "8.0")
	m.put(card{part: cx4lx25, parent: rp, addr: "0000:81:00.0", numa: 1, name: "mlx5_2", netdev: "eno1np0", ip: "10.1.4.1/22", mtu: 1500, gateway: true})
	m.put(card{part: cx4lx25, parent: rp, addr: "0000:81:00.1", numa: 1, name: "mlx5_3", netdev: "eno2np1", down: true})
	m.libraries("openmpi 5.0.6 opt/ompi/bin/mpirun UCX", "ucx 1.18.0 opt/ucx/lib/libucp.so.0")
	return m
}

// ovs: a bond of two ports in an OVS bridge, with the node's address on br-ex, and
// a second card for RDMA.
func ovs() *machine {
	m := fleet("worker-3", iceLake, "Lenovo", "ThinkSystem SR650 V2")
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	for f := range 2 {
		addr := fmt.Sprintf("0000:18:00.%d", f)
		m.pci(rp, fn{addr: addr, class: classEth, id: cx6dx.id, sub: "15b3:0083", driver: "mlx5_core", speed: "16.0", width: 16})
		dir := m.netdev(nic{name: fmt.Sprintf("ens1f%dnp%d", f, f), pci: addr, mtu: 1500, mbps: 100000, phys: fmt.Sprintf("p%d", f)})
		m.links[dir+"/master"] = "../../../../../virtual/net/bond0"
	}
	dir := m.netdev(nic{name: "bond0", mtu: 1500, mbps: 200000, kind: "bond"})
	m.file(dir+"/bonding/slaves", "ens1f0np0 ens1f1np1")
	m.file(dir+"/bonding/mode", "802.3ad 4")
	m.file(dir+"/bonding/ad_num_ports", "2")
	m.links[dir+"/master"] = "../ovs-system"
	m.netdev(nic{name: "ovs-system", mtu: 1500})
	m.onboard("br-ex", "10.1.4.13/24")
	m.hca(hca{name: "mlx5_bond_0", pci: "0000:18:00.0", fw: "22.39.2048", typ: cx6dx.typ, board: cx6dx.psid, desc: "worker-3", ports: []port{{
		state: active, phys: linkUp, rate: rateWords[100], layer: "Ethernet", gids: roceGIDs("bond0", "fe80::ba3f:d2ff:fe99:9", ""), zero: 254,
	}}})
	rp = m.rootPort("pci0000:b1", "02.0", 1, "16.0")
	m.put(card{part: cx6dx, parent: rp, addr: "0000:b2:00.0", numa: 1, name: "mlx5_2", netdev: "ens2f0np0", ip: "10.10.0.13/24"})
	m.libraries("openmpi 5.0.6 opt/ompi/bin/mpirun", "ucx 1.18.0 usr/lib/libucp.so.0")
	return m
}

// lingjun has four bonds of two 200G ports, each beside two GPUs.
func lingjun() *machine {
	m := fleet("lingjun", sapphireRapids2(), "Alibaba Cloud", "Alibaba Cloud ECS")
	var gpus []string
	for s, root := range []int{0x10, 0x40, 0x90, 0xc0} {
		ds := m.leaves(root, s/2, 3)
		for k := range 2 {
			gpu := fmt.Sprintf("0000:%02x:00.0", root+3+k)
			m.pci(ds[k], fn{addr: gpu, class: class3D, id: "10de:2324", sub: "10de:17a6", numa: s / 2, driver: "nvidia", speed: "32.0", width: 16})
			gpus = append(gpus, gpu)
		}
		bond := fmt.Sprintf("bond%d", s)
		var slaves []string
		for f := range 2 {
			addr := fmt.Sprintf("0000:%02x:00.%d", root+6, f)
			m.pci(ds[2], fn{addr: addr, class: classEth, id: cx7dual.id, sub: "15b3:0040", numa: s / 2, driver: "mlx5_core", speed: "32.0", width: 16})
			slaves = append(slaves, fmt.Sprintf("eth%d", 2+2*s+f))
			dir := m.netdev(nic{name: slaves[f], pci: addr, mtu: 9000, mbps: 200000, phys: fmt.Sprintf("p%d", f)})
			m.links[dir+"/master"] = "../../../../../virtual/net/" + bond
		}
		ip := fmt.Sprintf("11.%d.7.3", 20+s)
		ll := fmt.Sprintf("fe80::ba3f:d2ff:fe88:%x", s+1)
		dir := m.netdev(nic{name: bond, mtu: 9000, mbps: 400000, kind: "bond", addrs: []string{ip + "/30", ll + "/64"}})
		m.file(dir+"/bonding/slaves", strings.Join(slaves, " "))
		m.file(dir+"/bonding/mode", "802.3ad 4")
		m.file(dir+"/bonding/ad_num_ports", "2")
		m.hca(hca{name: fmt.Sprintf("mlx5_bond_%d", s), pci: fmt.Sprintf("0000:%02x:00.0", root+6), fw: "28.39.2048", typ: cx7dual.typ, board: cx7dual.psid, desc: "lingjun", ports: []port{{
			state: active, phys: linkUp, rate: rateWords[400], layer: "Ethernet", gids: roceGIDs(bond, ll, ip), zero: 252,
		}}})
		m.fact("fabrun/routes", fmt.Sprintf("11.0.0.0/8 dev %s via 11.%d.7.1 table %d metric 0", bond, 20+s, 101+s))
	}
	m.onboard("eth0", "10.110.3.4/20")
	m.gpus("NVIDIA H800", "9.0", gpus...)
	m.libraries("nccl 2.21.5 usr/lib/x86_64-linux-gnu/libnccl.so.2")
	return m
}

// vlanBase: the port's own interface is the management network, and RoCE is on a
// VLAN over it.
func vlanBase() *machine {
	m := fleet("hpc-vlan", iceLake, "Dell Inc.", "PowerEdge R750")
	rp := m.rootPort("pci0000:17", "02.0", 0, "16.0")
	m.put(card{part: cx6dx, parent: rp, addr: "0000:18:00.0", name: "mlx5_0", netdev: "ens1f0np0", ip: "10.1.4.15/24", gateway: true})
	m.netdev(nic{name: "ens1f0np0.400", mtu: 9000, mbps: 100000, kind: "vlan", addrs: []string{"10.40.0.15/24"}})
	m.links["sys/devices/virtual/net/ens1f0np0.400/lower_ens1f0np0"] = "../../../pci0000:17/0000:17:02.0/0000:18:00.0/net/ens1f0np0"
	m.file("proc/net/vlan/config", "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\nens1f0np0.400  | 400  | ens1f0np0")
	ib := m.dirs["0000:18:00.0"] + "/infiniband/mlx5_0/ports/1"
	for i, g := range roceGIDs("ens1f0np0.400", "fe80::5aa2:e1ff:fe44:1", "10.40.0.15") {
		m.file(fmt.Sprintf("%s/gids/%d", ib, 4+i), fullGID(g.addr))
		m.file(fmt.Sprintf("%s/gid_attrs/types/%d", ib, 4+i), map[bool]string{true: "RoCE v2", false: "IB/RoCE v1"}[g.v2])
		m.file(fmt.Sprintf("%s/gid_attrs/ndevs/%d", ib, 4+i), g.netdev)
	}
	m.libraries("openmpi 5.0.6 opt/ompi/bin/mpirun", "ucx 1.18.0 usr/lib/libucp.so.0")
	return m
}
