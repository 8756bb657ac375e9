package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"fabrun/launcher"
	"fabrun/testdata/hosts"
	"fabrun/topology/discover"
)

var update = flag.Bool("update", false, "rewrite the golden sections of the scripts")

// TestMain puts fabrun and the fake launchers on PATH of the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fabrun":           checkedMain,
		launcher.GuardName: main,
		"mpirun":           func() { fakeLauncher("mpirun (Open MPI) 5.0.7") },
		"mpiexec":          func() { fakeLauncher("HYDRA build details:\n    Version:                                 4.0.2") },
		"srun":             func() { fakeLauncher("slurm 23.11.4") },
		"torchrun":         func() { fakeLauncher("") },
		"ib_write_bw":      fakePerftest,
		"ib_send_lat":      fakePerftest,
		"ibv_rc_pingpong":  fakePerftest,
	})
}

// fakeLauncher prints its argv and the part of its environment that decides
// how a job runs, one item a line, so that a script can compare them. It is
// told what else to do by variables:
//
//	FAKE_VERSION=text  what --version prints
//	FAKE_STDOUT=text   printed last on standard output
//	FAKE_STDERR=text   likewise on standard error
//	FAKE_CAT=file      a file copied to standard output (a log to be watched)
//	FAKE_EXIT=n        exit status
//	FAKE_SIGNAL=n      end by this signal
//	FAKE_WAIT=1        print "waiting" and stay until INT or TERM, then say which and exit 0
//	FAKE_HOSTFILE=1    print the file named after --hostfile, -hostfile, -f or -machinefile
func fakeLauncher(version string) {
	name := filepath.Base(os.Args[0])
	if v, ok := os.LookupEnv("FAKE_VERSION"); ok {
		version = strings.ReplaceAll(v, `\n`, "\n")
	}
	if len(os.Args) == 2 && slices.Contains([]string{"--version", "-V", "-version"}, os.Args[1]) {
		fmt.Println(strings.ReplaceAll(version, "mpirun", name))
		return
	}
	for i, arg := range os.Args[1:] {
		fmt.Printf("%s: argv[%d] %s\n", name, i+1, arg)
	}
	env := os.Environ()
	slices.Sort(env)
	for _, kv := range env {
		if slices.ContainsFunc([]string{
			"NCCL_", "UCX_", "OMPI_", "PRTE_", "PMIX_", "I_MPI_", "MPIR_CVAR_", "MV2_", "NVSHMEM_", "FI_", "GLOO_", "HYDRA_", "FABRUN_SET", "APPTAINERENV_", "PET_",
		}, func(p string) bool { return strings.HasPrefix(kv, p) }) && !strings.HasPrefix(kv, "OMPI_FABRUN_JOB=") { // the job's mark is another each time
			fmt.Printf("%s: env %s\n", name, kv)
		}
	}
	if os.Getenv("FAKE_HOSTFILE") != "" {
		for i, arg := range os.Args[:len(os.Args)-1] {
			if slices.Contains([]string{"--hostfile", "-hostfile", "-f", "-machinefile", "--machinefile"}, arg) {
				text, err := os.ReadFile(os.Args[i+1])
				fmt.Printf("%s: hostfile %v\n%s", name, err, text)
			}
		}
	}
	if f := os.Getenv("FAKE_CAT"); f != "" {
		text, err := os.ReadFile(f)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		//nolint:errcheck // the reader may be gone
		_, _ = os.Stdout.Write(text)
	}
	if s := os.Getenv("FAKE_STDOUT"); s != "" {
		fmt.Println(s)
	}
	if s := os.Getenv("FAKE_STDERR"); s != "" {
		fmt.Fprintln(os.Stderr, s)
	}
	if os.Getenv("FAKE_WAIT") != "" {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("waiting")
		fmt.Println("got", <-got)
		return
	}
	if n, err := strconv.Atoi(os.Getenv("FAKE_SIGNAL")); err == nil {
		signal.Reset(syscall.Signal(n))
		//nolint:errcheck // it does not return
		_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
		select {}
	}
	if n, err := strconv.Atoi(os.Getenv("FAKE_EXIT")); err == nil {
		os.Exit(n)
	}
}

// TestScript runs the command line's specification: testdata/script, one file
// a behaviour, named <verb>-<behaviour>. go test ./cmd/fabrun -update rewrites
// the golden sections.
func TestScript(t *testing.T) {
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join(repo, "testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// REPO reaches fixtures; the caller's own cluster settings do not
			// reach the scripts, since testscript starts with an empty environment.
			env.Setenv("REPO", repo)
			// FABRUN is the program itself, for phases whose PATH leads nowhere.
			if path, err := exec.LookPath("fabrun"); err == nil {
				env.Setenv("FABRUN", path)
			}
			env.Setenv("HOSTS", filepath.Join(repo, "testdata", "hosts"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, ".config"))
			seen := filepath.Join(env.WorkDir, ".schemas")
			env.Setenv(schemaDirName, filepath.Join(repo, "docs", "json"))
			env.Setenv(schemaSeenName, seen)
			if err := os.Mkdir(seen, 0o755); err != nil {
				return err
			}
			// No cache of launcher versions: scripts change what a launcher says.
			env.Setenv("XDG_CACHE_HOME", "none")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			// [realmpi]: a real Open MPI outside the fakes.
			switch cond {
			case "realmpi":
				_, err := os.Stat("/usr/bin/mpirun.openmpi")
				return err == nil, nil
			case "mpichdev":
				// The wrapper alone is no compiler: the headers are another package.
				c := exec.Command("mpicc.mpich", "-fsyntax-only", "-x", "c", "-")
				c.Stdin = strings.NewReader("#include <mpi.h>\n")
				return c.Run() == nil, nil
			case "realmpich":
				_, err := os.Stat("/usr/bin/mpiexec.mpich")
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":   cmdStatus,
			"snaptree": cmdSnapTree,
			"schema":   cmdSchema,
			"schemas":  cmdSchemas,
		},
	})
}

// cmdStatus is "status N program args…": it runs a program and wants exactly
// this exit status, which exec can only tell from zero.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program [args…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ee interface{ ExitCode() int }
	if err != nil {
		var ok bool
		if ee, ok = err.(interface{ ExitCode() int }); !ok {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// cmdSnapTree is "snaptree DIR": the embedded machine as a file tree for --root,
// which stands for this node where a snapshot (--from) does not.
func cmdSnapTree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: snaptree DIR")
	}
	ts.Check(snapshotTree(hosts.Demo, ts.MkAbs(args[0])))
}

// snapshotTree writes a snapshot as files and links, without what could not be
// read when it was taken.
func snapshotTree(snapshot, dir string) error {
	snap, err := discover.ParseSnapshot(snapshot)
	if err != nil {
		return err
	}
	return fs.WalkDir(snap, ".", func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(dir, path)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(snap, path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		}
		if text, err := fs.ReadFile(snap, path); err == nil {
			return os.WriteFile(to, text, 0o644)
		}
		return nil
	})
}

// TestScriptNames holds the naming rule: the first word is a verb or a concept
// of the command line.
func TestScriptNames(t *testing.T) {
	a := &app{}
	known := []string{"cli", "exit"}
	for _, c := range a.rootCmd().Commands() {
		known = append(known, c.Name())
	}
	err := filepath.WalkDir("../../testdata/script", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		first, _, _ := strings.Cut(strings.TrimSuffix(d.Name(), ".txtar"), "-")
		if !slices.Contains(known, first) {
			t.Errorf("%s: %q is no verb of fabrun", path, first)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
