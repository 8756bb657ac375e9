package qosconf

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Switch is what the pasted outputs of one switch say. Unknown is nil or "".
type Switch struct {
	OS      string  // "eos" (Arista and its kin), "onyx"; "" not told
	Ports   []Port  // from the tables of interfaces, in their order
	PFC     []PFC   // per port or, with Port "", for the whole switch
	QoS     []QoS   // trust, maps and queues, per port or range
	Pools   []Pool  // Onyx buffer pools
	Unread  []Line  // lines within a known table that could not be read
	Lines   int     // lines that were understood
	GlobalP *bool   // PFC for the whole switch, where it says so
	MTU     []MTU   // from configuration
	Storms  *string // PFC watchdog action, where a timeout arms it
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
	Trust     string      `json:"trust"`     // "dscp", "pcp", "both", "none"; "" not said
	TrustSeen string      `json:"trust_raw"` // as printed: "L3"
	DSCP      map[int]int `json:"dscp_to_priority"`
	ECN       []ECN       `json:"ecn"`
	Strict    []int       `json:"strict_traffic_classes"`
}

// ECN is the marking of one traffic class, in kB of queue.
type ECN struct {
	TC    int `json:"traffic_class"`
	MinKB int `json:"min_kb"`
	MaxKB int `json:"max_kb"`
}

// Pool is a buffer pool of Onyx.
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
	maxInput  = 4 << 20
	maxUnread = 50
	maxPorts  = 4096 // more than the largest chassis has; what comes after is not kept
)

// reader holds what a line means depending on those before it.
type reader struct {
	sw    Switch
	table func(fields []string, line string) bool // rows of the table we are in
	block string                                  // ports of the configuration block we are in
	queue *int                                    // traffic class of the block we are in
	prof  map[string]*QoS                         // EOS: qos profile NAME
	inPr  string
	n     int
}

// ReadSwitch reads what an Arista-like or Onyx switch prints: any of
// 'show priority-flow-control', 'show interfaces status', 'show qos
// interfaces', 'show qos maps', 'show dcb priority-flow-control',
// 'show interfaces ethernet status', 'show qos', and running configurations,
// one after the other in one text, with prompts, paging and CR LF as pasted.
func ReadSwitch(text string) Switch {
	if len(text) > maxInput {
		text = text[:maxInput]
	}
	r := &reader{prof: map[string]*QoS{}}
	for raw := range strings.SplitSeq(text, "\n") {
		if r.n++; len(r.sw.Ports)+len(r.sw.PFC) > 2*maxPorts {
			break
		}
		line := clean(raw)
		if strings.TrimSpace(line) == "" {
			continue
		}
		r.line(line)
	}
	// What a profile says counts where it was applied.
	r.sw.PFC = slices.DeleteFunc(r.sw.PFC, func(p PFC) bool { return strings.HasPrefix(p.Note, "qos profile ") })
	return r.sw
}

var (
	ansi   = lazy("\x1b\\[[0-9;?]*[A-Za-z]")
	paging = lazy(`(?i)-{1,3}\s*more\s*-{1,3}|\blines \d+-\d+(/\d+)?( \(END\))?`)
	prompt = lazy(`^[A-Za-z0-9_.:-]+(\s*\[[^\]]*\])?\s*(\([^)]*\))?\s*[#>]\s*(.*)$`)
)

// clean takes away what a terminal adds to the switch's own text.
func clean(s string) string {
	s = ansi().ReplaceAllString(s, "")
	s = paging().ReplaceAllString(s, "")
	// A pager wipes its own line: backspaces over blanks, or a bare CR.
	if i := strings.LastIndexByte(strings.TrimRight(s, "\r"), '\r'); i >= 0 {
		s = s[i+1:]
	}
	s = strings.Map(func(r rune) rune {
		if r == '\b' || r == '\r' || r == '\x00' {
			return -1
		}
		return r
	}, s)
	return strings.TrimRight(s, " \t")
}

var (
	portWord   = lazy(`^(?i:ethernet|eth|et|port-channel|po|mpo|lag|management|ma|mgmt|vxlan|vx|loopback|lo|vlan|un)[0-9]+(/[0-9]+){0,4}$`)
	fabricPort = lazy(`^(?i:ethernet|eth|et)([0-9]+(/[0-9]+){0,4})$`)
	onyxSpeed  = lazy(`(?i)\b([0-9]+(?:\.[0-9]+)?)\s*G(?:bps|b/s|bit/s)?\b`)
	speedWord  = lazy(`^(?:a-)?([0-9]+(?:\.[0-9]+)?)([GM])(?:b(?:ps|/s)|-[0-9])?$`)
)

