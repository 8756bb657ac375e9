package qosconf

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fabrun/topology/pasted"
)

// Switch is what the pasted outputs of one switch say. Unknown is nil or "".
type Switch struct {
	OS       string    // ID of the dialect; "" not told
	Outputs  []Output  // what was recognised, in order
	Ports    []Port    // from the tables of interfaces, in their order
	PFC      []PFC     // per port or, with Port "", for the whole switch
	QoS      []QoS     // trust, maps and queues, per port or range
	Pools    []Pool    // buffer pools
	Counters []Counter // pauses, drops and marks, per port
	Unread   []Line    // rows that begin with a port's name and were not understood
	Lines    int       // lines that said something
	Skipped  int       // lines of no known output
	First    string    // the first of them
	GlobalP  *bool     // PFC for the whole switch, where it says so
	MTU      []MTU     // from configuration
	Storms   *string   // PFC watchdog action, where a timeout arms it
}

// Output is one table or listing that was recognised.
type Output struct {
	Show    string `json:"show"` // the command that prints it
	Dialect string `json:"dialect"`
	Line    int    `json:"line"`
	Rows    int    `json:"rows"` // that said something
}

// Port is one row of a table of interfaces.
type Port struct {
	Port      string   `json:"port"`
	Name      string   `json:"name"`   // the operator's description
	Status    string   `json:"status"` // as printed: "connected", "notconnect", "Up", …
	Up        *bool    `json:"up"`
	SpeedGbps *float64 `json:"speed_gbps"`
	Duplex    string   `json:"duplex"`
	VLAN      string   `json:"vlan"`
	Type      string   `json:"type"` // "100GBASE-CR4", "Not Present"
}

// PFC is the priority flow control of a port, or with Port "" of all of them.
type PFC struct {
	Port       string `json:"port"`
	Enabled    *bool  `json:"enabled"`
	Active     *bool  `json:"active"`
	Watchdog   *bool  `json:"watchdog"`
	Priorities []int  `json:"priorities"` // lossless ones; nil: not said
	Note       string `json:"note"`
}

// QoS is the classification and queueing of a port or a range of them.
type QoS struct {
	Ports     string      `json:"ports"`     // "" the whole switch
	Name      string      `json:"name"`      // of the map, policy or classifier that says it
	Trust     string      `json:"trust"`     // "dscp", "pcp", "both", "none"; "" not said
	TrustSeen string      `json:"trust_raw"` // as printed: "L3"
	DSCP      map[int]int `json:"dscp_to_priority"`
	// Whole says that a DSCP which the map does not list goes to the default class.
	Whole  bool           `json:"dscp_map_whole"`
	Class  map[int]string `json:"dscp_to_class"` // Junos: the forwarding class, where its priority is not said
	ECN    []ECN          `json:"ecn"`
	Strict []int          `json:"strict_traffic_classes"`
}

// ECN is the marking of one traffic class: in kB (1000 bytes) of queue, or in
// percent of how full it is.
type ECN struct {
	TC         *int     `json:"traffic_class"`
	MinKB      *float64 `json:"min_kb"`
	MaxKB      *float64 `json:"max_kb"`
	MinPercent *float64 `json:"min_percent"`
	MaxPercent *float64 `json:"max_percent"`
}

// Counter is what a port, or one priority of it, counted since it was cleared.
type Counter struct {
	Port      string  `json:"port"`
	Priority  *int    `json:"priority"`
	RxPause   *uint64 `json:"rx_pause_frames"` // what is behind the port asks the switch to stop
	TxPause   *uint64 `json:"tx_pause_frames"` // the switch asks what is behind the port to stop
	Dropped   *uint64 `json:"dropped_packets"`
	ECNMarked *uint64 `json:"ecn_marked_packets"`
	Storms    *uint64 `json:"pfc_storms"` // that the watchdog found
}

// Pool is a buffer pool.
type Pool struct {
	Name       string   `json:"name"`
	Type       string   `json:"type"` // "lossless", "lossy"
	Percent    *float64 `json:"percent"`
	Priorities []int    `json:"priorities"`
}

// MTU is a frame size that the configuration sets.
type MTU struct {
	Ports string
	Bytes int
}

// Line is one line of the input.
type Line struct {
	N    int
	Text string
}

