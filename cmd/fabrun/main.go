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
	// Most verbs end within milliseconds and a few megabytes: collecting then
	// costs a fifth of their time. The watcher's memory stays bounded by itself.
	debug.SetGCPercent(400)
	// run itself takes over these signals while a child runs; until then they cancel.
	// What the caller ignores (nohup, a shell's background job) stays ignored.
	// rank catches none: it becomes the program, and what ends it must end that.
	ending := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, stop := context.Background(), context.CancelFunc(func() {})
	if becomes := len(os.Args) > 1 && os.Args[1] == "rank"; len(ending) > 0 && !becomes {
		ctx, stop = signal.NotifyContext(ctx, ending...)
	}
	code := run(ctx, os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
