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
	"fabrun/launcher/cmdline"
	"fabrun/launcher/eyes"
	"fabrun/launcher/hosts"
	"fabrun/launcher/plan"
	"fabrun/launcher/remote"
	"fabrun/launcher/report"
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
		if w == "--pattern" {
			argv[i+1] = filepath.Join(filepath.Dir(argv[i+1]), host, filepath.Base(argv[i+1]))
		}
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
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	w, err := eyes.WatchJob(eyes.JobConfig{Plan: p, Dir: t.TempDir(), Stderr: &errs, Say: report.Own(&errs, nil)}, &launcher.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &sameProcess{dirs: map[string]string{}}
	dir := filepath.Join(t.TempDir(), "run")
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}, {Name: "n3"}, {Name: "n4-does-not-answer"}}
	w.Open(t.Context(), eyes.Nodes{Transport: tr, Names: []string{"n2", "n3"}, Fabrun: "fabrun"}, p, dir)
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
	w.Finish(launcher.Status{}, func(r eyes.Result) { errs.WriteString(r.Sentence) })
	for _, want := range []string{"n3 rank 1: FALLBACK to TCP (no-device)", "FALLBACK to TCP: Some ranks use RDMA and others sockets"} {
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

// TestUserLogsOnOtherNodes: what the user set as NCCL_DEBUG_FILE is read on the
// node where it is written, and stays.
func TestUserLogsOnOtherNodes(t *testing.T) {
	var errs bytes.Buffer
	dir := t.TempDir()
	old := filepath.Join(dir, "n2", "nccl.n2.1.log")
	mine := filepath.Join(dir, "n2", "nccl.n2.20.log")
	if err := os.Mkdir(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("n2:1:1 [0] NCCL INFO NET/IB : No IP interface found.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{"mpirun", "-x", "NCCL_DEBUG_FILE=" + filepath.Join(dir, "nccl.%h.%p.log"), "./a.out"}
	p := plan.Plan{Dialect: cmdline.OpenMPI5, Command: cmdline.Parse(cmdline.Launcher{Dialect: cmdline.OpenMPI5, Words: 1}, argv)}
	spec := launcher.Spec{Argv: argv}
	w, err := eyes.WatchJob(eyes.JobConfig{Plan: p, Env: []string{"NCCL_DEBUG=INFO"}, Stderr: &errs, Say: report.Own(&errs, nil)}, &spec)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Stdout != nil {
		t.Error("the job's streams are read although its logs go to files")
	}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}}
	w.Open(t.Context(), eyes.Nodes{Transport: &sameProcess{dirs: map[string]string{}}, Names: []string{"n2"}, Fabrun: "fabrun"}, p, "")
	text := "n2:20:20 [0] NCCL INFO NET/IB : No device found.\nn2:20:20 [0] NCCL INFO Using network Socket\nn2:20:20 [0] NCCL INFO comm 0x1 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
	if err := os.WriteFile(mine, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Finish(launcher.Status{}, func(r eyes.Result) { errs.WriteString(r.Sentence) })
	if !strings.Contains(errs.String(), "n2 rank 1: FALLBACK to TCP (no-device)") || strings.Contains(errs.String(), "no-oob-interface") {
		t.Errorf("stderr:\n%s", errs.String())
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != text {
		t.Errorf("the user's log was changed: %v", err)
	}
}

// TestRecordKeepsLogs: with --record the private logs of all nodes lie beside the
// record when the run directories are gone.
func TestRecordKeepsLogs(t *testing.T) {
	var errs bytes.Buffer
	p := plan.Plan{Dialect: cmdline.OpenMPI5}
	dir := t.TempDir()
	rec := filepath.Join(dir, "job.rec")
	here := filepath.Join(dir, "run")
	if err := os.Mkdir(here, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := eyes.WatchJob(eyes.JobConfig{Plan: p, Dir: here, Stderr: &errs, Say: report.Own(&errs, nil), Record: rec}, &launcher.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &sameProcess{dirs: map[string]string{}}
	p.Hosts.Hosts = []hosts.Host{{Name: "n2"}}
	w.Open(t.Context(), eyes.Nodes{Transport: tr, Names: []string{"n2"}, Fabrun: "fabrun"}, p, filepath.Join(dir, "there"))
	tr.mu.Lock()
	there := tr.dirs["n2"]
	tr.mu.Unlock()
	logs := map[string]string{here: "nccl.n1.10.log", there: "nccl.n2.20.log"}
	for d, name := range logs {
		if err := os.WriteFile(filepath.Join(d, name), []byte("h:1:1 [0] NCCL INFO Using network IB\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(here, "hostfile"), []byte("n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Finish(launcher.Status{}, func(r eyes.Result) { errs.WriteString(r.Sentence) })
	for _, name := range []string{"nccl.n1.10.log", "node-n2/nccl.n2.20.log"} {
		if text, err := os.ReadFile(filepath.Join(rec+".logs", name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(rec+".logs", "hostfile")); err == nil {
		t.Error("what is no log was kept")
	}
	if _, err := os.Stat(there); !os.IsNotExist(err) {
		t.Errorf("the node keeps its directory: %v", err)
	}
	if !strings.Contains(errs.String(), "logs are in "+rec+".logs") {
		t.Errorf("stderr:\n%s", errs.String())
	}
}
