package discover

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fabrun/topology"
)

const (
	arphrdEthernet   = 1
	arphrdInfiniBand = 32
	arphrdLoopback   = 772
)

func (r *reader) netdevs() {
	vlans := r.vlanConfig()
	for _, name := range r.names("sys/class/net") {
		dir := "sys/class/net/" + name
		if at := r.link(dir); at != "" {
			dir = at
		} else if !r.isDir(dir) {
			continue // bonding_masters is a file
		}
		r.h.Netdevs = append(r.h.Netdevs, r.netdev(name, dir, vlans))
	}
	slices.SortFunc(r.h.Netdevs, func(a, b topology.Netdev) int { return topology.CompareNatural(a.Name, b.Name) })
}

func (r *reader) netdev(name, dir string, vlans map[string]vlan) topology.Netdev {
	nd := topology.Netdev{Name: name}
	nd.Index = r.number(dir + "/ifindex")
	nd.OperState, _ = r.text(dir + "/operstate")
	// A netdev that is administratively down answers EINVAL here.
	if s, ok := r.quiet(dir+"/carrier", syscall.EINVAL); ok {
		if s == "0" || s == "1" {
			nd.Carrier = new(s == "1")
		}
	}
	nd.MTU = r.number(dir + "/mtu")
	// EINVAL where there is no link, EOPNOTSUPP where there is no such thing; −1 is unknown.
	if s, ok := r.quiet(dir+"/speed", syscall.EINVAL, syscall.EOPNOTSUPP); ok {
		if v, err := parseInt(s); err == nil && v > 0 && v != 1<<32-1 {
			nd.SpeedMbps = &v
		}
	}
	nd.MAC, _ = r.text(dir + "/address")
	nd.Type = r.number(dir + "/type")
	nd.DevPort = r.number(dir + "/dev_port")
	nd.PhysPort, _ = r.quiet(dir+"/phys_port_name", syscall.EOPNOTSUPP)
	nd.SwitchID, _ = r.quiet(dir+"/phys_switch_id", syscall.EOPNOTSUPP)
	nd.PhysPortID, _ = r.quiet(dir+"/phys_port_id", syscall.EOPNOTSUPP)
	nd.PCI = lastBDF(dir)
	if nd.PCI == "" {
		// A copy of the class directory alone has the device as a link.
		nd.PCI = lastBDF(r.link(dir + "/device"))
	}
	if i, ok := r.pci[nd.PCI]; ok {
		nd.Driver = r.h.PCI[i].Driver
	}
	if nd.Driver == "" {
		nd.Driver = r.linkBase(dir + "/device/driver")
	}
	devtype := ""
	if text, ok := r.text(dir + "/uevent"); ok {
		parseUevent(text, func(k, v string) {
			if k == "DEVTYPE" {
				devtype = v
			}
		})
	}
	nd.Master = r.linkBase(dir + "/master")
	if virtual := nd.PCI == "" && !strings.Contains(dir, "/platform/"); virtual {
		r.virtualNetdev(&nd, dir, devtype, vlans)
	} else {
		nd.Kind = "physical"
	}
	return nd
}

// lastBDF is the PCI function a path without links lies below.
func lastBDF(dir string) string {
	for dir != "." && dir != "" && dir != "/" {
		if base := path.Base(dir); isBDF(base) {
			return base
		}
		dir = path.Dir(dir)
	}
	return ""
}

func (r *reader) virtualNetdev(nd *topology.Netdev, dir, devtype string, vlans map[string]vlan) {
	nd.Kind = devtype
	switch {
	case nd.Type != nil && *nd.Type == arphrdLoopback:
		nd.Kind = "loopback"
	case devtype == "bond" || devtype == "" && r.isDir(dir+"/bonding"):
		nd.Kind = "bond"
		if s, ok := r.text(dir + "/bonding/slaves"); ok {
			nd.Slaves = strings.Fields(s)
			slices.SortFunc(nd.Slaves, topology.CompareNatural)
		}
		if s, ok := r.text(dir + "/bonding/mode"); ok {
			nd.BondMode, _, _ = strings.Cut(s, " ")
		}
		if s, ok := r.text(dir + "/bonding/ad_num_ports"); ok && s != "" {
			if n, err := parseInt(s); err == nil {
				nd.LACPPorts = &n
			}
		}
	case devtype == "bridge" || devtype == "" && r.isDir(dir+"/bridge"):
		nd.Kind = "bridge"
	case devtype == "" && r.exists(dir+"/tun_flags"):
		nd.Kind = "tun"
	}
	for _, name := range r.names(dir) {
		if lower, ok := strings.CutPrefix(name, "lower_"); ok && r.link(dir+"/"+name) != "" && nd.Kind != "bond" {
			nd.Lower = lower
		}
	}
	if v, ok := vlans[nd.Name]; ok {
		nd.Kind, nd.VLAN = "vlan", &v.id
		if nd.Lower == "" {
			nd.Lower = v.lower
		}
	} else if base, id, ok := strings.Cut(nd.Name, "."); ok && (nd.Kind == "vlan" || nd.Kind == "" && nd.Lower == base) {
		if n, err := strconv.Atoi(id); err == nil && n > 0 && n < 4095 {
			nd.Kind, nd.VLAN = "vlan", &n
		}
	}
	if nd.Kind == "" {
		nd.Kind = "virtual"
		// veth has no DEVTYPE; its peer is in another namespace or has another index.
		if strings.HasPrefix(nd.Name, "veth") || r.differentPeer(nd, dir) {
			nd.Kind = "veth"
		}
	}
}

// differentPeer reports that iflink names another interface, as for veth.
func (r *reader) differentPeer(nd *topology.Netdev, dir string) bool {
	peer := r.number(dir + "/iflink")
	return peer != nil && nd.Index != nil && *peer != *nd.Index && *peer != 0 && nd.Lower == "" &&
		nd.Type != nil && *nd.Type == arphrdEthernet
}

func (r *reader) exists(name string) bool {
	_, ok := r.text(name)
	return ok
}

type vlan struct {
	id    int
	lower string
}

// vlanConfig reads proc/net/vlan/config: "eth0.100  | 100  | eth0".
func (r *reader) vlanConfig() map[string]vlan {
	text, ok := r.text("proc/net/vlan/config")
	if !ok {
		return nil
	}
	vlans := map[string]vlan{}
	for line := range strings.Lines(text) {
		f := strings.Split(line, "|")
		if len(f) != 3 {
			continue
		}
		if id, err := parseInt(f[1]); err == nil && id > 0 && id < 4095 {
			vlans[strings.TrimSpace(f[0])] = vlan{id, strings.TrimSpace(f[2])}
		}
	}
	return vlans
}
