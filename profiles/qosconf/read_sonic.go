package qosconf

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sonic is SONiC: the community's click commands, the enterprise distributions'
// industry-like ones, and CONFIG_DB as JSON.
var sonic = Dialect{
	ID: "sonic", Name: "SONiC", word: "sonic",
	write: Plan.sonic,
	outputs: []output{
		{show: "show interfaces status", columns: []string{"interface", "oper", "admin", "speed"}, row: sonicInterface},
		{show: "show interface status", row: sonicInterfaceLine, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "name") && has(low, "oper", "speed", "mtu")
		}},
		{show: "show pfc priority", columns: []string{"interface", "lossless priorities"}, row: sonicPFC},
		{show: "show pfc counters", columns: []string{"port rx", "pfc0", "pfc7"}, row: sonicPauses(true)},
		{show: "show pfc counters", columns: []string{"port tx", "pfc0", "pfc7"}, row: sonicPauses(false)},
		{show: "show qos interface all priority-flow-control statistics", columns: []string{"port", "pfc0", "pfc7"}, row: func(r *reader, l row) outcome {
			return sonicPauses(r.receive)(r, l)
		}},
		{show: "show pfcwd config", columns: []string{"port", "action", "detection time"}, row: sonicWatchdog},
		{show: "show pfcwd stats", columns: []string{"queue", "status", "storm detected/restored"}, row: sonicStorms},
		{show: "show priority-group drop counters", columns: []string{"port", "pg0", "pg7"}, row: sonicGroups},
		{show: "show queue counters", columns: []string{"port", "txq", "drop/pkts"}, row: sonicQueue},
		{show: "show queue wredcounters", columns: []string{"port", "txq", "ecnmarked/pkts"}, row: sonicQueue},
		{show: "show ecn", row: sonicECN, head: func(r *reader, f []string, low string) bool {
			if len(f) != 2 || !strings.HasPrefix(low, "profile:") {
				return false
			}
			r.block = f[1]
			return true
		}},
		{show: "show qos map dscp-tc", row: sonicMap, head: func(r *reader, f []string, low string) bool {
			if len(f) != 2 || !strings.HasPrefix(low, "dscp-tc-map:") || strings.HasPrefix(r.command, "show qos interface") {
				return false
			}
			r.block = f[1]
			return true
		}},
	},
}

