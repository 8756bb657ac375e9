package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // where the program runs
		panic(err)
	}
	os.Exit(m.Run())
}

func TestWhichRelease(t *testing.T) {
	noGit := func(...string) (string, error) { return "", errors.New("not a git repository") }
	checkout := func(tag, changed string) func(...string) (string, error) {
		return func(args ...string) (string, error) {
			switch args[0] {
			case "rev-parse":
				return "0123456789abcdef0123456789abcdef01234567", nil
			case "show":
				return "1700000000", nil
			case "describe":
				if tag == "" {
					return "", errors.New("no tag")
				}
				return tag, nil
			}
			return changed, nil
		}
	}
	for _, c := range []struct {
		name   string
		git    func(...string) (string, error)
		env    map[string]string
		want   release
		failed string
	}{
		{"between releases", checkout("", ""), nil, release{next + "~git20231114.221320.0123456", "0123456789abcdef0123456789abcdef01234567", time.Unix(1700000000, 0).UTC()}, ""},
		{"a release", checkout("v1.2.3", ""), nil, release{"1.2.3", "0123456789abcdef0123456789abcdef01234567", time.Unix(1700000000, 0).UTC()}, ""},
		{"changed", checkout("v1.2.3", " M go.mod"), nil, release{"1.2.3+changed", "0123456789abcdef0123456789abcdef01234567-changed", time.Unix(1700000000, 0).UTC()}, ""},
		{"named", checkout("", ""), map[string]string{"VERSION": "7", "SOURCE_DATE_EPOCH": "1"}, release{"7", "0123456789abcdef0123456789abcdef01234567", time.Unix(1, 0).UTC()}, ""},
		{"no git", noGit, nil, release{}, "give VERSION and SOURCE_DATE_EPOCH"},
		{"no git, named", noGit, map[string]string{"VERSION": "2.0", "SOURCE_DATE_EPOCH": "1"}, release{"2.0", "", time.Unix(1, 0).UTC()}, ""},
		{"no version of a package", checkout("", ""), map[string]string{"VERSION": "1.0-rc1"}, release{}, `version "1.0-rc1"`},
		{"no path", checkout("", ""), map[string]string{"VERSION": "1/../../x"}, release{}, "version"},
		{"no time", checkout("", ""), map[string]string{"SOURCE_DATE_EPOCH": "today"}, release{}, "no number"},
	} {
		got, err := whichRelease(func(name string) string { return c.env[name] }, c.git)
		switch {
		case c.failed != "":
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: %v; want %q", c.name, err, c.failed)
			}
		case err != nil || got != c.want:
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

// someTree is a tree as a tarball has it, whose program says its version.
func someTree(t *testing.T, version string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	r := release{version: version, date: time.Unix(1700000000, 0)}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "bin"), 0o755), r.modulefiles(filepath.Join(dir, "share/modulefiles/fabrun")),
		write("testdata/dist/install.sh", filepath.Join(dir, "install.sh"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/fabrun"), []byte("#!/bin/sh\necho fabrun "+version+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, file := range more {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.settle(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// install runs a tree's install.sh.
func install(t *testing.T, tree string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(tree, "install.sh"), args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// files are what is below dir, and no directory that is empty.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestInstall(t *testing.T) {
	older := someTree(t, "1.0", "share/man/man1/gone.1.gz", "share/doc/fabrun/old/gone.md")
	newer := someTree(t, "1.1", "share/man/man1/fabrun.1.gz")
	home := filepath.Join(t.TempDir(), "a home & more")
	env := []string{"HOME=" + home}
	local := filepath.Join(home, ".local")
	if out, err := install(t, older, env); err != nil || !strings.Contains(out, "is not in PATH") {
		t.Fatalf("%v: %s", err, out)
	}
	ours := filepath.Join(local, "share/modulefiles/fabrun/site")
	if err := os.WriteFile(ours, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	running, err := os.Open(filepath.Join(local, "bin/fabrun"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if out, err := install(t, newer, append(env, "PATH=/usr/bin:/bin:"+local+"/bin")); err != nil || !strings.Contains(out, "fabrun 1.1\n") || strings.Contains(out, "is not in PATH") {
		t.Fatalf("%v: %s", err, out)
	}
	if old, err := os.ReadFile(running.Name()); err != nil || !bytes.Contains(old, []byte("1.1")) {
		t.Errorf("the program is %s, %v", old, err)
	}
	if b := make([]byte, 100); true {
		if n, err := running.Read(b); err != nil || !bytes.Contains(b[:n], []byte("1.0")) {
			t.Errorf("who had the old program open reads %s, %v", b[:n], err)
		}
	}
	want := []string{"bin/fabrun", "share/doc/fabrun/installed", "share/man/man1/fabrun.1.gz", "share/modulefiles/fabrun/1.1", "share/modulefiles/fabrun/1.1.lua", "share/modulefiles/fabrun/site"}
	if got := files(t, local); !slices.Equal(got, want) {
		t.Errorf("installed: %q; want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(local, "share/modulefiles/fabrun/1.1")); err != nil || !bytes.Contains(text, []byte("set prefix {"+local+"}")) {
		t.Errorf("modulefile: %s, %v", text, err)
	}
	if out, err := install(t, newer, env, "--remove"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := files(t, local); !slices.Equal(got, []string{"share/modulefiles/fabrun/site"}) {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat(filepath.Join(local, "bin")); err == nil {
		t.Error("an empty bin is left")
	}

	// As packagers do it: the prefix is what the files say, DESTDIR where they lie.
	dest := t.TempDir()
	if out, err := install(t, newer, []string{"DESTDIR=" + dest}, "--prefix", "/opt/fabrun"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dest, "opt/fabrun/share/modulefiles/fabrun/1.1.lua")); err != nil || !bytes.Contains(text, []byte("[[/opt/fabrun]]")) {
		t.Errorf("modulefile: %s, %v", text, err)
	}

	for _, c := range []struct {
		args []string
		env  []string
		want string
	}{
		{[]string{"--nonsense"}, nil, "usage:"},
		{nil, nil, "say where with --prefix"},
		{[]string{"--prefix", "/proc/nowhere"}, nil, "cannot be written"},
		{[]string{"--prefix", "/tmp/a}b"}, nil, "no modulefile could carry"},
		{[]string{"--remove", "--prefix", "/nonexistent"}, nil, "no fabrun was installed"},
	} {
		if out, err := install(t, newer, c.env, c.args...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%q: %v: %s; want %q", c.args, err, out, c.want)
		}
	}
}

// TestModulefiles loads them into real Lmod and real Environment Modules.
func TestModulefiles(t *testing.T) {
	tree := someTree(t, "1.1")
	prefix := filepath.Join(t.TempDir(), "fabrun 1")
	if out, err := install(t, tree, nil, "--prefix", prefix); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const lmod = "/usr/share/lmod/lmod/libexec/lmod"
	_, noLmod := os.Stat(lmod)
	modulecmd, _ := filepath.Glob("/usr/lib/*/modulecmd.tcl")
	for name, c := range map[string]struct {
		argv  []string
		there bool
	}{
		"Lmod":                {[]string{lmod, "bash"}, noLmod == nil},
		"Environment Modules": {append([]string{"tclsh"}, append(modulecmd, "bash")...), len(modulecmd) == 1},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("FABRUN_MODULECMD") != "" && name == "Environment Modules" { // it cannot be installed beside Lmod
				c.argv, c.there = []string{"tclsh", os.Getenv("FABRUN_MODULECMD"), "bash"}, true
			}
			if !c.there {
				t.Skipf("no %s here", name)
			}
			for _, asked := range []string{"fabrun", "fabrun/1.1"} {
				cmd := exec.Command("bash", "-c", `eval "$("$@")"; fabrun version`, "bash")
				cmd.Args = append(cmd.Args, append(slices.Clone(c.argv), "load", asked)...)
				cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + prefix, "MODULEPATH=" + filepath.Join(prefix, "share/modulefiles")}
				if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "fabrun 1.1" {
					t.Errorf("module load %s: %v: %s", asked, err, out)
				}
			}
			cmd := exec.Command(c.argv[0], append(slices.Clone(c.argv[1:]), "whatis", "fabrun")...)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + prefix, "MODULEPATH=" + filepath.Join(prefix, "share/modulefiles")}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "really uses RDMA") {
				t.Errorf("module whatis: %v: %s", err, out)
			}
		})
	}
}

// permissive are licences under which a program may carry code when their texts
// come with it.
var permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// TestLicences: whatever is linked may be handed on, and its licence comes along,
// in the packages and in the SBOM.
func TestLicences(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fabrun", "fabrun-nvml"} {
		if err := goTool([]string{"CGO_ENABLED=0"}, "build", "-buildvcs=false", "-o", filepath.Join(dir, "bin", name), "./cmd/"+name); err != nil {
			t.Fatal(err)
		}
	}
	r := release{"1.0", "", time.Unix(1700000000, 0).UTC()}
	if err := os.MkdirAll(filepath.Join(dir, "share/doc/fabrun"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.origins("amd64", dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "share/doc/fabrun/fabrun.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, c := range b.Components {
		if c.Type != "library" {
			continue
		}
		for id := range strings.SplitSeq(c.Licenses[0].Expression, " AND ") {
			if !slices.Contains(permissive, id) {
				t.Errorf("%s %s is under %s", c.Name, c.Version, id)
			}
		}
		kept, err := filepath.Glob(filepath.Join(dir, "share/doc/fabrun/licenses", c.Name+"@"+c.Version, "*"))
		if err != nil || len(kept) == 0 {
			t.Errorf("%s %s: no licence is kept, %v", c.Name, c.Version, err)
		}
		seen[c.Name] = c.Licenses[0].Expression
	}
	for name, want := range map[string]string{"std": "BSD-3-Clause", "github.com/spf13/cobra": "Apache-2.0", "github.com/BurntSushi/toml": "MIT"} {
		if seen[name] != want {
			t.Errorf("%s is under %q; want %q", name, seen[name], want)
		}
	}
}
