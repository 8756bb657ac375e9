// Package topology holds the Host value: what one machine is made of as far as
// an RDMA job cares. NUMA nodes, the PCI tree, GPUs, HCAs with their ports and
// GIDs, netdevs, limits, and the facts that no file tells (QoS, libraries,
// modules). It also knows the pure rules on such a value: path types between
// devices as NCCL and as nvidia-smi name them, and which HCA is near which GPU.
//
// It does no I/O and knows no other package of fabrun but finding. Unknown is
// never zero: what could not be read is nil (or "" where the empty string can
// not be a value), and a reader that failed leaves an Unreadable entry.
//
//	paths := topology.Paths(host)                  // every GPU x HCA and GPU x GPU pair
//	near := topology.NearestHCAs(host, gpu)        // best class first
package topology
