package remote

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the format of known_hosts (sshd(8))
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// knownHosts is the lines of known_hosts files that can be read (sshd(8),
// SSH_KNOWN_HOSTS FILE FORMAT). Like OpenSSH, a line that cannot is passed over.
type knownHosts struct {
	mu     sync.Mutex
	lines  []knownLine
	unread error // RevokedHostKeys cannot be read: nobody is trusted
}

type knownLine struct {
	marker   string   // "", "cert-authority", "revoked"
	patterns []string // nil of RevokedHostKeys: every host
	key      ssh.PublicKey
	where    string // "file:line"
}

func (k *knownHosts) add(file string, text []byte) {
	for i, line := range bytes.Split(text, []byte{'\n'}) {
		marker, hosts, key, _, _, err := ssh.ParseKnownHosts(append(bytes.Clone(line), '\n'))
		if err != nil {
			continue
		}
		k.lines = append(k.lines, knownLine{marker, hosts, key, fmt.Sprintf("%s:%d", file, i+1)})
	}
}

// knownName is how known_hosts writes a host: the bare name on port 22.
func knownName(host, port string) string {
	if port == "22" || port == "" {
		return host
	}
	return "[" + host + "]:" + port
}

// knownName is how known_hosts writes the target.
func (tg target) knownName() string {
	if tg.keyAlias != "" {
		return tg.keyAlias
	}
	return knownName(tg.host, tg.port)
}

// withoutPort is the host alone.
func withoutPort(name string) string {
	if h, _, err := net.SplitHostPort(name); err == nil {
		return h
	}
	return name
}

func (l knownLine) matches(name string) bool {
	found := false
	for _, p := range l.patterns {
		switch {
		case strings.HasPrefix(p, "|1|"):
			found = found || hashedMatch(p, name)
		case strings.HasPrefix(p, "!"):
			if wildcard(strings.ToLower(p[1:]), strings.ToLower(name)) {
				return false
			}
		default:
			found = found || wildcard(strings.ToLower(p), strings.ToLower(name))
		}
	}
	return found
}

func hashedMatch(pattern, name string) bool {
	salt, hash, ok := strings.Cut(pattern[len("|1|"):], "|")
	if !ok {
		return false
	}
	s, err1 := base64.StdEncoding.DecodeString(salt)
	h, err2 := base64.StdEncoding.DecodeString(hash)
	if err1 != nil || err2 != nil {
		return false
	}
	mac := hmac.New(sha1.New, s)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), h)
}

// wildcard matches * and ? as ssh does.
func wildcard(pattern, s string) bool {
	// Backtracking to the last star only: linear enough for any input.
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			p = star + 1
			mark++
			i = mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// algorithms orders the host key algorithms so that the server shows a key that
// can be checked: one that known_hosts has for name, certificates first where a
// certificate authority is trusted for it. nil when nothing is known.
func (k *knownHosts) algorithms(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	name = strings.ToLower(name)
	var certs, plain []string
	for _, l := range k.lines {
		if !l.matches(name) && !l.matches(withoutPort(name)) {
			continue
		}
		switch l.marker {
		case "cert-authority":
			certs = []string{
				ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01,
				ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
			}
		case "":
			algos := []string{l.key.Type()}
			if l.key.Type() == ssh.KeyAlgoRSA {
				algos = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
			}
			for _, a := range algos {
				if !slices.Contains(plain, a) {
					plain = append(plain, a)
				}
			}
		}
	}
	if certs == nil && plain == nil {
		return nil
	}
	// Others come last: a host that shows only such a key is refused by check,
	// with the right words.
	for _, a := range []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	} {
		if !slices.Contains(plain, a) {
			plain = append(plain, a)
		}
	}
	return append(certs, plain...)
}

// policy is what StrictHostKeyChecking asks for.
type policy int

const (
	strict        policy = iota // unknown keys are refused
	acceptNew                   // unknown keys are accepted, changed ones refused
	acceptAnyhost               // the user said not to look
)

