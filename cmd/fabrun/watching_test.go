package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fabrun/launcher"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
)

// sameProcess is a transport that runs fabrun itself, in this process, for each
// host; before it says its first word, the node's ranks write their log.
type sameProcess struct {
	mu   sync.Mutex
	dirs map[string]string
}

func (s *sameProcess) Exec(ctx context.Context, host string, cmd remote.Command, st remote.Streams) (int, error) {
	argv := append([]string(nil), cmd.Argv...)
	for i, w := range argv {
		if w == "--follow" {
			argv[i+1] += "-" + host // every node has a file system of its own
			s.mu.Lock()
			s.dirs[host] = argv[i+1]
			s.mu.Unlock()
		}
	}
	return run(ctx, argv, nil, cmd.Stdin, st.Stdout, st.Stderr), nil
}

func (s *sameProcess) Name() string { return "same process" }
func (s *sameProcess) Close() error { return nil }

// TestEyesOfOtherNodes: what one node's private log says is an event here, and
// part of the verdict of the whole job.
func TestEyesOfOtherNodes(t *testing.T) {
	var errs bytes.Buffer
	a := &app{args: []string{"fabrun"}, stdout: &bytes.Buffer{}, stderr: &errs, stdin: strings.NewReader("")}
	p := plan.Plan{Dialect: plan.OpenMPI5}
	job := preparedJob{dir: t.TempDir(), spec: launcher.Spec{Argv: []string{"mpirun"}}}
	w, err := a.watchJob(p, &job, runOptions{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	tr := &sameProcess{dirs: map[string]string{}}
	dir := filepath.Join(t.TempDir(), "run")
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}, {Name: "n3"}, {Name: "n4-does-not-answer"}}
	w.lookThrough(&reached{transport: tr, names: []string{"n2", "n3"}, fabrun: "fabrun"}, p, dir)
	for host, log := range map[string]string{
		"n2": "n2:20:20 [0] NCCL INFO Using network IB\nn2:20:20 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n",
		"n3": "n3:30:30 [0] NCCL INFO NET/IB : No device found.\nn3:30:30 [0] NCCL INFO Using network Socket\nn3:30:30 [0] NCCL INFO comm 0x1 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n",
	} {
		tr.mu.Lock()
		d := tr.dirs[host]
		tr.mu.Unlock()
		if err := os.WriteFile(filepath.Join(d, "nccl.log"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finish(launcher.Status{}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"n3 rank 1: FALLBACK to TCP (no-device)", "fabrun: FALLBACK to TCP: Some ranks use RDMA and others sockets"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, errs.String())
		}
	}
	for host, d := range tr.dirs {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s keeps its directory: %v", host, err)
		}
	}
}
