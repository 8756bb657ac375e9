package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"fabrun/launcher/watch"
)

// Watch writes a verdict for a person: the sentence first, then what it rests
// on, then what happened.
func Watch(w io.Writer, v watch.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.Sentence)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-14s %s\n", name, value)
		}
	}
	row("library", strings.TrimSpace(v.Library+" "+v.Version))
	row("network", strings.Join(v.Networks, ", "))
	row("between nodes", strings.Join(v.InterNodeTransports, ", "))
	row("devices", strings.Join(v.Devices, " "))
	row("GPUDirect", gdrWord(v))
	row("ranks", ranksWord(v))
	if len(v.FatalErrors) > 0 {
		row("errors", strings.Join(v.FatalErrors, ", "))
	}
	for _, ev := range v.Events {
		if ev.Severity == watch.SeverityNote {
			continue
		}
		b.WriteString(EventLine(ev) + "\n")
		if ev.Line != "" {
			b.WriteString("    " + ev.Line + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// EventLine is one event as one line, without a line end.
func EventLine(ev watch.Event) string {
	var where []string
	if ev.Host != "" {
		where = append(where, ev.Host)
	}
	if ev.Rank != nil {
		where = append(where, "rank "+strconv.Itoa(*ev.Rank))
	}
	s := ev.Severity + ": "
	if len(where) > 0 {
		s += strings.Join(where, " ") + ": "
	}
	if ev.ID == "fallback" {
		s += "FALLBACK to TCP (" + ev.Cause + "): "
	}
	return s + ev.Text
}

func gdrWord(v watch.Verdict) string {
	switch {
	case v.GDR == nil:
		return ""
	case !*v.GDR:
		return "off"
	case v.GDRPartial:
		return "on, not for every connection"
	}
	return "on"
}

func ranksWord(v watch.Verdict) string {
	var s string
	if v.RanksSeen != nil {
		s = fmt.Sprintf("%d seen", *v.RanksSeen)
	}
	if v.NRanks != nil {
		if s != "" {
			s += " of "
		}
		s += strconv.Itoa(*v.NRanks)
	}
	if v.NNodes != nil {
		s += fmt.Sprintf(", %d node", *v.NNodes)
		if *v.NNodes != 1 {
			s += "s"
		}
	}
	return strings.TrimPrefix(s, ", ")
}
