package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/testdata/realdata"
)

// verdictOf scans text in pieces whose sizes next gives.
func verdictOf(text []byte, next func() int) Verdict {
	w := New(Options{})
	s := w.Source("")
	for len(text) > 0 {
		n := min(max(next(), 1), len(text))
		_, _ = s.Write(text[:n])
		text = text[n:]
	}
	_ = s.Close()
	return w.Verdict()
}

// essence is what must not change when the same lines come in other pieces or
// with other things in between.
func essence(v Verdict) Verdict {
	v.Events = nil
	return v
}

// logs returns the finished logs that the properties are tried on.
func logs(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{"own": []byte(twoNodeLog)}
	dir := realdata.Dir(t, "logs")
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\n...\n")) { // a mark that only whole files are searched for
			out[filepath.Base(f)] = text
		}
	}
	return out
}

// fixtures are the finished logs and the lines that the patterns are tried on.
func fixtures(t *testing.T) map[string][]byte {
	t.Helper()
	out := logs(t)
	for i, c := range patternCases {
		out[fmt.Sprintf("%s/%d", c.id, i)] = []byte(c.log + "\n")
	}
	return out
}

// TestPiecesDoNotMatter: however the bytes are cut, the verdict is the same.
func TestPiecesDoNotMatter(t *testing.T) {
	for name, text := range fixtures(t) {
		whole, err := Scan(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, uint64(len(text))))
		for _, most := range []int{7, 100, 5000} {
			got := verdictOf(text, func() int { return r.IntN(most) })
			if d := cmp.Diff(essence(whole), essence(got)); d != "" {
				t.Errorf("%s in pieces up to %d bytes (-whole +pieces):\n%s", name, most, d)
			}
		}
	}
}

// noise is n bytes of progress bars, binary output and ordinary lines.
func noise(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, "\r%3d%%|%s%s| %d/100 [00:01<00:02, 12.3it/s, loss=%.3f]", r.IntN(100), strings.Repeat("█", r.IntN(40)), strings.Repeat(" ", 3), r.IntN(100), r.Float64())
		case 1:
			for range r.IntN(4000) {
				b.WriteByte(byte(r.Uint32()))
			}
		case 2:
			fmt.Fprintf(&b, "\x1b[32mstep %d\x1b[0m loss %.4f grad_norm %.3f\n", r.IntN(1e6), r.Float64(), r.Float64())
		case 3:
			b.WriteString(strings.Repeat("=", r.IntN(200)) + "\n")
		}
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// noisePool is made once; pieces of it that end with a line are cut from it.
func noisePool(r *rand.Rand) func(n int) []byte {
	pool := noise(r, 4<<20)
	return func(n int) []byte {
		n = min(n, len(pool)/2)
		at := r.IntN(len(pool) - n)
		return append(bytes.Clone(pool[at:at+n]), '\n')
	}
}

// TestNoiseDoesNotMatter: ten megabytes of progress bars and binary between
// the lines, and another rank's harmless lines, change nothing.
func TestNoiseDoesNotMatter(t *testing.T) {
	between := noisePool(rand.New(rand.NewPCG(3, 3)))
	for name, text := range fixtures(t) {
		whole, err := Scan(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(2, uint64(len(text))))
		lines := bytes.SplitAfter(text, []byte("\n"))
		total := 10 << 20
		switch {
		case len(text) < 4<<10 && testing.Short():
			total = 64 << 10
		case len(text) < 4<<10:
			total = 128 << 10
		case testing.Short() || len(text) > 64<<10:
			total = 2 << 20
		}
		piece := total / len(lines)
		w := New(Options{})
		s := w.Source("")
		for _, line := range lines {
			_, _ = s.Write(line)
			if len(line) == 0 || line[len(line)-1] != '\n' {
				_, _ = s.Write([]byte("\n"))
			}
			_, _ = s.Write(between(r.IntN(2*piece + 1)))
		}
		_ = s.Close()
		if d := cmp.Diff(essence(whole), essence(w.Verdict())); d != "" {
			t.Errorf("%s among noise (-alone +among):\n%s", name, d)
		}
	}
}

// TestSecondRankDoesNotMatter: the same words from a second process of the
// same host, line by line in between, change only the count of ranks.
func TestSecondRankDoesNotMatter(t *testing.T) {
	for name, text := range logs(t) {
		whole, err := Scan(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{})
		s := w.Source("")
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			_, _ = s.Write(line)
			if i := bytes.Index(line, []byte("NCCL INFO ")); i > 0 {
				segs := segments(nil, line, -1)
				if len(segs) == 1 && segs[0].clean {
					fmt.Fprintf(s, "%s:%d:%d [0] NCCL INFO Setting affinity for GPU 0 to ff\n", segs[0].host, segs[0].pid, segs[0].pid+1)
				}
			}
		}
		_ = s.Close()
		if d := cmp.Diff(essence(whole), essence(w.Verdict())); d != "" {
			t.Errorf("%s with a second speaker (-alone +both):\n%s", name, d)
		}
	}
}

