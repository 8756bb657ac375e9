package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// NativeOptions configure fabrun's own ssh client. The caller gives what the
// process knows (home, user, agent): nothing is read from the environment here.
type NativeOptions struct {
	Home           string        // whose .ssh is read
	LocalUser      string        // the login name where nothing else says one
	AgentSocket    string        // SSH_AUTH_SOCK; "" none
	ConfigFiles    []string      // nil: Home/.ssh/config and /etc/ssh/ssh_config
	User           string        // goes before ssh_config
	Port           int           // likewise; 0 not said
	IdentityFiles  []string      // tried first
	KnownHosts     []string      // instead of the usual files
	Insecure       bool          // the user said not to look at host keys
	AgentTimeout   time.Duration // for the agent to list its keys; 0: 3 s
	ConnectTimeout time.Duration // of TCP, where ssh_config says none; 0: 5 s
	DialTimeout    time.Duration // until the login is through; 0: 15 s, and never past the caller's deadline
}

// native keeps one connection per host for its life.
type native struct {
	o       NativeOptions
	configs []sshFile
	notes   []string

	mu    sync.Mutex
	conns map[string]*conn
	known map[string]*knownHosts
	keys  map[string]keyFile
}

// conn is one host's connection, made once for all who wait for it. A host
// that failed is not asked again: it costs its deadline once.
type conn struct {
	ready  chan struct{}
	client *ssh.Client
	err    error
	ended  chan struct{} // closed when client has ended; nil where none was made
}

// NewNative returns fabrun's own ssh client and what it passed over in ssh_config.
func NewNative(o NativeOptions) (Transport, []string) {
	t := &native{o: o, conns: map[string]*conn{}, known: map[string]*knownHosts{}, keys: map[string]keyFile{}}
	t.configs, t.notes = readConfigs(o)
	return t, t.notes
}

func (t *native) Name() string { return "native" }

func (t *native) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		select {
		case <-c.ready:
			c.close()
		default:
		}
	}
	t.conns = map[string]*conn{}
	return nil
}

func (c *conn) close() {
	if c.client != nil {
		_ = c.client.Close()
	}
}

func (t *native) Exec(ctx context.Context, host string, cmd Command, s Streams) (int, error) {
	if err := checkHost(host); err != nil {
		return -1, &HostError{Host: fmt.Sprintf("%q", host), Cause: BadName, Err: err}
	}
	line, err := shellLine(cmd)
	if err != nil {
		return -1, &HostError{Host: host, Cause: LocalTransport, Err: err}
	}
	c, fresh, err := t.connect(ctx, host)
	if err != nil {
		return -1, hostError(ctx, host, err)
	}
	sess, err := newSession(ctx, c.client)
	if err != nil && !fresh && ctx.Err() == nil {
		// The connection we kept is gone, or full (MaxSessions): one more try on a new one.
		t.forget(host, c)
		if c, _, err = t.connect(ctx, host); err == nil {
			sess, err = newSession(ctx, c.client)
		}
	}
	if err != nil {
		return -1, hostError(ctx, host, err)
	}
	defer sess.Close()
	sess.Stdout, sess.Stderr = orDiscard(s.Stdout), orDiscard(s.Stderr)
	var hold io.WriteCloser
	if cmd.Stdin != nil {
		sess.Stdin = cmd.Stdin
	} else if hold, err = sess.StdinPipe(); err != nil {
		return -1, hostError(ctx, host, err)
	}
	stop := context.AfterFunc(ctx, func() {
		// The signal reaches sshd 7.9 and later; the life-line all of them.
		// Both are written to a connection that may hang: then it is closed.
		kill := time.AfterFunc(500*time.Millisecond, func() { t.forget(host, c); c.close() })
		_ = sess.Signal(ssh.SIGTERM)
		if hold != nil {
			_ = hold.Close()
		}
		_ = sess.Close()
		kill.Stop()
	})
	defer stop()
	type end struct{ err error }
	ended := make(chan end, 1)
	go func() {
		if err := sess.Start(line); err != nil {
			ended <- end{err}
			return
		}
		ended <- end{sess.Wait()}
	}()
	var e end
	select {
	case e = <-ended:
	case <-ctx.Done():
		// Output still on its way is waited for, briefly.
		select {
		case e = <-ended:
		case <-time.After(time.Second):
			t.forget(host, c)
			c.close()
			<-ended
		}
		return -1, contextError(ctx, host)
	}
	if ctx.Err() != nil {
		return -1, contextError(ctx, host)
	}
	return endOf(ctx, host, e.err)
}

