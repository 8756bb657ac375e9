package pasted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fabrun/testdata/realdata"
	"fabrun/topology"
	"fabrun/topology/health"
)

// eachTruth calls f with every .txt of one kind that has a truth beside it.
func eachTruth[T any](t *testing.T, kind string, f func(name, text string, truth T)) {
	t.Helper()
	dir := realdata.Dir(t, kind)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no truths in %s: %v", dir, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var truth T
		if err := json.Unmarshal(raw, &truth); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		f(strings.TrimSuffix(filepath.Base(file), ".json"), string(text), truth)
	}
}

func TestRealdataMatrix(t *testing.T) {
	type truth struct {
		GPUs int      `json:"gpus"`
		NICs []string `json:"nics"`
		Best map[string]struct {
			Level string   `json:"level"`
			NICs  []string `json:"nics"`
			CPUs  string   `json:"cpu_affinity"`
			NUMA  string   `json:"numa"`
		} `json:"best_nics"`
		Usable map[string][]string `json:"usable"`
	}
	devices, best, affinity := realdata.Tally{Set: "topo: devices"}, realdata.Tally{Set: "topo: nearest HCAs"}, realdata.Tally{Set: "topo: affinity"}
	eachTruth(t, "topo", func(name, text string, want truth) {
		m := ReadMatrix(text)
		devices.Count(len(m.GPUs) == want.GPUs && slices.Equal(m.HCAs, want.NICs), name, fmt.Sprintf("%d GPUs %v, want %d %v", len(m.GPUs), m.HCAs, want.GPUs, want.NICs))
		for gpu, w := range want.Best {
			i := slices.IndexFunc(m.Best, func(b MatrixBest) bool { return b.GPU == gpu })
			if i < 0 {
				best.Count(false, name+" "+gpu, "not there")
				continue
			}
			b := m.Best[i]
			best.Count(string(b.Level) == w.Level && slices.Equal(b.HCAs, w.NICs), name+" "+gpu, fmt.Sprintf("%s %v, want %s %v", b.Level, b.HCAs, w.Level, w.NICs))
			g := m.GPUs[slices.IndexFunc(m.GPUs, func(g MatrixGPU) bool { return g.Name == gpu })]
			affinity.Count(g.CPUAffinity == w.CPUs && g.NUMA == w.NUMA, name+" "+gpu, fmt.Sprintf("%q %q, want %q %q", g.CPUAffinity, g.NUMA, w.CPUs, w.NUMA))
			if u, ok := want.Usable[gpu]; ok {
				best.Count(slices.Equal(b.Usable, u), name+" "+gpu+" usable", fmt.Sprintf("%v, want %v", b.Usable, u))
			}
		}
	})
	devices.Print(t)
	best.Print(t)
	affinity.Print(t)
}

func TestRealdataGIDs(t *testing.T) {
	type truth struct {
		Index map[string]*int `json:"rocev2_ipv4_index"`
	}
	tally := realdata.Tally{Set: "gids: index"}
	eachTruth(t, "gids", func(name, text string, want truth) {
		g := ReadGIDs(text)
		if len(want.Index) != len(g.Ports) {
			tally.Count(false, name, fmt.Sprintf("%d ports, want %d", len(g.Ports), len(want.Index)))
		}
		if len(want.Index) == 0 {
			tally.Count(len(g.Ports) == 0, name, "ports where there are none")
		}
		for _, p := range g.Ports {
			w, ok := want.Index[p.HCA]
			index, why := health.GIDIndex(topology.Port{GIDs: p.GIDs})
			right := ok && (w == nil) == (index == nil) && (w == nil || *w == *index)
			tally.Count(right, name+" "+p.HCA, why)
		}
	})
	tally.Print(t)
}

