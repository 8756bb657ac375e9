package hang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/watch"
)

// The events of this package.
const (
	EventHang  = "hang"
	EventOver  = "hang-over"
	EventTorch = "hang-torch"
)

// maxWait is the longest time before a job that stands still again and again is
// told of once more.
const maxWait = time.Hour

// Now is what is to say of a job that ends as it stands; "" nothing.
func (j *Judge) Now() string {
	if j.told < holdsUp || j.now.kind < holdsUp {
		return ""
	}
	e := j.now.event()
	if e.Host != "" {
		return j.now.culprits[0].at() + ": " + e.Text
	}
	return e.Text
}

// tell says a standstill once, again where other ranks hold it up, and once that
// the job goes on.
func (j *Judge) tell() (watch.Event, bool) {
	s := j.now
	switch s.kind {
	case goesOn:
		if j.told <= unknown || len(s.nodes) == 0 || !j.seenToMove() {
			return watch.Event{}, false
		}
		e := watch.Event{ID: EventOver, Severity: watch.SeverityWarning, Text: fmt.Sprintf("The job goes on, after a standstill of at least %s.", seconds(j.lasts))}
		if j.told == oneStops || j.told == suspended {
			e.Text = "The ranks that were stopped go on."
		}
		if j.told == suspended {
			e.Severity = watch.SeverityNote
		}
		j.told, j.lasts = goesOn, 0
		clear(j.said)
		return e, true
	case unknown:
		return watch.Event{}, false
	}
	j.lasts = s.since
	if most := min(j.after<<min(j.times, 16), max(maxWait, j.after)); s.since < most-most/20 && j.told <= unknown {
		return watch.Event{}, false
	}
	fresh := j.told <= unknown || s.kind == holdsUp && j.told != holdsUp
	for _, p := range s.culprits {
		fresh = fresh || !j.said[p.key()]
	}
	if !fresh {
		return watch.Event{}, false
	}
	if j.told <= unknown {
		j.times++
	}
	j.told = s.kind
	for _, p := range s.culprits {
		j.said[p.key()] = true
	}
	return s.event(), true
}

// seenToMove reports whether a rank works, or data moves: what is only not known
// any more is no end.
func (j *Judge) seenToMove() bool {
	for _, n := range j.hosts {
		for _, p := range n.procs {
			if n.last.Ports != nil && n.still.looks == 0 && p.stopped.looks == 0 || !p.idle(n.last.Time, 0) && p.stopped.looks == 0 {
				return true
			}
		}
	}
	return false
}

func (p *proc) key() string { return fmt.Sprintf("%s %d", p.host, p.PID) }

// who names a process for a person; its host is said beside it.
func (p *proc) who() string {
	if p.Rank.Rank != nil {
		return fmt.Sprintf("rank %d", *p.Rank.Rank)
	}
	return fmt.Sprintf("%s (process %d)", p.Name, p.PID)
}

// at names a process and its host.
func (p *proc) at() string { return p.who() + " on " + p.host }

func ats(ps []*proc) string {
	var out []string
	for _, p := range ps[:min(len(ps), maxNamed)] {
		out = append(out, p.at())
	}
	s := strings.Join(out, ", ")
	if len(ps) > maxNamed {
		s += fmt.Sprintf(" and %d more", len(ps)-maxNamed)
	}
	return s
}

