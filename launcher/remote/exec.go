package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// SSHOptions configure the system's ssh client. Everything not said is left to
// ssh and its own configuration: GSSAPI, host-based logins, ControlMaster.
type SSHOptions struct {
	Program        string // "" ssh
	User           string
	Port           int
	IdentityFiles  []string
	ConfigFile     string // -F
	KnownHosts     []string
	Insecure       bool          // the user said not to look at host keys
	Options        []string      // more -o values: "StrictHostKeyChecking=accept-new"
	ConnectTimeout time.Duration // 0: 10 s
}

// Args is the argument vector up to and without the host: what fabrun itself
// uses, and what mpirun is told to use.
func (o SSHOptions) Args() []string {
	program := o.Program
	if program == "" {
		program = "ssh"
	}
	timeout := o.ConnectTimeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	args := []string{
		// No agent goes along, and a RemoteCommand of the user's configuration would
		// be refused beside ours; ssh before 7.6 does not know that one.
		program, "-T", "-x", "-a", "-o", "IgnoreUnknown=RemoteCommand", "-o", "RemoteCommand=none", "-o", "BatchMode=yes",
		"-o", "ConnectTimeout=" + strconv.Itoa(max(1, int(timeout.Seconds()))),
		"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
	}
	if o.ConfigFile != "" {
		args = append(args, "-F", o.ConfigFile)
	}
	if o.User != "" {
		args = append(args, "-o", "User="+o.User)
	}
	if o.Port != 0 {
		args = append(args, "-p", strconv.Itoa(o.Port))
	}
	for _, f := range o.IdentityFiles {
		args = append(args, "-i", f)
	}
	switch {
	case o.Insecure:
		args = append(args, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
	case len(o.KnownHosts) > 0:
		args = append(args, "-o", "UserKnownHostsFile="+strings.Join(o.KnownHosts, " "))
	}
	for _, v := range o.Options {
		args = append(args, "-o", v)
	}
	return args
}

// NewSSH runs commands through the system's ssh.
func NewSSH(o SSHOptions) Transport {
	return &execTransport{name: "ssh", classify: SSHFailure, argv: func(host string, cmd Command) ([]string, error) {
		line, err := shellLine(cmd)
		if err != nil {
			return nil, err
		}
		return append(o.Args(), "--", host, line), nil
	}}
}

// NewLocal runs commands on this machine, whatever the host is called.
func NewLocal() Transport {
	return &execTransport{
		name: "local", classify: func(string, int, string) *HostError { return nil },
		argv: func(_ string, cmd Command) ([]string, error) { return shellArgv(cmd) },
	}
}

// execTransport starts one local program per command.
type execTransport struct {
	name     string
	env      []string
	argv     func(host string, cmd Command) ([]string, error)
	classify func(host string, status int, stderr string) *HostError
}

func (t *execTransport) Name() string { return t.name }

func (t *execTransport) Close() error { return nil }

func (t *execTransport) Exec(ctx context.Context, host string, cmd Command, s Streams) (int, error) {
	if err := checkHost(host); err != nil {
		return -1, &HostError{Host: strconv.Quote(host), Cause: BadName, Err: err}
	}
	if ctx.Err() != nil {
		return -1, contextError(ctx, host)
	}
	argv, err := t.argv(host, cmd)
	if err != nil {
		return -1, &HostError{Host: host, Cause: LocalTransport, Err: err}
	}
	c := exec.Command(argv[0], argv[1:]...) //nolint:gosec // the argument vector is ours, the host name checked
	c.Env = t.env
	// A group of its own: a signal meant for it reaches its ProxyCommand too,
	// and a Ctrl-C at our terminal is ours to pass on.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tail := &tailWriter{next: s.Stderr}
	c.Stdout, c.Stderr = s.Stdout, tail
	// A descendant that keeps the pipes open must not hold us.
	c.WaitDelay = 2 * time.Second
	var hold io.WriteCloser
	if cmd.Stdin != nil {
		c.Stdin = cmd.Stdin
	} else if hold, err = c.StdinPipe(); err != nil {
		return -1, &HostError{Host: host, Cause: LocalTransport, Err: err}
	}
	if err := c.Start(); err != nil {
		return -1, &HostError{Host: host, Cause: LocalTransport, Err: err, Hint: "is " + filepath.Base(argv[0]) + " installed here?"}
	}
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		if hold != nil {
			_ = hold.Close() // the life-line: the remote side ends by itself
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		}
	})
	err = c.Wait()
	close(ended)
	stopping.Wait()
	if ctx.Err() != nil {
		return -1, contextError(ctx, host)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return -1, &HostError{Host: host, Cause: Dropped, Err: err}
		}
	}
	status := c.ProcessState.ExitCode()
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	if he := t.classify(host, status, tail.String()); he != nil {
		return -1, he
	}
	return status, nil
}

