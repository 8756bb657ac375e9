package watch

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
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
	st.libHint = "ucx" // its handler prints this
	text := "A process of the job crashed (" + shown(m.text) + ")."
	if bytes.Contains(m.text, []byte("invalid permissions for mapped object")) {
		text += " Such an address is often GPU memory that an MPI or UCX without CUDA support touches: ucx_info -d must list cuda_copy, ompi_info mpi_built_with_cuda_support:value:true."
	}
	st.secondary("crash", text, m)
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
					st.setEnv(name, settingValue(name, v))
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
	case strings.Contains(t, "device") && strings.Contains(t, "not available"):
		names := quoted(t)
		st.fact(m, factUCXDevice, names)
		if list := ucxOffered(t); list != "" && !strings.Contains(list, "(ib)") && !strings.Contains(list, ":") {
			st.suspect(m, "ucx-no-device", "UCX does not have network device "+names+" that UCX_NET_DEVICES asks for, and sees no RDMA device at all here (it lists "+list+"): look at why (ibv_devinfo, /dev/infiniband and the port's state; UCX built without verbs: ucx_info -d), before changing the list.")
			return
		}
		st.warned("ucx-device:"+names, "UCX does not have network device "+names+" that UCX_NET_DEVICES asks for: name one of those it lists.", m)
	case strings.HasPrefix(t, "transport") && strings.Contains(t, "not available"):
		names := quoted(t)
		st.fact(m, factUCXTransport, names)
		list := ucxOffered(t)
		switch {
		case isUCXGPU(names):
			st.suspect(m, "ucx-no-cuda", "This UCX has no "+names+": it was built without GPU support, its part for it (libuct_cuda, libuct_rocm, gdrcopy) is not found, or the node has no GPU or driver. Buffers in GPU memory then crash or go wrong: use a UCX built --with-cuda (or --with-rocm); ucx_info -d lists what there is.")
			return
		case list != "" && isUCXRDMAList(names) && !slices.ContainsFunc(strings.Split(list, ", "), func(tl string) bool { return tl == "ib" || isUCXRDMA(tl) }):
			st.fact(m, factUCXNoVerbs, names)
			st.suspect(m, "ucx-no-verbs", phraseText(ucxPhrases, "ucx-no-verbs"))
			return
		}
		st.warned("ucx-transport:"+names, "UCX does not have transport "+names+" that UCX_TLS asks for: this build or this host lacks it.", m)
	case strings.HasPrefix(t, "unused environment variable"):
		st.emit("ucx-unused", Event{ID: "ucx-unused-variable", Severity: SeverityNote, Text: "UCX does not know a variable that is set: " + shown([]byte(t))}, m)
	case strings.Contains(t, "set UCX_WARN_UNUSED_ENV_VARS"):
	case st.says(m, []byte(t), ucxPhrases) != nil:
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
	case strings.Contains(t, "no active messages transport to") && onlyShared(t):
		st.failed("ucx-only-shared-memory", phraseText(ucxPhrases, "ucx-only-shared-memory"), m)
	case strings.HasPrefix(t, "connect(fd="), strings.HasPrefix(t, "connect("):
		st.ucxConnect(m, t)
	case strings.Contains(t, "no active messages transport to"), strings.Contains(t, "Destination is unreachable"), strings.Contains(t, "no remote ep address for lane"),
		strings.Contains(t, "no supported sockaddr auxiliary transports"), strings.Contains(t, "no auxiliary transport to"):
		st.failed("ucx-unreachable", "UCX has no transport to a peer: rails do not reach each other, or UCX_TLS and UCX_NET_DEVICES leave none ("+shown([]byte(t))+").", m)
	case strings.Contains(t, "no usable transports/devices"):
		st.failed("ucx-no-transport", "UCX finds no usable transport or device among those asked for: check UCX_TLS and UCX_NET_DEVICES.", m)
	case strings.Contains(t, "unhandled timeout"):
		st.failed("ucx-ud-timeout", phraseText(barePhrases, "ucx-ud-timeout"), m)
	case strings.Contains(t, "modify") && strings.Contains(t, "QP") || strings.Contains(t, "ibv_modify_qp"):
		st.failed("ib-modify-qp", "A queue pair could not be connected: check the GID index and the route to the peer ("+shown([]byte(t))+").", m)
	case strings.Contains(t, "ibv_create_ah"):
		st.createAH(m, t)
	case strings.Contains(t, "ibv_open_device"):
		st.fact(m, CauseDeviceOpen, "")
		st.warned("device-open", "An RDMA device is listed but cannot be opened: give the job /dev/infiniband and rights on it.", m)
	case strings.Contains(t, "Connection reset by remote peer"), strings.Contains(t, "Endpoint timeout"):
		st.secondary("ucx-peer-gone", "A peer closed its connection; that is usually the consequence of an error or exit elsewhere.", m)
	case strings.Contains(t, "Caught signal"):
		st.secondary("crash", "A process of the job crashed ("+shown([]byte(t))+").", m)
	case st.ucxCompletion(m, t):
	case st.says(m, []byte(t), ucxPhrases) != nil:
	default:
		st.emit("ucx-error:"+keyOf(t), Event{ID: "ucx-error", Severity: SeverityError, Text: "UCX reports: " + shown([]byte(t))}, m)
	}
}

