package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is what every verb gets: the process's arguments, environment and
// streams as values, and the global flags. Nothing below main reads the
// process's own.
type app struct {
	args   []string
	env    []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	reached  *reached  // run: the way to the other nodes stays open
	progress *progress // nil: how far the work is is not shown

	profile  string
	workload string
	from     string
	fromText string // of --from, once it was read
	root     string
	json     bool
	quiet    bool
	verbose  bool
	color    string
}

// getenv returns the last value of name in the environment, and whether it is there.
func (a *app) getenv(name string) (string, bool) { return lookupEnv(a.env, name) }

// lookupEnv returns the last value of a name in an environment.
func lookupEnv(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringVar(&a.profile, "profile", "", "fabric profile: a `name` or a TOML file")
	f.StringVar(&a.workload, "workload", "", "workload profile: a `name` or a TOML file")
	f.StringVar(&a.from, "from", "", "work on this snapshot or NCCL topology XML `file`, not on this machine")
	f.StringVar(&a.root, "root", "", "read this root `directory` instead of /")
	f.BoolVar(&a.json, "json", false, "print the result as JSON")
	f.BoolVar(&a.quiet, "quiet", false, "print errors and the verdict only")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "print more detail")
	f.StringVar(&a.color, "color", "auto", "colour: `when` is auto, always or never")
}

type verb struct {
	name string
	make func(*app) *cobra.Command
}

// verbs is the explicit list of what fabrun can do, in the order of its help.
var verbs = []verb{
	{"run", newRunCmd},
	{"plan", newPlanCmd},
	{"rank", newRankCmd},
	{"watch", newWatchCmd},
	{"report", newReportCmd},
	{"check", newCheckCmd},
	{"diff", newDiffCmd},
	{"hosts", newHostsCmd},
	{"topo", newTopoCmd},
	{"slurm", newSlurmCmd},
	{"snapshot", newSnapshotCmd},
	{"lint", newLintCmd},
	{"env", newEnvCmd},
	{"profile", newProfileCmd},
	{"dscp", newDSCPCmd},
	{"version", newVersionCmd},
}

func isVerb(name string) bool {
	return slices.ContainsFunc(verbs, func(v verb) bool { return v.name == name })
}

// rootCmd makes the command line with every verb, or, where the first word is
// one, with that verb alone: making all of them takes longer than rank's work.
func (a *app) rootCmd(argv ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "fabrun",
		Short: "Make sure an RDMA job really uses RDMA, and say so when it does not",
		Long: `fabrun stands in front of mpirun or torchrun. It looks at the machines, sets what
makes the job use the RDMA fabric, checks it, starts the launcher, watches for
the silent fallback to sockets, and says at the end what really happened.

A first word that is no verb is the program: 'fabrun mpirun …' means
'fabrun run -- mpirun …', and run's flags may stand before it.`,
		Example: `  fabrun mpirun -np 96 simpleFoam -parallel
  fabrun --hosts 'gpu[01-04]' torchrun --nproc-per-node 8 train.py
  fabrun plan -- mpirun -np 2 ./a.out`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a.globalFlags(root.PersistentFlags())
	one := len(argv) > 0 && isVerb(argv[0])
	for _, v := range verbs {
		if !one || v.name == argv[0] {
			root.AddCommand(v.make(a))
		}
	}
	a.wrapWork(root)
	root.CompletionOptions.DisableDefaultCmd = one
	return root
}

// wrapWork gives what a verb's work returns the status of "could not do it",
// and its text the colour that is wanted. What cobra refuses before that (flags,
// arguments, verbs) stays a wrong call.
func (a *app) wrapWork(c *cobra.Command) {
	if work := c.RunE; work != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := a.paint(c); err != nil {
				return err
			}
			err := work(c, args)
			if p, ok := a.stdout.(*painter); ok {
				err = cmp.Or(err, p.flush())
			}
			if err != nil {
				return asExit(err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		a.wrapWork(sub)
	}
}

// run is the whole program: it returns the exit status and touches nothing of
// the process but what it is given.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{args: args, env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	argv, isRun := a.asShim()
	if !isRun {
		argv, isRun = insertRun(args[1:])
	}
	root := a.rootCmd(argv...)
	root.SetArgs(argv)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if i := slices.IndexFunc(c.Flags().Args(), isAssignment); c.Name() == "env" && i >= 0 {
			return usageError(err, envProgramHint)
		}
		return usageError(err, fmt.Sprintf("'%s --help' lists the flags", c.CommandPath()))
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// cobra's own complaints (unknown verb, wrong number of arguments) are not
	// wrapped; they are wrong calls.
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{Code: exitUsage, Err: err, Hint: "'fabrun help' lists the verbs"}
	}
	if isRun && e.Code == exitUsage && e.Err != nil { // without Err it is the child's own status
		e = &exitError{Code: exitRunUsage, Err: e.Err, Hint: e.Hint}
	}
	a.printError(e)
	return e.Code
}

// printError writes an error for people on stderr, and with --json as an
// object on stdout.
func (a *app) printError(e *exitError) {
	if e.Err == nil {
		return
	}
	if a.json {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		//nolint:errcheck // nowhere left to report a failed write
		_ = enc.Encode(map[string]any{"schema": "fabrun/error/v1", "error": e.Err.Error(), "hint": e.Hint, "exit_status": e.Code})
	}
	fmt.Fprintf(a.stderr, "fabrun: %v\n", e.Err)
	if e.Hint != "" {
		fmt.Fprintf(a.stderr, "        %s\n", e.Hint)
	}
}

// insertRun makes 'fabrun [flags] PROGRAM …' into 'fabrun run [flags] -- PROGRAM …'.
// Verbs win over programs of the same name; '--' says that a program follows.
// It reports whether the call is a run.
func insertRun(argv []string) ([]string, bool) {
	if len(argv) > 0 && isVerb(argv[0]) {
		return argv, argv[0] == "run"
	}
	known := newRunCmd(&app{}).Flags()
	(&app{}).globalFlags(known)
	takesNext := func(f *pflag.Flag) bool { return f != nil && f.NoOptDefVal == "" }
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--":
			return slices.Concat([]string{"run"}, argv[:i], argv[i:]), true
		case word == "--help" || word == "-h" || word == "--version":
			return argv, false
		case strings.HasPrefix(word, "--"):
			if strings.Contains(word, "=") {
				continue
			}
			if takesNext(known.Lookup(word[2:])) {
				i++
			}
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if takesNext(known.ShorthandLookup(word[len(word)-1:])) {
				i++
			}
		default:
			if isVerb(word) || word == "help" || word == "completion" || strings.HasPrefix(word, "__") {
				return argv, word == "run"
			}
			return slices.Concat([]string{"run"}, argv[:i], []string{"--"}, argv[i:]), true
		}
	}
	return argv, false
}
