package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/topology/finding"
)

type hostsOptions struct {
	list     string
	hosts    string
	hostfile string
	dialect  string
	format   string
	fold     bool
	topology string
}

// hostsFormats is what --format takes: the dialects that can be written, and JSON.
func hostsFormats() []string {
	names := make([]string, 0, len(hosts.Syntaxes)+1)
	for _, d := range hosts.Syntaxes {
		names = append(names, d.Name)
	}
	return append(names, "json")
}

func newHostsCmd(a *app) *cobra.Command {
	var opts hostsOptions
	c := &cobra.Command{
		Use:   "hosts",
		Short: "Say where the job's hosts come from, and write a hostfile",
		Long: `Say which hosts the job has and who said so: --hosts or --hostfile, else the
resource manager's environment (Slurm, PBS, OAR, Cobalt, LSF, SGE, the Kubeflow
operators, Flux, AWS Batch), else this machine. Inside an allocation --hosts and
--hostfile select from it.

With --format the same hosts as a hostfile: the MPIs have no common syntax.
--list only expands an expression (that of standard input for -), and --fold
writes the hosts as one node list.

A list is a Slurm node list (node[01-12,20], r[1-2]n[0-3]), in which an item may
end in :SLOTS, and which may hold addresses (10.1.4.[1-12], [fd00::1]:8).
A host named twice has a slot per mention. user@host is not taken.

Exit status: 0; 1 when the hosts cannot be read, or a finding is an error; 2 for
a wrong call.`,
		Example: `  fabrun hosts
  fabrun hosts --hosts 'node[01-12]:8' --format openmpi > machines
  fabrun hosts --list 'gpu[001-128]' --format plain
  sort machines | fabrun hosts --list - --fold`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return runHosts(a, opts) },
	}
	f := c.Flags()
	f.StringVar(&opts.list, "list", "", "expand this `expression`, - for standard input; the environment is not looked at")
	f.Var((*named)(&opts.hosts), "hosts", "the job's hosts: a `list` like 'node[01-12]' or 'a:8,b:8'")
	f.Var((*named)(&opts.hostfile), "hostfile", "read the job's hosts from this `file`, in the syntax of any MPI")
	f.StringVar(&opts.dialect, "dialect", "", "read --hostfile as this `tool` would, with all it refuses: "+strings.Join(hostsFormats()[:len(hosts.Syntaxes)], ", "))
	f.StringVar(&opts.format, "format", "", "write a hostfile of this `form`: "+strings.Join(hostsFormats(), ", "))
	f.BoolVar(&opts.fold, "fold", false, "write the hosts as one node list")
	f.StringVar(&opts.topology, "topology", "", "order the hosts by switch or block as this `file` says (topology.conf, topology.yaml, topograph)")
	return c
}

func runHosts(a *app, opts hostsOptions) error {
	if opts.format != "" && !slices.Contains(hostsFormats(), opts.format) {
		return exit.UsageError(fmt.Errorf("unknown --format %q", opts.format), "one of "+strings.Join(hostsFormats(), ", "))
	}
	alloc, err := a.hostsOf(opts)
	if err != nil {
		return err
	}
	if opts.topology != "" {
		if alloc, err = job.OrderByTopology(alloc, opts.topology); err != nil {
			return err
		}
	}
	d := hosts.SyntaxNamed(opts.format)
	if opts.format != "" && opts.format != "json" {
		alloc.Findings = append(alloc.Findings, hosts.Check(alloc, d)...)
	}
	switch {
	case a.JSON || opts.format == "json":
		err = report.HostsJSON(a.Stdout, alloc)
	case opts.fold:
		_, err = fmt.Fprintln(a.Stdout, hosts.Compress(alloc.Names()))
	case opts.format != "":
		var text string
		if text, err = hosts.Format(alloc, d); err == nil {
			_, err = io.WriteString(a.Stdout, text)
		}
		for _, f := range alloc.Findings {
			fmt.Fprintf(a.Own(), "%s: %s: %s\n        %s\n", f.Severity, f.Host, f.Seen, f.Hint)
		}
	default:
		err = report.Hosts(a.Stdout, alloc)
	}
	if err != nil {
		return exit.WithHint(fmt.Errorf("write hosts: %w", err), "")
	}
	if worst, ok := finding.Worst(alloc.Findings); ok && worst == finding.Error {
		return exit.ErrFindings
	}
	return nil
}

// hostsOf finds the hosts that the flags ask for.
func (a *app) hostsOf(opts hostsOptions) (hosts.Allocation, error) {
	named := 0
	for _, s := range []string{opts.list, opts.hosts, opts.hostfile} {
		if s != "" {
			named++
		}
	}
	switch {
	case named > 1:
		return hosts.Allocation{}, exit.UsageError(errors.New("more than one of --list, --hosts and --hostfile"), "give one of them")
	case opts.dialect != "" && opts.hostfile == "":
		return hosts.Allocation{}, exit.UsageError(errors.New("--dialect says how to read --hostfile, which is not given"), "")
	case opts.dialect != "" && hosts.SyntaxNamed(opts.dialect) == nil:
		return hosts.Allocation{}, exit.UsageError(fmt.Errorf("unknown --dialect %q", opts.dialect), "one of "+strings.Join(hostsFormats()[:len(hosts.Syntaxes)], ", "))
	case opts.list != "":
		text := opts.list
		if text == "-" {
			in, err := files.ReadAll(a.Stdin, files.MaxRead)
			if err != nil {
				return hosts.Allocation{}, exit.WithHint(fmt.Errorf("read standard input: %w", err), "")
			}
			text = in
		}
		alloc, err := hosts.ParseList(text)
		if err != nil {
			return alloc, exit.UsageError(err, "")
		}
		alloc.Source = "--list"
		return alloc, nil
	case opts.dialect != "":
		alloc, err := job.ReadHosts(opts.hostfile, hosts.SyntaxNamed(opts.dialect))
		if err != nil {
			return alloc, exit.WithHint(fmt.Errorf("--hostfile: %w", err), "")
		}
		alloc.Source = "--hostfile " + opts.hostfile
		return alloc, nil
	}
	return a.Allocation(opts.hosts, opts.hostfile)
}
