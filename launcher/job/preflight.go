package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/measure"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/launcher/trial"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// What run does before a job.
const (
	PreflightOff  = "off"  // what the plan itself needs
	PreflightLook = "look" // every check on every host; no traffic on the fabric
	// quick and full measure pairs as well (measure.Quick, measure.Full).
)

// PreflightMode is a flag that takes one of the four.
type PreflightMode string

func (m *PreflightMode) String() string { return string(*m) }
func (m *PreflightMode) Type() string   { return "string" }

func (m *PreflightMode) Set(value string) error {
	if !slices.Contains([]string{PreflightOff, PreflightLook, string(measure.Quick), string(measure.Full)}, value) {
		return errors.New("one of look, quick, full, off")
	}
	*m = PreflightMode(value)
	return nil
}

func fileThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Without leaves hosts out of an allocation. A name with a slash, or of a file
// that is there, is a file; an empty one leaves out nobody.
func Without(alloc hosts.Allocation, exclude string) (hosts.Allocation, []string, error) {
	var out hosts.Allocation
	var err error
	if fileThere(exclude) || strings.Contains(exclude, "/") {
		text, rerr := files.Read(exclude)
		if rerr != nil {
			return alloc, nil, exit.WithHint(fmt.Errorf("--exclude: %w", rerr), "a file with a host a line, or a list like 'node[03,07]'")
		}
		if strings.TrimSpace(string(text)) == "" {
			return alloc, nil, nil
		}
		out, err = hosts.ParseHostfile(text, hosts.AnySyntax)
	} else {
		out, err = hosts.ParseList(exclude)
	}
	if err != nil {
		return alloc, nil, exit.UsageError(fmt.Errorf("--exclude: %w", err), "a file with a host a line, or a list like 'node[03,07]'")
	}
	left, err := hosts.Narrow(alloc, hosts.Allocation{Source: alloc.Source + " without --exclude", Exclude: out.Names()})
	if err != nil {
		return alloc, nil, exit.WithHint(err, "--exclude leaves no host")
	}
	gone := alloc.Names()
	for _, h := range left.Hosts {
		if i := slices.Index(gone, h.Name); i >= 0 {
			gone = slices.Delete(gone, i, i+1)
		}
	}
	return left, gone, nil
}

// leaveOut is --exclude: the job's hosts without those, which the launcher then
// has to be told.
func (o Options) leaveOut(job *Sight, env []string) error {
	if o.Exclude == "" {
		return nil
	}
	alloc, gone, err := Without(job.alloc, o.Exclude)
	if err != nil || len(gone) == 0 {
		return err
	}
	if src := job.cmd.HostSource(env); src != nil && o.Hosts == "" && o.Hostfile == "" {
		return exit.UsageError(fmt.Errorf("--exclude %s: the launcher's own %s names them", hosts.Compress(gone), src.Option), "name the hosts to fabrun instead: --hosts or --hostfile")
	}
	job.alloc, job.given = alloc, true
	job.notes = append(job.notes, fmt.Sprintf("left out: %s (--exclude)", hosts.Compress(gone)))
	return nil
}

// lookFindings is preflight's look: every check on every host and all hosts
// against each other. Notes are check's own; a job is told what is wrong.
func lookFindings(job Sight, prof profiles.Profile, res envgen.Result) []finding.Finding {
	fabric := res.RDMA && !prof.Fabric.SetNothing
	named := slices.Clone(job.hosts)
	for i := range job.names {
		named[i].Name = job.names[i]
	}
	var byRail []map[string]string
	for _, r := range res.Rails {
		byRail = append(byRail, r.Ports)
	}
	// The rails name hosts as they name themselves.
	ports := check.JobPorts(job.hosts, byRail)
	var all []finding.Finding
	for i, h := range named {
		all = append(all, check.HostFindings(h, prof, check.Job{Ports: ports[i]})...)
	}
	if len(named) > 1 {
		all = append(all, check.Across(named, ports)...)
	}
	return finding.Fold(slices.DeleteFunc(finding.Once(all), func(f finding.Finding) bool {
		missing := func(said finding.Finding) bool { return strings.HasPrefix(f.ID, "place.") && said.Subject == f.Subject }
		return f.Severity == finding.Note || !fabric && !aboutProgram(f.ID) || slices.ContainsFunc(job.finds, missing) || slices.ContainsFunc(res.Findings, func(said finding.Finding) bool {
			return finding.Supersedes(said.ID, f.ID) && (said.Host == "" || f.Host == "" || said.Host == f.Host || said.Host == hostItself(job, f.Host))
		})
	}))
}

