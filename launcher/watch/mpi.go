package watch

import (
	"bytes"
	"slices"
	"strings"
)

// mpiState is what MPI libraries and libfabric said.
type mpiState struct {
	version string
	ranks   map[int]string // rank -> host, of Intel MPI's table
	// ranksDone: something else came behind the table.
	ranksDone bool

	pmls     []string // Open MPI: the messaging components that ranks selected
	mtl      string   // Open MPI: what pml/cm sends by
	btls     []string // Open MPI: the transfer components that reach other nodes, as bml says
	btlTCP   bool     // Open MPI's TCP transfer component carries data between nodes
	openib   bool     // Open MPI: a help text of its openib component was there
	ucxTLs   []string // Open MPI: transports of UCX that its list leaves out
	btlRDMA  bool     // Open MPI: a transfer component that uses RDMA came up
	askedOB1 bool     // Open MPI: the user's list of messaging components leaves ucx out

	providers []string // libfabric providers, as the MPI library names them
	opened    []string // … as libfabric names those it opens
}

// provider is what libfabric moves the data by, "" where nobody said: the MPI
// library's own word, or the last fabric that was opened.
func (s *mpiState) provider() string {
	for _, l := range [][]string{s.providers, s.opened} {
		for _, p := range l {
			if !isTCPProvider(p) {
				return p
			}
		}
		if len(l) > 0 {
			return l[0]
		}
	}
	return ""
}

// isUtilityProvider reports whether a libfabric provider is a layer on another
// one, or stays within the node.
func isUtilityProvider(p string) bool {
	return strings.HasPrefix(p, "ofi_") || p == "shm" || p == "sm2" || p == "off_coll" || p == "coll"
}

// --- Open MPI ---

// afterTaskTag returns what stands behind the '3: ' of srun -l.
func afterTaskTag(t []byte) []byte {
	if n, rest := leadingInt(t); n >= 0 && len(rest) > 2 && rest[0] == ':' && rest[1] == ' ' {
		return bytes.TrimLeft(rest[1:], " ")
	}
	return t
}

// openmpiProc learns who speaks in a line of Open MPI: '[node1:4711] …', or
// '[node1][[463,1],0][btl_tcp_endpoint.c:803:…] …'.
func (st *state) openmpiProc(m *message) {
	t := afterTaskTag(m.text)
	if len(t) < 4 || t[0] != '[' {
		return
	}
	end := bytes.IndexByte(t, ']')
	if end < 2 || end > 280 {
		return
	}
	host, pid, ok := bytes.Cut(t[1:end], []byte(":"))
	if !ok || len(host) == 0 || !allDigits(pid) {
		return
	}
	n, _ := leadingInt(pid)
	for _, c := range host {
		if !isHostByte(c) && c != '<' && c != '>' {
			return
		}
	}
	m.proc = st.procOf(&segment{host: host, pid: uint32(n), clean: true})
}

func (st *state) openmpiNoPML(m *message) bool {
	st.library("openmpi")
	st.failed("mpi-no-pml", "Open MPI could not open the messaging component that was asked for: with pml=ucx, UCX has no transport that it accepts on this host (check UCX_TLS, UCX_NET_DEVICES, opal_common_ucx_devices).", m)
	return true
}

func (st *state) openmpiPML(m *message) bool {
	if !bytes.Contains(m.text, []byte("cannot be selected")) {
		return false
	}
	st.library("openmpi")
	st.failed("mpi-pml-unavailable", "Open MPI could not select the messaging component that was asked for ("+shown(m.text)+"): set opal_common_ucx_devices=any where the device's driver is not mlx5, or install Open MPI's UCX component.", m)
	return true
}

