package qosconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// SwitchOptions is what a profile cannot know of a switch or an ESXi host.
type SwitchOptions struct {
	Ports  string // "1/1-3/4"; for ESXi unused
	MaxVFs []int  // ESXi: virtual functions per port; nil: none
	Device string // ESXi: the mst device; "" a placeholder
}

// Dialects are the forms that Switch knows, in the order of the help.
func Dialects() []string {
	var out []string
	for _, d := range Switches {
		if d.write != nil {
			out = append(out, d.word)
		}
	}
	return append(out, "esxi")
}

// Switch returns the plan as configuration of one kind of switch (Dialects).
func (p Plan) Switch(dialect string, o SwitchOptions) ([]string, error) {
	if dialect == "esxi" {
		return p.esxi(o)
	}
	for _, d := range Switches {
		if d.write != nil && d.word == dialect {
			return d.write(p, o)
		}
	}
	return nil, fmt.Errorf("unknown kind of switch %q: it is one of %s", dialect, strings.Join(Dialects(), ", "))
}

// onPorts is a writer for ports in the form 1/1-1/4.
func onPorts(write func(Plan, string) []string) func(Plan, SwitchOptions) ([]string, error) {
	return func(p Plan, o SwitchOptions) ([]string, error) {
		ports, err := ParsePorts(o.Ports)
		if err != nil {
			return nil, err
		}
		return write(p, ports), nil
	}
}

// arista is EOS and the switches that took over its language.
func (p Plan) arista(ports string) []string {
	out := []string{
		"! QoS plan of profile " + p.Profile + ": " + p.summary(),
		"! Arista EOS and switches that speak like it. Enter after 'configure'; 'write' keeps it.",
	}
	for _, m := range p.dscpMap() {
		if p.Trust == "dscp" {
			out = append(out, fmt.Sprintf("qos map dscp %d to traffic-class %d", m.dscp, m.prio))
		}
	}
	if p.Trust == "pcp" && p.Priority != nil {
		out = append(out, fmt.Sprintf("qos map cos %d to traffic-class %d", *p.Priority, *p.Priority))
	}
	out = append(out, "interface Ethernet"+ports)
	if p.MTUBytes != nil {
		out = append(out, fmt.Sprintf("   ! frames of %d bytes must pass: on routed ports 'mtu 9214'", *p.MTUBytes))
	}
	trust := p.Trust
	if trust == "pcp" {
		trust = "cos"
	}
	out = append(out, "   qos trust "+trust)
	if len(p.PFC) > 0 {
		out = append(out, "   priority-flow-control on")
		for _, prio := range p.PFC {
			out = append(out, fmt.Sprintf("   priority-flow-control priority %d no-drop", prio))
		}
	} else {
		out = append(out, "   no priority-flow-control")
	}
	if p.Priority != nil {
		var queue []string
		if *p.Priority < len(p.ETS) && p.ETS[*p.Priority] > 0 {
			queue = append(queue, "      no priority", fmt.Sprintf("      bandwidth percent %d", p.ETS[*p.Priority]))
		}
		if p.ECNMinKB != nil && p.ECNMaxKB != nil {
			queue = append(queue, fmt.Sprintf("      random-detect ecn minimum-threshold %d kbytes maximum-threshold %d kbytes max-mark-probability 100", *p.ECNMinKB, *p.ECNMaxKB))
		}
		if len(queue) > 0 {
			out = append(out, fmt.Sprintf("   uc-tx-queue %d", *p.Priority))
			out = append(out, queue...)
		}
	}
	if tc, ok := p.strictTC(); ok {
		out = append(out, fmt.Sprintf("   uc-tx-queue %d", tc), "      priority strict")
	}
	if p.Watchdog != nil && *p.Watchdog {
		out = append(out, "   priority-flow-control pause watchdog")
	}
	return append(out, p.notSaid("!")...)
}

