package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fabrun/testdata/bench/lines"
)

// tickEvery is far more than a line takes, so that each line travels alone.
const tickEvery = 5 * time.Millisecond

// ticker prints lines that say when they were printed; every tenth one is one
// that has to be read and told.
func ticker(n int) {
	for i := range n {
		time.Sleep(tickEvery)
		if i%10 == 0 {
			fmt.Printf("n1:%d:1 [0] NCCL INFO Using network IB\n", 1000+i)
		}
		// One write: what is measured is the line, not its halves.
		fmt.Printf("tick %d\n", time.Now().UnixNano())
	}
}

// latency measures how long a single line is under way.
func latency(w io.Writer, dir, fabrun string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	const n = 400
	job := []string{self, "-tick", strconv.Itoa(n)}
	for _, l := range []struct {
		name string
		argv []string
	}{
		{"fabrun run -- JOB", append([]string{fabrun, "run", "--profile", "none", "--"}, job...)},
		{"JOB | cat", []string{"sh", "-c", "exec \"$0\" \"$@\" | cat", self, "-tick", strconv.Itoa(n)}},
		{"JOB alone", job},
	} {
		cmd := exec.Command(l.argv[0], l.argv[1:]...)
		cmd.Env = append(os.Environ(), "NCCL_DEBUG=INFO")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		var took []time.Duration
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if at, ok := strings.CutPrefix(sc.Text(), "tick "); ok {
				if ns, err := strconv.ParseInt(at, 10, 64); err == nil {
					took = append(took, time.Since(time.Unix(0, ns)))
				}
			}
		}
		if err := cmd.Wait(); err != nil {
			return err
		}
		if len(took) == 0 {
			return fmt.Errorf("%s printed no line", l.name)
		}
		slices.Sort(took)
		fmt.Fprintf(w, "  %-34s median %8.3f ms  99%% %8.3f  max %8.3f  (%d lines)\n", l.name, ms(took[len(took)/2]), ms(took[len(took)*99/100]), ms(took[len(took)-1]), len(took))
	}
	return nil
}

// manyLogs lets the eye of one node follow the private logs of a thousand ranks
// that all write at once, and says what that takes.
func manyLogs(w io.Writer, dir, fabrun string) error {
	const ranks = 1000
	const perRank = 256 << 10
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(logs)
	var b bytes.Buffer
	for i := 0; b.Len() < perRank; i++ {
		lines.NCCL(&b, i)
	}
	text := b.Bytes()
	cmd := exec.Command(fabrun, "watch", "--follow", logs)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	start := time.Now()
	fds := 0
	// In ten rounds, as ranks do that set up ten communicators.
	for round := range 10 {
		for r := range ranks {
			f, err := os.OpenFile(filepath.Join(logs, fmt.Sprintf("nccl.%d.log", r)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			_, err = f.Write(text[round*perRank/10 : (round+1)*perRank/10])
			if cerr := f.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return err
			}
		}
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid)); err == nil {
			fds = max(fds, len(open))
		}
	}
	if err := in.Close(); err != nil {
		return err
	}
	said, err := io.ReadAll(out)
	if err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	wall := time.Since(start)
	room, err := blocks(logs)
	if err != nil {
		return err
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	rss := int64(0)
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		rss = r.Maxrss
	}
	verdict := bytes.Count(said, []byte(`"verdict"`))
	fmt.Fprintf(w, "  %-34s %d MB in %.1f s  cpu %.2f s  rss %d MB  at most %d open files  %d MB left in the files  %d verdict\n", "fabrun watch --follow", ranks*perRank>>20, wall.Seconds(), cpu.Seconds(), rss>>10, fds, room>>20, verdict)
	return nil
}

// blocks is the room that the files of a directory take.
func blocks(dir string) (int64, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var room int64
	for _, f := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, f.Name()), &st); err != nil {
			return 0, err
		}
		room += st.Blocks * 512
	}
	return room, nil
}