const (
	maxUnread = 50
	maxPorts  = 4096 // more than the largest chassis has; what comes after is not kept
)

// row is one line of the input, taken apart.
type row struct {
	line   string
	fields []string
	cells  map[string]string // of a table with a ruler under its heading, by lower-case column
}

// outcome is what a reader made of a line.
type outcome int

const (
	foreign   outcome = iota // not of this output
	furniture                // of it, and says nothing: a ruler, a second heading, a legend
	fact
)

// output is one thing that a switch prints, recognised by its heading.
type output struct {
	show    string                                            // the command
	head    func(r *reader, fields []string, low string) bool // the heading line; or
	columns []string                                          // the heading's cells where a ruler of dashes stands under it
	row     func(r *reader, l row) outcome
}

// reader holds what a line means depending on those before it.
type reader struct {
	sw      Switch
	dialect string  // of out
	out     *output // the output we are in
	at      int     // its place in sw.Outputs; -1 in none
	spans   [][2]int
	names   []string // cells of the heading
	before  string   // the line before, which is the heading if this one is a ruler
	command string   // typed at the last prompt
	n       int
	skipped int // the last line that was of no known output

	block    string          // ports of the configuration block we are in
	queue    *int            // traffic class of the block we are in
	prof     map[string]*QoS // EOS: qos profile NAME
	inPr     string
	counters map[string]int
	strict   map[string]bool // SONiC: schedulers that are
	receive  bool            // enterprise SONiC: which direction the table of pause frames is of
	ecn      *ECN            // of the profile that is being read
	marked   []int           // NVUE: the classes that are marked
	policies nxosPolicies
	cos      junosCoS
}

// ReadSwitch reads what switches print, in every Dialect: tables and
// configurations, one after the other in one text, with prompts, paging and
// CR LF as pasted.
func ReadSwitch(text string) Switch {
	r := &reader{prof: map[string]*QoS{}, counters: map[string]int{}, strict: map[string]bool{}, at: -1}
	lines := pasted.Lines(text)
	documents := 0
	for i := 0; i < len(lines); i++ {
		if r.n = i + 1; len(r.sw.Ports)+len(r.sw.PFC) > 2*maxPorts || len(r.sw.Counters) > 8*maxPorts {
			break
		}
		line := lines[i]
		if strings.TrimSpace(line) == "" {
			continue
		}
		if t := strings.TrimSpace(line); documents < 16 && (t == "{" || strings.HasPrefix(t, `{"`) || jsonKey().MatchString(t)) {
			documents++
			if used := r.document(lines[i:]); used > 0 {
				i += used - 1
				continue
			}
		}
		r.line(line)
		r.before = line
	}
	r.finish()
	return r.sw
}

// finish draws what several outputs say together.
func (r *reader) finish() {
	r.policies.finish(r)
	r.cos.finish(r)
	// What a profile says counts where it was applied.
	r.sw.PFC = slices.DeleteFunc(r.sw.PFC, func(p PFC) bool { return strings.HasPrefix(p.Note, "qos profile ") })
}

var (
	// A prompt, and the command behind it: EOS, Onyx, NX-OS, a Linux shell of SONiC or Cumulus, Junos.
	prompt = lazy(`^(?:\{[\w:-]+\}\s*)?[\w.@:~/+-]*[\w~\])](?:\s*\[[^\]]*\])?\s*(?:\([^)]*\))?\s*[#>$]\s*(.*)$`)
	// The ports that a prompt stands in: (config-if-Et1/1-3/4)#.
	promptPorts = lazy(`(?i)config[- ](?:if|interface)[- ](?:ethernet|eth|et)\s*([0-9/,-]+)\)\s*#`)
	// Any name of a port, of any dialect, data or not.
	portWord = lazy(`^(?i:(?:br-|v)?ethernet|eth|et|port-?channel|po|mpo|lag|bond|management|mgmt|ma|vxlan|vx|loopback|lo|vlan|un|ae|irb)[0-9]+(?:[/.:][0-9]+){0,4}$|^swp[0-9]+(?:s[0-9]+)?$|^(?:et|xe|ge|mge|em|fxp)-?[0-9]+/[0-9]+/[0-9]+(?::[0-9]+)?(?:\.[0-9]+)?$`)
	// Those that hosts and other switches hang on.
	fabricPort = lazy(`^(?i:ethernet|eth|et)([0-9]+(?:/[0-9]+){0,4})$|^swp[0-9]+(?:s[0-9]+)?$|^(?:et|xe|ge)-[0-9]+/[0-9]+/[0-9]+(?::[0-9]+)?$`)
	portKind   = lazy(`^(?i:ethernet|eth|et|te|tengigabitethernet|twe|fo|hu|fh|fourhundredgige|hundredgige)$`)
	portNumber = lazy(`^[0-9]+(?:/[0-9]+){1,3}:?$`)
	jsonKey    = lazy(`^"[A-Za-z_-]+"\s*:\s*\{`)
	speedWord  = lazy(`^(?:a-)?([0-9]+(?:\.[0-9]+)?)([GM])(?:b(?:ps|/s)|-[0-9])?$`)
	ruler      = lazy(`^\s*(?:[-=]{2,}|-)(?:\s+(?:[-=]{2,}|-))*\s*$`)
	rulerGroup = lazy(`[-=]+`)
)

