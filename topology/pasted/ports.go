package pasted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Ports is what pasted port listings say.
type Ports struct {
	Host     string
	Tools    []string // whose output was recognised: "ibstat", "ibstatus", "ibv_devinfo", "ibdev2netdev", "rdma link"
	Ports    []Port   // in the order of the paste
	Findings []finding.Finding
}

// Port is one port of one HCA, from one listing or several.
type Port struct {
	HCA       string
	Port      int
	State     string // "ACTIVE", "DOWN", "INIT", "ARMED" as sysfs names it; "UP", "DOWN" of the netdev where only that is said; "" unknown
	StateText string // as printed
	// OfNetdev is true where State is the netdev's, since ibdev2netdev prints no other.
	OfNetdev   bool
	PhysState  string // "LinkUp", "Polling", "Disabled", …
	LinkLayer  string // "InfiniBand", "Ethernet"; "" unknown
	RateGbps   *float64
	Netdev     string
	NetdevUp   *bool
	ActiveMTU  *int // bytes
	LID        *int
	SMLID      *int
	PCI        string
	Firmware   string
	BoardID    string
	VendorPart *int
	NodeGUID   string

	width *float64 // lanes, of active_width
	speed *float64 // Gb/s a lane, of active_speed
}

var (
	caLine       = lazy(`^CA ['"]([^'"]+)['"]`)
	caPort       = lazy(`(?i)^Port (\d+):$`)
	ibstatusLine = lazy(`(?i)^Infiniband device ['"]([^'"]+)['"] port (\d+) status:`)
	hcaLine      = lazy(`^hca_id:\s*(\S+)`)
	netdevLine   = lazy(`^(?:([0-9a-fA-F:.]{7,16})\s+)?(\S+)\s+(.*?)\s*port\s+(\d+)\s*(?:\(\s*(\w+)\s*\))?\s*==>\s*(\S*)\s*\(\s*(\w+)\s*\)`)
	rdmaLine     = lazy(`^(?:link\s+|\d+/\d+:\s+)([\w.-]+)/(\d+):?\s+(.*)$`)
	fwText       = lazy(`\bfw\s+(\d[\w.]+)`)
	ibstatArgs   = lazy(`\bib(?:stat|status)\s+([A-Za-z][\w.-]*)(?:[\s:]+(\d+))?\s*$`)
)

// stateNames are the words the tools use, in sysfs's spelling.
var stateNames = map[string]string{
	"active": "ACTIVE", "port_active": "ACTIVE", "down": "DOWN", "port_down": "DOWN", "init": "INIT", "initializing": "INIT", "initialize": "INIT", "port_init": "INIT",
	"armed": "ARMED", "port_armed": "ARMED", "active_defer": "ACTIVE_DEFER", "port_active_defer": "ACTIVE_DEFER", "nop": "NOP", "port_nop": "NOP",
}

var physNames = map[string]string{
	"linkup": "LinkUp", "link_up": "LinkUp", "polling": "Polling", "disabled": "Disabled", "sleep": "Sleep", "linkerrorrecovery": "LinkErrorRecovery",
	"link_error_recovery": "LinkErrorRecovery", "portconfigurationtraining": "PortConfigurationTraining", "port_configuration_training": "PortConfigurationTraining", "phy test": "Phy Test", "phy_test": "Phy Test",
}

// enumWord takes the word of "4: ACTIVE", "PORT_ACTIVE (4)" and "Active".
func enumWord(s string) string {
	s = strings.TrimSpace(s)
	if a, b, ok := strings.Cut(s, ":"); ok {
		if _, err := strconv.Atoi(strings.TrimSpace(a)); err == nil {
			s = strings.TrimSpace(b)
		}
	}
	if i := strings.Index(s, " ("); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSpace(s)
}

type portReader struct {
	p    *Ports
	hca  string
	port int
	tool string
	caps map[string]string // what is said of the HCA before its first port
}

// ReadPorts reads ibstat, ibstatus, ibv_devinfo (-v), ibdev2netdev (-v) and
// rdma link (-j), one or several in a paste.
func ReadPorts(text string) Ports {
	lines, host := split(text)
	p := Ports{Host: host}
	un := &unread{host: host}
	r := &portReader{p: &p}
	none := false
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		t := strings.TrimSpace(l.text)
		if t == "" {
			continue
		}
		if t[0] == '[' || t[0] == '{' {
			if used, ok := r.json(lines[i:]); ok {
				i += used - 1
				continue
			}
		}
		if strings.Contains(t, "No IB devices found") || strings.Contains(t, "no RDMA devices") {
			none = true
			continue
		}
		switch why := r.line(l.text, t); {
		case why == "":
		case why == notPort && isNoise(l.text):
			r.prompt(t)
		default:
			un.add(l, "%s", why)
		}
	}
	for i := range p.Ports {
		p.Ports[i].finish()
	}
	p.empty(none)
	p.Findings = append(p.Findings, un.findings("ibstat, ibv_devinfo, ibdev2netdev or rdma link")...)
	return p
}

