package envgen

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"fabrun/topology"
)

// What somebody's list of devices takes away is in the headline, and said.
func TestPinsAreJudgedByWhatTheyTakeAway(t *testing.T) {
	eight := func() topology.Host { return manyHCAs("n1", 8) }
	twelve := func() topology.Host { return manyHCAs("n1", 12) }
	for _, tt := range []struct {
		name, set string
		host      topology.Host
		gpu       bool
		contract  string
		found     string // IDs of warnings and errors about the list
	}{
		{"one of eight, exact", "NCCL_IB_HCA==mlx5_1", eight(), true, "1 of 8 rails of RoCE v2 (400 Gb/s) (NCCL_IB_HCA==mlx5_1)", "hca.narrowed"},
		{"one of eight, a prefix", "NCCL_IB_HCA=mlx5_1", eight(), true, "1 of 8 rails", "hca.narrowed"},
		{"a prefix that takes three of twelve", "NCCL_IB_HCA=mlx5_1", twelve(), true, "3 of 12 rails", "hca.narrowed hca.prefix"},
		{"a prefix that takes all", "NCCL_IB_HCA=mlx5", eight(), true, "8 rails of RoCE v2 (400 Gb/s)", ""},
		{"two, exact and with ports", "NCCL_IB_HCA==mlx5_0:1,mlx5_3:1", eight(), true, "2 of 8 rails", "hca.narrowed"},
		{"a port that no card has", "NCCL_IB_HCA==mlx5_0:2", eight(), true, "0 of 8 rails", "hca.takes-nothing"},
		{"all but one", "NCCL_IB_HCA=^=mlx5_7", eight(), true, "7 of 8 rails", "hca.narrowed"},
		{"all but a prefix", "NCCL_IB_HCA=^mlx5_1", twelve(), true, "9 of 12 rails", "hca.narrowed"},
		{"all but a card that is not there", "NCCL_IB_HCA=^mlx5_9", eight(), true, "8 rails", ""},
		{"all named", "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7", eight(), true, "8 rails", ""},
		{"a shell fills it in", "NCCL_IB_HCA=$DEVICES", eight(), true, "8 rails", ""},
		{"UCX, one of eight", "UCX_NET_DEVICES=mlx5_0:1", eight(), false, "1 of 8 rails of RoCE v2 (400 Gb/s) (UCX_NET_DEVICES=mlx5_0:1)", "hca.narrowed"},
		{"UCX, a range", "UCX_NET_DEVICES=mlx5_[0-3]:1", eight(), false, "4 of 8 rails", "hca.narrowed"},
		{"UCX, all but one", "UCX_NET_DEVICES=^mlx5_0:1", eight(), false, "7 of 8 rails", "hca.narrowed"},
		{"UCX, all", "UCX_NET_DEVICES=all", eight(), false, "8 rails", ""},
		{"UCX's list says nothing of NCCL's rails", "UCX_NET_DEVICES=mlx5_0:1", eight(), true, "8 rails", "hca.narrowed"},
		{"a port that was left out, and works", "UCX_NET_DEVICES=mlx5_0:1", defaultRoute(manyHCAs("n1", 2), "rdma0"), false, "0 of 1 rail of RoCE v2 (400 Gb/s) (UCX_NET_DEVICES=mlx5_0:1 takes mlx5_0:1 instead)", "hca.takes-other"},
	} {
		name, value, _ := strings.Cut(tt.set, "=")
		res := Compute(Input{Hosts: []topology.Host{tt.host}, Job: Job{UsesGPU: &tt.gpu, Versions: &Versions{NCCL: "2.27.3"}, Settings: []Setting{{Name: name, Value: value, Origin: FromUser}}}})
		if !strings.HasPrefix(res.Contract, tt.contract) {
			t.Errorf("%s: %q, want %q", tt.name, res.Contract, tt.contract)
		}
		rails, others := -1, strings.Contains(tt.contract, " takes ")
		if res.Promise.Rails != nil {
			rails = *res.Promise.Rails
		}
		if number, _, _ := strings.Cut(tt.contract, " "); !others && strconv.Itoa(rails) != number || others && rails != -1 {
			t.Errorf("%s: %d rails promised by %q", tt.name, rails, res.Contract)
		}
		var found []string
		for _, f := range res.Findings {
			if f.Subject == name && f.Severity != "note" {
				found = append(found, f.ID)
			}
		}
		slices.Sort(found)
		if got := strings.Join(found, " "); got != tt.found {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.found)
		}
	}
}

func FuzzTakesPort(f *testing.F) {
	for _, s := range []string{"mlx5_[0-3]:1", "^=mlx5_1", "^all", "[", "]-[", "mlx5_[9-]:1", "a[1-2][3-4]"} {
		f.Add(s, "mlx5_2:1")
	}
	h := manyHCAs("n1", 1)
	f.Fuzz(func(t *testing.T, value, port string) {
		ucxTakes(value, port)
		parseFilter(value).takes(h.HCAs[0].Name, 1)
	})
}
