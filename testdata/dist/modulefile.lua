-- fabrun @VERSION@, for Lmod
local prefix = [[@PREFIX@]]

help([[
fabrun stands in front of mpirun or torchrun, so that a job really uses RDMA:
    fabrun mpirun -np 96 simpleFoam -parallel
'fabrun help' lists its verbs, 'man fabrun' is its manual.
]])
whatis("Name: fabrun")
whatis("Version: @VERSION@")
whatis("Description: makes sure an RDMA job really uses RDMA")
conflict("fabrun")
prepend_path("PATH", pathJoin(prefix, "bin"))
