package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// Disagreements says where a second opinion differs from the file tree. One of
// the two reads this machine wrong, and whatever else uses that library (device
// plugins, CNIs) sees what it says.
func Disagreements(h *topology.Host) []finding.Finding {
	var out []finding.Finding
	for _, o := range h.Opinions {
		seen, ok := opinionOf(h, o)
		if !ok || seen == o.Value {
			continue
		}
		out = append(out, finding.Finding{
			ID: "topo.second-opinion", Severity: finding.Note, Host: h.Name, Subject: o.Subject,
			Seen:   fmt.Sprintf("%s: sysfs says %s", o.Attribute, orNone(seen)),
			Wanted: fmt.Sprintf("the same from %s, which says %s", o.Source, orNone(o.Value)),
			Why:    "programs that use " + o.Source + " see another machine than fabrun does",
			Hint:   "fabrun snapshot keeps both answers; attach it when you report this",
		})
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// opinionOf is what the file tree says on the point of o; false where it says
// nothing or there is nothing to compare.
func opinionOf(h *topology.Host, o topology.Opinion) (string, bool) {
	switch o.Attribute {
	case "numa", "driver":
		for _, d := range h.PCI {
			if d.Address != o.Subject {
				continue
			}
			if o.Attribute == "driver" {
				return d.Driver, d.Driver != ""
			}
			if d.NUMA == nil {
				return "", false
			}
			return strconv.Itoa(*d.NUMA), true
		}
	case "chardevs":
		for _, hca := range h.HCAs {
			if hca.Name == o.Subject && hca.CharDevice != "" {
				// rdmamap lists every node of the device; the tree's is one of them.
				if slices.Contains(strings.Split(o.Value, ","), hca.CharDevice) {
					return o.Value, true
				}
				return hca.CharDevice, true
			}
		}
	case "hca":
		for _, hca := range h.HCAs {
			for _, p := range hca.Ports {
				if p.Netdev == o.Subject {
					return hca.Name, true
				}
			}
		}
	}
	return "", false
}
