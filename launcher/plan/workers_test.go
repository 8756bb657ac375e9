package plan_test

import (
	"slices"
	"strings"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/topology/finding"
)

// TestOwnWorkers: a program that starts its workers itself gets what holds for a
// node, is told what is missing, and what it does not carry to other hosts by
// itself is brought there, or named.
func TestOwnWorkers(t *testing.T) {
	const more = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
	for _, tt := range []struct {
		line   string
		env    string
		carry  string // what vLLM is told to carry
		note   string
		reach  string
		pml    bool // Open MPI's variables are of use to its ranks
		normal bool // it starts no workers of its own
	}{
		{line: "vllm serve m", carry: "GLOO_,NVSHMEM_", reach: "ray start"},
		{line: "vllm serve m", env: more + "=MINE_", reach: "VLLM_HOST_IP"},
		{line: "python3 -m vllm.entrypoints.openai.api_server --model m", carry: "GLOO_,NVSHMEM_", reach: "VLLM_HOST_IP"},
		{line: "uv run vllm serve m", carry: "GLOO_,NVSHMEM_", reach: "ray start"},
		{line: "python3 -m sglang.launch_server --nnodes 2", reach: "on each node"},
		{line: "ray start --head", reach: "runtime_env"},
		{line: "deepspeed --hostfile h train.py", note: "GLOO_SOCKET_IFNAME, NVSHMEM_IB_TRAFFIC_CLASS by lines NAME=VALUE in ~/.deepspeed_env", reach: "inherit"},
		{line: "accelerate launch train.py", reach: "on each node"},
		{line: "torchx run -s slurm dist.ddp --script train.py", reach: "--env NAME=VALUE"},
		{line: "apptainer exec img.sif torchrun --nproc-per-node 8 train.py", reach: "not in the image", pml: true},
		{line: "flux run -N2 -n16 ./a.out", reach: "fabrun rank", pml: true},
		{line: "aprun -n 32 ./a.out", reach: "aprun -e", pml: true},
		{line: "jsrun -n 4 ./a.out", reach: "jsrun -E", pml: true},
		{line: "apptainer exec img.sif python train.py", normal: true, pml: true},
		{line: "python3 train.py", normal: true, pml: true},
	} {
		r := request(strings.Fields(tt.line), "", false)
		r.HostsGiven = false
		for i := range r.Result.Hosts {
			for _, name := range []string{"GLOO_SOCKET_IFNAME", "NVSHMEM_IB_TRAFFIC_CLASS"} {
				r.Result.Hosts[i].Vars = append(r.Result.Hosts[i].Vars, envgen.Var{Name: name, Value: "x", Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "test"})
			}
		}
		if tt.env != "" {
			r.Env = append(r.Env, tt.env)
		}
		p := plan.Build(r)
		value := func(name string) string {
			if i := slices.IndexFunc(p.Env, func(v envgen.Var) bool { return v.Name == name }); i >= 0 {
				return p.Env[i].Value
			}
			return ""
		}
		if got := value("NCCL_IB_TC"); got != "106" {
			t.Errorf("%s: NCCL_IB_TC=%q", tt.line, got)
		}
		if got := value(more); got != tt.carry {
			t.Errorf("%s: it is told to carry %q, want %q", tt.line, got, tt.carry)
		}
		if got := value("OMPI_MCA_pml") != ""; got != tt.pml {
			t.Errorf("%s: Open MPI's variables are set: %v, want %v", tt.line, got, tt.pml)
		}
		if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, tt.note) || tt.note == "" && strings.Contains(notes, "other hosts go only") {
			t.Errorf("%s: notes %q, want %q", tt.line, notes, tt.note)
		}
		i := slices.IndexFunc(p.Findings, func(f finding.Finding) bool { return f.ID == "launcher.own-workers" })
		if (i < 0) != tt.normal || i >= 0 && !strings.Contains(p.Findings[i].Hint, tt.reach) {
			t.Errorf("%s: %+v, want %q", tt.line, p.Findings, tt.reach)
		}
		if cmdline.Named(p.Dialect.Name) != p.Dialect {
			t.Errorf("%s: a record of it would not find its dialect again", tt.line)
		}
	}
}
