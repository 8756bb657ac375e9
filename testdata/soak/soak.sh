#!/bin/sh
# Jobs in a loop for some minutes, one of them all the time, and some killed: what
# is left of them, and what the one that lasts takes, may not grow.
#
#	testdata/soak/soak.sh FABRUN [MINUTES]
#
# It needs root for a mount namespace of its own, so that no other fabrun of this
# machine is counted, and Open MPI.
set -eu
if [ "${FABRUN_SOAK:-}" != inside ]; then
	exec env FABRUN_SOAK=inside unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" "$(realpath "$1")" "${2:-10}"
fi
minutes=$2
cd "$(dirname "$0")/../.."
mount -t tmpfs none /tmp
mount -t tmpfs none /dev/shm
mkdir /tmp/bin /tmp/home
cp "$1" /tmp/bin/fabrun
fabrun=/tmp/bin/fabrun
export HOME=/tmp/home XDG_CACHE_HOME=/tmp/home/.cache OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# Nothing else runs in this process namespace: what is there is the jobs'.
processes() { n=0; for p in /proc/[0-9]*/exe; do [ "$(readlink "$p" 2>/dev/null)" != $fabrun ] || n=$((n + 1)); done; echo $n; }
# The cache keeps launchers' versions for the next job: one file, which the first run writes.
# Open MPI leaves its own session (ompi.*) where it is killed.
files() { find /tmp /dev/shm -xdev -type f ! -path "/tmp/ompi.*" ! -path "/tmp/bin/*" ! -path "/tmp/lasting.*" ! -path "/tmp/home/.cache/*" | wc -l; }
cache() { find /tmp/home/.cache -type f 2>/dev/null | wc -l; }
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
descriptors() { ls "/proc/$1/fd" | wc -l; }

NCCL_DEBUG=INFO $fabrun run --profile none --record /tmp/lasting.record -- \
	sh -c 'i=0; while :; do i=$((i+1)); echo "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"; seq 200; sleep 0.02; done' >/dev/null 2>/tmp/lasting.err &
lasting=$!
one() {
	$fabrun mpirun -np 2 true >/dev/null 2>&1
	$fabrun run -- sh -c 'exit 3' >/dev/null 2>&1 || [ $? = 3 ]
	$fabrun plan --from testdata/hosts/dgx-roce-8x8.snap -- mpirun -np 2 true >/dev/null 2>&1
	$fabrun run -- sleep 60 >/dev/null 2>&1 & # one that is told to end
	job=$!
	until pgrep -P $job >/dev/null 2>&1 || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
	kill -TERM $job
	wait $job || true
	$fabrun mpirun -np 2 sleep 60 >/dev/null 2>&1 & # and one that is killed: the guard ends what it started
	job=$!
	until pgrep -P $job mpirun >/dev/null 2>&1 || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
	kill -KILL $job
	wait $job 2>/dev/null || true
}
one
settled() { # the guard of what was killed takes a moment
	for _ in $(seq 600); do [ "$(processes)" != "$base" ] || return 0; sleep 0.1; done
}
base=$(processes)
for _ in $(seq 100); do n=$(processes); [ "$n" -ge "$base" ] || base=$n; sleep 0.05; done
first_rss= first_fds=
echo 'minute  jobs  lasting: rss KB  descriptors  fabrun processes  files left  cache files'
rounds=1
start=$(date +%s)
for minute in $(seq "$minutes"); do
	while [ $(($(date +%s) - start)) -lt $((minute * 60)) ]; do
		one
		rounds=$((rounds + 1))
	done
	settled
	row="$(rss $lasting) $(descriptors $lasting) $(processes) $(files) $(cache)"
	printf '%6d  %4d  %15d  %11d  %16d  %10d  %11d\n' "$minute" $((rounds * 5)) $row
	if [ -z "$first_rss" ]; then
		first=$row
		first_rss=${row%% *}
	fi
done
kill -TERM $lasting
wait $lasting || true
set -- $first $row
# Go's collector does not begin before 16 MB of heap; behind that, half more would be a leak.
[ "$6" -le 40000 ] || [ "$6" -le $(($1 * 3 / 2)) ] || { echo "memory grew from $1 to $6 KB"; exit 1; }
[ "$7" -le "$2" ] || { echo "descriptors grew from $2 to $7"; exit 1; }
[ "$8" -le "$3" ] || { echo "processes grew from $3 to $8"; exit 1; }
[ "$9" -le "$4" ] || { echo "files grew from $4 to $9:"; find /tmp /dev/shm -xdev -type f ! -path "/tmp/bin/*" ! -path "/tmp/ompi.*" | head -20; exit 1; }
shift 9
[ "$1" -le 4 ] || { echo "the cache grew to $1 files"; exit 1; }
echo flat
