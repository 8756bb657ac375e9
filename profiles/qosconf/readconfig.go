package qosconf

import (
	"slices"
	"strconv"
	"strings"
)

// keyword reports whether a typed word is the keyword or a shortening of it
// that people use ("int", "eth", "conf").
func keyword(word, full string) bool {
	word = strings.ToLower(word)
	if i := strings.IndexByte(word, ' '); i >= 0 {
		word = word[:i]
	}
	return word == full || (len(word) >= 2 && strings.HasPrefix(full, word))
}

// config reads one line of a running configuration, or of the commands that
// make one, of either language. It reports whether the line was understood.
func (r *reader) config(f []string) bool {
	if len(f) == 0 || strings.HasPrefix(f[0], "!") || strings.HasPrefix(f[0], "#") {
		return false
	}
	no := f[0] == "no"
	if no {
		f = f[1:]
		if len(f) == 0 {
			return false
		}
	}
	if f[0] == "nv" {
		return r.nvueSet(f)
	}
	if r.cos.line(r, f) || !no && r.policies.line(r, f) {
		return true
	}
	switch {
	case f[0] == "qos" && len(f) >= 4 && f[1] == "map" && f[2] == "dscp-tc": // enterprise SONiC
		r.leave()
		r.block, r.inPr, r.queue = "map "+f[3], "", nil
		r.tell("sonic")
		return true
	case len(f) == 4 && f[0] == "dscp" && f[2] == "traffic-class" && strings.HasPrefix(r.block, "map "):
		return r.sonicLine(f, strings.Join(f, " "))
	case keyword(f[0], "interface"):
		r.policies.leave()
		return r.configInterface(f[1:], no)
	case len(f) == 2 && f[0] == "system" && f[1] == "qos":
		r.policies.leave()
		r.block = ""
		return true
	case f[0] == "service-policy" && len(f) >= 2:
		return r.policies.apply(f)
	case f[0] == "exit" || f[0] == "end" || f[0] == "quit":
		if r.queue != nil {
			r.queue = nil
		} else {
			r.block, r.inPr = "", ""
		}
		return true
	case len(f) >= 3 && f[0] == "traffic" && f[1] == "pool":
		return r.configPool(f[2], f[3:], no)
	case len(f) >= 3 && f[0] == "qos" && f[1] == "profile":
		r.leave()
		r.inPr, r.block, r.queue = f[2], "", nil
		if r.prof[r.inPr] == nil && len(r.prof) < 256 {
			r.prof[r.inPr] = &QoS{}
		}
		return true
	}
	return r.configPort(f, no)
}

// configInterface opens a block, or reads what follows the ports on one line.
func (r *reader) configInterface(f []string, no bool) bool {
	if len(f) == 0 {
		return false
	}
	kind, ports, rest := strings.ToLower(f[0]), "", f[1:]
	switch {
	case portWord().MatchString(f[0]) && isFabric(f[0]) || strings.HasPrefix(kind, "et") && strings.ContainsAny(kind, "0123456789"):
		ports = portPrefix().ReplaceAllString(f[0], "")
	case keyword(kind, "ethernet") && len(rest) > 0:
		ports, rest = rest[0], rest[1:]
	default:
		r.block = "other" // a port-channel, VLAN or management interface: not the fabric's
		return false
	}
	if ports == "" || ports[0] < '0' || ports[0] > '9' {
		return false
	}
	r.leave()
	r.inPr, r.queue = "", nil
	r.block = ports
	if len(rest) == 0 {
		return true
	}
	ok := r.configPort(rest, no)
	r.block, r.queue = "", nil
	return ok
}

