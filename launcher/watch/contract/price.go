package contract

import (
	"fmt"
	"time"

	"fabrun/launcher/watch"
)

// Price is what a fallback, or lost rails, cost a job: a range with its basis. What has
// no basis is nil.
type Price struct {
	TCPBytes   *uint64  `json:"tcp_bytes"`    // of a fallback: between the job's hosts
	RDMABytes  *uint64  `json:"rdma_bytes"`   // of lost rails: what went over the others
	Seconds    *Range   `json:"seconds"`      // longer on the network than with what was promised
	GPUHours   *Range   `json:"gpu_hours"`    // of all GPUs of the job
	RailsGbps  *float64 `json:"rails_gbps"`   // promised for a host
	DegradedS  *float64 `json:"degraded_s"`   // with fewer rails, or slower ones
	PeakTCPBps *float64 `json:"peak_tcp_bps"` // bytes a second of a host: most between two looks
	Basis      []string `json:"basis"`
	Text       string   `json:"text"`
}

// Range is from the least to the most.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// ledger adds up what the price is made of, look by look.
type ledger struct {
	peers map[string]bool
	hosts map[string]*account
	tcp   union
	less  union
	worst float64 // most of the promised rate that was missing at once, as a share
	// timeLost is, of the time in which rails were missing and data went over the
	// others, what would not have been needed with all of them.
	timeLost float64
}

// account is what one host moved.
type account struct {
	tcp, degraded uint64
	peak          float64 // bytes a second over TCP, between two looks
	longer        float64 // seconds that the rails that were left took longer, at line rate
}

// union adds up times that overlap: hosts wait for each other at the same time.
type union struct {
	until   time.Time
	seconds float64
}

func (u *union) add(from, to time.Time) (added float64) {
	if from.Before(u.until) {
		from = u.until
	}
	if !to.After(from) {
		return 0
	}
	u.until = to
	added = to.Sub(from).Seconds()
	u.seconds += added
	return added
}

// movingBytes a second are more than what keeps connections alive.
const movingBytes = 1e6

// Peers adds addresses of the job's hosts.
func (j *Judge) Peers(addrs map[string]bool) {
	for a := range addrs {
		j.ledger.peer(a)
	}
}

func (l *ledger) peer(addr string) {
	if l.peers == nil {
		l.peers = map[string]bool{}
	}
	if len(l.peers) < 1<<17 {
		l.peers[addr] = true
	}
}

// know takes the first look at a host.
func (l *ledger) know(s watch.Sample) {
	for a := range watch.PeerSet([]watch.Sample{s}) {
		l.peer(a)
	}
}

// add takes what happened between two looks at a host; the rails are as the judge
// knows them from before the second one.
func (l *ledger) add(j *Judge, was, now watch.Sample) {
	dt := now.Time.Sub(was.Time).Seconds()
	if dt <= 0 {
		return
	}
	if l.hosts == nil {
		l.hosts = map[string]*account{}
	}
	a := l.hosts[now.Host]
	if a == nil {
		a = &account{}
		l.hosts[now.Host] = a
	}
	t := watch.Traffic(was, now, l.peers)
	if n := t.TCPBytes; n != nil {
		a.tcp += *n
		// A short pause between two looks says little of a rate.
		if dt >= 0.5 {
			a.peak = max(a.peak, float64(*n)/dt)
		}
		if float64(*n)/dt >= movingBytes {
			l.tcp.add(was.Time, now.Time)
		}
	}
	left, of := j.capacity()
	if of <= 0 || left >= of {
		return
	}
	var sent, received uint64
	known := false
	for _, p := range t.Ports {
		tx, okTx := p.Delta[watch.TxBytes]
		rx, okRx := p.Delta[watch.RxBytes]
		sent, received, known = sent+tx, received+rx, known || okTx || okRx
	}
	if !known {
		return
	}
	a.degraded += sent + received
	share := 1 - left/of
	l.worst = max(l.worst, share)
	if left > 0 {
		a.longer += float64(max(sent, received)) * 8 / 1e9 * (1/left - 1/of)
	}
	if float64(sent+received)/dt >= movingBytes {
		l.timeLost += share * l.less.add(was.Time, now.Time)
	}
}

// capacity is what the rails carry of what they were promised to carry, in Gb/s for
// each host and direction; 0 and 0 where that is not known.
func (j *Judge) capacity() (left, of float64) {
	for _, r := range j.rails {
		gbps, promised := j.left(r)
		if promised == 0 {
			return 0, 0
		}
		left, of = left+gbps, of+promised
	}
	if n, _ := j.givenUp(); n > 0 && len(j.rails) > 0 {
		left = max(0, left-float64(n)*of/float64(len(j.rails)))
	}
	return left, of
}

