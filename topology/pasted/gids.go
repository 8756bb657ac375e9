package pasted

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// GIDs is what a pasted GID table says.
type GIDs struct {
	Host     string
	Ports    []GIDPort // in the order of the paste
	Findings []finding.Finding
}

// GIDPort is one port with its table. Where the text hides part of an address
// it is invalid, and its kind "".
type GIDPort struct {
	HCA  string
	Port int
	GIDs []topology.GID
}

var (
	gidText   = lazy(`(?i)^(?:[0-9a-fx*]{1,4}:){7}[0-9a-fx*]{1,4}$`)
	gidCount  = lazy(`^n_gids_found\s*=\s*(\d+)$`)
	devinfoRE = lazy(`(?i)^GID\[\s*(\d+)\]:?\s+(\S+?),?(?:\s+(.*))?$`)
	sysfsGID  = lazy(`/?sys/class/infiniband/([^/\s]+)/ports/(\d+)/gids/(\d+):\s*(\S+)\s*$`)
)

// ReadGIDs reads show_gids (any version) and the GID lines of ibv_devinfo -v.
func ReadGIDs(text string) GIDs {
	lines, host := split(text)
	g := GIDs{Host: host}
	un := &unread{host: host}
	rows, announced := 0, -1
	hca, port := "", 0
	sawHeader := false
	for _, l := range lines {
		w := l.words()
		trimmed := strings.TrimSpace(l.text)
		switch m := gidCount().FindStringSubmatch(trimmed); {
		case len(w) == 0:
		case m != nil:
			if n, err := strconv.Atoi(m[1]); err == nil {
				announced = max(announced, 0) + n
			}
		case strings.EqualFold(w[0], "DEV") && len(w) > 1 && strings.EqualFold(w[1], "PORT"):
			sawHeader = true
		case strings.HasPrefix(w[0], "hca_id:"):
			if hca = strings.TrimPrefix(trimmed, "hca_id:"); hca != "" {
				hca = strings.Fields(hca)[0]
			}
			port = 1
		case w[0] == "port:" && len(w) == 2:
			if n, err := strconv.Atoi(w[1]); err == nil {
				port = n
			}
		default:
			row, name, num, why := gidRow(l, hca, port)
			switch {
			case why == "":
				rows++
				g.add(name, num, row)
			case why == notARow && (isNoise(l.text) || hca != "" && strings.Contains(l.text, ":")):
			default:
				un.add(l, "%s", why)
			}
		}
	}
	g.empty(rows, announced, sawHeader)
	g.Findings = append(g.Findings, un.findings("show_gids")...)
	return g
}

const notARow = "not a row of a GID table"

// gidRow reads one row: device, port, index, GID, perhaps the IPv4 address,
// perhaps the version, perhaps the netdev.
func gidRow(l line, hca string, port int) (topology.GID, string, int, string) {
	var row topology.GID
	w := strings.FieldsFunc(l.text, func(r rune) bool { return r == ' ' || r == '\t' || r == '|' })
	if m := sysfsGID().FindStringSubmatch(l.text); m != nil {
		w = []string{m[1], m[2], m[3], m[4]}
	} else if m := devinfoRE().FindStringSubmatch(strings.TrimSpace(l.text)); m != nil && hca != "" {
		w = append([]string{hca, strconv.Itoa(port), m[1], m[2]}, strings.Fields(m[3])...)
	}
	if len(w) < 4 {
		return row, "", 0, notARow
	}
	num, err1 := strconv.Atoi(w[1])
	index, err2 := strconv.Atoi(w[2])
	gid := strings.TrimSuffix(w[3], ",")
	addr, err3 := netip.ParseAddr(gid)
	masked := err3 != nil && gidText().MatchString(gid)
	if err1 != nil || err2 != nil {
		return row, "", 0, notARow
	}
	if num < 1 || num > 254 || index < 0 || index > 4095 {
		return row, "", 0, "port or index out of range"
	}
	if err3 != nil && !masked {
		return row, "", 0, fmt.Sprintf("%s is no GID", quote(w[3]))
	}
	row = topology.GID{Index: index}
	if !masked {
		row.Addr = addr
	}
	for _, x := range w[4:] {
		switch v := strings.Trim(strings.ToLower(x), "(),"); {
		case v == "v1" || v == "rocev1" || v == "ib/roce" && row.Type == "":
			row.Type = "RoCE v1"
		case v == "v2" || v == "rocev2":
			row.Type = "RoCE v2"
		case v == "roce" || v == "ib":
			if v == "ib" {
				row.Type = "IB"
			}
		case isIPv4(v):
			// The column repeats the last four bytes; what the GID says counts,
			// and where the GID is hidden the column says what it is.
			if masked {
				row.Addr = netip.AddrFrom16(netip.MustParseAddr(v).As16())
			} else if as := netip.MustParseAddr(v); addr.Is4In6() && addr.Unmap() != as {
				return row, "", 0, fmt.Sprintf("the IPv4 column says %s, the GID %s", as, addr.Unmap())
			}
		default:
			row.Netdev = x
		}
	}
	row.Kind = kindOf(row.Addr, gid)
	return row, w[0], num, ""
}

func isIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

func kindOf(a netip.Addr, text string) topology.GIDKind {
	switch {
	case a.IsValid() && a.Unmap().Is4():
		return topology.GIDIPv4
	case strings.HasPrefix(strings.ToLower(text), "fe80:"):
		return topology.GIDLinkLocal
	case !a.IsValid():
		return ""
	case a.IsUnspecified():
		return topology.GIDIB
	}
	return topology.GIDIPv6
}

func (g *GIDs) add(hca string, port int, row topology.GID) {
	for i := range g.Ports {
		if p := &g.Ports[i]; p.HCA == hca && p.Port == port {
			if !slices.ContainsFunc(p.GIDs, func(x topology.GID) bool { return x.Index == row.Index }) {
				p.GIDs = append(p.GIDs, row)
			}
			return
		}
	}
	g.Ports = append(g.Ports, GIDPort{HCA: hca, Port: port, GIDs: []topology.GID{row}})
}

// empty says what is missing in the text.
func (g *GIDs) empty(rows, announced int, sawHeader bool) {
	add := func(f finding.Finding) {
		f.Host = g.Host
		g.Findings = append(g.Findings, f)
	}
	switch {
	case rows == 0 && !sawHeader && announced < 0:
		add(finding.Finding{
			ID: "paste.not-this", Severity: finding.Error, Subject: "GID table", Seen: "no row of a GID table", Wanted: "the output of show_gids",
			Why: "nothing can be said", Hint: "paste what 'show_gids' prints, with its header",
		})
		return
	case rows == 0:
		add(finding.Finding{
			ID: "hca.gid", Severity: finding.Error, Subject: "GID table", Seen: "no GID at all", Wanted: "a RoCE v2 GID with an IP address on every rail",
			Why:  "no RDMA connection can be made from where this was run",
			Hint: "in a container or pod: its network namespace has no netdev of the HCA; attach one (" + topology.GiveNetwork + "), then look again",
		})
	case announced >= 0 && announced != rows:
		add(finding.Finding{
			ID: "paste.cut", Severity: finding.Warning, Subject: "GID table", Seen: fmt.Sprintf("%d rows", rows), Wanted: fmt.Sprintf("%d rows, as its last line says", announced),
			Why: "part of the table is missing or could not be read", Hint: "paste the whole output",
		})
	}
}

// Fragment is what the table says of a host.
func (g *GIDs) Fragment() topology.Host {
	h := topology.Host{Name: g.Host}
	for _, p := range g.Ports {
		port := topology.Port{Number: p.Port, GIDs: p.GIDs}
		for _, e := range p.GIDs {
			if port.Netdev == "" {
				port.Netdev = e.Netdev // the port's own netdev has the first entries
			}
			if e.Netdev != "" || strings.HasPrefix(e.Type, "RoCE v2") {
				port.LinkLayer = "Ethernet"
			}
		}
		at := slices.IndexFunc(h.HCAs, func(c topology.HCA) bool { return c.Name == p.HCA })
		if at < 0 {
			at = len(h.HCAs)
			h.HCAs = append(h.HCAs, topology.HCA{Name: p.HCA})
		}
		h.HCAs[at].Ports = append(h.HCAs[at].Ports, port)
	}
	return h
}
