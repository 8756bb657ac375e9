package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealHosts starts real launchers over hosts with a real sshd each.
func TestRealHosts(t *testing.T) {
	l := startNetLab(t, 3)
	for _, m := range []struct{ name, launcher, compiler string }{
		{"Open MPI", "mpirun.openmpi", "mpicc.openmpi"},
		{"MPICH", "mpiexec.mpich", "mpicc.mpich"},
	} {
		t.Run(m.name, func(t *testing.T) {
			if realProgram(m.launcher) == "" || realProgram(m.compiler) == "" {
				t.Skipf("no %s (apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev)", m.name)
			}
			ring := filepath.Join(l.dir, "share", m.launcher+"-ring")
			if out, err := exec.Command(realProgram(m.compiler), "-o", ring, "../../testdata/demo/ring.c").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			j := l.run([]string{"NCCL_IB_TC=7", "SECRET=no"}, l.fabrunOn("node[01-03]:1", m.launcher, "-np", "3", "sh", "-c", `hostname; echo "$NCCL_IB_TC"; exec `+ring)...)
			t.Log(j.text())
			for _, want := range []string{"node01", "node02", "node03"} {
				if !strings.Contains(j.out.String(), want) {
					t.Errorf("no %q in\n%s", want, j.text())
				}
			}
			if n := strings.Count(j.out.String(), "correct"); n != 3 {
				t.Errorf("%d ranks are correct\n%s", n, j.text())
			}
			l.empty()
		})
	}
	_ = os.Stdout
}
