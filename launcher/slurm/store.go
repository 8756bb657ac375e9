package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fabrun/launcher/files"
	"fabrun/launcher/report"
)

// nodeStore is the directory in which a node remembers. A nil store remembers
// nothing.
type nodeStore struct{ dir string }

// openStore is where this node remembers. A snapshot is no look at this node: it has
// no store, and nothing is remembered of it.
func (n Node) openStore() (*nodeStore, error) {
	if n.From != "" {
		return nil, nil
	}
	return openNodeStore(n.State)
}

// openNodeStore makes the directory, and refuses one that others could write.
func openNodeStore(dir string) (*nodeStore, error) {
	if err := os.MkdirAll(filepath.Join(dir, "jobs"), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("state directory %q: others can write it; wanted a directory of our own with mode 0700", dir)
	}
	return &nodeStore{dir}, nil
}

// keptJobs is how many job records stay.
const keptJobs = 500

func (s *nodeStore) loadJob(job string) (report.NodeJob, error) {
	var r report.NodeJob
	return r, s.read(filepath.Join("jobs", job+".json"), &r)
}

func (s *nodeStore) saveJob(job string, r report.NodeJob, log io.Writer) {
	r.Schema = report.SchemaNodeJob
	if s == nil || !s.write(filepath.Join("jobs", job+".json"), r, log) {
		return
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "jobs"))
	if err != nil || len(entries) <= keptJobs {
		return
	}
	when := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return when(a).Compare(when(b)) })
	for _, e := range entries[:len(entries)-keptJobs] {
		//nolint:errcheck // another prolog may have removed it
		_ = os.Remove(filepath.Join(s.dir, "jobs", e.Name()))
	}
}

// baseline is what a good look found: the ports that carried the fabric.
type baseline struct {
	Ports []portState `json:"ports"`
}

// baseline returns the ports that a good look found before; nil on a first look.
func (s *nodeStore) baseline() []portState {
	var b baseline
	if s == nil || s.read("baseline.json", &b) != nil {
		return nil
	}
	return b.Ports
}

// saveBaseline adds what is active now, at the highest rate seen. A port that is
// gone without a fault has another name now.
func (s *nodeStore) saveBaseline(base, now []portState, log io.Writer) {
	next := slices.DeleteFunc(slices.Clone(base), func(b portState) bool {
		return !slices.ContainsFunc(now, func(p portState) bool { return p.Port == b.Port })
	})
	changed := len(next) < len(base)
	for _, p := range now {
		if !p.Active {
			continue
		}
		i := slices.IndexFunc(next, func(b portState) bool { return b.Port == p.Port })
		switch {
		case i < 0:
			next, changed = append(next, p), true
		case p.RateGbps != nil && (next[i].RateGbps == nil || *p.RateGbps > *next[i].RateGbps):
			next[i], changed = p, true
		}
	}
	if s != nil && changed {
		s.write("baseline.json", baseline{next}, log)
	}
}

// goodCache is the last good look of a prolog.
type goodCache struct {
	Key  string    `json:"key"`
	Boot string    `json:"boot"`
	Time time.Time `json:"time"`
}

func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (s *nodeStore) cachedGood(key string, within time.Duration, now time.Time) bool {
	var c goodCache
	if s == nil || s.read("good.json", &c) != nil {
		return false
	}
	age := now.Sub(c.Time)
	return c.Key == key && c.Boot == bootID() && age >= 0 && age < within
}

func (s *nodeStore) saveCache(key string, now time.Time, log io.Writer) {
	if s != nil {
		s.write("good.json", goodCache{key, bootID(), now}, log)
	}
}

// faultFile is what the prolog found when it failed last.
const faultFile = "fault.json"

type notedFault struct {
	Boot   string    `json:"boot"`
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

func (s *nodeStore) saveFault(reason string, log io.Writer) {
	if s != nil {
		s.write(faultFile, notedFault{bootID(), time.Now(), reason}, log)
	}
}

// fault is the noted reason; "" none of this boot.
func (s *nodeStore) fault() string {
	var f notedFault
	if s.read(faultFile, &f) != nil || f.Boot != bootID() {
		return ""
	}
	return f.Reason
}

// forget removes a file that may not be there.
func (s *nodeStore) forget(name string) {
	if s != nil {
		//nolint:errcheck // it is read again only with the same node and boot
		_ = os.Remove(filepath.Join(s.dir, name))
	}
}

// countGood counts good looks in a row.
func (s *nodeStore) countGood(good bool, log io.Writer) int {
	var c struct {
		Good int `json:"good_looks"`
	}
	// A first look has nothing to read.
	if err := s.read("health.json", &c); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(log, "%v\n", err)
	}
	c.Good++
	if !good {
		c.Good = 0
	}
	s.write("health.json", c, log)
	return c.Good
}

func (s *nodeStore) read(name string, into any) error {
	text, err := files.Read(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %q: %w", filepath.Join(s.dir, name), err)
	}
	return nil
}

// write replaces a file as a whole; a failure is said and goes on.
func (s *nodeStore) write(name string, value any, log io.Writer) bool {
	err := func() error {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return err
		}
		return files.Replace(filepath.Join(s.dir, name), append(text, '\n'), files.Private, nil)
	}()
	if err != nil {
		fmt.Fprintf(log, "remember %s: %v\n", name, err)
	}
	return err == nil
}
