package discover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fabrun/topology"
)

// reader reads one tree into one Host.
type reader struct {
	fsys fs.FS
	h    *topology.Host
	pci  map[string]int    // address → index in h.PCI
	dirs map[string]string // address → its directory without links
}

// maxHCAs is more devices than a machine has, every virtual function counted:
// what compares them with each other costs the square of their number.
const maxHCAs = 4096

// Read turns the tree into a Host. It never fails because something is
// missing: what is not there stays unknown, and what is there and cannot be
// read is in Host.Unreadable. The error is for a tree that is no machine's.
//
// It reads named paths only and walks no subtree, so that it takes few
// milliseconds on a live machine.
func Read(fsys fs.FS) (topology.Host, error) {
	h := topology.Host{}
	r := &reader{fsys: fsys, h: &h, pci: map[string]int{}, dirs: map[string]string{}}
	if !r.isDir("sys") && !r.isDir("proc") {
		return h, errors.New("no sys and no proc directory: not the root of a machine")
	}
	if n := len(r.names("sys/class/infiniband")); n > maxHCAs {
		return h, fmt.Errorf("%d RDMA devices in sys/class/infiniband, more than %d: not a machine", n, maxHCAs)
	}
	r.identity()
	r.cpus()
	r.numaNodes()
	r.memoryChannels()
	r.pciDevices()
	r.gpus()
	r.netdevs()
	r.hcas()
	r.cxi()
	r.machineLimits()
	r.modules()
	r.zeroGIDs()
	r.completePorts()
	readFacts(fsys, &h)
	finish(&h)
	return h, nil
}

// textReader is a file system whose files are text in memory.
type textReader interface {
	readText(name string) (string, error)
}

func readText(fsys fs.FS, name string) (string, error) {
	if tr, ok := fsys.(textReader); ok {
		return tr.readText(name)
	}
	b, err := fs.ReadFile(fsys, name)
	return string(b), err
}

// text reads a small file and trims it. ok is false when it is not there or
// cannot be read; the latter is noted.
func (r *reader) text(name string) (string, bool) {
	text, err := readText(r.fsys, name)
	if err != nil {
		noteUnreadable(r.h, name, err)
		return "", false
	}
	return strings.TrimRight(text, "\x00 \t\r\n"), true
}

// quiet is text for files where an error of the driver is an ordinary answer
// (speed of a netdev that is down); expected lists those.
func (r *reader) quiet(name string, expected ...syscall.Errno) (string, bool) {
	text, err := readText(r.fsys, name)
	if err != nil {
		for _, e := range expected {
			if errors.Is(err, e) {
				return "", false
			}
		}
		noteUnreadable(r.h, name, err)
		return "", false
	}
	return strings.TrimRight(text, "\x00 \t\r\n"), true
}

// value reads a file through a parser; what cannot be parsed is noted.
func value[T any](r *reader, name string, parse func(string) (T, error)) (v T, ok bool) {
	text, ok := r.text(name)
	if !ok {
		return v, false
	}
	v, err := parse(text)
	if err != nil {
		r.bad(name, err)
		return v, false
	}
	return v, true
}

func (r *reader) bad(name string, err error) {
	r.h.Unreadable = append(r.h.Unreadable, topology.Unreadable{Path: name, Reason: err.Error()})
}

// number is value for an int that is nil when unknown.
func (r *reader) number(name string) *int {
	if v, ok := value(r, name, parseInt); ok {
		return &v
	}
	return nil
}

func (r *reader) number64(name string) *int64 {
	v, ok := value(r, name, func(s string) (int64, error) {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("want a number, got %.40q", s)
		}
		return v, nil
	})
	if !ok {
		return nil
	}
	return &v
}

// lastNumber is the last of a line of numbers: the largest of tcp_rmem's three.
func (r *reader) lastNumber(name string) *int64 {
	v, ok := value(r, name, func(s string) (int64, error) {
		w := strings.Fields(s)
		if len(w) == 0 {
			return 0, errors.New("want numbers, got nothing")
		}
		return strconv.ParseInt(w[len(w)-1], 10, 64)
	})
	if !ok {
		return nil
	}
	return &v
}

func (r *reader) isDir(name string) bool {
	info, err := fs.Stat(r.fsys, name)
	return err == nil && info.IsDir()
}

// names lists a directory; nil when it is not there.
func (r *reader) names(name string) []string {
	list, err := fs.ReadDir(r.fsys, name)
	if err != nil {
		noteUnreadable(r.h, name, err)
		return nil
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name()
	}
	return names
}

// link returns where the link at name leads as a path from the root, or "".
func (r *reader) link(name string) string {
	target, err := fs.ReadLink(r.fsys, name)
	if err != nil {
		return ""
	}
	return follow(name, target)
}

