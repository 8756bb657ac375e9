// Package envgen chooses like a specialist: from Hosts, a fabric profile and
// what is known of the job it computes the ordered list of variables for NCCL,
// UCX, Open MPI and their kin, each with its rule, reason and evidence, and
// judges what the user has already set. Every rule is one small function in an
// explicit list.
//
// It does no I/O at all: the same inputs give the same bytes.
//
//	res := envgen.Compute(envgen.Input{Hosts: hosts, Profile: p, Job: job})
//	for _, v := range res.Hosts[0].Vars { … }
package envgen
