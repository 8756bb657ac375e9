package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// startSSHD starts one sshd, which ends with this program, and writes an
// ssh_config in which h01 to h64 are this machine. Its MaxStartups is the same
// for all who come.
func startSSHD(dir, _ string) error {
	const sshd = "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		return err
	}
	for _, key := range []string{"host", "id"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	hostKey, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		return fmt.Errorf("sshd wants /run/sshd: %w", err)
	}
	for name, text := range map[string]string{
		"sshd_config": fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %[2]s/host\nPidFile none\nAuthorizedKeysFile %[2]s/id.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nMaxStartups 1000\nLogLevel ERROR\n", port, dir),
		"known_hosts": "* " + string(hostKey),
		"ssh_config":  fmt.Sprintf("Host h*\n  HostName 127.0.0.1\n  Port %d\n  IdentityFile %[2]s/id\n  IdentitiesOnly yes\n  UserKnownHostsFile %[2]s/known_hosts\n  LogLevel ERROR\n", port, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	c := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread ends that started the child.
		runtime.LockOSThread()
		started <- c.Start()
		select {}
	}()
	if err := <-started; err != nil {
		return err
	}
	for range 200 {
		if conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("sshd does not answer")
}
