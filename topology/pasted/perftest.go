package pasted

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// PerftestRow is one line of a result table; nil is a column the tool did not print.
type PerftestRow struct {
	Bytes      int64
	Iterations int64
	PeakGbps   *float64 // nil also where the tool says 0.00: not measured with -D and --run_infinitely
	AvgGbps    *float64
	MsgMpps    *float64
	MinUsec    *float64
	MaxUsec    *float64
	TypUsec    *float64
	AvgUsec    *float64
}

// Perftest is the output of one perftest program (ib_write_bw, ib_send_lat, …).
type Perftest struct {
	Tool     string // "RDMA_Write BW Test"; "" the text does not say
	Device   string
	LinkType string // "IB", "Ethernet"
	MTU      *int   // bytes
	GIDIndex *int
	QPs      *int
	CUDA     *bool
	DMABuf   *bool
	TOS      *int
	RDMACM   *bool
	Unit     string // of the bandwidth columns as printed: "Gb/sec", "MB/sec", "MiB/sec"; "usec"
	Rows     []PerftestRow
	Error    *PerftestError
	Notes    []string // benign remarks of the tool that matter to the figures
	Unread   []string // rows of a table that are cut or mangled
}

// PerftestError is a known failure.
type PerftestError struct {
	ID   string
	Line string // as printed
	What string // what it means
	Hint string
}

// perftestFailures is what the programs print when they fail, the most telling
// first: the last line of a failing run is usually the least telling.
var perftestFailures = []struct {
	id   string
	re   func() *regexp.Regexp
	what string
	hint string
}{
	{
		"perftest.memlock", lazy(`(?i)Couldn't allocate MR|failed to create mr|ibv_reg_mr.*(ENOMEM|Cannot allocate memory)`),
		"memory could not be registered: the locked-memory limit is too low", "raise it: ulimit -l unlimited (Slurm: PropagateResourceLimitsExcept=MEMLOCK; " + topology.GiveMemlock + ")",
	},
	{
		"perftest.rdma-cm", lazy(`Unexpected CM event|rdma_resolve_(addr|route) failed|Unable to perform rdma_client|RDMA CM event error|Failed to resolve RDMA CM|Failed to connect (RDMA CM|through RDMA CM)|Function rdma_connect failed|Received \d+ times ADDR_ERROR`),
		"the connection through rdma_cm did not come up", "is the server running with -R too, and does the address given lie on the RDMA interface? ping it with -I",
	},
	{"perftest.version", lazy(`(?i)versions? .*(don't|do not|doesn't) match|different versions`), "client and server are different versions", "install the same perftest on both"},
	{
		"perftest.connect", lazy(`Couldn't connect to|Unable to open file descriptor for socket connection`),
		"no server answered on the TCP port", "start the server first, and give both the same -p; a firewall may close the port",
	},
	{
		"perftest.port-in-use", lazy(`Failed to bind socket|Couldn't listen to port|Address already in use|rdma_bind_addr failed`),
		"the TCP port is taken: another perftest runs", "use another port on both ends: -p 18516",
	},
	{
		"perftest.no-device", lazy(`Did not detect devices|Unable to find the Infiniband/RoCE device|IB device .* not found|No IB devices found|Couldn't get device list`),
		"there is no such RDMA device here", "'ibv_devices' lists them; in a container: " + topology.GiveDevices,
	},
	{
		"perftest.port-down", lazy(`Port number \d+ state is (Down|\w+)|Couldn't set the link layer|Link layer on port \d+ is Unknown`),
		"the port is down", "check cable and switch port; 'ibstat' says more",
	},
	{"perftest.mtu", lazy(`(?i)Requested mtu is higher than active mtu`), "the MTU asked for is more than the port's", "leave -m out, or raise the netdev's MTU on both ends"},
	{
		"perftest.gid", lazy(`(?i)GID index .* (out of range|not valid)|Failed to modify QP .* to RTR|Unable to Connect the HCA's through the link|Couldn't read GID|ibv_query_gid|Invalid GID`),
		"the connection could not be brought to ready: the GID index, or the MTU, does not fit", "give -x with a RoCE v2 GID of this network on both ends ('show_gids')",
	},
	{
		"perftest.cuda", lazy(`(?i)CUDA (error|driver)|cuInit|cuMem\w+ (error|failed)|Couldn't allocate GPU|unsupported .*cuda|ibv_reg_dmabuf_mr.*fail|failed to (get|export) dmabuf`),
		"GPU memory could not be used", "is nvidia_peermem loaded, or the driver's open kernel module there for --use_cuda_dmabuf?",
	},
	{
		"perftest.option", lazy(`unrecognized option|invalid option|Invalid Command line|Parser function exited with Error`),
		"this build does not know an option", "'--use_cuda' needs a perftest that was built with CUDA",
	},
	{"perftest.tos", lazy(`Set TOS option failed|Failed to set ToS`), "the type of service could not be set", "-T works with -R only"},
	{"perftest.below-limit", lazy(`BW result is below bw limit|Msg rate\s+is below msg_rate limit`), "the result is below the limit given", ""},
	{
		"perftest.exchange", lazy(`Failed to exchange data between server and clients|ethernet_read_(keys|data)|Failed to sync between|Couldn't (read|write) (from|to) socket|Unable to init the socket connection`),
		"the other end went away while addresses were exchanged", "look at the server's own output",
	},
	{
		"perftest.resources", lazy(`Couldn't (create|allocate|get) (IB resources|context|CQ|QP|PD)|Couldn't get context for the device|Failed to create QP`),
		"the device gave no resources", "check permissions of /dev/infiniband/uverbs* and the limits",
	},
	{
		// get_clock.c holds the cycle counter against the time of day, and gives up
		// where the two do not keep step; with -F the figures are then all zero.
		"perftest.clock", lazy(`Correlation coefficient r\^2: \S+ < 0\.9|Can't produce a report`),
		"the program could not measure its own clock: its figures mean nothing", "run it again; on a virtual machine, or beside other work, that happens",
	},
	{"perftest.incomplete", lazy(`Failed to complete run_iter|Error occurred while running infinitely`), "the test ended before its time", "look at the other end's output"},
}

