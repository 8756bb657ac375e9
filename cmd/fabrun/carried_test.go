package main

import (
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/envgen/vars"
)

// parameter is a parameter of a function or method of ours, by its name.
func (f *flow) parameter(pkg, fn, name string) types.Object {
	for o, p := range f.param {
		if fun, ok := p.fn.(*types.Func); ok && o.Name() == name && fun.Name() == fn && fun.Pkg() == f.pkgs["fabrun/"+pkg] {
			return o
		}
	}
	return nil
}

// notCarried is what a decision reads and a snapshot leaves where it was, and why.
var notCarried = map[string]string{
	"HOME": "a person's", "USER": "a person's", "XDG_CACHE_HOME": "a person's", "XDG_CONFIG_HOME": "a person's",
	"SSH_AUTH_SOCK": "a session's", "TERM": "a session's", "LC_ALL": "a session's", "LC_CTYPE": "a session's", "NO_COLOR": "a session's", "TMPDIR": "a session's", "PYTHONUNBUFFERED": "of torchrun's own output",
	"FABRUN_RANK": "of the fabrun that runs", "FABRUN_RANK_AS": "of the fabrun that runs", "FABRUN_SET": "of the fabrun that runs", "FABRUN_SHIM": "of the fabrun that runs",
	"FABRUN_*": "what a flag says", "FABRUN_HOSTS": "what --hosts says", "FABRUN_HOSTFILE": "names a file of that machine",
	"PBS_NODEFILE": "names a file of that machine", "PBS_JOBID": "with its file", "COBALT_NODEFILE": "names a file of that machine", "COBALT_JOBID": "with its file",
	"OAR_NODEFILE": "names a file of that machine", "OAR_JOB_ID": "with its file", "PE_HOSTFILE": "names a file of that machine", "JOB_ID": "with its file",
	"LSB_DJOB_HOSTFILE": "names a file of that machine", "SLURM_HOSTFILE": "names a file of that machine",
	"SLURMD_NODENAME": "the node is the snapshot's own", "FLUX_HOSTNAME": "the node is the snapshot's own",
	"AF_INET6": "a family, not a name", "ACTIVE_DEFER": "a state, not a name",
	"HPCX_OSU_DIR": "programs to measure with are this machine's",
}

// TestHabitsCarried: every variable that the code asks the
// environment for is in a snapshot, or stands above with its reason.
func TestHabitsCarried(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the program")
	}
	f, err := ownFlow()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile( // and no other constant in capitals
		`^[A-Z][A-Z0-9]*(_[A-Za-z0-9_]*|)\*?$`)
	asked := map[string]bool{}
	for _, r := range [][3]string{
		{"launcher/cmdline", "Lookup", "name"},
		{"launcher/cmdline", "Value", "name"},
		{"launcher/hosts", "get", "names"},
		{"launcher/hosts", "value", "names"},
		{"launcher/hosts", "number", "names"},
		{"launcher/hosts", "file", "variable"},
	} {
		o := f.parameter(r[0], r[1], r[2])
		if o == nil {
			t.Fatalf("%s has no %s(%s)", r[0], r[1], r[2])
		}
		for id := range f.values(o) {
			if name.MatchString(id) && (strings.Contains(id, "_") || notCarried[id] != "") {
				asked[id] = true
			}
		}
	}
	if len(asked) < 80 {
		t.Errorf("only %d names: are they asked for in another way now?", len(asked))
	}
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		if one := strings.ReplaceAll(id, "*", "NCCL_X"); !vars.Carried(one) && notCarried[id] == "" {
			t.Errorf("%s is read and no snapshot carries it: a row of envgen/vars, or of notCarried with its reason", id)
		}
	}
	for id := range notCarried {
		if vars.Carried(id) {
			t.Errorf("%s is carried after all", id)
		}
	}
}

