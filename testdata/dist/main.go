// Command dist builds what is handed out: for each architecture a tree of files
// as it lies below a prefix, and from it a tarball with install.sh, a .deb and an
// .rpm; then their checksums. The same commit gives the same bytes, wherever and
// whenever it is built with the same Go and C compilers.
//
// It is a module of its own, for what it needs is no part of fabrun, and runs in
// the repository's root (make dist, make install):
//
//	bin/dist [-out dist] [-arch amd64,arm64]   everything
//	bin/dist -tree DIR                         this machine's tree alone
//
//	build.go      the programs, manual pages, completions: the tree
//	licences.go   the licences of everything linked, and the SBOM
//	packages.go   tarball, .deb and .rpm of a tree
//	install.sh    what a tarball and 'make install' are installed with
//	modulefile.*  for Environment Modules and Lmod
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// next is the version that the commits since the last release lead to.
const next = "0.1.0"

// release is what is built.
type release struct {
	version string // sorts in dpkg's and rpm's order
	commit  string // "" is unknown
	date    time.Time
}

// whichRelease asks git. VERSION and SOURCE_DATE_EPOCH win: they are all that a
// source tree without git has.
func whichRelease(getenv func(string) string, git func(args ...string) (string, error)) (release, error) {
	r := release{version: getenv("VERSION")}
	commit, err := git("rev-parse", "HEAD")
	if err == nil {
		r.commit = commit
		seconds, err := git("show", "-s", "--format=%ct", "HEAD")
		if err != nil {
			return r, err
		}
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return r, fmt.Errorf("git: the commit's time is %q", seconds)
		}
		r.date = time.Unix(n, 0).UTC()
		tag, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*")
		if err != nil {
			tag = fmt.Sprintf("v%s~git%s.%.7s", next, r.date.Format("20060102.150405"), commit)
		}
		r.version = cmp.Or(r.version, tag[1:])
		if changed, err := git("status", "--porcelain", "--untracked-files=no"); err != nil || changed != "" {
			r.commit += "-changed"
			r.version += "+changed"
		}
	}
	if s := getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return r, fmt.Errorf("SOURCE_DATE_EPOCH=%q is no number of seconds", s)
		}
		r.date = time.Unix(n, 0).UTC()
	}
	if r.version == "" || r.date.IsZero() {
		return r, fmt.Errorf("git does not say which commit this is (%w): give VERSION and SOURCE_DATE_EPOCH in the environment", err)
	}
	// What names a file and is a package's version: no dash, which parts it from the revision.
	if strings.Trim(r.version, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+~") != "" || r.version[0] < '0' || r.version[0] > '9' {
		return r, fmt.Errorf("version %q: it begins with a digit, and has letters, digits and .+~ alone", r.version)
	}
	return r, nil
}

func main() {
	out := flag.String("out", "dist", "write the packages into this `directory`")
	arches := flag.String("arch", "amd64,arm64", "build for these `architectures`")
	tree := flag.String("tree", "", "write this machine's tree into this `directory`, and nothing else")
	flag.Parse()
	if err := work(*out, *arches, *tree); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func work(out, arches, tree string) error {
	git := func(args ...string) (string, error) {
		text, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(text)), err
	}
	r, err := whichRelease(os.Getenv, git)
	if err != nil {
		return err
	}
	if tree != "" {
		return r.tree(runtime.GOARCH, tree)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	trees, err := os.MkdirTemp("", "fabrun-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(trees)
	var made []string
	for arch := range strings.SplitSeq(arches, ",") {
		dir := filepath.Join(trees, fmt.Sprintf("fabrun-%s-linux-%s", r.version, arch))
		if err := r.tree(arch, dir); err != nil {
			return err
		}
		files, err := r.packages(arch, dir, out)
		if err != nil {
			return err
		}
		made = append(made, files...)
	}
	return checksums(out, made)
}