// onyx is NVIDIA's (Mellanox's) Spectrum switches under Onyx: prefix form, as
// its own 'show running-config' prints it.
func (p Plan) onyx(ports string) []string {
	out := []string{
		"## QoS plan of profile " + p.Profile + ": " + p.summary(),
		"## NVIDIA Onyx. Enter after 'configure terminal'; 'configuration write' keeps it.",
	}
	iface := "interface ethernet " + ports + " "
	if p.Pool != nil && p.Lossless() {
		// A lossless pool switches PFC on for the priorities mapped to it.
		out = append(out,
			"traffic pool roce type lossless",
			fmt.Sprintf("traffic pool roce memory percent %d.00", *p.Pool))
		for _, prio := range p.PFC {
			out = append(out, fmt.Sprintf("traffic pool roce map switch-priority %d", prio))
		}
	} else if len(p.PFC) > 0 {
		out = append(out, "dcb priority-flow-control enable force")
		for _, prio := range p.PFC {
			out = append(out, fmt.Sprintf("dcb priority-flow-control priority %d enable", prio))
		}
		out = append(out, iface+"dcb priority-flow-control mode on force")
	}
	trust := "L3"
	if p.Trust == "pcp" {
		trust = "L2"
	}
	out = append(out, iface+"qos trust "+trust)
	if p.Trust == "dscp" {
		for _, m := range p.dscpMap() {
			out = append(out, fmt.Sprintf("%sqos map dscp %d to switch-priority %d", iface, m.dscp, m.prio))
		}
	}
	if p.Priority != nil && p.ECNMinKB != nil && p.ECNMaxKB != nil {
		out = append(out, fmt.Sprintf("%straffic-class %d congestion-control ecn minimum-absolute %d maximum-absolute %d", iface, *p.Priority, *p.ECNMinKB, *p.ECNMaxKB))
	}
	strict, hasStrict := p.strictTC()
	for tc, share := range p.ETS {
		if tc < 8 && share > 0 && (!hasStrict || tc != strict) {
			out = append(out, fmt.Sprintf("%straffic-class %d dcb ets wrr %d", iface, tc, share))
		}
	}
	if hasStrict {
		out = append(out, fmt.Sprintf("%straffic-class %d dcb ets strict", iface, strict))
	}
	if p.Watchdog != nil && *p.Watchdog {
		out = append(out, iface+"pfc-wd")
	}
	if p.MTUBytes != nil {
		out = append(out, fmt.Sprintf("## frames of %d bytes must pass: '%smtu 9216 force'", *p.MTUBytes, iface))
	}
	return append(out, p.notSaid("##")...)
}

// nvue is Cumulus Linux with NVUE: one command sets the published setup, the
// rest says where the plan differs (NVIDIA Cumulus documentation, "RDMA over
// Converged Ethernet" and "Quality of Service"). It holds for every port.
func (p Plan) nvue() []string {
	out := []string{
		"# QoS plan of profile " + p.Profile + ": " + p.summary(),
		"# NVIDIA Cumulus Linux with NVUE, for all ports of the switch. 'nv config diff' shows it, 'nv config apply' makes it so.",
	}
	if !p.Lossless() {
		out = append(out, "nv set qos roce mode lossy")
	} else {
		out = append(out, "nv set qos roce mode lossless")
		if len(p.PFC) != 1 || p.PFC[0] != 3 {
			out = append(out, "nv set qos pfc default-global switch-priority "+joinInts(p.PFC, ","))
		}
		if p.Pool != nil && *p.Pool != 50 {
			out = append(out,
				fmt.Sprintf("nv set qos traffic-pool default-lossy memory-percent %d", 100-*p.Pool),
				fmt.Sprintf("nv set qos traffic-pool roce-lossless memory-percent %d", *p.Pool))
		}
	}
	if p.Trust == "pcp" {
		out = append(out, "nv set qos mapping default-global trust l2")
	}
	for _, m := range p.dscpMap() {
		if p.Trust == "dscp" && m.prio != defaultPriority(m.dscp) {
			out = append(out, "nv set qos mapping default-global trust l3", fmt.Sprintf("nv set qos mapping default-global dscp %d switch-priority %d", m.dscp, m.prio))
		}
	}
	if p.Priority != nil && *p.Priority != 3 {
		out = append(out,
			fmt.Sprintf("nv set qos egress-queue-mapping default-global switch-priority %d traffic-class %d", *p.Priority, *p.Priority),
			"nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 0")
	}
	if p.Priority != nil && p.ECNMinKB != nil && p.ECNMaxKB != nil && (*p.Priority != 3 || *p.ECNMinKB != 150 || *p.ECNMaxKB != 1500 || !p.Lossless()) {
		out = append(out,
			fmt.Sprintf("nv set qos congestion-control default-global traffic-class %d min-threshold %d", *p.Priority, *p.ECNMinKB*1000),
			fmt.Sprintf("nv set qos congestion-control default-global traffic-class %d max-threshold %d", *p.Priority, *p.ECNMaxKB*1000))
	}
	if tc, ok := p.strictTC(); ok && tc != 6 {
		out = append(out,
			fmt.Sprintf("nv set qos egress-queue-mapping default-global switch-priority %d traffic-class %d", tc, tc),
			fmt.Sprintf("nv set qos egress-scheduler default-global traffic-class %d mode strict", tc))
	}
	return append(out, p.notSaid("#")...)
}

