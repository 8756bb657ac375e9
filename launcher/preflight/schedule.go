package preflight

import (
	"fmt"
	"slices"
)

// Pair is two hosts, by index, that test each other on every rail, first A to
// B, then back.
type Pair struct{ A, B int }

// Mode says how many pairs are tested.
type Mode string

// The modes.
const (
	Quick Mode = "quick" // every port once (one of an odd number twice)
	Ring  Mode = "ring"  // every host with its two neighbours
	Full  Mode = "full"  // every host with every other
)

// Schedule returns rounds of disjoint pairs of n hosts. A round of an even
// number of hosts is a perfect matching; of an odd number one host rests, a
// different one each time.
func Schedule(n int, m Mode) [][]Pair {
	switch {
	case n < 2:
		return nil
	case n == 2:
		return [][]Pair{{{0, 1}}}
	}
	switch m {
	case Ring:
		var even, odd []Pair
		for i := 0; i+1 < n; i += 2 {
			even = append(even, Pair{i, i + 1})
		}
		for i := 1; i+1 < n; i += 2 {
			odd = append(odd, Pair{i, i + 1})
		}
		if n%2 == 0 {
			return [][]Pair{even, append(odd, Pair{n - 1, 0})}
		}
		return [][]Pair{even, odd, {{n - 1, 0}}}
	case Full:
		return circle(n)
	default:
		// Halves against each other: neighbours in a host list share a switch,
		// and the switches between are what is to be tested.
		half := n / 2
		round := make([]Pair, 0, half)
		for i := range half {
			round = append(round, Pair{i, i + half})
		}
		if n%2 == 0 {
			return [][]Pair{round}
		}
		return [][]Pair{round, {{n - 1, 0}}}
	}
}

// circle is the round-robin of the chess tournament: one player stays, the
// others move round the table.
func circle(n int) [][]Pair {
	players := n + n%2
	rounds := make([][]Pair, players-1)
	all := make([]Pair, 0, (players-1)*(n/2))
	for r := range rounds {
		start := len(all)
		for i := range players / 2 {
			a, b := (r+i)%(players-1), (r+players-1-i)%(players-1)
			if i == 0 {
				b = players - 1
			}
			if a < n && b < n {
				all = append(all, Pair{a, b})
			}
		}
		rounds[r] = all[start:len(all):len(all)]
	}
	return rounds
}

// Coverage says in words what a mode has shown of n hosts with rails each.
func Coverage(n, rails int, m Mode) string {
	switch s := Schedule(n, m); {
	case n < 2:
		return "no pair: one host alone"
	case m == Full:
		return fmt.Sprintf("all %d pairs of %d hosts on %s, both ways, in %d rounds", n*(n-1)/2, n, railCount(rails), len(s))
	case m == Ring:
		return fmt.Sprintf("every host with its neighbours on %s, both ways, in %d rounds; other pairs not tested", railCount(rails), len(s))
	case n%2 == 1:
		return fmt.Sprintf("all %d ports once and one host's twice (odd number of hosts), both ways; %d of %d pairs", n*rails, n/2+1, n*(n-1)/2)
	default:
		return fmt.Sprintf("all %d ports once, both ways; %d of %d pairs", n*rails, n/2, n*(n-1)/2)
	}
}

func railCount(n int) string {
	if n == 1 {
		return "1 rail"
	}
	return fmt.Sprintf("%d rails", n)
}

// Outcome is one direction of one pair on one rail.
type Outcome struct {
	Gbps    *float64
	Usec    *float64
	Error   string  // ID of what failed, "timeout", or the transport's words; "" it ran
	Said    string  // the program's own line about the failure
	Verdict Verdict // Good, Degraded, Broken; Unknown where only reachability was shown

	MTU      *int     // RDMA MTU of the connection, bytes
	OfGPU    bool     // Gbps is between the memories of GPUs
	HostGbps *float64 // with OfGPU: the same between host memories
	Others   *float64 // Gb/s of the fastest software device, where that accuses this one
	Tool     string   // what showed reachability; "" perftest
}

// stagingFactor: GPU memory that is this much slower than host memory is
// copied through it.
const stagingFactor = 5

// Staged says whether GPU memory goes by way of host memory.
func (o Outcome) Staged() bool {
	return o.OfGPU && o.Gbps != nil && o.HostGbps != nil && *o.HostGbps >= stagingFactor**o.Gbps
}

