// Package openfoam reads an OpenFOAM case as far as a launch needs it: how many
// subdomains it is cut into and how, which application it is for, which
// processor directories are there. It says whether that fits the ranks, the
// arguments and the MPI of a run, and which variables the other hosts need.
//
// It reads the dictionary grammar (comments, nested dictionaries, lists,
// macros), but evaluates nothing: what an #include or a #calc would give is
// said to be unknown. Files come in as text; it does no I/O.
//
//	dec, err := openfoam.ReadDecomposition(decomposeParDict)
//	res := openfoam.Examine(openfoam.Case{Decomposition: dec, …}, openfoam.Run{Program: argv, NP: 96, …})
package openfoam
