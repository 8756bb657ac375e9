package hosts

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// Syntax is how one tool's hostfile is read and written. They have no common form.
// The values are in syntaxes.go.
type Syntax struct {
	Name string // of the flags; "" read only
	tool string

	cComments  bool // /* … */ and //
	colon      bool // host:N
	exprs      bool // several hosts in a line, node list expressions
	exclude    bool // ^host, +n0
	userAt     bool // user@host
	spaced     bool // slots = N
	dropsColon bool // host:N is dropped behind an address, without a word
	needsSlots bool // every host has a number
	once       bool // a host that is there twice is refused
	keys       map[string]attribute

	slots, maxSlots, user, port string // how they are written; "" not at all

	// stripsDomains: names that differ only behind the first dot are one host.
	stripsDomains bool
	// cutsAtColon: what follows the first ':' of a line is the number of slots.
	cutsAtColon bool
	// repeated is what becomes of a host that is there twice; nil: slots add up.
	repeated *finding.Finding
}

// attribute is what a key of a hostfile line means.
type attribute int

const (
	attrSlots attribute = iota
	attrMaxSlots
	attrUser
	attrPort
	attrIgnored // known to the tool, of no use here
)

// ParseHostfile reads a hostfile as the tool of its dialect would. What that
// tool refuses is an error with its line; what it silently drops or reads
// otherwise than people expect is a Finding. Repeated hosts add their slots.
func ParseHostfile(text []byte, d *Syntax) (Allocation, error) {
	a := Allocation{}
	if d.cComments {
		text = blankComments(text)
	}
	var all []Host
	err := eachLine(text, func(n int, line string) error {
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		hosts, err := parseHostLine(&a, line, n, d)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if all = append(all, hosts...); len(all) > maxNames {
			return fmt.Errorf("line %d: more than %d hosts", n, maxNames)
		}
		return nil
	})
	if err != nil {
		return Allocation{}, err
	}
	all = slices.DeleteFunc(all, func(h Host) bool { return slices.Contains(a.Exclude, h.Name) })
	if len(all) == 0 && len(a.Relative) == 0 && len(a.Exclude) == 0 {
		return Allocation{}, ErrNoHosts
	}
	var repeated []string
	a.Hosts, repeated = merge(all)
	if len(repeated) > 0 && d.once {
		return Allocation{}, fmt.Errorf("%s is there twice: %s wants each host once", quote(repeated[0]), d.tool)
	}
	if len(repeated) > 0 && d.repeated != nil {
		f := *d.repeated
		f.Host, f.Hint = repeated[0], f.Hint+repeated[0]+":N"
		a.Findings = append(a.Findings, f)
	}
	return a, nil
}

// blankComments overwrites /* … */ and // comments with blanks, so that lines keep
// their numbers. A comment that is never closed ends with the text.
func blankComments(text []byte) []byte {
	if !bytes.Contains(text, []byte("/*")) && !bytes.Contains(text, []byte("//")) {
		return text
	}
	out := bytes.Clone(text)
	const (
		code = iota
		line
		block
	)
	state := code
	for i := 0; i < len(out); i++ {
		next := byte(0)
		if i+1 < len(out) {
			next = out[i+1]
		}
		switch {
		case out[i] == '\n':
			if state == line {
				state = code
			}
			continue
		case state == code && out[i] == '#', state == code && out[i] == '/' && next == '/':
			state = line
		case state == code && out[i] == '/' && next == '*':
			state = block
			out[i+1] = ' '
		case state == block && out[i] == '*' && next == '/':
			state = code
			out[i], out[i+1] = ' ', ' '
			i++
			continue
		}
		if state != code {
			out[i] = ' '
		}
	}
	return out
}

