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

// QoSConfigJSON writes the same as an object.
func QoSConfigJSON(w io.Writer, profile, form string, lines []string) error {
	return writeJSON(w, struct {
		Schema  string   `json:"schema"`
		Profile string   `json:"profile"`
		Form    string   `json:"form"`
		Lines   []string `json:"lines"`
	}{"fabrun/qos-config/v1", profile, form, lines})
}

// Switch writes what a switch said for a person: what was read, then what
// differs from the plan.
func Switch(w io.Writer, sw qosconf.Switch, plan *qosconf.Plan, findings []finding.Finding) error {
	t := &text{w: w}
	against := "no profile named: links and speeds alone are judged"
	if plan != nil {
		against = "against profile " + plan.Profile
	}
	t.printf("%s, %s\n", switchVerdict(findings), against)
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
		if q.Trust != "" {
			t.printf("  trust  %s on %s\n", q.Trust, where)
		}
		for _, e := range q.ECN {
			t.printf("  ECN    traffic class %d from %d to %d kB on %s\n", e.TC, e.MinKB, e.MaxKB, where)
		}
		if len(q.Strict) > 0 {
			t.printf("  strict traffic class %s on %s\n", numbers(q.Strict), where)
		}
	}
	return t.findings(findings)
}

func switchVerdict(fs []finding.Finding) string {
	switch worst, ok := finding.Worst(fs); {
	case !ok || worst == finding.Note:
		return "the switch is as planned as far as this shows"
	case worst == finding.Warning:
		return "the switch differs from what is wanted"
	}
	return "the switch does not carry RDMA as wanted"
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

// SwitchJSON writes the same as an object.
func SwitchJSON(w io.Writer, sw qosconf.Switch, plan *qosconf.Plan, findings []finding.Finding) error {
	out := struct {
		Schema   string            `json:"schema"`
		OS       *string           `json:"os"`
		Profile  *string           `json:"profile"`
		Enabled  *bool             `json:"pfc_enabled"`
		Trust    *string           `json:"trust"`
		Lossless []int             `json:"lossless_priorities"`
		Ports    []qosconf.Port    `json:"ports"`
		PFC      []qosconf.PFC     `json:"pfc"`
		QoS      []qosconf.QoS     `json:"qos"`
		Pools    []qosconf.Pool    `json:"pools"`
		Findings []finding.Finding `json:"findings"`
	}{Schema: "fabrun/check-switch/v1", Enabled: sw.GlobalP, Ports: orEmpty(sw.Ports), PFC: orEmpty(sw.PFC), QoS: orEmpty(sw.QoS), Pools: orEmpty(sw.Pools), Findings: orEmpty(findings)}
	if sw.OS != "" {
		out.OS = &sw.OS
	}
	if plan != nil {
		out.Profile = &plan.Profile
	}
	out.Trust, out.Lossless = oneTrust(sw.QoS), lossless(sw)
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
