package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/envgen"
	vartable "fabrun/envgen/vars"
	"fabrun/launcher/exit"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/profiles"
	"fabrun/topology"
	"fabrun/topology/finding"
)

type envOptions struct {
	format  string
	explain bool
	strict  bool
	nccl    string
	ucx     string
	mpi     string
}

func newEnvCmd(a *app) *cobra.Command {
	var o envOptions
	c := &cobra.Command{
		Use:   "env [flags] [NAME…]",
		Short: "Print the variables that make this node's jobs use the fabric",
		Long: `Choose the variables for this node, as run would, and print them; what is wrong
goes to standard error. Variables that are already set are kept and judged.
With names, only those. --explain says for each value which rule chose it, from
what it was read, what was rejected and why, and what breaks if it is changed.

Libraries' versions are read from the files found; --nccl-version and its like
say them where the job loads others (in an image, in a virtual environment).

Exit status: 0 fine; 1 a finding of severity error, or the host could not be
read; 2 usage.`,
		Example: `  eval "$(fabrun env --profile roce-dscp26)"
  fabrun env --explain NCCL_IB_HCA
  fabrun env --format docker > rdma.env && docker run --env-file rdma.env …
  mpirun $(fabrun env --format openmpi) -np 16 ./a.out`,
		RunE: func(c *cobra.Command, args []string) error { return runEnv(c.Context(), a, o, args) },
	}
	f := c.Flags()
	f.StringVar(&o.format, "format", "shell", "`form`: "+strings.Join(report.EnvFormats(), ", "))
	f.BoolVar(&o.explain, "explain", false, "print rule, evidence and alternatives of each value")
	f.BoolVar(&o.strict, "strict", false, "make a fallback impossible where a library allows it")
	f.StringVar(&o.nccl, "nccl-version", "", "NCCL's `version` in the job")
	f.StringVar(&o.ucx, "ucx-version", "", "UCX's `version` in the job")
	a.withEnvFlag(f)
	f.StringVar(&o.mpi, "mpi", "", "the job's MPI: openmpi, mpich, intelmpi or mvapich, with its `version`: 'openmpi 5.0.7'")
	return c
}

// envProgramHint is for who meant the program env.
const envProgramHint = "'fabrun -- env NAME=VALUE PROGRAM' starts the program env: 'fabrun env' prints variables"

func isAssignment(word string) bool {
	return strings.Contains(word, "=") && !strings.HasPrefix(word, "-")
}

func runEnv(ctx context.Context, a *app, o envOptions, names []string) error {
	if i := slices.IndexFunc(names, isAssignment); i >= 0 {
		return exit.UsageError(fmt.Errorf("%s is no name of a variable", names[i]), envProgramHint)
	}
	if !slices.Contains(report.EnvFormats(), o.format) {
		return exit.UsageError(fmt.Errorf("unknown form %q", o.format), "--format is one of "+strings.Join(report.EnvFormats(), ", "))
	}
	versions, err := o.versions()
	if err != nil {
		return err
	}
	h, err := a.Host(ctx)
	if err != nil {
		return err
	}
	profile, workload, err := a.Profiles(job.Sight{})
	if err != nil {
		return err
	}
	res := envgen.Compute(envgen.Input{
		Hosts: []topology.Host{h}, Profile: profile, Workload: workload,
		Job: envgen.Job{
			Settings: a.Settings(&h), Versions: &versions, Strict: o.strict,
			// What goes into an image is for the libraries there, as in 'fabrun docker run'.
			InContainer: slices.Contains([]string{"docker", "k8s"}, o.format),
		},
	})
	if a.Profile == "" {
		res.Findings = append(res.Findings, a.Proposals(&h, a.From == "")...)
		finding.Sort(res.Findings)
	}
	host := res.Hosts[0]
	if o.explain {
		host.Vars = append(slices.Clone(host.Vars), host.Left...)
	}
	if host.Vars, err = onlyNamed(host.Vars, names); err != nil {
		return err
	}
	switch {
	case a.JSON || o.format == "json":
		host.Vars = slices.DeleteFunc(host.Vars, func(v envgen.Var) bool { return v.Value == "" && v.Origin == envgen.FromPlan })
		err = report.EnvJSON(a.Stdout, res, host)
	case o.explain:
		err = report.EnvExplain(a.Stdout, host.Vars)
	default:
		err = report.Env(a.Stdout, report.OwnVars(host.Vars), o.format)
	}
	if err != nil {
		return err
	}
	if !a.JSON && o.format != "json" {
		if err := a.sayFindings(res.Contract, res.Findings); err != nil {
			return err
		}
	}
	if worst, _ := finding.Worst(res.Findings); worst == finding.Error {
		return exit.ErrFindings
	}
	return nil
}

// sayFindings writes the contract and what is wrong on standard error.
func (a *app) sayFindings(contract string, fs []finding.Finding) error {
	if a.Quiet {
		fs = slices.DeleteFunc(slices.Clone(fs), func(f finding.Finding) bool { return f.Severity != finding.Error })
	} else if _, err := fmt.Fprintf(a.Own(), "%s\n", contract); err != nil {
		return err
	}
	if !a.Verbose {
		fs = slices.DeleteFunc(slices.Clone(fs), func(f finding.Finding) bool { return f.Severity == finding.Note && f.ID != "profile.proposal" })
	}
	return report.Findings(a.Own(), fs)
}

func (o envOptions) versions() (envgen.Versions, error) {
	v := envgen.Versions{NCCL: o.nccl, UCX: o.ucx}
	if o.mpi == "" {
		return v, nil
	}
	kind, _, _ := strings.Cut(strings.ToLower(o.mpi), " ")
	if !slices.Contains([]string{"openmpi", "mpich", "intelmpi", "mvapich"}, kind) {
		return v, exit.UsageError(fmt.Errorf("unknown MPI %q", o.mpi), "--mpi 'openmpi 5.0.7', mpich, intelmpi or mvapich")
	}
	v.MPIKind, v.MPI = kind, strings.ToLower(o.mpi)
	return v, nil
}

// onlyNamed keeps the variables of these names; none named: all.
func onlyNamed(vars []envgen.Var, names []string) ([]envgen.Var, error) {
	if len(names) == 0 {
		return vars, nil
	}
	var out []envgen.Var
	for _, n := range names {
		i := slices.IndexFunc(vars, func(v envgen.Var) bool { return v.Name == n })
		if i < 0 {
			err := &exit.Error{Code: exit.Findings, Err: fmt.Errorf("%s is not set here: no rule has a value for it", n)}
			if near, ok := vartable.Nearest(n); ok && near.Name != n {
				err.Hint = "perhaps meant: " + near.Name
			}
			return nil, err
		}
		out = append(out, vars[i])
	}
	return out, nil
}

// profileError is a profile that cannot be loaded: a wrong name is a wrong
// call, and says which there are.
func profileError(err error) error {
	var unknown *profiles.UnknownError
	if errors.As(err, &unknown) {
		return exit.UsageError(err, "there are: "+strings.Join(unknown.Known, ", "))
	}
	return exit.UsageError(err, "'fabrun profile list' names those there are")
}
