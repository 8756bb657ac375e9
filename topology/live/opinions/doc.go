// Package opinions asks other programs' libraries about this machine: ghw for
// the names, NUMA nodes and drivers of the PCI devices that matter, rdmamap for
// the character devices and netdevs of the HCAs. It is apart from package live
// so that only the helper links them: ghw brings an HTTP client and a second
// YAML with it, whose initialisation every rank of a job would wait for.
package opinions
