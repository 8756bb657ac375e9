package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	// run itself takes over these signals while a child runs; until then they cancel.
	// What the caller ignores (nohup, a shell's background job) stays ignored.
	ending := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, stop := context.Background(), context.CancelFunc(func() {})
	if len(ending) > 0 {
		ctx, stop = signal.NotifyContext(ctx, ending...)
	}
	code := run(ctx, os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
