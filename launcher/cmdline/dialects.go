package cmdline

import (
	"maps"
	"strconv"
	"strings"

	"fabrun/launcher/hosts"
	"fabrun/topology"
)

// Dialects is the explicit list, in the order in which words without a launcher's
// name are tried. A new launcher is a value here.
var Dialects = []*Dialect{OpenMPI5, OpenMPI4, MPICH, IntelMPI, Srun, Torchrun, Horovodrun, VLLM, SGLang, Ray, DeepSpeed, Accelerate, Torchx, Flux, Aprun, Jsrun, Unknown, Plain}

// OpenMPI4 is ORTE's command line. Sources: ompi v4.1.8 orte/mca/schizo/ompi/schizo_ompi.c
// and opal/util/cmd_line.c; what it does inside Slurm 22.05 was seen with 4.1.4.
var OpenMPI4 = &Dialect{
	Name: "openmpi4", MPI: "openmpi", usual: "mpirun",
	says: func(text string) (Launcher, bool) {
		version, ok := openmpiVersion(text)
		return Launcher{Family: "Open MPI", Version: version}, ok && major(version) < 5
	},
	files: []string{".openmpi", "orterun"},
	installed: func(s topology.Software) (Launcher, bool) {
		l, five := openmpiInstalled(s)
		return l, l.Family != "" && !five
	},

	grammar: openmpi4Grammar, ranks: []string{"np"}, hosts: openmpiHosts, mapping: openmpiMapping, gives: openmpiGives,
	hostTwins: []hostTwin{{name: "OMPI_MCA_orte_default_hostfile"}, {name: "OMPI_MCA_orte_rankfile"}},
	mapTwins:  []string{"OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"},
	HostList:  hosts.ParseDashHost,
	Managers:  []string{"slurm", "pbs", "lsf", "sge"},
	BuiltFor:  &BuiltFor{Program: "ompi_info", Args: []string{"--parsable"}, Always: "slurm", Read: openmpiManagers},
	Local:     openmpiLocal,

	NP: "-np", BindCore: []string{"--bind-to", "core"}, Hostfile: Hostfile{"--hostfile", hosts.OpenMPI},
	Even: openmpiEven, Uneven: Uneven{ByHostfile: true}, Sequence: &Sequence{Options: []string{"--map-by", "seq"}, Of: "rank"},
	SSH:         &SSHVariable{Name: "OMPI_MCA_plm_rsh_agent", Whole: true, Params: []string{"plm_rsh_agent", "plm_rsh_args"}},
	Forward:     &Forward{Option: "-x", Auto: openmpiAuto, Refuses: "OMPI_MCA_mca_base_env_list"},
	Own:         []string{"OMPI_MCA_plm_", "OMPI_MCA_orte_"},
	RefusesRoot: openmpiRoot,
}

