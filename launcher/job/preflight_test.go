package job

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/plan"
	"fabrun/launcher/trial"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// TestStrictOnOneHost: what never leaves a host needs no port, so that nothing of
// the fabric keeps it from starting; a node of many does.
func TestStrictOnOneHost(t *testing.T) {
	bad := []finding.Finding{{ID: "hca.port-down", Severity: finding.Error, Host: "n1", Subject: "mlx5_0 port 1", Seen: "DOWN"}}
	torch := func(line string) cmdline.Command {
		argv := strings.Fields(line)
		return cmdline.Parse(cmdline.Identify(argv, "", ""), argv)
	}
	one := []hosts.Host{{Name: "n1"}}
	for _, c := range []struct {
		name  string
		p     plan.Plan
		stops bool
	}{
		{"ranks of one host", plan.Plan{Dialect: cmdline.OpenMPI4, Hosts: hosts.Allocation{Hosts: one}}, false},
		{"of two", plan.Plan{Dialect: cmdline.OpenMPI4, Hosts: hosts.Allocation{Hosts: append(one, hosts.Host{Name: "n2"})}}, true},
		{"a script", plan.Plan{Dialect: cmdline.Plain, Hosts: hosts.Allocation{Hosts: one}}, true},
		{"torchrun", plan.Plan{Dialect: cmdline.Torchrun, Command: torch("torchrun train.py"), Hosts: hosts.Allocation{Hosts: one}}, false},
		{"one of two torchruns", plan.Plan{Dialect: cmdline.Torchrun, Command: torch("torchrun --nnodes 2 --node-rank 1 train.py"), Hosts: hosts.Allocation{Hosts: one}}, true},
		{"an elastic torchrun", plan.Plan{Dialect: cmdline.Torchrun, Command: torch("torchrun --nnodes 1:4 train.py"), Hosts: hosts.Allocation{Hosts: one}}, true},
	} {
		c.p.Findings = bad
		err := (&Call{}).preflightGate(RunOptions{Options: Options{Strict: true}}, c.p)
		if (err != nil) != c.stops {
			t.Errorf("%s: %v, stops %v", c.name, err, c.stops)
		}
	}
}

// TestPreflightGate: under --strict a job does not start when RDMA cannot carry
// it; what only makes it slow is no reason.
func TestPreflightGate(t *testing.T) {
	for _, tc := range []struct {
		id     string
		sev    finding.Severity
		strict bool
		stops  bool
	}{
		{"hca.port-down", finding.Error, true, true},
		{"hca.port-down", finding.Error, false, false},
		{"hca.port-down", finding.Warning, true, false},
		{"pair.node", finding.Error, true, true},
		{"pair.port", finding.Warning, true, false},
		{"limits.memlock", finding.Error, true, true},
		{"gate.openmpi-no-ucx", finding.Error, true, true},
		{"qos.pfc", finding.Error, true, false},
		{"pcie.link", finding.Error, true, false},
	} {
		err := (&Call{}).preflightGate(RunOptions{Options: Options{Strict: tc.strict}}, plan.Plan{Findings: []finding.Finding{{ID: tc.id, Severity: tc.sev, Host: "n1", Subject: "mlx5_0 port 1", Seen: "DOWN", Hint: "look"}}})
		var e *exit.Error
		if got := errors.As(err, &e); got != tc.stops || got && (e.Code != 122 || !strings.Contains(e.Error(), "n1: mlx5_0 port 1: DOWN")) {
			t.Errorf("%s %s, strict %v: %v", tc.sev, tc.id, tc.strict, err)
		}
	}
}