// configPort reads what is said of the ports of the current block; outside one
// it is about the whole switch.
func (r *reader) configPort(f []string, no bool) bool {
	switch {
	case len(f) >= 3 && f[0] == "qos" && f[1] == "trust":
		q := r.target()
		q.Trust, q.TrustSeen = trustWord(f[2]), f[2]
		if no {
			q.Trust, q.TrustSeen = "none", "no qos trust"
		}
	case len(f) >= 2 && f[0] == "qos" && f[1] == "map":
		return r.configMap(f[2:])
	case f[0] == "priority-flow-control":
		return r.eosConfigPFC(f[1:], no)
	case len(f) >= 2 && f[0] == "dcb" && f[1] == "priority-flow-control":
		return r.onyxConfigPFC(f[2:], no)
	case (f[0] == "uc-tx-queue" || f[0] == "tx-queue") && len(f) >= 2:
		r.tell("eos")
		r.queue = class(f[1])
		return r.queue != nil
	case f[0] == "traffic-class" && len(f) >= 3:
		return r.onyxClass(f)
	case len(f) >= 2 && f[0] == "random-detect" && f[1] == "ecn" && r.queue != nil:
		return r.eosECN(f[2:], *r.queue)
	case f[0] == "priority" && len(f) >= 2 && f[1] == "strict" && r.queue != nil:
		if q := r.target(); !no && !slices.Contains(q.Strict, *r.queue) {
			q.Strict = append(q.Strict, *r.queue)
		}
	case f[0] == "mtu" && len(f) >= 2:
		n, err := strconv.Atoi(f[1])
		if err != nil || r.block == "other" {
			return false
		}
		if len(r.sw.MTU) < maxPorts {
			r.sw.MTU = append(r.sw.MTU, MTU{r.block, n})
		}
	case f[0] == "service-profile" && len(f) >= 2:
		p := r.prof[f[1]]
		if p == nil || r.block == "other" {
			return false
		}
		q := r.qosFor(r.block)
		ports := q.Ports
		*q = *p
		q.Ports = ports
		for i := range r.sw.PFC {
			if r.sw.PFC[i].Note == "qos profile "+f[1] {
				pfc := r.sw.PFC[i]
				pfc.Port, pfc.Note = r.block, ""
				r.sw.PFC = append(r.sw.PFC, pfc)
				break
			}
		}
	case f[0] == "roce":
		// Onyx 3.8: one command sets the whole published setup.
		r.tell("onyx")
		lossless := len(f) == 1 || f[1] == "lossless" || f[1] == "semi-lossless"
		if lossless && !no {
			r.sw.PFC = append(r.sw.PFC, PFC{Enabled: ptr(true), Priorities: []int{3}, Note: strings.Join(f, " ")})
		}
	default:
		return false
	}
	return true
}

// target is what a classification line is about: a profile, a port, or all.
func (r *reader) target() *QoS {
	if r.inPr != "" && r.prof[r.inPr] != nil {
		return r.prof[r.inPr]
	}
	return r.qosFor(r.block)
}

// pfcTarget is the configured PFC of the block or profile.
func (r *reader) pfcTarget() *PFC {
	port, note := r.block, "configured"
	if r.inPr != "" {
		port, note = "", "qos profile "+r.inPr
	}
	for i := range r.sw.PFC {
		if r.sw.PFC[i].Port == port && r.sw.PFC[i].Note == note {
			return &r.sw.PFC[i]
		}
	}
	r.sw.PFC = append(r.sw.PFC, PFC{Port: port, Note: note})
	return &r.sw.PFC[len(r.sw.PFC)-1]
}

func (r *reader) eosConfigPFC(f []string, no bool) bool {
	switch {
	case len(f) == 0 && no:
		p := r.pfcTarget()
		p.Enabled, p.Priorities = ptr(false), []int{}
	case len(f) == 0: // a line that was cut off
		return false
	case len(f) == 1 && f[0] == "on", len(f) == 2 && f[0] == "mode" && f[1] == "on":
		r.pfcTarget().Enabled = ptr(!no)
	case len(f) == 1 && f[0] == "off":
		r.pfcTarget().Enabled = ptr(false)
	case len(f) >= 2 && f[0] == "priority":
		tc := class(f[1])
		if tc == nil {
			return false
		}
		p := r.pfcTarget()
		p.Priorities = slices.DeleteFunc(p.Priorities, func(n int) bool { return n == *tc })
		// EOS says no-drop behind it, enterprise SONiC nothing.
		if len(f) > 2 {
			r.tell("eos")
		}
		if (len(f) == 2 || f[2] == "no-drop") && !no {
			p.Priorities = append(p.Priorities, *tc)
		}
		if p.Priorities == nil {
			p.Priorities = []int{}
		}
		slices.Sort(p.Priorities)
	case f[0] == "pause" || f[0] == "all" || f[0] == "watchdog":
	default:
		return false
	}
	return true
}

func (r *reader) onyxConfigPFC(f []string, no bool) bool {
	r.tell("onyx")
	if len(f) == 0 {
		return false
	}
	switch {
	case f[0] == "enable":
		r.sw.GlobalP = ptr(!no)
		r.switchPFC().Enabled = ptr(!no)
	case f[0] == "priority" && len(f) >= 3:
		tc := class(f[1])
		if tc == nil {
			return false
		}
		p := r.switchPFC()
		p.Priorities = slices.DeleteFunc(p.Priorities, func(n int) bool { return n == *tc })
		if keyword(f[2], "enable") && !no {
			p.Priorities = append(p.Priorities, *tc)
		}
		slices.Sort(p.Priorities)
	case f[0] == "mode" && len(f) >= 2:
		p := r.pfcTarget()
		p.Enabled = ptr(!no && f[1] != "off")
		p.Priorities = slices.Clone(r.switchPFC().Priorities)
	default:
		return false
	}
	return true
}

