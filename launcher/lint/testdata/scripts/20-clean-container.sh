#!/bin/bash
docker run --rm --gpus all --network host --ulimit memlock=-1 --device /dev/infiniband \
  -e NCCL_IB_HCA='=mlx5_0,mlx5_1' -e NCCL_DEBUG=WARN image:1 \
  torchrun --standalone --nproc-per-node 8 train.py
cat <<EOT
export NCCL_IB_TC=26
EOT
