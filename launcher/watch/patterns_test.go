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
	two    = p1 + "comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
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
	{"network", p1 + "Using network IBext_v11", []string{"nets=[IBext_v11]", "fb=false"}},
	{"network", socket, []string{"fb=true cause=socket-forced asked=true"}},
	{"plugin-assigned", p1 + "Assigned NET plugin IB to comm", []string{"nets=[IB]"}},
	{"plugin-assigned", p1 + "Assigned GIN plugin IB to comm", []string{"nets=[]"}},
	{"plugin-init-failed", p1 + "Failed to initialize NET plugin IB\n" + socket, []string{"fb=true cause=unknown"}},
	{"plugin-init-failed", p1 + "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0\n" + p1 + "Failed to initialize NET plugin FasTrak\n" + socket, []string{"cause=plugin-failed"}},
	{"plugin-none", warn + "Failed to initialize any NET plugin", []string{"fatal=[net-none]"}},
	{"network-not-found", warn + "Error: network AWS Libfabric not found.", []string{"fatal=[net-not-found]"}},

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
	{"net-ib", warn + "NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)", []string{"fatal=[]", "ib-async"}},
	{"net-ib", warn + "NET/IB : Attempted to connect incompatible devices: mlx5_0 and mlx5_1", []string{"fatal=[ib-link-mismatch]"}},
	{"net-socket", p1 + "NET/Socket : Using [0]eth0:10.0.0.1<0>", []string{"nets=[Socket]", "fb=null"}},
	{"net-socket", warn + "NET/Socket : no interface found\n" + warn + "NET/Socket : No interface found", []string{"fatal=[no-interface]"}},
	{"net-ofi", p1 + "NET/OFI Selected Provider is efa (found 4 nics)", []string{"nets=[OFI]", "fb=false"}},
	{"net-ofi", p1 + "NET/OFI Selected provider is tcp, fabric is 10.0.0.0/24 (found 1 nics)\n" + p1 + "Using network AWS Libfabric\n" + two, []string{"fb=true cause=provider-tcp"}},
	{"net-plugin", p1 + "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", []string{"fb=null", "nets=[]"}},
	{"net-plugin", p1 + "NET/IB : Using [RO]; OOB eth0\n" + p1 + "NET/Plugin: External network plugin libnccl-net.so is unsupported", []string{"fatal=[]"}},
	{"net-other", p1 + "NET/FastSocket : Using [0]eth0:10.0.0.1<0>", []string{"nets=[FastSocket]", "fb=false"}},

	{"verbs-missing", p1 + "Failed to open libibverbs.so[.1]\n" + socket, []string{"cause=verbs-missing"}},
	{"verbs-missing-2.30", p1 + "Count not open libibverbs.so.1\n" + socket, []string{"cause=verbs-missing"}},
	{"sysfs-hidden", warn + "Could not find real path of mlx5_0 (/sys/class/infiniband/mlx5_0/device)\n" + socket, []string{"cause=hidden-by-container"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with error Invalid argument errno 22", []string{"fatal=[ib-modify-qp-22]"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.0.2", []string{"fatal=[ib-modify-qp-110]"}},
	{"call-failed", warn + "Call to ibv_modify_qp failed with error No data available", []string{"fatal=[ib-modify-qp-61]"}},
	{"call-failed", warn + "Call to ibv_reg_mr failed with error Cannot allocate memory", []string{"fatal=[memlock]"}},
	{"call-failed", warn + "Call to ibv_reg_mr_iova2 failed with error Bad address", []string{"fatal=[ib-reg-mr]"}},
	{"call-failed", warn + "Call to ibv_create_qp failed with error Cannot allocate memory", []string{"fatal=[ib-create]"}},
	{"call-failed", warn + "Call to ibv_open_device failed\n" + warn + "NET/IB : Unable to open device mlx5_0\n" + socket, []string{"cause=device-open"}},
	{"call-failed", p1 + "Call to connect returned Connection refused, retrying", []string{"fatal=[]"}},

	{"ib-hca", p1 + "NCCL_IB_HCA set to mlx5_0\n" + p1 + "Using network IB", []string{"asked=true", "fb=false"}},
	{"env", p1 + "NCCL_IB_DISABLE set by environment to 1.\n" + socket, []string{"fb=true cause=ib-disabled asked=true"}},
	{"env", p1 + "NCCL_IB_DISABLE set by environment to 0.\n" + p1 + "NET/IB : No device found.\n" + socket, []string{"cause=no-device asked=false"}},
	{"env", p1 + "NCCL_NET set by environment to Socket.\n" + socket, []string{"cause=socket-forced asked=true"}},
	{"comm-config-net", p1 + "Comm config netName reset to NCCL_NET=Socket\n" + socket, []string{"cause=socket-forced asked=true"}},
	{"bootstrap", p1 + "Bootstrap : Using eth0:10.0.0.1<0>", []string{"nets=[]", "fb=null"}},
	{"rings", p1 + "Using network IB\n" + two + p1 + "Connected all rings, use ring PXN 0 GDR 1", []string{"gdr=true"}},
	{"trees", p1 + "Connected all trees", []string{"fb=null"}},
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
	{"ucx", "[1.2] [n1:3  :0]  ucp_context.c:1263 UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: 'ens1'(tcp)", []string{"ucx-device", "fatal=[]"}},
	{"ucx", "[1.2] [n1:3  :0]  select.c:600 UCX  ERROR   no active messages transport to n2:10: rc_mlx5/mlx5_0:1 - Destination is unreachable", []string{"fatal=[ucx-unreachable]"}},
	{"ucx", "[1.2] [n1:3  :0]  ud_ep.c:276  UCX  FATAL UD endpoint 0x5 to <no debug data>: unhandled timeout error", []string{"fatal=[ucx-ud-timeout]"}},
	{"ucx", "[1.2] [n1:3  :0]  ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)", []string{"fatal=[ucx-retry-exceeded]"}},

	{"nccl-version", "NCCL version 2.20.5+cuda12.4", []string{"lib=nccl ver=2.20.5"}},
	{"rccl-version", "RCCL version 2.18.6+hip6.0 HEAD:2f6d59e+", []string{"lib=rccl ver=2.18.6"}},
	{"nccl-tests-rank", "#  Rank  0 Group  0 Pid    880 on n1 device  0 [0xa4] NVIDIA A100\n#  Rank  1 Group  0 Pid    881 on n1 device  1 [0xa9] NVIDIA A100", []string{"ranks=2 nranks=2 nodes=1", "fb=false"}},
	{"torch-nccl", "[rank9]:[E ProcessGroupNCCL.cpp:583] [Rank 9] To avoid data inconsistency, we are taking the entire process down.", []string{"fatal=[torch-watchdog]", "ranks=1"}},
	{"torch-nccl", "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", []string{"fatal=[nccl-timeout]"}},
	{"torch-nccl-error", "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroup.cpp:1970, unhandled system error, NCCL version 2.21.5", []string{"ver=2.21.5"}},
	{"nccl-failure", "Test NCCL failure common.cu:212 'unhandled system error'", []string{"fatal=[nccl-failed]"}},
	{"openmpi-no-pml", "No components were able to be opened in the pml framework.", []string{"lib=openmpi", "fatal=[mpi-no-pml]"}},
	{"openmpi-pml", "[n1:1] PML ucx cannot be selected", []string{"fatal=[mpi-pml-unavailable]"}},
	{"openmpi-bml", "[n1:1] mca: bml: Using tcp btl for send to [[1,1],1] on node n2", []string{"fb=true cause=pml-not-ucx"}},
	{"openmpi-btl-tcp", "[n1][[1,1],0][btl_tcp_endpoint.c:625:mca_btl_tcp_endpoint_recv_connect_ack] received unexpected process identifier [[1,1],2]", []string{"fb=true cause=pml-not-ucx", "fatal=[mpi-btl-tcp]"}},
	{"openmpi-btl-tcp", "mpirun --mca btl_tcp_if_include eth0 -np 2 ./a.out", []string{"fb=null", "lib= "}},
	{"openmpi-tcp-connect", "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This", []string{"fatal=[mpi-tcp-connect]"}},
	{"openmpi-ucx", "[n1:1] pml_ucx.c:309  Error: Failed to create UCP worker", []string{"ev=[mpi-ucx-error]"}},
	{"openmpi-version", "mpirun (Open MPI) 5.0.7", []string{"lib=openmpi ver=5.0.7"}},
	{"mpi-abort", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", []string{"fatal=[mpi-abort]"}},
	{"intel", "[0] MPI startup(): Intel(R) MPI Library, Version 2021.6  Build 20220227\n[0] MPI startup(): libfabric provider: mlx", []string{"lib=intelmpi ver=2021.6", "nets=[mlx]", "fb=false"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp;ofi_rxm\n[0] MPI startup(): 0       12345    n1    {0,1}\n[0] MPI startup(): 1       12346    n2    {0,1}", []string{"fb=true cause=provider-tcp", "nranks=2"}},
	{"intel", "[0] MPI startup(): libfabric provider: tcp\n[0] MPI startup(): 0       12345    n1    {0,1}\n[0] MPI startup(): 1       12346    n1    {0,1}", []string{"fb=false"}},
	{"intel", "[0] MPI startup(): libfabric provider: sockets", []string{"fb=null cause=provider-tcp"}},
	{"mvapich", " MVAPICH2-2.3.7 Parameters", []string{"lib=mvapich ver=2.3.7"}},
	{"mvapich-rank", "[n1:mpi_rank_0][handle_cqe] Send desc error in msg to 1, wc_opcode=0\n[n1:mpi_rank_0][handle_cqe] Msg from 1: wc.status=12 (transport retry counter exceeded), wc.wr_id=0x7f", []string{"lib=mvapich", "fatal=[ib-completion-error-12]"}},
	{"libfabric", "libfabric:17:1700000000:verbs:fabric:vrb_get_device_attrs():1 <warn> ibv_reg_mr: Cannot allocate memory", []string{"lib=libfabric", "fatal=[memlock]"}},
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
		"openmpi 4 tag":        func(i int, l string) string { return fmt.Sprintf("[1,%d]<stdout>:", i%2) + l },
		"openmpi 5 tag":        func(i int, l string) string { return fmt.Sprintf("[prterun-n1-77@1,%d]<stdout>: ", i%2) + l },
		"tag inside the line":  func(i int, l string) string { return "[1,0]<stdout>:" + l[:len(l)/2] + "[1,0]<stdout>:" + l[len(l)/2:] },
		"srun -l":              func(i int, l string) string { return fmt.Sprintf("%2d: ", i%2) + l },
		"hydra -l":             func(i int, l string) string { return fmt.Sprintf("[%d] ", i%2) + l },
		"torchrun":             func(_ int, l string) string { return "[default0]:" + l },
		"ray":                  func(_ int, l string) string { return "(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=927) " + l },
		"time stamp":           func(_ int, l string) string { return "[2026-11-21 04:55:11] " + l },
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
		if st := w.Stalled(); st != nil && st.Block() == "" {
			t.Error("a stall without words")
		}
	})
}
