package hosts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fabrun/topology/finding"
)

// Counts is what is known of one machine, as plain numbers; nil is unknown.
type Counts struct {
	Cores          *int // physical cores that the job may use
	GPUs           *int
	NUMANodes      *int // with CPUs
	MemoryChannels *int // populated, of the whole machine
}

// Policy says by what the ranks of one host are counted. The zero value says
// nothing: the allocation's slots, or the launcher's own count, stand.
type Policy struct {
	By         string // "cores", "gpus", "numa", "node" (one rank each), "channels"; "" not said
	PerChannel int    // ranks per memory channel, for "channels"
}

// ParsePolicy reads "cores", "gpus", "numa", "node" and "channels:N".
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "":
		return Policy{}, nil
	case "cores", "gpus", "numa", "node":
		return Policy{By: s}, nil
	}
	if n, ok := strings.CutPrefix(s, "channels:"); ok {
		if v, err := strconv.ParseUint(n, 10, 8); err == nil && v > 0 {
			return Policy{By: "channels", PerChannel: int(v)}, nil
		}
	}
	return Policy{}, fmt.Errorf("slots %s: wanted cores, gpus, numa, node or channels:N (N ranks per memory channel)", quote(s))
}

// Job is what Place has to know beside the allocation.
type Job struct {
	NP           *int // the user's -np; nil: the policy chooses
	Policy       Policy
	ReserveCores int               // cores of each host left to the system
	Channels     *int              // memory channels of a host, where the machine does not tell (the profile's word)
	Counts       map[string]Counts // by host name; a missing host is unknown
	// Oversubscribe: the user allows more ranks than slots.
	Oversubscribe bool
	// Threads: the user has the launcher count hardware threads as slots.
	Threads bool
}

// Placement is how many ranks each host gets.
type Placement struct {
	// Hosts are those that get ranks, in order, with Slots set to their number.
	// Where nothing is known to count by they are the allocation's own.
	Hosts []Host
	NP    int // 0: the launcher counts for itself
	// Hostfile says that the launcher has to be told: there is no resource
	// manager, or the placement is narrower than what the manager gave.
	Hostfile bool
	Findings []finding.Finding
}

// Place spreads ranks over all hosts of an allocation. A user's np is spread
// evenly where it is a multiple of the hosts and each has room, otherwise in
// proportion to the room; without np the policy decides. It never goes above
// the slots that the allocation gives: where a user's np does, that is reported,
// and the launcher decides.
func Place(a Allocation, j Job) (Placement, error) {
	if len(a.Hosts) == 0 {
		return Placement{}, ErrNoHosts
	}
	if j.NP != nil && *j.NP < 1 {
		return Placement{}, fmt.Errorf("%d ranks: wanted at least one", *j.NP)
	}
	var p Placement
	room := make([]*int, len(a.Hosts))
	for i, h := range a.Hosts {
		room[i] = hostRoom(h, j)
	}
	ranks := make([]int, len(a.Hosts))
	switch {
	case j.NP != nil:
		ranks = spread(*j.NP, room)
		p.judgeNP(a, j, room, ranks)
	default:
		want := policySlots(a, j, &p)
		if want == nil {
			if slices.ContainsFunc(a.Hosts, func(h Host) bool { return h.Slots == nil }) {
				p.Hosts, p.Hostfile = a.Hosts, a.Manager == "" || a.Source != a.Manager
				return p, nil
			}
			for i, h := range a.Hosts {
				ranks[i] = *h.Slots
			}
			break
		}
		ranks = want
	}
	narrower := a.Source != a.Manager
	for i, h := range a.Hosts {
		p.NP += ranks[i]
		if h.Slots != nil && ranks[i] < *h.Slots {
			narrower = true
		}
		if ranks[i] == 0 {
			continue
		}
		slots := ranks[i]
		if most := limit(h, j); most != nil && !j.Oversubscribe {
			// The launcher is not told of more than there is: it refuses more ranks, or
			// takes them, as it would without fabrun.
			slots = min(slots, *most)
		}
		h.Slots = &slots
		p.Hosts = append(p.Hosts, h)
	}
	p.Hostfile = a.Manager == "" || narrower
	if told(p.Hosts) < p.NP {
		return p, nil // judgeNP has said how they lie
	}
	p.Findings = append(p.Findings, finding.Finding{
		ID: "slots.ranks-per-host", Severity: finding.Note, Subject: "placement",
		Seen: describe(p), Wanted: "", Why: "where the ranks run", Hint: "",
	})
	return p, nil
}

