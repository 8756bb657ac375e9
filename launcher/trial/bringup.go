package trial

import (
	"context"
	"slices"

	"fabrun/launcher/check"
	"fabrun/launcher/measure"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

// BringUp goes through the order in which a cluster is stood up, on what
// looking has found and what each stage measures, and stops at the first stage
// that fails.
func (s Trial) BringUp(ctx context.Context, o Options, jobPorts [][]string, res *report.Checked) error {
	looked := res.Findings
	res.Findings = nil
	for i, h := range s.Hosts {
		looked = append(looked, check.Separation(h, s.Profile, jobPorts[i])...)
	}
	gpus := slices.ContainsFunc(s.Ports(), func(row []*measure.TestPort) bool {
		return slices.ContainsFunc(row, func(p *measure.TestPort) bool { return p != nil && p.GPU != nil })
	})
	// The counters of the pair test are judged in a later stage.
	var wire []finding.Finding
	measure := func(st check.Stage) (fs []finding.Finding, skipped string, err error) {
		part := report.Checked{Hosts: res.Hosts}
		switch st.ID {
		case finding.StagePairs, finding.StageGPUDirect:
			switch {
			case s.Transport == nil || len(s.Hosts) < 2:
				return nil, "two hosts or more are needed: --hosts", nil
			case st.ID == finding.StageGPUDirect && !gpus:
				return nil, "no GPU near a port of the job", nil
			}
			with := o
			if with.Pairs == "off" {
				with.Pairs = measure.Quick
			}
			with.GPU = st.ID == finding.StageGPUDirect
			with.Latency = with.Latency || st.ID == finding.StagePairs
			if err := s.Pairs(ctx, with, &part); err != nil {
				return nil, "", err
			}
			if st.ID == finding.StagePairs {
				res.Pairs, res.Coverage, res.Rounds = part.Pairs, part.Coverage, part.Rounds
			}
			for _, f := range part.Findings {
				switch {
				case f.ID == "qos.wire":
					wire = append(wire, f)
				case f.ID == "pair.no-cuda":
					return nil, f.Seen + ": " + f.Why, nil
				default:
					fs = append(fs, f)
				}
			}
			if slices.ContainsFunc(fs, func(f finding.Finding) bool { return f.ID == "pair.no-perftest" || f.ID == "pair.reach-only" }) {
				skipped = "perftest is missing: no bandwidth was measured"
			}
			return fs, skipped, nil
		case finding.StageQoS:
			if s.Profile.Fabric.QoS == nil {
				return nil, "no profile with a QoS plan: --profile", nil
			}
			return wire, "", nil
		case finding.StageCollectives:
			if s.Transport == nil || len(s.Hosts) < 2 {
				return nil, "two hosts or more are needed: --hosts", nil
			}
			skipped, err = s.Collectives(ctx, o, &part)
			res.Collectives = part.Collectives
			return part.Findings, skipped, err
		}
		return nil, "", nil
	}
	stages, err := check.RunStages(looked, func(st check.Stage) ([]finding.Finding, string, error) {
		s.Progress.Say("bring-up: %s", st.About)
		return measure(st)
	})
	if err != nil {
		return err
	}
	res.Stages = stages
	for _, st := range stages {
		res.Findings = append(res.Findings, st.Findings...)
	}
	return nil
}
