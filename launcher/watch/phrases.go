package watch

import (
	"bytes"
	"slices"
	"strings"

	"fabrun/topology"
)

// phrase is a fixed text by which a library says what is wrong, what it means and
// what to do. A new one is one entry; IDs are an interface.
type phrase struct {
	id    string
	grade grade
	lib   string   // who says it; "" where the prefix tells or several do
	marks []string // all of them stand in the line, in this order; none where code finds it
	text  string   // what happened, and what to do; "" where another entry of the ID has it
}

// grade is what a phrase means for the job.
type grade uint8

const (
	// fatal: the process that says it ends, and this is why.
	fatal grade = iota
	// consequence: it ends, and something before is why.
	consequence
	// suspect: it may go on without; where it ends, this is why.
	suspect
	// caution: it goes on, worse than it could.
	caution
	// remark: harmless, and said because it looks worse than it is.
	remark
)

// phraseText returns the sentence of an ID.
func phraseText(list []phrase, id string) string {
	for i := range list {
		if list[i].id == id && list[i].text != "" {
			return list[i].text
		}
	}
	return ""
}

// says looks for the first phrase of a list in t and records it; nil where there is none.
func (st *state) says(m *message, t []byte, list []phrase) *phrase {
	for i := range list {
		p := &list[i]
		if len(p.marks) == 0 || !inOrder(t, p.marks) {
			continue
		}
		if p.lib != "" {
			st.library(p.lib)
		}
		st.record(m, p, phraseText(list, p.id))
		return p
	}
	return nil
}

// record notes a phrase by its grade.
func (st *state) record(m *message, p *phrase, text string) {
	if strings.Contains(text, "{dev}") {
		dev := deviceIn(m.text)
		if dev != "" {
			dev = " " + dev
		}
		text = strings.Replace(text, "{dev}", dev, 1)
	}
	switch p.grade {
	case fatal, consequence:
		st.failed(p.id, text, m)
	case suspect:
		if !slices.Contains(st.suspects, p.id) {
			st.suspects = append(st.suspects, p.id)
		}
		st.warned(p.id, text, m)
	case caution:
		st.warned(p.id, text, m)
	case remark:
		st.emit(p.id, Event{ID: p.id, Severity: SeverityNote, Text: text}, m)
	}
}

// deviceIn is the RDMA device that a line names: '/sys/class/infiniband/mana_0 (…', '… on
// mlx5_0: …', 'mlx5_0: ibv_create_cq() …'; "" where it names none.
func deviceIn(t []byte) string {
	for _, key := range []string{"/sys/class/infiniband/", " on ", "UCX  ERROR ", "UCX  WARN  "} {
		name := strings.TrimRight(wordAfter(t, key), ":")
		if i := strings.IndexAny(name, "/:"); i > 0 {
			name = name[:i]
		}
		if strings.ContainsAny(name, "0123456789") && isHost([]byte(name)) {
			return name
		}
	}
	return ""
}

// inOrder reports whether all marks stand in t, one behind the other.
func inOrder(t []byte, marks []string) bool {
	for _, mark := range marks {
		i := bytes.Index(t, []byte(mark))
		if i < 0 {
			return false
		}
		t = t[i+len(mark):]
	}
	return true
}

// isQuoted reports whether somebody writes about a text instead of a library saying
// it: a comment, a traced echo, quotation marks around the text.
func isQuoted(line []byte, at int) bool {
	if at > 0 {
		switch line[at-1] {
		case '`', '\'':
			return true
		case '"':
			// A log collector's JSON ("log":"…") or CSV has the text in quotes, too.
			before := bytes.TrimRight(line[:at-1], " ")
			if n := len(before); n > 0 && before[n-1] != ':' && line[at-2] != ',' {
				return true
			}
		}
	}
	t := bytes.TrimLeft(line, " \t+>|")
	for _, lead := range []string{"#", "//", "echo ", "grep ", "printf ", "*", "- ", "If ", "TIP", "Tip", "Note:", "NOTE:", "Expect", "Example", "e.g."} {
		if bytes.HasPrefix(t, []byte(lead)) {
			return true
		}
	}
	return false
}