// onyxClass is "traffic-class N …": ECN thresholds and scheduling.
func (r *reader) onyxClass(f []string) bool {
	tc := class(f[1])
	if tc == nil {
		return false
	}
	r.tell("onyx")
	q := r.target()
	switch {
	case f[2] == "congestion-control" && slices.Contains(f, "ecn"):
		lo, hi := after(f, "minimum-absolute"), after(f, "maximum-absolute")
		if from, to := after(f, "minimum-relative"), after(f, "maximum-relative"); from != nil && to != nil {
			q.addECN(ECN{TC: tc, MinPercent: ptr(float64(*from)), MaxPercent: ptr(float64(*to))})
			return true
		}
		if lo == nil || hi == nil {
			return false
		}
		q.addECN(ECN{TC: tc, MinKB: ptr(float64(*lo)), MaxKB: ptr(float64(*hi))})
	case len(f) >= 5 && f[2] == "dcb" && f[3] == "ets":
		if f[4] == "strict" && !slices.Contains(q.Strict, *tc) {
			q.Strict = append(q.Strict, *tc)
		}
	default:
		return false
	}
	return true
}

// eosECN is "random-detect ecn …" in a queue's block.
func (r *reader) eosECN(f []string, tc int) bool {
	lo, hi := threshold(f, "minimum-threshold"), threshold(f, "maximum-threshold")
	if lo == nil || hi == nil {
		return len(f) > 0 && f[0] == "count"
	}
	r.target().addECN(ECN{TC: &tc, MinKB: lo, MaxKB: hi})
	return true
}

// threshold is the size behind a key in units of 1000 bytes; segments and
// milliseconds, which depend on the platform, are none.
func threshold(f []string, key string) *float64 {
	n := after(f, key)
	i := slices.Index(f, key)
	if n == nil || i+2 >= len(f) {
		return nil
	}
	unit, ok := map[string]float64{"bytes": 0.001, "kbytes": 1, "mbytes": 1000}[f[i+2]]
	if !ok {
		return nil
	}
	return ptr(float64(*n) * unit)
}

// configMap is "qos map …" of either language.
func (r *reader) configMap(f []string) bool {
	// EOS: dscp 26 [27 …] to traffic-class 3; Onyx: dscp 26 to switch-priority 3.
	to := slices.Index(f, "to")
	if to < 2 || to+2 >= len(f) {
		return false
	}
	prio := class(f[to+2])
	switch {
	case f[0] == "dscp" && (f[to+1] == "traffic-class" || f[to+1] == "switch-priority") && prio != nil:
		for _, w := range f[1:to] {
			for _, dscp := range dscps(w) {
				r.target().mapDSCP(dscp, *prio)
			}
		}
		return true
	case f[0] == "traffic-class" && f[to+1] == "dscp":
		// The rewrite map (traffic class to the DSCP of packets that leave): no classification.
		return true
	case f[0] == "cos":
		return true
	}
	return false
}

// dscps reads "26", "24-31" and "24,26".
func dscps(s string) []int {
	var seen [64]bool // a long line repeats itself
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b > 63 {
			return nil
		}
		for n := a; n <= b; n++ {
			if !seen[n] {
				seen[n], out = true, append(out, n)
			}
		}
	}
	return out
}

// addECN keeps one threshold per traffic class: the last one said.
func (q *QoS) addECN(e ECN) {
	q.ECN = append(slices.DeleteFunc(slices.Clone(q.ECN), func(o ECN) bool { return (o.TC == nil) == (e.TC == nil) && (e.TC == nil || *o.TC == *e.TC) }), e)
}

func (r *reader) configPool(name string, f []string, no bool) bool {
	r.tell("onyx")
	i := slices.IndexFunc(r.sw.Pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		if len(r.sw.Pools) >= 64 {
			return false
		}
		r.sw.Pools = append(r.sw.Pools, Pool{Name: name, Priorities: []int{}})
		i = len(r.sw.Pools) - 1
	}
	p := &r.sw.Pools[i]
	switch {
	case no || len(f) < 2:
		return false
	case f[0] == "type":
		p.Type = f[1]
	case f[0] == "memory" && len(f) >= 3 && f[1] == "percent":
		n, err := strconv.ParseFloat(f[2], 64)
		if err != nil || n < 0 || n > 100 {
			return false
		}
		p.Percent = &n
	case f[0] == "map" && len(f) >= 3 && f[1] == "switch-priority":
		p.Priorities = digits(append(f[2:], wordsOf(p.Priorities)...))
	default:
		return false
	}
	return true
}

func wordsOf(ns []int) []string {
	var out []string
	for _, n := range ns {
		out = append(out, strconv.Itoa(n))
	}
	return out
}

func class(s string) *int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 7 {
		return nil
	}
	return &n
}

func after(f []string, key string) *int {
	i := slices.Index(f, key)
	if i < 0 || i+1 >= len(f) {
		return nil
	}
	n, err := strconv.Atoi(f[i+1])
	if err != nil || n < 0 {
		return nil
	}
	return &n
}
