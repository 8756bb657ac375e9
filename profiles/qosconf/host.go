package qosconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Target is one RoCE port of a host.
type Target struct {
	Netdev string // "ens1f0np0"
	HCA    string // "mlx5_0"
	Port   int    // 0: 1
}

// defaultPriority is the priority that mlx5 and Spectrum give a DSCP when
// nobody said otherwise: DSCP/8 (mlnx_qos prints it so on an untouched port).
func defaultPriority(dscp int) int { return dscp >> 3 }

// Host returns the commands that put the plan on a host, one a line, with
// comments. Without targets they are written for $IF and $HCA. They need root
// and last until the next boot.
func (p Plan) Host(targets []Target) []string {
	out := []string{
		"# QoS plan of profile " + p.Profile + ": " + p.summary(),
		"# To be run as root on every host, for every RoCE port; lost at reboot. fabrun runs none of it.",
	}
	if len(targets) == 0 {
		out = append(out, "IF=<netdev>   # 'fabrun topo' lists the netdev of every HCA", "HCA=<device>")
		targets = []Target{{Netdev: "$IF", HCA: "$HCA"}}
	}
	for _, t := range targets {
		if t.Port == 0 {
			t.Port = 1
		}
		t.Netdev, t.HCA = shellWord(t.Netdev), shellWord(t.HCA)
		out = append(out, "", fmt.Sprintf("# %s (%s port %d)", t.Netdev, t.HCA, t.Port))
		if p.MTUBytes != nil {
			out = append(out, fmt.Sprintf("ip link set dev %s mtu %d", t.Netdev, *p.MTUBytes))
		}
		if len(p.PFC) > 0 {
			// 802.3x pause and PFC exclude each other on a port.
			out = append(out, fmt.Sprintf("ethtool -A %s autoneg off rx off tx off", t.Netdev))
		}
		if strings.HasPrefix(t.HCA, "bnxt_re") {
			out = append(out, p.bnxt(t)...)
			continue
		}
		out = append(out, p.mlnxQoS(t)...)
		out = append(out, p.dcb(t)...)
		out = append(out, p.rdmaCM(t)...)
		out = append(out, p.ecnSysfs(t)...)
	}
	return out
}

// mlnxQoS are the commands of MLNX_OFED and DOCA (Mellanox/mlnx-tools, python/mlnx_qos).
func (p Plan) mlnxQoS(t Target) []string {
	out := []string{
		"# with mlnx_qos (MLNX_OFED, DOCA):",
		fmt.Sprintf("mlnx_qos -i %s --trust=%s", t.Netdev, p.Trust),
		fmt.Sprintf("mlnx_qos -i %s --pfc=%s", t.Netdev, eight(p.pfcMask())),
	}
	for _, m := range p.dscpMap() {
		if m.prio != defaultPriority(m.dscp) {
			out = append(out, fmt.Sprintf("mlnx_qos -i %s --dscp2prio=set,%d,%d", t.Netdev, m.dscp, m.prio))
		}
	}
	if tsa, bw, ok := p.ets(); ok {
		out = append(out, fmt.Sprintf("mlnx_qos -i %s --prio_tc=0,1,2,3,4,5,6,7 --tsa=%s --tcbw=%s", t.Netdev, strings.Join(tsa, ","), joinInts(bw, ",")))
	}
	return out
}

// dcb are the same settings over the kernel's own interface (iproute2's dcb).
func (p Plan) dcb(t Target) []string {
	out := []string{"# or, the same, with dcb (iproute2):"}
	if p.Trust == "dscp" {
		// On mlx5 the first DSCP entry is what switches the port to DSCP trust.
		var maps []string
		for _, m := range p.dscpMap() {
			maps = append(maps, fmt.Sprintf("%d:%d", m.dscp, m.prio))
		}
		if len(maps) > 0 {
			out = append(out, fmt.Sprintf("dcb app replace dev %s dscp-prio %s", t.Netdev, strings.Join(maps, " ")))
		}
	} else {
		out = append(out, fmt.Sprintf("dcb app flush dev %s dscp-prio   # no DSCP entry left: PCP trust", t.Netdev))
	}
	pfc := "all:off"
	for _, prio := range p.PFC {
		pfc += fmt.Sprintf(" %d:on", prio)
	}
	out = append(out, fmt.Sprintf("dcb pfc set dev %s prio-pfc %s", t.Netdev, pfc))
	if tsa, bw, ok := p.ets(); ok {
		var tsas, bws []string
		for tc := range tsa {
			tsas = append(tsas, fmt.Sprintf("%d:%s", tc, tsa[tc]))
			bws = append(bws, fmt.Sprintf("%d:%d", tc, bw[tc]))
		}
		out = append(out, fmt.Sprintf("dcb ets set dev %s prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 tc-tsa %s tc-bw %s", t.Netdev, strings.Join(tsas, " "), strings.Join(bws, " ")))
	}
	return out
}