// OpenMPI5 is PRRTE's. Source: prrte 3.0.12 src/mca/schizo/ompi/schizo_ompi.c.
// Whether it keeps to a hostfile's slots inside Slurm was not seen.
var OpenMPI5 = &Dialect{
	Name: "openmpi5", MPI: "openmpi", usual: "mpirun",
	says: func(text string) (Launcher, bool) {
		if version, ok := openmpiVersion(text); ok {
			return Launcher{Family: "Open MPI", Version: version}, major(version) >= 5
		}
		return Launcher{Family: "PRRTE"}, strings.Contains(text, "(PRRTE)") || strings.Contains(text, "(PRTE)") || strings.Contains(text, "prterun ")
	},
	files:     []string{"prterun"},
	installed: func(s topology.Software) (Launcher, bool) { l, five := openmpiInstalled(s); return l, five },

	grammar: openmpi5Grammar, ranks: []string{"np"}, hosts: openmpiHosts, mapping: openmpiMapping, gives: openmpiGives,
	// It does not read the orte_ names that the Kubeflow operator still sets.
	hostTwins: []hostTwin{{name: "PRTE_MCA_prte_default_hostfile"}, {name: "OMPI_MCA_prte_default_hostfile"}},
	mapTwins:  []string{"PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"},
	HostList:  hosts.ParseDashHost,
	Managers:  []string{"slurm", "pbs", "lsf", "sge", "flux"},
	Local:     openmpiLocal,

	NP: "-np", BindCore: []string{"--bind-to", "core"}, Hostfile: Hostfile{"--hostfile", hosts.OpenMPI},
	Even: openmpiEven, Uneven: Uneven{InTurn: []string{"--map-by", "node"}},
	SSH:         &SSHVariable{Name: "PRTE_MCA_plm_ssh_agent", Whole: true, Params: []string{"plm_ssh_agent", "plm_rsh_agent", "plm_ssh_args", "plm_rsh_args"}},
	Forward:     &Forward{Option: "-x", Auto: openmpiAuto, Star: true, Strict: true, Refuses: "OMPI_MCA_mca_base_env_list"},
	Own:         []string{"PRTE_MCA_"},
	RefusesRoot: openmpiRoot,
}

// MPICH is Hydra's. Source: mpich v4.3.0 src/pm/hydra; seen with 4.0.2.
var MPICH = &Dialect{
	Name: "mpich", MPI: "mpich", usual: "mpiexec",
	says: func(text string) (Launcher, bool) {
		l := Launcher{Family: "MPICH", Version: wordAfter(text, "Version:")}
		if strings.Contains(strings.ToLower(text), "mvapich") {
			l.Family, l.MPIKind = "MVAPICH", "mvapich"
		}
		return l, strings.Contains(text, "HYDRA build details") || strings.Contains(text, "MPICH")
	},
	files: []string{".mpich", ".hydra", "mpiexec.hydra"},
	installed: func(s topology.Software) (Launcher, bool) {
		if s.Kind == "mvapich" {
			return Launcher{Family: "MVAPICH", MPIKind: "mvapich", Version: s.Version}, true
		}
		return Launcher{Family: "MPICH", Version: s.Version}, s.Kind == "mpich"
	},

	grammar: mpichGrammar, ranks: []string{"np"}, gives: hydraGives,
	hosts:     []hostOption{{"hostfile", hostsFile}, {"hosts", hostsList}, {"host", hostsList}, {"rankmap", hostsElse}},
	hostTwins: []hostTwin{{name: "HYDRA_HOST_FILE"}, {name: "HYDRA_CONFIG_FILE"}},
	mapping:   hydraMapping,
	mapTwins:  []string{"HYDRA_BINDING", "HYDRA_MAPPING", "HYDRA_MEMBIND"},
	Managers:  []string{"slurm", "pbs", "lsf", "sge", "cobalt"},
	// Hydra's pmip; MVAPICH's names; Cray PALS' as PyTorch Lightning reads them.
	Local: []hosts.LocalNames{
		{Rank: "MPI_LOCALRANKID", Size: "MPI_LOCALNRANKS"},
		{Rank: "MVP_COMM_WORLD_LOCAL_RANK", Size: "MVP_COMM_WORLD_LOCAL_SIZE"},
		{Rank: "MV2_COMM_WORLD_LOCAL_RANK", Size: "MV2_COMM_WORLD_LOCAL_SIZE"},
		{Rank: "PALS_LOCAL_RANKID", Size: "PALS_LOCAL_SIZE"},
		{Rank: "PMI_LOCAL_RANK", Size: "PMI_LOCAL_SIZE"},
	},

	NP: "-n", BindCore: []string{"-bind-to", "core"}, Hostfile: Hostfile{"-f", hosts.MPICH},
	Even: hydraEven, Uneven: Uneven{ByHostfile: true},
	SSH:     &SSHVariable{Name: "HYDRA_LAUNCHER_EXTRA_ARGS"},
	Forward: &Forward{Set: "-genv", Narrows: hydraNarrows, NarrowBy: "HYDRA_ENV"},
	Own:     []string{"HYDRA_"},
}

