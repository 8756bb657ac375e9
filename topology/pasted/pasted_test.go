package pasted

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/health"
)

// ids lists findings as "ID subject", in their order.
func ids(fs []finding.Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, f.ID+" "+f.Subject)
	}
	return strings.Join(out, "; ")
}

func matrixText(m Matrix) string {
	var b strings.Builder
	for i, best := range m.Best {
		g := m.GPUs[i]
		fmt.Fprintf(&b, "%s %s %s cpus=%s numa=%s", best.GPU, best.Level, strings.Join(best.HCAs, ","), g.CPUAffinity, g.NUMA)
		if best.Usable != nil {
			fmt.Fprintf(&b, " usable=%s", strings.Join(best.Usable, ","))
		}
		b.WriteByte('\n')
	}
	for _, l := range m.Links {
		fmt.Fprintf(&b, "%s-%s %s\n", l.A, l.B, l.Type)
	}
	if s := ids(m.Findings); s != "" {
		b.WriteString(s + "\n")
	}
	return b.String()
}

func TestReadMatrix(t *testing.T) {
	const small = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-31\nNIC0\tPIX\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
	for _, tc := range []struct{ name, text, want string }{
		{
			"a prompt before, Windows line ends, a header wrapped by the terminal and a row too", "$ nvidia-smi topo -m\r\n        GPU0    GPU1    NIC0    \r\nNIC1    CPU Affinity    NUMA Affinity\r\n" +
				"GPU0     X      NV12    PIX     \r\nSYS     0-31    0\r\nGPU1    NV12     X      SYS     PIX     32-63   1\r\nNIC0    PIX     SYS      X      SYS\r\nNIC1    SYS     PIX     SYS      X\r\n\r\n" +
				"Legend:\r\n\r\n  X    = Self\r\nNIC Legend:\r\n\r\n  NIC0: mlx5_0\r\n  NIC1: mlx5_1\r\n",
			"GPU0 PIX mlx5_0 cpus=0-31 numa=0\nGPU1 PIX mlx5_1 cpus=32-63 numa=1\nGPU0-GPU1 NV12\n",
		},
		{
			"an old driver: devices by name, SOC for SYS", "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\nGPU0\t X \tPIX\tPHB\tSOC\t0-9,20-29\nGPU1\tPIX\t X \tPHB\tSOC\t0-9,20-29\nmlx5_0\tPHB\tPHB\t X \tSOC\t\nmlx5_1\tSOC\tSOC\tSOC\t X \t\n\n" +
				"Legend:\n\n  X   = Self\n  SOC  = Connection traversing PCIe as well as the SMP link between CPU sockets(e.g. QPI)\n",
			"GPU0 PHB mlx5_0 cpus=0-9,20-29 numa=\nGPU1 PHB mlx5_0 cpus=0-9,20-29 numa=\nGPU0-GPU1 PIX\n",
		},
		{
			"cut in a row: read from the other half, and said", "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPXB\tSYS\t0-31\t0\nGPU1\tNV4\t X \tSYS\tPXB\t32-63\t1\nNIC0\tPXB\tSY",
			"GPU0 PXB NIC0 cpus=0-31 numa=0\nGPU1 PXB NIC1 cpus=32-63 numa=1\nGPU0-GPU1 NV4\npaste.cut NIC0; paste.cut NIC1; paste.no-legend NIC legend\n",
		},
		{"no NIC at all", "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-31\tN/A\nGPU1\tNV4\t X \t32-63\tN/A\n", "GPU0   cpus=0-31 numa=\nGPU1   cpus=32-63 numa=\nGPU0-GPU1 NV4\n"},
		{"every line prefixed by a parallel shell", "n01: " + strings.ReplaceAll(strings.TrimSuffix(small, "\n"), "\n", "\nn01: ") + "\n", "GPU0 PIX mlx5_0 cpus=0-31 numa=\n"},
		{"quoted in a mail", "> " + strings.ReplaceAll(small, "\n", "\n> "), "GPU0 PIX mlx5_0 cpus=0-31 numa=\n"},
		{"a second matrix is said and not mixed in", "node1\n" + small + "\nnode2\n" + strings.ReplaceAll(small, "PIX", "SYS"), "GPU0 PIX mlx5_0 cpus=0-31 numa=\npaste.second line 11\n"},
		{"colours whose escape character was lost", "\t[4mGPU0\tNIC0\tCPU Affinity[0m\nGPU0\t X \tPIX\t0-31\nNIC0\tPIX\t X \nNIC Legend:\n  NIC0: mlx5_0\n", "GPU0 PIX mlx5_0 cpus=0-31 numa=\n"},
		{"an HCA that a listing of the same paste shows down", strings.Replace(small, "0-31", "0-31", 1) + "\nlink mlx5_0/1 state DOWN physical_state DISABLED netdev ens1\n", "GPU0 PIX mlx5_0 cpus=0-31 numa= usable=\nhca.port-down GPU0\n"},
		{"a row that was changed by hand", "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tPIX\tSYS\nGPU1\tPHB\tX\tSYS\nNIC0\tSYS\tSYS\tX\nNIC0: mlx5_0\n", "GPU0 SYS mlx5_0 cpus= numa=\nGPU1 SYS mlx5_0 cpus= numa=\nGPU0-GPU1 PIX\npaste.asymmetric GPU0; paste.asymmetric GPU1; gdr.far-gpu GPU0, GPU1\n"},
		{"a line in the middle that is no row", "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tPIX\tPIX\nxxxx connection lost xxxx\nGPU1\tPIX\tX\tPIX\nNIC0\tPIX\tPIX\tX\nNIC0: mlx5_0\n", "GPU0 PIX mlx5_0 cpus= numa=\nGPU1 PIX mlx5_0 cpus= numa=\nGPU0-GPU1 PIX\npaste.unread line 3\n"},
		{
			"rocm-smi: the link types, not weights and hops", "=== Weight between two GPUs ===\n       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n=== Link Type between two GPUs ===\n       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 0\n=== End of ROCm SMI Log ===\n",
			"GPU0   cpus= numa=\nGPU1   cpus= numa=\nGPU0-GPU1 XGMI\n",
		},
		{"something else", "hello\nworld\n", "paste.not-this topology matrix\n"},
		{"nothing", "", "paste.not-this topology matrix\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, matrixText(ReadMatrix(tc.text))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// judged is what the judge of ports says of a fragment, and what was not read.
func judged(h topology.Host, unread []finding.Finding) []finding.Finding {
	return append(health.Ports(&h, nil, health.Expect{AnyQoS: true}), unread...)
}

func gidsText(g GIDs) string {
	var b strings.Builder
	for _, p := range g.Ports {
		pick := "none"
		index, why := health.GIDIndex(topology.Port{GIDs: p.GIDs})
		if index != nil {
			pick = fmt.Sprint(*index)
		}
		fmt.Fprintf(&b, "%s/%d %s: %s\n", p.HCA, p.Port, pick, why)
	}
	if s := ids(judged(g.Fragment(), g.Findings)); s != "" {
		b.WriteString(s + "\n")
	}
	return b.String()
}

func TestReadGIDs(t *testing.T) {
	const head = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
	const ll1, ll2 = "mlx5_0\t1\t0\tfe80:0000:0000:0000:0ac0:ebff:fe3d:ca54\t\t\tv1\tens1\n", "mlx5_0\t1\t1\tfe80:0000:0000:0000:0ac0:ebff:fe3d:ca54\t\t\tv2\tens1\n"
	for _, tc := range []struct{ name, text, want string }{
		{
			"global IPv6 where there is no IPv4; a link-local IPv4 is none", "[sudo] password for me: \r\n" + head + ll1 + "mlx5_0\t1\t1\tfd02:0000:0000:0000:0ac0:ebff:fe3d:ca54\t\t\tv2\tens1\r\nmlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:a9fe:0101\t169.254.1.1  \tv2\tens1\r\n",
			"mlx5_0/1 1: RoCE v2, global IPv6 fd02::ac0:ebff:fe3d:ca54, no IPv4 one is there on ens1\n",
		},
		{"IPv4 before IPv6 whatever the order", head + "mlx5_0\t1\t1\tfd02:0000:0000:0000:0000:0000:0000:0001\t\t\tv2\tens1\nmlx5_0\t1\t5\t0000:0000:0000:0000:0000:ffff:0a02:0001\t10.2.0.1\tv2\tens1\n", "mlx5_0/1 5: RoCE v2, routable IPv4 10.2.0.1 on ens1\n"},
		{"the port's own netdev before a VLAN's", head + ll1 + ll2 + "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a01:0001\t10.1.0.1\tv2\tens1.100\nmlx5_0\t1\t5\t0000:0000:0000:0000:0000:ffff:0a02:0001\t10.2.0.1\tv2\tens1\n", "mlx5_0/1 5: RoCE v2, routable IPv4 10.2.0.1 on ens1\n"},
		{"a VLAN's address where there is no other", head + ll1 + ll2 + "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a01:0001\t10.1.0.1\tv2\tens1.100\n", "mlx5_0/1 3: RoCE v2, routable IPv4 10.1.0.1 on ens1.100\n"},
		{"no header, no IPv4 column", "mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a02:0001 v2 ens1\n", "mlx5_0/1 3: RoCE v2, routable IPv4 10.2.0.1 on ens1\n"},
		{"no version column: what is RoCE v2 cannot be told", "mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a02:0001\n", "mlx5_0/1 none: the table does not say which entries are RoCE v2\n"},
		{"v1 alone", head + ll1, "mlx5_0/1 none: RoCE v1 entries only, which no router forwards\nhca.gid mlx5_0 port 1 (ens1)\n"},
		{"ibv_devinfo -v", "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0ac0:ebff:fe3d:ca54, RoCE v1\n\t\t\tGID[  3]:\t\t::ffff:10.110.0.33, RoCE v2\n", "mlx5_0/1 3: RoCE v2, routable IPv4 10.110.0.33\n"},
		{
			"the footer counts more than there is", head + ll1 + ll2 + "mlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:0a02\nn_gids_found=4\n",
			"mlx5_0/1 none: only link-local RoCE v2 entries: ens1 has no routable IP address\nhca.gid mlx5_0 port 1 (ens1); paste.cut GID table; paste.unread line 5\n",
		},
		{"columns that contradict each other are not believed", "mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a02:0001 10.9.9.9 v2 ens1\nn_gids_found=1\n", "hca.gid GID table; paste.unread line 1\n"},
		{
			"indexes that differ between HCAs", head + "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a02:0001\t10.2.0.1\tv2\tens1\nbnxt_re0\t1\t1\t0000:0000:0000:0000:0000:ffff:0a02:0002\t10.2.0.2\tv2\tens2\n",
			"mlx5_0/1 3: RoCE v2, routable IPv4 10.2.0.1 on ens1\nbnxt_re0/1 1: RoCE v2, routable IPv4 10.2.0.2 on ens2\ngid.no-common GID index\n",
		},
		{"an empty table in a pod", head + "n_gids_found=0\n", "hca.gid GID table\n"},
		{"something else", "hello\n", "paste.not-this GID table; paste.unread line 1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, gidsText(ReadGIDs(tc.text))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func qosText(q QoS) string {
	var b strings.Builder
	for i := range q.Devices {
		d := &q.Devices[i]
		pfc := "?"
		if d.DCB.PFC != nil {
			pfc = fmt.Sprint(d.DCB.PFC)
		}
		fmt.Fprintf(&b, "%s trust=%s pfc=%s dscp=%v", d.Netdev, d.DCB.Trust, pfc, d.DCB.LosslessDSCPs())
		for _, part := range []struct {
			name string
			v    []int
		}{{"tc", d.DCB.PrioToTC}, {"bw", d.DCB.TCBandwidth}, {"buffer", d.DCB.PrioToBuffer}, {"bytes", d.DCB.BufferBytes}} {
			if part.v != nil {
				fmt.Fprintf(&b, " %s=%v", part.name, part.v)
			}
		}
		b.WriteByte('\n')
	}
	if s := ids(judged(q.Fragment(), q.Findings)); s != "" {
		b.WriteString(s + "\n")
	}
	return b.String()
}

func TestReadQoS(t *testing.T) {
	const block = "DCBX mode: OS controlled\nPriority trust state: dscp\ndscp2prio mapping:\n\tprio:0 dscp:07,06,05,04,03,02,01,00,\n\tprio:3 dscp:26,\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0   \n"
	for _, tc := range []struct{ name, text, want string }{
		{
			"plain dcb, five commands about one netdev", "# dcb pfc show dev ens1\npfc-cap 8 macsec-bypass off delay 0 \nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off \n# dcb app show dev ens1\ndscp-prio AF31:3 CS6:6 \ndefault-prio 0\n" +
				"# dcb ets show dev ens1\nwilling off ets-cap 8 cbs off \ntc-bw 0:0 1:0 2:0 3:50 4:0 5:0 6:0 7:0 \ntc-tsa 0:strict 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict \nprio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 \n" +
				"# dcb buffer show dev ens1\nprio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 \nbuffer-size 0:130Kb 1:130944b 2:0b 3:0b 4:0b 5:0b 6:0b 7:0b \ntotal-size 262016b \n# dcb dcbx show dev ens1\nhost ieee \n",
			"ens1 trust=dscp pfc=[3] dscp=[26] tc=[0 1 2 3 4 5 6 7] bw=[0 0 0 50 0 0 0 0] buffer=[0 0 0 1 0 0 0 0] bytes=[133120 130944 0 0 0 0 0 0]\n",
		},
		{"dcb -jp, names and numbers", "[ {\n        \"pfc_cap\": 8,\n        \"prio_pfc\": [ false,false,false,true,false,false,false,false ]\n    } ]\n[ {\"dscp_prio\": [ [ \"AF31\",3 ],[ 48,6 ] ]} ]\n[{\"willing\":true,\"prio_tc\":[0,1,2,3,4,5,6,7]}]", " trust=dscp pfc=[3] dscp=[26] tc=[0 1 2 3 4 5 6 7]\nqos.dcbx the netdev\n"},
		{"dcb -j of two netdevs: the same key again is another netdev", "$ dcb -j pfc show dev a1\n[{\"prio_pfc\":[0,0,0,1,0,0,0,0]}]\n$ dcb -j pfc show dev a2\n[{\"prio_pfc\":[0,0,0,0,0,0,0,0]}]\n", "a1 trust= pfc=[3] dscp=[]\na2 trust= pfc=[] dscp=[]\nqos.netdevs-differ a2; qos.pfc a2\n"},
		{"mlnx_qos of two netdevs, each after its command", "mlnx_qos -i ens1\n" + block + "\n[root@a ~]# mlnx_qos -i ens2\n" + block, "ens1 trust=dscp pfc=[3] dscp=[26]\nens2 trust=dscp pfc=[3] dscp=[26]\n"},
		{"two blocks without names", block + block, " trust=dscp pfc=[3] dscp=[26]\n trust=dscp pfc=[3] dscp=[26]\n"},
		{"one DSCP moved away: the lossless priority is out of reach", "Priority trust state: dscp\n\tprio:0 dscp:26,\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0\n", " trust=dscp pfc=[3] dscp=[]\nqos.dscp-map the netdev\n"},
		{"a Global tclass that leads to a lossy priority", block + "Global tclass=24\n", " trust=dscp pfc=[3] dscp=[26]\nqos.global-tclass the netdev\n"},
		{"a row with too few values is not guessed", "Priority trust state: dscp\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1\n", " trust=dscp pfc=? dscp=[]\npaste.unread line 4\n"},
		{"something else", "dcb: unknown\nhello\n", "paste.not-this QoS configuration; paste.unread lines 1 to 2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, qosText(ReadQoS(tc.text))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func portsText(p Ports) string {
	var b strings.Builder
	for i := range p.Ports {
		x := &p.Ports[i]
		up := "?"
		if u := x.Up(); u != nil {
			up = fmt.Sprint(*u)
		}
		rate := "?"
		if x.RateGbps != nil {
			rate = fmt.Sprint(*x.RateGbps)
		}
		fmt.Fprintf(&b, "%s/%d %s up=%s %s %s %s\n", x.HCA, x.Port, x.State, up, x.LinkLayer, rate, x.Netdev)
	}
	if s := ids(judged(p.Fragment(), p.Findings)); s != "" {
		b.WriteString(s + "\n")
	}
	return b.String()
}

func TestReadPorts(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{
			"ibdev2netdev -v: the port's own state counts", "0000:3b:00.0 mlx5_0 (MT4123 - MCX653106A-ECAT) ConnectX-6 VPI adapter card, H100Gb/s (HDR100, EDR IB and 100GbE) fw 20.31.1014 port 1 (ACTIVE) ==> ib0 (Down)\n0000:3b:00.1 mlx5_1 (MT4123 - X) fw 20.31.1014 port 1 (DOWN  ) ==> ens1f1 (Down)\nmlx5_2 port 1 ==>  (Down)\n",
			"mlx5_0/1 ACTIVE up=true InfiniBand ? ib0\nmlx5_1/1 DOWN up=false Ethernet ? ens1f1\nmlx5_2/1 DOWN up=false  ? \nhca.port-down mlx5_1 port 1; hca.port-down mlx5_2 port 1\n",
		},
		{"ibstatus", "Infiniband device 'mlx5_0' port 1 status:\n\tdefault gid:\t fe80:0000:0000:0000:506b:4b03:00f9:f8ea\n\tbase lid:\t 0x3b\n\tsm lid:\t\t 0xa\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 100 Gb/sec (4X EDR)\n\tlink_layer:\t InfiniBand\n\n", "mlx5_0/1 ACTIVE up=true InfiniBand 100 \n"},
		{"rdma link, new and old", "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state ACTIVE physical_state LINK_UP \n1/1: rxe0/1: state ACTIVE physical_state LINK_UP netdev eth0 \n", "mlx5_0/1 ACTIVE up=true InfiniBand ? \nrxe0/1 ACTIVE up=true Ethernet ? eth0\n"},
		{"rdma -j link", "$ rdma -j link\n[{\"ifindex\":0,\"ifname\":\"mlx5_0\",\"port\":1,\"state\":\"ACTIVE\",\"physical_state\":\"LINK_UP\",\"netdev\":\"ens1\",\"netdev_index\":2}]\n", "mlx5_0/1 ACTIVE up=true Ethernet ? ens1\n"},
		{
			"ibv_devinfo -v: rate from width and speed, flags and limits are no gaps", "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tmax_mr_size:\t\t\t0xffffffffffffffff\n\t\t\t\t\tBAD_PKEY_CNTR\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t25.0 Gbps (32)\n\t\t\tlink_layer:\t\tEthernet\n",
			"mlx5_0/1 ACTIVE up=true Ethernet 100 \nhca.active-mtu mlx5_0 port 1\n",
		},
		{"ibstat of one port names no device but in its command", "$ ibstat mlx5_0 1\nState: Active\nPhysical state: LinkUp\nRate: 200\nLink layer: Ethernet\n", "mlx5_0/1 ACTIVE up=true Ethernet 200 \n"},
		{"two tools complete each other", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: Ethernet\nCA 'mlx5_1'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n\t\tLink layer: Ethernet\n$ ibdev2netdev\nmlx5_0 port 1 ==> enp1s0 (Up)\nmlx5_1 port 1 ==> eth0 (Up)\n", "mlx5_0/1 ACTIVE up=true Ethernet 400 enp1s0\nmlx5_1/1 ACTIVE up=true Ethernet 100 eth0\nhca.port-slow mlx5_1 port 1\n"},
		{"a state that nobody knows", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Confused\n", "mlx5_0/1  up=?  ? \npaste.unread line 3\n"},
		{"no device", "No IB devices found\n", "port.none port listing\n"},
		{"something else", "    mlx5_0              b8cef60300fc4012\n", "paste.not-this port listing; paste.unread line 1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, portsText(ReadPorts(tc.text))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestDSCP(t *testing.T) {
	for in, want := range map[string]int{"26": 26, "0x1a": 26, "AF31": 26, "af31": 26, "CS6": 48, "08": 8, "EF": 46, "64": -1, "-1": -1, "": -1, "x": -1} {
		if got, ok := DSCP(in); ok != (want >= 0) || ok && got != want {
			t.Errorf("DSCP(%q) = %d, %v, want %d", in, got, ok, want)
		}
	}
}

// A paste of a thousand bad lines is bounded in what is said of it.
func TestUnreadIsBounded(t *testing.T) {
	var b strings.Builder
	for range 1000 {
		b.WriteString("mlx5_0 1 1 bad-gid v2\nfine\n")
	}
	if g := ReadGIDs(b.String()); len(g.Findings) > maxLineFindings+3 {
		t.Errorf("%d findings", len(g.Findings))
	}
}

// Whatever the text: no panic, the same answer twice, bounded findings, picks
// that are in their table.
func fuzz(f *testing.F, seeds []string, read func(string) string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if a, b := read(text), read(text); a != b {
			t.Errorf("two readings differ:\n%s\n%s", a, b)
		}
	})
}

func FuzzMatrix(f *testing.F) {
	fuzz(f, []string{
		"\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-31\t0\nNIC0\tPIX\t X \nNIC0: mlx5_0\n", "GPU0 GPU1 CPU AffinityNUMA Affinity\nGPU0 X SYS 0-23,48-710\nGPU1 SYS X 0-10\n",
		"| CPU Affinity | | GPU0 | mlx5_0 |\n|--|--|--|--|\n| 0-1 | GPU0 | X | SYS |\n| | mlx5_0 | SYS | X |\n", "=== Link Type between two GPUs ===\nGPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n",
	}, func(s string) string { return matrixText(ReadMatrix(s)) })
}

func FuzzGIDs(f *testing.F) {
	fuzz(f, []string{
		"DEV\tPORT\tINDEX\tGID\nmlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a6e:0021\t10.110.0.33\tv2\teth05\nn_gids_found=1\n", "rocep1s0f0 1 0 fe80:0000:0000:0000:xxxx:xxxx:xxxx:xxxx v1 e\n",
		"hca_id:\tmlx5_0\nport:\t1\nGID[  0]:\t\tfe80::1, RoCE v2\n", "/sys/class/infiniband/mlx5_0/ports/1/gids/3: fe80::1\n",
	}, func(s string) string {
		g := ReadGIDs(s)
		for _, p := range g.Ports {
			index, _ := health.GIDIndex(topology.Port{GIDs: p.GIDs})
			if index == nil {
				continue
			}
			ok := false
			for _, e := range p.GIDs {
				ok = ok || e.Index == *index && e.Type == "RoCE v2" && health.Routable(e.Addr)
			}
			if !ok {
				panic("the pick is no routable RoCE v2 entry of its table")
			}
		}
		return gidsText(g)
	})
}

func FuzzQoS(f *testing.F) {
	fuzz(f, []string{
		"Priority trust state: dscp\nprio:3 dscp:26,\nPFC configuration:\n\tpriority 0 1 2 3 4 5 6 7\n\tenabled 0 0 0 1 0 0 0 0\ntc: 0 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  0\n", "prio-pfc 0:on 1:off\ndscp-prio AF31:3\nbuffer-size 0:1Kb\n",
		"[{\"prio_pfc\":[false,true],\"dscp_prio\":[[26,3]],\"x\":{\"order\":[\"dscp\"]}}]", "# dcb pfc show dev e1\nGlobal tclass=106\ncma_roce_tos: 160\n",
	}, func(s string) string { return qosText(ReadQoS(s)) })
}

func FuzzPorts(f *testing.F) {
	fuzz(f, []string{
		"CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n", "mlx5_0 port 1 ==> ens1 (Up)\n", "0000:3b:00.0 mlx5_0 (X) fw 1.2 port 1 (ACTIVE) ==> ib0 (Up)\n", "link mlx5_0/1 state ACTIVE netdev e\n",
		"hca_id: a\nport: 1\nstate: PORT_ACTIVE (4)\nactive_speed: 25.0 Gbps (32)\nactive_width: 4X (2)\n", "[{\"ifname\":\"a\",\"port\":1,\"state\":\"ACTIVE\"}]", "Infiniband device 'a' port 1 status:\n\tstate: 4: ACTIVE\n",
	}, func(s string) string { return portsText(ReadPorts(s)) })
}
