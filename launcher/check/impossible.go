package check

import "fabrun/topology/finding"

// Impossible says whether a finding means that RDMA cannot carry the whole job:
// some host would use sockets, or fail to connect (--strict then does not start
// it). Every other error makes the job slow, and is said loudly.
func Impossible(f finding.Finding) bool {
	k, _ := finding.KindOf(f.ID)
	return f.Severity == finding.Error && k.BlocksRDMA
}
