package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/profiles"
	"fabrun/topology/finding"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// versions are what launchers print, in the forms that exist.
var versions = map[string]struct{ base, text string }{
	"openmpi4": {"mpirun", "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"},
	"openmpi5": {"mpirun", "mpirun (Open MPI) 5.0.7\n\nReport bugs to https://www.open-mpi.org/community/help/\n"},
	"mpich":    {"mpiexec", "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date:                            Thu Apr  7\n"},
	"intelmpi": {"mpirun", "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\n"},
	"srun":     {"srun", "slurm 23.11.4\n"},
	"torchrun": {"torchrun", ""},
	"horovod":  {"horovodrun", ""},
	"plain":    {"./a.out", ""},
	"python":   {"python3", ""},
	"wrapped":  {"env", "mpirun (Open MPI) 4.1.4\n"},
	"solver":   {"fluent", ""},
}

// TestIdentify holds every form in which a launcher answers.
func TestIdentify(t *testing.T) {
	for _, c := range []struct {
		name, argv, text, resolved string
		dialect, version, family   string
	}{
		{"4.1 as mpirun", "mpirun -np 2 x", "mpirun (Open MPI) 4.1.4\n", "", "openmpi4", "4.1.4", "Open MPI"},
		{"4.1 as mpiexec", "mpiexec -np 2 x", "mpiexec (OpenRTE) 4.1.4\n", "", "openmpi4", "4.1.4", "Open MPI"},
		{"4.1 by Debian's name", "/usr/bin/mpirun.openmpi x", "mpirun.openmpi (OpenRTE) 4.1.4\n", "/usr/bin/orterun", "openmpi4", "4.1.4", "Open MPI"},
		{"5.0", "mpirun x", "mpirun (Open MPI) 5.0.7\n", "", "openmpi5", "5.0.7", "Open MPI"},
		{"5.1 release candidate", "mpirun x", "mpirun (Open MPI) 5.1.0rc2\n", "", "openmpi5", "5.1.0rc2", "Open MPI"},
		{"HPC-X", "mpirun x", "mpirun (Open MPI) 4.1.7a1\n", "/opt/hpcx/ompi/bin/orterun", "openmpi4", "4.1.7a1", "HPC-X"},
		{"prterun", "prterun x", "prterun (PRRTE) 3.0.12\n", "", "openmpi5", "", "PRRTE"},
		{"MPICH", "mpiexec x", versions["mpich"].text, "", "mpich", "4.0.2", "MPICH"},
		{"MVAPICH", "mpiexec x", "HYDRA build details:\n    Version:    3.3.2\n    Configure options: '--prefix=/opt/mvapich2'\n", "", "mpich", "3.3.2", "MVAPICH"},
		{"Intel", "mpirun x", versions["intelmpi"].text, "", "intelmpi", "2021.9", "Intel MPI"},
		{"Spectrum", "mpirun x", "mpirun (IBM Spectrum MPI) 10.4.0.03rtm0\n", "", "unknown", "", "IBM Spectrum MPI"},
		{"silent orterun", "mpirun x", "", "/usr/bin/orterun", "openmpi4", "", "Open MPI"},
		{"silent hydra", "mpiexec x", "garbage", "/usr/bin/mpiexec.hydra", "mpich", "", "MPICH"},
		{"silent", "mpirun x", "", "/opt/x/mpirun", "unknown", "", ""},
		{"Debian's srun", "srun x", "slurm-wlm 22.05.8\n", "", "srun", "22.05.8", "Slurm"},
		{"upstream's srun", "srun x", "slurm 24.11.0\n", "", "srun", "24.11.0", "Slurm"},
		{"srun without configuration", "srun x", "srun: error: resolve_ctls_from_dns_srv: res_nsearch error\nsrun: fatal: Could not establish a configuration source\n", "", "srun", "", "Slurm"},
		{"torchrun", "/opt/venv/bin/torchrun --nproc-per-node 8 t.py", "", "", "torchrun", "", "PyTorch"},
		{"module", "python3.11 -u -X dev -m torch.distributed.run t.py", "", "", "torchrun", "", "PyTorch"},
		{"old module", "python -m torch.distributed.launch t.py", "", "", "torchrun", "", "PyTorch"},
		{"another module", "python -m pip list", "", "", "plain", "", ""},
		{"a script", "python train.py -m torch.distributed.run", "", "", "plain", "", ""},
		{"horovodrun", "horovodrun -np 2 python t.py", "", "", "horovodrun", "", "Horovod"},
		{"another launcher", "ibrun ./x", "", "", "unknown", "", "ibrun"},
		{"one that starts its workers itself", "vllm serve m", "", "", "vllm", "", "vLLM"},
		{"a module of one", "python3 -m sglang.launch_server --tp 8", "", "", "sglang", "", "SGLang"},
		{"a module beside it", "python3 -m vllm.benchmarks", "", "", "plain", "", ""},
		{"a program", "./Allrun", "", "", "plain", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := cmdline.Identify(strings.Fields(c.argv), c.text, c.resolved)
			if l.Dialect.Name != c.dialect || l.Version != c.version || l.Family != c.family {
				t.Errorf("got %s %q %q, want %s %q %q", l.Dialect.Name, l.Version, l.Family, c.dialect, c.version, c.family)
			}
		})
	}
}

