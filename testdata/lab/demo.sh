#!/bin/sh
# A job on a RoCE cluster, in about two minutes: plan, preflight, RDMA, the
# packets' DSCP, a cable pulled, a job that fell back. The cluster is two QEMU
# nodes on this machine (see doc.go); it is gone afterwards.
set -eu
cd "$(dirname "$0")/../.."
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

dir=$(mktemp -d)
export FABRUN_LAB_DIR="$dir/lab"
trap '"$dir/driver" down; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
CGO_ENABLED=0 ${GO:-go} build -o "$dir/driver" ./testdata/lab

say 'Two nodes, each with two NUMA nodes, two PCIe switches and two rails of Soft-RoCE'
"$dir/driver" up 2 bin/fabrun
node1() {
	printf '\nnode1# %s\n' "$*"
	"$dir/driver" shell 1 "$*"
}
job='fabrun --profile soft-roce --hosts node1,node2'

say '1. What fabrun would do, and why'
node1 'fabrun plan --profile soft-roce --hosts node1,node2 -- mpirun -np 2 labmpi'

say '2. The job, over RDMA on both rails; no variable is given by hand'
"$dir/driver" switch >"$dir/before" # what passed so far is of no interest
node1 "$job mpirun -np 2 labmpi 8 1000000"

say '3. What the switch between the nodes saw of it, by DSCP'
"$dir/driver" switch | grep -e roce -e tcp

say '4. A cable is pulled out of the second rail of node2'
"$dir/driver" cable 2 rail1 out
node1 'fabrun check --profile soft-roce --hosts node1,node2' || true
"$dir/driver" cable 2 rail1 in

say '5. The same job without fabrun'"'"'s settings: nobody says a word, but fabrun'
node1 'fabrun --profile none --hosts node1,node2 mpirun -np 2 labmpi 8 1000000'
