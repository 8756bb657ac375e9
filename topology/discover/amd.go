package discover

import (
	"fmt"
	"strconv"
	"strings"
)

// kfdProperties reads "name number" lines of amdkfd's topology.
func kfdProperties(s string) map[string]uint64 {
	props := map[string]uint64{}
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if v, err := strconv.ParseUint(f[1], 10, 64); err == nil {
			props[f[0]] = v
		}
	}
	return props
}

// kfdAddress is the PCI address of a kfd node: location_id is bus, device and
// function in 16 bits.
func kfdAddress(domain, loc uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", domain, loc>>8&0xff, loc>>3&0x1f, loc&7)
}

func itoa(n int) string    { return strconv.Itoa(n) }
func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
