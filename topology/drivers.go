package topology

import (
	"slices"
	"strconv"
	"strings"
)

// Family is the software by which an RDMA device is used.
type Family string

// The families.
const (
	Verbs Family = "verbs" // libibverbs: NCCL's own transport, UCX
	PSM   Family = "psm"   // Omni-Path, True Scale: PSM2 or libfabric
	EFA   Family = "efa"   // libfabric, over verbs of its own kind
	CXI   Family = "cxi"   // Slingshot: libfabric, no verbs at all
	IWARP Family = "iwarp" // verbs whose addresses neither NCCL nor UCX can use
)

// Driver is what is known of one RDMA driver.
type Driver struct {
	Name   string // as HCA.Driver has it
	Family Family
	// PCI are the drivers of the function below, where they are called otherwise.
	PCI []string
	// IDs are its functions by PCI vendor and device (0 any), for trees without
	// driver links.
	IDs []PCIID
	// VFs are those of IDs that only virtual functions have: in a guest there is
	// no PF to tell.
	VFs []PCIID
	// Prefixes begin the names that it gives to devices. udev can rename them.
	Prefixes []string
	Modules  []string // kernel modules, of the function below and of RDMA
	// Uverbs: user programs open /dev/infiniband/uverbsN.
	Uverbs bool
	// RoCE: its Ethernet ports speak RoCE, with GIDs, MTUs and classes to match.
	RoCE bool
	// TwoModes: as RoCE or as iWARP, by a setting; node_type says which (RNIC: iWARP).
	TwoModes bool
	// NoUD: no unreliable datagrams, without which UCX cannot wire up.
	NoUD bool
	// Software: made of a netdev, by the CPU; its rate says nothing about the wire.
	Software bool
	// NCCLPlugin is what NCCL needs to use it: by itself it would take sockets.
	NCCLPlugin string
	// UCXByDefault: in Open MPI's list of devices for which UCX is preferred
	// (opal_common_ucx_devices, opal/mca/common/ucx/common_ucx.c).
	UCXByDefault bool
}

// PCIID is a PCI vendor and device; device 0 stands for any.
type PCIID struct{ Vendor, Device uint16 }

// Drivers is the one table of RDMA drivers: those of the kernel's
// drivers/infiniband, EFA, eRDMA and MANA among them, and HPE's cxi, which has a
// class of its own.
func Drivers() []Driver { return drivers }

