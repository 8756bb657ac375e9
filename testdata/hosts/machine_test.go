package hosts

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// machine is a file tree in the making.
type machine struct {
	files map[string]string
	links map[string]string
	errs  map[string]string
	dirs  map[string]string // PCI address → directory
	facts map[string]*strings.Builder
	index int // of the last netdev
}

func newMachine(name, kernel, osName, vendor, product string) *machine {
	m := &machine{
		files: map[string]string{}, links: map[string]string{}, errs: map[string]string{},
		dirs: map[string]string{}, facts: map[string]*strings.Builder{},
	}
	m.file("proc/sys/kernel/hostname", name)
	m.file("proc/sys/kernel/osrelease", kernel)
	m.file("etc/os-release", fmt.Sprintf("NAME=%q\nPRETTY_NAME=%q", strings.Fields(osName)[0], osName))
	m.file("sys/class/dmi/id/sys_vendor", vendor)
	m.file("sys/class/dmi/id/product_name", product)
	m.file("proc/sys/net/core/rmem_max", "212992")
	m.file("proc/sys/net/core/wmem_max", "212992")
	m.file("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999")
	m.fact("fabrun/limits", "memlock unlimited unlimited\nnofile 1048576 1048576\nshm 540092719104 540092719104\npids-max max")
	m.fact("fabrun/rdma-netns", "shared")
	m.fact("fabrun/container", "")
	return m
}

func (m *machine) file(name, text string) { m.files[name] = text + "\n" }

// fact appends lines to a section.
func (m *machine) fact(section, lines string) {
	b := m.facts[section]
	if b == nil {
		b = &strings.Builder{}
		m.facts[section] = b
	}
	if lines != "" {
		b.WriteString(lines + "\n")
	}
}

// link makes an absolute target relative, as sysfs has them.
func (m *machine) link(name, target string) {
	up := strings.Repeat("../", strings.Count(name, "/"))
	m.links[name] = up + target
}

// cpu is what all processors of a machine share.
type cpu struct {
	vendor, model   string
	family, modelID int
	sockets, cores  int // cores per socket
	threads         int
	nodes           int // NUMA nodes of the whole machine; 0: a kernel without NUMA
	memGiB          int // per node
	arm             bool
	flags           string
}

