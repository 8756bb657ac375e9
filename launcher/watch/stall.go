package watch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// phaseNames tell people how far a rank has come.
var phaseNames = [...]string{
	phaseSeen:      "started",
	phaseBootstrap: "bootstrap",
	phaseNetwork:   "network chosen",
	phaseInitStart: "waiting for the other ranks",
	phaseChannels:  "connecting channels",
	phaseConnected: "rings connected",
	phaseInitDone:  "set up",
	phaseFirst:     "first collective: connecting",
	phaseAgain:     "further communicator: waiting",
}

// Standing is how far one process has come and what it said of itself, as far as
// a stalled job is judged by it. Its JSON is what a session on a node tells the head.
type Standing struct {
	Host     string `json:"host"`
	PID      uint32 `json:"pid"`
	Phase    int    `json:"phase"`
	Ranks    []int  `json:"ranks,omitempty"`
	NRanks   int    `json:"nranks,omitempty"` // of its largest communicator; 0 unknown
	Version  string `json:"version,omitempty"`
	Net      string `json:"net,omitempty"`
	Devices  string `json:"devices,omitempty"`
	GID      string `json:"gid,omitempty"`
	Address  string `json:"address,omitempty"`   // by which it is reached
	WaitsFor string `json:"waits_for,omitempty"` // address<port> that it tries to reach
	// Pair is the ranks of the last connection between nodes that it began.
	Pair []int `json:"pair,omitempty"`
}

// underWay reports whether a process is in its first set-up, or, again, in what
// comes after it.
func (s Standing) underWay() (first, again bool) {
	p := phase(s.Phase)
	return p > phaseSeen && p < phaseConnected, p == phaseFirst || p == phaseAgain
}

// who names a process for a person.
func (s Standing) who() string {
	if len(s.Ranks) == 1 {
		return fmt.Sprintf("%s rank %d", s.Host, s.Ranks[0])
	}
	return fmt.Sprintf("%s process %d", s.Host, s.PID)
}

// StallGroup is the ranks of one host that have come equally far.
type StallGroup struct {
	Phase string `json:"phase"`
	Host  string `json:"host"`
	Ranks []int  `json:"ranks"` // empty: their numbers are not known
	Procs int    `json:"processes"`
}

// Stall is where a job stands whose set-up does not go on.
type Stall struct {
	NRanks  *int         `json:"nranks"`
	Groups  []StallGroup `json:"groups"`
	Missing []int        `json:"missing"` // ranks of which nothing was seen
	Differ  []string     `json:"differ"`  // what is not alike on all ranks: versions, devices, GIDs, networks
	Waits   []string     `json:"waits"`   // which process waits for which address
	Suspect string       `json:"suspect"` // the best guess, in one sentence
}

// Standings tells how far each process has come of which lines were read, in the
// order of hosts and process numbers.
func (w *Watcher) Standings() []Standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs.settleAll() // nobody says more
	st := w.runs.latest()
	hosts := st.trustedHosts()
	out := []Standing{}
	for k, p := range st.procs {
		if _, ok := hosts[k.host]; !ok {
			continue
		}
		s := Standing{
			Host: k.host, PID: k.pid, Phase: int(p.phase), Ranks: slices.Clone(p.ranks), NRanks: p.nranks, Version: p.version,
			Net: p.net, Devices: p.devs, GID: p.gid, Address: p.addr, WaitsFor: p.waitsFor,
		}
		if from, to := channelRanks(p.begun[:p.begunLen]); from >= 0 && to >= 0 {
			s.Pair = []int{from, to}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Standing) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID)) })
	return out
}

// StallOf describes a set-up that is under way and not done, by the processes of
// all nodes; nil where none is in one.
func StallOf(procs []Standing) *Stall {
	type key struct {
		phase int
		host  string
	}
	groups := map[key]*StallGroup{}
	seen := map[int]bool{}
	first, again := 0, 0
	nranks := 0
	for _, p := range procs {
		nranks = max(nranks, p.NRanks)
	}
	for _, p := range procs {
		if p.Phase < 0 || p.Phase >= len(phaseNames) {
			continue // of a newer fabrun
		}
		g := groups[key{p.Phase, p.Host}]
		if g == nil {
			g = &StallGroup{Phase: phaseNames[p.Phase], Host: p.Host, Ranks: []int{}}
			groups[key{p.Phase, p.Host}] = g
		}
		g.Procs++
		if p.NRanks == nranks {
			for _, r := range p.Ranks {
				seen[r] = true
				g.Ranks = append(g.Ranks, r)
			}
		}
		if f, a := p.underWay(); f {
			first++
		} else if a {
			again++
		}
	}
	// A line that says an end can be lost where several processes share a stream:
	// one process alone that has not come to it is no proof.
	if first == 0 && again < 2 {
		return nil
	}
	s := &Stall{Groups: []StallGroup{}, Missing: []int{}, Differ: differences(procs), Waits: waits(procs)}
	if nranks > 0 {
		s.NRanks = &nranks
		for r := 0; r < nranks && len(s.Missing) < maxProcs; r++ {
			if !seen[r] {
				s.Missing = append(s.Missing, r)
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.host, b.host))
	}) {
		g := *groups[k]
		slices.Sort(g.Ranks)
		s.Groups = append(s.Groups, g)
	}
	s.Suspect = s.suspect(procs)
	return s
}