// tailWriter passes on and remembers the last bytes, from which the cause of a
// failure is read.
type tailWriter struct {
	next io.Writer
	buf  []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	if len(w.buf) > 8192 {
		w.buf = bytes.Clone(w.buf[len(w.buf)-4096:])
	}
	if w.next != nil {
		return w.next.Write(p)
	}
	return len(p), nil
}

func (w *tailWriter) String() string { return string(w.buf) }

// SSHFailure reads why ssh itself failed: it exits 255 then (ssh(1), EXIT
// STATUS) and says why on standard error. nil: it was not ssh that failed.
func SSHFailure(host string, status int, stderr string) *HostError {
	if status != 255 {
		return nil
	}
	e := &HostError{Host: host, Cause: Dropped, Err: errors.New(lastLine([]byte(stderr), "ssh ended with status 255"))}
	for _, c := range []struct {
		text  string
		cause Cause
		hint  string
	}{
		{"REMOTE HOST IDENTIFICATION HAS CHANGED", ChangedKey, "if the host was reinstalled: ssh-keygen -R " + host},
		{"Host key verification failed", UnknownKey, "connect once by hand: ssh " + host + " true"},
		{"Could not resolve hostname", UnknownHost, "check the name, or give the address in ssh_config (HostName)"},
		{"Connection refused", Refused, "is sshd running there, and is it the right port?"},
		{"Connection timed out", Timeout, ""},
		{"Operation timed out", Timeout, ""},
		{"timed out", Timeout, ""},
		{"No route to host", Unreachable, ""},
		{"Network is unreachable", Unreachable, ""},
		{"Permission denied", Auth, "try 'ssh -o BatchMode=yes " + host + " true'"},
		{"Too many authentication failures", Auth, "name the key with --ssh-identity"},
		{"Connection reset", Dropped, ""},
		{"kex_exchange_identification", Dropped, "sshd may be refusing so many connections at once (MaxStartups)"},
	} {
		if strings.Contains(stderr, c.text) {
			e.Cause, e.Hint = c.cause, c.hint
			break
		}
	}
	return e
}

// srunFailure reads why srun itself failed; its own lines begin "srun: error:".
func srunFailure(host string, status int, stderr string) *HostError {
	if status == 0 || !strings.Contains(stderr, "srun: error:") && !strings.Contains(stderr, "srun: fatal:") {
		return nil
	}
	var line string
	for l := range strings.Lines(stderr) {
		// The program's last words may stand before it on the same line.
		if i := max(strings.Index(l, "srun: error:"), strings.Index(l, "srun: fatal:")); i >= 0 {
			line = strings.TrimSpace(l[i:])
			break
		}
	}
	for _, c := range []struct {
		text  string
		cause Cause
	}{
		{"Requested node configuration is not available", NotInAlloc},
		{"Requested nodes are busy", NotInAlloc},
		{"Invalid node name", UnknownHost},
		{"not in this job", NotInAlloc},
		{"Unable to create step", NotInAlloc},
		{"Unable to confirm allocation", NotInAlloc},
		{"Unable to allocate resources", NotInAlloc},
		{"Node failure", Dropped},
		{"Timed out waiting", Timeout},
		{"Socket timed out", Timeout},
	} {
		if strings.Contains(stderr, c.text) {
			return &HostError{Host: host, Cause: c.cause, Err: errors.New(line)}
		}
	}
	// "srun: error: node3: task 0: Exited with exit code 3" is the command's own end.
	if strings.Contains(line, "task 0: ") || strings.Contains(line, "tasks 0") {
		return nil
	}
	return &HostError{Host: host, Cause: LocalTransport, Err: fmt.Errorf("srun ended with status %d: %s", status, line)}
}
