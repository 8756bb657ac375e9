package pasted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// QoS is what a pasted QoS configuration says: one entry a netdev.
type QoS struct {
	Host     string
	Devices  []QoSDevice
	Findings []finding.Finding
}

// QoSDevice is the configuration of one netdev.
type QoSDevice struct {
	Netdev       string       // "" not said
	DCB          topology.DCB // what was not said is nil
	CableLength  *int         // metres
	GlobalTClass *int         // "Global tclass=N" of the HCA
	RoCETOS      *int         // cma_roce_tos
	CNPDSCP      *int

	first int // line it begins at
}

var (
	qosBanner  = lazy(`(?i)configuration for (?:device|interface)\s+([\w.@-]+)`)
	qosCommand = lazy(`\bmlnx_qos\b.*?(?:-i|--interface)[ =]*([\w.@-]+)|\bdcb\b.*?\bdev\s+([\w.@-]+)`)
	trustLine  = lazy(`(?i)^(?:Priority )?trust (?:state|mode)\s*:\s*(\w+)`)
	dcbxLine   = lazy(`(?i)^DCBX mode\s*:\s*(.+)$`)
	dscpLine   = lazy(`(?i)^prio:?\s*(\d+)\s+dscp:\s*([\d,\s]*)$`)
	bufferLine = lazy(`(?i)^Receive buffer size \(bytes\):\s*([\d,\s]+)`)
	cableLine  = lazy(`(?i)^Cable len(?:gth)?:\s*(\d+)`)
	tcLine     = lazy(`(?i)^tc:\s*(\d+)\s+(?:.*?\btsa:\s*(\w+))?(?:.*?\bbw:\s*(\d+)\s*%)?`)
	tcPriority = lazy(`(?i)^priority:\s*(\d+)$`)
	tclassText = lazy(`Global tclass\s*=\s*(\d+)`)
	cnpText    = lazy(`cnp_dscp\s*[=:]\s*(\d+)`)
	tosText    = lazy(`cma_roce_tos[^0-9]*(\d+)\s*$|^\s*default_roce_tos[^0-9]*(\d+)\s*$`)
)

// ReadQoS reads mlnx_qos (any version) and dcb, plain or JSON, of one netdev
// or several.
func ReadQoS(text string) QoS {
	lines, host := split(text)
	q := QoS{Host: host}
	un := &unread{host: host}
	r := &qosReader{q: &q}
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		t := strings.TrimSpace(l.text)
		if len(t) > 0 && (t[0] == '{' || t[0] == '[' && !strings.Contains(t, "@")) {
			if used, ok := r.json(lines[i:]); ok {
				i += used - 1
				continue
			}
		}
		switch why := r.line(l, t); {
		case why == "":
		case why == notQoS && isNoise(l.text):
		default:
			un.add(l, "%s", why)
		}
	}
	for i := range q.Devices {
		q.Devices[i].finish()
	}
	q.prune()
	q.Findings = append(q.Findings, un.findings("mlnx_qos or dcb")...)
	return q
}

const notQoS = "not a line of a QoS configuration"

type qosReader struct {
	q      *QoS
	tc     int  // of the tc: block, -1 none
	inTC   bool // after a tc: line
	seen   map[string]bool
	pfcRow []int
}

// device is the entry that lines go to.
func (r *qosReader) device() *QoSDevice {
	if len(r.q.Devices) == 0 {
		r.start("", 0)
	}
	return &r.q.Devices[len(r.q.Devices)-1]
}

// start begins another netdev's entry, unless the one there is still empty.
func (r *qosReader) start(netdev string, n int) {
	r.inTC, r.pfcRow = false, nil
	if k := len(r.q.Devices); k > 0 && len(r.seen) == 0 {
		if netdev != "" {
			r.q.Devices[k-1].Netdev = netdev
		}
		return
	}
	r.seen = map[string]bool{}
	r.q.Devices = append(r.q.Devices, QoSDevice{Netdev: netdev, first: n})
}

