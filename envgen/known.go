package envgen

import (
	"strings"

	vartable "fabrun/envgen/vars"
)

// existsIn says whether the libraries found know a variable.
func existsIn(k vartable.Variable, v Versions) answer {
	have := versionFor(k, v)
	if have == "" {
		return unknown
	}
	if k.Since != "" && atLeast(have, k.Since) == no {
		return no
	}
	if k.Until != "" && atLeast(have, k.Until) == yes {
		return no
	}
	return yes
}

// versionFor is the version of the library that reads a variable; "" unknown.
func versionFor(k vartable.Variable, v Versions) string {
	switch k.Library {
	case "nccl":
		return v.NCCL
	case "ucx":
		return v.UCX
	case v.MPIKind:
		_, version, _ := strings.Cut(v.MPI, " ")
		return version
	}
	return ""
}
