// Package preflight answers before a long job: is every node what the plan
// says, and does RDMA flow between them as it should? Checks observe and
// return Findings; the pair schedule and the verdict per node, port, rail and
// direction are pure; whatever must run somewhere goes through the caller's
// Runner.
package preflight
