package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/topology/finding"
)

// planJSON is the shape of schema fabrun/plan/v1.
type planJSON struct {
	Schema   string            `json:"schema"`
	Dialect  string            `json:"dialect"`  // "openmpi4", "openmpi5", "mpich", "srun", "torchrun", …
	Launcher *string           `json:"launcher"` // the launcher and its version, as people say it
	Version  *string           `json:"version"`
	RDMA     *bool             `json:"rdma"`     // can the job use RDMA? null: no host was seen
	Looked   *lookedJSON       `json:"looked"`   // which of the hosts the plan rests on
	Contract *string           `json:"contract"` // what the job should run on, in one sentence; null: nothing is promised
	Argv     []string          `json:"argv"`     // what is started, "{run}" being the run directory
	Words    []wordJSON        `json:"words"`    // the same, with the origin of each word
	Env      []envgen.Var      `json:"env"`      // added for the launcher
	Kept     []envgen.Var      `json:"kept"`     // what was set already, and stays
	PerHost  []hostEnvJSON     `json:"per_host"` // what differs between the hosts
	Rank     *plan.RankTable   `json:"rank"`     // what `fabrun rank` decides on each node
	Unset    []string          `json:"unset"`    // names taken out of the environment
	Withheld []plan.Withheld   `json:"withheld"` // names that each node keeps as its own
	Files    []fileJSON        `json:"files"`    // written into the run directory
	Shims    []string          `json:"shims"`    // names in the run directory's bin, first in PATH
	Hosts    planHostsJSON     `json:"hosts"`
	Program  []string          `json:"program"` // what the launcher starts, with its arguments
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes"`
}

// lookedJSON says which of the job's hosts the plan rests on.
type lookedJSON struct {
	Hosts   *int          `json:"hosts"` // null: how many is not known
	Seen    int           `json:"seen"`
	Assumed *string       `json:"assumed"` // the host that stands for those not seen
	Unseen  []plan.Unseen `json:"unseen"`
}

func toLookedJSON(l plan.Look) *lookedJSON {
	out := &lookedJSON{Seen: l.Seen, Assumed: known(l.Assumed), Unseen: list(l.Unseen)}
	if l.Hosts > 0 {
		out.Hosts = &l.Hosts
	}
	return out
}

func (l *lookedJSON) value() plan.Look {
	if l == nil {
		return plan.Look{}
	}
	out := plan.Look{Seen: l.Seen, Unseen: l.Unseen}
	if l.Hosts != nil {
		out.Hosts = *l.Hosts
	}
	if l.Assumed != nil {
		out.Assumed = *l.Assumed
	}
	return out
}

type wordJSON struct {
	Text   string        `json:"text"`
	Origin envgen.Origin `json:"origin"` // who said it
	Why    string        `json:"why,omitempty"`
}

type hostEnvJSON struct {
	Host string       `json:"host"`
	Vars []envgen.Var `json:"vars"`
}

type fileJSON struct {
	Name    string `json:"name"` // below the run directory
	Content string `json:"content"`
	Why     string `json:"why"`
}

type planHostsJSON struct {
	Source  string         `json:"source"`  // where they come from: "--hosts", "Slurm", …
	Manager *string        `json:"manager"` // the resource manager
	Hosts   []planHostJSON `json:"hosts"`
}

type planHostJSON struct {
	Name    string  `json:"name"`
	Slots   *int    `json:"slots"`   // null: not said
	Address *string `json:"address"` // by which it is reached, where that is not its name
}

// PlanJSON writes a plan as schema fabrun/plan/v1.
func PlanJSON(w io.Writer, p plan.Plan) error {
	out := planJSON{
		Schema: "fabrun/plan/v1", Dialect: p.Dialect.Name, Launcher: known(p.Launcher), Version: known(p.Version), RDMA: p.HasRDMA(), Looked: toLookedJSON(p.Look),
		Contract: known(p.Contract), Argv: p.Words(), Env: varsJSON(p.Env), Kept: varsJSON(p.Kept), Rank: p.Table, Unset: list(p.Unset), Withheld: list(p.Withheld), Shims: list(p.Shims),
		Program: list(p.Program), Findings: sorted(p.Findings), Notes: list(p.Notes),
		Words: []wordJSON{}, PerHost: []hostEnvJSON{}, Files: []fileJSON{},
		Hosts: planHostsJSON{Source: p.Hosts.Source, Manager: known(p.Hosts.Manager), Hosts: []planHostJSON{}},
	}
	out.Findings = list(out.Findings)
	for _, a := range p.Argv {
		out.Words = append(out.Words, wordJSON(a))
	}
	for _, h := range p.PerHost {
		out.PerHost = append(out.PerHost, hostEnvJSON{Host: h.Host, Vars: varsJSON(h.Vars)})
	}
	for _, f := range p.Files {
		out.Files = append(out.Files, fileJSON(f))
	}
	for _, h := range p.Hosts.Hosts {
		out.Hosts.Hosts = append(out.Hosts.Hosts, planHostJSON{Name: h.Name, Slots: h.Slots, Address: known(h.Address)})
	}
	return writeJSON(w, out)
}

// varsJSON are variables with [] and not null for "no evidence".
func varsJSON(vars []envgen.Var) []envgen.Var {
	out := slices.Clone(list(vars))
	for i := range out {
		out[i].Evidence = list(out[i].Evidence)
	}
	return out
}

