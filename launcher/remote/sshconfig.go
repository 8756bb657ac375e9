package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
	save       string // the file that takes new keys; "" none
	hashKnown  bool   // HashKnownHosts
	revoked    string // RevokedHostKeys; "" none
	policy     policy
	jumps      []string // ProxyJump, nearest first; nil none
	proxy      string   // ProxyCommand
	alive      time.Duration
	aliveMax   int
	connect    time.Duration // ConnectTimeout; 0 not said
	family     string        // "tcp", "tcp4", "tcp6"
}

// readConfigs reads the user's files (or those given instead), and notes what
// could not be read.
func readConfigs(o NativeOptions) (files []sshFile, notes []string) {
	names := o.ConfigFiles
	system := ""
	if names == nil {
		names, system = []string{filepath.Join(o.Home, ".ssh", "config")}, "/etc/ssh/ssh_config"
	}
	for _, n := range names {
		f, more := readSSHConfig(n, o.Home, filepath.Join(o.Home, ".ssh"), 0)
		files, notes = append(files, f), append(notes, more...)
	}
	if system != "" {
		f, more := readSSHConfig(system, o.Home, filepath.Dir(system), 0)
		files, notes = append(files, f), append(notes, more...)
	}
	for _, f := range files {
		for _, name := range f.passedOver() {
			notes = append(notes, name+": a Match block that needs more than names is passed over; --remote ssh honours it")
		}
	}
	return files, notes
}

// passedOver are the files with Match lines that this program cannot judge.
func (f sshFile) passedOver() []string {
	var out []string
	var q sshAsk
	for _, l := range f.lines {
		if l.key == "match" {
			if _, known := matchApplies(l.args, &sshSettings{}, &q); !known && !slices.Contains(out, f.name) {
				out = append(out, f.name)
			}
		}
		for _, in := range l.included {
			out = append(out, in.passedOver()...)
		}
	}
	return out
}

// resolve says how to reach alias. What Options give goes before ssh_config.
func (t *native) resolve(alias string) (target, error) {
	user, name := splitUser(alias)
	given := user
	if given == "" {
		given = t.o.User
	}
	set := settingsFor(t.configs, sshAsk{host: name, user: given, localUser: t.o.LocalUser})
	get := set.get
	tg := target{alias: alias, host: name, port: "22", user: t.o.LocalUser, family: "tcp", alive: 15 * time.Second, aliveMax: 3}
	if v := get("hostname"); v != "" {
		tg.host = expandHostName(v, name)
	}
	if err := checkHost(tg.host); err != nil {
		return tg, &HostError{Host: alias, Cause: BadName, Err: fmt.Errorf("HostName %q %w", tg.host, err)}
	}
	if v := get("port"); v != "" {
		tg.port = v
	}
	if t.o.Port != 0 {
		tg.port = strconv.Itoa(t.o.Port)
	}
	if n, err := strconv.Atoi(tg.port); err != nil || n < 1 || n > 65535 {
		return tg, &HostError{Host: alias, Cause: BadName, Err: fmt.Errorf("port %q is none", tg.port)}
	}
	switch {
	case given != "":
		tg.user = given
	case get("user") != "":
		tg.user = get("user")
	}
	expand := strings.NewReplacer("%d", t.o.Home, "%h", tg.host, "%n", name, "%p", tg.port, "%r", tg.user, "%u", t.o.LocalUser, "%%", "%").Replace
	path := func(p string) string {
		if p == "~" || strings.HasPrefix(p, "~/") {
			p = t.o.Home + p[1:]
		}
		p = expand(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(t.o.Home, p)
		}
		return p
	}
	tg.setKeys(t.o, set, path)
	tg.setKnownHosts(t.o, set, path)
	tg.setWay(set, expand)
	return tg, nil
}

// setKeys says with which keys and agent a login is tried.
func (tg *target) setKeys(o NativeOptions, set sshSettings, path func(string) string) {
	tg.keyAlias = set.get("hostkeyalias")
	tg.onlyThese = strings.EqualFold(set.get("identitiesonly"), "yes")
	tg.identities = o.IdentityFiles
	for _, v := range set.all["identityfile"] {
		if !strings.EqualFold(v, "none") {
			tg.identities = append(tg.identities[:len(tg.identities):len(tg.identities)], path(v))
		}
	}
	if len(tg.identities) == 0 {
		for _, n := range []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"} {
			tg.identities = append(tg.identities, filepath.Join(o.Home, ".ssh", n))
		}
	}
	for _, v := range set.all["certificatefile"] {
		tg.certs = append(tg.certs, path(v))
	}
	tg.agent = o.AgentSocket
	switch v := set.get("identityagent"); {
	case strings.EqualFold(v, "none"):
		tg.agent = ""
	case v != "" && v != "SSH_AUTH_SOCK" && !strings.HasPrefix(v, "$"):
		tg.agent = path(v)
	}
}

// setKnownHosts says by what the host's own key is judged.
func (tg *target) setKnownHosts(o NativeOptions, set sshSettings, path func(string) string) {
	switch {
	case len(o.KnownHosts) > 0:
		tg.known, tg.save = o.KnownHosts, o.KnownHosts[0]
	default:
		user := set.first["userknownhostsfile"]
		if len(user) == 0 {
			user = []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}
		}
		for _, v := range user {
			if !strings.EqualFold(v, "none") {
				tg.known = append(tg.known, path(v))
				tg.save = tg.known[0]
			}
		}
		global := set.first["globalknownhostsfile"]
		if len(global) == 0 {
			global = []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
		}
		tg.known = append(tg.known, global...)
	}
	tg.hashKnown = strings.EqualFold(set.get("hashknownhosts"), "yes")
	if v := set.get("revokedhostkeys"); v != "" && !strings.EqualFold(v, "none") {
		tg.revoked = path(v)
	}
	switch strings.ToLower(set.get("stricthostkeychecking")) {
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
	if o.Insecure {
		tg.policy = acceptAnyhost
	}
}

// setWay says over which hosts or program the connection goes, and how long it waits.
func (tg *target) setWay(set sshSettings, expand func(string) string) {
	switch v := set.get(set.proxy); {
	case v == "" || strings.EqualFold(v, "none"):
	case set.proxy == "proxyjump":
		for j := range strings.SplitSeq(v, ",") {
			tg.jumps = append(tg.jumps, strings.TrimSpace(expand(j)))
		}
	default:
		tg.proxy = expand(v)
	}
	if v, err := strconv.Atoi(set.get("serveraliveinterval")); err == nil && v > 0 {
		tg.alive = time.Duration(v) * time.Second
	}
	if v, err := strconv.Atoi(set.get("serveralivecountmax")); err == nil && v > 0 {
		tg.aliveMax = v
	}
	if v, err := strconv.Atoi(set.get("connecttimeout")); err == nil && v > 0 {
		tg.connect = time.Duration(v) * time.Second
	}
	switch strings.ToLower(set.get("addressfamily")) {
	case "inet":
		tg.family = "tcp4"
	case "inet6":
		tg.family = "tcp6"
	}
}
