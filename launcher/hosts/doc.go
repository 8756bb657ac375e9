// Package hosts says where a job's hosts come from and how a launcher wants to
// be told: allocations in (Slurm, PBS, LSF, Kubernetes, hostfiles, expressions
// on the command line), hostfiles out. It is pure: environment and files come
// in as values.
package hosts