// nxosOn writes for ports as NX-OS names ranges: within a module, 1/1-32.
func (p Plan) nxosOn(o SwitchOptions) ([]string, error) {
	ports, err := ParsePorts(o.Ports)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(ports, ",")
	for i, part := range parts {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			continue
		}
		module := from[:strings.LastIndexByte(from, '/')+1]
		last, ok := strings.CutPrefix(to, module)
		if !ok && strings.Contains(to, "/") || strings.Contains(last, "/") {
			return nil, fmt.Errorf("ports %q: NX-OS takes ranges within one module, like 1/1-32", o.Ports)
		}
		parts[i] = from + "-" + last
	}
	return p.nxos(strings.Join(parts, ", Ethernet")), nil
}

// nxos is Cisco's modular QoS on Nexus 9000 with its eight-queue classes: a
// class of traffic becomes the QoS group of its priority's number (Cisco
// Nexus 9000 NX-OS Quality of Service Configuration Guide).
func (p Plan) nxos(ports string) []string {
	out := []string{
		"! QoS plan of profile " + p.Profile + ": " + p.summary(),
		"! Cisco NX-OS, Nexus 9000 with eight queues. Enter after 'configure terminal'; 'copy running-config startup-config' keeps it.",
	}
	names := []string{"RDMA", "CNP"}
	match := "dscp"
	if p.Trust == "pcp" {
		match = "cos"
	}
	classes := p.dscpMap()
	for i, m := range classes {
		value := m.dscp
		if match == "cos" {
			value = m.prio
		}
		out = append(out, "class-map type qos match-any "+names[i], fmt.Sprintf("  match %s %d", match, value))
	}
	if len(classes) > 0 {
		out = append(out, "policy-map type qos FABRUN-IN")
		for i, m := range classes {
			out = append(out, "  class "+names[i], fmt.Sprintf("    set qos-group %d", m.prio))
		}
	}
	if len(p.PFC) > 0 {
		out = append(out, "policy-map type network-qos FABRUN-LOSSLESS")
		for _, prio := range p.PFC {
			out = append(out, fmt.Sprintf("  class type network-qos c-8q-nq%d", prio), fmt.Sprintf("    pause pfc-cos %d", prio), "    mtu 9216")
		}
	}
	var queues []string
	if tc, ok := p.strictTC(); ok {
		queues = append(queues, fmt.Sprintf("  class type queuing c-out-8q-q%d", tc), "    priority level 1")
	}
	if p.Priority != nil && p.ECNMinKB != nil && p.ECNMaxKB != nil {
		queues = append(queues, fmt.Sprintf("  class type queuing c-out-8q-q%d", *p.Priority))
		if *p.Priority < len(p.ETS) && p.ETS[*p.Priority] > 0 {
			queues = append(queues, fmt.Sprintf("    bandwidth remaining percent %d", p.ETS[*p.Priority]))
		}
		queues = append(queues, fmt.Sprintf("    random-detect minimum-threshold %d kbytes maximum-threshold %d kbytes drop-probability 7 weight 0 ecn", *p.ECNMinKB, *p.ECNMaxKB))
	}
	if queues != nil {
		out = append(append(out, "policy-map type queuing FABRUN-OUT"), queues...)
	}
	if queues != nil || len(p.PFC) > 0 {
		out = append(out, "system qos")
		if len(p.PFC) > 0 {
			out = append(out, "  service-policy type network-qos FABRUN-LOSSLESS")
		}
		if queues != nil {
			out = append(out, "  service-policy type queuing output FABRUN-OUT")
		}
	}
	out = append(out, "interface Ethernet"+ports)
	if len(p.PFC) > 0 {
		out = append(out, "  priority-flow-control mode on")
	} else {
		out = append(out, "  priority-flow-control mode off")
	}
	if len(classes) > 0 {
		out = append(out, "  service-policy type qos input FABRUN-IN")
	}
	if p.Watchdog != nil && *p.Watchdog {
		out = append(out, "  priority-flow-control watch-dog-interval on")
	}
	if p.MTUBytes != nil {
		out = append(out, fmt.Sprintf("  ! frames of %d bytes must pass: 'mtu 9216' on the port", *p.MTUBytes))
	}
	return append(out, p.notSaid("!")...)
}

