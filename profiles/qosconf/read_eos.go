package qosconf

import (
	"slices"
	"strconv"
	"strings"
)

// eos is Arista EOS and the switches that took over its language.
var eos = Dialect{
	ID: "eos", Name: "Arista EOS and its kin", word: "arista",
	write: onPorts(Plan.arista),
	outputs: []output{
		{show: "show interfaces status", row: eosInterface, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "port") && has(low, "status", "vlan", "duplex", "speed")
		}},
		{show: "show priority-flow-control", row: eosPFC, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "port") && has(low, "priorities") && (has(low, "status") || has(low, "enabled"))
		}},
		{show: "show priority-flow-control counters", row: eosPauses, head: func(_ *reader, f []string, _ string) bool {
			return len(f) == 3 && strings.EqualFold(f[0], "port") && strings.EqualFold(f[1], "rxpfc") && strings.EqualFold(f[2], "txpfc")
		}},
		{show: "show qos interfaces trust", row: eosTrust, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "port") && has(low, "trust", "mode") && !strings.Contains(low, ":")
		}},
		{show: "show qos interfaces", row: eosQueue, head: func(r *reader, f []string, _ string) bool {
			// "Ethernet1/1:" opens the block of a port.
			name := strings.TrimSuffix(f[0], ":")
			if len(f) != 1 || name == f[0] || portName(name) == "" {
				return false
			}
			r.block = name
			return true
		}},
		{show: "show qos maps", row: eosMap, head: func(_ *reader, _ []string, low string) bool { return has(low, "dscp-tc map") }},
	},
}

// eosStatus are the words of the Status column of 'show interfaces status', of
// EOS and of NX-OS.
var eosStatus = []string{
	"connected", "notconnect", "notconnec", "disabled", "errdisabled", "inactive", "monitoring", "sfp-absent", "adminDown",
	"sfpAbsent", "xcvrAbsen", "xcvrAbsent", "linkFlapE", "err-disabled", "suspended", "noOperMem", "down",
}

// eosInterface is a row of 'show interfaces status'. The description is free
// text, so the status is the last word of that kind with a duplex two behind it.
func eosInterface(r *reader, l row) outcome {
	fields := l.fields
	if portName(fields[0]) == "" {
		return foreign
	}
	for i := len(fields) - 1; i >= 1; i-- {
		if !slices.ContainsFunc(eosStatus, func(s string) bool { return strings.EqualFold(s, fields[i]) }) {
			continue
		}
		// "in Po3" takes two words of the Vlan column.
		for _, at := range []int{i + 2, i + 3} {
			if at+1 >= len(fields) || !isDuplex(fields[at]) {
				continue
			}
			p := Port{
				Port: fields[0], Name: said(strings.Join(fields[1:i], " ")), Status: fields[i],
				VLAN: strings.Join(fields[i+1:at], " "), Duplex: strings.TrimPrefix(fields[at], "a-"),
				SpeedGbps: gbps(fields[at+1]), Type: said(strings.Join(fields[at+2:], " ")),
				Up: ptr(strings.EqualFold(fields[i], "connected")),
			}
			if strings.HasPrefix(p.Port, "Eth") && !strings.HasPrefix(p.Port, "Ethernet") { // EOS shortens to Et, NX-OS to Eth
				r.tell("nxos")
			}
			r.sw.Ports = append(r.sw.Ports, p)
			return fact
		}
	}
	return foreign
}

func isDuplex(s string) bool {
	return slices.Contains([]string{"full", "half", "auto", "a-full", "a-half", "unconf", "unknown"}, strings.ToLower(s))
}

