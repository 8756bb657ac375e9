package measure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestScheduleLaws: rounds are disjoint and perfect, full meets everybody
// once, ring every neighbour once, quick every host.
func TestScheduleLaws(t *testing.T) {
	for n := range 70 {
		for _, m := range []Mode{Quick, Ring, Full} {
			s := Schedule(n, m)
			met := map[Pair]int{}
			seen := make([]int, n)
			for r, round := range s {
				used := make([]bool, n)
				for _, p := range round {
					if p.A == p.B || p.A < 0 || p.B < 0 || p.A >= n || p.B >= n || used[p.A] || used[p.B] {
						t.Fatalf("%s of %d, round %d: %v", m, n, r, round)
					}
					used[p.A], used[p.B] = true, true
					seen[p.A]++
					seen[p.B]++
					met[Pair{min(p.A, p.B), max(p.A, p.B)}]++
				}
				whole := n / 2
				if n%2 == 1 && m != Full && r == len(s)-1 {
					whole = 1
				}
				if len(round) != whole {
					t.Fatalf("%s of %d: round %d has %d pairs, want %d", m, n, r, len(round), whole)
				}
			}
			for p, k := range met {
				if k != 1 {
					t.Fatalf("%s of %d: %v met %d times", m, n, p, k)
				}
			}
			if n < 2 {
				continue
			}
			want := map[Mode]int{Full: n * (n - 1) / 2, Ring: n, Quick: (n + 1) / 2}[m]
			if n == 2 {
				want = 1
			}
			if len(met) != want || slices.Contains(seen, 0) {
				t.Fatalf("%s of %d: %d pairs, want %d; seen %v", m, n, len(met), want, seen)
			}
			if m == Full && len(s) != n-1+n%2 {
				t.Fatalf("full of %d takes %d rounds", n, len(s))
			}
		}
	}
}

// BenchmarkSchedule1024x8 is the promise: 50 ms. The rails of two hosts are
// tested in the same round, so the schedule is one for all of them.
func BenchmarkSchedule1024x8(b *testing.B) {
	for b.Loop() {
		Schedule(1024, Full) // each pair is tested on all of its rails
	}
}

// world is a fabric with planted faults.
type world struct {
	n, rails int
	faults   []fault
	rounds   int
	noise    *rand.Rand
}

type fault struct {
	kind       string // "port", "tx", "rx", "slow", "dead", "mtu", "path"
	host, rail int
	upto       int // mtu: hosts host…upto share the leaf; rail -1: on all rails
}

func (w *world) send(a, b, rail int) Outcome {
	rate := 200.0
	f := 0.96 + 0.03*w.noise.Float64()
	for _, x := range w.faults {
		hit := x.rail == rail || x.rail < 0
		in := func(h int) bool { return h >= x.host && h <= x.upto }
		switch {
		case x.kind == "port" && hit && (a == x.host || b == x.host):
			f = min(f, 0.5)
		case x.kind == "tx" && hit && a == x.host, x.kind == "rx" && hit && b == x.host:
			f = min(f, 0.3)
		case x.kind == "slow" && (a == x.host || b == x.host):
			f = min(f, 0.7)
		case x.kind == "dead" && (a == x.host || b == x.host), x.kind == "mtu" && hit && in(a) != in(b):
			return Outcome{Error: "perftest.completion-12", Verdict: Broken}
		case x.kind == "path" && hit && (a == x.host && b == x.upto || b == x.host && a == x.upto):
			f = min(f, 0.4)
		}
	}
	g := rate * f
	e := DefaultExpect()
	e.RateGbps = &rate
	return Outcome{Gbps: &g, Verdict: e.JudgeBandwidth(g)}
}

func (w *world) probe(t *testing.T) func([]Probe) []Measured {
	return func(ps []Probe) []Measured {
		used := map[portKey]bool{}
		var out []Measured
		for _, p := range ps {
			for _, h := range []int{p.A, p.B} {
				if used[portKey{h, p.Rail}] {
					t.Fatalf("port %d of host %d is in two tests of one round", p.Rail, h)
				}
				used[portKey{h, p.Rail}] = true
			}
			out = append(out, Measured{p, w.send(p.A, p.B, p.Rail), w.send(p.B, p.A, p.Rail)})
		}
		w.rounds++
		return out
	}
}

