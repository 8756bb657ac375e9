package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// shown renders what a parser returned: the value, "?" for unknown, or "!".
func shown[T any](v *T, err error) string {
	switch {
	case err != nil:
		return "!"
	case v == nil:
		return "?"
	}
	return fmt.Sprint(*v)
}

func TestParsers(t *testing.T) {
	one := func(parse func(string) (*int, error)) func(string) string {
		return func(s string) string { return shown(parse(s)) }
	}
	for _, c := range []struct {
		name  string
		parse func(string) string
		cases map[string]string
	}{
		{"PCI speed", one(parsePCISpeed), map[string]string{
			"16.0 GT/s PCIe": "16000", "8 GT/s": "8000", "2.5 GT/s PCIe": "2500", "64.0 GT/s PCIe": "64000", "Unknown speed": "?", "Unknown": "?", "": "?", "fast": "!", "7 GT/s": "!",
		}},
		{"PCI width", one(parsePCIWidth), map[string]string{"16": "16", "0": "?", "255": "?", "x8": "!"}},
		{"NUMA", one(parseNUMA), map[string]string{"0": "0", "-1": "?", "3\n": "3", "": "!", "one": "!"}},
		{"rate", func(s string) string { return shown(parseRate(s)) }, map[string]string{
			"100 Gb/sec (4X EDR)": "100", "2.5 Gb/sec (1X)": "2.5", "800 Gb/sec (4X XDR)": "800", "0 Gb/sec (4X)": "?", "NaN Gb/sec": "!", "100": "!",
		}},
		{"state", parseState, map[string]string{"4: ACTIVE": "ACTIVE", "5: LinkUp": "LinkUp", "ACTIVE": "ACTIVE", "7: Phy Test": "Phy Test"}},
		{"GID", func(s string) string {
			a, err := parseGID(s)
			if err != nil {
				return "!"
			}
			return a.String() + " " + string(gidKind(a, "Ethernet"))
		}, map[string]string{
			"0000:0000:0000:0000:0000:ffff:0a00:0001\n": "::ffff:10.0.0.1 ipv4", "fe80:0000:0000:0000:0e42:a1ff:fe12:3456": "fe80::e42:a1ff:fe12:3456 link-local",
			"2001:0db8:0000:0000:0000:0000:0000:0001": "2001:db8::1 ipv6", "10.0.0.1": "!", "": "!", "fe80::1%eth0": "!",
		}},
		{"CPU mask", func(s string) string {
			cpus, err := parseMask(s)
			if err != nil {
				return "!"
			}
			return topology.FormatCPUs(cpus)
		}, map[string]string{"ff": "0-7", "00000001,00000000": "32", "0x3,ffffffff": "0-33", "0": "", "": "!", "g": "!"}},
		{"memory", func(s string) string { return shown(parseMemTotal(s)) }, map[string]string{
			"MemTotal:       1024 kB\nMemFree: 3 kB": "1048576", "Node 0 MemTotal: 2 kB": "2048", "MemFree: 1 kB": "!", "MemTotal: x kB": "!",
		}},
		{"BAR", func(s string) string { return shown(parseResource(s), nil) }, map[string]string{
			"0x0000000000000000 0x0000000000000000 0x0000000000000000\n0x000021a000000000 0x000021bfffffffff 0x000000000014220c\n": "137438953472",
			"0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n":                                                           "?", "": "?",
		}},
	} {
		for in, want := range c.cases {
			if got := c.parse(in); got != want {
				t.Errorf("%s %q: %s, want %s", c.name, in, got, want)
			}
		}
	}
}

func TestIsBDF(t *testing.T) {
	for s, want := range map[string]bool{
		"0000:3b:00.0": true, "10000:01:00.0": true, "c7ca:00:00.0": true, "00000000:3b:00.0": true,
		"0000:3B:00.0": false, "3b:00.0": false, "0000:3b:00.8": false, "0000:3b:00": false, "pci0000:3b": false, "": false, "000000000:3b:00.0": false,
	} {
		if isBDF(s) != want {
			t.Errorf("isBDF(%q) = %v", s, !want)
		}
	}
}

func TestRoCEMTU(t *testing.T) {
	for netdev, want := range map[int]int{9000: 4096, 4200: 4096, 4192: 4096, 4191: 2048, 1500: 1024, 576: 256, 100: 0} {
		if got := roceMTU(netdev); got != want {
			t.Errorf("roceMTU(%d) = %d, want %d", netdev, got, want)
		}
	}
}

// Every parser of a file takes anything without a panic.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{
		"0-3,8", "ff,00000000", "16.0 GT/s PCIe", "100 Gb/sec (4X EDR)", "4: ACTIVE", "0000:0000:0000:0000:0000:ffff:0a00:0001", "MemTotal: 1 kB", "10 21",
		"PRETTY_NAME=\"x\"", "0x0 0x1 0x14220c", "vendor_id : x\nflags : hypervisor", "location_id 1280", "DRIVER=x\nPCI_ID=15B3:1021",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if cpus, err := parseMask(s); err == nil {
			// A mask written and read is the same CPUs.
			again, err := parseMask(formatMask(cpus))
			if err != nil || !slices.Equal(cpus, again) {
				t.Errorf("%v %v %v", cpus, again, err)
			}
		}
		_, _ = parsePCISpeed(s)
		_, _ = parsePCIWidth(s)
		_, _ = parseNUMA(s)
		_, _ = parseRate(s)
		_, _ = parseGID(s)
		_, _ = parseDistances(s)
		_, _ = parseMemTotal(s)
		_ = parseState(s)
		_ = parseOSRelease(s)
		_ = parseResource(s)
		_ = kfdProperties(s)
		_ = isRootBus(s)
		if isBDF(s) {
			if n, ok := normalBDF(s); !ok || topology.ComparePCI(s, s) != 0 {
				t.Errorf("%q %q", s, n)
			}
		}
		parseCPUInfo(s, &topology.CPU{})
		parseUevent(s, func(string, string) {})
	})
}

