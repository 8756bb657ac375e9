package eyes

import (
	"strings"

	"fabrun/launcher/hosts"
	"fabrun/launcher/look"
	"fabrun/launcher/watch"
)

// called is what a machine calls itself, and what the job's user does: an address,
// a short name, a whole one. Everything that is told is told by the user's name.
type called struct{ itself, byUser string }

// calledHere is this machine's; by its own name where it has none of the job's, or
// several.
func calledHere(alloc hosts.Allocation, itself string) called {
	c := called{itself, itself}
	if _, self := look.Others(alloc); len(self) == 1 {
		for name := range self {
			if name != "localhost" {
				c.byUser = name
			}
		}
	}
	return c
}

// name is host as the user calls it, where it is this machine: logs of libraries
// have the first part of its name only.
func (c called) name(host string) string {
	short, _, _ := strings.Cut(c.itself, ".")
	if c.itself != "" && c.byUser != "" && (host == c.itself || host == short) {
		return c.byUser
	}
	return host
}

func (c called) event(e watch.Event) watch.Event {
	e.Host = c.name(e.Host)
	return e
}

func (c called) standings(procs []watch.Standing) []watch.Standing {
	for i := range procs {
		procs[i].Host = c.name(procs[i].Host)
	}
	return procs
}