// NotLookedAt adds the hosts at whose logs nobody looks: the ranks of which
// nothing was seen may be there.
func (s *Stall) NotLookedAt(hosts []string) {
	if len(s.Missing) > 0 {
		s.Suspect += unseenText(hosts)
	}
}

// differences says what is not the same on all processes.
func differences(procs []Standing) []string {
	out := []string{}
	for _, what := range []struct {
		name string
		of   func(Standing) string
	}{
		{"library versions", func(p Standing) string { return p.Version }},
		{"networks", func(p Standing) string { return p.Net }},
		{"RDMA devices", func(p Standing) string { return p.Devices }},
		{"GID indexes", func(p Standing) string { return p.GID }},
	} {
		by := map[string][]string{}
		for _, p := range procs {
			if v := what.of(p); v != "" && (len(by) < 16 || by[v] != nil) {
				addHost(by, v, p.Host)
			}
		}
		if len(by) < 2 {
			continue
		}
		// The odd one out first: it is on the fewest hosts.
		values := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(by[a]), len(by[b])), cmp.Compare(a, b))
		})
		var parts []string
		for _, v := range values {
			slices.Sort(by[v])
			parts = append(parts, v+" on "+shortList(by[v]))
		}
		out = append(out, what.name+" differ: "+strings.Join(parts, "; "))
	}
	return out
}

func addHost(by map[string][]string, value, host string) {
	if !slices.Contains(by[value], host) {
		by[value] = append(by[value], host)
	}
}

func shortList(names []string) string {
	if len(names) > 6 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", len(names)-6)
	}
	return strings.Join(names, ", ")
}

// waits says which process tries to reach which address, and whose that is.
func waits(procs []Standing) []string {
	out := []string{}
	for _, p := range procs {
		if p.WaitsFor != "" && len(out) < 16 {
			out = append(out, p.who()+" waits for "+p.WaitsFor+ownerOf(procs, p.WaitsFor))
		}
	}
	return out
}

// ownerOf names the host of 'address<port>', "" where nobody told.
func ownerOf(procs []Standing, target string) string {
	addr, _, _ := strings.Cut(target, "<")
	for _, p := range procs {
		if p.Address != "" && p.Address == addr {
			return " of " + p.Host
		}
	}
	return ""
}

// suspect picks what most likely holds the job up.
func (s *Stall) suspect(procs []Standing) string {
	// Of those that are under way, the ones that are behind hold up the others.
	var behind *Standing
	last := 0
	for i, p := range procs {
		last = max(last, p.Phase)
		if behind == nil || p.Phase < behind.Phase {
			behind = &procs[i]
		}
	}
	switch {
	case len(s.Waits) > 0:
		return s.Waits[0] + ": a firewall, or the wrong interface (NCCL_SOCKET_IFNAME)."
	case len(s.Differ) > 0:
		return strings.ToUpper(s.Differ[0][:1]) + s.Differ[0][1:] + "."
	case len(s.Missing) > 0 && s.NRanks != nil && len(s.Missing) < *s.NRanks:
		return fmt.Sprintf("Nothing was seen of rank %s: look at the process and its host.", Ranges(s.Missing))
	case behind != nil && phase(behind.Phase) < phaseInitStart:
		return fmt.Sprintf("Process %d on %s%s is behind the others.", behind.PID, behind.Host, rankWord(behind.Ranks))
	}
	if pair := pairOf(procs); pair != "" {
		return pair + " is the last connection between nodes that was begun: look at route, MTU, PFC and GID between the two."
	}
	if behind != nil && behind.Phase < last && phase(behind.Phase) < phaseConnected {
		return fmt.Sprintf("%s is behind the others (%s).", behind.who(), phaseNames[behind.Phase])
	}
	return "All ranks wait in the same place: the connections between hosts do not come up (route, MTU, PFC, GID)."
}

