package launcher

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written is what a Merge has written, from whichever goroutine.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// take returns what came since the last time.
func (w *written) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.b.Reset()
	return w.b.String()
}

// TestMerge: a step writes text as one source, or lets time pass. want is what
// stands there after each step.
func TestMerge(t *testing.T) {
	type step struct {
		from string // "a", "b"; "" lets time pass; upper case closes
		text string
		pass time.Duration
		want string // what this step adds to the output
	}
	for _, c := range []struct {
		name  string
		mode  Prefixing
		steps []step
	}{
		{"alone: byte for byte, at once", PrefixMany, []step{
			{"a", "10%\r", 0, "10%\r"},
			{"a", "20%\r", 0, "20%\r"},
			{"a", "no end", 0, "no end"},
			{"A", "", 0, ""},
		}},
		{"two speak in whole lines", PrefixMany, []step{
			{"a", "one\n", 0, "one\n"},
			{"b", "x\n\n", 0, "b: x\nb: \n"},
			{"a", "two\n", 0, "a: two\n"},
		}},
		{"always", PrefixAlways, []step{
			{"a", "one\ntw", 0, "a: one\n"},
			{"a", "o\n", 0, "a: two\n"},
		}},
		{"never", PrefixNever, []step{
			{"a", "one\n", 0, "one\n"},
			{"b", "x\n", 0, "x\n"},
			{"a", "half", 0, ""},
			{"", "", holdMost, "half"},
			{"b", "y\n", 0, ""},
			{"", "", holdMost, "y\n"},
		}},
		{"a line without an end waits a little, then is live", PrefixAlways, []step{
			{"a", "loading", 0, ""},
			{"", "", holdMost, "a: loading"},
			{"a", ".", 0, "."},
			{"a", ".\n", 0, ".\n"},
		}},
		{"the second waits for the line of the first", PrefixMany, []step{
			{"a", "half", 0, "half"},
			{"b", "x\n", 0, ""},
			{"a", " whole\n", 0, " whole\nb: x\n"},
		}},
		{"and not for ever", PrefixMany, []step{
			{"a", "half", 0, "half"},
			{"b", "x\n", 0, ""},
			{"", "", holdMost, "\nb: x\n"},
			{"a", " whole\n", 0, "a:  whole\n"},
		}},
		{"nor for one that has ended", PrefixMany, []step{
			{"a", "half", 0, "half"},
			{"A", "", 0, ""},
			{"b", "x\n", 0, "\nb: x\n"},
		}},
		{"two progress bars", PrefixMany, []step{
			{"a", "\r10%", 0, "\r10%"},
			{"b", "\r11%", 0, ""},
			{"", "", holdMost, "\nb: \rb: 11%"},
			{"b", "\r12%", 0, "\rb: 12%"},
			{"a", "\r20%", 0, ""},
			{"", "", holdMost, "\na: \ra: 20%"},
			{"b", "\r\n", 0, ""},
			{"a", "\r\n", 0, "\r\nb: \r\n"},
		}},
		{"what is left at the end", PrefixAlways, []step{
			{"a", "half", 0, ""},
			{"A", "", 0, "a: half"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out written
				m := NewMerge(&out, c.mode)
				sources := map[string]interface {
					Write([]byte) (int, error)
					Close() error
				}{"a": m.Source("a: "), "b": m.Source("b: ")}
				for i, s := range c.steps {
					switch {
					case s.from == "":
						time.Sleep(s.pass)
						synctest.Wait()
					case s.from != strings.ToLower(s.from):
						if err := sources[strings.ToLower(s.from)].Close(); err != nil {
							t.Fatal(err)
						}
					default:
						if _, err := sources[s.from].Write([]byte(s.text)); err != nil {
							t.Fatal(err)
						}
					}
					if got := out.take(); got != s.want {
						t.Errorf("step %d (%q by %q): got %q, want %q", i, s.text, s.from, got, s.want)
					}
				}
			})
		})
	}
}

// However it is cut and timed, each source's bytes stay in their order, nothing
// waits longer than holdMost, and with prefixes every line is one source's.
func TestMergeKeepsEveryByte(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var out written
			m := NewMerge(&out, PrefixNever)
			var wrote [3]strings.Builder
			for i := range wrote {
				s := m.Source("")
				letter := string(rune('a' + i))
				n := 20 + r.IntN(20)
				cuts := make([]string, n)
				for k := range cuts {
					cuts[k] = strings.Repeat(letter, r.IntN(5)) + []string{"", "\n", "\r", letter}[r.IntN(4)]
				}
				pauses := make([]time.Duration, n)
				for k := range pauses {
					pauses[k] = time.Duration(r.IntN(300)) * time.Millisecond
				}
				go func() {
					for k, text := range cuts {
						time.Sleep(pauses[k])
						_, _ = s.Write([]byte(text))
						wrote[i].WriteString(text)
					}
					_ = s.Close()
				}()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for i := range wrote {
				letter := rune('a' + i)
				only := func(s string) string {
					return strings.Map(func(c rune) rune {
						if c != letter {
							return -1
						}
						return c
					}, s)
				}
				if got, want := only(out.String()), only(wrote[i].String()); got != want {
					t.Errorf("seed %d: source %c: got %q, want %q", seed, letter, got, want)
				}
			}
			total := 0
			for i := range wrote {
				total += wrote[i].Len()
			}
			if n := len(out.String()); n != total {
				t.Errorf("seed %d: %d bytes of %d", seed, n, total)
			}
		})
	}
}

// A long line that comes in many pieces stays whole among others' lines.
func TestMergeLongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		m := NewMerge(&out, PrefixMany)
		a, b := m.Source("a: "), m.Source("b: ")
		fmt.Fprintln(b, "first")
		long := strings.Repeat("0123456789", 30_000)
		for i := range 30 {
			_, _ = a.Write([]byte(long[i*10_000 : (i+1)*10_000]))
			fmt.Fprintln(b, "between")
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintln(a)
		if want := "a: " + long + "\n"; !strings.Contains(out.String(), want) {
			t.Errorf("a line of %d bytes is not whole", len(long))
		}
	})
}

// When nobody reads any more, that is told once, and the program lives.
func TestMergeBroken(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	m := NewMerge(w, PrefixMany)
	told := 0
	m.Broken = func(error) { told++ }
	s := m.Source("")
	for range 3 {
		if _, err := s.Write([]byte("text\n")); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
