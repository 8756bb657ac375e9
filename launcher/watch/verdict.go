package watch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxMangledHosts is up to how many host names mangled ones are looked for.
const maxMangledHosts = 1024

// trustedHosts are the host names that prefixes gave, with how many lines, without
// those that are the head or the tail of a line that another process ran over: they
// look like another, more frequent name with bytes missing or too many in front, and
// know no process that the other does not.
func (st *state) trustedHosts() map[string]int {
	st.surveys++
	out := make(map[string]int, len(st.hosts))
	for h, seen := range st.hosts {
		for _, p := range seen.procs {
			out[h] += p.lines
		}
	}
	if len(out) == 1 || len(out) > maxMangledHosts {
		return out // comparing each with each takes too long
	}
	all := maps.Clone(out)
	for h, n := range all {
		if n > 64 {
			continue // heads and tails are rare
		}
		for k, kn := range all {
			// Of two that are as frequent, bytes are missing of the shorter one.
			if h == k || kn < n || kn == n && len(k) < len(h) || !strings.HasSuffix(h, k) && !strings.HasSuffix(k, h) {
				continue
			}
			if !slices.ContainsFunc(st.hosts[h].procs, func(p *proc) bool { return st.procs[procKey{k, p.pid}] == nil }) {
				delete(out, h)
				break
			}
		}
	}
	return out
}

// multiNode reports whether the job is known to span nodes.
func (st *state) multiNode() bool {
	if st.nnodes > 0 {
		return st.nnodes > 1
	}
	// A log that names many hosts need not be gone through for each of them.
	if st.manyAt > 0 && len(st.hosts) < 2*st.manyAt {
		return true
	}
	n, known := st.nodes()
	st.manyAt = 0
	if known && n > 1 {
		st.manyAt = len(st.hosts)
	}
	return st.manyAt > 0
}

// nodes returns over how many nodes what was seen runs, as far as log or plan prove
// it; where they only prove that there are several, 2. That ranks were not seen
// proves nothing: they may be late, or write elsewhere.
func (st *state) nodes() (int, bool) {
	if n := st.nodesExactly(); n > 0 {
		return n, true
	}
	switch {
	case st.machines(st.trustedHosts()) > 1, len(st.testsHosts()) > 1, st.ucx.internal > 0:
		return 2, true
	case st.netLeaves && len(st.channels) > 0 && !st.wholeOnOneHost():
		return 2, true
	case len(st.channels) > 0:
		return 0, false // ranks of one host may talk over the network
	case st.nranks > 0 && st.intraRanks.n >= st.nranks:
		// Every rank is in a connection inside a node, and none is in another.
		return 1, true
	}
	return 0, false
}

// nodesExactly returns the number of nodes where it is told, else 0.
func (st *state) nodesExactly() int {
	switch {
	case st.nnodes > 0:
		return st.nnodes
	case st.opt.Known.OneNode, st.nranks == 1:
		return 1
	}
	hosts := st.trustedHosts()
	n := st.machines(hosts)
	whole := st.size() > 0 && st.ranksSeen() >= st.size() && (st.nranks > 0 || !st.ringCut)
	switch {
	case len(st.tests) > 0 && (st.testsDone || st.nranks > 0 && len(st.tests) >= st.nranks),
		len(st.mpi.ranks) > 0 && st.mpi.ranksDone:
		return len(st.testsHosts())
	case len(st.tests) > 0, len(st.mpi.ranks) > 0:
		return 0 // the table goes on
	case len(hosts) > 1 && n == len(hosts) && st.wholeOnOneHost():
		// Several communicators, each complete on its host.
		return 1
	case len(st.channels) > 0 || st.ucx.internal > 0:
		// Something leaves a node: then one host name is not all.
		if n > 1 && st.nranks > 0 && whole {
			return n
		}
		return 0
	case n > 0 && whole:
		return n
	case st.nranks > 0 && st.localRanks >= st.nranks:
		return 1
	}
	return 0
}

