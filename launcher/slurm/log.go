package slurm

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// slurmd throws away what a prolog that succeeds writes (src/slurmd/slurmd/req.c),
// so the doors say everything in the system's log too.

// SyslogSocket is where syslog and journald listen.
const SyslogSocket = "/dev/log"

// syslogWait bounds one line: a log that hangs must not hang a prolog.
const syslogWait = time.Second

// Priorities of RFC 3164: facility daemon (3), severity warning (4) or info (6).
const (
	syslogWarning = 3*8 + 4
	syslogInfo    = 3*8 + 6
)

// systemLog writes whole lines to the system's log. Where it has failed once it
// is left alone.
type systemLog struct {
	conn     net.Conn
	tag      string // "fabrun[17]: slurm prolog: job 7: "
	priority int
	err      error
}

// openSystemLog connects to a syslog socket; "" and a missing one give a log
// that only keeps its error.
func openSystemLog(socket, about string) *systemLog {
	l := &systemLog{tag: fmt.Sprintf("fabrun[%d]: %s: ", os.Getpid(), about), priority: syslogWarning}
	if socket == "" {
		l.err = fmt.Errorf("no socket named")
		return l
	}
	l.conn, l.err = net.DialTimeout("unixgram", socket, syslogWait)
	return l
}

// Write never fails: the log is beside what was to be done.
func (l *systemLog) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("fabrun: ")))
		if l.err != nil || len(line) == 0 {
			continue
		}
		if l.err = l.conn.SetWriteDeadline(time.Now().Add(syslogWait)); l.err == nil {
			_, l.err = fmt.Fprintf(l.conn, "<%d>%s %s%s", l.priority, time.Now().Format(time.Stamp), l.tag, line)
		}
	}
	return len(p), nil
}

func (l *systemLog) close() {
	if l.conn != nil {
		//nolint:errcheck // nothing is left to be written
		_ = l.conn.Close()
	}
}

// both writes to all of them, whichever fails: standard error may be closed.
type both []io.Writer

func (b both) Write(p []byte) (int, error) {
	for _, w := range b {
		//nolint:errcheck // the others count
		_, _ = w.Write(p)
	}
	return len(p), nil
}
