package watch

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"fabrun/topology"
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
	CauseUCXNoDevice  = "ucx-no-device"
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
	factUCXNoVerbs   = "ucx-no-verbs"  // UCX lists its transports, and none is of RDMA
	factVerbsDriver  = "verbs-driver"  // libibverbs has no driver for a make of device
	factSysfsGone    = "verbs-sysfs"   // a device's directory in sysfs is not there
	factEFAEmpty     = "efa-empty"     // libfabric found no EFA device
	factUCXLevel     = "mpi-ucx-level" // Open MPI's UCX component took no device as its own
)

// ofiNoDevice is the detail of factOFIFailed where the plugin found nothing to use.
const ofiNoDevice = "no-device"

// causeWords tell a cause: what is so, and what to do. Where NCCL falls back, data
// goes over sockets; where it may not, the job stops.
type causeWords struct{ why, fix string }

func (w causeWords) sockets() string { return w.why + ", so data goes over sockets: " + w.fix }

// socketCauses are why NCCL takes sockets instead of RDMA.
var socketCauses = map[string]causeWords{
	CauseNoDevice:     {"NCCL finds no active RDMA device", "check that the port is up (ibv_devinfo) and that the container or pod was given the RDMA device (/dev/infiniband)."},
	CauseDeviceOpen:   {"An RDMA device is listed but cannot be opened", "give the job /dev/infiniband and the right to open it (" + topology.GiveDevices + ")."},
	CauseVerbsMissing: {"libibverbs is not installed where the ranks run", "install rdma-core (libibverbs1 and ibverbs-providers) in the image."},
	CauseHCAFilter:    {"NCCL_IB_HCA matches no active RDMA device", "name one that the host has, or unset it."},
	CauseIBDisabled:   {"NCCL_IB_DISABLE=1 turns RDMA off", "unset it."},
	CauseSocketForced: {"Sockets were asked for (NCCL_NET=Socket)", "unset it to use RDMA."},
	CausePluginFailed: {"The network plugin could not be used", "install the plugin that fits this NCCL, or unset NCCL_NET_PLUGIN."},
	CauseNoOOB:        {"NCCL found no IP interface to set up its RDMA connections", "set NCCL_SOCKET_IFNAME to one that has an address."},
	CauseHidden:       {"The container hides the RDMA devices of the host (no /sys/class/infiniband)", "mount /sys and give the job /dev/infiniband."},
}

// causeTexts are the other causes, one sentence each: what happened, and the fix.
var causeTexts = map[string]string{
	CauseMixed:       "Some ranks use RDMA and others sockets: give all ranks the same environment and image, and find the node whose log says why its RDMA was refused.",
	CauseUCXTCP:      "UCX reaches other nodes by TCP only: set UCX_NET_DEVICES to the RDMA devices and look at why UCX does not take them.",
	CauseUCXNoDevice: "UCX finds no RDMA transport on the node, so Open MPI takes its own components (TCP between nodes, shared memory within one): on one node that is all right; else look at why (ibv_devinfo, /dev/infiniband, the locked-memory limit, UCX built without verbs: ucx_info -d).",
	CausePMLNotUCX:   "Open MPI sends by its TCP component: set OMPI_MCA_pml=ucx (and OMPI_MCA_opal_common_ucx_devices=any where the driver is not mlx5).",
	CauseProviderTCP: "libfabric's TCP provider carries the data: set FI_PROVIDER (Intel MPI: I_MPI_OFI_PROVIDER) to mlx, verbs, psm3 or efa, and install it.",
	CauseCounter:     "The job's data went over TCP between its own hosts and none of it over RDMA.",
	CauseUnknown:     "Data goes over sockets; the log says neither why nor whether that was asked for: look at its beginning, or run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV.",
}

// Causes lists the IDs of the causes of a fallback with their sentences, in ID
// order, for help and documentation.
func Causes() [][2]string {
	all := maps.Clone(causeTexts)
	for id, w := range socketCauses {
		all[id] = w.sockets()
	}
	var out [][2]string
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, [2]string{id, all[id]})
	}
	return out
}

