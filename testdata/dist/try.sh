#!/bin/sh
# Tries packages as their users do: in a Debian root of its own the .deb is
# installed, used, upgraded while a job runs and removed; the .rpm likewise in an
# empty root; the tarball without root; what is for arm64 under QEMU. Nothing may
# be left but configuration.
#
#	testdata/dist/try.sh NEW OLD ROOT
#
# NEW and OLD are directories that bin/dist wrote, of a newer and an older version;
# ROOT is a Debian root with Open MPI, which is not changed ('bin/lab image').
# It needs root, overlayfs, rpm and qemu-user-static.
set -eu
new=$1 old=$2 base=$3
if [ "${FABRUN_TRY:-}" != inside ]; then # what is mounted is seen by nobody else, and ends with us
	exec env FABRUN_TRY=inside unshare --mount --pid --fork --kill-child --propagation private "$0" "$@"
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'umount -R -l "$work" 2>/dev/null || true; rm -rf "$work"' EXIT
mount -t tmpfs none "$work"
r=$work/root
mkdir "$work/upper" "$r" "$work/empty" "$work/home"
say() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
in_root() { chroot "$r" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "$@"; }
# Everything in a root but what dpkg, apt and man-db keep for themselves.
listing() { (cd "$1" && find . -xdev \( -path ./tmp -o -path ./proc -o -path ./dev -o -path ./sys -o -path ./run -o -path ./var/cache -o -path ./var/log -o -path ./var/lib -o -path ./root \) -prune -o -print | LC_ALL=C sort); }

say checksums
(cd "$new" && sha256sum --quiet -c SHA256SUMS)

say 'a Debian root, with man and bash-completion'
mkdir "$work/upper/w"
mkdir "$work/upper/u"
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper/u,workdir=$work/upper/w" none "$r"
mount -t proc none "$r/proc"
mount --rbind /sys "$r/sys"
rm -f "$r"/etc/dpkg/dpkg.cfg.d/* # a lean root leaves documentation out
mount -t tmpfs none "$r/tmp"
mount -t devtmpfs none "$r/dev" 2>/dev/null || mount --rbind /dev "$r/dev"
mkdir -p "$r/dev/shm" "$r/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 none "$r/dev/pts"
mount --bind "$r/dev/pts/ptmx" "$r/dev/ptmx" 2>/dev/null || true
mount -t tmpfs none "$r/dev/shm"
cat /etc/resolv.conf >"$r/etc/resolv.conf"
in_root sh -c 'command -v man && [ -e /usr/share/bash-completion/bash_completion ]' >/dev/null ||
	in_root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends man-db bash-completion' >"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; fail 'apt-get in the root'; }
mkdir -p "$r/tmp/p"
cp "$new"/*_amd64.deb "$r/tmp/p/new.deb"
cp "$old"/*_amd64.deb "$r/tmp/p/old.deb"
listing "$r" >"$work/before"

say '.deb: the old version, and a job with it'
in_root dpkg -i /tmp/p/old.deb >/dev/null
in_root fabrun version | tee "$work/old.version"
in_root fabrun mpirun -np 2 sh -c 'echo up; until [ -e /tmp/go ]; do sleep 0.1; done; echo done' >"$work/job" 2>"$work/job.err" &
job=$!
until [ "$(grep -c up "$work/job")" = 2 ]; do kill -0 $job || { cat "$work/job.err"; fail 'the job ended'; }; sleep 0.1; done

say 'the new version over it, while the job runs'
in_root dpkg -i /tmp/p/new.deb >/dev/null
in_root fabrun version | tee "$work/new.version"
cmp -s "$work/old.version" "$work/new.version" && fail 'the version is the old one'
touch "$r/tmp/go"
wait $job || { cat "$work/job.err"; fail 'the job that ran was harmed'; }
[ "$(grep -c done "$work/job")" = 2 ] || fail 'the job that ran did not end well'
cat "$work/job.err"

say 'the main job, its page, and a completion'
in_root fabrun mpirun -np 2 hostname
in_root env MANWIDTH=80 man fabrun >"$work/page" || fail 'man fabrun'
sed 12q "$work/page"
in_root man -w fabrun-slurm-task-prolog
: >"$work/typed"
shown() { until grep -q "$1" "$work/typed"; do kill -0 $shell 2>/dev/null || { cat "$work/typed"; fail "bash did not show $1"; }; sleep 0.1; done; }
mkfifo "$work/keys"
in_root script -qfec 'bash -l -i' /dev/null <"$work/keys" >"$work/typed" 2>&1 &
shell=$!
exec 4>"$work/keys"
shown '[#$] ' # what is typed before the prompt is not edited
printf 'fabrun profile show roce-dscp2\t' >&4
shown roce-dscp26
printf '\nexit\n' >&4
exec 4>&-
wait $shell || fail 'the completed line did not run'
in_root sh -c 'ls /usr/share/doc/fabrun/licenses/std@*/LICENSE' >/dev/null

