package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/launcher/check"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/report"
	"fabrun/topology"
	"fabrun/topology/finding"
	"fabrun/topology/health"
	"fabrun/topology/pasted"
)

// checkOptions are the flags of check: at most one of the forms that judge a
// text is set; none of them means the machines themselves.
type checkOptions struct {
	gids  string
	qos   string
	ports string

	perftest     string
	ncclTests    string
	osu          string
	pcap         string
	rails        int
	switchOutput string

	machines hostChecks
}

// checkForm is one text that check judges: the flag that names its file, and
// what is done with it. A form prints its own result and returns the findings
// that decide the exit status.
type checkForm struct {
	flag  string
	usage string
	file  func(o *checkOptions) *string
	run   func(a *app, o checkOptions, text string) ([]finding.Finding, error)
	most  int // bytes of a text; 0 as of every other: logs of benchmarks are long
}

// checkForms is the explicit list, in the order of the help.
var checkForms = []checkForm{
	{"gids", "judge a GID table: the output of show_gids in this `file` (- is standard input)", func(o *checkOptions) *string { return &o.gids }, checkGIDs, 0},
	{"qos", "judge a QoS configuration: the output of mlnx_qos or dcb in this `file`", func(o *checkOptions) *string { return &o.qos }, checkQoS, 0},
	{"ports", "judge ports: the output of ibstat, ibstatus, ibv_devinfo, ibdev2netdev or rdma link in this `file`", func(o *checkOptions) *string { return &o.ports }, checkPorts, 0},
	{"perftest", "judge a measurement: the output of ib_write_bw, ib_send_lat or another perftest program in this `file`", func(o *checkOptions) *string { return &o.perftest }, checkPerftest, files.MaxRead},
	{"nccl-tests", "judge a measurement: the output of all_reduce_perf or another nccl-tests program in this `file`", func(o *checkOptions) *string { return &o.ncclTests }, checkNCCLTests, files.MaxRead},
	{"osu", "judge a measurement: the output of an OSU micro-benchmark in this `file`", func(o *checkOptions) *string { return &o.osu }, checkOSU, files.MaxRead},
	{"switch-output", "judge what a switch printed (EOS, Onyx, Cumulus, SONiC, NX-OS, Junos), in this `file`, against --profile", func(o *checkOptions) *string { return &o.switchOutput }, checkSwitch, 0},
}

func (o *checkOptions) formFlags(f *pflag.FlagSet) {
	for _, form := range checkForms {
		f.StringVar(form.file(o), form.flag, "", form.usage)
	}
	f.StringVar(&o.pcap, "pcap", "", "judge a capture: how the RoCEv2 packets of this pcap or pcapng `file` are marked")
	f.IntVar(&o.rails, "rails", 0, "with --nccl-tests: the rails of a node, each of the profile's rate")
}

