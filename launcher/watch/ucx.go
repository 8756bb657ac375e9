package watch

import (
	"bytes"
	"slices"
	"strings"
)

// ucxState is what UCX said at its levels info and warn.
type ucxState struct {
	version  string
	rdma     int // endpoint configurations to other nodes that use RDMA
	tcp      int // … that have nothing but TCP
	shared   int // … within the node
	nets     []string
	items    []string // transport/device, to other nodes
	devices  []string
	internal int
	table    bool // the rows of a table that come are of peers on other nodes
}

// ucxLine reads one line of UCX's log:
// '[sec.usec] [host:pid:tid] file:line UCX  LEVEL message'.
func (st *state) ucxLine(m *message) bool {
	if at := len(m.text) - len(m.arg) - len("UCX "); at > 0 && m.text[at-1] != ' ' {
		return false
	}
	level, text, ok := bytes.Cut(bytes.TrimLeft(m.arg, " "), []byte(" "))
	if !ok {
		return false
	}
	t := string(bytes.TrimSpace(text))
	switch string(level) {
	case "INFO", "DEBUG", "DIAG", "TRACE", "DATA", "REQ", "ASYNC", "FUNC", "POLL":
		st.library("ucx")
		st.ucxHost(m)
		st.ucxInfo(m, t)
	case "WARN":
		st.library("ucx")
		st.ucxHost(m)
		st.relay(m)
		st.ucxWarn(m, t)
	case "ERROR", "FATAL":
		st.library("ucx")
		st.ucxHost(m)
		st.relay(m)
		st.ucxError(m, t)
	default:
		return false // 'the UCX library …' in somebody's text
	}
	return true
}

// ucxBare reads a line that UCX prints without its level: what mlx5 devices report
// ('[n1:7:0:7] ib_mlx5_log.c:179  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15
// …)'), and crashes ('[n1:7:0:7] Caught signal 11 (Segmentation fault: …)').
func (st *state) ucxBare(m *message) bool {
	t := strings.TrimSpace(string(m.arg))
	if _, after, ok := strings.Cut(t, " "); ok && allDigits([]byte(t[:len(t)-len(after)-1])) {
		t = strings.TrimSpace(after) // the number of the source's line
	}
	if !st.ucxCompletion(m, t) {
		return false
	}
	st.library("ucx")
	return true
}

func (st *state) ucxCrash(m *message) bool {
	if len(m.text) == 0 || m.text[0] != '[' {
		return false
	}
	st.secondary("crash", "A process of the job crashed ("+shown(m.text)+").", m)
	return true
}

// ucxCompletions are the errors that a device reports of an operation, as UCX
// words them (uct/ib/mlx5/ib_mlx5_log.c, and libibverbs' ibv_wc_status_str).
var ucxCompletions = []struct{ has, id, text string }{
	{"ransport retry count", "ucx-retry-exceeded", "A peer stopped answering over RDMA (retry count exceeded): check its port, MTU, PFC and the route between the GIDs."},
	{"RNR retry count", "ucx-rnr", "A receiver was not ready for too long: look at what the peer does."},
	{"ocal protection", "ucx-local-protection", "The device may not reach the memory of this process (local protection): look at GPUDirect (nvidia_peermem, DMA-BUF), IOMMU and ACS of the node that reports it."},
	{"ocal access violation", "ucx-local-protection", "The device may not write to the memory of this process: look at GPUDirect, IOMMU and ACS of the node that reports it."},
	{"emote access", "ucx-remote-access", "The peer's memory was not accessible to the device: look for an earlier error of the peer, and at GPUDirect, IOMMU and ACS of its node."},
	{"emote operation", "ucx-remote-operation", "The peer's device could not carry out an operation: look for an earlier error of the peer, and at the kernel log of its node."},
	{"emote invalid request", "ucx-remote-invalid", "The peer's device refused a request: look for an earlier error of the peer."},
	{"ocal QP operation", "ucx-local-operation", "The device refused an operation of this process: look at the kernel log of the node that reports it."},
	{"ocal length", "ucx-local-operation", "The device refused the length of an operation: look for different UCX versions or settings on the two nodes."},
}

// ucxCompletion reports a failed operation; false where t is none.
func (st *state) ucxCompletion(m *message, t string) bool {
	for _, c := range ucxCompletions {
		if strings.Contains(t, c.has) {
			text := c.text
			if dev := wordAfter([]byte(t), " on "); strings.Contains(dev, ":") {
				text = "Device " + dev + ": " + strings.ToLower(text[:1]) + text[1:]
			}
			st.failed(c.id, text, m)
			return true
		}
	}
	return false
}

// ucxTable reads the head of a table of protocols (UCX_PROTO_INFO), or a line
// of a configuration that was copied without its beginning:
// 'perftest inter-node cfg#0 tag(rc_mlx5/mlx5_0:1)'.
func (st *state) ucxTable(m *message) bool {
	st.library("ucx")
	t := string(m.arg)
	if strings.Contains(t, "(") {
		st.ucx.table = false
		st.ucxConfig(m, t, "inter-node")
		return true
	}
	st.ucx.table = true
	return true
}

