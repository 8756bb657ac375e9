package plan_test

import (
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
)

// TestLauncherBehindWrappers: what people write in front of mpirun is looked
// through where every word of it is understood, and nowhere else.
func TestLauncherBehindWrappers(t *testing.T) {
	const text = "mpirun (Open MPI) 4.1.4"
	for _, tc := range []struct {
		argv string
		at   int // where the launcher stands; 0 it is not looked for
		maps string
	}{
		{"mpirun -np 2 ./a.out", 0, ""},
		{"env A=1 B=2 mpirun -np 2 ./a.out", 3, ""},
		{"env -u LD_PRELOAD A=1 mpirun -np 2 ./a.out", 4, ""},
		{"env -i A=1 mpirun -np 2 ./a.out", 0, ""},
		{"env -S whatever mpirun -np 2 ./a.out", 0, ""},
		{"nohup /opt/ompi/bin/mpirun -np 2 ./a.out", 1, ""},
		{"time -p mpirun -np 2 ./a.out", 2, ""},
		{"/usr/bin/time -f %e -o t.txt mpirun -np 2 ./a.out", 5, ""},
		{"nice mpirun -np 2 ./a.out", 1, ""},
		{"nice -n 5 mpirun -np 2 ./a.out", 3, ""},
		{"nice -5 mpirun -np 2 ./a.out", 2, ""},
		{"ionice -c2 -n 7 mpirun -np 2 ./a.out", 4, ""},
		{"stdbuf -oL -e 0 mpirun -np 2 ./a.out", 4, ""},
		{"timeout -k 5 3600 mpirun -np 2 ./a.out", 4, ""},
		{"timeout --signal=INT 1h nohup mpirun -np 2 ./a.out", 4, ""},
		{"setsid -w mpirun -np 2 ./a.out", 2, ""},
		{"chrt -f 10 mpirun -np 2 ./a.out", 3, ""},
		{"taskset -c 0-3 mpirun -np 2 ./a.out", 3, "taskset"},
		{"numactl --interleave=all mpirun -np 2 ./a.out", 2, "numactl"},
		{"numactl -m 0 -N 0 mpirun -np 2 ./a.out", 5, "numactl"},
		{"numactl --hardware-of-another-version 1 mpirun -np 2 ./a.out", 0, ""},
		{"hwloc-bind --cpubind node:0 -- mpirun -np 2 ./a.out", 4, "hwloc-bind"},
		{"env A=1 numactl -l stdbuf -o0 mpirun -np 2 ./a.out", 6, "numactl"},
		{"env A=1 ./script mpirun", 0, ""},
		{"env A=1", 0, ""},
		{"timeout", 0, ""},
	} {
		t.Run(tc.argv, func(t *testing.T) {
			argv := strings.Fields(tc.argv)
			if at := cmdline.LauncherAt(argv); at != tc.at {
				t.Fatalf("the launcher is taken to be word %d, want %d", at, tc.at)
			}
			if tc.at == 0 {
				return
			}
			cmd := cmdline.Parse(cmdline.Identify(argv, text, ""), argv)
			if cmd.Launcher.Dialect != cmdline.OpenMPI4 || cmd.Ranks() == nil || *cmd.Ranks() != 2 {
				t.Errorf("read as %+v with %v ranks", cmd.Launcher, cmd.Ranks())
			}
			if got := cmd.UserMaps(nil); got != tc.maps {
				t.Errorf("placed by %q, want %q", got, tc.maps)
			}
			p := plan.Build(request(argv, text, true))
			checkWords(t, p, argv)
			if words := p.Words(); words[tc.at+1] != "--hostfile" || words[len(words)-2] != "--" {
				t.Errorf("options and rank are not where they belong: %q", words)
			}
		})
	}
}

