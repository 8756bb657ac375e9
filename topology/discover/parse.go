package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology"
)

// parseHex reads a sysfs number with or without 0x, of at most bits bits.
func parseHex(s string, bits int) (uint64, error) {
	v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, bits)
	if err != nil {
		return 0, fmt.Errorf("want a hexadecimal number of %d bits, got %.40q", bits, s)
	}
	return v, nil
}

func parseInt(s string) (int, error) {
	v, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("want a number, got %.40q", s)
	}
	return v, nil
}

// parseNUMA reads numa_node: −1 is unknown.
func parseNUMA(s string) (*int, error) {
	v, err := parseInt(s)
	if err != nil || v < 0 {
		return nil, err
	}
	return &v, nil
}

// pciSpeeds are the lane speeds of PCI Express, generation 1 to 7.
var pciSpeeds = []int{2500, 5000, 8000, 16000, 32000, 64000, 128000}

// parsePCISpeed reads current_link_speed or max_link_speed: "16.0 GT/s PCIe",
// older kernels "16 GT/s" and "8 GT/s". "Unknown" and an empty text are nil.
func parsePCISpeed(s string) (*int, error) {
	s = strings.TrimSpace(s)
	const unknown = "Unknown"
	if s == "" || len(s) >= len(unknown) && strings.EqualFold(s[:len(unknown)], unknown) {
		return nil, nil
	}
	num, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !strings.HasPrefix(unit, "GT/s") {
		return nil, fmt.Errorf("want a speed like 16.0 GT/s PCIe, got %.40q", s)
	}
	// 64-bit floats hold each of these exactly.
	mt := int(v * 1000)
	if !slices.Contains(pciSpeeds, mt) {
		return nil, fmt.Errorf("no PCI Express speed: %.40q", s)
	}
	return &mt, nil
}

// parsePCIWidth reads current_link_width: 0 and 255 are what the kernel gives
// where there is no link.
func parsePCIWidth(s string) (*int, error) {
	v, err := parseInt(s)
	if err != nil {
		return nil, err
	}
	if v <= 0 || v > 32 {
		return nil, nil
	}
	return &v, nil
}

// parseRate reads ports/N/rate: "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)".
func parseRate(s string) (*float64, error) {
	num, unit, _ := strings.Cut(strings.TrimSpace(s), " ")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(v >= 0 && v < 1e6) {
		return nil, fmt.Errorf("want a rate like 100 Gb/sec (4X EDR), got %.60q", s)
	}
	if v == 0 {
		return nil, nil
	}
	return &v, nil
}

// parseState reads "4: ACTIVE" and gives ACTIVE.
func parseState(s string) string {
	s = strings.TrimSpace(s)
	if num, word, ok := strings.Cut(s, ":"); ok {
		if _, err := strconv.Atoi(strings.TrimSpace(num)); err == nil {
			return strings.TrimSpace(word)
		}
	}
	return s
}

// parseGID reads gids/N: eight groups of four digits.
func parseGID(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil || !a.Is6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("want a GID, got %.60q", s)
	}
	return a, nil
}

func isZeroGID(text string) bool {
	if strings.TrimSpace(text) == "0000:0000:0000:0000:0000:0000:0000:0000" {
		return true
	}
	a, err := parseGID(text)
	return err == nil && a == netip.IPv6Unspecified()
}

func gidKind(a netip.Addr, linkLayer string) topology.GIDKind {
	switch {
	case linkLayer == "InfiniBand":
		return topology.GIDIB
	case a.Is4In6():
		return topology.GIDIPv4
	case a.IsLinkLocalUnicast():
		return topology.GIDLinkLocal
	default:
		return topology.GIDIPv6
	}
}

// isBDF reports whether s is a PCI address as sysfs writes it: domain (four
// digits or more: VMD and some hypervisors need eight), bus, device, function.
func isBDF(s string) bool {
	n := len(s) - len("00:00.0")
	if n < 5 || n > 9 || s[n-1] != ':' || s[n+2] != ':' || s[n+5] != '.' {
		return false
	}
	for i, c := range []byte(s) {
		switch i {
		case n - 1, n + 2, n + 5:
			continue
		}
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return s[len(s)-1] <= '7'
}

// isRootBus reports whether s is a root complex in a sysfs path: "pci0000:3a".
func isRootBus(s string) bool {
	rest, ok := strings.CutPrefix(s, "pci")
	return ok && len(rest) >= 7 && isBDF(rest+":00.0")
}

// parseUevent reads the NAME=value lines of a uevent file.
func parseUevent(text string, f func(name, value string)) {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			f(name, value)
		}
	}
}

// parseDistances reads node/nodeN/distance.
func parseDistances(s string) ([]int, error) {
	var ds []int
	for _, w := range strings.Fields(s) {
		d, err := strconv.Atoi(w)
		if err != nil || d < 0 || d > 255 {
			return nil, fmt.Errorf("want distances like 10 21, got %.60q", s)
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// parseMemTotal reads the MemTotal line of meminfo, of the machine or of a node, in bytes.
func parseMemTotal(s string) (*int64, error) {
	for line := range strings.Lines(s) {
		_, rest, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 1 || len(f) > 1 && f[1] != "kB" {
			break
		}
		kb, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || kb < 0 || kb > 1<<52 {
			break
		}
		return new(kb << 10), nil
	}
	return nil, fmt.Errorf("want a line MemTotal: N kB")
}

// parseOSRelease reads PRETTY_NAME of os-release.
func parseOSRelease(s string) string {
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			if u, err := strconv.Unquote(v); err == nil {
				return u
			}
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// ibMTUs are the MTUs that RDMA knows, largest first.
var ibMTUs = []int{4096, 2048, 1024, 512, 256}

// roceHeaders is what the kernel takes off a netdev's MTU before it chooses the
// RDMA MTU (iboe_get_mtu): GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
const roceHeaders = 96

// roceMTU is the RDMA active MTU of a RoCE port over a netdev with this MTU; 0 none fits.
func roceMTU(netdev int) int {
	for _, m := range ibMTUs {
		if netdev-roceHeaders >= m {
			return m
		}
	}
	return 0
}