const completionHint = "give both ends the same program, -d, -x, -m and --tclass; then look at the counters of both ports"

// completionStatus names ibv_wc_status values and what they mean on a fabric.
var completionStatus = map[int][2]string{
	1: {"IBV_WC_LOC_LEN_ERR", "a message longer than its buffer"}, 2: {"IBV_WC_LOC_QP_OP_ERR", "a local error of the queue pair"},
	4:  {"IBV_WC_LOC_PROT_ERR", "local memory was not registered for this"},
	5:  {"IBV_WC_WR_FLUSH_ERR", "the queue pair had failed before: look for the first error"},
	8:  {"IBV_WC_LOC_ACCESS_ERR", "local memory was not registered for this"},
	9:  {"IBV_WC_REM_INV_REQ_ERR", "the other side did not allow the request: different programs on both ends?"},
	10: {"IBV_WC_REM_ACCESS_ERR", "the other side's memory was not registered for this"},
	11: {"IBV_WC_REM_OP_ERR", "the other side failed"},
	12: {"IBV_WC_RETRY_EXC_ERR", "nothing came back: wrong GID, MTU or VLAN, a firewall, PFC, or the link"},
	13: {"IBV_WC_RNR_RETRY_EXC_ERR", "the other side had no receive buffers"},
}

