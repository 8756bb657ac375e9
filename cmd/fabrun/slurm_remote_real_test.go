package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/remote"
	"fabrun/testdata/wait"
)

// TestRealSrunTransport: commands on the nodes of a real allocation, in one
// step for all, or one step each.
func TestRealSrunTransport(t *testing.T) {
	lab := startSlurm(t, "")
	alloc := lab.command("salloc", "--no-shell", "-N3", "-w", "node01,node02,node03")
	var said bytes.Buffer
	alloc.Stderr = &said
	if err := alloc.Run(); err != nil {
		t.Fatalf("salloc: %v: %s", err, said.String())
	}
	job := regexp.MustCompile(`allocation (\d+)`).FindStringSubmatch(said.String())
	if job == nil {
		t.Fatalf("salloc said %q", said.String())
	}
	defer lab.output("scancel", job[1])
	env := []string{"PATH=" + systemPath, "HOME=" + lab.dir, "SLURM_CONF=" + lab.conf, "SLURM_JOB_ID=" + job[1]}
	tr := remote.NewSrun(remote.SrunOptions{Program: realProgram("srun"), Env: env, Overlap: true})
	all := []string{"node03", "node01", "node02"} // not Slurm's order
	sh := func(script string, args ...string) remote.Command {
		return remote.Command{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	}

	// Each node's own answer, its own status, bytes and long lines as they are.
	long := strings.Repeat("x", 5000)
	done := 0
	rs := remote.RunSame(t.Context(), tr, all, sh(`echo "$SLURMD_NODENAME $1"; printf 'a\000b\r\n\n  : %s' "$2"; echo "err $SLURMD_NODENAME" >&2; [ "$SLURMD_NODENAME" != node02 ] || exit 3`, "it's", long),
		remote.Options{OnDone: func(d, total int, _ remote.Result) { done = d }})
	for i, r := range rs {
		want := map[bool]int{true: 3, false: 0}[all[i] == "node02"]
		if r.Host != all[i] || r.Err != nil || r.Status != want || string(r.Stdout) != all[i]+" it's\na\x00b\r\n\n  : "+long || string(r.Stderr) != "err "+all[i]+"\n" {
			t.Errorf("%s: %d %v %.80q %q", r.Host, r.Status, r.Err, r.Stdout, r.Stderr)
		}
	}
	if done != 3 {
		t.Errorf("%d of 3 were said to be done", done)
	}
	lab.until("no step is left", func() bool {
		out, err := lab.command("squeue", "-h", "-s", "-j", job[1], "-o", "%i").Output()
		return err == nil && !strings.Contains(strings.ReplaceAll(string(out), job[1]+".extern", ""), ".")
	})

	// Its own status, when the program of a step alone fails.
	if r := remote.Run(t.Context(), tr, "node01", sh("echo oops >&2; exit 125"), remote.Options{}); r.Status != 125 || r.Err != nil {
		t.Errorf("a failing step: %d %v", r.Status, r.Err)
	}

	// A program that is not there; a node that is not ours beside two that are.
	for _, r := range remote.RunSame(t.Context(), tr, all, remote.Command{Argv: []string{"/no/such/program"}}, remote.Options{}) {
		if remote.CauseOf(r.Err) != remote.NoSuchFile {
			t.Errorf("%s: no program: %v", r.Host, r.Err)
		}
	}
	for i, r := range remote.RunSame(t.Context(), tr, []string{"node01", "node99", "node02"}, sh("echo hi"), remote.Options{Deadline: 15 * time.Second}) {
		if bad := i == 1; bad != (r.Err != nil) || !bad && string(r.Stdout) != "hi\n" || bad && !strings.Contains(r.Err.Error(), "node99") {
			t.Errorf("%s beside node99: %q %v", r.Host, r.Stdout, r.Err)
		}
	}

	// One that hangs costs its deadline; the others' answers are kept, and nothing runs on.
	pids := filepath.Join(lab.dir, "pids")
	for _, r := range remote.RunSame(t.Context(), tr, all, sh(`echo up; if [ "$SLURMD_NODENAME" = node01 ]; then sleep 1000 & echo $$ $! >"$1"; wait; fi`, pids), remote.Options{Deadline: 15 * time.Second}) {
		if hangs := r.Host == "node01"; hangs != (remote.CauseOf(r.Err) == remote.Timeout) || !hangs && string(r.Stdout) != "up\n" {
			t.Errorf("%s beside one that hangs: %q %v", r.Host, r.Stdout, r.Err)
		}
	}
	lab.gone(t, pids)

	// A flood is cut, and ended.
	for _, r := range remote.RunSame(t.Context(), tr, all, remote.Command{Argv: []string{"/usr/bin/head", "-c", "3000000", "/dev/zero"}}, remote.Options{MaxOutput: 1 << 20}) {
		if remote.CauseOf(r.Err) != remote.OutputLimit || !r.Truncated {
			t.Errorf("%s: flood: %v", r.Host, r.Err)
		}
	}

	// One host alone: input goes in, and giving up ends what runs.
	r := remote.Run(t.Context(), tr, "node02", remote.Command{Argv: []string{"/bin/cat"}, Stdin: strings.NewReader("in\x00put\n")}, remote.Options{})
	if string(r.Stdout) != "in\x00put\n" || r.Err != nil {
		t.Errorf("input: %q %v", r.Stdout, r.Err)
	}
	s := remote.Stream(t.Context(), tr, "node03", sh(`sleep 1000 & echo $$ $! >"$1"; echo up; wait`, pids))
	go func() { _, _ = io.Copy(io.Discard, s.Stderr) }()
	if _, err := io.ReadFull(s.Stdout, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if _, err := s.Wait(); remote.CauseOf(err) != remote.Canceled {
		t.Errorf("given up: %v", err)
	}
	lab.gone(t, pids)

	// fabrun is brought to nodes that do not have it, once, and looks from there.
	p, err := remote.ReadProgram(lab.fabrun, "")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(lab.fabrun)
	t.Cleanup(func() { _ = os.Remove(fmt.Sprintf("/dev/shm/fabrun-0/fabrun-%x", sha256.Sum256(text))) })
	p.Path = "/no/such/place"
	results, paths := remote.RunProgram(t.Context(), tr, all, p, []string{"snapshot", "--quick"}, remote.Options{})
	for _, r := range results {
		if r.Err != nil || !bytes.HasPrefix(r.Stdout, []byte("fabrun-snapshot 1\n")) || paths[r.Host] == "" {
			t.Errorf("%s: %q %.60q %v", r.Host, paths[r.Host], r.Stdout, r.Err)
		}
	}
}

// TestRealSrunCheck: inside an allocation check looks at its nodes by one step.
func TestRealSrunCheck(t *testing.T) {
	lab := startSlurm(t, "")
	// Slurm's batch shell has the allocation's variables and no terminal.
	out := lab.command("salloc", "-Q", "-N3", lab.fabrun, "check", "--json", "--program", "/bin/ls", "--directory", lab.dir)
	var stderr bytes.Buffer
	out.Stderr = &stderr
	text, err := out.Output()
	var v struct {
		Hosts []struct {
			Host     string
			Findings []struct{ ID string }
		}
	}
	if jerr := json.Unmarshal(text, &v); jerr != nil {
		t.Fatalf("%v (%v): %s%s", jerr, err, text, stderr.String())
	}
	var names []string
	for _, h := range v.Hosts {
		if h.Host == "" {
			continue // what is about no single host
		}
		names = append(names, h.Host)
		for _, f := range h.Findings {
			if strings.HasPrefix(f.ID, "node.") || strings.HasPrefix(f.ID, "place.") || strings.HasPrefix(f.ID, "across.") {
				t.Errorf("%s: %s", h.Host, f.ID)
			}
		}
	}
	if strings.Join(names, " ") != "node01 node02 node03" {
		t.Errorf("looked at %q: %s", names, text)
	}
}

// gone waits until the processes whose numbers are in a file have ended.
func (l *slurmLab) gone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	for pid := range strings.FieldsSeq(string(text)) {
		wait.For(t, "the end of process "+pid, func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
	_ = os.Remove(file)
}

// TestRealSrunLook: a job's look asks every node by one step, one node alone as
// well as three, and what is on the node is found there.
func TestRealSrunLook(t *testing.T) {
	lab := startSlurm(t, "")
	program := lab.write("a.out", "#!/bin/sh\necho $SLURM_STEP_ID\n", 0o755)
	// Of a heterogeneous job a step runs in one part, and is looked at there; the
	// look at all of it is one step a part.
	for _, tc := range []struct{ group, hosts string }{{"--het-group=1", "2"}, {"--het-group=0", "1"}, {"--het-group=0,1", "3"}, {"--overlap", "1"}} {
		script := fmt.Sprintf("%s plan --json -- srun %s %s >plan.json 2>plan.err; cat plan.json", lab.fabrun, tc.group, program)
		var p struct {
			Looked struct{ Hosts, Seen int }
			Hosts  struct{ Hosts []struct{ Name string } }
		}
		text := lab.output("salloc", "-Q", "-N1", ":", "-N2", "/bin/sh", "-c", script)
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if fmt.Sprint(p.Looked.Seen) != tc.hosts || fmt.Sprint(len(p.Hosts.Hosts)) != tc.hosts {
			said, _ := os.ReadFile(filepath.Join(lab.dir, "plan.err"))
			t.Errorf("srun %s: looked at %+v of %+v, want %s: %s", tc.group, p.Looked, p.Hosts.Hosts, tc.hosts, said)
		}
	}
	for _, nodes := range []string{"1", "3"} {
		script := fmt.Sprintf("%s plan --json -- srun -N%s -n%s %s >plan.json 2>&1; srun -N1 -n1 %s", lab.fabrun, nodes, nodes, program, program)
		if step := lab.output("salloc", "-Q", "-N"+nodes, "/bin/sh", "-c", script); step != "1\n" {
			t.Errorf("%s nodes: the step after the look is %q, want 1: one look is one step", nodes, step)
		}
		text, err := os.ReadFile(filepath.Join(lab.dir, "plan.json"))
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Looked struct {
				Hosts, Seen int
			}
			Findings []struct{ ID, Subject, Seen string }
		}
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if fmt.Sprint(p.Looked.Hosts, p.Looked.Seen) != nodes+" "+nodes {
			t.Errorf("%s nodes: looked at %+v", nodes, p.Looked)
		}
		for _, f := range p.Findings {
			if strings.HasPrefix(f.ID, "node.") || strings.HasPrefix(f.ID, "place.") {
				t.Errorf("%s nodes: %+v", nodes, f)
			}
		}
	}
}