// linkBase is the last element of a link's target ("driver" → "mlx5_core").
func (r *reader) linkBase(name string) string {
	if at := r.link(name); at != "" {
		return path.Base(at)
	}
	return ""
}

// headReader is a file system that wants to know that only the beginning of a
// file is read.
type headReader interface {
	readHead(name string, n int) ([]byte, error)
}

// readHead reads whole lines of the first n bytes: proc/cpuinfo of a large
// machine takes the kernel long, and its first block says all.
func readHead(fsys fs.FS, name string, n int) ([]byte, error) {
	if hr, ok := fsys.(headReader); ok {
		return hr.readHead(name, n)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, n)
	got, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	buf = buf[:got]
	if got == n {
		buf = buf[:strings.LastIndexByte(string(buf), '\n')+1]
	}
	return buf, nil
}

func (r *reader) identity() {
	h := r.h
	h.Name, _ = r.text("proc/sys/kernel/hostname")
	h.Kernel, _ = r.text("proc/sys/kernel/osrelease")
	if s, ok := r.text("etc/os-release"); ok {
		h.OS = parseOSRelease(s)
	}
	for _, f := range []struct {
		file string
		to   *string
	}{
		{"sys_vendor", &h.Product.Vendor},
		{"product_name", &h.Product.Name},
		{"product_version", &h.Product.Version},
		{"chassis_asset_tag", &h.Product.Chassis},
		{"bios_vendor", &h.Product.BIOS},
	} {
		*f.to, _ = r.text("sys/class/dmi/id/" + f.file)
	}
}

// cpuinfoHead covers the first processor's block with its flags, several times.
const cpuinfoHead = 16 << 10

func (r *reader) cpus() {
	c := &r.h.CPU
	if b, err := readHead(r.fsys, "proc/cpuinfo", cpuinfoHead); err != nil {
		noteUnreadable(r.h, "proc/cpuinfo", err)
	} else {
		parseCPUInfo(string(b), c)
	}
	if arch, ok := r.text("proc/sys/kernel/arch"); ok {
		c.Arch = goodArch(arch)
	}
	const base = "sys/devices/system/cpu/"
	online, ok := value(r, base+"online", topology.ParseCPUs)
	if !ok {
		for _, name := range r.names(strings.TrimSuffix(base, "/")) {
			n, err := strconv.Atoi(strings.TrimPrefix(name, "cpu"))
			if err == nil && strings.HasPrefix(name, "cpu") && n >= 0 && n < topology.MaxCPU {
				if up, ok := r.text(base + name + "/online"); !ok || up != "0" {
					online = append(online, n)
				}
			}
		}
		slices.Sort(online)
	}
	c.Online = online
	seen := map[int]bool{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		dir := base + "cpu" + strconv.Itoa(cpu) + "/topology/"
		siblings, ok := value(r, dir+"thread_siblings_list", topology.ParseCPUs)
		if !ok {
			if siblings, ok = value(r, dir+"thread_siblings", parseMask); !ok {
				continue
			}
		}
		if !slices.Contains(siblings, cpu) {
			siblings = []int{cpu}
		}
		siblings = slices.DeleteFunc(siblings, func(s int) bool {
			_, on := slices.BinarySearch(online, s)
			return !on
		})
		for _, s := range siblings {
			seen[s] = true
		}
		core := topology.Core{CPUs: siblings}
		r.text(dir + "core_id") // for people
		core.Package, _ = value(r, dir+"physical_package_id", parseInt)
		c.Cores = append(c.Cores, core)
	}
}