// limit is how many slots a host has for the launcher: those given, else a core
// each; nil unknown.
func limit(h Host, j Job) *int {
	if h.Slots == nil && j.Threads {
		return nil
	}
	return hostRoom(h, Job{Counts: j.Counts}) // a launcher knows of no reserved cores
}

func told(hs []Host) int {
	sum := 0
	for _, h := range hs {
		sum += *h.Slots
	}
	return sum
}

// hostRoom is how many ranks a host can hold: the slots it has, else its cores.
func hostRoom(h Host, j Job) *int {
	if h.Slots != nil {
		return h.Slots
	}
	return usableCores(h, j)
}

// usableCores is a host's cores without the reserved ones, and never more than
// the CPUs that the manager gave; nil unknown.
func usableCores(h Host, j Job) *int {
	cores := j.Counts[h.Name].Cores
	if cores == nil {
		return h.CPUs
	}
	n := max(1, *cores-j.ReserveCores)
	if h.CPUs != nil {
		n = min(n, *h.CPUs)
	}
	return &n
}

// spread divides np over the hosts.
func spread(np int, room []*int) []int {
	ranks := make([]int, len(room))
	total, known := 0, true
	fits := np%len(room) == 0
	for _, r := range room {
		if r == nil {
			known = false
			continue
		}
		total += *r
		fits = fits && np/len(room) <= *r
	}
	if fits || !known || total == 0 {
		for i := range ranks {
			ranks[i] = np / len(room)
			if i < np%len(room) {
				ranks[i]++
			}
		}
		return ranks
	}
	// Largest remainder; ties go to the first hosts.
	rest := np
	type part struct{ host, remainder int }
	parts := make([]part, len(room))
	for i, r := range room {
		ranks[i] = np * *r / total
		rest -= ranks[i]
		parts[i] = part{i, np * *r % total}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.remainder, a.remainder) })
	for _, q := range parts[:rest] {
		ranks[q.host]++
	}
	return ranks
}

// judgeNP says what a user's np makes of the hosts.
func (p *Placement) judgeNP(a Allocation, j Job, room []*int, ranks []int) {
	slots, known := 0, true
	for _, h := range a.Hosts {
		if h.Slots == nil {
			known = false
			break
		}
		slots += *h.Slots
	}
	if known && *j.NP > slots && !j.Oversubscribe {
		hint := fmt.Sprintf("-np %d, or ask for more", slots)
		if a.Manager == "" {
			hint = fmt.Sprintf("-np %d, or more slots: %s:%d", slots, a.Hosts[0].Name, (*j.NP+len(a.Hosts)-1)/len(a.Hosts))
		}
		has := fmt.Sprintf("%s on %s", count(slots, "slot"), count(len(a.Hosts), "host"))
		p.Findings = append(p.Findings, finding.Finding{
			ID: "slots.not-enough", Severity: finding.Error, Subject: "-np",
			Seen: fmt.Sprintf("-np %d, and %s has %s", *j.NP, a.Source, has), Wanted: "at most " + count(slots, "rank"),
			Why:  "launchers refuse this, or several ranks share a core",
			Hint: hint,
		})
	}
	idle := 0
	for _, r := range ranks {
		if r == 0 {
			idle++
		}
	}
	if idle > 0 {
		p.Findings = append(p.Findings, finding.Finding{
			ID: "slots.idle-hosts", Severity: finding.Warning, Subject: "-np",
			Seen: count(*j.NP, "rank") + " for " + count(len(a.Hosts), "host"), Wanted: "at least one rank per host",
			Why:  "idle: " + count(idle, "host"),
			Hint: fmt.Sprintf("-np %d gives every host a rank", len(a.Hosts)),
		})
	}
	for i, h := range a.Hosts {
		cores := usableCores(h, j)
		if cores == nil || ranks[i] <= *cores {
			continue
		}
		p.Findings = append(p.Findings, finding.Finding{
			ID: "slots.oversubscribed", Severity: finding.Warning, Host: h.Name, Subject: "-np",
			Seen: count(ranks[i], "rank") + " on " + count(*cores, "usable core"), Wanted: "a core for each rank",
			Why:  "ranks that share a core wait for each other in every exchange",
			Hint: "fewer ranks, or more hosts; where it is meant, Open MPI wants --oversubscribe",
		})
		break // one host stands for all of its kind
	}
}

