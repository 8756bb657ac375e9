package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/job"
	"fabrun/launcher/plan"
)

// variableVerbs are those that decide for a job; the others answer a person, or a
// scheduler that trusts no user's environment.
var variableVerbs = []string{"run", "plan", "env"}

// flagVariable is the variable that stands for a flag of variableVerbs; "" none.
func flagVariable(flag string) string {
	if flag == "help" {
		return ""
	}
	return "FABRUN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ownVariables are read elsewhere, or are fabrun's own among its processes.
var ownVariables = []string{"FABRUN_HOSTS", "FABRUN_HOSTFILE", "FABRUN_JOB", cmdline.MarkerName, cmdline.ShimName, plan.TableName, plan.AsName}

// yesNo are words for a flag without a value that its own reader does not know.
var yesNo = map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}

// flagVariables lists the variables that stand for flags, sorted.
func flagVariables() []string {
	var o job.RunOptions
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	(&app{}).globalFlags(f)
	runFlags(f, &o)
	var out []string
	f.VisitAll(func(f *pflag.Flag) {
		if v := flagVariable(f.Name); v != "" {
			out = append(out, v)
		}
	})
	slices.Sort(out)
	return out
}

// variableList are they in lines of a help text.
func variableList() string {
	var b strings.Builder
	column := 0
	for i, v := range flagVariables() {
		if i > 0 {
			b.WriteByte(',')
			if column += 2; column+len(v) > 78 {
				b.WriteByte('\n')
				column = 0
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteString(v)
		column += len(v)
	}
	return b.String()
}

// flagsFromEnv gives flags that the command line does not the value of the
// variable that stands for them: an image's ENTRYPOINT cannot be given flags.
func (a *app) flagsFromEnv(c *cobra.Command) error {
	if !slices.Contains(variableVerbs, c.Name()) || c.Parent() != c.Root() {
		return nil
	}
	var wrong error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := flagVariable(f.Name)
		if f.Changed || name == "" || slices.Contains(ownVariables, name) {
			return
		}
		if v, _ := a.Getenv(name); v != "" {
			if word, ok := yesNo[strings.ToLower(v)]; ok && f.NoOptDefVal == "true" {
				v = word
			}
			if err := c.Flags().Set(f.Name, v); err != nil && wrong == nil {
				wrong = exit.UsageError(fmt.Errorf("%s=%s: %w", name, v, err), "it stands for --"+f.Name+": "+f.Usage)
			}
		}
	})
	return wrong
}

// sayStrays names variables that look like those of flags and are none, where one
// was meant.
func (a *app) sayStrays() {
	variables := flagVariables()
	known := &cobra.Command{}
	for _, v := range variables {
		known.AddCommand(&cobra.Command{Use: v, Run: func(*cobra.Command, []string) {}})
	}
	var said []string
	for _, kv := range a.Env {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "FABRUN_") || slices.Contains(variables, name) || slices.Contains(ownVariables, name) || slices.Contains(said, name) {
			continue
		}
		if near := suggestions(known, name); len(near) > 0 {
			said = append(said, name)
			fmt.Fprintf(a.Own(), "warning: %s stands for no flag; perhaps meant: %s\n", name, near[0])
		}
	}
}
