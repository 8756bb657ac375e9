package watch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Causes of a fallback. IDs are an interface.
const (
	CauseNoDevice     = "no-device"
	CauseDeviceOpen   = "device-open"
	CauseVerbsMissing = "verbs-missing"
	CauseHCAFilter    = "hca-filter"
	CauseIBDisabled   = "ib-disabled"
	CauseSocketForced = "socket-forced"
	CausePluginFailed = "plugin-failed"
	CauseNoOOB        = "no-oob-interface"
	CauseMixed        = "mixed-networks"
	CauseUCXTCP       = "ucx-tcp"
	CausePMLNotUCX    = "pml-not-ucx"
	CauseProviderTCP  = "provider-tcp"
	CauseHidden       = "hidden-by-container"
	CauseCounter      = "counter-fallback"
	CauseUnknown      = "unknown"
)

// Facts that are no cause by themselves.
const (
	factIBFailed     = "ib-plugin-failed"
	factOFIFailed    = "ofi-plugin-failed"
	factUCXDevice    = "ucx-device"
	factUCXTransport = "ucx-transport"
	factVerbsDriver  = "verbs-driver"  // libibverbs has no driver for a make of device
	factSysfsGone    = "verbs-sysfs"   // a device's directory in sysfs is not there
	factUCXLevel     = "mpi-ucx-level" // Open MPI's UCX component took no device as its own
)

// causeTexts is one sentence per cause: what happened, and the fix.
var causeTexts = map[string]string{
	CauseNoDevice:     "NCCL sees no active RDMA device and uses sockets: check that the port is up and that the container or pod was given the RDMA device.",
	CauseDeviceOpen:   "An RDMA device is listed but cannot be opened, so data goes over sockets: give the job /dev/infiniband and the right to open it (docker: --device=/dev/infiniband --ulimit memlock=-1).",
	CauseVerbsMissing: "libibverbs is not installed where the ranks run, so data goes over sockets: install rdma-core (libibverbs1 and ibverbs-providers) in the image.",
	CauseHCAFilter:    "NCCL_IB_HCA matches no active RDMA device, so data goes over sockets: name one that the host has, or unset it.",
	CauseIBDisabled:   "NCCL_IB_DISABLE=1 turns RDMA off, so data goes over sockets: unset it.",
	CauseSocketForced: "Sockets were asked for (NCCL_NET=Socket), so data goes over TCP: unset it to use RDMA.",
	CausePluginFailed: "The network plugin could not be used, so data goes over sockets: install the plugin that fits this NCCL, or unset NCCL_NET_PLUGIN.",
	CauseNoOOB:        "NCCL found no IP interface to set up its RDMA connections: set NCCL_SOCKET_IFNAME to one that has an address.",
	CauseMixed:        "Some ranks use RDMA and others sockets: find the node whose log says why its RDMA was refused.",
	CauseUCXTCP:       "UCX reaches other nodes by TCP only: set UCX_NET_DEVICES to the RDMA devices and look at why UCX does not take them.",
	CausePMLNotUCX:    "Open MPI sends by its TCP component: set OMPI_MCA_pml=ucx (and OMPI_MCA_opal_common_ucx_devices=any where the driver is not mlx5).",
	CauseProviderTCP:  "libfabric's TCP provider carries the data: set FI_PROVIDER (Intel MPI: I_MPI_OFI_PROVIDER) to mlx, verbs, psm3 or efa, and install it.",
	CauseHidden:       "The container hides the RDMA devices of the host (no /sys/class/infiniband), so data goes over sockets: mount /sys and give the job /dev/infiniband.",
	CauseCounter:      "The job's data went over TCP between its own hosts and none of it over RDMA.",
	CauseUnknown:      "Data goes over sockets; the log says neither why nor whether that was asked for: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV.",
}

// Causes lists the IDs of the causes of a fallback with their sentences, in ID
// order, for help and documentation.
func Causes() [][2]string {
	var out [][2]string
	for _, id := range slices.Sorted(maps.Keys(causeTexts)) {
		out = append(out, [2]string{id, causeTexts[id]})
	}
	return out
}

