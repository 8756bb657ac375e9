package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// configWords are what random configurations are made of.
var configWords = struct{ hosts, patterns, users []string }{
	hosts:    []string{"node1", "node12", "gate", "n1.example.org", "10.1.2.3"},
	patterns: []string{"*", "node*", "node?", "!node1", "n1.*", "10.*", "gate", "!gate", "*.example.org", "real-node1"},
	users:    []string{"root", "alice", "!root", "a*"},
}

func randomConfig(r *rand.Rand, include string) string {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	some := func(list []string, sep string) string {
		out := []string{pick(list)}
		for r.IntN(3) == 0 {
			out = append(out, pick(list))
		}
		return strings.Join(out, sep)
	}
	var b strings.Builder
	for range 3 + r.IntN(14) {
		switch r.IntN(20) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "Host %s\n", some(configWords.patterns, " "))
		case 3:
			fmt.Fprintf(&b, "Match all\n")
		case 4:
			fmt.Fprintf(&b, "Match host %s\n", some(configWords.patterns, ","))
		case 5:
			fmt.Fprintf(&b, "Match originalhost \"%s\" !user alice\n", some(configWords.patterns, ","))
		case 6:
			fmt.Fprintf(&b, "match !host %s user=%s\n", some(configWords.patterns, ","), some(configWords.users, ","))
		case 7:
			fmt.Fprintf(&b, "Match final host %s\n", some(configWords.patterns, ","))
		case 8:
			fmt.Fprintf(&b, "  HostName %s\n", pick([]string{"real-%h", "10.9.9.9", "node1"}))
		case 9:
			fmt.Fprintf(&b, "\tPort=%d\n", 1000+r.IntN(20))
		case 10:
			fmt.Fprintf(&b, "User = %s # comment\n", pick([]string{"alice", "bob"}))
		case 11:
			fmt.Fprintf(&b, "IdentityFile %s\n", pick([]string{"/k1", `"/k 2"`, "/k3"}))
		case 12:
			fmt.Fprintf(&b, "ProxyJump %s\n", pick([]string{"gate", "root@gate:2222,gate2", "none"}))
		case 13:
			fmt.Fprintf(&b, "ProxyCommand %s\n", pick([]string{"nc %h %p", "none"}))
		case 14:
			fmt.Fprintf(&b, "UserKnownHostsFile %s\n", pick([]string{"/kh1", "/kh1 /kh2", `"/kh 3"`}))
		case 15:
			fmt.Fprintf(&b, "StrictHostKeyChecking %s\n", pick([]string{"yes", "accept-new"}))
		case 16:
			fmt.Fprintf(&b, "HostKeyAlias %s\n", pick([]string{"a1", "a2"}))
		case 17:
			fmt.Fprintf(&b, "ServerAliveInterval %d\n# %s\n", 10+r.IntN(5), pick(configWords.hosts))
		case 18:
			fmt.Fprintf(&b, "ConnectTimeout %d\n\n", 3+r.IntN(5))
		case 19:
			if include != "" {
				fmt.Fprintf(&b, "Include %s\n", include)
			}
		}
	}
	return b.String()
}

