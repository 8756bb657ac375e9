package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"fabrun/launcher/remote/remotetest"
)

// lazyAgent lists its keys and never signs.
type lazyAgent struct {
	agent.Agent
	end chan struct{}
}

func (a lazyAgent) Sign(ssh.PublicKey, []byte) (*ssh.Signature, error) {
	<-a.end
	return nil, os.ErrDeadlineExceeded
}

// TestAgentThatNeverAnswers: an agent that accepts and says nothing costs its
// deadline, after which key files are tried; one that never signs costs the
// login's deadline; and whoever waits can be told to end.
func TestAgentThatNeverAnswers(t *testing.T) {
	dir, err := os.MkdirTemp("", "agent") // not t.TempDir: at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	keyring := agent.NewKeyring()
	hostKey := remotetest.NewKeyFile(t, filepath.Join(dir, "host"))
	remotetest.NewKeyFile(t, filepath.Join(dir, "id"))
	text, err := os.ReadFile(filepath.Join(dir, "id"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	listen := func(name string, serve func(net.Conn)) string {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		return l.Addr().String()
	}
	silent := listen("silent", func(net.Conn) { <-end })
	lazy := listen("lazy", func(c net.Conn) { _ = agent.ServeAgent(lazyAgent{keyring, end}, c) })
	s := remotetest.NewServer(t, "127.0.0.1:0", hostKey, remotetest.None, func(string) (string, uint32) { return "hi\n", 0 })
	open := func(o NativeOptions) Transport {
		o.Home, o.LocalUser, o.ConfigFiles, o.Port, o.Insecure = dir, "root", []string{}, s.Port, true
		tr, _ := NewNative(o)
		t.Cleanup(func() { _ = tr.Close() })
		return tr
	}
	hi := Command{Argv: []string{"true"}}

	tr := open(NativeOptions{AgentSocket: silent, AgentTimeout: 50 * time.Millisecond, IdentityFiles: []string{filepath.Join(dir, "id")}})
	if _, err := tr.Exec(t.Context(), "127.0.0.1", hi, Streams{}); err != nil {
		t.Errorf("with a key file beside an agent that is silent: %v", err)
	}
	tr = open(NativeOptions{AgentSocket: lazy, DialTimeout: 200 * time.Millisecond})
	if _, err := tr.Exec(t.Context(), "127.0.0.1", hi, Streams{}); CauseOf(err) != Timeout {
		t.Errorf("an agent that never signs: %v, want timeout", err)
	}
	for name, socket := range map[string]string{"silent": silent, "lazy": lazy} {
		tr := open(NativeOptions{AgentSocket: socket, AgentTimeout: time.Hour, DialTimeout: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := tr.Exec(ctx, "127.0.0.1", hi, Streams{}); CauseOf(err) != Canceled {
			t.Errorf("%s, told to end: %v, want canceled", name, err)
		}
	}
}

// TestHostThatIsOff: a host whose packets are lost costs the time of a connection,
// not that of a login.
func TestHostThatIsOff(t *testing.T) {
	// A listener whose queue is full loses what comes next.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*syscall.SockaddrInet4).Port
	full := false
	for range 16 {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 100*time.Millisecond)
		if err != nil {
			full = true
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if !full {
		t.Skip("this kernel's queue takes more")
	}
	tr, _ := NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: port, Insecure: true, ConnectTimeout: 50 * time.Millisecond, DialTimeout: time.Hour})
	defer tr.Close()
	if _, err := tr.Exec(t.Context(), "127.0.0.1", Command{Argv: []string{"true"}}, Streams{}); CauseOf(err) != Timeout {
		t.Errorf("%v, want timeout", err)
	}
}
