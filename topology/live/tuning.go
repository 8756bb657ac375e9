package live

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/topology"
)

// cpufreq counts the governors of all CPUs' frequency policies.
func (m *machine) cpufreq() ([]byte, error) {
	count := map[string]int{}
	driver := ""
	for _, p := range m.names("sys/devices/system/cpu/cpufreq") {
		if !strings.HasPrefix(p, "policy") {
			continue
		}
		dir := "sys/devices/system/cpu/cpufreq/" + p
		if driver == "" {
			driver = m.read(dir + "/scaling_driver")
		}
		if g := oneLine(m.read(dir + "/scaling_governor")); g != "" {
			count[g]++
		}
	}
	if len(count) == 0 {
		return nil, nil
	}
	var b strings.Builder
	if driver != "" {
		fmt.Fprintf(&b, "driver %s\n", oneLine(driver))
	}
	for _, g := range sortedKeys(count) {
		fmt.Fprintf(&b, "governor %s %d\n", g, count[g])
	}
	return []byte(b.String()), nil
}

func sortedKeys(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// hcaFunctions are the PCI addresses of the RDMA devices, each once.
func (m *machine) hcaFunctions() []string {
	var out []string
	for _, hca := range m.names("sys/class/infiniband") {
		target, err := fs.ReadLink(m.root, "sys/class/infiniband/"+hca+"/device")
		if err != nil {
			// The class directory itself is a link; what is below it is not.
			target, err = fs.ReadLink(m.root, m.resolve("sys/class/infiniband/"+hca)+"/device")
		}
		if addr := path.Base(target); err == nil && m.exists("sys/bus/pci/devices/"+addr) && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	slices.Sort(out)
	return out
}

// irqs says for each RDMA device's function how many interrupts it has and
// which CPUs serve them: what the kernel chose, not only what it may.
func (m *machine) irqs() ([]byte, error) {
	var b strings.Builder
	for _, addr := range m.hcaFunctions() {
		cpus := map[int]bool{}
		n := 0
		for _, irq := range m.names("sys/bus/pci/devices/" + addr + "/msi_irqs") {
			list := m.read("proc/irq/" + irq + "/effective_affinity_list")
			if list == "" {
				list = m.read("proc/irq/" + irq + "/smp_affinity_list")
			}
			if list == "" {
				continue
			}
			n++
			if list, err := topology.ParseCPUs(list); err == nil {
				for _, c := range list {
					cpus[c] = true
				}
			}
		}
		if n > 0 {
			fmt.Fprintf(&b, "%s %d %s\n", addr, n, topology.FormatCPUs(slices.Sorted(maps.Keys(cpus))))
		}
	}
	return []byte(b.String()), nil
}

// pcie reads the device control register of each RDMA device's function. Only
// root sees configuration space past its first 64 bytes.
func (m *machine) pcie() ([]byte, error) {
	var b strings.Builder
	for _, addr := range m.hcaFunctions() {
		config, err := readBounded(m.root, "sys/bus/pci/devices/"+addr+"/config", 256)
		if err != nil {
			continue
		}
		if control, ok := deviceControl(config); ok {
			// PCI Express Base Specification 7.5.3.4: bit 4 enables relaxed
			// ordering, bits 7:5 and 14:12 are sizes as 128 << n.
			fmt.Fprintf(&b, "%s relaxed-ordering %s max-payload %d max-read-request %d\n", addr, onOff(control&(1<<4) != 0), 128<<(control>>5&7), 128<<(control>>12&7))
		}
	}
	return []byte(b.String()), nil
}

// deviceControl walks the capability list for PCI Express (ID 0x10).
func deviceControl(config []byte) (uint16, bool) {
	const capList, express = 0x34, 0x10
	if len(config) <= 64 {
		return 0, false
	}
	for at, n := int(config[capList])&^3, 0; at >= 64 && at+10 <= len(config) && n < 48; n++ {
		if config[at] == express {
			return binary.LittleEndian.Uint16(config[at+8:]), true
		}
		at = int(config[at+1]) &^ 3
	}
	return 0, false
}

// Bounds of the kernel log.
const (
	maxKernelRecords = 20000
	maxKernelLines   = 200
	maxKernelLine    = 300
)

// kernelWords are the drivers whose lines are kept: no other line of the log,
// which may hold anything, enters a snapshot.
var kernelWords = []string{"mlx5_core", "mlx5_ib", "mlx4_", "bnxt_en", "bnxt_re", "irdma", "ionic", "nvidia_peermem", "nvidia-peermem", "nv_peer_mem", "NVRM: Xid", "NVRM: GPU at"}

// kernelLog keeps the last lines of the drivers that matter. Where the kernel
// keeps its log to root (dmesg_restrict) the section says so.
func (m *machine) kernelLog() ([]byte, error) {
	fd, err := syscall.Open(m.osPath("dev/kmsg"), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	//nolint:errcheck // read only
	defer syscall.Close(fd)
	var lines []string
	buf := make([]byte, 8192)
	for range maxKernelRecords {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EPIPE || err == syscall.EINTR { // overwritten meanwhile
			continue
		}
		if err != nil || n <= 0 {
			if err == syscall.EPERM && len(lines) == 0 {
				return nil, err
			}
			break // EAGAIN: all read
		}
		if l := kernelLine(buf[:n]); l != "" {
			lines = append(lines, l)
			if len(lines) > 2*maxKernelLines {
				lines = slices.Clone(lines[len(lines)-maxKernelLines:])
			}
		}
	}
	lines = lines[max(0, len(lines)-maxKernelLines):]
	var b bytes.Buffer
	var up syscall.Sysinfo_t
	if syscall.Sysinfo(&up) == nil {
		fmt.Fprintf(&b, "uptime %d\n", int64(up.Uptime))
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	return b.Bytes(), nil
}

// kernelLine turns a record of /dev/kmsg ("6,339,5140900,-;text\n KEY=value",
// Documentation/ABI/testing/dev-kmsg) into "at SECONDS text"; "" for one that
// is not kept.
func kernelLine(record []byte) string {
	head, text, ok := bytes.Cut(record, []byte(";"))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	if !ok || !slices.ContainsFunc(kernelWords, func(w string) bool { return bytes.Contains(text, []byte(w)) }) {
		return ""
	}
	fields := strings.Split(string(head), ",")
	if len(fields) < 3 {
		return ""
	}
	usec, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("at %d %s", usec/int64(time.Second/time.Microsecond), oneLine(string(text[:min(len(text), maxKernelLine)])))
}