// policySlots returns the ranks of each host by the policy, or nil where no
// policy was given or what it counts is not known for some host.
func policySlots(a Allocation, j Job, p *Placement) []int {
	if j.Policy.By == "" {
		return nil
	}
	ranks := make([]int, len(a.Hosts))
	for i, h := range a.Hosts {
		n, what := policyCount(h, j)
		if n == nil {
			hint := "give -np, or NAME:SLOTS in --hosts"
			if j.Policy.By == "channels" {
				hint += ", or memory_channels = N in a workload profile"
			}
			p.Findings = append(p.Findings, finding.Finding{
				ID: "slots.unknown", Severity: finding.Warning, Host: h.Name, Subject: "slots by " + j.Policy.By,
				Seen: what + " is not known", Wanted: "a number",
				Why:  "ranks cannot be counted by it; the allocation's own slots are used",
				Hint: hint,
			})
			return nil
		}
		ranks[i] = *n
		limit, limitName := usableCores(h, j), "usable cores"
		if h.Slots != nil && (limit == nil || *h.Slots < *limit) {
			limit, limitName = h.Slots, "slots of the allocation"
		}
		if limit != nil && ranks[i] > *limit {
			ranks[i] = *limit
			if !slices.ContainsFunc(p.Findings, func(f finding.Finding) bool { return f.ID == "slots.capped" }) {
				p.Findings = append(p.Findings, finding.Finding{
					ID: "slots.capped", Severity: finding.Note, Host: h.Name, Subject: "slots by " + j.Policy.By,
					Seen: fmt.Sprintf("%d by %s, %d %s", *n, j.Policy.By, *limit, limitName), Wanted: fmt.Sprintf("%d", *n),
					Why:  "no more ranks are placed than the allocation allows",
					Hint: "ask the resource manager for more tasks per node to use the policy's number",
				})
			}
		}
	}
	if !slices.ContainsFunc(ranks, func(n int) bool { return n > 0 }) {
		p.Findings = append(p.Findings, finding.Finding{
			ID: "slots.unknown", Severity: finding.Warning, Subject: "slots by " + j.Policy.By,
			Seen: "no host has any", Wanted: "at least one", Why: "there is nothing to count ranks by; the allocation's own slots are used",
			Hint: "choose another policy, or give -np",
		})
		return nil
	}
	return ranks
}

// policyCount is what the policy counts on one host, and its name for people.
func policyCount(h Host, j Job) (n *int, what string) {
	c := j.Counts[h.Name]
	switch j.Policy.By {
	case "cores":
		return usableCores(h, j), "the number of cores"
	case "gpus":
		if h.GPUs != nil && (c.GPUs == nil || *h.GPUs < *c.GPUs) {
			return h.GPUs, "the number of GPUs"
		}
		return c.GPUs, "the number of GPUs"
	case "numa":
		return c.NUMANodes, "the number of NUMA nodes"
	case "node":
		one := 1
		return &one, "one"
	}
	channels := c.MemoryChannels
	if channels == nil {
		channels = j.Channels
	}
	if channels == nil {
		return nil, "the number of memory channels"
	}
	ranks := *channels * j.Policy.PerChannel
	return &ranks, "the number of memory channels"
}

// describe says in one line what went where.
func describe(p Placement) string {
	low, high := *p.Hosts[0].Slots, *p.Hosts[0].Slots
	more := 0
	for _, h := range p.Hosts {
		low, high = min(low, *h.Slots), max(high, *h.Slots)
	}
	for _, h := range p.Hosts {
		if *h.Slots == high {
			more++
		}
	}
	head := fmt.Sprintf("%s on %s", count(p.NP, "rank"), count(len(p.Hosts), "host"))
	switch {
	case low == high:
		return fmt.Sprintf("%s: %d per host", head, low)
	case high == low+1:
		return fmt.Sprintf("%s: %d on %s, %d on %s", head, high, count(more, "host"), low, count(len(p.Hosts)-more, "host"))
	}
	return fmt.Sprintf("%s: %d to %d per host", head, low, high)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
