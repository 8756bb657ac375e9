package envgen

// Variable is what is known of one environment variable.
type Variable struct {
	Name    string
	Library string   // "nccl", "ucx", "openmpi", "mpich", "intelmpi", "mvapich", "libfabric", "nvshmem", "gloo"
	Type    string   // "int", "bool", "string", "list", "enum"
	Since   string   // first version that has it; "" always, or not known
	Until   string   // last version that has it; "" still there
	Values  []string // valid words of an enum; nil any
	Min     *int     // of an int
	Max     *int
	IfWrong string // what a wrong value does
}

// existsIn says whether the libraries found know the variable.
func (k Variable) existsIn(v Versions) answer {
	have := ""
	switch k.Library {
	case "nccl":
		have = v.NCCL
	case "ucx":
		have = v.UCX
	default:
		return unknown
	}
	if have == "" {
		return unknown
	}
	if k.Since != "" && atLeast(have, k.Since) == no {
		return no
	}
	if k.Until != "" && atLeast(have, k.Until) == yes && have != k.Until {
		return no
	}
	return yes
}

// Known returns what is known of a variable.
func Known(name string) (Variable, bool) {
	for _, k := range knownVariables() {
		if k.Name == name {
			return k, true
		}
	}
	return Variable{}, false
}

func knownVariables() []Variable {
	return []Variable{
		{Name: "NCCL_IB_HCA", Library: "nccl", Type: "list"},
	}
}
