package hang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rasJSON is an answer in the form of NCCL's documentation (user guide, RAS, "JSON
// Output"), with the ranks that counts and missing tell of.
func rasJSON(counts []int, missing string) string {
	var ranks []string
	for r, n := range counts {
		ranks = append(ranks, fmt.Sprintf(`{"rank": %d, "host": "10.0.0.%d", "pid": %d, "cuda_dev": 0, "nvml_dev": 0,
 "status": {"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false},
 "collective_counts": {"Broadcast": 1, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": %d}}`, r, r+1, 100+r, n))
	}
	return fmt.Sprintf(`{"nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2026-11-01 13:06:53",
 "communicators_count": 1, "communicators": [{"hash": "0xae94", "secondary_hash": "0xb7e7:0xb824", "size": 4,
 "ranks_count": %d, "missing_ranks_count": 0, "ranks": [%s], "missing_ranks": [%s]}],
 "ras": {"collection_time_sec": 0.000, "timeouts_count": 0}}
`, len(counts), strings.Join(ranks, ", "), missing)
}

func TestParseRAS(t *testing.T) {
	silent := `{"rank": 3, "host": "10.0.0.4", "pid": 103, "cuda_dev": 1, "nvml_dev": 1, "status": {"unresponsive": true, "considered_dead": %v}}`
	for _, c := range []struct {
		name, text string
		want       Comm
	}{
		{"healthy", "OK\nOK\n" + rasJSON([]int{12, 12, 12, 12}, ""), Comm{Total: 52}},
		{"one lags", rasJSON([]int{12, 12, 11, 12}, ""), Comm{Total: 51, BehindN: 1, Behind: []RASRank{{Rank: 2, Host: "10.0.0.3", PID: 102, Op: "AllReduce", Count: 11, Most: 12}}}},
		{"one does not answer", rasJSON([]int{12, 12, 12}, fmt.Sprintf(silent, false)), Comm{Total: 39, SilentN: 1, Silent: []RASRank{{Rank: 3, Host: "10.0.0.4", PID: 103}}}},
		{"one is dead", rasJSON([]int{12, 12, 12}, fmt.Sprintf(silent, true)), Comm{Total: 39, SilentN: 1, Silent: []RASRank{{Rank: 3, Host: "10.0.0.4", PID: 103, Dead: true}}}},
		{"one is on its way out", rasJSON([]int{12, 12, 12}, strings.ReplaceAll(fmt.Sprintf(silent, false), "true", "false")), Comm{Total: 39}},
		{"one is on its way in", strings.Replace(rasJSON([]int{0, 0}, ""), `"init_state": 0`, `"init_state": 7`, 1), Comm{Total: 2, Starting: 1}},
		{"one has failed", strings.Replace(rasJSON([]int{0, 0}, ""), `"async_error": 0`, `"async_error": 6`, 1), Comm{Total: 2, Failed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseRAS([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			c.want.ID, c.want.Size = "0xae94 0xb7e7:0xb824", 4
			if d := cmp.Diff(RAS{Version: "2.29.1", Comms: []Comm{c.want}}, got); d != "" {
				t.Error(d)
			}
		})
	}
	for text, want := range map[string]string{
		"": "no JSON", "ERROR: Unknown command SET FORMAT json\nNCCL version 2.24.3 compiled with CUDA 12.4\n": "before NCCL 2.28.7",
		"ERROR: Invalid format json\n{}": "Invalid format", "OK\n{\"nccl_version\": 7}": "cannot unmarshal", "OK\n{\"communic": "unexpected EOF", "{}": "no communicators",
	} {
		if got, err := ParseRAS([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func FuzzParseRAS(f *testing.F) {
	f.Add([]byte("OK\n" + rasJSON([]int{1, 2, 3}, "")))
	f.Add([]byte(`{"communicators":[{"ranks":[{"collective_counts":{"":18446744073709551615}}],"missing_ranks":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRAS(text)
		if err == nil && len(r.Comms) > maxComms {
			t.Errorf("%d communicators", len(r.Comms))
		}
		for _, c := range r.Comms {
			if len(c.Behind) > maxRASRanks || len(c.Silent) > maxRASRanks || len(c.Behind) > c.BehindN {
				t.Errorf("%+v", c)
			}
		}
	})
}
