package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/envgen"

	"github.com/google/go-cmp/cmp"
)

// TestImages: mistakes of Dockerfiles, each beside what is none.
func TestImages(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"clean":                                 {"# syntax=docker/dockerfile:1\nARG BASE=debian\nFROM ${BASE} AS build\nRUN make && NCCL_HOME=/opt/nccl ./configure\nFROM scratch\nENV NCCL_DEBUG=WARN UCX_TLS=\"rc,sm\"\nENTRYPOINT [\"fabrun\", \"run\", \"--\"]\nCMD [\"torchrun\", \"train.py\"]\n", []string{}},
		"a value that no library knows":         {"FROM a\nENV NCCL_DEBUG=INFO \\\n# between\n\n    NCCL_IB_GID_IDX=3\n", []string{"2 value.misspelt"}},
		"the old form":                          {"FROM a\nENV NCCL_IB_GID_IDX 3\n", []string{"2 value.misspelt"}},
		"an entrypoint of the shell":            {"from a\nentrypoint fabrun run --\n", []string{"2 image.shell-entrypoint"}},
		"with exec, which still takes no words": {"FROM a\nENTRYPOINT exec fabrun run --\n", []string{"2 image.shell-entrypoint"}},
		"a command of the shell is usual":       {"FROM a\nCMD torchrun train.py\n", []string{}},
		"exported in a RUN":                     {"FROM a\nRUN export NCCL_IB_TC=106\nRUN apt-get update \\\n && export UCX_TLS=rc && make\n", []string{"2 image.run-export", "3 image.run-export"}},
		"exported in a here-document":           {"FROM a\nRUN <<EOF\nset -e\nexport NCCL_IB_TC=106\nEOF\nENV A=b\n", []string{"2 image.run-export"}},
		"written for a shell of the container":  {"FROM a\nRUN echo 'export NCCL_IB_TC=106' >> /etc/profile\nRUN export CFLAGS=-O2 && make\n", []string{}},
		"a launch in CMD":                       {"FROM a\nCMD [\"torchrun\", \"--nnodes\", \"1\", \"--master-port\", \"50000\", \"t.py\"]\n", []string{"2 script.port-ephemeral"}},
		"backquote as escape":                   {"# escape=`\nFROM a\nENV NCCL_DEBUG=INFO `\n  NCCL_IB_GID_IDX=3\n", []string{"3 value.misspelt"}},
		"one stage begins with another":         {"FROM a AS base\nENV NCCL_IB_GID_IDX=3\nFROM base\nENV NCCL_IB_GID_IDX=4\n", []string{"2 value.misspelt", "4 value.misspelt"}},
	} {
		problems := Judge(Read("Dockerfile", []byte(tc.text)), nil, envgen.Versions{})
		if d := cmp.Diff(tc.want, got(problems)); d != "" {
			t.Errorf("%s: %s\n%+v", name, d, problems)
		}
	}
	if p := Judge(Read("x", []byte("FROM a\nENTRYPOINT fabrun run --\n")), nil, envgen.Versions{}); len(p) != 1 || p[0].Fixed != `ENTRYPOINT ["fabrun", "run", "--"]` {
		t.Errorf("mended: %+v", p)
	}
	if p := Judge(Read("x", []byte("FROM a\nRUN export NCCL_IB_TC=106\n")), nil, envgen.Versions{}); len(p) != 1 || p[0].Fixed != "ENV NCCL_IB_TC=106" {
		t.Errorf("mended: %+v", p)
	}
}

// aJob is a JobSet of two pods; parts of it are replaced by the tests.
const aJob = `apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: node
    template:
      spec:
        parallelism: 2
        template:
          spec:
            containers:
            - name: node
              command: [fabrun, torchrun, train.py]
              env:
              - name: NCCL_DEBUG
                value: WARN
              resources: {limits: {nvidia.com/gpu: 8, rdma/hca: 1}}
              securityContext: {capabilities: {add: [IPC_LOCK]}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
            volumes:
            - name: shm
              emptyDir: {medium: Memory}
`

