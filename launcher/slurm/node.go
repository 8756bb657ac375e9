package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// portState is what the baseline remembers of a port.
type portState struct {
	Port     string   `json:"port"` // "mlx5_0:1"
	Active   bool     `json:"active"`
	State    string   `json:"state,omitempty"` // as sysfs says, for messages
	RateGbps *float64 `json:"rate_gbps"`       // null: unknown, or not to be trusted
}

// fabricPorts are the ports of this node that carry the fabric: those of its
// rails, or every active one where no rail was found. The others are listed
// too, as they are, so that a port of the baseline can be found again.
func fabricPorts(h topology.Host, res envgen.Result) []portState {
	rails := map[string]bool{}
	for _, r := range res.Rails {
		for _, port := range r.Ports {
			rails[port] = true
		}
	}
	var out []portState
	for _, hca := range h.HCAs {
		for _, p := range hca.Ports {
			s := portState{Port: hca.Name + ":" + strconv.Itoa(p.Number), State: p.StateText()}
			s.Active = p.Up() && (len(rails) == 0 || rails[s.Port])
			if p.RateTrusted {
				s.RateGbps = p.RateGbps
			}
			out = append(out, s)
		}
	}
	return out
}

// rateSlack is how far below the rate of before a port is called slow: less
// than any step of link speed or width.
const rateSlack = 0.95

// nodeFaults are the certain faults of a node: what was there before, or what
// the site's administrator said is there, and is not.
func nodeFaults(base, now []portState, h topology.Host, p profiles.Profile, ports int) []finding.Finding {
	var out []finding.Finding
	add := func(id, subject, seen, wanted, hint string) {
		out = append(out, finding.Finding{
			ID: id, Severity: finding.Error, Host: h.Name, Subject: subject, Seen: seen, Wanted: wanted,
			Why: "a job on this node would not use the fabric as planned", Hint: hint,
		})
	}
	const planned = "look at cable, transceiver and switch port; after a planned change remove baseline.json"
	active := 0
	for _, s := range now {
		if s.Active {
			active++
		}
	}
	for _, b := range base {
		i := slices.IndexFunc(now, func(s portState) bool { return s.Port == b.Port })
		switch {
		case i < 0 && active >= len(base):
			// As many as before under other names: udev renamed them.
		case i < 0:
			add("slurm.port-gone", b.Port, "no such port", "the port that was there before", planned)
		case !now[i].Active && (now[i].State == "" || strings.HasPrefix(now[i].State, "ACTIVE")):
			// Not known; or up, and not the job's by today's rules.
		case !now[i].Active:
			add("slurm.port-down", b.Port, now[i].State, "ACTIVE, as before", planned)
		case b.RateGbps != nil && now[i].RateGbps != nil && *now[i].RateGbps < rateSlack**b.RateGbps:
			add("slurm.port-slow", b.Port, fmt.Sprintf("%g Gb/s", *now[i].RateGbps), fmt.Sprintf("%g Gb/s, as before", *b.RateGbps), planned)
		}
	}
	if want := p.Fabric.RateGbps; want != nil {
		for _, s := range now {
			if s.Active && s.RateGbps != nil && *s.RateGbps < rateSlack**want && !slices.ContainsFunc(out, func(f finding.Finding) bool { return f.Subject == s.Port }) {
				add("slurm.port-slow", s.Port, fmt.Sprintf("%g Gb/s", *s.RateGbps), fmt.Sprintf("%g Gb/s (profile %s)", *want, p.Name), "look at cable, transceiver and switch port")
			}
		}
	}
	if active < ports {
		add("slurm.ports-missing", "fabric ports", fmt.Sprintf("%d active", active), fmt.Sprintf("%d (--ports)", ports), "'fabrun topo' lists the ports and why they are left out")
	}
	opens := slices.ContainsFunc(h.HCAs, func(c topology.HCA) bool {
		return topology.DriverNamed(c.Driver).Uverbs && slices.ContainsFunc(now, func(s portState) bool { return s.Active && strings.HasPrefix(s.Port, c.Name+":") })
	})
	if d := h.DeviceNodes; d != nil && opens && !slices.ContainsFunc(d.Names, func(n string) bool { return strings.HasPrefix(n, "uverbs") }) {
		add("slurm.no-uverbs", "/dev/infiniband", "no uverbs device", "one for each HCA", "modprobe ib_uverbs (as root)")
	}
	return out
}

// maxReason is what fits a line of sinfo -R, with room.
const maxReason = 160

// reasonMark begins every reason that fabrun writes, and no other's.
const reasonMark = "fabrun:"

// faultReason is a node's reason for Slurm: one line of plain characters; ""
// for none.
func faultReason(faults []finding.Finding) string {
	if len(faults) == 0 {
		return ""
	}
	var parts []string
	for _, f := range faults {
		parts = append(parts, f.Subject+" "+f.Seen+" ("+f.ID+")")
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\'' || r == '\\' {
			return -1
		}
		return r
	}, reasonMark+" "+strings.Join(parts, "; "))
	if len(text) > maxReason {
		text = text[:maxReason-3] + "..."
	}
	return text
}

// NodeState is what scontrol says of a node.
type NodeState struct {
	Drained bool
	Reason  string
}

// ParseNodeState reads "scontrol --oneliner show node".
func ParseNodeState(text string) NodeState {
	var s NodeState
	for _, w := range strings.Fields(text) {
		if state, ok := strings.CutPrefix(w, "State="); ok {
			s.Drained = slices.ContainsFunc(strings.FieldsFunc(state, func(r rune) bool { return r == '+' || r == '*' }),
				func(flag string) bool { return strings.HasPrefix(flag, "DRAIN") })
		}
	}
	// The reason comes last and may hold blanks; Slurm adds "[user@time]" behind it.
	if _, rest, ok := strings.Cut(text, " Reason="); ok {
		rest, _, _ = strings.Cut(rest, "\n")
		if i := strings.LastIndex(rest, " ["); i >= 0 {
			rest = rest[:i]
		}
		s.Reason = strings.TrimSpace(rest)
	}
	return s
}

type healthAction int

const (
	healthNothing healthAction = iota
	healthDrain
	healthResume
)

// goodLooks is how many good looks in a row resume a node: a flapping link must
// not make a flapping node.
const goodLooks = 2

// PrologReason is the reason that slurmctld gives a node whose Prolog failed
// (src/slurmctld/proc_req.c).
const PrologReason = "Prolog error"

// decideHealth drains a node for its faults, once, and resumes only what fabrun
// itself drained. noted is what its prolog found before Slurm drained the node:
// that reason is made fabrun's own, by which the node is resumed.
func decideHealth(s NodeState, noted string, faults []finding.Finding, good int) healthAction {
	switch {
	case len(faults) > 0 && !s.Drained:
		return healthDrain
	case s.Drained && noted != "" && strings.EqualFold(s.Reason, PrologReason):
		return healthDrain
	case len(faults) == 0 && s.Drained && strings.HasPrefix(s.Reason, reasonMark) && good >= goodLooks:
		return healthResume
	}
	return healthNothing
}

// taskPrint is a line that slurmstepd (src/slurmd/slurmstepd/task.c) prints to the task's standard output.
func taskPrint(text string) string {
	return "print " + report.Printable(strings.Join(strings.Fields(text), " ")) + "\n"
}