// isProse reports whether what stands before a text is a sentence of somebody's, and
// not a prefix and the beginning of a message.
func isProse(before []byte) bool {
	words := 0
	for w := range bytes.FieldsSeq(before) {
		if len(w) > 1 && !bytes.ContainsFunc(w, func(r rune) bool { return r < 'a' || r > 'z' }) {
			words++
		}
	}
	return words > 4
}

// says of a line without a prefix of NCCL or UCX.
func (st *state) barePhrase(m *message) bool {
	for i := range barePhrases {
		p := &barePhrases[i]
		at := bytes.Index(m.text, []byte(p.marks[0]))
		if at < 0 || !inOrder(m.text[at:], p.marks) {
			continue
		}
		if isQuoted(m.text, at) || isProse(m.text[:at]) {
			return true
		}
		switch p.lib {
		case "":
		case "openmpi":
			st.libHint = p.lib
		default:
			st.library(p.lib)
		}
		st.speaker(m)
		st.record(m, p, phraseText(barePhrases, p.id))
		// The first line of an error stack says more to those that come after.
		return p.grade != consequence
	}
	return false
}

// speaker learns who says a line of PSM ('n1:rank0: PSM3 …', 'n1.4711PSM2 …') or of
// Open MPI ('[n1:4711] …').
func (st *state) speaker(m *message) {
	if m.proc != nil {
		return
	}
	t := afterTaskTag(m.text)
	if len(t) > 0 && t[0] == '[' {
		if end := bytes.Index(t, []byte("] ")); end > 0 && end < 40 && bytes.IndexByte(t[:end], '.') > 0 && bytes.IndexByte(t[:end], ':') < 0 {
			t = t[end+2:] // PSM3's time
		} else {
			st.openmpiProc(m)
			return
		}
	}
	if i := bytes.Index(t, []byte(":rank")); i > 0 && i < 256 {
		r, _ := leadingInt(t[i+len(":rank"):])
		if host := t[:i]; r >= 0 && isHost(host) {
			m.rank = r
			m.proc = st.procOf(&segment{host: host, pid: uint32(r), clean: true})
		}
		return
	}
	if i := bytes.Index(t, []byte("PSM")); i > 1 && i < 256 {
		head := t[:i]
		digits := digitsBefore(head, len(head))
		if digits > 1 && digits < len(head) && head[digits-1] == '.' && isHost(head[:digits-1]) {
			pid, _ := leadingInt(head[digits:])
			m.proc = st.procOf(&segment{host: head[:digits-1], pid: uint32(max(pid, 0)), clean: true})
		}
	}
}

func isHost(b []byte) bool {
	for _, c := range b {
		if !isHostByte(c) {
			return false
		}
	}
	return len(b) > 0
}

