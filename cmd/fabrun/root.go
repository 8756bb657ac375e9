package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/job"
	"fabrun/launcher/report"
	"fabrun/launcher/slurm"
)

// app is what every verb gets: the process's arguments, environment and
// streams as values, and the global flags. Nothing below main reads the
// process's own.
type app struct {
	job.Call
	color when
}

func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringVar(&a.Profile, "profile", "", "fabric profile: a `name` or a TOML file")
	f.StringVar(&a.Workload, "workload", "", "workload profile: a `name` or a TOML file")
	f.StringVar(&a.From, "from", "", "work on this snapshot or NCCL topology XML `file`, not on this machine")
	f.StringVar(&a.Root, "root", "", "read this root `directory` instead of /")
	f.BoolVar(&a.JSON, "json", false, "print the result as JSON")
	f.BoolVar(&a.Quiet, "quiet", false, "say only what is wrong: errors, and a verdict of a fallback")
	f.BoolVarP(&a.Verbose, "verbose", "v", false, "print more detail")
	a.color = "auto"
	f.Var(&a.color, "color", "colour: `when` is auto, always or never")
}

type verb struct {
	name  string
	group string // of groups
	make  func(*app) *cobra.Command
}

// groups are the headings of the list of verbs.
var groups = []*cobra.Group{
	{ID: "job", Title: "The job:"},
	{ID: "machines", Title: "The machines:"},
	{ID: "settings", Title: "Settings and scripts:"},
	{ID: "called", Title: "Called by launchers and schedulers:"},
}

