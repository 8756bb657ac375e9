package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/envgen"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// portState is what the baseline remembers of a port.
type portState struct {
	Port     string   `json:"port"` // "mlx5_0:1"
	Active   bool     `json:"active"`
	State    string   `json:"state,omitempty"` // as sysfs says, for messages
	RateGbps *float64 `json:"rate_gbps"`       // null: unknown, or not to be trusted
}

// fabricPorts are the ports of this node that carry the fabric: those of its
// rails, or every active one where no rail was found. The others are listed
// too, as they are, so that a port of the baseline can be found again.
func fabricPorts(h topology.Host, res envgen.Result) []portState {
	rails := map[string]bool{}
	for _, r := range res.Rails {
		for _, port := range r.Ports {
			rails[port] = true
		}
	}
	var out []portState
	for _, hca := range h.HCAs {
		for _, p := range hca.Ports {
			s := portState{Port: hca.Name + ":" + strconv.Itoa(p.Number), State: p.StateText()}
			s.Active = p.Up() && (len(rails) == 0 || rails[s.Port])
			if p.RateTrusted {
				s.RateGbps = p.RateGbps
			}
			out = append(out, s)
		}
	}
	return out
}

// rateSlack is how far below the rate of before a port is called slow: less
// than any step of link speed or width.
const rateSlack = 0.95

// nodeFaults are the certain faults of a node: what was there before, or what
// the site's administrator said is there, and is not.
func nodeFaults(base, now []portState, h topology.Host, p profiles.Profile, ports int) []finding.Finding {
	var out []finding.Finding
	add := func(id, subject, seen, wanted, hint string) {
		out = append(out, finding.Finding{
			ID: id, Severity: finding.Error, Host: h.Name, Subject: subject, Seen: seen, Wanted: wanted,
			Why: "a job on this node would not use the fabric as planned", Hint: hint,
		})
	}
	const planned = "look at cable, transceiver and switch port; after a planned change remove baseline.json"
	active := 0
	for _, s := range now {
		if s.Active {
			active++
		}
	}
	for _, b := range base {
		i := slices.IndexFunc(now, func(s portState) bool { return s.Port == b.Port })
		switch {
		case i < 0 && active >= len(base):
			// As many as before under other names: udev renamed them.
		case i < 0:
			add("slurm.port-gone", b.Port, "no such port", "the port that was there before", planned)
		case !now[i].Active && (now[i].State == "" || strings.HasPrefix(now[i].State, "ACTIVE")):
			// Not known; or up, and not the job's by today's rules.
		case !now[i].Active:
			add("slurm.port-down", b.Port, now[i].State, "ACTIVE, as before", planned)
		case b.RateGbps != nil && now[i].RateGbps != nil && *now[i].RateGbps < rateSlack**b.RateGbps:
			add("slurm.port-slow", b.Port, fmt.Sprintf("%g Gb/s", *now[i].RateGbps), fmt.Sprintf("%g Gb/s, as before", *b.RateGbps), planned)
		}
	}
	if want := p.Fabric.RateGbps; want != nil {
		for _, s := range now {
			if s.Active && s.RateGbps != nil && *s.RateGbps < rateSlack**want && !slices.ContainsFunc(out, func(f finding.Finding) bool { return f.Subject == s.Port }) {
				add("slurm.port-slow", s.Port, fmt.Sprintf("%g Gb/s", *s.RateGbps), fmt.Sprintf("%g Gb/s (profile %s)", *want, p.Name), "look at cable, transceiver and switch port")
			}
		}
	}
	if active < ports {
		add("slurm.ports-missing", "fabric ports", fmt.Sprintf("%d active", active), fmt.Sprintf("%d (--ports)", ports), "'fabrun topo' lists the ports and why they are left out")
	}
	opens := slices.ContainsFunc(h.HCAs, func(c topology.HCA) bool {
		return topology.DriverNamed(c.Driver).Uverbs && slices.ContainsFunc(now, func(s portState) bool { return s.Active && strings.HasPrefix(s.Port, c.Name+":") })
	})
	if d := h.DeviceNodes; d != nil && opens && !slices.ContainsFunc(d.Names, func(n string) bool { return strings.HasPrefix(n, "uverbs") }) {
		add("slurm.no-uverbs", "/dev/infiniband", "no uverbs device", "one for each HCA", "modprobe ib_uverbs (as root)")
	}
	return out
}