// TestConfigAsOpenSSHReadsIt holds the reading of random configurations
// against what 'ssh -G' says of them.
func TestConfigAsOpenSSHReadsIt(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("no ssh here")
	}
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	file, included := filepath.Join(dir, "config"), filepath.Join(dir, "inc-1.conf")
	n := 150
	if testing.Short() {
		n = 30
	}
	for i := range n {
		text, in := randomConfig(r, filepath.Join(dir, "inc-*.conf")), randomConfig(r, "")
		_ = os.WriteFile(file, []byte(text), 0o600)
		_ = os.WriteFile(included, []byte(in), 0o600)
		host := configWords.hosts[r.IntN(len(configWords.hosts))]
		out, err := exec.Command("ssh", "-G", "-F", file, host).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh -G: %v: %s\n%s\n-- included --\n%s", err, out, text, in)
		}
		want := map[string][]string{}
		for line := range strings.Lines(string(out)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
			want[k] = append(want[k], v)
		}
		f, notes := readSSHConfig(file, dir, dir, 0)
		if len(notes) > 0 {
			t.Fatalf("notes %q\n%s", notes, text)
		}
		s := settingsFor([]sshFile{f}, sshAsk{host: host, localUser: currentUser(t)})
		got, exp := map[string]string{}, map[string]string{}
		for _, k := range []string{"hostname", "port", "user", "userknownhostsfile", "stricthostkeychecking", "hostkeyalias", "serveraliveinterval", "connecttimeout"} {
			if v, ok := s.first[k]; ok {
				if got[k] = strings.Join(v, " "); k == "hostname" {
					got[k] = expandHostName(v[0], host)
				}
				exp[k] = strings.Join(want[k], " ")
			}
		}
		if len(s.all["identityfile"]) > 0 {
			got["identityfile"], exp["identityfile"] = strings.Join(s.all["identityfile"], ";"), strings.Join(want["identityfile"], ";")
		}
		// What is "none" is not printed.
		for _, k := range []string{"proxyjump", "proxycommand"} {
			exp[k] = strings.Join(want[k], " ")
			if s.proxy == k && s.get(k) != "none" {
				got[k] = s.get(k)
			} else {
				got[k] = ""
			}
		}
		exp["stricthostkeychecking"] = strings.Replace(exp["stricthostkeychecking"], "true", "yes", 1)
		if exp["stricthostkeychecking"] == "" {
			delete(exp, "stricthostkeychecking")
		}
		if diff := cmp.Diff(exp, got); diff != "" {
			t.Fatalf("%d: host %s: -ssh +ours\n%s\n-- config --\n%s\n-- included --\n%s", i, host, diff, text, in)
		}
	}
}

func currentUser(t *testing.T) string {
	out, err := exec.Command("id", "-un").Output()
	if err != nil {
		t.Skip(err)
	}
	return strings.TrimSpace(string(out))
}

func TestSSHWords(t *testing.T) {
	for in, want := range map[string][]string{
		`a b`: {"a", "b"}, `"a b" c`: {"a b", "c"}, `a"b c"d`: {"ab cd"}, `'a "b"' #x`: {`a "b"`}, `a\ b`: {"a b"}, `"a\"b"`: {`a"b`}, `a#b`: {"a#b"}, ``: nil, `# c`: nil, `"open`: {"open"}, `a\x`: {`a\x`},
	} {
		if got := sshWords(in); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzSSHConfig(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add([]byte(randomConfig(r, "x")), "node1")
	}
	f.Add([]byte("mAtCh \x81="), "0") // lower case of a broken character is longer
	f.Fuzz(func(t *testing.T, text []byte, host string) {
		file := sshFile{lines: parseSSHConfig(text)}
		tr := &native{o: NativeOptions{Home: "/h", LocalUser: "u"}, configs: []sshFile{file}}
		file.passedOver()
		if checkHost(host) != nil {
			return
		}
		tg, err := tr.resolve(host)
		if err != nil {
			if CauseOf(err) == "" {
				t.Errorf("%q: %v names no cause", host, err)
			}
			return
		}
		// Whatever a file says, what is dialled is a name and a port.
		if checkHost(tg.host) != nil || tg.port == "" || tg.user == "" && tr.o.LocalUser == "" || len(tg.known) == 0 && len(settingsFor(tr.configs, sshAsk{host: host}).first["userknownhostsfile"]) == 0 {
			t.Errorf("%q: %+v", host, tg)
		}
	})
}

func FuzzKnownHosts(f *testing.F) {
	_, pub := knownKey(f)
	f.Add([]byte("node1,10.0.0.* "+pub+"[n]:2222 "+pub), "node1")
	f.Add([]byte("@revoked * "+pub+"|1|c2FsdA==|aGFzaA== "+pub+"@cert-authority !a,* "+pub), "a")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		var k knownHosts
		k.add("f", text)
		key, _ := knownKey(t)
		_, err := k.check(name, name, key, strict)
		name = strings.ToLower(name)
		if err == nil && !slices.ContainsFunc(k.lines, func(l knownLine) bool {
			return l.marker == "" && keysEqual(l.key, key) && (l.matches(name) || l.matches(withoutPort(name)))
		}) {
			t.Errorf("%q accepted by %q", name, text)
		}
		k.algorithms(name)
	})
}

var fixedKey ssh.PublicKey

// knownKey is one key for the life of the process, and its line.
func knownKey(tb testing.TB) (ssh.PublicKey, string) {
	if fixedKey == nil {
		const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB0Jmdx5Wqk3bXhK8i0Q6V3tTn0mC0kN2mJj9a3x7mF3"
		k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			tb.Fatal(err)
		}
		fixedKey = k
	}
	return fixedKey, string(ssh.MarshalAuthorizedKey(fixedKey))
}

