package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// someMetrics are of a job of two hosts that lost a rail and fell back.
func someMetrics() Metrics {
	yes, bytesMoved, tcp, status := true, uint64(3e12), uint64(7e9), 1
	all, left := 3200.0, 2800.0
	return Metrics{
		Run: "4711", Version: "v1", Slurm: "77", Launcher: `Open MPI 5 "x" \ y`, Began: time.Unix(1762205400, 5e8), Now: time.Unix(1762205460, 75e7), Hosts: 2,
		Verdict: watch.Verdict{Library: "nccl", Networks: []string{"Socket", "IB"}, Fallback: &yes, GDR: &yes},
		Counters: watch.CounterVerdict{Hosts: []watch.HostTraffic{
			{Host: "n1", RDMABytes: &bytesMoved, TCPBytes: &tcp, Ports: []watch.PortTraffic{
				{HCA: "mlx5_0", Port: 1, Delta: map[watch.Counter]uint64{watch.TxBytes: 1e12, watch.RxBytes: 5e11, watch.PauseRx: 12, watch.PauseRxUsec: 1500000}},
				{HCA: "mlx5_1", Port: 1, Delta: map[watch.Counter]uint64{watch.TxBytes: 1e12, watch.RxBytes: 5e11, watch.PauseRx: 1}},
			}},
			{Host: "n\n2", Ports: []watch.PortTraffic{{HCA: "rxe_0", Port: 1, Delta: map[watch.Counter]uint64{watch.TxPackets: 7}}}},
		}},
		Kept:   contract.Kept{Promised: 8, Kept: 7, AllGbps: &all, LeftGbps: &left, Losses: make([]contract.Loss, 3), Price: &contract.Price{Seconds: &contract.Range{Low: 5, High: 12.5}}},
		Events: map[EventKind]int{{"rail-lost", "warning"}: 2, {"fallback", "error"}: 1},
		Ended:  &status,
	}
}

// sample is one sample as a parser understood it.
func parsed(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	p := textparse.NewOpenMetricsParser([]byte(text))
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("OpenMetrics: %v\n%s", err, text)
		}
		if entry == textparse.EntrySeries {
			series, stamp, value := p.Series()
			var l labels.Labels
			p.Metric(&l)
			if stamp != nil {
				t.Errorf("%s has a time stamp, which node_exporter refuses", series)
			}
			if _, twice := out[l.String()]; twice {
				t.Errorf("%s is there twice", l)
			}
			out[l.String()] = value
		}
	}
}

// TestMetricsAreOpenMetrics: Prometheus' own parser reads them, and so does the one of
// the older format, with which node_exporter reads text files.
func TestMetricsAreOpenMetrics(t *testing.T) {
	for _, m := range []Metrics{someMetrics(), {Run: "1", Began: time.Unix(1, 0), Now: time.Unix(2, 0)}} {
		var b bytes.Buffer
		if err := WriteMetrics(&b, m); err != nil {
			t.Fatal(err)
		}
		got := parsed(t, b.String())
		var old expfmt.TextParser
		families, err := old.TextToMetricFamilies(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("text format 0.0.4: %v\n%s", err, b.String())
		}
		n := 0
		for _, f := range families {
			n += len(f.Metric)
		}
		if n != len(got) {
			t.Errorf("the parser of OpenMetrics found %d samples, the older one %d", len(got), n)
		}
	}
}

func TestMetricsValues(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMetrics(&b, someMetrics()); err != nil {
		t.Fatal(err)
	}
	got := parsed(t, b.String())
	for series, want := range map[string]float64{
		`{__name__="fabrun_job_info", launcher="Open MPI 5 \"x\" \\ y", run="4711", slurm_job="77", version="v1"}`: 1,
		`{__name__="fabrun_job_start_time_seconds", run="4711"}`:                                                   1762205400.5,
		`{__name__="fabrun_job_duration_seconds", run="4711"}`:                                                     60.25,
		`{__name__="fabrun_job_running", run="4711"}`:                                                              0,
		`{__name__="fabrun_job_exit_status", run="4711"}`:                                                          1,
		`{__name__="fabrun_verdict", run="4711", state="tcp"}`:                                                     1,
		`{__name__="fabrun_verdict", run="4711", state="rdma"}`:                                                    0,
		`{__name__="fabrun_transport", network="IB", run="4711"}`:                                                  1,
		`{__name__="fabrun_rails_kept", run="4711"}`:                                                               7,
		`{__name__="fabrun_rails_promised_bytes_per_second", run="4711"}`:                                          4e11,
		`{__name__="fabrun_rails_kept_bytes_per_second", run="4711"}`:                                              3.5e11,
		`{__name__="fabrun_rail_losses_total", run="4711"}`:                                                        3,
		`{__name__="fabrun_rdma_bytes_total", direction="sent", host="n1", run="4711"}`:                            2e12,
		`{__name__="fabrun_tcp_bytes_total", host="n1", run="4711"}`:                                               7e9,
		`{__name__="fabrun_pfc_pauses_total", direction="received", host="n1", run="4711"}`:                        13,
		`{__name__="fabrun_pfc_pause_seconds_total", direction="received", host="n1", run="4711"}`:                 1.5,
		`{__name__="fabrun_events_total", id="rail-lost", run="4711", severity="warning"}`:                         2,
		`{__name__="fabrun_network_time_lost_seconds", bound="most", run="4711"}`:                                  12.5,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	for series := range got {
		if strings.Contains(series, `host="n\n2"`) {
			t.Errorf("%s: that host counts no bytes and tells of no TCP: unknown is not 0", series)
		}
	}
}

// TestMetricNames: the conventions of Prometheus.
func TestMetricNames(t *testing.T) {
	for _, f := range metricFamilies {
		if f.unit != "" && !strings.HasSuffix(f.name, "_"+f.unit) {
			t.Errorf("%s: the unit %s is not last", f.name, f.unit)
		}
		if strings.HasSuffix(f.name, "_total") || !strings.HasPrefix(f.name, "fabrun_") || f.kind != "counter" && f.kind != "gauge" || f.about == "" {
			t.Errorf("%+v", f)
		}
	}
}

func metricsPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n`fabrun run --metrics FILE` writes these in the text format of OpenMetrics while the job runs, at its looks at the counters, and at its end. " +
		"The file is there whole or not at all, so node_exporter's textfile collector can read it (a name that ends in `.prom`, in its directory). " +
		"Every metric has the label `run`, by which fabrun knows the job and which no other job has: files of several jobs can lie side by side. What is not known is absent.\n\n" +
		"Generated from the program's own table ('make docs').\n\n| metric | type | labels | about |\n|---|---|---|---|\n")
	for _, f := range metricFamilies {
		name := f.name
		if f.kind == "counter" {
			name += "_total"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, f.kind, strings.Join(append([]string{"run"}, f.labels...), ", "), f.about)
	}
	b.WriteString("\nA rail that is lost while a job runs, and a fallback, as alerts:\n\n" +
		"```yaml\n- alert: FabrunRailLost\n  expr: fabrun_rails_kept < fabrun_rails_promised and fabrun_job_running == 1\n  for: 1m\n" +
		"- alert: FabrunFallback\n  expr: fabrun_verdict{state=\"tcp\"} == 1 and on (run) fabrun_job_running == 1\n```\n")
	return b.String()
}

// TestMetricsDocs holds docs/metrics.md against the table; 'make docs' writes it.
func TestMetricsDocs(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(path, []byte(metricsPage()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run make docs", err)
	}
	if d := cmp.Diff(metricsPage(), string(got)); d != "" {
		t.Errorf("docs/metrics.md is not what the table says (run make docs):\n%s", d)
	}
}
