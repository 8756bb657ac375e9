package preflight

import (
	"slices"
	"strings"

	"fabrun/topology/finding"
)

// impossible are the findings with which RDMA cannot carry the whole job:
// some host would use sockets, or fail to connect. Everything else that is an
// error makes it slow, and is said loudly.
var impossible = []string{
	"port.none", "port.state", "port.link-layer", "ib.subnet-manager", "ib.pkey", "gid.usable",
	"limits.memlock", "device.nodes", "device.modules", "container.hidden", "software.gpu-plugin",
	"hca.none-on-host", "hca.port-down", "hca.rail-missing", "hca.rail-count", "hca.rail-subnet", "hca.mtu-differs",
	"gid.no-common", "gid.no-common-ucx", "gate.openmpi-no-ucx", "gate.efa-plugin", "gate.cxi-plugin", "gate.tcp-chosen",
	"across.link-layer", "node.unreachable", "profile.unfit",
}

// Impossible says whether a finding means that RDMA cannot carry the job
// (--strict then does not start it): one of the list above, or a pair test in
// which nothing got through or less than the fabric's error threshold.
func Impossible(f finding.Finding) bool {
	return f.Severity == finding.Error && (slices.Contains(impossible, f.ID) || strings.HasPrefix(f.ID, "pair."))
}
