package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/health"
	"fabrun/topology/pasted"
)

// orEmpty is s, and an empty list where there is none: [] in JSON, not null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Matrix writes a pasted topology matrix for a person: the nearest HCAs of
// every GPU, then what is wrong.
func Matrix(w io.Writer, m pasted.Matrix) error {
	t := &text{w: w}
	t.printf("%d %s, %d %s\n", len(m.GPUs), plural(len(m.GPUs), "GPU"), len(m.HCAs), plural(len(m.HCAs), "HCA"))
	for i, b := range m.Best {
		where := ""
		if g := m.GPUs[i]; g.NUMA != "" {
			where = "  NUMA " + printable(g.NUMA)
		}
		if b.Level == "" {
			none := "no HCA"
			if matrixVerdict(m) == health.Unknown {
				none = "unknown: no path to an HCA could be read"
			}
			t.printf("  %-6s %s%s\n", b.GPU, none, where)
			continue
		}
		t.printf("  %-6s %-4s %s%s\n", b.GPU, b.Level, printable(strings.Join(b.HCAs, ", ")), where)
	}
	return t.findings(m.Findings)
}

// findings writes findings after a blank line.
func (t *text) findings(fs []finding.Finding) error {
	if len(fs) > 0 {
		t.printf("\n")
	}
	if t.err != nil {
		return t.err
	}
	return Findings(t.w, fs)
}

// matrixVerdict is unknown where a GPU's paths could not be read.
func matrixVerdict(m pasted.Matrix) health.Verdict {
	cut := slices.ContainsFunc(m.Findings, func(f finding.Finding) bool { return strings.HasPrefix(f.ID, "paste.") })
	return health.Sum(slices.DeleteFunc(slices.Clone(m.Findings), func(f finding.Finding) bool {
		return strings.HasPrefix(f.ID, "paste.") && f.Severity != finding.Error
	}), !cut && len(m.GPUs) > 0)
}

type matrixJSON struct {
	Schema   string              `json:"schema"`
	Host     *string             `json:"host"`
	GPUs     []string            `json:"gpus"`
	HCAs     []string            `json:"hcas"`
	Paths    []matrixPathJSON    `json:"paths"`
	Links    []matrixLinkJSON    `json:"gpu_links"`
	Verdict  health.Verdict      `json:"verdict"`
	Best     map[string]bestJSON `json:"best"`
	Findings []finding.Finding   `json:"findings"`
}

type matrixPathJSON struct {
	GPU string            `json:"gpu"`
	HCA string            `json:"hca"`
	SMI topology.PathType `json:"smi"`
}

type matrixLinkJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
	SMI  string `json:"smi"`
}

type bestJSON struct {
	Level       *string  `json:"level"`
	HCAs        []string `json:"hcas"`
	Usable      []string `json:"usable"` // null where the paste shows no port states
	CPUAffinity *string  `json:"cpu_affinity"`
	NUMA        *string  `json:"numa"`
}

// MatrixJSON writes a pasted topology matrix as fabrun/matrix/v1.
func MatrixJSON(w io.Writer, m pasted.Matrix) error {
	out := matrixJSON{
		Schema: "fabrun/matrix/v1", Host: orNull(m.Host), GPUs: []string{}, HCAs: orEmpty(m.HCAs), Paths: []matrixPathJSON{}, Links: []matrixLinkJSON{},
		Best: map[string]bestJSON{}, Findings: sorted(orEmpty(m.Findings)), Verdict: matrixVerdict(m),
	}
	for _, g := range m.GPUs {
		out.GPUs = append(out.GPUs, g.Name)
	}
	for _, p := range m.Paths {
		out.Paths = append(out.Paths, matrixPathJSON(p))
	}
	for _, l := range m.Links {
		out.Links = append(out.Links, matrixLinkJSON{l.A, l.B, l.Type})
	}
	for i, b := range m.Best {
		g := m.GPUs[i]
		out.Best[b.GPU] = bestJSON{orNull(string(b.Level)), orEmpty(b.HCAs), b.Usable, orNull(g.CPUAffinity), orNull(g.NUMA)}
	}
	out.Findings = orEmpty(out.Findings)
	return writeJSON(w, out)
}

// pick is the GID index of a pasted port, and why.
func pick(p pasted.GIDPort) (*int, string) { return health.GIDIndex(topology.Port{GIDs: p.GIDs}) }

// GIDs writes a pasted GID table for a person: the index to use on every port.
func GIDs(w io.Writer, g pasted.GIDs, v health.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	width := 4
	for _, p := range g.Ports {
		width = max(width, len(p.HCA))
	}
	for _, p := range g.Ports {
		index, why := pick(p)
		word := "-"
		if index != nil {
			word = strconv.Itoa(*index)
		}
		t.printf("%-*s  port %d  GID index %-3s %s\n", width, printable(p.HCA), p.Port, word, printable(why))
	}
	t.nothingFollows(v)
	return t.findings(fs)
}

