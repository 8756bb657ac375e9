package hang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fabrun/launcher/watch"
)

// doing is what a rank of a story does from one look to the next.
type doing struct {
	state      string
	wait       string
	cpu        float64 // seconds in five
	turns      uint64
	bytes, tcp uint64
}

var (
	spins   = doing{state: "R", cpu: 5}
	works   = doing{state: "S", wait: "futex", cpu: 2, turns: 300, tcp: 5 << 20}
	steps   = doing{state: "S", wait: "nanosleep", cpu: 0.1, turns: 100, tcp: 3 << 10} // a tiny model
	waits   = doing{state: "S", wait: "futex", cpu: 0.01}
	polls   = doing{state: "S", wait: "poll"}
	dozes   = doing{state: "S", wait: "clock_nanosleep", turns: 50}
	stops   = doing{state: "T", wait: "do_signal_stop"}
	traced  = doing{state: "t"}
	stuck   = doing{state: "D", wait: "rpc_wait_bit_killable"}
	writes  = doing{state: "D", wait: "balance_dirty_pages", bytes: 100 << 20}
	fetches = doing{state: "S", wait: "poll", tcp: 1 << 20}
	gone    = doing{}
)

// part is what a story's job does until a time.
type part struct {
	until time.Duration
	ranks [4]doing // two on each of two hosts
	moved uint64   // bytes that each host's ports move in five seconds
	ras   *RAS     // what NCCL answers at each look
	gap   bool     // no looks
	blind string   // this host gives none
}

const step = 5 * time.Second

// tell plays a story: looks every five seconds, half of that apart on the two hosts.
func tell(t *testing.T, story []part, change func(*Look)) (events []watch.Event, hung time.Duration) {
	t.Helper()
	j := New(DefaultAfter)
	begin := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	var ranks [4]Rank
	tcp := [4]uint64{1, 1, 1, 1}
	ports := [2]uint64{1000, 1000}
	at := time.Duration(0)
	for _, p := range story {
		for ; at < p.until; at += step {
			for h := range 2 {
				host := fmt.Sprintf("node%02d", h+1)
				ports[h] += p.moved
				l := Look{Time: begin.Add(at + time.Duration(h)*step/2), Host: host, Ports: new(uint64), NPorts: 2}
				*l.Ports = ports[h]
				for i := 2 * h; i < 2*h+2; i++ {
					d := p.ranks[i]
					if d == gone {
						continue
					}
					r := &ranks[i]
					tcp[i] += d.tcp
					moved := tcp[i]
					*r = Rank{Rank: &i, PID: 100 + i, Name: "python3", State: d.state, Wait: d.wait, CPU: r.CPU + d.cpu, Turns: r.Turns + d.turns, Bytes: r.Bytes + d.bytes, TCP: &moved}
					if d == spins {
						r.TCP = nil // a busy rank's are not looked at
					}
					l.Ranks = append(l.Ranks, *r)
				}
				if h == 0 {
					l.RAS = p.ras
				}
				if change != nil {
					change(&l)
				}
				if p.gap || p.blind == host {
					continue
				}
				events = append(events, j.Add(l)...)
			}
		}
	}
	for i := range events {
		if events[i].Time.IsZero() {
			t.Errorf("an event without a time: %+v", events[i])
		}
	}
	return events, j.Hangs()
}

func all(d doing) [4]doing { return [4]doing{d, d, d, d} }

func but(d doing, i int, other doing) [4]doing {
	a := all(d)
	a[i] = other
	return a
}

func lagging() *RAS {
	return &RAS{Version: "2.29.1", Comms: []Comm{{ID: "0xae", Size: 4, Total: 51, BehindN: 1, Behind: []RASRank{{Rank: 2, Host: "10.0.0.2", PID: 102, Op: "AllReduce", Count: 12, Most: 13}}}}}
}

func healthy() *RAS {
	return &RAS{Version: "2.29.1", Comms: []Comm{{ID: "0xae", Size: 4, Total: 52}}}
}

