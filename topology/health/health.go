package health

import (
	"fmt"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Expect is what the ports have to be. The zero value wants of them what any
// RDMA port has to be.
type Expect struct {
	// Chosen says that the ports are the job's. Of a pasted list nobody knows
	// which are, and an unused port is no fault.
	Chosen    bool
	LinkLayer string   // "ethernet", "infiniband"; "" either
	RateGbps  *float64 // nil: what most of them have
	MinMTU    *int     // of the netdevs of RoCE ports, bytes; nil 4200
	GIDFamily string   // "ipv4", "ipv6"; "" either
	QoS       *QoS     // nil: no plan is known
	// AnyQoS judges QoS by what every lossless RoCE needs where no plan says more.
	AnyQoS bool
}

// QoS is the part of a fabric's plan that a port carries out.
type QoS struct {
	Trust    string // "dscp", "pcp"; "" not said
	DSCP     int
	TC       int // the traffic class byte
	Priority *int
	PFC      []int
	CNP      *topology.CNP
}

// Check is one thing that is looked at on every port.
type Check struct {
	ID    string // of its findings
	judge func(*look)
}

// Checks is the explicit list, in the order in which a person would look.
func Checks() []Check {
	return []Check{
		{"hca.port-down", state},
		{"hca.state-unknown", untold},
		{"hca.port-slow", rate},
		{"port.link-layer", linkLayer},
		{"ib.subnet-manager", subnetManager},
		{"ib.pkey", partition},
		{"mtu.netdev", mtu},
		{"hca.active-mtu", activeMTU},
		{"hca.gid", gids},
		{"gid.no-common", commonIndex},
		{"qos.trust", trust},
		{"qos.pfc", pfc},
		{"qos.many-lossless", lossless},
		{"qos.dscp-map", dscpMap},
		{"qos.global-tclass", class},
		{"qos.dcbx", dcbx},
		{"qos.ecn", congestion},
		{"qos.cnp", notifications},
		{"qos.pause", pause},
		{"qos.netdevs-differ", alike},
	}
}

// Ports judges those ports of h that mine says are meant; nil means all.
func Ports(h *topology.Host, mine func(topology.HCA, topology.Port) bool, e Expect) []finding.Finding {
	var out []finding.Finding
	for _, c := range Checks() {
		out = append(out, c.Ports(h, mine, e)...)
	}
	finding.Sort(out)
	return out
}

// Ports is this check alone.
func (c Check) Ports(h *topology.Host, mine func(topology.HCA, topology.Port) bool, e Expect) []finding.Finding {
	l := &look{h: h, e: e, id: c.ID}
	for _, hca := range h.HCAs {
		for _, p := range hca.Ports {
			if mine == nil || mine(hca, p) {
				l.ports = append(l.ports, port{hca, p})
			}
		}
	}
	c.judge(l)
	return l.out
}

type port struct {
	hca topology.HCA
	topology.Port
}

func (p port) String() string { return fmt.Sprintf("%s port %d", p.hca.Name, p.Number) }

func (p port) roce() bool { return p.LinkLayer == "Ethernet" && p.hca.SpeaksRoCE() }
func (p port) ib() bool   { return p.LinkLayer == "InfiniBand" }

type look struct {
	h     *topology.Host
	e     Expect
	ports []port
	id    string
	out   []finding.Finding
}

func (l *look) say(sev finding.Severity, subject, seen, wanted, why, hint string) {
	l.out = append(l.out, finding.Finding{ID: l.id, Severity: sev, Host: l.h.Name, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

// amiss is how much a fault means: of a port that may not be the job's, less.
func (l *look) amiss() finding.Severity {
	if l.e.Chosen {
		return finding.Error
	}
	return finding.Warning
}

// on names a port by its netdev too; a fragment that knows no HCA by the
// netdev alone.
func on(p port, netdev string) string {
	if p.hca.Name == "" {
		return netdev
	}
	return p.String() + " (" + netdev + ")"
}

// inCommand is a netdev where a command needs one.
func inCommand(netdev string) string {
	if strings.ContainsAny(netdev, " \t") || netdev == "" {
		return "NETDEV"
	}
	return netdev
}

// up says whether a port can carry traffic: nil where that is not known. Where
// the port's own state is not, an Ethernet port's netdev tells.
func (l *look) up(p port) *bool {
	if p.Up() || p.Down() {
		return new(p.Up())
	}
	n := l.h.Netdev(p.Netdev)
	if n == nil || n.OperState != "up" && n.OperState != "down" || p.ib() && n.OperState == "down" {
		return nil
	}
	return new(n.OperState == "up")
}

func (l *look) active(p port) bool {
	u := l.up(p)
	return u != nil && *u
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func list(v []int) string {
	if len(v) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]")
}

// Verdict sums up what was found, of whatever was measured or read.
type Verdict string

// The verdicts.
const (
	Good     Verdict = "good"
	Degraded Verdict = "degraded"
	Broken   Verdict = "broken"
	Unknown  Verdict = "unknown"
)

// Sum is the verdict on findings; told says that all was read that a good one
// needs. What was not read is never good.
func Sum(fs []finding.Finding, told bool) Verdict {
	switch worst, ok := finding.Worst(fs); {
	case ok && worst == finding.Error:
		return Broken
	case ok && worst == finding.Warning:
		return Degraded
	case !told:
		return Unknown
	}
	return Good
}
