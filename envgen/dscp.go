package envgen

import (
	"fmt"
	"strconv"
	"strings"
)

// Marking is a DSCP in every form that libraries, tools and switches want.
type Marking struct {
	DSCP     int
	Name     string // "AF31"; "" none
	Priority int    // by the network cards' default map, DSCP/8
	Vars     []MarkVar
}

// MarkVar is the variable, or the option, that carries a marking.
type MarkVar struct {
	For   string // "NCCL"
	Name  string
	Value string
}

// TC is the traffic class byte (IPv4 calls it ToS) with these ECN bits.
func (m Marking) TC(ecn int) int { return m.DSCP<<2 | ecn }

// classNamesDSCP are the names of RFC 2474, 2597, 3246, 5865 and 8622.
var classNamesDSCP = map[int]string{
	0: "CS0", 1: "LE", 8: "CS1", 10: "AF11", 12: "AF12", 14: "AF13", 16: "CS2", 18: "AF21", 20: "AF22", 22: "AF23", 24: "CS3",
	26: "AF31", 28: "AF32", 30: "AF33", 32: "CS4", 34: "AF41", 36: "AF42", 38: "AF43", 40: "CS5", 44: "VA", 46: "EF", 48: "CS6", 56: "CS7",
}

// ParseDSCP reads a DSCP: 0 to 63, or its name in any case.
func ParseDSCP(word string) (Marking, error) {
	n, err := strconv.Atoi(word)
	if err != nil {
		n = -1
		for code, name := range classNamesDSCP {
			if strings.EqualFold(name, word) {
				n = code
			}
		}
		if n < 0 {
			return Marking{}, fmt.Errorf("%q is neither a number nor the name of a DSCP", word)
		}
	}
	if n < 0 || n > 63 {
		return Marking{}, fmt.Errorf("%d is no DSCP: it has six bits, 0 to 63", n)
	}
	m := Marking{DSCP: n, Name: classNamesDSCP[n], Priority: n / 8}
	// ECT(0): a class that switches may mark instead of dropping
	tc := strconv.Itoa(m.TC(2))
	m.Vars = []MarkVar{
		{"NCCL", "NCCL_IB_TC", tc},
		{"UCX", "UCX_IB_TRAFFIC_CLASS", tc},
		{"NVSHMEM", "NVSHMEM_IB_TRAFFIC_CLASS", tc},
		{"perftest", "--tclass", tc},
		{"rdma_cm", "cma_roce_tos -t", tc},
	}
	return m, nil
}
