package launcher

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"fabrun/launcher/plan"
)

// NodeJob is what a fabrun on a node is told to run by the one that started it
// there. It comes over that one's standard input: a command line would show the
// environment to everybody on the machine, and no login shell could change it.
//
// The text is a line "fabrun-node 1 BYTES FIELDS…" with the numbers of its parts,
// then BYTES bytes of strings that end in NUL each. Orders follow, a line each;
// the end of the stream ends the job.
type NodeJob struct {
	Argv  []string
	Env   []string
	Dir   string     // where it is started; "" where the node's fabrun is
	Mark  string     // of the job's processes, on every host
	Carry plan.Carry // what of the environment was sent
}

const (
	nodeMagic = "fabrun-node 1"
	maxNode   = 64 << 20 // bytes; the kernel's own limit for a new process is far below
	maxOrder  = 128
)

// WriteTo sends the job.
func (j NodeJob) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	parts := [][]string{{j.Dir, j.Mark}, j.Argv, j.Carry.Take, j.Carry.Leave, j.Env}
	for _, p := range parts {
		for _, s := range p {
			b.WriteString(s)
			b.WriteByte(0)
		}
	}
	head := fmt.Sprintf("%s %d %d %d %d %d\n", nodeMagic, b.Len(), len(j.Argv), len(j.Carry.Take), len(j.Carry.Leave), len(j.Env))
	n, err := io.WriteString(w, head+b.String())
	return int64(n), err
}

// ReadNodeJob reads what WriteTo has written.
func ReadNodeJob(r *bufio.Reader) (NodeJob, error) {
	var j NodeJob
	head, err := readLine(r)
	if err != nil {
		return j, fmt.Errorf("reading the job from standard input: %w", err)
	}
	rest, ok := strings.CutPrefix(head, nodeMagic+" ")
	f := strings.Fields(rest)
	var n [5]int
	if !ok || len(f) != len(n) {
		return j, fmt.Errorf("reading the job from standard input: %q is no job of this fabrun", head)
	}
	for i, word := range f {
		if n[i], err = strconv.Atoi(word); err != nil || n[i] < 0 || n[i] > maxNode {
			return j, fmt.Errorf("reading the job from standard input: %q is no number of bytes or strings", word)
		}
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(n[0])))
	if err == nil && len(text) < n[0] {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return j, fmt.Errorf("reading the job from standard input: %w", err)
	}
	all := strings.Split(string(text), "\x00")
	all = all[:len(all)-1]
	if want := 2 + n[1] + n[2] + n[3] + n[4]; len(all) != want || n[0] > 0 && text[n[0]-1] != 0 {
		return j, fmt.Errorf("reading the job from standard input: %d strings where %d were announced", len(all), want)
	}
	j.Dir, j.Mark = all[0], all[1]
	take := func(n int) []string {
		part := all[:n:n]
		all = all[n:]
		return part
	}
	all = all[2:]
	j.Argv, j.Carry.Take, j.Carry.Leave, j.Env = take(n[1]), take(n[2]), take(n[3]), take(n[4])
	if len(j.Argv) == 0 {
		return j, errors.New("reading the job from standard input: no program in it")
	}
	return j, nil
}

// SendSignal sends the order to hand a signal on.
func SendSignal(w io.Writer, sig syscall.Signal) error {
	_, err := fmt.Fprintf(w, "signal %d\n", int(sig))
	return err
}

// Orders reads the orders behind a job and returns when the stream ends. What it
// does not know it leaves out.
func Orders(r *bufio.Reader, deliver func(syscall.Signal)) {
	for {
		line, err := readLine(r)
		if err != nil {
			return
		}
		word, number, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(number); word == "signal" && err == nil && n > 0 && n < 65 {
			deliver(syscall.Signal(n))
		}
	}
}

// readLine reads a short line, without its end.
func readLine(r *bufio.Reader) (string, error) {
	var b []byte
	for len(b) <= maxOrder {
		c, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if c == '\n' {
			return string(b), nil
		}
		b = append(b, c)
	}
	return "", fmt.Errorf("%q… is no order", b)
}
