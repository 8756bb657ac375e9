package live

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/topology"
	"fabrun/topology/discover"
)

func cleanPath(p string) string { return path.Clean(p) }

func fsStat(fsys fs.FS, name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	return fs.Stat(fsys, name)
}

// rdmaNetns: the kernel's ib_core parameter, which "rdma system set netns"
// changes too. Reading it loads no module, as asking over netlink could.
func (m *machine) rdmaNetns() ([]byte, error) {
	switch m.read("sys/module/ib_core/parameters/netns_mode") {
	case "Y", "1":
		return []byte("shared\n"), nil
	case "N", "0":
		return []byte("exclusive\n"), nil
	}
	return nil, nil
}

// devices lists the device nodes an RDMA or GPU job needs. Those that libibverbs
// and librdmacm open are opened, since a container's device list and the RDMA
// namespace say no only then; GPU nodes are not touched: opening one can wake
// the device for seconds.
func (m *machine) devices() ([]byte, error) {
	var b strings.Builder
	for _, n := range m.names("dev/infiniband") {
		if strings.HasPrefix(n, "by-") { // directories of links
			continue
		}
		state := "-"
		if strings.HasPrefix(n, "uverbs") || n == "rdma_cm" {
			state = openable(m.osPath("dev/infiniband/" + n))
		}
		fmt.Fprintf(&b, "dev/infiniband/%s %s\n", n, state)
	}
	for _, n := range m.names("dev") {
		digits := strings.TrimLeft(n, "abcdefghijklmnopqrstuvwxyz_-")
		_, err := strconv.Atoi(digits)
		numbered := err == nil && slices.Contains([]string{"nvidia", "hfi1_", "ipath", "cxi"}, strings.TrimSuffix(n, digits))
		if numbered || slices.Contains([]string{"nvidiactl", "nvidia-uvm", "gdrdrv", "kfd", "knem", "xpmem"}, n) {
			fmt.Fprintf(&b, "dev/%s -\n", n)
		}
	}
	for i, n := range m.names("dev/nvidia-caps-imex-channels") {
		if i == maxIMEX { // a site may make thousands; that there are some is what counts
			break
		}
		fmt.Fprintf(&b, "dev/nvidia-caps-imex-channels/%s -\n", n)
	}
	for _, n := range m.names("dev/dri") {
		if strings.HasPrefix(n, "renderD") {
			fmt.Fprintf(&b, "dev/dri/%s -\n", n)
		}
	}
	return []byte(b.String()), nil
}

// maxIMEX bounds the channels that are listed.
const maxIMEX = 8

func openable(path string) string {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return discover.Reason(err)
	}
	//nolint:errcheck // nothing was written
	_ = f.Close()
	return "rw"
}

func (m *machine) modules() ([]byte, error) {
	there := m.names("sys/module")
	if there == nil {
		return nil, nil
	}
	var b strings.Builder
	for _, name := range topology.WatchedModules() {
		if _, ok := slices.BinarySearch(there, name); !ok {
			continue
		}
		version := oneLine(m.read("sys/module/" + name + "/version"))
		if version == "" {
			version = "-"
		}
		fmt.Fprintf(&b, "%s %s\n", name, version)
	}
	return []byte(b.String()), nil
}

