package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Program is a file that has to be on every host.
type Program struct {
	Path  string   // where it lies here; tried first on the other hosts
	Arch  string   // "x86_64", "aarch64": what uname -m must say; "" any
	Check []string // arguments with which it must run and exit 0; nil: only that it can be executed

	text []byte
	sum  string
}

// ReadProgram reads the file at path.
func ReadProgram(path, arch string, check ...string) (*Program, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &Program{Path: path, Arch: arch, Check: check, text: text, sum: fmt.Sprintf("%x", sha256.Sum256(text))}, nil
}

// findScript looks for the program: $1 is its path here, $2 its SHA-256, $3 the
// machine wanted, the rest are the arguments of the check. It prints "have PATH"
// or "need DIR". Directories: one that keeps copies, else memory. A directory
// must be ours and closed to others, or another user could put a program there.
const findScript = `p=$1 h=$2 m=$3; shift 3
if [ -n "$m" ] && [ "$(uname -m)" != "$m" ]; then echo "arch $(uname -m)"; exit 0; fi
same() { [ -x "$1" ] && [ "$(sha256sum <"$1" 2>/dev/null | cut -c1-64)" = "$h" ] && "$@" >/dev/null 2>&1 </dev/null; }
if same "$p" "$@"; then echo "have $p"; exit 0; fi
umask 077
for d in "${XDG_CACHE_HOME:-$HOME/.cache}/fabrun" "/dev/shm/fabrun-$(id -u)" "${TMPDIR:-/tmp}/fabrun-$(id -u)"; do
  mkdir -p "$d" 2>/dev/null || continue
  [ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || continue
  chmod 700 "$d" 2>/dev/null || continue
  if same "$d/fabrun-$h" "$@"; then echo "have $d/fabrun-$h"; exit 0; fi
  t=$d/.x$$; printf '#!/bin/sh\nexit 0\n' >"$t" 2>/dev/null && chmod 700 "$t" && "$t" 2>/dev/null; ok=$?; rm -f "$t"
  [ $ok = 0 ] && { echo "need $d"; exit 0; }
done
echo none`

// putScript writes standard input to $1/fabrun-$2 by way of a file of its own,
// and only when all of it arrived.
const putScript = `umask 077; t=$1/.$3; trap 'rm -f "$t"' EXIT
cat >"$t" && [ "$(sha256sum <"$t" | cut -c1-64)" = "$2" ] && chmod 700 "$t" && mv -f "$t" "$1/fabrun-$2"`

// Stage makes sure that p is on every host and says where, by host. Hosts that
// have it (at the same path, or from an earlier time) are asked once; the others
// get a copy, named by its content. errs holds the hosts where it failed.
func Stage(ctx context.Context, t Transport, hosts []string, p *Program, o Options) (paths map[string]string, errs map[string]error) {
	paths, errs = map[string]string{}, map[string]error{}
	find := func(string) Command {
		return Command{Argv: append([]string{"/bin/sh", "-c", findScript, "fabrun", p.Path, p.sum, p.Arch}, p.Check...)}
	}
	dirs := map[string]string{}
	var need []string
	for _, r := range RunAll(ctx, t, hosts, find, o) {
		if r.Err != nil {
			errs[r.Host] = r.Err
			continue
		}
		// A login script may have printed something before.
		word, rest, _ := strings.Cut(lastLine(r.Stdout, ""), " ")
		switch {
		case word == "have":
			paths[r.Host] = rest
		case word == "need":
			dirs[r.Host] = rest
			need = append(need, r.Host)
		case word == "arch":
			errs[r.Host] = &HostError{
				Host: r.Host, Cause: NotExecutable, Err: fmt.Errorf("it is a %s machine, this fabrun is for %s", rest, p.Arch),
				Hint: "install fabrun for that machine at the same path there",
			}
		default:
			errs[r.Host] = &HostError{
				Host: r.Host, Cause: NoSuchFile,
				Err:  errors.New("no directory there takes a program (home, /dev/shm and /tmp: read-only or noexec): " + lastLine(r.Stderr, "no reason given")),
				Hint: "install fabrun there at " + p.Path,
			}
		}
	}
	put := func(host string) Command {
		return Command{Argv: []string{"/bin/sh", "-c", putScript, "fabrun", dirs[host], p.sum, nonce()}, Stdin: bytes.NewReader(p.text)}
	}
	for _, r := range RunAll(ctx, t, need, put, o) {
		switch {
		case r.Err != nil:
			errs[r.Host] = r.Err
		case r.Status != 0:
			errs[r.Host] = &HostError{Host: r.Host, Cause: NoSuchFile, Err: fmt.Errorf("could not write fabrun to %q: %s", dirs[r.Host], lastLine(r.Stderr, "the copy was cut short"))}
		default:
			paths[r.Host] = dirs[r.Host] + "/fabrun-" + p.sum
		}
	}
	return paths, errs
}

// Sum is the content's SHA-256, which names the staged copy.
func (p *Program) Sum() string { return p.sum }
