package hosts

import (
	"maps"
	"slices"

	"fabrun/topology/finding"
)

// Syntaxes are those that Format writes, in the order of its help.
var Syntaxes = []*Syntax{OpenMPI, MPICH, Intel, DeepSpeed, Horovod, Plain}

// SyntaxNamed is the one of that name; nil where there is none.
func SyntaxNamed(name string) *Syntax {
	if i := slices.IndexFunc(Syntaxes, func(s *Syntax) bool { return s.Name == name }); i >= 0 {
		return Syntaxes[i]
	}
	return nil
}

// AnySyntax is read only: whatever a line plainly means in any of them.
var AnySyntax = &Syntax{
	tool: "a hostfile", cComments: true, colon: true, exprs: true, exclude: true, userAt: true, spaced: true, keys: allKeys(),
}

// Plain is names or node list expressions, also name:slots.
var Plain = &Syntax{Name: "plain", tool: "a hostfile", colon: true, exprs: true}

// OpenMPI is "host slots=N max_slots=M".
var OpenMPI = &Syntax{
	Name: "openmpi", tool: "Open MPI", cComments: true, exclude: true, userAt: true, spaced: true, dropsColon: true, keys: openMPIKeys,
	slots: " slots=%d", maxSlots: " max_slots=%d", user: " username=%s", port: " port=%d", stripsDomains: true,
}

// MPICH is "host:N".
var MPICH = &Syntax{Name: "mpich", tool: "MPICH's Hydra", colon: true, keys: hydraKeys, slots: ":%d", user: " user=%s", cutsAtColon: true}

// Intel is "host:N", the form of -machinefile.
var Intel = &Syntax{
	Name: "intel", tool: "Intel MPI", colon: true, keys: hydraKeys, slots: ":%d", user: " user=%s", cutsAtColon: true,
	repeated: &finding.Finding{
		ID: "hosts.intel-repeated", Severity: finding.Warning, Subject: "hostfile",
		Seen: "a host is named more than once", Wanted: "host:N",
		Why:  "Intel MPI's -hostfile uses a repeated host once; only -machinefile counts repeats",
		Hint: "give the file with -machinefile, or write ",
	},
}

// DeepSpeed is "host slots=N", exactly one line for each host.
var DeepSpeed = &Syntax{Name: "deepspeed", tool: "deepspeed", keys: slotsKey, slots: " slots=%d", needsSlots: true, once: true}

// Horovod is "host slots=N".
var Horovod = &Syntax{Name: "horovod", tool: "horovodrun", keys: slotsKey, slots: " slots=%d", needsSlots: true}

// openMPIKeys are the keywords of v4.1's orte/util/hostfile/hostfile_lex.l,
// which PRRTE (Open MPI 5) kept.
var openMPIKeys = map[string]attribute{
	"slots": attrSlots, "count": attrSlots, "cpu": attrSlots,
	"slots-max": attrMaxSlots, "slots_max": attrMaxSlots, "max-slots": attrMaxSlots, "max_slots": attrMaxSlots,
	"cpu-max": attrMaxSlots, "cpu_max": attrMaxSlots, "max-cpu": attrMaxSlots, "max_cpu": attrMaxSlots,
	"count-max": attrMaxSlots, "count_max": attrMaxSlots, "max-count": attrMaxSlots, "max_count": attrMaxSlots,
	"username": attrUser, "user-name": attrUser, "user_name": attrUser, "port": attrPort,
	"boards": attrIgnored, "sockets": attrIgnored, "sockets_per_board": attrIgnored, "sockets-per-board": attrIgnored,
	"cores": attrIgnored, "cores_per_socket": attrIgnored, "cores-per-socket": attrIgnored, "cpu_set": attrIgnored, "cpu-set": attrIgnored,
}

// hydraKeys are what Hydra takes behind a host (src/pm/hydra/lib/utils/args.c);
// anything else aborts it.
var hydraKeys = map[string]attribute{"binding": attrIgnored, "user": attrUser}

var slotsKey = map[string]attribute{"slots": attrSlots}

func allKeys() map[string]attribute {
	keys := maps.Clone(openMPIKeys)
	maps.Copy(keys, hydraKeys)
	return keys
}

// hostfileVariables name a default hostfile in the syntax of their MPI. The
// Kubeflow MPI operator sets one of the first three in its launcher pod.
var hostfileVariables = []struct {
	name   string
	syntax *Syntax
}{
	{"OMPI_MCA_orte_default_hostfile", OpenMPI},
	{"I_MPI_HYDRA_HOST_FILE", Intel},
	{"HYDRA_HOST_FILE", MPICH},
	{"PRTE_MCA_prte_default_hostfile", OpenMPI},
	{"I_MPI_HYDRA_MACHINE_FILE", Intel},
}
