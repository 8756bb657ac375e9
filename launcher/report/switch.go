package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fabrun/profiles/qosconf"
	"fabrun/topology/finding"
)

// QoSConfig writes a QoS plan in the form of a host or a switch.
func QoSConfig(w io.Writer, lines []string) error {
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

type qosConfigJSON struct {
	Schema  string   `json:"schema"`
	Profile string   `json:"profile"`
	Form    string   `json:"form"`  // "host", or the switch's language
	Lines   []string `json:"lines"` // commands, in their order
}

// QoSConfigJSON writes the same as an object.
func QoSConfigJSON(w io.Writer, profile, form string, lines []string) error {
	return writeJSON(w, qosConfigJSON{"fabrun/qos-config/v1", profile, form, lines})
}

// Switch writes what a switch said for a person: the verdict, what was read,
// what of it was compared with the plan and what was not, then what differs.
func Switch(w io.Writer, sw qosconf.Switch, plan *qosconf.Plan, c qosconf.Comparison) error {
	t := &text{w: w}
	against := "no profile named: links, speeds and counters alone are judged"
	if plan != nil {
		against = "against profile " + plan.Profile
	}
	t.printf("%s, %s\n", switchVerdict(sw, c), against)
	if sw.Lines > 0 {
		t.printf("  read   %s\n", outputs(sw))
	}
	if up, all := upPorts(sw.Ports); all > 0 {
		t.printf("  ports  %d of %d connected%s\n", up, all, speeds(sw.Ports))
	}
	for _, line := range pfcLines(sw.PFC) {
		t.printf("  PFC    %s\n", line)
	}
	for _, p := range sw.Pools {
		t.printf("  pool   %s: %s, priority %s\n", printable(p.Name), printable(p.Type), numbers(p.Priorities))
	}
	for _, q := range sw.QoS {
		where := "switch"
		if q.Ports != "" {
			where = printable(q.Ports)
		}
		if q.Name != "" {
			where = printable(q.Name)
		}
		if q.Trust != "" {
			t.printf("  trust  %s on %s\n", q.Trust, where)
		}
		for _, e := range q.ECN {
			t.printf("  ECN    %s on %s\n", ecnText(e), where)
		}
		if len(q.Strict) > 0 {
			t.printf("  strict traffic class %s on %s\n", numbers(q.Strict), where)
		}
	}
	var with, reasons []string
	without := map[string][]string{}
	for _, a := range c.Aspects {
		if a.Of != "" {
			with = append(with, a.What+" ("+a.Of+")")
			continue
		}
		if without[a.Why] == nil {
			reasons = append(reasons, a.Why)
		}
		without[a.Why] = append(without[a.Why], a.What)
	}
	if len(with) > 0 {
		t.printf("  compared      %s\n", strings.Join(with, ", "))
	}
	for _, why := range reasons {
		t.printf("  not compared  %s: %s\n", strings.Join(without[why], ", "), printable(why))
	}
	return t.findings(c.Findings)
}

// outputs names what was recognised, and how much was not.
func outputs(sw qosconf.Switch) string {
	var order []string
	rows := map[string]int{}
	for _, o := range sw.Outputs {
		if _, seen := rows[o.Show]; !seen {
			order = append(order, o.Show)
		}
		rows[o.Show] += o.Rows
	}
	for i, show := range order {
		order[i] = fmt.Sprintf("%s: %d %s", show, rows[show], plural(rows[show], "row"))
	}
	config := sw.Lines
	for _, n := range rows {
		config -= n
	}
	if config > 0 {
		order = append(order, fmt.Sprintf("configuration: %d %s", config, plural(config, "line")))
	}
	s := strings.Join(order, ", ")
	if sw.Skipped > 0 {
		s += fmt.Sprintf("; %d other %s", sw.Skipped, plural(sw.Skipped, "line"))
	}
	return s
}

func ecnText(e qosconf.ECN) string {
	s := ""
	if e.TC != nil {
		s = fmt.Sprintf("traffic class %d ", *e.TC)
	}
	if e.MinKB != nil && e.MaxKB != nil {
		return s + fmt.Sprintf("from %.0f to %.0f kB", *e.MinKB, *e.MaxKB)
	}
	if e.MinPercent != nil && e.MaxPercent != nil {
		return s + fmt.Sprintf("from %g to %g %% of fill", *e.MinPercent, *e.MaxPercent)
	}
	return s + "thresholds not said"
}

func switchVerdict(sw qosconf.Switch, c qosconf.Comparison) string {
	switch {
	case sw.Lines == 0:
		return "unknown: nothing was compared"
	case c.Verdict == qosconf.Good:
		return "good: the switch is as planned"
	case c.Verdict == qosconf.Degraded:
		return "degraded: the switch differs from what is wanted"
	case c.Verdict == qosconf.Broken:
		return "broken: the switch does not carry RDMA as wanted"
	}
	return "unknown: nothing wrong in what was compared, which is not all"
}

func upPorts(ports []qosconf.Port) (up, all int) {
	for _, p := range ports {
		if p.Up != nil && *p.Up {
			up++
		}
	}
	return up, len(ports)
}

func speeds(ports []qosconf.Port) string {
	var seen []string
	for _, p := range ports {
		if p.Up != nil && *p.Up && p.SpeedGbps != nil {
			if s := fmt.Sprintf("%g Gb/s", *p.SpeedGbps); !slices.Contains(seen, s) {
				seen = append(seen, s)
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return ", " + strings.Join(seen, ", ")
}

// pfcLines groups ports that are alike.
func pfcLines(pfc []qosconf.PFC) []string {
	var order []string
	ports := map[string][]string{}
	for _, p := range pfc {
		s := "priority " + numbers(p.Priorities)
		if p.Enabled != nil && !*p.Enabled {
			s = "disabled"
		} else if p.Active != nil && !*p.Active {
			s += ", not active"
		}
		if ports[s] == nil {
			order = append(order, s)
		}
		where := p.Port
		if where == "" {
			where = "switch"
		}
		ports[s] = append(ports[s], printable(where))
	}
	var out []string
	for _, s := range order {
		list := strings.Join(ports[s], " ")
		if n := len(ports[s]); n > 4 {
			list = fmt.Sprintf("%s … %s (%d ports)", ports[s][0], ports[s][n-1], n)
		}
		out = append(out, s+": "+list)
	}
	return out
}

func numbers(ns []int) string {
	if len(ns) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(ns), "[]")
}

type switchJSON struct {
	Schema      string            `json:"schema"`
	OS          *string           `json:"os"`
	Profile     *string           `json:"profile"` // null: none was named
	Verdict     qosconf.Verdict   `json:"verdict"`
	Outputs     []qosconf.Output  `json:"outputs"`
	Compared    []comparedJSON    `json:"compared"` // with the profile
	NotCompared []notComparedJSON `json:"not_compared"`
	Skipped     int               `json:"lines_not_read"`
	Enabled     *bool             `json:"pfc_enabled"`
	Trust       *string           `json:"trust"`               // of every port; null where they differ or it was not said
	Lossless    []int             `json:"lossless_priorities"` // null: not said
	Ports       []qosconf.Port    `json:"ports"`
	PFC         []qosconf.PFC     `json:"pfc"`
	QoS         []qosconf.QoS     `json:"qos"`
	Pools       []qosconf.Pool    `json:"pools"`
	Counters    []qosconf.Counter `json:"counters"`
	Findings    []finding.Finding `json:"findings"`
}

type comparedJSON struct {
	What string `json:"what"`
	Of   string `json:"of"` // ports, or "switch"
}

type notComparedJSON struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// SwitchJSON writes the same as an object.
func SwitchJSON(w io.Writer, sw qosconf.Switch, plan *qosconf.Plan, c qosconf.Comparison) error {
	out := switchJSON{
		Schema: "fabrun/check-switch/v1", OS: orNull(sw.OS), Verdict: c.Verdict, Outputs: orEmpty(sw.Outputs), Compared: []comparedJSON{}, NotCompared: []notComparedJSON{}, Skipped: sw.Skipped,
		Enabled: sw.GlobalP, Trust: oneTrust(sw.QoS), Lossless: lossless(sw), Ports: orEmpty(sw.Ports), PFC: orEmpty(sw.PFC), QoS: orEmpty(sw.QoS), Pools: orEmpty(sw.Pools),
		Counters: orEmpty(sw.Counters), Findings: orEmpty(c.Findings),
	}
	if plan != nil {
		out.Profile = &plan.Profile
	}
	for _, a := range c.Aspects {
		if a.Of != "" {
			out.Compared = append(out.Compared, comparedJSON{a.What, a.Of})
		} else {
			out.NotCompared = append(out.NotCompared, notComparedJSON{a.What, a.Why})
		}
	}
	return writeJSON(w, out)
}

// oneTrust is the trust of every port, where all have the same.
func oneTrust(qos []qosconf.QoS) *string {
	var trust *string
	for _, q := range qos {
		switch {
		case q.Trust == "":
		case trust == nil:
			trust = &q.Trust
		case *trust != q.Trust:
			return nil
		}
	}
	return trust
}

// lossless are the priorities that some port or pool makes so; nil where
// nothing was said of it.
func lossless(sw qosconf.Switch) []int {
	var out []int
	for _, p := range sw.PFC {
		if p.Enabled == nil || *p.Enabled {
			out = append(out, p.Priorities...)
		}
	}
	for _, p := range sw.Pools {
		if p.Type == "lossless" {
			out = append(out, p.Priorities...)
		}
	}
	if out == nil && len(sw.PFC)+len(sw.Pools) > 0 {
		return []int{}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
