package watch

import (
	"bytes"
	"fmt"
	"strings"
)

// barePattern is something said in a line without an NCCL prefix: by UCX, MPI,
// libfabric, torch or nccl-tests, or by NCCL in a log whose prefixes are gone.
// do returns true when the line has been dealt with.
type barePattern struct {
	id   string
	mark []byte
	do   func(*state, *message) bool
}

// barePatterns is the explicit list, in the order in which they are tried.
var barePatterns = []barePattern{
	{"ucx", []byte("UCX "), (*state).ucxLine},
	{"ucx-device", []byte("ib_mlx5_log.c:"), (*state).ucxBare},
	{"ucx-verbs", []byte("completion with error:"), (*state).ucxBare},
	{"ucx-crash", []byte("Caught signal "), (*state).ucxCrash},
	{"ucx-config", []byte("inter-node cfg#"), (*state).ucxTable},
	{"ucx-config-node", []byte("intra-node cfg#"), (*state).ucxTableOther},
	{"ucx-config-self", []byte("self cfg#"), (*state).ucxTableOther},
	{"ucx-table-row", []byte("/"), (*state).ucxTableRow},
	{"phrase", []byte(""), (*state).barePhrase},

	{"nccl-version", []byte("NCCL version "), (*state).bareVersion},
	{"rccl-version", []byte("RCCL version"), (*state).bareVersion},
	{"nccl-tests-rank", []byte("Rank "), (*state).testsRank},
	{"nccl-tests-table", []byte("out-of-place"), (*state).testsTable},
	{"torch-nccl", []byte("ProcessGroupNCCL"), (*state).torchNCCL},
	{"nccl-failure", []byte("Test NCCL failure"), (*state).ncclFailure},
	{"torch-nccl-error", []byte("NCCL error"), (*state).torchError},
	{"xla-last-warning", []byte("(may be unrelated) '"), (*state).xlaWarning},
	{"nccl-result", []byte("unhandled system error"), (*state).ncclResult},
	{"nccl-result-cuda", []byte("unhandled cuda error"), (*state).ncclResult},
	{"nccl-result-remote", []byte("remote process exited or there was a network error"), (*state).ncclResult},
	{"nccl-result-name", []byte("Error: "), (*state).ncclResultName},

	{"openmpi-no-pml", []byte("No components were able to be opened in the pml framework"), (*state).openmpiNoPML},
	{"openmpi-pml", []byte("PML "), (*state).openmpiPML},
	{"openmpi-mismatch", []byte("selected pml "), (*state).openmpiMismatch},
	{"openmpi-select", []byte("select: "), (*state).openmpiSelect},
	{"openmpi-bml", []byte("mca: bml: Using "), (*state).openmpiBML},
	{"openmpi-ofi", []byte("mtl:ofi:provider"), (*state).openmpiOFI},
	{"openmpi-common-ucx", []byte("common_ucx.c:"), (*state).openmpiCommonUCX},
	{"openmpi-btl-tcp", []byte("[btl_tcp"), (*state).openmpiBTL},
	{"openmpi-tcp-connect", []byte("Open MPI failed to TCP connect"), (*state).openmpiTCPConnect},
	{"openmpi-ucx", []byte("pml_ucx"), (*state).openmpiUCX},
	{"openmpi-openib-port", []byte("No OpenFabrics connection schemes"), (*state).openmpiOpenib},
	{"openmpi-openib-init", []byte("an error initializing an OpenFabrics device"), (*state).openmpiOpenib},
	{"openmpi-openib-off", []byte("infiniband ports on a device"), (*state).openmpiOpenib},
	{"openmpi-no-active-port", []byte("one OpenFabrics device found"), (*state).openmpiNoActivePort},
	{"openmpi-host", []byte("Local host:"), (*state).openmpiHost},
	{"openmpi-adapter", []byte("Local adapter:"), (*state).openmpiAdapter},
	{"openmpi-device", []byte("Local device:"), (*state).openmpiAdapter},
	{"openmpi-component-missing", []byte("requested component was not found"), (*state).openmpiComponentMissing},
	{"openmpi-unreachable", []byte("at least one MPI process is unreachable"), (*state).openmpiUnreachable},
	{"openmpi-pair-unreachable", []byte("pair of MPI processes are unable to reach each other"), (*state).openmpiUnreachable},
	{"openmpi-daemon", []byte("daemon"), (*state).daemonLost},
	{"openmpi-version", []byte("Open MPI) "), (*state).openmpiVersion},
	{"openmpi-version-hello", []byte("(Open MPI "), (*state).openmpiVersion},
	{"pmix-error", []byte("PMIX ERROR: "), (*state).pmixError},
	{"rank-died", []byte("noticed that process rank"), (*state).rankDied},
	{"rank-died-hydra", []byte("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"), (*state).rankDied},
	{"mpi-abort", []byte("MPI_ABORT was invoked"), (*state).mpiAbort},
	{"mpi-fatal", []byte("Fatal error in "), (*state).mpiFatal},
	{"mpi-error", []byte("An error occurred in MPI_"), (*state).mpiFatal},
	{"mpi-init-failed", []byte("like MPI_INIT failed"), (*state).mpiFatal},
	{"mpich-init", []byte("internal_Init_thread"), (*state).mpiFatal},
	{"intel", []byte("MPI startup():"), (*state).intelStartup},
	{"intel-tmi", []byte("TMI provider initialized: "), (*state).intelTMI},
	{"mpich-provider", []byte("libfabric provider: "), (*state).mpichProvider},
	{"mvapich-no-hca", []byte("No active HCAs found"), (*state).mvapichNoHCA},
	{"mvapich", []byte("MVAPICH"), (*state).mvapich},
	{"mvapich-rank", []byte(":mpi_rank_"), (*state).mvapichRank},
	{"libfabric", []byte("libfabric:"), (*state).libfabricLine},

	{"verbs-driver", []byte("libibverbs: Warning: couldn't load driver '"), (*state).verbsDriver},
	{"verbs-driver-2", []byte("libibverbs: Warning: couldnt load driver '"), (*state).verbsDriver},
	{"verbs-no-driver", []byte("no userspace device-specific driver found for"), (*state).verbsNoDriver},
	{"verbs-sysfs", []byte("libibverbs: Warning: couldn't stat '/sys/class/infiniband/"), (*state).verbsSysfs},
	{"command-line", []byte("-mca "), (*state).commandLine},
	{"env-assignment", []byte("_"), (*state).envDump},
	{"bare-nccl", []byte(""), (*state).bareNCCL},
}