var drivers = []Driver{
	{
		Name: "mlx5", Family: Verbs, PCI: []string{"mlx5_core"}, Prefixes: []string{"mlx5"}, Modules: []string{"mlx5_core", "mlx5_ib"},
		IDs: []PCIID{{0x15b3, 0}}, Uverbs: true, RoCE: true, UCXByDefault: true,
		// Connect-IB, ConnectX-4, 4 Lx, 5, 5 Ex, 6; 0x101e is ConnectX-6 Dx's and all later ones'
		VFs: []PCIID{{0x15b3, 0x1012}, {0x15b3, 0x1014}, {0x15b3, 0x1016}, {0x15b3, 0x1018}, {0x15b3, 0x101a}, {0x15b3, 0x101c}, {0x15b3, 0x101e}},
	},
	{
		Name: "mlx4", Family: Verbs, PCI: []string{"mlx4_core"}, Prefixes: []string{"mlx4"}, Modules: []string{"mlx4_core", "mlx4_ib"},
		IDs: []PCIID{{0x15b3, 0x1002}, {0x15b3, 0x1003}, {0x15b3, 0x1004}, {0x15b3, 0x1007}}, VFs: []PCIID{{0x15b3, 0x1004}},
		Uverbs: true, RoCE: true, UCXByDefault: true,
	},
	{
		Name: "bnxt_re", Family: Verbs, PCI: []string{"bnxt_en"}, Prefixes: []string{"bnxt_re"}, Modules: []string{"bnxt_en", "bnxt_re"},
		IDs: []PCIID{{0x14e4, 0}}, Uverbs: true, RoCE: true,
		VFs: []PCIID{{0x14e4, 0x16dc}, {0x14e4, 0x16c1}, {0x14e4, 0x1806}, {0x14e4, 0x1807}, {0x14e4, 0x1808}, {0x14e4, 0x1809}, {0x14e4, 0x1819}},
	},
	{
		Name: "irdma", Family: Verbs, PCI: []string{"ice", "i40e", "iavf", "idpf"}, Prefixes: []string{"irdma"}, Modules: []string{"ice", "irdma", "i40iw"},
		IDs: []PCIID{{0x8086, 0}}, VFs: []PCIID{{0x8086, 0x1889}, {0x8086, 0x154c}}, Uverbs: true, RoCE: true, TwoModes: true,
	},
	{
		Name: "ionic", Family: Verbs, Prefixes: []string{"ionic"}, Modules: []string{"ionic", "ionic_rdma"},
		IDs: []PCIID{{0x1dd8, 0}}, VFs: []PCIID{{0x1dd8, 0x1003}}, Uverbs: true, RoCE: true,
	},
	{Name: "hns", Family: Verbs, PCI: []string{"hns3"}, Prefixes: []string{"hns"}, Modules: []string{"hns_roce_hw_v2"}, Uverbs: true, RoCE: true},
	{Name: "hinic3", Family: Verbs, Modules: []string{"hinic3", "hiroce3"}, Uverbs: true, RoCE: true},
	{Name: "qedr", Family: Verbs, PCI: []string{"qede"}, Prefixes: []string{"qedr"}, Modules: []string{"qedr"}, Uverbs: true, RoCE: true},
	{Name: "ocrdma", Family: Verbs, PCI: []string{"be2net"}, Prefixes: []string{"ocrdma"}, Modules: []string{"ocrdma"}, Uverbs: true, RoCE: true},
	{Name: "vmw_pvrdma", Family: Verbs, Prefixes: []string{"vmw_pvrdma"}, Modules: []string{"vmw_pvrdma"}, Uverbs: true, RoCE: true},
	{Name: "mana_ib", Family: Verbs, PCI: []string{"mana"}, Prefixes: []string{"mana"}, Modules: []string{"mana_ib"}, Uverbs: true, RoCE: true, NoUD: true},
	// An RNIC by its node type; NCCL runs on it by its RoCE v2 entry (Alibaba's
	// documentation: NCCL_IB_HCA=erdma).
	{Name: "erdma", Family: Verbs, Prefixes: []string{"erdma"}, Modules: []string{"erdma"}, Uverbs: true, NoUD: true},
	{Name: "rxe", Family: Verbs, Prefixes: []string{"rxe"}, Modules: []string{"rdma_rxe"}, Uverbs: true, RoCE: true, Software: true},
	{Name: "siw", Family: IWARP, Prefixes: []string{"siw"}, Modules: []string{"siw"}, Uverbs: true, Software: true},
	{Name: "iw_cxgb4", Family: IWARP, PCI: []string{"cxgb4"}, Prefixes: []string{"cxgb4"}, Modules: []string{"cxgb4", "iw_cxgb4"}, Uverbs: true},
	{
		Name: "hfi1", Family: PSM, Prefixes: []string{"hfi1"}, Modules: []string{"hfi1"},
		IDs: []PCIID{{0x8086, 0x24f0}, {0x8086, 0x24f1}},
	},
	{Name: "qib", Family: PSM, PCI: []string{"ib_qib"}, Prefixes: []string{"qib"}, Modules: []string{"qib"}, IDs: []PCIID{{0x1077, 0x7322}}},
	{
		Name: "efa", Family: EFA, Prefixes: []string{"efa"}, Modules: []string{"efa"}, IDs: []PCIID{{0x1d0f, 0}},
		Uverbs: true, NCCLPlugin: "aws-ofi-nccl",
	},
	{
		Name: "cxi", Family: CXI, PCI: []string{"cxi_ss1", "cxi_core"}, Prefixes: []string{"cxi"}, Modules: []string{"cxi_core", "cxi_ss1", "cxi_user"},
		IDs: []PCIID{{0x17db, 0}}, NCCLPlugin: "aws-ofi-nccl, built for cxi",
	},
	{Name: "usnic", Family: Verbs, PCI: []string{"usnic_verbs"}, Prefixes: []string{"usnic"}, Modules: []string{"usnic_verbs"}, Uverbs: true},
}

