// Package look finds out what the machines of a job are: this one, a snapshot in its
// place, and the others over a transport.
package look

import (
	"net"
	"os"
	"slices"
	"strings"

	"fabrun/launcher/hosts"
)

// Others are the hosts that are not this machine, by the name under which
// they are reached.
func Others(alloc hosts.Allocation) (others []string, self map[string]bool) {
	self = map[string]bool{}
	own := ownNames()
	for _, h := range alloc.Hosts {
		if own[h.Name] || h.Address != "" && own[h.Address] {
			self[h.Name] = true
			continue
		}
		others = append(others, h.Name)
	}
	return others, self
}

// ownNames are the names and addresses of this machine, as far as it knows
// them without asking anybody.
func ownNames() map[string]bool {
	own := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		own[name], own[short] = true, true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			own[ip.IP.String()] = true
		}
	}
	return own
}

// IsHere reports whether every host of an allocation is this machine.
func IsHere(alloc hosts.Allocation) bool {
	own := ownNames()
	return len(alloc.Hosts) > 0 && !slices.ContainsFunc(alloc.Hosts, func(h hosts.Host) bool { return !own[h.Name] })
}
