package watch

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
)

// pattern is one thing NCCL says: the text a message begins with, and what it
// tells. The list is explicit; each ID has a test.
type pattern struct {
	id   string
	lead string
	do   func(*state, *message)
}

// ncclPatterns is every message of NCCL, RCCL and their network plugins that
// matters, by the beginning of its text (releases 2.4 to 2.30; NCCL src/init.cc,
// transport/*.cc, plugin/net.cc of each tag).
var ncclPatterns = []pattern{
	{"channel", "Channel ", (*state).channelLine},
	{"ring-2.4", "Ring ", (*state).channelLine},
	{"collnet-coll", "Coll ", (*state).channelLine},
	{"collnet", "CollNet ", (*state).channelLine},

	{"driver", "cudaDriverVersion ", (*state).driverLine},
	{"profiler", "PROFILER/Plugin", (*state).profilerLine},
	{"version", "NCCL version ", (*state).versionLine},
	{"version-rccl", "RCCL version", (*state).versionLine},
	{"comm", "comm ", (*state).commLine},
	{"comm-fn", "ncclComm", (*state).commLine},
	{"comm-rank", "[Rank ", (*state).commLine},
	{"comm-2.3", "rank ", (*state).commLine},
	{"init-timings", "Init timings", (*state).commLine},

	{"network", "Using network ", (*state).usingNetwork},
	{"network-2.3", "Using internal Network ", (*state).usingNetwork},
	{"plugin-assigned", "Assigned NET plugin ", (*state).assignedPlugin},
	{"plugin-init-failed", "Failed to initialize NET plugin ", (*state).pluginInitFailed},
	{"plugin-none", "Failed to initialize any NET plugin", (*state).noPluginWorks},
	{"network-not-found", "Error: network ", (*state).networkNotFound},

	{"net-ib", "NET/IB", (*state).netIB},
	{"net-gib", "NET/gIB", (*state).netGIB},
	{"net-ib-2.3", "Net/IB", (*state).netIBDevices},
	{"net-socket", "NET/Socket", (*state).netSocket},
	{"net-ofi", "NET/OFI", (*state).netOFI},
	{"net-plugin", "NET/Plugin", (*state).netPlugin},
	{"net-other", "NET/", (*state).netOther},

	{"verbs-missing", "Failed to open libibverbs", (*state).verbsMissing},
	{"verbs-missing-2.30", "Count not open libibverbs", (*state).verbsMissing},
	{"sysfs-hidden", "Could not find real path of ", (*state).sysfsHidden},
	{"call-failed", "Call to ", (*state).callFailed},

	{"ib-hca", "NCCL_IB_HCA set to ", (*state).echoIBHCA},
	{"env", "NCCL_", (*state).echoEnv},
	{"comm-config-net", "Comm config netName reset to ", (*state).echoConfigNet},

	{"bootstrap", "Bootstrap", (*state).bootstrapLine},
	{"rings", "Connected all rings", (*state).connectedRings},
	{"trees", "Connected all trees", (*state).connectedOther},
	{"proxy-connected", "Connected to proxy local", (*state).localRank},
	{"connected-other", "Connected ", (*state).connectedOther}, // NVLS tree, binomial trees, Collnet chains
	{"proxy-new", "New proxy ", (*state).localRank},

	{"nvlink", " ", (*state).topologyLine},
	{"gdr-pair", "GPU Direct RDMA ", (*state).gdrPair},
	{"mnnvl", "MNNVL ", (*state).mnnvlLine},

	{"no-path-to-net", "Could not find any local path from gpu", (*state).noLocalPath},
	{"no-transport", "No transport found for rank", (*state).noTransport},
	{"merge-refused", "Fusing NET devices from different NUMA", (*state).mergeRefused},
	{"fatal-communicator", "communicator encountered a fatal error", (*state).fatalComm},
	{"hca-sets-differ", "Rank ", (*state).rankWarn},
	{"mixed-counts", "Detected mixed local Net device counts", (*state).mixedCounts},
	{"closed-2.15", "Net : Connection closed by remote peer", (*state).connectionClosed},
	{"connect-2.15", "Net : Connect to ", (*state).socketFailed},
	{"socket-create", "Net : Socket creation failed", (*state).socketFailed},
	{"closed", "socketProgress", (*state).socketProgress},
	{"socket-type", "socketFinalizeAccept", (*state).socketFinalize},
	{"socket-start", "socketStartConnect", (*state).socketFailed},
	{"socket-poll", "socketPollConnect", (*state).socketFailed},
	{"connect-2.4", "Connect to ", (*state).socketFailed},
}

// ncclByByte is ncclPatterns by the first byte of their text, in their order.
var ncclByByte = func() (t [256][]*pattern) {
	for i := range ncclPatterns {
		c := ncclPatterns[i].lead[0]
		t[c] = append(t[c], &ncclPatterns[i])
	}
	return t
}()

// message reads one NCCL message.
func (st *state) message(m *message) {
	if len(m.text) == 0 {
		return
	}
	if m.warn && st.warning(m) {
		return
	}
	for _, p := range ncclByByte[m.text[0]] {
		if len(m.text) >= len(p.lead) && string(m.text[:len(p.lead)]) == p.lead {
			m.arg = m.text[len(p.lead):]
			p.do(st, m)
			return
		}
	}
	if m.warn {
		st.otherWarn(m)
		return
	}
	if isDigit(m.text[0]) && viaAt(m.text) > 0 {
		// Up to 2.3: '1 -> 0 via NET/IB/0/GDRDMA'.
		st.channelLine(m)
		return
	}
	// A connect attempt is named after the function that made it (2.24 on).
	for t := m.text; ; {
		i := bytes.IndexByte(t, ':')
		if i < 0 {
			return
		}
		t = t[i+1:]
		if len(t) > len(connectWord) && string(t[:len(connectWord)]) == connectWord {
			m.arg = t[1:]
			st.socketFailed(m)
			return
		}
	}
}

const connectWord = " connect"

func (p *proc) reached(to phase) {
	if p != nil && to > p.phase {
		p.phase = to
	}
}

// --- versions, communicators ---

func (st *state) versionLine(m *message) {
	v := strings.TrimLeft(string(m.arg), " :")
	if len(m.text) > 0 && m.text[0] == 'R' {
		st.library("rccl")
	}
	end := 0
	for end < len(v) && (v[end] >= '0' && v[end] <= '9' || v[end] == '.') {
		end++
	}
	v = strings.TrimRight(v[:end], ".")
	if strings.Count(v, ".") < 1 {
		return
	}
	if m.proc != nil {
		m.proc.version = v
	}
	if st.version == "" {
		st.version = v
	} else if st.version != v {
		st.warned("version-skew", "Ranks run different versions ("+st.version+" and "+v+"): put the same library on every node.", m)
	}
}

// commLine reads 'comm 0x… rank R nranks N … - Init START|COMPLETE' in all its
// forms, and '… rank R nRanks N nNodes K localRanks L localRank I MNNVL 0|1'.
func (st *state) commLine(m *message) {
	t := m.text
	st.claims(m.proc, t)
	n := intAfter(t, "nranks ")
	r := intAfter(t, " rank ")
	if r < 0 && bytes.HasPrefix(t, []byte("rank ")) {
		r = intAfter(t, "rank ")
	}
	if n < 0 {
		n = intAfter(t, "nRanks ")
		if k := intAfter(t, "nNodes "); k > 0 {
			st.nnodes = max(st.nnodes, k)
			local := intAfter(t, "localRanks ")
			st.hostTrick(m, n, k, local)
			st.localRanks = max(st.localRanks, local)
			if intAfter(t, "MNNVL ") == 1 {
				st.mnnvl = true
			}
		}
	}
	if n > 0 {
		if dev := intAfter(t, "cudaDev "); dev >= 0 {
			m.dev = dev
		}
		st.rankOf(m, r, n)
	}
	switch {
	case bytes.Contains(t, []byte("Init START")):
		m.proc.begins()
	case bytes.Contains(t, []byte("Init COMPLETE")):
		m.proc.completes()
		st.initDone++
		st.kept(m)
	case bytes.Contains(t, []byte("Abort COMPLETE")):
		st.failed("nccl-abort", "NCCL gave the communicator up (abort): the first error above says why.", m)
	}
	st.announce(m)
}