// parseMask reads a CPU mask of comma-separated 32-bit words: "ff,00000000".
func parseMask(s string) ([]int, error) {
	cpus := []int{}
	words := strings.Split(strings.TrimSpace(s), ",")
	if len(words) > topology.MaxCPU/32 {
		return nil, fmt.Errorf("CPU mask of %d words", len(words))
	}
	for i, word := range words {
		v, err := parseHex(word, 64)
		if err != nil {
			return nil, fmt.Errorf("want a CPU mask like ff,ffffffff, got %.60q", s)
		}
		for bit := range 64 {
			if v>>bit&1 == 1 {
				cpus = append(cpus, (len(words)-1-i)*32+bit)
			}
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

func goodArch(s string) string {
	switch s {
	case "aarch64":
		return "arm64"
	case "ppc64le":
		return "ppc64"
	case "amd64":
		return "x86_64"
	}
	return s
}

// armImplementers are the CPU implementer codes of servers (ARM MIDR_EL1).
var armImplementers = map[string]string{
	"0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x61": "Apple", "0xc0": "Ampere",
}

// parseCPUInfo reads the first processor of proc/cpuinfo, and the trailer that
// POWER has.
func parseCPUInfo(s string, c *topology.CPU) {
	for line := range strings.Lines(s) {
		key, val, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, val = strings.TrimSpace(key), strings.TrimSpace(val)
		set := func(to *string, v string) {
			if *to == "" {
				*to = v
			}
		}
		number := func(to **int) {
			if v, err := strconv.Atoi(val); err == nil && *to == nil {
				*to = &v
			}
		}
		switch key {
		case "vendor_id":
			set(&c.Vendor, val)
			set(&c.Arch, "x86_64")
		case "model name":
			set(&c.Model, val)
		case "cpu family":
			number(&c.Family)
		case "model":
			number(&c.ModelID)
		case "CPU implementer":
			set(&c.Arch, "arm64")
			if name, ok := armImplementers[val]; ok {
				set(&c.Vendor, name)
			}
		case "cpu":
			if strings.HasPrefix(val, "POWER") {
				set(&c.Arch, "ppc64")
				set(&c.Vendor, "IBM")
				set(&c.Model, val)
			}
		case "flags":
			if !c.Hypervisor && slices.Contains(strings.Fields(val), "hypervisor") {
				c.Hypervisor = true
			}
		}
	}
}

func (r *reader) numaNodes() {
	const base = "sys/devices/system/node"
	for _, name := range r.names(base) {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") || id < 0 {
			continue
		}
		dir := base + "/" + name
		n := topology.NUMANode{ID: id}
		var ok bool
		if n.CPUs, ok = value(r, dir+"/cpulist", topology.ParseCPUs); !ok {
			n.CPUs, _ = value(r, dir+"/cpumap", parseMask)
		}
		n.Distances, _ = value(r, dir+"/distance", parseDistances)
		n.MemoryBytes, _ = value(r, dir+"/meminfo", parseMemTotal)
		r.h.NUMA = append(r.h.NUMA, n)
	}
	slices.SortFunc(r.h.NUMA, func(a, b topology.NUMANode) int { return a.ID - b.ID })

	nodeOf := map[int]int{}
	for _, n := range r.h.NUMA {
		for _, cpu := range n.CPUs {
			nodeOf[cpu] = n.ID
		}
	}
	packages := map[int]map[int]bool{}
	for i := range r.h.CPU.Cores {
		core := &r.h.CPU.Cores[i]
		if node, ok := nodeOf[core.CPUs[0]]; ok {
			if packages[node] == nil {
				packages[node] = map[int]bool{}
			}
			packages[node][core.Package] = true
		}
	}
	for i := range r.h.NUMA {
		if p := packages[r.h.NUMA[i].ID]; len(p) == 1 {
			for id := range p {
				r.h.NUMA[i].Package = &id
			}
		}
	}
}

func (r *reader) machineLimits() {
	l := &r.h.Limits
	l.RmemMax = r.number64("proc/sys/net/core/rmem_max")
	l.WmemMax = r.number64("proc/sys/net/core/wmem_max")
	l.HugePages = r.number64("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	l.HugeTotal = r.number64("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
	l.TCPRmem = r.lastNumber("proc/sys/net/ipv4/tcp_rmem")
	l.TCPWmem = r.lastNumber("proc/sys/net/ipv4/tcp_wmem")
	l.IPForward = r.number("proc/sys/net/ipv4/ip_forward")
	l.NUMABalance = r.number("proc/sys/kernel/numa_balancing")
	l.ARPIgnore = r.number("proc/sys/net/ipv4/conf/all/arp_ignore")
	l.ARPAnnounce = r.number("proc/sys/net/ipv4/conf/all/arp_announce")
	if b, err := readHead(r.fsys, "proc/meminfo", 128); err == nil {
		if v, err := parseMemTotal(string(b)); err == nil {
			l.MemTotal = v
		} else {
			r.bad("proc/meminfo", err)
		}
	} else {
		noteUnreadable(r.h, "proc/meminfo", err)
	}
	if s, ok := r.text("proc/sys/net/ipv4/ip_local_port_range"); ok {
		if f := strings.Fields(s); len(f) == 2 {
			lo, err1 := strconv.Atoi(f[0])
			hi, err2 := strconv.Atoi(f[1])
			if err1 == nil && err2 == nil && lo > 0 && lo <= hi && hi < 1<<16 {
				l.EphemeralLo, l.EphemeralHi = &lo, &hi
			}
		}
	}
}

// modules looks at sys/module; the section of package live replaces it.
func (r *reader) modules() {
	if info, err := fs.Stat(r.fsys, SectionModules); err == nil && !info.IsDir() {
		return
	}
	if !r.isDir("sys/module") {
		return
	}
	r.h.Modules = []topology.Module{}
	for _, name := range topology.WatchedModules() {
		if r.isDir("sys/module/" + name) {
			version, _ := r.text("sys/module/" + name + "/version")
			r.h.Modules = append(r.h.Modules, topology.Module{Name: name, Version: version})
		}
	}
}