// ShortPort is one name for a port however it was spelt: "Et1/1", "Eth1/1" and
// "Ethernet1/1" are all "1/1"; others keep their name.
func ShortPort(name string) string {
	if m := fabricPort().FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

func (r *reader) line(line string) {
	if m := prompt().FindStringSubmatch(line); m != nil && !strings.HasPrefix(line, "#") {
		// The command after a prompt: a new output begins; a configuration command is read as one.
		r.table, r.block, r.queue, r.inPr = nil, "", nil, ""
		if b := promptPorts().FindStringSubmatch(m[2]); b != nil {
			r.block = b[1]
		}
		if m[3] == "" || keyword(m[3], "show") {
			r.block = ""
			return
		}
		r.config(strings.Fields(m[3]))
		return
	}
	if line == "!" { // EOS ends a block so; an indented one is only a rest between lines
		r.block, r.inPr, r.queue = "", "", nil
		return
	}
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return
	}
	if r.header(fields, line) || r.global(fields, line) {
		r.sw.Lines++
		return
	}
	if r.table != nil && r.table(fields, line) {
		r.sw.Lines++
		return
	}
	if r.config(fields) {
		r.sw.Lines++
		return
	}
	if r.table != nil && portWord().MatchString(fields[0]) && len(r.sw.Unread) < maxUnread {
		r.sw.Unread = append(r.sw.Unread, Line{r.n, strings.TrimSpace(line)})
	}
}

var promptPorts = lazy(`(?i)config[- ](?:if|interface)[- ](?:ethernet|eth|et)\s*([0-9/,-]+)\)`)

func has(line string, words ...string) bool {
	line = strings.ToLower(line)
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
}

// header recognises the head of a table by its column names, so that an output
// is read whether or not the command was pasted with it.
func (r *reader) header(fields []string, line string) bool {
	first := strings.ToLower(fields[0])
	switch {
	case first == "port" && has(line, "status", "vlan", "duplex", "speed"):
		r.sw.OS, r.table = "eos", r.eosInterface
	case first == "port" && has(line, "status", "priorities"):
		r.sw.OS, r.table = "eos", r.eosPFC
	case first == "port" && has(line, "enabled", "priorities"):
		r.sw.OS, r.table = "eos", r.eosPFC
	case first == "port" && has(line, "trust", "mode"):
		r.sw.OS, r.table = "eos", r.eosTrust
	case first == "interface" && has(line, "pfc admin", "pfc oper"):
		r.sw.OS, r.table = "onyx", r.onyxPFC
	case first == "port" && has(line, "operational state", "speed"), first == "interface" && has(line, "operational state", "speed"):
		r.sw.OS, r.table = "onyx", r.onyxInterface
	case has(line, "dscp-tc map"):
		r.sw.OS, r.table = "eos", r.eosMap
	case first == "e:" && has(line, "pfc enabled"), first == "interval/mode", first == "interval/":
	case first == "d1" && has(line, "d2"):
	case strings.Trim(line, "-=+| \t") == "":
	default:
		return false
	}
	return true
}

// global reads lines that stand alone.
func (r *reader) global(fields []string, line string) bool {
	low := strings.ToLower(line)
	key, value, _ := strings.Cut(low, ":")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	switch {
	case key == "global pfc":
		r.sw.OS = "eos"
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
		r.sw.OS = "eos"
	case key == "pfc" && value != "":
		r.sw.OS = "onyx"
		on := strings.HasPrefix(value, "enabled")
		r.sw.GlobalP = &on
		r.switchPFC().Enabled = &on
	case key == "priority enabled list":
		r.sw.OS = "onyx"
		r.switchPFC().Priorities = digits(strings.Fields(value))
	case key == "priority disabled list":
	case key == "trust mode":
		q := r.qosFor(r.block)
		q.Trust, q.TrustSeen = trustWord(value), strings.TrimSpace(line[strings.Index(line, ":")+1:])
	case len(fields) == 1 && strings.HasSuffix(fields[0], ":") && portWord().MatchString(strings.TrimSuffix(fields[0], ":")):
		// "Ethernet1/1:" opens a block of 'show qos interfaces'.
		r.block, r.table = strings.TrimSuffix(fields[0], ":"), r.eosQueue
	case len(fields) == 1 && portWord().MatchString(fields[0]) && r.table == nil:
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

func (r *reader) qosFor(ports string) *QoS {
	for i := range r.sw.QoS {
		if r.sw.QoS[i].Ports == ports {
			return &r.sw.QoS[i]
		}
	}
	if len(r.sw.QoS) >= maxPorts {
		return &QoS{}
	}
	r.sw.QoS = append(r.sw.QoS, QoS{Ports: ports})
	return &r.sw.QoS[len(r.sw.QoS)-1]
}

func trustWord(s string) string {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "dscp", "l3":
		return "dscp"
	case "cos", "pcp", "l2":
		return "pcp"
	case "both":
		return "both"
	case "untrusted", "port", "none":
		return "none"
	}
	return ""
}

// eosStatus are the words of the Status column of 'show interfaces status'.
var eosStatus = []string{"connected", "notconnect", "disabled", "errdisabled", "inactive", "monitoring", "sfp-absent", "adminDown"}

// eosInterface is a row of 'show interfaces status'. The description is free
// text, so the status is the last word of that kind with a duplex two behind it.
func (r *reader) eosInterface(fields []string, _ string) bool {
	if !portWord().MatchString(fields[0]) {
		return false
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
				Port: fields[0], Name: strings.Join(fields[1:i], " "), Status: fields[i],
				VLAN: strings.Join(fields[i+1:at], " "), Duplex: strings.TrimPrefix(fields[at], "a-"),
				SpeedGbps: gbps(fields[at+1]), Type: strings.Join(fields[at+2:], " "),
				Up: ptr(strings.EqualFold(fields[i], "connected")),
			}
			r.sw.Ports = append(r.sw.Ports, p)
			return true
		}
	}
	return false
}

