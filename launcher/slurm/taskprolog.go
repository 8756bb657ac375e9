package slurm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// TaskProlog prints a task's variables as Slurm wants them.
func (n Node) TaskProlog(ctx context.Context) error {
	var out bytes.Buffer
	p, w, err := n.Profiles(job.Sight{})
	if err != nil {
		return err
	}
	h, err := n.Host(ctx)
	if err != nil {
		return err
	}
	// The settings are the task's own, also when the node is looked at through --from.
	settings := cmdline.Settings(n.Env)
	res := envgen.Compute(envgen.Input{Hosts: []topology.Host{h}, Profile: p, Workload: w, Job: envgen.Job{Settings: settings}})
	if len(res.Hosts) == 0 {
		return nil
	}
	vars := slices.Clone(res.Hosts[0].Vars)
	if local, size := n.envNumber("SLURM_LOCALID"), n.tasksHere(); local != nil && size != nil {
		for _, mine := range envgen.RankVars(&h, res.Hosts[0], envgen.Rank{Local: *local, Size: *size}) {
			if i := slices.IndexFunc(vars, func(v envgen.Var) bool { return v.Name == mine.Name }); i >= 0 {
				vars[i] = mine
			}
		}
	}
	marker := cmdline.ParseMarker(n.Env)
	var set []string
	for _, v := range vars {
		// What the job has set stays, whoever set it but an outer fabrun.
		if old, ok := n.Getenv(v.Name); ok && !slices.Contains(marker.Vars, v.Name+"="+old) {
			continue
		}
		if v.Origin == envgen.FromSite || v.Origin == envgen.FromImage || hardGate(v) {
			continue
		}
		// One at a time: a value that the protocol cannot carry must not cost the others.
		if err := report.Env(&out, []envgen.Var{v}, "slurm"); err != nil {
			out.WriteString(taskPrint("fabrun: " + err.Error()))
			continue
		}
		set = append(set, v.Name+"="+v.Value)
	}
	if len(set) > 0 {
		m := envgen.Var{Name: cmdline.MarkerName, Value: cmdline.Marker{Dialect: "slurm", Vars: set}.String()}
		if err := report.Env(&out, []envgen.Var{m}, "slurm"); err != nil {
			return err
		}
	}
	if local := n.envNumber("SLURM_LOCALID"); local == nil || *local == 0 {
		for _, f := range res.Findings {
			if f.Severity == finding.Error {
				out.WriteString(taskPrint(fmt.Sprintf("fabrun: %s: %s %s. %s", n.name(), f.Subject, f.Seen, f.Hint)))
			}
		}
	}
	_, err = io.Copy(n.Stdout, &out)
	return err
}

// hardGate reports whether a variable would break a program that works without
// it: one whose MPI has no UCX component, whose UCX has no verbs, whose libfabric
// lacks the provider. A task prolog has not seen the program. What a profile's
// [env] says is the site's own word.
func hardGate(v envgen.Var) bool {
	return v.Origin == envgen.FromPlan && (strings.HasPrefix(v.Rule, "gate.") || v.Rule == "hca.ucx-devices")
}

// tasksHere is how many tasks of the step this node runs; nil unknown.
func (n Node) tasksHere() *int {
	text, _ := n.Getenv("SLURM_STEP_TASKS_PER_NODE")
	counts, err := hosts.ParseRunLengths(text)
	node := n.envNumber("SLURM_NODEID")
	if err != nil || node == nil || *node >= len(counts) {
		return nil
	}
	return &counts[*node]
}

func (n Node) envNumber(name string) *int {
	v, ok := n.Getenv(name)
	if !ok {
		return nil
	}
	number, err := strconv.Atoi(v)
	if err != nil || number < 0 {
		return nil
	}
	return &number
}