func (w *world) run(t *testing.T, m Mode) ([]Culprit, int) {
	var all []Measured
	for _, round := range Schedule(w.n, m) {
		var ps []Probe
		for _, p := range round {
			for r := range w.rails {
				ps = append(ps, Probe{p, r})
			}
		}
		all = append(all, w.probe(t)(ps)...)
	}
	return Locate(all, w.probe(t))
}

func names(cs []Culprit) string {
	var s []string
	for _, c := range cs {
		hosts := fmt.Sprint(c.Hosts)
		if len(c.Hosts) > 2 {
			hosts = fmt.Sprintf("[%d-%d]", c.Hosts[0], c.Hosts[len(c.Hosts)-1])
		}
		dead := ""
		if c.Dead {
			dead = " dead"
		}
		s = append(s, fmt.Sprintf("%s %s rail %d %s%s", c.Kind, hosts, c.Rail, c.Direction, dead))
	}
	slices.Sort(s)
	return strings.Join(s, "; ")
}

func TestLocate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		n      int
		faults []fault
		want   string
		rounds int // at most; 0: 3
	}{
		{"nothing", 1024, nil, "", 0},
		{"bad port", 1024, []fault{{kind: "port", host: 77, rail: 3}}, "port [77] rail 3 both", 3},
		{"bad cable one way", 1024, []fault{{kind: "tx", host: 900, rail: 7}}, "port [900] rail 7 sending", 3},
		{"receives badly", 1024, []fault{{kind: "rx", host: 0, rail: 0}}, "port [0] rail 0 receiving", 3},
		{"slow node", 1024, []fault{{kind: "slow", host: 511}}, "node [511] rail -1 both", 3},
		{"dead node", 1024, []fault{{kind: "dead", host: 512}}, "node [512] rail -1 both dead", 3},
		{"wrong MTU on one leaf", 1024, []fault{{kind: "mtu", host: 64, upto: 95, rail: -1}}, "group [64-95] rail -1 both", 3},
		{"wrong MTU on one rail's leaf", 1024, []fault{{kind: "mtu", host: 64, upto: 95, rail: 2}}, "group [64-95] rail 2 both", 3},
		{"two faults, one pair", 1024, []fault{{kind: "port", host: 5, rail: 1}, {kind: "tx", host: 517, rail: 1}}, "port [517] rail 1 sending; port [5] rail 1 both", 3},
		{"two faults apart", 1024, []fault{{kind: "dead", host: 5}, {kind: "port", host: 800, rail: 2}}, "node [5] rail -1 both dead; port [800] rail 2 both", 3},
		{"two faults, one host", 1024, []fault{{kind: "port", host: 5, rail: 1}, {kind: "rx", host: 5, rail: 6}}, "port [5] rail 1 both; port [5] rail 6 receiving", 3},
		{"leaf and port", 1024, []fault{{kind: "mtu", host: 64, upto: 95, rail: 2}, {kind: "port", host: 300, rail: 4}}, "group [64-95] rail 2 both; port [300] rail 4 both", 3},
		{"path between two", 64, []fault{{kind: "path", host: 3, upto: 35, rail: 1}}, "path [3 35] rail 1 both", 3},
		{"odd number", 7, []fault{{kind: "port", host: 6, rail: 0}}, "port [6] rail 0 both", 3},
		{"three hosts", 3, []fault{{kind: "slow", host: 1}}, "node [1] rail -1 both", 3},
		{"four hosts", 4, []fault{{kind: "tx", host: 2, rail: 5}}, "port [2] rail 5 sending", 3},
		{"two hosts: either end", 2, []fault{{kind: "port", host: 1, rail: 5}}, "pair [0 1] rail 5 both", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{n: tc.n, rails: 8, faults: tc.faults, noise: rand.New(rand.NewPCG(1, 2))}
			cs, rounds := w.run(t, Quick)
			if got := names(cs); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if rounds > tc.rounds {
				t.Errorf("%d rounds", rounds)
			}
		})
	}
}

