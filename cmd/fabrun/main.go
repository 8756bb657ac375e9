package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// run itself takes over these signals while a child runs; until then they cancel.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
