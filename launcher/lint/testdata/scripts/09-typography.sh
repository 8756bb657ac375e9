#!/bin/bash
NCCL_IB_HCA = mlx5_0
mpirun –np 4 ./a.out
export NCCL_NET_GDR_LEVEL=phb
export NCCL_IB_DISABLE=no
mpirun -np 4 ./a.out
# want 2 script.typography
# want 3 script.typography
# want 4 value.word
# want 5 value.not-a-number