func (st *state) bareVersion(m *message) bool {
	st.library("nccl")
	i := bytes.Index(m.text, []byte("CCL version"))
	v := message{proc: m.proc, rank: m.rank, dev: -1, text: m.text[i-1:], arg: torchVersion(bytes.TrimLeft(m.text[i+len("CCL version"):], " :")), raw: m.raw}
	st.versionLine(&v)
	// Torch names the version in the line of its watchdog.
	return !bytes.Contains(m.text, []byte("ProcessGroupNCCL")) && !bytes.Contains(m.text, []byte("NCCL error"))
}

// torchVersion undoes how torch up to 1.11 takes NCCL's number apart, as if 2.9 had
// never changed it: 21003, which is 2.10.3, reads '21.0.3' there.
func torchVersion(t []byte) []byte {
	major, rest := leadingInt(t)
	if major < 20 || len(rest) == 0 || rest[0] != '.' {
		return t
	}
	minor, rest := leadingInt(rest[1:])
	if minor < 0 || len(rest) == 0 || rest[0] != '.' {
		return t
	}
	patch, _ := leadingInt(rest[1:])
	code := major*1000 + minor*100 + max(patch, 0)
	return fmt.Appendf(nil, "%d.%d.%d", code/10000, code%10000/100, code%100)
}

// testsRank reads the header of nccl-tests:
// '#  Rank  0 Group  0 Pid  880 on node1 device  0 [0xa4] NVIDIA …'.
func (st *state) testsRank(m *message) bool {
	if m.text[0] != '#' {
		return false
	}
	r, rest := leadingInt(bytes.TrimLeft(m.arg, " "))
	_, host, ok := strings.Cut(string(rest), " on ")
	if r < 0 || !ok || len(st.tests) >= maxProcs {
		return false
	}
	if _, there := st.tests[r]; there && st.testsDone && st.number+1 < maxRuns {
		return st.nextRun().testsRank(m)
	}
	host, _, ok = strings.Cut(strings.TrimSpace(host), " ")
	if !ok {
		return false
	}
	st.tests[r] = host
	return true
}

// testsTable reads the head of nccl-tests' results, which comes behind the ranks:
// '#                                                              out-of-place …'.
func (st *state) testsTable(m *message) bool {
	if m.text[0] != '#' {
		return false
	}
	st.testsDone = len(st.tests) > 0
	return true
}

