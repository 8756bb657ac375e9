#!/bin/bash
case $SLURM_LOCALID in
  0) export UCX_NET_DEVICES=mlx5_0:1; export NCCL_IB_HCA==mlx5_0 ;;
  1) export UCX_NET_DEVICES=mlx5_1:1; export NCCL_IB_HCA==mlx5_1 ;;
esac
if [ "$LOCAL_RANK" -ge 4 ]; then
  export NCCL_IB_HCA==mlx5_2
fi
exec python train.py
# want 3 hca.per-rank
# want 4 hca.per-rank
# want 7 hca.per-rank
