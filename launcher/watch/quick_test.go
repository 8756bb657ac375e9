package watch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fabrun/testdata/bench/lines"
)

// naiveFind is what anchorSet.find promises, said plainly: whether p holds an
// anchor at or after from, and in which line the first one is.
func naiveFind(anchors []anchor, p []byte, from int) (line int, ok bool) {
	first := len(p)
	for _, a := range anchors {
		if i := bytes.Index(p[from:], []byte(a.text)); i >= 0 {
			first = min(first, from+i)
		}
	}
	return bytes.Count(p[:first], []byte("\n")), first < len(p)
}

func checkFind(t *testing.T, p []byte, from int) {
	t.Helper()
	for _, c := range []struct {
		set  *anchorSet
		list []anchor
	}{{ofStreams(), streamAnchors}, {ofWholeLogs(), append(streamAnchors[:len(streamAnchors):len(streamAnchors)], wholeAnchors...)}} {
		line, ok := naiveFind(c.list, p, from)
		at := c.set.find(p, from)
		if at < len(p) != ok {
			t.Fatalf("found %v in %q from %d, want %v", at < len(p), p, from, ok)
		}
		if ok && bytes.Count(p[:at], []byte("\n")) != line {
			t.Fatalf("found line %d of %q from %d, want %d", bytes.Count(p[:at], []byte("\n")), p, from, line)
		}
	}
}

// TestAnchorsAreFoundWhereverTheyStand tries every anchor at every place
// between bytes that are no anchors, and cut off at both ends.
func TestAnchorsAreFoundWhereverTheyStand(t *testing.T) {
	for _, a := range append(streamAnchors[:len(streamAnchors):len(streamAnchors)], wholeAnchors...) {
		for before := range 20 {
			for after := range 12 {
				p := append(bytes.Repeat([]byte("N"), before), a.text...)
				p = append(p, bytes.Repeat([]byte("\n"), after)...)
				checkFind(t, p, 0)
				for from := before; from <= len(p); from++ {
					checkFind(t, p, from)
				}
				for end := len(p); end >= before; end-- {
					checkFind(t, p[:end], 0)
				}
			}
		}
	}
}

func FuzzFindAnchor(f *testing.F) {
	f.Add([]byte("a\nNCCL INFO\nNET/IB UCX  MPI_ PML [btl_tcp_ <warn>"), uint(3))
	f.Fuzz(func(t *testing.T, p []byte, from uint) {
		checkFind(t, p, int(from%uint(len(p)+1)))
	})
}

// TestQuickSaysTheSame: the quick way through known lines leads to the same
// verdict as reading each line anew.
func TestQuickSaysTheSame(t *testing.T) {
	texts := logs(t)
	texts["made up"] = pieces(2<<20, lines.NCCL)
	for name, text := range texts {
		for _, pairs := range []bool{false, true} {
			quick, slow := New(Options{Pairs: pairs}), New(Options{Pairs: pairs})
			src := quick.Source("")
			_, _ = src.Write(text)
			_ = src.Close()
			for line := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
				if ofWholeLogs().find(line, 0) < len(line) {
					slow.runs.latest().line(cleanLine(nil, line), -1)
				}
			}
			slow.runs.settleAll()
			if d := cmp.Diff(slow.Verdict(), quick.Verdict()); d != "" {
				t.Errorf("%s (-slow +quick):\n%s", name, d)
			}
			if quick.Progress() != slow.Progress() {
				t.Errorf("%s: %d lines, want %d", name, quick.Progress(), slow.Progress())
			}
			procs := func(w *Watcher) map[procKey]int {
				out := map[procKey]int{}
				for k, p := range w.runs.latest().procs {
					out[k] = p.lines
				}
				return out
			}
			if d := cmp.Diff(procs(slow), procs(quick)); d != "" {
				t.Errorf("%s: lines of each process (-slow +quick):\n%s", name, d)
			}
		}
	}
}

// TestManyProcessesShareTheTables: more beginnings of lines than the tables hold.
func TestManyProcessesShareTheTables(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	w := New(Options{})
	s := w.Source("")
	var b bytes.Buffer
	const nodes, perNode = 600, 16
	for range 3 * nodes * perNode {
		n, p := r.IntN(nodes), r.IntN(perNode)
		b.Reset()
		b.WriteString("n")
		b.Write(itoa(n))
		b.WriteString(":")
		b.Write(itoa(9000 + p))
		b.WriteString(":1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/")
		b.Write(itoa(n % 300))
		b.WriteString("/GDRDMA\n")
		_, _ = s.Write(b.Bytes())
	}
	counted := 0
	for k, p := range w.runs.latest().procs {
		if k.host != p.host || k.pid != p.pid {
			t.Fatalf("process %v under the name %v", *p, k)
		}
		counted += p.lines
	}
	if counted != 3*nodes*perNode {
		t.Errorf("%d lines counted, want %d", counted, 3*nodes*perNode)
	}
	if n := w.runs.latest().totals(func(k transportKey) bool { return k.gdr == gdrYes }); n != 3*nodes*perNode {
		t.Errorf("%d channels counted, want %d", n, 3*nodes*perNode)
	}
}

func itoa(n int) []byte {
	var out []byte
	for {
		out = append([]byte{byte('0' + n%10)}, out...)
		if n /= 10; n == 0 {
			return out
		}
	}
}
