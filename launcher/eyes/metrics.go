package eyes

import (
	"bytes"
	"fmt"
	"time"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

// metricsEvery is the least time between two writings of the metrics, but for a change
// of the rails and the end.
const metricsEvery = 5 * time.Second

// metrics are written to a file while the job runs. A file system that hangs holds up
// what is written there, and nothing else.
type metrics struct {
	file   string // "" none
	events map[report.EventKind]int
	wrote  time.Time
	writer *queue
	failed bool // and it was said; only the writer knows
}

// open writes the metrics of a job that has not begun: a file that cannot be written is
// said before the job starts.
func (m *metrics) open(w *Job) error {
	if m.file = w.cfg.Metrics; m.file == "" {
		return nil
	}
	m.events = map[report.EventKind]int{}
	if err := m.write(w.shown(nil)); err != nil {
		return &exit.Error{Code: exit.RunUsage, Err: fmt.Errorf("--metrics: %w", err)}
	}
	m.writer, m.wrote = newQueue(), time.Now()
	return nil
}

func (m *metrics) write(shown report.Metrics) error {
	var b bytes.Buffer
	if err := report.WriteMetrics(&b, shown); err != nil {
		return err
	}
	return files.Write(m.file, b.Bytes(), files.Shared)
}

// count counts an event.
func (m *metrics) count(e watch.Event) {
	if m.events != nil && len(m.events) < 10_000 {
		m.events[report.EventKind{ID: e.ID, Severity: e.Severity}]++
	}
}

// update has the metrics written where it is time; now: at once.
func (m *metrics) update(w *Job, now bool) {
	w.mu.Lock()
	if m.writer == nil || !now && time.Since(m.wrote) < metricsEvery {
		w.mu.Unlock()
		return
	}
	m.wrote = time.Now()
	w.mu.Unlock()
	shown := w.shown(nil)
	m.writer.put(func() { m.put(w, shown) })
}

// put writes, and says once that it cannot.
func (m *metrics) put(w *Job, shown report.Metrics) {
	if err := m.write(shown); err != nil && !m.failed {
		m.failed = true
		fmt.Fprintf(w.cfg.Say, "--metrics: %v\n", err)
	}
}

// end writes the last ones.
func (m *metrics) end(w *Job, r Result, status int) {
	if m.writer == nil {
		return
	}
	shown := w.shown(&r)
	shown.Ended = &status
	m.writer.put(func() { m.put(w, shown) })
	m.writer.close()
}

// shown is what the job has shown until now, or in the end.
func (w *Job) shown(r *Result) report.Metrics {
	out := report.Metrics{
		Run: w.cfg.Mark, Version: w.cfg.Version, Launcher: w.cfg.Plan.Launcher, Slurm: cmdline.Value(w.cfg.Env, "SLURM_JOB_ID"),
		Began: w.began, Now: time.Now(), Hosts: len(w.cfg.Plan.Hosts.Hosts), Events: map[report.EventKind]int{},
	}
	if r != nil {
		out.Verdict, out.Counters, out.Kept = r.Verdict, r.Counters, r.Kept
	} else {
		if w.here != nil {
			out.Verdict = w.here.Watcher().Verdict().AsAsked(w.asked)
		}
		w.mu.Lock()
		out.Counters = w.traffic.verdict
		w.mu.Unlock()
		out.Kept = w.kept(out.Verdict, out.Counters)
		out.Kept.Price = nil // while the job runs it is not over
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, n := range w.metrics.events {
		out.Events[k] = n
	}
	return out
}
