package look

import (
	"context"
	"time"

	"fabrun/launcher/check"
	"fabrun/launcher/hosts"
	"fabrun/launcher/remote"
	"fabrun/topology/finding"
)

// loginDeadline bounds one login from node to node.
const loginDeadline = 15 * time.Second

// Logins tries whether every host reaches the next one by ssh without a
// password, the last one the first: one login for each host, not one for each
// pair. It uses the same port, user and files that the launcher will be told.
func (a *Machines) Logins(ctx context.Context, t remote.Transport, names []string, o Ways) []finding.Finding {
	if len(names) < 2 || t.Name() == "srun" {
		return nil // Slurm starts the daemons
	}
	next := map[string]string{}
	for i, n := range names {
		next[n] = names[(i+1)%len(names)]
	}
	ssh := o.SystemSSH()
	ssh.ConnectTimeout = loginDeadline - 5*time.Second
	_, self := Others(hosts.Allocation{Hosts: HostList(names)})
	opts := remote.Options{Deadline: loginDeadline, MaxOutput: 64 << 10}
	opts.OnDone = func(done, total int, _ remote.Result) { a.Progress.Step("logins from host to host", done, total) }
	defer a.Progress.Clear()
	command := func(h string) remote.Command {
		return remote.Command{Argv: append(ssh.Args(), "--", next[h], "true")}
	}
	var others []string
	var out []check.Login
	local := remote.NewLocal()
	for _, n := range names {
		if self[n] {
			out = append(out, loginOf(remote.Run(ctx, local, n, command(n), opts), next[n]))
			continue
		}
		others = append(others, n)
	}
	for _, r := range remote.RunAll(ctx, t, others, command, opts) {
		out = append(out, loginOf(r, next[r.Host]))
	}
	return check.Logins(out)
}

// loginOf reads how a login from a host to the next one ended.
func loginOf(r remote.Result, to string) check.Login {
	l := check.Login{From: r.Host, To: to}
	switch remote.CauseOf(r.Err) {
	case "":
	case remote.NoSuchFile: // of ssh itself
		l.Unknown = "no ssh client there"
		return l
	default:
		l.Unknown = r.Err.Error()
		return l
	}
	if he := remote.SSHFailure(to, r.Status, string(r.Stderr)); he != nil {
		l.Failed = he.Err.Error()
		l.Hint = he.Hint
	}
	return l
}

// HostList are hosts of these names.
func HostList(names []string) []hosts.Host {
	var out []hosts.Host
	for _, n := range names {
		out = append(out, hosts.Host{Name: n})
	}
	return out
}
