package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// compilers build the helper, which is the only part that needs one, for an
// architecture that is not this machine's; and the packages that bring them.
var compilers = map[string][2]string{
	"amd64": {"x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"},
	"arm64": {"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"},
}

// tree writes what is installed below a prefix into dir.
func (r release) tree(arch, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, d := range []string{"bin", "share/man/man1", "share/doc/fabrun"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return r.programs(arch, filepath.Join(dir, "bin")) },
		func() error { return r.manual(filepath.Join(dir, "share/man/man1")) },
		func() error { return completions(dir) },
		func() error { return r.modulefiles(filepath.Join(dir, "share/modulefiles/fabrun")) },
		func() error { return docs(filepath.Join(dir, "share/doc/fabrun")) },
		func() error { return r.origins(arch, dir) },
		func() error { return write("testdata/dist/install.sh", filepath.Join(dir, "install.sh"), 0o755) },
		func() error { return r.settle(dir) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// goTool runs the go command, and shows what it says where it fails.
func goTool(env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// programs builds fabrun, which is static, and its helper, which opens NVIDIA's
// library and so needs the C library's own loader.
func (r release) programs(arch, bin string) error {
	stamp := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s -X main.commitDate=%s", r.version, r.commit, r.date.Format(time.DateOnly))
	platform := []string{"GOOS=linux", "GOARCH=" + arch}
	if err := goTool(append(platform, "CGO_ENABLED=0"), "build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", filepath.Join(bin, "fabrun"), "./cmd/fabrun"); err != nil {
		return err
	}
	cc, packages := "gcc", "gcc libc6-dev"
	if arch != runtime.GOARCH {
		c, ok := compilers[arch]
		if !ok {
			return fmt.Errorf("no C compiler is known for %s", arch)
		}
		cc, packages = c[0], c[1]
	}
	if _, err := exec.LookPath(cc); err != nil {
		return fmt.Errorf("%s is not there: apt-get install %s", cc, packages)
	}
	return goTool(append(platform, "CGO_ENABLED=1", "CC="+cc), "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -linkmode external -extldflags -Wl,--build-id=none", "-o", filepath.Join(bin, "fabrun-nvml"), "./cmd/fabrun-nvml")
}

// manual writes the manual pages, compressed as packages have them.
func (r release) manual(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	date := fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())
	if err := goTool([]string{date}, "test", "-count=1", "./cmd/fabrun", "-run", "^TestManual$", "-man", dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) == 0 {
		return errors.Join(err, fmt.Errorf("no manual pages in %s", dir))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(page+".gz", b.Bytes(), 0o644), os.Remove(page)); err != nil {
			return err
		}
	}
	return nil
}

// completions asks a fabrun of this machine: they are the same on all.
func completions(dir string) error {
	for shell, file := range map[string]string{
		"bash": "share/bash-completion/completions/fabrun",
		"zsh":  "share/zsh/site-functions/_fabrun",
		"fish": "share/fish/vendor_completions.d/fabrun.fish",
	} {
		cmd := exec.Command("go", "run", "-buildvcs=false", "./cmd/fabrun", "completion", shell)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("fabrun completion %s: %w", shell, err)
		}
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// modulefiles writes those of this version; install.sh fills in the prefix.
func (r release) modulefiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{"modulefile.tcl": r.version, "modulefile.lua": r.version + ".lua"} {
		text, err := os.ReadFile(filepath.Join("testdata/dist", from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), bytes.ReplaceAll(text, []byte("@VERSION@"), []byte(r.version)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// docs copies what is written for people.
func docs(dir string) error {
	for _, file := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		if err := write(file, filepath.Join(dir, file), 0o644); err != nil {
			return err
		}
	}
	return fs.WalkDir(os.DirFS("docs"), ".", func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(dir, "docs", path)
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(to, 0o755))
		}
		return write(filepath.Join("docs", path), to, 0o644)
	})
}

// write copies a file.
func write(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}

// settle gives everything below dir the commit's time and modes that no umask
// has touched.
func (r release) settle(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if d.IsDir() || filepath.Base(filepath.Dir(path)) == "bin" || d.Name() == "install.sh" {
			mode = 0o755
		}
		return errors.Join(os.Chmod(path, mode), os.Chtimes(path, r.date, r.date))
	})
}