// named begins the entry of a netdev, or goes back to it: dcb is asked about
// one netdev in several commands.
func (r *qosReader) name(netdev string, n int) {
	for i := range r.q.Devices {
		if r.q.Devices[i].Netdev == netdev && i == len(r.q.Devices)-1 {
			r.seen = map[string]bool{"again": true}
			return
		}
	}
	r.start(netdev, n)
}

// once notes a heading; the second of a kind begins another netdev.
func (r *qosReader) once(kind string, n int) *QoSDevice {
	r.device()
	if r.seen[kind] {
		r.start("", n)
	}
	r.seen[kind] = true
	return r.device()
}

// fresh is the entry for a key of dcb: another netdev's when the key was there
// already, since dcb names none in its answers.
func (r *qosReader) fresh(key string) *QoSDevice {
	if slices.Contains([]string{"prio-pfc", "dscp-prio", "prio-tc"}, key) {
		return r.once(key, 0)
	}
	return r.device()
}

func (r *qosReader) line(l line, t string) string {
	if t == "" {
		return ""
	}
	if m := qosBanner().FindStringSubmatch(t); m != nil {
		r.name(m[1], l.n)
		return ""
	}
	if strings.HasPrefix(t, "mlnx_qos ") || strings.HasPrefix(t, "dcb ") || isNoise(l.text) {
		if m := qosCommand().FindStringSubmatch(t); m != nil {
			r.name(m[1]+m[2], l.n)
			return ""
		}
		if isNoise(l.text) {
			return ""
		}
	}
	switch m := dcbxLine().FindStringSubmatch(t); {
	case m != nil:
		r.once("dcbx", l.n).DCB.DCBX = strings.TrimSpace(m[1])
		return ""
	}
	if m := trustLine().FindStringSubmatch(t); m != nil {
		d := r.once("trust", l.n)
		switch v := strings.ToLower(m[1]); v {
		case "dscp", "pcp":
			d.DCB.Trust = v
		case "both":
			d.DCB.Trust = "dscp" // DSCP where there is an IP header, which RoCE v2 always has
		default:
			return fmt.Sprintf("trust state %s is neither dscp nor pcp", quote(m[1]))
		}
		return ""
	}
	if m := dscpLine().FindStringSubmatch(t); m != nil {
		return r.dscpRow(m[1], m[2])
	}
	if m := bufferLine().FindStringSubmatch(t); m != nil {
		return fillInts(&r.device().DCB.BufferBytes, m[1])
	}
	if m := cableLine().FindStringSubmatch(t); m != nil {
		if v, err := strconv.Atoi(m[1]); err == nil {
			r.device().CableLength = &v
		}
		return ""
	}
	if m := tcLine().FindStringSubmatch(t); m != nil {
		return r.tcRow(m[1], m[2], m[3])
	}
	if m := tcPriority().FindStringSubmatch(t); m != nil && r.inTC {
		p, err := strconv.Atoi(m[1])
		if err != nil || p > 7 {
			return "no such priority"
		}
		r.prioTC(p, r.tc)
		return ""
	}
	if why, ok := r.dcbLine(l, t); ok {
		return why
	}
	if why, ok := r.pfcTable(t); ok {
		return why
	}
	return r.extra(t)
}

// extra reads what scripts print beside mlnx_qos, and knows the headings that
// carry nothing.
func (r *qosReader) extra(t string) string {
	found := false
	for _, x := range []struct {
		re  func() []string
		out **int
	}{
		{func() []string { return tclassText().FindStringSubmatch(t) }, &r.device().GlobalTClass},
		{func() []string { return cnpText().FindStringSubmatch(t) }, &r.device().CNPDSCP},
		{func() []string { return tosText().FindStringSubmatch(t) }, &r.device().RoCETOS},
	} {
		if m := x.re(); m != nil {
			if v, err := strconv.Atoi(strings.Join(m[1:], "")); err == nil && v < 256 {
				*x.out, found = &v, true
			}
		}
	}
	lower := strings.ToLower(t)
	for _, h := range []string{"dscp2prio mapping", "default priority", "pfc configuration", "ratelimit", "buffers configuration", "receive buffer", "prio2buffer"} {
		found = found || strings.HasPrefix(lower, h)
	}
	if found {
		return ""
	}
	return notQoS
}

