package plan

import (
	"fmt"
	"strconv"
)

// spread makes a user's number of ranks reach all hosts of a resource manager's
// allocation. Left alone, launchers fill the slots of the first hosts, and a
// hostfile does not help: inside Slurm Open MPI takes the slots from Slurm
// (seen with 4.1.4: two ranks on the first of two nodes of four slots, with
// "slots=1" in the hostfile and without).
func (b *builder) spread() {
	c := b.Command
	if b.Hosts.Manager == "" || len(b.Place.Hosts) < 2 || len(c.contexts) != 1 || c.Opaque != "" || c.Ranks() == nil || c.UserMaps(b.Env) != "" ||
		c.HostSource(b.Env) != nil {
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
	packs := false
	for _, h := range b.Hosts.Hosts {
		packs = packs || h.Slots == nil || *h.Slots > high
	}
	if !packs {
		return
	}
	why := fmt.Sprintf("%d ranks on %d hosts, and not packed on the first", *c.Ranks(), len(b.Place.Hosts))
	at := c.Launcher.Words
	switch c.Launcher.Dialect {
	case OpenMPI4, OpenMPI5:
		if low == high {
			b.option(at, why, "--map-by", fmt.Sprintf("ppr:%d:node", high))
		} else if high == low+1 {
			b.option(at, why, "--map-by", "node")
		}
	case MPICH, IntelMPI:
		if low == high {
			b.option(at, why, "-ppn", strconv.Itoa(high))
		}
	}
}
