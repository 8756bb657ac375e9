// Command lab is a small RoCE cluster on one machine, from Debian packages
// only: QEMU guests with emulated PCIe switches, two NUMA nodes and two rails
// of Soft-RoCE each, joined by a switch that this program itself is. It needs
// no KVM and no network card, and leaves nothing behind.
//
//	go run ./testdata/lab up          build the image once, start two nodes
//	go run ./testdata/lab shell 1     a shell on node1 ('shell 2 CMD…' runs a command)
//	go run ./testdata/lab switch      what passed between the nodes, by DSCP
//	go run ./testdata/lab cable 2 rail1 out
//	go run ./testdata/lab down        end them and remove every trace but the image
//
// The tests beside it (go test ./testdata/lab) prove on such a cluster what
// fabrun promises: the transport, the DSCP on the wire, the faults it names.
//
//	image.go   the root file system (debootstrap), kernel and initramfs, cached
//	guest.go   one node: QEMU's command line, its keys and its first script
//	fabric.go  the switch between the nodes: forwards, counts, drops, pulls cables
//	lab.go     a cluster of both, and ssh into it
//	main.go    the command
package main
