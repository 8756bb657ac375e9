package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Program is a file that is run on every host, and brought to those that do
// not have it.
type Program struct {
	Path string // where it lies here; tried first on the other hosts
	Arch string // "x86_64", "aarch64": what uname -m must say; "" any

	text []byte
	sum  string
	mark string // the linker's name for the content, within the first markWithin bytes; "" none
}

// markWithin is how far into the file the shell looks for the mark.
const markWithin = 8192

// ReadProgram reads the file at path.
func ReadProgram(path, arch string) (*Program, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path, Arch: arch, text: text, sum: fmt.Sprintf("%x", sha256.Sum256(text))}
	p.mark = goBuildID(text)
	return p, nil
}

// goBuildID is the Go linker's build ID, whose last part is a hash of the
// content (cmd/internal/buildid); "" where it has none that a shell could find.
func goBuildID(text []byte) string {
	e, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return ""
	}
	s := e.Section(".note.go.buildid")
	if s == nil || s.Size > 4096 {
		return ""
	}
	note, err := s.Data()
	// namesz 4, descsz, type 4, "Go\0\0", description
	if err != nil || len(note) < 16 || string(note[12:16]) != "Go\x00\x00" {
		return ""
	}
	n := e.ByteOrder.Uint32(note[4:])
	if n < 40 || int64(n) > int64(len(note))-16 {
		return ""
	}
	id := string(note[16 : 16+n])
	if !bytes.Contains(text[:min(len(text), markWithin)], []byte(id)) || !bare(id) {
		return ""
	}
	return id
}

// findScript runs the program, or says what it takes to do so: "NONCE have
// PATH" and then the program's own output, or "NONCE need DIR". $1 is the
// nonce, $2 its path here, $3 its SHA-256, $4 its mark, $5 the machine wanted,
// the rest are its arguments.
//
// What is run is what was looked at: an open descriptor. It is a file of ours or
// of root that nobody else may write, in directories of which the same is true
// (or that are sticky), since it is later started by its path. Then the mark
// tells, which costs a page; without one the file is hashed. Directories for
// copies: one that lasts, else memory; a home that is not there is not made. A
// directory must be ours and closed to others, or another user could put a
// program there.
const findScript = `n=$1 p=$2 h=$3 k=$4 m=$5; shift 5; me=$(id -u)
safe() {
  up=$1
  while up=${up%/*}; [ -n "$up" ]; do set -- "$@" "$up"; done
  stat -Lc '%u %a' "$@" / 2>/dev/null | {
    i=0
    while read -r u a; do
      i=$((i+1))
      [ "$u" = 0 ] || [ "$u" = "$me" ] || exit 1
      case $i:$a in [!1]:[1357]???|??:[1357]???) ;; *[2367]|*[2367]?) exit 1 ;; esac
    done
    [ $i = $(($#+1)) ]
  }
}
same() {
  [ -f "$1" ] && [ -x "$1" ] && [ -r "$1" ] && safe "$1" || return 1
  r=$(readlink -f "$1") && { [ "$r" = "$1" ] || safe "$r"; } || return 1
  exec 9<"$r"
  if [ -n "$k" ]; then head -c 8192 <&9 | LC_ALL=C grep -qF -e "$k"
  else [ "$(sha256sum <&9 | cut -c1-64)" = "$h" ]; fi && return 0
  exec 9<&-
  return 1
}
run() {
  echo "$n have $1"; shift
  [ -e /proc/self/fd/9 ] && exec /proc/self/fd/9 "$@"
  exec "$r" "$@"
}
if same "$p"; then run "$p" "$@"; fi
if [ -n "$m" ] && [ "$(uname -m)" != "$m" ]; then echo "$n arch $(uname -m)"; exit 0; fi
umask 077
c=${XDG_CACHE_HOME:-$HOME/.cache}
[ -d "${c%/*}" ] || c=
for d in ${c:+"$c/fabrun"} "/dev/shm/fabrun-$me" "${TMPDIR:-/tmp}/fabrun-$me"; do
  mkdir -p "$d" 2>/dev/null || continue
  [ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || continue
  chmod 700 "$d" 2>/dev/null || continue
  if same "$d/fabrun-$h"; then touch "$d/fabrun-$h"; run "$d/fabrun-$h" "$@"; fi
  t=$d/.x$$; printf '#!/bin/sh\nexit 0\n' >"$t" 2>/dev/null && chmod 700 "$t" && "$t" 2>/dev/null; ok=$?; rm -f "$t"
  [ $ok = 0 ] && { echo "$n need $d"; exit 0; }
done
echo "$n none"`