func list(from, n int) string {
	if n == 1 {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d-%d", from, from+n-1)
}

func (m *machine) cpus(c cpu) {
	info := fmt.Sprintf("processor\t: 0\nvendor_id\t: %s\ncpu family\t: %d\nmodel\t\t: %d\nmodel name\t: %s\nflags\t\t: fpu sse2 avx2%s\n",
		c.vendor, c.family, c.modelID, c.model, c.flags)
	arch := "x86_64"
	if c.arm {
		info = "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
		arch = "aarch64"
	}
	m.files["proc/cpuinfo"] = info
	m.file("proc/sys/kernel/arch", arch)
	all := c.sockets * c.cores
	total := all * c.threads
	m.file("sys/devices/system/cpu/online", list(0, total))
	m.fact("fabrun/affinity", list(0, total))
	for core := range all {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", core)
		siblings := fmt.Sprint(core)
		for t := 1; t < c.threads; t++ {
			siblings += fmt.Sprintf(",%d", core+t*all)
		}
		m.file(dir+"thread_siblings_list", siblings)
		m.file(dir+"core_id", fmt.Sprint(core%c.cores))
		m.file(dir+"physical_package_id", fmt.Sprint(core/c.cores))
	}
	m.file("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB", int64(c.memGiB)*int64(max(c.nodes, 1))<<20))
	for n := range c.nodes {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", n)
		per := all / c.nodes
		cpus := list(n*per, per)
		for t := 1; t < c.threads; t++ {
			cpus += "," + list(n*per+t*all, per)
		}
		m.file(dir+"cpulist", cpus)
		m.file(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB", n, int64(c.memGiB)<<20))
		var ds []string
		for o := range c.nodes {
			switch {
			case o == n:
				ds = append(ds, "10")
			case o*c.sockets/c.nodes == n*c.sockets/c.nodes:
				ds = append(ds, "12")
			default:
				ds = append(ds, "21")
			}
		}
		m.file(dir+"distance", strings.Join(ds, " "))
	}
}

// fn is one PCI function.
type fn struct {
	addr   string
	class  int
	id     string // "15b3:1021"
	sub    string // "15b3:0041"
	numa   int
	driver string
	speed  string // "32.0", now; max is the same unless given
	width  int
	max    string
	maxW   int
}

// pci adds a function below the directory of parent: an address that is there
// already, or a root such as "pci0000:3a".
func (m *machine) pci(parent string, f fn) string {
	up, ok := m.dirs[parent]
	if !ok {
		up = "sys/devices/" + parent
	}
	dir := up + "/" + f.addr
	m.dirs[f.addr] = dir
	m.link("sys/bus/pci/devices/"+f.addr, strings.TrimPrefix(dir, "sys/"))
	m.links["sys/bus/pci/devices/"+f.addr] = "../../../" + strings.TrimPrefix(dir, "sys/")
	ev := ""
	if f.driver != "" {
		ev = "DRIVER=" + f.driver + "\n"
	}
	ev += fmt.Sprintf("PCI_CLASS=%X\nPCI_ID=%s\n", f.class, strings.ToUpper(f.id))
	if f.sub != "" {
		ev += fmt.Sprintf("PCI_SUBSYS_ID=%s\n", strings.ToUpper(f.sub))
	}
	m.files[dir+"/uevent"] = ev + "PCI_SLOT_NAME=" + f.addr + "\n"
	m.file(dir+"/numa_node", fmt.Sprint(f.numa))
	if f.speed != "" {
		top, topW := f.max, f.maxW
		if top == "" {
			top = f.speed
		}
		if topW == 0 {
			topW = f.width
		}
		m.file(dir+"/current_link_speed", f.speed+" GT/s PCIe")
		m.file(dir+"/current_link_width", fmt.Sprint(f.width))
		m.file(dir+"/max_link_speed", top+" GT/s PCIe")
		m.file(dir+"/max_link_width", fmt.Sprint(topW))
	}
	return dir
}

const (
	classNVMe   = 0x010802
	classEth    = 0x020000
	classIB     = 0x020700
	classVGA    = 0x030000
	class3D     = 0x030200
	classDisp   = 0x038000
	classBridge = 0x060400
	classNVSw   = 0x068000
	classAccel  = 0x120000
	classDMA    = 0x080100
)

// rootPort adds a root port and returns its address.
func (m *machine) rootPort(root string, devfn string, numa int, speed string) string {
	addr := strings.TrimPrefix(root, "pci") + ":" + devfn
	m.pci(root, fn{addr: addr, class: classBridge, id: "8086:352a", numa: numa, driver: "pcieport", speed: speed, width: 16})
	return addr
}

// pcieSwitch adds a switch below a port: its upstream port on bus, and n
// downstream ports on bus+1. It returns the downstream ports.
func (m *machine) pcieSwitch(below, domain string, bus int, numa int, speed string, n int) []string {
	upstream := fmt.Sprintf("%s:%02x:00.0", domain, bus)
	m.pci(below, fn{addr: upstream, class: classBridge, id: "11f8:4000", sub: "11f8:beef", numa: numa, driver: "pcieport", speed: speed, width: 16})
	var down []string
	for i := range n {
		addr := fmt.Sprintf("%s:%02x:%02x.0", domain, bus+1, i)
		m.pci(upstream, fn{addr: addr, class: classBridge, id: "11f8:4000", sub: "11f8:beef", numa: numa, driver: "pcieport", speed: speed, width: 16})
		down = append(down, addr)
	}
	return down
}

// nic is one netdev.
type nic struct {
	name      string
	pci       string // "" virtual
	mtu       int
	mbps      int // 0: no link
	addrs     []string
	mac       string
	devPort   int
	typ       int // ARPHRD; 0 means Ethernet
	kind      string
	noCarrier bool
	phys      string // phys_port_name
}

func (m *machine) netdev(n nic) string {
	dir := "sys/devices/virtual/net/" + n.name
	if n.pci != "" {
		dir = m.dirs[n.pci] + "/net/" + n.name
	}
	m.links["sys/class/net/"+n.name] = "../../" + strings.TrimPrefix(dir, "sys/")
	m.index++
	m.file(dir+"/ifindex", fmt.Sprint(m.index))
	state, carrier := "up", "1"
	if n.noCarrier {
		state, carrier = "down", "0"
	}
	m.file(dir+"/operstate", state)
	m.file(dir+"/carrier", carrier)
	m.file(dir+"/mtu", fmt.Sprint(n.mtu))
	if n.mbps > 0 {
		m.file(dir+"/speed", fmt.Sprint(n.mbps))
	} else {
		m.errs[dir+"/speed"] = "EINVAL"
	}
	if n.mac == "" {
		n.mac = fmt.Sprintf("b8:3f:d2:00:%02x:%02x", m.index>>8, m.index&0xff)
	}
	m.file(dir+"/address", n.mac)
	if n.typ == 0 {
		n.typ = 1
	}
	m.file(dir+"/type", fmt.Sprint(n.typ))
	m.file(dir+"/dev_port", fmt.Sprint(n.devPort))
	ev := ""
	if n.kind != "" {
		ev = "DEVTYPE=" + n.kind + "\n"
	}
	m.files[dir+"/uevent"] = ev + fmt.Sprintf("INTERFACE=%s\nIFINDEX=%d\n", n.name, m.index)
	if n.phys != "" {
		m.file(dir+"/phys_port_name", n.phys)
	} else {
		m.errs[dir+"/phys_port_name"] = "EOPNOTSUPP"
	}
	m.errs[dir+"/phys_switch_id"] = "EOPNOTSUPP"
	m.errs[dir+"/phys_port_id"] = "EOPNOTSUPP"
	for _, a := range n.addrs {
		m.fact("fabrun/addrs", n.name+" "+a)
		if p := netip.MustParsePrefix(a); p.Addr().Is4() {
			m.fact("fabrun/routes", fmt.Sprintf("%s dev %s table 254 metric 0 src %s", p.Masked(), n.name, p.Addr()))
		}
	}
	return dir
}

func (m *machine) loopback() {
	m.netdev(nic{name: "lo", mtu: 65536, mac: "00:00:00:00:00:00", typ: 772})
	dir := "sys/devices/virtual/net/lo"
	m.file(dir+"/operstate", "unknown")
	m.fact("fabrun/addrs", "lo 127.0.0.1/8")
}

// hca is one RDMA device.
type hca struct {
	name   string
	pci    string // "" virtual
	fw     string
	typ    string // "MT4129"; "" none
	board  string
	node   string // "1: CA"
	desc   string
	parent string // rxe
	ports  []port
}

type port struct {
	state, phys, rate, layer string
	lid, smlid               string
	gids                     []gid
	zero                     int
}

type gid struct {
	addr   string
	v2     bool
	netdev string // "" unreadable on Ethernet
}

const (
	active, down, initState    = "4: ACTIVE", "1: DOWN", "2: INIT"
	linkUp, polling, disabledP = "5: LinkUp", "2: Polling", "3: Disabled"
)

func fullGID(addr string) string {
	a := netip.MustParseAddr(addr)
	b := a.As16()
	var s strings.Builder
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			s.WriteByte(':')
		}
		fmt.Fprintf(&s, "%02x%02x", b[i], b[i+1])
	}
	return s.String()
}

