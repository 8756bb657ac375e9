package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBuiltinsLoad(t *testing.T) {
	for _, i := range append(List(nil), ListWorkloads(nil)...) {
		if i.Err != nil {
			t.Errorf("%s: %v", i.Name, i.Err)
		}
		if i.About == "" || i.Source != BuiltIn {
			t.Errorf("%s: about %q, source %q", i.Name, i.About, i.Source)
		}
	}
}

func TestBuiltinsNameTheirSource(t *testing.T) {
	entries, err := builtins.ReadDir("builtin")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || e.Name() == "none.toml" {
			continue
		}
		text, err := builtins.ReadFile("builtin/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "#") {
			t.Errorf("%s: does not begin with where its numbers come from", e.Name())
		}
		if !strings.Contains(string(text), "\nname = \""+strings.TrimSuffix(e.Name(), ".toml")+"\"") {
			t.Errorf("%s: its name is another", e.Name())
		}
	}
}

func TestBuiltinTrafficClasses(t *testing.T) {
	for name, want := range map[string][2]int{ // traffic class, control class (-1 none)
		"roce-dscp26": {106, -1}, "roce-dscp31": {124, -1}, "oci-a100": {41, -1}, "oci-h100": {41, -1}, "oci-gb300": {41, -1}, "oci-mi300x": {41, -1},
		"oci-mi355x": {41, 185}, "oci-hpc": {105, -1}, "gcp-gib": {52, 84}, "coreweave-roce": {96, -1}, "alibaba-lingjun": {136, -1},
		"broadcom-thor2": {104, -1}, "amd-pollara": {104, -1}, "soft-roce": {106, -1}, "vmware-sriov": {106, -1}, "vmware-directpath": {106, -1},
	} {
		p, err := Load(nil, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := [2]int{p.Fabric.QoS.RDMA.TC(), -1}
		if c := p.Fabric.QoS.Control; c != nil {
			got[1] = c.TC()
		}
		if got != want {
			t.Errorf("%s: traffic classes %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"infiniband", "none", "aws-efa", "azure-ndv4", "azure-ndv5", "coreweave-ib", "oci-gb200", "gcp-a4x-max"} {
		p, err := Load(nil, name)
		if err != nil || p.Fabric.QoS != nil {
			t.Errorf("%s: %v, QoS %v, want none", name, err, p.Fabric.QoS)
		}
	}
}

func TestLayers(t *testing.T) {
	site, user := t.TempDir(), t.TempDir()
	write(t, site, "roce-dscp26.toml", "[fabric]\nsubnets = [\"10.10.0.0/16\"]\n[fabric.qos]\nrdma = { sl = 4 }\n[env]\nA = { value = \"1\", why = \"site\" }\nB = { value = \"2\", why = \"site\" }\n")
	write(t, user, "roce-dscp26.toml", "[env]\nA = { value = \"9\", why = \"user\" }\nC = { value = \"3\", why = \"user\" }\n")
	write(t, user, "mine.toml", "about = \"my own\"\n[fabric]\nlink_layer = \"infiniband\"\n")
	dirs := Dirs{site, user, filepath.Join(user, "absent"), ""}

	p, err := Load(dirs, "roce-dscp26")
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{{Name: "A", Value: "9", Why: "user"}, {Name: "B", Value: "2", Why: "site"}, {Name: "C", Value: "3", Why: "user"}}
	if d := cmp.Diff(want, p.Env); d != "" {
		t.Errorf("env (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Class{DSCP: 26, ECN: 2, Priority: ptr(3), SL: ptr(4)}, p.Fabric.QoS.RDMA); d != "" {
		t.Errorf("class: a later file changes what it says and keeps the rest (-want +got):\n%s", d)
	}
	if p.Source != filepath.Join(user, "roce-dscp26.toml") || len(p.Fabric.Subnets) != 1 || p.Fabric.LinkLayer != "ethernet" {
		t.Errorf("merged: %+v", p)
	}

	file := write(t, t.TempDir(), "x.toml", "name = \"roce-dscp26\"\n[fabric]\nroce_version = 1\n")
	p, err = Load(dirs, file)
	if err != nil || p.Fabric.RoCEVersion != 1 || *p.Fabric.QoS.RDMA.SL != 4 || p.Source != file {
		t.Errorf("a file named is merged over the profile of its name: %+v, %v", p, err)
	}
	file = write(t, t.TempDir(), "alone.toml", "[fabric]\nlink_layer = \"ethernet\"\n")
	if p, err = Load(dirs, file); err != nil || p.Fabric.QoS != nil {
		t.Errorf("a file of a new name stands alone: %+v, %v", p, err)
	}

	var names []string
	for _, i := range List(dirs) {
		if i.Source != BuiltIn {
			names = append(names, i.Name+" "+i.About)
		}
	}
	if d := cmp.Diff([]string{"mine my own", "roce-dscp26 RoCE v2, lossless on priority 3, DSCP 26"}, names); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown key", "name = \"x\"\n\n[fabric]\nlink_layr = \"ethernet\"\n", `:4: unknown key "fabric.link_layr"`},
		{"unknown table", "name = \"x\"\n\n[fabrics]\nlink_layer = \"ethernet\"\n", `:3: unknown key "fabrics"`},
		{"unknown key of an inline table", "[fabric.qos]\ntrust = \"dscp\"\nrdma = { dcsp = 26 }\n", `:3: unknown key "fabric.qos.rdma.dcsp"`},
		{"syntax", "name = \"x\"\nabout = \n", ":2: "},
		{"twice", "name = \"x\"\nname = \"y\"\n", ":2: "},
		{"wrong type", "[fabric]\nsubnets = \"10.0.0.0/8\"\n", ":2: fabric.subnets: "},
		{"text for a number", "[fabric]\n\nmin_mtu_bytes = \"4200\"\n", ":3: fabric.min_mtu_bytes: "},
		{"DSCP out of range", "[fabric.qos]\nrdma = { dscp = 106 }\n", ":2: fabric.qos.rdma.dscp: 106 is not between 0 and 63"},
		{"priority out of range", "[fabric.qos]\npfc = [3, 8]\n", ":2: fabric.qos.pfc: 8 is not between 0 and 7"},
		{"link layer", "[fabric]\nlink_layer = \"Ethernet\"\n", `:2: fabric.link_layer: "Ethernet" is not one of ethernet, infiniband`},
		{"subnet", "[fabric]\nsubnets = [\n  \"10.0.0.0/8\",\n  \"10.1\",\n]\n", `:2: fabric.subnets: "10.1" is not a subnet`},
		{"subnet with host bits", "[fabric]\nsubnets = [\"10.1.2.3/16\"]\n", `:2: fabric.subnets: "10.1.2.3/16" has bits after its prefix: meant is perhaps 10.1.0.0/16`},
		{"variable without reason", "[env]\nA = { value = \"1\" }\n", `:2: env.A: wants a reason`},
		{"variable without value", "[env]\nA = { why = \"x\" }\n", `:2: env.A: wants { value`},
		{"variable with a line break", "[env]\nA = { value = \"1\\n2\", why = \"x\" }\n", `:2: env.A: the value has a line break`},
		{"not a variable's name", "[env]\n\"A-B\" = { value = \"1\", why = \"x\" }\n", `:2: env.A-B: not a name of an environment variable`},
		{"ETS", "[fabric.qos]\nets = [50, 50]\n", ":2: fabric.qos.ets: wants 8 percentages"},
		{"ETS sum", "[fabric.qos]\nets = [50, 0, 0, 20, 0, 0, 0, 0]\n", ":2: fabric.qos.ets: the percentages sum to 70"},
		{"fraction", "[fabric.expect]\nwarn_fraction = 95.0\n", ":2: fabric.expect.warn_fraction: 95 is not a fraction"},
		{"ECN thresholds crossed", "[fabric.qos]\necn = { min_kb = 1500, max_kb = 150 }\n", ":2: fabric.qos.ecn: min_kb 1500 is above"},
		{"RoCE version on InfiniBand", "[fabric]\nlink_layer = \"infiniband\"\nroce_version = 2\n", ":3: fabric.roce_version: InfiniBand has no RoCE version"},
		{"bad PCI id", "[match]\npci = [\"15B3:1017\"]\n", ":2: match.pci: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, t.TempDir(), "p.toml", tt.text)
			_, err := Load(nil, file)
			if err == nil || !strings.Contains(err.Error(), file+tt.want) {
				t.Errorf("error %v, want …%s", err, tt.want)
			}
		})
	}
	file := write(t, t.TempDir(), "w.toml", "slots = \"cards\"\n")
	if _, err := LoadWorkload(nil, file); err == nil || !strings.Contains(err.Error(), `:1: slots: "cards" is none of`) {
		t.Errorf("workload: %v", err)
	}
}

func TestNotThere(t *testing.T) {
	_, err := Load(nil, "roce-dscp27")
	var unknown *UnknownError
	if !errors.As(err, &unknown) || len(unknown.Known) < 10 {
		t.Errorf("unknown name: %v", err)
	}
	if _, err := Load(Dirs{t.TempDir()}, "../../etc/passwd"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path is a file: %v", err)
	}
	dir := t.TempDir()
	write(t, dir, "a.toml", "name = \"b\"\n")
	if _, err := Load(Dirs{dir}, "a"); err == nil || !strings.Contains(err.Error(), `the file is called a.toml, but says name = "b"`) {
		t.Errorf("name and file differ: %v", err)
	}
	write(t, dir, "big.toml", strings.Repeat("# x\n", maxFile))
	if _, err := Load(Dirs{dir}, "big"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("size: %v", err)
	}
	write(t, dir, "c.toml", "[fabric.qos]\nrdma = { dscp = 26, priority = 3 }\npfc = [5]\n")
	if _, err := Load(Dirs{dir}, "c"); err == nil || !strings.Contains(err.Error(), "priority 3, but pfc names only [5]") {
		t.Errorf("priority without PFC: %v", err)
	}
}

func TestPropose(t *testing.T) {
	oci := []string{"", "OracleCloud.com"}
	for _, tt := range []struct {
		name string
		seen Seen
		want string // "" none
	}{
		{"a VF in a VMware guest", Seen{DMI: []string{"VMware, Inc.", "VMware7,1"}, PCI: []string{"15ad:07b0", "15b3:1018"}}, "vmware-sriov"},
		{"a NIC passed through", Seen{DMI: []string{"VMware, Inc."}, PCI: []string{"15b3:1017"}}, "vmware-directpath"},
		{"a VF and a NIC passed through: nothing tells", Seen{DMI: []string{"VMware, Inc."}, PCI: []string{"15b3:1017", "15b3:1018"}}, ""},
		{"EFA", Seen{DMI: []string{"Amazon EC2", "p5.48xlarge"}, PCI: []string{"1d0f:efa2"}}, "aws-efa"},
		{"EC2 without EFA", Seen{DMI: []string{"Amazon EC2"}, PCI: []string{"1d0f:ec20"}}, ""},
		{"Azure", Seen{DMI: []string{"Microsoft Corporation"}, Files: []string{"opt/microsoft/ndv5/topo.xml"}, LinkLayers: []string{"infiniband", "ethernet"}}, "azure-ndv5"},
		{"soft RoCE", Seen{HCAs: []string{"rxe_0"}}, "soft-roce"},
		{"Pollara at Oracle: the more evidence", Seen{DMI: oci, HCAs: []string{"ionic_0"}, PCI: []string{"1dd8:1002"}}, "oci-mi355x"},
		{"Pollara elsewhere", Seen{DMI: []string{"Dell Inc."}, HCAs: []string{"ionic_0"}, PCI: []string{"1dd8:1002"}}, "amd-pollara"},
		{"MI300X at Oracle", Seen{DMI: oci, PCI: []string{"1002:74a1", "15b3:1021"}, LinkLayers: []string{"ethernet"}}, "oci-mi300x"},
		{"MI300X elsewhere", Seen{DMI: []string{"Supermicro"}, PCI: []string{"1002:74a1", "15b3:1021"}, LinkLayers: []string{"ethernet"}}, ""},
		{"H100 at Oracle", Seen{DMI: oci, PCI: []string{"10de:2330", "15b3:1021"}, LinkLayers: []string{"ethernet"}}, "oci-h100"},
		{"Thor2", Seen{DMI: []string{"Supermicro"}, HCAs: []string{"bnxt_re0"}, PCI: []string{"14e4:1760"}, LinkLayers: []string{"ethernet"}}, "broadcom-thor2"},
		{"an older Broadcom card is no Thor2", Seen{HCAs: []string{"bnxt_re0"}, PCI: []string{"14e4:16d8"}}, ""},
		{"any Alibaba machine is no Lingjun", Seen{DMI: []string{"Alibaba Cloud", "Alibaba Cloud ECS"}, HCAs: []string{"erdma_0"}}, ""},
		{"Lingjun", Seen{DMI: []string{"Alibaba Cloud"}, HCAs: []string{"mlx5_bond_0"}, LinkLayers: []string{"ethernet"}}, "alibaba-lingjun"},
		{"udev's InfiniBand names are no CoreWeave", Seen{HCAs: []string{"ibp0"}, Netdevs: []string{"eth0"}, LinkLayers: []string{"infiniband"}}, ""},
		{"A3 Ultra", Seen{DMI: []string{"Google"}, Files: []string{"usr/local/gib/scripts/set_nccl_env.sh"}, PCI: []string{"10de:2335"}, Netdevs: []string{"gpu0rdma0"}, LinkLayers: []string{"ethernet"}}, "gcp-gib"},
		{"A4X Max", Seen{DMI: []string{"Google"}, Files: []string{"usr/local/gib/scripts/set_nccl_env.sh"}, Netdevs: []string{"gpu0rdma0", "gpu0rdma1"}, LinkLayers: []string{"ethernet"}}, "gcp-a4x-max"},
		{"netdevs of that name elsewhere", Seen{DMI: []string{"Dell Inc."}, Netdevs: []string{"gpu0rdma0"}}, ""},
		{"Slingshot", Seen{DMI: []string{"HPE", "HPE Cray EX254n"}, HCAs: []string{"cxi0"}}, "slingshot"},
		{"a plain server", Seen{DMI: []string{"Dell Inc.", "PowerEdge R740"}, PCI: []string{"15b3:1015"}, HCAs: []string{"mlx5_0"}, Netdevs: []string{"ens1f0"}}, ""},
		{"nothing", Seen{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Propose(nil, tt.seen)
			if len(tt.seen.Files) > 0 { // the same where they are looked for
				asked := tt.seen
				asked.Files, asked.Exists = nil, func(path string) bool { return slices.Contains(tt.seen.Files, path) }
				if again, same := Propose(nil, asked); same != ok || again != got {
					t.Errorf("%q %v where files are looked for, %q %v where they are known", again, same, got, ok)
				}
			}
			if got := got.Name; ok != (tt.want != "") || ok && got != tt.want {
				t.Errorf("%q %v, want %q", got, ok, tt.want)
			}
		})
	}
}

// TestMayFit: what is looked at in a profile's text before it is parsed passes over
// none that fits, and over most that do not.
func TestMayFit(t *testing.T) {
	parsed := 0
	for _, n := range names(nil, "") {
		p, err := Load(nil, n)
		if err != nil {
			t.Fatal(err)
		}
		m := p.Match
		star := func(patterns []string) (out []string) {
			for _, p := range patterns {
				out = append(out, strings.ReplaceAll(p, "*", "0"))
			}
			return out
		}
		last := func(list []string) []string { return list[max(0, len(list)-1):] }
		seen := Seen{DMI: last(m.DMI), PCI: last(m.PCI), HCAs: star(last(m.HCAs)), Netdevs: star(last(m.Netdevs)), Files: last(m.Files)}
		_, fits := m.Fits(seen)
		if got := mayFit(n, seen); got != fits {
			t.Errorf("%s: %v where all that it asks for is seen; it fits: %v", n, got, fits)
		}
		seen.Files, seen.Exists = nil, func(path string) bool { return slices.Contains(m.Files, path) }
		if got := mayFit(n, seen); got != fits {
			t.Errorf("%s: %v where all that it asks for is seen and its files exist; it fits: %v", n, got, fits)
		}
		if mayFit(n, Seen{DMI: []string{"Dell Inc."}, PCI: []string{"15b3:1021"}, HCAs: []string{"mlx5_0"}, LinkLayers: []string{"infiniband"}}) {
			parsed++
		}
	}
	if parsed > 1 {
		t.Errorf("%d profiles would be parsed on a plain server", parsed)
	}
}

// One profile stands for machines that differ in a file.
func TestValuesByPCI(t *testing.T) {
	p, err := Load(nil, "gcp-gib")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Env, func(s Setting) bool { return s.Name == "NCCL_TUNER_CONFIG_PATH" })
	for _, tt := range []struct {
		pci  []string
		want string
	}{
		{[]string{"10de:2335"}, "/usr/local/gib/configs/tuner_config_a3u.txtpb"},
		{[]string{"15b3:101e", "10de:2901"}, "/usr/local/gib/configs/tuner_config.txtpb"},
		{nil, "/usr/local/gib/configs/tuner_config_a3u.txtpb"},
	} {
		if got := p.Env[i].On(tt.pci); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.pci, got, tt.want)
		}
	}
}

