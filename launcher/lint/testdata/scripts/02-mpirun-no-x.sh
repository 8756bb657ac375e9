#!/usr/bin/env bash
set -euo pipefail
export UCX_NET_DEVICES=mlx5_0:1
export UCX_IB_TRAFFIC_CLASS=106
export NCCL_IB_HCA="=mlx5_0:1,mlx5_1:1"
mpirun -np 16 --hostfile hosts.txt --map-by ppr:8:node \
  -x UCX_NET_DEVICES --mca pml ucx \
  ./solver input.dat
# want 6 script.not-forwarded