// isFabric reports whether a port is one of the fabric's: eth0 is the
// management port of SONiC and Cumulus.
func isFabric(port string) bool { return port != "eth0" && fabricPort().MatchString(port) }

// ShortPort is one name for a port however it was spelt: "Et1/1", "Eth1/1" and
// "Ethernet1/1" are all "1/1"; others keep their name.
func ShortPort(name string) string {
	if m := fabricPort().FindStringSubmatch(name); m != nil && m[1] != "" {
		return m[1]
	}
	return name
}

// portName is the port that a line begins with, "" for none.
func portName(field string) string {
	field = strings.TrimRight(field, ":,|")
	if portWord().MatchString(field) {
		return field
	}
	return ""
}

func (r *reader) line(line string) {
	// "QoS-Group# Bandwidth%" is a heading of NX-OS.
	if m := prompt().FindStringSubmatch(line); m != nil && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "QoS-Group#") {
		r.typed(line, strings.TrimSpace(m[1]))
		return
	}
	fields := strings.Fields(line)
	if line == "!" { // EOS ends a block so; an indented one is only a rest between lines
		r.block, r.inPr, r.queue = "", "", nil
	}
	if fields[0][0] == '!' || fields[0][0] == '#' {
		return // a comment
	}
	if ruler().MatchString(line) {
		r.ruled(line)
		return
	}
	if r.headed(fields, line) {
		return
	}
	if r.out != nil {
		switch r.out.row(r, r.cut(line, fields)) {
		case fact:
			r.count()
			return
		case furniture:
			return
		}
	}
	switch {
	case r.global(fields, line) || r.sonicLine(fields, line) || r.config(fields):
		r.sw.Lines++
	case r.port(fields):
		if len(r.sw.Unread) < maxUnread {
			r.sw.Unread = append(r.sw.Unread, Line{r.n, strings.TrimSpace(line)})
		}
		r.skip(line)
	default:
		r.skip(line)
	}
}

// port reports a line that begins with the name of a port, however it is
// spelled: "Ethernet1/1", "| Eth1/1", "Eth 1/1/1".
func (r *reader) port(f []string) bool {
	if f[0] == "|" {
		f = f[1:]
	}
	return len(f) > 0 && (portName(f[0]) != "" || len(f) > 1 && portKind().MatchString(f[0]) && portNumber().MatchString(f[1]))
}

func (r *reader) skip(line string) {
	r.skipped = r.n
	if r.sw.Skipped++; r.sw.First == "" {
		r.sw.First = strings.TrimSpace(line)
	}
}

func (r *reader) count() {
	r.sw.Lines++
	if r.at >= 0 {
		r.sw.Outputs[r.at].Rows++
	}
}

// typed is a prompt with the command behind it: a new output begins; a
// configuration command is read as one.
func (r *reader) typed(line, command string) {
	r.leave()
	r.block, r.queue, r.inPr, r.command = "", nil, "", command
	if b := promptPorts().FindStringSubmatch(line); b != nil {
		r.block = b[1]
	}
	f := strings.Fields(command)
	if len(f) == 0 {
		r.block = ""
		return
	}
	for len(f) > 1 && (f[0] == "sudo" || f[0] == "run" || f[0] == "do") {
		f = f[1:]
	}
	if keyword(f[0], "show") || f[0] == "nv" && len(f) > 1 && f[1] == "show" {
		r.block = ""
		return
	}
	if r.config(f) {
		r.sw.Lines++
	}
}

