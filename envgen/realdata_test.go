package envgen

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/testdata/realdata"
	"fabrun/topology"
	"fabrun/topology/pasted"
)

func eachTruth[T any](t *testing.T, kind string, check func(name, text string, want T)) {
	t.Helper()
	dir := realdata.Dir(t, kind)
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		truth, err := os.ReadFile(strings.TrimSuffix(file, ".txt") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want T
		if err := json.Unmarshal(truth, &want); err != nil {
			t.Fatal(err)
		}
		check(filepath.Base(file), string(text), want)
	}
}

// gidHost is a host of what show_gids prints: its ports up, RoCE.
func gidHost(text string) topology.Host {
	h := topology.Host{Name: "n1"}
	for _, g := range pasted.ReadGIDs(text).Ports {
		p := topology.Port{Number: g.Port, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet"}
		for _, row := range g.GIDs {
			gid := topology.GID{Index: row.Index, Addr: row.Addr, Type: row.Type, Kind: row.Kind, Netdev: row.Netdev}
			if gid.Type == "RoCE v1" {
				gid.Type = roceV1
			}
			if p.Netdev == "" {
				p.Netdev = row.Netdev
			}
			p.GIDs = append(p.GIDs, gid)
		}
		h.HCAs = append(h.HCAs, topology.HCA{Name: g.HCA, Driver: "mlx5", Ports: []topology.Port{p}})
		if d := netdev(p.Netdev, ""); p.Netdev != "" {
			h.Netdevs = append(h.Netdevs, d)
		}
	}
	return h
}

// Every port of every real table gets the GID that is right for RoCE v2 over
// IPv4, or none; and what NCCL ends on, before and after 2.21, is that one.
func TestRealdataGIDDecisions(t *testing.T) {
	type truth struct {
		Index map[string]*int `json:"rocev2_ipv4_index"`
	}
	tally := realdata.Tally{Set: "gids: chosen GID and NCCL's"}
	eachTruth(t, "gids", func(name, text string, want truth) {
		h := gidHost(text)
		in := Input{Hosts: []topology.Host{h}, Profile: profiles.Profile{Fabric: profiles.Fabric{LinkLayer: "ethernet", GIDFamily: "ipv4"}}}
		s := &state{in: in, portRules: portRules(), want: wantOf(&in.Profile), nodes: []*node{{h: &h}}}
		s.choosePorts()
		if len(want.Index) == 0 {
			tally.Count(len(s.nodes[0].use) == 0, name, "a port is used")
		}
		for _, p := range s.nodes[0].ports {
			w := want.Index[p.hca.Name]
			got := "none"
			if p.gid != nil {
				got = fmt.Sprint(p.gid.Index)
			}
			tally.Count((w == nil) == (p.gid == nil) && (w == nil || *w == p.gid.Index), name+" "+p.hca.Name, got)
		}
		for _, version := range []string{"2.18.3", "2.27.3"} {
			in.Job = Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: version}}
			res := Compute(in)
			vars := values(res.Hosts[0].Vars)
			if vars["NCCL_IB_HCA"] == "" {
				tally.Count(!slices.ContainsFunc(s.nodes[0].ports, func(p *port) bool { return want.Index[p.hca.Name] != nil }), name+" "+version, "nothing set")
				continue
			}
			f := parseFilter(vars["NCCL_IB_HCA"])
			for _, c := range h.HCAs {
				if !f.takes(c.Name, 1) {
					tally.Count(want.Index[c.Name] == nil, name+" "+version+" "+c.Name, "left out")
					continue
				}
				got := oracle(rawTable(withoutMasked(c.Ports[0])), version, vars)
				tally.Count(want.Index[c.Name] != nil && got == *want.Index[c.Name], name+" "+version+" "+c.Name, fmt.Sprint(got))
			}
		}
	})
	tally.Print(t)
}

// withoutMasked gives rows whose address was hidden in the paste a link-local one.
func withoutMasked(p topology.Port) topology.Port {
	p.GIDs = slices.Clone(p.GIDs)
	for i := range p.GIDs {
		if !p.GIDs[i].Addr.IsValid() {
			p.GIDs[i].Addr = ethPort("x", "10.0.0.1", 1).GIDs[0].Addr
		}
	}
	return p
}

// On every real QoS table the plan "DSCP 26" is judged right: fine where DSCP
// 26 is lossless, said where the port trusts pcp, where its priority is not
// lossless, and where a port-wide class overrides it.
func TestRealdataQoSDecisions(t *testing.T) {
	type truth struct {
		Trust string           `json:"trust"`
		DSCPs map[string][]int `json:"dscp_of_lossless"`
		TOS   *int             `json:"roce_tos"`
	}
	tally := realdata.Tally{Set: "qos: plan DSCP 26 judged"}
	profile := load(t, "roce-dscp26")
	eachTruth(t, "qos", func(name, text string, want truth) {
		d := pasted.ReadQoS(text).Devices[0]
		h := cx4lx("n1", "10.1.4.1")
		h.Netdevs[0].DCB = &d.DCB
		h.HCAs[0].Ports[0].GlobalTClass = d.GlobalTClass
		found := findingIDs(Compute(Input{Hosts: []topology.Host{h}, Profile: profile}))
		lossless := false
		for _, ds := range want.DSCPs {
			lossless = lossless || slices.Contains(ds, 26)
		}
		has := func(id string) bool { return found[id] != "" }
		tally.Count(has("qos.trust") == (want.Trust == "pcp"), name+" trust", fmt.Sprint(found))
		if d.DCB.DSCPToPriority != nil {
			tally.Count(has("qos.not-lossless") == (want.Trust == "dscp" && !lossless), name+" lossless", fmt.Sprint(found))
		}
		if d.GlobalTClass != nil {
			tally.Count(has("qos.global-tclass") == (*d.GlobalTClass>>2 != 26), name+" class of the port", fmt.Sprint(found))
		}
	})
	tally.Print(t)
}
