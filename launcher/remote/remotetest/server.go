// Package remotetest has ssh servers for tests, as net/http/httptest has web
// servers: Server answers inside the test's process and can misbehave in every
// known way; OpenSSH starts the machine's real sshd for one test.
package remotetest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// Fault is how a Server misbehaves.
type Fault string

// The faults.
const (
	None        Fault = ""
	HangAccept  Fault = "hang after accept"    // not one byte is sent
	HangBanner  Fault = "banner, then nothing" // the version line, no key exchange
	HangSession Fault = "no session"           // logged in, channel requests unanswered
	HangCommand Fault = "no output"            // the command never ends
	Drop        Fault = "drop mid-stream"      // half the output, then the connection is cut
	Flood       Fault = "flood"                // output without end
	WrongKey    Fault = "wrong host key"
	NoLogin     Fault = "no login" // every key is refused
	Garbage     Fault = "not ssh"
	Silent      Fault = "silent" // the command begins, then nothing is answered any more: a host that lost its power
)

// Server is an ssh server that answers every command with Reply.
type Server struct {
	Addr     string // 127.0.0.1:port
	Port     int
	HostKey  ssh.PublicKey
	Commands func() []string // command lines seen

	answered atomic.Int64 // global requests
	mu       sync.Mutex
	commands []string
	done     chan struct{}
}

// Answered is how many global requests the server has answered; keepalives are such.
func (s *Server) Answered() int { return int(s.answered.Load()) }

// NewServer starts a server with a fault; it ends with the test.
func NewServer(tb testing.TB, addr string, hostKey ssh.Signer, fault Fault, reply func(line string) (stdout string, status uint32)) *Server {
	tb.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), Port: l.Addr().(*net.TCPAddr).Port, HostKey: hostKey.PublicKey(), done: make(chan struct{})}
	s.Commands = func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return append([]string(nil), s.commands...)
	}
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		if fault == NoLogin {
			return nil, fmt.Errorf("no")
		}
		return nil, nil
	}}
	key := hostKey
	if fault == WrongKey {
		key = NewKey(tb)
	}
	cfg.AddHostKey(key)
	var conns sync.Map
	tb.Cleanup(func() {
		close(s.done)
		_ = l.Close()
		conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(c, true)
			go s.serve(c, cfg, fault, reply)
		}
	}()
	return s
}

func (s *Server) serve(c net.Conn, cfg *ssh.ServerConfig, fault Fault, reply func(string) (string, uint32)) {
	defer c.Close()
	switch fault {
	case HangAccept:
		<-s.done
		return
	case HangBanner:
		_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
		<-s.done
		return
	case Garbage:
		_, _ = c.Write([]byte(strings.Repeat("HTTP/1.1 400 Bad Request ", 20)))
		_, _ = io.Copy(io.Discard, c)
		return
	}
	sc, chans, reqs, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return
	}
	defer sc.Close()
	go func() {
		for r := range reqs {
			if r.WantReply && fault != Silent {
				_ = r.Reply(false, nil)
				s.answered.Add(1)
			}
		}
	}()
	for nc := range chans {
		if fault == HangSession {
			<-s.done
			return
		}
		ch, creqs, err := nc.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range creqs {
				if r.Type != "exec" {
					if r.WantReply {
						_ = r.Reply(false, nil)
					}
					continue
				}
				var p struct{ Line string }
				_ = ssh.Unmarshal(r.Payload, &p)
				s.mu.Lock()
				s.commands = append(s.commands, p.Line)
				s.mu.Unlock()
				_ = r.Reply(true, nil)
				go s.answer(c, ch, fault, p.Line, reply)
			}
		}()
	}
}

func (s *Server) answer(c net.Conn, ch ssh.Channel, fault Fault, line string, reply func(string) (string, uint32)) {
	out, status := reply(line)
	switch fault {
	case HangCommand, Silent:
		<-s.done
		return
	case Drop:
		_, _ = ch.Write([]byte(out[:len(out)/2]))
		_ = c.Close()
		return
	case Flood:
		block := []byte(strings.Repeat("x", 32<<10))
		for {
			if _, err := ch.Write(block); err != nil {
				return
			}
		}
	}
	_, _ = ch.Write([]byte(out))
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
	_ = ch.Close()
}

// NewKey makes an ed25519 key.
func NewKey(tb testing.TB) ssh.Signer {
	tb.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// NewKeyFile writes a new private key and returns it.
func NewKeyFile(tb testing.TB, path string) ssh.Signer {
	tb.Helper()
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		tb.Fatal(err)
	}
	s, _ := ssh.NewSignerFromKey(priv)
	for p, text := range map[string][]byte{path: pem.EncodeToMemory(block), path + ".pub": ssh.MarshalAuthorizedKey(s.PublicKey())} {
		if err := os.WriteFile(p, text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// OpenSSH is a running sshd of this machine.
type OpenSSH struct {
	Dir        string
	Port       int
	Identity   string // private key file that may log in
	KnownHosts string // file with the host key for every name
	HostKey    ssh.Signer
	Log        func() string // what sshd has said so far
}

// NewOpenSSH starts the machine's sshd on every loopback address at a free
// port, with its own host key and one key that may log in as this user. It
// skips the test where there is no sshd. config is added to sshd_config.
func NewOpenSSH(tb testing.TB, config ...string) *OpenSSH {
	tb.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		tb.Skip("no sshd on this machine")
	}
	// sshd refuses keys below folders that others may write, such as the test's own.
	dir, err := os.MkdirTemp("/run", "fabrun-sshd-")
	if err != nil {
		tb.Skipf("sshd needs a folder that only root writes: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.MkdirAll("/run/sshd", 0o755)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	o := &OpenSSH{Dir: dir, Port: port, Identity: filepath.Join(dir, "id"), KnownHosts: filepath.Join(dir, "known_hosts")}
	o.HostKey = NewKeyFile(tb, filepath.Join(dir, "host"))
	NewKeyFile(tb, o.Identity)
	pub, _ := os.ReadFile(o.Identity + ".pub")
	lines := append([]string{
		"Port " + fmt.Sprint(port), "ListenAddress 0.0.0.0", "HostKey " + filepath.Join(dir, "host"), "PidFile none",
		"AuthorizedKeysFile " + filepath.Join(dir, "authorized_keys"), "StrictModes no", "PermitRootLogin yes",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "UsePAM no", "MaxStartups 1000", "MaxSessions 20",
	}, append(config, "LogLevel ERROR")...) // of a keyword said twice the first counts
	for p, text := range map[string]string{
		"authorized_keys": string(pub), "sshd_config": strings.Join(lines, "\n") + "\n",
		"known_hosts": "* " + string(ssh.MarshalAuthorizedKey(o.HostKey.PublicKey())),
	} {
		if err := os.WriteFile(filepath.Join(dir, p), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer logFile.Close()
	o.Log = func() string {
		text, _ := os.ReadFile(logFile.Name())
		return string(text)
	}
	c := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	c.Stderr = logFile
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	tb.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			_ = conn.Close()
			return o
		}
		select {
		case <-ended:
			tb.Skipf("sshd does not start here: %s", o.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
