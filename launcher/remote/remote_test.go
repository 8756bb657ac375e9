package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/remote/remotetest"

	"fabrun/testdata/wait"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
)

// nasty are arguments that shells would take apart.
var nasty = []string{"", "a b", "'", `"`, "$HOME", "`id`", `\`, `\'`, "!x", "a\nb", "*", "-n", "é", "\t", "#", "a;b", "~", "%s", `\0101`, "a\n\n"}

func TestShellLineKeepsArguments(t *testing.T) {
	for _, sh := range []string{"sh", "bash", "dash", "ksh", "csh", "tcsh", "fish", "zsh"} {
		path, err := exec.LookPath(sh)
		if err != nil {
			t.Logf("no %s here", sh)
			continue
		}
		for _, stdin := range []bool{false, true} {
			cmd := Command{Argv: append([]string{"/usr/bin/printf", `<%s>`}, nasty...), Env: []string{"A=x 'y'"}, Dir: "/"}
			if stdin {
				cmd.Stdin = strings.NewReader("")
			}
			line, err := shellLine(cmd)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			c := exec.Command(path, "-c", line)
			c.Stdout = &out
			in, _ := c.StdinPipe()
			if err := c.Run(); err != nil {
				t.Errorf("%s: %v", sh, err)
			}
			_ = in.Close()
			if diff := cmp.Diff("<"+strings.Join(nasty, "><")+">", out.String()); diff != "" {
				t.Errorf("%s -c %q: -want +got\n%s", sh, line, diff)
			}
		}
	}
}

func FuzzShellLine(f *testing.F) {
	for _, n := range nasty {
		f.Add(n, "v")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		line, err := shellLine(Command{Argv: []string{"/usr/bin/printf", "%s|%s", a, b}, Stdin: strings.NewReader("")})
		if err != nil {
			return
		}
		out, err := exec.Command("/bin/sh", "-c", line).Output()
		if err != nil || string(out) != a+"|"+b {
			t.Fatalf("%q %q through %q: %q, %v", a, b, line, out, err)
		}
	})
}

func TestHostNamesThatAreOptions(t *testing.T) {
	for _, h := range []string{"", "-oProxyCommand=id", "a b", "a;b", "$(id)", "root@-x", "a\nb", strings.Repeat("a", 300)} {
		for _, tr := range []Transport{NewSSH(SSHOptions{}), must(NewNative(NativeOptions{})), NewSrun(SrunOptions{})} {
			if _, err := tr.Exec(t.Context(), h, Command{Argv: []string{"true"}}, Streams{}); CauseOf(err) != BadName {
				t.Errorf("%s %q: got %v, want bad-name", tr.Name(), h, err)
			}
		}
	}
}

func must(t Transport, _ []string) Transport { return t }

func transports(t *testing.T, o *remotetest.OpenSSH) []Transport {
	return []Transport{
		must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: o.Port, IdentityFiles: []string{o.Identity}, KnownHosts: []string{o.KnownHosts}})),
		NewSSH(SSHOptions{Port: o.Port, User: "root", IdentityFiles: []string{o.Identity}, KnownHosts: []string{o.KnownHosts}, ConfigFile: "/dev/null"}),
	}
}