// known is nil for what is not known.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// list is never nil, so that JSON has [] and not null for "none".
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Plan writes a plan for people: what the job will run on, the command, then
// every variable with its reason. With verbose also the evidence.
func Plan(w io.Writer, p plan.Plan, verbose bool) error {
	t := &text{w: w}
	t.printf("%s\n", PlanSentence(p))
	t.printf("\ncommand\n  %s\n", ShellWords(p.Words()))
	var whys []string
	for _, a := range p.Argv {
		if a.Why != "" && !slices.Contains(whys, a.Text+"\x00"+a.Why) {
			whys = append(whys, a.Text+"\x00"+a.Why)
		}
	}
	if verbose {
		for _, y := range whys {
			word, why, _ := strings.Cut(y, "\x00")
			t.wrap("    "+word+": ", why)
		}
	}
	if len(p.Env) > 0 {
		t.printf("\nenvironment added\n")
		planVars(t, p.Env, verbose)
	}
	if len(p.Kept) > 0 {
		t.printf("\nalready set, and kept\n")
		planVars(t, p.Kept, verbose)
	}
	for _, g := range groupHosts(p.PerHost) {
		t.printf("\non %s, set by fabrun rank\n", g.hosts)
		planVars(t, g.vars, verbose)
	}
	if len(p.Withheld) > 0 {
		t.printf("\nnot handed to the other nodes, which keep their own\n")
		var names []string
		for _, w := range p.Withheld {
			names = append(names, w.Name)
		}
		t.wrap("  ", strings.Join(names, " "))
	}
	for _, f := range p.Files {
		t.printf("\nfile %s/%s: %s\n", plan.RunDir, f.Name, f.Why)
		for line := range strings.Lines(f.Content) {
			t.printf("  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	if len(p.Shims) > 0 {
		t.printf("\nshims in %s/bin, first in PATH: %s\n", plan.RunDir, strings.Join(p.Shims, " "))
	}
	if len(p.Findings) > 0 {
		t.printf("\nfindings\n")
		if t.err == nil {
			t.err = Findings(w, p.Findings)
		}
	}
	if len(p.Notes) > 0 {
		t.printf("\n")
		for _, n := range p.Notes {
			t.wrap("note: ", n)
		}
	}
	return t.err
}

// PlanSentence is the plan in one line.
func PlanSentence(p plan.Plan) string {
	what := p.Contract
	switch {
	case p.HasRDMA() == nil && p.Look.Seen > 0:
		what = "no usable RDMA device on the hosts seen: the job runs unchanged"
	case p.HasRDMA() == nil:
	case !p.RDMA && p.OneOf() > 0:
		what = "no usable RDMA device on this node: its part of the job runs unchanged"
	case !p.RDMA:
		what = "no usable RDMA device on the job's hosts: the job runs unchanged"
	case what == "":
		what = "the job should run over RDMA"
	}
	if p.Look.Seen > 0 && !p.Look.Whole() {
		what += "; " + p.Look.Text()
	}
	// What a container lacks is none of the findings that are loud.
	for _, f := range p.Findings {
		if f.ID == "hca.none" && f.Severity == finding.Note && f.Hint != "" {
			what += "; " + f.Hint
		}
	}
	where := ""
	switch n := len(p.Hosts.Hosts); {
	case n == 1:
		where = p.Hosts.Hosts[0].Name
		if of := p.OneOf(); of > 0 {
			where += fmt.Sprintf(", one of %d nodes", of)
		}
	case n > 1:
		where = fmt.Sprintf("%d hosts", n)
	}
	for _, s := range []string{p.Hosts.Source, p.Launcher} {
		if s != "" && s != where {
			where += ", " + s
		}
	}
	if where = strings.TrimPrefix(where, ", "); where == "" {
		return what
	}
	return what + " (" + where + ")"
}

func planVars(t *text, vars []envgen.Var, verbose bool) {
	for _, v := range vars {
		if v.Name == cmdline.MarkerName || v.Name == plan.TableName || v.Name == plan.AsName || v.Name == cmdline.ShimName {
			if verbose {
				t.printf("  %s=…\n", v.Name)
				t.wrap("      ", v.Why)
			}
			continue
		}
		t.printf("  %s=%s\n", v.Name, ShellWords([]string{v.Value}))
		why := v.Why
		if v.Rule != "" {
			why += " [" + v.Rule + "]"
		}
		if v.Origin != "" && v.Origin != envgen.FromPlan {
			why = strings.TrimSpace("from " + string(v.Origin) + ": " + why)
		}
		t.wrap("      ", why)
		if !verbose {
			continue
		}
		for _, e := range v.Evidence {
			t.printf("      · %s\n", e)
		}
		for _, r := range v.Rejected {
			t.wrap("      not "+r.Value+": ", r.Why)
		}
	}
}

type hostGroup struct {
	hosts string
	vars  []envgen.Var
}

// groupHosts joins hosts whose values are the same, in order of first mention.
func groupHosts(hs []envgen.HostEnv) []hostGroup {
	key := func(vars []envgen.Var) string {
		var b strings.Builder
		for _, v := range vars {
			b.WriteString(v.Name + "\x00" + v.Value + "\x00")
		}
		return b.String()
	}
	var keys []string
	groups := map[string]*hostGroup{}
	for _, h := range hs {
		k := key(h.Vars)
		if g, ok := groups[k]; ok {
			g.hosts += "," + h.Host
			continue
		}
		keys = append(keys, k)
		groups[k] = &hostGroup{hosts: h.Host, vars: h.Vars}
	}
	var out []hostGroup
	for _, k := range keys {
		out = append(out, *groups[k])
	}
	return out
}

// ShellWords joins words so that a POSIX shell reads them back.
func ShellWords(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_^", r))
		}) {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