// TestSecondLogDoesNotMatter: the whole log again, line by line in between, from
// another process of each host, changes nothing but how many ranks are seen, and
// what follows from that.
func TestSecondLogDoesNotMatter(t *testing.T) {
	for name, text := range logs(t) {
		whole, err := Scan(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{})
		s := w.Source("")
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			_, _ = s.Write(line)
			segs := segments(nil, line, -1)
			if len(segs) == 1 && segs[0].clean && bytes.HasSuffix(line, []byte("\n")) {
				pid := fmt.Appendf(nil, "%s:%d:", segs[0].host, segs[0].pid)
				_, _ = s.Write(bytes.Replace(line, pid, fmt.Appendf(nil, "%s:%d:", segs[0].host, segs[0].pid+1000000), 1))
			}
		}
		_ = s.Close()
		both := w.Verdict()
		type kept struct {
			Library, Version             string
			Networks, Via, Devices, Errs []string
			GDR                          *bool
		}
		of := func(v Verdict) kept {
			return kept{v.Library, v.Version, v.Networks, v.InterNodeTransports, v.Devices, v.FatalErrors, v.GDR}
		}
		if d := cmp.Diff(of(whole), of(both)); d != "" {
			t.Errorf("%s with a second log (-alone +both):\n%s", name, d)
		}
		if whole.Fallback != nil && (both.Fallback == nil || *both.Fallback != *whole.Fallback) {
			t.Errorf("%s with a second log: fallback %s, alone %s", name, show(both.Fallback), show(whole.Fallback))
		}
	}
}

// TestMemoryIsBounded: tens of megabytes of lines that each name a new process, a
// new device, a new warning, a new variable or a new pair of ranks leave no more
// than the bounds allow.
func TestMemoryIsBounded(t *testing.T) {
	total := 32 << 20
	if testing.Short() {
		total = 4 << 20
	}
	w := New(Options{Pairs: true})
	s := w.Source("")
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(5, 5))
	for written := 0; written < total; written += b.Len() {
		b.Reset()
		for range 500 {
			n := r.Uint32()
			fmt.Fprintf(&b, "n%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[0] -> %d[0] [send] via NET/IB%d/%d\n", n%100000, n>>3, n>>2, n%100, n%64, n%70000, n%60000, n%5000, n%200)
			fmt.Fprintf(&b, "n%d:%d:%d [%d] NCCL INFO NET/IB : Using [0]mlx5_%d:1/IB [RO]; OOB eth%d:10.%d.%d.1<0>\n", n%100000, n>>3, n>>2, n%100, n, n%1000, n%250, n>>8%250)
			fmt.Fprintf(&b, "\nn1:1:1 [0] x.cc:%d NCCL WARN trouble number %d\n", n%1000, n)
			fmt.Fprintf(&b, "n1:1:1 [0] NCCL INFO NCCL_X%d set by environment to %d.\n", n, n)
			fmt.Fprintf(&b, "[1.%d] [n%d:%d:0] ucp_worker.c:1 UCX  INFO    inter-node cfg#%d tag(rc_mlx5/mlx5_%d:1)\n", n, n, n>>4, n, n)
			fmt.Fprintf(&b, "[n%d:%d] select: component ucx selected\n", n, n>>5)
			fmt.Fprintf(&b, "[0] MPI startup(): %d       %d    node%d    {0}\n", n, n, n)
		}
		_, _ = s.Write(b.Bytes())
	}
	v := w.Verdict()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if most := uint64(192 << 20); mem.HeapAlloc > most {
		t.Errorf("%d MB are kept after %d MB, want at most %d", mem.HeapAlloc>>20, total>>20, most>>20)
	}
	if text, err := json.Marshal(v); err != nil || len(text) > 16<<20 {
		t.Errorf("the verdict is %d bytes long, %v", len(text), err)
	}
}

// twoNodeLog is a healthy job on two nodes, written for this test.
const twoNodeLog = `n1:10:10 [0] NCCL INFO NCCL version 2.27.7+cuda12.8
n1:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
n1:10:11 [0] NCCL INFO Using network IB
n2:20:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.2<0>
n2:20:20 [0] NCCL INFO Using network IB
n1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
n2:20:20 [0] NCCL INFO comm 0x2 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
n1:10:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n2:20:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA
n1:10:11 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
n2:20:20 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
`
