package watch

import (
	"bytes"
	"strings"
)

// mpiState is what MPI libraries and libfabric said.
type mpiState struct {
	btlTCP   bool           // Open MPI's TCP transfer component carries data between nodes
	provider string         // libfabric provider of Intel MPI, MPICH
	ranks    map[int]string // rank -> host, of Intel MPI's table
	version  string
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

// openmpiBML reads 'mca: bml: Using tcp btl for send to [[…]] on node n2'.
func (st *state) openmpiBML(m *message) bool {
	st.library("openmpi")
	btl, _, ok := strings.Cut(string(m.arg), " btl")
	if ok && btl == "tcp" {
		st.mpi.btlTCP = true
		st.announce(m)
	}
	return true
}

func (st *state) openmpiBTL(m *message) bool {
	st.library("openmpi")
	st.mpi.btlTCP = true
	if bytes.Contains(m.text, []byte("failed")) || bytes.Contains(m.text, []byte("unexpected process identifier")) {
		st.failed("mpi-btl-tcp", "Open MPI's TCP component reports an error, so data goes over TCP: set btl_tcp_if_include, or better pml=ucx.", m)
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

func (st *state) openmpiUCX(m *message) bool {
	if !bytes.Contains(m.text, []byte("rror")) {
		return false
	}
	st.library("openmpi")
	st.emit("mpi-ucx:"+keyOf(string(m.arg)), Event{ID: "mpi-ucx-error", Severity: SeverityError, Text: "Open MPI's UCX component reports: " + shown(m.text)}, m)
	return true
}

func (st *state) openmpiVersion(m *message) bool {
	st.library("openmpi")
	if v := word(m.arg); strings.Contains(v, ".") && st.mpi.version == "" {
		st.mpi.version = v
	}
	return true
}

func (st *state) mpiAbort(m *message) bool {
	st.secondary("mpi-abort", "A rank called MPI_Abort: its own message says why.", m)
	return true
}

// intelStartup reads Intel MPI's '[0] MPI startup(): …' lines (I_MPI_DEBUG=4 on).
func (st *state) intelStartup(m *message) bool {
	st.library("intelmpi")
	t := strings.TrimSpace(string(m.arg))
	switch {
	case strings.HasPrefix(t, "libfabric provider: "):
		st.mpi.provider = strings.TrimSpace(t[len("libfabric provider: "):])
		st.announce(m)
	case strings.Contains(t, "MPI Library, Version "):
		_, v, _ := strings.Cut(t, "MPI Library, Version ")
		st.mpi.version = word([]byte(v))
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
			st.announce(m)
		}
	}
	return true
}

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

// libfabricLine reads 'libfabric:<pid>:<time>:<provider>:<subsystem>:<func>():<line><level> text'.
func (st *state) libfabricLine(m *message) bool {
	st.library("libfabric")
	_, text, ok := bytes.Cut(m.arg, []byte("<warn> "))
	if !ok {
		return true
	}
	t := string(text)
	switch {
	case strings.Contains(t, "Cannot allocate memory"):
		st.failed("memlock", "Memory could not be registered with the device: raise the locked-memory limit (ulimit -l unlimited, container: --ulimit memlock=-1).", m)
	default:
		st.emit("libfabric:"+keyOf(t), Event{ID: "libfabric-warn", Severity: SeverityWarning, Text: "libfabric warns: " + shown(text)}, m)
	}
	return true
}
