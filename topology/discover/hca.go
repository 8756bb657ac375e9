package discover

import (
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"fabrun/topology"
)

func (r *reader) hcas() {
	const class = "sys/class/infiniband"
	for _, name := range r.names(class) {
		dir := class + "/" + name
		if at := r.link(dir); at != "" {
			dir = at
		}
		r.h.HCAs = append(r.h.HCAs, r.hca(name, dir))
	}
	r.charDevices()
	slices.SortFunc(r.h.HCAs, func(a, b topology.HCA) int { return topology.CompareNatural(a.Name, b.Name) })
}

func (r *reader) hca(name, dir string) topology.HCA {
	c := topology.HCA{Name: name, Class: "infiniband"}
	c.PCI = lastBDF(dir)
	if c.PCI == "" {
		c.PCI = lastBDF(r.link(dir + "/device"))
	}
	if c.PCI == "" {
		c.PCI = r.functionOf(name)
	}
	if s, ok := r.text(dir + "/node_type"); ok {
		c.NodeType = parseState(s)
	}
	c.NodeGUID, _ = r.text(dir + "/node_guid")
	c.SysImageGUID, _ = r.text(dir + "/sys_image_guid")
	c.NodeDesc, _ = r.text(dir + "/node_desc")
	c.Firmware, _ = r.text(dir + "/fw_ver")
	c.BoardID, _ = r.text(dir + "/board_id")
	c.HCAType, _ = r.text(dir + "/hca_type")
	if c.PCI == "" {
		// Old kernels cut this at 15 bytes, newline included; finish matches the prefix.
		c.Parent, _ = r.text(dir + "/parent")
	}
	dev := r.device(c.PCI)
	if dev != nil {
		c.NUMA = dev.NUMA
	}
	c.Driver = topology.DriverOf(&c, dev, strings.Contains(dir, "/virtual/"))
	c.VF = dev != nil && (dev.PhysFn != "" || onlyVirtual(dev))
	var ports []int
	for _, p := range r.names(dir + "/ports") {
		if n, err := strconv.Atoi(p); err == nil && n > 0 && n < 256 {
			ports = append(ports, n)
		}
	}
	slices.Sort(ports)
	for _, n := range ports {
		c.Ports = append(c.Ports, r.port(&c, dir, n))
	}
	return c
}

func onlyVirtual(dev *topology.PCIDevice) bool {
	return dev.Vendor != nil && dev.Device != nil && topology.OnlyVirtual(*dev.Vendor, *dev.Device)
}

// functionOf finds the PCI function that lists the HCA, where the class
// directory holds no link into the device tree.
func (r *reader) functionOf(name string) string {
	for addr, dir := range r.dirs {
		if r.h.PCI[r.pci[addr]].Class != nil && baseClass(r.h.PCI[r.pci[addr]].Class) == classNetwork && r.isDir(dir+"/infiniband/"+name) {
			return addr
		}
	}
	return ""
}

func (r *reader) device(addr string) *topology.PCIDevice {
	if i, ok := r.pci[addr]; ok && addr != "" {
		return &r.h.PCI[i]
	}
	return nil
}

// charDevices reads which uverbs device belongs to which HCA.
func (r *reader) charDevices() {
	const class = "sys/class/infiniband_verbs"
	for _, name := range r.names(class) {
		if !strings.HasPrefix(name, "uverbs") {
			continue
		}
		ibdev, ok := r.text(class + "/" + name + "/ibdev")
		if !ok {
			continue
		}
		for i := range r.h.HCAs {
			if r.h.HCAs[i].Name == ibdev {
				r.h.HCAs[i].CharDevice = name
			}
		}
	}
}

func (r *reader) port(c *topology.HCA, dev string, n int) topology.Port {
	dir := dev + "/ports/" + strconv.Itoa(n)
	p := topology.Port{Number: n}
	if s, ok := r.text(dir + "/state"); ok {
		p.State = parseState(s)
	}
	if s, ok := r.text(dir + "/phys_state"); ok {
		p.PhysState = parseState(s)
	}
	p.LinkLayer, _ = r.text(dir + "/link_layer")
	if p.LinkLayer == "Unknown" || p.LinkLayer == "Unspecified" {
		p.LinkLayer = ""
	}
	// A port that is down may answer EINVAL.
	if s, ok := r.quiet(dir+"/rate", syscall.EINVAL); ok {
		p.RateText = s
		rate, err := parseRate(s)
		if err != nil {
			r.bad(dir+"/rate", err)
		}
		p.RateGbps = rate
	}
	p.RateTrusted = p.RateGbps != nil && !topology.DriverNamed(c.Driver).Software
	hex := func(file string) *uint32 {
		if v, ok := value(r, dir+"/"+file, func(s string) (uint64, error) { return parseHex(s, 32) }); ok {
			return new(uint32(v))
		}
		return nil
	}
	p.LID, p.SMLID, p.CapMask = hex("lid"), hex("sm_lid"), hex("cap_mask")
	p.SMSL = r.number(dir + "/sm_sl")
	r.gids(&p, dir)
	r.pkeys(&p, dir)
	r.portQoS(c, &p, dev, n)
	return p
}