func TestJudge(t *testing.T) {
	const busy = 1 << 30
	fine := part{until: 60 * time.Second, ranks: all(works), moved: busy}
	mpi := part{until: 60 * time.Second, ranks: all(spins), moved: busy}
	idle := 0.0
	for _, c := range []struct {
		name   string
		story  []part
		change func(*Look)
		want   string // of the first event's text; "" no event
		rank   int    // that it names; -1 none
		host   string
		block  []string
		hangs  bool
	}{
		{"a training", []part{{until: time.Hour, ranks: all(works), moved: busy}}, nil, "", -1, "", nil, false},
		{"an MPI job", []part{{until: time.Hour, ranks: all(spins), moved: busy}}, nil, "", -1, "", nil, false},
		{"it only computes", []part{mpi, {until: 180 * time.Second, ranks: all(spins)}}, nil, "", -1, "", nil, false},
		{"one computes, the others wait", []part{fine, {until: 180 * time.Second, ranks: but(waits, 2, spins)}}, nil, "", -1, "", nil, false},
		{"a tiny model, in small steps", []part{{until: 180 * time.Second, ranks: all(steps)}}, nil, "", -1, "", nil, false},
		{"one fetches its data from far away", []part{fine, {until: 180 * time.Second, ranks: but(waits, 0, fetches)}}, nil, "", -1, "", nil, false},
		{"a checkpoint is written", []part{fine, {until: 180 * time.Second, ranks: but(waits, 0, writes)}}, nil, "", -1, "", nil, false},
		{"all sleep of their own accord", []part{{until: 180 * time.Second, ranks: all(dozes)}}, nil, "", -1, "", nil, false},
		{
			"an MPI rank is stopped",
			[]part{mpi, {until: 160 * time.Second, ranks: but(spins, 2, stops)}},
			nil,
			"it is stopped (SIGSTOP) for 2",
			2, "node02",
			[]string{"stopped                        node02: rank 2\n", "computes, or spins             node01: ranks 0-1\n", "counters: 4 RDMA ports on 2 hosts"},
			true,
		},
		{"a debugger stops one", []part{mpi, {until: 160 * time.Second, ranks: but(spins, 2, traced)}}, nil, "it is stopped by a debugger", 2, "node02", nil, true},
		{"a Gloo rank is stopped", []part{fine, {until: 160 * time.Second, ranks: but(waits, 0, stops)}}, noPorts, "it is stopped", 0, "node01", []string{"waits for a thread (futex)     node02: ranks 2-3\n"}, true},
		{"two are stopped", []part{mpi, {until: 160 * time.Second, ranks: [4]doing{stops, spins, spins, stops}}}, nil, "The job hangs: rank 0 on node01, rank 3 on node02 are stopped", -1, "", nil, true},
		{"one is stopped, and data moves", []part{mpi, {until: 160 * time.Second, ranks: but(spins, 2, stops), moved: busy}}, nil, "it is stopped (SIGSTOP) for 4", 2, "node02", nil, false},
		{"stopped for a moment", []part{mpi, {until: 70 * time.Second, ranks: but(spins, 2, stops)}, {until: 160 * time.Second, ranks: all(spins), moved: busy}}, nil, "", -1, "", nil, false},
		{"the whole job is put aside", []part{fine, {until: 160 * time.Second, ranks: all(stops)}}, nil, "All 4 ranks are stopped", -1, "", nil, false},
		{"a file server is gone", []part{fine, {until: 160 * time.Second, ranks: but(waits, 1, stuck)}}, nil, "it is stuck in the kernel (rpc_wait_bit_killable: a disk, a file server, a driver) for 2", 1, "node01", nil, true},
		{"it waits before it has begun", []part{{until: 160 * time.Second, ranks: all(polls)}}, nil, "The job stands still for 2", -1, "", []string{"waits for a message (poll)"}, true},
		{"one never joins", []part{{until: 160 * time.Second, ranks: but(polls, 3, dozes)}}, nil, "The job stands still for 20 s: no rank computes, and nothing moves on the job's 4 RDMA ports. Rank 3 on node02 sleeps of its own accord while the others wait: look there first.", -1, "", nil, true},
		{"one waits elsewhere", []part{{until: 160 * time.Second, ranks: but(polls, 1, waits)}}, nil, "elsewhere than the others (waits for a thread (futex))", -1, "", nil, true},
		{"one has ended, and the others wait", []part{fine, {until: 160 * time.Second, ranks: but(waits, 3, gone)}}, nil, "Rank 3 on node02 ended, and the others wait.", -1, "", nil, true},
		{"ranks of a GPU of which nothing is known", []part{fine, {until: 160 * time.Second, ranks: all(waits)}}, onGPUs(nil), "", -1, "", nil, false},
		{"ranks of a GPU that idles", []part{fine, {until: 160 * time.Second, ranks: all(waits)}}, onGPUs(&idle), "The job stands still", -1, "", nil, true},
		{"the whole machine paused", []part{fine, {until: 160 * time.Second, ranks: all(waits), gap: true}, {until: 170 * time.Second, ranks: all(waits)}, {until: 300 * time.Second, ranks: all(works), moved: busy}}, nil, "", -1, "", nil, false},
		{"a host shows no ranks", []part{{until: 160 * time.Second, ranks: [4]doing{waits, waits, gone, gone}}}, nil, "", -1, "", nil, false},
		{"a host is not heard any more", []part{fine, {until: 260 * time.Second, ranks: all(waits), blind: "node02"}}, nil, "no rank that can be seen computes, and nothing moves on the job's 2 RDMA ports. Nothing is heard of node02: look there first.", -1, "", nil, false},

		{"NCCL says that one lags", []part{mpi, {until: 160 * time.Second, ranks: all(spins), ras: lagging()}}, nil, "The job hangs: NCCL RAS says that rank 2 (process 102 on 10.0.0.2) has launched 12 AllReduce where others have 13, and nothing moves on the job's 4 RDMA ports.", -1, "", []string{"  NCCL RAS says that rank 2"}, true},
		{"NCCL says that one lags, and data moves", []part{{until: 160 * time.Second, ranks: all(spins), moved: busy, ras: lagging()}}, nil, "", -1, "", nil, false},
		{"NCCL calls it healthy, and it computes", []part{mpi, {until: 160 * time.Second, ranks: all(spins), ras: healthy()}}, nil, "", -1, "", nil, false},
		{"NCCL lies", []part{mpi, {until: 160 * time.Second, ranks: but(spins, 2, stops), ras: healthy()}}, nil, "The witnesses disagree: NCCL RAS calls the job healthy.", 2, "node02", []string{"  NCCL RAS calls the job healthy: all ranks have launched the same collectives"}, true},
		{"NCCL agrees", []part{mpi, {until: 160 * time.Second, ranks: but(spins, 2, stops), ras: lagging()}}, nil, "for 20 s, and nothing moves on the job's 4 RDMA ports: the job hangs.", 2, "node02", nil, true},
		{"NCCL names another", []part{mpi, {until: 160 * time.Second, ranks: but(spins, 1, stops), ras: lagging()}}, nil, "The witnesses disagree: NCCL RAS says that rank 2", 1, "node01", nil, true},
		{"NCCL counts on", []part{mpi, {until: 160 * time.Second, ranks: all(waits), ras: &RAS{}}}, counting(), "", -1, "", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, hung := tell(t, c.story, c.change)
			if c.want == "" {
				for _, e := range events {
					t.Errorf("told: %+v", e)
				}
				if hung > 0 {
					t.Errorf("certainly hangs for %v", hung)
				}
				return
			}
			if len(events) != 1 {
				t.Fatalf("%d events, want one: %+v", len(events), events)
			}
			e := events[0]
			if !strings.Contains(e.Text, c.want) {
				t.Errorf("text %q\nwant %q", e.Text, c.want)
			}
			if rank := -1; e.Rank != nil {
				rank = *e.Rank
				if rank != c.rank || e.Host != c.host {
					t.Errorf("names rank %d of %q, want %d of %q", rank, e.Host, c.rank, c.host)
				}
			} else if c.rank >= 0 {
				t.Errorf("names nobody, want rank %d", c.rank)
			}
			for _, want := range c.block {
				if !strings.Contains(e.Block, want) {
					t.Errorf("block lacks %q:\n%s", want, e.Block)
				}
			}
			if (hung > 0) != c.hangs {
				t.Errorf("certainly hangs for %v, want %v", hung, c.hangs)
			}
		})
	}
}