func parseHostLine(a *Allocation, line string, n int, d *Syntax) ([]Host, error) {
	if i := strings.IndexByte(line, '='); d.spaced && i >= 0 {
		line = tightenEquals(line)
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, nil
	}
	head := words[0]
	if d.exprs && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "=") }) && !strings.ContainsAny(line, "^+@") {
		list, err := ParseList(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		return list.Hosts, nil
	}
	switch {
	case head[0] == '^' && d.exclude:
		name := head[1:]
		if !validName(name) {
			return nil, fmt.Errorf("%s is not a host name", quote(name))
		}
		a.Exclude = append(a.Exclude, name)
		return nil, nil
	case head[0] == '+' && d.exclude:
		if _, _, err := parseRelative(head); err != nil {
			return nil, err
		}
		a.Relative = append(a.Relative, head)
		return nil, nil
	case d.exclude && head == "rank", d.exclude && strings.HasPrefix(head, "rank="):
		return nil, fmt.Errorf("%s begins a rankfile, which is not a hostfile", quote(head))
	}
	if d.exprs && strings.Contains(head, "[") {
		list, err := ParseList(head)
		if err != nil {
			return nil, err
		}
		for i := range list.Hosts {
			if err := setAttributes(&list.Hosts[i], words[1:], d); err != nil {
				return nil, err
			}
		}
		return list.Hosts, nil
	}
	h, err := parseHostWord(a, head, n, d)
	if err != nil {
		return nil, err
	}
	if err := setAttributes(&h, words[1:], d); err != nil {
		return nil, err
	}
	return []Host{h}, nil
}

// setAttributes reads the KEY=VALUE words behind a host.
func setAttributes(h *Host, words []string, d *Syntax) error {
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("%s behind host %s: wanted KEY=VALUE%s", quote(w), quote(h.Name), d.slotsHint())
		}
		kind, known := d.keys[key]
		if !known {
			return fmt.Errorf("%s does not know %s%s", d.tool, quote(w), d.slotsHint())
		}
		if err := setAttribute(h, kind, key, value); err != nil {
			return err
		}
	}
	if h.MaxSlots != nil {
		switch {
		case h.Slots == nil:
			h.Slots = h.MaxSlots
		case *h.MaxSlots < *h.Slots:
			return fmt.Errorf("max_slots=%d is below slots=%d of %s", *h.MaxSlots, *h.Slots, quote(h.Name))
		}
	}
	if h.Slots == nil && d.needsSlots {
		return fmt.Errorf("%s has no slots: %s wants \"%s slots=N\"", quote(h.Name), d.tool, h.Name)
	}
	return nil
}

// tightenEquals removes the blanks around '=', which Open MPI's scanner skips.
func tightenEquals(s string) string {
	parts := strings.Split(s, "=")
	for i := range parts {
		if i > 0 {
			parts[i] = strings.TrimLeft(parts[i], " \t\f\v")
		}
		if i < len(parts)-1 {
			parts[i] = strings.TrimRight(parts[i], " \t\f\v")
		}
	}
	return strings.Join(parts, "=")
}