func (r *qosReader) dscpRow(prio, list string) string {
	p, err := strconv.Atoi(prio)
	if err != nil || p > 7 {
		return "no such priority"
	}
	d := r.device()
	r.seen["dscp"] = true
	for s := range strings.FieldsFuncSeq(list, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		v, err := strconv.Atoi(s)
		if err != nil || v > 63 {
			return fmt.Sprintf("%s is no DSCP", quote(s))
		}
		d.mapDSCP(v, p)
	}
	d.DCB.DSCPToPriority = orNew(d.DCB.DSCPToPriority)
	return ""
}

// orNew is m, or a map that is empty and known to be.
func orNew(m map[int]int) map[int]int {
	if m == nil {
		return map[int]int{}
	}
	return m
}

func (d *QoSDevice) mapDSCP(dscp, prio int) {
	d.DCB.DSCPToPriority = orNew(d.DCB.DSCPToPriority)
	d.DCB.DSCPToPriority[dscp] = prio
}

func (r *qosReader) tcRow(tc, tsa, bw string) string {
	n, err := strconv.Atoi(tc)
	if err != nil || n > 7 {
		return "no such traffic class"
	}
	d := r.device()
	r.inTC, r.tc = true, n
	r.seen["tc"] = true
	if tsa != "" {
		if d.DCB.TCAlgorithm == nil {
			d.DCB.TCAlgorithm = make([]string, 8)
		}
		d.DCB.TCAlgorithm[n] = tsa
	}
	if v, err := strconv.Atoi(bw); err == nil {
		if d.DCB.TCBandwidth == nil {
			d.DCB.TCBandwidth = make([]int, 8)
		}
		d.DCB.TCBandwidth[n] = v
	}
	return ""
}

func (r *qosReader) prioTC(prio, tc int) {
	d := r.device()
	if d.DCB.PrioToTC == nil {
		d.DCB.PrioToTC = slices.Repeat([]int{-1}, 8)
	}
	d.DCB.PrioToTC[prio] = tc
}

// fillInts reads eight numbers separated by commas or spaces; what follows
// ("max_buffer_size=…") is not part of them.
func fillInts(out *[]int, s string) string {
	var v []int
	for w := range strings.FieldsFuncSeq(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		n, err := strconv.Atoi(w)
		if err != nil {
			break
		}
		v = append(v, n)
	}
	if len(v) != 8 {
		return fmt.Sprintf("want 8 numbers, got %d", len(v))
	}
	*out = v
	return ""
}

// pfcTable reads the three rows "priority", "enabled", "buffer".
func (r *qosReader) pfcTable(t string) (string, bool) {
	head, rest, _ := strings.Cut(t, " ")
	if i := strings.IndexByte(head, '\t'); i >= 0 {
		head, rest = t[:i], t[i:]
	}
	head = strings.TrimSuffix(strings.ToLower(head), ":")
	if head != "priority" && head != "enabled" && head != "buffer" {
		return "", false
	}
	words := strings.Fields(rest)
	v := make([]int, 0, 8)
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 || n > 7 {
			return fmt.Sprintf("%s is not a number from 0 to 7", quote(w)), true
		}
		v = append(v, n)
	}
	if head == "priority" {
		r.once("pfc", 0)
		r.pfcRow = v
		return "", true
	}
	want := r.pfcRow
	if want == nil {
		want = []int{0, 1, 2, 3, 4, 5, 6, 7}
	}
	if len(v) != len(want) {
		return fmt.Sprintf("%d values for %d priorities", len(v), len(want)), true
	}
	d := r.device()
	switch head {
	case "enabled":
		d.DCB.PFC = []int{}
		for i, on := range v {
			if on > 1 {
				return "enabled is neither 0 nor 1", true
			}
			if on == 1 {
				d.DCB.PFC = append(d.DCB.PFC, want[i])
			}
		}
	case "buffer":
		if len(v) == 8 {
			d.DCB.PrioToBuffer = v
		}
	}
	return "", true
}