// aboutProgram reports whether a finding is about what the ranks run and load,
// which has to be alike on every network.
func aboutProgram(id string) bool {
	return strings.HasPrefix(id, "place.") || slices.Contains([]string{"across.program", "across.library", "across.directory", "across.software"}, id)
}

// hostItself is what a host calls itself, by the name the job has for it.
func hostItself(job Sight, name string) string {
	if i := slices.Index(job.names, name); i >= 0 {
		return job.hosts[i].Name
	}
	return name
}

// preflightPairs measures the pairs of a job that is about to start.
func (a *Call) preflightPairs(ctx context.Context, o RunOptions, p *plan.Plan) error {
	mode := measure.Mode(o.Preflight)
	if mode != measure.Quick && mode != measure.Full || !p.RDMA {
		return nil
	}
	if a.reached == nil || a.reached.transport == nil || len(a.reached.hosts) < 2 {
		a.Progress.Say("--preflight %s: nothing to measure: fewer than two hosts were looked at", mode)
		return nil
	}
	prof, err := a.FabricProfile()
	if err != nil {
		return err
	}
	if prof == nil {
		prof = &profiles.Profile{}
	}
	s := trial.Trial{
		Site:     trial.Site{Hosts: slices.Clone(a.reached.hosts), Reach: a.reached.names, Paths: a.reached.paths, Transport: a.reached.transport, Profile: *prof},
		Progress: a.Progress,
	}
	s.Rails, s.TC = railsByReach(p.Rails, s.Hosts, s.Reach), trafficClass(*p)
	for i := range s.Hosts {
		s.Hosts[i].Name = s.Reach[i]
	}
	res := report.Checked{Hosts: s.Reach}
	if err := s.Pairs(ctx, trial.Options{Pairs: mode}, &res); err != nil {
		return err
	}
	a.Progress.Say("preflight: %s", res.Coverage)
	p.Findings = append(p.Findings, slices.DeleteFunc(res.Findings, func(f finding.Finding) bool { return f.Severity == finding.Note })...)
	finding.Sort(p.Findings)
	return nil
}

// railsByReach are the plan's rails with the hosts under the names by which they
// are reached, in step with hosts.
func railsByReach(rails []envgen.Rail, hosts []topology.Host, reach []string) []envgen.Rail {
	out := slices.Clone(rails)
	for k, r := range rails {
		out[k].Ports, out[k].GIDs = map[string]string{}, map[string]int{}
		for i, h := range hosts {
			if port, ok := r.Ports[h.Name]; ok {
				out[k].Ports[reach[i]] = port
			}
			if gid, ok := r.GIDs[h.Name]; ok {
				out[k].GIDs[reach[i]] = gid
			}
		}
	}
	return out
}

// trafficClass is what the plan's packets are marked with, whoever chose it; nil
// where nothing says it.
func trafficClass(p plan.Plan) *int {
	for _, name := range []string{"NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS"} {
		for _, v := range slices.Concat(p.Kept, p.Env) {
			if tc, err := strconv.Atoi(v.Value); v.Name == name && err == nil {
				return &tc
			}
		}
	}
	return nil
}

func RailsOf(hosts []topology.Host, prof profiles.Profile) []envgen.Rail {
	return envgen.Compute(envgen.Input{Hosts: hosts, Profile: prof}).Rails
}

// preflightGate is --strict before the start: a finding with which RDMA cannot
// carry the job is no job. A job of one node needs none.
func (a *Call) preflightGate(o RunOptions, p plan.Plan) error {
	if !o.Strict || p.Nodes(a.Env) == 1 {
		return nil
	}
	if len(p.Look.Unseen) > 0 {
		return &exit.Error{Code: exit.Preflight, Err: fmt.Errorf("--strict: not started: %s", p.Look.Text()), Hint: "'fabrun check' with the same hosts says what each of them lacks"}
	}
	for _, f := range p.Findings {
		if !check.Impossible(f) {
			continue
		}
		where := f.Subject
		if f.Host != "" {
			where = f.Host + ": " + f.Subject
		}
		return &exit.Error{Code: exit.Preflight, Err: fmt.Errorf("--strict: not started: %s: %s (%s)", where, f.Seen, f.ID), Hint: f.Hint}
	}
	return nil
}