func rankWord(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf(" (rank %d)", ranks[0])
	}
	return ""
}

// pairOf names the two ranks whose connection most processes that still connect
// have begun last: each of the two ends says it.
func pairOf(procs []Standing) string {
	host := map[int]string{}
	count := map[[2]int]int{}
	for _, p := range procs {
		for _, r := range p.Ranks {
			host[r] = p.Host
		}
		if ph := phase(p.Phase); len(p.Pair) == 2 && (ph == phaseChannels || ph == phaseFirst) {
			count[[2]int{p.Pair[0], p.Pair[1]}]++
		}
	}
	var best [2]int
	for pair, n := range count {
		if m := count[best]; n > m || n == m && (pair[0] < best[0] || pair[0] == best[0] && pair[1] < best[1]) {
			best = pair
		}
	}
	if count[best] == 0 {
		return ""
	}
	name := func(r int) string {
		if host[r] == "" {
			return fmt.Sprintf("rank %d", r)
		}
		return fmt.Sprintf("rank %d (%s)", r, host[r])
	}
	return "From " + name(best[0]) + " to " + name(best[1])
}

// Ranges writes ascending numbers for a person: "0-7,9", at most a line of them.
func Ranges(n []int) string {
	var b bytes.Buffer
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if j == i {
			fmt.Fprintf(&b, "%d", n[i])
		} else {
			fmt.Fprintf(&b, "%d-%d", n[i], n[j])
		}
		i = j + 1
		if b.Len() > 200 {
			b.WriteString(",…")
			break
		}
	}
	return b.String()
}

// maxBlockLines bounds the lines of a block that tell of hosts one by one.
const maxBlockLines = 24

// Block is the stall as text to paste into a report.
func (s Stall) Block() string {
	var b strings.Builder
	size := ""
	if s.NRanks != nil {
		size = fmt.Sprintf(" of %d ranks", *s.NRanks)
	}
	fmt.Fprintf(&b, "set-up%s has stopped\n", size)
	for _, g := range s.shortGroups() {
		who := fmt.Sprintf("%d processes", g.Procs)
		if g.Procs == 1 {
			who = "1 process"
		}
		if len(g.Ranks) > 0 {
			who = "ranks " + Ranges(g.Ranks)
		}
		fmt.Fprintf(&b, "  %-28s %s: %s\n", g.Phase, g.Host, who)
	}
	if len(s.Missing) > 0 {
		fmt.Fprintf(&b, "  %-28s ranks %s\n", "not seen", Ranges(s.Missing))
	}
	for _, d := range slices.Concat(s.Differ, s.Waits) {
		fmt.Fprintf(&b, "  %s\n", d)
	}
	fmt.Fprintf(&b, "suspect: %s\n", s.Suspect)
	return b.String()
}

// shortGroups joins the hosts of a phase where there are many: a thousand ranks
// wait in a handful of places.
func (s Stall) shortGroups() []StallGroup {
	if len(s.Groups) <= maxBlockLines {
		return s.Groups
	}
	var out []StallGroup
	hosts := map[string][]string{}
	for _, g := range s.Groups {
		hosts[g.Phase] = append(hosts[g.Phase], g.Host)
		if n := len(out); n > 0 && out[n-1].Phase == g.Phase {
			out[n-1].Procs += g.Procs
			out[n-1].Ranks = append(slices.Clone(out[n-1].Ranks), g.Ranks...)
			continue
		}
		out = append(out, g)
	}
	for i := range out {
		out[i].Host = shortList(hosts[out[i].Phase])
		slices.Sort(out[i].Ranks)
	}
	return out
}

// Event is what is said of a stall that lasts for so many seconds.
func (s Stall) Event(seconds int) Event {
	return Event{
		ID: "stall", Severity: SeverityWarning,
		Text: fmt.Sprintf("No progress in the set-up for %d s. %s", seconds, s.Suspect), Block: s.Block(),
	}
}

// gidLine reads 'NET/IB: IbDev 0 Port 1 qpn 4711 mtu 5 GID 3 (…)'.
func (st *state) gidLine(m *message, t []byte) {
	if n := intAfter(t, " GID "); n >= 0 && m.proc != nil && bytes.Contains(t, []byte("qpn ")) {
		m.proc.gid = fmt.Sprint(n)
	}
}