// causeOfLog is a socket cause with what this log adds to it.
func (st *state) causeOfLog(cause string) (causeWords, bool) {
	w, ok := socketCauses[cause]
	switch cause {
	case CauseHCAFilter:
		w.why = "NCCL_IB_HCA=" + st.env["NCCL_IB_HCA"] + " matches no active RDMA device"
	case CauseSocketForced:
		switch {
		case strings.EqualFold(st.set("NCCL_NET"), netSocketName):
		case st.claimedOne:
			w = causeWords{"Processes of one machine pass for several nodes (NCCL_HOSTID), which makes one machine talk to itself over the network", "unset it, and NCCL_NET, outside of tests."}
		default:
			w = causeWords{"Sockets were asked for: the start of a rank is in the log in full and asks no RDMA transport, which NCCL leaves out only for NCCL_NET or NCCL_IB_DISABLE", "unset them to use RDMA."}
		}
	case CauseVerbsMissing:
		if drv := st.facts[factVerbsDriver]; drv != "" {
			w = causeWords{"libibverbs cannot load its driver for " + drv + " devices where the ranks run", "install ibverbs-providers (rdma-core) in the image."}
		}
	case CauseDeviceOpen:
		if dev := st.facts[CauseDeviceOpen]; dev != "" {
			w.why = "RDMA device " + dev + " is listed but cannot be opened"
		}
	case CausePluginFailed:
		if st.facts[factOFIFailed] == ofiNoDevice {
			w = causeWords{"The libfabric plugin (aws-ofi-nccl) is there and found no EFA device", "give the job the device (pod: vpc.amazonaws.com/efa, container: --device=/dev/infiniband/uverbsN) and check fi_info -p efa in it."}
		} else if _, ok := st.facts[factOFIFailed]; ok {
			w = causeWords{"The libfabric plugin (aws-ofi-nccl) gave up", "look at its own lines before (FI_LOG_LEVEL=warn adds libfabric's); fi_info -p efa must list the devices, and plugin, libfabric and the EFA driver must fit each other."}
		} else if d := st.facts[CausePluginFailed]; strings.Contains(d, "GLIBC") {
			w = causeWords{"The network plugin was built for a newer system than the image (its libc lacks a GLIBC version)", "use an image that is as new, or the plugin's build for this one."}
		} else if strings.Contains(d, "undefined symbol") || strings.Contains(d, "is unsupported") {
			w = causeWords{"The network plugin does not fit this NCCL", "install the plugin's version for it, or unset NCCL_NET_PLUGIN."}
		}
	}
	return w, ok
}

// causeSentence is the cause's sentence with what this log adds to it.
func (st *state) causeSentence(cause string) string {
	if w, ok := st.causeOfLog(cause); ok {
		return w.sockets()
	}
	devs := st.devicesSeen()
	switch d := st.facts[factUCXDevice]; {
	case cause == CauseUCXTCP && st.facts[factUCXNoVerbs] != "":
		return "UCX reaches other nodes by TCP only: " + phraseText(ucxPhrases, "ucx-no-verbs")
	case cause == CauseUCXTCP && d != "":
		return "UCX does not have " + d + ", which UCX_NET_DEVICES names, and reaches other nodes by TCP only: name devices that the host has."
	case cause == CauseUnknown && len(devs) > 0:
		return strings.Replace(causeTexts[cause], "sockets", "sockets although RDMA was possible ("+strings.Join(devs, " ")+")", 1)
	case cause == CauseUnknown && st.opt.Known.RDMA:
		return strings.Replace(causeTexts[cause], "sockets", "sockets although the job's hosts have usable RDMA", 1)
	case cause == CauseUnknown && st.hasFact(factIBFailed):
		return "Data goes over sockets because NCCL's own RDMA transport refused to start; the log does not say why: look for NCCL_IB_DISABLE=1 in the environment, the image and /etc/nccl.conf, and run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV."
	}
	return causeTexts[cause]
}