// suspect records what a library may go on without.
func (st *state) suspect(m *message, id, text string) {
	st.record(m, &phrase{id: id, grade: suspect}, text)
}

// ucxOffered is the list in '… is not available, please use one or more of: cma, self, tcp'.
func ucxOffered(t string) string {
	_, list, ok := strings.Cut(t, "please use one or more of: ")
	if !ok {
		return ""
	}
	return strings.TrimSpace(list)
}

func isUCXGPU(names string) bool {
	for n := range strings.SplitSeq(names, ",") {
		if !strings.HasPrefix(n, "cuda") && !strings.HasPrefix(n, "rocm") && !strings.HasPrefix(n, "gdr_copy") && !strings.HasPrefix(n, "ze") {
			return false
		}
	}
	return names != ""
}

func isUCXRDMAList(names string) bool {
	for n := range strings.SplitSeq(names, ",") {
		if n == "ib" || isUCXRDMA(n) {
			return true
		}
	}
	return false
}

// onlyShared reports whether 'no active messages transport to …: posix/memory - Destination is
// unreachable, self/memory - …' lists nothing that leaves a node. sockcm and rdmacm
// are ways to set up a connection, and carry nothing.
func onlyShared(t string) bool {
	_, list, ok := strings.Cut(t, "transport to ")
	if !ok {
		return false
	}
	_, list, ok = strings.Cut(list, ": ")
	if !ok {
		return false
	}
	any := false
	for item := range strings.SplitSeq(list, ", ") {
		tl, _, ok := strings.Cut(item, "/")
		if !ok {
			continue
		}
		switch {
		case isUCXLocal(tl), tl == "cuda_copy", tl == "gdr_copy", tl == "rocm_copy", tl == "ze_copy":
			any = true
		case tl == "sockcm", tl == "rdmacm", tl == "tcp" && strings.Contains(item, "sockaddr"):
		default:
			return false
		}
	}
	return any
}

// ucxConnect reads 'connect(fd=40, dest_addr=172.17.0.1:40703) failed: Connection refused'.
func (st *state) ucxConnect(m *message, t string) {
	_, reason, _ := strings.Cut(t, "failed: ")
	addr := word([]byte(strings.TrimRight(wordAfter([]byte(t), "dest_addr="), ")")))
	host := addr
	if i := strings.LastIndexByte(addr, ':'); i > 0 {
		host = addr[:i]
	}
	if name := bridgeOf(host); name != "" {
		st.failed("ucx-bridge", "UCX tries to reach a peer by "+host+", the address of "+name+", which every host has for itself: name the real network in UCX_NET_DEVICES (the RDMA devices, mlx5_0:1; or, for TCP, the interface that all nodes share), or exclude the bridge by UCX_NET_DEVICES=^docker0 (UCX 1.11 and newer).", m)
		return
	}
	text := "UCX could not connect to " + addr + " by TCP"
	if reason != "" {
		text += " (" + word2(reason) + ")"
	}
	st.failed("ucx-tcp-connect", text+": the peer's process ended, a firewall is between the nodes, or the address is not of a network that they share; name the right devices in UCX_NET_DEVICES.", m)
}

func word2(s string) string {
	s = strings.TrimRight(s, ". ")
	if len(s) > 60 {
		s = s[:60]
	}
	return s
}

// bridgeOf names the bridge that takes an address by default, "" where it is none:
// docker's pools (172.17.0.0/16 to 172.31.0.0/16, the first address of each), libvirt's,
// podman's.
func bridgeOf(host string) string {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil || !a.Unmap().Is4() {
		return ""
	}
	b := a.Unmap().As4()
	switch {
	case b[0] == 172 && b[1] == 17:
		return "docker's bridge (docker0)"
	case b[0] == 172 && b[1] > 17 && b[1] <= 31 && b[2] == 0 && b[3] == 1:
		return "a bridge of docker"
	case b == [4]byte{192, 168, 122, 1}:
		return "libvirt's bridge (virbr0)"
	case b == [4]byte{10, 88, 0, 1}:
		return "podman's bridge (podman0)"
	}
	return ""
}

// createAH reads 'ibv_create_ah(dlid=49152 … dgid=::ffff:10.1.0.2 sgid_index=1 …) on mlx5_0 failed:
// Invalid argument'.
func (st *state) createAH(m *message, t string) {
	b := []byte(t)
	text := "The device"
	if dev := wordAfter(b, ") on "); dev != "" {
		text += " " + strings.TrimRight(dev, ":")
	}
	text += " cannot address its peer"
	if g := wordAfter(b, "dgid="); g != "" {
		text += " " + g
	}
	if i := intAfter(b, "sgid_index="); i >= 0 {
		text += " from its GID index " + strconv.Itoa(i)
	}
	st.failed("ib-create-ah", text+": the index is empty or of another kind (RoCE v1 beside v2, IPv6 beside IPv4), or this port has no route to that address. Set UCX_IB_GID_INDEX to the RoCE v2 one of the job's network (show_gids), and check that both ports are in networks that reach each other.", m)
}
