package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Cause says why a host did not do what it was asked.
type Cause string

// The causes.
const (
	Refused        Cause = "refused"           // nothing listens on the port
	Unreachable    Cause = "unreachable"       // no route
	UnknownHost    Cause = "unknown-host"      // the name does not resolve
	UnknownKey     Cause = "unknown-key"       // not in known_hosts
	ChangedKey     Cause = "changed-key"       // known_hosts has another key, or revoked it
	Auth           Cause = "auth"              // no key was accepted
	Timeout        Cause = "timeout"           // its deadline passed
	Canceled       Cause = "canceled"          // the caller gave up
	Dropped        Cause = "dropped"           // the connection ended before the command did
	NoSuchFile     Cause = "no-such-file"      // the program is not there
	NotExecutable  Cause = "not-executable"    // it is, but cannot be executed
	OutputLimit    Cause = "output-limit"      // it printed more than allowed
	BadName        Cause = "bad-name"          // not a host name that may be handed on
	NotInAlloc     Cause = "not-in-allocation" // srun: the host is not the job's
	Protocol       Cause = "protocol"          // what answered speaks no ssh, or not ours
	LocalTransport Cause = "local"             // the transport itself could not be started here
)

// HostError is one host's failure. Hint says what to try, for people.
type HostError struct {
	Host  string
	Cause Cause
	Err   error
	Hint  string
}

func (e *HostError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Host, e.Cause, e.Err) }

// Why is the failure without the host's name and address, so that hosts that
// fail alike can be told in one line. What tells one host from another, such as
// the fingerprint of its key, stays.
func (e *HostError) Why() string {
	var op *net.OpError
	switch {
	case strings.HasPrefix(e.Err.Error(), "jump host "): // the same for all behind it
	case e.Cause == Refused && errors.As(e.Err, &op):
		if tcp, ok := op.Addr.(*net.TCPAddr); ok {
			return fmt.Sprintf("connection refused on port %d", tcp.Port)
		}
		return "connection refused"
	case e.Cause == Refused:
		return "connection refused"
	case e.Cause == Unreachable && errors.As(e.Err, &op):
		return "no route to it"
	case e.Cause == UnknownHost:
		return "its name is not known"
	case e.Cause == Timeout && errors.As(e.Err, &op):
		return "no answer in time"
	case e.Cause == Dropped && errors.As(e.Err, &op):
		return "the connection ended: " + op.Err.Error()
	}
	return e.Err.Error()
}

func (e *HostError) Unwrap() error { return e.Err }

// CauseOf is the cause in err, or "" when it is no host's failure.
func CauseOf(err error) Cause {
	var he *HostError
	if errors.As(err, &he) {
		return he.Cause
	}
	return ""
}

// hostError names the cause of err; what the context says goes before what the
// connection says, since a cancelled connection fails in many ways.
func hostError(ctx context.Context, host string, err error) *HostError {
	var he *HostError
	if errors.As(err, &he) {
		return he
	}
	if ctx.Err() != nil {
		return contextError(ctx, host)
	}
	e := &HostError{Host: host, Err: err}
	var dns *net.DNSError
	var nerr net.Error
	switch {
	case errors.As(err, &dns):
		e.Cause, e.Hint = UnknownHost, "check the name, or give the address in ssh_config (HostName)"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Cause, e.Hint = Refused, "is sshd running there, and is it the right port?"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.Cause = Unreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout():
		e.Cause = Timeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		e.Cause = Dropped
	case strings.Contains(err.Error(), "unable to authenticate"):
		e.Cause = Auth
		e.Hint = "try 'ssh -o BatchMode=yes " + host + " true'; where GSSAPI or host-based logins are used, use --remote ssh"
	default:
		e.Cause = Protocol
	}
	return e
}

func contextError(ctx context.Context, host string) *HostError {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &HostError{Host: host, Cause: Timeout, Err: context.DeadlineExceeded}
	}
	return &HostError{Host: host, Cause: Canceled, Err: context.Canceled}
}