// IntelMPI is Hydra's with what Intel adds. Source: Intel MPI developer reference
// 2021.15.
var IntelMPI = &Dialect{
	Name: "intelmpi", MPI: "intelmpi",
	says: func(text string) (Launcher, bool) {
		return Launcher{Family: "Intel MPI", Version: wordAfter(text, "Version ")}, strings.Contains(text, "Intel(R) MPI")
	},
	installed: func(s topology.Software) (Launcher, bool) {
		return Launcher{Family: "Intel MPI", Version: s.Version}, s.Kind == "intelmpi"
	},

	grammar: intelGrammar, ranks: []string{"np"}, gives: hydraGives,
	hosts: []hostOption{{"hostfile", hostsFile}, {"hosts", hostsList}, {"host", hostsList}, {"hosts-group", hostsList}, {"rankmap", hostsElse}},
	hostTwins: []hostTwin{
		{name: "I_MPI_HYDRA_HOST_FILE"}, {name: "I_MPI_HYDRA_HOSTS_GROUP", list: true}, {name: "HYDRA_HOST_FILE"}, {name: "I_MPI_HYDRA_MACHINE_FILE"},
	},
	mapping:  append([]string{"rr"}, hydraMapping...),
	mapTwins: []string{"I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PERHOST"},
	Managers: []string{"slurm", "pbs", "lsf", "sge"},
	Local:    []hosts.LocalNames{{Rank: "MPI_LOCALRANKID", Size: "MPI_LOCALNRANKS"}},

	// With -hostfile a host counts once; -machinefile carries host:n.
	NP: "-n", Hostfile: Hostfile{"-machinefile", hosts.Intel},
	Even: hydraEven, Uneven: Uneven{ByHostfile: true},
	SSH:     &SSHVariable{Name: "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"},
	Forward: &Forward{Set: "-genv", Narrows: append([]string{"genvexcl"}, hydraNarrows...), NarrowBy: "HYDRA_ENV"},
	Own:     []string{"I_MPI_HYDRA_"},
}

// Srun is a step of Slurm. Sources: slurm src/common/slurm_opt.c, srun(1).
var Srun = &Dialect{
	Name: "srun", Manager: "slurm", programs: []string{"srun"}, asked: true, scripted: true, usual: "srun",
	says: func(text string) (Launcher, bool) {
		return Launcher{Family: "Slurm", Version: wordAfter(text, "slurm-wlm ", "slurm ")}, true
	},

	grammar: srunGrammar, ranks: []string{"ntasks"}, ranksOf: stepTasks, nodes: "nodes",
	components: []string{"het-group", "pack-group"},
	// srun -w takes a file's name as well as a list.
	hosts:     []hostOption{{"nodelist", hostsEither}, {"nodefile", hostsFile}},
	hostTwins: []hostTwin{{name: "SLURM_HOSTFILE"}},
	mapping:   []string{"cpu-bind", "distribution", "gpu-bind", "mem-bind", "ntasks-per-node"},
	mapTwins:  []string{"SLURM_CPU_BIND", "SLURM_DISTRIBUTION"},
	gives: func(o Option, _ string, put func(name, value, where string)) {
		if o.Name == "export" && len(o.Values) == 1 {
			for _, item := range SplitExport(o.Values[0]) {
				if name, value, ok := strings.Cut(item, "="); ok {
					put(name, value, "--export")
				}
			}
		}
	},
	containers: []containerOption{{"container-image", "pyxis"}, {"container-name", "pyxis"}, {"container", "oci"}},
	Managers:   []string{"slurm"},

	Hostfile: Hostfile{Syntax: hosts.Plain}, HostOption: "--nodelist=",
	Sequence: &Sequence{Variable: "SLURM_HOSTFILE", Options: []string{"--distribution=arbitrary"}, Of: "task"},
	Export:   &Export{Option: "export", Variable: "SLURM_EXPORT_ENV"},
	MPIType:  MPIType{Option: "mpi", Variable: "SLURM_MPI_TYPE"},
}

