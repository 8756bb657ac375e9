package contract

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/watch"
)

// GIDChange is a GID that the job relies on and that changed while it ran.
type GIDChange struct {
	From  time.Time  `json:"from"`
	Until *time.Time `json:"until"` // nil: it stayed so
	Host  string     `json:"host"`
	Port  string     `json:"port"`
	Index int        `json:"index"`
	Was   string     `json:"was"` // an address
	Now   *string    `json:"now"` // at that index; null: it is empty
	At    *int       `json:"at"`  // the index at which the former GID is now; null: it is gone
	Pins  []string   `json:"pins"`
}

const maxGIDChanges = 1000

// gidsOf compares the GID table of a port with that of the first look. What counts
// is what the job relies on: an index that a variable names, and the GID of its
// connections. A GID that is at another index now is wrong only where an index is
// named. While a port is down its table is not judged: an interface that is shut down
// loses IPv6 addresses and gets them back with the link.
func (j *Judge) gidsOf(h *host, st *portState, end Port, p watch.PortSample, at time.Time, first bool) []watch.Event {
	if p.GIDs == nil {
		return nil
	}
	now := map[int]watch.GID{}
	for _, g := range p.GIDs {
		now[g.Index] = g
	}
	if st.gids == nil {
		st.gids = now
		return nil
	}
	if !p.Active || first {
		return nil
	}
	var out []watch.Event
	for _, index := range j.reliesOn(h.name, end) {
		was, ok := st.gids[index]
		if !ok {
			continue // the plan has said what it thinks of that
		}
		var pins []string
		for _, pin := range j.promise.Pins {
			if pin.Index == index && (pin.Host == "" || short(pin.Host) == short(h.name)) {
				pins = append(pins, pin.Name+"="+fmt.Sprint(index))
			}
		}
		key := fmt.Sprintf("%s %s %d", h.name, end.Name, index)
		is, filled := now[index]
		i, wrong := j.stale[key]
		moved := slices.IndexFunc(p.GIDs, func(g watch.GID) bool { return same(g, was) })
		switch {
		case filled && same(is, was) || moved >= 0 && len(pins) == 0:
			if wrong {
				delete(j.stale, key)
				j.gids[i].Until = &at
				out = append(out, watch.Event{
					Time: at, ID: EventGIDBack, Severity: watch.SeverityNote, Host: h.name, Subject: end.Name,
					Text: fmt.Sprintf("%s has %s back, after %s.", end.Name, address(was), lasted(at.Sub(j.gids[i].From))),
				})
			}
			continue
		case wrong && (j.gids[i].Now == nil) == !filled && (!filled || *j.gids[i].Now == address(is)):
			continue // said
		}
		c := GIDChange{From: at, Host: h.name, Port: end.Name, Index: index, Was: address(was), Pins: pins}
		if c.Pins == nil {
			c.Pins = []string{}
		}
		if filled {
			text := address(is)
			c.Now = &text
		}
		if moved >= 0 {
			c.At = &p.GIDs[moved].Index
		}
		if wrong {
			j.gids[i].Until = &at
		}
		if len(j.gids) < maxGIDChanges {
			j.stale[key] = len(j.gids)
			j.gids = append(j.gids, c)
		}
		out = append(out, watch.Event{Time: at, ID: EventGIDStale, Severity: watch.SeverityWarning, Host: h.name, Subject: end.Name, Text: c.text(was)})
	}
	return out
}

// reliesOn are the indexes of a port that the job relies on: those that variables name,
// or else the one that the plan expects the library to take.
func (j *Judge) reliesOn(host string, end Port) []int {
	var out []int
	for _, pin := range j.promise.Pins {
		if (pin.Host == "" || short(pin.Host) == short(host)) && !slices.Contains(out, pin.Index) {
			out = append(out, pin.Index)
		}
	}
	if end.GID != nil && len(out) == 0 {
		out = append(out, *end.GID)
	}
	return out
}

// text says what changed, and what is wrong now.
func (c GIDChange) text(was watch.GID) string {
	kind := ""
	if was.Type != "" {
		kind = " (" + was.Type + ")"
	}
	s := fmt.Sprintf("GID index %d of %s was %s%s and is ", c.Index, c.Port, c.Was, kind)
	if c.Now == nil {
		s += "empty now"
	} else {
		s += *c.Now + " now"
	}
	if c.At != nil {
		s += fmt.Sprintf(" (%s is at index %d)", c.Was, *c.At)
	}
	are := "is"
	if len(c.Pins) > 1 {
		are = "are"
	}
	where := c.Port
	if was.Netdev != "" {
		where = was.Netdev
	}
	switch {
	case len(c.Pins) > 0 && c.At != nil:
		return s + ": " + strings.Join(c.Pins, " and ") + " " + are + " wrong on this node from here on; new connections fail or take another address. Leave the index to the library, or restart the job with the new one."
	case len(c.Pins) > 0:
		return s + ": " + strings.Join(c.Pins, " and ") + " " + are + " wrong on this node from here on, and connections that run stand on an address that the node does not have. Put " + c.Was + " back on " + where + "."
	}
	return s + ": connections of the job that run over this port stand on an address that the node does not have, and new ones take another. Put " + c.Was + " back on " + where + "."
}

func same(a, b watch.GID) bool { return a.GID == b.GID && a.Type == b.Type }

// address writes a GID as the address that it stands for.
func address(g watch.GID) string {
	a, err := netip.ParseAddr(g.GID)
	if err != nil {
		return g.GID
	}
	return a.Unmap().String()
}
