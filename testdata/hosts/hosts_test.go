package hosts

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"fabrun/topology/discover"
)

var update = flag.Bool("update", false, "write the snapshots of all machines")

// TestSnapshots holds the files against the descriptions: what is in the tree
// is what Capture makes of each machine.
func TestSnapshots(t *testing.T) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			s, err := discover.ReadSnapshot(strings.NewReader(m.build().text()))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := discover.Capture(s, &got); err != nil {
				t.Fatal(err)
			}
			file := m.name + ".snap"
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s is not what its description makes; run with -update and look at the difference", file)
			}
		})
	}
}

// machines is every snapshot of this directory.
var machines = []struct {
	name  string
	build func() *machine
}{
	{"dgx-roce-8x8", dgxRoCE},
	{"cx4lx-12node", cx4lx},
	{"numa-off", numaOff},
	{"nps4", nps4},
	{"domains", domains},
	{"vf-beside-pf", vfBesidePF},
	{"vf-in-vm", vfInVM},
	{"vm-flat", flatVM},
	{"bonds", bonds},
	{"names", names},
	{"cx8-data-direct", dataDirect},
	{"gpus-hidden", gpusHidden},
	{"grace-c2c", graceHopper},
	{"amd-xgmi", amdXGMI},
	{"slingshot", slingshot},
	{"no-gpu", noGPU},
	{"no-hca", noHCA},
	{"neither", neither},
	{"pod-bare", podBare},
	{"ib", infiniband},
	{"ib-no-sm", initNoSM},
	{"far-rails", farRails},
	{"pex", pexSwitch},
	{"dgx-a100", dgxA100},
	{"dgx-b200", dgxB200},
	{"hgx-shared-switch", hgxSharedSwitch},
	{"hgx-twin-storage", hgxTwinStorage},
	{"azure-hb", azureHB},
	{"gb200", gb200},
	{"gb300", gb300},
	{"spark", spark},
	{"mi300x-thor2", mi300xThor2},
	{"mi355x-pollara", mi355xPollara},
	{"pod-vfs", podVFs},
	{"cfd-lustre", cfdNode},
	{"ovs-bond", ovs},
	{"lingjun", lingjun},
	{"vlan-base", vlanBase},
}

var (
	sapphireRapids = cpu{
		vendor: "GenuineIntel", model: "Intel(R) Xeon(R) Platinum 8480C", family: 6, modelID: 143,
		sockets: 2, cores: 56, threads: 2, nodes: 2, memGiB: 1024,
	}
	broadwell = cpu{
		vendor: "GenuineIntel", model: "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", family: 6, modelID: 79,
		sockets: 2, cores: 14, threads: 1, nodes: 2, memGiB: 64,
	}
)

