package envgen

import (
	"strings"
	"testing"

	"fabrun/profiles"
	"fabrun/topology"
)

// pollara is a host of AMD GPUs with AMD's own NICs, one beside each GPU.
func pollara(name string) topology.Host { return driver(amd(gpuServer(name, 1)), "ionic", "ionic_") }

// library is a library that was found on a host.
func library(h topology.Host, kind, version, file string) topology.Host {
	h.Software = append(h.Software[:len(h.Software):len(h.Software)], topology.Software{Kind: kind, Version: version, Path: file})
	return h
}

// peerMemory says what AMD's kernel side can do.
func peerMemory(h topology.Host, client, dmaBuf *bool) topology.Host {
	h.PeerMemory.AMDPeer, h.PeerMemory.DMABuf = client, dmaBuf
	return h
}

func TestRCCLDMABuf(t *testing.T) {
	nvidia := gpuServer("g1", 1)
	nvidia.PeerMemory = topology.PeerMemory{NvidiaPeermem: ptr(false), DMABuf: ptr(true)}
	for _, tt := range []struct {
		name     string
		host     topology.Host
		set      string
		profile  []profiles.Setting
		want     string
		contract string
		finding  string
	}{
		{"no client in the kernel, DMA-BUF possible", peerMemory(pollara("p1"), ptr(false), ptr(true)), "", nil, "1", "GPUDirect on", ""},
		{"a client in the kernel", peerMemory(pollara("p1"), ptr(true), ptr(true)), "", nil, "0", "GPUDirect on", ""},
		{"an older snapshot, which does not tell", pollara("p1"), "", nil, "0", "GPUDirect on", ""},
		{"other NICs, no client in the kernel", peerMemory(amd(gpuServer("g1", 1)), ptr(false), ptr(true)), "", nil, "1", "GPUDirect on", ""},
		{"other NICs, a client in the kernel", peerMemory(amd(gpuServer("g1", 1)), ptr(true), ptr(true)), "", nil, "", "GPUDirect on", ""},
		{"neither", peerMemory(pollara("p1"), ptr(false), ptr(false)), "", nil, "", "GPUDirect off", "warning"},
		{"no client, and DMA-BUF not known", peerMemory(pollara("p1"), ptr(false), nil), "", nil, "", "priority 3", ""},
		{"no client, and the user turns DMA-BUF off", peerMemory(pollara("p1"), ptr(false), ptr(true)), "NCCL_DMABUF_ENABLE=0", nil, "0", "GPUDirect off", "warning"},
		{"no client, and the profile turns DMA-BUF off", peerMemory(pollara("p1"), ptr(false), ptr(true)), "", []profiles.Setting{{Name: "NCCL_DMABUF_ENABLE", Value: "0"}}, "0", "GPUDirect off", "warning"},
		{"NVIDIA by DMA-BUF", nvidia, "", nil, "", "GPUDirect on", ""},
		{"NVIDIA by DMA-BUF, which the user turns off", nvidia, "NCCL_DMABUF_ENABLE=0", nil, "0", "GPUDirect off", "warning"},
		{"NVIDIA with nvidia_peermem, DMA-BUF turned off", gpuServer("g1", 1), "NCCL_DMABUF_ENABLE=0", nil, "0", "GPUDirect on", ""},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Profile: load(t, "roce-dscp26"), Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.22.3"}}}
		in.Profile.Env = append(in.Profile.Env, tt.profile...)
		if name, value, ok := strings.Cut(tt.set, "="); ok {
			in.Job.Settings = []Setting{{Name: name, Value: value, Origin: FromUser}}
		}
		res := Compute(in)
		if v, _ := valueOf(res, 0, "NCCL_DMABUF_ENABLE"); v != tt.want {
			t.Errorf("%s: NCCL_DMABUF_ENABLE=%q, want %q", tt.name, v, tt.want)
		}
		if !strings.Contains(res.Contract, tt.contract) {
			t.Errorf("%s: contract %q, want %q in it", tt.name, res.Contract, tt.contract)
		}
		if got := findingIDs(res)["gdr.no-peer-memory"]; got != tt.finding {
			t.Errorf("%s: gdr.no-peer-memory is %q, want %q", tt.name, got, tt.finding)
		}
	}
}

