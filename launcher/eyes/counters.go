package eyes

import (
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/safchain/ethtool"

	"fabrun/launcher/watch"
)

// Meter reads this host's counters again and again.
type Meter struct {
	host  string
	sys   fs.FS  // /sys
	proc  string // /proc
	peers peerMeter
	uid   int
	cpu   [2]uint64 // busy and all jiffies of the look before

	stats   func(netdev string) map[string]uint64 // ethtool -S; nil where it does not tell
	statsOf map[string]map[string]uint64          // of the last time that all was read
	read    time.Time                             // when that was
	gpus    *gpuMeter

	listen  func() (*netChanges, error) // nil: changes are not told
	changed atomic.Bool                 // an address or a link, since the GIDs were last read
	ports   atomic.Pointer[[]watch.PortSample]
}

// NewMeter returns a Meter of this host.
func NewMeter(host string) *Meter {
	return &Meter{host: host, sys: os.DirFS("/sys"), proc: "/proc", uid: os.Getuid(), stats: ethtoolStats, listen: listenNet}
}

// WithGPUs lets the Meter ask the fabrun-nvml at the path helper how much the GPUs
// are used; "" does not. Close ends it.
func (m *Meter) WithGPUs(helper string) *Meter {
	m.gpus = newGPUMeter(helper)
	return m
}

// GPUUse is how much the GPUs are used, 0 to 1; nil where that is not known.
func (m *Meter) GPUUse() *float64 { return m.gpus.look() }

// Close ends what the Meter has started.
func (m *Meter) Close() { m.gpus.close() }

// Look reads everything once. It takes a few milliseconds and fails at nothing:
// what cannot be read is absent from the Sample. The statistics of the netdevs,
// for which drivers ask their firmware, are read at the first look, at the last
// one, and not more often than every sampleEvery.
func (m *Meter) Look(now time.Time, last bool) watch.Sample {
	s := watch.Sample{Time: now, Host: m.host, Ports: rdmaPorts(m.sys), Netdevs: netdevs(m.sys), Addresses: addresses()}
	if m.changed.Swap(false) || last || m.statsOf == nil {
		for i, p := range s.Ports {
			s.Ports[i].GIDs = gidTable(m.sys, path.Join("class/infiniband", p.HCA, "ports", strconv.Itoa(p.Port)))
		}
	}
	if last || m.statsOf == nil || now.Sub(m.read) >= sampleEvery {
		m.read, m.statsOf = now, map[string]map[string]uint64{}
		for _, p := range s.Ports {
			if p.Netdev != "" && m.stats != nil {
				m.statsOf[p.Netdev] = m.stats(p.Netdev)
			}
		}
		m.peers.fabric = fabricAddresses(m.sys, s.Ports)
	}
	if socks, err := tcpSockets(); err == nil {
		s.TCP = m.peers.look(socks, skipRuntime(runtimeSockets(m.proc)))
	}
	for _, p := range s.Ports {
		for name, v := range m.statsOf[p.Netdev] {
			watch.AddStat(p.Counters, name, v)
		}
	}
	if len(s.Ports) > 0 {
		if qps := queuePairs(ownerOf(m.proc, m.uid)); qps != nil {
			for i := range s.Ports {
				if n, ok := qps[s.Ports[i].HCA]; ok {
					s.Ports[i].QueuePair = &n
				}
			}
		}
	}
	s.CPUUse, s.GPUUse = m.cpuUse(), m.gpus.look()
	m.ports.Store(&s.Ports)
	return s
}

// Rail says whether a netdev shares a wire with an RDMA port: it is the port's own,
// stands above it (a VLAN, a bond, a bridge), or is its IP over InfiniBand.
func (m *Meter) Rail(netdev string) bool {
	ports := m.ports.Load()
	return ports != nil && onFabric(m.sys, netdev, *ports)
}

// ethtoolStats is what ethtool -S says of a netdev.
func ethtoolStats(netdev string) map[string]uint64 {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil
	}
	defer e.Close()
	all, err := e.Stats(netdev)
	if err != nil {
		return nil
	}
	return all
}

// cpuUse is the share of time that the CPUs were busy since the look before.
func (m *Meter) cpuUse() *float64 {
	text, err := os.ReadFile(path.Join(m.proc, "stat"))
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) < 6 || f[0] != "cpu" {
		return nil
	}
	var all, idle uint64
	for i, w := range f[1:min(len(f), 9)] { // guest time is in user time already
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return nil
		}
		all += n
		if i == 3 || i == 4 { // idle, iowait
			idle += n
		}
	}
	was := m.cpu
	m.cpu = [2]uint64{all - idle, all}
	if was[1] == 0 || all <= was[1] || all-idle < was[0] {
		return nil
	}
	use := float64(all-idle-was[0]) / float64(all-was[1])
	return &use
}

// addresses are this host's own, without loopback.
func addresses() []string {
	ifs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range ifs {
		if ipn, ok := a.(*net.IPNet); ok && !ipn.IP.IsLoopback() && len(out) < 1024 {
			out = append(out, ipn.IP.String())
		}
	}
	return out
}

// fabricAddresses are this host's addresses on netdevs that share a wire with an
// RDMA port: its own, and the VLANs, bonds and bridges above it.
func fabricAddresses(sys fs.FS, ports []watch.PortSample) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	ifs, err := net.Interfaces()
	if err != nil {
		return out
	}
	for _, i := range ifs[:min(len(ifs), 1024)] {
		if !onFabric(sys, i.Name, ports) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out[p.Addr().Unmap()] = true
			}
		}
	}
	return out
}

