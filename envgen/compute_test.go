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
	res := Compute(Input{Hosts: []topology.Host{cx4lx("n1", "10.1.4.1")}, Assumed: 12, Profile: load(t, "roce-dscp31"), Job: Job{Launcher: "openmpi5"}})
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
