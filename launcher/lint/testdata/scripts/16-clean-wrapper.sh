#!/bin/bash
# one UCX device per rank is right where all rails reach each other
export NCCL_IB_HCA='=mlx5_0,mlx5_1,mlx5_2,mlx5_3'
case "${OMPI_COMM_WORLD_LOCAL_RANK:-0}" in
  0|1) export UCX_NET_DEVICES=mlx5_0:1 ;;
  *)   export UCX_NET_DEVICES=mlx5_1:1 ;;
esac
exec "$@"