// dcbKeys are the words that begin a value in iproute2's dcb, and what must
// follow: pairs "n:value", or words.
var dcbKeys = []string{
	"dscp-prio", "ethtype-prio", "port-prio", "stream-port-prio", "dgram-port-prio", "pcp-prio", "default-prio", "prio-pfc", "pfc-cap", "macsec-bypass", "delay",
	"requests", "indications", "willing", "ets-cap", "cbs", "tc-bw", "pg-bw", "tc-tsa", "prio-tc", "reco-tc-bw", "reco-tc-tsa", "reco-prio-tc", "prio-buffer",
	"buffer-size", "total-size", "order", "tc-maxrate", "prio-dscp",
}

// dcbLine reads a line of plain dcb: keys, each with its values.
func (r *qosReader) dcbLine(l line, t string) (string, bool) {
	w := strings.Fields(t)
	if len(w) > 0 && slices.Contains([]string{"host", "lld-managed", "cee", "ieee", "static"}, w[0]) {
		for _, x := range w {
			if !slices.Contains([]string{"host", "lld-managed", "cee", "ieee", "static"}, x) {
				return "", false
			}
		}
		r.device().DCB.DCBX = strings.Join(w, " ")
		return "", true
	}
	if len(w) < 2 || !slices.Contains(dcbKeys, w[0]) {
		return "", false
	}
	why := ""
	for i := 0; i < len(w); {
		j := i + 1
		for j < len(w) && !slices.Contains(dcbKeys, w[j]) {
			j++
		}
		if bad := r.dcbValue(w[i], w[i+1:j]); bad != "" {
			why = bad
		}
		i = j
	}
	return why, true
}

func (r *qosReader) dcbValue(key string, vals []string) string {
	d := r.fresh(key)
	r.seen[key] = true
	pair := func(s string) (int, string, bool) {
		a, b, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(a)
		return n, b, ok && err == nil && n >= 0 && n < 8
	}
	eight := func(out *[]int) string {
		v := make([]int, 8)
		for _, s := range vals {
			i, b, ok := pair(s)
			n, err := parseSizeWord(b)
			if !ok || err != nil {
				return fmt.Sprintf("%s: cannot read %s", key, quote(s))
			}
			v[i] = n
		}
		*out = v
		return ""
	}
	switch key {
	case "dscp-prio":
		d.DCB.DSCPToPriority = orNew(d.DCB.DSCPToPriority)
		for _, s := range vals {
			name, prio, ok := strings.Cut(s, ":")
			dscp, known := DSCP(name)
			p, err := strconv.Atoi(prio)
			if !ok || !known || err != nil || p < 0 || p > 7 {
				return fmt.Sprintf("dscp-prio: cannot read %s", quote(s))
			}
			d.mapDSCP(dscp, p)
		}
	case "prio-pfc":
		d.DCB.PFC = []int{}
		for _, s := range vals {
			i, b, ok := pair(s)
			if !ok || b != "on" && b != "off" {
				return fmt.Sprintf("prio-pfc: cannot read %s", quote(s))
			}
			if b == "on" {
				d.DCB.PFC = append(d.DCB.PFC, i)
			}
		}
	case "prio-tc":
		return eight(&d.DCB.PrioToTC)
	case "tc-bw":
		return eight(&d.DCB.TCBandwidth)
	case "prio-buffer":
		return eight(&d.DCB.PrioToBuffer)
	case "buffer-size":
		return eight(&d.DCB.BufferBytes)
	case "tc-tsa":
		v := make([]string, 8)
		for _, s := range vals {
			i, b, ok := pair(s)
			if !ok {
				return fmt.Sprintf("tc-tsa: cannot read %s", quote(s))
			}
			v[i] = b
		}
		d.DCB.TCAlgorithm = v
	case "willing":
		if len(vals) == 1 && (vals[0] == "on" || vals[0] == "off") {
			d.DCB.Willing = new(vals[0] == "on")
		}
	case "order":
		if len(vals) > 0 && (vals[0] == "dscp" || vals[0] == "pcp") {
			d.DCB.Trust = vals[0]
		}
	}
	return ""
}