func (st *state) hasFact(id string) bool { _, ok := st.facts[id]; return ok }

// whyNoRDMA is what this log says of why RDMA was refused, "" where it says nothing.
func (st *state) whyNoRDMA() string {
	cause, _ := st.cause(false)
	if cause == CauseSocketForced && !strings.EqualFold(st.set("NCCL_NET"), netSocketName) {
		return "" // nobody said so
	}
	w, ok := st.causeOfLog(cause)
	if !ok {
		return ""
	}
	return w.why + ": " + w.fix
}

// cause says why sockets: the user's own words first, then what was refused,
// in the order in which NCCL tries.
func (st *state) cause(choseRDMA bool) (string, bool) {
	has := st.hasFact
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

// whyOB1 is why Open MPI sends by its own component instead of UCX.
func (st *state) whyOB1() string {
	if st.facts[factUCXLevel] == "none" && !st.askedBTL() {
		return CauseUCXNoDevice
	}
	return CausePMLNotUCX
}

// secondaryErrors follow from others: they come last in the list of errors.
// The nearest to a first cause stands first.
var secondaryErrors = []string{
	"ofi-no-provider", "ofi-open", "ucx-no-transport", "ucx-only-shared-memory", "ucx-unreachable", "nvshmem-transport",
	"mpi-no-pml", "mpi-pml-unavailable", "mpi-unreachable", "ib-completion-error-5", "ucx-peer-gone", "nccl-proxy", "connection-closed", "gloo-closed", "nccl-fatal", "torch-watchdog", "nccl-failed", "nccl-abort",
	"mpi-ucx-endpoint", "ofi-address", "mpi-error", "mpi-init", "mpi-abort", "crash", "mpi-daemon-lost", "rank-died",
}

// fatalInOrder lists the errors that ended the job, the first cause first: what says
// for itself why, then what was suspected before, then what follows from others.
func (st *state) fatalInOrder() []string {
	var first, last []string
	for _, id := range st.fatal {
		if st.failover && strings.HasPrefix(id, "ib-completion-error") {
			continue // done again on the other devices
		}
		if id == "ofi-endpoint" && slices.Contains(st.networks, netSocketName) {
			continue // NCCL went on over sockets: it is the cause of that
		}
		if !slices.Contains(secondaryErrors, id) {
			first = append(first, id)
		}
	}
	for _, id := range secondaryErrors {
		if slices.Contains(st.fatal, id) && (!st.failover || !strings.HasPrefix(id, "ib-completion-error")) {
			last = append(last, id)
		}
	}
	if len(first) == 0 && len(last) > 0 {
		// A device that cannot be opened says less than why.
		for _, id := range st.suspects {
			if !strings.HasSuffix(id, "-open") {
				first = append(first, id)
			}
		}
		for _, id := range st.suspects {
			if strings.HasSuffix(id, "-open") {
				first = append(first, id)
			}
		}
	}
	return append(first, last...)
}

// textOf is the sentence that an error was announced with.
func (st *state) textOf(id string) string {
	for _, e := range st.events {
		if e.ID == id {
			return e.Text
		}
	}
	return id
}

// alsoFailed says the error that ended a job which had fallen back.
func (st *state) alsoFailed(v *Verdict) string {
	if len(v.FatalErrors) == 0 || v.FatalErrors[0] == *v.Cause {
		return ""
	}
	return " And it failed: " + st.textOf(v.FatalErrors[0])
}

// alsoSuspected says what a library complained of in a log that tells no more.
func (st *state) alsoSuspected(v *Verdict) string {
	if len(st.suspects) > 0 {
		return " " + st.textOf(st.suspects[0])
	}
	for _, e := range v.Events {
		if e.ID == "gdr-off" {
			return " " + e.Text
		}
	}
	return ""
}
