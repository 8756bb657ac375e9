package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fabrun/launcher/watch"
)

// IDs of events.
const (
	EventRailLost  = "rail-lost"
	EventRailBack  = "rail-back"
	EventRailFlaps = "rail-flaps"
	EventRailIdle  = "rail-idle"
	EventGIDStale  = "gid-stale"
	EventGIDBack   = "gid-back"
)

const (
	// goneAfter is for how long a port has to be missing from its host's samples
	// before its device is gone: one look may fail.
	goneAfter = 2 * time.Second
	// flapsAfter is after how many losses a rail is said to flap; those that follow
	// are counted and not said.
	flapsAfter = 3
	// calmAfter is after how long without a loss a rail does not flap any more.
	calmAfter = 10 * time.Minute
	// The job's own traffic is what idle rails are told by: a rail that carried its
	// part for so long, and then nothing for as long while the others went on.
	idleAfter  = 30 * time.Second
	idleLooks  = 3
	idleWindow = 5 * time.Second // shorter intervals are put together
	idleShare  = 0.001           // of what the others carry is nothing
	busyShare  = 0.25            // of what the others carry is its part
	busyBytes  = 1e6             // a second: less tells nothing of the rails
)

// Judge holds a job to its promise. It is used by one goroutine at a time.
type Judge struct {
	promise Promise
	rails   []*rail
	hosts   map[string]*host
	gids    []GIDChange
	stale   map[string]int    // of gids, by host, port and index: what is wrong now
	failed  map[string][]bool // host -> NCCL's devices of merged NICs: given up or not, by their number
	kept    int
	changed time.Time // when the number of rails that are kept last became less
	ledger  ledger
}

// rail is a promised rail and how it fares.
type rail struct {
	Rail
	short  map[string]Port  // Ports, by names without their domains
	of     float64          // Gb/s of its slowest port when it was first seen up; 0 none was
	down   map[string]fault // host -> what is wrong with its port
	losses []Loss           // the last is open where the rail is not whole
	flaps  int              // how often it became less
}

// end is the port of a host, by whichever of its names.
func (r *rail) end(host string) (Port, bool) {
	p, ok := r.Ports[host]
	if !ok {
		p, ok = r.short[short(host)]
	}
	return p, ok
}

// fault is what is wrong with a port.
type fault struct {
	port string
	why  string  // "link down"
	gbps float64 // that are left; 0 none
	of   float64 // 0 unknown
}

// Loss is a time in which a rail was not what was promised.
type Loss struct {
	From  time.Time  `json:"from"`
	Until *time.Time `json:"until"` // nil: to the end
	Host  string     `json:"host"`
	Port  string     `json:"port"`
	Why   string     `json:"why"`
	Gbps  float64    `json:"gbps"`    // that were left
	Of    *float64   `json:"of_gbps"` // of so many; null unknown
}

// host is what the samples of one host have told.
type host struct {
	name  string
	last  watch.Sample
	ports map[string]*portState // by port, "mlx5_3:1"
	since time.Time             // of the window in which traffic is compared
}

// portState is what the samples tell of one promised port.
type portState struct {
	gbps     float64 // of the first look; 0 unknown
	missing  time.Time
	gids     map[int]watch.GID // of the first look; nil not read
	bytes    uint64            // in the window
	counted  bool              // in all of the window
	was      uint64            // counter at the last look
	wasKnown bool
	carried  time.Duration
	idle     time.Duration
	idleFrom time.Time
	looks    int
	idleSaid bool
}

// New returns a Judge of a job to which this was promised. Without rails it judges
// nothing but still keeps the ledger.
func New(p Promise) *Judge {
	j := &Judge{promise: p, hosts: map[string]*host{}, stale: map[string]int{}, failed: map[string][]bool{}, kept: len(p.Rails)}
	for _, r := range p.Rails {
		by := make(map[string]Port, len(r.Ports))
		for host, p := range r.Ports {
			by[short(host)] = p
		}
		j.rails = append(j.rails, &rail{Rail: r, short: by, down: map[string]fault{}})
	}
	return j
}