// openmpiSelect reads what Open MPI says at pml_base_verbose or mtl_base_verbose
// of 10 and more: 'select: component ucx selected' (ompi/mca/pml/base/pml_base_select.c),
// and of transfer components 'select: init of component openib returned success'.
func (st *state) openmpiSelect(m *message) bool {
	t := string(m.arg)
	if rest, ok := strings.CutPrefix(t, "init of component "); ok {
		st.library("openmpi")
		name, result, _ := strings.Cut(rest, " returned ")
		if result == "success" && isRDMABTL(name) {
			st.mpi.btlRDMA = true
		}
		return true
	}
	rest, ok := strings.CutPrefix(t, "component ")
	if !ok {
		st.library("openmpi")
		return true
	}
	st.library("openmpi")
	name, what, _ := strings.Cut(rest, " ")
	switch what {
	case "selected":
		switch name {
		case "ob1", "ucx", "cm", "yalla", "mxm", "bfo", "csum":
			st.selectedPML(m, name)
		case "ofi", "psm", "psm2", "portals4":
			st.openmpiProc(m)
			st.mpi.mtl = name
		}
	case "not in the include list":
		if name == "ucx" {
			st.mpi.askedOB1 = true
		}
	}
	st.announce(m)
	return true
}

func (st *state) selectedPML(m *message, name string) {
	st.openmpiProc(m)
	addOnce(&st.mpi.pmls, name)
}

// isRDMABTL reports whether a transfer component of Open MPI uses RDMA. The btl/ofi and
// btl/uct of releases 4 and 5 carry one-sided operations only, but need RDMA too.
func isRDMABTL(name string) bool {
	switch name {
	case "openib", "usnic", "ugni", "portals4":
		return true
	}
	return false
}

// openmpiMismatch reads '[n1:7] [[52456,1],5] selected pml ob1, but peer [[52456,1],0] on n2
// selected pml ucx': UCX was refused on one side.
func (st *state) openmpiMismatch(m *message) bool {
	rest := string(m.arg)
	mine, _, _ := strings.Cut(rest, ",")
	i := strings.LastIndex(rest, "selected pml ")
	if i < 0 {
		return false
	}
	theirs := word([]byte(rest[i+len("selected pml "):]))
	st.library("openmpi")
	addOnce(&st.mpi.pmls, mine)
	addOnce(&st.mpi.pmls, theirs)
	if mine == "ob1" || theirs == "ob1" {
		st.fact(m, CauseMixed, mine+", "+theirs)
	}
	st.failed("mpi-pml-differs", "Ranks selected different messaging components ("+mine+" and "+theirs+"), so the job ends: UCX finds its devices on some nodes only; set pml=ucx and look at the RDMA devices of the node that chose "+mine+".", m)
	st.announce(m)
	return true
}

// openmpiBML reads 'mca: bml: Using tcp btl for send to [[26333,1],0] on node n2'
// (bml_base_verbose, or btl_base_verbose of 10 and more).
func (st *state) openmpiBML(m *message) bool {
	st.library("openmpi")
	btl, rest, ok := strings.Cut(string(m.arg), " btl")
	if !ok || btl == "self" || btl == "vader" || btl == "sm" || btl == "smcuda" {
		return true
	}
	st.openmpiProc(m)
	if _, node, ok := strings.Cut(rest, " on node "); ok && m.proc != nil && shortName(word([]byte(node))) == shortName(m.proc.host) {
		return true // within the node
	}
	addOnce(&st.mpi.btls, btl)
	switch {
	case btl == "tcp":
		st.mpi.btlTCP = true
	case isRDMABTL(btl) || btl == "uct" || btl == "ofi":
		st.mpi.btlRDMA = true
	}
	st.announce(m)
	return true
}

