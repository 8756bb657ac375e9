package cmdline

import (
	"maps"
	"slices"
	"strings"
)

// Option is one option of the launcher as it stands in the command line.
type Option struct {
	Name   string   // canonical, without dashes: "np", "x", "mca"
	At     int      // index of its word
	Words  int      // how many words it takes, its own included
	Values []string // its values, also where they are joined to it
}

// App is one application of a command line: its options, then its program.
type App struct {
	From, To int // its words are [From, To) of the command line
	Options  []Option
	Program  int    // index of the program's word; To when there is none
	Dashes   int    // index of a "--" that ends the options; -1
	Doubt    string // why Program may be wrong; "" when it is certain
}

func (c *App) add(name string, at, words int, values ...string) {
	c.Options = append(c.Options, Option{Name: name, At: at, Words: words, Values: values})
}

func (c *App) unsure(why string) {
	if c.Doubt == "" {
		c.Doubt = why
	}
}

// All returns the options of these names, in their order.
func (c *App) All(names ...string) []Option {
	var out []Option
	for _, o := range c.Options {
		if slices.Contains(names, o.Name) {
			out = append(out, o)
		}
	}
	return out
}

// Last returns the last option of these names, which is the one that counts;
// nil where there is none.
func (c *App) Last(names ...string) *Option {
	if all := c.All(names...); len(all) > 0 {
		return &all[len(all)-1]
	}
	return nil
}

// table makes an arity map from lists of names.
func table(flags, one, two string) map[string]int {
	m := map[string]int{}
	for n, list := range []string{flags, one, two} {
		for _, name := range strings.Fields(list) {
			m[name] = n
		}
	}
	return m
}

const (
	openmpiOne = `report-pid report-uri timeout hnp xml-file output-filename xterm stdin launch-agent preload-files app
		c np n max-vm-size hostfile machinefile default-hostfile ompi-server cf cartofile rf rankfile x H host
		cpus-per-proc cpus-per-rank npernode N npersocket map-by rank-by bind-to cpu-list ppr cpu-set wdir wd path
		debugger prefix report-events max-restarts personality am tune`
	openmpiFlags = `V version v verbose q quiet report-state-on-timeout get-stack-traces report-child-jobs-separately xml
		tag-output timestamp-output merge-stderr-to-stdout index-argv-by-rank s preload-binary do-not-resolve display-map
		display-devel-map display-topo display-diffable-map nolocal nooversubscribe oversubscribe bycore bynode byslot
		pernode use-hwthread-cpus bind-to-core bind-to-socket report-bindings display-allocation
		display-devel-allocation set-cwd-to-session-dir tv debug output-proctable d debug-devel debug-daemons
		debug-daemons-file leave-session-attached do-not-launch noprefix show-progress use-regexp enable-recovery
		disable-recovery continuous novm allow-run-as-root dvm fwd-mpirun-port enable-instant-on-support h help`
)

// openmpiAlias maps spellings to the one name that the rest of the package asks for.
var openmpiAlias = map[string]string{
	"n": "np", "c": "np", "machinefile": "hostfile", "H": "host", "wd": "wdir", "rf": "rankfile", "cf": "cartofile",
	"cpus-per-rank": "cpus-per-proc", "V": "version", "v": "verbose", "q": "quiet", "s": "preload-binary", "h": "help", "d": "debug-devel",
}

func openmpi4Grammar() *grammar {
	return &grammar{
		split: splitOpenMPI4, colon: true, opaque: []string{"app"},
		args: table(openmpiFlags, openmpiOne, "mca gmca"), alias: openmpiAlias,
	}
}

func openmpi5Grammar() *grammar {
	args := table(openmpiFlags, openmpiOne, "mca gmca omca gomca prtemca pmixmca gpmixmca gprtemca prepend-envar append-envar")
	maps.Copy(args, table("soft p parsable parseable do-not-connect keepalive-off no-ready-msg",
		`dvm display-topo output display runtime-options tmpdir forward-signals pset spawn-timeout unset-envar
		memory-alloc-kinds gpu-support app-pmix-prefix initial-errhandler with-ft arch file stream-buffering
		output-directory amca exec-agent add-hostfile add-host rtos map-by-list launcher-hostfile dvm-uri max-threads`, ""))
	args["fwd-environment"], args["output-proctable"], args["help"], args["h"] = optional, optional, optional, optional
	// 5.x has no -d, -q, -rf, -tv.
	for _, gone := range []string{"d", "q", "rf", "tv"} {
		delete(args, gone)
	}
	return &grammar{
		split: splitOpenMPI5, colon: true, opaque: []string{"app"},
		args: args, alias: openmpiAlias,
	}
}

