package profiles

import (
	"path"
	"slices"
	"strings"
)

// Seen is what of a machine can speak for a profile.
type Seen struct {
	DMI     []string // vendor, product, chassis tag
	PCI     []string // "15b3:1017", lower case
	HCAs    []string
	Netdevs []string
	Files   []string // paths that exist, without leading slash
	// Exists is asked for further paths, where they can be looked at.
	Exists func(path string) bool
	// LinkLayers of the RDMA ports that are up: "ethernet", "infiniband".
	LinkLayers []string
}

// Proposal is a profile that fits what is seen. It is said, never chosen.
type Proposal struct {
	Name  string
	About string
	Why   string // "DMI \"VMware, Inc.\", PCI 15b3:1018"
}

// Fits says whether everything that the profile asks for is seen: of each
// list that it has, at least one entry.
func (m Match) Fits(seen Seen) (why string, ok bool) {
	var found []string
	contains := func(have, want string) bool { return strings.Contains(strings.ToLower(have), strings.ToLower(want)) }
	glob := func(have, pattern string) bool {
		hit, err := path.Match(pattern, have)
		return err == nil && hit
	}
	equal := func(have, want string) bool { return have == want }
	for _, c := range []struct {
		what string
		want []string
		have []string
		is   func(have, want string) bool
	}{
		{"DMI", m.DMI, seen.DMI, contains},
		{"PCI", m.PCI, seen.PCI, equal},
		{"device", m.HCAs, seen.HCAs, glob},
		{"interface", m.Netdevs, seen.Netdevs, glob},
		{"file", m.Files, seen.Files, equal},
	} {
		if len(c.want) == 0 {
			continue
		}
		i := slices.IndexFunc(c.have, func(h string) bool {
			return h != "" && slices.ContainsFunc(c.want, func(w string) bool { return c.is(h, w) })
		})
		if i < 0 {
			return "", false
		}
		found = append(found, c.what+" "+c.have[i])
	}
	return strings.Join(found, ", "), len(found) > 0
}

// Propose returns the profile that fits, by the most evidence; none where two
// have as much, since then nothing tells which is meant, nor one whose kind of
// fabric the machine does not have.
func Propose(dirs Dirs, seen Seen) (Proposal, bool) {
	var best Proposal
	most, as := 0, 0
	own := namesIn(dirs, "")
	for _, n := range names(dirs, "") {
		if !slices.Contains(own, n) && !mayFit(n, seen) {
			continue
		}
		p, err := Load(dirs, n)
		if err != nil {
			continue // listed, with its error, by List
		}
		if l := p.Fabric.LinkLayer; l != "" && len(seen.LinkLayers) > 0 && !slices.Contains(seen.LinkLayers, l) {
			continue
		}
		here := seen
		for _, f := range p.Match.Files {
			if seen.Exists != nil && seen.Exists(f) {
				here.Files = append(slices.Clip(here.Files), f)
			}
		}
		why, ok := p.Match.Fits(here)
		if !ok {
			continue
		}
		switch found := strings.Count(why, ", ") + 1; {
		case found > most:
			best, most, as = Proposal{Name: p.Name, About: p.About, Why: why}, found, 1
		case found == most:
			as++
		}
	}
	return best, as == 1
}

// mayFit reports whether a built-in profile has a [match] of which each list has
// a word that fits something: parsing every profile to find the one that fits
// would be the dearest part of a start.
func mayFit(name string, seen Seen) bool {
	text, err := builtins.ReadFile(path.Join("builtin", name+".toml"))
	if err != nil {
		return true
	}
	_, section, ok := strings.Cut(string(text), "\n[match]\n")
	if !ok {
		return false
	}
	section, _, _ = strings.Cut(section, "\n[")
	for line := range strings.Lines(section) {
		key, values, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		words := slices.DeleteFunc(strings.Split(values, `"`), func(w string) bool { return strings.Trim(w, "[], \n") == "" })
		m := Match{}
		switch strings.TrimSpace(key) {
		case "dmi":
			m.DMI = words
		case "pci":
			m.PCI = words
		case "hcas":
			m.HCAs = words
		case "netdevs":
			m.Netdevs = words
		case "files":
			if seen.Exists != nil && slices.ContainsFunc(words, seen.Exists) {
				continue
			}
			m.Files = words
		default:
			return true
		}
		if _, fits := m.Fits(seen); !fits {
			return false
		}
	}
	return true
}
