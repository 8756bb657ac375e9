// Package watch reads what NCCL, UCX, MPI and their plugins print and what the
// counters say, and turns it into Events as they happen and one Verdict at the
// end: which networks, fallback or not, the cause, and how sure that is. It is
// pure over readers and samples, and imports no other package of fabrun.
package watch
