package eyes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"fabrun/launcher/remote"
	"fabrun/launcher/watch"
)

// A node to which the session was lost is asked anew, over a new connection, before it is
// called lost. Launchers themselves take long: Open MPI's daemons send their
// first keepalive after five minutes (oob_tcp_keepalive_time), and a rank that
// only waits for a message sends nothing that could fail.
const (
	lostAsks   = 3
	lostAnswer = 10 * time.Second // the deadline of each
	lostPause  = 5 * time.Second  // between them
)

// answersNot says why a host gives no answer at all, however often it is asked;
// nil when it does. A host that refuses a connection or a login is there.
func answersNot(ctx context.Context, t remote.Transport, host string, asks int) error {
	var err error
	for i := range asks {
		if i > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(lostPause):
			}
		}
		one, cancel := context.WithTimeout(ctx, lostAnswer)
		_, err = t.Exec(one, host, remote.Command{Argv: []string{"true"}}, remote.Streams{})
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		switch remote.CauseOf(err) {
		case remote.Timeout, remote.Unreachable, remote.Dropped:
		default:
			return nil
		}
	}
	return err
}

// answerTime bounds the connection that shows whether a kernel is there.
const answerTime = 3 * time.Second

// kernelAnswers reports whether a node that gives no login is there all the same: its
// kernel answers a connection to one of the addresses that it was seen to have,
// on the fabric or elsewhere. A login may wait for a directory service, for
// memory, or for a management network that the job does not need.
func (w *Job) kernelAnswers(ctx context.Context, host string) bool {
	addrs := w.addressesOf(host)
	answers := make(chan bool, len(addrs))
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, a := range addrs {
		go func() { answers <- w.sessions.answers(ctx, a) }()
	}
	for range addrs {
		if <-answers {
			return true
		}
	}
	return false
}

// answersAt reports whether something at addr answers a connection, with a refusal too.
func answersAt(ctx context.Context, addr string) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(addr, "22"))
	if err == nil {
		//nolint:errcheck // nothing was sent
		_ = c.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

// addressesOf are the addresses that only this host of the job was seen to have:
// a container bridge's is on every machine.
func (w *Job) addressesOf(host string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := map[string]bool{}
	for _, own := range ownNetworks() {
		taken[own.Addr().String()] = true
	}
	var theirs []string
	short, _, _ := strings.Cut(host, ".")
	for name, l := range w.traffic.looks {
		if name == host || name == short || slices.Contains(l[1].Addresses, host) {
			theirs = append(theirs, l[1].Addresses...)
			continue
		}
		for _, a := range l[1].Addresses {
			taken[a] = true
		}
	}
	return slices.DeleteFunc(theirs, func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err != nil || taken[text] || a.IsLoopback() || a.IsLinkLocalUnicast()
	})
}

// lostEvent names a node that answers no more.
func lostEvent(host string, err error, asks int) watch.Event {
	times := ""
	if asks > 1 {
		times = fmt.Sprintf("; asked %d times", asks)
	}
	return watch.Event{
		Time: time.Now(), ID: "node-lost", Severity: watch.SeverityError, Host: host,
		Text: fmt.Sprintf("it answers no more (%v%s): switched off, crashed, or cut off from the network.", err, times),
	}
}

// lost is called when the session to a node ended before the job did. A node
// that answers no more is named, and the job ended: no launcher can finish it.
// here: this machine is of the job itself. Where it is not, and hears from none
// of the others either, the fault may as well be its own.
func (w *Job) lost(e *session, others []string, here bool) {
	err := answersNot(w.sessions.asking, e.via, e.host, lostAsks)
	if err == nil {
		return
	}
	if w.kernelAnswers(w.sessions.asking, e.host) {
		w.event(watch.Event{
			Time: time.Now(), ID: "node-no-login", Severity: watch.SeverityWarning, Host: e.host,
			Text: fmt.Sprintf("it takes no login any more (%v; asked %d times), but answers on its network: the job is left alone, and not watched there.", err, lostAsks),
		})
		return
	}
	ev := lostEvent(e.host, err, lostAsks)
	e.named = true
	if !here && !anyAnswers(w.sessions.asking, e.via, others, e.host) {
		ev.Text += " No other node of the job answers either, so it may be this machine that is cut off: the job is left alone."
		w.event(ev)
		return
	}
	if w.goesOnWithout(e) {
		ev.Text += " torchrun can go on with the other nodes: the job is left alone."
		w.event(ev)
		return
	}
	ev.Text += " The job cannot go on without it and is ended."
	w.event(ev)
	w.cfg.End()
}

// goesOnWithout reports whether torchrun goes on without a node: an elastic job, as
// long as enough nodes are left. They meet at the first one.
func (w *Job) goesOnWithout(e *session) bool {
	p := w.cfg.Plan
	least := p.Command.TorchLeast(w.cfg.Env)
	if least == 0 || len(p.Hosts.Hosts) == 0 || e.host == p.Hosts.Hosts[0].Name {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p.Hosts.Hosts)-w.sessions.gone <= least {
		return false
	}
	w.sessions.gone++
	return true
}

// maxNamed bounds how many nodes are asked, and named, when a job has failed.
const maxNamed = 16

// nameSilent is called when the job has failed: a node that had no last word and
// gives no answer is the likely reason, whoever noticed first.
func (w *Job) nameSilent(silent []*session) {
	var wg sync.WaitGroup
	for _, e := range silent[:min(len(silent), maxNamed)] {
		wg.Go(func() {
			if err := answersNot(context.Background(), e.via, e.host, 1); err != nil {
				w.event(lostEvent(e.host, err, 1))
			}
		})
	}
	wg.Wait()
}

// maxWitnesses bounds how many other nodes are asked.
const maxWitnesses = 4

func anyAnswers(ctx context.Context, t remote.Transport, hosts []string, but string) bool {
	asked := 0
	for _, h := range hosts {
		if h == but || asked == maxWitnesses {
			continue
		}
		asked++
		one, cancel := context.WithTimeout(ctx, lostAnswer)
		_, err := t.Exec(one, h, remote.Command{Argv: []string{"true"}}, remote.Streams{})
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}