// TestTorchrunBehindRunners: what starts torchrun in an environment of its own is
// looked through, where every word is understood and torchrun is what it starts.
func TestTorchrunBehindRunners(t *testing.T) {
	for _, tc := range []struct {
		argv string
		want string // the command of node 1 of two; "" it is not looked through
	}{
		{"uv run torchrun t.py", "uv run torchrun MEET t.py"},
		{"uv run --with torch --extra cu124 -- torchrun --nproc-per-node 8 t.py", "uv run --with torch --extra cu124 -- torchrun MEET --nproc-per-node 8 t.py"},
		{"uv --quiet run --frozen -p 3.12 python -m torch.distributed.run t.py", "uv --quiet run --frozen -p 3.12 python -m torch.distributed.run MEET t.py"},
		{"conda run -n llm --no-capture-output torchrun t.py", "conda run -n llm --no-capture-output torchrun MEET t.py"},
		{"micromamba run -n llm torchrun t.py", "micromamba run -n llm torchrun MEET t.py"},
		{"poetry run torchrun t.py", "poetry run torchrun MEET t.py"},
		{"pixi run -e gpu torchrun t.py", "pixi run -e gpu torchrun MEET t.py"},
		{"hatch -e gpu run torchrun t.py", "hatch -e gpu run torchrun MEET t.py"},
		{"pdm run -p /src torchrun t.py", "pdm run -p /src torchrun MEET t.py"},
		{"rye run torchrun t.py", "rye run torchrun MEET t.py"},
		{"pipenv run torchrun t.py", "pipenv run torchrun MEET t.py"},
		{"nohup uv run env A=1 torchrun t.py", "nohup uv run env A=1 torchrun MEET t.py"},
		{"uv run train.py torchrun", ""},
		{"uv run python train.py torchrun", ""},
		{"uv run --of-a-later-version x torchrun t.py", ""},
		{"uv sync", ""},
		{"uv run", ""},
		{"uv pip run torchrun", ""},
		{"uv run mpirun -np 2 ./a.out", ""},
		{"make train", ""},
	} {
		argv := strings.Fields(tc.argv)
		cmd := cmdline.Parse(cmdline.Identify(argv, "", ""), argv)
		if spread, _ := cmd.TorchSpread(nil, 2); spread != (tc.want != "") {
			t.Errorf("%s: spread %v, read as %+v", tc.argv, spread, cmd.Launcher)
			continue
		}
		if tc.want == "" {
			if cmd.Launcher.Dialect != cmdline.Plain {
				t.Errorf("%s: read as %+v", tc.argv, cmd.Launcher)
			}
			continue
		}
		p := plan.TorchNode(plan.Build(plan.Request{Command: cmd}), cmd, 1, 2, "10.0.0.1", 20001)
		checkWords(t, p, argv)
		want := strings.Replace(tc.want, "MEET", "--nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=20001", 1)
		if got := strings.Join(p.Words(), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What "env" in front of the launcher sets is the user's, kept and handed on.
func TestEnvInFrontIsTheUsers(t *testing.T) {
	argv := strings.Fields("env NCCL_IB_TC=1 PATH=/opt/bin -u UCX_LOG_LEVEL mpirun -np 2 ./a.out")
	argv = slices.Concat(argv[:1], argv[3:5], argv[1:3], argv[5:]) // env takes options first
	p := plan.Build(request(argv, "mpirun (Open MPI) 4.1.4", false))
	for _, v := range p.Env {
		if v.Name == "NCCL_IB_TC" {
			t.Errorf("fabrun sets NCCL_IB_TC=%s over the user's", v.Value)
		}
	}
	words := strings.Join(p.Words(), " ")
	if !strings.Contains(words, "-x NCCL_IB_TC") || strings.Contains(words, "-x UCX_LOG_LEVEL") {
		t.Errorf("forwarded wrongly: %s", words)
	}
	cmd := request(argv, "mpirun (Open MPI) 4.1.4", false).Command
	var got []string
	for _, s := range cmd.Settings([]string{"NCCL_IB_TC=9", "UCX_LOG_LEVEL=warn"}) {
		got = append(got, s.Name+"="+s.Value)
	}
	if want := []string{"NCCL_IB_TC=1"}; !slices.Equal(got, want) {
		t.Errorf("settings %q, want %q", got, want)
	}
	if env := cmdline.EnvAt(argv, []string{"PATH=/bin"}); !slices.Contains(env, "PATH=/opt/bin") || slices.Contains(env, "PATH=/bin") {
		t.Errorf("the launcher is looked for with %q", env)
	}
}

// The file whose MPI is compared with the launcher's stands behind wrappers.
func TestExecutable(t *testing.T) {
	for argv, want := range map[string]string{
		"mpirun -np 2 ./a.out":                                  "./a.out",
		"mpirun -np 2 numactl -l ./a.out":                       "./a.out",
		"mpirun -np 2 env A=1 nice ./a.out x":                   "./a.out",
		"mpirun -np 2 numactl --new-option 3 ./a.out":           "",
		"mpirun -np 2 apptainer exec img ./a.out":               "",
		"mpirun -np 2 numactl -l podman run img ./a.out":        "",
		"mpirun -np 2 taskset 0xff docker run --rm img ./a.out": "",
	} {
		words := strings.Fields(argv)
		cmd := cmdline.Parse(cmdline.Identify(words, "(Open MPI) 5.0.7", ""), words)
		if got := cmd.Executable(); got != want {
			t.Errorf("%s: %q, want %q", argv, got, want)
		}
		if got := cmd.Container() != ""; got != (want == "" && !strings.Contains(argv, "new-option")) {
			t.Errorf("%s: container %q", argv, cmd.Container())
		}
	}
}

func TestSolversAndDaemons(t *testing.T) {
	for name, family := range map[string]string{
		"/ansys_inc/v232/fluent/bin/fluent": "Ansys Fluent", "ansys232": "Ansys Mechanical", "abq2023": "Abaqus", "starccm+": "STAR-CCM+",
		"lsdyna_mpp": "", "ansys-helper": "", "mpirun_rsh": "mpirun_rsh",
	} {
		l := cmdline.Identify([]string{name, "-t8"}, "", "")
		if l.Family != family || (family != "") != (l.Dialect == cmdline.Unknown) || l.OwnMPI != (l.Note != "" && name != "mpirun_rsh") {
			t.Errorf("%s: %+v", name, l)
		}
		p := plan.Build(request([]string{name, "-t8"}, "", false))
		for _, v := range p.Env {
			if l.OwnMPI && strings.HasPrefix(v.Name, "OMPI_MCA_") {
				t.Errorf("%s: %s is set for an MPI that nobody has seen", name, v.Name)
			}
		}
	}
	argv := strings.Fields("srun --ntasks-per-node=1 --kill-on-bad-exit --nodelist=n1 orted -mca ess slurm")
	if !cmdline.Parse(cmdline.Identify(argv, "", ""), argv).StartsDaemon() {
		t.Error("mpirun's own srun is taken for a job")
	}
}
