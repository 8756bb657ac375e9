package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fabrun/launcher/check"
	"fabrun/launcher/measure"
	"fabrun/topology/finding"
	"fabrun/topology/pasted"
)

// someCheck is a pair test of n hosts: every pair in full mode where n is
// small, a few rounds where it is large, with a bad port, a one-way cable, and a
// dead host.
func someCheck(n, rails int) Checked {
	rnd := rand.New(rand.NewPCG(7, uint64(n)))
	c := Checked{Coverage: measure.Coverage(n, rails, measure.Full)}
	for i := range n {
		c.Hosts = append(c.Hosts, fmt.Sprintf("gpu%03d", i+1))
	}
	for _, round := range measure.Schedule(n, measure.Full) {
		for _, p := range round {
			for r := range rails {
				for _, d := range [][2]int{{p.A, p.B}, {p.B, p.A}} {
					rate := 200 * (0.962 + 0.03*rnd.Float64())
					cp := CheckedPair{From: c.Hosts[d[0]], To: c.Hosts[d[1]], HCAFrom: fmt.Sprintf("mlx5_%d", r), HCATo: fmt.Sprintf("mlx5_%d", r), Rail: r, Verdict: measure.Good}
					switch {
					case n > 4 && (d[0] == n-2 || d[1] == n-2):
						msg := "perftest.completion-12"
						cp.Error, cp.Verdict = &msg, measure.Broken
					case r == 0 && (d[0] == 1 || d[1] == 1):
						rate = 104 + 4*rnd.Float64()
						cp.Gbps, cp.Verdict = &rate, measure.Broken
					case r == rails-1 && d[0] == n/2:
						rate = 172 + 4*rnd.Float64()
						cp.Gbps, cp.Verdict = &rate, measure.Degraded
					default:
						cp.Gbps = &rate
					}
					c.Pairs = append(c.Pairs, cp)
				}
			}
		}
	}
	c.Findings = []finding.Finding{
		{ID: "pair.port", Severity: finding.Error, Host: c.Hosts[1], Subject: "mlx5_0 port 1 (rail 0)", Seen: "104.2 Gb/s both ways", Wanted: "at least 95 % of the rate, both ways", Why: "it is slow with every partner that is good with others: the port, its cable or its switch port; first suspect: PCIe (PCIe x8); ruled out: MTU (4096)", Hint: "look at the link: mlxlink -m -c -e; then PCIe width and NUMA node of the card"},
		{ID: "pair.port", Severity: finding.Warning, Host: c.Hosts[n/2], Subject: fmt.Sprintf("mlx5_%d port 1 (rail %d)", rails-1, rails-1), Seen: "172.9 Gb/s when it sends, fine when it receives", Wanted: "at least 95 % of the rate, both ways", Why: "<script>alert(1)</script> & \"quotes\"", Hint: "mlxlink -m -c -e on both ends of the cable"},
		{ID: "limits.hugepages", Severity: finding.Note, Host: c.Hosts[0], Subject: "huge pages", Seen: "none free", Wanted: "some", Why: "a library asked for them falls back"},
	}
	c.Stages = []check.StageResult{{Stage: check.Stages()[0], Status: check.StagePassed}, {Stage: check.Stages()[2], Status: check.StageFailed, Findings: c.Findings[:1]}, {Stage: check.Stages()[3], Status: check.StageNotReached}}
	bus := pasted.NCCLTests{Rows: []pasted.NCCLTestRow{{Bytes: 4 << 30, OutBus: new(46.2)}}}
	tcp := pasted.NCCLTests{Rows: []pasted.NCCLTestRow{{Bytes: 4 << 30, OutBus: new(2.4)}}}
	c.Collectives = []measure.CollectiveRun{
		{Benchmark: measure.Benchmarks()[0], Nodes: 2, Ranks: 16, Network: measure.OverRDMA, NCCL: &bus, Verdict: measure.Good},
		{Benchmark: measure.Benchmarks()[0], Nodes: 2, Ranks: 16, Network: measure.OverTCP, NCCL: &tcp, Verdict: measure.Unknown},
	}
	return c
}

// TestCheckHTML: the page asks nobody for anything, runs nothing, shows text as
// text, and every direction that was tested has its cell.
func TestCheckHTML(t *testing.T) {
	for _, n := range []int{1, 2, 4, 32, 128, 300} {
		c := someCheck(max(n, 2), 2)
		if n == 1 {
			c = Checked{Hosts: []string{"one"}}
		}
		var b bytes.Buffer
		if err := CheckHTML(&b, c); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if m := regexp.MustCompile(`(?i)https?://|src=|url\(|<script|<link|@import|<iframe|<img`).FindString(page); m != "" {
			t.Errorf("%d hosts: the page has %q", n, m)
		}
		if n == 300 { // blocks of hosts, with their worst: no browser draws so many cells
			if cells := strings.Count(page, "<title>"); cells > maxCells+200 || !strings.Contains(page, "gpu299: no result: perftest.completion-12") || !strings.Contains(page, `class="degraded"`) {
				t.Errorf("%d hosts: %d cells, or a block hides its worst", n, cells)
			}
			continue
		}
		if cells := strings.Count(page, "<title>") - 1 - strings.Count(page, " Gb/s: "); n > 1 && cells < len(c.Pairs) {
			t.Errorf("%d hosts: %d cells for %d directions", n, cells, len(c.Pairs))
		}
		if n > 1 && !strings.Contains(page, "46.2 GB/s bus bandwidth; over TCP 2.4 GB/s bus bandwidth: 19.3 times as fast") {
			t.Errorf("%d hosts: no benchmark", n)
		}
		if dir := os.Getenv("FABRUN_PAGES"); dir != "" { // to be looked at
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("check%d.html", n)), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
