package vars

import (
	"slices"
	"strings"
)

// Kind says how a library reads a variable's value.
type Kind string

// The kinds of value.
const (
	Int    Kind = "int"    // a number; NCCL reads anything else as 0
	Bool   Kind = "bool"   // 0 or 1; UCX also y, n
	Enum   Kind = "enum"   // one of Values
	List   Kind = "list"   // comma-separated
	String Kind = "string" // free
)

// Variable is what is known of one environment variable.
type Variable struct {
	Name    string
	Library string // "nccl", "ucx", "openmpi", "mpich", "intelmpi", "mvapich", "libfabric", "nvshmem", "gloo", "ofi-nccl", "torch"
	Kind    Kind
	Hidden  bool     // in the source, and in no documentation
	Since   string   // first version that has it; "" always, or not known
	Until   string   // first version that no longer has it; "" still there
	Values  []string // valid words of an Enum; nil any
	Min     int      // of an Int, with Max > Min; both 0: any
	Max     int
	Instead string // for an old name: what is read today
	IfWrong string // what a wrong value does
}

// Documentation is where a library's variables are written up; "" not known.
func Documentation(library string) string {
	switch library {
	case "nccl":
		return "docs.nvidia.com/deeplearning/nccl, Environment Variables"
	case "rccl":
		return "rocm.docs.amd.com/projects/rccl, Environment variables"
	case "ucx":
		return "ucx_info -cf"
	case "openmpi":
		return "ompi_info --all"
	case "nvshmem":
		return "docs.nvidia.com/nvshmem, Environment Variables"
	case "libfabric":
		return "fi_info -e"
	case "mvapich":
		return "mvapich.cse.ohio-state.edu, User Guide"
	}
	return ""
}

// Known returns what is known of a variable, by its exact name.
func Known(name string) (Variable, bool) {
	i, ok := slices.BinarySearchFunc(variables, name, func(v Variable, n string) int { return strings.Compare(v.Name, n) })
	if !ok {
		return Variable{}, false
	}
	return variables[i], true
}

// Nearest returns the known variable that a name was probably meant to be: an
// underscore too many or too few, or one word of it misspelt by a letter or two.
// A word that other variables of the library have is no misspelling: libraries
// have more names than this table, and a short word that differs in two letters is
// another word.
func Nearest(name string) (Variable, bool) {
	upper := strings.ToUpper(name)
	words := strings.Split(upper, "_")
	for _, v := range variables {
		if v.Instead == "" && v.Name != name && strings.ReplaceAll(v.Name, "_", "") == strings.ReplaceAll(upper, "_", "") {
			return v, true
		}
	}
	best, at := 1<<10, -1
	for i, v := range variables {
		have := strings.Split(v.Name, "_")
		if v.Instead != "" || len(have) != len(words) || have[0] != words[0] {
			continue
		}
		differ := -1
		for j := range have {
			if have[j] == words[j] {
				continue
			}
			if differ >= 0 {
				differ = len(have)
				break
			}
			differ = j
		}
		if differ < 0 || differ == len(have) || isWord(words[0], words[differ]) && !plural(words[differ], have[differ]) {
			continue
		}
		if d, ok := misspelt(words[differ], have[differ]); ok && d < best {
			best, at = d, i
		}
	}
	if at < 0 {
		return Variable{}, false
	}
	return variables[at], true
}

// misspelt says whether a is probably b with a letter or two wrong.
func misspelt(a, b string) (edits int, ok bool) {
	d, short := distance(a, b), min(len(a), len(b))
	return d, d == 1 && short >= 3 || d == 2 && (short >= 5 || short >= 3 && (within(a, b) || within(b, a)))
}

// plural says whether two words differ in an S at the end alone.
func plural(a, b string) bool { return a+"S" == b || b+"S" == a }

// within says whether the letters of a are all in b, in their order.
func within(a, b string) bool {
	for _, r := range a {
		_, rest, ok := strings.Cut(b, string(r))
		if !ok {
			return false
		}
		b = rest
	}
	return true
}

// otherWords are words of names that are real and not in the table.
var otherWords = []string{
	"UD", "DC", "RC", "TCP", "SM", "MM", "SHM", "POSIX", "SYSV", "CMA", "KNEM", "XPMEM", "CUDA", "ROCM", "ZE",
	"GDR", "COPY", "IPC", "VERBS", "MLX5", "RX", "TX", "MAX", "MIN", "BB", "QUEUE", "LEN", "SEG", "SIZE", "BUF",
	"BUFS", "GROW", "ALLOC", "PRIO", "ADDR", "ADDRESS", "COUNT", "THRESH", "STATS", "DEST", "TRIGGER", "FILTER",
	"VFS", "ENABLE", "DISABLE", "MODE", "KEEPALIVE", "TIMEOUT", "RNR", "RETRY", "FC", "WND",
}

// isWord says whether a word is part of some real name of the same library.
func isWord(library, word string) bool {
	if slices.Contains(otherWords, word) {
		return true
	}
	return slices.ContainsFunc(variables, func(v Variable) bool {
		name, ok := strings.CutPrefix(v.Name, library+"_")
		if !ok {
			return false
		}
		for w := range strings.SplitSeq(name, "_") {
			if w == word {
				return true
			}
		}
		return false
	})
}

// distance is the number of single-letter edits between a and b, two letters
// changed about among them.
func distance(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, before
	}
	return rows[1][len(b)]
}

// OwnPrefixes are the beginnings of names whose libraries the table covers.
func OwnPrefixes() []string {
	return []string{"NCCL_", "UCX_", "NVSHMEM_", "MV2_", "GLOO_"}
}

// Levels are NCCL's words for a distance.
var Levels = []string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}

