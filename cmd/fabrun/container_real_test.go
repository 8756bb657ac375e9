package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/testdata/wait"
)

// TestRealContainer starts a program in a container by podman, alone and under
// each MPI: what the plan sets, and what the user has set, is there inside.
func TestRealContainer(t *testing.T) {
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("starts containers: make test-real does it (FABRUN_REAL=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("podman --rootfs wants root here")
	}
	for _, prog := range []string{"podman", "runc", "busybox"} {
		if realProgram(prog) == "" && realProgram("/bin/"+prog) == "" {
			t.Skipf("no %s (apt-get install podman runc busybox-static)", prog)
		}
	}
	dir := t.TempDir()
	for _, d := range []string{"rootfs/bin", "rootfs/dev", "rootfs/proc", "rootfs/sys", "rootfs/etc", "rootfs/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, realProgram("busybox"), filepath.Join(dir, "rootfs/bin/env"))
	fabrun := filepath.Join(dir, "fabrun")
	if out, err := exec.Command("go", "build", "-o", fabrun, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	container := []string{
		"podman", "run", "--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--network", "none", "--rm",
		"-e", "UCX_TLS=rc", "--rootfs", dir + "/rootfs", "/bin/env",
	}
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Left(t))
		defer cancel()
		cmd := exec.CommandContext(ctx, fabrun, append([]string{"--quiet"}, args...)...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + systemPath, "HOME=" + dir, "NCCL_IB_TC=77", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(container...); err != nil {
		t.Skipf("podman cannot start a container here: %v: %s", err, out)
	}
	// The machine is made up, the launchers and the container are real.
	root := filepath.Join(dir, "host")
	unpackSnapshot(t, "../../testdata/hosts/cx4lx-12node.snap", root)
	for _, launcher := range [][]string{nil, {"mpirun.openmpi", "--oversubscribe", "-np", "2"}, {"mpiexec.mpich", "-np", "2"}} {
		if launcher != nil && realProgram(launcher[0]) == "" {
			continue
		}
		out, err := run(append(append([]string{"--root", root, "--remote", "none", "--hosts", "localhost:2"}, launcher...), container...)...)
		if err != nil {
			t.Errorf("%q: %v: %s", launcher, err, out)
			continue
		}
		want := 1
		if launcher != nil {
			want = 2
		}
		for _, kv := range []string{"UCX_NET_DEVICES=mlx5_0:1", "NCCL_IB_TC=77", "UCX_TLS=rc"} {
			if got := strings.Count("\n"+out, "\n"+kv+"\n"); got != want {
				t.Errorf("%q: %s is there %d times inside, want %d:\n%s", launcher, kv, got, want, out)
			}
		}
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	//nolint:errcheck // opened for reading
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// unpackSnapshot writes a snapshot's files and links below a directory, for --root.
func unpackSnapshot(t *testing.T, snapshot, root string) {
	t.Helper()
	text, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	path, body := "", ""
	put := func() {
		if path == "" {
			return
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(text)) {
		name, target, link := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		switch {
		case strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --\n"):
			put()
			path, body = filepath.Join(root, line[3:len(line)-4]), ""
		case link && !strings.ContainsAny(name, " \t"):
			put()
			path = ""
			to := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, to); err != nil {
				t.Fatal(err)
			}
		default:
			body += line
		}
	}
	put()
}
