package topology

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func link(mt, width int) Link { return Link{SpeedMTps: &mt, Width: &width} }

// twoSwitches is a root port with a switch below it, in which one port leads to
// a GPU and an HCA is behind a second switch; another HCA hangs off a root port
// of the same root complex, and a third sits on another one.
func twoSwitches() Host {
	bridge := uint32(0x060400)
	g4, g5 := link(16000, 16), link(32000, 16)
	dev := func(addr, parent, port string, numa int, l Link) PCIDevice {
		d := PCIDevice{Address: addr, Parent: parent, RootBus: "pci0000:10", Port: port, NUMA: &numa, Link: l, LinkMax: l}
		if port != "endpoint" {
			d.Class = &bridge
		}
		return d
	}
	far := dev("0000:81:00.0", "0000:80:01.0", "endpoint", 1, g4)
	far.RootBus = "pci0000:80"
	slow := dev("0000:15:00.0", "0000:12:01.0", "upstream", 0, link(16000, 8))
	slow.LinkMax = g4
	return Host{
		NUMA: []NUMANode{{ID: 0}, {ID: 1}},
		PCI: []PCIDevice{
			dev("0000:10:01.0", "", "root", 0, g5), dev("0000:11:00.0", "0000:10:01.0", "upstream", 0, g5),
			dev("0000:12:00.0", "0000:11:00.0", "downstream", 0, g5), dev("0000:13:00.0", "0000:12:00.0", "endpoint", 0, g5),
			dev("0000:12:01.0", "0000:11:00.0", "downstream", 0, g4), slow,
			dev("0000:16:00.0", "0000:15:00.0", "downstream", 0, g4), dev("0000:17:00.0", "0000:16:00.0", "endpoint", 0, g4),
			dev("0000:10:02.0", "", "root", 0, g4), dev("0000:20:00.0", "0000:10:02.0", "endpoint", 0, g4),
			dev("0000:80:01.0", "", "root", 1, g4), far,
		},
		GPUs: []GPU{{PCI: "0000:13:00.0", NUMA: new(0)}},
		HCAs: []HCA{
			{Name: "mlx5_0", PCI: "0000:17:00.0", NUMA: new(0)},
			{Name: "mlx5_1", PCI: "0000:20:00.0", NUMA: new(0)},
			{Name: "mlx5_2", PCI: "0000:81:00.0", NUMA: new(1)},
			{Name: "rxe0"},
		},
	}
}

func TestPaths(t *testing.T) {
	want := []Path{
		{
			From: "0000:13:00.0", To: "0000:17:00.0", HCA: "mlx5_0", NCCL: PXB, SMI: PXB,
			Chain: []string{"0000:13:00.0", "0000:12:00.0", "0000:11:00.0", "0000:12:01.0", "0000:15:00.0", "0000:16:00.0", "0000:17:00.0"},
			GBps:  new(12.0), Narrow: "0000:15:00.0", Degraded: "0000:15:00.0",
		},
		{
			From: "0000:13:00.0", To: "0000:20:00.0", HCA: "mlx5_1", NCCL: PHB, SMI: PHB,
			Chain: []string{"0000:13:00.0", "0000:12:00.0", "0000:11:00.0", "0000:10:01.0", "cpu0", "0000:10:02.0", "0000:20:00.0"},
			GBps:  new(24.0), Narrow: "0000:20:00.0",
		},
		{
			From: "0000:13:00.0", To: "0000:81:00.0", HCA: "mlx5_2", NCCL: SYS, SMI: SYS,
			Chain: []string{"0000:13:00.0", "0000:12:00.0", "0000:11:00.0", "0000:10:01.0", "cpu0", "cpu1", "0000:80:01.0", "0000:81:00.0"},
			GBps:  new(24.0), Narrow: "0000:81:00.0",
		},
		// NCCL puts NICs that are no PCI devices on the first CPU.
		{From: "0000:13:00.0", To: "rxe0", HCA: "rxe0", NCCL: PHB},
	}
	if d := cmp.Diff(want, Paths(twoSwitches())); d != "" {
		t.Error(d)
	}
}

