package watch

import (
	"bytes"
	"slices"
	"strings"
)

const (
	// maxProcs bounds what is kept per process: beyond it only totals count.
	maxProcs  = 1 << 16
	maxEvents = 256
	maxPairs  = 1 << 15
	// maxRelayed bounds the lines that are passed on to the user.
	maxRelayed = 1000
	maxShown   = 400 // bytes of a line that an event quotes
)

type procKey struct {
	host string
	pid  uint32
}

// proc is one process of the job, as far as its lines tell.
type proc struct {
	host   string
	pid    uint32
	nranks int   // of the largest communicator that it said it is in; 0 unknown
	ranks  []int // its ranks there (more than one where a process drives several GPUs)
	net    string
	phase  phase
	lines  int // how often a prefix named it

	version, devs, gid string // as it told them
	allDevs            bool   // devs is a list to its end
	waitsFor           string // the address that it tries to reach

	comms    int            // communicators whose set-up was begun
	open     int            // communicators whose set-up was begun and not completed
	begun    [maxBegun]byte // how its last line of a connection between nodes begins
	begunLen uint8

	iface, addr string // by which it is reached; addr "" unknown
	start       start  // how much of its start is there

	first, last uint64 // numbers of its first and last lines

	home   *state   // its run; nil: not known yet
	from   int      // the first run that it may be of
	kept   [][]byte // what it said before its run was known
	claims claim    // what it said of its communicator by then
	gpus   []gpuUse // those whose connections were told
}

// maxGPUs bounds the GPUs of one process.
const maxGPUs = 64

// gpuUse is how one GPU of a process exchanges data with other nodes.
type gpuUse struct {
	dev            int16
	rank           int32 // in the largest communicator; -1 unknown
	direct, staged uint32
}

// maxBegun is enough for 'Channel 00/0 : 1234[7] -> 1242[7]', with bus numbers too.
const maxBegun = 56

// phase is how far a rank has come; used to say what a stalled job waits for.
type phase uint8

const (
	phaseSeen phase = iota
	phaseBootstrap
	phaseNetwork
	phaseInitStart
	phaseChannels
	phaseConnected
	phaseInitDone
	// phaseFirst: set up, and connecting for its first collective (2.22 on).
	phaseFirst
	phaseAgain // sets up a further communicator
)

// transportKey counts channel lines of one kind.
type transportKey struct {
	net string
	dev int
	gdr gdrKind
}

type gdrKind uint8

const (
	gdrNone    gdrKind = iota // no connection to another node
	gdrUnknown                // the line was cut off before it said
	gdrNo
	gdrYes
	gdrRelay // /GDRDMA from the memory of another GPU of the node (PXN)
)

type pairKey struct {
	from, to int
	via      string
}

// state is everything that was learned. All of it is bounded.
type state struct {
	opt    Options
	runs   *runs
	number int // of this run
	comms  map[string]bool
	owners map[string]*owner // of GPUs, by host and bus
	// underWay: a communicator was begun.
	underWay bool
	last     uint64    // number of the last line of its processes
	segs     []segment // scratch of line
	msg      message   // likewise

	tails [tailSlots]tail // what carries channels, likewise

	lines uint64 // that held an anchor

	lib, version string
	libHint      string // whose help texts are there, where nothing else tells

	procs map[procKey]*proc
	hosts map[string]*hostSeen
	apart bool // machines of one name have addresses of their own

	networks   []string // as "Using network" and its successors name them
	seenNets   []string // nets that only lines of theirs show
	devices    []string
	ibDevices  []string              // of the per-device lines, for logs whose Using line is lost
	channels   map[transportKey]*int // pointers: counting a known one costs no write of the key
	pairs      map[pairKey]int
	intra      map[string]bool // "P2P", "SHM", …
	intraRanks bits            // ranks in connections inside a node
	nvlink     bool
	mnnvl      bool
	nranks     int
	nnodes     int            // 0 unknown
	rankHost   map[int]string // of the largest communicator
	netLeaves  bool           // a connection over the network is not known to stay inside a host
	localRanks int            // a node has at least so many
	ringSize   int            // ranks that a ring's list names; 0 no list seen
	ringCut    bool           // the list may go on
	maxRank    int            // highest rank that a connection names
	connected  int            // "Connected all rings" lines
	ringGDR    [2]int
	hcaGDR     [2]int
	gdrPairs   [2]int                       // pairs of GPU and device
	collGDR    [2]int                       // connections of CollNet
	gdrWhys    map[gdrWhy]string            // why GPUDirect is off, with a detail
	gdrLine    string                       // the line that said so first
	failover   bool                         // NCCL goes on without a device that failed
	cliques    map[string]map[string]string // of each NVLink domain; a host of each
	tests      map[int]string               // rank -> host, of the header of nccl-tests
	testsDone  bool                         // it is there in full
	tagRanks   map[int]bool
	elided     bool
	socketIfs  bool // a NET/Socket : Using line was there
	// ownBootstrap: NCCL sets up its ranks by other means than its socket network,
	// which then is only asked where nothing before it works (2.5 on).
	ownBootstrap bool
	ibProbed     bool // NCCL tried its own IB transport
	ibEmpty      bool
	facts        map[string]string  // cause facts: id -> detail, first one wins
	evidence     map[string]witness // the line of each fact, and whose it is
	env          map[string]string  // NCCL_, UCX_ … settings that the log shows
	initDone     int
	claimedOne   bool // one host name, several "nodes" of one rank: NCCL_HOSTID
	askedNone    bool // NCCL's start is there in full, and asks no RDMA transport

	ucx ucxState
	mpi mpiState

	fatal    []string
	suspects []string // what may be why, should the job end
	events   []Event
	once     map[string]bool
	relayed  int
	judged   string // last announced judgement
	judgedBy grounds
	manyAt   int // hosts that were named when it was found that the job has several nodes; 0 not found
	surveys  int // how often all hosts were gone through: linear in their number
}

