package report

import (
	"cmp"
	"strings"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
)

// JobEnd is what has to be known of a job to end it with one sentence.
type JobEnd struct {
	Hosts   int
	Nodes   int              // over which the job runs, at least; more than Hosts where others are started elsewhere; 0 unknown
	Dialect *cmdline.Dialect // of its launcher; nil not known
	RDMA    *bool            // a host of the job has usable RDMA; nil not known
	Look    plan.Look
	Failed  bool   // its status is not 0
	Kept    string // what became of the rails that the plan promised; "" nothing to say
}

// JobSentence is the last line of a run: what really carried the data, or why
// there is nothing to judge, and what became of the rails where there is something to
// say. It is never empty.
func JobSentence(v watch.Verdict, c watch.CounterVerdict, end JobEnd) string {
	return strings.TrimSpace(transportSentence(v, c, end) + " " + end.Kept)
}

func transportSentence(v watch.Verdict, c watch.CounterVerdict, end JobEnd) string {
	dialect := cmp.Or(end.Dialect, cmdline.Unknown)
	logs := v.Fallback != nil && *v.Fallback
	counted := c.Fallback != nil && *c.Fallback
	done := "Done: "
	if end.Failed {
		done = "Not judged: "
	}
	switch {
	case logs && v.Sentence != "":
		return v.Sentence
	case counted && c.Intentional:
		return "TCP, as was asked for: " + c.Text
	case counted:
		return "FALLBACK to TCP: " + c.Text
	case (len(v.FatalErrors) > 0 || v.Library != "" && v.Fallback != nil) && v.Sentence != "":
		return v.Sentence
	case end.RDMA != nil && !*end.RDMA && v.Library == "" && end.Hosts > 1:
		return done + "no host of the job has usable RDMA, so there was none to use."
	case c.Fallback != nil && end.Hosts > 1:
		return "No fallback: " + c.Text
	case v.Library == "" && end.Look.Blind() && end.Hosts != 1:
		return done + "what carried the data is not known: " + end.Look.Text() + "."
	case end.Hosts > 1 && c.Text != "":
		return done + "what carried the data is not known: " + c.Text
	case v.Library != "" && v.Sentence != "":
		return v.Sentence
	case dialect.Alone:
		return done + "no NCCL, UCX or MPI output was seen, so there is nothing to judge."
	case end.Hosts > 1:
		why := "no library said it, and no counters were read"
		if !end.Look.Whole() {
			why += "; " + end.Look.Text()
		}
		return done + "what carried the data is not known: " + why + "."
	case end.Hosts == 1 && (end.Nodes > 1 || v.NNodes != nil && *v.NNodes > 1):
		return done + "what carried the data is not known: the job has nodes that were not started here, no library said it, and no counters were read."
	case end.Hosts == 1 && end.Nodes == 0 && dialect.PerNode:
		return done + "what carried the data is not known: how many nodes the job had is not known, no library said it, and no counters were read."
	case end.Hosts == 1:
		return done + "one host, so nothing had to cross the fabric."
	}
	return done + "what carried the data is not known: the job's hosts are not known."
}
