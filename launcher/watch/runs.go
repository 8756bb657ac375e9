package watch

import (
	"bytes"
	"slices"
)

// One log may tell of several runs: a job that was started again, a launcher that
// restarts its workers, a benchmark in a loop. What one run says is nothing to the
// next, so each has a state of its own. A process belongs to one run: to that which has
// its communicator, or else to the first behind those that have somebody else on its
// GPU, or the same rank. Until its first communicator tells, what a process says that
// comes when a run is under way is kept.

const (
	maxRuns      = 32
	maxKept      = 512 // lines of a process
	maxKeptBytes = 4 << 20
	maxDue       = 1024
)

// runs are the runs of which was read, oldest first; there is always one.
type runs struct {
	opt   Options
	all   []*state
	index map[procKey]*proc
	heads []head  // beginnings of lines that were met
	kept  int     // bytes of lines that wait for their run
	due   []*proc // whose run may be told
	// waiting are all whose run was not known when they came.
	waiting []*proc
	at      *int // the run in which the source that is being read is
	lines   uint64
}

func newRuns(opt Options) *runs {
	r := &runs{opt: opt, index: map[procKey]*proc{}, at: new(int)}
	r.after(-1)
	return r
}

func (r *runs) latest() *state { return r.all[len(r.all)-1] }

// after returns the run behind that of number i.
func (r *runs) after(i int) *state {
	if i+1 < len(r.all) {
		return r.all[i+1]
	}
	if len(r.all) >= maxRuns {
		return r.latest()
	}
	st := &state{}
	st.init(r.opt)
	st.runs, st.number = r, len(r.all)
	r.all = append(r.all, st)
	return st
}

// nextRun begins the run behind st, where it is not there yet, in the source that is
// being read.
func (st *state) nextRun() *state {
	next := st.runs.after(st.number)
	*st.runs.at = max(*st.runs.at, next.number)
	return next
}

// adopt makes a process one of the run.
func (st *state) adopt(p *proc) {
	p.home = st
	st.procs[procKey{p.host, p.pid}] = p
	h := st.hosts[p.host]
	if h == nil {
		h = &hostSeen{}
		st.hosts[p.host] = h
	}
	h.procs = append(h.procs, p)
}

// claim is what the line of a communicator says of a process.
type claim struct {
	comm, bus    string // "" unknown
	rank, nranks int
}

// claimOf reads 'ncclCommInitRank comm 0x… rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000
// commId 0x… - Init START'.
func claimOf(t []byte) (claim, bool) {
	if !bytes.Contains(t, []byte("Init START")) && !bytes.Contains(t, []byte("Init COMPLETE")) {
		return claim{}, false
	}
	c := claim{comm: wordAfter(t, " commId "), bus: wordAfter(t, " busId "), rank: intAfter(t, " rank "), nranks: intAfter(t, " nranks ")}
	return c, c.nranks > 0
}

// claims keeps what a process of this run says of its communicator.
func (st *state) claims(p *proc, t []byte) {
	c, ok := claimOf(t)
	if !ok || p == nil {
		return
	}
	st.underWay = true
	if c.comm != "" && len(st.comms) < maxProcs {
		st.comms[c.comm] = true
	}
	if c.bus != "" && len(st.owners) < maxProcs {
		if key := p.host + " " + c.bus; st.owners[key] == nil {
			st.owners[key] = &owner{p, c}
		}
	}
}

// owner is the process that first used a GPU.
type owner struct {
	proc *proc
	claim
}

// keep holds on to what a process says whose run is not known yet.
func (r *runs) keep(p *proc, line []byte) {
	if iface, addr := ownAddress(line); addr != "" && p.addr == "" {
		p.iface, p.addr = iface, addr
	}
	p.kept = append(p.kept, bytes.Clone(line))
	r.kept += len(line)
	c, ok := claimOf(line)
	if ok && p.claims.nranks == 0 {
		p.claims = c
	}
	if (ok || len(p.kept) >= maxKept || r.kept > maxKeptBytes) && !slices.Contains(r.due, p) {
		r.due = append(r.due, p)
	}
}