// check judges the key that host showed, as sshconnect.c (check_host_key) does,
// and nowhere looser. added is the line to save where the key is new and accepted.
func (k *knownHosts) check(host, name string, key ssh.PublicKey, p policy) (added string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name = strings.ToLower(name)
	bare := withoutPort(name)
	cert, isCert := key.(*ssh.Certificate)
	if isCert {
		key = cert.Key
	}
	refuse := func(c Cause, hint, format string, args ...any) (string, error) {
		return "", &HostError{Host: host, Cause: c, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	if k.unread != nil {
		return refuse(ChangedKey, "--remote ssh asks the system's ssh, which reads key revocation lists", "RevokedHostKeys: %w", k.unread)
	}
	for _, l := range k.lines {
		// A host that is revoked is revoked on every port.
		if l.marker == "revoked" && (l.patterns == nil || l.matches(name) || l.matches(bare)) &&
			(keysEqual(l.key, key) || isCert && keysEqual(l.key, cert.SignatureKey)) {
			return refuse(ChangedKey, "", "its key is revoked by %s", l.where)
		}
	}
	if p == acceptAnyhost {
		return "", nil
	}
	var badCert error
	if isCert && (k.authority(name, cert.SignatureKey) || k.authority(bare, cert.SignatureKey)) {
		// The principal is the name alone; the port only chooses the line.
		if badCert = checkHostCert(bare, cert); badCert == nil {
			return "", nil
		}
	}
	// A certificate that does not count is a key like any other.
	var other *knownLine
	for i, l := range k.lines {
		if l.marker != "" || !l.matches(name) {
			continue
		}
		if keysEqual(l.key, key) {
			return "", nil
		}
		if other == nil || l.key.Type() == key.Type() {
			other = &k.lines[i]
		}
	}
	if other == nil && bare != name && slices.ContainsFunc(k.lines, func(l knownLine) bool {
		return l.marker == "" && l.matches(bare) && keysEqual(l.key, key)
	}) {
		return "", nil // the host's key, noted for its usual port
	}
	switch {
	case other != nil:
		return refuse(ChangedKey, "if the host was reinstalled: ssh-keygen -R '"+name+"'", "it shows %s key %s, %s has another", key.Type(), ssh.FingerprintSHA256(key), other.where)
	case badCert != nil:
		return refuse(ChangedKey, "", "its certificate: %w", badCert)
	case p == acceptNew:
		k.lines = append(k.lines, knownLine{patterns: []string{name}, key: key, where: "this session"})
		return fmt.Sprintf("%s %s", name, ssh.MarshalAuthorizedKey(key)), nil
	}
	return refuse(UnknownKey, "connect once by hand: ssh "+host+" true", "its %s key %s is not in known_hosts", key.Type(), ssh.FingerprintSHA256(key))
}

// authority reports whether a certificate authority is trusted for name.
func (k *knownHosts) authority(name string, auth ssh.PublicKey) bool {
	return slices.ContainsFunc(k.lines, func(l knownLine) bool {
		return l.marker == "cert-authority" && l.matches(name) && keysEqual(l.key, auth)
	})
}

// certSignatures are what a certificate may be signed with (ssh_config(5),
// CASignatureAlgorithms: not with SHA-1).
var certSignatures = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// checkHostCert judges a certificate of a trusted authority for a host
// (sshkey_cert_check_host).
func checkHostCert(principal string, cert *ssh.Certificate) error {
	switch {
	case cert.CertType != ssh.HostCert:
		return errors.New("it is a user's, not a host's")
	case len(cert.CriticalOptions) > 0:
		return errors.New("it has critical options, of which hosts know none")
	case cert.Signature == nil || !slices.Contains(certSignatures, cert.Signature.Format):
		return errors.New("its signature is of a kind that is not trusted")
	}
	return (&ssh.CertChecker{}).CheckCert(principal, cert)
}

// revoke reads the file of RevokedHostKeys: public keys, one a line. One that
// cannot be read revokes all, as for ssh.
func (k *knownHosts) revoke(file string) {
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		k.unread = err
	case bytes.HasPrefix(text, []byte("SSHKRL\n\x00")):
		k.unread = fmt.Errorf("%s is a key revocation list in binary form, which only ssh reads", file)
	default:
		for i, line := range bytes.Split(text, []byte{'\n'}) {
			line = bytes.TrimSpace(line)
			if len(line) == 0 || line[0] == '#' {
				continue
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey(line)
			if err != nil {
				k.unread = fmt.Errorf("%s:%d: %w", file, i+1, err)
				return
			}
			if c, ok := key.(*ssh.Certificate); ok {
				key = c.Key
			}
			k.lines = append(k.lines, knownLine{marker: "revoked", key: key, where: fmt.Sprintf("%s:%d", file, i+1)})
		}
	}
}

// saveKnown adds a line to a known_hosts file, which may not be there yet. What
// is no regular file (/dev/null) is left alone.
func saveKnown(file, line string, hashed bool) error {
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() {
		return nil
	}
	if name, rest, ok := strings.Cut(line, " "); ok && hashed {
		line = hashName(name) + " " + rest
	}
	// ~/.ssh may be missing; a home that is not there is not made.
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// hashName is the name as HashKnownHosts has it.
func hashName(name string) string {
	var salt [sha1.Size]byte
	_, _ = rand.Read(salt[:])
	mac := hmac.New(sha1.New, salt[:])
	mac.Write([]byte(name))
	return "|1|" + base64.StdEncoding.EncodeToString(salt[:]) + "|" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func keysEqual(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }
