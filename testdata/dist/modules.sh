#!/bin/sh
# Loads the modulefiles into both module systems: Debian has Lmod and Environment
# Modules, but not side by side, so the second is unpacked and not installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd "$dir" && apt-get download -qq environment-modules && dpkg -x environment-modules_*.deb .)
cd "$(dirname "$0")"
FABRUN_MODULECMD=$(echo "$dir"/usr/lib/*/modulecmd.tcl) go test -count=1 -v -run Modulefiles . | grep -v '^=== RUN'