func noPorts(l *Look) { l.Ports, l.NPorts = nil, 0 }

func onGPUs(use *float64) func(*Look) {
	return func(l *Look) {
		l.GPUUse = use
		for i := range l.Ranks {
			l.Ranks[i].GPU = true
		}
	}
}

// counting is a RAS whose answers tell of more collectives each time.
func counting() func(*Look) {
	n := uint64(0)
	return func(l *Look) {
		if l.RAS != nil {
			n++
			l.RAS = &RAS{Comms: []Comm{{ID: "0xae", Size: 4, Total: 100 * n}}}
		}
	}
}

// TestWithinThirtySeconds: by the times of the looks, wherever between two of them
// the fault falls.
func TestWithinThirtySeconds(t *testing.T) {
	begin := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	fault := begin.Add(60 * time.Second)
	for _, c := range []struct {
		name  string
		after [4]doing
	}{{"stopped", but(spins, 2, stops)}, {"all wait", but(polls, 2, dozes)}} {
		events, _ := tell(t, []part{{until: 60 * time.Second, ranks: all(works), moved: 1 << 30}, {until: 200 * time.Second, ranks: c.after}}, nil)
		if len(events) != 1 {
			t.Fatalf("%s: %+v", c.name, events)
		}
		// The fault was after the last look before it, at the earliest.
		if took := events[0].Time.Sub(fault) + step; took > 30*time.Second {
			t.Errorf("%s: told %v after the fault", c.name, took)
		}
	}
}

