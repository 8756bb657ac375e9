package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/exit"
	"fabrun/launcher/files"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/topology/finding"
)

// Allocation says where the job's hosts come from: a list or hostfile given by
// flag, else the resource manager, else this machine. Inside an allocation a
// list or hostfile narrows it and can name nothing else.
func (a *Call) Allocation(list, hostfile string) (hosts.Allocation, error) {
	if list != "" && hostfile != "" {
		return hosts.Allocation{}, exit.UsageError(errors.New("--hosts and --hostfile both name the hosts"), "give one of them")
	}
	base, err := hosts.FromEnv(a.Getenv, files.Read)
	if err != nil {
		return base, exit.WithHint(fmt.Errorf("hosts of the job: %w", err), "unset the variable if it is left from another job")
	}
	var given hosts.Allocation
	switch {
	case list != "":
		if given, err = hosts.ParseList(list); err != nil {
			return given, exit.UsageError(err, `like --hosts 'node[01-12]', 'a:8,b:8' or '10.1.4.[1-12]'`)
		}
	case hostfile != "":
		if given, err = ReadHosts(hostfile, hosts.AnySyntax); err != nil {
			return given, exit.WithHint(fmt.Errorf("--hostfile: %w", err), "")
		}
		given.Source = "--hostfile " + hostfile
	case base.Source != "":
		return base, nil
	default:
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		return hosts.Allocation{Source: "localhost", Hosts: []hosts.Host{{Name: name}}}, nil
	}
	narrows := base.Manager != "" && len(base.Hosts) > 0 && base.Nodes <= len(base.Hosts)
	if !narrows && len(given.Relative) == 0 && len(given.Hosts) > 0 {
		return given, nil
	}
	out, err := hosts.Narrow(base, given)
	if err != nil {
		return out, exit.WithHint(err, "inside an allocation only its own hosts can be used; 'fabrun hosts' lists them")
	}
	return out, nil
}

// findHosts says where the job runs, and whether the launcher has to be told.
// What was named to fabrun comes first, then the launcher's own options, then
// what a resource manager says, then this machine.
func (a *Call) findHosts(ctx context.Context, job *Sight, o Options, p probed) error {
	manager := job.cmd.Launcher.Dialect.Manager
	switch sources := job.cmd.HostSources(a.Env); {
	case o.Hosts != "" || o.Hostfile != "":
		alloc, err := a.Allocation(o.Hosts, o.Hostfile)
		if err != nil {
			return err
		}
		job.alloc, job.given = alloc, true
	case len(sources) > 0:
		a.launchersHosts(job, sources)
	default:
		alloc, err := a.Allocation("", "")
		if err != nil {
			return err
		}
		job.alloc = ofComponents(alloc, job.cmd.Components())
		a.ownNode(job)
		if manager != "" && alloc.Manager != manager {
			job.alloc = hosts.Allocation{Source: job.cmd.Launcher.Dialect.Name, Manager: manager}
			if n := job.cmd.Nodes(); n != nil {
				job.alloc.Nodes = *n
			}
		}
	}
	if _, inside := a.Getenv("SLURM_JOB_ID"); manager != "" && !inside && a.From == "" {
		job.unreached = "srun has not got them yet"
		job.finds = append(job.finds, finding.Finding{
			ID: "srun.no-allocation", Severity: finding.Warning, Subject: "srun",
			Seen: "srun outside an allocation: which nodes it gets is not known before it starts", Wanted: "nodes that can be looked at",
			Why: "nothing is set and nothing judged", Hint: "salloc -N2 fabrun srun …, or fabrun srun … inside a batch script",
		})
		return nil
	}
	a.torchOnEach(job)
	job.tellHosts = a.hasToBeTold(ctx, job, p)
	return nil
}

// torchOnEach says where srun or mpirun starts a torchrun on several nodes that
// knows of one only.
func (a *Call) torchOnEach(job *Sight) {
	nodes := max(len(job.alloc.Hosts), job.alloc.Nodes)
	if n := job.cmd.Nodes(); n != nil {
		nodes = *n
	}
	if nodes < 2 || job.cmd.Launcher.Dialect.PerNode {
		return
	}
	for _, program := range job.cmd.Programs() {
		inner := cmdline.Parse(cmdline.Identify(program, "", ""), program)
		if inner.Launcher.Dialect.PerNode && inner.TorchNodesMost(a.Env) == 1 {
			job.finds = append(job.finds, finding.Finding{
				ID: "torchrun.each-alone", Severity: finding.Warning, Subject: "torchrun",
				Seen: fmt.Sprintf("torchrun without --nnodes, started on %d nodes", nodes), Wanted: "one training over all of them",
				Why:  "each node would train by itself, and no data goes between them",
				Hint: fmt.Sprintf("'fabrun torchrun …' in the allocation starts it on all nodes; or say --nnodes %d --rdzv-backend c10d --rdzv-endpoint HOST:PORT; where each is meant alone, nothing", nodes),
			})
			return
		}
	}
}

// ofComponents leaves of a heterogeneous allocation the parts on which a step runs;
// all of it for launchers that are no step.
func ofComponents(alloc hosts.Allocation, parts []int) hosts.Allocation {
	only := hosts.Allocation{Source: alloc.Source}
	for _, i := range parts {
		if i < len(alloc.Components) {
			for _, name := range alloc.Components[i] {
				only.Hosts = append(only.Hosts, hosts.Host{Name: name})
			}
		}
	}
	if narrowed, err := hosts.Narrow(alloc, only); err == nil && len(only.Hosts) > 0 {
		return narrowed
	}
	return alloc
}

