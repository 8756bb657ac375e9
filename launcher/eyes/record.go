package eyes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
)

// recording is what --record keeps of a job. Without it, nothing is kept.
type recording struct {
	to   *report.Recorder // nil takes everything and keeps nothing
	file *os.File
	kept *keptLogs
}

// open begins the record of a job that host has started.
func (r *recording) open(cfg JobConfig, host string) error {
	if cfg.Record == "" {
		return nil
	}
	f, err := files.OpenRecord(cfg.Record)
	if err != nil {
		return &exit.Error{Code: exit.RunUsage, Err: fmt.Errorf("--record: %w", err)}
	}
	r.file, r.kept = f, newKeptLogs(cfg.Record)
	start := report.RecordStart{Command: cfg.Plan.UserWords(), Host: host, Version: cfg.Version, Hosts: []string{}}
	for _, h := range cfg.Plan.Hosts.Hosts {
		start.Hosts = append(start.Hosts, h.Name)
	}
	r.to = report.NewRecorder(f, time.Now, start)
	var text bytes.Buffer
	if err := report.PlanJSON(&text, cfg.Plan); err == nil {
		r.to.Plan(text.Bytes())
	}
	return nil
}

// close ends the record with how the job ended.
func (r *recording) close(st launcher.Status, wallS float64) error {
	err := r.to.Exit(report.RecordExit{Code: st.Code, Signal: int(st.Signal), WallS: wallS})
	if err != nil {
		err = fmt.Errorf("--record: %w", err)
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

// keep takes a piece of another node's log.
func (w *Job) keep(node, name string, text []byte) {
	if w.record.kept != nil {
		w.record.kept.add(node, name, text)
	}
}

// keepLogs keeps this node's logs, and says where all of them are.
func (w *Job) keepLogs() error {
	if w.record.kept == nil {
		return nil
	}
	var err error
	if w.cfg.Dir != "" {
		err = eachLog(w.cfg.Dir, func(name string, text []byte) { w.record.kept.add("", name, text) })
	}
	dir, kerr := w.record.kept.close()
	if dir != "" && !w.cfg.Quiet {
		fmt.Fprintf(w.cfg.Say, "the libraries' logs are in %s\n", dir)
	}
	return errors.Join(err, kerr)
}