// TestAnotherProgramOnOneNode: what the ranks run has to be alike on hosts
// without RDMA too; what is the fabric's is not said there.
func TestAnotherProgramOnOneNode(t *testing.T) {
	host := func(name, id, missing string) topology.Host {
		mtu := 1500
		return topology.Host{
			Name: name, Netdevs: []topology.Netdev{{Name: "eth0", MTU: &mtu}},
			Places: []topology.Place{{Role: topology.RoleProgram, Path: "/opt/a.out", ID: id, Missing: missing}, {Role: topology.RoleDirectory, Path: "/work", Mount: "ext4"}},
		}
	}
	for _, tc := range []struct {
		name  string
		hosts []topology.Host
		finds []finding.Finding
		want  string
	}{
		{"alike", []topology.Host{host("n1", "build-id:a", ""), host("n2", "build-id:a", "")}, nil, ""},
		{"another build", []topology.Host{host("n1", "build-id:a", ""), host("n2", "build-id:a", ""), host("n3", "build-id:b", "")}, nil, "across.program"},
		{"missing", []topology.Host{host("n1", "build-id:a", ""), host("n2", "", "ENOENT")}, nil, "place.program"},
		{"missing, and said", []topology.Host{host("n1", "build-id:a", ""), host("n2", "", "ENOENT")}, []finding.Finding{{ID: "node.program", Subject: "/opt/a.out"}}, ""},
	} {
		var got []string
		for _, f := range lookFindings(Sight{hosts: tc.hosts, finds: tc.finds}, profiles.Profile{}, envgen.Result{}) {
			got = append(got, f.ID)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestLauncherIsToldTheSame: how fabrun reaches the hosts is how the launcher does.
func TestLauncherIsToldTheSame(t *testing.T) {
	const insecure = "StrictHostKeyChecking=no"
	for _, tc := range []struct {
		argv, want string
	}{
		{"mpirun -np 2 ./a.out", "OMPI_MCA_plm_rsh_agent=ssh -o " + insecure + " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"},
		{"mpiexec.hydra -n 2 ./a.out", "HYDRA_LAUNCHER_EXTRA_ARGS=-o " + insecure + " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"},
	} {
		argv := strings.Fields(tc.argv)
		version := map[bool]string{true: "mpirun (Open MPI) 4.1.4", false: "HYDRA build details:\n    Version: 4.0.2"}[argv[0] == "mpirun"]
		p := plan.Build(plan.Request{
			Command: cmdline.Parse(cmdline.Identify(argv, version, ""), argv), SSH: look.Ways{Insecure: true}.LauncherSSH(),
			Hosts: hosts.Allocation{Source: "--hosts", Hosts: []hosts.Host{{Name: "n1"}, {Name: "n2"}}}, HostsGiven: true,
		})
		got := ""
		for _, v := range p.Env {
			if v.Rule == "launcher.ssh" {
				got = v.Name + "=" + v.Value
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.argv, got, tc.want)
		}
	}
	if args := strings.Join(look.Ways{Insecure: true, KnownHosts: "/k"}.SystemSSH().Args(), " "); !strings.Contains(args, insecure) || strings.Contains(args, "/k") {
		t.Errorf("the system's ssh: %q", args)
	}
	if (look.Ways{}).LauncherSSH() != nil {
		t.Error("nothing was said, and the launcher is told something")
	}
}

// TestMeasuresWhatThePlanChose: of two IPv4 GIDs on a port the one in the
// fabric's subnet is the plan's, and what is measured goes by it, over the plan's
// ports and with the plan's mark; a user's own index counts before both.
func TestMeasuresWhatThePlanChose(t *testing.T) {
	index := func(i int) *int { return &i }
	host := func(name string, last byte) topology.Host {
		gid := func(i int, addr string) topology.GID {
			return topology.GID{Index: i, Addr: netip.MustParseAddr("::ffff:" + addr + fmt.Sprint(last)), Type: "RoCE v2", Kind: topology.GIDIPv4, Netdev: "eth2"}
		}
		up, rate := true, 100.0
		return topology.Host{
			Name: name,
			HCAs: []topology.HCA{{Name: "mlx5_0", PCI: "0000:5e:00.0", Driver: "mlx5", Ports: []topology.Port{{
				Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: &rate, RateTrusted: true, ActiveMTU: index(4096), Netdev: "eth2",
				GIDs: []topology.GID{gid(1, "192.168.7."), gid(3, "10.10.0.")},
			}}}},
			Netdevs: []topology.Netdev{{Name: "eth2", OperState: "up", Carrier: &up, MTU: index(9000), Type: index(1), Kind: "physical", Addrs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("192.168.7.%d/24", last)), netip.MustParsePrefix(fmt.Sprintf("10.10.0.%d/24", last)),
			}}},
		}
	}
	own := []topology.Host{host("a", 1), host("b", 2)}
	reach := []string{"a.cluster", "b.cluster"}
	prof := profiles.Profile{Fabric: profiles.Fabric{Subnets: []string{"10.10.0.0/16"}}}
	for _, c := range []struct {
		name string
		set  []envgen.Setting
		want int
	}{
		{"the plan's", nil, 3},
		{"the user's", []envgen.Setting{{Name: "NCCL_IB_GID_INDEX", Value: "1", Origin: envgen.FromUser}}, 1},
		{"left to NCCL", []envgen.Setting{{Name: "NCCL_IB_GID_INDEX", Value: "-1", Origin: envgen.FromUser}}, 3},
	} {
		rails := envgen.Compute(envgen.Input{Hosts: own, Profile: prof, Job: envgen.Job{Settings: c.set}}).Rails
		named := []topology.Host{host("a.cluster", 1), host("b.cluster", 2)}
		s := trial.Site{Reach: reach, Hosts: named, Profile: prof, Rails: railsByReach(rails, own, reach)}
		for i, row := range s.Ports() {
			if len(row) != 1 || row[0] == nil || row[0].GID == nil || *row[0].GID != c.want {
				t.Errorf("%s: %s is measured by %+v, want GID index %d", c.name, reach[i], row, c.want)
			}
		}
	}
	p := plan.Plan{Env: []envgen.Var{{Name: "UCX_IB_TRAFFIC_CLASS", Value: "106"}}, Kept: []envgen.Var{{Name: "NCCL_IB_TC", Value: "96"}}}
	if tc := trafficClass(p); tc == nil || *tc != 96 {
		t.Errorf("traffic class %v, want 96", tc)
	}
	if tc := trafficClass(plan.Plan{}); tc != nil {
		t.Errorf("traffic class %d of a plan that says none", *tc)
	}
}