func (st *state) torchNCCL(m *message) bool {
	st.library("nccl")
	switch {
	case bytes.Contains(m.text, []byte("Watchdog caught collective operation timeout")):
		st.failed("nccl-timeout", "A collective did not end in torch's time limit: one rank is missing, late or dead, or a node's network is. The rank that does not say so, or whose sequence number is lower, is the suspect: look at its log first. TORCH_NCCL_TRACE_BUFFER_SIZE=2000 lets torch keep each rank's last collectives.", m)
	case bytes.Contains(m.text, []byte("Heartbeat monitor timed out")), bytes.Contains(m.text, []byte("monitoring thread")) && bytes.Contains(m.text, []byte("timed out")):
		st.failed("torch-heartbeat", "A rank's NCCL watchdog stood still, so torch ends the process: a CUDA call hangs, or the program holds Python's lock for minutes. Look at what that rank did last; other ranks' time-outs follow from it. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC sets the limit.", m)
	case bytes.Contains(m.text, []byte("taking the entire process down")), bytes.Contains(m.text, []byte("watchdog thread terminated with exception")):
		st.secondary("torch-watchdog", "Torch's watchdog ended the process after an NCCL error.", m)
	}
	return true
}

func (st *state) torchError(m *message) bool {
	st.library("nccl")
	st.ncclResult(m)
	return true
}

// ncclResults are the results by which NCCL's callers tell that it failed (ncclGetErrorString).
var ncclResults = []string{
	"unhandled system error", "unhandled cuda error", "internal error", "invalid usage", "invalid argument",
	"remote process exited or there was a network error",
}

// ncclResult reads what programs print of a call that failed: 'NCCL error in: …, unhandled
// system error', 'ncclCommInitRank failed: unhandled cuda error'.
func (st *state) ncclResult(m *message) bool {
	if !bytes.Contains(m.text, []byte("NCCL")) && !bytes.Contains(m.text, []byte("nccl")) || isQuoted(m.text, 0) {
		return false
	}
	for _, r := range ncclResults {
		if bytes.Contains(m.text, []byte(r)) {
			st.library("nccl")
			st.secondary("nccl-failed", "NCCL returned an error to the program ("+r+"): its own warnings say why (NCCL_DEBUG=WARN shows them).", m)
			return true
		}
	}
	return false
}

// ncclResultName reads torch's line on a result: 'ncclInternalError: Internal check failed.'
func (st *state) ncclResultName(m *message) bool {
	t := afterRankTag(m.text)
	for _, name := range []string{"ncclSystemError: ", "ncclInternalError: ", "ncclRemoteError: ", "ncclUnhandledCudaError: ", "ncclInvalidUsage: ", "ncclInvalidArgument: "} {
		if bytes.HasPrefix(t, []byte(name)) {
			st.library("nccl")
			st.secondary("nccl-failed", "NCCL returned an error to the program ("+strings.TrimSuffix(name, ": ")+"): its own warnings say why (NCCL_DEBUG=WARN shows them).", m)
			return true
		}
	}
	return false
}

func (st *state) ncclFailure(m *message) bool {
	st.library("nccl")
	st.secondary("nccl-failed", "NCCL returned an error to the program: "+shown(m.text), m)
	return true
}

// verbsDriver reads 'libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': …': the
// part of libibverbs for one make of device is missing. It says so for every make that
// is configured, so that only one in use today counts, and only where no device is found.
func (st *state) verbsDriver(m *message) bool {
	name, _, _ := strings.Cut(string(m.arg), "'")
	name, _, _ = strings.Cut(strings.TrimPrefix(name[strings.LastIndex(name, "/")+1:], "lib"), "-rdmav")
	switch name {
	case "mlx5", "mlx4", "bnxt_re", "irdma", "efa", "erdma", "hns", "ionic", "qedr", "rxe":
		st.fact(m, factVerbsDriver, name)
		st.emit("verbs-driver:"+name, Event{ID: "verbs-driver", Severity: SeverityNote, Text: "libibverbs lacks its driver for " + name + " devices: install ibverbs-providers (rdma-core) in the image."}, m)
	}
	return true
}

// verbsNoDriver reads 'libibverbs: Warning: no userspace device-specific driver found for
// /sys/class/infiniband_verbs/uverbs0', which is of a device that is there.
func (st *state) verbsNoDriver(m *message) bool {
	st.fact(m, factVerbsDriver, "this host's")
	st.suspect(m, "verbs-driver", "libibverbs has no driver for an RDMA device of this host ("+word(bytes.TrimSpace(m.arg))+"): install ibverbs-providers (rdma-core) in the image, of a version that knows the device.")
	return true
}

// xlaWarning reads what XLA (JAX, TensorFlow) quotes of NCCL: 'Last NCCL warning(error) log
// entry (may be unrelated) 'Call to ibv_modify_qp failed …”.
func (st *state) xlaWarning(m *message) bool {
	st.ncclResult(m)
	text, _, _ := bytes.Cut(m.arg, []byte("'"))
	if !bytes.Contains(m.text, []byte("NCCL")) || len(text) < 8 {
		return false
	}
	st.quoted(text)
	return true
}

