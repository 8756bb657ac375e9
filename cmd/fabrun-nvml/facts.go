//go:build cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// api is the part of NVML that is asked. Any call but init ends the process
// where init failed (the library's functions are then unresolved), so every
// method but init may only follow a good init; has tells whether this driver's
// library knows a function at all, for the same reason.
type api interface {
	init() nvml.Return
	shutdown() nvml.Return
	has(symbol string) bool
	driverVersion() (string, nvml.Return)
	cudaVersion() (int, nvml.Return) // 12080 is 12.8
	count() (int, nvml.Return)
	gpu(index int) (gpu, nvml.Return)
}

// gpu is the part of a device's handle that is asked.
type gpu interface {
	busID() (string, nvml.Return) // "00000000:1B:00.0"
	name() (string, nvml.Return)
	uuid() (string, nvml.Return)
	memory() (uint64, nvml.Return) // bytes
	use() (uint32, nvml.Return)    // percent of the last moments in which something ran
	capability() (int, int, nvml.Return)
	minor() (int, nvml.Return)
	numa() (int, nvml.Return)
	migOn() (bool, nvml.Return)
	migCount() (int, nvml.Return)
	mig(index int) (gpu, nvml.Return)
	linkOn(link int) (bool, nvml.Return)
	linkRemote(link int) (string, nvml.Return) // bus ID of the other end
	linkKind(link int) (nvml.IntNvLinkDeviceType, nvml.Return)
	c2cOn() (bool, nvml.Return)
	fabric() (nvml.GpuFabricInfo, nvml.Return) // the NVLink domain of several machines
	canRead(other gpu) (bool, nvml.Return)
}

const (
	maxGPUs  = 64
	maxLinks = 36 // NVML_NVLINK_MAX_LINKS is 18 on Hopper and Blackwell; more is room
	maxMIG   = 16

	classNVSwitch = 0x068000
	classGPU      = 0x030200
)

// returnTexts say in words why NVML gave no answer: the library's own texts
// may not be asked for when init failed.
var returnTexts = map[nvml.Return]string{
	nvml.ERROR_LIBRARY_NOT_FOUND:       "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
	nvml.ERROR_DRIVER_NOT_LOADED:       "the NVIDIA driver is not loaded",
	nvml.ERROR_NO_PERMISSION:           "no permission to talk to the NVIDIA driver",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver and its library are of different versions: drain the node, then reload the driver or reboot",
	nvml.ERROR_GPU_IS_LOST:             "the GPU has fallen off the bus",
	nvml.ERROR_NOT_FOUND:               "not found",
	nvml.ERROR_NOT_SUPPORTED:           "not supported",
	nvml.ERROR_RESET_REQUIRED:          "the GPU needs a reset",
	nvml.ERROR_UNKNOWN:                 "unknown NVML error",
}

func reason(ret nvml.Return) error {
	if text, ok := returnTexts[ret]; ok {
		return errors.New(text)
	}
	return fmt.Errorf("NVML error %d", int(ret))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{"use"}) {
		return answerUse(library{nvml.New()}, stdin, stdout, stderr)
	}
	return report(library{nvml.New()}, args, stdout, stderr)
}

// report prints the section, or why there is none, and returns the exit status:
// 0 in both cases, since a machine without a GPU driver is no failure.
func report(lib api, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintln(stderr, "fabrun-nvml: prints what the NVIDIA driver says of this machine's GPUs as a section of a fabrun snapshot, or, with the word 'opinions', what ghw and rdmamap say of its devices, or, with the word 'use', how much the GPUs are used, once for each line of its input")
		return 2
	}
	text, err := facts(lib)
	if err != nil {
		fmt.Fprintf(stdout, "fabrun/nvml ! %v\n", err)
		fmt.Fprintf(stderr, "fabrun-nvml: %v\n", err)
		return 0
	}
	if _, err := io.WriteString(stdout, "-- fabrun/nvml --\n"+text); err != nil {
		fmt.Fprintf(stderr, "fabrun-nvml: %v\n", err)
		return 1
	}
	return 0
}

