//go:build cgo

package main

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// library is NVML itself behind api.
type library struct{ nvml nvml.Interface }

func (l library) init() nvml.Return     { return l.nvml.Init() }
func (l library) shutdown() nvml.Return { return l.nvml.Shutdown() }

func (l library) has(symbol string) bool {
	ext := l.nvml.Extensions()
	return ext != nil && ext.LookupSymbol(symbol) == nil
}

func (l library) driverVersion() (string, nvml.Return) { return l.nvml.SystemGetDriverVersion() }
func (l library) cudaVersion() (int, nvml.Return)      { return l.nvml.SystemGetCudaDriverVersion() }
func (l library) count() (int, nvml.Return)            { return l.nvml.DeviceGetCount() }

func (l library) gpu(index int) (gpu, nvml.Return) {
	d, ret := l.nvml.DeviceGetHandleByIndex(index)
	return handle{d}, ret
}

// handle is a device's handle behind gpu.
type handle struct{ dev nvml.Device }

func (h handle) busID() (string, nvml.Return) {
	info, ret := h.dev.GetPciInfo()
	return cString(info.BusId[:]), ret
}

func (h handle) name() (string, nvml.Return) { return h.dev.GetName() }
func (h handle) uuid() (string, nvml.Return) { return h.dev.GetUUID() }

func (h handle) memory() (uint64, nvml.Return) {
	m, ret := h.dev.GetMemoryInfo()
	return m.Total, ret
}

func (h handle) use() (uint32, nvml.Return) {
	u, ret := h.dev.GetUtilizationRates()
	return u.Gpu, ret
}

func (h handle) capability() (int, int, nvml.Return) { return h.dev.GetCudaComputeCapability() }
func (h handle) minor() (int, nvml.Return)           { return h.dev.GetMinorNumber() }
func (h handle) numa() (int, nvml.Return)            { return h.dev.GetNumaNodeId() }

func (h handle) migOn() (bool, nvml.Return) {
	current, _, ret := h.dev.GetMigMode()
	return current == nvml.DEVICE_MIG_ENABLE, ret
}

func (h handle) migCount() (int, nvml.Return) { return h.dev.GetMaxMigDeviceCount() }

func (h handle) mig(index int) (gpu, nvml.Return) {
	d, ret := h.dev.GetMigDeviceHandleByIndex(index)
	return handle{d}, ret
}

func (h handle) linkOn(link int) (bool, nvml.Return) {
	state, ret := h.dev.GetNvLinkState(link)
	return state == nvml.FEATURE_ENABLED, ret
}

func (h handle) linkRemote(link int) (string, nvml.Return) {
	info, ret := h.dev.GetNvLinkRemotePciInfo(link)
	return cString(info.BusId[:]), ret
}

func (h handle) linkKind(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	return h.dev.GetNvLinkRemoteDeviceType(link)
}

func (h handle) c2cOn() (bool, nvml.Return) {
	info, ret := h.dev.GetC2cModeInfoV().V1()
	return info.IsC2cEnabled != 0, ret
}

func (h handle) fabric() (nvml.GpuFabricInfo, nvml.Return) { return h.dev.GetGpuFabricInfoV().V1() }

func (h handle) canRead(other gpu) (bool, nvml.Return) {
	o, ok := other.(handle)
	if !ok {
		return false, nvml.ERROR_INVALID_ARGUMENT
	}
	status, ret := h.dev.GetP2PStatus(o.dev, nvml.P2P_CAPS_INDEX_READ)
	return status == nvml.P2P_STATUS_OK, ret
}

func cString(b []int8) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}