// Bad says whether the outcome accuses somebody.
func (o Outcome) Bad() bool { return o.Verdict == Degraded || o.Verdict == Broken }

// Probe is one test to run: both directions on one rail.
type Probe struct {
	Pair
	Rail int
}

// Measured is a Probe with its two outcomes.
type Measured struct {
	Probe
	There Outcome // A sends to B
	Back  Outcome // B sends to A
}

// Direction is the way in which a port is at fault.
type Direction string

// The directions.
const (
	Sending   Direction = "sending"
	Receiving Direction = "receiving"
	Both      Direction = "both"
)

// Culprit is who is to blame.
type Culprit struct {
	Kind      string    // "port", "node", "group" (they reach each other only), "path", "rail", "pair" (either end)
	Hosts     []int     // one; for path and pair two; for group and rail many
	Rail      int       // -1: all rails
	Direction Direction // of a port or node
	Dead      bool      // nothing got through at all
	Worst     Outcome
}

// portKey is one port of the job.
type portKey struct{ host, rail int }

// evidence is what is known of one port.
type evidence struct {
	clean     bool // both directions good with somebody
	bad       bool
	tx, rx    bool // bad with a port that is clean
	confirmed int
	dead      bool
	worst     Outcome
}

// maxLocateRounds bounds re-pairing: three rounds name one fault among any
// number; more are used only where suspects outnumber the good ends.
const maxLocateRounds = 8

// Locate finds who is to blame for bad outcomes by testing suspects against
// ports that are known to be good. probe runs one round of disjoint tests. It
// returns the culprits and how many rounds that took.
func Locate(measured []Measured, probe func([]Probe) []Measured) ([]Culprit, int) {
	l := locator{ports: map[portKey]*evidence{}, tried: map[[2]portKey]bool{}}
	l.add(measured)
	var bad []Measured
	for _, m := range measured {
		if m.There.Bad() || m.Back.Bad() {
			bad = append(bad, m)
		}
	}
	if len(bad) == 0 {
		return nil, 0
	}
	rounds := 0
	for rounds < maxLocateRounds {
		next := l.next(2)
		if len(next) == 0 {
			break
		}
		l.add(probe(next))
		rounds++
	}
	rounds += l.groups(probe)
	return l.verdict(bad, probe, &rounds), rounds
}

type locator struct {
	ports  map[portKey]*evidence
	tried  map[[2]portKey]bool
	seen   []Measured
	asked  int // rounds of next
	groupd []Culprit
}

func (l *locator) port(k portKey) *evidence {
	e := l.ports[k]
	if e == nil {
		e = &evidence{}
		l.ports[k] = e
	}
	return e
}

func (l *locator) keys() []portKey {
	ks := make([]portKey, 0, len(l.ports))
	for k := range l.ports {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, func(a, b portKey) int {
		if a.rail != b.rail {
			return a.rail - b.rail
		}
		return a.host - b.host
	})
	return ks
}

func pairKey(a, b portKey) [2]portKey {
	if a.host > b.host {
		a, b = b, a
	}
	return [2]portKey{a, b}
}

// add takes outcomes in and judges all of them anew: a port that turned out
// to be good changes who is to blame for what was seen before.
func (l *locator) add(more []Measured) {
	l.seen = append(l.seen, more...)
	ms := l.seen
	clear(l.ports)
	for _, m := range ms {
		a, b := portKey{m.A, m.Rail}, portKey{m.B, m.Rail}
		l.tried[pairKey(a, b)] = true
		ea, eb := l.port(a), l.port(b)
		if !m.There.Bad() && !m.Back.Bad() {
			ea.clean, eb.clean = true, true
			continue
		}
		ea.bad, eb.bad = true, true
	}
	for _, m := range ms {
		if !m.There.Bad() && !m.Back.Bad() {
			continue
		}
		a, b := l.port(portKey{m.A, m.Rail}), l.port(portKey{m.B, m.Rail})
		blame := func(e, other *evidence, tx, rx Outcome) {
			if !other.clean || e.clean {
				return
			}
			e.tx, e.rx = e.tx || tx.Bad(), e.rx || rx.Bad()
			e.confirmed++
			e.dead = tx.Gbps == nil && rx.Gbps == nil && tx.Error != "" && rx.Error != ""
			for _, o := range []Outcome{tx, rx} {
				if o.Bad() && (e.worst.Verdict == "" || o.Gbps == nil || e.worst.Gbps != nil && *o.Gbps < *e.worst.Gbps) {
					e.worst = o
				}
			}
		}
		blame(a, b, m.There, m.Back)
		blame(b, a, m.Back, m.There)
	}
}