// ucxTableOther reads the head of a table of another kind of peer.
func (st *state) ucxTableOther(*message) bool {
	st.ucx.table = false
	return true
}

// ucxTableRow reads a row of such a table: '| 8247..inf | zero-copy | 50% on rc_mlx5/mlx5_0:1
// and 50% on rc_mlx5/mlx5_1:1 |'.
func (st *state) ucxTableRow(m *message) bool {
	if !st.ucx.table {
		return false
	}
	var items []string
	for f := range strings.FieldsSeq(string(m.text)) {
		if tl, dev, ok := strings.Cut(f, "/"); ok && dev != "" && (isUCXRDMA(tl) || tl == "tcp") {
			items = append(items, f)
		}
	}
	if len(items) > 0 {
		st.ucxConfig(m, "("+strings.Join(items, " ")+")", "inter-node")
	}
	return true
}

// relay passes on what the user would have seen without fabrun, up to a bound:
// a warning of every rank of a large job helps nobody.
func (st *state) relay(m *message) {
	if st.opt.Relay != nil && st.relayed < maxRelayed {
		st.relayed++
		st.opt.Relay(string(m.raw))
	}
}

// ucxHost learns host and process of a line: '[node1:305  :0]'.
func (st *state) ucxHost(m *message) {
	i := bytes.Index(m.text, []byte("] ["))
	if i < 0 {
		return
	}
	in := m.text[i+3:]
	end := bytes.IndexByte(in, ']')
	if end < 0 || end > 100 {
		return
	}
	f := bytes.Split(in[:end], []byte(":"))
	if len(f) != 3 {
		return
	}
	pid, rest := leadingInt(bytes.TrimSpace(f[1]))
	if pid < 0 || len(rest) > 0 || len(f[0]) == 0 {
		return
	}
	m.proc = st.procOf(&segment{host: f[0], pid: uint32(pid), clean: true})
}

func (st *state) ucxInfo(m *message, t string) {
	switch {
	case strings.HasPrefix(t, "Version "):
		v := word([]byte(t[len("Version "):]))
		if st.ucx.version == "" {
			st.ucx.version = v
		}
	case strings.HasPrefix(t, "UCX_* env variable"):
		if _, list, ok := strings.Cut(t, ": "); ok {
			for _, kv := range strings.Fields(list) {
				if name, v, ok := strings.Cut(kv, "="); ok {
					st.setEnv(name, v)
				}
			}
		}
	case strings.HasPrefix(t, "ep_cfg["):
		// 1.14 and older: no word on where the peer is.
		if _, items, ok := strings.Cut(t, "]: "); ok {
			st.ucxConfig(m, items, "")
		}
	default:
		for _, where := range []string{"inter-node", "intra-node", "self"} {
			if i := strings.Index(t, where+" cfg#"); i >= 0 {
				st.ucxConfig(m, t[i+len(where)+5:], where)
				return
			}
		}
	}
}

// ucxConfig reads 'tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1) am(…) ka(ud_mlx5/…)'.
// Keepalive and wire-up lanes may be TCP beside RDMA ones; what counts is
// whether there is anything else.
func (st *state) ucxConfig(m *message, t, where string) {
	type item struct{ tl, dev string }
	var items []item
	for t != "" {
		open := strings.IndexByte(t, '(')
		if open < 0 {
			break
		}
		end := strings.IndexByte(t[open:], ')')
		if end < 0 {
			break
		}
		for _, f := range strings.Fields(t[open+1 : open+end]) {
			if tl, dev, ok := strings.Cut(f, "/"); ok {
				items = append(items, item{tl, dev})
			}
		}
		t = t[open+end+1:]
	}
	rdma, tcp := false, false
	for _, it := range items {
		rdma = rdma || isUCXRDMA(it.tl)
		tcp = tcp || it.tl == "tcp"
		if where == "" && isUCXLocal(it.tl) {
			// What shares memory with the peer is on its node.
			where = "intra-node"
		}
	}
	if where == "self" || where == "intra-node" || where == "" && !rdma && !tcp {
		st.ucx.shared++
		return
	}
	if !rdma && !tcp {
		return
	}
	st.ucx.internal++
	for _, it := range items {
		if !isUCXRDMA(it.tl) && (rdma || it.tl != "tcp") {
			continue
		}
		addOnce(&st.ucx.nets, it.tl)
		addOnce(&st.ucx.items, it.tl+"/"+it.dev)
		if isUCXRDMA(it.tl) {
			addOnce(&st.ucx.devices, it.dev)
		}
	}
	if rdma {
		st.ucx.rdma++
		st.emit("network:ucx", Event{ID: "network", Severity: SeverityNote, Text: "UCX reaches other nodes by " + strings.Join(st.ucx.items, ", ") + "."}, m)
	} else {
		st.ucx.tcp++
	}
	st.announce(m)
}

// isUCXLocal reports whether a transport of UCX reaches its own node only.
func isUCXLocal(tl string) bool {
	switch tl {
	case "posix", "sysv", "xpmem", "cma", "knem", "mm", "sm", "shm", "self", "cuda_ipc", "rocm_ipc", "ze_ipc":
		return true
	}
	return false
}

