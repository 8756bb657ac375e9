package remote

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"fabrun/launcher/remote/remotetest"
	"fabrun/testdata/wait"
)

// TestHostKeys: the keys that a host can show, and what known_hosts and
// ssh_config can say of them. With FABRUN_REAL each case is tried beside the
// system's own ssh: nothing that ssh refuses is accepted, and what is accepted as
// new is saved as ssh saves it.
func TestHostKeys(t *testing.T) {
	dir, beside := t.TempDir(), os.Getenv("FABRUN_REAL") != "" && os.Geteuid() == 0
	for _, p := range []string{"/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/sbin/sshd"} {
		if _, err := os.Stat(p); err != nil {
			beside = false
		}
	}
	if beside {
		// sshd refuses keys below folders that others may write, such as the test's own.
		var err error
		if dir, err = os.MkdirTemp("/run", "fabrun-keys-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		_ = os.MkdirAll("/run/sshd", 0o755)
	}
	keys := map[string]ssh.Signer{}
	var replace []string
	for _, name := range []string{"host", "other", "ca", "otherca", "id"} {
		keys[name] = remotetest.NewKeyFile(t, filepath.Join(dir, name))
		replace = append(replace, "{"+name+"}", strings.TrimSpace(string(ssh.MarshalAuthorizedKey(keys[name].PublicKey()))))
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	idPub, err := os.ReadFile(filepath.Join(dir, "id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write("authorized_keys", string(idPub))
	for _, host := range []string{"node1", "[node1]:2222", "node2"} {
		replace = append(replace, "{hash "+host+"}", hashName(host))
	}
	fill := strings.NewReplacer(append(replace, "DIR", dir)...).Replace
	now := uint64(time.Now().Unix())
	cert := func(change func(*ssh.Certificate)) *ssh.Certificate {
		c := &ssh.Certificate{Key: keys["host"].PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"node1"}, ValidAfter: now - 3600, ValidBefore: now + 3600}
		if change != nil {
			change(c)
		}
		if err := c.SignCert(rand.Reader, keys["ca"]); err != nil {
			t.Fatal(err)
		}
		return c
	}
	good := cert(nil)
	user := cert(func(c *ssh.Certificate) { c.CertType = ssh.UserCert })
	expired := cert(func(c *ssh.Certificate) { c.ValidBefore = now - 60 })
	future := cert(func(c *ssh.Certificate) { c.ValidAfter = now + 1800 })
	foreign := cert(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"node2"} })
	anybody := cert(func(c *ssh.Certificate) { c.ValidPrincipals = nil })
	critical := cert(func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"source-address": "127.0.0.1"} })
	const (
		accept = "accept"
		save   = "save" // and note it in known_hosts
		refuse = "refuse"
	)
	const ca, port, an, no = "@cert-authority node1 {ca}", "Port 2222", "StrictHostKeyChecking accept-new", "StrictHostKeyChecking no"
	for _, tc := range []struct {
		name     string
		cert     *ssh.Certificate // nil: the plain key
		known    string
		config   string
		want     string
		stricter bool // than ssh
	}{
		{"known", nil, "node1 {host}", "", accept, false},
		{"unknown", nil, "node2 {host}", "", refuse, false},
		{"nothing is known", nil, "", "", refuse, false},
		{"another key", nil, "node1 {other}", "", refuse, false},
		{"two keys, one of them", nil, "node1 {other}\nnode1 {host}", "", accept, false},
		{"in a list", nil, "a,node1,b {host}", "", accept, false},
		{"by a pattern", nil, "node? {host}", "", accept, false},
		{"left out of a pattern", nil, "*,!node1 {host}", "", refuse, false},
		{"in capitals", nil, "NODE1 {host}", "", accept, false},
		{"hashed", nil, "{hash node1} {host}", "", accept, false},
		{"hashed, another host", nil, "{hash node2} {host}", "", refuse, false},
		{"hashed, another key", nil, "{hash node1} {other}", "", refuse, false},
		{"a line that is none", nil, "node1 nonsense\nnode1 {host}", "", accept, false},
		{"an unknown marker", nil, "@trusted node1 {host}", "", refuse, false},
		{"with a port", nil, "[node1]:2222 {host}", port, accept, false},
		{"with a port, noted without", nil, "node1 {host}", port, accept, false},
		{"with a port, another there", nil, "[node1]:2222 {other}\nnode1 {host}", port, refuse, false},
		{"with another port", nil, "[node1]:2223 {host}", port, refuse, false},
		{"with a port, hashed", nil, "{hash [node1]:2222} {host}", port, accept, false},
		{"the port's key, and the usual port", nil, "[node1]:2222 {host}", "", refuse, false},
		{"by its alias", nil, "nodes {host}", "HostKeyAlias nodes", accept, false},
		{"by its name, with an alias", nil, "node1 {host}", "HostKeyAlias nodes", refuse, false},
		{"an alias takes no port", nil, "nodes {host}", "HostKeyAlias nodes\n" + port, accept, false},

		{"revoked", nil, "@revoked node1 {host}\nnode1 {host}", "", refuse, false},
		{"revoked for all", nil, "@revoked * {host}\nnode1 {host}", "", refuse, false},
		{"revoked for another", nil, "@revoked node2 {host}\nnode1 {host}", "", accept, false},
		{"another is revoked", nil, "@revoked node1 {other}\nnode1 {host}", "", accept, false},
		{"revoked on the port", nil, "@revoked [node1]:2222 {host}\n[node1]:2222 {host}", port, refuse, false},
		{"revoked without the port", nil, "@revoked node1 {host}\n[node1]:2222 {host}", port, refuse, true},
		{"revoked, whoever asks", nil, "@revoked * {host}", no, refuse, true},
		{"revoked, and new", nil, "@revoked node1 {host}", an, refuse, false},
		{"revoked without the port, and new", nil, "@revoked node1 {host}", an + "\n" + port, refuse, true},
		{"in RevokedHostKeys", nil, "node1 {host}", "RevokedHostKeys DIR/host.pub", refuse, false},
		{"not in RevokedHostKeys", nil, "node1 {host}", "RevokedHostKeys DIR/other.pub", accept, false},
		{"RevokedHostKeys is not there", nil, "node1 {host}", "RevokedHostKeys DIR/nowhere", refuse, false},
		{"RevokedHostKeys none", nil, "node1 {host}", "RevokedHostKeys none", accept, false},
		{"a revocation list without it", nil, "node1 {host}", "RevokedHostKeys DIR/krl", refuse, true},

		{"accept-new", nil, "", an, save, false},
		{"accept-new, known", nil, "node1 {host}", an, accept, false},
		{"accept-new, another key", nil, "node1 {other}", an, refuse, false},
		{"accept-new, a file that ends without a line feed", nil, "node2 {other}", an, save, false},
		{"accept-new, hashed", nil, "", an + "\nHashKnownHosts yes", save, false},
		{"accept-new, with a port", nil, "", an + "\n" + port, save, false},
		{"no", nil, "", no, save, false},
		{"no, another key", nil, "node1 {other}", no, refuse, true},

		{"a certificate", good, ca, "", accept, false},
		{"a certificate of another authority", good, "@cert-authority node1 {otherca}", "", refuse, false},
		{"an authority for another host", good, "@cert-authority node2 {ca}", "", refuse, false},
		{"the authority's key as a host's", good, "node1 {ca}", "", refuse, false},
		{"a user's certificate", user, ca, "", refuse, false},
		{"a user's certificate, new", user, ca, an, refuse, true},
		{"a user's certificate, its key known", user, ca + "\nnode1 {host}", "", accept, false},
		{"an expired certificate", expired, ca, "", refuse, false},
		{"an expired certificate, its key known", expired, ca + "\nnode1 {host}", "", accept, false},
		{"a certificate of tomorrow", future, ca, "", refuse, false},
		{"another host's certificate", foreign, ca, "", refuse, false},
		{"another host's certificate, by the alias", foreign, "@cert-authority node2 {ca}", "HostKeyAlias node2", accept, false},
		{"a certificate for everybody", anybody, ca, "", accept, false},
		{"a certificate with a critical option", critical, ca, "", refuse, false},
		{"a certificate whose authority is revoked", good, "@revoked node1 {ca}\n" + ca, "", refuse, false},
		{"a certificate whose key is revoked", good, "@revoked node1 {host}\n" + ca, "", refuse, false},
		{"a certificate whose authority is in RevokedHostKeys", good, ca, "RevokedHostKeys DIR/ca.pub", refuse, false},
		{"a certificate, with a port", good, "@cert-authority [node1]:2222 {ca}", port, accept, false},
		{"a certificate, with a port, noted without", good, ca, port, accept, false},
		{"a certificate of nobody, its key known", good, "node1 {host}", "", accept, false},
		{"a certificate of nobody, new", good, "", an, save, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sshd := "HostKey DIR/host\nAuthorizedKeysFile DIR/authorized_keys\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile none\nLogLevel QUIET\n"
			if tc.cert != nil {
				write("host-cert.pub", string(ssh.MarshalAuthorizedKey(tc.cert)))
				sshd += "HostCertificate DIR/host-cert.pub\n"
			}
			write("sshd_config", fill(sshd))
			write("krl", "SSHKRL\n\x00")
			if beside {
				if out, err := exec.Command("ssh-keygen", "-k", "-f", filepath.Join(dir, "krl"), filepath.Join(dir, "other.pub")).CombinedOutput(); err != nil {
					t.Fatalf("ssh-keygen -k: %v: %s", err, out)
				}
			}
			decide := func(login func(config string) error) (string, string) {
				t.Helper()
				before := fill(tc.known)
				known := write("known", before)
				err := login(write("config", fill("Host *\n User root\n IdentityFile DIR/id\n IdentitiesOnly yes\n UserKnownHostsFile "+known+"\n GlobalKnownHostsFile /dev/null\n"+
					" ProxyCommand /usr/sbin/sshd -i -f DIR/sshd_config\n"+tc.config+"\n")))
				after, rerr := os.ReadFile(known)
				switch {
				case rerr != nil:
					t.Fatal(rerr)
				case err != nil:
					return refuse, err.Error()
				case string(after) != before:
					return save, string(after)
				}
				return accept, ""
			}
			var shown ssh.PublicKey = keys["host"].PublicKey()
			if tc.cert != nil {
				shown = tc.cert
			}
			pure, why := decide(func(config string) error {
				tr, _ := NewNative(NativeOptions{Home: dir, LocalUser: "root", ConfigFiles: []string{config}})
				tg, err := tr.(*native).resolve("node1")
				if err != nil {
					return err
				}
				k := tr.(*native).knownFor(tg.known, tg.revoked)
				added, err := k.check("node1", tg.knownName(), shown, tg.policy)
				if err == nil && added != "" {
					err = saveKnown(tg.save, added, tg.hashKnown)
				}
				if _, again := k.check("node1", tg.knownName(), shown, strict); err == nil && again != nil {
					t.Errorf("accepted, and not known after it: %v", again)
				}
				return err
			})
			if pure != tc.want {
				t.Errorf("%s (%s), want %s", pure, why, tc.want)
			}
			if !beside {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait.Left(t))
			defer cancel()
			theirs, told := decide(func(config string) error {
				out, err := exec.CommandContext(ctx, "/usr/bin/ssh", "-F", config, "-o", "BatchMode=yes", "node1", "true").CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			ours, said := decide(func(config string) error {
				tr, _ := NewNative(NativeOptions{Home: dir, LocalUser: "root", ConfigFiles: []string{config}})
				defer tr.Close()
				if _, err := tr.Exec(ctx, "node1", Command{Argv: []string{"true"}}, Streams{}); err != nil {
					return err
				}
				// What was saved is known from now on.
				again, _ := NewNative(NativeOptions{Home: dir, LocalUser: "root", ConfigFiles: []string{config}})
				defer again.Close()
				_, err := again.Exec(ctx, "node1", Command{Argv: []string{"true"}}, Streams{})
				return err
			})
			switch {
			case ours != tc.want:
				t.Errorf("%s (%s), want %s; ssh: %s (%s)", ours, said, tc.want, theirs, told)
			case theirs == refuse && ours != refuse:
				t.Errorf("looser than ssh, which says %s", told)
			case (ours != theirs) != tc.stricter:
				t.Errorf("%s, ssh: %s (%s)", ours, theirs, told)
			case ours == save && strings.Contains(said, "|1|") != strings.Contains(told, "|1|"):
				t.Errorf("saved %q, ssh %q", said, told)
			}
		})
	}
}
