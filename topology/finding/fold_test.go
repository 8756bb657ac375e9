package finding

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFold(t *testing.T) {
	trust := func(port int, host string) Finding {
		return Finding{
			ID: "qos.trust", Severity: Error, Host: host, Subject: fmt.Sprintf("mlx5_%d port 1 (eth%d)", port, port),
			Seen: fmt.Sprintf("eth%d trusts pcp", port), Wanted: "trust dscp", Why: "w", Hint: fmt.Sprintf("mlnx_qos -i eth%d --trust=dscp", port),
		}
	}
	one := func(port string) Finding {
		return Finding{ID: "hca.port-down", Severity: Error, Host: "n1", Subject: port, Seen: "state DOWN", Wanted: "ACTIVE", Why: "w", Hint: "h"}
	}
	eight := func(host string) []Finding {
		var out []Finding
		for i := range 8 {
			out = append(out, trust(i, host))
		}
		return out
	}
	mtu := func(port, dev string, mtu int) Finding {
		return Finding{ID: "hca.active-mtu", Severity: Warning, Host: "n1", Subject: port, Seen: fmt.Sprintf("active MTU %d", mtu), Hint: "ip link set " + dev + " mtu 9000"}
	}
	link := func(subject string) Finding {
		return Finding{ID: "pcie.link", Severity: Warning, Host: "n1", Subject: subject, Seen: "PCIe x8"}
	}
	slow := one("mlx5_2:1")
	slow.Seen = "state INIT"
	shared := Finding{ID: "across.state", Severity: Error, Subject: "mlx5_0 port 1 on all 4 hosts", Seen: "DOWN"}
	shared2 := shared
	shared2.Subject = "mlx5_1 port 1 on all 4 hosts"
	for _, tt := range []struct {
		name string
		in   []Finding
		want []string // subject: seen; hint
	}{
		{
			"eight ports of a host", eight("n1"),
			[]string{"8 ports: mlx5_0 port 1 (eth0), mlx5_1 port 1 (eth1), mlx5_2 port 1 (eth2), mlx5_3 port 1 (eth3), mlx5_4 port 1 (eth4), mlx5_5 port 1 (eth5), mlx5_6 port 1 (eth6), mlx5_7 port 1 (eth7): each trusts pcp; mlnx_qos -i eth0 --trust=dscp; and so for each of them"},
		},
		{"two hosts are two", []Finding{trust(0, "n1"), trust(0, "n2")}, []string{"mlx5_0 port 1 (eth0): eth0 trusts pcp; mlnx_qos -i eth0 --trust=dscp", "mlx5_0 port 1 (eth0): eth0 trusts pcp; mlnx_qos -i eth0 --trust=dscp"}},
		{"another thing seen is another finding", []Finding{one("mlx5_0:1"), one("mlx5_1:1"), slow}, []string{"2 ports: mlx5_0:1, mlx5_1:1: state DOWN; h", "mlx5_2:1: state INIT; h"}},
		{
			"the hint names each port's interface",
			[]Finding{mtu("rocep1s0f0:1", "enp1s0f0np0", 1024), mtu("roceP2p1s0f0:1", "enP2p1s0f0np0", 1024), mtu("rocep3s0:1", "ens3", 2048)},
			[]string{"2 ports: rocep1s0f0:1, roceP2p1s0f0:1: active MTU 1024; ip link set enp1s0f0np0 mtu 9000; and so for each of them", "rocep3s0:1: active MTU 2048; ip link set ens3 mtu 9000"},
		},
		{"GPUs and cards", []Finding{link("GPU 0 (0000:19:00.0)"), link("GPU 3 (0000:3e:00.0)"), link("mlx5_0 (0000:18:00.0)"), link("mlx5_1 (0000:3d:00.0)")}, []string{"2 GPUs: GPU 0 (0000:19:00.0), GPU 3 (0000:3e:00.0): PCIe x8; ", "2 devices: mlx5_0 (0000:18:00.0), mlx5_1 (0000:3d:00.0): PCIe x8; "}},
		{"names of two and three digits", []Finding{one("mlx5_1:1"), one("mlx5_10:1")}, []string{"2 ports: mlx5_1:1, mlx5_10:1: state DOWN; h"}},
		{"on all hosts", []Finding{shared, shared2}, []string{"2 ports: mlx5_0 port 1, mlx5_1 port 1 on all 4 hosts: DOWN; "}},
		{"what has no siblings", []Finding{{ID: "gdr.no-peer-memory", Subject: "GPUDirect RDMA", Seen: "a"}, {ID: "gdr.no-peer-memory", Subject: "GPUDirect RDMA", Seen: "b"}}, []string{"GPUDirect RDMA: a; ", "GPUDirect RDMA: b; "}},
		{"several already", []Finding{one("mlx5_0:1, mlx5_1:1"), one("mlx5_2:1, mlx5_3:1")}, []string{"mlx5_0:1, mlx5_1:1: state DOWN; h", "mlx5_2:1, mlx5_3:1: state DOWN; h"}},
		{"files and hosts are not siblings", []Finding{{ID: "across.ssh", Subject: "ssh to n2", Seen: "refused"}, {ID: "across.ssh", Subject: "ssh to n3", Seen: "refused"}}, []string{"ssh to n2: refused; ", "ssh to n3: refused; "}},
		{"variables are not siblings", []Finding{{ID: "value.word", Subject: "NCCL_P2P_LEVEL", Seen: "NCCL_P2P_LEVEL=x"}, {ID: "value.word", Subject: "NCCL_NET_GDR_LEVEL", Seen: "NCCL_NET_GDR_LEVEL=x"}}, []string{"NCCL_P2P_LEVEL: NCCL_P2P_LEVEL=x; ", "NCCL_NET_GDR_LEVEL: NCCL_NET_GDR_LEVEL=x; "}},
	} {
		var got []string
		for _, f := range Fold(tt.in) {
			got = append(got, f.Subject+": "+f.Seen+"; "+f.Hint)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
