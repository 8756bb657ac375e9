package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// summary is what of a Host a person would check first, one line each.
func summary(h topology.Host) []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
	word := func(p *int) string {
		if p == nil {
			return "?"
		}
		return fmt.Sprint(*p)
	}
	if h.Hidden != "" {
		say("hidden")
	}
	for _, g := range h.GPUs {
		visible := ""
		if g.Visible != nil {
			visible = fmt.Sprintf(" visible=%v", *g.Visible)
		}
		say("gpu %s %s numa=%s%s", g.Vendor, g.PCI, word(g.NUMA), visible)
	}
	for _, c := range h.HCAs {
		marks := ""
		if c.VF {
			marks += " VF"
			if c.PF != "" {
				marks += " of " + c.PF
			}
		}
		if c.Bond {
			marks += " bond"
		}
		if c.DataDirect != "" {
			marks += " dd=" + c.DataDirect
		}
		say("hca %s %s %s numa=%s%s", c.Name, c.Driver, c.PCI, word(c.NUMA), marks)
		for _, p := range c.Ports {
			rate := "?"
			if p.RateGbps != nil && p.RateTrusted {
				rate = fmt.Sprint(*p.RateGbps)
			}
			var gids []string
			for _, g := range p.GIDs {
				if g.Type == "RoCE v2" {
					gids = append(gids, fmt.Sprintf("%d=%s@%s", g.Index, g.Addr.Unmap(), g.Netdev))
				}
			}
			say("  port %d %s %s %s %s mtu=%s zero=%d %s", p.Number, p.State, p.LinkLayer, rate, p.Netdev, word(p.ActiveMTU), p.GIDZero, strings.Join(gids, " "))
		}
	}
	for _, p := range topology.Paths(h) {
		if len(h.GPUs) <= 4 {
			to := p.HCA
			if to == "" {
				to = p.To
			}
			say("%s %s %s/%s", p.From, to, p.NCCL, p.SMI)
		}
	}
	for _, f := range topology.Judge(h, topology.Paths(h)) {
		say("%s %s", f.Severity, f.ID)
	}
	return out
}

func TestMachines(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string // lines that must be there, in this order
	}{
		{"cx4lx-12node", []string{
			"hca mlx5_0 mlx5 0000:03:00.0 numa=0",
			"  port 1 ACTIVE Ethernet 25 ens1f0np0 mtu=1024 zero=252 1=fe80::ba3f:d2ff:fe41:1@ens1f0np0 3=10.1.4.1@ens1f0np0",
			"hca mlx5_1 mlx5 0000:03:00.1 numa=0",
			"  port 1 DOWN Ethernet 40 ens1f1np1 mtu=1024 zero=254 1=fe80::ba3f:d2ff:fe41:2@ens1f1np1",
		}},
		{"numa-off", []string{
			"gpu nvidia 0000:1a:00.0 numa=?", "hca mlx5_0 mlx5 0000:1b:00.0 numa=?",
			"0000:1a:00.0 mlx5_0 PIX/PIX", "0000:1a:00.0 mlx5_1 PHB/NODE", "warning topo.numa-off",
		}},
		{"nps4", []string{"gpu nvidia 0000:21:00.0 numa=3", "0000:21:00.0 mlx5_0 PHB/NODE", "0000:41:00.0 mlx5_0 SYS/SYS", "warning topo.gpu-far", "note topo.gpu-other-numa"}},
		{"domains", []string{"0000:03:00.0 mlx5_0 PIX/PIX", "0000:03:00.0 mlx5_1 SYS/SYS", "0001:03:00.0 mlx5_1 PIX/PIX"}},
		{"vf-beside-pf", []string{"hca mlx5_0 mlx5 0000:18:00.0 numa=0", "hca mlx5_1 mlx5 0000:18:00.1 numa=0 VF of mlx5_0", "hca mlx5_2 mlx5 0000:18:00.2 numa=0 VF of mlx5_0"}},
		{"vf-in-vm", []string{"hidden", "hca mlx5_0 mlx5 0000:01:00.0 numa=? VF", "  port 1 ACTIVE Ethernet 100 enp1s0v0 mtu=4096 zero=252", "0000:02:00.0 mlx5_0 /", "warning topo.hidden"}},
		{"vm-flat", []string{"hidden", "gpu nvidia 0001:00:00.0 numa=0", "hca mlx5_ib0 mlx5 0101:00:00.0 numa=0 VF", "  port 1 ACTIVE InfiniBand 400 ib0 mtu=? zero=7", "warning topo.hidden"}},
		{"bonds", []string{
			"hca mlx5_bond_0 mlx5 0000:18:00.0 numa=0 bond",
			"  port 1 ACTIVE Ethernet 100 bond0 mtu=4096 zero=248 1=fe80::ba3f:d2ff:fe99:1@bond0 3=10.10.0.9@bond0 5=fe80::ba3f:d2ff:fe99:1@bond0.100 7=10.100.0.9@bond0.100",
		}},
		{"names", []string{
			"hca bnxt_re0 bnxt_re 0000:19:00.0 numa=0", "hca efa_0 efa 0000:60:1b.0 numa=1", "hca ibp49s0 mlx5 0000:31:00.0 numa=1", "hca irdma0 irdma 0000:1a:00.0 numa=0",
			"hca rdma0 ionic 0000:1b:00.0 numa=0", "hca rocep24s0f0 mlx5 0000:18:00.0 numa=0", "hca rxe_0 rxe  numa=?", "  port 1 ACTIVE Ethernet ? eno1 mtu=1024 zero=1020",
		}},
		{"cx8-data-direct", []string{"hca mlx5_0 mlx5 0000:16:00.0 numa=0 dd=0000:3e:00.0", "0000:3d:00.0 mlx5_0 PIX/PIX"}},
		{"gpus-hidden", []string{"gpu nvidia 0000:13:00.0 numa=0 visible=false", "gpu nvidia 0000:83:00.0 numa=1 visible=false", "gpu nvidia 0000:9f:00.0 numa=1 visible=true", "note topo.gpus-hidden"}},
		{"grace-c2c", []string{"0009:01:00.0 mlx5_0 P2C/NODE", "0009:01:00.0 mlx5_1 SYS/SYS"}},
		{"amd-xgmi", []string{"gpu amd 0000:07:00.0 numa=0 visible=false", "gpu amd 0000:c7:00.0 numa=1 visible=true", "hca bnxt_re0 bnxt_re 0000:08:00.0 numa=0", "0000:07:00.0 0000:47:00.0 NVL/NVL"}},
		{"slingshot", []string{"hca cxi0 cxi 0000:c1:00.0 numa=0", "  port 1 ACTIVE Ethernet 200 hsn0 mtu=? zero=0", "hca cxi1 cxi 0000:d1:00.0 numa=1"}},
		{"no-gpu", []string{"hca mlx5_0 mlx5 0000:18:00.0 numa=0"}},
		{"no-hca", []string{"gpu nvidia 0000:18:00.0 numa=0", "gpu nvidia 0000:b2:00.0 numa=1"}},
		{"neither", nil},
		{"pod-bare", []string{"hca mlx5_0 mlx5 0000:1b:00.0 numa=0"}},
		{"ib", []string{"  port 1 ACTIVE InfiniBand 200 ib0 mtu=? zero=0"}},
		{"ib-no-sm", []string{"  port 1 INIT InfiniBand 200 ib0 mtu=? zero=0"}},
		{"far-rails", []string{"0000:b4:00.0 mlx5_0 SYS/SYS", "0000:b4:00.0 0000:b5:00.0 PIX/PIX", "warning topo.gpu-far", "warning topo.link-degraded"}},
		// NCCL takes the chip's two levels for one switch, nvidia-smi does not.
		{"pex", []string{"0000:25:00.0 mlx5_0 PIX/PXB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := slices.IndexFunc(snapshots(t), func(s namedSnapshot) bool { return s.name == c.name })
			h, err := Read(mustSnapshot(t, snapshots(t)[i].text))
			if err != nil {
				t.Fatal(err)
			}
			got := summary(h)
			from := 0
			for _, line := range c.want {
				k := slices.IndexFunc(got[from:], func(s string) bool { return s == line || strings.HasPrefix(s, line+" ") })
				if k < 0 {
					t.Fatalf("no line %q after line %d of\n%s", line, from, strings.Join(got, "\n"))
				}
				from += k + 1
			}
			if len(h.Unreadable) > 0 {
				t.Errorf("unreadable: %v", h.Unreadable)
			}
		})
	}
}

