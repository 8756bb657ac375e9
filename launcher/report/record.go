package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"fabrun/envgen/vars"
	"fabrun/launcher/hang"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
	"fabrun/topology/finding"
)

// SchemaRecord names the format of a recorded job: one JSON object a line.
const SchemaRecord = "fabrun/record/v1"

// recordLine is one line of a record: exactly one of the values is there.
type recordLine struct {
	Schema   string                `json:"schema,omitempty"` // first line only
	Time     time.Time             `json:"time"`
	Start    *RecordStart          `json:"start,omitempty"`
	Plan     json.RawMessage       `json:"plan,omitempty"`
	Finding  *finding.Finding      `json:"finding,omitempty"`
	Event    *watch.Event          `json:"event,omitempty"`
	Sample   *watch.Sample         `json:"sample,omitempty"`
	Verdict  *watch.Verdict        `json:"verdict,omitempty"`
	Counters *watch.CounterVerdict `json:"counters,omitempty"`
	Kept     *contract.Kept        `json:"kept,omitempty"` // what became of the rails that the plan promised
	Exit     *RecordExit           `json:"exit,omitempty"`
	Relay    string                `json:"relay,omitempty"` // a line for the user's eyes, of a session's stream only
	Quiet    *recordQuiet          `json:"quiet,omitempty"` // likewise
	Log      *recordLog            `json:"log,omitempty"`   // likewise
	Look     *hang.Look            `json:"look,omitempty"`  // likewise
}

// recordQuiet says that a node's logs have fallen silent, or go on.
type recordQuiet struct {
	Silent    bool             `json:"silent"`
	Processes []watch.Standing `json:"processes"`
}

// recordLog is a piece of a log file that is kept.
type recordLog struct {
	Name string `json:"name"`
	Text []byte `json:"text"` // base64: it may be cut anywhere, and hold anything
}

// RecordStart is what was started.
type RecordStart struct {
	Command []string `json:"command"`
	Host    string   `json:"host"`
	Version string   `json:"version"` // of fabrun
	Hosts   []string `json:"hosts"`
}

// RecordExit is how it ended.
type RecordExit struct {
	Code   int     `json:"code"`
	Signal int     `json:"signal,omitempty"`
	WallS  float64 `json:"wall_s"`
}

// Recorder writes a record while the job runs. The zero value writes nothing.
type Recorder struct {
	mu  sync.Mutex
	w   io.Writer
	now func() time.Time
	err error
}

// NewRecorder begins a record on w.
func NewRecorder(w io.Writer, now func() time.Time, start RecordStart) *Recorder {
	r := &Recorder{w: w, now: now}
	r.line(recordLine{Schema: SchemaRecord, Start: &start})
	return r
}