const notPort = "not a line of a port listing"

// prompt remembers what "ibstat mlx5_0 1" was asked about: its answer names no device.
func (r *portReader) prompt(t string) {
	r.hca, r.port, r.tool = "", 0, ""
	if m := ibstatArgs().FindStringSubmatch(t); m != nil {
		r.hca, r.tool = m[1], "ibstat"
		if n, err := strconv.Atoi(m[2]); err == nil {
			r.port = n
		}
	}
}

func (r *portReader) saw(tool string) {
	r.tool = tool
	if tool != "" && !slices.Contains(r.p.Tools, tool) {
		r.p.Tools = append(r.p.Tools, tool)
	}
}

// at returns the entry of a port, made where it is not there yet.
func (r *portReader) at(hca string, port int) *Port {
	for i := range r.p.Ports {
		if p := &r.p.Ports[i]; p.HCA == hca && p.Port == port {
			return p
		}
	}
	r.p.Ports = append(r.p.Ports, Port{HCA: hca, Port: port})
	return &r.p.Ports[len(r.p.Ports)-1]
}

func (r *portReader) line(raw, t string) string {
	if m := caLine().FindStringSubmatch(t); m != nil {
		r.saw("ibstat")
		r.hca, r.port, r.caps = m[1], 0, map[string]string{}
		return ""
	}
	if m := ibstatusLine().FindStringSubmatch(t); m != nil {
		r.saw("ibstatus")
		return r.begin(m[1], m[2])
	}
	if m := hcaLine().FindStringSubmatch(t); m != nil {
		r.saw("ibv_devinfo")
		r.hca, r.port, r.caps = m[1], 0, map[string]string{}
		return ""
	}
	if strings.Contains(t, "==>") {
		return r.netdev(t)
	}
	if m := rdmaLine().FindStringSubmatch(t); m != nil && strings.Contains(m[3], "state ") {
		return r.rdmaLink(m[1], m[2], m[3])
	}
	if m := caPort().FindStringSubmatch(t); m != nil && r.hca != "" {
		return r.begin(r.hca, m[1])
	}
	indented := strings.HasPrefix(raw, " ") || strings.HasPrefix(raw, "\t")
	key, value, ok := strings.Cut(t, ":")
	switch {
	case !ok && indented && r.tool == "ibv_devinfo": // a flag of -v
		return ""
	case !ok || r.hca == "":
		return notPort
	}
	key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(key)), " ", "_")
	value = strings.TrimSpace(value)
	if key == "port" {
		return r.begin(r.hca, value)
	}
	return r.value(key, value, indented)
}

func (r *portReader) begin(hca, port string) string {
	n, err := strconv.Atoi(strings.TrimSuffix(port, ":"))
	if err != nil || n < 0 || n > 254 {
		return fmt.Sprintf("%s is no port number", quote(port))
	}
	if r.hca != hca {
		r.caps = nil
	}
	r.hca, r.port = hca, n
	p := r.at(hca, n)
	for k, v := range r.caps {
		p.set(k, v)
	}
	return ""
}

// value is one "key: value" line of ibstat, ibstatus or ibv_devinfo.
func (r *portReader) value(key, value string, indented bool) string {
	if !knownPortKeys(key) {
		// ibv_devinfo -v prints some hundred limits, and the GIDs; they are its output, and nothing here.
		if indented || strings.HasPrefix(key, "gid[") {
			return ""
		}
		return notPort
	}
	r.saw(r.tool)
	if r.port == 0 && deviceKeys(key) {
		if r.caps == nil {
			r.caps = map[string]string{}
		}
		r.caps[key] = value
		return ""
	}
	if r.port == 0 {
		return "of a port that was not named"
	}
	if !r.at(r.hca, r.port).set(key, value) {
		return fmt.Sprintf("cannot read %s %s", strings.ReplaceAll(key, "_", " "), quote(value))
	}
	return ""
}

// deviceKeys stand before the first port and hold for every port.
func deviceKeys(key string) bool {
	return slices.Contains([]string{
		"ca_type", "number_of_ports", "firmware_version", "hardware_version", "node_guid", "system_image_guid",
		"transport", "fw_ver", "sys_image_guid", "vendor_id", "vendor_part_id", "hw_ver", "board_id", "phys_port_cnt",
	}, key)
}

func knownPortKeys(key string) bool {
	return deviceKeys(key) || slices.Contains([]string{
		"state", "physical_state", "phys_state", "rate", "base_lid", "port_lid", "lmc", "port_lmc", "sm_lid", "capability_mask", "port_guid", "link_layer",
		"max_mtu", "active_mtu", "default_gid", "active_width", "active_speed",
	}, key)
}

