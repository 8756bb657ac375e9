package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"fabrun/launcher"
	"fabrun/launcher/exit"
	"fabrun/launcher/plan"
)

// sameSignal is how soon after the first a second signal counts as the same.
const sameSignal = 100 * time.Millisecond

func main() {
	if len(os.Args) > 0 && os.Args[0] == launcher.GuardName {
		launcher.Guard(os.Args, os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) > 1 && (os.Args[1] == "rank" || filepath.Base(os.Args[0]) == os.Getenv(plan.AsName)) {
		// It becomes the program within milliseconds: what ends it must end that,
		// so it catches no signal, and it has nothing to collect.
		os.Exit(run(context.Background(), os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	// Most verbs end within milliseconds and a few megabytes: collecting then
	// costs a fifth of their time. The watcher's memory stays bounded by itself.
	debug.SetGCPercent(400)
	// run itself takes over these signals while a child runs; until then the first
	// one cancels, and a second one ends a fabrun that computes, or waits where no
	// context reaches (a FIFO, a driver). What the caller ignores (nohup, a shell's
	// background job) stays ignored.
	ending := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	var busy atomic.Bool
	ctx, cancel := context.WithCancelCause(exit.WithChild(context.Background(), &busy))
	if len(ending) > 0 {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, ending...)
		go func() {
			cancel(exit.SignalCause((<-caught).(syscall.Signal)))
			told := time.Now()
			for s := range caught {
				// timeout(1) tells a program and then its whole group: that is one signal.
				if !busy.Load() && time.Since(told) > sameSignal {
					os.Exit(exit.SignalsBase + int(s.(syscall.Signal)))
				}
			}
		}()
	}
	code := run(ctx, os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	cancel(nil)
	os.Exit(code)
}