type gidsJSON struct {
	Schema   string            `json:"schema"`
	Host     *string           `json:"host"`
	Verdict  health.Verdict    `json:"verdict"`
	Picks    []pickJSON        `json:"picks"`
	Findings []finding.Finding `json:"findings"`
}

type pickJSON struct {
	HCA      string  `json:"hca"`
	Port     int     `json:"port"`
	GIDIndex *int    `json:"gid_index"`
	Netdev   *string `json:"netdev"`
	Why      string  `json:"why"`
}

// GIDsJSON writes a pasted GID table as fabrun/gids/v1.
func GIDsJSON(w io.Writer, g pasted.GIDs, v health.Verdict, fs []finding.Finding) error {
	out := gidsJSON{Schema: "fabrun/gids/v1", Host: orNull(g.Host), Verdict: v, Picks: []pickJSON{}, Findings: orEmpty(sorted(fs))}
	for _, p := range g.Ports {
		netdev := ""
		index, why := pick(p)
		for _, e := range p.GIDs {
			if index != nil && e.Index == *index || index == nil && netdev == "" {
				netdev = e.Netdev
			}
		}
		out.Picks = append(out.Picks, pickJSON{p.HCA, p.Port, index, orNull(netdev), why})
	}
	return writeJSON(w, out)
}

// QoS writes a pasted QoS configuration for a person.
func QoS(w io.Writer, q pasted.QoS, v health.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	for i := range q.Devices {
		d := &q.Devices[i]
		name := d.Netdev
		if name == "" {
			name = "netdev not named"
		}
		trust := d.DCB.Trust
		if trust == "" {
			trust = "not said"
		}
		t.printf("%s: trust %s, lossless priorities %s\n", printable(name), trust, numberList(d.DCB.PFC))
		switch dscps := d.DCB.LosslessDSCPs(); {
		case dscps == nil && d.DCB.Trust == "dscp" && len(d.DCB.PFC) > 0:
			t.printf("  which DSCPs reach them is not in the text\n")
		case len(dscps) > 0:
			t.printf("  DSCPs that reach them: %s\n", ranges(dscps))
		}
	}
	t.nothingFollows(v)
	return t.findings(fs)
}

// nothingFollows says that nothing follows from what was read.
func (t *text) nothingFollows(v health.Verdict) {
	if v == health.Unknown {
		t.printf("unknown: the text does not say enough to tell that this carries RDMA\n")
	}
}

func numberList(v []int) string {
	switch {
	case v == nil:
		return "not said"
	case len(v) == 0:
		return "none"
	}
	return ranges(v)
}