var (
	perftestKey   = lazy(`(?i)(Dual-port|Device|Number of qps|Transport type|Connection type|Using SRQ|PCIe relax order|Lock-free|ibv_wr\* API|Using DDP|Using Enhanced Reorder|TX depth|RX depth|CQ Moderation|CQE Poll Batch|Mtu|Link type|GID index|Max inline data|Outstand reads|rdma_cm QPs|Data ex\. method|TOS)\s*:[ \t]*`)
	perftestTitle = lazy(`^(?:[A-Za-z_]+ )?(?:Bidirectional )?(?:Dual-port )?((?:RDMA_Write|RDMA_Read|Send|Atomic FETCH_AND_ADD|Atomic CMP_AND_SWAP|Fetch_And_Add|Compare_And_Swap|Atomic|raw_ethernet|Raw Ethernet)[A-Za-z_ -]*?(?:Bidirectional |Post List |Burst Size |Latency |BW |with Immediate )*(?:BW|Latency|Post List|lat|bw)[A-Za-z -]*)(?: Test)?$`)
	perftestFail  = lazy(`Failed status (\d+): wr_id (\d+) syndrom (0x[0-9a-fA-F]+)`)
	bwUnit        = lazy(`BW average\[([A-Za-z]+/[a-z]+)\]`)
	jsonKeyValue  = lazy(`"?([A-Za-z0-9_*. %()\[\]-]+?)"?\s*:\s*("[^"]*"|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)`)
	fillerRule    = lazy(`^[-*\s]*$`)
	number        = lazy(`^[0-9]+(?:\.[0-9]+)?$`)
)

// maxMeasured bounds what is read of a measurement: a log of NCCL's may stand
// around the table.
const maxMeasured = 16 << 20

// ReadPerftest reads what any perftest program printed: text with or without
// the indentation and fences of a web page, one end's output or both ends', or
// the file of --out_json (which is not JSON in every mode). The error says
// that nothing of it is known.
func ReadPerftest(text string) (Perftest, error) {
	if len(text) > maxMeasured {
		return Perftest{}, fmt.Errorf("over %d bytes: not one program's output", maxMeasured)
	}
	var p Perftest
	text = Plain(text)
	if strings.Contains(text, "test_info") && strings.Contains(text, "results") {
		readPerftestJSON(&p, text)
		if p.Tool != "" || len(p.Rows) > 0 {
			return p, nil
		}
	}
	known := false
	columns := ""
	best := len(perftestFailures)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.ReplaceAll(line, "\u00a0", " "))
		line = strings.Trim(strings.TrimPrefix(strings.TrimPrefix(line, "> "), "| "), "`")
		if line == "" || fillerRule().MatchString(line) {
			continue
		}
		switch {
		case strings.HasPrefix(line, "#bytes"):
			known, columns = true, perftestColumns(line, &p)
			continue
		case perftestTable(line, columns, &p):
			continue
		case columns != "" && number().MatchString(strings.Fields(line)[0]):
			p.Unread = unreadRow(p.Unread, line)
			continue
		case readPerftestKeys(line, &p):
			known = true
			continue
		}
		if p.Tool == "" && (strings.HasSuffix(line, " Test") || strings.HasSuffix(line, " test")) && len(line) < 80 && perftestTitle().MatchString(strings.TrimSuffix(line, " Test")) {
			p.Tool, known = line, true
			continue
		}
		lower := strings.ToLower(line)
		switch {
		case strings.Contains(lower, "cuda device") || strings.Contains(lower, "initializing cuda") || strings.Contains(lower, "cuda_mem"):
			p.CUDA, known = new(true), true
		case strings.Contains(lower, "supports cuda tests"):
			p.CUDA = new(true)
		}
		if strings.Contains(lower, "using dma-buf") || strings.Contains(lower, "ibv_reg_dmabuf_mr(") {
			p.DMABuf = new(true)
		}
		if strings.Contains(line, "Conflicting CPU frequency") {
			p.Notes = append(p.Notes, "the CPU frequency was not at its maximum: small messages look slower than they are")
		}
		if m := perftestFail().FindStringSubmatch(line); m != nil && best >= 0 {
			best, known = -1, true
			n, _ := strconv.Atoi(m[1])
			name, what := "status "+m[1], "see ibv_wc_status"
			if s, ok := completionStatus[n]; ok {
				name, what = s[0], s[1]
			}
			p.Error = &PerftestError{
				ID: "perftest.completion-" + m[1], Line: line, What: fmt.Sprintf("%s (syndrome %s): %s", name, m[3], what),
				Hint: completionHint,
			}
			continue
		}
		for i, f := range perftestFailures[:max(best, 0)] {
			if f.re().MatchString(line) {
				best, known = i, true
				p.Error = &PerftestError{ID: f.id, Line: line, What: f.what, Hint: f.hint}
				break
			}
		}
	}
	if !known && len(p.Rows) == 0 {
		return p, fmt.Errorf("no line of a perftest program in it")
	}
	if p.Tool != "" && p.CUDA == nil {
		p.CUDA, p.DMABuf = new(false), new(false)
	}
	if p.CUDA != nil && *p.CUDA && p.DMABuf == nil {
		p.DMABuf = new(false)
	}
	return p, nil
}