// Torchrun is PyTorch's. Sources: torch/distributed/run.py, local_elastic_agent.py.
var Torchrun = &Dialect{
	Name: "torchrun", NoMPI: true, Python: true, PerNode: true, usual: "torchrun", scripted: true,
	programs: []string{"torchrun", "torchrun-script.py"}, modules: []string{"torch.distributed.run", "torch.distributed.launch"},
	says: func(string) (Launcher, bool) { return Launcher{Family: "PyTorch"}, true },

	grammar: torchrunGrammar, mapping: []string{"numa-binding"},
	Local:    []hosts.LocalNames{{When: "TORCHELASTIC_RUN_ID", Rank: "LOCAL_RANK", Size: "LOCAL_WORLD_SIZE"}},
	NoPython: "--no_python", // before 2.0 it has no dashed spelling
}

// Horovodrun is Horovod's. Source: horovod/runner/launch.py and mpi_run.py.
var Horovodrun = &Dialect{
	Name: "horovodrun", Python: true, programs: []string{"horovodrun"},
	says: func(string) (Launcher, bool) { return Launcher{Family: "Horovod"}, true },

	grammar: horovodGrammar, ranks: []string{"num-proc"},
	hosts:    []hostOption{{"hosts", hostsList}, {"hostfile", hostsFile}, {"host-discovery-script", hostsElse}},
	Managers: []string{"lsf"},
	Local:    []hosts.LocalNames{{Rank: "HOROVOD_LOCAL_RANK", Size: "HOROVOD_LOCAL_SIZE"}},

	Hostfile: Hostfile{"--hostfile", hosts.Horovod}, Elastic: "host-discovery-script",
	OwnPML: "-mca pml ob1 -mca btl ^openib",
}

// What follows starts its ranks by itself. Each is told what a node-wide
// environment can say; what a rank of its own would be told is missing.

// VLLM's workers on this node inherit its environment; those that Ray starts on
// others get what begins so (vllm/ray/ray_env.py, DEFAULT_ENV_VAR_PREFIXES; the
// variable adds to them). VLLM_HOST_IP is each node's own and never carried.
var VLLM = &Dialect{
	Name: "vllm", family: "vLLM", NoMPI: true, Python: true, programs: []string{"vllm"},
	modules: []string{"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main"},
	Workers: &Workers{
		Reach:   "its workers on this node inherit the environment; with --nnodes put fabrun in front of it on each node, with Ray in front of each 'ray start' too; VLLM_HOST_IP is each node's own address and left to you",
		Carries: []string{"VLLM_", "LMCACHE_", "NCCL_", "UCX_", "HF_", "HUGGING_FACE_"}, More: "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY",
	},
}

// SGLang is started once on each node, with --node-rank (docs.sglang.io, Multi-Node
// Deployment).
var SGLang = &Dialect{
	Name: "sglang", family: "SGLang", NoMPI: true, Python: true, programs: []string{"sglang"}, modules: []string{"sglang.launch_server"},
	Workers: &Workers{Reach: "its workers on this node inherit the environment; with --nnodes put fabrun in front of it on each node"},
}

// Ray's workers are children of their node's raylet and inherit what that was
// started with (docs.ray.io, Runtime environments).
var Ray = &Dialect{
	Name: "ray", family: "Ray", NoMPI: true, Python: true, programs: []string{"ray"},
	Workers: &Workers{Reach: "workers inherit what the 'ray start' of their node was started with: put fabrun in front of that on each node; a submitted job brings variables by env_vars of its runtime_env"},
}

