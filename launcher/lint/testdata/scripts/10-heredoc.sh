#!/bin/bash
for n in 2 4 8; do
sbatch <<JOB
#!/bin/bash
#SBATCH --nodes=$n
export NCCL_IB_TC=26
srun ./bench
JOB
done
cat > run_inner.sh <<'INNER'
#!/bin/bash
export NCCL_IB_HCA=mlx5_$LOCAL_RANK
python train.py
INNER
ssh node2 'export UCX_TLS=rc; ./server'
# want 6 qos.dscp-for-tc
# want 12 hca.per-rank
# want 15 value.ucx-tls-alone