// TestOver: what goes on again is told once, and a job that stands still again and
// again is not told of each time.
func TestOver(t *testing.T) {
	story := []part{{until: 60 * time.Second, ranks: all(spins), moved: 1 << 30}, {until: 160 * time.Second, ranks: but(spins, 2, stops)}, {until: 300 * time.Second, ranks: all(spins), moved: 1 << 30}}
	events, hung := tell(t, story, nil)
	if len(events) != 2 || events[1].ID != EventOver || !strings.HasPrefix(events[1].Text, "The job goes on, after a standstill of at least ") || hung > 0 {
		t.Errorf("%v: %+v", hung, events)
	}
	story = nil
	for at := time.Duration(0); at < 3*time.Hour; at += 90 * time.Second {
		story = append(story, part{until: at + 30*time.Second, ranks: all(works), moved: 1 << 30}, part{until: at + 90*time.Second, ranks: all(polls)})
	}
	if events, _ = tell(t, story, nil); len(events) == 0 || len(events) > 6 {
		t.Errorf("told %d times", len(events))
	}
}

// TestLostEye: a host at which nobody looks any more neither holds the word back
// nor is left out of it.
func TestLostEye(t *testing.T) {
	j := New(DefaultAfter)
	var told []watch.Event
	at := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	for i := range 20 {
		l := Look{Time: at.Add(time.Duration(i) * step), Host: "node01", Ports: new(uint64), NPorts: 1}
		for r := range 2 {
			zero := uint64(0)
			l.Ranks = append(l.Ranks, Rank{Rank: &r, PID: 100 + r, State: "S", Wait: "poll", TCP: &zero})
		}
		if i == 2 {
			j.Lost("node02")
		}
		told = append(told, j.Add(l)...)
	}
	if len(told) != 1 || !strings.Contains(told[0].Text, "Nothing is heard of node02") {
		t.Errorf("%+v", told)
	}
}

// TestManyRanks: a block of a thousand ranks fits on a screen.
func TestManyRanks(t *testing.T) {
	j := New(DefaultAfter)
	var told []watch.Event
	at := time.Date(2026, 11, 1, 22, 0, 0, 0, time.UTC)
	for i := range 6 {
		for h := range 125 {
			l := Look{Time: at.Add(time.Duration(i) * step), Host: fmt.Sprintf("gpu%03d", h), Ports: new(uint64), NPorts: 8}
			for k := range 8 {
				r := 8*h + k
				zero := uint64(0)
				l.Ranks = append(l.Ranks, Rank{Rank: &r, PID: 100 + k, State: "S", Wait: "poll", TCP: &zero})
				if r == 717 {
					l.Ranks[k].State = "T"
				}
			}
			told = append(told, j.Add(l)...)
		}
	}
	if len(told) != 1 || !strings.HasPrefix(told[0].Text, "it is stopped (SIGSTOP) for 20 s, and nothing moves on the job's 1000 RDMA ports: the job hangs.") {
		t.Fatalf("%+v", told)
	}
	if n := strings.Count(told[0].Block, "\n"); n > maxLines+4 {
		t.Errorf("%d lines:\n%s", n, told[0].Block)
	}
}

func TestWaitWords(t *testing.T) {
	for wait, want := range map[string]string{
		"futex_do_wait": "waits for a thread (futex)", "hrtimer_nanosleep": "sleeps of its own accord", "ep_poll": "waits for a message (poll)",
		"recvfrom": "waits for a message (socket)", "": "waits", "nfs_wait_on_request": "waits (nfs_wait_on_request)", "read": "reads (file or pipe)",
	} {
		if got := waitWord(wait); got != want {
			t.Errorf("%q: %q, want %q", wait, got, want)
		}
	}
	if i := slices.IndexFunc(waitWords, func(w struct {
		begins []string
		word   string
	},
	) bool {
		return w.word == "sleeps of its own accord"
	}); i != 0 {
		t.Errorf("own sleep is word %d", i)
	}
}
