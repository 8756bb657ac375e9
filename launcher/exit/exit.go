// Package exit says with which status fabrun ends, and carries the error that
// ends it through every package, with what to try.
package exit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
)

// Statuses. run gives the child's own status; these
// are fabrun's own while running, chosen so that they are not mistaken for the
// child's.
const (
	OK          = 0
	Findings    = 1 // verbs other than run: findings of severity error, or could not do it
	Usage       = 2
	Internal    = 120
	Contract    = 121
	Preflight   = 122
	NoPlan      = 123
	RunUsage    = 125
	NotExec     = 126
	NotFound    = 127
	SignalsBase = 128
)

// Error ends fabrun with Code. A nil Err prints nothing: what there was to
// say has been said.
type Error struct {
	Code int
	Err  error
	Hint string // what to try, printed on a line of its own
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "exit"
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// UsageError is a wrong call: exit 2, or 125 where a program was to be run.
func UsageError(err error, hint string) error {
	return &Error{Code: Usage, Err: err, Hint: hint}
}

// WithHint adds what to try to an error that leaves with the general failure code.
func WithHint(err error, hint string) error {
	return &Error{Code: Findings, Err: err, Hint: hint}
}

// ErrFindings ends a verb whose findings, already printed, include an error.
var ErrFindings = &Error{Code: Findings}

// Of is the error with which fabrun ends for err.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var s SignalCause
	if errors.As(err, &s) {
		return &Error{Code: SignalsBase + int(s), Err: err}
	}
	return &Error{Code: Findings, Err: err}
}

// SignalCause is why a context was cancelled: fabrun was told to end.
type SignalCause syscall.Signal

func (s SignalCause) Error() string { return SignalName(syscall.Signal(s)) }

// SignalName is a signal as people call it.
func SignalName(sig syscall.Signal) string {
	if sig == syscall.SIGINT {
		return "Ctrl-C (signal 2)"
	}
	return fmt.Sprintf("signal %d (%v)", sig, sig)
}

// Interrupted is the end of a run that was told to end before its job was
// started; nil where nobody told it.
func Interrupted(ctx context.Context) error {
	var s SignalCause
	if ctx.Err() == nil || !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &Error{Code: SignalsBase + int(s), Err: fmt.Errorf("%w before the job was started", s)}
}

type childKey struct{}

// WithChild lets a run say whether a child takes the signals.
func WithChild(ctx context.Context, busy *atomic.Bool) context.Context {
	return context.WithValue(ctx, childKey{}, busy)
}

// ChildTakesSignals says that from now on, or no longer, a child takes them.
func ChildTakesSignals(ctx context.Context, yes bool) {
	if busy, ok := ctx.Value(childKey{}).(*atomic.Bool); ok {
		busy.Store(yes)
	}
}
