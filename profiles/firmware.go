package profiles

import (
	"fmt"
	"strconv"
	"strings"
)

// firmwareNumbers reads a firmware's version: numbers with dots, as fw_ver of sysfs
// has it.
func firmwareNumbers(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no firmware version: want numbers with dots, as 28.39.1002", s)
		}
		out = append(out, n)
	}
	return out, nil
}

// OlderFirmware says whether a firmware is older than the least that is wanted; of
// what cannot be read it says no.
func OlderFirmware(firmware, least string) bool {
	have, err := firmwareNumbers(firmware)
	want, err2 := firmwareNumbers(least)
	if err != nil || err2 != nil {
		return false
	}
	for i, n := range want {
		if i >= len(have) {
			return n > 0
		}
		if have[i] != n {
			return have[i] < n
		}
	}
	return false
}
