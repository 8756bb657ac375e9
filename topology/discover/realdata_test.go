package discover

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fabrun/testdata/realdata"
	"fabrun/topology"
	"fabrun/topology/finding"
)

// manifest returns the column "expected" by path.
func manifest(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(realdata.Dir(t, ""), "MANIFEST.tsv"))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = '\t', true, -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, row := range rows {
		out[row[0]] = row[len(row)-1]
	}
	return out
}

var (
	cpuCount   = regexp.MustCompile(`numa/cpu nodes=(\d+)`)
	archVendor = regexp.MustCompile(`arch=(\S+) vendor=(\S+)`)
	gpuCount   = regexp.MustCompile(`gpus(?:\(by PCI class 0x03\))?=(\d+)`)
	netCount   = regexp.MustCompile(`(?:nets|nics\(by PCI class 0x02\))=(\d+)`)
	netItem    = regexp.MustCompile(`(\S+)@(\S+) speed=(\d+) gdr=`)
	closest    = regexp.MustCompile(`(\S+)->(pci|cpu|sys):([^;\s]+)`)
)

// closestLevel is how the manifest names what a GPU and its closest NICs share.
func closestLevel(p topology.PathType) string {
	switch p {
	case topology.PIX, topology.PXB:
		return "pci"
	case topology.PHB:
		return "cpu"
	}
	return "sys"
}

func TestRealdataNCCLXML(t *testing.T) {
	dir := realdata.Dir(t, "ncclxml")
	want := manifest(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*.xml"))
	facts := &realdata.Tally{Set: "ncclxml: CPUs, GPUs, NICs"}
	types := &realdata.Tally{Set: "ncclxml: closest NICs"}
	clean := &realdata.Tally{Set: "ncclxml: accepted, no error"}
	for _, file := range files {
		name := "ncclxml/" + filepath.Base(file)
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		h, found, err := ReadXML(f)
		f.Close()
		if err != nil {
			facts.Count(false, name, err.Error())
			continue
		}
		worst, _ := finding.Worst(found)
		clean.Count(worst != finding.Error, name, fmt.Sprint(found))
		exp := want[name]
		count := func(what string, re *regexp.Regexp, got int) {
			if m := re.FindStringSubmatch(exp); m != nil {
				facts.Count(m[1] == strconv.Itoa(got), name, fmt.Sprintf("%s %d, want %s", what, got, m[1]))
			}
		}
		count("CPUs", cpuCount, len(h.NUMA))
		count("GPUs", gpuCount, len(h.GPUs))
		nets := 0
		for _, c := range h.HCAs {
			nets += max(len(c.Ports), 1)
		}
		count("NICs", netCount, nets)
		if m := archVendor.FindStringSubmatch(exp); m != nil && m[1] != "None" {
			facts.Count(h.CPU.Arch == m[1] && h.CPU.Vendor == m[2], name, h.CPU.Arch+" "+h.CPU.Vendor)
		}
		items := exp
		if i := strings.IndexByte(exp, '['); i >= 0 {
			items = exp[i+1 : strings.IndexByte(exp, ']')]
		}
		for _, m := range netItem.FindAllStringSubmatch(items, -1) {
			addr := m[2]
			if addr == "(no-pci)" {
				addr = ""
			}
			facts.Count(slices.ContainsFunc(h.HCAs, func(c topology.HCA) bool {
				return c.Name == m[1] && c.PCI == addr && len(c.Ports) > 0 && fmt.Sprintf("%.0f", *c.Ports[0].RateGbps*1000) == m[3]
			}), name, "NIC "+m[0])
		}
		for _, m := range closest.FindAllStringSubmatch(exp, -1) {
			i := slices.IndexFunc(h.GPUs, func(g topology.GPU) bool { return g.PCI == m[1] })
			if i < 0 {
				types.Count(false, name, "no GPU "+m[1])
				continue
			}
			near := topology.NearestHCAs(h, h.GPUs[i])
			var got []string
			for _, p := range near {
				if l := closestLevel(p.NCCL); l == closestLevel(near[0].NCCL) && (l != "pci" || len(p.Chain) == len(near[0].Chain)) {
					got = append(got, p.HCA)
				}
			}
			wanted := strings.Split(m[3], ",")
			slices.Sort(got)
			slices.Sort(wanted)
			types.Count(closestLevel(near[0].NCCL) == m[2] && slices.Equal(got, wanted), name, fmt.Sprintf("%s: %s %v, want %s %v", m[1], near[0].NCCL, got, m[2], wanted))
		}
	}
	facts.Print(t)
	types.Print(t)
	clean.Print(t)
}
