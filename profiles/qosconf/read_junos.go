package qosconf

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// junos is Juniper's Junos OS and Junos OS Evolved on QFX and PTX.
var junos = Dialect{
	ID: "junos", Name: "Juniper Junos",
	outputs: []output{
		{show: "show interfaces terse", row: junosTerse, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "interface") && has(low, "admin", "link", "proto")
		}},
		{show: "show class-of-service congestion-notification", row: junosNotification, head: func(_ *reader, f []string, low string) bool {
			return strings.EqualFold(f[0], "type:") && has(low, "input") || strings.EqualFold(f[0], "name:") && has(low, "index:") && !has(low, "code point")
		}},
		{show: "show class-of-service forwarding-class", row: junosForwarding, head: func(_ *reader, f []string, low string) bool {
			return has(low, "forwarding class", "id", "queue", "no-loss")
		}},
		{show: "show class-of-service classifier", row: junosClassifier, head: func(r *reader, f []string, low string) bool {
			if !strings.HasPrefix(low, "classifier:") || !has(low, "code point type:") || len(f) < 2 {
				return false
			}
			r.block = strings.TrimSuffix(f[1], ",")
			r.receive = has(low, "type: dscp")
			return true
		}},
		{show: "show interfaces queue", row: junosQueue, head: func(r *reader, f []string, low string) bool {
			if !strings.HasPrefix(low, "physical interface:") || len(f) < 3 || portName(f[2]) == "" {
				return false
			}
			r.block, r.queue = strings.TrimRight(f[2], ","), nil
			return true
		}},
	},
}

// junosCoS is Junos' class of service: code points go to forwarding classes,
// those have a queue, and where they are lossless a PFC priority.
type junosCoS struct {
	classes map[string]*junosClass
	maps    map[string]map[int]string // classifier → DSCP → forwarding class
	applied map[string]bool           // classifiers that an interface has
	pfcDSCP []int                     // code points that a notification profile pauses
	pfcPrio []int
	paused  bool
	fill    map[string]*ECN // drop profiles
	marked  bool            // a scheduler has explicit-congestion-notification
	path    []string        // of the braces we are in
	depth   []int
}

type junosClass struct {
	queue  *int
	noLoss *bool
	prio   *int
}

func (j *junosCoS) class(name string) *junosClass {
	if j.classes == nil {
		j.classes = map[string]*junosClass{}
	}
	if j.classes[name] == nil {
		if len(j.classes) >= maxPorts {
			return &junosClass{}
		}
		j.classes[name] = &junosClass{}
	}
	return j.classes[name]
}

// apply notes a classifier that an interface has.
func (j *junosCoS) apply(name string) {
	if j.applied == nil {
		j.applied = map[string]bool{}
	}
	j.applied[name] = len(j.applied) < 256
}

func (j *junosCoS) classify(classifier string, dscp int, name string) {
	if j.maps == nil {
		j.maps = map[string]map[int]string{}
	}
	if j.maps[classifier] == nil {
		if len(j.maps) >= 256 {
			return
		}
		j.maps[classifier] = map[int]string{}
	}
	j.maps[classifier][dscp] = name
}