func addOnce(to *[]string, s string) {
	if len(*to) < 256 && !slices.Contains(*to, s) {
		*to = append(*to, s)
	}
}

// isUCXRDMA reports whether a transport of UCX moves data by RDMA.
func isUCXRDMA(tl string) bool {
	for _, p := range []string{"rc_", "dc_", "ud_", "gga_", "srd", "efa", "rc", "dc", "ud"} {
		if tl == p || strings.HasSuffix(p, "_") && strings.HasPrefix(tl, p) {
			return true
		}
	}
	return false
}

func (st *state) ucxWarn(m *message, t string) {
	switch {
	case strings.Contains(t, "network device") && strings.Contains(t, "not available"):
		names := quoted(t)
		st.fact(m, factUCXDevice, names)
		st.warned("ucx-device:"+names, "UCX does not have network device "+names+" that UCX_NET_DEVICES asks for: name one of those it lists.", m)
	case strings.HasPrefix(t, "transport") && strings.Contains(t, "not available"):
		names := quoted(t)
		st.fact(m, factUCXTransport, names)
		st.warned("ucx-transport:"+names, "UCX does not have transport "+names+" that UCX_TLS asks for: this build or this host lacks it.", m)
	case strings.HasPrefix(t, "unused environment variable"):
		st.emit("ucx-unused", Event{ID: "ucx-unused-variable", Severity: SeverityNote, Text: "UCX does not know a variable that is set: " + shown([]byte(t))}, m)
	case strings.Contains(t, "set UCX_WARN_UNUSED_ENV_VARS"):
	default:
		st.emit("ucx-warn:"+keyOf(t), Event{ID: "ucx-warn", Severity: SeverityWarning, Text: "UCX warns: " + shown([]byte(t))}, m)
	}
}

// quoted joins the names that stand in quotes before the word "not".
func quoted(t string) string {
	head, _, _ := strings.Cut(t, " not available")
	var out []string
	for {
		_, rest, ok := strings.Cut(head, "'")
		if !ok {
			break
		}
		name, rest, ok := strings.Cut(rest, "'")
		if !ok {
			break
		}
		out = append(out, name)
		head = rest
	}
	return strings.Join(out, ",")
}

func keyOf(t string) string {
	if len(t) > 48 {
		t = t[:48]
	}
	return t
}

func (st *state) ucxError(m *message, t string) {
	switch {
	case strings.Contains(t, "no active messages transport to"), strings.Contains(t, "Destination is unreachable"), strings.Contains(t, "no remote ep address for lane"),
		strings.Contains(t, "no supported sockaddr auxiliary transports"), strings.Contains(t, "no auxiliary transport to"):
		st.failed("ucx-unreachable", "UCX has no transport to a peer: rails do not reach each other, or UCX_TLS and UCX_NET_DEVICES leave none ("+shown([]byte(t))+").", m)
	case strings.Contains(t, "no usable transports/devices"):
		st.failed("ucx-no-transport", "UCX finds no usable transport or device among those asked for: check UCX_TLS and UCX_NET_DEVICES.", m)
	case strings.Contains(t, "unhandled timeout"):
		st.failed("ucx-ud-timeout", "UCX could not set up its first connection (UD time-out): usually the wrong GID index, or no route between the GIDs; set UCX_IB_GID_INDEX to the RoCE v2 one of the job's network.", m)
	case strings.Contains(t, "Cannot allocate memory") || strings.Contains(t, "memlock") || strings.Contains(t, "max locked memory"):
		st.failed("memlock", "Memory could not be registered with the device: raise the locked-memory limit (ulimit -l unlimited, container: --ulimit memlock=-1).", m)
	case strings.Contains(t, "modify") && strings.Contains(t, "QP") || strings.Contains(t, "ibv_modify_qp"):
		st.failed("ib-modify-qp", "A queue pair could not be connected: check the GID index and the route to the peer ("+shown([]byte(t))+").", m)
	case strings.Contains(t, "ibv_create_ah"):
		st.failed("ib-create-ah", "No address handle for the peer's GID: the GID index does not fit, or there is no route ("+shown([]byte(t))+").", m)
	case strings.Contains(t, "ibv_open_device"):
		st.fact(m, CauseDeviceOpen, "")
		st.warned("device-open", "An RDMA device is listed but cannot be opened: give the job /dev/infiniband and rights on it.", m)
	case strings.Contains(t, "Connection reset by remote peer"), strings.Contains(t, "Endpoint timeout"):
		st.secondary("ucx-peer-gone", "A peer closed its connection; that is usually the consequence of an error or exit elsewhere.", m)
	case strings.Contains(t, "Caught signal"):
		st.secondary("crash", "A process of the job crashed ("+shown([]byte(t))+").", m)
	case st.ucxCompletion(m, t):
	default:
		st.emit("ucx-error:"+keyOf(t), Event{ID: "ucx-error", Severity: SeverityError, Text: "UCX reports: " + shown([]byte(t))}, m)
	}
}