// parseSizeWord reads a number of dcb, which may carry a unit of bytes.
func parseSizeWord(s string) (int, error) {
	unit := 1
	for _, u := range []struct {
		suffix string
		n      int
	}{{"Kb", 1024}, {"Mb", 1 << 20}, {"K", 1024}, {"M", 1 << 20}, {"b", 1}, {"%", 1}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = rest, u.n
			break
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1<<40 {
		return 0, fmt.Errorf("no number: %q", s)
	}
	return int(f * float64(unit)), nil
}

// dscpNames are the names that dcb and switches print (RFC 2474, 2597, 3246, 5865, 8622).
var dscpNames = map[string]int{
	"CS0": 0, "BE": 0, "default": 0, "LE": 1, "CS1": 8, "AF11": 10, "AF12": 12, "AF13": 14, "CS2": 16, "AF21": 18, "AF22": 20, "AF23": 22, "CS3": 24, "AF31": 26,
	"AF32": 28, "AF33": 30, "CS4": 32, "AF41": 34, "AF42": 36, "AF43": 38, "CS5": 40, "VA": 44, "EF": 46, "CS6": 48, "CS7": 56,
}

// DSCP reads a DSCP as a number or a name: "26", "0x1a", "AF31".
func DSCP(s string) (int, bool) {
	if v, ok := dscpNames[s]; ok {
		return v, true
	}
	if v, ok := dscpNames[strings.ToUpper(s)]; ok {
		return v, true
	}
	v, err := strconv.ParseInt(s, 0, 16)
	if err != nil { // "08" is no octal number here
		v, err = strconv.ParseInt(s, 10, 16)
	}
	return int(v), err == nil && v >= 0 && v < 64
}

// json reads the JSON that begins at the first of lines, and says how many
// lines it took.
func (r *qosReader) json(lines []line) (int, bool) {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	dec := json.NewDecoder(&b)
	var v any
	all := bytes.Clone(b.Bytes())
	if err := dec.Decode(&v); err != nil {
		return 0, false
	}
	used := bytes.Count(all[:dec.InputOffset()], []byte("\n")) + 1
	r.device()
	return used, r.jsonValue(v, 0)
}

func (r *qosReader) jsonValue(v any, depth int) bool {
	if depth > 8 {
		return false
	}
	found := false
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			found = r.jsonValue(e, depth+1) || found
		}
	case map[string]any:
		if name, ok := x["ifname"].(string); ok {
			r.name(name, 0)
		}
		for _, key := range sortedNames(x) {
			found = r.jsonKey(key, x[key], depth) || found
		}
	}
	return found
}