// gids reads the GID table. The type and netdev of a slot that is not used
// answer EINVAL, so they are asked for used slots only.
func (r *reader) gids(p *topology.Port, dir string) {
	list, err := fs.ReadDir(r.fsys, dir+"/gids")
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.GIDUnreadable = Reason(err)
			noteUnreadable(r.h, dir+"/gids", err)
		}
		return
	}
	var indices []int
	for _, e := range list {
		if i, err := strconv.Atoi(e.Name()); err == nil && i >= 0 && i < 1<<16 {
			indices = append(indices, i)
		}
	}
	slices.Sort(indices)
	var failed error
	good := false
	texts := r.readAll(dir+"/gids/", indices)
	for k, i := range indices {
		num := strconv.Itoa(i)
		text, err := strings.TrimSpace(texts[k].text), texts[k].err
		if err != nil {
			// Newer kernels answer EINVAL for a slot that is not used.
			if errors.Is(err, syscall.EINVAL) {
				p.GIDZero++
			} else {
				failed = err
			}
			continue
		}
		good = true
		if text == "" {
			p.GIDZero++
			continue
		}
		addr, err := parseGID(text)
		if err != nil {
			r.bad(dir+"/gids/"+num, err)
			continue
		}
		if addr == netip.IPv6Unspecified() {
			p.GIDZero++
			continue
		}
		p.GIDs = append(p.GIDs, r.gid(p, dir, i, addr))
	}
	if failed != nil {
		noteUnreadable(r.h, dir+"/gids", failed)
		if !good {
			p.GIDUnreadable = Reason(failed)
		}
	}
}

type answer struct {
	text string
	err  error
}

// readers is how many files are read at a time. A table has 256 slots a port,
// and a system call each for open, read and close is what takes the time.
const readers = 8

// readAll reads numbered files of a directory, several at a time.
func (r *reader) readAll(prefix string, numbers []int) []answer {
	out := make([]answer, len(numbers))
	read := func(from, step int) {
		for k := from; k < len(numbers); k += step {
			out[k].text, out[k].err = readText(r.fsys, prefix+strconv.Itoa(numbers[k]))
		}
	}
	if len(numbers) < 4*readers {
		read(0, 1)
		return out
	}
	var wg sync.WaitGroup
	for from := range readers {
		wg.Go(func() { read(from, readers) })
	}
	wg.Wait()
	return out
}

func (r *reader) gid(p *topology.Port, dir string, i int, addr netip.Addr) topology.GID {
	g := topology.GID{Index: i, Addr: addr, Kind: gidKind(addr, p.LinkLayer)}
	num := strconv.Itoa(i)
	g.Type, _ = r.quiet(dir+"/gid_attrs/types/"+num, syscall.EINVAL)
	if g.Type == "IB/RoCE v1" && p.LinkLayer == "InfiniBand" {
		g.Type = "IB"
	}
	b, err := fs.ReadFile(r.fsys, dir+"/gid_attrs/ndevs/"+num)
	switch {
	case err == nil:
		g.Netdev = strings.TrimSpace(string(b))
	case !errors.Is(err, fs.ErrNotExist):
		// EINVAL on RoCE: the netdev is gone, or in another network namespace.
		if p.LinkLayer != "InfiniBand" || !errors.Is(err, syscall.EINVAL) {
			g.NdevUnreadable = Reason(err)
		}
	}
	return g
}

// maxPKeys is as many partition keys as anything here looks at.
const maxPKeys = 128