func FuzzReadXML(f *testing.F) {
	f.Add(`<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"><pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16"><pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:03:00.0" count="4" tclass="0x068000"/><c2c bw="1" count="1"/></gpu></pci><nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="1" gdr="1"/></nic></pci></cpu></system>`)
	f.Add(`<system version="2"><cpu numaid="-1"><nic><net name="eth0" dev="0"/></nic><pci/></cpu></system>`)
	f.Fuzz(func(t *testing.T, text string) {
		h, _, err := ReadXML(strings.NewReader(text))
		if err != nil {
			return
		}
		topology.Judge(h, topology.Paths(h))
		ValidateXML(h, h)
		// What we write of it, we read.
		var b strings.Builder
		if err := WriteXML(&b, h); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadXML(strings.NewReader(b.String())); err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
	})
}

func TestXMLFindings(t *testing.T) {
	const good = `<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:03:00.0" count="4" tclass="0x068000"/></gpu>
</pci>
<pci busid="0000:03:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="1" gdr="1"/></nic>
</pci>
</cpu>
</system>`
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing wrong", "", "", ""},
		{"no version", ` version="1"`, "", "error xml.version 1"},
		{"another version", `version="1"`, `version="3"`, "error xml.version 1"},
		{"no busid", `busid="0000:02:00.0" `, "", "error xml.missing-attribute 3"},
		{"odd busid", `busid="0000:02:00.0"`, `busid="02:00"`, "error xml.busid 3"},
		{"the same device twice", `busid="0000:03:00.0"`, `busid="0000:02:00.0"`, "error xml.busid-twice 6"},
		{"no class in a dump", `busid="0000:03:00.0" class="0x020000"`, `busid="0000:03:00.0"`, "error xml.missing-attribute 6"},
		{"no numaid", `numaid="0" `, "", "error xml.missing-attribute 2"},
		{"no sm", ` sm="90"`, "", "error xml.missing-attribute 4"},
		{"no tclass", ` tclass="0x068000"`, "", "error xml.missing-attribute 4"},
		{"width in words", `link_width="16">` + "\n<gpu", `link_width="wide">` + "\n<gpu", "error xml.not-a-number 3"},
		{"affinity in words", `affinity="ff"`, `affinity="all"`, "warning xml.affinity 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := good
			if c.old != "" {
				text = strings.Replace(good, c.old, c.new, 1)
				if text == good {
					t.Fatal("nothing replaced")
				}
			}
			_, found, err := ReadXML(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(found) > 0 {
				got = fmt.Sprintf("%s %s %s", found[0].Severity, found[0].ID, strings.TrimPrefix(found[0].Subject, "topology XML line "))
			}
			if got != c.want {
				t.Errorf("got %q, want %q\n%v", got, c.want, found)
			}
			worst, ok := finding.Worst(found)
			if ok != (c.want != "") || ok && !strings.HasPrefix(c.want, string(worst)) {
				t.Errorf("worst %v", worst)
			}
		})
	}
}

func TestMemoryChannels(t *testing.T) {
	const node = `-- sys/devices/system/cpu/cpu0/topology/physical_package_id --
0
-- sys/devices/system/cpu/cpu0/topology/thread_siblings_list --
0
-- sys/devices/system/cpu/cpu1/topology/physical_package_id --
1
-- sys/devices/system/cpu/cpu1/topology/thread_siblings_list --
1
-- sys/devices/system/cpu/online --
0-1
-- sys/devices/system/node/node0/cpulist --
0
-- sys/devices/system/node/node1/cpulist --
1
`
	mc := func(num int, name string, dimms ...string) string {
		dir := fmt.Sprintf("sys/devices/system/edac/mc/mc%d/", num)
		s := fmt.Sprintf("-- %smc_name --\n%s\n", dir, name)
		for i, loc := range dimms {
			loc, size, _ := strings.Cut(loc, "/")
			if size == "" {
				size = "16384"
			}
			s += fmt.Sprintf("-- %sdimm%d/dimm_location --\n%s\n-- %sdimm%d/size --\n%s\n", dir, i, loc, dir, i, size)
		}
		return s
	}
	for _, c := range []struct{ name, text, want string }{
		{"none", "", "map[]"},
		{"Intel, two controllers a socket, two slots a channel", mc(0, "Skylake Socket#0 IMC#0", "channel 0 slot 0", "channel 0 slot 1", "channel 1 slot 0") +
			mc(1, "Skylake Socket#0 IMC#1", "channel 0 slot 0") + mc(2, "Skylake Socket#1 IMC#0", "channel 0 slot 0"), "map[0:3 1:1]"},
		{"AMD", mc(0, "F17h_M30h", "csrow 0 channel 0", "csrow 1 channel 0", "csrow 0 channel 1") + mc(1, "F17h_M30h", "csrow 0 channel 5"), "map[0:2 1:1]"},
		{"empty slot", mc(0, "Broadwell SrcID#1_Ha#0", "channel 0 slot 0/0", "channel 1 slot 0"), "map[1:1]"},
		{"somebody else's name", mc(0, "ie31200", "channel 0 slot 0"), "map[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := Read(mustSnapshot(t, "fabrun-snapshot 1\n"+node+c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(h.CPU.MemoryChannels); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
