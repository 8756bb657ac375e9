package envgen

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// verbsPorts are the chosen ports that verbs libraries use, forNCCL or for UCX.
// psm devices speak verbs too, and NCCL uses them so, but UCX is not for them; nor
// for devices without unreliable datagrams, over which it wires up.
func (n *node) verbsPorts(forNCCL bool) []*port {
	var out []*port
	for _, p := range n.use {
		if p.family == topology.Verbs && (forNCCL || !topology.DriverNamed(p.hca.Driver).NoUD) || forNCCL && p.family == topology.PSM {
			out = append(out, p)
		}
	}
	return out
}

func (n *node) anyRoCE() bool {
	return slices.ContainsFunc(n.use, func(p *port) bool { return p.family == topology.Verbs && p.roce() })
}

func (n *node) rejectedPorts() []Alternative {
	var out []Alternative
	for _, p := range n.ports {
		if p.rejectID == "" {
			continue
		}
		why := p.reject
		if said := p.said(); said != "" && !strings.Contains(why, said) {
			why += "; seen: " + said
		}
		out = append(out, Alternative{Value: p.name(), Why: why + " [" + p.rejectID + "]"})
	}
	return out
}

func portEvidence(ps []*port) []string {
	out := make([]string, 0, 2*len(ps))
	for _, p := range ps {
		if p.evidence == nil {
			e := p.file("state") + ": " + cmpOr(p.p.State, "unknown") + ", " + cmpOr(p.p.LinkLayer, "link layer unknown")
			if p.p.RateText != "" {
				e += ", " + p.p.RateText
			}
			p.evidence = append(p.evidence, e)
			if p.gid != nil {
				p.evidence = append(p.evidence, p.file("gids/"+strconv.Itoa(p.gid.Index))+": "+gidText(*p.gid))
			}
			if said := p.said(); said != "" {
				p.evidence = append(p.evidence, p.name()+" is the job's: "+said)
			}
		}
		out = append(out, p.evidence...)
	}
	return out
}

func ncclHCA(s *state, n *node) []Var {
	ps := n.verbsPorts(true)
	if !s.usesNCCL() || len(ps) == 0 {
		return nil
	}
	why := fmt.Sprintf("the %d ports of this node that are up and on the fabric; '=' makes the names exact", len(ps))
	if len(ps) == 1 {
		why = "the one port of this node that is up and on the fabric; '=' makes its name exact"
	}
	return []Var{{
		Name: "NCCL_IB_HCA", Value: "=" + strings.Join(portNames(ps), ","),
		Why:      why + " (a bare mlx5_1 also takes mlx5_10)",
		Evidence: portEvidence(ps), Rejected: n.rejectedPorts(),
		IfWrong: "a port left out is bandwidth lost; a port of another network makes connections time out; a set that differs between ranks breaks NCCL's rings",
	}}
}

func ncclCrossNIC(s *state, n *node) []Var {
	if !s.usesNCCL() || len(n.verbsPorts(true)) < 2 {
		return nil
	}
	if s.cross.reach != no {
		n.leave(Var{Name: "NCCL_CROSS_NIC", Why: "nothing speaks against NCCL's default: " + s.cross.why})
		return nil
	}
	return []Var{{
		Name: "NCCL_CROSS_NIC", Value: "0", Why: "rails do not reach each other: " + s.cross.why,
		Evidence: []string{s.cross.why},
		Rejected: []Alternative{{Value: "2", Why: "NCCL's default may connect different rails, which would time out here"}},
		IfWrong:  "connections between different rails time out",
	}}
}

// rcclPXN turns RCCL's relay through a neighbour's NIC on where rails do not
// reach each other: it is off by default there (NCCL_PARAM(PxnDisable, …, 1) in
// src/graph/paths.cc of ROCm/rccl; issue 1303), and sends and receives between
// GPUs of different numbers would then need queue pairs between rails.
func rcclPXN(s *state, n *node) []Var {
	if !s.usesNCCL() || !n.rccl() || s.cross.reach != no || len(n.verbsPorts(true)) < 2 {
		return nil
	}
	return []Var{{
		Name: "NCCL_PXN_DISABLE", Value: "0", Why: "rails do not reach each other (" + s.cross.why + "), and RCCL relays through a neighbour's NIC only when told so",
		Evidence: []string{s.cross.why}, Rejected: []Alternative{{Value: "1", Why: "RCCL's default: connections between rails, which time out here"}},
		IfWrong: "sends and receives between GPUs of different rails time out",
	}}
}

