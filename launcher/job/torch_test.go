package job

import (
	"bytes"
	"testing"
)

// What torchrun says of a worker that failed is found wherever it is cut, told
// once, and everything is passed on.
func TestFailureReader(t *testing.T) {
	const old = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 3) local_rank: 0 (pid: 464) of binary: /usr/bin/python3.11\n"
	const later = "E1121 09:28:15.000 7 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 9) of binary: /usr/bin/python3\n"
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"torch 1.13", "before\n" + old + "after", 1},
		{"torch 2", later, 1},
		{"twice", old + later, 1},
		{"a program's own words", "Test failed (exitcode: 3)\nlocal_rank: 0\n", 0},
		{"a long line", string(bytes.Repeat([]byte("x"), 3*maxFailureLine)) + "\n" + old, 1},
	} {
		for _, step := range []int{1, 7, 4096, 1 << 20} {
			var out bytes.Buffer
			told := 0
			r := &failureReader{to: &out, failed: func() { told++ }}
			for rest := []byte(c.text); len(rest) > 0; {
				n := min(step, len(rest))
				if _, err := r.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if told != c.want || out.String() != c.text {
				t.Errorf("%s by %d: told %d times, want %d; %d bytes passed on of %d", c.name, step, told, c.want, out.Len(), len(c.text))
			}
		}
	}
}