func TestRealSSHD(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	for _, tr := range append(transports(t, o), NewLocal()) {
		t.Run(tr.Name(), func(t *testing.T) {
			defer tr.Close()
			r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"/bin/sh", "-c", `echo "$A"; pwd; echo err >&2; exit 3`}, Env: []string{"A=it's $B!"}, Dir: "/usr"}, Options{})
			if r.Err != nil || r.Status != 3 || string(r.Stdout) != "it's $B!\n/usr\n" || !strings.HasSuffix(string(r.Stderr), "err\n") {
				t.Errorf("got %d %q %q %v", r.Status, r.Stdout, r.Stderr, r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"cat"}, Stdin: strings.NewReader("in\x00put")}, Options{})
			if string(r.Stdout) != "in\x00put" || r.Status != 0 {
				t.Errorf("stdin: got %d %q %v", r.Status, r.Stdout, r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"cat"}}, Options{})
			if r.Status != 0 || r.Err != nil {
				t.Errorf("a command that reads its empty input: %d %v", r.Status, r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"/no/such/program"}}, Options{})
			if CauseOf(r.Err) != NoSuchFile || !strings.Contains(r.Err.Error(), "127.0.0.1") {
				t.Errorf("missing program: %v", r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"/etc/passwd"}}, Options{})
			if CauseOf(r.Err) != NotExecutable {
				t.Errorf("no program: %v", r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"/bin/sh", "-c", "kill -TERM $$"}}, Options{})
			if r.Status != 143 {
				t.Errorf("signal: %d %v", r.Status, r.Err)
			}
			r = Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"yes"}}, Options{MaxOutput: 100000})
			if CauseOf(r.Err) != OutputLimit || len(r.Stdout) != 100000 {
				t.Errorf("flood: %d bytes, %v", len(r.Stdout), r.Err)
			}
		})
	}
}

func TestCancellationEndsTheRemoteProcess(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	for _, tr := range append(transports(t, o), NewLocal()) {
		t.Run(tr.Name(), func(t *testing.T) {
			defer tr.Close()
			s := Stream(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"/bin/sh", "-c", "sleep 1000 & echo $$ $!; wait"}})
			var shell, child int
			if _, err := fmt.Fscan(s.Stdout, &shell, &child); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, s.Stderr) }()
			_ = s.Close()
			for _, pid := range []int{shell, child} {
				wait.For(t, fmt.Sprintf("the end of process %d", pid), func() bool {
					text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					return err != nil || strings.Contains(string(text), ") Z ")
				})
			}
			if _, err := s.Wait(); CauseOf(err) != Canceled {
				t.Errorf("got %v, want canceled", err)
			}
		})
	}
}

func TestCauses(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	empty := filepath.Join(t.TempDir(), "empty")
	_ = os.WriteFile(empty, nil, 0o600)
	other := filepath.Join(t.TempDir(), "other")
	_ = os.WriteFile(other, append([]byte("* "), ssh.MarshalAuthorizedKey(remotetest.NewKey(t).PublicKey())...), 0o600)
	stranger := filepath.Join(t.TempDir(), "id")
	remotetest.NewKeyFile(t, stranger)
	for _, tc := range []struct {
		name       string
		host, id   string
		known      string
		port       int
		want       Cause
		alsoSystem bool
	}{
		{"refused", "127.0.0.1", o.Identity, o.KnownHosts, 1, Refused, true},
		{"unknown key", "127.0.0.1", o.Identity, empty, o.Port, UnknownKey, true},
		{"changed key", "127.0.0.1", o.Identity, other, o.Port, ChangedKey, true},
		{"auth", "127.0.0.1", stranger, o.KnownHosts, o.Port, Auth, true},
		{"no such host", "no-such-host.invalid", o.Identity, o.KnownHosts, o.Port, UnknownHost, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, tr := range []Transport{
				must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: tc.port, IdentityFiles: []string{tc.id}, KnownHosts: []string{tc.known}})),
				NewSSH(SSHOptions{Port: tc.port, User: "root", IdentityFiles: []string{tc.id}, KnownHosts: []string{tc.known}, ConfigFile: "/dev/null", Options: []string{"IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"}}),
			} {
				r := Run(t.Context(), tr, tc.host, Command{Argv: []string{"true"}}, Options{})
				if CauseOf(r.Err) != tc.want || !strings.HasPrefix(r.Err.Error(), tc.host) {
					t.Errorf("%s: got %v, want %s", tr.Name(), r.Err, tc.want)
				}
				_ = tr.Close()
			}
		})
	}
}

