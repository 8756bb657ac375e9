package qosconf

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// nxos is Cisco NX-OS on Nexus 9000 and 3000.
var nxos = Dialect{
	ID: "nxos", Name: "Cisco NX-OS", word: "nxos",
	write: Plan.nxosOn,
	outputs: []output{
		{show: "show interface priority-flow-control", row: nxosPFC, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "port") && has(low, "mode", "oper", "vl bmap")
		}},
		{show: "show queuing interface", row: nxosQueuing, head: func(r *reader, f []string, low string) bool {
			if i := strings.Index(low, "gress queuing for "); i < 0 || len(f) < 4 || portName(f[3]) == "" {
				return false
			}
			r.block, r.queue = f[3], nil
			return true
		}},
	},
}

// nxosPFC is a row of 'show interface priority-flow-control': "Eth1/1 Auto On
// (8) 0 12". The bitmap in brackets is hexadecimal: bit n is priority n.
func nxosPFC(r *reader, l row) outcome {
	if portName(l.fields[0]) == "" || len(l.fields) < 3 {
		return foreign
	}
	p := PFC{Port: l.fields[0], Note: "mode " + l.fields[1]}
	oper, rest := strings.ToLower(l.fields[2]), l.fields[3:]
	if i := strings.IndexByte(oper, '('); i > 0 { // "On(8)"
		rest = append([]string{oper[i:]}, rest...)
		oper = oper[:i]
	}
	switch oper {
	case "on":
		p.Active = ptr(true)
	case "off":
		p.Active = ptr(false)
	default:
		return foreign
	}
	p.Enabled = ptr(!strings.EqualFold(l.fields[1], "off"))
	if len(rest) > 0 && strings.HasPrefix(rest[0], "(") {
		bits, err := strconv.ParseUint(strings.Trim(rest[0], "()"), 16, 8)
		if err != nil {
			return foreign
		}
		p.Priorities = []int{}
		for prio := range 8 {
			if bits>>prio&1 == 1 {
				p.Priorities = append(p.Priorities, prio)
			}
		}
		rest = rest[1:]
	}
	if len(rest) >= 2 {
		rx, tx := number(rest[0]), number(rest[1])
		if rx == nil || tx == nil {
			return foreign
		}
		c := r.counter(p.Port, nil)
		c.RxPause, c.TxPause = rx, tx
	}
	r.sw.PFC = append(r.sw.PFC, p)
	return fact
}

var (
	nxosGroup = lazy(`(?i)QOS GROUP\s+([0-7])\b`)
	nxosTotal = lazy(`(?i)TxPPP:\s*([0-9,]+)\s*,\s*RxPPP:\s*([0-9,]+)`)
)

// nxosQueuing is a line of one port's block of 'show queuing interface'. A QoS
// group is taken for the priority of its number, as NX-OS's own c-8q classes do.
func nxosQueuing(r *reader, l row) outcome {
	if m := nxosGroup().FindStringSubmatch(l.line); m != nil {
		r.queue = class(m[1])
		return furniture
	}
	if m := nxosTotal().FindStringSubmatch(l.line); m != nil {
		c := r.counter(r.block, nil)
		c.TxPause, c.RxPause = number(m[1]), number(m[2])
		return fact
	}
	if l.fields[0] == "|" || strings.HasPrefix(l.fields[0], "|") || strings.HasPrefix(l.fields[0], "+") {
		return r.nxosCell(strings.FieldsFunc(l.line, func(c rune) bool { return c == '|' }))
	}
	// "3  3  Inactive  150  Active  0": PFC priority, group, pauses sent and received.
	if prio := class(l.fields[0]); prio != nil && len(l.fields) == 6 && strings.HasSuffix(strings.ToLower(l.fields[2]), "active") {
		c := r.counter(r.block, prio)
		c.TxPause, c.RxPause = number(l.fields[3]), number(l.fields[5])
		return fact
	}
	// "3  50  -  -  -  -  9(D)": a group's share; level 1 is strict.
	if group := class(l.fields[0]); group != nil && len(l.fields) >= 4 {
		if l.fields[1] == "-" && l.fields[2] == "1" {
			if q := r.qosFor(r.block); !slices.Contains(q.Strict, *group) {
				q.Strict = append(q.Strict, *group)
			}
		}
		return fact
	}
	if portName(l.fields[0]) != "" {
		return foreign
	}
	return furniture
}

// nxosCell is a line of a QoS group's frame: "| Tx Pkts | 12| 0|". One line may
// hold two of them.
func (r *reader) nxosCell(cells []string) outcome {
	got := furniture
	for i := 0; i < len(cells); i++ {
		key := strings.ToLower(strings.TrimSpace(cells[i]))
		var sum uint64
		known := false
		for i+1 < len(cells) {
			n := number(strings.TrimSpace(cells[i+1]))
			if n == nil {
				break
			}
			sum, known, i = sum+*n, true, i+1
		}
		if !known || r.queue == nil || r.block == "" {
			continue
		}
		c := r.counter(r.block, r.queue)
		switch {
		case strings.HasSuffix(key, "drop pkts") || key == "dropped pkts":
			c.Dropped, got = &sum, fact
		case strings.Contains(key, "ecn") && strings.Contains(key, "pkts"):
			c.ECNMarked, got = &sum, fact
		}
	}
	return got
}

