package envgen

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

func ids(fs []finding.Finding) []string {
	out := []string{}
	for _, f := range fs {
		out = append(out, string(f.Severity)+" "+f.ID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestJudge(t *testing.T) {
	roce := load(t, "roce-dscp26")
	ten := manyHCAs("n1", 12)
	set := func(nv ...string) []Setting {
		var out []Setting
		for i := 0; i < len(nv); i += 2 {
			out = append(out, Setting{Name: nv[i], Value: nv[i+1], Origin: FromUser, Where: "environment"})
		}
		return out
	}
	tests := []struct {
		name     string
		settings []Setting
		hosts    []topology.Host
		profile  *profiles.Profile
		versions Versions
		want     []string
	}{
		{name: "prefix of others, no hosts", settings: set("NCCL_IB_HCA", "mlx5_1"), want: []string{"warning hca.prefix"}},
		{name: "prefix of others, hosts", settings: set("NCCL_IB_HCA", "mlx5_1"), hosts: []topology.Host{ten}, want: []string{"warning hca.narrowed", "warning hca.prefix"}},
		{name: "exact", settings: set("NCCL_IB_HCA", "=mlx5_1"), hosts: []topology.Host{ten}, want: []string{"warning hca.narrowed"}},
		{name: "a family by its prefix", settings: set("NCCL_IB_HCA", "mlx5"), hosts: []topology.Host{ten}, want: []string{}},
		{name: "device that is not there", settings: set("NCCL_IB_HCA", "=mlx5_0,mlx5_99"), hosts: []topology.Host{ten}, want: []string{"error hca.absent", "warning hca.narrowed"}},
		{name: "nothing matches", settings: set("NCCL_IB_HCA", "=ib7"), hosts: []topology.Host{ten}, want: []string{"error hca.takes-nothing"}},
		{name: "a port that is down", settings: set("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error hca.takes-unusable"}},
		{name: "equals inside the list", settings: set("NCCL_IB_HCA", "mlx5_0,=mlx5_2"), want: []string{"error hca.list-form"}},
		{name: "per rank", settings: set("NCCL_IB_HCA", "mlx5_$OMPI_COMM_WORLD_LOCAL_RANK"), want: []string{"error hca.per-rank"}},
		{name: "pinned GID is v1", settings: set("NCCL_IB_GID_INDEX", "2"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error gid.pinned"}},
		{name: "pinned GID is link-local", settings: set("NCCL_IB_GID_INDEX", "1"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error gid.pinned"}},
		{name: "pinned GID is absent", settings: set("UCX_IB_GID_INDEX", "7"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error gid.pinned"}},
		{name: "pinned GID is IPv4 on rxe, for UCX", settings: set("UCX_IB_GID_INDEX", "1"), hosts: []topology.Host{rxe("v1", true)}, want: []string{"error gid.pinned"}},
		{name: "pinned GID is IPv6 on rxe, for UCX", settings: set("UCX_IB_GID_INDEX", "2"), hosts: []topology.Host{rxe("v1", true)}, want: []string{}},
		{name: "pinned GID is right", settings: set("NCCL_IB_GID_INDEX", "3"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{}},
		{name: "DSCP for TC, plan known", settings: set("NCCL_IB_TC", "26"), profile: &roce, want: []string{"error qos.dscp-for-tc"}},
		{name: "DSCP for TC, plan not known", settings: set("UCX_IB_TRAFFIC_CLASS", "26"), want: []string{"error qos.dscp-for-tc"}},
		{name: "TC of the plan", settings: set("NCCL_IB_TC", "106"), profile: &roce, want: []string{}},
		{name: "TC of the plan without ECN", settings: set("NCCL_IB_TC", "104"), profile: &roce, want: []string{}},
		{name: "TC of another plan", settings: set("NCCL_IB_TC", "41"), profile: &roce, want: []string{"warning qos.not-the-plan"}},
		{name: "global tclass overrides", settings: set("NCCL_IB_TC", "106"), hosts: []topology.Host{globalTClass("n1", 96)}, want: []string{"error qos.global-tclass"}},
		{name: "NCCL and UCX differ", settings: set("NCCL_IB_TC", "0", "UCX_IB_TRAFFIC_CLASS", "106"), want: []string{"warning qos.libraries-differ"}},
		{name: "misspelt", settings: set("NCCL_IB_GID_IDX", "3"), want: []string{"warning value.misspelt"}},
		{name: "misspelt UCX", settings: set("UCX_NET_DEVICE", "mlx5_0:1"), want: []string{"warning value.misspelt"}},
		{name: "unknown and not near anything", settings: set("NCCL_SOMETHING_ELSE_ENTIRELY", "3"), want: []string{"note value.unknown-name"}},
		{name: "yes is 0", settings: set("NCCL_IB_DISABLE", "yes"), want: []string{"error value.not-a-number"}},
		{name: "octal", settings: set("NCCL_IB_TC", "0152"), want: []string{"warning value.octal"}},
		{name: "hexadecimal is fine", settings: set("NCCL_IB_TC", "0x6a"), want: []string{}},
		{name: "out of range", settings: set("NCCL_IB_TIMEOUT", "40"), want: []string{"error value.range"}},
		{name: "lower-case level", settings: set("NCCL_NET_GDR_LEVEL", "phb"), want: []string{"error value.word"}},
		{name: "old level number", settings: set("NCCL_NET_GDR_LEVEL", "3"), want: []string{"note value.old-level"}},
		{name: "deprecated level", settings: set("NCCL_IB_GDR_LEVEL", "PHB"), want: []string{"warning version.old-name"}},
		{name: "level off", settings: set("NCCL_NET_GDR_LEVEL", "LOC"), want: []string{"warning gdr.off"}},
		{name: "quotes stay", settings: set("NCCL_IB_HCA", `"=mlx5_0"`), want: []string{"error value.quotes"}},
		{name: "docker0 by prefix", settings: set("NCCL_SOCKET_IFNAME", "do"), hosts: []topology.Host{withDocker(cx4lx("n1", "10.1.4.1"))}, want: []string{"warning bootstrap.virtual"}},
		{name: "docker0 named, no hosts", settings: set("NCCL_SOCKET_IFNAME", "docker0"), want: []string{"error bootstrap.virtual"}},
		{name: "docker excluded", settings: set("NCCL_SOCKET_IFNAME", "^docker,lo"), hosts: []topology.Host{withDocker(cx4lx("n1", "10.1.4.1"))}, want: []string{}},
		{name: "no such interface", settings: set("NCCL_SOCKET_IFNAME", "eth7"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error bootstrap.takes-nothing"}},
		{name: "gloo with equals", settings: set("GLOO_SOCKET_IFNAME", "=eth0"), want: []string{"error bootstrap.gloo-form"}},
		{name: "IB off on a RoCE fabric", settings: set("NCCL_IB_DISABLE", "1"), profile: &roce, want: []string{"error gate.tcp-chosen"}},
		{name: "UCX over tcp", settings: set("UCX_TLS", "tcp,self,sm"), profile: &roce, want: []string{"error gate.tcp-chosen"}},
		{name: "pml ob1", settings: set("OMPI_MCA_pml", "ob1"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error gate.tcp-chosen"}},
		{name: "UCX device without port", settings: set("UCX_NET_DEVICES", "mlx5_0"), want: []string{"error hca.ucx-port"}},
		{name: "UCX device absent", settings: set("UCX_NET_DEVICES", "mlx5_0:1,mlx5_9:1"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error hca.ucx-absent"}},
		{name: "UCX with a netdev", settings: set("UCX_NET_DEVICES", "mlx5_0:1,ens1f0"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"warning gate.ucx-netdev"}},
		{name: "UCX port down", settings: set("UCX_NET_DEVICES", "mlx5_1:1"), hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, want: []string{"error hca.ucx-unusable"}},
		{name: "UCX_TLS=rc alone", settings: set("UCX_TLS", "rc"), want: []string{"warning value.ucx-tls-alone"}},
		{name: "index and subnets", settings: set("UCX_IB_GID_INDEX", "3", "UCX_IB_ROCE_SUBNETS", "10.0.0.0/8"), want: []string{"error gid.ucx-both"}},
		{name: "range without length", settings: set("NCCL_IB_ADDR_RANGE", "10.0.0.0"), want: []string{"error gid.range-form"}},
		{name: "range of the other family", settings: set("NCCL_IB_ADDR_RANGE", "fd00::/16"), want: []string{"error gid.range-family"}},
		{name: "too new for this NCCL", settings: set("NCCL_IB_ADDR_FAMILY", "AF_INET6"), versions: Versions{NCCL: "2.18.3"}, want: []string{"warning version.unknown-to-library"}},
		{name: "all ranks in one log", settings: set("NCCL_DEBUG_FILE", "/tmp/nccl.log"), want: []string{"warning log.overwritten"}},
		{name: "log per process", settings: set("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p.log"), want: []string{}},
		{name: "dead Intel fabric", settings: set("I_MPI_FABRICS", "shm:dapl"), want: []string{"error value.word"}},
		{name: "trust pcp", settings: set("NCCL_IB_TC", "106"), hosts: []topology.Host{withDCB(cx4lx("n1", "10.1.4.1"), "pcp", []int{3})}, want: []string{"warning qos.trust"}},
		{name: "no PFC for the class", settings: set("NCCL_IB_TC", "106"), hosts: []topology.Host{withDCB(cx4lx("n1", "10.1.4.1"), "dscp", []int{5})}, want: []string{"warning qos.not-lossless"}},
		{name: "PFC for the class", settings: set("NCCL_IB_TC", "106"), hosts: []topology.Host{withDCB(cx4lx("n1", "10.1.4.1"), "dscp", []int{3})}, want: []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Judge(tt.settings, tt.hosts, tt.profile, tt.versions)
			if d := cmp.Diff(tt.want, ids(got)); d != "" {
				t.Errorf("findings (-want +got):\n%s\n%+v", d, got)
			}
		})
	}
}

func TestNCCLInt(t *testing.T) {
	for _, tt := range []struct {
		in    string
		n     int64
		exact bool
	}{
		{"26", 26, true},
		{"-1", -1, true},
		{"0x6a", 106, true},
		{"0152", 106, true},
		{"yes", 0, false},
		{"3 ", 3, false},
		{"", 0, false},
		{"08", 0, false},
		{"1,2", 1, false},
		{" 5", 5, true},
		{"+4", 4, true},
		{"99999999999999999999", 0, false},
		{"0x", 0, false},
	} {
		if n, exact := ncclInt(tt.in); n != tt.n || exact != tt.exact {
			t.Errorf("ncclInt(%q) = %d, %v, want %d, %v", tt.in, n, exact, tt.n, tt.exact)
		}
	}
}

// TestEveryRuleIsTried: no rule without a row in the decision table.
func TestEveryRuleIsTried(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range decisions() {
		in := d.input(t)
		s := &state{in: in, portRules: portRules(), want: wantOf(&in.Profile)}
		for i := range in.Hosts {
			s.nodes = append(s.nodes, &node{h: &in.Hosts[i]})
		}
		s.choosePorts()
		for _, n := range s.nodes {
			for _, p := range n.ports {
				seen[p.rejectID] = true
			}
		}
		res := Compute(in)
		for _, h := range res.Hosts {
			for _, v := range append(h.Vars, h.Left...) {
				seen[v.Rule] = true
				if v.Why == "" {
					t.Errorf("%s: %s has no reason", d.name, v.Name)
				}
				if v.Origin == FromPlan && v.Value != "" && (len(v.Evidence) == 0 || v.IfWrong == "") {
					t.Errorf("%s: %s has no evidence, or does not say what breaks", d.name, v.Name)
				}
			}
		}
		for _, f := range res.Findings {
			seen[f.ID] = true
			if f.Severity != finding.Note && (f.Seen == "" || f.Why == "" || f.Subject == "") {
				t.Errorf("%s: finding %s says too little: %+v", d.name, f.ID, f)
			}
		}
	}
	for _, r := range varRules() {
		if !seen[r.id] {
			t.Errorf("rule %s sets nothing in the decision table", r.id)
		}
	}
	for _, r := range portRules() {
		if !seen[r.id] {
			t.Errorf("rule %s rejects nothing in the decision table", r.id)
		}
	}
	for _, r := range setRules() {
		if !seen[r.id] {
			t.Errorf("rule %s rejects nothing in the decision table", r.id)
		}
	}
	for _, id := range []string{
		"hca.rail-missing", "hca.rail-subnet", "hca.port-slow", "hca.none", "hca.none-on-host", "gid.no-common", "gid.no-common-ucx",
		"gdr.iommu", "gdr.hidden-topology", "gdr.no-peer-memory", "gdr.far-gpu", "qos.defaults-differ", "qos.global-tclass", "qos.trust", "qos.not-lossless", "qos.dscp-map", "log.quiet", "version.profile",
	} {
		if !seen[id] {
			t.Errorf("%s is never said in the decision table", id)
		}
	}
}

func FuzzJudge(f *testing.F) {
	for _, s := range [][2]string{{"NCCL_IB_HCA", "^=mlx5_0:1,mlx5_1"}, {"NCCL_IB_TC", "0x1g"}, {"UCX_NET_DEVICES", "mlx5_[0-3]:1"}, {"NCCL_NET_GDR_LEVEL", "9"}, {"NCCL_IB_ADDR_RANGE", "::/0"}, {"UCX_TLS", "a,^b"}} {
		f.Add(s[0], s[1])
	}
	hosts := []topology.Host{cx4lx("n1", "10.1.4.1"), gpuServer("g1", 1), {}}
	roce := load(f, "roce-dscp26")
	f.Fuzz(func(t *testing.T, name, value string) {
		set := []Setting{{Name: name, Value: value, Origin: FromUser}}
		for _, h := range [][]topology.Host{nil, hosts} {
			for _, fd := range Judge(set, h, &roce, Versions{NCCL: "2.18.3", UCX: value}) {
				if fd.ID == "" || fd.Severity == "" || fd.Seen == "" {
					t.Errorf("half a finding: %+v", fd)
				}
			}
		}
		Compute(Input{Hosts: hosts, Profile: roce, Job: Job{Settings: set}})
	})
}

// TestDistributionDefaultIsNobodysChoice: Debian's openmpi-bin ships a file
// that turns UCX off; a plan for RDMA goes before it, a site's own word does not.
func TestDistributionDefaultIsNobodysChoice(t *testing.T) {
	for _, tc := range []struct {
		value, want string
		origin      Origin
	}{
		{"^ucx", "ucx", FromPlan},
		{"ob1", "ob1", FromSite},
	} {
		h := rxe("v1", true)
		h.Software = append(h.Software, topology.Software{Kind: "openmpi", Version: "5.0.7"})
		p := load(t, "soft-roce")
		res := Compute(Input{Hosts: []topology.Host{h}, Profile: p, Job: Job{
			Versions: &Versions{MPI: "openmpi 5.0.7", MPIKind: "openmpi"},
			Settings: []Setting{
				{Name: "OMPI_MCA_mtl", Value: "^ofi", Origin: FromSite, Where: "/etc/openmpi/openmpi-mca-params.conf:67"},
				{Name: "OMPI_MCA_btl", Value: "^uct,openib,ofi", Origin: FromSite, Where: "/etc/openmpi/openmpi-mca-params.conf:68"},
				{Name: "OMPI_MCA_pml", Value: tc.value, Origin: FromSite, Where: "/etc/openmpi/openmpi-mca-params.conf:69"},
			},
		}})
		i := indexVar(res.Hosts[0].Vars, "OMPI_MCA_pml")
		if i < 0 || res.Hosts[0].Vars[i].Value != tc.want || res.Hosts[0].Vars[i].Origin != tc.origin {
			t.Errorf("%s: %+v", tc.value, res.Hosts[0].Vars)
		}
	}
}