// Sample takes a look at one host, and returns what there is to say.
func (j *Judge) Sample(s watch.Sample) []watch.Event {
	h := j.hosts[s.Host]
	if h == nil {
		if len(j.hosts) >= 1<<16 {
			return nil
		}
		h = &host{name: s.Host, ports: map[string]*portState{}}
		j.hosts[s.Host] = h
		j.ledger.know(s)
	} else {
		j.ledger.add(j, h.last, s)
	}
	first := h.last.Host == ""
	ports := map[string]watch.PortSample{}
	for _, p := range s.Ports {
		ports[fmt.Sprintf("%s:%d", p.HCA, p.Port)] = p
	}
	var out []watch.Event
	for _, r := range j.rails {
		end, ok := r.end(s.Host)
		if !ok {
			continue
		}
		st := h.ports[end.Name]
		if st == nil {
			st = &portState{}
			h.ports[end.Name] = st
		}
		p, seen := ports[end.Name]
		f, sure := j.look(st, end, p, seen, s.Time)
		if st.gbps > 0 && (r.of == 0 || st.gbps < r.of) {
			r.of = st.gbps
		}
		switch {
		case !sure:
		case f == nil:
			delete(r.down, s.Host)
		default:
			r.down[s.Host] = *f
		}
		if seen {
			out = append(out, j.gidsOf(h, st, end, p, s.Time, first)...)
		}
	}
	out = append(out, j.traffic(h, ports, s.Time, first)...)
	h.last = s
	return append(out, j.settle(s.Time)...)
}

// look judges one port; sure is false where this look tells nothing.
func (j *Judge) look(st *portState, end Port, p watch.PortSample, seen bool, at time.Time) (f *fault, sure bool) {
	of := cmp.Or(st.gbps, j.promise.RateGbps)
	if !seen {
		if st.missing.IsZero() {
			st.missing = at
			return nil, false
		}
		if at.Sub(st.missing) < goneAfter {
			return nil, false
		}
		return &fault{port: end.Name, why: "its device is gone", of: of}, true
	}
	st.missing = time.Time{}
	if !p.Active {
		why := "link down"
		if p.State != "" && p.State != "DOWN" {
			why = "port " + p.State
		}
		return &fault{port: end.Name, why: why, of: of}, true
	}
	if st.gbps == 0 {
		st.gbps = p.RateGbps
	}
	if p.RateGbps > 0 && st.gbps > 0 && p.RateGbps < st.gbps {
		return &fault{port: end.Name, why: fmt.Sprintf("%g instead of %g Gb/s", p.RateGbps, st.gbps), gbps: p.RateGbps, of: st.gbps}, true
	}
	return nil, true
}

// Event takes what a log says: NCCL gives up devices of its merged NICs, which it
// names by number alone, and may take them back.
func (j *Judge) Event(e watch.Event) []watch.Event {
	if e.Device == nil || *e.Device < 0 || *e.Device >= 64 || e.ID != "rail-failed" && e.ID != "rail-recovered" || len(j.rails) == 0 {
		return nil
	}
	devs := j.failed[e.Host]
	for len(devs) <= *e.Device {
		devs = append(devs, false)
	}
	devs[*e.Device] = e.ID == "rail-failed"
	j.failed[e.Host] = devs
	return j.settle(e.Time)
}

// givenUp is how many rails NCCL has left for which no port is to blame, on the host
// that has most of them.
func (j *Judge) givenUp() (n int, on string) {
	for _, name := range slices.Sorted(maps.Keys(j.failed)) {
		left := 0
		for _, gone := range j.failed[name] {
			if gone {
				left++
			}
		}
		for _, r := range j.rails {
			for down := range r.down {
				if short(down) == short(name) {
					left--
				}
			}
		}
		if left > n {
			n, on = left, name
		}
	}
	return n, on
}

// worst is the fault of a rail that leaves least of it, and on how many hosts there
// is one.
func (r *rail) worst() (on string, f fault, hosts int) {
	for _, name := range slices.Sorted(maps.Keys(r.down)) {
		if d := r.down[name]; on == "" || d.gbps < f.gbps {
			on, f = name, d
		}
	}
	return on, f, len(r.down)
}

// left is what is left of a rail, of what was promised; 0 and 0 unknown.
func (j *Judge) left(r *rail) (gbps, of float64) {
	of = cmp.Or(r.of, j.promise.RateGbps)
	gbps = of
	for _, f := range r.down {
		gbps = min(gbps, f.gbps)
	}
	return gbps, of
}

