package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
)

// strangeLines are command lines as people really type them, by what the
// launcher in them answers to --version. Words in quotes are one word.
var strangeLines = []struct{ version, line string }{
	{"openmpi4", "env OMP_NUM_THREADS=4 UCX_TLS=rc mpirun -np 8 ./a.out"},
	{"openmpi4", "time mpirun -np 8 ./a.out"},
	{"openmpi4", "nohup nice -n 5 mpirun -np 8 ./a.out"},
	{"openmpi4", "numactl --interleave=all mpirun -np 8 ./a.out"},
	{"openmpi4", "taskset -c 0-3 mpirun -np 8 ./a.out"},
	{"openmpi4", "stdbuf -oL timeout 3600 /opt/openmpi/bin/mpirun -np 8 ./a.out"},
	{"openmpi4", "env -i mpirun -np 8 ./a.out"},
	{"plain", "bash -c 'mpirun -np 8 ./a.out'"},
	{"plain", "sudo -E mpirun -np 8 ./a.out"},
	{"openmpi4", "mpirun --app jobs"},
	{"openmpi4", "mpirun -np 4 ./ocean : -np 4 ./air"},
	{"openmpi4", "mpirun -np 4 -x A ./ocean : -np 4 -x NCCL_IB_TC=1 ./air"},
	{"openmpi4", "mpirun -x FOO -x B=1 -np 8 ./a.out -x C"},
	{"openmpi4", "mpirun --mca pml ob1 --mca btl tcp,self -np 8 ./a.out"},
	{"openmpi4", "mpirun -mca plm_rsh_agent 'ssh -p 2222' -np 8 ./a.out"},
	{"openmpi4", "mpirun -N 4 --bind-to none ./a.out"},
	{"openmpi4", "mpirun --map-by ppr:4:node:PE=2 numactl -l ./a.out"},
	{"openmpi4", "mpirun -np 8 --oversubscribe --allow-run-as-root python3 -u train.py --lr 0.1"},
	{"openmpi4", "mpirun -np 8 bash -c './a.out > log.$OMPI_COMM_WORLD_RANK'"},
	{"openmpi4", "mpirun -np 8 gdb -batch -ex run --args ./a.out"},
	{"openmpi4", "mpirun -np 8 foamExec simpleFoam -parallel -case /data/case"},
	{"openmpi4", "mpirun -np 8 -- ./a.out --np 3"},
	{"openmpi5", "mpirun --np 8 --map-by ppr:4:node ./a.out"},
	{"openmpi5", "mpirun -n 8 --display bind -x 'UCX_*' --prtemca plm_ssh_agent /my/ssh ./a.out"},
	{"openmpi5", "mpirun --hostfile=mine -n=8 ./a.out"},
	{"mpich", "mpiexec.hydra -f hosts -n 8 ./a.out"},
	{"mpich", "mpiexec -genvall -genv NCCL_IB_TC 1 -bind-to core -n 8 ./a.out"},
	{"mpich", "mpiexec -genvlist PATH,HOME -n 8 ./a.out"},
	{"mpich", "mpiexec -n 4 ./ocean : -n 4 -env NCCL_IB_TC 1 ./air"},
	{"mpich", "mpiexec -configfile jobs"},
	{"intelmpi", "mpirun -ppn 4 -n 8 -genv I_MPI_DEBUG=5 ./a.out"},
	{"intelmpi", "mpirun -hosts n1,n2 -n 8 -genv FI_PROVIDER mlx ./a.out"},
	{"srun", "srun -N2 -n8 --mpi=pmix --export=NONE ./a.out"},
	{"srun", "srun --export=ALL,A=b -n8 ./a.out"},
	{"srun", "srun -n4 ./ocean : -n4 ./air"},
	{"srun", "srun -lN2 --cpu-bind=cores --gpus-per-task 1 -- ./a.out -n 3"},
	{"srun", "srun --container-image=nvcr.io#nvidia/pytorch:24.05-py3 --container-mounts=/data:/data python train.py"},
	{"torchrun", "torchrun --standalone --nproc-per-node gpu train.py"},
	{"torchrun", "torchrun --nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint n1:29400 train.py"},
	{"python", "python3 -m torch.distributed.launch --use_env --nproc_per_node=8 train.py"},
	{"python", "python3 -m torch.distributed.launch --nproc_per_node=8 train.py"},
	{"python", "python3 -u -m torch.distributed.run --nproc-per-node=8 -m pkg.train"},
	{"torchrun", "env OMP_NUM_THREADS=8 torchrun --nproc-per-node 8 train.py"},
	{"horovod", "horovodrun -np 8 -H n1:4,n2:4 --mpi-args=--verbose python train.py"},
	{"horovod", "horovodrun -np 8 --host-discovery-script ./find.sh python train.py"},
	{"openmpi4", "mpirun -np 8 singularity exec --nv -e img.sif ./a.out"},
	{"plain", "apptainer exec img.sif mpirun -np 8 ./a.out"},
	{"openmpi4", "mpirun -np 8 podman run --rm -v /data:/data -e NCCL_IB_TC=1 img ./a.out"},
	{"openmpi4", "mpirun -np 8 enroot start --rw img ./a.out"},
	{"plain", "fluent 3ddp -t8 -cnf=hosts -g -i run.jou"},
	{"plain", "starccm+ -np 8 -machinefile hosts -batch run.java sim.sim"},
	{"plain", "abq2023 job=x cpus=8 mp_mode=mpi interactive"},
	{"plain", "mpirun_rsh -np 8 -hostfile hosts NCCL_IB_TC=1 ./a.out"},
	{"plain", "deepspeed --hostfile hosts train.py --deepspeed"},
	{"plain", "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 8 --pipeline-parallel-size 2"},
	{"plain", "python3 -m vllm.entrypoints.openai.api_server --model m --nnodes 2 --node-rank 0"},
	{"plain", "env VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY=MINE_ vllm serve m"},
	{"plain", "python3 -m sglang.launch_server --model-path m --tp 16 --nnodes 2 --node-rank 0"},
	{"plain", "ray start --head --port 6379"},
	{"plain", "accelerate launch --num_machines 2 --machine_rank 0 train.py"},
	{"plain", "torchx run -s slurm dist.ddp -j 2x8 --script train.py"},
	{"plain", "uv run vllm serve m"},
	{"plain", "apptainer exec --nv img.sif torchrun --nproc-per-node 8 train.py"},
	{"plain", "apptainer exec --nv img.sif python train.py"},
	{"plain", "flux run -N2 -n16 ./a.out"},
	{"plain", "aprun -n 32 -N 16 ./a.out"},
	{"plain", "jsrun -n 4 -g 2 ./a.out"},
	{"plain", "./Allrun"},
}