// parseHostWord reads the first word of a line: [user@]host[:N].
func parseHostWord(a *Allocation, w string, n int, d *Syntax) (Host, error) {
	h := Host{}
	if user, host, ok := strings.Cut(w, "@"); ok {
		if !d.userAt {
			return h, fmt.Errorf("%s: %s takes no user@host", quote(w), d.tool)
		}
		if err := setAttribute(&h, attrUser, "user", user); err != nil {
			return h, err
		}
		w = host
	}
	if addr, err := netip.ParseAddr(w); err == nil {
		h.Name, h.Address = w, addr.String()
		return h, nil
	}
	name, count, colon := strings.Cut(w, ":")
	if rest, ok := strings.CutPrefix(w, "["); ok {
		inner, after, _ := strings.Cut(rest, "]")
		addr, err := netip.ParseAddr(inner)
		if err != nil || (after != "" && after[0] != ':') {
			return h, fmt.Errorf("%s is not [ADDRESS] or [ADDRESS]:SLOTS", quote(w))
		}
		name, h.Address, colon, count = inner, addr.String(), after != "", strings.TrimPrefix(after, ":")
	}
	if !validName(name) {
		return h, fmt.Errorf("%s is not a host name", quote(name))
	}
	h.Name = name
	if addr, err := netip.ParseAddr(name); err == nil {
		h.Address = addr.String()
	}
	if !colon {
		return h, nil
	}
	slots, err := parseSlots(count)
	switch {
	case err != nil:
		return h, fmt.Errorf("slots of %s: %w", quote(name), err)
	case d.colon:
		h.Slots = &slots
	case d.dropsColon && h.Address != "":
		a.Findings = append(a.Findings, finding.Finding{
			ID: "hosts.openmpi-colon", Severity: finding.Warning, Host: name, Subject: fmt.Sprintf("hostfile line %d", n),
			Seen: w, Wanted: fmt.Sprintf("%s slots=%d", name, slots),
			Why:  "Open MPI drops a :N behind an address without a word, and takes the number of cores",
			Hint: fmt.Sprintf("write %s slots=%d", name, slots),
		})
	default:
		return h, fmt.Errorf("%s refuses %s: write \"%s slots=%d\"", d.tool, quote(w), name, slots)
	}
	return h, nil
}

func setAttribute(h *Host, kind attribute, key, value string) error {
	switch kind {
	case attrSlots, attrMaxSlots:
		n, err := parseSlots(value)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", key, quote(h.Name), err)
		}
		if kind == attrMaxSlots {
			h.MaxSlots = &n
		} else {
			h.Slots = &n
		}
	case attrUser:
		if !validName(value) || strings.Contains(value, ":") {
			return fmt.Errorf("%s is not a user name", quote(value))
		}
		h.User = value
	case attrPort:
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%s is not a port", quote(value))
		}
		p := int(n)
		h.Port = &p
	}
	return nil
}

// parseRelative reads +nK (the K-th host of the allocation), +e (all) and +e:K
// (the first K that are free).
func parseRelative(s string) (index int, count int, err error) {
	bad := fmt.Errorf("%s: wanted +nINDEX, +e or +e:COUNT", quote(s))
	switch {
	case strings.HasPrefix(s, "+n"):
		n, err := strconv.ParseUint(s[2:], 10, 20)
		if err != nil {
			return 0, 0, bad
		}
		return int(n), 1, nil
	case s == "+e" || s == "+E":
		return -1, maxNames, nil
	case strings.HasPrefix(s, "+e:") || strings.HasPrefix(s, "+E:"):
		n, err := strconv.ParseUint(s[3:], 10, 20)
		if err != nil || n == 0 {
			return 0, 0, bad
		}
		return -1, int(n), nil
	}
	return 0, 0, bad
}

func (d *Syntax) slotsHint() string {
	switch {
	case d.Name == "" || d.slots == "":
		return ""
	case d.colon:
		return " (slots are written host:N)"
	}
	return " (slots are written slots=N)"
}