// TestHabitsReplayIsByteForByte: a machine as it stands, and its snapshot. This
// machine may have no RDMA, so one that has is given its environment too: once
// all of it, and once what a snapshot carries.
func TestHabitsReplayIsByteForByte(t *testing.T) {
	env := []string{
		"HOME=/nonexistent", "PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/opt/mpi/lib", "OMP_PLACES=cores", "OMP_PROC_BIND=close", "OMP_STACKSIZE=1G", "KMP_AFFINITY=compact",
		"MKL_NUM_THREADS=4", "PYTHONPATH=/x", "TORCH_NCCL_BLOCKING_WAIT=1", "UCC_TLS=ucp", "NCCL_IB_TC=77", "UCX_TLS=tcp,self", "OMPI_MCA_btl=tcp",
		"HCOLL_ENABLE_MCAST=0", "OPAL_PREFIX=/opt/mpi", "HF_TOKEN=planted", "NCCL_TUNER_CONFIG_FILE=https://me:planted@host/x",
	}
	do := func(args ...string) string {
		var out, errs strings.Builder
		run(t.Context(), append([]string{"fabrun"}, args...), env, strings.NewReader(""), &out, &errs)
		if out.Len() == 0 {
			t.Fatalf("%q says nothing: %s", args, errs.String())
		}
		return out.String()
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	same := func(args []string, was, is string) {
		t.Helper()
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("%q differs (-machine +snapshot):\n%s", args, diff)
		}
	}
	own := do("snapshot")
	if strings.Contains(own, "planted") {
		t.Error("the snapshot has the secret")
	}
	snap := write("own.snap", own)
	taken, shell := env, []string{"HOME=/nonexistent", "PATH=/usr/bin:/bin"} // what a shell has beside the replay is said
	for _, args := range [][]string{{"env", "--json"}, {"plan", "--json", "--", "mpirun", "-np", "2", "/bin/true"}, {"plan", "--", "torchrun", "--nproc-per-node", "2", "train.py"}} {
		env = taken
		machine := do(args...)
		env = shell
		same(args, strings.ReplaceAll(machine, "me:planted@", vars.Redacted+"@"), do(slices.Insert(slices.Clone(args), 1, "--from", snap)...))
	}
	const section = "-- fabrun/env --\n"
	_, carried, ok := strings.Cut(own, section)
	if !ok {
		t.Fatal("the snapshot has no environment")
	}
	carried, _, _ = strings.Cut(carried, "\n-- ")
	fabric, err := os.ReadFile("../../testdata/hosts/cx4lx-12node.snap")
	if err != nil {
		t.Fatal(err)
	}
	head, tail, ok := strings.Cut(string(fabric), "-- fabrun/")
	if !ok || strings.Contains(string(fabric), section) {
		t.Fatal("the machine with RDMA has another shape now")
	}
	with := func(name, env string) string {
		return write(name, head+section+strings.TrimSuffix(env, "\n")+"\n-- fabrun/"+tail)
	}
	all := with("full.snap", strings.Join(slices.Sorted(slices.Values(taken)), "\n"))
	some := with("some.snap", carried)
	for _, args := range [][]string{
		{"env", "--json"},
		{"plan", "--json", "--hosts", "n[1-2]:4", "--", "mpirun", "-np", "8", "./a.out"},
		{"plan", "--hosts", "n[1-2]:4", "--", "mpiexec.hydra", "-np", "8", "simpleFoam", "-parallel"},
		{"plan", "--hosts", "n[1-2]", "--", "torchrun", "--nproc-per-node", "2", "train.py"},
	} {
		was, is := do(slices.Insert(slices.Clone(args), 1, "--from", all)...), do(slices.Insert(slices.Clone(args), 1, "--from", some)...)
		clean := strings.NewReplacer("me:planted@", vars.Redacted+"@", all, "SNAP", some, "SNAP")
		same(args, clean.Replace(was), clean.Replace(is))
	}
}