func TestPathsAreUnknownWhereTheTreeIsHidden(t *testing.T) {
	h := twoSwitches()
	h.Hidden = "flat"
	for _, p := range Paths(h) {
		if p.NCCL != "" || p.SMI != "" || p.GBps != nil {
			t.Errorf("%+v", p)
		}
	}
}

func TestNearestHCAs(t *testing.T) {
	h := twoSwitches()
	var got []string
	for _, p := range NearestHCAs(h, h.GPUs[0]) {
		got = append(got, p.HCA)
	}
	if want := []string{"mlx5_0", "mlx5_1", "rxe0", "mlx5_2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGPUToGPU(t *testing.T) {
	gpu := func(pci string, links ...GPULink) GPU { return GPU{PCI: pci, Vendor: "nvidia", Links: links} }
	nv := func(to string, n int) GPULink { return GPULink{Kind: "nvlink", Target: to, Count: n} }
	nvswitch, cpuBridge := uint32(0x068000), uint32(0x068001)
	a, b, c := "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
	for _, x := range []struct {
		name  string
		gpus  []GPU
		want  PathType
		links int
	}{
		{"direct", []GPU{gpu(a, nv(b, 4)), gpu(b, nv(a, 4))}, NVL, 4},
		{"told by one side only", []GPU{gpu(a), gpu(b, nv(a, 2))}, NVL, 2},
		{"through an NVSwitch", []GPU{
			gpu(a, GPULink{Kind: "nvlink", Target: "0000:05:00.0", Count: 12, Class: &nvswitch}),
			gpu(b, GPULink{Kind: "nvlink", Target: "0000:05:00.0", Count: 12, Class: &nvswitch}),
		}, NVL, 12},
		{"one of them without fabric", []GPU{gpu(a, GPULink{Kind: "nvlink", Target: "0000:05:00.0", Count: 12, Class: &nvswitch}), gpu(b)}, PHB, 0},
		{"over a third GPU", []GPU{gpu(a, nv(c, 1)), gpu(b, nv(c, 1)), gpu(c, nv(a, 1), nv(b, 1))}, NVB, 0},
		{"to the CPU (POWER)", []GPU{
			gpu(a, GPULink{Kind: "nvlink", Target: "0000:09:00.0", Count: 3, Class: &cpuBridge}),
			gpu(b, GPULink{Kind: "nvlink", Target: "0000:09:00.0", Count: 3, Class: &cpuBridge}),
		}, PHB, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := Paths(Host{GPUs: x.gpus})[0]
			if p.NCCL != x.want || p.NVLinks != x.links {
				t.Errorf("%s %d, want %s %d", p.NCCL, p.NVLinks, x.want, x.links)
			}
		})
	}
}

// Whatever the tree is, a way exists in both directions and is as long.
func TestPathsAreSymmetric(t *testing.T) {
	h := twoSwitches()
	tr := newTree(&h)
	for _, a := range h.PCI {
		for _, b := range h.PCI {
			na, nb := tr.numa(a.Address, nil), tr.numa(b.Address, nil)
			if x, y := tr.ncclType(a.Address, b.Address, na, nb), tr.ncclType(b.Address, a.Address, nb, na); x != y {
				t.Errorf("nccl %s %s: %s and %s", a.Address, b.Address, x, y)
			}
			if x, y := tr.smiType(a.Address, b.Address, na, nb), tr.smiType(b.Address, a.Address, nb, na); x != y {
				t.Errorf("smi %s %s: %s and %s", a.Address, b.Address, x, y)
			}
		}
	}
}

// A tree that is a loop, as no machine has, ends.
func TestPathsEndOnALoop(t *testing.T) {
	h := Host{
		PCI:  []PCIDevice{{Address: "0000:01:00.0", Parent: "0000:02:00.0"}, {Address: "0000:02:00.0", Parent: "0000:01:00.0"}},
		GPUs: []GPU{{PCI: "0000:01:00.0"}}, HCAs: []HCA{{Name: "x", PCI: "0000:02:00.0"}},
	}
	Judge(h, Paths(h))
}

