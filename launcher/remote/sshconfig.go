package remote

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kevinburke/ssh_config"
)

// target is everything needed to reach one host, as ssh_config(5) would have it.
type target struct {
	alias      string // as asked for
	host       string // HostName
	port       string
	user       string
	keyAlias   string // HostKeyAlias
	identities []string
	certs      []string
	onlyThese  bool // IdentitiesOnly
	agent      string
	known      []string
	policy     policy
	jumps      []string // ProxyJump, nearest first; nil none
	proxy      string   // ProxyCommand
	alive      time.Duration
	aliveMax   int
	family     string // "tcp", "tcp4", "tcp6"
}

// readConfigs reads ssh_config files; one that is not there is no error.
// Blocks that begin with Match are passed over, except 'Match all' and 'Match
// [original]host', which are Host blocks by another name: the rest needs
// commands to be run or is not known before the connection.
func readConfigs(files []string) ([]*ssh_config.Config, []string) {
	var out []*ssh_config.Config
	var notes []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			if !os.IsNotExist(err) {
				notes = append(notes, err.Error())
			}
			continue
		}
		plain, dropped := withoutMatch(text)
		if dropped > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d Match block(s) passed over; --remote ssh honours them", f, dropped))
		}
		c, err := ssh_config.DecodeBytes(plain)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s: %v", f, err))
			continue
		}
		out = append(out, c)
	}
	return out, notes
}

// withoutMatch rewrites the Match blocks that can be rewritten and drops the others.
func withoutMatch(text []byte) (plain []byte, dropped int) {
	skip := false
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		fields := strings.Fields(strings.Replace(string(line), "=", " ", 1))
		if len(fields) > 0 {
			switch strings.ToLower(fields[0]) {
			case "host":
				skip = false
			case "match":
				skip = true
				switch {
				case len(fields) == 2 && strings.EqualFold(fields[1], "all"):
					line, skip = []byte("Host *\n"), false
				case len(fields) == 3 && (strings.EqualFold(fields[1], "host") || strings.EqualFold(fields[1], "originalhost")):
					line, skip = []byte("Host "+strings.ReplaceAll(fields[2], ",", " ")+"\n"), false
				default:
					dropped++
				}
			}
		}
		if !skip {
			b.Write(line)
		}
	}
	return b.Bytes(), dropped
}

// resolve says how to reach alias. What Options give goes before ssh_config.
func (t *native) resolve(alias string) (target, error) {
	user, name := splitUser(alias)
	get := func(key string) string {
		for _, c := range t.configs {
			if v, err := c.Get(name, key); err == nil && v != "" {
				return v
			}
		}
		return ""
	}
	all := func(key string) []string {
		var vs []string
		for _, c := range t.configs {
			if v, err := c.GetAll(name, key); err == nil {
				vs = append(vs, v...)
			}
		}
		return vs
	}
	tg := target{alias: alias, host: name, port: "22", user: t.o.LocalUser, family: "tcp", alive: 15 * time.Second, aliveMax: 3}
	if v := get("HostName"); v != "" {
		tg.host = strings.NewReplacer("%h", name, "%n", name, "%%", "%").Replace(v)
	}
	if err := checkHost(tg.host); err != nil {
		return tg, &HostError{Host: alias, Cause: BadName, Err: fmt.Errorf("HostName %q %w", tg.host, err)}
	}
	if v := get("Port"); v != "" {
		tg.port = v
	}
	if t.o.Port != 0 {
		tg.port = strconv.Itoa(t.o.Port)
	}
	if n, err := strconv.Atoi(tg.port); err != nil || n < 1 || n > 65535 {
		return tg, &HostError{Host: alias, Cause: BadName, Err: fmt.Errorf("port %q is none", tg.port)}
	}
	switch {
	case user != "":
		tg.user = user
	case t.o.User != "":
		tg.user = t.o.User
	case get("User") != "":
		tg.user = get("User")
	}
	expand := strings.NewReplacer("%d", t.o.Home, "%h", tg.host, "%n", name, "%p", tg.port, "%r", tg.user, "%u", t.o.LocalUser, "%%", "%").Replace
	path := func(p string) string {
		p = strings.Trim(p, `"`)
		if p == "~" || strings.HasPrefix(p, "~/") {
			p = t.o.Home + p[1:]
		}
		p = expand(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(t.o.Home, p)
		}
		return p
	}
	tg.keyAlias = get("HostKeyAlias")
	tg.onlyThese = strings.EqualFold(get("IdentitiesOnly"), "yes")
	tg.identities = t.o.IdentityFiles
	for _, v := range all("IdentityFile") {
		if !strings.EqualFold(v, "none") {
			tg.identities = append(tg.identities[:len(tg.identities):len(tg.identities)], path(v))
		}
	}
	if len(tg.identities) == 0 {
		for _, n := range []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"} {
			tg.identities = append(tg.identities, filepath.Join(t.o.Home, ".ssh", n))
		}
	}
	for _, v := range all("CertificateFile") {
		tg.certs = append(tg.certs, path(v))
	}
	tg.agent = t.o.AgentSocket
	switch v := get("IdentityAgent"); {
	case strings.EqualFold(v, "none"):
		tg.agent = ""
	case v != "" && v != "SSH_AUTH_SOCK" && !strings.HasPrefix(v, "$"):
		tg.agent = path(v)
	}
	switch {
	case len(t.o.KnownHosts) > 0:
		tg.known = t.o.KnownHosts
	default:
		user := strings.Fields(strings.Join(all("UserKnownHostsFile"), " "))
		if len(user) == 0 {
			user = []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}
		}
		for _, v := range user {
			if !strings.EqualFold(v, "none") {
				tg.known = append(tg.known, path(v))
			}
		}
		global := strings.Fields(strings.Join(all("GlobalKnownHostsFile"), " "))
		if len(global) == 0 {
			global = []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
		}
		tg.known = append(tg.known, global...)
	}
	switch strings.ToLower(get("StrictHostKeyChecking")) {
	case "no", "off":
		tg.policy = acceptNew
		// OpenSSH refuses nothing then, but with the file thrown away it is
		// the known idiom for "do not look".
		if len(tg.known) == 1 && tg.known[0] == os.DevNull {
			tg.policy = acceptAnyhost
		}
	case "accept-new":
		tg.policy = acceptNew
	}
	if t.o.Insecure {
		tg.policy = acceptAnyhost
	}
	if v := get("ProxyJump"); v != "" && !strings.EqualFold(v, "none") {
		for j := range strings.SplitSeq(v, ",") {
			tg.jumps = append(tg.jumps, strings.TrimSpace(expand(j)))
		}
	} else if v := get("ProxyCommand"); v != "" && !strings.EqualFold(v, "none") {
		tg.proxy = expand(v)
	}
	if v, err := strconv.Atoi(get("ServerAliveInterval")); err == nil && v > 0 {
		tg.alive = time.Duration(v) * time.Second
	}
	if v, err := strconv.Atoi(get("ServerAliveCountMax")); err == nil && v > 0 {
		tg.aliveMax = v
	}
	switch strings.ToLower(get("AddressFamily")) {
	case "inet":
		tg.family = "tcp4"
	case "inet6":
		tg.family = "tcp6"
	}
	return tg, nil
}
