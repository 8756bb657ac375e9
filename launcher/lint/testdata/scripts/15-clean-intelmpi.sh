#!/bin/sh
. /opt/intel/oneapi/setvars.sh
mpiexec.hydra -genv I_MPI_FABRICS shm:ofi -genv FI_PROVIDER mlx -ppn 32 -n 128 -f hosts ./wrf.exe
