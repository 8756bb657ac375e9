#!/bin/bash
# started by mpirun once per rank
lrank=${OMPI_COMM_WORLD_LOCAL_RANK}
HCAS=(mlx5_0 mlx5_3 mlx5_4 mlx5_5)
export CUDA_VISIBLE_DEVICES=$lrank
hca=${HCAS[$lrank]}
export NCCL_IB_HCA=$hca:1
export UCX_NET_DEVICES=$hca:1
exec "$@"
# want 7 hca.per-rank