// hostTrick notices two processes of one machine that NCCL takes for two
// nodes: somebody set NCCL_HOSTID, which is a way to make one machine talk to
// itself over the network.
func (st *state) hostTrick(m *message, nranks, nnodes, local int) {
	if m.proc == nil || nnodes < 2 || local != 1 || nnodes != nranks || m.proc.host == "localhost" {
		return
	}
	for _, p := range st.hosts[m.proc.host].procs {
		// Neighbouring process numbers: one process table, so one machine.
		if p != m.proc && p.nranks == nranks && near(p.pid, m.proc.pid) {
			st.claimedOne = true
			return
		}
	}
	m.proc.nranks = max(m.proc.nranks, nranks)
}

func near(a, b uint32) bool { return max(a, b)-min(a, b) < 256 }

// --- network choice ---

func (st *state) chosen(m *message, name string) {
	if name == "" {
		return
	}
	st.addNetwork(name)
	if m.proc != nil {
		m.proc.net = name
		if name == netSocketName {
			m.proc.goesOn(startChosen)
			st.askedNone = st.askedNone || m.proc.start == startChosen
		}
	}
	m.proc.reached(phaseNetwork)
	if isRDMANet(name) {
		st.emit("network:"+name, Event{ID: "network", Severity: SeverityNote, Text: "Network " + name + "."}, m)
	}
	if len(st.networks) > 1 {
		st.mixed(m)
	}
	st.announce(m)
}

// mixed is said when some ranks chose an RDMA network and others sockets.
func (st *state) mixed(m *message) {
	if slices.Contains(st.networks, netSocketName) && slices.ContainsFunc(st.networks, isRDMANet) && st.multiNode() {
		st.fact(m, CauseMixed, strings.Join(st.networks, ", "))
	}
}

const netSocketName = "Socket"

func isRDMANet(name string) bool { return name != netSocketName }

func (st *state) usingNetwork(m *message) {
	name := string(bytes.TrimSpace(m.arg))
	// Older plugins print their version behind the name; a name that runs
	// into other bytes is cut at what no name holds.
	if i := strings.IndexAny(name, ":<>[](){}\t\"'`,;&\\|│"); i >= 0 {
		name = name[:i]
	}
	name, _, _ = strings.Cut(name, "  ") // a frame around the text
	name = strings.TrimSpace(name)
	if len(name) > 40 {
		return
	}
	st.chosen(m, name)
}

func (st *state) assignedPlugin(m *message) {
	if name, _, ok := strings.Cut(string(m.arg), " to comm"); ok {
		st.chosen(m, name)
	}
}

func (st *state) pluginInitFailed(m *message) {
	name := word(m.arg)
	if name == "IB" {
		st.ibProbed = true
		st.fact(m, factIBFailed, "")
		return
	}
	st.fact(m, CausePluginFailed, name)
}

func (st *state) noPluginWorks(m *message) {
	text := "NCCL found no network that works, so it stops"
	if why := st.whyNoRDMA(); why != "" {
		text += ". " + why
	} else {
		text += ": the lines before say why each was refused."
	}
	st.failed("net-none", text, m)
}

func (st *state) networkNotFound(m *message) {
	name := strings.TrimSuffix(strings.TrimRight(string(m.arg), "."), " not found")
	text := "NCCL_NET asks for network " + name + ", which is not usable here: install its plugin or unset NCCL_NET."
	if why := st.whyNoRDMA(); why != "" {
		text = "NCCL_NET asks for network " + name + ", which is not usable here. " + why
	}
	st.failed("net-not-found", text, m)
}

// netIB reads everything that begins with NET/IB.
func (st *state) netIB(m *message) { st.netVerbs(m, "IB") }

// netGIB reads the lines of Google's plugin, which is made from NCCL's own transport.
func (st *state) netGIB(m *message) { st.netVerbs(m, "gIB") }

// netIBDevices reads 'Net/IB: call to devices() returned 0 devices.' of 2.3.
func (st *state) netIBDevices(m *message) {
	if intAfter(m.text, "returned ") == 0 {
		st.ibProbed, st.ibEmpty = true, true
		st.fact(m, CauseNoDevice, "")
	}
}

func (st *state) netVerbs(m *message, name string) {
	t := bytes.TrimLeft(m.arg, " ")
	if bytes.HasPrefix(t, []byte("/GIN")) || bytes.HasPrefix(t, []byte("/CUDA")) {
		if bytes.Contains(t, []byte("Got completion")) {
			st.completion(m)
		}
		return
	}
	t = bytes.TrimLeft(bytes.TrimPrefix(t, []byte(":")), " ")
	st.ibProbed = true
	switch {
	case bytes.HasPrefix(t, []byte("Using ")):
		if devs := parseDevices(t[len("Using "):]); len(devs) > 0 {
			st.addSeenNet(name)
			st.addDevices(&st.devices, devs)
			if m.proc != nil && len(devs) <= 64 {
				m.proc.devs, m.proc.allDevs = strings.Join(devs, " "), bytes.Contains(t, []byte("OOB "))
			}
			st.linkLayers(m)
		} else if bytes.HasPrefix(t, []byte("Using [RO]")) || bytes.HasPrefix(t, []byte("Using ;")) || bytes.HasPrefix(t, []byte("Using  ;")) {
			// 2.24 and later print an empty list behind "No device found".
			st.ibEmpty = true
		}
	case bytes.HasPrefix(t, []byte("No device found")):
		st.ibEmpty = true
		st.fact(m, CauseNoDevice, "")
	case bytes.HasPrefix(t, []byte("No IP interface found")):
		st.fact(m, CauseNoOOB, "")
		st.warned("no-oob-interface", "NCCL found no IP interface for its RDMA connections: set NCCL_SOCKET_IFNAME to one that has an address.", m)
	case bytes.HasPrefix(t, []byte("Unable to open device")):
		dev := word(bytes.TrimLeft(t[len("Unable to open device"):], " "))
		st.fact(m, CauseDeviceOpen, dev)
		st.warned("device-open:"+dev, "RDMA device "+dev+" is listed but cannot be opened: give the job /dev/infiniband ("+topology.GiveDevices+") and rights on it.", m)
	case bytes.HasPrefix(t, []byte("Made virtual device")):
		st.addSeenNet(name)
	case bytes.HasPrefix(t, []byte("GPU Direct RDMA ")):
		st.addSeenNet(name)
		st.gdrForHCA(m, t[len("GPU Direct RDMA "):])
	case bytes.Contains(t, []byte("Got completion")), bytes.Contains(t, []byte("Got CQE with error")):
		st.addSeenNet(name)
		st.completion(m)
	case bytes.Contains(t, []byte("marked as failed")), bytes.Contains(t, []byte("permanently failed")):
		st.addSeenNet(name)
		st.deviceFailed(m, t)
	case bytes.Contains(t, []byte("as recovered")):
		st.deviceBack(m, t)
	case bytes.Contains(t, []byte("speed change")):
		st.addSeenNet(name)
		st.speedChange(m, t)
	case bytes.Contains(t, []byte("GID table change")):
		st.addSeenNet(name)
		st.gidChange(m, t)
	case bytes.Contains(t, []byte("sync event")) || bytes.Contains(t, []byte("async fatal event")) || bytes.Contains(t, []byte("async error event")):
		st.asyncEvent(m, t)
	case bytes.Contains(t, []byte("ncompatible")):
		st.addSeenNet(name)
		st.failed("ib-link-mismatch", "Two ranks try to connect devices of different kind (InfiniBand and RoCE): let NCCL_IB_HCA name devices of one fabric only.", m)
	case bytes.HasPrefix(t, []byte("IbDev ")):
		st.addSeenNet(name)
		st.gidLine(m, t)
	case bytes.HasPrefix(t, []byte("[")):
		st.addSeenNet(name)
		st.addDevices(&st.ibDevices, parseDeviceLine(t))
	case m.warn:
		st.addSeenNet(name)
		st.otherWarn(m)
	case name != "IB" && bytes.HasPrefix(t, []byte("Initializing")):
		st.addSeenNet(name)
	}
}

