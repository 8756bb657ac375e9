package watch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// gdrWhy is a reason for which GPUDirect is off.
type gdrWhy uint8

const (
	gdrNoModule  gdrWhy = iota // neither peer memory nor DMA-BUF
	gdrDistance                // the device is farther from the GPU than the level allows
	gdrOFI                     // libfabric's plugin turned it off
	gdrUserLevel               // the user's own level does
	gdrHMEM                    // the device's provider knows no GPU memory
)

// gdrOffLead begins what is said of it.
const gdrOffLead = "GPUDirect is off, so data between nodes goes through the host's memory: "

// gdrText is what each reason means and what to do.
func (st *state) gdrText(why gdrWhy, detail string) string {
	switch why {
	case gdrNoModule:
		return "the RDMA driver may not reach GPU memory: load nvidia_peermem on the node (modprobe nvidia-peermem; before driver 470 nv_peer_mem), or use a kernel and driver with DMA-BUF; AMD: ib_peer_mem of the amdgpu driver"
	case gdrDistance:
		return "the GPU is too far from the device for NCCL's level (" + detail + "): use a device on the GPU's own PCIe switch or socket; where the platform can do it (no IOMMU, no ACS on the way) NCCL_NET_GDR_LEVEL=PHB or SYS widens the level, which is worth a measurement and not always faster"
	case gdrUserLevel:
		return "NCCL_NET_GDR_LEVEL=" + st.env["NCCL_NET_GDR_LEVEL"] + " forbids it (" + detail + "): unset it, or set the level that reaches the device"
	case gdrOFI:
		return "the libfabric plugin turned it off (" + detail + "): the instance type has none, or libfabric and the EFA driver are too old for it"
	case gdrHMEM:
		return "this EFA device has no RDMA reads, so libfabric cannot use GPU memory on it: the instance type has no GPUDirect"
	}
	return ""
}

// gdrReason keeps why GPUDirect is off for some pair of GPU and device. That is no
// trouble by itself: pairs that nobody uses are told, too.
func (st *state) gdrReason(m *message, why gdrWhy, detail string) {
	if _, ok := st.gdrWhys[why]; !ok {
		st.gdrWhys[why] = detail
		st.gdrLine = cmp.Or(st.gdrLine, shown(m.raw))
	}
}

// gdrForHCA reads 'Enabled for HCA 0 'mlx5_0”, 'Disabled for HCA 0 'mlx5_0' (no module)', and
// what 2.4 says of a pair: 'Disabled for GPU 0[0] / HCA 0 (distance 3 >= 2)'.
func (st *state) gdrForHCA(m *message, t []byte) {
	switch {
	case bytes.HasPrefix(t, []byte("Enabled for HCA")):
		st.hcaGDR[1]++
	case bytes.HasPrefix(t, []byte("Disabled for HCA")):
		st.hcaGDR[0]++
		st.gdrReason(m, gdrNoModule, "")
	case bytes.HasPrefix(t, []byte("Disabled for GPU")), bytes.HasPrefix(t, []byte("Enabled for GPU")):
		st.gdrForPair(m, t)
	}
}

// gdrPair reads 'GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)', which
// stands without the network's name from 2.5 on.
func (st *state) gdrPair(m *message) { st.gdrForHCA(m, m.arg) }

func (st *state) gdrForPair(m *message, t []byte) {
	if bytes.HasPrefix(t, []byte("Enabled")) {
		st.gdrPairs[1]++
		return
	}
	st.gdrPairs[0]++
	if bytes.Contains(t, []byte("no module")) {
		st.gdrReason(m, gdrNoModule, "")
		return
	}
	detail := strings.TrimPrefix(string(t), "Disabled for ")
	if len(detail) > 80 {
		detail = detail[:80]
	}
	if st.env["NCCL_NET_GDR_LEVEL"] != "" {
		st.gdrReason(m, gdrUserLevel, detail)
		return
	}
	st.gdrReason(m, gdrDistance, detail)
}