// putScript writes standard input to $2/fabrun-$3 by way of a file of its own,
// and only when all of it arrived; then it is run. $1 is the nonce, $4 the name
// of that file: hosts may share the directory. Copies that nobody has used for a
// week go.
const putScript = `n=$1 d=$2 h=$3 t=$2/.$4; shift 4; umask 077; trap 'rm -f "$t"' EXIT
[ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] && chmod 700 "$d" || exit 125
cat >"$t" && [ "$(sha256sum <"$t" | cut -c1-64)" = "$h" ] && chmod 700 "$t" && mv -f "$t" "$d/fabrun-$h" || exit 125
find "$d" -maxdepth 1 -type f -name 'fabrun-*' ! -name "fabrun-$h" -mtime +7 -exec rm -f {} + 2>/dev/null
trap - EXIT; echo "$n have $d/fabrun-$h"; exec "$d/fabrun-$h" "$@" </dev/null`

// RunProgram runs p with args on every host and returns the results in the
// order of hosts, and where p lies on each. A host that has it (at the same
// path, or from an earlier time) takes one round trip; to the others a copy is
// brought, named by its content. A Result's Err says why it could not be run;
// what the program printed is in it without what a login script did before.
func RunProgram(ctx context.Context, t Transport, hosts []string, p *Program, args []string, o Options) (results []Result, paths map[string]string) {
	paths = map[string]string{}
	at := map[string]int{}
	mark := nonce()
	dirs := map[string]string{}
	var need []string
	results = RunSame(ctx, t, hosts, Command{Argv: append([]string{"/bin/sh", "-c", findScript, "fabrun", mark, p.Path, p.sum, p.mark, p.Arch}, args...)}, o)
	for i := range results {
		r := &results[i]
		at[r.Host] = i
		word, rest := afterMark(r, mark)
		switch {
		case word == "have":
			paths[r.Host] = rest
		case r.Err != nil:
		case word == "need":
			dirs[r.Host] = rest
			need = append(need, r.Host)
		case word == "arch":
			r.Err = &HostError{
				Host: r.Host, Cause: NotExecutable, Err: fmt.Errorf("it is a %s machine, this fabrun is for %s", rest, p.Arch),
				Hint: "install fabrun for that machine at the same path there",
			}
		default:
			r.Err = &HostError{
				Host: r.Host, Cause: NoSuchFile,
				Err:  errors.New("no directory there takes a program (home, /dev/shm and /tmp: read-only or noexec): " + lastLine(r.Stderr, "no reason given")),
				Hint: "install fabrun there at " + p.Path,
			}
		}
	}
	if len(need) == 0 {
		return results, paths
	}
	put := func(host string) Command {
		return Command{Argv: append([]string{"/bin/sh", "-c", putScript, "fabrun", mark, dirs[host], p.sum, nonce()}, args...), Stdin: bytes.NewReader(p.text)}
	}
	for _, r := range RunAll(ctx, t, need, put, o) {
		if word, rest := afterMark(&r, mark); word == "have" {
			paths[r.Host] = rest
		} else if r.Err == nil {
			r.Err = &HostError{Host: r.Host, Cause: NoSuchFile, Err: fmt.Errorf("could not write fabrun to %q: %s", dirs[r.Host], lastLine(r.Stderr, "the copy was cut short"))}
		}
		results[at[r.Host]] = r
	}
	return results, paths
}

// afterMark takes the script's own line, and what came before it, off the output.
func afterMark(r *Result, mark string) (word, rest string) {
	out := r.Stdout
	i := bytes.Index(out, []byte(mark+" "))
	if i < 0 || i > 0 && out[i-1] != '\n' {
		return "", ""
	}
	line, after, _ := bytes.Cut(out[i+len(mark)+1:], []byte("\n"))
	r.Stdout = after
	word, rest, _ = strings.Cut(string(line), " ")
	return word, rest
}

// Sum is the content's SHA-256, which names the staged copy.
func (p *Program) Sum() string { return p.sum }
