package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/job"
	"fabrun/launcher/look"
	"fabrun/launcher/measure"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
	"fabrun/launcher/trial"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/live"
)

// hostChecks are the flags of check where it looks at machines.
type hostChecks struct {
	hosts    named
	hostfile named
	pairs    string
	gpu      bool
	latency  bool
	bringup  bool
	compare  string
	exclude  string

	collectives collectivesFlag

	html  string
	out   string
	nodes look.Ways

	programs    []string
	directories []string

	npd bool // for node-problem-detector
}

// places are what --program and --directory ask for on every host.
func (o hostChecks) places() []live.Asked {
	var out []live.Asked
	for _, p := range o.programs {
		if strings.Contains(p, "/") {
			if abs, err := filepath.Abs(p); err == nil {
				p = abs
			}
		}
		out = append(out, live.Asked{Role: topology.RoleProgram, Path: p})
	}
	for _, d := range o.directories {
		if abs, err := filepath.Abs(d); err == nil {
			d = abs
		}
		out = append(out, live.Asked{Role: topology.RoleDirectory, Path: d})
	}
	return out
}

func (o *hostChecks) addFlags(f *pflag.FlagSet) {
	f.Var(&o.hosts, "hosts", "look at these hosts: a `list` like 'gpu[01-04]'")
	f.Var(&o.hostfile, "hostfile", "look at the hosts of this `file`")
	f.StringVar(&o.pairs, "pairs", "off", "measure RDMA between hosts: off, quick (every port once), ring, full")
	f.BoolVar(&o.gpu, "gpu", false, "with --pairs: GPU memory instead of host memory")
	f.BoolVar(&o.latency, "latency", false, "with --pairs: the latency of small messages too")
	f.Var(&o.collectives, "collectives", "run nccl-tests and OSU benchmarks through the plan on 1, 2, 4 and 8 nodes; =`DIR` says where they lie, beside PATH and the usual folders")
	f.Lookup("collectives").NoOptDefVal = collectivesHere
	f.StringVar(&o.compare, "compare", "", "with --collectives: run the same over this `network` beside it (tcp)")
	f.BoolVar(&o.bringup, "bringup", false, "the order in which a cluster is stood up, to the first stage that fails: link, driver, pairs, GPUDirect, QoS, collectives, separation")
	f.StringVar(&o.exclude, "exclude", "", "leave these hosts out: a `file or list`")
	f.BoolVar(&o.npd, "npd", false, "one line about this node for a custom plugin of Kubernetes' node-problem-detector, and its statuses: 0 fine, 1 a fault, 2 not known")
	f.StringVar(&o.html, "html", "", "also write the result as one offline page to this `file`")
	f.StringVar(&o.out, "out", "", "write hosts.pass and hosts.fail into this `directory`")
	f.StringArrayVar(&o.programs, "program", nil, "also check that this `program` and the libraries it loads are the same everywhere")
	f.StringArrayVar(&o.directories, "directory", nil, "also check that this `directory` is there and shared")
	wayFlags(f, &o.nodes)
}

// collectivesFlag is a flag that may have a folder.
type collectivesFlag struct {
	on  bool
	dir string
}

// collectivesHere stands for the flag without a folder.
const collectivesHere = "PATH"

func (c *collectivesFlag) String() string { return c.dir }
func (c *collectivesFlag) Type() string   { return "string" }

func (c *collectivesFlag) Set(value string) error {
	c.on, c.dir = true, value
	if value == collectivesHere {
		c.dir = ""
		return nil
	}
	if !path.IsAbs(value) {
		return errors.New("it wants an absolute path, the same on every host")
	}
	return nil
}

// measures says whether anything is to be run on the hosts.
func (o hostChecks) measures() bool {
	return o.pairs != "off" || o.collectives.on || o.bringup
}

// checked is what was looked at, before it is judged.
type checked struct {
	trial.Site
	names []string // all hosts of the job
	finds []finding.Finding
}

// trialOptions are what the flags say of measuring.
func (o hostChecks) trialOptions() trial.Options {
	return trial.Options{Pairs: measure.Mode(o.pairs), GPU: o.gpu, Latency: o.latency, Compare: o.compare, Dir: o.collectives.dir}
}

// runCheckHosts looks at snapshots, at this machine, or at the job's hosts, and
// judges each, all against each other, and where asked the pairs.
func runCheckHosts(ctx context.Context, a *app, o hostChecks, snapshots []string) error {
	if o.npd {
		return a.checkNode(ctx, o, snapshots)
	}
	res, _, err := a.checkHosts(ctx, o, snapshots)
	if err != nil {
		return err
	}
	a.Ending = report.OneLine(res)
	return a.showChecked(res, o)
}