// settle compares the rails with how they were before, and says what changed: a rail
// that is lost already is not lost again when another host loses its end.
func (j *Judge) settle(at time.Time) []watch.Event {
	var out []watch.Event
	for _, r := range j.rails {
		on, f, _ := r.worst()
		var open *Loss
		if n := len(r.losses); n > 0 && r.losses[n-1].Until == nil {
			open = &r.losses[n-1]
		}
		switch {
		case open == nil && len(r.down) > 0:
			if r.calm(at) {
				r.flaps = 0
			}
			r.lose(at, on, f)
			r.flaps++
			j.changed = at
			if r.flaps <= flapsAfter {
				out = append(out, j.lost(r, at, on, f))
			}
		case open != nil && len(r.down) == 0:
			open.Until = &at
			if r.flaps < flapsAfter {
				out = append(out, j.back(r, at))
			}
		case open == nil && r.flaps >= flapsAfter && r.calm(at):
			r.flaps = 0
			out = append(out, j.back(r, at))
		case open != nil && open.Gbps != f.gbps:
			// Slower, down, or up again at less: another loss.
			open.Until = &at
			r.lose(at, on, f)
			if r.flaps <= flapsAfter {
				out = append(out, j.lost(r, at, on, f))
			}
		}
	}
	kept := j.whole()
	if n, on := j.givenUp(); n > 0 && kept < j.kept && len(out) == 0 {
		j.changed = at
		out = append(out, watch.Event{
			Time: at, ID: EventRailLost, Severity: watch.SeverityWarning, Host: on,
			Text: fmt.Sprintf("%s.", upper(j.sentence())),
		})
	}
	j.kept = kept
	return out
}

// calm reports whether a rail was last lost long ago.
func (r *rail) calm(at time.Time) bool {
	n := len(r.losses)
	return n > 0 && r.losses[n-1].Until != nil && at.Sub(*r.losses[n-1].Until) > calmAfter
}

// back says that a rail is again what was promised.
func (j *Judge) back(r *rail, at time.Time) watch.Event {
	last := r.losses[len(r.losses)-1]
	return watch.Event{
		Time: at, ID: EventRailBack, Severity: watch.SeverityNote, Host: last.Host, Subject: last.Port,
		Text: fmt.Sprintf("%s is back after %s: %s.", last.Port, lasted(last.Until.Sub(last.From)), j.sentence()),
	}
}

func (r *rail) lose(at time.Time, on string, f fault) {
	if len(r.losses) >= 1000 {
		r.losses = slices.Delete(r.losses, 500, 501)
	}
	l := Loss{From: at, Host: on, Port: f.port, Why: f.why, Gbps: f.gbps}
	if f.of > 0 {
		of := f.of
		l.Of = &of
	}
	r.losses = append(r.losses, l)
}

// lost says that a rail is not what was promised.
func (j *Judge) lost(r *rail, at time.Time, on string, f fault) watch.Event {
	e := watch.Event{Time: at, ID: EventRailLost, Severity: watch.SeverityWarning, Host: on, Subject: f.port}
	if r.flaps == flapsAfter {
		e.ID = EventRailFlaps
		e.Text = fmt.Sprintf("%s went down %d times since %s (%s): look at its cable, transceiver and switch port. From here on its falls are counted only.", f.port, r.flaps, clock(r.losses[0].From), f.why)
		return e
	}
	e.Text = upper(j.sentence()) + "."
	return e
}

// lastingAfter is for how long a rail has to be lost before the contract is broken:
// libraries sit out a link that is down for a moment.
const lastingAfter = 10 * time.Second

// Broken says at a time whether rails are lost, or slower, for so long that this is no
// moment, and then what there is of what was promised.
func (j *Judge) Broken(at time.Time) (string, bool) {
	for _, r := range j.rails {
		if n := len(r.losses); n > 0 && r.losses[n-1].Until == nil && at.Sub(r.losses[n-1].From) >= lastingAfter {
			return upper(j.sentence()) + ".", true
		}
	}
	return "", false
}

// whole is how many rails are there at all, be they slower.
func (j *Judge) whole() int {
	n := 0
	for _, r := range j.rails {
		if !r.gone() {
			n++
		}
	}
	up, _ := j.givenUp()
	return max(0, n-up)
}

// gone reports whether nothing is left of a rail.
func (r *rail) gone() bool {
	for _, f := range r.down {
		if f.gbps == 0 {
			return true
		}
	}
	return false
}

