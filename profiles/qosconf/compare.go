package qosconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// Compare holds what a switch said against the plan. A nil plan judges only
// what is wrong by itself (links, speeds, disabled PFC). The findings are
// sorted, worst first.
func Compare(sw Switch, plan *Plan) []finding.Finding {
	c := &comparison{sw: sw, plan: plan, byPort: map[string]*PFC{}}
	for i, p := range sw.PFC {
		if short := ShortPort(p.Port); p.Port != "" && c.byPort[short] == nil {
			c.byPort[short] = &sw.PFC[i]
		}
	}
	if sw.Lines == 0 {
		c.add("switch.nothing-read", finding.Error, "", "no line that a switch prints", "the output of 'show priority-flow-control', 'show interfaces status' or a running configuration",
			"nothing could be compared", "paste the switch's own text, headings included")
		return c.out
	}
	for _, check := range []func(*comparison){
		(*comparison).links, (*comparison).speeds, (*comparison).pfcGlobal, (*comparison).pfcPorts,
		(*comparison).trust, (*comparison).maps, (*comparison).ecn, (*comparison).pools, (*comparison).strict,
		(*comparison).mtu, (*comparison).watchdog, (*comparison).unread,
	} {
		check(c)
	}
	finding.Sort(c.out)
	return c.out
}

type comparison struct {
	sw     Switch
	plan   *Plan
	byPort map[string]*PFC
	out    []finding.Finding
}

func (c *comparison) add(id string, sev finding.Severity, subject, seen, wanted, why, hint string) {
	c.out = append(c.out, finding.Finding{ID: id, Severity: sev, Subject: subject, Seen: seen, Wanted: wanted, Why: why, Hint: hint})
}

// pfcOf returns what the pasted tables say of a port's PFC.
func (c *comparison) pfcOf(port string) *PFC {
	return c.byPort[ShortPort(port)]
}