// verbs is the explicit list of what fabrun can do.
var verbs = []verb{
	{"run", "job", newRunCmd},
	{"plan", "job", newPlanCmd},
	{"rank", "called", newRankCmd},
	{"watch", "job", newWatchCmd},
	{"report", "job", newReportCmd},
	{"check", "machines", newCheckCmd},
	{"diff", "machines", newDiffCmd},
	{"hosts", "machines", newHostsCmd},
	{"topo", "machines", newTopoCmd},
	{"slurm", "called", newSlurmCmd},
	{"snapshot", "machines", newSnapshotCmd},
	{"lint", "settings", newLintCmd},
	{"env", "settings", newEnvCmd},
	{"profile", "settings", newProfileCmd},
	{"dscp", "settings", newDSCPCmd},
	{"version", "", newVersionCmd},
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
	root.AddGroup(groups...)
	for _, v := range verbs {
		if !one || v.name == argv[0] {
			c := v.make(a)
			c.GroupID = v.group
			root.AddCommand(c)
		}
	}
	if !one {
		root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{.CommandPath}} [command]{{end}}", `{{if .HasParent}}{{.CommandPath}} [command]{{else}}fabrun [flags] PROGRAM…
  fabrun VERB …{{end}}{{end}}`, 1))
	}
	if len(argv) > 0 && strings.HasPrefix(argv[0], cobra.ShellCompRequestCmd) {
		a.completeValues(root)
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
			if err := a.flagsFromEnv(c); err != nil {
				return err
			}
			a.paint(c)
			err := work(c, args)
			if p, ok := a.Stdout.(*painter); ok {
				err = cmp.Or(err, p.flush())
			}
			if err != nil {
				return exit.Of(err)
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
	return (&app{}).run(ctx, args, env, stdin, stdout, stderr)
}

func (a *app) run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a.Args, a.Env, a.Stdin, a.Stdout, a.Stderr = args, env, stdin, stdout, stderr
	a.Version = buildVersion()
	defer a.tellPod()
	argv, isRun := a.AsShim()
	if !isRun {
		var isRank bool
		if argv, isRank = a.AsRank(); !isRank {
			argv, isRun = insertRun(completeRun(behindEntrypoint(args[1:])))
		}
	}
	root := a.rootCmd(argv...)
	root.SetArgs(argv)
	root.SetIn(stdin)
	root.SetOut(report.PlainText(stdout, env))
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if i := slices.IndexFunc(c.Flags().Args(), isAssignment); c.Name() == "env" && i >= 0 {
			return exit.UsageError(err, envProgramHint)
		}
		if _, word, ok := strings.Cut(err.Error(), "unknown shorthand flag: "); ok {
			_, word, _ = strings.Cut(word, " in ")
			err = fmt.Errorf("%s: there is no such flag", word)
		}
		hint := fmt.Sprintf("'%s --help' lists the flags", c.CommandPath())
		if isRun {
			hint = cmp.Or(launcherFirst(args[1:]), hint)
		}
		return exit.UsageError(err, hint)
	})
	called, err := noSuchVerb(root, argv)
	if err == nil {
		called, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return exit.OK
	}
	// cobra's own complaints (unknown verb, wrong number of arguments) are not
	// wrapped; they are wrong calls.
	var e *exit.Error
	if !errors.As(err, &e) {
		e = &exit.Error{Code: exit.Usage, Err: err, Hint: "'fabrun help' lists the verbs"}
		// What was refused may have been refused before the flags were read.
		own := argv
		if i := slices.Index(argv, "--"); i >= 0 {
			own = argv[:i]
		}
		a.JSON = a.JSON || slices.Contains(own, "--json")
		switch {
		case called.Name() == "slurm" && called.Parent() == root:
			slurm.OwnFault(a.Own(), err)
			return exit.OK
		case called != root:
			e.Hint = "usage: " + called.UseLine()
		}
	}
	if e.Code == exit.NotFound && isRun && !slices.Equal(argv, args[1:]) {
		e.Hint = cmp.Or(meantVerb(argv), e.Hint)
	}
	if isRun && e.Code == exit.Usage && e.Err != nil { // without Err it is the child's own status
		e = &exit.Error{Code: exit.RunUsage, Err: e.Err, Hint: e.Hint}
	}
	if isRun && e.Err != nil {
		a.Ending = e.Err.Error()
	}
	a.printError(e, isRun)
	return e.Code
}

// noSuchVerb refuses 'fabrun profile shwo', for which cobra prints help and
// leaves with 0; it returns the verb that lacks it.
func noSuchVerb(root *cobra.Command, argv []string) (*cobra.Command, error) {
	root.InitDefaultCompletionCmd(argv...)
	c, rest, err := root.Find(argv)
	i := slices.IndexFunc(rest, func(w string) bool { return !strings.HasPrefix(w, "-") })
	if err != nil || c == root || c.Runnable() || !c.HasSubCommands() || i < 0 {
		return root, nil
	}
	word := rest[i]
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	meant := ""
	if near := suggestions(c, word); len(near) > 0 {
		meant = fmt.Sprintf("; did you mean '%s %s'?", c.CommandPath(), near[0])
	}
	return c, fmt.Errorf("%q is no verb of '%s', which has %s%s", word, c.CommandPath(), strings.Join(names, ", "), meant)
}

// suggestions are the verbs of c that word may have been meant as.
func suggestions(c *cobra.Command, word string) []string {
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

// noArgs is cobra.NoArgs with a text that does not speak of commands.
func noArgs(c *cobra.Command, args []string) error { return takes(0, 0)(c, args) }

// takes wants this many arguments, in the words of the verb's usage line.
func takes(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		_, names, _ := strings.Cut(c.Use, " ")
		switch {
		case len(args) > high && high == 0:
			return fmt.Errorf("'%s' takes no arguments, got %q", c.CommandPath(), args[0])
		case len(args) > high:
			return fmt.Errorf("'%s' takes %s, got %q too", c.CommandPath(), names, args[high])
		case len(args) < low:
			return fmt.Errorf("'%s' wants %s", c.CommandPath(), names)
		}
		return nil
	}
}

// meantVerb is a hint where the program that was not found may be a verb with a
// slip in it.
func meantVerb(argv []string) string {
	i := slices.Index(argv, "--") + 1
	if i == 0 || i == len(argv) {
		return ""
	}
	near := suggestions((&app{}).rootCmd(), argv[i])
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("it is no verb of fabrun either: did you mean 'fabrun %s'?", near[0])
}

// printError writes an error for people on stderr, and with --json as an
// object on stdout; a run's on stderr.
func (a *app) printError(e *exit.Error, isRun bool) {
	if e.Err == nil {
		return
	}
	if a.JSON {
		to := a.Stdout
		if isRun {
			to = a.Stderr // standard output is the job's
		}
		//nolint:errcheck // nowhere left to report a failed write
		_ = report.ErrorJSON(to, e.Err.Error(), e.Hint, e.Code, isRun)
	}
	own := a.Own()
	fmt.Fprintf(own, "%v\n", e.Err)
	if e.Hint != "" {
		fmt.Fprintf(own, "        %s\n", e.Hint)
	}
}

// behindEntrypoint makes "run -- --strict torchrun", which an image's ENTRYPOINT
// ["fabrun", "run", "--"] makes of "podman run IMAGE --strict torchrun", into
// "--strict torchrun": no program has a name that begins with a dash.
func behindEntrypoint(argv []string) []string {
	if len(argv) > 2 && argv[0] == "run" && argv[1] == "--" && len(argv[2]) > 1 && argv[2][0] == '-' {
		return argv[2:]
	}
	return argv
}

// launcherFirst is a hint where a launcher's options were given without the
// launcher: "fabrun -np 2 icoFoam"; "" where they are nobody's.
func launcherFirst(words []string) string {
	known := newRunCmd(&app{}).Flags()
	(&app{}).globalFlags(known)
	at := 0
	if len(words) > 0 && words[0] == "run" {
		at = 1
	}
	for ; at < len(words) && strings.HasPrefix(words[at], "--"); at++ {
		name, _, joined := strings.Cut(words[at][2:], "=")
		f := known.Lookup(name)
		if f == nil {
			break
		}
		if !joined && f.NoOptDefVal == "" {
			at++
		}
	}
	if at >= len(words) {
		return ""
	}
	if name := cmdline.MakesSenseTo(words[at:]); name != "" {
		return fmt.Sprintf("%s is %s's: %s first, as in 'fabrun %s'", words[at], name, name, strings.Join(slices.Insert(slices.Clone(words), at, name), " "))
	}
	return ""
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
		case word == "--help" || word == "-h":
			return argv, false
		case word == "--version":
			return slices.Concat(argv[:i], []string{"version"}, argv[i+1:]), false
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