// TestKnownHostsAsOpenSSHReadsThem holds the matching of names against
// 'ssh-keygen -F', which has OpenSSH's own.
func TestKnownHostsAsOpenSSHReadsThem(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen here")
	}
	_, pub := knownKey(t)
	file := filepath.Join(t.TempDir(), "known")
	for _, patterns := range []string{"node1", "node1,node2", "*", "node?", "!node1,node*", "[node1]:2222", "[*]:2222", "NODE1", "n*,!*2", "10.0.*"} {
		_ = os.WriteFile(file, []byte(patterns+" "+pub), 0o600)
		for _, hashed := range []bool{false, true} {
			if hashed && strings.ContainsAny(patterns, "*?!,") {
				continue // ssh-keygen hashes single names only
			}
			if hashed {
				if out, err := exec.Command("ssh-keygen", "-q", "-H", "-f", file).CombinedOutput(); err != nil {
					t.Fatalf("ssh-keygen -H: %v: %s", err, out)
				}
			}
			text, _ := os.ReadFile(file)
			var k knownHosts
			k.add(file, text)
			for _, name := range []string{"node1", "node2", "node12", "[node1]:2222", "10.0.0.1"} {
				out, _ := exec.Command("ssh-keygen", "-F", name, "-f", file).Output()
				got := len(k.lines) == 1 && k.lines[0].matches(name)
				if want := len(out) > 0; got != want {
					t.Errorf("%q (hashed %v) and %s: got %v, ssh-keygen says %v", patterns, hashed, name, got, want)
				}
			}
		}
	}
}

// TestJumpHostIsSharedAndFailuresNameIt: one login at the gateway for many
// hosts behind it; what it cannot reach, and a gateway that refuses, are told apart.
func TestJumpHostIsShared(t *testing.T) {
	gate := remotetest.NewOpenSSH(t, "LogLevel VERBOSE")
	node := remotetest.NewOpenSSH(t, "LogLevel VERBOSE")
	home := t.TempDir()
	known, _ := os.ReadFile(node.KnownHosts)
	gateKnown, _ := os.ReadFile(gate.KnownHosts)
	_ = os.WriteFile(filepath.Join(home, "known"), append(known, gateKnown...), 0o600)
	config := filepath.Join(home, "config")
	_ = os.WriteFile(config, fmt.Appendf(nil, `
Host gate
    HostName 127.0.0.9
    Port %d
    IdentityFile %s
Host loop
    ProxyJump loop
Host dead
    Port 1
Host n*
    Port %d
    IdentityFile %s
Match originalhost n*,dead
    ProxyJump gate
Match all
    HostName 127.0.0.8
    User root
    IdentitiesOnly yes
    UserKnownHostsFile ~/known
`, gate.Port, gate.Identity, node.Port, node.Identity), 0o600)
	tr, _ := NewNative(NativeOptions{Home: home, LocalUser: "nobody", ConfigFiles: []string{config}})
	defer tr.Close()
	var hosts []string
	for i := range 12 {
		hosts = append(hosts, fmt.Sprintf("n%d", i))
	}
	for _, r := range RunSame(t.Context(), tr, append(hosts, "dead", "loop"), Command{Argv: []string{"echo", "hi"}}, Options{}) {
		switch r.Host {
		case "dead":
			if CauseOf(r.Err) != Refused || !strings.Contains(r.Err.Error(), "jump host gate") {
				t.Errorf("%s: %v", r.Host, r.Err)
			}
		case "loop":
			if CauseOf(r.Err) != LocalTransport || !strings.Contains(r.Err.Error(), "loop") {
				t.Errorf("%s: %v", r.Host, r.Err)
			}
		default:
			if r.Err != nil || string(r.Stdout) != "hi\n" {
				t.Errorf("%s: %q %v", r.Host, r.Stdout, r.Err)
			}
		}
	}
	if n, m := strings.Count(gate.Log(), "Accepted publickey"), strings.Count(node.Log(), "Accepted publickey"); n != 1 || m != 12 {
		t.Errorf("%d logins at the gateway, %d behind it; want 1 and 12", n, m)
	}
}