// Narrow selects from a resource manager's allocation what a list or hostfile
// names, with the manager's own spelling, and never more slots than the manager
// gave. Names are compared as they are and then by what stands before the first
// dot. A host that the manager did not give is an error that names it.
func Narrow(base, selected Allocation) (Allocation, error) {
	out := base
	out.Source, out.Hosts = selected.Source, nil
	out.Findings = slices.Concat(base.Findings, selected.Findings)
	out.Relative, out.Exclude = nil, nil
	find := nameFinder(base.Hosts)
	excluded := make(map[int]bool)
	for _, name := range selected.Exclude {
		if i := find(name); i >= 0 {
			excluded[i] = true
		}
	}
	taken := make(map[int]bool)
	take := func(i int, slots *int) {
		if taken[i] || excluded[i] {
			return
		}
		taken[i] = true
		h := base.Hosts[i]
		if slots != nil && (h.Slots == nil || *slots < *h.Slots) {
			h.Slots = slots
		}
		out.Hosts = append(out.Hosts, h)
	}
	var unknown []string
	for _, h := range selected.Hosts {
		if i := find(h.Name); i >= 0 {
			take(i, h.Slots)
		} else {
			unknown = append(unknown, h.Name)
		}
	}
	if len(unknown) > 0 {
		return Allocation{}, fmt.Errorf("%s: not in the %s allocation: %s (it has %s)",
			selected.Source, base.Source, quote(Compress(unknown)), quote(Compress(base.Names())))
	}
	for _, r := range selected.Relative {
		index, count, err := parseRelative(r)
		if err != nil {
			return Allocation{}, err
		}
		if index >= len(base.Hosts) {
			return Allocation{}, fmt.Errorf("%s: %s: the %s allocation has only %d hosts", selected.Source, r, base.Source, len(base.Hosts))
		}
		if index >= 0 {
			take(index, nil)
			continue
		}
		for i := 0; i < len(base.Hosts) && count > 0; i++ {
			if !taken[i] && !excluded[i] {
				take(i, nil)
				count--
			}
		}
	}
	if len(selected.Hosts) == 0 && len(selected.Relative) == 0 {
		for i := range base.Hosts {
			take(i, nil)
		}
	}
	if len(out.Hosts) == 0 {
		return Allocation{}, fmt.Errorf("%s: %w left of the %s allocation", selected.Source, ErrNoHosts, base.Source)
	}
	return out, nil
}

// nameFinder looks hosts up by name or, where that is unambiguous, by the part
// before the first dot. It returns -1 for a stranger.
func nameFinder(hosts []Host) func(string) int {
	full, short := make(map[string]int, len(hosts)), make(map[string]int, len(hosts))
	for i, h := range hosts {
		full[h.Name] = i
		s := shortName(h.Name)
		if _, there := short[s]; there {
			short[s] = -1
		} else {
			short[s] = i
		}
	}
	return func(name string) int {
		if i, ok := full[name]; ok {
			return i
		}
		if i, ok := short[shortName(name)]; ok {
			return i
		}
		return -1
	}
}

// shortName is a name up to its first dot; addresses are left whole.
func shortName(s string) string {
	if _, err := netip.ParseAddr(s); err == nil {
		return s
	}
	name, _, _ := strings.Cut(s, ".")
	return name
}

// Check says what a launcher makes of these hosts otherwise than they are
// written: names that Open MPI merges, addresses that a dialect cannot hold.
func Check(a Allocation, d *Syntax) []finding.Finding {
	var out []finding.Finding
	if d.stripsDomains {
		first := make(map[string]string, len(a.Hosts))
		for _, h := range a.Hosts {
			s := shortName(h.Name)
			other, there := first[s]
			if !there {
				first[s] = h.Name
				continue
			}
			out = append(out, finding.Finding{
				ID: "hosts.fqdn-merged", Severity: finding.Error, Host: h.Name, Subject: "hostfile",
				Seen:   other + " and " + h.Name + " differ only in what follows the first dot",
				Wanted: "names that differ before the first dot",
				Why:    "Open MPI strips domains and takes both for one host",
				Hint:   "set OMPI_MCA_orte_keep_fqdn_hostnames=1 (Open MPI 4) or PRTE_MCA_prte_keep_fqdn_hostnames=1 (5), or use addresses",
			})
		}
	}
	if d.cutsAtColon {
		for _, h := range a.Hosts {
			if strings.Contains(h.Name, ":") {
				out = append(out, finding.Finding{
					ID: "hosts.hydra-ipv6", Severity: finding.Error, Host: h.Name, Subject: "hostfile",
					Seen: "an IPv6 address", Wanted: "a name",
					Why:  "Hydra cuts a line at the first ':' and would take the rest for slots",
					Hint: "give the host a name in DNS or /etc/hosts and use that",
				})
			}
		}
	}
	return out
}

