package launcher

import (
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

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
}

// NewMeter returns a Meter of this host.
func NewMeter(host string) *Meter {
	return &Meter{host: host, sys: os.DirFS("/sys"), proc: "/proc", uid: os.Getuid()}
}

// Look reads everything once. It takes a few milliseconds and fails at nothing:
// what cannot be read is absent from the Sample.
func (m *Meter) Look(now time.Time) watch.Sample {
	s := watch.Sample{Time: now, Host: m.host, Ports: rdmaPorts(m.sys), Netdevs: netdevs(m.sys), Addresses: addresses()}
	if socks, err := tcpSockets(); err == nil {
		s.TCP = m.peers.look(socks, skipRuntime(runtimeSockets(m.proc)))
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
	s.CPUUse = m.cpuUse()
	return s
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
			s.Active = strings.HasPrefix(sysText(sys, path.Join(dir, "state")), "4:")
			rate, _, _ := strings.Cut(sysText(sys, path.Join(dir, "rate")), " ")
			if r, err := strconv.ParseFloat(rate, 64); err == nil {
				s.RateGbps = r
			}
			// Soft-RoCE and siw stand on a netdev that their file parent names.
			if parent := sysText(sys, path.Join(base, "parent")); parent != "" {
				s.Netdev, s.Emulated = parent, true
				s.RateGbps = 0 // it says 2.5 Gb/s whatever the netdev is
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
