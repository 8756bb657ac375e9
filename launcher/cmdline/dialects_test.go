package cmdline

import (
	"slices"
	"testing"
)

// TestDialectsAreWhole: each dialect fills in what belongs together, and every
// option that it names, to be read or to be said, is one of its own grammar.
func TestDialectsAreWhole(t *testing.T) {
	for i, d := range Dialects {
		miss := func(what string, missing bool) {
			if missing {
				t.Errorf("%s: %s", d.Name, what)
			}
		}
		miss("a name of its own", d.Name == "" || Named(d.Name) != Dialects[i])
		miss("a way to recognise it", !d.Alone && len(d.programs) == 0 && d.says == nil)
		miss("says: what it calls itself", d.Reads() && d.says == nil)
		if !d.Reads() {
			miss("nothing to be told: its command line is not read", d.NP != "" || d.Hostfile.Option != "" || d.Forward != nil || d.hosts != nil || d.ranks != nil)
			continue
		}
		miss("ranks, or PerNode", (d.ranks == nil) != d.PerNode)
		miss("hosts, or PerNode", (d.hosts == nil) != d.PerNode)
		miss("Managers, or PerNode", (d.Managers == nil) != d.PerNode)
		miss("Hostfile.Syntax, to read what its options for hosts name", d.hosts != nil && d.Hostfile.Syntax == nil)
		miss("Hostfile.Option or HostOption, to be told hosts", d.hosts != nil && d.Hostfile.Option == "" && d.HostOption == "")
		miss("Local, or Manager, whose ranks' names it uses", (d.Local == nil) != (d.Manager != ""))
		miss("mapTwins without mapping", d.mapTwins != nil && d.mapping == nil)
		miss("hostTwins without hosts", d.hostTwins != nil && d.hosts == nil)
		if d.MPI != "" {
			miss("NP", d.NP == "")
			miss("Forward", d.Forward == nil)
			miss("SSH", d.SSH == nil)
			miss("Own", d.Own == nil)
			miss("Even", d.Even == nil)
			miss("Uneven", !d.Uneven.ByHostfile && d.Uneven.InTurn == nil)
			miss("gives", d.gives == nil)
			miss("installed", d.installed == nil)
		}

		g := d.grammar()
		read := slices.Concat(d.ranks, d.mapping)
		for _, h := range d.hosts {
			read = append(read, h.name)
		}
		for _, c := range d.containers {
			read = append(read, c.option)
		}
		if d.Forward != nil {
			read = append(read, d.Forward.Narrows...)
		}
		if d.Export != nil {
			read = append(read, d.Export.Option)
		}
		if d.RefusesRoot != nil {
			read = append(read, d.RefusesRoot.Option)
		}
		for _, name := range append(read, d.nodes, d.Elastic, d.MPIType.Option) {
			if _, there := g.args[name]; name != "" && !there {
				t.Errorf("%s: its grammar has no option %q", d.Name, name)
			}
		}

		said := [][]string{d.BindCore, d.Uneven.InTurn}
		if d.NP != "" {
			said = append(said, []string{d.NP, "4"})
		}
		if d.Even != nil {
			said = append(said, d.Even(4))
		}
		if d.Sequence != nil {
			said = append(said, d.Sequence.Options)
		}
		if d.Hostfile.Option != "" {
			said = append(said, []string{d.Hostfile.Option, "file"})
		}
		if d.HostOption != "" {
			said = append(said, []string{d.HostOption + "n1,n2"})
		}
		if d.Forward != nil && d.Forward.Option != "" {
			said = append(said, []string{d.Forward.Option, "NAME"})
		}
		if d.Forward != nil && d.Forward.Set != "" {
			said = append(said, []string{d.Forward.Set, "NAME", "value"})
		}
		if d.NoPython != "" {
			said = append(said, []string{d.NoPython})
		}
		for _, words := range said {
			if words != nil && !d.makesSense(append(slices.Clone(words), "./a.out")) {
				t.Errorf("%s: it would not understand %q", d.Name, words)
			}
		}
	}
}
