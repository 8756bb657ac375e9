package plan_test

import (
	"slices"
	"strings"
	"testing"

	"fabrun/envgen"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/topology"
)

func TestMarkerRoundTrip(t *testing.T) {
	m := cmdline.Marker{Dialect: "plain", Vars: []string{"A=1", "B=x;y%z", "C=line\nline\x7f", "D=", "E==mlx5_0:1"}}
	got := cmdline.ParseMarker([]string{"X=1", cmdline.MarkerName + "=" + m.String()})
	if got.Dialect != m.Dialect || !slices.Equal(got.Vars, m.Vars) {
		t.Errorf("got %q, want %q", got, m)
	}
	for _, bad := range []string{"", "2;plain", "1", "1;", strings.Repeat("1;x", 1<<17)} {
		if got := cmdline.ParseMarker([]string{cmdline.MarkerName + "=" + bad}); got.Dialect != "" {
			t.Errorf("%.20q: %q", bad, got)
		}
	}
}

// What an outer fabrun set is not the user's.
func TestSettingsLeaveOwnAlone(t *testing.T) {
	m := cmdline.Marker{Dialect: "plain", Vars: []string{"NCCL_IB_TC=106", "NCCL_IB_SL=3"}}
	argv := []string{"mpirun", "-x", "UCX_TLS=rc", "-np", "2", "./a.out"}
	cmd := cmdline.Parse(cmdline.Identify(argv, "(Open MPI) 4.1.4", ""), argv)
	var got []string
	for _, s := range cmd.Settings([]string{cmdline.MarkerName + "=" + m.String(), "NCCL_IB_TC=106", "NCCL_IB_SL=4", "HOME=/x", "UCX_TLS=all"}) {
		got = append(got, s.Name+"="+s.Value+" "+s.Where)
	}
	want := []string{"NCCL_IB_SL=4 environment", "UCX_TLS=rc -x on the command line"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLocalRank(t *testing.T) {
	for _, c := range []struct {
		name, env  string
		rank, size int
	}{
		{"nothing", "A=1", -1, 0},
		{"Open MPI", "OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=8", 3, 8},
		{"Open MPI inside an srun step", "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=8", 3, 8},
		{"Hydra", "MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_RANK=5", 1, 2},
		{"srun", "SLURM_STEP_ID=0 SLURM_LOCALID=2 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=4(x2),3", 2, 3},
		{"srun, a list that does not fit", "SLURM_STEP_ID=0 SLURM_LOCALID=2 SLURM_NODEID=9 SLURM_STEP_TASKS_PER_NODE=4(x2)", 2, 0},
		{"torchrun under srun", "SLURM_STEP_ID=0 SLURM_LOCALID=0 TORCHELASTIC_RUN_ID=x LOCAL_RANK=5 LOCAL_WORLD_SIZE=8", 5, 8},
		{"pyxis copies", "RANK=3 LOCAL_RANK=1 SLURM_STEP_ID=0 SLURM_LOCALID=1", 1, 0},
		{"jsrun", "JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=6", 1, 6},
		{"PALS", "PALS_LOCAL_RANKID=3 PALS_LOCAL_SIZE=4 PMI_LOCAL_RANK=3", 3, 4},
		{"Flux", "FLUX_TASK_LOCAL_ID=2", 2, 0},
		{"nonsense", "OMPI_COMM_WORLD_LOCAL_RANK=-1 LOCAL_RANK=x", -1, 0},
		{"a size that cannot be", "MPI_LOCALRANKID=4 MPI_LOCALNRANKS=2", 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, s := plan.LocalRank(strings.Fields(c.env)); r != c.rank || s != c.size {
				t.Errorf("got %d of %d, want %d of %d", r, s, c.rank, c.size)
			}
		})
	}
}

// TestDecide: where ranks go on a machine of two NUMA nodes with two ports
// each, in every way that a launcher may have left them.
func TestDecide(t *testing.T) {
	slots := []plan.RankSlot{
		{Node: 0, CPUs: "0-3,8-11", Near: map[string][]string{"UCX_NET_DEVICES": {"a:1", "b:1"}}},
		{Node: 1, CPUs: "4-7,12-15", Near: map[string][]string{"UCX_NET_DEVICES": {"c:1", "d:1"}}},
	}
	cpu := plan.RankTable{Bind: true, Classes: []plan.RankClass{{Slots: slots}}}
	gpu := plan.RankTable{Bind: true, Classes: []plan.RankClass{{Slots: slots, GPUs: []plan.RankGPU{
		{Slot: 0, Vars: []string{"UCX_NET_DEVICES=a:1"}}, {Slot: 1, Vars: []string{"UCX_NET_DEVICES=d:1"}}, {Slot: -1},
	}}}}
	rank := func(r, n string, more ...string) []string {
		return append([]string{"OMPI_COMM_WORLD_LOCAL_RANK=" + r, "OMPI_COMM_WORLD_LOCAL_SIZE=" + n}, more...)
	}
	for _, c := range []struct {
		name  string
		table plan.RankTable
		env   []string
		mask  string
		eff   string
		vars  string
		cpus  string
		node  int
	}{
		{"first of two", cpu, rank("0", "2"), "0-15", "0-15", "UCX_NET_DEVICES=a:1,b:1", "0-3,8-11", 0},
		{"second of two", cpu, rank("1", "2"), "0-15", "0-15", "UCX_NET_DEVICES=c:1,d:1", "4-7,12-15", 1},
		{"four ranks share ports", cpu, rank("1", "4"), "0-15", "0-15", "UCX_NET_DEVICES=b:1", "0-3,8-11", 0},
		{"the last of five", cpu, rank("4", "5"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"the only rank keeps all", cpu, rank("0", "1"), "0-15", "0-15", "", "", -1},
		{"bound by the launcher", cpu, rank("0", "2"), "4-5", "0-15", "UCX_NET_DEVICES=c:1", "", -1},
		{"bound in turn", cpu, rank("1", "4"), "4,12", "0-15", "UCX_NET_DEVICES=c:1", "", -1},
		{"a control group of one node", cpu, rank("0", "2"), "4-7", "4-7", "UCX_NET_DEVICES=c:1", "", 1},
		{"its second rank", cpu, rank("1", "2"), "4-7", "4-7", "UCX_NET_DEVICES=d:1", "", 1},
		{"a mask of nowhere", cpu, rank("1", "2"), "90-97", "90-97", "UCX_NET_DEVICES=c:1,d:1", "", -1},
		{"a control group of half of each", cpu, rank("1", "2"), "0-1,4-5", "0-1,4-5", "UCX_NET_DEVICES=c:1,d:1", "4-5", 1},
		{"effective not known", cpu, rank("1", "2"), "0-15", "", "UCX_NET_DEVICES=c:1,d:1", "4-7,12-15", 1},
		{"no rank known", cpu, nil, "0-15", "0-15", "", "", -1},
		{"its GPU's node", gpu, rank("1", "2"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"visible GPUs turned round", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=1,0"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"renumbered by Slurm", gpu, rank("0", "1", "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=1"), "0-15", "0-15", "", "", -1},
		{"two renumbered by Slurm", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=1,0"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"one GPU per task, renumbered", gpu, rank("1", "2", "CUDA_VISIBLE_DEVICES=0", "SLURM_STEP_GPUS=0,1"), "0-15", "0-15", "", "", -1},
		{"one GPU per task, by the host's number", gpu, rank("1", "2", "CUDA_VISIBLE_DEVICES=1", "SLURM_STEP_GPUS=0,1"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"AMD's two filters", gpu, rank("0", "2", "ROCR_VISIBLE_DEVICES=1,0", "HIP_VISIBLE_DEVICES=0"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"HIP over CUDA's name", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"no GPU is visible", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES="), "0-15", "0-15", "", "", -1},
		{"a MIG instance", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=MIG-1"), "0-15", "0-15", "", "", -1},
		{"a GPU outside the control group", gpu, rank("1", "2"), "0-3", "0-3", "UCX_NET_DEVICES=d:1", "", -1},
		{"GPUs by UUID, asked", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=GPU-bb,GPU-aa"), "0-15", "0-15", "UCX_NET_DEVICES=d:1", "4-7,12-15", 1},
		{"GPUs by UUID", gpu, rank("0", "2", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"), "0-15", "0-15", "", "", -1},
		{"a GPU without a node", gpu, rank("2", "3"), "0-15", "0-15", "", "", -1},
		{"binding is the user's", plan.RankTable{Classes: cpu.Classes}, rank("1", "2"), "0-15", "0-15", "UCX_NET_DEVICES=c:1,d:1", "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var eff []int
			if c.eff != "" {
				eff = cpusOf(c.eff)
			}
			f := plan.RankFacts{Env: c.env, Mask: cpusOf(c.mask), Effective: eff}
			if strings.Contains(c.name, "asked") {
				f.GPUs = []string{"GPU-aa11", "GPU-bb22", "GPU-cc33"}
			}
			d := c.table.Decide(f)
			if got := strings.Join(d.Vars, " "); got != c.vars {
				t.Errorf("vars %q, want %q", got, c.vars)
			}
			var want []int
			if c.cpus != "" {
				want = cpusOf(c.cpus)
			}
			if !slices.Equal(d.CPUs, want) || d.MemNode != c.node {
				t.Errorf("CPUs %v node %d, want %v node %d", d.CPUs, d.MemNode, want, c.node)
			}
		})
	}
}

// A host is found by any of its names; a stranger is said.
func TestTableHosts(t *testing.T) {
	table := plan.RankTable{Hosts: map[string]int{"n1": 0, "n2.cluster": 1}, Classes: []plan.RankClass{{Vars: []string{"A=1"}}, {Vars: []string{"A=2"}}}}
	for names, want := range map[string]string{"n1": "A=1", "n1.cluster": "A=1", "n2": "A=2", "x n2.cluster": "A=2", "n3": ""} {
		d := table.Decide(plan.RankFacts{HostNames: strings.Fields(names)})
		if got := strings.Join(d.Vars, " "); got != want || d.Stranger != (want == "") {
			t.Errorf("%s: %q, stranger %v", names, got, d.Stranger)
		}
	}
}

func FuzzDecodeRankTable(f *testing.F) {
	f.Add(`{"hosts":{"a":0},"classes":[{"vars":["A=1"],"slots":[{"node":0,"cpus":"0-3","near":{"X":["a","b"]}}],"gpus":[{"slot":7}]}],"bind":true}`, "OMPI_COMM_WORLD_LOCAL_RANK=1\nCUDA_VISIBLE_DEVICES=,", "0-3")
	f.Add(`{"classes":[{}]}`, "SLURM_LOCALID=0\nSLURM_NODEID=0\nSLURM_STEP_TASKS_PER_NODE=1(x", "")
	f.Fuzz(func(t *testing.T, text, env, mask string) {
		table, err := plan.DecodeRankTable(text)
		if err != nil {
			return
		}
		m := cpusOf(mask)
		d := table.Decide(plan.RankFacts{Env: strings.Split(env, "\n"), HostNames: []string{"a"}, Mask: m})
		for _, c := range d.CPUs {
			if !slices.Contains(m, c) {
				t.Fatalf("bound to CPU %d, outside the mask %v", c, m)
			}
		}
	})
}

// A GPU on a NUMA node without CPUs belongs to the nearest node that has some.
func TestGPUOnNodeWithoutCPUs(t *testing.T) {
	two := 2
	h := topology.Host{
		NUMA: []topology.NUMANode{
			{ID: 0, CPUs: []int{0, 1}, Distances: []int{10, 40, 80}},
			{ID: 1, CPUs: []int{2, 3}, Distances: []int{40, 10, 20}},
			{ID: 2, Distances: []int{80, 20, 10}},
		},
		GPUs: []topology.GPU{{Index: 0, NUMA: &two}, {Index: 1}},
	}
	table := plan.MakeTable([]string{"n1"}, []topology.Host{h}, envgen.Result{Hosts: []envgen.HostEnv{{Host: "n1"}}}, true)
	if table == nil || table.Classes[0].GPUs[0].Slot != 1 || table.Classes[0].GPUs[1].Slot != -1 {
		t.Errorf("got %+v", table)
	}
}

func cpusOf(list string) []int {
	cpus, err := topology.ParseCPUs(list)
	if err != nil {
		return nil
	}
	return cpus
}
