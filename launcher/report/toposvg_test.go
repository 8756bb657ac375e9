package report

import (
	"os"
	"strings"
	"testing"

	"fabrun/topology"
	"fabrun/topology/discover"
)

// TestTopoSVG: heads that can be told apart, GPUs' own links, and grey for what
// a job leaves out, but only where that is known.
func TestTopoSVG(t *testing.T) {
	text, err := os.ReadFile("../../testdata/hosts/dgx-roce-8x8.snap")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := discover.ParseSnapshot(string(text))
	if err != nil {
		t.Fatal(err)
	}
	h, err := discover.Read(snap)
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.GPUs {
		h.GPUs[i].Links = nil
	}
	draw := func(used []string) string {
		var b strings.Builder
		if err := TopoSVG(&b, h, topology.Paths(h), used); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if s := draw(nil); strings.Contains(s, `class="unused"`) || strings.Contains(s, "rotate(") || strings.Contains(s, "NVLinks") {
		t.Error("grey, turned or linked without reason")
	}
	for i := range h.HCAs {
		h.HCAs[i].Name = strings.Replace(h.HCAs[i].Name, "mlx5_", "mlx5_bond_", 1)
	}
	h.GPUs[0].Links = []topology.GPULink{{Kind: "nvlink", Target: h.GPUs[1].PCI, Count: 18}}
	h.GPUs[1].Links = []topology.GPULink{{Kind: "nvlink", Target: h.GPUs[0].PCI, Count: 18}}
	s := draw([]string{h.HCAs[0].Name})
	for _, c := range h.HCAs {
		if !strings.Contains(s, ">"+c.Name+"</text>") {
			t.Errorf("the head of %s is cut", c.Name)
		}
	}
	if n := strings.Count(s, `class="unused"`); n != len(h.HCAs)-1 {
		t.Errorf("%d of %d boxes are grey", n, len(h.HCAs))
	}
	if strings.Count(s, ">NV18</text>") != 2 {
		t.Error("the two GPUs' links are not drawn, once each way")
	}
}
