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

// GIDPort is one port with its table and the index a RoCE job would use.
type GIDPort struct {
	HCA  string
	Port int
	GIDs []PastedGID
	// Pick is the index, nil where none is right; Why says so in words.
	Pick *int
	Why  string
}

// PastedGID is one row. Addr is invalid where the paste hides part of it.
type PastedGID struct {
	Index  int
	Text   string
	Addr   netip.Addr
	Kind   topology.GIDKind // "" unknown
	Type   string           // "RoCE v1", "RoCE v2", "IB"; "" not said
	Netdev string
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
	for i := range g.Ports {
		choose(&g.Ports[i])
	}
	g.judge(rows, announced, sawHeader)
	g.Findings = append(g.Findings, un.findings("show_gids")...)
	return g
}

const notARow = "not a row of a GID table"

// gidRow reads one row: device, port, index, GID, perhaps the IPv4 address,
// perhaps the version, perhaps the netdev.
func gidRow(l line, hca string, port int) (PastedGID, string, int, string) {
	var row PastedGID
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
	row = PastedGID{Index: index, Text: gid}
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
	row.Kind = kindOf(row)
	return row, w[0], num, ""
}

func isIPv4(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

func kindOf(g PastedGID) topology.GIDKind {
	text := strings.ToLower(g.Text)
	switch a := g.Addr; {
	case a.IsValid() && a.Unmap().Is4():
		return topology.GIDIPv4
	case strings.HasPrefix(text, "fe80:"):
		return topology.GIDLinkLocal
	case !a.IsValid():
		return ""
	case a.IsUnspecified():
		return topology.GIDIB
	}
	return topology.GIDIPv6
}

func (g *GIDs) add(hca string, port int, row PastedGID) {
	for i := range g.Ports {
		if p := &g.Ports[i]; p.HCA == hca && p.Port == port {
			if !slices.ContainsFunc(p.GIDs, func(x PastedGID) bool { return x.Index == row.Index }) {
				p.GIDs = append(p.GIDs, row)
			}
			return
		}
	}
	g.Ports = append(g.Ports, GIDPort{HCA: hca, Port: port, GIDs: []PastedGID{row}})
}

// routable says that packets to a can leave the link: no link-local, loopback,
// multicast or empty address.
func routable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// choose applies the rule of decision gid: RoCE v2 and routable, IPv4 before
// global IPv6, on the port's own netdev before a VLAN's, the lowest index.
func choose(p *GIDPort) {
	own, lowest := "", -1
	roce, v2, unknownType, hidden := false, false, false, false
	for _, g := range p.GIDs {
		// The port's own netdev has the first entries of the table.
		if g.Netdev != "" && (lowest < 0 || g.Index < lowest) {
			own, lowest = g.Netdev, g.Index
		}
		roce = roce || g.Netdev != "" || g.Type == "RoCE v2"
		v2 = v2 || g.Type == "RoCE v2"
		unknownType = unknownType || g.Type == ""
		hidden = hidden || g.Type == "RoCE v2" && g.Kind == ""
	}
	best, bestRank := -1, 0
	for i, g := range p.GIDs {
		if g.Type != "RoCE v2" || !routable(g.Addr) {
			continue
		}
		rank := 1
		if g.Kind == topology.GIDIPv4 {
			rank += 4
		}
		if g.Netdev != "" && g.Netdev == own {
			rank += 2
		}
		if best < 0 || rank > bestRank || rank == bestRank && g.Index < p.GIDs[best].Index {
			best, bestRank = i, rank
		}
	}
	if best >= 0 {
		g := p.GIDs[best]
		p.Pick = new(g.Index)
		kind := "routable IPv4 " + g.Addr.Unmap().String()
		if g.Kind != topology.GIDIPv4 {
			kind = "global IPv6 " + g.Addr.String() + ", no IPv4 one is there"
		}
		p.Why = "RoCE v2, " + kind
		if g.Netdev != "" {
			p.Why += " on " + g.Netdev
		}
		return
	}
	dev := "the netdev"
	if own != "" {
		dev = own
	}
	switch {
	case !roce && unknownType:
		p.Why = "the table does not say which entries are RoCE v2"
	case !roce:
		p.Why = "InfiniBand, or no netdev: no RoCE v2 entry"
	case hidden:
		p.Why = "the RoCE v2 addresses are hidden in this text"
	case v2:
		p.Why = "only link-local RoCE v2 entries: " + dev + " has no routable IP address"
	case unknownType:
		p.Why = "the table does not say which entries are RoCE v2"
	default:
		p.Why = "RoCE v1 entries only, which no router forwards"
	}
}

func (g *GIDs) judge(rows, announced int, sawHeader bool) {
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
			ID: "gid.none", Severity: finding.Error, Subject: "GID table", Seen: "no GID at all", Wanted: "a RoCE v2 GID with an IP address on every rail",
			Why:  "no RDMA connection can be made from where this was run",
			Hint: "in a container or pod: its network namespace has no netdev of the HCA; attach one (host network, or an SR-IOV network), then look again",
		})
	case announced >= 0 && announced != rows:
		add(finding.Finding{
			ID: "paste.cut", Severity: finding.Warning, Subject: "GID table", Seen: fmt.Sprintf("%d rows", rows), Wanted: fmt.Sprintf("%d rows, as its last line says", announced),
			Why: "part of the table is missing or could not be read", Hint: "paste the whole output",
		})
	}
	picks := map[int][]string{}
	for _, p := range g.Ports {
		if p.Pick != nil {
			picks[*p.Pick] = append(picks[*p.Pick], p.HCA)
		}
	}
	for _, p := range g.Ports {
		subject := fmt.Sprintf("%s port %d", p.HCA, p.Port)
		if p.Pick != nil || !strings.HasPrefix(p.Why, "only link-local") && !strings.HasPrefix(p.Why, "RoCE v1") {
			continue
		}
		sev := finding.Warning
		if len(picks) == 0 {
			sev = finding.Error
		}
		add(finding.Finding{
			ID: "hca.gid", Severity: sev, Subject: subject, Seen: p.Why, Wanted: "a RoCE v2 GID of a routable IP address",
			Why: "this port cannot carry RoCE v2 traffic beyond its own link", Hint: "give its netdev an IP address of the fabric's subnet, or leave this HCA out",
		})
	}
	if len(picks) > 1 {
		var seen []string
		for _, i := range sortedKeys(picks) {
			seen = append(seen, fmt.Sprintf("%d on %s", i, strings.Join(picks[i], ", ")))
		}
		add(finding.Finding{
			ID: "gid.no-common", Severity: finding.Warning, Subject: "GID index", Seen: strings.Join(seen, "; "), Wanted: "the same index on every HCA",
			Why:  "one NCCL_IB_GID_INDEX or UCX_IB_GID_INDEX would be wrong on some of them",
			Hint: "leave the index unset: NCCL from 2.21 on and UCX choose for each device",
		})
	}
}

func sortedKeys[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
