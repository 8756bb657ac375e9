package main

import (
	"context"
	"fmt"
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

// answersNot says why a host gives no answer at all; nil when it does. A host
// that refuses a connection or a login is there.
func answersNot(ctx context.Context, t remote.Transport, host string) error {
	var err error
	for i := range lostAsks {
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

// eyeLost is called when the session to a node ended before the job did. A node
// that answers no more is named, and the job ended: no launcher can finish it.
// here: this machine is of the job itself. Where it is not, and hears from none
// of the others either, the fault may as well be its own.
func (w *watching) eyeLost(host string, t remote.Transport, others []string, here bool) {
	err := answersNot(w.asking, t, host)
	if err == nil {
		return
	}
	e := watch.Event{Time: time.Now(), ID: "node-lost", Severity: watch.SeverityError, Host: host}
	e.Text = fmt.Sprintf("it answers no more (%v; asked %d times): switched off, crashed, or cut off from the network.", err, lostAsks)
	if !here && !anyAnswers(w.asking, t, others, host) {
		e.Text += " No other node of the job answers either, so it may be this machine that is cut off: the job is left alone."
		w.event(e)
		return
	}
	e.Text += " The job cannot go on without it and is ended."
	w.event(e)
	w.stop()
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