// testsHosts are the hosts of the table of ranks that nccl-tests or an MPI library
// prints.
func (st *state) testsHosts() map[string]bool {
	hosts := map[string]bool{}
	for _, table := range []map[int]string{st.tests, st.mpi.ranks} {
		for _, h := range table {
			hosts[h] = true
		}
		if len(hosts) > 0 {
			break
		}
	}
	return hosts
}

// machines counts the machines behind host names: some clusters call several
// 'ubuntu' or 'localhost', but their interfaces of one name have addresses of their
// own.
func (st *state) machines(hosts map[string]int) int {
	n := 0
	for h := range hosts {
		of := 1
		if st.apart {
			for _, addrs := range st.hosts[h].addrs {
				of = max(of, len(addrs))
			}
		}
		n += of
	}
	return n
}

// wholeOnOneHost reports whether one host holds every rank of the largest
// communicator's size.
func (st *state) wholeOnOneHost() bool {
	if st.nranks == 0 {
		return false
	}
	ranks := map[string]map[int]bool{}
	for key, p := range st.procs {
		if p.nranks != st.nranks {
			continue
		}
		if ranks[key.host] == nil {
			ranks[key.host] = map[int]bool{}
		}
		for _, r := range p.ranks {
			ranks[key.host][r] = true
		}
	}
	for _, set := range ranks {
		if len(set) >= st.nranks {
			return true
		}
	}
	return false
}

// size returns the number of ranks of the largest communicator, 0 unknown.
func (st *state) size() int {
	if st.nranks > 0 {
		return st.nranks
	}
	if st.ringSize > 0 && (!st.ringCut || st.maxRank >= st.ringSize) {
		return max(st.ringSize, st.maxRank+1)
	}
	switch {
	case st.testsDone:
		return len(st.tests)
	case st.mpi.ranksDone:
		return len(st.mpi.ranks)
	}
	return 0
}

// ranksSeen counts the ranks whose lines are there: those known by number in
// the largest communicator, and the processes that never told theirs.
func (st *state) ranksSeen() int {
	hosts := st.trustedHosts()
	ranks := map[int]bool{}
	unknown := 0
	for key, p := range st.procs {
		if _, ok := hosts[key.host]; !ok {
			continue
		}
		if p.nranks == st.nranks && len(p.ranks) > 0 {
			for _, r := range p.ranks {
				ranks[r] = true
			}
		} else {
			// A process that drives several GPUs is several ranks.
			unknown += max(1, len(p.gpus))
		}
	}
	n := len(ranks) + unknown
	if len(ranks) == 0 && len(st.tests) > n {
		return len(st.tests)
	}
	if n == 0 {
		n = max(len(st.tagRanks), len(st.mpi.ranks))
	}
	if st.nranks > 0 {
		n = min(n, st.nranks)
	}
	return n
}

// totals sums the channel lines of one kind of network.
func (st *state) totals(match func(transportKey) bool) int {
	n := 0
	for k, c := range st.channels {
		if match(k) {
			n += *c
		}
	}
	return n
}