// nxosPolicies is NX-OS's modular QoS: classes match, policies set.
type nxosPolicies struct {
	dscps   map[string][]int          // class-map type qos: its DSCPs
	tags    map[string][]int          // and its 802.1p priorities
	groups  map[string]int            // class-map type queuing or network-qos: its QoS group
	set     map[string]map[string]int // policy-map type qos: class → QoS group
	cos     map[int]int               // QoS group → paused priority
	ecn     map[int]ECN
	wred    ECN // the last thresholds
	strict  []int
	applied []string // policies of type qos that a port or the system has
	pauses  bool     // a policy of type network-qos was there
	class   string   // of the class-map that we are in
	policy  string
	kind    string // "qos", "queuing", "network-qos" of the block
	inClass string // class of the policy that we are in
}

// System-defined classes carry the number of their group: c-8q-nq3, c-out-8q-q3.
var nxosGroupOf = lazy(`^c-(?:out-)?(?:[0-9]+q-)?n?q(?:([0-7])|-default)$`)

// group is the QoS group of a queuing or network-qos class: by its class-map,
// or by the number in the name of a system-defined one.
func (n *nxosPolicies) group(class string) *int {
	if g, ok := n.groups[class]; ok {
		return &g
	}
	m := nxosGroupOf().FindStringSubmatch(class)
	if m == nil {
		return nil
	}
	g, _ := strconv.Atoi("0" + m[1])
	return &g
}

func (n *nxosPolicies) leave() { n.class, n.policy, n.inClass = "", "", "" }

// apply notes a policy that a port or the system has.
func (n *nxosPolicies) apply(f []string) bool {
	if i := slices.IndexFunc(f, func(w string) bool { return w == "qos" || w == "quality-of-service" }); i > 0 && f[i-1] == "type" && len(n.applied) < 256 {
		n.applied = append(n.applied, f[len(f)-1])
	}
	return true
}

// line reads one line of modular QoS, of a configuration or of 'show class-map'
// and 'show policy-map'.
func (n *nxosPolicies) line(r *reader, f []string) bool {
	if n.dscps == nil {
		n.dscps, n.tags, n.groups, n.set, n.cos, n.ecn = map[string][]int{}, map[string][]int{}, map[string]int{}, map[string]map[string]int{}, map[int]int{}, map[int]ECN{}
	}
	kind := func(from int) string { // "type qos", default qos
		if i := slices.Index(f, "type"); i >= from && i+1 < len(f) {
			return f[i+1]
		}
		return "qos"
	}
	switch {
	case f[0] == "class-map" && len(f) >= 2:
		n.class, n.kind, n.policy, n.inClass = f[len(f)-1], kind(1), "", ""
		if i := slices.IndexFunc(f, func(w string) bool { return w == "match-all" || w == "match-any" }); i >= 0 && i+1 < len(f) {
			n.class = f[i+1]
		}
		return len(n.dscps) < maxPorts
	case f[0] == "policy-map" && len(f) >= 2:
		n.policy, n.kind, n.class, n.inClass = f[len(f)-1], kind(1), "", ""
		n.pauses = n.pauses || n.kind == "network-qos"
		if n.kind == "quality-of-service" { // EOS has the same classes and policies
			r.tell("eos")
		} else {
			r.tell("nxos")
		}
		return len(n.set) < maxPorts
	case f[0] == "match" && n.class != "" && len(f) >= 3:
		switch f[1] {
		case "dscp", "ip":
			for _, w := range f[2:] {
				n.dscps[n.class] = append(n.dscps[n.class], dscps(strings.TrimSuffix(w, ","))...)
			}
			return len(n.dscps[n.class]) > 0
		case "cos":
			for _, w := range f[2:] {
				if c := class(strings.TrimSuffix(w, ",")); c != nil {
					n.tags[n.class] = append(n.tags[n.class], *c)
				}
			}
			return len(n.tags[n.class]) > 0
		case "qos-group":
			g := class(f[2])
			if g != nil {
				n.groups[n.class] = *g
			}
			return g != nil
		}
		return false
	case f[0] == "class" && n.policy != "" && len(f) >= 2:
		n.inClass = f[len(f)-1]
		if n.set[n.policy] == nil {
			n.set[n.policy] = map[string]int{}
		}
		return true
	case n.policy == "" || n.inClass == "":
		return false
	case f[0] == "set" && len(f) >= 3 && (f[1] == "qos-group" || f[1] == "traffic-class"):
		g := class(f[2])
		if g != nil {
			n.set[n.policy][n.inClass] = *g
		}
		return g != nil
	case f[0] == "pause" && len(f) >= 2:
		g := n.group(n.inClass)
		c := g // "pause no-drop" of older releases: the priority of the group's number
		if f[1] == "pfc-cos" && len(f) >= 3 {
			c = class(f[2])
		}
		if g == nil || c == nil {
			return false
		}
		n.cos[*g] = *c
		return true
	case f[0] == "priority" && n.kind == "queuing":
		if g := n.group(n.inClass); g != nil && (len(f) == 1 || f[1] == "level") && !slices.Contains(n.strict, *g) {
			n.strict = append(n.strict, *g)
		}
		return true
	case f[0] == "random-detect" && n.kind == "queuing":
		g := n.group(n.inClass)
		lo, hi := threshold(f, "minimum-threshold"), threshold(f, "maximum-threshold")
		if g == nil || lo == nil || hi == nil {
			return false
		}
		n.wred = ECN{TC: g, MinKB: lo, MaxKB: hi}
		if slices.Contains(f, "ecn") { // else it drops
			n.ecn[*g] = n.wred
		}
		return true
	case f[0] == "ecn" && len(f) == 1 && n.kind == "queuing" && n.wred.TC != nil:
		n.ecn[*n.wred.TC] = n.wred
		return true
	case f[0] == "mtu" && n.kind == "network-qos" && len(f) >= 2:
		return class(f[1]) == nil
	}
	return false
}