// perftestColumns says which table follows a header line.
func perftestColumns(line string, p *Perftest) string {
	switch {
	case strings.Contains(line, "BW average"):
		if m := bwUnit().FindStringSubmatch(line); m != nil {
			p.Unit = m[1]
		}
		return "bw"
	case strings.Contains(line, "t_typical"):
		p.Unit = "usec"
		return "lat"
	case strings.Contains(line, "tps"):
		p.Unit = "usec"
		return "latduration"
	}
	return ""
}

// perftestTable reads one row; with both ends' output in one text the second
// end's rows for the same size follow, and are rows too.
func perftestTable(line, columns string, p *Perftest) bool {
	f := strings.Fields(line)
	need := map[string]int{"bw": 4, "lat": 6, "latduration": 4}[columns]
	if need == 0 || len(f) < need {
		return false
	}
	var v []float64
	for _, w := range f {
		if !number().MatchString(w) {
			break
		}
		x, _ := strconv.ParseFloat(w, 64)
		v = append(v, x)
	}
	if len(v) < need || v[0] < 1 || v[0] > 1<<40 || v[0] != math.Trunc(v[0]) || v[1] > 1e15 {
		return false
	}
	r := PerftestRow{Bytes: int64(v[0]), Iterations: int64(v[1])}
	switch columns {
	case "bw":
		if v[2] > 0 {
			r.PeakGbps = toGbps(v[2], p.Unit)
		}
		r.AvgGbps = toGbps(v[3], p.Unit)
		if len(v) > 4 {
			r.MsgMpps = &v[4]
		}
	case "lat":
		r.MinUsec, r.MaxUsec, r.TypUsec, r.AvgUsec = &v[2], &v[3], &v[4], &v[5]
	case "latduration":
		r.AvgUsec = &v[2]
	}
	p.Rows = append(p.Rows, r)
	return true
}

// toGbps converts a printed bandwidth. perftest's MB are 2^20 bytes whatever
// the header calls them (its CYCLE_TO_MiB factor); newer versions write MiB.
func toGbps(v float64, unit string) *float64 {
	switch {
	case strings.HasPrefix(unit, "Gb"):
	case strings.HasPrefix(unit, "MB"), strings.HasPrefix(unit, "MiB"):
		v = v * 8 * (1 << 20) / 1e9
	default:
		return nil
	}
	return &v
}

func readPerftestKeys(line string, p *Perftest) bool {
	ks := perftestKey().FindAllStringSubmatchIndex(line, -1)
	if len(ks) == 0 || ks[0][0] != 0 {
		return false
	}
	for i, k := range ks {
		end := len(line)
		if i+1 < len(ks) {
			end = ks[i+1][0]
		}
		setPerftest(p, line[k[2]:k[3]], strings.TrimSpace(line[k[1]:end]))
	}
	return true
}

func setPerftest(p *Perftest, key, value string) {
	n, err := strconv.Atoi(strings.TrimSuffix(value, "[B]"))
	num := func(dst **int) {
		if err == nil && n >= 0 {
			*dst = &n
		}
	}
	switch strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(key)) {
	case "device":
		if value != "" && len(value) < 64 {
			p.Device = value
		}
	case "number of qps":
		num(&p.QPs)
	case "mtu":
		num(&p.MTU)
	case "gid index":
		num(&p.GIDIndex)
	case "link type":
		p.LinkType = value
	case "tos":
		num(&p.TOS)
	case "rdma cm qps":
		p.RDMACM = new(strings.EqualFold(value, "ON"))
	}
}