// answerUse prints 'use 0.873 8', the mean use of the GPUs and how many told it,
// for each line that it is sent, until the input ends.
func answerUse(lib api, stdin io.Reader, stdout, stderr io.Writer) int {
	if ret := lib.init(); ret != nvml.SUCCESS {
		fmt.Fprintf(stderr, "fabrun-nvml: %v\n", reason(ret))
		return 0
	}
	defer lib.shutdown()
	if !lib.has("nvmlDeviceGetUtilizationRates") {
		return 0
	}
	count, ret := lib.count()
	if ret != nvml.SUCCESS {
		fmt.Fprintf(stderr, "fabrun-nvml: %v\n", reason(ret))
		return 0
	}
	sc := bufio.NewScanner(stdin)
	for sc.Scan() {
		sum, n := 0.0, 0
		for i := range min(count, maxGPUs) {
			g, ret := lib.gpu(i)
			if ret != nvml.SUCCESS {
				continue
			}
			// A GPU in MIG mode does not tell.
			if v, ret := g.use(); ret == nvml.SUCCESS && v <= 100 {
				sum, n = sum+float64(v)/100, n+1
			}
		}
		if n == 0 {
			return 0
		}
		if _, err := fmt.Fprintf(stdout, "use %.3f %d\n", sum/float64(n), n); err != nil {
			return 1
		}
	}
	return 0
}

// facts is the text of the section fabrun/nvml. A fact that the driver does
// not give is left out.
func facts(lib api) (string, error) {
	if ret := lib.init(); ret != nvml.SUCCESS {
		return "", reason(ret)
	}
	defer lib.shutdown()
	var b strings.Builder
	if v, ret := lib.driverVersion(); ret == nvml.SUCCESS {
		fmt.Fprintf(&b, "driver %s\n", oneLine(v))
	}
	if v, ret := lib.cudaVersion(); ret == nvml.SUCCESS && v > 0 {
		fmt.Fprintf(&b, "cuda %d.%d\n", v/1000, v%1000/10)
	}
	n, ret := lib.count()
	if ret != nvml.SUCCESS {
		return "", reason(ret)
	}
	type found struct {
		gpu
		addr string
	}
	var gpus []found
	for i := range min(n, maxGPUs) {
		g, ret := lib.gpu(i)
		if ret != nvml.SUCCESS {
			fmt.Fprintf(&b, "gpu-error %d %v\n", i, reason(ret))
			continue
		}
		addr, ret := g.busID()
		if ret != nvml.SUCCESS || addr == "" {
			fmt.Fprintf(&b, "gpu-error %d no PCI address: %v\n", i, reason(ret))
			continue
		}
		gpus = append(gpus, found{g, sysfsAddress(addr)})
	}
	for _, g := range gpus {
		describe(&b, lib, g.gpu, g.addr)
	}
	if lib.has("nvmlDeviceGetP2PStatus") {
		for _, a := range gpus {
			for _, other := range gpus {
				if a.addr == other.addr {
					continue
				}
				if ok, ret := a.canRead(other.gpu); ret == nvml.SUCCESS && !ok {
					fmt.Fprintf(&b, "gpu %s no-p2p %s\n", a.addr, other.addr)
				}
			}
		}
	}
	return b.String(), nil
}