func (r *Recorder) line(l recordLine) {
	if r == nil || r.w == nil {
		return // nothing is recorded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	l.Time = r.now()
	text, err := json.Marshal(l)
	if err == nil {
		// One write a line: a job that is killed leaves whole lines.
		_, err = r.w.Write(append(vars.RedactJSON(text), '\n'))
	}
	r.err = err
}

// Plan records the plan as its JSON.
func (r *Recorder) Plan(planJSON []byte) { r.line(recordLine{Plan: planJSON}) }

// Finding records one finding.
func (r *Recorder) Finding(f finding.Finding) { r.line(recordLine{Finding: &f}) }

// Event records one event.
func (r *Recorder) Event(e watch.Event) { r.line(recordLine{Event: &e}) }

// Sample records one look at the counters.
func (r *Recorder) Sample(s watch.Sample) { r.line(recordLine{Sample: &s}) }

// Relay passes on a line that the user would have seen without fabrun.
func (r *Recorder) Relay(line string) { r.line(recordLine{Relay: line}) }

// Quiet says how far the processes of this node have come whose logs have fallen
// silent; nil: they go on.
func (r *Recorder) Quiet(procs []watch.Standing) {
	r.line(recordLine{Quiet: &recordQuiet{Silent: procs != nil, Processes: procs}})
}

// Look passes on what the ranks of this node do.
func (r *Recorder) Look(l hang.Look) { r.line(recordLine{Look: &l}) }

// Log passes on a piece of a log file of this node, to be kept beside the record.
func (r *Recorder) Log(name string, text []byte) { r.line(recordLine{Log: &recordLog{name, text}}) }

// StreamHandler takes what the session on another node says, as it says it.
type StreamHandler struct {
	Start   func(host string)
	Event   func(watch.Event)
	Sample  func(watch.Sample)
	Relay   func(line string)
	Verdict func(watch.Verdict)
	Quiet   func([]watch.Standing) // as of Recorder.Quiet
	Log     func(name string, text []byte)
	Look    func(hang.Look)
}

// ReadStream reads the stream of a session (fabrun watch --follow), which is a record
// of one node, to its end. Lines that are none of its are skipped: log-in
// banners come first on some clusters.
func ReadStream(r io.Reader, h StreamHandler) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxRecordLine)
	for sc.Scan() {
		var l recordLine
		if len(sc.Bytes()) == 0 || sc.Bytes()[0] != '{' || json.Unmarshal(sc.Bytes(), &l) != nil {
			continue
		}
		switch {
		case l.Start != nil && h.Start != nil:
			h.Start(l.Start.Host)
		case l.Event != nil && h.Event != nil:
			h.Event(*l.Event)
		case l.Sample != nil && h.Sample != nil:
			h.Sample(*l.Sample)
		case l.Relay != "" && h.Relay != nil:
			h.Relay(l.Relay)
		case l.Look != nil && h.Look != nil:
			h.Look(*l.Look)
		case l.Log != nil && h.Log != nil:
			h.Log(l.Log.Name, l.Log.Text)
		case l.Quiet != nil && h.Quiet != nil:
			switch {
			case !l.Quiet.Silent:
				h.Quiet(nil)
			case l.Quiet.Processes == nil:
				h.Quiet([]watch.Standing{})
			default:
				h.Quiet(l.Quiet.Processes)
			}
		case l.Verdict != nil && h.Verdict != nil:
			h.Verdict(*l.Verdict)
		}
	}
	return sc.Err()
}

// Verdict records what the logs said.
func (r *Recorder) Verdict(v watch.Verdict) {
	v.Events = []watch.Event{} // each has its own line
	r.line(recordLine{Verdict: &v})
}

// Counters records what the counters said.
func (r *Recorder) Counters(v watch.CounterVerdict) {
	v = withLists(v)
	r.line(recordLine{Counters: &v})
}

// withLists is a verdict with [] and not null for "none" in JSON.
func withLists(v watch.CounterVerdict) watch.CounterVerdict {
	v.Hosts, v.Events = slices.Clone(list(v.Hosts)), list(v.Events)
	for i := range v.Hosts {
		v.Hosts[i].Ports = list(v.Hosts[i].Ports)
	}
	return v
}

// Kept records what became of the rails that the plan promised.
func (r *Recorder) Kept(k contract.Kept) { r.line(recordLine{Kept: &k}) }

