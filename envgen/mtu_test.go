package envgen

import (
	"testing"

	"fabrun/topology"
)

// TestUnequalMTUIsNamed: one port of a job with a smaller active MTU than the
// others, whatever its driver.
func TestUnequalMTUIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		mtu  [3]int
		want string // host that is named; "" none
	}{
		{"equal", [3]int{1024, 1024, 1024}, ""},
		{"one smaller", [3]int{4096, 1024, 4096}, "v2"},
		{"not said", [3]int{4096, 0, 4096}, ""},
	} {
		var hosts []topology.Host
		for i, name := range []string{"v1", "v2", "v3"} {
			h := rxe(name, true)
			h.HCAs[0].Ports[0].ActiveMTU = nil
			if tc.mtu[i] > 0 {
				h.HCAs[0].Ports[0].ActiveMTU = ptr(tc.mtu[i])
			}
			hosts = append(hosts, h)
		}
		got := ""
		for _, f := range Compute(Input{Hosts: hosts, Profile: load(t, "soft-roce"), Job: Job{}}).Findings {
			if f.ID == "hca.mtu-differs" {
				got += f.Host
			}
		}
		if got != tc.want {
			t.Errorf("%s: named %q, want %q", tc.name, got, tc.want)
		}
	}
}
