#!/usr/bin/bash
set -a
NCCL_DEBUG=WARN
set +a
if [[ $(hostname) == gpu* ]]; then
  export NCCL_IB_HCA='^=mlx5_bond_0'
else
  export NCCL_IB_HCA='=mlx5_0,mlx5_1'
fi
HCA_OPT="-x NCCL_IB_HCA=$NCCL_IB_HCA"
mpirun $HCA_OPT -x NCCL_DEBUG --hostfile h -np 8 ./all_reduce_perf -b 8 -e 1G -f 2 || echo localhost failed