// splitOpenMPI4 reads left to right: a word with two dashes is a long name, a
// word with one dash is first looked up whole, then split into letters. There
// is no '=' form.
func splitOpenMPI4(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			c.Dashes, c.Program = i, i+1
			return c
		}
		if !strings.HasPrefix(w, "-") {
			c.Program = i
			return c
		}
		name := strings.TrimPrefix(strings.TrimPrefix(w, "-"), "-")
		n, known := g.args[name]
		if !known {
			c.unsure("mpirun does not know the option " + w)
			c.add(name, i, 1)
			continue
		}
		i = c.take(g, words, name, i, n)
	}
	return c
}

// take adds an option whose n values are the words that follow, and returns
// the index of its last word.
func (c *App) take(g *grammar, words []string, name string, i, n int) int {
	if n == optional {
		n = 0
	}
	if i+n >= len(words) {
		c.unsure("a value is missing after " + words[i])
		n = len(words) - 1 - i
	}
	if long, ok := g.alias[name]; ok {
		name = long
	}
	c.add(name, i, 1+n, words[i+1:i+1+n]...)
	return i + n
}

// splitOpenMPI5 follows PRRTE's preparation for getopt_long: a word of one dash
// and more than two characters counts as long, a word that ends in "mca" takes
// two values, '=' joins a value, and unique beginnings are accepted.
func splitOpenMPI5(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			c.Dashes, c.Program = i, i+1
			return c
		}
		if !strings.HasPrefix(w, "-") || w == "-" {
			c.Program = i
			return c
		}
		long := len(w) > 2
		name, value, joined := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(w, "-"), "-"), "=")
		if long {
			name = unique(g.args, name)
		}
		n, known := g.args[name]
		switch {
		case !known && strings.HasSuffix(name, "mca"):
			i = c.take(g, words, name, i, 2)
		case !known:
			c.unsure("mpirun does not know the option " + w)
			c.add(name, i, 1)
		case joined:
			if short, ok := g.alias[name]; ok {
				name = short
			}
			c.add(name, i, 1, value)
		default:
			i = c.take(g, words, name, i, n)
		}
	}
	return c
}

// unique completes the beginning of a long name, where only one begins so.
func unique(args map[string]int, name string) string {
	if _, ok := args[name]; ok || name == "" {
		return name
	}
	found := ""
	for full := range args {
		if len(full) > 1 && strings.HasPrefix(full, name) {
			if found != "" {
				return name
			}
			found = full
		}
	}
	if found == "" {
		return name
	}
	return found
}

const (
	hydraFlags = `genvnone genvall envnone envall profile prepend-rank l enable-x disable-x debug v verbose
		disable-auto-cleanup enable-auto-cleanup disable-hostname-propagation enable-hostname-propagation hybrid-hosts
		info version pmi-port print-all-exitcodes skip-launch-node report-bindings h help`
	hydraOne = `genvlist envlist f hostfile machinefile machine machines machinelist host hosts hostlist rankmap ppn
		output-from prepend-pattern outfile-pattern outfile errfile-pattern errfile wdir configfile n np
		memory-alloc-kinds launcher bootstrap launcher-exec bootstrap-exec rmk topolib bind-to binding map-by membind
		demux g gpus-per-proc gpu-subdevs-per-proc iface localhost nameserver order-nodes usize`
)

var hydraAlias = map[string]string{
	"n": "np", "f": "hostfile", "machinefile": "hostfile", "machine": "hosts", "machines": "hosts", "machinelist": "hosts",
	"hostlist": "hosts", "binding": "bind-to", "bootstrap": "launcher", "bootstrap-exec": "launcher-exec", "l": "prepend-rank",
	"v": "verbose", "h": "help", "g": "gpus-per-proc",
}

func mpichGrammar() *grammar {
	return &grammar{
		split: splitHydra, colon: true, opaque: []string{"configfile"},
		args: table(hydraFlags, hydraOne, "genv env"), alias: hydraAlias,
	}
}

// intelGrammar is Hydra's with what Intel adds and says otherwise. Sources: its
// manual page mpiexec.hydra(1) and the developer reference 2021.15; the program
// itself was not at hand.
func intelGrammar() *grammar {
	args := table(hydraFlags, hydraOne, "genv env")
	maps.Copy(args, table(`rr trace-imbalance mps aps pmi-aggregate pmi-noaggregate tv gdb gdb-ia nolocal ilp64 noconf
		ordered-output cleanup V print-rank-map prefork silent-abort
		rdma RDMA dapl DAPL ib IB tmi TMI mx MX psm PSM psm2 PSM2 ofi OFI`,
		`perhost grr genvexcl envexcl pmi-connect branch-count tva gdba s path tmpdir use-app-topology bootstrap-exec-args
		gpath gwdir gumask umask gtool gtoolfile hostos hosts-group`, ""))
	for _, name := range []string{"tune", "trace", "t", "trace-pt2pt", "trace-collectives", "check-mpi", "check_mpi"} {
		args[name] = perhaps
	}
	alias := maps.Clone(hydraAlias)
	alias["perhost"], alias["grr"], alias["machine"], alias["gwdir"] = "ppn", "ppn", "hostfile", "wdir"
	return &grammar{split: splitHydra, colon: true, opaque: []string{"configfile"}, args: args, alias: alias}
}