// TestLocateEveryPort: one bad port, wherever it is, is named alone in three rounds.
func TestLocateEveryPort(t *testing.T) {
	for _, n := range []int{3, 4, 5, 8, 9, 33} {
		for h := range n {
			for _, kind := range []string{"port", "tx", "rx"} {
				w := &world{n: n, rails: 2, faults: []fault{{kind: kind, host: h, rail: 1}}, noise: rand.New(rand.NewPCG(1, 2))}
				cs, rounds := w.run(t, Quick)
				if len(cs) != 1 || cs[0].Kind != "port" || cs[0].Hosts[0] != h || cs[0].Rail != 1 || rounds > 3 {
					t.Errorf("%s of host %d of %d: %s in %d rounds", kind, h, n, names(cs), rounds)
				}
			}
		}
	}
}

// TestLocateAccusesNobodyWrongly: any one or two faults of every kind in any
// place, by every mode: all found, and nobody else accused. A leaf that is cut
// off may hide inside pairs that are good.
func TestLocateAccusesNobodyWrongly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n := 16 + rnd.IntN(64)
		w := &world{n: n, rails: 1 + rnd.IntN(4), noise: rnd}
		guilty := map[int]bool{}
		for range 1 + rnd.IntN(2) {
			f := fault{kind: []string{"port", "tx", "rx", "slow", "dead", "path", "mtu"}[rnd.IntN(7)], host: rnd.IntN(n), rail: rnd.IntN(w.rails)}
			switch f.kind {
			case "path":
				f.upto = (f.host + 1 + rnd.IntN(n-1)) % n
			case "mtu":
				f.host = rnd.IntN(n / 2)
				f.upto = f.host + 3 + rnd.IntN(n/4)
				if rnd.IntN(2) == 0 {
					f.rail = -1
				}
			}
			w.faults = append(w.faults, f)
			guilty[f.host] = true
			if f.kind == "path" {
				guilty[f.upto] = true
			}
			for h := f.host; f.kind == "mtu" && h <= f.upto; h++ {
				guilty[h] = true
			}
		}
		m := []Mode{Quick, Quick, Quick, Ring, Ring, Full}[rnd.IntN(6)]
		cs, rounds := w.run(t, m)
		found := map[int]bool{}
		for _, c := range cs {
			for _, h := range c.Hosts {
				found[h] = true
				if !guilty[h] {
					t.Fatalf("%s of %d: %+v accuses %d: %s", m, n, w.faults, h, names(cs))
				}
			}
		}
		for _, f := range w.faults {
			// Two hosts that quick never pairs cannot show what is between them.
			if f.kind != "path" && !found[f.host] {
				t.Fatalf("%s of %d: %+v missed %+v: %s", m, n, w.faults, f, names(cs))
			}
		}
		if rounds > maxLocateRounds {
			t.Errorf("%s of %d: %+v took %d rounds", m, n, w.faults, rounds)
		}
	}
}

// TestUntested: a host without perftest vouches for nobody, and its ports and
// those that met nobody else are said to be untested.
func TestUntested(t *testing.T) {
	good := Outcome{Gbps: ptr(196.0), Verdict: Good}
	slow := Outcome{Gbps: ptr(90.0), Verdict: Broken}
	none := Outcome{Error: "perftest.missing", Verdict: Unknown}
	reached := Outcome{Tool: "rping", Verdict: Unknown}
	ms := []Measured{
		{Probe{Pair{0, 4}, 0}, good, good},
		{Probe{Pair{1, 5}, 0}, none, none},
		{Probe{Pair{2, 6}, 0}, slow, slow},
		{Probe{Pair{3, 7}, 0}, reached, reached},
	}
	if got := fmt.Sprint(Untested(ms, 8, 1, func(int, int) bool { return true })); got != "[[1 0] [5 0]]" {
		t.Errorf("untested: %s", got)
	}
	cs, _ := Locate(ms, func(ps []Probe) []Measured {
		var out []Measured
		for _, p := range ps {
			o := good
			switch {
			case p.A == 1 || p.B == 1 || p.A == 5 || p.B == 5:
				t.Errorf("%v: a host that cannot be tested is a partner", p)
			case p.A == 6 || p.B == 6:
				o = slow
			}
			out = append(out, Measured{p, o, o})
		}
		return out
	})
	if got := names(cs); got != "port [6] rail 0 both" {
		t.Errorf("got %s", got)
	}
}
