package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
)

// Metrics is what a job has shown until now, for a monitoring system.
type Metrics struct {
	Run      string // tells it from other jobs
	Version  string // of fabrun
	Launcher string
	Slurm    string // the Slurm job; "" none
	Began    time.Time
	Now      time.Time
	Hosts    int
	Verdict  watch.Verdict
	Counters watch.CounterVerdict
	Kept     contract.Kept
	Events   map[EventKind]int
	Ended    *int // its exit status; nil it runs
}

// EventKind is what events are counted by.
type EventKind struct{ ID, Severity string }

// A metricFamily is one metric: its name without _total, by the conventions of
// Prometheus (base units, the unit last).
type metricFamily struct {
	name, unit, kind, about string
	labels                  []string // beside run
	samples                 func(m Metrics, add func(value float64, labels ...string))
}

// metricFamilies is the one table of metrics: what is written, and docs/metrics.md. The
// types are those that node_exporter's textfile collector knows, too, whose parser is of
// the older format: no info, no stateset, no time stamps.
var metricFamilies = []metricFamily{
	{"fabrun_job_info", "", "gauge", "1; the labels say what runs.", []string{"version", "launcher", "slurm_job"}, func(m Metrics, add func(float64, ...string)) {
		add(1, m.Version, m.Launcher, m.Slurm)
	}},
	{"fabrun_job_start_time_seconds", "seconds", "gauge", "When the job was started, since 1970.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(m.Began.UnixMilli()) / 1e3)
	}},
	{"fabrun_job_duration_seconds", "seconds", "gauge", "For how long the job runs, or ran.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(m.Now.Sub(m.Began).Milliseconds()) / 1e3)
	}},
	{"fabrun_job_running", "", "gauge", "1 while the job runs, 0 when it has ended.", nil, func(m Metrics, add func(float64, ...string)) {
		add(truth(m.Ended == nil))
	}},
	{"fabrun_job_exit_status", "", "gauge", "The job's exit status; absent while it runs.", nil, func(m Metrics, add func(float64, ...string)) {
		if m.Ended != nil {
			add(float64(*m.Ended))
		}
	}},
	{"fabrun_job_hosts", "", "gauge", "How many hosts the job has.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(m.Hosts))
	}},
	{"fabrun_verdict", "", "gauge", "1 for what is known of the way of the data, 0 for the others: rdma (no fallback), tcp (a fallback), tcp_asked (TCP, as was asked for), unknown.", []string{"state"}, func(m Metrics, add func(float64, ...string)) {
		now := verdictState(m.Verdict, m.Counters)
		for _, s := range []string{"rdma", "tcp", "tcp_asked", "unknown"} {
			add(truth(s == now), s)
		}
	}},
	{"fabrun_transport", "", "gauge", "1 for each network that the libraries' logs name.", []string{"network"}, func(m Metrics, add func(float64, ...string)) {
		for _, n := range slices.Sorted(slices.Values(m.Verdict.Networks)) {
			add(1, n)
		}
	}},
	{"fabrun_gpudirect", "", "gauge", "1 where GPUs and network exchange data without the host's memory, 0 where not; absent where no log tells.", nil, func(m Metrics, add func(float64, ...string)) {
		if m.Verdict.GDR != nil {
			add(truth(*m.Verdict.GDR))
		}
	}},
	{"fabrun_rails_promised", "", "gauge", "Rails that the plan promised.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(m.Kept.Promised))
	}},
	{"fabrun_rails_kept", "", "gauge", "Rails that are there; a slower one is.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(m.Kept.Kept))
	}},
	{"fabrun_rails_promised_bytes_per_second", "bytes_per_second", "gauge", "What the rails of a host were to carry together, in each direction; absent where nobody knows.", nil, func(m Metrics, add func(float64, ...string)) {
		addRate(m.Kept.AllGbps, add)
	}},
	{"fabrun_rails_kept_bytes_per_second", "bytes_per_second", "gauge", "What they carry as they are now.", nil, func(m Metrics, add func(float64, ...string)) {
		addRate(m.Kept.LeftGbps, add)
	}},
	{"fabrun_rail_losses", "", "counter", "How often a rail was lost, or became slower.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(len(m.Kept.Losses)))
	}},
	{"fabrun_gid_changes", "", "counter", "How often a GID changed that the job relies on.", nil, func(m Metrics, add func(float64, ...string)) {
		add(float64(len(m.Kept.GIDs)))
	}},
	{"fabrun_rdma_bytes", "bytes", "counter", "Bytes by RDMA since the start, by the ports' own counters; absent for hosts whose ports count none.", []string{"host", "direction"}, func(m Metrics, add func(float64, ...string)) {
		eachDirection(m, watch.TxBytes, watch.RxBytes, 1, add)
	}},
	{"fabrun_tcp_bytes", "bytes", "counter", "Bytes by TCP between the job's hosts since the start, sent and received; absent where the kernel does not tell.", []string{"host"}, func(m Metrics, add func(float64, ...string)) {
		for _, h := range m.Counters.Hosts {
			if h.TCPBytes != nil {
				add(float64(*h.TCPBytes), h.Host)
			}
		}
	}},
	{"fabrun_pfc_pauses", "", "counter", "Pause frames of priority flow control since the start; absent where no driver counts them.", []string{"host", "direction"}, func(m Metrics, add func(float64, ...string)) {
		eachDirection(m, watch.PauseTx, watch.PauseRx, 1, add)
	}},
	{"fabrun_pfc_pause_seconds", "seconds", "counter", "For how long these stopped all ports of the host together.", []string{"host", "direction"}, func(m Metrics, add func(float64, ...string)) {
		eachDirection(m, watch.PauseTxUsec, watch.PauseRxUsec, 1e-6, add)
	}},
	{"fabrun_events", "", "counter", "What was said of the job, by ID (rules.md).", []string{"id", "severity"}, func(m Metrics, add func(float64, ...string)) {
		kinds := slices.SortedFunc(maps.Keys(m.Events), func(a, b EventKind) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Severity, b.Severity))
		})
		for _, k := range kinds {
			add(float64(m.Events[k]), k.ID, k.Severity)
		}
	}},
	{"fabrun_network_time_lost_seconds", "seconds", "gauge", "What a fallback or lost rails cost: longer on the network than with what was promised, at least and at most; absent where there is no basis.", []string{"bound"}, func(m Metrics, add func(float64, ...string)) {
		if p := m.Kept.Price; p != nil && p.Seconds != nil {
			add(p.Seconds.Low, "least")
			add(p.Seconds.High, "most")
		}
	}},
}

// verdictState is what the logs say of the way of the data, or else the counters.
func verdictState(v watch.Verdict, c watch.CounterVerdict) string {
	fell, asked := v.Fallback, v.Intentional
	if fell == nil {
		fell, asked = c.Fallback, c.Intentional
	}
	switch {
	case fell == nil:
		return "unknown"
	case !*fell:
		return "rdma"
	case asked:
		return "tcp_asked"
	}
	return "tcp"
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func addRate(gbps *float64, add func(float64, ...string)) {
	if gbps != nil {
		add(*gbps * 1e9 / 8)
	}
}

// eachDirection adds a counter over the ports of each host.
func eachDirection(m Metrics, sent, received watch.Counter, factor float64, add func(float64, ...string)) {
	for _, h := range m.Counters.Hosts {
		for _, way := range []struct {
			word string
			c    watch.Counter
		}{{"sent", sent}, {"received", received}} {
			sum, known := uint64(0), false
			for _, p := range h.Ports {
				if n, ok := p.Delta[way.c]; ok {
					sum, known = sum+n, true
				}
			}
			if known {
				add(float64(sum)*factor, h.Host, way.word)
			}
		}
	}
}

// WriteMetrics writes what a job has shown in the text format of OpenMetrics 1.0.
func WriteMetrics(w io.Writer, m Metrics) error {
	var b strings.Builder
	for _, f := range metricFamilies {
		total := ""
		if f.kind == "counter" {
			total = "_total"
		}
		head := true
		f.samples(m, func(value float64, labels ...string) {
			if head {
				head = false
				fmt.Fprintf(&b, "# TYPE %s %s\n", f.name, f.kind)
				if f.unit != "" {
					fmt.Fprintf(&b, "# UNIT %s %s\n", f.name, f.unit)
				}
				fmt.Fprintf(&b, "# HELP %s %s\n", f.name, metricEscaper.Replace(f.about))
			}
			fmt.Fprintf(&b, `%s%s{run="%s"`, f.name, total, metricEscaper.Replace(m.Run))
			for i, l := range labels {
				fmt.Fprintf(&b, `,%s="%s"`, f.labels[i], metricEscaper.Replace(strings.ToValidUTF8(l, "\ufffd")))
			}
			fmt.Fprintf(&b, "} %s\n", strconv.FormatFloat(value, 'g', -1, 64))
		})
	}
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// metricEscaper is for the values of labels, and for help texts.
var metricEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
