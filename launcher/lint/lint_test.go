package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/envgen"

	"github.com/google/go-cmp/cmp"
)

// TestScripts: every script of testdata says at its end which mistakes were
// planted on which line ("# want 7 id"); those are found and nothing else.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*")
	if err != nil || len(files) != 20 {
		t.Fatal(err, len(files))
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{}
			for line := range strings.SplitSeq(string(text), "\n") {
				if w, ok := strings.CutPrefix(line, "# want "); ok {
					want = append(want, w)
				}
			}
			slices.Sort(want)
			problems := Judge(Read("job", text), nil, envgen.Versions{})
			if d := cmp.Diff(want, got(problems)); d != "" {
				t.Errorf("%s\n%+v", d, problems)
			}
			for _, p := range problems {
				if p.Seen == "" || p.Why == "" {
					t.Errorf("%s says too little: %+v", p.ID, p)
				}
			}
		})
	}
}

func got(problems []Problem) []string {
	out := []string{}
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%d %s", p.Line, p.ID))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestFixedLine: what can be mended in its line is.
func TestFixedLine(t *testing.T) {
	for script, want := range map[string]string{
		"export NCCL_IB_GID_IDX=3\n":                                 "export NCCL_IB_GID_INDEX=3",
		"NCCL_IB_TC=106\n./a\n":                                      "export NCCL_IB_TC=106",
		"export NCCL_NET_GDR_LEVEL=phb # near\n":                     "export NCCL_NET_GDR_LEVEL=PHB # near",
		"#SBATCH -N 2\nsrun --export=NCCL_DEBUG=INFO ./a\n":          "srun --export=ALL,NCCL_DEBUG=INFO ./a",
		"mpirun -x NCCL_DEBUG INFO ./a\n":                            "mpirun -x NCCL_DEBUG=INFO ./a",
		"export NCCL_DEBUG=INFO\nmpirun -H a,b --map-by node ./a\n":  "mpirun -x NCCL_DEBUG -H a,b --map-by node ./a",
		"A=$(scontrol show hostnames | head -1 || echo localhost)\n": "A=$(scontrol show hostnames | head -1)",

		"ulimit -l 64\n":               "ulimit -l unlimited",
		"export MASTER_PORT=45000\n":   "export MASTER_PORT=29500",
		"UCX_NET_DEVICES=mlx5_0 ./a\n": "UCX_NET_DEVICES=mlx5_0:1 ./a",
		"NCCL_IB_HCA = mlx5_0\n":       "export NCCL_IB_HCA=mlx5_0",
		"export NCCL_IB_TC=26\n":       "export NCCL_IB_TC=106",
		"mpirun \u2013np 4 ./a\n":      "mpirun --np 4 ./a",
		"export NCCL_IB_HCA=mlx5_1\n":  "export NCCL_IB_HCA='=mlx5_1'",

		"#!/bin/bash\n#SBATCH --export=NONE\nexport NCCL_DEBUG=INFO\n\tsrun -n 2 ./a": "srun --export=ALL -n 2 ./a",
	} {
		problems := Judge(Read("s", []byte(script)), nil, envgen.Versions{})
		if len(problems) != 1 || problems[0].Fixed != want {
			t.Errorf("%q:\ngot  %+v\nwant %q", script, problems, want)
		}
	}
}

func TestArithmetic(t *testing.T) {
	for script, want := range map[string][]string{
		"export MASTER_PORT=$((10000 + RANDOM % 10000))\n":                             {},
		"export MASTER_PORT=$((10000 + (RANDOM % 50000)))\n":                           {"1 script.port-ephemeral"},
		"p=$((RANDOM + 40000)); export MASTER_PORT=$p\n":                               {"1 script.port-range"},
		"export MASTER_PORT=$(shuf -i 20000-65000 -n 1)\n":                             {"1 script.port-ephemeral"},
		"export MASTER_PORT=$((29500 + SLURM_JOB_ID % 1000))\n":                        {},
		"base=29500\nexport MASTER_PORT=$((base + 1))\n":                               {},
		"export MASTER_PORT=$((1/0))\n":                                                {},
		"export MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))\n":     {},
		"export MASTER_PORT=70000\n":                                                   {"1 script.port-range"},
		"torchrun --master-port=50000 --nnodes=1 t.py\n":                               {"1 script.port-ephemeral"},
		"accelerate launch --main_process_port 40001 t.py\n":                           {"1 script.port-ephemeral"},
		"export MASTER_PORT=$((9223372036854775807 * 9223372036854775807 + RANDOM))\n": {},
	} {
		if d := cmp.Diff(want, got(Judge(Read("s", []byte(script)), nil, envgen.Versions{}))); d != "" {
			t.Errorf("%q: %s", script, d)
		}
	}
}

func TestNotAShell(t *testing.T) {
	for _, script := range []string{"#!/usr/bin/env python3\nimport os\n", "#!/bin/tcsh\nsetenv A b\n"} {
		if d := cmp.Diff([]string{"1 script.unreadable"}, got(Judge(Read("s", []byte(script)), nil, envgen.Versions{}))); d != "" {
			t.Error(d)
		}
	}
	if d := cmp.Diff([]string{"2 script.unreadable"}, got(Judge(Read("s", []byte("export NCCL_DEBUG=INFO\nif then\n")), nil, envgen.Versions{}))); d != "" {
		t.Error(d)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/scripts/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := Read("job", text)
		for _, p := range Judge(s, nil, envgen.Versions{}) {
			if p.Line < 1 || p.ID == "" {
				t.Errorf("problem without a place: %+v", p)
			}
		}
	})
}