// price says what a job lost that fell back, or whose rails were lost. gpus is how many
// GPUs the job has; 0 unknown.
func (j *Judge) price(fellBack bool, gpus int) *Price {
	lost := false
	for _, r := range j.rails {
		lost = lost || len(r.losses) > 0
	}
	switch {
	case fellBack:
		return j.priceOfTCP(gpus)
	case lost || len(j.failed) > 0:
		return j.priceOfRails(gpus)
	}
	return nil
}

// priceOfTCP is what the bytes over TCP took longer than the rails would have: at
// least at the highest rate that was seen, at most all of the time in which they moved.
func (j *Judge) priceOfTCP(gpus int) *Price {
	l := &j.ledger
	var sum, most uint64
	var peak, slowest float64
	for _, a := range l.hosts {
		sum += a.tcp
		most = max(most, a.tcp)
		peak = max(peak, a.peak)
		if a.peak > 0 {
			slowest = max(slowest, float64(a.tcp)/a.peak)
		}
	}
	if most < movingBytes {
		return nil // nothing was counted
	}
	// Each connection between two hosts is counted on both.
	if len(l.hosts) > 1 {
		sum /= 2
	}
	p := &Price{TCPBytes: &sum, Basis: []string{"TCP bytes between the job's hosts, by the kernel's count of each connection"}}
	p.Text = watch.Bytes(sum) + " went over TCP"
	_, of := j.capacity()
	if of > 0 {
		p.RailsGbps = &of
	}
	if peak <= 0 || l.tcp.seconds <= 0 {
		p.Text += "."
		return p
	}
	p.PeakTCPBps = &peak
	p.Text += fmt.Sprintf(" in %s, at up to %s/s a host", seconds(l.tcp.seconds), watch.Bytes(uint64(peak)))
	if of <= 0 {
		p.Text += "; what the rails would have carried is not known: nobody knows their rate."
		return p
	}
	byRails := float64(most) * 8 / 1e9 / of // one way; both ways at once is half
	r := Range{Low: max(0, slowest-byRails), High: max(0, l.tcp.seconds-byRails/2)}
	r.High = max(r.High, r.Low)
	p.Seconds = &r
	p.Basis = append(p.Basis,
		fmt.Sprintf("the %s of %.4g Gb/s together at line rate: %s", railsWord(len(j.rails)), of, seconds(byRails)),
		"least: all bytes at the highest rate that was seen; most: all of the time in which TCP moved 1 MB/s or more; what was hidden behind computing cost nothing")
	p.Text += fmt.Sprintf("; the %s (%.4g Gb/s) would have carried it in %s: %s longer on the network", railsWord(len(j.rails)), of, seconds(byRails), r.words(seconds))
	p.gpuHours(gpus)
	p.Text += "."
	return p
}

// priceOfRails is what the bytes took longer over the rails that were left: at least
// at line rate; at most as if the network had been the bottleneck all of that time.
func (j *Judge) priceOfRails(gpus int) *Price {
	l := &j.ledger
	if l.less.seconds <= 0 {
		return nil // nothing was counted while rails were missing
	}
	var sum uint64
	longer := 0.0
	for _, a := range l.hosts {
		sum += a.degraded
		longer = max(longer, a.longer)
	}
	if len(l.hosts) > 1 {
		sum /= 2 // what one host sends another receives
	}
	_, of := j.capacity()
	degraded := l.less.seconds
	r := Range{Low: longer, High: max(longer, l.timeLost)}
	p := &Price{RDMABytes: &sum, Seconds: &r, DegradedS: &degraded, Basis: []string{
		"bytes by the ports' own counters, while rails were missing or slower",
		"least: the same bytes at line rate over all rails; most: the network was the bottleneck all of that time",
	}}
	if of > 0 {
		p.RailsGbps = &of
	}
	p.Text = fmt.Sprintf("%s went over what was left of the rails in %s, with up to %.0f %% of their rate missing: %s longer on the network", watch.Bytes(sum), seconds(degraded), 100*l.worst, r.words(seconds))
	p.gpuHours(gpus)
	p.Text += "."
	return p
}

func (p *Price) gpuHours(gpus int) {
	if gpus <= 0 || p.Seconds == nil {
		return
	}
	h := Range{Low: p.Seconds.Low * float64(gpus) / 3600, High: p.Seconds.High * float64(gpus) / 3600}
	p.GPUHours = &h
	p.Basis = append(p.Basis, fmt.Sprintf("%d GPUs, one for each rank of NCCL", gpus))
	p.Text += fmt.Sprintf(", %s GPU-hours of %d GPUs", h.words(func(f float64) string { return fmt.Sprintf("%.2g", f) }), gpus)
}

// words writes a range: "3 to 40 s", or one value where both ends are the same.
func (r Range) words(each func(float64) string) string {
	low, high := each(r.Low), each(r.High)
	if low == high {
		return low
	}
	return low + " to " + high
}

func seconds(s float64) string { return lasted(time.Duration(s * float64(time.Second))) }
