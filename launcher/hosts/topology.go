package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"fabrun/topology/finding"
)

// Topology says which hosts are near each other: every host has a path of
// switches (or one block), given as positions in the file, outermost first.
type Topology struct {
	Kind  string // "tree", "block", "layers"
	paths map[string]place
}

// place is where a host hangs.
type place struct {
	path []int
	leaf string // name of the switch or block
}

// group is a switch or a block as the files describe it.
type group struct {
	name     string
	nodes    []string
	children []string
}

// maxTopologyDepth bounds switches above switches; it also ends a loop.
const maxTopologyDepth = 64

// ParseTopology reads Slurm's topology.conf (tree or block, also as scontrol
// show topology prints it), topology.yaml (which topograph writes for Slurm),
// and topograph's own forms: the graph engine's instances and models of
// switches. Which it is follows from the text.
func ParseTopology(text []byte) (Topology, error) {
	if isTopologyConf(text) {
		return parseTopologyConf(text)
	}
	return parseTopologyYAML(text)
}

// isTopologyConf recognises KEY=VALUE lines.
func isTopologyConf(text []byte) bool {
	for line := range bytes.Lines(text) {
		word, _, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "switchname", "blockname", "blocksizes":
			return true
		}
	}
	return false
}

// parseTopologyConf reads topology.conf(5): names are case-insensitive, '#'
// begins a comment, a line is continued by a backslash.
func parseTopologyConf(text []byte) (Topology, error) {
	var switches, blocks []group
	text = bytes.ReplaceAll(text, []byte("\\\r\n"), []byte(" "))
	text = bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))
	err := eachLine(text, func(n int, line string) error {
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		var g group
		isBlock, named := false, false
		for _, w := range strings.Fields(line) {
			key, value, ok := strings.Cut(w, "=")
			if !ok {
				return fmt.Errorf("line %d: %s: wanted NAME=VALUE", n, quote(w))
			}
			var err error
			switch strings.ToLower(key) {
			case "switchname":
				g.name, named = value, true
			case "blockname":
				g.name, named, isBlock = value, true, true
			case "nodes":
				g.nodes, err = Expand(value)
			case "switches":
				g.children, err = Expand(value)
			}
			// LinkSpeed, Level, BlockSizes and what later versions add do not bear on the order.
			if err != nil {
				return fmt.Errorf("line %d: %s: %w", n, key, err)
			}
		}
		switch {
		case isBlock:
			blocks = append(blocks, g)
		case named:
			switches = append(switches, g)
		case g.nodes != nil || g.children != nil:
			return fmt.Errorf("line %d: Nodes or Switches without SwitchName or BlockName", n)
		}
		return nil
	})
	if err != nil {
		return Topology{}, err
	}
	if len(blocks) > 0 {
		return fromBlocks(blocks)
	}
	return fromSwitches(switches)
}

// topologyFile is everything of the YAML (and JSON) forms that bears on the order.
type topologyFile struct {
	Instances []struct {
		ID     string   `yaml:"id"`
		Layers []string `yaml:"network_layers"` // leaf first
	} `yaml:"instances"`
	Switches       yaml.Node        `yaml:"switches"`
	CapacityBlocks map[string]model `yaml:"capacity_blocks"`
}

// model is one switch of a topograph model.
type model struct {
	Switches []string `yaml:"switches"`
	Nodes    []string `yaml:"nodes"`
}

// slurmTopology is one entry of topology.yaml(5).
type slurmTopology struct {
	Topology string `yaml:"topology"`
	Default  bool   `yaml:"cluster_default"`
	Flat     bool   `yaml:"flat"`
	Tree     *struct {
		Switches []struct {
			Switch   string `yaml:"switch"`
			Children string `yaml:"children"`
			Nodes    string `yaml:"nodes"`
		} `yaml:"switches"`
	} `yaml:"tree"`
	Block *struct {
		Blocks []struct {
			Block string `yaml:"block"`
			Nodes string `yaml:"nodes"`
		} `yaml:"blocks"`
	} `yaml:"block"`
}

var errNoTopology = errors.New("no switches and no blocks: wanted topology.conf, topology.yaml or topograph's output")

func parseTopologyYAML(text []byte) (Topology, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return Topology{}, err
	}
	if len(root.Content) != 1 {
		return Topology{}, errNoTopology
	}
	switch root.Content[0].Kind {
	case yaml.SequenceNode:
		var all []slurmTopology
		if err := root.Decode(&all); err != nil {
			return Topology{}, err
		}
		return fromSlurmYAML(all)
	case yaml.MappingNode:
		var f topologyFile
		if err := root.Decode(&f); err != nil {
			return Topology{}, err
		}
		return fromTopograph(f)
	}
	return Topology{}, errNoTopology
}

// fromSlurmYAML takes the cluster's default topology, else the first that is
// not flat.
func fromSlurmYAML(all []slurmTopology) (Topology, error) {
	usable := func(t slurmTopology) bool { return t.Tree != nil || t.Block != nil }
	i := slices.IndexFunc(all, func(t slurmTopology) bool { return t.Default && usable(t) })
	if i < 0 {
		i = slices.IndexFunc(all, usable)
	}
	if i < 0 {
		return Topology{}, errNoTopology
	}
	var groups []group
	add := func(name, nodes, children string) error {
		g := group{name: name}
		for _, part := range []struct {
			text string
			into *[]string
		}{{nodes, &g.nodes}, {children, &g.children}} {
			if strings.TrimSpace(part.text) == "" {
				continue
			}
			names, err := Expand(part.text)
			if err != nil {
				return fmt.Errorf("topology %s: %s: %w", quote(all[i].Topology), quote(name), err)
			}
			*part.into = names
		}
		groups = append(groups, g)
		return nil
	}
	if b := all[i].Block; b != nil {
		for _, one := range b.Blocks {
			if err := add(one.Block, one.Nodes, ""); err != nil {
				return Topology{}, err
			}
		}
		return fromBlocks(groups)
	}
	for _, one := range all[i].Tree.Switches {
		if err := add(one.Switch, one.Nodes, one.Children); err != nil {
			return Topology{}, err
		}
	}
	return fromSwitches(groups)
}

func fromTopograph(f topologyFile) (Topology, error) {
	if len(f.Instances) > 0 {
		t := Topology{Kind: "layers", paths: make(map[string]place, len(f.Instances))}
		number := map[string]int{}
		for _, in := range f.Instances {
			var path []int
			for _, layer := range slices.Backward(in.Layers) {
				if _, ok := number[layer]; !ok {
					number[layer] = len(number)
				}
				path = append(path, number[layer])
			}
			if len(path) > 0 && len(path) <= maxTopologyDepth {
				t.paths[in.ID] = place{path, in.Layers[0]}
			}
		}
		if len(t.paths) == 0 {
			return t, errNoTopology
		}
		return t, nil
	}
	var groups []group
	// The mapping's order is the file's, which a Go map would lose.
	for i := 0; i+1 < len(f.Switches.Content); i += 2 {
		var m model
		if err := f.Switches.Content[i+1].Decode(&m); err != nil {
			return Topology{}, err
		}
		g, err := fromModel(f.Switches.Content[i].Value, m)
		if err != nil {
			return Topology{}, err
		}
		groups = append(groups, g)
	}
	if len(groups) > 0 {
		return fromSwitches(groups)
	}
	names := make([]string, 0, len(f.CapacityBlocks))
	for name := range f.CapacityBlocks {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g, err := fromModel(name, f.CapacityBlocks[name])
		if err != nil {
			return Topology{}, err
		}
		groups = append(groups, g)
	}
	return fromBlocks(groups)
}

func fromModel(name string, m model) (group, error) {
	g := group{name: name, children: m.Switches}
	for _, expr := range m.Nodes {
		names, err := Expand(expr)
		if err != nil {
			return g, fmt.Errorf("%s: %w", quote(name), err)
		}
		g.nodes = append(g.nodes, names...)
	}
	return g, nil
}