// Exit records the end, and returns the first error of all writing.
func (r *Recorder) Exit(e RecordExit) error {
	r.line(recordLine{Exit: &e})
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Record is a recorded job, read back.
type Record struct {
	Start    RecordStart           `json:"start"`
	Began    time.Time             `json:"began"`
	Ended    *time.Time            `json:"ended"` // nil: the record stops before the job did
	Plan     *RecordedPlan         `json:"plan"`
	Findings []finding.Finding     `json:"findings"`
	Events   []watch.Event         `json:"events"`
	Samples  []watch.Sample        `json:"samples"`
	Verdict  *watch.Verdict        `json:"verdict"`
	Counters *watch.CounterVerdict `json:"counters"`
	Kept     *contract.Kept        `json:"kept"` // null: the record stops before, or is of an older fabrun
	Exit     *RecordExit           `json:"exit"`
	// LeftOut counts findings, events and samples behind the first thousands.
	LeftOut int `json:"left_out"`
	// Truncated: the last line is cut off.
	Truncated bool `json:"truncated"`
}

// RecordedPlan is what a report shows of a plan.
type RecordedPlan struct {
	Dialect  string            `json:"dialect"`
	Contract *string           `json:"contract"`
	RDMA     *bool             `json:"rdma"`
	Looked   *lookedJSON       `json:"looked"`
	Argv     []string          `json:"argv"`
	Env      []RecordedVar     `json:"env"`
	Kept     []RecordedVar     `json:"kept"`
	Findings []finding.Finding `json:"findings"`
	Hosts    planHostsJSON     `json:"hosts"`
}

// RecordedVar is a variable of a recorded plan.
type RecordedVar struct {
	Name     string   `json:"name"`
	Value    string   `json:"value"`
	Origin   string   `json:"origin"`
	Rule     string   `json:"rule"`
	Why      string   `json:"why"`
	Evidence []string `json:"evidence"`
}

const (
	maxRecordLine    = 16 << 20
	maxRecordSamples = 100_000
	maxRecordWords   = 10_000 // findings, and events: nobody reads more
)

// ReadRecord reads a record. A job that was killed leaves a record without an
// end, and that is no error; a file that is no record is one.
func ReadRecord(r io.Reader) (Record, error) {
	rec := Record{Findings: []finding.Finding{}, Events: []watch.Event{}, Samples: []watch.Sample{}}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxRecordLine)
	n := 0
	for sc.Scan() {
		n++
		if rec.Truncated {
			return rec, fmt.Errorf("line %d is not a line of a record", n-1)
		}
		if len(sc.Bytes()) == 0 {
			continue
		}
		var l recordLine
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			if n == 1 {
				return rec, fmt.Errorf("line 1 is not the beginning of a record (made by 'fabrun run --record FILE'): %w", err)
			}
			rec.Truncated = true
			continue
		}
		if n == 1 {
			if l.Schema != SchemaRecord || l.Start == nil {
				return rec, fmt.Errorf("not a record: schema %q, want %q", l.Schema, SchemaRecord)
			}
			rec.Began = l.Time
		}
		if err := rec.take(l); err != nil {
			return rec, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return rec, fmt.Errorf("line %d: %w", n+1, err)
	}
	if n == 0 {
		return rec, io.ErrUnexpectedEOF
	}
	return rec, nil
}

// keep adds to a list of a record, up to a bound.
func keep[T any](rec *Record, list *[]T, v T, most int) {
	if len(*list) >= most {
		rec.LeftOut++
		return
	}
	*list = append(*list, v)
}

func (rec *Record) take(l recordLine) error {
	switch {
	case l.Start != nil:
		rec.Start = *l.Start
	case l.Plan != nil:
		rec.Plan = &RecordedPlan{}
		if err := json.Unmarshal(l.Plan, rec.Plan); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		for _, f := range rec.Plan.Findings {
			keep(rec, &rec.Findings, f, maxRecordWords)
		}
	case l.Finding != nil:
		keep(rec, &rec.Findings, *l.Finding, maxRecordWords)
	case l.Event != nil:
		if l.Event.Time.IsZero() {
			l.Event.Time = l.Time
		}
		keep(rec, &rec.Events, *l.Event, maxRecordWords)
	case l.Sample != nil:
		keep(rec, &rec.Samples, *l.Sample, maxRecordSamples)
	case l.Verdict != nil:
		rec.Verdict = l.Verdict
	case l.Counters != nil:
		rec.Counters = l.Counters
	case l.Kept != nil:
		rec.Kept = l.Kept
	case l.Exit != nil:
		rec.Exit = l.Exit
		end := l.Time
		rec.Ended = &end
	}
	return nil
}