// fallback judges: nil where the log cannot tell. cause is "" unless data goes,
// or would go, over sockets.
func (st *state) fallback() (verdict *bool, cause string, intentional bool) {
	yes, no := true, false
	nodes, known := st.nodes()
	multi := known && nodes > 1
	if known && nodes == 1 {
		return &no, "", st.wantedRDMA()
	}
	if st.ucx.tcp > 0 {
		return &yes, CauseUCXTCP, st.ucxWantsTCP()
	}
	if _, ok := st.facts[CauseMixed]; ok && len(st.mpi.pmls) > 1 {
		return &yes, CauseMixed, false
	}
	if st.mpi.btlTCP && st.ucx.rdma == 0 {
		return &yes, st.whyOB1(), st.askedBTL()
	}
	byTCP := func(cause string, asked bool) (*bool, string, bool) {
		if multi {
			return &yes, cause, asked
		}
		return nil, cause, asked
	}
	if p := st.mpi.provider(); p != "" && isTCPProvider(p) && len(st.networks) == 0 && st.ucx.rdma == 0 {
		return byTCP(CauseProviderTCP, isTCPProvider(st.env["I_MPI_OFI_PROVIDER"]) || isTCPProvider(st.env["FI_PROVIDER"]) || st.env["I_MPI_FABRICS"] == "shm:tcp" || st.env["I_MPI_FABRICS"] == "tcp")
	}
	if slices.Contains(st.mpi.pmls, "ob1") && !st.mpi.btlRDMA && st.ucx.rdma == 0 && len(st.networks) == 0 {
		return byTCP(st.whyOB1(), st.askedBTL())
	}
	if st.mixedFact() && multi {
		return &yes, CauseMixed, false
	}
	overSocket := st.totals(func(k transportKey) bool { return k.net == netSocketName }) > 0
	choseSocket := slices.Contains(st.networks, netSocketName) ||
		len(st.networks) == 0 && len(st.seenNets) == 0 && st.socketIfs && (st.ownBootstrap || st.rdmaRefused())
	choseRDMA := slices.ContainsFunc(st.networks, isRDMANet)

	if prov, ok := st.facts[CauseProviderTCP]; ok && prov != "" && !overSocket {
		if multi {
			return &yes, CauseProviderTCP, isTCPProvider(st.env["FI_PROVIDER"])
		}
	}
	if !overSocket && !choseSocket {
		if choseRDMA || len(st.seenNets) > 0 || st.ucx.rdma > 0 || st.mpi.provider() != "" || len(st.mpi.pmls) > 0 || st.mpi.mtl != "" || st.mpi.btlRDMA {
			return &no, "", st.wantedRDMA()
		}
		return nil, "", false
	}
	if !overSocket && choseRDMA && !st.mixedFact() && !multi {
		return &no, "", st.wantedRDMA()
	}
	if !overSocket && multi && st.connected > 0 && len(st.channels) == 0 && st.intra["P2P/MNNVL"] {
		// Data between nodes goes over NVLink.
		return &no, "", false
	}
	cause, intentional = st.cause(choseRDMA)
	if multi {
		return &yes, cause, intentional
	}
	return nil, cause, intentional
}

func (st *state) mixedFact() bool { _, ok := st.facts[CauseMixed]; return ok }

// rdmaRefused reports whether NCCL's own RDMA transport was asked and gave up.
func (st *state) rdmaRefused() bool {
	return st.ibEmpty || slices.ContainsFunc([]string{CauseNoDevice, CauseVerbsMissing, CauseDeviceOpen, CauseNoOOB, CauseHidden, factIBFailed}, func(id string) bool {
		_, ok := st.facts[id]
		return ok
	})
}

// askedBTL reports whether the user chose Open MPI's TCP component.
func (st *state) askedBTL() bool {
	pml := st.env["OMPI_MCA_pml"]
	return st.mpi.askedOB1 || pml == "ob1" || strings.HasPrefix(pml, "^") && strings.Contains(pml, "ucx") ||
		!strings.HasPrefix(st.env["OMPI_MCA_btl"], "^") && strings.Contains(st.env["OMPI_MCA_btl"], "tcp")
}

// isOn reports whether NCCL takes a number for yes. It reads what strtoll does, and
// takes its default for the rest (src/misc/param.cc).
func isOn(v string) bool {
	v = strings.TrimLeft(strings.TrimLeft(v, " "), "+-")
	v = strings.TrimPrefix(strings.TrimPrefix(v, "0x"), "0X")
	v = strings.TrimLeft(v, "0")
	return v != "" && isDigit(v[0])
}

// wantedRDMA reports whether the network in use is one that the user named.
// Until a network is chosen nobody knows whether the wish was met.
func (st *state) wantedRDMA() bool {
	if len(st.networks) == 0 && len(st.channels) == 0 {
		return false
	}
	if v := st.env["NCCL_NET"]; v != "" && slices.Contains(st.networks, v) {
		return true
	}
	// Naming devices alone picks rails, not a network; with the interface of the set-up
	// named too, the whole way was laid out by hand.
	ib := slices.Contains(st.networks, "IB") || slices.Contains(st.seenNets, "IB")
	return ib && st.env["NCCL_IB_HCA"] != "" && st.env["NCCL_SOCKET_IFNAME"] != ""
}