// ownNode leaves of a job that somebody else starts on each of its nodes (torchrun
// by hand, the pods of a training operator) this node alone: every node has a
// fabrun of its own, and pods take no login.
func (a *Call) ownNode(job *Sight) {
	d, alloc := job.cmd.Launcher.Dialect, job.alloc
	byHand := d.PerNode && alloc.Source == "localhost" && job.cmd.TorchNodesMost(a.Env) != 1
	if !byHand && (!hosts.SchedulerNamed(alloc.Source).PerNode || !d.PerNode && !d.Alone) {
		return
	}
	n := job.cmd.TorchNodes(a.Env)
	pod, _ := a.Getenv("KUBERNETES_SERVICE_HOST")
	pet, _ := a.Getenv("PET_NNODES")
	switch {
	case byHand || alloc.Nodes < 2:
	case pod != "" || pet != "":
		n = alloc.Nodes
	case alloc.Master != "" && !look.IsHere(hosts.Allocation{Hosts: []hosts.Host{{Name: alloc.Master}}}):
		n = 2 // at least: outside pods WORLD_SIZE may count processes
	default:
		n = 0
	}
	if n == 1 && byHand {
		n = 0 // from one node on
	}
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	job.alloc = hosts.Allocation{Source: alloc.Source, Nodes: n, Self: alloc.Self, Master: alloc.Master, MasterPort: alloc.MasterPort, Hosts: []hosts.Host{{Name: name}}}
	job.own = true
	if n != 1 {
		job.notes = append(job.notes, "the job has nodes that are not started here: this fabrun looks at its own node and speaks of it, and each of the others has one of its own")
	}
}

// launchersHosts reads what the launcher's own options and variables say. The
// launcher reads them by its own rules: what fabrun cannot read is said and not
// fatal.
func (a *Call) launchersHosts(job *Sight, sources []cmdline.HostSource) {
	var all hosts.Allocation
	for _, src := range sources {
		var one hosts.Allocation
		err := errors.New("it names no hosts that can be read here")
		switch {
		case src.File != "":
			one, err = ReadHosts(src.File, job.cmd.Launcher.Dialect.Hostfile.Syntax)
		case src.List != "" && job.cmd.Launcher.Dialect.HostList != nil:
			one, err = job.cmd.Launcher.Dialect.HostList(src.List)
		case src.List != "":
			one, err = hosts.ParseList(src.List)
		}
		if err != nil {
			job.look.Miss("", fmt.Sprintf("%s: %v", src.Option, err))
			job.finds = append(job.finds, finding.Finding{
				ID: "hosts.unread", Severity: finding.Warning, Subject: src.Option, Seen: err.Error(), Wanted: "hosts that can be looked at",
				Why: "where the job runs is the launcher's affair; its hosts are not looked at", Hint: "see that the file is there, or name the hosts: --hosts 'n[1-4]'",
			})
			continue
		}
		all = hosts.Join(all, one)
	}
	all.Source = sources[0].Option
	if base, err := hosts.FromEnv(a.Getenv, files.Read); err == nil && base.Manager != "" && len(base.Hosts) > 0 && len(all.Hosts) > 0 {
		if narrowed, err := hosts.Narrow(base, all); err == nil {
			job.alloc = narrowed
			return
		}
		all.Manager, all.JobID = base.Manager, base.JobID
	}
	job.alloc = all
}

// hasToBeTold reports whether the launcher does not find the job's hosts by
// itself: they come from something that it does not read.
func (a *Call) hasToBeTold(ctx context.Context, job *Sight, p probed) bool {
	alloc, l := job.alloc, job.cmd.Launcher
	if job.given || len(alloc.Hosts) == 0 || alloc.Nodes > len(alloc.Hosts) || alloc.Source == "localhost" || len(job.cmd.HostSources(a.Env)) > 0 {
		return false
	}
	if by := l.Dialect.BuiltFor; by != nil && alloc.Manager != "" && alloc.Manager != by.Always && a.From == "" {
		l.Managers = a.builtFor(ctx, by, p)
	}
	if !l.Dialect.Reads() || l.ReadsManager(alloc.Source) {
		return false
	}
	if alloc.Manager != "" {
		job.notes = append(job.notes, fmt.Sprintf("this %s cannot read the hosts of %s by itself: it is told them", l.Family, alloc.Manager))
	}
	return true
}

// builtFor asks the program beside the launcher which resource managers that was
// built for; nil where it cannot be asked.
func (a *Call) builtFor(ctx context.Context, by *cmdline.BuiltFor, p probed) []string {
	file := filepath.Join(filepath.Dir(p.resolved), by.Program)
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	text := a.cachedAnswer(fmt.Sprintf("%s %s %d %d", file, strings.Join(by.Args, " "), info.Size(), info.ModTime().UnixNano()), func() string {
		return ask(ctx, file, file, a.Env, by.Args...)
	})
	return by.Read(text)
}

// srunMPI is the way by which srun's tasks find each other where the command
// line does not say: Slurm's MpiDefault; "" not known.
func (a *Call) srunMPI(ctx context.Context) string {
	path, _ := a.Getenv("PATH")
	file, err := launcher.LookPath("scontrol", path, ".")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(ask(ctx, file, "scontrol", a.Env, "show", "config")) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "MpiDefault" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// OrderByTopology puts hosts that share a switch or a block next to each other.
func OrderByTopology(alloc hosts.Allocation, path string) (hosts.Allocation, error) {
	text, err := files.Read(path)
	if err != nil {
		return alloc, exit.WithHint(fmt.Errorf("read topology: %w", err), "")
	}
	t, err := hosts.ParseTopology(text)
	if err != nil {
		return alloc, exit.WithHint(fmt.Errorf("topology %q: %w", path, err), "")
	}
	return hosts.Order(alloc, t), nil
}