// rdmaCM sets what connections made by rdma_cm carry; verbs connections of
// NCCL and UCX carry what their own variables say.
func (p Plan) rdmaCM(t Target) []string {
	return []string{
		"# for connections over rdma_cm (storage, rping, perftest -R):",
		fmt.Sprintf("cma_roce_mode -d %s -p %d -m 2", t.HCA, t.Port),
		fmt.Sprintf("cma_roce_tos -d %s -p %d -t %d", t.HCA, t.Port, p.RDMA.TC()),
	}
}

// ecnSysfs switches DCQCN on (MLNX_OFED's sysfs; upstream has it in debugfs
// and on by default).
func (p Plan) ecnSysfs(t Target) []string {
	if p.Priority == nil {
		return nil
	}
	base := "/sys/class/net/" + t.Netdev + "/ecn"
	out := []string{
		"# congestion control (MLNX_OFED, DOCA; where the files are absent it is on by default):",
		fmt.Sprintf("echo 1 > %s/roce_np/enable/%d", base, *p.Priority),
		fmt.Sprintf("echo 1 > %s/roce_rp/enable/%d", base, *p.Priority),
	}
	if p.CNP != nil {
		out = append(out, fmt.Sprintf("echo %d > %s/roce_np/cnp_dscp", p.CNP.DSCP, base))
		if p.CNP.Priority != nil {
			out = append(out, fmt.Sprintf("echo %d > %s/roce_np/cnp_802p_prio", *p.CNP.Priority, base))
		}
	}
	return out
}

// bnxt is Broadcom's own script: it writes PFC, DSCP and congestion control in one go.
func (p Plan) bnxt(t Target) []string {
	mode := 2 // congestion control only
	if len(p.PFC) > 0 {
		mode = 3 // PFC and congestion control
	}
	cmd := fmt.Sprintf("bnxt_setupcc.sh -d %s -i %s -m %d -s %d", t.HCA, t.Netdev, mode, p.RDMA.DSCP)
	if p.Priority != nil {
		cmd += fmt.Sprintf(" -r %d", *p.Priority)
	}
	if p.CNP != nil {
		cmd += fmt.Sprintf(" -p %d", p.CNP.DSCP)
		if p.CNP.Priority != nil {
			cmd += fmt.Sprintf(" -c %d", *p.CNP.Priority)
		}
	}
	return append([]string{"# with Broadcom's script:", cmd}, p.dcb(t)...)
}

type dscpPrio struct{ dscp, prio int }

// dscpMap is which DSCP the plan gives which priority.
func (p Plan) dscpMap() []dscpPrio {
	var out []dscpPrio
	if p.Priority != nil {
		out = append(out, dscpPrio{p.RDMA.DSCP, *p.Priority})
	}
	if p.CNP != nil && p.CNP.Priority != nil && p.CNP.DSCP != p.RDMA.DSCP {
		out = append(out, dscpPrio{p.CNP.DSCP, *p.CNP.Priority})
	}
	return out
}

// strictTC is the traffic class that is served before all others: CNPs, where
// the plan has them on a class of their own.
func (p Plan) strictTC() (int, bool) {
	if p.CNP == nil || p.CNP.Priority == nil || (p.Priority != nil && *p.CNP.Priority == *p.Priority) {
		return 0, false
	}
	return *p.CNP.Priority, true
}

// ets is the plan's share per traffic class, where it says one.
func (p Plan) ets() (tsa []string, bw []int, ok bool) {
	if len(p.ETS) == 0 {
		return nil, nil, false
	}
	strict, has := p.strictTC()
	tsa, bw = make([]string, 8), make([]int, 8)
	for tc := range 8 {
		tsa[tc] = "ets"
		if tc < len(p.ETS) {
			bw[tc] = p.ETS[tc]
		}
		if has && tc == strict && bw[tc] == 0 {
			tsa[tc] = "strict"
		}
	}
	return tsa, bw, true
}

// eight writes a mask as mlnx_qos wants it: priority 0 first.
func eight(mask int) string {
	bits := make([]string, 8)
	for i := range bits {
		bits[i] = strconv.Itoa(mask >> i & 1)
	}
	return strings.Join(bits, ",")
}

func joinInts(ns []int, sep string) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, sep)
}

// shellWord quotes a name that comes from outside, so that a pasted line runs
// nothing but what it says. $IF and $HCA are ours.
func shellWord(s string) string {
	if s == "$IF" || s == "$HCA" {
		return s
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:@/+-", r)
	}
	if s != "" && !strings.HasPrefix(s, "-") && !slices.ContainsFunc([]rune(s), func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