func (r *reader) pkeys(p *topology.Port, dir string) {
	if p.LinkLayer != "InfiniBand" {
		return // one fixed key on RoCE
	}
	names := r.names(dir + "/pkeys")
	slices.SortFunc(names, topology.CompareNatural)
	for _, name := range names[:min(len(names), maxPKeys)] {
		v, ok := value(r, dir+"/pkeys/"+name, func(s string) (uint64, error) { return parseHex(s, 16) })
		if ok && v != 0 {
			p.PKeys = append(p.PKeys, uint16(v))
		}
	}
}

// portQoS reads what overrides or shapes the traffic class of a port.
func (r *reader) portQoS(c *topology.HCA, p *topology.Port, dev string, n int) {
	num := strconv.Itoa(n)
	// OFED: "Global tclass=106", several lines with matches possible.
	if s, ok := r.text(dev + "/tc/" + num + "/traffic_class"); ok {
		for line := range strings.Lines(s) {
			if _, val, ok := strings.Cut(line, "Global tclass="); ok {
				if v, err := parseInt(val); err == nil && v >= 0 && v < 256 {
					p.GlobalTClass = &v
				}
			}
		}
	}
	cm := "sys/kernel/config/rdma_cm/" + c.Name + "/ports/" + num
	p.DefaultRoCE, _ = r.text(cm + "/default_roce_mode")
	p.DefaultTOS = r.number(cm + "/default_roce_tos")
}

// cxi adds HPE Slingshot NICs: not RDMA devices of the verbs kind, but never
// "no RDMA".
func (r *reader) cxi() {
	const class = "sys/class/cxi"
	for _, name := range r.names(class) {
		dir := class + "/" + name
		if at := r.link(dir); at != "" {
			dir = at
		}
		c := topology.HCA{Name: name, Class: "cxi", Driver: "cxi", PCI: lastBDF(dir)}
		if c.PCI == "" {
			c.PCI = lastBDF(r.link(dir + "/device"))
		}
		if dev := r.device(c.PCI); dev != nil {
			c.NUMA = dev.NUMA
		}
		p := topology.Port{Number: 1, LinkLayer: "Ethernet"}
		for i := range r.h.Netdevs {
			nd := &r.h.Netdevs[i]
			if nd.PCI != c.PCI || c.PCI == "" {
				continue
			}
			p.Netdev = nd.Name
			switch nd.OperState {
			case "up":
				p.State, p.PhysState = "ACTIVE", "LinkUp"
			case "down":
				p.State = "DOWN"
			}
			if nd.SpeedMbps != nil {
				p.RateGbps, p.RateTrusted = new(float64(*nd.SpeedMbps)/1000), true
			}
			break
		}
		c.Ports = []topology.Port{p}
		r.h.HCAs = append(r.h.HCAs, c)
	}
	slices.SortFunc(r.h.HCAs, func(a, b topology.HCA) int { return topology.CompareNatural(a.Name, b.Name) })
}

// congestion reads OFED's per-priority switches of RoCE congestion control and
// how CNPs are marked, from the netdev.
func (r *reader) congestion(p *topology.Port, netdev string) {
	if netdev == "" || !r.isDir("sys/class/net/"+netdev+"/ecn") {
		return
	}
	base := "sys/class/net/" + netdev + "/ecn/"
	flag := func(file string) *bool {
		if s, ok := r.text(file); ok && (s == "0" || s == "1") {
			return new(s == "1")
		}
		return nil
	}
	for prio := range 8 {
		num := strconv.Itoa(prio)
		e := topology.ECN{
			Priority:    prio,
			NotifyPoint: flag(base + "roce_np/enable/" + num),
			ReactPoint:  flag(base + "roce_rp/enable/" + num),
		}
		if e.NotifyPoint != nil || e.ReactPoint != nil {
			p.ECN = append(p.ECN, e)
		}
	}
	dscp, prio := r.number(base+"roce_np/cnp_dscp"), r.number(base+"roce_np/cnp_802p_prio")
	if dscp != nil || prio != nil {
		p.CNPs = &topology.CNP{DSCP: dscp, Priority: prio}
	}
}

