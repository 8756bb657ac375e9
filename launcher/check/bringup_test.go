package check

import (
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// TestRunStages: the order holds, the first failure stops, and what looking has
// found is not measured.
func TestRunStages(t *testing.T) {
	bad := func(id string) finding.Finding { return finding.Finding{ID: id, Severity: finding.Error} }
	for _, tc := range []struct {
		name     string
		looked   []finding.Finding
		measured map[finding.Stage][]finding.Finding
		skipped  map[finding.Stage]string
		want     string
		asked    string
	}{
		{"all good", nil, nil, nil, "passed passed passed passed passed passed passed", "link driver pairs gpudirect qos collectives separation"},
		{"a port is down", []finding.Finding{bad("hca.port-down")}, nil, nil, "failed not-reached not-reached not-reached not-reached not-reached not-reached", ""},
		{"firmware differs", []finding.Finding{bad("across.firmware")}, nil, nil, "passed failed not-reached not-reached not-reached not-reached not-reached", "link"},
		{"rates differ: that is the link", []finding.Finding{bad("across.rate")}, nil, nil, "failed not-reached not-reached not-reached not-reached not-reached not-reached", ""},
		{"a slow cable", nil, map[finding.Stage][]finding.Finding{"pairs": {bad("pair.port")}}, nil, "passed passed failed not-reached not-reached not-reached not-reached", "link driver pairs"},
		{"no GPU, PFC missing", []finding.Finding{bad("qos.pfc")}, nil, map[finding.Stage]string{"gpudirect": "no GPU"}, "passed passed passed skipped failed not-reached not-reached", "link driver pairs gpudirect"},
		{"warnings stop nothing", []finding.Finding{{ID: "pcie.link", Severity: finding.Warning}}, nil, nil, "passed passed passed passed passed passed passed", "link driver pairs gpudirect qos collectives separation"},
		{"ssh in the lossless class", []finding.Finding{bad("separation.unmarked")}, nil, nil, "passed passed passed passed passed passed failed", "link driver pairs gpudirect qos collectives"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked, got []string
			rs, err := RunStages(tc.looked, func(s Stage) ([]finding.Finding, string, error) {
				asked = append(asked, string(s.ID))
				return tc.measured[s.ID], tc.skipped[s.ID], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				got = append(got, strings.ReplaceAll(r.Status, " ", "-"))
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
			if s := strings.Join(asked, " "); s != tc.asked {
				t.Errorf("measured %s, want %s", s, tc.asked)
			}
		})
	}
}

// TestEveryLookHasItsStage: what looking at hosts finds is counted somewhere in
// a bring-up.
func TestEveryLookHasItsStage(t *testing.T) {
	ids := []string{"node.unreachable"}
	for _, c := range checks() {
		ids = append(ids, c.id)
	}
	for _, k := range finding.Kinds() {
		if strings.HasPrefix(k.ID, "across.") {
			ids = append(ids, k.ID)
		}
	}
	for _, id := range ids {
		k, _ := finding.KindOf(id)
		if !slices.ContainsFunc(Stages(), func(s Stage) bool { return s.ID == k.Stage }) {
			t.Errorf("%s belongs to stage %q, which is none of a bring-up: topology/finding/kinds.go", id, k.Stage)
		}
	}
}

func TestSeparation(t *testing.T) {
	q := &profiles.QoS{Trust: "dscp", RDMA: profiles.Class{DSCP: 26, Priority: ptr(3)}, CNP: &profiles.Class{DSCP: 48, Priority: ptr(6)}, PFC: []int{3}}
	for _, tc := range []struct {
		name string
		dscp map[int]int
		want string
	}{
		{"apart", map[int]int{0: 0, 26: 3, 48: 6}, ""},
		{"everything in the RDMA class", map[int]int{0: 3, 26: 3, 48: 3}, "error separation.unmarked; warning separation.cnp"},
		{"CNP behind the data", map[int]int{0: 0, 26: 3, 48: 3}, "warning separation.cnp"},
		{"not known", nil, ""},
	} {
		h := topology.Host{
			Netdevs: []topology.Netdev{{Name: "ens1", DCB: &topology.DCB{DSCPToPriority: tc.dscp}}},
			HCAs:    []topology.HCA{{Name: "mlx5_0", Ports: []topology.Port{{Number: 1, LinkLayer: "Ethernet", Netdev: "ens1"}}}},
		}
		var got []string
		for _, f := range Separation(h, profiles.Profile{Fabric: profiles.Fabric{QoS: q}}, []string{"mlx5_0:1"}) {
			got = append(got, string(f.Severity)+" "+f.ID)
		}
		if s := strings.Join(got, "; "); s != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, s, tc.want)
		}
	}
}
