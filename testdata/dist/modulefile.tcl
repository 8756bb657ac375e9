#%Module1.0
# fabrun @VERSION@: for Environment Modules, and for Lmod where it prefers Tcl.
set prefix {@PREFIX@}

proc ModulesHelp {} {
    puts stderr "fabrun stands in front of mpirun or torchrun, so that a job really uses RDMA:"
    puts stderr "    fabrun mpirun -np 96 simpleFoam -parallel"
    puts stderr "'fabrun help' lists its verbs, 'man fabrun' is its manual."
}

module-whatis "fabrun @VERSION@: makes sure an RDMA job really uses RDMA"
conflict fabrun
prepend-path PATH $prefix/bin
