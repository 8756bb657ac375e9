package launcher

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// pipeBytes is the size asked for the pipe between the job and fabrun, and the
// most that is read at once; the default of 64 KB halves what goes through, and
// more than this changes nothing (measured).
const pipeBytes = 256 << 10

// Pump passes one stream of the job on, byte for byte, and lets what it passes
// be read. It stands only where a stream has to be read.
type Pump struct {
	in, out *os.File // the pipe: the child writes to in, the pump reads out
	to      io.Writer
	read    io.Writer // gets every byte after it was passed on; never fails, never waits
	done    chan struct{}
	started bool
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
	p.started = true
	go p.run()
}

func (p *Pump) run() {
	defer close(p.done)
	// When this ends early, whoever read the job's output has gone: the job is
	// told in the same way, at its next write.
	//nolint:errcheck // reading ends here
	defer p.out.Close()
	// A blocking read of a thread of its own: the poller's wake-ups cost a
	// third of the throughput (measured).
	runtime.LockOSThread()
	in := int(p.out.Fd())
	to := newSink(p.to)
	buf := make([]byte, pipeBytes)
	for {
		n, err := to.pass(in, buf)
		if n > 0 {
			// What is read has been passed on already, and reading a buffer takes
			// a tenth of a millisecond; a second thread for it costs more in
			// wake-ups, a fifth of the throughput on two processors (measured).
			//nolint:errcheck // never fails
			_, _ = p.read.Write(buf[:n])
		}
		if err != nil || n == 0 {
			return
		}
	}
}

// sink is where a stream goes on to.
type sink struct {
	to io.Writer
	fd int // of to; -1: not a file
	// pipe: the kernel can hand the bytes on without a copy (tee(2)).
	pipe bool
}

func newSink(to io.Writer) *sink {
	s := &sink{to: to, fd: -1}
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			s.fd, s.pipe = int(f.Fd()), info.Mode()&os.ModeNamedPipe != 0
		}
	}
	return s
}

// pass takes what there is in the pipe in, hands it on and leaves it in buf.
func (s *sink) pass(in int, buf []byte) (int, error) {
	if s.pipe {
		n, err := again(func() (int, error) {
			n, err := syscall.Tee(in, s.fd, len(buf), 0)
			return int(n), err
		})
		if err == nil {
			return readFull(in, buf[:n])
		}
		s.pipe = false // full and not waiting, or broken: writing tells
	}
	n, err := again(func() (int, error) { return syscall.Read(in, buf) })
	if err != nil || n == 0 {
		return 0, err
	}
	return n, s.write(buf[:n])
}

// write writes without os.File where it can: that would end this whole program
// when nobody reads its standard output any more, and with it the job's clean-up.
func (s *sink) write(b []byte) error {
	for s.fd >= 0 && len(b) > 0 {
		n, err := again(func() (int, error) { return syscall.Write(s.fd, b) })
		if errors.Is(err, syscall.EAGAIN) {
			break // somebody made the file non-blocking: os.File knows how to wait
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := s.to.Write(b)
	return err
}

// readFull reads what tee has handed on: it is there.
func readFull(fd int, buf []byte) (int, error) {
	got := 0
	for got < len(buf) {
		n, err := again(func() (int, error) { return syscall.Read(fd, buf[got:]) })
		if err != nil {
			return got, err
		}
		if n == 0 {
			break
		}
		got += n
	}
	return got, nil
}

func again(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Stop waits for the end of the stream. A process that stays behind on purpose
// may hold it open for ever, so it waits no longer than grace.
func (p *Pump) Stop(grace time.Duration) error {
	//nolint:errcheck // closed by Start already, or never started
	_ = p.in.Close()
	if !p.started {
		// The child could not be started: nothing will come.
		return p.out.Close()
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return errors.New("a process that the job left behind holds its output open")
	}
}