// TestProgram: where a launcher's options end and the program begins, for every
// form of option of every dialect.
func TestProgram(t *testing.T) {
	for _, c := range []struct {
		dialect, args string
		want          string // programs, joined by " ; "
		ranks         int    // -1: not said
		doubt         bool
	}{
		{"openmpi4", "-np 4 app -np 5", "app -np 5", 4, false},
		{"openmpi4", "--np 4 -mca pml ucx --mca btl ^openib,tcp app", "app", 4, false},
		{"openmpi4", "-n 2 -gmca a b -x A=1 -x B -H a,b:2 --bind-to core app -x C", "app -x C", 2, false},
		{"openmpi4", "-np 1 -- echo hi", "echo hi", 1, false},
		{"openmpi4", "-np 1 --oversubscribe app", "app", 1, false},
		{"openmpi4", "-np 1 --report-bindings --display-map --tag-output app", "app", 1, false},
		{"openmpi4", "--np=1 app", "app", -1, true},
		{"openmpi4", "-np1 app", "app", -1, true},
		{"openmpi4", "-c 3 app : -np 2 other --flag", "app ; other --flag", 5, false},
		{"openmpi4", "-np 2 app : other", "app ; other", -1, false},
		{"openmpi4", "-np", "", -1, true},
		{"openmpi4", "", "", -1, false},
		{"openmpi4", "-rf file -wd /tmp -N 2 --map-by ppr:2:node app", "app", -1, false},
		{"openmpi5", "--np=4 app", "app", 4, false},
		{"openmpi5", "-np 4 --map-by ppr:2:node:pe=4 app", "app", 4, false},
		{"openmpi5", "--prtemca a b --pmixmca c d --omca e f -n 2 app", "app", 2, false},
		{"openmpi5", "--hostf file -n 2 app", "app", 2, false},
		{"openmpi5", "--prepend-envar PATH /x --unset-envar Y -n 1 app", "app", 1, false},
		{"openmpi5", "-x NCCL_* -n 1 app", "app", 1, false},
		{"openmpi5", "--display bind --output tag -n 1 -- app --np 7", "app --np 7", 1, false},
		{"openmpi5", "--nonsense 3 -n 1 app", "3 -n 1 app", -1, true},
		{"mpich", "-n 4 app", "app", 4, false},
		{"mpich", "-NP 4 app", "app", 4, false},
		{"mpich", "--n=4 app", "app", 4, false},
		{"mpich", "-genv A 1 -genv B=2 -ppn 2 -f hosts -np 8 app -n 3", "app -n 3", 8, false},
		{"mpich", "-genvall -l -bind-to core:2 -np 2 app : -np 1 -env C 3 other", "app ; other", 3, false},
		{"mpich", "-np 2 -- app", "app", 2, true},
		{"intelmpi", "-genv I_MPI_DEBUG 5 -ppn 4 -n 8 app", "app", 8, false},
		{"intelmpi", "-perhost 4 -hosts a,b -bootstrap ssh -n 8 app", "app", 8, false},
		{"intelmpi", "-machinefile m -rr -print-rank-map -n 8 app", "app", 8, false},
		{"intelmpi", "-pmi-connect nocache -pmi-noaggregate -genvnone -print-rank-map -n 4 app", "app", 4, false},
		{"intelmpi", "-machine mf -gwdir /x -gtool gdb:0 -hosts-group n[1-2] -n 4 app", "app", 4, false},
		{"intelmpi", "-genv A=1 -env B 2 -l -V -IB -psm2 -tmpdir /t -n 4 app", "app", 4, false},
		{"intelmpi", "-tune -n 4 app", "app", 4, false},
		{"intelmpi", "-tune file.dat -n 4 app", "file.dat -n 4 app", -1, true},
		{"horovod", "-hostfile hosts --blacklist-cooldown-range 1 2 -prefix-timestamp --num-proc=4 python t.py -np 3", "python t.py -np 3", 4, false},
		{"horovod", "--mpi-args=--mca\\x20pml\\x20ucx --network_interface eth0 -np 4 python t.py", "python t.py", 4, false},
		{"srun", "-N4 -n 8 app -n 9", "app -n 9", 8, false},
		{"srun", "--nodes=4 --ntasks 8 --mpi=pmix -l app", "app", 8, false},
		{"srun", "-K1 --overlap --exclusive app", "app", -1, false},
		{"srun", "-lN2 -n4 --cpu-bind=cores -- app", "app", 4, false},
		{"srun", "--ntasks-per-node 4 --gpus-per-task 1 app", "app", -1, false},
		{"srun", "--container-image img.sqsh --container-mounts=/a:/b -n 1 app", "app", 1, false},
		{"srun", "--some-spank-option=3 -n 1 app", "app", 1, false},
		{"srun", "--some-spank-option -n 1 app", "app", 1, true},
		{"srun", "-n1 app : -n2 other", "app ; other", 3, false},
		{"torchrun", "--nproc-per-node 8 train.py --nnodes 3", "train.py --nnodes 3", -1, false},
		{"torchrun", "--nproc_per_node=8 --nnodes=2 --rdzv_backend c10d train.py", "train.py", -1, false},
		{"torchrun", "--nproc-per 8 --master_a 1.2.3.4 train.py", "train.py", -1, false},
		{"torchrun", "-r3 -t 3 --standalone -m pkg.train --lr 1", "pkg.train --lr 1", -1, false},
		{"torchrun", "--no-python ./app -x", "./app -x", -1, false},
		{"torchrun", "--standalone -- train.py", "train.py", -1, false},
		{"horovod", "-np 4 -H a:2,b:2 python t.py", "python t.py", 4, false},
		{"horovod", "--verbose --num-proc 4 -p 22 python t.py", "python t.py", 4, false},
		{"plain", "x", "./a.out x", -1, false},
	} {
		t.Run(c.dialect+" "+c.args, func(t *testing.T) {
			v := versions[c.dialect]
			argv := append([]string{v.base}, strings.Fields(c.args)...)
			cmd := cmdline.Parse(cmdline.Identify(argv, v.text, ""), argv)
			var programs []string
			for _, p := range cmd.Programs() {
				programs = append(programs, strings.Join(p, " "))
			}
			ranks := -1
			if n := cmd.Ranks(); n != nil {
				ranks = *n
			}
			if got := strings.Join(programs, " ; "); got != c.want || ranks != c.ranks || (len(cmd.Doubts()) > 0) != c.doubt {
				t.Errorf("got %q, %d ranks, doubts %q; want %q, %d ranks, doubt %v", got, ranks, cmd.Doubts(), c.want, c.ranks, c.doubt)
			}
		})
	}
}