// TestStrangeCommandLines holds what is made of them, on two hosts whose
// devices differ: the words fabrun adds in between « », and what it says.
func TestStrangeCommandLines(t *testing.T) {
	var out strings.Builder
	for _, s := range strangeLines {
		argv := splitLine(s.line)
		p := plan.Build(request(argv, versions[s.version].text, true))
		checkWords(t, p, argv)
		fmt.Fprintf(&out, "%s\n  as   %s\n  argv %s\n", s.line, p.Dialect.Name, marked(p))
		for _, v := range p.Env {
			if v.Name != cmdline.MarkerName && v.Name != plan.TableName && v.Name != "PATH" && v.Name != cmdline.ShimName {
				fmt.Fprintf(&out, "  env  %s=%s\n", v.Name, v.Value)
			}
		}
		if len(p.Shims) > 0 {
			fmt.Fprintf(&out, "  stand-ins for %s\n", strings.Join(p.Shims, ", "))
		}
		for _, f := range p.Findings {
			fmt.Fprintf(&out, "  %s %s: %s\n", f.Severity, f.ID, f.Seen)
		}
		for _, n := range p.Notes {
			fmt.Fprintf(&out, "  note %s\n", n)
		}
	}
	golden := filepath.Join("testdata", "strange.golden")
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

// splitLine splits at blanks, but for what is in single quotes.
func splitLine(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}