// npdLength is as much of a plugin's output as node-problem-detector takes where
// its configuration says nothing (max_output_length,
// pkg/custompluginmonitor/types/config.go).
const npdLength = 80

// npdUnknown is a plugin's status for "could not tell"; any above 1 is.
const npdUnknown = 2

// checkNode is a node's condition in one line. What is only of the pod that looks
// (its limits, its libraries, the devices that it was given) is not the node's.
func (a *app) checkNode(ctx context.Context, o hostChecks, snapshots []string) error {
	if o.hosts != "" || o.hostfile != "" || len(snapshots) > 0 || o.measures() || a.JSON {
		return exit.UsageError(errors.New("--npd is one line about the node that it runs on"), "give it no hosts, nothing to measure and no --json")
	}
	res, looked, err := a.checkHosts(ctx, o, nil)
	if err != nil {
		return &exit.Error{Code: npdUnknown, Err: err}
	}
	inside := slices.ContainsFunc(looked, func(h topology.Host) bool { return h.Container.Kind != "" })
	res.Findings = slices.DeleteFunc(res.Findings, func(f finding.Finding) bool {
		return f.Severity != finding.Error || inside && check.OfProcess(f)
	})
	if _, err := fmt.Fprintln(a.Stdout, report.Cut(report.OneLine(res), npdLength)); err != nil {
		return &exit.Error{Code: npdUnknown, Err: err}
	}
	return exitBy(res.Findings, nil)
}

// checkHosts looks and measures, and shows nothing.
func (a *app) checkHosts(ctx context.Context, o hostChecks, snapshots []string) (report.Checked, []topology.Host, error) {
	var none report.Checked
	mode := measure.Mode(o.pairs)
	if !slices.Contains([]measure.Mode{"off", measure.Quick, measure.Ring, measure.Full}, mode) {
		return none, nil, exit.UsageError(fmt.Errorf("--pairs %q: there is no such mode", o.pairs), "off, quick, ring or full")
	}
	if o.compare != "" && o.compare != "tcp" {
		return none, nil, exit.UsageError(fmt.Errorf("--compare %q: there is no such network", o.compare), "tcp")
	}
	if o.compare != "" && !o.bringup {
		o.collectives.on = true
	}
	var prof profiles.Profile
	if p, err := a.FabricProfile(); err != nil {
		return none, nil, err
	} else if p != nil {
		prof = *p
	}
	a.Progress = a.newProgress()
	var t remote.Transport
	var c checked
	var err error
	switch {
	case len(snapshots) > 0:
		if o.hosts != "" || o.hostfile != "" || o.measures() {
			return none, nil, exit.UsageError(errors.New("snapshots are looked at, not connected to"), "give either snapshot files, or --hosts and what to measure")
		}
		c, err = a.checkSnapshots(snapshots)
	default:
		c, t, err = a.checkJobHosts(ctx, o)
	}
	if err != nil {
		return none, nil, err
	}
	if t != nil {
		//nolint:errcheck // connections that are no longer needed
		defer t.Close()
	}
	res := report.Checked{Hosts: c.names, Findings: c.finds}
	rails := job.RailsOf(c.Hosts, prof)
	var byRail []map[string]string
	for _, r := range rails {
		byRail = append(byRail, r.Ports)
	}
	ports := check.JobPorts(c.Hosts, byRail)
	for i, h := range c.Hosts {
		res.Findings = append(res.Findings, check.HostFindings(h, prof, check.Job{Ports: ports[i]})...)
		res.Findings = append(res.Findings, live.Disagreements(&h)...)
	}
	res.Findings = finding.Once(append(res.Findings, check.Across(c.Hosts, ports)...))
	c.Transport, c.Profile, c.Rails = t, prof, rails
	at := trial.Trial{Site: c.Site, Env: a.Env, Progress: a.Progress, Self: a.Self(), Again: func(hosts string) []string {
		return a.FlagsAgain(job.Options{Hosts: hosts, Ways: o.nodes, Preflight: job.PreflightOff})
	}}
	if o.measures() && (a.From != "" || a.Root != "") {
		return none, nil, exit.UsageError(errors.New("--from and --root are looked at, not measured"), "leave them out, or look only")
	}
	if o.bringup {
		err = at.BringUp(ctx, o.trialOptions(), ports, &res)
	} else {
		err = tryAll(ctx, at, o, &res)
	}
	if err != nil {
		return none, nil, err
	}
	return res, c.Hosts, nil
}