func (st *state) netSocket(m *message) {
	t := bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimLeft(m.arg, " "), []byte(":")), " ")
	switch {
	case bytes.HasPrefix(t, []byte("Using [")):
		st.socketIfs = true
		m.proc.goesOn(startSocket)
		st.at(m.proc, t)
	case bytes.HasPrefix(t, []byte("No interface found")) || bytes.HasPrefix(t, []byte("No device found")):
		st.noInterface(m)
	}
}

func (st *state) netOFI(m *message) {
	t := string(bytes.TrimLeft(m.arg, " :"))
	if _, failed := st.facts[factOFIFailed]; !failed {
		st.addSeenNet("OFI")
	}
	low := strings.ToLower(t)
	switch {
	case strings.HasPrefix(low, "selected provider is "):
		prov := strings.TrimSpace(t[len("selected provider is "):])
		if i := strings.IndexAny(prov, ", ("); i >= 0 {
			prov = prov[:i]
		}
		if isTCPProvider(prov) {
			st.fact(m, CauseProviderTCP, prov)
			st.announce(m)
		}
	case strings.Contains(low, "comm with ") && strings.HasSuffix(low, " nodes."):
		// The tuner: '… comm with 16 ranks and 2 nodes.'
		n, k := intAfter(m.text, "comm with "), intAfter(m.text, " ranks and ")
		if n > 0 && k > 0 && n < 1<<24 && k <= n {
			st.nranks, st.nnodes = max(st.nranks, n), max(st.nnodes, k)
			st.announce(m)
		}
	case strings.Contains(low, "initializing plugin failed"),
		strings.Contains(low, "initialization failed"),
		strings.Contains(low, "failing initialization"),
		strings.Contains(low, "find any optimal provider"),
		strings.Contains(low, "no eligible providers"),
		strings.Contains(low, "only efa provider"):
		// aws-ofi-nccl gives up; NCCL then asks its own transports, so that "no
		// device" of NET/IB is a consequence.
		detail := st.ofiDetail()
		if strings.Contains(low, "no eligible providers") || strings.Contains(low, "find any optimal provider") || strings.Contains(low, "only efa provider") {
			detail = ofiNoDevice
		}
		st.fact(m, factOFIFailed, detail)
		st.seenNets = slices.DeleteFunc(st.seenNets, func(n string) bool { return n == "OFI" })
		if m.warn {
			st.otherWarn(m)
		}
	case strings.Contains(low, "disabling gdr"), strings.Contains(low, "gdr disabled"),
		strings.Contains(low, "gpu direct rdma") && strings.Contains(low, "not supported"):
		st.gdrReason(m, gdrOFI, t)
		if m.warn {
			st.otherWarn(m)
		}
	case m.warn:
		st.otherWarn(m)
	}
}

// isTCPProvider reports whether a libfabric provider moves data over sockets.
func isTCPProvider(prov string) bool {
	core, _, _ := strings.Cut(strings.ToLower(prov), ";")
	return core == "tcp" || core == "sockets" || core == "udp" || core == "net"
}

func (st *state) netPlugin(m *message) {
	t := string(m.arg)
	switch {
	case strings.Contains(t, "Failed to find ncclNetPlugin") || strings.Contains(t, "Could not find") || strings.Contains(t, "No plugin found"):
		// The usual case: no external plugin, the built-in transports are used.
		if strings.Contains(t, "internal") {
			m.proc.goesOn(startPlugins)
		}
	case strings.Contains(t, "is unsupported") || strings.Contains(t, "Disabling external"):
		st.fact(m, CausePluginFailed, strings.Trim(t, " :"))
	case strings.Contains(t, "Plugin load") && !strings.Contains(t, "No such file"):
		// dlopen found the file and could not load it.
		st.fact(m, CausePluginFailed, strings.Trim(t, " :"))
	}
}

// netOther names the network of a plugin by its own lines (NET/FastSocket :
// Using …, NET/TCPX, NET/FasTrak), where no "Using network" line is there.
func (st *state) netOther(m *message) {
	name, rest, ok := strings.Cut(string(m.arg), " ")
	if !ok || name == "" || strings.ContainsAny(name, "/()0123456789:") && !strings.HasPrefix(name, "IBext") {
		return
	}
	rest = strings.TrimLeft(rest, " :")
	if direct, ok := strings.CutPrefix(rest, "GPU Direct RDMA "); ok {
		st.addSeenNet(name)
		st.gdrForHCA(m, []byte(direct))
		return
	}
	if strings.HasPrefix(rest, "Using ") {
		st.addSeenNet(name)
		if devs := parseDevices([]byte(rest[len("Using "):])); len(devs) > 0 {
			st.addDevices(&st.devices, devs)
		}
	}
}

func (st *state) verbsMissing(m *message) {
	st.ibProbed = true
	st.fact(m, CauseVerbsMissing, "")
}

func (st *state) sysfsHidden(m *message) {
	if bytes.Contains(m.arg, []byte("/sys/class/net/")) {
		return // any virtual interface: says nothing of RDMA
	}
	st.ibProbed = true
	st.fact(m, CauseHidden, word(m.arg))
}

// parseDevices reads the items of a Using line: ' [0]mlx5_0:1/RoCE', fused NICs
// '[0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}' (2.20 to 2.23), and a rail and plane
// behind the port '[0]mlx5_0:1:3:0/IB' (2.30 on).
func parseDevices(t []byte) []string {
	if i := bytes.Index(t, []byte("OOB ")); i >= 0 {
		t = t[:i]
	}
	var out []string
	for _, item := range bytes.FieldsFunc(t, func(r rune) bool { return r == ' ' || r == ';' || r == ',' || r == '{' || r == '}' }) {
		if i := bytes.LastIndexByte(item, ']'); i >= 0 {
			item = item[i+1:]
		}
		dev, layer, ok := bytes.Cut(item, []byte("/"))
		layer, _, _ = bytes.Cut(layer, []byte("/")) // NVIDIA's plugin adds /SHARP
		if !ok || !isLayer(layer) {
			continue
		}
		if d := deviceName(dev, layer); d != "" {
			out = append(out, d)
		}
	}
	return out
}

func isLayer(b []byte) bool { return string(b) == "IB" || string(b) == "RoCE" }

func deviceName(dev, layer []byte) string {
	f := bytes.Split(dev, []byte(":"))
	if len(f) < 2 || len(f[0]) == 0 || len(f[0]) > 64 || !allDigits(f[1]) {
		return ""
	}
	return string(f[0]) + ":" + string(f[1]) + "/" + string(layer)
}

// parseDeviceLine reads 'NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=…' and, before
// 2.20, '[0] mlx5_0:1/RoCE'.
func parseDeviceLine(t []byte) []string {
	_, rest, ok := bytes.Cut(t, []byte("] "))
	if !ok {
		return nil
	}
	item, _, _ := bytes.Cut(rest, []byte(" "))
	dev, layer, ok := bytes.Cut(item, []byte("/"))
	layer, _, _ = bytes.Cut(layer, []byte("/"))
	if !ok || !isLayer(layer) {
		return nil
	}
	f := bytes.Split(dev, []byte(":"))
	if len(f) == 3 && bytes.HasPrefix(f[1], []byte("uverbs")) {
		dev = bytes.Join([][]byte{f[0], f[2]}, []byte(":"))
	}
	if d := deviceName(dev, layer); d != "" {
		return []string{d}
	}
	return nil
}