func TestLinkBandwidth(t *testing.T) {
	for _, c := range []struct {
		mt, width int
		want      float64
	}{{2500, 1, 0.1875}, {8000, 16, 12}, {16000, 16, 24}, {32000, 16, 48}, {64000, 16, 96}} {
		if got := link(c.mt, c.width).GBps(); got == nil || *got != c.want {
			t.Errorf("%d x%d: %v, want %v", c.mt, c.width, got, c.want)
		}
	}
	if (Link{}).GBps() != nil {
		t.Error("unknown is not a bandwidth")
	}
}

func TestCompareNatural(t *testing.T) {
	names := []string{"mlx5_10", "mlx5_2", "mlx5_02", "mlx4_0", "mlx5_bond_0", "ib1", "ib01", "", "mlx5_2a"}
	slices.SortFunc(names, CompareNatural)
	want := []string{"", "ib01", "ib1", "mlx4_0", "mlx5_02", "mlx5_2", "mlx5_2a", "mlx5_10", "mlx5_bond_0"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

func TestComparePCI(t *testing.T) {
	addrs := []string{"10000:01:00.0", "0000:81:00.0", "0001:00:00.0", "0000:03:00.1", "0000:03:00.0"}
	slices.SortFunc(addrs, ComparePCI)
	want := []string{"0000:03:00.0", "0000:03:00.1", "0000:81:00.0", "0001:00:00.0", "10000:01:00.0"}
	if d := cmp.Diff(want, addrs); d != "" {
		t.Error(d)
	}
}

func TestMarkVisible(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   []EnvVar
		nodes []int // device nodes that are there; nil not looked
		uuids bool
		amd   bool
		want  string // v visible, h hidden, ? unknown
	}{
		{"nothing said", nil, nil, true, false, "????"},
		{"indices", []EnvVar{{"CUDA_VISIBLE_DEVICES", "3,1"}}, nil, true, false, "hvhv"},
		{"the first that is none ends it", []EnvVar{{"CUDA_VISIBLE_DEVICES", "0,9,1"}}, nil, true, false, "vhhh"},
		{"none", []EnvVar{{"CUDA_VISIBLE_DEVICES", ""}}, nil, true, false, "hhhh"},
		{"minus one", []EnvVar{{"CUDA_VISIBLE_DEVICES", "-1"}}, nil, true, false, "hhhh"},
		{"UUID", []EnvVar{{"CUDA_VISIBLE_DEVICES", "GPU-c000"}}, nil, true, false, "hhvh"},
		{"beginning that two share", []EnvVar{{"CUDA_VISIBLE_DEVICES", "GPU-"}}, nil, true, false, "hhhh"},
		{"UUID where none is known", []EnvVar{{"CUDA_VISIBLE_DEVICES", "GPU-c000"}}, nil, false, false, "????"},
		{"MIG", []EnvVar{{"CUDA_VISIBLE_DEVICES", "MIG-2222"}}, nil, true, false, "hvhh"},
		{"MIG, older form", []EnvVar{{"CUDA_VISIBLE_DEVICES", "MIG-GPU-d000/1/0"}}, nil, true, false, "hhhv"},
		{"device nodes", nil, []int{2, 3}, true, false, "hhvv"},
		{"indices count what the container has", []EnvVar{{"CUDA_VISIBLE_DEVICES", "1"}}, []int{2, 3}, true, false, "hhhv"},
		{"ROCR, then HIP", []EnvVar{{"HIP_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", "2,3"}}, nil, true, true, "hhhv"},
		{"CUDA's variable says nothing of AMD", []EnvVar{{"CUDA_VISIBLE_DEVICES", "0"}}, nil, true, true, "????"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := Host{Env: c.env}
			for i := range 4 {
				g := GPU{Index: i, Vendor: "nvidia"}
				if c.amd {
					g.Vendor = "amd"
				}
				if c.uuids {
					g.UUID = "GPU-" + string(rune('a'+i)) + "000"
				}
				if i == 1 {
					g.MIG = []MIG{{UUID: "MIG-2222"}}
				}
				if c.nodes != nil {
					g.DeviceNode = new(slices.Contains(c.nodes, i))
				}
				h.GPUs = append(h.GPUs, g)
			}
			MarkVisible(&h)
			got := ""
			for _, g := range h.GPUs {
				switch {
				case g.Visible == nil:
					got += "?"
				case *g.Visible:
					got += "v"
				default:
					got += "h"
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
