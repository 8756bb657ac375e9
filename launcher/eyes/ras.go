package eyes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"fabrun/launcher/hang"
)

// rasAddress is where NCCL's RAS threads listen where NCCL_RAS_ADDR says nothing.
const rasAddress = "localhost:28028"

// How long an answer may take. RAS itself waits for ranks that do not answer.
const (
	rasTimeout = 8 * time.Second
	maxRAS     = 64 << 20
)

// rasAsker asks NCCL's RAS of the job's own ranks on this node, one question at a
// time, and never waits for the answer.
type rasAsker struct {
	answer chan *hang.RAS
	asking bool
	ask    func(ctx context.Context, address string) (hang.RAS, error)
}

func newRASAsker() *rasAsker {
	return &rasAsker{answer: make(chan *hang.RAS, 1), ask: askRAS}
}

// look returns an answer that has come, and asks again. nil asks nothing.
func (a *rasAsker) look(roots []root) (came *hang.RAS) {
	if a == nil {
		return nil
	}
	select {
	case came = <-a.answer:
		a.asking = false
	default:
	}
	address, ok := rasOf(roots)
	if a.asking || !ok {
		return came
	}
	a.asking = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), rasTimeout)
		defer cancel()
		r, err := a.ask(ctx, address)
		if err != nil {
			a.answer <- nil // nobody answers, or another version: no witness
			return
		}
		a.answer <- &r
	}()
	return came
}

// rasOf is where the job's RAS listens on this node, if that is loopback: fabrun
// asks no other machine.
func rasOf(roots []root) (string, bool) {
	for _, o := range roots {
		if o.rank == nil {
			continue
		}
		address := rasAddress
		for _, kv := range o.env {
			switch name, value, _ := strings.Cut(kv, "="); {
			case name == "NCCL_RAS_ENABLE" && value == "0":
				return "", false
			case name == "NCCL_RAS_ADDR" && value != "":
				address = value
			}
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return "", false
		}
		ip, err := netip.ParseAddr(host)
		return address, host == "localhost" || err == nil && ip.IsLoopback()
	}
	return "", false
}

// askRAS puts one question in the protocol's words (NCCL user guide, RAS; its
// client sends the same).
func askRAS(ctx context.Context, address string) (hang.RAS, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return hang.RAS{}, err
	}
	//nolint:errcheck // nothing is lost
	defer c.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(until); err != nil {
			return hang.RAS{}, err
		}
	}
	if _, err := fmt.Fprintf(c, "TIMEOUT 3\nSET FORMAT json\nVERBOSE STATUS\n"); err != nil {
		return hang.RAS{}, err
	}
	text, err := io.ReadAll(io.LimitReader(c, maxRAS+1))
	if err != nil {
		return hang.RAS{}, err
	}
	if len(text) > maxRAS {
		return hang.RAS{}, errors.New("NCCL RAS's answer is too long")
	}
	return hang.ParseRAS(text)
}
