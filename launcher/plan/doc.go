// Package plan turns a command line, an allocation and an environment into a
// Plan: argv, variables, files, per-node differences, every one with its
// reason. How launchers read their words is cmdline's; what the user set there is
// not overridden. It does no I/O: fabrun plan prints exactly what fabrun run does.
package plan
