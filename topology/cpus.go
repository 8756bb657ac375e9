package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU bounds CPU numbers: the kernel's NR_CPUS is at most 8192.
const MaxCPU = 1 << 16

// ParseCPUs reads the kernel's CPU list format: "0-3,8,16-23".
func ParseCPUs(s string) ([]int, error) {
	cpus := []int{}
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= MaxCPU || len(cpus) > MaxCPU {
			return nil, fmt.Errorf("want a CPU list like 0-3,8, got %q", s)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// FormatCPUs writes a sorted list in that format; "" for none.
func FormatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}