func (st *state) init(opt Options) {
	*st = state{
		opt:      opt,
		procs:    map[procKey]*proc{},
		hosts:    map[string]*hostSeen{},
		comms:    map[string]bool{},
		owners:   map[string]*owner{},
		channels: map[transportKey]*int{},
		intra:    map[string]bool{},

		pairs:    map[pairKey]int{},
		tests:    map[int]string{},
		tagRanks: map[int]bool{},
		facts:    map[string]string{},
		evidence: map[string]witness{},
		env:      map[string]string{},
		once:     map[string]bool{},
		gdrWhys:  map[gdrWhy]string{},
		cliques:  map[string]map[string]string{},
	}
}

// procOf finds the process that a prefix names. A prefix in the middle of a
// line has the tail of other bytes in front of its host name, so there only a
// name that is already known counts.
func (st *state) procOf(s *segment) *proc {
	r := st.runs
	if p := r.index[procKey{string(s.host), s.pid}]; p != nil {
		p.lines++
		return p
	}
	if !s.clean {
		for i := range s.host {
			if p := r.index[procKey{string(s.host[i:]), s.pid}]; p != nil {
				return p
			}
		}
		return nil
	}
	if len(r.index) >= maxProcs {
		return nil
	}
	p := &proc{host: string(s.host), pid: s.pid, lines: 1, from: *r.at, first: r.lines}
	r.index[procKey{p.host, p.pid}] = p
	switch {
	case !st.underWay && len(r.all) == 1, !s.hasPrefix:
		st.adopt(p)
	default:
		r.waiting = append(r.waiting, p) // only NCCL's own lines tell of a communicator
	}
	return p
}

// hostSeen is one host name that prefixes gave.
type hostSeen struct {
	procs []*proc
	addrs map[string][]string // interface -> addresses by which its processes are reached
}

// at keeps by which address a process is reached. It tells apart machines that go by
// one name.
func (st *state) at(p *proc, t []byte) {
	if p == nil || p.addr != "" {
		return
	}
	if p.iface, p.addr = ownAddress(t); p.addr == "" {
		return
	}
	h := st.hosts[p.host]
	if h.addrs == nil {
		h.addrs = map[string][]string{}
	}
	if len(h.addrs[p.iface]) < maxMangledHosts {
		addr := h.addrs[p.iface]
		addOnce(&addr, p.addr)
		h.addrs[p.iface] = addr
		st.apart = st.apart || len(addr) > 1
	}
}

func (st *state) library(name string) {
	// libfabric is what another library sends by.
	if st.lib == "" || st.lib == "libfabric" || name == "rccl" && st.lib == "nccl" {
		st.lib = name
	}
}

// fact keeps the first detail that was seen for id, and its line.
func (st *state) fact(m *message, id, detail string) {
	if _, ok := st.facts[id]; !ok {
		st.facts[id] = detail
		st.evidence[id] = witness{line: shown(m.raw), proc: m.proc, rank: m.rank}
	}
}

// witness is the line that shows a fact, and who wrote it.
type witness struct {
	line string
	proc *proc
	rank int
}

func (st *state) addNetwork(name string) {
	if !slices.Contains(st.networks, name) && len(st.networks) < 32 {
		st.networks = append(st.networks, name)
	}
}

func (st *state) addSeenNet(name string) {
	if !slices.Contains(st.seenNets, name) && len(st.seenNets) < 32 {
		st.seenNets = append(st.seenNets, name)
	}
}

// emit records an event, once per key.
func (st *state) emit(key string, ev Event, m *message) {
	if st.once[key] || len(st.events) >= maxEvents {
		return
	}
	st.once[key] = true
	if st.opt.Now != nil {
		ev.Time = st.opt.Now()
	}
	ev.Host = st.opt.Host
	if m != nil {
		if m.proc != nil {
			ev.Host = m.proc.host
			if len(m.proc.ranks) == 1 {
				r := m.proc.ranks[0]
				ev.Rank = &r
			}
		}
		if m.rank >= 0 && ev.Rank == nil {
			r := m.rank
			ev.Rank = &r
		}
		if ev.Line == "" {
			ev.Line = shown(m.raw)
		}
	}
	st.events = append(st.events, ev)
	if st.opt.OnEvent != nil {
		st.opt.OnEvent(ev)
	}
}