// TestPods: each rule where it fires, and beside it what gives the same in another way.
func TestPods(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		want           []string
	}{
		{"clean", "", "", []string{}},
		{"no IPC_LOCK", "add: [IPC_LOCK]", "drop: [ALL]", []string{"13 pod.ipc-lock"}},
		{"privileged has it", "capabilities: {add: [IPC_LOCK]}", "privileged: true", []string{}},
		{"no device", ", rdma/hca: 1", "", []string{"13 pod.rdma-device"}},
		{"a device by another plugin's name", "rdma/hca: 1", "vpc.amazonaws.com/efa: 32", []string{}},
		{"a device by SR-IOV", "rdma/hca: 1", "openshift.io/sriovlegacy: 1", []string{}},
		{"the node's devices", "containers:\n            - name: node\n", "dnsPolicy: ClusterFirstWithHostNet\n            hostNetwork: true\n            containers:\n            - name: node\n              volumeMounts: [{name: shm, mountPath: /dev/shm}]\n              securityContext: {privileged: true}\n              resources: {limits: {nvidia.com/gpu: 8}}\n            - name: other\n", []string{}},
		{"devices by claim", "containers:\n            - name: node\n", "resourceClaims: [{name: nics}]\n            containers:\n            - name: node\n              volumeMounts: [{name: shm, mountPath: /dev/shm}]\n              resources: {limits: {nvidia.com/gpu: 8}}\n            - name: other\n", []string{}},
		{"one pod needs none", "parallelism: 2", "parallelism: 1", []string{}},
		{"one pod has none and needs none", "parallelism: 2\n        template:\n          spec:\n            containers:\n", "parallelism: 1\n        template:\n          spec:\n            containers:\n            - {name: single, resources: {limits: {nvidia.com/gpu: 1}}}\n", []string{}},
		{"no shared memory", "mountPath: /dev/shm", "mountPath: /data", []string{"13 pod.shm"}},
		{"shared memory on disk", "{medium: Memory}", "{}", []string{"13 pod.shm"}},
		{"the node's shared memory", "emptyDir: {medium: Memory}", "hostPath: {path: /dev/shm}", []string{}},
		{"one GPU shares with nobody", "nvidia.com/gpu: 8", "nvidia.com/gpu: 1", []string{}},
		{"the node's network without names", "containers:", "hostNetwork: true\n            containers:", []string{"12 pod.host-dns"}},
		{"the node's network with names", "containers:", "hostNetwork: true\n            dnsPolicy: ClusterFirstWithHostNet\n            containers:", []string{}},
		{"requested and not limited", "resources: {", "resources: {requests: {nvidia.com/gpu: 8, rdma/other: 1, cpu: 4}, ", []string{"18 pod.limits"}},
		{"a number", "NCCL_DEBUG\n                value: WARN", "NCCL_IB_TC\n                value: 106", []string{"17 pod.env-string"}},
		{"a boolean of YAML 1.1", "NCCL_DEBUG\n                value: WARN", "WANDB\n                value: yes", []string{"17 pod.env-string"}},
		{"a number in quotes", "name: NCCL_DEBUG\n                value: WARN", "name: NCCL_IB_TC\n                value: \"106\"", []string{}},
		{"a variable that no library knows", "name: NCCL_DEBUG\n                value: WARN", "name: NCCL_IB_GID_IDX\n                value: \"3\"", []string{"17 value.misspelt"}},
		{"a command that stays in its shell", "command: [fabrun, torchrun, train.py]", "command: [sh, -c, 'NCCL_IB_TC=106; torchrun train.py']", []string{"14 script.not-exported"}},
		{"broken YAML", "kind: JobSet", "kind: [JobSet", []string{"3 script.unreadable"}},
		{"a template", "spec:\n  rep", "{{- if .Values.job }}\nspec:\n  rep", []string{"3 script.unreadable"}},
	} {
		text := strings.Replace(aJob, tc.old, tc.new, 1)
		if tc.old != "" && text == aJob {
			t.Fatalf("%s: nothing was replaced", tc.name)
		}
		problems := Judge(Read("job.yaml", []byte(text)), nil, envgen.Versions{})
		ids := got(problems)
		if strings.HasPrefix(strings.Join(tc.want, ""), "3 script") { // the line is the parser's
			if len(problems) != 1 || problems[0].ID != "script.unreadable" {
				t.Errorf("%s: %+v", tc.name, problems)
			}
			continue
		}
		if d := cmp.Diff(tc.want, ids); d != "" {
			t.Errorf("%s: %s\n%+v", tc.name, d, problems)
		}
	}
	p := Judge(Read("j", []byte(strings.Replace(strings.Replace(aJob, "value: WARN", "value: 1 # one", 1), "NCCL_DEBUG", "RANKS", 1))), nil, envgen.Versions{})
	if len(p) != 1 || p[0].Fixed != `value: "1" # one` {
		t.Errorf("mended: %+v", p)
	}
}