// next pairs every suspect with a clean port of its rail that it has not met.
// A suspect is bad, not clean, and blamed fewer than want times.
func (l *locator) next(want int) []Probe {
	var out []Probe
	ks := l.keys()
	byRail := map[int][]portKey{}
	for _, k := range ks {
		if e := l.ports[k]; e.clean && !e.bad {
			byRail[k.rail] = append(byRail[k.rail], k)
		}
	}
	suspects := map[int][]portKey{}
	for _, k := range ks {
		if e := l.ports[k]; e.bad && !e.clean {
			suspects[k.rail] = append(suspects[k.rail], k)
		}
	}
	defer func() { l.asked++ }()
	used := map[portKey]bool{}
	at := map[int]int{}
	for _, k := range ks {
		e := l.ports[k]
		if used[k] || !e.bad || e.clean || e.confirmed >= want {
			continue
		}
		good := byRail[k.rail]
		if len(good) == 0 && l.asked < 2 {
			// Nobody of this rail is known to be good: suspects that have not met
			// may clear each other.
			good = suspects[k.rail]
		}
		// From the suspect's own place onwards: partners spread over switches,
		// and each is used once.
		for i := range good {
			g := good[(at[k.rail]+i+k.host)%len(good)]
			if g == k || used[g] || l.tried[pairKey(k, g)] {
				continue
			}
			used[g], used[k] = true, true
			at[k.rail]++
			out = append(out, Probe{Pair{k.host, g.host}, k.rail})
			break
		}
	}
	return out
}

// groups tests the blamed ports of a rail among themselves: those that reach
// each other well but nobody else share a switch, not a fault of their own.
func (l *locator) groups(probe func([]Probe) []Measured) int {
	byRail := map[int][]portKey{}
	for _, k := range l.keys() {
		if e := l.ports[k]; e.confirmed > 0 && !e.clean {
			byRail[k.rail] = append(byRail[k.rail], k)
		}
	}
	var ps []Probe
	for rail, ks := range byRail {
		if len(ks) < 3 {
			continue // two bad ports are two bad ports
		}
		for i := 0; i+1 < len(ks); i += 2 {
			ps = append(ps, Probe{Pair{ks[i].host, ks[i+1].host}, rail})
		}
		if len(ks)%2 == 1 {
			// The last one meets the first in the same round only if it must; it
			// is judged by its neighbours.
			continue
		}
	}
	if len(ps) == 0 {
		return 0
	}
	slices.SortFunc(ps, func(a, b Probe) int {
		if a.Rail != b.Rail {
			return a.Rail - b.Rail
		}
		return a.A - b.A
	})
	fine := map[int][]int{}
	for _, m := range probe(ps) {
		if !m.There.Bad() && !m.Back.Bad() {
			fine[m.Rail] = append(fine[m.Rail], m.A, m.B)
		}
	}
	for _, rail := range sortedKeys(byRail) {
		in := fine[rail]
		ks := byRail[rail]
		if len(in) < 2 || len(in) < len(ks)-1 && len(in) < 4 {
			continue
		}
		if len(in) == len(ks)-1 {
			in = append(in, ks[len(ks)-1].host)
		}
		slices.Sort(in)
		c := Culprit{Kind: "group", Hosts: in, Rail: rail, Direction: Both, Worst: l.ports[portKey{in[0], rail}].worst}
		l.groupd = append(l.groupd, c)
		for _, h := range in {
			l.ports[portKey{h, rail}].confirmed = 0
			l.ports[portKey{h, rail}].clean = true
		}
	}
	return 1
}

