package contract

import (
	"fmt"
	"strings"
)

// Promise is what a plan promises of the ports of a job.
type Promise struct {
	Rails []Rail
	// RateGbps is of most ports: of one that nobody has seen up. 0 is unknown.
	RateGbps float64
	// Pins are the variables by which a GID index is fixed for every port.
	Pins []Pin
}

// Rail is one port of each host that the job uses together.
type Rail struct {
	Ports map[string]Port // by the name that the host has for itself
}

// Port is a host's end of a rail.
type Port struct {
	Name string // "mlx5_3:1"
	GID  *int   // index of the GID that the job uses; nil none is known
}

// Pin is a variable that fixes a GID index.
type Pin struct {
	Name  string // "NCCL_IB_GID_INDEX"
	Index int
	Host  string // "" every host
}

// short is a host's name without its domain: logs and samples cut it differently.
func short(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

// railsWord counts rails.
func railsWord(n int) string {
	if n == 1 {
		return "1 rail"
	}
	return fmt.Sprintf("%d rails", n)
}

// rate writes what so many Gb/s carry: "50 GB/s".
func rate(gbps float64) string {
	return fmt.Sprintf("%.4g GB/s", gbps/8)
}
