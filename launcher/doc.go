// Package launcher starts a Plan: the child in its own process group, signals
// forwarded, the terminal kept where there was one, the exit status exactly
// the child's. It decides nothing; what to start is in the Plan.
package launcher
