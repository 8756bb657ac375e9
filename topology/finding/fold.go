package finding

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// names finds what tells one port, interface or GPU from its siblings.
var names = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`GPU \d+|[A-Za-z][A-Za-z_.-]*[A-Za-z0-9_.:-]*\d[A-Za-z0-9_.:-]*|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d`)
})

var (
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`) })
	portName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^ :]+:\d+$| port \d`) })
)

// noun is what a subject is one of.
func noun(subject string) string {
	switch {
	case strings.HasPrefix(subject, "GPU "):
		return "GPU"
	case portName().MatchString(subject):
		return "port"
	}
	return "device"
}

// ofPorts are the topics that are about ports, devices and GPUs.
var ofPorts = []string{"hca", "port", "mtu", "gid", "ib", "qos", "pcie", "numa", "device", "cm", "irq", "counter", "topo"}

// maxFolded is how many names are written out.
const maxFolded = 16

// Fold makes one finding of those that say the same of siblings: "8 ports:
// mlx5_0:1, …: trust pcp" in place of eight. What differs in nothing but the names
// of its subject is the same; the hint is the first one's, and names the others.
func Fold(fs []Finding) []Finding {
	var out []Finding
	var groups [][]Finding
	at := map[Finding]int{}
	for _, f := range fs {
		key, own := nameless(f)
		i, ok := at[key]
		if len(own) == 0 || !ok {
			if len(own) > 0 {
				at[key] = len(out)
			}
			out, groups = append(out, f), append(groups, []Finding{f})
			continue
		}
		if !slices.Contains(groups[i], f) {
			groups[i] = append(groups[i], f)
		}
	}
	for i, g := range groups {
		if len(g) > 1 {
			out[i] = merged(g)
		}
	}
	return out
}

// nameless is a finding without the names of its subject, and these names.
func nameless(f Finding) (Finding, []string) {
	subject, _, _ := strings.Cut(f.Subject, " on ") // which hosts is not which port
	own := names().FindAllString(subject, -1)
	topic, _, _ := strings.Cut(f.ID, ".")
	if len(own) == 0 || strings.Contains(subject, ", ") || variable().MatchString(subject) ||
		!slices.Contains(ofPorts, topic) && !(topic == "across" && (strings.Contains(subject, " port ") || f.ID == "across.firmware" || f.ID == "across.driver")) {
		return f, nil // of none, of several already, of a variable, or of no part of a machine
	}
	for _, text := range []*string{&f.Subject, &f.Seen, &f.Wanted, &f.Why} {
		*text = blank(*text, own)
	}
	f.Subject = noun(subject) + f.Subject // GPUs and cards are no siblings
	// what is to be done is done to the port's interface, which has a name of its own
	f.Hint = names().ReplaceAllString(blank(f.Hint, own), "\x02")
	return f, own
}

func blank(text string, own []string) string {
	for i, n := range sortedByLength(own) {
		text = strings.ReplaceAll(text, n, "\x00"+strconv.Itoa(i))
		// a port's device without its port: "mlx5_0" of "mlx5_0:1"
		if dev, _, ok := strings.Cut(n, ":"); ok && strings.Count(n, ":") == 1 {
			text = strings.ReplaceAll(text, dev, "\x01"+strconv.Itoa(i))
		}
	}
	return text
}

func sortedByLength(own []string) []string {
	out := slices.Clone(own)
	slices.SortStableFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}

// merged is one finding for a group that says the same.
func merged(group []Finding) Finding {
	f := group[0]
	_, own := nameless(f)
	subject, where, several := strings.Cut(f.Subject, " on ")
	var subjects []string
	for i, g := range group {
		if i == maxFolded {
			subjects = append(subjects, "and "+strconv.Itoa(len(group)-i)+" more")
			break
		}
		s, _, _ := strings.Cut(g.Subject, " on ")
		subjects = append(subjects, s)
	}
	f.Subject = strconv.Itoa(len(group)) + " " + noun(subject) + "s: " + strings.Join(subjects, ", ")
	if several {
		f.Subject += " on " + where
	}
	for _, n := range sortedByLength(own) {
		f.Seen, f.Wanted, f.Why = strings.ReplaceAll(f.Seen, n, "each"), strings.ReplaceAll(f.Wanted, n, "each"), strings.ReplaceAll(f.Why, n, "each")
	}
	if blank(f.Hint, own) != f.Hint || slices.ContainsFunc(group, func(g Finding) bool { return g.Hint != f.Hint }) {
		f.Hint += "; and so for each of them"
	}
	return f
}
