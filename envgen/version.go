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

// versionsOf are the versions that the ranks on h will load: those that the
// caller knows, and for the rest those of the host's libraries, unless the
// program runs in an image of its own. Two versions of one library on a host
// are no version: which one a rank loads cannot be told.
func versionsOf(h *topology.Host, job Job) Versions {
	var v Versions
	if !job.InContainer {
		v = softwareVersions(h)
	}
	given := job.Versions
	if given == nil {
		return v
	}
	v.NCCL, v.UCX, v.NetPlugin = cmpOr(given.NCCL, v.NCCL), cmpOr(given.UCX, v.UCX), cmpOr(given.NetPlugin, v.NetPlugin)
	if given.MPIKind != "" || given.MPI != "" {
		if given.MPIKind != v.MPIKind {
			v.OpenMPIHasUCX = nil
		}
		v.MPIKind, v.MPI = given.MPIKind, given.MPI
	}
	if given.OpenMPIHasUCX != nil {
		v.OpenMPIHasUCX = given.OpenMPIHasUCX
	}
	return v
}

func softwareVersions(h *topology.Host) Versions {
	v := Versions{NCCL: oneVersion(h.Software, "nccl", "rccl"), UCX: oneVersion(h.Software, "ucx")}
	kinds := 0
	for _, kind := range []string{"openmpi", "intelmpi", "mvapich", "mpich"} {
		if hasSoftware(h, kind) {
			kinds++
			v.MPIKind, v.MPI = kind, strings.TrimSpace(kind+" "+oneVersion(h.Software, kind))
		}
	}
	if kinds > 1 { // the launcher decides, and did not say
		v.MPIKind, v.MPI = "", ""
	}
	withUCX, withoutUCX := false, false
	for _, s := range h.Software {
		switch {
		case s.Kind == "openmpi" && strings.Contains(s.Detail, "UCX component present"):
			withUCX = true
		case s.Kind == "openmpi" && strings.Contains(s.Detail, "UCX component absent"):
			withoutUCX = true
		case s.Kind == "nccl-plugin" && s.Detail != "":
			v.NetPlugin = s.Detail
		}
	}
	if withUCX != withoutUCX {
		v.OpenMPIHasUCX = &withUCX
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