func junosTerse(r *reader, l row) outcome {
	name := portName(l.fields[0])
	if name == "" || len(l.fields) < 3 {
		return furniture // pseudo interfaces, and the addresses below one
	}
	if strings.Contains(name, ".") {
		return furniture // a unit of a port
	}
	admin, link := l.fields[1], l.fields[2]
	if link != "up" && link != "down" {
		return foreign
	}
	p := Port{Port: name, Status: link, Up: ptr(link == "up")}
	if admin == "down" {
		p.Status = "admin down"
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return fact
}

// codePoint reads "011010" (DSCP) or "011" (802.1p); n bits.
func codePoint(s string, n int) *int {
	if len(s) != n || strings.Trim(s, "01") != "" {
		return nil
	}
	v, _ := strconv.ParseInt(s, 2, 16)
	return ptr(int(v))
}

// junosNotification is a line of a congestion notification profile: the code
// point, and whether it is paused.
func junosNotification(r *reader, l row) outcome {
	if len(l.fields) < 2 {
		return furniture
	}
	state := strings.ToLower(l.fields[1])
	if state != "enabled" && state != "disabled" {
		if has(l.line, "priority", "pfc") || has(l.line, "type:") || has(l.line, "dscp", "pfc") || codePoint(l.fields[0], 3) != nil {
			return furniture
		}
		return foreign
	}
	j := &r.cos
	if p := codePoint(l.fields[0], 3); p != nil {
		j.paused = true
		if state == "enabled" {
			j.pfcPrio = append(j.pfcPrio, *p)
		}
		return fact
	}
	if d := codePoint(l.fields[0], 6); d != nil {
		j.paused = true
		if state == "enabled" {
			j.pfcDSCP = append(j.pfcDSCP, *d)
		}
		return fact
	}
	return foreign
}

// junosForwarding is a row of forwarding classes: name, ID, queue, policing
// priority, no-loss and, where the platform has it, the PFC priority.
func junosForwarding(r *reader, l row) outcome {
	f := l.fields
	at := slices.IndexFunc(f, func(w string) bool { return strings.EqualFold(w, "enabled") || strings.EqualFold(w, "disabled") })
	if at < 3 {
		return foreign
	}
	c := r.cos.class(f[0])
	c.queue, c.noLoss = class(f[2]), ptr(strings.EqualFold(f[at], "enabled"))
	if at+1 < len(f) {
		c.prio = class(f[at+1])
	}
	return fact
}

// junosClassifier is a row of a classifier: code point, forwarding class, loss priority.
func junosClassifier(r *reader, l row) outcome {
	if has(l.line, "code point", "forwarding class") {
		return furniture
	}
	if len(l.fields) < 2 {
		return foreign
	}
	dscp := codePoint(l.fields[0], 6)
	if dscp == nil || !r.receive {
		if codePoint(l.fields[0], 3) != nil || dscp != nil {
			return furniture // of another kind of code point
		}
		return foreign
	}
	r.cos.classify(r.block, *dscp, l.fields[1])
	return fact
}

// junosQueue is a line of 'show interfaces queue'.
func junosQueue(r *reader, l row) outcome {
	// 'show class-of-service interface' has the same heading.
	if l.fields[0] == "Classifier" && len(l.fields) >= 3 && l.fields[2] == "dscp" {
		r.cos.apply(l.fields[1])
		return fact
	}
	key, value, ok := strings.Cut(l.line, ":")
	key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
	switch {
	case key == "congestion-notification":
		word, _, _ := strings.Cut(value, ",")
		on := strings.EqualFold(word, "enabled")
		r.sw.PFC = append(r.sw.PFC, PFC{Port: r.block, Enabled: &on})
		return fact
	case key == "queue":
		word, _, _ := strings.Cut(value, ",")
		r.queue = class(word)
		return furniture
	case !ok || r.queue == nil || r.block == "":
		return furniture
	}
	word, _, _ := strings.Cut(value, " ")
	n := number(word)
	switch key {
	case "tail-dropped packets", "total-dropped packets", "ecn-ce packets":
		if n == nil {
			return furniture // "Not Available"
		}
		c := r.counter(r.block, r.queue)
		if key == "ecn-ce packets" {
			c.ECNMarked = n
		} else {
			c.Dropped = n
		}
		return fact
	}
	return furniture
}

// line reads one line of a configuration: "set class-of-service …", or the
// same in braces.
func (j *junosCoS) line(r *reader, f []string) bool {
	if f[0] == "set" && len(f) > 2 && f[1] == "class-of-service" {
		return j.statement(r, f[2:])
	}
	last := f[len(f)-1]
	switch {
	case last == "{" && (len(j.depth) > 0 || f[0] == "class-of-service" || slices.Contains(junosTop, f[0])):
		if len(j.depth) > 32 {
			return false
		}
		j.depth = append(j.depth, len(f)-1)
		j.path = append(j.path, f[:len(f)-1]...)
		return true
	case f[0] == "}" && len(j.depth) > 0:
		n := j.depth[len(j.depth)-1]
		j.depth, j.path = j.depth[:len(j.depth)-1], j.path[:len(j.path)-n]
		return true
	case len(j.depth) > 0 && strings.HasSuffix(last, ";"):
		words := append(slices.Clone(j.path), f...)
		words[len(words)-1] = strings.TrimSuffix(last, ";")
		if words[len(words)-1] == "" {
			words = words[:len(words)-1]
		}
		if len(words) > 0 && words[0] == "class-of-service" {
			words = words[1:]
		}
		return len(words) > 0 && j.statement(r, words)
	}
	return false
}

// junosTop are the blocks of class-of-service that people paste without it.
var junosTop = []string{"classifiers", "forwarding-classes", "congestion-notification-profile", "drop-profiles", "schedulers"}

// after are the words behind a key; lists in brackets lose them.
func (j *junosCoS) after(f []string, key string) []string {
	i := slices.Index(f, key)
	if i < 0 {
		return nil
	}
	var out []string
	list := false
	for _, w := range f[i+1:] {
		switch {
		case w == "[":
			list = true
		case w == "]":
			return out
		default:
			out = append(out, w)
			if !list {
				return out
			}
		}
	}
	return out
}

func (j *junosCoS) statement(r *reader, f []string) bool {
	r.tell("junos")
	switch f[0] {
	case "classifiers":
		if len(f) < 3 || f[1] != "dscp" {
			return true
		}
		name, fc := f[2], j.after(f, "forwarding-class")
		if len(fc) == 0 {
			return true
		}
		found := false
		for _, p := range j.after(f, "code-points") {
			d := codePoint(p, 6)
			if d == nil {
				if v, ok := dscpAlias[p]; ok {
					d = &v
				}
			}
			if d != nil {
				j.classify(name, *d, fc[0])
				found = true
			}
		}
		return found
	case "forwarding-classes":
		if len(f) < 3 || f[1] != "class" {
			return false
		}
		c := j.class(f[2])
		if q := j.after(f, "queue-num"); len(q) > 0 {
			c.queue = class(q[0])
		}
		if slices.Contains(f, "no-loss") {
			c.noLoss = ptr(true)
		}
		if p := j.after(f, "pfc-priority"); len(p) > 0 {
			c.prio = class(p[0])
		}
		return true
	case "congestion-notification-profile":
		if !slices.Contains(f, "input") {
			return true
		}
		if !slices.Contains(f, "pfc") {
			return true // cable length, MRU
		}
		j.paused = true
		for _, p := range j.after(f, "code-point") {
			if d := codePoint(p, 6); d != nil {
				j.pfcDSCP = append(j.pfcDSCP, *d)
			} else if d := codePoint(p, 3); d != nil {
				j.pfcPrio = append(j.pfcPrio, *d)
			}
		}
		return true
	case "drop-profiles":
		return j.dropProfile(f)
	case "schedulers":
		j.marked = j.marked || slices.Contains(f, "explicit-congestion-notification")
		return true
	case "interfaces":
		for _, name := range j.after(f, "dscp") {
			j.apply(name)
		}
		return true
	case "scheduler-maps", "forwarding-class-sets", "traffic-control-profiles", "rewrite-rules", "shared-buffer", "dscp", "host-outbound-traffic":
		return true
	}
	return false
}

// dropProfile keeps the fill levels at which marking begins and is complete.
func (j *junosCoS) dropProfile(f []string) bool {
	if len(f) < 2 {
		return false
	}
	if j.fill == nil {
		j.fill = map[string]*ECN{}
	}
	e := j.fill[f[1]]
	if e == nil {
		if len(j.fill) >= 64 {
			return false
		}
		e = &ECN{}
		j.fill[f[1]] = e
	}
	for i := 0; i+1 < len(f); i++ {
		if f[i] != "fill-level" {
			continue
		}
		for _, w := range j.after(f[i:], "fill-level") {
			n, err := strconv.ParseFloat(w, 64)
			if err != nil || n < 0 || n > 100 {
				return false
			}
			if e.MinPercent == nil || n < *e.MinPercent {
				e.MinPercent = ptr(n)
			}
			if e.MaxPercent == nil || n > *e.MaxPercent {
				e.MaxPercent = ptr(n)
			}
		}
	}
	return true
}

// dscpAlias are Junos' names of code points.
var dscpAlias = map[string]int{
	"be": 0, "cs1": 8, "af11": 10, "af12": 12, "af13": 14, "cs2": 16, "af21": 18, "af22": 20, "af23": 22, "cs3": 24, "af31": 26, "af32": 28, "af33": 30,
	"cs4": 32, "af41": 34, "af42": 36, "af43": 38, "cs5": 40, "ef": 46, "cs6": 48, "nc1": 48, "cs7": 56, "nc2": 56,
}

// finish resolves code points to priorities.
func (j *junosCoS) finish(r *reader) {
	for _, name := range slices.Sorted(maps.Keys(j.maps)) {
		q := r.qosNamed("", "classifier "+name)
		q.Whole = true
		for dscp, fc := range j.maps[name] {
			if c := j.classes[fc]; c != nil && c.prio != nil {
				q.mapDSCP(dscp, *c.prio)
				continue
			}
			if q.Class == nil {
				q.Class = map[int]string{}
			}
			q.Class[dscp] = fc
		}
		if j.applied[name] {
			q.Trust, q.TrustSeen = "dscp", "classifier "+name
		}
	}
	lossless := slices.Clone(j.pfcPrio)
	unknown := false
	for _, dscp := range j.pfcDSCP {
		found := false
		for _, m := range j.maps {
			if c := j.classes[m[dscp]]; c != nil && c.prio != nil {
				lossless, found = append(lossless, *c.prio), true
			}
		}
		unknown = unknown || !found
	}
	if j.paused && !unknown {
		slices.Sort(lossless)
		p := PFC{Enabled: ptr(len(lossless) > 0), Priorities: slices.Compact(lossless), Note: "congestion-notification"}
		if p.Priorities == nil {
			p.Priorities = []int{}
		}
		r.sw.PFC = append(r.sw.PFC, p)
	}
	for _, name := range slices.Sorted(maps.Keys(j.fill)) {
		if e := j.fill[name]; e.MinPercent != nil && j.marked {
			r.qosNamed("", "drop profile "+name).addECN(*e)
		}
	}
}