func sonicInterface(r *reader, l row) outcome {
	port := portName(l.cells["interface"])
	if port == "" {
		return foreign
	}
	oper, admin := strings.ToLower(l.cells["oper"]), strings.ToLower(l.cells["admin"])
	if oper != "up" && oper != "down" {
		return foreign
	}
	p := Port{Port: port, Name: l.cells["alias"], Status: oper, Up: ptr(oper == "up"), SpeedGbps: gbps(l.cells["speed"]), VLAN: l.cells["vlan"], Type: l.cells["type"]}
	if p.Type == "N/A" { // no transceiver
		p.Type = absent
	}
	if admin == "down" {
		p.Status = "admin down"
	}
	if n, err := strconv.Atoi(l.cells["mtu"]); err == nil && len(r.sw.MTU) < maxPorts {
		r.sw.MTU = append(r.sw.MTU, MTU{port, n})
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return fact
}

// said is a cell that says something, or "".
func said(s string) string {
	if s == "N/A" || s == "-" || s == "--" {
		return ""
	}
	return s
}

// sonicInterfaceLine is a row of the enterprise table: name, description (free
// text), states, Mb/s, MTU, another name.
func sonicInterfaceLine(r *reader, l row) outcome {
	f := l.fields
	if portName(f[0]) == "" {
		return foreign
	}
	at := slices.IndexFunc(f[1:], func(w string) bool { return w == "up" || w == "down" })
	if at < 0 {
		return foreign
	}
	p := Port{Port: f[0], Name: said(strings.Join(f[1:at+1], " ")), Status: f[at+1], Up: ptr(f[at+1] == "up")}
	for i := at + 2; i+1 < len(f); i++ {
		speed, err1 := strconv.Atoi(f[i])
		mtu, err2 := strconv.Atoi(f[i+1])
		if err1 == nil && err2 == nil && speed >= 1000 && mtu >= 64 {
			p.SpeedGbps = ptr(float64(speed) / 1000)
			if len(r.sw.MTU) < maxPorts {
				r.sw.MTU = append(r.sw.MTU, MTU{f[0], mtu})
			}
			break
		}
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return fact
}

func sonicPFC(r *reader, l row) outcome {
	port, cell := portName(l.cells["interface"]), l.cells["lossless priorities"]
	if port == "" || cell == "" {
		return foreign
	}
	list := []int{}
	if said(cell) != "" {
		var ok bool
		if list, ok = priorities(cell); !ok {
			return foreign
		}
	}
	r.sw.PFC = append(r.sw.PFC, PFC{Port: port, Enabled: ptr(len(list) > 0), Priorities: list})
	return fact
}

func sonicPauses(receive bool) func(*reader, row) outcome {
	return func(r *reader, l row) outcome {
		name := l.cells["port rx"] + l.cells["port tx"] + l.cells["port"]
		if low := strings.ToLower(l.line); strings.Contains(low, "flow control frames") {
			r.receive = strings.Contains(low, "received")
			return furniture
		}
		if name == "CPU" {
			return furniture
		}
		if portName(name) == "" {
			return foreign
		}
		for prio := range 8 {
			n := number(l.cells["pfc"+strconv.Itoa(prio)])
			if n == nil {
				if l.cells["pfc"+strconv.Itoa(prio)] == "N/A" {
					continue
				}
				return foreign
			}
			c := r.counter(name, ptr(prio))
			if receive {
				c.RxPause = n
			} else {
				c.TxPause = n
			}
		}
		return fact
	}
}

func sonicWatchdog(r *reader, l row) outcome {
	if portName(l.cells["port"]) == "" {
		return foreign
	}
	r.sw.Storms = ptr(l.cells["action"])
	return fact
}

// sonicStorms is a row of 'show pfcwd stats': "Ethernet0:3 … 2/2".
func sonicStorms(r *reader, l row) outcome {
	port, queue, ok := strings.Cut(l.cells["queue"], ":")
	found, _, _ := strings.Cut(l.cells["storm detected/restored"], "/")
	n, prio := number(found), class(queue)
	if !ok || portName(port) == "" || n == nil || prio == nil {
		return foreign
	}
	r.counter(port, prio).Storms = n
	return fact
}

// sonicGroups is a row of what the ingress of each priority group dropped.
func sonicGroups(r *reader, l row) outcome {
	port := portName(l.cells["port"])
	if port == "" {
		return foreign
	}
	for prio := range 8 {
		n := number(l.cells["pg"+strconv.Itoa(prio)])
		if n == nil {
			continue
		}
		c := r.counter(port, ptr(prio))
		if c.Dropped != nil {
			*n += *c.Dropped
		}
		c.Dropped = n
	}
	return fact
}

// sonicQueue is a row of the counters of queues: UC3 is the unicast queue 3.
func sonicQueue(r *reader, l row) outcome {
	port, queue := portName(l.cells["port"]), l.cells["txq"]
	if port == "" || len(queue) < 2 {
		return foreign
	}
	prio := class(strings.TrimLeft(strings.ToUpper(queue), "UCALMV"))
	if prio == nil || strings.HasPrefix(strings.ToUpper(queue), "MC") {
		return furniture // a multicast queue carries no RDMA
	}
	c := r.counter(port, prio)
	if n := number(l.cells["drop/pkts"]); n != nil {
		c.Dropped = n
	}
	if n := number(l.cells["ecnmarked/pkts"]); n != nil {
		c.ECNMarked = n
	}
	return fact
}

// sonicECN is a line of a WRED profile: its thresholds are in bytes, the green
// ones are those of packets that carry ECN bits.
func sonicECN(r *reader, l row) outcome {
	if len(l.fields) != 2 {
		return foreign
	}
	key, value := l.fields[0], l.fields[1]
	switch {
	case key == "green_min_threshold" || key == "green_max_threshold":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || n < 0 {
			return foreign
		}
		if r.ecn == nil {
			r.ecn = &ECN{}
		}
		if key == "green_min_threshold" {
			r.ecn.MinKB = ptr(n / 1000)
		} else {
			r.ecn.MaxKB = ptr(n / 1000)
		}
		if r.ecn.MinKB != nil && r.ecn.MaxKB != nil {
			q := r.qosNamed("", "WRED profile "+r.block)
			q.ECN = []ECN{*r.ecn}
		}
		return fact
	case strings.HasSuffix(key, "_threshold"), strings.HasSuffix(key, "_probability"), strings.HasSuffix(key, "_enable"), key == "ecn":
		return furniture
	}
	return foreign
}

// sonicMap is a row of 'show qos map dscp-tc': "0-7 0", "26 3".
func sonicMap(r *reader, l row) outcome {
	if len(l.fields) != 2 {
		return foreign
	}
	if has(l.line, "dscp", "tc") {
		return furniture
	}
	list, tc := dscps(l.fields[0]), class(l.fields[1])
	if list == nil || tc == nil {
		return foreign
	}
	q := r.qosNamed("", "map "+r.block)
	q.Whole = true
	for _, d := range list {
		q.mapDSCP(d, *tc)
	}
	return fact
}

// sonicLine reads lines that stand alone: the answers of 'show qos interface',
// and the heads of the enterprise tables of pause frames.
func (r *reader) sonicLine(f []string, line string) bool {
	key, value, ok := strings.Cut(line, ":")
	key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
	low := strings.ToLower(line)
	switch {
	case strings.HasPrefix(low, "flow control frames received"), strings.HasPrefix(low, "flow control frames transmitted"):
		r.receive = strings.Contains(low, "received")
	case ok && key == "pfc-priority" && r.sonicPort() != "":
		list, good := priorities(value)
		if !good {
			return false
		}
		r.tell("sonic")
		r.sw.PFC = append(r.sw.PFC, PFC{Port: r.sonicPort(), Enabled: ptr(len(list) > 0), Priorities: list})
	case ok && key == "dscp-tc-map" && r.sonicPort() != "" && value != "":
		q := r.qosFor(r.sonicPort())
		q.Trust, q.TrustSeen = "dscp", "dscp-tc-map "+value
	case ok && key == "dot1p-tc-map" && r.sonicPort() != "" && value != "":
		if q := r.qosFor(r.sonicPort()); q.Trust == "" {
			q.Trust, q.TrustSeen = "pcp", "dot1p-tc-map "+value
		}
	case len(f) == 4 && f[0] == "dscp" && f[2] == "traffic-class" && strings.HasPrefix(r.block, "map "):
		list, tc := dscps(f[1]), class(f[3])
		if list == nil || tc == nil {
			return false
		}
		q := r.qosNamed("", r.block)
		q.Whole = true
		for _, d := range list {
			q.mapDSCP(d, *tc)
		}
	default:
		return false
	}
	return true
}

// sonicPort is the port that 'show qos interface Ethernet 24' was asked about.
func (r *reader) sonicPort() string {
	f := strings.Fields(r.command)
	i := slices.Index(f, "interface")
	if !strings.HasPrefix(r.command, "show qos interface") || i < 0 || i+1 >= len(f) {
		return ""
	}
	name := f[i+1]
	if i+2 < len(f) && strings.Trim(f[i+2], "0123456789/") == "" {
		name += f[i+2]
	}
	return portName(name)
}

// document reads the JSON that begins at the first of lines: CONFIG_DB or
// tables of it, or what 'nv show … -o json' prints. Of a text that is cut the
// whole tables count. It says how many lines it took, 0 where it is none.
func (r *reader) document(lines []string) int {
	text, added := strings.Join(lines, "\n"), 0
	if !strings.HasPrefix(strings.TrimSpace(text), "{") { // tables without the braces around them
		text, added = "{"+text, 1
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return 0
	}
	db := map[string]json.RawMessage{}
	end, cut := dec.InputOffset(), false
	for dec.More() && !cut && len(db) < maxPorts {
		key, err := dec.Token()
		name, isName := key.(string)
		if err != nil || !isName {
			break // without the braces the last comma is followed by anything
		}
		var raw json.RawMessage
		if cut = dec.Decode(&raw) != nil; !cut {
			db[name], end = raw, dec.InputOffset()
		}
	}
	before := r.sw.Lines
	if !r.configDB(db) && !r.nvueJSON(db) || r.sw.Lines == before {
		return 0
	}
	if _, err := dec.Token(); err == nil {
		end = dec.InputOffset()
	} else {
		cut = cut || added == 0
	}
	used := strings.Count(text[:end], "\n") + 1
	if cut {
		r.sw.Unread = append(r.sw.Unread, Line{r.n + used - 1, "the JSON is cut or broken behind this line"})
	}
	return used
}

// configDB reads the tables of CONFIG_DB.
func (r *reader) configDB(db map[string]json.RawMessage) bool {
	at := -1
	for _, t := range sonicTables {
		var entries map[string]json.RawMessage
		if raw, ok := db[t.name]; !ok || json.Unmarshal(raw, &entries) != nil {
			continue
		}
		if at < 0 {
			at = len(r.sw.Outputs)
			r.sw.Outputs = append(r.sw.Outputs, Output{Show: "CONFIG_DB (show runningconfiguration all)", Dialect: "sonic", Line: r.n})
			r.tell("sonic")
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			var fields map[string]string
			if json.Unmarshal(entries[key], &fields) != nil || len(fields) == 0 {
				continue
			}
			if t.read(r, key, fields) {
				r.sw.Lines++
				r.sw.Outputs[at].Rows++
			}
		}
	}
	return at >= 0
}

// sonicTables are the tables of CONFIG_DB that are read, in this order: a
// queue names a profile that came before (sonic-swss qosorch).
var sonicTables = []struct {
	name string
	read func(r *reader, key string, f map[string]string) bool
}{
	{"PORT", func(r *reader, key string, f map[string]string) bool {
		p := Port{Port: key, Name: f["alias"]}
		if mbps, err := strconv.ParseFloat(f["speed"], 64); err == nil {
			p.SpeedGbps = ptr(mbps / 1000)
		}
		if f["admin_status"] == "down" {
			p.Status = "admin down"
		}
		if n, err := strconv.Atoi(f["mtu"]); err == nil && len(r.sw.MTU) < maxPorts {
			r.sw.MTU = append(r.sw.MTU, MTU{key, n})
		}
		r.sw.Ports = append(r.sw.Ports, p)
		return true
	}},
	{"DSCP_TO_TC_MAP", func(r *reader, key string, f map[string]string) bool {
		q := r.qosNamed("", "map "+key)
		q.Whole = true
		for dscp, tc := range f {
			d, t := dscps(dscp), class(tc)
			if len(d) == 1 && t != nil {
				q.mapDSCP(d[0], *t)
			}
		}
		return true
	}},
	{"PORT_QOS_MAP", func(r *reader, key string, f map[string]string) bool {
		for _, port := range strings.Split(key, ",") {
			where := port
			if port == "global" {
				where = ""
			}
			if m := reference(f["dscp_to_tc_map"]); m != "" {
				q := r.qosFor(where)
				q.Trust, q.TrustSeen = "dscp", "dscp_to_tc_map "+m
			} else if m := reference(f["dot1p_to_tc_map"]); m != "" {
				q := r.qosFor(where)
				q.Trust, q.TrustSeen = "pcp", "dot1p_to_tc_map "+m
			}
			if said, ok := f["pfc_enable"]; ok && where != "" {
				list, good := priorities(said)
				if !good {
					return false
				}
				r.sw.PFC = append(r.sw.PFC, PFC{Port: port, Enabled: ptr(len(list) > 0), Priorities: list})
			}
		}
		return true
	}},
	{"WRED_PROFILE", func(r *reader, key string, f map[string]string) bool {
		lo, err1 := strconv.ParseFloat(f["green_min_threshold"], 64)
		hi, err2 := strconv.ParseFloat(f["green_max_threshold"], 64)
		if err1 != nil || err2 != nil || f["ecn"] == "" || f["ecn"] == "ecn_none" {
			return false
		}
		r.qosNamed("", "WRED profile "+key).ECN = []ECN{{MinKB: ptr(lo / 1000), MaxKB: ptr(hi / 1000)}}
		return true
	}},
	{"SCHEDULER", func(r *reader, key string, f map[string]string) bool {
		r.strict[key] = strings.EqualFold(f["type"], "STRICT")
		return true
	}},
	{"QUEUE", func(r *reader, key string, f map[string]string) bool {
		name := reference(f["wred_profile"])
		i := strings.LastIndexByte(key, '|') // "Ethernet0|3"; on a chassis host|asic|port|queue
		if i < 0 {
			return false
		}
		port, queues := key[:i], key[i+1:]
		port = port[strings.LastIndexByte(port, '|')+1:]
		if r.strict[reference(f["scheduler"])] {
			q := r.qosFor(port)
			for _, tc := range dscps(queues) {
				if tc < 8 && !slices.Contains(q.Strict, tc) {
					q.Strict = append(q.Strict, tc)
				}
			}
		}
		if name == "" {
			return f["scheduler"] != ""
		}
		profile := r.qosNamed("", "WRED profile "+name)
		if len(profile.ECN) == 0 {
			return false
		}
		for _, tc := range dscps(queues) {
			e := profile.ECN[0]
			if tc > 7 {
				continue
			}
			if e.TC == nil && len(profile.ECN) == 1 {
				profile.ECN[0].TC = ptr(tc)
				continue
			}
			e.TC = ptr(tc)
			profile.addECN(e)
		}
		return true
	}},
	{"PFC_WD", func(r *reader, key string, f map[string]string) bool {
		if f["action"] == "" {
			return false
		}
		r.sw.Storms = ptr(f["action"])
		return true
	}},
}

// reference is the name in "[DSCP_TO_TC_MAP|AZURE]", as older releases wrote
// it, and in "AZURE".
func reference(s string) string {
	s = strings.Trim(s, "[]")
	if _, name, ok := strings.Cut(s, "|"); ok {
		return name
	}
	return s
}
