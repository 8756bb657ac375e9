package watch

import "time"

// Event is one thing that happened, said once per cause and not per rank.
type Event struct {
	Time     time.Time `json:"time"`     // when it was read; zero when read from a file
	ID       string    `json:"id"`       // "fallback", "network", "gdr-off", "ib-completion-error-12", …
	Severity string    `json:"severity"` // "error", "warning", "note"
	Host     string    `json:"host"`
	Rank     *int      `json:"rank"`
	Cause    string    `json:"cause,omitempty"` // cause ID of a fallback
	Text     string    `json:"text"`            // one sentence: what happened, what to do
	Line     string    `json:"line,omitempty"`  // the line it was read from, cut to a bounded length
}

// Verdict is what a log, or a running job, says about its transport. Its JSON
// is an interface (schema fabrun/watch/v1).
type Verdict struct {
	Schema              string   `json:"schema"`
	Library             string   `json:"library"` // "nccl", "rccl", "ucx", "openmpi", "intelmpi", …; "" none seen
	Version             string   `json:"version"`
	Networks            []string `json:"networks"`
	InterNodeTransports []string `json:"inter_node_transports"`
	GDR                 *bool    `json:"gdr"` // nil: the log cannot tell
	GDRPartial          bool     `json:"gdr_partial"`
	Devices             []string `json:"devices"`
	RanksSeen           *int     `json:"ranks_seen"`
	NRanks              *int     `json:"nranks"`
	Fallback            *bool    `json:"fallback"` // nil: the log cannot tell
	Cause               *string  `json:"cause"`
	Intentional         bool     `json:"intentional"` // the user chose that transport
	FatalErrors         []string `json:"fatal_errors"`
	Events              []Event  `json:"events"`
	Sentence            string   `json:"sentence"` // the verdict in one sentence, with the fix
}
