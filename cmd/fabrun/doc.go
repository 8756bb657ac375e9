// Command fabrun is what you put in front of mpirun or torchrun so that the
// job really uses the RDMA fabric, and so that you are told when it does not.
//
// This package is verbs, flags, order of calls and exit codes; everything else
// is below it:
//
//	discover   topology/discover (+ topology/live)                → topology.Host
//	plan       profiles → envgen → launcher/hosts → launcher/plan → plan.Plan
//	preflight  launcher/check, launcher/measure (by launcher/remote) → []finding.Finding
//	launch     launcher                                           → exit status
//	watch      launcher/watch                                     → []watch.Event, watch.Verdict
//	report     launcher/report                                    → text, JSON, HTML
package main