// tryAll runs what was asked for beside looking.
func tryAll(ctx context.Context, s trial.Trial, o hostChecks, res *report.Checked) error {
	if o.pairs != "off" {
		if err := s.Pairs(ctx, o.trialOptions(), res); err != nil {
			return err
		}
	}
	if !o.collectives.on || len(s.Hosts) == 0 {
		return nil
	}
	skipped, err := s.Collectives(ctx, o.trialOptions(), res)
	if skipped != "" {
		res.Findings = append(res.Findings, finding.Finding{
			ID: "collective.none", Severity: finding.Warning, Subject: "collectives", Seen: skipped, Wanted: "nccl-tests or OSU micro-benchmarks",
			Why: "nothing was measured", Hint: "build them, with MPI, at the same path on every host: --collectives=DIR",
		})
	}
	return err
}

func (a *app) checkSnapshots(files []string) (checked, error) {
	var c checked
	for _, f := range files {
		h, err := a.readSnapshot(f)
		if err != nil {
			return c, err
		}
		if h.Name == "" || slices.Contains(c.names, h.Name) {
			h.Name = f
		}
		c.names, c.Hosts, c.Reach = append(c.names, h.Name), append(c.Hosts, h), append(c.Reach, h.Name)
	}
	return c, nil
}

func (a *app) checkJobHosts(ctx context.Context, o hostChecks) (checked, remote.Transport, error) {
	var c checked
	// This machine may be one that is judged: all of it is worth the time.
	ask := live.Everything(a.Env, a.Helper())
	ask.Places = o.places()
	here, _, err := a.Look(ctx, ask)
	if err != nil {
		return c, nil, err
	}
	alloc := hosts.Allocation{Source: "localhost"}
	if a.From == "" && a.Root == "" {
		if alloc, err = a.Allocation(string(o.hosts), string(o.hostfile)); err != nil {
			return c, nil, err
		}
		if o.exclude != "" {
			if alloc, _, err = job.Without(alloc, o.exclude); err != nil {
				return c, nil, err
			}
		}
	} else if o.hosts != "" || o.hostfile != "" {
		return c, nil, exit.UsageError(errors.New("--from and --root are one machine, --hosts are others"), "give one of them")
	}
	if alloc.Source == "localhost" || len(alloc.Hosts) == 0 {
		if here.Name == "" {
			here.Name = "localhost"
		}
		return checked{names: []string{here.Name}, Site: trial.Site{Hosts: []topology.Host{here}, Reach: []string{here.Name}}}, nil, nil
	}
	t, err := a.Transport(o.nodes, alloc.Manager)
	if err != nil {
		return c, nil, err
	}
	if t == nil {
		return c, nil, exit.UsageError(errors.New("--remote none reaches no host"), "auto, native, ssh or srun")
	}
	seen, err := a.Nodes(ctx, t, alloc, here, look.Want{Full: true, Places: o.places()})
	if err != nil {
		return c, t, err
	}
	seen.Finds = append(seen.Finds, a.Logins(ctx, t, seen.Names, o.nodes)...)
	slots := make([]int, len(alloc.Hosts))
	for i, h := range alloc.Hosts {
		if h.Slots != nil {
			slots[i] = *h.Slots
		}
	}
	seen.Finds = append(seen.Finds, check.Slots(alloc.Names(), slots)...)
	for _, h := range alloc.Hosts {
		c.names = append(c.names, h.Name)
	}
	// One machine may stand behind several names: a host is called as the job calls it.
	for i := range seen.Hosts {
		seen.Hosts[i].Name = seen.Names[i]
	}
	c.Hosts, c.Reach, c.Paths, c.finds = seen.Hosts, seen.Names, seen.Paths, seen.Finds
	return c, t, nil
}

func (a *app) showChecked(res report.Checked, o hostChecks) error {
	res.Findings = finding.Fold(res.Findings)
	if o.out != "" {
		failing := res.Failing()
		passing := slices.DeleteFunc(slices.Clone(res.Hosts), func(h string) bool { return slices.Contains(failing, h) })
		if err := os.MkdirAll(o.out, 0o777); err != nil {
			return exit.WithHint(fmt.Errorf("--out: %w", err), "it wants a directory that can be made or written")
		}
		for name, list := range map[string][]string{"hosts.pass": passing, "hosts.fail": failing} {
			if err := files.Write(filepath.Join(o.out, name), []byte(strings.Join(append(list, ""), "\n")), files.Shared); err != nil {
				return fmt.Errorf("--out: %w", err)
			}
		}
	}
	if o.html != "" {
		var b strings.Builder
		if err := report.CheckHTML(&b, res); err != nil {
			return err
		}
		if err := files.Write(o.html, []byte(b.String()), files.Private); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	var err error
	if a.JSON {
		err = report.CheckJSON(a.Stdout, res)
	} else {
		err = report.Check(a.Stdout, res, a.Verbose)
	}
	return exitBy(res.Findings, err)
}