func (st *state) addDevices(to *[]string, devs []string) {
	for _, d := range devs {
		if !slices.Contains(*to, d) && len(*to) < 256 {
			*to = append(*to, d)
		}
	}
}

// linkLayers warns of a set that holds both InfiniBand and RoCE ports: almost
// always a storage or management NIC that should not be in it.
func (st *state) linkLayers(m *message) {
	var ib, roce []string
	for _, d := range st.devices {
		name, layer, _ := strings.Cut(d, "/")
		if layer == "IB" {
			ib = append(ib, name)
		} else {
			roce = append(roce, name)
		}
	}
	if len(ib) == 0 || len(roce) == 0 {
		return
	}
	odd := roce
	if len(ib) < len(roce) {
		odd = ib
	}
	st.warned("mixed-link-layers", "NCCL uses InfiniBand and RoCE ports at once; "+strings.Join(odd, ", ")+" is probably not of the job's fabric: exclude it with NCCL_IB_HCA=^"+strings.Join(odd, ",")+".", m)
}

// --- channels ---

var viaMark = []byte(" via ")

// channelLine reads a channel line. Ring membership ('Ring 00 : 3 -> 0 -> 1',
// 'Channel 00/16 : 0 1 2') has the same beginning and no ' via '.
func (st *state) channelLine(m *message) {
	i := viaAt(m.text)
	if i < 0 {
		if st.nranks == 0 {
			st.ringMembers(m.text)
		}
		return
	}
	via := m.text[i+len(viaMark):]
	m.proc.connects(m.text[:i], via)
	if len(via) > 24 {
		// RCCL says the communicator behind it: 'via NET/IB/0/GDRDMA comm 0x… nRanks 16'.
		if j := bytes.Index(via, []byte(" comm 0x")); j > 0 {
			st.nranks = max(st.nranks, min(intAfter(via[j:], "nRanks "), 1<<24))
			via = via[:j]
		}
	}
	overNet := bytes.HasPrefix(via, []byte("NET/"))
	inside := st.nnodes == 0 && !overNet
	if st.nranks == 0 || st.opt.Pairs || inside || overNet && !st.netLeaves {
		from, to := channelRanks(m.text[:i])
		if host, ok := st.rankHost[from]; overNet && (!ok || host != st.rankHost[to]) {
			st.netLeaves = true
		}
		st.maxRank = max(st.maxRank, from, to)
		if inside && from >= 0 && to >= 0 {
			st.intraRanks.add(from, maxProcs)
			st.intraRanks.add(to, maxProcs)
		}
		if st.opt.Pairs && from >= 0 && to >= 0 {
			st.pair(from, to, via)
		}
	}
	kind := gdrNone
	if t := st.knownVia(via); t != nil {
		kind = t.kind
	} else {
		kind = st.via(m, via)
	}
	m.proc.uses(m.dev, kind)
}

// begins and completes note the set-up of a communicator; a process may have
// several under way.
func (p *proc) begins() {
	if p == nil {
		return
	}
	p.open++
	p.comms++
	if p.phase >= phaseInitDone {
		p.phase = phaseAgain
		return
	}
	p.reached(phaseInitStart)
}

func (p *proc) completes() {
	if p == nil {
		return
	}
	p.open = max(0, p.open-1)
	if p.phase < phaseInitDone || p.open == 0 {
		p.phase = phaseInitDone
	}
}

// netInside warns of a connection over the network between two ranks of one node
// that has NVLink. Ranks are numbered by communicator, so only a process that is in
// one alone tells.
func (st *state) netInside(m *message) {
	p := m.proc
	if p == nil || !st.nvlink || p.comms != 1 || p.begunLen == 0 {
		return
	}
	from, to := channelRanks(p.begun[:p.begunLen])
	if from < 0 || to < 0 || from == to {
		return
	}
	here := 0
	for _, q := range st.hosts[p.host].procs {
		if q.nranks == p.nranks && q.comms == 1 {
			for _, r := range q.ranks {
				if r == from || r == to {
					here++
				}
			}
		}
	}
	if here == 2 {
		st.warned("nvlink-unused", fmt.Sprintf("GPUs of one node have NVLink, yet ranks %d and %d of %s talk over the network: check NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and which GPUs the container was given.", from, to, p.host), m)
	}
}

// connects notes a connection that a process begins. Behind the end of its set-up
// that is one for its first collective, unless it is one for a send or receive
// ('Channel 00/1'), of whose end NCCL says nothing.
func (p *proc) connects(t, via []byte) {
	if p == nil {
		return
	}
	if p.phase < phaseInitDone {
		p.reached(phaseChannels)
	} else if at := len("Channel 00"); len(t) > at+2 && string(t[at:at+3]) == "/0 " {
		p.phase = phaseFirst
	}
	if len(via) > 4 && string(via[:4]) == "NET/" {
		p.begunLen = uint8(copy(p.begun[:], t))
	}
}

// connected notes that connections have come up.
func (p *proc) connected() {
	if p != nil && p.phase == phaseFirst {
		p.phase = phaseInitDone
		return
	}
	p.reached(phaseConnected)
}

// uses counts a connection of one GPU of a process.
func (p *proc) uses(dev int, kind gdrKind) {
	if p == nil || dev < 0 {
		return
	}
	g := p.gpu(dev)
	if g == nil {
		return
	}
	switch kind {
	case gdrYes, gdrRelay:
		g.direct++
	case gdrNo:
		g.staged++
	case gdrUnknown, gdrNone:
	}
}

// gpu returns what is known of one GPU of a process; nil where there are too many.
func (p *proc) gpu(dev int) *gpuUse {
	for i := range p.gpus {
		if int(p.gpus[i].dev) == dev {
			return &p.gpus[i]
		}
	}
	if len(p.gpus) >= maxGPUs {
		return nil
	}
	p.gpus = append(p.gpus, gpuUse{dev: int16(dev), rank: -1})
	return &p.gpus[len(p.gpus)-1]
}

// ringMembers reads 'Channel 00/04 :    0   3   2   1 …': every rank of the
// communicator once, so their number is its size (2.10 and older say it nowhere else
// before the end of the set-up).
func (st *state) ringMembers(t []byte) {
	_, list, ok := bytes.Cut(t, []byte(" : "))
	if !ok || len(t) > 1000 || !bytes.HasPrefix(t, []byte("Channel ")) {
		return
	}
	f := bytes.Fields(list)
	for _, r := range f {
		if !allDigits(r) {
			return
		}
	}
	st.ringCut = st.ringCut || len(f) == ringListed
	st.ringSize = max(st.ringSize, len(f))
}

// ringListed is how many ranks of a ring NCCL lists at most, up to 2.7 (graph/rings.cc).
const ringListed = 20

// channelRanks returns the ranks of a connection: 'Channel 03 : 11[0] -> 3[0] …';
// -1 where they are cut off. Releases up to 2.7 cut the ring's list short, not this.
func channelRanks(t []byte) (from, to int) {
	i := bytes.IndexByte(t, ':')
	if i < 1 || t[i-1] != ' ' || i+1 >= len(t) || t[i+1] != ' ' {
		return -1, -1
	}
	from, rest := leadingInt(t[i+2:])
	i = bytes.IndexByte(rest, '>')
	if i < 1 || rest[i-1] != '-' || i+1 >= len(rest) || rest[i+1] != ' ' {
		return -1, -1
	}
	to, _ = leadingInt(rest[i+2:])
	return from, to
}