func TestRealdataQoS(t *testing.T) {
	type truth struct {
		Trust    string           `json:"trust"`
		Lossless []int            `json:"lossless_priorities"`
		DSCPs    map[string][]int `json:"dscp_of_lossless"`
		DCBX     string           `json:"dcbx"`
		CNP      *int             `json:"cnp_dscp"`
		Excerpt  bool             `json:"excerpt"`
	}
	tally := realdata.Tally{Set: "qos: trust, PFC, DSCP map"}
	eachTruth(t, "qos", func(name, text string, want truth) {
		q := ReadQoS(text)
		if len(q.Devices) != 1 {
			tally.Count(false, name, fmt.Sprintf("%d devices, want 1", len(q.Devices)))
			return
		}
		d := q.Devices[0]
		tally.Count(d.DCB.Trust == want.Trust, name+" trust", d.DCB.Trust)
		tally.Count(slices.Equal(d.DCB.PFC, want.Lossless), name+" lossless", fmt.Sprint(d.DCB.PFC))
		got := map[string][]int{}
		for _, dscp := range d.DCB.LosslessDSCPs() {
			p := fmt.Sprint(d.DCB.DSCPToPriority[dscp])
			got[p] = append(got[p], dscp)
		}
		tally.Count(fmt.Sprint(got) == fmt.Sprint(want.DSCPs), name+" dscp", fmt.Sprint(got))
		if want.DCBX != "" {
			tally.Count(d.DCB.DCBX == want.DCBX, name+" dcbx", d.DCB.DCBX)
		}
		if want.CNP != nil && want.Excerpt {
			tally.Count(d.CNPDSCP != nil && *d.CNPDSCP == *want.CNP, name+" cnp", "not read")
		}
		for _, f := range q.Findings {
			if f.ID == "paste.unread" {
				tally.Count(false, name, f.Subject+" unread: "+f.Seen)
			}
		}
	})
	tally.Print(t)
}

func TestRealdataPorts(t *testing.T) {
	type ca struct {
		LinkLayer string   `json:"link_layer"`
		State     string   `json:"state"`
		Rate      *float64 `json:"rate"`
		MTU       *int     `json:"active_mtu"`
		Firmware  string   `json:"fw_ver"`
		Part      *int     `json:"vendor_part_id"`
	}
	type truth struct {
		Tool string              `json:"tool"`
		CAs  map[string]ca       `json:"cas"`
		Up   []string            `json:"up"`
		Down []string            `json:"down"`
		IB   []string            `json:"ib"`
		Map  map[string][]string `json:"map"`
	}
	tally := realdata.Tally{Set: "ibinfo: ports"}
	eachTruth(t, "ibinfo", func(name, text string, want truth) {
		p := ReadPorts(text)
		tally.Count(slices.Equal(p.Tools, []string{want.Tool}), name+" tool", fmt.Sprint(p.Tools))
		port := func(hca string) Port {
			for _, x := range p.Ports {
				if x.HCA == hca {
					return x
				}
			}
			return Port{}
		}
		if n := len(want.CAs); n > 0 {
			tally.Count(len(p.Ports) == n, name, fmt.Sprintf("%d ports, want %d", len(p.Ports), n))
		}
		for hca, w := range want.CAs {
			x := port(hca)
			right := x.LinkLayer == w.LinkLayer && x.StateText == w.State && (w.Rate == nil || x.RateGbps != nil && *x.RateGbps == *w.Rate) &&
				(w.MTU == nil || x.ActiveMTU != nil && *x.ActiveMTU == *w.MTU) && (w.Firmware == "" || x.Firmware == w.Firmware) && (w.Part == nil || x.VendorPart != nil && *x.VendorPart == *w.Part)
			tally.Count(right, name+" "+hca, fmt.Sprintf("%+v", x))
		}
		for _, hca := range want.Up {
			x := port(hca)
			tally.Count(x.NetdevUp != nil && *x.NetdevUp, name+" "+hca, "not up")
		}
		for _, hca := range want.Down {
			x := port(hca)
			tally.Count(x.NetdevUp != nil && !*x.NetdevUp, name+" "+hca, "not down")
		}
		for _, hca := range want.IB {
			tally.Count(port(hca).LinkLayer == "InfiniBand", name+" "+hca, "not InfiniBand")
		}
		for hca, w := range want.Map {
			x := port(hca)
			tally.Count(x.Netdev == w[0] && x.StateText == w[1], name+" "+hca, x.Netdev+" "+x.StateText)
		}
	})
	tally.Print(t)
}