func fromBlocks(blocks []group) (Topology, error) {
	t := Topology{Kind: "block", paths: map[string]place{}}
	for i, b := range blocks {
		for _, n := range b.nodes {
			if _, twice := t.paths[n]; !twice {
				t.paths[n] = place{[]int{i}, b.name}
			}
		}
	}
	if len(t.paths) == 0 {
		return t, errNoTopology
	}
	return t, nil
}

// fromSwitches walks from every switch that has nodes up to its root.
func fromSwitches(switches []group) (Topology, error) {
	index := make(map[string]int, len(switches))
	for i, s := range switches {
		if _, twice := index[s.name]; twice {
			return Topology{}, fmt.Errorf("switch %s is there twice", quote(s.name))
		}
		index[s.name] = i
	}
	parent := make(map[int]int, len(switches))
	for i, s := range switches {
		for _, c := range s.children {
			child, known := index[c]
			if !known {
				return Topology{}, fmt.Errorf("switch %s names %s, which is described nowhere", quote(s.name), quote(c))
			}
			if _, has := parent[child]; !has {
				parent[child] = i
			}
		}
	}
	up := func(i int) (int, bool) { p, ok := parent[i]; return p, ok }
	t := Topology{Kind: "tree", paths: map[string]place{}}
	for i, s := range switches {
		if len(s.nodes) == 0 {
			continue
		}
		var path []int
		for at, has := i, true; has; at, has = up(at) {
			if path = append(path, at); len(path) > maxTopologyDepth {
				return Topology{}, fmt.Errorf("switch %s is above itself", quote(s.name))
			}
		}
		slices.Reverse(path)
		for _, n := range s.nodes {
			// scontrol show topology lists a node under every switch above it too: the deepest is its own.
			if old, twice := t.paths[n]; !twice || len(path) > len(old.path) {
				t.paths[n] = place{path, s.name}
			}
		}
	}
	if len(t.paths) == 0 {
		return t, errNoTopology
	}
	return t, nil
}

// Order puts hosts that hang at the same switch or block next to each other, in
// the order of the topology's file; within one switch they keep their order.
// Hosts that the topology does not know come last, and are named in a finding.
func Order(a Allocation, t Topology) Allocation {
	type placed struct {
		host Host
		at   place
	}
	at := func(h Host) (place, bool) {
		if p, ok := t.paths[h.Name]; ok {
			return p, true
		}
		p, ok := t.paths[shortName(h.Name)]
		return p, ok
	}
	var known []placed
	var strangers []Host
	leaves := map[string]bool{}
	for _, h := range a.Hosts {
		p, ok := at(h)
		if !ok {
			strangers = append(strangers, h)
			continue
		}
		leaves[p.leaf] = true
		known = append(known, placed{h, p})
	}
	slices.SortStableFunc(known, func(x, y placed) int { return slices.Compare(x.at.path, y.at.path) })
	out := a
	out.Findings = slices.Clone(a.Findings)
	out.Hosts = make([]Host, 0, len(a.Hosts))
	for _, k := range known {
		out.Hosts = append(out.Hosts, k.host)
	}
	out.Hosts = append(out.Hosts, strangers...)
	if a.Self != nil && *a.Self < len(a.Hosts) {
		self := slices.IndexFunc(out.Hosts, func(h Host) bool { return h.Name == a.Hosts[*a.Self].Name })
		out.Self = &self
	}
	if len(strangers) > 0 {
		names := Allocation{Hosts: strangers}.Names()
		out.Findings = append(out.Findings, finding.Finding{
			ID: "hosts.not-in-topology", Severity: finding.Warning, Subject: "topology",
			Seen: Compress(names) + " is in no switch or block", Wanted: "every host of the job",
			Why: "these hosts come last, wherever they hang", Hint: "bring the topology file up to date",
		})
	}
	where := "switches"
	if t.Kind == "block" {
		where = "blocks"
	}
	out.Findings = append(out.Findings, finding.Finding{
		ID: "hosts.order", Severity: finding.Note, Subject: "topology",
		Seen: fmt.Sprintf("%d hosts in %d %s", len(known), len(leaves), where), Wanted: "",
		Why: "hosts that share one stand next to each other, so that neighbouring ranks do",
	})
	return out
}