// TestAgent: a key that only the agent can use, and keys that only it has.
func TestAgent(t *testing.T) {
	if _, err := exec.LookPath("ssh-agent"); err != nil {
		t.Skip("no ssh-agent here")
	}
	o := remotetest.NewOpenSSH(t)
	sock := filepath.Join(o.Dir, "agent")
	c := exec.Command("ssh-agent", "-D", "-a", sock)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	add := exec.Command("sh", "-c", `until ssh-add -q "$1" 2>/dev/null; do :; done`, "sh", o.Identity)
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+sock)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("ssh-add: %v: %s", err, out)
	}
	// The file is then encrypted: without the agent it is of no use.
	if out, err := exec.Command("ssh-keygen", "-q", "-p", "-f", o.Identity, "-P", "", "-N", "a pass phrase").CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	config := filepath.Join(o.Dir, "config")
	for _, tc := range []struct {
		name, config, sock string
		want               Cause
	}{
		{"the agent's keys", "", sock, ""},
		{"an encrypted key that the agent has", "IdentitiesOnly yes\nIdentityFile " + o.Identity, sock, ""},
		{"IdentitiesOnly without the key", "IdentitiesOnly yes\nIdentityFile /none", sock, Auth},
		{"IdentityAgent", "IdentityAgent " + sock, "", ""},
		{"IdentityAgent none", "IdentityAgent none", sock, Auth},
		{"no agent", "IdentityFile " + o.Identity, "", Auth},
	} {
		_ = os.WriteFile(config, []byte(tc.config+"\n"), 0o600)
		tr := must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "root", ConfigFiles: []string{config}, AgentSocket: tc.sock, Port: o.Port, KnownHosts: []string{o.KnownHosts}}))
		if r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"true"}}, Options{}); CauseOf(r.Err) != tc.want {
			t.Errorf("%s: %v", tc.name, r.Err)
		}
		_ = tr.Close()
	}
}

// TestRevokedAndOtherKeys: what known_hosts says against a key goes before
// what it says for it, and the usual idioms of ssh_config are honoured.
func TestRevokedAndOtherKeys(t *testing.T) {
	o := remotetest.NewOpenSSH(t)
	pub := string(ssh.MarshalAuthorizedKey(o.HostKey.PublicKey()))
	other := string(ssh.MarshalAuthorizedKey(remotetest.NewKey(t).PublicKey()))
	for _, tc := range []struct {
		name, known, config string
		want                Cause
	}{
		{"its key", "127.0.0.1 " + pub + "[127.0.0.1]:" + fmt.Sprint(o.Port) + " " + pub, "", ""},
		{"its key, noted for the usual port", "127.0.0.1 " + pub, "", ""},
		{"another key, noted for the usual port", "127.0.0.1 " + other, "", UnknownKey},
		{"two keys, one of them its own", "* " + other + "* " + pub, "", ""},
		{"revoked", "@revoked * " + pub + "* " + pub, "", ChangedKey},
		{"revoked, and not to be looked at", "@revoked * " + pub, "StrictHostKeyChecking no", ChangedKey},
		{"unknown, accept-new", "", "StrictHostKeyChecking accept-new", ""},
		{"changed, accept-new", "* " + other, "StrictHostKeyChecking accept-new", ChangedKey},
		{"an alias", "cluster " + pub, "HostKeyAlias cluster", ""},
		{"negated", "*,!127.0.0.1,![127.0.0.1]:* " + pub, "", UnknownKey},
	} {
		home := t.TempDir()
		known, config := filepath.Join(home, "known"), filepath.Join(home, "config")
		_ = os.WriteFile(known, []byte(tc.known), 0o600)
		_ = os.WriteFile(config, []byte(tc.config+"\nGlobalKnownHostsFile /dev/null\nUserKnownHostsFile "+known+"\n"), 0o600)
		tr := must(NewNative(NativeOptions{Home: home, LocalUser: "root", ConfigFiles: []string{config}, Port: o.Port, IdentityFiles: []string{o.Identity}}))
		r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"true"}}, Options{})
		if CauseOf(r.Err) != tc.want {
			t.Errorf("%s: %v, want %q", tc.name, r.Err, tc.want)
		}
		_ = tr.Close()
		// The system's ssh agrees on who is let in.
		c := exec.Command("ssh", "-F", config, "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-i", o.Identity, "-p", fmt.Sprint(o.Port), "root@127.0.0.1", "true")
		// but for a revoked key that it was told not to look at: it warns, we refuse.
		if err := c.Run(); (err == nil) != (tc.want == "") && !strings.Contains(tc.name, "not to be looked at") {
			t.Errorf("%s: the system's ssh says %v", tc.name, err)
		}
	}
}