// TestConfigFile: names, ports, users, keys and jump hosts come from ssh_config.
func TestConfigFile(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	home := t.TempDir()
	hashed := exec.Command("ssh-keygen", "-q", "-H", "-f", filepath.Join(home, "known"))
	line := fmt.Sprintf("[127.0.0.7]:%d %s[127.0.0.8]:%d %s", o.Port, ssh.MarshalAuthorizedKey(o.HostKey.PublicKey()), o.Port, ssh.MarshalAuthorizedKey(o.HostKey.PublicKey()))
	_ = os.WriteFile(filepath.Join(home, "known"), []byte(line), 0o600)
	if out, err := hashed.CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen -H: %v %s", err, out)
	}
	if text, _ := os.ReadFile(filepath.Join(home, "known")); !bytes.Contains(text, []byte("|1|")) {
		t.Fatalf("not hashed: %s", text)
	}
	kf, _ := os.OpenFile(filepath.Join(home, "known"), os.O_APPEND|os.O_WRONLY, 0)
	_, _ = kf.WriteString("this line is nothing\n")
	_ = kf.Close()
	config := filepath.Join(home, "config")
	_ = os.WriteFile(config, fmt.Appendf(nil, `
Match exec "false"
    Port 9
Host gate
    HostName 127.0.0.7
Host node*
    HostName 127.0.0.8
    ProxyJump gate
Host via
    HostName 127.0.0.8
    ProxyCommand nc %%h %%p
Match all
    Port %d
    User root
    IdentityFile %s
    UserKnownHostsFile ~/known
`, o.Port, o.Identity), 0o600)
	tr, notes := NewNative(NativeOptions{Home: home, LocalUser: "nobody", ConfigFiles: []string{config}})
	defer tr.Close()
	if len(notes) != 1 || !strings.Contains(notes[0], "a Match block") {
		t.Errorf("notes: %q", notes)
	}
	for _, h := range []string{"gate", "node1", "root@node2"} {
		r := Run(t.Context(), tr, h, Command{Argv: []string{"/bin/sh", "-c", "echo $SSH_CONNECTION"}}, Options{})
		want := "127.0.0.8"
		if h == "gate" {
			want = "127.0.0.7"
		}
		if r.Err != nil || !strings.Contains(string(r.Stdout), want) {
			t.Errorf("%s: %q %v", h, r.Stdout, r.Err)
		}
	}
	if _, err := exec.LookPath("nc"); err == nil {
		if r := Run(t.Context(), tr, "via", Command{Argv: []string{"true"}}, Options{}); r.Err != nil {
			t.Errorf("ProxyCommand: %v", r.Err)
		}
	}
}

// TestCertificates: host certificates under @cert-authority, user certificates beside the key.
func TestCertificates(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	caKey := remotetest.NewKeyFile(t, ca)
	o := remotetest.NewOpenSSH(t, "TrustedUserCAKeys "+ca+".pub")
	sign := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ssh-keygen", append([]string{"-q", "-s", ca, "-I", "x"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v %s", err, out)
		}
	}
	mine := filepath.Join(t.TempDir(), "mine")
	remotetest.NewKeyFile(t, mine)
	sign("-n", "root", mine+".pub")
	tr := must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: o.Port, IdentityFiles: []string{mine}, KnownHosts: []string{o.KnownHosts}}))
	if r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"true"}}, Options{}); r.Err != nil {
		t.Errorf("user certificate: %v", r.Err)
	}
	_ = tr.Close()

	host := filepath.Join(t.TempDir(), "hostkey")
	remotetest.NewKeyFile(t, host)
	sign("-h", "-n", "127.0.0.1", host+".pub")
	known := filepath.Join(t.TempDir(), "known")
	_ = os.WriteFile(known, append([]byte("@cert-authority * "), ssh.MarshalAuthorizedKey(caKey.PublicKey())...), 0o600)
	o2 := remotetest.NewOpenSSH(t, "HostKey "+host, "HostCertificate "+host+"-cert.pub")
	tr = must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: o2.Port, IdentityFiles: []string{o2.Identity}, KnownHosts: []string{known}}))
	defer tr.Close()
	if r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"true"}}, Options{}); r.Err != nil {
		t.Errorf("host certificate: %v", r.Err)
	}
	if r := Run(t.Context(), tr, "127.0.0.2", Command{Argv: []string{"true"}}, Options{}); CauseOf(r.Err) != ChangedKey {
		t.Errorf("host certificate for another name: %v", r.Err)
	}
}

