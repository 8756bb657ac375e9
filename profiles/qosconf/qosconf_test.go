package qosconf

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/testdata/realdata"
	"fabrun/topology/finding"

	"github.com/google/go-cmp/cmp"
)

func dscp26() profiles.Profile {
	return profiles.Profile{Name: "roce-dscp26", Fabric: profiles.Fabric{
		LinkLayer: "ethernet", MinMTUBytes: ptr(4200),
		QoS: &profiles.QoS{
			Trust: "dscp", RDMA: profiles.Class{DSCP: 26, ECN: 2, Priority: ptr(3)}, CNP: &profiles.Class{DSCP: 48, Priority: ptr(6)},
			PFC: []int{3}, ECNMinKB: ptr(150), ECNMaxKB: ptr(1500), Pool: ptr(50),
		},
	}}
}

func plan26(t testing.TB) Plan {
	t.Helper()
	p, err := FromProfile(dscp26())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bare drops comments and blank lines.
func bare(lines []string) []string {
	var out []string
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, "!") {
			out = append(out, l)
		}
	}
	return out
}

// TestPublishedSetups: the three published setups come out of one plan.
func TestPublishedSetups(t *testing.T) {
	p := plan26(t)
	for _, tc := range []struct {
		dialect string
		o       SwitchOptions
		want    []string // in this order, other lines between them
	}{
		{"arista", SwitchOptions{Ports: "1/1-3/4"}, []string{
			"interface Ethernet1/1-3/4", "qos trust dscp", "priority-flow-control on", "priority-flow-control priority 3 no-drop",
			"uc-tx-queue 3", "random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes max-mark-probability 100",
			"uc-tx-queue 6", "priority strict",
		}},
		{"onyx", SwitchOptions{Ports: "1/1-1/32"}, []string{
			"traffic pool roce type lossless", "traffic pool roce memory percent 50.00", "traffic pool roce map switch-priority 3",
			"interface ethernet 1/1-1/32 qos trust L3",
			"interface ethernet 1/1-1/32 traffic-class 3 congestion-control ecn minimum-absolute 150 maximum-absolute 1500",
			"interface ethernet 1/1-1/32 traffic-class 6 dcb ets strict",
		}},
		{"esxi", SwitchOptions{MaxVFs: []int{4, 4}}, []string{
			`esxcli system module parameters set -m nmlx5_core -p "pfctx=0x08 pfcrx=0x08 trust_state=2 max_vfs=4,4 ecn=1"`,
			`esxcli system module parameters set -m nmlx5_rdma -p "dscp_force=26"`,
			"/opt/mellanox/bin/mlxconfig -y -d <device> set LINK_TYPE_P1=2 LINK_TYPE_P2=2 SRIOV_EN=1 NUM_OF_VFS=16",
		}},
	} {
		t.Run(tc.dialect, func(t *testing.T) {
			lines, err := p.Switch(tc.dialect, tc.o)
			if err != nil {
				t.Fatal(err)
			}
			got := bare(lines)
			for _, want := range tc.want {
				i := slices.Index(got, want)
				if i < 0 {
					t.Fatalf("no line %q, or out of order, in:\n%s", want, strings.Join(lines, "\n"))
				}
				got = got[i+1:]
			}
		})
	}
}

