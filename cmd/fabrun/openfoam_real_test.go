package main

import (
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fabrun/testdata/wait"
)

// TestRealOpenFOAM decomposes the cavity case in two and lets fabrun start the
// solver, without anybody writing mpirun; then with a wrong number of ranks.
func TestRealOpenFOAM(t *testing.T) {
	if os.Getenv("FABRUN_REAL") == "" {
		t.Skip("runs OpenFOAM: make test-real does it (FABRUN_REAL=1)")
	}
	const example = "/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity"
	if _, err := os.Stat(example); err != nil {
		t.Skipf("no OpenFOAM: %v (apt-get install openfoam openfoam-examples)", err)
	}
	for _, prog := range []string{"blockMesh", "decomposePar", "icoFoam", "mpirun.openmpi"} {
		if realProgram(prog) == "" {
			t.Skipf("no OpenFOAM: no %s (apt-get install openfoam openmpi-bin)", prog)
		}
	}
	dir := t.TempDir()
	copyCase(t, example, dir)
	if err := os.WriteFile(filepath.Join(dir, "system", "decomposeParDict"), []byte(`FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
`), 0o644); err != nil {
		t.Fatal(err)
	}
	fabrun := filepath.Join(dir, "fabrun")
	if out, err := exec.Command("go", "build", "-o", fabrun, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	run := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Left(t))
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		// Debian's build finds its own files by these two; its MPI is the system's.
		cmd.Env = []string{
			"PATH=" + systemPath, "HOME=" + dir, "WM_PROJECT_DIR=/usr/share/openfoam", "FOAM_ETC=/usr/share/openfoam/etc",
			"WM_MPLIB=SYSTEMOPENMPI", "FOAM_MPI=openmpi-system", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, prog := range []string{"blockMesh", "decomposePar"} {
		if out, err := run(realProgram(prog)); err != nil {
			t.Fatalf("%s: %v: %s", prog, err, out)
		}
	}
	out, err := run(fabrun, "--workload", "openfoam", "--hosts", "localhost:2", "icoFoam", "-parallel")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"nProcs : 2", "Finalising parallel run"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the run's output:\n%s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "processor1", "0.5")); err != nil {
		t.Errorf("the solver left no result: %v", err)
	}
	out, err = run(fabrun, "--workload", "openfoam", "--hosts", "localhost:2", "mpirun.openmpi", "icoFoam", "-parallel")
	if err != nil || !strings.Contains(out, "nProcs : 2") {
		t.Errorf("mpirun without a number: %v\n%s", err, out)
	}
	// A script as the tutorials have it: runParallel gives mpirun no hostfile,
	// no input, and both streams to a log of the application's name.
	if err := os.WriteFile(filepath.Join(dir, "Allrun"), []byte(`#!/bin/sh
runParallel() {
    app=$1; n=$(foamDictionary -entry numberOfSubdomains -value system/decomposeParDict)
    [ -f log.$app ] && { echo "$app already run"; return 1; }
    mpirun -np $n "$@" -parallel < /dev/null > log.$app 2>&1
}
blockMesh > log.blockMesh || exit 1
decomposePar -force > log.decomposePar || exit 1
runParallel icoFoam
`), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err = run(fabrun, "--verbose", "--hosts", "localhost:2", "./Allrun")
	log, logErr := os.ReadFile(filepath.Join(dir, "log.icoFoam"))
	if err != nil || logErr != nil {
		t.Fatalf("Allrun: %v %v\n%s", err, logErr, out)
	}
	for _, want := range []string{"nProcs : 2", "Finalising parallel run", "mpirun --hostfile ", "localhost slots=2"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("no %q in the log of a script's solver:\n%s", want, log)
		}
	}
	out, err = run(fabrun, "--hosts", "localhost:3", "mpirun", "--oversubscribe", "-np", "3", "icoFoam", "-parallel")
	if err == nil || !strings.Contains(out, "numberOfSubdomains 2, and 3 ranks") {
		t.Errorf("three ranks on two parts: %v\n%s", err, out)
	}
}

// copyCase copies a case, and unpacks what Debian has packed.
func copyCase(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		//nolint:errcheck // opened for reading
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(rel, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				return err
			}
			rel = strings.TrimSuffix(rel, ".gz")
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
