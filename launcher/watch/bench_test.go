package watch

import (
	"bytes"
	"fmt"
	"testing"
)

// ordinary is what solvers and training loops print.
func ordinary(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "Time = %d.%03d\n\n", i/1000, i%1000)
		case 1:
			fmt.Fprintf(&b, "smoothSolver:  Solving for Ux, Initial residual = 0.0%d, Final residual = 1.%de-06, No Iterations 3\n", i, i)
		case 2:
			fmt.Fprintf(&b, "[2026-11-21 04:55:%02d,123] [INFO] step %d loss 2.%d lr 1.0e-04 tokens/s %d\n", i%60, i, i, i*17)
		case 3:
			fmt.Fprintf(&b, "ExecutionTime = %d.%d s  ClockTime = %d s\n", i, i%100, i)
		}
	}
	return b.Bytes()
}

// ncclInfo is what a rank prints while it connects.
func ncclInfo(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		r := i % 8
		fmt.Fprintf(&b, "node%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] [send] via NET/IB/%d/GDRDMA\n", r/4, 1000+r, 2000+r, r, i%16, r, r, (r+1)%8, (r+1)%8, r%4)
		fmt.Fprintf(&b, "node%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read\n", r/4, 1000+r, 2000+r, r, i%16, r, r, (r+1)%8, (r+1)%8)
		fmt.Fprintf(&b, "node%d:%d:%d [%d] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->-1\n", r/4, 1000+r, 2000+r, r)
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

func BenchmarkOrdinaryOutput(b *testing.B) { benchmarkWrite(b, ordinary(8<<20)) }

func BenchmarkNCCLInfo(b *testing.B) { benchmarkWrite(b, ncclInfo(8<<20)) }