// TestFormsAgree: what is written for a switch reads back as the same plan,
// for plans of every shape.
func TestFormsAgree(t *testing.T) {
	for name, change := range map[string]func(*profiles.Profile){
		"as published":    func(*profiles.Profile) {},
		"DSCP remapped":   func(p *profiles.Profile) { p.Fabric.QoS.RDMA.DSCP = 10 },
		"pcp":             func(p *profiles.Profile) { p.Fabric.QoS.Trust = "pcp" },
		"two lossless":    func(p *profiles.Profile) { p.Fabric.QoS.PFC = []int{3, 4} },
		"priority 5":      func(p *profiles.Profile) { p.Fabric.QoS.RDMA.Priority = ptr(5); p.Fabric.QoS.PFC = []int{5} },
		"no pool":         func(p *profiles.Profile) { p.Fabric.QoS.Pool = nil },
		"no thresholds":   func(p *profiles.Profile) { p.Fabric.QoS.ECNMinKB = nil },
		"lossy":           func(p *profiles.Profile) { p.Fabric.QoS.PFC = nil },
		"ets":             func(p *profiles.Profile) { p.Fabric.QoS.ETS = []int{20, 0, 0, 80, 0, 0, 0, 0} },
		"no cnp":          func(p *profiles.Profile) { p.Fabric.QoS.CNP = nil },
		"nothing said":    func(p *profiles.Profile) { p.Fabric.QoS = &profiles.QoS{RDMA: profiles.Class{DSCP: 26}} },
		"with a watchdog": func(p *profiles.Profile) { p.Fabric.QoS.Watchdog = ptr(true) },
	} {
		for _, dialect := range []string{"arista", "onyx", "nvue", "nxos", "sonic"} {
			t.Run(name+" "+dialect, func(t *testing.T) {
				prof := dscp26()
				change(&prof)
				plan, err := FromProfile(prof)
				if err != nil {
					t.Fatal(err)
				}
				ports := "1/1-1/4"
				if dialect == "sonic" {
					ports = "Ethernet0,Ethernet4"
				}
				lines, err := plan.Switch(dialect, SwitchOptions{Ports: ports})
				if err != nil {
					t.Fatal(err)
				}
				sw := ReadSwitch(strings.Join(lines, "\n"))
				c := Compare(sw, &plan)
				if whole := name == "as published" || name == "two lossless" || name == "priority 5"; whole && c.Verdict != Good {
					t.Errorf("verdict %s, %+v\n%s", c.Verdict, c.Aspects, strings.Join(lines, "\n"))
				}
				if got := c.Findings; len(got) > 0 {
					t.Errorf("the plan's own configuration is not it: %+v\n%s", got, strings.Join(lines, "\n"))
				}
			})
		}
	}
}