func (c *comparison) links() {
	for _, p := range c.sw.Ports {
		if !fabricPort().MatchString(p.Port) || p.Up == nil {
			continue
		}
		subject := "port " + p.Port
		switch {
		case strings.EqualFold(p.Status, "errdisabled"):
			c.add("switch.port-errdisabled", finding.Error, subject, "status "+p.Status, "connected",
				"the switch has shut the port down, for example after a PFC storm", "find the cause in the switch's log, then 'shutdown' and 'no shutdown'")
		case !*p.Up && (c.pfcOf(p.Port) != nil || (p.Type != "" && !strings.EqualFold(p.Type, "Not Present"))):
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

// speeds compares the ports that are up with the profile's rate, or where it
// says none with the most of them.
func (c *comparison) speeds() {
	count := map[float64]int{}
	for _, p := range c.sw.Ports {
		if p.SpeedGbps != nil && p.Up != nil && *p.Up && fabricPort().MatchString(p.Port) {
			count[*p.SpeedGbps]++
		}
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
		return
	}
	for _, p := range c.sw.Ports {
		if p.SpeedGbps == nil || p.Up == nil || !*p.Up || !fabricPort().MatchString(p.Port) || *p.SpeedGbps == want {
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

func g(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (c *comparison) pfcGlobal() {
	if c.plan == nil || len(c.plan.PFC) == 0 || c.sw.GlobalP == nil || *c.sw.GlobalP {
		return
	}
	c.add("switch.pfc-global-off", finding.Error, "switch", "PFC is disabled for the whole switch", "enabled",
		"the lossless class drops packets as soon as a queue fills", "enable priority flow control ('fabrun profile show "+c.plan.Profile+" --switch …' writes the commands)")
}

func (c *comparison) pfcPorts() {
	if c.plan == nil {
		return
	}
	want := c.plan.PFC
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
			if len(want) > 0 && p.Port != "" {
				c.add("switch.pfc-off", finding.Error, subject, "PFC disabled", "enabled on priority "+joinInts(want, " "),
					"RDMA packets are dropped there under load", "'priority-flow-control on' on the port")
			}
			continue
		}
		if p.Active != nil && !*p.Active && len(want) > 0 {
			c.add("switch.pfc-inactive", finding.Error, subject, "PFC enabled but not active", "active",
				"no pause frame is sent or obeyed", "check the link, DCBX and that 802.3x flow control is off on the port")
		}
		if p.Priorities == nil {
			continue
		}
		if missing := without(want, p.Priorities); len(missing) > 0 {
			c.add("switch.pfc-priority", finding.Error, subject, "lossless priorities "+orNone(p.Priorities), "priority "+joinInts(want, " "),
				fmt.Sprintf("priority %s, on which RDMA runs, is lossy", joinInts(missing, " ")), "'priority-flow-control priority "+strconv.Itoa(missing[0])+" no-drop' on the port")
		}
		if extra := without(p.Priorities, want); len(extra) > 0 {
			c.add("switch.pfc-extra", finding.Warning, subject, "lossless priorities "+joinInts(p.Priorities, " "), "priority "+orNone(want),
				fmt.Sprintf("priority %s is paused too; each lossless class takes headroom, and pauses spread", joinInts(extra, " ")), "make it lossy again")
		}
	}
	c.pfcMissing(want)
}

// pfcMissing names ports that are up and absent from the table of PFC.
func (c *comparison) pfcMissing(want []int) {
	perPort := slices.ContainsFunc(c.sw.PFC, func(p PFC) bool { return fabricPort().MatchString(p.Port) })
	if len(want) == 0 || !perPort {
		return
	}
	for _, p := range c.sw.Ports {
		if fabricPort().MatchString(p.Port) && p.Up != nil && *p.Up && c.pfcOf(p.Port) == nil && !c.ranges() {
			c.add("switch.pfc-missing", finding.Warning, "port "+p.Port, "connected, but not in the table of PFC", "PFC on priority "+joinInts(want, " "),
				"if a host is behind it, its RDMA packets are lossy", "'priority-flow-control on' on the port, or paste the whole table")
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

func (c *comparison) trust() {
	if c.plan == nil {
		return
	}
	for _, q := range c.sw.QoS {
		if q.Trust == "" || q.Trust == c.plan.Trust || q.Trust == "both" {
			continue
		}
		c.add("switch.trust", finding.Error, portsWord(q.Ports), "trust "+q.TrustSeen, "trust "+c.plan.Trust,
			fmt.Sprintf("packets on DSCP %d are not put into the lossless class", c.plan.RDMA.DSCP), "'qos trust "+c.plan.Trust+"' (Onyx: 'qos trust L3') on the port")
	}
}

func (c *comparison) maps() {
	if c.plan == nil || c.plan.Trust != "dscp" {
		return
	}
	for _, q := range c.sw.QoS {
		for _, m := range c.plan.dscpMap() {
			got, ok := q.DSCP[m.dscp]
			if !ok || got == m.prio {
				continue
			}
			c.add("switch.dscp-map", finding.Error, portsWord(q.Ports), fmt.Sprintf("DSCP %d is traffic class %d", m.dscp, got), fmt.Sprintf("traffic class %d", m.prio),
				"the switch puts these packets into another class than the hosts do", fmt.Sprintf("'qos map dscp %d to traffic-class %d'", m.dscp, m.prio))
		}
	}
}

func (c *comparison) ecn() {
	if c.plan == nil || c.plan.Priority == nil {
		return
	}
	for _, q := range c.sw.QoS {
		for _, e := range q.ECN {
			if e.TC != *c.plan.Priority {
				c.add("switch.ecn-class", finding.Warning, portsWord(q.Ports), fmt.Sprintf("ECN on traffic class %d", e.TC), fmt.Sprintf("traffic class %d", *c.plan.Priority),
					"the RDMA class itself is not marked, so senders slow down only when paused", "move the thresholds to the RDMA class")
				continue
			}
			if e.MinKB >= e.MaxKB && e.MinKB != e.MaxKB {
				c.add("switch.ecn-order", finding.Error, portsWord(q.Ports), fmt.Sprintf("ECN minimum %d kB above maximum %d kB", e.MinKB, e.MaxKB), "minimum below maximum",
					"marking does not work as meant", "swap them")
			}
			if c.plan.ECNMinKB != nil && c.plan.ECNMaxKB != nil && (e.MinKB != *c.plan.ECNMinKB || e.MaxKB != *c.plan.ECNMaxKB) {
				c.add("switch.ecn-thresholds", finding.Warning, portsWord(q.Ports), fmt.Sprintf("ECN from %d to %d kB", e.MinKB, e.MaxKB), fmt.Sprintf("%d to %d kB", *c.plan.ECNMinKB, *c.plan.ECNMaxKB),
					"senders are slowed down earlier or later than planned", "set the plan's thresholds, or write these into the profile")
			}
		}
		if q.Trust != "" && len(q.ECN) == 0 && c.configured() && c.plan.ECNMinKB != nil && !c.ecnElsewhere() {
			c.add("switch.ecn-missing", finding.Warning, portsWord(q.Ports), "no ECN thresholds in this configuration", fmt.Sprintf("%d to %d kB on traffic class %d", *c.plan.ECNMinKB, *c.plan.ECNMaxKB, *c.plan.Priority),
				"congestion ends in pause frames only", "'fabrun profile show "+c.plan.Profile+" --switch …' writes the lines")
		}
	}
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
		return
	}
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
				fmt.Sprintf("priority %s is paused too", joinInts(extra, " ")), "take it out of the pool")
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
	for _, q := range c.sw.QoS {
		if c.plan.Priority != nil && slices.Contains(q.Strict, *c.plan.Priority) && (!ok || want != *c.plan.Priority) && c.configured() {
			c.add("switch.strict", finding.Warning, portsWord(q.Ports), fmt.Sprintf("traffic class %d is strict", *c.plan.Priority), "the RDMA class shares by weight",
				"RDMA traffic can starve everything else, congestion notifications included", "give it a weight")
			continue
		}
		if ok && len(q.Strict) > 0 && c.configured() && !slices.Contains(q.Strict, want) {
			c.add("switch.strict", finding.Warning, portsWord(q.Ports), "strict traffic classes "+joinInts(q.Strict, " "), fmt.Sprintf("traffic class %d (congestion notifications)", want),
				"congestion notifications wait behind data", fmt.Sprintf("make traffic class %d strict", want))
		}
	}
}

func (c *comparison) mtu() {
	if c.plan == nil || c.plan.MTUBytes == nil {
		return
	}
	for _, m := range c.sw.MTU {
		if m.Bytes < *c.plan.MTUBytes {
			c.add("switch.mtu", finding.Error, portsWord(m.Ports), fmt.Sprintf("mtu %d", m.Bytes), fmt.Sprintf("at least %d", *c.plan.MTUBytes),
				"full-size RDMA packets do not pass", "'mtu 9214' (Onyx: 'mtu 9216 force') on the port")
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

func (c *comparison) unread() {
	for _, l := range c.sw.Unread {
		c.add("switch.unread", finding.Warning, fmt.Sprintf("line %d", l.N), l.Text, "a row of the table it stands in", "nothing was taken from this line", "paste it unbroken")
	}
}
