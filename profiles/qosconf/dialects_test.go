package qosconf

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology/finding"

	"github.com/google/go-cmp/cmp"
)

// The outputs below are written for these tests in the form that each command
// prints, with values of a small made-up fabric.

const sonicStatus = "admin@leaf1:~$ show interfaces status\n" +
	"  Interface            Lanes    Speed    MTU    FEC    Alias    Vlan    Oper    Admin             Type    Asym PFC\n" +
	"-----------  ---------------  -------  -----  -----  -------  ------  ------  -------  ---------------  ----------\n" +
	"  Ethernet0      25,26,27,28     400G   9100     rs    etp1a  routed      up       up  QSFP28 or later         off\n" +
	"  Ethernet4      29,30,31,32     400G   9100    N/A    etp1b   trunk    down       up              N/A         off\n"

const sonicQoS = "admin@leaf1:~$ show pfc priority\n\nInterface    Lossless priorities\n-----------  ---------------------\nEthernet0    3,4\nEthernet4    N/A\n\n" +
	"admin@leaf1:~$ show ecn\nProfile: AZURE_LOSSLESS\n-----------------------  -------\nred_max_threshold        2097152\necn                      ecn_all\ngreen_min_threshold      1048576\n" +
	"wred_green_enable        true\ngreen_max_threshold      2097152\ngreen_drop_probability   5\n-----------------------  -------\n"

const sonicCounters = "admin@leaf1:~$ show pfc counters\n" +
	"    Port Rx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7\n-----------  ------  ------  ------  ------  ------  ------  ------  ------\n" +
	"  Ethernet0       0       0       0   9,500       0       0       0       0\n  Ethernet4       0       0       0      12       0       0       0       0\n\n" +
	"    Port Tx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7\n-----------  ------  ------  ------  ------  ------  ------  ------  ------\n" +
	"  Ethernet0       0       7       0       0       0       0       0       0\n\n" +
	"admin@leaf1:~$ show queue counters Ethernet0\n     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes\n---------  -----  --------------  ---------------  -----------  ------------\n" +
	"Ethernet0    UC3           1,000          100,000           44         4,400\nEthernet0    MC3               0                0            9           900\n"

const sonicConfig = `{
    "DSCP_TO_TC_MAP": {"AZURE": {"3": "3", "4": "4", "48": "6", "0": "1"}},
    "PORT": {"Ethernet0": {"admin_status": "up", "alias": "etp1", "mtu": "9100", "speed": "400000"}},
    "PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "[DSCP_TO_TC_MAP|AZURE]", "pfc_enable": "3,4"}},
    "QUEUE": {"Ethernet0|3-4": {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}},
    "WRED_PROFILE": {"AZURE_LOSSLESS": {"ecn": "ecn_all", "green_min_threshold": "1048576", "green_max_threshold": "2097152"}},
    "PFC_WD": {"Ethernet0": {"action": "drop", "detection_time": "200", "restoration_time": "200"}}
}
`

const nvueRoCE = "cumulus@leaf01:mgmt:~$ nv show qos roce\n" +
	"                    operational  applied\n------------------  -----------  --------\nenable                           on\nmode                lossless     lossless\n" +
	"congestion-control\n  congestion-mode   ECN          ECN\n  enabled-tc        0,3          0,3\n  max-threshold     1.43 MB      1.43 MB\n  min-threshold     146.48 KB    146.48 KB\n  probability       100\n" +
	"pfc\n  pfc-priority      3            3\n  rx-enabled        yes\n  tx-enabled        yes\ntrust\n  trust-mode        pcp,dscp     pcp,dscp\n\n" +
	"RoCE PCP/DSCP->SP mapping configurations\n===========================================\n       pcp  dscp                     switch-prio\n    -  ---  -----------------------  -----------\n" +
	"    0  0    0,1,2,3,4,5,6,7          0\n    3  3    24,25,26,27,28,29,30,31  3\n    6  6    48,49,50,51,52,53,54,55  6\n\n" +
	"RoCE SP->TC mapping and ETS configurations\n=============================================\n       switch-prio  traffic-class  scheduler-weight\n    -  -----------  -------------  ----------------\n" +
	"    0  0            0              DWRR-50%\n    3  3            3              DWRR-50%\n    6  6            6              strict-priority\n\n" +
	"RoCE pool config\n===================\n       name                   mode     size  switch-priorities  traffic-class\n    -  ---------------------  -------  ----  -----------------  -------------\n" +
	"    0  lossy-default-ingress  Dynamic  50%   0,1,2,4,5,6,7      -\n    1  roce-reserved-ingress  Dynamic  50%   3                  -\n    3  roce-reserved-egress   Dynamic  inf   -                  3\n"

