package envgen

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/profiles"
	"fabrun/topology"
)

func load(t testing.TB, name string) profiles.Profile {
	t.Helper()
	p, err := profiles.Load(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func values(vars []Var) map[string]string {
	out := map[string]string{}
	for _, v := range vars {
		out[v.Name] = v.Value
	}
	return out
}

func findingIDs(r Result) map[string]string {
	out := map[string]string{}
	for _, f := range r.Findings {
		out[f.ID] = string(f.Severity)
	}
	return out
}

func TestConnectX4LxCluster(t *testing.T) {
	res := Compute(Input{Hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, Assumed: 12, Profile: load(t, "roce-dscp31"), Job: Job{}})
	want := map[string]string{
		"UCX_NET_DEVICES": "mlx5_0:1", "UCX_IB_SL": "3", "UCX_IB_TRAFFIC_CLASS": "124", "OMPI_MCA_pml": "ucx",
	}
	if d := cmp.Diff(want, values(res.Hosts[0].Vars)); d != "" {
		t.Errorf("variables (-want +got):\n%s", d)
	}
	dev := res.Hosts[0].Vars[indexVar(res.Hosts[0].Vars, "UCX_NET_DEVICES")]
	if d := cmp.Diff([]Alternative{{Value: "mlx5_1:1", Why: "state DOWN, phys_state Disabled [hca.port-down]"}}, dev.Rejected); d != "" {
		t.Errorf("rejected (-want +got):\n%s", d)
	}
	if got := findingIDs(res)["hca.active-mtu"]; got != "warning" {
		t.Errorf("no warning of the active MTU: %v", res.Findings)
	}
}

// What the user chose is not undone by something set beside it.
func TestTheUsersChoiceIsNotUndone(t *testing.T) {
	two := secondAddress(cx4lx("n1", "10.1.4.1"))
	fabric := profiles.Fabric{LinkLayer: "ethernet", Subnets: []string{"10.99.0.0/16"}}
	for _, tt := range []struct {
		name, value string
		absent      []string
	}{
		{"NCCL_IB_GID_INDEX", "5", []string{"NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY"}},
		{"NCCL_IB_ADDR_RANGE", "10.99.0.0/16", []string{"NCCL_IB_GID_INDEX"}},
		{"UCX_IB_ROCE_SUBNETS", "10.99.0.0/16", []string{"UCX_IB_GID_INDEX"}},
		{"UCX_IB_GID_INDEX", "5", []string{"UCX_IB_ROCE_SUBNETS"}},
		{"OMPI_MCA_btl", "tcp,self", []string{"OMPI_MCA_pml"}},
		{"OMPI_MCA_mtl", "ofi", []string{"OMPI_MCA_pml"}},
		{"UCX_TLS", "tcp,self,sm", []string{"OMPI_MCA_pml", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "UCX_IB_ROCE_SUBNETS", "UCX_IB_TRAFFIC_CLASS"}},
		{"NCCL_IB_DISABLE", "1", []string{"NCCL_NET"}},
	} {
		res := Compute(Input{Hosts: []topology.Host{two}, Profile: profiles.Profile{Fabric: fabric}, Job: Job{
			Strict: true, UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.27.3", UCX: "1.18.0"},
			Settings: []Setting{{Name: tt.name, Value: tt.value, Origin: FromUser}},
		}})
		vars := values(res.Hosts[0].Vars)
		if vars[tt.name] != tt.value {
			t.Errorf("%s=%s became %q", tt.name, tt.value, vars[tt.name])
		}
		for _, name := range tt.absent {
			if v, ok := vars[name]; ok {
				t.Errorf("%s=%s: %s=%s is set beside it", tt.name, tt.value, name, v)
			}
		}
	}
	// a list that only excludes is no other choice
	res := Compute(Input{Hosts: []topology.Host{two}, Profile: profiles.Profile{Fabric: fabric}, Job: Job{Settings: []Setting{{Name: "OMPI_MCA_btl", Value: "^openib", Origin: FromUser}}}})
	if v := values(res.Hosts[0].Vars)["OMPI_MCA_pml"]; v != "ucx" {
		t.Errorf("btl=^openib: pml %q, want ucx", v)
	}
}

// Which ports are the fabric's, where a host has several classes.
func TestSpeedClasses(t *testing.T) {
	host := func(rates []float64, part ...string) topology.Host {
		h := manyHCAs("n1", len(rates))
		for i, r := range rates {
			h.HCAs[i].Ports[0].RateGbps = ptr(r)
			h.HCAs[i].HCAType = part[i]
		}
		return h
	}
	for _, tt := range []struct {
		name string
		host topology.Host
		want string
	}{
		{"four rails and a management port", host([]float64{400, 400, 400, 400, 25}, "a", "a", "a", "a", "b"), "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"},
		{"four rails and one faster storage port", host([]float64{200, 200, 200, 200, 400}, "a", "a", "a", "a", "b"), "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"},
		{"one rail and a management port", host([]float64{25, 100}, "a", "b"), "mlx5_1:1"},
		{"a sick link of the same part", host([]float64{400, 100}, "a", "a"), "mlx5_0:1,mlx5_1:1"},
		{"nearly as fast", host([]float64{100, 56}, "a", "b"), "mlx5_0:1,mlx5_1:1"},
	} {
		res := Compute(Input{Hosts: []topology.Host{tt.host}})
		if got := values(res.Hosts[0].Vars)["UCX_NET_DEVICES"]; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