// FuzzProfile: any text is a profile or an error that names the file; a
// profile that was accepted holds only possible values.
func FuzzProfile(f *testing.F) {
	entries, err := builtins.ReadDir("builtin")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if text, err := builtins.ReadFile("builtin/" + e.Name()); err == nil {
			f.Add(string(text))
		}
	}
	f.Add("[fabric]\nsubnets = [[]]\n")
	f.Add("[[fabric]]\n")
	f.Add("env = 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		var r rawProfile
		d, err := decode("f.toml", text, &r)
		if err == nil {
			err = d.checkProfile(&r)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.toml:") && !strings.Contains(err.Error(), "larger than") {
				t.Errorf("error does not say where: %v", err)
			}
			return
		}
		var p Profile
		p.overlay(d, &r)
		if q := p.Fabric.QoS; q != nil && (q.RDMA.DSCP < 0 || q.RDMA.DSCP > 63 || q.RDMA.TC() > 255) {
			t.Errorf("accepted DSCP %d, TC %d", q.RDMA.DSCP, q.RDMA.TC())
		}
	})
}

// A provider's profile says what the provider's own file says, and what it leaves
// to the host or says otherwise is one of the stated exceptions: GID index, device
// list, interface and log level are the host's.
func TestProvidersFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		pci  []string
		file string
	}{
		{"oci-a100", nil, "NCCL_IB_SPLIT_DATA_ON_QPS=0 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_TIMEOUT=22 NCCL_IGNORE_CPU_AFFINITY=1"},
		{"oci-h100", nil, "NCCL_CUMEM_ENABLE=0 NCCL_IB_SPLIT_DATA_ON_QPS=0 NCCL_IB_QPS_PER_CONNECTION=1 NCCL_IB_TIMEOUT=22 NCCL_IGNORE_CPU_AFFINITY=1"},
		{"oci-mi300x", nil, "NCCL_CUMEM_ENABLE=0 NCCL_IB_TIMEOUT=22 NCCL_IB_QPS_PER_CONNECTION=1 NCCL_IB_SPLIT_DATA_ON_QPS=0 NCCL_PXN_DISABLE=0 NCCL_NET_PLUGIN=none"},
		{"oci-mi355x", nil, "NCCL_GDR_FLUSH_DISABLE=1 RCCL_GDR_FLUSH_GPU_MEM_NO_RELAXED_ORDERING=0 NCCL_IB_QPS_PER_CONNECTION=2 NCCL_BUFFSIZE=16777216 NCCL_MAX_P2P_NCHANNELS=32 NCCL_IGNORE_CPU_AFFINITY=1 NCCL_PXN_DISABLE=0 NCCL_NET_OPTIONAL_RECV_COMPLETION=1 RCCL_IB_ABORT_ON_ERROR=1 NCCL_IB_USE_INLINE=1 NCCL_NET_PLUGIN=librccl-anp.so RCCL_LL128_FORCE_ENABLE=1"},
		{"oci-gb200", nil, "NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=1 NCCL_NET_PLUGIN=sys NCCL_NVLS_ENABLE=1"},
		{"oci-gb300", nil, "NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=1 NCCL_NET_PLUGIN=none NCCL_NVLS_ENABLE=1 NCCL_NET_GDR_C2C=1 NCCL_IB_TIMEOUT=22 NCCL_BUFFSIZE=16777216 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_DMABUF_ENABLE=1 NCCL_IB_SPLIT_DATA_ON_QPS=1"},
		{"oci-gb300", []string{"10de:2941"}, "NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=1 NCCL_NET_PLUGIN=none NCCL_NVLS_ENABLE=1 NCCL_NET_GDR_C2C=1 NCCL_IB_TIMEOUT=22 NCCL_BUFFSIZE=16777216 NCCL_IB_QPS_PER_CONNECTION=1 NCCL_DMABUF_ENABLE=1 NCCL_IB_SPLIT_DATA_ON_QPS=1"},
		{"gcp-gib", []string{"10de:2335"}, "NCCL_NET=gIB NCCL_CROSS_NIC=0 NCCL_NET_GDR_LEVEL=PIX NCCL_P2P_NET_CHUNKSIZE=131072 NCCL_NVLS_CHUNKSIZE=524288 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_TUNER_CONFIG_PATH=/usr/local/gib/configs/tuner_config_a3u.txtpb"},
		{"aws-efa", nil, "FI_PROVIDER=efa FI_EFA_FORK_SAFE=1"},
	} {
		p, err := Load(nil, tt.name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range p.Env {
			got = append(got, e.Name+"="+e.On(tt.pci))
		}
		want := strings.Fields(tt.file)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s %v:\n got %v\nwant %v", tt.name, tt.pci, got, want)
		}
	}
}