// bondQPs gives a connection as many queue pairs as its bond has ports: one queue
// pair leaves by one of them (RoCE LAG's affinity), which is a half of two.
func bondQPs(s *state, n *node) []Var {
	if !s.usesNCCL() || atLeast(n.v.NCCL, "2.10") == no {
		return nil
	}
	most := 0
	var evidence []string
	for _, p := range n.verbsPorts(true) {
		if !p.hca.Bond || p.netdev == nil {
			continue
		}
		bond := p.netdev
		if bond.Kind != "bond" {
			bond = n.netdev(bond.Master)
		}
		if bond == nil || bond.BondMode == "active-backup" {
			continue
		}
		ports := len(bond.Slaves)
		if bond.LACPPorts != nil {
			ports = *bond.LACPPorts
		}
		if ports > most {
			most = ports
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s of %d ports", p.name(), bond.Name, ports))
	}
	if most < 2 {
		return nil
	}
	return []Var{{
		Name: "NCCL_IB_QPS_PER_CONNECTION", Value: strconv.Itoa(most), Evidence: evidence, Why: "a queue pair leaves by one port of its bond: a connection needs one for each",
		Rejected: []Alternative{{Value: "1", Why: "NCCL's default: one port of each bond carries a connection"}},
		IfWrong:  "half of each bond stays idle where few connections are open",
	}}
}

// gidPlan is what one library is told about GIDs.
type gidPlan struct {
	vars   []Var
	failed string // no common answer: why
	unsure bool   // and a version that is not known may need none
	hangs  bool   // and the library is known to hang with what it would take
}

func ncclGID(s *state, n *node) []Var {
	if !s.usesNCCL() || !n.anyRoCE() {
		return nil
	}
	// An index beats family and range: one beside the user's words would undo them.
	switch {
	case s.isSet(n, "NCCL_IB_GID_INDEX"):
		return named(s.ncclGID.vars, "NCCL_IB_GID_INDEX")
	case s.isSet(n, "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM"):
		return named(s.ncclGID.vars, "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM")
	}
	if len(s.ncclGID.vars) == 0 && s.ncclGID.failed == "" {
		n.leave(Var{
			Name: "NCCL_IB_GID_INDEX", Why: "NCCL " + n.v.NCCL + " chooses the right GID on every port by itself", Evidence: portEvidence(n.verbsPorts(false)),
			Rejected: []Alternative{{Value: "an index", Why: "one number for all ports of all hosts, which the next added address makes wrong"}},
		})
	}
	return s.ncclGID.vars
}

// named are those of vars with one of the names.
func named(vars []Var, names ...string) []Var {
	return slices.DeleteFunc(slices.Clone(vars), func(v Var) bool { return !slices.Contains(names, v.Name) })
}

// planGIDs decides for the whole job: an index holds for every port of every
// host, or it is not said.
func (s *state) planGIDs() {
	ps := s.rocePorts()
	if len(ps) == 0 {
		return
	}
	s.ncclGID = s.planNCCLGID(ps)
	s.ucxGID = s.planUCXGID(ps)
	if idx, ok := commonIndex(ps); ok {
		s.zeroGID = gidPlan{vars: []Var{{Value: strconv.Itoa(idx), Evidence: portEvidence(ps), Rejected: ps[0].gidNot}}}
	} else {
		s.zeroGID = gidPlan{failed: gidTable(ps)}
	}
	if s.ncclGID.unsure && s.usesNCCL() {
		s.add(finding.Finding{
			ID: "gid.version-unknown", Severity: finding.Warning, Subject: "NCCL", Seen: s.ncclGID.failed + ": " + gidTable(ps),
			Wanted: "NCCL 2.21 or later, which chooses per port by itself", Why: "an older one takes one index for all ports, and a wrong address on some",
			Hint: "say the job's version (--nccl-version 2.23) where it is 2.21 or later; else give all ports the same kinds of addresses",
		})
	} else if s.ncclGID.failed != "" && s.usesNCCL() {
		s.add(finding.Finding{
			ID: "gid.no-common", Severity: finding.Error, Subject: "NCCL", Seen: s.ncclGID.failed + ": " + gidTable(ps),
			Wanted: "one answer for every port of every host",
			Why:    "NCCL takes one setting for all ports and would use a wrong address on some", Hint: "give all ports the same kinds of addresses, or use NCCL 2.21 or later",
		})
	}
	if s.ucxGID.failed != "" {
		s.add(finding.Finding{
			ID: "gid.no-common-ucx", Severity: finding.Error, Subject: "UCX", Seen: s.ucxGID.failed + ": " + gidTable(ps),
			Wanted: "one answer for every port of every host",
			Why:    "UCX takes one setting for all ports and would use a wrong address on some", Hint: s.ucxGIDHint(),
		})
	}
}

func (s *state) ucxGIDHint() string {
	if s.ucxGID.hangs {
		return "give each rxe's netdev a global IPv6 address (ip addr add fd00:4::1/64 dev …); until then UCX is not asked for"
	}
	return "give all ports the same kinds of addresses"
}

// rocePorts are the chosen RoCE ports of all hosts that have a GID.
func (s *state) rocePorts() []*port {
	var ps []*port
	for _, n := range s.usedNodes() {
		for _, p := range n.use {
			if p.family == topology.Verbs && p.roce() && p.gid != nil {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

func gidTable(ps []*port) string {
	var out []string
	for i, p := range ps {
		if i == 16 {
			out = append(out, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s %s index %d", p.node.h.Name, p.name(), p.gid.Index))
	}
	return strings.Join(out, "; ")
}

func commonIndex(ps []*port) (int, bool) {
	idx := ps[0].gid.Index
	for _, p := range ps {
		if p.gid.Index != idx {
			return 0, false
		}
	}
	return idx, true
}

func (s *state) ncclVersion() (string, bool) {
	version, first := "", true
	for _, n := range s.usedNodes() {
		if first {
			version, first = n.v.NCCL, false
		} else if n.v.NCCL != version {
			return "", false
		}
	}
	return version, version != ""
}

func (s *state) planNCCLGID(ps []*port) gidPlan {
	evidence := portEvidence(ps)
	version, known := s.ncclVersion()
	auto := no
	if known {
		auto = atLeast(version, "2.21")
	}
	if auto == yes {
		if vars, ok := s.ncclByWords(ps, evidence); ok {
			return gidPlan{vars: vars}
		}
	}
	idx, ok := commonIndex(ps)
	if !ok {
		// An older NCCL does not know the words that a newer one chooses by.
		if vars, ok := s.ncclByWords(ps, evidence); ok && !known {
			return gidPlan{vars: vars, failed: "NCCL's version is not known, and no index is right everywhere", unsure: true}
		}
		return gidPlan{failed: "no index is right everywhere"}
	}
	why := fmt.Sprintf("index %d is right on every port of every host", idx)
	var not []Alternative
	switch {
	case auto == yes:
		why += ", and NCCL's own choice would not be"
	case known:
		why += "; NCCL " + version + " would take index 0"
		not = append(not, Alternative{Value: "0", Why: "NCCL's default before 2.21: " + gidAt(ps[0], 0)})
	default:
		why += "; NCCL's version is not known, and before 2.21 it would take index 0"
		not = append(not, Alternative{Value: "unset", Why: "right only from NCCL 2.21 on"})
	}
	if len(ps) > 0 {
		not = append(not, ps[0].gidNot...)
	}
	return gidPlan{vars: []Var{{
		Name: "NCCL_IB_GID_INDEX", Value: strconv.Itoa(idx), Why: why, Evidence: evidence, Rejected: not,
		IfWrong: "queue pairs cannot be connected (invalid argument, or timeouts), or traffic leaves unmarked and unrouted",
	}}}
}

func gidAt(p *port, index int) string {
	for _, g := range p.p.GIDs {
		if g.Index == index {
			return gidText(g)
		}
	}
	return "an empty entry"
}

// ncclByWords looks for the fewest words with which NCCL 2.21 and later choose
// the right GID on every port by themselves.
func (s *state) ncclByWords(ps []*port, evidence []string) ([]Var, bool) {
	version := 2
	if s.want.version == roceV1 {
		version = 1
	}
	type try struct {
		v6     bool
		within netip.Prefix
	}
	var tries []try
	v6 := ps[0].gid.Kind != topology.GIDIPv4
	for _, r := range append([]netip.Prefix{{}}, s.gidRanges(ps)...) {
		tries = append(tries, try{v6, r})
	}
	for _, t := range tries {
		if !slices.ContainsFunc(ps, func(p *port) bool { return ncclChoice(p.p, t.v6, t.within, version) != p.gid.Index }) {
			var vars []Var
			put := func(name, value, why string) {
				vars = append(vars, Var{
					Name: name, Value: value, Why: why, Evidence: evidence,
					Rejected: append([]Alternative{{Value: "NCCL_IB_GID_INDEX", Why: "one index for all ports; NCCL chooses per port by itself"}}, ps[0].gidNot...),
					IfWrong:  "NCCL picks another address on some port, and its connections time out",
				})
			}
			if t.v6 {
				put("NCCL_IB_ADDR_FAMILY", "AF_INET6", "the fabric's addresses are IPv6; by default NCCL looks for IPv4 and would take the link-local entry 0")
			}
			if version == 1 {
				put("NCCL_IB_ROCE_VERSION_NUM", "1", "the profile says RoCE v1")
			}
			if t.within.IsValid() {
				put("NCCL_IB_ADDR_RANGE", t.within.String(), "NCCL's own choice would be another address of the port; this range holds the fabric's")
			}
			return vars, true
		}
	}
	return nil, false
}

// gidRanges are the ranges that could tell the fabric's addresses from others:
// the profile's, and the smallest one that holds every chosen address.
func (s *state) gidRanges(ps []*port) []netip.Prefix {
	out := slices.Clone(s.want.subnets)
	a := ps[0].gid.Addr.Unmap()
	bits := a.BitLen()
	for _, p := range ps {
		b := p.gid.Addr.Unmap()
		if b.BitLen() != a.BitLen() {
			return out
		}
		for bits > 0 {
			pre, err := a.Prefix(bits)
			if err == nil && pre.Contains(b) {
				break
			}
			bits--
		}
	}
	if bits > 0 && bits < a.BitLen() {
		if pre, err := a.Prefix(bits); err == nil {
			out = append(out, pre)
		}
	} else if bits == a.BitLen() && ps[0].subnet.IsValid() {
		out = append(out, ps[0].subnet)
	}
	return out
}

func (s *state) planUCXGID(ps []*port) gidPlan {
	evidence := portEvidence(ps)
	// UCX's wire-up over rxe runs on unreliable datagrams that never arrive at
	// an IPv4 GID there; a global IPv6 one works (seen with UCX 1.13.1 and 1.18.1).
	if !slices.ContainsFunc(ps, func(p *port) bool { return p.hca.Driver != "rxe" }) {
		return s.planRxeGID(ps)
	}
	if !slices.ContainsFunc(ps, func(p *port) bool { return ucxChoice(p.p, nil) != p.gid.Index }) {
		return gidPlan{}
	}
	if idx, ok := commonIndex(ps); ok {
		return gidPlan{vars: []Var{{
			Name: "UCX_IB_GID_INDEX", Value: strconv.Itoa(idx), Evidence: evidence, Rejected: ps[0].gidNot,
			Why:     fmt.Sprintf("index %d is right on every port of every host, and UCX's own choice would not be", idx),
			IfWrong: "UCX's wire-up hangs and the job aborts, or traffic takes another network",
		}}}
	}
	if s.ucxAtLeast("1.18") == yes {
		for _, within := range s.ucxRanges(ps) {
			if slices.ContainsFunc(ps, func(p *port) bool { return ucxChoice(p.p, within) != p.gid.Index }) {
				continue
			}
			return gidPlan{vars: []Var{{
				Name: "UCX_IB_ROCE_SUBNETS", Value: strings.ReplaceAll(joinPrefixes(within), ", ", ","), Evidence: evidence,
				Why: "the fabric's subnets, so that UCX chooses the right address on each port", IfWrong: "UCX takes an address of another network",
			}}}
		}
	}
	return gidPlan{failed: "UCX's own choice is wrong on some port and no index is right everywhere"}
}

// ucxRanges are the lists of subnets that could tell the fabric's addresses apart.
func (s *state) ucxRanges(ps []*port) [][]netip.Prefix {
	var out [][]netip.Prefix
	if n := len(s.want.subnets); n > 0 && n <= maxJoined {
		out = append(out, s.want.subnets)
	}
	for _, r := range s.gidRanges(ps) {
		out = append(out, []netip.Prefix{r})
	}
	return out
}

func (s *state) ucxAtLeast(want string) answer {
	out := unknown
	for _, n := range s.usedNodes() {
		a := atLeast(n.v.UCX, want)
		if a != yes {
			return a
		}
		out = yes
	}
	return out
}

func (s *state) planRxeGID(ps []*port) gidPlan {
	index := -1
	for _, p := range ps {
		got := -1
		for _, g := range p.p.GIDs {
			if g.Kind == topology.GIDIPv6 && g.Type == s.want.version && g.NdevUnreadable == "" {
				got = g.Index
				break
			}
		}
		if got < 0 || index >= 0 && got != index {
			return gidPlan{hangs: true, failed: "UCX's wire-up over rxe needs a global IPv6 GID at one index on every port; " + p.node.h.Name + " " + p.name() + " has none there"}
		}
		index = got
	}
	return gidPlan{vars: []Var{{
		Name: "UCX_IB_GID_INDEX", Value: strconv.Itoa(index), Evidence: portEvidence(ps),
		Why:      "a global IPv6 GID: UCX's wire-up over rxe does not work on an IPv4 one",
		Rejected: []Alternative{{Value: fmt.Sprintf("index %d", ps[0].gid.Index), Why: "IPv4: the wire-up hangs 30 s and aborts (UD endpoint unhandled timeout)"}},
		IfWrong:  "the job hangs 30 s in MPI_Init and aborts",
	}}}
}

func ucxGID(s *state, n *node) []Var {
	if !n.anyRoCE() || s.ucxGID.hangs || s.choseUCXTCP(n) {
		return nil
	}
	// UCX refuses an index together with subnets, whoever set them.
	for _, name := range []string{"UCX_IB_GID_INDEX", "UCX_IB_ROCE_SUBNETS"} {
		if s.isSet(n, name) {
			return named(s.ucxGID.vars, name)
		}
	}
	if len(s.ucxGID.vars) == 0 && s.ucxGID.failed == "" {
		n.leave(Var{Name: "UCX_IB_GID_INDEX", Why: "UCX chooses the right GID on every port by itself", Evidence: portEvidence(n.verbsPorts(false))})
	}
	return s.ucxGID.vars
}

func (s *state) qos() *qosValues {
	q := s.in.Profile.Fabric.QoS
	if q == nil {
		return nil
	}
	v := &qosValues{tc: q.RDMA.TC(), dscp: q.RDMA.DSCP, ecn: q.RDMA.ECN}
	if q.RDMA.SL != nil {
		v.sl = strconv.Itoa(*q.RDMA.SL)
	}
	if q.Control != nil {
		tc := q.Control.TC()
		v.control = &tc
	}
	return v
}

type qosValues struct {
	tc, dscp, ecn int
	sl            string
	control       *int
}

// qosVars are the traffic class and service level of one library.
func (s *state) qosVars(n *node, tcName, slName string) []Var {
	q := s.qos()
	if q == nil {
		return nil
	}
	evidence := []string{"profile " + s.in.Profile.Name}
	var out []Var
	if n.anyRoCE() {
		out = append(out, Var{
			Name: tcName, Value: strconv.Itoa(q.tc), Evidence: evidence,
			Why:      fmt.Sprintf("DSCP %d<<2 | ECN %d = %d: the class in which the fabric carries RDMA", q.dscp, q.ecn, q.tc),
			Rejected: []Alternative{{Value: strconv.Itoa(q.dscp), Why: "that is the DSCP; the variable takes the whole traffic class byte"}},
			IfWrong:  "RDMA traffic leaves the lossless class: drops, retries and timeouts under load",
		})
	}
	if q.sl != "" {
		out = append(out, Var{
			Name: slName, Value: q.sl, Evidence: evidence, Why: "the service level (802.1p priority on RoCE) of the profile's RDMA class",
			IfWrong: "another priority or virtual lane than the one the fabric keeps for RDMA",
		})
	}
	return out
}

func ncclQoS(s *state, n *node) []Var {
	if !s.usesNCCL() || len(n.verbsPorts(false)) == 0 {
		return nil
	}
	out := s.qosVars(n, "NCCL_IB_TC", "NCCL_IB_SL")
	if q := s.qos(); q != nil && q.control != nil && n.anyRoCE() && atLeast(n.v.NCCL, "2.22") == yes {
		out = append(out, Var{
			Name: "NCCL_IB_FIFO_TC", Value: strconv.Itoa(*q.control), Evidence: []string{"profile " + s.in.Profile.Name},
			Why: "the fabric keeps control messages in a class of their own", IfWrong: "clear-to-send messages queue behind data",
		})
	}
	return out
}

func ucxQoS(s *state, n *node) []Var {
	if len(n.verbsPorts(false)) == 0 || s.ucxGID.hangs || s.choseUCXTCP(n) {
		return nil
	}
	return s.qosVars(n, "UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL")
}

func ncclAdaptive(s *state, n *node) []Var {
	ar := s.in.Profile.Fabric.AdaptiveRoute
	if !s.usesNCCL() || ar == nil || len(n.verbsPorts(false)) == 0 || atLeast(n.v.NCCL, "2.16") == no {
		return nil
	}
	value, dflt := "0", n.anyRoCE() // off is RoCE's default, on InfiniBand's
	if *ar {
		value, dflt = "1", !n.anyRoCE()
	}
	if dflt {
		return nil
	}
	return []Var{{
		Name: "NCCL_IB_ADAPTIVE_ROUTING", Value: value, Evidence: []string{"profile " + s.in.Profile.Name},
		Why: "the profile says whether the fabric routes adaptively; NCCL's default is on for InfiniBand and off for RoCE", IfWrong: "lower bandwidth, or reordering that the fabric cannot take",
	}}
}

func ucxDevices(s *state, n *node) []Var {
	ps := n.verbsPorts(false)
	if len(ps) == 0 || s.choseUCXTCP(n) || s.ucxGID.hangs { // the job would hang and abort: it runs as it would without fabrun
		return nil
	}
	scope := JobScope
	why := "the node's RDMA ports and nothing else, which takes UCX's tcp out"
	if len(ps) > 1 {
		if split, reason := s.ucxSplits(); split {
			scope = RankScope
			why += "; each rank gets those nearest to its GPU or NUMA node"
		} else {
			why += "; all rails for every rank, since ranks on different rails could not connect (" + reason + ")"
		}
	}
	return []Var{{
		Name: "UCX_NET_DEVICES", Value: strings.Join(portNames(ps), ","), Scope: scope, Why: why, Evidence: portEvidence(ps),
		Rejected: n.rejectedPorts(), IfWrong: "a netdev in the list lets UCX fall to TCP; an absent device aborts the job",
	}}
}

func openMPIGate(s *state, n *node) []Var {
	ps := n.verbsPorts(false)
	if len(ps) == 0 || s.ucxGID.hangs || n.v.MPIKind != "openmpi" && n.v.MPIKind != "" || !s.mpiLauncher() {
		return nil
	}
	if s.choseOtherMPI(n) || s.choseUCXTCP(n) {
		return nil
	}
	has := n.v.OpenMPIHasUCX
	if has != nil && !*has {
		s.add(finding.Finding{
			ID: "gate.openmpi-no-ucx", Severity: finding.Error, Host: n.h.Name, Subject: "Open MPI",
			Seen: "this Open MPI has no UCX component", Wanted: "one built with UCX", Why: "it will use TCP for data between hosts",
			Hint: otherOpenMPI(n.h),
		})
		return nil
	}
	if has == nil && s.in.Job.InContainer && n.v.UCX == "" && !s.in.Job.Strict {
		s.add(finding.Finding{
			ID: "gate.openmpi-unseen", Severity: finding.Note, Host: n.h.Name, Subject: "Open MPI",
			Seen: "the program brings its Open MPI with it", Wanted: "one that can be looked at", Why: "whether it has UCX is not known, so pml=ucx is not forced: without UCX the job could not start",
			Hint: "--ucx-version where you know that it has, --strict, or OMPI_MCA_pml=ucx",
		})
		return nil
	}
	evidence := []string{"Open MPI's UCX component: not looked at"}
	if has != nil {
		evidence = []string{"Open MPI's UCX component is there"}
	}
	out := []Var{{
		Name: "OMPI_MCA_pml", Value: "ucx", Evidence: evidence,
		Why:      "data goes through UCX, or the job stops with a message; without it Open MPI may take TCP silently",
		Rejected: []Alternative{{Value: "unset", Why: "Open MPI ranks ucx below its TCP path for devices it does not list"}},
		IfWrong:  "a silent fallback to TCP",
	}}
	if slices.ContainsFunc(ps, func(p *port) bool { return p.hca.Driver != "" && !topology.DriverNamed(p.hca.Driver).UCXByDefault }) {
		out = append(out, Var{
			Name: "OMPI_MCA_opal_common_ucx_devices", Value: "any", Evidence: []string{"driver " + ps[0].hca.Driver},
			Why: "Open MPI's list of devices for UCX is mlx* only", IfWrong: "pml ucx refuses this device",
		})
	}
	return out
}

// otherOpenMPI names an Open MPI of this host that has UCX.
func otherOpenMPI(h *topology.Host) string {
	for _, s := range h.Software {
		switch {
		case s.Kind == "openmpi" && strings.Contains(s.Detail, "UCX component present"):
			return "there is one with UCX here: /" + s.Path
		case s.Kind == "hpcx":
			return "HPC-X is here: source /" + s.Path + "/hpcx-init.sh && hpcx_load, and rebuild the program if its MPI differs"
		}
	}
	return "use the site's Open MPI (HPC-X, or one configured --with-ucx)"
}

// choseUCXTCP says whether the user's UCX_TLS leaves UCX nothing but TCP between
// hosts. RDMA devices beside it would leave nothing at all, and pml=ucx aborts:
// the job runs as it would without fabrun, and gate.tcp-chosen says what is wrong.
func (s *state) choseUCXTCP(n *node) bool {
	return slices.ContainsFunc(s.settings(n), func(set Setting) bool {
		return set.Name == "UCX_TLS" && !shippedDefault(set) && ucxOnlyTCP(set.Value)
	})
}

// choseOtherMPI says whether the user chose another way for Open MPI's data,
// which pml=ucx would silently undo: a btl list with tcp, or an mtl.
func (s *state) choseOtherMPI(n *node) bool {
	for _, set := range s.settings(n) {
		if shippedDefault(set) { // nobody's choice
			continue
		}
		switch set.Name {
		case "OMPI_MCA_mtl":
			return true
		case "OMPI_MCA_btl":
			if !strings.HasPrefix(set.Value, "^") && slices.Contains(strings.Split(set.Value, ","), "tcp") {
				return true
			}
		}
	}
	return false
}

// mpiLauncher says whether ranks could be MPI ranks.
func (s *state) mpiLauncher() bool { return !s.in.Job.NoMPI }
