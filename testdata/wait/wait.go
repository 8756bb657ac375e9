// Package wait lets tests wait for other programs without judging their speed:
// a machine ten times slower takes longer and passes.
package wait

import (
	"testing"
	"time"
)

// Long is a limit for what must not end by its limit.
const Long = time.Hour

// Left is how long a test may wait: until the test binary's own -timeout is so
// near that there is just time to say what was waited for.
func Left(t *testing.T) time.Duration {
	end, limited := t.Deadline()
	if !limited {
		return Long
	}
	return time.Until(end) - 20*time.Second
}

// For polls until something is reached, since nobody tells of another program's
// processes.
func For(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for !reached() {
		if Left(t) < 0 {
			t.Fatalf("go test's own time is up, and not reached: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
