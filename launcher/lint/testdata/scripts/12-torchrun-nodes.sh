export MASTER_ADDR=localhost
export NCCL_ALGO=Ring
torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint localhost:45000 train.py
env NCCL_IB_GID_INDEX=3 NCCL_IB_TIMOUT=22 python -m torch.distributed.run --nnodes=1 --standalone train.py
# want 1 script.rendezvous-localhost
# want 3 script.rendezvous-localhost
# want 3 script.port-ephemeral
# want 4 value.misspelt
