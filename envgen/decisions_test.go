package envgen

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/profiles"
	"fabrun/topology"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// decision is one row of the decision table.
type decision struct {
	name     string
	hosts    []topology.Host
	profile  string // a built-in; "" none
	change   func(*profiles.Profile)
	workload string
	job      Job
	set      []string // NAME=VALUE in the environment
}

func (d decision) input(t testing.TB) Input {
	in := Input{Hosts: d.hosts, Job: d.job}
	if d.profile != "" {
		in.Profile = load(t, d.profile)
	}
	if d.change != nil {
		d.change(&in.Profile)
	}
	if d.workload != "" {
		w, err := profiles.LoadWorkload(nil, d.workload)
		if err != nil {
			t.Fatal(err)
		}
		in.Workload = &w
	}
	for _, nv := range d.set {
		name, value, _ := strings.Cut(nv, "=")
		in.Job.Settings = append(in.Job.Settings, Setting{Name: name, Value: value, Origin: FromUser, Where: "environment"})
	}
	return in
}

// dump is a result as the golden file shows it.
func dump(res Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "contract  %s\n", res.Contract)
	last := ""
	for _, h := range res.Hosts {
		var vars strings.Builder
		for _, v := range h.Vars {
			fmt.Fprintf(&vars, "  %s=%s  [%s %s %s]\n", v.Name, v.Value, v.Origin, v.Scope, v.Rule)
		}
		if vars.String() == last && len(res.Hosts) > 1 {
			fmt.Fprintf(&b, "%s  as above\n", h.Host)
			continue
		}
		last = vars.String()
		fmt.Fprintf(&b, "%s\n%s", h.Host, last)
	}
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "%s %s %s\n", f.Severity, f.ID, strings.TrimSpace(f.Host+" "+f.Subject))
		fmt.Fprintf(&b, "    %s\n", f.Seen)
	}
	return b.String()
}

func nccl(v string) Job { return Job{Versions: &Versions{NCCL: v}} }

func mpi(version string, ucx *bool) Job {
	kind, _, _ := strings.Cut(version, " ")
	return Job{UsesGPU: ptr(false), Versions: &Versions{MPI: version, MPIKind: kind, OpenMPIHasUCX: ucx}}
}