func twoHosts(differ bool) envgen.Result {
	vars := func(devices string) []envgen.Var {
		return []envgen.Var{
			{Name: "NCCL_IB_HCA", Value: "=" + devices, Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "hca.nccl-set"},
			{Name: "NCCL_IB_TC", Value: "106", Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "qos.nccl"},
			{Name: "OMPI_MCA_pml", Value: "ucx", Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "gate.openmpi"},
		}
	}
	second := "mlx5_0:1"
	if differ {
		second = "mlx5_2:1"
	}
	return envgen.Result{RDMA: true, Contract: "1 rail of RoCE v2", Hosts: []envgen.HostEnv{
		{Host: "n1", Vars: vars("mlx5_0:1")}, {Host: "n2", Vars: vars(second)},
	}}
}

func four() *int { n := 4; return &n }

// TestMatrix is dialect × what the user typed × what differs: the command line
// that is started, the words that fabrun brings in between « ».
func TestMatrix(t *testing.T) {
	tails := map[string][]string{
		"openmpi4": {
			"-np 8 ./a.out arg", "./a.out", "-np 8 -x NCCL_IB_TC=1 -x FOO ./a.out", "-np 8 --hostfile mine ./a.out", "-H n1:4,n2:4 -np 8 ./a.out",
			"--mca pml ob1 -np 8 ./a.out", "-np 4 ./a.out : -np 4 ./b.out x", "-np 4 -x NCCL_IB_HCA=y ./a.out : -np 4 ./b.out", "-np 8 -- ./a.out", "--app jobs",
			"-np 8 --nonsense ./a.out", "-np 8 apptainer exec --nv img.sif ./a.out", "-np 8 docker run --rm img ./a.out",
			"-np 8 podman run -e NCCL_IB_HCA=mlx5_0,mlx5_1 --env=UCX_TLS=rc img ./a.out -e NCCL_IB_TC=3", "-np 8 apptainer exec --env NCCL_IB_TC=3,FOO=1 img.sif ./a.out",
			"-np 8 -x NCCL_* ./a.out", "-np 8 numactl -N 0 ./a.out",
			"-np 8 numactl -l apptainer exec img.sif ./a.out",
		},
		"openmpi5": {"-np 8 ./a.out arg", "--np=8 ./a.out", "-np 8 -x NCCL_IB_TC=1 ./a.out", "-np 8 -x NCCL_* ./a.out", "-np 4 ./a.out : -np 4 ./b.out", "-np 8 -x UNSET ./a.out"},
		"mpich":    {"-n 8 ./a.out", "-n 8 -f mine ./a.out", "-genvnone -n 8 ./a.out", "-genv NCCL_IB_TC 1 -genvlist PATH -n 8 ./a.out", "-n 4 ./a.out : -n 4 ./b.out", "-hosts n1,n2 -n 8 ./a.out", "-configfile f"},
		"intelmpi": {"-n 8 ./a.out", "-ppn 4 -n 8 ./a.out", "-machinefile mine -n 8 ./a.out"},
		"srun":     {"-n 8 ./a.out", "-w n1 -n 8 ./a.out", "--export=PATH,HOME -n 8 ./a.out", "--export=ALL,NCCL_IB_TC=1 -n 8 ./a.out", "--export=NCCL_IB_HCA=mlx5_0,mlx5_1 ./a.out", "-n 8 --container-image=x ./a.out", "-n 8 --multi-prog f"},
		"torchrun": {"--nproc-per-node 8 train.py --lr 1", "-m pkg.train", "--no-python ./a.out"},
		"python":   {"-m torch.distributed.run --nproc-per-node 8 train.py"},
		"horovod":  {"-np 8 python t.py", "-np 8 -H n1:4,n2:4 python t.py"},
		"plain":    {"x y"},
		"wrapped":  {"NCCL_IB_TC=1 nohup mpirun -np 8 ./a.out", "-i mpirun -np 8 ./a.out"},
		"solver":   {"3ddp -t8 -cnf=hosts -g"},
	}
	var out strings.Builder
	for _, dialect := range []string{"openmpi4", "openmpi5", "mpich", "intelmpi", "srun", "torchrun", "python", "horovod", "plain", "wrapped", "solver"} {
		for _, tail := range tails[dialect] {
			for _, differ := range []bool{false, true} {
				v := versions[dialect]
				argv := append([]string{v.base}, strings.Fields(tail)...)
				p := plan.Build(request(argv, v.text, differ))
				checkWords(t, p, argv)
				fmt.Fprintf(&out, "%s%s: %s\n  argv %s\n", dialect, map[bool]string{true: ", nodes differ"}[differ], strings.Join(argv, " "), marked(p))
				var env []string
				for _, e := range p.Env {
					if e.Name == cmdline.MarkerName || e.Name == plan.TableName {
						env = append(env, e.Name)
						continue
					}
					env = append(env, e.Name+"="+e.Value)
				}
				fmt.Fprintf(&out, "  env  %s\n", strings.Join(env, " "))
				for _, f := range p.Files {
					fmt.Fprintf(&out, "  file %s: %q\n", f.Name, f.Content)
				}
				for _, f := range p.Findings {
					fmt.Fprintf(&out, "  %s %s: %s\n", f.Severity, f.ID, f.Seen)
				}
				for _, n := range p.Notes {
					fmt.Fprintf(&out, "  note %s\n", n)
				}
			}
		}
	}
	golden := filepath.Join("testdata", "argv.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); d != "" {
		t.Errorf("the plans changed (-golden +got); go test -update rewrites:\n%s", d)
	}
}

