package hosts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const treeConf = `# two leaves under a spine
SwitchName=leaf2 Nodes=n[3-4] LinkSpeed=100
switchname=leaf1 nodes=n[1-2],n5
SwitchName=spine Switches=leaf[1-2]
`

func TestOrder(t *testing.T) {
	for _, tc := range []struct {
		name, topology, hosts, want, findings string
	}{
		{"tree, file order of leaves", treeConf, "n[1-5]", "n3 n4 n1 n2 n5", "hosts.order=5 hosts in 2 switches"},
		{"tree, order inside a leaf is kept", treeConf, "n5,n4,n1,n3", "n4 n3 n5 n1", "hosts.order=4 hosts in 2 switches"},
		{"strangers last", treeConf, "x1,n1,n3", "n3 n1 x1", "hosts.not-in-topology=x1 is in no switch or block hosts.order=2 hosts in 2 switches"},
		{"names with a domain", treeConf, "n1.c.org,n3.c.org,n2.c.org", "n3.c.org n1.c.org n2.c.org", "hosts.order=3 hosts in 2 switches"},
		{
			"as scontrol shows it", "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=a,b\nSwitchName=a Level=0 LinkSpeed=1 Nodes=n[1,3]\nSwitchName=b Level=0 LinkSpeed=1 Nodes=n[2,4]\n",
			"n[1-4]", "n1 n3 n2 n4", "hosts.order=4 hosts in 2 switches",
		},
		{"continued line", "SwitchName=a \\\n Nodes=n2\nSwitchName=b Nodes=n1\n", "n[1-2]", "n2 n1", "hosts.order=2 hosts in 2 switches"},
		{"blocks", "BlockName=b1 Nodes=n[1,3]\nBlockName=b2 Nodes=n[2,4]\nBlockSizes=2,4\n", "n[1-4]", "n1 n3 n2 n4", "hosts.order=4 hosts in 2 blocks"},
		{"yaml tree", `---
- topology: flat1
  flat: true
- topology: other
  tree:
    switches: [{switch: s, nodes: "n[1-4]"}]
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[1-2]
      - switch: leaf1
        nodes: n[1,3]
      - switch: leaf2
        nodes: n[2,4]
`, "n[1-4]", "n1 n3 n2 n4", "hosts.order=4 hosts in 2 switches"},
		{
			"yaml block", "- topology: t\n  block:\n    block_sizes: [2]\n    blocks:\n    - block: b1\n      nodes: n[2,4]\n    - block: b2\n      nodes: n[1,3]\n",
			"n[1-4]", "n2 n4 n1 n3", "hosts.order=4 hosts in 2 blocks",
		},
		{
			"topograph graph", `{"instances":[{"id":"n1","network_layers":["l1","s1"]},{"id":"n2","network_layers":["l2","s1"]},{"id":"n3","network_layers":["l1","s1"]}]}`,
			"n[1-3]", "n1 n3 n2", "hosts.order=3 hosts in 2 switches",
		},
		{
			"topograph model", "switches:\n  core:\n    switches: [leaf2, leaf1]\n  leaf1:\n    nodes: [\"n[1,3]\"]\n  leaf2:\n    nodes: [n2]\n",
			"n[1-3]", "n1 n3 n2", "hosts.order=3 hosts in 2 switches",
		},
		{"topograph capacity blocks", "capacity_blocks:\n  cb1:\n    nodes: [n2]\n  cb2:\n    nodes: [n1, n3]\n", "n[1-3]", "n2 n1 n3", "hosts.order=3 hosts in 2 blocks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			topo, err := ParseTopology([]byte(tc.topology))
			if err != nil {
				t.Fatal(err)
			}
			a, err := ParseList(tc.hosts)
			if err != nil {
				t.Fatal(err)
			}
			got := Order(a, topo)
			var found []string
			for _, f := range got.Findings {
				found = append(found, f.ID+"="+f.Seen)
			}
			if diff := cmp.Diff([]string{tc.want, tc.findings}, []string{strings.Join(got.Names(), " "), strings.Join(found, " ")}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOrderKeepsSelf(t *testing.T) {
	topo, err := ParseTopology([]byte(treeConf))
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseList("n[1-4]")
	if err != nil {
		t.Fatal(err)
	}
	a.Self = ptr(0)
	if got := Order(a, topo); *got.Self != 2 || got.Hosts[2].Name != "n1" {
		t.Errorf("self is %d of %v, want n1", *got.Self, got.Names())
	}
}

func TestParseTopologyErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "no switches and no blocks: wanted topology.conf, topology.yaml or topograph's output"},
		{"flat only", "- topology: a\n  flat: true\n", "no switches and no blocks: wanted topology.conf, topology.yaml or topograph's output"},
		{"prose", "hello\n", "no switches and no blocks: wanted topology.conf, topology.yaml or topograph's output"},
		{"no nodes", "SwitchName=a\n", "no switches and no blocks: wanted topology.conf, topology.yaml or topograph's output"},
		{"bad list", "SwitchName=a Nodes=n[1-\n", `line 1: Nodes: host list "n[1-": character 2: '[' is never closed`},
		{"word", "SwitchName=a Nodes=n1 extra\n", `line 1: "extra": wanted NAME=VALUE`},
		{"nameless", "SwitchName=a Nodes=n1\nNodes=n2\n", "line 2: Nodes or Switches without SwitchName or BlockName"},
		{"unknown switch", "SwitchName=a Switches=b,c\nSwitchName=b Nodes=n1\n", `switch "a" names "c", which is described nowhere`},
		{"twice", "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", `switch "a" is there twice`},
		{"loop", "SwitchName=a Switches=b Nodes=n1\nSwitchName=b Switches=a\n", `switch "a" is above itself`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseTopology([]byte(tc.text))
			if err == nil || err.Error() != tc.want {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func FuzzParseTopology(f *testing.F) {
	f.Add([]byte(treeConf))
	f.Add([]byte("- topology: t\n  block:\n    blocks:\n    - block: b1\n      nodes: n[2,4]\n"))
	f.Add([]byte(`{"instances":[{"id":"n1","network_layers":["l1","s1"]}]}`))
	f.Add([]byte("switches:\n  core:\n    switches: [leaf]\n  leaf:\n    nodes: [n1]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		topo, err := ParseTopology(text)
		if err != nil {
			return
		}
		a := Allocation{Hosts: []Host{{Name: "n1"}, {Name: "n2"}, {Name: "x"}}}
		if got := Order(a, topo); len(got.Hosts) != 3 {
			t.Fatalf("%d hosts left of 3", len(got.Hosts))
		}
	})
}
