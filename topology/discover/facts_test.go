package discover

import (
	"errors"
	"io/fs"
	"net/netip"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fabrun/topology"
)

var compareHosts = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}

// errFS answers some paths with an error, as an unreadable entry of a snapshot does.
type errFS struct {
	fs.FS
	errs map[string]error
}

func (f errFS) Open(name string) (fs.File, error) {
	if err, ok := f.errs[name]; ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.FS.Open(name)
}

func TestReadFacts(t *testing.T) {
	files := func(kv ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
		}
		return m
	}
	for _, tc := range []struct {
		name string
		fsys fs.FS
		host topology.Host
		want topology.Host
	}{
		{name: "nothing there is nothing known", fsys: files()},
		{
			name: "places, the clock and the way here",
			fsys: files(SectionPlaces, "program\t/opt/a b\tok\tbuild-id:aa\tnfs4 nas:/opt\t-\nlibrary\t-\tENOENT\t-\t-\tlibx.so.1\ndirectory\t\"/a\\tb\"\tok\t-\text4\t-\nshort\tline\n",
				SectionClock, "time 2026-01-02T03:04:05.5Z\nsynchronised no\nsource 10.0.0.1\nsource dev ens1\n", SectionSession, "ssh 10.0.0.5\n"),
			want: topology.Host{
				Places: []topology.Place{
					{Role: "program", Path: "/opt/a b", ID: "build-id:aa", Mount: "nfs4 nas:/opt"},
					{Role: "library", Missing: "ENOENT", Detail: "libx.so.1"},
					{Role: "directory", Path: "/a\tb", Mount: "ext4"},
				},
				Clock:      topology.Clock{At: time.Date(2026, 1, 2, 3, 4, 5, 500000000, time.UTC), Synced: new(false), Sources: []string{"10.0.0.1", "dev ens1"}},
				ReachedBy:  netip.MustParseAddr("10.0.0.5"),
				Unreadable: []topology.Unreadable{{Path: SectionPlaces, Reason: `line 4: want six fields separated by tabs, got "short\tline"`}},
			},
		},
		{
			name: "what is tuned, and what the kernel said",
			fsys: files(SectionCPUFreq, "driver acpi-cpufreq\ngovernor schedutil 64\ngovernor x many\n", SectionIRQs, "0000:3b:00.0 64 0-1,4\n0000:ff:00.0 1 0\n",
				SectionPCIe, "0000:3b:00.0 relaxed-ordering on max-payload 256 max-read-request 512\n", SectionKernelLog, "uptime 900\nat 12 mlx5_core: a  b\nat x y\n"),
			host: topology.Host{PCI: []topology.PCIDevice{{Address: "0000:3b:00.0"}}},
			want: topology.Host{
				CPU:       topology.CPU{Governors: map[string]int{"schedutil": 64}},
				PCI:       []topology.PCIDevice{{Address: "0000:3b:00.0", IRQs: new(64), IRQCPUs: []int{0, 1, 4}, RelaxedOrdering: new(true), MaxPayload: new(256), MaxReadRequest: new(512)}},
				KernelLog: &topology.KernelLog{Uptime: 900, Lines: []topology.KernelLine{{At: 12, Text: "mlx5_core: a  b"}}},
				Unreadable: []topology.Unreadable{
					{Path: SectionCPUFreq, Reason: `line 3: governor x: want a number, got "many"`}, {Path: SectionKernelLog, Reason: `line 3: at: want seconds, got "x"`},
				},
			},
		},
		{
			name: "limits",
			fsys: files(SectionLimits, "memlock 65536 unlimited\nipc-lock yes\nnofile 1024 1048576\nshm 67108864 -\npids-max 4915\nfuture 1 2 3\n"),
			want: topology.Host{Limits: topology.Limits{
				MemlockSoft: new(uint64(65536)), MemlockHard: new(topology.Unlimited), IPCLock: new(true),
				NofileSoft: new(uint64(1024)), NofileHard: new(uint64(1048576)), ShmBytes: new(int64(67108864)),
			}},
		},
		{
			name: "a bad line is said, the rest counts",
			fsys: files(SectionLimits, "memlock lots unlimited\nnofile 1 2\n"),
			want: topology.Host{
				Limits:     topology.Limits{NofileSoft: new(uint64(1)), NofileHard: new(uint64(2))},
				Unreadable: []topology.Unreadable{{Path: SectionLimits, Reason: `line 1: want a number or unlimited, got "lots"`}},
			},
		},
		{
			name: "affinity",
			fsys: files(SectionAffinity, "0-1,4\r\n"),
			want: topology.Host{CPU: topology.CPU{Allowed: []int{0, 1, 4}}},
		},
		{
			name: "environment",
			fsys: files(SectionEnv, "UCX_TLS=rc,sm\nNCCL_X=\"a\\nb\"\nNCCL_IB_HCA==mlx5_0\nNCCL_EMPTY=\n"),
			want: topology.Host{Env: []topology.EnvVar{{Name: "NCCL_EMPTY"}, {Name: "NCCL_IB_HCA", Value: "=mlx5_0"}, {Name: "NCCL_X", Value: "a\nb"}, {Name: "UCX_TLS", Value: "rc,sm"}}},
		},
		{
			name: "addresses, routes, rules",
			fsys: files(SectionAddrs, "eth0 192.0.2.2/24\neth0 fe80::1/64\nveth9 10.0.0.1/8\n",
				SectionRoutes, "0.0.0.0/0 dev eth0 via 192.0.2.1 metric 100\n10.1.0.0/16 dev eth0 table 101 src 10.1.0.5\n",
				SectionRules, "priority 32765 from 10.1.0.5/32 table 101\n"),
			host: topology.Host{Netdevs: []topology.Netdev{{Name: "eth0"}}},
			want: topology.Host{
				Netdevs: []topology.Netdev{{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("fe80::1/64")}}},
				Routes: []topology.Route{
					{Dst: netip.MustParsePrefix("0.0.0.0/0"), Netdev: "eth0", Via: netip.MustParseAddr("192.0.2.1"), Metric: 100, Table: 254},
					{Dst: netip.MustParsePrefix("10.1.0.0/16"), Netdev: "eth0", Table: 101, Src: netip.MustParseAddr("10.1.0.5")},
				},
				Rules: []topology.RouteRule{{Priority: 32765, From: netip.MustParsePrefix("10.1.0.5/32"), Table: 101}},
			},
		},
		{
			name: "device nodes: one of two GPUs given to the container",
			fsys: files(SectionDevices, "dev/infiniband/rdma_cm EACCES\ndev/infiniband/uverbs0 rw\ndev/nvidia1 -\ndev/nvidiactl -\n"),
			host: topology.Host{GPUs: []topology.GPU{{Index: 0, Vendor: "nvidia"}, {Index: 1, Vendor: "nvidia"}}},
			want: topology.Host{
				GPUs:        []topology.GPU{{Index: 0, Vendor: "nvidia", DeviceNode: new(false)}, {Index: 1, Vendor: "nvidia", DeviceNode: new(true)}},
				DeviceNodes: &topology.DeviceNodes{Names: []string{"rdma_cm", "uverbs0"}, Openable: []string{"uverbs0"}},
				PeerMemory:  topology.PeerMemory{GDRCopy: new(false)},
			},
		},
		{
			name: "modules, iommu, peer memory, container, rdma namespace",
			fsys: files(SectionModules, "rdma_cm -\nmlx5_core 24.10-0.7.0\n", SectionIOMMU, "groups 0\npassthrough yes\ncmdline iommu=pt\nacs 0000:3A:00.0\n",
				SectionPeerMem, "nvidia-peermem yes module nvidia_peermem\ndma-buf -\ngdrcopy no\namd-peer no\n", SectionContainer, "docker .dockerenv is there\n", SectionRDMANetns, "exclusive\n"),
			want: topology.Host{
				Modules:    []topology.Module{{Name: "mlx5_core", Version: "24.10-0.7.0"}, {Name: "rdma_cm"}},
				IOMMU:      topology.IOMMU{Groups: new(0), Passthrough: new(true), CommandLine: "iommu=pt", ACSRedirect: []string{"0000:3a:00.0"}},
				PeerMemory: topology.PeerMemory{NvidiaPeermem: new(true), GDRCopy: new(false), AMDPeer: new(false)},
				Container:  topology.Container{Kind: "docker", Why: ".dockerenv is there"}, RDMANetns: "exclusive",
			},
		},
		{
			name: "software and configuration files",
			fsys: files(SectionSoftware, "nccl\t2.21.5\tusr/lib/libnccl.so.2\t-\t-\nopenmpi\t-\tusr/mpi/gcc/openmpi 4/bin/mpirun\tUCX component present\n",
				SectionConfig+"/nccl/etc/nccl.conf", "NCCL_IB_TC=106\n"),
			want: topology.Host{
				Software: []topology.Software{
					{Kind: "nccl", Version: "2.21.5", Path: "usr/lib/libnccl.so.2"},
					{Kind: "openmpi", Path: "usr/mpi/gcc/openmpi 4/bin/mpirun", Detail: "UCX component present"},
				},
				ConfigFiles: []topology.ConfigFile{{Kind: "nccl", Path: "etc/nccl.conf", Text: "NCCL_IB_TC=106\n"}},
			},
		},
		{
			name: "launchers and user",
			fsys: files(SectionLaunchers, "mpirun\t/usr/bin/orterun\t\"mpirun (Open MPI) 4.1.4\\n\"\nsrun\t-\t\"\"\nmpiexec\t/usr/bin/x\tnot quoted\n",
				SectionUser, "uid 1000\n"),
			want: topology.Host{
				Launchers:  []topology.Launcher{{Name: "mpirun", Path: "/usr/bin/orterun", Version: "mpirun (Open MPI) 4.1.4\n"}, {Name: "srun"}},
				UID:        new(1000),
				Unreadable: []topology.Unreadable{{Path: SectionLaunchers, Reason: `line 3: version of mpiexec: want a quoted text, got "not quoted"`}},
			},
		},
		{
			name: "DCB and ethtool of a netdev",
			fsys: errFS{files(
				SectionDCB+"/ens1", "trust dscp\npfc 3\ndscp 26 3\ndscp 48 6\nprio-tc 1 0 2 3 4 5 6 7\ntc-tsa ets ets ets ets ets ets strict strict\nwilling off\ndcbx host ieee\n",
				SectionEthtool+"/ens1", "driver mlx5_core\nfirmware 20.31.1014 (MT_0000000223)\npause off\nstat rx_prio3_pause 12\n",
			), map[string]error{SectionDCB + "/eth0": syscall.EOPNOTSUPP, SectionEthtool + "/eth0": errors.New("EOPNOTSUPP")}},
			host: topology.Host{Netdevs: []topology.Netdev{{Name: "ens1"}, {Name: "eth0"}}},
			want: topology.Host{Netdevs: []topology.Netdev{
				{
					Name: "ens1",
					DCB: &topology.DCB{
						Trust: "dscp", PFC: []int{3}, DSCPToPriority: map[int]int{26: 3, 48: 6}, PrioToTC: []int{1, 0, 2, 3, 4, 5, 6, 7},
						TCAlgorithm: []string{"ets", "ets", "ets", "ets", "ets", "ets", "strict", "strict"}, Willing: new(false), DCBX: "host ieee",
					},
					Ethtool: &topology.Ethtool{GlobalPause: new(false), Stats: map[string]int64{"rx_prio3_pause": 12}},
				},
				{Name: "eth0", DCBError: "EOPNOTSUPP"},
			}},
		},
		{
			name: "counters carry their time",
			fsys: files(SectionCounters, "time 2026-01-02T03:04:05.5Z\nmlx5_0:1 port_xmit_data 12\nmlx5_0:1 symbol_error 0\n"),
			want: topology.Host{Counters: []topology.CounterSample{{
				Device: "mlx5_0:1", At: time.Date(2026, 1, 2, 3, 4, 5, 500000000, time.UTC), Values: map[string]int64{"port_xmit_data": 12, "symbol_error": 0},
			}}},
		},
		{
			name: "NVML completes the GPU of the same address, minor and node agree",
			fsys: files(SectionNVML, `driver 570.86.15
cuda 12.8
gpu 00000000:1B:00.0 name NVIDIA H100 80GB HBM3
gpu 00000000:1B:00.0 uuid GPU-1
gpu 00000000:1B:00.0 memory 85520809984
gpu 00000000:1B:00.0 capability 9.0
gpu 00000000:1B:00.0 minor 3
gpu 00000000:1B:00.0 mig MIG-1 1g.10gb
gpu 00000000:1B:00.0 link nvlink 00000000:05:00.0 4 0x068000
gpu 00000000:1B:00.0 no-p2p 00000000:43:00.0
`, SectionDevices, "dev/nvidia3 -\ndev/nvidiactl -\n"),
			host: topology.Host{GPUs: []topology.GPU{{Index: 0, PCI: "0000:1b:00.0", Vendor: "nvidia", NUMA: new(1)}}},
			want: topology.Host{
				GPUs: []topology.GPU{{
					PCI: "0000:1b:00.0", Vendor: "nvidia", NUMA: new(1), Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-1", Memory: new(int64(85520809984)),
					Capability: "9.0", Minor: new(3), Driver: "570.86.15", MIG: []topology.MIG{{UUID: "MIG-1", Profile: "1g.10gb"}},
					Links: []topology.GPULink{{Kind: "nvlink", Target: "0000:05:00.0", Count: 4, Class: new(uint32(0x068000))}}, NoP2P: []string{"0000:43:00.0"}, DeviceNode: new(true),
				}},
				DeviceNodes: &topology.DeviceNodes{}, PeerMemory: topology.PeerMemory{GDRCopy: new(false)},
				Software: []topology.Software{{Kind: "cuda-driver", Version: "12.8"}},
			},
		},
		{
			name: "a GPU that NVML cannot open is a fact",
			fsys: files(SectionNVML, "gpu-error 3 the GPU has fallen off the bus\n"),
			want: topology.Host{Unreadable: []topology.Unreadable{{Path: SectionNVML, Reason: "GPU 3 the GPU has fallen off the bus"}}},
		},
		{
			name: "NVML that could not be asked is a fact",
			fsys: errFS{files(), map[string]error{SectionNVML: errors.New("no driver library")}},
			want: topology.Host{Unreadable: []topology.Unreadable{{Path: SectionNVML, Reason: "no driver library"}}},
		},
		{
			name: "second opinions name devices and are kept",
			fsys: files(SectionOpinions, "ghw\t0000:1b:00.0\tname\tNVIDIA Corporation GH100\nrdmamap\tmlx5_0\tnetdev\tens1\n"),
			host: topology.Host{PCI: []topology.PCIDevice{{Address: "0000:1b:00.0"}}, GPUs: []topology.GPU{{PCI: "0000:1b:00.0", Name: "H100"}}},
			want: topology.Host{
				PCI: []topology.PCIDevice{{Address: "0000:1b:00.0", Name: "NVIDIA Corporation GH100"}}, GPUs: []topology.GPU{{PCI: "0000:1b:00.0", Name: "H100"}},
				Opinions: []topology.Opinion{{Source: "ghw", Subject: "0000:1b:00.0", Attribute: "name", Value: "NVIDIA Corporation GH100"}, {Source: "rdmamap", Subject: "mlx5_0", Attribute: "netdev", Value: "ens1"}},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := tc.host
			readFacts(tc.fsys, &h)
			if diff := cmp.Diff(tc.want, h, compareHosts); diff != "" {
				t.Errorf("readFacts: -want +got\n%s", diff)
			}
		})
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"EOPNOTSUPP": &fs.PathError{Op: "read", Path: "x", Err: syscall.EOPNOTSUPP},
		"errno 200":  syscall.Errno(200),
		"no driver":  &fs.PathError{Op: "open", Path: "x", Err: errors.New("no\n driver")},
	} {
		if got := Reason(err); got != want {
			t.Errorf("Reason(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestNormalPCI(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3b:00.1": "0000:3b:00.1", "3b:00.0": "0000:3b:00.0", "00010001:00:00.0": "10001:00:00.0",
		"0009:01:00.0": "0009:01:00.0", "": "", "x": "", "0000:3b:20.0": "", "0000:3b:00.8": "",
	} {
		if got := NormalPCI(in); got != want {
			t.Errorf("NormalPCI(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzReadFacts(f *testing.F) {
	f.Add("memlock 1 2", "eth0 1.2.3.4/8")
	f.Add("gpu 0000:1b:00.0 link nvlink - 4 0x1", "time x\nmlx5_0:1 a 1")
	f.Add("trust dscp\npfc 3\ndscp 26 3\nprio-tc 0 0 0 0 0 0 0 0", "NCCL_X=\"a\\n\"")
	f.Add("0-65535,3", "driver\nstat a 1\npause on")
	f.Fuzz(func(t *testing.T, a, b string) {
		text := []byte(a + "\n" + b)
		for _, p := range factParsers {
			p.parse(text, &topology.Host{Netdevs: []topology.Netdev{{Name: "eth0"}}})
		}
		parseDCB(text)
		parseEthtool(text)
	})
}

// The NVLink domain of several machines, and the channels by which they share memory.
func TestNVLinkDomainFacts(t *testing.T) {
	h, err := Read(fstest.MapFS{
		"proc/sys/kernel/hostname": {Data: []byte("n1\n")},
		SectionNVML:                {Data: []byte("gpu 0008:01:00.0 fabric abcd0000000000000000000000000000 7 completed 0\ngpu 0009:01:00.0 fabric zz x completed\n")},
		SectionDevices:             {Data: []byte("dev/nvidiactl -\ndev/nvidia-caps-imex-channels/channel0 -\ndev/nvidia-caps-imex-channels/channel1 -\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := topology.NVLinkDomain{Cluster: "abcd0000000000000000000000000000", Clique: 7, State: "completed"}
	if len(h.GPUs) == 0 || h.GPUs[0].Domain == nil || *h.GPUs[0].Domain != want || h.IMEX == nil || *h.IMEX != 2 {
		t.Errorf("GPUs %+v, channels %v", h.GPUs, h.IMEX)
	}
	if len(h.Unreadable) == 0 {
		t.Error("a line that cannot be read was not named")
	}
}
