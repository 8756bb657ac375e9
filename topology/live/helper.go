package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fabrun/topology/discover"
)

const (
	helperDeadline = 5 * time.Second // NVML's Init on a cold 8-GPU machine takes one to two
	maxHelper      = 1 << 20
)

// Helper returns the fabrun-nvml that lies beside the given program, "" where
// there is none. PATH is not searched: what is started must be fabrun's own.
func Helper(self string) string {
	if self == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	p := filepath.Join(filepath.Dir(self), "fabrun-nvml")
	st, err := os.Stat(p)
	if err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return ""
	}
	return p
}

// nvml is what the driver's library says of the GPUs.
func nvml(ctx context.Context, helper string) ([]byte, error) {
	return fromHelper(ctx, discover.SectionNVML, helper)
}

// secondOpinions is what ghw and rdmamap say of this machine.
func secondOpinions(ctx context.Context, helper string) ([]byte, error) {
	return fromHelper(ctx, discover.SectionOpinions, helper, "opinions")
}

// fromHelper runs the helper and returns the text of its one section. A driver
// that kills its process kills the helper alone, which is then what is reported.
func fromHelper(ctx context.Context, section, helper string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, helperDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, helper, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	cmd.WaitDelay = time.Second
	out := &limitedBuffer{max: maxHelper}
	cmd.Stdout = out
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("fabrun-nvml gave no answer within %v", helperDeadline)
	case out.over:
		return nil, fmt.Errorf("fabrun-nvml printed more than %d bytes", maxHelper)
	case err != nil:
		return nil, fmt.Errorf("fabrun-nvml ended with %w", err)
	}
	return cutSection(section, out.buf.String())
}

// cutSection takes the section out of the helper's output, which is a piece of
// a snapshot: "-- fabrun/nvml --" and its text, or "fabrun/nvml ! reason".
func cutSection(section, out string) ([]byte, error) {
	head, text, _ := strings.Cut(out, "\n")
	if reason, ok := strings.CutPrefix(head, section+" ! "); ok {
		return nil, errors.New(reason)
	}
	if head != "-- "+section+" --" {
		return nil, fmt.Errorf("fabrun-nvml printed no section %s", section)
	}
	return []byte(text), nil
}

// limitedBuffer refuses what goes beyond max bytes.
type limitedBuffer struct {
	buf  bytes.Buffer
	max  int
	over bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.max {
		b.over = true
		return 0, io.ErrShortWrite
	}
	return b.buf.Write(p)
}