const nvuePorts = "cumulus@leaf01:mgmt:~$ nv show interface\n" +
	"Interface  Admin Status  Oper Status  Speed  MTU    Type      Remote Host  Remote Port  Summary\n---------  ------------  -----------  -----  -----  --------  -----------  -----------  -------------\n" +
	"eth0       up            up           1G     1500   eth       oob          swp2         IP Address: 192.0.2.9/24\nswp1       up            up           400G   9216   swp       gpu01        ens1\nswp2       up            down                9216   swp\n"

const nvueCounters = "cumulus@leaf01:mgmt:~$ nv show interface swp16 qos roce counters\n" +
	"                               operational   applied\n-----------------------------  ------------  -------\nrx-stats\n  rx-pfc-stats\n    pause-duration             0\n    pause-packets              77\n" +
	"  rx-roce-stats\n    no-buffer-discard          0\ntx-stats\n  tx-ecn-stats\n    ecn-marked-packets         1234\n  tx-pfc-stats\n    pause-packets              5\n  tx-roce-stats\n    unicast-no-buffer-discard  3\n"

const nxosPFCTable = "leaf1# show interface priority-flow-control\nslot  1\n=======\n\n" +
	"============================================================\nPort               Mode Oper(VL bmap)  RxPPP      TxPPP\n============================================================\n\n" +
	"Ethernet1/1        On   On  (8)        4885       3709920\nEthernet1/2        Auto Off           0          0\nEth1/3             On   On(18)         0          0\nEthernet1/4        On   On  (0)        0          1\n"

const nxosPolicy = "class-map type qos match-all ROCE\n  match dscp 24\nclass-map type qos match-any CNP\n  match dscp 48\n" +
	"policy-map type qos INGRESS\n  class ROCE\n    set qos-group 3\n  class CNP\n    set qos-group 7\n  class class-default\n    set qos-group 0\n" +
	"policy-map type network-qos LOSSLESS\n  class type network-qos c-8q-nq3\n    pause pfc-cos 3\n    mtu 9216\n" +
	"policy-map type queuing EGRESS\n  class type queuing c-out-8q-q7\n    priority level 1\n  class type queuing c-out-8q-q3\n    bandwidth remaining percent 60\n" +
	"    random-detect minimum-threshold 150 kbytes maximum-threshold 3000 kbytes drop-probability 7 weight 0 ecn\n  class type queuing c-out-8q-q-default\n    bandwidth remaining percent 40\n" +
	"system qos\n  service-policy type network-qos LOSSLESS\n  service-policy type queuing output EGRESS\n" +
	"interface Ethernet1/1\n  priority-flow-control mode on\n  service-policy type qos input INGRESS\n  mtu 9216\n"

const nxosQueue = "leaf1# show queuing interface ethernet 1/1\nslot  1\n=======\n\nEgress Queuing for Ethernet1/1 [System]\n" +
	"------------------------------------------------------------------------------\nQoS-Group# Bandwidth% PrioLevel                Shape                   QLimit\n                                   Min          Max        Units\n------------------------------------------------------------------------------\n" +
	"      7             -         1           -            -     -            9(D)\n      3            60         -           -            -     -            9(D)\n" +
	"+-------------------------------------------------------------+\n|                         QOS GROUP 3                         |\n+-------------------------------------------------------------+\n|                           |  Unicast       |Multicast       |\n+-------------------------------------------------------------+\n" +
	"|                   Tx Pkts |           1000|              0|\n| WRED/AFD & Tail Drop Pkts |             21|              1|\n+-------------------------------------------------------------+\n" +
	"PFC Statistics\n------------------------------------------------------------------------------\nTxPPP:                   12,   RxPPP:                  340\n"