// pair counts a channel of one pair of ranks.
func (st *state) pair(from, to int, via []byte) {
	name := "P2P"
	switch {
	case bytes.HasPrefix(via, []byte("NET/")):
		net, rest, ok := bytes.Cut(via[len("NET/"):], []byte("/"))
		if !ok {
			return
		}
		name = "NET/" + string(net)
		if bytes.Contains(rest, []byte("/GDRDMA")) {
			name += "/GDRDMA"
		}
	case bytes.HasPrefix(via, []byte("SHM")), bytes.HasPrefix(via, []byte("direct shared")):
		name = "SHM"
	case bytes.HasPrefix(via, []byte("P2P/MNNVL")):
		name = "P2P/MNNVL"
	case bytes.HasPrefix(via, []byte("COLLNET")):
		return
	}
	key := pairKey{from, to, name}
	if _, ok := st.pairs[key]; ok || len(st.pairs) < maxPairs {
		st.pairs[key]++
	}
}

// localRank reads 'Connected to proxy localRank 3 -> …' and 'New proxy send
// connection 4 from local rank 3, transport 1': a node has at least that many.
func (st *state) localRank(m *message) {
	for _, key := range []string{"localRank ", "local rank "} {
		if n := intAfter(m.text, key); n >= 0 && n < 1024 {
			st.localRanks = max(st.localRanks, n+1)
			return
		}
	}
}

// via counts one connection by what carries it.
func (st *state) via(m *message, t []byte) gdrKind {
	switch {
	case bytes.HasPrefix(t, []byte("NET/")):
		count, kind := st.viaNet(m, t[len("NET/"):])
		if count != nil {
			st.keepVia(t, count, kind)
		}
		return kind
	case bytes.HasPrefix(t, []byte("P2P/MNNVL")):
		st.mnnvl = true
		st.intra["P2P/MNNVL"] = true
		st.keepVia(t, nil, gdrNone)
	case bytes.HasPrefix(t, []byte("P2P")):
		st.intra["P2P"] = true
		st.keepVia(t, nil, gdrNone)
	case bytes.HasPrefix(t, []byte("SHM")), bytes.HasPrefix(t, []byte("direct shared memory")):
		st.intra["SHM"] = true
		st.nvlinkUnused(m)
		st.keepVia(t, nil, gdrNone)
	case bytes.HasPrefix(t, []byte("COLLNET/")):
		// CollNet leaves the node: SHARP adds up in the switches.
		st.intra["COLLNET"] = true
		if bytes.Contains(t, []byte("/GDRDMA")) {
			st.collGDR[1]++
		} else {
			st.collGDR[0]++
		}
	}
	return gdrNone
}

// nvlinkUnused warns of ranks that talk through shared memory although the node
// has NVLink, whichever is said first.
func (st *state) nvlinkUnused(m *message) {
	if st.nvlink && st.intra["SHM"] {
		st.warned("nvlink-unused", "GPUs of one node have NVLink, yet ranks talk through shared memory: check NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and the container's IPC ("+topology.GiveIPC+").", m)
	}
}

// viaNet reads '<net>/<dev>[(<proxy rank>)][/GDRDMA[(PCI)]][/Shared]'; the net's
// name may hold spaces. It returns where channels of that kind are counted, nil
// where the text is no such thing, and the kind.
func (st *state) viaNet(m *message, t []byte) (*int, gdrKind) {
	name, rest, ok := bytes.Cut(t, []byte("/"))
	if !ok || len(name) == 0 || len(name) > 40 {
		return nil, gdrNone
	}
	dev, rest := leadingInt(rest)
	if dev < 0 {
		return nil, gdrNone
	}
	relay := false
	if len(rest) > 0 && rest[0] == '(' {
		if _, after := leadingInt(rest[1:]); len(after) > 0 && after[0] == ')' {
			relay, rest = true, after[1:]
		}
	}
	kind := gdrUnknown
	switch {
	case bytes.HasPrefix(rest, []byte("/GDRDMA")):
		kind = gdrYes
		if relay {
			kind = gdrRelay
		}
	case len(rest) == 0 || bytes.IndexByte([]byte(" \t\"'`)]}|<,;\\"), rest[0]) >= 0 || bytes.HasPrefix(rest, []byte("/Shared")):
		kind = gdrNo
	}
	if n, ok := st.channels[transportKey{string(name), dev, kind}]; ok {
		*n++
		return n, kind
	}
	net := string(name)
	st.addSeenNet(net)
	first := len(st.channels) == 0
	count := 1
	if len(st.channels) < 4096 {
		st.channels[transportKey{net, dev, kind}] = &count
	}
	if st.nnodes == 1 {
		st.warned("net-in-node", "Ranks of one node talk over the network ("+net+"): peer access and shared memory are off; check NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and the container's /dev/shm.", m)
	}
	if first || net == netSocketName {
		st.announce(m)
	}
	return &count, kind
}

func (st *state) connectedRings(m *message) {
	m.proc.connected()
	st.netInside(m)
	st.gdrOff(m)
	st.connected++
	if g := intAfter(m.text, " GDR "); g == 0 || g == 1 {
		st.ringGDR[g]++
	}
	st.announce(m)
}

func (st *state) connectedOther(m *message) {
	m.proc.connected()
	if bytes.HasPrefix(m.text, []byte("Connected all trees")) {
		st.kept(m)
	}
}

// warning reads what a warning says in fixed words.
func (st *state) warning(m *message) bool {
	t := m.text
	if bytes.Contains(t, []byte("bind failed")) || bytes.HasPrefix(t, []byte("Call to bind")) {
		st.bindFailed(m)
		return true
	}
	switch {
	case bytes.Contains(t, []byte("socket interface found")), bytes.Contains(t, []byte("usable listening interface found")):
		st.noInterface(m)
		return true
	case bytes.Contains(t, []byte("is neither AF_INET")):
		st.failed("socket-family", "NCCL was given no address to connect to: "+st.ifname("the interface that NCCL_SOCKET_IFNAME names")+" does not exist on a node, or has no address there. Set it to an interface that every node has, or unset it.", m)
		return true
	case bytes.Contains(t, []byte("Failed to execute operation ")):
		what := wordAfter(t, "operation ")
		if r := intAfter(t, "from rank "); r >= 0 {
			what += " from rank " + strconv.Itoa(r)
		}
		st.secondary("nccl-proxy", "NCCL's helper thread could not carry out "+what+": a line before says why, here or on the peer.", m)
		return true
	}
	p := st.says(m, t, ncclPhrases)
	if p == nil {
		return false
	}
	switch {
	case p.id == "ofi-endpoint":
		st.fact(m, factOFIFailed, st.ofiDetail())
	case bytes.HasPrefix(t, []byte("NET/OFI")) && !st.hasFact(factOFIFailed):
		st.addSeenNet("OFI")
	case bytes.HasPrefix(t, []byte("Call to ibv_")), bytes.HasPrefix(t, []byte("NET/IB")):
		st.addSeenNet("IB")
	}
	return true
}

// ofiDetail is whether libfabric's plugin failed because there is no device for it.
func (st *state) ofiDetail() string {
	if st.hasFact(factEFAEmpty) {
		return ofiNoDevice
	}
	return ""
}

// noInterface says that NCCL has nothing to set itself up with.
func (st *state) noInterface(m *message) {
	st.failed("no-interface", "NCCL found no network interface for its set-up: "+st.ifname("NCCL_SOCKET_IFNAME, if it is set,")+" matches none of this node that is up and has an address (a leading = means the exact name, ^ leaves out; docker* and lo count only where named). Name one that ip -br addr shows here, or unset it.", m)
}

// ifname is the user's choice of interface where the log shows it.
func (st *state) ifname(otherwise string) string {
	if v := st.env["NCCL_SOCKET_IFNAME"]; v != "" {
		return "NCCL_SOCKET_IFNAME=" + v
	}
	return otherwise
}