// set stores one value and says whether it could be read.
func (p *Port) set(key, value string) bool {
	switch key {
	case "state":
		s, ok := stateNames[strings.ToLower(enumWord(value))]
		if !ok {
			return false
		}
		p.State, p.StateText, p.OfNetdev = s, enumWord(value), false
	case "physical_state", "phys_state":
		s, ok := physNames[strings.ToLower(enumWord(value))]
		if !ok {
			s = enumWord(value)
		}
		p.PhysState = s
	case "rate":
		v, err := strconv.ParseFloat(firstWord(value), 64)
		if err != nil || v < 0 || v > 1e6 {
			return false
		}
		p.RateGbps = &v
	case "link_layer":
		switch strings.ToLower(value) {
		case "infiniband":
			p.LinkLayer = "InfiniBand"
		case "ethernet":
			p.LinkLayer = "Ethernet"
		case "unknown", "unspecified", "":
		default:
			return false
		}
	case "active_mtu":
		v, err := strconv.Atoi(firstWord(value))
		if err != nil || v < 0 || v > 1<<16 {
			return false
		}
		p.ActiveMTU = &v
	case "base_lid", "port_lid":
		return setInt(&p.LID, value)
	case "sm_lid":
		return setInt(&p.SMLID, value)
	case "firmware_version", "fw_ver":
		p.Firmware = value
	case "board_id":
		p.BoardID = value
	case "vendor_part_id":
		return setInt(&p.VendorPart, value)
	case "node_guid":
		p.NodeGUID = value
	case "active_width":
		return setFloat(&p.width, strings.TrimSuffix(strings.ToUpper(firstWord(value)), "X"))
	case "active_speed":
		return setFloat(&p.speed, firstWord(value))
	}
	return true
}

func firstWord(s string) string {
	w, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return w
}

func setInt(out **int, s string) bool {
	v, err := strconv.ParseInt(firstWord(s), 0, 32)
	if err != nil || v < 0 {
		return false
	}
	*out = new(int(v))
	return true
}

func setFloat(out **float64, s string) bool {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || v > 1e6 {
		return false
	}
	*out = &v
	return true
}

