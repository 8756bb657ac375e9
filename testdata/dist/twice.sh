#!/bin/sh
# Builds the packages here and, from a clone in another place, with another home,
# umask and time zone, once more: the same bytes. The second time only this
# machine's; FABRUN_DIST_COLD=1 builds all, with an empty cache, which takes minutes.
#
#	testdata/dist/twice.sh OUT
set -eu
out=$1
rm -rf "$out"
bin/dist -out "$out"
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo 'not built a second time: what is changed is in no clone'
	exit 0
fi
other=$(mktemp -d)
trap 'chmod -R u+w "$other"; rm -rf "$other"' EXIT
git clone -q --no-local . "$other/another place"
cache=$(go env GOCACHE) modules=$(go env GOMODCACHE)
arches=$(go env GOARCH)
[ -z "${FABRUN_DIST_COLD:-}" ] || { cache=$other/cache arches=amd64,arm64; }
(
	umask 077
	cd "$other/another place"
	export HOME="$other" GOCACHE="$cache" GOMODCACHE="$modules" TZ=Asia/Kathmandu
	go build -C testdata/dist -buildvcs=false -o ../../bin/dist .
	bin/dist -out dist -arch "$arches"
)
n=0
for file in "$other/another place/dist"/fabrun*; do
	cmp "$file" "$out/$(basename "$file")"
	n=$((n + 1))
done
[ "$n" -gt 0 ]
echo "built twice in two places: the same $n files"