func sortedKeys[V any](m map[int]V) []int {
	ks := make([]int, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// verdict turns evidence into names.
func (l *locator) verdict(bad []Measured, probe func([]Probe) []Measured, rounds *int) []Culprit {
	rails := map[int]bool{}
	for k := range l.ports {
		rails[k.rail] = true
	}
	blamed := map[int][]portKey{} // by host
	var out []Culprit
	for _, k := range l.keys() {
		if e := l.ports[k]; e.confirmed > 0 && !e.clean {
			blamed[k.host] = append(blamed[k.host], k)
		}
	}
	inGroup := map[portKey]bool{}
	for _, g := range l.groupd {
		for _, h := range g.Hosts {
			inGroup[portKey{h, g.Rail}] = true
		}
	}
	// The same hosts cut off on every rail are one group.
	out = append(out, mergeGroups(l.groupd, len(rails))...)
	for _, h := range sortedKeys(blamed) {
		ks := blamed[h]
		if len(ks) == len(rails) && len(rails) > 1 {
			c := Culprit{Kind: "node", Hosts: []int{h}, Rail: -1, Direction: l.direction(ks[0]), Dead: true, Worst: l.ports[ks[0]].worst}
			for _, k := range ks {
				c.Dead = c.Dead && l.ports[k].dead
				if l.direction(k) != c.Direction {
					c.Direction = Both
				}
			}
			out = append(out, c)
			continue
		}
		for _, k := range ks {
			out = append(out, Culprit{Kind: "port", Hosts: []int{h}, Rail: k.rail, Direction: l.direction(k), Dead: l.ports[k].dead, Worst: l.ports[k].worst})
		}
	}
	// What nobody was blamed for: both ends are good with others, or nobody
	// good was there to test against.
	var again []Probe
	open := map[int][]Measured{}
	for _, m := range bad {
		a, b := portKey{m.A, m.Rail}, portKey{m.B, m.Rail}
		ea, eb := l.ports[a], l.ports[b]
		switch {
		case inGroup[a] || inGroup[b]:
		case ea.confirmed > 0 && !ea.clean || eb.confirmed > 0 && !eb.clean:
		case ea.clean && eb.clean:
			again = append(again, m.Probe)
		default:
			open[m.Rail] = append(open[m.Rail], m)
		}
	}
	if len(again) > 0 {
		// Two pairs of one round could share a port in ring and full schedules.
		for len(again) > 0 {
			used := map[portKey]bool{}
			var now, later []Probe
			for _, p := range again {
				a, b := portKey{p.A, p.Rail}, portKey{p.B, p.Rail}
				if used[a] || used[b] {
					later = append(later, p)
					continue
				}
				used[a], used[b] = true, true
				now = append(now, p)
			}
			for _, m := range probe(now) {
				if m.There.Bad() || m.Back.Bad() {
					out = append(out, Culprit{Kind: "path", Hosts: []int{m.A, m.B}, Rail: m.Rail, Direction: directionOf(m.There.Bad(), m.Back.Bad()), Worst: worse(m.There, m.Back)})
				}
			}
			*rounds++
			again = later
			if *rounds >= 2*maxLocateRounds {
				break
			}
		}
	}
	for _, rail := range sortedKeys(open) {
		ms := open[rail]
		hosts := []int{}
		for _, m := range ms {
			for _, h := range []int{m.A, m.B} {
				if !slices.Contains(hosts, h) {
					hosts = append(hosts, h)
				}
			}
		}
		if len(hosts) > 2 {
			slices.Sort(hosts)
			out = append(out, Culprit{Kind: "rail", Hosts: hosts, Rail: rail, Direction: Both, Worst: worse(ms[0].There, ms[0].Back)})
			continue
		}
		m := ms[0]
		out = append(out, Culprit{Kind: "pair", Hosts: []int{m.A, m.B}, Rail: rail, Direction: directionOf(m.There.Bad(), m.Back.Bad()), Worst: worse(m.There, m.Back)})
	}
	return out
}

func mergeGroups(gs []Culprit, rails int) []Culprit {
	var out []Culprit
	for _, g := range gs {
		i := slices.IndexFunc(out, func(o Culprit) bool { return slices.Equal(o.Hosts, g.Hosts) })
		if i < 0 {
			out = append(out, g)
			continue
		}
		same := 0
		for _, o := range gs {
			if slices.Equal(o.Hosts, g.Hosts) {
				same++
			}
		}
		if same == rails {
			out[i].Rail = -1
		} else {
			out = append(out, g)
		}
	}
	return out
}

func (l *locator) direction(k portKey) Direction {
	e := l.ports[k]
	return directionOf(e.tx, e.rx)
}

func directionOf(tx, rx bool) Direction {
	switch {
	case tx && !rx:
		return Sending
	case rx && !tx:
		return Receiving
	}
	return Both
}

func worse(a, b Outcome) Outcome {
	switch {
	case !a.Bad():
		return b
	case !b.Bad():
		return a
	case a.Gbps == nil:
		return a
	case b.Gbps == nil || *b.Gbps < *a.Gbps:
		return b
	}
	return a
}
