package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/launcher/plan"
)

// TestCarry: the user's environment here, a node's own there, and what a program
// on that node sees.
func TestCarry(t *testing.T) {
	for _, c := range []struct {
		name       string
		carry      plan.Carry
		here, own  []string
		want, held []string
	}{
		{
			name: "all of it",
			here: []string{"PATH=/v/bin", "HF_TOKEN=secret", "WANDB_MODE=offline", "CUDA_VISIBLE_DEVICES=0,1", "BATCH_SIZE=", "BASH_FUNC_f%%=() {\n}", "PWD=/here", "SHLVL=2", "_=/usr/bin/fabrun", "TERM=xterm"},
			own:  []string{"PATH=/usr/bin", "EDITOR=vi", "PWD=/root"},
			want: []string{"PATH=/v/bin", "HF_TOKEN=secret", "WANDB_MODE=offline", "CUDA_VISIBLE_DEVICES=0,1", "BATCH_SIZE=", "BASH_FUNC_f%%=() {\n}", "PWD=/here", "SHLVL=2", "_=/usr/bin/fabrun", "TERM=xterm"},
		},
		{
			name: "a machine's and a session's",
			here: []string{"HOSTNAME=head", "SSH_AUTH_SOCK=/tmp/a", "DISPLAY=:0", "TMUX=/tmp/t,1,0", "XDG_RUNTIME_DIR=/run/user/1", "LD_PRELOAD=/x.so", "DISPLAYED=1", "XDG_CACHE_HOME=/c"},
			own:  []string{"HOSTNAME=node2", "SSH_CONNECTION=1 2 3 4", "XDG_RUNTIME_DIR=/run/user/2"},
			want: []string{"DISPLAYED=1", "XDG_CACHE_HOME=/c", "HOSTNAME=node2", "SSH_CONNECTION=1 2 3 4", "XDG_RUNTIME_DIR=/run/user/2"},
			held: []string{"DISPLAY", "HOSTNAME", "LD_PRELOAD", "SSH_AUTH_SOCK", "TMUX", "XDG_RUNTIME_DIR"},
		},
		{
			name:  "what the user says",
			carry: plan.Carry{Take: []string{"LD_PRELOAD", "SSH_*"}, Leave: []string{"HF_TOKEN", "MY_*"}},
			here:  []string{"LD_PRELOAD=/x.so", "SSH_AUTH_SOCK=/tmp/a", "HF_TOKEN=here", "MY_A=1", "MYSELF=1"},
			own:   []string{"LD_PRELOAD=/y.so", "SSH_CONNECTION=1", "HF_TOKEN=there"},
			want:  []string{"LD_PRELOAD=/x.so", "SSH_AUTH_SOCK=/tmp/a", "MYSELF=1", "HF_TOKEN=there"},
			held:  []string{"HF_TOKEN", "MY_A"},
		},
		{
			name: "GPUs by their identifiers are those of one machine",
			here: []string{"CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c,GPU-1"},
			own:  []string{"CUDA_VISIBLE_DEVICES=MIG-1"},
			want: []string{"CUDA_VISIBLE_DEVICES=MIG-1"},
			held: []string{"CUDA_VISIBLE_DEVICES"},
		},
		{
			name: "a step is what Slurm says it is",
			here: []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=16", "SLURM_NODEID=0", "CUDA_VISIBLE_DEVICES=2,3"},
			own:  []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=1", "SLURM_NODEID=1", "SLURM_STEP_ID=4", "CUDA_VISIBLE_DEVICES=0,1"},
			want: []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=1", "SLURM_NODEID=1", "SLURM_STEP_ID=4", "CUDA_VISIBLE_DEVICES=0,1"},
			held: []string{"SLURM_NODEID"},
		},
		{
			name: "over ssh from a Slurm job its numbers arrive",
			here: []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=16", "SLURM_NODEID=0"},
			want: []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=16"},
			held: []string{"SLURM_NODEID"},
		},
		{
			name: "another account there",
			here: []string{"HOME=/home/me", "USER=me", "LOGNAME=me"},
			own:  []string{"HOME=/root", "USER=root", "LOGNAME=root"},
			want: []string{"HOME=/root", "USER=root", "LOGNAME=root"},
		},
		{
			name: "the same account, with a home of the user's choice",
			here: []string{"HOME=/scratch/me", "USER=me"},
			own:  []string{"HOME=/home/me", "USER=me"},
			want: []string{"HOME=/scratch/me", "USER=me"},
		},
		{
			name: "a directory for temporary files that is not there",
			here: []string{"TMPDIR=/job/7", "A=1"},
			own:  []string{"TMPDIR=/there"},
			want: []string{"A=1", "TMPDIR=/there"},
		},
		{
			name: "nor one of its own",
			here: []string{"TMPDIR=/job/7", "A=1"},
			want: []string{"A=1"},
		},
	} {
		sent, withheld := c.carry.HandOver(c.here)
		var held []string
		for _, w := range withheld {
			if w.Why == "" {
				t.Errorf("%s: %s is withheld for no reason", c.name, w.Name)
			}
			held = append(held, w.Name)
		}
		if diff := cmp.Diff(c.held, held); diff != "" {
			t.Errorf("%s: withheld -want +got\n%s", c.name, diff)
		}
		got := c.carry.OnNode(sent, c.own, func(dir string) bool { return dir == "/there" })
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
}

// On the machine that it was sent from, an environment arrives as it was.
func TestCarryHome(t *testing.T) {
	env := []string{"PATH=/bin", "SSH_AUTH_SOCK=/a", "HOSTNAME=h", "SLURM_STEP_ID=1", "SLURM_NODEID=0", "CUDA_VISIBLE_DEVICES=GPU-1", "TMPDIR=/t", "USER=me", "LD_PRELOAD=/x.so"}
	var c plan.Carry
	sent, _ := c.HandOver(env)
	got := c.OnNode(sent, env, func(string) bool { return true })
	slices.Sort(got)
	slices.Sort(env)
	if diff := cmp.Diff(env, got); diff != "" {
		t.Errorf("-here +there\n%s", diff)
	}
}

func TestCarryBad(t *testing.T) {
	for name, bad := range map[string]bool{"A": false, "A_*": false, "A=1": true, "*": true, "": true, "A*B": true} {
		if _, got := (plan.Carry{Take: []string{name}}).Bad(); got != bad {
			t.Errorf("%q: refused %v, want %v", name, got, bad)
		}
	}
}

// The names of the table are names, and each row says why.
func TestNodeKeeps(t *testing.T) {
	for _, row := range plan.NodeKeeps() {
		if name, bad := (plan.Carry{Take: strings.Fields(row[0])}).Bad(); bad || row[1] == "" {
			t.Errorf("%q: %q, %q", row[0], row[1], name)
		}
	}
}
