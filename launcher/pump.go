package launcher

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// pipeBytes is the size asked for the pipe between the job and fabrun; the
// default of 64 KB halves what goes through (measured).
const pipeBytes = 256 << 10

// Pump passes one stream of the job on, byte for byte, and lets what it passes
// be read. It stands only where a stream has to be read.
type Pump struct {
	in, out *os.File // the pipe: the child writes to in, the pump reads out
	to      io.Writer
	read    io.Writer // gets every byte after it was passed on; never fails
	done    chan struct{}
}

// NewPump makes the pipe; the child is given Child as its stream.
func NewPump(to io.Writer, read io.Writer) (*Pump, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// F_SETPIPE_SZ is 1031 (linux/fcntl.h); a refusal costs speed only.
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), 1031, pipeBytes)
	return &Pump{in: w, out: r, to: to, read: read, done: make(chan struct{})}, nil
}

// Child is the end that the child inherits.
func (p *Pump) Child() *os.File { return p.in }

// Start passes bytes on; it is called when the child has been started, and
// closes the child's end here so that the end of the stream is seen.
func (p *Pump) Start() {
	//nolint:errcheck // a pipe end that was only handed on
	_ = p.in.Close()
	go p.run()
}

func (p *Pump) run() {
	defer close(p.done)
	buf := make([]byte, 128<<10)
	gone := false
	for {
		n, err := p.out.Read(buf)
		if n > 0 {
			if !gone {
				if _, werr := p.to.Write(buf[:n]); werr != nil {
					// Whoever read the job's output has gone: the job is told
					// in the same way, at its next write.
					gone = true
					//nolint:errcheck // reading ends here
					_ = p.out.Close()
				}
			}
			//nolint:errcheck // never fails
			_, _ = p.read.Write(buf[:n])
		}
		if err != nil || gone {
			return
		}
	}
}

// Stop waits for the end of the stream. A process that stays behind on purpose
// may hold it open for ever, so it waits no longer than grace.
func (p *Pump) Stop(grace time.Duration) error {
	//nolint:errcheck // closed by Start already, or never started
	_ = p.in.Close()
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return errors.New("a process that the job left behind holds its output open")
	}
}