func request(argv []string, text string, differ bool) plan.Request {
	r := plan.Request{
		Command: cmdline.Parse(cmdline.Identify(argv, text, ""), argv),
		Env:     []string{"PATH=/bin", "LD_LIBRARY_PATH=/opt/lib", "UCX_LOG_LEVEL=warn", "FOO=1"},
		Result:  twoHosts(differ), HostsGiven: true, Self: "/opt/fabrun",
		Hosts:   hosts.Allocation{Source: "--hosts", Hosts: []hosts.Host{{Name: "n1", Slots: four()}, {Name: "n2", Slots: four()}}},
		Program: plan.ProgramFacts{Python: "/usr/bin/python3"}, Shims: []string{"mpirun", "srun"},
	}
	if differ {
		r.Table = &plan.RankTable{Hosts: map[string]int{"n1": 0, "n2": 1}, Classes: []plan.RankClass{
			{Vars: []string{"NCCL_IB_HCA==mlx5_0:1"}}, {Vars: []string{"NCCL_IB_HCA==mlx5_2:1"}},
		}}
	}
	return r
}

// checkWords holds the law: the user's words are all there, unchanged and in
// order.
func checkWords(t *testing.T, p plan.Plan, argv []string) {
	t.Helper()
	var users []string
	for _, a := range p.Argv {
		if a.Origin == envgen.FromUser {
			users = append(users, a.Text)
		}
	}
	if !slices.Equal(users, argv) {
		t.Errorf("the user's words changed: %q, typed %q", users, argv)
	}
}

