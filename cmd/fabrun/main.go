package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"fabrun/launcher"
)

func main() {
	if len(os.Args) > 0 && os.Args[0] == launcher.GuardName {
		launcher.Guard(os.Args, os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "rank" {
		// It becomes the program within milliseconds: what ends it must end that,
		// so it catches no signal, and it has nothing to collect.
		os.Exit(run(context.Background(), os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	// Most verbs end within milliseconds and a few megabytes: collecting then
	// costs a fifth of their time. The watcher's memory stays bounded by itself.
	debug.SetGCPercent(400)
	// run itself takes over these signals while a child runs; until then they cancel.
	// What the caller ignores (nohup, a shell's background job) stays ignored.
	ending := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, cancel := context.WithCancelCause(context.Background())
	if len(ending) > 0 {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, ending...)
		go func() { cancel(signalCause((<-caught).(syscall.Signal))) }()
	}
	code := run(ctx, os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	cancel(nil)
	os.Exit(code)
}
