package envgen

import (
	"strconv"
	"strings"

	"fabrun/topology"
)

// answer is yes, no or unknown: a version that is not known decides nothing.
type answer int

const (
	unknown answer = iota
	no
	yes
)

// parseVersion reads the leading dotted numbers: "2.21.5+cuda12.4" is 2, 21, 5.
func parseVersion(s string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(s), "v"), ".") {
		digits := part
		if i := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = part[:i]
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > 1_000_000 {
			break
		}
		out = append(out, n)
		if digits != part {
			break
		}
	}
	return out
}

// atLeast says whether version v is want or later; unknown when v is no version.
func atLeast(v, want string) answer {
	a, b := parseVersion(v), parseVersion(want)
	if len(a) == 0 {
		return unknown
	}
	for i := range b {
		x := 0
		if i < len(a) {
			x = a[i]
		}
		if x != b[i] {
			if x > b[i] {
				return yes
			}
			return no
		}
	}
	return yes
}

// versionsOf are the versions that the ranks on h will load: those given by
// the caller, or those of the host's libraries where the program does not run
// in an image of its own. Two versions of one library on a host are no
// version: which one a rank loads cannot be told.
func versionsOf(h *topology.Host, job Job) Versions {
	if job.Versions != nil {
		return *job.Versions
	}
	var v Versions
	if job.InContainer {
		return v
	}
	v.NCCL = oneVersion(h.Software, "nccl", "rccl")
	v.UCX = oneVersion(h.Software, "ucx")
	for _, kind := range []string{"openmpi", "intelmpi", "mvapich", "mpich"} {
		if !hasSoftware(h, kind) {
			continue
		}
		if v.MPIKind != "" { // several: the launcher decides, and did not say
			v.MPIKind, v.MPI = "", ""
			break
		}
		v.MPIKind = kind
		v.MPI = strings.TrimSpace(kind + " " + oneVersion(h.Software, kind))
	}
	for _, s := range h.Software {
		if s.Kind == "openmpi" {
			switch {
			case strings.Contains(s.Detail, "UCX component present"):
				t := true
				v.OpenMPIHasUCX = &t
			case strings.Contains(s.Detail, "UCX component absent"):
				f := false
				v.OpenMPIHasUCX = &f
			}
		}
		if s.Kind == "nccl-plugin" && s.Detail != "" {
			v.NetPlugin = s.Detail
		}
	}
	return v
}

func hasSoftware(h *topology.Host, kinds ...string) bool {
	for _, s := range h.Software {
		for _, k := range kinds {
			if s.Kind == k {
				return true
			}
		}
	}
	return false
}

func oneVersion(sw []topology.Software, kinds ...string) string {
	found := ""
	for _, s := range sw {
		for _, k := range kinds {
			if s.Kind != k || s.Version == "" {
				continue
			}
			if found != "" && found != s.Version {
				return ""
			}
			found = s.Version
		}
	}
	return found
}