// What is written as XML is read back as the same devices and distances, and
// accepted without an error.
func TestXMLRoundTrip(t *testing.T) {
	for _, c := range snapshots(t) {
		t.Run(c.name, func(t *testing.T) {
			h, err := Read(mustSnapshot(t, c.text))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := WriteXML(&b, h); err != nil {
				t.Fatal(err)
			}
			x, found, err := ReadXML(strings.NewReader(b.String()))
			if err != nil {
				t.Fatal(err)
			}
			if worst, _ := finding.Worst(found); worst == finding.Error {
				t.Errorf("%v\n%s", found, b.String())
			}
			if found := ValidateXML(h, x); len(found) > 0 && len(h.GPUs) > 0 && len(h.HCAs) > 0 {
				t.Errorf("validate: %v\n%s", found, b.String())
			}
			h.Hidden = ""
			types := func(h topology.Host) map[string]topology.PathType {
				m := map[string]topology.PathType{}
				for _, p := range topology.Paths(h) {
					to := p.HCA
					if to == "" {
						to = p.To
					}
					m[p.From+" "+to] = p.NCCL
				}
				return m
			}
			for i := range h.HCAs {
				h.HCAs[i].DataDirect = "" // NCCL learns of it from the NIC, not from a file
			}
			want, got := types(h), types(x)
			hasSM := slices.ContainsFunc(x.GPUs, func(g topology.GPU) bool { return g.Capability != "" })
			for pair, w := range want {
				// Links and names of GPUs are written only with their capability.
				if !hasSM && (w == topology.NVL || w == topology.P2C) {
					delete(want, pair)
					delete(got, pair)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d, b.String())
			}
		})
	}
}

// NVSwitches that this machine does not see are written and read as NCCL does.
func TestXMLUnseenSwitch(t *testing.T) {
	const file = `<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="100" rank="0" gdr="1">%s</gpu></pci>
</cpu>
</system>`
	for _, c := range []struct{ name, link, want string }{
		{"as NCCL dumps it", `<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>`, `<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>`},
		{"no class, which NCCL fills in", `<nvlink target="fffffff:ffff:ff" count="18"/>`, `<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>`},
		{"a switch that it sees", `<nvlink target="0000:05:00.0" count="4" tclass="0x068000"/>`, `<nvlink target="0000:05:00.0" count="4" tclass="0x068000"/>`},
		{"a peer GPU", `<nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>`, `<nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _, err := ReadXML(strings.NewReader(fmt.Sprintf(file, c.link)))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := WriteXML(&b, h); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), c.want) {
				t.Errorf("no %s in\n%s", c.want, b.String())
			}
		})
	}
}
