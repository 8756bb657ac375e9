package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// TestWatchReadsUTF16: what PowerShell wrote is read from a file and from standard
// input, with a mark and without.
func TestWatchReadsUTF16(t *testing.T) {
	const log = "n1:10:11 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.\r\nn1:10:11 [0] NCCL INFO NET/IB : No device found.\r\n" +
		"n1:10:11 [0] NCCL INFO Using network Socket\r\nn1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\r\n"
	for _, marked := range []string{"\ufeff", ""} {
		var text []byte
		for _, c := range utf16.Encode([]rune(marked + log)) {
			text = append(text, byte(c), byte(c>>8))
		}
		file := filepath.Join(t.TempDir(), "job.log")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, arg := range []string{file, "-"} {
			var out, errs bytes.Buffer
			code := run(context.Background(), []string{"fabrun", "watch", arg}, nil, bytes.NewReader(text), &out, &errs)
			if code != 0 || !strings.HasPrefix(out.String(), "FALLBACK to TCP: NCCL finds no active RDMA device") {
				t.Errorf("%s: %d\n%s%s", arg, code, out.String(), errs.String())
			}
		}
	}
}

// firstLine hands over the first line that is written to it.
type firstLine struct{ lines chan string }

func (f firstLine) Write(p []byte) (int, error) {
	select {
	case f.lines <- string(p):
	default:
	}
	return len(p), nil
}

// TestWatchSpeaksWhileItReads: what a pipe brings is said before the pipe ends.
func TestWatchSpeaksWhileItReads(t *testing.T) {
	in, log := io.Pipe()
	said := firstLine{make(chan string, 1)}
	var out bytes.Buffer
	code := make(chan int)
	go func() { code <- run(context.Background(), []string{"fabrun", "watch"}, nil, in, &out, said) }()
	for _, line := range []string{"NET/IB : No device found.", "Using network Socket", "comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"} {
		if _, err := io.WriteString(log, "n1:10:11 [0] NCCL INFO "+line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-said.lines; !strings.Contains(got, "n1 rank 0: FALLBACK to TCP (no-device)") {
		t.Errorf("said %q", got)
	}
	if out.Len() > 0 {
		t.Errorf("the verdict came before the end: %s", out.String())
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 || !strings.HasPrefix(out.String(), "FALLBACK to TCP: ") {
		t.Errorf("%d: %s", c, out.String())
	}
}