// DriverNamed is what is known of a driver, by the name that HCA.Driver has. Of
// one that is not in the table nothing is known but that verbs programs open it.
func DriverNamed(name string) Driver {
	i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == name || slices.Contains(d.PCI, name) })
	if i < 0 {
		return Driver{Name: name, Family: Verbs, Uverbs: true, RoCE: true}
	}
	return drivers[i]
}

// KnownDriver says whether the table has a driver.
func KnownDriver(name string) bool {
	return slices.ContainsFunc(drivers, func(d Driver) bool { return d.Name == name })
}

// driverOfFunction is the RDMA driver by the driver of the PCI function below.
func driverOfFunction(pciDriver string) string {
	for _, d := range drivers {
		if slices.Contains(d.PCI, pciDriver) || d.Name == pciDriver && pciDriver != "" {
			return d.Name
		}
	}
	return ""
}

// driverOfID is the RDMA driver by the PCI ID: a device of its own goes before a
// vendor's any.
func driverOfID(vendor, device uint16) string {
	for _, want := range []uint16{device, 0} {
		for _, d := range drivers {
			if slices.Contains(d.IDs, PCIID{vendor, want}) {
				return d.Name
			}
		}
	}
	return ""
}

// OnlyVirtual says whether a PCI ID is one that only virtual functions have.
func OnlyVirtual(vendor, device uint16) bool {
	return slices.ContainsFunc(drivers, func(d Driver) bool { return slices.Contains(d.VFs, PCIID{vendor, device}) })
}

// DriverOf is the name of the RDMA driver of a device: by the function below
// (nil: none), by what the device says of itself, last by its name. virtual says
// that it hangs below sys/devices/virtual.
func DriverOf(c *HCA, dev *PCIDevice, virtual bool) string {
	if dev != nil {
		if name := driverOfFunction(dev.Driver); name != "" {
			return name
		}
		if dev.Vendor != nil && dev.Device != nil {
			if name := driverOfID(*dev.Vendor, *dev.Device); name != "" {
				return name
			}
		}
	}
	rnic := strings.HasPrefix(c.NodeType, "RNIC")
	switch {
	case (c.Parent != "" || virtual) && rnic:
		return "siw"
	case c.Parent != "":
		return "rxe"
	case strings.HasPrefix(c.BoardID, "MT_") && c.HCAType != "":
		// MT4113 (Connect-IB) to MT41692 (BlueField-3) and up; ConnectX-3 is MT4099
		// and MT4103, those before it MT25408 to MT26488.
		if n, err := strconv.Atoi(strings.TrimPrefix(c.HCAType, "MT")); err == nil {
			if n >= 4113 && n < 10000 || n >= 41000 {
				return "mlx5"
			}
			return "mlx4"
		}
	}
	for _, d := range drivers {
		if slices.ContainsFunc(d.Prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) }) {
			return d.Name
		}
	}
	if dev != nil {
		return dev.Driver
	}
	return ""
}

// Family is the software by which a device is used.
func (c *HCA) Family() Family {
	if c.Class == "cxi" {
		return CXI
	}
	d := DriverNamed(c.Driver)
	if strings.HasPrefix(c.NodeType, "RNIC") && (d.TwoModes || !KnownDriver(d.Name)) {
		return IWARP
	}
	return d.Family
}

// SpeaksRoCE says whether a device's Ethernet ports speak RoCE: GIDs, MTU and
// traffic classes mean something there.
func (c *HCA) SpeaksRoCE() bool { return c.Family() == Verbs && DriverNamed(c.Driver).RoCE }

// WatchedModules are the kernel modules that decide something here, in name
// order: those of the drivers, what RDMA and GPUs share, and what is below.
func WatchedModules() []string {
	out := []string{
		"8021q", "amdgpu", "bonding", "gdrdrv", "ib_cm", "ib_core", "ib_ipoib", "ib_peer_mem", "ib_umad", "ib_uverbs", "iw_cm", "knem",
		"mlx_compat", "nv_peer_mem", "nvidia", "nvidia_fs", "nvidia_peermem", "nvidia_uvm", "rdma_cm", "rdma_ucm", "xpmem",
	}
	for _, d := range drivers {
		out = append(out, d.Modules...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