// ncclPhrases are warnings of NCCL, RCCL and their plugins (src/bootstrap.cc, misc/socket.cc,
// init.cc, transport/*.cc, proxy.cc of 2.2 to 2.30; aws-ofi-nccl's src).
var ncclPhrases = []phrase{
	// The set-up of a communicator.
	{"comm-id-subnet", suspect, "", []string{"o interface found in the same subnet as remote address"}, "NCCL_COMM_ID names an address in a network of which this node or container has no interface: a container on a bridge needs the host's network (" + topology.GiveNetwork + "); else give an address that all nodes reach."},
	{"comm-id", fatal, "", []string{"Invalid NCCL_COMM_ID"}, "NCCL_COMM_ID is not ADDRESS:PORT: give the address and a free port of the node of rank 0, or unset it."},
	{"bootstrap-ranks", fatal, "", []string{"mismatch in rank count from procs"}, "Ranks disagree on how many there are, or two have the same number: RANK and WORLD_SIZE differ between nodes, or ranks of another (or an earlier) job reach this one's rendezvous. Give each job a port of its own."},
	{"bootstrap-ranks", fatal, "", []string{"has already checked in"}, ""},
	{"nccl-versions", fatal, "", []string{"Mismatched NCCL version detected"}, "Ranks load different versions of NCCL and cannot talk: use the same image or environment on every node."},
	{"message-truncated", fatal, "", []string{"essage truncated : rec"}, "Ranks disagree on the size of a message: they run different NCCL versions or settings (NCCL_PROTO, NCCL_ALGO, NCCL_BUFFSIZE), or call collectives in another order. Compare version and environment of both nodes."},
	{"message-truncated", fatal, "", []string{"message truncated : receiving "}, ""},
	{"duplicate-gpu", fatal, "", []string{"Duplicate GPU detected"}, "Two ranks of a node use the same GPU: each must pick its own (LOCAL_RANK, --gpus-per-task, CUDA_VISIBLE_DEVICES), and no more ranks than GPUs."},
	{"shm-not-shared", fatal, "", []string{"attaching to shared memory segment", "No such file"}, "Ranks of one host do not see each other's shared memory: they are in containers of their own. Share it (" + topology.GiveIPC + "), or set NCCL_HOSTID to another value in each."},
	{"shm-full", fatal, "", []string{"Error while creating shared memory segment"}, "/dev/shm is full or too small for NCCL (containers get 64 MB): " + topology.GiveShm + "; and remove what dead jobs left in it."},
	{"shm-full", fatal, "", []string{"posix_fallocate", "No space left"}, ""},
	{"shm-full", fatal, "", []string{"shm", "No space left"}, ""},
	{"shm", fatal, "", []string{"attaching to shared memory segment"}, "Shared memory between ranks of one host could not be set up: look at /dev/shm of that node or container (size, rights, left-over files)."},
	{"nofile", fatal, "", []string{"Too many open files"}, "The process ran out of file descriptors: raise the limit (ulimit -n 1048576; in a container --ulimit nofile=1048576; Slurm: LimitNOFILE of slurmd)."},

	// What reaches the GPU.
	{"imex", fatal, "", []string{"MNNVL", "is available but not working"}, "The nodes share an NVLink domain, but IMEX does not work between them: nvidia-imex must run on every node of the domain with the same list of nodes (nvidia-imex-ctl -N shows it), and each container needs /dev/nvidia-caps-imex-channels. NCCL_MNNVL_ENABLE=0 sends between nodes over the network meanwhile."},
	{"imex", suspect, "", []string{"Cuda failure 800"}, ""},
	{"nvls", fatal, "", []string{"NVLink SHARP (NVLS)"}, "NVLink SHARP could not be set up, usually because the Fabric Manager or an NVSwitch is not healthy: look at nvidia-smi -q (Fabric) and the state of nvidia-fabricmanager on this node. NCCL_NVLS_ENABLE=0 goes without it."},
	{"cuda-failure", suspect, "", []string{"Cuda failure"}, "A CUDA call failed; that is not the network: the error's name says what (out of memory, an earlier fault of a kernel, another driver than the image wants). Look at the program's own error and at dmesg for Xid."},
	{"cuda-failure", suspect, "", []string{"Call to cu", " failed"}, ""},
	{"cuda-failure", suspect, "", []string{"Failed to find CUDA library"}, ""},

	// Libfabric's plugin.
	{"ofi-rails-differ", fatal, "", []string{"Unexpected number of remote rails"}, "Two nodes joined with different numbers of EFA devices per GPU: give every node (and pod: vpc.amazonaws.com/efa) the same number, and do not mix instance types; where types must be mixed, OFI_NCCL_FORCE_NUM_RAILS gives all nodes one number."},
	{"ofi-endpoint", fatal, "", []string{"Creating new endpoint", "failed"}, "The libfabric plugin could not open an endpoint on its device: the process sees no usable EFA device (fi_info -p efa lists them; pod: request vpc.amazonaws.com/efa), or the EFA driver, libfabric and the plugin do not fit each other. FI_LOG_LEVEL=warn tells which."},
	{"ofi-endpoint", fatal, "", []string{"Couldn't open", "RC:"}, ""},
	{"ofi-endpoint", fatal, "", []string{"Couldn't allocate endpoint"}, ""},
	{"ofi-peer", fatal, "", []string{"completed with error", "nresponsive"}, "The peer's EFA device does not answer: the security group must allow all traffic from and to itself (both directions), both instances must be in one subnet, and the peer must still live."},
	{"ofi-peer", fatal, "", []string{"completed with error", "nreachable"}, ""},
	{"ofi-completion", fatal, "", []string{"NET/OFI", "completed with error"}, "An operation of libfabric failed: the error's text says why. If it names no cause, look at the peer's log, at the security group (all traffic from and to itself), and at dmesg for efa."},
	{"memlock", fatal, "", []string{"NET/OFI", "annot allocate memory"}, memlockText},

	// RDMA.
	{"ib-vdev", fatal, "", []string{"All devices failed"}, "All RDMA devices of a connection have failed, so failover has nothing left: look at cables and ports of the node that says so."},
	{"ib-vdev", fatal, "", []string{"Could not find a functional device"}, ""},
	{"ib-vdev", fatal, "", []string{"Maximum number of probing attempts"}, ""},
	{"ib-reg-dmabuf", fatal, "", []string{"Call to ibv_reg_dmabuf_mr", "not supported"}, "The RDMA driver cannot register GPU memory by DMA-BUF: kernel, OFED or firmware is too old for it. Set NCCL_DMABUF_ENABLE=0 with nvidia_peermem loaded (as root: modprobe nvidia-peermem), or update the driver."},

	// What follows from something else.
	{"connection-closed", consequence, "", []string{"Call to recv", " failed"}, "A peer closed its connection; that is usually the consequence of an error or exit elsewhere."},
	{"connection-closed", consequence, "", []string{"Call to send", " failed"}, ""},
	{"nccl-proxy", consequence, "", []string{"[Proxy Service", "ailed"}, "NCCL's helper thread could not set a connection up: a line before says why, here or on the peer."},
	{"nccl-proxy", consequence, "", []string{"[Service thread]", "rror"}, ""},
}

