package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/profiles"
)

// completeValues lets a shell complete the values of flags and arguments that
// are one of a few words. What is not here is completed as a file.
func (a *app) completeValues(root *cobra.Command) {
	words := func(list ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
	fabrics := a.completeProfiles(profiles.List)
	workloads := a.completeProfiles(profiles.ListWorkloads)
	values := map[string]cobra.CompletionFunc{ // of a flag of one verb, or of every verb that has it
		"profile":      fabrics,
		"workload":     workloads,
		"color":        words("auto", "always", "never"),
		"remote":       words("auto", "native", "ssh", "srun", "none"),
		"preflight":    words("look", "quick", "full", "off"),
		"pairs":        words("off", "quick", "ring", "full"),
		"switch":       words("arista", "onyx", "esxi"),
		"dialect":      words("openmpi", "mpich", "intel", "deepspeed", "horovod", "plain"),
		"hosts format": words("openmpi", "mpich", "intel", "deepspeed", "horovod", "plain", "json"),
		"env format":   words("shell", "fish", "dotenv", "docker", "slurm", "openmpi", "hydra", "k8s", "json"),
		"env mpi":      words("openmpi", "mpich", "intelmpi", "mvapich"),
		"nccl-version": cobra.NoFileCompletions,
		"ucx-version":  cobra.NoFileCompletions,
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for name, complete := range values {
			verb, flag, ok := strings.Cut(name, " ")
			if !ok {
				verb, flag = c.Name(), name
			}
			if f := c.LocalFlags().Lookup(flag); f == nil || verb != c.Name() || f.Value.Type() == "bool" {
				continue
			}
			//nolint:errcheck // the flag is there, and registered once
			_ = c.RegisterFlagCompletionFunc(flag, complete)
		}
		if p := c.Parent(); p != nil && p.Name() == "profile" && slices.Contains([]string{"show", "check"}, c.Name()) {
			c.ValidArgsFunction = fabrics
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// completeProfiles completes the names of profiles, with what they are for;
// files of one's own stay possible.
func (a *app) completeProfiles(list func(profiles.Dirs) []profiles.Info) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		for _, p := range list(a.ProfileDirs()) {
			out = append(out, cobra.CompletionWithDesc(p.Name, p.About))
		}
		return out, cobra.ShellCompDirectiveDefault
	}
}
