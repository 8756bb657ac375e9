//go:build cgo

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/google/go-cmp/cmp"
)

const ok = nvml.SUCCESS

// fakeGPU answers from its fields; an empty field is "not supported".
type fakeGPU struct {
	bus, label, id string
	total          uint64
	major, minorV  int
	dev            int
	node           *int
	migs           []fakeGPU
	links          []string // the other end of each link; "" is down, "?" has no address
	kind           nvml.IntNvLinkDeviceType
	c2c            bool
	unreadable     []string // bus IDs
	busy           uint32   // percent; more than 100: not told
	domain         *nvml.GpuFabricInfo
}

func said(s string) (string, nvml.Return) {
	if s == "" {
		return "", nvml.ERROR_NOT_SUPPORTED
	}
	return s, ok
}

func (g fakeGPU) busID() (string, nvml.Return)  { return said(g.bus) }
func (g fakeGPU) name() (string, nvml.Return)   { return said(g.label) }
func (g fakeGPU) uuid() (string, nvml.Return)   { return said(g.id) }
func (g fakeGPU) memory() (uint64, nvml.Return) { return g.total, ok }
func (g fakeGPU) use() (uint32, nvml.Return) {
	if g.busy > 100 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return g.busy, ok
}
func (g fakeGPU) capability() (int, int, nvml.Return) { return g.major, g.minorV, ok }
func (g fakeGPU) minor() (int, nvml.Return)           { return g.dev, ok }
func (g fakeGPU) migOn() (bool, nvml.Return)          { return g.migs != nil, ok }
func (g fakeGPU) migCount() (int, nvml.Return)        { return 7, ok }
func (g fakeGPU) c2cOn() (bool, nvml.Return)          { return g.c2c, ok }
func (g fakeGPU) fabric() (nvml.GpuFabricInfo, nvml.Return) {
	if g.domain == nil {
		return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return *g.domain, ok
}

func (g fakeGPU) canRead(o gpu) (bool, nvml.Return) {
	for _, u := range g.unreadable {
		if u == o.(fakeGPU).bus {
			return false, ok
		}
	}
	return true, ok
}

func (g fakeGPU) numa() (int, nvml.Return) {
	if g.node == nil {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return *g.node, ok
}

func (g fakeGPU) mig(i int) (gpu, nvml.Return) {
	if i >= len(g.migs) || g.migs[i].id == "" {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return g.migs[i], ok
}

func (g fakeGPU) linkOn(i int) (bool, nvml.Return) {
	if i >= len(g.links) {
		return false, nvml.ERROR_INVALID_ARGUMENT
	}
	return g.links[i] != "", ok
}

func (g fakeGPU) linkRemote(i int) (string, nvml.Return) {
	if g.links[i] == "?" {
		return "", nvml.ERROR_NOT_SUPPORTED
	}
	return g.links[i], ok
}
func (g fakeGPU) linkKind(int) (nvml.IntNvLinkDeviceType, nvml.Return) { return g.kind, ok }

// fakeLib fails the test when anything but init is called after a failed init,
// as the real library ends the process.
type fakeLib struct {
	t       *testing.T
	ret     nvml.Return
	gpus    []fakeGPU
	lost    int // this GPU cannot be opened; -1 none
	lacks   string
	stopped *bool
}

func (l fakeLib) alive() {
	if l.ret != ok {
		l.t.Error("NVML was called after a failed init: the real one would have ended the process")
	}
}
func (l fakeLib) init() nvml.Return { return l.ret }
func (l fakeLib) shutdown() nvml.Return {
	l.alive()
	*l.stopped = true
	return ok
}
func (l fakeLib) has(s string) bool                    { l.alive(); return s != l.lacks }
func (l fakeLib) driverVersion() (string, nvml.Return) { l.alive(); return "570.86.15", ok }
func (l fakeLib) cudaVersion() (int, nvml.Return)      { l.alive(); return 12080, ok }
func (l fakeLib) count() (int, nvml.Return)            { l.alive(); return len(l.gpus), ok }
func (l fakeLib) gpu(i int) (gpu, nvml.Return) {
	l.alive()
	if i == l.lost {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return l.gpus[i], ok
}

func TestFacts(t *testing.T) {
	h100 := fakeGPU{
		bus: "00000000:1B:00.0", label: "NVIDIA H100 80GB HBM3", id: "GPU-1", total: 85520809984, major: 9, dev: 0,
		links: []string{"00000000:05:00.0", "00000000:05:00.0", "", "00000000:06:00.0"}, kind: nvml.NVLINK_DEVICE_TYPE_SWITCH,
	}
	for _, tc := range []struct {
		name  string
		gpus  []fakeGPU
		lost  int
		lacks string
		want  string
	}{
		{name: "no GPU", lost: -1, want: ""},
		{name: "links to one switch are one line, a link that is down is none", lost: -1, gpus: []fakeGPU{h100}, want: `gpu 0000:1b:00.0 name NVIDIA H100 80GB HBM3
gpu 0000:1b:00.0 uuid GPU-1
gpu 0000:1b:00.0 memory 85520809984
gpu 0000:1b:00.0 capability 9.0
gpu 0000:1b:00.0 minor 0
gpu 0000:1b:00.0 link nvlink 0000:05:00.0 2 0x068000
gpu 0000:1b:00.0 link nvlink 0000:06:00.0 1 0x068000
`},
		{
			name: "a GPU of an NVLink domain of several machines, and one that knows no such thing", lost: -1,
			gpus: []fakeGPU{
				{bus: "00000008:01:00.0", id: "GPU-5", major: 10, domain: &nvml.GpuFabricInfo{ClusterUuid: [16]uint8{0xab, 0xcd}, CliqueId: 7, State: nvml.GPU_FABRIC_STATE_COMPLETED}},
				{bus: "00000009:01:00.0", id: "GPU-6", major: 10, domain: &nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_NOT_SUPPORTED}},
			},
			want: `gpu 0008:01:00.0 uuid GPU-5
gpu 0008:01:00.0 capability 10.0
gpu 0008:01:00.0 minor 0
gpu 0008:01:00.0 fabric abcd0000000000000000000000000000 7 completed 0
gpu 0009:01:00.0 uuid GPU-6
gpu 0009:01:00.0 capability 10.0
gpu 0009:01:00.0 minor 0
`,
		},
		{
			name: "MIG, C2C, NUMA, a domain of its own, a far end without address", lost: -1,
			gpus: []fakeGPU{{
				bus: "00000009:01:00.0", id: "GPU-2", major: 9, dev: 3, node: new(4), c2c: true, links: []string{"?", "?"}, kind: nvml.NVLINK_DEVICE_TYPE_GPU,
				migs: []fakeGPU{{id: "MIG-a", label: "NVIDIA GH200 480GB MIG 1g.12gb"}, {}, {id: "MIG-b", label: "odd"}},
			}},
			want: `gpu 0009:01:00.0 uuid GPU-2
gpu 0009:01:00.0 capability 9.0
gpu 0009:01:00.0 minor 3
gpu 0009:01:00.0 numa 4
gpu 0009:01:00.0 mig MIG-a 1g.12gb
gpu 0009:01:00.0 mig MIG-b -
gpu 0009:01:00.0 link nvlink - 2 0x030200
gpu 0009:01:00.0 link c2c cpu 1
`,
		},
		{
			name: "a lost GPU is said and the others are read", lost: 0, gpus: []fakeGPU{{}, {bus: "00000000:43:00.0", id: "GPU-3", major: 8}},
			want: "gpu-error 0 the GPU has fallen off the bus\ngpu 0000:43:00.0 uuid GPU-3\ngpu 0000:43:00.0 capability 8.0\ngpu 0000:43:00.0 minor 0\n",
		},
		{
			name: "a driver that does not know NVLink is not asked", lost: -1, lacks: "nvmlDeviceGetNvLinkState", gpus: []fakeGPU{{bus: "00000000:43:00.0", links: []string{"00000000:05:00.0"}}},
			want: "gpu 0000:43:00.0 capability 0.0\ngpu 0000:43:00.0 minor 0\n",
		},
		{
			name: "GPUs that cannot read each other", lost: -1,
			gpus: []fakeGPU{{bus: "00000000:01:00.0", unreadable: []string{"00000000:41:00.0"}}, {bus: "00000000:41:00.0"}},
			want: "gpu 0000:01:00.0 capability 0.0\ngpu 0000:01:00.0 minor 0\ngpu 0000:41:00.0 capability 0.0\ngpu 0000:41:00.0 minor 0\ngpu 0000:01:00.0 no-p2p 0000:41:00.0\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stopped := false
			got, err := facts(fakeLib{t: t, gpus: tc.gpus, lost: tc.lost, lacks: tc.lacks, stopped: &stopped})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("driver 570.86.15\ncuda 12.8\n"+tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if !stopped {
				t.Error("the library was not shut down")
			}
		})
	}
}

func TestNoDriver(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
		nvml.ERROR_DRIVER_NOT_LOADED:       "the NVIDIA driver is not loaded",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver and its library are of different versions: drain the node, then reload the driver or reboot",
		nvml.Return(77):                    "NVML error 77",
	} {
		var out, errs bytes.Buffer
		if code := report(fakeLib{t: t, ret: ret}, nil, &out, &errs); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
		if got := out.String(); got != "fabrun/nvml ! "+want+"\n" {
			t.Errorf("stdout = %q, want the reason %q", got, want)
		}
		if got := errs.String(); got != "fabrun-nvml: "+want+"\n" {
			t.Errorf("stderr = %q", got)
		}
	}
	if code := report(fakeLib{t: t}, []string{"--help"}, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
		t.Errorf("with arguments: exit status %d, want 2", code)
	}
}

// noNewSymbols is the extension interface of a driver that has only the first functions.
type noNewSymbols struct{ mock.ExtendedInterface }

// The library's own mock of a DGX A100, through the same adapter as the real one.
func TestMockedDGX(t *testing.T) {
	server := dgxa100.New()
	server.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &noNewSymbols{mock.ExtendedInterface{LookupSymbolFunc: func(s string) error {
			if strings.Contains(s, "MigMode") {
				return nil
			}
			return errNoSymbol
		}}}
	}
	for i, d := range server.Devices {
		dev := d.(*dgxa100.Device)
		bus := []string{"00000000:07:00.0", "00000000:0F:00.0", "00000000:47:00.0", "00000000:4E:00.0", "00000000:87:00.0", "00000000:90:00.0", "00000000:B7:00.0", "00000000:BD:00.0"}[i]
		dev.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			var info nvml.PciInfo
			for k := range len(bus) {
				info.BusId[k] = int8(bus[k])
			}
			return info, ok
		}
	}
	var out bytes.Buffer
	if code := report(library{server}, nil, &out, &bytes.Buffer{}); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	for _, want := range []string{"-- fabrun/nvml --\n", "gpu 0000:0f:00.0 uuid GPU-", "gpu 0000:bd:00.0 name ", "gpu 0000:07:00.0 capability 8.0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

var errNoSymbol = nvmlError("undefined symbol")

type nvmlError string

func (e nvmlError) Error() string { return string(e) }

func TestSysfsAddress(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "00010001:00:00.0": "10001:00:00.0", "0009:01:00.0": "0009:01:00.0", "": "", "x": "", "0:1": "",
	} {
		if got := sysfsAddress(in); got != want {
			t.Errorf("sysfsAddress(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestAnswerUse(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ret   nvml.Return
		gpus  []fakeGPU
		lost  int
		lacks string
		input string
		want  string
	}{
		{"two gpus, asked twice", ok, []fakeGPU{{busy: 90}, {busy: 40}}, -1, "", "\n\n", "use 0.650 2\nuse 0.650 2\n"},
		{"one in MIG mode", ok, []fakeGPU{{busy: 90}, {busy: 255}}, -1, "", "\n", "use 0.900 1\n"},
		{"one lost", ok, []fakeGPU{{busy: 90}, {busy: 10}}, 0, "", "\n", "use 0.100 1\n"},
		{"none tells", ok, []fakeGPU{{busy: 255}}, -1, "", "\n\n", ""},
		{"not asked", ok, []fakeGPU{{busy: 90}}, -1, "", "", ""},
		{"an old library", ok, []fakeGPU{{busy: 90}}, -1, "nvmlDeviceGetUtilizationRates", "\n", ""},
		{"no driver", nvml.ERROR_LIBRARY_NOT_FOUND, nil, -1, "", "\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stopped := false
			var out, errs strings.Builder
			lib := fakeLib{t: t, ret: tc.ret, gpus: tc.gpus, lost: tc.lost, lacks: tc.lacks, stopped: &stopped}
			if code := answerUse(lib, strings.NewReader(tc.input), &out, &errs); code != 0 || out.String() != tc.want {
				t.Errorf("exit %d, printed %q, want %q", code, out.String(), tc.want)
			}
			if stopped != (tc.ret == ok) || (errs.Len() > 0) != (tc.ret != ok) {
				t.Errorf("stopped %v, stderr %q", stopped, errs.String())
			}
		})
	}
}