func faulty(t *testing.T, addr string, key ssh.Signer, f remotetest.Fault) *remotetest.Server {
	return remotetest.NewServer(t, addr, key, f, func(string) (string, uint32) { return strings.Repeat("answer\n", 100), 0 })
}

func nativeFor(t *testing.T, port int, key ssh.Signer) Transport {
	t.Helper()
	dir := t.TempDir()
	remotetest.NewKeyFile(t, filepath.Join(dir, "id"))
	known := filepath.Join(dir, "known")
	_ = os.WriteFile(known, append([]byte("* "), ssh.MarshalAuthorizedKey(key.PublicKey())...), 0o600)
	tr := must(NewNative(NativeOptions{Home: dir, LocalUser: "u", ConfigFiles: []string{}, Port: port, IdentityFiles: []string{filepath.Join(dir, "id")}, KnownHosts: []string{known}, DialTimeout: wait.Long}))
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// deadlineFor is a deadline that passes where it is what ends a fault, and
// else does not, however slow the machine is.
func deadlineFor(want Cause) time.Duration {
	if want == Timeout {
		return 300 * time.Millisecond
	}
	return wait.Long
}

func TestFaults(t *testing.T) {
	for fault, want := range map[remotetest.Fault]Cause{
		remotetest.None: "", remotetest.HangAccept: Timeout, remotetest.HangBanner: Timeout, remotetest.HangSession: Timeout,
		remotetest.HangCommand: Timeout, remotetest.Drop: Dropped, remotetest.Flood: OutputLimit,
		remotetest.WrongKey: ChangedKey, remotetest.NoLogin: Auth, remotetest.Garbage: Protocol,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			key := remotetest.NewKey(t)
			s := faulty(t, "127.0.0.1:0", key, fault)
			r := Run(t.Context(), nativeFor(t, s.Port, key), "127.0.0.1", Command{Argv: []string{"x"}}, Options{Deadline: deadlineFor(want), MaxOutput: 1 << 20})
			if CauseOf(r.Err) != want {
				t.Errorf("got %v, want %q", r.Err, want)
			}
			if fault == remotetest.Drop && len(r.Stdout) != 350 {
				t.Errorf("kept %d bytes of what came before the drop", len(r.Stdout))
			}
		})
	}
}

