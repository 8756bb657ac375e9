package qosconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// nvue is NVIDIA Cumulus Linux with NVUE.
var nvue = Dialect{
	ID: "nvue", Name: "NVIDIA Cumulus Linux (NVUE)", word: "nvue",
	write: func(p Plan, _ SwitchOptions) ([]string, error) { return p.nvue(), nil },
	outputs: []output{
		{show: "nv show qos roce", columns: []string{"operational", "applied"}, row: nvueTree},
		{show: "nv show qos roce prio-map", columns: []string{"pcp", "dscp", "switch-prio"}, row: nvuePriorities},
		{show: "nv show qos roce tc-map", columns: []string{"switch-prio", "traffic-class", "scheduler-weight"}, row: nvueClasses},
		{show: "nv show qos roce pool-map", columns: []string{"name", "mode", "size", "switch-priorities"}, row: nvuePool},
		{show: "nv show interface PORT qos pfc-watchdog", columns: []string{"traffic-class", "status", "deadlock-count"}, row: nvueStorms},
		{show: "nv show interface", columns: []string{"interface", "oper status", "speed", "mtu"}, row: nvueInterface},
		{show: "nv show interface", columns: []string{"interface", "state", "speed", "mtu"}, row: nvueInterface},
		{show: "net show interface", columns: []string{"state", "name", "spd", "mtu"}, row: nvueInterface},
	},
}

// nvueTree is a line of a listing of values: "  pfc-priority  3", operational
// beside applied. 'nv show interface swp1 qos roce counters' is one too.
func nvueTree(r *reader, l row) outcome {
	if len(l.cells) == 0 {
		if len(l.fields) == 1 { // the head of a branch, or a value that is empty
			r.queueName(l.fields[0])
			return furniture
		}
		return foreign
	}
	key, value := l.cells[""], l.cells["operational"]
	if value == "" {
		value = l.cells["applied"]
	}
	if portName(key) != "" {
		return foreign
	}
	port := r.nvuePort()
	q := func() *QoS { return r.qosFor(port) }
	switch key {
	case "mode":
		if strings.HasPrefix(value, "lossy") {
			p := r.nvuePFC(port)
			p.Enabled, p.Priorities = ptr(false), []int{}
		}
		r.inPr = value
	case "pfc-priority":
		list, ok := priorities(strings.Trim(value, "-"))
		if !ok {
			return foreign
		}
		p := r.nvuePFC(port)
		p.Priorities = list
		if p.Enabled == nil {
			p.Enabled = ptr(len(list) > 0)
		}
	case "rx-enabled", "tx-enabled":
		on := value == "yes" || value == "enabled" || value == "on"
		p := r.nvuePFC(port)
		if !on {
			p.Active = ptr(false)
			p.Note = strings.TrimSuffix(key, "-enabled") + " is off"
		} else if p.Active == nil {
			p.Active = ptr(true)
		}
	case "trust-mode":
		q().Trust, q().TrustSeen = trustWord(value), value
	case "min-threshold", "max-threshold":
		kb := binarySize(value)
		if kb == nil {
			return foreign
		}
		if r.ecn == nil {
			r.ecn = &ECN{}
		}
		if key == "min-threshold" {
			r.ecn.MinKB = kb
		} else {
			r.ecn.MaxKB = kb
		}
		r.nvueECN(q())
	case "enabled-tc":
		list, ok := priorities(value)
		if !ok {
			return foreign
		}
		if r.ecn == nil {
			r.ecn = &ECN{}
		}
		r.marked = list
		r.nvueECN(q())
	case "rx-pfc-stats", "tx-pfc-stats", "rx-stats", "tx-stats", "tx-ecn-stats", "rx-roce-stats", "tx-roce-stats", "tx-cnp-stats", "rx-non-roce-stats":
		r.queueName(key)
		return furniture
	case "pause-packets", "ecn-marked-packets", "no-buffer-discard", "unicast-no-buffer-discard":
		n := number(value)
		if n == nil || port == "" {
			return foreign
		}
		c := r.counter(port, nil)
		switch {
		case key == "pause-packets" && strings.HasPrefix(r.inPr, "rx"):
			c.RxPause = n
		case key == "pause-packets":
			c.TxPause = n
		case key == "ecn-marked-packets":
			c.ECNMarked = n
		case r.inPr == "tx-roce-stats" || r.inPr == "rx-roce-stats":
			if c.Dropped != nil {
				*n += *c.Dropped
			}
			c.Dropped = n
		default:
			return furniture
		}
	default:
		return furniture
	}
	return fact
}

// queueName keeps the branch of a listing that we are in.
func (r *reader) queueName(branch string) { r.inPr = branch }

// nvueECN stores what is known of the thresholds, once per class that is marked.
func (r *reader) nvueECN(q *QoS) {
	if r.ecn == nil || r.ecn.MinKB == nil || r.ecn.MaxKB == nil {
		return
	}
	if r.marked == nil {
		q.ECN = []ECN{*r.ecn}
		return
	}
	q.ECN = nil
	for _, tc := range r.marked {
		e := *r.ecn
		e.TC = ptr(tc)
		q.addECN(e)
	}
}

