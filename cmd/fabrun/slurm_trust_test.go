package main

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRootReadsNoUsersFiles: what a job's environment points at is not opened by
// the doors that run as root, not even where Slurm hands that environment on.
func TestRootReadsNoUsersFiles(t *testing.T) {
	home := t.TempDir()
	var names []string
	for _, name := range []string{"nccl.conf", ".nccl.conf", ".rccl.conf", "ucx.conf", ".openmpi/mca-params.conf", ".prte/mca-params.conf", ".config/fabrun/profiles/mine.toml", "bin/mpirun", "lib/libnccl.so.2"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("NCCL_IB_TC=1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		names = append(names, path)
	}
	env := []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + home + "/.config", "NCCL_CONF_FILE=" + home + "/nccl.conf", "UCX_CONFIG_DIR=" + home, "PATH=" + home + "/bin:/usr/bin",
		"LD_LIBRARY_PATH=" + home + "/lib", "FABRUN_PROFILE=mine", "SLURM_JOB_ID=7", "SLURMD_NODENAME=n1",
	}
	state := filepath.Join(t.TempDir(), "state")
	for _, door := range []string{"prolog", "epilog", "health", "selftest"} {
		fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
		if err != nil {
			t.Skip("no inotify:", err)
		}
		for _, path := range names {
			if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN); err != nil {
				t.Skip("no inotify:", err)
			}
		}
		var out, errs strings.Builder
		args := []string{"fabrun", "slurm", door, "--state", state, "--syslog="}
		if door == "health" || door == "selftest" {
			args = append(args, "--scontrol", "/nowhere")
		}
		run(t.Context(), args, env, strings.NewReader(""), &out, &errs)
		buf := make([]byte, 64<<10)
		n, err := syscall.Read(fd, buf)
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		seen := map[uint32]bool{}
		for at := 0; at+syscall.SizeofInotifyEvent <= n; {
			seen[binary.NativeEndian.Uint32(buf[at:])] = true
			at += syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
		for wd := range seen {
			t.Errorf("slurm %s opened %s", door, names[wd-1])
		}
		if strings.Contains(errs.String(), "mine") {
			t.Errorf("slurm %s: %s", door, errs.String())
		}
		_ = syscall.Close(fd)
	}
}