// bindFailed tells NCCL's own port, for which the whole job waits, from that of its monitoring.
func (st *state) bindFailed(m *message) {
	t := string(m.text)
	switch {
	case bytes.Contains(m.raw, []byte("ras/")):
		st.record(m, &phrase{id: "ras-port", grade: remark}, "NCCL's monitoring (RAS) did not get its port, because another process of the node has it: harmless; the job itself is not touched.")
	case strings.Contains(t, "assign requested address"):
		st.failed("bind-address", "NCCL was told to listen on an address that this node or container does not have: NCCL_COMM_ID (or MASTER_ADDR) names the host's address, and a container on a bridge has its own. Give the container the host's network ("+topology.GiveNetwork+"), or give an address that ip addr shows where rank 0 runs.", m)
	case strings.Contains(t, "ddress already in use"):
		st.failed("bind-port", "NCCL's port is taken by another process of the node: give NCCL_COMM_ID a free port, or look for a left-over job.", m)
	default:
		st.failed("bind-address", "NCCL could not listen on the address it was given ("+shown(m.text)+"): check NCCL_COMM_ID and NCCL_SOCKET_IFNAME against ip addr of this node.", m)
	}
}

func (st *state) bootstrapLine(m *message) {
	m.proc.reached(phaseBootstrap)
	st.ownBootstrap = true
	st.at(m.proc, m.text)
}

// ownAddress reads by which address a process is reached: 'Bootstrap : Using
// eth0:10.0.0.1<0>', '… [0]eth0:10.0.0.1<0>', '… OOB eth0:10.0.0.1<0>'.
func ownAddress(t []byte) (iface, address string) {
	end := bytes.IndexByte(t, '<')
	if end < 0 {
		return "", ""
	}
	t = t[:end]
	t = t[bytes.LastIndexAny(t, " ]")+1:]
	name, addr, ok := bytes.Cut(t, []byte(":"))
	if !ok || len(name) == 0 || len(name) > 16 {
		return "", ""
	}
	if a, err := netip.ParseAddr(string(addr)); err == nil && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
		return string(name), string(addr)
	}
	return "", ""
}

// start is how much of a process's start is in the log. NCCL asks its own RDMA
// transport before sockets, and that one always says what it found, at INIT, unless
// NCCL_NET or NCCL_IB_DISABLE takes it out (src/plugin/net.cc, transport/net_ib.cc). A
// missing line proves nothing where the log was searched, quoted in part or written
// for other subsystems; but where lines of INIT alone that have nothing to do with
// networks stand before the search for a transport, in its middle and behind it, none
// of that is so. The one in the middle is there from 2.26 on.
type start uint8

const (
	startNone    start = iota
	startDriver        // 'cudaDriverVersion 12040'
	startPlugins       // 'NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.'
	startSocket        // 'NET/Socket : Using [0]eth0:10.0.0.1<0>'
	startMiddle        // 'PROFILER/Plugin: Could not find: libnccl-profiler.so.'
	startChosen        // 'Using network Socket'
)

// goesOn notes a line of a process's start; it counts behind the one before it.
func (p *proc) goesOn(to start) {
	if p != nil && p.start == to-1 {
		p.start = to
	}
}

func (st *state) driverLine(m *message) {
	if !st.again(m) {
		m.proc.goesOn(startDriver)
	}
}

func (st *state) profilerLine(m *message) { m.proc.goesOn(startMiddle) }

// --- what the user set ---

func (st *state) echoIBHCA(m *message) {
	st.setEnv("NCCL_IB_HCA", settingValue("NCCL_IB_HCA", string(m.arg)))
}

// echoEnv reads 'NAME set by environment to V.' (numbers have the dot, strings
// do not) and 'NAME set to V'.
func (st *state) echoEnv(m *message) {
	t := string(m.text)
	for _, sep := range []string{" set by environment to ", " set to "} {
		if name, v, ok := strings.Cut(t, sep); ok && !strings.Contains(name, " ") {
			st.setEnv(name, settingValue(name, v))
			if name == "NCCL_NET" || name == "NCCL_IB_DISABLE" {
				st.announce(m)
			}
			return
		}
	}
}

func (st *state) echoConfigNet(m *message) {
	if name, v, ok := strings.Cut(string(m.arg), "="); ok {
		st.setEnv(name, settingValue(name, v))
		st.announce(m)
	}
}

// settingValue returns the value that t begins with: up to the full stop with which
// NCCL ends a number, and to what exports and other processes glue behind it.
func settingValue(name, t string) string {
	t = strings.TrimLeft(t, " \"'`")
	number := 0
	for number < len(t) && (isDigit(t[number]) || number == 0 && t[0] == '-') {
		number++
	}
	if number > 0 && number < len(t) && t[number] == '.' && !slices.Contains(addressSettings, name) {
		return t[:number]
	}
	end := 0
	for end < len(t) && !endsValue(name, t[end:]) {
		end++
	}
	return strings.TrimRight(t[:end], ".,")
}