// TestNotAJobScript: what is no script says what it is, and is not judged as one;
// what only looks like it is read.
func TestNotAJobScript(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"train.py":    {"x = 1\n", "Python"},
		"noname":      {"# a comment\nimport torch\n", "Python"},
		"a.c":         {"int main;\n", "C"},
		"b":           {"#include <mpi.h>\n", "C"},
		"conf.json":   {"{\"a\": 1}\n", "JSON"},
		"compose.yml": {"services:\n  a: {image: b}\n", "YAML"},
		"core":        {"\x7fELF\x00\x01", "binary"},
		"node.snap":   {"fabrun-snapshot 1\n", "snapshot"},
		"job":         {"export NCCL_DEBUG=INFO\nmpirun ./a.out\n", ""},
		"job.txt":     {"#!/bin/bash\nsrun ./a.out\n", ""},
		"braces":      {"{ echo a; }\n", ""},
		"kinds.sh":    {"kind=a\napiVersion=b\n", ""},
	} {
		why := ""
		for _, u := range Read(name, []byte(tc.text)).Unread {
			why = u.Why
		}
		if (tc.want == "") != (why == "") || !strings.Contains(why, tc.want) || why != "" && !strings.HasPrefix(why, "not a job script: ") {
			t.Errorf("%s: %q, want %q", name, why, tc.want)
		}
	}
}

func FuzzDockerfile(f *testing.F) {
	for _, text := range []string{"FROM a\nENV A=b \\\n C=d\nRUN <<X\nexport NCCL_X=1\nX\nENTRYPOINT [\"a\"]\n", "# escape=`\nARG A\nFROM a AS b\nFROM b\nCMD a `\n b\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range Judge(Read("Dockerfile", []byte(text)), nil, envgen.Versions{}) {
			if p.Line < 1 || p.ID == "" {
				t.Errorf("problem without a place: %+v", p)
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add(aJob)
	f.Add("apiVersion: v1\nkind: List\nitems: [&a {kind: Pod, spec: {containers: [{name: a, env: [{name: b, value: 1}]}]}}, *a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range Judge(Read("job.yaml", []byte(text)), nil, envgen.Versions{}) {
			if p.Line < 1 || p.ID == "" {
				t.Errorf("problem without a place: %+v", p)
			}
		}
	})
}

// TestExamplesAreClean: what the documentation shows has none of these mistakes.
func TestExamplesAreClean(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/k8s/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../../docs/examples/image/Dockerfile") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := Read(file, text)
		if p := Judge(s, nil, envgen.Versions{}); len(p) > 0 || len(s.parts) == 0 && !strings.Contains(file, "trainjob") {
			t.Errorf("%s: %d parts, %+v", file, len(s.parts), p)
		}
	}
}
