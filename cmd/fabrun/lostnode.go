package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"fabrun/launcher/remote"
	"fabrun/launcher/watch"
)

// A node whose eye was lost is asked anew, over a new connection, before it is
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

// eyeLost is called when the session to a node ended before the job did. A node
// that answers no more is named, and the job ended: no launcher can finish it.
// here: this machine is of the job itself. Where it is not, and hears from none
// of the others either, the fault may as well be its own.
func (w *watching) eyeLost(e *eye, others []string, here bool) {
	err := answersNot(w.asking, e.via, e.host, lostAsks)
	if err == nil {
		return
	}
	ev := lostEvent(e.host, err, lostAsks)
	e.named = true
	if !here && !anyAnswers(w.asking, e.via, others, e.host) {
		ev.Text += " No other node of the job answers either, so it may be this machine that is cut off: the job is left alone."
		w.event(ev)
		return
	}
	ev.Text += " The job cannot go on without it and is ended."
	w.event(ev)
	w.stop()
}

// maxNamed bounds how many nodes are asked, and named, when a job has failed.
const maxNamed = 16

// nameSilent is called when the job has failed: a node that had no last word and
// gives no answer is the likely reason, whoever noticed first.
func (w *watching) nameSilent(silent []*eye) {
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
