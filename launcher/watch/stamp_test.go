package watch

import "testing"

// A log service's time stamp without a space behind it is no part of the host.
func TestGluedStamps(t *testing.T) {
	for _, c := range []struct{ in, host string }{
		{"2025-05-16T16:39:51.208-07:00node1", "node1"},
		{"2025-05-16T16:39:51+02:00node1", "node1"},
		{"2025-05-16T16:39:51.208Znode1", "node1"},
		{"2025-05-16T16:39:51Z10-0-0-1", "10-0-0-1"},
		{"16:39:51 node1", "node1"},
		{"51node1", "51node1"},
		{"00node1", "00node1"},
		{"2025-05-16T16:39:51.208-07:00", "00"},
		{"1:2:51Znode1", "51Znode1"},
	} {
		segs := segments(nil, []byte(c.in+":10:11 [0] NCCL INFO Using network IB"), -1)
		if len(segs) != 1 || string(segs[0].host) != c.host {
			t.Errorf("%q: %+v", c.in, segs)
		}
	}
}
