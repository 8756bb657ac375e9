// Package plan turns a command line, an allocation and an environment into a
// Plan: argv, variables, files, per-node differences, every one with its
// reason. It knows the launchers' dialects (where mpirun's options end and the
// program begins, what the user set and must not be overridden) and does no
// I/O: fabrun plan prints exactly what fabrun run does.
package plan