// CauseText returns the sentence of a cause, "" for an unknown ID.
func CauseText(cause string) string { return causeTexts[cause] }

// causeSentence is the cause's sentence with what this log adds to it.
func (st *state) causeSentence(cause string) string {
	t := causeTexts[cause]
	if cause == CauseHCAFilter {
		t = "NCCL_IB_HCA=" + st.env["NCCL_IB_HCA"] + " matches no active RDMA device, so data goes over sockets: name one that the host has, or unset it."
	}
	if devs := st.devicesSeen(); cause == CauseUnknown && len(devs) > 0 {
		t = strings.Replace(t, "sockets", "sockets although RDMA was possible ("+strings.Join(devs, " ")+")", 1)
	} else if cause == CauseUnknown && st.opt.Known.RDMA {
		t = strings.Replace(t, "sockets", "sockets although the job's hosts have usable RDMA", 1)
	}
	if cause == CauseSocketForced && !strings.EqualFold(st.set("NCCL_NET"), netSocketName) {
		t = "Sockets were asked for: the start of a rank is in the log in full and asks no RDMA transport, which NCCL leaves out only for NCCL_NET or NCCL_IB_DISABLE; unset them to use RDMA."
		if st.claimedOne {
			t = "Processes of one machine pass for several nodes (NCCL_HOSTID), which makes one machine talk to itself over the network: unset it, and NCCL_NET, outside of tests."
		}
	}
	if drv := st.facts[factVerbsDriver]; cause == CauseVerbsMissing && drv != "" {
		t = "libibverbs cannot load its driver for " + drv + " devices where the ranks run, so data goes over sockets: install ibverbs-providers (rdma-core) in the image."
	}
	if dev := st.facts[CauseDeviceOpen]; cause == CauseDeviceOpen && dev != "" {
		t = "RDMA device " + dev + strings.TrimPrefix(t, "An RDMA device")
	}
	if d := st.facts[factUCXDevice]; cause == CauseUCXTCP && d != "" {
		t = "UCX does not have " + d + ", which UCX_NET_DEVICES names, and reaches other nodes by TCP only: name devices that the host has."
	}
	return t
}

// cause says why sockets: the user's own words first, then what was refused,
// in the order in which NCCL tries.
func (st *state) cause(choseRDMA bool) (string, bool) {
	has := func(id string) bool { _, ok := st.facts[id]; return ok }
	switch {
	case choseRDMA || has(CauseMixed):
		return CauseMixed, false
	case isOn(st.set("NCCL_IB_DISABLE")):
		return CauseIBDisabled, true
	case strings.EqualFold(st.set("NCCL_NET"), netSocketName):
		return CauseSocketForced, true
	case has(CauseDeviceOpen):
		return CauseDeviceOpen, false
	case has(factOFIFailed):
		return CausePluginFailed, false
	case has(CauseVerbsMissing):
		return CauseVerbsMissing, false
	case has(CauseNoOOB):
		return CauseNoOOB, false
	case has(CauseHidden):
		return CauseHidden, false
	case (has(CauseNoDevice) || st.ibEmpty) && has(factVerbsDriver):
		return CauseVerbsMissing, false
	case (has(CauseNoDevice) || st.ibEmpty) && has(factSysfsGone):
		return CauseHidden, false
	case has(CauseNoDevice) || st.ibEmpty:
		if v := st.env["NCCL_IB_HCA"]; v != "" {
			return CauseHCAFilter, false
		}
		return CauseNoDevice, false
	case has(CausePluginFailed):
		return CausePluginFailed, false
	case st.claimedOne, st.askedNone && !st.ibProbed:
		return CauseSocketForced, true
	}
	return CauseUnknown, false
}

// set returns what the user has set a variable to, as the log or the plan shows it.
func (st *state) set(name string) string { return cmp.Or(st.env[name], st.opt.Known.Env[name]) }
