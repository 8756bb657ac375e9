package plan

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/envgen"
	"fabrun/launcher/hosts"
	"fabrun/topology/finding"
)

// spread makes a user's number of ranks reach all hosts of a resource manager's
// allocation. Left alone, launchers fill the slots of the first hosts. Seen with
// Open MPI 4.1.4 and MPICH 4.0.2 inside Slurm 22.05: ppr and -ppn spread evenly,
// and a hostfile with fewer slots than Slurm's is kept to.
func (b *builder) spread() {
	c := b.Command
	if b.Hosts.Manager == "" || len(b.Place.Hosts) < 2 || len(c.Apps) != 1 || c.Opaque != "" || b.ranks() == nil || c.UserMaps(b.Env) != "" ||
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
	why := fmt.Sprintf("%d ranks on %d hosts, and not packed on the first", *b.ranks(), len(b.Place.Hosts))
	at := c.Launcher.Words
	switch d := b.plan.Dialect; {
	case d.Even != nil && low == high:
		b.option(at, why, d.Even(high)...)
	case d.Uneven.ByHostfile:
		b.tellHosts(why)
	case d.Uneven.InTurn != nil && high == low+1:
		b.option(at, why, d.Uneven.InTurn...)
	}
}

// order makes ranks follow an order of hosts that is not the resource manager's,
// and reports whether it has placed them. Inside Slurm 22.05 a hostfile's order
// was seen to be ignored by Open MPI 4.1.4 and MPICH 4.0.2; a sequential mapping
// and srun's arbitrary distribution keep to it.
func (b *builder) order() bool {
	c := b.Command
	if !b.Ordered || b.Hosts.Manager == "" || len(b.Place.Hosts) < 2 {
		return false
	}
	why := "the hosts in the order of the topology"
	lost := ""
	d := b.plan.Dialect
	switch seq := d.Sequence; {
	case d.PerNode: // its nodes are numbered in this order
		return false
	case c.UserMaps(b.Env) != "":
		lost = c.UserMaps(b.Env) + " places the ranks"
	case c.HostSource(b.Env) != nil || len(c.Apps) != 1 || c.Opaque != "":
		lost = "the command line says where each application runs"
	case b.ranks() == nil || slices.ContainsFunc(b.Place.Hosts, func(h hosts.Host) bool { return h.Slots == nil }):
		lost = "the number of ranks is not known: give -np"
	case seq != nil && (seq.Variable == "" || !b.HostsGiven):
		b.plan.Files = slices.DeleteFunc(b.plan.Files, func(f File) bool { return f.Name == "hostfile" })
		b.plan.Files = append(b.plan.Files, File{Name: "hostfile", Content: b.sequence(), Why: why + ", a line for each " + seq.Of})
		switch {
		case seq.Variable != "":
			b.set(envgen.Var{Name: seq.Variable, Value: RunDir + "/hostfile", Scope: envgen.JobScope, Origin: envgen.FromPlan, Rule: "launcher.order", Why: why})
		case !b.HostsGiven:
			b.option(c.Launcher.Words, why, d.Hostfile.Option, RunDir+"/hostfile")
		}
		b.option(c.Launcher.Words, why, seq.Options...)
		return true
	default:
		lost = c.Launcher.Family + " takes the order of " + b.Hosts.Manager
	}
	b.find(finding.Finding{
		ID: "launcher.order", Severity: finding.Note, Subject: "--topology", Seen: "ranks do not follow the topology's order: " + lost,
		Wanted: "neighbouring ranks at one switch", Why: "the hosts are ordered for fabrun only", Hint: "where the manager knows the topology itself, its own order is by switch",
	})
	return false
}

// sequence is a host's name for each rank, in order.
func (b *builder) sequence() string {
	var text strings.Builder
	for _, h := range b.Place.Hosts {
		for range *h.Slots {
			text.WriteString(h.Name + "\n")
		}
	}
	return text.String()
}

// packs reports whether the launcher, which fills hosts in order, would put the
// ranks otherwise than they are placed.
func (b *builder) packs() bool {
	left, at := *b.ranks(), 0
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