// TestNoRoute looks from a network namespace that has none.
func TestNoRoute(t *testing.T) {
	if os.Getenv("FABRUN_NO_ROUTE") == "" {
		c := exec.Command("unshare", "-rn", os.Args[0], "-test.run=^TestNoRoute$", "-test.v")
		c.Env = append(os.Environ(), "FABRUN_NO_ROUTE=1")
		out, err := c.CombinedOutput()
		if strings.Contains(string(out), "unshare:") {
			t.Skipf("no network namespace: %s", out)
		}
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for _, tr := range []Transport{must(NewNative(NativeOptions{Home: t.TempDir(), LocalUser: "u", ConfigFiles: []string{}})), NewSSH(SSHOptions{ConfigFile: "/dev/null"})} {
		if r := Run(t.Context(), tr, "198.51.100.7", Command{Argv: []string{"true"}}, Options{}); CauseOf(r.Err) != Unreachable {
			t.Errorf("%s: %v", tr.Name(), r.Err)
		}
	}
}

// TestFaultsOfTheSystemsSSH: the same faults through the system's ssh.
func TestFaultsOfTheSystemsSSH(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("no ssh here")
	}
	for fault, want := range map[remotetest.Fault]Cause{
		remotetest.None: "", remotetest.HangAccept: Timeout, remotetest.HangBanner: Timeout, remotetest.HangCommand: Timeout,
		remotetest.Drop: Dropped, remotetest.Flood: OutputLimit, remotetest.WrongKey: ChangedKey, remotetest.NoLogin: Auth,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			key := remotetest.NewKey(t)
			s := faulty(t, "127.0.0.1:0", key, fault)
			dir := t.TempDir()
			id, known := filepath.Join(dir, "id"), filepath.Join(dir, "known")
			remotetest.NewKeyFile(t, id)
			_ = os.WriteFile(known, append([]byte("* "), ssh.MarshalAuthorizedKey(key.PublicKey())...), 0o600)
			tr := NewSSH(SSHOptions{Port: s.Port, User: "u", IdentityFiles: []string{id}, KnownHosts: []string{known}, ConfigFile: "/dev/null", Options: []string{"IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"}})
			r := Run(t.Context(), tr, "127.0.0.1", Command{Argv: []string{"x"}}, Options{Deadline: deadlineFor(want), MaxOutput: 1 << 20})
			if CauseOf(r.Err) != want {
				t.Errorf("got %v, want %q", r.Err, want)
			}
		})
	}
}

// TestKeepAlive: a host that is gone without a word ends the command after
// ServerAliveInterval times ServerAliveCountMax, and one that is only quiet does
// not: it has answered more questions than could stay unanswered.
func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		fault remotetest.Fault
		most  int // questions that may stay unanswered
		want  Cause
	}{{remotetest.Silent, 2, Dropped}, {remotetest.HangCommand, 5, Canceled}} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			key := remotetest.NewKey(t)
			s := faulty(t, "127.0.0.1:0", key, c.fault)
			home := t.TempDir()
			remotetest.NewKeyFile(t, filepath.Join(home, "id"))
			known, config := filepath.Join(home, "known"), filepath.Join(home, "config")
			_ = os.WriteFile(known, append([]byte("* "), ssh.MarshalAuthorizedKey(key.PublicKey())...), 0o600)
			_ = os.WriteFile(config, fmt.Appendf(nil, "ServerAliveInterval 1\nServerAliveCountMax %d\n", c.most), 0o600)
			tr := must(NewNative(NativeOptions{Home: home, LocalUser: "u", ConfigFiles: []string{config}, Port: s.Port, IdentityFiles: []string{filepath.Join(home, "id")}, KnownHosts: []string{known}, DialTimeout: wait.Long}))
			defer tr.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.want == Canceled {
				go func() {
					for s.Answered() <= c.most+1 && ctx.Err() == nil {
						time.Sleep(5 * time.Millisecond)
					}
					cancel()
				}()
			}
			r := Run(ctx, tr, "127.0.0.1", Command{Argv: []string{"x"}}, Options{Deadline: wait.Long})
			if CauseOf(r.Err) != c.want {
				t.Errorf("got %v after %v, want %s", r.Err, r.Took, c.want)
			}
		})
	}
}