const junosShow = "admin@qfx> show class-of-service classifier name ROCE\nClassifier: ROCE, Code point type: dscp, Index: 9110\n  Code point         Forwarding class                    Loss priority\n" +
	"  000000             best-effort                         low\n  011010             NO-LOSS                             low\n  110000             CNP                                 low\n\n" +
	"admin@qfx> show class-of-service forwarding-class\nForwarding class                       ID                      Queue           Policing priority      No-Loss     PFC priority\n" +
	"  best-effort                           0                       0                   normal            Disabled\n  NO-LOSS                               3                       4                   normal             Enabled        3\n  CNP                                   6                       6                   normal            Disabled        6\n\n" +
	"{master:0}\nadmin@qfx> show class-of-service congestion-notification\nType: Input, Name: pfc-roce, Index: 7200\nPriority     PFC\n  000          Disabled\n  011          Enabled\n  111          Disabled\n\n" +
	"admin@qfx> show interfaces terse\nInterface               Admin Link Proto    Local                 Remote\net-0/0/0                up    up\net-0/0/0.0              up    up   inet     192.0.2.1/31\net-0/0/1                up    down\nem0                     up    up\n"

const junosConf = "class-of-service {\n    classifiers {\n        dscp ROCE {\n            forwarding-class NO-LOSS {\n                loss-priority low code-points [ 011010 011000 ];\n            }\n            forwarding-class CNP {\n                loss-priority low code-points 110000;\n            }\n        }\n    }\n" +
	"    drop-profiles {\n        DP {\n            interpolate {\n                fill-level [ 55 90 ];\n                drop-probability [ 0 100 ];\n            }\n        }\n    }\n" +
	"    forwarding-classes {\n        class NO-LOSS queue-num 4 no-loss pfc-priority 3;\n        class CNP queue-num 6 pfc-priority 6;\n    }\n    congestion-notification-profile {\n        CNP-PROFILE {\n            input {\n                dscp {\n                    code-point 011010 {\n                        pfc;\n                    }\n                }\n            }\n        }\n    }\n" +
	"    interfaces {\n        et-0/0/0 {\n            unit 0 {\n                classifiers {\n                    dscp ROCE;\n                }\n            }\n        }\n    }\n    schedulers {\n        S {\n            explicit-congestion-notification;\n        }\n    }\n}\n"

const junosQueues = "Physical interface: et-0/0/0, Enabled, Physical link is Up\n  Interface index: 649, SNMP ifIndex: 505\nForwarding classes: 12 supported, 5 in use\nQueue: 4, Forwarding classes: NO-LOSS\n  Queued:\n    Packets              :                     0                     0 pps\n  Transmitted:\n    Packets              :                   100                     0 pps\n    Tail-dropped packets :                     6                     0 pps\n    ECN-CE packets       :                   123                     0 pps\n"

const onyxRoCEText = "leaf [standalone: master] # show roce\n\nRoCE mode      : lossless\nLLDP           : enabled\nPort trust mode: L3\n\nApplication TLV:\n  Selector: udp\n  Protocol: 4791\n  Priority: 3\n\n" +
	"Port congestion-control:\n  Mode    : ecn, absolute\n  Min (KB): 150\n  Max (KB): 1500\n\nPFC              : enabled\nswitch-priority 3: enabled\n\nRoCE used TCs:\n  ----------------------------------------------\n" +
	"  Switch-Priority   TC     Application   ETS\n  ----------------------------------------------\n  3                 3      RoCE          WRR 50%\n  6                 6      CNP           Strict\n"

const nxosDetailText = "leaf1# show interface priority-flow-control detail\n\nEthernet1/51:\n    Admin Mode: On\n    Oper Mode: On\n    VL bitmap: (8)\n    Total Rx PFC Frames: 7\n    Total Tx PFC Frames: 150\n" +
	"    ------------------------------------------------------------------\n        |  Priority0  |  Priority1  |  Priority2  |  Priority3  |  Priority4  |  Priority5  |  Priority6  |  Priority7  |\n    ------------------------------------------------------------------\n" +
	"    Rx  |0            |0            |0            |7            |0            |0            |0            |0\n    Tx  |0            |0            |0            |150          |0            |0            |0            |0\n"

const sonicStormText = "admin@leaf1:~$ show pfcwd stats\n      QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP    TX LAST OK/DROP    RX LAST OK/DROP\n-----------  -----------  -------------------------  ------------  ------------  -----------------  -----------------\n" +
	"Ethernet0:3      stormed                        1/0       100/300       100/300              0/200              0/200\nEthernet4:3  operational                        0/0           0/0           0/0                0/0                0/0\n"

func plan(t testing.TB, change func(*profiles.Profile)) *Plan {
	t.Helper()
	p := dscp26()
	change(&p)
	made, err := FromProfile(p)
	if err != nil {
		t.Fatal(err)
	}
	return &made
}

