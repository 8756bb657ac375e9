package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"fabrun/launcher/hosts"
	"fabrun/topology/finding"
)

// Hosts writes an allocation for a person: how many hosts and where from, then
// equal neighbours in one line each.
func Hosts(w io.Writer, a hosts.Allocation) error {
	var b strings.Builder
	from := cmp.Or(hosts.SchedulerNamed(a.Source).Title, a.Source)
	if a.JobID != "" {
		from += " job " + printable(a.JobID)
	}
	n := max(len(a.Hosts), a.Nodes)
	if a.Source == "localhost" {
		b.WriteString("this machine alone: no --hosts, no --hostfile and no allocation")
	} else {
		fmt.Fprintf(&b, "%d %s from %s", n, plural(n, "host"), from)
	}
	if total, known := slots(a.Hosts); known && len(a.Hosts) > 0 {
		fmt.Fprintf(&b, ", %d %s", total, plural(total, "slot"))
	}
	b.WriteByte('\n')
	for i := 0; i < len(a.Hosts); {
		end := i + 1
		for end < len(a.Hosts) && hostColumns(a.Hosts[end]) == hostColumns(a.Hosts[i]) {
			end++
		}
		names := hosts.Allocation{Hosts: a.Hosts[i:end]}.Names()
		fmt.Fprintf(&b, "  %-32s %s\n", hosts.Compress(names), hostColumns(a.Hosts[i]))
		i = end
	}
	if a.Nodes > len(a.Hosts) {
		fmt.Fprintf(&b, "  %d more, which the environment does not name\n", a.Nodes-len(a.Hosts))
	}
	for _, f := range a.Findings {
		fmt.Fprintf(&b, "%s: %s: %s\n    %s\n", f.Severity, f.Subject, f.Seen, f.Why)
		if f.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", f.Hint)
		}
	}
	_, err := io.WriteString(w, Printable(b.String()))
	return err
}

// hostColumns is everything but the name: hosts that agree in it share a line.
func hostColumns(h hosts.Host) string {
	words := []string{"slots unknown"}
	if h.Slots != nil {
		words[0] = strconv.Itoa(*h.Slots) + " " + plural(*h.Slots, "slot")
	}
	if h.CPUs != nil {
		words = append(words, fmt.Sprintf("%d %s", *h.CPUs, plural(*h.CPUs, "CPU")))
	}
	if h.GPUs != nil {
		words = append(words, fmt.Sprintf("%d %s", *h.GPUs, plural(*h.GPUs, "GPU")))
	}
	if h.User != "" {
		words = append(words, "user "+h.User)
	}
	if h.Port != nil {
		words = append(words, "port "+strconv.Itoa(*h.Port))
	}
	return strings.Join(words, ", ")
}

func slots(all []hosts.Host) (total int, known bool) {
	for _, h := range all {
		if h.Slots == nil {
			return 0, false
		}
		total += *h.Slots
	}
	return total, true
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// printable keeps text from outside on one line and free of control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

type hostsJSON struct {
	Schema   string            `json:"schema"`
	Source   string            `json:"source"`
	Manager  *string           `json:"manager"`
	JobID    *string           `json:"job_id"`
	Nodes    int               `json:"nodes"` // of the job; more than hosts where only their number is known
	Self     *int              `json:"self"`  // index of this machine; null: it is none of them or that is not known
	Hosts    []hostJSON        `json:"hosts"`
	Findings []finding.Finding `json:"findings"`
}

type hostJSON struct {
	Name    string  `json:"name"`
	Slots   *int    `json:"slots"`   // null: not said
	Address *string `json:"address"` // by which it is reached, where that is not its name
	CPUs    *int    `json:"cpus"`
	GPUs    *int    `json:"gpus"`
}

// HostsJSON writes an allocation as fabrun/hosts/v1.
func HostsJSON(w io.Writer, a hosts.Allocation) error {
	out := hostsJSON{
		Schema: "fabrun/hosts/v1", Source: a.Source, Manager: orNull(a.Manager), JobID: orNull(a.JobID),
		Nodes: max(len(a.Hosts), a.Nodes), Self: a.Self,
		Hosts: make([]hostJSON, len(a.Hosts)), Findings: append([]finding.Finding{}, a.Findings...),
	}
	for i, h := range a.Hosts {
		out.Hosts[i] = hostJSON{h.Name, h.Slots, orNull(h.Address), h.CPUs, h.GPUs}
	}
	return writeJSON(w, out)
}

// orNull is nil for the empty string, which stands for unknown.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
