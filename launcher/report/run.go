package report

import (
	"encoding/json"
	"io"

	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
	"fabrun/launcher/watch/contract"
	"fabrun/topology/finding"
)

// RunResult is what a run came to.
type RunResult struct {
	Status   int // of the job
	Signal   int // that ended it; 0 none
	WallS    float64
	Sentence string // the verdict
	Verdict  watch.Verdict
	Counters watch.CounterVerdict
	Kept     contract.Kept
	Plan     plan.Plan
}

type runJSON struct {
	Schema     string               `json:"schema"`
	ExitStatus int                  `json:"exit_status"` // of the job; fabrun's own 120 to 125
	Signal     *int                 `json:"signal"`      // that ended it; null: none did
	WallS      float64              `json:"wall_s"`      // seconds from start to end
	Verdict    string               `json:"verdict"`     // the last line for people
	Launcher   *string              `json:"launcher"`
	Hosts      []string             `json:"hosts"`
	RDMA       *bool                `json:"rdma"`     // could the job use RDMA, by the plan? null: no host was seen
	Contract   *string              `json:"contract"` // what the plan promised
	Watch      watch.Verdict        `json:"watch"`    // what the logs said
	Counters   watch.CounterVerdict `json:"counters"` // what the counters said
	Kept       contract.Kept        `json:"kept"`     // what became of the rails that the plan promised
	Findings   []finding.Finding    `json:"findings"` // of the plan and before the start
}

// RunJSON writes a run's result as one line of schema fabrun/run/v1.
func RunJSON(w io.Writer, r RunResult) error {
	var signal *int
	if r.Signal != 0 {
		signal = &r.Signal
	}
	hosts := []string{}
	for _, h := range r.Plan.Hosts.Hosts {
		hosts = append(hosts, h.Name)
	}
	return json.NewEncoder(w).Encode(runJSON{"fabrun/run/v1", r.Status, signal, r.WallS, r.Sentence, known(r.Plan.Launcher), hosts, r.Plan.HasRDMA(), known(r.Plan.Contract), r.Verdict, withLists(r.Counters), r.Kept, list(sorted(r.Plan.Findings))})
}