// DeepSpeed carries what begins so to the hosts of its hostfile
// (deepspeed/launcher/runner.py: EXPORT_ENVS, with the accelerator's NCCL), and the
// lines of a file.
var DeepSpeed = &Dialect{
	Name: "deepspeed", family: "DeepSpeed", NoMPI: true, Python: true, programs: []string{"deepspeed", "ds"}, modules: []string{"deepspeed.launcher.runner"},
	Workers: &Workers{
		Reach:   "its workers on this node inherit the environment",
		Carries: []string{"MLFLOW", "NCCL", "PYTHON", "MV2", "UCX", "LD_LIBRARY", "PATH"}, Other: "lines NAME=VALUE in ~/.deepspeed_env",
	},
}

// Accelerate is started once on each node, with --machine_rank (huggingface.co,
// Accelerate, launch).
var Accelerate = &Dialect{
	Name: "accelerate", family: "Accelerate", NoMPI: true, Python: true, programs: []string{"accelerate"}, modules: []string{"accelerate.commands.launch"},
	Workers: &Workers{Reach: "its workers on this node inherit the environment; with --num_machines put fabrun in front of it on each node; its DeepSpeed launchers carry what DeepSpeed's do"},
}

// Torchx hands a job to a scheduler (docs.pytorch.org/torchx, dist.ddp).
var Torchx = &Dialect{
	Name: "torchx", family: "TorchX", NoMPI: true, Python: true, programs: []string{"torchx"},
	Workers: &Workers{Reach: "replicas of the local_cwd scheduler inherit the environment; on any other they get what --env NAME=VALUE of the component says: 'fabrun env --format dotenv' on a node of the job prints it"},
}

// Flux duplicates the environment of the submission (flux-run(1), ENVIRONMENT).
var Flux = &Dialect{
	Name: "flux", family: "Flux", programs: []string{"flux"},
	Workers: &Workers{Reach: "every task gets the environment of the submission, unless --env says otherwise; 'flux run … fabrun rank -- PROGRAM' gives each what is its node's"},
}

// Aprun and Jsrun are those of Cray's ALPS and of IBM's LSF.
var (
	Aprun = &Dialect{Name: "aprun", family: "ALPS", programs: []string{"aprun"}, Workers: &Workers{Reach: "whether tasks get the environment is its own affair (aprun -e NAME=VALUE says one)"}}
	Jsrun = &Dialect{Name: "jsrun", family: "jsrun", programs: []string{"jsrun"}, Workers: &Workers{Reach: "whether tasks get the environment is its own affair (jsrun -E NAME=VALUE says one)"}}
)

// Unknown is a launcher whose command line fabrun does not read.
var Unknown = &Dialect{
	Name: "unknown",
	programs: []string{
		"mpirun_rsh", "mpiexec_mpt", "mpiexec.slurm", "ibrun", "prun", "charmrun", "ccmrun", "lrun", "colossalai",
	},
	says: func(text string) (Launcher, bool) {
		const spectrum = "IBM Spectrum MPI"
		return Launcher{Family: spectrum, MPIKind: "openmpi", Note: "fabrun does not read the command line of " + spectrum}, strings.Contains(text, spectrum)
	},
}

// Plain is no launcher: a program or a script.
var Plain = &Dialect{Name: "plain", Alone: true}

// What Open MPI 4 and 5 share.
var (
	openmpiHosts = []hostOption{{"hostfile", hostsFile}, {"host", hostsList}, {"default-hostfile", hostsFile}, {"rankfile", hostsElse}}
	// Source: schizo_ompi.c.
	openmpiMapping = strings.Fields("map-by rank-by bind-to bind-to-core bind-to-socket bycore bynode byslot npernode pernode npersocket N ppr rankfile cpu-set cpu-list cpus-per-proc use-hwthread-cpus")
	openmpiLocal   = []hosts.LocalNames{{Rank: "OMPI_COMM_WORLD_LOCAL_RANK", Size: "OMPI_COMM_WORLD_LOCAL_SIZE"}}
	openmpiAuto    = []string{"OMPI_", "PMIX_"} // schizo_ompi.c
	openmpiRoot    = &Refusal{Option: "allow-run-as-root", Variables: []string{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}}
)

