#!/bin/bash
# OpenFOAM over 4 nodes, Open MPI 5 with UCX
source /opt/openfoam/etc/bashrc
export UCX_NET_DEVICES=mlx5_0:1
export UCX_TLS=rc,sm,self
np=$((4 * 32))
mpirun -np "$np" --hostfile machines --map-by ppr:32:node --bind-to core \
    -x PATH -x LD_LIBRARY_PATH -x UCX_NET_DEVICES -x UCX_TLS \
    --mca pml ucx --mca osc ucx \
    simpleFoam -parallel > log.simpleFoam 2>&1