func TestPollaraPlugin(t *testing.T) {
	for _, tt := range []struct {
		name string
		host topology.Host
		set  string
		want string // NCCL_NET_PLUGIN, RCCL_AINIC_ROCE
		says string
	}{
		{"the plugin where the loader looks", library(pollara("p1"), "nccl-plugin", "", "opt/rocm/lib/librccl-anp.so"), "", "librccl-anp.so,", ""},
		{"the plugin elsewhere", library(pollara("p1"), "nccl-plugin", "", "opt/amd-anp/build/librccl-anp.so"), "", "/opt/amd-anp/build/librccl-anp.so,", ""},
		{"one that RCCL takes by itself", library(pollara("p1"), "nccl-plugin", "", "opt/rocm/lib/librccl-net.so"), "", ",", ""},
		{"none, and a RCCL that may have it built in", library(pollara("p1"), "rccl", "2.27.7", "opt/rocm/lib/librccl.so.1"), "", ",1", ""},
		{"none, and an old RCCL", library(pollara("p1"), "rccl", "2.22.3", "opt/rocm/lib/librccl.so.1"), "", ",", "warning"},
		{"libraries were not looked for", pollara("p1"), "", ",", ""},
		{"the user names another", library(pollara("p1"), "nccl-plugin", "", "opt/rocm/lib/librccl-anp.so"), "NCCL_NET_PLUGIN=none", "none,", ""},
		{"AMD GPUs with other NICs", library(amd(gpuServer("g1", 1)), "nccl-plugin", "", "opt/rocm/lib/librccl-anp.so"), "", ",", ""},
		{"the NICs beside NVIDIA GPUs", library(driver(gpuServer("g1", 1), "ionic", "ionic_"), "nccl", "2.27.3", "usr/lib/libnccl.so.2"), "", ",", ""},
	} {
		in := Input{Hosts: []topology.Host{tt.host}, Profile: load(t, "amd-pollara"), Job: Job{UsesGPU: ptr(true)}}
		if name, value, ok := strings.Cut(tt.set, "="); ok {
			in.Job.Settings = []Setting{{Name: name, Value: value, Origin: FromUser}}
		}
		res := Compute(in)
		plugin, _ := valueOf(res, 0, "NCCL_NET_PLUGIN")
		roce, _ := valueOf(res, 0, "RCCL_AINIC_ROCE")
		if got := plugin + "," + roce; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		in.Job.Strict = true
		if v, _ := valueOf(Compute(in), 0, "NCCL_NET"); v != "" && strings.HasPrefix(tt.host.HCAs[0].Name, "ionic") && tt.host.GPUs[0].Vendor == "amd" {
			t.Errorf("%s: --strict forces NCCL_NET=%s, which is not the plugin's name", tt.name, v)
		}
		if got := findingIDs(res)["gate.pollara-plugin"]; got != tt.says {
			t.Errorf("%s: gate.pollara-plugin is %q, want %q", tt.name, got, tt.says)
		}
	}
}

// What no driver can change is said as it is, and nothing is asked for.
func TestNoGPUDirect(t *testing.T) {
	named := func(name string, id uint16) topology.Host {
		h := rootPorts("r1")
		h.PeerMemory = topology.PeerMemory{NvidiaPeermem: ptr(false), DMABuf: ptr(true)}
		for i := range h.GPUs {
			h.GPUs[i].Name = name
			for j := range h.PCI {
				if h.PCI[j].Address == h.GPUs[i].PCI {
					h.PCI[j].Device = ptr(id)
				}
			}
		}
		return h
	}
	for _, tt := range []struct {
		name     string
		host     topology.Host
		level    string
		contract string
		finding  string
	}{
		{"GB10 by its PCI ID", named("", 0x2e12), "", "GPUDirect off", "note"},
		{"GB10 by its name", named("NVIDIA GB10", 0), "", "GPUDirect off", "note"},
		{"GeForce", named("NVIDIA GeForce RTX 4090", 0x2684), "", "GPUDirect off", "note"},
		{"a data centre GPU of the same chip family", named("NVIDIA L40S", 0x26b9), "PHB", "GPUDirect on", ""},
		{"a workstation GPU", named("NVIDIA RTX A6000", 0x2230), "PHB", "GPUDirect on", ""},
	} {
		res := Compute(Input{Hosts: []topology.Host{tt.host}, Job: Job{UsesGPU: ptr(true), Versions: &Versions{NCCL: "2.28.3"}}})
		if v, _ := valueOf(res, 0, "NCCL_NET_GDR_LEVEL"); v != tt.level {
			t.Errorf("%s: level %q, want %q", tt.name, v, tt.level)
		}
		if !strings.Contains(res.Contract, tt.contract) {
			t.Errorf("%s: contract %q, want %q in it", tt.name, res.Contract, tt.contract)
		}
		if got := findingIDs(res)["gdr.no-peer-memory"]; got != tt.finding {
			t.Errorf("%s: gdr.no-peer-memory is %q, want %q", tt.name, got, tt.finding)
		}
	}
}