func newCheckCmd(a *app) *cobra.Command {
	var opts checkOptions
	c := &cobra.Command{
		Use:   "check [SNAPSHOT…]",
		Short: "Check hosts, and RDMA between them, before a job",
		Long: `Look at this host, at the hosts of the job (--hosts, --hostfile, or the
allocation), or at snapshots, and say what is wrong for an RDMA job: each host
alone, then the odd one out among them, and whether each logs in to the next by
ssh without a password. Nothing on a host is changed. With
--pairs RDMA is measured between them, and who is to blame for what is slow is
named: node, port, rail, direction. --collectives runs nccl-tests and OSU
benchmarks on all of them; --bringup does everything in the order in which a
cluster is stood up, to the first stage that fails.

Or judge the output of the usual tools, from a file or standard input, as if
this program had looked itself: which GID index is right, whether RoCE reaches a
lossless priority, which ports carry traffic. Colours, prompts, quoting and
several outputs in one text are fine; what cannot be read is said line by line.

Exit status: 0 fine; 1 findings of severity error, or the text could not be
read; 2 wrong usage.`,
		Example: `  fabrun check --profile roce-dscp26
  fabrun check --hosts 'gpu[01-16]' --pairs quick --html check.html --out lists
  fabrun check --hosts 'gpu[01-08]' --collectives --compare tcp
  fabrun check --hosts 'gpu[01-16]' --profile roce-dscp26 --bringup
  fabrun check node01.snap node02.snap node03.snap
  show_gids | fabrun check --gids -
  fabrun check --qos mlnx_qos.txt
  ibstat | fabrun check --ports - --json
  fabrun check --profile roce-dscp26 --switch-output show-pfc.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return runCheck(c.Context(), a, opts, args) },
	}
	opts.machines.addFlags(c.Flags())
	opts.formFlags(c.Flags())
	return c
}

func runCheck(ctx context.Context, a *app, opts checkOptions, args []string) error {
	var chosen []checkForm
	for _, form := range checkForms {
		if *form.file(&opts) != "" {
			chosen = append(chosen, form)
		}
	}
	if opts.pcap != "" {
		if len(chosen) > 0 {
			return exit.UsageError(fmt.Errorf("--pcap and --%s are two inputs: give one", chosen[0].flag), "")
		}
		return exitBy(checkPcap(a, opts))
	}
	switch len(chosen) {
	case 0:
		return runCheckHosts(ctx, a, opts.machines, args)
	case 1:
		return runCheckForm(a, opts, chosen[0])
	}
	return exit.UsageError(fmt.Errorf("--%s and --%s are two texts: give one", chosen[0].flag, chosen[1].flag), "")
}

func runCheckForm(a *app, opts checkOptions, form checkForm) error {
	text, err := a.readText(*form.file(&opts))
	if err != nil {
		return exit.WithHint(fmt.Errorf("--%s: %w", form.flag, err), "it wants a file, or - for standard input")
	}
	most := form.most
	if most == 0 {
		most = pasted.MaxBytes
	}
	if err := pasted.Check(text, most); err != nil {
		return exit.WithHint(fmt.Errorf("--%s: %s: %w", form.flag, nameOf(*form.file(&opts)), err), "give it the text that the command printed")
	}
	return exitBy(form.run(a, opts, string(text)))
}

// nameOf is a file in a message.
func nameOf(file string) string {
	if file == "-" {
		return "standard input"
	}
	return strconv.Quote(file)
}

// exitBy turns what a form printed into the exit status.
func exitBy(findings []finding.Finding, err error) error {
	if err != nil {
		return err
	}
	if worst, ok := finding.Worst(findings); ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return nil
}

// pastedCheck is what the judge of live machines says of a fragment, and what
// of the text could not be read. told says that the text has all that a good
// verdict needs.
func (a *app) pastedCheck(fragment topology.Host, unread []finding.Finding, told bool) (health.Verdict, []finding.Finding, error) {
	p, err := a.FabricProfile()
	if err != nil {
		return "", nil, err
	}
	e := health.Expect{AnyQoS: true}
	if p != nil {
		e = check.Expectations(*p)
		e.AnyQoS = true
	}
	// Ports of the other kind are somebody else's, unless there are no others.
	mine := func(_ topology.HCA, x topology.Port) bool {
		return e.LinkLayer == "" || x.LinkLayer == "" || strings.EqualFold(x.LinkLayer, e.LinkLayer)
	}
	if !slices.ContainsFunc(fragment.HCAs, func(c topology.HCA) bool {
		return slices.ContainsFunc(c.Ports, func(x topology.Port) bool { return mine(c, x) })
	}) {
		mine = nil
	}
	fs := append(health.Ports(&fragment, mine, e), unread...)
	return health.Sum(fs, told), fs, nil
}

func checkGIDs(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	g := pasted.ReadGIDs(text)
	told := slices.ContainsFunc(g.Ports, func(p pasted.GIDPort) bool {
		index, _ := health.GIDIndex(topology.Port{GIDs: p.GIDs})
		return index != nil
	})
	v, fs, err := a.pastedCheck(g.Fragment(), g.Findings, told)
	switch {
	case err != nil:
		return nil, err
	case a.JSON:
		return fs, report.GIDsJSON(a.Stdout, g, v, fs)
	}
	return fs, report.GIDs(a.Stdout, g, v, fs)
}

func checkQoS(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	q := pasted.ReadQoS(text)
	told := !slices.ContainsFunc(q.Devices, func(d pasted.QoSDevice) bool {
		return d.DCB.Trust == "" || d.DCB.PFC == nil || d.DCB.Trust == "dscp" && d.DCB.DSCPToPriority == nil
	})
	v, fs, err := a.pastedCheck(q.Fragment(), q.Findings, told)
	switch {
	case err != nil:
		return nil, err
	case a.JSON:
		return fs, report.QoSJSON(a.Stdout, q, v, fs)
	}
	return fs, report.QoS(a.Stdout, q, v, fs)
}

func checkPorts(a *app, _ checkOptions, text string) ([]finding.Finding, error) {
	p := pasted.ReadPorts(text)
	told := !slices.ContainsFunc(p.Ports, func(x pasted.Port) bool { return x.Up() == nil })
	v, fs, err := a.pastedCheck(p.Fragment(), p.Findings, told)
	switch {
	case err != nil:
		return nil, err
	case a.JSON:
		return fs, report.PortsJSON(a.Stdout, p, v, fs)
	}
	return fs, report.Ports(a.Stdout, p, v, fs)
}

// runTopoMatrix is topo --matrix: a pasted topology matrix in place of a machine.
func runTopoMatrix(a *app, file string) error {
	text, err := a.readText(file)
	if err != nil {
		return exit.WithHint(fmt.Errorf("--matrix: %w", err), "it wants a file, or - for standard input")
	}
	if err := pasted.Check(text, pasted.MaxBytes); err != nil {
		return exit.WithHint(fmt.Errorf("--matrix: %s: %w", nameOf(file), err), "give it the text that 'nvidia-smi topo -m' printed")
	}
	m := pasted.ReadMatrix(string(text))
	if a.JSON {
		err = report.MatrixJSON(a.Stdout, m)
	} else {
		err = report.Matrix(a.Stdout, m)
	}
	if err != nil {
		return err
	}
	if worst, ok := finding.Worst(m.Findings); ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return nil
}