func TestHostCommands(t *testing.T) {
	p := plan26(t)
	got := bare(p.Host([]Target{{Netdev: "ens1f0np0", HCA: "mlx5_0"}, {Netdev: "a b;reboot", HCA: "bnxt_re0"}}))
	want := []string{
		"ip link set dev ens1f0np0 mtu 4200",
		"ethtool -A ens1f0np0 autoneg off rx off tx off",
		"mlnx_qos -i ens1f0np0 --trust=dscp",
		"mlnx_qos -i ens1f0np0 --pfc=0,0,0,1,0,0,0,0",
		"dcb app replace dev ens1f0np0 dscp-prio 26:3 48:6",
		"dcb pfc set dev ens1f0np0 prio-pfc all:off 3:on",
		"cma_roce_mode -d mlx5_0 -p 1 -m 2",
		"cma_roce_tos -d mlx5_0 -p 1 -t 106",
		"echo 1 > /sys/class/net/ens1f0np0/ecn/roce_np/enable/3",
		"echo 1 > /sys/class/net/ens1f0np0/ecn/roce_rp/enable/3",
		"echo 48 > /sys/class/net/ens1f0np0/ecn/roce_np/cnp_dscp",
		"echo 6 > /sys/class/net/ens1f0np0/ecn/roce_np/cnp_802p_prio",
		"ip link set dev 'a b;reboot' mtu 4200",
		"ethtool -A 'a b;reboot' autoneg off rx off tx off",
		"bnxt_setupcc.sh -d bnxt_re0 -i 'a b;reboot' -m 3 -s 26 -r 3 -p 48 -c 6",
		"dcb app replace dev 'a b;reboot' dscp-prio 26:3 48:6",
		"dcb pfc set dev 'a b;reboot' prio-pfc all:off 3:on",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestFirmwareVFsExceedMaxVFs holds the rule of ESXi for every sum.
func TestFirmwareVFsExceedMaxVFs(t *testing.T) {
	for sum := range 2000 {
		if n := firmwareVFs(sum); n <= sum || n > 2*sum && sum > 0 {
			t.Fatalf("firmwareVFs(%d) = %d", sum, n)
		}
	}
}

func TestNoPlan(t *testing.T) {
	for _, p := range []profiles.Profile{
		{Name: "ib", Fabric: profiles.Fabric{LinkLayer: "infiniband", QoS: &profiles.QoS{}}},
		{Name: "none"},
		{Name: "bad", Fabric: profiles.Fabric{QoS: &profiles.QoS{RDMA: profiles.Class{DSCP: 64}}}},
		{Name: "bad", Fabric: profiles.Fabric{QoS: &profiles.QoS{PFC: []int{8}}}},
	} {
		if _, err := FromProfile(p); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
}

func TestPorts(t *testing.T) {
	for in, want := range map[string]string{
		"1/1-3/4": "1/1-3/4", "Ethernet1/1, Et1/3-1/8": "1/1,1/3-1/8", "1,2": "1,2", "Eth 1/1": "1/1",
		"": "", "1/1;reload": "", "-1": "", "1/1 qos": "", "vlan1": "",
	} {
		got, err := ParsePorts(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("ParsePorts(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

const eosPFCText = "leaf1>en\r\nleaf1#sh pri\r\nThe hardware supports PFC on priorities 0 1 2 3 4 5 6 7\r\n" +
	"The PFC watchdog timeout is 0.2 second(s)\r\nThe PFC watchdog action is errdisable\r\nGlobal PFC : Enabled\r\n\r\n" +
	"E: PFC Enabled, D: PFC Disabled, A: PFC Active, W: PFC Watchdog Enabled\r\n" +
	"Port  Status Priorities Action      Timeout  Recovery        Polling         Note\r\n" +
	"                                            Interval/Mode   Config/Oper\r\n" +
	"Et1/1      E A W      34         drop           0.2        1.0 / auto           - / -           DCBX disabled \r\n" +
	" --More-- \r          \rEt1/2      E A W      3          -           -        - / -           - / -           DCBX disabled\r\n" +
	"Et1/3      D - -      -          -           -        - / -           - / -\r\n" +
	"Et1/4      E A        3,4        -           -        - / -           - / -\r\n"

func TestReadEOS(t *testing.T) {
	sw := ReadSwitch(eosPFCText)
	var got []string
	for _, p := range sw.PFC {
		got = append(got, p.Port+" "+yes(p.Enabled)+yes(p.Active)+yes(p.Watchdog)+" "+joinInts(p.Priorities, ",")+" "+p.Note)
	}
	want := []string{"Et1/1 yyy 3,4 DCBX disabled", "Et1/2 yyy 3 DCBX disabled", "Et1/3 nnn  ", "Et1/4 yyn 3,4 "}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if sw.OS != "eos" || sw.GlobalP == nil || !*sw.GlobalP || sw.Storms == nil || *sw.Storms != "errdisable" || len(sw.Unread) > 0 {
		t.Errorf("%+v", sw)
	}
}

func kb(tc, lo, hi int) ECN {
	return ECN{TC: &tc, MinKB: ptr(float64(lo)), MaxKB: ptr(float64(hi))}
}

func yes(b *bool) string {
	switch {
	case b == nil:
		return "?"
	case *b:
		return "y"
	}
	return "n"
}

func TestReadTables(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want func(Switch) bool
	}{
		"old EOS": {
			"Port      Enabled Priorities Active Note\nEt1       Yes     3          Yes    \nEt2       No                 No     DCBX disabled\n",
			func(s Switch) bool {
				return len(s.PFC) == 2 && *s.PFC[0].Enabled && *s.PFC[0].Active && slices.Equal(s.PFC[0].Priorities, []int{3}) && !*s.PFC[1].Enabled && s.PFC[1].Note == "DCBX disabled"
			},
		},
		"EOS interfaces with descriptions, channels, management": {
			"Port       Name   Status       Vlan     Duplex Speed  Type            Flags Encapsulation\n" +
				"Et1/1      gpu01 connected rail0 connected    in Po3   full   100G   100GBASE-CR4\n" +
				"Et2        errdisabled errdisabled  1        a-full a-10G  Not Present\n" +
				"Ma1               connected    routed   a-full a-1G   10/100/1000\n",
			func(s Switch) bool {
				return len(s.Ports) == 3 && s.Ports[0].Name == "gpu01 connected rail0" && s.Ports[0].VLAN == "in Po3" && *s.Ports[0].SpeedGbps == 100 && s.Ports[0].Type == "100GBASE-CR4" &&
					s.Ports[1].Status == "errdisabled" && s.Ports[1].Duplex == "full" && !*s.Ports[1].Up && *s.Ports[2].SpeedGbps == 1
			},
		},
		"EOS qos interfaces": {
			"router#sh qos int et33\nEthernet33:\n   Trust Mode: DSCP\n   Default COS: 0\n   Default DSCP: 0\n  Tx    Bandwidth     Bandwidth                   Shape Rate         Priority   ECN/WRED \n Queue  (percent)     Guaranteed (units)           (units)         \n -----\n   6        -             - ( - )              -            ( - )      SP         D     \n",
			func(s Switch) bool {
				return len(s.QoS) == 1 && s.QoS[0].Ports == "Ethernet33" && s.QoS[0].Trust == "dscp" && slices.Equal(s.QoS[0].Strict, []int{6})
			},
		},
		"EOS trust table": {
			"Port                       Trust Mode\n               Operational           Configured\n---------------\nEthernet1/1         COS                  DEFAULT\n",
			func(s Switch) bool { return len(s.QoS) == 1 && s.QoS[0].Trust == "pcp" },
		},
		"EOS maps": {
			"   Dscp-tc map:\n     d1 :  d2 0  1  2  3  4  5  6  7  8  9\n     -------------\n      0 :     1  1  1  1  1  1  1  1  0  0\n      1 :     0  0  0  0  0  0  2  2  2  2\n      2 :     2  2  2  2  3  3  1  3  3  3\n",
			func(s Switch) bool {
				return len(s.QoS) == 1 && s.QoS[0].DSCP[26] == 1 && s.QoS[0].DSCP[24] == 3 && len(s.QoS[0].DSCP) == 30
			},
		},
		"Onyx PFC": {
			"switch [standalone: master] (config) # show dcb priority-flow-control\n\nPFC: enabled\nPriority Enabled List: 3\nPriority Disabled List: 0 1 2 4 5 6 7\n-------------------\nInterface        PFC admin        PFC oper\n----------\nEth1/1           Auto             Enabled\nEth1/2           Auto             Disabled\n",
			func(s Switch) bool {
				return s.OS == "onyx" && len(s.PFC) == 3 && slices.Equal(s.PFC[1].Priorities, []int{3}) && *s.PFC[1].Active && !*s.PFC[2].Active
			},
		},
		"Onyx interfaces": {
			"Port        Operational state    Speed          Negotiation\n------\nEth1/1      Up                   100 Gbps       No-Negotiation\nEth1/2      Down                 Unknown        No-Negotiation\n",
			func(s Switch) bool {
				return len(s.Ports) == 2 && *s.Ports[0].SpeedGbps == 100 && *s.Ports[0].Up && s.Ports[1].SpeedGbps == nil && !*s.Ports[1].Up
			},
		},
		"Onyx qos": {
			"Eth1/1\n  Trust mode                 : L3\n  Default switch-priority    : 0\nEth1/2\n  Trust mode                 : L2\n",
			func(s Switch) bool {
				return len(s.QoS) == 2 && s.QoS[0].Trust == "dscp" && s.QoS[1].Trust == "pcp" && s.QoS[1].Ports == "Eth1/2"
			},
		},
		"EOS configuration with a profile": {
			"qos map dscp 24 26 to traffic-class 3\n!\nqos profile ROCE\n   qos trust dscp\n   priority-flow-control on\n   priority-flow-control priority 3 no-drop\n   !\n   uc-tx-queue 3\n      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes max-mark-probability 20 weight 0\n!\ninterface Ethernet2/5/1\n   mtu 9214\n   service-profile ROCE\n!\n",
			func(s Switch) bool {
				i := slices.IndexFunc(s.QoS, func(q QoS) bool { return q.Ports == "2/5/1" })
				return i >= 0 && s.QoS[i].Trust == "dscp" && cmp.Equal(s.QoS[i].ECN, []ECN{kb(3, 150, 1500)}) && len(s.PFC) == 1 && s.PFC[0].Port == "2/5/1" && len(s.MTU) == 1
			},
		},
		"Onyx commands, shortened and in blocks": {
			"switch (config) # int eth 1/1-1/2 qos trust L3\nswitch (config) # dcb priority-flow-control enable force\nswitch (config) # dcb priority-flow-control priority 3 enable\ninterface ethernet 1/3\n  qos trust L2\n  exit\n",
			func(s Switch) bool {
				return len(s.QoS) == 2 && s.QoS[0].Ports == "1/1-1/2" && s.QoS[1].Trust == "pcp" && s.GlobalP != nil && *s.GlobalP
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if sw := ReadSwitch(tc.in); !tc.want(sw) || len(sw.Unread) > 0 {
				text, _ := json.MarshalIndent(sw, "", " ")
				t.Errorf("read as %s", text)
			}
		})
	}
}

func ids(fs []finding.Finding) []string {
	out := []string{}
	for _, f := range fs {
		if f.Severity != finding.Note && !slices.Contains(out, f.ID) {
			out = append(out, f.ID)
		}
	}
	return out
}

func TestUnreadRowIsSaid(t *testing.T) {
	sw := ReadSwitch("Port       Name   Status        Vlan     Duplex Speed   Type         Flags Encapsulation\nEt1/1             conne\n")
	if len(sw.Unread) != 1 || sw.Unread[0].N != 2 {
		t.Errorf("%+v", sw)
	}
	if got := ids(Compare(ReadSwitch("hello\nworld"), nil).Findings); !cmp.Equal(got, []string{"switch.nothing-read"}) {
		t.Error(got)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRealdataSwitch(t *testing.T) {
	dir := realdata.Dir(t, "switch")
	truths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(truths) == 0 {
		t.Fatal(err, len(truths))
	}
	read, verdict := realdata.Tally{Set: "switch: values"}, realdata.Tally{Set: "switch: no false finding"}
	plan := plan26(t)
	for _, path := range truths {
		var want struct {
			Connected, Notconnect, Ports any
			SpeedGbps                    float64 `json:"speed_gbps"`
			PFCPriorities                []int   `json:"pfc_priorities"`
			PoolPercent                  float64 `json:"pool_percent"`
			SwitchPriority               int     `json:"switch_priority"`
			Trust                        string
			ECN                          struct {
				TC  int `json:"traffic_class"`
				Min int `json:"min_absolute"`
				Max int `json:"max_absolute"`
			}
			Strict []int `json:"strict_traffic_classes"`
		}
		if err := json.Unmarshal([]byte(readFile(t, path)), &want); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		sw := ReadSwitch(readFile(t, strings.TrimSuffix(path, ".json")+".txt"))
		ok := len(sw.Unread) == 0
		if want.Connected != nil {
			up, down := 0.0, 0.0
			for _, p := range sw.Ports {
				if *p.Up {
					up++
				} else {
					down++
				}
				ok = ok && *p.SpeedGbps == want.SpeedGbps && p.Duplex == "full"
			}
			ok = ok && up == want.Connected && down == want.Notconnect
		}
		if want.PFCPriorities != nil {
			ok = ok && float64(len(sw.PFC)) == want.Ports && *sw.GlobalP
			for _, p := range sw.PFC {
				ok = ok && slices.Equal(p.Priorities, want.PFCPriorities) && *p.Enabled && *p.Active && p.Note == "DCBX disabled"
			}
		}
		if want.Trust != "" {
			ok = ok && len(sw.QoS) == 1 && len(sw.Pools) == 1
			if ok {
				q, pool := sw.QoS[0], sw.Pools[0]
				ok = q.TrustSeen == want.Trust && q.Ports == want.Ports && slices.Equal(q.Strict, want.Strict) &&
					cmp.Equal(q.ECN, []ECN{kb(want.ECN.TC, want.ECN.Min, want.ECN.Max)}) &&
					pool.Type == "lossless" && *pool.Percent == want.PoolPercent && slices.Equal(pool.Priorities, []int{want.SwitchPriority})
			}
		}
		read.Count(ok, name, "read otherwise")
		got := ids(Compare(sw, &plan).Findings)
		verdict.Count(len(got) == 0, name, strings.Join(got, " "))
	}
	read.Print(t)
	verdict.Print(t)
}

// TestRealdataSwitchMismatches plants one mismatch after the other in the real
// outputs: each has to be found, and nothing else.
func TestRealdataSwitchMismatches(t *testing.T) {
	dir := realdata.Dir(t, "switch")
	plan := plan26(t)
	tally := realdata.Tally{Set: "switch: planted mismatches"}
	for _, tc := range []struct {
		name, file, old, new, want string
	}{
		{"a port lost its link", "01", "Et2/3             connected     trunk    full   25G", "Et2/3             notconnect    trunk    full   25G", "switch.port-down"},
		{"a port slower", "01", "Et1/2             connected     trunk    full   25G", "Et1/2             connected     trunk    full   10G", "switch.port-speed"},
		{"a port faster", "01", "Et1/2             connected     trunk    full   25G", "Et1/2             connected     trunk    full   100G", "switch.port-speed"},
		{"a port half duplex", "01", "Et3/1             connected     trunk    full", "Et3/1             connected     trunk    half", "switch.port-duplex"},
		{"a port shut by the watchdog", "01", "Et3/1             connected  ", "Et3/1             errdisabled", "switch.port-errdisabled"},
		{"PFC off for all", "02", "Global PFC : Enabled", "Global PFC : Disabled", "switch.pfc-global-off"},
		{"PFC off on a port", "02", "Et1/2      E A W      3", "Et1/2      D - -      -", "switch.pfc-off"},
		{"PFC not active on a port", "02", "Et1/2      E A W", "Et1/2      E - W", "switch.pfc-inactive"},
		{"another priority", "02", "Et2/4      E A W      3", "Et2/4      E A W      4", "switch.pfc-priority switch.pfc-extra"},
		{"no priority", "02", "Et2/4      E A W      3", "Et2/4      E A W      -", "switch.pfc-priority"},
		{"one priority more", "02", "Et2/4      E A W      3 ", "Et2/4      E A W      34", "switch.pfc-extra"},
		{"trust by port", "03", "qos trust L3", "qos trust port", "switch.trust"},
		{"trust by VLAN tag", "03", "qos trust L3", "qos trust L2", "switch.trust"},
		{"pool lossy", "03", "type lossless", "type lossy", "switch.pfc-priority switch.pool-lossy"},
		{"pool for another priority", "03", "map switch-priority 3", "map switch-priority 4", "switch.pfc-priority switch.pfc-extra"},
		{"pool smaller", "03", "percent 50.00", "percent 20.00", "switch.pool-percent"},
		{"ECN later", "03", "minimum-absolute 150 maximum-absolute 1500", "minimum-absolute 3000 maximum-absolute 3000", "switch.ecn-thresholds"},
		{"ECN on another class", "03", "traffic-class 3 congestion-control", "traffic-class 4 congestion-control", "switch.ecn-class"},
		{"ECN gone", "03", "interface ethernet 1/1-1/32 traffic-class 3 congestion-control ecn minimum-absolute 150 maximum-absolute 1500", "", "switch.ecn-missing"},
		{"another strict class", "03", "traffic-class 6 dcb ets strict", "traffic-class 5 dcb ets strict", "switch.strict"},
		{"the RDMA class strict", "03", "traffic-class 6 dcb ets strict", "traffic-class 3 dcb ets strict", "switch.strict"},
		{"DSCP remapped", "03", "interface ethernet 1/1-1/32 qos trust L3", "interface ethernet 1/1-1/32 qos trust L3\ninterface ethernet 1/1-1/32 qos map dscp 26 to switch-priority 0", "switch.dscp-map"},
		{"frames too small", "03", "interface ethernet 1/1-1/32 qos trust L3", "interface ethernet 1/1-1/32 qos trust L3\ninterface ethernet 1/1-1/32 mtu 1500 force", "switch.mtu"},
	} {
		files, _ := filepath.Glob(filepath.Join(dir, tc.file+"-*.txt"))
		if len(files) != 1 {
			t.Fatal(tc.file, files)
		}
		text := readFile(t, files[0])
		if !strings.Contains(text, tc.old) {
			t.Fatalf("%s: %q is not in %s", tc.name, tc.old, files[0])
		}
		for _, ending := range []string{"\n", "\r\n"} {
			got := strings.Join(ids(Compare(ReadSwitch(strings.ReplaceAll(strings.Replace(text, tc.old, tc.new, 1), "\n", ending)), &plan).Findings), " ")
			tally.Count(got == tc.want, tc.name, "found "+got+", planted "+tc.want)
		}
	}
	tally.Print(t)
}

// TestLongInputIsBounded: a text of 4 MB costs moments, whatever it repeats.
func TestLongInputIsBounded(t *testing.T) {
	plan := plan26(t)
	for _, format := range []string{"interface Ethernet%d\n qos trust dscp\n", "Ethernet%d:\n Trust Mode: COS\n", "interface ethernet 1/%d mtu 1500\n", "Et%d E A W 3\n", "qos profile p%d\n"} {
		var b strings.Builder
		b.WriteString("Port  Status Priorities Action\n")
		for i := range 30_000 {
			fmt.Fprintf(&b, format, i)
		}
		sw := ReadSwitch(b.String())
		if n := len(Compare(sw, &plan).Findings); len(sw.QoS) > maxPorts || len(sw.PFC) > 2*maxPorts+1 || n > 4*maxPorts {
			t.Errorf("%q: %d ports, %d findings", format, len(sw.QoS), n)
		}
	}
}

func TestReadSwitchCutOff(t *testing.T) {
	for name, text := range map[string]string{
		"eos command":      "interface Ethernet1/1\n   priority-flow-control",
		"onyx command":     "dcb priority-flow-control",
		"blank in Unicode": "sw01 (config) # \u00a0",
		"the word no":      "no",
		"map":              "qos map dscp 26 to",
		"class":            "traffic-class 3 congestion-control",
		"pool":             "traffic pool roce",
		"pool type":        "traffic pool roce type",
	} {
		t.Run(name, func(t *testing.T) {
			if sw := ReadSwitch(text); len(sw.PFC) > 0 || sw.Lines > 1 {
				t.Errorf("made up of half a line: %+v", sw)
			}
		})
	}
}

func FuzzReadSwitch(f *testing.F) {
	f.Add(eosPFCText)
	f.Add("Eth1/1\n  Trust mode : L3\nPFC: enabled\nPriority Enabled List: 3\n")
	for _, text := range []string{
		sonicStatus, sonicQoS, sonicCounters, sonicConfig, nvueRoCE, nvuePorts, nvueCounters, nxosPFCTable, nxosPolicy, nxosQueue, junosShow, junosConf, junosQueues, onyxRoCEText, nxosDetailText, sonicStormText,
		"nv set qos roce mode lossless\nnv set qos mapping default-global dscp 26 switch-priority 4\nnv set qos congestion-control default-global traffic-class 3 min-threshold-bytes 1\n",
		"set class-of-service drop-profiles d interpolate fill-level 3\nset class-of-service schedulers s explicit-congestion-notification\n",
	} {
		f.Add(text)
	}
	p := plan26(f)
	for _, d := range []string{"arista", "onyx"} {
		lines, err := p.Switch(d, SwitchOptions{Ports: "1/1-1/4"})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.Join(lines, "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		sw := ReadSwitch(text)
		Compare(sw, nil)
		Compare(sw, &p)
		for _, pfc := range sw.PFC {
			for _, prio := range pfc.Priorities {
				if prio < 0 || prio > 7 {
					t.Errorf("priority %d of %q", prio, pfc.Port)
				}
			}
		}
	})
}