// iommuWords are the words of the kernel's command line about DMA translation.
func iommuWords(cmdline string) string {
	var words []string
	for _, w := range strings.Fields(cmdline) {
		if strings.Contains(w, "iommu") || strings.HasPrefix(w, "pci=") || strings.HasPrefix(w, "pcie_acs_override") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

func (m *machine) iommu() ([]byte, error) {
	var b strings.Builder
	groups := m.names("sys/kernel/iommu_groups")
	if groups == nil && !m.exists("sys/kernel") {
		return nil, nil
	}
	fmt.Fprintf(&b, "groups %d\n", len(groups))
	words := iommuWords(m.read("proc/cmdline"))
	if len(groups) > 0 {
		if pt := m.passthrough(words); pt != "" {
			fmt.Fprintf(&b, "passthrough %s\n", pt)
		}
	}
	if words != "" {
		fmt.Fprintf(&b, "cmdline %s\n", words)
	}
	if m.opts.ACS {
		for _, addr := range m.acsRedirects() {
			fmt.Fprintf(&b, "acs %s\n", addr)
		}
	}
	return []byte(b.String()), nil
}

// passthrough: the type of the groups the HCAs are in ("identity" translates
// nothing); without HCAs, what the command line asks for.
func (m *machine) passthrough(words string) string {
	translated := false
	seen := false
	for _, hca := range m.names("sys/class/infiniband") {
		switch t := m.read("sys/class/infiniband/" + hca + "/device/iommu_group/type"); {
		case t == "identity":
			seen = true
		case t != "":
			seen, translated = true, true
		}
	}
	if seen {
		return yesNo(!translated)
	}
	for _, w := range strings.Fields(words) {
		if w == "iommu=pt" || w == "iommu.passthrough=1" {
			return "yes"
		}
	}
	return ""
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// acsRedirects are the PCI bridges whose ACS control sends peer traffic up to
// the root. Only root may read past the first 64 bytes of configuration space.
func (m *machine) acsRedirects() []string {
	var out []string
	for _, addr := range m.names("sys/bus/pci/devices") {
		dir := "sys/bus/pci/devices/" + addr
		if !strings.HasPrefix(m.read(dir+"/class"), "0x0604") {
			continue
		}
		config, err := readBounded(m.root, dir+"/config", 4096)
		if err == nil && acsRedirect(config) {
			out = append(out, addr)
		}
	}
	return out
}

// acsRedirect walks the extended capabilities for ACS (ID 0x000d): its control
// register has P2P request redirect in bit 2 and completion redirect in bit 3
// (PCI Express Base Specification, Access Control Services).
func acsRedirect(config []byte) bool {
	const first, acsID, controlAt, redirect = 0x100, 0x000d, 6, 1<<2 | 1<<3
	for at, n := first, 0; at >= first && at+8 <= len(config) && n < 64; n++ {
		head := binary.LittleEndian.Uint32(config[at:])
		if head&0xffff == acsID {
			return binary.LittleEndian.Uint16(config[at+controlAt:])&redirect != 0
		}
		at = int(head>>20) &^ 3
	}
	return false
}

// kernelAtLeast compares the running kernel's version.
func kernelAtLeast(release string, major, minor int) (bool, bool) {
	a, rest, ok := strings.Cut(release, ".")
	b, _, _ := strings.Cut(rest, ".")
	b = strings.TrimRight(b, "-abcdefghijklmnopqrstuvwxyz+")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		return false, false
	}
	return x > major || x == major && y >= minor, true
}

// peerMemory: what would let a NIC read GPU memory. The peermem module, or
// DMA-BUF: Linux 5.12 and NVIDIA's open kernel modules (NCCL's user guide,
// GPU Direct RDMA). A kernel with back ports may do more than its number says,
// so an old number is unknown and not no.
func (m *machine) peerMemory() ([]byte, error) {
	var b strings.Builder
	evidence := ""
	for _, p := range []string{"sys/module/nvidia_peermem", "sys/module/nv_peer_mem", "sys/kernel/mm/memory_peers/nv_mem", "sys/kernel/mm/memory_peers/nvidia-peermem"} {
		if m.exists(p) {
			evidence = "/" + p
			break
		}
	}
	nvidia := m.exists("sys/module/nvidia") || m.exists("proc/driver/nvidia/version")
	if evidence != "" {
		fmt.Fprintf(&b, "nvidia-peermem yes %s\n", evidence)
	} else if m.exists("sys/module") {
		b.WriteString("nvidia-peermem no\n")
	}
	open := false
	if v := m.read("proc/driver/nvidia/version"); v != "" {
		open = strings.Contains(v, "Open Kernel Module")
		fmt.Fprintf(&b, "open-module %s\n", yesNo(open))
	} else if lic := m.read("sys/module/nvidia/license"); lic != "" {
		open = strings.Contains(lic, "GPL")
		fmt.Fprintf(&b, "open-module %s\n", yesNo(open))
	}
	if nvidia {
		recent, known := kernelAtLeast(m.read("proc/sys/kernel/osrelease"), 5, 12)
		switch {
		case !open:
			b.WriteString("dma-buf no\n")
		case known && recent:
			b.WriteString("dma-buf yes\n")
		}
	}
	fmt.Fprintf(&b, "gdrcopy %s\nkfd %s\n", yesNo(m.exists("dev/gdrdrv")), yesNo(m.exists("dev/kfd")))
	if m.exists("dev/kfd") {
		m.amdPeerMemory(&b, nvidia)
	}
	return []byte(b.String()), nil
}

// amdPeerMemory asks what RCCL asks: a peer memory client in the kernel
// (src/transport/net_ib.cc), or DMA-BUF, for which the kernel must move buffers
// under notice and do peer-to-peer DMA (src/misc/rocmwrap.cc). Symbols tell both.
func (m *machine) amdPeerMemory(b *strings.Builder, nvidia bool) {
	client, move, p2p := false, false, false
	for _, p := range []string{"sys/kernel/mm/memory_peers/amdkfd", "sys/kernel/memory_peers/amdkfd", "sys/memory_peers/amdkfd"} {
		client = client || m.exists(p)
	}
	f, err := m.root.Open("proc/kallsyms")
	if err != nil {
		if client {
			b.WriteString("amd-peer yes\n")
		}
		return
	}
	defer f.Close()
	const maxSymbols = 64 << 20
	lines := bufio.NewScanner(io.LimitReader(f, maxSymbols))
	some := false
	for lines.Scan() {
		some = true
		client = client || bytes.Contains(lines.Bytes(), []byte("ib_register_peer_memory_client"))
		move = move || bytes.Contains(lines.Bytes(), []byte("dma_buf_move_notify"))
		p2p = p2p || bytes.Contains(lines.Bytes(), []byte("pci_p2pdma"))
	}
	if !some || lines.Err() != nil {
		return
	}
	fmt.Fprintf(b, "amd-peer %s\n", yesNo(client))
	if !nvidia {
		fmt.Fprintf(b, "dma-buf %s\n", yesNo(move && p2p))
	}
}

// maxCounters bounds how many counters one port may show.
const maxCounters = 512

// counters reads the counters of every port, with the time of the first read.
func (m *machine) counters() ([]byte, error) {
	hcas := m.names("sys/class/infiniband")
	if len(hcas) == 0 {
		return nil, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "time %s\n", time.Now().UTC().Format(time.RFC3339Nano))
	for _, hca := range hcas {
		base := "sys/class/infiniband/" + hca
		for _, port := range m.names(base + "/ports") {
			for _, kind := range []string{"counters", "hw_counters"} {
				m.counterDir(&b, hca+":"+port, base+"/ports/"+port+"/"+kind)
			}
		}
		m.counterDir(&b, hca, base+"/hw_counters")
	}
	return []byte(b.String()), nil
}

func (m *machine) counterDir(b *strings.Builder, device, dir string) {
	for i, name := range m.names(dir) {
		if name == "lifespan" || i >= maxCounters { // the refresh interval, not a counter
			continue
		}
		if v, err := strconv.ParseInt(m.read(dir+"/"+name), 10, 64); err == nil {
			fmt.Fprintf(b, "%s %s %d\n", device, name, v)
		}
	}
}
