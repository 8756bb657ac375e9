package qosconf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// Comparison is what came of holding a switch against a plan.
type Comparison struct {
	Verdict  Verdict
	Findings []finding.Finding // worst first
	Aspects  []Aspect          // every one, compared or not
}

// Verdict sums up: good only where all that the plan says of the switch was in
// the text, and is so.
type Verdict string

// The verdicts.
const (
	Good     Verdict = "good"
	Degraded Verdict = "degraded"
	Broken   Verdict = "broken"
	Unknown  Verdict = "unknown"
)

// Aspect is one thing that can be compared.
type Aspect struct {
	What string
	Of   string // what was compared: "12 ports"; "" nothing was
	Why  string // why it was not
	// essential aspects are those without which nobody can say that the switch
	// carries RDMA as planned.
	essential bool
}

// Compare holds what a switch said against the plan. A nil plan judges only
// what is wrong by itself (links, speeds, counters).
func Compare(sw Switch, plan *Plan) Comparison {
	c := &comparison{sw: sw, plan: plan, byPort: map[string]*PFC{}, noLink: map[string]bool{}}
	for i, p := range sw.PFC {
		if short := ShortPort(p.Port); p.Port != "" && c.byPort[short] == nil {
			c.byPort[short] = &sw.PFC[i]
		}
	}
	for _, p := range sw.Ports {
		if p.Up != nil && !*p.Up {
			c.noLink[ShortPort(p.Port)] = true
		}
	}
	if sw.Lines == 0 {
		c.nothing()
		return Comparison{Verdict: Unknown, Findings: c.out, Aspects: []Aspect{}}
	}
	for _, check := range []func(*comparison){
		(*comparison).links, (*comparison).speeds, (*comparison).pfcGlobal, (*comparison).pfcPorts,
		(*comparison).trust, (*comparison).maps, (*comparison).ecn, (*comparison).pools, (*comparison).strict,
		(*comparison).mtu, (*comparison).watchdog, (*comparison).counters, (*comparison).unread,
	} {
		check(c)
	}
	finding.Sort(c.out)
	return Comparison{Verdict: c.verdict(), Findings: together(c.out), Aspects: c.aspects}
}

// together says once what is said of several ports in the same words.
func together(fs []finding.Finding) []finding.Finding {
	var out []finding.Finding
	at := map[finding.Finding]int{}
	ports := map[int][]string{}
	for _, f := range fs {
		name, ok := strings.CutPrefix(f.Subject, "port ")
		if !ok {
			out = append(out, f)
			continue
		}
		same := f
		same.Subject = ""
		i, seen := at[same]
		if !seen {
			i = len(out)
			at[same] = i
			out = append(out, f)
		}
		ports[i] = append(ports[i], name)
	}
	for i, names := range ports {
		const most = 6
		switch n := len(names); {
		case n > most:
			out[i].Subject = fmt.Sprintf("%d ports: %s and %d more", n, strings.Join(names[:most], ", "), n-most)
		case n > 1:
			out[i].Subject = "ports " + strings.Join(names, ", ")
		}
	}
	return out
}

func (c *comparison) verdict() Verdict {
	switch worst, ok := finding.Worst(c.out); {
	case ok && worst == finding.Error:
		return Broken
	case ok && worst == finding.Warning:
		return Degraded
	case c.plan == nil || len(c.sw.Unread) > 0 || slices.ContainsFunc(c.aspects, func(a Aspect) bool { return a.essential && a.Of == "" }):
		return Unknown
	}
	return Good
}

// nothing is said of a text without one recognised table.
func (c *comparison) nothing() {
	seen := "no line of text"
	if c.sw.Skipped > 0 {
		first := []rune(c.sw.First)
		if len(first) > 60 {
			first = append(first[:57], '…')
		}
		seen = fmt.Sprintf("%d lines, none of a known table; the first is %q", c.sw.Skipped, string(first))
	}
	if len(c.sw.Outputs) > 0 {
		var heads []string
		for _, o := range c.sw.Outputs {
			if h := fmt.Sprintf("%q (line %d)", o.Show, o.Line); len(heads) < 4 {
				heads = append(heads, h)
			}
		}
		seen = "the heading of " + strings.Join(heads, ", ") + " without a row that could be read"
	}
	c.add("switch.nothing-read", finding.Error, "", seen, "one of these: "+Known(), "nothing was compared", "paste the switch's own text, headings included")
	c.unread()
}