// endOf is the status of a command by how its session ended.
func endOf(ctx context.Context, host string, err error) (int, error) {
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if exit.Signal() != "" {
			return 128 + signalNumber(exit.Signal()), nil
		}
		return exit.ExitStatus(), nil
	case errors.As(err, &missing):
		return -1, &HostError{Host: host, Cause: Dropped, Err: errors.New("the connection ended before the command did")}
	default:
		return -1, hostError(ctx, host, err)
	}
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

func signalNumber(name string) int {
	for _, s := range []struct {
		name string
		sig  syscall.Signal
	}{
		{"HUP", syscall.SIGHUP},
		{"INT", syscall.SIGINT},
		{"QUIT", syscall.SIGQUIT},
		{"ILL", syscall.SIGILL},
		{"ABRT", syscall.SIGABRT},
		{"FPE", syscall.SIGFPE},
		{"KILL", syscall.SIGKILL},
		{"SEGV", syscall.SIGSEGV},
		{"PIPE", syscall.SIGPIPE},
		{"ALRM", syscall.SIGALRM},
		{"TERM", syscall.SIGTERM},
		{"USR1", syscall.SIGUSR1},
		{"USR2", syscall.SIGUSR2},
		{"BUS", syscall.SIGBUS},
	} {
		if s.name == strings.SplitN(name, "@", 2)[0] {
			return int(s.sig)
		}
	}
	return 127
}

// newSession opens a channel, and gives up with ctx: a peer that is half gone
// never answers.
func newSession(ctx context.Context, c *ssh.Client) (*ssh.Session, error) {
	type opened struct {
		s   *ssh.Session
		err error
	}
	ch := make(chan opened, 1)
	go func() {
		s, err := c.NewSession()
		ch <- opened{s, err}
	}()
	select {
	case o := <-ch:
		return o.s, o.err
	case <-ctx.Done():
		go func() {
			if o := <-ch; o.s != nil {
				_ = o.s.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// forget drops c, so that the next caller connects anew.
func (t *native) forget(host string, c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns[host] == c {
		delete(t.conns, host)
	}
}

// connect returns host's connection and whether this call made it.
func (t *native) connect(ctx context.Context, host string) (*conn, bool, error) {
	return t.shared(ctx, host, func(ctx context.Context, c *conn) error { return t.dial(ctx, host, c) })
}

// shared returns the connection of that name, made once for all who ask.
func (t *native) shared(ctx context.Context, name string, dial func(context.Context, *conn) error) (*conn, bool, error) {
	t.mu.Lock()
	c, ok := t.conns[name]
	if ok && c.gone() {
		ok = false
	}
	if !ok {
		c = &conn{ready: make(chan struct{})}
		t.conns[name] = c
	}
	t.mu.Unlock()
	if ok {
		select {
		case <-c.ready:
			return c, false, c.err
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	timeout := t.o.DialTimeout
	if timeout <= 0 {
		timeout = 15 * time.Second
	}
	dctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.err = dial(dctx, c)
	if c.err != nil {
		c.close()
		c.err = hostError(dctx, name, c.err)
		if CauseOf(c.err) == Canceled {
			t.forget(name, c) // our own doing, not the host's
		}
	} else {
		c.ended = make(chan struct{})
		go func() {
			_ = c.client.Wait()
			close(c.ended)
		}()
	}
	close(c.ready)
	return c, true, c.err
}

// gone says whether a connection that was made has ended since.
func (c *conn) gone() bool {
	select {
	case <-c.ready:
	default:
		return false
	}
	if c.ended == nil {
		return false
	}
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (t *native) dial(ctx context.Context, alias string, c *conn) error {
	tg, err := t.resolve(alias)
	if err != nil {
		return err
	}
	c.client, err = t.dialTarget(ctx, tg)
	return err
}

func (t *native) dialTarget(ctx context.Context, tg target) (*ssh.Client, error) {
	if tg.connect > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tg.connect)
		defer cancel()
	}
	nc, err := t.reach(ctx, tg)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	auth, closeAuth := t.authMethods(ctx, tg)
	defer closeAuth()
	known := t.knownFor(tg.known, tg.revoked)
	name := tg.knownName()
	cfg := &ssh.ClientConfig{
		User:              tg.user,
		Auth:              []ssh.AuthMethod{auth},
		HostKeyAlgorithms: known.algorithms(name),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			added, err := known.check(tg.alias, name, key, tg.policy)
			if added != "" && tg.save != "" {
				// A file that cannot be written asks again the next time, as for ssh.
				_ = saveKnown(tg.save, added, tg.hashKnown)
			}
			return err
		},
	}
	sc, chans, reqs, err := ssh.NewClientConn(nc, net.JoinHostPort(tg.host, tg.port), cfg)
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = ctx.Err() // the connection was closed under it
		}
		return nil, err
	}
	client := ssh.NewClient(sc, chans, reqs)
	go keepAlive(client, tg.alive, tg.aliveMax)
	return client, nil
}

// reach makes the byte stream: directly, through jump hosts, or a ProxyCommand.
func (t *native) reach(ctx context.Context, tg target) (net.Conn, error) {
	addr := net.JoinHostPort(tg.host, tg.port)
	switch {
	case len(tg.jumps) > 0:
		client, err := t.jump(ctx, tg)
		if err != nil {
			return nil, err
		}
		nc, err := client.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, throughJump(tg, err)
		}
		return nc, nil
	case tg.proxy != "":
		return proxyConn(tg.proxy)
	}
	// Two lost SYNs: a host that has not answered then is off, and a thousand such
	// hosts must not cost a login's deadline each.
	d := net.Dialer{KeepAlive: 30 * time.Second, Timeout: cmp.Or(tg.connect, t.o.ConnectTimeout, 5*time.Second)}
	return d.DialContext(ctx, tg.family, addr)
}

// jump is the connection to the last jump host before tg. All hosts behind the
// same jump hosts share it: a gateway in front of a cluster would refuse a
// login per node (sshd's MaxStartups).
func (t *native) jump(ctx context.Context, tg target) (*ssh.Client, error) {
	word, before := tg.jumps[len(tg.jumps)-1], tg.jumps[:len(tg.jumps)-1]
	name := "ProxyJump " + strings.Join(tg.jumps, ",")
	// A jump host that is to be reached through itself would wait for itself.
	way, _ := ctx.Value(jumpWay{}).([]string)
	if slices.Contains(way, name) || len(way) >= maxJumps {
		return nil, &HostError{Host: tg.alias, Cause: LocalTransport, Err: fmt.Errorf("ProxyJump leads through %s again", word), Hint: "look at ProxyJump in ssh_config: 'Host * !" + word + "' leaves the jump host out"}
	}
	ctx = context.WithValue(ctx, jumpWay{}, append(way[:len(way):len(way)], name))
	c, _, err := t.shared(ctx, name, func(ctx context.Context, c *conn) error {
		jump, err := t.jumpTarget(word)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			jump.jumps, jump.proxy = before, ""
		}
		c.client, err = t.dialTarget(ctx, jump)
		return err
	})
	if err != nil {
		var he *HostError
		if errors.As(err, &he) {
			return nil, &HostError{Host: tg.alias, Cause: he.Cause, Err: fmt.Errorf("jump host %s: %w", word, he.Err), Hint: he.Hint}
		}
		return nil, fmt.Errorf("jump host %s: %w", word, err)
	}
	return c.client, nil
}

