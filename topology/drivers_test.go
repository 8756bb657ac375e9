package topology

import "testing"

func id(v uint16) *uint16 { return &v }

func TestDriverOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		hca     HCA
		dev     *PCIDevice
		virtual bool
		want    string
		family  Family
	}{
		{"by the function's driver", HCA{Name: "rdma0"}, &PCIDevice{Driver: "mlx5_core"}, false, "mlx5", Verbs},
		{"by a PCI ID of its own before the vendor's any", HCA{Name: "x"}, &PCIDevice{Vendor: id(0x15b3), Device: id(0x1003)}, false, "mlx4", Verbs},
		{"by the vendor", HCA{Name: "x"}, &PCIDevice{Vendor: id(0x15b3), Device: id(0x1021)}, false, "mlx5", Verbs},
		{"Intel's Omni-Path is no irdma", HCA{Name: "x"}, &PCIDevice{Vendor: id(0x8086), Device: id(0x24f0)}, false, "hfi1", PSM},
		{"BlueField-3 by its type", HCA{Name: "x", BoardID: "MT_0000000884", HCAType: "MT41692"}, nil, false, "mlx5", Verbs},
		{"ConnectX-2 by its type", HCA{Name: "x", BoardID: "MT_0D90110009", HCAType: "MT26428"}, nil, false, "mlx4", Verbs},
		{"Soft-RoCE by its parent", HCA{Name: "roce0", Parent: "eth0", NodeType: "CA"}, nil, true, "rxe", Verbs},
		{"Soft-iWARP has a parent too", HCA{Name: "soft0", Parent: "eth0", NodeType: "RNIC"}, nil, true, "siw", IWARP},
		{"eRDMA is an RNIC that NCCL uses", HCA{Name: "erdma_0", NodeType: "RNIC"}, &PCIDevice{Driver: "erdma"}, false, "erdma", Verbs},
		{"irdma in RoCE mode", HCA{Name: "rocep24s0f0", NodeType: "CA"}, &PCIDevice{Driver: "ice"}, false, "irdma", Verbs},
		{"irdma in iWARP mode", HCA{Name: "iwp24s0f0", NodeType: "RNIC"}, &PCIDevice{Driver: "ice"}, false, "irdma", IWARP},
		{"an RNIC that nobody knows", HCA{Name: "new0", NodeType: "RNIC"}, &PCIDevice{Driver: "newrdma"}, false, "newrdma", IWARP},
		{"a CA that nobody knows", HCA{Name: "new0", NodeType: "CA"}, &PCIDevice{Driver: "newrdma"}, false, "newrdma", Verbs},
		{"Slingshot", HCA{Name: "cxi0", Class: "cxi"}, &PCIDevice{Driver: "cxi_ss1"}, false, "cxi", CXI},
		{"EFA renamed by udev", HCA{Name: "rdmap75s0"}, &PCIDevice{Driver: "efa"}, false, "efa", EFA},
	} {
		c := tc.hca
		c.Driver = DriverOf(&c, tc.dev, tc.virtual)
		if c.Driver != tc.want || c.Family() != tc.family {
			t.Errorf("%s: driver %q family %q, want %q %q", tc.name, c.Driver, c.Family(), tc.want, tc.family)
		}
	}
}

// Each name stands once, and nothing is asked of a device that it has not.
func TestDriversTable(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Drivers() {
		if seen[d.Name] || d.Name == "" || d.Family == "" || len(d.Modules) == 0 {
			t.Errorf("driver %+v: twice, or without name, family or modules", d)
		}
		seen[d.Name] = true
		if (d.Family == CXI || d.Family == PSM) && d.Uverbs {
			t.Errorf("%s needs no uverbs", d.Name)
		}
		if d.RoCE && d.Family != Verbs {
			t.Errorf("%s: RoCE without verbs", d.Name)
		}
	}
}