// splitHydra strips all leading dashes, ignores case, and takes "NAME=VALUE"
// after genv and env as one word. A bare "--" is an error to Hydra.
func splitHydra(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		if !strings.HasPrefix(w, "-") {
			c.Program = i
			return c
		}
		name, value, joined := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if _, exact := g.args[name]; !exact {
			name = strings.ToLower(name)
		}
		n, known := g.args[name]
		switch {
		case !known:
			c.unsure("mpiexec does not know the option " + w)
			c.add(name, i, 1)
		case joined:
			if long, ok := g.alias[name]; ok {
				name = long
			}
			c.add(name, i, 1, value)
		case n == perhaps:
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				c.unsure("whether " + w + " takes the word behind it is not known")
			}
			c.add(name, i, 1)
		case n == 2 && i+1 < len(words) && strings.Contains(words[i+1], "="):
			k, v, _ := strings.Cut(words[i+1], "=")
			c.add(name, i, 2, k, v)
			i++
		default:
			i = c.take(g, words, name, i, n)
		}
	}
	return c
}

func srunGrammar() *grammar {
	args := table(`async consolidate-segments contiguous debugger-test disable-status exact help hold interactive label
		multi-prog no-allocate overcommit oversubscribe parsable preserve-env quiet quit-on-interrupt reboot spread-job
		spread-segments stepmgr test-only unbuffered usage use-min-nodes verbose version wait-for-children whole
		container-mount-home no-container-mount-home container-remap-root no-container-remap-root container-entrypoint
		no-container-entrypoint container-writable container-readonly container-entrypoint-log`,
		`account accel-bind acctg-freq array batch bb bbf begin burst-buffer cluster-constraint clusters chdir comment
		compress-level constraint container container-id core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu
		cpus-per-task cpus-per-tres-task deadline delay-boot dependency distribution epilog error exclude export
		export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres
		gres-flags het-group hint input jobid job-name licenses mail-type mail-user max-exit-timeout mcs-label mem
		mem-bind mem-per-cpu mem-per-gpu mem-per-task mincpus mpi msg-timeout network nodefile nodelist nodes ntasks
		ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition
		power prefer priority profile prolog qos relative reservation segment signal slurmd-debug
		sockets-per-node switches task-epilog task-prolog thread-spec threads threads-per-core time time-min tmp
		tree-width tres-bind tres-per-job tres-per-node tres-per-socket tres-per-task uid wait wckey
		container-image container-mounts container-workdir container-name container-save container-env`, "")
	for _, name := range strings.Fields("bcast compress exclusive external-launcher immediate kill-on-bad-exit nice no-kill oom-kill-step overlap propagate pty resv-ports send-libs x11") {
		args[name] = optional
	}
	return &grammar{
		split: splitGetopt, colon: true, args: args, opaque: []string{"multi-prog"},
		alias: map[string]string{"nodefile": "nodefile"},
		short: map[byte]string{
			'A': "account", 'b': "begin", 'B': "extra-node-info", 'c': "cpus-per-task", 'C': "constraint", 'd': "dependency",
			'D': "chdir", 'e': "error", 'E': "preserve-env", 'F': "nodefile", 'G': "gpus", 'h': "help", 'H': "hold", 'i': "input",
			'I': "immediate", 'J': "job-name", 'k': "no-kill", 'K': "kill-on-bad-exit", 'l': "label", 'L': "licenses",
			'm': "distribution", 'M': "clusters", 'n': "ntasks", 'N': "nodes", 'o': "output", 'O': "overcommit", 'p': "partition",
			'q': "qos", 'Q': "quiet", 'r': "relative", 's': "oversubscribe", 'S': "core-spec", 't': "time", 'T': "threads",
			'u': "unbuffered", 'v': "verbose", 'V': "version", 'w': "nodelist", 'W': "wait", 'x': "exclude", 'X': "disable-status",
			'Z': "no-allocate",
		},
	}
}

