package envgen

import (
	"net/netip"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
)

func keys(h topology.Host, table ...uint16) topology.Host {
	for i := range h.HCAs {
		h.HCAs[i].Ports[0].PKeys = table
	}
	return h
}

func prefix(h topology.Host, i int, gid string) topology.Host {
	h.HCAs[i].Ports[0].GIDs = []topology.GID{{Addr: netip.MustParseAddr(gid), Kind: topology.GIDIB}}
	return h
}

func noGPUs(h topology.Host) topology.Host {
	h.GPUs = nil
	return h
}

// value of a variable on the first host, "" not set, and its scope.
func valueOf(res Result, host int, name string) (string, Scope) {
	if i := indexVar(res.Hosts[host].Vars, name); i >= 0 {
		return res.Hosts[host].Vars[i].Value, res.Hosts[host].Vars[i].Scope
	}
	return "", ""
}

// Ranks are split over rails where every two of them reach each other, by what
// the version of UCX believes.
func TestUCXSplitsByReach(t *testing.T) {
	rails := func() topology.Host { return withRoutes(withEth0(manyHCAs("n1", 2))) }
	apart := func() topology.Host {
		h := withEth0(manyHCAs("n1", 2))
		return h
	}
	one := func() topology.Host {
		h := manyHCAs("n1", 2)
		h.HCAs[1].Ports[0], h.Netdevs[1] = ethPort("rdma1", "10.10.0.2", 400), netdev("rdma1", "10.10.0.2/24")
		return h
	}
	for _, tt := range []struct {
		name  string
		host  topology.Host
		ucx   string
		scope Scope
		local string // UCX_IB_ROCE_LOCAL_SUBNET
	}{
		{"one subnet, any version", one(), "", RankScope, ""},
		{"one subnet, 1.22", one(), "1.22.0", RankScope, ""},
		{"routed, 1.17 asks for no route", rails(), "1.17.0", RankScope, ""},
		{"routed, 1.19 asks for a route", rails(), "1.19.0", RankScope, ""},
		{"routed, 1.20.0", rails(), "1.20.0", RankScope, ""},
		{"routed, from 1.20.1 on over the best route", rails(), "1.20.1", JobScope, ""},
		{"routed, version not known", rails(), "", JobScope, ""},
		{"not routed, 1.17 believes they are", apart(), "1.17.0", JobScope, "y"},
		{"not routed, 1.12 knows no netmask", apart(), "1.12.0", JobScope, ""},
		{"not routed, 1.19 asks for routes", apart(), "1.19.0", JobScope, ""},
		{"not routed, version not known", apart(), "", JobScope, ""},
		{"one InfiniBand fabric", noGPUs(infiniband("n1", 2)), "1.17.0", RankScope, ""},
		{"two InfiniBand fabrics", prefix(noGPUs(infiniband("n1", 2)), 1, "fec0:0:0:1::2"), "1.17.0", JobScope, ""},
		{"partitions that do not meet", func() topology.Host {
			h := keys(noGPUs(infiniband("n1", 2)), 0x8012)
			h.HCAs[1].Ports[0].PKeys = []uint16{0x8013}
			return h
		}(), "1.17.0", JobScope, ""},
		{"a second partition beside the common one", func() topology.Host {
			h := keys(noGPUs(infiniband("n1", 2)), 0xffff)
			h.HCAs[1].Ports[0].PKeys = []uint16{0xffff, 0x8013}
			return h
		}(), "1.17.0", RankScope, ""},
	} {
		res := Compute(Input{Hosts: []topology.Host{tt.host}, Job: Job{Versions: &Versions{UCX: tt.ucx}}})
		if _, scope := valueOf(res, 0, "UCX_NET_DEVICES"); scope != tt.scope {
			t.Errorf("%s: UCX_NET_DEVICES is one per %q, want %q", tt.name, scope, tt.scope)
		}
		if v, _ := valueOf(res, 0, "UCX_IB_ROCE_LOCAL_SUBNET"); v != tt.local {
			t.Errorf("%s: UCX_IB_ROCE_LOCAL_SUBNET=%q, want %q", tt.name, v, tt.local)
		}
	}
}