// TestTwoHundredHosts: one in ten misbehaves, and keeps no other from its
// answer: those that never answer are given up only when all the others are through.
func TestTwoHundredHosts(t *testing.T) {
	key := remotetest.NewKey(t)
	first := faulty(t, "127.0.1.1:0", key, remotetest.None)
	faults := []remotetest.Fault{remotetest.HangAccept, remotetest.HangBanner, remotetest.HangSession, remotetest.HangCommand, remotetest.Drop, remotetest.Flood, remotetest.WrongKey, remotetest.NoLogin, remotetest.Garbage}
	hosts := []string{"127.0.1.1"}
	bad := map[string]remotetest.Fault{}
	hang := 0
	for i := 2; i <= 200; i++ {
		h := fmt.Sprintf("127.0.1.%d", i)
		f := remotetest.None
		if i%10 == 0 {
			f = faults[(i/10)%len(faults)]
			bad[h] = f
			if slices.Contains(faults[:4], f) {
				hang++
			}
		}
		faulty(t, fmt.Sprintf("%s:%d", h, first.Port), key, f)
		hosts = append(hosts, h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dones := 0
	rs := RunAll(ctx, nativeFor(t, first.Port, key), hosts, func(string) Command { return Command{Argv: []string{"x"}} },
		Options{Deadline: wait.Long, MaxOutput: 1 << 20, OnDone: func(done, total int, _ Result) {
			if dones = done; done == total-hang {
				cancel()
			}
		}})
	for i, r := range rs {
		if r.Host != hosts[i] {
			t.Fatalf("order: %s at %d", r.Host, i)
		}
		if _, isBad := bad[r.Host]; isBad != (r.Err != nil) {
			t.Errorf("%s (%q): %v", r.Host, bad[r.Host], r.Err)
		}
	}
	if dones != 200 {
		t.Errorf("%d done", dones)
	}
}

// TestDeadHostCostsItsDeadlineOnce: what did not answer is not waited for again.
func TestDeadHostCostsItsDeadlineOnce(t *testing.T) {
	key := remotetest.NewKey(t)
	tr := nativeFor(t, faulty(t, "127.0.0.1:0", key, remotetest.HangAccept).Port, key)
	for _, deadline := range []time.Duration{deadlineFor(Timeout), wait.Long} {
		if r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"x"}}, Options{Deadline: deadline}); CauseOf(r.Err) != Timeout {
			t.Errorf("with %v: %v", deadline, r.Err)
		}
	}
}

