package plan

import (
	"fmt"
	"strconv"
)

// spread makes a user's number of ranks reach all hosts of a resource manager's
// allocation. Left alone, launchers fill the slots of the first hosts. Seen with
// Open MPI 4.1.4 and MPICH 4.0.2 inside Slurm 22.05: ppr and -ppn spread evenly,
// and a hostfile with fewer slots than Slurm's is kept to.
func (b *builder) spread() {
	c := b.Command
	if b.Hosts.Manager == "" || len(b.Place.Hosts) < 2 || len(c.contexts) != 1 || c.Opaque != "" || c.Ranks() == nil || c.UserMaps(b.Env) != "" ||
		c.HostSource(b.Env) != nil || b.HostsGiven {
		return
	}
	low, high := -1, -1
	for _, h := range b.Place.Hosts {
		if h.Slots == nil {
			return
		}
		if low < 0 || *h.Slots < low {
			low = *h.Slots
		}
		high = max(high, *h.Slots)
	}
	if !b.packs() {
		return
	}
	why := fmt.Sprintf("%d ranks on %d hosts, and not packed on the first", *c.Ranks(), len(b.Place.Hosts))
	at := c.Launcher.Words
	switch d := c.Launcher.Dialect; {
	case (d == OpenMPI4 || d == OpenMPI5) && low == high:
		b.option(at, why, "--map-by", fmt.Sprintf("ppr:%d:node", high))
	case (d == MPICH || d == IntelMPI) && low == high:
		b.option(at, why, "-ppn", strconv.Itoa(high))
	case d == OpenMPI4, d == MPICH, d == IntelMPI:
		b.tellHosts(why)
	case d == OpenMPI5 && high == low+1:
		// Whether PRRTE keeps to a hostfile's slots inside Slurm was not seen.
		b.option(at, why, "--map-by", "node")
	}
}

// packs reports whether the launcher, which fills hosts in order, would put the
// ranks otherwise than they are placed.
func (b *builder) packs() bool {
	left, at := *b.Command.Ranks(), 0
	for _, h := range b.Hosts.Hosts {
		n := left
		if h.Slots != nil {
			n = min(left, *h.Slots)
		}
		left -= n
		switch {
		case n == 0:
		case at >= len(b.Place.Hosts) || b.Place.Hosts[at].Name != h.Name || *b.Place.Hosts[at].Slots != n:
			return true
		default:
			at++
		}
	}
	return at != len(b.Place.Hosts)
}