// verbsSysfs reads a warning of libibverbs for a device that it may open and whose
// directory in sysfs is not there: a container that was given half of it.
func (st *state) verbsSysfs(m *message) bool {
	st.fact(m, factSysfsGone, strings.TrimRight(word(m.arg), "'"))
	return true
}

// wishes are the beginnings of the names of settings that say what was wanted.
var wishes = [][]byte{[]byte("NCCL_"), []byte("UCX_"), []byte("OMPI_MCA_"), []byte("FI_PROVIDER"), []byte("I_MPI_")}

// envDump reads settings where a log shows them: 'NCCL_NET=Socket' of an env
// dump, 'export NCCL_IB_DISABLE=1' of a traced script, '-x NCCL_NET=IB' of an
// mpirun line. They say what was wanted, not what happened.
func (st *state) envDump(m *message) bool {
	for _, lead := range []string{"#", "//", "echo ", "+ echo "} {
		if bytes.HasPrefix(m.text, []byte(lead)) {
			return false // a setting that somebody writes about
		}
	}
	found := false
	for _, lead := range wishes {
		t := m.text
		for len(t) > 0 && len(t) < 1<<14 {
			i := bytes.Index(t, lead)
			if i < 0 {
				break
			}
			before := byte(' ')
			if i > 0 {
				before = t[i-1]
			}
			t = t[i:]
			eq := bytes.IndexByte(t, '=')
			if eq < 0 || eq > 64 {
				break
			}
			name := string(t[:eq])
			if (before == ' ' || before == '\'' || before == '"') && isEnvName(name) {
				value, _, _ := strings.Cut(string(t[eq+1:]), " ")
				st.setEnv(name, settingValue(name, value))
				found = true
			}
			t = t[eq+1:]
		}
	}
	return found && !bytes.Contains(m.text, []byte("NET/"))
}

// commandLine reads the MCA parameters of an mpirun line that a log shows:
// '--mca pml ob1 --mca btl tcp,self'.
func (st *state) commandLine(m *message) bool {
	t := m.text
	if !bytes.Contains(t, []byte("mpirun ")) && !bytes.Contains(t, []byte("mpiexec ")) || len(t) > 1<<14 {
		return false
	}
	f := strings.Fields(string(t))
	for i := 0; i+2 < len(f); i++ {
		if f[i] == "--mca" || f[i] == "-mca" || f[i] == "--gmca" {
			st.setEnv("OMPI_MCA_"+f[i+1], strings.Trim(f[i+2], "'\""))
		}
	}
	return false // it may set variables too
}

func isEnvName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

// quotedWarns begin the warnings of NCCL that torch quotes under "Last error:",
// the only place where they stand when NCCL_DEBUG is not set.
var quotedWarns = [][]byte{
	[]byte("Call to ibv_"), []byte("socketProgress"), []byte("Net : Conn"), []byte("socketStartConnect"), []byte("socketPollConnect"),
	[]byte("socketFinalize"), []byte("Error: network "), []byte("Failed to initialize any NET"),
}

// afterRankTag returns what stands behind torch's '[rank3]: ' or a launcher's
// '[trainer0|3]:'.
func afterRankTag(t []byte) []byte {
	if len(t) == 0 || t[0] != '[' {
		return t
	}
	end := bytes.Index(t[:min(len(t), 40)], []byte("]:"))
	if end < 0 {
		return t
	}
	return bytes.TrimLeft(t[end+2:], " ")
}

// bareNCCL reads NCCL's own text where its prefix is missing: excerpts, the
// tails of overwritten lines, and what torch quotes as "Last error".
func (st *state) bareNCCL(m *message) bool {
	t := m.text
	if i := bytes.Index(t, viaMark); i >= 0 && bytes.HasPrefix(t[i+len(viaMark):], []byte("NET/")) {
		st.library("nccl")
		st.netLeaves = true
		st.via(m, t[i+len(viaMark):])
		return true
	}
	t = afterRankTag(t)
	if bytes.HasPrefix(t, []byte("NET/")) || bytes.HasPrefix(t, []byte("Using network ")) {
		st.library("nccl")
		v := *m
		v.text, v.warn = t, bytes.Contains(t, []byte("Got completion"))
		st.message(&v)
		return true
	}
	for _, lead := range quotedWarns {
		if bytes.HasPrefix(t, lead) {
			st.library("nccl")
			v := *m
			v.text, v.warn = t, true
			st.message(&v)
			return true
		}
	}
	// 'Channel 00 -> NET/IB/0/GDRDMA', the short form that people quote.
	if bytes.HasPrefix(t, []byte("Channel ")) {
		for {
			i := bytes.Index(t, []byte("-> NET/"))
			if i < 0 {
				break
			}
			t = t[i+len("-> NET/"):]
			st.library("nccl")
			st.netLeaves = true
			st.viaNet(m, t)
		}
	}
	return true
}