// jumpWay is the context's key of the jump hosts that a connection is being
// made through, and maxJumps bounds them.
type jumpWay struct{}

const maxJumps = 8

// throughJump reads why a jump host did not connect further (RFC 4254, 5.1).
func throughJump(tg target, err error) error {
	var open *ssh.OpenChannelError
	if !errors.As(err, &open) {
		return err
	}
	e := &HostError{Host: tg.alias, Cause: Unreachable, Err: fmt.Errorf("jump host %s: %s", tg.jumps[len(tg.jumps)-1], open.Message)}
	switch {
	case open.Reason == ssh.Prohibited:
		e.Cause, e.Hint = Protocol, "its sshd forbids forwarding (AllowTcpForwarding)"
	case strings.Contains(open.Message, "refused"):
		e.Cause = Refused
	case strings.Contains(open.Message, "resolve") || strings.Contains(open.Message, "not known"):
		e.Cause = UnknownHost
	case strings.Contains(open.Message, "timed out"):
		e.Cause = Timeout
	}
	return e
}

// jumpTarget reads one word of ProxyJump: [user@]host[:port], or an ssh:// URI.
func (t *native) jumpTarget(word string) (target, error) {
	word = strings.TrimPrefix(word, "ssh://")
	user, rest := splitUser(word)
	host, port := rest, ""
	if h, p, err := net.SplitHostPort(rest); err == nil {
		host, port = h, p
	}
	if err := checkHost(host); err != nil {
		return target{}, &HostError{Host: host, Cause: BadName, Err: fmt.Errorf("in ProxyJump: %w", err)}
	}
	// Port and user given for the job's hosts are not the jump host's.
	own := &native{o: t.o, configs: t.configs}
	own.o.Port, own.o.User = 0, ""
	tg, err := own.resolve(host)
	if err != nil {
		return tg, err
	}
	if user != "" {
		tg.user = user
	}
	if port != "" {
		tg.port = port
	}
	return tg, nil
}

// keepAlive closes a connection whose other end stopped answering.
func keepAlive(c *ssh.Client, every time.Duration, most int) {
	gone := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(gone)
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	waiting, missed := false, 0
	for {
		select {
		case <-gone:
			return
		case <-answered:
			waiting, missed = false, 0
		case <-tick.C:
			if waiting {
				if missed++; missed >= most {
					_ = c.Close()
					return
				}
				continue
			}
			waiting = true
			go func() {
				// The request is unknown to the server; that it answers is what counts.
				if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err == nil {
					answered <- struct{}{}
				}
			}()
		}
	}
}

