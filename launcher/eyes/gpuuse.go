package eyes

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// gpuMeter asks fabrun-nvml how much this node's GPUs are used. The helper lives
// as long as the job: to start the driver's library anew for each look would cost
// seconds. Asking never waits; an answer serves the look after.
type gpuMeter struct {
	ask  io.WriteCloser
	mu   sync.Mutex
	use  float64
	when time.Time
}

// freshUse is how old an answer may be.
const freshUse = 30 * time.Second

// newGPUMeter starts the helper; nil where there is none, or no driver.
func newGPUMeter(helper string) *gpuMeter {
	if helper == "" {
		return nil
	}
	if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
		return nil
	}
	return startGPUMeter(helper)
}

func startGPUMeter(helper string) *gpuMeter {
	cmd := exec.Command(helper, "use")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return nil
	}
	g := &gpuMeter{ask: in}
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if use, ok := parseUse(sc.Text()); ok {
				g.mu.Lock()
				g.use, g.when = use, time.Now()
				g.mu.Unlock()
			}
		}
		//nolint:errcheck // a helper that ended badly tells no more
		_ = cmd.Wait()
	}()
	return g
}

// parseUse reads 'use 0.873 8': the mean of the GPUs, and how many there are.
func parseUse(line string) (float64, bool) {
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != "use" {
		return 0, false
	}
	use, err := strconv.ParseFloat(f[1], 64)
	if err != nil || !(use >= 0 && use <= 1) {
		return 0, false
	}
	n, err := strconv.Atoi(f[2])
	return use, err == nil && n > 0
}

// look returns the last answer and asks again; nil where there is none.
func (g *gpuMeter) look() *float64 {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	use, when := g.use, g.when
	g.mu.Unlock()
	// A pipe holds thousands of these; a helper that hangs is not waited for
	// since it is asked every few seconds only.
	//nolint:errcheck // a helper that has ended answers no more
	_, _ = g.ask.Write([]byte("\n"))
	if when.IsZero() || time.Since(when) > freshUse {
		return nil
	}
	return &use
}

// close ends the helper.
func (g *gpuMeter) close() {
	if g != nil {
		//nolint:errcheck // it ends with its input
		_ = g.ask.Close()
	}
}