// gdrWhyText is the first reason that the log holds, "" where it holds none. Several
// may: what makes GPUDirect impossible says more than what limits it.
func (st *state) gdrWhyText() string {
	for _, why := range []gdrWhy{gdrNoModule, gdrHMEM, gdrOFI, gdrUserLevel, gdrDistance} {
		if detail, ok := st.gdrWhys[why]; ok {
			return st.gdrText(why, detail)
		}
	}
	return ""
}

// gdrOff says that a rank's connections to other nodes all go through the host, and why,
// once they have come up.
func (st *state) gdrOff(m *message) {
	why := st.gdrWhyText()
	if why == "" || m.proc == nil {
		return
	}
	staged, direct := uint32(0), uint32(0)
	for _, g := range m.proc.gpus {
		staged, direct = staged+g.staged, direct+g.direct
	}
	if staged > 0 && direct == 0 {
		st.warned("gdr-off", gdrOffLead+why+".", m)
	}
}

// gdrAtEnd adds the reason to a verdict whose connections came up without a word.
func (st *state) gdrAtEnd(v *Verdict) {
	why := st.gdrWhyText()
	if why == "" || v.GDR != nil && *v.GDR || slices.ContainsFunc(v.Events, func(e Event) bool { return e.ID == "gdr-off" }) {
		return
	}
	ev := Event{ID: "gdr-off", Severity: SeverityWarning, Host: st.opt.Host, Line: st.gdrLine, Text: gdrOffLead + why + "."}
	if v.GDR == nil {
		if st.hcaGDR[1] > 0 || st.gdrPairs[1] > 0 || v.NNodes != nil && *v.NNodes == 1 {
			return // for some GPU and device only, or nobody leaves the node
		}
		ev.Severity = SeverityNote
		ev.Text = "GPUDirect is off for a pair of GPU and device: " + why + "."
	}
	v.Events = append(v.Events, ev)
}

// --- rails: failover, speed, addresses ---

// deviceFailed reads that NCCL's failover took a device out: 'NET/IB: Device 1 marked as
// failed. Initiating recovery? No (send comm=0x…)' (2.28 on; p2p_resiliency.cc). The
// number is one within the connection's merged NIC.
func (st *state) deviceFailed(m *message, t []byte) {
	dev := -1
	for _, key := range []string{"Device ", "device "} {
		if dev = intAfter(t, key); dev >= 0 {
			break
		}
	}
	if dev < 0 {
		return
	}
	st.failover = true
	text := "NCCL gave up an RDMA device of a merged NIC (its number " + strconv.Itoa(dev) + ") and goes on with the others: fewer rails than planned from here on"
	if bytes.Contains(t, []byte("recovery? Yes")) {
		text += "; it tries to bring it back"
	}
	text += ". Look at link and cable of that node's ports."
	key := hostOf(m) + ":" + strconv.Itoa(dev)
	delete(st.once, "rail-recovered:"+key)
	st.emit("rail-failed:"+key, Event{ID: "rail-failed", Severity: SeverityWarning, Text: text, Device: &dev}, m)
}

// deviceBack reads 'NET/IB: … Marking device 0 as recovered (send comm=0x…)', by which
// NCCL takes a device back (net_ib/p2p_resiliency_recovery.cc, 2.29.7 on).
func (st *state) deviceBack(m *message, t []byte) {
	if dev := intAfter(t, "device "); dev >= 0 {
		key := hostOf(m) + ":" + strconv.Itoa(dev)
		delete(st.once, "rail-failed:"+key)
		st.emit("rail-recovered:"+key, Event{ID: "rail-recovered", Severity: SeverityNote, Text: "NCCL uses the RDMA device again that it had given up (its number " + strconv.Itoa(dev) + ").", Device: &dev}, m)
	}
}

func hostOf(m *message) string {
	if m.proc == nil {
		return ""
	}
	return m.proc.host
}

