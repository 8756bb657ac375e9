package envgen

import (
	"strings"
	"testing"

	"fabrun/topology"
)

// TestFleet: which ports a specialist would take on kinds of machines that whole
// clusters are made of, by what sysfs says of them, with no profile.
func TestFleet(t *testing.T) {
	for _, tt := range []struct {
		file     string
		gpu      bool
		ports    string // NCCL_IB_HCA of GPU machines, else UCX_NET_DEVICES
		out      string // of ports left out: "mlx5_4:1 hca.beside-gpu", …
		contract string
		set      string // other variables, "NAME=" unset
	}{
		{"dgx-a100", true, "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1", "mlx5_4:1 hca.beside-gpu, mlx5_5:1 hca.beside-gpu", "8 rails of InfiniBand (200 Gb/s), GPUDirect on", "NCCL_NET_GDR_LEVEL="},
		{"dgx-b200", true, "=ibp24s0:1,ibp45s0:1,ibp61s0:1,ibp78s0:1,ibp136s0:1,ibp154s0:1,ibp184s0:1,ibp203s0:1", "rocep113s0f0:1 hca.beside-gpu", "8 rails of InfiniBand (400 Gb/s), GPUDirect on", "NCCL_SOCKET_IFNAME==enp113s0f0np0"},
		{"hgx-shared-switch", true, "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1", "mlx5_8:1 hca.beside-gpu, mlx5_11:1 hca.beside-gpu", "8 rails of RoCE v2 (400 Gb/s), GPUDirect on", "NCCL_CROSS_NIC=0"},
		{"hgx-twin-storage", true, "=rocep20s0:1,rocep36s0:1,rocep52s0:1,rocep68s0:1,rocep148s0:1,rocep164s0:1,rocep180s0:1,rocep196s0:1", "rocep113s0:1 hca.beside-gpu, rocep129s0f0:1 hca.beside-gpu", "8 rails of RoCE v2 (400 Gb/s)", "NCCL_SOCKET_IFNAME==eno12399np0"},
		{"azure-hb", false, "mlx5_ib0:1", "mlx5_an0:1 hca.gid", "1 rail of InfiniBand (400 Gb/s)", "UCX_IB_TRAFFIC_CLASS="},
		{"gb200", true, "=mlx5_0:1,mlx5_1:1,mlx5_3:1,mlx5_4:1", "mlx5_20:1 hca.fabric", "4 rails of InfiniBand (400 Gb/s), GPUDirect on", "NCCL_NET_GDR_LEVEL="},
		{"gb300", true, "=mlx5_0:1,mlx5_1:1,mlx5_3:1,mlx5_4:1", "mlx5_20:1 hca.role, mlx5_23:1 hca.role", "4 rails of RoCE v2 (800 Gb/s), GPUDirect on", "NCCL_NET_GDR_LEVEL="},
		{"spark", true, "=roceP2p1s0f0:1,rocep1s0f0:1", "rocep1s0f1:1 hca.port-down", "2 rails of RoCE v2 (200 Gb/s a cable, which shows as 2 devices), GPUDirect off", "NCCL_NET_GDR_LEVEL= NCCL_SOCKET_IFNAME==enP7s7"},
		{"mi300x-thor2", true, "=bnxt_re0:1,bnxt_re1:1,bnxt_re2:1,bnxt_re3:1,bnxt_re4:1,bnxt_re5:1,bnxt_re6:1,bnxt_re7:1", "bnxt_re8:1 hca.beside-gpu", "8 rails of RoCE v2 (400 Gb/s), GPUDirect on", "NCCL_PXN_DISABLE=0 NCCL_DMABUF_ENABLE=1 UCX_IB_ROCE_LOCAL_SUBNET="},
		{"mi355x-pollara", true, "=ionic_0:1,ionic_1:1,ionic_2:1,ionic_3:1,ionic_4:1,ionic_5:1,ionic_6:1,ionic_7:1", "bnxt_re8:1 hca.beside-gpu", "8 rails of RoCE v2 (400 Gb/s), GPUDirect on", "NCCL_NET_PLUGIN=librccl-anp.so NCCL_DMABUF_ENABLE=1"},
		{"pod-vfs", true, "=mlx5_8:1,mlx5_9:1,mlx5_10:1,mlx5_11:1", "mlx5_0:1 hca.device-node", "4 rails of RoCE v2 (400 Gb/s), GPUDirect on", "NCCL_SOCKET_IFNAME==eth0"},
		{"cfd-lustre", false, "mlx5_0:1", "mlx5_1:1 hca.role, mlx5_2:1 hca.fabric", "1 rail of InfiniBand (400 Gb/s)", ""},
		{"ovs-bond", false, "mlx5_2:1", "mlx5_bond_0:1 hca.gid", "1 rail of RoCE v2 (100 Gb/s)", ""},
		{"lingjun", true, "=mlx5_bond_0:1,mlx5_bond_1:1,mlx5_bond_2:1,mlx5_bond_3:1", "", "4 rails of RoCE v2 (400 Gb/s), GPUDirect on", "NCCL_IB_QPS_PER_CONNECTION=2 NCCL_SOCKET_IFNAME==eth0 UCX_IB_ROCE_LOCAL_SUBNET="},
		{"vlan-base", false, "mlx5_0:1", "", "1 rail of RoCE v2 (100 Gb/s)", "UCX_IB_GID_INDEX=7"},
	} {
		h := snapshot(t, "../testdata/hosts/"+tt.file+".snap")
		res := Compute(Input{Hosts: []topology.Host{h}, Job: Job{UsesGPU: ptr(tt.gpu)}})
		name := map[bool]string{true: "NCCL_IB_HCA", false: "UCX_NET_DEVICES"}[tt.gpu]
		i := indexVar(res.Hosts[0].Vars, name)
		if i < 0 || res.Hosts[0].Vars[i].Value != tt.ports {
			t.Errorf("%s: %s is not %s: %+v", tt.file, name, tt.ports, res.Hosts[0].Vars)
			continue
		}
		for _, out := range strings.Split(tt.out, ", ") {
			port, rule, _ := strings.Cut(out, " ")
			said := ""
			for _, r := range res.Hosts[0].Vars[i].Rejected {
				if r.Value == port {
					said = r.Why
				}
			}
			if out != "" && !strings.Contains(said, "["+rule+"]") {
				t.Errorf("%s: %s is left out by %q, want %s", tt.file, port, said, rule)
			}
		}
		if !strings.HasPrefix(res.Contract, tt.contract) {
			t.Errorf("%s: contract %q, want %q", tt.file, res.Contract, tt.contract)
		}
		for _, nv := range strings.Fields(tt.set) {
			name, want, _ := strings.Cut(nv, "=")
			if got, _ := valueOf(res, 0, name); got != want {
				t.Errorf("%s: %s=%q, want %q", tt.file, name, got, want)
			}
		}
		for _, f := range res.Findings {
			if f.Severity == "error" {
				t.Errorf("%s: %s %s: %s", tt.file, f.ID, f.Subject, f.Seen)
			}
		}
	}
}
