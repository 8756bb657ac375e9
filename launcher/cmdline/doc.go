// Package cmdline reads the command lines of launchers, once for everybody who
// asks something of them: which launcher it is and how it reads its words, where
// its options end and the program begins, what the user set there for the ranks,
// how many ranks he asked for, on which hosts, and what stands in front of the
// program. It changes no word and does no I/O.
package cmdline