// speedChange reads 'NET/IB : mlx5_3:1 speed change detected: 400000 -> 100000 Mbps' (2.30.7).
func (st *state) speedChange(m *message, t []byte) {
	from, rest, ok := bytes.Cut(t, []byte(" -> "))
	if !ok {
		return
	}
	to, _ := leadingInt(rest)
	was := digitsBefore(from, len(from))
	old, _ := leadingInt(from[was:])
	if to < 0 || old < 0 || was == len(from) {
		return
	}
	dev := "a device"
	if w := word(t); strings.Contains(w, ":") && w != "" {
		dev = strings.TrimRight(w, ":")
	}
	key := "rail-speed:" + hostOf(m) + ":" + dev + ":" + strconv.Itoa(to)
	switch {
	case to == 0:
		st.warned(key, fmt.Sprintf("The link of %s is down (it ran at %d Gb/s): one rail fewer. Look at its cable, transceiver and switch port.", dev, old/1000), m)
	case to < old:
		st.warned(key, fmt.Sprintf("%s runs at %d Gb/s instead of %d Gb/s: look at its cable, transceiver and switch port.", dev, to/1000, old/1000), m)
	default:
		st.emit(key, Event{ID: "rail-speed", Severity: SeverityNote, Text: fmt.Sprintf("%s is back from %d to %d Gb/s.", dev, old/1000, to/1000)}, m)
	}
}

// gidChange reads 'NET/IB : mlx5_0:1 GID table changed' (2.28 on).
func (st *state) gidChange(m *message, t []byte) {
	dev := strings.TrimRight(word(t), ":")
	st.warned("gid-changed:"+hostOf(m)+":"+dev, "The GID table of "+dev+" changed while the job runs: an address came or went. Connections that are up keep their GID; new ones fail where NCCL_IB_GID_INDEX names an index that is empty now.", m)
}

// --- NVLink between nodes ---

// mnnvlLine reads what NCCL knows of the NVLink domain that a GPU belongs to:
// 'MNNVL busId 0x901000 fabric UUID 1a.2b cliqueId 0x1 state 3 healthMask 0x0' (init.cc,
// 2.21 on), and 'MNNVL 1 cliqueId 1 cliqueSize 8 cliqueRank 0'.
func (st *state) mnnvlLine(m *message) {
	t := m.text
	if bytes.Contains(t, []byte("is available but not working")) {
		m.warn = true
		st.says(m, t, ncclPhrases)
		return
	}
	i := bytes.Index(t, []byte("fabric UUID "))
	if i < 0 {
		return
	}
	uuid := word(t[i+len("fabric UUID "):])
	clique := wordAfter(t, "cliqueId ")
	// NVML: 3 is completed; a domain of zeros is none.
	if state := intAfter(t, " state "); state >= 0 && state != 3 {
		st.warned("nvlink-domain-state:"+hostOf(m), "A GPU has not joined its NVLink domain (fabric state "+strconv.Itoa(state)+", 3 is right): look at nvidia-smi -q (Fabric) and the Fabric Manager or NVLink switches of this rack; NCCL goes over the network instead.", m)
		return
	}
	if strings.Trim(uuid, "0.") == "" || clique == "" {
		return
	}
	if len(st.cliques) < 64 {
		if st.cliques[uuid] == nil {
			st.cliques[uuid] = map[string]string{}
		}
		if _, ok := st.cliques[uuid][clique]; !ok {
			st.cliques[uuid][clique] = hostOf(m)
		}
	}
	if len(st.cliques[uuid]) > 1 {
		st.warned("nvlink-cliques", fmt.Sprintf("The job's GPUs are in one NVLink domain and in %d cliques of it, which do not reach each other over NVLink: between them data goes over the network. Partitions of the NVLink fabric (nvidia-smi -q, CliqueId) or NCCL_MNNVL_CLIQUE_ID decide that.", len(st.cliques[uuid])), m)
	}
}
