#!/bin/sh
# The main job on this machine, then what fabrun would do on one with eight
# rails. Installs Open MPI from apt where no mpirun is there.
set -eu
cd "$(dirname "$0")/../.."
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

command -v mpirun >/dev/null || testdata/tools/need openmpi-bin libopenmpi-dev gcc libc6-dev
# openmpi-bin brings mpicc; the headers and the compiler behind it are others'.
mpicc -fsyntax-only testdata/demo/ring.c >/dev/null 2>&1 || testdata/tools/need libopenmpi-dev gcc libc6-dev

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mpicc -O2 -o "$out/ring" testdata/demo/ring.c

# Open MPI refuses to run as root, and more ranks than cores, unless told; that
# is the demo's decision and never fabrun's.
if [ "$(id -u)" = 0 ]; then
	say 'Running as root: the demo sets OMPI_ALLOW_RUN_AS_ROOT for itself (fabrun never does).'
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
if [ "$(nproc)" -lt 2 ]; then
	export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
fi

say '1. A real MPI job on this machine: fabrun mpirun -np 2 ring'
bin/fabrun -v mpirun -np 2 "$out/ring"

say '2. What fabrun would do on a 2-socket host with 8 GPUs and 8 RoCE rails'
echo '   (an embedded machine: nothing of this one is looked at)'
bin/fabrun plan --from testdata/hosts/dgx-roce-8x8.snap --profile roce-dscp26 --hosts 'gpu[01-04]' -- \
	torchrun --nproc-per-node 8 train.py

say "3. The same for a CFD user's mpirun"
bin/fabrun plan --from testdata/hosts/dgx-roce-8x8.snap --profile roce-dscp26 --hosts 'gpu[01-04]' -- \
	mpirun -np 64 simpleFoam -parallel