// openmpiVersion reads what mpirun says of itself: 4.1 says "Open MPI" only under
// the name mpirun, and "OpenRTE" under any other.
func openmpiVersion(text string) (version string, ok bool) {
	marks := []string{"(Open MPI)", "(OpenRTE)", "Open MPI "}
	for _, mark := range marks {
		ok = ok || strings.Contains(text, mark)
	}
	return wordAfter(text, "(Open MPI) ", "(OpenRTE) ", "Open MPI "), ok
}

func openmpiInstalled(s topology.Software) (l Launcher, five bool) {
	switch s.Kind {
	case "openmpi":
		return Launcher{Family: "Open MPI", Version: s.Version}, major(s.Version) >= 5
	case "hpcx": // its version is not Open MPI's
		return Launcher{Family: "HPC-X"}, false
	}
	return Launcher{}, false
}

// openmpiManagers reads which resource managers it was built for from
// "ompi_info --parsable"; nil where the text does not say.
func openmpiManagers(text string) []string {
	var out []string
	for _, c := range [][2]string{{"lsf", "lsf"}, {"tm", "pbs"}, {"gridengine", "sge"}, {"slurm", "slurm"}} {
		if strings.Contains(text, "mca:ras:"+c[0]+":") {
			out = append(out, c[1])
		}
	}
	return out
}

func openmpiEven(n int) []string {
	return []string{"--map-by", "ppr:" + strconv.Itoa(n) + ":node"}
}

func openmpiGives(o Option, typed string, put func(name, value, where string)) {
	switch {
	case o.Name == "x" && len(o.Values) == 1:
		if name, value, ok := strings.Cut(o.Values[0], "="); ok {
			put(name, value, typed)
		}
	case len(o.Values) == 2 && o.Values[0] == "mca_base_env_list":
		for item := range strings.SplitSeq(o.Values[1], ";") {
			if name, value, ok := strings.Cut(item, "="); ok {
				put(name, value, o.Values[0])
			}
		}
	case len(o.Values) == 2 && mcaPrefix[o.Name] != "":
		put(mcaPrefix[o.Name]+o.Values[0], o.Values[1], typed)
	}
}

var mcaPrefix = map[string]string{
	"mca": "OMPI_MCA_", "gmca": "OMPI_MCA_", "omca": "OMPI_MCA_", "gomca": "OMPI_MCA_",
	"prtemca": "PRTE_MCA_", "gprtemca": "PRTE_MCA_", "pmixmca": "PMIX_MCA_", "gpmixmca": "PMIX_MCA_",
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

// What MPICH and Intel MPI share.
var (
	hydraMapping = strings.Fields("bind-to map-by membind rankmap ppn order-nodes") // hydra's help
	hydraNarrows = strings.Fields("genvnone genvlist envnone envlist")
)

func hydraEven(n int) []string { return []string{"-ppn", strconv.Itoa(n)} }

func hydraGives(o Option, typed string, put func(name, value, where string)) {
	if (o.Name == "genv" || o.Name == "env") && len(o.Values) == 2 {
		put(o.Values[0], o.Values[1], typed)
	}
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

// stepTasks is an srun step's number of tasks where it is given per node.
func stepTasks(c Command) *int {
	nodes := c.Nodes()
	if nodes == nil || len(c.Apps) != 1 || c.Apps[0].Last("ntasks") != nil {
		return nil
	}
	o := c.Apps[0].Last("ntasks-per-node")
	if o == nil || len(o.Values) == 0 {
		return nil
	}
	per, err := strconv.Atoi(o.Values[0])
	if err != nil || per < 1 || per > 1<<16 {
		return nil
	}
	n := *nodes * per
	return &n
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
