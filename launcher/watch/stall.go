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

// Stalled describes a set-up that is under way and not done; nil where no rank
// is in one.
func (w *Watcher) Stalled() *Stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.st.stalled()
}

func (st *state) stalled() *Stall {
	hosts := st.trustedHosts()
	type key struct {
		phase phase
		host  string
	}
	groups := map[key]*StallGroup{}
	seen := map[int]bool{}
	under := false
	var behind *proc
	for k, p := range st.procs {
		if _, ok := hosts[k.host]; !ok {
			continue
		}
		g := groups[key{p.phase, k.host}]
		if g == nil {
			g = &StallGroup{Phase: phaseNames[p.phase], Host: k.host, Ranks: []int{}}
			groups[key{p.phase, k.host}] = g
		}
		g.Procs++
		if p.nranks == st.nranks {
			for _, r := range p.ranks {
				seen[r] = true
				g.Ranks = append(g.Ranks, r)
			}
		}
		if p.phase > phaseSeen && p.phase < phaseConnected {
			under = true
		}
		if behind == nil || p.phase < behind.phase {
			behind = p
		}
	}
	if !under {
		return nil
	}
	s := &Stall{Groups: []StallGroup{}, Missing: []int{}, Differ: st.differences(hosts), Waits: st.waits(hosts)}
	if st.nranks > 0 {
		n := st.nranks
		s.NRanks = &n
		for r := 0; r < n && len(s.Missing) < 1024; r++ {
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
	s.Suspect = st.suspect(s, behind)
	return s
}

// differences says what is not the same on all processes.
func (st *state) differences(hosts map[string]int) []string {
	out := []string{}
	for _, what := range []struct {
		name string
		of   func(*proc) string
	}{
		{"library version", func(p *proc) string { return p.version }},
		{"network", func(p *proc) string { return p.net }},
		{"RDMA devices", func(p *proc) string { return p.devs }},
		{"GID index", func(p *proc) string { return p.gid }},
	} {
		by := map[string][]string{}
		for k, p := range st.procs {
			if _, ok := hosts[k.host]; ok && what.of(p) != "" {
				addHost(by, what.of(p), k.host)
			}
		}
		if len(by) < 2 {
			continue
		}
		var parts []string
		for _, v := range slices.Sorted(maps.Keys(by)) {
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

func (st *state) waits(hosts map[string]int) []string {
	out := []string{}
	for k, p := range st.procs {
		if _, ok := hosts[k.host]; ok && p.waitsFor != "" {
			out = append(out, k.host+rankWord(p)+" waits for "+p.waitsFor)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 16)]
}

func rankWord(p *proc) string {
	if len(p.ranks) == 1 {
		return fmt.Sprintf(" rank %d", p.ranks[0])
	}
	return ""
}

// suspect picks what most likely holds the job up.
func (st *state) suspect(s *Stall, behind *proc) string {
	switch {
	case len(s.Waits) > 0:
		return s.Waits[0] + ": a firewall, or the wrong interface (NCCL_SOCKET_IFNAME)."
	case len(s.Differ) > 0:
		return strings.ToUpper(s.Differ[0][:1]) + s.Differ[0][1:] + "."
	case len(s.Missing) > 0 && s.NRanks != nil && len(s.Missing) < *s.NRanks:
		return fmt.Sprintf("Nothing was seen of rank %s: look at the process and its host.", intList(s.Missing))
	case behind != nil && behind.phase < phaseInitStart:
		return fmt.Sprintf("The process %d on %s%s is behind the others.", behind.pid, behind.host, rankWord(behind))
	}
	return "All ranks wait in the same place: the connections between hosts do not come up (route, MTU, PFC, GID)."
}

func intList(n []int) string {
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

// Block is the stall as text to paste into a report.
func (s Stall) Block() string {
	var b strings.Builder
	size := ""
	if s.NRanks != nil {
		size = fmt.Sprintf(" of %d ranks", *s.NRanks)
	}
	fmt.Fprintf(&b, "set-up%s has stopped\n", size)
	for _, g := range s.Groups {
		who := fmt.Sprintf("%d processes", g.Procs)
		if len(g.Ranks) > 0 {
			who = "ranks " + intList(g.Ranks)
		}
		fmt.Fprintf(&b, "  %-28s %s: %s\n", g.Phase, g.Host, who)
	}
	if len(s.Missing) > 0 {
		fmt.Fprintf(&b, "  %-28s ranks %s\n", "not seen", intList(s.Missing))
	}
	for _, d := range slices.Concat(s.Differ, s.Waits) {
		fmt.Fprintf(&b, "  %s\n", d)
	}
	fmt.Fprintf(&b, "suspect: %s\n", s.Suspect)
	return b.String()
}

// ReportStall makes an event of a stall, once; false where there is none.
func (w *Watcher) ReportStall(seconds int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.st.stalled()
	if s == nil {
		return false
	}
	w.st.emit("stall", Event{
		ID: "stall", Severity: SeverityWarning,
		Text: fmt.Sprintf("No progress in the set-up for %d s. %s", seconds, s.Suspect), Block: s.Block(),
	}, nil)
	return true
}

// gidLine reads 'NET/IB: IbDev 0 Port 1 qpn 4711 mtu 5 GID 3 (…)'.
func (st *state) gidLine(m *message, t []byte) {
	if n := intAfter(t, " GID "); n >= 0 && m.proc != nil && bytes.Contains(t, []byte("qpn ")) {
		m.proc.gid = fmt.Sprint(n)
	}
}