// ranges writes sorted numbers as "24-31,48".
func ranges(v []int) string {
	var parts []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if s := strconv.Itoa(v[i]); j == i {
			parts = append(parts, s)
		} else {
			parts = append(parts, s+"-"+strconv.Itoa(v[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

type pastedDeviceJSON struct {
	Netdev   *string        `json:"netdev"`
	Trust    *string        `json:"trust"`                // "dscp" or "pcp"; null: not said
	Lossless []int          `json:"lossless_priorities"`  // null: not said
	DSCPs    map[string]int `json:"dscp_to_priority"`     // of the DSCPs that the text lists
	PrioToTC []int          `json:"priority_to_tc"`       // by priority; null: not said
	TCBw     []int          `json:"tc_bandwidth_percent"` // by traffic class; null: not said
	TCAlgo   []string       `json:"tc_algorithm"`         // by traffic class; null: not said
	Buffers  []int          `json:"priority_to_buffer"`   // by priority; null: not said
	Sizes    []int          `json:"buffer_bytes"`         // by buffer; null: not said
	DCBX     *string        `json:"dcbx"`
	Willing  *bool          `json:"willing"`
	Cable    *int           `json:"cable_length_m"`
	TClass   *int           `json:"global_tclass"`
	RoCETOS  *int           `json:"roce_tos"`
	CNPDSCP  *int           `json:"cnp_dscp"`
}

type pastedQoSJSON struct {
	Schema  string         `json:"schema"`
	Host    *string        `json:"host"`
	Verdict health.Verdict `json:"verdict"`
	pastedDeviceJSON
	Devices  []pastedDeviceJSON `json:"devices"`
	Findings []finding.Finding  `json:"findings"`
}

// QoSJSON writes a pasted QoS configuration as fabrun/qos/v1: the first
// netdev's answers, and every netdev's under devices.
func QoSJSON(w io.Writer, q pasted.QoS, v health.Verdict, fs []finding.Finding) error {
	out := pastedQoSJSON{Schema: "fabrun/qos/v1", Host: orNull(q.Host), Verdict: v, Devices: []pastedDeviceJSON{}, Findings: orEmpty(sorted(fs))}
	out.DSCPs = map[string]int{}
	for i := range q.Devices {
		d := &q.Devices[i]
		j := pastedDeviceJSON{
			Netdev: orNull(d.Netdev), Trust: orNull(d.DCB.Trust), DSCPs: map[string]int{}, PrioToTC: d.DCB.PrioToTC, TCBw: d.DCB.TCBandwidth, TCAlgo: d.DCB.TCAlgorithm,
			Buffers: d.DCB.PrioToBuffer, Sizes: d.DCB.BufferBytes, DCBX: orNull(d.DCB.DCBX), Willing: d.DCB.Willing, Cable: d.CableLength, TClass: d.GlobalTClass, RoCETOS: d.RoCETOS, CNPDSCP: d.CNPDSCP,
		}
		j.Lossless = d.DCB.PFC
		for dscp, prio := range d.DCB.DSCPToPriority {
			j.DSCPs[strconv.Itoa(dscp)] = prio
		}
		out.Devices = append(out.Devices, j)
	}
	if len(out.Devices) > 0 {
		out.pastedDeviceJSON = out.Devices[0]
	}
	return writeJSON(w, out)
}

// Ports writes pasted port listings for a person: one line a port.
func Ports(w io.Writer, p pasted.Ports, v health.Verdict, fs []finding.Finding) error {
	t := &text{w: w}
	width := 4
	for _, x := range p.Ports {
		width = max(width, len(x.HCA))
	}
	for _, x := range p.Ports {
		words := []string{fmt.Sprintf("%-*s  port %d  %-6s", width, printable(x.HCA), x.Port, orDash(x.State))}
		if x.OfNetdev {
			words = append(words, "(netdev)")
		}
		words = append(words, orDash(x.LinkLayer))
		if x.RateGbps != nil {
			words = append(words, strconv.FormatFloat(*x.RateGbps, 'g', -1, 64)+" Gb/s")
		}
		if x.Netdev != "" {
			words = append(words, printable(x.Netdev))
		}
		t.printf("%s\n", strings.Join(words, "  "))
	}
	t.nothingFollows(v)
	return t.findings(fs)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type portsJSON struct {
	Schema   string            `json:"schema"`
	Host     *string           `json:"host"`
	Verdict  health.Verdict    `json:"verdict"`
	Tools    []string          `json:"tools"`
	Ports    []portJSON        `json:"ports"`
	Findings []finding.Finding `json:"findings"`
}

type portJSON struct {
	HCA       string   `json:"hca"`
	Port      int      `json:"port"`
	State     *string  `json:"state"`
	StateText *string  `json:"state_text"`
	StateOf   *string  `json:"state_of"` // "port", or "netdev" where only that is said
	PhysState *string  `json:"phys_state"`
	LinkLayer *string  `json:"link_layer"`
	RateGbps  *float64 `json:"rate_gbps"`
	Netdev    *string  `json:"netdev"`
	NetdevUp  *bool    `json:"netdev_up"`
	ActiveMTU *int     `json:"active_mtu_bytes"`
	LID       *int     `json:"lid"`
	SMLID     *int     `json:"sm_lid"`
	PCI       *string  `json:"pci"`
	Firmware  *string  `json:"firmware"`
	BoardID   *string  `json:"board_id"`
}

// PortsJSON writes pasted port listings as fabrun/ports/v1.
func PortsJSON(w io.Writer, p pasted.Ports, v health.Verdict, fs []finding.Finding) error {
	out := portsJSON{Schema: "fabrun/ports/v1", Host: orNull(p.Host), Verdict: v, Tools: orEmpty(p.Tools), Ports: []portJSON{}, Findings: orEmpty(sorted(fs))}
	for _, x := range p.Ports {
		of := ""
		switch {
		case x.OfNetdev:
			of = "netdev"
		case x.State != "":
			of = "port"
		}
		out.Ports = append(out.Ports, portJSON{
			x.HCA, x.Port, orNull(x.State), orNull(x.StateText), orNull(of), orNull(x.PhysState), orNull(x.LinkLayer), x.RateGbps, orNull(x.Netdev), x.NetdevUp,
			x.ActiveMTU, x.LID, x.SMLID, orNull(x.PCI), orNull(x.Firmware), orNull(x.BoardID),
		})
	}
	return writeJSON(w, out)
}