func TestPartitions(t *testing.T) {
	for _, tt := range []struct {
		name      string
		hosts     []topology.Host
		nccl, ucx []string // per host
	}{
		{"a tenant's full key at index 0", []topology.Host{keys(infiniband("a", 2), 0x8012)}, []string{""}, []string{""}},
		{"limited in the default partition, full in another", []topology.Host{keys(infiniband("a", 2), 0x7fff, 0x8012)}, []string{"1"}, []string{""}},
		{"full first, limited after it", []topology.Host{keys(infiniband("a", 2), 0x8041, 0x7fff)}, []string{""}, []string{""}},
		{"limited only", []topology.Host{keys(infiniband("a", 2), 0x7fff)}, []string{""}, []string{""}},
		{"tables not known", []topology.Host{infiniband("a", 2)}, []string{""}, []string{""}},
		{"the common partition at different places", []topology.Host{keys(infiniband("a", 2), 0x8012), keys(infiniband("b", 2), 0x8013, 0x8012)}, []string{"", "1"}, []string{"0x0012", "0x0012"}},
		{"no common partition", []topology.Host{keys(infiniband("a", 2), 0x8012), keys(infiniband("b", 2), 0x8013)}, []string{"", ""}, []string{"", ""}},
	} {
		res := Compute(Input{Hosts: tt.hosts, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.23.4", UCX: "1.17.0"}}})
		for i := range tt.hosts {
			if v, _ := valueOf(res, i, "NCCL_IB_PKEY"); v != tt.nccl[i] {
				t.Errorf("%s: host %d: NCCL_IB_PKEY=%q, want %q", tt.name, i, v, tt.nccl[i])
			}
			if v, _ := valueOf(res, i, "UCX_IB_PKEY"); v != tt.ucx[i] {
				t.Errorf("%s: host %d: UCX_IB_PKEY=%q, want %q", tt.name, i, v, tt.ucx[i])
			}
		}
	}
}

// nvlinked joins all GPUs of a host by an NVSwitch.
func nvlinked(h topology.Host) topology.Host {
	for i := range h.GPUs {
		h.GPUs[i].Links = []topology.GPULink{{Kind: "nvlink", Target: "0000:05:00.0", Count: 18, Class: ptr(uint32(0x068000))}}
	}
	return h
}

// twoNICs has a NIC beside the first and the third of four GPUs, and none for
// the others but through the CPU.
func twoNICs() topology.Host {
	h := gpuServer("g1", 1)
	h.HCAs = []topology.HCA{h.HCAs[0], h.HCAs[2]}
	// all of a socket below one root complex: PHB to the neighbour's NIC
	for i := range h.PCI {
		h.PCI[i].RootBus = "pci0000:00"
	}
	return h
}

// grace has a GPU that reaches its NIC over C2C and the CPU.
func grace() topology.Host {
	h := topology.Host{Name: "gh", PeerMemory: topology.PeerMemory{NvidiaPeermem: ptr(true)}}
	h.NUMA = []topology.NUMANode{{ID: 0, CPUs: []int{0, 1}}}
	h.PCI = []topology.PCIDevice{
		pciAt("0002:00:00.0", "", "pci0002:00", 0, 0x060400), pciAt("0002:01:00.0", "0002:00:00.0", "pci0002:00", 0, 0x020700),
		pciAt("0009:00:00.0", "", "pci0009:00", 0, 0x060400), pciAt("0009:01:00.0", "0009:00:00.0", "pci0009:00", 0, 0x030200),
	}
	h.GPUs = []topology.GPU{{PCI: "0009:01:00.0", NUMA: ptr(0), Vendor: "nvidia", Links: []topology.GPULink{{Kind: "c2c", Target: "cpu", Count: 10}}}}
	h.HCAs = infiniband("x", 1).HCAs
	h.HCAs[0].PCI, h.HCAs[0].NUMA = "0002:01:00.0", ptr(0)
	return h
}

func amd(h topology.Host) topology.Host {
	for i := range h.GPUs {
		h.GPUs[i].Vendor = "amd"
	}
	h.PeerMemory = topology.PeerMemory{AMDKFD: ptr(true)}
	return h
}

// GPUDirect's level is widened only where nothing else serves a GPU, and the
// contract promises what the version's own rule gives.
func TestGPUDirectLevel(t *testing.T) {
	for _, tt := range []struct {
		name     string
		host     topology.Host
		nccl     string
		set      string
		level    string
		contract string
	}{
		{"a NIC beside each GPU", gpuServer("g1", 1), "2.23.4", "", "", "GPUDirect on"},
		{"through the CPU, without NVLink", rootPorts("r1"), "2.23.4", "", "PHB", "GPUDirect on"},
		{"through the CPU, with NVLink to no GPU beside a NIC", nvlinked(rootPorts("r1")), "2.23.4", "", "PHB", "GPUDirect on"},
		{"two NICs beside two of four GPUs on NVLink: relayed", nvlinked(twoNICs()), "2.23.4", "", "", "GPUDirect on"},
		{"the same without NVLink", twoNICs(), "2.23.4", "", "PHB", "GPUDirect on"},
		{"the same with NVLink, NCCL knows no relay", nvlinked(twoNICs()), "2.11.4", "", "PHB", "GPUDirect on"},
		{"the same with NVLink, the relay turned off", nvlinked(twoNICs()), "2.23.4", "NCCL_PXN_DISABLE=1", "PHB", "GPUDirect on"},
		{"Grace before 2.26", grace(), "2.25.1", "", "PHB", "GPUDirect on"},
		{"Grace, version not known", grace(), "", "", "PHB", "GPUDirect on"},
		{"Grace from 2.27 on", grace(), "2.27.3", "", "", "GPUDirect on"},
		{"Grace before 2.26, the user narrows it", grace(), "2.25.1", "NCCL_NET_GDR_LEVEL=PXB", "PXB", "GPUDirect off at level PXB"},
		{"the user turns it off", gpuServer("g1", 1), "2.23.4", "NCCL_NET_GDR_LEVEL=LOC", "LOC", "GPUDirect off at level LOC"},
		{"GPUs on the other socket", otherSocket("r1"), "2.23.4", "", "PHB", "GPUDirect for 2 of 4 GPUs"},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: tt.nccl}}}
		if name, value, ok := strings.Cut(tt.set, "="); ok {
			in.Job.Settings = []Setting{{Name: name, Value: value, Origin: FromUser}}
		}
		res := Compute(in)
		if v, _ := valueOf(res, 0, "NCCL_NET_GDR_LEVEL"); v != tt.level {
			t.Errorf("%s: level %q, want %q", tt.name, v, tt.level)
		}
		if !strings.Contains(res.Contract, tt.contract) {
			t.Errorf("%s: contract %q, want %q in it", tt.name, res.Contract, tt.contract)
		}
		got := "GPUDirect for "
		if on := res.Promise.GPUDirect; on != nil {
			got = map[bool]string{true: "GPUDirect on", false: "GPUDirect off"}[*on]
		}
		if !strings.HasPrefix(tt.contract, got) {
			t.Errorf("%s: the values promise %s, the contract %q", tt.name, got, res.Contract)
		}
	}
}

