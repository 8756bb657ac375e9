package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/plan"
	"fabrun/launcher/report"
	"fabrun/launcher/watch"
)

// planted are secrets as people have them in environments and command lines;
// each holds the word that must not be found.
const plantedWord = "hunter2hunter2hunter2"

func planted() (env, argv []string) {
	for i, name := range []string{
		"HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "MYSQL_PWD", "OPENAI_API_KEY", "NCCL_SECRET",
		"UCX_AUTH", "OMPI_MCA_token", "SSH_PASSPHRASE", "REGISTRY_CREDENTIALS", "PGPASSWORD", "SESSION_COOKIE",
	} {
		env = append(env, fmt.Sprintf("%s=%s%d", name, plantedWord, i))
	}
	env = append(env,
		"NCCL_TUNER_CONFIG_FILE=https://me:"+plantedWord+"@host/x", "http_proxy=http://me:"+plantedWord+"@proxy:3128", "NCCL_TOPO_FILE=ghp_"+plantedWord,
		"UCX_LOG_FILE=/tmp/hf_"+plantedWord, "FOAM_X=glpat-"+plantedWord, "TORCH_X=Bearer "+plantedWord, "PET_X=xoxb-"+plantedWord)
	argv = []string{
		"-x", "HF_TOKEN=" + plantedWord, "-x", "DB_PASSWORD=" + plantedWord, "sshpass", "-p", plantedWord, "sshpass", "-p" + plantedWord,
		"./a.out", "--password", plantedWord, "--api-key=" + plantedWord, "--token", plantedWord, "https://me:" + plantedWord + "@host/data",
	}
	return env, argv
}

// TestNoSecretLeaves plants secrets, and finds none in snapshot, record and page.
func TestNoSecretLeaves(t *testing.T) {
	env, argv := planted()
	n := strings.Count(strings.Join(append(env, argv...), " "), plantedWord)
	if n < 28 {
		t.Fatalf("only %d planted", n)
	}
	var snap, errs strings.Builder
	if status := run(t.Context(), []string{"fabrun", "snapshot"}, append(env, "PATH=/usr/bin:/bin", "HOME=/nonexistent"), strings.NewReader(""), &snap, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var rec, page bytes.Buffer
	r := report.NewRecorder(&rec, time.Now, report.RecordStart{Command: append([]string{"mpirun"}, argv...), Host: "n1", Hosts: []string{"n1"}})
	var planText bytes.Buffer
	p := plan.Plan{Dialect: cmdline.OpenMPI5, Program: append([]string{"mpirun"}, argv...)}
	if err := report.PlanJSON(&planText, p); err != nil {
		t.Fatal(err)
	}
	r.Plan(planText.Bytes())
	for _, kv := range env {
		r.Event(watch.Event{ID: "nccl-warn", Severity: watch.SeverityWarning, Text: "it said " + kv, Line: kv})
	}
	if err := r.Exit(report.RecordExit{}); err != nil {
		t.Fatal(err)
	}
	read, err := report.ReadRecord(bytes.NewReader(rec.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := report.RecordedHTML(&page, read, nil); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"snapshot": snap.String(), "record": rec.String(), "page": page.String()} {
		for line := range strings.Lines(text) {
			if i := strings.Index(line, plantedWord); i >= 0 {
				t.Errorf("the %s has …%s", what, line[max(0, i-60):min(len(line), i+30)])
			}
		}
	}
	t.Logf("planted %d, and looked through a snapshot, a record and a page", n)
}

// TestNothingMovesTheCursor: escapes from a snapshot reach no terminal.
func TestNothingMovesTheCursor(t *testing.T) {
	text, err := os.ReadFile("../../testdata/hosts/cx4lx-12node.snap")
	if err != nil {
		t.Fatal(err)
	}
	const escape = "\x1b]0;owned\a\x1b[2J"
	name := filepath.Join(t.TempDir(), "evil"+escape+".snap")
	evil := strings.ReplaceAll(string(text), "25 Gb/sec", "25 Gb/sec"+escape)
	evil = strings.ReplaceAll(evil, "node01", "node01"+escape)
	if err := os.WriteFile(name, []byte(evil), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"topo"}, {"check"}, {"plan", "--", "mpirun", "-np", "2", "./a.out"}, {"env", "--explain"}, {"topo", "--json"}, {"check", "--json"}, {"slurm", "prolog", "--ports", "9", "--syslog="}, {"slurm", "health", "--ports", "9", "--syslog="}, {"slurm", "task-prolog", "--syslog="}, {"report", name}, {"watch", name}} {
		var out, errs strings.Builder
		words := append([]string{"fabrun"}, args...)
		if args[0] != "report" && args[0] != "watch" {
			words = append([]string{"fabrun", args[0], "--from", name}, args[1:]...)
		}
		run(t.Context(), words, []string{"HOME=/nonexistent", "PATH=/usr/bin:/bin"}, strings.NewReader(""), &out, &errs)
		for what, text := range map[string]string{"stdout": out.String(), "stderr": errs.String()} {
			if i := strings.IndexAny(text, "\x1b\a"); i >= 0 {
				t.Errorf("%q, %s: %q", args, what, text[max(0, i-60):min(len(text), i+20)])
			}
		}
	}
}