// twoClasses is the plan of SONiC's default maps: DSCP 3 and 4, both lossless.
func twoClasses(p *profiles.Profile) {
	p.Fabric.QoS.RDMA = profiles.Class{DSCP: 3, ECN: 2, Priority: ptr(3)}
	p.Fabric.QoS.PFC = []int{3, 4}
	p.Fabric.QoS.ECNMinKB, p.Fabric.QoS.ECNMaxKB, p.Fabric.QoS.Pool = ptr(1048), ptr(2097), nil
}

// cisco is the plan of Cisco's RoCE guide: DSCP 24, CNP 48 in the class of priority 7.
func cisco(p *profiles.Profile) {
	p.Fabric.QoS.RDMA.DSCP = 24
	p.Fabric.QoS.CNP.Priority = ptr(7)
	p.Fabric.QoS.ECNMaxKB, p.Fabric.QoS.Pool = ptr(3000), nil
}

// outcomeOf is what a text comes to against a plan: the dialect, the verdict, the
// findings that are no notes, and what was not compared.
func outcomeOf(text string, p *Plan) string {
	sw := ReadSwitch(text)
	c := Compare(sw, p)
	var not []string
	for _, a := range c.Aspects {
		if a.Of == "" {
			not = append(not, a.What)
		}
	}
	return fmt.Sprintf("%s %s [%s] not compared: %s; unread %d", sw.OS, c.Verdict, strings.Join(ids(c.Findings), " "), strings.Join(not, ", "), len(sw.Unread))
}