func (r *reader) leave() {
	r.out, r.at, r.spans, r.names, r.ecn, r.marked = nil, -1, nil, nil, nil, nil
}

// enter begins an output that was recognised.
func (r *reader) enter(d *Dialect, o *output) {
	r.leave()
	r.out, r.dialect = o, d.ID
	r.tell(d.ID)
	if len(r.sw.Outputs) < maxPorts {
		r.sw.Outputs = append(r.sw.Outputs, Output{Show: o.show, Dialect: d.ID, Line: r.n})
		r.at = len(r.sw.Outputs) - 1
	}
}

// tell notes the dialect that a line is certain of.
func (r *reader) tell(id string) { r.sw.OS = id }

// headed recognises the heading line of an output.
func (r *reader) headed(fields []string, line string) bool {
	low := strings.ToLower(line)
	for i := range Switches {
		d := &Switches[i]
		for k := range d.outputs {
			if o := &d.outputs[k]; o.head != nil && o.head(r, fields, low) {
				r.enter(d, o)
				return true
			}
		}
	}
	return false
}

// ruled takes a ruler of dashes: it says nothing by itself, but where it has
// several groups the line before is a heading, and the groups are its columns.
func (r *reader) ruled(line string) {
	groups := rulerGroup().FindAllStringIndex(line, -1)
	if len(groups) < 2 {
		return
	}
	spans := make([][2]int, len(groups))
	for i, g := range groups {
		spans[i] = [2]int{g[0], g[1]}
	}
	names := cutAt(strings.ToLower(r.before), spans)
	if names == nil {
		return
	}
	for i := range Switches {
		d := &Switches[i]
		for k := range d.outputs {
			o := &d.outputs[k]
			if o.columns != nil && !slices.ContainsFunc(o.columns, func(c string) bool { return !slices.Contains(names, c) }) {
				if r.skipped > 0 && r.skipped == r.n-1 { // the heading was met before its ruler
					r.sw.Skipped--
				}
				r.enter(d, o)
				r.spans, r.names = spans, names
				return
			}
		}
	}
	if r.out != nil && r.out.columns != nil { // a table of another kind begins
		r.leave()
	}
}

// cut takes a line apart, along the columns of a ruled table.
func (r *reader) cut(line string, fields []string) row {
	l := row{line: line, fields: fields}
	if r.spans == nil {
		return l
	}
	values := cutAt(line, r.spans)
	if values == nil {
		values = wide().Split(strings.TrimSpace(line), -1)
	}
	if len(values) != len(r.names) {
		values = fields
	}
	if len(values) == len(r.names) {
		l.cells = map[string]string{}
		for i, name := range r.names {
			l.cells[name] = strings.TrimSpace(values[i])
		}
	}
	return l
}

var wide = lazy(`\s{2,}|\t+`)

// cutAt takes a line apart at columns; nil where a word stands across a border.
func cutAt(line string, spans [][2]int) []string {
	out := make([]string, len(spans))
	for i, s := range spans {
		from, to := s[0], len(line)
		if i > 0 && from-1 < len(line) && from >= 1 && line[from-1] != ' ' {
			return nil
		}
		if i+1 < len(spans) {
			to = min(to, spans[i+1][0])
		}
		if from < to {
			out[i] = strings.TrimSpace(line[from:to])
		}
	}
	if len(line) > 0 && len(spans) > 0 && strings.TrimSpace(line[:min(len(line), spans[0][0])]) != "" {
		return nil
	}
	return out
}

func has(line string, words ...string) bool {
	line = strings.ToLower(line)
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
}