const memlockGive = "ulimit -l unlimited; " + topology.GiveMemlock + "; Slurm: LimitMEMLOCK=infinity of slurmd, PropagateResourceLimitsExcept=MEMLOCK"

const memlockText = "Memory could not be registered with the device: raise the locked-memory limit (" + memlockGive + ")."

// barePhrases are texts that stand without a prefix of NCCL or UCX: error stacks of
// MPICH and Intel MPI (src/mpi/errhan/errnames.txt, ch4/netmod/ofi), PSM2 and PSM3, Open
// MPI's help texts, NVSHMEM, the EFA provider, torch.
var barePhrases = []phrase{
	// PSM.
	{"psm-no-port", suspect, "", []string{"no hfi units are"}, "No Omni-Path port is active on this node: check cable, switch and the fabric manager (opainfo shows the port's state), then the driver hfi1."},
	{"psm-no-port", suspect, "", []string{"no nic units are active"}, ""},
	{"psm-busy", suspect, "", []string{"assign_context command failed: Device or resource busy"}, "All contexts of the Omni-Path device are taken: another job of the node holds them, or there are more ranks than contexts. PSM2_MAX_CONTEXTS_PER_JOB limits a job; num_user_contexts of the module hfi1 raises the number."},
	{"psm-busy", suspect, "", []string{"hfi_userinit", "resource busy"}, ""},
	{"psm-rights", suspect, "", []string{"hfi_userinit", "ermission"}, "The job may not use the Omni-Path device: give it /dev/hfi1_* (container: --device) and rights on it."},
	{"psm-rights", suspect, "", []string{"hfi_userinit", "not permitted"}, ""},
	{"psm-qp", suspect, "", []string{"Failed to modify UD QP to "}, "PSM3 cannot use the RDMA device{dev}: it is made for Ethernet (RoCE), and the device refused its queue pair. On InfiniBand use FI_PROVIDER=mlx or verbs (Intel MPI: I_MPI_OFI_PROVIDER), or an MPI with UCX."},
	{"psm-nic", suspect, "", []string{"Unable to initialize verbs NIC"}, "PSM3 chose the RDMA device{dev} and cannot use it (Azure's mana_*, for one, is no fabric for MPI). Choose another provider: FI_PROVIDER=tcp, or on one node I_MPI_FABRICS=shm; where there is a fabric, verbs, mlx or efa."},
	{"psm-socket", suspect, "", []string{"Unable to create UDP socket for"}, "PSM3 took an ordinary Ethernet interface for its fabric and cannot use it: choose another provider (FI_PROVIDER=^psm3, or Open MPI: --mca mtl ^ofi), or name the fabric's device in PSM3_NIC."},
	{"psm-open", suspect, "", []string{"can't open hfi unit"}, "PSM2 cannot open the Omni-Path device: check that its port is active (opainfo), that the job may open /dev/hfi1_*, and that no other job of the host holds all its contexts."},
	{"psm3-open", suspect, "", []string{"can't open nic unit"}, "PSM3 cannot open the network device that it chose: name the fabric's device in PSM3_NIC, or choose another provider (FI_PROVIDER=verbs, mlx, efa or tcp)."},
	{"psm-open", suspect, "", []string{"PSM can't open /dev/"}, ""},
	{"psm-open", suspect, "", []string{"PSM2 can't open /dev/"}, ""},
	{"psm-open", suspect, "openmpi", []string{"detected an unexpected PSM"}, ""},
	{"psm-open", suspect, "openmpi", []string{" was unable to open an endpoint"}, ""},
	{"psm-connect", fatal, "", []string{"PSM2 EP connect error"}, "PSM could not reach a peer over its fabric: check that both ports are active and in one fabric, and look at the peer's own error."},
	{"psm-connect", fatal, "", []string{"PSM EP connect error"}, ""},
	{"psm-link-speed", remark, "", []string{"unknown link speed 0x"}, "PSM does not know this port's speed: it is older than the device. It goes on."},

	// Libfabric below MPI.
	{"ofi-no-provider", consequence, "mpich", []string{"OFI fi_getinfo() fail"}, "libfabric found no provider that this MPI can use: FI_PROVIDER (Intel MPI: I_MPI_OFI_PROVIDER) names one that is not there, its libraries are not found (FI_PROVIDER_PATH), or there is no device or interface for it. fi_info lists what this node has."},
	{"ofi-no-provider", consequence, "mpich", []string{"OFI addrinfo() failed"}, ""},
	{"ofi-no-provider", consequence, "mpich", []string{"OFI getinfo() failed"}, ""},
	{"ofi-no-provider", consequence, "", []string{"fi_getinfo() failed"}, ""},
	{"ofi-no-provider", consequence, "", []string{"fi_getinfo failed"}, ""},
	{"memlock", fatal, "mpich", []string{"OFI memory registration", "annot allocate memory"}, memlockText},
	{"ofi-open", consequence, "mpich", []string{"OFI endpoint open failed"}, "libfabric chose a provider and its device cannot be opened: the lines before name it. Check the device (fi_info, ibv_devinfo), rights on it and the locked-memory limit, or choose another provider by FI_PROVIDER (Intel MPI: I_MPI_OFI_PROVIDER)."},
	{"ofi-open", consequence, "mpich", []string{"OFI call endpoint failed"}, ""},
	{"ofi-open", consequence, "mpich", []string{"OFI call domain failed"}, ""},
	{"ofi-open", consequence, "mpich", []string{"OFI fi_open domain failed"}, ""},
	{"ofi-open", consequence, "mpich", []string{"OFI domain open failed"}, ""},
	{"ofi-open", consequence, "mpich", []string{"OFI fi_fabric failed"}, ""},
	{"ofi-open", consequence, "mpich", []string{"OFI EP enable failed"}, ""},
	{"ofi-address", consequence, "mpich", []string{"OFI get address vector map failed"}, "libfabric could not reach the addresses of other ranks: a line before says why."},
	{"ofi-transfer", fatal, "mpich", []string{" failed (ofi_"}, "An operation of libfabric failed while the job ran: the text in brackets is the provider's error. Look at the peer's log for the same second, at the route between the nodes, and which provider is used (I_MPI_DEBUG=5, MPIR_CVAR_DEBUG_SUMMARY=1)."},
	{"ofi-call", suspect, "openmpi", []string{"Open MPI failed an OFI Libfabric library call"}, "Open MPI chose a libfabric provider and its device cannot be opened: the Error line below names the reason. Where UCX is to carry the data, leave libfabric out (--mca mtl ^ofi --mca btl ^ofi); else check the device (fi_info) and the locked-memory limit."},

	// EFA.
	{"efa-fork", caution, "", []string{"the Libfabric EFA provider is operating in"}, "A process with EFA forks, which can corrupt memory on older kernels: set FI_EFA_USE_HUGE_PAGE=0 if the fork itself fails, else use a kernel of 5.13 or newer, or do not fork after MPI_Init (data loaders: spawn)."},
	{"efa-no-read", fatal, "", []string{"FI_EFA_USE_DEVICE_RDMA", "has no"}, "FI_EFA_USE_DEVICE_RDMA=1 asks for RDMA reads that this instance's EFA device does not have: unset it."},

	// Open MPI's help texts.
	{"mpi-no-device", suspect, "openmpi", []string{"was unable to find any relevant network interfaces"}, "An RDMA component of Open MPI found no device on this node and another transport is used instead: check that the port is up and that the job may open /dev/infiniband; on Omni-Path use pml cm, on other RDMA devices pml ucx."},
	{"ib-retry-exceeded", fatal, "openmpi", []string{"InfiniBand retry count between two MPI processes has been"}, "A peer stopped answering over RDMA (retry count exceeded): check its port, cable and switch, and that its process still lives."},
	{"memlock", fatal, "openmpi", []string{"(openib) BTL failed to initialize while trying to"}, memlockText},
	{"mpi-openib-preset", remark, "openmpi", []string{"No preset parameters were found for the device"}, "Open MPI's old openib component has no tuned parameters for this device: harmless. pml/ucx is the way to use the device (OMPI_MCA_pml=ucx; btl_openib_warn_no_device_params_found=0 silences this)."},
	{"mpi-tcp-if", caution, "openmpi", []string{"An invalid value was given for btl_tcp_if_"}, "btl_tcp_if_include or _exclude names no interface of this node and is ignored there: give a subnet or name that every node has."},
	{"mpi-tcp-if", caution, "openmpi", []string{"An invalid value was given for oob_tcp_if_"}, ""},
	{"mpi-registered-limit", caution, "openmpi", []string{"allow registering part of your physical memory"}, "The RDMA driver lets only a part of the memory be registered: raise log_num_mtt or log_mtts_per_seg of mlx4_core (the link in the text tells how)."},

	// NVSHMEM.
	{"nvshmem-transport", consequence, "nvshmem", []string{"nvshmemi_transport_init", "Unable to initialize any transports"}, "NVSHMEM found no transport that works: IBRC needs an active mlx5 port, nvidia_peermem (or DMA-BUF) and GDRCopy; IBGDA also the driver options NVreg_EnableStreamMemOPs=1 and NVreg_RegistryDwords=\"PeerMappingOverride=1;\". NVSHMEM_DEBUG=INFO says which is missing; NVSHMEM_HCA_PREFIX where devices are not called mlx5_*."},
	{"nvshmem-transport", consequence, "nvshmem", []string{"nvshmem", "connect EPS failed"}, ""},
	{"nvshmem-transport", consequence, "nvshmem", []string{"nvshmem setup connections failed"}, ""},
	{"nvshmem-transport", consequence, "nvshmem", []string{"init failed for remote transport: "}, ""},
	{"nvshmem-transport", consequence, "nvshmem", []string{"nvshmemi_transport_init", "init failed for transport: "}, ""},
	{"nvshmem-transport", consequence, "nvshmem", []string{"nvshmem detect topo failed"}, ""},
	{"nvshmem-gid", suspect, "nvshmem", []string{"transport/ib", "Unable to create ah"}, "NVSHMEM's device could not connect to its peer: the GID index does not fit (NVSHMEM_IB_GID_INDEX: the RoCE v2 one of the job's network, show_gids), or the two ports do not reach each other."},
	{"nvshmem-gid", suspect, "nvshmem", []string{"transport/ib", "ibv_modify_qp failed"}, ""},
	{"nvshmem-device", remark, "nvshmem", []string{"is not enumerated as an mlx5 device. Skipping"}, "NVSHMEM's IBGDA uses mlx5 devices only and leaves this one out."},

	// Libibverbs and its drivers.
	{"memlock-low", suspect, "", []string{"RLIMIT_MEMLOCK is "}, "The locked-memory limit of the process is too low for RDMA: raise it (" + memlockGive + ")."},
	{"ib-completion-error", suspect, "", []string{": got completion with error:"}, "An RDMA operation failed on the device; the numbers below are its own. The library's next lines say which, and the peer's log for the same second why."},

	// Starters.
	{"hydra-connect", fatal, "", []string{"unable to connect from \"", "\" to \""}, "Hydra's daemon on a node could not reach mpiexec: a firewall between the nodes, or the name of mpiexec's host means another address there. Open the ports, or choose the network by -iface (I_MPI_HYDRA_IFACE, HYDRA_IFACE)."},
	{"hydra-address", fatal, "", []string{"unable to get host address for "}, "A host name of the job is not known on a node (DNS, /etc/hosts): use names or addresses that all nodes know."},
	{"mpi-tcp-peer", caution, "openmpi", []string{"process but cannot find a corresponding process"}, "Open MPI's TCP component got a connection from an address that it does not expect: interfaces of different networks are mixed (docker0, virbr0, IPoIB). Set OMPI_MCA_btl_tcp_if_include to the one that all nodes share, or better OMPI_MCA_pml=ucx."},
	{"mpi-tcp-peer", caution, "openmpi", []string{"inbound MPI TCP connection request from a peer"}, ""},
	{"ucx-ud-timeout", fatal, "ucx", []string{"UD endpoint ", "unhandled timeout error"}, "UCX could not set up its first connection (UD time-out): usually the wrong GID index, or no route between the GIDs; set UCX_IB_GID_INDEX to the RoCE v2 one of the job's network."},

	// torch.
	{"torch-rendezvous", fatal, "", []string{"client socket has timed out after", "while trying to connect to"}, "torch's workers did not reach the rendezvous (MASTER_ADDR:MASTER_PORT): rank 0's node is not up yet, the name means another address there, or a firewall is between. That is not yet the network of the data."},
	{"torch-store", fatal, "", []string{"is setting up NCCL communicator", "but store->get("}, "Rank 0 did not come to the set-up of a communicator in time, or its store is gone: look at rank 0's log (it ended, is late, or is in another collective), and that all nodes reach MASTER_ADDR:MASTER_PORT."},
	{"torch-port", fatal, "", []string{"server socket has failed to", "ddress already in use"}, "torch's rendezvous port is taken by another process of the node: choose another MASTER_PORT (or --rdzv-endpoint), and look for a left-over job."},
	{"torch-port", fatal, "", []string{"EADDRINUSE", "server socket has failed"}, ""},
	{"gloo-connect", fatal, "", []string{"Gloo connectFullMesh failed"}, "Gloo's ranks (torch's CPU group) could not reach each other by TCP: set GLOO_SOCKET_IFNAME to the exact name of an interface that all nodes share; a host name that means 127.0.1.1 is the usual reason."},
	{"gloo-connect", fatal, "", []string{"gloo/transport/tcp", "onnection refused"}, ""},
	{"gloo-connect", fatal, "", []string{"gloo/transport/tcp", "imed out"}, ""},
	{"gloo-closed", consequence, "", []string{"gloo/transport/tcp", "onnection closed by peer"}, "A peer of Gloo (torch's CPU group) closed its connection: that rank's own log says why it ended."},
	{"gloo-closed", consequence, "", []string{"gloo/transport/tcp", "onnection reset by peer"}, ""},
}