say 'removed: nothing is left but configuration'
echo 'name = "ours"' >"$r/etc/fabrun/profiles/ours.toml"
in_root dpkg -r fabrun >/dev/null 2>&1
listing "$r" >"$work/after"
diff "$work/before" "$work/after" >"$work/left" || true
printf '> ./etc/fabrun\n> ./etc/fabrun/profiles\n> ./etc/fabrun/profiles/ours.toml\n' >"$work/want"
grep '^[<>]' "$work/left" | diff "$work/want" - || fail 'something else is left'
rm -r "$r/etc/fabrun"
in_root dpkg -P fabrun >/dev/null 2>&1 || true

say '.rpm: install, upgrade, remove'
rpms() { rpm --root "$work/empty" --dbpath /var/lib/rpm "$@"; }
rpms --initdb
listing "$work/empty" >"$work/before"
rpms -i --nodeps --ignorearch "$old"/*.x86_64.rpm
rpms -U --nodeps --ignorearch "$new"/*.x86_64.rpm
rpms -V --nodeps fabrun
"$work/empty/usr/bin/fabrun" version
echo 'name = "ours"' >"$work/empty/etc/fabrun/profiles/ours.toml"
rpms -e fabrun 2>"$work/rpm.err" || { cat "$work/rpm.err"; fail 'rpm -e'; }
listing "$work/empty" >"$work/after"
(cd "$work/empty" && find . -type f ! -path './var/*') | diff - /dev/fd/3 3<<-END || fail 'something else is left by rpm'
	./etc/fabrun/profiles/ours.toml
END

say 'the tarball, without root'
chmod 755 "$work"
chown 65534:65534 "$work/home"
user() { setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$work/home" PATH="$work/home/.local/bin:/usr/bin:/bin" LC_ALL=C.UTF-8 "$@"; }
tar -C "$work/home" -xzf "$new"/*-linux-amd64.tar.gz
user sh -c 'cd ~/fabrun-* && ./install.sh'
user fabrun version
user man -w fabrun
user sh -c 'cd ~/fabrun-* && ./install.sh --remove'
[ -z "$(find "$work/home/.local" -type f 2>/dev/null)" ] || fail "install.sh --remove left $(find "$work/home/.local" -type f)"

say 'arm64, under QEMU'
if ls "$new"/*-linux-arm64.tar.gz >/dev/null 2>&1; then
	mkdir "$work/arm"
	tar -C "$work/arm" --strip-components 1 -xzf "$new"/*-linux-arm64.tar.gz
	qemu-aarch64-static "$work/arm/bin/fabrun" version
	for f in "$here"/testdata/hosts/dgx-roce-8x8.snap "$here"/testdata/hosts/cx4lx-12node.snap; do
		qemu-aarch64-static "$work/arm/bin/fabrun" plan --from "$f" -- mpirun -np 2 true >"$work/plan.arm" 2>&1 || true
		chroot_free=$work/home/fabrun-*/bin/fabrun
		$chroot_free plan --from "$f" -- mpirun -np 2 true >"$work/plan.amd" 2>&1 || true
		cmp "$work/plan.arm" "$work/plan.amd" || fail "the plan of $f is another one on arm64"
	done
	qemu-aarch64-static -L /usr/aarch64-linux-gnu "$work/arm/bin/fabrun-nvml"
fi
say 'all is well'