// finish resolves classes, groups and priorities.
func (n *nxosPolicies) finish(r *reader) {
	for _, name := range slices.Sorted(maps.Keys(n.set)) {
		mapped := n.set[name]
		q := QoS{Name: "policy-map " + name, Whole: true}
		for _, class := range slices.Sorted(maps.Keys(mapped)) {
			prio := mapped[class]
			if cos, ok := n.cos[prio]; ok {
				prio = cos
			}
			for _, dscp := range n.dscps[class] {
				q.mapDSCP(dscp, prio)
			}
		}
		// Its class maps may not be in the text: then nothing is known of it.
		classes := slices.Collect(maps.Keys(mapped))
		if !slices.ContainsFunc(classes, func(c string) bool { return n.dscps[c] != nil }) {
			if slices.Contains(n.applied, name) && slices.ContainsFunc(classes, func(c string) bool { return n.tags[c] != nil }) {
				*r.qosNamed("", q.Name) = QoS{Name: q.Name, Trust: "pcp", TrustSeen: "cos (service-policy type qos " + name + ")"}
			}
			continue
		}
		if slices.Contains(n.applied, name) {
			q.Trust, q.TrustSeen = "dscp", "service-policy type qos "+name
		}
		*r.qosNamed("", q.Name) = q
	}
	if n.pauses && len(n.cos) > 0 {
		var lossless []int
		for _, cos := range n.cos {
			lossless = append(lossless, cos)
		}
		slices.Sort(lossless)
		lossless = slices.Compact(lossless)
		given := false
		for i := range r.sw.PFC {
			if p := &r.sw.PFC[i]; p.Note == "configured" && p.Priorities == nil {
				p.Priorities, given = slices.Clone(lossless), true
			}
		}
		if !given {
			r.sw.PFC = append(r.sw.PFC, PFC{Priorities: lossless, Note: "network-qos"})
		}
	}
	if len(n.ecn) > 0 || len(n.strict) > 0 {
		q := r.qosNamed("", "policy-map type queuing")
		q.Strict = n.strict
		for _, g := range slices.Sorted(maps.Keys(n.ecn)) {
			q.addECN(n.ecn[g])
		}
	}
}

// nxosDetail is a line of a port's block of 'show interface
// priority-flow-control detail'; its heading is as that of EOS's blocks.
func (r *reader) nxosDetail(l row) outcome {
	key, value, ok := strings.Cut(l.line, ":")
	key, value = strings.ToLower(strings.TrimSpace(key)), strings.ToLower(strings.TrimSpace(value))
	p := func() *PFC {
		for i := range r.sw.PFC {
			if r.sw.PFC[i].Port == r.block {
				return &r.sw.PFC[i]
			}
		}
		r.sw.PFC = append(r.sw.PFC, PFC{Port: r.block})
		return &r.sw.PFC[len(r.sw.PFC)-1]
	}
	switch {
	case ok && key == "admin mode":
		r.tell("nxos")
		p().Enabled, p().Note = ptr(value != "off"), "mode "+value
	case ok && key == "oper mode":
		p().Active = ptr(value == "on")
	case ok && key == "vl bitmap":
		bits, err := strconv.ParseUint(strings.Trim(value, "()"), 16, 8)
		if err != nil {
			return foreign
		}
		at := p()
		at.Priorities = []int{}
		for prio := range 8 {
			if bits>>prio&1 == 1 {
				at.Priorities = append(at.Priorities, prio)
			}
		}
	case ok && (key == "total rx pfc frames" || key == "total tx pfc frames"):
		return furniture // the line of each priority follows
	case (l.fields[0] == "Rx" || l.fields[0] == "Tx") && strings.Contains(l.line, "|"):
		for prio, cell := range strings.Split(l.line, "|")[1:] {
			n := number(strings.TrimSpace(cell))
			if n == nil || prio > 7 {
				continue
			}
			if c := r.counter(r.block, ptr(prio)); l.fields[0] == "Rx" {
				c.RxPause = n
			} else {
				c.TxPause = n
			}
		}
	case has(l.line, "|", "priority0"):
		return furniture
	default:
		return foreign
	}
	return fact
}
