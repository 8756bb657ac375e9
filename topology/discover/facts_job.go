package discover

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"fabrun/topology"
)

// field makes text one field of a line whose fields are separated by tabs.
func field(s string) string {
	switch {
	case s == "":
		return "-"
	case s == "-" || strings.HasPrefix(s, `"`) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }):
		return strconv.Quote(s)
	}
	return s
}

func unfield(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		return strconv.Unquote(s)
	}
	return known(s), nil
}

// PlacesText is the section of places; nil where there are none.
func PlacesText(places []topology.Place) []byte {
	var b []byte
	for _, p := range places {
		state := p.Missing
		if state == "" {
			state = "ok"
		}
		b = fmt.Appendf(b, "%s\t%s\t%s\t%s\t%s\t%s\n", field(p.Role), field(p.Path), field(state), field(p.ID), field(p.Mount), field(p.Detail))
	}
	return b
}

func parsePlaces(text []byte, h *topology.Host) []string {
	return eachLine(text, func(_ []string, line string) error {
		f := strings.Split(line, "\t")
		if len(f) < 6 {
			return fmt.Errorf("want six fields separated by tabs, got %q", line)
		}
		for i := range f {
			var err error
			if f[i], err = unfield(f[i]); err != nil {
				return fmt.Errorf("not a quoted text: %s", f[i])
			}
		}
		p := topology.Place{Role: f[0], Path: f[1], Missing: f[2], ID: f[3], Mount: f[4], Detail: f[5]}
		if p.Missing == "ok" {
			p.Missing = ""
		}
		h.Places = append(h.Places, p)
		return nil
	})
}

func parseClock(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, line string) error {
		if len(w) < 2 {
			return fmt.Errorf("%s wants a value", w[0])
		}
		var err error
		switch w[0] {
		case "time":
			if h.Clock.At, err = time.Parse(time.RFC3339Nano, w[1]); err != nil {
				return fmt.Errorf("time: want RFC 3339, got %q", w[1])
			}
		case "synchronised":
			h.Clock.Synced, err = parseYesNo(w[1])
		case "source":
			h.Clock.Sources = append(h.Clock.Sources, after(line, 1))
		}
		return err
	})
}

func parseSession(text []byte, h *topology.Host) []string {
	return eachLine(text, func(w []string, _ string) error {
		if w[0] != "ssh" {
			return nil
		}
		if len(w) != 2 {
			return fmt.Errorf("ssh: want an address")
		}
		a, err := netip.ParseAddr(w[1])
		if err != nil {
			return fmt.Errorf("ssh: want an address, got %q", w[1])
		}
		h.ReachedBy = a
		return nil
	})
}