// global reads lines that stand alone.
func (r *reader) global(fields []string, line string) bool {
	low := strings.ToLower(line)
	key, value, _ := strings.Cut(low, ":")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	switch {
	case key == "global pfc":
		r.tell("eos")
		r.sw.GlobalP = ptr(strings.HasPrefix(value, "enabled"))
	case strings.HasPrefix(low, "the pfc watchdog timeout is "):
		if len(fields) > 5 && r.sw.Storms == nil {
			if n, err := strconv.ParseFloat(fields[5], 64); err == nil && n > 0 {
				r.sw.Storms = ptr("")
			}
		}
	case strings.HasPrefix(low, "the pfc watchdog action is "):
		if r.sw.Storms != nil {
			r.sw.Storms = ptr(fields[len(fields)-1])
		}
	case strings.HasPrefix(low, "the pfc watchdog "), strings.HasPrefix(low, "the hardware supports pfc"), strings.HasPrefix(low, "pfc receive processing"):
		r.tell("eos")
	case key == "pfc" && value != "":
		r.tell("onyx")
		on := strings.HasPrefix(value, "enabled")
		r.sw.GlobalP = &on
		r.switchPFC().Enabled = &on
	case key == "priority enabled list":
		r.tell("onyx")
		r.switchPFC().Priorities = digits(strings.Fields(value))
	case key == "priority disabled list":
	case key == "trust mode":
		q := r.qosFor(r.block)
		q.Trust, q.TrustSeen = trustWord(value), strings.TrimSpace(line[strings.Index(line, ":")+1:])
	case len(fields) == 1 && portName(fields[0]) != "" && r.out == nil:
		r.block = fields[0] // Onyx 'show qos': the name alone, then its lines
	default:
		return false
	}
	return true
}

// switchPFC is the record of the whole switch.
func (r *reader) switchPFC() *PFC {
	for i := range r.sw.PFC {
		if r.sw.PFC[i].Port == "" && r.sw.PFC[i].Note == "" {
			return &r.sw.PFC[i]
		}
	}
	r.sw.PFC = append(r.sw.PFC, PFC{})
	return &r.sw.PFC[len(r.sw.PFC)-1]
}

func (r *reader) qosFor(ports string) *QoS { return r.qosNamed(ports, "") }

// qosNamed is the record of a port, or of a map that has a name.
func (r *reader) qosNamed(ports, name string) *QoS {
	for i := range r.sw.QoS {
		if r.sw.QoS[i].Ports == ports && r.sw.QoS[i].Name == name {
			return &r.sw.QoS[i]
		}
	}
	if len(r.sw.QoS) >= maxPorts {
		return &QoS{}
	}
	r.sw.QoS = append(r.sw.QoS, QoS{Ports: ports, Name: name})
	return &r.sw.QoS[len(r.sw.QoS)-1]
}

// counter is the record of a port, or of one priority of it.
func (r *reader) counter(port string, priority *int) *Counter {
	key := port
	if priority != nil {
		key += " " + strconv.Itoa(*priority)
	}
	i, ok := r.counters[key]
	if !ok {
		i = len(r.sw.Counters)
		r.sw.Counters = append(r.sw.Counters, Counter{Port: port, Priority: priority})
		r.counters[key] = i
	}
	return &r.sw.Counters[i]
}

func (q *QoS) mapDSCP(dscp, prio int) {
	if q.DSCP == nil {
		q.DSCP = map[int]int{}
	}
	q.DSCP[dscp] = prio
}

func trustWord(s string) string {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "dscp", "l3":
		return "dscp"
	case "cos", "pcp", "l2":
		return "pcp"
	case "both", "pcp,dscp", "dscp,pcp":
		return "both"
	case "untrusted", "port", "none":
		return "none"
	}
	return ""
}

// digits reads lists of priorities: "3", "34", "3,4".
func digits(words []string) []int {
	out := []int{}
	for _, w := range words {
		for _, c := range w {
			if c >= '0' && c <= '7' {
				out = append(out, int(c-'0'))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// priorities reads a list of priorities that has to be one: "3,4", "3 4".
func priorities(s string) ([]int, bool) {
	out := []int{}
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		n := class(w)
		if n == nil {
			return nil, false
		}
		out = append(out, *n)
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

func gbps(s string) *float64 {
	m := speedWord().FindStringSubmatch(s)
	if m == nil {
		return nil
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return nil
	}
	if m[2] == "M" {
		n /= 1000
	}
	return &n
}

// number reads a counter: "12,345" too.
func number(s string) *uint64 {
	n, err := strconv.ParseUint(strings.ReplaceAll(s, ",", ""), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

func ptr[T any](v T) *T { return &v }

// lazy compiles expr when it is first used: most runs need none of a
// package's expressions, and all of them together cost more than a plan.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