func marked(p plan.Plan) string {
	var out []string
	inside := false
	for _, a := range p.Argv {
		w := a.Text
		if strings.HasPrefix(w, "{\"") {
			w = "TABLE"
		}
		if own := a.Origin != envgen.FromUser; own != inside {
			if inside = own; own {
				w = "«" + w
			} else {
				out[len(out)-1] += "»"
			}
		}
		out = append(out, w)
	}
	if inside {
		out[len(out)-1] += "»"
	}
	return strings.Join(out, " ")
}

// FuzzBuild: no command line makes the splitters panic, and the user's words
// always come through unchanged and in order.
func FuzzBuild(f *testing.F) {
	for _, s := range []string{"-np 4 a : -np 2 b", "-genv A B=C -n", "--export=A,'B=1,2' x", "-m -r3 --", "-mca a", "-x * -x =", "--=", "-", ": : :", "docker run", "env -u env"} {
		f.Add(s, "HYDRA build details:\n Version: 4.0", "UCX_A=1")
	}
	names := []string{"mpirun", "mpiexec", "srun", "torchrun", "python -m torch.distributed.run", "horovodrun", "jsrun", "./x"}
	texts := []string{"(Open MPI) 4.1.1", "(Open MPI) 5.0.0", "HYDRA build details:", "Intel(R) MPI Version 1", ""}
	f.Fuzz(func(t *testing.T, tail, text, env string) {
		for _, name := range names {
			argv := append(strings.Fields(name), strings.Split(tail, " ")...)
			for _, v := range append(texts, text) {
				if !cmdline.AsksVersion(argv) && v != "" {
					continue
				}
				r := request(argv, v, len(tail)%2 == 0)
				r.Env = append(r.Env, strings.Split(env, "\n")...)
				p := plan.Build(r)
				checkWords(t, p, argv)
				r.Command.Settings(r.Env)
				r.Command.UserMaps(r.Env)
				r.Command.HostSource(r.Env)
				r.Command.Container()
				r.Command.Ranks()
			}
		}
	})
}