func (r *reader) nvuePFC(port string) *PFC {
	for i := range r.sw.PFC {
		if r.sw.PFC[i].Port == port {
			return &r.sw.PFC[i]
		}
	}
	r.sw.PFC = append(r.sw.PFC, PFC{Port: port})
	return &r.sw.PFC[len(r.sw.PFC)-1]
}

// nvuePort is the port that 'nv show interface swp1 qos …' was asked about.
func (r *reader) nvuePort() string {
	f := strings.Fields(r.command)
	if i := slices.Index(f, "interface"); i >= 0 && i+1 < len(f) {
		return portName(f[i+1])
	}
	return ""
}

// binarySize reads "146.48 KB" and "1.43 MB" in units of 1000 bytes: NVUE
// divides by 1024 (150,000 bytes are shown as 146.48 KB).
func binarySize(s string) *float64 {
	f := strings.Fields(s)
	if len(f) != 2 {
		return nil
	}
	n, err := strconv.ParseFloat(f[0], 64)
	unit, ok := map[string]float64{"Bytes": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[f[1]]
	if err != nil || !ok || n < 0 {
		return nil
	}
	return ptr(n * unit / 1000)
}

// nvuePriorities is a row of the classification: PCP, DSCPs, switch priority.
func nvuePriorities(r *reader, l row) outcome {
	prio := class(l.cells["switch-prio"])
	if prio == nil {
		return foreign
	}
	q := r.qosFor(r.nvuePort())
	// 'nv show qos roce' lists every code point, the status of an interface the classes in use alone.
	q.Whole = q.Whole || r.nvuePort() == ""
	for _, dscp := range dscps(strings.Trim(l.cells["dscp"], "-")) {
		q.mapDSCP(dscp, *prio)
	}
	return fact
}

// nvueClasses is a row of the queueing: switch priority, traffic class, weight.
func nvueClasses(r *reader, l row) outcome {
	tc := class(l.cells["traffic-class"])
	if tc == nil {
		return foreign
	}
	if q := r.qosFor(r.nvuePort()); strings.HasPrefix(strings.ToLower(l.cells["scheduler-weight"]), "strict") && !slices.Contains(q.Strict, *tc) {
		q.Strict = append(q.Strict, *tc)
	}
	return fact
}

// nvuePool is a row of the buffer pools; that of lossless RoCE is called so.
func nvuePool(r *reader, l row) outcome {
	name := l.cells["name"]
	if !strings.HasPrefix(name, "roce-") || !strings.HasSuffix(name, "-ingress") {
		return furniture
	}
	list, ok := priorities(l.cells["switch-priorities"])
	if !ok || !strings.HasPrefix(name, "roce-reserved") {
		return furniture
	}
	p := Pool{Name: name, Type: "lossless", Priorities: list}
	if n, err := strconv.ParseFloat(strings.TrimSuffix(l.cells["size"], "%"), 64); err == nil && strings.HasSuffix(l.cells["size"], "%") {
		p.Percent = &n
	}
	if len(r.sw.Pools) < 64 {
		r.sw.Pools = append(r.sw.Pools, p)
	}
	return fact
}

// nvueStorms is a row of the watchdog: traffic class, status, deadlocks.
func nvueStorms(r *reader, l row) outcome {
	tc, n := class(l.cells["traffic-class"]), number(l.cells["deadlock-count"])
	if tc == nil || n == nil || r.nvuePort() == "" {
		return foreign
	}
	r.counter(r.nvuePort(), tc).Storms = n
	return fact
}

// nvueInterface is a row of 'nv show interface'.
func nvueInterface(r *reader, l row) outcome {
	name := l.cells["interface"] + l.cells["name"]
	if name == "" {
		return furniture // the second line of a long summary
	}
	if portName(name) == "" {
		return furniture // a bridge, a bond or a VRF with a name of its own
	}
	state := strings.ToLower(l.cells["oper status"] + l.cells["state"])
	if state == "dn" || state == "admdn" { // Cumulus before NVUE
		state = "down"
	}
	if state != "up" && state != "down" {
		if _, hasOper := l.cells["oper status"]; hasOper && state == "" {
			return furniture
		}
		return foreign
	}
	p := Port{Port: name, Name: l.cells["remote host"], Status: state, Up: ptr(state == "up"), SpeedGbps: gbps(l.cells["speed"] + l.cells["spd"]), Type: l.cells["type"]}
	if n, err := strconv.Atoi(l.cells["mtu"]); err == nil && len(r.sw.MTU) < maxPorts {
		r.sw.MTU = append(r.sw.MTU, MTU{name, n})
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return fact
}

// nvueSet reads one 'nv set qos …' command.
func (r *reader) nvueSet(f []string) bool {
	if len(f) < 4 || f[0] != "nv" || f[1] != "set" || f[2] != "qos" {
		return false
	}
	r.tell("nvue")
	f = f[3:]
	value := func(key string) string {
		if i := slices.Index(f, key); i >= 0 && i+1 < len(f) {
			return f[i+1]
		}
		return ""
	}
	switch f[0] {
	case "roce":
		if value("enable") == "off" || value("state") == "disabled" {
			return true
		}
		mode := value("mode")
		if mode != "" && !strings.HasPrefix(mode, "lossless") {
			p := r.nvuePFC("")
			p.Enabled, p.Priorities = ptr(false), []int{}
			return true
		}
		// What the one command stands for: NVIDIA Cumulus documentation, RDMA over Converged Ethernet.
		p := r.nvuePFC("")
		p.Enabled, p.Priorities = ptr(true), []int{3}
		q := r.qosFor("")
		q.Trust, q.TrustSeen, q.Whole = "both", "roce", true
		for dscp := range 64 {
			q.mapDSCP(dscp, defaultPriority(dscp))
		}
		q.Strict = []int{6}
		q.addECN(ECN{TC: ptr(0), MinKB: ptr(150.), MaxKB: ptr(1500.)})
		q.addECN(ECN{TC: ptr(3), MinKB: ptr(150.), MaxKB: ptr(1500.)})
	case "pfc":
		list, ok := priorities(value("switch-priority"))
		if !ok || value("switch-priority") == "" {
			return len(f) > 2 // cable length, port buffer
		}
		p := r.nvuePFC("")
		p.Enabled, p.Priorities = ptr(len(list) > 0), list
	case "mapping":
		q := r.qosFor("")
		if t := value("trust"); t != "" {
			q.Trust, q.TrustSeen = trustWord(t), t
		}
		if prio := class(value("switch-priority")); prio != nil {
			for _, d := range dscps(value("dscp")) {
				q.mapDSCP(d, *prio)
			}
		}
	case "congestion-control":
		tcs, ok := priorities(value("traffic-class"))
		if !ok || len(tcs) == 0 {
			return false
		}
		q := r.qosFor("")
		for _, tc := range tcs {
			e := ECN{TC: ptr(tc)}
			if i := slices.IndexFunc(q.ECN, func(e ECN) bool { return e.TC != nil && *e.TC == tc }); i >= 0 {
				e = q.ECN[i]
			}
			// Bytes; some releases call the keys …-bytes.
			if n, err := strconv.ParseFloat(value("min-threshold")+value("min-threshold-bytes"), 64); err == nil {
				e.MinKB = ptr(n / 1000)
			}
			if n, err := strconv.ParseFloat(value("max-threshold")+value("max-threshold-bytes"), 64); err == nil {
				e.MaxKB = ptr(n / 1000)
			}
			q.addECN(e)
		}
	case "egress-scheduler":
		tc := class(value("traffic-class"))
		if tc == nil {
			return false
		}
		q := r.qosFor("")
		q.Strict = slices.DeleteFunc(q.Strict, func(n int) bool { return n == *tc })
		if value("mode") == "strict" {
			q.Strict = append(q.Strict, *tc)
		}
	case "traffic-pool":
		n, err := strconv.ParseFloat(value("memory-percent"), 64)
		if value("traffic-pool") != "roce-lossless" || err != nil {
			return true
		}
		var list []int
		for _, p := range r.sw.PFC {
			list = append(list, p.Priorities...)
		}
		r.sw.Pools = append(slices.DeleteFunc(r.sw.Pools, func(p Pool) bool { return p.Name == "roce-lossless" }), Pool{Name: "roce-lossless", Type: "lossless", Percent: &n, Priorities: list})
	case "egress-queue-mapping", "remark":
	default:
		return false
	}
	return true
}

// nvueJSON reads 'nv show qos roce -o json': the same keys as the listing.
func (r *reader) nvueJSON(db map[string]json.RawMessage) bool {
	if db["congestion-control"] == nil && db["prio-map"] == nil && db["pfc"] == nil {
		return false
	}
	at := len(r.sw.Outputs)
	r.sw.Outputs = append(r.sw.Outputs, Output{Show: "nv show qos roce -o json", Dialect: "nvue", Line: r.n})
	r.tell("nvue")
	count := func(got outcome) {
		if got == fact {
			r.sw.Lines++
			r.sw.Outputs[at].Rows++
		}
	}
	for _, branch := range slices.Sorted(maps.Keys(db)) {
		var leaf any
		if json.Unmarshal(db[branch], &leaf) != nil {
			continue
		}
		entries, ok := leaf.(map[string]any)
		if !ok {
			count(nvueTree(r, row{cells: map[string]string{"": branch, "operational": fmt.Sprint(leaf)}}))
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			cells, isRow := entries[key].(map[string]any)
			if !isRow {
				count(nvueTree(r, row{cells: map[string]string{"": key, "operational": fmt.Sprint(entries[key])}}))
				continue
			}
			l := row{cells: map[string]string{}}
			for k, v := range cells {
				l.cells[k] = fmt.Sprint(v)
			}
			switch branch {
			case "prio-map":
				count(nvuePriorities(r, l))
			case "tc-map":
				count(nvueClasses(r, l))
			case "pool-map":
				count(nvuePool(r, l))
			}
		}
	}
	r.ecn, r.marked = nil, nil
	return true
}
