package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"
	"github.com/jaypipes/ghw"

	"fabrun/topology"
	"fabrun/topology/finding"
)

// opinions asks ghw for the names, NUMA nodes and drivers of the PCI devices
// that matter, and rdmamap for the character devices and netdevs of the HCAs.
// Both answer from this machine's own sysfs whatever else is read; ghw needs a
// PCI ID database for any answer at all, and rdmamap keeps errors to itself:
// silence of either is no opinion.
func (m *machine) opinions() ([]byte, error) {
	var b strings.Builder
	line := func(source, subject, attribute, value string) {
		subject, value = oneLine(subject), oneLine(value)
		if subject != "" && value != "" {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", source, subject, attribute, value)
		}
	}
	if info, err := ghw.PCI(ghw.WithDisableWarnings(), ghw.WithDisableTools()); err == nil {
		for _, d := range info.Devices {
			if d == nil || d.Class == nil || !slices.Contains([]string{"02", "03", "12"}, d.Class.ID) { // network, display, accelerators
				continue
			}
			if name := pciName(d); name != "" {
				line("ghw", d.Address, "name", name)
			}
			if d.Node != nil {
				line("ghw", d.Address, "numa", strconv.Itoa(d.Node.ID))
			}
			line("ghw", d.Address, "driver", d.Driver)
		}
	}
	for _, hca := range rdmamap.GetRdmaDeviceList() {
		var nodes []string
		for _, c := range rdmamap.GetRdmaCharDevices(hca) {
			nodes = append(nodes, strings.TrimPrefix(c, "/dev/infiniband/"))
		}
		slices.Sort(nodes)
		line("rdmamap", hca, "chardevs", strings.Join(nodes, ","))
	}
	for _, nd := range m.physicalNetdevs() {
		if hca, err := rdmamap.GetRdmaDeviceForNetdevice(nd); err == nil {
			line("rdmamap", nd, "hca", hca)
		}
	}
	return []byte(b.String()), nil
}

func pciName(d *ghw.PCIDevice) string {
	const unknown = "unknown"
	var parts []string
	if d.Vendor != nil && d.Vendor.Name != "" && !strings.EqualFold(d.Vendor.Name, unknown) {
		parts = append(parts, d.Vendor.Name)
	}
	if d.Product != nil && d.Product.Name != "" && !strings.EqualFold(d.Product.Name, unknown) {
		parts = append(parts, d.Product.Name)
	}
	return strings.Join(parts, " ")
}

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