func (m *machine) hca(h hca) string {
	dir := "sys/devices/virtual/infiniband/" + h.name
	if h.pci != "" {
		dir = m.dirs[h.pci] + "/infiniband/" + h.name
	}
	m.links["sys/class/infiniband/"+h.name] = "../../" + strings.TrimPrefix(dir, "sys/")
	if h.node == "" {
		h.node = "1: CA"
	}
	m.file(dir+"/node_type", h.node)
	guid := fmt.Sprintf("b83f:d203:00%02x:%04x", len(h.name), hash(h.name))
	m.file(dir+"/node_guid", guid)
	m.file(dir+"/sys_image_guid", guid)
	m.file(dir+"/node_desc", h.desc)
	if h.fw != "" {
		m.file(dir+"/fw_ver", h.fw)
	}
	if h.typ != "" {
		m.file(dir+"/hca_type", h.typ)
		m.file(dir+"/board_id", h.board)
	}
	if h.parent != "" {
		m.file(dir+"/parent", h.parent)
	}
	for i, p := range h.ports {
		d := fmt.Sprintf("%s/ports/%d", dir, i+1)
		m.file(d+"/state", p.state)
		m.file(d+"/phys_state", p.phys)
		m.file(d+"/rate", p.rate)
		m.file(d+"/link_layer", p.layer)
		if p.lid == "" {
			p.lid, p.smlid = "0x0", "0x0"
		}
		m.file(d+"/lid", p.lid)
		m.file(d+"/sm_lid", p.smlid)
		m.file(d+"/sm_sl", "0")
		m.file(d+"/cap_mask", "0x04010000")
		if p.layer == "InfiniBand" {
			m.file(d+"/pkeys/0", "0xffff")
		}
		for j, g := range p.gids {
			m.file(fmt.Sprintf("%s/gids/%d", d, j), fullGID(g.addr))
			typ := "IB/RoCE v1"
			if g.v2 {
				typ = "RoCE v2"
			}
			m.file(fmt.Sprintf("%s/gid_attrs/types/%d", d, j), typ)
			if g.netdev != "" {
				m.file(fmt.Sprintf("%s/gid_attrs/ndevs/%d", d, j), g.netdev)
			} else {
				m.errs[fmt.Sprintf("%s/gid_attrs/ndevs/%d", d, j)] = "EINVAL"
			}
		}
		if p.zero > 0 {
			m.fact("fabrun/gid-zero", fmt.Sprintf("%s %d %d", h.name, i+1, p.zero))
		}
	}
	return dir
}

