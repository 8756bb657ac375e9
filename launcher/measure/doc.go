// Package measure answers before a long job whether RDMA flows between its nodes
// as it should: which pairs are measured in which order, what runs on their two
// ends, which node, port, rail or direction is at fault, and what collectives and
// a benchmark's output come to. The schedule and the verdicts are pure; what must
// run somewhere goes through the caller.
package measure