func onFabric(sys fs.FS, netdev string, ports []watch.PortSample) bool {
	names := []string{netdev}
	entries, err := fs.ReadDir(sys, path.Join("class/net", netdev))
	if err == nil {
		for _, e := range entries {
			if lower, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
				names = append(names, lower)
			}
			if e.Name() == "device" {
				// IP over InfiniBand.
				if hcas, err := fs.ReadDir(sys, path.Join("class/net", netdev, "device/infiniband")); err == nil && len(hcas) > 0 {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(ports, func(p watch.PortSample) bool { return p.Netdev != "" && slices.Contains(names, p.Netdev) })
}

// rdmaPorts reads every port of every RDMA device of a /sys tree.
func rdmaPorts(sys fs.FS) []watch.PortSample {
	out := []watch.PortSample{}
	devs, err := fs.ReadDir(sys, "class/infiniband")
	if err != nil {
		return out
	}
	for _, d := range devs {
		base := path.Join("class/infiniband", d.Name())
		ports, err := fs.ReadDir(sys, path.Join(base, "ports"))
		if err != nil {
			continue
		}
		for _, p := range ports {
			num, err := strconv.Atoi(p.Name())
			if err != nil || len(out) >= 4096 {
				continue
			}
			dir := path.Join(base, "ports", p.Name())
			s := watch.PortSample{HCA: d.Name(), Port: num, Counters: map[watch.Counter]uint64{}}
			number, state, _ := strings.Cut(sysText(sys, path.Join(dir, "state")), ":")
			if s.Active = number == "4"; !s.Active {
				s.State = strings.TrimSpace(state)
			}
			rate, _, _ := strings.Cut(sysText(sys, path.Join(dir, "rate")), " ")
			if r, err := strconv.ParseFloat(rate, 64); err == nil {
				s.RateGbps = r
			}
			// Soft-RoCE and siw stand on a netdev that their file parent names.
			if parent := sysText(sys, path.Join(base, "parent")); parent != "" {
				s.Netdev, s.Emulated = parent, true
				// It says 2.5 Gb/s whatever the netdev is; that may not know its own.
				s.RateGbps = 0
				if mbps, err := strconv.ParseFloat(sysText(sys, path.Join("class/net", parent, "speed")), 64); err == nil && mbps > 0 {
					s.RateGbps = mbps / 1000
				}
			} else {
				s.Netdev = portNetdev(sys, base, dir, num)
			}
			dirs := []string{path.Join(dir, "counters"), path.Join(dir, "hw_counters")}
			if len(ports) == 1 {
				dirs = append(dirs, path.Join(base, "hw_counters")) // switchdev
			}
			for _, c := range dirs {
				readCounters(sys, c, s.Counters)
			}
			out = append(out, s)
		}
	}
	return out
}

// portNetdev is the netdev that shares the wire of a port: the one of its PCI
// device, or, where that is hidden, the one that its GIDs name (which may be a VLAN
// or a bond).
func portNetdev(sys fs.FS, device, port string, num int) string {
	if devs, err := fs.ReadDir(sys, path.Join(device, "device/net")); err == nil {
		for _, d := range devs {
			n, err := strconv.Atoi(sysText(sys, path.Join(device, "device/net", d.Name(), "dev_port")))
			if err == nil && n == num-1 || len(devs) == 1 {
				return d.Name()
			}
		}
	}
	gids, err := fs.ReadDir(sys, path.Join(port, "gid_attrs/ndevs"))
	if err != nil {
		return ""
	}
	for _, g := range gids[:min(len(gids), 16)] {
		if name := sysText(sys, path.Join(port, "gid_attrs/ndevs", g.Name())); name != "" {
			return name
		}
	}
	return ""
}

func readCounters(sys fs.FS, dir string, into map[watch.Counter]uint64) {
	files, err := fs.ReadDir(sys, dir)
	if err != nil {
		return
	}
	for _, f := range files {
		name, factor, ok := watch.CounterOf(f.Name())
		if !ok {
			continue
		}
		// "N/A (no PMA)" is a text that some devices have here.
		v, err := strconv.ParseUint(sysText(sys, path.Join(dir, f.Name())), 10, 64)
		if err == nil {
			into[name] += v * factor
		}
	}
}

// netdevs reads the statistics of the interfaces of a /sys tree.
func netdevs(sys fs.FS) []watch.NetdevSample {
	out := []watch.NetdevSample{}
	devs, err := fs.ReadDir(sys, "class/net")
	if err != nil {
		return out
	}
	for _, d := range devs {
		if d.Name() == "lo" || len(out) >= 1024 || strings.HasPrefix(d.Name(), "veth") {
			continue
		}
		s := watch.NetdevSample{Name: d.Name(), Counters: map[watch.Counter]uint64{}}
		dir := path.Join("class/net", d.Name(), "statistics")
		for file, c := range map[string]watch.Counter{
			"tx_bytes": watch.TxBytes, "rx_bytes": watch.RxBytes, "tx_packets": watch.TxPackets, "rx_packets": watch.RxPackets,
			"rx_dropped": watch.Discards,
		} {
			if v, err := strconv.ParseUint(sysText(sys, path.Join(dir, file)), 10, 64); err == nil {
				s.Counters[c] = v
			}
		}
		if v, err := strconv.ParseUint(sysText(sys, path.Join("class/net", d.Name(), "carrier_down_count")), 10, 64); err == nil {
			s.Counters[watch.LinkDowned] = v
		}
		if len(s.Counters) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b watch.NetdevSample) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// sysText reads a small file of sysfs, "" where that is not possible.
func sysText(sys fs.FS, name string) string {
	b, err := fs.ReadFile(sys, name)
	if err != nil || len(b) > 4096 {
		return ""
	}
	return strings.TrimSpace(string(b))
}