// ucxPhrases are texts of UCX's own log (src/uct/ib, src/uct/tcp, src/uct/sm, src/ucp of 1.8 to 1.20).
var ucxPhrases = []phrase{
	{"ucx-only-shared-memory", consequence, "", nil, "UCX has nothing but shared memory on this node, so it cannot leave it: it sees no usable RDMA device and no TCP. Look at why: ucx_info -d lists what it finds; the port's state, rights on /dev/infiniband, the locked-memory limit, UCX built without verbs, or UCX_TLS and UCX_NET_DEVICES that leave nothing."},
	{"ucx-no-verbs", suspect, "", nil, "This UCX has no RDMA transports here, only shared memory and TCP: it was built without verbs (--with-verbs, rdma-core), its part for them (libuct_ib) is not found, or the node shows no RDMA device. ucx_info -d lists what it has; ibv_devinfo what the node has."},
	{"ucx-no-copy", fatal, "", []string{"no copy across memory types"}, "UCX cannot move data between GPU and host memory: this UCX has its CUDA parts only in part, or UCX_TLS leaves cuda_copy out. Add cuda (or rocm) to UCX_TLS, or use a UCX built --with-cuda."},
	{"ucx-version", fatal, "", []string{"UCP version is incompatible"}, "The program's UCX is newer than the one that was loaded: LD_LIBRARY_PATH, a module or the system's /usr/lib brings an older libucp. Load the UCX with which MPI was built."},
	{"ucx-version-api", caution, "", []string{"UCP API version is incompatible"}, "Another version of UCX is loaded than the one MPI was built with: load that one (LD_LIBRARY_PATH, modules)."},
	{"memlock", suspect, "", []string{"max locked memory"}, "UCX cannot use the RDMA device{dev}, because too little memory may be locked: raise the limit (" + memlockGive + "). Where the job goes on, it does so without that device."},
	{"memlock", suspect, "", []string{"ibv_create_", "annot allocate memory"}, ""},
	{"memlock", suspect, "", []string{"ibv_reg_mr", "annot allocate memory"}, ""},
	{"memlock", suspect, "", []string{"memlock"}, ""},
	{"ucx-gpu-memory", suspect, "", []string{"ibv_reg_mr", "Bad address"}, "UCX could not register GPU memory with the RDMA device: load nvidia_peermem on the node (as root: modprobe nvidia-peermem; AMD: the amdgpu driver's own), or use a driver, kernel and UCX with DMA-BUF; data goes through the host else."},
	{"ucx-gpu-memory", suspect, "", []string{"failed to register address", "md supports: host"}, ""},
	{"ucx-gpu-memory", suspect, "", []string{"failed to register", "(cuda)"}, ""},
	{"ucx-gpu-memory", suspect, "", []string{"ibv_reg_dmabuf_mr"}, ""},
	{"ucx-port-speed", caution, "", []string{"Invalid active_speed"}, "This UCX does not know the port's speed, because it is older than the device: use a newer UCX (NDR needs 1.12 or newer)."},
	{"ucx-cma", suspect, "", []string{"process_vm_", "not permitted"}, "Ranks of a node may not read each other's memory (CMA): kernel.yama.ptrace_scope, or containers of their own. Let containers share it (--cap-add=SYS_PTRACE, --ipc=host, --pid=host), or leave it out with UCX_TLS=^cma."},
	{"ucx-shm", suspect, "", []string{"shm_open", "failed"}, "Shared memory between ranks of a node could not be set up: /dev/shm is full, too small, or not shared between containers (" + topology.GiveShm + ")."},
	{"ucx-shm", suspect, "", []string{"/dev/shm"}, ""},
	{"ucx-shm", suspect, "", []string{"/proc/", "/fd/", "failed"}, ""},
	{"ucx-cm", fatal, "", []string{"RDMA_CM_EVENT_REJECTED"}, "The peer refused an RDMA connection: nobody listens on that address and port any more, or it is another kind of server."},
	{"ucx-cm", fatal, "", []string{"RDMA_CM_EVENT_UNREACHABLE"}, ""},
	{"ucx-cm-route", fatal, "", []string{"RDMA_CM_EVENT_ADDR_ERROR"}, "rdma_cm found no way to the peer's address from an RDMA device: the address must be one of the RDMA network (IPoIB or the RoCE interface), not of the management one."},
	{"ucx-cm-route", fatal, "", []string{"RDMA_CM_EVENT_ROUTE_ERROR"}, ""},
	{"ucx-cm-route", fatal, "", []string{"rdma_resolve_"}, ""},
}