func sortedNames(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func jsonInt(v any) (int, bool) {
	switch x := v.(type) {
	case float64:
		return int(x), x >= 0 && x < 1<<31 && x == float64(int(x))
	case string:
		return DSCP(x)
	}
	return 0, false
}

func jsonInts(v any) []int {
	list, ok := v.([]any)
	if !ok || len(list) != 8 {
		return nil
	}
	out := make([]int, 8)
	for i, e := range list {
		n, ok := jsonInt(e)
		if !ok {
			return nil
		}
		out[i] = n
	}
	return out
}

// jsonKey reads one key of dcb -j (iproute2 dcb/*.c).
func (r *qosReader) jsonKey(key string, v any, depth int) bool {
	key = strings.ReplaceAll(key, "_", "-")
	d := r.fresh(key)
	list, isList := v.([]any)
	switch strings.ReplaceAll(key, "-", "_") {
	case "prio_pfc":
		if !isList {
			return false
		}
		d.DCB.PFC = []int{}
		for i, e := range list {
			on, isBool := e.(bool)
			if n, ok := e.(float64); ok && !isBool {
				on = n != 0
			}
			if s, ok := e.(string); ok {
				on = s == "on"
			}
			if on && i < 8 {
				d.DCB.PFC = append(d.DCB.PFC, i)
			}
		}
	case "dscp_prio":
		if !isList {
			return false
		}
		d.DCB.DSCPToPriority = orNew(d.DCB.DSCPToPriority)
		for _, e := range list {
			p, ok := e.([]any)
			if !ok || len(p) != 2 {
				continue
			}
			dscp, ok1 := jsonInt(p[0])
			prio, ok2 := jsonInt(p[1])
			if ok1 && ok2 && dscp < 64 && prio < 8 {
				d.mapDSCP(dscp, prio)
			}
		}
	case "order":
		for _, e := range list {
			if s, ok := e.(string); ok && (s == "dscp" || s == "pcp") {
				d.DCB.Trust = s
				break
			}
		}
	case "willing":
		if b, ok := v.(bool); ok {
			d.DCB.Willing = &b
		}
	case "tc_tsa":
		if len(list) == 8 {
			d.DCB.TCAlgorithm = make([]string, 8)
			for i, e := range list {
				d.DCB.TCAlgorithm[i] = fmt.Sprint(e)
			}
		}
	case "prio_tc":
		d.DCB.PrioToTC = jsonInts(v)
	case "tc_bw":
		d.DCB.TCBandwidth = jsonInts(v)
	case "prio_buffer":
		d.DCB.PrioToBuffer = jsonInts(v)
	case "buffer_size":
		d.DCB.BufferBytes = jsonInts(v)
	case "pfc_cap", "macsec_bypass", "delay", "requests", "indications", "ets_cap", "cbs", "pg_bw", "reco_tc_bw", "reco_tc_tsa", "reco_prio_tc", "total_size",
		"ethtype_prio", "dgram_port_prio", "stream_port_prio", "port_prio", "pcp_prio", "default_prio", "ifname", "tc_maxrate":
	case "host", "lld_managed", "cee", "ieee", "static":
		if on, ok := v.(bool); ok && on {
			d.DCB.DCBX = strings.TrimSpace(d.DCB.DCBX + " " + key)
		}
	default:
		return r.jsonValue(v, depth+1)
	}
	r.seen[key] = true
	return true
}

// finish draws what follows from the whole: entries of the DSCP map in the
// kernel's table mean DSCP trust (mlx5 en_dcbnl.c).
func (d *QoSDevice) finish() {
	if d.DCB.Trust == "" && len(d.DCB.DSCPToPriority) > 0 {
		d.DCB.Trust = "dscp"
	}
	slices.Sort(d.DCB.PFC)
	if slices.Contains(d.DCB.PrioToTC, -1) {
		d.DCB.PrioToTC = nil // part of the tc blocks is missing
	}
}

// prune drops netdevs of which nothing was said, and says where none is left.
func (q *QoS) prune() {
	q.Devices = slices.DeleteFunc(q.Devices, func(d QoSDevice) bool {
		return d.DCB.Trust == "" && d.DCB.PFC == nil && d.DCB.DSCPToPriority == nil && d.DCB.PrioToTC == nil && d.DCB.DCBX == "" && d.GlobalTClass == nil && d.DCB.BufferBytes == nil
	})
	if len(q.Devices) == 0 {
		q.Findings = append(q.Findings, finding.Finding{
			ID: "paste.not-this", Severity: finding.Error, Host: q.Host, Subject: "QoS configuration", Seen: "no line of mlnx_qos or dcb", Wanted: "the output of 'mlnx_qos -i NETDEV' or 'dcb -j … show dev NETDEV'",
			Why: "nothing can be said", Hint: "paste the whole output",
		})
	}
}

// Fragment is what the text says of a host: netdevs with their settings, each
// below a RoCE port of which no more is known.
func (q *QoS) Fragment() topology.Host {
	h := topology.Host{Name: q.Host}
	for i := range q.Devices {
		d := &q.Devices[i]
		h.Netdevs = append(h.Netdevs, topology.Netdev{Name: d.Name(), DCB: &d.DCB})
		p := topology.Port{Number: 1, LinkLayer: "Ethernet", Netdev: d.Name(), GlobalTClass: d.GlobalTClass}
		if d.CNPDSCP != nil {
			p.CNPs = &topology.CNP{DSCP: d.CNPDSCP}
		}
		h.HCAs = append(h.HCAs, topology.HCA{Ports: []topology.Port{p}})
	}
	return h
}

// Name is how messages call the netdev.
func (d *QoSDevice) Name() string {
	if d.Netdev != "" {
		return d.Netdev
	}
	if d.first > 0 {
		return fmt.Sprintf("the netdev of line %d", d.first)
	}
	return "the netdev"
}