// endsValue reports whether the value of a setting ends where rest begins. Of networks
// alone there are names with a space (AWS Libfabric).
func endsValue(name, rest string) bool {
	next := byte(0)
	if len(rest) > 1 {
		next = rest[1]
	}
	switch c := rest[0]; c {
	case '\t', '"', '\'', '`', ')', ']', '}', '|', '<', '&', ';':
		return true
	case '\\':
		return next == 'n' || next == '"' || next == '\\' || strings.HasPrefix(rest, `\r\`)
	case ' ':
		return name != "NCCL_NET" || next < 'A' || next > 'z'
	case ',':
		return name == "NCCL_NET"
	default:
		return c >= 0x80
	}
}

// addressSettings may begin with an IPv4 address.
var addressSettings = []string{"NCCL_COMM_ID", "NCCL_IB_ADDR_RANGE", "NCCL_RAS_ADDR", "NCCL_HOSTID"}

// setEnv remembers a setting; the first one wins, as NCCL reads each once.
func (st *state) setEnv(name, value string) {
	if !strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "UCX_") && !strings.HasPrefix(name, "OMPI_") && !strings.HasPrefix(name, "FI_") && !strings.HasPrefix(name, "I_MPI_") {
		return
	}
	if len(st.env) >= 256 || len(value) > 1024 {
		return
	}
	if _, ok := st.env[name]; !ok {
		st.env[name] = value
	}
}

// --- errors ---

// completion reads a completion error in the forms of 2.3 to 2.30:
// 'with error 12, opcode …', 'with status=12 opcode=…', 'with status=IBV_WC_RETRY_EXC_ERR(12) …'.
func (st *state) completion(m *message) {
	t := m.text
	n := -1
	if bytes.Contains(t, []byte("Got CQE with error")) {
		return // the line after it names the status (2.29.7 on)
	}
	for _, key := range []string{"with error ", "with status=", "status="} {
		i := bytes.Index(t, []byte(key))
		if i < 0 {
			continue
		}
		rest := t[i+len(key):]
		if n, _ = leadingInt(rest); n >= 0 {
			break
		}
		if open := bytes.IndexByte(rest, '('); open >= 0 && open < 64 {
			if n, _ = leadingInt(rest[open+1:]); n >= 0 {
				break
			}
		}
	}
	id, text := "ib-completion-error", "An RDMA operation failed"
	if n >= 0 {
		id += "-" + strconv.Itoa(n)
		text += " with completion error " + strconv.Itoa(n)
		if name := wcNames[n]; name != "" {
			text += " (" + name + ")"
		}
	}
	if peer := completionPeer(t); peer != "" {
		text += ", peer " + peer
	}
	if hca := wordAfter(t, " hca "); hca != "" {
		text += ", device " + hca
	}
	local, remote := gidsOf(t)
	if local != "" {
		text += ", local GID " + local
	}
	if remote != "" {
		text += ", remote GID " + remote
	}
	text += ". " + wcAdvice(n)
	if st.failover {
		st.warned(id, text, m)
		return
	}
	st.failed(id, text, m)
}

// wcNames is ibv_wc_status (rdma-core libibverbs/verbs.h).
var wcNames = map[int]string{
	1: "local length", 2: "local QP operation", 3: "local EE context", 4: "local protection", 5: "flushed",
	6: "memory window bind", 7: "bad response", 8: "local access", 9: "remote invalid request",
	10: "remote access", 11: "remote operation", 12: "retry exceeded", 13: "receiver not ready", 21: "general",
}

func wcAdvice(n int) string {
	switch n {
	case 12:
		return "The peer did not answer: check that its port is up, that both ends use GIDs of one network, and MTU, PFC and routing between them."
	case 5:
		return "It was flushed after another error: look for the first error, also on the peer."
	case 13:
		return "The receiver was not ready for too long: look at what the peer does."
	case 4, 8, 10, 11:
		return "The memory was not accessible to the device: look at GPUDirect, IOMMU and ACS settings of the node that reports it."
	}
	return "Look at the peer's log for the same second."
}

func completionPeer(t []byte) string {
	p := wordAfter(t, "from peer ")
	p, _, _ = strings.Cut(p, "<")
	return p
}

func gidsOf(t []byte) (local, remote string) {
	local = gidWord(t, "localGid ")
	for _, key := range []string{"remoteGids", "remoteGid "} {
		if remote = gidWord(t, key); remote != "" {
			break
		}
	}
	return local, remote
}

func gidWord(t []byte, key string) string {
	w := strings.TrimRight(wordAfter(t, key), ",)")
	if strings.Contains(w, ":") {
		return w
	}
	return ""
}

// wordAfter returns the word behind key in t, or "".
func wordAfter(t []byte, key string) string {
	i := bytes.Index(t, []byte(key))
	if i < 0 {
		return ""
	}
	return word(bytes.TrimLeft(t[i+len(key):], " "))
}

func (st *state) asyncEvent(m *message, t []byte) {
	// A port event comes as a warning and is harmless unless it is fatal.
	if bytes.Contains(t, []byte("non-fatal")) {
		st.warned("ib-async:"+shown(t), "The device reported: "+shown(t)+".", m)
		return
	}
	// Up to 2.23 the event is named only as the verbs library does.
	if bytes.Contains(t, []byte("fatal")) || bytes.Contains(t, []byte("catastrophic")) || bytes.Contains(t, []byte("work queue error")) {
		st.failed("ib-async-fatal", "The device reported a fatal event ("+shown(t)+"): look at the kernel log and the link of that device.", m)
		return
	}
	for _, harmless := range []string{"client reregistration", "GID table change", "port active", "SM change", "SM LID", "LID change", "P_Key", "last WQE"} {
		if bytes.Contains(t, []byte(harmless)) {
			st.warned("ib-async:"+shown(t), "The device reported: "+shown(t)+".", m)
			return
		}
	}
	st.warned("ib-async:"+shown(t), "The device reported an event ("+shown(t)+"): look at the kernel log and the link of that device.", m)
}

// callFailed reads 'Call to <ibv_fn> failed …' and, before 2.24, 'Call to connect
// returned …'.
func (st *state) callFailed(m *message) {
	t := string(m.arg)
	fn, rest, _ := strings.Cut(t, " ")
	if strings.HasPrefix(fn, "connect") {
		st.socketFailed(m)
		return
	}
	if !strings.HasPrefix(fn, "ibv_") && !strings.HasPrefix(fn, "mlx5dv_") || !strings.Contains(rest, "failed") {
		if m.warn {
			st.otherWarn(m)
		}
		return
	}
	st.ibProbed = true
	errno, name := verbsErrno(rest)
	switch {
	case strings.HasPrefix(fn, "ibv_modify_qp"):
		st.addSeenNet("IB")
		st.modifyQP(m, errno, name)
	case strings.HasPrefix(fn, "ibv_open_device"):
		// The next line names the device.
		st.fact(m, CauseDeviceOpen, "")
	case strings.HasPrefix(fn, "ibv_reg_"):
		st.addSeenNet("IB")
		if errno == 12 || strings.Contains(rest, "Cannot allocate memory") {
			st.failed("memlock", memlockText, m)
		} else {
			st.failed("ib-reg-mr", "GPU memory could not be registered with the device ("+name+"): load nvidia_peermem on the node (modprobe nvidia-peermem; after an update of the GPU driver or OFED it has to be the one that fits), or use DMA-BUF. NCCL_NET_GDR_LEVEL=LOC sends through the host meanwhile.", m)
		}
	case strings.HasPrefix(fn, "ibv_create_") && (errno == 12 || strings.Contains(rest, "Cannot allocate memory")):
		st.addSeenNet("IB")
		st.failed("memlock", "The device could not get memory for a queue: raise the locked-memory limit ("+memlockGive+"); where it is unlimited, there are more queue pairs than the device has room for.", m)
	case strings.HasPrefix(fn, "ibv_create_qp"), strings.HasPrefix(fn, "ibv_create_cq"), strings.HasPrefix(fn, "ibv_alloc_pd"):
		st.addSeenNet("IB")
		st.failed("ib-create", "The device refused to create a queue ("+fn+": "+name+"): check the locked-memory limit and how many queue pairs are in use.", m)
	case m.warn:
		st.warned("ib-call:"+fn, "The call "+fn+" failed ("+name+").", m)
	}
}

// verbsErrno reads 'failed with 110 Connection timed out, on dev …', 'failed with
// error Invalid argument errno 22' and 'failed with error Invalid argument'.
func verbsErrno(t string) (int, string) {
	_, t, ok := strings.Cut(t, "failed with ")
	if !ok {
		return -1, "no reason given"
	}
	t = strings.TrimPrefix(t, "error ")
	n, rest := leadingInt([]byte(t))
	if n >= 0 {
		t = strings.TrimSpace(string(rest))
	}
	name, tail, _ := strings.Cut(t, ",")
	if n < 0 {
		if i := strings.Index(name, " errno "); i >= 0 {
			n, _ = leadingInt([]byte(name[i+len(" errno "):]))
			name = name[:i]
		} else if e := intAfter([]byte(tail), "errno "); e >= 0 {
			n = e
		}
	}
	name = strings.TrimSpace(name)
	if n < 0 {
		for num, text := range errnoText {
			if strings.HasPrefix(name, text) {
				n = num
			}
		}
	}
	return n, name
}

// errnoText is what glibc calls the errors that queue pairs meet.
var errnoText = map[int]string{
	1: "Operation not permitted", 12: "Cannot allocate memory", 13: "Permission denied", 14: "Bad address", 19: "No such device", 22: "Invalid argument", 61: "No data available",
	101: "Network is unreachable", 110: "Connection timed out", 113: "No route to host",
}

func (st *state) modifyQP(m *message, errno int, name string) {
	id := "ib-modify-qp"
	if errno >= 0 {
		id += "-" + strconv.Itoa(errno)
	}
	text := "A queue pair could not be connected (" + name + ")"
	if dev := wordAfter(m.text, "on dev "); dev != "" {
		text += " on " + dev
	}
	if l := wordAfter(m.text, "local GID "); l != "" && l != "index" {
		text += ", local GID " + l
	} else if i := bytes.LastIndex(m.text, []byte("local GID ")); i >= 0 {
		if l := word(bytes.TrimLeft(m.text[i+len("local GID "):], " ")); l != "index" && l != "" {
			text += ", local GID " + l
		}
	}
	if r := wordAfter(m.text, "remote GID "); r != "" {
		text += ", remote GID " + r
	}
	text += ". "
	switch errno {
	case 22:
		text += "Usually a wrong GID index: unset NCCL_IB_GID_INDEX (NCCL 2.21 and later) or name the RoCE v2 one of the job's network."
	case 61:
		text += "The GID index that is set is empty on this port: unset NCCL_IB_GID_INDEX (NCCL 2.21 and later) or use the index that holds the address now."
	case 110:
		text += "The peer's address does not answer (ARP): check route and VLAN between the two ports; rails may not reach each other."
	case 101, 113:
		text += "There is no route to the peer's GID from this port: the two devices are not on one network; let NCCL_IB_HCA name only those that reach each other."
	case 12:
		text += "Memory could not be locked: raise the locked-memory limit."
	case 19:
		text += "The GID that it uses has no network interface here: in a container or VM the interface of this port (its netdev, its VF) and its address must be inside, too (" + topology.GiveNetwork + "); else the GID index is one of another interface: unset NCCL_IB_GID_INDEX (NCCL 2.21 and later) or name the right one."
	case 1, 13:
		text += "The process may not use the port: a container without the device (" + topology.GiveDevices + "), or a partition or VF that the fabric's manager does not admit."
	default:
		text += "Check GID index, MTU and link of both ports."
	}
	st.failed(id, text, m)
}

// topologyLine reads the indented lines of NCCL's picture of the node:
// '   + NVL[123.6] - GPU/0-26000'.
func (st *state) topologyLine(m *message) {
	if !st.nvlink && bytes.Contains(m.text, []byte("+ NVL[")) {
		st.nvlink = true
		st.nvlinkUnused(m)
	}
}

func (st *state) noLocalPath(m *message) {
	st.failed("no-path-to-net", "NCCL found no path from a GPU to any network device: the PCI topology is hidden (VM, container) or NCCL_TOPO_FILE is wrong.", m)
}

func (st *state) noTransport(m *message) {
	st.failed("no-transport", "NCCL found no way to connect two ranks: check NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and the network.", m)
}

func (st *state) mergeRefused(m *message) {
	st.addSeenNet("IB")
	st.failed("nic-merge-refused", "NCCL_NET_FORCE_MERGE joins devices of different NUMA nodes, which NCCL refuses: unset it.", m)
}

func (st *state) fatalComm(m *message) {
	if m.warn {
		st.failed("nccl-fatal", "A communicator met a fatal error: the first error above says why.", m)
	}
}

// rankWarn reads 'Rank 1 on host-b could not open mlx5_1 …' and 'Rank 1: channels on
// the extra devices of other ranks have no peer here …' (2.30 on).
func (st *state) rankWarn(m *message) {
	t := string(m.text)
	switch {
	case strings.Contains(t, "could not open "):
		dev := wordAfter(m.text, "could not open ")
		st.fact(m, CauseDeviceOpen, dev)
		st.warned("device-open:"+dev, "RDMA device "+dev+" cannot be opened by one rank that others use: give every rank access to /dev/infiniband, or let NCCL_IB_HCA name only what all can open.", m)
	case strings.Contains(t, "have no peer here"):
		st.failed("hca-sets-differ", "Ranks use different sets of RDMA devices, so channels have no peer and the job hangs: make NCCL_IB_HCA name devices that every rank can open.", m)
	}
}

func (st *state) mixedCounts(m *message) {
	st.warned("hca-counts-differ", "Ranks see different numbers of network devices: "+shown(m.text), m)
}

func (st *state) connectionClosed(m *message) {
	st.secondary("connection-closed", "A peer closed its connection; that is usually the consequence of an error or exit elsewhere.", m)
}

func (st *state) socketProgress(m *message) {
	if bytes.Contains(m.text, []byte("Connection closed by remote peer")) || bytes.Contains(m.text, []byte("Connection reset by peer")) || bytes.Contains(m.text, []byte("Broken pipe")) {
		st.connectionClosed(m)
	}
}

// socketFinalize reads 'socketFinalizeAccept…: wrong type 4 != 3': 1 bootstrap, 2
// proxy, 3 socket network, 4 IB network, 5 RAS.
func (st *state) socketFinalize(m *message) {
	t := string(m.text)
	if strings.Contains(t, "wrong type 4 != 3") || strings.Contains(t, "wrong type 3 != 4") {
		st.fact(m, CauseMixed, "IB, Socket")
		st.failed("mixed-networks", causeTexts[CauseMixed], m)
		st.announce(m)
		return
	}
	if strings.Contains(t, "wrong magic") {
		st.warned("foreign-connection", "Something that is not this job connected to one of its ports.", m)
	}
}

// socketFailed reads a failed connect. Retries are normal at start; giving up is not.
func (st *state) socketFailed(m *message) {
	t := string(m.text)
	if strings.Contains(t, "retrying") && !strings.Contains(t, "exceeded") {
		if peer := wordAfter(m.text, "connect to "); peer != "" && m.proc != nil {
			m.proc.waitsFor = peer
		}
		return
	}
	reason := ""
	for _, e := range []string{"Connection refused", "No route to host", "Connection timed out", "Network is unreachable", "Address family not supported"} {
		if strings.Contains(t, e) {
			reason = e
		}
	}
	if _, after, ok := strings.Cut(t, " failed : "); ok && reason == "" {
		reason = after
	}
	if reason == "" && !strings.Contains(t, "exceeded") && !strings.Contains(t, "attempts") {
		return
	}
	text := "A control connection"
	if _, peer, ok := strings.Cut(t, "onnect to "); ok {
		if peer, _, ok = strings.Cut(peer, "<"); ok && len(peer) < 256 && !strings.Contains(peer, " ") {
			text += " to " + peer
		}
	}
	text += " could not be made"
	if reason != "" {
		text += " (" + reason + ")"
	}
	switch reason {
	case "No route to host":
		text += ": a firewall on the way or on that node rejects it (open all ports between the job's nodes), or this node has no way into that network: let NCCL_SOCKET_IFNAME name an interface that all nodes share."
	case "Connection refused":
		text += ": nobody listens there. The peer ended (its own log says why), or the address is one that another machine has too, as of docker0: let NCCL_SOCKET_IFNAME name the interface that all nodes share."
	case "Connection timed out", "Operation timed out":
		text += ": packets get lost on the way. A firewall drops them, or the address is of a network that this node does not reach: let NCCL_SOCKET_IFNAME name the interface that all nodes share."
	default:
		text += ": check NCCL_SOCKET_IFNAME and firewalls between the nodes."
	}
	st.failed("socket-connect", text, m)
}

// secondary records an error that follows from another one: it stands in the
// list of fatal errors only while no first cause is there.
func (st *state) secondary(id, text string, m *message) {
	st.failed(id, text, m)
}

// harmlessWarns are NCCL WARN lines that do not stop a job.
var harmlessWarns = []string{
	"NUMA auto balancing", "Resiliency is enabled", "is not supported", "ignoring", "Ignoring", "Missing \"iommu=pt\"",
	"NCCL_CUMEM", "performance", "deprecated", "MSCCL", "Could not find", "not found in", "No NIC",
}

// otherWarn is a warning without a pattern of its own: shown, and not judged.
func (st *state) otherWarn(m *message) {
	t := m.text
	switch {
	case bytes.Contains(t, []byte("Got completion")):
		st.completion(m)
		return
	case bytes.Contains(t, []byte("Connection closed by remote peer")):
		st.connectionClosed(m)
		return
	case bytes.Contains(t, []byte("exceeded error retry count")) || bytes.Contains(t, []byte("exceeded retries")):
		st.socketFailed(m)
		return
	}
	sev := SeverityWarning
	for _, h := range harmlessWarns {
		if bytes.Contains(t, []byte(h)) {
			sev = SeverityNote
		}
	}
	key := shown(t)
	if len(key) > 60 {
		key = key[:60]
	}
	st.emit("nccl-warn:"+key, Event{ID: "nccl-warn", Severity: sev, Text: "NCCL warns: " + shown(t)}, m)
}