// variables is read only, and written in the order of its names: it is searched
// and costs nothing at start-up. Versions and ranges: NVIDIA/nccl
// src/ (param.cc, transport/net_ib, graph/paths.cc) over all release tags and
// docs/userguide env.rst; openucx/ucx src/uct/ib/base and src/ucp/core;
// the manuals of the others.
var variables = []Variable{
	{Name: "FI_EFA_FORK_SAFE", Library: "libfabric", Kind: Bool},
	{Name: "FI_EFA_USE_DEVICE_RDMA", Library: "libfabric", Kind: Bool},
	{Name: "FI_EFA_USE_HUGE_PAGE", Library: "libfabric", Kind: Bool},
	{Name: "FI_MLX_TLS", Library: "libfabric", Kind: List},
	{Name: "FI_PROVIDER", Library: "libfabric", Kind: List},
	{Name: "FI_VERBS_DEVICE_NAME", Library: "libfabric", Kind: String},
	{Name: "FI_VERBS_GID_IDX", Library: "libfabric", Kind: Int, Min: 0, Max: 255},
	{Name: "FI_VERBS_IFACE", Library: "libfabric", Kind: String},
	{Name: "GLOO_SOCKET_IFNAME", Library: "gloo", Kind: List, IfWrong: "an exact name that is not there ends the job"},
	{Name: "I_MPI_DEBUG", Library: "intelmpi", Kind: String},
	{Name: "I_MPI_FABRICS", Library: "intelmpi", Kind: Enum, Values: []string{"shm:ofi", "ofi", "shm"}},
	{Name: "I_MPI_HYDRA_IFACE", Library: "intelmpi", Kind: String},
	{Name: "I_MPI_OFI_PROVIDER", Library: "intelmpi", Kind: String},
	{Name: "MPIR_CVAR_CH4_NETMOD", Library: "mpich", Kind: Enum, Values: []string{"ucx", "ofi"}},
	{Name: "MPIR_CVAR_OFI_USE_PROVIDER", Library: "mpich", Kind: String, Until: "5.0", Instead: "FI_PROVIDER"},
	{Name: "MV2_CPU_BINDING_POLICY", Library: "mvapich", Kind: String},
	{Name: "MV2_DEFAULT_GID_INDEX", Library: "mvapich", Kind: Int, Min: 0, Max: 255},
	{Name: "MV2_DEFAULT_PORT", Library: "mvapich", Kind: Int},
	{Name: "MV2_DEFAULT_SERVICE_LEVEL", Library: "mvapich", Kind: Int, Min: 0, Max: 15},
	{Name: "MV2_ENABLE_AFFINITY", Library: "mvapich", Kind: Bool},
	{Name: "MV2_IBA_HCA", Library: "mvapich", Kind: String},
	{Name: "MV2_NUM_HCAS", Library: "mvapich", Kind: Int, Min: 1, Max: 64},
	{Name: "MV2_SHOW_ENV_INFO", Library: "mvapich", Kind: Int, Min: 0, Max: 2},
	{Name: "MV2_USE_CUDA", Library: "mvapich", Kind: Bool},
	{Name: "MV2_USE_RDMA_CM", Library: "mvapich", Kind: Bool},
	{Name: "MV2_USE_ROCE", Library: "mvapich", Kind: Bool},
	{Name: "MV2_USE_ROCE_MODE", Library: "mvapich", Kind: Int, Min: 1, Max: 2},
	{Name: "MV2_USE_RoCE", Library: "mvapich", Kind: Bool},
	{Name: "NCCL_AGG_CHANNEL_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_ALGO", Library: "nccl", Kind: String},
	{Name: "NCCL_ALLOC_P2P_NET_LL_BUFFERS", Library: "nccl", Kind: Bool, Since: "2.14"},
	{Name: "NCCL_ASYNC_ERROR_HANDLING", Library: "torch", Kind: Int, Instead: "TORCH_NCCL_ASYNC_ERROR_HANDLING"},
	{Name: "NCCL_BLOCKING_WAIT", Library: "torch", Kind: Bool, Instead: "TORCH_NCCL_BLOCKING_WAIT"},
	{Name: "NCCL_BOOTSTRAP_BIDIR_ALLGATHER", Library: "rccl", Kind: Bool},
	{Name: "NCCL_BUFFSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_CGA_CLUSTER_SIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_CHECKS_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_CHECK_MODE", Library: "nccl", Kind: String, Since: "2.29"},
	{Name: "NCCL_CHECK_POINTERS", Library: "nccl", Kind: Bool},
	{Name: "NCCL_CHUNK_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_COLLNET_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_COLLNET_NODE_THRESHOLD", Library: "nccl", Kind: Int},
	{Name: "NCCL_COMM_BLOCKING", Library: "nccl", Kind: Int},
	{Name: "NCCL_COMM_ID", Library: "nccl", Kind: String},
	{Name: "NCCL_COMM_SHRINK_SHARE_RESOURCES", Library: "nccl", Kind: Bool},
	{Name: "NCCL_COMM_SPLIT_SHARE_RESOURCES", Library: "nccl", Kind: Bool},
	{Name: "NCCL_CONF_FILE", Library: "nccl", Kind: String, Since: "2.23"},
	{Name: "NCCL_CONNECT_ROUND_MAX_PEERS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_CREATE_THREAD_CONTEXT", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_CROSS_NIC", Library: "nccl", Kind: Int, Min: 0, Max: 2, IfWrong: "connections between rails that do not reach each other time out"},
	{Name: "NCCL_CTA_POLICY", Library: "nccl", Kind: String},
	{Name: "NCCL_CUMEM_ENABLE", Library: "nccl", Kind: Int, Min: -2, Max: 1},
	{Name: "NCCL_CUMEM_HOST_ENABLE", Library: "nccl", Kind: Int, Min: -1, Max: 1},
	{Name: "NCCL_DEBUG", Library: "nccl", Kind: Enum, Values: []string{"VERSION", "WARN", "INFO", "ABORT", "TRACE", "version", "warn", "info", "abort", "trace"}},
	{Name: "NCCL_DEBUG_FILE", Library: "nccl", Kind: String},
	{Name: "NCCL_DEBUG_SUBSYS", Library: "nccl", Kind: List},
	{Name: "NCCL_DEBUG_TIMESTAMP_FORMAT", Library: "nccl", Kind: String, Since: "2.26"},
	{Name: "NCCL_DEBUG_TIMESTAMP_LEVELS", Library: "nccl", Kind: List, Since: "2.26"},
	{Name: "NCCL_DESYNC_DEBUG", Library: "torch", Kind: Bool, Instead: "TORCH_NCCL_DESYNC_DEBUG"},
	{Name: "NCCL_DMABUF_ENABLE", Library: "nccl", Kind: Bool, Since: "2.13"},
	{Name: "NCCL_DUMP_ON_TIMEOUT", Library: "torch", Kind: Bool},
	{Name: "NCCL_ENV_PLUGIN", Library: "nccl", Kind: String, Since: "2.28"},
	{Name: "NCCL_GDRCOPY_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GDRCOPY_FIFO_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GDRCOPY_FLUSH_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GDRCOPY_SYNC_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GDR_FLUSH_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GIN_COUNTER_POOL_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_GIN_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GIN_IB_TC", Library: "nccl", Kind: Int, Min: -1, Max: 255, Since: "2.28"},
	{Name: "NCCL_GIN_NCONNECTIONS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_GIN_NCONTEXTS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_GIN_PLUGIN", Library: "nccl", Kind: String, Since: "2.28"},
	{Name: "NCCL_GIN_SIGNAL_POOL_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_GIN_TYPE", Library: "nccl", Kind: Int},
	{Name: "NCCL_GRAPH_DUMP_FILE", Library: "nccl", Kind: String},
	{Name: "NCCL_GRAPH_DUMP_FILE_RANK", Library: "nccl", Kind: Int},
	{Name: "NCCL_GRAPH_FILE", Library: "nccl", Kind: String},
	{Name: "NCCL_GRAPH_HELPER_DISABLE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_GRAPH_MIXING_SUPPORT", Library: "nccl", Kind: Bool, Since: "2.13"},
	{Name: "NCCL_GRAPH_REGISTER", Library: "nccl", Kind: Bool},
	{Name: "NCCL_GRAPH_STREAM_ORDERING", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_HOSTID", Library: "nccl", Kind: String, Since: "2.5.6"},
	{Name: "NCCL_IBVERBS_LIB", Library: "nccl", Kind: String, Since: "2.30"},
	{Name: "NCCL_IB_ADAPTIVE_ROUTING", Library: "nccl", Kind: Int, Min: -2, Max: 1, Since: "2.16"},
	{Name: "NCCL_IB_ADDR_FAMILY", Library: "nccl", Kind: Enum, Values: []string{"AF_INET", "AF_INET6"}, Since: "2.21", IfWrong: "anything else is read as AF_INET"},
	{Name: "NCCL_IB_ADDR_RANGE", Library: "nccl", Kind: String, Since: "2.21", IfWrong: "without a prefix length it is ignored"},
	{Name: "NCCL_IB_AR_THRESHOLD", Library: "nccl", Kind: Int, Since: "2.6"},
	{Name: "NCCL_IB_CUDA_SUPPORT", Library: "nccl", Kind: Bool, Until: "2.4", Instead: "NCCL_NET_GDR_LEVEL"},
	{Name: "NCCL_IB_DATA_DIRECT", Library: "nccl", Kind: Int, Min: 0, Max: 2, Since: "2.27"},
	{Name: "NCCL_IB_DEVICE_PCI_ORDER", Library: "nccl", Kind: Bool, Since: "2.29"},
	{Name: "NCCL_IB_DISABLE", Library: "nccl", Kind: Bool, IfWrong: "1 sends everything over TCP"},
	{Name: "NCCL_IB_ECE_ENABLE", Library: "nccl", Kind: Bool, Since: "2.19"},
	{Name: "NCCL_IB_FIFO_TC", Library: "nccl", Kind: Int, Min: -1, Max: 255, Since: "2.22", IfWrong: "control messages in the wrong class"},
	{Name: "NCCL_IB_GDR_LEVEL", Library: "nccl", Kind: Enum, Values: Levels, Instead: "NCCL_NET_GDR_LEVEL"},
	{Name: "NCCL_IB_GID_INDEX", Library: "nccl", Kind: Int, Min: -1, Max: 255, Since: "2.1.4", IfWrong: "queue pairs cannot be connected: invalid argument, or timeouts"},
	{Name: "NCCL_IB_HCA", Library: "nccl", Kind: List, IfWrong: "ports of another network, or fewer rails than there are"},
	{Name: "NCCL_IB_MERGE_NICS", Library: "nccl", Kind: Bool, Since: "2.20"},
	{Name: "NCCL_IB_MERGE_VFS", Library: "nccl", Kind: Bool, Since: "2.18"},
	{Name: "NCCL_IB_MQP_RETRY_ALL", Library: "nccl", Kind: Bool, Since: "2.24"},
	{Name: "NCCL_IB_MQP_RETRY_CNT", Library: "nccl", Kind: Int, Since: "2.24"},
	{Name: "NCCL_IB_MQP_RETRY_SLEEP_MSEC", Library: "nccl", Kind: Int, Since: "2.24"},
	{Name: "NCCL_IB_NET_LATENCY", Library: "nccl", Kind: Int},
	{Name: "NCCL_IB_OOO_RQ", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_IB_PCI_RELAXED_ORDERING", Library: "nccl", Kind: Int, Min: 0, Max: 2, Since: "2.12"},
	{Name: "NCCL_IB_PKEY", Library: "nccl", Kind: Int, Min: 0, Max: 65535, Since: "2.8"},
	{Name: "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_IB_QPS_PER_CONNECTION", Library: "nccl", Kind: Int, Min: 1, Max: 128, Since: "2.10"},
	{Name: "NCCL_IB_RESILIENCY_PORT_FAILOVER", Library: "nccl", Kind: Int, Since: "2.29"},
	{Name: "NCCL_IB_RETRY_CNT", Library: "nccl", Kind: Int, Min: 0, Max: 7, Since: "2.1.15"},
	{Name: "NCCL_IB_RETURN_ASYNC_EVENTS", Library: "nccl", Kind: Bool, Since: "2.23"},
	{Name: "NCCL_IB_ROCE_VERSION_NUM", Library: "nccl", Kind: Int, Min: 1, Max: 2, Since: "2.21", IfWrong: "addresses of the other RoCE version"},
	{Name: "NCCL_IB_ROUTABLE_FLID_GID_INDEX", Library: "nccl", Kind: Int, Min: 0, Max: 255, Since: "2.22"},
	{Name: "NCCL_IB_SL", Library: "nccl", Kind: Int, Min: -1, Max: 15, Since: "2.1.4", IfWrong: "another priority or virtual lane"},
	{Name: "NCCL_IB_SPLIT_DATA_ON_QPS", Library: "nccl", Kind: Bool, Since: "2.18"},
	{Name: "NCCL_IB_SUBNET_AWARE_ROUTING", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_IB_SUBNET_PREFIX_LEN", Library: "nccl", Kind: Int, Min: 1, Max: 32, Since: "2.30"},
	{Name: "NCCL_IB_TC", Library: "nccl", Kind: Int, Min: -1, Max: 255, Since: "2.1.15", IfWrong: "traffic leaves the lossless class"},
	{Name: "NCCL_IB_TIMEOUT", Library: "nccl", Kind: Int, Min: 0, Max: 31},
	{Name: "NCCL_IB_USE_INLINE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_IB_WARN_RAIL_LOCAL", Library: "nccl", Kind: Bool, Since: "2.24"},
	{Name: "NCCL_IGNORE_COLLNET_MISMATCH", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_IGNORE_CPU_AFFINITY", Library: "nccl", Kind: Bool, Since: "2.4.6"},
	{Name: "NCCL_IGNORE_DISABLED_P2P", Library: "nccl", Kind: Int},
	{Name: "NCCL_IGNORE_NET_MISMATCH", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_IPC_USE_ABSTRACT_SOCKET", Library: "nccl", Kind: Bool, Since: "2.29"},
	{Name: "NCCL_L1_SHARED_MEMORY_CARVEOUT", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_LAUNCH_MODE", Library: "nccl", Kind: String},
	{Name: "NCCL_LAUNCH_ORDER_IMPLICIT", Library: "nccl", Kind: Bool},
	{Name: "NCCL_LAUNCH_RACE_FATAL", Library: "nccl", Kind: Bool, Since: "2.26"},
	{Name: "NCCL_LEGACY_CUDA_REGISTER", Library: "nccl", Kind: Bool},
	{Name: "NCCL_LL128_BUFFSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_LL_BUFFSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_LL_THRESHOLD", Library: "nccl", Kind: Int, Until: "2.5"},
	{Name: "NCCL_LOCAL_REGISTER", Library: "nccl", Kind: Bool},
	{Name: "NCCL_MAX_CTAS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MAX_NCHANNELS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MAX_NRINGS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MAX_P2P_NCHANNELS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MEM_SYNC_DOMAIN", Library: "nccl", Kind: Int, Since: "2.16"},
	{Name: "NCCL_MIN_CTAS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MIN_NCHANNELS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MIN_NRINGS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MIN_P2P_NCHANNELS", Library: "nccl", Kind: Int},
	{Name: "NCCL_MNNVL_CLIQUE_ID", Library: "nccl", Kind: Int},
	{Name: "NCCL_MNNVL_ENABLE", Library: "nccl", Kind: Int, Min: 0, Max: 2},
	{Name: "NCCL_MNNVL_UUID", Library: "nccl", Kind: String},
	{Name: "NCCL_MULTI_RANK_GPU_ENABLE", Library: "nccl", Kind: Bool, Since: "2.30"},
	{Name: "NCCL_MULTI_SEGMENT_REGISTER", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_NCHANNELS_PER_NET_PEER", Library: "nccl", Kind: Int},
	{Name: "NCCL_NET", Library: "nccl", Kind: String, Since: "2.10", IfWrong: "a name that no network has ends the job"},
	{Name: "NCCL_NETDEVS_POLICY", Library: "nccl", Kind: String, Since: "2.28"},
	{Name: "NCCL_NET_DISABLE_INTRA", Library: "nccl", Kind: Bool},
	{Name: "NCCL_NET_FORCE_FLUSH", Library: "nccl", Kind: Bool},
	{Name: "NCCL_NET_FORCE_MERGE", Library: "nccl", Kind: String, Since: "2.24"},
	{Name: "NCCL_NET_GDR_C2C", Library: "nccl", Kind: Bool, Since: "2.26"},
	{Name: "NCCL_NET_GDR_LEVEL", Library: "nccl", Kind: Enum, Values: Levels, Since: "2.4", IfWrong: "too wide: GPUDirect across a socket link that is slower than the host; too narrow: no GPUDirect"},
	{Name: "NCCL_NET_GDR_READ", Library: "nccl", Kind: Int, Min: -2, Max: 1},
	{Name: "NCCL_NET_MERGE_LEVEL", Library: "nccl", Kind: Enum, Values: []string{"LOC", "PORT", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"}, Since: "2.24"},
	{Name: "NCCL_NET_MERGE_POLICY", Library: "nccl", Kind: Enum, Values: []string{"ALL", "RAIL"}, Since: "2.30"},
	{Name: "NCCL_NET_OPTIONAL_RECV_COMPLETION", Library: "nccl", Kind: Bool},
	{Name: "NCCL_NET_OVERHEAD", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_NET_PLUGIN", Library: "nccl", Kind: String, Since: "2.11"},
	{Name: "NCCL_NET_SHARED_BUFFERS", Library: "nccl", Kind: Int},
	{Name: "NCCL_NET_SHARED_COMMS", Library: "nccl", Kind: Bool},
	{Name: "NCCL_NO_CACHE", Library: "nccl", Kind: String, Since: "2.29"},
	{Name: "NCCL_NSOCKS_PERTHREAD", Library: "nccl", Kind: Int, Min: 1, Max: 64},
	{Name: "NCCL_NTHREADS", Library: "nccl", Kind: Int},
	{Name: "NCCL_NVB_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_NVLSTREE_MAX_CHUNKSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_NVLS_CHUNKSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_NVLS_ENABLE", Library: "nccl", Kind: Int, Min: 0, Max: 2},
	{Name: "NCCL_NVLS_NCHANNELS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_NVTX_DISABLE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_OOB_NET_ENABLE", Library: "nccl", Kind: Bool, Since: "2.23"},
	{Name: "NCCL_OOB_NET_IFNAME", Library: "nccl", Kind: List, Since: "2.23"},
	{Name: "NCCL_P2P_DIRECT_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_P2P_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_P2P_EPOCH_ENABLE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_P2P_LEVEL", Library: "nccl", Kind: Enum, Values: Levels},
	{Name: "NCCL_P2P_LL_THRESHOLD", Library: "nccl", Kind: Int, Since: "2.14"},
	{Name: "NCCL_P2P_NET_CHUNKSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_P2P_NVL_CHUNKSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_P2P_PCI_CHUNKSIZE", Library: "nccl", Kind: Int},
	{Name: "NCCL_P2P_PXN_LEVEL", Library: "nccl", Kind: Int, Min: 0, Max: 2, Since: "2.12"},
	{Name: "NCCL_P2P_READ_ENABLE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_P2P_SCHEDULE_GROUP_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_P2P_USE_CUDA_MEMCPY", Library: "nccl", Kind: Bool},
	{Name: "NCCL_PAT_ENABLE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_PROFILER_PLUGIN", Library: "nccl", Kind: String},
	{Name: "NCCL_PROFILE_EVENT_MASK", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_PROGRAM_ORDER", Library: "nccl", Kind: String},
	{Name: "NCCL_PROGRESS_APPENDOP_FREQ", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_PROTO", Library: "nccl", Kind: String},
	{Name: "NCCL_PROXY_APPEND_BATCH_SIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_PROXY_DUMP_SIGNAL", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_PROXY_PROFILE", Library: "nccl", Kind: String, Hidden: true},
	{Name: "NCCL_PXN_C2C", Library: "nccl", Kind: Bool, Since: "2.27"},
	{Name: "NCCL_PXN_DISABLE", Library: "nccl", Kind: Bool, Since: "2.12"},
	{Name: "NCCL_RAS_ADDR", Library: "nccl", Kind: String, Since: "2.24"},
	{Name: "NCCL_RAS_ENABLE", Library: "nccl", Kind: Bool, Since: "2.24"},
	{Name: "NCCL_RAS_TIMEOUT_FACTOR", Library: "nccl", Kind: Int, Since: "2.24"},
	{Name: "NCCL_REPORT_CONNECT_PROGRESS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_RUNTIME_CONNECT", Library: "nccl", Kind: Bool, Since: "2.22"},
	{Name: "NCCL_SET_STACK_SIZE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_SET_THREAD_NAME", Library: "nccl", Kind: Bool},
	{Name: "NCCL_SHM_DISABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_SHM_LOCALITY", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SHM_MEMCPY_MODE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SHM_USE_CUDA_MEMCPY", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SINGLE_PROC_MEM_REG_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_SINGLE_RING_THRESHOLD", Library: "nccl", Kind: Int},
	{Name: "NCCL_SOCKET_FAMILY", Library: "nccl", Kind: Enum, Values: []string{"AF_INET", "AF_INET6"}},
	{Name: "NCCL_SOCKET_IFNAME", Library: "nccl", Kind: List, IfWrong: "the job cannot start, or waits on an interface that reaches nobody"},
	{Name: "NCCL_SOCKET_INLINE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SOCKET_MAGIC", Library: "nccl", Kind: String, Since: "2.30"},
	{Name: "NCCL_SOCKET_MIN_TASKSIZE", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SOCKET_NTHREADS", Library: "nccl", Kind: Int, Min: 1, Max: 16},
	{Name: "NCCL_SOCKET_POLL_TIMEOUT_MSEC", Library: "nccl", Kind: Int, Since: "2.28"},
	{Name: "NCCL_SOCKET_RETRY_CNT", Library: "nccl", Kind: Int, Since: "2.24"},
	{Name: "NCCL_SOCKET_RETRY_SLEEP_MSEC", Library: "nccl", Kind: Int, Since: "2.24"},
	{Name: "NCCL_SYM_CTAS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_SYM_GIN_KERNELS_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_SYM_KERNEL", Library: "nccl", Kind: String, Hidden: true},
	{Name: "NCCL_THREAD_THRESHOLDS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_TOPO_DUMP_FILE", Library: "nccl", Kind: String},
	{Name: "NCCL_TOPO_DUMP_FILE_RANK", Library: "nccl", Kind: Int},
	{Name: "NCCL_TOPO_FILE", Library: "nccl", Kind: String},
	{Name: "NCCL_TREE_THRESHOLD", Library: "nccl", Kind: Int},
	{Name: "NCCL_TUNER_CONFIG_PATH", Library: "nccl", Kind: String},
	{Name: "NCCL_TUNER_PLUGIN", Library: "nccl", Kind: String},
	{Name: "NCCL_UID_STAGGER_RATE", Library: "nccl", Kind: Int},
	{Name: "NCCL_UID_STAGGER_THRESHOLD", Library: "nccl", Kind: Int},
	{Name: "NCCL_UNPACK_DOUBLE_NCHANNELS", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_WARN_ENABLE_DEBUG_INFO", Library: "nccl", Kind: Bool, Since: "2.22"},
	{Name: "NCCL_WIN_ENABLE", Library: "nccl", Kind: Bool},
	{Name: "NCCL_WORK_ARGS_BYTES", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NCCL_WORK_FIFO_BYTES", Library: "nccl", Kind: Int},
	{Name: "NCCL_WORK_FIFO_DEPTH", Library: "nccl", Kind: Int, Hidden: true},
	{Name: "NVSHMEM_BOOTSTRAP", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_DEBUG", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_DEBUG_FILE", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_DEBUG_SUBSYS", Library: "nvshmem", Kind: List},
	{Name: "NVSHMEM_ENABLE_NIC_PE_MAPPING", Library: "nvshmem", Kind: Bool},
	{Name: "NVSHMEM_HCA_LIST", Library: "nvshmem", Kind: List},
	{Name: "NVSHMEM_HCA_PE_MAPPING", Library: "nvshmem", Kind: List},
	{Name: "NVSHMEM_HCA_PREFIX", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_IB_ADDR_FAMILY", Library: "nvshmem", Kind: Enum, Values: []string{"AF_INET", "AF_INET6"}},
	{Name: "NVSHMEM_IB_ADDR_RANGE", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_IB_DISABLE_DMABUF", Library: "nvshmem", Kind: Bool},
	{Name: "NVSHMEM_IB_ENABLE_IBGDA", Library: "nvshmem", Kind: Bool},
	{Name: "NVSHMEM_IB_ENABLE_RELAXED_ORDERING", Library: "nvshmem", Kind: Bool},
	{Name: "NVSHMEM_IB_GID_INDEX", Library: "nvshmem", Kind: Int, Min: -1, Max: 255},
	{Name: "NVSHMEM_IB_ROCE_VERSION_NUM", Library: "nvshmem", Kind: Int, Min: 1, Max: 2},
	{Name: "NVSHMEM_IB_SL", Library: "nvshmem", Kind: Int, Min: 0, Max: 15},
	{Name: "NVSHMEM_IB_TRAFFIC_CLASS", Library: "nvshmem", Kind: Int, Min: 0, Max: 255},
	{Name: "NVSHMEM_LIBFABRIC_PROVIDER", Library: "nvshmem", Kind: String},
	{Name: "NVSHMEM_REMOTE_TRANSPORT", Library: "nvshmem", Kind: Enum, Values: []string{"ibrc", "ucx", "libfabric", "ibdevx", "none"}},
	{Name: "NVSHMEM_SYMMETRIC_SIZE", Library: "nvshmem", Kind: String},
	{Name: "OMPI_MCA_btl", Library: "openmpi", Kind: List, IfWrong: "no path between ranks"},
	{Name: "OMPI_MCA_btl_openib_allow_ib", Library: "openmpi", Kind: Bool, Until: "5.0"},
	{Name: "OMPI_MCA_btl_openib_if_include", Library: "openmpi", Kind: List, Until: "5.0"},
	{Name: "OMPI_MCA_btl_tcp_if_exclude", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_btl_tcp_if_include", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_coll_hcoll_enable", Library: "openmpi", Kind: Bool},
	{Name: "OMPI_MCA_coll_ucc_enable", Library: "openmpi", Kind: Bool},
	{Name: "OMPI_MCA_mtl", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_oob_tcp_if_exclude", Library: "openmpi", Kind: List, Until: "5.0"},
	{Name: "OMPI_MCA_oob_tcp_if_include", Library: "openmpi", Kind: List, Until: "5.0"},
	{Name: "OMPI_MCA_opal_common_ucx_devices", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_opal_common_ucx_tls", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_osc", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_pml", Library: "openmpi", Kind: List, IfWrong: "a silent fallback to TCP, or no start"},
	{Name: "OMPI_MCA_pml_ucx_devices", Library: "openmpi", Kind: List},
	{Name: "OMPI_MCA_pml_ucx_tls", Library: "openmpi", Kind: List},
	{Name: "RCCL_AINIC_ROCE", Library: "rccl", Kind: Bool},
	{Name: "RCCL_FORCE_ENABLE_GDRDMA", Library: "rccl", Kind: Bool},
	{Name: "RCCL_GDR_FLUSH_GPU_MEM_NO_RELAXED_ORDERING", Library: "rccl", Kind: Bool},
	{Name: "RCCL_IB_ABORT_ON_ERROR", Library: "rccl", Kind: Bool},
	{Name: "RCCL_LL128_FORCE_ENABLE", Library: "rccl", Kind: Bool},
	{Name: "RCCL_LOG_LEVEL", Library: "rccl", Kind: Int},
	{Name: "RCCL_MSCCLPP_ENABLE", Library: "rccl", Kind: Bool},
	{Name: "RCCL_MSCCLPP_THRESHOLD", Library: "rccl", Kind: Int},
	{Name: "RCCL_MSCCL_ENABLE", Library: "rccl", Kind: Bool},
	{Name: "TP_SOCKET_IFNAME", Library: "gloo", Kind: String},
	{Name: "UCX_ACC_DEVICES", Library: "ucx", Kind: List},
	{Name: "UCX_ADAPTIVE_PROGRESS", Library: "ucx", Kind: Bool},
	{Name: "UCX_ADDRESS_DEBUG_INFO", Library: "ucx", Kind: Bool},
	{Name: "UCX_ALLOC_PRIO", Library: "ucx", Kind: List},
	{Name: "UCX_ARCH_MEMCPY", Library: "ucx", Kind: String},
	{Name: "UCX_ASYNC_MAX_EVENTS", Library: "ucx", Kind: Int},
	{Name: "UCX_ASYNC_SIGNO", Library: "ucx", Kind: String},
	{Name: "UCX_ATOMIC_MODE", Library: "ucx", Kind: String},
	{Name: "UCX_BCOPY_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_BUILTIN_MEMCPY_MIN", Library: "ucx", Kind: String},
	{Name: "UCX_CM_USE_ALL_DEVICES", Library: "ucx", Kind: Bool},
	{Name: "UCX_CONFIG_DIR", Library: "ucx", Kind: String, Since: "1.12"},
	{Name: "UCX_CUDA_COPY_DMABUF", Library: "ucx", Kind: String},
	{Name: "UCX_CUDA_IPC_ENABLE_MNNVL", Library: "ucx", Kind: String},
	{Name: "UCX_DC_MLX5_NUM_DCI", Library: "ucx", Kind: Int},
	{Name: "UCX_DEBUG_SIGNO", Library: "ucx", Kind: String},
	{Name: "UCX_ERROR_SIGNALS", Library: "ucx", Kind: List},
	{Name: "UCX_ESTIMATED_NUM_EPS", Library: "ucx", Kind: String},
	{Name: "UCX_ESTIMATED_NUM_PPN", Library: "ucx", Kind: String},
	{Name: "UCX_FLUSH_WORKER_EPS", Library: "ucx", Kind: Bool},
	{Name: "UCX_GDB_COMMAND", Library: "ucx", Kind: String},
	{Name: "UCX_GPU_COPY", Library: "ucx", Kind: String},
	{Name: "UCX_HANDLE_ERRORS", Library: "ucx", Kind: String},
	{Name: "UCX_IB_ADDR_TYPE", Library: "ucx", Kind: String},
	{Name: "UCX_IB_AR_ENABLE", Library: "ucx", Kind: String},
	{Name: "UCX_IB_COUNTER_SET_ID", Library: "ucx", Kind: String},
	{Name: "UCX_IB_DIRECT_NIC", Library: "ucx", Kind: Bool, Since: "1.20"},
	{Name: "UCX_IB_ETH_PAUSE_ON", Library: "ucx", Kind: Bool},
	{Name: "UCX_IB_FLOW_LABEL", Library: "ucx", Kind: String},
	{Name: "UCX_IB_FORK_INIT", Library: "ucx", Kind: String},
	{Name: "UCX_IB_GID_INDEX", Library: "ucx", Kind: Int, Min: 0, Max: 255, Since: "1.5", IfWrong: "the wire-up hangs, or another network is used"},
	{Name: "UCX_IB_GID_TYPE", Library: "ucx", Kind: String},
	{Name: "UCX_IB_GPU_DIRECT_RDMA", Library: "ucx", Kind: Enum, Values: []string{"try", "y", "n", "yes", "no"}},
	{Name: "UCX_IB_HOP_LIMIT", Library: "ucx", Kind: Int},
	{Name: "UCX_IB_INDIRECT_ATOMIC", Library: "ucx", Kind: Bool},
	{Name: "UCX_IB_IS_GLOBAL", Library: "ucx", Kind: Bool},
	{Name: "UCX_IB_LID_PATH_BITS", Library: "ucx", Kind: String},
	{Name: "UCX_IB_MIN_UD", Library: "ucx", Kind: String},
	{Name: "UCX_IB_MLX5_DEVX", Library: "ucx", Kind: String},
	{Name: "UCX_IB_MLX5_DEVX_OBJECTS", Library: "ucx", Kind: List},
	{Name: "UCX_IB_NUM_PATHS", Library: "ucx", Kind: String},
	{Name: "UCX_IB_ODP_MEM_TYPES", Library: "ucx", Kind: String},
	{Name: "UCX_IB_PATH_MTU", Library: "ucx", Kind: String},
	{Name: "UCX_IB_PCI_RELAXED_ORDERING", Library: "ucx", Kind: Enum, Values: []string{"auto", "y", "n", "try", "on", "off", "yes", "no"}, Since: "1.9"},
	{Name: "UCX_IB_PKEY", Library: "ucx", Kind: String},
	{Name: "UCX_IB_PREFER_NEAREST_DEVICE", Library: "ucx", Kind: Bool},
	{Name: "UCX_IB_REG_METHODS", Library: "ucx", Kind: List},
	{Name: "UCX_IB_REG_RETRY_CNT", Library: "ucx", Kind: String},
	{Name: "UCX_IB_REVERSE_SL", Library: "ucx", Kind: String, Since: "1.17"},
	{Name: "UCX_IB_ROCE_LOCAL_SUBNET", Library: "ucx", Kind: Bool, Since: "1.11"},
	{Name: "UCX_IB_ROCE_PATH_FACTOR", Library: "ucx", Kind: Int},
	{Name: "UCX_IB_ROCE_REACHABILITY_MODE", Library: "ucx", Kind: Enum, Values: []string{"route", "local_subnet", "all"}, Since: "1.19"},
	{Name: "UCX_IB_ROCE_SUBNETS", Library: "ucx", Kind: List, Since: "1.18"},
	{Name: "UCX_IB_ROCE_SUBNET_PREFIX_LEN", Library: "ucx", Kind: String, Since: "1.13"},
	{Name: "UCX_IB_SL", Library: "ucx", Kind: String, IfWrong: "another priority or virtual lane"},
	{Name: "UCX_IB_SUBNET_PREFIX", Library: "ucx", Kind: String},
	{Name: "UCX_IB_TRAFFIC_CLASS", Library: "ucx", Kind: Int, Min: 0, Max: 255, IfWrong: "traffic leaves the lossless class"},
	{Name: "UCX_KEEPALIVE_INTERVAL", Library: "ucx", Kind: String, Since: "1.9"},
	{Name: "UCX_KEEPALIVE_NUM_EPS", Library: "ucx", Kind: Int, Since: "1.9"},
	{Name: "UCX_LISTENER_BACKLOG", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_BUFFER", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_DATA_SIZE", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_FILE", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_FILE_FILTER", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_FILE_ROTATE", Library: "ucx", Kind: Int},
	{Name: "UCX_LOG_FILE_SIZE", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_LEVEL", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_LEVEL_TRIGGER", Library: "ucx", Kind: String},
	{Name: "UCX_LOG_PRINT_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_MAX_EAGER_LANES", Library: "ucx", Kind: Int},
	{Name: "UCX_MAX_EAGER_RAILS", Library: "ucx", Kind: Int},
	{Name: "UCX_MAX_HCA_PER_GPU", Library: "ucx", Kind: String, Since: "1.21"},
	{Name: "UCX_MAX_RMA_RAILS", Library: "ucx", Kind: Int},
	{Name: "UCX_MAX_RNDV_LANES", Library: "ucx", Kind: Int},
	{Name: "UCX_MAX_RNDV_RAILS", Library: "ucx", Kind: Int, Since: "1.4"},
	{Name: "UCX_MAX_WORKER_ADDRESS_NAME", Library: "ucx", Kind: Int},
	{Name: "UCX_MEMTYPE_CACHE", Library: "ucx", Kind: String},
	{Name: "UCX_MEM_CUDA_HOOK_MODE", Library: "ucx", Kind: String},
	{Name: "UCX_MEM_EVENTS", Library: "ucx", Kind: Bool},
	{Name: "UCX_MEM_MALLOC_HOOKS", Library: "ucx", Kind: Bool},
	{Name: "UCX_MEM_MMAP_HOOK_MODE", Library: "ucx", Kind: String},
	{Name: "UCX_MODULES", Library: "ucx", Kind: List},
	{Name: "UCX_MODULE_DIR", Library: "ucx", Kind: String},
	{Name: "UCX_MODULE_LOG_LEVEL", Library: "ucx", Kind: String},
	{Name: "UCX_MULTI_LANE_MAX_RATIO", Library: "ucx", Kind: String},
	{Name: "UCX_MULTI_PATH_RATIO", Library: "ucx", Kind: String},
	{Name: "UCX_NET_DEVICES", Library: "ucx", Kind: List, IfWrong: "an absent device ends the job; a netdev lets UCX use TCP"},
	{Name: "UCX_NUM_EPS", Library: "ucx", Kind: String},
	{Name: "UCX_NUM_PPN", Library: "ucx", Kind: String},
	{Name: "UCX_PREFER_OFFLOAD", Library: "ucx", Kind: Bool},
	{Name: "UCX_PRINT_TRANSPORT_TABLES", Library: "ucx", Kind: String, Since: "1.22"},
	{Name: "UCX_PROFILE_FILE", Library: "ucx", Kind: String},
	{Name: "UCX_PROFILE_MODE", Library: "ucx", Kind: String},
	{Name: "UCX_PROTOS", Library: "ucx", Kind: String, Since: "1.13"},
	{Name: "UCX_PROTO_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_PROTO_INDIRECT_ID", Library: "ucx", Kind: String},
	{Name: "UCX_PROTO_INFO", Library: "ucx", Kind: String, Since: "1.13"},
	{Name: "UCX_PROTO_REQUEST_RESET", Library: "ucx", Kind: String},
	{Name: "UCX_RC_FC_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_RC_MAX_RD_ATOMIC", Library: "ucx", Kind: Int},
	{Name: "UCX_RC_OOO_RW", Library: "ucx", Kind: String},
	{Name: "UCX_RC_PATH_MTU", Library: "ucx", Kind: String},
	{Name: "UCX_RC_RETRY_COUNT", Library: "ucx", Kind: Int},
	{Name: "UCX_RC_RNR_RETRY_COUNT", Library: "ucx", Kind: Int},
	{Name: "UCX_RC_RNR_TIMEOUT", Library: "ucx", Kind: String},
	{Name: "UCX_RC_RX_QUEUE_LEN", Library: "ucx", Kind: Int},
	{Name: "UCX_RC_TIMEOUT", Library: "ucx", Kind: String},
	{Name: "UCX_RC_TX_QUEUE_LEN", Library: "ucx", Kind: Int},
	{Name: "UCX_REG_NONBLOCK_MEM_TYPES", Library: "ucx", Kind: String},
	{Name: "UCX_REG_WHOLE_ALLOC_BITMAP", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_ALIGN_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_FRAG_ALLOC_COUNT", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_FRAG_MEM_TYPE", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_FRAG_SIZE", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_PERF_DIFF", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_PIPELINE_SEND_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_PIPELINE_SHM_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_RNDV_SCHEME", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_SEND_NBR_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_RNDV_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_SEG_SIZE", Library: "ucx", Kind: String},
	{Name: "UCX_SELF_DEVICES", Library: "ucx", Kind: List},
	{Name: "UCX_SHM_DEVICES", Library: "ucx", Kind: List},
	{Name: "UCX_SOCKADDR_CM_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_SOCKADDR_TLS_PRIORITY", Library: "ucx", Kind: List},
	{Name: "UCX_STATS_DEST", Library: "ucx", Kind: String},
	{Name: "UCX_STATS_FILTER", Library: "ucx", Kind: List},
	{Name: "UCX_STATS_FORMAT", Library: "ucx", Kind: String},
	{Name: "UCX_STATS_TRIGGER", Library: "ucx", Kind: String},
	{Name: "UCX_TCP_BRIDGE_ENABLE", Library: "ucx", Kind: Bool},
	{Name: "UCX_TCP_CM_REUSEADDR", Library: "ucx", Kind: Bool},
	{Name: "UCX_TCP_KEEPIDLE", Library: "ucx", Kind: String},
	{Name: "UCX_TLS", Library: "ucx", Kind: List, IfWrong: "no path to the peer ends the job"},
	{Name: "UCX_TM_FORCE_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_TM_MAX_BB_SIZE", Library: "ucx", Kind: String},
	{Name: "UCX_TM_SW_RNDV", Library: "ucx", Kind: String},
	{Name: "UCX_TM_THRESH", Library: "ucx", Kind: String},
	{Name: "UCX_TOPO_PRIO", Library: "ucx", Kind: List},
	{Name: "UCX_UD_TIMEOUT", Library: "ucx", Kind: String},
	{Name: "UCX_UD_TIMER_TICK", Library: "ucx", Kind: String},
	{Name: "UCX_UNIFIED_MODE", Library: "ucx", Kind: Bool},
	{Name: "UCX_USE_MT_MUTEX", Library: "ucx", Kind: Bool},
	{Name: "UCX_VFS_ENABLE", Library: "ucx", Kind: Bool, Since: "1.11"},
	{Name: "UCX_VFS_THREAD_AFFINITY", Library: "ucx", Kind: Bool},
	{Name: "UCX_WARN_INVALID_CONFIG", Library: "ucx", Kind: Bool},
	{Name: "UCX_WARN_UNUSED_ENV_VARS", Library: "ucx", Kind: Bool},
	{Name: "UCX_ZCOPY_THRESH", Library: "ucx", Kind: String},
	{Name: "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", Library: "vllm", Kind: List},
}