// ucxWantsTCP reports whether UCX_TLS leaves no RDMA transport.
func (st *state) ucxWantsTCP() bool {
	v := st.env["UCX_TLS"]
	if v == "" || strings.HasPrefix(v, "^") || v == "all" {
		return strings.HasPrefix(v, "^") && (strings.Contains(v, "ib") || strings.Contains(v, "rc"))
	}
	for tl := range strings.SplitSeq(v, ",") {
		if isUCXRDMA(tl) || tl == "ib" {
			return false
		}
	}
	return strings.Contains(v, "tcp")
}

// verdict sums up.
func (st *state) verdict() Verdict {
	v := Verdict{
		Schema: SchemaVerdict, Library: cmp.Or(st.lib, st.libHint), Version: st.version,
		Networks: []string{}, InterNodeTransports: []string{}, Devices: []string{}, FatalErrors: []string{}, Events: []Event{},
	}
	if v.Version == "" {
		v.Version = cmp.Or(st.mpi.version, st.ucx.version)
	}
	v.Networks = append(v.Networks, st.networks...)
	if len(v.Networks) == 0 {
		// The channels name the network as "Using network" would (AWS
		// Libfabric), a plugin's own lines by its prefix (NET/OFI).
		for _, k := range slices.SortedFunc(maps.Keys(st.channels), func(a, b transportKey) int { return strings.Compare(a.net, b.net) }) {
			addOnce(&v.Networks, k.net)
		}
	}
	if len(v.Networks) == 0 {
		v.Networks = append(v.Networks, st.seenNets...)
	}
	if len(v.Networks) == 0 && st.socketIfs {
		v.Networks = append(v.Networks, netSocketName)
	}
	for _, n := range st.ucx.nets {
		addOnce(&v.Networks, n)
	}
	st.mpiNetworks(&v)
	fb, cause, intentional := st.fallback()
	v.Fallback, v.Intentional = fb, intentional
	if cause != "" {
		v.Cause = &cause
	}
	v.Devices = append(v.Devices, st.devicesSeen()...)
	for _, d := range st.ucx.devices {
		addOnce(&v.Devices, d)
	}
	slices.Sort(v.Devices)
	st.transports(&v)
	st.gdr(&v)
	if len(v.InterNodeTransports) > 0 && len(st.channels) > 0 {
		of := func(kind gdrKind) int { return st.totals(func(k transportKey) bool { return k.gdr == kind }) }
		v.Connections = &Connections{Direct: of(gdrYes), Relayed: of(gdrRelay), Staged: of(gdrNo), Untold: of(gdrUnknown)}
	}
	if v.GDR != nil {
		v.GDRRanks = st.gdrRanks()
	}
	if n := st.ranksSeen(); n > 0 && !st.elided {
		v.RanksSeen = &n
	}
	if n := st.size(); n > 0 {
		v.NRanks = &n
	}
	if k := st.nodesExactly(); k > 0 {
		v.NNodes = &k
	} else if k, known := st.nodes(); known && k == 1 {
		v.NNodes = &k
	}
	v.FatalErrors = append(v.FatalErrors, st.fatalInOrder()...)
	for k, n := range st.pairs {
		v.Pairs = append(v.Pairs, Pair{k.from, k.to, k.via, n})
	}
	slices.SortFunc(v.Pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Via, b.Via))
	})
	v.Events = append(v.Events, st.events...)
	st.gdrAtEnd(&v)
	v.Sentence = st.sentence(&v)
	return v
}

// devicesSeen are the RDMA devices that NCCL lists.
func (st *state) devicesSeen() []string {
	if len(st.devices) > 0 {
		return st.devices
	}
	return st.ibDevices
}

