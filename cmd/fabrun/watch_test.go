package main

import (
	"bytes"
	"context"
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
