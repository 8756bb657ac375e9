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
		{show: "show roce", row: onyxRoCE, head: func(r *reader, _ []string, low string) bool {
			key, value, ok := strings.Cut(low, ":")
			if !ok || strings.TrimSpace(key) != "roce mode" {
				return false
			}
			r.block = ""
			if strings.HasPrefix(strings.TrimSpace(value), "lossy") {
				p := r.switchPFC()
				p.Enabled, p.Priorities = ptr(false), []int{}
			}
			return true
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

// onyxRoCE is a line of 'show roce': keys with values, then two tables.
func onyxRoCE(r *reader, l row) outcome {
	key, value, _ := strings.Cut(l.line, ":")
	key, value = strings.ToLower(strings.TrimSpace(key)), strings.ToLower(strings.TrimSpace(value))
	q := r.qosFor("")
	switch {
	case key == "port trust mode":
		q.Trust, q.TrustSeen = trustWord(value), value
		return fact
	case key == "min" || key == "min (kb)" || key == "max" || key == "max (kb)":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return foreign
		}
		if r.ecn == nil {
			r.ecn = &ECN{}
		}
		if strings.HasPrefix(key, "min") {
			r.ecn.MinKB = &n
		} else {
			r.ecn.MaxKB = &n
		}
		if r.ecn.MinKB != nil && r.ecn.MaxKB != nil {
			q.ECN = []ECN{*r.ecn}
		}
		return fact
	case key == "pfc":
		r.switchPFC().Enabled = ptr(strings.HasPrefix(value, "enabled"))
		return fact
	case strings.HasPrefix(key, "switch-priority "), key == "switch-priority":
		p := r.switchPFC()
		word := strings.TrimPrefix(key, "switch-priority ")
		if key == "switch-priority" {
			word, value = value, "enabled"
		}
		if prio := class(word); prio != nil && strings.HasPrefix(value, "enabled") {
			p.Priorities = digits([]string{joinInts(append(p.Priorities, *prio), ",")})
			return fact
		}
		return furniture
	}
	// "6  6  CNP  Strict" of the traffic classes.
	if tc := class(l.fields[0]); tc != nil && len(l.fields) >= 4 && class(l.fields[1]) != nil {
		if strings.EqualFold(l.fields[len(l.fields)-1], "strict") {
			q.Strict = append(q.Strict, *class(l.fields[1]))
		}
		return fact
	}
	if portName(l.fields[0]) != "" {
		return foreign
	}
	return furniture
}
