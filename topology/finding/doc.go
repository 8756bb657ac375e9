// Package finding holds the one shape in which every part of fabrun says that
// something is not as it should be: a stable ID, what was seen, what was
// wanted, how much it matters, and what to do about it.
//
// It knows nothing about machines, never prints and never decides to abort:
// whoever makes a Finding observes, whoever receives it judges.
//
//	finding.Finding{
//		ID: "hca.port-down", Severity: finding.Error, Host: "node3", Subject: "mlx5_1 port 1",
//		Seen: "state DOWN, phys_state Polling", Wanted: "ACTIVE and LinkUp",
//		Why: "rail 1 of node3 carries no traffic", Hint: "check cable and switch port of mlx5_1",
//	}
package finding
