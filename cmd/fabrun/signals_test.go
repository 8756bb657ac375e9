package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fabrun/testdata/wait"
)

// TestSecondSignalEnds: every verb that reads a file ends at the second Ctrl-C or
// TERM, also while it waits for a FIFO that nobody writes.
func TestSecondSignalEnds(t *testing.T) {
	program, err := exec.LookPath("fabrun")
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{
		"lint FIFO", "report FIFO", "watch FIFO", "env --from FIFO", "topo --from FIFO", "topo --matrix FIFO", "check --gids FIFO", "diff FIFO FIFO",
		"hosts --hostfile FIFO", "plan --hostfile FIFO -- mpirun ./a.out", "run --hostfile FIFO -- mpirun ./a.out", "profile check FIFO", "env --profile ./FIFO",
		"run --from FIFO -- mpirun ./a.out", "run -- mpirun --hostfile FIFO ./a.out", "check --pcap FIFO", "snapshot --from FIFO",
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(verb+" "+sig.String(), func(t *testing.T) {
				cmd := exec.Command(program, strings.Fields(strings.ReplaceAll(strings.ReplaceAll(verb, "./FIFO", fifo), "FIFO", fifo))...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				// Before it has taken over the signals one ends it, too.
				tick := time.NewTicker(2 * sameSignal)
				defer tick.Stop()
				late := time.After(wait.Left(t))
				for {
					select {
					case err := <-ended:
						var exit *exec.ExitError
						if !errors.As(err, &exit) || exit.ExitCode() != 128+int(sig) && exit.Sys().(syscall.WaitStatus).Signal() != sig {
							t.Errorf("it ended with %v", err)
						}
						return
					case <-tick.C:
						_ = cmd.Process.Signal(sig)
					case <-late:
						_ = cmd.Process.Kill()
						<-ended
						t.Fatal("deaf: it does not end")
					}
				}
			})
		}
	}
}