func describe(b *strings.Builder, lib api, g gpu, addr string) {
	say := func(format string, args ...any) {
		fmt.Fprintf(b, "gpu %s "+format+"\n", append([]any{addr}, args...)...)
	}
	if v, ret := g.name(); ret == nvml.SUCCESS && oneLine(v) != "" {
		say("name %s", oneLine(v))
	}
	if v, ret := g.uuid(); ret == nvml.SUCCESS && oneLine(v) != "" {
		say("uuid %s", oneLine(v))
	}
	if v, ret := g.memory(); ret == nvml.SUCCESS && v > 0 {
		say("memory %d", v)
	}
	if major, minor, ret := g.capability(); ret == nvml.SUCCESS {
		say("capability %d.%d", major, minor)
	}
	if v, ret := g.minor(); ret == nvml.SUCCESS && v >= 0 {
		say("minor %d", v)
	}
	if lib.has("nvmlDeviceGetNumaNodeId") {
		if v, ret := g.numa(); ret == nvml.SUCCESS && v >= 0 {
			say("numa %d", v)
		}
	}
	if lib.has("nvmlDeviceGetMigMode") {
		migs(say, g)
	}
	if lib.has("nvmlDeviceGetNvLinkState") {
		links(say, lib, g)
	}
	if lib.has("nvmlDeviceGetC2cModeInfoV") {
		if on, ret := g.c2cOn(); ret == nvml.SUCCESS && on {
			say("link c2c cpu 1")
		}
	}
	if lib.has("nvmlDeviceGetGpuFabricInfo") {
		if f, ret := g.fabric(); ret == nvml.SUCCESS && int(f.State) < len(fabricStates) && f.State != nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
			say("fabric %x %d %s %d", f.ClusterUuid, f.CliqueId, fabricStates[f.State], f.Status)
		}
	}
}

// fabricStates are the words for nvmlGpuFabricState_t.
var fabricStates = []string{"not-supported", "not-started", "in-progress", "completed"}

// migs prints the instances of a GPU in MIG mode. The profile is the last word
// of an instance's name ("NVIDIA A100-SXM4-40GB MIG 1g.5gb").
func migs(say func(string, ...any), g gpu) {
	on, ret := g.migOn()
	if ret != nvml.SUCCESS || !on {
		return
	}
	n, ret := g.migCount()
	if ret != nvml.SUCCESS {
		return
	}
	for i := range min(n, maxMIG) {
		inst, ret := g.mig(i)
		if ret != nvml.SUCCESS {
			continue // the slot is empty
		}
		uuid, ret := inst.uuid()
		if ret != nvml.SUCCESS || oneLine(uuid) == "" {
			continue
		}
		profile := "-"
		if name, ret := inst.name(); ret == nvml.SUCCESS {
			if w := strings.Fields(name); len(w) > 1 && slices.Contains(w, "MIG") {
				profile = w[len(w)-1]
			}
		}
		say("mig %s %s", oneLine(uuid), profile)
	}
}

// links prints the active NVLinks, those to one device in one line. A guest
// that does not see the NVSwitches gets no address for the other end.
func links(say func(string, ...any), lib api, g gpu) {
	type end struct{ target, class string }
	count := map[end]int{}
	var order []end
	kinds := lib.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	for i := range maxLinks {
		on, ret := g.linkOn(i)
		if ret != nvml.SUCCESS || !on {
			continue
		}
		e := end{"-", "-"}
		if addr, ret := g.linkRemote(i); ret == nvml.SUCCESS {
			if a := sysfsAddress(addr); a != "" && a != "0000:00:00.0" {
				e.target = a
			}
		}
		if kinds {
			switch k, ret := g.linkKind(i); {
			case ret != nvml.SUCCESS:
			case k == nvml.NVLINK_DEVICE_TYPE_SWITCH:
				e.class = fmt.Sprintf("0x%06x", classNVSwitch)
			case k == nvml.NVLINK_DEVICE_TYPE_GPU:
				e.class = fmt.Sprintf("0x%06x", classGPU)
			}
		}
		if count[e] == 0 {
			order = append(order, e)
		}
		count[e]++
	}
	for _, e := range order {
		say("link nvlink %s %d %s", e.target, count[e], e.class)
	}
}

// sysfsAddress writes NVML's bus ID as sysfs does: four digits of domain, lower case.
func sysfsAddress(busID string) string {
	domain, rest, ok := strings.Cut(strings.ToLower(strings.TrimSpace(busID)), ":")
	if !ok || !strings.Contains(rest, ":") || strings.ContainsAny(busID, " \t\n") {
		return ""
	}
	domain = strings.TrimLeft(domain, "0")
	if len(domain) < 4 {
		domain = strings.Repeat("0", 4-len(domain)) + domain
	}
	return domain + ":" + rest
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
