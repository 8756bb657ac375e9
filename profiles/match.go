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
	for _, n := range names(dirs, "") {
		p, err := Load(dirs, n)
		if err != nil {
			continue // listed, with its error, by List
		}
		if l := p.Fabric.LinkLayer; l != "" && len(seen.LinkLayers) > 0 && !slices.Contains(seen.LinkLayers, l) {
			continue
		}
		why, ok := p.Match.Fits(seen)
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