// sonic is CONFIG_DB as JSON, for 'config load': the maps that differ, and what
// the named ports and their queues refer to (sonic-buildimage,
// files/build_templates/qos_config.j2). Headroom is the platform's own.
func (p Plan) sonic(o SwitchOptions) ([]string, error) {
	listed, err := ParsePorts(o.Ports)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(listed, "-/") {
		return nil, fmt.Errorf("ports %q: SONiC numbers its ports by their lanes (Ethernet0, Ethernet4, …): name each, without ranges", o.Ports)
	}
	const name = "FABRUN"
	identity := map[string]string{}
	for i := range 8 {
		identity[strconv.Itoa(i)] = strconv.Itoa(i)
	}
	db := map[string]map[string]map[string]string{
		"TC_TO_QUEUE_MAP": {name: identity}, "TC_TO_PRIORITY_GROUP_MAP": {name: identity}, "MAP_PFC_PRIORITY_TO_QUEUE": {name: identity},
		"PORT_QOS_MAP": {},
	}
	set := func(table, key string, f map[string]string) {
		if db[table] == nil {
			db[table] = map[string]map[string]string{}
		}
		db[table][key] = f
	}
	trust := "dscp_to_tc_map"
	if p.Trust == "pcp" {
		trust = "dot1p_to_tc_map"
		set("DOT1P_TO_TC_MAP", name, identity)
	} else {
		dscp := map[string]string{}
		for d := range 64 {
			dscp[strconv.Itoa(d)] = "0"
		}
		for _, m := range p.dscpMap() {
			dscp[strconv.Itoa(m.dscp)] = strconv.Itoa(m.prio)
		}
		set("DSCP_TO_TC_MAP", name, dscp)
	}
	ecn := p.Priority != nil && p.ECNMinKB != nil && p.ECNMaxKB != nil
	if ecn {
		lo, hi := strconv.Itoa(*p.ECNMinKB*1000), strconv.Itoa(*p.ECNMaxKB*1000)
		set("WRED_PROFILE", name, map[string]string{
			"ecn": "ecn_all", "wred_green_enable": "true", "green_min_threshold": lo, "green_max_threshold": hi, "green_drop_probability": "100",
		})
	}
	strict, hasStrict := p.strictTC()
	if hasStrict {
		set("SCHEDULER", name+".strict", map[string]string{"type": "STRICT"})
	}
	for number := range strings.SplitSeq(listed, ",") {
		port := "Ethernet" + number
		maps := map[string]string{trust: name, "tc_to_queue_map": name, "tc_to_pg_map": name, "pfc_to_queue_map": name}
		if len(p.PFC) > 0 {
			maps["pfc_enable"] = joinInts(p.PFC, ",")
		}
		set("PORT_QOS_MAP", port, maps)
		if ecn {
			set("QUEUE", port+"|"+strconv.Itoa(*p.Priority), map[string]string{"wred_profile": name})
		}
		if hasStrict {
			set("QUEUE", port+"|"+strconv.Itoa(strict), map[string]string{"scheduler": name + ".strict"})
		}
	}
	text, err := json.MarshalIndent(db, "", "  ")
	if err != nil {
		return nil, err
	}
	out := []string{
		"# QoS plan of profile " + p.Profile + ": " + p.summary(),
		"# SONiC: save the JSON below as a file; 'sudo config load FILE' adds it to CONFIG_DB, 'sudo config save' keeps it.",
		"# All other DSCPs go to traffic class 0. Lossless headroom (BUFFER_PG of these priorities) is the platform's: 'config interface buffer priority-group lossless'.",
	}
	return append(append(out, strings.Split(string(text), "\n")...), p.notSaid("#")...), nil
}

