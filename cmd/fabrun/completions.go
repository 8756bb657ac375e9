package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fabrun/launcher/hosts"
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
		"hosts":        a.completeHosts,
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

// completeRun lets a shell complete what stands before and in a program's words,
// 'fabrun --hosts n[1-4] mpirun -h', as run's.
func completeRun(argv []string) []string {
	if len(argv) < 3 || !strings.HasPrefix(argv[0], cobra.ShellCompRequestCmd) || isVerb(argv[1]) || argv[1] == "help" || argv[1] == "completion" {
		return argv
	}
	ran, isRun := insertRun(argv[1 : len(argv)-1])
	if name, _, _ := strings.Cut(strings.TrimPrefix(argv[1], "--"), "="); !isRun && newRunCmd(&app{}).Flags().Lookup(name) == nil {
		return argv
	} else if !isRun {
		ran = slices.Concat([]string{"run"}, argv[1:len(argv)-1])
	}
	return slices.Concat(argv[:1], ran, argv[len(argv)-1:])
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

// completeHosts completes the last host of a list: those of the job where there
// is one, else those that ssh knows by a name.
func (a *app) completeHosts(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var names []string
	if job, err := a.Allocation("", ""); err == nil && job.Manager != "" {
		for _, h := range job.Hosts {
			names = append(names, h.Name)
		}
	} else if home, ok := a.Getenv("HOME"); ok {
		for _, file := range []string{".ssh/config", ".ssh/known_hosts"} {
			if text, err := os.ReadFile(filepath.Join(home, file)); err == nil {
				names = append(names, sshNames(string(text))...)
			}
		}
	}
	slices.Sort(names)
	var out []cobra.Completion
	for _, n := range slices.Compact(names) {
		out = append(out, before+n)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// sshNames are the hosts that an ssh_config or a known_hosts names: no patterns,
// no hashes, no addresses.
func sshNames(text string) (names []string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && strings.EqualFold(words[0], "Host"):
			words = words[1:]
		case len(words) > 2 && !strings.HasPrefix(words[0], "@"):
			words = strings.Split(words[0], ",")
		default:
			continue
		}
		for _, w := range words {
			_, noAddress := netip.ParseAddr(w)
			if one, err := hosts.Expand(w); err == nil && len(one) == 1 && one[0] == w && noAddress != nil {
				names = append(names, w)
			}
		}
	}
	return names
}