// TestDialects: each dialect is read, compared, and a fault in it is found.
func TestDialects(t *testing.T) {
	as := func(*profiles.Profile) {}
	for _, tc := range []struct {
		name, text string
		change     func(*profiles.Profile)
		want       string
	}{
		{
			"SONiC tables", sonicStatus + sonicQoS, twoClasses,
			"sonic unknown [] not compared: speed of the ports, trust, DSCP map, strict traffic class; unread 0",
		},
		{
			"SONiC, a port of the fabric has lost link and PFC", strings.NewReplacer("trunk    down       up              N/A", "trunk    down       up  QSFP28 or later", "Ethernet0    3,4", "Ethernet0    N/A").Replace(sonicStatus + sonicQoS), twoClasses,
			"sonic broken [switch.pfc-off switch.port-down] not compared: speed of the ports, trust, DSCP map, strict traffic class; unread 0",
		},
		{"SONiC CONFIG_DB, two lossless classes", sonicConfig, twoClasses, "sonic good [] not compared: links of the ports, speed of the ports, strict traffic class; unread 0"},
		{"SONiC CONFIG_DB against DSCP 26", sonicConfig, as, "sonic broken [switch.dscp-unmapped switch.ecn-thresholds switch.pfc-extra] not compared: links of the ports, speed of the ports, buffer pools, strict traffic class; unread 0"},
		{
			"SONiC enterprise", "leaf# show qos map dscp-tc\nDSCP-TC-MAP: ROCE\n----------------------------\n    DSCP TC\n----------------------------\n    0-25 0\n    26   3\n    27-47 0\n    48   6\n    49-63 0\n----------------------------\nleaf# show qos interface Ethernet 8\ndscp-tc-map: ROCE\npfc-asymmetric: off\npfc-priority  : 3\n", as,
			"sonic unknown [] not compared: links of the ports, speed of the ports, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0",
		},
		{"Cumulus", nvueRoCE, as, "nvue good [] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus, PFC on another priority", strings.Replace(nvueRoCE, "pfc-priority      3            3", "pfc-priority      5            3", 1), as, "nvue broken [switch.pfc-priority switch.pfc-extra] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus, thresholds ten times off", strings.Replace(nvueRoCE, "146.48 KB    146.48 KB", "1.43 MB      146.48 KB", 1), as, "nvue degraded [switch.ecn-thresholds] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus, DSCP 26 elsewhere", strings.NewReplacer("0,1,2,3,4,5,6,7    ", "0,1,2,3,4,5,6,7,26 ", "24,25,26,27", "24,25,27   ").Replace(nvueRoCE), as, "nvue broken [switch.dscp-map] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus, receives no pause", strings.Replace(nvueRoCE, "rx-enabled        yes", "rx-enabled        no", 1), as, "nvue broken [switch.pfc-inactive] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus, lossy", strings.NewReplacer("lossless     lossless", "lossy        lossy", "pfc-priority      3            3", "pfc-priority      -             ", "roce-reserved-ingress", "roce-lossy-in-ingress").Replace(nvueRoCE), as, "nvue broken [switch.pfc-off] not compared: links of the ports, speed of the ports, buffer pools, MTU; unread 0"},
		{"Cumulus ports", nvuePorts, as, "nvue broken [switch.port-down] not compared: speed of the ports, PFC priorities, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class; unread 0"},
		{"SONiC, one table of CONFIG_DB", "    \"DSCP_TO_TC_MAP\": {\n        \"AZURE\": {\"26\": \"1\", \"48\": \"6\"}\n    },\n", as, "sonic broken [switch.dscp-map] not compared: links of the ports, speed of the ports, PFC priorities, trust, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"quoted in a mail, with a pager", "> " + strings.ReplaceAll(strings.Replace(nvueRoCE, "pfc\n", "pfc\n--More--\n", 1), "\n", "\n> "), as, "nvue good [] not compared: links of the ports, speed of the ports, MTU; unread 0"},
		{"Cumulus as JSON", `{"congestion-control": {"congestion-mode": "ECN", "enabled-tc": "0,3", "max-threshold": "1.43 MB", "min-threshold": "146.48 KB"}, "mode": "lossless", "pfc": {"pfc-priority": "3", "rx-enabled": "yes", "tx-enabled": "yes"}, "prio-map": {"3": {"dscp": "24,25,26", "pcp": "3", "switch-prio": 3}, "6": {"dscp": "48", "pcp": "6", "switch-prio": 6}}, "tc-map": {"6": {"scheduler-weight": "strict-priority", "switch-prio": 6, "traffic-class": 6}}, "trust": {"trust-mode": "pcp,dscp"}}` + "\n", as, "nvue good [] not compared: links of the ports, speed of the ports, buffer pools, MTU; unread 0"},
		{"Cumulus before NVUE", "cumulus@leaf01:~$ net show interface\nState  Name    Spd   MTU    Mode      LLDP      Summary\n-----  ------  ----  -----  --------  --------  -------\nUP     swp1    100G  9216   Trunk/L2  gpu01     Master: bridge(UP)\nDN     swp2    N/A   9216   Trunk/L2\n", as, "nvue unknown [] not compared: speed of the ports, PFC priorities, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class; unread 0"},
		{"NX-OS PFC", nxosPFCTable, as, "nxos broken [switch.pfc-inactive switch.pfc-priority switch.pfc-extra] not compared: links of the ports, speed of the ports, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"NX-OS policies", nxosPolicy, cisco, "nxos good [] not compared: links of the ports, speed of the ports; unread 0"},
		{"NX-OS policies against DSCP 26", nxosPolicy, as, "nxos broken [switch.dscp-map switch.dscp-unmapped switch.ecn-thresholds switch.strict] not compared: links of the ports, speed of the ports, buffer pools; unread 0"},
		{"EOS policies", "class-map type qos match-any ROCE\n   match dscp 26\n!\nclass-map type qos match-any CNP\n   match dscp 48\n!\npolicy-map type quality-of-service IN\n   class ROCE\n      set traffic-class 2\n   !\n   class CNP\n      set traffic-class 6\n!\ninterface Ethernet1/1\n   service-policy type qos input IN\n   priority-flow-control on\n   priority-flow-control priority 3 no-drop\n!\n", as, "eos broken [switch.dscp-map switch.ecn-missing] not compared: links of the ports, speed of the ports, buffer pools, strict traffic class, MTU; unread 0"},
		{"NX-OS, another priority paused", strings.Replace(nxosPolicy, "pfc-cos 3", "pfc-cos 4", 1), cisco, "nxos broken [switch.dscp-map switch.pfc-priority switch.pfc-extra] not compared: links of the ports, speed of the ports; unread 0"},
		{"NX-OS, the policy is on no port", strings.Replace(nxosPolicy, "  service-policy type qos input INGRESS\n", "", 1), cisco, "nxos unknown [] not compared: links of the ports, speed of the ports, trust; unread 0"},
		{"Onyx, its one command", onyxRoCEText, as, "onyx unknown [] not compared: links of the ports, speed of the ports, DSCP map, buffer pools, MTU; unread 0"},
		{"Onyx, thresholds ten times off", strings.Replace(onyxRoCEText, "Min (KB): 150", "Min (KB): 15", 1), as, "onyx degraded [switch.ecn-thresholds] not compared: links of the ports, speed of the ports, DSCP map, buffer pools, MTU; unread 0"},
		{"NX-OS PFC in detail", nxosDetailText, as, "nxos unknown [] not compared: links of the ports, speed of the ports, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"SONiC, a storm", sonicStormText, as, "sonic degraded [switch.pfc-storm] not compared: links of the ports, speed of the ports, PFC priorities, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"Junos, what an interface has", junosShow + "admin@qfx> show class-of-service interface et-0/0/0\nPhysical interface: et-0/0/0, Index: 654\nMaximum usable queues: 12, Queues in use: 5\n  Congestion-notification: Enabled, Name: pfc-roce, Index: 7200\n  Logical interface: et-0/0/0.0, Index: 331\n    Object                  Name                   Type                    Index\n    Classifier              ROCE                   dscp                     9110\n", as, "junos unknown [] not compared: speed of the ports, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"Junos tables", junosShow, as, "junos unknown [] not compared: speed of the ports, trust, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"Junos configuration", junosConf, as, "junos unknown [] not compared: links of the ports, speed of the ports, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"Junos, another PFC priority", strings.Replace(junosConf, "pfc-priority 3", "pfc-priority 4", 1), as, "junos broken [switch.dscp-map switch.pfc-priority switch.pfc-extra] not compared: links of the ports, speed of the ports, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{"Junos without the forwarding classes", junosShow[:strings.Index(junosShow, "admin@qfx> show class-of-service forwarding-class")], as, "junos unknown [] not compared: links of the ports, speed of the ports, PFC priorities, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0"},
		{
			"EOS, two tables of one port", "leaf1#show priority-flow-control\nPort  Status Priorities Action\nEt1/1  E A W  3  -\nleaf1#show qos maps\n   Dscp-tc map:\n     d1 :  d2 0  1  2\n      2 :     2  2  2  2  3  3  3  3  3  3\n", as,
			"eos degraded [switch.dscp-unmapped] not compared: links of the ports, speed of the ports, trust, ECN thresholds, buffer pools, strict traffic class, MTU; unread 0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, ending := range []string{"\n", "\r\n"} {
				if diff := cmp.Diff(tc.want, outcomeOf(strings.ReplaceAll(tc.text, "\n", ending), plan(t, tc.change))); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
		})
	}
}

// TestNothingIsAsPlannedUnread: what was not read is never called good, and
// what begins with the name of a port is named.
func TestNothingIsAsPlannedUnread(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       string
	}{
		{"a ruler alone", "-----  -----\n============\n", " unknown [switch.nothing-read] not compared: ; unread 0"},
		{"prose", "the switch is fine\nbelieve me\n", " unknown [switch.nothing-read] not compared: ; unread 0"},
		{"empty", "", " unknown [switch.nothing-read] not compared: ; unread 0"},
		{"a table that nobody knows", "Interface   Foo   Bar\n---------   ---   ---\nEthernet0   1     2\nswp1  1 2\net-0/0/1 up\nEth1/1 x\n", " unknown [switch.nothing-read] not compared: ; unread 4"},
		{"a heading alone", "Port  Status Priorities Action\n", "eos unknown [switch.nothing-read] not compared: ; unread 0"},
		{"a cut row", "Port  Status Priorities Action\nEt1/1  E A W  3 -\nEt1/2\n", "eos unknown [] not compared: links of the ports, speed of the ports, trust, DSCP map, ECN thresholds, buffer pools, strict traffic class, MTU; unread 1"},
		{"two-word names of ports", "Port      Description   Status   Speed   Duplex   Mode Vlan\nEth 1/1/1  -  up 100G full A 1\n", "eos unknown [switch.nothing-read] not compared: ; unread 1"},
		{"a CONFIG_DB that is cut", "{\n \"DSCP_TO_TC_MAP\": {\"AZURE\": {\"26\": \"3\", \"48\": \"6\"}},\n \"PORT_QOS_MAP\": {\"Ethernet0\": {\"pfc_ena\n", "sonic unknown [] not compared: links of the ports, speed of the ports, PFC priorities, trust, ECN thresholds, buffer pools, strict traffic class, MTU; unread 1"},
		{"JSON that is no CONFIG_DB", "{\n \"a\": {\"b\": \"c\"}\n}\n", " unknown [switch.nothing-read] not compared: ; unread 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outcomeOf(tc.text, plan(t, func(*profiles.Profile) {}))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestSwitchCounters: which port pauses whom, what was dropped and marked.
func TestSwitchCounters(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"EOS", "leaf1#show priority-flow-control counters\nPort          RxPfc          TxPfc\nEt1/1             0             12\nEt1/2         40210              0\n", "Et1/1 rx=0 tx=12; Et1/2 rx=40210 tx=0"},
		{"SONiC", sonicCounters, "Ethernet0/1 rx=0 tx=7; Ethernet0/3 rx=9500 tx=0 drop=44; Ethernet4/3 rx=12"},
		{"Cumulus", nvueCounters, "swp16 rx=77 tx=5 drop=3 ecn=1234"},
		{"NX-OS", nxosPFCTable, "Ethernet1/1 rx=4885 tx=3709920; Ethernet1/4 rx=0 tx=1"},
		{"NX-OS queues", nxosQueue, "Ethernet1/1/3 drop=22; Ethernet1/1 rx=340 tx=12"},
		{"NX-OS in detail", nxosDetailText, "Ethernet1/51/3 rx=7 tx=150"},
		{"NX-OS by priority", "leaf1# show queuing interface e1/1\nEgress Queuing for Ethernet1/1 [System]\nPFC_COS QOS_Group   TxPause                   TxCount  RxPause                   RxCount\n      3         3  Inactive                       150   Active                         2\n", "Ethernet1/1/3 rx=2 tx=150"},
		{"SONiC ingress", "     Port    PG0    PG1    PG2    PG3    PG4    PG5    PG6    PG7\n---------  -----  -----  -----  -----  -----  -----  -----  -----\nEthernet0      0      0      0     17      0      0      0      0\n", "Ethernet0/3 drop=17"},
		{"Junos", junosQueues, "et-0/0/0/4 drop=6 ecn=123"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range ReadSwitch(tc.text).Counters {
				s, some := c.Port, false
				if c.Priority != nil {
					s += fmt.Sprintf("/%d", *c.Priority)
				}
				for _, v := range []struct {
					name string
					n    *uint64
				}{{"rx", c.RxPause}, {"tx", c.TxPause}, {"drop", c.Dropped}, {"ecn", c.ECNMarked}} {
					if v.n != nil {
						s += fmt.Sprintf(" %s=%d", v.name, *v.n)
						some = some || *v.n > 0
					}
				}
				if some {
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	c := Compare(ReadSwitch(sonicCounters), plan(t, func(*profiles.Profile) {}))
	if got := ids(c.Findings); !slices.Equal(got, []string{"switch.lossless-drops", "switch.pause-priority"}) {
		t.Error(got)
	}
	i := slices.IndexFunc(c.Findings, func(f finding.Finding) bool {
		return f.ID == "switch.pauses" && strings.HasSuffix(f.Subject, "received")
	})
	if i < 0 || c.Findings[i].Seen != "Ethernet0 9500, Ethernet4 12" {
		t.Errorf("who pauses the switch: %+v", c.Findings)
	}
}

// TestRandomBytesAreNothing: whatever the bytes, reading them ends and makes
// nothing of them.
func TestRandomBytesAreNothing(t *testing.T) {
	r := rand.New(rand.NewChaCha8([32]byte{7}))
	b := make([]byte, 8<<20)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	c := Compare(ReadSwitch(string(b)), nil)
	if c.Verdict != Unknown || !slices.Equal(ids(c.Findings), []string{"switch.nothing-read"}) {
		t.Errorf("%s %v", c.Verdict, c.Findings)
	}
}

// TestAlikeIsSaidOnce: what holds of many ports in the same words is one finding.
func TestAlikeIsSaidOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString("Port  Status Priorities Action\n")
	for i := range 40 {
		fmt.Fprintf(&b, "Et%d  E A W  4  -\n", i+1)
	}
	b.WriteString("Et41  D - -  -  -\n")
	c := Compare(ReadSwitch(b.String()), plan(t, func(*profiles.Profile) {}))
	var got []string
	for _, f := range c.Findings {
		got = append(got, f.ID+" "+f.Subject)
	}
	want := []string{"switch.pfc-off port Et41", "switch.pfc-priority 40 ports: Et1, Et10, Et11, Et12, Et13, Et14 and 34 more", "switch.pfc-extra 40 ports: Et1, Et10, Et11, Et12, Et13, Et14 and 34 more"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
