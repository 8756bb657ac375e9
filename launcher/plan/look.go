package plan

import (
	"fmt"
	"slices"
	"strings"

	"fabrun/launcher/hosts"
)

// Look says which of the job's hosts a plan rests on. What was not seen is not
// judged, and what is set there is an assumption.
type Look struct {
	Hosts   int      // the job's; 0 where their number is not known
	Seen    int      // of them looked at
	Assumed string   // why no host was asked and all are taken to be like this machine; "" they are not
	Unseen  []Unseen // those that could not be looked at, by reason
}

// Unseen are hosts that could not be looked at for one reason. Names is empty
// where they are not known.
type Unseen struct {
	Names []string `json:"hosts"`
	Why   string   `json:"why"`
}

// Miss notes a host that could not be looked at.
func (l *Look) Miss(host, why string) {
	i := slices.IndexFunc(l.Unseen, func(u Unseen) bool { return u.Why == why })
	if i < 0 {
		l.Unseen = append(l.Unseen, Unseen{Names: []string{}, Why: why})
		i = len(l.Unseen) - 1
	}
	if host != "" {
		l.Unseen[i].Names = append(l.Unseen[i].Names, host)
	}
}

// Blind reports whether no host of the job could be looked at: nothing is
// known, not even that there is no RDMA.
func (l Look) Blind() bool { return len(l.Unseen) > 0 && l.Seen == 0 }

// Whole reports whether every host of the job was looked at.
func (l Look) Whole() bool { return len(l.Unseen) == 0 && l.Assumed == "" }

// Text is what the look left out, as a clause; "" where it left out nothing.
func (l Look) Text() string {
	switch {
	case l.Assumed != "" && l.Hosts > 0:
		return fmt.Sprintf("%d of %d hosts were not looked at (%s)", l.Hosts, l.Hosts, l.Assumed)
	case l.Assumed != "":
		return "the job's hosts were not looked at (" + l.Assumed + ")"
	case len(l.Unseen) == 0:
		return ""
	}
	var whys []string
	for _, u := range l.Unseen {
		if len(u.Names) > 0 && (l.Seen > 0 || len(l.Unseen) > 1) {
			whys = append(whys, hosts.Compress(u.Names)+": "+u.Why)
		} else {
			whys = append(whys, u.Why)
		}
	}
	why := "(" + strings.Join(whys, "; ") + ")"
	switch {
	case l.Seen > 0:
		return fmt.Sprintf("looked at %d of %d hosts %s", l.Seen, l.Hosts, why)
	case l.Hosts > 0:
		return fmt.Sprintf("could not look at %d of %d hosts %s", l.Hosts, l.Hosts, why)
	}
	return "could not look at the job's hosts " + why
}
