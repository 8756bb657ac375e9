package remote

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format of known_hosts (sshd(8))
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// knownHosts is the lines of known_hosts files that can be read (sshd(8),
// SSH_KNOWN_HOSTS FILE FORMAT). Like OpenSSH, a line that cannot is passed over.
type knownHosts struct {
	lines []knownLine
}

type knownLine struct {
	marker   string // "", "cert-authority", "revoked"
	patterns []string
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

// check judges the key that host showed.
func (k *knownHosts) check(host, name string, key ssh.PublicKey, p policy) error {
	cert, isCert := key.(*ssh.Certificate)
	seen := key
	if isCert {
		seen = cert.Key
	}
	for _, l := range k.lines {
		if l.marker != "revoked" || !l.matches(name) {
			continue
		}
		if keysEqual(l.key, seen) || isCert && keysEqual(l.key, cert.SignatureKey) {
			return &HostError{Host: host, Cause: ChangedKey, Err: fmt.Errorf("its key is revoked by %s", l.where)}
		}
	}
	if p == acceptAnyhost {
		return nil
	}
	if isCert {
		checker := &ssh.CertChecker{IsHostAuthority: func(auth ssh.PublicKey, _ string) bool {
			return slices.ContainsFunc(k.lines, func(l knownLine) bool {
				return l.marker == "cert-authority" && l.matches(name) && keysEqual(l.key, auth)
			})
		}}
		// The principal is the name alone; the port only chooses the line.
		principal := withoutPort(name)
		if checker.IsHostAuthority(cert.SignatureKey, "") {
			if err := checker.CheckCert(principal, cert); err != nil {
				return &HostError{Host: host, Cause: ChangedKey, Err: fmt.Errorf("its certificate: %w", err)}
			}
			return nil
		}
		// Signed by nobody we know: then it is a key like any other (sshconnect.c).
		key = cert.Key
	}
	var other *knownLine
	for i, l := range k.lines {
		if l.marker != "" || !l.matches(name) {
			continue
		}
		if keysEqual(l.key, key) {
			return nil
		}
		if other == nil || l.key.Type() == key.Type() {
			other = &k.lines[i]
		}
	}
	if bare := withoutPort(name); other == nil && bare != name && slices.ContainsFunc(k.lines, func(l knownLine) bool {
		return l.marker == "" && l.matches(bare) && keysEqual(l.key, key)
	}) {
		return nil // as OpenSSH: the host's key, noted for its usual port
	}
	if other != nil {
		return &HostError{
			Host: host, Cause: ChangedKey,
			Err:  fmt.Errorf("it shows %s key %s, %s has another", key.Type(), ssh.FingerprintSHA256(key), other.where),
			Hint: "if the host was reinstalled: ssh-keygen -R '" + name + "'",
		}
	}
	if p == acceptNew {
		return nil
	}
	return &HostError{
		Host: host, Cause: UnknownKey,
		Err:  fmt.Errorf("its %s key %s is not in known_hosts", key.Type(), ssh.FingerprintSHA256(key)),
		Hint: "connect once by hand: ssh " + host + " true",
	}
}

func keysEqual(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }
