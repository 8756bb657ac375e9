package watch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// digest is a verdict in one line.
func digest(v Verdict) string {
	ids := []string{}
	for _, e := range v.Events {
		ids = append(ids, e.ID)
	}
	return fmt.Sprintf("lib=%s ver=%s nets=%v via=%v dev=%v gdr=%s partial=%v fb=%s cause=%s asked=%v fatal=%v ranks=%s nranks=%s nodes=%s ev=%v",
		v.Library, v.Version, v.Networks, v.InterNodeTransports, v.Devices, show(v.GDR), v.GDRPartial, show(v.Fallback), show(v.Cause), v.Intentional,
		v.FatalErrors, show(v.RanksSeen), show(v.NRanks), show(v.NNodes), ids)
}

const (
	p1   = "n1:10:11 [0] NCCL INFO "
	p2   = "n2:20:21 [1] NCCL INFO "
	warn = "\nn1:10:11 [0] transport/net_ib.cc:1296 NCCL WARN "
	// two makes a job of two nodes.
	two = p1 + "comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
	// wholeStart is the start of a rank of 2.26 whose user chose sockets.
	wholeStart = p1 + "cudaDriverVersion 12040\n" + p1 + "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.\n" +
		p1 + "NET/Socket : Using [0]eth0:10.0.0.1<0>\n" + p1 + "PROFILER/Plugin: Could not find: libnccl-profiler.so.\n" + p1 + "Using network Socket\n"
	socket = p1 + "NET/Socket : Using [0]eth0:10.0.0.1<0>\n" + p1 + "Using network Socket\n" + two
)

// patternCases has at least one case for the ID of every pattern. want are
// pieces of the digest.
var patternCases = []struct {
	id, log string
	want    []string
}{
	{"channel", p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA", []string{"nets=[IB]", "via=[NET/IB/GDRDMA]", "gdr=true partial=false", "fb=false"}},
	{"channel", p1 + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA(PCI)", []string{"gdr=true"}},
	{"channel", p1 + "Channel 03 : 11[1a000] -> 3[3d000] [send] via NET/IB/1/Shared", []string{"via=[NET/IB]", "gdr=false"}},
	{"channel", p1 + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/4(1)/GDRDMA/Shared", []string{"via=[NET/IB]", "gdr=true partial=true"}},
	{"channel", p1 + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA", []string{"nets=[AWS Libfabric]", "via=[NET/AWS Libfabric/GDRDMA]"}},
	{"channel", p1 + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", []string{"via=[NET/Socket]", "fb=true", "gdr=false"}},
	{"channel", p1 + "Channel 00/16 :    0   1   2   3", []string{"nranks=4", "via=[]"}},
	{"channel", p1 + "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read", []string{"via=[]", "fb=null"}},
	{"channel", p1 + "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", []string{"via=[]"}},
	{"channel", p1 + "Using network Socket\n" + two + p1 + "Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL\n" + p1 + "Connected all rings, use ring PXN 0 GDR 0", []string{"fb=false", "P2P/MNNVL"}},
	{"ring-2.4", p1 + "Ring 00 : 7 -> 8 [send] via NET/Socket/0", []string{"via=[NET/Socket]", "fb=true"}},
	{"ring-2.4", p1 + "Ring 00 : 3 -> 0 -> 1", []string{"via=[]", "fb=null"}},
	{"collnet-coll", p1 + "Coll 00 : 1 [receive] via COLLNET/SHARP/0/GDRDMA", []string{"via=[]"}},
	{"collnet", p1 + "CollNet 00/0 : 1 [receive] via COLLNET/SHARP/0/GDRDMA", []string{"via=[]"}},

	{"version", p1 + "NCCL version 2.29.7+cuda12.9", []string{"lib=nccl ver=2.29.7"}},
	{"version", p1 + "NCCL version 2.27.3+cuda12.9\n" + p2 + "NCCL version 2.21.5+cuda12.4", []string{"ver=2.27.3", "version-skew"}},
	{"version-rccl", p1 + "RCCL version : 2.26.6-HEAD:f224e2c", []string{"lib=rccl ver=2.26.6"}},
	{"comm", p1 + "comm 0x7f rank 3 nranks 16 cudaDev 0 busId 1e0 - Init COMPLETE", []string{"ranks=1 nranks=16"}},
	{"comm", p1 + "comm 0x7f rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n" + p1 + "Using network Socket", []string{"fb=false", "nodes=1"}},
	{"comm-fn", p1 + "ncclCommSplit comm 0x7f rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 1000 parent 0x1 color 0 key 3 - Init START", []string{"nranks=4"}},
	{"comm-rank", p1 + "[Rank 2] ncclCommInitRankConfig comm 0x5 rank 2 nranks 4 cudaDev 0 - Init START", []string{"nranks=4 "}},
	{"init-timings", p1 + "Init timings - ncclCommInitRank: rank 1 nranks 2 total 2.50 (kernels 0.30)", []string{"nranks=2"}},

	{"network", p1 + "Using network IB", []string{"nets=[IB]", "fb=false", "ev=[network]"}},
	{"network", "│ n1:10:11 [0] NCCL INFO Using network IB                                      │", []string{"nets=[IB]", "ranks=1"}},
	{"network", p1 + "Using network IBext_v11", []string{"nets=[IBext_v11]", "fb=false"}},
	{"network", socket, []string{"fb=true cause=unknown asked=false"}},
	{"driver", wholeStart + two, []string{"fb=true cause=socket-forced asked=true"}},
	{"profiler", strings.Replace(wholeStart, p1+"PROFILER/Plugin: Could not find: libnccl-profiler.so.\n", "", 1) + two, []string{"fb=true cause=unknown asked=false"}},
	{"driver", strings.Replace(wholeStart, p1+"cudaDriverVersion 12040\n", "", 1) + two, []string{"fb=true cause=unknown asked=false"}},
	{"driver", p2 + "NET/IB : No device found.\n" + wholeStart + two, []string{"fb=true cause=no-device asked=false"}},
	{"plugin-assigned", p1 + "Assigned NET plugin IB to comm", []string{"nets=[IB]"}},
	{"plugin-assigned", p1 + "Assigned GIN plugin IB to comm", []string{"nets=[]"}},
	{"plugin-init-failed", p1 + "Failed to initialize NET plugin IB\n" + socket, []string{"fb=true cause=unknown"}},
	{"plugin-init-failed", p1 + "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0\n" + p1 + "Failed to initialize NET plugin FasTrak\n" + socket, []string{"cause=plugin-failed"}},
	{"plugin-none", p1 + "Failed to open libibverbs.so[.1]" + warn + "Failed to initialize any NET plugin", []string{"fatal=[net-none]"}},
	{"comm-2.3", p1 + "rank 0 nranks 4\nn1:11:12 [1] NCCL INFO rank 1 nranks 4", []string{"nranks=4", "ranks=2"}},
	{"comm-2.3", p1 + "rank 0 of the group is late", []string{"nranks=null"}},
	{"net-gib", p1 + "NET/gIB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", []string{"nets=[gIB]", "dev=[mlx5_0:1/RoCE]", "fb=false"}},
	{"net-gib", warn + "NET/gIB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129 (Recv)", []string{"nets=[gIB]", "fatal=[ib-completion-error-12]"}},
	{"net-ib-2.3", p1 + "Net/IB: call to devices() returned 0 devices.\n" + socket, []string{"cause=no-device"}},
	{"net-ib-2.3", p1 + "Net/IB: call to devices() returned 2 devices.", []string{"fb=null", "cause=null"}},
	{"gdr-pair", "NCCL INFO GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)", []string{"gdr=null", "ev=[gdr-off]"}},
	{"mnnvl", p1 + "MNNVL busId 0x901000 fabric UUID 1a2b.3c4d cliqueId 0x1 state 3 healthMask 0x0\n" + p2 + "MNNVL busId 0x901000 fabric UUID 1a2b.3c4d cliqueId 0x2 state 3 healthMask 0x0", []string{"ev=[nvlink-cliques]"}},
	{"mnnvl", p1 + "MNNVL busId 0x901000 fabric UUID 1a2b.3c4d cliqueId 0x1 state 3 healthMask 0x0\n" + p2 + "MNNVL busId 0x901000 fabric UUID 5e6f.3c4d cliqueId 0x2 state 3 healthMask 0x0", []string{"ev=[]"}},
	{"mnnvl", p1 + "MNNVL busId 0x901000 fabric UUID 0.0 cliqueId 0x0 state 2 healthMask 0x0", []string{"ev=[nvlink-domain-state]"}},
	{"mnnvl", p1 + "MNNVL busId 0x901000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0", []string{"ev=[]"}},
	{"mnnvl", warn + "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.", []string{"fatal=[imex]"}},
	{"net-ib", warn + "NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_1" + warn + "NET/IB: Device 1 marked as failed. Initiating recovery? No (send comm=0x1, outstandingRecovery=0)", []string{"fatal=[]", "rail-failed", "fb=false"}},
	{"net-ib", p1 + "NET/IB: x: Device 1 was already marked as failed.", []string{"ev=[rail-failed]"}},
	{"net-ib", p1 + "NET/IB: ncclIbPortRecoveryContextProgress: Marking device 0 as recovered (send comm=0x55d0)", []string{"ev=[rail-recovered]", "fatal=[]"}},
	{"net-ib", p1 + "NET/IB : mlx5_3:1 speed change detected: 400000 -> 100000 Mbps", []string{"ev=[rail-speed]", "fatal=[]"}},
	{"net-ib", p1 + "NET/IB : speed change detected: something else", []string{"ev=[]"}},
	{"net-ib", warn + "NET/IB : mlx5_0:1 GID table changed", []string{"ev=[gid-changed]", "fatal=[]"}},
	{"collnet", p1 + "CollNet 00/0 : 1 [receive] via COLLNET/SHARP/0", []string{"gdr=false"}},
	{"channel", p1 + "1 -> 0 via NET/IB/0/GDRDMA", []string{"nets=[IB]", "gdr=true"}},
	{"channel", "n1:10:11 [0] INFO 1 -> 0 via NET/Socket/0", []string{"via=[NET/Socket]", "fb=true"}},
	{"net-socket", "n1:10:11 [0] INFO Using internal Network Socket\nn1:10:12 [0] INFO comm 0x7f rank 0 nranks 2\n\nn1:10:11 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out", []string{"lib=nccl", "nets=[Socket]", "ranks=1 nranks=2", "fatal=[socket-connect]"}},
	{"net-socket", "[2026-11-22 01:02:03] [app] INFO Using network settings of the site", []string{"lib= ", "nets=[]"}},
	{"net-socket", "\nn1:10:11 [0] ras/client_support.cc:181 NCCL WARN Call to bind failed: Address already in use", []string{"fatal=[]", "ev=[ras-port]"}},
	{"net-socket", "\nn1:10:11 [0] include/socket.h:333 NCCL WARN Call to bind failed : Cannot assign requested address", []string{"fatal=[bind-address]"}},
	{"net-socket", "\nn1:10:11 [0] misc/socket.cc:333 NCCL WARN Call to bind failed: Address already in use", []string{"fatal=[bind-port]"}},
	{"bootstrap", warn + "Bootstrap : no socket interface found", []string{"fatal=[no-interface]"}},
	{"nccl-result", "RuntimeError: NCCL Error 2: unhandled system error", []string{"lib=nccl", "fatal=[nccl-failed]"}},
	{"nccl-result", "kernel: unhandled system error in handler", []string{"lib= ", "fatal=[]"}},
	{"nccl-result-cuda", "ncclCommInitRank failed: unhandled cuda error", []string{"fatal=[nccl-failed]"}},
	{"nccl-result-remote", "RuntimeError: NCCL error: remote process exited or there was a network error", []string{"fatal=[nccl-failed]"}},
	{"nccl-result-name", "[rank3]: ncclRemoteError: A call failed possibly due to a network error", []string{"fatal=[nccl-failed]", "ranks=1"}},
	{"nccl-result-name", "except ncclRemoteError: raise", []string{"fatal=[]"}},
	{"torch-nccl-error", "torch.distributed.DistBackendError: NCCL error in: x.cpp:1331, unhandled system error, NCCL version 2.19.3", []string{"ver=2.19.3", "fatal=[nccl-failed]"}},
	{"torch-nccl-error", "NCCL error handling is asynchronous", []string{"fatal=[]"}},
	{"openmpi-adapter", "By default, for Open MPI 4.0 and later, infiniband ports on a device\nare not used by default.\n\n  Local host:              n1\n  Local adapter:           hfi1_0", []string{"lib=openmpi", "ev=[mpi-openib-off mpi-openib-device]"}},
	{"openmpi-host", "  Local host: n1", []string{"ev=[]", "lib= "}},
	{"openmpi-adapter", "  Local adapter:           hfi1_0", []string{"ev=[]"}},
	{"openmpi-device", "WARNING: There was an error initializing an OpenFabrics device.\n\n  Local host:   n1\n  Local device: bnxt_re0", []string{"ev=[mpi-openib-off mpi-openib-device]"}},
	{"openmpi-common-ucx", "[n1:7] ../opal/mca/common/ucx/common_ucx.c:312 tcp/eno1: did not match transport list\n[n1:7] ../opal/mca/common/ucx/common_ucx.c:312 posix/memory: did not match transport list\n[n1:7] common_ucx.c:317 support level is none\n[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected", []string{"fb=true cause=ucx-no-device asked=false", "mpi-ucx-no-device"}},
	{"openmpi-ucx", "[n1:7] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: Destination is unreachable", []string{"fatal=[mpi-ucx-endpoint]"}},
	{"net-ofi", "n1:10:11 [0] nccl_net_ofi_create_plugin:211 NCCL WARN NET/OFI No eligible providers were found\n" + socket, []string{"fb=true cause=plugin-failed"}},
	{"plugin-none", warn + "Failed to initialize any NET plugin", []string{"fatal=[net-none]"}},
	{"network-not-found", warn + "Error: network AWS Libfabric not found.", []string{"fatal=[net-not-found]"}},

	{"network-2.3", p1 + "Using internal Network Socket", []string{"nets=[Socket]"}},
	{"net-ib", p1 + "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB eth0:10.0.0.1<0>", []string{"dev=[mlx5_0:1/IB mlx5_1:1/IB]"}},
	{"net-ib", "<cluster>:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n<cluster>:20:21 [1] NCCL INFO Using network IB", []string{"ranks=2", "dev=[mlx5_0:1/IB]"}},
	{"net-ib", p1 + "NET/IB : Using [0]mlx5_0:1/RoCE [1]={[0] mlx5_1:1/IB, [1] mlx5_2:2/IB} [RO]; OOB eth0:10.0.0.1<0>", []string{"dev=[mlx5_0:1/RoCE mlx5_1:1/IB mlx5_2:2/IB]", "mixed-link-layers"}},
	{"net-ib", p1 + "NET/IB : Using [0]mlx5_0:1:3:0/IB [1]mlx5_1:1::/IB ; OOB eth0:10.0.0.1<0>", []string{"dev=[mlx5_0:1/IB mlx5_1:1/IB]"}},
	{"net-ib", p1 + "NET/IB : No device found.\n" + p1 + "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>\n" + socket, []string{"nets=[Socket]", "dev=[]", "fb=true cause=no-device asked=false"}},
	{"net-ib", p1 + "NCCL_IB_HCA set to mlx5_9\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=hca-filter"}},
	{"net-ib", p1 + "NET/IB : No device found.\n" + socket + p2 + "Using network IB", []string{"cause=mixed-networks"}},
	{"net-ib", warn + "NET/IB : No IP interface found.\n" + socket, []string{"cause=no-oob-interface"}},
	{"net-ib", warn + "NET/IB : Unable to open device mlx5_0\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=device-open"}},
	{"net-ib", p1 + "NET/IB: [0] mlx5_3:uverbs3:1/RoCE provider=Mlx5 speed=400000 context=0x5 pciPath=/sys/devices ar=0", []string{"dev=[mlx5_3:1/RoCE]"}},
	{"net-ib", p1 + "Using network IB\n" + two + p1 + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", []string{"gdr=false"}},
	{"net-ib", p1 + "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", []string{"gdr=null"}},
	{"net-ib", warn + "NET/IB : Got completion with error 12, opcode 1, len 32478, vendor err 129", []string{"fatal=[ib-completion-error-12]"}},
	{"net-ib", warn + "NET/IB: Got completion from peer 10.0.0.2<4711> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca mlx5_0", []string{"fatal=[ib-completion-error-12]"}},
	{"net-ib", warn + "NET/IB: Got completion from peer 10.0.0.2<4711> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  localGid ::1", []string{"fatal=[ib-completion-error-12]"}},
	{"net-ib", warn + "NET/IB : Got completion from peer 10.0.0.2<1> with error 5, opcode 1, len 0, vendor err 249\n" + warn + "NET/IB : Got completion from peer 10.0.0.2<1> with error 12, opcode 1, len 0, vendor err 129", []string{"fatal=[ib-completion-error-12 ib-completion-error-5]"}},
	{"net-ib", warn + "NET/IB : mlx5_0:1 async fatal event: port error", []string{"fatal=[ib-async-fatal]"}},
	{"net-ib", warn + "NET/IB : Got async event : local catastrophic error", []string{"fatal=[ib-async-fatal]"}},
	{"net-ib", warn + "NET/IB : mlx5_0:1 Got async event : local access violation work queue error", []string{"fatal=[ib-async-fatal]"}},
	{"net-ib", warn + "NET/IB : Got async event : client reregistration", []string{"fatal=[]", "ib-async"}},
	{"net-ib", warn + "NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)", []string{"fatal=[]", "ib-async"}},
	{"net-ib", warn + "NET/IB : Attempted to connect incompatible devices: mlx5_0 and mlx5_1", []string{"fatal=[ib-link-mismatch]"}},
	{"net-socket", p1 + "NET/Socket : Using [0]eth0:10.0.0.1<0>", []string{"nets=[Socket]", "fb=null"}},
	{"net-socket", warn + "NET/Socket : no interface found\n" + warn + "NET/Socket : No interface found", []string{"fatal=[no-interface]"}},
	{"net-ofi", p1 + "NET/OFI Selected Provider is efa (found 4 nics)", []string{"nets=[OFI]", "fb=false"}},
	{"net-ofi", p1 + "NET/OFI Selected provider is tcp, fabric is 10.0.0.0/24 (found 1 nics)\n" + p1 + "Using network AWS Libfabric\n" + two, []string{"fb=true cause=provider-tcp"}},
	{"net-ofi", p1 + "Using network Libfabric\n" + p1 + "NET/OFI Tuner init: comm with 8 ranks and 1 nodes.", []string{"nranks=8 nodes=1", "fb=false"}},
	{"net-plugin", p1 + "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", []string{"fb=null", "nets=[]"}},
	{"net-plugin", p1 + "NET/IB : Using [RO]; OOB eth0\n" + p1 + "NET/Plugin: External network plugin libnccl-net.so is unsupported", []string{"fatal=[]"}},
	{"net-other", p1 + "NET/FastSocket : Using [0]eth0:10.0.0.1<0>", []string{"nets=[FastSocket]", "fb=false"}},

	{"verbs-missing", p1 + "Failed to open libibverbs.so[.1]\n" + socket, []string{"cause=verbs-missing"}},
	{"verbs-missing-2.30", p1 + "Count not open libibverbs.so.1\n" + socket, []string{"cause=verbs-missing"}},
	{"net-ofi", p1 + "NET/Socket : Using [0]eth0:10.0.0.1<0>\nn1:10:11 [0] get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider\n" + p1 + "Failed to open libibverbs.so[.1]\n" + p2 + "NET/Socket : Using [0]eth0:10.0.0.2<0>", []string{"nets=[Socket]", "fb=true", "cause=plugin-failed"}},
	{"socket-create", "n1:10:11 [0] include/socket.h:318 NCCL WARN Net : Socket creation failed : Address family not supported by protocol", []string{"fatal=[socket-connect]"}},
	{"channel", "2025-05-16T16:39:51.208-07:00n1:10:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0", []string{"ranks=1", "via=[NET/IB]"}},
	{"sysfs-hidden", p1 + "Could not find real path of /sys/class/net/eth0/device\n" + p1 + "Ring 00 : 15 -> 0 [receive] via NET/Socket/0", []string{"fb=true", "cause=unknown"}},
	{"sysfs-hidden", warn + "Could not find real path of mlx5_0 (/sys/class/infiniband/mlx5_0/device)\n" + socket, []string{"cause=hidden-by-container"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with error Invalid argument errno 22", []string{"fatal=[ib-modify-qp-22]"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.0.2", []string{"fatal=[ib-modify-qp-110]"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with error No data available", []string{"fatal=[ib-modify-qp-61]"}},
	{"call-failed", warn + "Call to ibv_reg_mr failed with error Cannot allocate memory", []string{"fatal=[memlock]"}},
	{"call-failed", warn + "Call to ibv_reg_mr_iova2 failed with error Bad address", []string{"fatal=[ib-reg-mr]"}},
	{"call-failed", warn + "Call to ibv_create_cq failed with error Cannot allocate memory", []string{"fatal=[memlock]"}},
	{"call-failed", warn + "Call to ibv_create_qp failed with error Device or resource busy", []string{"fatal=[ib-create]"}},
	{"call-failed", warn + "Call to ibv_open_device failed\n" + warn + "NET/IB : Unable to open device mlx5_0\n" + socket, []string{"cause=device-open"}},
	{"call-failed", p1 + "Call to connect returned Connection refused, retrying", []string{"fatal=[]"}},

	{"ib-hca", p1 + "NCCL_IB_HCA set to mlx5_0\n" + p1 + "NCCL_SOCKET_IFNAME set to eth0\n" + p1 + "Using network IB", []string{"asked=true", "fb=false"}},
	{"ib-hca", p1 + "NCCL_IB_HCA set to mlx5_0\n" + p1 + "Using network IB", []string{"asked=false", "fb=false"}},
	{"env", p1 + "NCCL_IB_DISABLE set by environment to 1.\n" + socket, []string{"fb=true cause=ib-disabled asked=true"}},
	{"env", p1 + "NCCL_IB_DISABLE set by environment to 0.\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=no-device asked=false"}},
	{"env", p1 + "NCCL_NET set by environment to Socket.\n" + socket, []string{"cause=socket-forced asked=true"}},
	{"comm-config-net", p1 + "Comm config netName reset to NCCL_NET=Socket\n" + socket, []string{"cause=socket-forced asked=true"}},
	{"bootstrap", p1 + "Bootstrap : Using eth0:10.0.0.1<0>", []string{"nets=[]", "fb=null"}},
	{"rings", p1 + "Using network IB\n" + two + p1 + "Connected all rings, use ring PXN 0 GDR 1", []string{"gdr=true"}},
	{"trees", p1 + "Connected all trees", []string{"fb=null"}},
	{"connected-other", p1 + "Connected NVLS tree\n" + p1 + "Connected binomial trees", []string{"fb=null"}},
	{"proxy-connected", p1 + "Using network Socket\n" + p1 + "comm 0x rank 0 nranks 2 cudaDev 0 - Init START\n" + p1 + "Connected to proxy localRank 1 -> connection 0x7f", []string{"fb=false"}},
	{"proxy-new", p1 + "Using network Socket\n" + p1 + "comm 0x rank 0 nranks 2 cudaDev 0 - Init START\n" + p1 + "New proxy recv connection 3 from local rank 1, transport 0", []string{"fb=false"}},

	{"nvlink", p1 + "                + NVL[123.6] - GPU/0-26000\n" + p1 + "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", []string{"nvlink-unused", "fb=null"}},
	{"channel", p1 + "comm 0x7f rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n" + p1 + "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0", []string{"fb=false", "net-in-node", "via=[]"}},
	{"channel", p1 + "Using network Socket\n" + p1 + "comm 0x rank 1 nranks 16 cudaDev 1 - Init COMPLETE\n" + p1 + "Channel 00 : 1[1] -> 2[2] via P2P/IPC\n" + p1 + "Connected all rings", []string{"fb=null"}},
	{"channel", p1 + "Using network Socket\n" + p1 + "Channel 00 : 0[1] -> 1[2] via P2P/IPC\n" + p1 + "Channel 00 : 1[1] -> 0[2] via P2P/IPC\n" + p1 + "comm 0x rank 1 nranks 2 cudaDev 1 - Init COMPLETE\n" + p1 + "Connected all rings", []string{"fb=false"}},
	{"comm", p1 + "Using network Socket\n" + p1 + "comm 0x1 rank 0 nranks 1 cudaDev 0 - Init COMPLETE\n" + p2 + "Using network Socket\n" + p2 + "comm 0x1 rank 0 nranks 1 cudaDev 0 - Init COMPLETE", []string{"fb=false"}},

	{"no-path-to-net", warn + "Could not find any local path from gpu 0 to net.", []string{"fatal=[no-path-to-net]"}},
	{"no-transport", warn + "No transport found for rank 0[1000] -> rank 1[2000]", []string{"fatal=[no-transport]"}},
	{"merge-refused", warn + "Fusing NET devices from different NUMA domains is not supported.", []string{"fatal=[nic-merge-refused]"}},
	{"fatal-communicator", warn + "communicator encountered a fatal error (detected in ncclIbTest)", []string{"fatal=[nccl-fatal]"}},
	{"hca-sets-differ", warn + "Rank 1: channels on the extra devices of other ranks have no peer here, so the job may hang.", []string{"fatal=[hca-sets-differ]"}},
	{"mixed-counts", warn + "Detected mixed local Net device counts across ranks (min 1, max 4)", []string{"hca-counts-differ", "fatal=[]"}},
	{"closed-2.15", warn + "Net : Connection closed by remote peer 10.0.0.2<4711>", []string{"fatal=[connection-closed]"}},
	{"connect-2.15", warn + "Net : Connect to 10.0.0.2<4711> failed : No route to host", []string{"fatal=[socket-connect]"}},
	{"closed", warn + "socketProgress: Connection closed by remote peer n2<4711>", []string{"fatal=[connection-closed]"}},
	{"socket-type", warn + "socketFinalizeAccept: wrong type 4 != 3\n" + socket, []string{"fatal=[mixed-networks]", "cause=mixed-networks"}},
	{"socket-start", warn + "socketStartConnect: exceeded retries (20000)", []string{"fatal=[socket-connect]"}},
	{"socket-poll", warn + "socketPollConnect: connect to 10.0.0.2<1> returned Connection refused, exceeded error retry count (34)", []string{"fatal=[socket-connect]"}},
	{"connect-2.4", warn + "Connect to 10.0.0.2<1> failed : Connection timed out", []string{"fatal=[socket-connect]"}},

	{"ucx", "[1795179202.182] [n1:305  :0]     ucp_context.c:2257 UCX  INFO  Version 1.18.1 (loaded from /lib/libucp.so.0)\n[1795179202.3] [n1:305  :0]      ucp_worker.c:1903 UCX  INFO    ucp_context_0 inter-node cfg#1 tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1)  ka(ud_mlx5/mlx5_0:1)", []string{"lib=ucx ver=1.18.1", "dev=[mlx5_0:1 mlx5_1:1]", "fb=false", "ranks=1"}},
	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1903 UCX  INFO    inter-node cfg#1 tag(tcp/eth0)  ka(tcp/eth0)", []string{"fb=true cause=ucx-tcp asked=false", "nets=[tcp]"}},
	{"ucx", "[1.2] [n1:305  :0]  parser.c:2335 UCX  INFO  UCX_* env variables: UCX_TLS=tcp,self,sm\n[1.2] [n1:305  :0]      ucp_worker.c:1903 UCX  INFO    inter-node cfg#1 tag(tcp/eth0)", []string{"cause=ucx-tcp asked=true"}},
	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(rc_verbs/rxe_0:1); ", []string{"fb=false", "dev=[rxe_0:1]"}},
	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(posix/memory cma/memory); ", []string{"fb=null"}},
	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1903 UCX  INFO    inter-node cfg#1 tag(rc_mlx5/mlx5_0:1) ka(tcp/eth0)", []string{"fb=false", "nets=[rc_mlx5]"}},
	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1903 UCX  INFO    intra-node cfg#1 tag(tcp/lo)", []string{"fb=null"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1263 UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: 'ens1'(tcp)", []string{"ucx-no-device", "fatal=[]"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1263 UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: 'ens1'(tcp), 'mlx5_0:1'(ib)", []string{"ucx-device", "fatal=[]"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1100 UCX  WARN  transports 'rc','ud' are not available, please use one or more of: cma, mm, posix, self, sm, sysv, tcp", []string{"ev=[ucx-no-verbs]", "fatal=[]", "fb=null"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1100 UCX  WARN  transport 'dc' is not available, please use one or more of: ib, mm, rc, rc_verbs, self, tcp, ud, ud_verbs", []string{"ev=[ucx-transport]"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1100 UCX  WARN  transport 'cuda_copy' is not available, please use one or more of: mm, rc_mlx5, self, tcp", []string{"ev=[ucx-no-cuda]"}},
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:586  UCX  WARN  transport 'gdr_copy' is not available", []string{"ev=[ucx-no-cuda]"}},
	{"ucx", "1: [1.2] [n1:3  :0]  sock.c:325  UCX  ERROR   connect(fd=40, dest_addr=172.17.0.1:40703) failed: Connection refused", []string{"fatal=[ucx-bridge]", "ranks=1"}},
	{"ucx", "[1.2] [n1:3  :0]  sock.c:325  UCX  ERROR   connect(fd=40, dest_addr=10.1.0.2:40703) failed: Connection timed out", []string{"fatal=[ucx-tcp-connect]"}},
	{"ucx", "[1.2] [n1:3  :0]  select.c:438  UCX  ERROR no active messages transport to <no debug data>: posix/memory - Destination is unreachable, self/memory - Destination is unreachable, rdmacm/sockaddr - no am bcopy", []string{"fatal=[ucx-only-shared-memory]"}},
	{"ucx", "[1.2] [n1:3  :0]  ib_device.c:1319 UCX  ERROR ibv_create_ah(dlid=49152 sl=0 port=1 src_path_bits=0 dgid=::ffff:10.1.0.2 sgid_index=1 traffic_class=106) on mlx5_0 failed: Invalid argument", []string{"fatal=[ib-create-ah]"}},
	{"ucx", "[1.2] [n1:3  :0]  ib_md.c:400 UCX  ERROR ibv_reg_mr(address=0x7f, length=8, access=0xf) failed: Bad address", []string{"ev=[ucx-gpu-memory]", "fatal=[]"}},
	{"ucx", "[1.2] [n1:3  :0]  select.c:600 UCX  ERROR   no active messages transport to n2:10: rc_mlx5/mlx5_0:1 - Destination is unreachable", []string{"fatal=[ucx-unreachable]"}},
	{"ucx", "[1.2] [n1:3  :0]  ud_ep.c:276  UCX  FATAL UD endpoint 0x5 to <no debug data>: unhandled timeout error", []string{"fatal=[ucx-ud-timeout]"}},
	{"ucx", "[1.2] [n1:3  :0]  ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)", []string{"fatal=[ucx-retry-exceeded]"}},

	{"ucx", "[1.2] [n1:305  :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(posix/memory cma/memory tcp/eth0); ", []string{"fb=null cause=null"}},
	{"ucx", "worker.c:1903 UCX INFO perftest inter-node cfg#0 tag(rc_verbs/irdma0:1)", []string{"lib=ucx", "fb=false", "dev=[irdma0:1]"}},
	{"ucx", "we built UCX from source", []string{"lib= "}},
	{"ucx", "[1.2] [n1:3:0]  rc_verbs_iface.c:98  UCX  ERROR send completion with error: remote invalid request error qpn 0x20 wrid 0x3 vendor_err 0x8a", []string{"fatal=[ucx-remote-invalid]"}},
	{"ucx", "[1.2] [n1:3:0]  wireup_ep.c:467  UCX  ERROR no supported sockaddr auxiliary transports found for mlx5_4:1", []string{"fatal=[ucx-unreachable]"}},
	{"ucx-device", "[n1:44:0:44] ib_mlx5_log.c:179  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n[n1:44:0:44] ib_mlx5_log.c:179  RC QP 0x82d wqe[0]: RDMA_READ s-- [rva 0x5 rkey 0x2] [va 0x4 len 65 lkey 0x6] [rqpn 0x4e dlid=2 sl=0 port=1 src_path_bits=0]", []string{"lib=ucx", "fatal=[ucx-retry-exceeded]"}},
	{"ucx-device", "[n1:44:0:44] ib_mlx5_log.c:179  Local protection on mlx5_2:1/RoCE (synd 0x4 vend 0x51 hw_synd 0/2)", []string{"fatal=[ucx-local-protection]"}},
	{"ucx-device", "[n1:44:0:44] ib_mlx5_log.c:179  Remote operation error on mlx5_2:1/RoCE (synd 0x14 vend 0x89 hw_synd 0/0)", []string{"fatal=[ucx-remote-operation]"}},
	{"ucx-device", "[n1:44:0:44] ib_mlx5_log.c:179  Remote access on mlx5_2:1/RoCE (synd 0x13 vend 0x88 hw_synd 0/0)", []string{"fatal=[ucx-remote-access]"}},
	{"ucx-verbs", "[n1:44:0:44] rc_verbs_iface.c:65  send completion with error: transport retry counter exceeded qpn 0x5 wrid 0x1 vendor_err 0x81", []string{"fatal=[ucx-retry-exceeded]"}},
	{"ucx-verbs", "[n1:44:0:44] rc_verbs_iface.c:65  send completion with error: transport retry count exceeded", []string{"fatal=[ucx-retry-exceeded]"}},
	{"ucx-crash", "[n1:44:0:44] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)", []string{"fatal=[crash]"}},
	{"ucx-crash", "the handler says Caught signal 11 when it is tested", []string{"fatal=[]"}},
	{"ucx-config", "ctx_0 inter-node cfg#2 rma_am(tcp/eth1) am(tcp/eth1) ka(tcp/eth1)", []string{"lib=ucx", "fb=true cause=ucx-tcp"}},
	{"ucx-config", "| perf inter-node cfg#1 | tagged message by ucp_tag_send* from host memory |\n+--+\n| 0..8246 | eager copy-in | rc_mlx5/mlx5_0:1 |\n| 8247..inf | zero-copy | 50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_1:1 |", []string{"dev=[mlx5_0:1 mlx5_1:1]", "fb=false"}},
	{"ucx-config-node", "| perf inter-node cfg#1 | tagged message |\n| 0..10 | short | tcp/eth0 |\n| perf intra-node cfg#2 | tagged message |\n| 0..10 | short | rc_mlx5/mlx5_0:1 |", []string{"fb=true cause=ucx-tcp", "dev=[]"}},
	{"ucx-config-self", "| perf inter-node cfg#1 | tagged message |\n| 0..10 | short | rc_mlx5/mlx5_0:1 |\n| perf self cfg#0 | tagged message |\n| 0..10 | short | tcp/lo |", []string{"fb=false", "nets=[rc_mlx5]"}},
	{"ucx-table-row", "| 0..10 | short | tcp/eth0 |", []string{"fb=null", "nets=[]"}},

	{"nccl-version", "NCCL version 2.20.5+cuda12.4", []string{"lib=nccl ver=2.20.5"}},
	{"rccl-version", "RCCL version 2.18.6+hip6.0 HEAD:2f6d59e+", []string{"lib=rccl ver=2.18.6"}},
	{"nccl-tests-rank", "#  Rank  0 Group  0 Pid    880 on n1 device  0 [0xa4] NVIDIA A100\n#  Rank  1 Group  0 Pid    881 on n1 device  1 [0xa9] NVIDIA A100", []string{"ranks=2 nranks=null nodes=null", "fb=null"}},
	{"nccl-tests-table", "#  Rank  0 Group  0 Pid    880 on n1 device  0 [0xa4] NVIDIA A100\n#  Rank  1 Group  0 Pid    881 on n1 device  1 [0xa9] NVIDIA A100\n#\n#                                                              out-of-place                       in-place", []string{"ranks=2 nranks=2 nodes=1", "fb=false"}},
	{"torch-nccl", "[rank9]:[E ProcessGroupNCCL.cpp:583] [Rank 9] To avoid data inconsistency, we are taking the entire process down.", []string{"fatal=[torch-watchdog]", "ranks=1"}},
	{"torch-nccl", "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", []string{"fatal=[nccl-timeout]"}},
	{"torch-nccl-error", "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroup.cpp:1970, unhandled system error, NCCL version 2.21.5", []string{"ver=2.21.5"}},
	{"torch-nccl", "[rank1]:[E1016 11:12:13 ProcessGroupNCCL.cpp:1484] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info.", []string{"fatal=[torch-heartbeat]"}},
	{"torch-nccl", "[rank1]:[I ProcessGroupNCCL.cpp:1484] [PG 0 Rank 1] Heartbeat monitor started", []string{"fatal=[]"}},
	{"env-assignment", "# export NCCL_IB_DISABLE=1   (only to compare)\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=no-device asked=false"}},
	{"xla-last-warning", "XlaRuntimeError: INTERNAL: NCCL operation ncclCommInitRank(&comm, n, id, rank) failed: unhandled system error. Last NCCL warning(error) log entry (may be unrelated) 'Call to ibv_modify_qp failed with error No such device'.", []string{"lib=nccl", "fatal=[ib-modify-qp-19 nccl-failed]"}},
	{"xla-last-warning", "the log entry (may be unrelated) 'Call to ibv_modify_qp failed with error No such device'", []string{"fatal=[]"}},
	{"verbs-no-driver", "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=verbs-missing"}},
	{"phrase", "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.", []string{"ev=[memlock-low]", "fatal=[]"}},
	{"nccl-version", "RuntimeError: NCCL error in: x.cpp:957, invalid usage, NCCL version 21.0.3", []string{"ver=2.10.3", "fatal=[nccl-failed]"}},
	{"nccl-version", "RuntimeError: NCCL error in: x.cpp:957, invalid usage, NCCL version 2.21.5", []string{"ver=2.21.5"}},
	{"openmpi-ucx", "1: [n1:7] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: Destination is unreachable", []string{"fatal=[mpi-ucx-endpoint]"}},
	{"nccl-failure", "Test NCCL failure common.cu:212 'unhandled system error'", []string{"fatal=[nccl-failed]"}},
	{"openmpi-no-pml", "No components were able to be opened in the pml framework.", []string{"lib=openmpi", "fatal=[mpi-no-pml]"}},
	{"openmpi-pml", "[n1:1] PML ucx cannot be selected", []string{"fatal=[mpi-pml-unavailable]"}},
	{"openmpi-mismatch", "[n1:7] [[52,1],5] selected pml ob1, but peer [[52,1],0] on n2 selected pml ucx", []string{"fatal=[mpi-pml-differs]", "fb=true cause=mixed-networks"}},
	{"openmpi-mismatch", "[n1:7] [[52,1],5] selected pml cm, but peer [[52,1],0] selected pml ucx", []string{"fatal=[mpi-pml-differs]", "fb=false"}},
	{"openmpi-select", "[n1:7] select: init returned priority 51\n[n1:7] select: component ucx selected\n[n2:8] select: component ucx selected", []string{"lib=openmpi", "nets=[ucx]", "fb=false", "ranks=2"}},
	{"openmpi-select", "[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected", []string{"fb=true cause=pml-not-ucx asked=false", "ranks=2"}},
	{"openmpi-select", "[n1:7] select: component ob1 selected", []string{"fb=null cause=pml-not-ucx"}},
	{"openmpi-select", "[n1:7] select: component ucx not in the include list\n[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected", []string{"fb=true cause=pml-not-ucx asked=true"}},
	{"openmpi-select", "[n1:7] select: init of component openib returned success\n[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected", []string{"fb=false"}},
	{"openmpi-select", "[n1:7] select: init of component openib returned failure\n[n1:7] select: init of component tcp returned success\n[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected", []string{"fb=true cause=pml-not-ucx"}},
	{"openmpi-select", "[n1:7] select: component psm2 selected\n[n1:7] select: component cm selected", []string{"nets=[psm2]", "fb=false"}},
	{"verbs-driver", "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': libmlx5-rdmav34.so: cannot open shared object file: No such file or directory\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=verbs-missing asked=false", "ev=[verbs-driver fallback]"}},
	{"verbs-driver", "libibverbs: Warning: couldn't load driver '/usr/lib64/libibverbs/libipathverbs-rdmav25.so': cannot open\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=no-device"}},
	{"verbs-driver-2", "libibverbs: Warning: couldnt load driver 'libmlx5-rdmav34.so': cannot open\n" + p1 + "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n" + p1 + "Using network IB", []string{"fb=false cause=null"}},
	{"verbs-sysfs", "libibverbs: Warning: couldn't stat '/sys/class/infiniband/mlx5_20'.\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=hidden-by-container"}},
	{"bare-nccl", "Last error:\nsocketProgressOpt: Call to recv from 10.0.0.2<33759> failed : Connection reset by peer", []string{"fatal=[connection-closed]"}},
	{"bare-nccl", "[rank0]: Last error:\n[rank0]: Call to ibv_modify_qp failed with error Connection timed out errno 110", []string{"lib=nccl", "fatal=[ib-modify-qp-110]"}},
	{"bare-nccl", "[trainer0|0]:Net : Connection closed by remote peer n2<50260>", []string{"fatal=[connection-closed]"}},
	{"bare-nccl", "[rank3]: NET/IB: Got completion from peer 10.0.0.2<33759> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0", []string{"fatal=[ib-completion-error-12]", "ranks=1"}},
	{"command-line", "[n1:7] select: component ob1 selected\n[n2:8] select: component ob1 selected\nmpirun --mca pml ob1 --mca btl tcp,self -np 2 ./a.out", []string{"fb=true cause=pml-not-ucx asked=true"}},
	{"openmpi-ofi", "[n1:7] mtl_ofi_component.c:383: mtl:ofi:provider: sockets\n[n2:8] mtl_ofi_component.c:383: mtl:ofi:provider: sockets", []string{"nets=[sockets]", "fb=true cause=provider-tcp"}},
	{"openmpi-ofi", "[n1:7] mtl_ofi_component.c:383: mtl:ofi:provider: efa\n[n1:7] mtl_ofi_component.c:390: mtl:ofi:provider:domain: rdmap0s8-rdm", []string{"nets=[efa]", "dev=[rdmap0s8-rdm]", "fb=false"}},
	{"openmpi-ofi", "[n1:7] mtl_ofi_component.c:362: mtl:ofi:provider: eth0\n[n2:8] mtl_ofi_component.c:362: mtl:ofi:provider: eth0", []string{"fb=true cause=provider-tcp"}},
	{"openmpi-ofi", "[n1:7] mtl_ofi_component.c:345: mtl:ofi:provider_exclude = \"shm,sockets,tcp\"", []string{"nets=[]", "fb=null"}},
	{"openmpi-common-ucx", "[n1:7] common_ucx.c:314 support level is transports only", []string{"lib=openmpi", "ev=[mpi-ucx-driver]"}},
	{"openmpi-common-ucx", "[n1:7] common_ucx.c:314 support level is none\n[n1:7] common_ucx.c:108 using OPAL memory hooks as external events", []string{"lib=openmpi", "ev=[]"}},
	{"openmpi-bml", "[n1:7] mca: bml: Using tcp btl for send to [[2,1],1] on node n1", []string{"fb=null", "nets=[]"}},
	{"openmpi-bml", "[n1:7] mca: bml: Using vader btl for send to [[2,1],1] on node n1\n[n1:7] mca: bml: Using openib btl for send to [[2,1],2] on node n2", []string{"fb=false", "nets=[openib]", "via=[btl/openib]"}},
	{"openmpi-bml", "[n1:1] mca: bml: Using tcp btl for send to [[1,1],1] on node n2", []string{"fb=true cause=pml-not-ucx"}},
	{"openmpi-btl-tcp", "[n1][[1,1],0][btl_tcp_endpoint.c:625:mca_btl_tcp_endpoint_recv_connect_ack] received unexpected process identifier [[1,1],2]", []string{"fb=true cause=pml-not-ucx", "fatal=[mpi-btl-tcp]"}},
	{"openmpi-btl-tcp", "mpirun --mca btl_tcp_if_include eth0 -np 2 ./a.out", []string{"fb=null", "lib= "}},
	{"openmpi-btl-tcp", "[n1][[16,1],2][btl_tcp.c:556:mca_btl_tcp_recv_blocking] remote peer unexpectedly closed connection", []string{"fb=true cause=pml-not-ucx", "fatal=[mpi-btl-tcp]"}},
	{"openmpi-openib-port", "No OpenFabrics connection schemes reported that they were able to be", []string{"lib=openmpi", "ev=[mpi-openib-off]", "fb=null"}},
	{"openmpi-openib-init", "WARNING: There was an error initializing an OpenFabrics device.", []string{"ev=[mpi-openib-off]"}},
	{"openmpi-openib-off", "By default, for Open MPI 4.0 and later, infiniband ports on a device", []string{"lib=openmpi ver= ", "ev=[mpi-openib-off]"}},
	{"openmpi-no-active-port", "WARNING: There is at least non-excluded one OpenFabrics device found,", []string{"ev=[mpi-no-active-port]"}},
	{"phrase", "The OpenFabrics (openib) BTL failed to initialize while trying to", []string{"fatal=[memlock]"}},
	{"openmpi-component-missing", "A requested component was not found, or was unable to be opened.  This", []string{"fatal=[mpi-component-missing]"}},
	{"openmpi-unreachable", "MPI_INIT has failed because at least one MPI process is unreachable", []string{"fatal=[mpi-unreachable]"}},
	{"openmpi-pair-unreachable", "At least one pair of MPI processes are unable to reach each other for", []string{"fatal=[mpi-unreachable]"}},
	{"openmpi-daemon", "ORTE has lost communication with a remote daemon.", []string{"lib=openmpi", "fatal=[mpi-daemon-lost]"}},
	{"openmpi-daemon", "PRTE has lost communication with a remote daemon.", []string{"fatal=[mpi-daemon-lost]"}},
	{"openmpi-daemon", "ORTE was unable to reliably start one or more daemons.", []string{"fatal=[mpi-daemon-start]"}},
	{"openmpi-version-hello", "Hello, world, I am 0 of 4, (Open MPI v4.1.2, package: Open MPI me@n1 Distribution, ident: 4.1.2)", []string{"lib=openmpi ver=4.1.2"}},
	{"pmix-error", "[n1:7] PMIX ERROR: UNREACHABLE in file ptl_tcp.c at line 790", []string{"ev=[pmix-error]", "fatal=[]"}},
	{"rank-died", "mpirun noticed that process rank 3 with PID 100 on node n2 exited on signal 9 (Killed).", []string{"fatal=[rank-died]"}},
	{"rank-died-hydra", "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", []string{"fatal=[rank-died]"}},
	{"mpi-fatal", "Abort(1094799) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:", []string{"lib=mpich", "fatal=[mpi-init]"}},
	{"mpi-fatal", "Abort(69) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Recv: See the MPI_ERROR field in MPI_Status for the error code", []string{"fatal=[mpi-error]"}},
	{"mpi-error", "[n1:7] *** An error occurred in MPI_Isend", []string{"fatal=[mpi-error]"}},
	{"mpi-fatal", "MPICH ERROR [Rank 3] [job id 12.0] [Wed Feb 24 12:00:00 2021] [nid00012] - Abort(1090) (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:", []string{"lib=mpich", "fatal=[mpi-init]", "ranks=1"}},
	{"phrase", "n1.4711PSM2 can't open hfi unit: -1 (err=23)", []string{"fatal=[]", "ev=[psm-open]"}},
	{"phrase", "n1:rank0: PSM3 can't open nic unit: 0 (err=23)", []string{"fatal=[]", "ev=[psm3-open]"}},
	{"phrase", "PSM2 was unable to open an endpoint. Please make sure that the network link is", []string{"ev=[psm-open]"}},
	{"mpi-init-failed", "It looks like MPI_INIT failed for some reason; your parallel process is", []string{"fatal=[mpi-init]"}},
	{"mpich-init", "internal_Init_thread(67).: MPI_Init_thread(argc=0x7f, argv=0x7f, required=0, provided=0x7f) failed", []string{"fatal=[mpi-init]"}},
	{"openmpi-tcp-connect", "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This", []string{"fatal=[mpi-tcp-connect]"}},
	{"openmpi-ucx", "[n1:1] pml_ucx.c:309  Error: Failed to create UCP worker", []string{"ev=[mpi-ucx-error]"}},
	{"openmpi-version", "mpirun (Open MPI) 5.0.7", []string{"lib=openmpi ver=5.0.7"}},
	{"mpi-abort", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", []string{"fatal=[mpi-abort]"}},
	{"intel", "[0] MPI startup(): Intel(R) MPI Library, Version 2021.6  Build 20220227\n[0] MPI startup(): libfabric provider: mlx", []string{"lib=intelmpi ver=2021.6", "nets=[mlx]", "fb=false"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp;ofi_rxm\n[0] MPI startup(): 0       12345    n1    {0,1}\n[0] MPI startup(): 1       12346    n2    {0,1}\n[0] MPI startup(): I_MPI_ROOT=/opt/intel", []string{"fb=true cause=provider-tcp", "nranks=2"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp\n[0] MPI startup(): 0       12345    n1    {0,1}\n[0] MPI startup(): 1       12346    n1    {0,1}\n[0] MPI startup(): I_MPI_ROOT=/opt/intel", []string{"fb=false"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp\n[0] MPI startup(): 0       12345    n1    {0,1}", []string{"fb=null"}},
	{"intel", "[0] MPI startup(): libfabric provider: sockets", []string{"fb=null cause=provider-tcp"}},
	{"intel", "[0] MPI startup(): shm and tcp data transfer modes\n[0] MPI startup(): 0       12345    n1    {0}\n[0] MPI startup(): 1       12346    n2    {0}\n[0] MPI startup(): I_MPI_ROOT=/opt/intel", []string{"nets=[tcp]", "fb=true cause=provider-tcp asked=false", "nodes=2"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp\n[0] MPI startup(): I_MPI_OFI_PROVIDER=tcp\n[0] MPI startup(): 0       12345    n1    {0}\n[0] MPI startup(): 1       12346    n2    {0}", []string{"fb=true cause=provider-tcp asked=true"}},
	{"intel", "[1] MPI startup(): shm and dapl data transfer modes", []string{"nets=[dapl]", "fb=false"}},
	{"intel", "[1] MPI startup(): ofi fabric is not available and fallback fabric is not enabled", []string{"fatal=[mpi-fabric-missing]"}},
	{"intel", "[0] MPI startup(): libfabric provider: mlx\n[0] MPI startup(): 0       eth0\n[0] MPI startup(): RLIMIT_MEMLOCK too small", []string{"nranks=null", "ev=[memlock-low]"}},
	{"intel-tmi", "0: [0] init_tmi_provider(): TMI provider initialized: psm2 (1.3)\n0: [0] MPI startup(): tmi data transfer mode", []string{"lib=intelmpi", "nets=[psm2]", "fb=false"}},
	{"mpich-provider", "provider: tcp, score = 4, pref = 0, FI_SOCKADDR_IN [16] 10.1.0.1\nlibfabric provider: verbs;ofi_rxm - IB-0xfe80000000000000", []string{"lib=mpich", "nets=[verbs;ofi_rxm]", "fb=false"}},
	{"mpich-provider", "libfabric provider: tcp - 10.1.0.0/16", []string{"fb=null cause=provider-tcp"}},
	{"mvapich-no-hca", "rdma_setup_startup_ring(372): No active HCAs found on the system!!!", []string{"fatal=[no-active-hca]"}},
	{"mvapich", " MVAPICH2-2.3.7 Parameters", []string{"lib=mvapich ver=2.3.7"}},
	{"mvapich-rank", "[n1:mpi_rank_0][handle_cqe] Send desc error in msg to 1, wc_opcode=0\n[n1:mpi_rank_0][handle_cqe] Msg from 1: wc.status=12 (transport retry counter exceeded), wc.wr_id=0x7f", []string{"lib=mvapich", "fatal=[ib-completion-error-12]"}},
	{"libfabric", "libfabric:17:1700000000:verbs:fabric:vrb_get_device_attrs():1 <warn> ibv_reg_mr: Cannot allocate memory", []string{"lib=libfabric", "fatal=[memlock]"}},
	{"libfabric", "libfabric:17:1700000000::core:core:fi_fabric_():1503<info> Opened fabric: 10.1.0.0/16\nlibfabric:17:1700000000::core:core:fi_fabric_():1514<info> Using ofi_rxm provider 119.0, path:/lib/libfabric.so.1\nlibfabric:17:1700000000::core:core:fi_fabric_():1514<info> Using tcp provider 119.0, path:/lib/libfabric.so.1", []string{"nets=[tcp]", "fb=null cause=provider-tcp"}},
	{"libfabric", "libfabric:17:core:core:fi_fabric_():1406<info> Opened fabric: IB-0xfe80000000000000", []string{"nets=[verbs]", "fb=false"}},
	{"libfabric", "libfabric:17:core:core:ofi_register_provider():427<info> registering provider: tcp (1.4)", []string{"nets=[]", "fb=null cause=null"}},
	{"libfabric", "libfabric:17:core:core:fi_getinfo_():1002<warn> fi_getinfo: provider usnic returned -61 (No data available)", []string{"fatal=[]"}},
	{"env-assignment", "+ export NCCL_NET=Socket\n" + socket, []string{"cause=socket-forced asked=true"}},
	{"env-assignment", "mpirun -x NCCL_IB_DISABLE=1 -np 2 ./a.out\n" + socket, []string{"cause=ib-disabled asked=true"}},
	{"bare-nccl", "Channel 03/0 : 11[0] -> 3[0] [send]    via NET/IB/0", []string{"nets=[IB]", "gdr=false"}},
	{"bare-nccl", "Channel 00 -> NET/IB/0/GDRDMA     Channel 01 -> NET/IB/1", []string{"gdr=true partial=true"}},
	{"bare-nccl", "Using network Socket", []string{"nets=[Socket]", "fb=null"}},
}

func TestPatterns(t *testing.T) {
	for i, c := range patternCases {
		t.Run(fmt.Sprintf("%s/%d", c.id, i), func(t *testing.T) {
			v, err := Scan(strings.NewReader(c.log + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := digest(v)
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%s\nlacks %q in\n%s", c.log, w, got)
				}
			}
			if v.Sentence == "" {
				t.Error("no sentence")
			}
		})
	}
}

// TestEveryPatternHasACase keeps the table and its tests together, and the IDs unique.
func TestEveryPatternHasACase(t *testing.T) {
	var ids []string
	for _, p := range ncclPatterns {
		ids = append(ids, p.id)
	}
	for _, p := range barePatterns {
		ids = append(ids, p.id)
	}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			t.Errorf("two patterns %q", id)
		}
		found := false
		for _, c := range patternCases {
			found = found || c.id == id
		}
		if !found {
			t.Errorf("pattern %q has no case", id)
		}
	}
}

// TestPrefixes: what launchers, terminals and log collectors put before and
// into a line changes nothing.
func TestPrefixes(t *testing.T) {
	want := digest(mustScan(t, twoNodeLog))
	for name, change := range map[string]func(i int, line string) string{
		"openmpi 4 tag":       func(i int, l string) string { return fmt.Sprintf("[1,%d]<stdout>:", i%2) + l },
		"openmpi 5 tag":       func(i int, l string) string { return fmt.Sprintf("[prterun-n1-77@1,%d]<stdout>: ", i%2) + l },
		"tag inside the line": func(i int, l string) string { return "[1,0]<stdout>:" + l[:len(l)/2] + "[1,0]<stdout>:" + l[len(l)/2:] },
		"srun -l":             func(i int, l string) string { return fmt.Sprintf("%2d: ", i%2) + l },
		"hydra -l":            func(i int, l string) string { return fmt.Sprintf("[%d] ", i%2) + l },
		"torchrun":            func(_ int, l string) string { return "[default0]:" + l },
		"ray":                 func(_ int, l string) string { return "(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=927) " + l },
		"time stamp":          func(_ int, l string) string { return "[2026-11-21 04:55:11] " + l },
		"openmpi 4 time and tag": func(i int, l string) string {
			return fmt.Sprintf("Sat Nov 21 07:11:%02d 2026[1,%d]<stdout>:", i, i%2) + l
		},
		"openmpi 4 time":  func(i int, l string) string { return fmt.Sprintf("Sat Nov 21 07:11:%02d 2026<stdout>:", i) + l },
		"pdsh":            func(_ int, l string) string { return l[:2] + ": " + l },
		"pdsh by address": func(_ int, l string) string { return "10.1.1.1: " + l },
		"journal":         func(_ int, l string) string { return "Nov 21 07:11:11 " + l[:2] + " python3[4711]: " + l },
		"stern":           func(_ int, l string) string { return "worker-0 pytorch " + l },
		"torchx":          func(_ int, l string) string { return "[trainer3]:" + l },
		"docker's JSON": func(_ int, l string) string {
			return `{"log":"` + l + `\n","stream":"stdout","time":"2026-11-21T04:55:11Z"}`
		},
		"collector's JSON":     func(_ int, l string) string { return `{"ts":1.5,"message":"` + l + `","pod":"w-0"}` },
		"CSV":                  func(_ int, l string) string { return "2026-11-21 04:55:11,w-0," + l },
		"quoted":               func(_ int, l string) string { return `"` + l + `"` },
		"email":                func(_ int, l string) string { return "> " + l },
		"kubectl --timestamps": func(_ int, l string) string { return "2026-11-21T04:55:11.123456789Z " + l },
		"colour":               func(_ int, l string) string { return "\x1b[1;36m(APIServer pid=8211)\x1b[0;0m " + l },
		"carriage return":      func(_ int, l string) string { return l + "\r" },
		"progress bar":         func(_ int, l string) string { return "\r 45%|####    | 45/100 [00:01<00:01]\r" + l },
		"windows line end":     func(_ int, l string) string { return strings.ReplaceAll(l, "\n", "") + "\r" },
		"indented":             func(_ int, l string) string { return "    " + l },
		"docker compose":       func(_ int, l string) string { return "worker-1  | " + l },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			for i, l := range strings.Split(strings.TrimSpace(twoNodeLog), "\n") {
				b.WriteString(change(i, l) + "\n")
			}
			if got := digest(mustScan(t, b.String())); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func mustScan(t *testing.T, log string) Verdict {
	t.Helper()
	v, err := Scan(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func FuzzScan(f *testing.F) {
	for _, c := range patternCases {
		f.Add([]byte(c.log), uint8(17))
	}
	f.Add([]byte(twoNodeLog), uint8(3))
	f.Fuzz(func(t *testing.T, log []byte, size uint8) {
		w := New(Options{Pairs: true})
		s := w.Source("")
		for p := log; len(p) > 0; {
			n := min(int(size)+1, len(p))
			_, _ = s.Write(p[:n])
			p = p[n:]
		}
		_ = s.Close()
		v := w.Verdict()
		if v.Fallback != nil && *v.Fallback && v.Cause == nil {
			t.Errorf("a fallback without a cause: %s", digest(v))
		}
		if v.Sentence == "" {
			t.Error("no sentence")
		}
		if st := StallOf(w.Standings()); st != nil && st.Block() == "" {
			t.Error("a stall without words")
		}
	})
}