// number picks a word by how many it is of.
func number(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// event is the standstill as it is told.
func (s standing) event() watch.Event {
	e := watch.Event{ID: EventHang, Severity: watch.SeverityWarning, Block: s.block()}
	alone := len(s.culprits) == 1 && (s.kind == oneStops || s.kind == holdsUp)
	who := "it"
	if alone {
		e.Host, e.Rank = s.culprits[0].host, s.culprits[0].Rank.Rank
		if e.Rank == nil {
			who = s.culprits[0].who()
		}
	}
	switch s.kind {
	case suspended:
		e.Severity = watch.SeverityNote
		e.Text = fmt.Sprintf("All %d ranks are stopped for %s: the job was suspended.", len(s.culprits), seconds(s.since))
	case oneStops:
		if !alone {
			who = first(ats(s.culprits))
		}
		e.Text = fmt.Sprintf("%s %s for %s, and data still moves: the witnesses disagree, or the others do not need it yet.", who, s.state(), seconds(s.since))
	case holdsUp:
		e.Text = fmt.Sprintf("%s %s for %s, and %s: the job hangs.", who, s.state(), seconds(s.since), s.nothing())
		if !alone {
			e.Text = fmt.Sprintf("The job hangs: %s %s for %s, and %s.", ats(s.culprits), s.state(), seconds(s.since), s.nothing())
		}
	case allWait:
		seen := ""
		if len(s.unheard) > 0 {
			seen = " that can be seen"
		}
		e.Text = fmt.Sprintf("The job stands still for %s: no rank%s computes, and %s. %s", seconds(s.since), seen, s.nothing(), s.suspect())
	case lags:
		e.Text = fmt.Sprintf("The job hangs: %s, and %s.", rasText(s.rasComms), s.nothing())
	}
	if w := s.disagree(); w != "" {
		e.Text += " " + w
	}
	return e
}

func first(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// state says what holds the culprits up, where it is the same for all.
func (s standing) state() string {
	p := s.culprits[0]
	switch be := number(len(s.culprits), "is", "are"); p.State {
	case "t":
		return be + " stopped by a debugger"
	case "T":
		return be + " stopped (SIGSTOP)"
	default:
		return be + " stuck in the kernel (" + cmp.Or(p.Wait, "where is not told") + ": a disk, a file server, a driver)"
	}
}

// nothing says what does not move, and how that is known.
func (s standing) nothing() string {
	switch {
	case s.ports > 0 && s.portHosts == len(s.nodes):
		return fmt.Sprintf("nothing moves on the job's %d RDMA ports", s.ports)
	case s.ports > 0:
		return fmt.Sprintf("nothing moves on the %d RDMA ports that can be read", s.ports)
	case s.tcp > 0:
		return "nothing moves on the ranks' connections"
	}
	return "whether data moves is not known"
}

// suspect says who most likely is behind, where all wait.
func (s standing) suspect() string {
	switch gone := s.gone(); {
	case gone != "":
		return first(gone) + " ended, and the others wait."
	case len(s.unheard) > 0:
		return "Nothing is heard of " + shortList(s.unheard) + ": look there first."
	case len(s.culprits) > 0 && ownClock(s.culprits[0].Wait):
		return first(ats(s.culprits)) + number(len(s.culprits), " sleeps of its", " sleep of their") + " own accord while the others wait: look there first."
	case len(s.culprits) > 0:
		return first(ats(s.culprits)) + number(len(s.culprits), " waits", " wait") + " elsewhere than the others (" + waitWord(s.culprits[0].Wait) + "): look there first."
	}
	return "All wait in the same way, so nobody stands out: a peer that never came, a connection that broke unseen, or a program that waits for work (then --hang-after off)."
}

func (s standing) gone() string {
	var out []string
	for _, n := range s.nodes {
		for _, r := range n.gone {
			out = append(out, fmt.Sprintf("rank %d on %s", *r.Rank, n.last.Host))
		}
	}
	return shortList(out)
}

func shortList(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

// disagree says where NCCL's word is another than that of the processes.
func (s standing) disagree() string {
	switch {
	case s.kind < holdsUp || s.kind == lags:
		return ""
	case s.ras == rasMoves:
		return "The witnesses disagree: NCCL RAS still counts further collectives."
	case s.ras == rasHealthy:
		return "The witnesses disagree: NCCL RAS calls the job healthy."
	case s.ras == rasLags && !s.rasAgrees():
		return "The witnesses disagree: " + rasText(s.rasComms) + "."
	}
	return ""
}

// rasAgrees reports whether NCCL names a rank that the processes do.
func (s standing) rasAgrees() bool {
	if len(s.culprits) == 0 {
		return true
	}
	for _, c := range s.rasComms {
		for _, r := range slices.Concat(c.Silent, c.Behind) {
			for _, p := range s.culprits {
				if p.PID == r.PID || p.Rank.Rank != nil && *p.Rank.Rank == r.Rank {
					return true
				}
			}
		}
	}
	return false
}

// block is where each rank is, and what speaks for it.
func (s standing) block() string {
	type place struct{ word, host string }
	at := map[place][]int{}
	other := map[place]int{}
	var stacks []string
	for _, n := range s.nodes {
		for _, pid := range slices.Sorted(maps.Keys(n.procs)) {
			p := n.procs[pid]
			k := place{p.word(), p.host}
			if p.Rank.Rank != nil {
				at[k] = append(at[k], *p.Rank.Rank)
			} else {
				other[k]++
			}
		}
	}
	for _, p := range s.culprits {
		if len(p.Stack) > 0 && !isState(p.State, "Tt") && len(stacks) < maxNamed {
			stacks = append(stacks, fmt.Sprintf("  stack of %s: %s\n", p.at(), strings.Join(p.Stack, " < ")))
		}
	}
	var b strings.Builder
	keys := map[place]bool{}
	for k := range at {
		keys[k] = true
	}
	for k := range other {
		keys[k] = true
	}
	sorted := slices.SortedFunc(maps.Keys(keys), func(a, b place) int {
		if a.word != b.word {
			return strings.Compare(a.word, b.word)
		}
		return strings.Compare(a.host, b.host)
	})
	for i, k := range sorted {
		if i == maxLines {
			fmt.Fprintf(&b, "  and %d more lines\n", len(sorted)-i)
			break
		}
		who := ""
		if ranks := at[k]; len(ranks) > 0 {
			slices.Sort(ranks)
			who = number(len(ranks), "rank ", "ranks ") + watch.Ranges(ranks)
		}
		if n := other[k]; n > 0 {
			who = strings.TrimPrefix(fmt.Sprintf("%s, %d more processes", who, n), ", ")
		}
		fmt.Fprintf(&b, "  %-30s %s: %s\n", k.word, k.host, who)
	}
	for _, line := range stacks {
		b.WriteString(line)
	}
	if s.ports > 0 {
		fmt.Fprintf(&b, "  counters: %d RDMA ports on %d hosts\n", s.ports, s.portHosts)
	}
	if s.ras != rasNone {
		fmt.Fprintf(&b, "  %s\n", s.ras.word(s.rasComms))
	}
	return b.String()
}

// maxLines bounds a block.
const maxLines = 24

// word is what a process does, for a person.
func (p *proc) word() string {
	switch p.State {
	case "T":
		return "stopped"
	case "t":
		return "stopped by a debugger"
	case "D":
		return "in the kernel (" + cmp.Or(p.Wait, "?") + ")"
	case "Z", "X":
		return "ended"
	case "R":
		return "computes, or spins"
	}
	if p.waits.looks == 0 && p.dozes.looks == 0 {
		return "works on and off"
	}
	return waitWord(p.Wait)
}

// waitWords are the system calls and kernel functions in which programs wait.
var waitWords = []struct {
	begins []string
	word   string
}{
	{[]string{"nanosleep", "clock_nanosleep", "hrtimer_nanosleep", "do_nanosleep", "common_nsleep"}, "sleeps of its own accord"},
	{[]string{"futex", "__futex", "do_futex"}, "waits for a thread (futex)"},
	{[]string{"poll", "ppoll", "select", "pselect", "epoll", "do_poll", "do_select", "do_sys_poll", "ep_poll", "do_epoll"}, "waits for a message (poll)"},
	{[]string{"recv", "accept", "connect", "send", "tcp_", "inet_", "sk_wait", "wait_woken", "unix_", "skb_", "__skb"}, "waits for a message (socket)"},
	{[]string{"wait4", "waitid", "do_wait"}, "waits for a child"},
	{[]string{"n_tty", "tty_"}, "waits for the terminal"},
	{[]string{"read", "pipe_", "anon_pipe", "ksys_read", "vfs_read"}, "reads (file or pipe)"},
	{[]string{"write"}, "writes (file or pipe)"},
}

// waitWord tells a person where a process waits.
func waitWord(wait string) string {
	for _, w := range waitWords {
		for _, lead := range w.begins {
			if strings.HasPrefix(wait, lead) {
				return w.word
			}
		}
	}
	if wait == "" {
		return "waits"
	}
	return "waits (" + wait + ")"
}

// ownClock reports whether a process sleeps because it asked for it.
func ownClock(wait string) bool { return waitWord(wait) == waitWords[0].word }