// readPerftestJSON reads key and value pairs wherever they stand: the file is
// not valid JSON in all versions and modes, and keys are quoted in some only.
func readPerftestJSON(p *Perftest, text string) {
	var row PerftestRow
	seen := false
	flush := func() {
		if seen {
			p.Rows = append(p.Rows, row)
		}
		row, seen = PerftestRow{}, false
	}
	if p.Unit = "MB/sec"; strings.Contains(text, "Gb") || strings.Contains(text, "gbit") {
		p.Unit = "Gb/sec"
	}
	lat := false
	for _, m := range jsonKeyValue().FindAllStringSubmatch(text, -1) {
		key, value := strings.TrimSpace(m[1]), strings.Trim(m[2], `"`)
		x, err := strconv.ParseFloat(value, 64)
		switch {
		case strings.EqualFold(key, "test"), strings.EqualFold(key, "test_name"), strings.EqualFold(key, "test_type"):
			p.Tool = strings.TrimSpace(value)
		case key == "MsgSize":
			flush()
			if err == nil && x >= 1 && x < 1<<40 {
				row.Bytes, seen = int64(x), true
			}
		case err == nil && key == "n_iterations":
			row.Iterations = int64(min(x, 1e15))
		case err == nil && key == "BW_peak" && x > 0:
			row.PeakGbps = toGbps(x, p.Unit)
		case err == nil && key == "BW_average":
			row.AvgGbps, seen = toGbps(x, p.Unit), true
		case err == nil && key == "MsgRate":
			row.MsgMpps = &x
		case err == nil && key == "t_min":
			row.MinUsec, lat = &x, true
		case err == nil && key == "t_max":
			row.MaxUsec = &x
		case err == nil && key == "t_typical":
			row.TypUsec, lat = &x, true
		case err == nil && key == "t_avg":
			row.AvgUsec, lat = &x, true
		default:
			setPerftest(p, key, value)
		}
	}
	flush()
	if lat {
		p.Unit = "usec"
	}
}

// Largest is the row of the largest message, the last of them; nil when there is none.
func (p Perftest) Largest() *PerftestRow {
	var best *PerftestRow
	for i := range p.Rows {
		if best == nil || p.Rows[i].Bytes >= best.Bytes && p.Rows[i].AvgGbps != nil {
			best = &p.Rows[i]
		}
	}
	return best
}

// Smallest is the row of the smallest message; nil when there is none.
func (p Perftest) Smallest() *PerftestRow {
	var best *PerftestRow
	for i := range p.Rows {
		if best == nil || p.Rows[i].Bytes < best.Bytes {
			best = &p.Rows[i]
		}
	}
	return best
}

// MaxGbps is the best average of any size; nil for latency tests.
func (p Perftest) MaxGbps() *float64 {
	var best *float64
	for i := range p.Rows {
		if g := p.Rows[i].AvgGbps; g != nil && (best == nil || *g > *best) {
			best = g
		}
	}
	return best
}

// PerftestFailure is what the ID of a PerftestError means, and what to do; ""
// for another's.
func PerftestFailure(id string) (what, hint string) {
	for _, f := range perftestFailures {
		if f.id == id {
			return f.what, f.hint
		}
	}
	if n, ok := strings.CutPrefix(id, "perftest.completion-"); ok {
		if status, err := strconv.Atoi(n); err == nil && completionStatus[status][1] != "" {
			return completionStatus[status][1], completionHint
		}
	}
	return "", ""
}

// unreadRow keeps the first rows that could not be read.
func unreadRow(rows []string, line string) []string {
	if len(rows) < maxLineFindings {
		rows = append(rows, line)
	}
	return rows
}

// UnreadRows says of a measurement which rows of its table could not be read.
func UnreadRows(subject string, rows []string) []finding.Finding {
	var out []finding.Finding
	for _, row := range rows {
		out = append(out, finding.Finding{
			ID: "paste.unread", Severity: finding.Note, Subject: subject, Seen: quote(row), Wanted: "a whole row of the table",
			Why: "it is cut or mangled; nothing is guessed from it, and the verdict is without it", Hint: "paste the whole output",
		})
	}
	return out
}
