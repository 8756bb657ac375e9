package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Exit codes (design: command line). run gives the child's own status; these
// are fabrun's own while running, chosen so that they are not mistaken for the
// child's.
const (
	exitOK          = 0
	exitFindings    = 1 // verbs other than run: findings of severity error, or could not do it
	exitUsage       = 2
	exitInternal    = 120
	exitContract    = 121
	exitPreflight   = 122
	exitNoPlan      = 123
	exitRunUsage    = 125
	exitNotExec     = 126
	exitNotFound    = 127
	exitSignalsBase = 128
)

// exitError ends fabrun with Code. A nil Err prints nothing: what there was to
// say has been said.
type exitError struct {
	Code int
	Err  error
	Hint string // what to try, printed on a line of its own
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return "exit"
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// usageError is a wrong call: exit 2, or 125 where a program was to be run.
func usageError(err error, hint string) error {
	return &exitError{Code: exitUsage, Err: err, Hint: hint}
}

// withHint adds what to try to an error that leaves with the general failure code.
func withHint(err error, hint string) error {
	return &exitError{Code: exitFindings, Err: err, Hint: hint}
}

// errFindings ends a verb whose findings, already printed, include an error.
var errFindings = &exitError{Code: exitFindings}

func asExit(err error) *exitError {
	var e *exitError
	if errors.As(err, &e) {
		return e
	}
	var s signalCause
	if errors.As(err, &s) {
		return &exitError{Code: exitSignalsBase + int(s), Err: err}
	}
	return &exitError{Code: exitFindings, Err: err}
}

// signalCause is why a context was cancelled: fabrun was told to end.
type signalCause syscall.Signal

func (s signalCause) Error() string { return signalName(syscall.Signal(s)) }

// signalName is a signal as people call it.
func signalName(sig syscall.Signal) string {
	if sig == syscall.SIGINT {
		return "Ctrl-C (signal 2)"
	}
	return fmt.Sprintf("signal %d (%v)", sig, sig)
}

// interrupted is the end of a run that was told to end before its job was
// started; nil where nobody told it.
func interrupted(ctx context.Context) error {
	var s signalCause
	if ctx.Err() == nil || !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	return &exitError{Code: exitSignalsBase + int(s), Err: fmt.Errorf("%w before the job was started", s)}
}