// Which resource managers an Open MPI reads by itself is in what ompi_info says.
func TestManagers(t *testing.T) {
	const text = "mca:ras:gridengine:version:\"mca:2.1.0\"\nmca:ras:simulator:version:\"mca:2.1.0\"\nmca:ras:slurm:version:\"mca:2.1.0\"\nmca:plm:tm:version:\"x\"\n"
	l := cmdline.Launcher{Dialect: cmdline.OpenMPI4, Managers: cmdline.OpenMPI4.BuiltFor.Read(text)}
	for source, want := range map[string]bool{"slurm": true, "sge": true, "pbs": false, "lsf": false, "oar": false, "FABRUN_HOSTS": false} {
		if got := l.ReadsManager(source); got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
	if l = (cmdline.Launcher{Dialect: cmdline.OpenMPI4, Managers: cmdline.OpenMPI4.BuiltFor.Read("garbage")}); !l.ReadsManager("pbs") {
		t.Error("an Open MPI that did not say is taken to read nothing")
	}
}

// srun's tasks that cannot find each other are known before the start.
func TestSrunWithoutMPI(t *testing.T) {
	for _, tc := range []struct {
		args, env, program, byDefault string
		want                          bool
	}{
		{"-n 4 ./a.out", "", "mpich", "none", true},
		{"-n 4 ./a.out", "", "openmpi", "none", true},
		{"-n 4 ./a.out", "", "openmpi", "pmix", false},
		{"-n 4 ./a.out", "", "openmpi", "", false},
		{"-n 4 ./a.out", "", "", "none", false},
		{"-n 4 --mpi=pmi2 ./a.out", "", "mpich", "none", false},
		{"-n 4 --mpi none ./a.out", "", "mpich", "pmix", true},
		{"-n 4 ./a.out", "SLURM_MPI_TYPE=pmix", "openmpi", "none", false},
	} {
		argv := append([]string{"srun"}, strings.Fields(tc.args)...)
		r := request(argv, "slurm 23.11.4", false)
		r.Env = append(r.Env, strings.Fields(tc.env)...)
		r.Program = plan.ProgramFacts{MPIKind: tc.program, SrunMPI: tc.byDefault}
		got := slices.ContainsFunc(plan.Build(r).Findings, func(f finding.Finding) bool { return f.ID == "srun.mpi-none" })
		if got != tc.want {
			t.Errorf("%+v: said %v", tc, got)
		}
	}
}

// What a workload profile says of the launcher reaches its command line, once
// and in a form that it knows; what the user said stays.
func TestWorkloadOptions(t *testing.T) {
	const ompi, hydra = "mpirun (Open MPI) 4.1.4", "HYDRA build details:\n    Version: 4.0.2"
	two := 2
	for _, tc := range []struct {
		version, argv string
		w             profiles.Workload
		np            *int
		want          string
		finding       bool
	}{
		{ompi, "mpirun -np 4 ./a.out", profiles.Workload{MPIOptions: []string{"--mca", "coll_hcoll_enable", "0", "--report-bindings"}}, nil, "--mca coll_hcoll_enable 0 --report-bindings", false},
		{ompi, "mpirun --report-bindings -np 4 ./a.out", profiles.Workload{MPIOptions: []string{"--report-bindings"}}, nil, "", false},
		{ompi, "mpirun --mca coll_hcoll_enable 1 -np 4 ./a.out", profiles.Workload{MPIOptions: []string{"--mca", "coll_hcoll_enable", "0"}}, nil, "", false},
		{hydra, "mpiexec -n 4 ./a.out", profiles.Workload{MPIOptions: []string{"--report-numa"}}, nil, "", true},
		{ompi, "mpirun -np 4 ./a.out", profiles.Workload{MPIOptions: []string{"./wrapper"}}, nil, "", true},
		{ompi, "mpirun -np 4 ./a.out", profiles.Workload{Binding: "core"}, nil, "--bind-to core", false},
		{hydra, "mpiexec -n 4 ./a.out", profiles.Workload{Binding: "core"}, nil, "-bind-to core", false},
		{ompi, "mpirun --map-by node -np 4 ./a.out", profiles.Workload{Binding: "core"}, nil, "", false},
		{ompi, "mpirun ./a.out", profiles.Workload{}, &two, "-np 2", false},
		{hydra, "mpiexec ./a.out", profiles.Workload{}, &two, "-n 2", false},
		{ompi, "mpirun -np 4 ./a.out", profiles.Workload{}, &two, "", false},
		{ompi, "mpirun --map-by ppr:1:node ./a.out", profiles.Workload{}, &two, "", false},
	} {
		argv := strings.Fields(tc.argv)
		tc.w.Name = "w"
		p := plan.Build(plan.Request{
			Command: cmdline.Parse(cmdline.Identify(argv, tc.version, ""), argv), Env: []string{"PATH=/bin"}, Workload: &tc.w, NP: tc.np,
			Hosts: hosts.Allocation{Source: "localhost", Hosts: []hosts.Host{{Name: "n1"}}}, Local: true,
		})
		checkWords(t, p, argv)
		var own []string
		for _, a := range p.Argv {
			if a.Origin == envgen.FromPlan {
				own = append(own, a.Text)
			}
		}
		said := slices.ContainsFunc(p.Findings, func(f finding.Finding) bool { return f.ID == "workload.mpi-options" })
		if got := strings.Join(own, " "); got != tc.want || said != tc.finding {
			t.Errorf("%s with %+v: added %q, want %q; finding %v", tc.argv, tc.w, got, tc.want, said)
		}
	}
}
