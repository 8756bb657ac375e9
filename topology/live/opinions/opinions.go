package opinions

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"
	"github.com/jaypipes/ghw"
)

// Text returns the text of the snapshot section fabrun/opinions. Both libraries
// read this machine's own sysfs; ghw needs a PCI ID database for any answer at
// all, and rdmamap keeps errors to itself: silence of either is no opinion.
func Text() string {
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
	for _, nd := range physicalNetdevs() {
		if hca, err := rdmamap.GetRdmaDeviceForNetdevice(nd); err == nil {
			line("rdmamap", nd, "hca", hca)
		}
	}
	return b.String()
}

// oneLine makes text from outside fit for a line of tab-separated words.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}

func physicalNetdevs() []string {
	const class = "/sys/class/net"
	list, err := os.ReadDir(class)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range list {
		if _, err := os.Stat(filepath.Join(class, e.Name(), "device")); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
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