// failed records an error that ends or hangs the job.
func (st *state) failed(id, text string, m *message) {
	if !slices.Contains(st.fatal, id) && len(st.fatal) < 64 {
		st.fatal = append(st.fatal, id)
	}
	st.emit(id, Event{ID: id, Severity: SeverityError, Text: text}, m)
}

// warned says something once per key, which is an ID and, behind a colon, what it
// is about.
func (st *state) warned(key, text string, m *message) {
	id, _, _ := strings.Cut(key, ":")
	st.emit(key, Event{ID: id, Severity: SeverityWarning, Text: text}, m)
}

// shown is a line fit for a person's terminal: bounded, no control bytes.
func shown(b []byte) string {
	b = bytes.TrimSpace(b)
	cut := len(b) > maxShown
	if cut {
		b = b[:maxShown]
	}
	s := strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
	if cut {
		s += "…"
	}
	return s
}

// rankOf records that a process is rank r of a communicator of n.
func (st *state) rankOf(m *message, r, n int) {
	if n <= 0 || n > 1<<24 || r < 0 || r >= n {
		return
	}
	if n > st.nranks || st.rankHost == nil {
		st.nranks, st.rankHost = max(n, st.nranks), map[int]string{}
	}
	p := m.proc
	if p == nil {
		if n == st.nranks && len(st.tagRanks) < maxProcs {
			st.tagRanks[r] = true
		}
		return
	}
	if n == st.nranks && len(st.rankHost) < maxProcs {
		st.rankHost[r] = p.host
	}
	if n > p.nranks {
		p.nranks, p.ranks = n, p.ranks[:0]
		for i := range p.gpus {
			p.gpus[i].rank = -1
		}
	}
	if n < p.nranks {
		return
	}
	if !slices.Contains(p.ranks, r) && len(p.ranks) < maxGPUs {
		p.ranks = append(p.ranks, r)
	}
	if m.dev >= 0 {
		if g := p.gpu(m.dev); g != nil {
			g.rank = int32(r)
		}
	}
}

// grounds is what a fallback and its cause are worked out from, in short: as
// long as it stays the same, working them out again brings nothing new. A job of
// thousands of ranks says what may be a reason thousands of times.
type grounds struct {
	facts, env, networks, nets, channels, pmls      int
	ucxTCP, btlTCP, ob1, tcpProvider, sockets       bool
	ibEmpty, ibProbed, claimedOne, multi, connected bool
	apart, whole                                    bool
	hosts                                           int // up to as many as tell that there are several
}

func (st *state) groundsNow() grounds {
	_, providerTCP := st.facts[CauseProviderTCP]
	return grounds{
		facts: len(st.facts), env: len(st.env), networks: len(st.networks), nets: len(st.seenNets), channels: len(st.channels),
		ucxTCP: st.ucx.tcp > 0, btlTCP: st.mpi.btlTCP, pmls: len(st.mpi.pmls),
		ob1: slices.Contains(st.mpi.pmls, "ob1"), tcpProvider: providerTCP || isTCPProvider(st.mpi.provider()),
		sockets: st.socketIfs || slices.Contains(st.networks, netSocketName) || slices.Contains(st.seenNets, netSocketName),
		ibEmpty: st.ibEmpty, ibProbed: st.ibProbed, claimedOne: st.claimedOne, multi: st.nnodes > 1, connected: st.connected > 0,
		apart: st.apart, whole: st.askedNone, hosts: min(max(len(st.hosts), len(st.tests), len(st.mpi.ranks)), 8),
	}
}

// announce says a fallback as soon as it is certain.
func (st *state) announce(m *message) {
	g := st.groundsNow()
	if !g.ucxTCP && !g.btlTCP && !g.ob1 && !g.tcpProvider && !g.sockets || g == st.judgedBy {
		return
	}
	st.judgedBy = g
	fb, cause, intentional := st.fallback()
	if fb == nil || !*fb {
		return
	}
	key := "fallback:" + cause
	if st.judged == key {
		return
	}
	// The cause may become known only after the fallback; say it once, with
	// the first cause that is not "unknown".
	if st.judged != "" && cause == CauseUnknown {
		return
	}
	st.judged = key
	ev := Event{ID: "fallback", Severity: SeverityError, Cause: cause, Text: st.causeSentence(cause)}
	if intentional {
		ev.Severity = SeverityWarning
	}
	// The line that shows the cause says more than the one that made it certain,
	// and names the host to look at.
	if w := st.evidence[cause]; w.line != "" {
		ev.Line = w.line
		m = &message{proc: w.proc, rank: w.rank}
	}
	st.emit(key, ev, m)
}
