package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/testdata/wait"
)

// podman runs images from a store of its own, which ends with the test.
type podman struct {
	t     *testing.T
	store []string
}

// startOptions: crun refuses a machine with both versions of cgroups, and limits
// above the machine's own are refused; no network is set up or torn down.
var startOptions = []string{"--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--network", "none"}

func newPodman(t *testing.T) *podman {
	t.Helper()
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("builds and starts containers: make test-real does it (FABRUN_REAL=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("podman wants root here")
	}
	for _, prog := range []string{"podman", "runc", "busybox"} {
		if realProgram(prog) == "" && realProgram("/bin/"+prog) == "" {
			t.Skipf("no %s (apt-get install podman runc busybox-static)", prog)
		}
	}
	dir := t.TempDir()
	p := &podman{t, []string{"--root", dir + "/store", "--runroot", dir + "/run", "--cgroup-manager", "cgroupfs"}}
	t.Cleanup(func() {
		// What is mounted has to go before its directory.
		if out, code := p.do(context.Background(), "rmi", "--all", "--force"); code != 0 {
			t.Logf("podman rmi: %d: %s", code, out)
		}
		//nolint:errcheck // mounted on some machines only
		_ = exec.Command("umount", dir+"/store/overlay").Run()
	})
	return p
}

// do runs podman and returns what it and the container wrote, and its status.
func (p *podman) do(ctx context.Context, args ...string) (string, int) {
	p.t.Helper()
	cmd := exec.CommandContext(ctx, "podman", slices.Concat(p.store, args)...)
	cmd.Env = []string{"PATH=" + systemPath, "HOME=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// run starts an image: options of podman run, the image, and its words.
func (p *podman) run(args ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Left(p.t))
	defer cancel()
	return p.do(ctx, slices.Concat([]string{"run", "--rm"}, startOptions, args)...)
}

// build makes an image of a Dockerfile; RUN steps see this machine's Go.
func (p *podman) build(tag, dockerfile, dir string, args ...string) {
	p.t.Helper()
	out, code := p.do(p.t.Context(), slices.Concat([]string{"build", "--isolation", "chroot", "--tag", tag, "--file", dockerfile}, args, []string{dir})...)
	if code != 0 {
		p.t.Fatalf("podman build %s: %d: %s", tag, code, out)
	}
}

// base makes an image of files alone: name in the image → file here, "" a directory.
func (p *podman) base(tag string, files map[string]string, lines ...string) {
	p.t.Helper()
	dir := p.t.TempDir()
	for name, from := range files {
		to := filepath.Join(dir, "root", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if from == "" {
			if err := os.MkdirAll(to, 0o1777); err != nil {
				p.t.Fatal(err)
			}
			continue
		}
		copyProgram(p.t, from, to)
	}
	writeText(p.t, filepath.Join(dir, "root/etc/passwd"), "root:x:0:0::/root:/bin/sh\nme:x:1234:1234::/home/me:/bin/sh\n")
	writeText(p.t, filepath.Join(dir, "Dockerfile"), "FROM scratch\nCOPY root/ /\n"+strings.Join(lines, "\n"))
	p.build(tag, filepath.Join(dir, "Dockerfile"), dir)
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// goEnv asks the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestRealImage builds the images of docs/examples/image from nothing but files of
// this machine, and runs them as strictly as a cluster may: whatever the container
// lacks, the job's output and status are the job's, and what is missing is named as
// podman's option.
func TestRealImage(t *testing.T) {
	p := newPodman(t)
	busybox := realProgram("busybox")
	// The base has a shell and is else nearly empty; it has no /tmp and no /root.
	p.base("localhost/ordinary", map[string]string{"bin/sh": busybox})
	p.base("localhost/bare", nil)
	p.base("localhost/go", map[string]string{"bin/sh": busybox, "tmp": ""}, "ENV PATH=/usr/local/go/bin:/bin GOFLAGS=-mod=mod GOPROXY=off")
	build := func(tag, target string, args ...string) {
		p.build(tag, "../../docs/examples/image/Dockerfile", "../..", append(args, "--target", target,
			"--build-arg", "GO=localhost/go", "--build-arg", "STATIC=localhost/bare",
			"--volume", goEnv(t, "GOROOT")+":/usr/local/go:ro", "--volume", goEnv(t, "GOMODCACHE")+":/root/go/pkg/mod", "--volume", goEnv(t, "GOCACHE")+":/root/.cache/go-build")...)
	}
	build("localhost/job", "job", "--build-arg", "BASE=localhost/ordinary")
	if out, code := p.run("localhost/job", "/bin/sh", "-c", "true"); code != 0 {
		t.Skipf("podman cannot start a container here: %d: %s", code, out)
	}
	strict := []string{
		"--read-only", "--read-only-tmpfs=false", "--user", "1234:1234", "--unsetenv", "HOME", "--unsetenv", "PATH",
		"--ulimit", "memlock=65536:65536", "--shm-size", "1m", "--security-opt", "mask=/sys/class:/sys/bus:/sys/devices",
	}

	t.Run("the job's status and words", func(t *testing.T) {
		for _, options := range [][]string{nil, {"--read-only"}, {"--user", "1234:1234"}, strict} {
			out, code := p.run(append(slices.Clone(options), "localhost/job", "/bin/sh", "-c", "echo hi; echo there >&2; exit 4")...)
			if code != 4 || !strings.Contains(out, "hi\n") || !strings.Contains(out, "there\n") || strings.Contains(out, "panic") {
				t.Errorf("%q: status %d, want 4:\n%s", options, code, out)
			}
		}
	})
	t.Run("flags in front of the program, and variables in their place", func(t *testing.T) {
		for _, c := range []struct {
			options, words []string
			code           int
			want, not      string
		}{
			{nil, []string{"--quiet", "/bin/sh", "-c", "echo hi; exit 4"}, 4, "hi", "Done"},
			{nil, []string{"--json", "--", "/bin/sh", "-c", "echo $0", "--strict"}, 0, "--strict", "not found"},
			{[]string{"-e", "FABRUN_JSON=1", "-e", "FABRUN_PROFILE=none"}, []string{"/bin/sh", "-c", "true"}, 0, "fabrun/run/v1", ""},
			{[]string{"-e", "FABRUN_PROFILE=nosuch"}, []string{"/bin/sh", "-c", "true"}, 125, "nosuch", ""},
		} {
			out, code := p.run(slices.Concat(c.options, []string{"localhost/job"}, c.words)...)
			if code != c.code || !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
				t.Errorf("podman run %q IMAGE %q: status %d, want %d with %q and without %q:\n%s", c.options, c.words, code, c.code, c.want, c.not, out)
			}
		}
	})
	t.Run("PID 1 buries orphans", func(t *testing.T) {
		// The middle shell ends and leaves its child to PID 1; a zombie would stay in /proc.
		const script = `pid=$(/bin/sh -c '/bin/sh -c "kill -STOP \$\$" >/dev/null & echo $!'); kill -KILL $pid; while [ -e /proc/$pid ]; do :; done; echo gone; exit 3`
		if out, code := p.run("localhost/job", "/bin/sh", "-c", script); code != 3 || !strings.Contains(out, "gone\n") {
			t.Errorf("status %d, want 3:\n%s", code, out)
		}
	})
	t.Run("PID 1 hands signals on", func(t *testing.T) {
		const script = `trap 'echo saved; exit 7' TERM; /bin/sh -c 'kill -STOP $$' & echo ready; wait`
		out, code := p.do(t.Context(), slices.Concat([]string{"run", "--detach", "--name", "signalled"}, startOptions, []string{"localhost/job", "/bin/sh", "-c", script})...)
		if code != 0 {
			t.Fatalf("%d: %s", code, out)
		}
		wait.For(t, "the program is ready", func() bool {
			out, _ := p.do(t.Context(), "logs", "signalled")
			return strings.Contains(out, "ready")
		})
		if out, code := p.do(t.Context(), "kill", "--signal", "TERM", "signalled"); code != 0 {
			t.Fatalf("%d: %s", code, out)
		}
		if out, _ := p.do(t.Context(), "wait", "signalled"); strings.TrimSpace(out) != "7" {
			t.Errorf("status %q, want the program's own 7", out)
		}
		if out, _ := p.do(t.Context(), "logs", "signalled"); strings.Count(out, "saved") != 1 {
			t.Errorf("the program was told %d times, want once:\n%s", strings.Count(out, "saved"), out)
		}
	})
	t.Run("what is missing is podman's option", func(t *testing.T) {
		build("localhost/check", "check")
		out, code := p.run(append(slices.Clone(strict), "localhost/check")...)
		said := strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"podman run --network=host -v /sys:/sys:ro --device=/dev/infiniband", "podman run --ulimit memlock=-1", "podman run --shm-size=16g"} {
			if !strings.Contains(said, want) {
				t.Errorf("without %q:\n%s", want, out)
			}
		}
		for _, not := range []string{"docker", "apptainer", "securityContext", "limits.conf", "remount"} {
			if strings.Contains(said, not) {
				t.Errorf("with %q, which is not podman's:\n%s", not, out)
			}
		}
		if code != 1 {
			t.Errorf("status %d, want 1", code)
		}
		// What it was given it is not told of.
		out, _ = p.run("--ulimit", "memlock=-1:-1", "--shm-size", "8g", "localhost/check", "check")
		for _, not := range []string{"limits.memlock", "limits.shm"} {
			if strings.Contains(out, not) {
				t.Errorf("with %s:\n%s", not, out)
			}
		}
	})
	t.Run("the pod is told", func(t *testing.T) {
		for _, tc := range []struct {
			options, words []string
			want           string
		}{
			{[]string{"-e", "KUBERNETES_SERVICE_HOST=10.0.0.1"}, []string{"/bin/sh", "-c", "exit 4"}, "sh failed with status 4. "},
			{[]string{"-e", "KUBERNETES_SERVICE_HOST=10.0.0.1"}, []string{"/bin/nothing"}, "/bin/nothing"},
			{[]string{"-e", "KUBERNETES_SERVICE_HOST=10.0.0.1"}, []string{"/bin/sh", "-c", "echo mine >/dev/termination-log; exit 4"}, "mine\n"},
			{nil, []string{"/bin/sh", "-c", "exit 4"}, ""}, // no pod
		} {
			log := filepath.Join(t.TempDir(), "log")
			writeText(t, log, "")
			out, _ := p.run(slices.Concat(tc.options, []string{"-v", log + ":/dev/termination-log", "localhost/job"}, tc.words)...)
			got, err := os.ReadFile(log)
			if err != nil || !strings.Contains(string(got), tc.want) || tc.want == "" && len(got) > 0 || strings.Count(string(got), "\n") > 1 {
				t.Errorf("%q: %q, %v, want %q:\n%s", tc.words, got, err, tc.want, out)
			}
		}
	})
	t.Run("musl", func(t *testing.T) {
		gcc := realProgram("musl-gcc")
		if gcc == "" {
			t.Skip("no musl-gcc (apt-get install musl-tools)")
		}
		dir := t.TempDir()
		writeText(t, dir+"/greet.c", `#include <stdio.h>
#include <stdlib.h>
int main(void) { const char *v = getenv("FABRUN_SET"); printf("musl, %s fabrun\n", v ? "behind" : "without"); return 5; }
`)
		if out, err := exec.Command(gcc, "-o", dir+"/greet", dir+"/greet.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		loader, err := filepath.Glob("/lib/ld-musl-*.so.1")
		if err != nil || len(loader) != 1 {
			t.Fatalf("the loader of musl: %v, %v", loader, err)
		}
		p.base("localhost/musl", map[string]string{"bin/greet": dir + "/greet", strings.TrimPrefix(loader[0], "/"): loader[0]})
		build("localhost/musl-job", "job", "--build-arg", "BASE=localhost/musl")
		if out, code := p.run("localhost/musl-job", "/bin/greet"); code != 5 || !strings.Contains(out, "musl, ") {
			t.Errorf("status %d, want 5:\n%s", code, out)
		}
		if out, code := p.run("localhost/musl-job", "/bin/nothing"); code != 127 || !strings.Contains(out, "/bin/nothing") {
			t.Errorf("a program that is not there: status %d, want 127:\n%s", code, out)
		}
	})
}
