package check

import (
	"slices"

	"fabrun/topology/finding"
)

// Stage is one step of standing a cluster up. The order is the point: what a
// later stage measures means nothing while an earlier one fails.
type Stage struct {
	ID    finding.Stage
	About string
	Do    string // what to do when it fails, beside its findings' own hints
}

// Stages is the order in which a new cluster is stood up.
func Stages() []Stage {
	return []Stage{
		{finding.StageLink, "wire and link", "cables, transceivers, switch ports and addresses first: nothing above them can work"},
		{finding.StageDriver, "driver, limits and PCIe", "the same driver, firmware and limits on every host, and every lane of every card"},
		{finding.StagePairs, "perftest between pairs, host memory", "repair the node, port or cable that is named, or leave the node out, and begin again"},
		{finding.StageGPUDirect, "GPUDirect", "nvidia_peermem or DMA-BUF, then ACS and IOMMU"},
		{finding.StageQoS, "QoS: marked, mapped, lossless", "make hosts and switches say the same: fabrun profile show NAME --host, and --switch"},
		{finding.StageCollectives, "nccl-tests and OSU on 1, 2, 4, 8 nodes", "one node against two tells whether it is the fabric; 'fabrun watch' on the log tells which network was taken"},
		{finding.StageSeparation, "other traffic apart from RDMA", "management, storage and clock on their own network or class"},
	}
}

// StageResult is how a stage went.
type StageResult struct {
	Stage    Stage
	Status   string // "passed", "failed", "skipped", "not reached"
	Why      string // of a stage that was skipped
	Findings []finding.Finding
}

// The statuses.
const (
	StagePassed     = "passed"
	StageFailed     = "failed"
	StageSkipped    = "skipped"
	StageNotReached = "not reached"
)

// RunStages goes through the stages until one has an error. measure runs what a
// stage measures and returns its findings, or why it could not be run; looked
// are the findings of looking at the hosts.
func RunStages(looked []finding.Finding, measure func(Stage) (fs []finding.Finding, skipped string, err error)) ([]StageResult, error) {
	var out []StageResult
	stopped := false
	for _, s := range Stages() {
		r := StageResult{Stage: s, Status: StageNotReached}
		if stopped {
			out = append(out, r)
			continue
		}
		for _, f := range looked {
			if k, _ := finding.KindOf(f.ID); k.Stage == s.ID {
				r.Findings = append(r.Findings, f)
			}
		}
		failed := func() bool {
			return slices.ContainsFunc(r.Findings, func(f finding.Finding) bool { return f.Severity == finding.Error })
		}
		r.Status = StagePassed
		if !failed() { // what looking has found is not worth measuring
			fs, skipped, err := measure(s)
			if err != nil {
				return out, err
			}
			r.Findings = append(r.Findings, fs...)
			if skipped != "" {
				r.Status, r.Why = StageSkipped, skipped
			}
		}
		if failed() {
			r.Status, stopped = StageFailed, true
		}
		finding.Sort(r.Findings)
		out = append(out, r)
	}
	return out, nil
}