// netdev reads a line of ibdev2netdev, plain or -v.
func (r *portReader) netdev(t string) string {
	m := netdevLine().FindStringSubmatch(t)
	if m == nil {
		return "not a line of ibdev2netdev"
	}
	pci, hca, middle, port, state, netdev, up := m[1], m[2], m[3], m[4], m[5], m[6], strings.ToLower(m[7])
	if pci == "" && middle != "" {
		return "not a line of ibdev2netdev"
	}
	if up != "up" && up != "down" {
		return fmt.Sprintf("netdev state %s is neither Up nor Down", quote(m[7]))
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 254 {
		return fmt.Sprintf("%s is no port number", quote(port))
	}
	r.saw("ibdev2netdev")
	r.hca, r.port = "", 0
	p := r.at(hca, n)
	p.Netdev, p.NetdevUp = netdev, new(up == "up")
	if pci != "" {
		p.PCI = pci
	}
	if f := fwText().FindStringSubmatch(middle); f != nil {
		p.Firmware = f[1]
	}
	switch s, ok := stateNames[strings.ToLower(state)]; {
	case ok:
		p.State, p.StateText, p.OfNetdev = s, state, false
	case p.State == "":
		p.State, p.StateText, p.OfNetdev = strings.ToUpper(up), m[7], true
	}
	return ""
}

// rdmaLink reads the pairs of one line of rdma link.
func (r *portReader) rdmaLink(hca, port, rest string) string {
	r.saw("rdma link")
	r.caps = nil
	r.hca, r.port = "", 0
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 254 {
		return fmt.Sprintf("%s is no port number", quote(port))
	}
	p := r.at(hca, n)
	w := strings.Fields(rest)
	for i := 0; i+1 < len(w); i++ {
		ok := true
		switch w[i] {
		case "state":
			ok = p.set("state", w[i+1])
		case "physical_state":
			ok = p.set("phys_state", w[i+1])
		case "netdev":
			p.Netdev = w[i+1]
		case "subnet_prefix": // InfiniBand ports alone have one
			p.LinkLayer = "InfiniBand"
		case "lid":
			ok = p.set("port_lid", w[i+1])
		case "sm_lid":
			ok = p.set("sm_lid", w[i+1])
		default:
			continue
		}
		if !ok {
			return fmt.Sprintf("cannot read %s %s", w[i], quote(w[i+1]))
		}
		i++
	}
	return ""
}

// json reads rdma -j link.
func (r *portReader) json(lines []line) (int, bool) {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	all := bytes.Clone(b.Bytes())
	dec := json.NewDecoder(&b)
	var list []struct {
		Ifname    string `json:"ifname"`
		Port      int    `json:"port"`
		State     string `json:"state"`
		PhysState string `json:"physical_state"`
		Netdev    string `json:"netdev"`
		LID       *int   `json:"lid"`
		SMLID     *int   `json:"sm_lid"`
	}
	if err := dec.Decode(&list); err != nil {
		return 0, false
	}
	found := false
	for _, x := range list {
		if x.Ifname == "" || x.Port < 1 || x.Port > 254 || x.State == "" {
			continue
		}
		found = true
		r.saw("rdma link")
		p := r.at(x.Ifname, x.Port)
		p.set("state", x.State)
		if x.PhysState != "" {
			p.set("phys_state", x.PhysState)
		}
		if x.Netdev != "" {
			p.Netdev = x.Netdev
		}
		if x.LID != nil {
			p.LID = x.LID
		}
		if x.SMLID != nil {
			p.SMLID = x.SMLID
		}
	}
	return bytes.Count(all[:dec.InputOffset()], []byte("\n")) + 1, found
}

// finish draws what several lines say together.
func (p *Port) finish() {
	if p.RateGbps == nil && p.width != nil && p.speed != nil {
		p.RateGbps = new(*p.width * *p.speed)
	}
	if p.LinkLayer == "" {
		// The kernel and udev name IPoIB netdevs ib… and Ethernet ones en… or eth….
		switch {
		case strings.HasPrefix(p.Netdev, "ib"):
			p.LinkLayer = "InfiniBand"
		case strings.HasPrefix(p.Netdev, "en") || strings.HasPrefix(p.Netdev, "eth"):
			p.LinkLayer = "Ethernet"
		}
	}
}

// empty says why no port was read.
func (p *Ports) empty(none bool) {
	if len(p.Ports) > 0 {
		return
	}
	f := finding.Finding{
		ID: "paste.not-this", Severity: finding.Error, Host: p.Host, Subject: "port listing", Seen: "no port", Wanted: "the output of ibstat, ibstatus, ibv_devinfo, ibdev2netdev or rdma link",
		Why: "nothing can be said", Hint: "paste the whole output",
	}
	if none {
		f.ID, f.Seen, f.Wanted, f.Why = "port.none", "no RDMA device found", "at least one", "the job would run over TCP"
		f.Hint = "on the host: is the driver loaded (lsmod | grep -E 'mlx5_ib|bnxt_re|irdma')? in a container: " + topology.GiveDevices
	}
	p.Findings = append(p.Findings, f)
}

// Fragment is what the listings say of a host.
func (p *Ports) Fragment() topology.Host {
	h := topology.Host{Name: p.Host}
	for i := range p.Ports {
		x := &p.Ports[i]
		port := topology.Port{
			Number: x.Port, PhysState: x.PhysState, LinkLayer: x.LinkLayer, RateGbps: x.RateGbps, RateTrusted: x.RateGbps != nil,
			ActiveMTU: x.ActiveMTU, LID: lid(x.LID), SMLID: lid(x.SMLID), Netdev: x.Netdev,
		}
		if !x.OfNetdev {
			port.State = x.State
		}
		if x.Netdev == "" && x.OfNetdev { // ibdev2netdev knows the state of a netdev in another namespace
			port.Netdev = "of " + x.HCA
		}
		if x.NetdevUp != nil && !slices.ContainsFunc(h.Netdevs, func(n topology.Netdev) bool { return n.Name == port.Netdev }) {
			state := "down"
			if *x.NetdevUp {
				state = "up"
			}
			h.Netdevs = append(h.Netdevs, topology.Netdev{Name: port.Netdev, OperState: state})
		}
		at := slices.IndexFunc(h.HCAs, func(c topology.HCA) bool { return c.Name == x.HCA })
		if at < 0 {
			at = len(h.HCAs)
			h.HCAs = append(h.HCAs, topology.HCA{Name: x.HCA, PCI: x.PCI, Firmware: x.Firmware, BoardID: x.BoardID, NodeGUID: x.NodeGUID})
		}
		h.HCAs[at].Ports = append(h.HCAs[at].Ports, port)
	}
	return h
}

func lid(n *int) *uint32 {
	if n == nil {
		return nil
	}
	return new(uint32(*n))
}

// Up says whether the port can carry traffic: nil where the text does not tell.
func (p *Port) Up() *bool {
	switch {
	case p.State == "" || p.OfNetdev && p.LinkLayer == "InfiniBand" && p.State == "DOWN":
		// An IPoIB netdev that is down says nothing of the port below.
		return nil
	case p.OfNetdev:
		return new(p.State == "UP")
	}
	return new(p.State == "ACTIVE" || p.State == "ACTIVE_DEFER")
}
