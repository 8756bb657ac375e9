package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fabrun/launcher/watch"
)

// troubles are the counters that do not move on a healthy fabric.
var troubles = []watch.Counter{
	watch.OutOfSeq, watch.Retransmits, watch.Timeouts, watch.NotReady, watch.Discards, watch.LinkDowned, watch.RetryFailed, watch.SymbolErrors,
	watch.PauseStorm, watch.CRCErrors,
}

const (
	// maxAllPorts is up to how many ports a report lists each; of more, only those
	// to look at, beside the table of rails.
	maxAllPorts = 16
	// lowShare is the share of the median below which a port is one to look at.
	lowShare = 0.5
)

// railPort is one port of the job with what it moved.
type railPort struct {
	host, name string
	delta      map[watch.Counter]uint64
	moved      *uint64 // bytes sent and received; nil: the device counts none
	share      float64 // of the median of all ports that moved something
	trouble    map[watch.Counter]uint64
	low        bool
}

// railPorts are the ports of a job in the order of its hosts, and the names of
// the rails: 'mlx5_0:1', in the order in which hosts name them.
func railPorts(traffic []watch.HostTraffic) (ports []railPort, rails []string) {
	var moved []uint64
	for _, h := range traffic {
		for _, p := range h.Ports {
			r := railPort{host: h.Host, name: fmt.Sprintf("%s:%d", p.HCA, p.Port), delta: p.Delta, trouble: map[watch.Counter]uint64{}}
			tx, okTx := p.Delta[watch.TxBytes]
			rx, okRx := p.Delta[watch.RxBytes]
			if n := tx + rx; okTx || okRx {
				r.moved = &n
				if n > 0 {
					moved = append(moved, n)
				}
			}
			for _, c := range troubles {
				if n := p.Delta[c]; n > 0 {
					r.trouble[c] = n
				}
			}
			if !slices.Contains(rails, r.name) {
				rails = append(rails, r.name)
			}
			ports = append(ports, r)
		}
	}
	if len(moved) == 0 {
		return ports, rails
	}
	slices.Sort(moved)
	median := float64(moved[len(moved)/2])
	for i := range ports {
		if p := &ports[i]; p.moved != nil {
			p.share = float64(*p.moved) / median
			p.low = len(moved) > 1 && p.share < lowShare
		}
	}
	return ports, rails
}

// toLookAt reports whether a port is listed where not all are.
func (p railPort) toLookAt() bool { return p.low || len(p.trouble) > 0 }

// rest are the counters that moved and are neither bytes nor trouble.
func (p railPort) rest() map[watch.Counter]uint64 {
	rest := maps.Clone(p.delta)
	delete(rest, watch.TxBytes)
	delete(rest, watch.RxBytes)
	for c := range p.trouble {
		delete(rest, c)
	}
	return rest
}

func (p railPort) movedWord() string {
	switch {
	case p.moved != nil:
		return watch.Bytes(*p.moved)
	case p.delta[watch.TxPackets]+p.delta[watch.RxPackets] > 0:
		return fmt.Sprintf("%d packets", p.delta[watch.TxPackets]+p.delta[watch.RxPackets])
	}
	return "unknown"
}

// shortNames maps host names to what tells them apart: without the domain, where
// no two are the same without it.
func shortNames(hosts []string) map[string]string {
	out := map[string]string{}
	taken := map[string]bool{}
	for _, h := range hosts {
		short, _, _ := strings.Cut(h, ".")
		if taken[short] || short == "" || strings.Trim(short, "0123456789") == "" {
			// Two of one name, or an address.
			for _, h := range hosts {
				out[h] = h
			}
			return out
		}
		if _, again := out[h]; !again {
			taken[short] = true
		}
		out[h] = short
	}
	return out
}