// dgxRoCE is two sockets with eight GPUs and eight 400G rails; one GPU and one
// HCA share a PCIe switch. A storage NIC and the management NIC are HCAs too.
func dgxRoCE() *machine {
	m := newMachine("gpu01", "5.15.0-1042-nvidia", "Ubuntu 22.04.4 LTS", "NVIDIA", "DGXH100")
	m.cpus(sapphireRapids)
	m.loopback()
	var nvml, dcb strings.Builder
	roots := []int{0x15, 0x3a, 0x4b, 0x5c, 0x97, 0xb7, 0xc8, 0xd9}
	rail := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8"}
	nvml.WriteString("driver 550.90.07\ncuda 12.4\n")

	// The management NIC: first, as onboard devices are.
	mgmtPort := m.rootPort("pci0000:80", "01.0", 1, "8.0")
	m.pci(mgmtPort, fn{addr: "0000:81:00.0", class: classEth, id: "15b3:101f", sub: "15b3:0016", numa: 1, driver: "mlx5_core", speed: "8.0", width: 8})
	m.netdev(nic{name: "eth0", pci: "0000:81:00.0", mtu: 1500, mbps: 25000, addrs: []string{"10.1.4.1/24", "fe80::ba3f:d2ff:fe00:9/64"}})
	m.fact("fabrun/routes", "0.0.0.0/0 dev eth0 via 10.1.4.254 table 254 metric 100 src 10.1.4.1")
	m.hca(hca{
		name: "mlx5_9", pci: "0000:81:00.0", fw: "26.39.2048", typ: "MT4127", board: "MT_0000000531", desc: "gpu01 mlx5_9",
		ports: []port{{state: active, phys: linkUp, rate: "25 Gb/sec (1X EDR)", layer: "Ethernet", gids: roceGIDs("eth0", "fe80::ba3f:d2ff:fe00:9", "10.1.4.1"), zero: 252}},
	})

	for i, bus := range roots {
		numa := i / 4
		root := fmt.Sprintf("pci0000:%02x", bus)
		rp := m.rootPort(root, "01.0", numa, "32.0")
		ds := m.pcieSwitch(rp, "0000", bus+1, numa, "32.0", 3)
		nicAddr := fmt.Sprintf("0000:%02x:00.0", bus+3)
		gpuAddr := fmt.Sprintf("0000:%02x:00.0", bus+4)
		nvme := fmt.Sprintf("0000:%02x:00.0", bus+5)
		m.pci(ds[0], fn{addr: nicAddr, class: classEth, id: "15b3:1021", sub: "15b3:0041", numa: numa, driver: "mlx5_core", speed: "32.0", width: 16})
		gpuDir := m.pci(ds[1], fn{addr: gpuAddr, class: class3D, id: "10de:2330", sub: "10de:16c1", numa: numa, driver: "nvidia", speed: "32.0", width: 16})
		m.files[gpuDir+"/resource"] = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n0x000021a042000000 0x000021a042ffffff 0x000000000014220c\n0x000021a000000000 0x000021bfffffffff 0x000000000014220c\n"
		m.pci(ds[2], fn{addr: nvme, class: classNVMe, id: "144d:a824", sub: "144d:aa8b", numa: numa, driver: "nvme", speed: "16.0", width: 4})
		dev := fmt.Sprintf("enp%ds0np0", bus+3)
		ip := fmt.Sprintf("10.10.%d.1", i)
		ll := fmt.Sprintf("fe80::ba3f:d2ff:fe10:%d", i+1)
		m.netdev(nic{name: dev, pci: nicAddr, mtu: 9000, mbps: 400000, addrs: []string{ip + "/24", ll + "/64"}})
		m.hca(hca{
			name: rail[i], pci: nicAddr, fw: "28.39.2048", typ: "MT4129", board: "MT_0000000838", desc: "gpu01 " + rail[i],
			ports: []port{{state: active, phys: linkUp, rate: "400 Gb/sec (4X NDR)", layer: "Ethernet", gids: roceGIDs(dev, ll, ip), zero: 252}},
		})
		dcb.Reset()
		dcb.WriteString("trust dscp\npfc 3\n")
		for d := range 64 {
			fmt.Fprintf(&dcb, "dscp %d %d\n", d, d/8)
		}
		dcb.WriteString("prio-tc 1 0 2 3 4 5 6 7\ntc-bw 0 0 0 0 0 0 0 0\ntc-tsa vendor vendor vendor vendor vendor vendor vendor vendor\nprio-buffer 0 0 0 1 0 0 0 0\nbuffer-size 1046144 1046144 0 0 0 0 0 0\nwilling off\ndcbx host ieee")
		m.fact("fabrun/dcb/"+dev, dcb.String())
		m.fact("fabrun/ethtool/"+dev, "driver mlx5_core\nversion 5.15.0-1042-nvidia\nfirmware 28.39.2048 (MT_0000000838)\nbus "+nicAddr+"\npause off")
		fmt.Fprintf(&nvml, "gpu %s name NVIDIA H100 80GB HBM3\ngpu %s uuid GPU-5e0c1f0a-0000-4000-8000-00000000000%d\ngpu %s memory 85520809984\ngpu %s capability 9.0\ngpu %s numa %d\ngpu %s minor %d\n",
			gpuAddr, gpuAddr, i, gpuAddr, gpuAddr, gpuAddr, numa, gpuAddr, i)
		for sw, links := range []int{5, 4, 4, 5} {
			fmt.Fprintf(&nvml, "gpu %s link nvlink 0000:0%d:00.0 %d 0x068000\n", gpuAddr, 4+sw, links)
		}
	}
	// NVSwitches.
	rp := m.rootPort("pci0000:00", "0f.0", 0, "8.0")
	ds := m.pcieSwitch(rp, "0000", 2, 0, "8.0", 4)
	for i, d := range ds {
		m.pci(d, fn{addr: fmt.Sprintf("0000:0%d:00.0", 4+i), class: classNVSw, id: "10de:22a3", sub: "10de:1796", numa: 0, driver: "nvidia-nvswitch", speed: "5.0", width: 2})
	}
	// The storage NIC.
	sp := m.rootPort("pci0000:26", "01.0", 0, "16.0")
	m.pci(sp, fn{addr: "0000:27:00.0", class: classEth, id: "15b3:101d", sub: "15b3:0083", numa: 0, driver: "mlx5_core", speed: "16.0", width: 16})
	m.netdev(nic{name: "enp39s0np0", pci: "0000:27:00.0", mtu: 9000, mbps: 100000, addrs: []string{"10.20.0.1/24", "fe80::ba3f:d2ff:fe20:1/64"}})
	m.hca(hca{
		name: "mlx5_4", pci: "0000:27:00.0", fw: "22.39.2048", typ: "MT4125", board: "MT_0000000359", desc: "gpu01 mlx5_4",
		ports: []port{{state: active, phys: linkUp, rate: "100 Gb/sec (2X HDR)", layer: "Ethernet", gids: roceGIDs("enp39s0np0", "fe80::ba3f:d2ff:fe20:1", "10.20.0.1"), zero: 252}},
	})
	m.fact("fabrun/nvml", strings.TrimSuffix(nvml.String(), "\n"))
	m.fact("fabrun/modules", "gdrdrv 2.4\nib_core 24.04-0.6.6\nib_umad 24.04-0.6.6\nib_uverbs 24.04-0.6.6\nmlx5_core 24.04-0.6.6\nmlx5_ib 24.04-0.6.6\nnvidia 550.90.07\nnvidia_peermem 550.90.07\nrdma_cm 24.04-0.6.6\nrdma_ucm 24.04-0.6.6")
	m.fact("fabrun/iommu", "groups 0\ncmdline iommu=off")
	m.fact("fabrun/peermem", "nvidia-peermem yes module nvidia_peermem\ndma-buf no\ngdrcopy yes\nopen-module no")
	m.fact("fabrun/software", strings.Join([]string{
		"nccl\t2.21.5\tusr/lib/x86_64-linux-gnu/libnccl.so.2\t-\t-",
		"ofed\t24.04-0.6.6\tusr/bin/ofed_info\tMLNX_OFED_LINUX-24.04-0.6.6.0\t-",
		"openmpi\t4.1.7\tusr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun\tUCX component present\t-",
		"torchrun\t2.4.0\tusr/local/bin/torchrun\t-\t-",
		"ucx\t1.17.0\tusr/lib/libucp.so.0\tbuilt with CUDA\t-",
	}, "\n"))
	var devs []string
	for i := range 10 {
		devs = append(devs, fmt.Sprintf("dev/infiniband/uverbs%d rw", i))
	}
	devs = append(devs, "dev/infiniband/rdma_cm rw", "dev/nvidiactl rw", "dev/nvidia-uvm rw", "dev/gdrdrv rw")
	for i := range 8 {
		devs = append(devs, fmt.Sprintf("dev/nvidia%d rw", i))
	}
	m.fact("fabrun/devices", strings.Join(devs, "\n"))
	return m
}