func (t *native) knownFor(files []string, revoked string) *knownHosts {
	key := strings.Join(append(slices.Clone(files), revoked), "\x00")
	t.mu.Lock()
	defer t.mu.Unlock()
	if k, ok := t.known[key]; ok {
		return k
	}
	k := &knownHosts{}
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil {
			k.add(f, text)
		}
	}
	if revoked != "" {
		k.revoke(revoked)
	}
	t.known[key] = k
	return k
}

// keyFile is a private key as read, once.
type keyFile struct {
	signer ssh.Signer
	public ssh.PublicKey // also of a key that is encrypted: the agent may hold it
}

// authMethods offers, as ssh does: the keys named, from the agent where it has
// them, then the agent's other keys. Passwords are never asked for.
func (t *native) authMethods(ctx context.Context, tg target) (ssh.AuthMethod, func()) {
	var fromAgent []ssh.Signer
	closer := func() {}
	if tg.agent != "" {
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", tg.agent); err == nil {
			// One that never answers must not hold up a login by key files, nor,
			// where it is asked to sign later, outlive the login's deadline.
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			closer = func() { stop(); _ = c.Close() }
			_ = c.SetDeadline(time.Now().Add(t.agentWait()))
			if ss, err := agent.NewClient(c).Signers(); err == nil {
				fromAgent = ss
			}
			_ = c.SetDeadline(time.Time{})
		}
	}
	var signers []ssh.Signer
	seen := map[string]bool{}
	add := func(s ssh.Signer) {
		k := string(s.PublicKey().Marshal())
		if !seen[k] {
			seen[k] = true
			signers = append(signers, s)
		}
	}
	certs := t.certificates(tg)
	for _, f := range tg.identities {
		k := t.readKey(f)
		signer := k.signer
		if signer == nil && k.public != nil {
			for _, s := range fromAgent {
				if keysEqual(s.PublicKey(), k.public) {
					signer = s
				}
			}
		}
		if signer == nil {
			continue
		}
		for _, c := range append(certs, t.readCert(f+"-cert.pub")...) {
			if keysEqual(c.Key, signer.PublicKey()) {
				if cs, err := ssh.NewCertSigner(c, signer); err == nil {
					add(cs)
				}
			}
		}
		add(signer)
	}
	for _, s := range fromAgent {
		for _, c := range certs {
			if keysEqual(c.Key, s.PublicKey()) {
				if cs, err := ssh.NewCertSigner(c, s); err == nil {
					add(cs)
				}
			}
		}
		if !tg.onlyThese {
			add(s)
		}
	}
	return ssh.PublicKeys(signers...), closer
}

func (t *native) agentWait() time.Duration {
	if t.o.AgentTimeout > 0 {
		return t.o.AgentTimeout
	}
	return 3 * time.Second
}

func (t *native) readKey(file string) keyFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k, ok := t.keys[file]; ok {
		return k
	}
	var k keyFile
	if text, err := os.ReadFile(file); err == nil {
		if s, err := ssh.ParsePrivateKey(text); err == nil {
			k.signer, k.public = s, s.PublicKey()
		}
	}
	if k.public == nil {
		for _, f := range []string{file + ".pub", file} {
			if text, err := os.ReadFile(f); err == nil {
				if p, _, _, _, err := ssh.ParseAuthorizedKey(text); err == nil {
					k.public = p
					break
				}
			}
		}
	}
	t.keys[file] = k
	return k
}

func (t *native) certificates(tg target) []*ssh.Certificate {
	var out []*ssh.Certificate
	for _, f := range tg.certs {
		out = append(out, t.readCert(f)...)
	}
	return out
}

func (t *native) readCert(file string) []*ssh.Certificate {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	p, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	if c, ok := p.(*ssh.Certificate); ok {
		return []*ssh.Certificate{c}
	}
	return nil
}

// proxyConn runs a ProxyCommand. It is the user's own configuration, and ssh
// gives it to the shell too; the host in it has been checked.
func proxyConn(command string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c := exec.Command("/bin/sh", "-c", "exec "+command) //nolint:gosec // ssh_config's own line
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("ProxyCommand: %w", err)
	}
	go func() {
		_, _ = io.Copy(stdin, theirs)
		_ = stdin.Close()
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	}()
	go func() {
		_, _ = io.Copy(theirs, stdout)
		_ = theirs.Close()
		_ = c.Wait()
	}()
	return ours, nil
}

// nonce is a name that nobody can guess, for files made on other hosts.
func nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x", b)
}