// maxReason is what fits a line of sinfo -R, with room.
const maxReason = 160

// reasonMark begins every reason that fabrun writes, and no other's.
const reasonMark = "fabrun:"

// faultReason is a node's reason for Slurm: one line of plain characters; ""
// for none.
func faultReason(faults []finding.Finding) string {
	if len(faults) == 0 {
		return ""
	}
	var parts []string
	for _, f := range faults {
		parts = append(parts, f.Subject+" "+f.Seen+" ("+f.ID+")")
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\'' || r == '\\' {
			return -1
		}
		return r
	}, reasonMark+" "+strings.Join(parts, "; "))
	if len(text) > maxReason {
		text = text[:maxReason-3] + "..."
	}
	return text
}

// nodeState is what scontrol says of a node.
type nodeState struct {
	drained bool
	reason  string
}

// parseNodeState reads "scontrol --oneliner show node".
func parseNodeState(text string) nodeState {
	var s nodeState
	for _, w := range strings.Fields(text) {
		if state, ok := strings.CutPrefix(w, "State="); ok {
			s.drained = slices.ContainsFunc(strings.FieldsFunc(state, func(r rune) bool { return r == '+' || r == '*' }),
				func(flag string) bool { return strings.HasPrefix(flag, "DRAIN") })
		}
	}
	// The reason comes last and may hold blanks; Slurm adds "[user@time]" behind it.
	if _, rest, ok := strings.Cut(text, " Reason="); ok {
		rest, _, _ = strings.Cut(rest, "\n")
		if i := strings.LastIndex(rest, " ["); i >= 0 {
			rest = rest[:i]
		}
		s.reason = strings.TrimSpace(rest)
	}
	return s
}

type healthAction int

const (
	healthNothing healthAction = iota
	healthDrain
	healthResume
)

// goodLooks is how many good looks in a row resume a node: a flapping link must
// not make a flapping node.
const goodLooks = 2

// prologReason is the reason that slurmctld gives a node whose Prolog failed
// (src/slurmctld/proc_req.c).
const prologReason = "Prolog error"

// decideHealth drains a node for its faults, once, and resumes only what fabrun
// itself drained. noted is what its prolog found before Slurm drained the node:
// that reason is made fabrun's own, by which the node is resumed.
func decideHealth(s nodeState, noted string, faults []finding.Finding, good int) healthAction {
	switch {
	case len(faults) > 0 && !s.drained:
		return healthDrain
	case s.drained && noted != "" && strings.EqualFold(s.reason, prologReason):
		return healthDrain
	case len(faults) == 0 && s.drained && strings.HasPrefix(s.reason, reasonMark) && good >= goodLooks:
		return healthResume
	}
	return healthNothing
}

// taskPrint is a line that slurmstepd (src/slurmd/slurmstepd/task.c) prints to the task's standard output.
func taskPrint(text string) string {
	return "print " + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text) + "\n"
}

// nodeStore is the directory in which a node remembers. A nil store remembers
// nothing.
type nodeStore struct{ dir string }

// openNodeStore is where this node remembers. A snapshot is no look at this
// node: it has no store, and nothing is remembered of it.
func (a *app) openNodeStore(dir string) (*nodeStore, error) {
	if a.From != "" {
		return nil, nil
	}
	return openNodeStore(dir)
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
		fmt.Fprintf(log, "fabrun: %v\n", err)
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
		fmt.Fprintf(log, "fabrun: remember %s: %v\n", name, err)
	}
	return err == nil
}