type comparison struct {
	sw      Switch
	plan    *Plan
	byPort  map[string]*PFC
	noLink  map[string]bool
	out     []finding.Finding
	aspects []Aspect
}

func (c *comparison) add(id string, sev finding.Severity, subject, seen, wanted, why, hint string) {
	c.out = append(c.out, finding.Finding{ID: id, Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

const (
	notInText  = "not in this text"
	notPlanned = "the profile does not say it"
	noProfile  = "no profile named"
)

// compared notes an aspect: n of what were compared, or why none was.
func (c *comparison) compared(aspect string, essential bool, n int, what, why string) {
	a := Aspect{What: aspect, essential: essential}
	if n > 0 {
		if a.Of = fmt.Sprintf("%d %s", n, what); n == 1 {
			a.Of = "1 " + strings.TrimSuffix(what, "s")
		}
	} else {
		a.Why = why
	}
	c.aspects = append(c.aspects, a)
}

// pfcOf returns what the pasted tables say of a port's PFC.
func (c *comparison) pfcOf(port string) *PFC {
	return c.byPort[ShortPort(port)]
}

func (c *comparison) links() {
	n := 0
	defer func() { c.compared("links of the ports", false, n, "ports", notInText) }()
	for _, p := range c.sw.Ports {
		if !isFabric(p.Port) || p.Up == nil {
			continue
		}
		n++
		subject := "port " + p.Port
		switch {
		case strings.EqualFold(p.Status, "errdisabled"), strings.EqualFold(p.Status, "err-disabled"):
			c.add("switch.port-errdisabled", finding.Error, subject, "status "+p.Status, "connected",
				"the switch has shut the port down, for example after a PFC storm", "find the cause in the switch's log, then 'shutdown' and 'no shutdown'")
		case p.Status == "admin down":
			c.add("switch.port-unused", finding.Note, subject, "shut down by configuration", "up, if a host is meant to be there", "no link", "")
		case !*p.Up && !p.empty() && (p.Type != "" || c.lossless(p.Port)):
			c.add("switch.port-down", finding.Error, subject, "status "+p.Status, "connected",
				"the host behind it has no link on this rail", "check cable, transceiver and the host's port")
		case !*p.Up:
			c.add("switch.port-unused", finding.Note, subject, "status "+p.Status, "connected, if a host is meant to be there",
				"no link", "")
		case p.Duplex == "half":
			c.add("switch.port-duplex", finding.Error, subject, "half duplex", "full duplex", "PFC and RDMA need full duplex", "set speed and duplex on both ends")
		}
	}
}

// absent is the type of a port without a transceiver, in EOS's words.
const absent = "Not Present"

// empty reports a port into which nothing is plugged.
func (p *Port) empty() bool {
	return strings.EqualFold(p.Type, absent) || slices.ContainsFunc([]string{"sfpAbsent", "sfp-absent", "xcvrAbsen", "xcvrAbsent"}, func(s string) bool { return strings.EqualFold(s, p.Status) })
}

// lossless reports whether PFC is on at a port, as for a host of the fabric.
func (c *comparison) lossless(port string) bool {
	p := c.pfcOf(port)
	return p != nil && (p.Enabled == nil || *p.Enabled)
}

// down reports a port that is known to have no link.
func (c *comparison) down(port string) bool { return c.noLink[ShortPort(port)] }

// speeds compares the ports that are up with the profile's rate, or where it
// says none with the most of them.
func (c *comparison) speeds() {
	count := map[float64]int{}
	for _, p := range c.sw.Ports {
		if p.SpeedGbps != nil && p.Up != nil && *p.Up && isFabric(p.Port) {
			count[*p.SpeedGbps]++
		}
	}
	why := "no port that is up says its speed"
	if len(c.sw.Ports) == 0 {
		why = notInText
	}
	want, by := 0.0, "most ports of this switch"
	for speed, n := range count {
		if n > count[want] || (n == count[want] && speed > want) {
			want = speed
		}
	}
	if count[want] < 2 || len(count) > 1 && count[want]*2 <= sum(count) {
		want = 0 // no majority
	}
	if c.plan != nil && c.plan.RateGbps != nil {
		want, by = *c.plan.RateGbps, "profile "+c.plan.Profile
	}
	if want == 0 {
		if len(count) > 0 {
			why = "the profile says no rate, and no speed is that of most ports"
		}
		c.compared("speed of the ports", false, 0, "", why)
		return
	}
	c.compared("speed of the ports", false, sum(count), "ports", why)
	for _, p := range c.sw.Ports {
		if p.SpeedGbps == nil || p.Up == nil || !*p.Up || !isFabric(p.Port) || *p.SpeedGbps == want {
			continue
		}
		sev := finding.Warning
		if *p.SpeedGbps < want {
			sev = finding.Error
		}
		c.add("switch.port-speed", sev, "port "+p.Port, g(*p.SpeedGbps)+" Gb/s", g(want)+" Gb/s ("+by+")",
			"a rail runs as fast as its slowest port", "check breakout, cable type and the speed set on both ends")
	}
}

func sum(m map[float64]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func g(f float64) string { return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) }

func (c *comparison) pfcGlobal() {
	if c.plan == nil || len(c.plan.PFC) == 0 || c.sw.GlobalP == nil || *c.sw.GlobalP {
		return
	}
	c.add("switch.pfc-global-off", finding.Error, "switch", "PFC is disabled for the whole switch", "enabled",
		"the lossless class drops packets as soon as a queue fills", "enable priority flow control ('fabrun profile show "+c.plan.Profile+" --switch …' writes the commands)")
}

func (c *comparison) pfcPorts() {
	const aspect = "PFC priorities"
	if c.plan == nil {
		c.compared(aspect, false, 0, "", noProfile)
		return
	}
	want, n := c.plan.PFC, 0
	defer func() {
		why := notInText
		if len(c.sw.PFC) > 0 {
			why = "the text does not say which priorities"
		}
		c.compared(aspect, true, n, "records", why)
	}()
	if len(c.sw.Pools) > 0 {
		n++ // a lossless pool switches PFC on for its priorities
	}
	for _, p := range c.sw.PFC {
		subject := "port " + p.Port
		switch {
		case p.Port == "" && p.Note == "":
			subject = "switch"
		case p.Port == "":
			subject = "switch (" + p.Note + ")"
		case strings.ContainsAny(p.Port, "-,"):
			subject = "ports " + p.Port
		}
		if p.Enabled != nil && !*p.Enabled {
			n++
			if len(want) > 0 && (p.Port != "" || c.sw.GlobalP == nil) && !c.down(p.Port) {
				c.add("switch.pfc-off", finding.Error, subject, "PFC disabled", "enabled on priority "+joinInts(want, " "),
					"RDMA packets are dropped there under load", c.hint(pfcOn, want))
			}
			continue
		}
		if p.Active != nil && !*p.Active && len(want) > 0 && !c.down(p.Port) {
			n++
			seen := "PFC enabled but not active"
			if strings.HasSuffix(p.Note, " is off") || strings.HasPrefix(p.Note, "mode ") {
				seen += " (" + p.Note + ")"
			}
			c.add("switch.pfc-inactive", finding.Error, subject, seen, "active",
				"no pause frame is sent or obeyed", "check the link, DCBX and that 802.3x flow control is off on the port")
		}
		if p.Priorities == nil {
			continue
		}
		n++
		if missing := without(want, p.Priorities); len(missing) > 0 {
			c.add("switch.pfc-priority", finding.Error, subject, "lossless priorities "+orNone(p.Priorities), "priority "+joinInts(want, " "),
				fmt.Sprintf("priority %s, on which RDMA runs, is lossy", joinInts(missing, " ")), c.hint(pfcPriority, missing))
		}
		if extra := without(p.Priorities, want); len(extra) > 0 {
			c.add("switch.pfc-extra", finding.Warning, subject, "lossless priorities "+joinInts(p.Priorities, " "), "priority "+orNone(want),
				fmt.Sprintf("priority %s is paused too; each lossless class takes headroom, and pauses spread", joinInts(extra, " ")), "where nothing counts on it (storage often has a class of its own) make it lossy; else write it into the profile")
		}
	}
	c.pfcMissing(want)
}

// pfcMissing names ports that are up and absent from the table of PFC.
func (c *comparison) pfcMissing(want []int) {
	perPort := slices.ContainsFunc(c.sw.PFC, func(p PFC) bool { return isFabric(p.Port) })
	if len(want) == 0 || !perPort {
		return
	}
	for _, p := range c.sw.Ports {
		if isFabric(p.Port) && p.Up != nil && *p.Up && c.pfcOf(p.Port) == nil && !c.ranges() {
			c.add("switch.pfc-missing", finding.Warning, "port "+p.Port, "connected, but not in the table of PFC", "PFC on priority "+joinInts(want, " "),
				"if a host is behind it, its RDMA packets are lossy", c.hint(pfcOn, want)+", or paste the whole table")
		}
	}
}

// ranges reports whether PFC is configured for ranges of ports; they are not
// expanded, since what they hold depends on the breakout.
func (c *comparison) ranges() bool {
	return slices.ContainsFunc(c.sw.PFC, func(p PFC) bool { return strings.ContainsAny(p.Port, "-,") })
}

func without(a, b []int) []int {
	var out []int
	for _, n := range a {
		if !slices.Contains(b, n) {
			out = append(out, n)
		}
	}
	return out
}

func orNone(ns []int) string {
	if len(ns) == 0 {
		return "none"
	}
	return joinInts(ns, " ")
}

func portsWord(ports string) string {
	if ports == "" {
		return "switch"
	}
	return "port " + ports
}

// subject is what a record of classification and queueing is about.
func (q *QoS) subject() string {
	if q.Name != "" {
		return q.Name
	}
	return portsWord(q.Ports)
}

func (c *comparison) trust() {
	const aspect = "trust"
	if c.plan == nil {
		c.compared(aspect, false, 0, "", noProfile)
		return
	}
	n := 0
	for _, q := range c.sw.QoS {
		if q.Trust != "" {
			n++
		}
		if q.Trust == "" || q.Trust == c.plan.Trust || q.Trust == "both" {
			continue
		}
		c.add("switch.trust", finding.Error, q.subject(), "trust "+q.TrustSeen, "trust "+c.plan.Trust,
			fmt.Sprintf("packets on DSCP %d are not put into the lossless class", c.plan.RDMA.DSCP), c.hint(trustOn, nil))
	}
	c.compared(aspect, true, n, "records", notInText)
}

func (c *comparison) maps() {
	const aspect = "DSCP map"
	if c.plan == nil || c.plan.Trust != "dscp" || len(c.plan.dscpMap()) == 0 {
		why := noProfile
		if c.plan != nil {
			why = "the plan goes by 802.1p"
			if c.plan.Trust == "dscp" {
				why = "the profile names no priority"
			}
		}
		c.compared(aspect, c.plan != nil && c.plan.Trust == "dscp", 0, "", why)
		return
	}
	n, why := 0, notInText
	for _, q := range c.sw.QoS {
		for i, m := range c.plan.dscpMap() {
			got, ok := q.DSCP[m.dscp]
			switch class, unresolved := q.Class[m.dscp]; {
			case ok && got == m.prio:
				n++
			case ok:
				n++
				c.add("switch.dscp-map", finding.Error, q.subject(), fmt.Sprintf("DSCP %d is traffic class %d", m.dscp, got), fmt.Sprintf("traffic class %d", m.prio),
					"the switch puts these packets into another class than the hosts do", c.mapHint(m))
			case unresolved:
				why = fmt.Sprintf("DSCP %d is in forwarding class %s, whose PFC priority is not in this text", m.dscp, class)
			case q.Whole:
				n++
				sev := finding.Warning
				if i == 0 {
					sev = finding.Error
				}
				c.add("switch.dscp-unmapped", sev, q.subject(), fmt.Sprintf("DSCP %d is in no row of the map (%d code points are)", m.dscp, len(q.DSCP)+len(q.Class)), fmt.Sprintf("traffic class %d", m.prio),
					"packets that no row names go to the default class, which is lossy", c.mapHint(m)+", or paste the whole map")
			}
		}
	}
	c.compared(aspect, true, n, "code points", why)
}

// What a hint is about.
const (
	pfcOn = iota
	pfcPriority
	trustOn
	mtuOn
)

// hint is how something is set, in the dialect of the switch; EOS's words where
// it is not known.
func (c *comparison) hint(what int, prios []int) string {
	first := "N"
	if len(prios) > 0 {
		first = strconv.Itoa(prios[0])
	}
	dscp := 0
	if c.plan != nil {
		dscp = c.plan.RDMA.DSCP
	}
	words := map[string][4]string{
		"onyx":  {"'dcb priority-flow-control mode on force' on the port", "'dcb priority-flow-control priority " + first + " enable'", "'qos trust L3' on the port", "'mtu 9216 force' on the port"},
		"nvue":  {"'nv set qos roce mode lossless'", "'nv set qos pfc default-global switch-priority " + first + "'", "'nv set qos mapping default-global trust l3'", "'nv set interface PORT link mtu 9216'"},
		"sonic": {"'sudo config interface pfc priority PORT " + first + " on'", "'sudo config interface pfc priority PORT " + first + " on'", "a dscp_to_tc_map for the port in PORT_QOS_MAP", "'sudo config interface mtu PORT 9216'"},
		"nxos":  {"'priority-flow-control mode on' on the port", "'pause pfc-cos " + first + "' in the network-qos policy of 'system qos'", "'service-policy type qos input' with 'match dscp' on the port", "'mtu 9216' on the port"},
		"junos": {"a congestion-notification-profile for the interface", fmt.Sprintf("'input dscp code-point %06b pfc' in the congestion-notification-profile", dscp), "a dscp classifier for the interface", "'set interfaces PORT mtu 9216'"},
	}
	if w, ok := words[c.sw.OS]; ok {
		return w[what]
	}
	trust := "dscp"
	if c.plan != nil && c.plan.Trust == "pcp" {
		trust = "cos"
	}
	return [4]string{"'priority-flow-control on' on the port", "'priority-flow-control priority " + first + " no-drop' on the port", "'qos trust " + trust + "' on the port", "'mtu 9214' on the port"}[what]
}

// mapHint is how a code point is put into its class, where the dialect is known.
func (c *comparison) mapHint(m dscpPrio) string {
	switch c.sw.OS {
	case "onyx":
		return fmt.Sprintf("'qos map dscp %d to switch-priority %d' on the ports", m.dscp, m.prio)
	case "nvue":
		return fmt.Sprintf("'nv set qos mapping default-global dscp %d switch-priority %d'", m.dscp, m.prio)
	case "nxos":
		return fmt.Sprintf("'match dscp %d' in the class-map whose class sets qos-group %d", m.dscp, m.prio)
	case "sonic":
		return fmt.Sprintf("\"%d\": \"%d\" in DSCP_TO_TC_MAP", m.dscp, m.prio)
	case "junos":
		return fmt.Sprintf("code point %06b in the classifier, for the forwarding class with PFC priority %d", m.dscp, m.prio)
	}
	return fmt.Sprintf("'qos map dscp %d to traffic-class %d'", m.dscp, m.prio)
}

// sameThreshold allows what ASICs round to: Spectrum-4 makes 156 KiB of
// 150,000 bytes (Cumulus documentation, RDMA over Converged Ethernet).
func sameThreshold(got float64, want int) bool {
	return got >= 0.9*float64(want) && got <= 1.1*float64(want)
}

func (c *comparison) ecn() {
	const aspect = "ECN thresholds"
	switch {
	case c.plan == nil:
		c.compared(aspect, false, 0, "", noProfile)
		return
	case c.plan.Priority == nil:
		c.compared(aspect, false, 0, "", "the profile names no priority")
		return
	}
	planned := c.plan.ECNMinKB != nil && c.plan.ECNMaxKB != nil
	n, why := 0, notInText
	if !planned {
		why = notPlanned
	}
	for _, q := range c.sw.QoS {
		rdma := slices.ContainsFunc(q.ECN, func(e ECN) bool { return e.TC == nil || *e.TC == *c.plan.Priority })
		for _, e := range q.ECN {
			if e.TC != nil && *e.TC != *c.plan.Priority {
				if !rdma && !c.marked() {
					c.add("switch.ecn-class", finding.Warning, q.subject(), fmt.Sprintf("ECN on traffic class %d", *e.TC), fmt.Sprintf("traffic class %d", *c.plan.Priority),
						"the RDMA class itself is not marked, so senders slow down only when paused", "move the thresholds to the RDMA class")
				}
				continue
			}
			if e.MinKB == nil || e.MaxKB == nil {
				if e.MinPercent != nil && planned {
					why = fmt.Sprintf("the switch says them in percent of fill (%s to %s %%), the profile in kB", g(*e.MinPercent), g(or(e.MaxPercent, 100)))
				}
				continue
			}
			if *e.MinKB > *e.MaxKB {
				c.add("switch.ecn-order", finding.Error, q.subject(), fmt.Sprintf("ECN minimum %s kB above maximum %s kB", g(*e.MinKB), g(*e.MaxKB)), "minimum below maximum",
					"marking does not work as meant", "swap them")
			}
			if !planned {
				continue
			}
			n++
			if !sameThreshold(*e.MinKB, *c.plan.ECNMinKB) || !sameThreshold(*e.MaxKB, *c.plan.ECNMaxKB) {
				c.add("switch.ecn-thresholds", finding.Warning, q.subject(), fmt.Sprintf("ECN from %s to %s kB", g(*e.MinKB), g(*e.MaxKB)), fmt.Sprintf("%d to %d kB", *c.plan.ECNMinKB, *c.plan.ECNMaxKB),
					"senders are slowed down earlier or later than planned", "set the plan's thresholds, or write these into the profile")
			}
		}
		if q.Trust != "" && len(q.ECN) == 0 && c.configured() && planned && !c.ecnElsewhere() {
			n++
			c.add("switch.ecn-missing", finding.Warning, q.subject(), "no ECN thresholds in this configuration", fmt.Sprintf("%d to %d kB on traffic class %d", *c.plan.ECNMinKB, *c.plan.ECNMaxKB, *c.plan.Priority),
				"congestion ends in pause frames only", "'fabrun profile show "+c.plan.Profile+" --switch …' writes the lines")
		}
	}
	c.compared(aspect, planned, n, "thresholds", why)
}

func or(f *float64, otherwise float64) float64 {
	if f == nil {
		return otherwise
	}
	return *f
}

// marked reports whether some record marks the RDMA class.
func (c *comparison) marked() bool {
	return slices.ContainsFunc(c.sw.QoS, func(q QoS) bool {
		return slices.ContainsFunc(q.ECN, func(e ECN) bool { return e.TC == nil || *e.TC == *c.plan.Priority })
	})
}

// configured reports whether a configuration was pasted, not only tables.
func (c *comparison) configured() bool {
	return len(c.sw.Pools) > 0 || slices.ContainsFunc(c.sw.PFC, func(p PFC) bool { return p.Note == "configured" })
}

func (c *comparison) ecnElsewhere() bool {
	return slices.ContainsFunc(c.sw.QoS, func(q QoS) bool { return len(q.ECN) > 0 })
}

func (c *comparison) pools() {
	if c.plan == nil || len(c.plan.PFC) == 0 || len(c.sw.Pools) == 0 {
		if c.plan != nil && c.plan.Pool != nil {
			c.compared("buffer pools", false, 0, "", notInText)
		}
		return
	}
	c.compared("buffer pools", false, len(c.sw.Pools), "pools", "")
	var lossless []int
	for _, p := range c.sw.Pools {
		if p.Type != "lossless" {
			if overlap := len(p.Priorities) - len(without(p.Priorities, c.plan.PFC)); overlap > 0 {
				c.add("switch.pool-lossy", finding.Error, "pool "+p.Name, "type "+p.Type+" for priority "+joinInts(p.Priorities, " "), "lossless",
					"RDMA packets are dropped under load", "'traffic pool "+p.Name+" type lossless'")
			}
			continue
		}
		lossless = append(lossless, p.Priorities...)
		if extra := without(p.Priorities, c.plan.PFC); len(extra) > 0 {
			c.add("switch.pfc-extra", finding.Warning, "pool "+p.Name, "lossless for priority "+joinInts(p.Priorities, " "), "priority "+joinInts(c.plan.PFC, " "),
				fmt.Sprintf("priority %s is paused too", joinInts(extra, " ")), "where nothing counts on it take it out of the pool; else write it into the profile")
		}
		if p.Percent != nil && c.plan.Pool != nil && *p.Percent != float64(*c.plan.Pool) {
			c.add("switch.pool-percent", finding.Warning, "pool "+p.Name, g(*p.Percent)+" percent of the buffer", strconv.Itoa(*c.plan.Pool)+" percent",
				"the lossless class has another share of the buffer than planned", "'traffic pool "+p.Name+" memory percent "+strconv.Itoa(*c.plan.Pool)+"'")
		}
	}
	byPFC := slices.ContainsFunc(c.sw.PFC, func(p PFC) bool { return len(without(c.plan.PFC, p.Priorities)) == 0 && p.Priorities != nil })
	if missing := without(c.plan.PFC, lossless); len(missing) > 0 && !byPFC {
		c.add("switch.pfc-priority", finding.Error, "switch", "lossless pools hold priority "+orNone(lossless), "priority "+joinInts(c.plan.PFC, " "),
			fmt.Sprintf("priority %s, on which RDMA runs, is lossy", joinInts(missing, " ")), fmt.Sprintf("'traffic pool <name> map switch-priority %d'", missing[0]))
	}
}

func (c *comparison) strict() {
	if c.plan == nil {
		return
	}
	want, ok := c.plan.strictTC()
	if ok {
		n := 0
		for _, q := range c.sw.QoS {
			n += min(len(q.Strict), 1)
		}
		c.compared("strict traffic class", false, n, "records", notInText)
	}
	for _, q := range c.sw.QoS {
		if c.plan.Priority != nil && slices.Contains(q.Strict, *c.plan.Priority) && (!ok || want != *c.plan.Priority) && c.configured() {
			c.add("switch.strict", finding.Warning, q.subject(), fmt.Sprintf("traffic class %d is strict", *c.plan.Priority), "the RDMA class shares by weight",
				"RDMA traffic can starve everything else, congestion notifications included", "give it a weight")
			continue
		}
		if ok && len(q.Strict) > 0 && c.configured() && !slices.Contains(q.Strict, want) {
			c.add("switch.strict", finding.Warning, q.subject(), "strict traffic classes "+joinInts(q.Strict, " "), fmt.Sprintf("traffic class %d (congestion notifications)", want),
				"congestion notifications wait behind data", fmt.Sprintf("make traffic class %d strict", want))
		}
	}
}

func (c *comparison) mtu() {
	if c.plan == nil || c.plan.MTUBytes == nil {
		return
	}
	c.compared("MTU", false, len(c.sw.MTU), "records", notInText)
	for _, m := range c.sw.MTU {
		if m.Ports != "" && portWord().MatchString(m.Ports) && !isFabric(m.Ports) {
			continue
		}
		if m.Bytes < *c.plan.MTUBytes {
			c.add("switch.mtu", finding.Error, portsWord(m.Ports), fmt.Sprintf("mtu %d", m.Bytes), fmt.Sprintf("at least %d", *c.plan.MTUBytes),
				"full-size RDMA packets do not pass", c.hint(mtuOn, nil))
		}
	}
}

func (c *comparison) watchdog() {
	if c.sw.Storms == nil || c.plan == nil || *c.sw.Storms == "drop" || *c.sw.Storms == "" {
		return
	}
	c.add("switch.pfc-watchdog", finding.Note, "switch", "PFC watchdog armed, action "+*c.sw.Storms, "known to whoever looks for lost links",
		"a port that is paused too long is taken down", "")
}

// counters says which port pauses whom, and where the lossless class lost
// packets. They are totals since somebody cleared them: what is old and what
// is new only a second look can tell.
func (c *comparison) counters() {
	if len(c.sw.Counters) == 0 {
		return
	}
	c.compared("counters", false, len(c.sw.Counters), "counters", "")
	type total struct {
		port string
		n    uint64
	}
	sums := map[bool]map[string]uint64{true: {}, false: {}}
	for _, k := range c.sw.Counters {
		for rx, n := range map[bool]*uint64{true: k.RxPause, false: k.TxPause} {
			if n == nil || *n == 0 {
				continue
			}
			sums[rx][k.Port] += *n
			if c.plan != nil && k.Priority != nil && !slices.Contains(c.plan.PFC, *k.Priority) {
				c.add("switch.pause-priority", finding.Warning, portsWord(k.Port), fmt.Sprintf("%d pause frames of priority %d", *n, *k.Priority), "pauses of priority "+orNone(c.plan.PFC)+" alone",
					"a class that the plan does not make lossless is being paused", "look at the PFC settings on both ends of this link")
			}
		}
		if k.Storms != nil && *k.Storms > 0 {
			c.add("switch.pfc-storm", finding.Warning, portsWord(k.Port), fmt.Sprintf("%d PFC storms found by the watchdog", *k.Storms), "none",
				"what is behind this port paused the switch so long that its packets were dropped", "look at that host: a stuck NIC or driver, a GPU that takes no data; then clear the counters and look again")
		}
		rdma := c.plan != nil && k.Priority != nil && c.plan.Priority != nil && *k.Priority == *c.plan.Priority && c.plan.Lossless()
		if rdma && k.Dropped != nil && *k.Dropped > 0 {
			c.add("switch.lossless-drops", finding.Warning, portsWord(k.Port), fmt.Sprintf("%d packets of priority %d dropped", *k.Dropped, *k.Priority), "none in a lossless class",
				"each dropped packet costs a retransmission, since the counters were cleared", "clear the counters, run the job, look again; then headroom, cable length and PFC on both ends")
		}
	}
	for _, d := range []struct {
		rx         bool
		what, mean string
	}{
		{true, "received", "what is behind these ports tells the switch to stop: hosts that take data too slowly, or a congested switch further on"},
		{false, "sent", "the switch tells what is behind these ports to stop: their data waits here for another port"},
	} {
		var ports []total
		for port, n := range sums[d.rx] {
			ports = append(ports, total{port, n})
		}
		if len(ports) == 0 {
			continue
		}
		slices.SortFunc(ports, func(a, b total) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.port, b.port)) })
		var seen []string
		for _, p := range ports[:min(len(ports), 4)] {
			seen = append(seen, fmt.Sprintf("%s %d", p.port, p.n))
		}
		if len(ports) > 4 {
			seen = append(seen, fmt.Sprintf("%d ports less", len(ports)-4))
		}
		c.add("switch.pauses", finding.Note, "pause frames "+d.what, strings.Join(seen, ", "), "", d.mean, "the counters are totals: look twice, some seconds apart, to see which of them grow")
	}
}

func (c *comparison) unread() {
	for _, l := range c.sw.Unread {
		c.add("switch.unread", finding.Note, fmt.Sprintf("line %d", l.N), l.Text, "a row of a known table", "it begins with the name of a port; nothing was taken from it", "paste it unbroken, with its heading")
	}
}
