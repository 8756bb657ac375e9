package job

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/launcher/cmdline"
	"fabrun/launcher/look"
	"fabrun/topology"
	"fabrun/topology/finding"
)

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
	a := &Call{Machines: look.Machines{Env: []string{"PATH=" + dir + "/bin"}}}
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
			cmd := cmdline.Parse(cmdline.Identify(argv, "(Open MPI) 4.1.4", ""), argv)
			files := a.wantedFiles(cmd)
			// n1 has all of it, n3 was asked by an older look and says nothing.
			places := func(have func(path string) bool) topology.Host {
				var h topology.Host
				for _, ask := range a.jobPlaces(cmd, files) {
					p := topology.Place{Role: ask.Role, Path: ask.Path}
					if !have(ask.Path) {
						p.Missing = "ENOENT"
					}
					h.Places = append(h.Places, p)
				}
				return h
			}
			on := []topology.Host{
				places(func(string) bool { return true }),
				places(func(path string) bool {
					return slices.ContainsFunc(strings.Fields(tc.n2), func(name string) bool { return filepath.Join(dir, name) == path })
				}),
				{},
			}
			var got []string
			for _, f := range missingOnNodes(on, []string{"n1", "n2", "n3"}, files) {
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

// What is there and cannot be used is said with its reason.
func TestFilesThatCannotBeUsed(t *testing.T) {
	file := wantedFile{topology.RoleProgram, "/opt/a.out", finding.Finding{ID: "node.program"}}
	on := []topology.Host{{Places: []topology.Place{{Role: topology.RoleProgram, Path: "/opt/a.out", Missing: "EACCES"}}}}
	got := missingOnNodes(on, []string{"n1"}, []wantedFile{file})
	if len(got) != 1 || got[0].Seen != "cannot be used on n1 (EACCES)" {
		t.Errorf("%+v", got)
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
		job := Sight{cmd: cmdline.Parse(cmdline.Identify(argv, "(Open MPI) 4.1.4", ""), argv), launcher: []string{dir}, hosts: []topology.Host{h}}
		got := "unknown"
		if has := launcherHasUCX(job); has != nil {
			got = fmt.Sprint(*has)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}
