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
	for i, run := range v.Runs {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Run %d of %d: ", i+1, len(v.Runs))
		oneRun(&b, run)
	}
	if len(v.Runs) == 0 {
		oneRun(&b, v)
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}

func oneRun(b *strings.Builder, v watch.Verdict) {
	fmt.Fprintf(b, "%s\n", v.Sentence)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "  %-14s %s\n", name, value)
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
		if ev.Severity == watch.SeverityNote && ev.ID != watch.EventKnownBug {
			continue
		}
		b.WriteString(EventLine(ev) + "\n")
		if ev.Line != "" {
			b.WriteString("    " + ev.Line + "\n")
		}
	}
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
		s := "on, not for every connection"
		if r := v.GDRRanks; r != nil {
			if len(r.No) > 0 {
				s += "; not for ranks " + rankList(r.No)
			}
			if len(r.Partly) > 0 {
				s += "; in part for ranks " + rankList(r.Partly)
			}
		}
		return s
	}
	return "on"
}

// rankList writes ascending ranks as ranges: "0-7, 12", at most a dozen of them.
func rankList(ranks []int) string {
	var out []string
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		if len(out) == 12 {
			return strings.Join(out, ", ") + ", …"
		}
		if k == i {
			out = append(out, strconv.Itoa(ranks[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", ranks[i], ranks[k]))
		}
		i = k + 1
	}
	return strings.Join(out, ", ")
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
