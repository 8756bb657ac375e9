// Package vars says of a variable's name whose it is and whether it may leave
// the machine: which are the communication libraries', which a snapshot carries,
// and what is secret by its name or by its value. One place decides it for the
// plan, the snapshot, the record and the pages.
package vars

import (
	"slices"
	"strings"
)

// libraries are the beginnings of the variables that a communication library reads.
var libraries = []string{
	"NCCL_", "RCCL_", "UCX_", "UCC_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "I_MPI_", "MPIR_CVAR_", "MPICH_", "MV2_", "MVP_",
	"NVSHMEM_", "FI_", "PSM2_", "PSM3_", "HFI_", "GLOO_", "HCOLL_", "SHARP_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "RSMPI_",
	"IBV_", "MLX5_", "RDMAV_", "VERBS_",
}

// Library reports whether a communication library reads a variable: it is part
// of the plan wherever it comes from, and reaches every rank.
func Library(name string) bool { return startsWith(name, libraries) }

func startsWith(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// What a snapshot carries beside the libraries' own: whatever else a decision or
// a finding reads of the environment, so that a replay is the machine's own plan.
var (
	carriedPrefixes = []string{
		"OMPI_", "PRTE_", "PMIX_", "HYDRA_", "MPI_LOCAL", "HOROVOD_LOCAL_", "JSM_NAMESPACE_LOCAL_", "PALS_LOCAL_", "PMI_LOCAL_", // launchers and their ranks
		"OMP_", "KMP_", "MKL_", "GOMP_", "TORCH_", "PET_", // threads, torch
		"WM_", "FOAM_", // OpenFOAM
		"SLURM_CPUS_", "SLURM_GPUS", "SLURM_JOB_CPUS_", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE",
		"AWS_BATCH_JOB_", "FLUX_JOB_", // allocations without files
	}
	carriedNames = []string{
		"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OPAL_PREFIX", "MPI_BUFFER_SIZE", "MPI_ARCH_PATH", "TP_SOCKET_IFNAME", "FLUX_TASK_LOCAL_ID", "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY",
		"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
		"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
		"SLURM_STEP_NUM_NODES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_DISTRIBUTION", "SLURM_CPU_BIND", "SLURM_MPI_TYPE", "SLURM_EXPORT_ENV",
		"SLURM_HET_SIZE", "SLURM_PACK_SIZE", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_LOCALID",
		"LSB_JOBID", "LSB_HOSTS", "LSB_MCPU_HOSTS", "K_MPI_JOB_ROLE",
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "KUBERNETES_SERVICE_HOST", "NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
	}
	// A container's runtime takes its twin under these.
	twins = []string{"APPTAINERENV_", "SINGULARITYENV_"}
)

// Carried reports whether a snapshot carries a variable. What names a person, a
// session or a file of the machine is not carried, and no secret.
func Carried(name string) bool {
	for _, t := range twins {
		name = strings.TrimPrefix(name, t)
	}
	return !Secret(name) && (Library(name) || slices.Contains(carriedNames, name) || startsWith(name, carriedPrefixes))
}
