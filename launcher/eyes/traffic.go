package eyes

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fabrun/launcher/look"
	"fabrun/launcher/plan"
	"fabrun/launcher/watch"
	"fabrun/topology"
)

// traffic is what the counters of the job's nodes have shown until now.
type traffic struct {
	looks     map[string][2]watch.Sample // host -> first and last look at its counters
	peers     map[string]bool            // addresses of the job's hosts
	ncclTells bool                       // NCCL would write a log if it were started
	use       watch.UseWatch
	verdict   watch.CounterVerdict
	accused   bool // a fallback was said
}

func newTraffic() traffic { return traffic{looks: map[string][2]watch.Sample{}} }

// hostAddresses are the addresses by which the job's hosts know each other: what
// their names stand for, and what these hosts are then called on this machine's
// other networks.
func hostAddresses(p plan.Plan) map[string]bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all := p.Hosts.Hosts[:min(len(p.Hosts.Hosts), 4096)]
	found := make([][]string, len(all))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 32) // a name that nobody knows must not cost the others their time
	for i, h := range all {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if addrs, err := net.DefaultResolver.LookupHost(ctx, h.Name); err == nil {
				found[i] = addrs
			}
			if h.Address != "" {
				found[i] = append(found[i], h.Address)
			}
		})
	}
	wg.Wait()
	out := map[string]bool{}
	var known []netip.Addr
	for _, text := range slices.Concat(found...) {
		out[text] = true
		if a, err := netip.ParseAddr(text); err == nil {
			out[a.Unmap().String()] = true
			known = append(known, a.Unmap())
		}
	}
	for _, a := range watch.SamePlace(ownNetworks(), known) {
		out[a.String()] = true
	}
	return out
}

// runsHere reports whether this machine is one of the job's hosts, or none is
// known; addrs are theirs.
func runsHere(p plan.Plan, addrs map[string]bool) bool {
	others, self := look.Others(p.Hosts)
	if len(self) > 0 || len(others) == 0 {
		return true
	}
	return slices.ContainsFunc(ownNetworks(), func(own netip.Prefix) bool { return addrs[own.Addr().String()] })
}

// ownNetworks are this machine's addresses with their networks.
func ownNetworks() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
		}
	}
	return out
}

// know adds the addresses of the hosts that were looked at before the start:
// their eyes may not open.
func (w *Job) know(seen []topology.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.traffic.peers == nil {
		return
	}
	for _, h := range seen {
		for _, d := range h.Netdevs {
			for _, a := range d.Addrs {
				if !a.Addr().IsLoopback() && !a.Addr().IsLinkLocalUnicast() {
					w.traffic.peers[a.Addr().Unmap().String()] = true
				}
			}
		}
	}
	w.contract.Peers(w.traffic.peers)
}

// sample is called for each look at the counters of any node.
func (w *Job) sample(s watch.Sample) {
	w.record.to.Sample(s)
	w.mu.Lock()
	l, ok := w.traffic.looks[s.Host]
	if !ok {
		l[0] = s
	} else {
		s.Ports = keepQueues(s.Ports, l[1].Ports)
	}
	l[1] = s
	w.traffic.looks[s.Host] = l
	starved, told := w.traffic.use.Add(s)
	w.mu.Unlock()
	if told {
		w.event(starved)
	}
	w.hold(s)
	if ok {
		w.judge()
	}
}

// keepQueues carries the most queue pairs that a port had from look to look: the
// last look is taken when the ranks, and their queues with them, are gone.
func keepQueues(now, was []watch.PortSample) []watch.PortSample {
	now = slices.Clone(now) // the record has the look as it was
	for i := range now {
		for _, p := range was {
			if p.HCA != now[i].HCA || p.Port != now[i].Port || p.QueuePair == nil {
				continue
			}
			if n := now[i].QueuePair; n == nil || *n < *p.QueuePair {
				now[i].QueuePair = p.QueuePair
			}
		}
	}
	return now
}

// judge compares the first and the last look of every node, and says a
// fallback once.
func (w *Job) judge() {
	could := w.couldRDMA()
	w.mu.Lock()
	if len(w.traffic.looks) == 0 {
		w.mu.Unlock()
		return
	}
	var last []watch.Sample
	seen := map[string]bool{}
	for name, l := range w.traffic.looks {
		last = append(last, l[1])
		short, _, _ := strings.Cut(name, ".")
		seen[name], seen[short] = true, true
		for _, a := range l[1].Addresses {
			seen[a] = true
		}
	}
	peers := watch.PeerSet(last)
	for a := range w.traffic.peers {
		peers[a] = true
	}
	job := watch.CounterJob{Hosts: w.hostNames(), CouldRDMA: could, WantsTCP: w.asked != ""}
	job.GlooOnly = !could && w.cfg.Plan.Dialect.NoMPI && w.traffic.ncclTells
	job.Unseen = w.unseen(seen)
	var hosts []watch.HostTraffic
	without := 0
	for _, name := range slices.Sorted(maps.Keys(w.traffic.looks)) {
		l := w.traffic.looks[name]
		hosts = append(hosts, watch.Traffic(l[0], l[1], peers))
		if !slices.ContainsFunc(l[1].Ports, func(p watch.PortSample) bool { return p.Active }) {
			without++
		}
	}
	// Hosts that nobody looks at are judged by what the others moved to them.
	job.RDMAHosts = max(len(job.Hosts)-without, 0)
	if without == len(hosts) {
		job.RDMAHosts = 0
	}
	v := watch.JudgeCounters(job, hosts)
	w.traffic.verdict = v
	w.mu.Unlock()
	if v.Fallback == nil || !*v.Fallback {
		return
	}
	for _, e := range v.Events {
		if e.ID == "fallback" && !w.wasAccused() {
			e.Time = time.Now()
			w.event(e)
		}
	}
}

// unseen are the job's hosts whose counters nobody reads; seen are the names and
// addresses of the others.
func (w *Job) unseen(seen map[string]bool) []string {
	if len(w.traffic.looks) >= len(w.cfg.Plan.Hosts.Hosts) {
		return nil
	}
	var out []string
	for _, h := range w.cfg.Plan.Hosts.Hosts {
		short, _, _ := strings.Cut(h.Name, ".")
		if !seen[h.Name] && !seen[short] && !seen[h.Address] && h.Name != "localhost" {
			out = append(out, h.Name)
		}
	}
	return out
}

func (w *Job) wasAccused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.traffic.accused
	w.traffic.accused = true
	return was
}

func (w *Job) hostNames() []string {
	var out []string
	for _, h := range w.cfg.Plan.Hosts.Hosts {
		out = append(out, h.Name)
	}
	return out
}

// couldRDMA reports whether the job's library knows RDMA: MPI does; torch's
// Gloo does not, and only a log of NCCL tells them apart.
func (w *Job) couldRDMA() bool {
	if !w.cfg.Plan.Dialect.NoMPI && !w.cfg.Plan.Dialect.Alone {
		return true
	}
	w.mu.Lock()
	elsewhere := w.speaks || slices.ContainsFunc(w.verdicts, func(v watch.Verdict) bool { return v.Library != "" })
	w.mu.Unlock()
	return elsewhere || w.here != nil && w.here.Watcher().Verdict().Library != ""
}
