#!/bin/sh
# Installs fabrun below a prefix, ~/.local unless told otherwise; no root needed.
# A job that runs keeps the program it was started with.
#
#	./install.sh [--prefix DIR]       install, or replace what was installed there
#	./install.sh --remove [--prefix DIR]
#
# With DESTDIR set everything goes below it, as packagers want.
set -eu

usage() {
	echo "usage: install.sh [--remove] [--prefix DIR]   (default: ~/.local)" >&2
	exit 2
}

prefix=
remove=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) [ $# -gt 1 ] || usage; prefix=$2; shift 2 ;;
	--prefix=*) prefix=${1#*=}; shift ;;
	--remove) remove=yes; shift ;;
	*) usage ;;
	esac
done
if [ -z "$prefix" ]; then
	[ -n "${HOME:-}" ] || { echo "install.sh: HOME is not set: say where with --prefix" >&2; exit 1; }
	prefix=$HOME/.local
fi
case $prefix in
/*) ;;
*) prefix=$(pwd)/$prefix ;;
esac
case $prefix in
*[\]\}\{\\\$\"]* | *'
'*) echo "install.sh: $prefix has a character that no modulefile could carry" >&2; exit 1 ;;
esac
from=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}$prefix
list=$root/share/doc/fabrun/installed # relative paths of what is ours

# drop FILE…: removes files below the prefix, and the directories that are empty then
drop() {
	rm -f "$root/$1"
	(cd "$root" && dir=$(dirname "$1") && while [ "$dir" != . ] && rmdir "$dir" 2>/dev/null; do dir=$(dirname "$dir"); done) || true
}

if [ -n "$remove" ]; then
	[ -f "$list" ] || { echo "install.sh: no fabrun was installed below $root" >&2; exit 1; }
	was=$(cat "$list")
	printf '%s\n' "$was" | while IFS= read -r file; do drop "$file"; done
	drop share/doc/fabrun/installed
	echo "removed fabrun from $root"
	exit 0
fi

"$from/bin/fabrun" version >/dev/null 2>&1 || [ -n "${DESTDIR:-}" ] ||
	{ echo "install.sh: $from/bin/fabrun does not run here: is it for this machine ($(uname -m))?" >&2; exit 1; }
mkdir -p "$root" 2>/dev/null && [ -w "$root" ] || { echo "install.sh: $root cannot be written: say where with --prefix" >&2; exit 1; }

new=$(cd "$from" && find bin share -type f ! -path share/doc/fabrun/installed | LC_ALL=C sort)
was=
[ ! -f "$list" ] || was=$(cat "$list")
plain=$(printf '%s\n' "$prefix" | sed 's/[&|\\]/\\&/g')
printf '%s\n' "$new" | while IFS= read -r file; do
	to=$root/$file
	mkdir -p "$(dirname "$to")"
	# A new file under the old one's name: who runs or reads the old one keeps it.
	rm -f "$to.new"
	case $file in
	share/modulefiles/*) sed "s|@PREFIX@|$plain|g" "$from/$file" >"$to.new" ;;
	*) cp "$from/$file" "$to.new" ;;
	esac
	case $file in
	bin/*) chmod 755 "$to.new" ;;
	*) chmod 644 "$to.new" ;;
	esac
	touch -r "$from/$file" "$to.new"
	mv -f "$to.new" "$to"
done
# What an older version had and this one has not.
[ -z "$was" ] || printf '%s\n' "$was" | while IFS= read -r file; do
	printf '%s\n' "$new" | grep -qxF -e "$file" || drop "$file"
done
mkdir -p "$(dirname "$list")"
printf '%s\n' "$new" >"$list"

[ -z "${DESTDIR:-}" ] || exit 0
"$prefix/bin/fabrun" version
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "$prefix/bin is not in PATH; in a shell's start-up file: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "with modules: module use $prefix/share/modulefiles; module load fabrun"
