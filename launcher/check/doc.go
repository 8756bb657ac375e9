// Package check answers before a long job whether every node is what the plan says:
// host by host, host against host, and from the adapter to the first byte. Checks
// observe and return Findings.
package check
