package qosconf

import (
	"slices"
	"strconv"
	"strings"
)

// onyx is NVIDIA's (Mellanox's) Onyx on Spectrum switches.
var onyx = Dialect{
	ID: "onyx", Name: "NVIDIA Onyx", word: "onyx",
	write: onPorts(Plan.onyx),
	outputs: []output{
		{show: "show dcb priority-flow-control", row: onyxPFC, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "interface") && has(low, "pfc admin", "pfc oper")
		}},
		{show: "show interfaces ethernet status", row: onyxInterface, head: func(_ *reader, f []string, low string) bool {
			return (strings.EqualFold(f[0], "port") || strings.EqualFold(f[0], "interface")) && has(low, "operational state", "speed")
		}},
	},
}

var onyxSpeed = lazy(`(?i)\b([0-9]+(?:\.[0-9]+)?)\s*G(?:bps|b/s|bit/s)?\b`)

// onyxPFC is a row of 'show dcb priority-flow-control'.
func onyxPFC(r *reader, l row) outcome {
	if portName(l.fields[0]) == "" || len(l.fields) < 3 {
		return foreign
	}
	admin, oper := strings.ToLower(l.fields[1]), strings.ToLower(l.fields[len(l.fields)-1])
	p := PFC{Port: l.fields[0], Note: "admin " + l.fields[1]}
	switch {
	case strings.HasPrefix(oper, "enabled") || oper == "on":
		p.Active = ptr(true)
	case strings.HasPrefix(oper, "disabled") || oper == "off":
		p.Active = ptr(false)
	default:
		return foreign
	}
	p.Enabled = ptr(admin != "off" && admin != "disabled")
	if all := r.switchPFC(); all.Priorities != nil {
		p.Priorities = slices.Clone(all.Priorities)
	}
	r.sw.PFC = append(r.sw.PFC, p)
	return fact
}

// onyxInterface is a row of 'show interfaces ethernet status'.
func onyxInterface(r *reader, l row) outcome {
	if portName(l.fields[0]) == "" || len(l.fields) < 2 {
		return foreign
	}
	state := l.fields[1]
	if !strings.EqualFold(state, "up") && !strings.EqualFold(state, "down") {
		return foreign
	}
	p := Port{Port: l.fields[0], Status: state, Up: ptr(strings.EqualFold(state, "up"))}
	if m := onyxSpeed().FindStringSubmatch(l.line); m != nil {
		if n, err := strconv.ParseFloat(m[1], 64); err == nil {
			p.SpeedGbps = &n
		}
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return fact
}