// esxi is the hypervisor's side: parameters of the native driver and firmware
// settings for virtual functions (VMware vSphere storage guide on RoCE;
// NVIDIA's nmlx5_core manual).
func (p Plan) esxi(o SwitchOptions) ([]string, error) {
	sum := 0
	for _, n := range o.MaxVFs {
		if n < 0 || n > 127 {
			return nil, fmt.Errorf("max_vfs %d is not within 0 to 127", n)
		}
		sum += n
	}
	if len(o.MaxVFs) > 16 {
		return nil, fmt.Errorf("max_vfs for %d ports: more than 16", len(o.MaxVFs))
	}
	trust := 2
	if p.Trust == "pcp" {
		trust = 1
	}
	core := fmt.Sprintf("pfctx=0x%02x pfcrx=0x%02x trust_state=%d", p.pfcMask(), p.pfcMask(), trust)
	if sum > 0 {
		core += " max_vfs=" + joinInts(o.MaxVFs, ",")
	}
	if p.ECNMinKB != nil || p.RDMA.ECN != 0 || p.CNP != nil {
		core += " ecn=1"
	}
	out := []string{
		"# QoS plan of profile " + p.Profile + ": " + p.summary(),
		"# VMware ESXi, native nmlx5 driver. Run on the host; in force after a reboot.",
		fmt.Sprintf("esxcli system module parameters set -m nmlx5_core -p %q", core),
	}
	// What the host's own RDMA traffic carries; a guest's virtual function marks its packets itself.
	if p.Trust == "dscp" {
		out = append(out, fmt.Sprintf("esxcli system module parameters set -m nmlx5_rdma -p %q", fmt.Sprintf("dscp_force=%d", p.RDMA.DSCP)))
	} else if p.Priority != nil {
		out = append(out, fmt.Sprintf("esxcli system module parameters set -m nmlx5_rdma -p %q", fmt.Sprintf("pcp_force=%d", *p.Priority)))
	}
	device := o.Device
	if device == "" {
		device = "<device>"
		out = append(out, "# <device>: '/opt/mellanox/bin/mst status' lists it, for example mt4119_pciconf0")
	} else {
		device = shellWord(device)
	}
	links := "LINK_TYPE_P1=2"
	if len(o.MaxVFs) != 1 {
		links += " LINK_TYPE_P2=2"
	}
	fw := links
	if sum > 0 {
		fw += fmt.Sprintf(" SRIOV_EN=1 NUM_OF_VFS=%d", firmwareVFs(sum))
	}
	out = append(out, fmt.Sprintf("/opt/mellanox/bin/mlxconfig -y -d %s set %s", device, fw))
	if sum > 0 {
		out = append(out, fmt.Sprintf("# NUM_OF_VFS (%d) has to exceed the sum of max_vfs (%d), or the last functions do not appear.", firmwareVFs(sum), sum))
	} else {
		out = append(out, "# For virtual functions: --max-vfs 8,8 adds max_vfs, SRIOV_EN and NUM_OF_VFS.")
	}
	if p.MTUBytes != nil {
		out = append(out, fmt.Sprintf("# frames of %d bytes must pass: 'esxcli network vswitch standard set -v <vswitch> -m 9000', and the same on the switch", *p.MTUBytes))
	}
	return out, nil
}

// firmwareVFs is the smallest power of two above the sum of max_vfs.
func firmwareVFs(sum int) int {
	n := 1
	for n <= sum {
		n *= 2
	}
	return n
}

// notSaid names what a complete switch configuration would have and the profile does not say.
func (p Plan) notSaid(comment string) []string {
	var missing []string
	if p.Priority == nil {
		missing = append(missing, "rdma.priority (no queue can be named)")
	} else if p.ECNMinKB == nil || p.ECNMaxKB == nil {
		missing = append(missing, "ecn thresholds (min_kb, max_kb)")
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{comment + " the profile does not say: " + strings.Join(missing, "; ") + "; the switch's own defaults stay"}
}

var portPrefix = lazy(`^(?i:ethernet|eth|et)`)

var portRange = lazy(`^[0-9]{1,4}(/[0-9]{1,4}){0,3}(-[0-9]{1,4}(/[0-9]{1,4}){0,3})?$`)

// ParsePorts takes the ports of a switch as people write them ("1/1-3/4",
// "Ethernet1/1,Et1/3", "1, 2") and returns them without blanks and names, as
// both switch languages take them.
func ParsePorts(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("no ports named")
	}
	if len(s) > 4096 {
		return "", fmt.Errorf("port list of %d bytes: too long", len(s))
	}
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		word := strings.ReplaceAll(strings.TrimSpace(part), " ", "")
		word = portPrefix().ReplaceAllString(word, "")
		if !portRange().MatchString(word) {
			return "", fmt.Errorf("ports %q: %q is no port or range like 1/1-3/4", s, strings.TrimSpace(part))
		}
		out = append(out, word)
	}
	return strings.Join(out, ","), nil
}