// Format writes the hostfile of a dialect, one host per line in order. A host
// whose slots are not known is written without a number, and the launcher
// counts for itself; deepspeed and horovod have no such form.
func Format(a Allocation, d *Syntax) (string, error) {
	if len(a.Hosts) == 0 {
		return "", ErrNoHosts
	}
	var b strings.Builder
	for _, h := range a.Hosts {
		if !validName(h.Name) {
			return "", fmt.Errorf("%s is not a host name", quote(h.Name))
		}
		if d.cutsAtColon && strings.Contains(h.Name, ":") {
			return "", fmt.Errorf("%s: %s cannot hold IPv6 addresses in a hostfile", quote(h.Name), d.tool)
		}
		b.WriteString(h.Name)
		switch {
		case h.Slots != nil && d.slots != "":
			fmt.Fprintf(&b, d.slots, *h.Slots)
		case d.needsSlots:
			return "", fmt.Errorf("%s: %s wants a number of slots for every host", quote(h.Name), d.tool)
		}
		if h.MaxSlots != nil && d.maxSlots != "" {
			fmt.Fprintf(&b, d.maxSlots, *h.MaxSlots)
		}
		if h.User != "" && d.user != "" {
			fmt.Fprintf(&b, d.user, h.User)
		}
		if h.Port != nil && d.port != "" {
			fmt.Fprintf(&b, d.port, *h.Port)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// maxLine bounds a line of a file somebody else wrote.
const maxLine = 1 << 20

// eachLine calls f with every line, counted from 1, without its line end.
func eachLine(text []byte, f func(n int, line string) error) error {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(line) > maxLine {
			return fmt.Errorf("line %d is longer than %d bytes", n, maxLine)
		}
		if err := f(n, strings.TrimRight(string(line), "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

// ParseDashHost reads what Open MPI's --host takes: "n1,n2:4,n3:*". A mention
// without a number is one slot, repeats add theirs, and ":*" or ":auto" leaves
// the number to the machine. Source: orte/util/dash_host/dash_host.c.
func ParseDashHost(list string) (Allocation, error) {
	var a Allocation
	var all []Host
	unknown := map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if item[0] == '+' {
			if _, _, err := parseRelative(item); err != nil {
				return Allocation{}, err
			}
			a.Relative = append(a.Relative, item)
			continue
		}
		one := 1
		h := Host{Slots: &one}
		name, count, has := strings.Cut(item, ":")
		switch {
		case has && (count == "*" || strings.EqualFold(count, "auto")):
			unknown[name] = true
		case has:
			n, err := parseSlots(count)
			if err != nil {
				return Allocation{}, fmt.Errorf("slots of %s: %w", quote(name), err)
			}
			h.Slots = &n
		}
		if !validName(name) {
			return Allocation{}, fmt.Errorf("%s is not a host name", quote(name))
		}
		if addr, err := netip.ParseAddr(name); err == nil {
			h.Address = addr.String()
		}
		h.Name = name
		all = append(all, h)
	}
	if len(all) == 0 && len(a.Relative) == 0 {
		return Allocation{}, ErrNoHosts
	}
	a.Hosts, _ = merge(all)
	for i := range a.Hosts {
		if unknown[a.Hosts[i].Name] {
			a.Hosts[i].Slots = nil
		}
	}
	return a, nil
}

// Join is two allocations of one job: the applications of one command line may
// name hosts of their own. A host of both has the slots of both.
func Join(a, b Allocation) Allocation {
	out := a
	out.Hosts, _ = merge(slices.Concat(a.Hosts, b.Hosts))
	out.Exclude, out.Relative = slices.Concat(a.Exclude, b.Exclude), slices.Concat(a.Relative, b.Relative)
	out.Findings = slices.Concat(a.Findings, b.Findings)
	return out
}