// mpiNetworks adds what an MPI library says that it sends by, as exactly as it
// is known: of pml/cm the provider or the mtl, of pml/ucx what UCX itself says.
func (st *state) mpiNetworks(v *Verdict) {
	if len(st.networks) > 0 {
		return // NCCL's own word; libfabric is its plugin's
	}
	if p := st.mpi.provider(); p != "" {
		addOnce(&v.Networks, p)
	}
	for _, pml := range st.mpi.pmls {
		switch {
		case pml == "cm" && (st.mpi.mtl == "" || st.mpi.mtl == "ofi") && st.mpi.provider() == "":
			addOnce(&v.Networks, cmp.Or(st.mpi.mtl, "cm"))
		case pml == "cm" && st.mpi.mtl != "" && st.mpi.mtl != "ofi":
			addOnce(&v.Networks, st.mpi.mtl)
		case pml == "ucx" && len(st.ucx.nets) == 0:
			addOnce(&v.Networks, "ucx")
		}
	}
	if len(st.mpi.pmls) == 0 && st.mpi.mtl == "ofi" && st.mpi.provider() == "" {
		addOnce(&v.Networks, "ofi")
	}
	for _, b := range st.mpi.btls {
		addOnce(&v.Networks, b)
	}
}

// transports lists what carries data between nodes. A connection that is
// relayed through another GPU of the node (PXN) is listed as plain: the rank's
// own GPU does not meet the device.
func (st *state) transports(v *Verdict) {
	if n, known := st.nodes(); known && n == 1 {
		return
	}
	plain, gdr := map[string]bool{}, map[string]bool{}
	for k := range st.channels {
		switch k.gdr {
		case gdrYes:
			gdr["NET/"+k.net+"/GDRDMA"] = true
		case gdrNo, gdrRelay:
			plain["NET/"+k.net] = true
		case gdrUnknown:
		}
	}
	if len(plain) == 0 && len(gdr) == 0 {
		for k := range st.channels {
			plain["NET/"+k.net] = true
		}
	}
	v.InterNodeTransports = append(v.InterNodeTransports, slices.Sorted(maps.Keys(gdr))...)
	v.InterNodeTransports = append(v.InterNodeTransports, slices.Sorted(maps.Keys(plain))...)
	v.InterNodeTransports = append(v.InterNodeTransports, st.ucx.items...)
	if st.intra["P2P/MNNVL"] {
		v.InterNodeTransports = append(v.InterNodeTransports, "P2P/MNNVL")
	}
	if st.mpi.btlTCP && st.ucx.rdma == 0 {
		addOnce(&v.InterNodeTransports, "btl/tcp")
	}
	for _, b := range st.mpi.btls {
		addOnce(&v.InterNodeTransports, "btl/"+b)
	}
}

// gdr says whether GPUs and devices exchange data without the host: from the
// channels between nodes; where their lines are missing, from what NCCL says
// of the ring and of the devices, but only for a job on several nodes: on one
// node these lines tell what could be, not what is.
func (st *state) gdr(v *Verdict) {
	yes, no := true, false
	if n, known := st.nodes(); known && n == 1 {
		return
	}
	direct := st.totals(func(k transportKey) bool { return k.gdr == gdrYes })
	relay := st.totals(func(k transportKey) bool { return k.gdr == gdrRelay })
	staged := st.totals(func(k transportKey) bool { return k.gdr == gdrNo })
	switch {
	case direct+relay > 0:
		v.GDR = &yes
		v.GDRPartial = relay+staged > 0
	case staged > 0:
		v.GDR = &no
	case len(st.channels) == 0 && st.collGDR[0]+st.collGDR[1] > 0:
		on := st.collGDR[1] > 0
		v.GDR, v.GDRPartial = &on, on && st.collGDR[0] > 0
	case len(st.channels) > 0 || !st.multiNode():
		return
	case st.ringGDR[1] > 0 && st.ringGDR[0] == 0 && st.hcaGDR[0] == 0:
		v.GDR = &yes
	case st.ringGDR[0] > 0 && st.ringGDR[1] == 0, st.ringGDR[0]+st.ringGDR[1] == 0 && st.hcaGDR[0] > 0 && st.hcaGDR[1] == 0:
		v.GDR = &no
	case st.ringGDR[1] > 0:
		v.GDR = &yes
		v.GDRPartial = true
	}
}

// gdrRanks says for each rank whose number is known how its GPU exchanges data
// with other nodes.
func (st *state) gdrRanks() *GDRRanks {
	out := GDRRanks{Yes: []int{}, Partly: []int{}, No: []int{}}
	for _, p := range st.procs {
		if p.nranks != st.nranks {
			continue
		}
		for _, g := range p.gpus {
			switch {
			case g.rank < 0 || g.direct+g.staged == 0:
			case g.staged == 0:
				out.Yes = append(out.Yes, int(g.rank))
			case g.direct == 0:
				out.No = append(out.No, int(g.rank))
			default:
				out.Partly = append(out.Partly, int(g.rank))
			}
		}
	}
	if len(out.Yes)+len(out.Partly)+len(out.No) == 0 {
		return nil
	}
	for _, l := range []*[]int{&out.Yes, &out.Partly, &out.No} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	return &out
}

// sentence is the verdict for a person.
func (st *state) sentence(v *Verdict) string {
	switch {
	case v.Fallback != nil && *v.Fallback && v.Intentional:
		return "TCP, as was asked for: " + st.causeSentence(*v.Cause) + st.alsoFailed(v)
	case v.Fallback != nil && *v.Fallback:
		return "FALLBACK to TCP: " + st.causeSentence(*v.Cause) + st.alsoFailed(v)
	case len(v.FatalErrors) > 0:
		return "Failed: " + st.textOf(v.FatalErrors[0])
	case v.Library == "":
		return "Unknown: no line of NCCL, UCX or MPI in what was read." + st.alsoSuspected(v)
	case v.Fallback == nil && v.Cause != nil:
		return "Unknown whether data leaves the node; if it does, it goes over TCP: " + st.causeSentence(*v.Cause) + st.alsoSuspected(v)
	case v.Fallback == nil:
		return "Unknown: the log does not say what carries the data (NCCL_DEBUG=INFO or UCX_LOG_LEVEL=info makes it)." + st.alsoSuspected(v)
	}
	return v.cleared()
}

// cleared is the sentence of a job of which no fallback was seen. It speaks of what
// was seen, and says how much of the job that is.
func (v *Verdict) cleared() string {
	s := "No fallback"
	if scope := v.scope(); scope != "" {
		s += " in what was seen (" + scope + ")"
	}
	if v.NNodes != nil && *v.NNodes == 1 {
		return s + ": the job runs on one node."
	}
	if len(v.Networks) > 0 {
		s += ": " + strings.Join(v.Networks, ", ")
	}
	if len(v.Devices) > 0 {
		s += fmt.Sprintf(" on %d device", len(v.Devices))
		if len(v.Devices) > 1 {
			s += "s"
		}
	}
	switch c := v.Connections; {
	case v.GDR == nil:
	case !*v.GDR:
		s += ", GPUDirect off"
		for _, e := range v.Events {
			if _, why, ok := strings.Cut(e.Text, gdrOffLead); ok && e.ID == "gdr-off" {
				s += ": " + strings.TrimSuffix(why, ".")
				break
			}
		}
	case v.GDRPartial && c != nil:
		var but []string
		if c.Relayed > 0 {
			but = append(but, fmt.Sprintf("%d connections by way of another GPU", c.Relayed))
		}
		if c.Staged > 0 {
			but = append(but, fmt.Sprintf("%d through the host", c.Staged))
		}
		s += ", GPUDirect on (" + strings.Join(but, ", ") + ")"
	case v.GDRPartial:
		s += ", GPUDirect on for some"
	default:
		s += ", GPUDirect on"
	}
	s += "."
	if less := v.broken(); less != "" {
		s += " Less than planned: " + less
	}
	return s
}

// ranksWord counts ranks.
func ranksWord(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

// scope says how much of the job was seen; "" where all of it was.
func (v *Verdict) scope() string {
	var parts []string
	switch {
	case v.RanksSeen == nil:
		parts = append(parts, "of how many ranks is not known")
	case v.NRanks == nil:
		parts = append(parts, ranksWord(*v.RanksSeen)+", of how many is not known")
	case *v.RanksSeen < *v.NRanks:
		parts = append(parts, fmt.Sprintf("%d of %d ranks", *v.RanksSeen, *v.NRanks))
	}
	ofNCCL := v.Library == "nccl" || v.Library == "rccl"
	if ofNCCL && v.Connections == nil && len(v.InterNodeTransports) == 0 && (v.NNodes == nil || *v.NNodes > 1) {
		parts = append(parts, "no connection between nodes")
	}
	return strings.Join(parts, ", ")
}