func hash(s string) uint16 {
	h := uint32(2166136261)
	for _, c := range []byte(s) {
		h = (h ^ uint32(c)) * 16777619
	}
	return uint16(h ^ h>>16)
}

// roceGIDs are what the kernel makes for a netdev with a link-local and an IPv4 address.
func roceGIDs(netdev, linkLocal, ipv4 string) []gid {
	gids := []gid{{linkLocal, false, netdev}, {linkLocal, true, netdev}}
	if ipv4 != "" {
		gids = append(gids, gid{"::ffff:" + ipv4, false, netdev}, gid{"::ffff:" + ipv4, true, netdev})
	}
	return gids
}

// text renders the machine in the snapshot's grammar, unsorted: reading sorts.
func (m *machine) text() string {
	var b strings.Builder
	b.WriteString("fabrun-snapshot 1\n")
	for name, section := range m.facts {
		m.files[name] = section.String()
	}
	for name, text := range m.files {
		fmt.Fprintf(&b, "-- %s --\n%s", name, text)
	}
	for name, target := range m.links {
		fmt.Fprintf(&b, "%s -> %s\n", name, target)
	}
	for name, why := range m.errs {
		if _, both := m.files[name]; !both {
			fmt.Fprintf(&b, "%s ! %s\n", path.Clean(name), why)
		}
	}
	return b.String()
}