// cx4lx is a node of a small CFD cluster: a dual-port 25G card with one port
// cabled, and MTU 1500.
func cx4lx() *machine {
	m := newMachine("node01", "5.14.0-427.13.1.el9_4.x86_64", "Rocky Linux 9.4 (Blue Onyx)", "Supermicro", "SYS-6028TR-HTR")
	m.cpus(broadwell)
	m.loopback()
	rp := m.rootPort("pci0000:00", "02.0", 0, "8.0")
	for f := range 2 {
		m.pci(rp, fn{addr: fmt.Sprintf("0000:03:00.%d", f), class: classEth, id: "15b3:1015", sub: "15b3:0003", numa: 0, driver: "mlx5_core", speed: "8.0", width: 8})
	}
	mp := m.rootPort("pci0000:00", "1c.0", 0, "5.0")
	m.pci(mp, fn{addr: "0000:05:00.0", class: classEth, id: "8086:1521", sub: "15d9:1521", numa: 0, driver: "igb", speed: "5.0", width: 4})
	m.netdev(nic{name: "eno1", pci: "0000:05:00.0", mtu: 1500, mbps: 1000, addrs: []string{"192.168.4.1/24"}})
	m.fact("fabrun/routes", "0.0.0.0/0 dev eno1 via 192.168.4.254 table 254 metric 100 src 192.168.4.1")
	m.netdev(nic{name: "ens1f0np0", pci: "0000:03:00.0", mtu: 1500, mbps: 25000, addrs: []string{"10.1.4.1/24", "fe80::ba3f:d2ff:fe41:1/64"}, phys: "p0"})
	m.netdev(nic{name: "ens1f1np1", pci: "0000:03:00.1", mtu: 1500, noCarrier: true, phys: "p1"})
	m.hca(hca{
		name: "mlx5_0", pci: "0000:03:00.0", fw: "14.32.1010", typ: "MT4117", board: "MT_2420110034", desc: "node01 mlx5_0",
		ports: []port{{state: active, phys: linkUp, rate: "25 Gb/sec (1X EDR)", layer: "Ethernet", gids: roceGIDs("ens1f0np0", "fe80::ba3f:d2ff:fe41:1", "10.1.4.1"), zero: 252}},
	})
	m.hca(hca{
		name: "mlx5_1", pci: "0000:03:00.1", fw: "14.32.1010", typ: "MT4117", board: "MT_2420110034", desc: "node01 mlx5_1",
		ports: []port{{state: down, phys: disabledP, rate: "40 Gb/sec (4X QDR)", layer: "Ethernet", gids: []gid{{"fe80::ba3f:d2ff:fe41:2", false, "ens1f1np1"}, {"fe80::ba3f:d2ff:fe41:2", true, "ens1f1np1"}}, zero: 254}},
	})
	m.fact("fabrun/dcb/ens1f0np0", "trust dscp\npfc 3\ndscp 24 3\ndscp 26 3\ndscp 31 3\nprio-tc 0 0 0 0 0 0 0 0\nwilling off\ndcbx host ieee")
	m.fact("fabrun/dcb/ens1f1np1", "trust pcp\npfc\nwilling off\ndcbx host ieee")
	m.fact("fabrun/modules", "ib_core -\nib_umad -\nib_uverbs -\nmlx5_core -\nmlx5_ib -\nrdma_cm -\nrdma_ucm -")
	m.fact("fabrun/iommu", "groups 0")
	m.fact("fabrun/peermem", "nvidia-peermem no\ngdrcopy no\nopen-module no")
	m.fact("fabrun/software", "openmpi\t4.1.6\tusr/lib64/openmpi/bin/mpirun\tUCX component present\t-\nucx\t1.15.0\tusr/lib64/libucp.so.0\t-\t-")
	m.fact("fabrun/devices", "dev/infiniband/uverbs0 rw\ndev/infiniband/uverbs1 rw\ndev/infiniband/rdma_cm rw")
	return m
}
