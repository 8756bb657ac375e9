#!/bin/sh
NCCL_SOCKET_IFNAME=docker0
NCCL_DEBUG_FILE=/scratch/nccl.log
NCCL_DEBUG=INFO
export NCCL_DEBUG NCCL_DEBUG_FILE
mpiexec -n 8 ./a.out
# want 2 script.not-exported
# want 3 log.overwritten