// settle gives the processes whose run can be told to their runs.
func (r *runs) settle() {
	for again := len(r.due) > 0; again; {
		again = false
		r.due = slices.DeleteFunc(r.due, func(p *proc) bool {
			if p.home != nil || !r.canTell(p) {
				return p.home != nil
			}
			r.place(p)
			again = true
			return true
		})
	}
}

// canTell reports whether the run of a process can be told. A communicator on GPUs that
// nobody has used may be a late one of a run that is under way, or the first of another
// run on other nodes: its other members tell.
func (r *runs) canTell(p *proc) bool {
	c := p.claims
	if c.comm == "" || len(p.kept) >= maxKept || r.kept > maxKeptBytes || len(r.due) > maxDue {
		return true
	}
	st := r.runOf(p, c)
	if st.comms[c.comm] || st.last > p.first || st.hasAnother(p, c) || st.number > p.from {
		return true
	}
	members := 0
	for _, q := range r.due {
		if q.home == nil && q.claims.comm == c.comm {
			members++
		}
	}
	return members >= c.nranks
}

// settleAll gives all processes to their runs: a source has ended.
func (r *runs) settleAll() {
	waiting := r.waiting
	r.waiting, r.due = nil, nil
	// Who tells a communicator first: the others are where they belong then.
	slices.SortStableFunc(waiting, func(a, b *proc) int { return min(b.claims.nranks, 1) - min(a.claims.nranks, 1) })
	for _, p := range waiting {
		if p.home == nil {
			r.place(p)
		}
	}
}

func (r *runs) place(p *proc) {
	st := r.runOf(p, p.claims)
	if p.claims.nranks == 0 {
		// It never told: it is of the run whose processes still spoke when it came.
		for i := min(p.from, len(r.all)-1); i < len(r.all); i++ {
			if st = r.all[i]; p.first <= st.last || i == *r.at {
				break
			}
		}
	}
	kept := p.kept
	p.kept, p.addr, p.iface, p.lines = nil, "", "", 0
	st.adopt(p)
	*r.at = max(*r.at, st.number)
	for _, l := range kept {
		r.kept -= len(l)
		st.read(l, ncclAt(l))
	}
}

// runOf returns the run of a process.
func (r *runs) runOf(p *proc, c claim) *state {
	if c.comm != "" {
		for _, st := range slices.Backward(r.all) {
			if st.comms[c.comm] {
				return st
			}
		}
	}
	for i := min(p.from, len(r.all)-1); ; i++ {
		st := r.after(i - 1)
		if !st.hasAnother(p, c) || i >= maxRuns-1 {
			return st
		}
	}
}

// hasAnother reports whether somebody else of the run has used the GPU of p before p
// came, so that p is of a later one. Machines that go by one name have addresses of their own; the ranks of
// one communicator do not meet twice.
func (st *state) hasAnother(p *proc, c claim) bool {
	o := st.owners[p.host+" "+c.bus]
	if c.bus == "" || o == nil || o.proc == p || o.proc.last > p.first || o.proc.addr != "" && p.addr != "" && o.proc.addr != p.addr {
		return false
	}
	if c.comm != "" && o.comm != "" {
		return c.comm != o.comm
	}
	return c.rank == o.rank && c.nranks == o.nranks
}

// again reports whether a process starts that had been there: its number was given
// again, after its run had failed.
func (st *state) again(m *message) bool {
	p := m.proc
	if p == nil || p.start == startNone || p.comms == 0 || len(st.fatal) == 0 || st.number+1 >= maxRuns {
		return false
	}
	fresh := &proc{host: p.host, pid: p.pid, lines: 1}
	st.runs.index[procKey{p.host, p.pid}], st.runs.heads = fresh, nil
	next := st.nextRun()
	next.adopt(fresh)
	fresh.first, fresh.last = st.runs.lines, st.runs.lines
	m.proc = fresh
	next.driverLine(m)
	return true
}

// verdict sums up the last run, and each where there are several.
func (r *runs) verdict() Verdict {
	v := r.latest().verdict()
	if len(r.all) > 1 {
		for _, st := range r.all {
			v.Runs = append(v.Runs, st.verdict())
		}
	}
	return v
}