func isDuplex(s string) bool {
	return slices.Contains([]string{"full", "half", "auto", "a-full", "a-half", "unconf", "unknown"}, strings.ToLower(s))
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

// eosPFC is a row of 'show priority-flow-control': letters (E or D, A, W) or,
// on older releases, Yes and No; then the priorities, in one word, with commas
// or apart.
func (r *reader) eosPFC(fields []string, _ string) bool {
	if !portWord().MatchString(fields[0]) {
		return false
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
		return false
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
	return true
}

func isPriorities(s string) bool {
	return s != "" && strings.Trim(s, "01234567,") == "" && strings.Trim(s, ",") != "" && len(s) <= 15
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

// eosTrust is a row of 'show qos interfaces trust'.
func (r *reader) eosTrust(fields []string, _ string) bool {
	if !portWord().MatchString(fields[0]) || len(fields) < 2 {
		return false
	}
	t := trustWord(fields[1])
	if t == "" {
		return false
	}
	q := r.qosFor(fields[0])
	q.Trust, q.TrustSeen = t, fields[1]
	return true
}

// eosQueue is a line of one port's block of 'show qos interfaces'.
func (r *reader) eosQueue(fields []string, line string) bool {
	switch {
	case has(line, "queue", "percent"), has(line, "bandwidth"), has(line, "default cos"), has(line, "default dscp"), has(line, "shaping"):
		return true
	}
	tc, err := strconv.Atoi(fields[0])
	if err != nil || tc < 0 || tc > 7 || len(fields) < 4 {
		return false
	}
	if slices.ContainsFunc(fields, func(f string) bool { return f == "SP" || strings.HasPrefix(f, "SP/") || f == "strict" }) {
		q := r.qosFor(r.block)
		q.Strict = append(q.Strict, tc)
	}
	return true
}

// eosMap is a row of 'show qos maps': tens digit, then ten traffic classes.
func (r *reader) eosMap(fields []string, line string) bool {
	tens, rest, ok := strings.Cut(line, ":")
	d1, err := strconv.Atoi(strings.TrimSpace(tens))
	if !ok || err != nil || d1 < 0 || d1 > 6 {
		r.table = nil
		return false
	}
	q := r.qosFor("")
	if q.DSCP == nil {
		q.DSCP = map[int]int{}
	}
	for d2, w := range strings.Fields(rest) {
		tc, err := strconv.Atoi(w)
		if dscp := d1*10 + d2; err == nil && dscp < 64 && tc >= 0 && tc <= 7 {
			q.DSCP[dscp] = tc
		}
	}
	return true
}

// onyxPFC is a row of 'show dcb priority-flow-control'.
func (r *reader) onyxPFC(fields []string, _ string) bool {
	if !portWord().MatchString(fields[0]) || len(fields) < 3 {
		return false
	}
	admin, oper := strings.ToLower(fields[1]), strings.ToLower(fields[len(fields)-1])
	p := PFC{Port: fields[0], Note: "admin " + fields[1]}
	switch {
	case strings.HasPrefix(oper, "enabled") || oper == "on":
		p.Active = ptr(true)
	case strings.HasPrefix(oper, "disabled") || oper == "off":
		p.Active = ptr(false)
	default:
		return false
	}
	p.Enabled = ptr(admin != "off" && admin != "disabled")
	if all := r.switchPFC(); all.Priorities != nil {
		p.Priorities = slices.Clone(all.Priorities)
	}
	r.sw.PFC = append(r.sw.PFC, p)
	return true
}

// onyxInterface is a row of 'show interfaces ethernet status'.
func (r *reader) onyxInterface(fields []string, line string) bool {
	if !portWord().MatchString(fields[0]) || len(fields) < 2 {
		return false
	}
	state := fields[1]
	if !strings.EqualFold(state, "up") && !strings.EqualFold(state, "down") {
		return false
	}
	p := Port{Port: fields[0], Status: state, Up: ptr(strings.EqualFold(state, "up"))}
	if m := onyxSpeed().FindStringSubmatch(line); m != nil {
		if n, err := strconv.ParseFloat(m[1], 64); err == nil {
			p.SpeedGbps = &n
		}
	}
	r.sw.Ports = append(r.sw.Ports, p)
	return true
}

func ptr[T any](v T) *T { return &v }

// lazy compiles expr when it is first used: most runs need none of a
// package's expressions, and all of them together cost more than a plan.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
