package watch

import (
	"bytes"
	"testing"

	"fabrun/testdata/bench/lines"
)

func pieces(size int, of func(*bytes.Buffer, int)) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		of(&b, i)
	}
	return b.Bytes()
}

func benchmarkWrite(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	w := New(Options{})
	s := w.Stream("")
	for b.Loop() {
		for p := text; len(p) > 0; {
			n := min(len(p), bufferBytes)
			_, _ = s.Write(p[:n])
			p = p[n:]
		}
	}
}

func BenchmarkOrdinaryOutput(b *testing.B) { benchmarkWrite(b, pieces(8<<20, lines.Ordinary)) }

func BenchmarkNCCLInfo(b *testing.B) { benchmarkWrite(b, pieces(8<<20, lines.NCCL)) }

// TestBenchmarkedLinesAreRead: what is benchmarked is what NCCL prints, and not
// something that is passed over.
func TestBenchmarkedLinesAreRead(t *testing.T) {
	w := New(Options{})
	s := w.Stream("")
	_, _ = s.Write(pieces(4<<20, lines.NCCL))
	v := w.Verdict()
	if v.Fallback == nil || *v.Fallback || v.RanksSeen == nil || *v.RanksSeen != lines.Ranks || *v.NNodes != lines.Nodes || len(v.Devices) != 4 || v.GDR == nil || !*v.GDR {
		t.Errorf("%+v", v)
	}
	w = New(Options{})
	_, _ = w.Stream("").Write(pieces(1<<20, lines.Ordinary))
	if v := w.Verdict(); v.Library != "" || w.Progress() != 0 {
		t.Errorf("ordinary output is taken for a library's: %+v", v)
	}
}
