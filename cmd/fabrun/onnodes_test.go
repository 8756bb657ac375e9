package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/remote"
	"fabrun/topology"
)

// nodesWithFiles is a transport to hosts of which each has some files: its ls
// answers as the real one does, with status 2 where one is missing.
type nodesWithFiles map[string][]string

func (n nodesWithFiles) Exec(_ context.Context, host string, cmd remote.Command, s remote.Streams) (int, error) {
	have, up := n[host]
	if !up {
		return -1, &remote.HostError{Host: host, Err: fmt.Errorf("down")}
	}
	status := 0
	for _, path := range cmd.Argv[slices.Index(cmd.Argv, "--")+1:] {
		if slices.Contains(have, path) {
			fmt.Fprintln(s.Stdout, path)
		} else {
			status = 2
		}
	}
	return status, nil
}
func (nodesWithFiles) Name() string { return "test" }
func (nodesWithFiles) Close() error { return nil }

// TestFilesOnNodes: what the ranks need, and where it is missing.
func TestFilesOnNodes(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{"a.out", "bin/simpleFoam"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := &app{env: []string{"PATH=" + dir + "/bin"}}
	for _, tc := range []struct {
		argv string
		n2   string // what host n2 has; n1 has everything, n3 is down
		want string
	}{
		{"mpirun -np 2 ./a.out", ". a.out", ""},
		{"mpirun -np 2 ./a.out", ".", "error node.program a.out not on n2"},
		{"mpirun -np 2 ./a.out", "", "warning node.directory . not on n2; error node.program a.out not on n2"},
		{"mpirun -np 2 numactl -l ./a.out : -np 1 simpleFoam", ".", "error node.program a.out not on n2; warning node.program bin/simpleFoam not on n2"},
		{"mpirun -np 2 simpleFoam -parallel", "bin/simpleFoam", "error openfoam.case . not on n2"},
		{"mpirun -np 2 simpleFoam -parallel -case sub", ". bin/simpleFoam", "error openfoam.case sub not on n2"},
		{"mpirun -np 2 -wdir sub ./a.out", ".", "warning node.directory sub not on n2"},
		{"mpirun -np 2 -s ./a.out", "", ""},
		{"mpirun -np 2 podman run img ./a.out", "", ""},
		{"srun -n 2 --bcast=/tmp/a ./a.out", "", ""},
		{"srun -n 2 -D sub ./a.out", "", "warning node.directory sub not on n2"},
		{"torchrun train.py", "", "warning node.directory . not on n2"},
		{"fluent -t2", "", ""},
	} {
		t.Run(tc.argv+" with "+tc.n2, func(t *testing.T) {
			argv := strings.Fields(tc.argv)
			files := a.wantedFiles(cmdline.Parse(cmdline.Identify(argv, "(Open MPI) 4.1.4", ""), argv))
			nodes := nodesWithFiles{"n1": nil, "n2": nil}
			for _, f := range files {
				nodes["n1"] = append(nodes["n1"], f.path)
			}
			for _, name := range strings.Fields(tc.n2) {
				nodes["n2"] = append(nodes["n2"], filepath.Join(dir, name))
			}
			var got []string
			for _, f := range missingOnNodes(t.Context(), nodes, []string{"n1", "n2", "n3"}, files) {
				name, err := filepath.Rel(dir, f.Subject)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %s %s %s", f.Severity, f.ID, name, f.Seen))
			}
			if g := strings.Join(got, "; "); g != tc.want {
				t.Errorf("got  %q\nwant %q", g, tc.want)
			}
		})
	}
}

// Of several Open MPIs on a host, the one that is started counts.
func TestLauncherHasUCX(t *testing.T) {
	argv := []string{"mpirun", "-np", "2", "./a.out"}
	h := topology.Host{Software: []topology.Software{
		{Kind: "openmpi", Path: "usr/bin/mpirun", Detail: "UCX component absent"},
		{Kind: "openmpi", Path: "usr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun", Detail: "UCX component present"},
		{Kind: "openmpi", Path: "opt/x/bin/mpirun"},
	}}
	for dir, want := range map[string]string{"/usr/bin": "false", "/usr/mpi/gcc/openmpi-4.1.7a1/bin": "true", "/opt/x/bin": "unknown", "/opt/y/bin": "unknown"} {
		job := jobLook{cmd: cmdline.Parse(cmdline.Identify(argv, "(Open MPI) 4.1.4", ""), argv), launcher: []string{dir}, hosts: []topology.Host{h}}
		got := "unknown"
		if has := launcherHasUCX(job); has != nil {
			got = fmt.Sprint(*has)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}
