package hosts

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files makes a ReadFile of a map.
func files(m map[string]string) ReadFile {
	return func(p string) ([]byte, error) {
		if text, ok := m[p]; ok {
			return []byte(text), nil
		}
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
}

// vars reads NAME=VALUE lines.
func vars(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			m[k] = v
		}
	}
	return m
}

func TestFromEnv(t *testing.T) {
	for _, tc := range []struct {
		name  string
		env   string
		files map[string]string
		want  string // "source job hosts…; nodes; self; master; findings"
	}{
		{name: "nothing", want: "  []"},
		{name: "a job number alone is no allocation", env: "SLURM_JOB_ID=7", want: "  []"},
		{
			name: "slurm job", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x2),1\nSLURM_JOB_CPUS_PER_NODE=8(x3)",
			want: "slurm 7 [n1:2 n2:2 n3:1] cpus=8",
		},
		{name: "slurm, old names", env: "SLURM_JOBID=7\nSLURM_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=2(x2)", want: "slurm 7 [n1:2 n2:2]"},
		{
			name: "slurm without tasks", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_JOB_CPUS_PER_NODE=64(x2)\nSLURM_CPUS_PER_TASK=16",
			want: "slurm 7 [n1:4 n2:4] cpus=64",
		},
		{name: "slurm, tasks of another job", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x8)", want: "slurm 7 [n1:? n2:? n3:?]"},
		{
			name: "slurm step", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-4]\nSLURM_STEP_ID=0\nSLURM_STEP_NODELIST=n[2-3]\nSLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_TASKS_PER_NODE=1(x2)\nSLURM_JOB_CPUS_PER_NODE=8(x4)\nSLURM_NODEID=1",
			want: "slurm 7 [n2:1 n3:1] cpus=8 self=1",
		},
		{
			name: "slurm interactive step is the job", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=4(x2)\nSLURM_STEP_ID=4294967290\nSLURM_STEP_NODELIST=n1\nSLURM_STEP_TASKS_PER_NODE=1",
			want: "slurm 7 [n1:4 n2:4]",
		},
		{
			name: "slurm, step of another job", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=4(x2)\nSLURM_STEP_ID=3\nSLURM_STEP_NODELIST=m[1-8]",
			want: "slurm 7 [n1:4 n2:4] hosts.slurm-leftover",
		},
		{name: "slurm heterogeneous", env: `SLURM_JOB_ID=7
SLURM_HET_SIZE=2
SLURM_JOB_NODELIST=cpu1
SLURM_TASKS_PER_NODE=1
SLURM_JOB_NODELIST_HET_GROUP_0=cpu1
SLURM_TASKS_PER_NODE_HET_GROUP_0=1
SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0=4
SLURM_JOB_NODELIST_HET_GROUP_1=gpu[1-2]
SLURM_TASKS_PER_NODE_HET_GROUP_1=8(x2)
SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1=4(x2)`, want: "slurm 7 [cpu1:1 gpu1:8 gpu2:8] cpus=4 components=[[cpu1] [gpu1 gpu2]]"},
		{name: "slurm gpus per node", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=1(x2)\nSLURM_GPUS_PER_NODE=h100:8", want: "slurm 7 [n1:1 n2:1] gpus=8"},
		{name: "slurm gres", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=1(x2)\nSLURM_GPUS_ON_NODE=4", want: "slurm 7 [n1:1 n2:1] gpus=4"},
		{name: "slurm gpus in total", env: "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=1(x2)\nSLURM_GPUS=6\nSLURM_GPUS_ON_NODE=4", want: "slurm 7 [n1:1 n2:1]"},
		{name: "fabrun's own wins", env: "FABRUN_HOSTS=a:2,b:2\nSLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n1", want: "FABRUN_HOSTS  [a:2 b:2]"},
		{name: "fabrun's own file", env: "FABRUN_HOSTFILE=/h", files: map[string]string{"/h": "a slots=2\n"}, want: "FABRUN_HOSTFILE  [a:2]"},
		{name: "pbs", env: "PBS_JOBID=77.server\nPBS_NODEFILE=/nf", files: map[string]string{"/nf": "n1\nn1\nn2\n\n"}, want: "pbs 77.server [n1:2 n2:1]"},
		{name: "pbs, one slot each", env: "PBS_NODEFILE=/nf", files: map[string]string{"/nf": "n1.a\nn2.a\n"}, want: "pbs  [n1.a:1 n2.a:1]"},
		{name: "cobalt tells no slots", env: "COBALT_JOBID=3\nCOBALT_NODEFILE=/nf", files: map[string]string{"/nf": "n1\nn2\n"}, want: "cobalt 3 [n1:? n2:?]"},
		{name: "oar", env: "OAR_JOB_ID=3\nOAR_NODEFILE=/nf", files: map[string]string{"/nf": "n1\nn1\n"}, want: "oar 3 [n1:2]"},
		{name: "lsf pairs", env: "LSB_JOBID=5\nLSB_MCPU_HOSTS=h1 1 h2 4 h1 2", want: "lsf 5 [h1:3 h2:4]"},
		{name: "lsf words", env: "LSB_JOBID=5\nLSB_HOSTS=h1 h1 h2", want: "lsf 5 [h1:2 h2:1]"},
		{name: "lsf file", env: "LSB_JOBID=5\nLSB_HOSTS=\nLSB_DJOB_HOSTFILE=/hf", files: map[string]string{"/hf": "h1\nh2\nh2\n"}, want: "lsf 5 [h1:1 h2:2]"},
		{name: "lsf launch node", env: "LSB_JOBID=5\nLSB_MCPU_HOSTS=batch3 1 a01n01 42 a01n02 42", want: "lsf 5 [a01n01:42 a01n02:42] hosts.launch-node"},
		{name: "lsf, first host has one slot but is like the others", env: "LSB_JOBID=5\nLSB_MCPU_HOSTS=a01n01 1 a01n02 42", want: "lsf 5 [a01n01:1 a01n02:42]"},
		{name: "sge", env: "JOB_ID=1\nPE_HOSTFILE=/pe", files: map[string]string{"/pe": "c1 16 all.q@c1 UNDEFINED\nc2 8 all.q@c2 <NULL>\nc1 4 s.q@c1 UNDEFINED\n"}, want: "sge 1 [c1:20 c2:8]"},
		{
			name: "mpi operator, open mpi", env: "K_MPI_JOB_ROLE=launcher\nOMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
			files: map[string]string{"/etc/mpi/hostfile": "j-worker-0.j.ns.svc slots=8\nj-worker-1.j.ns.svc slots=8\n"}, want: "mpi-operator  [j-worker-0.j.ns.svc:8 j-worker-1.j.ns.svc:8]",
		},
		{
			name: "mpi operator, intel", env: "K_MPI_JOB_ROLE=launcher\nI_MPI_HYDRA_HOST_FILE=/etc/mpi/hostfile",
			files: map[string]string{"/etc/mpi/hostfile": "j-worker-0.j.ns.svc:8\n"}, want: "mpi-operator  [j-worker-0.j.ns.svc:8]",
		},
		{name: "mpi operator, role alone", env: "K_MPI_JOB_ROLE=launcher", files: map[string]string{"/etc/mpi/hostfile": "j-worker-0 slots=1\n"}, want: "mpi-operator  [j-worker-0:1]"},
		{name: "mpi operator, worker", env: "K_MPI_JOB_ROLE=worker", want: "  []"},
		{name: "the user's default hostfile", env: "HYDRA_HOST_FILE=/h", files: map[string]string{"/h": "a:2\n"}, want: "HYDRA_HOST_FILE  [a:2]"},
		{
			name: "train job", env: "PET_NNODES=4\nPET_NPROC_PER_NODE=8\nPET_NODE_RANK=2\nPET_MASTER_ADDR=t-node-0-0.t\nPET_MASTER_PORT=29500",
			want: "pytorchjob  [t-node-0-0.t:8] nodes=4 self=2 master=t-node-0-0.t",
		},
		{name: "elastic", env: "PET_NNODES=2:4\nPET_NPROC_PER_NODE=auto\nPET_RDZV_ENDPOINT=m-0:29400", want: "pytorchjob  [m-0:?] nodes=4 master=m-0"},
		{name: "pytorch job", env: "MASTER_ADDR=j-master-0\nMASTER_PORT=23456\nWORLD_SIZE=3\nRANK=1", want: "pytorchjob  [j-master-0:?] nodes=3 self=1 master=j-master-0"},
		{name: "pytorch job, the master itself", env: "MASTER_ADDR=localhost\nWORLD_SIZE=3\nRANK=0", want: "pytorchjob  [] nodes=3 self=0 master=localhost"},
		{name: "a worker of torchrun is no job", env: "MASTER_ADDR=a\nWORLD_SIZE=8\nRANK=1\nLOCAL_RANK=1", want: "  []"},
		{name: "flux", env: "FLUX_JOB_ID=f1\nFLUX_JOB_NNODES=2\nFLUX_JOB_SIZE=8", want: "flux f1 [] nodes=2 hosts.names-unknown"},
		{
			name: "aws batch", env: "AWS_BATCH_JOB_ID=b\nAWS_BATCH_JOB_NUM_NODES=2\nAWS_BATCH_JOB_NODE_INDEX=1\nAWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.9",
			want: "aws-batch b [10.0.0.9:?] nodes=2 self=1 master=10.0.0.9",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := FromEnv(lookup(vars(tc.env)), files(tc.files))
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s %s %v", a.Source, a.JobID, spell(a.Hosts))
			if len(a.Hosts) > 0 && a.Hosts[0].CPUs != nil {
				got += fmt.Sprintf(" cpus=%d", *a.Hosts[len(a.Hosts)-1].CPUs)
			}
			if a.Components != nil {
				got += fmt.Sprintf(" components=%v", a.Components)
			}
			if len(a.Hosts) > 0 && a.Hosts[0].GPUs != nil {
				got += fmt.Sprintf(" gpus=%d", *a.Hosts[len(a.Hosts)-1].GPUs)
			}
			if a.Nodes != 0 {
				got += fmt.Sprintf(" nodes=%d", a.Nodes)
			}
			if a.Self != nil {
				got += fmt.Sprintf(" self=%d", *a.Self)
			}
			if a.Master != "" {
				got += " master=" + a.Master
			}
			for _, f := range a.Findings {
				got += " " + f.ID
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFromEnvErrors(t *testing.T) {
	for _, tc := range []struct {
		name, env string
		files     map[string]string
		want      string
	}{
		{"slurm list", "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-", nil, `SLURM_JOB_NODELIST: host list "n[1-": character 2: '[' is never closed`},
		{"slurm tasks", "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=2(y2)", nil, `SLURM_TASKS_PER_NODE: "2(y2)": character 1: "2(y2)" is not a count, wanted N or N(xTIMES)`},
		{"own list", "FABRUN_HOSTS=a:b", nil, `FABRUN_HOSTS: host list "a:b": character 3: slots of "a": "b" is not a number of slots (1 to 1048576)`},
		{"pbs file missing", "PBS_NODEFILE=/nf", nil, `PBS_NODEFILE="/nf": open /nf: file does not exist`},
		{"pbs file empty", "PBS_NODEFILE=/nf", map[string]string{"/nf": "\n"}, `PBS_NODEFILE="/nf": no hosts`},
		{"pbs file odd", "PBS_NODEFILE=/nf", map[string]string{"/nf": "n1\n-x\n"}, `PBS_NODEFILE="/nf": line 2: "-x" is not a host name`},
		{"lsf pairs", "LSB_MCPU_HOSTS=a 1 b", nil, `LSB_MCPU_HOSTS: wanted pairs of host and slots, read "a 1 b"`},
		{"lsf slots", "LSB_MCPU_HOSTS=a x", nil, `LSB_MCPU_HOSTS: slots of "a": "x" is not a number of slots (1 to 1048576)`},
		{"sge columns", "PE_HOSTFILE=/pe", map[string]string{"/pe": "c1\n"}, `PE_HOSTFILE="/pe": line 1: wanted "host slots queue processors", read "c1"`},
		{"sge slots", "PE_HOSTFILE=/pe", map[string]string{"/pe": "c1 x q U\n"}, `PE_HOSTFILE="/pe": line 1: slots of "c1": "x" is not a number of slots (1 to 1048576)`},
		{"hydra file in another syntax", "HYDRA_HOST_FILE=/h", map[string]string{"/h": "a slots=2\n"}, `HYDRA_HOST_FILE="/h": line 1: MPICH's Hydra does not know "slots=2" (slots are written host:N)`},
		{"master", "MASTER_ADDR=-x\nWORLD_SIZE=2", nil, `master address "-x" is not a host name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := FromEnv(lookup(vars(tc.env)), files(tc.files))
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func FuzzFromEnv(f *testing.F) {
	f.Add("SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x2),1\n", "n1\n")
	f.Add("LSB_MCPU_HOSTS=b 1 a01 2 a02 2\n", "")
	f.Add("PE_HOSTFILE=/f\n", "c1 16 all.q UNDEFINED\n")
	f.Add("SLURM_JOB_ID=7\nSLURM_HET_SIZE=2\nSLURM_JOB_NODELIST_HET_GROUP_0=a\nSLURM_JOB_NODELIST_HET_GROUP_1=b\n", "")
	f.Add("PET_NNODES=1:3\nPET_RDZV_ENDPOINT=[::1]:29400\n", "")
	f.Fuzz(func(t *testing.T, env, file string) {
		a, err := FromEnv(lookup(vars(env)), func(string) ([]byte, error) { return []byte(file), nil })
		if err != nil || len(a.Hosts) == 0 {
			return
		}
		if _, err := Format(a, OpenMPI); err != nil {
			t.Fatalf("%q made hosts that cannot be written: %v", env, err)
		}
		if _, err := Place(a, Job{NP: ptr(7)}); err != nil {
			t.Fatal(err)
		}
	})
}