// splitGetopt is getopt_long with a leading '+': parsing stops at the first
// word that is no option. Options that SPANK plugins add are read as "value
// after =, otherwise unknown".
func splitGetopt(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			c.Dashes, c.Program = i, i+1
			return c
		case !strings.HasPrefix(w, "-") || w == "-":
			c.Program = i
			return c
		case strings.HasPrefix(w, "--"):
			i = c.long(g, words, i, w[2:])
		default:
			i = c.letters(g, words, i, w[1:])
		}
	}
	return c
}

// long reads one --name, --name=value or --name value.
func (c *App) long(g *grammar, words []string, i int, word string) int {
	name, value, joined := strings.Cut(word, "=")
	name = unique(g.args, name)
	n, known := g.args[name]
	switch {
	case joined:
		if long, ok := g.alias[name]; ok {
			name = long
		}
		c.add(name, i, 1, value)
		return i
	case !known:
		c.unsure("whether --" + name + " takes a value is not known to fabrun")
		c.add(name, i, 1)
		return i
	}
	return c.take(g, words, name, i, n)
}

// letters reads a cluster of one-letter options, the last of which may have
// its value joined or in the next word.
func (c *App) letters(g *grammar, words []string, i int, word string) int {
	for j := 0; j < len(word); j++ {
		name, ok := g.short[word[j]]
		if !ok {
			c.unsure("fabrun does not know the option -" + word[j:j+1])
			c.add(word[j:j+1], i, 1)
			return i
		}
		n := g.args[name]
		switch {
		case n == 0:
			c.add(name, i, 1)
		case n == optional || j+1 < len(word):
			c.add(name, i, 1, strings.TrimPrefix(word[j+1:], "="))
			return i
		default:
			return c.take(g, words, name, i, n)
		}
	}
	return i
}

func torchrunGrammar() *grammar {
	return &grammar{
		split: splitArgparse,
		args: table(`standalone module no-python run-path help use-env virtual-local-rank no-virtual-local-rank`,
			`nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval
			start-method event-log-handler role log-dir redirects tee local-ranks-filter node-rank master-addr
			master-port local-addr logs-specs numa-binding signals-to-handle duplicate-stdout-filters
			duplicate-stderr-filters shutdown-timeout`, ""),
		short: map[byte]string{'m': "module", 'r': "redirects", 't': "tee", 'h': "help"},
	}
}

// horovodGrammar is horovod/runner/launch.py; the program itself was not at hand.
func horovodGrammar() *grammar {
	return &grammar{
		split: splitArgparse,
		args: table(`version check-build disable-cache verbose hierarchical-allreduce no-hierarchical-allreduce
			hierarchical-allgather no-hierarchical-allgather autotune no-autotune timeline-mark-cycles
			no-timeline-mark-cycles no-stall-check stall-check mpi-threads-disable no-mpi-threads-disable tcp
			log-with-timestamp log-without-timestamp log-hide-timestamp no-log-hide-timestamp
			prefix-output-with-timestamp gloo mpi jsrun help`,
			`num-proc start-timeout network-interfaces network-interface output-filename config-file ssh-port
			ssh-identity-file fusion-threshold-mb cycle-time-ms cache-capacity autotune-log-file
			autotune-warmup-samples autotune-steps-per-sample autotune-bayes-opt-max-samples
			autotune-gaussian-process-noise min-np min-num-proc max-np max-num-proc slots-per-host elastic-timeout
			reset-limit timeline-filename stall-check-warning-time-seconds stall-check-shutdown-time-seconds mpi-args
			binding-args num-nccl-streams thread-affinity gloo-timeout-seconds log-level hosts hostfile
			host-discovery-script`, "blacklist-cooldown-range"),
		short:  map[byte]string{'v': "version", 'H': "hosts", 'p': "ssh-port", 'i': "ssh-identity-file", 'h': "help"},
		dashed: map[string]string{"-np": "num-proc", "-cb": "check-build", "-hostfile": "hostfile", "-prefix-timestamp": "prefix-output-with-timestamp"},
	}
}

// splitArgparse is Python's argparse with a positional and the rest: dashed and
// underscored spellings, unique beginnings, '=' or the next word.
func splitArgparse(g *grammar, words []string, from int) App {
	c := App{From: from, To: len(words), Program: len(words), Dashes: -1}
	for i := from; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			c.Dashes, c.Program = i, i+1
			return c
		case !strings.HasPrefix(w, "-") || w == "-":
			c.Program = i
			return c
		case g.dashed[w] != "":
			i = c.take(g, words, g.dashed[w], i, g.args[g.dashed[w]])
		case strings.HasPrefix(w, "--"):
			name, value, joined := strings.Cut(w[2:], "=")
			word := strings.ReplaceAll(name, "_", "-")
			if joined {
				word += "=" + value
			}
			i = c.long(g, words, i, word)
		default:
			i = c.letters(g, words, i, w[1:])
		}
	}
	return c
}
