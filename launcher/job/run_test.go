package job

import (
	"bytes"
	"syscall"
	"testing"

	"fabrun/launcher"
	"fabrun/launcher/cmdline"
	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/plan"
)

// TestEndOfARun: how it ended, in words that its user knows, and nothing that he
// cannot use.
func TestEndOfARun(t *testing.T) {
	no, yes := false, true
	job := func(dialect *cmdline.Dialect, rdma *bool, names ...string) plan.Plan {
		p := plan.Plan{Dialect: dialect, Argv: []plan.Arg{{Text: "/usr/bin/prog"}}}
		p.RDMA = rdma != nil && *rdma
		p.Look = plan.Look{Hosts: len(names), Seen: len(names)}
		for _, n := range names {
			p.Hosts.Hosts = append(p.Hosts.Hosts, hosts.Host{Name: n})
		}
		return p
	}
	const one, two = "Done: one host, so nothing had to cross the fabric.", "No fallback: RoCE."
	for _, c := range []struct {
		name  string
		p     plan.Plan
		st    launcher.Status
		said  string
		quiet bool
		want  string
	}{
		{"a serial program", job(cmdline.Plain, &no, "here"), launcher.Status{}, "Done: no NCCL, UCX or MPI output was seen.", false, "fabrun: Done.\n"},
		{"one that failed", job(cmdline.Plain, &no, "here"), launcher.Status{Code: 3}, "Not judged: nothing.", false, "fabrun: prog failed with status 3\n"},
		{"ranks of one host", job(cmdline.OpenMPI4, &no, "here"), launcher.Status{}, one, false, "fabrun: " + one + "\n"},
		{"a fallback of a script", job(cmdline.Plain, &no, "here"), launcher.Status{}, "FALLBACK to TCP: x", true, "fabrun: FALLBACK to TCP: x\n"},
		{"two hosts", job(cmdline.OpenMPI4, &yes, "a", "b"), launcher.Status{}, two, false, "fabrun: " + two + "\n"},
		{"two hosts, quiet", job(cmdline.OpenMPI4, &yes, "a", "b"), launcher.Status{}, two, true, ""},
		{"Ctrl-C", job(cmdline.Plain, &no, "here"), launcher.Status{Code: 130, Signal: syscall.SIGINT, Told: syscall.SIGINT}, "Not judged: x", false, "fabrun: prog was ended by Ctrl-C (signal 2): status 130\n"},
		{"Ctrl-C of Open MPI", job(cmdline.OpenMPI4, &no, "here"), launcher.Status{Code: 1, Told: syscall.SIGINT}, "Not judged: x", false, "fabrun: prog was told to end by Ctrl-C (signal 2), and left with status 1\n"},
		{"killed by somebody", job(cmdline.Plain, &no, "here"), launcher.Status{Code: 137, Signal: syscall.SIGKILL}, "Not judged: x", false, "fabrun: prog was ended by signal 9 (killed): status 137\n"},
	} {
		var b bytes.Buffer
		a := &Call{Machines: look.Machines{Stderr: &b}, Quiet: c.quiet}
		a.sayEnd(c.p, c.st)
		a.sayVerdict(c.said, c.p)
		if b.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, b.String(), c.want)
		}
	}
}
