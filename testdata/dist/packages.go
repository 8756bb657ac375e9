package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packages makes the tarball, the .deb and the .rpm of a tree, and copies its
// SBOM beside them; it returns their names.
func (r release) packages(arch, tree, out string) ([]string, error) {
	sbom := fmt.Sprintf("fabrun-%s-linux-%s.cdx.json", r.version, arch)
	if err := write(filepath.Join(tree, "share/doc/fabrun/fabrun.cdx.json"), filepath.Join(out, sbom), 0o644); err != nil {
		return nil, err
	}
	tarball := filepath.Base(tree) + ".tar.gz"
	if err := r.tarball(tree, filepath.Join(out, tarball)); err != nil {
		return nil, err
	}
	names := []string{sbom, tarball}
	for _, format := range []string{"deb", "rpm"} {
		name, err := r.native(format, arch, tree, out)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// tarball packs a tree below a directory of its name, everything root's.
func (r release) tarball(tree, to string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = fs.WalkDir(os.DirFS(tree), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.Join(filepath.Base(tree), path), Mode: int64(info.Mode().Perm()), ModTime: r.date, Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: info.Size()}
		if d.IsDir() {
			h.Name, h.Typeflag, h.Size = h.Name+"/", tar.TypeDir, 0
			return t.WriteHeader(h)
		}
		text, err := os.ReadFile(filepath.Join(tree, path))
		if err != nil {
			return err
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err = t.Write(text)
		return err
	})
	if err := errors.Join(err, t.Close(), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

// rpmArch are rpm's names.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// native makes a .deb or an .rpm with nfpm. There are no scripts in it: nothing
// has to run, and a node without network or init installs it all the same.
func (r release) native(format, arch, tree, out string) (string, error) {
	name := fmt.Sprintf("fabrun_%s_%s.deb", r.version, arch)
	if format == "rpm" {
		name = fmt.Sprintf("fabrun-%s-1.%s.rpm", r.version, rpmArch[arch])
	}
	contents, err := r.contents(format, tree)
	if err != nil {
		return "", err
	}
	about := map[string]any{
		"name": "fabrun", "arch": arch, "platform": "linux", "version": r.version, "version_schema": "none", "section": "net", "priority": "optional",
		"maintainer": "The fabrun authors <fabrun@localhost>", "license": "Apache-2.0", "mtime": r.date.Format(time.RFC3339),
		"description": "Make sure an RDMA job really uses RDMA, and say so when it does not\n" +
			"fabrun stands in front of mpirun or torchrun: it looks at the machines, sets what\nmakes the job use the RDMA fabric, checks it, starts the launcher, watches for the\nsilent fallback to sockets, and says at the end what really happened.",
		"disable_globbing": true, "contents": contents,
		// fabrun is static and needs nothing. Its helper for NVIDIA's GPUs wants the C
		// library it was linked with or a newer one; without it fabrun goes on.
		"recommends": map[string][]string{"deb": {"libc6 (>= 2.34)"}, "rpm": {"glibc >= 2.34"}}[format],
		"suggests":   []string{"bash-completion"},
		"rpm":        map[string]any{"buildhost": "localhost", "group": "System Environment/Base", "summary": "Make sure an RDMA job really uses RDMA", "compression": "gzip"},
		"deb":        map[string]any{"compression": "gzip"},
	}
	if format == "rpm" {
		about["release"] = "1"
	}
	text, err := json.Marshal(about)
	if err != nil {
		return "", err
	}
	config := tree + "." + format + ".json"
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return "", err
	}
	target, err := filepath.Abs(filepath.Join(out, name))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "-C", "testdata/dist", "tool", "nfpm", "package", "--config", config, "--packager", format, "--target", target)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix()))
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("nfpm for %s: %w\n%s", name, err, said)
	}
	return name, nil
}

// contents are a package's files: the tree below /usr, without what only an
// installation elsewhere needs, and the directory of the site's own profiles.
func (r release) contents(format, tree string) ([]map[string]any, error) {
	var all []map[string]any
	add := func(kind, src, dst string, mode os.FileMode) {
		c := map[string]any{"dst": dst, "type": kind, "file_info": map[string]any{"mode": mode, "mtime": r.date.Format(time.RFC3339), "owner": "root", "group": "root"}}
		if src != "" {
			c["src"] = src
		}
		all = append(all, c)
	}
	err := fs.WalkDir(os.DirFS(tree), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, "share/modulefiles") || path == "install.sh" {
			return err
		}
		dst := "/usr/" + path
		if format == "deb" { // where Debian's zsh looks for what packages bring
			dst = strings.Replace(dst, "/zsh/site-functions", "/zsh/vendor-completions", 1)
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			add("", filepath.Join(tree, path), dst, info.Mode().Perm())
		case strings.HasPrefix(path, "share/doc/fabrun"): // ours; the others are the system's
			add("dir", "", dst, 0o755)
		}
		return nil
	})
	add("dir", "", "/etc/fabrun", 0o755)
	add("dir", "", "/etc/fabrun/profiles", 0o755)
	return all, err
}

// checksums writes SHA256SUMS of the files, as sha256sum does.
func checksums(dir string, names []string) error {
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(text), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(b.String()), 0o644)
}