// eosPFC is a row of 'show priority-flow-control': letters (E or D, A, W) or,
// on older releases, Yes and No; then the priorities, in one word, with commas
// or apart.
func eosPFC(r *reader, l row) outcome {
	fields := l.fields
	switch {
	case fields[0] == "E:", strings.HasPrefix(fields[0], "Interval/"):
		return furniture
	case portName(fields[0]) == "":
		return foreign
	}
	p := PFC{Port: fields[0]}
	i := 1
status:
	for ; i < len(fields); i++ {
		w := strings.ToUpper(fields[i])
		switch {
		case w == "-" && p.Enabled != nil && i+1 < len(fields) && slices.Contains([]string{"A", "W"}, strings.ToUpper(fields[i+1])):
			continue
		case w == "YES" || w == "NO":
			if p.Enabled != nil {
				break status
			}
			p.Enabled = ptr(w == "YES")
			continue
		}
		if strings.Trim(w, "EDAW") != "" {
			break
		}
		for _, letter := range w {
			switch letter {
			case 'E', 'D':
				p.Enabled = ptr(letter == 'E')
				if p.Active == nil {
					p.Active, p.Watchdog = ptr(false), ptr(false)
				}
			case 'A':
				p.Active = ptr(true)
			case 'W':
				p.Watchdog = ptr(true)
			}
		}
	}
	if p.Enabled == nil {
		return foreign
	}
	p.Priorities = []int{}
	for ; i < len(fields) && isPriorities(fields[i]); i++ {
		p.Priorities = append(p.Priorities, digits([]string{fields[i]})...)
	}
	slices.Sort(p.Priorities)
	p.Priorities = slices.Compact(p.Priorities)
	for ; i < len(fields); i++ {
		w := fields[i]
		if p.Active == nil && (strings.EqualFold(w, "yes") || strings.EqualFold(w, "no")) {
			p.Active = ptr(strings.EqualFold(w, "yes"))
		}
		if strings.EqualFold(w, "DCBX") {
			p.Note = strings.Join(fields[i:], " ")
			break
		}
	}
	r.sw.PFC = append(r.sw.PFC, p)
	return fact
}

func isPriorities(s string) bool {
	return s != "" && strings.Trim(s, "01234567,") == "" && strings.Trim(s, ",") != "" && len(s) <= 15
}

// eosPauses is a row of 'show priority-flow-control counters'.
func eosPauses(r *reader, l row) outcome {
	if len(l.fields) != 3 || portName(l.fields[0]) == "" {
		return foreign
	}
	rx, tx := number(l.fields[1]), number(l.fields[2])
	if rx == nil || tx == nil {
		return foreign
	}
	c := r.counter(l.fields[0], nil)
	c.RxPause, c.TxPause = rx, tx
	return fact
}

// eosTrust is a row of 'show qos interfaces trust'.
func eosTrust(r *reader, l row) outcome {
	if len(l.fields) == 2 && has(l.line, "operational", "configured") {
		return furniture
	}
	if portName(l.fields[0]) == "" || len(l.fields) < 2 {
		return foreign
	}
	t := trustWord(l.fields[1])
	if t == "" {
		return foreign
	}
	q := r.qosFor(l.fields[0])
	q.Trust, q.TrustSeen = t, l.fields[1]
	return fact
}

// eosQueue is a line of one port's block of 'show qos interfaces'.
func eosQueue(r *reader, l row) outcome {
	if key, value, ok := strings.Cut(l.line, ":"); ok && strings.EqualFold(strings.TrimSpace(key), "trust mode") {
		q := r.qosFor(r.block)
		q.Trust, q.TrustSeen = trustWord(value), strings.TrimSpace(value)
		return fact
	}
	if got := r.nxosDetail(l); got != foreign {
		return got
	}
	switch {
	case has(l.line, "queue", "percent"), has(l.line, "bandwidth"), has(l.line, "default cos"), has(l.line, "default dscp"), has(l.line, "shaping"):
		return furniture
	}
	tc, err := strconv.Atoi(l.fields[0])
	if err != nil || tc < 0 || tc > 7 || len(l.fields) < 4 {
		return foreign
	}
	if slices.ContainsFunc(l.fields, func(f string) bool { return f == "SP" || strings.HasPrefix(f, "SP/") || f == "strict" }) {
		q := r.qosFor(r.block)
		q.Strict = append(q.Strict, tc)
	}
	return fact
}

// eosMap is a row of 'show qos maps': tens digit, then ten traffic classes.
func eosMap(r *reader, l row) outcome {
	if has(l.line, "d1", "d2") {
		return furniture
	}
	tens, rest, ok := strings.Cut(l.line, ":")
	d1, err := strconv.Atoi(strings.TrimSpace(tens))
	if !ok || err != nil || d1 < 0 || d1 > 6 {
		r.leave()
		return foreign
	}
	q := r.qosFor("")
	q.Whole = true
	for d2, w := range strings.Fields(rest) {
		tc, err := strconv.Atoi(w)
		if dscp := d1*10 + d2; err == nil && dscp < 64 && tc >= 0 && tc <= 7 {
			q.mapDSCP(dscp, tc)
		}
	}
	return fact
}
