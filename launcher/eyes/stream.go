package eyes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

// StreamConfig is what a session on a node of a running job shows of it.
type StreamConfig struct {
	Dir      string   // the run's private directory, whose files are read; "" none
	Keep     bool     // what was read stays in them, and is written out at the end
	Make     bool     // the directory is made, and removed at the end
	Patterns []string // the user's own log files
	Shared   bool     // also where other nodes see them and their names hold no host
	Counters bool
	Pairs    bool   // what carries each pair of ranks
	Job      string // the mark of the job, which is ended here when it ends; "" none
	Promise  watch.Promise
	Devices  []string
	Ranks    time.Duration // how often the ranks are looked at; 0 never
	RAS      bool

	GPUs    string // the helper that knows how much the GPUs are used; "" none
	Temp    string // where temporary files go; "" not set
	Version string // of fabrun
	Say     io.Writer
}

// Stream writes what this node shows of a running job to out, as the lines of a
// record, until in ends: the session that started it is its life.
func Stream(ctx context.Context, cfg StreamConfig, in io.Reader, out io.Writer) error {
	if cfg.Make {
		launcher.SweepRunDirs(append(launcher.RunDirBases(cfg.Temp), filepath.Dir(cfg.Dir)))
		switch d, err := launcher.OpenRunDir(cfg.Dir); {
		case err == nil:
			defer d.Remove()
		case errors.Is(err, fs.ErrExist):
			// The nodes share this file system: the head has made it, reads it
			// and removes it.
			cfg.Dir, cfg.Keep = "", false
		default:
			return fmt.Errorf("--make: %w", err)
		}
	}
	if info, err := os.Stat(cfg.Dir); cfg.Dir != "" && (err != nil || !info.IsDir()) {
		return exit.WithHint(fmt.Errorf("--follow %q is no directory", cfg.Dir), "the run directory is made by 'fabrun run'")
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	follow := cfg.following(host)
	follow.Census() // before it is said that this session is open: then the ranks start
	rec := report.NewRecorder(out, time.Now, report.RecordStart{Host: host, Version: cfg.Version, Command: []string{}, Hosts: []string{host}})
	node := NewNode(cfg.node(host, follow, rec))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan bool, 1) // whether the job has
	go func() {
		defer cancel()
		last := ""
		lines := bufio.NewScanner(in) // any end of the input is the end
		for lines.Scan() {
			last = lines.Text() + "\n"
		}
		ended <- last == JobEnded
	}()
	node.Run(ctx)
	rec.Verdict(node.Watcher().Verdict())
	err = rec.Exit(report.RecordExit{})
	select {
	case over := <-ended:
		if over && cfg.Job != "" {
			launcher.EndMarked(cfg.Job)
		}
	default: // told to end by a signal
	}
	// After that: nobody writes to them any more.
	if cfg.Keep && cfg.Dir != "" {
		if err := eachLog(cfg.Dir, rec.Log); err != nil {
			fmt.Fprintf(cfg.Say, "keeping the logs of %s: %v\n", host, err)
		}
	}
	if err != nil {
		return fmt.Errorf("writing what was seen: %w", err)
	}
	return nil
}

// following are the files that are read on this host. On a shared file system each
// node reads its own processes' files.
func (cfg StreamConfig) following(host string) Following {
	out := Following{Dir: cfg.Dir, Keep: cfg.Keep}
	for _, p := range cfg.Patterns {
		if shared, _ := launcher.SharedLogs(p); shared {
			if !strings.Contains(p, "%h") && !cfg.Shared {
				continue
			}
			p = ForHost(p, host)
		}
		out.Patterns = append(out.Patterns, p)
	}
	return out
}

// node are the eyes of this host, whose words go into rec.
func (cfg StreamConfig) node(host string, follow Following, rec *report.Recorder) Config {
	out := Config{
		Host: host, Follow: follow, Pairs: cfg.Pairs, Known: watch.Known{Promise: cfg.Promise},
		OnEvent: rec.Event, OnSample: rec.Sample, Relay: rec.Relay, OnQuiet: rec.Quiet,
	}
	if cfg.Counters {
		out.Meter = NewMeter(host).WithGPUs(cfg.GPUs)
	}
	if cfg.Ranks > 0 && cfg.Job != "" {
		var gpus func() *float64
		if out.Meter != nil {
			gpus = out.Meter.GPUUse
		}
		out.Ranks, out.Every, out.OnLook = NewRanks(host, cfg.Job, cfg.Devices, cfg.RAS, gpus), cfg.Ranks, rec.Look
	}
	return out
}