func decisions() []decision {
	ompi5 := mpi("openmpi 5.0.7", ptr(true))
	return []decision{
		{name: "ConnectX-4 Lx cluster, DSCP 31", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp31", job: ompi5},
		{name: "ConnectX-4 Lx cluster, no profile", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, job: ompi5},
		{name: "ConnectX-4 Lx cluster, set nothing", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "none", job: ompi5},
		{name: "RoCE host under an InfiniBand profile", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "infiniband", job: ompi5},
		{name: "no RDMA at all", hosts: []topology.Host{{Name: "n1"}, {Name: "n2"}}, profile: "roce-dscp26", job: ompi5},

		{name: "GPU server, NCCL 2.27", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU server, NCCL 2.18: index 0 would be taken", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: nccl("2.18.3")},
		{name: "GPU server, version not known", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26"},
		{name: "GPU server, in an image", hosts: []topology.Host{withSoftware(gpuServer("g1", 1), "nccl", "2.27.3")}, profile: "roce-dscp26", job: Job{InContainer: true}},
		{name: "GPU server, strict, NCCL 2.30", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: Job{Strict: true, Versions: &Versions{NCCL: "2.30.7"}}},
		{name: "GPU server, no QoS plan", hosts: []topology.Host{withDCB(gpuServer("g1", 1), "dscp", []int{3})}, job: nccl("2.27.3")},
		{name: "GPU servers, rails reach each other", hosts: []topology.Host{gpuServer("g1", 1), gpuServer("g2", 2)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.RailOnly = ptr(false) }, job: nccl("2.27.3")},
		{name: "GPU servers, routes between rails", hosts: []topology.Host{withRoutes(gpuServer("g1", 1)), withRoutes(gpuServer("g2", 2))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, names differ", hosts: []topology.Host{gpuServer("g1", 1), renamed(gpuServer("g2", 2))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, one port down", hosts: []topology.Host{gpuServer("g1", 1), broken(gpuServer("g2", 2), 3), gpuServer("g3", 3)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, one port slow", hosts: []topology.Host{gpuServer("g1", 1), slow(gpuServer("g2", 2), 3)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, one without RDMA", hosts: []topology.Host{gpuServer("g1", 1), {Name: "g2"}}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, one in another subnet", hosts: []topology.Host{gpuServer("g1", 1), gpuServer("g2", 2), moved(gpuServer("g3", 3), 1)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU servers, every link its own subnet", hosts: []topology.Host{linkSubnets(gpuServer("g1", 1), 1), linkSubnets(gpuServer("g2", 2), 2)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU server, a management port of another class", hosts: []topology.Host{withSlowNIC(gpuServer("g1", 1))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU server, two HCAs excluded by the profile", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.ExcludeHCAs = []string{"mlx5_[01]"} }, job: nccl("2.27.3")},

		{name: "InfiniBand, eight rails", hosts: []topology.Host{infiniband("i1", 8), infiniband("i2", 8)}, profile: "infiniband", job: nccl("2.27.3")},
		{name: "InfiniBand, service level in the profile", hosts: []topology.Host{infiniband("i1", 2)}, profile: "infiniband", change: func(p *profiles.Profile) { p.Fabric.QoS = &profiles.QoS{RDMA: profiles.Class{SL: ptr(1)}} }, job: nccl("2.27.3")},
		{name: "InfiniBand, user sets a traffic class and an index", hosts: []topology.Host{infiniband("i1", 2)}, profile: "infiniband", job: nccl("2.27.3"), set: []string{"NCCL_IB_TC=106", "NCCL_IB_GID_INDEX=3"}},
		{name: "InfiniBand beside RoCE, no profile", hosts: []topology.Host{withSlowNIC(infiniband("i1", 2))}, job: nccl("2.27.3")},
		{name: "Azure ND v5", hosts: []topology.Host{hidden(infiniband("i1", 8))}, profile: "azure-ndv5", job: nccl("2.27.3")},
		{name: "CoreWeave InfiniBand", hosts: []topology.Host{withEth0(prefixed(infiniband("i1", 8), "ibp"))}, profile: "coreweave-ib", job: nccl("2.27.3")},

		{name: "InfiniBand beside RoCE, the profile says Ethernet", hosts: []topology.Host{dualStorage(lid(infiniband("i1", 1)), "Ethernet")}, profile: "roce-dscp26", job: ompi5},
		{name: "a container with two of four devices", hosts: []topology.Host{uverbs(manyHCAs("n1", 4), "uverbs1", "uverbs3")}, profile: "roce-dscp26", job: ompi5},
		{name: "one of four devices may not be opened", hosts: []topology.Host{change(uverbs(manyHCAs("n1", 4), "uverbs0", "uverbs1", "uverbs2", "uverbs3"), func(h *topology.Host) { h.DeviceNodes.Openable = []string{"uverbs0", "uverbs1", "uverbs2"} })}, profile: "roce-dscp26", job: ompi5},
		{name: "one of two hosts may lock next to no memory", hosts: []topology.Host{manyHCAs("n1", 2), locks(manyHCAs("n2", 2), 64<<10, 64<<10, nil)}, profile: "roce-dscp26", job: ompi5},
		{name: "the profile's subnets leave a port out", hosts: []topology.Host{manyHCAs("n1", 2)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Subnets = []string{"10.10.1.0/24"} }, job: ompi5},
		{name: "a management port of the same model", hosts: []topology.Host{defaultRoute(manyHCAs("n1", 2), "rdma0")}, profile: "roce-dscp26", job: ompi5},
		{name: "a storage card beside GPUs with a NIC each", hosts: []topology.Host{addRoCE(gpuServer("g1", 1), "mlx5_7", "0000:f1:00.0", "MT4129", "stor0", "10.60.0.1/24", 400)}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "InfiniBand, limited in the default partition", hosts: []topology.Host{keys(infiniband("i1", 2), 0x7fff, 0x8012), keys(infiniband("i2", 2), 0x8013, 0x8012)}, profile: "infiniband", job: nccl("2.27.3")},
		{name: "two InfiniBand fabrics", hosts: []topology.Host{prefix(noGPUs(infiniband("i1", 2)), 1, "fec0:0:0:1::2")}, job: ompi5},
		{name: "AMD GPUs, rails apart, RCCL", hosts: []topology.Host{withConf(amd(gpuServer("g1", 1)), "NCCL_IB_HCA=mlx5\n")}, profile: "roce-dscp26", job: nccl("2.22.3")},
		{name: "rails apart, UCX 1.17", hosts: []topology.Host{withEth0(manyHCAs("n1", 2))}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(false), Versions: &Versions{UCX: "1.17.0"}}},
		{name: "bond, NCCL", hosts: []topology.Host{bonded("n1")}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.21.5"}}},
		{name: "Grace, NCCL 2.25", hosts: []topology.Host{grace()}, profile: "infiniband", job: nccl("2.25.1")},
		{name: "VFs beside their PF", hosts: []topology.Host{withVFs(cx4lx("n1", "10.1.4.1"))}, profile: "roce-dscp26", job: ompi5},
		{name: "bond", hosts: []topology.Host{bonded("n1")}, profile: "roce-dscp26", job: ompi5},
		{name: "VLAN address in the fabric's subnet", hosts: []topology.Host{withVLAN(cx4lx("n1", "10.1.4.1"))}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Subnets = []string{"10.99.0.0/16"} }, job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3", UCX: "1.18.0"}}},
		{name: "two addresses, the fabric's is the second", hosts: []topology.Host{secondAddress(cx4lx("n1", "10.1.4.1"))}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Subnets = []string{"10.99.0.0/16"} }, job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3", UCX: "1.16.0"}}},
		{name: "GIDs of another network namespace", hosts: []topology.Host{otherNamespace(cx4lx("n1", "10.1.4.1"))}, profile: "roce-dscp26", job: ompi5},
		{name: "RoCE v1 fabric", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.RoCEVersion = 1 }, job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}},
		{name: "IPv6 only, NCCL 2.27", hosts: []topology.Host{withEth0(ipv6Only("n1"))}, profile: "coreweave-roce", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}},
		{name: "IPv6 only, NCCL 2.18", hosts: []topology.Host{withEth0(ipv6Only("n1"))}, profile: "coreweave-roce", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.18.3"}}},

		{name: "IPv4 behind a second link-local address, NCCL 2.18", hosts: []topology.Host{twoLinkLocal(cx4lx("n1", "10.1.4.1"))}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.18.3"}}},
		{name: "right at index 1 on one vendor's card and 3 on the other's, NCCL 2.18", hosts: []topology.Host{twoVendors("n1")}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.18.3"}}},
		{name: "the same, NCCL 2.27", hosts: []topology.Host{twoVendors("n1")}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}},
		{name: "one port has IPv4 and IPv6, the other IPv6 only", hosts: []topology.Host{mixedFamilies("n1")}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}},
		{name: "a DSCP moved to another priority", hosts: []topology.Host{remapped(withDCB(cx4lx("n1", "10.1.4.1"), "dscp", []int{3}), 26, 6)}, profile: "roce-dscp26", job: ompi5},

		{name: "a port without an address, and iWARP, beside a good one", hosts: []topology.Host{joined(noAddress(manyHCAs("n1", 2)), special("n1", "iw_cxgb4", "cxgb4_0"))}, profile: "roce-dscp26", job: ompi5},
		{name: "RoCE beside rxe under its profile", hosts: []topology.Host{joined(rxe("v1", true), cx4lx("v1", "10.1.4.9"))}, profile: "soft-roce", job: ompi5},

		{name: "rxe with a global IPv6 address", hosts: []topology.Host{rxe("v1", true), rxe("v2", true)}, profile: "soft-roce", job: ompi5},
		{name: "rxe without one", hosts: []topology.Host{rxe("v1", false)}, profile: "soft-roce", job: ompi5},
		{name: "EFA with its plugin", hosts: []topology.Host{withSoftware(special("a1", "efa", "rdmap0s6"), "nccl-plugin", "AWS Libfabric")}, profile: "aws-efa", job: Job{UsesGPU: ptr(true), Strict: true}},
		{name: "EFA without a plugin", hosts: []topology.Host{withSoftware(special("a1", "efa", "rdmap0s6"), "nccl", "2.27.3")}, profile: "aws-efa", job: Job{UsesGPU: ptr(true)}},
		{name: "Slingshot", hosts: []topology.Host{special("c1", "cxi", "cxi0")}, job: Job{UsesGPU: ptr(true)}},
		{name: "Omni-Path", hosts: []topology.Host{special("o1", "hfi1", "hfi1_0")}, job: Job{UsesGPU: ptr(true)}},
		{name: "iWARP only", hosts: []topology.Host{special("w1", "iw_cxgb4", "cxgb4_0")}, job: ompi5},
		{name: "Broadcom Thor2, Open MPI", hosts: []topology.Host{driver(cx4lx("b1", "10.1.4.1"), "bnxt_re", "bnxt_re0")}, profile: "broadcom-thor2", job: ompi5},
		{name: "AMD Pollara at Oracle, NCCL 2.22", hosts: []topology.Host{driver(cx4lx("p1", "10.1.4.1"), "ionic", "ionic_0")}, profile: "oci-mi355x", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.22.3"}}},
		{name: "AMD Pollara with its plugin", hosts: []topology.Host{library(pollara("p1"), "nccl-plugin", "", "opt/rocm/lib/librccl-anp.so")}, profile: "amd-pollara", job: nccl("2.22.3")},
		{name: "AMD Pollara, DMA-BUF alone, RCCL with the plugin built in", hosts: []topology.Host{library(peerMemory(pollara("p1"), ptr(false), ptr(true)), "rccl", "2.27.7", "opt/rocm/lib/librccl.so.1")}, profile: "amd-pollara", job: nccl("2.27.7")},
		{name: "Google gIB, NCCL 2.25", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "gcp-gib", job: nccl("2.25.1")},
		{name: "Oracle H100", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "oci-h100", job: nccl("2.27.3")},
		{name: "Lingjun, NCCL not known", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "alibaba-lingjun"},

		{name: "GPU reaches its NIC through the root complex only", hosts: []topology.Host{withEth0(rootPorts("r1"))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "GPU on the other socket only", hosts: []topology.Host{otherSocket("r1")}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "IOMMU translates", hosts: []topology.Host{translating(rootPorts("r1"))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "PCI tree hidden", hosts: []topology.Host{hidden(rootPorts("r1"))}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "no peer memory", hosts: []topology.Host{noPeerMemory(rootPorts("r1"))}, profile: "roce-dscp26", job: nccl("2.27.3")},

		{name: "MVAPICH2 2.3.7 on RoCE", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", job: mpi("mvapich 2.3.7", nil)},
		{name: "MVAPICH 3 on RoCE", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", job: mpi("mvapich 3.0", nil)},
		{name: "Intel MPI with UCX", hosts: []topology.Host{withSoftware(cx4lx("n1", "10.1.4.1"), "ucx", "1.18.0")}, profile: "roce-dscp26", job: mpi("intelmpi 2021.10", nil)},
		{name: "Intel MPI without UCX", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", job: mpi("intelmpi 2021.10", nil)},
		{name: "MPICH on RoCE", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", job: mpi("mpich 4.0.2", nil)},
		{name: "Open MPI without UCX", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp26", job: mpi("openmpi 4.1.4", ptr(false))},
		{name: "NVSHMEM, devices renamed", hosts: []topology.Host{withSoftware(driver(gpuServer("g1", 1), "mlx5", "rocep"), "nvshmem", "3.4.5")}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "torchrun beside docker0", hosts: []topology.Host{withDocker(gpuServer("g1", 1))}, profile: "roce-dscp26", workload: "pytorch", job: Job{NoMPI: true, Gloo: true, Versions: &Versions{NCCL: "2.27.3"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
		{name: "bootstrap over the fabric", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Bootstrap = "fabric" }, job: nccl("2.27.3")},
		{name: "bootstrap interface that is not there", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Bootstrap = "eno1" }, job: nccl("2.27.3")},
		{name: "private logs", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: Job{LogDir: "/dev/shm/fabrun-x", Versions: &Versions{NCCL: "2.27.3"}}},
		{name: "private logs, user set NCCL_DEBUG", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: Job{LogDir: "/dev/shm/fabrun-x", Versions: &Versions{NCCL: "2.27.3"}}, set: []string{"NCCL_DEBUG=WARN"}},

		{name: "user pins a link-local GID", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: nccl("2.27.3"), set: []string{"NCCL_IB_GID_INDEX=1"}},
		{name: "user's list takes mlx5_10 too", hosts: []topology.Host{manyHCAs("m1", 12)}, profile: "roce-dscp26", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3"}}, set: []string{"NCCL_IB_HCA=mlx5_1"}},
		{name: "user turns InfiniBand off", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: nccl("2.27.3"), set: []string{"NCCL_IB_DISABLE=1", "NCCL_NET_GDR_LEVEL=sys"}},
		{name: "user's DSCP for a traffic class", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", job: nccl("2.27.3"), set: []string{"NCCL_IB_TC=26"}},
		{name: "nccl.conf of the site, with a typo", hosts: []topology.Host{withConf(gpuServer("g1", 1), "# site\nNCCL_IB_GID_IDX=3\nNCCL_IB_TC=104\nNCCL_SOCKET_IFNAME=\"eth0\"\n")}, profile: "roce-dscp26", job: nccl("2.27.3")},
		{name: "nccl.conf beaten by the environment", hosts: []topology.Host{withConf(gpuServer("g1", 1), "NCCL_IB_TC=26\n")}, profile: "roce-dscp26", job: nccl("2.27.3"), set: []string{"NCCL_IB_TC=106"}},
		{name: "the port's class overrides the plan's", hosts: []topology.Host{globalTClass("n1", 96)}, profile: "roce-dscp26", job: ompi5},
		{name: "the host trusts pcp", hosts: []topology.Host{withDCB(cx4lx("n1", "10.1.4.1"), "pcp", []int{3})}, profile: "roce-dscp26", job: ompi5},
		{name: "PFC on another priority", hosts: []topology.Host{withDCB(cx4lx("n1", "10.1.4.1"), "dscp", []int{5})}, profile: "roce-dscp26", job: ompi5},
		{name: "profile variable that this NCCL does not know", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "coreweave-ib", change: func(p *profiles.Profile) {
			p.Fabric.LinkLayer = ""
			p.Env = append(p.Env, profiles.Setting{Name: "NCCL_IB_ADDR_FAMILY", Value: "AF_INET6", Why: "test"})
		}, job: nccl("2.18.3")},

		{
			name: "published: HPC-X on RoCE, TC 124", hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, profile: "roce-dscp31", workload: "openfoam", job: ompi5,
			set: []string{"UCX_NET_DEVICES=mlx5_0:1", "UCX_IB_GID_INDEX=3", "UCX_IB_SL=3", "UCX_IB_TRAFFIC_CLASS=124"},
		},
		{name: "published: SR-IOV VF in a VMware guest, GID index 3, MTU 9000, NCCL 2.18", hosts: []topology.Host{vmwareVF("vm1")}, profile: "vmware-sriov", job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.18.3"}}, set: []string{"NCCL_IB_GID_INDEX=3"}},
		{name: "published: vSphere with GPUDirect and Horovod, NCCL 2.8", hosts: []topology.Host{hidden(rootPorts("vm1"))}, profile: "vmware-directpath", workload: "horovod", job: Job{Versions: &Versions{NCCL: "2.8.4", MPI: "openmpi 4.1.4", MPIKind: "openmpi", OpenMPIHasUCX: ptr(true)}}},
		{
			name: "published: 4 nodes of 4 GPUs, two HCAs, index 3, PHB, NCCL 2.18", hosts: []topology.Host{withEth0(rootPorts("n1")), withEth0(rootPorts("n2"))}, profile: "roce-dscp26", workload: "pytorch", job: Job{NoMPI: true, Gloo: true, Versions: &Versions{NCCL: "2.18.3"}},
			set: []string{"NCCL_IB_HCA=mlx5_0,mlx5_1", "NCCL_IB_GID_INDEX=3", "NCCL_NET_GDR_LEVEL=PHB", "NCCL_SOCKET_IFNAME=eth0"},
		},
		{name: "published: TC 106 with fabric bootstrap, NCCL 2.20", hosts: []topology.Host{gpuServer("g1", 1)}, profile: "roce-dscp26", change: func(p *profiles.Profile) { p.Fabric.Bootstrap = "fabric" }, job: nccl("2.20.5"), set: []string{"NCCL_IB_TC=106", "NCCL_IB_GID_INDEX=3", "NCCL_SOCKET_IFNAME=rdma0"}},
	}
}

func TestDecisions(t *testing.T) {
	var b strings.Builder
	for _, d := range decisions() {
		fmt.Fprintf(&b, "== %s\n%s\n", d.name, dump(Compute(d.input(t))))
	}
	golden(t, "../testdata/golden/decisions.txt", b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, d)
	}
}