// TestPartsAreBounded: a key of thousands of parts, and tables as deep, are refused
// before the TOML reader sees them: its cost grows with their square.
func TestPartsAreBounded(t *testing.T) {
	for text, line := range map[string]int{
		"name = \"x\"\n" + strings.Repeat("a.", 3000) + "a = 1\n":       2,
		"name = \"x\"\n\n[" + strings.Repeat("a.", 3000) + "a]\n":       3,
		"name = \"x\"\na = " + strings.Repeat("[", 100_000):             2,
		"\"#\"." + strings.Repeat("a.", 3000) + "a = 1\n":               1,
		"name = \"x\"\na = " + strings.Repeat("{a=", 100_000):           2,
		"name = \"x\"\na = {" + strings.Repeat("\"b c\" . ", 100) + "b": 2,
	} {
		if got, deep := tooDeep(text); !deep || got != line {
			t.Errorf("%.40q: %v at line %d, want line %d", text, deep, got, line)
		}
	}
	for _, text := range []string{
		"# " + strings.Repeat(".", 300) + "\n", "a = 1 # " + strings.Repeat("[", 300) + "\n", "about = \"" + strings.Repeat("A sentence. ", 300) + "\"\n", "about = \"\"\"\n" + strings.Repeat("[[[ a.b.c\n", 300) + "\"\"\"\nx = 1\n", strings.Repeat("[fabric.qos]\npfc = [3]\n", 1000), strings.Repeat("a.b.c = {x = [1, 2]}\n", 1000),
	} {
		if line, deep := tooDeep(text); deep {
			t.Errorf("%.40q: refused at line %d", text, line)
		}
	}
}
