package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// lab is a running cluster.
type lab struct {
	dir      string // everything of this lab, removed by close
	image    image
	memory   int // MB per node
	guests   []*guest
	segments map[string]*segment
	user     key
	hosts    []key
	closers  []io.Closer
	log      io.Writer
}

func (l *lab) share() string  { return filepath.Join(l.dir, "share") }
func (l *lab) kernel() string { return filepath.Join(l.dir, "vmlinuz") }
func (l *lab) initrd() string { return filepath.Join(l.dir, "initrd") }

// bootDeadline is how long a node may take from start to ssh; a quiet machine
// needs about 25 seconds for two.
const bootDeadline = 4 * time.Minute

// startLab starts n nodes with the given fabrun binary ("" none) and waits
// until ssh answers on all of them. The directory must be short enough for a
// Unix socket's path.
func startLab(ctx context.Context, dir string, n int, fabrun string, log io.Writer) (*lab, error) {
	im, err := findImage(ctx, log)
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, image: im, memory: nodeMemory(), segments: map[string]*segment{}, log: log}
	if err := l.start(ctx, n, fabrun); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) start(ctx context.Context, n int, fabrun string) error {
	begin := time.Now()
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := l.image.boot(ctx, l.kernel(), l.initrd()); err != nil {
		return err
	}
	if err := l.writeShare(n, fabrun); err != nil {
		return err
	}
	for _, name := range segmentNames() {
		l.segments[name] = newSegment(name)
	}
	for i := 1; i <= n; i++ {
		g := &guest{node: i, dir: filepath.Join(l.dir, fmt.Sprintf("node%d", i))}
		if err := os.MkdirAll(g.dir, 0o700); err != nil {
			return err
		}
		l.guests = append(l.guests, g)
	}
	for _, g := range l.guests {
		for _, name := range segmentNames() {
			c, err := l.segments[name].listen(g.node, g.socket(name))
			if err != nil {
				return err
			}
			l.closers = append(l.closers, c)
		}
		if err := l.startGuest(g); err != nil {
			return err
		}
	}
	for _, g := range l.guests {
		if err := l.await(ctx, g); err != nil {
			return err
		}
	}
	fmt.Fprintf(l.log, "lab: %d nodes up after %.0f s\n", n, time.Since(begin).Seconds())
	return nil
}

// startGuest gives a guest a free port for its sshd and starts it. It serves
// for a guest that was switched off, too.
func (l *lab) startGuest(g *guest) error {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g.port = probe.Addr().(*net.TCPAddr).Port
	if err := probe.Close(); err != nil {
		return err
	}
	return g.start(l)
}

// await waits for a node's sshd.
func (l *lab) await(ctx context.Context, g *guest) error {
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	for {
		c, err := l.dial(g.node, 5*time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-g.done:
			return fmt.Errorf("node%d ended while starting:\n%s", g.node, l.console(g))
		case <-ctx.Done():
			return fmt.Errorf("node%d does not answer: %w\n%s", g.node, err, l.console(g))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// console is the end of what a node and its QEMU printed.
func (l *lab) console(g *guest) string {
	var b strings.Builder
	for _, name := range []string{"qemu.log", "console.log"} {
		text, err := os.ReadFile(filepath.Join(g.dir, name))
		if err == nil && len(text) > 0 {
			fmt.Fprintf(&b, "--- %s\n%s\n", name, tail(text, 2000))
		}
	}
	return b.String()
}

// writeShare fills the folder that the nodes see as /lab: keys of this lab
// alone, the first script, and the program under test.
func (l *lab) writeShare(n int, fabrun string) error {
	var err error
	if l.user, err = newKey(); err != nil {
		return err
	}
	files := map[string]string{
		"init": nodeScript, "ssh/sshd_config": sshdConfig,
		"ssh/user_key": l.user.private, "ssh/authorized_keys": l.user.public + "\n",
	}
	var known strings.Builder
	for i := 1; i <= n; i++ {
		k, err := newKey()
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, k)
		files[fmt.Sprintf("ssh/host_key_%d", i)] = k.private
		fmt.Fprintf(&known, "node%d,%s %s\n", i, addr(0, i), k.public)
	}
	files["ssh/known_hosts"] = known.String()
	for name, text := range files {
		path := filepath.Join(l.share(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	// For whoever enters from outside: the same key, and the names of the ports.
	if err := os.WriteFile(filepath.Join(l.dir, "key"), []byte(l.user.private), 0o600); err != nil {
		return err
	}
	if fabrun == "" {
		return nil
	}
	text, err := os.ReadFile(fabrun)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.share(), "bin"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.share(), "bin", "fabrun"), text, 0o755)
}

// close ends the nodes and removes every trace.
func (l *lab) close() error {
	for _, g := range l.guests {
		if g.cmd != nil {
			g.powerOff()
		}
	}
	var errs []error
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// dial opens an ssh connection to a node; its host key is checked.
func (l *lab) dial(node int, deadline time.Duration) (*ssh.Client, error) {
	g := l.guests[node-1]
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", g.port), deadline)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		return nil, err
	}
	c, chans, reqs, err := ssh.NewClientConn(conn, fmt.Sprintf("node%d", node), &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(l.user.signer)},
		HostKeyCallback: ssh.FixedHostKey(l.hosts[node-1].signer.PublicKey()),
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// result is a command that ran on a node.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("exit %d after %.1f s\n--- stdout\n%s\n--- stderr\n%s", r.code, r.took.Seconds(), r.stdout, r.stderr)
}

// run runs a shell command on a node and waits for its end, at most until the
// deadline; code is -1 where there is no status.
func (l *lab) run(ctx context.Context, node int, command string) (result, error) {
	begin := time.Now()
	c, err := l.dial(node, 30*time.Second)
	if err != nil {
		return result{code: -1}, fmt.Errorf("ssh node%d: %w", node, err)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		return result{code: -1}, err
	}
	defer s.Close()
	var stdout, stderr bytes.Buffer
	s.Stdout, s.Stderr = &stdout, &stderr
	if err := s.Start(command); err != nil {
		return result{code: -1}, err
	}
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	res := result{code: -1}
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
		//nolint:errcheck // the connection is closed next, which ends what listens to it
		_ = s.Signal(ssh.SIGTERM)
		c.Close()
		<-done
	}
	res.stdout, res.stderr, res.took = stdout.String(), stderr.String(), time.Since(begin)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		res.code = 0
	case errors.As(err, &exit):
		res.code, err = exit.ExitStatus(), nil
	default:
		err = fmt.Errorf("node%d: %s: %w\n%s", node, command, err, res)
	}
	return res, err
}