func shortName(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

func (st *state) openmpiBTL(m *message) bool {
	st.library("openmpi")
	st.mpi.btlTCP = true
	for _, bad := range []string{"failed", "unexpected process identifier", "unexpectedly closed", "timed out", "reset by peer"} {
		if bytes.Contains(m.text, []byte(bad)) {
			st.failed("mpi-btl-tcp", "Open MPI's TCP component reports an error, so data goes over TCP: set btl_tcp_if_include, or better pml=ucx.", m)
			break
		}
	}
	st.announce(m)
	return true
}

func (st *state) openmpiTCPConnect(m *message) bool {
	st.library("openmpi")
	st.mpi.btlTCP = true
	st.failed("mpi-tcp-connect", "Open MPI could not connect to a peer by TCP, so data goes (or would go) over TCP: check firewalls and btl_tcp_if_include, or better use pml=ucx.", m)
	st.announce(m)
	return true
}

// openmpiUCX reads the lines of Open MPI's UCX component. That it connects to
// its peers says that it was selected.
func (st *state) openmpiUCX(m *message) bool {
	t := m.text
	st.openmpiProc(m)
	switch {
	case bytes.Contains(t, []byte("ucp_ep_create")) && bytes.Contains(t, []byte("failed")), bytes.Contains(t, []byte("Failed to resolve UCX endpoint")):
		st.library("openmpi")
		st.secondary("mpi-ucx-endpoint", "Open MPI's UCX component could not reach a peer: UCX's own line before says why.", m)
	case bytes.Contains(t, []byte("rror")):
		st.library("openmpi")
		st.emit("mpi-ucx:"+keyOf(string(m.arg)), Event{ID: "mpi-ucx-error", Severity: SeverityError, Text: "Open MPI's UCX component reports: " + shown(t)}, m)
	case bytes.Contains(t, []byte("connecting to proc")), bytes.Contains(t, []byte("got proc")):
		st.library("openmpi")
		st.selectedPML(m, "ucx")
	case bytes.HasPrefix(t, []byte("[")), bytes.HasPrefix(t, []byte("pml_ucx")):
		st.library("openmpi")
	default:
		return false
	}
	return true
}

// openmpiCommonUCX reads why Open MPI takes UCX or not: 'common_ucx.c:314 support level is
// transports only' (opal/mca/common/ucx/common_ucx.c).
func (st *state) openmpiCommonUCX(m *message) bool {
	st.library("openmpi")
	_, level, ok := strings.Cut(string(m.arg), "support level is ")
	if !ok {
		// '312 tcp/eno1: did not match transport list'
		if head, _, ok := strings.Cut(string(m.arg), ": did not match transport list"); ok {
			tl, _, _ := strings.Cut(head[strings.LastIndexByte(head, ' ')+1:], "/")
			addOnce(&st.mpi.ucxTLs, tl)
		}
		return true
	}
	switch level {
	case "none":
		st.fact(m, factUCXLevel, level)
		if len(st.mpi.ucxTLs) > 0 && !slices.ContainsFunc(st.mpi.ucxTLs, isUCXRDMA) {
			st.openmpiProc(m)
			st.suspect(m, "mpi-ucx-no-device", "UCX finds nothing but "+strings.Join(st.mpi.ucxTLs, ", ")+" on this node, no RDMA transport, so Open MPI leaves it out: harmless on one node; else look at why (ibv_devinfo, /dev/infiniband, UCX built without verbs: ucx_info -d).")
		}
	case "transports only":
		st.fact(m, factUCXLevel, level)
		st.warned("mpi-ucx-driver", "Open MPI's UCX component does not take the driver of this host's RDMA device (its list is mlx*), and comes after ob1: set OMPI_MCA_opal_common_ucx_devices=any.", m)
	}
	return true
}

// openmpiOFI reads 'mtl:ofi:provider: efa'; release 4.1 prints the domain
// there (rdmap0s31-rdm, mlx5_0, eth0), and 5.0 that in a line of its own.
func (st *state) openmpiOFI(m *message) bool {
	t := strings.TrimLeft(string(m.arg), ":")
	domain := strings.HasPrefix(t, "domain: ")
	t = strings.TrimPrefix(t, "domain:")
	name := word([]byte(strings.TrimSpace(t)))
	if name == "" || strings.HasPrefix(t, "_") {
		return true // provider_include = …
	}
	st.library("openmpi")
	st.openmpiProc(m)
	st.mpi.mtl = "ofi"
	switch {
	case name == "none":
	case domain || looksLikeDomain(name):
		st.addDevices(&st.devices, []string{name})
		if isNetdevName(name) {
			addOnce(&st.mpi.opened, "tcp")
		}
	default:
		addOnce(&st.mpi.providers, name)
	}
	st.announce(m)
	return true
}

// looksLikeDomain tells 'mlx5_0', 'rdmap0s31-rdm', 'eth0' from names of providers, which
// have no digits but that of their generation.
func looksLikeDomain(name string) bool {
	name, _, _ = strings.Cut(name, ";")
	switch name {
	case "psm2", "psm3", "opx", "cxi", "gni", "bgq", "efa", "mlx", "verbs", "tcp", "udp", "sockets", "net", "shm", "sm2", "usnic", "ucx", "lnx", "linkx":
		return false
	}
	return strings.ContainsAny(name, "0123456789")
}

// isNetdevName reports whether a name is that of a network interface: where
// libfabric's domain is one, it is sockets.
func isNetdevName(name string) bool {
	for _, p := range []string{"eth", "eno", "ens", "enp", "enP", "em", "bond", "ib", "lo", "docker", "br-", "wl"} {
		rest, ok := strings.CutPrefix(name, p)
		if ok && (rest == "" || rest[0] >= '0' && rest[0] <= '9' || p == "ib") && !strings.ContainsAny(name, "_:") {
			return true
		}
	}
	return false
}

func (st *state) openmpiVersion(m *message) bool {
	v := strings.TrimPrefix(word(m.arg), "v")
	if !strings.Contains(v, ".") || v[0] < '0' || v[0] > '9' {
		return false
	}
	st.library("openmpi")
	if st.mpi.version == "" {
		st.mpi.version = v
	}
	return true
}

// openmpiOpenib reads the help texts of Open MPI's old InfiniBand component.
// With UCX they are noise: that component is off by intent from release 4.0 on.
func (st *state) openmpiOpenib(m *message) bool {
	st.libHint = "openmpi"
	st.mpi.openib = true
	st.warned("mpi-openib-off", "Open MPI's old openib component does not use an RDMA device. That is harmless where pml/ucx carries the data (pml_base_verbose=10 tells); where Open MPI has no UCX, data goes over TCP.", m)
	return true
}

func (st *state) openmpiNoActivePort(m *message) bool {
	st.libHint = "openmpi"
	st.suspect(m, "mpi-no-active-port", "Open MPI sees an RDMA device without an active port on this node, so its old openib component is left out: check cable, switch port and, on InfiniBand, the subnet manager (ibstat shows the state); on Omni-Path opainfo.")
	return true
}

// openmpiHost reads the host that a help text is about, which stands some lines below
// what it says.
func (st *state) openmpiHost(m *message) bool {
	host := word(bytes.TrimSpace(m.arg))
	if !isHost([]byte(host)) {
		return false
	}
	for i := len(st.events) - 1; i >= 0 && st.events[i].Host == st.opt.Host && strings.HasPrefix(st.events[i].ID, "mpi-"); i-- {
		st.events[i].Host = host
	}
	return true
}

// openmpiAdapter reads the device that a help text of openib is about, some lines
// below its first: what should carry the data depends on the device's make.
func (st *state) openmpiAdapter(m *message) bool {
	name := word(bytes.TrimSpace(m.arg))
	if !st.mpi.openib || name == "" {
		return false
	}
	key := "mpi-openib-device:" + name
	switch {
	case strings.HasPrefix(name, "hfi1_"), strings.HasPrefix(name, "qib"):
		st.suspect(m, "mpi-openib-device", "The device "+name+" is Omni-Path (or its forerunner), which openib and UCX are not made for: send by PSM2 or libfabric (OMPI_MCA_pml=cm with OMPI_MCA_mtl=psm2, or mtl=ofi), and silence openib with OMPI_MCA_btl=^openib.")
	case strings.HasPrefix(name, "mlx"), strings.HasPrefix(name, "ib"), strings.HasPrefix(name, "roce"):
		st.warned(key, "The device "+name+" is to be used by UCX: OMPI_MCA_pml=ucx makes sure of it, and OMPI_MCA_btl=^openib silences openib.", m)
	case strings.HasPrefix(name, "bnxt_re"), strings.HasPrefix(name, "irdma"), strings.HasPrefix(name, "qedr"), strings.HasPrefix(name, "rxe"), strings.HasPrefix(name, "ionic"), strings.HasPrefix(name, "i40iw"):
		st.warned(key, "Open MPI's UCX component takes the device "+name+" only when told to: OMPI_MCA_pml=ucx with OMPI_MCA_opal_common_ucx_devices=any, and OMPI_MCA_btl=^openib silences openib.", m)
	case strings.HasPrefix(name, "efa_"), strings.HasPrefix(name, "rdmap"):
		st.warned(key, "The device "+name+" is EFA, which is used through libfabric: OMPI_MCA_pml=cm, OMPI_MCA_mtl=ofi and FI_PROVIDER=efa.", m)
	}
	return true
}

func (st *state) openmpiComponentMissing(m *message) bool {
	st.library("openmpi")
	st.failed("mpi-component-missing", "Open MPI lacks a component that was asked for, or cannot open it (the lines 'Framework' and 'Component' below name it): install an Open MPI that has it, with its libraries.", m)
	return true
}

func (st *state) openmpiUnreachable(m *message) bool {
	st.library("openmpi")
	st.failed("mpi-unreachable", "Open MPI has no way from one rank to another: check which components are allowed (pml, btl, mtl) and whether every node's device is up.", m)
	return true
}

func (st *state) daemonLost(m *message) bool {
	switch {
	case bytes.Contains(m.text, []byte("has lost communication with a remote daemon")):
		st.library("openmpi")
		st.secondary("mpi-daemon-lost", "Open MPI lost its daemon on a node: that node, or the management network to it, failed.", m)
	case bytes.Contains(m.text, []byte("was unable to reliably start one or more daemons")):
		st.library("openmpi")
		st.failed("mpi-daemon-start", "Open MPI could not start its daemon on a node: check ssh, firewalls on the management network, and that Open MPI is at the same path there.", m)
	default:
		return false
	}
	return true
}

func (st *state) pmixError(m *message) bool {
	st.emit("pmix-error", Event{ID: "pmix-error", Severity: SeverityWarning, Text: "PMIx reports an error: " + shown(m.text)}, m)
	return true
}

// rankDied reads 'mpirun noticed that process rank 3 with PID 10 on node n2 exited on
// signal 9 (Killed).' and Hydra's 'BAD TERMINATION' box.
func (st *state) rankDied(m *message) bool {
	if i := bytes.Index(m.text, []byte("rank ")); i >= 0 {
		if r, _ := leadingInt(m.text[i+len("rank "):]); r >= 0 {
			m.rank = r
		}
	}
	st.secondary("rank-died", "A rank ended early ("+strings.Trim(shown(m.text), "=| ")+"): its own last lines say why.", m)
	return true
}

func (st *state) mpiAbort(m *message) bool {
	st.secondary("mpi-abort", "A rank called MPI_Abort: its own message says why.", m)
	return true
}

// mpiFatal reads the error stacks of MPICH and its kin, and Open MPI's
// '*** An error occurred in MPI_Init_thread'.
func (st *state) mpiFatal(m *message) bool {
	t := string(m.text)
	st.crayProc(m)
	if strings.HasPrefix(strings.TrimLeft(t, "[]0123456789: "), "Abort(") || strings.Contains(t, "Fatal error in ") {
		st.library("mpich")
	}
	if strings.Contains(t, "nit") || strings.Contains(t, "INIT") {
		st.secondary("mpi-init", "MPI could not be initialised: the lines around it say why.", m)
	} else {
		st.secondary("mpi-error", "An MPI operation failed ("+shown(m.text)+").", m)
	}
	return true
}

// crayProc learns who speaks in a line of Cray MPICH:
// 'MPICH ERROR [Rank 0] [job id 12.0] [Wed Feb 24 12:00:00 2021] [nid00012] - …'.
func (st *state) crayProc(m *message) {
	_, t, ok := bytes.Cut(m.text, []byte("MPICH ERROR [Rank "))
	if !ok {
		return
	}
	if r, _ := leadingInt(t); r >= 0 {
		m.rank = r
	}
	head, _, ok := bytes.Cut(t, []byte("] - "))
	if i := bytes.LastIndexByte(head, '['); ok && i >= 0 && i+1 < len(head) {
		host := head[i+1:]
		for _, c := range host {
			if !isHostByte(c) {
				return
			}
		}
		m.proc = st.procOf(&segment{host: host, pid: uint32(max(m.rank, 0)), clean: true})
	}
}

// --- Intel MPI ---

// intelStartup reads Intel MPI's '[0] MPI startup(): …' lines (I_MPI_DEBUG=4 on).
func (st *state) intelStartup(m *message) bool {
	st.library("intelmpi")
	t := strings.TrimSpace(string(m.arg))
	st.mpi.ranksDone = len(st.mpi.ranks) > 0
	switch {
	case strings.HasPrefix(t, "libfabric provider: "):
		st.said(m, strings.TrimSpace(t[len("libfabric provider: "):]))
	case strings.Contains(t, "MPI Library, Version ") && st.mpi.ranksDone && st.number+1 < maxRuns:
		return st.nextRun().intelStartup(m)
	case strings.Contains(t, "MPI Library, Version "):
		_, v, _ := strings.Cut(t, "MPI Library, Version ")
		st.mpi.version = word([]byte(v))
	case strings.HasSuffix(t, " data transfer mode"), strings.HasSuffix(t, " data transfer modes"):
		// Before 2019: 'shm and dapl data transfer modes'.
		for f := range strings.FieldsSeq(t) {
			switch f {
			case "tcp", "dapl", "ofa", "ofi", "tmi", "mxm":
				if f != "tmi" || len(st.mpi.providers) == 0 {
					st.said(m, f)
				}
			}
		}
	case strings.Contains(t, "fabric is not available"):
		name, _, _ := strings.Cut(t, " ")
		if strings.Contains(t, "fallback fabric is not enabled") {
			st.failed("mpi-fabric-missing", "Intel MPI cannot use the fabric "+name+" on this node and was told not to fall back: its device is missing or cannot be opened.", m)
		} else {
			st.warned("mpi-fabric-missing", "Intel MPI cannot use the fabric "+name+" on this node and takes another: its device is missing or cannot be opened.", m)
		}
	case strings.Contains(t, "RLIMIT_MEMLOCK"):
		st.warned("memlock-low", "The locked-memory limit is low for RDMA ("+t+"): raise it (ulimit -l unlimited).", m)
	case strings.HasPrefix(t, "I_MPI_"), strings.HasPrefix(t, "FI_"):
		if name, v, ok := strings.Cut(t, "="); ok {
			st.setEnv(name, v)
		}
	default:
		// '0       12345    node1    {0,1}': rank, process, host, pins.
		f := strings.Fields(t)
		if len(f) >= 3 && allDigits([]byte(f[0])) && allDigits([]byte(f[1])) {
			r, _ := leadingInt([]byte(f[0]))
			if st.mpi.ranks == nil {
				st.mpi.ranks = map[int]string{}
			}
			if len(st.mpi.ranks) < maxProcs {
				st.mpi.ranks[r] = f[2]
			}
			st.mpi.ranksDone = false
			st.announce(m)
		}
	}
	return true
}

// said takes the provider that an MPI library names.
func (st *state) said(m *message, provider string) {
	addOnce(&st.mpi.providers, provider)
	st.announce(m)
}

// intelTMI reads 'init_tmi_provider(): TMI provider initialized: psm2 (1.3)', of the years
// before libfabric.
func (st *state) intelTMI(m *message) bool {
	st.library("intelmpi")
	st.said(m, word(bytes.TrimSpace(m.arg)))
	return true
}

// --- MVAPICH, MPICH, libfabric ---

func (st *state) mvapich(m *message) bool {
	st.library("mvapich")
	if i := bytes.Index(m.text, []byte("MVAPICH2-")); i >= 0 && st.mpi.version == "" {
		v := word(m.text[i+len("MVAPICH2-"):])
		if v != "" && v[0] >= '0' && v[0] <= '9' {
			st.mpi.version = v
		}
	}
	return true
}

// mvapichRank reads what a rank of MVAPICH2 reports: '[n1:mpi_rank_0][handle_cqe]
// Got completion with error 12 …', or '… wc.status=12 (transport retry counter exceeded)'.
// Its InfiniBand builds know no TCP: they end.
func (st *state) mvapichRank(m *message) bool {
	st.library("mvapich")
	if r, _ := leadingInt(m.arg); r >= 0 {
		m.rank = r
	}
	switch {
	case bytes.Contains(m.text, []byte("with error ")), bytes.Contains(m.text, []byte("status=")):
		st.completion(m)
	case bytes.Contains(m.text, []byte("Caught error: ")), bytes.Contains(m.text, []byte("Segmentation fault")):
		st.secondary("crash", "A process of the job crashed ("+shown(m.text)+").", m)
	}
	return true
}

func (st *state) mvapichNoHCA(m *message) bool {
	st.failed("no-active-hca", "MVAPICH finds no active RDMA device, and its InfiniBand builds know no TCP: check the port of the node that says so, and that the job may open /dev/infiniband.", m)
	return true
}

// mpichProvider reads MPICH's choice (MPIR_CVAR_DEBUG_SUMMARY=1):
// 'libfabric provider: tcp;ofi_rxm - 10.1.0.0/16'. Candidates are listed as 'provider: …'.
func (st *state) mpichProvider(m *message) bool {
	st.library("mpich")
	if p := word(bytes.TrimSpace(m.arg)); p != "" {
		st.said(m, p)
	}
	return true
}

// libfabricLine reads 'libfabric:<pid>:<time>:<provider>:<subsystem>:<func>():<line><level> text'.
func (st *state) libfabricLine(m *message) bool {
	st.library("libfabric")
	if _, text, ok := bytes.Cut(m.arg, []byte("<info> ")); ok {
		st.libfabricInfo(m, string(text))
		return true
	}
	_, text, ok := bytes.Cut(m.arg, []byte("<warn> "))
	if !ok {
		return true
	}
	t := string(text)
	switch {
	case strings.Contains(t, "Cannot allocate memory"):
		st.failed("memlock", memlockText, m)
	case strings.Contains(t, "FI_HMEM capability requires RDMA"):
		st.gdrReason(m, gdrHMEM, "")
	case strings.Contains(t, "No data available"), strings.Contains(t, "output empty list"):
		if strings.Contains(t, "provider efa ") {
			st.fact(m, factEFAEmpty, "")
		}
		// Each provider that is not for this host says so.
		st.emit("libfabric:"+keyOf(t), Event{ID: "libfabric-warn", Severity: SeverityNote, Text: "libfabric has no such provider here: " + shown(text)}, m)
	default:
		st.emit("libfabric:"+keyOf(t), Event{ID: "libfabric-warn", Severity: SeverityWarning, Text: "libfabric warns: " + shown(text)}, m)
	}
	return true
}

// libfabricInfo reads what libfabric opens (src/fabric.c, fi_fabric): 'Using verbs provider
// 119.0, path:…' (1.14 on), and before only the fabric's name, which is the
// provider's (efa, cxi, psm2, mlx), or a network of its own kind.
func (st *state) libfabricInfo(m *message, t string) {
	if name, ok := strings.CutPrefix(t, "Opened fabric: "); ok {
		name = word([]byte(name))
		switch {
		case strings.HasPrefix(name, "IB-0x"):
			addOnce(&st.mpi.opened, "verbs")
		case !looksLikeDomain(name) && !isUtilityProvider(name):
			addOnce(&st.mpi.opened, name)
		}
		st.announce(m)
		return
	}
	if rest, ok := strings.CutPrefix(t, "Using "); ok {
		if name, _, ok := strings.Cut(rest, " provider "); ok && !isUtilityProvider(name) && !strings.Contains(name, " ") {
			addOnce(&st.mpi.opened, name)
			st.announce(m)
		}
	}
}
