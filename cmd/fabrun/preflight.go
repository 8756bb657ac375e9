package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"fabrun/envgen"
	"fabrun/launcher/exit"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/preflight"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// What run does before a job.
const (
	preflightOff  = "off"  // what the plan itself needs
	preflightLook = "look" // every check on every host; no traffic on the fabric
	// quick and full measure pairs as well (preflight.Quick, preflight.Full).
)

// preflightMode is a flag that takes one of the four.
type preflightMode string

func (m *preflightMode) String() string { return string(*m) }
func (m *preflightMode) Type() string   { return "string" }

func (m *preflightMode) Set(value string) error {
	if !slices.Contains([]string{preflightOff, preflightLook, string(preflight.Quick), string(preflight.Full)}, value) {
		return errors.New("one of look, quick, full, off")
	}
	*m = preflightMode(value)
	return nil
}

func (o *jobOptions) preflightFlags(f *pflag.FlagSet) {
	o.preflight = preflightLook
	f.Var(&o.preflight, "preflight", "before the job: `mode` is look (every check on every host), quick or full (measure RDMA too: every port, every pair), or off (look for what the plan needs and no further)")
	f.StringVar(&o.exclude, "exclude", "", "leave these hosts out: a `file or list`, such as hosts.fail of 'fabrun check --out'")
}

func fileThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// without leaves hosts out of an allocation. A name with a slash, or of a file
// that is there, is a file; an empty one leaves out nobody.
func without(alloc hosts.Allocation, exclude string) (hosts.Allocation, []string, error) {
	var out hosts.Allocation
	var err error
	if fileThere(exclude) || strings.Contains(exclude, "/") {
		text, rerr := readInput(exclude)
		if rerr != nil {
			return alloc, nil, exit.WithHint(fmt.Errorf("--exclude: %w", rerr), "a file with a host a line, or a list like 'node[03,07]'")
		}
		if strings.TrimSpace(string(text)) == "" {
			return alloc, nil, nil
		}
		out, err = hosts.ParseHostfile(text, hosts.AnyDialect)
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
func (o jobOptions) leaveOut(job *jobLook, env []string) error {
	if o.exclude == "" {
		return nil
	}
	alloc, gone, err := without(job.alloc, o.exclude)
	if err != nil || len(gone) == 0 {
		return err
	}
	if src := job.cmd.HostSource(env); src != nil && o.hosts == "" && o.hostfile == "" {
		return exit.UsageError(fmt.Errorf("--exclude %s: the launcher's own %s names them", hosts.Compress(gone), src.Option), "name the hosts to fabrun instead: --hosts or --hostfile")
	}
	job.alloc, job.given = alloc, true
	job.notes = append(job.notes, fmt.Sprintf("left out: %s (--exclude)", hosts.Compress(gone)))
	return nil
}

// lookFindings is preflight's look: every check on every host and all hosts
// against each other. Notes are check's own; a job is told what is wrong.
func lookFindings(job jobLook, prof profiles.Profile, res envgen.Result) []finding.Finding {
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
	ports := preflight.JobPorts(job.hosts, byRail)
	var all []finding.Finding
	for i, h := range named {
		all = append(all, preflight.HostFindings(h, prof, preflight.Job{Ports: ports[i]})...)
	}
	if len(named) > 1 {
		all = append(all, preflight.Across(named, ports)...)
	}
	return finding.Fold(slices.DeleteFunc(all, func(f finding.Finding) bool {
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
func hostItself(job jobLook, name string) string {
	if i := slices.Index(job.names, name); i >= 0 {
		return job.hosts[i].Name
	}
	return name
}

// preflightPairs measures the pairs of a job that is about to start.
func (a *app) preflightPairs(ctx context.Context, o runOptions, p *plan.Plan) error {
	mode := preflight.Mode(o.preflight)
	if mode != preflight.Quick && mode != preflight.Full || !p.RDMA {
		return nil
	}
	if a.reached == nil || a.reached.transport == nil || len(a.reached.hosts) < 2 {
		a.progress.Say("--preflight %s: nothing to measure: fewer than two hosts were looked at", mode)
		return nil
	}
	prof, err := a.fabricProfile()
	if err != nil {
		return err
	}
	if prof == nil {
		prof = &profiles.Profile{}
	}
	s := site{t: a.reached.transport, prof: *prof, checked: checked{names: a.reached.names, reach: a.reached.names, paths: a.reached.paths}}
	s.hosts = slices.Clone(a.reached.hosts)
	s.rails, s.tc = railsByReach(p.Rails, s.hosts, s.reach), trafficClass(*p)
	for i := range s.hosts {
		s.hosts[i].Name = s.reach[i]
	}
	res := report.Checked{Hosts: s.reach}
	if err := a.checkPairs(ctx, s, hostChecks{}, mode, &res); err != nil {
		return err
	}
	a.progress.Say("preflight: %s", res.Coverage)
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

func railsOf(hosts []topology.Host, prof profiles.Profile) []envgen.Rail {
	return envgen.Compute(envgen.Input{Hosts: hosts, Profile: prof}).Rails
}

// preflightGate is --strict before the start: a finding with which RDMA cannot
// carry the job is no job. A job of one node needs none.
func (a *app) preflightGate(o runOptions, p plan.Plan) error {
	if !o.strict || p.Nodes(a.env) == 1 {
		return nil
	}
	if len(p.Look.Unseen) > 0 {
		return &exit.Error{Code: exit.Preflight, Err: fmt.Errorf("--strict: not started: %s", p.Look.Text()), Hint: "'fabrun check' with the same hosts says what each of them lacks"}
	}
	for _, f := range p.Findings {
		if !preflight.Impossible(f) {
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