// RCCL is not NCCL: it relays only when told, and reads files of its own.
func TestRCCL(t *testing.T) {
	conf := func(h topology.Host, kind string) topology.Host {
		h.ConfigFiles = []topology.ConfigFile{{Path: "etc/" + kind + ".conf", Kind: kind, Text: "NCCL_IB_HCA=mlx5\n"}}
		return h
	}
	for _, tt := range []struct {
		name   string
		host   topology.Host
		change func(*profiles.Fabric)
		pxn    string
		hca    string
		unread bool
	}{
		{"AMD GPUs, rails apart", amd(gpuServer("g1", 1)), nil, "0", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", false},
		{"AMD GPUs, rails reach each other", amd(gpuServer("g1", 1)), func(f *profiles.Fabric) { f.RailOnly = ptr(false) }, "", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", false},
		{"NVIDIA GPUs, rails apart", gpuServer("g1", 1), nil, "", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", false},
		{"AMD GPUs and NCCL's file", conf(amd(gpuServer("g1", 1)), "nccl"), nil, "0", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", true},
		{"AMD GPUs and RCCL's file", conf(amd(gpuServer("g1", 1)), "rccl"), nil, "0", "mlx5", false},
		{"NVIDIA GPUs and NCCL's file", conf(gpuServer("g1", 1), "nccl"), nil, "", "mlx5", false},
		{"NVIDIA GPUs and RCCL's file", conf(gpuServer("g1", 1), "rccl"), nil, "", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", true},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.22.3"}}}
		if tt.change != nil {
			tt.change(&in.Profile.Fabric)
		}
		res := Compute(in)
		if v, _ := valueOf(res, 0, "NCCL_PXN_DISABLE"); v != tt.pxn {
			t.Errorf("%s: NCCL_PXN_DISABLE=%q, want %q", tt.name, v, tt.pxn)
		}
		if v, _ := valueOf(res, 0, "NCCL_IB_HCA"); v != tt.hca {
			t.Errorf("%s: NCCL_IB_HCA=%q, want %q", tt.name, v, tt.hca)
		}
		if got := findingIDs(res)["value.file-unread"] != ""; got != tt.unread {
			t.Errorf("%s: said that a file is not read: %v, want %v", tt.name, got, tt.unread)
		}
	}
}

// A queue pair leaves by one port of a bond.
func TestBondQueuePairs(t *testing.T) {
	backup := bonded("n1")
	backup.Netdevs[0].BondMode = "active-backup"
	for _, tt := range []struct {
		name string
		host topology.Host
		want string
	}{
		{"LACP of two ports", bonded("n1"), "2"},
		{"one port at a time", backup, ""},
		{"no bond", cx4lx("n1", "10.1.4.1"), ""},
	} {
		res := Compute(Input{Hosts: []topology.Host{tt.host}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.21.5"}}})
		if v, _ := valueOf(res, 0, "NCCL_IB_QPS_PER_CONNECTION"); v != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, v, tt.want)
		}
	}
}