// TestRunProgram: a host that has the program runs it in one round trip; to
// the others a copy is brought, once.
func TestRunProgram(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	_ = os.WriteFile(prog, []byte("#!/bin/sh\n[ \"$1\" = version ] && echo \"v1 $2\"\n"), 0o755)
	p, err := ReadProgram(prog, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range transports(t, o) {
		t.Run(tr.Name(), func(t *testing.T) {
			defer tr.Close()
			both := []string{"127.0.0.1", "127.0.0.2"}
			run := func(p Program, want string) map[string]string {
				t.Helper()
				rs, paths := RunProgram(t.Context(), tr, both, &p, []string{"version", "it's"}, Options{})
				for i, r := range rs {
					if r.Host != both[i] || r.Err != nil || string(r.Stdout) != "v1 it's\n" || !strings.HasSuffix(paths[r.Host], want) {
						t.Errorf("%s at %q: %q %v", r.Host, paths[r.Host], r.Stdout, r.Err)
					}
					if text, err := os.ReadFile(paths[r.Host]); err != nil || !bytes.Equal(text, p.text) {
						t.Errorf("%s at %q: %v, %d bytes", r.Host, paths[r.Host], err, len(text))
					}
				}
				return paths
			}
			run(*p, prog)
			away := *p
			away.Path = "/no/such/place"
			for range 2 {
				paths := run(away, "fabrun-"+p.Sum())
				t.Cleanup(func() { _ = os.Remove(paths["127.0.0.1"]) })
			}
			away.Arch, away.sum = "vax", strings.Repeat("0", 64)
			rs, _ := RunProgram(t.Context(), tr, both[:1], &away, nil, Options{})
			if CauseOf(rs[0].Err) != NotExecutable {
				t.Errorf("another machine: %v", rs[0].Err)
			}
		})
	}
}

// TestProgramIsKnownByItsMark: another build at the same path is not run, a
// file of another user is not known by a mark alone.
func TestProgramIsKnownByItsMark(t *testing.T) {
	build := func(text string) string {
		dir := t.TempDir()
		_ = os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\nfunc main() { println(\""+text+"\") }\n"), 0o600)
		out := filepath.Join(dir, "prog")
		c := exec.Command("go", "build", "-o", out, filepath.Join(dir, "main.go"))
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		if text, err := c.CombinedOutput(); err != nil {
			t.Skipf("go build: %v: %s", err, text)
		}
		return out
	}
	one, two := build("one"), build("two")
	p, err := ReadProgram(one, "")
	if err != nil || p.mark == "" {
		t.Fatalf("no mark: %v", err)
	}
	local := NewLocal()
	home := t.TempDir()
	run := func() (string, string) {
		rs, paths := RunProgram(t.Context(), envTransport{local, []string{"HOME=" + home, "XDG_CACHE_HOME="}}, []string{"h"}, p, nil, Options{})
		if rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
		return string(rs[0].Stderr), paths["h"]
	}
	if out, path := run(); out != "one\n" || path != one {
		t.Errorf("got %q at %s", out, path)
	}
	other, _ := os.ReadFile(two)
	_ = os.Remove(one)
	_ = os.WriteFile(one, other, 0o755)
	if out, path := run(); out != "one\n" || path == one {
		t.Errorf("another build at the same path: got %q at %s", out, path)
	}
	if os.Geteuid() != 0 {
		return
	}
	// A file with the mark that somebody else wrote.
	_ = os.WriteFile(one, []byte("#!/bin/sh\n# "+p.mark+"\necho planted >&2\n"), 0o755)
	if err := os.Chown(one, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if out, _ := run(); strings.Contains(out, "planted") {
		t.Errorf("a planted program was run: %q", out)
	}
}

// TestProgramInOpenPlaces: a program that somebody else may write, or in a
// directory where somebody else may put another in its place, is not run from
// there: a copy of ours is. What was looked at is what is run.
func TestProgramInOpenPlaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of other users need root")
	}
	text := []byte("#!/bin/sh\necho ours\n")
	for _, tc := range []struct {
		name string
		make func(dir, prog string) error
		want bool // it is run where it lies
	}{
		{"ours", func(string, string) error { return nil }, true},
		{"group may write it", func(_, prog string) error { return os.Chmod(prog, 0o775) }, false},
		{"all may write it", func(_, prog string) error { return os.Chmod(prog, 0o757) }, false},
		{"somebody else's", func(_, prog string) error { return os.Chown(prog, 65534, 0) }, false},
		{"in somebody else's directory", func(dir, _ string) error { return os.Chown(dir, 65534, 0) }, false},
		{"in a directory that all may write", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, false},
		{"in a directory that its group may write", func(dir, _ string) error { return os.Chmod(dir, 0o2775) }, false},
		{"in a sticky directory", func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, true},
		{"below a directory that all may write", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, false},
		{"by a link into such a directory", func(dir, prog string) error {
			away := filepath.Join(filepath.Dir(dir), "away")
			err := errors.Join(os.Mkdir(away, 0o700), os.Rename(prog, filepath.Join(away, "prog")), os.Symlink(filepath.Join(away, "prog"), prog), os.Chmod(away, 0o777))
			return err
		}, false},
		{"by a link", func(dir, prog string) error {
			return errors.Join(os.Rename(prog, prog+"-1"), os.Symlink("prog-1", prog))
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base, err := os.MkdirTemp("/run", "fabrun-stage-")
			if err != nil {
				t.Skipf("it needs a folder below which all are closed: %v", err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			dir := filepath.Join(base, "below", "bin")
			prog := filepath.Join(dir, "prog")
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(prog, text, 0o755)); err != nil {
				t.Fatal(err)
			}
			p, err := ReadProgram(prog, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.make(dir, prog); err != nil {
				t.Fatal(err)
			}
			home := filepath.Join(base, "home")
			rs, paths := RunProgram(t.Context(), envTransport{NewLocal(), []string{"HOME=" + home, "XDG_CACHE_HOME="}}, []string{"h"}, p, nil, Options{})
			if rs[0].Err != nil || string(rs[0].Stdout) != "ours\n" {
				t.Fatalf("%q %v", rs[0].Stdout, rs[0].Err)
			}
			if got := paths["h"] == prog; got != tc.want {
				t.Errorf("it was run at %s", paths["h"])
			}
		})
	}
}

// TestProgramSwappedWhileItIsLookedAt: whoever changes the file between the look
// and the start changes nothing.
func TestProgramSwappedWhileItIsLookedAt(t *testing.T) {
	base, err := os.MkdirTemp("/run", "fabrun-stage-")
	if err != nil {
		t.Skipf("it needs a folder below which all are closed: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	prog, tools := filepath.Join(base, "prog"), filepath.Join(base, "tools")
	evil := filepath.Join(base, "evil")
	err = errors.Join(os.Mkdir(tools, 0o755), os.WriteFile(prog, []byte("#!/bin/sh\necho ours\n"), 0o755), os.WriteFile(evil, []byte("#!/bin/sh\necho planted\n"), 0o755),
		// It stands in for an attacker who is quick: the swap comes right after the look.
		os.WriteFile(filepath.Join(tools, "sha256sum"), []byte("#!/bin/sh\n/usr/bin/sha256sum\n/bin/mv -f "+evil+" "+prog+"\n"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ReadProgram(prog, "")
	if err != nil {
		t.Fatal(err)
	}
	rs, paths := RunProgram(t.Context(), envTransport{NewLocal(), []string{"HOME=" + base, "XDG_CACHE_HOME=", "PATH=" + tools + ":" + os.Getenv("PATH")}}, []string{"h"}, p, nil, Options{})
	if string(rs[0].Stdout) != "ours\n" || rs[0].Err != nil || paths["h"] != prog {
		t.Errorf("%q at %s, %v", rs[0].Stdout, paths["h"], rs[0].Err)
	}
	if text, err := os.ReadFile(prog); err != nil || !strings.Contains(string(text), "planted") {
		t.Errorf("the test did not swap it: %q %v", text, err)
	}
}

// TestNoHomeIsMade: where the home is not there, a copy lies in memory.
func TestNoHomeIsMade(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\necho ours # home\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProgram(prog, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Path = "/no/such/place"
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, env := range [][]string{{"HOME=" + nowhere, "XDG_CACHE_HOME="}, {"HOME=", "XDG_CACHE_HOME="}, {"HOME=/tmp", "XDG_CACHE_HOME=" + nowhere + "/cache"}} {
		rs, paths := RunProgram(t.Context(), envTransport{NewLocal(), env}, []string{"h"}, p, nil, Options{})
		if rs[0].Err != nil || string(rs[0].Stdout) != "ours\n" || strings.HasPrefix(paths["h"], nowhere) {
			t.Errorf("%q: %q at %s, %v", env, rs[0].Stdout, paths["h"], rs[0].Err)
		}
		t.Cleanup(func() { _ = os.Remove(paths["h"]) })
	}
	for _, dir := range []string{nowhere, "/.cache"} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
}

// TestStagedCopiesAge: a copy that nobody has used for a week goes when another
// is brought; the one in use and other files stay.
func TestStagedCopiesAge(t *testing.T) {
	home := t.TempDir()
	cache := filepath.Join(home, ".cache", "fabrun")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-30 * 24 * time.Hour)
	for _, name := range []string{"fabrun-old", "launcher-old", "fabrun-new"} {
		path := filepath.Join(cache, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "fabrun-new" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	prog := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\necho ours\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProgram(prog, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Path = "/no/such/place"
	if rs, _ := RunProgram(t.Context(), envTransport{NewLocal(), []string{"HOME=" + home, "XDG_CACHE_HOME="}}, []string{"h"}, p, nil, Options{}); rs[0].Err != nil {
		t.Fatal(rs[0].Err)
	}
	var left []string
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"fabrun-" + p.Sum(), "fabrun-new", "launcher-old"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// envTransport adds variables to every command.
type envTransport struct {
	Transport
	env []string
}

func (e envTransport) Exec(ctx context.Context, host string, cmd Command, s Streams) (int, error) {
	cmd.Env = append(cmd.Env, e.env...)
	return e.Transport.Exec(ctx, host, cmd, s)
}

func TestSrunFailures(t *testing.T) {
	for _, tc := range []struct {
		name, stderr string
		status       int
		want         Cause
	}{
		{"fine", "", 0, ""},
		{"the command's own status", "srun: error: node3: task 0: Exited with exit code 3\n", 3, ""},
		{"not ours", "srun: error: Unable to create step for job 7: Requested node configuration is not available\n", 1, NotInAlloc},
		{"no such node", "srun: error: Unable to allocate resources: Invalid node name specified\n", 1, UnknownHost},
		{"no slurm", "srun: fatal: Unable to process configuration file\n", 1, LocalTransport},
		{"its last words without a line's end", "mv: no such filesrun: error: node3: task 0: Exited with exit code 125\n", 125, ""},
		{"program's own words", "x: error: y\n", 1, ""},
	} {
		got := Cause("")
		if e := srunFailure("n", tc.status, tc.stderr); e != nil {
			got = e.Cause
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestKnownHostsWildcards(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "x", true}, {"*", "", true}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"*.b*", "a.b.c", true}, {"**a", "ba", true}, {"a*b*c", "axxbyyc", true}, {"a*b", "ac", false},
	} {
		if got := wildcard(tc.pattern, tc.s); got != tc.want {
			t.Errorf("%q %q: %v", tc.pattern, tc.s, got)
		}
	}
}

func BenchmarkSixtyFourHosts(b *testing.B) {
	o := remotetest.NewOpenSSH(b)
	var hosts []string
	for i := range 64 {
		hosts = append(hosts, fmt.Sprintf("127.0.0.%d", i+2))
	}
	for b.Loop() {
		tr := must(NewNative(NativeOptions{Home: b.TempDir(), LocalUser: "root", ConfigFiles: []string{}, Port: o.Port, IdentityFiles: []string{o.Identity}, KnownHosts: []string{o.KnownHosts}}))
		for _, r := range RunAll(context.Background(), tr, hosts, func(string) Command { return Command{Argv: []string{"true"}} }, Options{}) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		_ = tr.Close()
	}
}

// TestLabelled: what srun --label prints is taken apart by task, in whatever
// pieces it comes, and srun's own lines are kept aside.
func TestLabelled(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body := b64("hello\n\nM end 3\n")
	text := " 0: M host n1\n10: M host n2\n 0: " + body[:8] + "\n10: " + b64("half") + "\n 0: " + body[8:] + "\n11: no mark\nsrun: error: x\n"
	d := newDemux("M", 1000, 12)
	for i := 0; i < len(text); i += 7 {
		_, _ = d.stdout.Write([]byte(text[i:min(i+7, len(text))]))
	}
	_, _ = d.stderr.Write([]byte("srun: error: y\n 0: words: of its own\n"))
	want := map[string]task{"n1": {stdout: []byte("hello\n"), stderr: []byte("words: of its own\n"), status: 3, ended: true}, "n2": {}}
	if diff := cmp.Diff(want, d.tasks(), cmp.AllowUnexported(task{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if string(d.srunLines()) != "srun: error: y\n" {
		t.Errorf("srun's own: %q", d.srunLines())
	}
}

func FuzzLabelled(f *testing.F) {
	f.Add([]byte("0: M host n1\n0: aGVsbG8KTSBlbmQgMwo=\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		d := newDemux("M", 1000, 2)
		cut = min(max(cut, 0), len(text))
		_, _ = d.stdout.Write(text[:cut])
		_, _ = d.stdout.Write(text[cut:])
		for host, task := range d.tasks() {
			if host == "" || len(task.stdout) > len(text) {
				t.Errorf("%q: %d bytes of %d", host, len(task.stdout), len(text))
			}
		}
	})
}