// portNetdev is the netdev of a port: what its GIDs say, else the netdev of the
// same PCI function with the same port number.
func (r *reader) portNetdev(c *topology.HCA, p *topology.Port) string {
	for _, g := range p.GIDs {
		if nd := findNetdev(r.h, g.Netdev); nd != nil && nd.Kind != "vlan" && nd.Kind != "macvlan" {
			return g.Netdev
		}
	}
	for _, g := range p.GIDs {
		if nd := findNetdev(r.h, g.Netdev); nd != nil && nd.Lower != "" && findNetdev(r.h, nd.Lower) != nil {
			return nd.Lower
		}
	}
	if c.PCI == "" {
		for _, nd := range r.h.Netdevs {
			if c.Parent != "" && (nd.Name == c.Parent || len(c.Parent) == 14 && strings.HasPrefix(nd.Name, c.Parent)) {
				return nd.Name
			}
		}
		return ""
	}
	var same []topology.Netdev
	for _, nd := range r.h.Netdevs {
		if nd.PCI == c.PCI && isUplink(nd) {
			same = append(same, nd)
		}
	}
	for _, nd := range same {
		if nd.DevPort != nil && *nd.DevPort == p.Number-1 {
			return nd.Name
		}
	}
	if len(same) == 1 && len(c.Ports) == 1 {
		return same[0].Name
	}
	return ""
}

// isUplink excludes the representors of VFs that a NIC in switchdev mode shows
// beside its own port (phys_port_name "pf0vf3", "c1pf0sf2").
func isUplink(nd topology.Netdev) bool {
	return !strings.Contains(nd.PhysPort, "vf") && !strings.Contains(nd.PhysPort, "sf") && !strings.HasPrefix(nd.PhysPort, "pf")
}

func (r *reader) zeroGIDs() {
	text, ok := r.text(sectionGIDZero)
	if !ok {
		return
	}
	bad := eachLine([]byte(text), func(w []string, _ string) error {
		if len(w) != 3 {
			return errors.New("want HCA, port and count")
		}
		port, err := parseInt(w[1])
		if err != nil {
			return err
		}
		n, err := parseInt(w[2])
		if err != nil || n < 0 || n > 1<<16 {
			return errors.New("want a count of GIDs")
		}
		for i := range r.h.HCAs {
			for j := range r.h.HCAs[i].Ports {
				if r.h.HCAs[i].Name == w[0] && r.h.HCAs[i].Ports[j].Number == port {
					r.h.HCAs[i].Ports[j].GIDZero += n
				}
			}
		}
		return nil
	})
	noteLines(r.h, sectionGIDZero, bad)
}

// completePorts fills what needs netdevs and HCAs together.
func (r *reader) completePorts() {
	byPCI := map[string]string{}
	for _, c := range r.h.HCAs {
		if c.PCI != "" {
			byPCI[c.PCI] = c.Name
		}
	}
	for i := range r.h.HCAs {
		c := &r.h.HCAs[i]
		if dev := r.device(c.PCI); dev != nil && dev.PhysFn != "" {
			c.PF = byPCI[dev.PhysFn]
		}
		for j := range c.Ports {
			p := &c.Ports[j]
			if p.Netdev == "" {
				p.Netdev = r.portNetdev(c, p)
			}
			nd := findNetdev(r.h, p.Netdev)
			if nd == nil {
				continue
			}
			r.congestion(p, p.Netdev)
			c.Bond = c.Bond || r.isLAG(c, nd, byPCI)
			if nd.SpeedMbps != nil {
				p.Speed = new(float64(*nd.SpeedMbps) / 1000)
			}
			if p.LinkLayer == "Ethernet" && c.Class == "infiniband" && nd.MTU != nil {
				if mtu := roceMTU(*nd.MTU); mtu > 0 {
					p.ActiveMTU = &mtu
				}
			}
			p.PhysicalPortID = nd.PhysPortID
			if p.PhysicalPortID == "" && nd.SwitchID != "" {
				p.PhysicalPortID = path.Join(nd.SwitchID, nd.PhysPort)
			}
		}
	}
}

// isLAG: the port's netdev is a bond, or it is a bond's member and another
// member of the same card has no HCA of its own, because one device stands for
// both (RoCE LAG).
func (r *reader) isLAG(c *topology.HCA, nd *topology.Netdev, byPCI map[string]string) bool {
	if nd.Kind == "bond" {
		return true
	}
	bond := findNetdev(r.h, nd.Master)
	if bond == nil || bond.Kind != "bond" || c.PCI == "" {
		return false
	}
	for _, s := range bond.Slaves {
		other := findNetdev(r.h, s)
		if other != nil && other.PCI != "" && other.PCI != c.PCI && byPCI[other.PCI] == "" &&
			other.PCI[:len(other.PCI)-1] == c.PCI[:len(c.PCI)-1] {
			return true
		}
	}
	return false
}
