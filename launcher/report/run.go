package report

import (
	"encoding/json"
	"io"

	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
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
	Plan     plan.Plan
}

// RunJSON writes a run's result as one line of schema fabrun/run/v1.
func RunJSON(w io.Writer, r RunResult) error {
	var signal *int
	if r.Signal != 0 {
		signal = &r.Signal
	}
	r.Counters.Hosts, r.Counters.Events = list(r.Counters.Hosts), list(r.Counters.Events)
	hosts := []string{}
	for _, h := range r.Plan.Hosts.Hosts {
		hosts = append(hosts, h.Name)
	}
	return json.NewEncoder(w).Encode(struct {
		Schema     string               `json:"schema"`
		ExitStatus int                  `json:"exit_status"`
		Signal     *int                 `json:"signal"`
		WallS      float64              `json:"wall_s"`
		Verdict    string               `json:"verdict"`
		Launcher   *string              `json:"launcher"`
		Hosts      []string             `json:"hosts"`
		RDMA       *bool                `json:"rdma"`
		Contract   *string              `json:"contract"`
		Watch      watch.Verdict        `json:"watch"`
		Counters   watch.CounterVerdict `json:"counters"`
		Findings   []finding.Finding    `json:"findings"`
	}{"fabrun/run/v1", r.Status, signal, r.WallS, r.Sentence, known(r.Plan.Launcher), hosts, r.Plan.HasRDMA(), known(r.Plan.Contract), r.Verdict, r.Counters, list(sorted(r.Plan.Findings))})
}
