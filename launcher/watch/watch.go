package watch

import (
	"sync"
	"time"
)

// Event is one thing that happened, said once per cause and not per rank.
type Event struct {
	Time     time.Time `json:"time"`     // when it was read; zero when read from a file
	ID       string    `json:"id"`       // "fallback", "network", "gdr-off", "ib-completion-error-12", …
	Severity string    `json:"severity"` // "error", "warning", "note"
	Host     string    `json:"host"`
	Rank     *int      `json:"rank"`
	Subject  string    `json:"subject,omitempty"` // the port that it is about, "mlx5_3:1"
	Device   *int      `json:"device,omitempty"`  // NCCL's number of a device of a merged NIC
	Cause    string    `json:"cause,omitempty"`   // cause ID of a fallback
	Text     string    `json:"text"`              // one sentence: what happened, what to do
	Block    string    `json:"block,omitempty"`   // several lines that tell more, to paste into a report
	Line     string    `json:"line,omitempty"`    // the line it was read from, cut to a bounded length
}

// Severities of an Event.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
	SeverityNote    = "note"
)

// EventKnownBug is the ID of a note on a known bug of the library's version.
const EventKnownBug = "version-known-bug"

// SchemaVerdict names the JSON of a Verdict.
const SchemaVerdict = "fabrun/watch/v1"

// Verdict is what a log, or a running job, says about its transport. Its JSON
// is an interface (schema fabrun/watch/v1).
type Verdict struct {
	Schema              string    `json:"schema"`
	Library             string    `json:"library"` // "nccl", "rccl", "ucx", "openmpi", "intelmpi", …; "" none seen
	Version             string    `json:"version"`
	Networks            []string  `json:"networks"`
	InterNodeTransports []string  `json:"inter_node_transports"`
	GDR                 *bool     `json:"gdr"` // nil: the log cannot tell
	GDRPartial          bool      `json:"gdr_partial"`
	GDRRanks            *GDRRanks `json:"gdr_ranks"` // nil: the log does not tell by rank
	// Connections of NCCL between nodes that were seen; nil: none was.
	Connections *Connections `json:"connections"`
	Devices     []string     `json:"devices"`
	RanksSeen   *int         `json:"ranks_seen"`
	NRanks      *int         `json:"nranks"`
	NNodes      *int         `json:"nnodes"`
	Fallback    *bool        `json:"fallback"` // nil: the log cannot tell
	Cause       *string      `json:"cause"`
	Intentional bool         `json:"intentional"` // it is shown that the user chose that transport
	FatalErrors []string     `json:"fatal_errors"`
	Pairs       []Pair       `json:"pairs,omitempty"` // only where they were asked for
	Events      []Event      `json:"events"`
	Sentence    string       `json:"sentence"` // the verdict in one sentence, with the fix
	// Runs are those of which one log tells, oldest first, where it is more than one:
	// the verdict is that of the last.
	Runs []Verdict `json:"runs,omitempty"`
}

// Connections counts those of NCCL between nodes, by how they reach the GPU's memory.
type Connections struct {
	Direct  int `json:"direct"`
	Relayed int `json:"relayed"` // by way of another GPU of the node
	Staged  int `json:"staged"`  // through the host's memory
	Untold  int `json:"untold"`  // the line was cut off before it said
}

// GDRRanks is GPUDirect rank by rank, in the numbers of the largest communicator:
// all of its connections to other nodes, some, or none go between the GPU's memory
// and the device without the host's.
type GDRRanks struct {
	Yes    []int `json:"yes"`
	Partly []int `json:"partly"`
	No     []int `json:"no"`
}

// Pair is what carries the channels from one rank to another, in the numbers
// of their communicator.
type Pair struct {
	From     int    `json:"from"`
	To       int    `json:"to"`
	Via      string `json:"via"` // "NET/IB/GDRDMA", "NET/Socket", "P2P", "SHM"
	Channels int    `json:"channels"`
}

// Options of a Watcher. The zero value reads a file that is already written.
type Options struct {
	// OnEvent is called for each new event, in the goroutine that wrote the
	// bytes, with the Watcher locked: it must not call back.
	OnEvent func(Event)
	// Relay gets the warnings and errors of UCX, whose log was taken off the
	// job's streams, under the same rules as OnEvent. nil: they are not relayed.
	Relay func(line string)
	// Pairs keeps what carries the channels of each pair of ranks.
	Pairs bool
	// Now stamps events; nil leaves their time zero (a file is read, not a job).
	Now func() time.Time
	// Host is where bytes come from whose lines do not name a host.
	Host string
	// Known is what is known of the job beside its logs.
	Known Known
}

// Known is what a plan or a machine tells of a job. The zero value knows nothing.
type Known struct {
	OneNode bool              // all ranks run on one node
	RDMA    bool              // its hosts have usable RDMA
	Env     map[string]string // what the ranks see of the user's settings
	Promise Promise           // of the plan
}

// Watcher gathers what any number of streams and files of one job say.
// Its memory does not grow with the length of what it reads; it grows with the
// number of processes, up to a bound.
type Watcher struct {
	mu   sync.Mutex
	opt  Options
	runs *runs
}

// New returns a Watcher that has seen nothing.
func New(opt Options) *Watcher {
	return &Watcher{opt: opt, runs: newRuns(opt)}
}

// at returns the run in which a source is whose next line is read.
func (w *Watcher) at(run *int) *state {
	w.runs.at = run
	return w.runs.all[*run]
}

// Verdict says what the Watcher has seen so far, of the last run.
func (w *Watcher) Verdict() Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs.verdict()
}

// Events returns what happened so far, oldest first.
func (w *Watcher) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Event
	for _, st := range w.runs.all {
		out = append(out, st.events...)
	}
	return out
}

// Progress counts the lines of libraries that were read: it stands still where
// the job does.
func (w *Watcher) Progress() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := uint64(0)
	for _, st := range w.runs.all {
		n += st.lines
	}
	return n
}

// elide notes that lines were left out, as people do with "..." in what they
// quote: then nothing can be counted.
func (w *Watcher) elide() {
	w.mu.Lock()
	w.runs.latest().elided = true
	w.mu.Unlock()
}