// sentence says what there is of what was promised, as of now.
func (j *Judge) sentence() string {
	var why []string
	var missing float64
	slower := 0
	known := true
	var since time.Time
	for _, r := range j.rails {
		on, f, hosts := r.worst()
		if on == "" {
			continue
		}
		if n := len(r.losses); n > 0 && r.losses[n-1].From.After(since) {
			since = r.losses[n-1].From
		}
		gbps, of := j.left(r)
		if of == 0 {
			known = false
		}
		missing += of - gbps
		if gbps > 0 && !r.gone() {
			slower++
		}
		text := fmt.Sprintf("%s on %s: %s", f.port, on, f.why)
		if hosts > 1 {
			text = fmt.Sprintf("%s on %s and %d more: %s", f.port, on, hosts-1, f.why)
		}
		why = append(why, text)
	}
	if n, on := j.givenUp(); n > 0 {
		why = append(why, fmt.Sprintf("%d that NCCL gave up on %s", n, on))
		missing += float64(n) * j.promise.RateGbps
		known = known && j.promise.RateGbps > 0
		if since.IsZero() {
			since = j.changed
		}
	}
	kept := j.whole()
	s := railsWord(len(j.rails)) + " promised"
	switch {
	case len(why) == 0:
		return s + ", all there"
	case kept == len(j.rails):
		s += fmt.Sprintf(", %d slower since %s", slower, clock(since))
	default:
		s += fmt.Sprintf(", %d since %s", kept, clock(since))
		if kept == 0 {
			s = strings.Replace(s, ", 0 since", ", none since", 1)
		}
	}
	if len(why) > 4 {
		why = append(why[:3], fmt.Sprintf("and %d more", len(why)-3))
	}
	s += " (" + strings.Join(why, "; ") + ")"
	if known && missing > 0 {
		s += ", " + rate(missing) + " fewer"
	}
	return s
}

// traffic compares what the ports of a host carry: one that carried its part and now
// carries nothing, while the others go on, has been left by the library, or its
// ranks have nothing to send. That is said as what it is; no rail is counted as lost
// for it.
func (j *Judge) traffic(h *host, ports map[string]watch.PortSample, at time.Time, first bool) []watch.Event {
	for name, st := range h.ports {
		p, ok := ports[name]
		now, known := carried(p)
		if !ok || !p.Active || !known || !st.wasKnown || now < st.was || first {
			st.counted = false // nothing is known of this window
		} else {
			st.bytes += now - st.was
		}
		st.was, st.wasKnown = now, ok && known
	}
	window := at.Sub(h.since)
	if !first && window < idleWindow {
		return nil
	}
	h.since = at
	var out []watch.Event
	for _, name := range slices.Sorted(maps.Keys(h.ports)) {
		st := h.ports[name]
		others := h.median(name)
		switch mine := float64(st.bytes); {
		case first || !st.counted || others < busyBytes*window.Seconds():
		case mine >= busyShare*others:
			st.carried += window
			if st.idleSaid {
				st.idleSaid = false
				out = append(out, watch.Event{Time: at, ID: EventRailBack, Severity: watch.SeverityNote, Host: h.name, Subject: name, Text: name + " carries its part again."})
			}
			st.idle, st.looks = 0, 0
		case mine < idleShare*others:
			if st.looks == 0 {
				st.idleFrom = at.Add(-window)
			}
			st.looks++
			st.idle += window
			if st.idle >= idleAfter && st.looks >= idleLooks && st.carried >= idleAfter && !st.idleSaid {
				st.idleSaid = true
				out = append(out, watch.Event{
					Time: at, ID: EventRailIdle, Severity: watch.SeverityWarning, Host: h.name, Subject: name,
					Text: fmt.Sprintf("%s is up and carries nothing since %s, while the other ports of the node go on: the library has left it, or the ranks next to it have nothing to send.", name, clock(st.idleFrom)),
				})
			}
		default:
			st.idle, st.looks = 0, 0
		}
	}
	for _, st := range h.ports {
		st.bytes, st.counted = 0, true
	}
	return out
}

// median is what the other ports of a host carried in this window, in the middle.
func (h *host) median(but string) float64 {
	var all []uint64
	for name, st := range h.ports {
		if name != but && st.counted {
			all = append(all, st.bytes)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[len(all)/2])
}

// carried is what a port has sent and received; known is false where it counts
// no bytes.
func carried(p watch.PortSample) (n uint64, known bool) {
	tx, okTx := p.Counters[watch.TxBytes]
	rx, okRx := p.Counters[watch.RxBytes]
	return tx + rx, okTx || okRx
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }

// lasted writes a time for a person: "1.2 s", "12 s", "3 min 20 s", "40 min", "2.5 h".
func lasted(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 10*time.Minute:
		s := int(d.Seconds() + 0.5)
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
