package measure

import (
	"cmp"
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

// Shown says whether the outcome is evidence at all: a program that was missing
// shows nothing of a port.
func (o Outcome) Shown() bool { return o.Verdict != Unknown || o.Error == "" }

// Untested returns the ports, as host and rail, of which no test has shown
// anything. has says whether a host has a port on a rail.
func Untested(ms []Measured, hosts, rails int, has func(host, rail int) bool) [][2]int {
	seen := map[portKey]bool{}
	for _, m := range ms {
		if m.There.Shown() || m.Back.Shown() {
			seen[portKey{m.A, m.Rail}], seen[portKey{m.B, m.Rail}] = true, true
		}
	}
	var out [][2]int
	for h := range hosts {
		for r := range rails {
			if has(h, r) && !seen[portKey{h, r}] {
				out = append(out, [2]int{h, r})
			}
		}
	}
	return out
}

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

// maxLocateRounds bounds re-pairing: three rounds name one fault among any
// number; more are used only where suspects outnumber the good ends, or several
// faults hide each other.
const maxLocateRounds = 8

// Locate finds who is to blame for bad outcomes by testing suspects against
// ports that are known to be good. probe runs one round of disjoint tests. It
// returns the culprits and how many rounds that took.
//
// Good tests join ports to parts that reach each other; parts between which no
// test failed are taken for one fabric, the largest first. A port without a
// good test is a suspect, a part that fails towards the fabric an island.
func Locate(measured []Measured, probe func([]Probe) []Measured) ([]Culprit, int) {
	l := &locator{tried: map[[2]portKey]int{}, sure: map[portKey]bool{}}
	l.add(measured)
	if !slices.ContainsFunc(measured, func(m Measured) bool { return m.There.Bad() || m.Back.Bad() }) {
		return nil, 0
	}
	rounds := 0
	for rounds < maxLocateRounds {
		next := l.next(rounds)
		if len(next) == 0 {
			break
		}
		l.add(probe(next))
		rounds++
	}
	out := l.verdict(probe, &rounds)
	return out, rounds
}

type locator struct {
	tried map[[2]portKey]int
	sure  map[portKey]bool // ports by which a doubted part of the fabric was tested
	seen  []Measured
	rails map[int]*railState
}

// part is a set of ports that reach each other by good tests; a single port
// without any is a part of one.
type part struct {
	ports   []portKey // by host
	fine    bool      // taken for the fabric
	against int       // ports of the other parts with which a test failed
}

// railState is what all tests so far say of one rail.
type railState struct {
	parts  []*part // the fabric's first
	of     map[portKey]*part
	bad    map[portKey][]Measured // failed tests of a port
	fabric []portKey              // ports of all fine parts, by host
}

func pairKey(a, b portKey) [2]portKey {
	if a.host > b.host {
		a, b = b, a
	}
	return [2]portKey{a, b}
}

func (m Measured) ends() (a, b portKey) { return portKey{m.A, m.Rail}, portKey{m.B, m.Rail} }

func (m Measured) bad() bool { return m.There.Bad() || m.Back.Bad() }

func byHost(a, b portKey) int { return a.host - b.host }

// add takes outcomes in and judges all of them anew: a port that turned out to
// be good changes who is to blame for what was seen before.
func (l *locator) add(more []Measured) {
	for _, m := range more {
		if m.There.Shown() || m.Back.Shown() {
			l.seen = append(l.seen, m)
		}
	}
	l.rails = map[int]*railState{}
	for _, m := range l.seen {
		r := l.rails[m.Rail]
		if r == nil {
			r = &railState{of: map[portKey]*part{}, bad: map[portKey][]Measured{}}
			l.rails[m.Rail] = r
		}
		a, b := m.ends()
		for _, k := range []portKey{a, b} {
			if r.of[k] == nil {
				r.of[k] = &part{ports: []portKey{k}}
			}
		}
		if m.bad() {
			r.bad[a], r.bad[b] = append(r.bad[a], m), append(r.bad[b], m)
			continue
		}
		if pa, pb := r.of[a], r.of[b]; pa != pb {
			if len(pa.ports) < len(pb.ports) {
				pa, pb = pb, pa
			}
			pa.ports = append(pa.ports, pb.ports...)
			for _, k := range pb.ports {
				r.of[k] = pa
			}
		}
	}
	for _, m := range more {
		a, b := m.ends()
		l.tried[pairKey(a, b)]++
	}
	for _, r := range l.rails {
		r.settle()
	}
}

// settle orders the parts and says which are the fabric: every part of two
// ports or more that has no failed test with it, those first that contradict the
// fewest ports: an island contradicts all the fabric that it was tested with.
func (r *railState) settle() {
	for _, k := range sortedPorts(r.of) {
		if p := r.of[k]; !slices.Contains(r.parts, p) {
			slices.SortFunc(p.ports, byHost)
			r.parts = append(r.parts, p)
		}
	}
	for _, p := range r.parts {
		seen := map[*part]bool{p: true}
		for _, k := range p.ports {
			for _, m := range r.bad[k] {
				if o := r.other(m, k); len(o.ports) > 1 && !seen[o] {
					seen[o] = true
					p.against += len(o.ports)
				}
			}
		}
	}
	slices.SortStableFunc(r.parts, func(a, b *part) int {
		return cmp.Or(a.against-b.against, len(b.ports)-len(a.ports))
	})
	for _, p := range r.parts {
		p.fine = len(p.ports) > 1 && !slices.ContainsFunc(p.ports, func(k portKey) bool {
			return slices.ContainsFunc(r.bad[k], func(m Measured) bool { return r.other(m, k).fine })
		})
		if p.fine {
			r.fabric = append(r.fabric, p.ports...)
		}
	}
	slices.SortFunc(r.fabric, byHost)
}

// largest is the fabric's largest part; one without ports where there is none.
func (r *railState) largest() *part {
	best := &part{}
	for _, p := range r.parts {
		if p.fine && len(p.ports) > len(best.ports) {
			best = p
		}
	}
	return best
}

func sortedPorts[V any](m map[portKey]V) []portKey {
	ks := make([]portKey, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, byHost)
	return ks
}

// other is the part at the other end of a test of k.
func (r *railState) other(m Measured, k portKey) *part {
	a, b := m.ends()
	if a == k {
		return r.of[b]
	}
	return r.of[a]
}

// accusers are the failed tests of a part with ports of the fabric.
func (r *railState) accusers(p *part) []Measured {
	var out []Measured
	for _, k := range p.ports {
		for _, m := range r.bad[k] {
			if o := r.other(m, k); o.fine && o != p {
				out = append(out, m)
			}
		}
	}
	return out
}

// wanted is how many good partners have to fail with a port before it is named.
const wanted = 2

// fewAlone is how many ports may be bad by chance: more on one rail may share a
// switch, and are tested among themselves.
const fewAlone = 3

// next pairs every suspect with a port of the fabric that it has not met,
// blamed ports and islands among themselves, and where there is no fabric the
// suspects with each other.
func (l *locator) next(round int) []Probe {
	var out []Probe
	for _, rail := range sortedKeys(l.rails) {
		r := l.rails[rail]
		t := &railRound{l: l, r: r, rail: rail, used: map[portKey]bool{}}
		var alone, blamed, islands []*part
		for _, p := range r.parts {
			switch {
			case p.fine || len(p.ports) == 1 && len(r.bad[p.ports[0]]) == 0:
			case len(p.ports) > 1:
				islands = append(islands, p)
			case len(r.accusers(p)) > 0:
				blamed = append(blamed, p)
			default:
				alone = append(alone, p)
			}
		}
		slices.SortFunc(islands, func(a, b *part) int { return byHost(a.ports[0], b.ports[0]) })
		t.askIslands(islands)
		t.askAccused()
		if len(blamed)+2*len(islands) >= fewAlone {
			t.askBlamed(blamed, islands)
		}
		for _, p := range slices.Concat(alone, blamed) {
			if k := p.ports[0]; !t.used[k] && len(r.accusers(p)) < wanted && len(r.fabric) > 0 {
				t.withFabric(p, k)
			}
		}
		if len(r.fabric) == 0 && round < 2 {
			// Nobody of this rail is known to be good: suspects that have not met
			// may clear each other.
			for i, p := range alone {
				for j := i + 1; j < len(alone) && !t.pair(p.ports[0], alone[j].ports[0]); j++ {
				}
			}
		}
		out = append(out, t.probes...)
	}
	return out
}

// railRound are the tests of one round on one rail: each port is in one of them.
type railRound struct {
	l      *locator
	r      *railState
	rail   int
	used   map[portKey]bool
	turn   int // ports that were paired with the fabric
	probes []Probe
}

// pair tests a and b, unless one of them has a test already or they had theirs.
func (t *railRound) pair(a, b portKey) bool {
	if a == b || t.used[a] || t.used[b] || t.l.tried[pairKey(a, b)] > 0 {
		return false
	}
	t.used[a], t.used[b] = true, true
	t.probes = append(t.probes, Probe{Pair{a.host, b.host}, t.rail})
	return true
}

// pairOne tests the first of as with the first of bs with which it can be.
func (t *railRound) pairOne(as, bs []portKey) (portKey, bool) {
	for _, a := range as {
		for _, b := range bs {
			if t.pair(a, b) {
				return a, true
			}
		}
	}
	return portKey{}, false
}

// withFabric tests a suspect with the fabric, from the suspect's own place onwards,
// and half the fabric further each time: partners spread over switches.
func (t *railRound) withFabric(p *part, k portKey) bool {
	r := t.r
	if len(p.ports) > 1 {
		// An island that does reach the fabric is to join its largest part:
		// small ones are of the fabric by assumption only.
		if _, ok := t.pairOne([]portKey{k}, r.largest().ports); ok {
			return true
		}
	}
	n := len(r.fabric)
	from := t.turn + k.host + len(r.accusers(p))*(n/2+1)
	for i := range n {
		if t.pair(k, r.fabric[(from+i)%n]) {
			t.turn++
			return true
		}
	}
	return false
}

// askIslands: do neighbouring islands reach each other, and does each reach the
// fabric? One port of each for either side.
func (t *railRound) askIslands(islands []*part) {
	for i := 0; i+1 < len(islands); i++ {
		if !t.l.met(islands[i], islands[i+1]) {
			last := slices.Clone(islands[i].ports)
			slices.Reverse(last)
			t.pairOne(last, islands[i+1].ports)
		}
	}
	for _, p := range islands {
		if len(t.r.accusers(p)) < wanted {
			for _, k := range p.ports {
				if !t.used[k] && t.withFabric(p, k) {
					break
				}
			}
		}
	}
}

// askAccused: a part of the fabric that fails towards an island may be another one.
func (t *railRound) askAccused() {
	for _, p := range t.r.parts {
		if !p.fine || p.against == 0 || slices.ContainsFunc(p.ports, func(k portKey) bool { return t.l.sure[k] }) {
			continue
		}
		for _, q := range t.r.parts {
			if p == q || !q.fine || q.against > 0 {
				continue
			}
			if k, ok := t.pairOne(p.ports, q.ports); ok {
				t.l.sure[k] = true
				break
			}
		}
	}
}

// askBlamed tests those that the fabric blames with each other, and with islands.
func (t *railRound) askBlamed(blamed, islands []*part) {
	for i, p := range blamed {
		k := p.ports[0]
		// At most two of its kind: then it is bad by itself.
		if t.used[k] || t.l.peers(t.r, k) >= 2 {
			continue
		}
		done := false
		for _, q := range islands {
			if _, done = t.pairOne([]portKey{k}, q.ports); done {
				break
			}
		}
		for j := i + 1; j < len(blamed) && !done; j++ {
			done = t.pair(k, blamed[j].ports[0])
		}
	}
}

// met says whether any port of one part was tested with one of the other.
func (l *locator) met(a, b *part) bool {
	for _, x := range a.ports {
		for _, y := range b.ports {
			if l.tried[pairKey(x, y)] > 0 {
				return true
			}
		}
	}
	return false
}

// peers counts the failed tests of a port with others outside the fabric that
// are not of the first look: those that were meant to find what they share.
func (l *locator) peers(r *railState, k portKey) int {
	n := 0
	for _, m := range r.bad[k] {
		if o := r.other(m, k); !o.fine {
			n++
		}
	}
	return n
}

func sortedKeys[V any](m map[int]V) []int {
	ks := make([]int, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// blame sums up the failed tests that accuse a port: those with the fabric.
type blame struct {
	tx, rx bool
	dead   bool
	worst  Outcome
}

func blameOf(ms []Measured, k portKey) blame {
	b := blame{dead: true}
	for _, m := range ms {
		tx, rx := m.There, m.Back
		if m.B == k.host {
			tx, rx = rx, tx
		}
		b.tx, b.rx = b.tx || tx.Bad(), b.rx || rx.Bad()
		b.dead = b.dead && tx.Gbps == nil && rx.Gbps == nil && tx.Error != "" && rx.Error != ""
		for _, o := range []Outcome{tx, rx} {
			if o.Bad() && (b.worst.Verdict == "" || b.worst.Gbps != nil && (o.Gbps == nil || *o.Gbps < *b.worst.Gbps)) {
				b.worst = o
			}
		}
	}
	return b
}

// verdict turns evidence into names.
func (l *locator) verdict(probe func([]Probe) []Measured, rounds *int) []Culprit {
	named := map[portKey]blame{}
	byNode := map[int][]portKey{}
	var groups []Culprit
	inGroup := map[*part]bool{}
	for _, rail := range sortedKeys(l.rails) {
		r := l.rails[rail]
		for _, p := range r.parts {
			ms := r.accusers(p)
			switch {
			case p.fine || len(ms) == 0:
			case len(p.ports) == 1:
				k := p.ports[0]
				named[k] = blameOf(ms, k)
				byNode[k.host] = append(byNode[k.host], k)
			case len(ms) >= wanted:
				c := Culprit{Kind: "group", Rail: rail, Direction: Both}
				for _, k := range p.ports {
					c.Hosts = append(c.Hosts, k.host)
				}
				for _, m := range ms {
					c.Worst = worse(c.Worst, worse(m.There, m.Back))
				}
				groups = append(groups, c)
				inGroup[p] = true
			}
		}
	}
	// The same hosts cut off on every rail are one group.
	out := mergeGroups(groups, len(l.rails))
	for _, h := range sortedKeys(byNode) {
		ks := byNode[h]
		slices.SortFunc(ks, func(a, b portKey) int { return a.rail - b.rail })
		if len(ks) == len(l.rails) && len(l.rails) > 1 {
			first := named[ks[0]]
			c := Culprit{Kind: "node", Hosts: []int{h}, Rail: -1, Direction: directionOf(first.tx, first.rx), Dead: true, Worst: first.worst}
			for _, k := range ks {
				b := named[k]
				c.Dead = c.Dead && b.dead
				if directionOf(b.tx, b.rx) != c.Direction {
					c.Direction = Both
				}
			}
			out = append(out, c)
			continue
		}
		for _, k := range ks {
			b := named[k]
			out = append(out, Culprit{Kind: "port", Hosts: []int{h}, Rail: k.rail, Direction: directionOf(b.tx, b.rx), Dead: b.dead, Worst: b.worst})
		}
	}
	// What nobody was named for: both ends reach the fabric, or there was none
	// to test against.
	var again []Probe
	open := map[int][]Measured{}
	asked := map[[2]portKey]bool{}
	for _, m := range l.seen {
		a, b := m.ends()
		r := l.rails[m.Rail]
		_, isA := named[a]
		_, isB := named[b]
		pa, pb := r.of[a], r.of[b]
		switch {
		case !m.bad() || isA || isB || asked[pairKey(a, b)]:
		case inGroup[pa] != inGroup[pb], inGroup[pa] && pa != pb:
		case len(pa.ports) > 1 && len(pb.ports) > 1:
			asked[pairKey(a, b)] = true
			again = append(again, m.Probe)
		default:
			open[m.Rail] = append(open[m.Rail], m)
		}
	}
	out = append(out, l.paths(again, probe, rounds)...)
	for _, rail := range sortedKeys(open) {
		ms := open[rail]
		hosts := []int{}
		worst := Outcome{}
		for _, m := range ms {
			for _, h := range []int{m.A, m.B} {
				if !slices.Contains(hosts, h) {
					hosts = append(hosts, h)
				}
			}
			worst = worse(worst, worse(m.There, m.Back))
		}
		if len(hosts) > 2 {
			slices.Sort(hosts)
			out = append(out, Culprit{Kind: "rail", Hosts: hosts, Rail: rail, Direction: Both, Worst: worst})
			continue
		}
		m := ms[0]
		out = append(out, Culprit{Kind: "pair", Hosts: []int{m.A, m.B}, Rail: rail, Direction: directionOf(m.There.Bad(), m.Back.Bad()), Worst: worse(m.There, m.Back)})
	}
	return out
}

// paths tests again what failed between two ports that are both good with
// others: what fails twice is something between them.
func (l *locator) paths(again []Probe, probe func([]Probe) []Measured, rounds *int) []Culprit {
	var out []Culprit
	for len(again) > 0 && *rounds < 2*maxLocateRounds {
		// Two pairs of one round could share a port in ring and full schedules.
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
			if m.bad() {
				out = append(out, Culprit{Kind: "path", Hosts: []int{m.A, m.B}, Rail: m.Rail, Direction: directionOf(m.There.Bad(), m.Back.Bad()), Worst: worse(m.There, m.Back)})
			}
		}
		*rounds++
		again = later
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
